/* Two stacks in one process. See pair.h. */
#include "tests/sim/pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MAX_TURNS 5000 /* at one moment; a lossless channel moves all its buffers in less */

const struct pair_size pair_size_default = {
        .tx = {{[FRAME_SMALL] = 1024, [FRAME_LARGE] = 64}},
        .rx = {{[FRAME_SMALL] = 4096, [FRAME_LARGE] = 64}},
        .conns = 256,
        .segs = 8192,
};
static const uint32_t addr[2] = {0x0a000001, 0x0a000002};

static void *zeroed(size_t n)
{
        void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1, 0);

        if (p == MAP_FAILED)
                abort();
        return p;
}

static void note_event(struct stack *s, uint32_t sock, uint32_t events)
{
        struct pair_side *side = s->owner;

        side->events |= events;
}

ip_addr pair_addr(int side)
{
        return ip_addr_v4(addr[side]);
}

static struct stack_limits small_limits(const struct pair_size *z)
{
        struct stack_limits l;

        stack_limits_default(&l);
        l.tcp.conns = z->conns;
        l.tcp.listeners = 16;
        l.tcp.txsegs = l.tcp.rxsegs = z->segs;
        l.udp.pcbs = 64;
        l.socks = 256;
        l.rx = z->rx;
        l.tx = z->tx;
        return l;
}

/* `mtu` 0: the channel is to another stack of this host, else it is an interface. */
static void side_init(struct pair_side *d, const struct pair_size *z, uint64_t seed, int i,
                      uint32_t mtu)
{
        struct netif_config cfg = {.name = "sim0",
                                   .addr = addr[i],
                                   .prefix = 24,
                                   .mtu = mtu,
                                   .mac = {2, 0, 0, 0, 0, (uint8_t)(i + 1)}};

        struct stack_limits l = small_limits(z);
        ip_addr a = ip_addr_v4(addr[i]);
        uint8_t secret[32] = {0};

        memcpy(secret, &seed, sizeof seed);
        secret[8] = (uint8_t)i;
        d->bytes = stack_bytes(&l);
        d->st = zeroed(d->bytes);
        stack_format(d->st, &l, secret, 0);
        if (stack_view_init(&d->s, d->st, d->bytes, &d->bell) != 0)
                abort();
        d->s.owner = d;
        d->s.event = note_event;
        stack_set_addrs(d->st, &a, 1);
        if (mtu == 0)
                stack_chan_add(d->st, PAIR_CHAN, (uint32_t)!i + 1, 0, z->tx, z->tx);
        else
                stack_netif_add(d->st, PAIR_CHAN, UINT32_MAX, &cfg, z->tx, z->tx, secret, NS_PER_S);
}

static struct pair *make(uint64_t seed, const struct pair_size *z, uint32_t mtu)
{
        struct pair *p = calloc(1, sizeof *p);

        if (p == NULL)
                abort();
        p->now = NS_PER_S;
        p->size = *z;
        side_init(&p->side[0], z, seed, 0, mtu);
        side_init(&p->side[1], z, seed, 1, mtu);
        return p;
}

struct pair *pair_unjoined(uint64_t seed, const struct pair_size *z)
{
        return make(seed, z, 0);
}

uint8_t *pair_memory(struct pair *p, int side)
{
        assert(p->side[side].region != NULL);
        return (uint8_t *)p->side[side].region + SHM_REGION_BYTES(p->size.tx);
}

