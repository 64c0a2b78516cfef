/* SYNs that somebody answered before they came here (struct tcp_answers): what TCP makes of them,
 * and what it says to who answers. */
#include "tcp/tcp_answers.h"
#include "tests/tcp/scenarios.h"

#define BACKLOG   4 /* of the scene's listener */
#define HALF_OPEN 128u
#define WND       40000

/* Who answers. */
static struct {
        bool answered; /* the next SYN was */
        struct tcp_answer how;
        int counted; /* connections, as it was told of them */
        unsigned lessons, forgotten, lost;
        uint32_t room;         /* with the last lesson */
        struct tcp_seg lesson; /* the last one */
} desk;

static bool took(void *arg, const struct tcp_tuple *tuple, uint32_t seq, struct tcp_answer *a)
{
        bool was = desk.answered;

        if (was) {
                assert_int_equal(seq, SCENE_IRS);
                *a = desk.how;
        }
        desk.answered = false;
        return was;
}

static void count_ends(void *arg, const struct tcp_tuple *tuple, int by)
{
        desk.counted += by;
        assert_true(desk.counted >= 0);
}

static void learn(void *arg, const struct tcp_conn *tc, uint32_t room)
{
        desk.room = room;
        desk.lessons++;
        tcp_answer_of(tc, &desk.lesson);
}

static void forget(void *arg)
{
        desk.forgotten++;
}

static void lost(void *arg, const struct tcp_conn *tc)
{
        desk.lost++;
}

static const struct tcp_answers answers = {
        .took = took, .count = count_ends, .learn = learn, .lost = lost, .forget = forget};

static int with_desk(void **state)
{
        int r = listening(state);
        struct scene *s = *state;

        memset(&desk, 0, sizeof desk);
        s->rig->t.answers = &answers;
        return r;
}

static int desk_end(void **state)
{
        int r = scene_end(state);

        assert_int_equal(desk.counted, 0);
        return r;
}

#define desk_scenario(test, how)                                           \
        {                                                                  \
#test, test, with_desk, desk_end, (void *)(uintptr_t)(how) \
        }

static const struct scene_setup plain = {.wscale = 3, .sack = true, .ts = true};
static const struct scene_setup no_ts = {.wscale = 3, .sack = true};
static const struct scene_setup no_sack = {.wscale = 3, .ts = true};
static const struct scene_setup no_wscale = {.sack = true, .ts = true};
static const struct scene_setup lossless = {
        .wscale = 3, .sack = true, .ts = true, .lossless = true};

/* The peer's SYN, which was answered `ago` ms ago. */
static void answered(struct scene *s, uint32_t ago)
{
        desk.answered = true;
        desk.how = (struct tcp_answer){
                .at = s->now - ago * NS_PER_MS, .iss = SCENE_ISS, .wnd = WND, .wscale = 5};
        peer_sends(s, .seq = 0, .flags = S);
        assert_false(desk.answered);
        expect_silence(s);
}

static void take(struct scene *s)
{
        app_accepts(s);
        expect_state(s, TCPS_ESTABLISHED);
}

static void nothing_is_sent_but_all_is_as_if(void **state)
{
        struct scene *s = *state;
        uint64_t out = s->rig->cnt.n[COUNT_TCP_OUT];

        answered(s, 30);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_ANSWERED], 1);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_OUT], out + 1);
        assert_int_equal(desk.counted, 1);
        assert_false(tcp_acceptable(&s->rig->t, s->listener));
        advance_ms(s, 10);
        peer_sends(s, .seq = 1, .ack = 1);
        take(s);
        assert_int_equal(s->tc->srtt, 40 * NS_PER_MS);
        assert_int_equal(s->tc->rcv_adv, SCENE_IRS + 1 + WND);
        assert_true(s->tc->rcv_wscale == 5 && s->tc->snd_wscale == 3 && s->tc->ts_ok &&
                    s->tc->sack_ok);
        assert_int_equal(s->tc->segs_out, 1);
        app_writes(s, 100);
        expect_sent(s, .seq = 1, .len = 100, .ack = 1);
        peer_sends(s, .seq = 1, .ack = 101, .len = 10);
        app_reads(s, 10);
        forget_sent(s);
}

