/* Routes: RFC 1122 §3.3.1 and §3.3.4, RFC 4632 §5.1 (longest prefix), RFC 6724 §5 (sources). */
#include <errno.h>
#include <stdlib.h>

#include "ip/route.h"
#include "base/prng.h"
#include "tests/unit.h"

#define IP(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))
#define ETH            (ROUTE_IF_UP | ROUTE_IF_BROADCAST)
#define LO             (ROUTE_IF_UP | ROUTE_IF_LOCAL)
#define T0             (100 * NS_PER_S)

/* 1: 10.0.0.1/24; 2: 192.168.1.1/24 and .2; 3: loopback. Default by 10.0.0.254. */
static int setup(void **state)
{
        static const uint8_t seed[16] = "seed of no value";
        struct route_table *t = malloc(sizeof *t);

        assert_non_null(t);
        route_format(t, seed);
        assert_int_equal(route_if_set(t, 1, ETH, 1500), 0);
        assert_int_equal(route_if_set(t, 2, ETH, 1500), 0);
        assert_int_equal(route_if_set(t, 3, LO, 65535), 0);
        assert_int_equal(route_addr_add(t, 1, IP(10, 0, 0, 1), 24), 0);
        assert_int_equal(route_addr_add(t, 2, IP(192, 168, 1, 1), 24), 0);
        assert_int_equal(route_addr_add(t, 2, IP(192, 168, 1, 2), 24), 0);
        assert_int_equal(route_addr_add(t, 3, IP(127, 0, 0, 1), 8), 0);
        assert_int_equal(route_add(t, &(struct route){.gateway = IP(10, 0, 0, 254), .ifindex = 1}),
                         0);
        route_check(t);
        *state = t;
        return 0;
}

static int teardown(void **state)
{
        route_check(*state);
        free(*state);
        return 0;
}

static struct route_result look_(struct route_table *t, struct route_key key, nstime now,
                                 const char *file, int line)
{
        struct route_result res, again;

        _assert_int_equal(route_lookup(t, &key, now, &res), 0, file, line);
        /* From memory: the same. */
        _assert_int_equal(route_lookup(t, &key, now, &again), 0, file, line);
        _assert_memory_equal(&res, &again, sizeof res, file, line);
        _assert_true(route_good(t, &res), "route_good", file, line);
        return res;
}
#define look_key(t, now, ...) look_(t, (struct route_key){__VA_ARGS__}, now, __FILE__, __LINE__)
#define look(t, d)            look_key(t, T0, .dst = (d))

static int look_err(struct route_table *t, struct route_key key)
{
        struct route_result res;

        return route_lookup(t, &key, T0, &res);
}

/* ---- local or remote: RFC 1122 §3.3.1.1, §3.3.1.2 ---- */

static void the_mask_says_what_is_on_the_link(void **state)
{
        struct route_result r = look(*state, IP(10, 0, 0, 77));

        assert_int_equal(r.kind, ROUTE_TO_HOST);
        assert_int_equal(r.next_hop, IP(10, 0, 0, 77));
        assert_int_equal(r.ifindex, 1);
        assert_int_equal(r.src, IP(10, 0, 0, 1));
        assert_int_equal(r.prefix, 24);
        assert_false(r.gateway);
}

static void what_is_not_on_a_link_goes_to_the_default_gateway(void **state)
{
        struct route_result r = look(*state, IP(8, 8, 8, 8));

        assert_int_equal(r.next_hop, IP(10, 0, 0, 254));
        assert_true(r.gateway);
        assert_int_equal(r.prefix, 0);
        assert_int_equal(r.src, IP(10, 0, 0, 1));
}

/* RFC 1122 §3.3.1.1: a host MUST operate without gateways. */
static void without_a_gateway_the_links_still_work(void **state)
{
        struct route_table *t = *state;

        assert_int_equal(route_del(t, &(struct route){.gateway = IP(10, 0, 0, 254), .ifindex = 1}),
                         0);
        assert_int_equal(look(t, IP(10, 0, 0, 9)).next_hop, IP(10, 0, 0, 9));
        assert_int_equal(look_err(t, (struct route_key){.dst = IP(8, 8, 8, 8)}), -ENETUNREACH);
}

