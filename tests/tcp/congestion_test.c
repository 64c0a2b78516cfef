/* Loss and congestion as in RFC 5681, 6298, 6582, 6928 and 8985: what no other scenario has by
 * the way. */
#include "tests/tcp/scenarios.h"

#include "tcp/tcp_cc.h"

static const struct scene_setup reno = {.reno = true}, sack = {.sack = true, .reno = true},
                                timestamps = {.ts = true, .reno = true},
                                wide = {.reno = true, .sndbuf = 1 << 20},
                                jumbo = {.reno = true, .mss = 8960};

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

/* RFC 5681 §2: with data, another window, a FIN or nothing in flight it is no duplicate. */
static void what_is_no_duplicate_is_not_counted(void **state)
{
        struct scene *s = *state;

        for (int i = 0; i < 3; i++)
                peer_sends(s, .seq = 1, .ack = 1); /* nothing in flight */
        app_writes(s, 4000);
        forget_sent(s);
        far_away(s);
        for (uint32_t i = 0; i < 3; i++)
                peer_sends(s, .seq = 1 + 10 * i, .ack = 1, .len = 10);
        for (uint16_t i = 0; i < 3; i++)
                peer_sends(s, .seq = 31, .ack = 1, .wnd = (uint16_t)(30000 + i));
        forget_sent(s);
        assert_int_equal(s->tc->dupacks, 0);
        assert_int_equal(s->tc->retrans, 0);
        for (int i = 0; i < 2; i++)
                peer_sends(s, .seq = 31, .ack = 1, .wnd = 30002);
        expect_silence(s);
        peer_sends(s, .seq = 31, .ack = 1, .wnd = 30002);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 31, .ack = 4001);
        app_reads(s, 30);
        forget_sent(s);
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

/* RFC 6675 §5: the lost goes before the new, and either only while the pipe is below the window. */
static void what_is_lost_goes_before_what_is_new(void **state)
{
        struct scene *s = *state;

        far_away(s);
        app_writes(s, 20000);
        forget_sent(s);
        advance_ms(s, 100);
        /* 1, 1001 are lost. */
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{2001, 9001}});
        expect_sent(s, .seq = 1, .len = 1000);
        expect_sent(s, .seq = 1001, .len = 1000);
        expect_sent(s, .seq = 10001, .len = 1000);
        expect_sent(s, .seq = 11001, .len = 1000);
        expect_silence(s);
        assert_int_equal(pipe_bytes(s->tc), 5000); /* these, and 9001 */
        assert_int_equal(s->tc->cwnd, 5000);
        app_aborts(s);
        forget_sent(s);
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

/* RFC 8985 §6.2 step 2: an acknowledgement that comes sooner after a retransmission than any round
 * trip took is of the original, and says nothing of what was sent beside the retransmission. */
static void what_comes_too_soon_is_of_the_original(void **state)
{
        struct scene *s = *state;
        nstime sent;

        far_away(s);
        app_writes(s, 5000);
        forget_sent(s);
        advance_ms(s, 100);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 4001}});
        expect_sent(s, .seq = 1, .len = 1000);
        sent = s->tc->rack.sent;
        assert_true(sent != 0);
        assert_int_equal(s->tc->rack.rtt, 100 * NS_PER_MS);
        assert_int_equal(s->tc->rack.end - s->tc->iss, 4001);
        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 4001);
        assert_int_equal(s->tc->rack.sent, sent);
        assert_int_equal(s->tc->rack.rtt, 100 * NS_PER_MS);
        peer_sends(s, .seq = 1, .ack = 5001);
}

/* A segment is lost and repaired: one recovery. */
static void recovers_once(struct scene *s)
{
        uint32_t at = s->tc->snd_nxt - s->tc->iss;

        s->tc->cwnd = 10000;
        app_writes(s, 5000);
        forget_sent(s);
        advance_ms(s, 100);
        peer_sends(s, .seq = 1, .ack = at, .nsack = 1, .sack = {{at + 1000, at + 5000}});
        advance_ms(s, 200); /* reordering may be given time */
        forget_sent(s);
        assert_int_equal(s->tc->ca_state, CA_RECOVERY);
        peer_sends(s, .seq = 1, .ack = at + 5000);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
}

/* RFC 8985 §6.2 step 4: with each round trip that reports duplicates the reordering window grows by
 * a quarter of the least round trip; sixteen recoveries without one, and it is small again. */
static void duplicates_make_the_reordering_window_larger(void **state)
{
        struct scene *s = *state;
        uint32_t at;

        far_away(s);
        for (uint32_t i = 0; i < 2; i++) {
                app_writes(s, 2000);
                forget_sent(s);
                advance_ms(s, 100);
                at = s->tc->snd_nxt - s->tc->iss - 1000;
                peer_sends(s, .seq = 1, .ack = at, .nsack = 1, .sack = {{at - 1000, at}});
                /* the same round */
                peer_sends(s, .seq = 1, .ack = at, .nsack = 1, .sack = {{at - 1000, at}});
                assert_int_equal(s->tc->rack.mult, i + 1);
                peer_sends(s, .seq = 1, .ack = at + 1000);
        }
        conn_flag(s->tc, TCF_REORDER);
        s->tc->srtt = s->tc->min_rtt = 100 * NS_PER_MS;
        app_writes(s, 5000);
        forget_sent(s);
        advance_ms(s, 100);
        at = s->tc->snd_una - s->tc->iss;
        peer_sends(s, .seq = 1, .ack = at, .nsack = 1, .sack = {{at + 1000, at + 5000}});
        advance_ms(s, 74); /* 3 * 100 / 4 */
        expect_silence(s);
        advance_ms(s, 2);
        expect_sent(s, .seq = at, .len = 1000);
        peer_sends(s, .seq = 1, .ack = at + 5000);
        for (int i = 0; i < 14; i++)
                recovers_once(s);
        assert_int_equal(s->tc->rack.mult, 2);
        recovers_once(s);
        assert_int_equal(s->tc->rack.mult, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(long_segments_are_fewer_at_first, established, &jumbo),
                scenario(what_is_no_duplicate_is_not_counted, established, &reno),
                scenario(idleness_begins_anew, established, &wide),
                scenario(what_is_in_flight_is_halved, established, &reno),
                scenario(a_window_pays_once, established, &sack),
                scenario(what_is_lost_goes_before_what_is_new, established, &sack),
                scenario(each_round_trip_is_measured, established, &reno),
                scenario(only_what_acknowledges_is_a_sample, established, &timestamps),
                scenario(what_comes_too_soon_is_of_the_original, established, &sack),
                scenario(duplicates_make_the_reordering_window_larger, established, &sack),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
