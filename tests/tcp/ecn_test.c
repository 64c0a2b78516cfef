/* Explicit congestion notification: tcp_ecn.c, RFC 3168 §6.1; and what Linux does where the RFC
 * leaves it open. */
#include "tests/tcp/scenarios.h"

#include "ip/ip.h"

#define E   (TCP_ECE)
#define W   (TCP_CWR)
#define EA  (TCP_ECE | TCP_ACK)
#define WA  (TCP_CWR | TCP_ACK)
#define ECT IP_ECN_ECT0
#define CE  IP_ECN_CE

static const struct scene_setup asking = {.ecn = TCP_ECN_ASK},
                                sacking = {.ecn = TCP_ECN_ASK, .sack = true},
                                stamped = {.sack = true, .ts = true, .wscale = 3},
                                lossless = {.lossless = true},
                                nothing_lost = {.lossless = true, .ecn = TCP_ECN_ASK};

static uint64_t counter(const struct scene *s, enum count which)
{
        return s->rig->cnt.n[which];
}

/* ---- agreeing: §6.1.1 ---- */

static void a_syn_that_asks_is_agreed_to(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = S | E | W, .mss = 1000);
        expect_sent(s, .flags = SA | E);
}

static void half_a_question_is_none(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = S | E, .mss = 1000);
        expect_sent(s, .flags = SA);
        s->tuple.rport++;
        peer_sends(s, .flags = S | W, .mss = 1000);
        expect_sent(s, .flags = SA);
}

/* A SYN that is marked was marked by a path that does not leave these bits alone (as Linux). */
static void a_marked_syn_is_not_believed(void **state)
{
        struct scene *s = *state;

        for (uint8_t bits = IP_ECN_ECT1; bits <= IP_ECN_CE; bits++) {
                peer_sends(s, .flags = S | E | W, .mss = 1000, .ecn = bits);
                expect_sent(s, .flags = SA);
                s->tuple.rport++;
        }
}

static void who_wants_none_says_no(void **state)
{
        struct scene *s = *state;

        s->opts.ecn = TCP_ECN_NO;
        tcp_listener_at(&s->rig->t, s->listener)->opts.ecn = TCP_ECN_NO;
        peer_sends(s, .flags = S | E | W, .mss = 1000);
        expect_sent(s, .flags = SA);
}

static void nothing_is_marked_where_nothing_is_lost(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = S | E | W, .mss = 1000);
        expect_sent(s, .flags = SA);
}

static void nor_is_it_asked_for_there(void **state)
{
        struct scene *s = *state;
        int c = tcp_connect(&s->rig->t, &s->tuple, &s->link, &s->opts, s->now);
        struct tcp_seg seg;

        assert_true(c > 0);
        assert_true(tcp_output(&s->rig->t, tcp_conn_at(&s->rig->t, (uint32_t)c), &seg, s->now));
        assert_int_equal(seg.flags, S);
        s->conn = (uint32_t)c;
        s->tc = tcp_conn_at(&s->rig->t, s->conn);
}

static void by_default_nobody_asks(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = SA | E, .ack = 1); /* and an answer to what was not asked is none */
        expect_sent(s, .seq = 1, .ack = 1);
        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000);
}

static void only_ece_is_the_answer(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = SA | E | W, .ack = 1); /* some reflect what they do not know */
        expect_sent(s, .seq = 1, .ack = 1);
        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000);
}

/* §6.1.1.1: there are paths that lose such SYNs. */
static void a_syn_sent_again_does_not_ask(void **state)
{
        struct scene *s = *state;

        advance_ms(s, 1000);
        expect_sent(s, .flags = S);
        peer_sends(s, .flags = SA | E, .ack = 1); /* of the first: too late */
        expect_sent(s, .seq = 1, .ack = 1);
        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000);
}

static void a_syn_that_is_refused_is_sent_once_more_without(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = RA, .ack = 1);
        expect_sent(s, .flags = S);
        expect_state(s, TCPS_SYN_SENT);
        peer_sends(s, .flags = RA, .ack = 1);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ECONNREFUSED);
}

/* §6.1.1: a host that has received one SYN without must not send ECT. */
static void a_syn_that_comes_again_without_counts(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = S | E | W, .mss = 1000);
        expect_sent(s, .flags = SA | E);
        peer_sends(s, .flags = S, .mss = 1000);
        expect_sent(s, .flags = SA);
        forget_sent(s);
}

