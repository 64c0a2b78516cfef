/* Sending: windows, Nagle, cork, silly windows, probes; retransmission, recovery by SACK, RACK, TLP, without
 * SACK. */
#include "tests/tcp/scenarios.h"

#include "tcp/tcp_cc.h"

static const struct scene_setup reno = {.reno = true}, sack = {.sack = true, .reno = true},
                                nagle = {.nagle = true};
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

/* Twice the window finds room, where the way is long; where it is short, no more than fits into a cache. */
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

static void msg_more_waits_for_the_rest(void **state)
{
        struct scene *s = *state;

        app_writes_more(s, 100);
        expect_silence(s);
        app_writes(s, 100);
        expect_sent(s, .seq = 1, .len = 200);
        peer_sends(s, .seq = 1, .ack = 201);
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
        peer_sends(s, .seq = 1, .ack = 101);
}

/* As Linux: it speaks of the write, not of the connection. With the next segment that comes, what was held goes by Nagle's rule. */
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

/* RFC 9293 §3.8.6.1: MUST-35, -36, SHLD-29, -30; MUST-37. */
static void zero_window_is_probed_with_back_off(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        app_writes(s, 100);
        expect_silence(s);
        advance_ms(s, 199);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 1);
        for (uint32_t wait = 400, i = 0; i < 20; i++, wait = MIN(wait * 2, 120000)) {
                peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
                advance_ms(s, wait - 1);
                expect_silence(s);
                advance_ms(s, 1);
                expect_sent(s, .seq = 1, .len = 1);
        }
        expect_state(s, TCPS_ESTABLISHED);
        peer_sends(s, .seq = 1, .ack = 2);
        expect_sent(s, .seq = 2, .len = 99);
        peer_sends(s, .seq = 1, .ack = 101);
        advance_ms(s, 1000);
        expect_silence(s);
}

/* The probe that the peer did not take goes again with what follows, not as a hole to be repaired. */
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

/* Less than a segment is left of the window of 4000: the sender can do nothing with an acknowledgement before the reader has read,
 * and then one says both. Nobody reads: it comes all the same. */
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

/* ---- retransmission ---- */

/* RFC 6298 §5: after RTO, backed off; RFC 5681: one segment; Karn. */
static void timeout_repeats_the_first_segment(void **state)
{
        struct scene *s = *state;

        app_writes(s, 3000);
        forget_sent(s);
        advance_ms(s, 199);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_silence(s);
        assert_int_equal(s->tc->cwnd, 1000);
        assert_int_equal(s->tc->ssthresh, 2000);
        advance_ms(s, 399);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 1001);
        expect_sent(s, .seq = 1001, .len = 1000);
        expect_sent(s, .seq = 2001, .len = 1000);
        assert_int_equal(s->tc->srtt, 1); /* of the handshake: no sample was taken */
        peer_sends(s, .seq = 1, .ack = 3001);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
}

/* MUST-20, R2. */
static void silence_ends_the_connection(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10);
        advance_ms(s, 100 * 1000);
        expect_state(s, TCPS_ESTABLISHED);
        advance_ms(s, 3000 * 1000);
        forget_sent(s);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ETIMEDOUT);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TIMEOUT], 1);
}

static void user_timeout_ends_it_sooner(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10);
        advance_ms(s, 5000);
        expect_state(s, TCPS_ESTABLISHED);
        advance_ms(s, 20000);
        forget_sent(s);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ETIMEDOUT);
}

/* At its time, not at the timeout that comes after it, which backs off. */
static void user_timeout_is_kept_to(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10);
        advance_ms(s, 6999);
        expect_state(s, TCPS_ESTABLISHED);
        advance_ms(s, 1);
        forget_sent(s);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ETIMEDOUT);
}

static void user_timeout_before_a_closed_window_is_kept_to(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        app_writes(s, 10);
        advance_ms(s, 201);     /* the first probe begins what counts */
        forget_sent(s);
        advance_ms(s, 6998);
        expect_state(s, TCPS_ESTABLISHED);
        advance_ms(s, 2);
        forget_sent(s);
        expect_state(s, TCPS_CLOSED);
}

