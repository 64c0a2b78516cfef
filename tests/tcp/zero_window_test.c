/* Closed and shrunken windows, and probes of them: RFC 9293 §3.8.6.1, §3.8.6.2. */
#include "tests/tcp/scenarios.h"

/* RFC 9293 §3.8.6.1: MUST-35, -36, SHLD-29, -30; MUST-37. Without data, as Linux. */
static void zero_window_is_probed_with_back_off(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        app_writes(s, 100);
        expect_silence(s);
        advance_ms(s, 199);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 0, .ack = 1);
        for (uint32_t wait = 400, i = 0; i < 20; i++, wait = MIN(wait * 2, 120000)) {
                peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
                advance_ms(s, wait - 1);
                expect_silence(s);
                advance_ms(s, 1);
                expect_sent(s, .seq = 0, .ack = 1);
        }
        expect_state(s, TCPS_ESTABLISHED);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 1, .len = 100);
        peer_sends(s, .seq = 1, .ack = 101);
        advance_ms(s, 1000);
        expect_silence(s);
}

/* As Linux: beyond an edge that went back nothing of ours would be taken, and no acknowledgement
 * with it. */
static void acks_stay_inside_a_window_that_shrank(void **state)
{
        struct scene *s = *state;

        app_writes(s, 3000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1, .wnd = 500, .len = 10);
        advance_ms(s, 40);
        expect_sent(s, .seq = 501, .ack = 11);
        peer_sends(s, .seq = 11, .ack = 1001, .wnd = 2000, .len = 10);
        advance_ms(s, 40);
        expect_sent(s, .seq = 3001, .ack = 21);
        peer_sends(s, .seq = 21, .ack = 3001);
}

/* As Linux: what comes beyond a gap has a higher number, and what the peer sends after it from
 * below the gap is newer all the same. */
static void what_acknowledges_more_tells_the_window_below_a_gap(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1001, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 1);
        app_writes(s, 100);
        expect_sent(s, .seq = 1, .len = 100);
        peer_sends(s, .seq = 1, .ack = 101, .zero_wnd = true);
        app_writes(s, 100);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 101, .wnd = 5000);
        expect_sent(s, .seq = 101, .len = 100);
        peer_sends(s, .seq = 1, .ack = 201);
        peer_sends(s, .seq = 1, .ack = 101, .zero_wnd = true); /* but not what is old */
        app_writes(s, 100);
        expect_sent(s, .seq = 201, .len = 100);
        peer_sends(s, .seq = 1, .ack = 301, .len = 1000);
        forget_sent(s);
}

/* A peer that took the question for nothing new has no room for the answer, either, until it reads:
 * and says so by itself. */
static void a_question_about_the_window_leaves_no_trace(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        app_writes(s, 100);
        app_closes(s);
        advance_ms(s, 200);
        expect_sent(s, .seq = 0, .ack = 1);
        assert_int_equal(s->tc->snd_nxt, s->tc->snd_una);
        peer_sends(s, .seq = 1, .ack = 1, .wnd = 40);
        expect_silence(s);
        advance_ms(s, 400); /* a window that is only too small takes data */
        expect_sent(s, .seq = 1, .len = 40);
        peer_sends(s, .seq = 1, .ack = 41, .wnd = 1000);
        expect_sent(s, .seq = 41, .len = 60, .flags = F);
        peer_sends(s, .seq = 1, .ack = 102);
        forget_sent(s);
}

/* Where nothing is lost it is a byte. The probe that the peer did not take goes again with what
 * follows, not as a hole to be repaired. */
static void opened_window_takes_the_probe_again(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        app_writes(s, 100);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1, .len = 1);
        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 1, .len = 100);
        peer_sends(s, .seq = 1, .ack = 101);
}

/* SHLD-16, MUST-34: the window shrank over what is in flight. */
static void shrunken_window_is_survived(void **state)
{
        struct scene *s = *state;

        app_writes(s, 3000);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_sent(s, .seq = 1001, .len = 1000);
        expect_sent(s, .seq = 2001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 1001, .zero_wnd = true);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1001, .len = 1);
        peer_sends(s, .seq = 1, .ack = 1001, .wnd = 5000);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 3001, .wnd = 5000);
}

