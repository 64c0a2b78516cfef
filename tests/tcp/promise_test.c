/* Connections that a listener of this host has promised (struct tcp_answers): who connects is
 * established when its SYN leaves, and the listener's side when it comes. */
#include "tcp/tcp_answers.h"
#include "tests/tcp/scenarios.h"

#define SAID    7 /* which promise it is */
#define BACKLOG 64
#define WND     40000
#define WSCALE  5
#define NUMBER  0x12340000u /* of the listener's side, which the peer chose */

/* The channel. */
static struct {
        bool holds;
        unsigned made, withdrawn, taken, kept;
        uint32_t room; /* of the last one that was made */
        struct tcp_seg answer;
} desk;

static bool took(void *arg, const struct tcp_tuple *tuple, uint32_t seq, struct tcp_answer *a)
{
        return false;
}

static void count_ends(void *arg, const struct tcp_tuple *tuple, int by)
{
}

static void promise(void *arg, const struct tcp_conn *tc, uint32_t room)
{
        desk.made++;
        desk.room = room;
        tcp_answer_of(tc, &desk.answer);
}

static uint16_t promised(void *arg, const struct tcp_tuple *tuple, struct tcp_seg *answer)
{
        *answer = (struct tcp_seg){
                .flags = SA, .mss = SCENE_MSS, .wnd = WND, .wscale = WSCALE, .sack_ok = true};
        desk.taken += desk.holds;
        return desk.holds ? SAID : 0;
}

static bool keep(void *arg, const struct tcp_tuple *tuple, uint16_t said, struct tcp_answer *a)
{
        assert_int_equal(said, SAID);
        *a = (struct tcp_answer){.wnd = WND, .wscale = WSCALE};
        desk.kept += desk.holds;
        return desk.holds;
}

static void forget(void *arg)
{
        desk.withdrawn++;
}

static const struct tcp_answers answers = {.took = took,
                                           .count = count_ends,
                                           .promise = promise,
                                           .promised = promised,
                                           .keep = keep,
                                           .forget = forget};

static const struct scene_setup lossless = {.wscale = 3, .sack = true, .lossless = true};
static const struct scene_setup wire = {.wscale = 3, .sack = true};

static int with_desk(void **state, int (*begin)(void **state))
{
        int r = begin(state);
        struct scene *s = *state;

        memset(&desk, 0, sizeof desk);
        desk.holds = true;
        s->rig->t.answers = &answers;
        if (s->listener != 0) {
                tcp_listen_backlog(&s->rig->t, s->listener, BACKLOG);
                desk.withdrawn = 0;
        }
        return r;
}

static int connects(void **state)
{
        return with_desk(state, scene_blank);
}

static int listens(void **state)
{
        return with_desk(state, listening);
}

/* ---- who connects ---- */

static struct tcp_seg next_sent(struct scene *s)
{
        assert_true(s->head < s->tail);
        return s->sent[s->head++].seg;
}

static void connect_with(struct scene *s, const struct tcp_opts *opts)
{
        int c = tcp_connect(&s->rig->t, &s->tuple, &s->link, opts, s->now);

        assert_true(c > 0);
        s->conn = (uint32_t)c;
        s->tc = tcp_conn_at(&s->rig->t, s->conn);
        tcp_set_sock(&s->rig->t, s->conn, 1);
        advance_ms(s, 0);
}

static void it_is_established_when_the_syn_has_left(void **state)
{
        struct scene *s = *state;
        struct tcp_seg syn;

        connect_with(s, &s->opts);
        expect_state(s, TCPS_ESTABLISHED);
        syn = next_sent(s);
        assert_true(syn.flags == S && (uint16_t)syn.ack == SAID && syn.ack == s->tc->irs);
        assert_true(syn.seq == s->tc->iss && s->tc->snd_una == s->tc->iss + 1);
        expect_silence(s); /* there is nothing to acknowledge */
        assert_true(s->tc->rcv_nxt == s->tc->irs + 1 && s->tc->snd_wnd == WND);
        assert_true(s->tc->snd_wscale == WSCALE && s->tc->sack_ok && !s->tc->ts_ok);
        assert_int_equal(s->tc->srtt, 0); /* it was not measured */
        assert_int_equal(s->tc->rtx_at, NSTIME_NEVER);
}

static void data_follows_at_once(void **state)
{
        struct scene *s = *state;
        struct tcp_seg data;

        connect_with(s, &s->opts);
        next_sent(s);
        app_writes(s, 100);
        data = next_sent(s);
        assert_true(data.len == 100 && data.seq == s->tc->iss + 1 && data.ack == s->tc->irs + 1);
}

