/* SYN cookies (RFC 4987 §3.6): a listener under a flood of SYNs still takes those who mean it, and
 * remembers nothing of the others. */
#include "tcp/tcp_group.h"
#include "tests/tcp/scenarios.h"

#define HALF_OPEN 128u  /* what the listener of the scene remembers: tcp_listen.c */
#define BACKLOG   4     /* of that listener */
#define FRIEND    9999u /* port of a peer that means it */

static const struct scene_setup all_options = {.wscale = 3, .sack = true, .ts = true};
static const struct scene_setup no_options = {.mss = 1452};
static const struct scene_setup lossless = {.lossless = true};

/* As many peers as the listener remembers send a SYN and nothing more. The next one is FRIEND. */
static void flood(struct scene *s)
{
        for (uint16_t i = 0; i < HALF_OPEN; i++) {
                s->tuple.rport = (uint16_t)(1000 + i);
                peer_sends(s, .seq = 0, .flags = S);
                expect_sent(s, .flags = SA, .ack = 1);
        }
        s->tuple.rport = FRIEND;
}

static uint32_t sent_cookies(const struct scene *s)
{
        return (uint32_t)s->rig->cnt.n[COUNT_TCP_COOKIE_OUT];
}

/* The SYN of FRIEND and its answer; returns what is to be acknowledged, relative. */
static uint32_t cookie(struct scene *s)
{
        uint32_t used = s->rig->t.sh->conns.used, cookies = sent_cookies(s);

        peer_sends(s, .seq = 0, .flags = S);
        expect_sent(s, .flags = SA, .ack = 1, .is_reply = true);
        assert_int_equal(sent_cookies(s), cookies + 1);
        assert_int_equal(s->rig->t.sh->conns.used, used);
        return s->last.seq + 1 - SCENE_ISS;
}

/* The scene is about the connection that was opened last. */
static void take(struct scene *s)
{
        app_accepts(s);
        assert_int_equal(s->tc->tuple.rport, FRIEND);
        expect_state(s, TCPS_ESTABLISHED);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_COOKIE_IN], 1);
}

static void a_flooded_listener_takes_who_answers(void **state)
{
        struct scene *s = *state;
        uint32_t ack, tsval;

        flood(s);
        ack = cookie(s);
        assert_true(s->last.has_ts && s->last.sack_ok && s->last.wscale == 7);
        tsval = s->last.tsval;
        /* Set meanwhile: what was said holds. */
        tcp_listener_at(&s->rig->t, s->listener)->opts.rcvbuf = 65536;
        assert_false(tcp_acceptable(&s->rig->t, s->listener));
        peer_sends(s, .seq = 1, .ack = ack, .has_ts = true, .tsval = s->tsval, .tsecr = tsval);
        take(s);
        assert_true(s->tc->ts_ok && s->tc->sack_ok);
        assert_int_equal(s->tc->snd_wscale, 3);
        assert_int_equal(s->tc->rcv_wscale, 7);
        assert_int_equal(s->tc->snd_mss, 536 - 12); /* of SCENE_MSS, by the table */
        forget_sent(s);
}

/* Nothing but the MSS can be kept, so nothing else is offered. */
static void without_timestamps_no_option_is_offered(void **state)
{
        struct scene *s = *state;
        uint32_t ack;

        flood(s);
        s->setup.wscale = 3;
        s->setup.sack = true;
        ack = cookie(s);
        assert_true(!s->last.has_ts && !s->last.sack_ok && s->last.wscale == TCP_NO_WSCALE);
        s->setup.wscale = 0;
        s->setup.sack = false;
        peer_sends(s, .seq = 1, .ack = ack);
        take(s);
        assert_false(s->tc->ts_ok || s->tc->sack_ok || s->tc->flags & TCF_WSCALE);
        assert_int_equal(s->tc->snd_mss, 1440); /* of 1452 */
        forget_sent(s);
}

