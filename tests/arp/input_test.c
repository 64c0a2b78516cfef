/* What arrives: who is believed, who is answered, who is not. RFC 826, RFC 1122 §2.3.2, and
 * common sense. */
#include "tests/arp/scene.h"

/* ---- validation ---- */

/* RFC 826: hardware type, protocol and lengths as they must be; anything else is ignored. */
static void other_kinds_of_arp_are_ignored(void **state)
{
        static const struct {
                int at;
                uint8_t value;
        } table[] = {
                {0, 1},    {1, 6}, /* IEEE 802 */
                {2, 0x86}, {2, 0x10} /* RFC 893: a trailer's */,
                {3, 1},    {4, 5},
                {4, 20},   {5, 16},
                {5, 0},    {6, 1},
                {7, 0},    {7, 3} /* RARP */,
                {7, 8},
        };
        struct scene *s = *state;

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                uint8_t p[ETHER_MIN_PKT];
                size_t n = build_(p, (struct arp_scene_pkt){0});

                p[table[i].at] = table[i].value;
                assert_int_equal(arp_input(&s->a, p, n, s->now), DROP_ARP_FORMAT);
        }
        assert_int_equal(state_of(s, PEER), ARP_FREE);
        expect_silence(s);
}

static void a_short_packet_is_dropped_and_padding_ignored(void **state)
{
        struct scene *s = *state;

        for (uint32_t len = 1; len < 28; len++)
                assert_int_equal(arrives(s, .len = len), DROP_ARP_SHORT);
        expect_silence(s);
        for (uint32_t len = 28; len <= ETHER_MIN_PKT; len++) {
                s->now += NS_PER_S;
                assert_int_equal(arrives(s, .len = len), DROP_NONE);
                expect_sent(s, .op = REPLY, .tha = PEER_LL, .to = PEER_LL);
        }
}

/* A sender is one host: no broadcast, group, loopback or class E address, and not 0.0.0.0 but in
 * a probe. */
static void who_cannot_be_a_sender_is_not_believed(void **state)
{
        static const uint32_t table[] = {0xffffffff, 0x0a0000ff, 0xe0000001,
                                         0x7f000001, 0xf0000001, 0x00000007};
        struct scene *s = *state;

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                assert_int_equal(arrives(s, .spa = table[i]), DROP_ARP_SENDER);
                assert_int_equal(arrives(s, .op = REPLY, .spa = table[i]), DROP_ARP_SENDER);
                assert_int_equal(state_of(s, table[i]), ARP_FREE);
        }
        assert_int_equal(arrives(s, .op = REPLY, .spa = ZERO), DROP_ARP_SENDER);
        assert_int_equal(arrives(s, .sha = ALL), DROP_ARP_SENDER);
        expect_silence(s);
}

static void a_group_or_nobody_is_no_link_address(void **state)
{
        struct scene *s = *state;
        uint8_t p[ETHER_MIN_PKT];
        size_t n = build_(p, (struct arp_scene_pkt){0});

        ether_multicast_v4(0xe0000001, p + 8);
        assert_int_equal(arp_input(&s->a, p, n, s->now), DROP_ARP_SENDER);
        memset(p + 8, 0, 6);
        assert_int_equal(arp_input(&s->a, p, n, s->now), DROP_ARP_SENDER);
        assert_int_equal(state_of(s, PEER), ARP_FREE);
}

static void a_packet_of_our_own_is_ignored(void **state)
{
        struct scene *s = *state;

        assert_int_equal(arrives(s, .spa = US, .sha = OUR_LL), DROP_ARP_OWN);
        assert_int_equal(arrives(s, .spa = PEER, .sha = OUR_LL), DROP_ARP_OWN);
        assert_int_equal(arrives(s, .spa = ZERO, .sha = OUR_LL), DROP_ARP_OWN);
        assert_int_equal(arp_addr_state(&s->a, US), ARP_ADDR_BOUND);
        expect_silence(s);
}

/* ---- answering ---- */

/* RFC 826: a request for us is answered to the one who asks, who is remembered. */
static void a_request_for_us_is_answered_and_its_sender_remembered(void **state)
{
        struct scene *s = *state;

        assert_int_equal(arrives(s), DROP_NONE);
        expect_sent(s, .op = REPLY, .tpa = PEER, .tha = PEER_LL, .to = PEER_LL);
        expect_silence(s);
        assert_int_equal(state_of(s, PEER), ARP_STALE);
        resolve(s, PEER, 0, PEER_LL);
        assert_int_equal(s->cnt.n[COUNT_ARP_REPLY], 1);
}

static void a_request_for_others_is_not_answered(void **state)
{
        struct scene *s = *state;

        assert_int_equal(arrives(s, .tpa = OTHER), DROP_ARP_NOT_OURS);
        assert_int_equal(arrives(s, .tpa = PEER), DROP_ARP_NOT_OURS); /* gratuitous */
        assert_int_equal(state_of(s, PEER), ARP_FREE);
        expect_silence(s);
}

