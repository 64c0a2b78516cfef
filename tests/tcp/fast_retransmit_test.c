/* Fast retransmit and fast recovery without SACK: RFC 5681 §3.2, RFC 6582. */
#include "tests/tcp/scenarios.h"
#include "tcp/tcp_cc.h"

/* A round trip of 100 ms is known, so that nothing here is a timeout by the way. */
static void far_away(struct scene *s)
{
        s->tc->min_rtt = s->tc->srtt = 100 * NS_PER_MS;
        s->tc->rto = 400 * NS_PER_MS;
}

/* RFC 5681 §3.2: the third duplicate ACK retransmits at once, without waiting for the RTO. */
static void third_dupack_retransmits(void **state)
{
        struct scene *s = *state;

        app_writes(s, 4000);
        expect_sent(s, .seq = 1, .len = 1000, .ack = 1);
        expect_sent(s, .seq = 1001, .len = 1000, .ack = 1);
        expect_sent(s, .seq = 2001, .len = 1000, .ack = 1);
        expect_sent(s, .seq = 3001, .len = 1000, .ack = 1);
        advance_ms(s, 100); /* the first one is lost */
        peer_sends(s, .seq = 1, .ack = 1);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 1, .len = 1000, .ack = 1);
        assert_int_equal(s->tc->ssthresh, 2000); /* RFC 5681 eq. 4 */
        peer_sends(s, .seq = 1, .ack = 4001);
        assert_int_equal(s->tc->cwnd, 2000);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
}

/* RFC 6582: a partial ACK says where the next hole is. */
static void partial_ack_retransmits_the_next_hole(void **state)
{
        struct scene *s = *state;

        app_writes(s, 6000);
        forget_sent(s);
        for (int i = 0; i < 3; i++) /* 1 and 3001 are lost */
                peer_sends(s, .seq = 1, .ack = 1);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 3001);
        expect_sent(s, .seq = 3001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 6001);
        expect_silence(s);
        assert_int_equal(s->tc->retrans, 2);
}

/* RFC 5681 §2: with data, another window, a FIN or nothing in flight it is no duplicate. */
static void what_is_no_duplicate_is_not_counted(void **state)
{
        struct scene *s = *state;

        for (int i = 0; i < 3; i++)
                peer_sends(s, .seq = 1, .ack = 1); /* nothing in flight */
        app_writes(s, 4000);
        forget_sent(s);
        far_away(s);
        for (uint32_t i = 0; i < 3; i++)
                peer_sends(s, .seq = 1 + 10 * i, .ack = 1, .len = 10);
        for (uint16_t i = 0; i < 3; i++)
                peer_sends(s, .seq = 31, .ack = 1, .wnd = (uint16_t)(30000 + i));
        forget_sent(s);
        assert_int_equal(s->tc->dupacks, 0);
        assert_int_equal(s->tc->retrans, 0);
        for (int i = 0; i < 2; i++)
                peer_sends(s, .seq = 31, .ack = 1, .wnd = 30002);
        expect_silence(s);
        peer_sends(s, .seq = 31, .ack = 1, .wnd = 30002);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 31, .ack = 4001);
        app_reads(s, 30);
        forget_sent(s);
}

int main(void)
{
        static const struct scene_setup reno = {.reno = true};
        const struct CMUnitTest tests[] = {
                scenario(third_dupack_retransmits, established, &reno),
                scenario(partial_ack_retransmits_the_next_hole, established, &reno),
                scenario(what_is_no_duplicate_is_not_counted, established, &reno),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
