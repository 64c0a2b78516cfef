/* The path MTU: RFC 1191, RFC 2923, RFC 4821, RFC 5927 §7. */
#include <errno.h>

#include "tests/scene.h"
#include "tests/unit.h"

/* An ICMP error claims that `mtu` bytes get through, quoting the segment at relative `seq`. */
static void claims(struct scene *s, uint32_t seq, uint32_t mtu)
{
        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS + seq, EMSGSIZE, true, mtu, s->now);
        advance_ms(s, 0);
}

/* RFC 1191 §6.5: what was too large is cut and sent again, and the window of congestion stays as
 * it is. */
static void a_claim_before_anything_got_through_is_believed(void **state)
{
        struct scene *s = *state;
        uint32_t cwnd = s->tc->cwnd;

        app_writes(s, 3000);
        forget_sent(s);
        claims(s, 1, 640);
        expect_sent(s, .seq = 1, .len = 600);
        expect_sent(s, .seq = 601, .len = 400);
        expect_sent(s, .seq = 1001, .len = 600);
        expect_sent(s, .seq = 1601, .len = 400);
        expect_sent(s, .seq = 2001, .len = 600);
        expect_sent(s, .seq = 2601, .len = 400);
        expect_silence(s);
        assert_int_equal(s->tc->cwnd, cwnd);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_PMTU], 1);
        peer_sends(s, .seq = 1, .ack = 3001);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
        app_writes(s, 700);
        expect_sent(s, .seq = 3001, .len = 600);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 3701);
        forget_sent(s);
}

/* The interface's MTU was set smaller, then larger again: nobody has to find that out by losses. */
static void a_link_that_changes_is_followed(void **state)
{
        struct scene *s = *state;

        app_writes(s, 2000);
        forget_sent(s);
        tcp_set_link_mss(&s->rig->t, s->tc, 600, s->now);
        advance_ms(s, 0);
        expect_sent(s, .seq = 1, .len = 600);
        expect_sent(s, .seq = 601, .len = 400);
        expect_sent(s, .seq = 1001, .len = 600);
        expect_sent(s, .seq = 1601, .len = 400);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_PMTU], 0);
        peer_sends(s, .seq = 1, .ack = 2001);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
        tcp_set_link_mss(&s->rig->t, s->tc, 1000, s->now);
        app_writes(s, 1500);
        expect_sent(s, .seq = 2001, .len = 1000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 3501);
        forget_sent(s);
}

/* RFC 5927 §4.1, §7: a sequence number in flight; nothing that is not smaller. */
static void claims_that_make_no_sense_are_ignored(void **state)
{
        struct scene *s = *state;

        app_writes(s, 2000);
        forget_sent(s);
        claims(s, 0, 640);
        claims(s, 2001, 640);
        claims(s, 700000, 640);
        claims(s, 1, 1040);
        claims(s, 1, 9000);
        expect_silence(s);
        assert_int_equal(s->tc->snd_mss, 1000);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_PMTU], 0);
        peer_sends(s, .seq = 1, .ack = 2001);
}

/* RFC 5927 §7.2: while data flows, a claim waits for the timeout of the segment it is about. */
static void a_claim_against_progress_waits_for_a_timeout(void **state)
{
        struct scene *s = *state;

        app_writes(s, 2000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 2001);
        app_writes(s, 2000);
        forget_sent(s);
        claims(s, 2001, 640);
        expect_silence(s);
        assert_int_equal(s->tc->snd_mss, 1000);
        peer_sends(s, .seq = 1, .ack = 4001); /* it got through: the claim was false */
        app_writes(s, 1000);
        forget_sent(s);
        advance_ms(s, 1000);
        assert_int_equal(s->tc->snd_mss, 1000);
        forget_sent(s);
        claims(s, 4001, 640); /* and now it is true */
        advance_ms(s, 1500);
        assert_int_equal(s->tc->snd_mss, 600);
        expect_sent(s, .seq = 4001, .len = 600);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 4601);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 5001);
}

