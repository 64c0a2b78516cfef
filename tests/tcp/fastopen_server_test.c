/* TCP Fast Open (RFC 7413), by who is opened to: cookies, and data in the SYN that is taken. */
#include "tests/tcp/scenarios.h"
#include "tcp/tcp_life.h"

#define COOKIE_LEN 8u
#define GOOD                        \
        .fastopen = 1 + COOKIE_LEN, \
        .cookie = {given[0], given[1], given[2], given[3], given[4], given[5], given[6], given[7]}

static const struct scene_setup plain = {.sack = true};
static const struct scene_setup by_credit = {.credit = 100, .most = 1000};

static uint8_t given[COOKIE_LEN]; /* the cookie that the peer has */

static void listener_takes(struct scene *s, uint32_t most)
{
        s->opts.fastopen |= TCP_FASTOPEN_SERVE;
        s->opts.fastopen_most = most;
        tcp_listen_opts(&s->rig->t, s->listener, &s->opts);
}

/* So late that the next SYN-ACK has the number that the scene counts from. */
static void meet_iss(struct scene *s)
{
        s->now += (nstime)(SCENE_ISS - iss_new(&s->rig->t, &s->tuple, s->now)) * 4 * NS_PER_US;
}

static void from_port(struct scene *s, uint16_t port)
{
        s->tuple.rport = port;
        meet_iss(s);
}

static int taking(void **state)
{
        struct scene *s;

        listening(state);
        s = *state;
        listener_takes(s, 2);
        meet_iss(s);
        return 0;
}

/* The peer asks for a cookie; the SYN-ACK has been expected. */
static void peer_asks(struct scene *s)
{
        peer_sends(s, .flags = S, .fastopen = 1);
        expect_sent(s, .seq = 0, .flags = SA, .ack = 1);
        assert_int_equal(s->last.fastopen, 1 + COOKIE_LEN);
        memcpy(given, s->last.cookie, sizeof given);
}

/* ... from another port, and gives up. */
static int with_cookie(void **state)
{
        struct scene *s;

        taking(state);
        s = *state;
        from_port(s, 999);
        peer_asks(s);
        peer_sends(s, .seq = 1, .flags = R);
        from_port(s, 1000);
        return 0;
}

/* ... and a SYN with 10 bytes has opened a connection, which is accepted. */
static int opened(void **state)
{
        struct scene *s;

        with_cookie(state);
        s = *state;
        peer_sends(s, .flags = S, .len = 10, GOOD);
        expect_sent(s, .flags = SA, .ack = 11);
        app_accepts(s);
        return 0;
}

static uint64_t counted(const struct scene *s, enum count c)
{
        return s->rig->cnt.n[c];
}

static void a_cookie_is_given_to_who_asks(void **state)
{
        struct scene *s = *state;

        peer_asks(s);
        assert_false(s->last.fastopen_old);
        assert_false(tcp_acceptable(&s->rig->t, s->listener));
        peer_sends(s, .seq = 1, .ack = 1);
        app_accepts(s);
        app_aborts(s);
        app_closes(s);
        forget_sent(s);
        from_port(s, 41000);
        peer_sends(s, .flags = S, .fastopen = 1, .fastopen_old = true);
        expect_sent(s, .flags = SA, .ack = 1);
        assert_true(s->last.fastopen_old);
        /* Of the addresses, not of ports. */
        assert_memory_equal(s->last.cookie, given, sizeof given);
        advance_ms(s, 1000);
        expect_sent(s, .flags = SA, .ack = 1);
        assert_memory_equal(s->last.cookie, given, sizeof given);
        peer_sends(s, .seq = 1, .flags = R);
        s->tc = NULL;
}

static void data_is_read_and_answered_before_the_handshake_ends(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = S, .len = 10, GOOD);
        expect_sent(s, .flags = SA, .ack = 11);
        assert_int_equal(s->last.fastopen, 0);
        app_accepts(s);
        expect_state(s, TCPS_ESTABLISHED);
        expect_poll(s, POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM);
        app_reads(s, 10);
        app_writes(s, 1500);
        expect_sent(s, .seq = 1, .ack = 11, .len = 1000);
        expect_sent(s, .seq = 1001, .ack = 11, .len = 500);
        assert_int_equal(tcp_listener_at(&s->rig->t, s->listener)->fastopen_open, 1);
        peer_sends(s, .seq = 11, .ack = 1501);
        assert_int_equal(tcp_listener_at(&s->rig->t, s->listener)->fastopen_open, 0);
        peer_sends(s, .seq = 11, .ack = 1501, .len = 5);
        app_reads(s, 5);
        assert_int_equal(counted(s, COUNT_TCP_FASTOPEN_IN), 1);
        forget_sent(s);
}

