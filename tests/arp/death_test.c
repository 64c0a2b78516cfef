/*
 * A process dies at every store of every operation of ARP. What it left is recovered as another
 * process has it mapped: the neighbours that had nothing to do with it are where they were, no link
 * address is half of one and half of another, the one concerned can be reached again, and our
 * addresses come to an end of their way.
 */
#include <errno.h>

#include "tests/arp/scene.h"
#include "tests/steps.h"

#define MOVED 50 /* the link address that PEER moves to */

struct segment {
        struct arp_cache cache;
        struct counters cnt;
        nstime now;
        struct arp_ref ref; /* of PEER */
};

static struct arp view(struct segment *g)
{
        return (struct arp){&g->cache, &g->cnt};
}

/* All bytes tell whose it is: a torn one is seen. */
static void ll_full(int n, uint8_t ll[6])
{
        memset(ll, n, 6);
        ll[0] = 2;
}

static void arrive(struct segment *g, uint16_t op, uint32_t spa, int sha, uint32_t tpa)
{
        struct arp a = view(g);
        uint8_t p[ETHER_MIN_PKT];
        size_t n = build_(p, (struct arp_scene_pkt){.op = op, .spa = spa, .tpa = tpa});

        ll_full(sha, p + 8);
        arp_input(&a, p, n, g->now);
}

static bool send_one(struct segment *g)
{
        struct arp a = view(g);
        struct arp_out out;

        if (!arp_output(&a, &out))
                return false;
        arp_output_done(&a, &out, g->now);
        return true;
}

static void send_all(struct segment *g)
{
        while (send_one(g))
                ;
}

static int resolve_one(struct segment *g, uint32_t ip, uint8_t ll[ARP_LL_MAX])
{
        struct arp a = view(g);

        return arp_resolve(&a, ip, g->now, &g->ref, ll);
}

static void hold_one(struct segment *g)
{
        static const uint8_t pkt[1200];
        struct arp a = view(g);

        arp_hold(&a, g->ref, pkt, 40, pkt + 40, 1160);
}

/* ---- what was there ---- */

/* US is bound; OTHER reachable at 3; 10.0.0.9 static at 9; PEER not known. */
static struct segment *furnish(void)
{
        static const uint8_t seed[16] = "seed of no value";
        struct segment *g = steps_memory(sizeof *g);
        struct arp a = view(g);
        struct arp_config cfg;
        uint8_t ll[ARP_LL_MAX];

        ll_full(OUR_LL, ll);
        arp_config_default(&cfg, ll);
        g->now = T0;
        arp_format(&g->cache, &cfg, seed, g->now);
        assert_int_equal(arp_addr_add(&a, US, 24, false, g->now), 0);
        send_all(g);
        g->now += ARP_ANNOUNCE_INTERVAL;
        arp_expire(&a, g->now);
        send_all(g);
        resolve_one(g, OTHER, ll);
        send_all(g);
        arrive(g, REPLY, OTHER, 3, US);
        ll_full(9, ll);
        assert_int_equal(arp_set(&a, 0x0a000009, ll, true, g->now), 0);
        arp_check(&a);
        return g;
}

static void peer_asked_for(struct segment *g)
{
        uint8_t ll[ARP_LL_MAX];

        assert_int_equal(resolve_one(g, PEER, ll), -EINPROGRESS);
        hold_one(g);
        hold_one(g);
        send_all(g);
}

static void peer_known(struct segment *g)
{
        peer_asked_for(g);
        arrive(g, REPLY, PEER, PEER_LL, US);
        send_all(g);
        g->now += 3 * NS_PER_S;
}

/* ---- what must be there ---- */

static void check_ll(const uint8_t *got, int n)
{
        uint8_t ll[6];

        ll_full(n, ll);
        assert_memory_equal(got, ll, 6);
}

static void check_bystanders(struct segment *g)
{
        uint8_t ll[ARP_LL_MAX];

        assert_int_equal(resolve_one(g, OTHER, ll), 0);
        check_ll(ll, 3);
        assert_int_equal(resolve_one(g, 0x0a000009, ll), 0);
        check_ll(ll, 9);
}

static void check_no_address_is_torn(struct segment *g)
{
        struct arp a = view(g);
        struct arp_report r;

        for (uint32_t i = 1; i <= ARP_ENTRIES; i++)
                if (arp_walk(&a, i, &r) && r.state >= ARP_STALE) {
                        assert_true(r.ll[1] != 0);
                        check_ll(r.ll, r.ll[1]);
                }
}

static void let_time_pass(struct segment *g, nstime by)
{
        struct arp a = view(g);

        for (nstime end = g->now + by; g->now < end; g->now += 100 * NS_PER_MS) {
                send_all(g);
                arp_expire(&a, g->now);
        }
        send_all(g);
}

