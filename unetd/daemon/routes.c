/*
 * Routes, static neighbours and the state of interfaces: first what unet.conf(5) says, then what
 * `unet route`, `unet arp` and `unet if` change, and what rtnetlink reports of the links. unetd
 * checks all of it in one route table (ip/route.h) and publishes it in the directory, from where
 * each stack takes it over. It keeps nothing of it when it exits.
 *
 * Only root and the user whose unetd this is may change anything.
 */
#include <errno.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "arp/arp.h"
#include "config/config.h"
#include "config/route_text.h"
#include "unetd/daemon/addrs.h"
#include "unetd/daemon/daemon.h"
#include "unetd/daemon/ifaces.h"
#include "unetd/daemon/ports.h"
#include "unetd/daemon/routes.h"

static struct {
        struct route_table table;
        struct netconf net;      /* as published, without routes, which are in `table` */
        bool down[UNETD_IFACES]; /* set by `unet if down` */
} routes;

static struct netconf_if *if_at(uint32_t ifindex)
{
        return &routes.net.ifs[ifindex - 1];
}

/* ---- links ---- */

static bool ask_link(int fd, const char *name, unsigned long what, struct ifreq *r)
{
        snprintf(r->ifr_name, sizeof r->ifr_name, "%s", name);
        return ioctl(fd, what, r) == 0;
}

static void look_at_link(int fd, uint32_t i)
{
        struct netconf_if *f = &routes.net.ifs[i];
        char now[IF_NAMESIZE];
        const char *name = iface_device(i, now);
        struct ifreq r = {.ifr_flags = 0};
        bool up = ask_link(fd, name, SIOCGIFFLAGS, &r) && r.ifr_flags & IFF_UP;

        f->flags = NETCONF_IF_THERE | (up && !routes.down[i] ? NETCONF_IF_UP : 0);
        if (ask_link(fd, name, SIOCGIFMTU, &r))
                f->mtu = (uint32_t)r.ifr_mtu;
        iface_has_mtu(i, f->mtu);
        if (ask_link(fd, name, SIOCGIFHWADDR, &r) && r.ifr_hwaddr.sa_family == ARPHRD_ETHER) {
                memcpy(f->mac, r.ifr_hwaddr.sa_data, sizeof f->mac);
                iface_has_mac(i);
        }
        route_if_set(&routes.table, i + 1,
                     ROUTE_IF_BROADCAST | (f->flags & NETCONF_IF_UP ? ROUTE_IF_UP : 0),
                     MAX(f->mtu, 68u));
}

static void publish(void)
{
        struct netconf *net = &routes.net;
        struct route_report r;

        memset(net->route, 0, sizeof net->route);
        net->nroutes = 0;
        for (uint32_t i = 1; i <= routes.table.recs.fresh && net->nroutes < NETCONF_ROUTES; i++)
                if (route_walk(&routes.table, i, &r) && !(r.r.flags & ROUTE_F_CONNECTED))
                        net->route[net->nroutes++] = r.r;
        net->gen = unetd.dir.d->net.gen;
        if (memcmp(net, &unetd.dir.d->net, sizeof *net) != 0)
                directory_set_net(&unetd.dir, net);
}

void routes_look(void)
{
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        for (uint32_t i = 0; fd >= 0 && i < UNETD_IFACES; i++)
                if (routes.net.ifs[i].flags & NETCONF_IF_THERE)
                        look_at_link(fd, i);
        if (fd >= 0)
                close(fd);
        publish();
}

/* ---- what the config file says ---- */

static void add_iface(uint32_t i)
{
        const struct unetd_iface_config *c = &unetd.cfg.iface[i];
        struct route r = config_gateway(&unetd.cfg, i);

        routes.net.ifs[i] = (struct netconf_if){
                .addr = c->addr, .prefix = c->prefix, .flags = NETCONF_IF_THERE};
        route_if_set(&routes.table, i + 1, ROUTE_IF_BROADCAST, 68);
        route_addr_add(&routes.table, i + 1, c->addr, c->prefix);
        if (c->gateway != 0)
                route_add(&routes.table, &r);
}

