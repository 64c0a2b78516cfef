/* TCP Fast Open (RFC 7413), by who opens: cookies that are kept, and data in the SYN. */
#include "tests/tcp/scenarios.h"

/* Of the scripted server. */
#define THEIRS .fastopen = 5, .cookie = {0xab, 0xcd, 0x12, 0x34}

static const struct scene_setup plain = {.sack = true};
static const struct scene_setup all_options = {.wscale = 3, .sack = true, .ts = true};

static int asking(void **state)
{
        struct scene *s;

        scene_blank(state);
        s = *state;
        s->opts.fastopen = TCP_FASTOPEN_USE;
        return 0;
}

static void ends(struct scene *s)
{
        app_aborts(s);
        app_closes(s);
        forget_sent(s);
        s->tuple.lport++;
}

/* A connection has asked for a cookie and is over; what follows answers as `in` says, with
 * its MSS. */
static void learns(struct scene *s, const struct scene_in *in)
{
        app_connects(s);
        expect_sent(s, .seq = 0, .flags = S);
        assert_int_equal(s->last.fastopen, 1);
        scene_peer_sends(s, in);
        expect_sent(s, .seq = 1, .ack = 1);
        ends(s);
}

static int knowing(void **state)
{
        struct scene *s;

        asking(state);
        s = *state;
        learns(s, &(struct scene_in){.flags = SA, .ack = 1, THEIRS});
        return 0;
}

/* ... and 500 bytes have left in a SYN. */
static int sent_early(void **state)
{
        struct scene *s;

        knowing(state);
        s = *state;
        app_connects(s);
        expect_silence(s);
        app_writes(s, 500);
        expect_sent(s, .seq = 0, .flags = S, .len = 500);
        return 0;
}

static void the_first_syn_asks_for_a_cookie(void **state)
{
        struct scene *s = *state;

        app_connects(s);
        expect_sent(s, .seq = 0, .flags = S);
        assert_int_equal(s->last.fastopen, 1);
        assert_false(s->last.fastopen_old);
        peer_sends(s, .flags = SA, .ack = 1, THEIRS);
        expect_sent(s, .seq = 1, .ack = 1);
        app_writes(s, 100);
        expect_sent(s, .seq = 1, .ack = 1, .len = 100);
        expect_told(s, TCPS_ESTABLISHED, false);
}

static void the_next_syn_takes_data_along(void **state)
{
        struct scene *s = *state;

        app_connects(s);
        expect_silence(s);
        assert_true(tcp_fastopen_waits(s->tc));
        expect_poll(s, POLLOUT | POLLWRNORM);
        app_writes(s, 500);
        expect_sent(s, .seq = 0, .flags = S, .len = 500);
        assert_int_equal(s->last.fastopen, 5);
        assert_memory_equal(s->last.cookie, ((uint8_t[]){0xab, 0xcd, 0x12, 0x34}), 4);
        expect_poll(s, 0);
        peer_sends(s, .flags = SA, .ack = 501);
        expect_sent(s, .seq = 501, .ack = 1);
        expect_told(s, TCPS_ESTABLISHED, true);
        app_writes(s, 100);
        expect_sent(s, .seq = 501, .ack = 1, .len = 100);
        peer_sends(s, .seq = 1, .ack = 601);
}

/* The peer's last MSS, less 40 bytes for options of routers. */
static void a_syn_takes_what_fits(void **state)
{
        struct scene *s = *state;
        struct span span[2];

        learns(s, &(struct scene_in){.flags = SA, .ack = 1, .mss = 600, THEIRS});
        app_connects(s);
        assert_int_equal(tcp_send_reserve(&s->rig->t, s->tc, 2000, span, 2), 560);
        for (uint32_t i = 0; i < 560; i++)
                span[0].ptr[i] = scene_byte(1 + i);
        tcp_send_commit(&s->rig->t, s->tc, 560, false, false, s->now);
        s->written = 560;
        assert_int_equal(tcp_send_reserve(&s->rig->t, s->tc, 2000, span, 2), 0);
        advance_ms(s, 0);
        expect_sent(s, .seq = 0, .flags = S, .len = 560);
        peer_sends(s, .flags = SA, .ack = 561);
        expect_sent(s, .seq = 561, .ack = 1);
        app_writes(s, 1000);
        expect_sent(s, .seq = 561, .len = 1000);
}

