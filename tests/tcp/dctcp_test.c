/* DCTCP: tcp_dctcp.c and what tcp_ecn.c does for it, RFC 8257. Queues and fairness:
 * tests/sim/dctcp_test.c. */
#include "tests/tcp/scenarios.h"

#include "ip/ip.h"

#define EA  (TCP_ECE | TCP_ACK)
#define WA  (TCP_CWR | TCP_ACK)
#define ECT IP_ECN_ECT0
#define CE  IP_ECN_CE

static const struct scene_setup dctcp = {.dctcp = true, .ecn = TCP_ECN_ASK, .sack = true},
                                unasked = {.dctcp = true};

/* ---- agreeing ---- */

/* §3.5; and whatever the stack does by default, who chooses DCTCP asks. */
static void it_asks_for_ecn_by_a_syn_that_is_ect(void **state)
{
        struct scene *s = *state;
        int c = tcp_connect(&s->rig->t, &s->tuple, &s->link, &s->opts, s->now);
        struct tcp_seg seg;

        assert_true(c > 0 && s->opts.ecn == TCP_ECN_ACCEPT);
        assert_true(tcp_output(&s->rig->t, tcp_conn_at(&s->rig->t, (uint32_t)c), &seg, s->now));
        assert_int_equal(seg.flags, S | TCP_ECE | TCP_CWR);
        assert_int_equal(seg.ecn, ECT);
        s->conn = (uint32_t)c;
        s->tc = tcp_conn_at(&s->rig->t, s->conn);
}

static void a_syn_that_is_ect_is_agreed_to(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = S | TCP_ECE | TCP_CWR, .mss = 1000, .ecn = ECT);
        expect_sent(s, .flags = SA | TCP_ECE, .ecn = ECT);
}

static void a_peer_without_ecn_is_met_without(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .flags = S, .mss = 1000);
        expect_sent(s, .flags = SA);
}

/* ---- receiving: §3.2, figure 1 ---- */

static void the_echo_is_of_the_bytes_that_were_marked(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 1000, .ecn = ECT);
        expect_silence(s);
        peer_sends(s, .seq = 1001, .ack = 1, .len = 1000, .ecn = CE);
        /* What came before was not. */
        expect_sent(s, .seq = 1, .ack = 1001, .ecn = ECT, .is_reply = true);
        expect_sent(s, .seq = 1, .ack = 2001, .flags = EA, .ecn = ECT);
        peer_sends(s, .seq = 2001, .ack = 1, .len = 1000, .ecn = CE);
        expect_silence(s);
        /* CWR says nothing here. */
        peer_sends(s, .seq = 3001, .ack = 1, .len = 1000, .flags = WA, .ecn = ECT);
        expect_sent(s, .seq = 1, .ack = 3001, .flags = EA, .ecn = ECT, .is_reply = true);
        expect_sent(s, .seq = 1, .ack = 4001, .ecn = ECT);
}

static void as_long_as_nothing_changes_acks_are_delayed(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 1000, .ecn = CE);
        expect_sent(s, .seq = 1, .ack = 1001, .flags = EA, .ecn = ECT);
        for (uint32_t at = 1001; at < 9001; at += 2000) {
                peer_sends(s, .seq = at, .ack = 1, .len = 1000, .ecn = CE);
                expect_silence(s);
                peer_sends(s, .seq = at + 1000, .ack = 1, .len = 1000, .ecn = CE);
                expect_sent(s, .seq = 1, .ack = at + 2000, .flags = EA, .ecn = ECT);
        }
}

/* ---- sending: §3.3 ---- */

/* A window of ten segments, of which the peer acknowledges one after the other, the first `marked`
 * with ECE. */
static void window(struct scene *s, uint32_t *una, uint32_t marked)
{
        uint32_t n = s->tc->cwnd / 1000;

        app_writes(s, n * 1000);
        forget_sent(s);
        for (uint32_t i = 0; i < n; i++) {
                *una += 1000;
                peer_sends(s, .seq = 1, .ack = *una, .flags = i < marked ? EA : TCP_ACK);
        }
        forget_sent(s);
}

/* alpha is 1 at first; g is a sixteenth. */
static void the_window_shrinks_by_what_was_marked(void **state)
{
        struct scene *s = *state;
        uint32_t una = 1, before = s->tc->cwnd;

        window(s, &una, 1);
        assert_in_range(s->tc->cwnd, before / 2, before / 2 + 2000);
        assert_int_equal(s->tc->ssthresh, before / 2);
        for (int i = 0; i < 80; i++) /* nothing is marked for long: alpha goes to 0 */
                window(s, &una, 0);
        before = s->tc->cwnd;
        window(s, &una, 1);
        assert_in_range(s->tc->cwnd, before - before / 16, before + 1000);
        for (int i = 0; i < 80; i++) /* and to 1 where all is */
                window(s, &una, UINT32_MAX);
        assert_int_equal(s->tc->cwnd, 2000);
}

/* §3.5: by a loss it is halved, as ever. */
static void a_loss_halves_it(void **state)
{
        struct scene *s = *state;
        uint32_t una = 1, flight;

        for (int i = 0; i < 40; i++)
                window(s, &una, 0);
        app_writes(s, 50000);
        forget_sent(s);
        flight = s->tc->snd_nxt - s->tc->snd_una;
        peer_sends(s, .seq = 1, .ack = una, .nsack = 1, .sack = {{una + 1000, una + 7000}});
        assert_int_equal(s->tc->ca_state, CA_RECOVERY);
        assert_int_equal(s->tc->ssthresh, flight / 2);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = una + 50000);
        forget_sent(s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(it_asks_for_ecn_by_a_syn_that_is_ect, listening, &unasked),
                scenario(a_syn_that_is_ect_is_agreed_to, listening, &unasked),
                scenario(a_peer_without_ecn_is_met_without, listening, &unasked),
                scenario(the_echo_is_of_the_bytes_that_were_marked, established, &dctcp),
                scenario(as_long_as_nothing_changes_acks_are_delayed, established, &dctcp),
                scenario(the_window_shrinks_by_what_was_marked, established, &dctcp),
                scenario(a_loss_halves_it, established, &dctcp),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
