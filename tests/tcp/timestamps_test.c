/* Timestamps and PAWS: RFC 7323 §3 to §5. */
#include "tests/tcp/scenarios.h"
#include "tcp/tcp_life.h"

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

/* RFC 7323 §5.2, §5.5: a reset is good however old it looks, and after 24 days of silence any
 * time is. */
static void an_old_looking_reset_is_taken(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 10, .tsval = 9000);
        app_reads(s, 10);
        forget_sent(s);
        peer_sends(s, .seq = 11, .ack = 1, .flags = RA, .tsval = 1);
        expect_state(s, TCPS_CLOSED);
}

static void after_24_days_any_time_is_good(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 10, .tsval = 9000);
        advance_ms(s, 25u * 24 * 3600 * 1000);
        forget_sent(s);
        peer_sends(s, .seq = 11, .ack = 1, .len = 10, .tsval = 1);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_PAWS], 0);
        app_reads(s, 20);
        forget_sent(s);
}

/* RFC 7323 §3.2: in every segment, a reset too; §5.4: milliseconds, from a point of each
 * connection's own. */
static void timestamps_are_in_every_segment(void **state)
{
        struct scene *s = *state;
        struct tcp_tuple other = s->tuple;
        uint32_t first;

        app_writes(s, 10);
        expect_sent(s, .seq = 1, .len = 10);
        assert_true(s->last.has_ts);
        assert_int_equal(s->last.tsecr, s->tc->ts_recent);
        first = s->last.tsval;
        assert_int_not_equal(first, (uint32_t)(s->now / NS_PER_MS));
        advance_ms(s, 7);
        peer_sends(s, .seq = 1, .ack = 11, .len = 1000);
        advance_ms(s, 500);
        expect_sent(s, .seq = 11, .ack = 1001);
        assert_true(s->last.has_ts);
        assert_in_range(s->last.tsval - first, 7, 507);
        app_aborts(s);
        expect_sent(s, .seq = 11, .ack = 1001, .flags = RA);
        assert_true(s->last.has_ts);
        assert_int_equal(s->last.tsval - first, 507);
        other.rport++;
        assert_int_not_equal(ts_offset_new(&s->rig->t, &other),
                             ts_offset_new(&s->rig->t, &s->tuple));
}

/* RFC 7323 appendix A (RFC 6691): the MSS option says nothing of options; data makes room
 * for them. */
static void data_makes_room_for_timestamps(void **state)
{
        struct scene *s = *state;

        assert_int_equal(s->link.mss, 1012); /* which the SYN told: syn_sent() */
        app_writes(s, 1500);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_sent(s, .seq = 1001, .len = 500);
        peer_sends(s, .seq = 1, .ack = 1501);
}

static void lossless_link_offers_no_timestamps(void **state)
{
        struct scene *s = *state;

        assert_false(s->last.has_ts);
        assert_true(s->last.sack_ok);
}

int main(void)
{
        static const struct scene_setup ts = {.ts = true}, sack_ts = {.sack = true, .ts = true},
                                        timestamps = {.ts = true},
                                        lossless = {.lossless = true, .sack = true};
        const struct CMUnitTest tests[] = {
                scenario(old_timestamp_is_refused, established, &ts),
                scenario(overtaken_duplicate_ack_is_heard, established, &sack_ts),
                scenario(other_overtaken_segments_are_refused, established, &sack_ts),
                scenario(segment_without_timestamp_is_dropped, established, &ts),
                scenario(timestamp_with_a_wrong_ack_is_not_believed, established, &ts),
                scenario(first_unacknowledged_timestamp_is_echoed, established, &ts),
                scenario(an_old_looking_reset_is_taken, established, &timestamps),
                scenario(after_24_days_any_time_is_good, established, &timestamps),
                scenario(timestamps_are_in_every_segment, established, &timestamps),
                scenario(data_makes_room_for_timestamps, established, &timestamps),
                scenario(lossless_link_offers_no_timestamps, syn_sent, &lossless),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