static void a_syn_can_leave_without_data(void **state)
{
        struct scene *s = *state;

        app_connects(s);
        tcp_fastopen_go(&s->rig->t, s->tc, s->now);
        advance_ms(s, 0);
        expect_sent(s, .seq = 0, .flags = S);
        assert_int_equal(s->last.fastopen, 5);
        peer_sends(s, .flags = SA, .ack = 1);
        expect_sent(s, .seq = 1, .ack = 1);
        expect_told(s, TCPS_ESTABLISHED, false);
}

static void data_that_is_not_acknowledged_is_sent_at_once(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = SA, .ack = 1, .fastopen = 5, .cookie = {1, 2, 3, 4});
        expect_sent(s, .seq = 1, .ack = 1, .len = 500);
        expect_told(s, TCPS_ESTABLISHED, false);
        peer_sends(s, .seq = 1, .ack = 501);
        expect_silence(s);
        ends(s);
        app_connects(s);
        app_writes(s, 10);
        expect_sent(s, .seq = 0, .flags = S, .len = 10);
        assert_memory_equal(s->last.cookie, ((uint8_t[]){1, 2, 3, 4}), 4);
}

static void data_is_acknowledged_in_part(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = SA, .ack = 201);
        expect_sent(s, .seq = 201, .ack = 1, .len = 300);
        expect_told(s, TCPS_ESTABLISHED, false);
        peer_sends(s, .seq = 1, .ack = 501);
        assert_int_equal(s->tc->bytes_acked, 500);
}

static void more_than_was_sent_is_no_answer(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = SA, .ack = 502);
        expect_sent(s, .seq = 502, .flags = R, .is_reply = true);
        expect_state(s, TCPS_SYN_SENT);
        peer_sends(s, .flags = SA, .ack = 501);
        expect_sent(s, .seq = 501, .ack = 1);
}

static void the_answer_may_bring_data(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = SA, .ack = 501, .len = 50);
        expect_sent(s, .seq = 501, .ack = 51);
        app_reads(s, 50);
}

/* §4.2.1: the SYN goes again without option and data; these follow the SYN-ACK. */
static void a_lost_syn_is_sent_plain(void **state)
{
        struct scene *s = *state;

        advance_ms(s, 1000);
        expect_sent(s, .seq = 0, .flags = S);
        assert_int_equal(s->last.fastopen, 0);
        peer_sends(s, .flags = SA, .ack = 1);
        expect_sent(s, .seq = 1, .ack = 1, .len = 500);
        peer_sends(s, .seq = 1, .ack = 501);
        expect_told(s, TCPS_ESTABLISHED, false);
}

/* It was the answer that was lost. */
static void a_late_answer_acknowledges_the_data(void **state)
{
        struct scene *s = *state;

        advance_ms(s, 1000);
        expect_sent(s, .seq = 0, .flags = S);
        peer_sends(s, .flags = SA, .ack = 501);
        expect_sent(s, .seq = 501, .ack = 1);
        expect_told(s, TCPS_ESTABLISHED, true);
}

static void expect_plain(struct scene *s)
{
        app_connects(s);
        expect_sent(s, .seq = 0, .flags = S);
        assert_int_equal(s->last.fastopen, 0);
        ends(s);
}

