/* Arrival of segments in synchronised states: RFC 9293 §3.10.7.4 step by step, 5961, 7323,
 * reassembly and SACK. */
#include "tests/tcp/scenarios.h"

static const struct scene_setup sack = {.sack = true}, ts = {.ts = true},
                                sack_ts = {.sack = true, .ts = true}, small = {.rcvbuf = 3000};

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

/* What is not simply next is summed before anything is made of it. */
static void unsummed_text_beyond_a_gap(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1001, .ack = 1, .len = 1000, .unsummed = true, .corrupt = true);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_CHECKSUM], 1);
        peer_sends(s, .seq = 1001, .ack = 1, .len = 1000, .unsummed = true);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 2001}});
        peer_sends(s, .seq = 1, .ack = 1, .len = 1000, .unsummed = true, .corrupt = true);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 1, .len = 1000, .unsummed = true);
        expect_sent(s, .seq = 1, .ack = 2001);
        app_reads(s, 2000);
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

/* MUST-66: with the window closed, data is refused, but ACK and RST count. */
static void closed_window_takes_acks_and_resets(void **state)
{
        struct scene *s = *state;

        app_writes(s, 100);
        expect_sent(s, .seq = 1, .len = 100, .ack = 1);
        peer_sends(s, .seq = 1, .ack = 1, .len = 1500);
        peer_sends(s, .seq = 1501, .ack = 1, .len = 1500);
        forget_sent(s);
        peer_sends(s, .seq = 3001, .ack = 101, .len = 1);
        expect_sent(s, .seq = 101, .ack = 3001, .zero_wnd = true);
        assert_int_equal(s->tc->snd_una, SCENE_ISS + 101);
        peer_sends(s, .seq = 3001, .ack = 101, .flags = RA);
        expect_state(s, TCPS_CLOSED);
        app_reads(s, 3000); /* what was received before is still there */
        assert_int_equal(tcp_take_error(s->tc), ECONNRESET);
}

/* A FIN needs no room. Behind it the window is as closed as before it. */
static void closed_window_takes_a_fin(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 1500);
        peer_sends(s, .seq = 1501, .ack = 1, .len = 1500);
        forget_sent(s);
        peer_sends(s, .seq = 3001, .ack = 1, .flags = F);
        advance_ms(s, 50);
        expect_sent(s, .seq = 1, .ack = 3002, .zero_wnd = true);
        expect_state(s, TCPS_CLOSE_WAIT);
        peer_sends(s, .seq = 3010, .ack = 1, .flags = R);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_OUT_OF_WINDOW], 1);
        app_reads(s, 3000);
}

/* RFC 5961 §3.2 */
static void reset_must_be_at_the_edge(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 100, .ack = 1, .flags = R);
        expect_sent(s, .seq = 1, .ack = 1);
        expect_state(s, TCPS_ESTABLISHED);
        peer_sends(s, .seq = 0xf0000000u, .ack = 1, .flags = R);
        expect_silence(s);
        peer_sends(s, .seq = 1, .flags = R);
        expect_silence(s);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ECONNRESET);
}

/* RFC 5961 §4.2 */
static void syn_in_a_connection_is_challenged(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .flags = S);
        expect_sent(s, .seq = 1, .ack = 1);
        advance_ms(s, 500);
        peer_sends(s, .seq = 0, .ack = 1, .flags = SA);
        expect_sent(s, .seq = 1, .ack = 1);
        expect_state(s, TCPS_ESTABLISHED);
}

/* RFC 5961 §7 */
static void challenges_are_limited(void **state)
{
        struct scene *s = *state;

        for (int i = 0; i < 150; i++)
                peer_sends(s, .seq = 100, .flags = R);
        expect_sent(s, .seq = 1, .ack = 1);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_CHALLENGE_RATE], 149);
        advance_ms(s, 499);
        peer_sends(s, .seq = 1, .ack = 102, .len = 5); /* of whatever kind, as Linux */
        expect_silence(s);
        advance_ms(s, 1);
        peer_sends(s, .seq = 100, .flags = S);
        expect_sent(s, .seq = 1, .ack = 1);
}

