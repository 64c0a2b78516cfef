/* Sending: segments, the peer's window, buffers. */
#include "tests/tcp/scenarios.h"

/* A congestion window of 250 segments is written and, after a round trip, acknowledged. */
static void fills_the_window(struct scene *s, uint32_t round_trip_ms)
{
        uint32_t at = s->tc->snd_nxt - s->tc->iss;

        s->tc->cwnd = 250 * 1000;
        s->tc->snd_wnd = 1 << 20;
        app_writes(s, 250 * 1000);
        for (uint32_t i = 0; i < 250; i++)
                expect_sent(s, .seq = at + 1000 * i, .len = 1000);
        if (round_trip_ms != 0)
                advance_ms(s, round_trip_ms);
        peer_sends(s, .seq = 1, .ack = at + 250 * 1000);
        assert_int_equal(s->tc->cwnd, 500 * 1000);
}

static nstime busy(struct scene *s)
{
        struct tcp_report r;

        tcp_get_report(&s->rig->t, s->tc, &r, s->now);
        return r.busy;
}

static void data_is_cut_to_the_mss(void **state)
{
        struct scene *s = *state;

        app_writes(s, 2500);
        expect_sent(s, .seq = 1, .len = 1000, .ack = 1);
        expect_sent(s, .seq = 1001, .len = 1000, .ack = 1);
        expect_sent(s, .seq = 2001, .len = 500, .ack = 1);
        assert_true(s->last.flags & TCP_PSH); /* MUST-61 */
        peer_sends(s, .seq = 1, .ack = 2501);
        assert_int_equal(s->tc->rtx_at, NSTIME_NEVER);
}

/* Twice the window finds room, where the way is long; where it is short, no more than fits into
 * a cache. */
static void send_buffer_grows_with_the_window(void **state)
{
        struct scene *s = *state;

        fills_the_window(s, 0);
        assert_int_equal(s->tc->snd_limit, 512 << 10);
        s->tc->srtt = 2 * NS_PER_MS;
        fills_the_window(s, 2);
        assert_int_equal(s->tc->snd_limit, 1000 * 1000);
}

static void send_buffer_of_a_long_way_is_large(void **state)
{
        struct scene *s = *state;

        s->tc->min_rtt = s->tc->srtt = NS_PER_MS;
        fills_the_window(s, 1);
        assert_int_equal(s->tc->snd_limit, 1000 * 1000);
}

/* 10 ms at 2 Gb/s, and 2 ms more for what is late: but no more than that. */
static void send_buffer_has_room_for_what_is_late(void **state)
{
        struct scene *s = *state;

        s->tc->min_rtt = s->tc->srtt = 10 * NS_PER_MS;
        s->tc->snd_wnd = 4 << 20;
        for (uint32_t bytes = 200 * 1000, at = 1; s->tc->cwnd < 3200 * 1000;
             at += bytes, bytes *= 2) {
                s->tc->cwnd = bytes;
                app_writes(s, (int)bytes);
                advance_ms(s, 10);
                peer_sends(s, .seq = 1, .ack = at + bytes);
                s->tc->snd_wnd = 4 << 20;
                forget_sent(s);
        }
        assert_int_equal(s->tc->snd_limit, 6 << 20);
}

static void peer_window_is_respected(void **state)
{
        struct scene *s = *state;

        app_writes(s, 4000);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_sent(s, .seq = 1001, .len = 1000);
        expect_silence(s); /* 500 are less than a segment and than half the window */
        assert_int_equal(s->tc->limit, TCP_LIM_RWND);
        peer_sends(s, .seq = 1, .ack = 1001);
        expect_sent(s, .seq = 2001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 3001, .wnd = 1250);
        expect_sent(s, .seq = 3001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 4001);
}

/* A window that never takes a segment is used by halves (RFC 9293 §3.8.6.2.1 (3)). */
static void small_window_is_used_in_pieces(void **state)
{
        struct scene *s = *state;

        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 400);
        peer_sends(s, .seq = 1, .ack = 401, .wnd = 150);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 401, .wnd = 250);
        expect_sent(s, .seq = 401, .len = 250);
        peer_sends(s, .seq = 1, .ack = 651, .wnd = 400);
        expect_sent(s, .seq = 651, .len = 350);
        peer_sends(s, .seq = 1, .ack = 1001);
}

/* tcpi_busy_time: as long as something is sent and not acknowledged, whoever waits for whom. */
static void time_in_flight_is_busy(void **state)
{
        struct scene *s = *state;

        advance_ms(s, 50);
        assert_int_equal(busy(s), 0);
        app_writes(s, 2000);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_sent(s, .seq = 1001, .len = 1000);
        advance_ms(s, 60);
        assert_int_equal(busy(s), 60 * NS_PER_MS);
        peer_sends(s, .seq = 1, .ack = 1001);
        advance_ms(s, 40);
        peer_sends(s, .seq = 1, .ack = 2001);
        assert_int_equal(busy(s), 100 * NS_PER_MS);
        advance_ms(s, 70);
        assert_int_equal(busy(s), 100 * NS_PER_MS);
}

/* RFC 1191: what is queued is cut to the new size. */
static void smaller_mtu_recuts_segments(void **state)
{
        struct scene *s = *state;

        app_writes(s, 2000);
        forget_sent(s);
        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS + 1, EMSGSIZE, false, 640, s->now);
        advance_ms(s, 250);
        expect_sent(s, .seq = 1, .len = 600);
        peer_sends(s, .seq = 1, .ack = 601);
        expect_sent(s, .seq = 601, .len = 400);
        expect_sent(s, .seq = 1001, .len = 600);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 2001);
        forget_sent(s);
}

int main(void)
{
        static const struct scene_setup tiny_wnd = {.wnd = 400}, small_wnd = {.wnd = 2500},
                                        longest_mss = {.mss = 60000, .wnd = 65535};
        const struct CMUnitTest tests[] = {
                scenario(data_is_cut_to_the_mss, established, NULL),
                scenario(time_in_flight_is_busy, established, NULL),
                scenario(send_buffer_grows_with_the_window, established, NULL),
                scenario(send_buffer_of_a_long_way_is_large, established, NULL),
                scenario(send_buffer_has_room_for_what_is_late, established, &longest_mss),
                scenario(peer_window_is_respected, established, &small_wnd),
                scenario(small_window_is_used_in_pieces, established, &tiny_wnd),
                scenario(smaller_mtu_recuts_segments, established, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
