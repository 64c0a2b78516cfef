/*
 * Sockets and groups: which interface, memberships, and what is sent to many (ip(7), RFC 1112, RFC
 * 3678).
 *
 * A group is one of an interface. On those of unetd's the group is ours: joined here, told by IGMP,
 * heard by sockets of this stack. On all others, loopback among them, it is the kernel's, whose
 * socket beside ours is a member: the shim asks usock_group_side() which it is. A socket without a
 * kernel's beside it (the native API) has ours only.
 *
 * A call names an interface by its address or its number (if_nametoindex()), or not at all. Not at
 * all is by unetd's routes (a gateway is a route to all), else by the kernel's, and the first of
 * unetd's when there is none.
 */
#include "sock/attach/handle.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_directory.h"
#include "sock/udp/usock_group.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>

#include "sock/udp/usock_cmsg.h"
#include "sock/usock_dgram.h"

#define MEMBERSHIPS_MAX 20u /* Linux: net.ipv4.igmp_max_memberships */

/* ---- the forms of the options ---- */

bool usock_is_group_opt(int level, int name)
{
        if (level != IPPROTO_IP)
                return false;
        switch (name) {
        case IP_MULTICAST_IF:
        case IP_ADD_MEMBERSHIP:
        case IP_DROP_MEMBERSHIP:
        case IP_ADD_SOURCE_MEMBERSHIP:
        case IP_DROP_SOURCE_MEMBERSHIP:
        case IP_BLOCK_SOURCE:
        case IP_UNBLOCK_SOURCE:
        case MCAST_JOIN_GROUP:
        case MCAST_LEAVE_GROUP:
        case MCAST_JOIN_SOURCE_GROUP:
        case MCAST_LEAVE_SOURCE_GROUP:
        case MCAST_BLOCK_SOURCE:
        case MCAST_UNBLOCK_SOURCE:
        case IP_MSFILTER:
        case MCAST_MSFILTER:
                return true;
        default:
                return false;
        }
}

static uint32_t host_order(struct in_addr a)
{
        return ntohl(a.s_addr);
}

/* struct in_addr (of IP_MULTICAST_IF alone), struct ip_mreq or struct ip_mreqn. */
static int read_mreq(const void *val, socklen_t len, bool short_form, struct group_call *g)
{
        struct ip_mreqn m = {.imr_ifindex = 0};

        if (len < sizeof(struct ip_mreq)) {
                if (!short_form || len < sizeof(struct in_addr))
                        return -EINVAL;
                memcpy(&m.imr_address, val, sizeof m.imr_address);
        } else {
                memcpy(&m, val, len >= sizeof m ? sizeof m : sizeof(struct ip_mreq));
        }
        *g = (struct group_call){.group = host_order(m.imr_multiaddr),
                                 .ifaddr = host_order(m.imr_address),
                                 .ifindex = (uint32_t)m.imr_ifindex};
        return 0;
}

static int read_mreq_source(const void *val, socklen_t len, struct group_call *g)
{
        struct ip_mreq_source m;

        if (len != sizeof m)
                return -EINVAL;
        memcpy(&m, val, sizeof m);
        *g = (struct group_call){.group = host_order(m.imr_multiaddr),
                                 .ifaddr = host_order(m.imr_interface),
                                 .src = host_order(m.imr_sourceaddr)};
        return 0;
}

static int read_address(const struct sockaddr_storage *ss, int wrong, uint32_t *addr)
{
        struct sockaddr_in in;

        if (ss->ss_family != AF_INET)
                return wrong;
        memcpy(&in, ss, sizeof in);
        *addr = host_order(in.sin_addr);
        return 0;
}

/* RFC 3678 §5.1: struct group_req, struct group_source_req. */
static int read_group_req(const void *val, socklen_t len, struct group_call *g)
{
        struct group_req r;

        if (len < sizeof r)
                return -EINVAL;
        memcpy(&r, val, sizeof r);
        *g = (struct group_call){.ifindex = r.gr_interface};
        return read_address(&r.gr_group, -EINVAL, &g->group);
}