/* RFC 5961 §5.2, RFC 9293: fifth */
static void ack_of_the_future_or_the_distant_past_is_refused(void **state)
{
        struct scene *s = *state;

        app_writes(s, 100);
        expect_sent(s, .seq = 1, .len = 100);
        peer_sends(s, .seq = 1, .ack = 102, .len = 5);
        expect_sent(s, .seq = 101, .ack = 1);
        peer_sends(s, .seq = 1, .ack = 1u - 70000, .len = 5);
        expect_silence(s); /* challenges_are_limited() */
        s->tc->answered_ms = 0;
        peer_sends(s, .seq = 1, .ack = 1u - 70000, .len = 5);
        expect_sent(s, .seq = 101, .ack = 1);
        assert_int_equal(tcp_recv_avail(s->tc), 0);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_BAD_ACK], 3);
        peer_sends(s, .seq = 1, .ack = 101, .len = 5);
        assert_int_equal(tcp_recv_avail(s->tc), 5);
        advance_ms(s, 40);
        expect_sent(s, .seq = 101, .ack = 6);
}

static void segment_without_ack_is_dropped(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .len = 5, .flags = TCP_PSH);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_NO_ACK], 1);
}

/* An ACK of an ACK of an ACK must end somewhere. */
static void bare_acks_outside_the_window_are_not_all_answered(void **state)
{
        struct scene *s = *state;

        for (int i = 0; i < 20; i++)
                peer_sends(s, .seq = 0x10000000, .ack = 1);
        expect_sent(s, .seq = 1, .ack = 1);
        expect_silence(s);
        advance_ms(s, 500);
        peer_sends(s, .seq = 0x10000000, .ack = 1);
        expect_sent(s, .seq = 1, .ack = 1);
}

/* SHLD-31: out of order is kept; each is answered at once; blocks as RFC 2018 §4 orders them. */
static void gaps_are_reported_and_filled(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 501, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{501, 1001}});
        peer_sends(s, .seq = 2001, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{2001, 2501}, {501, 1001}});
        peer_sends(s, .seq = 1001, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{501, 1501}, {2001, 2501}});
        peer_sends(s, .seq = 1, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 1501, .nsack = 1, .sack = {{2001, 2501}});
        peer_sends(s, .seq = 1501, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 2501);
        app_reads(s, 2500);
        advance_ms(s, 100);
        expect_silence(s);
}

/* RFC 2018 §4: after the block that grew just now those that were reported most recently. */
static void blocks_are_reported_most_recent_first(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1001, .ack = 1, .len = 100);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 1101}});
        peer_sends(s, .seq = 2001, .ack = 1, .len = 100);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{2001, 2101}, {1001, 1101}});
        peer_sends(s, .seq = 3001, .ack = 1, .len = 100);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 3,
                    .sack = {{3001, 3101}, {2001, 2101}, {1001, 1101}});
        peer_sends(s, .seq = 4001, .ack = 1, .len = 100);
        peer_sends(s, .seq = 5001, .ack = 1, .len = 100);
        forget_sent(s);
        peer_sends(s, .seq = 2101, .ack = 1, .len = 100); /* an old one grows */
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 4,
                    .sack = {{2001, 2201}, {5001, 5101}, {4001, 4101}, {3001, 3101}});
        peer_sends(s, .seq = 4101, .ack = 1, .len = 900); /* two become one */
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 4,
                    .sack = {{4001, 5101}, {2001, 2201}, {3001, 3101}, {1001, 1101}});
        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        expect_sent(s, .seq = 1, .ack = 1101, .nsack = 3,
                    .sack = {{4001, 5101}, {2001, 2201}, {3001, 3101}});
}

/* All that is missing of a segment is kept, whatever lies between, and the first of what was there
 * is reported (RFC 2883 §4). */
static void a_segment_that_bridges_gaps_is_taken_whole(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 201, .ack = 1, .len = 100);
        peer_sends(s, .seq = 401, .ack = 1, .len = 100);
        peer_sends(s, .seq = 601, .ack = 1, .len = 100);
        forget_sent(s);
        peer_sends(s, .seq = 151, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{201, 301}, {151, 701}});
        peer_sends(s, .seq = 901, .ack = 1, .len = 100, .flags = F);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{901, 1002}, {151, 701}});
        peer_sends(s, .seq = 651, .ack = 1, .len = 350, .flags = F);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{651, 701}, {151, 1002}});
        /* In order, and part of it for the second time. */
        peer_sends(s, .seq = 1, .ack = 1, .len = 250);
        expect_sent(s, .seq = 1, .ack = 1002, .nsack = 1, .sack = {{151, 201}});
        app_reads(s, 1000);
        app_reads(s, 0);
        forget_sent(s);
}

