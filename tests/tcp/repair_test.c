/* Retransmission: by timeout, by duplicates without SACK, and by SACK, RACK and TLP. */
#include "tests/tcp/scenarios.h"

static const struct scene_setup reno = {.reno = true}, sack = {.sack = true, .reno = true};

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

static void user_timeout_ends_it_sooner(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10);
        advance_ms(s, 5000);
        expect_state(s, TCPS_ESTABLISHED);
        advance_ms(s, 20000);
        forget_sent(s);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ETIMEDOUT);
}

/* At its time, not at the timeout that comes after it, which backs off. */
static void user_timeout_is_kept_to(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10);
        advance_ms(s, 6999);
        expect_state(s, TCPS_ESTABLISHED);
        advance_ms(s, 1);
        forget_sent(s);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ETIMEDOUT);
}

static void user_timeout_before_a_closed_window_is_kept_to(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        app_writes(s, 10);
        advance_ms(s, 201); /* the first probe begins what counts */
        forget_sent(s);
        advance_ms(s, 6998);
        expect_state(s, TCPS_ESTABLISHED);
        advance_ms(s, 2);
        forget_sent(s);
        expect_state(s, TCPS_CLOSED);
}

/* What was sent when the window opened waits for its ACK from then on. */
static void user_timeout_begins_again_as_the_window_opens(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        app_writes(s, 10);
        advance_ms(s, 6000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 1, .len = 10);
        advance_ms(s, 6900);
        expect_state(s, TCPS_ESTABLISHED);
        advance_ms(s, 200);
        forget_sent(s);
        expect_state(s, TCPS_CLOSED);
}

/* A connection that has had answers for long has not waited for long. */
static void user_timeout_counts_from_the_last_answer(void **state)
{
        struct scene *s = *state;

        for (uint32_t i = 0; i < 30; i++) {
                app_writes(s, 10);
                expect_sent(s, .seq = 1 + 10 * i, .len = 10);
                peer_sends(s, .seq = 1, .ack = 11 + 10 * i);
                advance_ms(s, 1000);
        }
        app_writes(s, 10);
        advance_ms(s, 6999);
        expect_state(s, TCPS_ESTABLISHED);
        advance_ms(s, 1);
        forget_sent(s);
        expect_state(s, TCPS_CLOSED);
}

/* Likewise with something in flight all the time. */
static void user_timeout_counts_from_the_last_answer_in_a_stream(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10);
        for (uint32_t i = 1; i < 100; i++) {
                app_writes(s, 10);
                advance_ms(s, 100);
                peer_sends(s, .seq = 1, .ack = 1 + 10 * i);
        }
        advance_ms(s, 6999);
        expect_state(s, TCPS_ESTABLISHED);
        advance_ms(s, 1);
        forget_sent(s);
        expect_state(s, TCPS_CLOSED);
}

/* As Linux: what cannot be sent has waited as well, whatever the peer says. */
static void user_timeout_does_not_wait_for_a_window(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10);
        expect_sent(s, .seq = 1, .len = 10);
        advance_ms(s, 100);
        peer_sends(s, .seq = 1, .ack = 11, .zero_wnd = true);
        advance_ms(s, 60000);
        app_writes(s, 10);
        for (int i = 0; i < 69; i++) {
                advance_ms(s, 100);
                expect_state(s, TCPS_ESTABLISHED);
                peer_sends(s, .seq = 1, .ack = 11, .zero_wnd = true);
        }
        advance_ms(s, 500);
        forget_sent(s);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ETIMEDOUT);
}

/* RFC 9293 §3.8.1: a window of bytes is not hundreds of packets. */
static void small_segments_lost_go_again_as_one(void **state)
{
        struct scene *s = *state;

        for (int i = 0; i < 8; i++) {
                app_writes(s, 150);
                expect_sent(s, .seq = 1 + 150 * (uint32_t)i, .len = 150);
        }
        advance_ms(s, 190);
        forget_sent(s); /* a probe of the tail, with SACK */
        advance_ms(s, 300);
        expect_sent(s, .seq = 1, .len = 900);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 901);
        expect_sent(s, .seq = 901, .len = 300);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 1201);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
}

