/* Pacing (tcp/tcp_pace.c). */
#include "tests/tcp/scenarios.h"

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

int main(void)
{
        static const struct scene_setup paced = {.wnd = 65535, .sndbuf = 1u << 18};
        const struct CMUnitTest tests[] = {
                scenario(pacing_spreads_segments, established, NULL),
                scenario(pacing_makes_good_what_a_late_timer_missed, established, &paced),
                scenario(a_burst_is_as_long_as_the_application_says, established, &paced),
                scenario(pacing_does_not_push_what_is_corked, established, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