/* RFC 5681 §3.2: the third duplicate ACK retransmits at once, without waiting for the RTO. */
static void third_dupack_retransmits(void **state)
{
        struct scene *s = *state;

        app_writes(s, 4000);
        expect_sent(s, .seq = 1, .len = 1000, .ack = 1);
        expect_sent(s, .seq = 1001, .len = 1000, .ack = 1);
        expect_sent(s, .seq = 2001, .len = 1000, .ack = 1);
        expect_sent(s, .seq = 3001, .len = 1000, .ack = 1);
        advance_ms(s, 100); /* the first one is lost */
        peer_sends(s, .seq = 1, .ack = 1);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 1, .len = 1000, .ack = 1);
        assert_int_equal(s->tc->ssthresh, 2000); /* RFC 5681 eq. 4 */
        peer_sends(s, .seq = 1, .ack = 4001);
        assert_int_equal(s->tc->cwnd, 2000);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
}

/* RFC 6582: a partial ACK says where the next hole is. */
static void partial_ack_retransmits_the_next_hole(void **state)
{
        struct scene *s = *state;

        app_writes(s, 6000);
        forget_sent(s);
        for (int i = 0; i < 3; i++) /* 1 and 3001 are lost */
                peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 3001);
        expect_sent(s, .seq = 3001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 6001);
        expect_silence(s);
        assert_int_equal(s->tc->retrans, 2);
}

/* RFC 3042: a duplicate ACK lets a new segment out. */
static void duplicate_acks_let_new_segments_out(void **state)
{
        struct scene *s = *state;

        app_writes(s, 12000);
        for (int i = 0; i < 10; i++)
                expect_sent(s, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 10001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 11001, .len = 1000);
        app_aborts(s);
        forget_sent(s);
}

/* RFC 8985: what was sent before something that arrived a while later is lost; only that is repeated. */
static void sacked_segments_are_not_repeated(void **state)
{
        struct scene *s = *state;

        s->tc->min_rtt = s->tc->srtt = 100 * NS_PER_MS;
        app_writes(s, 6000);
        forget_sent(s);
        advance_ms(s, 100);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 2001}});
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 3001}});
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{4001, 5001}, {1001, 3001}});
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->tc->ca_state, CA_RECOVERY);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{4001, 6001}, {1001, 3001}});
        expect_sent(s, .seq = 3001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 6001);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
        assert_int_equal(s->tc->retrans, 2);
}

/* RFC 8985 §6.2: one SACK is not enough at once, but after a quarter of a round trip it is. */
static void reordering_is_given_time(void **state)
{
        struct scene *s = *state;

        s->tc->min_rtt = s->tc->srtt = 100 * NS_PER_MS;
        app_writes(s, 3000);
        forget_sent(s);
        advance_ms(s, 100);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 2001}});
        expect_silence(s);
        advance_ms(s, 24);
        expect_silence(s);
        advance_ms(s, 2);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 3001);
}

/* RFC 8985 §7: the tail is probed after two round trips, and the probe's ACK repairs the rest. */
static void tail_loss_is_probed(void **state)
{
        struct scene *s = *state;

        s->tc->srtt = s->tc->min_rtt = 20 * NS_PER_MS;
        s->tc->rto = 400 * NS_PER_MS;
        app_writes(s, 4000);
        forget_sent(s);
        advance_ms(s, 41);
        expect_silence(s);
        advance_ms(s, 2);
        expect_sent(s, .seq = 3001, .len = 1000);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TLP], 1);
        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 1001, .nsack = 1, .sack = {{3001, 4001}});
        expect_sent(s, .seq = 1001, .len = 1000);
        expect_sent(s, .seq = 2001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 4001);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_RTO], 0);
}

/* More is sent: the retransmission timer runs on from the first (RFC 6298 §5.1), and the timer of the segments that may only
 * be late (RFC 8985 §6.2) is not put off by it either. */
