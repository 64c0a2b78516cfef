/*
 * BBR and what it stands on, step by step: rates of delivery, quanta, rounds, what losses and marks
 * do. Whole paths are driven in tests/sim/bbr_test.c.
 */
#include "tests/tcp/scenarios.h"

#include "ip/ip.h"
#include "tcp/tcp_bbr.h"

static const struct scene_setup sack = {.sack = true}, ts = {.sack = true, .ts = true},
                                nosack = {0}, lossless = {.lossless = true},
                                ecn = {.sack = true, .ecn = TCP_ECN_ASK};

#define RTT_MS 100
#define EA     (TCP_ACK | TCP_ECE)

/* ESTABLISHED with BBR, the handshake took 100 ms: ten segments of window. */
static int bbr(void **state)
{
        struct scene *s;

        syn_sent(state);
        s = *state;
        s->opts.cc = TCP_CC_BBR;
        app_sets(s);
        advance_ms(s, RTT_MS);
        peer_sends(s, .seq = 0, .ack = 1, .flags = SA | (s->setup.ecn != 0 ? TCP_ECE : 0),
                   .mss = (uint16_t)s->link.mss, .sack_ok = s->setup.sack);
        forget_sent(s);
        assert_int_equal(s->tc->cwnd, 10000);
        return 0;
}

static struct bbr *of(struct scene *s)
{
        return bbr_of(s->tc);
}

/* n segments leave from `seq` on, however they are paced, and are all there is. */
static void leave(struct scene *s, uint32_t seq, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                for (int ms = 0; s->head == s->tail && ms < 100; ms++)
                        advance_ms(s, 1);
                expect_sent(s, .seq = seq + 1000 * i, .len = 1000,
                            .ecn = s->setup.ecn != 0 ? IP_ECN_ECT0 : 0);
        }
        expect_silence(s);
}

/* §5.6.2: 2.77 times the initial window a round trip, two segments at a time at least (§5.6.3):
 * 277 kB/s. */
static void the_first_window_is_paced(void **state)
{
        struct scene *s = *state;

        assert_int_equal(s->tc->pace.rate, 277000);
        assert_int_equal(s->tc->pace.quantum, 2000);
        app_writes(s, 6000);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_sent(s, .seq = 1001, .len = 1000);
        expect_silence(s);
        assert_int_equal(s->tc->limit, TCP_LIM_PACING);
        advance_ms(s, 7);
        expect_silence(s);
        advance_ms(s, 1); /* 7.2 ms after the first */
        expect_sent(s, .seq = 2001, .len = 1000);
        expect_sent(s, .seq = 3001, .len = 1000);
        expect_silence(s);
        advance_ms(s, 6);
        expect_silence(s);
        advance_ms(s, 1); /* 14.4 ms after it: that the timer came late is made good */
        expect_sent(s, .seq = 4001, .len = 1000);
        expect_sent(s, .seq = 5001, .len = 1000);
}

/* SO_MAX_PACING_RATE is a bound of it. */
static void the_sockets_rate_is_a_bound(void **state)
{
        struct scene *s = *state;

        s->opts.max_pacing_rate = 100000;
        app_sets(s);
        assert_int_equal(s->tc->pace.rate, 100000);
        app_writes(s, 3000);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_silence(s);
        advance_ms(s, 10);
        expect_sent(s, .seq = 1001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 1001);
        assert_in_range(s->tc->pace.rate, 1, 100000);
        forget_sent(s);
}

/* §4.1.2: what was delivered since the segment left that left last, by the time that took. */
static void a_rate_is_of_what_left_last(void **state)
{
        struct scene *s = *state;

        app_writes(s, 8000);
        leave(s, 1, 2);
        advance_ms(s, 8);
        leave(s, 2001, 2); /* they left 7.2 ms after the first two, seen after 8 */
        advance_ms(s, 92);
        forget_sent(s);                       /* the others went meanwhile */
        peer_sends(s, .seq = 1, .ack = 2001); /* 100 ms after the first: 2000 bytes in it */
        assert_in_range(bbr_max_bw(of(s)), 19800, 20000);
        advance_ms(s, 8);
        peer_sends(s, .seq = 1, .ack = 4001); /* 4000 bytes in 108 ms */
        assert_in_range(bbr_max_bw(of(s)), 36900, 37100);
        assert_int_equal(of(s)->min_rtt, RTT_MS * NS_PER_MS);
}

