/* A process dies at every store of a change to the routes: what it left is recovered to a table
 * that is whole and answers. */
#include <errno.h>

#include "ip/route.h"
#include "tests/steps.h"
#include "tests/unit.h"

#define IP(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))
#define ETH            (ROUTE_IF_UP | ROUTE_IF_BROADCAST)
#define T0             (100 * NS_PER_S)

static const struct route by_gateway = {.gateway = IP(10, 0, 0, 254), .ifindex = 1};
static const struct route second = {.gateway = IP(192, 168, 1, 254), .ifindex = 2, .metric = 9};
static const struct route far = {
        .dst = IP(172, 16, 0, 0), .prefix = 12, .gateway = IP(10, 0, 0, 253), .ifindex = 1};

static int ask(struct route_table *t, uint32_t dst, struct route_result *res)
{
        const struct route_key key = {.dst = dst};

        return route_lookup(t, &key, T0, res);
}

static struct route_table *furnish(void)
{
        static const uint8_t seed[16] = "seed of no value";
        struct route_table *t = steps_memory(sizeof *t);
        struct route_result res;

        route_format(t, seed);
        assert_int_equal(route_if_set(t, 1, ETH, 1500), 0);
        assert_int_equal(route_if_set(t, 2, ETH, 1500), 0);
        assert_int_equal(route_addr_add(t, 1, IP(10, 0, 0, 1), 24), 0);
        assert_int_equal(route_addr_add(t, 2, IP(192, 168, 1, 1), 24), 0);
        assert_int_equal(route_add(t, &by_gateway), 0);
        assert_int_equal(route_add(t, &second), 0);
        assert_int_equal(ask(t, IP(8, 8, 8, 8), &res), 0);
        return t;
}

/* What had nothing to do with it answers as before; what was changed is there or not; anything can
 * be added. */
static void after(void *copy)
{
        static const struct route new = {
                .dst = IP(9, 0, 0, 0), .prefix = 8, .gateway = IP(10, 0, 0, 77), .ifindex = 1};
        struct route_table *t = copy;
        struct route_result res;
        int err;

        route_recover(t);
        route_check(t);
        assert_int_equal(ask(t, IP(10, 0, 0, 7), &res), 0);
        assert_int_equal(res.next_hop, IP(10, 0, 0, 7));
        assert_int_equal(res.src, IP(10, 0, 0, 1));
        assert_int_equal(ask(t, IP(8, 8, 8, 8), &res), 0);
        assert_true(res.next_hop == by_gateway.gateway || res.next_hop == second.gateway);
        assert_int_equal(ask(t, IP(172, 16, 1, 1), &res), 0);
        assert_true(res.next_hop == far.gateway || res.next_hop == by_gateway.gateway ||
                    res.next_hop == second.gateway);
        err = ask(t, IP(192, 168, 1, 77), &res);
        assert_true(err == 0 &&
                    (res.next_hop == IP(192, 168, 1, 77) || res.next_hop == by_gateway.gateway));
        assert_int_equal(route_add(t, &new), 0);
        assert_int_equal(ask(t, IP(9, 9, 9, 9), &res), 0);
        assert_int_equal(res.next_hop, new.gateway);
        err = route_addr_add(t, 2, IP(192, 168, 1, 1), 24);
        assert_true(err == 0 || err == -EEXIST || err == -ENODEV);
        route_check(t);
}

static void die(struct route_table *t, void (*act)(void *))
{
        steps_die(t, sizeof *t, act, after);
        steps_free(t, sizeof *t);
}

static void does_add(void *mem)
{
        route_add(mem, &far);
}

static void does_del(void *mem)
{
        route_del(mem, &far);
}

static void does_address(void *mem)
{
        route_addr_add(mem, 2, IP(192, 168, 9, 1), 24);
        route_addr_del(mem, 2, IP(192, 168, 9, 1));
}

static void does_interface(void *mem)
{
        route_if_set(mem, 2, 0, 0);
        route_if_set(mem, 2, ETH, 1500);
}

static void does_lookup(void *mem)
{
        struct route_result res;

        ask(mem, IP(8, 8, 4, 4), &res);
        ask(mem, IP(8, 8, 8, 8), &res);
}

static void does_advise(void *mem)
{
        struct route_result res;

        route_gateway_died(mem, 1, by_gateway.gateway, T0);
        ask(mem, IP(8, 8, 8, 8), &res);
}

static void while_a_route_is_added(void **state)
{
        die(furnish(), does_add);
}

static void while_a_route_is_removed(void **state)
{
        struct route_table *t = furnish();

        assert_int_equal(route_add(t, &far), 0);
        die(t, does_del);
}

static void while_an_address_comes_and_goes(void **state)
{
        die(furnish(), does_address);
}

static void while_an_interface_goes_and_comes(void **state)
{
        die(furnish(), does_interface);
}

static void while_a_result_is_remembered(void **state)
{
        die(furnish(), does_lookup);
}

static void while_a_gateway_is_given_up(void **state)
{
        die(furnish(), does_advise);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(while_a_route_is_added),
                cmocka_unit_test(while_a_route_is_removed),
                cmocka_unit_test(while_an_address_comes_and_goes),
                cmocka_unit_test(while_an_interface_goes_and_comes),
                cmocka_unit_test(while_a_result_is_remembered),
                cmocka_unit_test(while_a_gateway_is_given_up),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
