/* The addresses and links of this network namespace. unetd reads them again whenever rtnetlink
 * reports a change. */
#include <errno.h>
#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unetd/daemon/addrs.h"
#include "unetd/daemon/daemon.h"
#include "unetd/daemon/ifaces.h"
#include "unetd/daemon/routes.h"

static bool addr_of(const struct sockaddr *sa, ip_addr *out)
{
        if (!sa)
                return false;
        if (sa->sa_family == AF_INET) {
                *out = ip_addr_v4(
                        ntohl(((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr));
                return true;
        }
        if (sa->sa_family != AF_INET6)
                return false;
        memcpy(out, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, sizeof *out);
        return true;
}

static bool lo_is_down(const struct ifaddrs *list)
{
        for (const struct ifaddrs *i = list; i; i = i->ifa_next)
                if (i->ifa_flags & IFF_LOOPBACK)
                        return !(i->ifa_flags & IFF_UP);
        return false;
}

void addrs_look(void)
{
        struct ifaddrs *list;
        ip_addr addrs[DIR_ADDRS];
        uint32_t n = 0;

        if (getifaddrs(&list) < 0)
                return;
        atomic_store(&unetd.dir.d->lo_down, lo_is_down(list));
        for (struct ifaddrs *i = list; i && n < DIR_ADDRS; i = i->ifa_next)
                if (addr_of(i->ifa_addr, &addrs[n]))
                        n++;
        freeifaddrs(list);
        n = iface_addrs(addrs, n, DIR_ADDRS);
        directory_set_addrs(&unetd.dir, addrs, n);
}

/* Discards the messages: it matters only that some came. An overrun (ENOBUFS) says so, too. */
static void routes_ready(struct loop_source *s, uint32_t events)
{
        char buf[8192];

        for (int i = 0; i < 64 && recv(s->fd, buf, sizeof buf, MSG_DONTWAIT) > 0; i++)
                ;
        routes_look();
        ifaces_look();
        addrs_look();
}

int addrs_init(void)
{
        struct sockaddr_nl nl = {.nl_family = AF_NETLINK,
                                 .nl_groups =
                                         RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_LINK};
        int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

        unetd.routes = (struct loop_source){.fd = -1, .ready = routes_ready};
        if (fd < 0)
                return -errno;
        if (bind(fd, (struct sockaddr *)&nl, sizeof nl) < 0) {
                int err = errno;
                close(fd);
                return -err;
        }
        unetd.routes.fd = fd;
        addrs_look();
        return loop_add(&unetd.loop, &unetd.routes, EPOLLIN);
}
