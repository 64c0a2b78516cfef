/*
 * ARP: the neighbours of one interface, and the interface's own addresses.
 *
 * Pure functions of (cache, packet, now), in the shape of tcp/tcp.h: nothing here reads a clock,
 * sends, locks or allocates. The cache (struct arp_cache) lies in the stack's state and has no
 * pointer in it. A process's view is struct arp. What has to be sent is recorded, and arp_output()
 * is the one place it comes out of:
 *
 *   out:  arp_ref_good() for who remembers its neighbour, else arp_resolve(); -EINPROGRESS:
 *         arp_hold() keeps a copy
 *   in:   ether_parse() -> arp_input()
 *   then: arp_output() and arp_output_done() until there is no more; arp_expire() when
 *         arp_deadline() has come
 *
 * A neighbour, after RFC 4861 §7.3.2 (what IPv4's neighbours need is the same), within RFC 1122
 * §2.3.2.1:
 *
 *               arp_resolve()           answer
 *       (none) -------------> INCOMPLETE ------> REACHABLE <----------------+ answer, arp_confirm()
 *          ^                   |  ^                 | reachable_time        |
 *          |                   |  |                 v        use            |
 *          +------- FAILED <---+  |               STALE ----------> DELAY --+
 *          failed_time    no      |                 |                | delay_time
 *                         answer  |  no answer      | stale_time     v
 *                                 +---------------- | --- PROBE <----+   (unicast polls)
 *                                (to all)           v
 *                                                 (none)
 *
 * Others' packets change the address of an entry that exists and make it STALE, hence used at once
 * and polled soon. They make an entry only when they ask for an address of ours and come from our
 * own network (RFC 826). Where the table is full, entries that we never sent to go first, in order
 * of age. For a neighbour that we want ourselves those that have not answered yet go next, then the
 * one that was resolved longest ago. Static ones never go.
 *
 * An address of ours, after RFC 5227:
 *
 *     arp_addr_add() -> PROBING -> WAITING -> ANNOUNCING -> BOUND         usable from ANNOUNCING on
 *                          |          |
 *                          +----------+---> LOST  conflict; one in use is defended
 *
 * Primary records are neighbours and addresses. Hash chains, lists, timers, free lists are derived;
 * packets that wait for a neighbour are given up when a process dies inside, as a link would lose
 * them. See arp_recover().
 *
 * Addresses are IPv4 in host order. Link addresses have cfg.ll_len bytes: 6 for Ethernet, 20 for IP
 * over InfiniBand (RFC 4391 §9.1.1). Times are nanoseconds.
 *
 * Read first: RFC 826; RFC 1122 §2.3.2; RFC 5227.
 */
#ifndef ARP_ARP_H
#define ARP_ARP_H

#include "base/base.h"
#include "base/counters.h"
#include "base/pool.h"
#include "base/prng.h"
#include "base/siphash.h"
#include "base/wheel.h"

#define ARP_LL_MAX     20u /* RFC 4391 §9.1.1 */
#define ARP_MAX_PKT    (8u + 2 * (ARP_LL_MAX + 4))
#define ARP_ENTRIES    1024u  /* neighbours of one interface */
#define ARP_ADDRS      8u     /* addresses of ours on it */
#define ARP_HOLD_PKTS  64u    /* packets that wait for one neighbour ... */
#define ARP_HOLD_BYTES 69632u /* ... and their bytes: one 64 KB datagram in fragments of 1500 */
#define ARP_PARTS      768u   /* pieces of waiting packets, 512 bytes each, of all neighbours */
#define ARP_REPLIES    32u    /* answers that wait to be sent */

/* RFC 5227 §1.1. */
#define ARP_PROBE_WAIT          NS_PER_S
#define ARP_PROBE_NUM           3
#define ARP_PROBE_MIN           NS_PER_S
#define ARP_PROBE_MAX           (2 * NS_PER_S)
#define ARP_ANNOUNCE_WAIT       (2 * NS_PER_S)
#define ARP_ANNOUNCE_NUM        2
#define ARP_ANNOUNCE_INTERVAL   (2 * NS_PER_S)
#define ARP_MAX_CONFLICTS       10
#define ARP_RATE_LIMIT_INTERVAL (60 * NS_PER_S)
#define ARP_DEFEND_INTERVAL     (10 * NS_PER_S)

/* RFC 1122 §2.3.2.1: not more than one request a second to a destination. */
#define ARP_REQUEST_INTERVAL NS_PER_S

/* Settings of one interface; arp_config_default() has what is in brackets. */
#define ARP_REACHABLE_S 30 /* RFC 4861 §10, REACHABLE_TIME */

