/* Neighbours: asked for, aged, polled, given up, and the packets that wait for them. RFC 826, RFC
 * 1122 §2.3.2. */
#include "tests/arp/scene.h"

/* ---- resolution ---- */

/* RFC 826: ask all, take the answer, send what waits. */
static void an_unknown_neighbour_is_asked_for_and_answers(void **state)
{
        struct scene *s = *state;

        send_waiting(s, PEER, 60, 7);
        expect_request(s, PEER);
        expect_silence(s);
        assert_int_equal(arrives(s, .op = REPLY, .tha = OUR_LL), DROP_NONE);
        expect_released(s, PEER, PEER_LL, 60, 7);
        expect_silence(s);
        resolve(s, PEER, 0, PEER_LL);
        assert_int_equal(state_of(s, PEER), ARP_REACHABLE);
        assert_int_equal(s->cnt.n[COUNT_ARP_REQUEST], 1);
}

/* RFC 1122 §2.3.2.1: the rate of requests for one destination is at most one a second, however many
 * packets want it. */
static void one_request_a_second(void **state)
{
        struct scene *s = *state;

        for (int second = 0; second < 3; second++) {
                for (int i = 0; i < 10; i++) {
                        send_waiting(s, PEER, 40, (uint8_t)i);
                        if (i == 0)
                                expect_request(s, PEER);
                        expect_silence(s);
                        advance(s, 99 * NS_PER_MS);
                }
                assert_true(wait_output(s, 20 * NS_PER_MS) >= 10 * NS_PER_MS);
        }
        assert_int_equal(s->cnt.n[COUNT_ARP_REQUEST], 3);
}

/* Nor does a way through the states lead to a second one sooner, whatever the settings are. */
static void no_setting_makes_it_more(void **state)
{
        struct scene *s = *state;

        s->cache.cfg.delay_time = 0;
        resolve(s, PEER, -EINPROGRESS, 0);
        expect_request(s, PEER);
        advance(s, 100 * NS_PER_MS);
        /* Known, to be polled at once. */
        assert_int_equal(arrives(s, .op = REQUEST, .tpa = PEER), DROP_NONE);
        assert_in_range(wait_output(s, NS_PER_S), 900 * NS_PER_MS,
                        900 * NS_PER_MS + 2 * WHEEL_TICK);
        expect_poll(s, PEER, PEER_LL);
}

/* RFC 1122 §2.3.2.2 and §2.4: what waited is told of as unreachable, softly; asking goes on after
 * a pause. */
static void who_does_not_answer_is_given_up_for_a_while(void **state)
{
        struct scene *s = *state;

        send_waiting(s, PEER, 100, 1);
        for (int i = 0; i < 3; i++) {
                expect_request(s, PEER);
                wait_output(s, NS_PER_S + WHEEL_TICK);
        }
        send_waiting(s, OTHER, 100, 2); /* another one is not concerned */
        expect_unreachable(s, PEER, 100, 1);
        expect_request(s, OTHER);
        assert_int_equal(state_of(s, PEER), ARP_FAILED);
        assert_int_equal(s->cnt.drop[DROP_ARP_UNREACHABLE], 1);
        assert_int_equal(s->cnt.n[COUNT_ARP_FAILED], 1);
        resolve(s, PEER, -EHOSTUNREACH, 0);
        advance(s, NS_PER_S - WHEEL_TICK);
        resolve(s, PEER, -EHOSTUNREACH, 0);
        s->now += 2 * WHEEL_TICK;
        resolve(s, PEER, -EINPROGRESS, 0); /* the pause is over, even before its timer ran */
        assert_int_equal(arrives(s, .op = REPLY, .spa = OTHER, .sha = 3, .tha = OUR_LL), DROP_NONE);
        expect_request(s, PEER);
        expect_released(s, OTHER, 3, 100, 2);
}

static void a_neighbour_that_failed_is_forgotten(void **state)
{
        struct scene *s = *state;

        resolve(s, PEER, -EINPROGRESS, 0);
        for (int i = 0; i < 3; i++) {
                expect_request(s, PEER);
                if (i < 2)
                        wait_output(s, NS_PER_S + WHEEL_TICK);
        }
        advance(s, 3 * NS_PER_S);
        assert_int_equal(state_of(s, PEER), ARP_FREE);
        assert_true(arp_deadline(&s->a) == NSTIME_NEVER);
}

