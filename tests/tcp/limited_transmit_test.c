/* Limited transmit: RFC 3042. */
#include "tests/tcp/scenarios.h"

/* RFC 3042: a duplicate ACK lets a new segment out. */
static void duplicate_acks_let_new_segments_out(void **state)
{
        struct scene *s = *state;

        app_writes(s, 12000);
        for (int i = 0; i < 10; i++)
                expect_sent(s, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 10001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 11001, .len = 1000);
        app_aborts(s);
        forget_sent(s);
}

int main(void)
{
        static const struct scene_setup reno = {.reno = true};
        const struct CMUnitTest tests[] = {
                scenario(duplicate_acks_let_new_segments_out, established, &reno),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
