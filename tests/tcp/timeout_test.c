/* The retransmission timeout: RFC 6298; RFC 9293 §3.8.1. */
#include "tests/tcp/scenarios.h"
#include "tcp/tcp_cc.h"

/* RFC 6298 §5: after RTO, backed off; RFC 5681: one segment; Karn. */
static void timeout_repeats_the_first_segment(void **state)
{
        struct scene *s = *state;

        app_writes(s, 3000);
        forget_sent(s);
        advance_ms(s, 199);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_silence(s);
        assert_int_equal(s->tc->cwnd, 1000);
        assert_int_equal(s->tc->ssthresh, 2000);
        advance_ms(s, 399);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 1001);
        expect_sent(s, .seq = 1001, .len = 1000);
        expect_sent(s, .seq = 2001, .len = 1000);
        assert_int_equal(s->tc->srtt, 1); /* of the handshake: no sample was taken */
        peer_sends(s, .seq = 1, .ack = 3001);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
}

/* MUST-20, R2. */
static void silence_ends_the_connection(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10);
        advance_ms(s, 100 * 1000);
        expect_state(s, TCPS_ESTABLISHED);
        advance_ms(s, 3000 * 1000);
        forget_sent(s);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ETIMEDOUT);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TIMEOUT], 1);
}

/* Where nothing is lost on the way a timeout says nothing about the path. */
static void lossless_timeout_keeps_the_window(void **state)
{
        struct scene *s = *state;
        uint32_t cwnd = s->tc->cwnd;

        app_writes(s, 3000);
        forget_sent(s);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_silence(s);
        advance_ms(s, 400);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->tc->cwnd, cwnd);
        peer_sends(s, .seq = 1, .ack = 3001);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
        assert_int_equal(s->tc->slow, 0);
}

/* RFC 6298 §3: every acknowledgement of something sent once is a sample, one in each round trip
 * at least. */
static void each_round_trip_is_measured(void **state)
{
        struct scene *s = *state;
        nstime before;

        for (uint32_t i = 0; i < 20; i++) {
                before = s->tc->srtt;
                app_writes(s, 3000);
                forget_sent(s);
                advance_ms(s, 50);
                peer_sends(s, .seq = 1, .ack = 1 + 3000 * (i + 1));
                assert_true(s->tc->srtt > before);
        }
        assert_in_range(s->tc->srtt, 45 * NS_PER_MS, 50 * NS_PER_MS);
}

/* RFC 7323 §4.1: what moves no SND.UNA is no sample, whatever it echoes. */
static void only_what_acknowledges_is_a_sample(void **state)
{
        struct scene *s = *state;
        nstime srtt = s->tc->srtt;

        app_writes(s, 3000);
        expect_sent(s, .seq = 1, .len = 1000);
        forget_sent(s);
        advance_ms(s, 50);
        peer_sends(s, .seq = 1, .ack = 1, .len = 10, .tsecr = s->last.tsval);
        peer_sends(s, .seq = 11, .ack = 1, .tsecr = s->last.tsval - 1000);
        assert_int_equal(s->tc->srtt, srtt);
        peer_sends(s, .seq = 11, .ack = 3001, .tsecr = s->last.tsval);
        assert_int_equal(s->tc->srtt, srtt + ((50 * NS_PER_MS - srtt) >> 3));
        app_reads(s, 10);
        forget_sent(s);
}

/* RFC 6298 §5.1 to 5.3: it runs from the first segment, begins anew when something is acknowledged,
 * and ends with the last. */
static void the_timer_begins_anew_with_each_acknowledgement(void **state)
{
        struct scene *s = *state;

        app_writes(s, 2000);
        forget_sent(s);
        advance_ms(s, 150);
        peer_sends(s, .seq = 1, .ack = 1001);
        advance_ms(s, (uint32_t)((s->tc->rto - 1) / NS_PER_MS));
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 2001);
        assert_int_equal(s->tc->rtx_at, NSTIME_NEVER);
}

/* RFC 5681 eq. 4: what a timeout halves it halves once, however often the segment is lost again. */
static void repeated_timeouts_halve_once(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10000);
        forget_sent(s);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->tc->ssthresh, 5000);
        assert_int_equal(s->tc->cwnd, 1000);
        advance_ms(s, 400 + 800);
        forget_sent(s);
        assert_int_equal(s->tc->ssthresh, 5000);
        app_aborts(s);
        forget_sent(s);
}

/* RFC 6298 §3: of two SYN-ACKs nobody knows which is answered. */
static void a_syn_ack_sent_twice_measures_nothing(void **state)
{
        struct scene *s = *state;

        advance_ms(s, 300);
        peer_sends(s, .seq = 0, .flags = TCP_SYN);
        forget_sent(s);
        advance_ms(s, 1);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_state(s, TCPS_ESTABLISHED);
        assert_true(s->tc->min_rtt == NSTIME_NEVER);
}

int main(void)
{
        static const struct scene_setup reno = {.reno = true},
                                        lossless = {.lossless = true, .sack = true},
                                        timestamps = {.ts = true, .reno = true};
        const struct CMUnitTest tests[] = {
                scenario(timeout_repeats_the_first_segment, established, &reno),
                scenario(silence_ends_the_connection, established, NULL),
                scenario(lossless_timeout_keeps_the_window, established, &lossless),
                scenario(each_round_trip_is_measured, established, &reno),
                scenario(only_what_acknowledges_is_a_sample, established, &timestamps),
                scenario(the_timer_begins_anew_with_each_acknowledgement, established, NULL),
                scenario(repeated_timeouts_halve_once, established, &reno),
                scenario(a_syn_ack_sent_twice_measures_nothing, syn_received, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