/* Not beyond what the receiver has. */
static void what_was_lost_is_gathered_up_to_what_arrived(void **state)
{
        struct scene *s = *state;

        for (int i = 0; i < 10; i++)
                app_writes(s, 50);
        forget_sent(s);
        advance_ms(s, 10);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{201, 251}});
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{201, 301}});
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{201, 351}});
        expect_sent(s, .seq = 1, .len = 200);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 351);
        peer_sends(s, .seq = 1, .ack = 501);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
}

/* RFC 5681 §3.2: the third duplicate ACK retransmits at once, without waiting for the RTO. */
static void third_dupack_retransmits(void **state)
{
        struct scene *s = *state;

        app_writes(s, 4000);
        expect_sent(s, .seq = 1, .len = 1000, .ack = 1);
        expect_sent(s, .seq = 1001, .len = 1000, .ack = 1);
        expect_sent(s, .seq = 2001, .len = 1000, .ack = 1);
        expect_sent(s, .seq = 3001, .len = 1000, .ack = 1);
        advance_ms(s, 100); /* the first one is lost */
        peer_sends(s, .seq = 1, .ack = 1);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 1, .len = 1000, .ack = 1);
        assert_int_equal(s->tc->ssthresh, 2000); /* RFC 5681 eq. 4 */
        peer_sends(s, .seq = 1, .ack = 4001);
        assert_int_equal(s->tc->cwnd, 2000);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
}

/* RFC 6582: a partial ACK says where the next hole is. */
static void partial_ack_retransmits_the_next_hole(void **state)
{
        struct scene *s = *state;

        app_writes(s, 6000);
        forget_sent(s);
        for (int i = 0; i < 3; i++) /* 1 and 3001 are lost */
                peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 3001);
        expect_sent(s, .seq = 3001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 6001);
        expect_silence(s);
        assert_int_equal(s->tc->retrans, 2);
}

/* RFC 3042: a duplicate ACK lets a new segment out. */
static void duplicate_acks_let_new_segments_out(void **state)
{
        struct scene *s = *state;

        app_writes(s, 12000);
        for (int i = 0; i < 10; i++)
                expect_sent(s, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 10001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 11001, .len = 1000);
        app_aborts(s);
        forget_sent(s);
}

/* RFC 8985: what was sent before something that arrived a while later is lost; only that
 * is repeated. */
static void sacked_segments_are_not_repeated(void **state)
{
        struct scene *s = *state;

        s->tc->min_rtt = s->tc->srtt = 100 * NS_PER_MS;
        app_writes(s, 6000);
        forget_sent(s);
        advance_ms(s, 100);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 2001}});
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 3001}});
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{4001, 5001}, {1001, 3001}});
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->tc->ca_state, CA_RECOVERY);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{4001, 6001}, {1001, 3001}});
        expect_sent(s, .seq = 3001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 6001);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
        assert_int_equal(s->tc->retrans, 2);
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

/* RFC 8985 §7: the tail is probed after two round trips, and the probe's ACK repairs the rest. */
static void tail_loss_is_probed(void **state)
{
        struct scene *s = *state;

        s->tc->srtt = s->tc->min_rtt = 20 * NS_PER_MS;
        s->tc->rto = 400 * NS_PER_MS;
        app_writes(s, 4000);
        forget_sent(s);
        advance_ms(s, 41);
        expect_silence(s);
        advance_ms(s, 2);
        expect_sent(s, .seq = 3001, .len = 1000);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TLP], 1);
        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 1001, .nsack = 1, .sack = {{3001, 4001}});
        expect_sent(s, .seq = 1001, .len = 1000);
        expect_sent(s, .seq = 2001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 4001);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_RTO], 0);
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

/* RFC 8985 §7.2: where the timeout would be first the probe takes its place; it follows a timeout
 * later, and doubles from there. */
static void probe_takes_the_place_of_the_timeout(void **state)
{
        struct scene *s = *state;

        s->tc->srtt = s->tc->min_rtt = 100 * NS_PER_MS;
        s->tc->rto = 300 * NS_PER_MS; /* two round trips and 200 ms are 400 */
        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000);
        advance_ms(s, 299);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TLP], 1);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_RTO], 0);
        advance_ms(s, 299);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_RTO], 1);
        advance_ms(s, 599);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 1000);
}