/* Whoever owns the addresses is told of all of them again: it may not have heard. */
static void check_addresses_are_told_of(struct segment *g)
{
        struct arp a = view(g);
        struct arp_out out;
        struct arp_addr ad;
        uint32_t told = 0;

        for (; arp_output(&a, &out); arp_output_done(&a, &out, g->now))
                for (uint32_t i = 0; i < ARP_ADDRS; i++)
                        if (out.what == ARP_OUT_ADDR && arp_addr_walk(&a, i, &ad) &&
                            ad.ip == out.ip)
                                told |= 1u << i;
        for (uint32_t i = 0; i < ARP_ADDRS; i++)
                if (arp_addr_walk(&a, i, &ad) &&
                    (ad.state >= ARP_ADDR_ANNOUNCING || ad.state == ARP_ADDR_LOST))
                        assert_true(told >> i & 1);
}

/* PEER answers again, whatever state its entry is in. */
static void check_peer_is_reached(struct segment *g)
{
        uint8_t ll[ARP_LL_MAX];
        int err = -1;

        for (int i = 0; i < 8 && err != 0; i++) {
                err = resolve_one(g, PEER, ll);
                if (err == -EINPROGRESS) {
                        let_time_pass(g, NS_PER_S + WHEEL_TICK);
                        arrive(g, REPLY, PEER, MOVED, US);
                } else if (err != 0) {
                        let_time_pass(g, NS_PER_S);
                }
        }
        assert_int_equal(err, 0);
        assert_true(ll[1] == MOVED || ll[1] == PEER_LL);
}

static void after(void *copy)
{
        struct segment *g = copy;
        struct arp a = view(g);
        enum arp_addr_state s;

        arp_recover(&a, g->now);
        arp_check(&a);
        assert_false(arp_ref_good(&a, g->ref));
        check_no_address_is_torn(g);
        s = arp_addr_state(&a, US);
        assert_true(s >= ARP_ADDR_ANNOUNCING);
        check_addresses_are_told_of(g);
        check_bystanders(g);
        check_peer_is_reached(g);
        arp_check(&a);
        let_time_pass(g, 70 * NS_PER_S);
        arp_check(&a);
        for (uint32_t i = 0; i < ARP_ADDRS; i++) {
                struct arp_addr ad;
                if (arp_addr_walk(&a, i, &ad))
                        assert_true(ad.state == ARP_ADDR_BOUND || ad.state == ARP_ADDR_LOST);
        }
}

static void die(struct segment *g, void (*act)(void *))
{
        steps_die(g, sizeof *g, act, after);
        steps_free(g, sizeof *g);
}

/* ---- what is done when death comes ---- */

static void does_resolve(void *mem)
{
        uint8_t ll[ARP_LL_MAX];

        resolve_one(mem, PEER, ll);
}

static void does_hold(void *mem)
{
        hold_one(mem);
}

static void does_send(void *mem)
{
        send_one(mem);
}

static void does_reply(void *mem)
{
        arrive(mem, REPLY, PEER, PEER_LL, US);
}

static void does_move(void *mem)
{
        arrive(mem, REQUEST, PEER, MOVED, PEER);
}

static void does_ask(void *mem)
{
        arrive(mem, REQUEST, PEER, PEER_LL, US);
        send_one(mem);
}

static void does_expire(void *mem)
{
        struct segment *g = mem;
        struct arp a = view(g);

        arp_expire(&a, g->now);
}

static void does_set(void *mem)
{
        struct segment *g = mem;
        struct arp a = view(g);
        uint8_t ll[6];

        ll_full(MOVED, ll);
        arp_set(&a, PEER, ll, true, g->now);
}

static void does_del(void *mem)
{
        struct segment *g = mem;
        struct arp a = view(g);

        arp_del(&a, PEER);
}

static void does_confirm(void *mem)
{
        struct segment *g = mem;
        struct arp a = view(g);

        arp_confirm(&a, g->ref, g->now);
}

static void does_add_address(void *mem)
{
        struct segment *g = mem;
        struct arp a = view(g);

        arp_addr_add(&a, US + 100, 24, true, g->now);
        g->now += NS_PER_S;
        arp_expire(&a, g->now);
        send_one(g);
}

static void does_announce(void *mem)
{
        struct segment *g = mem;
        struct arp a = view(g);

        arp_addr_add(&a, US + 100, 24, false, g->now);
        send_one(g);
        send_one(g);
        g->now += ARP_ANNOUNCE_INTERVAL;
        arp_expire(&a, g->now);
        send_one(g);
        send_one(g);
}

static void does_defend(void *mem)
{
        arrive(mem, REQUEST, US, 66, OTHER);
        send_one(mem);
}

static void does_lose(void *mem)
{
        arrive(mem, REQUEST, US + 100, 66, OTHER);
        send_one(mem);
}

static void does_link_up(void *mem)
{
        struct segment *g = mem;
        struct arp a = view(g);

        arp_link_up(&a, g->now);
}

static void while_a_neighbour_is_looked_for(void **state)
{
        die(furnish(), does_resolve);
}

static void while_a_packet_begins_to_wait(void **state)
{
        struct segment *g = furnish();

        peer_asked_for(g);
        die(g, does_hold);
}

