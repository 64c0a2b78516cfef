/* Windows by credit, as a peer sees them: granted, held, opened again; never more, never
 * taken back. */
#include <errno.h>

#include "tests/tcp/scenarios.h"

static const struct scene_setup nothing = {.most = 65535}, some = {.credit = 1500, .most = 5000},
                                large = {.credit = 100000, .most = 8000000, .wscale = 7},
                                window = {.rcvbuf = 3000},
                                sure = {.rcvbuf = 3000, .lossless = true},
                                near = {.rcvbuf = 4000, .mss = 8000, .lossless = true},
                                automatic = {0};

/* The SYN says what is granted to begin with. */
static void a_syn_offers_the_first_grant(void **state)
{
        struct scene *s = *state;

        assert_int_equal(s->tc->rcv_adv - s->tc->rcv_nxt, 1500);
        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        turn_ends(s);
        advance_ms(s, 300);
        expect_sent(s, .ack = 1001, .wnd = 500);
}

static void reading_grants_nothing(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        peer_sends(s, .seq = 1001, .ack = 1, .len = 500);
        advance_ms(s, 300);
        forget_sent(s);
        app_reads(s, 1500);
        expect_silence(s);
        advance_ms(s, 5000);
        expect_silence(s);
        peer_sends(s, .seq = 1501, .ack = 1, .len = 1); /* a probe of the window */
        expect_sent(s, .ack = 1501, .zero_wnd = true);
        assert_int_equal(s->tc->rcv_unread, 0);
}

/* Whatever silly window avoidance would say; and not a byte more is taken. */
static void a_grant_is_told_at_once_and_exactly(void **state)
{
        struct scene *s = *state;

        assert_int_equal(app_grants(s, 1), 0);
        expect_sent(s, .ack = 1, .wnd = 1);
        assert_int_equal(app_grants(s, 1000), 0);
        expect_sent(s, .ack = 1, .wnd = 1001);
        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        peer_sends(s, .seq = 1001, .ack = 1, .len = 1000);
        assert_int_equal(s->tc->rcv_unread, 1001);
        advance_ms(s, 300);
        forget_sent(s);
        assert_int_equal(app_grants(s, 7), 0); /* before anything is read */
        expect_sent(s, .ack = 1002, .wnd = 7);
        app_reads(s, 1001);
        expect_silence(s);
}

static void no_more_than_the_most_in_advance(void **state)
{
        struct scene *s = *state;

        assert_int_equal(app_grants(s, 3501), -EOVERFLOW);
        assert_int_equal(app_grants(s, UINT32_MAX), -EOVERFLOW);
        expect_silence(s);
        assert_int_equal(app_grants(s, 3500), 0);
        expect_sent(s, .ack = 1, .wnd = 5000);
        assert_int_equal(app_grants(s, 1), -EOVERFLOW);
        for (uint32_t at = 1; at < 5001; at += 1000)
                peer_sends(s, .seq = at, .ack = 1, .len = 1000);
        advance_ms(s, 300);
        forget_sent(s);
        assert_int_equal(app_grants(s, 5000), 0); /* unread is another thing */
        expect_sent(s, .ack = 5001, .wnd = 5000);
        assert_int_equal(s->tc->rcv_unread, 5000);
        assert_int_equal(app_grants(s, 1), -EOVERFLOW);
}

/* What a SYN cannot say of a first grant the next segment does; the wire rounds down to
 * the scale. */
static void a_large_grant_is_scaled(void **state)
{
        struct scene *s = *state;

        assert_int_equal(s->tc->rcv_wscale, 7);
        assert_int_equal(s->last.wnd, 100000 >> 7);
        assert_int_equal(app_grants(s, 95), 0); /* 100,000 is 32 beyond a unit */
        expect_silence(s);                      /* no other number would be on the wire */
        assert_int_equal(app_grants(s, 1), 0);
        expect_sent(s, .ack = 1, .wnd = 782);
        peer_sends(s, .seq = 1, .ack = 1, .len = 999);
        advance_ms(s, 300);
        expect_sent(s, .ack = 1000, .wnd = (100096 - 999) >> 7);
        assert_int_equal(app_grants(s, 8000000), -EOVERFLOW);
        assert_int_equal(app_grants(s, 7000000), 0);
        expect_sent(s, .ack = 1000, .wnd = (7100096 - 999) >> 7);
}

/* From a buffer to credit and back, in the middle: what the wire was promised stays. */
static void credit_begins_with_what_was_promised(void **state)
{
        struct scene *s = *state;

        s->opts.credit = 1;
        s->opts.window_most = 65535;
        app_sets(s);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        app_reads(s, 1000);
        advance_ms(s, 300);
        expect_sent(s, .ack = 1001, .wnd = 2000);
        peer_sends(s, .seq = 1001, .ack = 1, .len = 1000);
        peer_sends(s, .seq = 2001, .ack = 1, .len = 1000);
        app_reads(s, 2000);
        advance_ms(s, 300);
        forget_sent(s);
        s->opts.credit = 0;
        app_sets(s);
        expect_sent(s, .ack = 3001, .wnd = 3000);
        assert_int_equal(app_grants(s, 1), -EINVAL);
}