/* The ACK itself was lost: the first data brings the same numbers. */
static void data_opens_as_well(void **state)
{
        struct scene *s = *state;
        uint32_t ack;

        flood(s);
        ack = cookie(s);
        peer_sends(s, .seq = 1, .ack = ack, .len = 100);
        take(s);
        app_reads(s, 100);
        forget_sent(s);
}

/* The ACK and the first data were lost: who sends the second is not reset. */
static void later_data_does_not_end_what_it_cannot_open(void **state)
{
        struct scene *s = *state;
        uint32_t ack;

        flood(s);
        ack = cookie(s);
        peer_sends(s, .seq = 101, .ack = ack, .len = 100);
        expect_silence(s);
        peer_sends(s, .seq = 201, .ack = ack, .flags = F);
        expect_silence(s);
        peer_sends(s, .seq = 101, .ack = ack + (60u << 24), .len = 100); /* an hour ago */
        expect_sent(s, .seq = ack + (60u << 24), .flags = R, .is_reply = true);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_COOKIE], 3);
        peer_sends(s, .seq = 1, .ack = ack, .len = 100);
        take(s);
        app_reads(s, 100);
        forget_sent(s);
}

static void what_is_no_cookie_is_refused(void **state)
{
        struct scene *s = *state;
        uint32_t ack;

        flood(s);
        ack = cookie(s);
        peer_sends(s, .seq = 1, .ack = ack + 1000);
        expect_sent(s, .seq = ack + 1000, .flags = R, .is_reply = true);
        peer_sends(s, .seq = 2, .ack = ack); /* its SYN had another number */
        expect_sent(s, .seq = ack, .flags = R, .is_reply = true);
        s->tuple.rport = FRIEND + 1; /* another's */
        peer_sends(s, .seq = 1, .ack = ack);
        expect_sent(s, .seq = ack, .flags = R, .is_reply = true);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_COOKIE], 3);
        assert_false(tcp_acceptable(&s->rig->t, s->listener));
        s->tuple.rport = FRIEND;
        peer_sends(s, .seq = 1, .ack = ack);
        take(s);
        forget_sent(s);
}

static void an_old_cookie_is_refused(void **state)
{
        struct scene *s = *state;
        uint32_t ack;

        flood(s);
        ack = cookie(s);
        for (int second = 0; second <= 120; second++) {
                advance_ms(s, 1000);
                forget_sent(s); /* SYN-ACKs, again and again */
        }
        peer_sends(s, .seq = 1, .ack = ack);
        expect_sent(s, .seq = ack, .flags = R, .is_reply = true);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_COOKIE_IN], 0);
}

/* While nobody was sent a cookie, none is looked for. */
static void without_a_flood_an_ack_is_only_refused(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 1, .flags = R, .is_reply = true);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_COOKIE], 0);
}

/* The peer believes that it is connected, and will say so again. */
static void a_cookie_waits_while_the_queue_is_full(void **state)
{
        struct scene *s = *state;
        uint32_t ack;

        tcp_listen_backlog(&s->rig->t, s->listener, 0);
        flood(s);
        ack = cookie(s);
        s->tuple.rport = 1000;
        peer_sends(s, .seq = 1, .ack = tcp_conn_at(&s->rig->t, 1)->snd_nxt - SCENE_ISS);
        assert_true(tcp_acceptable(&s->rig->t, s->listener));
        s->tuple.rport = FRIEND;
        peer_sends(s, .seq = 1, .ack = ack, .len = 10);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_BACKLOG], 1);
        tcp_close(&s->rig->t, tcp_conn_at(&s->rig->t, tcp_accept(&s->rig->t, s->listener)), s->now);
        peer_sends(s, .seq = 1, .ack = ack, .len = 10);
        take(s);
        app_reads(s, 10);
        forget_sent(s);
}

/* Who is on this host cannot forge addresses; waiting costs him less than a connection
 * without options. */
