/* Arrival of segments in synchronised states: RFC 9293 §3.10.7.4. */
#include "tests/tcp/scenarios.h"

static void data_in_order_is_read(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 700);
        peer_sends(s, .seq = 701, .ack = 1, .len = 100);
        assert_int_equal(tcp_recv_avail(s->tc), 800);
        expect_poll(s, POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM);
        app_reads(s, 750);
        app_reads(s, 50);
        assert_int_equal(s->tc->events & TCP_EV_READABLE, TCP_EV_READABLE);
}

/* What nobody has summed yet is summed when it is copied. */
static void unsummed_text_is_read(void **state)
{
        struct scene *s = *state;

        for (uint32_t seq = 1; seq < 64001; seq += 1000) {
                peer_sends(s, .seq = seq, .ack = 1, .len = 1000, .unsummed = true);
                app_reads(s, seq % 2000 == 1 ? 300 : 1700);
        }
        forget_sent(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_CHECKSUM], 0);
}

/* ... and when it is wrong nothing has happened: not to the stream, nor to what the header
 * acknowledges and says of time. */
static void unsummed_text_that_is_wrong_changes_nothing(void **state)
{
        struct scene *s = *state;
        uint32_t ts_recent = s->tc->ts_recent;

        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000, .ack = 1);
        advance_ms(s, 10);
        for (int i = 0; i < 2; i++)
                peer_sends(s, .seq = 1, .ack = 1001, .len = 1000, .unsummed = true,
                           .corrupt = true);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_CHECKSUM], 2);
        assert_int_equal(tcp_recv_avail(s->tc), 0);
        assert_int_equal(s->tc->snd_nxt - s->tc->snd_una, 1000);
        assert_int_equal(s->tc->ts_recent, ts_recent);

        peer_sends(s, .seq = 1, .ack = 1001, .len = 1000, .unsummed = true);
        peer_sends(s, .seq = 1001, .ack = 1001, .len = 1000, .unsummed = true, .corrupt = true);
        peer_sends(s, .seq = 1001, .ack = 1001, .len = 1000, .unsummed = true);
        app_reads(s, 2000);
        assert_int_equal(s->tc->snd_nxt, s->tc->snd_una);
        forget_sent(s);
}

/* First: an old duplicate is answered with an ACK, and nothing else happens. */
static void old_duplicate_is_answered(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 500);
        advance_ms(s, 40);
        expect_sent(s, .seq = 1, .ack = 501);
        peer_sends(s, .seq = 1, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 501);
        assert_int_equal(tcp_recv_avail(s->tc), 500);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_OLD_DUPLICATE], 1);
}

static void only_the_new_part_of_an_overlap_is_taken(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 500);
        peer_sends(s, .seq = 301, .ack = 1, .len = 500);
        forget_sent(s);
        app_reads(s, 800);
        advance_ms(s, 50);
        forget_sent(s);
}

static void beyond_the_window_is_cut_off(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        peer_sends(s, .seq = 1001, .ack = 1, .len = 1000);
        forget_sent(s);
        peer_sends(s, .seq = 2001, .ack = 1, .len = 1500);
        assert_int_equal(tcp_recv_avail(s->tc), 3000);
        advance_ms(s, 50);
        expect_sent(s, .seq = 1, .ack = 3001, .zero_wnd = true);
        peer_sends(s, .seq = 5001, .ack = 1, .len = 10);
        expect_sent(s, .seq = 1, .ack = 3001, .zero_wnd = true);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_OUT_OF_WINDOW], 1);
}

static void segment_without_ack_is_dropped(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .len = 5, .flags = TCP_PSH);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_NO_ACK], 1);
}

int main(void)
{
        static const struct scene_setup small = {.rcvbuf = 3000},
                                        sack_ts = {.sack = true, .ts = true};
        const struct CMUnitTest tests[] = {
                scenario(data_in_order_is_read, established, NULL),
                scenario(unsummed_text_is_read, established, NULL),
                scenario(unsummed_text_that_is_wrong_changes_nothing, established, NULL),
                scenario(unsummed_text_that_is_wrong_changes_nothing, accepted, &sack_ts),
                scenario(old_duplicate_is_answered, established, NULL),
                scenario(only_the_new_part_of_an_overlap_is_taken, established, NULL),
                scenario(beyond_the_window_is_cut_off, established, &small),
                scenario(segment_without_ack_is_dropped, established, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