static void add_configured(void)
{
        for (uint32_t k = 0; k < unetd.cfg.nroutes; k++) {
                const struct route *r = &unetd.cfg.route[k];
                char text[ROUTE_TEXT_MAX];
                int err = route_add(&routes.table, r);

                route_text_put(r, unetd.cfg.iface[r->ifindex - 1].name, text);
                if (err < 0)
                        log_line("route %s: left out, %s", text,
                                 err == -ENODEV ? "the interface is not there" : strerror(-err));
        }
        for (uint32_t k = 0; k < unetd.cfg.nneighs; k++)
                if (if_at(unetd.cfg.neigh[k].ifindex)->flags & NETCONF_IF_THERE)
                        routes.net.neigh[routes.net.nneighs++] = unetd.cfg.neigh[k];
}

void routes_init(void)
{
        uint8_t seed[16] = {0};

        if (getrandom(seed, sizeof seed, 0) < 0)
                log_line("no random numbers for the route table");
        route_format(&routes.table, seed);
        routes.net.ip = (struct netconf_ip){
                .ttl = unetd.cfg.ip_ttl != IP_TTL_USUAL ? (uint8_t)unetd.cfg.ip_ttl : 0,
                .source_routes = unetd.cfg.source_routes != 0,
                .redirects = unetd.cfg.redirects != 0,
                .ecn = unetd.cfg.tcp_ecn,
                .cc = unetd.cfg.tcp_cc,
                .arp_reachable_s = unetd.cfg.arp_reachable_s != ARP_REACHABLE_S
                                           ? unetd.cfg.arp_reachable_s
                                           : 0,
        };
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++)
                if (iface_find(UNETD_IFACE | i))
                        add_iface(i);
        add_configured();
        routes_look();
}

/* ---- changes ---- */

/* Finds the number of an interface of unetd's by its name; 0: none. */
static uint32_t by_name(const char *name)
{
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++)
                if (routes.net.ifs[i].flags & NETCONF_IF_THERE &&
                    strcmp(unetd.cfg.iface[i].name, name) == 0)
                        return i + 1;
        return 0;
}

/* Finds the interface on whose network the address is; 0: none. */
static uint32_t by_network(uint32_t addr)
{
        for (uint32_t i = 1; i <= UNETD_IFACES; i++) {
                const struct netconf_if *f = if_at(i);
                uint32_t mask = f->prefix ? ~0u << (32 - f->prefix) : 0;

                if (f->flags & NETCONF_IF_THERE && ((f->addr ^ addr) & mask) == 0)
                        return i;
        }
        return 0;
}

/* Finds the interface meant, by name or else by an address on its network. 0 or a negative errno.
 */
static int iface_meant(const struct unetd_net *n, uint32_t addr, uint8_t *ifindex)
{
        uint32_t i = n->iface[0] != '\0' ? by_name(n->iface) : addr != 0 ? by_network(addr) : 0;

        if (i == 0)
                return n->iface[0] != '\0' ? -ENODEV : -ENETUNREACH;
        *ifindex = (uint8_t)i;
        return 0;
}

static int change_add(struct unetd_net *n)
{
        int err = iface_meant(n, n->route.gateway, &n->route.ifindex);

        if (err == 0 && routes.net.nroutes == NETCONF_ROUTES)
                err = -ENOSPC;
        return err != 0 ? err : route_add(&routes.table, &n->route);
}

/* Returns true if the route matches the request: what the request leaves out matches anything. */
static bool is_meant(const struct route *r, const struct unetd_net *n, uint32_t ifindex)
{
        return !(r->flags & ROUTE_F_CONNECTED) && r->dst == n->route.dst &&
               r->prefix == n->route.prefix &&
               (n->route.gateway == 0 || r->gateway == n->route.gateway) &&
               (!(n->flags & UNETD_NET_METRIC) || r->metric == n->route.metric) &&
               (ifindex == 0 || r->ifindex == ifindex);
}

static int change_remove(const struct unetd_net *n)
{
        uint32_t ifindex = n->iface[0] != '\0' ? by_name(n->iface) : 0, matches = 0;
        struct route_report r;
        struct route found;

        if (n->iface[0] != '\0' && ifindex == 0)
                return -ENODEV;
        for (uint32_t i = 1; i <= routes.table.recs.fresh; i++) {
                if (route_walk(&routes.table, i, &r) && is_meant(&r.r, n, ifindex)) {
                        found = r.r;
                        matches++;
                }
        }
        if (matches != 1)
                return matches == 0 ? -ESRCH : -ENOTUNIQ;
        return route_del(&routes.table, &found);
}

static struct netconf_neigh *find_neigh(const struct netconf_neigh *n)
{
        for (uint32_t i = 0; i < routes.net.nneighs; i++)
                if (routes.net.neigh[i].addr == n->addr &&
                    routes.net.neigh[i].ifindex == n->ifindex)
                        return &routes.net.neigh[i];
        return NULL;
}

