/* When data in order is acknowledged: tcp_delack.c. RFC 9293 §3.8.6.3, 5681 §4.2. */
#include "tests/tcp/scenarios.h"

#define TRAIN 128u /* full-sized segments without a pause make one */

static const struct scene_setup growing = {.wscale = 7, .ts = true},
                                scaled = {.wscale = 7, .rcvbuf = 300000},
                                stamped = {.wscale = 7, .rcvbuf = 300000, .ts = true},
                                narrow = {.rcvbuf = 20000},
                                sacked = {.wscale = 7, .sack = true, .ts = true};

/* ---- the rule ---- */

/* RFC 9293 SHLD-18, -19, MUST-40. */
static void acks_are_delayed_but_not_for_long(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        expect_silence(s);
        advance_ms(s, 39);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .ack = 1001);
        peer_sends(s, .seq = 1001, .ack = 1, .len = 1000);
        expect_silence(s);
        peer_sends(s, .seq = 2001, .ack = 1, .len = 1000);
        expect_sent(s, .seq = 1, .ack = 3001);
}

static void first_segments_are_acked_at_once_or_by_what_answers_them(void **state)
{
        struct scene *s = *state;

        s->tc->quick = 3;
        peer_sends(s, .seq = 1, .ack = 1, .len = 10);
        turn_ends(s);
        expect_sent(s, .seq = 1, .ack = 11);
        peer_sends(s, .seq = 11, .ack = 1, .len = 10);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .ack = 21);
        peer_sends(s, .seq = 21, .ack = 1, .len = 10);
        app_writes(s, 5);
        expect_sent(s, .seq = 1, .len = 5, .ack = 31);
        peer_sends(s, .seq = 31, .ack = 6, .len = 10);
        advance_ms(s, 39);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 6, .ack = 41);
}

/* Who is told of the end most often closes, and then that is one segment, not two. */
static void the_end_is_acked_at_once_or_by_what_answers_it(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .flags = F);
        expect_silence(s);
        app_closes(s);
        expect_sent(s, .seq = 1, .ack = 2, .flags = F);
        turn_ends(s);
        advance_ms(s, 1);
        expect_silence(s);
        peer_sends(s, .seq = 2, .ack = 2);
}

static void the_end_is_acked_though_nobody_answers_it(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .flags = F);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .ack = 2);
}

/* Up to where the peer's FIN, the last segment, is there. */
static void both_are_closed(struct scene *s)
{
        app_closes(s);
        expect_sent(s, .seq = 1, .ack = 1, .flags = F);
        peer_sends(s, .seq = 1, .ack = 2);
        peer_sends(s, .seq = 1, .ack = 2, .flags = F);
        expect_state(s, TCPS_TIME_WAIT);
}

/* Nobody here waits for it: what the application does now goes first. */
static void the_last_ack_goes_when_there_is_nothing_to_do(void **state)
{
        struct scene *s = *state;

        both_are_closed(s);
        expect_silence(s);
        turn_ends(s);
        expect_sent(s, .seq = 2, .ack = 2);
        advance_ms(s, 59998);
        expect_silence(s);
        expect_state(s, TCPS_TIME_WAIT);
}

static void the_last_ack_goes_though_there_is_something_to_do(void **state)
{
        struct scene *s = *state;

        both_are_closed(s);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 2, .ack = 2);
        peer_sends(s, .seq = 1, .ack = 2, .flags = F);
        expect_sent(s, .seq = 2, .ack = 2);
}

static void the_last_ack_of_a_lossless_link_goes_at_once(void **state)
{
        struct scene *s = *state;

        both_are_closed(s);
        expect_sent(s, .seq = 2, .ack = 2);
}

static void lossless_link_acks_at_the_end_of_a_turn(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 10);
        peer_sends(s, .seq = 11, .ack = 1, .len = 10);
        expect_silence(s);
        turn_ends(s);
        expect_sent(s, .seq = 1, .ack = 21);
        turn_ends(s);
        expect_silence(s);
}

static void data_of_ours_carries_the_ack(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 10);
        app_writes(s, 5);
        expect_sent(s, .seq = 1, .len = 5, .ack = 11);
        advance_ms(s, 100);
        expect_silence(s);
        peer_sends(s, .seq = 11, .ack = 6);
}

/* ---- trains ---- */

