/* Floods: memory is what it was, an active neighbour stays, a new one is still found. RFC
 * 1122 §2.3.2.1. */
#include <stdlib.h>

#include "base/prng.h"
#include "tests/arp/scene.h"

#define FLOOD 1000000

static void drain(struct scene *s)
{
        struct arp_out out;

        while (arp_output(&s->a, &out))
                arp_output_done(&s->a, &out, s->now);
}

/* US is on a /8, so that any number of strangers are on our network. */
static void widen(struct scene *s)
{
        assert_int_equal(arp_addr_add(&s->a, US, 8, false, s->now), 0);
        drain(s);
        advance(s, ARP_ANNOUNCE_INTERVAL);
        drain(s);
}

static void random_packet(struct prng_fast *g, uint8_t p[ETHER_MIN_PKT], struct arp_scene_pkt k)
{
        k.spa = 0x0a100000 + prng_fast_below(g, 1u << 20);
        k.sha = 3 + (int)prng_fast_below(g, 200);
        build_(p, k);
        p[12] = (uint8_t)prng_fast_u64(g);
}

/* A million requests for us from a million strangers, at a million a second, while PEER is
 * talked to. */
static void a_million_requests_leave_an_active_neighbour_alone(void **state)
{
        struct scene *s = *state;
        struct arp_ref ref;
        struct prng_fast g;
        uint8_t p[ETHER_MIN_PKT];

        prng_fast_init(&g, 1);
        widen(s);
        ref = make_reachable(s, PEER, PEER_LL);
        for (int i = 0; i < FLOOD; i++) {
                s->now += NS_PER_US;
                random_packet(&g, p, (struct arp_scene_pkt){.tpa = US});
                arp_input(&s->a, p, sizeof p, s->now);
                if (arp_deadline(&s->a) <= s->now) {
                        arp_expire(&s->a, s->now);
                        drain(s);
                }
                assert_true(arp_ref_good(&s->a, ref));
        }
        arp_check(&s->a);
        assert_int_equal(s->cache.entries.used, ARP_ENTRIES);
        assert_true(s->cnt.n[COUNT_ARP_REPLY] <= 1200 + 1); /* a burst, and a thousand a second */
        resolve(s, PEER, 0, PEER_LL);
        make_reachable(s, OTHER, 3); /* and a new one is found in the middle of it */
}

/* We ask while the flood goes on: an entry that waits for its answer does not give way
 * to strangers. */
static void a_neighbour_is_found_during_a_flood(void **state)
{
        struct scene *s = *state;
        struct prng_fast g;
        uint8_t p[ETHER_MIN_PKT];

        prng_fast_init(&g, 2);
        widen(s);
        send_waiting(s, PEER, 60, 1);
        expect_request(s, PEER);
        for (int i = 0; i < 5000; i++) {
                random_packet(&g, p, (struct arp_scene_pkt){.tpa = US});
                arp_input(&s->a, p, sizeof p, s->now);
        }
        drain(s);
        arrives(s, .op = REPLY, .tha = OUR_LL);
        expect_released(s, PEER, PEER_LL, 60, 1);
}

/* Replies and announcements that nobody asked for leave no trace but a count. */
static void unsolicited_packets_leave_no_trace(void **state)
{
        struct scene *s = *state;
        struct prng_fast g;
        uint8_t p[ETHER_MIN_PKT];
        struct arp_cache *before = malloc(sizeof *before);

        assert_non_null(before);
        prng_fast_init(&g, 3);
        widen(s);
        memcpy(before, &s->cache, sizeof *before);
        for (int i = 0; i < 100000; i++) {
                random_packet(&g, p,
                              (struct arp_scene_pkt){.op = i % 2 ? REPLY : REQUEST,
                                                     .tpa = i % 2 ? US : OTHER});
                assert_true(arp_input(&s->a, p, sizeof p, s->now) != DROP_NONE);
        }
        assert_memory_equal(before, &s->cache, sizeof *before);
        free(before);
}

/* A program of ours scans 2^16 addresses: requests stay within their rate, packets within their
 * memory, and who is talked to is not pushed out. */