static void what_cannot_be_a_neighbour_is_refused(void **state)
{
        static const uint32_t table[] = {0,          US,         0x0a0000ff, 0xffffffff,
                                         0xe0000001, 0x7f000001, 0xf0000001, 0x00000005};
        struct scene *s = *state;
        uint8_t ll[6] = {2};

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                resolve(s, table[i], -EINVAL, 0);
                assert_int_equal(arp_set(&s->a, table[i], ll, true, s->now),
                                 /* Who sets it may know better. */
                                 table[i] == 0x0a0000ff ? 0 : -EINVAL);
        }
        expect_silence(s);
}

/* RFC 5227 §2.1: an address that is probed for is not to be used; 0.0.0.0 as sender would be
 * a probe. */
static void nobody_is_asked_for_without_an_address(void **state)
{
        struct scene *s = *state;

        resolve(s, PEER, -EADDRNOTAVAIL, 0);
        assert_int_equal(arp_addr_add(&s->a, US, 24, true, s->now), 0);
        resolve(s, PEER, -EADDRNOTAVAIL, 0);
}

static void no_request_leaves_after_the_address_went(void **state)
{
        struct scene *s = *state;

        send_waiting(s, PEER, 40, 1);
        assert_int_equal(arp_addr_add(&s->a, US, 24, true, s->now), 0);
        assert_int_equal(arrives(s, .spa = US, .sha = 66), DROP_ARP_CONFLICT);
        expect_addr(s, US, ARP_ADDR_LOST);
        arp_check(&s->a);
        expect_silence(s);
        wait_output(s, 3 * NS_PER_S + 4 * WHEEL_TICK);
        expect_unreachable(s, PEER, 40, 1);
        assert_int_equal(s->cnt.n[COUNT_ARP_REQUEST], 0);
}

/* The request comes from the address on the neighbour's network. */
static void the_request_names_the_address_of_its_network(void **state)
{
        struct scene *s = *state;

        assert_int_equal(arp_addr_add(&s->a, 0xc0a80101, 24, false, s->now), 0);
        expect_sent(s, .op = REQUEST, .spa = 0xc0a80101, .tpa = 0xc0a80101);
        expect_addr(s, 0xc0a80101, ARP_ADDR_ANNOUNCING);
        resolve(s, FAR, -EINPROGRESS, 0);
        expect_sent(s, .op = REQUEST, .spa = 0xc0a80101, .tpa = FAR);
        resolve(s, 0x08080808, -EINPROGRESS, 0); /* a gateway that is on no network of ours */
        expect_sent(s, .op = REQUEST, .tpa = 0x08080808);
}

/* ---- ageing ---- */

/* RFC 1122 §2.3.2.1: entries are flushed when out of date, also while they are used; the poll
 * is unicast. */
static void a_neighbour_in_use_is_polled_and_stays(void **state)
{
        struct scene *s = *state;
        struct arp_ref ref = make_reachable(s, PEER, PEER_LL);

        advance(s, 15 * NS_PER_S - WHEEL_TICK);
        assert_int_equal(state_of(s, PEER), ARP_REACHABLE);
        advance(s, 30 * NS_PER_S + 2 * WHEEL_TICK);
        assert_int_equal(state_of(s, PEER), ARP_STALE);
        /* Its holder asks again, which tells us of the use. */
        assert_false(arp_ref_good(&s->a, ref));
        resolve(s, PEER, 0, PEER_LL);
        assert_int_equal(state_of(s, PEER), ARP_DELAY);
        assert_true(arp_ref_good(&s->a, ref));
        expect_silence(s);
        assert_in_range(wait_output(s, 5 * NS_PER_S + WHEEL_TICK), 5 * NS_PER_S,
                        5 * NS_PER_S + WHEEL_TICK);
        expect_poll(s, PEER, PEER_LL);
        assert_true(arp_ref_good(&s->a, ref));
        assert_int_equal(arrives(s, .op = REPLY, .tha = OUR_LL), DROP_NONE);
        assert_int_equal(state_of(s, PEER), ARP_REACHABLE);
        assert_true(arp_ref_good(&s->a, ref));
        expect_silence(s);
}

/* RFC 1122 §2.3.2.1 (2): N polls without an answer, and the address is no longer believed; then all
 * are asked. */
