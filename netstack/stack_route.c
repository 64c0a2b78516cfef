/* See stack_route.h. */
#include "netstack/stack_route.h"

#include "netstack/stack.h"
#include "tcp/tcp_loop.h"

/* ---- following what is published ---- */

static uint8_t if_flags(const struct netconf_if *f)
{
        if (!(f->flags & NETCONF_IF_THERE))
                return 0;
        return ROUTE_IF_BROADCAST | (f->flags & NETCONF_IF_UP ? ROUTE_IF_UP : 0);
}

static void follow_ifs(struct route_table *t, const struct netconf *conf)
{
        for (uint32_t i = 0; i < NETCONF_IFS; i++) {
                const struct netconf_if *f = &conf->ifs[i];
                uint32_t mtu = f->mtu != 0 ? f->mtu : 1500;

                if (t->ifs[i + 1].flags != if_flags(f) ||
                    (f->flags != 0 && t->ifs[i + 1].mtu != mtu))
                        route_if_set(t, i + 1, if_flags(f), mtu);
        }
}

static bool if_has(const struct netconf *conf, const struct route_addr *a)
{
        const struct netconf_if *f = &conf->ifs[(a->ifindex - 1) % NETCONF_IFS];

        return a->ifindex <= NETCONF_IFS && f->flags & NETCONF_IF_THERE && f->addr == a->addr &&
               f->prefix == a->prefix;
}

static void follow_addrs(struct route_table *t, const struct netconf *conf)
{
        struct route_addr a;

        for (uint32_t i = 0; i < ROUTE_ADDRS; i++)
                if (route_addr_walk(t, i, &a) && !if_has(conf, &a))
                        route_addr_del(t, a.ifindex, a.addr);
        for (uint32_t i = 0; i < NETCONF_IFS; i++)
                if (conf->ifs[i].flags & NETCONF_IF_THERE)
                        route_addr_add(t, i + 1, conf->ifs[i].addr, conf->ifs[i].prefix);
}

static bool conf_has(const struct netconf *conf, const struct route *r)
{
        for (uint32_t i = 0; i < MIN(conf->nroutes, NETCONF_ROUTES); i++)
                if (memcmp(&conf->route[i], r, sizeof *r) == 0)
                        return true;
        return false;
}

static void follow_routes(struct route_table *t, const struct netconf *conf)
{
        struct route_report r;

        for (uint32_t i = 1; i <= t->recs.fresh; i++)
                if (route_walk(t, i, &r) && !(r.r.flags & ROUTE_F_CONNECTED) &&
                    !conf_has(conf, &r.r))
                        route_del(t, &r.r);
        for (uint32_t i = 0; i < MIN(conf->nroutes, NETCONF_ROUTES); i++)
                route_add(t, &conf->route[i]); /* those that are there already stay as they are */
}

static const struct netconf_neigh *find_neigh(const struct netconf *conf, const struct netif *n,
                                              uint32_t ip)
{
        for (uint32_t i = 0; i < MIN(conf->nneighs, NETCONF_NEIGHS); i++)
                if (conf->neigh[i].ifindex == n->cfg.ifindex && conf->neigh[i].addr == ip)
                        return &conf->neigh[i];
        return NULL;
}

static void follow_neighs(struct stack *s, struct netif *n, const struct netconf *conf, nstime now)
{
        struct arp a = {&n->arp, &s->st->cnt};
        struct arp_report r;

        for (uint32_t i = 1; i <= ARP_ENTRIES; i++)
                if (arp_walk(&a, i, &r) && r.state == ARP_STATIC &&
                    find_neigh(conf, n, r.ip) == NULL)
                        arp_del(&a, r.ip);
        for (uint32_t i = 0; i < MIN(conf->nneighs, NETCONF_NEIGHS); i++)
                if (conf->neigh[i].ifindex == n->cfg.ifindex)
                        arp_set(&a, conf->neigh[i].addr, conf->neigh[i].mac, true, now);
}

/* ---- what links are ---- */

/* The link address is stored last: a process that dies in between leaves a change that the next one
 * still sees as due. */
void stack_route_mac(struct stack *s, struct netif *n, const uint8_t mac[ETHER_MAC], nstime now)
{
        struct arp a = {&n->arp, &s->st->cnt};

        assert(n->chan != 0);
        memcpy(n->arp.cfg.ll_addr, mac, ETHER_MAC);
        arp_link_up(&a, now);
        memcpy(n->cfg.mac, mac, ETHER_MAC);
}

static bool is_up(const struct netconf *conf, uint32_t ifindex)
{
        return if_flags(&conf->ifs[(ifindex - 1) % NETCONF_IFS]) & ROUTE_IF_UP;
}

/* Call before the published state of links is taken over: while a link was down, other hosts may
 * have taken our address, or moved. */
