/* The send buffer: what it takes, how writes become segments, and when there is room again. */
#include "tests/tcp/scenarios.h"

static void full_buffer_refuses_and_tells_when_there_is_room(void **state)
{
        struct scene *s = *state;
        struct span span[8];
        int got, total = 0;

        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        while ((got = tcp_send_reserve(&s->rig->t, s->tc, 500, span, 8)) > 0) {
                tcp_send_commit(&s->rig->t, s->tc, (size_t)got, false, false, s->now);
                total += got;
        }
        assert_int_equal(got, 0);
        assert_true(total >= 6000 && total <= 8192); /* frames count whole */
        assert_int_equal(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT, 0);
        s->tc->events = 0;
        peer_sends(s, .seq = 1, .ack = 1, .wnd = 60000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1 + (uint32_t)total, .wnd = 60000);
        assert_true(s->tc->events & TCP_EV_WRITABLE);
        assert_true(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT);
        forget_sent(s);
}

/* Segments longer than a small frame leave whole however small the buffer is; its limit is one of
 * bytes, round after round. */
static void small_buffer_sends_long_segments(void **state)
{
        struct scene *s = *state;
        struct span span[8];

        for (uint32_t at = 1; at < 200000; at += 8000) {
                app_writes(s, 8000);
                expect_sent(s, .seq = at, .len = 4000);
                expect_sent(s, .seq = at + 4000, .len = 4000);
                assert_int_equal(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT, 0);
                assert_int_equal(tcp_send_reserve(&s->rig->t, s->tc, 4000, span, 8), 0);
                s->tc->events = 0;
                peer_sends(s, .seq = 1, .ack = at + 8000, .wnd = 60000);
                assert_true(s->tc->events & TCP_EV_WRITABLE);
                assert_true(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT);
        }
}

static int writes_what_is_taken(struct scene *s, size_t want, bool more)
{
        struct span span[8];
        int got = tcp_send_reserve(&s->rig->t, s->tc, want, span, 8);

        if (got <= 0)
                return got;
        for (int i = 0, done = 0; done < got; done += (int)span[i++].len)
                for (uint32_t j = 0; j < span[i].len; j++)
                        span[i].ptr[j] =
                                scene_byte((uint32_t)(1 + s->written) + (uint32_t)done + j);
        tcp_send_commit(&s->rig->t, s->tc, (size_t)got, more, false, s->now);
        s->written += (uint64_t)got;
        return got;
}

static bool appends(struct scene *s, uint32_t n)
{
        uint8_t b[1000];

        for (uint32_t i = 0; i < n; i++)
                b[i] = scene_byte((uint32_t)(1 + s->written) + i);
        if (!tcp_send_append(&s->rig->t, s->tc, b, n))
                return false;
        s->written += n;
        return true;
}

/* Whoever polls now sleeps, though no write was refused. */
static void bytes_that_lengthen_the_last_segment_fill_it_too(void **state)
{
        struct scene *s = *state;

        app_writes(s, 1000);
        forget_sent(s);
        assert_int_equal(writes_what_is_taken(s, 100, false), 100); /* Nagle holds it back */
        while (tcp_poll_events(&s->rig->t, s->tc) & POLLOUT)
                if (!appends(s, 400))
                        assert_int_equal(writes_what_is_taken(s, 400, false), 400);
        s->tc->events = 0;
        peer_sends(s, .seq = 1, .ack = 1001, .wnd = 65535);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1 + (uint32_t)s->written, .wnd = 65535);
        assert_true(s->tc->events & TCP_EV_WRITABLE);
        assert_true(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT);
        forget_sent(s);
}

static void a_buffer_made_smaller_tells_when_there_is_room(void **state)
{
        struct scene *s = *state;

        app_writes(s, 4000);
        assert_true(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT);
        s->opts.sndbuf = 4800;
        app_sets(s);
        assert_int_equal(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT, 0);
        forget_sent(s);
        s->tc->events = 0;
        peer_sends(s, .seq = 1, .ack = 4001, .wnd = 65535);
        assert_true(s->tc->events & TCP_EV_WRITABLE);
        forget_sent(s);
}

/* Of a large buffer it is not a third that has to be free: what is written then leaves as
 * one burst. */
