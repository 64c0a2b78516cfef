/* What a stranger may send who does not see the connection, or who is its peer and means harm. */
#include "tests/tcp/scenarios.h"

/* "Ghost acknowledgements" (Pan and Rossow 2023): what was never sent cannot be acknowledged,
 * however large a window was offered. RFC 5961 §5.2 alone lets one guess in 65536 of SEG.ACK
 * pass here. */
static void what_was_never_sent_is_not_acknowledged(void **state)
{
        struct scene *s = *state;

        app_writes(s, 100);
        expect_sent(s, .seq = 1, .len = 100);
        peer_sends(s, .seq = 1, .ack = 101);
        peer_sends(s, .seq = 1, .ack = 1, .len = 5);
        assert_int_equal(tcp_recv_avail(s->tc), 5);
        advance_ms(s, 40);
        expect_sent(s, .seq = 101, .ack = 6);
        peer_sends(s, .seq = 6, .ack = 0u - 500, .len = 5);
        expect_sent(s, .seq = 101, .ack = 6);
        assert_int_equal(tcp_recv_avail(s->tc), 5);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_BAD_ACK], 1);
}

/* RFC 5961 §7: who guesses SEG.ACK too high gets no answer each time either. */
static void acks_of_the_future_are_not_all_answered(void **state)
{
        struct scene *s = *state;

        for (uint32_t i = 0; i < 100; i++)
                peer_sends(s, .seq = 1, .ack = 1000 + i, .len = 1);
        expect_sent(s, .seq = 1, .ack = 1);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_BAD_ACK], 100);
}

/* RFC 9293 §3.10.7.4, second: at its edge, and nowhere else. */
static void reset_ends_time_wait_at_its_edge(void **state)
{
        struct scene *s = *state;

        app_closes(s);
        peer_sends(s, .seq = 3, .flags = R);
        peer_sends(s, .seq = 1, .flags = R);
        expect_silence(s);
        expect_state(s, TCPS_TIME_WAIT);
        peer_sends(s, .seq = 2, .flags = R);
        expect_silence(s);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
        s->tc = NULL;
}

/* CVE-2018-5390: one byte here, one there. Each arrives in time that does not grow, so beyond many
 * gaps nothing is looked for. */
static void islands_are_not_searched_without_end(void **state)
{
        struct scene *s = *state;

        for (uint32_t i = 0; i < 1100; i++) {
                peer_sends(s, .seq = 10001 + 2 * i, .ack = 1, .len = 1);
                forget_sent(s);
        }
        assert_int_equal(s->tc->ooo_records, 1100);
        peer_sends(s, .seq = 5001, .ack = 1, .len = 10);
        expect_sent(s, .ack = 1, .nsack = 4,
                    .sack = {{12199, 12200}, {12197, 12198}, {12195, 12196}, {12193, 12194}});
        assert_int_equal(s->tc->ooo_records, 1100);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_NO_MEMORY], 1);
        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        expect_sent(s, .ack = 1001, .nsack = 4,
                    .sack = {{12199, 12200}, {12197, 12198}, {12195, 12196}, {12193, 12194}});
        tcp_conn_check(&s->rig->t, s->tc);
        app_reads(s, 1000);
}

/* What follows without a gap is one block, however many segments it came in. */
static void a_long_run_is_one_step(void **state)
{
        struct scene *s = *state;

        for (uint32_t i = 0; i < 1500; i++) {
                peer_sends(s, .seq = 2001 + 10 * i, .ack = 1, .len = 10);
                expect_sent(s, .ack = 1, .nsack = 1, .sack = {{2001, 2011 + 10 * i}});
        }
        peer_sends(s, .seq = 1001, .ack = 1, .len = 100);
        expect_sent(s, .ack = 1, .nsack = 2, .sack = {{1001, 1101}, {2001, 17001}});
        tcp_conn_check(&s->rig->t, s->tc);
        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        expect_sent(s, .ack = 1101, .nsack = 1, .sack = {{2001, 17001}});
        peer_sends(s, .seq = 1101, .ack = 1, .len = 900);
        expect_sent(s, .ack = 17001);
        assert_int_equal(s->tc->ooo_records, 0);
        app_reads(s, 17000);
}

