/*
 * Where a stack's packets go: its route table (ip/route.h), behind struct stack_state in its
 * segment, and how it follows what unetd publishes (ip/netconf.h).
 *
 * The table has all interfaces of the host that are U-Net's, whether this stack has a channel to
 * them or not. A process that opens a connection asks it which one leads there, and then for the
 * channel (sock/attach/ustack_iface.c, ustack_way_out()). On an interface it says who the next hop
 * is (netstack/netif.c). We are a host of the strong kind (RFC 1122 §3.3.4.2): what leaves from an
 * address leaves by its interface.
 *
 * A gateway that does not answer ARP gives way to others of the same prefix for a while
 * (route_gateway_died()).
 */
#ifndef NETSTACK_STACK_ROUTE_H
#define NETSTACK_STACK_ROUTE_H

#include "ip/netconf.h"

struct netif;
struct stack;
struct stack_state;

/* Interfaces that have come with channels of this stack: their addresses and gateways are known,
 * whatever else is. */
void stack_route_arrivals(struct stack *s);

/* Takes over what is published, if it is news: interfaces, addresses, routes, static neighbours,
 * MTUs, link addresses. Connections on interfaces whose MTU changed, or their route's, go on
 * with the new one; stack_flush() then. What is as it was stays untouched, with all that was
 * learnt of it. */
void stack_route_follow(struct stack *s, const struct netconf *conf, nstime now);

/* Interface n has another link address: neighbours are told. */
void stack_route_mac(struct stack *s, struct netif *n, const uint8_t mac[6], nstime now);

/* The caller's view of interfaces' MTUs, after another process took over a change. */
void stack_route_views(struct stack *s);

/* route_lookup() for a packet from `src` (0: choose), by interface `oif` (0: any, but src's if src
 * is given). */
int stack_route(struct stack *s, uint32_t dst, uint32_t src, uint32_t oif, nstime now,
                struct route_result *res);

/* The next hop to `dst` on interface n. 0: there is none. */
uint32_t stack_next_hop(struct stack *s, struct netif *n, uint32_t dst);

/* Gateway `hop` of interface n, or who else it is, does not answer. True: there is another way to
 * `dst` there. */
bool stack_route_dead(struct stack *s, struct netif *n, uint32_t hop, uint32_t dst);

/* RFC 1122 §3.2.2.2: the gateway that packets for said->dst go by on channel k names a better one.
 * True: they go by that from now on, until it does not answer, or until what is published changes.
 * All kinds of redirects are of one host. Only where unet.conf(5) says so: a redirect is nothing
 * but a packet (RFC 7126 §4, and what hardened hosts do). */
struct icmp_redirect;
bool stack_route_redirect(struct stack *s, uint32_t k, const struct icmp_redirect *said);

/* The MTU that a route to `dst` has of its own; 0: none. */
uint32_t stack_route_mtu(struct stack *s, uint32_t dst);

#endif