/* A window that is not filled says little: what leaves after it is marked, and counts only if it is
 * faster than all before. */
static void what_the_program_limits_is_marked(void **state)
{
        struct scene *s = *state;
        uint64_t bw;

        app_writes(s, 10000);
        leave(s, 1, 10);
        advance_ms(s, 60);
        peer_sends(s, .seq = 1, .ack = 10001);
        bw = bbr_max_bw(of(s));
        assert_true(bw > 50000);
        app_writes(s, 1000);
        assert_true(of(s)->rate.bubble); /* there was nothing in flight */
        leave(s, 10001, 1);
        assert_true(txseg_at(&s->rig->t, s->tc->snd_head)->marks & TXS_APP_LIMITED);
        advance_ms(s, RTT_MS);
        peer_sends(s, .seq = 1, .ack = 11001);
        assert_int_equal(bbr_max_bw(of(s)), bw);
        assert_int_equal(of(s)->state, BBR_STARTUP);
}

/* A loss sends again what was lost and leaves the window to the model (§5.6.4.4): it grows by what
 * arrives all the while. */
static void recovery_leaves_the_window_alone(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10000);
        leave(s, 1, 10);
        advance_ms(s, 60);
        peer_sends(s, .seq = 1, .ack = 1001);
        for (uint32_t i = 3; i <= 6; i++)
                peer_sends(s, .seq = 1, .ack = 1001, .nsack = 1, .sack = {{2001, 1 + 1000 * i}});
        assert_int_equal(s->tc->ca_state, CA_RECOVERY);
        expect_sent(s, .seq = 1001, .len = 1000);
        assert_int_equal(s->tc->cwnd, 15000); /* Startup: and five segments were delivered */
        assert_int_equal(of(s)->rate.lost, 1000);
        peer_sends(s, .seq = 1, .ack = 10001);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
        assert_int_equal(s->tc->cwnd, 20000);
        assert_int_equal(s->tc->ssthresh, 0x7fffffff);
}

/* A timeout leaves one segment, and the end of recovery gives the window back. */
static void a_timeout_is_one_segment_for_a_while(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10000);
        leave(s, 1, 10);
        advance_ms(s, 1200); /* a probe went, too */
        assert_int_equal(s->tc->ca_state, CA_LOSS);
        assert_int_equal(s->tc->cwnd, 1000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001);
        assert_int_equal(s->tc->cwnd, 4000); /* MinPipeCwnd */
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 10001);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
        assert_true(s->tc->cwnd >= 10000);
        forget_sent(s);
}

/* §5.5.11: what ended Startup was no loss. */
static void startup_goes_on_when_nothing_was_lost(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10000);
        leave(s, 1, 10);
        advance_ms(s, 60);
        for (uint32_t i = 2; i <= 5; i++)
                peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 1 + 1000 * i}});
        assert_int_equal(s->tc->ca_state, CA_RECOVERY);
        forget_sent(s);
        of(s)->undo_state = BBR_STARTUP; /* as many losses would have left it */
        of(s)->full_bw_reached = true;
        of(s)->inflight_longterm = 4000;
        of(s)->state = BBR_CRUISE;
        advance_ms(s, 30);
        peer_sends(s, .seq = 1, .ack = 5001, .nsack = 1, .sack = {{1, 1001}});
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_UNDO], 1);
        assert_int_equal(of(s)->state, BBR_STARTUP);
        assert_false(of(s)->full_bw_reached);
        assert_true(of(s)->inflight_longterm == BBR_NO_BOUND);
        assert_true(s->tc->cwnd >= 10000);
}

/* RFC 3168 §6.1.2: a mark is heeded once a round trip. In Startup it says that there is enough. */
static void a_mark_ends_startup(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10000);
        leave(s, 1, 10);
        advance_ms(s, 60);
        peer_sends(s, .seq = 1, .ack = 2001, .flags = EA);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_ECN_CUT], 1);
        assert_true(of(s)->full_bw_reached);
        assert_int_not_equal(of(s)->state, BBR_STARTUP);
        assert_true(of(s)->inflight_longterm != BBR_NO_BOUND);
        peer_sends(s, .seq = 1, .ack = 4001, .flags = EA);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_ECN_CUT], 1);
        app_writes(s, 1000);
        advance_ms(s, 100);
        expect_sent(s, .seq = 10001, .len = 1000, .flags = TCP_ACK | TCP_CWR, .ecn = IP_ECN_ECT0);
        forget_sent(s);
}

