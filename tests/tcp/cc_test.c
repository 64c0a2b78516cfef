/* Congestion controls as functions of time: what the formulas of their RFCs say, not what the
 * code does. */
#include <errno.h>
#include <math.h>

#include "tcp/tcp_cc.h"
#include "tcp/tcp_send.h"
#include "tests/unit.h"

#define MSS 1000u

static struct tcp_conn conn(int cc, uint32_t segments)
{
        struct tcp_conn tc = {.cc = (uint8_t)cc,
                              .snd_mss = MSS,
                              .cwnd = segments * MSS,
                              .ssthresh = 0x7fffffff,
                              .srtt = 100 * NS_PER_MS,
                              .min_rtt = 100 * NS_PER_MS};

        cc_of(&tc)->init(&tc, 0);
        return tc;
}

/* A full window is sent and acknowledged once a round trip, for a while. */
static void runs(struct tcp_conn *tc, nstime *now, nstime for_how_long)
{
        nstime end = *now + for_how_long;

        while (*now < end) {
                uint32_t segments = tc->cwnd / MSS;
                for (uint32_t i = 0; i < segments; i++) {
                        *now += tc->srtt / segments;
                        tc->snd_una += MSS;
                        tc->snd_nxt = tc->snd_una + tc->cwnd;
                        cc_of(tc)->on_ack(tc, MSS, tc->srtt, *now);
                }
        }
}

static void loses(struct tcp_conn *tc, nstime now)
{
        tc->snd_nxt = tc->snd_una + tc->cwnd;
        tc->cwnd = tc->ssthresh = cc_of(tc)->on_loss(tc, false, now);
}

/* RFC 5681: doubling each round trip, then a segment each; half on loss. */
static void newreno_follows_rfc_5681(void **state)
{
        struct tcp_conn tc = conn(TCP_CC_RENO, 10);
        nstime now = 0;

        runs(&tc, &now, 90 * NS_PER_MS);
        assert_int_equal(tc.cwnd, 20 * MSS);
        loses(&tc, now);
        assert_int_equal(tc.cwnd, 10 * MSS);
        runs(&tc, &now, 90 * NS_PER_MS);
        assert_in_range(tc.cwnd, 10 * MSS, 11 * MSS);
        runs(&tc, &now, 10 * tc.srtt);
        assert_in_range(tc.cwnd, 18 * MSS, 22 * MSS);
}

/* RFC 9438 §4.2: back at W_max after K seconds; concave before, convex after; C = 0.4, beta
 * = 0.7. */
static void cubic_follows_its_curve(void **state)
{
        struct tcp_conn tc = conn(TCP_CC_CUBIC, 1000);
        double k = cbrt(1000 * 0.3 / 0.4);
        nstime now = NS_PER_S, begin;

        loses(&tc, now);
        assert_int_equal(tc.cwnd, 700 * MSS);
        begin = now;
        for (double t = 1; t < 2 * k; t += 1) {
                double want = 0.4 * pow(t - k, 3) + 1000;
                runs(&tc, &now, (nstime)(t * NS_PER_S) - (now - begin));
                assert_in_range(tc.cwnd, (uint32_t)(want * 0.93) * MSS,
                                (uint32_t)(want * 1.07) * MSS);
        }
}

/* §4.7: a second loss below the last peak gives room to others. */
static void cubic_converges_fast(void **state)
{
        struct tcp_conn tc = conn(TCP_CC_CUBIC, 1000);
        nstime now = NS_PER_S;

        loses(&tc, now);
        loses(&tc, now);
        assert_int_equal(tc.cwnd, 490 * MSS);
        runs(&tc, &now, 30 * NS_PER_S); /* plateau at 700 * 0.85, not at 700 */
        assert_true(tc.cwnd > 595 * MSS);
}

/* §4.3: with small windows and short round trips it grows as Reno with its factor would: 9/17 of a
 * segment a round trip up to the window before the loss, then one. */
