/* Window scaling: RFC 7323 §2. */
#include "tests/tcp/scenarios.h"

/* RFC 7323 §2.2: the window of the SYN-ACK is as it stands; those that follow are scaled. */
static void the_window_of_a_syn_is_not_scaled(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 0, .ack = 1, .flags = SA, .mss = 1000, .wscale = 3, .wnd = 1000);
        expect_sent(s, .seq = 1, .ack = 1);
        assert_int_equal(s->tc->snd_wnd, 1000);
        peer_sends(s, .seq = 1, .ack = 1, .wnd = 1000);
        assert_int_equal(s->tc->snd_wnd, 8000);
}

/* MUST-1: a window of more than 32,767 is one. */
static void a_window_has_sixteen_bits(void **state)
{
        struct scene *s = *state;

        s->tc->cwnd = 1 << 20;
        app_writes(s, 50000);
        for (uint32_t i = 0; i < 40; i++)
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000);
        expect_silence(s);
        app_aborts(s);
        forget_sent(s);
}

/* REC-1, RFC 7323 §2.3: the largest there is, nearly 2^30, and in it more than 16 bits
 * could say. */
static void a_scaled_window_has_thirty_bits(void **state)
{
        struct scene *s = *state;

        assert_int_equal(s->tc->snd_wnd, 65535u << 14);
        s->tc->cwnd = 1 << 20;
        app_writes(s, 100000);
        for (uint32_t i = 0; i < 100; i++)
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 100001, .zero_wnd = true);
        app_writes(s, 1000);
        expect_silence(s); /* RFC 7323 §2.4: all of it taken back */
        peer_sends(s, .seq = 1, .ack = 100001);
        expect_sent(s, .seq = 100001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 101001);
}

/* RFC 7323 §2.2: the SYN-ACK of a simultaneous open carries a window that is not scaled, as each
 * SYN does. */
static void window_of_a_crossing_syn_ack_is_not_scaled(void **state)
{
        struct scene *s = *state;

        s->wnd = 1000;
        peer_sends(s, .seq = 0, .flags = S);
        forget_sent(s);
        peer_sends(s, .seq = 0, .ack = 1, .flags = SA);
        expect_state(s, TCPS_ESTABLISHED);
        assert_int_equal(s->tc->snd_wscale, 3);
        assert_int_equal(s->tc->snd_wnd, 1000);
        assert_int_equal(s->tc->max_wnd, 1000);
        peer_sends(s, .seq = 1, .ack = 1);
        assert_int_equal(s->tc->snd_wnd, 8000);
        forget_sent(s);
}

/* RFC 7323 §2.2, and the scales that Linux has for such buffers. */
static void a_buffer_that_was_set_is_scaled_no_more_than_it_needs(void **state)
{
        static const struct {
                uint32_t rcvbuf;
                uint8_t wscale;
        } want[] = {{3000, 0}, {65535, 0}, {65536, 1}, {300000, 3}, {6 << 20, 7}, {0, 7}};
        struct scene *s = *state;

        for (uint32_t i = 0; i < ARRAY_LEN(want); i++) {
                struct tcp_tuple tuple = s->tuple;
                int conn;
                s->opts.rcvbuf = want[i].rcvbuf;
                s->opts.no_wscale = 0;
                tuple.lport = (uint16_t)(5000 + i);
                conn = tcp_connect(&s->rig->t, &tuple, &s->link, &s->opts, s->now);
                assert_true(conn > 0);
                advance_ms(s, 0);
                expect_sent(s, .flags = S);
                assert_int_equal(s->last.wscale, want[i].wscale);
                tcp_close(&s->rig->t, tcp_conn_at(&s->rig->t, (uint32_t)conn), s->now);
        }
        forget_sent(s);
}

/* ... whatever SO_RCVBUF is set to before the answer comes. */
static void the_scale_is_what_our_syn_said(void **state)
{
        struct scene *s = *state;
        struct tcp_opts o = s->tc->opts;

        assert_int_equal(s->last.wscale, 7);
        o.rcvbuf = 65536;
        tcp_set_opts(&s->rig->t, s->tc, &o, s->now);
        peer_sends(s, .seq = 0, .ack = 1, .flags = SA);
        assert_int_equal(s->tc->rcv_wscale, 7);
        forget_sent(s);
}

int main(void)
{
        static const struct scene_setup scaled = {.wscale = 3, .wnd = 1000},
                                        wide = {.wnd = 40000, .sndbuf = 100000},
                                        widest = {.wnd = 65535, .wscale = 14, .sndbuf = 200000},
                                        all_options = {.wscale = 3, .sack = true, .ts = true};
        const struct CMUnitTest tests[] = {
                scenario(the_window_of_a_syn_is_not_scaled, syn_sent, &scaled),
                scenario(a_window_has_sixteen_bits, established, &wide),
                scenario(a_scaled_window_has_thirty_bits, established, &widest),
                scenario(window_of_a_crossing_syn_ack_is_not_scaled, syn_sent, &all_options),
                scenario(a_buffer_that_was_set_is_scaled_no_more_than_it_needs, scene_blank, NULL),
                scenario(the_scale_is_what_our_syn_said, syn_sent, &all_options),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