/* SHLD-16: what the window still takes of the first is what goes again. */
static void what_is_lost_is_cut_to_a_shrunken_window(void **state)
{
        struct scene *s = *state;

        app_writes(s, 3000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001, .wnd = 100);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1001, .len = 100);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 1101, .wnd = 5000);
        expect_sent(s, .seq = 1101, .len = 900);
        peer_sends(s, .seq = 1, .ack = 3001, .wnd = 5000);
}

/* MUST-66: with the window closed, data is refused, but ACK and RST count. */
static void closed_window_takes_acks_and_resets(void **state)
{
        struct scene *s = *state;

        app_writes(s, 100);
        expect_sent(s, .seq = 1, .len = 100, .ack = 1);
        peer_sends(s, .seq = 1, .ack = 1, .len = 1500);
        peer_sends(s, .seq = 1501, .ack = 1, .len = 1500);
        forget_sent(s);
        peer_sends(s, .seq = 3001, .ack = 101, .len = 1);
        expect_sent(s, .seq = 101, .ack = 3001, .zero_wnd = true);
        assert_int_equal(s->tc->snd_una, SCENE_ISS + 101);
        peer_sends(s, .seq = 3001, .ack = 101, .flags = RA);
        expect_state(s, TCPS_CLOSED);
        app_reads(s, 3000); /* what was received before is still there */
        assert_int_equal(tcp_take_error(s->tc), ECONNRESET);
}

/* A FIN needs no room. Behind it the window is as closed as before it. */
static void closed_window_takes_a_fin(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 1500);
        peer_sends(s, .seq = 1501, .ack = 1, .len = 1500);
        forget_sent(s);
        peer_sends(s, .seq = 3001, .ack = 1, .flags = F);
        advance_ms(s, 50);
        expect_sent(s, .seq = 1, .ack = 3002, .zero_wnd = true);
        expect_state(s, TCPS_CLOSE_WAIT);
        peer_sends(s, .seq = 3010, .ack = 1, .flags = R);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_OUT_OF_WINDOW], 1);
        app_reads(s, 3000);
}

/* SHLD-15: what is new waits for the window, though what is old was sent beyond it. */
static void nothing_new_goes_beyond_a_shrunken_window(void **state)
{
        struct scene *s = *state;

        app_writes(s, 3000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001, .wnd = 1000);
        app_writes(s, 3000);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 3001, .wnd = 3000);
        expect_sent(s, .seq = 3001, .len = 1000);
        expect_sent(s, .seq = 4001, .len = 1000);
        expect_sent(s, .seq = 5001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 6001);
}

/* SHLD-14: what was offered stays so, however small the buffer becomes; the window closes by
 * what arrives. */
static void a_window_once_offered_is_not_taken_back(void **state)
{
        struct scene *s = *state;

        assert_int_equal(s->tc->rcv_adv - s->tc->irs, 3001);
        s->opts.rcvbuf = 1500;
        app_sets(s);
        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        peer_sends(s, .seq = 1001, .ack = 1, .len = 1000);
        advance_ms(s, 500);
        expect_sent(s, .ack = 2001, .wnd = 1000);
        app_reads(s, 2000); /* free are 1500, which moves the edge */
        peer_sends(s, .seq = 2001, .ack = 1, .len = 1000);
        app_reads(s, 1000);
        advance_ms(s, 500);
        forget_sent(s);
        assert_int_equal(s->tc->rcv_adv - s->tc->rcv_nxt, 1500);
}

int main(void)
{
        static const struct scene_setup lossless = {.lossless = true}, small = {.rcvbuf = 3000};
        const struct CMUnitTest tests[] = {
                scenario(zero_window_is_probed_with_back_off, established, NULL),
                scenario(acks_stay_inside_a_window_that_shrank, established, NULL),
                scenario(what_acknowledges_more_tells_the_window_below_a_gap, established, NULL),
                scenario(a_question_about_the_window_leaves_no_trace, established, NULL),
                scenario(opened_window_takes_the_probe_again, established, &lossless),
                scenario(shrunken_window_is_survived, established, NULL),
                scenario(what_is_lost_is_cut_to_a_shrunken_window, established, NULL),
                scenario(closed_window_takes_acks_and_resets, established, &small),
                scenario(closed_window_takes_a_fin, established, &small),
                scenario(nothing_new_goes_beyond_a_shrunken_window, established, NULL),
                scenario(a_window_once_offered_is_not_taken_back, established, &small),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
