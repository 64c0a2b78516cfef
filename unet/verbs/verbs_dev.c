/* Finding RDMA devices, and saying what they can do. */
#include "unet/verbs/verbs_dev.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define GIDS_MAX 1024 /* of a device; more are not looked at */

/* ---- GID tables ---- */

typedef bool each_gid_fn(void *arg, struct ibv_context *ctx, const struct ibv_gid_entry *e);

/* Calls fn for each RoCE v2 entry until it says true; returns whether it did. */
static bool each_gid(struct ibv_context *ctx, each_gid_fn *fn, void *arg)
{
        struct ibv_gid_entry *entry = calloc(GIDS_MAX, sizeof *entry);
        ssize_t n = entry != NULL ? ibv_query_gid_table(ctx, entry, GIDS_MAX, 0) : 0;
        bool found = false;

        for (ssize_t i = 0; i < n && !found; i++)
                found = entry[i].gid_type == IBV_GID_TYPE_ROCE_V2 && fn(arg, ctx, &entry[i]);
        free(entry);
        return found;
}

static bool is_place(void *arg, struct ibv_context *ctx, const struct ibv_gid_entry *e)
{
        struct verbs_dev *d = arg;

        if (memcmp(&e->gid, &d->addr, sizeof d->addr) != 0 || e->gid_index > UINT8_MAX ||
            e->port_num > UINT8_MAX)
                return false;
        d->ctx = ctx;
        d->port = (uint8_t)e->port_num;
        d->gid_index = (uint8_t)e->gid_index;
        return true;
}

static int query(struct verbs_dev *d)
{
        struct ibv_port_attr port;
        int err = ibv_query_device(d->ctx, &d->attr);

        if (err == 0)
                err = ibv_query_port(d->ctx, d->port, &port);
        if (err != 0)
                return -err;
        if (port.state != IBV_PORT_ACTIVE)
                return -ENETDOWN;
        d->mtu = 128u << port.active_mtu; /* IBV_MTU_256 is 1 */
        return 0;
}

int verbs_dev_refresh(struct verbs_dev *d)
{
        return each_gid(d->ctx, is_place, d) ? query(d) : -ENODEV;
}

/* ---- devices ---- */

/* Opens them one after the other; keeps open the one for which fn says true. */
static bool each_device(each_gid_fn *fn, void *arg, int *ndevices)
{
        struct ibv_device **list = ibv_get_device_list(ndevices);
        bool found = false;

        if (list == NULL) {
                *ndevices = -errno;
                return false;
        }
        for (int i = 0; i < *ndevices && !found; i++) {
                struct ibv_context *ctx = ibv_open_device(list[i]);
                if (ctx == NULL)
                        continue;
                found = each_gid(ctx, fn, arg);
                if (!found)
                        ibv_close_device(ctx);
        }
        ibv_free_device_list(list);
        return found;
}

int verbs_dev_open(ip_addr addr, struct verbs_dev *out)
{
        struct verbs_dev d = {.addr = addr};
        int n, err;

        if (!each_device(is_place, &d, &n))
                return -ENODEV;
        err = query(&d);
        if (err != 0)
                ibv_close_device(d.ctx);
        else
                *out = d;
        return err;
}

void verbs_dev_close(struct verbs_dev *d)
{
        ibv_close_device(d->ctx);
}

/* ---- for people ---- */

struct text {
        char *at;
        size_t left;
        int addresses;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format, ...)
{
        va_list args;
        int n;

        va_start(args, format);
        n = vsnprintf(t->at, t->left, format, args);
        va_end(args);
        n = MIN(n, (int)t->left - 1);
        t->at += n;
        t->left -= (size_t)n;
}

static bool put_place(void *arg, struct ibv_context *ctx, const struct ibv_gid_entry *e)
{
        struct text *t = arg;
        struct ibv_device_attr_ex attr = {0};
        struct ibv_port_attr port;
        char addr[INET6_ADDRSTRLEN];

        if (ibv_query_port(ctx, (uint8_t)e->port_num, &port) != 0 ||
            ibv_query_device_ex(ctx, NULL, &attr) != 0)
                return false;
        t->addresses++;
        put(t, "%s port %u: %s, %s, messages up to %u bytes, GID index %u, on-demand paging: %s\n",
            ibv_get_device_name(ctx->device), e->port_num,
            inet_ntop(AF_INET6, &e->gid, addr, sizeof addr),
            port.state == IBV_PORT_ACTIVE ? "up" : "down", 128u << port.active_mtu, e->gid_index,
            attr.odp_caps.per_transport_caps.ud_odp_caps & IBV_ODP_SUPPORT_SEND ? "yes (not used)"
                                                                                : "no");
        return false;
}

int verbs_dev_describe(char *text, size_t max)
{
        struct text t = {text, max, 0};
        int n;

        text[0] = '\0';
        each_device(put_place, &t, &n);
        if (n < 0)
                put(&t, "no RDMA devices: %s\n",
                    n == -ENOSYS ? "the kernel has no RDMA" : strerror(-n));
        else if (n == 0)
                put(&t, "no RDMA devices: the kernel found none\n");
        else if (t.addresses == 0)
                put(&t, "no usable RDMA devices: none of %d has an address over RoCE v2\n", n);
        return t.addresses;
}
