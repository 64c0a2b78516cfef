/* Closing: RFC 9293 §3.6, §3.10.4-5; half close, resets, TIME-WAIT; what poll and the errors say,
 * as Linux has it. */
#include "tests/tcp/scenarios.h"

#define IN  (POLLIN | POLLRDNORM)
#define OUT (POLLOUT | POLLWRNORM)

static void peer_closes_first(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 10, .flags = F);
        turn_ends(s);
        expect_sent(s, .seq = 1, .ack = 12);
        expect_state(s, TCPS_CLOSE_WAIT);
        expect_poll(s, IN | POLLRDHUP | OUT);
        app_reads(s, 10);
        app_reads(s, 0);
        assert_true(tcp_recv_eof(s->tc));
        app_writes(s, 5); /* half closed: data still goes out */
        expect_sent(s, .seq = 1, .len = 5, .ack = 12);
        app_closes(s);
        expect_sent(s, .seq = 6, .ack = 12, .flags = F);
        expect_state(s, TCPS_LAST_ACK);
        peer_sends(s, .seq = 12, .ack = 7);
        expect_silence(s);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
}

static void we_close_first(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10);
        app_shuts_send(s);
        expect_sent(s, .seq = 1, .len = 10, .ack = 1);
        expect_sent(s, .seq = 11, .ack = 1, .flags = F);
        expect_poll(s, OUT);
        peer_sends(s, .seq = 1, .ack = 12, .len = 20);
        expect_state(s, TCPS_FIN_WAIT_2);
        app_reads(s, 20);
        peer_sends(s, .seq = 21, .ack = 12, .flags = F);
        expect_sent(s, .seq = 12, .ack = 22);
        expect_state(s, TCPS_TIME_WAIT);
        expect_poll(s, IN | POLLRDHUP | POLLHUP | OUT);
        app_closes(s);
        advance_ms(s, 59999);
        assert_int_equal(s->rig->t.sh->conns.used, 1);
        advance_ms(s, 1);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
        expect_silence(s);
}

static void both_close_at_once(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 2, .ack = 2);
        expect_silence(s);
        expect_state(s, TCPS_TIME_WAIT);
}

static void fin_and_its_ack_in_one_segment(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 2, .flags = F);
        expect_sent(s, .seq = 2, .ack = 2);
        expect_state(s, TCPS_TIME_WAIT);
}

static void lost_fin_is_repeated(void **state)
{
        struct scene *s = *state;

        advance_ms(s, 250);
        expect_sent(s, .seq = 1, .ack = 1, .flags = F);
        peer_sends(s, .seq = 1, .ack = 2);
        expect_state(s, TCPS_FIN_WAIT_2);
}

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

/* RFC 2525 §2.17, RFC 9293 SHLD-3 */
static void closing_with_unread_data_resets(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 10);
        app_closes(s);
        expect_sent(s, .seq = 1, .ack = 11, .flags = RA);
        advance_ms(s, 1);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
}

static void linger_zero_resets(void **state)
{
        struct scene *s = *state;

        s->opts.linger_s = 0;
        app_sets(s);
        app_writes(s, 10);
        expect_sent(s, .seq = 1, .len = 10);
        app_closes(s);
        expect_sent(s, .seq = 11, .ack = 1, .flags = RA);
        advance_ms(s, 1);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
}

/* After close nobody reads: data that comes must not be acknowledged as if somebody would. The
 * reset is where the peer takes it (RFC 5961 §3.2), though it has not seen our FIN. */
static void data_after_close_is_reset(void **state)
{
        struct scene *s = *state;

        app_closes(s);
        expect_sent(s, .seq = 1, .ack = 1, .flags = F);
        peer_sends(s, .seq = 1, .ack = 1, .len = 10);
        expect_sent(s, .seq = 1, .flags = R, .is_reply = true);
        advance_ms(s, 1);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
}

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

