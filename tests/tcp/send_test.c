/* Sending: windows, Nagle, cork, silly windows, probes. */
#include "tests/tcp/scenarios.h"

static const struct scene_setup nagle = {.nagle = true};
static const struct scene_setup small_wnd = {.wnd = 2500}, tiny_wnd = {.wnd = 400};

/* ---- windows, Nagle, SWS ---- */

static void data_is_cut_to_the_mss(void **state)
{
        struct scene *s = *state;

        app_writes(s, 2500);
        expect_sent(s, .seq = 1, .len = 1000, .ack = 1);
        expect_sent(s, .seq = 1001, .len = 1000, .ack = 1);
        expect_sent(s, .seq = 2001, .len = 500, .ack = 1);
        assert_true(s->last.flags & TCP_PSH); /* MUST-61 */
        peer_sends(s, .seq = 1, .ack = 2501);
        assert_int_equal(s->tc->rtx_at, NSTIME_NEVER);
}

/* A congestion window of 250 segments is written and, after a round trip, acknowledged. */
static void fills_the_window(struct scene *s, uint32_t round_trip_ms)
{
        uint32_t at = s->tc->snd_nxt - s->tc->iss;

        s->tc->cwnd = 250 * 1000;
        s->tc->snd_wnd = 1 << 20;
        app_writes(s, 250 * 1000);
        for (uint32_t i = 0; i < 250; i++)
                expect_sent(s, .seq = at + 1000 * i, .len = 1000);
        if (round_trip_ms != 0)
                advance_ms(s, round_trip_ms);
        peer_sends(s, .seq = 1, .ack = at + 250 * 1000);
        assert_int_equal(s->tc->cwnd, 500 * 1000);
}

/* Twice the window finds room, where the way is long; where it is short, no more than fits into
 * a cache. */
static void send_buffer_grows_with_the_window(void **state)
{
        struct scene *s = *state;

        fills_the_window(s, 0);
        assert_int_equal(s->tc->snd_limit, 512 << 10);
        s->tc->srtt = 2 * NS_PER_MS;
        fills_the_window(s, 2);
        assert_int_equal(s->tc->snd_limit, 1000 * 1000);
}

static void send_buffer_of_a_long_way_is_large(void **state)
{
        struct scene *s = *state;

        s->tc->min_rtt = s->tc->srtt = NS_PER_MS;
        fills_the_window(s, 1);
        assert_int_equal(s->tc->snd_limit, 1000 * 1000);
}

/* 10 ms at 2 Gb/s, and 2 ms more for what is late: but no more than that. */
static void send_buffer_has_room_for_what_is_late(void **state)
{
        struct scene *s = *state;

        s->tc->min_rtt = s->tc->srtt = 10 * NS_PER_MS;
        s->tc->snd_wnd = 4 << 20;
        for (uint32_t bytes = 200 * 1000, at = 1; s->tc->cwnd < 3200 * 1000;
             at += bytes, bytes *= 2) {
                s->tc->cwnd = bytes;
                app_writes(s, (int)bytes);
                advance_ms(s, 10);
                peer_sends(s, .seq = 1, .ack = at + bytes);
                s->tc->snd_wnd = 4 << 20;
                forget_sent(s);
        }
        assert_int_equal(s->tc->snd_limit, 6 << 20);
}

/* RFC 6928: ten segments at first. */
static void initial_window_is_ten_segments(void **state)
{
        struct scene *s = *state;

        app_writes(s, 15000);
        for (uint32_t i = 0; i < 10; i++)
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000);
        expect_silence(s);
        assert_int_equal(s->tc->limit, TCP_LIM_CWND);
        peer_sends(s, .seq = 1, .ack = 2001);
        for (uint32_t i = 10; i < 14; i++) /* two left, two more by slow start */
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000);
        expect_silence(s);
        app_aborts(s);
        forget_sent(s);
}