static int read_group_source_req(const void *val, socklen_t len, struct group_call *g)
{
        struct group_source_req r;
        int err;

        if (len != sizeof r)
                return -EINVAL;
        memcpy(&r, val, sizeof r);
        *g = (struct group_call){.ifindex = r.gsr_interface};
        err = read_address(&r.gsr_group, -EADDRNOTAVAIL, &g->group);
        return err != 0 ? err : read_address(&r.gsr_source, -EADDRNOTAVAIL, &g->src);
}

static int read_call(int name, const void *val, socklen_t len, struct group_call *g)
{
        if (filter_is_opt(name))
                return filter_read_head(name, val, len, g);
        switch (name) {
        case IP_MULTICAST_IF:
                return read_mreq(val, len, true, g);
        case IP_ADD_MEMBERSHIP:
        case IP_DROP_MEMBERSHIP:
                return read_mreq(val, len, false, g);
        case MCAST_JOIN_GROUP:
        case MCAST_LEAVE_GROUP:
                return read_group_req(val, len, g);
        case MCAST_JOIN_SOURCE_GROUP:
        case MCAST_LEAVE_SOURCE_GROUP:
        case MCAST_BLOCK_SOURCE:
        case MCAST_UNBLOCK_SOURCE:
                return read_group_source_req(val, len, g);
        default:
                return read_mreq_source(val, len, g);
        }
}

/* ---- interfaces ---- */

/* Linux: the number counts where both are said. */
static bool names(const struct group_call *g, const struct dir_iface *f)
{
        char name[IF_NAMESIZE];

        if (g->ifindex == 0)
                return f->addr == g->ifaddr;
        return if_indextoname(g->ifindex, name) != NULL &&
               strncmp(name, f->name, sizeof f->name) == 0;
}

bool group_find_named(const struct group_call *g, struct dir_iface *f)
{
        struct dir_iface all[DIR_IFACES];
        bool any = ustack_ifaces(ustack_directory_anyway(), all);

        for (uint32_t i = 0; any && i < DIR_IFACES; i++) {
                if (all[i].peer == 0 || !names(g, &all[i]))
                        continue;
                *f = all[i];
                return true;
        }
        return false;
}

uint32_t usock_device(uint32_t ifindex)
{
        char name[IF_NAMESIZE];

        return if_indextoname(ifindex, name) != NULL ? ustack_iface_number(name) : 0;
}

/* Bits of the best of unetd's routes by the interface to the group; -1: none. */
static int route_bits(const struct directory *dir, const struct dir_iface *f, uint32_t group)
{
        uint32_t number = (f->peer & ~UNETD_IFACE) + 1;
        int bits = -1;

        for (uint32_t i = 0; i < MIN(dir->net.nroutes, NETCONF_ROUTES); i++) {
                struct route r = dir->net.route[i];
                uint32_t mask = r.prefix != 0 ? ~0u << (32 - MIN(r.prefix, 32u)) : 0;
                if (r.ifindex == number && (group & mask) == r.dst)
                        bits = MAX(bits, (int)r.prefix);
        }
        return bits;
}

/* The interface with the best route, in one round of a reading; that route has more than
 * `best` bits. */
static bool find_best(const struct directory *dir, uint32_t group, int best, struct dir_iface *f)
{
        bool found = false;

        for (uint32_t i = 0; i < DIR_IFACES; i++) {
                int bits = dir->iface[i].peer != 0 ? route_bits(dir, &dir->iface[i], group) : -2;
                if (bits <= best)
                        continue;
                best = bits;
                *f = dir->iface[i];
                found = true;
        }
        return found;
}

/* Where groups go that nobody said anything of: by a route, and be it the default; `last`: by
 * any interface. */
