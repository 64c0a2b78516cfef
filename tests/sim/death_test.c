/*
 * A process dies at every store of a turn of the stack. A child does something on a stack in
 * shared memory, one instruction at a time. After each instruction that changed anything, a copy of
 * the memory, mapped elsewhere as another process has it, is recovered and must be whole: every
 * connection, the one that was being changed as well, goes on and carries every byte that was
 * written before; and a new one can be opened.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "netstack/stack_road.h"

#define CHAN  0u
#define CONNS 2 /* open before the child begins; the first is the one that it works on */
#define PORT  80

static const struct frame_geom geom = {{[FRAME_SMALL] = 32, [FRAME_LARGE] = 2}};
static const uint32_t addr[2] = {0x0a000001, 0x0a000002};

/* All shared memory of two stacks and the channel between them, in one mapping. */
struct world {
        size_t bytes;
        size_t state[2], region[2]; /* offsets */
        struct bell bell[2];
        nstime now;
        uint32_t conn[2][CONNS], listener[2];
        /* Of the first connection before the child began: written, read, received. */
        uint32_t end, read, rcvd;
        uint32_t aimed; /* what the child may have read of it */
};

/* Somebody's view of a world. */
struct view {
        struct world *w;
        struct stack s[2];
        struct shm_chan chan[2];
};

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

static void no_event(struct stack *s, uint32_t sock, uint32_t events)
{
}

static void *at(struct world *w, size_t off)
{
        return (char *)w + off;
}

static struct view *view_of(struct world *w)
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
                shm_chan_init(c, &v->s[i].st->chan[CHAN].shm, &v->s[i].st->cnt);
                stack_chan_mapped(&v->s[i], CHAN, &c->base, c->mine->frames, c->peer->frames);
        }
        return v;
}

static void view_free(struct view *v)
{
        stack_view_fini(&v->s[0]);
        stack_view_fini(&v->s[1]);
        free(v);
}

static size_t rounded(size_t n)
{
        return (n + 65535) / 65536 * 65536;
}

