/* Two stacks in one process. See pair.h. */
#include "tests/sim/pair.h"

#include <stdlib.h>
#include <sys/mman.h>

#define CHAN 0u

static const struct frame_geom geom = {{[FRAME_SMALL] = 1024, [FRAME_LARGE] = 64}};
static const uint32_t addr[2] = {0x0a000001, 0x0a000002};

static void *zeroed(size_t n)
{
        void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (p == MAP_FAILED)
                abort();
        return p;
}

static void note_event(struct stack *s, uint32_t sock, uint32_t events)
{
        struct pair_side *side = s->owner;

        side->events |= events;
}

static struct stack_limits small_limits(void)
{
        struct stack_limits l;

        stack_limits_default(&l);
        l.tcp.conns = 256;
        l.tcp.listeners = 16;
        l.tcp.txsegs = l.tcp.rxsegs = 8192;
        l.udp.pcbs = 64;
        l.socks = 256;
        l.rx = (struct frame_geom){{[FRAME_SMALL] = 4096, [FRAME_LARGE] = 64}};
        l.tx = geom;
        return l;
}

static void side_init(struct pair_side *d, uint64_t seed, int i)
{
        struct stack_limits l = small_limits();
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
        stack_chan_add(d->st, CHAN, (uint32_t)!i + 1, 0, geom, geom);
}

static struct pair *make(uint64_t seed)
{
        struct pair *p = calloc(1, sizeof *p);

        if (p == NULL)
                abort();
        p->now = NS_PER_S;
        side_init(&p->side[0], seed, 0);
        side_init(&p->side[1], seed, 1);
        return p;
}

struct pair *pair_shm(uint64_t seed)
{
        struct pair *p = make(seed);

        for (int i = 0; i < 2; i++)
                p->side[i].region = zeroed(SHM_REGION_BYTES(geom));
        for (int i = 0; i < 2; i++) {
                struct pair_side *d = &p->side[i];
                d->shm.mine = d->region;
                d->shm.peer = p->side[!i].region;
                d->shm.bell = &p->side[!i].bell;
                d->shm.leader_fd = d->shm.keeper_fd = -1;
                shm_chan_init(&d->shm, &d->st->chan[CHAN].shm, &d->st->cnt);
                stack_chan_mapped(&d->s, CHAN, &d->shm.base, d->region->frames, d->shm.peer->frames);
        }
        return p;
}

struct pair *pair_sim(uint64_t seed, const struct sim_params dir[2])
{
        struct pair *p = make(seed);

        p->sim = sim_create(seed, dir);
        for (int i = 0; i < 2; i++) {
                struct pair_side *d = &p->side[i];
                struct unet_mem rx = sim_rx_mem(p->sim, i);
                d->tx_frames = zeroed(frame_geom_bytes(geom));
                sim_set_tx_mem(p->sim, i, unet_mem_frames(d->tx_frames, geom));
                d->st->chan[CHAN].shm.rx_geom = rx.geom;
                stack_chan_mapped(&d->s, CHAN, sim_end(p->sim, i), d->tx_frames, rx.base);
        }
        sim_advance(p->sim, p->now);
        return p;
}

void pair_free(struct pair *p)
{
        for (int i = 0; i < 2; i++) {
                struct pair_side *d = &p->side[i];
                stack_view_fini(&d->s);
                munmap(d->st, d->bytes);
                if (d->region != NULL)
                        munmap(d->region, SHM_REGION_BYTES(geom));
                if (d->tx_frames != NULL)
                        munmap(d->tx_frames, frame_geom_bytes(geom));
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

void pair_settle(struct pair *p)
{
        bool any;

        do {
                any = stack_run(&p->side[0].s, p->now);
                any |= stack_run(&p->side[1].s, p->now);
                stack_flush_acks(&p->side[0].s, p->now);
                stack_flush_acks(&p->side[1].s, p->now);
                if (p->sim != NULL)
                        sim_advance(p->sim, p->now);
        } while (any);
        pair_check(p);
}

bool pair_step(struct pair *p, nstime until)
{
        nstime next = nstime_min(stack_deadline(&p->side[0].s), stack_deadline(&p->side[1].s));

        if (p->sim != NULL)
                next = nstime_min(next, sim_next(p->sim));
        if (next > until)
                return false;
        p->now = MAX(next, p->now + 1);
        if (p->sim != NULL)
                sim_advance(p->sim, p->now);
        pair_settle(p);
        return true;
}

void pair_connect(struct pair *p, uint16_t port, uint32_t *client, uint32_t *server)
{
        ip_addr a = ip_addr_v4(addr[0]), b = ip_addr_v4(addr[1]);
        struct tcp_tuple t = {.laddr = a, .raddr = b, .lport = 40000, .rport = port, .chan = CHAN};
        struct tcp_link link = stack_tcp_link(&p->side[0].s, CHAN);
        struct tcp_opts o;
        int l, c;

        tcp_opts_default(&o);
        l = tcp_listen(&p->side[1].s.tcp, b, port, 8, &o);
        c = tcp_connect(&p->side[0].s.tcp, &t, &link, &o, p->now);
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