static void while_a_packet_gives_way(void **state)
{
        struct segment *g = furnish();

        peer_asked_for(g);
        for (uint32_t i = 0; i < ARP_HOLD_PKTS; i++)
                hold_one(g);
        die(g, does_hold);
}

static void while_an_answer_comes(void **state)
{
        struct segment *g = furnish();

        peer_asked_for(g);
        die(g, does_reply);
}

static void while_a_waiting_packet_goes(void **state)
{
        struct segment *g = furnish();

        peer_asked_for(g);
        arrive(g, REPLY, PEER, PEER_LL, US);
        die(g, does_send);
}

static void while_a_request_is_sent(void **state)
{
        struct segment *g = furnish();
        uint8_t ll[ARP_LL_MAX];

        resolve_one(g, PEER, ll);
        die(g, does_send);
}

static void while_a_neighbour_moves(void **state)
{
        struct segment *g = furnish();

        peer_known(g);
        die(g, does_move);
}

static void while_a_neighbour_asks(void **state)
{
        die(furnish(), does_ask);
}

static void while_a_neighbour_ages(void **state)
{
        struct segment *g = furnish();

        peer_known(g);
        g->now += 50 * NS_PER_S;
        die(g, does_expire);
}

static void while_a_neighbour_is_polled(void **state)
{
        struct segment *g = furnish();
        uint8_t ll[ARP_LL_MAX];

        peer_known(g);
        let_time_pass(g, 50 * NS_PER_S);
        assert_int_equal(resolve_one(g, PEER, ll), 0);
        g->now += 6 * NS_PER_S;
        die(g, does_expire);
}

static void while_a_neighbour_fails(void **state)
{
        struct segment *g = furnish();

        peer_asked_for(g);
        let_time_pass(g, 2900 * NS_PER_MS);
        g->now += 200 * NS_PER_MS;
        die(g, does_expire);
}

static void while_a_failed_neighbour_is_forgotten(void **state)
{
        struct segment *g = furnish();

        peer_asked_for(g);
        let_time_pass(g, 3500 * NS_PER_MS);
        g->now += 1500 * NS_PER_MS;
        die(g, does_expire);
}

static void while_an_entry_is_set(void **state)
{
        struct segment *g = furnish();

        peer_asked_for(g);
        die(g, does_set);
}

static void while_an_entry_is_deleted(void **state)
{
        struct segment *g = furnish();

        peer_asked_for(g);
        die(g, does_del);
}

static void while_an_entry_is_confirmed(void **state)
{
        struct segment *g = furnish();
        uint8_t ll[ARP_LL_MAX];

        peer_known(g);
        let_time_pass(g, 50 * NS_PER_S);
        resolve_one(g, PEER, ll);
        die(g, does_confirm);
}

static void while_an_entry_gives_way(void **state)
{
        struct segment *g = furnish();
        struct arp a = view(g);

        g->cache.addr[0].prefix = 8;
        for (uint32_t i = 0; g->cache.entries.used < ARP_ENTRIES; i++)
                arrive(g, REQUEST, 0x0a010001 + i, 3, 0x0a000001);
        arp_check(&a);
        die(g, does_resolve);
}

static void while_an_address_is_probed_for(void **state)
{
        die(furnish(), does_add_address);
}

static void while_an_address_is_announced(void **state)
{
        die(furnish(), does_announce);
}

static void while_an_address_is_defended(void **state)
{
        die(furnish(), does_defend);
}

static void while_an_address_is_lost(void **state)
{
        struct segment *g = furnish();
        struct arp a = view(g);

        assert_int_equal(arp_addr_add(&a, US + 100, 24, true, g->now), 0);
        die(g, does_lose);
}

static void while_the_link_comes_up(void **state)
{
        struct segment *g = furnish();

        peer_known(g);
        die(g, does_link_up);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(while_a_neighbour_is_looked_for),
                cmocka_unit_test(while_a_packet_begins_to_wait),
                cmocka_unit_test(while_a_packet_gives_way),
                cmocka_unit_test(while_an_answer_comes),
                cmocka_unit_test(while_a_waiting_packet_goes),
                cmocka_unit_test(while_a_request_is_sent),
                cmocka_unit_test(while_a_neighbour_moves),
                cmocka_unit_test(while_a_neighbour_asks),
                cmocka_unit_test(while_a_neighbour_ages),
                cmocka_unit_test(while_a_neighbour_is_polled),
                cmocka_unit_test(while_a_neighbour_fails),
                cmocka_unit_test(while_a_failed_neighbour_is_forgotten),
                cmocka_unit_test(while_an_entry_is_set),
                cmocka_unit_test(while_an_entry_is_deleted),
                cmocka_unit_test(while_an_entry_is_confirmed),
                cmocka_unit_test(while_an_entry_gives_way),
                cmocka_unit_test(while_an_address_is_probed_for),
                cmocka_unit_test(while_an_address_is_announced),
                cmocka_unit_test(while_an_address_is_defended),
                cmocka_unit_test(while_an_address_is_lost),
                cmocka_unit_test(while_the_link_comes_up),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
