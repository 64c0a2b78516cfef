/* See pkt_sealed.h. */
#include "unet/xdp/pkt_sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEVICE "by"                     /* its name, where nothing else has one */
#define SNDBUF (4 << 20)                /* bytes of frames that the device has not sent yet */
#define RCVBUF (512 << 10)              /* ... and of runs that were sent and are held (ni_xdp.c); the kernel doubles it */
#define NO_IP6 "/proc/sys/net/ipv6/conf/default/disable_ipv6"

/* ---- rtnetlink(7) ---- */

struct request {
        struct nlmsghdr hdr;
        struct ifinfomsg link;
        char attrs[256];
};

static struct rtattr *add(struct request *r, uint16_t type, const void *p, size_t len)
{
        struct rtattr *a = (struct rtattr *)((char *)r + NLMSG_ALIGN(r->hdr.nlmsg_len));

        *a = (struct rtattr){.rta_type = type, .rta_len = (uint16_t)RTA_LENGTH(len)};
        if (len != 0)
                memcpy(RTA_DATA(a), p, len);
        r->hdr.nlmsg_len = (uint32_t)(NLMSG_ALIGN(r->hdr.nlmsg_len) + RTA_ALIGN(a->rta_len));
        return a;
}

/* What was added since belongs into it. */
static void close_nest(const struct request *r, struct rtattr *a)
{
        a->rta_len = (uint16_t)((const char *)r + r->hdr.nlmsg_len - (const char *)a);
}

static int ask(const struct request *r)
{
        _Alignas(struct nlmsghdr) char answer[1024];
        const struct nlmsghdr *h = (const void *)answer;
        int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), err = -EIO;
        ssize_t n;

        if (fd < 0)
                return -errno;
        n = send(fd, r, r->hdr.nlmsg_len, 0);
        if (n >= 0)
                n = recv(fd, answer, sizeof answer, 0);
        if (n < 0)
                err = -errno;
        else if (n >= (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)) && h->nlmsg_type == NLMSG_ERROR)
                err = ((const struct nlmsgerr *)NLMSG_DATA(h))->error;
        close(fd);
        return err;
}

/* In mode "source", without sources: what the interface receives is not its. */
static int make_device(uint32_t ifindex, int ns)
{
        struct request r = {.hdr = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)), .nlmsg_type = RTM_NEWLINK,
                                    .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL},
                            .link = {.ifi_family = AF_UNSPEC}};
        uint32_t mode = MACVLAN_MODE_SOURCE, fd = (uint32_t)ns;
        struct rtattr *info, *data;

        add(&r, IFLA_IFNAME, DEVICE, sizeof DEVICE);
        add(&r, IFLA_LINK, &ifindex, sizeof ifindex);
        add(&r, IFLA_NET_NS_FD, &fd, sizeof fd);
        info = add(&r, IFLA_LINKINFO, NULL, 0);
        add(&r, IFLA_INFO_KIND, "macvlan", sizeof "macvlan" - 1);
        data = add(&r, IFLA_INFO_DATA, NULL, 0);
        add(&r, IFLA_MACVLAN_MODE, &mode, sizeof mode);
        close_nest(&r, data);
        close_nest(&r, info);
        return ask(&r);
}

static int delete_device(void)
{
        struct request r = {.hdr = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)), .nlmsg_type = RTM_DELLINK,
                                    .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
                            .link = {.ifi_family = AF_UNSPEC}};

        add(&r, IFLA_IFNAME, DEVICE, sizeof DEVICE);
        return ask(&r);
}

/* ---- the namespace ---- */

static int current(void)
{
        int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

        return fd < 0 ? -errno : fd;
}

/* The thread is in it from here on. */
static int enter_new(void)
{
        return unshare(CLONE_NEWNET) == 0 ? current() : -errno;
}

/* A device that comes up would speak IPv6 to the network. */
static int silence(void)
{
        int fd = open(NO_IP6, O_WRONLY | O_CLOEXEC), err;

        if (fd < 0)
                return errno == ENOENT ? 0 : -errno;    /* a kernel without */
        err = write(fd, "1", 1) == 1 ? 0 : -errno;
        close(fd);
        return err;
}

/* ---- the socket, in the namespace ---- */

static int set(int fd, int level, int what, const void *p, size_t len)
{
        return setsockopt(fd, level, what, p, (socklen_t)len) == 0 ? 0 : -errno;
}

static int bring_up(int fd)
{
        struct ifreq r = {.ifr_name = DEVICE, .ifr_flags = IFF_UP | IFF_NOARP};

        return ioctl(fd, SIOCSIFFLAGS, &r) == 0 ? 0 : -errno;
}

static int deafen(int fd)
{
        struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
        struct sock_fprog prog = {1, &nothing};
        int on = 1, err = set(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof prog);

        return err != 0 ? err : set(fd, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on);
}

/* As long as it is there the interface lets all groups through, whose frames its filter may keep back otherwise (RFC 1112 §7.3);
 * which of them are wanted is IP's to know. The macvlan has no queue that could be passed by; the interface's is not. */
static int set_up(int fd, uint32_t mark)
{
        struct sockaddr_ll ll = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(DEVICE)};
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

static int go_home(int home)
{
        return setns(home, CLONE_NEWNET) == 0 ? 0 : -errno;
}

/* The thread is in the namespace, and is at home in between: the device is made where the interface is. */
static int furnish(struct pkt_sealed *s, int home, uint32_t ifindex, uint32_t mark)
{
        int err = silence();

        if (err == 0)
                err = go_home(home);
        if (err == 0)
                err = make_device(ifindex, s->ns);
        if (err == 0)
                err = go_home(s->ns);
        if (err == 0)
                err = s->sock = make_socket(mark);
        return err < 0 ? err : 0;
}

int pkt_sealed_open(struct pkt_sealed *s, uint32_t ifindex, uint32_t mark)
{
        int home = current(), err;

        *s = (struct pkt_sealed){-1, -1};
        if (home < 0)
                return home;
        err = s->ns = enter_new();
        if (err >= 0)
                err = furnish(s, home, ifindex, mark);
        if (go_home(home) < 0)
                abort();
        close(home);
        if (err < 0)
                pkt_sealed_close(s);
        return err;
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
        int home = current(), fd;

        if (home < 0)
                return home;
        fd = go_home(s->ns);
        if (fd == 0) {
                fd = socket(family, SOCK_RAW | SOCK_CLOEXEC, 0);
                fd = fd < 0 ? -errno : fd;
                *ifindex = if_nametoindex(DEVICE);
        }
        if (go_home(home) < 0)
                abort();
        close(home);
        return fd;
}

static int set_mtu(uint32_t mtu)
{
        struct ifreq r = {.ifr_name = DEVICE, .ifr_mtu = (int)mtu};
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), err;

        if (fd < 0)
                return -errno;
        err = ioctl(fd, SIOCSIFMTU, &r) == 0 ? 0 : -errno;
        close(fd);
        return err;
}

/* With an MTU of 0 the device is deleted. */
static int change(const struct pkt_sealed *s, uint32_t mtu)
{
        int home = current(), err;

        if (home < 0)
                return home;
        err = go_home(s->ns);
        if (err == 0)
                err = mtu != 0 ? set_mtu(mtu) : delete_device();
        if (go_home(home) < 0)
                abort();
        close(home);
        return err;
}

int pkt_sealed_mtu(const struct pkt_sealed *s, uint32_t mtu)
{
        return change(s, mtu);
}

int pkt_sealed_end(struct pkt_sealed *s)
{
        return change(s, 0);
}
