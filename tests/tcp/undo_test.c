/* Losses that were none: the window is what it was (tcp_undo.c). */
#include "tests/tcp/scenarios.h"

#include "tcp/tcp_cc.h"

static const struct scene_setup plain = {.sack = true}, times = {.sack = true, .ts = true},
                                no_sack = {.ts = true}, bare = {.nagle = false};

/* Ten segments are out, the first is not there, three more are: it is sent again, and the window
 * is smaller. */
static uint32_t seems_lost(struct scene *s)
{
        uint32_t cwnd, before;

        s->tc->srtt = s->tc->min_rtt = 20 * NS_PER_MS;
        app_writes(s, 10000);
        for (uint32_t i = 0; i < 10; i++)
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000);
        before = s->last.tsval;
        cwnd = s->tc->cwnd;
        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 4001}}, .tsecr = before);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->tc->ca_state, CA_RECOVERY);
        assert_true(s->tc->ssthresh < cwnd);
        return cwnd;
}

static void expect_undone(struct scene *s, uint32_t cwnd)
{
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_UNDO], 1);
        assert_true(s->tc->cwnd >= cwnd);
        assert_true(s->tc->ssthresh >= cwnd);
        assert_int_equal(s->tc->lost + s->tc->retx, 0);
        assert_true(s->tc->flags & TCF_REORDER);
}

static void expect_not_undone(struct scene *s, uint32_t cwnd)
{
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_UNDO], 0);
        assert_true(s->tc->ssthresh < cwnd);
}

/* RFC 3522: the echo is of a time before the retransmission, so the first one had only
 * been overtaken. */
static void an_old_echo_undoes(void **state)
{
        struct scene *s = *state;
        uint32_t before = 0, cwnd = seems_lost(s);

        before = s->last.tsval - 20;
        advance_ms(s, 1);
        peer_sends(s, .seq = 1, .ack = 4001, .tsecr = before);
        expect_undone(s, cwnd);
        peer_sends(s, .seq = 1, .ack = 10001, .tsecr = before);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
}

static void the_echo_of_the_retransmission_does_not(void **state)
{
        struct scene *s = *state;
        uint32_t cwnd = seems_lost(s);

        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 10001, .tsecr = s->last.tsval);
        expect_not_undone(s, cwnd);
}

/* An echo of nothing, from a peer that keeps no time. */
static void an_empty_echo_does_not(void **state)
{
        struct scene *s = *state;
        uint32_t cwnd = seems_lost(s);

        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 10001, .tsecr = 0);
        expect_not_undone(s, cwnd);
}

/* RFC 3708: the peer had it twice, as it says even when recovery is over. */
static void a_report_of_the_duplicate_undoes(void **state)
{
        struct scene *s = *state;
        uint32_t cwnd = seems_lost(s);

        peer_sends(s, .seq = 1, .ack = 10001);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
        expect_not_undone(s, cwnd);
        peer_sends(s, .seq = 1, .ack = 10001, .nsack = 1, .sack = {{1, 1001}});
        expect_undone(s, cwnd);
}

/* ... by an acknowledgement that a later one has overtaken: nothing else may come for long. */
static void a_report_that_is_overtaken_undoes_at_once(void **state)
{
        struct scene *s = *state;
        uint32_t cwnd = seems_lost(s);

        peer_sends(s, .seq = 1, .ack = 10001);
        app_writes(s, 1000);
        expect_sent(s, .seq = 10001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 11001);
        expect_not_undone(s, cwnd);
        peer_sends(s, .seq = 1, .ack = 10001, .nsack = 1, .sack = {{1, 1001}});
        expect_undone(s, cwnd);
}

/* Two were sent again, and only one of them for nothing. */
static void a_real_loss_beside_it_does_not(void **state)
{
        struct scene *s = *state;
        uint32_t cwnd = seems_lost(s);

        advance_ms(s, 1);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{5001, 10001}, {1001, 4001}});
        expect_sent(s, .seq = 4001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 4001, .nsack = 2, .sack = {{1, 1001}, {5001, 10001}});
        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 10001);
        expect_not_undone(s, cwnd);
}

