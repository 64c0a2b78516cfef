/* See pkt_open.h. */
#include "unet/packet/pkt_open.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "unet/packet/line.h"
#include "unet/packet/macvlan.h"

#define RCVBUF (8 << 20) /* bytes received that nobody has read yet; the kernel doubles it */
#define SNDBUF (4 << 20) /* ... and of frames that the device has not sent yet */

#define DIVERT_TRIES 100
#define DIVERT_PAUSE (10 * NS_PER_MS)

#ifndef PACKET_FANOUT_FLAG_IGNORE_OUTGOING
#define PACKET_FANOUT_FLAG_IGNORE_OUTGOING 0x4000
#endif

static int set(int fd, int level, int what, int value)
{
        return setsockopt(fd, level, what, &value, sizeof value) == 0 ? 0 : -errno;
}

/* What the host itself sends is none of what arrives. */
static int hear_no_outgoing(int fd)
{
        struct sock_filter how[] = {
                BPF_STMT(BPF_LD | BPF_B | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_PKTTYPE)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, UINT32_MAX)};
        struct sock_fprog prog = {ARRAY_LEN(how), how};

        return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof prog) == 0 ? 0 : -errno;
}

/* A group of its own, since only groups put fragments together. The socket's PACKET_IGNORE_OUTGOING
 * is not the group's: that has a flag, which kernels before it take no notice of, and then the
 * filter does it. */
static int put_together(int fd)
{
        uint32_t how = PACKET_FANOUT_LB | PACKET_FANOUT_FLAG_DEFRAG | PACKET_FANOUT_FLAG_UNIQUEID |
                       PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        int err = hear_no_outgoing(fd);

        return err == 0 ? set(fd, SOL_PACKET, PACKET_FANOUT, (int)(how << 16)) : err;
}

/* Groups' addresses are as many as stacks like: all are received. */
static int take_groups(const struct pkt_dev *d)
{
        struct packet_mreq all = {.mr_ifindex = (int)d->info.ifindex,
                                  .mr_type = PACKET_MR_ALLMULTI};

        return setsockopt(d->sock, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) == 0
                       ? 0
                       : -errno;
}

static int make_socket(struct pkt_dev *d, bool whole)
{
        struct sockaddr_ll ll = {.sll_family = AF_PACKET,
                                 .sll_protocol = htons(ETH_P_ALL),
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

/* ---- behind the socket ---- */

/* An earlier one goes some time after its last descriptor. */
static int divert(uint32_t ifindex)
{
        const struct timespec pause = {.tv_nsec = DIVERT_PAUSE};
        int ns = macvlan_open(ifindex, MACVLAN_MODE_PASSTHRU);

        for (int i = 1; i < DIVERT_TRIES && ns == -EINVAL; i++) {
                nanosleep(&pause, NULL);
                ns = macvlan_open(ifindex, MACVLAN_MODE_PASSTHRU);
        }
        return ns;
}

/* 0 or a negative errno; *by says what does it. */
static int keep_kernel_out(struct pkt_dev *d, pkt_drop_behind *drop, const char **by)
{
        int dropped = drop != NULL ? drop(d->info.ifindex) : -ENOSYS;

        *by = "a tcx program";
        if (dropped < 0) {
                *by = "a macvlan device";
                dropped = divert(d->info.ifindex);
        }
        d->link = dropped < 0 ? -1 : dropped;
        return MIN(dropped, 0);
}

int pkt_dev_open(struct pkt_dev *d, const char *ifname, bool whole, pkt_drop_behind *drop,
                 char line[XDP_LINE_MAX])
{
        const char *by = NULL;
        int err;

        *d = (struct pkt_dev){.sock = -1, .link = -1};
        line[0] = 0;
        err = ifinfo_get(&d->info, ifname);
        if (err == -ENODEV)
                say(line,
                    d->info.ifindex == 0 ? "no interface \"%s\" here"
                                         : "\"%s\" is not an Ethernet interface",
                    ifname);
        if (err == 0)
                err = make_socket(d, whole);
        if (err == 0)
                err = keep_kernel_out(d, drop, &by);
        if (err == 0)
                say(line,
                    "%s: packet socket with virtio headers, frames of 64 KB, MTU %u, %s behind it "
                    "keeps the kernel out",
                    ifname, d->info.mtu, by);
        else if (by != NULL)
                say(line,
                    "%s: nothing keeps the kernel out behind a packet socket; a macvlan device: %s",
                    ifname, strerror(-err));
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
