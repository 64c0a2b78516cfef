/* The user timeout: RFC 5482, RFC 9293 §3.8.3. */
#include "tests/tcp/scenarios.h"

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

int main(void)
{
        static const struct scene_setup user_timeout = {.user_timeout_ms = 7000};
        const struct CMUnitTest tests[] = {
                scenario(user_timeout_ends_it_sooner, established, &user_timeout),
                scenario(user_timeout_is_kept_to, established, &user_timeout),
                scenario(user_timeout_before_a_closed_window_is_kept_to, established,
                         &user_timeout),
                scenario(user_timeout_begins_again_as_the_window_opens, established, &user_timeout),
                scenario(user_timeout_counts_from_the_last_answer, established, &user_timeout),
                scenario(user_timeout_counts_from_the_last_answer_in_a_stream, established,
                         &user_timeout),
                scenario(user_timeout_does_not_wait_for_a_window, established, &user_timeout),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
