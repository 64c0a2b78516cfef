/*
 * What belongs to the whole host: who listens where, which kernel ports are held, which client ports are
 * whose.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unetd/daemon.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

static uint64_t own_netns;              /* cookie; 0: the kernel does not tell */
static uint32_t listened[UINT16_MAX + 1];       /* TCP: the stack that last listened there and does not now; 0: none */

union any_addr {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
};

/* ---- kernel sockets ---- */

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

static bool local_addr(int fd, ip_addr *addr, uint16_t *port)
{
        union any_addr a;
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

static bool same_addr(ip_addr a, ip_addr b)
{
        return ip_addr_eq(a, b) || (ip_addr_is_any(a) && ip_addr_is_any(b));
}

/* The kernel's word that whoever passed this socket has the port, in this network namespace. */
static int check_socket(int fd, const struct unetd_port *want)
{
        ip_addr addr;
        uint16_t port;
        int family = int_opt(fd, SOL_SOCKET, SO_DOMAIN);

        if ((family != AF_INET && family != AF_INET6) || int_opt(fd, SOL_SOCKET, SO_PROTOCOL) != want->proto)
                return -EINVAL;
        if (netns_of(fd) != own_netns)
                return -EINVAL;
        if (!local_addr(fd, &addr, &port) || port != want->port || !same_addr(addr, want->addr))
                return -EINVAL;
        if (want->proto == IPPROTO_TCP && int_opt(fd, SOL_SOCKET, SO_ACCEPTCONN) != 1)
                return -EINVAL;
        if (family == AF_INET6 && ip_addr_is_any(addr) && int_opt(fd, IPPROTO_IPV6, IPV6_V6ONLY) != 0)
                return -EINVAL;
        return 0;
}

static bool valid(const struct unetd_port *p, bool port_may_be_0)
{
        return (p->proto == IPPROTO_TCP || p->proto == IPPROTO_UDP) && (p->port != 0 || port_may_be_0);
}

static struct listener *find_in(struct listener *first, const struct unetd_port *key)
{
        for (struct listener *l = first; l; l = LIST_NEXT(l, link))
                if (l->port == key->port && l->proto == key->proto && same_addr(l->addr, key->addr))
                        return l;
        return NULL;
}

static struct listener *listener_new(const struct unetd_port *key, int fd)
{
        struct listener *l = calloc(1, sizeof *l);

        if (l)
                *l = (struct listener){.proto = key->proto, .port = key->port, .addr = key->addr, .fd = fd};
        return l;
}

static void listener_free(struct user *u, struct listener *l)
{
        LIST_REMOVE(l, link);
        discard(u, &l->fd, 1, false);
        free(l);
}

/* ---- listeners ---- */

/* Who may have the entry: in a shared unetd, only who has the port. */
static int may_listen(struct stack *st, const struct wire_in *in)
{
        if (in->n > 1)
                return -EBADMSG;
        if (in->n == 1)
                return check_socket(in->fds[0], &in->msg.port);
        return unetd.cfg.shared && !find_in(LIST_FIRST(&st->holds), &in->msg.port) ? -EACCES : 0;
}

int listen_add(struct client *cl, struct wire_in *in)
{
        const struct unetd_port *p = &in->msg.port;
        struct stack *st;
        struct listener *l;
        int r = stack_of(cl->user, p->stack, &st);

        if (r < 0)
                return r;
        if (!valid(p, false))
                return -EINVAL;
        r = st->state == STACK_UP ? may_listen(st, in) : -ENOENT;
        if (r < 0)
                return r;
        if (st->user->used.listeners >= unetd.cfg.per_uid.listeners)
                return -EDQUOT;
        l = listener_new(p, -1);
        if (!l)
                return -ENOMEM;
        r = directory_add(&unetd.dir, p->proto, p->addr, p->port, st->id, st->user->uid);
        if (r < 0) {
                free(l);
                return r == -EEXIST ? -EADDRINUSE : r;
        }
        l->fd = in->n == 1 ? wire_in_take(in, 0) : -1;
        LIST_INSERT_HEAD(&st->listeners, l, link);
        st->user->used.listeners++;
        unetd.nlisteners++;
        return links_ports(cl, &in->msg, st, (struct vlink_range){.proto = l->proto, .first = l->port, .count = 1}, true);
}

static void unlisten(struct stack *st, struct listener *l)
{
        directory_del(&unetd.dir, l->proto, l->addr, l->port, st->id);
        if (l->proto == IPPROTO_TCP)
                listened[l->port] = st->id;
        links_ports(NULL, NULL, st, (struct vlink_range){.proto = l->proto, .first = l->port, .count = 1}, false);
        st->user->used.listeners--;
        unetd.nlisteners--;
        listener_free(st->user, l);
}

int listen_del(struct user *u, const struct unetd_msg *msg)
{
        struct stack *st;
        struct listener *l;
        int r = stack_of(u, msg->port.stack, &st);

        if (r < 0)
                return r;
        l = find_in(LIST_FIRST(&st->listeners), &msg->port);
        if (!l)
                return -ENOENT;
        unlisten(st, l);
        return 0;
}

uint32_t port_listened(uint8_t proto, uint16_t port)
{
        return proto == IPPROTO_TCP ? listened[port] : 0;
}

void ports_stop_listening(struct stack *st)
{
        struct listener *l;

        while ((l = LIST_FIRST(&st->listeners)))
                unlisten(st, l);
}

/* ---- held ports ---- */

static socklen_t to_sockaddr(const struct unetd_port *p, union any_addr *a)
{
        memset(a, 0, sizeof *a);
        if (ip_addr_is_v4(p->addr)) {
                a->in.sin_family = AF_INET;
                a->in.sin_port = htons(p->port);
                a->in.sin_addr.s_addr = htonl(ip_addr_get_v4(p->addr));
                return sizeof a->in;
        }
        a->in6.sin6_family = AF_INET6;
        a->in6.sin6_port = htons(p->port);
        memcpy(&a->in6.sin6_addr, &p->addr, sizeof p->addr);
        return sizeof a->in6;
}

/* ip_unprivileged_port_start, which a unetd run by root has to ask for itself. */
static bool privileged(uint16_t port)
{
        unsigned start = 1024;
        FILE *f = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "re");

        if (f) {
                if (fscanf(f, "%u", &start) != 1)
                        start = 1024;
                fclose(f);
        }
        return port != 0 && port < start;
}