/* A connection whose handshake took 8 ms; the first segments at its beginning are behind it. */
static int established_8_ms(void **state)
{
        struct scene *s;

        syn_sent(state);
        s = *state;
        advance_ms(s, 8);
        peer_sends(s, .seq = 0, .ack = 1, .flags = SA, .mss = 1000, .tsecr = s->last.tsval);
        expect_sent(s, .seq = 1, .ack = 1);
        peer_sends(s, .seq = 1, .ack = 1, .tsecr = s->last.tsval);
        s->tc->quick = 0;
        return 0;
}

/* One full-sized segment that follows the others, read at once. */
static void next_comes(struct scene *s, uint8_t flags)
{
        uint32_t seq = s->tc->rcv_nxt - SCENE_IRS;

        peer_sends(s, .seq = seq, .ack = 1, .len = 1000, .flags = flags, .tsecr = s->last.tsval);
        app_reads(s, 1000);
}

static void many_come(struct scene *s, uint32_t n)
{
        while (n-- != 0)
                next_comes(s, TCP_ACK);
}

static uint32_t next_byte(const struct scene *s)
{
        return s->tc->rcv_nxt - SCENE_IRS;
}

/* ... and every second one is acknowledged. */
static void expect_every_second(struct scene *s, uint32_t n)
{
        for (uint32_t i = 0; i < n; i += 2) {
                next_comes(s, TCP_ACK);
                expect_silence(s);
                next_comes(s, TCP_ACK);
                expect_sent(s, .seq = 1, .ack = next_byte(s));
        }
}

/* The train has begun, and all of it so far is acknowledged. */
static void train_begins(struct scene *s)
{
        expect_every_second(s, TRAIN - 2);
        many_come(s, 2);
        expect_silence(s);
        advance_ms(s, 2);
        expect_sent(s, .seq = 1, .ack = TRAIN * 1000 + 1);
}

static void a_train_is_acked_by_64_kilobytes(void **state)
{
        struct scene *s = *state;

        train_begins(s);
        for (uint32_t i = 0; i < 3; i++) {
                many_come(s, 65);
                expect_silence(s);
                next_comes(s, TCP_ACK);
                expect_sent(s, .seq = 1, .ack = next_byte(s));
        }
}

/* ... by a quarter of the window where that is less. */
static void a_train_through_a_narrow_window_is_acked_by_a_quarter_of_it(void **state)
{
        struct scene *s = *state;
        uint32_t acked = 0, begin;

        many_come(s, TRAIN);
        begin = next_byte(s);
        forget_sent(s);
        for (uint32_t i = 0; i < 40; i++) {
                next_comes(s, TCP_ACK);
                if (s->tail == 0)
                        continue;
                expect_sent(s, .seq = 1, .ack = next_byte(s));
                assert_in_range(next_byte(s) - MAX(acked, begin), 2000, 5000);
                acked = next_byte(s);
        }
        assert_int_not_equal(acked, 0);
}

/* 140,000 bytes a millisecond, read as they come, of a peer that hears of them four
 * milliseconds later. */
static void a_way_of_four_ms(struct scene *s, uint32_t ms, bool caught_up)
{
        while (ms-- != 0) {
                for (uint32_t i = 0; i < 140; i++) {
                        peer_sends(s, .seq = next_byte(s), .ack = 1, .len = 1000,
                                   .tsecr = conn_ts(s->tc, s->now) - 4);
                        app_reads(s, 1000);
                }
                if (caught_up)
                        tcp_caught_up(&s->rig->t, s->now);
                advance_ms(s, 1);
                forget_sent(s);
        }
}

/* Opened over an empty way, and then a queue grew on it: a buffer of data arrives in a round trip,
 * not in one of the handshake's. It was sized by the handshake's, and of what a peer could send a
 * third went (bench/impair, clean). */
static void the_receive_buffer_follows_the_round_trip_of_the_data(void **state)
{
        struct scene *s = *state;
        uint32_t limit = s->tc->rcv_limit;

        s->tc->srtt = s->tc->min_rtt = 50 * NS_PER_US;
        a_way_of_four_ms(s, 12, true);
        assert_int_equal(s->tc->rcv_limit, 4 * limit);
}

/* The queue may be our own, at the interface of a host that is slower than its peer: eight
 * connections had 6 MB each then, all of it unread, and a round trip of 18 ms. */
