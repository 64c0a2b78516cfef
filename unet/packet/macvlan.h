/*
 * A macvlan device on an interface, alone in a network namespace of its own, without addresses and
 * without IPv6. The namespace is a descriptor: with the last descriptor of it, and of the sockets
 * that were made there, the device goes.
 *
 * The privileged half: CAP_NET_ADMIN, and CAP_SYS_ADMIN for the namespace.
 */
#ifndef UNET_MACVLAN_H
#define UNET_MACVLAN_H

#include <stdint.h>

#define MACVLAN_NAME "by" /* of the device, in its namespace */

/*
 * `mode`: an enum macvlan_mode of <linux/if_link.h>, of an interface of the caller's namespace.
 * MACVLAN_MODE_SOURCE receives nothing. MACVLAN_MODE_PASSTHRU receives all packets to single hosts,
 * and drops them while it is down; there can be no other macvlan device then. The descriptor of the
 * namespace, or a negative errno: -EPERM; -EOPNOTSUPP: the kernel has no macvlan devices; -EINVAL:
 * other macvlan devices forbid this one; -EBUSY: the interface is part of a bridge or the like;
 * -EROFS: /proc/sys may not be written.
 */
int macvlan_open(uint32_t ifindex, uint32_t mode);
/* The device is deleted. 0 or a negative errno. */
int macvlan_end(int ns);
int macvlan_set_mtu(int ns, uint32_t mtu);

/* The thread enters a namespace, and returns home. A descriptor of home, which netns_return()
 * closes; or a negative errno. */
int netns_enter(int ns);
void netns_return(int home);

#endif
