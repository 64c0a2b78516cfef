/* Two TCPs with a narrow link on the way between them: every byte arrives, whether its router tells
 * or not. RFC 1191, RFC 2923, RFC 4821. */
#include "tests/tcp/pair.h"
#include "tests/unit.h"

#define STREAM 1000000u

static uint64_t counted(const struct pair *p, enum count what)
{
        return p->rig[0]->cnt.n[what] + p->rig[1]->cnt.n[what];
}

static struct pair *pair_of(const struct pair_link *net, uint64_t seed)
{
        struct pair *p = pair_new(net, &rig_size_default, seed);

        for (int s = 0; s < 2; s++) {
                p->app[s].to_write = STREAM;
                p->app[s].max_write = 65536;
                p->app[s].max_read = 262144;
                p->opts[s].rcvbuf = 65536; /* so much each round trip */
        }
        return p;
}

/* Both streams pass within `limit`, and nothing is left over. */
static void passes(struct pair *p, nstime limit)
{
        assert_true(pair_run(p, limit));
        assert_int_equal(p->app[0].read, STREAM);
        assert_int_equal(p->app[1].read, STREAM);
        pair_settle(p, 400 * NS_PER_S);
        for (int s = 0; s < 2; s++) {
                assert_int_equal(rig_frames_used(p->rig[s]), 0);
                assert_int_equal(p->rig[s]->t.sh->txsegs.used, 0);
        }
}

/* From the start: no timeout, no loss of speed but the first segments'. */
static void a_router_that_tells_costs_one_round_trip(void **state)
{
        for (uint32_t mtu = 576; mtu <= 1492; mtu += 229) {
                struct pair_link net = {
                        .delay = 5 * NS_PER_MS, .mss = 1460, .mtu = mtu, .tells = true};
                struct pair *p = pair_of(&net, mtu);

                passes(p, 60 * NS_PER_S);
                assert_int_equal(counted(p, COUNT_TCP_PMTU), 2);
                assert_int_equal(counted(p, COUNT_TCP_RTO), 0);
                assert_int_equal(counted(p, COUNT_TCP_BLACK_HOLE), 0);
                assert_int_equal(counted(p, COUNT_TCP_FAST_RECOVERY), 0);
                assert_in_range(p->largest, mtu - 8, mtu);
                pair_free(p);
        }
}

/* In the middle: the claim is believed when the segment has timed out too. */
static void a_path_that_becomes_narrow_costs_one_timeout(void **state)
{
        struct pair_link net = {.delay = 5 * NS_PER_MS,
                                .mss = 1460,
                                .mtu = 1000,
                                .tells = true,
                                .mtu_from = 1000 * NS_PER_S + 100 * NS_PER_MS};
        struct pair *p = pair_of(&net, 1);

        passes(p, 60 * NS_PER_S);
        assert_in_range(counted(p, COUNT_TCP_PMTU), 1, 2);
        assert_in_range(counted(p, COUNT_TCP_RTO), 1, 4);
        assert_int_equal(counted(p, COUNT_TCP_BLACK_HOLE), 0);
        pair_free(p);
}

/* A black hole: sizes fall until something gets through, and rise again to what does. */
static void a_router_that_does_not_tell_is_found_out(void **state)
{
        for (uint32_t mtu = 300; mtu <= 1492; mtu += 298) {
                struct pair_link net = {.delay = 40 * NS_PER_MS, .mss = 1460, .mtu = mtu};
                struct pair *p = pair_of(&net, mtu);

                p->app[0].to_write = p->app[1].to_write = 4 * STREAM;
                assert_true(pair_run(p, 300 * NS_PER_S));
                assert_true(counted(p, COUNT_TCP_BLACK_HOLE) >= 2);
                assert_true(counted(p, COUNT_TCP_MTU_PROBE) >= 2);
                assert_in_range(p->largest, mtu - 17, mtu);
                pair_free(p);
        }
}

/* With loss besides, at random: still every byte. */
static void black_holes_with_loss_deliver_every_byte(void **state)
{
        for (uint64_t seed = 1; seed <= 10; seed++) {
                struct pair_link net = {.delay = 5 * NS_PER_MS,
                                        .jitter = NS_PER_MS,
                                        .mss = 1460,
                                        .drop = 0.01,
                                        .reorder = 0.01,
                                        .dup = 0.01,
                                        .tells = seed % 2,
                                        .mtu = 300 + (uint32_t)(seed * 122)};
                struct pair *p = pair_of(&net, seed);

                passes(p, 600 * NS_PER_S);
                pair_free(p);
        }
}

/* An outage looks like a black hole; segments are as large as before soon after it. */
static void after_an_outage_segments_are_large_again(void **state)
{
        struct pair_link net = {.delay = 20 * NS_PER_MS,
                                .mss = 1460,
                                .mtu = 1,
                                .mtu_from = 1000 * NS_PER_S + 100 * NS_PER_MS,
                                .mtu_until = 1000 * NS_PER_S + 4 * NS_PER_S};
        struct pair *p = pair_of(&net, 1);
        uint64_t before;

        p->app[0].to_write = p->app[1].to_write = 20 * STREAM;
        assert_false(pair_run(p, 5 * NS_PER_S));
        p->largest = 0;
        before = counted(p, COUNT_TCP_BLACK_HOLE);
        assert_true(before >= 1);
        assert_false(pair_run_on(p, 5 * NS_PER_S));
        assert_int_equal(p->largest, 1500);
        pair_free(p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_router_that_tells_costs_one_round_trip),
                cmocka_unit_test(a_path_that_becomes_narrow_costs_one_timeout),
                cmocka_unit_test(a_router_that_does_not_tell_is_found_out),
                cmocka_unit_test(black_holes_with_loss_deliver_every_byte),
                cmocka_unit_test(after_an_outage_segments_are_large_again),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