static void the_receive_buffer_does_not_grow_for_a_reader_that_is_behind(void **state)
{
        struct scene *s = *state;

        s->tc->srtt = s->tc->min_rtt = 50 * NS_PER_US;
        s->tc->rcv_limit = s->tc->rcv_size = 500000;
        a_way_of_four_ms(s, 40, false);
        assert_int_equal(s->tc->rcv_limit, 1000000);
        s->tc->rcv_limit = s->tc->rcv_size = 550000;
        a_way_of_four_ms(s, 40, false);
        assert_int_equal(s->tc->rcv_limit, 550000);
        a_way_of_four_ms(s, 12, true);
        assert_int_equal(s->tc->rcv_limit, 1100000);
}

/* What comes behind a gap is told at once three times, so that it is repaired; then for a twentieth
 * of the round trip, here the millisecond that is the most, or 44 segments; and at once when what
 * was missing has come. As Linux since 4.18; RFC 5681 §4.2 has one for each. */
static void duplicates_beyond_the_third_share_an_ack(void **state)
{
        struct scene *s = *state;
        uint32_t gap = next_byte(s), at = gap + 1000, ts = s->last.tsval;

        s->tc->min_rtt = 40 * NS_PER_MS;
        for (int i = 0; i < 3; i++, at += 1000) {
                peer_sends(s, .seq = at, .ack = 1, .len = 1000, .tsecr = ts);
                expect_sent(s, .seq = 1, .ack = gap, .nsack = 1, .sack = {{gap + 1000, at + 1000}});
        }
        peer_sends(s, .seq = at, .ack = 1, .len = 1000, .tsecr = ts);
        peer_sends(s, .seq = at + 1000, .ack = 1, .len = 1000, .tsecr = ts);
        turn_ends(s);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .ack = gap, .nsack = 1, .sack = {{gap + 1000, at + 2000}});
        for (int i = 2; i < 2 + 43; i++)
                peer_sends(s, .seq = at + i * 1000, .ack = 1, .len = 1000, .tsecr = ts);
        expect_sent(s, .seq = 1, .ack = gap, .nsack = 1, .sack = {{gap + 1000, at + 44000}});
        peer_sends(s, .seq = gap, .ack = 1, .len = 1000, .tsecr = ts);
        expect_sent(s, .seq = 1, .ack = at + 45000);
        advance_ms(s, 10);
        expect_silence(s);
}

/* A quarter of 8 ms is 2, and nothing waits longer. The end of a turn changes nothing. */
static void what_is_left_of_a_train_is_acked_soon(void **state)
{
        struct scene *s = *state;

        train_begins(s);
        many_come(s, 20);
        turn_ends(s);
        advance_ms(s, 1);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .ack = next_byte(s));
        advance_ms(s, 100);
        expect_silence(s);
}

static void a_push_ends_the_wait(void **state)
{
        struct scene *s = *state;

        train_begins(s);
        many_come(s, 20);
        expect_silence(s);
        next_comes(s, TCP_ACK | TCP_PSH);
        expect_sent(s, .seq = 1, .ack = next_byte(s));
        next_comes(s, TCP_ACK | TCP_PSH);
        turn_ends(s);
        expect_sent(s, .seq = 1, .ack = next_byte(s));
}

static void a_short_segment_ends_the_train(void **state)
{
        struct scene *s = *state;
        uint32_t at;

        train_begins(s);
        many_come(s, 20);
        at = next_byte(s);
        peer_sends(s, .seq = at, .ack = 1, .len = 10);
        expect_sent(s, .seq = 1, .ack = at + 10);
        app_reads(s, 10);
        expect_every_second(s, 20);
}

static void a_gap_is_told_at_once_and_ends_the_train(void **state)
{
        struct scene *s = *state;
        uint32_t at;

        train_begins(s);
        many_come(s, 20);
        at = next_byte(s);
        peer_sends(s, .seq = at + 1000, .ack = 1, .len = 1000);
        expect_sent(s, .seq = 1, .ack = at);
        peer_sends(s, .seq = at, .ack = 1, .len = 1000);
        expect_sent(s, .seq = 1, .ack = at + 2000);
        app_reads(s, 2000);
        expect_every_second(s, 20);
}

static void the_end_of_the_stream_is_acked_at_once(void **state)
{
        struct scene *s = *state;
        uint32_t at;

        train_begins(s);
        many_come(s, 20);
        at = next_byte(s);
        peer_sends(s, .seq = at, .ack = 1, .flags = F);
        turn_ends(s);
        expect_sent(s, .seq = 1, .ack = at + 1);
}