static void what_is_known_of_it_is_told(void **state)
{
        struct scene *s = *state;

        expect_told(s, TCPS_SYN_RECEIVED, true);
        advance_ms(s, 40);
        peer_sends(s, .seq = 11, .ack = 1);
        expect_told(s, TCPS_ESTABLISHED, true);
        assert_int_equal(s->tc->srtt, 40 * NS_PER_MS);
}

static void a_cookie_without_data_opens_too(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = S, GOOD);
        expect_sent(s, .flags = SA, .ack = 1);
        app_accepts(s);
        app_writes(s, 100);
        expect_sent(s, .seq = 1, .ack = 1, .len = 100);
        expect_told(s, TCPS_SYN_RECEIVED, false);
        peer_sends(s, .seq = 1, .ack = 101);
}

/* §4.1.3: it gets a good one, and its data is to come again. */
static void a_wrong_cookie_is_replaced(void **state)
{
        struct scene *s = *state;
        uint8_t good[COOKIE_LEN];

        memcpy(good, given, sizeof good);
        given[3] ^= 1;
        peer_sends(s, .flags = S, .len = 10, GOOD);
        expect_sent(s, .flags = SA, .ack = 1);
        assert_int_equal(s->last.fastopen, 1 + COOKIE_LEN);
        assert_memory_equal(s->last.cookie, good, sizeof good);
        assert_false(tcp_acceptable(&s->rig->t, s->listener));
        peer_sends(s, .seq = 1, .ack = 1, .len = 10);
        app_accepts(s);
        app_reads(s, 10);
        expect_told(s, TCPS_ESTABLISHED, false);
        assert_int_equal(counted(s, COUNT_TCP_FASTOPEN_WRONG), 1);
        assert_int_equal(counted(s, COUNT_TCP_FASTOPEN_IN), 0);
        forget_sent(s);
}

static void a_cookie_of_another_length_is_wrong(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = S, .len = 10, .fastopen = 1 + 4, .cookie = {1, 2, 3, 4});
        expect_sent(s, .flags = SA, .ack = 1);
        assert_int_equal(s->last.fastopen, 1 + COOKIE_LEN);
        peer_sends(s, .seq = 1, .flags = R);
}

static void a_cookie_of_another_address_is_wrong(void **state)
{
        struct scene *s = *state;

        s->tuple.raddr = ip_addr_v4(0x0a000003);
        meet_iss(s);
        peer_sends(s, .flags = S, .len = 10, GOOD);
        expect_sent(s, .flags = SA, .ack = 1);
        peer_sends(s, .seq = 1, .flags = R);
}

static void a_listener_that_takes_none_says_nothing(void **state)
{
        struct scene *s = *state;

        meet_iss(s);
        peer_sends(s, .flags = S, .len = 10, .fastopen = 1);
        expect_sent(s, .flags = SA, .ack = 1);
        assert_int_equal(s->last.fastopen, 0);
        peer_sends(s, .seq = 1, .ack = 1, .len = 10);
        app_accepts(s);
        app_reads(s, 10);
        forget_sent(s);
}

/* Linux's, of packetdrill's own scripts: net.ipv4.tcp_fastopen_key =
 * a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4. */
static void a_cookie_is_as_linux_makes_it(void **state)
{
        static const uint8_t v4[] = {0x30, 0x21, 0xb9, 0xd8, 0x89, 0x01, 0x7e, 0xeb};
        static const uint8_t v6[] = {0xc1, 0xd1, 0xe9, 0x74, 0x2a, 0x47, 0xa9, 0xbc};
        static const uint8_t here[16] = {0xfd, 0x3d, 0x0a, 0x0b, 0x17, 0xd6, [15] = 1};
        static const uint8_t there[16] = {0xfd, 0x3d, 0xfa, 0x7b, 0xd1, 0x7d, [15] = 1};
        struct scene *s = *state;

        s->opts.fastopen_keys = 1;
        for (unsigned i = 0; i < 16; i++)
                s->opts.fastopen_key[0][i] = (uint8_t)(0xa1 + i / 4 * 0x11);
        listener_takes(s, 1);
        s->tuple.raddr = ip_addr_v4(0xc0000201);
        s->tuple.laddr = ip_addr_v4(0xc0a80001);
        peer_sends(s, .flags = S, .fastopen = 1);
        expect_sent(s, .flags = SA, .ack = 1);
        assert_memory_equal(s->last.cookie, v4, sizeof v4);
        peer_sends(s, .seq = 1, .flags = R);
        memcpy(&s->tuple.raddr, there, 16);
        memcpy(&s->tuple.laddr, here, 16);
        peer_sends(s, .flags = S, .fastopen = 1);
        expect_sent(s, .flags = SA, .ack = 1);
        assert_memory_equal(s->last.cookie, v6, sizeof v6);
        peer_sends(s, .seq = 1, .flags = R);
}

