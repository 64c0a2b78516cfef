/* Two whole stacks: single scenarios. What a bad link and odd applications do to them is
 * in seeds.c. */
#include <errno.h>
#include <unistd.h>

#include "tcp/tcp_life.h"
#include "tcp/tcp_saved_syn.h"
#include "tests/sim/pair.h"
#include "tests/udp/reading.h"
#include "tests/unit.h"

/* Byte i of a direction's stream: cheap, and different at every distance that a bug is likely to
 * shift by. */
static uint8_t stream_byte(int side, size_t i)
{
        return (uint8_t)(i * 167 + i / 251 + (i >> 16) * 13 + (size_t)side * 91);
}

struct flow {
        size_t sent, got, total;
        bool eof, shut;
};

static void push(struct pair *p, int side, uint32_t conn, struct flow *f, struct prng_fast *rnd)
{
        static uint8_t data[200000];
        size_t n = 1 + prng_fast_below(rnd, prng_fast_chance(rnd, 1, 2) ? 300 : sizeof data - 1);
        int r;

        n = MIN(n, f->total - f->sent);

        if (f->sent == f->total) {
                if (!f->shut) {
                        tcp_shutdown_send(&p->side[side].s.tcp, pair_conn(p, side, conn), p->now);
                        stack_flush(&p->side[side].s, p->now);
                        f->shut = true;
                }
                return;
        }
        for (size_t i = 0; i < n; i++)
                data[i] = stream_byte(side, f->sent + i);
        r = pair_write(p, side, conn, data, n);
        assert_true(r >= 0);
        f->sent += (size_t)r;
}

static void pull(struct pair *p, int side, uint32_t conn, struct flow *f, struct prng_fast *rnd)
{
        static uint8_t data[200000];
        int r = pair_read(p, side, conn, data, 1 + prng_fast_below(rnd, sizeof data - 1));

        if (r == -EAGAIN)
                return;
        assert_true(r >= 0);
        if (r == 0)
                f->eof = true;
        for (int i = 0; i < r; i++)
                if (data[i] != stream_byte(!side, f->got + (size_t)i))
                        fail_msg("byte %zu differs", f->got + (size_t)i);
        f->got += (size_t)r;
}

/* Both ways at once, random sizes, then both close. */
static void transfer(struct pair *p, uint64_t seed, size_t total)
{
        struct flow f[2] = {{.total = total}, {.total = total / 2}};
        struct prng_fast rnd;
        nstime start;
        uint32_t conn[2];

        prng_fast_init(&rnd, seed);
        pair_connect(p, 80, &conn[0], &conn[1]);
        start = p->now;
        while (!f[0].eof || !f[1].eof) {
                for (int i = 0; i < 2; i++) {
                        push(p, i, conn[i], &f[i], &rnd);
                        if (!f[i].eof)
                                pull(p, i, conn[i], &f[i], &rnd);
                }
                pair_settle(p);
                if (p->sim != NULL || prng_fast_chance(&rnd, 1, 8))
                        pair_wait(p, p->now + NS_PER_S);
                if (p->now - start > 3600 * NS_PER_S) {
                        pair_say(p);
                        fail_msg("seed %llu: stalled at %zu/%zu and %zu/%zu",
                                 (unsigned long long)seed, f[1].got, f[0].total, f[0].got,
                                 f[1].total);
                }
        }
        assert_int_equal(f[1].got, f[0].total);
        assert_int_equal(f[0].got, f[1].total);
        for (int i = 0; i < 2; i++) {
                tcp_set_sock(&p->side[i].s.tcp, conn[i], 0);
                tcp_close(&p->side[i].s.tcp, pair_conn(p, i, conn[i]), p->now);
                stack_flush(&p->side[i].s, p->now);
        }
        assert_int_equal(pair_end(p), 0);
}

static void bytes_arrive_over_shared_memory(void **state)
{
        for (uint64_t seed = 1; seed <= 20; seed++) {
                struct pair *p = pair_shm(seed);
                print_message("shm seed %llu\n", (unsigned long long)seed);
                transfer(p, seed, 3000000);
                pair_free(p);
        }
}