/* Both are on one host, which has both addresses. */
static void join_by_memory(struct pair *p)
{
        const ip_addr both[2] = {pair_addr(0), pair_addr(1)};

        for (int i = 0; i < 2; i++) {
                p->side[i].region = zeroed(SHM_REGION_BYTES(p->size.tx) + PAIR_MEMORY);
                stack_set_addrs(p->side[i].st, both, 2);
        }
        for (int i = 0; i < 2; i++) {
                struct pair_side *d = &p->side[i];
                d->shm.mine = d->region;
                d->shm.peer = p->side[!i].region;
                d->shm.bell = &p->side[!i].bell;
                d->shm.leader_fd = d->shm.keeper_fd = -1;
                d->shm.names = true;
                shm_chan_init(&d->shm, &d->st->chan[PAIR_CHAN].shm, &d->st->cnt);
                /* One host. */
                stack_set_addrs(d->st, (const ip_addr[]){ip_addr_v4(addr[0]), ip_addr_v4(addr[1])},
                                2);
                d->st->chan[PAIR_CHAN].names = STACK_NAMES_OUT | STACK_NAMES_IN;
                stack_chan_mapped(&d->s, PAIR_CHAN, &d->shm.base, d->region->frames,
                                  d->shm.peer->frames);
                stack_chan_named(&d->s, PAIR_CHAN, pair_memory(p, !i));
        }
}

static void join_by_link(struct pair *p, uint64_t seed, const struct sim_params dir[2])
{
        p->sim = sim_create(seed, dir);
        for (int i = 0; i < 2; i++) {
                struct pair_side *d = &p->side[i];
                struct unet_mem rx = sim_rx_mem(p->sim, i);
                d->tx_frames = zeroed(frame_geom_bytes(p->size.tx));
                sim_set_tx_mem(p->sim, i, unet_mem_frames(d->tx_frames, p->size.tx));
                d->st->chan[PAIR_CHAN].shm.rx_geom = rx.geom;
                stack_chan_mapped(&d->s, PAIR_CHAN, sim_end(p->sim, i), d->tx_frames, rx.base);
        }
        sim_advance(p->sim, p->now);
}

struct pair *pair_new(uint64_t seed, const struct sim_params *dir, const struct pair_size *size)
{
        struct pair *p = make(seed, size, 0);

        if (dir == NULL)
                join_by_memory(p);
        else
                join_by_link(p, seed, dir);
        return p;
}

struct pair *pair_ether(uint64_t seed, const struct sim_params dir[2])
{
        struct sim_params frames[2] = {dir[0], dir[1]};
        struct pair *p = make(seed, &pair_size_default, dir[0].mtu);

        frames[0].mtu += ETHER_HDR;
        frames[1].mtu += ETHER_HDR;
        join_by_link(p, seed, frames);
        return p;
}

struct pair *pair_shm(uint64_t seed)
{
        return pair_new(seed, NULL, &pair_size_default);
}

struct pair *pair_sim(uint64_t seed, const struct sim_params dir[2])
{
        return pair_new(seed, dir, &pair_size_default);
}

struct pair *pair_random(uint64_t seed, struct prng_fast *rnd)
{
        struct sim_params dir = {
                .mtu = 1500, .delay = prng_fast_below(rnd, 20) * NS_PER_MS, .csum = true};
        struct sim_params both[2];

        if (prng_fast_below(rnd, 3) == 0)
                return pair_shm(seed);
        if (prng_fast_below(rnd, 2) == 0) {
                dir.loss = prng_fast_below(rnd, 50) / 1000.0;
                dir.duplicate = prng_fast_below(rnd, 20) / 1000.0;
                dir.reorder = prng_fast_below(rnd, 50) / 1000.0;
                dir.reorder_by = 5 * NS_PER_MS;
        }
        both[0] = both[1] = dir;
        return pair_sim(seed, both);
}

void pair_free(struct pair *p)
{
        for (int i = 0; i < 2; i++) {
                struct pair_side *d = &p->side[i];
                stack_view_fini(&d->s);
                munmap(d->st, d->bytes);
                if (d->region != NULL)
                        munmap(d->region, SHM_REGION_BYTES(p->size.tx) + PAIR_MEMORY);
                if (d->tx_frames != NULL)
                        munmap(d->tx_frames, frame_geom_bytes(p->size.tx));
        }
        if (p->sim != NULL)
                sim_destroy(p->sim);
        free(p);
}