/* The same when frames are worth keeping. */
static void a_large_segment_that_bridges_gaps_is_taken_whole(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1001, .ack = 1, .len = 10);
        peer_sends(s, .seq = 2001, .ack = 1, .len = 10);
        peer_sends(s, .seq = 3001, .ack = 1, .len = 10);
        forget_sent(s);
        peer_sends(s, .seq = 501, .ack = 1, .len = 3000);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{1001, 1011}, {501, 3501}});
        peer_sends(s, .seq = 1, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 3501);
        app_reads(s, 3500);
        forget_sent(s);
}

/* The same FIN beyond a gap, again and again, takes no memory. */
static void repeated_fin_beyond_a_gap_is_one(void **state)
{
        struct scene *s = *state;
        uint32_t used = s->rig->t.sh->rxsegs.used;

        for (int i = 0; i < 10; i++)
                peer_sends(s, .seq = 501, .ack = 1, .flags = F);
        assert_int_equal(s->rig->t.sh->rxsegs.used, used + 1);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 502);
        app_reads(s, 500);
        app_reads(s, 0);
}

/* A FIN takes a sequence number, alone as well. */
static void fin_beyond_a_gap_is_reported(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 501, .ack = 1, .flags = F);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{501, 502}});
        peer_sends(s, .seq = 401, .ack = 1, .len = 100);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{401, 502}});
        peer_sends(s, .seq = 1, .ack = 1, .len = 400);
        expect_sent(s, .seq = 1, .ack = 502);
        expect_state(s, TCPS_CLOSE_WAIT);
}

/* RFC 2883 §4.1, 4.2 */
static void duplicates_are_reported(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 500);
        peer_sends(s, .seq = 1, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 501, .nsack = 1, .sack = {{1, 501}});
        peer_sends(s, .seq = 1001, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 501, .nsack = 1, .sack = {{1001, 1501}});
        peer_sends(s, .seq = 1001, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 501, .nsack = 2, .sack = {{1001, 1501}, {1001, 1501}});
}

static void overlapping_pieces_make_one_stream(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 301, .ack = 1, .len = 300);
        peer_sends(s, .seq = 201, .ack = 1, .len = 250);
        peer_sends(s, .seq = 551, .ack = 1, .len = 450);
        peer_sends(s, .seq = 101, .ack = 1, .len = 900);
        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        app_reads(s, 1000);
        forget_sent(s);
}

static void fin_beyond_a_gap_waits(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 101, .ack = 1, .len = 100, .flags = F);
        forget_sent(s);
        expect_state(s, TCPS_ESTABLISHED);
        peer_sends(s, .seq = 1, .ack = 1, .len = 100);
        expect_sent(s, .seq = 1, .ack = 202);
        expect_state(s, TCPS_CLOSE_WAIT);
        app_reads(s, 200);
        app_reads(s, 0);
}

/* RFC 7323 §5.3 */
static void old_timestamp_is_refused(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 10, .tsval = 9000);
        advance_ms(s, 40);
        expect_sent(s, .seq = 1, .ack = 11);
        assert_int_equal(s->last.tsecr, 9000);
        peer_sends(s, .seq = 11, .ack = 1, .len = 10, .tsval = 8999);
        expect_sent(s, .seq = 1, .ack = 11);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_PAWS], 1);
        peer_sends(s, .seq = 11, .ack = 1, .len = 10, .tsval = 9000);
        advance_ms(s, 40);
        expect_sent(s, .seq = 1, .ack = 21);
}

/* It is no danger, and what it says is missing is sent again. */
static void overtaken_duplicate_ack_is_heard(void **state)
{
        struct scene *s = *state;

        app_writes(s, 4000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1, .len = 10, .tsval = 9000);
        forget_sent(s);
        peer_sends(s, .seq = 11, .ack = 1, .tsval = 8990, .nsack = 1, .sack = {{1001, 4001}});
        expect_sent(s, .seq = 1, .len = 1000, .ack = 11);
        assert_int_equal(s->last.tsecr, 9000);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_PAWS], 0);
}

/* With data, of another window, beyond what is acknowledged, or too old, it is refused as ever. */
static void other_overtaken_segments_are_refused(void **state)
{
        struct scene *s = *state;

        app_writes(s, 1000);
        peer_sends(s, .seq = 1, .ack = 1, .len = 10, .tsval = 900000);
        forget_sent(s);
        peer_sends(s, .seq = 11, .ack = 1, .len = 1, .tsval = 899999);
        peer_sends(s, .seq = 11, .ack = 1, .wnd = 77, .tsval = 899999);
        peer_sends(s, .seq = 11, .ack = 1001, .tsval = 899999);
        peer_sends(s, .seq = 10, .ack = 1, .tsval = 899999);
        peer_sends(s, .seq = 11, .ack = 1, .tsval = 900000 - 120001);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_PAWS], 5);
        assert_int_equal(s->tc->rcv_nxt - s->tc->irs, 11);
        forget_sent(s);
}