static void sending_more_postpones_no_repair(void **state)
{
        struct scene *s = *state;
        nstime rto_at;

        app_writes(s, 3000);
        forget_sent(s);
        s->tc->rtx_kind = RTX_RTO;
        s->tc->ca_state = CA_LOSS;
        rto_at = s->tc->rtx_at = s->now + 200 * NS_PER_MS;
        advance_ms(s, 5);
        app_writes(s, 1000);
        forget_sent(s);
        assert_int_equal(s->tc->rtx_at, rto_at);
        s->tc->ca_state = CA_OPEN;

        s->tc->srtt = s->tc->min_rtt = 100 * NS_PER_MS;
        s->tc->flags |= TCF_REORDER;
        advance_ms(s, 95);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 2001}});
        assert_int_equal(s->tc->rtx_kind, RTX_REO);
        app_writes(s, 1000);
        expect_sent(s, .seq = 4001, .len = 1000);
        assert_int_equal(s->tc->rtx_kind, RTX_REO);
        advance_ms(s, 26);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 5001);
}

/* RFC 8985 §7.2: where the timeout would be first the probe takes its place; it follows a timeout later, and doubles from there. */
static void probe_takes_the_place_of_the_timeout(void **state)
{
        struct scene *s = *state;

        s->tc->srtt = s->tc->min_rtt = 100 * NS_PER_MS;
        s->tc->rto = 300 * NS_PER_MS;           /* two round trips and 200 ms are 400 */
        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000);
        advance_ms(s, 299);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TLP], 1);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_RTO], 0);
        advance_ms(s, 299);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_RTO], 1);
        advance_ms(s, 599);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 1000);
}

/* ... and more that is sent does not put it off. */
static void probe_in_place_of_the_timeout_stays(void **state)
{
        struct scene *s = *state;

        s->tc->srtt = s->tc->min_rtt = 300 * NS_PER_MS;
        s->tc->rto = 500 * NS_PER_MS;
        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000);
        advance_ms(s, 400);
        app_writes(s, 1000);
        expect_sent(s, .seq = 1001, .len = 1000);
        advance_ms(s, 100);
        expect_sent(s, .seq = 1001, .len = 1000);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TLP], 1);
        peer_sends(s, .seq = 1, .ack = 2001);
}

/* Linux's packet scripts: with IW10 nine segments grow the window to 18, each ACK by what it acknowledges. */
static void slow_start_counts_the_most_in_flight(void **state)
{
        struct scene *s = *state;

        s->tc->srtt = s->tc->min_rtt = 100 * NS_PER_MS;
        s->tc->rto = 400 * NS_PER_MS;
        app_writes(s, 9000);
        forget_sent(s);
        advance_ms(s, 100);
        for (uint32_t n = 2; n <= 8; n += 2) {
                peer_sends(s, .seq = 1, .ack = 1 + 1000 * n);
                assert_int_equal(s->tc->cwnd, 1000 * (10 + n));
        }
        peer_sends(s, .seq = 1, .ack = 9001);
        assert_int_equal(s->tc->cwnd, 18000);
        app_writes(s, 1000);    /* a round trip of which little is used: nothing */
        expect_sent(s, .seq = 9001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 10001);
        assert_int_equal(s->tc->cwnd, 18000);
}

/* RFC 9937 §6: an ACK that only tells of losses clocks out what arrived, not more. */
static void recovery_sends_more_only_when_repairs_arrive(void **state)
{
        struct scene *s = *state;

        s->tc->min_rtt = s->tc->srtt = 10 * NS_PER_MS;
        app_writes(s, 10000);
        forget_sent(s);
        advance_ms(s, 10);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 2001}});
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 3001}});
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{9001, 10001}, {1001, 3001}});
        expect_sent(s, .seq = 1, .len = 1000);
        expect_silence(s);
        advance_ms(s, 12);
        peer_sends(s, .seq = 1, .ack = 4001, .nsack = 1, .sack = {{9001, 10001}}); /* 3001 was only late */
        expect_sent(s, .seq = 4001, .len = 1000);
        expect_sent(s, .seq = 5001, .len = 1000);
        expect_sent(s, .seq = 6001, .len = 1000);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 10001);
}

/* A tail that grew to more than a segment after it began is probed as one (RFC 8985 §7.2). */
static void tail_that_grew_is_probed(void **state)
{
        struct scene *s = *state;

        s->tc->srtt = s->tc->min_rtt = 20 * NS_PER_MS;
        s->tc->rto = 200 * NS_PER_MS;
        app_writes(s, 1000);
        app_writes(s, 1000);
        forget_sent(s);
        advance_ms(s, 43);
        expect_sent(s, .seq = 1001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 2001);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_RTO], 0);
}