/* RFC 9293 §3.8.5, as sockets know it: announced, read out of line, and missing in the stream. */
static void urgent_byte_is_read_out_of_line(void **state)
{
        struct sim_params wire[2] = {{.mtu = 1500, .delay = NS_PER_MS, .csum = true},
                                     {.mtu = 1500, .csum = true}};
        struct pair *p = pair_sim(1, wire);
        uint32_t client, server;
        struct span span[2];
        uint8_t got[16];

        pair_connect(p, 80, &client, &server);
        assert_int_equal(pair_write(p, 0, client, (const uint8_t *)"ab", 2), 2);
        assert_int_equal(tcp_send_reserve(&p->side[0].s.tcp, pair_conn(p, 0, client), 1, span, 2),
                         1);
        span[0].ptr[0] = '!';
        tcp_send_commit(&p->side[0].s.tcp, pair_conn(p, 0, client), 1, false, true, p->now);
        stack_flush(&p->side[0].s, p->now);
        assert_int_equal(pair_write(p, 0, client, (const uint8_t *)"cd", 2), 2);
        while (pair_step(p, p->now + NS_PER_S))
                ;
        assert_true(p->side[1].events & TCP_EV_URGENT);
        assert_int_equal(tcp_recv_urgent(&p->side[1].s.tcp, pair_conn(p, 1, server), false), '!');
        /* A read stops at the mark. */
        assert_int_equal(pair_read(p, 1, server, got, sizeof got), 2);
        assert_memory_equal(got, "ab", 2);
        assert_true(tcp_at_mark(pair_conn(p, 1, server), 0));
        assert_int_equal(pair_read(p, 1, server, got, sizeof got), 2);
        assert_memory_equal(got, "cd", 2);
        assert_int_equal(pair_conn(p, 1, server)->slow, 0); /* it is over */
        pair_free(p);
}

/* The keeper says that the peer is gone: its connections end at once, and what it had on loan is
 * free again.
 */
static void a_channel_that_goes_down_resets_its_connections(void **state)
{
        struct pair *p = pair_shm(1);
        static uint8_t data[100000];
        uint32_t client, server;

        pair_connect(p, 80, &client, &server);
        assert_true(pair_write(p, 0, client, data, sizeof data) > 0);
        pair_settle(p);
        p->side[1].dead = true;
        assert_true(pair_write(p, 0, client, data, sizeof data) > 0);
        stack_chan_down(&p->side[0].s, PAIR_CHAN, p->now);
        assert_int_equal(pair_read(p, 0, client, data, sizeof data), -ECONNRESET);
        tcp_close(&p->side[0].s.tcp, pair_conn(p, 0, client), p->now);
        stack_flush(&p->side[0].s, p->now);
        assert_int_equal(pair_end(p), 0);
        assert_true(stack_chan_free(&p->side[0].s, PAIR_CHAN));
        pair_free(p);
}

static uint32_t udp_port(struct pair *p, int side, uint16_t port)
{
        struct udp *u = &p->side[side].s.udp;
        struct udp_opts o;
        uint32_t pcb;

        udp_opts_default(&o);
        pcb = udp_open(u, &o);
        assert_int_equal(udp_bind(u, pcb, pair_addr(side), port), 0);
        return pcb;
}

static void send_datagram(struct pair *p, uint32_t pcb, uint16_t port)
{
        struct stack *st = &p->side[0].s;
        struct udp_tuple to = {.laddr = pair_addr(0), .raddr = pair_addr(1), .rport = port};
        struct stack_payload pay = {.inl = (const uint8_t *)"last words", .len = 10};
        struct udp_out out;

        assert_int_equal(udp_output_prepare(&st->udp, pcb, &to, pay.len, false, 0, &out), 0);
        assert_int_equal(stack_send_udp(st, PAIR_CHAN, &out, &pay), 0);
}

/* A process sends and ends: what it sent has been sent, though nobody has looked yet when the
 * channel goes. */
