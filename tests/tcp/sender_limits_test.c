/* What the application sets while data flows: its receive window, and what it is told of who holds
 * it up. */
#include "tests/tcp/scenarios.h"

static const struct scene_setup small = {.rcvbuf = 3000}, scaled = {.wscale = 7},
                                far = {.wscale = 7, .sndbuf = 8192}, wide = {.wnd = 20000};

static void sets_clamp(struct scene *s, uint32_t clamp)
{
        s->opts.window_clamp = clamp;
        app_sets(s);
}

/* The window never goes back on what was promised; what is read beyond the clamp promises
 * nothing new. */
static void a_clamp_can_be_raised_again(void **state)
{
        struct scene *s = *state;
        uint32_t first = s->tc->rcv_limit;

        sets_clamp(s, 3000);
        assert_int_equal(s->tc->rcv_limit, 3000);
        sets_clamp(s, 20000);
        assert_int_equal(s->tc->rcv_limit, MIN(first, 20000));
        sets_clamp(s, 3000);
        assert_int_equal(s->tc->rcv_limit, 3000);
        sets_clamp(s, 0);
        assert_int_equal(s->tc->rcv_limit, first);
}

static void a_clamp_and_a_size_are_two_things(void **state)
{
        struct scene *s = *state;

        sets_clamp(s, 2000);
        assert_int_equal(s->tc->rcv_limit, 2000);
        s->opts.rcvbuf = 10000;
        app_sets(s);
        assert_int_equal(s->tc->rcv_limit, 2000);
        sets_clamp(s, 0);
        assert_int_equal(s->tc->rcv_limit, 10000);
        sets_clamp(s, 50000);
        assert_int_equal(s->tc->rcv_limit, 10000);
}

/* A buffer that is full, and grows: who waits for the window hears of it at once, and not at its
 * next probe. */
static void a_larger_buffer_is_told_at_once(void **state)
{
        struct scene *s = *state;

        for (uint32_t at = 1; at < 3001; at += 1000)
                peer_sends(s, .seq = at, .ack = 1, .len = 1000);
        turn_ends(s);
        advance_ms(s, 300);
        forget_sent(s);
        s->opts.rcvbuf = 30000;
        app_sets(s);
        expect_sent(s, .seq = 1, .ack = 3001, .wnd = 27000);
        expect_silence(s);
}

static void a_clamp_that_is_raised_is_told_at_once(void **state)
{
        struct scene *s = *state;

        s->opts.rcvbuf = 30000;
        sets_clamp(s, 3000);
        forget_sent(s);
        for (uint32_t at = 1; at < 3001; at += 1000)
                peer_sends(s, .seq = at, .ack = 1, .len = 1000);
        turn_ends(s);
        advance_ms(s, 300);
        forget_sent(s);
        sets_clamp(s, 13000);
        expect_sent(s, .seq = 1, .ack = 3001, .wnd = 10000);
        expect_silence(s);
}

/* All is acknowledged, and the peer keeps the frames: no window and no buffer holds the sender up,
 * but a reader. */
static void a_peer_that_does_not_read_is_told_as_that(void **state)
{
        struct scene *s = *state;
        struct frame_pool *p = s->rig->t.frames->region[s->tc->link.tx_region].pool;
        struct tcp_report r;

        app_writes(s, 8000);
        assert_true(s->tc->flags & TCF_SND_FULL);
        forget_sent(s);
        assert_int_equal(s->tc->limit, TCP_LIM_SNDBUF);
        for (uint32_t n = 1; n <= frame_geom_total(p->geom); n++) /* its receive queue has them */
                if (frame_pool_rec(p, n)->refs != 0)
                        frame_lend(s->rig->t.frames, frame_id(s->tc->link.tx_region, n));
        peer_sends(s, .seq = 1, .ack = 8001, .wnd = 60000);
        assert_true(s->tc->flags & TCF_SND_FULL);
        assert_int_equal(s->tc->limit, TCP_LIM_PEER);
        s->now += 5 * NS_PER_MS;
        tcp_get_report(&s->rig->t, s->tc, &r, s->now);
        assert_int_equal(r.limited[TCP_LIM_PEER], 5 * NS_PER_MS);
        for (uint32_t n = 1; n <= frame_geom_total(p->geom); n++)
                if (frame_pool_rec(p, n)->loans != 0)
                        frame_unlend(s->rig->t.frames, s->tc->link.tx_region, n);
        tcp_frames_back(&s->rig->t, s->tc->link.tx_region);
        assert_false(s->tc->flags & TCF_SND_FULL);
}