static void peer_window_is_respected(void **state)
{
        struct scene *s = *state;

        app_writes(s, 4000);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_sent(s, .seq = 1001, .len = 1000);
        expect_silence(s); /* 500 are less than a segment and than half the window */
        assert_int_equal(s->tc->limit, TCP_LIM_RWND);
        peer_sends(s, .seq = 1, .ack = 1001);
        expect_sent(s, .seq = 2001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 3001, .wnd = 1250);
        expect_sent(s, .seq = 3001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 4001);
}

/* A window that never takes a segment is used by halves (RFC 9293 §3.8.6.2.1 (3)). */
static void small_window_is_used_in_pieces(void **state)
{
        struct scene *s = *state;

        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 400);
        peer_sends(s, .seq = 1, .ack = 401, .wnd = 150);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 401, .wnd = 250);
        expect_sent(s, .seq = 401, .len = 250);
        peer_sends(s, .seq = 1, .ack = 651, .wnd = 400);
        expect_sent(s, .seq = 651, .len = 350);
        peer_sends(s, .seq = 1, .ack = 1001);
}

/* RFC 9293 §3.7.4, and Minshall: a full segment in flight holds nothing back. */
static void nagle_holds_the_second_small_segment(void **state)
{
        struct scene *s = *state;

        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000);
        app_writes(s, 10);
        expect_sent(s, .seq = 1001, .len = 10);
        app_writes(s, 10);
        app_writes(s, 20);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 1011);
        expect_sent(s, .seq = 1011, .len = 30);
        app_writes(s, 10);
        expect_silence(s);
        s->opts.nodelay = 1; /* MUST-17, and it takes effect at once */
        app_sets(s);
        expect_sent(s, .seq = 1041, .len = 10);
        peer_sends(s, .seq = 1, .ack = 1051);
}

static void fin_goes_along_whatever_nagle_says(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10);
        expect_sent(s, .seq = 1, .len = 10);
        app_writes(s, 10);
        expect_silence(s);
        app_shuts_send(s);
        expect_sent(s, .seq = 11, .len = 10, .flags = F);
        peer_sends(s, .seq = 1, .ack = 22);
}

static void cork_holds_until_taken_off_or_200_ms(void **state)
{
        struct scene *s = *state;

        s->opts.cork = 1;
        app_sets(s);
        app_writes(s, 300);
        app_writes(s, 300);
        expect_silence(s);
        app_writes(s, 600);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 1001);
        expect_silence(s);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1001, .len = 200);
        app_writes(s, 5);
        expect_silence(s);
        s->opts.cork = 0;
        app_sets(s);
        expect_sent(s, .seq = 1201, .len = 5);
        peer_sends(s, .seq = 1, .ack = 1206);
}

/* As Linux: what is said while there is urgent data is not held back by it. */
static void nagle_holds_nothing_behind_urgent_data(void **state)
{
        struct scene *s = *state;

        app_writes_urgent(s, 3);
        expect_sent(s, .seq = 1, .len = 3, .flags = TCP_ACK | TCP_URG);
        app_writes(s, 3);
        expect_sent(s, .seq = 4, .len = 3);
        peer_sends(s, .seq = 1, .ack = 4);
        app_writes(s, 3);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 7);
        expect_sent(s, .seq = 7, .len = 3);
        peer_sends(s, .seq = 1, .ack = 10);
}

static void msg_more_waits_for_the_rest(void **state)
{
        struct scene *s = *state;

        app_writes_more(s, 100);
        expect_silence(s);
        app_writes(s, 100);
        expect_sent(s, .seq = 1, .len = 200);
        peer_sends(s, .seq = 1, .ack = 201);
}

/* RFC 9293 §3.9.1.2, and Linux: it is a SEND without the PUSH flag, as long as that holds nothing
 * back for good. */
static void msg_more_does_not_push(void **state)
{
        struct scene *s = *state;

        app_writes_more(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_false(s->last.flags & TCP_PSH);
        peer_sends(s, .seq = 1, .ack = 1001);
        app_writes_more(s, 100);
        expect_silence(s);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1001, .len = 100);
        assert_true(s->last.flags & TCP_PSH); /* MUST-61: there is no more */
        peer_sends(s, .seq = 1, .ack = 1101);
}

