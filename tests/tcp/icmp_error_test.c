/* ICMP errors, soft and hard: RFC 1122 §4.2.3.9, RFC 5461, RFC 5927. tests/tcp/path_mtu_test.c has
 * "too big". */
#include "tests/tcp/scenarios.h"

/* RFC 9293 §3.9.2.2: soft errors are remembered, hard ones abort only while opening; RFC 5927: what
 * is not in flight was not sent by us. */
static void icmp_errors_are_advice(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10);
        expect_sent(s, .seq = 1, .len = 10);
        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS + 500, ENETUNREACH, false, 0, s->now);
        assert_int_equal(s->tc->err_soft, 0);
        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS + 1, ECONNREFUSED, true, 0, s->now);
        expect_state(s, TCPS_ESTABLISHED);
        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS + 1, EHOSTUNREACH, false, 0, s->now);
        assert_int_equal(tcp_take_error(s->tc), EHOSTUNREACH);
        peer_sends(s, .seq = 1, .ack = 11);
}

/* As Linux: it was wrong, or is no more. */
static void an_answer_ends_a_soft_error(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10);
        expect_sent(s, .seq = 1, .len = 10);
        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS + 1, EHOSTUNREACH, false, 0, s->now);
        peer_sends(s, .seq = 1, .ack = 11);
        assert_int_equal(tcp_take_error(s->tc), 0);
        assert_int_equal(s->tc->slow & SLOW_LOSS, 0);
}

static void an_open_connection_has_no_soft_error(void **state)
{
        struct scene *s = *state;

        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS, EHOSTUNREACH, false, 0, s->now);
        peer_sends(s, .seq = 0, .ack = 1, .flags = SA);
        expect_state(s, TCPS_ESTABLISHED);
        forget_sent(s);
        assert_int_equal(tcp_take_error(s->tc), 0);
}

static void hard_icmp_error_ends_an_opening(void **state)
{
        struct scene *s = *state;

        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS, ECONNREFUSED, true, 0, s->now);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ECONNREFUSED);
}

/* RFC 5461 §4.1, as Linux: the program has another address to try. */
static void an_unreachable_host_ends_an_opening(void **state)
{
        struct scene *s = *state;

        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS + 1, EHOSTUNREACH, true, 0, s->now);
        expect_state(s, TCPS_SYN_SENT); /* quotes nothing that was sent */
        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS, ENETUNREACH, true, 0, s->now);
        expect_state(s, TCPS_CLOSED);
        assert_true(s->tc->events & TCP_EV_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ENETUNREACH);
        expect_silence(s);
}

/* MUST-56: time exceeded, and a parameter problem, which ip/ calls hard. */
static void soft_icmp_errors_end_no_opening(void **state)
{
        struct scene *s = *state;

        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS, EHOSTUNREACH, false, 0, s->now);
        expect_state(s, TCPS_SYN_SENT);
        assert_int_equal(tcp_take_error(s->tc), EHOSTUNREACH);
        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS, EPROTO, true, 0, s->now);
        expect_state(s, TCPS_SYN_SENT);
        assert_int_equal(tcp_take_error(s->tc), EPROTO);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(icmp_errors_are_advice, established, NULL),
                scenario(an_answer_ends_a_soft_error, established, NULL),
                scenario(an_open_connection_has_no_soft_error, syn_sent, NULL),
                scenario(hard_icmp_error_ends_an_opening, syn_sent, NULL),
                scenario(an_unreachable_host_ends_an_opening, syn_sent, NULL),
                scenario(soft_icmp_errors_end_no_opening, syn_sent, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
