/* See pkt_open.h. */
#include "unet/xdp/pkt_open.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unet/xdp/tcx_link.h"
#include "unet/xdp/xdp_line.h"

#define RCVBUF (8 << 20)                /* bytes received that nobody has read yet; the kernel doubles it */
#define SNDBUF (4 << 20)                /* ... and of frames that the device has not sent yet */

#ifndef PACKET_FANOUT_FLAG_IGNORE_OUTGOING
#define PACKET_FANOUT_FLAG_IGNORE_OUTGOING 0x4000
#endif

static int drop_behind(struct pkt_dev *d, char line[XDP_LINE_MAX])
{
        int err = d->link = tcx_link_tap("to_nobody", d->info.ifindex);

        if (err < 0)
                say(line, "no program can be hung behind the packet socket: %s%s", strerror(-err),
                    err == -EOPNOTSUPP ? " (Linux 6.6 can)" : "");
        return MIN(err, 0);
}

static int set(int fd, int level, int what, int value)
{
        return setsockopt(fd, level, what, &value, sizeof value) == 0 ? 0 : -errno;
}

/* A group of its own, since only groups put fragments together. */
static int put_together(int fd)
{
        uint32_t how = PACKET_FANOUT_LB | PACKET_FANOUT_FLAG_DEFRAG | PACKET_FANOUT_FLAG_UNIQUEID |
                       PACKET_FANOUT_FLAG_IGNORE_OUTGOING;

        return set(fd, SOL_PACKET, PACKET_FANOUT, (int)(how << 16));
}

/* Groups' addresses are as many as stacks like: all are received. */
static int take_groups(const struct pkt_dev *d)
{
        struct packet_mreq all = {.mr_ifindex = (int)d->info.ifindex, .mr_type = PACKET_MR_ALLMULTI};

        return setsockopt(d->sock, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) == 0 ? 0 : -errno;
}

static int make_socket(struct pkt_dev *d, bool whole)
{
        struct sockaddr_ll ll = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL),
                                 .sll_ifindex = (int)d->info.ifindex};
        int fd = d->sock = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

        if (fd < 0)
                return -errno;
        err = set(fd, SOL_PACKET, PACKET_VNET_HDR, 1);
        if (err == 0)
                err = set(fd, SOL_PACKET, PACKET_AUXDATA, 1);
        if (err == 0)
                err = set(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);
        if (err == 0)
                err = set(fd, SOL_SOCKET, SO_RCVBUFFORCE, RCVBUF);
        if (err == 0)
                err = set(fd, SOL_SOCKET, SO_SNDBUFFORCE, SNDBUF);
        if (err == 0)
                err = bind(fd, (struct sockaddr *)&ll, sizeof ll) == 0 ? 0 : -errno;
        if (err == 0)
                err = take_groups(d);
        return err == 0 && whole ? put_together(fd) : err;
}

int pkt_dev_open(struct pkt_dev *d, const char *ifname, bool whole, char line[XDP_LINE_MAX])
{
        int err;

        *d = (struct pkt_dev){.sock = -1, .link = -1};
        line[0] = 0;
        err = ifinfo_get(&d->info, ifname);
        if (err == -ENODEV)
                say(line, d->info.ifindex == 0 ? "no interface \"%s\" here" : "\"%s\" is not an Ethernet interface", ifname);
        if (err == 0)
                err = make_socket(d, whole);
        if (err == 0)
                err = drop_behind(d, line);
        if (err == 0)
                say(line, "%s: packet socket with virtio headers, frames of 64 KB, MTU %u, the kernel sees none of it",
                    ifname, d->info.mtu);
        else if (line[0] == 0)
                say(line, "no packet socket on %s: %s", ifname, strerror(-err));
        if (err != 0)
                pkt_dev_close(d);
        return err;
}

void pkt_dev_close(struct pkt_dev *d)
{
        if (d->link >= 0)
                close(d->link);
        if (d->sock >= 0)
                close(d->sock);
        d->link = d->sock = -1;
}