/* Without SO_REUSEADDR: nobody else can bind the port while we have it. */
static int bind_kernel(const struct unetd_port *p)
{
        union any_addr a;
        socklen_t len = to_sockaddr(p, &a);
        int type = p->proto == IPPROTO_TCP ? SOCK_STREAM : SOCK_DGRAM, no = 0, yes = 1;
        int fd = socket(a.sa.sa_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, p->proto);

        if (fd < 0)
                return -errno;
        if (a.sa.sa_family == AF_INET6)
                setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
        if (a.sa.sa_family == AF_INET && iface_has_addr(p->addr))
                setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &yes, sizeof yes);
        if (bind(fd, &a.sa, len) < 0) {
                int err = errno;
                close(fd);
                return -err;
        }
        return fd;
}

static void hold_free(struct stack *st, struct listener *hold)
{
        directory_del(&unetd.dir, hold->proto | DIR_HELD, hold->addr, hold->port, st->id);
        links_ports(NULL, NULL, st, (struct vlink_range){.proto = hold->proto, .first = hold->port, .count = 1}, false);
        st->user->used.holds--;
        listener_free(st->user, hold);
}

int port_hold(struct client *cl, struct unetd_msg *msg)
{
        struct unetd_port *p = &msg->port;
        struct stack *st;
        struct listener *hold;
        ip_addr addr;
        int fd, r = stack_of(cl->user, p->stack, &st);

        if (r < 0)
                return r;
        if (!valid(p, true))
                return -EINVAL;
        if (st->user->used.holds >= unetd.cfg.per_uid.holds)
                return -EDQUOT;
        if (st->user->uid != unetd.uid && privileged(p->port))
                return -EACCES;
        fd = bind_kernel(p);
        if (fd < 0)
                return fd;
        hold = local_addr(fd, &addr, &p->port) ? listener_new(p, fd) : NULL;
        if (!hold) {
                close(fd);
                return -ENOMEM;
        }
        /* So that other users' stacks know whose what comes from there is. */
        r = directory_add(&unetd.dir, hold->proto | DIR_HELD, hold->addr, hold->port, st->id, st->user->uid);
        LIST_INSERT_HEAD(&st->holds, hold, link);
        st->user->used.holds++;
        if (r < 0) {
                hold_free(st, hold);
                return r == -EEXIST ? -EADDRINUSE : r;
        }
        return links_ports(cl, msg, st, (struct vlink_range){.proto = hold->proto, .first = hold->port, .count = 1}, true);
}