static bool find_default(uint32_t group, bool last, struct dir_iface *f)
{
        const struct directory *dir = ustack_directory_anyway();
        struct dir_reading r = {0};
        bool found = false;

        while (dir != NULL && ustack_read(dir, &r))
                found = find_best(dir, group, last ? -2 : -1, f);
        return r.whole && found;
}

bool usock_has_ifaces(void)
{
        const struct directory *dir = ustack_directory_anyway();

        return dir != NULL && dir->nifaces != 0;
}

enum usock_group_side usock_group_side(int name, const void *val, socklen_t len)
{
        struct group_call g;
        struct dir_iface f;

        if (!usock_has_ifaces() || read_call(name, val, len, &g) != 0)
                return USOCK_GROUP_KERNEL;
        if (group_is_named(&g))
                return group_find_named(&g, &f) ? USOCK_GROUP_OURS : USOCK_GROUP_KERNEL;
        if (name == IP_MULTICAST_IF)
                return USOCK_GROUP_EITHER;
        return find_default(g.group, false, &f) ? USOCK_GROUP_OURS : USOCK_GROUP_EITHER;
}

/* Takes the interface, or shares it. IGMP's number of it, or -ENODEV. The lock must not be held. */
static int take(struct usock *s, const struct dir_iface *f, uint32_t *chan)
{
        int k = ustack_chan_to(s->u, f->peer);

        if (k < 0)
                return -ENODEV;
        *chan = (uint32_t)k;
        return (int)stack_ifc(&s->u->s, (uint32_t)k);
}

static int take_for(struct usock *s, const struct group_call *g)
{
        struct dir_iface f;
        uint32_t chan;

        if (!(group_is_named(g) ? group_find_named(g, &f) : find_default(g->group, true, &f)))
                return -ENODEV;
        return take(s, &f, &chan);
}

int group_where_member(struct usock *s, const struct group_call *g)
{
        const struct stack_state *st = s->u->s.st;
        struct dir_iface f;
        int ifc = -1;

        if (group_is_named(g) && !group_find_named(g, &f))
                return -1;
        ustack_lock(s->u);
        for (uint32_t i = 0; i < st->netifs && ifc < 0; i++)
                if ((!group_is_named(g) || stack_netif(st, i)->cfg.addr == f.addr) &&
                    igmp_membership(s->u->s.igmp, i, g->group, s->idx) != NULL)
                        ifc = (int)i;
        ustack_leave(s->u);
        return ifc;
}

/* ---- options ---- */

static int set_out(struct usock *s, const struct group_call *g)
{
        int ifc = group_is_named(g) ? take_for(s, g) : 0;

        if (ifc < 0 && usock_kfd(s) < 0)
                return -EADDRNOTAVAIL;
        WRITE_ONCE(usock_rec(s)->group_out, (uint8_t)(!group_is_named(g) ? SOCK_GROUP_ANY
                                                      : ifc < 0          ? SOCK_GROUP_KERNEL
                                                                         : SOCK_GROUP_IF + ifc));
        return 0;
}

static int join(struct igmp *igmp, uint32_t ifc, const struct group_call *g, uint32_t sock,
                nstime now)
{
        if (igmp_membership(igmp, ifc, g->group, sock) != NULL)
                return -EADDRINUSE;
        if (igmp_memberships(igmp, sock) >= MEMBERSHIPS_MAX)
                return -ENOBUFS;
        return igmp_join(igmp, ifc, g->group, sock, now);
}

