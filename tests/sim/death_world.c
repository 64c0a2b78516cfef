#include "tests/sim/death_world.h"
#include "tcp/tcp_listen.h"
#include "tcp/tcp_stream.h"

#include <stdlib.h>
#include <sys/mman.h>
#include "tests/unit.h"

static const struct frame_geom geom = {{[FRAME_SMALL] = 32, [FRAME_LARGE] = 2}};
static const uint32_t addr[2] = {0x0a000001, 0x0a000002};

void *at(struct world *w, size_t off)
{
        return (char *)w + off;
}

static struct stack_limits limits(void)
{
        struct stack_limits l;

        stack_limits_default(&l);
        l.tcp = (struct tcp_limits){
                .conns = 8, .listeners = 4, .txsegs = 64, .rxsegs = 64, .time_wait_max = 4};
        l.udp.pcbs = 4;
        l.socks = 16;
        l.rx = (struct frame_geom){{[FRAME_SMALL] = 32, [FRAME_LARGE] = 1}};
        l.tx = geom;
        return l;
}

#define NAMED_AT SHM_REGION_BYTES(geom) /* a side's memory lies behind its region */

static void no_event(struct stack *s, uint32_t sock, uint32_t events)
{
}

void world_free(struct world *w)
{
        munmap(w, w->bytes);
}

struct view *view_of(struct world *w)
{
        struct view *v = calloc(1, sizeof *v);

        assert_non_null(v);
        v->w = w;
        for (int i = 0; i < 2; i++) {
                struct stack_state *st = at(w, w->state[i]);
                assert_int_equal(stack_view_init(&v->s[i], st, st->bytes, &w->bell[i]), 0);
                v->s[i].event = no_event;
        }
        for (int i = 0; i < 2; i++) {
                struct shm_chan *c = &v->chan[i];
                c->mine = at(w, w->region[i]);
                c->peer = at(w, w->region[!i]);
                c->bell = &w->bell[!i];
                c->leader_fd = c->keeper_fd = -1;
                c->names = true;
                shm_chan_init(c, &v->s[i].st->chan[CHAN].shm, &v->s[i].st->cnt);
                v->s[i].st->chan[CHAN].names = STACK_NAMES_OUT | STACK_NAMES_IN;
                stack_chan_mapped(&v->s[i], CHAN, &c->base, c->mine->frames, c->peer->frames);
                stack_chan_named(&v->s[i], CHAN, (const uint8_t *)c->peer + NAMED_AT);
        }
        return v;
}

void view_free(struct view *v)
{
        stack_view_fini(&v->s[0]);
        stack_view_fini(&v->s[1]);
        free(v);
}

static size_t rounded(size_t n)
{
        return (n + 65535) / 65536 * 65536;
}

struct world *world_make(void)
{
        struct stack_limits l = limits();
        size_t state = rounded(stack_bytes(&l)), region = rounded(NAMED_AT + STREAM),
               first = rounded(sizeof(struct world));
        size_t bytes = first + 2 * (state + region);
        struct world *w =
                mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        uint8_t seed[32] = {7};

        assert_ptr_not_equal(w, MAP_FAILED);
        *w = (struct world){.bytes = bytes,
                            .now = NS_PER_S,
                            .state = {first, first + state},
                            .region = {first + 2 * state, first + 2 * state + region}};
        for (int i = 0; i < 2; i++) {
                struct stack_state *st = at(w, w->state[i]);
                /* One, of both stacks. */
                const ip_addr host[] = {ip_addr_v4(addr[0]), ip_addr_v4(addr[1])};
                seed[1] = (uint8_t)i;
                stack_format(st, &l, seed, w->now);
                stack_set_addrs(st, host, 2);
                assert_int_equal(stack_chan_add(st, CHAN, (uint32_t)!i + 1, 0, geom, geom), 0);
        }
        return w;
}

uint8_t stream[2][CONNS][STREAM];

void make_streams(void)
{
        for (uint32_t side = 0; side < 2; side++)
                for (uint32_t n = 0; n < CONNS; n++)
                        for (uint32_t off = 0; off < STREAM; off++)
                                stream[side][n][off] =
                                        (uint8_t)(off * 31 + off / 253 + n * 77 + side * 131);
}

struct tcp_conn *conn(struct view *v, int side, int n)
{
        return tcp_conn_at(&v->s[side].tcp, v->w->conn[side][n]);
}