/* A claim is forgotten with its segment, also where the numbers have come so far round that it
 * looks as if it were ahead. */
static void an_old_claim_is_not_believed_when_numbers_come_round(void **state)
{
        struct scene *s = *state;

        app_writes(s, 2000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 2001);
        app_writes(s, 2000);
        forget_sent(s);
        claims(s, 2001, 640);
        peer_sends(s, .seq = 1, .ack = 4001);
        s->tc->path.claim_seq = s->tc->snd_una + (1u << 30); /* as 3 GB later */
        app_writes(s, 1000);
        forget_sent(s);
        advance_ms(s, 3000);
        assert_int_equal(s->tc->snd_mss, 1000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 5001);
}

/* An error without a size that helps ends nothing, even while opening; source quench does nothing
 * (RFC 6633). */
static void too_long_without_a_size_is_no_reason_to_give_up(void **state)
{
        struct scene *s = *state;

        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS, EMSGSIZE, true, 0, s->now);
        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS, 0, false, 0, s->now);
        expect_state(s, TCPS_SYN_SENT);
        assert_int_equal(s->tc->err_soft, 0);
        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS, EMSGSIZE, true, 600, s->now);
        peer_sends(s, .seq = 0, .ack = 1, .flags = TCP_SYN | TCP_ACK, .mss = 1000);
        expect_sent(s, .seq = 1, .ack = 1);
        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 560);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001);
        forget_sent(s);
}

/* RFC 2923: nobody tells. The fifth timeout in a row of a full-sized segment makes it smaller. */
static void repeated_timeouts_make_segments_smaller(void **state)
{
        struct scene *s = *state;

        app_writes(s, 2000);
        forget_sent(s);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1, .len = 1000);
        advance_ms(s, 400);
        expect_sent(s, .seq = 1, .len = 1000);
        advance_ms(s, 800);
        expect_sent(s, .seq = 1, .len = 1000);
        advance_ms(s, 1600);
        expect_sent(s, .seq = 1, .len = 1000);
        advance_ms(s, 3200);
        expect_sent(s, .seq = 1, .len = 536);
        advance_ms(s, 6400);
        expect_sent(s, .seq = 1, .len = 256);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_BLACK_HOLE], 2);
        peer_sends(s, .seq = 1, .ack = 257);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 2001);
        forget_sent(s);
}

/* All of an answer that is shorter than a segment may be: it is cut as well, by steps below its
 * own length. */
static void a_last_segment_that_is_shorter_is_made_smaller_too(void **state)
{
        struct scene *s = *state;

        app_writes(s, 700);
        expect_sent(s, .seq = 1, .len = 700);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1, .len = 700);
        advance_ms(s, 400);
        expect_sent(s, .seq = 1, .len = 700);
        advance_ms(s, 800);
        expect_sent(s, .seq = 1, .len = 700);
        advance_ms(s, 1600);
        expect_sent(s, .seq = 1, .len = 700);
        advance_ms(s, 3200);
        expect_sent(s, .seq = 1, .len = 536);
        peer_sends(s, .seq = 1, .ack = 537);
        expect_sent(s, .seq = 537, .len = 164);
        peer_sends(s, .seq = 1, .ack = 701);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_BLACK_HOLE], 1);
}

/* Above what tunnels carry a hole is likelier. */
static void large_segments_are_made_smaller_sooner(void **state)
{
        struct scene *s = *state;

        app_writes(s, 2000);
        forget_sent(s);
        for (uint32_t ms = 200; ms <= 800; ms *= 2) {
                advance_ms(s, ms);
                expect_sent(s, .seq = 1, .len = 1460);
        }
        advance_ms(s, 1600);
        expect_sent(s, .seq = 1, .len = 1160);
        peer_sends(s, .seq = 1, .ack = 2001);
        forget_sent(s);
}