static void large_buffer_is_refilled_in_small_parts(void **state)
{
        struct scene *s = *state;
        int got, total = 0;

        s->tc->cwnd = s->tc->snd_wnd = 2 << 20;
        while ((got = writes_what_is_taken(s, 8000, false)) > 0)
                total += got;
        assert_true(total >= 1000 * 1000 && total <= 1 << 20);
        forget_sent(s);
        assert_int_equal(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT, 0);
        s->tc->events = 0;
        peer_sends(s, .seq = 1, .ack = 200001, .wnd = 60000);
        assert_int_equal(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT, 0);
        peer_sends(s, .seq = 1, .ack = 320001, .wnd = 60000);
        assert_true(s->tc->events & TCP_EV_WRITABLE);
        assert_true(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT);
        forget_sent(s);
}

/* TCP_NOTSENT_LOWAT, as Linux has it: a write is cut where so much has not been sent, and there is
 * room again when less than half of it has not. */
static void unsent_mark_cuts_a_write(void **state)
{
        struct scene *s = *state;

        s->opts.notsent_lowat = 2000;
        app_sets(s);
        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        assert_int_equal(writes_what_is_taken(s, 10000, false), 2000);
        assert_int_equal(writes_what_is_taken(s, 10, false), 0);
        assert_int_equal(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT, 0);
        s->tc->events = 0;
        peer_sends(s, .seq = 1, .ack = 1, .wnd = 60000);
        forget_sent(s);
        assert_true(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT);
        assert_true(s->tc->events & TCP_EV_WRITABLE);
        peer_sends(s, .seq = 1, .ack = 2001, .zero_wnd = true);
        assert_int_equal(writes_what_is_taken(s, 900, false), 900);
        assert_true(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT);
        assert_int_equal(writes_what_is_taken(s, 100, false), 100);
        assert_int_equal(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT, 0);
        /* Poll says no, and a write still has its segment. */
        assert_int_equal(writes_what_is_taken(s, 10000, false), 1000);
        assert_int_equal(writes_what_is_taken(s, 10000, false), 0);
        s->opts.notsent_lowat = 0;
        app_sets(s);
        assert_true(s->tc->events & TCP_EV_WRITABLE);
        assert_int_equal(writes_what_is_taken(s, 10000, false), 10000);
        app_aborts(s);
        forget_sent(s);
}

/* What leaves makes room below the mark: the writer is told then, and not by the next ACK, which
 * may be of all there was. First by the window, then in a run behind the first segment, then by the
 * congestion window. */
static void output_below_the_mark_is_told(void **state)
{
        struct scene *s = *state;

        s->opts.notsent_lowat = 8000;
        s->tc->cwnd = 4000;
        app_sets(s);
        s->tc->events = 0;
        assert_int_equal(writes_what_is_taken(s, 20000, false), 8000);
        assert_int_equal(s->tc->events & TCP_EV_WRITABLE, 0);
        advance_ms(s, 1);
        assert_int_equal(s->tc->snd_end - s->tc->snd_nxt, 4000); /* half is not less than half */
        assert_int_equal(s->tc->events & TCP_EV_WRITABLE, 0);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001);
        assert_true(s->tc->events & TCP_EV_WRITABLE);
        s->tc->events = 0;
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 2001);
        assert_int_equal(s->tc->events & TCP_EV_WRITABLE, 0); /* told once */
        app_aborts(s);
        forget_sent(s);
}

/* Who has to wait for the mark has no more to give meanwhile. */
static void unsent_mark_holds_nothing_back(void **state)
{
        struct scene *s = *state;

        s->opts.notsent_lowat = 500;
        app_sets(s);
        assert_int_equal(writes_what_is_taken(s, 400, true), 400);
        advance_ms(s, 1);
        expect_silence(s);
        assert_int_equal(writes_what_is_taken(s, 200, true), 200);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 600);
        peer_sends(s, .seq = 1, .ack = 601);
}

static void reservation_can_be_cut_or_cancelled(void **state)
{
        struct scene *s = *state;
        struct span span[4], again[4];
        int got = tcp_send_reserve(&s->rig->t, s->tc, 3000, span, 4);

        assert_int_equal(got, 3000);
        assert_int_equal(tcp_send_reserve(&s->rig->t, s->tc, 1, again, 4), -EBUSY);
        tcp_send_commit(&s->rig->t, s->tc, 0, false, false, s->now);
        got = tcp_send_reserve(&s->rig->t, s->tc, 3000, span, 4);
        assert_int_equal(got, 3000);
        for (uint32_t i = 0; i < 1200; i++)
                span[0].ptr[i] = scene_byte(1 + i);
        tcp_send_commit(&s->rig->t, s->tc, 1200, false, false, s->now);
        s->written = 1200;
        app_writes(s, 100);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_sent(s, .seq = 1001, .len = 300);
        peer_sends(s, .seq = 1, .ack = 1301);
}

