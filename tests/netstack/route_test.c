/* A stack's routes follow what is published; what it has learnt of what stays is kept. */
#include <errno.h>
#include <sys/mman.h>

#include "netstack/stack.h"
#include "tests/unit.h"

#define IP(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))
#define NOW            (100 * NS_PER_S)
#define FAR            IP(192, 0, 2, 9)

struct scene {
        struct stack s;
        struct stack_state *st;
        size_t bytes;
        struct bell bell;
        /* 1: 10.0.0.1/24, 2: 10.0.1.1/24; default by .254 of each, the second's metric 5. */
        struct netconf conf;
};

static struct route by(uint32_t ifindex, uint32_t gateway, uint32_t metric)
{
        return (struct route){.gateway = gateway, .metric = metric, .ifindex = (uint8_t)ifindex};
}

static int setup(void **state)
{
        static struct scene sc;
        static const uint8_t seed[32] = "whatever";
        struct stack_limits l;
        struct netif_config cfg = {
                .name = "eth1", .addr = IP(10, 0, 1, 1), .prefix = 24, .mtu = 1500, .ifindex = 2};

        memset(&sc, 0, sizeof sc);
        stack_limits_default(&l);
        sc.bytes = stack_bytes(&l);
        sc.st = mmap(NULL, sc.bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_ptr_not_equal(sc.st, MAP_FAILED);
        stack_format(sc.st, &l, seed, NOW);
        assert_int_equal(stack_view_init(&sc.s, sc.st, sc.bytes, &sc.bell), 0);
        sc.s.now = NOW;
        assert_int_equal(stack_netif_add(sc.st, 0, UINT32_MAX, &cfg, l.tx, l.tx, seed, NOW), 0);
        sc.conf = (struct netconf){
                .gen = 1,
                .nroutes = 2,
                .ifs = {{.addr = IP(10, 0, 0, 1),
                         .mtu = 1500,
                         .prefix = 24,
                         .flags = NETCONF_IF_THERE | NETCONF_IF_UP},
                        {.addr = IP(10, 0, 1, 1),
                         .mtu = 1400,
                         .prefix = 24,
                         .flags = NETCONF_IF_THERE | NETCONF_IF_UP}},
                .route = {by(1, IP(10, 0, 0, 254), 0), by(2, IP(10, 0, 1, 254), 5)},
                .nneighs = 1,
                .neigh = {{IP(10, 0, 1, 7), 2, {2, 0, 0, 0, 0, 7}}}};
        stack_route_follow(&sc.s, &sc.conf, NOW);
        *state = &sc;
        return 0;
}

static int teardown(void **state)
{
        struct scene *sc = *state;

        route_check(sc->s.routes);
        stack_view_fini(&sc->s);
        munmap(sc->st, sc->bytes);
        return 0;
}

static void follow(struct scene *sc)
{
        sc->conf.gen++;
        stack_route_follow(&sc->s, &sc->conf, NOW);
        route_check(sc->s.routes);
}

static struct route_result ask(struct scene *sc, uint32_t dst, uint32_t src, uint32_t oif)
{
        struct route_result res;

        assert_int_equal(stack_route(&sc->s, dst, src, oif, NOW, &res), 0);
        return res;
}

static void what_is_published_is_asked(void **state)
{
        struct scene *sc = *state;

        assert_int_equal(ask(sc, FAR, 0, 0).next_hop, IP(10, 0, 0, 254));
        assert_int_equal(ask(sc, FAR, 0, 0).src, IP(10, 0, 0, 1));
        assert_int_equal(ask(sc, IP(10, 0, 1, 9), 0, 0).next_hop, IP(10, 0, 1, 9));
        assert_int_equal(ask(sc, IP(10, 0, 1, 9), 0, 0).src, IP(10, 0, 1, 1));
}

/* RFC 1122 §3.3.4.2, strong: an address leaves by its interface, by whichever gateway is there, or
 * not at all. */
static void a_source_keeps_to_its_interface(void **state)
{
        struct scene *sc = *state;
        struct route_result res;

        assert_int_equal(ask(sc, FAR, IP(10, 0, 1, 1), 0).next_hop, IP(10, 0, 1, 254));
        assert_int_equal(ask(sc, FAR, 0, 2).src, IP(10, 0, 1, 1));
        sc->conf.nroutes = 1;
        follow(sc);
        assert_int_equal(stack_route(&sc->s, FAR, IP(10, 0, 1, 1), 0, NOW, &res), -ENETUNREACH);
        assert_int_equal(stack_route(&sc->s, FAR, IP(10, 9, 9, 9), 0, NOW, &res), -EADDRNOTAVAIL);
}

static void what_goes_is_forgotten_and_what_stays_is_not(void **state)
{
        struct scene *sc = *state;
        struct route_result kept;

        route_gateway_died(sc->s.routes, 1, IP(10, 0, 0, 254), NOW);
        /* The first gateway is known to be dead ... */
        assert_int_equal(ask(sc, FAR, 0, 0).ifindex, 2);
        sc->conf.route[2] = (struct route){
                .dst = IP(192, 0, 2, 0), .prefix = 24, .gateway = IP(10, 0, 0, 253), .ifindex = 1};
        sc->conf.nroutes = 3;
        follow(sc);
        assert_int_equal(ask(sc, FAR, 0, 0).next_hop, IP(10, 0, 0, 253));
        sc->conf.nroutes = 2;
        follow(sc);
        kept = ask(sc, FAR, 0, 0);
        assert_int_equal(kept.ifindex, 2);          /* ... and still is */
        stack_route_follow(&sc->s, &sc->conf, NOW); /* no news */
        assert_true(route_good(sc->s.routes, &kept));
        sc->conf.ifs[1] = (struct netconf_if){0};
        sc->conf.nroutes = 1;
        follow(sc);
        assert_int_equal(route_owner(sc->s.routes, IP(10, 0, 1, 1)), 0);
        assert_int_equal(ask(sc, FAR, 0, 0).ifindex, 1);
}

/* Its connections are reset when its channel goes, which is told by others and may be later. */
static void who_is_published_no_more_still_finds_its_peers(void **state)
{
        struct scene *sc = *state;
        struct netif *n = stack_netif(sc->st, 0);

        assert_int_equal(stack_next_hop(&sc->s, n, FAR), IP(10, 0, 1, 254));
        sc->conf.ifs[1] = (struct netconf_if){0};
        sc->conf.nroutes = 1;
        follow(sc);
        assert_int_equal(stack_next_hop(&sc->s, n, IP(10, 0, 1, 9)), IP(10, 0, 1, 9));
        assert_int_equal(stack_next_hop(&sc->s, n, FAR), 0);
        n->cfg.gateway = IP(10, 0, 1, 253);
        assert_int_equal(stack_next_hop(&sc->s, n, FAR), IP(10, 0, 1, 253));
        assert_int_equal(ask(sc, FAR, 0, 0).ifindex, 1); /* what begins goes by another */
}

static void a_route_may_change_what_it_says(void **state)
{
        struct scene *sc = *state;

        assert_int_equal(stack_route_mtu(&sc->s, FAR), 0);
        sc->conf.route[0].mtu = 1280;
        follow(sc);
        assert_int_equal(stack_route_mtu(&sc->s, FAR), 1280);
        sc->conf.route[0].mtu = 0;
        follow(sc);
        assert_int_equal(stack_route_mtu(&sc->s, FAR), 0);
}

static void an_interface_that_is_down_keeps_its_routes(void **state)
{
        struct scene *sc = *state;

        sc->conf.ifs[0].flags = NETCONF_IF_THERE;
        follow(sc);
        assert_int_equal(ask(sc, FAR, 0, 0).ifindex, 2);
        sc->conf.ifs[0].flags = NETCONF_IF_THERE | NETCONF_IF_UP;
        follow(sc);
        assert_int_equal(ask(sc, FAR, 0, 0).ifindex, 1);
}

static void an_address_may_change(void **state)
{
        struct scene *sc = *state;

        sc->conf.ifs[0].addr = IP(10, 5, 0, 1);
        sc->conf.route[0].gateway = IP(10, 5, 0, 254);
        follow(sc);
        assert_int_equal(route_owner(sc->s.routes, IP(10, 0, 0, 1)), 0);
        assert_int_equal(ask(sc, FAR, 0, 0).src, IP(10, 5, 0, 1));
        assert_int_equal(ask(sc, FAR, 0, 0).next_hop, IP(10, 5, 0, 254));
}

static unsigned statics(struct scene *sc)
{
        struct arp a = {&stack_netif(sc->st, 0)->arp, &sc->st->cnt};
        struct arp_report r;
        unsigned n = 0;

        for (uint32_t i = 1; i <= ARP_ENTRIES; i++)
                n += arp_walk(&a, i, &r) && r.state == ARP_STATIC;
        return n;
}

static void neighbours_are_told_to_their_interface(void **state)
{
        struct scene *sc = *state;

        assert_int_equal(statics(sc), 1);
        sc->conf.neigh[1] = (struct netconf_neigh){IP(10, 0, 0, 7), 1, {2, 0, 0, 0, 0, 8}};
        sc->conf.nneighs = 2;
        follow(sc);
        /* The other one is on the interface that this stack does not have. */
        assert_int_equal(statics(sc), 1);
        sc->conf.neigh[0].addr = IP(10, 0, 1, 8);
        follow(sc);
        assert_int_equal(statics(sc), 1);
        sc->conf.nneighs = 0;
        follow(sc);
        assert_int_equal(statics(sc), 0);
}

/* A gateway that does not answer gives way on its interface, for others there and for the choice
 * of interfaces. */
static void a_dead_gateway_gives_way(void **state)
{
        struct scene *sc = *state;
        struct netif *n = stack_netif(sc->st, 0);

        assert_int_equal(stack_next_hop(&sc->s, n, FAR), IP(10, 0, 1, 254));
        /* There is no other here. */
        assert_false(stack_route_dead(&sc->s, n, IP(10, 0, 1, 254), FAR));
        sc->conf.route[2] = by(2, IP(10, 0, 1, 253), 9);
        sc->conf.nroutes = 3;
        follow(sc);
        assert_true(stack_route_dead(&sc->s, n, IP(10, 0, 1, 254), FAR));
        assert_int_equal(stack_next_hop(&sc->s, n, FAR), IP(10, 0, 1, 253));
        /* None lives: the first again. */
        assert_true(stack_route_dead(&sc->s, n, IP(10, 0, 1, 253), FAR));
        assert_int_equal(stack_next_hop(&sc->s, n, FAR), IP(10, 0, 1, 254));
        assert_false(stack_route_dead(&sc->s, n, IP(10, 0, 1, 254), FAR));
        assert_int_equal(ask(sc, FAR, 0, 0).ifindex, 1);
}

static bool redirected(struct scene *sc, uint32_t from, uint32_t gateway)
{
        const struct icmp_redirect r = {.laddr = ip_addr_v4(IP(10, 0, 1, 1)),
                                        .dst = ip_addr_v4(FAR),
                                        .gateway = ip_addr_v4(gateway),
                                        .from = ip_addr_v4(from)};
        bool followed = stack_route_redirect(&sc->s, 0, &r);

        route_check(sc->s.routes);
        return followed;
}

/* RFC 1122 §3.2.2.2: from the gateway in use, to a neighbour; until that is dead, or what is
 * published changes. */
static void redirects_are_followed_where_they_are_wanted(void **state)
{
        struct scene *sc = *state;
        struct netif *n = stack_netif(sc->st, 0);
        uint32_t gw = IP(10, 0, 1, 254), better = IP(10, 0, 1, 253), best = IP(10, 0, 1, 252);

        sc->s.chan[0].netif.nif = n;
        assert_int_equal(stack_next_hop(&sc->s, n, FAR), gw);
        assert_false(redirected(sc, gw, better));
        sc->conf.ip.redirects = 1;
        follow(sc);
        assert_false(redirected(sc, better, best));        /* a stranger */
        assert_false(redirected(sc, gw, IP(10, 0, 2, 1))); /* nobody here */
        assert_false(redirected(sc, gw, IP(10, 0, 1, 1))); /* ourselves */
        assert_true(redirected(sc, gw, better));
        assert_int_equal(stack_next_hop(&sc->s, n, FAR), better);
        assert_int_equal(stack_next_hop(&sc->s, n, FAR + 1), gw);
        assert_false(redirected(sc, gw, best)); /* no longer in use */
        assert_true(redirected(sc, better, best));
        assert_int_equal(stack_next_hop(&sc->s, n, FAR), best);
        assert_true(stack_route_dead(&sc->s, n, best, FAR));
        assert_int_equal(stack_next_hop(&sc->s, n, FAR), gw);
        assert_true(redirected(sc, gw, better));
        follow(sc);
        assert_int_equal(stack_next_hop(&sc->s, n, FAR), gw);
}

/* A gateway that sends no end of them fills no table. */
static void so_many_redirects_and_no_more(void **state)
{
        struct scene *sc = *state;
        struct route_report r;
        unsigned kept = 0;

        sc->s.chan[0].netif.nif = stack_netif(sc->st, 0);
        sc->conf.ip.redirects = 1;
        follow(sc);
        for (uint32_t i = 0; i < 1000; i++) {
                const struct icmp_redirect said = {.laddr = ip_addr_v4(IP(10, 0, 1, 1)),
                                                   .dst = ip_addr_v4(FAR + i),
                                                   .gateway = ip_addr_v4(IP(10, 0, 1, 253)),
                                                   .from = ip_addr_v4(IP(10, 0, 1, 254))};
                assert_true(stack_route_redirect(&sc->s, 0, &said));
        }
        route_check(sc->s.routes);
        for (uint32_t i = 1; i <= sc->s.routes->recs.fresh; i++)
                kept += route_walk(sc->s.routes, i, &r) && r.r.flags & ROUTE_F_REDIRECT;
        assert_int_equal(kept, 32);
}

static void settings_are_followed(void **state)
{
        struct scene *sc = *state;
        struct netif *n = stack_netif(sc->st, 0);

        assert_int_equal(stack_ttl(sc->st), 64);
        assert_int_equal(n->arp.cfg.reachable_time, 30 * NS_PER_S);
        sc->conf.ip = (struct netconf_ip){.ttl = 33, .arp_reachable_s = 7};
        follow(sc);
        assert_int_equal(stack_ttl(sc->st), 33);
        assert_int_equal(n->arp.cfg.reachable_time, 7 * NS_PER_S);
        sc->conf.ip = (struct netconf_ip){.ttl = 0};
        follow(sc);
        assert_int_equal(stack_ttl(sc->st), 64);
        assert_int_equal(n->arp.cfg.reachable_time, 30 * NS_PER_S);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        const struct CMUnitTest tests[] = {
                TEST(what_is_published_is_asked),
                TEST(a_source_keeps_to_its_interface),
                TEST(what_goes_is_forgotten_and_what_stays_is_not),
                TEST(who_is_published_no_more_still_finds_its_peers),
                TEST(a_route_may_change_what_it_says),
                TEST(an_interface_that_is_down_keeps_its_routes),
                TEST(an_address_may_change),
                TEST(neighbours_are_told_to_their_interface),
                TEST(a_dead_gateway_gives_way),
                TEST(redirects_are_followed_where_they_are_wanted),
                TEST(so_many_redirects_and_no_more),
                TEST(settings_are_followed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