static void the_longest_prefix_wins(void **state)
{
        struct route_table *t = *state;
        const struct route net = {
                .dst = IP(172, 16, 0, 0), .prefix = 12, .gateway = IP(10, 0, 0, 253), .ifindex = 1};
        const struct route sub = {.dst = IP(172, 16, 5, 0),
                                  .prefix = 24,
                                  .gateway = IP(192, 168, 1, 9),
                                  .ifindex = 2,
                                  .metric = 999};
        const struct route host = {
                .dst = IP(172, 16, 5, 5), .prefix = 32, .gateway = IP(10, 0, 0, 252), .ifindex = 1};

        assert_int_equal(route_add(t, &sub), 0);
        assert_int_equal(route_add(t, &net), 0);
        assert_int_equal(route_add(t, &host), 0);
        assert_int_equal(look(t, IP(172, 16, 5, 5)).next_hop, host.gateway);
        assert_int_equal(look(t, IP(172, 16, 5, 6)).next_hop, sub.gateway);
        assert_int_equal(look(t, IP(172, 31, 5, 6)).next_hop, net.gateway);
        assert_int_equal(look(t, IP(172, 32, 5, 6)).next_hop, IP(10, 0, 0, 254));
        assert_int_equal(route_del(t, &host), 0);
        assert_int_equal(look(t, IP(172, 16, 5, 5)).next_hop, sub.gateway);
}

static void a_rejecting_route_says_how(void **state)
{
        static const struct {
                uint8_t type;
                int err;
        } table[] = {{ROUTE_UNREACHABLE, -EHOSTUNREACH},
                     {ROUTE_PROHIBIT, -EACCES},
                     {ROUTE_BLACKHOLE, -EINVAL}};

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                struct route r = {.dst = IP(172, 16, 0, 0), .prefix = 12, .type = table[i].type};

                assert_int_equal(route_add(*state, &r), 0);
                assert_int_equal(look_err(*state, (struct route_key){.dst = IP(172, 20, 1, 1)}),
                                 table[i].err);
                assert_int_equal(route_del(*state, &r), 0);
        }
}

/* ---- ties ---- */

static void ties_are_broken_the_same_way_in_any_order(void **state)
{
        const struct route alike[] = {
                {.dst = IP(172, 16, 0, 0),
                 .prefix = 12,
                 .metric = 5,
                 .gateway = IP(192, 168, 1, 8),
                 .ifindex = 2},
                {.dst = IP(172, 16, 0, 0),
                 .prefix = 12,
                 .metric = 5,
                 .gateway = IP(10, 0, 0, 8),
                 .ifindex = 1},
                {.dst = IP(172, 16, 0, 0),
                 .prefix = 12,
                 .metric = 5,
                 .gateway = IP(10, 0, 0, 7),
                 .ifindex = 1},
                {.dst = IP(172, 16, 0, 0),
                 .prefix = 12,
                 .metric = 4,
                 .gateway = IP(192, 168, 1, 9),
                 .ifindex = 2},
        };
        static const uint8_t orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}};
        struct route_table *t = *state;

        for (size_t o = 0; o < ARRAY_LEN(orders); o++) {
                for (int i = 0; i < 4; i++)
                        assert_int_equal(route_add(t, &alike[orders[o][i]]), 0);
                /* Smallest metric. */
                assert_int_equal(look(t, IP(172, 16, 1, 1)).next_hop, IP(192, 168, 1, 9));
                route_del(t, &alike[3]);
                /* Interface, then gateway. */
                assert_int_equal(look(t, IP(172, 16, 1, 1)).next_hop, IP(10, 0, 0, 7));
                /* a source of the other interface decides between equals */
                assert_int_equal(
                        look_key(t, T0, .dst = IP(172, 16, 1, 1), .src = IP(192, 168, 1, 2))
                                .next_hop,
                        IP(192, 168, 1, 8));
                for (int i = 0; i < 3; i++)
                        assert_int_equal(route_del(t, &alike[i]), 0);
                route_check(t);
        }
}

/* ---- interfaces ---- */

static void an_interface_that_is_down_is_not_used(void **state)
{
        struct route_table *t = *state;
        struct route_result before = look(t, IP(10, 0, 0, 77));

        assert_int_equal(route_if_set(t, 1, ROUTE_IF_BROADCAST, 1500), 0);
        assert_false(route_good(t, &before));
        assert_int_equal(look_err(t, (struct route_key){.dst = IP(10, 0, 0, 77)}), -ENETUNREACH);
        assert_int_equal(look(t, IP(10, 0, 0, 1)).kind, ROUTE_TO_LOCAL);
        assert_int_equal(route_if_set(t, 1, ETH, 1500), 0);
        assert_int_equal(look(t, IP(10, 0, 0, 77)).ifindex, 1);
}