static void msg_more_pushes_half_a_window(void **state)
{
        struct scene *s = *state;

        s->tc->max_wnd = 2400;
        app_writes_more(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_false(s->last.flags & TCP_PSH);
        app_writes_more(s, 1000);
        expect_sent(s, .seq = 1001, .len = 1000);
        assert_true(s->last.flags & TCP_PSH);
        peer_sends(s, .seq = 1, .ack = 2001);
}

/* As Linux: TCP_NODELAY pushes when it is set, though it was set before. */
static void nodelay_pushes_what_msg_more_holds(void **state)
{
        struct scene *s = *state;

        s->opts.nodelay = 1;
        app_sets(s);
        app_writes_more(s, 100);
        expect_silence(s);
        app_sets(s);
        expect_sent(s, .seq = 1, .len = 100);
        assert_false(s->last.flags & TCP_PSH);
        peer_sends(s, .seq = 1, .ack = 101);
}

/* As Linux: it speaks of the write, not of the connection. With the next segment that comes, what
 * was held goes by Nagle's rule. */
static void what_arrives_releases_what_msg_more_holds(void **state)
{
        struct scene *s = *state;

        s->opts.nodelay = 1;
        app_sets(s);
        app_writes_more(s, 3100);
        for (uint32_t i = 0; i < 3; i++)
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 2001);
        expect_sent(s, .seq = 3001, .len = 100);
        peer_sends(s, .seq = 1, .ack = 3101);
}

static void what_arrives_does_not_uncork(void **state)
{
        struct scene *s = *state;

        s->opts.nodelay = s->opts.cork = 1;
        app_sets(s);
        app_writes(s, 3100);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 3001);
        expect_silence(s);
        advance_ms(s, 200);
        expect_sent(s, .seq = 3001, .len = 100);
        peer_sends(s, .seq = 1, .ack = 3101);
}

/* RFC 9293 §3.8.6.1: MUST-35, -36, SHLD-29, -30; MUST-37. Without data, as Linux. */
static void zero_window_is_probed_with_back_off(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        app_writes(s, 100);
        expect_silence(s);
        advance_ms(s, 199);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 0, .ack = 1);
        for (uint32_t wait = 400, i = 0; i < 20; i++, wait = MIN(wait * 2, 120000)) {
                peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
                advance_ms(s, wait - 1);
                expect_silence(s);
                advance_ms(s, 1);
                expect_sent(s, .seq = 0, .ack = 1);
        }
        expect_state(s, TCPS_ESTABLISHED);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 1, .len = 100);
        peer_sends(s, .seq = 1, .ack = 101);
        advance_ms(s, 1000);
        expect_silence(s);
}

/* As Linux: beyond an edge that went back nothing of ours would be taken, and no acknowledgement
 * with it. */
static void acks_stay_inside_a_window_that_shrank(void **state)
{
        struct scene *s = *state;

        app_writes(s, 3000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1, .wnd = 500, .len = 10);
        advance_ms(s, 40);
        expect_sent(s, .seq = 501, .ack = 11);
        peer_sends(s, .seq = 11, .ack = 1001, .wnd = 2000, .len = 10);
        advance_ms(s, 40);
        expect_sent(s, .seq = 3001, .ack = 21);
        peer_sends(s, .seq = 21, .ack = 3001);
}

/* As Linux: what comes beyond a gap has a higher number, and what the peer sends after it from
 * below the gap is newer all the same. */
static void what_acknowledges_more_tells_the_window_below_a_gap(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1001, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 1);
        app_writes(s, 100);
        expect_sent(s, .seq = 1, .len = 100);
        peer_sends(s, .seq = 1, .ack = 101, .zero_wnd = true);
        app_writes(s, 100);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 101, .wnd = 5000);
        expect_sent(s, .seq = 101, .len = 100);
        peer_sends(s, .seq = 1, .ack = 201);
        peer_sends(s, .seq = 1, .ack = 101, .zero_wnd = true); /* but not what is old */
        app_writes(s, 100);
        expect_sent(s, .seq = 201, .len = 100);
        peer_sends(s, .seq = 1, .ack = 301, .len = 1000);
        forget_sent(s);
}