/* ---- what a sender keeps to ---- */

static void no_more_is_in_flight_than_the_application_wants(void **state)
{
        struct scene *s = *state;

        s->opts.send_window = 2500;
        app_sets(s);
        app_writes(s, 8000);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_sent(s, .seq = 1001, .len = 1000);
        expect_silence(s); /* 500 are less than half: not worth a segment */
        assert_int_equal(s->tc->limit, TCP_LIM_CLAMP);
        peer_sends(s, .seq = 1, .ack = 1001);
        expect_sent(s, .seq = 2001, .len = 1000);
        expect_silence(s);
        s->opts.send_window = 4000;
        app_sets(s);
        peer_sends(s, .seq = 1, .ack = 2001);
        for (uint32_t at = 3001; at < 6001; at += 1000)
                expect_sent(s, .seq = at, .len = 1000);
        expect_silence(s);
        s->opts.send_window = 0;
        app_sets(s);
        peer_sends(s, .seq = 1, .ack = 3001);
        expect_sent(s, .seq = 6001, .len = 1000);
        expect_sent(s, .seq = 7001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 8001);
        expect_silence(s);
}

/* Less than a segment, set while more is in flight: nothing is taken back, and what follows
 * fits in. */
static void a_smaller_limit_takes_nothing_back(void **state)
{
        struct scene *s = *state;

        app_writes(s, 3000);
        for (uint32_t at = 1; at < 3001; at += 1000)
                expect_sent(s, .seq = at, .len = 1000);
        s->opts.send_window = 600;
        app_sets(s);
        app_writes(s, 1000);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 2001, .len = 100);
        turn_ends(s);
        advance_ms(s, 40);
        expect_sent(s, .seq = 3001, .ack = 101); /* at SND.NXT: the edge did not go back */
        peer_sends(s, .seq = 101, .ack = 3001);
        expect_sent(s, .seq = 3001, .ack = 101, .len = 600);
        peer_sends(s, .seq = 101, .ack = 3601);
        expect_sent(s, .seq = 3601, .ack = 101, .len = 400);
        peer_sends(s, .seq = 101, .ack = 4001);
        expect_silence(s);
}

/* The peer may offer less. */
static void the_smaller_of_both_windows_holds(void **state)
{
        struct scene *s = *state;

        s->opts.send_window = 5000;
        app_sets(s);
        peer_sends(s, .seq = 1, .ack = 1, .wnd = 2000);
        app_writes(s, 4000);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_sent(s, .seq = 1001, .len = 1000);
        expect_silence(s);
        assert_int_equal(s->tc->limit, TCP_LIM_RWND);
        peer_sends(s, .seq = 1, .ack = 2001, .wnd = 20000);
        expect_sent(s, .seq = 2001, .len = 1000);
        expect_sent(s, .seq = 3001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 4001);
}

/* The timeouts of a segment of which nothing is ever heard again, in milliseconds from the
 * one before. */
static void expect_timeouts(struct scene *s, const uint32_t *ms, unsigned n)
{
        for (unsigned i = 0; i < n; i++) {
                advance_ms(s, ms[i] - 1);
                expect_silence(s);
                advance_ms(s, 1);
                expect_sent(s, .len = 100);
        }
}

static void a_timeout_keeps_to_its_bounds(void **state)
{
        static const uint32_t doubled[] = {20, 40, 80, 160, 320, 640, 1000, 1000, 1000};
        struct scene *s = *state;

        s->opts.rto_min_us = 20000;
        s->opts.rto_max_ms = 1000;
        app_sets(s);
        app_writes(s, 1000);
        peer_sends(s, .seq = 1, .ack = 1001); /* at once: a round trip of nothing */
        app_writes(s, 100);                   /* small enough for any path */
        forget_sent(s);
        assert_int_equal(s->tc->rto, 20 * NS_PER_MS);
        expect_timeouts(s, doubled, ARRAY_LEN(doubled));
}