/* ... and more that is sent does not put it off. */
static void probe_in_place_of_the_timeout_stays(void **state)
{
        struct scene *s = *state;

        s->tc->srtt = s->tc->min_rtt = 300 * NS_PER_MS;
        s->tc->rto = 500 * NS_PER_MS;
        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000);
        advance_ms(s, 400);
        app_writes(s, 1000);
        expect_sent(s, .seq = 1001, .len = 1000);
        advance_ms(s, 100);
        expect_sent(s, .seq = 1001, .len = 1000);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TLP], 1);
        peer_sends(s, .seq = 1, .ack = 2001);
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

/* RFC 9937 §6: an ACK that only tells of losses clocks out what arrived, not more. */
static void recovery_sends_more_only_when_repairs_arrive(void **state)
{
        struct scene *s = *state;

        s->tc->min_rtt = s->tc->srtt = 10 * NS_PER_MS;
        app_writes(s, 10000);
        forget_sent(s);
        advance_ms(s, 10);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 2001}});
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 3001}});
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{9001, 10001}, {1001, 3001}});
        expect_sent(s, .seq = 1, .len = 1000);
        expect_silence(s);
        advance_ms(s, 12);
        /* 3001 was only late. */
        peer_sends(s, .seq = 1, .ack = 4001, .nsack = 1, .sack = {{9001, 10001}});
        expect_sent(s, .seq = 4001, .len = 1000);
        expect_sent(s, .seq = 5001, .len = 1000);
        expect_sent(s, .seq = 6001, .len = 1000);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 10001);
}

/* A tail that grew to more than a segment after it began is probed as one (RFC 8985 §7.2). */
static void tail_that_grew_is_probed(void **state)
{
        struct scene *s = *state;

        s->tc->srtt = s->tc->min_rtt = 20 * NS_PER_MS;
        s->tc->rto = 200 * NS_PER_MS;
        app_writes(s, 1000);
        app_writes(s, 1000);
        forget_sent(s);
        advance_ms(s, 43);
        expect_sent(s, .seq = 1001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 2001);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_RTO], 0);
}

/* What recovery waits for does not come: the first segment once more, after two round trips, and
 * the window as it was. */
static void silence_in_recovery_is_probed_once(void **state)
{
        struct scene *s = *state;
        uint32_t ssthresh;

        s->tc->srtt = s->tc->min_rtt = 20 * NS_PER_MS;
        s->tc->rto = 300 * NS_PER_MS;
        app_writes(s, 5000);
        forget_sent(s);
        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 5001}});
        expect_sent(s, .seq = 1, .len = 1000);
        ssthresh = s->tc->ssthresh;
        advance_ms(s, 48);
        expect_silence(s);
        advance_ms(s, 6);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->tc->ca_state, CA_RECOVERY);
        advance_ms(s, 290);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 5001);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
        assert_int_equal(s->tc->ssthresh, ssthresh);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_RTO], 0);
}

/* Where the link lets timeouts come early so do probes: the acknowledgement of all that was
 * sent again and behind it is lost, and the timeout, which would cost the window, does not
 * come first. */
static void silence_in_recovery_is_probed_before_an_early_timeout(void **state)
{
        struct scene *s = *state;

        s->tc->link.rto_min = 10 * NS_PER_MS;
        s->tc->srtt = s->tc->min_rtt = NS_PER_MS;
        s->tc->rto = 11 * NS_PER_MS;
        app_writes(s, 5000);
        forget_sent(s);
        advance_ms(s, 1);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 5001}});
        expect_sent(s, .seq = 1, .len = 1000);
        advance_ms(s, 1);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 5001);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_RTO], 0);
}

/* RFC 9002 §6.2.1: a round trip, and the larger of a millisecond and what it varies by. */
static void tail_is_probed_early_where_timeouts_are(void **state)
{
        struct scene *s = *state;

        s->tc->link.rto_min = 10 * NS_PER_MS;
        s->tc->srtt = s->tc->min_rtt = 3 * NS_PER_MS;
        s->tc->rttvar = 0;
        s->tc->rto = 13 * NS_PER_MS;
        app_writes(s, 2000);
        forget_sent(s);
        advance_ms(s, 3);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1001, .len = 1000);
}

