/* In place of what makes sockets on interfaces where libbpf or clang was missing when this
 * was built. */
#include "unet/xdp/send_check.h"
#include "unet/xdp/tcx_link.h"

#include <errno.h>
#include <stdio.h>

static int not_here(char line[XDP_LINE_MAX])
{
        snprintf(line, XDP_LINE_MAX,
                 "this build has no AF_XDP: libbpf or clang was missing when it was configured");
        return -ENOSYS;
}

int xdp_dev_open(struct xdp_dev *d, const char *ifname, enum xdp_want want, char line[XDP_LINE_MAX])
{
        return not_here(line);
}

void xdp_dev_close(struct xdp_dev *d)
{
}

int xdp_sock_open(struct xdp_sock *s, const struct xdp_dev *d, uint32_t queue,
                  struct xdp_sizes sizes, char line[XDP_LINE_MAX])
{
        return not_here(line);
}

void xdp_sock_close(struct xdp_sock *s)
{
}

void xdp_drops(const struct xdp_sock *s, const struct xdp_dev *d, struct xdp_drops *n)
{
        *n = (struct xdp_drops){0};
}

int tcx_find(enum tcx_way way, const char *name, uint32_t ifindex)
{
        return -1;
}

bool tcx_has(const char *name, uint32_t ifindex)
{
        return false;
}

int send_check_open(struct send_check *c, uint32_t ifindex, uint32_t addr, const uint8_t mac[6],
                    char line[XDP_LINE_MAX])
{
        *c = SEND_CHECK_NONE;
        return not_here(line);
}

int send_check_set(struct send_check *c, uint32_t addr, const uint8_t mac[6])
{
        return -ENOSYS;
}

uint64_t send_check_refused(const struct send_check *c)
{
        return 0;
}

void send_check_close(struct send_check *c, bool ended)
{
}

int tcx_link_tap(const char *name, uint32_t ifindex)
{
        return -ENOSYS;
}