static void nobody_on_this_host_gets_a_cookie(void **state)
{
        struct scene *s = *state;

        for (uint16_t i = 0; i <= BACKLOG; i++) { /* those will have their places in the queue */
                s->tuple.rport = (uint16_t)(1000 + i);
                peer_sends(s, .seq = 0, .flags = S);
                expect_sent(s, .flags = SA, .ack = 1);
        }
        s->tuple.rport = FRIEND;
        peer_sends(s, .seq = 0, .flags = S);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_BACKLOG], 1);
}

/* ... unless somebody there asks and never answers, to keep others out. */
static void who_holds_a_listener_on_this_host_keeps_nobody_out(void **state)
{
        struct scene *s = *state;
        uint32_t ack;

        for (uint16_t i = 0; i <= BACKLOG; i++) {
                s->tuple.rport = (uint16_t)(1000 + i);
                peer_sends(s, .seq = 0, .flags = S);
        }
        forget_sent(s);
        advance_ms(s, 1500);
        for (uint16_t i = 0; i <= HALF_OPEN; i++) {
                s->tuple.rport = (uint16_t)(2000 + i);
                peer_sends(s, .seq = 0, .flags = S);
        }
        forget_sent(s);
        s->tuple.rport = FRIEND;
        ack = cookie(s);
        peer_sends(s, .seq = 1, .ack = ack);
        take(s);
        forget_sent(s);
}

/* The listener is of a group from now on. */
static void joins_group(struct scene *s, const struct tcp_group_limits *l)
{
        uint32_t group = tcp_group_new(&s->rig->t);

        assert_int_equal(tcp_group_set(&s->rig->t, group, l), 0);
        tcp_group_listen(&s->rig->t, s->listener, group);
}

/* SYNs that nobody stands for have half of the places at most; who comes meanwhile gets a cookie
 * when it is sure that there is nobody. */
static void floods_group_of(struct scene *s, uint32_t members)
{
        const struct tcp_group_limits l = {.members = members};
        const struct tcp_group *g;
        uint32_t ack;

        tcp_listen_backlog(&s->rig->t, s->listener, 4096);
        joins_group(s, &l);
        g = &s->rig->t.sh->groups[tcp_listener_at(&s->rig->t, s->listener)->group];
        for (uint32_t i = 0; i < members / 2; i++) {
                s->tuple.rport = (uint16_t)(1000 + i);
                peer_sends(s, .seq = 0, .flags = S);
                expect_sent(s, .flags = SA, .ack = 1);
        }
        s->tuple.rport = FRIEND;
        peer_sends(s, .seq = 0, .flags = S);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_GROUP], 1);
        s->now += NS_PER_S;
        ack = cookie(s);
        peer_sends(s, .seq = 1, .ack = ack);
        take(s);
        assert_int_equal(g->opening, members / 2);
        assert_int_equal(g->members, members / 2 + 1);
        forget_sent(s);
}

static void a_flood_does_not_fill_a_group(void **state)
{
        floods_group_of(*state, 2 * HALF_OPEN + 20);
}

static void nor_a_small_one(void **state)
{
        floods_group_of(*state, 5);
}

static void is_forged(struct scene *s, uint16_t port)
{
        s->tuple.rport = port;
        peer_sends(s, .seq = 0, .flags = S);
        expect_sent(s, .flags = SA, .ack = 1);
        s->tuple.rport = FRIEND;
}

/* Who has a forged address refuses, or has been asked often enough. The next one in its place keeps
 * nobody out for another second. */
static void a_flood_that_goes_on_shuts_no_group(void **state)
{
        const struct tcp_group_limits l = {.members = 10};
        struct scene *s = *state;
        uint32_t ack;

        joins_group(s, &l);
        for (uint16_t i = 0; i < 5; i++)
                is_forged(s, (uint16_t)(1000 + i));
        s->now += NS_PER_S;
        for (uint16_t i = 0; i < 200; i++) {
                s->now += NS_PER_S;
                s->tuple.rport = (uint16_t)(1000 + i);
                peer_sends(s, .seq = 1, .flags = R);
                expect_silence(s);
                is_forged(s, (uint16_t)(1005 + i));
                cookie(s);
        }
        ack = s->last.seq + 1 - SCENE_ISS;
        peer_sends(s, .seq = 1, .ack = ack);
        take(s);
        forget_sent(s);
}

