/* A peer of this host that says that it has closed: SEG_CLOSED. */
#include "tests/tcp/scenarios.h"

#define IN  (POLLIN | POLLRDNORM)
#define OUT (POLLOUT | POLLWRNORM)

static void what_a_closed_peer_is_sent_is_refused(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .flags = F, .urg = SEG_CLOSED);
        turn_ends(s);
        expect_sent(s, .seq = 1, .ack = 2);
        tcp_refuse_sent(&s->rig->t, s->tc);
        expect_state(s, TCPS_CLOSE_WAIT);
        expect_poll(s, IN | POLLRDHUP | OUT);
        app_writes(s, 5);
        expect_sent(s, .seq = 1, .len = 5, .ack = 2);
        tcp_refuse_sent(&s->rig->t, s->tc);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), EPIPE);
        expect_silence(s);
        peer_sends(s, .seq = 2, .flags = R); /* its reset, too late to matter */
        expect_silence(s);
}

static void a_peer_closes_after_its_end(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 2, .ack = 1, .urg = SEG_CLOSED);
        expect_state(s, TCPS_CLOSE_WAIT);
        app_writes(s, 5);
        expect_sent(s, .seq = 1, .len = 5, .ack = 2);
        tcp_refuse_sent(&s->rig->t, s->tc);
        expect_state(s, TCPS_CLOSED);
}

static void what_is_in_flight_to_a_peer_that_closes_is_refused(void **state)
{
        struct scene *s = *state;

        app_writes(s, 5);
        expect_sent(s, .seq = 1, .len = 5, .ack = 1);
        peer_sends(s, .seq = 1, .ack = 1, .flags = F, .urg = SEG_CLOSED);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), EPIPE);
}

static void a_close_says_so(void **state)
{
        struct scene *s = *state;

        app_closes(s);
        expect_sent(s, .seq = 1, .ack = 1, .flags = F, .urg = SEG_CLOSED);
}

static void a_close_after_the_end_says_so(void **state)
{
        struct scene *s = *state;

        app_shuts_send(s);
        expect_sent(s, .seq = 1, .ack = 1, .flags = F);
        assert_int_equal(s->last.urg, 0);
        app_closes(s);
        expect_sent(s, .seq = 2, .ack = 1, .urg = SEG_CLOSED);
}

/* Over a network nobody hears of it, and nobody is believed. */
static void only_where_nothing_is_lost(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .flags = F, .urg = SEG_CLOSED);
        app_writes(s, 5);
        tcp_refuse_sent(&s->rig->t, s->tc);
        expect_state(s, TCPS_CLOSE_WAIT);
        app_closes(s);
        forget_sent(s);
        assert_int_equal(s->last.urg, 0);
}

int main(void)
{
        static const struct scene_setup lossless = {.lossless = true};
        const struct CMUnitTest tests[] = {
                scenario(what_a_closed_peer_is_sent_is_refused, established, &lossless),
                scenario(a_peer_closes_after_its_end, close_wait, &lossless),
                scenario(what_is_in_flight_to_a_peer_that_closes_is_refused, established,
                         &lossless),
                scenario(a_close_says_so, established, &lossless),
                scenario(a_close_after_the_end_says_so, established, &lossless),
                scenario(only_where_nothing_is_lost, established, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
