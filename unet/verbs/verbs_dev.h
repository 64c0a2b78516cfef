/*
 * RDMA devices, by address. A host is named by its IP address; over RoCE v2 the GID is the same 16
 * bytes (IPv4 v4-mapped), so the table of GIDs tells which device and port an address belongs to.
 */
#ifndef UNET_VERBS_DEV_H
#define UNET_VERBS_DEV_H

#include <infiniband/verbs.h>

#include "base/base.h"

struct verbs_dev {
        struct ibv_context *ctx;
        ip_addr addr; /* the GID */
        uint8_t port;
        uint8_t gid_index;
        uint32_t mtu;                /* active: the longest payload of a datagram, bytes */
        struct ibv_device_attr attr; /* what the device can hold */
};

/* Opens the device that has the address. -ENODEV: none has it; -ENETDOWN: its port is down; or what
 * libibverbs says. */
int verbs_dev_open(ip_addr addr, struct verbs_dev *out);
void verbs_dev_close(struct verbs_dev *d);
/* Looks the address up again: its index may have changed, the port gone down or up.
 * As verbs_dev_open(). */
int verbs_dev_refresh(struct verbs_dev *d);

/* A line of text for each device, port and address that can be used, cut at `max` bytes; or the one
 * line that says why there are none. Returns how many addresses. */
int verbs_dev_describe(char *text, size_t max);

static inline union ibv_gid verbs_gid(ip_addr addr)
{
        union ibv_gid gid;

        memcpy(&gid, &addr, sizeof gid);
        return gid;
}
static_assert(sizeof(union ibv_gid) == sizeof(ip_addr), "a GID of RoCE v2 is an address");

#endif
