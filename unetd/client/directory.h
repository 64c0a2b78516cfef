/*
 * The directory: who listens where, in one read-only page set that every client of a unetd has
 * mapped.
 *
 * unetd alone writes it (its memfd is sealed against any other writer); clients look up (protocol,
 * address, port) without a system call, in some 20 ns, before each connect. The table is
 * open-addressed with linear probing and no tombstones; a sequence lock around the whole makes a
 * reader's view consistent. A reader never loops for ever. After DIR_TRIES torn reads (unetd lost
 * its CPU, or died, while it wrote) it answers -EAGAIN. The caller then yields and asks again, a
 * bounded number of times, or goes to the kernel, where ordinary listeners listen too. What unetd
 * wrote is not trusted beyond that: numbers are bounded, and a stack number only names whom to ask
 * for a channel.
 *
 * Wildcard addresses, IPv4 and IPv6, are the same key (all zero): a listener on :: that does not
 * take IPv4 is not registered. Several stacks may have the same key (SO_REUSEPORT), each with
 * several sockets; `hint`, a hash of the flow, picks a socket, and so a stack, which then picks by
 * itself among its own.
 */
#ifndef UNETD_DIRECTORY_H
#define UNETD_DIRECTORY_H

#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>

#include "ip/netconf.h"
#include "base/base.h"
#include "base/siphash.h"
#include "config/rule.h"

#define DIR_MAGIC   0x75646972u /* "udir" */
#define DIR_SLOTS   16384u      /* at most 3/4 used */
#define DIR_MAX     (DIR_SLOTS / 4 * 3)
#define DIR_ADDRS   256u /* addresses of this network namespace */
#define DIR_PER_KEY 64u  /* stacks with the same key that are told apart */
#define DIR_RUN     512u /* no entry is farther from where its probing starts */
#define DIR_TRIES   64u
/* Client TCP ports are leased in runs of so many; the whole range of ports in these. */
#define DIR_BLOCK_PORTS 4u
#define DIR_BLOCKS      (65536u / DIR_BLOCK_PORTS)
static_assert(65536u % DIR_BLOCK_PORTS == 0, "each port is of a run");
static_assert(DIR_RUN < DIR_SLOTS && DIR_MAX < DIR_SLOTS, "probing ends");
/* A bit of the protocol: the stack sends from the port, and takes nothing at it. */
#define DIR_HELD 0x80u

struct dir_entry {
        ip_addr addr;   /* all zero: wildcard */
        uint32_t stack; /* 0: empty slot */
        uint32_t uid;
        uint16_t port;
        uint8_t proto;
        uint8_t pad;
        uint32_t socks; /* that the stack has there, and so its share of what comes */
};
static_assert(sizeof(struct dir_entry) == 32, "two a cache line");

/* An interface that unetd owns: what a stack may ask a channel to. Addresses are IPv4, in
 * host order. */
struct dir_iface {
        char name[16];
        /* Its number where a stack's would stand: UNETD_IFACE | index; 0: none here. */
        uint32_t peer;
        uint32_t stack; /* that has it to itself; 0: none */
        uint32_t users; /* stacks that use it; more than one, or without `stack`: by its bridge */
        uint32_t addr, gateway; /* gateway 0: none */
        uint32_t prefix;
        char how[240]; /* what it goes by now, or why it could not be had: one line */
};
#define DIR_IFACES 8u

struct directory {
        uint32_t magic;
        uint32_t bytes;              /* of the whole */
        _Atomic uint32_t alive;      /* 0 once unetd has left in an orderly way: look for another */
        _Atomic uint32_t seq;        /* odd while unetd writes */
        _Atomic uint64_t generation; /* one more with each change: cached answers are old */
        uint64_t instance;           /* the unetd it belongs to */
        struct sip_key hash_key; /* random: whoever chooses keys does not choose where they lie */
        uint32_t used;
        uint32_t naddrs;
        _Atomic uint32_t lease[DIR_BLOCKS]; /* stack that has leased these ports, 0: nobody */
        _Atomic uint32_t lo_down;           /* the kernel would lose what goes from here to here */
        ip_addr addrs[DIR_ADDRS];
        uint32_t nifaces; /* places used, once at the least */
        struct dir_iface iface[DIR_IFACES];
        /* Interfaces over RDMA: to the stacks of hosts that run unetd, for every stack here. */
        uint32_t nverbs;
        struct dir_iface verbs[DIR_IFACES];
        struct netconf net; /* interface n of it is the one whose peer is UNETD_IFACE | n - 1 */
        uint32_t nrules;    /* of [rule NAME] */
        struct rule rule[RULES_MAX];
        _Alignas(CACHE_LINE) struct dir_entry slot[DIR_SLOTS];
};

