/*
 * Asks the kernel who has a port: a client passes a socket, as it is at this moment.
 *
 * A system-wide unetd makes no call on that socket that takes the socket's lock. Another user could
 * hold the lock as long as he likes, by a call that copies from memory of his own FUSE file system.
 * Options of SOL_SOCKET do not take the lock. getsockname() does: so unetd finds the socket's name
 * in the list of sock_diag(7), by the socket's cookie. The list has TCP sockets that are bound and
 * do nothing else from Linux 6.8 on; before, a system-wide unetd does not vouch for one.
 *
 * A private unetd asks the socket itself. A TCP socket that listens has its port for itself. For a
 * socket that is only bound getsockname() does not suffice: it still names the port after the
 * kernel has given the port to somebody else, for example after a connection that failed. And a
 * connected socket may share its port with sockets of other users. Only a socket that is bound and
 * closed refuses to be bound (inet_bind(): EINVAL). The test is harmless: a socket that is not
 * bound gets a port of its own by it.
 */
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unetd/daemon/daemon.h"
#include "unetd/daemon/ifaces.h"
#include "unetd/daemon/ports.h"
#include "unetd/daemon/sockdiag.h"
#include "unetd/daemon/vouch.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif
#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif

enum { TCPI_CLOSE = 7, TCPI_LISTEN = 10 }; /* TCP_CLOSE, TCP_LISTEN of the kernel's tcp_states.h */

static uint64_t own_netns; /* SO_NETNS_COOKIE; 0: the kernel does not say */

static int int_opt(int fd, int level, int opt)
{
        int v;
        socklen_t len = sizeof v;

        return getsockopt(fd, level, opt, &v, &len) < 0 || len != sizeof v ? -1 : v;
}

static uint64_t netns_of(int fd)
{
        uint64_t cookie = 0;
        socklen_t len = sizeof cookie;

        return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) < 0 ? 0 : cookie;
}

int vouch_init(void)
{
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0)
                return -errno;
        own_netns = netns_of(fd);
        close(fd);
        return 0;
}

bool vouch_addr(int fd, ip_addr *addr, uint16_t *port)
{
        union {
                struct sockaddr sa;
                struct sockaddr_in in;
                struct sockaddr_in6 in6;
        } a;
        socklen_t len = sizeof a;

        if (getsockname(fd, &a.sa, &len) < 0)
                return false;
        if (a.sa.sa_family == AF_INET) {
                *addr = ip_addr_v4(ntohl(a.in.sin_addr.s_addr));
                *port = ntohs(a.in.sin_port);
                return true;
        }
        if (a.sa.sa_family != AF_INET6)
                return false;
        memcpy(addr, &a.in6.sin6_addr, sizeof *addr);
        *port = ntohs(a.in6.sin6_port);
        return true;
}

static bool is_closed(int fd)
{
        uint8_t state = 0;
        socklen_t len = sizeof state;

        return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &state, &len) == 0 && state == TCPI_CLOSE;
}

static bool refuses_to_be_bound(int fd, int family)
{
        /* The wildcard of either family is all zero. */
        struct sockaddr_in6 any = {.sin6_family = (sa_family_t)family};
        socklen_t len = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof any;

        return bind(fd, (struct sockaddr *)&any, len) < 0 && errno == EINVAL;
}

/* Looks twice. An owner who connects and closes the socket meanwhile, so that it looks closed at
 * one moment and bound at another, has to succeed twice. Even then the port's rightful owner finds
 * the claim stale when he claims the port (make_way() in ports.c). */
static bool is_bound(int fd, int family)
{
        for (int i = 0; i < 2; i++)
                if (!is_closed(fd) || !refuses_to_be_bound(fd, family))
                        return false;
        return is_closed(fd);
}

bool vouch_shares(int fd)
{
        return int_opt(fd, SOL_SOCKET, SO_REUSEADDR) == 1 ||
               int_opt(fd, SOL_SOCKET, SO_REUSEPORT) == 1;
}

uint64_t vouch_cookie(int fd)
{
        uint64_t cookie = 0;
        socklen_t len = sizeof cookie;

        return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) < 0 ? 0 : cookie;
}

struct listed {
        const struct unetd_port *want;
        uint64_t cookie;
        bool found;
        struct sockdiag_socket at;
        struct sockdiag_others others;
};

static bool look(void *arg, const struct sockdiag_socket *s)
{
        struct listed *l = arg;

        sockdiag_note(&l->others, s);
        if (s->elsewhere || s->cookie != l->cookie || s->port != l->want->port ||
            !ports_same_addr(s->addr, l->want->addr))
                return true;
        l->found = true;
        l->at = *s;
        return true;
}

static int kernel_lists(int fd, const struct unetd_port *want)
{
        struct listed l = {.want = want, .cookie = vouch_cookie(fd)};
        int r;

        if (l.cookie == 0)
                return -EINVAL;
        if (want->proto & DIR_HELD)
                r = sockdiag_each_bound(want->port, look, &l);
        else
                r = sockdiag_each(want->proto, want->port, look, &l);
        return r == 0 && l.found && !sockdiag_contested(&l.others, &l.at) ? 0 : -EINVAL;
}

int vouch_socket(int fd, const struct unetd_port *want)
{
        int family = int_opt(fd, SOL_SOCKET, SO_DOMAIN), proto = want->proto & ~DIR_HELD, device;
        ip_addr addr;
        uint16_t port;

        if ((family != AF_INET && family != AF_INET6) ||
            int_opt(fd, SOL_SOCKET, SO_PROTOCOL) != proto)
                return -EINVAL;
        if (netns_of(fd) != own_netns)
                return -EINVAL;
        if (want->proto == (IPPROTO_TCP | DIR_HELD)) {
                device = int_opt(fd, SOL_SOCKET, SO_BINDTOIFINDEX);
                if (device < 0 || (device != 0 && !iface_is(device)) ||
                    (!unetd.cfg.shared && !is_bound(fd, family)))
                        return -EINVAL;
        } else if (proto == IPPROTO_TCP && int_opt(fd, SOL_SOCKET, SO_ACCEPTCONN) != 1) {
                return -EINVAL;
        }
        if (unetd.cfg.shared)
                return kernel_lists(fd, want);
        if (!vouch_addr(fd, &addr, &port) || port != want->port ||
            !ports_same_addr(addr, want->addr))
                return -EINVAL;
        if (family == AF_INET6 && ip_addr_is_any(addr) &&
            int_opt(fd, IPPROTO_IPV6, IPV6_V6ONLY) != 0)
                return -EINVAL;
        return 0;
}