static void an_interface_that_goes_takes_all_of_it_along(void **state)
{
        struct route_table *t = *state;
        struct route_report r;
        struct route_addr a;

        assert_int_equal(route_if_set(t, 1, 0, 0), 0);
        route_check(t);
        for (uint32_t i = 0; i <= ROUTE_MAX + 1; i++)
                assert_false(route_walk(t, i, &r) && r.r.ifindex == 1);
        for (uint32_t i = 0; i <= ROUTE_ADDRS; i++)
                assert_false(route_addr_walk(t, i, &a) && a.ifindex == 1);
        assert_int_equal(look_err(t, (struct route_key){.dst = IP(8, 8, 8, 8)}), -ENETUNREACH);
}

static void a_socket_may_ask_for_an_interface(void **state)
{
        struct route_table *t = *state;
        struct route r = {.gateway = IP(192, 168, 1, 254), .ifindex = 2, .metric = 100};

        assert_int_equal(look_err(t, (struct route_key){.dst = IP(8, 8, 8, 8), .oif = 2}),
                         -ENETUNREACH);
        assert_int_equal(route_add(t, &r), 0);
        assert_int_equal(look_key(t, T0, .dst = IP(8, 8, 8, 8), .oif = 2).next_hop, r.gateway);
        assert_int_equal(look(t, IP(8, 8, 8, 8)).next_hop, IP(10, 0, 0, 254));
}

/* ---- our own, broadcasts, groups ---- */

static void our_own_addresses_are_local(void **state)
{
        static const uint32_t table[] = {IP(10, 0, 0, 1), IP(192, 168, 1, 2), IP(127, 0, 0, 1),
                                         IP(127, 9, 9, 9)};

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                struct route_result r = look(*state, table[i]);

                assert_int_equal(r.kind, ROUTE_TO_LOCAL);
                assert_int_equal(r.src, table[i]);
                assert_int_equal(r.next_hop, table[i]);
        }
        assert_int_equal(route_owner(*state, IP(10, 0, 0, 1)), 1);
        assert_int_equal(route_owner(*state, IP(127, 1, 2, 3)), 3);
        assert_int_equal(route_owner(*state, IP(10, 0, 0, 2)), 0);
}

/* RFC 1122 §3.3.6: all ones, limited and of a network. RFC 3021: none on 31 bits. */
static void broadcasts_go_to_the_link(void **state)
{
        struct route_table *t = *state;
        struct route_result r = look(t, IP(192, 168, 1, 255));

        assert_int_equal(r.kind, ROUTE_TO_BROADCAST);
        assert_int_equal(r.ifindex, 2);
        r = look(t, UINT32_MAX);
        assert_int_equal(r.kind, ROUTE_TO_BROADCAST);
        assert_int_equal(r.ifindex, 1); /* by the default route */
        r = look_key(t, T0, .dst = UINT32_MAX, .src = IP(192, 168, 1, 2));
        assert_int_equal(r.ifindex, 2);
        assert_int_equal(r.src, IP(192, 168, 1, 2));
        r = look_key(t, T0, .dst = UINT32_MAX, .oif = 2);
        assert_int_equal(r.ifindex, 2);
        assert_int_equal(r.src, IP(192, 168, 1, 1));
        assert_int_equal(look_err(t, (struct route_key){.dst = UINT32_MAX, .oif = 3}),
                         -ENETUNREACH);
        assert_int_equal(route_addr_add(t, 2, IP(172, 16, 0, 0), 31), 0);
        assert_int_equal(look(t, IP(172, 16, 0, 1)).kind, ROUTE_TO_HOST);
}