/* RFC 4015: the path was slow, nothing is lost, and nothing more is sent again. */
static void a_timeout_too_early_is_undone(void **state)
{
        struct scene *s = *state;
        uint32_t before, cwnd;

        app_writes(s, 5000);
        for (uint32_t i = 0; i < 5; i++)
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000);
        before = s->last.tsval;
        cwnd = s->tc->cwnd;
        s->tc->owed &= (uint8_t)~OWE_TLP;
        s->tc->rtx_kind = RTX_RTO;
        s->tc->rtx_at = s->now + 200 * NS_PER_MS;
        advance_ms(s, 200);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_silence(s);
        assert_int_equal(s->tc->cwnd, 1000);
        peer_sends(s, .seq = 1, .ack = 1001, .tsecr = before);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_UNDO], 1);
        assert_int_equal(s->tc->cwnd, cwnd);
        assert_int_equal(s->tc->lost, 0);
        peer_sends(s, .seq = 1, .ack = 5001, .tsecr = before);
}

static void a_timeout_in_time_is_not(void **state)
{
        struct scene *s = *state;

        app_writes(s, 5000);
        forget_sent(s);
        s->tc->rtx_kind = RTX_RTO;
        s->tc->rtx_at = s->now + 200 * NS_PER_MS;
        advance_ms(s, 200);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 1001, .tsecr = s->last.tsval);
        expect_sent(s, .seq = 1001, .len = 1000);
        expect_sent(s, .seq = 2001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 5001, .tsecr = s->last.tsval);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_UNDO], 0);
}

/* Six segments are out, more is written, and nothing came for so long that the first was
 * sent again. */
static uint32_t seems_silent(struct scene *s)
{
        uint32_t cwnd;

        s->tc->cwnd = 6000;
        app_writes(s, 12000);
        for (uint32_t i = 0; i < 6; i++)
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000);
        cwnd = s->tc->cwnd;
        s->tc->rtx_kind = RTX_RTO;
        s->tc->rtx_at = s->now + 200 * NS_PER_MS;
        advance_ms(s, 200);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_silence(s);
        assert_int_equal(s->tc->ca_state, CA_LOSS);
        assert_int_equal(s->tc->cwnd, 1000);
        return cwnd;
}

static void expect_timeout_undone(struct scene *s, uint32_t cwnd)
{
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_UNDO], 1);
        assert_true(s->tc->cwnd >= cwnd && s->tc->cwnd <= cwnd + 2000);
        assert_true(s->tc->ssthresh >= cwnd);
        assert_int_equal(s->tc->lost + s->tc->retx, 0);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = s->tc->snd_nxt - s->tc->iss);
        forget_sent(s);
        assert_int_equal(s->tc->retrans, 1);
}

/* RFC 5682 §3, as Linux: what was sent once only and was not reported before is acknowledged, so it
 * was on its way. */
static void an_acknowledged_original_undoes_a_timeout(void **state)
{
        struct scene *s = *state;
        uint32_t cwnd = seems_silent(s);

        peer_sends(s, .seq = 1, .ack = 2001);
        expect_timeout_undone(s, cwnd);
}

/* RFC 5682 §2.1: of the first segment nobody knows; instead of the second again go two that
 * are new. */
static void new_segments_ask_whether_a_timeout_was_one(void **state)
{
        struct scene *s = *state;
        uint32_t cwnd = seems_silent(s);

        peer_sends(s, .seq = 1, .ack = 1001);
        expect_sent(s, .seq = 6001, .len = 1000);
        expect_sent(s, .seq = 7001, .len = 1000);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_UNDO], 0);
        peer_sends(s, .seq = 1, .ack = 2001);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_UNDO], 1);
        assert_true(s->tc->cwnd >= cwnd && s->tc->cwnd <= cwnd + 2000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = s->tc->snd_nxt - s->tc->iss);
        forget_sent(s);
        assert_int_equal(s->tc->retrans, 1);
}