/*
 * Any part of the directory, as it was at one moment:
 *
 *      struct dir_reading r = {0};
 *      while (dir_read(d, &r))
 *              ...                     what was read in the round before, if any, was torn
 *      if (r.whole)
 *
 * A number that was read is bounded before it is used, at all times.
 */
struct dir_reading {
        uint32_t seq, tries;
        uint32_t looks; /* ustack_read()'s */
        bool begun, whole;
};
static inline bool dir_read(const struct directory *d, struct dir_reading *r)
{
        if (r->begun) {
                /* What was read, before `seq` is read again. */
                atomic_thread_fence(memory_order_acquire);
                r->whole = atomic_load_explicit(&d->seq, memory_order_relaxed) == r->seq;
                if (likely(r->whole))
                        return false;
        }
        for (r->begun = false; !r->begun && r->tries < DIR_TRIES; r->tries++) {
                r->seq = atomic_load_explicit(&d->seq, memory_order_acquire);
                r->begun = !(r->seq & 1);
        }
        return r->begun;
}

/* What a lookup found. */
struct dir_hit {
        uint32_t stack;
        uint32_t uid;
        uint32_t same_key; /* how many stacks share the key, at most DIR_PER_KEY */
};

/* The slot where probing for a key starts; the same with DIR_HELD and without. */
static inline uint32_t dir_hash(const struct directory *d, uint8_t proto, ip_addr addr,
                                uint16_t port)
{
        const uint64_t words[] = {addr.w[0], addr.w[1], (uint64_t)(proto & ~DIR_HELD) << 16 | port};

        return (uint32_t)siphash13(&d->hash_key, words, sizeof words) % DIR_SLOTS;
}

/* Looks up one key, in one attempt; the caller checks `seq`. */
static inline bool dir_probe(const struct directory *d, uint8_t proto, ip_addr addr, uint16_t port,
                             uint32_t hint, struct dir_hit *hit)
{
        uint32_t i = dir_hash(d, proto, addr, port), n = 0, socks = 0;
        uint32_t at[DIR_PER_KEY];

        for (uint32_t steps = 0; steps < DIR_RUN && n < DIR_PER_KEY;
             steps++, i = (i + 1) % DIR_SLOTS) {
                const struct dir_entry *e = &d->slot[i];
                if (e->stack == 0)
                        break;
                if (e->port == port && e->proto == proto && ip_addr_eq(e->addr, addr)) {
                        at[n++] = i;
                        socks += e->socks;
                }
        }
        if (n == 0)
                return false;
        hint %= MAX(socks, 1u);
        for (i = 0; i + 1 < n && hint >= d->slot[at[i]].socks; i++)
                hint -= d->slot[at[i]].socks;
        i = at[i];
        *hit = (struct dir_hit){.stack = d->slot[i].stack, .uid = d->slot[i].uid, .same_key = n};
        return true;
}

/* The stack that takes what is sent to (proto, addr, port): exact address first, then wildcard. 1:
 * found; 0: none here; -EAGAIN: no consistent view was had. */
static inline int directory_lookup(const struct directory *d, uint8_t proto, ip_addr addr,
                                   uint16_t port, uint32_t hint, struct dir_hit *hit)
{
        struct dir_reading r = {0};
        struct dir_hit got = {0, 0, 0};
        bool found = false;

        while (dir_read(d, &r)) {
                got = (struct dir_hit){0, 0, 0};
                found = dir_probe(d, proto, addr, port, hint, &got) ||
                        dir_probe(d, proto, (ip_addr){{0, 0}}, port, hint, &got);
        }
        if (unlikely(!r.whole))
                return -EAGAIN;
        *hit = got; /* zeros where nothing was found */
        return found;
}