/* Whose listener is full has a cookie at once, though the group would have it wait. */
static void a_full_listener_waits_for_no_group(void **state)
{
        const struct tcp_group_limits l = {.members = 2 * HALF_OPEN};
        struct scene *s = *state;

        joins_group(s, &l);
        flood(s);
        cookie(s);
}

/* A cookie's number may be below those of a connection that was in TIME-WAIT. */
static void who_was_in_time_wait_gets_no_cookie(void **state)
{
        const struct tcp_group_limits l = {.members = 10};
        struct scene *s = *state;
        uint16_t port = s->tuple.rport;

        s->listener =
                (uint32_t)tcp_listen(&s->rig->t, (ip_addr){{0, 0}}, s->tuple.lport, 4, &s->opts);
        app_closes(s);
        s->tc = NULL;
        joins_group(s, &l);
        for (uint16_t i = 0; i < 5; i++)
                is_forged(s, (uint16_t)(1000 + i));
        s->now += NS_PER_S;
        cookie(s);
        s->tuple.rport = port;
        peer_sends(s, .seq = 70000, .flags = S);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TIME_WAIT_REUSED], 1);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_BACKLOG], 1);
}

/* However large a window it may have. */
static void a_member_can_say_its_least(void **state)
{
        const struct tcp_group_limits l = {.members = 8, .least = 1024, .receive = 8 * 1024};
        struct scene *s = *state;
        uint32_t ack;

        tcp_listener_at(&s->rig->t, s->listener)->opts.window_most = 1u << 30;
        joins_group(s, &l);
        s->tuple.rport = FRIEND;
        peer_sends(s, .seq = 0, .flags = S);
        expect_sent(s, .flags = SA, .ack = 1);
        assert_int_equal(s->last.wscale, 9);
        ack = s->last.seq + 1 - SCENE_ISS;
        peer_sends(s, .seq = 1, .ack = ack);
        app_accepts(s);
        assert_int_equal(s->tc->rcv_wscale, 9);
        tcp_group_leave(&s->rig->t, s->tc, s->now);
        s->tc->rcv_wscale = 10;
        assert_int_equal(tcp_group_enter(&s->rig->t, s->tc,
                                         tcp_listener_at(&s->rig->t, s->listener)->group, s->now),
                         -EINVAL);
        forget_sent(s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(a_flooded_listener_takes_who_answers, listening, &all_options),
                scenario(without_timestamps_no_option_is_offered, listening, &no_options),
                scenario(data_opens_as_well, listening, NULL),
                scenario(later_data_does_not_end_what_it_cannot_open, listening, NULL),
                scenario(what_is_no_cookie_is_refused, listening, NULL),
                scenario(an_old_cookie_is_refused, listening, NULL),
                scenario(without_a_flood_an_ack_is_only_refused, listening, NULL),
                scenario(a_cookie_waits_while_the_queue_is_full, listening, NULL),
                scenario(nobody_on_this_host_gets_a_cookie, listening, &lossless),
                scenario(who_holds_a_listener_on_this_host_keeps_nobody_out, listening, &lossless),
                scenario(a_flood_does_not_fill_a_group, listening, &all_options),
                scenario(nor_a_small_one, listening, &all_options),
                scenario(a_flood_that_goes_on_shuts_no_group, listening, &all_options),
                scenario(a_full_listener_waits_for_no_group, listening, &all_options),
                scenario(who_was_in_time_wait_gets_no_cookie, time_wait, NULL),
                scenario(a_member_can_say_its_least, listening, &all_options),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