/* ACK and data are in the ring behind the SYN: all is taken at one time, which may be one before
 * the answer's. */
static void the_same_moment(void **state)
{
        struct scene *s = *state;

        desk.answered = true;
        desk.how = (struct tcp_answer){
                .at = s->now + 20 * NS_PER_US, .iss = SCENE_ISS, .wnd = WND, .wscale = 5};
        peer_sends(s, .seq = 0, .flags = S);
        peer_sends(s, .seq = 1, .ack = 1, .len = 10);
        take(s);
        assert_in_range(s->tc->srtt, 1, 20 * NS_PER_US);
        app_reads(s, 10);
        forget_sent(s);
}

static void opened(struct scene *s)
{
        answered(s, 0);
        peer_sends(s, .seq = 1, .ack = 1);
        take(s);
        s->tc->quick = 0;
}

/* The first read makes the window wider than a SYN-ACK can say. A peer that has most of that left
 * does not wait for it. */
static void what_answers_carries_the_first_window(void **state)
{
        struct scene *s = *state;

        opened(s);
        peer_sends(s, .seq = 1, .ack = 1, .len = 10);
        app_reads(s, 10);
        expect_silence(s);
        app_writes(s, 5);
        expect_sent(s, .seq = 1, .len = 5, .ack = 11);
        assert_true((uint32_t)s->last.wnd << 5 > UINT16_MAX);
}

static void the_first_window_does_not_wait_long(void **state)
{
        struct scene *s = *state;

        opened(s);
        peer_sends(s, .seq = 1, .ack = 1, .len = 10);
        app_reads(s, 10);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .ack = 11);
        assert_true((uint32_t)s->last.wnd << 5 > UINT16_MAX);
}

static void the_first_window_does_not_wait_where_little_is_left(void **state)
{
        struct scene *s = *state;

        opened(s);
        for (uint32_t i = 0; i < 10; i++)
                peer_sends(s, .seq = 1 + 1000 * i, .ack = 1, .len = 1000);
        forget_sent(s);
        s->tc->rcv_adv = s->tc->rcv_nxt + 20000; /* as if no ACK since had said more */
        app_reads(s, 10000);
        expect_sent(s, .seq = 1, .ack = 10001);
}

static void it_is_repeated(void **state)
{
        struct scene *s = *state;

        answered(s, 0);
        advance_ms(s, 999);
        expect_silence(s);
        assert_int_equal(desk.lost, 0);
        advance_ms(s, 1);
        assert_int_equal(desk.lost, 1);
        expect_sent(s, .seq = 0, .flags = SA, .ack = 1);
        peer_sends(s, .seq = 0, .flags = S); /* so is the peer's, which nobody answered this time */
        expect_sent(s, .seq = 0, .flags = SA, .ack = 1);
        peer_sends(s, .seq = 1, .ack = 1);
        take(s);
}

static void a_reset_ends_it(void **state)
{
        struct scene *s = *state;

        answered(s, 0);
        peer_sends(s, .seq = 1, .flags = R, .no_ack = true);
        assert_int_equal(desk.counted, 0);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
}

/* The peer has been told, and not otherwise since. */
static void what_was_said_holds(void **state)
{
        struct scene *s = *state;
        struct tcp_opts o = s->opts;

        o.no_timestamps = o.no_sack = o.no_wscale = 1;
        o.rcvbuf = 5000;
        tcp_listen_opts(&s->rig->t, s->listener, &o);
        assert_int_equal(desk.forgotten, 1);
        answered(s, 0);
        peer_sends(s, .seq = 1, .ack = 1);
        take(s);
        assert_true(s->tc->rcv_wscale == 5 && s->tc->snd_wscale == 3 && s->tc->ts_ok &&
                    s->tc->sack_ok);
        assert_true(tcp_conn_at(&s->rig->t, s->conn)->flags & TCF_WSCALE);
        assert_int_equal(s->tc->rcv_adv, SCENE_IRS + 1 + WND);
        forget_sent(s);
}