static void what_was_sent_before_a_channel_went_arrives(void **state)
{
        struct pair *p = pair_shm(1);
        uint32_t from = udp_port(p, 0, 4000), to = udp_port(p, 1, 4001);
        struct udp *u = &p->side[1].s.udp;
        struct udp_msg m;

        for (int i = 0; i < 100; i++)
                send_datagram(p, from, 4001);
        p->side[0].dead = true;
        stack_chan_down(&p->side[1].s, PAIR_CHAN, p->now);
        for (int i = 0; i < 100; i++) {
                assert_int_equal(udp_recv_peek(u, to, 0, &m, 1), 1);
                assert_int_equal(m.len, 10);
                assert_memory_equal(m.span[0].ptr, "last words", 10);
                read_first(u, to, 1);
        }
        assert_int_equal(udp_recv_peek(u, to, 0, &m, 1), -EAGAIN);
        udp_close(u, to);
        udp_close(&p->side[0].s.udp, from);
        pair_free(p);
}

/* All send records belong to one connection when another closes: its FIN leaves as soon as they are
 * free again. */
static void a_fin_waits_for_a_record(void **state)
{
        struct sim_params wire[2] = {{.mtu = 576, .delay = NS_PER_MS, .csum = true},
                                     {.mtu = 576, .delay = NS_PER_MS, .csum = true}};
        struct pair_size few = pair_size_default;
        static uint8_t data[100000];
        uint32_t greedy, closing, server[2];
        struct pair *p;

        few.segs = 8;
        p = pair_new(1, wire, &few);
        pair_connect(p, 80, &greedy, &server[0]);
        pair_connect(p, 81, &closing, &server[1]);
        p->side[1].dead = true; /* nothing is acknowledged */
        while (pair_write(p, 0, greedy, data, sizeof data) > 0)
                ;
        tcp_shutdown_send(&p->side[0].s.tcp, pair_conn(p, 0, closing), p->now);
        stack_flush(&p->side[0].s, p->now);
        assert_int_equal(pair_conn(p, 0, closing)->snd_nxt, pair_conn(p, 0, closing)->snd_una);
        tcp_abort(&p->side[0].s.tcp, pair_conn(p, 0, greedy), p->now);
        p->side[1].dead = false;
        for (int i = 0; i < 20; i++)
                pair_wait(p, p->now + 10 * NS_PER_MS);
        assert_int_equal(pair_conn(p, 0, closing)->state, TCPS_FIN_WAIT_2);
        assert_int_equal(pair_conn(p, 1, server[1])->state, TCPS_CLOSE_WAIT);
        pair_free(p);
}

/* A window is closed and was probed with a byte that did not fit: the other direction goes on all
 * the same.
 */
static void a_closed_window_stops_one_direction_only(void **state)
{
        struct sim_params wire[2] = {{.mtu = 1500, .delay = NS_PER_MS, .csum = true},
                                     {.mtu = 1500, .delay = NS_PER_MS, .csum = true}};
        struct pair *p = pair_sim(1, wire);
        static uint8_t data[100000];
        struct tcp_tuple to = {pair_addr(0), pair_addr(1), 40000, 80, PAIR_CHAN};
        struct tcp_link link;
        uint32_t client, server;
        struct tcp_opts o;
        int listener;

        tcp_opts_default(&o);
        o.no_wscale = 1; /* so that the window closes to the byte */
        link = stack_tcp_link(&p->side[0].s, PAIR_CHAN);
        listener = tcp_listen(&p->side[1].s.tcp, pair_addr(1), 80, 1, &o);
        client = (uint32_t)tcp_connect(&p->side[0].s.tcp, &to, &link, &o, p->now);
        tcp_set_sock(&p->side[0].s.tcp, client, 1);
        stack_flush(&p->side[0].s, p->now);
        while ((server = tcp_accept(&p->side[1].s.tcp, (uint32_t)listener)) == 0)
                pair_wait(p, p->now + NS_PER_S);
        tcp_set_sock(&p->side[1].s.tcp, server, 1);
        for (int i = 0; i < 100; i++) { /* nobody reads on side 0 */
                pair_write(p, 1, server, data, sizeof data);
                pair_wait(p, p->now + 100 * NS_PER_MS);
        }
        assert_int_equal(pair_conn(p, 1, server)->snd_wnd, 0);
        assert_int_equal(pair_write(p, 0, client, data, 1000), 1000);
        for (nstime until = p->now + NS_PER_S; p->now < until;)
                pair_wait(p, until);
        assert_int_equal(pair_read(p, 1, server, data, sizeof data), 1000);
        assert_int_equal(pair_conn(p, 0, client)->snd_una, pair_conn(p, 0, client)->snd_nxt);
        pair_free(p);
}