int port_release(struct client *cl, const struct unetd_msg *msg)
{
        struct stack *st;
        struct listener *hold;
        int r = stack_of(cl->user, msg->port.stack, &st);

        if (r < 0)
                return r;
        hold = find_in(LIST_FIRST(&st->holds), &msg->port);
        if (!hold)
                return -ENOENT;
        hold_free(st, hold);
        return 0;
}

/* ---- leases ---- */

int ports_init(void)
{
        unsigned low = 32768, high = 60999;
        FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (f) {
                if (fscanf(f, "%u %u", &low, &high) != 2 || low == 0 || low > high || high > 65535)
                        low = 32768, high = 60999;
                fclose(f);
        }
        if (fd < 0)
                return -errno;
        own_netns = netns_of(fd);
        close(fd);
        unetd.lease_low = (uint16_t)low;
        unetd.lease_blocks = MIN((high - low + 1) / unetd.cfg.lease_ports, DIR_BLOCKS);
        directory_set_ports(&unetd.dir, unetd.lease_low, (uint16_t)unetd.cfg.lease_ports);
        if (unetd.lease_blocks > 0)
                unetd.lease_next = unetd.next_stack % unetd.lease_blocks;       /* random, as that is */
        return 0;
}

static uint16_t block_first(uint32_t block)
{
        return (uint16_t)(unetd.lease_low + block * unetd.cfg.lease_ports);
}

static struct vlink_range block_range(uint32_t block)
{
        return (struct vlink_range){.proto = IPPROTO_TCP, .first = block_first(block), .count = (uint16_t)unetd.cfg.lease_ports};
}

/* The block that a stack had with an earlier unetd. */
static int block_retake(struct stack *st, uint16_t first, uint32_t *block)
{
        uint32_t b = (uint32_t)(first - unetd.lease_low) / unetd.cfg.lease_ports;

        if (first < unetd.lease_low || b >= unetd.lease_blocks || block_first(b) != first ||
            directory_lessee(&unetd.dir, b) != 0)
                return -EADDRNOTAVAIL;
        directory_lease(&unetd.dir, b, st->id);
        *block = b;
        return 0;
}

/* Round and round, so that a block that came back rests before it is used again. */
static int block_take(struct stack *st, uint32_t *block)
{
        for (uint32_t i = 0; i < unetd.lease_blocks; i++) {
                uint32_t b = (unetd.lease_next + i) % unetd.lease_blocks;
                if (directory_lessee(&unetd.dir, b) == 0) {
                        directory_lease(&unetd.dir, b, st->id);
                        unetd.lease_next = b + 1;
                        *block = b;
                        return 0;
                }
        }
        return -EADDRNOTAVAIL;
}

static void lease_free(struct stack *st, struct lease *l)
{
        directory_lease(&unetd.dir, l->block, 0);
        links_ports(NULL, NULL, st, block_range(l->block), false);
        st->user->used.leases--;
        LIST_REMOVE(l, link);
        free(l);
}

int port_lease(struct client *cl, struct unetd_msg *msg)
{
        struct stack *st;
        struct lease *l;
        int r = stack_of(cl->user, msg->lease.stack, &st);

        if (r < 0)
                return r;
        if (st->user->used.leases >= unetd.cfg.per_uid.leases)
                return -EDQUOT;
        l = calloc(1, sizeof *l);
        if (!l)
                return -ENOMEM;
        r = msg->lease.first ? block_retake(st, msg->lease.first, &l->block) : block_take(st, &l->block);
        if (r < 0) {
                free(l);
                return r;
        }
        LIST_INSERT_HEAD(&st->leases, l, link);
        st->user->used.leases++;
        msg->lease.first = block_first(l->block);
        msg->lease.count = (uint16_t)unetd.cfg.lease_ports;
        return links_ports(cl, msg, st, block_range(l->block), true);
}

int port_unlease(struct client *cl, const struct unetd_msg *msg)
{
        struct stack *st;
        struct lease *l;
        int r = stack_of(cl->user, msg->lease.stack, &st);

        if (r < 0)
                return r;
        LIST_FOREACH(l, &st->leases, link) {
                if (block_first(l->block) == msg->lease.first) {
                        lease_free(st, l);
                        return 0;
                }
        }
        return -ENOENT;
}

void ports_free(struct stack *st)
{
        struct listener *hold;
        struct lease *l;

        ports_stop_listening(st);
        while ((hold = LIST_FIRST(&st->holds)))
                hold_free(st, hold);
        while ((l = LIST_FIRST(&st->leases)))
                lease_free(st, l);
}