struct arp_config {
        uint16_t hrd;                /* hardware type [1, Ethernet] */
        uint8_t ll_len;              /* bytes of a link address [6], at most ARP_LL_MAX */
        uint8_t ll_addr[ARP_LL_MAX]; /* ours */
        uint8_t ll_all[ARP_LL_MAX];  /* everybody's [ff:ff:ff:ff:ff:ff] */
        uint8_t polls;    /* unicast requests before a neighbour is asked for among all [3] */
        uint8_t requests; /* requests to all before it is given up [3] */
        /* Good without proof for so long, times 0.5 to 1.5 by chance [30 s]. */
        nstime reachable_time;
        nstime delay_time;  /* a stale one is used for so long before it is polled [5 s] */
        nstime stale_time;  /* forgotten when not used for so long [600 s] */
        nstime failed_time; /* not asked for again, -EHOSTUNREACH [1 s] */
        nstime lock_time;   /* an address learnt is not replaced for so long [1 s] */
};

enum arp_state { /* the order matters: from ARP_DELAY on a neighbour is used without asking here */
                 ARP_FREE,
                 ARP_INCOMPLETE,
                 ARP_FAILED,
                 ARP_STALE, /* from here on its link address is known */
                 ARP_DELAY,
                 ARP_PROBE,
                 ARP_REACHABLE,
                 ARP_STATIC,
};

/* Names a neighbour. Good until the link address changes or is given up: then its entry has
 * another generation. */
struct arp_ref {
        uint32_t index; /* 0: none */
        uint32_t gen;
};

struct arp_link { /* in a list; indices, 0: none */
        uint32_t prev, next;
};
struct arp_list {
        uint32_t head, tail;
};

/* A neighbour. The first word is the pool's while it is free; `state` says so. */
struct arp_entry {
        uint32_t ip;
        uint32_t gen;  /* one more with each change of the link address */
        uint8_t state; /* enum arp_state */
        /* Which of `ll` is valid: the other is written, then this, so that none is ever torn. */
        uint8_t cur;
        uint8_t used;  /* we sent to it, or tried to */
        uint8_t asked; /* requests sent since it was last known */
        uint8_t owes;  /* what arp_output() has to do for it: ARP_OWES_* */
        uint8_t token; /* it has its turn among all that ask, at the time its timer says */
        uint8_t ll[2][ARP_LL_MAX];
        nstime confirmed; /* last proof that packets reach it */
        nstime learnt;    /* when the link address last changed */
        nstime asked_at;  /* when it was last asked for */
        uint32_t hash_next;
        uint32_t held, held_last; /* waiting packets, oldest first */
        uint32_t held_pkts, held_bytes;
        struct arp_link age; /* in cache->spare, asking or inuse, oldest first */
        struct arp_link due; /* in cache->due */
        struct wheel_link timer;
};

/* 512 bytes of a packet that waits; the first of a packet has its account. */
#define ARP_PART_BYTES 488u
struct arp_part {
        uint32_t more;       /* next part of the packet */
        uint32_t next;       /* next packet of the same neighbour */
        struct arp_link age; /* in cache->held: all packets, oldest first */
        uint32_t entry;
        uint32_t len; /* bytes of the whole packet */
        uint8_t byte[ARP_PART_BYTES];
};
static_assert(sizeof(struct arp_part) == 512, "parts are half a kilobyte");

enum arp_addr_state {
        ARP_ADDR_NONE,
        ARP_ADDR_PROBING, /* RFC 5227 §2.1.1; not to be used */
        ARP_ADDR_WAITING, /* ANNOUNCE_WAIT after the last probe */
        /* Somebody else has it; not to be used. Stays until arp_addr_add(). */
        ARP_ADDR_LOST,
        ARP_ADDR_ANNOUNCING, /* in use from here on */
        ARP_ADDR_BOUND,
};

struct arp_addr {
        uint32_t ip;
        uint8_t prefix;            /* of the network it is on, bits */
        uint8_t state;             /* enum arp_addr_state */
        uint8_t sent;              /* probes or announcements */
        uint8_t send_now;          /* one more is due */
        uint8_t tell;              /* its state changed in a way that the owner has to be told */
        nstime at;                 /* when the next thing happens, NSTIME_NEVER: nothing will */
        nstime defended;           /* last conflict that was answered */
        uint8_t rival[ARP_LL_MAX]; /* who has it */
};

struct arp_reply {         /* owed */
        uint32_t from, to; /* IP addresses */
        uint8_t ll[ARP_LL_MAX];
};

