/* Opening: RFC 9293 §3.5, §3.10.7.2-3; options of the SYN; listeners. */
#include "tests/tcp/scenarios.h"
#include "tcp/tcp_life.h"

static const struct scene_setup all_options = {.wscale = 3, .sack = true, .ts = true};

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

/* RFC 7323 §2.2: the SYN-ACK of a simultaneous open carries a window that is not scaled, as each
 * SYN does. */
static void window_of_a_crossing_syn_ack_is_not_scaled(void **state)
{
        struct scene *s = *state;

        s->wnd = 1000;
        peer_sends(s, .seq = 0, .flags = S);
        forget_sent(s);
        peer_sends(s, .seq = 0, .ack = 1, .flags = SA);
        expect_state(s, TCPS_ESTABLISHED);
        assert_int_equal(s->tc->snd_wscale, 3);
        assert_int_equal(s->tc->snd_wnd, 1000);
        assert_int_equal(s->tc->max_wnd, 1000);
        peer_sends(s, .seq = 1, .ack = 1);
        assert_int_equal(s->tc->snd_wnd, 8000);
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

/* RFC 7323 §2.2, and the scales that Linux has for such buffers. */
static void a_buffer_that_was_set_is_scaled_no_more_than_it_needs(void **state)
{
        static const struct {
                uint32_t rcvbuf;
                uint8_t wscale;
        } want[] = {{3000, 0}, {65535, 0}, {65536, 1}, {300000, 3}, {6 << 20, 7}, {0, 7}};
        struct scene *s = *state;

        for (uint32_t i = 0; i < ARRAY_LEN(want); i++) {
                struct tcp_tuple tuple = s->tuple;
                int conn;
                s->opts.rcvbuf = want[i].rcvbuf;
                s->opts.no_wscale = 0;
                tuple.lport = (uint16_t)(5000 + i);
                conn = tcp_connect(&s->rig->t, &tuple, &s->link, &s->opts, s->now);
                assert_true(conn > 0);
                advance_ms(s, 0);
                expect_sent(s, .flags = S);
                assert_int_equal(s->last.wscale, want[i].wscale);
                tcp_close(&s->rig->t, tcp_conn_at(&s->rig->t, (uint32_t)conn), s->now);
        }
        forget_sent(s);
}

/* ... whatever SO_RCVBUF is set to before the answer comes. */
static void the_scale_is_what_our_syn_said(void **state)
{
        struct scene *s = *state;
        struct tcp_opts o = s->tc->opts;

        assert_int_equal(s->last.wscale, 7);
        o.rcvbuf = 65536;
        tcp_set_opts(&s->rig->t, s->tc, &o, s->now);
        peer_sends(s, .seq = 0, .ack = 1, .flags = SA);
        assert_int_equal(s->tc->rcv_wscale, 7);
        forget_sent(s);
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

static void lossless_link_offers_no_timestamps(void **state)
{
        struct scene *s = *state;

        assert_false(s->last.has_ts);
        assert_true(s->last.sack_ok);
}

/* §3.10.7.1 */
static void closed_port_answers_with_reset(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 0, .flags = S);
        expect_sent(s, .ack = 1, .flags = RA, .is_reply = true);
        peer_sends(s, .seq = 5, .ack = 9, .len = 3);
        expect_sent(s, .seq = 9, .flags = R, .is_reply = true);
        peer_sends(s, .seq = 5, .flags = R);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_NO_LISTENER], 3);
}

/* §3.10.7.2: RST ignored, ACK reset, anything else dropped. */
static void listener_wants_a_syn(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 5, .flags = R);
        expect_silence(s);
        peer_sends(s, .seq = 5, .ack = 6);
        expect_sent(s, .seq = 6, .flags = R, .is_reply = true);
        peer_sends(s, .seq = 5, .len = 5, .no_ack = true, .flags = TCP_PSH);
        expect_silence(s);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
}

/* As Linux: a SYN that ends the stream as well is nothing that anybody sends in earnest. */
static void listener_takes_no_syn_with_a_fin(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 0, .flags = S | TCP_FIN);
        peer_sends(s, .seq = 0, .len = 5, .flags = S | TCP_FIN | TCP_PSH);
        expect_silence(s);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_BAD_SYN], 2);
}