static void without_a_promise_it_waits(void **state)
{
        struct scene *s = *state;

        desk.holds = false;
        connect_with(s, &s->opts);
        expect_state(s, TCPS_SYN_SENT);
        assert_int_equal(next_sent(s).ack, 0);
}

static void who_wants_otherwise_takes_none(void **state)
{
        struct scene *s = *state;
        struct tcp_opts o = s->opts;

        o.no_sack = 1;
        connect_with(s, &o);
        expect_state(s, TCPS_SYN_SENT);
        assert_int_equal(desk.taken, 0);
        forget_sent(s);
}

static void where_something_may_be_lost_there_is_none(void **state)
{
        struct scene *s = *state;

        connect_with(s, &s->opts);
        expect_state(s, TCPS_SYN_SENT);
        assert_int_equal(desk.taken, 0);
        forget_sent(s);
}

/* A listener that could not keep it. */
static void a_reset_is_heard(void **state)
{
        struct scene *s = *state;
        struct tcp_seg rst = {.flags = TCP_RST, .wscale = TCP_NO_WSCALE};

        connect_with(s, &s->opts);
        next_sent(s);
        rst.sport = s->tuple.rport;
        rst.dport = s->tuple.lport;
        rst.seq = s->tc->irs + 1;
        tcp_rx(&s->rig->t, &s->tuple, &s->link, &rst, s->now);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ECONNRESET);
}

/* ---- whose listener it is ---- */

static void syn_of(struct scene *s, uint32_t said)
{
        peer_sends(s, .seq = 0, .ack = NUMBER + said - SCENE_ISS, .flags = S);
}

static void takes(struct scene *s)
{
        s->conn = tcp_accept(&s->rig->t, s->listener);
        assert_int_not_equal(s->conn, 0);
        s->tc = tcp_conn_at(&s->rig->t, s->conn);
        expect_state(s, TCPS_ESTABLISHED);
}

static void its_syn_is_enough(void **state)
{
        struct scene *s = *state;

        syn_of(s, SAID);
        expect_silence(s);
        takes(s);
        assert_true(s->tc->iss == NUMBER + SAID && s->tc->snd_una == s->tc->iss + 1);
        assert_true(s->tc->rcv_wscale == WSCALE && s->tc->snd_wscale == 3 && s->tc->sack_ok);
        assert_int_equal(s->tc->rcv_adv, SCENE_IRS + 1 + WND);
        assert_int_equal(s->tc->srtt, 0);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_PROMISED], 1);
        assert_int_equal(tcp_listener_at(&s->rig->t, s->listener)->half_open, 0);
        peer_sends(s, .seq = 1, .ack = NUMBER + SAID + 1 - SCENE_ISS, .len = 10);
        assert_int_equal(s->tc->rcv_unread, 10);
        forget_sent(s);
}

static void what_was_said_holds(void **state)
{
        struct scene *s = *state;
        struct tcp_opts o = s->opts;

        o.no_sack = o.no_wscale = 1;
        o.defer_accept_s = 1;
        o.rcvbuf = 5000;
        tcp_listen_opts(&s->rig->t, s->listener, &o);
        assert_int_equal(desk.withdrawn, 1);
        syn_of(s, SAID);
        takes(s);
        assert_true(s->tc->rcv_wscale == WSCALE && s->tc->sack_ok);
        assert_int_equal(s->tc->rcv_adv, SCENE_IRS + 1 + WND);
}

static void a_full_queue_takes_it(void **state)
{
        struct scene *s = *state;

        tcp_listen_backlog(&s->rig->t, s->listener, 1);
        for (uint16_t i = 0; i < 4; i++) {
                s->tuple.rport = (uint16_t)(1000 + i);
                syn_of(s, SAID);
        }
        expect_silence(s);
        assert_int_equal(tcp_listener_at(&s->rig->t, s->listener)->queued, 4);
        assert_int_equal(desk.made, 0);
}

static void is_refused(struct scene *s)
{
        syn_of(s, SAID);
        expect_sent(s, .seq = NUMBER + SAID + 1 - SCENE_ISS, .flags = R, .is_reply = true);
}

static void what_was_not_promised_is_reset(void **state)
{
        struct scene *s = *state;

        desk.holds = false;
        is_refused(s);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
}

static void so_is_what_finds_nobody(void **state)
{
        struct scene *s = *state;

        tcp_unlisten(&s->rig->t, s->listener);
        is_refused(s);
}

