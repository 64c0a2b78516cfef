/* Keepalive: RFC 9293 §3.8.4. */
#include "tests/tcp/scenarios.h"

/* MUST-25 to -29, SHLD-12 */
static void keepalive_asks_and_gives_up(void **state)
{
        struct scene *s = *state;

        advance_ms(s, 7200 * 1000 - 1);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 0, .ack = 1);
        peer_sends(s, .seq = 1, .ack = 1);
        advance_ms(s, 7200 * 1000);
        for (int i = 0; i < 9; i++) {
                expect_sent(s, .seq = 0, .ack = 1);
                expect_silence(s);
                advance_ms(s, 75 * 1000);
        }
        expect_sent(s, .seq = 1, .ack = 1, .flags = RA);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ETIMEDOUT);
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

int main(void)
{
        static const struct scene_setup keepalive = {.keepalive = true};
        const struct CMUnitTest tests[] = {
                scenario(keepalive_asks_and_gives_up, established, &keepalive),
                scenario(a_silent_connection_is_left_alone, established, NULL),
                scenario(keepalive_has_the_times_that_it_is_given, established, &keepalive),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
