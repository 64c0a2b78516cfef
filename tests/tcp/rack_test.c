/* RACK: RFC 8985 §6; DSACK, RFC 2883. */
#include "tests/tcp/scenarios.h"
#include "tcp/tcp_cc.h"

/* A round trip of 100 ms is known, so that nothing here is a timeout by the way. */
static void far_away(struct scene *s)
{
        s->tc->min_rtt = s->tc->srtt = 100 * NS_PER_MS;
        s->tc->rto = 400 * NS_PER_MS;
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

/* RFC 8985 §6.2: one SACK is not enough at once, but after a quarter of a round trip it is. */
static void reordering_is_given_time(void **state)
{
        struct scene *s = *state;

        s->tc->min_rtt = s->tc->srtt = 100 * NS_PER_MS;
        app_writes(s, 3000);
        forget_sent(s);
        advance_ms(s, 100);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 2001}});
        expect_silence(s);
        advance_ms(s, 24);
        expect_silence(s);
        advance_ms(s, 2);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 3001);
}

/* An ACK was lost, and the next one tells of two blocks, what arrived last first (RFC 2018 §4):
 * none of it came late. */
static void blocks_told_of_at_once_are_in_order(void **state)
{
        struct scene *s = *state;

        s->tc->min_rtt = s->tc->srtt = 100 * NS_PER_MS;
        app_writes(s, 7000);
        forget_sent(s);
        advance_ms(s, 100);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 3,
                   .sack = {{5001, 6001}, {1001, 2001}, {3001, 4001}});
        assert_int_equal(s->tc->sacked, 3000);
        assert_false(s->tc->flags & TCF_REORDER);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 3,
                   .sack = {{2001, 4001}, {1001, 4001}, {5001, 6001}});
        assert_int_equal(s->tc->sacked, 4000);
        assert_true(s->tc->flags & TCF_REORDER);
        peer_sends(s, .seq = 1, .ack = 7001);
        forget_sent(s);
}

/* An ACK was lost, and the next one moves SND.UNA and tells of more above: what it moved over was
 * not late. Reordered is what comes below the highest that was SACKed before it (RFC 8985 §6.2 step
 * 3: in ascending order). */
static void what_an_ack_moves_over_came_before_what_it_tells_of(void **state)
{
        struct scene *s = *state;

        s->tc->min_rtt = s->tc->srtt = 100 * NS_PER_MS;
        app_writes(s, 9000);
        forget_sent(s);
        advance_ms(s, 100);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 4001}});
        expect_sent(s, .seq = 1, .len = 1000);
        advance_ms(s, 100);
        /* 6001 is lost as well. */
        peer_sends(s, .seq = 1, .ack = 6001, .nsack = 1, .sack = {{7001, 8001}});
        assert_false(s->tc->flags & TCF_REORDER);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 9001);
        forget_sent(s);
}

/* ... and what is below that was late, when the same ACK acknowledges all there is as well. */
static void what_fills_a_hole_all_at_once_was_late(void **state)
{
        struct scene *s = *state;

        s->tc->min_rtt = s->tc->srtt = 100 * NS_PER_MS;
        app_writes(s, 5000);
        forget_sent(s);
        advance_ms(s, 100);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 2001}});
        peer_sends(s, .seq = 1, .ack = 3001, .nsack = 1, .sack = {{4001, 5001}});
        assert_true(s->tc->flags & TCF_REORDER);
        peer_sends(s, .seq = 1, .ack = 5001);
        forget_sent(s);
}

/* More is sent: the retransmission timer runs on from the first (RFC 6298 §5.1), and the timer of
 * the segments that may only be late (RFC 8985 §6.2) is not put off by it either. */
static void sending_more_postpones_no_repair(void **state)
{
        struct scene *s = *state;
        nstime rto_at;

        app_writes(s, 3000);
        forget_sent(s);
        s->tc->rtx_kind = RTX_RTO;
        s->tc->ca_state = CA_LOSS;
        rto_at = s->tc->rtx_at = s->now + 200 * NS_PER_MS;
        advance_ms(s, 5);
        app_writes(s, 1000);
        forget_sent(s);
        assert_int_equal(s->tc->rtx_at, rto_at);
        s->tc->ca_state = CA_OPEN;

        s->tc->srtt = s->tc->min_rtt = 100 * NS_PER_MS;
        s->tc->flags |= TCF_REORDER;
        advance_ms(s, 95);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 2001}});
        assert_int_equal(s->tc->rtx_kind, RTX_REO);
        app_writes(s, 1000);
        expect_sent(s, .seq = 4001, .len = 1000);
        assert_int_equal(s->tc->rtx_kind, RTX_REO);
        advance_ms(s, 26);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 5001);
}

/* RFC 2883: a D-SACK tells that a retransmission was for nothing. */
static void dsack_is_counted(void **state)
{
        struct scene *s = *state;

        app_writes(s, 1000);
        forget_sent(s);
        advance_ms(s, 250);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001, .nsack = 1, .sack = {{1, 1001}});
        assert_int_equal(s->tc->dsack_dups, 1);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_SPURIOUS], 1);
}

/* RFC 8985 §6.2 step 4: a round of D-SACKs ends with what was in flight, also where the numbers
 * have come half round since. */
static void a_round_of_dsacks_is_not_remembered_for_ever(void **state)
{
        struct scene *s = *state;

        app_writes(s, 2000);
        forget_sent(s);
        advance_ms(s, 250);
        forget_sent(s);
        s->tc->rack.mult = 1;
        s->tc->rack.dsack_round = s->tc->snd_una + (1u << 30); /* of 3 GB ago */
        peer_sends(s, .seq = 1, .ack = 2001, .nsack = 1, .sack = {{1, 1001}});
        assert_int_equal(s->tc->rack.mult, 2);
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
        static const struct scene_setup sack = {.sack = true, .reno = true};
        const struct CMUnitTest tests[] = {
                scenario(reordering_is_given_time, established, &sack),
                scenario(blocks_told_of_at_once_are_in_order, established, &sack),
                scenario(what_an_ack_moves_over_came_before_what_it_tells_of, established, &sack),
                scenario(what_fills_a_hole_all_at_once_was_late, established, &sack),
                scenario(sending_more_postpones_no_repair, established, &sack),
                scenario(dsack_is_counted, established, &sack),
                scenario(a_round_of_dsacks_is_not_remembered_for_ever, established, &sack),
                scenario(what_comes_too_soon_is_of_the_original, established, &sack),
                scenario(duplicates_make_the_reordering_window_larger, established, &sack),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
