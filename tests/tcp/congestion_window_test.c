/* The congestion window: RFC 5681, RFC 6928. tests/tcp/cc_test.c compares algorithms, as tables. */
#include "tests/tcp/scenarios.h"
#include "tcp/tcp_cc.h"

/* A round trip of 100 ms is known, so that nothing here is a timeout by the way. */
static void far_away(struct scene *s)
{
        s->tc->min_rtt = s->tc->srtt = 100 * NS_PER_MS;
        s->tc->rto = 400 * NS_PER_MS;
}

/* RFC 6928 §2: of long segments no more than 14,600 bytes. */
static void long_segments_are_fewer_at_first(void **state)
{
        struct scene *s = *state;

        assert_int_equal(s->tc->cwnd, 2 * 8960);
        s->tc->snd_mss = 4000;
        assert_int_equal(cc_initial_window(s->tc), 14600);
        s->tc->snd_mss = 1460;
        assert_int_equal(cc_initial_window(s->tc), 14600);
        s->tc->snd_mss = 8960;
}

/* RFC 5681 §4.1: after more than an RTO without sending the window is that of the beginning; not
 * after less. */
static void idleness_begins_anew(void **state)
{
        struct scene *s = *state;

        far_away(s);
        s->tc->cwnd = s->tc->ssthresh = 50000;
        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 1001);
        advance_ms(s, s->tc->rto / NS_PER_MS);
        app_writes(s, 1000);
        expect_sent(s, .seq = 1001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 2001);
        assert_int_equal(s->tc->cwnd, 50000);
        advance_ms(s, s->tc->rto / NS_PER_MS + 1);
        app_writes(s, 60000);
        for (uint32_t i = 0; i < 10; i++)
                expect_sent(s, .seq = 2001 + 1000 * i, .len = 1000);
        expect_silence(s);
        assert_int_equal(s->tc->cwnd, 10000);
        app_aborts(s);
        forget_sent(s);
}

/* RFC 5681 eq. 4: half of what is in flight, which may be much less than the window. */
static void what_is_in_flight_is_halved(void **state)
{
        struct scene *s = *state;

        far_away(s);
        s->tc->cwnd = 50000;
        app_writes(s, 8000);
        forget_sent(s);
        for (int i = 0; i < 3; i++)
                peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->tc->ssthresh, 4000);
        peer_sends(s, .seq = 1, .ack = 8001);
        assert_int_equal(s->tc->cwnd, 4000);
}

/* RFC 5681 §4.3, RFC 6675 §5: a window that lost three segments is reduced once; the
 * next, again. */
static void a_window_pays_once(void **state)
{
        struct scene *s = *state;

        far_away(s);
        app_writes(s, 10000);
        forget_sent(s);
        advance_ms(s, 100);
        /* 1, 4001 and 6001 are lost. */
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 4001}});
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->tc->ssthresh, 5000);
        assert_int_equal(s->tc->recover - s->tc->iss, 10001); /* HighData */
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{7001, 10001}, {1001, 4001}});
        forget_sent(s);
        advance_ms(s, 100);
        peer_sends(s, .seq = 1, .ack = 4001, .nsack = 1, .sack = {{7001, 10001}});
        forget_sent(s);
        assert_int_equal(s->tc->ca_state, CA_RECOVERY);
        assert_int_equal(s->tc->ssthresh, 5000);
        advance_ms(s, 100);
        peer_sends(s, .seq = 1, .ack = 10001);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
        assert_int_equal(s->tc->cwnd, 5000);
        app_writes(s, 5000);
        forget_sent(s);
        advance_ms(s, 100);
        peer_sends(s, .seq = 1, .ack = 10001, .nsack = 1, .sack = {{11001, 15001}});
        expect_sent(s, .seq = 10001, .len = 1000);
        assert_int_equal(s->tc->ssthresh, 2500);
        peer_sends(s, .seq = 1, .ack = 15001);
}

/* Linux's packet scripts: with IW10 nine segments grow the window to 18, each ACK by what
 * it acknowledges. */
static void slow_start_counts_the_most_in_flight(void **state)
{
        struct scene *s = *state;

        s->tc->srtt = s->tc->min_rtt = 100 * NS_PER_MS;
        s->tc->rto = 400 * NS_PER_MS;
        app_writes(s, 9000);
        forget_sent(s);
        advance_ms(s, 100);
        for (uint32_t n = 2; n <= 8; n += 2) {
                peer_sends(s, .seq = 1, .ack = 1 + 1000 * n);
                assert_int_equal(s->tc->cwnd, 1000 * (10 + n));
        }
        peer_sends(s, .seq = 1, .ack = 9001);
        assert_int_equal(s->tc->cwnd, 18000);
        app_writes(s, 1000); /* a round trip of which little is used: nothing */
        expect_sent(s, .seq = 9001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 10001);
        assert_int_equal(s->tc->cwnd, 18000);
}

/* RFC 6928: ten segments at first. */
static void initial_window_is_ten_segments(void **state)
{
        struct scene *s = *state;

        app_writes(s, 15000);
        for (uint32_t i = 0; i < 10; i++)
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000);
        expect_silence(s);
        assert_int_equal(s->tc->limit, TCP_LIM_CWND);
        peer_sends(s, .seq = 1, .ack = 2001);
        for (uint32_t i = 10; i < 14; i++) /* two left, two more by slow start */
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000);
        expect_silence(s);
        app_aborts(s);
        forget_sent(s);
}

int main(void)
{
        static const struct scene_setup reno = {.reno = true}, jumbo = {.reno = true, .mss = 8960},
                                        wide = {.reno = true, .sndbuf = 1 << 20},
                                        sack = {.sack = true, .reno = true};
        const struct CMUnitTest tests[] = {
                scenario(long_segments_are_fewer_at_first, established, &jumbo),
                scenario(idleness_begins_anew, established, &wide),
                scenario(what_is_in_flight_is_halved, established, &reno),
                scenario(a_window_pays_once, established, &sack),
                scenario(slow_start_counts_the_most_in_flight, established, &sack),
                scenario(initial_window_is_ten_segments, established, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