/* RFC 7323 §3.2: what was agreed upon is in every segment but a RST. A SYN is challenged all
 * the same. */
static void segment_without_timestamp_is_dropped(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 10, .no_ts = true);
        advance_ms(s, 100);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_NO_TIMESTAMP], 1);
        peer_sends(s, .seq = 1, .flags = S, .no_ts = true);
        expect_sent(s, .seq = 1, .ack = 1);
        peer_sends(s, .seq = 1, .ack = 1, .len = 10);
        app_reads(s, 10);
        forget_sent(s);
        peer_sends(s, .seq = 11, .flags = R);
        expect_state(s, TCPS_CLOSED);
}

/* Who can guess a sequence number in the window but no acknowledgement must not set the clock: all
 * that the peer sent after that would be older. */
static void timestamp_with_a_wrong_ack_is_not_believed(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 9999, .tsval = 2000000, .flags = F);
        expect_sent(s, .seq = 1, .ack = 1);
        peer_sends(s, .seq = 1, .ack = 1, .len = 10);
        advance_ms(s, 40);
        expect_sent(s, .seq = 1, .ack = 11);
        app_reads(s, 10);
}

/* RFC 7323 §4.3: with delayed ACKs the earliest unacknowledged segment is echoed. */
static void first_unacknowledged_timestamp_is_echoed(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 10, .tsval = 9000);
        peer_sends(s, .seq = 11, .ack = 1, .len = 10, .tsval = 9001);
        advance_ms(s, 40);
        expect_sent(s, .seq = 1, .ack = 21);
        assert_int_equal(s->last.tsecr, 9000);
}

/* ---- urgent data: RFC 9293 §3.8.5, RFC 6093 ---- */

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

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(data_in_order_is_read, established, NULL),
                scenario(unsummed_text_is_read, established, NULL),
                scenario(unsummed_text_that_is_wrong_changes_nothing, established, NULL),
                scenario(unsummed_text_that_is_wrong_changes_nothing, accepted, &sack_ts),
                scenario(unsummed_text_beyond_a_gap, established, &sack),
                scenario(old_duplicate_is_answered, established, NULL),
                scenario(only_the_new_part_of_an_overlap_is_taken, established, NULL),
                scenario(beyond_the_window_is_cut_off, established, &small),
                scenario(closed_window_takes_acks_and_resets, established, &small),
                scenario(closed_window_takes_a_fin, established, &small),
                scenario(reset_must_be_at_the_edge, established, NULL),
                scenario(syn_in_a_connection_is_challenged, established, NULL),
                scenario(challenges_are_limited, established, NULL),
                scenario(ack_of_the_future_or_the_distant_past_is_refused, established, NULL),
                scenario(segment_without_ack_is_dropped, established, NULL),
                scenario(bare_acks_outside_the_window_are_not_all_answered, established, NULL),
                scenario(gaps_are_reported_and_filled, established, &sack),
                scenario(blocks_are_reported_most_recent_first, established, &sack),
                scenario(a_segment_that_bridges_gaps_is_taken_whole, established, &sack),
                scenario(a_large_segment_that_bridges_gaps_is_taken_whole, established, &sack),
                scenario(repeated_fin_beyond_a_gap_is_one, established, &sack),
                scenario(fin_beyond_a_gap_is_reported, established, &sack),
                scenario(duplicates_are_reported, established, &sack),
                scenario(overlapping_pieces_make_one_stream, established, &sack),
                scenario(overlapping_pieces_make_one_stream, accepted, NULL),
                scenario(fin_beyond_a_gap_waits, established, NULL),
                scenario(old_timestamp_is_refused, established, &ts),
                scenario(overtaken_duplicate_ack_is_heard, established, &sack_ts),
                scenario(other_overtaken_segments_are_refused, established, &sack_ts),
                scenario(segment_without_timestamp_is_dropped, established, &ts),
                scenario(timestamp_with_a_wrong_ack_is_not_believed, established, &ts),
                scenario(first_unacknowledged_timestamp_is_echoed, established, &ts),
                scenario(urgent_byte_is_read_out_of_line, established, NULL),
                scenario(urgent_byte_may_be_announced_before_it_comes, established, NULL),
                scenario(urgent_byte_is_read_in_line_when_asked, established, NULL),
                scenario(urgent_data_is_announced, established, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