static void groups_go_to_the_link(void **state)
{
        struct route_table *t = *state;
        struct route r = {.dst = IP(239, 0, 0, 0), .prefix = 8, .ifindex = 2};

        assert_int_equal(look(t, IP(224, 0, 0, 251)).ifindex, 1);
        assert_int_equal(look(t, IP(224, 0, 0, 251)).kind, ROUTE_TO_GROUP);
        assert_int_equal(look(t, IP(224, 0, 0, 251)).next_hop, IP(224, 0, 0, 251));
        assert_int_equal(route_add(t, &r), 0);
        assert_int_equal(look(t, IP(239, 1, 1, 1)).ifindex, 2);
        assert_int_equal(look_key(t, T0, .dst = IP(239, 1, 1, 1), .oif = 1).ifindex, 1);
        route_if_set(t, 1, ROUTE_IF_BROADCAST, 1500);
        assert_int_equal(look(t, IP(224, 0, 0, 251)).ifindex, 2); /* no route: the first that can */
        route_if_set(t, 2, ROUTE_IF_BROADCAST, 1500);
        assert_int_equal(look_err(t, (struct route_key){.dst = IP(224, 0, 0, 251)}), -ENETUNREACH);
}

static void what_is_no_destination_is_refused(void **state)
{
        assert_int_equal(look_err(*state, (struct route_key){.dst = 0}), -EINVAL);
        assert_int_equal(look_err(*state, (struct route_key){.dst = IP(240, 0, 0, 1)}), -EINVAL);
        assert_int_equal(look_err(*state, (struct route_key){.dst = IP(0, 0, 0, 9)}), -EINVAL);
        assert_int_equal(
                look_err(*state, (struct route_key){.dst = IP(8, 8, 8, 8), .src = IP(9, 9, 9, 9)}),
                -EADDRNOTAVAIL);
        route_if_set(*state, 3, 0, 0);
        assert_int_equal(look_err(*state, (struct route_key){.dst = IP(127, 0, 0, 1)}),
                         -ENETUNREACH);
}

/* ---- sources: RFC 1122 §3.3.4.3, RFC 6724 §5 ---- */

static void the_source_is_chosen_by_the_rules(void **state)
{
        struct route_table *t = *state;
        const struct route by2 = {.dst = IP(172, 16, 0, 0),
                                  .prefix = 12,
                                  .gateway = IP(192, 168, 1, 9),
                                  .ifindex = 2};
        struct route pref = {.dst = IP(172, 16, 9, 0),
                             .prefix = 24,
                             .gateway = IP(192, 168, 1, 9),
                             .ifindex = 2,
                             .src = IP(192, 168, 1, 2)};

        /* On the destination's network. */
        assert_int_equal(look(t, IP(192, 168, 1, 77)).src, IP(192, 168, 1, 1));
        assert_int_equal(look_key(t, T0, .dst = IP(192, 168, 1, 77), .src = IP(10, 0, 0, 1)).src,
                         IP(10, 0, 0, 1));
        assert_int_equal(route_add(t, &by2), 0);
        /* On the gateway's network. */
        assert_int_equal(look(t, IP(172, 16, 1, 1)).src, IP(192, 168, 1, 1));
        assert_int_equal(route_add(t, &pref), 0);
        /* As the route says. */
        assert_int_equal(look(t, IP(172, 16, 9, 1)).src, IP(192, 168, 1, 2));
        assert_int_equal(route_addr_add(t, 1, IP(172, 16, 200, 1), 24), 0);
        assert_int_equal(look(t, IP(10, 0, 0, 5)).src, IP(10, 0, 0, 1));
        assert_int_equal(look(t, IP(172, 16, 200, 9)).src, IP(172, 16, 200, 1));
        /* the gateway's network before likeness to the destination: the gateway would have to ask
         * around for the other */
        assert_int_equal(look(t, IP(172, 48, 0, 1)).src, IP(10, 0, 0, 1));
}

static void scopes_do_not_mix(void **state)
{
        struct route_table *t = *state;

        assert_int_equal(route_if_set(t, 4, ETH, 1500), 0);
        assert_int_equal(route_addr_add(t, 4, IP(169, 254, 7, 7), 16), 0);
        assert_int_equal(look(t, IP(169, 254, 1, 1)).src, IP(169, 254, 7, 7));
        /* RFC 6724 rule 2 before rule 5: not the link-local one, though it is on the way out */
        assert_int_equal(
                route_add(t, &(struct route){.dst = IP(5, 0, 0, 0), .prefix = 8, .ifindex = 4}), 0);
        assert_int_equal(look(t, IP(5, 5, 5, 5)).src, IP(10, 0, 0, 1));
        assert_int_equal(route_source(t, 1, IP(8, 8, 8, 8), IP(10, 0, 0, 254)), IP(10, 0, 0, 1));
}