void write_bytes(struct view *v, int side, int n, size_t want)
{
        struct stack *s = &v->s[side];
        struct tcp_conn *tc = conn(v, side, n);
        uint32_t off = tc->snd_end - tc->iss - 1;
        struct span span[8];
        int got;

        s->now = v->w->now;
        stack_begin(s->st, tc->self);
        got = tcp_send_reserve(&s->tcp, tc, want, span, 8);
        for (int i = 0, k = 0; k < got; k += (int)span[i++].len)
                memcpy(span[i].ptr, &stream[side][n][off + (uint32_t)k], span[i].len);
        if (got > 0)
                tcp_send_commit(&s->tcp, tc, (size_t)got, false, false, v->w->now);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

/* From memory behind the region, where all of the stream lies. */
void write_by_name(struct view *v, int side, int n, size_t want)
{
        struct stack *s = &v->s[side];
        struct tcp_conn *tc = conn(v, side, n);
        uint32_t off = tc->snd_end - tc->iss - 1, id;
        int got;

        memcpy((uint8_t *)v->chan[side].mine + NAMED_AT + off, &stream[side][n][off], want);
        s->now = v->w->now;
        stack_begin(s->st, tc->self);
        id = frame_name(s->frames, FRAME_REGION_TX(CHAN), frame_owner(tc), ++s->st->names);
        assert_int_not_equal(id, 0);
        got = tcp_send_reserve_named(&s->tcp, tc, id, frame_name_off(geom, frame_id_num(id)) + off,
                                     want);
        if (got > 0)
                tcp_send_commit(&s->tcp, tc, (size_t)got, false, false, v->w->now);
        frame_drop(s->frames, id);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

void read_bytes(struct view *v, int side, int n, size_t most)
{
        struct stack *s = &v->s[side];
        struct tcp_conn *tc = conn(v, side, n);
        uint32_t off = copied_seq(tc) - tc->irs - 1;
        struct span span[8];
        int got = tcp_recv_peek(&s->tcp, tc, 0, most, span, 8);

        for (int i = 0, k = 0; k < got; k += (int)span[i++].len)
                assert_memory_equal(span[i].ptr, &stream[!side][n][off + (uint32_t)k], span[i].len);
        if (got <= 0)
                return;
        s->now = v->w->now;
        stack_begin(s->st, tc->self);
        tcp_recv_consume(&s->tcp, tc, (size_t)got, v->w->now);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

void settle(struct view *v)
{
        bool any;

        do {
                any = stack_run(&v->s[0], v->w->now);
                any |= stack_run(&v->s[1], v->w->now);
                stack_flush_acks(&v->s[0], v->w->now);
                stack_flush_acks(&v->s[1], v->w->now);
        } while (any);
}

uint32_t open_from(struct view *v, int side, uint16_t port)
{
        struct tcp_tuple t = {.laddr = ip_addr_v4(addr[side]),
                              .raddr = ip_addr_v4(addr[!side]),
                              .lport = port,
                              .rport = PORT,
                              .chan = CHAN};
        struct tcp_link link = stack_tcp_link(&v->s[side], CHAN);
        struct tcp_opts o;
        int c;

        tcp_opts_default(&o);
        v->s[side].now = v->w->now;
        stack_begin(v->s[side].st, 0);
        c = tcp_connect(&v->s[side].tcp, &t, &link, &o, v->w->now);
        stack_end(v->s[side].st);
        assert_true(c > 0);
        tcp_set_sock(&v->s[side].tcp, (uint32_t)c, 1);
        stack_flush(&v->s[side], v->w->now);
        return (uint32_t)c;
}

struct world *scene(void)
{
        struct world *w = world_make();
        struct view *v = view_of(w);
        struct tcp_opts o;

        tcp_opts_default(&o);
        for (int i = 0; i < 2; i++) {
                w->listener[i] = (uint32_t)tcp_listen(&v->s[i].tcp, ip_addr_v4(0), PORT, 4, &o);
                tcp_listener_set_sock(&v->s[i].tcp, w->listener[i], 1);
        }
        for (int n = 0; n < CONNS; n++) {
                w->conn[0][n] = open_from(v, 0, (uint16_t)(40000 + n));
                settle(v);
                w->conn[1][n] = tcp_accept(&v->s[1].tcp, w->listener[1]);
                assert_int_not_equal(w->conn[1][n], 0);
                tcp_set_sock(&v->s[1].tcp, w->conn[1][n], 1);
        }
        for (int n = 0; n < CONNS; n++) {
                write_bytes(v, 0, n, 700);
                write_bytes(v, 1, n, 300);
                settle(v);
                read_bytes(v, 0, n, 100);
                read_bytes(v, 1, n, 100);
                write_bytes(v, 1, n, 5000);
                settle(v);
        }
        view_free(v);
        return w;
}