static void both_at_once_agree(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = S | E | W, .mss = 1000);
        expect_sent(s, .flags = SA | E);
        peer_sends(s, .seq = 0, .ack = 1, .flags = SA | E);
        expect_state(s, TCPS_ESTABLISHED);
        forget_sent(s);
        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000, .ecn = ECT);
}

static void both_at_once_and_only_one_asks(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = S | E | W, .mss = 1000);
        expect_sent(s, .flags = SA);
        forget_sent(s);
}

/* As Linux: a bit of the timestamp. */
static void a_cookie_remembers(void **state)
{
        struct scene *s = *state;
        struct tcp_seg sa;

        tcp_listen_backlog(&s->rig->t, s->listener, 0);
        tcp_listener_at(&s->rig->t, s->listener)->half_open = 1u << 20;
        peer_sends(s, .flags = S | E | W, .mss = 1000, .wscale = 3);
        tcp_listener_at(&s->rig->t, s->listener)->half_open = 0;
        expect_sent(s, .flags = SA | E, .is_reply = true);
        sa = s->last;
        peer_sends(s, .seq = 1, .ack = sa.seq + 1 - SCENE_ISS, .has_ts = true, .tsecr = sa.tsval);
        app_accepts(s);
        assert_true(s->tc->flags & TCF_ECN);
        tcp_abort(&s->rig->t, s->tc, s->now);
        forget_sent(s);
        advance_ms(s, 0);
        forget_sent(s);
}

/* ---- sending: §6.1.2, §6.1.5 ---- */

static void only_new_data_is_ect(void **state)
{
        struct scene *s = *state;

        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000, .ecn = ECT);
        peer_sends(s, .seq = 1, .ack = 1, .len = 10);
        advance_ms(s, 40);
        expect_sent(s, .seq = 1001, .ack = 11); /* a pure ACK */
        advance_ms(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000, .ack = 11); /* sent again */
        forget_sent(s);
        peer_sends(s, .seq = 11, .ack = 1001);
        app_shuts_send(s);
        expect_sent(s, .seq = 1001, .flags = F); /* nothing that could be read */
        peer_sends(s, .seq = 11, .ack = 1002);
}

static void a_window_probe_is_not(void **state)
{
        struct scene *s = *state;

        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000, .ecn = ECT);
        peer_sends(s, .seq = 1, .ack = 1001, .zero_wnd = true);
        app_writes(s, 1000);
        advance_ms(s, 1000);
        assert_int_equal(s->sent[s->head].seg.ecn, 0);
        assert_int_equal(s->sent[s->head].seg.len, 0);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001, .wnd = 100);
        advance_ms(s, 3000); /* ... nor one with data, for a window that is small */
        assert_int_equal(s->sent[s->head].seg.ecn, 0);
        assert_int_equal(s->sent[s->head].seg.len, 100);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 2001);
        app_closes(s);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 2002, .flags = F);
        forget_sent(s);
}

/* Ten segments in flight, of which all are acknowledged with ECE: one reduction, and CWR on the
 * first new one. */
static void an_echo_makes_the_window_smaller_once(void **state)
{
        struct scene *s = *state;
        uint32_t before = s->tc->cwnd;

        assert_int_equal(before, 10000);
        app_writes(s, 20000);
        for (uint32_t i = 0; i < 10; i++)
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000, .ecn = ECT);
        peer_sends(s, .seq = 1, .ack = 1001, .flags = EA);
        assert_int_equal(s->tc->cwnd, 7000); /* beta of CUBIC */
        assert_int_equal(s->tc->ssthresh, 7000);
        expect_silence(s);
        for (uint32_t i = 2; i <= 3; i++) {
                peer_sends(s, .seq = 1, .ack = 1 + 1000 * i, .flags = EA);
                assert_int_equal(s->tc->cwnd, 7000);
                expect_silence(s);
        }
        peer_sends(s, .seq = 1, .ack = 4001, .flags = EA); /* six are left */
        expect_sent(s, .seq = 10001, .len = 1000, .flags = WA, .ecn = ECT);
        peer_sends(s, .seq = 1, .ack = 5001); /* it has seen that */
        expect_sent(s, .seq = 11001, .len = 1000, .ecn = ECT);
        assert_int_equal((int)counter(s, COUNT_TCP_ECN_CUT), 1);
        peer_sends(s, .seq = 1, .ack = 10001, .flags = EA); /* on its way when CWR was, too */
        assert_int_equal((int)counter(s, COUNT_TCP_ECN_CUT), 1);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 11001, .flags = EA); /* marked in the next round trip */
        assert_in_range(s->tc->cwnd, 4900, 5600);
        assert_int_equal((int)counter(s, COUNT_TCP_ECN_CUT), 2);
        peer_sends(s, .seq = 1, .ack = 15001, .flags = EA);
        expect_sent(s, .len = 1000, .flags = WA, .ecn = ECT);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = s->tc->snd_nxt - SCENE_ISS);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 20001);
}

