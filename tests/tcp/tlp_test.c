/* Tail loss probes: RFC 8985 §7. */
#include "tests/tcp/scenarios.h"

/* RFC 8985 §7: the tail is probed after two round trips, and the probe's ACK repairs the rest. */
static void tail_loss_is_probed(void **state)
{
        struct scene *s = *state;

        s->tc->srtt = s->tc->min_rtt = 20 * NS_PER_MS;
        s->tc->rto = 400 * NS_PER_MS;
        app_writes(s, 4000);
        forget_sent(s);
        advance_ms(s, 41);
        expect_silence(s);
        advance_ms(s, 2);
        expect_sent(s, .seq = 3001, .len = 1000);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TLP], 1);
        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 1001, .nsack = 1, .sack = {{3001, 4001}});
        expect_sent(s, .seq = 1001, .len = 1000);
        expect_sent(s, .seq = 2001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 4001);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_RTO], 0);
}

/* RFC 8985 §7.2: where the timeout would be first the probe takes its place; it follows a timeout
 * later, and doubles from there. */
static void probe_takes_the_place_of_the_timeout(void **state)
{
        struct scene *s = *state;

        s->tc->srtt = s->tc->min_rtt = 100 * NS_PER_MS;
        s->tc->rto = 300 * NS_PER_MS; /* two round trips and 200 ms are 400 */
        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000);
        advance_ms(s, 299);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TLP], 1);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_RTO], 0);
        advance_ms(s, 299);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_RTO], 1);
        advance_ms(s, 599);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 1000);
}

/* ... and more that is sent does not put it off. */
static void probe_in_place_of_the_timeout_stays(void **state)
{
        struct scene *s = *state;

        s->tc->srtt = s->tc->min_rtt = 300 * NS_PER_MS;
        s->tc->rto = 500 * NS_PER_MS;
        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000);
        advance_ms(s, 400);
        app_writes(s, 1000);
        expect_sent(s, .seq = 1001, .len = 1000);
        advance_ms(s, 100);
        expect_sent(s, .seq = 1001, .len = 1000);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_TLP], 1);
        peer_sends(s, .seq = 1, .ack = 2001);
}

/* A tail that grew to more than a segment after it began is probed as one (RFC 8985 §7.2). */
static void tail_that_grew_is_probed(void **state)
{
        struct scene *s = *state;

        s->tc->srtt = s->tc->min_rtt = 20 * NS_PER_MS;
        s->tc->rto = 200 * NS_PER_MS;
        app_writes(s, 1000);
        app_writes(s, 1000);
        forget_sent(s);
        advance_ms(s, 43);
        expect_sent(s, .seq = 1001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 2001);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_RTO], 0);
}

/* What recovery waits for does not come: the first segment once more, after two round trips, and
 * the window as it was. */
static void silence_in_recovery_is_probed_once(void **state)
{
        struct scene *s = *state;
        uint32_t ssthresh;

        s->tc->srtt = s->tc->min_rtt = 20 * NS_PER_MS;
        s->tc->rto = 300 * NS_PER_MS;
        app_writes(s, 5000);
        forget_sent(s);
        advance_ms(s, 20);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 5001}});
        expect_sent(s, .seq = 1, .len = 1000);
        ssthresh = s->tc->ssthresh;
        advance_ms(s, 48);
        expect_silence(s);
        advance_ms(s, 6);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->tc->ca_state, CA_RECOVERY);
        advance_ms(s, 290);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 5001);
        assert_int_equal(s->tc->ca_state, CA_OPEN);
        assert_int_equal(s->tc->ssthresh, ssthresh);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_RTO], 0);
}

/* Where the link lets timeouts come early so do probes: the acknowledgement of all that was
 * sent again and behind it is lost, and the timeout, which would cost the window, does not
 * come first. */
static void silence_in_recovery_is_probed_before_an_early_timeout(void **state)
{
        struct scene *s = *state;

        s->tc->link.rto_min = 10 * NS_PER_MS;
        s->tc->srtt = s->tc->min_rtt = NS_PER_MS;
        s->tc->rto = 11 * NS_PER_MS;
        app_writes(s, 5000);
        forget_sent(s);
        advance_ms(s, 1);
        peer_sends(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 5001}});
        expect_sent(s, .seq = 1, .len = 1000);
        advance_ms(s, 1);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 5001);
        assert_int_equal(s->rig->cnt.n[COUNT_TCP_RTO], 0);
}

/* RFC 9002 §6.2.1: a round trip, and the larger of a millisecond and what it varies by. */
static void tail_is_probed_early_where_timeouts_are(void **state)
{
        struct scene *s = *state;

        s->tc->link.rto_min = 10 * NS_PER_MS;
        s->tc->srtt = s->tc->min_rtt = 3 * NS_PER_MS;
        s->tc->rttvar = 0;
        s->tc->rto = 13 * NS_PER_MS;
        app_writes(s, 2000);
        forget_sent(s);
        advance_ms(s, 3);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1001, .len = 1000);
}

static void early_probe_waits_for_what_round_trips_vary_by(void **state)
{
        struct scene *s = *state;

        s->tc->link.rto_min = 10 * NS_PER_MS;
        s->tc->srtt = s->tc->min_rtt = 3 * NS_PER_MS;
        s->tc->rttvar = NS_PER_MS;
        s->tc->rto = 13 * NS_PER_MS;
        app_writes(s, 2000);
        forget_sent(s);
        advance_ms(s, 6);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1001, .len = 1000);
}

int main(void)
{
        static const struct scene_setup sack = {.sack = true, .reno = true};
        const struct CMUnitTest tests[] = {
                scenario(tail_that_grew_is_probed, established, &sack),
                scenario(probe_takes_the_place_of_the_timeout, established, &sack),
                scenario(probe_in_place_of_the_timeout_stays, established, &sack),
                scenario(silence_in_recovery_is_probed_once, established, &sack),
                scenario(silence_in_recovery_is_probed_before_an_early_timeout, established, &sack),
                scenario(tail_is_probed_early_where_timeouts_are, established, &sack),
                scenario(early_probe_waits_for_what_round_trips_vary_by, established, &sack),
                scenario(tail_loss_is_probed, established, &sack),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
