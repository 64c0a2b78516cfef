/* Rules of the RFCs that no other scenario has by the way: docs/requirements/tcp.csv. */
#include "tests/tcp/scenarios.h"

static const struct scene_setup small = {.rcvbuf = 3000}, timestamps = {.ts = true},
                                plain_sack = {.sack = true}, scaled = {.wscale = 3, .wnd = 1000},
                                keepalive = {.keepalive = true},
                                reno = {.reno = true};

/* MUST-66: urgent data is announced by a segment that the closed window refuses, and by one without data. */
static void a_closed_window_takes_urgent_pointers(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 1500);
        peer_sends(s, .seq = 1501, .ack = 1, .len = 1500);
        forget_sent(s);
        assert_false(s->tc->events & TCP_EV_URGENT);
        peer_sends(s, .seq = 3001, .ack = 1, .flags = TCP_ACK | TCP_URG, .urg = 10);
        assert_true(s->tc->events & TCP_EV_URGENT);
        assert_int_equal(tcp_recv_urgent(&s->rig->t, s->tc, false), -EAGAIN);
        app_reads(s, 3000);
        forget_sent(s);
}

/* MUST-31: any number of bytes may be urgent; the last is the one that is told of. */
static void urgent_data_may_be_long(void **state)
{
        struct scene *s = *state;

        app_writes_urgent(s, 5000);
        for (uint32_t i = 0; i < 5; i++) {
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000, .flags = TCP_ACK | TCP_URG);
                assert_int_equal(s->last.urg, 5000 - 1000 * i);
        }
        peer_sends(s, .seq = 1, .ack = 5001);
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

/* MUST-25: nobody asks unless the application wants it. */
static void a_silent_connection_is_left_alone(void **state)
{
        struct scene *s = *state;

        advance_ms(s, 7 * 24 * 3600 * 1000);
        expect_silence(s);
        expect_state(s, TCPS_ESTABLISHED);
}

/* MUST-27 */
static void keepalive_has_the_times_that_it_is_given(void **state)
{
        struct scene *s = *state;

        s->opts.keepidle_s = 10;
        s->opts.keepintvl_s = 3;
        s->opts.keepcnt = 2;
        app_sets(s);
        advance_ms(s, 9999);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 0, .ack = 1);
        advance_ms(s, 3000);
        expect_sent(s, .seq = 0, .ack = 1);
        expect_silence(s);
        advance_ms(s, 3000);
        expect_sent(s, .seq = 1, .ack = 1, .flags = RA);
        expect_state(s, TCPS_CLOSED);
}

/* RFC 6298 §5.1 to 5.3: it runs from the first segment, begins anew when something is acknowledged, and ends
 * with the last. */
static void the_timer_begins_anew_with_each_acknowledgement(void **state)
{
        struct scene *s = *state;

        app_writes(s, 2000);
        forget_sent(s);
        advance_ms(s, 150);
        peer_sends(s, .seq = 1, .ack = 1001);
        advance_ms(s, s->tc->rto / NS_PER_MS - 1);
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

/* RFC 2018 §2: what was not agreed upon is not sent. */
static void without_agreement_no_block_is_sent(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 501, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 1);
        assert_int_equal(s->last.nsack, 0);
        assert_false(s->last.sack_ok);
        peer_sends(s, .seq = 1, .ack = 1, .len = 500);
        forget_sent(s);
        app_reads(s, 1000);
}

static void what_was_agreed_upon_is_in_no_other_segment(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10);
        expect_sent(s, .seq = 1, .len = 10);
        assert_false(s->last.sack_ok);
        assert_int_equal(s->last.mss, 0);
        assert_int_equal(s->last.wscale, TCP_NO_WSCALE);
        peer_sends(s, .seq = 1, .ack = 11);
}

/* RFC 7323 §2.2: the window of the SYN-ACK is as it stands; those that follow are scaled. */
static void the_window_of_a_syn_is_not_scaled(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 0, .ack = 1, .flags = SA, .mss = 1000, .wscale = 3, .wnd = 1000);
        expect_sent(s, .seq = 1, .ack = 1);
        assert_int_equal(s->tc->snd_wnd, 1000);
        peer_sends(s, .seq = 1, .ack = 1, .wnd = 1000);
        assert_int_equal(s->tc->snd_wnd, 8000);
}

/* RFC 7323 §5.2, §5.5: a reset is good however old it looks, and after 24 days of silence any time is. */
static void an_old_looking_reset_is_taken(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 10, .tsval = 9000);
        app_reads(s, 10);
        forget_sent(s);
        peer_sends(s, .seq = 11, .ack = 1, .flags = RA, .tsval = 1);
        expect_state(s, TCPS_CLOSED);
}

static void after_24_days_any_time_is_good(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 10, .tsval = 9000);
        advance_ms(s, 25u * 24 * 3600 * 1000);
        forget_sent(s);
        peer_sends(s, .seq = 11, .ack = 1, .len = 10, .tsval = 1);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_PAWS], 0);
        app_reads(s, 20);
        forget_sent(s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(a_closed_window_takes_urgent_pointers, established, &small),
                scenario(urgent_data_may_be_long, established, NULL),
                scenario(nothing_new_goes_beyond_a_shrunken_window, established, NULL),
                scenario(a_silent_connection_is_left_alone, established, NULL),
                scenario(keepalive_has_the_times_that_it_is_given, established, &keepalive),
                scenario(the_timer_begins_anew_with_each_acknowledgement, established, NULL),
                scenario(repeated_timeouts_halve_once, established, &reno),
                scenario(without_agreement_no_block_is_sent, established, NULL),
                scenario(what_was_agreed_upon_is_in_no_other_segment, established, &plain_sack),
                scenario(the_window_of_a_syn_is_not_scaled, syn_sent, &scaled),
                scenario(an_old_looking_reset_is_taken, established, &timestamps),
                scenario(after_24_days_any_time_is_good, established, &timestamps),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