struct arp_cache {
        struct arp_config cfg;
        struct sip_key key;
        struct prng rnd;
        struct arp_addr addr[ARP_ADDRS];
        uint32_t conflicts; /* while probing: RFC 5227 §2.1.1 */
        nstime probed_at;   /* when probing last began */
        /* Token buckets: when each will be full again. */
        nstime request_full_at, reply_full_at, stranger_full_at;
        struct arp_reply reply[ARP_REPLIES]; /* a ring: [reply_head, reply_tail) */
        uint32_t reply_head, reply_tail;
        struct arp_list spare; /* never sent to, or failed: first to go when the table is full */
        /* INCOMPLETE: go next, but only to neighbours that we want ourselves. */
        struct arp_list asking;
        struct arp_list inuse; /* the others but static ones; the one resolved last is last */
        struct arp_list due;   /* entries that owe something */
        struct arp_list held;  /* first parts of waiting packets */
        struct wheel wheel;
        uint32_t hash[ARP_ENTRIES];
        struct pool entries;
        struct pool parts;
        struct arp_entry entry[ARP_ENTRIES + 1];
        struct arp_part part[ARP_PARTS + 1];
};

/* A process's view. */
struct arp {
        struct arp_cache *c;
        struct counters *cnt;
};

/* Ethernet's settings; `mac` is the interface's own address. */
void arp_config_default(struct arp_config *cfg, const uint8_t mac[6]);
/* Prepares a cache in any memory. `seed`: 16 random bytes. */
void arp_format(struct arp_cache *c, const struct arp_config *cfg, const uint8_t seed[16],
                nstime now);

/* ---- sending to a neighbour ---- */

static inline struct arp_entry *arp_at(const struct arp *a, uint32_t index)
{
        return &((struct arp_cache *)(uintptr_t)a->c)->entry[index];
}

/* Returns true if a neighbour resolved before may be sent to without asking: its link address is
 * what it was, and it is alive or being looked after. Three loads; good for any ref, {0} among
 * them. */
static inline bool arp_ref_good(const struct arp *a, struct arp_ref r)
{
        const struct arp_entry *e = arp_at(a, r.index);

        return e->gen == r.gen && e->state >= ARP_DELAY;
}

/*
 * The link address of neighbour `ip`, a unicast address on the interface's network.
 * 0: *ref and `ll` (cfg.ll_len bytes) are filled in. -EINPROGRESS: it is being asked for; *ref is
 * filled in, for arp_hold(). -EHOSTUNREACH: it did not answer, try again later (RFC 1122 §2.4: no
 * reason to tell a transport that the destination is unreachable for good). -EINVAL: not a unicast
 * address, or ours. -EADDRNOTAVAIL: no address of ours may be used yet. -ENOBUFS: no entry to be
 * had, all are static.
 */
int arp_resolve(struct arp *a, uint32_t ip, nstime now, struct arp_ref *ref, uint8_t *ll);

/*
 * Keeps a copy of an IP packet, `head` followed by `body`, until its neighbour answers (RFC 1122
 * §2.3.2.2). Beyond ARP_HOLD_PKTS or ARP_HOLD_BYTES the oldest to the same neighbour gives way, and
 * when there is no room at all the oldest to any: DROP_ARP_REPLACED, DROP_ARP_FULL. 0; -EMSGSIZE:
 * longer than 65,535; -ENOENT: the neighbour is not being asked for (any more).
 */
int arp_hold(struct arp *a, struct arp_ref ref, const void *head, uint32_t head_len,
             const void *body, uint32_t body_len);

/* Returns true if packets wait for their neighbours: for a few seconds at most, until those are
 * known or given up. */
static inline bool arp_holds(const struct arp_cache *c)
{
        return c->held.head != 0;
}

/* A transport made progress with packets to this neighbour, so they reach it (RFC 1122 §2.3.2.1,
 * RFC 4861 §7.3.1). */
void arp_confirm_slow(struct arp *a, struct arp_ref ref, nstime now);
static inline void arp_confirm(struct arp *a, struct arp_ref ref, nstime now)
{
        struct arp_entry *e = arp_at(a, ref.index);

        if (likely(e->gen == ref.gen && e->state == ARP_REACHABLE))
                e->confirmed = now;
        else
                arp_confirm_slow(a, ref, now);
}

/*
 * A transport repeats itself to this neighbour, or hears repetitions of what it answered: where it
 * was may be where it is no longer. It is polled now, unless it was heard of within a second (RFC
 * 1122 §2.3.2.1 (4): advice from above).
 */
void arp_doubt(struct arp *a, struct arp_ref ref, nstime now);

/* The link address of a ref that arp_resolve() filled in; valid while arp_ref_good(). */
static inline const uint8_t *arp_ll(const struct arp *a, struct arp_ref ref)
{
        const struct arp_entry *e = arp_at(a, ref.index);

        return e->ll[e->cur & 1];
}