static int change(struct igmp *igmp, uint32_t ifc, int name, const struct group_call *g,
                  uint32_t sock, nstime now)
{
        bool new = igmp_membership(igmp, ifc, g->group, sock) == NULL;

        switch (name) {
        case IP_ADD_MEMBERSHIP:
        case MCAST_JOIN_GROUP:
                return join(igmp, ifc, g, sock, now);
        case IP_DROP_MEMBERSHIP:
        case MCAST_LEAVE_GROUP:
                return igmp_leave(igmp, ifc, g->group, sock, now);
        case IP_ADD_SOURCE_MEMBERSHIP:
        case MCAST_JOIN_SOURCE_GROUP:
                if (new &&igmp_memberships(igmp, sock) >= MEMBERSHIPS_MAX)
                        return -ENOBUFS;
                return igmp_source(igmp, ifc, g->group, sock, g->src, false, true, now);
        case IP_DROP_SOURCE_MEMBERSHIP:
        case MCAST_LEAVE_SOURCE_GROUP:
                return igmp_source(igmp, ifc, g->group, sock, g->src, false, false, now);
        case IP_BLOCK_SOURCE:
        case MCAST_BLOCK_SOURCE:
                return igmp_source(igmp, ifc, g->group, sock, g->src, true, true, now);
        default:
                return igmp_source(igmp, ifc, g->group, sock, g->src, true, false, now);
        }
}

static int set_membership(struct usock *s, int name, const struct group_call *g)
{
        struct stack *st = &s->u->s;
        nstime now = ustack_now();
        int ifc = -1, err;

        if (!ip_v4_multicast(g->group))
                return -EINVAL;
        if (!group_is_named(g) && name != IP_ADD_MEMBERSHIP && name != MCAST_JOIN_GROUP)
                ifc = group_where_member(s, g);
        if (ifc < 0)
                ifc = take_for(s, g);
        if (ifc < 0)
                return ifc;
        ustack_lock(s->u);
        usock_rec(s)->member = 1;
        err = change(st->igmp, (uint32_t)ifc, name, g, s->idx, now);
        stack_run(st, now);
        ustack_leave(s->u);
        return err;
}

int usock_group_setsockopt(struct usock *s, int name, const void *val, socklen_t len)
{
        struct group_call g;
        int err = s->kind == USOCK_UDP ? 0 : -ENOPROTOOPT;

        if (err == 0 && filter_is_opt(name))
                return filter_set(s, name, val, len);
        if (err == 0)
                err = read_call(name, val, len, &g);
        if (err != 0)
                return err;
        return name == IP_MULTICAST_IF ? set_out(s, &g) : set_membership(s, name, &g);
}

/* A filter; or IP_MULTICAST_IF: the address, if it was set to an interface of unetd's. */
int usock_group_getsockopt(struct usock *s, int name, void *val, socklen_t *len)
{
        uint8_t out = READ_ONCE(usock_rec(s)->group_out);
        struct in_addr a = {0};
        socklen_t room;

        if (s->kind == USOCK_UDP && filter_is_opt(name))
                return filter_get(s, name, val, len);
        if (name != IP_MULTICAST_IF || s->kind != USOCK_UDP ||
            (out < SOCK_GROUP_IF && usock_kfd(s) >= 0))
                return -ENOPROTOOPT;
        if (out >= SOCK_GROUP_IF)
                a.s_addr = htonl(READ_ONCE(stack_netif(s->u->s.st, out - SOCK_GROUP_IF)->cfg.addr));
        room = MIN(*len, (socklen_t)sizeof a);
        return user_copy(val, &a, room) && user_put32(len, room) ? 0 : -EFAULT;
}

/* ---- sending ---- */

