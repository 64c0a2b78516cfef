/* Connections that no process has any more. */
#include "tests/tcp/scenarios.h"

static void orphan_does_not_wait_for_the_peer_for_ever(void **state)
{
        struct scene *s = *state;

        app_closes(s);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 2);
        advance_ms(s, 59000);
        assert_int_equal(s->rig->t.sh->conns.used, 1);
        advance_ms(s, 1001);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
        expect_silence(s);
}

/* Nobody answers any more: an application is told after some 15 minutes (R2), an orphan has nobody
 * to tell. Linux: tcp_orphan_retries, 8. Where segments are lost an orphan is as patient as any. */
static void orphan_without_answers_is_given_up_sooner(void **state)
{
        struct scene *s = *state;

        app_writes(s, 100);
        app_closes(s);
        forget_sent(s);
        advance_ms(s, 100000);
        assert_int_equal(s->rig->t.sh->conns.used, 1);
        advance_ms(s, 110000);
        forget_sent(s);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TIMEOUT], 1);
}

static void orphan_that_may_have_lost_segments_waits_longer(void **state)
{
        struct scene *s = *state;

        app_writes(s, 100);
        app_closes(s);
        advance_ms(s, 500000);
        forget_sent(s);
        assert_int_equal(s->rig->t.sh->conns.used, 1);
}

static void a_socket_without_answers_waits_longer(void **state)
{
        struct scene *s = *state;

        app_writes(s, 100);
        app_shuts_send(s);
        advance_ms(s, 500000);
        forget_sent(s);
        assert_int_equal(s->rig->t.sh->conns.used, 1);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TIMEOUT], 0);
}

/* A peer that is there and never reads: RFC 9293 MUST-37 keeps a socket for ever, and an orphan
 * until probes are two minutes apart. */
static void orphan_before_a_closed_window_is_given_up(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        app_writes(s, 100);
        app_closes(s);
        for (int i = 0; i < 10 && s->rig->t.sh->conns.used != 0; i++) {
                advance_ms(s, 60000);
                forget_sent(s);
                if (s->rig->t.sh->conns.used != 0)
                        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        }
        assert_int_equal(s->rig->t.sh->conns.used, 0);
}

int main(void)
{
        static const struct scene_setup lossless = {.lossless = true};
        const struct CMUnitTest tests[] = {
                scenario(orphan_does_not_wait_for_the_peer_for_ever, established, NULL),
                scenario(orphan_without_answers_is_given_up_sooner, established, &lossless),
                scenario(a_socket_without_answers_waits_longer, established, &lossless),
                scenario(orphan_that_may_have_lost_segments_waits_longer, established, NULL),
                scenario(orphan_before_a_closed_window_is_given_up, established, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