/* What recovery waits for does not come: the first segment once more, after two round trips, and the window as it was. */
static void silence_in_recovery_is_probed_once(void **state)
{
        struct scene *s = *state;
        uint32_t ssthresh;

        s->tc->srtt = s->tc->min_rtt = 20 * NS_PER_MS;
        s->tc->rto = 300 * NS_PER_MS;
        app_writes(s, 5000);
        forget_sent(s);
        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 5001}});
        expect_sent(s, .seq = 1, .len = 1000);
        ssthresh = s->tc->ssthresh;
        advance_ms(s, 48);
        expect_silence(s);
        advance_ms(s, 6);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->tc->ca_state, CA_RECOVERY);
        advance_ms(s, 290);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 5001);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
        assert_int_equal(s->tc->ssthresh, ssthresh);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_RTO], 0);
}

/* RFC 6937: as much goes out as came in, down to ssthresh. */
static void recovery_is_paced_by_what_arrives(void **state)
{
        struct scene *s = *state;
        unsigned sent = 0;

        s->tc->min_rtt = s->tc->srtt = 100 * NS_PER_MS;
        app_writes(s, 20000);
        for (int i = 0; i < 10; i++)
                expect_sent(s, .len = 1000);
        advance_ms(s, 100);
        for (uint32_t i = 2; i <= 10; i++) { /* the first of ten is lost */
                peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 1 + 1000 * i}});
                assert_true(s->tail - s->head <= 2);
                sent += s->tail - s->head;
                forget_sent(s);
        }
        assert_int_equal(s->tc->ssthresh, 6000); /* limited transmit made the flight 12 segments */
        assert_true(sent >= 5 && sent <= 8);
        app_aborts(s);
        forget_sent(s);
}

/* RFC 2018 §8: after a timeout nothing that was only SACKed is believed, when the peer drops its head. */
static void reneging_is_survived(void **state)
{
        struct scene *s = *state;

        app_writes(s, 3000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 3001}});
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001);
        forget_sent(s);
        advance_ms(s, 300);
        expect_sent(s, .seq = 1001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 3001);
        forget_sent(s);
}

/* Where nothing is lost on the way a timeout says nothing about the path. */
static void lossless_timeout_keeps_the_window(void **state)
{
        struct scene *s = *state;
        uint32_t cwnd = s->tc->cwnd;

        app_writes(s, 3000);
        forget_sent(s);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_silence(s);
        advance_ms(s, 400);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->tc->cwnd, cwnd);
        peer_sends(s, .seq = 1, .ack = 3001);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
        assert_int_equal(s->tc->slow, 0);
}

/* SO_MAX_PACING_RATE */
static void pacing_spreads_segments(void **state)
{
        struct scene *s = *state;

        s->opts.max_pacing_rate = 100000;
        app_sets(s);
        app_writes(s, 3000);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_silence(s);
        assert_int_equal(s->tc->limit, TCP_LIM_PACING);
        advance_ms(s, 9);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1001, .len = 1000);
        advance_ms(s, 10);
        expect_sent(s, .seq = 2001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 3001);
}

/* RFC 2883: a D-SACK tells that a retransmission was for nothing. */
static void dsack_is_counted(void **state)
{
        struct scene *s = *state;

        app_writes(s, 1000);
        forget_sent(s);
        advance_ms(s, 250);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001, .nsack = 1, .sack = {{1, 1001}});
        assert_int_equal(s->tc->dsack_dups, 1);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_SPURIOUS], 1);
}

/* ---- the buffer ---- */

static void full_buffer_refuses_and_tells_when_there_is_room(void **state)
{
        struct scene *s = *state;
        struct span span[8];
        int got, total = 0;

        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        while ((got = tcp_send_reserve(&s->rig->t, s->tc, 500, span, 8)) > 0) {
                tcp_send_commit(&s->rig->t, s->tc, (size_t)got, false, false, s->now);
                total += got;
        }
        assert_int_equal(got, 0);
        assert_true(total >= 6000 && total <= 8192); /* frames count whole */
        assert_int_equal(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT, 0);
        s->tc->events = 0;
        peer_sends(s, .seq = 1, .ack = 1, .wnd = 60000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1 + (uint32_t)total, .wnd = 60000);
        assert_true(s->tc->events & TCP_EV_WRITABLE);
        assert_true(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT);
        forget_sent(s);
}