/* Small segments that are lost say nothing about the path. */
static void timeouts_of_small_segments_change_nothing(void **state)
{
        struct scene *s = *state;

        app_writes(s, 256);
        advance_ms(s, 5000);
        forget_sent(s);
        assert_int_equal(s->tc->snd_mss, 1000);
        peer_sends(s, .seq = 1, .ack = 257);
}

/* Segments of 600 bytes, and a window that holds a probe and what must follow it. */
static void grown_at_600(struct scene *s)
{
        app_writes(s, 1000);
        forget_sent(s);
        claims(s, 1, 640);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001);
        for (uint32_t at = 1001; at < 20000; at += 600) {
                app_writes(s, 600);
                expect_sent(s, .seq = at, .len = 600);
                peer_sends(s, .seq = 1, .ack = at + 600);
        }
}

/* RFC 1191 §6.3, RFC 4821 §7: ten minutes later one larger segment is tried, and when it is
 * acknowledged, it is so. */
static void a_larger_size_is_tried_after_ten_minutes(void **state)
{
        struct scene *s = *state;

        grown_at_600(s);
        advance_ms(s, 599950);
        peer_sends(s, .seq = 1, .ack = 20201, .wnd = 600);
        app_writes(s, 6000);
        expect_sent(s, .seq = 20201, .len = 600);
        assert_int_equal(s->tc->path.probe, 0);
        advance_ms(s, 50);
        assert_int_equal(s->tc->path.probe, 1000);
        peer_sends(s, .seq = 1, .ack = 20801, .wnd = 60000);
        expect_sent(s, .seq = 20801, .len = 1000);
        expect_sent(s, .seq = 21801, .len = 200); /* what the probe left of the second segment */
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 21801, .wnd = 60000);
        assert_int_equal(s->tc->snd_mss, 1000);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_MTU_PROBE], 1);
        peer_sends(s, .seq = 1, .ack = 26201, .wnd = 60000);
        forget_sent(s);
}

/* A window that holds no segment is probed, and that cuts the larger one that was to be tried: what
 * is acknowledged then says nothing of its size. */
static void a_window_probe_is_no_larger_size(void **state)
{
        struct scene *s = *state;

        grown_at_600(s);
        advance_ms(s, 599950);
        peer_sends(s, .seq = 1, .ack = 20201, .wnd = 300);
        app_writes(s, 6000);
        expect_silence(s);
        advance_ms(s, 50);
        assert_int_equal(s->tc->path.probe, 1000);
        advance_ms(s, 1000);
        expect_sent(s, .seq = 20201, .len = 300);
        assert_int_equal(s->tc->path.probe, 0);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 20501, .wnd = 60000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 22301, .wnd = 60000);
        assert_int_equal(s->tc->snd_mss, 600);
        forget_sent(s);
}

#define IN(fn, setup) cmocka_unit_test_setup_teardown(fn, setup, scene_end)

int main(void)
{
        static const struct scene_setup ethernet = {.mss = 1460};
        const struct CMUnitTest tests[] = {
                IN(a_link_that_changes_is_followed, established),
                IN(a_claim_before_anything_got_through_is_believed, established),
                IN(claims_that_make_no_sense_are_ignored, established),
                IN(a_claim_against_progress_waits_for_a_timeout, established),
                IN(an_old_claim_is_not_believed_when_numbers_come_round, established),
                IN(too_long_without_a_size_is_no_reason_to_give_up, syn_sent),
                IN(repeated_timeouts_make_segments_smaller, established),
                IN(a_last_segment_that_is_shorter_is_made_smaller_too, established),
                {"large_segments_are_made_smaller_sooner", large_segments_are_made_smaller_sooner,
                 established, scene_end, (void *)(uintptr_t)&ethernet},
                IN(timeouts_of_small_segments_change_nothing, established),
                IN(a_larger_size_is_tried_after_ten_minutes, established),
                IN(a_window_probe_is_no_larger_size, established),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