static struct world *world_make(void)
{
        struct stack_limits l = limits();
        size_t state = rounded(stack_bytes(&l)), region = rounded(SHM_REGION_BYTES(geom)),
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

/* ---- streams: what a side sends on its connection number n ---- */

#define STREAM 65536u /* more than any test sends */

/* Laid out beforehand: in the child every instruction counts. */
static uint8_t stream[2][CONNS][STREAM];

static void make_streams(void)
{
        for (uint32_t side = 0; side < 2; side++)
                for (uint32_t n = 0; n < CONNS; n++)
                        for (uint32_t off = 0; off < STREAM; off++)
                                stream[side][n][off] =
                                        (uint8_t)(off * 31 + off / 253 + n * 77 + side * 131);
}

static struct tcp_conn *conn(struct view *v, int side, int n)
{
        return tcp_conn_at(&v->s[side].tcp, v->w->conn[side][n]);
}

static void write_bytes(struct view *v, int side, int n, size_t want)
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

/* Reads up to `most` bytes and compares them. */
static void read_bytes(struct view *v, int side, int n, size_t most)
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

static void settle(struct view *v)
{
        bool any;

        do {
                any = stack_run(&v->s[0], v->w->now);
                any |= stack_run(&v->s[1], v->w->now);
                stack_flush_acks(&v->s[0], v->w->now);
                stack_flush_acks(&v->s[1], v->w->now);
        } while (any);
}

static uint32_t open_from(struct view *v, int side, uint16_t port)
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

/* Two connections from side 0 to side 1, with some data read, some queued, some on its way,
 * on each. */
static struct world *scene(void)
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

/* ---- what is done when death comes ---- */

static void writes_little(struct view *v)
{
        write_bytes(v, 0, 0, 60);
}

static void writes_much(struct view *v)
{
        write_bytes(v, 0, 0, 3000);
}

static void reads_all(struct view *v)
{
        read_bytes(v, 0, 0, 100000);
}

/* Bytes that make the last unsent segment longer: the short way of small writes. */
static void appends(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_conn *tc = conn(v, 0, 0);

        stack_begin(s->st, tc->self);
        assert_true(tcp_send_append(&s->tcp, tc, &stream[0][0][tc->snd_end - tc->iss - 1], 40));
        stack_end(s->st);
}

/* The short way of small reads. */
static void reads_some(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_conn *tc = conn(v, 0, 0);
        uint32_t off = copied_seq(tc) - tc->irs - 1;
        uint8_t buf[40];

        stack_begin(s->st, tc->self);
        assert_true(tcp_recv_take(&s->tcp, tc, buf, sizeof buf));
        stack_end(s->st);
        assert_memory_equal(buf, &stream[1][0][off], sizeof buf);
}

/* Bytes that were read and did not find the application's memory. */
#define RETURNED 40u

static void reads_them_all(struct view *v)
{
        read_bytes(v, 0, 0, 100000);
}

static void gives_back(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_conn *tc = conn(v, 0, 0);
        uint32_t seq = copied_seq(tc), off = seq - RETURNED - tc->irs - 1;

        stack_begin(s->st, tc->self);
        assert_true(tcp_recv_give_back(&s->tcp, tc, &stream[1][0][off], RETURNED, seq));
        assert_false(tcp_recv_give_back(&s->tcp, tc, &stream[1][0][off], RETURNED, seq));
        stack_end(s->st);
        assert_int_equal(copied_seq(tc), seq - RETURNED);
}

/* By loan, to the process that has slot 0. */
#define LENDS 1u

static void lends(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_conn *tc = conn(v, 0, 0);
        struct tcp_lent lent[8];

        s->now = v->w->now;
        stack_begin(s->st, tc->self);
        assert_true(tcp_recv_lend(&s->tcp, tc, LENDS, false, lent, 8, v->w->now) > 0);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

/* The same as a copy of what came in the peer's frames. */
static void lends_copies(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_lent lent[8];

        s->now = v->w->now;
        stack_begin(s->st, v->w->conn[0][0]);
        assert_true(tcp_recv_lend(&s->tcp, conn(v, 0, 0), LENDS, true, lent, 8, v->w->now) > 0);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

static struct tcp_loan *loan(struct view *v, uint32_t i)
{
        return pool_at(&v->s[0].tcp.sh->loans, i);
}

static void returns(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_conn *tc = conn(v, 0, 0);

        s->now = v->w->now;
        for (uint32_t i = s->tcp.sh->loans.fresh - 1; i != 0; i--) {
                uint64_t token = (uint64_t)loan(v, i)->serial << 32 | i;
                if (loan(v, i)->proc == 0)
                        continue;
                stack_begin(s->st, tc->self);
                assert_int_equal(tcp_recv_return(&s->tcp, tc, LENDS, token, v->w->now), 0);
                stack_end(s->st);
        }
        stack_flush(s, v->w->now);
}

/* What is lent is what was sent, and its memory comes back when its process is gone. */
static void loans_end(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_conn *tc = conn(v, 0, 0);
        uint32_t sum = 0;

        if (s->tcp.sh->loans.fresh == 1)
                return;
        for (uint32_t i = 1; i < s->tcp.sh->loans.fresh; i++) {
                const struct tcp_loan *l = loan(v, i);
                if (l->proc == 0)
                        continue;
                sum += l->data.len;
                assert_memory_equal(frame_addr(s->frames, l->data.id) + l->data.off,
                                    &stream[1][0][l->seq - tc->irs - 1], l->data.len);
        }
        assert_int_equal(tc->rcv_lent, sum);
        s->now = v->w->now;
        stack_begin(s->st, tc->self);
        tcp_loans_end(&s->tcp, NULL, LENDS, v->w->now);
        stack_end(s->st);
        stack_flush(s, v->w->now);
        assert_true(tc->rcv_lent == 0 && tc->rcv_limit == tc->rcv_size);
        assert_int_equal(s->tcp.sh->loans.used, 0);
}

static void runs_with_input(struct view *v)
{
        stack_run(&v->s[0], v->w->now);
        stack_flush_acks(&v->s[0], v->w->now);
}

static void prepare_input(struct view *v)
{
        write_bytes(v, 0, 1, 900);
        write_bytes(v, 0, 0, 90);
        write_bytes(v, 1, 0, 40);
        write_bytes(v, 1, 1, 2500);
        stack_run(&v->s[1], v->w->now);
        read_bytes(v, 1, 1, 2000);
        stack_flush_acks(&v->s[1], v->w->now);
}

/* A write that Nagle holds back: it is the unsent tail. */
static void prepare_tail(struct view *v)
{
        write_bytes(v, 0, 0, 100);
        write_bytes(v, 0, 0, 100);
}

/* Acknowledgements that free what was sent, in whole and in part, and data on both connections. */
static void prepare_acks(struct view *v)
{
        for (int i = 0; i < 4; i++)
                write_bytes(v, 0, 0, 1500);
        stack_run(&v->s[1], v->w->now);
        read_bytes(v, 1, 0, 4000);
        write_bytes(v, 1, 0, 700);
        stack_flush_acks(&v->s[1], v->w->now);
}

/* The next `n` messages to a side are lost; then the rest is received. */
static void watches(struct view *v);
static void plans(struct view *v);
static void asks_for_times(struct view *v);

static void prepare_watched_acks(struct view *v)
{
        watches(v);
        prepare_acks(v);
}

static void prepare_planned_acks(struct view *v)
{
        plans(v);
        prepare_acks(v);
}

static void prepare_timed(struct view *v)
{
        write_bytes(v, 0, 0, 500);
}

static void prepare_timed_acks(struct view *v)
{
        prepare_timed(v);
        asks_for_times(v);
        prepare_acks(v);
        asks_for_times(v);
}

static void prepare_told_times(struct view *v)
{
        prepare_timed_acks(v);
        runs_with_input(v);
        assert_true(conn(v, 0, 0)->stamped > 3);
}

static void lose(struct view *v, int side, int n)
{
        struct unet_chan *ch = &v->chan[side].base;
        struct unet_rx rx;

        for (int i = 0; i < n; i++) {
                assert_int_equal(ch->ops->recv(ch, &rx, 1), 1);
                if (rx.frame != 0)
                        ch->ops->release(ch, &rx.frame, 1);
        }
}

/* Data beyond a gap. */
static void prepare_gap(struct view *v)
{
        conn(v, 1, 0)->nodelay = 1;
        write_bytes(v, 1, 0, 1400);
        lose(v, 0, 1);
        write_bytes(v, 1, 0, 1400);
        write_bytes(v, 1, 0, 60);
}

/* What fills the gap, after what lies beyond it. */
static void prepare_filling(struct view *v)
{
        prepare_gap(v);
        stack_run(&v->s[0], v->w->now);
        stack_flush_acks(&v->s[0], v->w->now);
        v->w->now += 300 * NS_PER_MS;
        stack_run(&v->s[1], v->w->now);
}

/* The peer says that one of ours is missing. */
static void prepare_sack(struct view *v)
{
        conn(v, 0, 0)->nodelay = 1;
        for (int i = 0; i < 4; i++)
                write_bytes(v, 0, 0, 1400);
        lose(v, 1, 1);
        stack_run(&v->s[1], v->w->now);
        stack_flush_acks(&v->s[1], v->w->now);
        v->w->now += 10 * NS_PER_MS;
}

/* RFC 1191: smaller segments from now on. What is queued is cut. */
static void cuts(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_conn *tc = conn(v, 0, 0);

        s->now = v->w->now;
        stack_begin(s->st, tc->self);
        tcp_icmp(&s->tcp, &tc->tuple, tc->snd_una, EMSGSIZE, false, 540, v->w->now);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

/* By credit, and the other way; a grant; what was promised is enough for what follows. */
static void changes_window(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_opts o;

        s->now = v->w->now;
        tcp_get_opts(conn(v, 0, 0), &o);
        o.credit = !o.credit;
        o.window_most = 65535u << 14;
        stack_begin(s->st, v->w->conn[0][0]);
        tcp_set_opts(&s->tcp, conn(v, 0, 0), &o, v->w->now);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

static void grants(struct view *v)
{
        struct stack *s = &v->s[0];

        s->now = v->w->now;
        stack_begin(s->st, v->w->conn[0][0]);
        assert_int_equal(tcp_window_grant(&s->tcp, conn(v, 0, 0), 65536, v->w->now), 0);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

/* Limits in common, hardly more than was promised already, so that shares shrink. */
static void limits_group(struct view *v, uint64_t more)
{
        struct tcp *t = &v->s[0].tcp;
        struct tcp_group_limits l = {.members = 6, .least = 2000};

        l.receive = more + 6 * l.least + tcp_promised(conn(v, 0, 0)) + tcp_promised(conn(v, 0, 1));
        l.send = more + 6 * l.least + tcp_queued(conn(v, 0, 0)) + tcp_queued(conn(v, 0, 1));
        stack_begin(v->s[0].st, 0);
        assert_int_equal(tcp_group_set(t, 1, &l), 0);
        stack_end(v->s[0].st);
}

static void enters_group(struct view *v)
{
        struct stack *s = &v->s[0];

        s->now = v->w->now;
        for (int n = 0; n < CONNS; n++) {
                stack_begin(s->st, v->w->conn[0][n]);
                assert_int_equal(tcp_group_enter(&s->tcp, conn(v, 0, n), 1, v->w->now), 0);
                stack_end(s->st);
        }
        stack_flush(s, v->w->now);
}

static void prepare_group(struct view *v)
{
        limits_group(v, 10000);
        enters_group(v);
        stack_begin(v->s[0].st, 0);
        tcp_group_listen(&v->s[0].tcp, v->w->listener[0], 1);
        stack_end(v->s[0].st);
}

static void prepare_group_limits(struct view *v)
{
        limits_group(v, 10000);
}

static void widens_group(struct view *v)
{
        limits_group(v, 200000);
}

static void leaves_group(struct view *v)
{
        struct stack *s = &v->s[0];

        s->now = v->w->now;
        stack_begin(s->st, v->w->conn[0][0]);
        tcp_group_leave(&s->tcp, conn(v, 0, 0), v->w->now);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

/* Somebody connects to the listener, who will be a member. */
static void prepare_group_and_syn(struct view *v)
{
        prepare_group(v);
        open_from(v, 1, 41000);
}

static void prepare_group_and_input(struct view *v)
{
        prepare_group(v);
        prepare_input(v);
}

static void prepare_group_and_credit(struct view *v)
{
        prepare_group(v);
        limits_group(v, 200000);
        changes_window(v);
}

/* Marks that are reached and some that are not. */
static void watches(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_marks m = {.acked = 1, .rtt = 1, .unsent_below = 500, .limits = ~0u};

        s->now = v->w->now;
        stack_begin(s->st, v->w->conn[0][0]);
        tcp_watch_set(&s->tcp, conn(v, 0, 0), &m);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

static void asks_for_times(struct view *v)
{
        struct stack *s = &v->s[0];

        s->now = v->w->now;
        stack_begin(s->st, v->w->conn[0][0]);
        tcp_stamp_ask(&s->tcp, conn(v, 0, 0), TCP_STAMP_QUEUED | TCP_STAMP_SENT | TCP_STAMP_ACKED);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

static void takes_times(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_stamp stamp;

        stack_begin(s->st, v->w->conn[0][0]);
        while (tcp_stamp_take(&s->tcp, conn(v, 0, 0), &stamp))
                assert_true(stamp.at <= v->w->now && stamp.what != 0);
        stack_end(s->st);
}

/* After a plan another one, whose window is smaller. */
static void plans(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_conn *tc = conn(v, 0, 0);
        struct tcp_plan plan = {.rate = 1 << 30, .good_for = 60 * NS_PER_S};
        struct tcp_plan_report r;

        s->now = v->w->now;
        stack_begin(s->st, v->w->conn[0][0]);
        assert_int_equal(tcp_plan_take(tc, &r, v->w->now), 0);
        plan.serial = r.serial;
        plan.cwnd = r.serial == 0 ? 2 * r.cwnd : r.cwnd / 2;
        assert_int_equal(tcp_plan_set(&s->tcp, tc, &plan, v->w->now), 0);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

static void prepare_cut(struct view *v)
{
        write_bytes(v, 0, 0, 3000);
        write_bytes(v, 0, 0, 1400);
}

static void prepare_close(struct view *v);
static void prepare_group_and_close(struct view *v)
{
        prepare_group(v);
        prepare_close(v);
}

static void closes(struct view *v)
{
        struct stack *s = &v->s[0];

        s->now = v->w->now;
        stack_begin(s->st, v->w->conn[0][0]);
        tcp_set_sock(&s->tcp, v->w->conn[0][0], 0);
        tcp_close(&s->tcp, conn(v, 0, 0), v->w->now);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

/* With nothing unread, close is no reset; some of what was written has not been sent, the rest
 * not acknowledged. */
static void prepare_close(struct view *v)
{
        read_bytes(v, 0, 0, 100000);
        settle(v);
        write_bytes(v, 0, 0, 2000);
        prepare_tail(v);
}

static void shuts_down(struct view *v)
{
        struct stack *s = &v->s[0];

        s->now = v->w->now;
        stack_begin(s->st, v->w->conn[0][0]);
        tcp_shutdown_send(&s->tcp, conn(v, 0, 0), v->w->now);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

/* The answer to our FIN, and the peer's own. */
static void prepare_last(struct view *v)
{
        prepare_close(v);
        shuts_down(v);
        stack_run(&v->s[1], v->w->now);
        read_bytes(v, 1, 0, 100000);
        v->s[1].now = v->w->now;
        stack_begin(v->s[1].st, v->w->conn[1][0]);
        tcp_shutdown_send(&v->s[1].tcp, conn(v, 1, 0), v->w->now);
        stack_end(v->s[1].st);
        stack_flush(&v->s[1], v->w->now);
        stack_flush_acks(&v->s[1], v->w->now);
}

static void opens(struct view *v)
{
        open_from(v, 0, 41000);
}

static void prepare_syn(struct view *v)
{
        open_from(v, 1, 41001);
}

/* And its headers are kept. */
static void prepare_saved_syn(struct view *v)
{
        struct tcp_opts o;

        tcp_opts_default(&o);
        o.save_syn = 1;
        tcp_listen_opts(&v->s[0].tcp, v->w->listener[0], &o);
        prepare_syn(v);
}

static void prepare_timers(struct view *v)
{
        write_bytes(v, 0, 0, 1000);
        write_bytes(v, 0, 1, 1000);
        v->w->now += 300 * NS_PER_MS;
}

/* ---- the survivors ---- */

/* Time goes on until everything written has been read, or clearly never will be. */
static void finish(struct view *v, int n)
{
        for (int round = 0; round < 400; round++) {
                nstime next;
                settle(v);
                read_bytes(v, 0, n, 100000);
                read_bytes(v, 1, n, 100000);
                settle(v);
                if (conn(v, 0, n)->snd_una == conn(v, 0, n)->snd_end &&
                    conn(v, 1, n)->snd_una == conn(v, 1, n)->snd_end &&
                    conn(v, 0, n)->rcv_unread == 0 && conn(v, 1, n)->rcv_unread == 0)
                        return;
                next = nstime_min(stack_deadline(&v->s[0]), stack_deadline(&v->s[1]));
                if (next == NSTIME_NEVER)
                        break;
                v->w->now = MAX(v->w->now + 1, next);
        }
        for (int i = 0; i < 2; i++) {
                const struct tcp_conn *tc = conn(v, i, n);
                print_error(
                        "side %d: %s una %u nxt %u end %u, unread %u, rcv_nxt %u, deadline %lld\n",
                        i, tcp_state_name(tc->state), tc->snd_una - tc->iss, tc->snd_nxt - tc->iss,
                        tc->snd_end - tc->iss, tc->rcv_unread, tc->rcv_nxt - tc->irs,
                        (long long)tcp_deadline(tc));
        }
        fail_msg("connection %d did not go on", n);
}

/* Whoever watches is told what is so. */
static void tells_the_truth(const struct tcp_conn *tc)
{
        uint32_t marks = tcp_watch_marks(tc);

        if (!(tc->watch.holds & TCP_WATCH_ON) || tc->watch.acked == 0)
                return; /* none, or hardly begun */
        assert_int_equal(!!(marks & TCP_WATCH_ACKED), tcp_stream_acked(tc) >= tc->watch.acked);
        assert_int_equal(!!(marks & TCP_WATCH_UNSENT), tcp_unsent(tc) < tc->watch.unsent_below);
}

static void goes_on(struct view *v, int n)
{
        assert_int_equal(conn(v, 0, n)->state, TCPS_ESTABLISHED);
        write_bytes(v, 0, n, 2000);
        write_bytes(v, 1, n, 2000);
        finish(v, n);
        tells_the_truth(conn(v, 0, n));
        tcp_conn_check(&v->s[0].tcp, conn(v, 0, n));
}

static void new_one_works(struct view *v)
{
        uint32_t c = open_from(v, 0, 42000);

        for (int round = 0; round < 40 && tcp_conn_at(&v->s[0].tcp, c)->state != TCPS_ESTABLISHED;
             round++) {
                settle(v);
                v->w->now += 100 * NS_PER_MS;
        }
        assert_int_equal(tcp_conn_at(&v->s[0].tcp, c)->state, TCPS_ESTABLISHED);
}

static bool both_ended(struct view *v)
{
        const struct tcp_conn *tc = conn(v, 0, 0), *peer = conn(v, 1, 0);

        return peer->flags & TCF_FIN_RCVD && peer->rcv_unread == 0 &&
               tc->state == (peer->state == TCPS_CLOSE_WAIT ? TCPS_FIN_WAIT_2 : TCPS_TIME_WAIT);
}

/* The first connection, that was being closed: the peer has every byte, and then the end. */
static void ends_well(struct view *v)
{
        struct tcp_conn *peer = conn(v, 1, 0);

        if (conn(v, 0, 0)->state == TCPS_ESTABLISHED &&
            !(conn(v, 0, 0)->flags & TCF_CLOSED_BY_APP)) {
                goes_on(v, 0); /* the call had hardly begun */
                return;
        }
        for (int round = 0; round < 400 && !both_ended(v); round++) {
                nstime next;
                settle(v);
                assert_int_equal(peer->err, 0);
                read_bytes(v, 1, 0, 100000);
                settle(v);
                next = nstime_min(stack_deadline(&v->s[0]), stack_deadline(&v->s[1]));
                v->w->now = next == NSTIME_NEVER ? v->w->now + 1 : MAX(v->w->now + 1, next);
        }
        assert_true(both_ended(v) && peer->err == 0);
        assert_int_equal(copied_seq(peer), v->w->end);
        assert_int_equal(conn(v, 0, 0)->err, 0);
}

/* Nothing that was written or received before is missing, and nothing was read that nobody
 * asked for. */
static void lost_nothing(struct view *v)
{
        const struct tcp_conn *tc = conn(v, 0, 0);

        assert_true(tc->live);
        assert_true(seq_geq(tc->snd_end, v->w->end));
        assert_true(seq_geq(tc->rcv_nxt, v->w->rcvd));
        assert_true(seq_geq(copied_seq(tc), v->w->read) && seq_leq(copied_seq(tc), v->w->aimed));
}

enum after { GOES_ON, CLOSES, RESETS }; /* what becomes of the first connection */

/* A copy of the dead process's memory, as its successor finds it. */
static void succeed(const struct world *dead, struct world *copy, enum after after)
{
        struct view *v;

        memcpy(copy, dead, dead->bytes);
        v = view_of(copy);
        v->s[0].now = copy->now;
        stack_recover(&v->s[0], copy->now);
        assert_int_equal(v->s[0].st->gen & 1, 0);
        for (uint32_t i = 1; i < v->s[0].tcp.sh->conns.fresh; i++)
                if (tcp_conn_at(&v->s[0].tcp, i)->live)
                        tcp_conn_check(&v->s[0].tcp, tcp_conn_at(&v->s[0].tcp, i));
        tcp_group_check(&v->s[0].tcp, 1);
        loans_end(v);
        if (after == GOES_ON) {
                lost_nothing(v);
                goes_on(v, 0);
        } else if (after == CLOSES) {
                ends_well(v);
        }
        goes_on(v, 1);
        new_one_works(v);
        tcp_group_check(&v->s[0].tcp, 1);
        view_free(v);
}

/* ---- death ---- */

static void child(struct world *w, void (*act)(struct view *))
{
        struct view *v = view_of(w);

        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        act(v);
        _exit(0);
}

/* Whether anything but payload differs. Payload is not looked at until it is committed, and copying
 * it is one instruction a byte to the debugger. */
static bool changed(const struct world *a, const struct world *b)
{
        const struct stack_state *st = at((struct world *)(uintptr_t)a, a->state[0]);
        size_t records = st->rxframes_off, ring = offsetof(struct shm_region, frames);

        return memcmp((const char *)a + a->state[0], (const char *)b + b->state[0], records) != 0 ||
               memcmp((const char *)a + a->region[0], (const char *)b + b->region[0], ring) != 0;
}

static void dies_everywhere(void (*prepare)(struct view *), void (*act)(struct view *),
                            enum after after)
{
        struct world *w = scene(), *copy, *last;
        struct view *v = view_of(w);
        unsigned long steps = 0, changes = 0;
        int status;
        pid_t pid;

        if (prepare != NULL)
                prepare(v);
        w->end = conn(v, 0, 0)->snd_end;
        w->rcvd = conn(v, 0, 0)->rcv_nxt;
        w->read = copied_seq(conn(v, 0, 0));
        if (act == gives_back)
                w->read -= RETURNED;
        w->aimed = act == reads_all || act == reads_some || act == lends || act == lends_copies
                           ? w->rcvd
                           : copied_seq(conn(v, 0, 0));
        view_free(v);
        copy = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        last = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(copy != MAP_FAILED && last != MAP_FAILED);
        memcpy(last, w, w->bytes);
        pid = fork();
        if (pid == 0)
                child(w, act);
        waitpid(pid, &status, 0);
        while (WIFSTOPPED(status)) {
                if (changed(last, w)) {
                        changes++;
                        memcpy(last, w, w->bytes);
                        succeed(w, copy, after);
                }
                steps++;
                if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0)
                        fail_msg("ptrace: %s", strerror(errno));
                waitpid(pid, &status, 0);
        }
        print_message("%lu instructions, %lu deaths survived\n", steps, changes);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_true(changes > 3);
        munmap(copy, w->bytes);
        munmap(last, w->bytes);
        munmap(w, w->bytes);
}

static void a_small_write_may_end_anywhere(void **state)
{
        dies_everywhere(NULL, writes_little, GOES_ON);
}

static void a_large_write_may_end_anywhere(void **state)
{
        dies_everywhere(NULL, writes_much, GOES_ON);
}

static void a_write_to_the_tail_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_tail, appends, GOES_ON);
}

static void a_read_may_end_anywhere(void **state)
{
        dies_everywhere(NULL, reads_all, GOES_ON);
}

static void a_small_read_may_end_anywhere(void **state)
{
        dies_everywhere(NULL, reads_some, GOES_ON);
}

static void giving_back_may_end_anywhere(void **state)
{
        dies_everywhere(reads_some, gives_back, GOES_ON);
        dies_everywhere(reads_them_all, gives_back, GOES_ON);
}

static void lending_may_end_anywhere(void **state)
{
        dies_everywhere(NULL, lends, GOES_ON);
        dies_everywhere(NULL, lends_copies, GOES_ON);
}

static void returning_may_end_anywhere(void **state)
{
        dies_everywhere(lends, returns, GOES_ON);
        dies_everywhere(lends_copies, returns, GOES_ON);
}

static void a_turn_with_input_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_input, runs_with_input, GOES_ON);
}

static void a_turn_with_acks_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_acks, runs_with_input, GOES_ON);
}

static void a_turn_with_a_gap_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_gap, runs_with_input, GOES_ON);
}

static void a_turn_that_fills_a_gap_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_filling, runs_with_input, GOES_ON);
}

static void a_turn_with_a_loss_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_sack, runs_with_input, GOES_ON);
}