/* A connection that a listener made has the listener's. */
static void a_listener_passes_credit_on(void **state)
{
        struct scene *s = *state;

        assert_int_equal(s->tc->opts.credit, 1);
        assert_int_equal(s->tc->rcv_adv - s->tc->rcv_nxt, 1500);
        assert_int_equal(app_grants(s, 100), 0);
        expect_sent(s, .ack = 1, .wnd = 1600);
}

static void what_is_granted_before_the_peer_answers_counts(void **state)
{
        struct scene *s = *state;

        assert_int_equal(app_grants(s, 4000), -EOVERFLOW);
        assert_int_equal(app_grants(s, 500), 0);
        expect_silence(s);
        peer_sends(s, .seq = 0, .ack = 1, .flags = TCP_SYN | TCP_ACK, .mss = 1000);
        expect_sent(s, .seq = 1, .ack = 1, .wnd = 2000);
}

/* SO_RCVLOWAT waits as long as more may come, and no longer. */
static void a_low_water_mark_knows_the_window(void **state)
{
        struct scene *s = *state;

        assert_int_equal(app_grants(s, 3500), 0);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        assert_false(tcp_recv_enough(s->tc, 6000));
        for (uint32_t at = 1001; at < 5001; at += 1000)
                peer_sends(s, .seq = at, .ack = 1, .len = 1000);
        assert_true(tcp_recv_enough(s->tc, 6000));
        advance_ms(s, 300);
        forget_sent(s);
}

/* A window of less than a segment, where nothing is lost: more comes, until it is closed. */
static void a_low_water_mark_counts_on_a_window_of_less_than_a_segment(void **state)
{
        struct scene *s = *state;

        assert_int_equal(s->tc->rcv_limit, 3000);
        s->tc->snd_mss = 2900;
        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        assert_false(tcp_recv_enough(s->tc, 2500));
        peer_sends(s, .seq = 1001, .ack = 1, .len = 1500);
        assert_true(tcp_recv_enough(s->tc, 2500));
        assert_false(tcp_recv_enough(s->tc, 6000));
        peer_sends(s, .seq = 2501, .ack = 1, .len = 500);
        assert_true(tcp_recv_enough(s->tc, 6000));
        forget_sent(s);
}

/* Where nothing is lost the peer waits for no full segment: all of the window comes, however large
 * one may be. */
static void a_low_water_mark_beside_large_segments(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        assert_false(tcp_recv_enough(s->tc, 3000));
        peer_sends(s, .seq = 1001, .ack = 1, .len = 1999);
        assert_false(tcp_recv_enough(s->tc, 3000));
        peer_sends(s, .seq = 3000, .ack = 1, .len = 1);
        assert_true(tcp_recv_enough(s->tc, 3000));
        assert_false(tcp_recv_enough(s->tc, 3500));
        peer_sends(s, .seq = 3001, .ack = 1, .len = 500);
        forget_sent(s);
}

/* A buffer that sizes itself grows to the mark. */
static void a_low_water_mark_has_room(void **state)
{
        struct scene *s = *state;

        tcp_recv_room(s->tc, 3u << 20);
        assert_true(s->tc->rcv_limit >= 3u << 20);
        s->opts.rcvbuf = 10000;
        app_sets(s);
        tcp_recv_room(s->tc, 3u << 20);
        assert_int_equal(s->tc->rcv_limit, 10000);
        forget_sent(s);
}

/* The end of the stream needs no grant. */
static void a_fin_needs_no_grant(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .flags = TCP_FIN | TCP_ACK);
        turn_ends(s);
        advance_ms(s, 300);
        expect_sent(s, .ack = 2);
        expect_state(s, TCPS_CLOSE_WAIT);
        assert_int_equal(app_grants(s, 1000), 0);
        expect_silence(s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(a_syn_offers_the_first_grant, established, &some),
                scenario(reading_grants_nothing, established, &some),
                scenario(a_grant_is_told_at_once_and_exactly, established, &nothing),
                scenario(no_more_than_the_most_in_advance, established, &some),
                scenario(a_large_grant_is_scaled, established, &large),
                scenario(credit_begins_with_what_was_promised, established, &window),
                scenario(a_listener_passes_credit_on, accepted, &some),
                scenario(what_is_granted_before_the_peer_answers_counts, syn_sent, &some),
                scenario(a_low_water_mark_knows_the_window, established, &some),
                scenario(a_low_water_mark_counts_on_a_window_of_less_than_a_segment, established,
                         &sure),
                scenario(a_low_water_mark_beside_large_segments, established, &near),
                scenario(a_low_water_mark_has_room, established, &automatic),
                scenario(a_fin_needs_no_grant, established, &nothing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
