/*
 * unetd's interfaces as a process sees them: which one leads to an address, by what name and
 * number, and what they say of addresses and routes.
 */
#include "sock/attach/handle.h"
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_daemon.h"
#include "sock/attach/ustack_directory.h"
#include "sock/attach/ustack_link.h"
#include "sock/attach/ustack_way.h"
#include "sock/usock_ifaces.h"

#include <errno.h>
#include <netinet/in.h>

/* By the stack's routes: the interface, and our address there. */
static bool way_out(struct ustack *u, ip_addr to, ip_addr from, uint32_t oif, ip_addr *src,
                    struct dir_iface *f)
{
        uint32_t bound = ip_addr_is_v4(from) && !ip_addr_is_any(from) ? ip_addr_get_v4(from) : 0;
        struct route_result r;
        int err;

        ustack_lock(u);
        err = stack_route(&u->s, ip_addr_get_v4(to), bound, oif, ustack_now(), &r);
        ustack_leave(u);
        if (err != 0 || r.src == 0 ||
            !ustack_iface(ustack_directory(), UNETD_IFACE | (r.ifindex - 1u), f))
                return false;
        *src = ip_addr_v4(r.src);
        return true;
}

int ustack_way_out(struct ustack *u, uint8_t proto, ip_addr to, uint16_t port, ip_addr from,
                   uint32_t oif, ip_addr *src, const char **why)
{
        const struct directory *dir = ustack_directory();
        struct dir_iface f;
        int chan;

        assert(!ustack_locked(u));
        *why = "another host's address, and unetd has no interface of its own";
        if (dir != NULL && dir->nverbs != 0 && ustack_verbs_to(dir, to, &f) == 1) {
                chan = ustack_remote(u, &f, proto, to, port, why);
                if (chan < 0)
                        return chan;
                *why = "accelerated";
                *src = ip_addr_v4(f.addr);
                return chan;
        }
        if (dir == NULL || dir->nifaces == 0 || !ip_addr_is_v4(to))
                return -ENOENT;
        *why = "another host's address, to which no route of unetd's leads (unet route)";
        if (!way_out(u, to, from, oif, src, &f))
                return -ENOENT;
        *why = "the interface to that host cannot be had";
        chan = ustack_chan_to(u, f.peer);
        if (chan < 0)
                return -ENOENT;
        *why = "accelerated";
        return chan;
}

static struct usock_iface describe(const struct dir_iface *f, const struct directory *dir)
{
        const struct netconf_if *state = &dir->net.ifs[(f->peer & ~UNETD_IFACE) % NETCONF_IFS];
        struct usock_iface v = {.addr = f->addr,
                                .prefix = (uint8_t)MIN(f->prefix, 32u),
                                .down = !(state->flags & NETCONF_IF_UP)};

        memcpy(v.name, f->name, sizeof v.name - 1);
        return v;
}

unsigned usock_ifaces(struct usock_iface v[USOCK_IFACES])
{
        const struct directory *dir = ustack_directory_if_any();
        struct dir_reading r = {0};
        unsigned n = 0;

        while (dir != NULL && ustack_read(dir, &r)) {
                n = 0;
                for (uint32_t i = 0; i < DIR_IFACES; i++)
                        if (dir->iface[i].peer != 0)
                                v[n++] = describe(&dir->iface[i], dir);
        }
        return r.whole ? n : 0;
}
static_assert(USOCK_IFACES == DIR_IFACES, "room for all");

uint32_t ustack_iface_number(const char *name)
{
        struct dir_iface all[DIR_IFACES];
        bool any = ustack_ifaces(ustack_directory_anyway(), all);

        for (uint32_t i = 0; any && i < DIR_IFACES; i++)
                if (all[i].peer != 0 && strncmp(all[i].name, name, sizeof all[i].name) == 0)
                        return (all[i].peer & ~UNETD_IFACE) + 1;
        return 0;
}

ip_addr ustack_listen_addr(const struct sock_rec *rec)
{
        struct dir_iface f;

        if (rec->oif == 0 || !ip_addr_is_any(rec->laddr) ||
            !ustack_iface(ustack_directory(), UNETD_IFACE | (rec->oif - 1u), &f))
                return rec->laddr;
        return ip_addr_v4(f.addr);
}

bool usock_is_device(const char *name, socklen_t len)
{
        char copy[16] = "";

        memcpy(copy, name, MIN(len, (socklen_t)sizeof copy - 1));
        return *copy == '\0' || ustack_iface_number(copy) != 0;
}

bool usock_is_device_number(int ifindex)
{
        return ifindex == 0 || usock_device((uint32_t)ifindex) != 0;
}

bool usock_port_leased(uint16_t port)
{
        const struct directory *dir = ustack_directory_anyway();

        return dir != NULL && directory_lessee_of(dir, port) != 0;
}

