/* What a stranger may send who does not see the connection, or who is its peer and means harm. */
#include "tests/tcp/scenarios.h"

/* "Ghost acknowledgements" (Pan and Rossow 2023): what was never sent cannot be acknowledged, however large a window was
 * offered. RFC 5961 §5.2 alone lets one guess in 65536 of SEG.ACK pass here. */
static void what_was_never_sent_is_not_acknowledged(void **state)
{
        struct scene *s = *state;

        app_writes(s, 100);
        expect_sent(s, .seq = 1, .len = 100);
        peer_sends(s, .seq = 1, .ack = 101);
        peer_sends(s, .seq = 1, .ack = 1, .len = 5);
        assert_int_equal(tcp_recv_avail(s->tc), 5);
        advance_ms(s, 40);
        expect_sent(s, .seq = 101, .ack = 6);
        peer_sends(s, .seq = 6, .ack = 0u - 500, .len = 5);
        expect_sent(s, .seq = 101, .ack = 6);
        assert_int_equal(tcp_recv_avail(s->tc), 5);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_BAD_ACK], 1);
}

/* RFC 5961 §7: who guesses SEG.ACK too high gets no answer each time either. */
static void acks_of_the_future_are_not_all_answered(void **state)
{
        struct scene *s = *state;

        for (uint32_t i = 0; i < 100; i++)
                peer_sends(s, .seq = 1, .ack = 1000 + i, .len = 1);
        assert_int_equal(s->tail - s->head, 10);
        forget_sent(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_BAD_ACK], 100);
}

/* RFC 1337 §2: an old segment is answered, the peer knows nothing any more and resets what it is shown. TIME-WAIT stays. */
static void time_wait_is_not_assassinated(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 2, .len = 5);
        expect_sent(s, .seq = 2, .ack = 2);
        peer_sends(s, .seq = 2, .flags = R);
        expect_silence(s);
        expect_state(s, TCPS_TIME_WAIT);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_BAD_RST], 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(what_was_never_sent_is_not_acknowledged, established, NULL),
                scenario(acks_of_the_future_are_not_all_answered, established, NULL),
                scenario(time_wait_is_not_assassinated, time_wait, NULL),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