static void so_is_what_there_is_no_record_for(void **state)
{
        struct scene *s = *state;

        while (pool_alloc(&s->rig->t.sh->conns) != 0)
                ;
        is_refused(s);
        for (uint32_t i = 1; i < s->rig->t.sh->conns.cap; i++)
                pool_free(&s->rig->t.sh->conns, i);
}

static void the_same_syn_again_is_a_duplicate(void **state)
{
        struct scene *s = *state;

        syn_of(s, SAID);
        takes(s);
        syn_of(s, SAID);
        expect_state(s, TCPS_ESTABLISHED);
        assert_int_equal(desk.kept, 1);
        forget_sent(s);
}

/* Its sender has given up the connection that was there, and nothing of that is on its way. */
static void another_syn_begins_anew(void **state)
{
        struct scene *s = *state;
        struct tcp_conn *old;

        syn_of(s, SAID);
        takes(s);
        old = s->tc;
        tcp_set_sock(&s->rig->t, s->conn, 1);
        peer_sends(s, .seq = 5000, .ack = NUMBER + SAID - SCENE_ISS, .flags = S);
        assert_int_equal(old->state, TCPS_CLOSED);
        tcp_set_sock(&s->rig->t, s->conn, 0);
        tcp_close(&s->rig->t, old, s->now);
        takes(s);
        assert_int_equal(s->tc->irs, SCENE_IRS + 5000);
        expect_silence(s);
}

/* ---- what is promised ---- */

static void opens(struct scene *s, uint16_t port)
{
        s->tuple.rport = port;
        peer_sends(s, .seq = 0, .flags = S);
        expect_sent(s, .flags = SA, .ack = 1);
        peer_sends(s, .seq = 1, .ack = s->last.seq + 1 - SCENE_ISS);
        expect_silence(s);
}

static void a_connection_is_a_promise(void **state)
{
        struct scene *s = *state;

        opens(s, 1000);
        assert_int_equal(desk.made, 1);
        assert_in_range(desk.room, 1, BACKLOG / 8);
        assert_true(desk.answer.wnd == s->last.wnd && desk.answer.wscale == s->last.wscale &&
                    desk.answer.sack_ok && !desk.answer.has_ts);
        s->tuple.rport = 1001;
        syn_of(s, SAID);
        assert_int_equal(desk.made, 2); /* it is renewed */
}

static void a_short_queue_promises_nothing(void **state)
{
        struct scene *s = *state;

        tcp_listen_backlog(&s->rig->t, s->listener, 10);
        opens(s, 1000);
        assert_int_equal(desk.made, 0);
}

static void a_listener_with_wishes_promises_nothing(void **state)
{
        struct scene *s = *state;
        struct tcp_opts o = s->opts;

        o.save_syn = 1;
        tcp_listen_opts(&s->rig->t, s->listener, &o);
        opens(s, 1000);
        assert_int_equal(desk.made, 0);
}

static void a_listener_that_goes_withdraws(void **state)
{
        struct scene *s = *state;

        opens(s, 1000);
        assert_int_equal(desk.withdrawn, 0);
        tcp_unlisten(&s->rig->t, s->listener);
        assert_int_equal(desk.withdrawn, 1);
        forget_sent(s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(it_is_established_when_the_syn_has_left, connects, &lossless),
                scenario(data_follows_at_once, connects, &lossless),
                scenario(without_a_promise_it_waits, connects, &lossless),
                scenario(who_wants_otherwise_takes_none, connects, &lossless),
                scenario(where_something_may_be_lost_there_is_none, connects, &wire),
                scenario(a_reset_is_heard, connects, &lossless),
                scenario(its_syn_is_enough, listens, &lossless),
                scenario(what_was_said_holds, listens, &lossless),
                scenario(a_full_queue_takes_it, listens, &lossless),
                scenario(what_was_not_promised_is_reset, listens, &lossless),
                scenario(so_is_what_finds_nobody, listens, &lossless),
                scenario(so_is_what_there_is_no_record_for, listens, &lossless),
                scenario(the_same_syn_again_is_a_duplicate, listens, &lossless),
                scenario(another_syn_begins_anew, listens, &lossless),
                scenario(a_connection_is_a_promise, listens, &lossless),
                scenario(a_short_queue_promises_nothing, listens, &lossless),
                scenario(a_listener_with_wishes_promises_nothing, listens, &lossless),
                scenario(a_listener_that_goes_withdraws, listens, &lossless),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