static void a_scan_of_ours_is_bounded(void **state)
{
        struct scene *s = *state;
        struct arp_ref ref, scanned;
        uint8_t ll[ARP_LL_MAX], pkt[100] = {0};
        nstime begin;

        widen(s);
        ref = make_reachable(s, PEER, PEER_LL);
        begin = s->now;
        for (uint32_t i = 0; i < 65536; i++) {
                s->now += 20 * NS_PER_US;
                if (arp_resolve(&s->a, 0x0a200000 + i, s->now, &scanned, ll) == -EINPROGRESS)
                        assert_int_equal(arp_hold(&s->a, scanned, pkt, 20, pkt, 80), 0);
                if (arp_deadline(&s->a) <= s->now) {
                        arp_expire(&s->a, s->now);
                        drain(s);
                }
        }
        arp_check(&s->a);
        assert_true(arp_ref_good(&s->a, ref));
        assert_true((nstime)s->cnt.n[COUNT_ARP_REQUEST] <= 202 + (s->now - begin) / NS_PER_MS);
        assert_true(s->cache.entries.used <= ARP_ENTRIES && s->cache.parts.used <= ARP_PARTS);
        for (int i = 0; i < 10; i++) {
                s->now += NS_PER_S;
                arp_expire(&s->a, s->now);
                drain(s);
        }
        assert_int_equal(s->cache.parts.used, 0);
        assert_int_equal(state_of(s, 0x0a20ffff), ARP_FREE);
}

/* Where all entries are static nobody else can be had, and nothing breaks. */
static void a_table_full_of_static_entries_stays_as_it_is(void **state)
{
        struct scene *s = *state;
        uint8_t ll[6];

        widen(s);
        ll_of(9, ll);
        for (uint32_t i = 0; i < ARP_ENTRIES; i++)
                assert_int_equal(arp_set(&s->a, 0x0a300000 + i, ll, true, s->now), 0);
        assert_int_equal(arp_set(&s->a, PEER, ll, true, s->now), -ENOBUFS);
        resolve(s, PEER, -ENOBUFS, 0);
        assert_int_equal(arrives(s), DROP_NONE); /* answered, not remembered */
        assert_int_equal(s->cnt.drop[DROP_ARP_FULL], 1);
        expect_sent(s, .op = REPLY, .tpa = PEER, .tha = PEER_LL, .to = PEER_LL);
        resolve(s, 0x0a300000, 0, 9);
}

/* A stranger's request takes nobody's place with whom we talk, or wait to. */
static void a_stranger_takes_no_place_that_is_used(void **state)
{
        struct scene *s = *state;

        widen(s);
        for (uint32_t i = 1; i < ARP_ENTRIES; i++) {
                advance(s, NS_PER_MS);
                make_reachable(s, 0x0a500000 + i, 7);
        }
        advance(s, NS_PER_MS);
        resolve(s, 0x0a500000, -EINPROGRESS, 0);
        expect_request(s, 0x0a500000);
        assert_int_equal(arrives(s), DROP_NONE); /* answered, not remembered */
        assert_int_equal(s->cnt.drop[DROP_ARP_FULL], 1);
        assert_int_equal(state_of(s, PEER), ARP_FREE);
        assert_int_equal(state_of(s, 0x0a500000), ARP_INCOMPLETE);
        assert_int_equal(state_of(s, 0x0a500001), ARP_REACHABLE);
}

/* With more neighbours in use than there are entries, the one resolved longest ago goes. */
static void the_neighbour_resolved_longest_ago_gives_way(void **state)
{
        struct scene *s = *state;

        widen(s);
        for (uint32_t i = 0; i < ARP_ENTRIES; i++) {
                advance(s, 10 * NS_PER_MS);
                make_reachable(s, 0x0a400000 + i, 7);
        }
        resolve(s, 0x0a400000, 0, 7);
        make_reachable(s, PEER, PEER_LL);
        assert_int_equal(state_of(s, 0x0a400000), ARP_REACHABLE);
        assert_int_equal(state_of(s, 0x0a400001), ARP_FREE);
        assert_int_equal(state_of(s, 0x0a400002), ARP_REACHABLE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(a_million_requests_leave_an_active_neighbour_alone),
                TEST(a_neighbour_is_found_during_a_flood),
                TEST(unsolicited_packets_leave_no_trace),
                TEST(a_scan_of_ours_is_bounded),
                TEST(a_table_full_of_static_entries_stays_as_it_is),
                TEST(a_stranger_takes_no_place_that_is_used),
                TEST(the_neighbour_resolved_longest_ago_gives_way),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