static void who_did_not_agree_does_not_listen(void **state)
{
        struct scene *s = *state;

        app_writes(s, 3000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001, .flags = EA);
        assert_true(s->tc->cwnd >= 10000);
        peer_sends(s, .seq = 1, .ack = 3001);
}

static void loss(struct scene *s, uint32_t una, uint32_t from, uint32_t to, uint8_t flags)
{
        peer_sends(s, .seq = 1, .ack = una, .flags = flags, .nsack = 1, .sack = {{from, to}});
}

/* "not more than once every window of data", whatever told of it. */
static void marks_and_losses_of_one_round_trip_count_once(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001, .flags = EA);
        assert_int_equal(s->tc->ssthresh, 7000);
        loss(s, 1001, 2001, 6001, EA);
        assert_int_equal(s->tc->ca_state, CA_RECOVERY);
        assert_int_equal(s->tc->ssthresh, 7000);
        expect_sent(s, .seq = 1001, .len = 1000); /* sent again: not ECT, and no CWR */
        peer_sends(s, .seq = 1, .ack = 10001);
        assert_int_equal(s->tc->cwnd, 7000);
        app_writes(s, 1000);
        expect_sent(s, .seq = 10001, .len = 1000, .flags = WA, .ecn = ECT);
        peer_sends(s, .seq = 1, .ack = 11001);
}

static void the_other_way_round_too(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10000);
        forget_sent(s);
        loss(s, 1, 1001, 6001, TCP_ACK);
        assert_int_equal(s->tc->ssthresh, 7000);
        expect_sent(s, .seq = 1, .len = 1000);
        loss(s, 1, 1001, 8001, EA);
        assert_int_equal(s->tc->ssthresh, 7000);
        assert_int_equal((int)counter(s, COUNT_TCP_ECN_CUT), 0);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 10001);
        app_writes(s, 1000);
        expect_sent(s, .seq = 10001, .len = 1000, .flags = WA, .ecn = ECT);
        peer_sends(s, .seq = 1, .ack = 11001);
}

/* ---- receiving: §6.1.3 ---- */

static void what_is_marked_is_echoed_until_cwr_comes(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 1000, .ecn = ECT);
        expect_silence(s);
        peer_sends(s, .seq = 1001, .ack = 1, .len = 1000, .ecn = CE);
        expect_sent(s, .seq = 1, .ack = 2001, .flags = EA);
        peer_sends(s, .seq = 2001, .ack = 1, .len = 1000, .ecn = ECT);
        peer_sends(s, .seq = 3001, .ack = 1, .len = 1000, .ecn = ECT);
        expect_sent(s, .seq = 1, .ack = 4001, .flags = EA);
        app_writes(s, 10);
        expect_sent(s, .seq = 1, .len = 10, .flags = EA, .ecn = ECT);
        peer_sends(s, .seq = 4001, .ack = 11, .len = 1000, .flags = WA, .ecn = ECT);
        expect_sent(s, .seq = 11, .ack = 5001); /* at once, and no echo */
        peer_sends(s, .seq = 5001, .ack = 11, .len = 1000, .ecn = ECT);
        peer_sends(s, .seq = 6001, .ack = 11, .len = 1000, .ecn = ECT);
        expect_sent(s, .seq = 11, .ack = 7001);
        assert_int_equal((int)counter(s, COUNT_TCP_ECN_MARKED), 1);
}