/* Returns true if the key has the stack, in one attempt. */
static inline bool dir_has(const struct directory *d, uint8_t proto, ip_addr addr, uint16_t port,
                           uint32_t stack)
{
        uint32_t i = dir_hash(d, proto, addr, port);

        for (uint32_t steps = 0; steps < DIR_RUN && d->slot[i].stack != 0;
             steps++, i = (i + 1) % DIR_SLOTS) {
                const struct dir_entry *e = &d->slot[i];
                if (e->stack == stack && e->port == port && e->proto == proto &&
                    ip_addr_eq(e->addr, addr))
                        return true;
        }
        return false;
}

/* The stack that has leased a TCP port; 0: none. */
static inline uint32_t directory_lessee_of(const struct directory *d, uint16_t port)
{
        return atomic_load_explicit(&d->lease[port / DIR_BLOCK_PORTS], memory_order_relaxed);
}

#define DIR_ANYBODY UINT32_MAX /* for a stack: any of them */

/* Returns true if the stack, or DIR_ANYBODY, takes what is sent to the address and port, or
 * holds them, in one attempt. */
static inline bool dir_is_held(const struct directory *d, uint8_t proto, ip_addr addr,
                               uint16_t port, uint32_t stack)
{
        uint32_t i = dir_hash(d, proto, addr, port);

        for (uint32_t steps = 0; steps < DIR_RUN && d->slot[i].stack != 0;
             steps++, i = (i + 1) % DIR_SLOTS) {
                const struct dir_entry *e = &d->slot[i];
                if ((stack == DIR_ANYBODY || e->stack == stack) && e->port == port &&
                    (e->proto & ~DIR_HELD) == proto && ip_addr_eq(e->addr, addr))
                        return true;
        }
        return false;
}

/* The same of the address, or of all addresses. */
static inline bool dir_is_at(const struct directory *d, uint8_t proto, ip_addr addr, uint16_t port,
                             uint32_t stack)
{
        return dir_is_held(d, proto, addr, port, stack) ||
               dir_is_held(d, proto, (ip_addr){{0, 0}}, port, stack);
}

/* Source validation: returns 1 if the stack may send from there, since it takes what is sent to the
 * port, or holds it, or has leased it (TCP); else 0, or -EAGAIN. */
static inline int directory_vouches(const struct directory *d, uint8_t proto, ip_addr addr,
                                    uint16_t port, uint32_t stack)
{
        struct dir_reading r = {0};
        bool found = false;

        if (proto == IPPROTO_TCP && directory_lessee_of(d, port) == stack)
                return true;
        while (dir_read(d, &r))
                found = dir_is_at(d, proto, addr, port, stack);
        return r.whole ? found : -EAGAIN;
}

/* Returns 1 if a leased port is not to be used, since a stack, the lessee perhaps, takes what is
 * sent there, or holds it; else 0, or -EAGAIN. */
static inline int directory_is_taken(const struct directory *d, uint8_t proto, ip_addr addr,
                                     uint16_t port)
{
        struct dir_reading r = {0};
        bool found = false;

        while (dir_read(d, &r))
                found = dir_is_at(d, proto, addr, port, DIR_ANYBODY);
        return r.whole ? found : -EAGAIN;
}

/* Returns 1 if an address is local to this network namespace (127/8, ::1, and those of its
 * interfaces); else 0, or -EAGAIN. */
static inline int directory_is_local(const struct directory *d, ip_addr addr)
{
        struct dir_reading r = {0};
        bool found = false;

        if (ip_addr_is_v4(addr) && ip_addr_get_v4(addr) >> 24 == 127)
                return 1;
        if (addr.w[0] == 0 && addr.w[1] == (uint64_t)1 << 56)
                return 1;
        while (dir_read(d, &r)) {
                uint32_t n = MIN(d->naddrs, DIR_ADDRS);
                found = false;
                for (uint32_t i = 0; i < n && !found; i++)
                        found = ip_addr_eq(d->addrs[i], addr);
        }
        return r.whole ? found : -EAGAIN;
}

/* Copies what the network is to be. False: no consistent view was had. */
static inline bool directory_net(const struct directory *d, struct netconf *out)
{
        struct dir_reading r = {0};

        while (dir_read(d, &r))
                memcpy(out, &d->net, sizeof *out);
        return r.whole;
}