/* Segments longer than a small frame leave whole however small the buffer is; its limit is one of bytes, round after
 * round. */
static void small_buffer_sends_long_segments(void **state)
{
        struct scene *s = *state;
        struct span span[8];

        for (uint32_t at = 1; at < 200000; at += 8000) {
                app_writes(s, 8000);
                expect_sent(s, .seq = at, .len = 4000);
                expect_sent(s, .seq = at + 4000, .len = 4000);
                assert_int_equal(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT, 0);
                assert_int_equal(tcp_send_reserve(&s->rig->t, s->tc, 4000, span, 8), 0);
                s->tc->events = 0;
                peer_sends(s, .seq = 1, .ack = at + 8000, .wnd = 60000);
                assert_true(s->tc->events & TCP_EV_WRITABLE);
                assert_true(tcp_poll_events(&s->rig->t, s->tc) & POLLOUT);
        }
}

static void reservation_can_be_cut_or_cancelled(void **state)
{
        struct scene *s = *state;
        struct span span[4], again[4];
        int got = tcp_send_reserve(&s->rig->t, s->tc, 3000, span, 4);

        assert_int_equal(got, 3000);
        assert_int_equal(tcp_send_reserve(&s->rig->t, s->tc, 1, again, 4), -EBUSY);
        tcp_send_commit(&s->rig->t, s->tc, 0, false, false, s->now);
        got = tcp_send_reserve(&s->rig->t, s->tc, 3000, span, 4);
        assert_int_equal(got, 3000);
        for (uint32_t i = 0; i < 1200; i++)
                span[0].ptr[i] = scene_byte(1 + i);
        tcp_send_commit(&s->rig->t, s->tc, 1200, false, false, s->now);
        s->written = 1200;
        app_writes(s, 100);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_sent(s, .seq = 1001, .len = 300);
        peer_sends(s, .seq = 1, .ack = 1301);
}

/* Another thread closes while a writer copies: the record waits for the writer. */
static void closing_waits_for_a_writer(void **state)
{
        struct scene *s = *state;
        struct span span[4];

        assert_int_equal(tcp_send_reserve(&s->rig->t, s->tc, 0, span, 4), 0);
        assert_int_equal(tcp_send_reserve(&s->rig->t, s->tc, 3000, span, 4), 3000);
        s->opts.linger_s = 0;
        app_sets(s);
        app_closes(s);
        expect_sent(s, .seq = 1, .ack = 1, .flags = RA);
        advance_ms(s, 1);
        assert_int_equal(s->rig->t.sh->conns.used, 1);
        tcp_send_commit(&s->rig->t, s->tc, 3000, false, false, s->now);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
}

static void many_small_writes_become_full_segments(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .zero_wnd = true);
        for (int i = 0; i < 100; i++)
                app_writes(s, 64);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 1, .wnd = 60000);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_true(s->tail - s->head <= 7);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 6401);
}

/* What is not acknowledged yet collects, beyond the ends of small frames: a few segments, then one. */
static void small_writes_collect_while_the_peer_is_behind(void **state)
{
        struct scene *s = *state;

        for (int i = 0; i < 40; i++)
                app_writes(s, 1400);
        expect_sent(s, .seq = 1, .len = 1400);
        assert_true(s->tail - s->head <= 8);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1401);
        peer_sends(s, .seq = 1, .ack = 40 * 1400 + 1);
        assert_true(s->tail - s->head <= 2);
        forget_sent(s);
}

static void reset_ends_writing_with_the_right_errors(void **state)
{
        struct scene *s = *state;
        struct span span[1];

        peer_sends(s, .seq = 1, .ack = 1, .flags = RA);
        assert_int_equal(tcp_send_reserve(&s->rig->t, s->tc, 10, span, 1), -ECONNRESET);
        assert_int_equal(tcp_send_reserve(&s->rig->t, s->tc, 10, span, 1), -EPIPE);
        assert_int_equal(tcp_recv_peek(&s->rig->t, s->tc, 0, 10, span, 1), 0);
}