/* §4.1.3.1: SYNs with data go nowhere, others do. */
static void a_black_hole_is_avoided_for_a_while(void **state)
{
        struct scene *s = *state;

        for (uint32_t wait_ms = 60000; wait_ms <= 240000; wait_ms *= 2) {
                if (wait_ms != 60000) {
                        app_connects(s);
                        app_writes(s, 500);
                        expect_sent(s, .seq = 0, .flags = S, .len = 500);
                }
                advance_ms(s, 1000);
                expect_sent(s, .seq = 0, .flags = S);
                peer_sends(s, .flags = SA, .ack = 1);
                expect_sent(s, .seq = 1, .ack = 1, .len = 500);
                ends(s);
                expect_plain(s);
                advance_ms(s, wait_ms - 1);
                expect_plain(s);
                advance_ms(s, 1);
        }
        app_connects(s);
        app_writes(s, 500);
        expect_sent(s, .seq = 0, .flags = S, .len = 500);
        peer_sends(s, .flags = SA, .ack = 501);
        expect_sent(s, .seq = 501, .ack = 1);
        ends(s);
        app_connects(s);
        assert_true(tcp_fastopen_waits(s->tc));
}

/* Old servers know the option by its experimental number. */
static void who_knows_no_option_is_asked_by_the_old_number_once(void **state)
{
        struct scene *s = *state;

        for (unsigned i = 0; i < 4; i++) {
                app_connects(s);
                expect_sent(s, .seq = 0, .flags = S);
                assert_int_equal(s->last.fastopen, 1);
                assert_int_equal(s->last.fastopen_old, i == 1);
                peer_sends(s, .flags = SA, .ack = 1);
                expect_sent(s, .seq = 1, .ack = 1);
                ends(s);
        }
        s->tuple.raddr = ip_addr_v4(0x0a000009);
        learns(s, &(struct scene_in){.flags = SA, .ack = 1});
        app_connects(s);
        expect_sent(s, .seq = 0, .flags = S);
        peer_sends(s, .flags = SA, .ack = 1, .fastopen_old = true, THEIRS);
        expect_sent(s, .seq = 1, .ack = 1);
        ends(s);
        app_connects(s);
        app_writes(s, 10);
        expect_sent(s, .seq = 0, .flags = S, .len = 10);
        assert_true(s->last.fastopen_old);
}

static void a_cookie_that_was_not_asked_for_is_none(void **state)
{
        struct scene *s = *state;

        s->opts.fastopen = 0;
        app_connects(s);
        expect_sent(s, .seq = 0, .flags = S);
        assert_int_equal(s->last.fastopen, 0);
        peer_sends(s, .flags = SA, .ack = 1, THEIRS);
        expect_sent(s, .seq = 1, .ack = 1);
        ends(s);
        s->opts.fastopen = TCP_FASTOPEN_USE;
        app_connects(s);
        expect_sent(s, .seq = 0, .flags = S);
        assert_int_equal(s->last.fastopen, 1);
}

static void a_cookie_is_of_an_address(void **state)
{
        struct scene *s = *state;

        s->tuple.raddr = ip_addr_v4(0x0a000007);
        app_connects(s);
        expect_sent(s, .seq = 0, .flags = S);
        assert_int_equal(s->last.fastopen, 1);
        ends(s);
        s->tuple.raddr = ip_addr_v4(0x0a000002);
        s->tuple.laddr = ip_addr_v4(0x0a000021);
        app_connects(s);
        expect_sent(s, .seq = 0, .flags = S);
        assert_int_equal(s->last.fastopen, 1);
}

/* However many there are, of each set those stay that were heard of last. */
static void the_cache_is_bounded(void **state)
{
        struct scene *s = *state;
        unsigned known = 0;

        for (uint32_t i = 0; i < 2000; i++) {
                s->tuple.raddr = ip_addr_v4(0x0b000000 + i);
                s->now += NS_PER_MS;
                learns(s, &(struct scene_in){.flags = SA, .ack = 1, THEIRS});
        }
        for (uint32_t i = 0; i < 2000; i++) {
                s->tuple.raddr = ip_addr_v4(0x0b000000 + i);
                app_connects(s);
                known += tcp_fastopen_waits(s->tc);
                assert_true(i < 1999 || tcp_fastopen_waits(s->tc));
                ends(s);
        }
        assert_in_range(known, FASTOPEN_SETS * FASTOPEN_WAYS * 9 / 10,
                        FASTOPEN_SETS * FASTOPEN_WAYS);
}