bool usock_port_settle(int kind, const struct sockaddr *sa, socklen_t len)
{
        uint8_t proto = kind == USOCK_UDP ? IP_PROTO_UDP : IP_PROTO_TCP;
        uint16_t port;
        ip_addr addr;
        int err;

        if (usock_addr_in(sa, len, &addr, &port) != 0 || port == 0 ||
            ustack_directory_anyway() == NULL)
                return false;
        err = unetd_port_settle(ustack_client(), proto, addr, port);
        ustack_client_done();
        return err == 0 || err == -ENOENT; /* nobody has it: not any more, maybe */
}

bool usock_is_iface_addr(const struct sockaddr *sa, socklen_t len)
{
        struct dir_iface all[DIR_IFACES];
        uint16_t port;
        ip_addr addr;

        if (usock_addr_in(sa, len, &addr, &port) != 0 ||
            !ustack_ifaces(ustack_directory_anyway(), all))
                return false;
        for (uint32_t i = 0; i < DIR_IFACES; i++)
                if (all[i].peer != 0 && ip_addr_eq(addr, ip_addr_v4(all[i].addr)))
                        return true;
        return false;
}

/* An interface to an address that is not this host's, and our address there. */
static bool leads_out(const struct usock *s, ip_addr addr, bool last, ip_addr *src,
                      struct dir_iface *f)
{
        struct ustack *mine;
        bool found;
        int err;

        if (ip_addr_is_v4(addr) && ip_addr_get_v4(addr) >= 0xe0000000) {
                found = usock_group_iface(s, addr, last, f);
                *src = ip_addr_v4(f->addr);
                return found;
        }
        if (!ip_addr_is_v4(addr) || ustack_is_local(ustack_directory(), addr) != 0)
                return false;
        mine = ustack_mine(&err);
        return mine != NULL && way_out(mine, addr, (ip_addr){{0, 0}}, 0, src, f);
}

bool usock_way_out(const struct usock *s, const struct sockaddr *to, socklen_t len, bool last,
                   int family, struct sockaddr *from, socklen_t *from_len, const char **why)
{
        const struct directory *dir = ustack_directory_anyway();
        struct dir_iface f;
        uint16_t port;
        ip_addr addr, src;

        if (dir == NULL || dir->nifaces == 0 || usock_addr_in(to, len, &addr, &port) != 0 ||
            !leads_out(s, addr, last, &src, &f))
                return false;
        usock_addr_out(family, src, 0, from, from_len);
        return true;
}

static bool is_at(ip_addr laddr, const struct dir_iface *f)
{
        return ip_addr_is_any(laddr) || ip_addr_eq(laddr, ip_addr_v4(f->addr));
}

void ustack_take_ifaces(struct ustack *u, ip_addr laddr)
{
        const struct directory *dir = ustack_directory();
        struct dir_iface own[DIR_IFACES], verbs[DIR_IFACES];
        struct dir_reading r = {0};
        uint32_t nverbs = 0;

        while (dir != NULL && READ_ONCE(dir->nifaces) + READ_ONCE(dir->nverbs) != 0 &&
               ustack_read(dir, &r)) {
                memcpy(own, dir->iface, sizeof own);
                memcpy(verbs, dir->verbs, sizeof verbs);
                nverbs = MIN(dir->nverbs, DIR_IFACES);
        }
        for (uint32_t i = 0; r.whole && i < DIR_IFACES; i++)
                if (own[i].peer != 0 && is_at(laddr, &own[i]))
                        ustack_chan_to(u, own[i].peer);
        for (uint32_t i = 0; r.whole && i < nverbs; i++)
                if (is_at(laddr, &verbs[i]))
                        ustack_link_take(u, &verbs[i]);
}

int ustack_wake_fds(const struct ustack *u, struct pollfd *pfd)
{
        int n = 0;

        for (uint32_t i = 0; unlikely(i < u->s.st->netifs); i++) {
                uint32_t chan = stack_netif(u->s.st, i)->chan;
                const struct ustack_way *way = chan != 0 ? ustack_way_at(u, chan - 1) : NULL;
                if (way != NULL && way->wake_fd != NULL)
                        pfd[n++] =
                                (struct pollfd){.fd = way->wake_fd(u, chan - 1), .events = POLLIN};
        }
        return n;
}

/* ---- addresses ---- */

/* Interfaces, routes and neighbours. */
static void follow_net(struct ustack *u, const struct directory *d)
{
        struct netconf net;

        if (d->net.gen == u->s.st->net_gen || !directory_net(d, &net))
                return;
        stack_route_follow(&u->s, &net, ustack_now());
        stack_flush(&u->s, ustack_now());
}

/* The addresses that packets on a channel inside this host may be for, and where others are sent:
 * what unetd publishes. Kept in the state, for those who have no directory. */
void ustack_follow(struct ustack *u)
{
        const struct directory *d = ustack_directory();
        struct stack_state *st = u->s.st;

        if (d == NULL || likely(st->addr_gen == directory_generation(d) + 1))
                return;
        st->addr_gen = directory_generation(d) + 1;
        stack_set_addrs(st, d->addrs, MIN(d->naddrs, DIR_ADDRS));
        follow_net(u, d);
}