/* The interface in place i of DIR_IFACES. False: there is none (any more), or no consistent view
 * was had. */
static inline bool directory_iface_at(const struct directory *d, uint32_t i, struct dir_iface *out)
{
        struct dir_reading r = {0};

        while (i < MIN(d->nifaces, DIR_IFACES) && dir_read(d, &r))
                *out = d->iface[i];
        return r.whole && out->peer != 0;
}

/* The interface with that `peer`. False: there is none (any more). */
static inline bool directory_iface(const struct directory *d, uint32_t peer, struct dir_iface *out)
{
        for (uint32_t i = 0; i < DIR_IFACES; i++)
                if (directory_iface_at(d, i, out) && out->peer == peer)
                        return true;
        return false;
}

/* Finds the interface, in one attempt; the caller checks `seq`. */
static inline bool dir_verbs(const struct directory *d, ip_addr addr, struct dir_iface *out)
{
        for (uint32_t i = 0; ip_addr_is_v4(addr) && i < MIN(d->nverbs, DIR_IFACES); i++) {
                uint32_t prefix = MIN(d->verbs[i].prefix, 32u),
                         mask = prefix != 0 ? ~0u << (32 - prefix) : 0;
                *out = d->verbs[i];
                if (((ip_addr_get_v4(addr) ^ out->addr) & mask) == 0)
                        return out->how[0] == '\0';
        }
        return false;
}

/* The interface over RDMA on whose network `addr` is (v4, host order). 1; 0: none, or its device is
 * gone; -EAGAIN. */
static inline int directory_verbs(const struct directory *d, ip_addr addr, struct dir_iface *out)
{
        struct dir_reading r = {0};
        bool found = false;

        while (dir_read(d, &r))
                found = dir_verbs(d, addr, out);
        return r.whole ? found : -EAGAIN;
}

/* The generation: one more with each change. */
static inline uint64_t directory_generation(const struct directory *d)
{
        return atomic_load_explicit(&d->generation, memory_order_acquire);
}

/* ---- unetd's side (directory.c) ---- */

struct directory_owner {
        struct directory *d; /* mapped for writing, by unetd alone */
        int fd;              /* read-only twin, for clients */
};

/* Makes an empty directory; `key`: 16 random bytes. 0, or a negative errno. */
int directory_create(struct directory_owner *o, uint64_t instance, const uint8_t key[16]);
void directory_destroy(struct directory_owner *o);
/* Adds a socket of the stack at the key. -ENOSPC: full, or too many hash alike, or too many of this
 * user's lie there. A wildcard of either family becomes the wildcard key. */
int directory_add(struct directory_owner *o, uint8_t proto, ip_addr addr, uint16_t port,
                  uint32_t stack, uint32_t uid);
/* Takes one away. Returns false if there was none. */
bool directory_del(struct directory_owner *o, uint8_t proto, ip_addr addr, uint16_t port,
                   uint32_t stack);
/* Whole blocks of client ports are leased to a stack; 0: to nobody. */
void directory_lease(struct directory_owner *o, uint16_t first, uint32_t count, uint32_t stack);
/* Replaces the list of local addresses; more than DIR_ADDRS are left out. */
void directory_set_addrs(struct directory_owner *o, const ip_addr *addrs, uint32_t n);
/* Adds an interface, of which there are at most DIR_IFACES: its place. */
uint32_t directory_add_iface(struct directory_owner *o, const struct dir_iface *f);
/* Its place is free. */
void directory_del_iface(struct directory_owner *o, uint32_t i);
void directory_add_verbs(struct directory_owner *o, const struct dir_iface *f);
/* The one with that `peer` works (""), or why it does not. */
void directory_verbs_state(struct directory_owner *o, uint32_t peer, const char *why_not);
void directory_set_rules(struct directory_owner *o, const struct rule *rules, uint32_t n);
/* Publishes what the network is to be, as the next generation of it. */
void directory_set_net(struct directory_owner *o, const struct netconf *net);
/* Publishes how many stacks use interface i, which stack has it to itself (0: none), and what it
 * goes by. */
void directory_iface_taken(struct directory_owner *o, uint32_t i, uint32_t stack, uint32_t users,
                           const char *how);

#endif