#define MANY 40 /* more than a stack remembers ACKs for */

/* MANY connections from side 0 to one listener of side 1, whose ACKs wait for the end of a turn. */
static void connect_many(struct pair *p, const struct tcp_opts *o, uint32_t *client,
                         uint32_t *server)
{
        struct tcp_tuple to = {pair_addr(0), pair_addr(1), 40000, 80, PAIR_CHAN};
        struct tcp_link link = stack_tcp_link(&p->side[0].s, PAIR_CHAN);
        int listener = tcp_listen(&p->side[1].s.tcp, pair_addr(1), 80, 1, o);

        for (uint32_t i = 0; i < MANY; i++, to.lport++) {
                client[i] = (uint32_t)tcp_connect(&p->side[0].s.tcp, &to, &link, o, p->now);
                tcp_set_sock(&p->side[0].s.tcp, client[i], 1);
                stack_flush(&p->side[0].s, p->now);
                while ((server[i] = tcp_accept(&p->side[1].s.tcp, (uint32_t)listener)) == 0)
                        pair_wait(p, p->now + NS_PER_MS);
                tcp_set_sock(&p->side[1].s.tcp, server[i], 1);
                pair_conn(p, 0, client[i])->quick = pair_conn(p, 1, server[i])->quick = 0;
        }
}

/* However many connections have something to acknowledge: nothing waits for a timer. */
static void all_acks_go_at_the_end_of_a_turn(void **state)
{
        struct sim_params wire[2] = {{.mtu = 1500, .delay = NS_PER_US, .csum = true},
                                     {.mtu = 1500, .delay = NS_PER_US, .csum = true}};
        struct pair *p = pair_sim(1, wire);
        uint32_t client[MANY], server[MANY];
        struct tcp_opts o;

        tcp_opts_default(&o);
        connect_many(p, &o, client, server);
        for (uint32_t i = 0; i < MANY; i++)
                assert_int_equal(pair_write(p, 0, client[i], (const uint8_t *)"1", 1), 1);
        p->now += NS_PER_US;
        sim_advance(p->sim, p->now);
        while (stack_run(&p->side[1].s, p->now))
                ;
        stack_flush_acks(&p->side[1].s, p->now);
        p->now += NS_PER_US;
        sim_advance(p->sim, p->now);
        while (stack_run(&p->side[0].s, p->now))
                ;
        for (uint32_t i = 0; i < MANY; i++)
                assert_int_equal(pair_conn(p, 0, client[i])->snd_una,
                                 pair_conn(p, 0, client[i])->snd_nxt);
        pair_free(p);
}

/* A channel is full, and more connections than a stack remembers ACKs for have data for it and ACKs
 * to send: the turn ends, and all goes on when there is room. */
static void a_turn_ends_though_all_wait_for_a_full_channel(void **state)
{
        struct pair *p = pair_shm(1);
        struct stack *s = &p->side[0].s;
        uint32_t client[MANY], server[MANY];
        struct tcp_opts o;
        size_t sent = 0, got = 0;
        uint8_t data[4096];

        tcp_opts_default(&o);
        o.nodelay = 1;
        connect_many(p, &o, client, server);
        while (s->chan[PAIR_CHAN].ops->room(s->chan[PAIR_CHAN].ch) != 0)
                for (uint32_t i = 0; i < MANY; i++)
                        sent += (size_t)pair_write(p, 0, client[i], (const uint8_t *)"1", 1);
        for (uint32_t i = 0; i < MANY; i++) {
                sent += (size_t)pair_write(p, 0, client[i], (const uint8_t *)"1", 1);
                assert_int_equal(pair_write(p, 1, server[i], (const uint8_t *)"2", 1), 1);
        }
        alarm(10);
        stack_run(s, p->now);
        stack_flush_acks(s, p->now);
        alarm(0);
        pair_settle(p);
        for (uint32_t i = 0; i < MANY; i++) {
                got += (size_t)pair_read(p, 1, server[i], data, sizeof data);
                assert_int_equal(pair_read(p, 0, client[i], data, sizeof data), 1);
        }
        assert_int_equal(got, sent);
        pair_free(p);
}