static void follow_ups(struct stack *s, const struct netconf *conf, nstime now)
{
        for (uint32_t i = 0; i < s->st->netifs; i++) {
                struct netif *n = stack_netif(s->st, i);
                struct arp a = {&n->arp, &s->st->cnt};

                if (n->chan != 0 && n->routed &&
                    !(s->routes->ifs[n->cfg.ifindex].flags & ROUTE_IF_UP) &&
                    is_up(conf, n->cfg.ifindex))
                        arp_link_up(&a, now);
        }
}

static bool mac_changed(const struct netif *n, const uint8_t *mac)
{
        static const uint8_t unknown[ETHER_MAC];

        return memcmp(mac, unknown, ETHER_MAC) != 0 && memcmp(mac, n->cfg.mac, ETHER_MAC) != 0;
}

static uint32_t mtu_of(const struct netif *n, const struct netconf *conf)
{
        const struct netconf_if *f = &conf->ifs[(n->cfg.ifindex - 1) % NETCONF_IFS];

        return f->mtu != 0 ? MAX(MIN(f->mtu, n->cfg.mtu_max), 68u) : n->cfg.mtu;
}

/* Other processes' views follow when they see the generation. */
static void set_mtu(struct stack *s, struct netif *n, uint32_t mtu)
{
        n->cfg.mtu = mtu;
        stack_route_views(s);
        atomic_fetch_add_explicit(&s->st->chan_gen, 1, memory_order_release);
}

void stack_route_views(struct stack *s)
{
        for (uint32_t i = 0; i < s->st->netifs; i++) {
                const struct netif *n = stack_netif(s->st, i);
                if (n->chan != 0 && s->chan[n->chan - 1].netif.nif == n)
                        s->chan[n->chan - 1].caps.mtu = n->cfg.mtu;
        }
}

/* Connections on interfaces: what the interface carries now, or the route if that is less. */
static void follow_mtus(struct stack *s, nstime now)
{
        struct pool *conns = &s->tcp.sh->conns;

        now = stack_time(s, now);
        for (uint32_t i = 1; i < conns->fresh; i++) {
                struct tcp_conn *tc = pool_at(conns, i);
                uint32_t k = tc->tuple.chan, mtu, most;

                if (!tc->live || s->st->chan[k].netif == 0)
                        continue;
                most = stack_netif(s->st, s->st->chan[k].netif - 1)->cfg.mtu;
                mtu = stack_route_mtu(s, ip_addr_get_v4(tc->tuple.raddr));
                stack_begin(s->st, i);
                tcp_set_link_mss(&s->tcp, tc,
                                 (mtu != 0 ? MIN(mtu, most) : most) - IP_MIN_HDR - TCP_MIN_HDR,
                                 now);
                stack_end(s->st);
        }
}

static nstime reachable_time(const struct netconf *conf)
{
        return (conf->ip.arp_reachable_s != 0 ? conf->ip.arp_reachable_s : ARP_REACHABLE_S) *
               NS_PER_S;
}

static void follow_links(struct stack *s, const struct netconf *conf, nstime now)
{
        bool mtus = s->st->route_mtus;

        s->st->route_mtus = 0;
        for (uint32_t i = 0; i < MIN(conf->nroutes, NETCONF_ROUTES); i++)
                s->st->route_mtus |= conf->route[i].mtu != 0;
        mtus |= s->st->route_mtus;
        for (uint32_t i = 0; i < s->st->netifs; i++) {
                struct netif *n = stack_netif(s->st, i);
                const uint8_t *mac;

                if (n->chan == 0)
                        continue;
                follow_neighs(s, n, conf, now);
                mac = conf->ifs[(n->cfg.ifindex - 1) % NETCONF_IFS].mac;
                if (mac_changed(n, mac))
                        stack_route_mac(s, n, mac, now);
                n->arp.cfg.reachable_time = reachable_time(conf);
                if (mtu_of(n, conf) != n->cfg.mtu) {
                        set_mtu(s, n, mtu_of(n, conf));
                        mtus = true;
                }
        }
        if (mtus)
                follow_mtus(s, now);
}

void stack_route_follow(struct stack *s, const struct netconf *conf, nstime now)
{
        if (conf->gen == s->st->net_gen)
                return;
        follow_ups(s, conf, now);
        follow_ifs(s->routes, conf);
        follow_addrs(s->routes, conf);
        follow_routes(s->routes, conf);
        follow_links(s, conf, now);
        s->st->ip_conf = conf->ip;
        s->st->net_gen = conf->gen;
}