/* Another thread closes while a writer copies: the record waits for the writer. */
static void closing_waits_for_a_writer(void **state)
{
        struct scene *s = *state;
        struct span span[4];

        assert_int_equal(tcp_send_reserve(&s->rig->t, s->tc, 0, span, 4), 0);
        assert_int_equal(tcp_send_reserve(&s->rig->t, s->tc, 3000, span, 4), 3000);
        s->opts.linger_s = 0;
        app_sets(s);
        app_closes(s);
        expect_sent(s, .seq = 1, .ack = 1, .flags = RA);
        advance_ms(s, 1);
        assert_int_equal(s->rig->t.sh->conns.used, 1);
        tcp_send_commit(&s->rig->t, s->tc, 3000, false, false, s->now);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
}

static void many_small_writes_become_full_segments(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        for (int i = 0; i < 100; i++)
                app_writes(s, 64);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 1, .wnd = 60000);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_true(s->tail - s->head <= 7);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 6401);
}

/* What is not acknowledged yet collects, beyond the ends of small frames: a few segments,
 * then one. */
static void small_writes_collect_while_the_peer_is_behind(void **state)
{
        struct scene *s = *state;

        for (int i = 0; i < 40; i++)
                app_writes(s, 1400);
        expect_sent(s, .seq = 1, .len = 1400);
        assert_true(s->tail - s->head <= 8);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1401);
        peer_sends(s, .seq = 1, .ack = 40 * 1400 + 1);
        assert_true(s->tail - s->head <= 2);
        forget_sent(s);
}

/* send(2), MSG_EOR: what is written next is never in the same segment, not when they are sent
 * again either. */
static void records_are_not_joined(void **state)
{
        struct scene *s = *state;

        s->tc->cwnd = 1000;
        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000);
        writes_what_is_taken(s, 300, false);
        tcp_send_end_record(&s->rig->t, s->tc);
        assert_false(appends(s, 50));
        writes_what_is_taken(s, 200, false);
        assert_true(appends(s, 100));
        peer_sends(s, .seq = 1, .ack = 1001);
        expect_sent(s, .seq = 1001, .len = 300);
        expect_sent(s, .seq = 1301, .len = 300);
        advance_ms(s, 300);
        expect_sent(s, .seq = 1001, .len = 300);
        peer_sends(s, .seq = 1, .ack = 1301);
        expect_sent(s, .seq = 1301, .len = 300);
}

static void reset_ends_writing_with_the_right_errors(void **state)
{
        struct scene *s = *state;
        struct span span[1];

        peer_sends(s, .seq = 1, .ack = 1, .flags = RA);
        assert_int_equal(tcp_send_reserve(&s->rig->t, s->tc, 10, span, 1), -ECONNRESET);
        assert_int_equal(tcp_send_reserve(&s->rig->t, s->tc, 10, span, 1), -EPIPE);
        assert_int_equal(tcp_recv_peek(&s->rig->t, s->tc, 0, 10, span, 1), 0);
}

int main(void)
{
        static const struct scene_setup
                sndbuf = {.sndbuf = 8192},
                long_mss = {.sndbuf = 8000, .mss = 4000, .wnd = 60000},
                longest_mss = {.mss = 60000, .wnd = 65535, .sndbuf = 1 << 20, .nagle = true},
                held_back = {.mss = 60000, .wnd = 65535, .sndbuf = 32000, .nagle = true},
                large = {.mss = 4000, .wnd = 60000, .sndbuf = 1 << 20};
        const struct CMUnitTest tests[] = {
                scenario(full_buffer_refuses_and_tells_when_there_is_room, established, &sndbuf),
                scenario(small_buffer_sends_long_segments, established, &long_mss),
                scenario(bytes_that_lengthen_the_last_segment_fill_it_too, established, &held_back),
                scenario(a_buffer_made_smaller_tells_when_there_is_room, established, &held_back),
                scenario(large_buffer_is_refilled_in_small_parts, established, &large),
                scenario(unsent_mark_cuts_a_write, established, NULL),
                scenario(output_below_the_mark_is_told, established, NULL),
                scenario(unsent_mark_holds_nothing_back, established, NULL),
                scenario(small_writes_collect_while_the_peer_is_behind, established, &longest_mss),
                scenario(reservation_can_be_cut_or_cancelled, established, NULL),
                scenario(closing_waits_for_a_writer, established, NULL),
                scenario(many_small_writes_become_full_segments, established, NULL),
                scenario(records_are_not_joined, established, NULL),
                scenario(reset_ends_writing_with_the_right_errors, established, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