static void rotate(struct scene *s, uint8_t now, uint8_t before)
{
        s->opts.fastopen_keys = before != 0 ? 2 : 1;
        memset(s->opts.fastopen_key[0], now, 16);
        memset(s->opts.fastopen_key[1], before, 16);
        listener_takes(s, 8);
}

/* §4.1.2: of two keys the older is good as long as it is there; who comes with that gets a
 * new one. */
static void a_key_is_rotated(void **state)
{
        struct scene *s = *state;
        uint8_t old[COOKIE_LEN];

        rotate(s, 1, 0);
        peer_asks(s);
        memcpy(old, given, sizeof old);
        peer_sends(s, .seq = 1, .flags = R);
        rotate(s, 2, 1);
        from_port(s, 1000);
        peer_sends(s, .flags = S, .len = 10, GOOD);
        expect_sent(s, .flags = SA, .ack = 11);
        assert_int_equal(s->last.fastopen, 1 + COOKIE_LEN);
        assert_memory_not_equal(s->last.cookie, old, sizeof old);
        memcpy(given, s->last.cookie, sizeof given);
        app_accepts(s);
        app_reads(s, 10);
        s->read = 0;
        peer_sends(s, .seq = 11, .flags = R);
        app_closes(s);
        from_port(s, 1001);
        peer_sends(s, .flags = S, .len = 10, GOOD);
        expect_sent(s, .flags = SA, .ack = 11);
        assert_int_equal(s->last.fastopen, 0);
        app_accepts(s);
        app_reads(s, 10);
        peer_sends(s, .seq = 11, .flags = R);
        app_closes(s);
        s->tc = NULL;
        rotate(s, 3, 2);
        memcpy(given, old, sizeof given);
        from_port(s, 1002);
        peer_sends(s, .flags = S, .len = 10, GOOD);
        expect_sent(s, .flags = SA, .ack = 1);
        peer_sends(s, .seq = 1, .flags = R);
}

static void without_cookies_all_are_taken(void **state)
{
        struct scene *s = *state;

        s->opts.fastopen = TCP_FASTOPEN_BARE;
        listener_takes(s, 1);
        peer_sends(s, .flags = S, .len = 10);
        expect_sent(s, .flags = SA, .ack = 11);
        assert_int_equal(s->last.fastopen, 0);
        app_accepts(s);
        app_reads(s, 10);
        peer_sends(s, .seq = 11, .ack = 1);
}

/* §5.1: in the third handshake a SYN is as any other. */
static void no_more_are_open_than_may_be(void **state)
{
        struct scene *s = *state;

        for (uint16_t i = 0; i < 3; i++) {
                from_port(s, (uint16_t)(1000 + i));
                peer_sends(s, .flags = S, .len = 10, GOOD);
                expect_sent(s, .flags = SA, .ack = i < 2 ? 11 : 1);
        }
        s->tuple.rport = 1000;
        peer_sends(s, .seq = 11, .ack = 1); /* one is confirmed: there is room */
        from_port(s, 1003);
        peer_sends(s, .flags = S, .len = 10); /* SYNs of others do not count */
        expect_sent(s, .flags = SA, .ack = 1);
        for (uint16_t i = 1; i < 4; i++) {
                s->tuple.rport = (uint16_t)(1000 + i);
                peer_sends(s, .seq = i < 2 ? 11 : 1, .flags = R);
        }
        for (unsigned i = 0; i < 2; i++) {
                app_accepts(s);
                tcp_abort(&s->rig->t, s->tc, s->now);
                app_closes(s);
        }
        s->tc = NULL;
        forget_sent(s);
}

/* Those that were reset count for a minute: who replays cookies of others makes these reset what
 * they never asked for. */