/* A peer that took the question for nothing new has no room for the answer, either, until it reads:
 * and says so by itself. */
static void a_question_about_the_window_leaves_no_trace(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        app_writes(s, 100);
        app_closes(s);
        advance_ms(s, 200);
        expect_sent(s, .seq = 0, .ack = 1);
        assert_int_equal(s->tc->snd_nxt, s->tc->snd_una);
        peer_sends(s, .seq = 1, .ack = 1, .wnd = 40);
        expect_silence(s);
        advance_ms(s, 400); /* a window that is only too small takes data */
        expect_sent(s, .seq = 1, .len = 40);
        peer_sends(s, .seq = 1, .ack = 41, .wnd = 1000);
        expect_sent(s, .seq = 41, .len = 60, .flags = F);
        peer_sends(s, .seq = 1, .ack = 102);
        forget_sent(s);
}

/* Where nothing is lost it is a byte. The probe that the peer did not take goes again with what
 * follows, not as a hole to be repaired. */
static void opened_window_takes_the_probe_again(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        app_writes(s, 100);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1, .len = 1);
        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 1, .len = 100);
        peer_sends(s, .seq = 1, .ack = 101);
}

/* SHLD-16, MUST-34: the window shrank over what is in flight. */
static void shrunken_window_is_survived(void **state)
{
        struct scene *s = *state;

        app_writes(s, 3000);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_sent(s, .seq = 1001, .len = 1000);
        expect_sent(s, .seq = 2001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 1001, .zero_wnd = true);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1001, .len = 1);
        peer_sends(s, .seq = 1, .ack = 1001, .wnd = 5000);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 3001, .wnd = 5000);
}

/* SHLD-16: what the window still takes of the first is what goes again. */
static void what_is_lost_is_cut_to_a_shrunken_window(void **state)
{
        struct scene *s = *state;

        app_writes(s, 3000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001, .wnd = 100);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1001, .len = 100);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 1101, .wnd = 5000);
        expect_sent(s, .seq = 1101, .len = 900);
        peer_sends(s, .seq = 1, .ack = 3001, .wnd = 5000);
}

static void window_opens_again_when_the_reader_reads(void **state)
{
        struct scene *s = *state;

        for (uint32_t i = 0; i < 4; i++)
                peer_sends(s, .seq = 1 + 1000 * i, .ack = 1, .len = 1000);
        expect_sent(s, .seq = 1, .ack = 2001);
        expect_sent(s, .seq = 1, .ack = 4001, .zero_wnd = true);
        app_reads(s, 500);
        expect_silence(s); /* less than a segment: MUST-39 */
        app_reads(s, 500);
        expect_sent(s, .seq = 1, .ack = 4001, .wnd = 1000);
        app_reads(s, 3000);
        expect_sent(s, .seq = 1, .ack = 4001, .wnd = 4000);
}

/* Less than a segment is left of the window of 4000: the sender can do nothing with an
 * acknowledgement before the reader has read, and then one says both. Nobody reads: it comes all
 * the same. */
static void what_fills_the_window_is_acknowledged_by_the_reader(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        peer_sends(s, .seq = 1001, .ack = 1, .len = 1000);
        expect_sent(s, .seq = 1, .ack = 2001);
        peer_sends(s, .seq = 2001, .ack = 1, .len = 1000);
        peer_sends(s, .seq = 3001, .ack = 1, .len = 900);
        app_reads(s, 2000);
        expect_sent(s, .seq = 1, .ack = 3901, .wnd = 2100);
        peer_sends(s, .seq = 3901, .ack = 1, .len = 1000);
        peer_sends(s, .seq = 4901, .ack = 1, .len = 1000);
        expect_silence(s);
        advance_ms(s, 2);
        expect_sent(s, .seq = 1, .ack = 5901, .wnd = 100);
}