static void cutting_segments_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_cut, cuts, GOES_ON);
}

static void changing_the_window_may_end_anywhere(void **state)
{
        dies_everywhere(NULL, changes_window, GOES_ON);
        dies_everywhere(changes_window, changes_window, GOES_ON);
}

static void a_grant_may_end_anywhere(void **state)
{
        dies_everywhere(changes_window, grants, GOES_ON);
}

static void setting_a_watch_may_end_anywhere(void **state)
{
        dies_everywhere(NULL, watches, GOES_ON);
        dies_everywhere(watches, watches, GOES_ON);
}

static void a_turn_with_acks_that_are_watched_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_watched_acks, runs_with_input, GOES_ON);
}

static void times_of_sending_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_timed, asks_for_times, GOES_ON);
        dies_everywhere(prepare_timed_acks, runs_with_input, GOES_ON);
        dies_everywhere(prepare_told_times, takes_times, GOES_ON);
        dies_everywhere(prepare_told_times, closes, RESETS);
}

static void writing_in_a_group_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_group, writes_much, GOES_ON);
}

static void entering_a_group_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_group_limits, enters_group, GOES_ON);
}

static void leaving_a_group_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_group, leaves_group, GOES_ON);
        dies_everywhere(prepare_group_and_close, closes, CLOSES);
}