void pair_check(struct pair *p)
{
        for (int i = 0; i < 2; i++) {
                struct tcp *t = &p->side[i].s.tcp;
                for (uint32_t c = 1; c < t->sh->conns.fresh; c++)
                        if (tcp_conn_at(t, c)->live)
                                tcp_conn_check(t, tcp_conn_at(t, c));
        }
}

static bool turn(struct pair *p, int side)
{
        struct stack *s = &p->side[side].s;
        bool any;

        if (p->side[side].dead)
                return false;
        any = stack_run(s, p->now);
        stack_flush_acks(s, p->now);
        return any;
}

void pair_settle(struct pair *p)
{
        unsigned turns = 0;
        bool any;

        do {
                any = turn(p, 0);
                any |= turn(p, 1);
                if (p->sim != NULL)
                        sim_advance(p->sim, p->now);
                if (++turns == MAX_TURNS) {
                        fprintf(stderr, "no rest at %lld ns\n", (long long)p->now);
                        pair_say(p);
                        abort();
                }
        } while (any);
        pair_check(p);
}

static nstime next_event(struct pair *p)
{
        nstime next = p->sim != NULL ? sim_next(p->sim) : NSTIME_NEVER;

        for (int i = 0; i < 2; i++)
                if (!p->side[i].dead)
                        next = nstime_min(next, stack_deadline(&p->side[i].s));
        return next;
}

void pair_turns(struct pair *p, bool (*writes)(void *arg), bool (*reads)(void *arg), void *arg)
{
        struct stack *from = &p->side[0].s, *to = &p->side[1].s;
        bool any;

        do {
                any = stack_run(from, p->now);
                any |= writes(arg);
                any |= stack_run(to, p->now);
                any |= reads(arg);
                stack_flush_acks(from, p->now);
                stack_flush_acks(to, p->now);
                sim_advance(p->sim, p->now);
        } while (any);
}

bool pair_step(struct pair *p, nstime until)
{
        nstime next = next_event(p);

        if (next > until)
                return false;
        p->now = MAX(next, p->now + 1);
        if (p->sim != NULL)
                sim_advance(p->sim, p->now);
        pair_settle(p);
        return true;
}

void pair_wait(struct pair *p, nstime until)
{
        if (pair_step(p, until) || p->now >= until)
                return;
        p->now = until;
        if (p->sim != NULL)
                sim_advance(p->sim, p->now);
        pair_settle(p);
}

static void say_counters(const struct counters *c)
{
        for (int k = 0; k < COUNT_COUNT; k++)
                if (c->n[k] != 0)
                        fprintf(stderr, " %s %llu", count_name((enum count)k),
                                (unsigned long long)c->n[k]);
        for (int k = 1; k < DROP_COUNT; k++)
                if (c->drop[k] != 0)
                        fprintf(stderr, " dropped:%s %llu", drop_name((enum drop)k),
                                (unsigned long long)c->drop[k]);
}

void pair_say(struct pair *p)
{
        for (int i = 0; i < 2; i++) {
                fprintf(stderr, "side %d:", i);
                say_counters(&p->side[i].st->cnt);
                if (p->sim != NULL)
                        say_counters(sim_counters(p->sim, i));
                fputc('\n', stderr);
        }
}

static unsigned leak(int side, const char *what, uint32_t n)
{
        if (n != 0)
                fprintf(stderr, "side %d: %u %s left\n", side, n, what);
        return n;
}

static bool any_name(void *arg, uint32_t serial)
{
        return true;
}

