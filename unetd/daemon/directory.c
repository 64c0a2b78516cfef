/* The directory's only writer. Deletion shifts later entries of the run back, so that linear
 * probing needs no tombstones. */
#include "unetd/client/directory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memfd.h"
#include "unetd/client/wire.h"

/* One user has fewer entries than this within probing distance of a slot, so that another finds
 * room. */
#define CROWD (DIR_RUN / 4 * 3)

int directory_create(struct directory_owner *o, uint64_t instance, const uint8_t key[16])
{
        int fd = unet_memfd_make("unet-directory", sizeof(struct directory)), r;
        void *p;

        if (fd < 0)
                return fd;
        p = unet_memfd_map(fd, sizeof(struct directory), true, NULL);
        r = p == NULL ? -ENOMEM : unet_memfd_freeze(fd);
        if (r == 0)
                r = o->fd = fd_reopen(fd, O_RDONLY);
        close(fd);
        if (r < 0) {
                if (p != NULL)
                        munmap(p, sizeof(struct directory));
                return r;
        }
        o->d = p;
        o->d->magic = DIR_MAGIC;
        o->d->bytes = sizeof(struct directory);
        o->d->instance = instance;
        memcpy(&o->d->hash_key, key, sizeof o->d->hash_key);
        o->d->net.gen = (uint32_t)instance | 1; /* not the generation of the last unetd */
        atomic_store(&o->d->alive, 1);
        return 0;
}

void directory_destroy(struct directory_owner *o)
{
        atomic_store(&o->d->alive, 0);
        munmap(o->d, sizeof(struct directory));
        close(o->fd);
        o->d = NULL;
}

static void write_begin(struct directory *d)
{
        atomic_store_explicit(&d->seq, d->seq + 1, memory_order_relaxed);
        /* Readers that see any store below see the odd number. */
        atomic_thread_fence(memory_order_release);
}

static void write_end(struct directory *d)
{
        atomic_store_explicit(&d->seq, d->seq + 1, memory_order_release);
        atomic_fetch_add_explicit(&d->generation, 1, memory_order_release);
}

static ip_addr key_addr(ip_addr addr)
{
        return ip_addr_is_any(addr) ? (ip_addr){{0, 0}} : addr;
}

static bool is_entry(const struct dir_entry *e, uint8_t proto, ip_addr addr, uint16_t port,
                     uint32_t stack)
{
        return e->stack == stack && e->port == port && e->proto == proto &&
               ip_addr_eq(e->addr, addr);
}

/* Returns the slot of the entry, or the free slot where it would go. */
static uint32_t find(const struct directory *d, uint8_t proto, ip_addr addr, uint16_t port,
                     uint32_t stack)
{
        uint32_t i = dir_hash(d, proto, addr, port);

        while (d->slot[i].stack != 0 && !is_entry(&d->slot[i], proto, addr, port, stack))
                i = (i + 1) % DIR_SLOTS;
        return i;
}

/* Returns true if the user has too many entries around the slot. He can read the hash's key, so he
 * can choose keys that fill the slots another user needs. */
static bool crowds(const struct directory *d, uint32_t at, uint32_t uid)
{
        uint32_t n = 0;

        for (uint32_t i = 1; i < DIR_RUN; i++) {
                const struct dir_entry *after = &d->slot[(at + i) % DIR_SLOTS],
                                       *before = &d->slot[(at - i) % DIR_SLOTS];

                n += (after->stack != 0 && after->uid == uid) +
                     (before->stack != 0 && before->uid == uid);
        }
        return n >= CROWD;
}

int directory_add(struct directory_owner *o, uint8_t proto, ip_addr addr, uint16_t port,
                  uint32_t stack, uint32_t uid)
{
        struct directory *d = o->d;
        uint32_t i;

        addr = key_addr(addr);
        i = find(d, proto, addr, port, stack);
        if (d->slot[i].stack != 0) {
                write_begin(d);
                d->slot[i].socks++;
                write_end(d);
                return 0;
        }
        if (d->used >= DIR_MAX || (i - dir_hash(d, proto, addr, port)) % DIR_SLOTS >= DIR_RUN ||
            crowds(d, i, uid))
                return -ENOSPC;
        write_begin(d);
        d->slot[i] = (struct dir_entry){
                .addr = addr, .stack = stack, .uid = uid, .port = port, .proto = proto, .socks = 1};
        d->used++;
        write_end(d);
        return 0;
}