static void polled_in_vain_it_is_asked_for_among_all(void **state)
{
        struct scene *s = *state;
        struct arp_ref ref = make_reachable(s, PEER, PEER_LL);

        advance(s, 46 * NS_PER_S);
        resolve(s, PEER, 0, PEER_LL);
        for (int i = 0; i < 3; i++) {
                wait_output(s, 5 * NS_PER_S + WHEEL_TICK);
                assert_true(arp_ref_good(&s->a, ref));
                expect_poll(s, PEER, PEER_LL);
        }
        wait_output(s, NS_PER_S + WHEEL_TICK);
        assert_false(arp_ref_good(&s->a, ref));
        expect_request(s, PEER);
        send_waiting(s, PEER, 50, 9);
        /* It has moved. */
        assert_int_equal(arrives(s, .op = REPLY, .sha = 77, .tha = OUR_LL), DROP_NONE);
        expect_released(s, PEER, 77, 50, 9);
        resolve(s, PEER, 0, 77);
        assert_int_equal(state_of(s, PEER), ARP_REACHABLE);
}

/* RFC 1122 §2.3.2.1: advice from a transport that makes progress replaces the poll. */
static void progress_keeps_a_neighbour_reachable(void **state)
{
        struct scene *s = *state;
        struct arp_ref ref = make_reachable(s, PEER, PEER_LL);

        for (int i = 0; i < 1000; i++) {
                advance(s, NS_PER_S);
                arp_confirm(&s->a, ref, s->now);
                assert_int_equal(state_of(s, PEER), ARP_REACHABLE);
        }
        assert_int_equal(s->cnt.n[COUNT_ARP_REQUEST], 1);
        advance(s, 46 * NS_PER_S);
        assert_int_equal(state_of(s, PEER), ARP_STALE);
        arp_confirm(&s->a, ref, s->now);
        assert_int_equal(state_of(s, PEER), ARP_REACHABLE);
        /* Of an address that it had before. */
        arp_confirm(&s->a, (struct arp_ref){ref.index, ref.gen - 1}, s->now);
        arp_confirm(&s->a, (struct arp_ref){0, 0}, s->now);
        arp_check(&s->a);
}

static void progress_ends_a_poll(void **state)
{
        struct scene *s = *state;
        struct arp_ref ref = make_reachable(s, PEER, PEER_LL);

        advance(s, 46 * NS_PER_S);
        resolve(s, PEER, 0, PEER_LL);
        wait_output(s, 5 * NS_PER_S + WHEEL_TICK);
        arp_confirm(&s->a, ref, s->now);
        arp_check(&s->a);
        expect_silence(s);
        assert_int_equal(state_of(s, PEER), ARP_REACHABLE);
}

static void a_confirmation_does_not_revive_the_failed(void **state)
{
        struct scene *s = *state;
        struct arp_ref ref = resolve(s, PEER, -EINPROGRESS, 0);

        arp_confirm(&s->a, ref, s->now);
        assert_int_equal(state_of(s, PEER), ARP_INCOMPLETE);
        arp_check(&s->a);
}

static void a_stale_neighbour_unused_is_forgotten(void **state)
{
        struct scene *s = *state;

        make_reachable(s, PEER, PEER_LL);
        advance(s, 46 * NS_PER_S);
        assert_int_equal(state_of(s, PEER), ARP_STALE);
        advance(s, 600 * NS_PER_S);
        assert_int_equal(state_of(s, PEER), ARP_FREE);
        assert_int_equal(s->cnt.n[COUNT_ARP_REQUEST], 1);
        assert_true(arp_deadline(&s->a) == NSTIME_NEVER);
}

/* RFC 1122 §2.3.2.1: the timeout is configurable. */
static void timeouts_are_settings(void **state)
{
        struct scene *s = *state;

        s->cache.cfg.reachable_time = 2 * NS_PER_S;
        s->cache.cfg.stale_time = 10 * NS_PER_S;
        make_reachable(s, PEER, PEER_LL);
        advance(s, 3 * NS_PER_S + 2 * WHEEL_TICK);
        assert_int_equal(state_of(s, PEER), ARP_STALE);
        advance(s, 10 * NS_PER_S + 2 * WHEEL_TICK);
        assert_int_equal(state_of(s, PEER), ARP_FREE);
}

