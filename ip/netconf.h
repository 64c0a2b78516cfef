/*
 * What the host's interfaces, routes and static neighbours are to be: said by its owner (unet.conf(5), `unet route`), kept
 * and checked by unetd, published in its directory (unetd/directory.h), and taken over by every stack into a table of its
 * own (netstack/stack_route.h).
 *
 * A plain value without pointers. Interfaces have the numbers of ip/route.h: number n is ifs[n - 1]. Addresses are IPv4, in
 * host order.
 */
#ifndef IP_NETCONF_H
#define IP_NETCONF_H

#include "ip/route.h"

#define NETCONF_IFS    8u
#define NETCONF_ROUTES 256u
#define NETCONF_NEIGHS 64u
static_assert(NETCONF_IFS <= ROUTE_IFS && NETCONF_ROUTES + NETCONF_IFS <= ROUTE_MAX, "a table holds it");

enum {
        NETCONF_IF_THERE = 1,           /* 0: there is no such interface */
        NETCONF_IF_UP = 2,              /* may be used */
};

struct netconf_if {
        uint32_t addr;
        uint32_t mtu;                   /* bytes of an IP packet; 0: not known */
        uint8_t prefix;                 /* of addr's network; the route there comes with it */
        uint8_t flags;                  /* NETCONF_IF_* */
};

struct netconf_neigh {                  /* its link address is what it is, whatever ARP says */
        uint32_t addr;
        uint8_t ifindex;
        uint8_t mac[6];
};

struct netconf {
        uint32_t gen;                   /* one more with each change; 0: nobody has said anything */
        uint32_t nroutes, nneighs;
        struct netconf_if ifs[NETCONF_IFS];
        struct route route[NETCONF_ROUTES];     /* without those that come with addresses */
        struct netconf_neigh neigh[NETCONF_NEIGHS];
};

#endif