/* A pause as long as a round trip: the sender may have waited for us, or has stopped and
 * starts slowly. */
static void a_pause_ends_the_train(void **state)
{
        struct scene *s = *state;

        train_begins(s);
        advance_ms(s, 5);
        many_come(s, 20);
        expect_silence(s);
        advance_ms(s, 2);
        expect_sent(s, .seq = 1, .ack = next_byte(s));
        advance_ms(s, 6);
        expect_every_second(s, 20);
}

static void what_the_application_sends_carries_the_ack_of_a_train(void **state)
{
        struct scene *s = *state;

        train_begins(s);
        many_come(s, 20);
        app_writes(s, 5);
        expect_sent(s, .seq = 1, .len = 5, .ack = next_byte(s));
        turn_ends(s);
        advance_ms(s, 1);
        expect_silence(s);
        peer_sends(s, .seq = next_byte(s), .ack = 6);
}

/* TCP_QUICKACK. */
static void a_quick_receiver_knows_no_trains(void **state)
{
        struct scene *s = *state;

        s->opts.quickack = 1;
        app_sets(s);
        for (uint32_t i = 0; i < 2 * TRAIN; i++) {
                next_comes(s, TCP_ACK);
                expect_sent(s, .seq = 1, .ack = next_byte(s));
        }
}

/* A handshake within the link's granularity: a quarter of nothing is no time to wait. */
static void a_short_way_has_no_trains(void **state)
{
        struct scene *s = *state;

        expect_every_second(s, 2 * TRAIN);
}

/* ... but it may be a short way with long queues, of which echoed timestamps tell. */
static void a_train_through_queues_is_known_by_its_echoes(void **state)
{
        struct scene *s = *state;

        expect_every_second(s, 2 * TRAIN);
        s->last.tsval -= 8;
        many_come(s, TRAIN);
        advance_ms(s, 1);
        forget_sent(s);
        many_come(s, 20);
        turn_ends(s);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .ack = next_byte(s));
}

int main(void)
{
        static const struct scene_setup lossless = {.lossless = true};
        const struct CMUnitTest tests[] = {
                scenario(acks_are_delayed_but_not_for_long, established, NULL),
                scenario(first_segments_are_acked_at_once_or_by_what_answers_them, established,
                         NULL),
                scenario(the_end_is_acked_at_once_or_by_what_answers_it, established, NULL),
                scenario(the_end_is_acked_though_nobody_answers_it, established, NULL),
                scenario(the_last_ack_goes_when_there_is_nothing_to_do, established, NULL),
                scenario(the_last_ack_goes_though_there_is_something_to_do, established, NULL),
                scenario(the_last_ack_of_a_lossless_link_goes_at_once, established, &lossless),
                scenario(lossless_link_acks_at_the_end_of_a_turn, established, &lossless),
                scenario(data_of_ours_carries_the_ack, established, NULL),
                scenario(a_train_is_acked_by_64_kilobytes, established_8_ms, &scaled),
                scenario(a_train_through_a_narrow_window_is_acked_by_a_quarter_of_it,
                         established_8_ms, &narrow),
                scenario(the_receive_buffer_follows_the_round_trip_of_the_data, established_8_ms,
                         &growing),
                scenario(duplicates_beyond_the_third_share_an_ack, established_8_ms, &sacked),
                scenario(the_receive_buffer_does_not_grow_for_a_reader_that_is_behind,
                         established_8_ms, &growing),
                scenario(what_is_left_of_a_train_is_acked_soon, established_8_ms, &scaled),
                scenario(a_push_ends_the_wait, established_8_ms, &scaled),
                scenario(a_short_segment_ends_the_train, established_8_ms, &scaled),
                scenario(a_gap_is_told_at_once_and_ends_the_train, established_8_ms, &scaled),
                scenario(the_end_of_the_stream_is_acked_at_once, established_8_ms, &scaled),
                scenario(a_pause_ends_the_train, established_8_ms, &scaled),
                scenario(what_the_application_sends_carries_the_ack_of_a_train, established_8_ms,
                         &scaled),
                scenario(a_quick_receiver_knows_no_trains, established_8_ms, &scaled),
                scenario(a_short_way_has_no_trains, established, &scaled),
                scenario(a_train_through_queues_is_known_by_its_echoes, established, &stamped),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