/* Only addresses in use: not one that is being probed for, not one that was lost. */
static void an_address_not_in_use_is_not_answered_for(void **state)
{
        struct scene *s = *state;

        assert_int_equal(arp_addr_add(&s->a, 0x0a000009, 24, true, s->now), 0);
        assert_int_equal(arrives(s, .tpa = 0x0a000009), DROP_ARP_NOT_OURS);
        assert_int_equal(arrives(s, .spa = 0x0a000009), DROP_ARP_CONFLICT);
        expect_addr(s, 0x0a000009, ARP_ADDR_LOST);
        assert_int_equal(arrives(s, .tpa = 0x0a000009), DROP_ARP_NOT_OURS);
        expect_silence(s);
}

/* RFC 5227 §2.1.1: a probe for our address is answered too, which tells the other. */
static void a_probe_for_us_is_answered(void **state)
{
        struct scene *s = *state;

        assert_int_equal(arrives(s, .spa = ZERO), DROP_NONE);
        expect_sent(s, .op = REPLY, .tpa = ZERO, .tha = PEER_LL, .to = PEER_LL);
        assert_int_equal(s->cache.entries.used, 0);
}

/* A host of another network may ask, but will never be a neighbour. */
static void who_asks_from_another_network_is_answered_and_not_remembered(void **state)
{
        struct scene *s = *state;

        assert_int_equal(arrives(s, .spa = FAR), DROP_NONE);
        expect_sent(s, .op = REPLY, .tpa = FAR, .tha = PEER_LL, .to = PEER_LL);
        assert_int_equal(state_of(s, FAR), ARP_FREE);
}

/* Answers are limited; who is not answered is not told so. Those we talk to have a share of
 * their own. */
static void a_flood_of_requests_is_answered_in_part(void **state)
{
        struct scene *s = *state;
        struct arp_out out;
        unsigned replies = 0;

        make_reachable(s, OTHER, 3);
        for (uint32_t i = 0; i < 10000; i++) {
                s->now += NS_PER_US * 10;
                arrives(s, .spa = 0x0a000010 + i % 100, .sha = 0x10);
                while (arp_output(&s->a, &out)) {
                        replies += out.what == ARP_OUT_SEND;
                        arp_output_done(&s->a, &out, s->now);
                }
        }
        assert_in_range(replies, 290, 310); /* a burst of 200, and 100 ms at one a millisecond */
        assert_int_equal(arrives(s, .spa = 0x0a000010, .sha = 0x10), DROP_ARP_RATE);
        assert_int_equal(arrives(s, .spa = OTHER, .sha = 3), DROP_NONE);
        expect_sent(s, .op = REPLY, .tpa = OTHER, .tha = 3, .to = 3);
}

static void answers_that_cannot_be_sent_are_bounded(void **state)
{
        struct scene *s = *state;
        unsigned n = 0;

        while (arrives(s, .spa = 0x0a000010 + n, .sha = 0x10) == DROP_NONE)
                n++;
        assert_int_equal(n, ARP_REPLIES);
        expect_sent(s, .op = REPLY, .tpa = 0x0a000010, .tha = 0x10, .to = 0x10);
}

/* ---- learning ---- */

/* RFC 826: "merge": whoever is in the table is believed where it says it is, before the operation
 * is looked at. */
static void a_neighbour_that_moved_is_found_by_any_packet_of_it(void **state)
{
        static const struct arp_scene_pkt table[] = {
                {.op = REQUEST, .sha = 50, .tpa = PEER}, /* gratuitous request: an announcement */
                {.op = REPLY, .sha = 50, .tpa = PEER, .tha = ALL}, /* gratuitous reply */
                {.op = REPLY, .sha = 50, .tha = OUR_LL},  /* a reply that nobody asked for */
                {.op = REQUEST, .sha = 50, .tpa = OTHER}, /* it asks for somebody else */
        };

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                void *fresh;
                struct scene *s;
                struct arp_ref ref;

                scene_setup(&fresh);
                s = fresh;
                ref = make_reachable(s, PEER, PEER_LL);
                advance(s, 3 * NS_PER_S);
                assert_int_equal(arrives_(s, table[i]), DROP_NONE);
                expect_silence(s);
                /* Whoever remembered it finds out at once. */
                assert_false(arp_ref_good(&s->a, ref));
                assert_int_equal(state_of(s, PEER), ARP_STALE);
                resolve(s, PEER, 0, 50);
                assert_int_equal(s->cnt.n[COUNT_ARP_CHANGED], 1);
                wait_output(s, 6 * NS_PER_S);
                expect_poll(s, PEER, 50); /* believed, and verified */
                scene_teardown(&fresh);
        }
}

/* No entry is ever made by what nobody asked for. */
static void unsolicited_packets_make_no_entry(void **state)
{
        struct scene *s = *state;

        assert_int_equal(arrives(s, .op = REPLY, .tha = OUR_LL), DROP_ARP_UNSOLICITED);
        assert_int_equal(arrives(s, .op = REPLY, .tpa = PEER, .tha = ALL), DROP_ARP_UNSOLICITED);
        assert_int_equal(arrives(s, .op = REQUEST, .tpa = PEER), DROP_ARP_NOT_OURS);
        assert_int_equal(s->cache.entries.used, 0);
        expect_silence(s);
}

