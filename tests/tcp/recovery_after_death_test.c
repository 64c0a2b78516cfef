/* What a process that died inside left half done is mended (tcp/tcp_mend.c), and channels that go.
 */
#include "tests/tcp/scenarios.h"

static void dead_channel_resets_without_a_segment(void **state)
{
        struct scene *s = *state;

        tcp_chan_down(&s->rig->t, RIG_CHAN, ECONNRESET, s->now);
        expect_silence(s);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ECONNRESET);
}

static void peers_are_told_of_a_channel_that_goes(void **state)
{
        struct scene *s = *state;

        app_writes(s, 100);
        forget_sent(s);
        tcp_chan_leave(&s->rig->t, RIG_CHAN, ENETDOWN);
        advance_ms(s, 1);
        expect_sent(s, .seq = 101, .ack = 1, .flags = RA);
        tcp_chan_down(&s->rig->t, RIG_CHAN, ENETDOWN, s->now);
        expect_silence(s);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ENETDOWN);
}

static void recovery_keeps_queues_and_resets_only_what_makes_no_sense(void **state)
{
        struct scene *s = *state;

        app_writes(s, 2500);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001, .len = 300);
        peer_sends(s, .seq = 601, .ack = 1001, .len = 100);
        forget_sent(s);
        rig_recover(s->rig, 0, s->now);
        rig_check(s->rig);
        expect_state(s, TCPS_ESTABLISHED);
        app_reads(s, 300);
        peer_sends(s, .seq = 301, .ack = 2501, .len = 300);
        app_reads(s, 400);
        app_writes(s, 100);
        forget_sent(s);
        peer_sends(s, .seq = 701, .ack = 2501, .len = 300);
        peer_sends(s, .seq = 2001, .ack = 2501, .len = 1000);
        forget_sent(s);
        /* mended: what is beyond the gap is not kept, all else is. */
        rig_recover(s->rig, s->conn, s->now);
        rig_check(s->rig);
        expect_state(s, TCPS_ESTABLISHED);
        advance_ms(s, 1);
        expect_sent(s, .seq = 2601, .ack = 1001);
        expect_sent(s, .seq = 2501, .len = 100, .ack = 1001);
        forget_sent(s);
        peer_sends(s, .seq = 1001, .ack = 2601, .len = 1000);
        app_reads(s, 1300);
        forget_sent(s);
        s->tc->snd_nxt -= 1000000;
        rig_recover(s->rig, s->conn, s->now);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ECONNRESET);
        advance_ms(s, 0);
        expect_sent(s, .flags = RA);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(dead_channel_resets_without_a_segment, established, NULL),
                scenario(peers_are_told_of_a_channel_that_goes, established, NULL),
                scenario(recovery_keeps_queues_and_resets_only_what_makes_no_sense, established,
                         NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