int main(void)
{
        static const struct scene_setup user_timeout = {.user_timeout_ms = 7000}, sndbuf = {.sndbuf = 8192};
        static const struct scene_setup rcvbuf = {.rcvbuf = 4000}, long_mss = {.sndbuf = 8000, .mss = 4000, .wnd = 60000},
                                         longest_mss = {.mss = 60000, .wnd = 65535, .sndbuf = 1 << 20, .nagle = true},
                                        lossless = {.lossless = true, .sack = true};
        const struct CMUnitTest tests[] = {
                scenario(data_is_cut_to_the_mss, established, NULL),
                scenario(send_buffer_grows_with_the_window, established, NULL),
                scenario(send_buffer_of_a_long_way_is_large, established, NULL),
                scenario(initial_window_is_ten_segments, established, NULL),
                scenario(peer_window_is_respected, established, &small_wnd),
                scenario(small_window_is_used_in_pieces, established, &tiny_wnd),
                scenario(nagle_holds_the_second_small_segment, established, &nagle),
                scenario(fin_goes_along_whatever_nagle_says, established, &nagle),
                scenario(cork_holds_until_taken_off_or_200_ms, established, NULL),
                scenario(msg_more_waits_for_the_rest, established, NULL),
                scenario(nodelay_pushes_what_msg_more_holds, established, NULL),
                scenario(what_arrives_releases_what_msg_more_holds, established, NULL),
                scenario(what_arrives_does_not_uncork, established, NULL),
                scenario(zero_window_is_probed_with_back_off, established, NULL),
                scenario(opened_window_takes_the_probe_again, established, NULL),
                scenario(shrunken_window_is_survived, established, NULL),
                scenario(what_is_lost_is_cut_to_a_shrunken_window, established, NULL),
                scenario(window_opens_again_when_the_reader_reads, established, &rcvbuf),
                scenario(what_fills_the_window_is_acknowledged_by_the_reader, established, &rcvbuf),
                scenario(timeout_repeats_the_first_segment, established, &reno),
                scenario(silence_ends_the_connection, established, NULL),
                scenario(user_timeout_ends_it_sooner, established, &user_timeout),
                scenario(user_timeout_is_kept_to, established, &user_timeout),
                scenario(user_timeout_before_a_closed_window_is_kept_to, established, &user_timeout),
                scenario(third_dupack_retransmits, established, &reno),
                scenario(partial_ack_retransmits_the_next_hole, established, &reno),
                scenario(duplicate_acks_let_new_segments_out, established, &reno),
                scenario(sacked_segments_are_not_repeated, established, &sack),
                scenario(reordering_is_given_time, established, &sack),
                scenario(tail_that_grew_is_probed, established, &sack),
                scenario(probe_takes_the_place_of_the_timeout, established, &sack),
                scenario(probe_in_place_of_the_timeout_stays, established, &sack),
                scenario(slow_start_counts_the_most_in_flight, established, &sack),
                scenario(recovery_sends_more_only_when_repairs_arrive, established, &sack),
                scenario(sending_more_postpones_no_repair, established, &sack),
                scenario(silence_in_recovery_is_probed_once, established, &sack),
                scenario(tail_loss_is_probed, established, &sack),
                scenario(recovery_is_paced_by_what_arrives, established, &sack),
                scenario(reneging_is_survived, established, &sack),
                scenario(lossless_timeout_keeps_the_window, established, &lossless),
                scenario(pacing_spreads_segments, established, NULL),
                scenario(dsack_is_counted, established, &sack),
                scenario(full_buffer_refuses_and_tells_when_there_is_room, established, &sndbuf),
                scenario(small_buffer_sends_long_segments, established, &long_mss),
                scenario(small_writes_collect_while_the_peer_is_behind, established, &longest_mss),
                scenario(reservation_can_be_cut_or_cancelled, established, NULL),
                scenario(closing_waits_for_a_writer, established, NULL),
                scenario(many_small_writes_become_full_segments, established, NULL),
                scenario(reset_ends_writing_with_the_right_errors, established, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