/* Eff.snd.MSS of RFC 9293 §3.8.6.2.2 is what a segment carries besides its options. A window of
 * little more than two such: were one that was read not worth a new right edge, the sender could
 * send only two and wait. */
static void one_segment_of_two_that_is_read_moves_the_window(void **state)
{
        struct scene *s = *state;

        for (uint32_t seq = 1; seq < 1 + 4 * 988; seq += 988) {
                peer_sends(s, .seq = seq, .ack = 1, .len = 988);
                app_reads(s, 988);
                turn_ends(s);
                expect_sent(s, .seq = 1, .ack = seq + 988, .wnd = 2050);
        }
}

static nstime busy(struct scene *s)
{
        struct tcp_report r;

        tcp_get_report(&s->rig->t, s->tc, &r, s->now);
        return r.busy;
}

/* tcpi_busy_time: as long as something is sent and not acknowledged, whoever waits for whom. */
static void time_in_flight_is_busy(void **state)
{
        struct scene *s = *state;

        advance_ms(s, 50);
        assert_int_equal(busy(s), 0);
        app_writes(s, 2000);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_sent(s, .seq = 1001, .len = 1000);
        advance_ms(s, 60);
        assert_int_equal(busy(s), 60 * NS_PER_MS);
        peer_sends(s, .seq = 1, .ack = 1001);
        advance_ms(s, 40);
        peer_sends(s, .seq = 1, .ack = 2001);
        assert_int_equal(busy(s), 100 * NS_PER_MS);
        advance_ms(s, 70);
        assert_int_equal(busy(s), 100 * NS_PER_MS);
}

int main(void)
{
        static const struct scene_setup lossless = {.lossless = true}, rcvbuf = {.rcvbuf = 4000},
                                        two_segments = {.rcvbuf = 2050, .ts = true},
                                        longest_mss = {.mss = 60000, .wnd = 65535};
        const struct CMUnitTest tests[] = {
                scenario(data_is_cut_to_the_mss, established, NULL),
                scenario(time_in_flight_is_busy, established, NULL),
                scenario(send_buffer_grows_with_the_window, established, NULL),
                scenario(send_buffer_of_a_long_way_is_large, established, NULL),
                scenario(send_buffer_has_room_for_what_is_late, established, &longest_mss),
                scenario(initial_window_is_ten_segments, established, NULL),
                scenario(peer_window_is_respected, established, &small_wnd),
                scenario(small_window_is_used_in_pieces, established, &tiny_wnd),
                scenario(nagle_holds_the_second_small_segment, established, &nagle),
                scenario(fin_goes_along_whatever_nagle_says, established, &nagle),
                scenario(cork_holds_until_taken_off_or_200_ms, established, NULL),
                scenario(nagle_holds_nothing_behind_urgent_data, established, &nagle),
                scenario(msg_more_waits_for_the_rest, established, NULL),
                scenario(msg_more_does_not_push, established, NULL),
                scenario(msg_more_pushes_half_a_window, established, NULL),
                scenario(nodelay_pushes_what_msg_more_holds, established, NULL),
                scenario(what_arrives_releases_what_msg_more_holds, established, NULL),
                scenario(what_arrives_does_not_uncork, established, NULL),
                scenario(zero_window_is_probed_with_back_off, established, NULL),
                scenario(acks_stay_inside_a_window_that_shrank, established, NULL),
                scenario(what_acknowledges_more_tells_the_window_below_a_gap, established, NULL),
                scenario(a_question_about_the_window_leaves_no_trace, established, NULL),
                scenario(opened_window_takes_the_probe_again, established, &lossless),
                scenario(shrunken_window_is_survived, established, NULL),
                scenario(what_is_lost_is_cut_to_a_shrunken_window, established, NULL),
                scenario(window_opens_again_when_the_reader_reads, established, &rcvbuf),
                scenario(what_fills_the_window_is_acknowledged_by_the_reader, established, &rcvbuf),
                scenario(one_segment_of_two_that_is_read_moves_the_window, established,
                         &two_segments),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