/* The link came back: nothing known is trusted, nothing that works is stopped. */
static void a_link_that_comes_up_makes_all_stale_and_announces(void **state)
{
        struct scene *s = *state;
        struct arp_ref ref = make_reachable(s, PEER, PEER_LL);

        arp_link_up(&s->a, s->now);
        arp_check(&s->a);
        expect_sent(s, .op = REQUEST, .tpa = US);
        expect_silence(s);
        assert_int_equal(state_of(s, PEER), ARP_STALE);
        assert_false(arp_ref_good(&s->a, ref));
        resolve(s, PEER, 0, PEER_LL);
        assert_int_equal(arp_addr_state(&s->a, US), ARP_ADDR_ANNOUNCING);
}

/* ---- packets that wait ---- */

/* RFC 1122 §2.3.2.2: at least the latest packet is kept, and sent when the address is known. */
static void the_latest_packets_are_kept(void **state)
{
        enum { SENT = ARP_HOLD_PKTS + 4 };
        struct scene *s = *state;

        for (int i = 0; i < SENT; i++)
                send_waiting(s, PEER, 1000, (uint8_t)i);
        expect_request(s, PEER);
        assert_int_equal(s->cnt.drop[DROP_ARP_REPLACED], SENT - ARP_HOLD_PKTS);
        arrives(s, .op = REPLY, .tha = OUR_LL);
        for (int i = SENT - ARP_HOLD_PKTS; i < SENT; i++)
                expect_released(s, PEER, PEER_LL, 1000, (uint8_t)i);
        expect_silence(s);
}

static void packets_of_all_sizes_are_kept_whole(void **state)
{
        static const uint32_t sizes[] = {1,   20,  21,  28,   487,  488,  489,
                                         975, 976, 977, 1500, 3000, 9000, 65535};
        struct scene *s = *state;

        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
                send_waiting(s, PEER, sizes[i], (uint8_t)i);
                if (i == 0)
                        expect_request(s, PEER);
                arrives(s, .op = REPLY, .tha = OUR_LL);
                expect_released(s, PEER, PEER_LL, sizes[i], (uint8_t)i);
                expect_silence(s);
                assert_int_equal(s->cache.parts.used, 0);
                assert_int_equal(arp_del(&s->a, PEER), 0);
                advance(s, NS_PER_S);
                if (i + 1 < ARRAY_LEN(sizes)) {
                        resolve(s, PEER, -EINPROGRESS, 0);
                        expect_request(s, PEER);
                }
        }
}

static void a_neighbours_packets_are_bounded_in_bytes(void **state)
{
        struct scene *s = *state;

        send_waiting(s, PEER, 40000, 1);
        send_waiting(s, PEER, ARP_HOLD_BYTES - 40000, 2);
        assert_int_equal(s->cnt.drop[DROP_ARP_REPLACED], 0);
        send_waiting(s, PEER, 1, 3);
        assert_int_equal(s->cnt.drop[DROP_ARP_REPLACED], 1);
        expect_request(s, PEER);
        arrives(s, .op = REPLY, .tha = OUR_LL);
        expect_released(s, PEER, PEER_LL, ARP_HOLD_BYTES - 40000, 2);
        expect_released(s, PEER, PEER_LL, 1, 3);
}

/* Memory is bounded: with no room left the oldest packet of all gives way. */
static void all_packets_are_bounded_in_bytes(void **state)
{
        struct scene *s = *state;

        for (uint32_t i = 0; i < 8; i++) {
                send_waiting(s, PEER + i, 60000, (uint8_t)i); /* 123 parts each; six of them fit */
                expect_request(s, PEER + i);
        }
        assert_int_equal(s->cnt.drop[DROP_ARP_FULL], 2);
        for (uint32_t i = 0; i < 8; i++)
                arrives(s, .op = REPLY, .spa = PEER + i, .sha = 10 + (int)i, .tha = OUR_LL);
        for (uint32_t i = 2; i < 8; i++)
                expect_released(s, PEER + i, 10 + (int)i, 60000, (uint8_t)i);
        expect_silence(s);
}