static void arrived(struct stack *s, struct netif *n)
{
        const struct netif_config *c = &n->cfg;
        struct route_table *t = s->routes;
        struct route r = {.gateway = c->gateway, .ifindex = c->ifindex};

        if (t->ifs[c->ifindex].flags == 0)
                route_if_set(t, c->ifindex, ROUTE_IF_UP | ROUTE_IF_BROADCAST, c->mtu);
        route_addr_add(t, c->ifindex, c->addr, c->prefix); /* -EEXIST: it is published */
        r.flags = c->prefix == 32 ? ROUTE_F_ONLINK : 0;
        if (c->gateway != 0)
                route_add(t, &r);
        n->routed = true;
        s->st->net_gen = 0;
        s->st->addr_gen = 0; /* what is published of it is taken over at the next turn */
}

void stack_route_arrivals(struct stack *s)
{
        for (uint32_t i = 0; i < s->st->netifs; i++) {
                struct netif *n = stack_netif(s->st, i);

                if (n->chan != 0 && !n->routed)
                        arrived(s, n);
        }
}

/* ---- asking ---- */

int stack_route(struct stack *s, uint32_t dst, uint32_t src, uint32_t oif, nstime now,
                struct route_result *res)
{
        uint32_t owner = src != 0 ? route_owner(s->routes, src) : 0;
        struct route_key key = {.dst = dst, .src = src, .oif = oif != 0 ? oif : owner};

        return route_lookup(s->routes, &key, now, res);
}

/* An interface that is not published any more still carries the last segments of its
 * connections. */
static uint32_t hop_of_unpublished(const struct stack *s, const struct netif_config *c,
                                   uint32_t dst)
{
        if (s->routes->ifs[c->ifindex].flags != 0)
                return 0;
        return c->prefix != 0 && (dst ^ c->addr) >> (32 - c->prefix) == 0 ? dst : c->gateway;
}

uint32_t stack_next_hop(struct stack *s, struct netif *n, uint32_t dst)
{
        struct route_key key = {.dst = dst, .oif = n->cfg.ifindex};
        struct route_result res;

        if (unlikely(!n->routed))
                arrived(s, n);
        if (unlikely(route_lookup(s->routes, &key, s->now, &res) != 0))
                return hop_of_unpublished(s, &n->cfg, dst);
        return res.kind == ROUTE_TO_HOST ? res.next_hop : 0;
}

/* ---- what gateways say ---- */

/* Beyond these the oldest redirect gives way, as far as the table says which it is. */
#define REDIRECTS_MAX 32u

static bool is_redirect(const struct route_table *t, uint32_t i, struct route_report *r)
{
        return route_walk(t, i, r) && r->r.flags & ROUTE_F_REDIRECT;
}

/* Forgets redirects for `dst`, or by `gateway` (0: any). With neither, forgets one if there are too
 * many. */
static void forget_redirects(struct route_table *t, uint32_t dst, uint32_t gateway)
{
        struct route_report r, first = {.up = false};
        uint32_t n = 0;

        for (uint32_t i = 1; i <= t->recs.fresh; i++) {
                if (!is_redirect(t, i, &r))
                        continue;
                if (n++ == 0)
                        first = r;
                if ((dst != 0 && r.r.dst == dst) || (gateway != 0 && r.r.gateway == gateway))
                        route_del(t, &r.r);
        }
        if (dst == 0 && gateway == 0 && n >= REDIRECTS_MAX)
                route_del(t, &first.r);
}

bool stack_route_redirect(struct stack *s, uint32_t k, const struct icmp_redirect *said)
{
        struct netif *n = s->chan[k].netif.nif;
        uint32_t dst = ip_addr_get_v4(said->dst), hop;
        struct route r = {.dst = dst,
                          .prefix = 32,
                          .gateway = ip_addr_get_v4(said->gateway),
                          .flags = ROUTE_F_REDIRECT};
        struct ip_host host;

        if (n == NULL || !s->st->ip_conf.redirects)
                return false;
        host = (struct ip_host){.addr = &n->addr, .naddr = 1};
        hop = stack_next_hop(s, n, dst);
        if (hop == 0 || !icmp_redirect_ok(&host, said, hop))
                return false;
        r.ifindex = n->cfg.ifindex;
        forget_redirects(s->routes, dst, 0);
        forget_redirects(s->routes, 0, 0);
        return route_add(s->routes, &r) == 0;
}

bool stack_route_dead(struct stack *s, struct netif *n, uint32_t hop, uint32_t dst)
{
        uint32_t other;

        assert(hop != 0);
        forget_redirects(s->routes, 0, hop);
        route_gateway_died(s->routes, n->cfg.ifindex, hop, s->now);
        other = stack_next_hop(s, n, dst);
        return other != 0 && other != hop;
}

uint32_t stack_route_mtu(struct stack *s, uint32_t dst)
{
        struct route_key key = {.dst = dst};
        struct route_result res;

        return route_lookup(s->routes, &key, s->now, &res) == 0 ? res.mtu : 0;
}