static void without_an_address_there_is_no_source(void **state)
{
        struct route_table *t = *state;

        assert_int_equal(route_addr_del(t, 1, IP(10, 0, 0, 1)), 0);
        assert_int_equal(route_addr_del(t, 2, IP(192, 168, 1, 1)), 0);
        assert_int_equal(route_addr_del(t, 2, IP(192, 168, 1, 2)), 0);
        assert_int_equal(route_source(t, 1, IP(8, 8, 8, 8), IP(10, 0, 0, 254)), 0);
}

/* ---- dead gateways: RFC 1122 §3.3.1.4, §3.3.1.5 ---- */

static void a_dead_gateway_gives_way_to_another(void **state)
{
        struct route_table *t = *state;
        const uint32_t dead = IP(10, 0, 0, 254), other = IP(192, 168, 1, 254), far = IP(8, 8, 8, 8);
        const struct route second = {.gateway = other, .ifindex = 2, .metric = 10};
        struct route_result kept = look(t, far);

        assert_int_equal(route_add(t, &second), 0);
        kept = look(t, far);
        assert_int_equal(kept.next_hop, dead);
        route_gateway_died(t, 1, dead, T0);
        assert_false(route_good(t, &kept)); /* whoever remembered it asks again */
        kept = look(t, far);
        assert_int_equal(kept.next_hop, other);
        route_gateway_died(t, 1, dead, T0 + 1); /* said before */
        route_gateway_died(t, 2, dead, T0 + 1); /* another interface's */
        assert_true(route_good(t, &kept));
        /* not forever */
        assert_int_equal(look_key(t, T0 + ROUTE_DEAD_TIME, .dst = far).next_hop, other);
        assert_int_equal(look_key(t, T0 + ROUTE_DEAD_TIME + 1, .dst = far).next_hop, dead);
        route_gateway_died(t, 1, dead, T0 + 2 * ROUTE_DEAD_TIME);
        route_gateway_died(t, 2, other, T0 + 2 * ROUTE_DEAD_TIME);
        /* both: as if none. */
        assert_int_equal(look_key(t, T0 + 2 * ROUTE_DEAD_TIME, .dst = far).next_hop, dead);
}

static void only_routes_by_that_gateway_are_concerned(void **state)
{
        struct route_table *t = *state;

        route_gateway_died(t, 1, IP(10, 0, 0, 254), T0);
        assert_int_equal(look(t, IP(10, 0, 0, 77)).next_hop, IP(10, 0, 0, 77));
        /* There is no other. */
        assert_int_equal(look(t, IP(8, 8, 8, 8)).next_hop, IP(10, 0, 0, 254));
}

/* ---- what can be set ---- */

static void routes_that_make_no_sense_are_refused(void **state)
{
        const struct {
                struct route r;
                int err;
        } table[] = {
                {{.dst = IP(1, 2, 3, 4), .prefix = 24, .ifindex = 1}, -EINVAL},
                {{.dst = 0, .prefix = 33, .ifindex = 1}, -EINVAL},
                {{.dst = IP(1, 0, 0, 0), .prefix = 8, .ifindex = 9}, -ENODEV},
                {{.dst = IP(1, 0, 0, 0), .prefix = 8, .ifindex = 200}, -ENODEV},
                {{.dst = IP(1, 0, 0, 0), .prefix = 8}, -ENODEV},
                {{.dst = IP(1, 0, 0, 0), .prefix = 8, .type = 9, .ifindex = 1}, -EINVAL},
                {{.dst = IP(1, 0, 0, 0), .prefix = 8, .type = ROUTE_PROHIBIT, .ifindex = 1},
                 -EINVAL},
                {{.dst = IP(1, 0, 0, 0), .prefix = 8, .flags = ROUTE_F_CONNECTED, .ifindex = 1},
                 -EINVAL},
                {{.dst = IP(1, 0, 0, 0), .prefix = 8, .gateway = IP(9, 9, 9, 9), .ifindex = 1},
                 -ENETUNREACH},
                {{.dst = IP(1, 0, 0, 0), .prefix = 8, .gateway = IP(10, 0, 0, 9), .ifindex = 2},
                 -ENETUNREACH},
                {{.dst = IP(1, 0, 0, 0), .prefix = 8, .gateway = IP(10, 0, 0, 1), .ifindex = 1},
                 -EINVAL},
                {{.dst = IP(1, 0, 0, 0), .prefix = 8, .gateway = IP(224, 0, 0, 1), .ifindex = 1},
                 -EINVAL},
                {{.dst = IP(1, 0, 0, 0), .prefix = 8, .gateway = IP(127, 0, 0, 9), .ifindex = 3},
                 -EINVAL},
                {{.dst = IP(1, 0, 0, 0), .prefix = 8, .src = IP(9, 9, 9, 9), .ifindex = 1},
                 -EADDRNOTAVAIL},
                {{.gateway = IP(10, 0, 0, 254), .ifindex = 1}, -EEXIST},
                {{.dst = IP(1, 0, 0, 0),
                  .prefix = 8,
                  .gateway = IP(9, 9, 9, 9),
                  .ifindex = 1,
                  .flags = ROUTE_F_ONLINK},
                 0},
        };

        for (size_t i = 0; i < ARRAY_LEN(table); i++)
                assert_int_equal(route_add(*state, &table[i].r), table[i].err);
        assert_int_equal(route_del(*state, &table[0].r), -ESRCH);
        assert_int_equal(route_del(*state, &(struct route){.prefix = 40}), -ESRCH);
        assert_int_equal(
                route_del(*state,
                          &(struct route){.dst = IP(10, 0, 0, 0), .prefix = 24, .ifindex = 1}),
                -EBUSY);
}