/* TCP_CONGESTION at any time: what is in flight without notes gives no rate, what leaves from now
 * on does. */
static void it_is_chosen_and_left_at_any_time(void **state)
{
        struct scene *s = *state;

        app_writes(s, 2000);
        leave(s, 1, 2);
        s->opts.cc = TCP_CC_CUBIC;
        app_sets(s);
        assert_false(s->tc->flags & TCF_RATES);
        assert_int_equal(s->tc->pace.rate, 0);
        app_writes(s, 6000);
        leave(s, 2001, 6);
        assert_false(txseg_at(&s->rig->t, s->tc->snd_tail)->marks & TXS_RATE);
        advance_ms(s, RTT_MS);
        peer_sends(s, .seq = 1, .ack = 2001);
        s->opts.cc = TCP_CC_BBR;
        app_sets(s);
        assert_true(s->tc->flags & TCF_RATES);
        peer_sends(s, .seq = 1, .ack = 8001);
        assert_int_equal(bbr_max_bw(of(s)), 0);
        assert_int_equal(of(s)->min_rtt, RTT_MS * NS_PER_MS);
        app_writes(s, 2000);
        leave(s, 8001, 2);
        advance_ms(s, RTT_MS);
        peer_sends(s, .seq = 1, .ack = 10001);
        assert_in_range(bbr_max_bw(of(s)), 19900, 20000);
}

/* In the middle of recovery as well: whose end is then the other's, and leaves it the window
 * there is. */
static void left_in_recovery(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10000);
        leave(s, 1, 10);
        advance_ms(s, 60);
        for (uint32_t i = 2; i <= 5; i++)
                peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 1 + 1000 * i}});
        forget_sent(s);
        s->opts.cc = TCP_CC_CUBIC;
        app_sets(s);
        assert_int_equal(s->tc->ca_state, CA_RECOVERY);
        peer_sends(s, .seq = 1, .ack = 10001);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
        assert_in_range(s->tc->cwnd, 10000, 20000);
}

/* Between processes of one host there is no path to have a model of, and no pace to keep. */
static void nothing_is_measured_where_nothing_is_lost(void **state)
{
        struct scene *s = *state;

        s->opts.cc = TCP_CC_BBR;
        app_sets(s);
        assert_false(s->tc->flags & TCF_RATES);
        app_writes(s, 10000);
        for (uint32_t i = 0; i < 10; i++)
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 10001);
        assert_int_equal(s->tc->cwnd, 20000);
        assert_int_equal(s->tc->pace.rate, 0);
}

/* For who looks in: TCP_INFO, TCP_CC_INFO, unet ss. */
static void it_tells_what_it_knows(void **state)
{
        struct scene *s = *state;
        struct tcp_report r;

        app_writes(s, 2000);
        leave(s, 1, 2);
        advance_ms(s, RTT_MS);
        peer_sends(s, .seq = 1, .ack = 2001);
        tcp_get_report(&s->rig->t, s->tc, &r, s->now);
        assert_in_range(r.model.bw, 19900, 20000);
        assert_int_equal(r.delivery_rate, r.model.bw);
        assert_int_equal(r.model.min_rtt, RTT_MS * NS_PER_MS);
        assert_int_equal(r.model.pacing_gain, 277);
        assert_int_equal(r.model.cwnd_gain, 200);
        assert_int_equal(r.pacing_rate, s->tc->pace.rate);
        assert_int_equal(r.model.app_limited, 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(the_first_window_is_paced, bbr, &sack),
                scenario(the_sockets_rate_is_a_bound, bbr, &sack),
                scenario(a_rate_is_of_what_left_last, bbr, &sack),
                scenario(a_rate_is_of_what_left_last, bbr, &nosack),
                scenario(what_the_program_limits_is_marked, bbr, &sack),
                scenario(recovery_leaves_the_window_alone, bbr, &sack),
                scenario(a_timeout_is_one_segment_for_a_while, bbr, &sack),
                scenario(startup_goes_on_when_nothing_was_lost, bbr, &ts),
                scenario(a_mark_ends_startup, bbr, &ecn),
                scenario(it_is_chosen_and_left_at_any_time, bbr, &sack),
                scenario(left_in_recovery, bbr, &sack),
                scenario(nothing_is_measured_where_nothing_is_lost, established, &lossless),
                scenario(it_tells_what_it_knows, bbr, &sack),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
