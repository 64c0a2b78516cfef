/* Closing: RFC 9293 §3.6, §3.10.4-5; half close, resets; what poll and the errors say, as Linux
 * has it. */
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

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(peer_closes_first, established, NULL),
                scenario(we_close_first, established, NULL),
                scenario(both_close_at_once, closing, NULL),
                scenario(fin_and_its_ack_in_one_segment, fin_wait_1, NULL),
                scenario(lost_fin_is_repeated, fin_wait_1, NULL),
                scenario(closing_with_unread_data_resets, established, NULL),
                scenario(linger_zero_resets, established, NULL),
                scenario(data_after_close_is_reset, established, NULL),
                scenario(half_close_keeps_receiving_for_ever, fin_wait_2, NULL),
                scenario(data_after_shutdown_of_reading_is_still_read, established, NULL),
                scenario(reset_is_reported_by_poll_and_error, established, NULL),
                scenario(reset_after_fin_is_a_broken_pipe, close_wait, NULL),
                scenario(reset_before_all_is_acknowledged_is_told, closing, NULL),
                scenario(reset_before_all_is_acknowledged_is_told, last_ack, NULL),
                scenario(data_received_before_the_reset_is_still_read, established, NULL),
                scenario(writing_after_shutdown_is_a_broken_pipe, fin_wait_2, NULL),
                scenario(abort_resets, established, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