/* §2.1 step 3a: they find the others missing. */
static void duplicates_say_that_a_timeout_was_one(void **state)
{
        struct scene *s = *state;
        uint32_t cwnd = seems_silent(s);

        peer_sends(s, .seq = 1, .ack = 1001);
        expect_sent(s, .seq = 6001, .len = 1000);
        expect_sent(s, .seq = 7001, .len = 1000);
        if (s->setup.sack)
                peer_sends(s, .seq = 1, .ack = 1001, .nsack = 1, .sack = {{6001, 7001}});
        else
                peer_sends(s, .seq = 1, .ack = 1001);
        expect_sent(s, .seq = 1001, .len = 1000);
        expect_not_undone(s, cwnd);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 8001);
        expect_not_undone(s, cwnd);
        forget_sent(s);
}

/* Without SACK the second may have been there before the timeout, and the third be missing. */
static void without_sack_one_acknowledgement_is_not_enough(void **state)
{
        struct scene *s = *state;
        uint32_t cwnd = seems_silent(s);

        peer_sends(s, .seq = 1, .ack = 2001);
        expect_sent(s, .seq = 6001, .len = 1000);
        expect_not_undone(s, cwnd);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 2001);
        expect_sent(s, .seq = 2001, .len = 1000);
        expect_not_undone(s, cwnd);
        forget_sent(s);
}

/* §2.1 step 2a: the first was the only one missing, or none was: nobody can tell. */
static void all_at_once_tells_nothing(void **state)
{
        struct scene *s = *state;
        uint32_t cwnd = seems_silent(s);

        peer_sends(s, .seq = 1, .ack = 6001);
        expect_not_undone(s, cwnd);
        forget_sent(s);
}

/* §2.1 step 2b: nothing new may be sent, so what is old goes. */
static void without_anything_new_the_old_goes_again(void **state)
{
        struct scene *s = *state;
        uint32_t cwnd = seems_silent(s);

        peer_sends(s, .seq = 1, .ack = 1001, .wnd = 5000);
        expect_sent(s, .seq = 1001, .len = 1000);
        expect_not_undone(s, cwnd);
        forget_sent(s);
}

/* A way that was away for several timeouts. */
static void the_second_timeout_is_undone_with_the_first(void **state)
{
        struct scene *s = *state;
        uint32_t cwnd = seems_silent(s);

        advance_ms(s, 400);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 1001);
        expect_sent(s, .seq = 6001, .len = 1000);
        expect_sent(s, .seq = 7001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 3001);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_UNDO], 1);
        assert_true(s->tc->cwnd >= cwnd && s->tc->cwnd <= cwnd + 2000);
        forget_sent(s);
        assert_int_equal(s->tc->retrans, 2);
}

/* RFC 8985 §7.4: the tail loss probe repaired a loss. Nothing else was sent again, and it was one
 * all the same. */
static void what_a_tail_loss_probe_repairs_was_lost(void **state)
{
        struct scene *s = *state;
        uint32_t cwnd = s->tc->cwnd;

        s->tc->srtt = s->tc->min_rtt = 20 * NS_PER_MS;
        s->tc->rto = 400 * NS_PER_MS;
        app_writes(s, 4000);
        forget_sent(s);
        advance_ms(s, 43);
        expect_sent(s, .seq = 3001, .len = 1000);
        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 4001, .tsecr = s->last.tsval);
        app_writes(s, 1000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 5001, .tsecr = s->last.tsval);
        expect_not_undone(s, cwnd);
}

/* Four segments, of which nothing comes back: the last is sent again as a probe. */
static uint32_t is_probed(struct scene *s)
{
        s->tc->srtt = s->tc->min_rtt = 20 * NS_PER_MS;
        s->tc->rto = 400 * NS_PER_MS;
        app_writes(s, 4000);
        forget_sent(s);
        advance_ms(s, 43);
        expect_sent(s, .seq = 3001, .len = 1000);
        return s->tc->ssthresh;
}

