/*
 * A route, and a neighbour, as people write them: the words of `unet route add` and of
 * unet.conf(5).
 *
 *      PREFIX [via GATEWAY] [dev INTERFACE] [metric NUMBER] [src ADDRESS] [mtu BYTES] [onlink]
 *      ADDRESS MAC [dev INTERFACE]
 *
 * PREFIX is an IPv4 address with the length of a prefix, as 192.0.2.0/24; an address alone (all 32
 * bits); or `default`.
 */
#ifndef CONFIG_ROUTE_TEXT_H
#define CONFIG_ROUTE_TEXT_H

#include "ip/netconf.h"

#define ROUTE_TEXT_MAX 160u /* bytes that route_text_put() needs */

struct route_text {
        struct route r; /* without ifindex */
        char dev[16];   /* empty: not said */
        bool metric_said;
};

struct neigh_text {
        struct netconf_neigh n; /* without ifindex */
        char dev[16];
};

/* NULL, and *out is filled in; or what is wrong, a sentence's end as in "... wants an address". */
const char *route_text_parse(const char *text, struct route_text *out);
/* `no_mac`: the link address is not there. */
const char *neigh_text_parse(const char *text, bool no_mac, struct neigh_text *out);
/* The route in these words; `dev` may be NULL. */
void route_text_put(const struct route *r, const char *dev, char out[ROUTE_TEXT_MAX]);
/* The prefix alone. */
void route_text_prefix(const struct route *r, char out[32]);

/* An IPv4 address that a host can have, in host order. */
bool text_host_addr(const char *text, uint32_t *addr);

#endif
