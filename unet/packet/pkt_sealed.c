/* See pkt_sealed.h. */
#include "unet/packet/pkt_sealed.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "unet/packet/macvlan.h"

#define SNDBUF (4 << 20) /* bytes of frames that the device has not sent yet */
/* ... and of runs that were sent and are held (ni_xdp.c); the kernel doubles it. */
#define RCVBUF (512 << 10)

/* ---- the socket, in the namespace ---- */

static int set(int fd, int level, int what, const void *p, size_t len)
{
        return setsockopt(fd, level, what, p, (socklen_t)len) == 0 ? 0 : -errno;
}

static int bring_up(int fd)
{
        struct ifreq r = {.ifr_name = MACVLAN_NAME, .ifr_flags = IFF_UP | IFF_NOARP};

        return ioctl(fd, SIOCSIFFLAGS, &r) == 0 ? 0 : -errno;
}

static int deafen(int fd)
{
        struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
        struct sock_fprog prog = {1, &nothing};
        int on = 1, err = set(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof prog);

        return err != 0 ? err : set(fd, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on);
}

/* As long as it is there the interface lets all groups through, whose frames its filter may keep
 * back otherwise (RFC 1112 §7.3); which of them are wanted is IP's to know. The macvlan has no
 * queue that could be passed by; the interface's is not. */
static int set_up(int fd, uint32_t mark)
{
        struct sockaddr_ll ll = {.sll_family = AF_PACKET,
                                 .sll_ifindex = (int)if_nametoindex(MACVLAN_NAME)};
        struct packet_mreq groups = {.mr_ifindex = ll.sll_ifindex, .mr_type = PACKET_MR_ALLMULTI};
        int on = 1, sndbuf = SNDBUF, rcvbuf = RCVBUF, err = deafen(fd);

        if (err == 0)
                err = bring_up(fd);
        if (err == 0 && mark != 0)
                err = set(fd, SOL_SOCKET, SO_MARK, &mark, sizeof mark);
        if (err == 0)
                err = set(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &groups, sizeof groups);
        if (err == 0)
                err = set(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on);
        if (err == 0)
                err = set(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on);
        if (err == 0)
                err = set(fd, SOL_SOCKET, SO_SNDBUFFORCE, &sndbuf, sizeof sndbuf);
        if (err == 0)
                err = set(fd, SOL_SOCKET, SO_RCVBUFFORCE, &rcvbuf, sizeof rcvbuf);
        if (err == 0 && bind(fd, (struct sockaddr *)&ll, sizeof ll) != 0)
                err = -errno;
        return err;
}

static int make_socket(uint32_t mark)
{
        int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

        if (fd < 0)
                return -errno;
        err = set_up(fd, mark);
        if (err == 0)
                return fd;
        close(fd);
        return err;
}

/* ---- all ---- */

/* In mode "source", without sources: what the interface receives is not the device's. */
int pkt_sealed_open(struct pkt_sealed *s, uint32_t ifindex, uint32_t mark)
{
        int home, err;

        *s = (struct pkt_sealed){-1, -1};
        err = s->ns = macvlan_open(ifindex, MACVLAN_MODE_SOURCE);
        if (err < 0)
                return err;
        err = home = netns_enter(s->ns);
        if (home >= 0) {
                err = s->sock = make_socket(mark);
                netns_return(home);
        }
        if (err < 0)
                pkt_sealed_close(s);
        return MIN(err, 0);
}

void pkt_sealed_close(struct pkt_sealed *s)
{
        if (s->sock >= 0)
                close(s->sock);
        if (s->ns >= 0)
                close(s->ns);
        *s = (struct pkt_sealed){-1, -1};
}

int pkt_sealed_socket(const struct pkt_sealed *s, int family, uint32_t *ifindex)
{
        int home = netns_enter(s->ns), fd;

        if (home < 0)
                return home;
        fd = socket(family, SOCK_RAW | SOCK_CLOEXEC, 0);
        fd = fd < 0 ? -errno : fd;
        *ifindex = if_nametoindex(MACVLAN_NAME);
        netns_return(home);
        return fd;
}

int pkt_sealed_mtu(const struct pkt_sealed *s, uint32_t mtu)
{
        return macvlan_set_mtu(s->ns, mtu);
}

int pkt_sealed_end(struct pkt_sealed *s)
{
        return macvlan_end(s->ns);
}
