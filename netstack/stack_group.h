/*
 * Groups and broadcasts, on interfaces (netstack/netif.h): what arrives for many sockets, what
 * leaves for many hosts, and IGMP. Memberships are in struct igmp behind struct stack_state, their
 * owners numbers of sockets.
 *
 *      in:   rx_udp() -> stack_rx_many() -> udp_rx_many(): a copy for each socket that wants it
 *            rx_datagram() -> stack_rx_igmp() -> igmp_rx()
 *      out:  stack_send_many(): on the wire, and to sockets of this stack
 *      then: netif_run() -> stack_group_run() -> igmp_output()
 *
 * The host's own sockets hear what the host sends there, too (RFC 1112 §6.1, §6.2). Those of this
 * stack get it here. Those of other stacks that share the interface get a second copy, which the
 * bridge passes on to them (unetd/bridge/gate.h). Each stack speaks IGMP for its own members, as if
 * it were a host.
 */
#ifndef NETSTACK_STACK_GROUP_H
#define NETSTACK_STACK_GROUP_H

#include "ip/igmp.h"
#include "udp/udp.h"

struct stack;
struct stack_payload;

/* IGMP's number of the interface of channel k, which has one. */
uint32_t stack_ifc(const struct stack *s, uint32_t k);

/* A datagram to a group or to everybody arrived on channel k. */
void stack_rx_many(struct stack *s, uint32_t k, const struct udp_dgram *d);
void stack_rx_igmp(struct stack *s, uint32_t k, const struct ip_pkt *pkt);

/* As stack_send_udp() for a datagram to a group or to everybody; with TTL 0 it stays inside.
 * `loop`: sockets of this stack hear it too. */
int stack_send_many(struct stack *s, uint32_t k, const struct udp_out *o,
                    const struct stack_payload *p, bool loop);

/* The interface of channel k is up, and what IGMP has to say leaves. */
void stack_group_run(struct stack *s, uint32_t k);
/* A socket is closed. */
void stack_group_leave_all(struct stack *s, uint32_t sock);
/* After a death inside, when it is known which sockets live. */
void stack_group_recover(struct stack *s, nstime now);

#endif