static void addresses_that_make_no_sense_are_refused(void **state)
{
        static const struct {
                uint32_t ifindex, addr;
                uint8_t prefix;
                int err;
        } table[] = {
                {1, 0, 24, -EINVAL},
                {1, IP(224, 0, 0, 1), 24, -EINVAL},
                {1, IP(10, 9, 9, 255), 24, -EINVAL},
                {1, IP(10, 9, 9, 9), 33, -EINVAL},
                {9, IP(10, 9, 9, 9), 24, -ENODEV},
                {0, IP(10, 9, 9, 9), 24, -ENODEV},
                {99, IP(10, 9, 9, 9), 24, -ENODEV},
                {2, IP(10, 0, 0, 1), 24, -EEXIST},
        };

        for (size_t i = 0; i < ARRAY_LEN(table); i++)
                assert_int_equal(
                        route_addr_add(*state, table[i].ifindex, table[i].addr, table[i].prefix),
                        table[i].err);
        assert_int_equal(route_addr_del(*state, 1, IP(9, 9, 9, 9)), -ENOENT);
        assert_int_equal(route_addr_del(*state, 2, IP(10, 0, 0, 1)), -ENOENT);
        assert_int_equal(route_if_set(*state, 0, ETH, 1500), -EINVAL);
        assert_int_equal(route_if_set(*state, ROUTE_IFS + 1, ETH, 1500), -EINVAL);
        assert_int_equal(route_if_set(*state, 1, ETH, 67), -EINVAL);
}

/* Two addresses of one network share its route; it goes with the last. */
static void a_network_stays_while_an_address_of_it_does(void **state)
{
        struct route_table *t = *state;
        const struct route pref = {
                .dst = IP(1, 0, 0, 0), .prefix = 8, .ifindex = 2, .src = IP(192, 168, 1, 1)};

        assert_int_equal(route_add(t, &pref), 0);
        assert_int_equal(route_addr_del(t, 2, IP(192, 168, 1, 1)), 0);
        route_check(t);
        /* Its route went along. */
        assert_int_equal(look(t, IP(1, 1, 1, 1)).next_hop, IP(10, 0, 0, 254));
        assert_int_equal(look(t, IP(192, 168, 1, 77)).src, IP(192, 168, 1, 2));
        assert_int_equal(route_addr_del(t, 2, IP(192, 168, 1, 2)), 0);
        assert_int_equal(look(t, IP(192, 168, 1, 77)).next_hop, IP(10, 0, 0, 254));
}

