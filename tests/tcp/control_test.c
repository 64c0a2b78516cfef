/* What the application sets while data flows: its receive window, and what it is told of who holds it up. */
#include "tests/tcp/scenarios.h"

static const struct scene_setup small = {.rcvbuf = 3000}, scaled = {.wscale = 7}, far = {.wscale = 7, .sndbuf = 8192};

static void sets_clamp(struct scene *s, uint32_t clamp)
{
        s->opts.window_clamp = clamp;
        app_sets(s);
}

/* The window never goes back on what was promised; what is read beyond the clamp promises nothing new. */
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

/* A buffer that is full, and grows: who waits for the window hears of it at once, and not at its next probe. */
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

/* All is acknowledged, and the peer keeps the frames: no window and no buffer holds the sender up, but a reader. */
static void a_peer_that_does_not_read_is_told_as_that(void **state)
{
        struct scene *s = *state;
        struct frame_pool *p = s->rig->t.frames->region[s->tc->link.tx_region].pool;
        struct tcp_report r;

        app_writes(s, 8000);
        assert_true(s->tc->flags & TCF_SND_FULL);
        forget_sent(s);
        assert_int_equal(s->tc->limit, TCP_LIM_SNDBUF);
        for (uint32_t n = 1; n <= frame_geom_total(p->geom); n++)       /* its receive queue has them */
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

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(a_clamp_can_be_raised_again, established, &scaled),
                scenario(a_clamp_and_a_size_are_two_things, established, &scaled),
                scenario(a_larger_buffer_is_told_at_once, established, &small),
                scenario(a_clamp_that_is_raised_is_told_at_once, established, &small),
                scenario(a_peer_that_does_not_read_is_told_as_that, established, &far),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