static void early_probe_waits_for_what_round_trips_vary_by(void **state)
{
        struct scene *s = *state;

        s->tc->link.rto_min = 10 * NS_PER_MS;
        s->tc->srtt = s->tc->min_rtt = 3 * NS_PER_MS;
        s->tc->rttvar = NS_PER_MS;
        s->tc->rto = 13 * NS_PER_MS;
        app_writes(s, 2000);
        forget_sent(s);
        advance_ms(s, 6);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1001, .len = 1000);
}

/* RFC 6937: as much goes out as came in, down to ssthresh. */
static void recovery_is_paced_by_what_arrives(void **state)
{
        struct scene *s = *state;
        unsigned sent = 0;

        s->tc->min_rtt = s->tc->srtt = 100 * NS_PER_MS;
        app_writes(s, 20000);
        for (int i = 0; i < 10; i++)
                expect_sent(s, .len = 1000);
        advance_ms(s, 100);
        for (uint32_t i = 2; i <= 10; i++) { /* the first of ten is lost */
                peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 1 + 1000 * i}});
                assert_true(s->tail - s->head <= 2);
                sent += s->tail - s->head;
                forget_sent(s);
        }
        /* At the third SACK 12 were out, two of them SACKed before (RFC 9937 §6.1). */
        assert_int_equal(s->tc->prr.fs, 10000);
        assert_int_equal(s->tc->ssthresh, 6000); /* limited transmit made the flight 12 segments */
        assert_true(sent >= 5 && sent <= 8);
        app_aborts(s);
        forget_sent(s);
}

/* RFC 2018 §8: after a timeout nothing that was only SACKed is believed, when the peer drops
 * its head. */
static void reneging_is_survived(void **state)
{
        struct scene *s = *state;

        app_writes(s, 3000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 3001}});
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001);
        forget_sent(s);
        advance_ms(s, 300);
        expect_sent(s, .seq = 1001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 3001);
        forget_sent(s);
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

/* SO_MAX_PACING_RATE */
static void pacing_spreads_segments(void **state)
{
        struct scene *s = *state;

        s->opts.max_pacing_rate = 100000;
        app_sets(s);
        app_writes(s, 3000);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_silence(s);
        assert_int_equal(s->tc->limit, TCP_LIM_PACING);
        advance_ms(s, 9);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1001, .len = 1000);
        advance_ms(s, 10);
        expect_sent(s, .seq = 2001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 3001);
}

/* A timer that comes late, as on a busy machine: what should have left meanwhile does, and the rate
 * is kept. */
static void pacing_makes_good_what_a_late_timer_missed(void **state)
{
        struct scene *s = *state;

        s->opts.max_pacing_rate = 1000000;
        app_sets(s);
        s->tc->cwnd = 100000;
        app_writes(s, 60000);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_silence(s);
        s->now += 10 * NS_PER_MS; /* ten segments' time */
        advance_ms(s, 0);
        for (uint32_t at = 1001; at < 11001; at += 1000)
                expect_sent(s, .seq = at, .len = 1000);
        expect_silence(s);
        /* So much is not made good: CATCH_UP, and the one that was waited for. */
        s->now += 100 * NS_PER_MS;
        advance_ms(s, 0);
        for (uint32_t at = 11001; at < 32001; at += 1000)
                expect_sent(s, .seq = at, .len = 1000);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 32001);
        forget_sent(s);
}

/* ... and no more than the application lets leave back to back. */
static void a_burst_is_as_long_as_the_application_says(void **state)
{
        struct scene *s = *state;

        s->opts.max_pacing_rate = 1000000;
        s->opts.pace_burst = 3000;
        app_sets(s);
        s->tc->cwnd = 100000;
        s->now += 100 * NS_PER_MS;
        app_writes(s, 60000);
        for (uint32_t at = 1; at < 3001; at += 1000)
                expect_sent(s, .seq = at, .len = 1000);
        expect_silence(s);
        s->now += 100 * NS_PER_MS;
        advance_ms(s, 0);
        for (uint32_t at = 3001; at < 6001; at += 1000)
                expect_sent(s, .seq = at, .len = 1000);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 6001);
        forget_sent(s);
}