/* A full queue has no say any more: as where the queue became full after the SYN-ACK, the
 * ACK waits. */
static void a_full_queue_keeps_it_waiting(void **state)
{
        struct scene *s = *state;

        for (uint16_t i = 0; i <= BACKLOG; i++) {
                s->tuple.rport = (uint16_t)(1000 + i);
                answered(s, 0);
                peer_sends(s, .seq = 1, .ack = 1);
        }
        s->tuple.rport = 2000;
        answered(s, 0);
        peer_sends(s, .seq = 1, .ack = 1);
        assert_int_equal(desk.counted, BACKLOG + 2);
        for (unsigned i = 0; i <= BACKLOG; i++)
                tcp_close(&s->rig->t, tcp_conn_at(&s->rig->t, tcp_accept(&s->rig->t, s->listener)),
                          s->now);
        assert_false(tcp_acceptable(&s->rig->t, s->listener));
        peer_sends(s, .seq = 1, .ack = 1);
        take(s);
        assert_int_equal(s->tc->tuple.rport, 2000);
        forget_sent(s);
}

static void without_a_record_the_peer_is_refused(void **state)
{
        struct scene *s = *state;

        while (pool_alloc(&s->rig->t.sh->conns) != 0)
                ;
        answered(s, 0);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_NO_MEMORY], 1);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 1, .flags = R, .is_reply = true);
        for (uint32_t i = 1; i < s->rig->t.sh->conns.cap; i++)
                pool_free(&s->rig->t.sh->conns, i);
}

/* ---- what is learnt, and when it is forgotten ---- */

static void opens(struct scene *s, uint16_t port)
{
        s->tuple.rport = port;
        peer_sends(s, .seq = 0, .flags = S);
        expect_sent(s, .flags = SA, .ack = 1);
        peer_sends(s, .seq = 1, .ack = s->last.seq + 1 - SCENE_ISS);
}

static void a_connection_is_a_lesson(void **state)
{
        struct scene *s = *state;
        struct tcp_seg said;

        s->tuple.rport = 1000;
        peer_sends(s, .seq = 0, .flags = S);
        expect_sent(s, .flags = SA, .ack = 1);
        said = s->last;
        assert_int_equal(desk.lessons, 0); /* it may be forged */
        peer_sends(s, .seq = 1, .ack = said.seq + 1 - SCENE_ISS);
        assert_int_equal(desk.lessons, 1);
        assert_true(desk.lesson.mss == said.mss && desk.lesson.wnd == said.wnd &&
                    desk.lesson.wscale == said.wscale && desk.lesson.flags == SA &&
                    desk.lesson.sack_ok && desk.lesson.has_ts && desk.lesson.sport == said.sport);
        assert_int_equal(desk.forgotten, 0);
        take(s);
        app_closes(s);
        forget_sent(s);
}

static void others_are_none(void **state)
{
        struct scene *s = *state;

        opens(s, 1000);
        assert_int_equal(desk.lessons, 0);
        take(s);
        forget_sent(s);
}

static void of_a_full_queue_nothing_is_learnt(void **state)
{
        struct scene *s = *state;

        for (uint16_t i = 0; i < BACKLOG; i++)
                opens(s, (uint16_t)(1000 + i));
        assert_int_equal(desk.lessons, BACKLOG);
        assert_int_equal(desk.room, 1);
        assert_int_equal(desk.forgotten, 0);
        opens(s, 1000 + BACKLOG);
        assert_int_equal(desk.lessons, BACKLOG);
        assert_int_equal(desk.forgotten, 1);
        forget_sent(s);
}

static void a_flood_is_forgotten(void **state)
{
        struct scene *s = *state;

        for (uint16_t i = 0; i < HALF_OPEN; i++) {
                assert_int_equal(desk.forgotten, 0);
                s->tuple.rport = (uint16_t)(1000 + i);
                answered(s, 0);
        }
        assert_int_equal(desk.forgotten, 1);
        s->tuple.rport = 9999;
        peer_sends(s, .seq = 0, .flags = S);
        expect_sent(s, .flags = SA, .ack = 1, .is_reply = true); /* a cookie */
        peer_sends(s, .seq = 1, .ack = s->last.seq + 1 - SCENE_ISS);
        assert_int_equal(desk.lessons, 0);
        take(s);
        forget_sent(s);
}

