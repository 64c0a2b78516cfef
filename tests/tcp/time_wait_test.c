/* TIME-WAIT: RFC 9293 §3.6.1, RFC 6191. */
#include "tests/tcp/scenarios.h"

/* The last ACK was lost: the FIN comes again, is acknowledged again, and 2 MSL start again. */
static void repeated_fin_restarts_time_wait(void **state)
{
        struct scene *s = *state;

        advance_ms(s, 50000);
        peer_sends(s, .seq = 1, .ack = 2, .flags = F);
        expect_sent(s, .seq = 2, .ack = 2);
        app_closes(s);
        advance_ms(s, 50000);
        assert_int_equal(s->rig->t.sh->conns.used, 1);
        advance_ms(s, 10001);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
}

/* RFC 6191 */
static void newer_syn_ends_time_wait(void **state)
{
        struct scene *s = *state;
        int l = tcp_listen(&s->rig->t, (ip_addr){{0, 0}}, s->tuple.lport, 4, &s->opts);

        app_closes(s);
        peer_sends(s, .seq = 0xffff0000u, .flags = S, .tsval = 1);
        forget_sent(s);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TIME_WAIT_REUSED], 0);
        peer_sends(s, .seq = 70000, .flags = S, .tsval = 900000);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TIME_WAIT_REUSED], 1);
        assert_int_equal(s->sent[s->head].seg.flags, SA);
        assert_int_equal(s->sent[s->head].seg.ack, SCENE_IRS + 70001);
        assert_true(seq_gt(s->sent[s->head].seg.seq, SCENE_ISS + 2));
        forget_sent(s);
        tcp_unlisten(&s->rig->t, (uint32_t)l);
        advance_ms(s, 1);
        forget_sent(s);
        s->tc = NULL;
}

static void connect_may_reuse_time_wait_with_timestamps(void **state)
{
        struct scene *s = *state;
        int c;

        app_closes(s);
        c = tcp_connect(&s->rig->t, &s->tuple, &s->link, &s->opts, s->now);
        assert_true(c > 0);
        assert_true(seq_gt(tcp_conn_at(&s->rig->t, (uint32_t)c)->iss, SCENE_ISS + 2));
        tcp_close(&s->rig->t, tcp_conn_at(&s->rig->t, (uint32_t)c), s->now);
        s->tc = NULL;
}

static void time_wait_ignores_and_answers(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 2, .len = 5);
        expect_sent(s, .seq = 2, .ack = 2);
        expect_state(s, TCPS_TIME_WAIT);
}

/* What stands behind the peer's FIN is outside of any window: RFC 9293 §3.10.7.4, first. */
static void time_wait_answers_what_is_beyond_the_fin(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 3, .ack = 2);
        expect_sent(s, .seq = 2, .ack = 2);
        peer_sends(s, .seq = 2, .ack = 2);
        expect_silence(s);
        expect_state(s, TCPS_TIME_WAIT);
}

/* RFC 6191 §2: an older timestamp is of an older SYN, whatever its number is; the same one says
 * nothing, and the number decides. */
static void timestamps_decide_about_time_wait(void **state)
{
        struct scene *s = *state;
        int l = tcp_listen(&s->rig->t, (ip_addr){{0, 0}}, s->tuple.lport, 4, &s->opts);
        uint32_t recent = s->tc->ts_recent;

        app_closes(s);
        forget_sent(s);
        peer_sends(s, .seq = 70000, .flags = S, .has_ts = true, .tsval = recent - 500);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TIME_WAIT_REUSED], 0);
        expect_sent(s, .seq = 2, .ack = 2);
        peer_sends(s, .seq = 0xffff0000u, .flags = S, .has_ts = true, .tsval = recent);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TIME_WAIT_REUSED], 0);
        forget_sent(s);
        peer_sends(s, .seq = 70000, .flags = S, .has_ts = true, .tsval = recent);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TIME_WAIT_REUSED], 1);
        forget_sent(s);
        tcp_unlisten(&s->rig->t, (uint32_t)l);
        advance_ms(s, 1);
        forget_sent(s);
        s->tc = NULL;
}

int main(void)
{
        static const struct scene_setup ts = {.ts = true};
        const struct CMUnitTest tests[] = {
                scenario(repeated_fin_restarts_time_wait, time_wait, NULL),
                scenario(newer_syn_ends_time_wait, time_wait, NULL),
                scenario(connect_may_reuse_time_wait_with_timestamps, time_wait, &ts),
                scenario(time_wait_ignores_and_answers, time_wait, NULL),
                scenario(time_wait_answers_what_is_beyond_the_fin, time_wait, NULL),
                scenario(timestamps_decide_about_time_wait, time_wait, &ts),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