bool usock_group_fallback(struct usock *s)
{
        uint8_t any = SOCK_GROUP_ANY;

        return __atomic_compare_exchange_n(&usock_rec(s)->group_out, &any, SOCK_GROUP_OURS, false,
                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

bool usock_group_iface(const struct usock *s, ip_addr to, bool last, struct dir_iface *f)
{
        uint8_t out = s != NULL ? READ_ONCE(usock_rec(s)->group_out) : SOCK_GROUP_ANY;
        struct group_call g = {.ifaddr = 0};

        if (out == SOCK_GROUP_KERNEL)
                return false;
        if (out >= SOCK_GROUP_IF) {
                g.ifaddr = READ_ONCE(stack_netif(s->u->s.st, out - SOCK_GROUP_IF)->cfg.addr);
                return group_find_named(&g, f);
        }
        last |= s != NULL && (out == SOCK_GROUP_OURS || usock_kfd(s) < 0);
        return find_default(ip_addr_get_v4(to), last, f);
}

/* Where this datagram alone is to go: IP_PKTINFO. */
static int route_said(struct usock *s, const struct usock_sent *sent, ip_addr *src)
{
        const struct group_call g = {.ifaddr = sent->src, .ifindex = sent->ifindex};
        struct dir_iface f;
        uint32_t chan;

        if (!group_find_named(&g, &f) || take(s, &f, &chan) < 0)
                return -ENOENT;
        *src = ip_addr_v4(f.addr);
        return (int)chan;
}

int usock_group_route(struct usock *s, ip_addr to, const struct usock_sent *sent, ip_addr *src,
                      const char **why)
{
        uint8_t out = READ_ONCE(usock_rec(s)->group_out);
        const struct netif *netif =
                out >= SOCK_GROUP_IF ? stack_netif(s->u->s.st, out - SOCK_GROUP_IF) : NULL;
        uint32_t chan = netif != NULL ? READ_ONCE(netif->chan) : 0;
        struct dir_iface f;

        assert(!ustack_locked(s->u));
        if (sent != NULL && (sent->ifindex != 0 || (sent->src != 0 && out == SOCK_GROUP_ANY)))
                return route_said(s, sent, src);
        *why = "accelerated";
        if (chan != 0) {
                *src = ip_addr_v4(READ_ONCE(netif->cfg.addr));
                return (int)chan - 1;
        }
        *why = "groups and broadcasts are the kernel's";
        if (!usock_group_iface(s, to, false, &f) || take(s, &f, &chan) < 0)
                return -ENOENT;
        *why = "accelerated";
        *src = ip_addr_v4(f.addr);
        return (int)chan;
}

int usock_many(const struct usock *s, uint32_t chan, ip_addr to)
{
        const struct stack_state *st = s->u->s.st;
        const struct chan_slot *slot = &st->chan[chan];
        const struct ip_host host = {
                .addr = slot->netif != 0 ? &stack_netif(st, slot->netif - 1)->addr : &slot->own,
                .naddr = 1};

        if (ip_v4_multicast(ip_addr_get_v4(to)))
                return 1;
        if (!ip_host_broadcast(&host, ip_addr_get_v4(to)))
                return 0;
        return READ_ONCE(usock_rec(s)->broadcast) ? 1 : -EACCES;
}

bool usock_addr_is_many(ip_addr a)
{
        struct dir_iface all[DIR_IFACES];

        if (!ip_addr_is_v4(a))
                return false;
        if (ip_v4_multicast(ip_addr_get_v4(a)) || ip_addr_get_v4(a) == INADDR_BROADCAST)
                return true;
        if (!ustack_ifaces(ustack_directory(), all))
                return false;
        for (uint32_t i = 0; i < DIR_IFACES; i++) {
                const struct ip_ifaddr ours = {all[i].addr, (uint8_t)all[i].prefix};
                const struct ip_host host = {.addr = &ours, .naddr = 1};
                if (all[i].peer != 0 && ip_host_broadcast(&host, ip_addr_get_v4(a)))
                        return true;
        }
        return false;
}

int usock_group_post(struct usock *s, uint32_t chan, struct udp_out *o, bool ttl_set,
                     const struct stack_payload *p)
{
        const struct sock_rec *rec = usock_rec(s);
        bool group = ip_v4_multicast(ip_addr_get_v4(o->tuple.raddr));

        assert(ustack_locked(s->u));
        assert(chan < STACK_CHANS);
        if (group && !ttl_set)
                o->ttl = rec->group_ttl;
        return stack_send_many(&s->u->s, chan, o, p, !group || !rec->no_loop);
}