static void resets_take_places_for_a_minute(void **state)
{
        struct scene *s = *state;

        for (uint16_t i = 0; i < 3; i++) {
                s->tuple.rport = (uint16_t)(1000 + i);
                peer_sends(s, .flags = S, .len = 10, GOOD);
                expect_sent(s, .flags = SA, .ack = i < 2 ? 11 : 1);
                peer_sends(s, .seq = i < 2 ? 11 : 1, .flags = R);
                if (i < 2) {
                        app_accepts(s);
                        app_closes(s);
                }
        }
        s->tuple.rport = 1004;
        advance_ms(s, 60000);
        peer_sends(s, .flags = S, .len = 10, GOOD);
        expect_sent(s, .flags = SA, .ack = 11);
        peer_sends(s, .seq = 11, .flags = R);
        app_accepts(s);
        app_closes(s);
        s->tc = NULL;
}

static void only_the_syn_ack_is_repeated_until_it_is_acknowledged(void **state)
{
        struct scene *s = *state;

        app_writes(s, 1500);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_sent(s, .seq = 1001, .len = 500);
        advance_ms(s, 999);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .flags = SA, .ack = 11);
        advance_ms(s, 2000);
        expect_sent(s, .flags = SA, .ack = 11);
        /* What came before the SYN-ACK was none of its connection's. */
        peer_sends(s, .seq = 11, .ack = 1);
        expect_sent(s, .seq = 1, .ack = 11, .len = 1000);
        expect_sent(s, .seq = 1001, .ack = 11, .len = 500);
        peer_sends(s, .seq = 11, .ack = 1501);
}

static void the_syn_again_is_answered_again(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = S); /* repeated without data (§4.2.1) */
        expect_sent(s, .flags = SA, .ack = 11);
        peer_sends(s, .flags = S, .len = 10, .fastopen = 1);
        expect_sent(s, .flags = SA, .ack = 11);
        peer_sends(s, .seq = 11, .ack = 1);
        app_reads(s, 10);
}

static void an_answer_that_never_comes_ends_it(void **state)
{
        struct scene *s = *state;

        app_writes(s, 100);
        forget_sent(s);
        advance_ms(s, 200000);
        forget_sent(s);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ETIMEDOUT);
        app_reads(s, 10);
        assert_int_equal(tcp_listener_at(&s->rig->t, s->listener)->fastopen_open, 0);
}

static void a_wrong_acknowledgement_is_reset(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 11, .ack = 0);
        expect_sent(s, .seq = 0, .flags = R, .is_reply = true);
        peer_sends(s, .seq = 11, .ack = 2);
        expect_sent(s, .seq = 2, .flags = R, .is_reply = true);
        expect_state(s, TCPS_ESTABLISHED);
        peer_sends(s, .seq = 11, .ack = 1);
}

static void what_came_is_read_after_a_reset(void **state)
{
        struct scene *s = *state;
        struct span span[1];

        peer_sends(s, .seq = 11, .flags = R);
        app_reads(s, 10);
        assert_int_equal(tcp_recv_peek(&s->rig->t, s->tc, 0, 1, span, 1), -ECONNRESET);
}

static void who_cannot_be_reached_is_accepted_with_what_came(void **state)
{
        struct scene *s = *state;
        struct span span[1];

        peer_sends(s, .flags = S, .len = 10, GOOD);
        expect_sent(s, .flags = SA, .ack = 11);
        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS + 5000, EHOSTUNREACH, true, 0, s->now);
        assert_int_equal(tcp_listener_at(&s->rig->t, s->listener)->fastopen_open, 1);
        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS, EHOSTUNREACH, true, 0, s->now);
        assert_int_equal(tcp_listener_at(&s->rig->t, s->listener)->fastopen_open, 0);
        app_accepts(s);
        app_reads(s, 10);
        assert_int_equal(tcp_recv_peek(&s->rig->t, s->tc, 0, 1, span, 1), -EHOSTUNREACH);
}

static void an_end_waits_for_the_handshake(void **state)
{
        struct scene *s = *state;

        app_reads(s, 10);
        app_closes(s);
        expect_sent(s, .seq = 1, .ack = 11, .flags = F);
        advance_ms(s, 1000);
        expect_sent(s, .flags = SA, .ack = 11);
        peer_sends(s, .seq = 11, .ack = 2, .flags = F);
        turn_ends(s);
        expect_sent(s, .seq = 2, .ack = 12);
        expect_state(s, TCPS_TIME_WAIT);
        advance_ms(s, 60000);
        s->tc = NULL;
}

