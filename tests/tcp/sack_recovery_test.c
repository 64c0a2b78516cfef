/* Loss recovery with SACK: RFC 2018, RFC 6675; what goes again, and how. */
#include "tests/tcp/scenarios.h"
#include "tcp/tcp_cc.h"

/* A round trip of 100 ms is known, so that nothing here is a timeout by the way. */
static void far_away(struct scene *s)
{
        s->tc->min_rtt = s->tc->srtt = 100 * NS_PER_MS;
        s->tc->rto = 400 * NS_PER_MS;
}

/* RFC 8985: what was sent before something that arrived a while later is lost; only that
 * is repeated. */
static void sacked_segments_are_not_repeated(void **state)
{
        struct scene *s = *state;

        s->tc->min_rtt = s->tc->srtt = 100 * NS_PER_MS;
        app_writes(s, 6000);
        forget_sent(s);
        advance_ms(s, 100);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 2001}});
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 3001}});
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{4001, 5001}, {1001, 3001}});
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->tc->ca_state, CA_RECOVERY);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{4001, 6001}, {1001, 3001}});
        expect_sent(s, .seq = 3001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 6001);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
        assert_int_equal(s->tc->retrans, 2);
}

/* RFC 9293 §3.8.1: a window of bytes is not hundreds of packets. */
static void small_segments_lost_go_again_as_one(void **state)
{
        struct scene *s = *state;

        for (int i = 0; i < 8; i++) {
                app_writes(s, 150);
                expect_sent(s, .seq = 1 + 150 * (uint32_t)i, .len = 150);
        }
        advance_ms(s, 190);
        forget_sent(s); /* a probe of the tail, with SACK */
        advance_ms(s, 300);
        expect_sent(s, .seq = 1, .len = 900);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 901);
        expect_sent(s, .seq = 901, .len = 300);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 1201);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
}

/* Not beyond what the receiver has. */
static void what_was_lost_is_gathered_up_to_what_arrived(void **state)
{
        struct scene *s = *state;

        for (int i = 0; i < 10; i++)
                app_writes(s, 50);
        forget_sent(s);
        advance_ms(s, 10);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{201, 251}});
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{201, 301}});
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{201, 351}});
        expect_sent(s, .seq = 1, .len = 200);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 351);
        peer_sends(s, .seq = 1, .ack = 501);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
}

/* RFC 2018 §8: after a timeout nothing that was only SACKed is believed, when the peer drops
 * its head. */
static void reneging_is_survived(void **state)
{
        struct scene *s = *state;

        app_writes(s, 3000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 3001}});
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001);
        forget_sent(s);
        advance_ms(s, 300);
        expect_sent(s, .seq = 1001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 3001);
        forget_sent(s);
}

/* RFC 6675 §5: the lost goes before the new, and either only while the pipe is below the window. */
static void what_is_lost_goes_before_what_is_new(void **state)
{
        struct scene *s = *state;

        far_away(s);
        app_writes(s, 20000);
        forget_sent(s);
        advance_ms(s, 100);
        /* 1, 1001 are lost. */
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{2001, 9001}});
        expect_sent(s, .seq = 1, .len = 1000);
        expect_sent(s, .seq = 1001, .len = 1000);
        expect_sent(s, .seq = 10001, .len = 1000);
        expect_sent(s, .seq = 11001, .len = 1000);
        expect_silence(s);
        assert_int_equal(pipe_bytes(s->tc), 5000); /* these, and 9001 */
        assert_int_equal(s->tc->cwnd, 5000);
        app_aborts(s);
        forget_sent(s);
}

/* RFC 2018 §2: what was not agreed upon is not sent. */
static void without_agreement_no_block_is_sent(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 501, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 1);
        assert_int_equal(s->last.nsack, 0);
        assert_false(s->last.sack_ok);
        peer_sends(s, .seq = 1, .ack = 1, .len = 500);
        forget_sent(s);
        app_reads(s, 1000);
}

static void what_was_agreed_upon_is_in_no_other_segment(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10);
        expect_sent(s, .seq = 1, .len = 10);
        assert_false(s->last.sack_ok);
        assert_int_equal(s->last.mss, 0);
        assert_int_equal(s->last.wscale, TCP_NO_WSCALE);
        peer_sends(s, .seq = 1, .ack = 11);
}

int main(void)
{
        static const struct scene_setup reno = {.reno = true}, sack = {.sack = true, .reno = true},
                                        plain_sack = {.sack = true};
        const struct CMUnitTest tests[] = {
                scenario(small_segments_lost_go_again_as_one, established, &reno),
                scenario(small_segments_lost_go_again_as_one, established, &sack),
                scenario(what_was_lost_is_gathered_up_to_what_arrived, established, &sack),
                scenario(sacked_segments_are_not_repeated, established, &sack),
                scenario(reneging_is_survived, established, &sack),
                scenario(what_is_lost_goes_before_what_is_new, established, &sack),
                scenario(without_agreement_no_block_is_sent, established, NULL),
                scenario(what_was_agreed_upon_is_in_no_other_segment, established, &plain_sack),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
