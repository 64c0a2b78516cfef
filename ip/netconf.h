/*
 * What the host's interfaces, routes and static neighbours are to be. The host's owner says it
 * (unet.conf(5), `unet route`). The daemon unetd keeps and checks it, and publishes it in its
 * directory (unetd/client/directory.h). Every stack takes it over into a table of its own
 * (netstack/stack_route.h).
 *
 * A plain value without pointers. Interfaces have the numbers of ip/route.h: number n is ifs[n -
 * 1]. Addresses are IPv4, in host order.
 */
#ifndef IP_NETCONF_H
#define IP_NETCONF_H

#include "ip/route.h"

#define NETCONF_IFS    8u
#define NETCONF_ROUTES 256u
#define NETCONF_NEIGHS 64u
static_assert(NETCONF_IFS <= ROUTE_IFS && NETCONF_ROUTES + NETCONF_IFS <= ROUTE_MAX,
              "a table holds it");

enum {
        NETCONF_IF_THERE = 1, /* 0: there is no such interface */
        NETCONF_IF_UP = 2,    /* may be used */
};

struct netconf_if {
        uint32_t addr;
        uint32_t mtu;   /* bytes of an IP packet; 0: not known */
        uint8_t prefix; /* of addr's network; the route there comes with it */
        uint8_t flags;  /* NETCONF_IF_* */
        uint8_t mac[6]; /* its link address; all zero: not known */
};

struct netconf_neigh { /* its link address is what it is, whatever ARP says */
        uint32_t addr;
        uint8_t ifindex;
        uint8_t mac[6];
};

/* Settings of the host's IP and TCP, whatever the interface: [ip] and [tcp] of unet.conf(5). All
 * zeros is the usual. */
struct netconf_ip {
        uint8_t ttl;           /* of what no socket has another for; 0: IP_TTL_USUAL */
        uint8_t source_routes; /* 1: what came by one to its end is taken, and answered along it */
        uint8_t redirects;     /* 1: gateways may name better ones */
        uint8_t ecn;           /* enum tcp_ecn of tcp/tcp.h, for all TCP sockets */
        uint8_t cc;            /* their congestion control: enum of tcp/tcp_cc.h */
        /* A neighbour is good without proof for so long; 0: the cache's own time. */
        uint32_t arp_reachable_s;
};
#define IP_TTL_USUAL 64u /* RFC 1700; the current Assigned Numbers */

struct netconf {
        uint32_t gen; /* one more with each change; 0: nobody has said anything */
        uint32_t nroutes, nneighs;
        struct netconf_ip ip;
        struct netconf_if ifs[NETCONF_IFS];
        struct route route[NETCONF_ROUTES]; /* without those that come with addresses */
        struct netconf_neigh neigh[NETCONF_NEIGHS];
};

#endif
