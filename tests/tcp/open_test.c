/* Opening: RFC 9293 §3.5, §3.10.7.3. */
#include "tcp/tcp_answers.h"
#include "tests/tcp/scenarios.h"

static struct tcp_answer answered; /* the next SYN is, if `at` is not 0 */
static unsigned lost_answers;

static bool took(void *arg, const struct tcp_tuple *tuple, uint32_t seq, struct tcp_answer *a)
{
        *a = answered;
        return answered.at != 0;
}

static void count_ends(void *arg, const struct tcp_tuple *tuple, int by)
{
}

static void learn(void *arg, const struct tcp_conn *tc, uint32_t room)
{
}

static void lost(void *arg, const struct tcp_conn *tc)
{
        lost_answers++;
}

static void forget(void *arg)
{
}

static void syn_comes(struct scene *s, uint32_t seq, uint32_t answered_with)
{
        static const struct tcp_answers answers = {
                .took = took, .count = count_ends, .learn = learn, .lost = lost, .forget = forget};

        answered = (struct tcp_answer){.at = answered_with != 0 ? s->now : 0,
                                       .iss = answered_with,
                                       .wnd = 5000,
                                       .wscale = 2};
        s->rig->t.answers = &answers;
        peer_sends(s, .seq = seq, .flags = S);
}

static void is_accepted_with(struct scene *s, uint32_t seq, uint32_t iss)
{
        forget_sent(s);
        peer_sends(s, .seq = seq + 1, .ack = iss + 1 - SCENE_ISS);
        expect_silence(s);
        s->conn = tcp_accept(&s->rig->t, s->listener);
        assert_int_not_equal(s->conn, 0);
        s->tc = tcp_conn_at(&s->rig->t, s->conn);
        expect_state(s, TCPS_ESTABLISHED);
        assert_int_equal(s->tc->iss, iss);
        assert_int_equal(tcp_listener_at(&s->rig->t, s->listener)->half_open, 0);
}

static void active_open_completes(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 0, .ack = 1, .flags = SA);
        expect_sent(s, .seq = 1, .ack = 1);
        expect_state(s, TCPS_ESTABLISHED);
        assert_true(s->tc->events & TCP_EV_CONNECTED);
        expect_poll(s, POLLOUT | POLLWRNORM);
}

/* §3.10.7.3 fourth: what comes with the SYN-ACK is processed from the sixth step on. */
static void text_of_a_syn_ack_is_taken(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 0, .ack = 1, .len = 10, .flags = SA);
        expect_sent(s, .seq = 1, .ack = 11);
        expect_state(s, TCPS_ESTABLISHED);
        app_reads(s, 10);
        peer_sends(s, .seq = 11, .ack = 1, .len = 5);
        app_reads(s, 5);
        forget_sent(s);
}

static void fin_of_a_syn_ack_ends_the_stream(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 0, .ack = 1, .len = 10, .flags = SA | TCP_FIN);
        expect_sent(s, .seq = 1, .ack = 12);
        expect_state(s, TCPS_CLOSE_WAIT);
        app_reads(s, 10);
        app_reads(s, 0);
}

/* RFC 6298 §5.7, RFC 5681 §3.1: without a round trip to go by, three seconds, and one segment. */
static void after_a_lost_syn_the_first_timeout_is_three_seconds(void **state)
{
        struct scene *s = *state;

        advance_ms(s, 1000);
        expect_sent(s, .flags = S);
        peer_sends(s, .seq = 0, .ack = 1, .flags = SA);
        expect_sent(s, .seq = 1, .ack = 1);
        app_writes(s, 2000);
        expect_sent(s, .seq = 1, .len = 1000);
        advance_ms(s, 2999);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 1000);
}

/* §3.10.7.3 second: refused, and the application learns why. */
static void rst_refuses_connection(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 0, .ack = 1, .flags = RA);
        expect_silence(s);
        expect_state(s, TCPS_CLOSED);
        expect_poll(s, POLLIN | POLLRDNORM | POLLRDHUP | POLLHUP | POLLERR | POLLOUT | POLLWRNORM);
        assert_int_equal(tcp_take_error(s->tc), ECONNREFUSED);
        assert_int_equal(tcp_take_error(s->tc), 0);
}