/* Returns true if an entry at `i`, whose probing starts at `home`, may move back to the hole. */
static bool may_fill(uint32_t home, uint32_t hole, uint32_t i)
{
        return (i - home) % DIR_SLOTS >= (i - hole) % DIR_SLOTS;
}

static void remove_at(struct directory *d, uint32_t hole)
{
        uint32_t i;

        for (i = (hole + 1) % DIR_SLOTS; d->slot[i].stack != 0; i = (i + 1) % DIR_SLOTS) {
                const struct dir_entry *e = &d->slot[i];
                if (may_fill(dir_hash(d, e->proto, e->addr, e->port), hole, i)) {
                        d->slot[hole] = *e;
                        hole = i;
                }
        }
        d->slot[hole] = (struct dir_entry){.stack = 0};
        assert(d->used != 0);
        d->used--;
}

bool directory_del(struct directory_owner *o, uint8_t proto, ip_addr addr, uint16_t port,
                   uint32_t stack)
{
        struct directory *d = o->d;
        uint32_t i = find(d, proto, key_addr(addr), port, stack);

        if (d->slot[i].stack == 0)
                return false;
        write_begin(d);
        if (--d->slot[i].socks == 0)
                remove_at(d, i);
        write_end(d);
        return true;
}

void directory_lease(struct directory_owner *o, uint16_t first, uint32_t count, uint32_t stack)
{
        assert(first % DIR_BLOCK_PORTS == 0 && count % DIR_BLOCK_PORTS == 0);
        assert(first + count <= UINT16_MAX + 1u);
        for (uint32_t port = first; port < first + count; port += DIR_BLOCK_PORTS)
                atomic_store_explicit(&o->d->lease[port / DIR_BLOCK_PORTS], stack,
                                      memory_order_relaxed);
}

void directory_set_addrs(struct directory_owner *o, const ip_addr *addrs, uint32_t n)
{
        struct directory *d = o->d;

        n = MIN(n, DIR_ADDRS);
        if (n == d->naddrs && memcmp(d->addrs, addrs, n * sizeof *addrs) == 0)
                return;
        write_begin(d);
        memcpy(d->addrs, addrs, n * sizeof *addrs);
        d->naddrs = n;
        write_end(d);
}

uint32_t directory_add_iface(struct directory_owner *o, const struct dir_iface *f)
{
        uint32_t i = 0;

        while (i < o->d->nifaces && o->d->iface[i].peer != 0)
                i++;
        assert(i < DIR_IFACES);
        write_begin(o->d);
        o->d->iface[i] = *f;
        o->d->nifaces = MAX(o->d->nifaces, i + 1);
        write_end(o->d);
        return i;
}

void directory_del_iface(struct directory_owner *o, uint32_t i)
{
        write_begin(o->d);
        o->d->iface[i] = (struct dir_iface){.peer = 0};
        write_end(o->d);
}

void directory_add_verbs(struct directory_owner *o, const struct dir_iface *f)
{
        assert(o->d->nverbs < DIR_IFACES);
        write_begin(o->d);
        o->d->verbs[o->d->nverbs] = *f;
        /* Clients read `nverbs` without the sequence number. */
        __atomic_store_n(&o->d->nverbs, o->d->nverbs + 1, __ATOMIC_RELEASE);
        write_end(o->d);
}

void directory_verbs_state(struct directory_owner *o, uint32_t peer, const char *why_not)
{
        write_begin(o->d);
        for (uint32_t i = 0; i < o->d->nverbs; i++)
                if (o->d->verbs[i].peer == peer)
                        snprintf(o->d->verbs[i].how, sizeof o->d->verbs[i].how, "%s", why_not);
        write_end(o->d);
}

void directory_iface_taken(struct directory_owner *o, uint32_t i, uint32_t stack, uint32_t users,
                           const char *how)
{
        struct dir_iface *f = &o->d->iface[i];

        write_begin(o->d);
        f->stack = stack;
        f->users = users;
        snprintf(f->how, sizeof f->how, "%s", how);
        write_end(o->d);
}

void directory_set_rules(struct directory_owner *o, const struct rule *rules, uint32_t n)
{
        assert(n <= RULES_MAX);
        write_begin(o->d);
        memcpy(o->d->rule, rules, n * sizeof *rules);
        o->d->nrules = n;
        write_end(o->d);
}

void directory_set_net(struct directory_owner *o, const struct netconf *net)
{
        uint32_t gen = o->d->net.gen + 1;

        write_begin(o->d);
        o->d->net = *net;
        o->d->net.gen = gen != 0 ? gen : 1;
        write_end(o->d);
}