static void changing_a_group_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_group, widens_group, GOES_ON);
        dies_everywhere(prepare_group, prepare_group_limits, GOES_ON);
}

static void a_share_that_changes_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_group, reads_all, GOES_ON);
        dies_everywhere(prepare_group_and_credit, grants, GOES_ON);
}

static void a_turn_of_a_group_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_group_and_input, runs_with_input, GOES_ON);
        dies_everywhere(prepare_group_and_syn, runs_with_input, GOES_ON);
}

static void a_plan_may_end_anywhere(void **state)
{
        dies_everywhere(NULL, plans, GOES_ON);
        dies_everywhere(plans, plans, GOES_ON);
}

static void a_turn_with_acks_by_plan_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_planned_acks, runs_with_input, GOES_ON);
}

static void a_shutdown_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_close, shuts_down, CLOSES);
}

static void a_close_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_close, closes, CLOSES);
}

static void a_close_with_data_unread_may_end_anywhere(void **state)
{
        dies_everywhere(NULL, closes, RESETS);
}

static void a_turn_with_the_last_segments_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_last, runs_with_input, CLOSES);
}

static void a_connect_may_end_anywhere(void **state)
{
        dies_everywhere(NULL, opens, GOES_ON);
}

static void a_turn_with_a_syn_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_syn, runs_with_input, GOES_ON);
        dies_everywhere(prepare_saved_syn, runs_with_input, GOES_ON);
}