static void listeners_that_come_and_go_are_forgotten(void **state)
{
        struct scene *s = *state;
        int other = tcp_listen(&s->rig->t, ip_addr_v4(0x0a000001), 4242, 1, &s->opts);

        assert_true(other > 0);
        assert_int_equal(desk.forgotten, 1);
        tcp_listen_backlog(&s->rig->t, (uint32_t)other, 0);
        assert_int_equal(desk.forgotten, 2);
        tcp_unlisten(&s->rig->t, (uint32_t)other);
        assert_int_equal(desk.forgotten, 3);
}

static void those_that_share_a_port_teach_nothing(void **state)
{
        struct scene *s = *state;
        struct tcp_opts o = s->opts;
        struct tcp_listener *l = tcp_listener_at(&s->rig->t, s->listener);
        int other;

        o.reuseport = l->opts.reuseport = 1;
        other = tcp_listen(&s->rig->t, l->addr, l->port, BACKLOG, &o);
        assert_true(other > 0);
        opens(s, 1000);
        opens(s, 1001);
        assert_int_equal(desk.lessons, 0);
        tcp_unlisten(&s->rig->t, (uint32_t)other);
        advance_ms(s, 1);
        forget_sent(s);
        opens(s, 1002);
        assert_int_equal(desk.lessons, 1);
        forget_sent(s);
}

/* After a death the tables are made anew, and every connection is counted then; what had ended
 * is not. */
static void a_death_counts_anew(void **state)
{
        struct scene *s = *state;

        opens(s, 1000);
        opens(s, 1001);
        s->tuple.rport = 1002;
        answered(s, 0);
        assert_int_equal(desk.counted, 3);
        desk.counted = 0;
        rig_recover(s->rig, 0, s->now);
        assert_int_equal(desk.counted, 3);
        desk.counted = 0;
        tcp_count_all(&s->rig->t, RIG_CHAN + 1);
        assert_int_equal(desk.counted, 0);
        tcp_count_all(&s->rig->t, RIG_CHAN);
        assert_int_equal(desk.counted, 3);
        take(s);
        forget_sent(s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                desk_scenario(nothing_is_sent_but_all_is_as_if, &plain),
                desk_scenario(the_same_moment, &plain),
                desk_scenario(what_answers_carries_the_first_window, &plain),
                desk_scenario(the_first_window_does_not_wait_long, &plain),
                desk_scenario(the_first_window_does_not_wait_where_little_is_left, &plain),
                desk_scenario(it_is_repeated, &plain),
                desk_scenario(a_reset_ends_it, &plain),
                desk_scenario(what_was_said_holds, &plain),
                desk_scenario(a_full_queue_keeps_it_waiting, &plain),
                desk_scenario(without_a_record_the_peer_is_refused, &plain),
                desk_scenario(a_connection_is_a_lesson, &plain),
                {"others_are_none: no timestamps", others_are_none, with_desk, desk_end,
                 (void *)(uintptr_t)&no_ts},
                {"others_are_none: no SACK", others_are_none, with_desk, desk_end,
                 (void *)(uintptr_t)&no_sack},
                {"others_are_none: no scale", others_are_none, with_desk, desk_end,
                 (void *)(uintptr_t)&no_wscale},
                {"others_are_none: lossless", others_are_none, with_desk, desk_end,
                 (void *)(uintptr_t)&lossless},
                desk_scenario(of_a_full_queue_nothing_is_learnt, &plain),
                desk_scenario(a_flood_is_forgotten, &plain),
                desk_scenario(listeners_that_come_and_go_are_forgotten, &plain),
                desk_scenario(those_that_share_a_port_teach_nothing, &plain),
                desk_scenario(a_death_counts_anew, &plain),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