static void the_table_is_bounded(void **state)
{
        struct route_table *t = *state;
        struct route r = {.prefix = 32, .ifindex = 1};
        uint32_t n = 0;

        for (r.dst = IP(20, 0, 0, 0); route_add(t, &r) == 0; r.dst++)
                n++;
        assert_int_equal(route_add(t, &r), -ENOSPC);
        assert_int_equal(n, ROUTE_MAX - 4);
        route_check(t);
        assert_int_equal(look(t, IP(20, 0, 1, 1)).prefix, 32);
        for (uint32_t i = 0; route_addr_add(t, 1, IP(30, 0, 0, 1) + i, 32) == 0; i++)
                assert_true(i < ROUTE_ADDRS);
        assert_int_equal(route_addr_add(t, 1, IP(40, 0, 0, 1), 32), -ENOSPC);
}

static void memory_says_nothing_old(void **state)
{
        struct route_table *t = *state;
        const struct route host = {
                .dst = IP(8, 8, 8, 8), .prefix = 32, .gateway = IP(10, 0, 0, 9), .ifindex = 1};
        struct route_result kept = look(t, IP(8, 8, 8, 8));

        assert_true(route_good(t, &kept));
        assert_int_equal(route_add(t, &host), 0);
        assert_false(route_good(t, &kept));
        assert_int_equal(look(t, IP(8, 8, 8, 8)).next_hop, IP(10, 0, 0, 9));
        assert_int_equal(route_del(t, &host), 0);
        assert_int_equal(look(t, IP(8, 8, 8, 8)).next_hop, IP(10, 0, 0, 254));
        t->gen = UINT32_MAX;
        assert_int_equal(route_add(t, &host), 0);
        assert_int_equal(t->gen, 1); /* never 0, which is in memory that was never written */
}

/* ---- beside a loop over a list ---- */

#define NAIVE 200

struct naive {
        struct route r[NAIVE];
        nstime dead[NAIVE];
        unsigned n;
        bool up[ROUTE_IFS + 1];
};

static bool holds(const struct route *r, uint32_t dst)
{
        return r->prefix == 0 || (r->dst ^ dst) >> (32 - r->prefix) == 0;
}

/* -1: none */
static int naive_lookup(const struct naive *l, uint32_t dst, nstime now)
{
        int best = -1;

        for (unsigned i = 0; i < l->n; i++) {
                const struct route *r = &l->r[i], *b = best >= 0 ? &l->r[best] : NULL;
                bool dead = l->dead[i] > now, bdead = best >= 0 && l->dead[best] > now;

                if (!holds(r, dst) || (r->type == ROUTE_UNICAST && !l->up[r->ifindex]))
                        continue;
                if (b == NULL || r->prefix > b->prefix ||
                    (r->prefix == b->prefix &&
                     (dead < bdead ||
                      (dead == bdead && (r->metric < b->metric || (r->metric == b->metric &&
                                                                   (r->ifindex < b->ifindex ||
                                                                    (r->ifindex == b->ifindex &&
                                                                     r->gateway < b->gateway))))))))
                        best = (int)i;
        }
        return best;
}

/* Few networks, so that prefixes nest and routes tie. */
static uint32_t some_dst(struct prng_fast *g)
{
        return IP(20 + prng_fast_below(g, 2), prng_fast_below(g, 3), prng_fast_below(g, 2) * 128,
                  prng_fast_below(g, 4) * 64 + prng_fast_below(g, 2));
}

static void naive_change(struct route_table *t, struct naive *l, struct prng_fast *g, nstime now)
{
        static const uint8_t prefixes[] = {0, 1, 7, 8, 9, 15, 16, 17, 23, 24, 25, 26, 31, 32};
        uint32_t what = prng_fast_below(g, 10), i = l->n != 0 ? prng_fast_below(g, l->n) : 0;

        if (what < 6 && l->n < NAIVE) {
                struct route *r = &l->r[l->n];
                uint8_t p = prefixes[prng_fast_below(g, ARRAY_LEN(prefixes))];

                *r = (struct route){.dst = p == 0 ? 0 : some_dst(g) >> (32 - p) << (32 - p),
                                    .prefix = p,
                                    .metric = prng_fast_below(g, 3),
                                    .ifindex = (uint8_t)(1 + prng_fast_below(g, 2))};
                if (prng_fast_chance(g, 1, 8)) {
                        r->type = ROUTE_UNREACHABLE;
                        r->ifindex = 0;
                } else if (prng_fast_chance(g, 3, 4)) {
                        r->gateway = (r->ifindex == 1 ? IP(10, 0, 0, 100) : IP(192, 168, 1, 100)) +
                                     prng_fast_below(g, 3);
                }
                l->dead[l->n] = 0;
                if (route_add(t, r) == 0)
                        l->n++;
        } else if (what < 8 && l->n != 0) {
                assert_int_equal(route_del(t, &l->r[i]), 0);
                l->r[i] = l->r[--l->n];
                l->dead[i] = l->dead[l->n];
        } else if (what == 8) {
                uint32_t k = 1 + prng_fast_below(g, 2);
                l->up[k] = prng_fast_chance(g, 3, 4);
                assert_int_equal(route_if_set(t, k, l->up[k] ? ETH : ROUTE_IF_BROADCAST, 1500), 0);
        } else if (l->n != 0 && l->r[i].gateway != 0) {
                route_gateway_died(t, l->r[i].ifindex, l->r[i].gateway, now);
                for (unsigned k = 0; k < l->n; k++)
                        if (l->r[k].gateway == l->r[i].gateway &&
                            l->r[k].ifindex == l->r[i].ifindex)
                                l->dead[k] = now + ROUTE_DEAD_TIME;
        }
}