static void unread_data_is_lost_loudly(void **state)
{
        struct scene *s = *state;

        app_closes(s);
        expect_sent(s, .seq = 1, .ack = 11, .flags = RA);
        s->tc = NULL;
}

static void a_listener_that_closes_resets_who_waits(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = S, .len = 10, GOOD);
        expect_sent(s, .flags = SA, .ack = 11);
        tcp_unlisten(&s->rig->t, s->listener);
        s->rig->touched[2] = true;
        advance_ms(s, 0);
        expect_sent(s, .seq = 1, .ack = 11, .flags = RA);
}

static void an_accepted_one_outlives_its_listener(void **state)
{
        struct scene *s = *state;
        int l;

        tcp_unlisten(&s->rig->t, s->listener);
        l = tcp_listen(&s->rig->t, (ip_addr){{0, 0}}, 80, 4, &s->opts); /* of the same index */
        assert_int_equal(l, s->listener);
        peer_sends(s, .seq = 11, .ack = 1);
        assert_int_equal(tcp_listener_at(&s->rig->t, s->listener)->fastopen_open, 0);
        app_reads(s, 10);
}

/* What is beyond the window that was granted comes again. */
static void no_more_is_taken_than_was_granted(void **state)
{
        struct scene *s = *state;

        s->opts.fastopen = TCP_FASTOPEN_BARE;
        listener_takes(s, 1);
        peer_sends(s, .flags = S, .len = 150);
        expect_sent(s, .flags = SA, .ack = 101, .wnd = 0, .zero_wnd = true);
        app_accepts(s);
        app_reads(s, 100);
        forget_sent(s);
        peer_sends(s, .seq = 101, .ack = 1);
}

static void a_death_inside_loses_nothing(void **state)
{
        struct scene *s = *state;

        app_writes(s, 100);
        expect_sent(s, .seq = 1, .len = 100);
        rig_recover(s->rig, s->conn, s->now);
        assert_int_equal(tcp_listener_at(&s->rig->t, s->listener)->fastopen_open, 1);
        advance_ms(s, 0);
        expect_sent(s, .flags = SA, .ack = 11);
        forget_sent(s);
        peer_sends(s, .seq = 11, .ack = 1);
        advance_ms(s, 2000);
        expect_sent(s, .seq = 1, .ack = 11, .len = 100);
        forget_sent(s);
        app_reads(s, 10);
        peer_sends(s, .seq = 11, .ack = 101);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(a_cookie_is_given_to_who_asks, taking, &plain),
                scenario(data_is_read_and_answered_before_the_handshake_ends, with_cookie, &plain),
                scenario(what_is_known_of_it_is_told, opened, &plain),
                scenario(a_cookie_without_data_opens_too, with_cookie, &plain),
                scenario(a_wrong_cookie_is_replaced, with_cookie, &plain),
                scenario(a_cookie_of_another_length_is_wrong, with_cookie, &plain),
                scenario(a_cookie_of_another_address_is_wrong, with_cookie, &plain),
                scenario(a_listener_that_takes_none_says_nothing, listening, &plain),
                scenario(a_cookie_is_as_linux_makes_it, taking, &plain),
                scenario(a_key_is_rotated, taking, &plain),
                scenario(without_cookies_all_are_taken, taking, &plain),
                scenario(no_more_are_open_than_may_be, with_cookie, &plain),
                scenario(resets_take_places_for_a_minute, with_cookie, &plain),
                scenario(only_the_syn_ack_is_repeated_until_it_is_acknowledged, opened, &plain),
                scenario(the_syn_again_is_answered_again, opened, &plain),
                scenario(an_answer_that_never_comes_ends_it, opened, &plain),
                scenario(a_wrong_acknowledgement_is_reset, opened, &plain),
                scenario(what_came_is_read_after_a_reset, opened, &plain),
                scenario(who_cannot_be_reached_is_accepted_with_what_came, with_cookie, &plain),
                scenario(an_end_waits_for_the_handshake, opened, &plain),
                scenario(unread_data_is_lost_loudly, opened, &plain),
                scenario(a_listener_that_closes_resets_who_waits, with_cookie, &plain),
                scenario(an_accepted_one_outlives_its_listener, opened, &plain),
                scenario(no_more_is_taken_than_was_granted, taking, &by_credit),
                scenario(a_death_inside_loses_nothing, opened, &plain),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