/* ---- input and time ---- */

/* An ARP packet arrived: `n` bytes behind the link header, padding included. DROP_NONE: something
 * was learnt or answered. Else why it was of no use; the caller counts it. COUNT_ARP_IN is
 * counted here. */
enum drop arp_input(struct arp *a, const uint8_t *p, size_t n, nstime now);

/* When arp_expire() has to be called at the latest; in the past while arp_output()
 * has something. */
nstime arp_deadline(const struct arp *a);
void arp_expire(struct arp *a, nstime now);
/* The link came up (again): stale is what was known, addresses in use are announced, who failed
 * is forgotten. */
void arp_link_up(struct arp *a, nstime now);

/* ---- output ---- */

enum arp_what {
        ARP_OUT_NONE,
        ARP_OUT_SEND,    /* `pkt`, an ARP packet, is to be sent to `to` */
        ARP_OUT_RELEASE, /* the IP packet `part` is to be sent to `to`: its neighbour answered */
        ARP_OUT_UNREACHABLE, /* the IP packet `part` will not be sent: -EHOSTUNREACH to its socket.
                              * `ip` did not answer; arp_output_done() counts it */
        ARP_OUT_ADDR, /* address `ip` of ours is in state `addr_state`: ANNOUNCING (usable), BOUND
                       * or LOST. It may be said more than once */
};

struct arp_out {
        enum arp_what what;
        uint32_t ip; /* the neighbour, or the address of ours */
        uint32_t part;
        uint32_t len; /* bytes of `pkt` or of the IP packet */
        enum arp_addr_state addr_state;
        uint32_t slot;          /* private */
        uint8_t to[ARP_LL_MAX]; /* cfg.ll_len bytes */
        uint8_t pkt[ARP_MAX_PKT];
};

/* Something to do, if there is: true, and *out is filled in. Nothing changes: asked again it says
 * the same. */
bool arp_output(const struct arp *a, struct arp_out *out);
/* Tells that `out` was done. Nothing else of this cache was called in between. Do not call when the
 * NI had no room. */
void arp_output_done(struct arp *a, const struct arp_out *out, nstime now);
/* Copies out->len bytes of the IP packet out->part. */
void arp_held_copy(const struct arp *a, const struct arp_out *out, uint8_t *to);

/* ---- our addresses ---- */

/*
 * Takes an address for this interface. With `probe` it is probed for first and must not be used
 * before ARP_OUT_ADDR says ANNOUNCING, 4 to 7 s later (RFC 5227 §2.1.1, which asks for it);
 * without, it is announced at once. More than ARP_MAX_CONFLICTS conflicts slow probing down. Adding
 * one that is there begins anew. 0; -EINVAL: not a unicast address, or the broadcast address of its
 * network; prefix over 32; -ENOSPC.
 */
int arp_addr_add(struct arp *a, uint32_t ip, uint8_t prefix, bool probe, nstime now);
enum arp_addr_state arp_addr_state(const struct arp *a, uint32_t ip);

/* ---- tools ---- */

/* Makes or changes an entry. A static one is neither aged nor changed by packets; otherwise it is
 * STALE. -EINVAL: not a unicast address, or ours; -ENOBUFS: all are static. */
int arp_set(struct arp *a, uint32_t ip, const uint8_t *ll, bool is_static, nstime now);
/* Packets that wait for it are dropped (ARP_UNREACHABLE). -ENOENT. */
int arp_del(struct arp *a, uint32_t ip);

struct arp_report {
        uint32_t ip;
        enum arp_state state;
        uint8_t ll[ARP_LL_MAX]; /* valid from ARP_STALE on */
        uint8_t ll_len;
        bool used;
        nstime confirmed; /* 0: never */
        uint32_t held_pkts, held_bytes;
};
/* Entry `index`, 1 .. ARP_ENTRIES. False: not in use. Safe without the lock, a torn snapshot
 * at worst. */
bool arp_walk(const struct arp *a, uint32_t index, struct arp_report *r);
/* Address number i, 0 .. ARP_ADDRS - 1. False: none. */
bool arp_addr_walk(const struct arp *a, uint32_t i, struct arp_addr *r);
const char *arp_state_name(enum arp_state s); /* "REACHABLE" */

/* ---- consistency ---- */

/* After a process died inside, at any store: derived state is made anew. Neighbours and addresses
 * are kept, all refs are void, waiting packets are lost. */
void arp_recover(struct arp *a, nstime now);
/* Asserts every invariant that can be spelled; for tests. */
void arp_check(const struct arp *a);

#endif
