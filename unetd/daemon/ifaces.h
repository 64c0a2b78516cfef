/* Interfaces that unetd owns. */
#ifndef UNETD_IFACES_H
#define UNETD_IFACES_H

#include "unetd/daemon/daemon.h"

void ifaces_init(void);
/* Takes one more interface, for this client: 0 and its index. -ENXIO: the kernel knows no such
 * device; -EEXIST: unetd has it already; -EADDRINUSE: another host or interface has the address;
 * -ENOSPC; -EINVAL, -EOPNOTSUPP: no settings for one; -ENODATA: it cannot be had (see the log).
 * unetd asks on the network for half a second, and does nothing else meanwhile. */
int iface_add(const struct unetd_iface_config *c, int client, uint32_t *index);
/* Gives the interface back to the kernel, and ends its channels: -ENODEV, or 0 and its index. */
int iface_remove(const char *name, uint32_t *index);
/* Gives a stack that listens at the address a channel to each interface that has it (any: to all).
 */
void ifaces_offer(struct stack *st, ip_addr addr);
/* Finds the interface that a request names in a stack's place; NULL: none. */
struct iface *iface_find(uint32_t peer);
/* Takes one more stack in. The first stack has a socket of its own. Several share a bridge, and
 * the caller moves those that were there before. 0 or a negative errno. */
int iface_enter(struct iface *f, uint32_t stack);
/* A stack leaves; `port` is its place at the bridge, or NULL. */
void iface_leave(struct iface *f, struct gate_port *port);
bool iface_is_shared(const struct iface *f);
/* Makes a place at the bridge for an end whose region is made. 0 or a negative errno. */
int iface_plug(struct iface *f, const struct end *e, struct gate_port **port);
/* Describes a channel to the interface, and makes its descriptors (the caller's), but for the
 * frames to send from. 0 or a negative errno. */
int iface_describe(const struct iface *f, const struct gate_port *port,
                   struct unetd_chan_info *info, int fds[UNETD_CHAN_FDS_MAX]);
/* Returns the counters of a stack's place at a bridge. */
struct unetd_emul_counts iface_counts(const struct gate_port *port);
/* Fills in the skip-th interface that the stack has to itself, and what was dropped before its
 * rings. Returns false if there are fewer. */
bool iface_sockets(const struct stack *st, uint32_t *skip, struct unetd_status_item *item);
/* Does the bridges' work. Returns when to be called again. */
nstime ifaces_turn(void);
/* unetd exits: stacks whose sending is checked can send no more. */
void ifaces_end(void);
/* Follows changes of links. */
void ifaces_look(void);
/* The device of interface i has this MTU now; its link address may have changed. */
void iface_has_mtu(uint32_t i, uint32_t mtu);
void iface_has_mac(uint32_t i);
/* Returns true if another stack than this one has a TCP connection from these ports, by a bridge.
 */
bool ifaces_flow_of_others(uint32_t stack, uint16_t first, uint32_t count);
/* Returns true if an interface of unetd's has the address, which the kernel then has not. */
bool iface_has_addr(ip_addr addr);
/* Fills in the kernel's numbers of the devices, and returns how many. It makes a system call or two
 * for each. */
uint32_t iface_indexes(unsigned index[UNETD_IFACES]);
/* Returns true if the number is that of an interface's device. */
bool iface_is(int ifindex);
/* Returns the kernel's present name of the device of interface i. */
const char *iface_device(uint32_t i, char name[IF_NAMESIZE]);
/* Appends the interfaces' addresses, which are local to everybody on this host. */
uint32_t iface_addrs(ip_addr *addrs, uint32_t n, uint32_t room);

#endif