static void half_close_keeps_receiving_for_ever(void **state)
{
        struct scene *s = *state;

        advance_ms(s, 600000);
        expect_state(s, TCPS_FIN_WAIT_2);
        peer_sends(s, .seq = 1, .ack = 2, .len = 100);
        app_reads(s, 100);
        advance_ms(s, 40);
        expect_sent(s, .seq = 2, .ack = 101);
}

/* As Linux. POSIX leaves it open, RFC 9293 knows no such call. */
static void data_after_shutdown_of_reading_is_still_read(void **state)
{
        struct scene *s = *state;
        struct span span[1];

        app_shuts_recv(s);
        expect_poll(s, IN | POLLRDHUP | OUT);
        peer_sends(s, .seq = 1, .ack = 1, .len = 100);
        assert_int_equal(tcp_recv_peek(&s->rig->t, s->tc, 0, 1, span, 1), 1);
        app_reads(s, 100);
        advance_ms(s, 40);
        expect_sent(s, .seq = 1, .ack = 101);
        assert_int_equal(tcp_recv_peek(&s->rig->t, s->tc, 0, 1, span, 1), 0);
        expect_state(s, TCPS_ESTABLISHED);
        app_writes(s, 3);
        expect_sent(s, .seq = 1, .len = 3);
        peer_sends(s, .seq = 101, .ack = 4, .flags = F);
        turn_ends(s);
        expect_sent(s, .seq = 4, .ack = 102);
        expect_state(s, TCPS_CLOSE_WAIT);
}

static void reset_is_reported_by_poll_and_error(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .flags = RA);
        expect_poll(s, IN | POLLRDHUP | POLLHUP | POLLERR | OUT);
        assert_int_equal(tcp_take_error(s->tc), ECONNRESET);
        expect_poll(s, IN | POLLRDHUP | POLLHUP | OUT);
        assert_true(s->tc->events & TCP_EV_CLOSED);
}

static void reset_after_fin_is_a_broken_pipe(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 2, .ack = 1, .flags = RA);
        assert_int_equal(tcp_take_error(s->tc), EPIPE);
}

/* Both have ended, and the peer has not acknowledged all of ours: it may not have it. What it said
 * is still read to its end. */
static void reset_before_all_is_acknowledged_is_told(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 2, .ack = 1, .flags = RA);
        expect_poll(s, IN | POLLRDHUP | POLLHUP | POLLERR | OUT);
        app_reads(s, 0);
        assert_int_equal(tcp_take_error(s->tc), ECONNRESET);
        assert_int_equal(tcp_take_error(s->tc), 0);
}

static void data_received_before_the_reset_is_still_read(void **state)
{
        struct scene *s = *state;
        struct span span[1];

        peer_sends(s, .seq = 1, .ack = 1, .len = 10);
        peer_sends(s, .seq = 11, .ack = 1, .flags = RA);
        app_reads(s, 10);
        assert_int_equal(tcp_recv_peek(&s->rig->t, s->tc, 0, 1, span, 1), -ECONNRESET);
        assert_int_equal(tcp_recv_peek(&s->rig->t, s->tc, 0, 1, span, 1), 0);
}

static void writing_after_shutdown_is_a_broken_pipe(void **state)
{
        struct scene *s = *state;
        struct span span[1];

        assert_int_equal(tcp_send_reserve(&s->rig->t, s->tc, 1, span, 1), -EPIPE);
        assert_int_equal(tcp_recv_peek(&s->rig->t, s->tc, 0, 1, span, 1), -EAGAIN);
}

static void abort_resets(void **state)
{
        struct scene *s = *state;

        app_aborts(s);
        expect_sent(s, .seq = 1, .ack = 1, .flags = RA);
        expect_state(s, TCPS_CLOSED);
}