static void an_acknowledgement_waits_no_longer_than_wanted(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 10);
        advance_ms(s, 39);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .ack = 11);
        s->opts.ack_delay_us = 5000;
        app_sets(s);
        peer_sends(s, .seq = 11, .ack = 1, .len = 10);
        advance_ms(s, 4);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .ack = 21);
}

/* So many bytes, or the delay; not the end of a turn, nor every second segment. */
static void so_many_bytes_are_acknowledged_together(void **state)
{
        struct scene *s = *state;

        s->opts.ack_every = 3000;
        app_sets(s);
        for (uint32_t at = 1; at < 6001; at += 1000) {
                peer_sends(s, .seq = at, .ack = 1, .len = 1000);
                turn_ends(s);
                if (at % 3000 == 2001)
                        expect_sent(s, .ack = at + 1000);
                expect_silence(s);
        }
        peer_sends(s, .seq = 6001, .ack = 1, .len = 1000);
        advance_ms(s, 39);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .ack = 7001);
        s->opts.ack_every = 0;
        app_sets(s);
        peer_sends(s, .seq = 7001, .ack = 1, .len = 1000);
        peer_sends(s, .seq = 8001, .ack = 1, .len = 1000);
        turn_ends(s);
        expect_sent(s, .ack = 9001);
        expect_silence(s);
}

static void no_more_is_unsent_than_the_application_wants(void **state)
{
        struct scene *s = *state;
        struct tcp *t = &s->rig->t;
        struct span span[4];

        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        s->opts.unsent_most = 2345;
        app_sets(s);
        assert_int_equal(tcp_send_room(t, s->tc), 2345);
        app_writes(s, 2300);
        assert_true(tcp_poll_events(t, s->tc) & POLLOUT);
        assert_int_equal(tcp_send_reserve(t, s->tc, 100, span, 4), 45);
        tcp_send_commit(t, s->tc, 45, false, false, s->now);
        assert_int_equal(tcp_unsent(s->tc), 2345);
        assert_false(tcp_poll_events(t, s->tc) & POLLOUT);
        assert_int_equal(tcp_send_reserve(t, s->tc, 1, span, 4), 0);
        s->tc->events = 0;
        peer_sends(s, .seq = 1, .ack = 1, .wnd = 1000);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_true(s->tc->events & TCP_EV_WRITABLE);
        assert_int_equal(tcp_send_room(t, s->tc), 1000);
        s->opts.unsent_most = 100; /* less than there is: nothing is taken back */
        app_sets(s);
        assert_int_equal(tcp_send_room(t, s->tc), 0);
        s->opts.unsent_most = 0;
        app_sets(s);
        assert_true(tcp_send_room(t, s->tc) > 2345);
        app_aborts(s);
        forget_sent(s);
}

/* Unsent data is cut anew. */
static void segments_are_as_small_as_the_application_wants(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        app_writes(s, 2000);
        s->opts.maxseg = 500;
        app_sets(s);
        peer_sends(s, .seq = 1, .ack = 1, .wnd = 60000);
        for (uint32_t at = 1; at < 2001; at += 500)
                expect_sent(s, .seq = at, .len = 500);
        peer_sends(s, .seq = 1, .ack = 2001);
        s->opts.maxseg = 0;
        app_sets(s);
        app_writes(s, 2000);
        expect_sent(s, .seq = 2001, .len = 1000);
        expect_sent(s, .seq = 3001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 4001);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(a_clamp_can_be_raised_again, established, &scaled),
                scenario(a_clamp_and_a_size_are_two_things, established, &scaled),
                scenario(a_larger_buffer_is_told_at_once, established, &small),
                scenario(a_clamp_that_is_raised_is_told_at_once, established, &small),
                scenario(a_peer_that_does_not_read_is_told_as_that, established, &far),
                scenario(no_more_is_in_flight_than_the_application_wants, established, &wide),
                scenario(a_smaller_limit_takes_nothing_back, established, &wide),
                scenario(the_smaller_of_both_windows_holds, established, &wide),
                scenario(a_timeout_keeps_to_its_bounds, established, &wide),
                scenario(an_acknowledgement_waits_no_longer_than_wanted, established, &wide),
                scenario(so_many_bytes_are_acknowledged_together, established, &wide),
                scenario(no_more_is_unsent_than_the_application_wants, established, &wide),
                scenario(segments_are_as_small_as_the_application_wants, established, &wide),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