static void cubic_is_not_slower_than_reno(void **state)
{
        struct tcp_conn tc = conn(TCP_CC_CUBIC, 20);
        nstime now = NS_PER_S;

        tc.srtt = tc.min_rtt = 5 * NS_PER_MS;
        loses(&tc, now);
        assert_int_equal(tc.cwnd, 14 * MSS);
        /* Eleven times a window; the window is W_est with each ACK, not later. */
        runs(&tc, &now, 21 * tc.srtt / 2);
        assert_in_range(tc.cwnd, 14 * MSS + 11 * MSS * 9 / 17 * 95 / 100,
                        14 * MSS + 11 * MSS * 9 / 17);
        runs(&tc, &now, 100 * tc.srtt);
        assert_in_range(tc.cwnd, 115 * MSS, 121 * MSS);
}

/* §4.3: that is the window itself, not the lower peak of fast convergence. */
static void cubic_is_patient_up_to_the_window_before_the_loss(void **state)
{
        struct tcp_conn tc = conn(TCP_CC_CUBIC, 20);
        nstime now = NS_PER_S;

        tc.srtt = tc.min_rtt = 5 * NS_PER_MS;
        loses(&tc, now);
        loses(&tc, now);
        assert_int_equal(tc.cwnd, 9800);
        runs(&tc, &now, 15 * tc.srtt / 2);
        assert_in_range(tc.cwnd, 9800 + 8 * MSS * 9 / 17 * 9 / 10, 9800 + 8 * MSS * 9 / 17);
}

/* After a pause (RFC 5681 §4.1) or an undone timeout the window is below W_est: it comes back as in
 * slow start, not in one burst. */
static void cubic_comes_back_to_renos_window_without_a_burst(void **state)
{
        struct tcp_conn tc = conn(TCP_CC_CUBIC, 40);
        nstime now = NS_PER_S;

        tc.srtt = tc.min_rtt = 5 * NS_PER_MS;
        loses(&tc, now);
        runs(&tc, &now, 50 * tc.srtt);
        assert_true(tc.cwnd > 50 * MSS);
        tc.cwnd = tc.ssthresh;
        cc_of(&tc)->on_ack(&tc, MSS, tc.srtt, now);
        assert_int_equal(tc.cwnd, 29 * MSS);
        runs(&tc, &now, tc.srtt);
        assert_true(tc.cwnd > 50 * MSS);
}

/* §4.2: half more in a round trip at the most, however far below the curve. */
static void cubic_grows_by_half_a_window_at_most(void **state)
{
        struct tcp_conn tc = conn(TCP_CC_CUBIC, 1000);
        nstime now = NS_PER_S;

        loses(&tc, now);
        tc.cwnd = tc.ssthresh = 10 * MSS; /* the curve begins with 22 segments a round trip */
        runs(&tc, &now, tc.srtt);
        assert_in_range(tc.cwnd, 14 * MSS, 15 * MSS);
}

/* §4.2: t is not the time in which something else than the window limited; the curve goes on where
 * it was. */
static void cubic_does_not_count_idle_time(void **state)
{
        struct tcp_conn tc = conn(TCP_CC_CUBIC, 1000);
        double want = 0.4 * pow(3 - cbrt(1000 * 0.3 / 0.4), 3) + 1000;
        nstime now = NS_PER_S;

        loses(&tc, now);
        runs(&tc, &now, 2 * NS_PER_S);
        now += 60 * NS_PER_S;
        runs(&tc, &now, NS_PER_S);
        assert_in_range(tc.cwnd, (uint32_t)(want * 0.97) * MSS, (uint32_t)(want * 1.03) * MSS);
}

/* §4.10: where slow start ended without a loss, the curve begins at its plateau: K = 0. */
static void cubic_without_a_loss_begins_at_the_plateau(void **state)
{
        struct tcp_conn tc = conn(TCP_CC_CUBIC, 100);
        nstime now = NS_PER_S;

        tc.srtt = tc.min_rtt = 500 * NS_PER_MS;
        tc.ssthresh = tc.cwnd;
        for (int i = 0; i < 5; i++) {
                double t;
                runs(&tc, &now, NS_PER_S);
                /* Aimed at is the window of a round trip later. */
                t = (double)(now - NS_PER_S) / NS_PER_S;
                assert_in_range(tc.cwnd, (uint32_t)(0.4 * pow(t, 3) + 99) * MSS,
                                (uint32_t)(0.4 * pow(t + 0.5, 3) + 106) * MSS);
        }
}

/* RFC 9406: slow start ends some rounds after the round trip began to grow, before anything
 * is lost. */
