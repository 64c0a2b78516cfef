/* Proportional rate reduction: RFC 6937. */
#include "tests/tcp/scenarios.h"

/* RFC 9937 §6: an ACK that only tells of losses clocks out what arrived, not more. */
static void recovery_sends_more_only_when_repairs_arrive(void **state)
{
        struct scene *s = *state;

        s->tc->min_rtt = s->tc->srtt = 10 * NS_PER_MS;
        app_writes(s, 10000);
        forget_sent(s);
        advance_ms(s, 10);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 2001}});
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 3001}});
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{9001, 10001}, {1001, 3001}});
        expect_sent(s, .seq = 1, .len = 1000);
        expect_silence(s);
        advance_ms(s, 12);
        /* 3001 was only late. */
        peer_sends(s, .seq = 1, .ack = 4001, .nsack = 1, .sack = {{9001, 10001}});
        expect_sent(s, .seq = 4001, .len = 1000);
        expect_sent(s, .seq = 5001, .len = 1000);
        expect_sent(s, .seq = 6001, .len = 1000);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 10001);
}

/* RFC 6937: as much goes out as came in, down to ssthresh. */
static void recovery_is_paced_by_what_arrives(void **state)
{
        struct scene *s = *state;
        unsigned sent = 0;

        s->tc->min_rtt = s->tc->srtt = 100 * NS_PER_MS;
        app_writes(s, 20000);
        for (int i = 0; i < 10; i++)
                expect_sent(s, .len = 1000);
        advance_ms(s, 100);
        for (uint32_t i = 2; i <= 10; i++) { /* the first of ten is lost */
                peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 1 + 1000 * i}});
                assert_true(s->tail - s->head <= 2);
                sent += s->tail - s->head;
                forget_sent(s);
        }
        /* At the third SACK 12 were out, two of them SACKed before (RFC 9937 §6.1). */
        assert_int_equal(s->tc->prr.fs, 10000);
        assert_int_equal(s->tc->ssthresh, 6000); /* limited transmit made the flight 12 segments */
        assert_true(sent >= 5 && sent <= 8);
        app_aborts(s);
        forget_sent(s);
}

int main(void)
{
        static const struct scene_setup sack = {.sack = true, .reno = true};
        const struct CMUnitTest tests[] = {
                scenario(recovery_sends_more_only_when_repairs_arrive, established, &sack),
                scenario(recovery_is_paced_by_what_arrives, established, &sack),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