/* A cork holds the short segment at the end for 200 ms, not until pacing lets the next full
 * one go. */
static void pacing_does_not_push_what_is_corked(void **state)
{
        struct scene *s = *state;

        s->opts.max_pacing_rate = 100000;
        s->opts.cork = 1;
        app_sets(s);
        app_writes(s, 2500);
        expect_sent(s, .seq = 1, .len = 1000);
        advance_ms(s, 10);
        expect_sent(s, .seq = 1001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 2001);
        advance_ms(s, 150);
        expect_silence(s);
        advance_ms(s, 50);
        expect_sent(s, .seq = 2001, .len = 500);
        peer_sends(s, .seq = 1, .ack = 2501);
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

int main(void)
{
        static const struct scene_setup user_timeout = {.user_timeout_ms = 7000},
                                        lossless = {.lossless = true, .sack = true},
                                        paced = {.wnd = 65535, .sndbuf = 1u << 18};
        const struct CMUnitTest tests[] = {
                scenario(timeout_repeats_the_first_segment, established, &reno),
                scenario(small_segments_lost_go_again_as_one, established, &reno),
                scenario(small_segments_lost_go_again_as_one, established, &sack),
                scenario(what_was_lost_is_gathered_up_to_what_arrived, established, &sack),
                scenario(silence_ends_the_connection, established, NULL),
                scenario(user_timeout_ends_it_sooner, established, &user_timeout),
                scenario(user_timeout_is_kept_to, established, &user_timeout),
                scenario(user_timeout_before_a_closed_window_is_kept_to, established,
                         &user_timeout),
                scenario(user_timeout_begins_again_as_the_window_opens, established, &user_timeout),
                scenario(user_timeout_counts_from_the_last_answer, established, &user_timeout),
                scenario(user_timeout_counts_from_the_last_answer_in_a_stream, established,
                         &user_timeout),
                scenario(user_timeout_does_not_wait_for_a_window, established, &user_timeout),
                scenario(third_dupack_retransmits, established, &reno),
                scenario(partial_ack_retransmits_the_next_hole, established, &reno),
                scenario(duplicate_acks_let_new_segments_out, established, &reno),
                scenario(sacked_segments_are_not_repeated, established, &sack),
                scenario(reordering_is_given_time, established, &sack),
                scenario(blocks_told_of_at_once_are_in_order, established, &sack),
                scenario(what_an_ack_moves_over_came_before_what_it_tells_of, established, &sack),
                scenario(what_fills_a_hole_all_at_once_was_late, established, &sack),
                scenario(tail_that_grew_is_probed, established, &sack),
                scenario(probe_takes_the_place_of_the_timeout, established, &sack),
                scenario(probe_in_place_of_the_timeout_stays, established, &sack),
                scenario(slow_start_counts_the_most_in_flight, established, &sack),
                scenario(recovery_sends_more_only_when_repairs_arrive, established, &sack),
                scenario(sending_more_postpones_no_repair, established, &sack),
                scenario(silence_in_recovery_is_probed_once, established, &sack),
                scenario(silence_in_recovery_is_probed_before_an_early_timeout, established, &sack),
                scenario(tail_is_probed_early_where_timeouts_are, established, &sack),
                scenario(early_probe_waits_for_what_round_trips_vary_by, established, &sack),
                scenario(tail_loss_is_probed, established, &sack),
                scenario(recovery_is_paced_by_what_arrives, established, &sack),
                scenario(reneging_is_survived, established, &sack),
                scenario(lossless_timeout_keeps_the_window, established, &lossless),
                scenario(pacing_spreads_segments, established, NULL),
                scenario(pacing_makes_good_what_a_late_timer_missed, established, &paced),
                scenario(a_burst_is_as_long_as_the_application_says, established, &paced),
                scenario(pacing_does_not_push_what_is_corked, established, NULL),
                scenario(dsack_is_counted, established, &sack),
                scenario(a_round_of_dsacks_is_not_remembered_for_ever, established, &sack),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