static void hystart_ends_slow_start_when_delay_grows(void **state)
{
        struct tcp_conn tc = conn(TCP_CC_CUBIC, 20);
        nstime now = NS_PER_S;

        for (int round = 0; round < 4; round++)
                runs(&tc, &now, 90 * NS_PER_MS);
        assert_true(tc.ssthresh == 0x7fffffff);
        tc.srtt = 150 * NS_PER_MS;
        for (int round = 0; round < 8; round++)
                runs(&tc, &now, 140 * NS_PER_MS);
        assert_true(tc.ssthresh < 0x7fffffff);
}

/* Later ones know where to end: RFC 9406 is for the first. */
static void slow_start_after_an_idle_time_doubles(void **state)
{
        struct tcp_conn tc = conn(TCP_CC_CUBIC, 20);
        nstime now = NS_PER_S;

        for (int round = 0; round < 4; round++)
                runs(&tc, &now, 90 * NS_PER_MS);
        tc.srtt = 150 * NS_PER_MS;
        for (int round = 0; round < 8; round++)
                runs(&tc, &now, 140 * NS_PER_MS);
        assert_true(tc.ssthresh < 0x7fffffff);
        tc.ssthresh = 1000 * MSS;
        tc.cwnd = 10 * MSS;
        for (int round = 0; round < 3; round++)
                runs(&tc, &now, 140 * NS_PER_MS);
        assert_true(tc.cwnd >= 70 * MSS);
}

static void names_are_found(void **state)
{
        assert_int_equal(tcp_cc_lookup("reno"), TCP_CC_RENO);
        assert_int_equal(tcp_cc_lookup("cubic"), TCP_CC_CUBIC);
        assert_int_equal(tcp_cc_lookup("bbr"), TCP_CC_BBR);
        assert_int_equal(tcp_cc_lookup("vegas"), -ENOENT);
        assert_string_equal(tcp_cc_name(TCP_CC_RENO), "reno");
}

/* RFC 6298 §2: by hand. */
static void rto_follows_rfc_6298(void **state)
{
        struct tcp_conn tc = {.min_rtt = NSTIME_NEVER};

        rtt_init(&tc);
        assert_int_equal(tc.rto, NS_PER_S);
        rtt_sample(&tc, 400 * NS_PER_MS);
        assert_int_equal(tc.srtt, 400 * NS_PER_MS);
        assert_int_equal(tc.rto, 1200 * NS_PER_MS);
        rtt_sample(&tc, 600 * NS_PER_MS); /* rttvar 200 -> 200, srtt 425 */
        assert_int_equal(tc.srtt, 425 * NS_PER_MS);
        assert_int_equal(tc.rto, 1225 * NS_PER_MS);
        for (int i = 0; i < 100; i++)
                rtt_sample(&tc, 300 * NS_PER_MS);
        /* However steady: a peer may delay an acknowledgement. */
        assert_in_range(tc.rto, 500 * NS_PER_MS, 501 * NS_PER_MS);
        for (int i = 0; i < 100; i++)
                rtt_sample(&tc, NS_PER_MS / 2);
        assert_int_equal(tc.rto, 200 * NS_PER_MS);
        tc.backoff = 3;
        assert_int_equal(rtt_rto(&tc), 1600 * NS_PER_MS);
        tc.backoff = 30;
        assert_int_equal(rtt_rto(&tc), 120 * NS_PER_S);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(newreno_follows_rfc_5681),
                cmocka_unit_test(cubic_follows_its_curve),
                cmocka_unit_test(cubic_converges_fast),
                cmocka_unit_test(cubic_is_not_slower_than_reno),
                cmocka_unit_test(cubic_is_patient_up_to_the_window_before_the_loss),
                cmocka_unit_test(cubic_comes_back_to_renos_window_without_a_burst),
                cmocka_unit_test(cubic_grows_by_half_a_window_at_most),
                cmocka_unit_test(cubic_does_not_count_idle_time),
                cmocka_unit_test(cubic_without_a_loss_begins_at_the_plateau),
                cmocka_unit_test(hystart_ends_slow_start_when_delay_grows),
                cmocka_unit_test(slow_start_after_an_idle_time_doubles),
                cmocka_unit_test(names_are_found),
                cmocka_unit_test(rto_follows_rfc_6298),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