/* The segment with CWR is marked itself: the echo goes on, for that. */
static void cwr_that_is_marked_begins_anew(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 1000, .ecn = CE);
        expect_sent(s, .seq = 1, .ack = 1001, .flags = EA);
        peer_sends(s, .seq = 1001, .ack = 1, .len = 1000, .flags = WA, .ecn = CE);
        expect_sent(s, .seq = 1, .ack = 2001, .flags = EA);
}

/* Beyond a gap it was marked all the same; outside the window it says nothing. */
static void marks_count_where_data_is_taken(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 1000, .ecn = ECT);
        forget_sent(s);
        peer_sends(s, .seq = 500000, .ack = 1, .len = 1000, .ecn = CE);
        expect_sent(s, .seq = 1, .ack = 1001);
        peer_sends(s, .seq = 2001, .ack = 1, .len = 1000, .ecn = CE);
        expect_sent(s, .seq = 1, .ack = 1001, .flags = EA, .nsack = 1, .sack = {{2001, 3001}});
        peer_sends(s, .seq = 1001, .ack = 1, .len = 1000, .ecn = ECT);
        expect_sent(s, .seq = 1, .ack = 3001, .flags = EA);
}

static void who_did_not_agree_does_not_echo(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 1000, .ecn = CE);
        peer_sends(s, .seq = 1001, .ack = 1, .len = 1000, .ecn = CE);
        expect_sent(s, .seq = 1, .ack = 2001);
}

static void it_is_told(void **state)
{
        struct scene *s = *state;
        struct tcp_report r;

        tcp_get_report(&s->rig->t, s->tc, &r, s->now);
        assert_true(r.ecn_ok && !r.ecn_seen);
        peer_sends(s, .seq = 1, .ack = 1, .len = 10, .ecn = ECT);
        tcp_get_report(&s->rig->t, s->tc, &r, s->now);
        assert_true(r.ecn_ok && r.ecn_seen && r.ca_state == CA_OPEN);
        app_writes(s, 2000);
        forget_sent(s);
        peer_sends(s, .seq = 11, .ack = 1001, .flags = EA);
        tcp_get_report(&s->rig->t, s->tc, &r, s->now);
        assert_int_equal(r.ca_state, 2);
        peer_sends(s, .seq = 11, .ack = 2001, .flags = EA);
        app_writes(s, 10);
        forget_sent(s);
        peer_sends(s, .seq = 11, .ack = 2011);
        tcp_get_report(&s->rig->t, s->tc, &r, s->now);
        assert_int_equal(r.ca_state, CA_OPEN);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(a_syn_that_asks_is_agreed_to, listening, NULL),
                scenario(half_a_question_is_none, listening, NULL),
                scenario(a_marked_syn_is_not_believed, listening, NULL),
                scenario(who_wants_none_says_no, listening, NULL),
                scenario(nothing_is_marked_where_nothing_is_lost, listening, &lossless),
                scenario(nor_is_it_asked_for_there, scene_blank, &nothing_lost),
                scenario(by_default_nobody_asks, syn_sent, NULL),
                scenario(only_ece_is_the_answer, syn_sent, &asking),
                scenario(a_syn_sent_again_does_not_ask, syn_sent, &asking),
                scenario(a_syn_that_is_refused_is_sent_once_more_without, syn_sent, &asking),
                scenario(a_syn_that_comes_again_without_counts, listening, NULL),
                scenario(both_at_once_agree, syn_sent, &asking),
                scenario(both_at_once_and_only_one_asks, syn_sent, NULL),
                scenario(a_cookie_remembers, listening, &stamped),
                scenario(only_new_data_is_ect, established, &asking),
                scenario(a_window_probe_is_not, established, &asking),
                scenario(an_echo_makes_the_window_smaller_once, established, &asking),
                scenario(who_did_not_agree_does_not_listen, established, NULL),
                scenario(marks_and_losses_of_one_round_trip_count_once, established, &sacking),
                scenario(the_other_way_round_too, established, &sacking),
                scenario(what_is_marked_is_echoed_until_cwr_comes, accepted, &asking),
                scenario(cwr_that_is_marked_begins_anew, accepted, &asking),
                scenario(marks_count_where_data_is_taken, accepted, &sacking),
                scenario(who_did_not_agree_does_not_echo, accepted, NULL),
                scenario(it_is_told, accepted, &asking),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