/* CVE-2019-11477 to 11479: who takes but 48 bytes a segment, and acknowledges so that the window
 * grows, has not a hundred thousand of them in flight, which every SACK walks through. */
static void tiny_segments_in_flight_are_not_many(void **state)
{
        struct scene *s = *state;
        struct tcp *t = &s->rig->t;
        struct tcp_seg seg;
        struct span span[8];
        unsigned sent = 0;
        int got;

        assert_int_equal(s->tc->snd_mss, 48);
        s->tc->cwnd = s->tc->ssthresh = s->tc->snd_wnd = s->tc->max_wnd = 1u << 30;
        while ((got = tcp_send_reserve(t, s->tc, 8192, span, 8)) > 0) {
                tcp_send_commit(t, s->tc, (size_t)got, false, false, s->now);
                while (tcp_output(t, s->tc, &seg, s->now))
                        sent++;
        }
        assert_in_range(sent, 4000, 4200);
        app_aborts(s);
        forget_sent(s);
}

/* Against a bitmap: every block reported is one of received bytes with a gap on both sides, and the
 * bytes are the right ones. */
static void pieces_at_random_are_reported_and_read(void **state)
{
        struct scene *s = *state;
        static bool have[4002];
        uint32_t x = 12345, nxt = 1;

        memset(have, 0, sizeof have);
        for (int round = 0; round < 3000 && nxt < 4001; round++) {
                const struct tcp_seg *out;
                uint32_t seq, len;
                x = x * 1103515245u + 12345u;
                seq = 2 + (x >> 8) % 3990;
                len = 1 + (x >> 20) % 13;
                if (round % 500 == 499) {
                        seq = nxt;
                        len = 40;
                }
                len = MIN(len, 4001 - seq);
                peer_sends(s, .seq = seq, .ack = 1, .len = len);
                for (uint32_t i = seq; i < seq + len; i++)
                        have[i] = true;
                while (nxt < 4001 && have[nxt])
                        nxt++;
                assert_int_equal(s->tc->rcv_nxt - s->tc->irs, nxt);
                tcp_conn_check(&s->rig->t, s->tc);
                if (s->tail == s->head)
                        continue;
                out = &s->sent[s->tail - 1].seg;
                for (unsigned k = out->nsack; k-- > 1;) { /* the first may be a D-SACK */
                        uint32_t l = out->sack[k].left - s->tc->irs,
                                 r = out->sack[k].right - s->tc->irs;
                        assert_false(have[l - 1] || have[r]);
                        for (uint32_t i = l; i < r; i++)
                                assert_true(have[i]);
                }
                forget_sent(s);
        }
        peer_sends(s, .seq = nxt, .ack = 1, .len = 500);
        for (nxt += 500; nxt < 4001; nxt += 500)
                peer_sends(s, .seq = nxt, .ack = 1, .len = MIN(500u, 4001 - nxt));
        forget_sent(s);
        app_reads(s, 4000);
        advance_ms(s, 50);
        forget_sent(s);
}

int main(void)
{
        static const struct scene_setup sack = {.sack = true},
                                        tiny = {.sack = true, .mss = 48, .sndbuf = 1 << 20};
        const struct CMUnitTest tests[] = {
                scenario(what_was_never_sent_is_not_acknowledged, established, NULL),
                scenario(acks_of_the_future_are_not_all_answered, established, NULL),
                scenario(reset_ends_time_wait_at_its_edge, time_wait, NULL),
                scenario(islands_are_not_searched_without_end, established, &sack),
                scenario(a_long_run_is_one_step, established, &sack),
                scenario(tiny_segments_in_flight_are_not_many, established, &tiny),
                scenario(pieces_at_random_are_reported_and_read, established, &sack),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