static void check_against(struct route_table *t, const struct naive *l, uint32_t dst, nstime now,
                          uint64_t seed)
{
        struct route_key key = {.dst = dst};
        struct route_result res = {0};
        int i = naive_lookup(l, dst, now), err = route_lookup(t, &key, now, &res);
        int want = i < 0 ? -ENETUNREACH : l->r[i].type != ROUTE_UNICAST ? -EHOSTUNREACH : 0;

        if (err != want)
                fail_msg("seed %llu: %x: %d, not %d", (unsigned long long)seed, dst, err, want);
        if (err != 0)
                return;
        if (res.ifindex != l->r[i].ifindex ||
            res.next_hop != (l->r[i].gateway != 0 ? l->r[i].gateway : dst) ||
            res.prefix != l->r[i].prefix)
                fail_msg("seed %llu: %x goes to %x", (unsigned long long)seed, dst, res.next_hop);
}

/* 300 seeds; changes, lookups and time in any order give what a loop over all routes gives. */
static void any_table_answers_as_a_loop_over_it(void **state)
{
        for (uint64_t seed = 1; seed <= 300; seed++) {
                struct naive l = {.up = {[1] = true, [2] = true}};
                struct prng_fast g;
                nstime now = T0;
                void *fresh;

                setup(&fresh);
                route_del(fresh, &(struct route){.gateway = IP(10, 0, 0, 254), .ifindex = 1});
                prng_fast_init(&g, seed);
                for (int op = 0; op < 300; op++) {
                        naive_change(fresh, &l, &g, now);
                        now += prng_fast_chance(&g, 1, 20) ? 25 * NS_PER_S : NS_PER_MS;
                        for (int k = 0; k < 4; k++)
                                check_against(fresh, &l, some_dst(&g), now, seed);
                        if (prng_fast_chance(&g, 1, 50))
                                route_recover(fresh);
                }
                teardown(&fresh);
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(the_mask_says_what_is_on_the_link),
                TEST(what_is_not_on_a_link_goes_to_the_default_gateway),
                TEST(without_a_gateway_the_links_still_work),
                TEST(the_longest_prefix_wins),
                TEST(a_rejecting_route_says_how),
                TEST(ties_are_broken_the_same_way_in_any_order),
                TEST(an_interface_that_is_down_is_not_used),
                TEST(an_interface_that_goes_takes_all_of_it_along),
                TEST(a_socket_may_ask_for_an_interface),
                TEST(our_own_addresses_are_local),
                TEST(broadcasts_go_to_the_link),
                TEST(groups_go_to_the_link),
                TEST(what_is_no_destination_is_refused),
                TEST(the_source_is_chosen_by_the_rules),
                TEST(scopes_do_not_mix),
                TEST(without_an_address_there_is_no_source),
                TEST(a_dead_gateway_gives_way_to_another),
                TEST(only_routes_by_that_gateway_are_concerned),
                TEST(routes_that_make_no_sense_are_refused),
                TEST(addresses_that_make_no_sense_are_refused),
                TEST(a_network_stays_while_an_address_of_it_does),
                TEST(the_table_is_bounded),
                TEST(memory_says_nothing_old),
                cmocka_unit_test(any_table_answers_as_a_loop_over_it),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