static void a_turn_of_timers_may_end_anywhere(void **state)
{
        dies_everywhere(prepare_timers, runs_with_input, GOES_ON);
}

/* ---- who waits to send hears of it from whichever process looks ---- */

static unsigned told;

static void tells(struct stack *s, uint32_t sock, uint32_t events)
{
        told += sock == 0 && events == TCP_EV_WRITABLE;
}

static void room_for_one_process_is_seen_by_another(void **state)
{
        static const struct buf none = {0, 0, 0};
        static const uint8_t bytes[28];
        struct world *w = world_make();
        struct view *waits = view_of(w), *looks = view_of(w);
        struct stack *s = &waits->s[0];

        told = 0;
        looks->s[0].event = tells;
        while (stack_chan_room(s, CHAN))
                stack_post_raw(s, &s->chan[CHAN], bytes, sizeof bytes, &none);
        stack_run(&looks->s[0], w->now);
        assert_int_equal(told, 0);
        stack_run(&looks->s[1], w->now);
        assert_true(stack_pending(&looks->s[0], 0));
        stack_run(&looks->s[0], w->now);
        assert_int_equal(told, 1);
        stack_run(&looks->s[0], w->now);
        assert_int_equal(told, 1);
        view_free(waits);
        view_free(looks);
        munmap(w, w->bytes);
}