unsigned pair_leaks(struct pair *p)
{
        unsigned n = 0;

        for (int i = 0; i < 2; i++) {
                struct stack *s = &p->side[i].s;
                if (p->side[i].dead)
                        continue;
                n += leak(i, "connections", s->tcp.sh->conns.used);
                n += leak(i, "send records", s->tcp.sh->txsegs.used);
                n += leak(i, "receive records", s->tcp.sh->rxsegs.used);
                n += leak(i, "loans to processes", s->tcp.sh->loans.used);
                n += leak(i, "loans of the link", p->sim != NULL ? sim_loans(p->sim, i) : 0);
                n += leak(i, "names",
                          frame_pool_any_name(s->frames->region[FRAME_REGION_TX(PAIR_CHAN)].pool,
                                              any_name, NULL));
                for (int c = 0; c < FRAME_CLASSES; c++) {
                        n += leak(i, "private frames",
                                  s->frames->region[FRAME_REGION_PRIVATE].pool->used[c]);
                        n += leak(i, "transmit frames",
                                  s->frames->region[FRAME_REGION_TX(PAIR_CHAN)].pool->used[c]);
                }
        }
        return n;
}

unsigned pair_end(struct pair *p)
{
        pair_settle(p);
        while (pair_step(p, p->now + 3600 * NS_PER_S))
                ;
        return pair_leaks(p);
}

void pair_connect(struct pair *p, uint16_t port, uint32_t *client, uint32_t *server)
{
        struct tcp_opts o;

        tcp_opts_default(&o);
        pair_connect_opts(p, port, &o, client, server);
}

void pair_connect_opts(struct pair *p, uint16_t port, const struct tcp_opts *o, uint32_t *client,
                       uint32_t *server)
{
        ip_addr a = ip_addr_v4(addr[0]), b = ip_addr_v4(addr[1]);
        struct tcp_tuple t = {
                .laddr = a, .raddr = b, .lport = 40000, .rport = port, .chan = PAIR_CHAN};
        struct tcp_link link = stack_tcp_link(&p->side[0].s, PAIR_CHAN);
        int l, c;

        l = tcp_listen(&p->side[1].s.tcp, b, port, 8, o);
        c = tcp_connect(&p->side[0].s.tcp, &t, &link, o, p->now);
        if (l <= 0 || c <= 0)
                abort();
        tcp_set_sock(&p->side[0].s.tcp, (uint32_t)c, 1);
        stack_flush(&p->side[0].s, p->now);
        pair_settle(p);
        while (!tcp_acceptable(&p->side[1].s.tcp, (uint32_t)l))
                if (!pair_step(p, p->now + 300 * NS_PER_S))
                        abort();
        *client = (uint32_t)c;
        *server = tcp_accept(&p->side[1].s.tcp, (uint32_t)l);
        tcp_set_sock(&p->side[1].s.tcp, *server, 1);
}

int pair_write(struct pair *p, int side, uint32_t conn, const uint8_t *data, size_t n)
{
        struct stack *s = &p->side[side].s;
        struct tcp_conn *tc = tcp_conn_at(&s->tcp, conn);
        struct span span[8];
        int got = tcp_send_reserve(&s->tcp, tc, n, span, 8);

        assert(got <= (int)n);
        if (got <= 0)
                return got;
        for (int i = 0, at = 0; at < got; at += (int)span[i++].len)
                memcpy(span[i].ptr, data + at, span[i].len);
        tcp_send_commit(&s->tcp, tc, (size_t)got, false, false, p->now);
        stack_flush(s, p->now);
        return got;
}

int pair_read(struct pair *p, int side, uint32_t conn, uint8_t *data, size_t n)
{
        struct stack *s = &p->side[side].s;
        struct tcp_conn *tc = tcp_conn_at(&s->tcp, conn);
        struct span span[8];
        int got = tcp_recv_peek(&s->tcp, tc, 0, n, span, 8);

        if (got <= 0)
                return got;
        for (int i = 0, at = 0; at < got; at += (int)span[i++].len)
                memcpy(data + at, span[i].ptr, span[i].len);
        tcp_recv_consume(&s->tcp, tc, (size_t)got, p->now);
        stack_flush(s, p->now);
        return got;
}