static int change_neigh(struct unetd_net *n, bool add)
{
        struct netconf_neigh *at;
        int err = iface_meant(n, n->neigh.addr, &n->neigh.ifindex);

        if (err != 0)
                return err;
        if (add && (by_network(n->neigh.addr) != n->neigh.ifindex ||
                    if_at(n->neigh.ifindex)->addr == n->neigh.addr))
                return -ENETUNREACH;
        at = find_neigh(&n->neigh);
        if (!add && !at)
                return -ESRCH;
        if (add && !at && routes.net.nneighs == NETCONF_NEIGHS)
                return -ENOSPC;
        if (add)
                *(at ? at : &routes.net.neigh[routes.net.nneighs++]) = n->neigh;
        else
                *at = routes.net.neigh[--routes.net.nneighs];
        memset(&routes.net.neigh[routes.net.nneighs], 0,
               (NETCONF_NEIGHS - routes.net.nneighs) * sizeof *at);
        return 0;
}

static int change_iface(const struct unetd_net *n, bool down)
{
        uint32_t i = by_name(n->iface);

        if (i == 0)
                return -ENODEV;
        routes.down[i - 1] = down;
        routes_look();
        return 0;
}

static int iface_came(const struct unetd_iface_config *c, int client)
{
        uint32_t i;
        int err = iface_add(c, client, &i);

        if (err != 0)
                return err;
        add_iface(i);
        routes_look();
        addrs_look();
        ports_offer_ifaces();
        return 0;
}

static void forget_routes(uint32_t ifindex)
{
        struct route_report r;

        for (uint32_t i = 1; i <= routes.table.recs.fresh; i++)
                if (route_walk(&routes.table, i, &r) && r.r.ifindex == ifindex &&
                    !(r.r.flags & ROUTE_F_CONNECTED))
                        route_del(&routes.table, &r.r);
}

static void forget_neighs(uint32_t ifindex)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < routes.net.nneighs; i++)
                if (routes.net.neigh[i].ifindex != ifindex)
                        routes.net.neigh[n++] = routes.net.neigh[i];
        memset(&routes.net.neigh[n], 0, (routes.net.nneighs - n) * sizeof routes.net.neigh[0]);
        routes.net.nneighs = n;
}

static int iface_left(const struct unetd_net *net)
{
        uint32_t i;
        int err = iface_remove(net->iface, &i);

        if (err != 0)
                return err;
        forget_routes(i + 1);
        forget_neighs(i + 1);
        route_addr_del(&routes.table, i + 1, routes.net.ifs[i].addr);
        route_if_set(&routes.table, i + 1, 0, 68);
        routes.net.ifs[i] = (struct netconf_if){.flags = 0};
        routes.down[i] = false;
        addrs_look();
        return 0;
}

static int change(const struct client *cl, struct unetd_msg *msg)
{
        switch (msg->type) {
        case UNETD_IFACE_ADD:
                return iface_came(&msg->iface, cl->conn.src.fd);
        case UNETD_IFACE_DEL:
                return iface_left(&msg->net);
        case UNETD_ROUTE_ADD:
                return change_add(&msg->net);
        case UNETD_ROUTE_DEL:
                return change_remove(&msg->net);
        case UNETD_NEIGH_ADD:
                return change_neigh(&msg->net, true);
        case UNETD_NEIGH_DEL:
                return change_neigh(&msg->net, false);
        case UNETD_IFACE_UP:
                return change_iface(&msg->net, false);
        default:
                return change_iface(&msg->net, true);
        }
}

int routes_change(struct client *cl, struct unetd_msg *msg)
{
        static const char *const verb[] = {"adds a route",          "removes a route",
                                           "adds a neighbour",      "removes a neighbour",
                                           "takes an interface up", "takes an interface down",
                                           "adds an interface",     "removes an interface"};
        int err;

        if (cl->user->uid != 0 && cl->user->uid != unetd.uid)
                return -EPERM;
        static_assert(offsetof(struct unetd_net, iface) ==
                              offsetof(struct unetd_iface_config, name),
                      "either has its name there");
        if (memchr(msg->net.iface, 0, sizeof msg->net.iface) == NULL)
                return -EBADMSG;
        err = change(cl, msg);
        if (err == 0)
                publish();
        log_line("uid %u %s: %s", cl->user->uid, verb[msg->type - UNETD_ROUTE_ADD],
                 err == 0 ? "done" : strerror(-err));
        return err;
}