/* The peer has as many frames as it may, with the queue empty: whoever waits sleeps until one
 * comes back. */
static void who_has_lent_all_it_may_sleeps_until_a_frame_returns(void **state)
{
        struct world *w = world_make();
        struct view *v = view_of(w);
        struct stack *s = &v->s[0];
        uint32_t id = frame_alloc(s->frames, FRAME_REGION_TX(CHAN), FRAME_SMALL, 0),
                 num = frame_id_num(id);

        told = 0;
        s->event = tells;
        stack_run(s, w->now);
        for (unsigned i = 0; i < STACK_LOANS_MAX; i++)
                frame_lend(s->frames, id);
        assert_false(stack_chan_room(s, CHAN));
        assert_false(stack_pending(s, 0));
        stack_run(s, w->now);
        assert_int_equal(told, 0);
        assert_true(atomic_load(&v->chan[0].mine->ctrl.want_room));
        v->s[1].chan[CHAN].ops->release(v->s[1].chan[CHAN].ch, &num, 1);
        assert_true(stack_pending(s, 0));
        stack_run(s, w->now);
        assert_int_equal(told, 1);
        assert_true(stack_chan_room(s, CHAN));
        view_free(v);
        munmap(w, w->bytes);
}

static void a_frame_for_one_process_is_freed_by_another(void **state)
{
        struct world *w = world_make();
        struct view *waits = view_of(w), *looks = view_of(w);
        uint32_t id, last = 0;

        told = 0;
        looks->s[0].event = tells;
        while ((id = frame_alloc(waits->s[0].frames, FRAME_REGION_TX(CHAN), FRAME_LARGE, 0)) != 0)
                last = id;
        stack_wait_frame(&waits->s[0], CHAN, FRAME_LARGE);
        assert_true(atomic_load(&waits->chan[0].mine->ctrl.want_room));
        stack_want_returns(&looks->s[0], false); /* a leader that wakes */
        assert_true(atomic_load(&waits->chan[0].mine->ctrl.want_room));
        frame_drop(looks->s[0].frames, last);
        assert_int_equal(told, 1);
        assert_false(atomic_load(&waits->chan[0].mine->ctrl.want_room));
        view_free(waits);
        view_free(looks);
        munmap(w, w->bytes);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_small_write_may_end_anywhere),
                cmocka_unit_test(a_large_write_may_end_anywhere),
                cmocka_unit_test(a_write_to_the_tail_may_end_anywhere),
                cmocka_unit_test(a_read_may_end_anywhere),
                cmocka_unit_test(a_small_read_may_end_anywhere),
                cmocka_unit_test(giving_back_may_end_anywhere),
                cmocka_unit_test(lending_may_end_anywhere),
                cmocka_unit_test(returning_may_end_anywhere),
                cmocka_unit_test(a_turn_with_input_may_end_anywhere),
                cmocka_unit_test(a_turn_with_acks_may_end_anywhere),
                cmocka_unit_test(a_turn_with_a_gap_may_end_anywhere),
                cmocka_unit_test(a_turn_that_fills_a_gap_may_end_anywhere),
                cmocka_unit_test(a_turn_with_a_loss_may_end_anywhere),
                cmocka_unit_test(cutting_segments_may_end_anywhere),
                cmocka_unit_test(changing_the_window_may_end_anywhere),
                cmocka_unit_test(a_grant_may_end_anywhere),
                cmocka_unit_test(setting_a_watch_may_end_anywhere),
                cmocka_unit_test(a_turn_with_acks_that_are_watched_may_end_anywhere),
                cmocka_unit_test(times_of_sending_may_end_anywhere),
                cmocka_unit_test(entering_a_group_may_end_anywhere),
                cmocka_unit_test(writing_in_a_group_may_end_anywhere),
                cmocka_unit_test(leaving_a_group_may_end_anywhere),
                cmocka_unit_test(changing_a_group_may_end_anywhere),
                cmocka_unit_test(a_share_that_changes_may_end_anywhere),
                cmocka_unit_test(a_turn_of_a_group_may_end_anywhere),
                cmocka_unit_test(a_plan_may_end_anywhere),
                cmocka_unit_test(a_turn_with_acks_by_plan_may_end_anywhere),
                cmocka_unit_test(a_shutdown_may_end_anywhere),
                cmocka_unit_test(a_close_may_end_anywhere),
                cmocka_unit_test(a_close_with_data_unread_may_end_anywhere),
                cmocka_unit_test(a_turn_with_the_last_segments_may_end_anywhere),
                cmocka_unit_test(a_connect_may_end_anywhere),
                cmocka_unit_test(a_turn_with_a_syn_may_end_anywhere),
                cmocka_unit_test(a_turn_of_timers_may_end_anywhere),
                cmocka_unit_test(room_for_one_process_is_seen_by_another),
                cmocka_unit_test(who_has_lent_all_it_may_sleeps_until_a_frame_returns),
                cmocka_unit_test(a_frame_for_one_process_is_freed_by_another),
        };

        make_streams();
        cmocka_set_test_filter(getenv("UNET_TEST_FILTER"));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