/* Two that claim one address move it at most once in the lock time. */
static void two_that_fight_for_an_address_do_not_flip_it(void **state)
{
        struct scene *s = *state;

        make_reachable(s, PEER, PEER_LL);
        assert_int_equal(arrives(s, .op = REPLY, .sha = 66, .tha = OUR_LL), DROP_ARP_FLIP);
        resolve(s, PEER, 0, PEER_LL);
        for (int i = 0; i < 1000; i++) {
                advance(s, 10 * NS_PER_MS);
                arrives(s, .op = REPLY, .tpa = PEER, .sha = i % 2 ? 66 : 67);
        }
        assert_in_range(s->cnt.n[COUNT_ARP_CHANGED], 9, 10);
}

/* The same address again is no news and proves nothing: only an answer to our own request does. */
static void unsolicited_packets_do_not_confirm(void **state)
{
        struct scene *s = *state;

        make_reachable(s, PEER, PEER_LL);
        advance(s, 46 * NS_PER_S);
        assert_int_equal(arrives(s, .op = REPLY, .tha = OUR_LL), DROP_NONE);
        assert_int_equal(state_of(s, PEER), ARP_STALE);
        assert_int_equal(arrives(s), DROP_NONE);
        expect_sent(s, .op = REPLY, .tpa = PEER, .tha = PEER_LL, .to = PEER_LL);
        assert_int_equal(state_of(s, PEER), ARP_STALE);
        resolve(s, PEER, 0, PEER_LL);
        wait_output(s, 6 * NS_PER_S);
        assert_int_equal(arrives(s, .op = REPLY, .tpa = PEER, .tha = ALL), DROP_NONE);
        expect_poll(s, PEER, PEER_LL);
}

/* Both sides ask at once: their request tells us where they are, their answer that they hear us. */
static void requests_that_cross_resolve_both(void **state)
{
        struct scene *s = *state;

        send_waiting(s, PEER, 33, 3);
        expect_request(s, PEER);
        assert_int_equal(arrives(s), DROP_NONE);
        expect_sent(s, .op = REPLY, .tpa = PEER, .tha = PEER_LL, .to = PEER_LL);
        expect_released(s, PEER, PEER_LL, 33, 3);
        assert_int_equal(state_of(s, PEER), ARP_DELAY);
        assert_int_equal(arrives(s, .op = REPLY, .tha = OUR_LL), DROP_NONE);
        assert_int_equal(state_of(s, PEER), ARP_REACHABLE);
        expect_silence(s);
}

static void who_failed_and_shows_up_is_there_again(void **state)
{
        struct scene *s = *state;

        resolve(s, PEER, -EINPROGRESS, 0);
        for (int i = 0; i < 3; i++) {
                expect_request(s, PEER);
                if (i < 2)
                        wait_output(s, NS_PER_S + WHEEL_TICK);
        }
        advance(s, NS_PER_S + WHEEL_TICK);
        resolve(s, PEER, -EHOSTUNREACH, 0);
        assert_int_equal(arrives(s, .op = REQUEST, .tpa = PEER), DROP_NONE);
        resolve(s, PEER, 0, PEER_LL);
}

/* RFC 5227 §2.4: a host that uses our address is never taken for a neighbour. */
static void our_own_address_is_never_learnt(void **state)
{
        struct scene *s = *state;

        assert_int_equal(arrives(s, .spa = US, .tpa = US, .sha = 66), DROP_ARP_CONFLICT);
        assert_int_equal(arrives(s, .op = REPLY, .spa = US, .sha = 66, .tha = OUR_LL),
                         DROP_ARP_CONFLICT);
        assert_int_equal(state_of(s, US), ARP_FREE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(other_kinds_of_arp_are_ignored),
                TEST(a_short_packet_is_dropped_and_padding_ignored),
                TEST(who_cannot_be_a_sender_is_not_believed),
                TEST(a_group_or_nobody_is_no_link_address),
                TEST(a_packet_of_our_own_is_ignored),
                TEST(a_request_for_us_is_answered_and_its_sender_remembered),
                TEST(a_request_for_others_is_not_answered),
                TEST(an_address_not_in_use_is_not_answered_for),
                TEST(a_probe_for_us_is_answered),
                TEST(who_asks_from_another_network_is_answered_and_not_remembered),
                TEST(a_flood_of_requests_is_answered_in_part),
                TEST(answers_that_cannot_be_sent_are_bounded),
                TEST(a_neighbour_that_moved_is_found_by_any_packet_of_it),
                TEST(unsolicited_packets_make_no_entry),
                TEST(two_that_fight_for_an_address_do_not_flip_it),
                TEST(unsolicited_packets_do_not_confirm),
                TEST(requests_that_cross_resolve_both),
                TEST(who_failed_and_shows_up_is_there_again),
                TEST(our_own_address_is_never_learnt),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