static void syn_from(struct scene *s, uint16_t port, bool finish)
{
        s->tuple.rport = port;
        peer_sends(s, .seq = 0, .flags = S);
        if (finish && s->head != s->tail) {
                uint32_t ack = s->sent[s->head].seg.seq + 1;
                forget_sent(s);
                peer_sends(s, .seq = 1, .ack = ack - SCENE_ISS);
        }
        forget_sent(s);
}

static void backlog_is_kept(void **state)
{
        struct scene *s = *state;

        tcp_listen_backlog(&s->rig->t, s->listener, 2);
        for (uint16_t port = 100; port < 105; port++)
                syn_from(s, port, true);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_BACKLOG], 2);
        for (uint16_t port = 100; port < 103; port++) {
                uint32_t c = tcp_accept(&s->rig->t, s->listener);
                assert_int_not_equal(c, 0);
                assert_int_equal(tcp_conn_at(&s->rig->t, c)->tuple.rport, port);
                tcp_close(&s->rig->t, tcp_conn_at(&s->rig->t, c), s->now);
        }
        assert_int_equal(tcp_accept(&s->rig->t, s->listener), 0);
}

static void closing_the_listener_resets_what_waits(void **state)
{
        struct scene *s = *state;

        syn_from(s, 100, true);
        syn_from(s, 101, false);
        tcp_unlisten(&s->rig->t, s->listener);
        s->listener = 0;
        s->tuple.rport = 100;
        advance_ms(s, 1);
        expect_sent(s, .ack = 1, .flags = RA);
        expect_silence(s);
        advance_ms(s, 1);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
        s->tuple.rport = 101;
        peer_sends(s, .seq = 1, .ack = 1); /* half open: it is told when it says something */
        expect_sent(s, .seq = 1, .flags = R, .is_reply = true);
}

/* Where nothing is lost nobody is left to wait. */
static void closing_the_listener_resets_what_is_half_open_inside(void **state)
{
        struct scene *s = *state;

        syn_from(s, 101, false);
        tcp_unlisten(&s->rig->t, s->listener);
        s->listener = 0;
        s->tuple.rport = 101;
        advance_ms(s, 1);
        expect_sent(s, .ack = 1, .flags = RA);
        advance_ms(s, 1);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
}

static void same_tuple_twice_is_in_use(void **state)
{
        struct scene *s = *state;

        assert_int_equal(tcp_connect(&s->rig->t, &s->tuple, &s->link, &s->opts, s->now),
                         -EADDRINUSE);
}

static void second_listener_is_in_use(void **state)
{
        struct scene *s = *state;

        assert_int_equal(tcp_listen(&s->rig->t, (ip_addr){{0, 0}}, s->tuple.lport, 1, &s->opts),
                         -EADDRINUSE);
        assert_true(tcp_listen(&s->rig->t, s->tuple.laddr, s->tuple.lport, 1, &s->opts) > 0);
}

/* The SYN-ACK was lost: the SYN comes again and is answered again. */
static void repeated_syn_gets_the_syn_ack_again(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 0, .flags = S);
        expect_sent(s, .flags = SA, .ack = 1);
        advance_ms(s, 1000);
        expect_sent(s, .flags = SA, .ack = 1);
        expect_state(s, TCPS_SYN_RECEIVED);
}

static void reset_in_syn_received_goes_back_to_listen(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .flags = R);
        expect_silence(s);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
        assert_int_equal(tcp_listener_at(&s->rig->t, s->listener)->half_open, 0);
}

static void deferred_accept_waits_for_data(void **state)
{
        struct scene *s = *state;

        s->tc->opts.defer_accept_s = 5;
        peer_sends(s, .seq = 1, .ack = 1);
        assert_false(tcp_acceptable(&s->rig->t, s->listener));
        peer_sends(s, .seq = 1, .ack = 1, .len = 10);
        assert_true(tcp_acceptable(&s->rig->t, s->listener));
        forget_sent(s);
        app_accepts(s);
        app_reads(s, 10);
}

/* As Linux: to who has acknowledged the SYN-ACK it is not repeated, but once the time is over, so
 * that he does it again. */