static void what_can_no_longer_wait_is_refused(void **state)
{
        struct scene *s = *state;
        struct arp_ref ref = resolve(s, PEER, -EINPROGRESS, 0);
        static const uint8_t big[65536];

        assert_int_equal(arp_hold(&s->a, ref, big, 20, big, 65516), -EMSGSIZE);
        expect_request(s, PEER);
        arrives(s, .op = REPLY, .tha = OUR_LL);
        assert_int_equal(arp_hold(&s->a, ref, big, 20, big, 20), -ENOENT);
        assert_int_equal(arp_hold(&s->a, (struct arp_ref){0}, big, 20, big, 20), -ENOENT);
}

/* A full send queue: what was not done is offered again, and nothing is lost when the neighbour
 * moves meanwhile. */
static void what_could_not_be_sent_is_offered_again(void **state)
{
        struct scene *s = *state;

        send_waiting(s, PEER, 40, 1);
        send_waiting(s, PEER, 41, 2);
        expect_request(s, PEER);
        arrives(s, .op = REPLY, .tha = OUR_LL);
        expect_released(s, PEER, PEER_LL, 40, 1);
        s->now += 2 * NS_PER_S;
        assert_int_equal(arrives(s, .sha = 55), DROP_NONE);
        expect_sent(s, .op = REPLY, .tpa = PEER, .tha = 55, .to = 55);
        expect_released(s, PEER, 55, 41, 2);
        arp_expire(&s->a, s->now);
        expect_silence(s);
}

static void a_deleted_neighbours_packets_are_dropped(void **state)
{
        struct scene *s = *state;

        send_waiting(s, PEER, 40, 1);
        send_waiting(s, PEER, 40, 1);
        assert_int_equal(arp_del(&s->a, PEER), 0);
        assert_int_equal(arp_del(&s->a, PEER), -ENOENT);
        assert_int_equal(s->cnt.drop[DROP_ARP_UNREACHABLE], 2);
        expect_silence(s);
}

/* ---- static entries, and the tools' view ---- */

static void a_static_entry_neither_ages_nor_changes(void **state)
{
        struct scene *s = *state;
        struct arp_ref ref;
        uint8_t ll[6];

        send_waiting(s, PEER, 40, 1);
        expect_request(s, PEER);
        ll_of(9, ll);
        assert_int_equal(arp_set(&s->a, PEER, ll, true, s->now), 0);
        expect_released(s, PEER, 9, 40, 1);
        ref = resolve(s, PEER, 0, 9);
        assert_int_equal(arrives(s, .sha = PEER_LL), DROP_NONE); /* it is answered */
        expect_sent(s, .op = REPLY, .tpa = PEER, .tha = PEER_LL, .to = PEER_LL);
        assert_int_equal(arrives(s, .op = REPLY, .sha = PEER_LL, .tha = OUR_LL), DROP_ARP_STATIC);
        advance(s, 10000 * NS_PER_S);
        arp_confirm(&s->a, ref, s->now);
        arp_link_up(&s->a, s->now);
        assert_int_equal(state_of(s, PEER), ARP_STATIC);
        assert_true(arp_ref_good(&s->a, ref));
        resolve(s, PEER, 0, 9);
}

static void a_set_entry_that_is_not_static_is_verified(void **state)
{
        struct scene *s = *state;
        struct arp_ref ref = make_reachable(s, PEER, PEER_LL);
        uint8_t ll[6];

        ll_of(9, ll);
        assert_int_equal(arp_set(&s->a, PEER, ll, false, s->now), 0);
        assert_false(arp_ref_good(&s->a, ref));
        assert_int_equal(state_of(s, PEER), ARP_STALE);
        resolve(s, PEER, 0, 9);
        wait_output(s, 6 * NS_PER_S);
        expect_poll(s, PEER, 9);
}

static void a_walk_shows_what_is_there(void **state)
{
        struct scene *s = *state;
        struct arp_report r;
        struct arp_addr ad;
        unsigned n = 0;
        uint8_t ll[6];

        make_reachable(s, PEER, PEER_LL);
        send_waiting(s, OTHER, 77, 0);
        for (uint32_t i = 0; i <= ARP_ENTRIES + 1; i++) {
                if (!arp_walk(&s->a, i, &r))
                        continue;
                n++;
                assert_true(r.ip == PEER || r.ip == OTHER);
                assert_int_equal(r.ll_len, 6);
                assert_true(r.used);
                assert_int_equal(r.held_bytes, r.ip == OTHER ? 77 : 0);
                ll_of(PEER_LL, ll);
                if (r.ip == PEER)
                        assert_memory_equal(r.ll, ll, 6);
        }
        assert_int_equal(n, 2);
        assert_true(arp_addr_walk(&s->a, 0, &ad));
        assert_int_equal(ad.ip, US);
        assert_false(arp_addr_walk(&s->a, 1, &ad));
        assert_false(arp_addr_walk(&s->a, ARP_ADDRS, &ad));
        assert_string_equal(arp_state_name(ARP_REACHABLE), "REACHABLE");
        assert_string_equal(arp_state_name(ARP_STATIC), "STATIC");
}

