/* Listeners: backlog, deferred accepts, their end: RFC 9293 §3.10.1, §3.10.7.2. */
#include "tests/tcp/scenarios.h"

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

static void same_tuple_twice_is_not_available(void **state)
{
        struct scene *s = *state;

        assert_int_equal(tcp_connect(&s->rig->t, &s->tuple, &s->link, &s->opts, s->now),
                         -EADDRNOTAVAIL);
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

/* MUST-41: who begins to listen takes nothing from the connections that the port has. */
static void a_new_listener_takes_no_connection(void **state)
{
        struct scene *s = *state;
        int l;

        tcp_unlisten(&s->rig->t, s->listener);
        s->listener = 0;
        l = tcp_listen(&s->rig->t, (ip_addr){{0, 0}}, s->tuple.lport, 4, &s->opts);
        assert_true(l > 0);
        assert_true(tcp_listen(&s->rig->t, s->tuple.laddr, s->tuple.lport, 4, &s->opts) > 0);
        peer_sends(s, .seq = 1, .ack = 1, .len = 100);
        app_reads(s, 100);
        app_writes(s, 100);
        expect_sent(s, .seq = 1, .len = 100, .ack = 101);
        peer_sends(s, .seq = 101, .ack = 101);
        expect_state(s, TCPS_ESTABLISHED);
        assert_false(tcp_acceptable(&s->rig->t, (uint32_t)l));
}

/* MUST-42: a port may be listened at while a connection of it is being opened. */
static void a_port_that_opens_may_listen(void **state)
{
        struct scene *s = *state;
        uint16_t rport = s->tuple.rport;
        int l = tcp_listen(&s->rig->t, (ip_addr){{0, 0}}, s->tuple.lport, 4, &s->opts);

        assert_true(l > 0);
        s->tuple.rport = 9;
        peer_sends(s, .seq = 0, .flags = S);
        expect_sent(s, .ack = 1, .flags = SA);
        s->tuple.rport = rport;
        peer_sends(s, .seq = 0, .ack = 1, .flags = SA);
        expect_sent(s, .seq = 1, .ack = 1);
        expect_state(s, TCPS_ESTABLISHED);
        tcp_unlisten(&s->rig->t, (uint32_t)l);
        advance_ms(s, 1);
        assert_int_equal(s->rig->t.sh->conns.used, 1);
}

int main(void)
{
        static const struct scene_setup lossless = {.lossless = true, .sack = true};
        const struct CMUnitTest tests[] = {
                scenario(closed_port_answers_with_reset, scene_blank, NULL),
                scenario(listener_wants_a_syn, listening, NULL),
                scenario(listener_takes_no_syn_with_a_fin, listening, NULL),
                scenario(backlog_is_kept, listening, NULL),
                scenario(closing_the_listener_resets_what_waits, listening, NULL),
                scenario(closing_the_listener_resets_what_is_half_open_inside, listening,
                         &lossless),
                scenario(same_tuple_twice_is_not_available, syn_sent, NULL),
                scenario(second_listener_is_in_use, listening, NULL),
                scenario(repeated_syn_gets_the_syn_ack_again, syn_received, NULL),
                scenario(reset_in_syn_received_goes_back_to_listen, syn_received, NULL),
                scenario(deferred_accept_waits_for_data, syn_received, NULL),
                scenario(deferred_accept_repeats_its_syn_ack_at_the_end, syn_received, NULL),
                scenario(data_may_come_with_the_last_ack_of_the_handshake, syn_received, NULL),
                scenario(a_new_listener_takes_no_connection, accepted, NULL),
                scenario(a_port_that_opens_may_listen, syn_sent, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