static void goes_on(struct scene *s)
{
        app_writes(s, 1000);
        forget_sent(s);
        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 5001);
}

/* RFC 8985 §7.4.2: the ACK of all that was in flight may be of the original, late; case 1, the
 * D-SACK says that it was. */
static void a_late_ack_and_a_duplicate_probe_are_no_loss(void **state)
{
        struct scene *s = *state;
        uint32_t ssthresh = is_probed(s);

        advance_ms(s, 21);
        peer_sends(s, .seq = 1, .ack = 4001);
        assert_int_equal(s->tc->ssthresh, ssthresh);
        assert_true(s->tc->tlp.out);
        peer_sends(s, .seq = 1, .ack = 4001, .nsack = 1, .sack = {{3001, 4001}});
        assert_false(s->tc->tlp.out);
        goes_on(s);
        assert_int_equal(s->tc->ssthresh, ssthresh);
        assert_int_equal(s->tc->slow, 0);
        /* A timer sent it, no judgement about what was reordered. */
        assert_int_equal(s->tc->rack.mult, 0);
}

/* Case 2: a peer that knows no D-SACK answers the second of two with a duplicate ACK. */
static void a_late_ack_and_a_duplicate_ack_are_no_loss(void **state)
{
        struct scene *s = *state;
        uint32_t ssthresh = is_probed(s);

        advance_ms(s, 21);
        peer_sends(s, .seq = 1, .ack = 4001);
        peer_sends(s, .seq = 1, .ack = 4001);
        assert_false(s->tc->tlp.out);
        goes_on(s);
        assert_int_equal(s->tc->ssthresh, ssthresh);
}

/* What comes sooner after the probe than any round trip took is not of the probe (§6.2 step 2 has
 * the same): nothing was lost, whether the duplicate is told of or its ACK is lost. */
static void an_ack_too_soon_after_the_probe_is_of_the_original(void **state)
{
        struct scene *s = *state;
        uint32_t ssthresh = is_probed(s);

        advance_ms(s, 10);
        peer_sends(s, .seq = 1, .ack = 4001);
        goes_on(s);
        assert_int_equal(s->tc->ssthresh, ssthresh);
        assert_false(s->tc->tlp.out);
}

/* No duplicate is told of, or another: the probe repaired a loss, and the window pays once, when
 * more is acknowledged. */
static void a_probe_that_was_needed_costs_the_window_once(void **state)
{
        struct scene *s = *state;
        uint32_t ssthresh = is_probed(s), cut;

        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 4001, .nsack = 1, .sack = {{2001, 3001}});
        assert_int_equal(s->tc->ssthresh, ssthresh);
        goes_on(s);
        cut = s->tc->ssthresh;
        assert_true(cut < ssthresh);
        app_writes(s, 1000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 6001);
        assert_int_equal(s->tc->ssthresh, cut);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
}

/* What of the four was lost was not the last alone: recovery pays, and the probe does not a
 * second time. */
static void recovery_ends_what_the_probe_began(void **state)
{
        struct scene *s = *state;
        uint32_t ssthresh = is_probed(s), cut;

        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{3001, 4001}});
        forget_sent(s);
        assert_int_equal(s->tc->ca_state, CA_RECOVERY);
        assert_false(s->tc->tlp.out);
        cut = s->tc->ssthresh;
        assert_true(cut < ssthresh);
        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 4001);
        goes_on(s);
        assert_int_equal(s->tc->ssthresh, cut);
}