/* ---- link addresses of another length ---- */

/* RFC 4391 §9.1.1: 20 bytes, hardware type 32. */
static void infiniband_addresses_fit(void **state)
{
        static const uint8_t seed[16] = "seed";
        struct scene *s = *state;
        struct arp_config cfg;
        struct arp_out out;
        struct arp_ref ref;
        uint8_t mac[6] = {0}, ll[ARP_LL_MAX], pkt[ARP_MAX_PKT];

        arp_config_default(&cfg, mac);
        cfg.hrd = 32;
        cfg.ll_len = 20;
        memset(cfg.ll_addr, 0xaa, 20);
        memset(cfg.ll_all, 0xbb, 20);
        arp_format(&s->cache, &cfg, seed, s->now);
        assert_int_equal(arp_addr_add(&s->a, US, 24, false, s->now), 0);
        while (arp_output(&s->a, &out))
                arp_output_done(&s->a, &out, s->now);
        assert_int_equal(arp_resolve(&s->a, PEER, s->now, &ref, ll), -EINPROGRESS);
        assert_true(arp_output(&s->a, &out));
        assert_int_equal(out.len, 56);
        assert_memory_equal(out.to, cfg.ll_all, 20);
        arp_output_done(&s->a, &out, s->now);
        memcpy(pkt, out.pkt, out.len); /* the answer: the two halves exchanged */
        pkt[7] = REPLY;
        memcpy(pkt + 8, out.pkt + 32, 24);
        memcpy(pkt + 32, out.pkt + 8, 24);
        memset(pkt + 8, 0xcc, 20);
        assert_int_equal(arp_input(&s->a, pkt, out.len - 1, s->now), DROP_ARP_SHORT);
        assert_int_equal(arp_input(&s->a, pkt, out.len, s->now), DROP_NONE);
        assert_int_equal(arp_resolve(&s->a, PEER, s->now, &ref, ll), 0);
        assert_memory_equal(ll, pkt + 8, 20);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)
#define BARE(name) cmocka_unit_test_setup_teardown(name, scene_bare, scene_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(an_unknown_neighbour_is_asked_for_and_answers),
                TEST(one_request_a_second),
                TEST(no_setting_makes_it_more),
                TEST(who_does_not_answer_is_given_up_for_a_while),
                TEST(a_neighbour_that_failed_is_forgotten),
                TEST(what_cannot_be_a_neighbour_is_refused),
                BARE(nobody_is_asked_for_without_an_address),
                TEST(no_request_leaves_after_the_address_went),
                TEST(the_request_names_the_address_of_its_network),
                TEST(a_neighbour_in_use_is_polled_and_stays),
                TEST(polled_in_vain_it_is_asked_for_among_all),
                TEST(progress_keeps_a_neighbour_reachable),
                TEST(progress_ends_a_poll),
                TEST(a_confirmation_does_not_revive_the_failed),
                TEST(a_stale_neighbour_unused_is_forgotten),
                TEST(timeouts_are_settings),
                TEST(a_link_that_comes_up_makes_all_stale_and_announces),
                TEST(the_latest_packets_are_kept),
                TEST(packets_of_all_sizes_are_kept_whole),
                TEST(a_neighbours_packets_are_bounded_in_bytes),
                TEST(all_packets_are_bounded_in_bytes),
                TEST(what_can_no_longer_wait_is_refused),
                TEST(what_could_not_be_sent_is_offered_again),
                TEST(a_deleted_neighbours_packets_are_dropped),
                TEST(a_static_entry_neither_ages_nor_changes),
                TEST(a_set_entry_that_is_not_static_is_verified),
                TEST(a_walk_shows_what_is_there),
                BARE(infiniband_addresses_fit),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
