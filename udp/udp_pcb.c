/*
 * Pcbs: made, bound, connected, found and given up.
 *
 * udp_bind() -> udp_port_free() -> set_ends();  udp_connect() -> set_ends();  udp_lookup()
 * -> find_key() up to three times
 */
#include "ip/frag.h"
#include "udp/udp_pcb.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

/* ---- the block ---- */

static uint32_t heads_for(const struct udp_limits *l)
{
        uint32_t n = 64;

        while (n < l->pcbs)
                n *= 2;
        return n;
}

static uint32_t errors_of(const struct udp_limits *l)
{
        return l->errors != 0 ? l->errors : UDP_ERRORS;
}

static size_t align_up(size_t n)
{
        return (n + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
}

/* Offsets in the block, in this order. */
struct layout {
        size_t keys, ports, live, pcbs, errors, end;
};

static struct layout layout_of(const struct udp_limits *l)
{
        size_t heads = heads_for(l) * sizeof(uint32_t);
        struct layout at = {.keys = align_up(sizeof(struct udp_shared))};

        at.ports = at.keys + heads;
        at.live = at.ports + heads;
        at.pcbs = align_up(at.live + (l->pcbs / 64 + 1) * sizeof(uint64_t));
        at.errors = align_up(at.pcbs + pool_bytes(sizeof(struct udp_pcb), l->pcbs + 1));
        at.end = at.errors + errors_of(l) * sizeof(struct udp_error);
        return at;
}

size_t udp_shared_bytes(const struct udp_limits *l)
{
        return layout_of(l).end;
}

void udp_shared_init(struct udp_shared *sh, const struct udp_limits *l, const uint8_t secret[16])
{
        struct layout at = layout_of(l);

        *sh = (struct udp_shared){.limits = *l,
                                  .key = sip_key_of(secret),
                                  .gen = 1,
                                  .mask = heads_for(l) - 1,
                                  .keys_off = at.keys,
                                  .ports_off = at.ports,
                                  .live_off = at.live,
                                  .errors_off = at.errors};
        if (sh->limits.lend_max == 0)
                sh->limits.lend_max = UDP_LEND_MAX;
        sh->limits.errors = errors_of(l);
        pool_init(&sh->pcbs, (char *)sh + at.pcbs, sizeof(struct udp_pcb), l->pcbs + 1);
}

bool udp_shared_is(const struct udp_shared *sh, const struct udp_limits *l)
{
        struct layout at = layout_of(l);

        return sh->mask == heads_for(l) - 1 && sh->keys_off == at.keys &&
               sh->ports_off == at.ports && sh->live_off == at.live &&
               sh->errors_off == at.errors && sh->limits.errors == errors_of(l) &&
               pool_is(&sh->pcbs, (const char *)sh + at.pcbs, sizeof(struct udp_pcb), l->pcbs + 1);
}

struct udp_pcb *udp_pcb_at(const struct udp *u, uint32_t pcb)
{
        return pcb_at(u, pcb);
}

/* ---- chains ---- */

struct key {
        ip_addr laddr, raddr;
        uint16_t lport, rport;
        uint32_t zero; /* hashed with the rest */
};
static_assert(sizeof(struct key) == 40, "five words, no hole");

static struct key key_of(const struct udp_pcb *p)
{
        return (struct key){p->laddr, p->raddr, p->lport, p->rport, 0};
}

static uint32_t *key_head(const struct udp_shared *sh, const struct key *k)
{
        uint32_t *heads = (uint32_t *)((char *)(uintptr_t)sh + sh->keys_off);

        return &heads[siphash13(&sh->key, k, sizeof *k) & sh->mask];
}

static uint32_t *port_head(const struct udp_shared *sh, uint16_t port)
{
        uint32_t *heads = (uint32_t *)((char *)(uintptr_t)sh + sh->ports_off);

        return &heads[port & sh->mask];
}

static bool key_eq(const struct udp_pcb *p, const struct key *k)
{
        return p->lport == k->lport && p->rport == k->rport && ip_addr_eq(p->laddr, k->laddr) &&
               ip_addr_eq(p->raddr, k->raddr);
}

static uint32_t *class_count(struct udp_shared *sh, const struct udp_pcb *p, uint32_t *none)
{
        if (pcb_connected(p))
                return &sh->connected;
        return ip_addr_is_any(p->laddr) ? none : &sh->bound;
}

/* The one bound last comes first, and so is the one found (Linux: hlist_add_head). */
static void chain_in(struct udp *u, uint32_t pcb)
{
        struct udp_pcb *p = pcb_at(u, pcb);
        struct key k = key_of(p);
        uint32_t *kh = key_head(u->sh, &k), *ph = port_head(u->sh, p->lport), none = 0;

        p->key_next = *kh;
        *kh = pcb;
        p->port_next = *ph;
        *ph = pcb;
        ++*class_count(u->sh, p, &none);
        u->sh->gen++;
}

static void chain_out(struct udp *u, uint32_t pcb)
{
        struct udp_pcb *p = pcb_at(u, pcb);
        struct key k = key_of(p);
        uint32_t *at = key_head(u->sh, &k), none = 1;

        while (*at != pcb)
                at = &pcb_at(u, *at)->key_next;
        *at = p->key_next;
        for (at = port_head(u->sh, p->lport); *at != pcb;)
                at = &pcb_at(u, *at)->port_next;
        *at = p->port_next;
        --*class_count(u->sh, p, &none);
        u->sh->gen++;
}

/* The only place where a pcb's ends change. */
static void set_ends(struct udp *u, uint32_t pcb, const struct udp_tuple *t)
{
        struct udp_pcb *p = pcb_at(u, pcb);

        if (p->lport != 0)
                chain_out(u, pcb);
        p->laddr = t->laddr;
        p->raddr = t->raddr;
        WRITE_ONCE(p->lport, t->lport); /* readers without the lock tell it */
        p->rport = t->rport;
        if (p->lport != 0)
                chain_in(u, pcb);
}

/* ---- life ---- */

void udp_opts_default(struct udp_opts *o)
{
        *o = (struct udp_opts){
                .rcvbuf = UDP_RCVBUF, .sndbuf = UDP_SNDBUF, .ttl = UDP_TTL, .pmtu_mode = PMTU_WANT};
}

/* A store that the compiler does not move: a process may die before or after. */
static void set_live(struct udp_pcb *p, uint8_t live)
{
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        p->live = live;
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

uint32_t udp_open(struct udp *u, const struct udp_opts *o)
{
        uint32_t pcb = pool_alloc(&u->sh->pcbs);

        if (pcb == 0)
                return 0;
        *pcb_at(u, pcb) = (struct udp_pcb){.opts = *o};
        set_live(pcb_at(u, pcb), 1);
        return pcb;
}

void udp_close(struct udp *u, uint32_t pcb)
{
        struct udp_pcb *p = pcb_at(u, pcb);
        struct udp_tuple none = {0};

        assert(p->live);
        udp_queue_settle(&p->q, u);
        u->cnt->drop[DROP_UDP_UNREAD] += p->q.count;
        udp_queue_clear(&p->q, u);
        udp_errors_drop(u, pcb);
        set_live(p, 0);
        set_ends(u, pcb, &none);
        pool_free(&u->sh->pcbs, pcb);
}

void udp_set_sock(struct udp *u, uint32_t pcb, uint32_t sock)
{
        pcb_at(u, pcb)->sock = sock;
}

uint32_t udp_get_sock(const struct udp *u, uint32_t pcb)
{
        return pcb_at(u, pcb)->sock;
}

uint32_t udp_take_events(struct udp *u, uint32_t pcb)
{
        uint32_t events = pcb_at(u, pcb)->events;

        pcb_at(u, pcb)->events = 0;
        return events;
}

void udp_set_opts(struct udp *u, uint32_t pcb, const struct udp_opts *o)
{
        pcb_at(u, pcb)->opts = *o;
        if (!o->recverr)
                udp_errors_drop(u, pcb);
        u->sh->gen++; /* SO_REUSEPORT takes part in the choice */
}

void udp_get_opts(const struct udp *u, uint32_t pcb, struct udp_opts *o)
{
        *o = pcb_at(u, pcb)->opts;
}

void udp_get_tuple(const struct udp *u, uint32_t pcb, struct udp_tuple *t)
{
        const struct udp_pcb *p = pcb_at(u, pcb);

        *t = (struct udp_tuple){
                .laddr = p->laddr, .raddr = p->raddr, .lport = p->lport, .rport = p->rport};
}

/* ---- bind and connect ---- */

/* Linux's inet_rcv_saddr_equal(): any overlaps everything. */
static bool overlap(ip_addr a, ip_addr b)
{
        return ip_addr_is_any(a) || ip_addr_is_any(b) || ip_addr_eq(a, b);
}

/* Linux's udp_lib_lport_inuse(): both must agree to share. */
static bool may_share(const struct udp_opts *a, const struct udp_opts *b)
{
        return (a->reuseaddr && b->reuseaddr) || (a->reuseport && b->reuseport);
}

bool udp_port_free(const struct udp *u, uint32_t pcb, ip_addr addr, uint16_t port)
{
        static const struct udp_opts exclusive;
        const struct udp_opts *o = pcb != 0 ? &pcb_at(u, pcb)->opts : &exclusive;

        for (uint32_t i = *port_head(u->sh, port); i != 0; i = pcb_at(u, i)->port_next) {
                const struct udp_pcb *other = pcb_at(u, i);
                if (i != pcb && other->lport == port && overlap(other->laddr, addr) &&
                    !may_share(o, &other->opts))
                        return false;
        }
        return true;
}

int udp_bind(struct udp *u, uint32_t pcb, ip_addr addr, uint16_t port)
{
        struct udp_pcb *p = pcb_at(u, pcb);
        bool any = ip_addr_is_any(addr);
        struct udp_tuple t = {.laddr = any ? (ip_addr){{0, 0}} : addr, .lport = port};

        if (p->lport != 0 || port == 0)
                return -EINVAL;
        if (!udp_port_free(u, pcb, addr, port))
                return -EADDRINUSE;
        p->bound_addr = !any;
        set_ends(u, pcb, &t);
        return 0;
}

int udp_bind_many(struct udp *u, uint32_t pcb, ip_addr addr, uint16_t port)
{
        int err = udp_bind(u, pcb, addr, port);

        if (err == 0)
                pcb_at(u, pcb)->bound_many = 1;
        return err;
}

int udp_connect(struct udp *u, uint32_t pcb, ip_addr laddr, ip_addr raddr, uint16_t rport)
{
        struct udp_pcb *p = pcb_at(u, pcb);
        struct udp_tuple t = {.laddr = p->bound_addr ? p->laddr : laddr,
                              .raddr = raddr,
                              .lport = p->lport,
                              .rport = rport};

        if (p->lport == 0 || rport == 0)
                return -EINVAL;
        p->src = laddr;
        set_ends(u, pcb, &t);
        return 0;
}

void udp_disconnect(struct udp *u, uint32_t pcb)
{
        struct udp_pcb *p = pcb_at(u, pcb);
        struct udp_tuple t = {.lport = p->lport};

        if (p->bound_addr)
                t.laddr = p->laddr;
        set_ends(u, pcb, &t);
}

void udp_unbind(struct udp *u, uint32_t pcb)
{
        const struct udp_tuple none = {0};

        pcb_at(u, pcb)->bound_addr = 0;
        set_ends(u, pcb, &none);
}

bool udp_connected(const struct udp *u, uint32_t pcb)
{
        return pcb_connected(pcb_at(u, pcb));
}

int udp_shutdown(struct udp *u, uint32_t pcb, int how)
{
        struct udp_pcb *p = pcb_at(u, pcb);

        if (how != SHUT_WR)
                WRITE_ONCE(p->shut, p->shut | UDP_SHUT_RD);
        if (how != SHUT_RD)
                WRITE_ONCE(p->shut, p->shut | UDP_SHUT_WR);
        pcb_raise(u, pcb, UDP_EV_READABLE);
        /* Linux's inet_shutdown(): takes effect all the same, to wake pollers. */
        return pcb_connected(p) ? 0 : -ENOTCONN;
}

int udp_take_error(struct udp *u, uint32_t pcb)
{
        int err = pcb_at(u, pcb)->err;

        WRITE_ONCE(pcb_at(u, pcb)->err, 0);
        return err;
}

void udp_put_error(struct udp *u, uint32_t pcb, int err)
{
        if (err != 0 && pcb_at(u, pcb)->err == 0)
                WRITE_ONCE(pcb_at(u, pcb)->err, err);
}

/* Linux's datagram_poll(). */
short udp_poll_events(const struct udp *u, uint32_t pcb)
{
        const struct udp_pcb *p = pcb_at(u, pcb);
        short ev = POLLOUT | POLLWRNORM | POLLWRBAND;
        uint8_t shut = READ_ONCE(p->shut);

        if (READ_ONCE(p->err) != 0 || READ_ONCE(p->nerrs) != 0)
                ev |= POLLERR;
        if (shut & UDP_SHUT_RD)
                ev |= POLLRDHUP | POLLIN | POLLRDNORM;
        if (shut == (UDP_SHUT_RD | UDP_SHUT_WR))
                ev |= POLLHUP;
        if (udp_queue_unread(&p->q))
                ev |= POLLIN | POLLRDNORM;
        return ev;
}

bool udp_readable(const struct udp *u, uint32_t pcb)
{
        return udp_pcb_readable(pcb_at(u, pcb));
}

bool udp_pcb_readable(const struct udp_pcb *p)
{
        return READ_ONCE(p->err) != 0 || READ_ONCE(p->shut) & UDP_SHUT_RD ||
               udp_queue_unread(&p->q);
}

/* ---- lookup ---- */

/* Chooses the one of the `n` that share key `k` with SO_REUSEPORT to which this sender always
 * goes. */
static uint32_t choose(const struct udp *u, uint32_t head, const struct key *k, uint32_t n,
                       const struct udp_tuple *t)
{
        struct key sender = {t->laddr, t->raddr, t->lport, t->rport, 0};
        uint32_t skip =
                (uint32_t)((siphash13(&u->sh->key, &sender, sizeof sender) >> 32) * n >> 32);

        for (uint32_t i = head;; i = pcb_at(u, i)->key_next)
                if (key_eq(pcb_at(u, i), k) && pcb_at(u, i)->opts.reuseport && skip-- == 0)
                        return i;
}

static uint32_t find_key(const struct udp *u, const struct key *k, const struct udp_tuple *t)
{
        uint32_t head = *key_head(u->sh, k), found = 0, sharing = 0;

        for (uint32_t i = head; i != 0; i = pcb_at(u, i)->key_next) {
                const struct udp_pcb *p = pcb_at(u, i);
                if (!key_eq(p, k))
                        continue;
                found = found != 0 ? found : i;
                sharing += p->opts.reuseport != 0;
        }
        if (sharing > 1 && pcb_at(u, found)->opts.reuseport)
                return choose(u, head, k, sharing, t);
        return found;
}

static uint32_t find(const struct udp *u, const struct udp_tuple *t)
{
        struct key k = {t->laddr, t->raddr, t->lport, t->rport, 0};
        uint32_t found = u->sh->connected != 0 ? find_key(u, &k, t) : 0;

        if (found != 0)
                return found;
        k = (struct key){.laddr = t->laddr, .lport = t->lport};
        found = u->sh->bound != 0 ? find_key(u, &k, t) : 0;
        if (found != 0)
                return found;
        k = (struct key){.lport = t->lport};
        return find_key(u, &k, t);
}

static struct udp_cached *cache_slot(struct udp_shared *sh, const struct udp_tuple *t)
{
        uint64_t h = (t->raddr.w[0] ^ t->raddr.w[1] ^ t->laddr.w[1]) +
                     ((uint64_t)t->rport << 16 | t->lport);

        return &sh->cache[h * 0x9e3779b97f4a7c15 >> 58];
}
static_assert(UDP_CACHE == 1u << (64 - 58), "the hash's upper bits are the slot");

uint32_t udp_lookup(struct udp *u, const struct udp_tuple *t)
{
        struct udp_cached *c = cache_slot(u->sh, t);

        if (likely(c->gen == u->sh->gen && c->lport == t->lport && c->rport == t->rport &&
                   ip_addr_eq(c->raddr, t->raddr) && ip_addr_eq(c->laddr, t->laddr)))
                return c->pcb;
        c->gen = 0; /* not to be believed if we die before the end */
        *c = (struct udp_cached){t->laddr, t->raddr, t->lport, t->rport, find(u, t), u->sh->gen};
        return c->pcb;
}

uint32_t udp_port_chain(const struct udp_shared *sh, uint16_t port)
{
        return *port_head(sh, port);
}

uint64_t udp_keys(const struct udp *u)
{
        return u->sh->gen;
}

/* ---- looking in ---- */

uint32_t udp_pcb_cap(const struct udp *u)
{
        return u->sh->pcbs.cap;
}

bool udp_get_report(const struct udp *u, uint32_t pcb, struct udp_report *r)
{
        const struct udp_pcb *p = pcb_at(u, pcb);

        if (pcb >= u->sh->pcbs.fresh || !p->live)
                return false;
        *r = (struct udp_report){.connected = pcb_connected(p),
                                 .sock = p->sock,
                                 .queued = p->q.count,
                                 .memory = p->q.charged,
                                 .rcvbuf = p->opts.rcvbuf,
                                 .in = p->in,
                                 .out = p->out,
                                 .dropped = p->dropped};
        udp_get_tuple(u, pcb, &r->tuple);
        return true;
}

/* ---- consistency ---- */

static uint32_t times_in_chain(const struct udp *u, uint32_t pcb)
{
        const struct udp_pcb *p = pcb_at(u, pcb);
        struct key k = key_of(p);
        uint32_t keys = 0, ports = 0;

        for (uint32_t i = *key_head(u->sh, &k); i != 0; i = pcb_at(u, i)->key_next)
                keys += i == pcb;
        for (uint32_t i = *port_head(u->sh, p->lport); i != 0; i = pcb_at(u, i)->port_next)
                ports += i == pcb;
        assert(keys == ports);
        return keys;
}

void udp_pcb_check(const struct udp *u, uint32_t pcb)
{
        const struct udp_pcb *p = pcb_at(u, pcb);

        assert(p->live && p->err >= 0);
        assert(p->rport == 0 || p->lport != 0);
        assert(p->rport != 0 || ip_addr_is_any(p->raddr));
        assert(!p->bound_addr || !ip_addr_is_any(p->laddr));
        assert(times_in_chain(u, pcb) == (p->lport != 0));
        udp_errors_check(u, pcb);
        udp_queue_check(&p->q, u);
}

/* Its ends may be half changed: any value of each is a legal one, but not any combination. */
static void mend_ends(struct udp_pcb *p)
{
        if (p->lport == 0)
                p->rport = 0;
        if (p->rport == 0)
                p->raddr = (ip_addr){{0, 0}};
        p->bound_addr &= !ip_addr_is_any(p->laddr);
        p->bound_many &= p->bound_addr;
}

static void recover_pcb(struct udp *u, uint32_t pcb)
{
        struct udp_pcb *p = pcb_at(u, pcb);

        mend_ends(p);
        p->events = 0; /* the caller tells everybody to look */
        udp_queue_recover(&p->q, u);
        if (p->lport != 0)
                chain_in(u, pcb);
}

void udp_recover(struct udp *u)
{
        struct udp_shared *sh = u->sh;
        uint64_t *live = (uint64_t *)((char *)sh + sh->live_off);
        size_t heads = (sh->mask + 1) * sizeof(uint32_t);

        memset((char *)sh + sh->keys_off, 0, heads);
        memset((char *)sh + sh->ports_off, 0, heads);
        memset(live, 0, (sh->limits.pcbs / 64 + 1) * sizeof *live);
        memset(sh->kept, 0, sizeof sh->kept);
        sh->connected = sh->bound = 0;
        sh->gen++;
        for (uint32_t i = 1; i < sh->pcbs.fresh; i++) {
                if (!pcb_at(u, i)->live)
                        continue;
                live[i / 64] |= 1ull << i % 64;
                recover_pcb(u, i);
        }
        pool_rebuild(&sh->pcbs, live);
        udp_errors_recover(u);
}

/* Well before anything must be dropped, and while what is queued still fits a cache. */
#define CROWD (256u << 10)

bool udp_crowded(struct udp *u, uint32_t pcb)
{
        struct udp_pcb *p = pcb_at(u, pcb);
        uint32_t crowd = MIN(CROWD, p->opts.rcvbuf / 4 * 3);

        if (!p->live || p->q.charged <= crowd)
                return false;
        udp_queue_settle(&p->q, u);
        return p->q.charged > crowd;
}

uint32_t udp_count_unread(struct udp *u, uint32_t pcb)
{
        struct udp_pcb *p = pcb_at(u, pcb);

        udp_queue_settle(&p->q, u);
        return p->q.count;
}

uint64_t udp_consumed(const struct udp *u, uint32_t pcb)
{
        const struct udp_pcb *p = pcb_at(u, pcb);

        return p->in - p->q.count;
}