/* The D-SACK of a probe says nothing of what recovery sent again. */
static void the_duplicate_of_a_probe_undoes_nothing(void **state)
{
        struct scene *s = *state;
        uint32_t cut;

        is_probed(s);
        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 3001);
        peer_sends(s, .seq = 1, .ack = 3001);
        app_writes(s, 4000);
        forget_sent(s);
        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 4001, .nsack = 1, .sack = {{5001, 8001}});
        expect_sent(s, .seq = 4001, .len = 1000);
        cut = s->tc->ssthresh;
        assert_int_equal(s->tc->ca_state, CA_RECOVERY);
        peer_sends(s, .seq = 1, .ack = 4001, .nsack = 2, .sack = {{3001, 4001}, {5001, 8001}});
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_UNDO], 0);
        assert_int_equal(s->tc->ssthresh, cut);
        peer_sends(s, .seq = 1, .ack = 8001);
        forget_sent(s);
}

/* RFC 9438 §4.9: CUBIC goes on from where it was. */
static void cubic_goes_on_where_it_was(void **state)
{
        struct tcp_conn tc = {.snd_mss = 1000,
                              .cwnd = 100000,
                              .ssthresh = 50000,
                              .srtt = 20 * NS_PER_MS,
                              .cc = TCP_CC_CUBIC};
        struct tcp_conn other;
        nstime now = NS_PER_S;

        (void)state;
        cc_of(&tc)->init(&tc, now);
        for (int i = 0; i < 300; i++)
                cc_of(&tc)->on_ack(&tc, 20000, 20 * NS_PER_MS, now += 4 * NS_PER_MS);
        other = tc;
        cc_of(&tc)->on_loss(&tc, false, now);
        cc_of(&tc)->undo(&tc);
        for (int i = 0; i < 300; i++) {
                cc_of(&tc)->on_ack(&tc, 20000, 20 * NS_PER_MS, now += 4 * NS_PER_MS);
                cc_of(&other)->on_ack(&other, 20000, 20 * NS_PER_MS, now);
        }
        assert_true(tc.cwnd > 100000);
        assert_int_equal(tc.cwnd, other.cwnd);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(an_old_echo_undoes, established, &times),
                scenario(the_echo_of_the_retransmission_does_not, established, &times),
                scenario(an_empty_echo_does_not, established, &times),
                scenario(a_report_of_the_duplicate_undoes, established, &plain),
                scenario(a_report_that_is_overtaken_undoes_at_once, established, &plain),
                scenario(a_real_loss_beside_it_does_not, established, &plain),
                scenario(a_timeout_too_early_is_undone, established, &times),
                scenario(a_timeout_too_early_is_undone, established, &no_sack),
                scenario(a_timeout_in_time_is_not, established, &times),
                scenario(an_acknowledged_original_undoes_a_timeout, established, &plain),
                scenario(new_segments_ask_whether_a_timeout_was_one, established, &plain),
                scenario(new_segments_ask_whether_a_timeout_was_one, established, &bare),
                scenario(duplicates_say_that_a_timeout_was_one, established, &plain),
                scenario(duplicates_say_that_a_timeout_was_one, established, &bare),
                scenario(without_sack_one_acknowledgement_is_not_enough, established, &bare),
                scenario(all_at_once_tells_nothing, established, &plain),
                scenario(all_at_once_tells_nothing, established, &bare),
                scenario(without_anything_new_the_old_goes_again, established, &plain),
                scenario(the_second_timeout_is_undone_with_the_first, established, &plain),
                scenario(the_second_timeout_is_undone_with_the_first, established, &bare),
                scenario(what_a_tail_loss_probe_repairs_was_lost, established, &times),
                scenario(a_late_ack_and_a_duplicate_probe_are_no_loss, established, &plain),
                scenario(a_late_ack_and_a_duplicate_ack_are_no_loss, established, &plain),
                scenario(an_ack_too_soon_after_the_probe_is_of_the_original, established, &plain),
                scenario(a_probe_that_was_needed_costs_the_window_once, established, &plain),
                scenario(recovery_ends_what_the_probe_began, established, &plain),
                scenario(the_duplicate_of_a_probe_undoes_nothing, established, &plain),
                cmocka_unit_test(cubic_goes_on_where_it_was),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