static void rst_without_good_ack_is_ignored(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 0, .ack = 77, .flags = RA);
        peer_sends(s, .seq = 0, .flags = R);
        expect_silence(s);
        expect_state(s, TCPS_SYN_SENT);
}

/* §3.10.7.3 first: an ACK of what was never sent is answered with a reset. */
static void wrong_ack_of_syn_is_reset(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 0, .ack = 9, .flags = SA);
        expect_sent(s, .seq = 9, .flags = R, .is_reply = true);
        expect_state(s, TCPS_SYN_SENT);
}

static void syn_is_repeated_with_back_off_and_given_up(void **state)
{
        struct scene *s = *state;

        advance_ms(s, 999);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .flags = S);
        advance_ms(s, 1999);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .flags = S);
        advance_ms(s, 3 * 60 * 1000); /* MUST-23: at least three minutes */
        expect_state(s, TCPS_SYN_SENT);
        advance_ms(s, 5 * 60 * 1000);
        forget_sent(s);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ETIMEDOUT);
}

/* Figure 8 of RFC 9293. */
static void simultaneous_open_completes(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 0, .flags = S);
        expect_sent(s, .flags = SA, .ack = 1);
        expect_state(s, TCPS_SYN_RECEIVED);
        peer_sends(s, .seq = 0, .ack = 1, .flags = SA);
        expect_state(s, TCPS_ESTABLISHED);
        assert_true(s->tc->events & TCP_EV_CONNECTED);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1, .len = 10);
        app_reads(s, 10);
        forget_sent(s);
}

static void passive_open_completes(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 0, .flags = S, .mss = 700);
        expect_sent(s, .flags = SA, .ack = 1, .mss = 1000);
        assert_false(tcp_acceptable(&s->rig->t, s->listener));
        s->conn = 1;
        s->tc = tcp_conn_at(&s->rig->t, 1);
        peer_sends(s, .seq = 1, .ack = s->tc->snd_nxt - SCENE_ISS);
        assert_true(tcp_acceptable(&s->rig->t, s->listener));
        app_accepts(s);
        assert_int_equal(tcp_accept(&s->rig->t, s->listener), 0);
        assert_int_equal(s->tc->snd_mss, 700);
}

/* MUST-15: no option means 536. */
static void missing_mss_option_means_536(void **state)
{
        struct scene *s = *state;

        s->setup.mss = 0;
        peer_sends(s, .seq = 0, .ack = 1, .flags = SA);
        expect_sent(s, .seq = 1, .ack = 1);
        assert_int_equal(s->tc->snd_mss, 536);
}

static void options_hold_when_both_sides_sent_them(void **state)
{
        struct scene *s = *state;

        assert_true(s->last.has_ts && s->last.sack_ok && s->last.wscale == 7);
        peer_sends(s, .seq = 0, .ack = 1, .flags = SA, .mss = 1012);
        expect_sent(s, .seq = 1, .ack = 1);
        assert_true(s->last.has_ts);
        assert_int_equal(s->last.tsecr, 5000);
        assert_int_equal(s->tc->snd_wscale, 3);
        assert_int_equal(s->tc->snd_mss, 1000);
        assert_true(s->tc->sack_ok);
}

static void options_are_off_when_the_peer_did_not_send_them(void **state)
{
        struct scene *s = *state;

        s->setup.ts = s->setup.sack = false;
        s->setup.wscale = 0;
        peer_sends(s, .seq = 0, .ack = 1, .flags = SA, .mss = 1012);
        expect_sent(s, .seq = 1, .ack = 1);
        assert_false(s->last.has_ts);
        assert_int_equal(s->tc->rcv_wscale, 0);
        assert_false(s->tc->sack_ok);
}

