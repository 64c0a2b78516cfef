/* See macvlan.h. */
#include "unet/packet/macvlan.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

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
        else if (n >= (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)) &&
                 h->nlmsg_type == NLMSG_ERROR)
                err = ((const struct nlmsgerr *)NLMSG_DATA(h))->error;
        close(fd);
        return err;
}

static int make_device(uint32_t ifindex, uint32_t mode, int ns)
{
        struct request r = {
                .hdr = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
                        .nlmsg_type = RTM_NEWLINK,
                        .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL},
                .link = {.ifi_family = AF_UNSPEC}};
        uint32_t fd = (uint32_t)ns;
        struct rtattr *info, *data;

        add(&r, IFLA_IFNAME, MACVLAN_NAME, sizeof MACVLAN_NAME);
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
        struct request r = {.hdr = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
                                    .nlmsg_type = RTM_DELLINK,
                                    .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
                            .link = {.ifi_family = AF_UNSPEC}};

        add(&r, IFLA_IFNAME, MACVLAN_NAME, sizeof MACVLAN_NAME);
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
                return errno == ENOENT ? 0 : -errno; /* a kernel without */
        err = write(fd, "1", 1) == 1 ? 0 : -errno;
        close(fd);
        return err;
}

static int go(int ns)
{
        return setns(ns, CLONE_NEWNET) == 0 ? 0 : -errno;
}

int netns_enter(int ns)
{
        int home = current(), err;

        if (home < 0)
                return home;
        err = go(ns);
        if (err == 0)
                return home;
        close(home);
        return err;
}

void netns_return(int home)
{
        if (go(home) < 0)
                abort();
        close(home);
}

/* ---- all ---- */

/* The thread is at home again when the device is made there. */
int macvlan_open(uint32_t ifindex, uint32_t mode)
{
        int home = current(), ns, err;

        if (home < 0)
                return home;
        err = ns = enter_new();
        if (ns >= 0)
                err = silence();
        netns_return(home);
        if (err >= 0)
                err = make_device(ifindex, mode, ns);
        if (err >= 0)
                return ns;
        if (ns >= 0)
                close(ns);
        return err;
}

static int set_mtu(uint32_t mtu)
{
        struct ifreq r = {.ifr_name = MACVLAN_NAME, .ifr_mtu = (int)mtu};
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), err;

        if (fd < 0)
                return -errno;
        err = ioctl(fd, SIOCSIFMTU, &r) == 0 ? 0 : -errno;
        close(fd);
        return err;
}

int macvlan_set_mtu(int ns, uint32_t mtu)
{
        int home = netns_enter(ns), err;

        if (home < 0)
                return home;
        err = set_mtu(mtu);
        netns_return(home);
        return err;
}

int macvlan_end(int ns)
{
        int home = netns_enter(ns), err;

        if (home < 0)
                return home;
        err = delete_device();
        netns_return(home);
        return err;
}
