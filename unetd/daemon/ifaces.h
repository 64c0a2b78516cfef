/* Interfaces that unetd owns. */
#ifndef UNETD_IFACES_H
#define UNETD_IFACES_H

#include "unetd/daemon/daemon.h"

void ifaces_init(void);
/* One more, by the wish of this client: 0 and its index. -ENXIO: the kernel knows no such device;
 * -EEXIST: it is there; -EADDRINUSE: another has the address, here or on its network; -ENOSPC;
 * -EINVAL, -EOPNOTSUPP: no settings for one; -ENODATA: it cannot be had (see the log). Asking on
 * its network takes half a second, for which unetd does nothing else. */
int iface_add(const struct unetd_iface_config *c, int client, uint32_t *index);
/* It is the kernel's again: -ENODEV, or 0 and its index. Its channels end. */
int iface_remove(const char *name, uint32_t *index);
/* Stacks that wait for something at the address get a channel to each interface that has it (any:
 * to all). */
void ifaces_offer(struct stack *st, ip_addr addr);
/* Those that a request names in a stack's place; NULL: none. */
struct iface *iface_find(uint32_t peer);
/* One more stack uses it: the first by a socket of its own, several by a gateway, and then those
 * that were there before have to be moved. 0, or why it cannot be. */
int iface_enter(struct iface *f, uint32_t stack);
/* One fewer; `port` is its place at the gateway, or NULL. */
void iface_leave(struct iface *f, struct gate_port *port);
bool iface_is_shared(const struct iface *f);
/* A place at the gateway for an end whose region is made. 0 or a negative errno. */
int iface_plug(struct iface *f, const struct end *e, struct gate_port **port);
/* What a channel to it is, and its descriptors (new ones, the caller's), but for the frames to send
 * from. 0 or a negative errno. */
int iface_describe(const struct iface *f, const struct gate_port *port,
                   struct unetd_chan_info *info, int fds[UNETD_CHAN_FDS_MAX]);
/* What a stack's frames at a gateway came to. */
struct unetd_emul_counts iface_counts(const struct gate_port *port);
/* The skip-th interface that the stack has to itself, and what was dropped before its rings. */
bool iface_sockets(const struct stack *st, uint32_t *skip, struct unetd_status_item *item);
/* The gateways' work; when there is more. */
nstime ifaces_turn(void);
/* unetd leaves: whose sending was checked sends no more. */
void ifaces_end(void);
/* Links have changed. */
void ifaces_look(void);
/* The MTU of the i-th one's device is this now; its link address may be another. */
void iface_has_mtu(uint32_t i, uint32_t mtu);
void iface_has_mac(uint32_t i);
/* Returns true if stacks other than this one have TCP connections from these ports, by a gateway;
 * this one has none there any more. */
bool ifaces_flow_of_others(uint32_t stack, uint16_t first, uint32_t count);
void ifaces_forget_flows(uint32_t stack, uint16_t first, uint32_t count);
/* Returns true if one of them has it; the kernel then does not. */
bool iface_has_addr(ip_addr addr);
/* The kernel's numbers of their devices, as many as are returned; a system call or two for each. */
uint32_t iface_indexes(unsigned index[UNETD_IFACES]);
/* Returns true if a device's is among them. */
bool iface_is(int ifindex);
/* What the kernel calls the device of interface i now. */
const char *iface_device(uint32_t i, char name[IF_NAMESIZE]);
/* Appends their addresses: local ones, to everybody on this host. */
uint32_t iface_addrs(ip_addr *addrs, uint32_t n, uint32_t room);

#endif