static void closing_before_the_handshake_is_over_leaves_nothing(void **state)
{
        struct scene *s = *state;

        app_closes(s);
        expect_silence(s);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
}

/* MUST-46, -57, -63 */
static void multicast_and_broadcast_take_no_part(void **state)
{
        struct scene *s = *state;

        s->tuple.laddr = ip_addr_v4(0xe0000001);
        peer_sends(s, .seq = 0, .flags = S);
        s->tuple.laddr = ip_addr_v4(0x0a000001);
        s->tuple.raddr = ip_addr_v4(0xffffffff);
        peer_sends(s, .seq = 0, .flags = S);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_BAD_ADDRESS], 2);
        assert_int_equal(tcp_connect(&s->rig->t, &s->tuple, &s->link, &s->opts, s->now),
                         -ENETUNREACH);
}

static void what_was_answered_is_not_answered_again(void **state)
{
        struct scene *s = *state;

        syn_comes(s, 0, 4711);
        expect_silence(s);
        lost_answers = 0;
        assert_int_equal(tcp_conn_at(&s->rig->t, 1)->rcv_wscale, 2);
        assert_int_equal(tcp_conn_at(&s->rig->t, 1)->rcv_adv - tcp_conn_at(&s->rig->t, 1)->rcv_nxt,
                         5000);
        syn_comes(s, 0, 4711); /* the same one in the same breath: its SYN-ACK may be lost */
        expect_sent(s, .flags = SA, .ack = 1);
        assert_int_equal(s->last.seq, 4711);
        assert_int_equal(lost_answers, 1);
        assert_int_equal(s->last.wscale, 2); /* for the other SYN-ACK is not taken back */
        is_accepted_with(s, 0, 4711);
}

/* One was left to us, and lay unread while it was repeated, and that was answered. The peer has the
 * number of the answer. */
static void an_answer_to_a_repeated_syn_counts(void **state)
{
        struct scene *s = *state;

        syn_comes(s, 0, 0);
        expect_sent(s, .flags = SA, .ack = 1);
        syn_comes(s, 0, 4711);
        is_accepted_with(s, 0, 4711);
}

static void an_answer_to_a_syn_that_begins_anew_counts(void **state)
{
        struct scene *s = *state;

        syn_comes(s, 0, 0);
        syn_comes(s, 70000, 4711);
        is_accepted_with(s, 70000, 4711);
}

int main(void)
{
        static const struct scene_setup all_options = {.wscale = 3, .sack = true, .ts = true};
        const struct CMUnitTest tests[] = {
                scenario(active_open_completes, syn_sent, NULL),
                scenario(text_of_a_syn_ack_is_taken, syn_sent, NULL),
                scenario(fin_of_a_syn_ack_ends_the_stream, syn_sent, NULL),
                scenario(after_a_lost_syn_the_first_timeout_is_three_seconds, syn_sent, NULL),
                scenario(rst_refuses_connection, syn_sent, NULL),
                scenario(rst_without_good_ack_is_ignored, syn_sent, NULL),
                scenario(wrong_ack_of_syn_is_reset, syn_sent, NULL),
                scenario(syn_is_repeated_with_back_off_and_given_up, syn_sent, NULL),
                scenario(simultaneous_open_completes, syn_sent, NULL),
                scenario(passive_open_completes, listening, NULL),
                scenario(missing_mss_option_means_536, syn_sent, NULL),
                scenario(options_hold_when_both_sides_sent_them, syn_sent, &all_options),
                scenario(options_are_off_when_the_peer_did_not_send_them, syn_sent, &all_options),
                scenario(closing_before_the_handshake_is_over_leaves_nothing, syn_sent, NULL),
                scenario(multicast_and_broadcast_take_no_part, listening, NULL),
                scenario(what_was_answered_is_not_answered_again, listening, &all_options),
                scenario(an_answer_to_a_repeated_syn_counts, listening, &all_options),
                scenario(an_answer_to_a_syn_that_begins_anew_counts, listening, &all_options),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
