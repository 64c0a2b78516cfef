/* Blind attacks, and the challenge ACK: RFC 5961. */
#include "tests/tcp/scenarios.h"

/* RFC 5961 §3.2 */
static void reset_must_be_at_the_edge(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 100, .ack = 1, .flags = R);
        expect_sent(s, .seq = 1, .ack = 1);
        expect_state(s, TCPS_ESTABLISHED);
        peer_sends(s, .seq = 0xf0000000u, .ack = 1, .flags = R);
        expect_silence(s);
        peer_sends(s, .seq = 1, .flags = R);
        expect_silence(s);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ECONNRESET);
}

/* RFC 5961 §4.2 */
static void syn_in_a_connection_is_challenged(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .flags = S);
        expect_sent(s, .seq = 1, .ack = 1);
        advance_ms(s, 500);
        peer_sends(s, .seq = 0, .ack = 1, .flags = SA);
        expect_sent(s, .seq = 1, .ack = 1);
        expect_state(s, TCPS_ESTABLISHED);
}

/* RFC 5961 §7 */
static void challenges_are_limited(void **state)
{
        struct scene *s = *state;

        for (int i = 0; i < 150; i++)
                peer_sends(s, .seq = 100, .flags = R);
        expect_sent(s, .seq = 1, .ack = 1);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_CHALLENGE_RATE], 149);
        advance_ms(s, 499);
        peer_sends(s, .seq = 1, .ack = 102, .len = 5); /* of whatever kind, as Linux */
        expect_silence(s);
        advance_ms(s, 1);
        peer_sends(s, .seq = 100, .flags = S);
        expect_sent(s, .seq = 1, .ack = 1);
}

/* RFC 5961 §5.2, RFC 9293: fifth */
static void ack_of_the_future_or_the_distant_past_is_refused(void **state)
{
        struct scene *s = *state;

        app_writes(s, 100);
        expect_sent(s, .seq = 1, .len = 100);
        peer_sends(s, .seq = 1, .ack = 102, .len = 5);
        expect_sent(s, .seq = 101, .ack = 1);
        peer_sends(s, .seq = 1, .ack = 1u - 70000, .len = 5);
        expect_silence(s); /* challenges_are_limited() */
        s->tc->answered_ms = 0;
        peer_sends(s, .seq = 1, .ack = 1u - 70000, .len = 5);
        expect_sent(s, .seq = 101, .ack = 1);
        assert_int_equal(tcp_recv_avail(s->tc), 0);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_BAD_ACK], 3);
        peer_sends(s, .seq = 1, .ack = 101, .len = 5);
        assert_int_equal(tcp_recv_avail(s->tc), 5);
        advance_ms(s, 40);
        expect_sent(s, .seq = 101, .ack = 6);
}

/* An ACK of an ACK of an ACK must end somewhere. */
static void bare_acks_outside_the_window_are_not_all_answered(void **state)
{
        struct scene *s = *state;

        for (int i = 0; i < 20; i++)
                peer_sends(s, .seq = 0x10000000, .ack = 1);
        expect_sent(s, .seq = 1, .ack = 1);
        expect_silence(s);
        advance_ms(s, 500);
        peer_sends(s, .seq = 0x10000000, .ack = 1);
        expect_sent(s, .seq = 1, .ack = 1);
}

/* SHLD-17: data beyond the edge is not acknowledged for an hour, and the peer is there. */
static void what_lies_beyond_the_edge_ends_no_connection(void **state)
{
        struct scene *s = *state;

        app_writes(s, 3000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001, .zero_wnd = true);
        for (int i = 0; i < 3600; i++) {
                advance_ms(s, 1000);
                if (s->head != s->tail)
                        peer_sends(s, .seq = 1, .ack = 1001, .zero_wnd = true);
                forget_sent(s);
        }
        expect_state(s, TCPS_ESTABLISHED);
        peer_sends(s, .seq = 1, .ack = 3001);
}

/* SHLD-2: what a reset says in words is passed over, and the reset counts. */
static void a_reset_may_bring_data(void **state)
{
        struct scene *s = *state;
        struct span span[1];

        peer_sends(s, .seq = 1, .ack = 1, .len = 20, .flags = RA);
        expect_silence(s);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ECONNRESET);
        assert_int_equal(tcp_recv_peek(&s->rig->t, s->tc, 0, 20, span, 1), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(reset_must_be_at_the_edge, established, NULL),
                scenario(syn_in_a_connection_is_challenged, established, NULL),
                scenario(challenges_are_limited, established, NULL),
                scenario(ack_of_the_future_or_the_distant_past_is_refused, established, NULL),
                scenario(bare_acks_outside_the_window_are_not_all_answered, established, NULL),
                scenario(what_lies_beyond_the_edge_ends_no_connection, established, NULL),
                scenario(a_reset_may_bring_data, established, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