/* Connections end while they and others stand in line to send: at the head, between and at the end.
 * The others send. */
static void who_ends_in_line_leaves_the_others_there(void **state)
{
        struct pair *p = pair_shm(1);
        struct stack *s = &p->side[0].s;
        uint32_t client[MANY], server[MANY];
        struct tcp_opts o;
        uint8_t byte;

        tcp_opts_default(&o);
        connect_many(p, &o, client, server);
        for (uint32_t i = 0; i < MANY; i++)
                s->tcp.touched(s->tcp.arg, client[i]);
        for (uint32_t i = 0; i < MANY; i++) {
                if (i % 3 == 1 && i != MANY - 1)
                        continue;
                tcp_set_sock(&s->tcp, client[i], 0);
                tcp_close(&s->tcp, pair_conn(p, 0, client[i]), p->now);
                conn_done(&s->tcp, pair_conn(p, 0, client[i]), ETIMEDOUT);
                assert_false(pair_conn(p, 0, client[i])->live);
        }
        for (uint32_t i = 1; i < MANY - 1; i += 3)
                assert_int_equal(pair_write(p, 0, client[i], (const uint8_t *)"1", 1), 1);
        pair_settle(p);
        for (uint32_t i = 0; i < MANY; i++) {
                int n = pair_read(p, 1, server[i], &byte, 1);
                assert_int_equal(n, i % 3 == 1 && i != MANY - 1 ? 1 : -EAGAIN);
        }
        pair_free(p);
}

/* A listener keeps SYNs, and its program does not ask for them. */
static void kept_syns_leave_frames_to_others(void **state)
{
        enum { FEW = 24, SYNS = 30 };
        static const struct pair_size size = {.tx = {{[FRAME_SMALL] = 64, [FRAME_LARGE] = 2}},
                                              .rx = {{[FRAME_SMALL] = FEW, [FRAME_LARGE] = 1}},
                                              .conns = 2 * SYNS,
                                              .segs = 128};
        struct pair *p = pair_new(1, NULL, &size);
        struct tcp *t = &p->side[1].s.tcp;
        uint8_t syn[TCP_SAVED_SYN_MOST];
        struct tcp_tuple to = {.laddr = pair_addr(0),
                               .raddr = pair_addr(1),
                               .lport = 40000,
                               .rport = 80,
                               .chan = PAIR_CHAN};
        struct tcp_link link = stack_tcp_link(&p->side[0].s, PAIR_CHAN);
        struct tcp_opts o;
        uint32_t kept = 0;
        int l;

        tcp_opts_default(&o);
        o.save_syn = 1;
        l = tcp_listen(t, pair_addr(1), 80, SYNS, &o);
        assert_true(l > 0);
        for (int i = 0; i < SYNS; i++, to.lport++) {
                uint32_t conn;

                assert_true(tcp_connect(&p->side[0].s.tcp, &to, &link, &o, p->now) > 0);
                stack_flush(&p->side[0].s, p->now);
                pair_settle(p);
                conn = tcp_accept(t, (uint32_t)l);
                assert_int_not_equal(conn, 0);
                kept += tcp_saved_syn(t, tcp_conn_at(t, conn), syn) != 0;
        }
        assert_in_range(kept, 1, FEW / 2);
        assert_true(frame_avail(t->frames, FRAME_REGION_PRIVATE, FRAME_SMALL) >= FEW / 2);
        pair_free(p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(kept_syns_leave_frames_to_others),
                cmocka_unit_test(bytes_arrive_over_shared_memory),
                cmocka_unit_test(urgent_byte_is_read_out_of_line),
                cmocka_unit_test(a_channel_that_goes_down_resets_its_connections),
                cmocka_unit_test(what_was_sent_before_a_channel_went_arrives),
                cmocka_unit_test(a_fin_waits_for_a_record),
                cmocka_unit_test(a_closed_window_stops_one_direction_only),
                cmocka_unit_test(all_acks_go_at_the_end_of_a_turn),
                cmocka_unit_test(a_turn_ends_though_all_wait_for_a_full_channel),
                cmocka_unit_test(who_ends_in_line_leaves_the_others_there),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