static void without_cookies_data_goes_at_once(void **state)
{
        struct scene *s = *state;

        s->opts.fastopen |= TCP_FASTOPEN_BARE;
        app_connects(s);
        app_writes(s, 100);
        expect_sent(s, .seq = 0, .flags = S, .len = 100);
        assert_int_equal(s->last.fastopen, 0);
        peer_sends(s, .flags = SA, .ack = 101);
        expect_sent(s, .seq = 101, .ack = 1);
}

/* Figure 8: what came in the other's SYN comes again. */
static void both_may_open_at_once(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = S, .len = 20, THEIRS);
        expect_sent(s, .seq = 0, .flags = SA, .ack = 1);
        peer_sends(s, .flags = SA, .ack = 1);
        expect_sent(s, .seq = 1, .ack = 1, .len = 500);
        peer_sends(s, .seq = 1, .ack = 501, .len = 20);
        app_reads(s, 20);
        forget_sent(s);
}

static void a_refusal_ends_it(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .ack = 1, .flags = RA);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ECONNREFUSED);
}

static void what_waits_for_data_can_be_closed(void **state)
{
        struct scene *s = *state;

        app_connects(s);
        advance_ms(s, 3600000);
        expect_silence(s);
        app_closes(s);
        expect_silence(s);
        s->tc = NULL;
}

static void what_was_written_survives_a_death(void **state)
{
        struct scene *s = *state;

        rig_recover(s->rig, s->conn, s->now);
        advance_ms(s, 0);
        expect_sent(s, .seq = 0, .flags = S);
        peer_sends(s, .flags = SA, .ack = 501);
        expect_sent(s, .seq = 501, .ack = 1);
        app_writes(s, 10);
        expect_sent(s, .seq = 501, .len = 10);
        rig_recover(s->rig, 0, s->now);
        peer_sends(s, .seq = 1, .ack = 511);
}

static void what_waits_survives_a_death(void **state)
{
        struct scene *s = *state;

        app_connects(s);
        rig_recover(s->rig, s->conn, s->now);
        advance_ms(s, 0);
        expect_sent(s, .seq = 0, .flags = S);
        peer_sends(s, .flags = SA, .ack = 1);
        expect_sent(s, .seq = 1, .ack = 1);
        app_writes(s, 10);
        expect_sent(s, .seq = 1, .len = 10);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(the_first_syn_asks_for_a_cookie, asking, &all_options),
                scenario(the_next_syn_takes_data_along, knowing, &plain),
                scenario(a_syn_takes_what_fits, asking, &plain),
                scenario(a_syn_can_leave_without_data, knowing, &plain),
                scenario(data_that_is_not_acknowledged_is_sent_at_once, sent_early, &plain),
                scenario(data_is_acknowledged_in_part, sent_early, &plain),
                scenario(more_than_was_sent_is_no_answer, sent_early, &plain),
                scenario(the_answer_may_bring_data, sent_early, &plain),
                scenario(a_lost_syn_is_sent_plain, sent_early, &plain),
                scenario(a_late_answer_acknowledges_the_data, sent_early, &plain),
                scenario(a_black_hole_is_avoided_for_a_while, sent_early, &plain),
                scenario(who_knows_no_option_is_asked_by_the_old_number_once, asking, &plain),
                scenario(a_cookie_that_was_not_asked_for_is_none, asking, &plain),
                scenario(a_cookie_is_of_an_address, knowing, &plain),
                scenario(the_cache_is_bounded, asking, &plain),
                scenario(without_cookies_data_goes_at_once, asking, &plain),
                scenario(both_may_open_at_once, sent_early, &plain),
                scenario(a_refusal_ends_it, sent_early, &plain),
                scenario(what_waits_for_data_can_be_closed, knowing, &plain),
                scenario(what_was_written_survives_a_death, sent_early, &plain),
                scenario(what_waits_survives_a_death, knowing, &plain),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