static void deferred_accept_repeats_its_syn_ack_at_the_end(void **state)
{
        struct scene *s = *state;

        s->tc->opts.defer_accept_s = 5;
        peer_sends(s, .seq = 1, .ack = 1);
        advance_ms(s, 6900); /* the repetitions of 1 and 3 s */
        expect_silence(s);
        advance_ms(s, 200);
        expect_sent(s, .seq = 0, .ack = 1, .flags = SA);
        peer_sends(s, .seq = 1, .ack = 1);
        assert_true(tcp_acceptable(&s->rig->t, s->listener));
        app_accepts(s);
        expect_state(s, TCPS_ESTABLISHED);
}

static void data_may_come_with_the_last_ack_of_the_handshake(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 300, .flags = F);
        turn_ends(s);
        expect_sent(s, .seq = 1, .ack = 302);
        app_accepts(s);
        expect_state(s, TCPS_CLOSE_WAIT);
        app_reads(s, 300);
        app_reads(s, 0);
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

/* RFC 6528: another time, another tuple, another number; the clock part moves with 4 µs. */
static void initial_sequence_numbers_move_with_the_clock(void **state)
{
        struct scene *s = *state;
        struct tcp_tuple other = s->tuple;
        uint32_t a = iss_new(&s->rig->t, &s->tuple, s->now);

        other.rport++;
        assert_int_equal(iss_new(&s->rig->t, &s->tuple, s->now + 400 * NS_PER_US) - a, 100);
        assert_int_not_equal(iss_new(&s->rig->t, &other, s->now), a);
}

static void each_destination_has_client_ports_of_its_own(void **state)
{
        struct scene *s = *state;
        struct tcp_tuple other = s->tuple;
        uint32_t offset = tcp_port_offset(&s->rig->t, &s->tuple);

        other.lport++;
        assert_int_equal(tcp_port_offset(&s->rig->t, &other), offset);
        other.rport++;
        assert_int_not_equal(tcp_port_offset(&s->rig->t, &other), offset);
        s->rig->t.sh->secret[0]++;
        assert_int_not_equal(tcp_port_offset(&s->rig->t, &s->tuple), offset);
}

/* ---- SYNs that were answered before they came here ---- */

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
        static const struct scene_setup lossless = {.lossless = true, .sack = true};
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
                scenario(window_of_a_crossing_syn_ack_is_not_scaled, syn_sent, &all_options),
                scenario(passive_open_completes, listening, NULL),
                scenario(missing_mss_option_means_536, syn_sent, NULL),
                scenario(options_hold_when_both_sides_sent_them, syn_sent, &all_options),
                scenario(a_buffer_that_was_set_is_scaled_no_more_than_it_needs, scene_blank, NULL),
                scenario(the_scale_is_what_our_syn_said, syn_sent, &all_options),
                scenario(options_are_off_when_the_peer_did_not_send_them, syn_sent, &all_options),
                scenario(lossless_link_offers_no_timestamps, syn_sent, &lossless),
                scenario(closed_port_answers_with_reset, scene_blank, NULL),
                scenario(listener_wants_a_syn, listening, NULL),
                scenario(listener_takes_no_syn_with_a_fin, listening, NULL),
                scenario(backlog_is_kept, listening, NULL),
                scenario(closing_the_listener_resets_what_waits, listening, NULL),
                scenario(closing_the_listener_resets_what_is_half_open_inside, listening,
                         &lossless),
                scenario(same_tuple_twice_is_in_use, syn_sent, NULL),
                scenario(second_listener_is_in_use, listening, NULL),
                scenario(repeated_syn_gets_the_syn_ack_again, syn_received, NULL),
                scenario(reset_in_syn_received_goes_back_to_listen, syn_received, NULL),
                scenario(deferred_accept_waits_for_data, syn_received, NULL),
                scenario(deferred_accept_repeats_its_syn_ack_at_the_end, syn_received, NULL),
                scenario(data_may_come_with_the_last_ack_of_the_handshake, syn_received, NULL),
                scenario(closing_before_the_handshake_is_over_leaves_nothing, syn_sent, NULL),
                scenario(multicast_and_broadcast_take_no_part, listening, NULL),
                scenario(initial_sequence_numbers_move_with_the_clock, scene_blank, NULL),
                scenario(each_destination_has_client_ports_of_its_own, scene_blank, NULL),
                scenario(what_was_answered_is_not_answered_again, listening, &all_options),
                scenario(an_answer_to_a_repeated_syn_counts, listening, &all_options),
                scenario(an_answer_to_a_syn_that_begins_anew_counts, listening, &all_options),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
