/* What the kernel says of an Ethernet interface of this network namespace. */
#ifndef UNET_IFINFO_H
#define UNET_IFINFO_H

#include "base/base.h"

struct ifinfo {
        uint32_t ifindex, mtu;
        uint32_t queues; /* receive queues, at least 1 */
        uint8_t mac[6];
        bool veth; /* packets are handed over in memory, unfinished sums and all */
};

/* 0; -ENODEV: there is none of this name (ifindex 0), or it is not Ethernet; other
 * negative errno. */
int ifinfo_get(struct ifinfo *i, const char *ifname);

#endif