/* MUST-25 to -29, SHLD-12 */
static void keepalive_asks_and_gives_up(void **state)
{
        struct scene *s = *state;

        advance_ms(s, 7200 * 1000 - 1);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 0, .ack = 1);
        peer_sends(s, .seq = 1, .ack = 1);
        advance_ms(s, 7200 * 1000);
        for (int i = 0; i < 9; i++) {
                expect_sent(s, .seq = 0, .ack = 1);
                expect_silence(s);
                advance_ms(s, 75 * 1000);
        }
        expect_sent(s, .seq = 1, .ack = 1, .flags = RA);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ETIMEDOUT);
}

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

/* RFC 6298 §3: of two SYN-ACKs nobody knows which is answered. */
static void a_syn_ack_sent_twice_measures_nothing(void **state)
{
        struct scene *s = *state;

        advance_ms(s, 300);
        peer_sends(s, .seq = 0, .flags = TCP_SYN);
        forget_sent(s);
        advance_ms(s, 1);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_state(s, TCPS_ESTABLISHED);
        assert_true(s->tc->min_rtt == NSTIME_NEVER);
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

/* RFC 1191: what is queued is cut to the new size. */
static void smaller_mtu_recuts_segments(void **state)
{
        struct scene *s = *state;

        app_writes(s, 2000);
        forget_sent(s);
        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS + 1, EMSGSIZE, false, 640, s->now);
        advance_ms(s, 250);
        expect_sent(s, .seq = 1, .len = 600);
        peer_sends(s, .seq = 1, .ack = 601);
        expect_sent(s, .seq = 601, .len = 400);
        expect_sent(s, .seq = 1001, .len = 600);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 2001);
        forget_sent(s);
}

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

/* ---- after a death inside ---- */

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

/* ---- a peer that says that it has closed: SEG_CLOSED ---- */

static void what_a_closed_peer_is_sent_is_refused(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .flags = F, .urg = SEG_CLOSED);
        turn_ends(s);
        expect_sent(s, .seq = 1, .ack = 2);
        tcp_refuse_sent(&s->rig->t, s->tc);
        expect_state(s, TCPS_CLOSE_WAIT);
        expect_poll(s, IN | POLLRDHUP | OUT);
        app_writes(s, 5);
        expect_sent(s, .seq = 1, .len = 5, .ack = 2);
        tcp_refuse_sent(&s->rig->t, s->tc);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), EPIPE);
        expect_silence(s);
        peer_sends(s, .seq = 2, .flags = R); /* its reset, too late to matter */
        expect_silence(s);
}

static void a_peer_closes_after_its_end(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 2, .ack = 1, .urg = SEG_CLOSED);
        expect_state(s, TCPS_CLOSE_WAIT);
        app_writes(s, 5);
        expect_sent(s, .seq = 1, .len = 5, .ack = 2);
        tcp_refuse_sent(&s->rig->t, s->tc);
        expect_state(s, TCPS_CLOSED);
}

static void what_is_in_flight_to_a_peer_that_closes_is_refused(void **state)
{
        struct scene *s = *state;

        app_writes(s, 5);
        expect_sent(s, .seq = 1, .len = 5, .ack = 1);
        peer_sends(s, .seq = 1, .ack = 1, .flags = F, .urg = SEG_CLOSED);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), EPIPE);
}

static void a_close_says_so(void **state)
{
        struct scene *s = *state;

        app_closes(s);
        expect_sent(s, .seq = 1, .ack = 1, .flags = F, .urg = SEG_CLOSED);
}

static void a_close_after_the_end_says_so(void **state)
{
        struct scene *s = *state;

        app_shuts_send(s);
        expect_sent(s, .seq = 1, .ack = 1, .flags = F);
        assert_int_equal(s->last.urg, 0);
        app_closes(s);
        expect_sent(s, .seq = 2, .ack = 1, .urg = SEG_CLOSED);
}

