/* Urgent data: RFC 9293 §3.8.5, RFC 6093. */
#include "tests/tcp/scenarios.h"

static void urgent_byte_is_read_out_of_line(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 10, .flags = TCP_ACK | TCP_URG, .urg = 6);
        assert_true(s->tc->events & TCP_EV_URGENT);
        expect_poll(s, POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLPRI);
        assert_int_equal(tcp_recv_avail(s->tc), 9);
        app_reads(s, 5);
        assert_true(tcp_at_mark(s->tc, 0));
        assert_int_equal(tcp_recv_urgent(&s->rig->t, s->tc, true), scene_byte(6));
        assert_int_equal(tcp_recv_urgent(&s->rig->t, s->tc, false), scene_byte(6));
        assert_int_equal(tcp_recv_urgent(&s->rig->t, s->tc, false), -EINVAL);
        s->read++;
        app_reads(s, 4);
        advance_ms(s, 40);
        expect_sent(s, .seq = 1, .ack = 11);
}

static void urgent_byte_may_be_announced_before_it_comes(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 5, .flags = TCP_ACK | TCP_URG, .urg = 10);
        assert_int_equal(tcp_recv_urgent(&s->rig->t, s->tc, false), -EAGAIN);
        app_reads(s, 5);
        peer_sends(s, .seq = 6, .ack = 1, .len = 5, .flags = TCP_ACK | TCP_URG, .urg = 5);
        assert_int_equal(tcp_recv_urgent(&s->rig->t, s->tc, false), scene_byte(10));
        app_reads(s, 4);
        advance_ms(s, 40);
        expect_sent(s, .seq = 1, .ack = 11);
}

static void urgent_byte_is_read_in_line_when_asked(void **state)
{
        struct scene *s = *state;

        s->opts.oobinline = 1;
        app_sets(s);
        peer_sends(s, .seq = 1, .ack = 1, .len = 10, .flags = TCP_ACK | TCP_URG, .urg = 6);
        assert_int_equal(tcp_recv_urgent(&s->rig->t, s->tc, false), -EINVAL);
        app_reads(s, 5);
        assert_true(tcp_at_mark(s->tc, 0));
        app_reads(s, 5);
        advance_ms(s, 40);
        expect_sent(s, .seq = 1, .ack = 11);
}

/* MUST-62: the pointer is one past the urgent byte. */
static void urgent_data_is_announced(void **state)
{
        struct scene *s = *state;

        app_writes_urgent(s, 5);
        expect_sent(s, .seq = 1, .len = 5, .ack = 1, .flags = TCP_ACK | TCP_URG, .urg = 5);
        peer_sends(s, .seq = 1, .ack = 6);
        app_writes(s, 5);
        expect_sent(s, .seq = 6, .len = 5, .ack = 1);
        peer_sends(s, .seq = 1, .ack = 11);
}

/* MUST-66: urgent data is announced by a segment that the closed window refuses, and by one
 * without data. */
static void a_closed_window_takes_urgent_pointers(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 1500);
        peer_sends(s, .seq = 1501, .ack = 1, .len = 1500);
        forget_sent(s);
        assert_false(s->tc->events & TCP_EV_URGENT);
        peer_sends(s, .seq = 3001, .ack = 1, .flags = TCP_ACK | TCP_URG, .urg = 10);
        assert_true(s->tc->events & TCP_EV_URGENT);
        assert_int_equal(tcp_recv_urgent(&s->rig->t, s->tc, false), -EAGAIN);
        app_reads(s, 3000);
        forget_sent(s);
}

/* MUST-31: any number of bytes may be urgent; the last is the one that is told of. */
static void urgent_data_may_be_long(void **state)
{
        struct scene *s = *state;

        app_writes_urgent(s, 5000);
        for (uint32_t i = 0; i < 5; i++) {
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000, .flags = TCP_ACK | TCP_URG);
                assert_int_equal(s->last.urg, 5000 - 1000 * i);
        }
        peer_sends(s, .seq = 1, .ack = 5001);
}

int main(void)
{
        static const struct scene_setup small = {.rcvbuf = 3000};
        const struct CMUnitTest tests[] = {
                scenario(urgent_byte_is_read_out_of_line, established, NULL),
                scenario(urgent_byte_may_be_announced_before_it_comes, established, NULL),
                scenario(urgent_byte_is_read_in_line_when_asked, established, NULL),
                scenario(urgent_data_is_announced, established, NULL),
                scenario(a_closed_window_takes_urgent_pointers, established, &small),
                scenario(urgent_data_may_be_long, established, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