/* Over a network nobody hears of it, and nobody is believed. */
static void only_where_nothing_is_lost(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .flags = F, .urg = SEG_CLOSED);
        app_writes(s, 5);
        tcp_refuse_sent(&s->rig->t, s->tc);
        expect_state(s, TCPS_CLOSE_WAIT);
        app_closes(s);
        forget_sent(s);
        assert_int_equal(s->last.urg, 0);
}

int main(void)
{
        static const struct scene_setup keepalive = {.keepalive = true}, ts = {.ts = true},
                                        lossless = {.lossless = true};
        const struct CMUnitTest tests[] = {
                scenario(peer_closes_first, established, NULL),
                scenario(we_close_first, established, NULL),
                scenario(both_close_at_once, closing, NULL),
                scenario(fin_and_its_ack_in_one_segment, fin_wait_1, NULL),
                scenario(lost_fin_is_repeated, fin_wait_1, NULL),
                scenario(repeated_fin_restarts_time_wait, time_wait, NULL),
                scenario(newer_syn_ends_time_wait, time_wait, NULL),
                scenario(connect_may_reuse_time_wait_with_timestamps, time_wait, &ts),
                scenario(time_wait_ignores_and_answers, time_wait, NULL),
                scenario(time_wait_answers_what_is_beyond_the_fin, time_wait, NULL),
                scenario(closing_with_unread_data_resets, established, NULL),
                scenario(linger_zero_resets, established, NULL),
                scenario(data_after_close_is_reset, established, NULL),
                scenario(orphan_does_not_wait_for_the_peer_for_ever, established, NULL),
                scenario(orphan_without_answers_is_given_up_sooner, established, &lossless),
                scenario(a_socket_without_answers_waits_longer, established, &lossless),
                scenario(orphan_that_may_have_lost_segments_waits_longer, established, NULL),
                scenario(orphan_before_a_closed_window_is_given_up, established, NULL),
                scenario(half_close_keeps_receiving_for_ever, fin_wait_2, NULL),
                scenario(data_after_shutdown_of_reading_is_still_read, established, NULL),
                scenario(reset_is_reported_by_poll_and_error, established, NULL),
                scenario(reset_after_fin_is_a_broken_pipe, close_wait, NULL),
                scenario(reset_before_all_is_acknowledged_is_told, closing, NULL),
                scenario(reset_before_all_is_acknowledged_is_told, last_ack, NULL),
                scenario(data_received_before_the_reset_is_still_read, established, NULL),
                scenario(writing_after_shutdown_is_a_broken_pipe, fin_wait_2, NULL),
                scenario(abort_resets, established, NULL),
                scenario(what_a_closed_peer_is_sent_is_refused, established, &lossless),
                scenario(a_peer_closes_after_its_end, close_wait, &lossless),
                scenario(what_is_in_flight_to_a_peer_that_closes_is_refused, established,
                         &lossless),
                scenario(a_close_says_so, established, &lossless),
                scenario(a_close_after_the_end_says_so, established, &lossless),
                scenario(only_where_nothing_is_lost, established, NULL),
                scenario(keepalive_asks_and_gives_up, established, &keepalive),
                scenario(icmp_errors_are_advice, established, NULL),
                scenario(an_answer_ends_a_soft_error, established, NULL),
                scenario(an_open_connection_has_no_soft_error, syn_sent, NULL),
                scenario(a_syn_ack_sent_twice_measures_nothing, syn_received, NULL),
                scenario(hard_icmp_error_ends_an_opening, syn_sent, NULL),
                scenario(an_unreachable_host_ends_an_opening, syn_sent, NULL),
                scenario(timestamps_decide_about_time_wait, time_wait, &ts),
                scenario(smaller_mtu_recuts_segments, established, NULL),
                scenario(dead_channel_resets_without_a_segment, established, NULL),
                scenario(peers_are_told_of_a_channel_that_goes, established, NULL),
                scenario(recovery_keeps_queues_and_resets_only_what_makes_no_sense, established,
                         NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
