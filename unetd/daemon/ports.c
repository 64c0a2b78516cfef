/* Ports of the whole host: who listens where, and which kernel ports unetd holds for stacks. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unetd/daemon/claims.h"
#include "unetd/daemon/clients.h"
#include "unetd/daemon/daemon.h"
#include "unetd/daemon/discard.h"
#include "unetd/daemon/ifaces.h"
#include "unetd/daemon/leases.h"
#include "unetd/daemon/links.h"
#include "unetd/daemon/ports.h"
#include "unetd/daemon/replay.h"
#include "unetd/daemon/shares.h"
#include "unetd/daemon/sockdiag.h"
#include "unetd/daemon/stacks.h"
#include "unetd/daemon/users.h"
#include "unetd/daemon/vouch.h"
#include "unetd/monitor/monitor.h"

/* By [UDP] and port, the stack that had it last and has it no more; 0: none. */
static uint32_t listened[2][UINT16_MAX + 1];
/* By [UDP] and port, the number of entries of all stacks. */
static uint16_t claims[2][UINT16_MAX + 1];

union any_addr {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
};

bool ports_same_addr(ip_addr a, ip_addr b)
{
        return ip_addr_eq(a, b) || (ip_addr_is_any(a) && ip_addr_is_any(b));
}

static bool overlap(ip_addr a, ip_addr b)
{
        return ip_addr_eq(a, b) || ip_addr_is_any(a) || ip_addr_is_any(b);
}

static bool is_tcp(uint8_t proto)
{
        return (proto & ~DIR_HELD) == IPPROTO_TCP;
}

static bool valid(const struct unetd_port *p, bool port_may_be_0)
{
        return (is_tcp(p->proto) || p->proto == IPPROTO_UDP) && (p->port != 0 || port_may_be_0);
}

static bool is_at(const struct listener *l, const struct unetd_port *key)
{
        return l->port == key->port && l->proto == key->proto &&
               ports_same_addr(l->addr, key->addr);
}

static struct listener *find_in(struct listener *first, const struct unetd_port *key)
{
        for (struct listener *l = first; l; l = LIST_NEXT(l, link))
                if (is_at(l, key))
                        return l;
        return NULL;
}

static struct listener *find_socket(struct listener *first, const struct unetd_port *key)
{
        for (struct listener *l = first; l; l = LIST_NEXT(l, link))
                if (is_at(l, key) && l->sock == key->sock)
                        return l;
        return NULL;
}

static struct listener *listener_new(const struct unetd_port *key, int fd)
{
        struct listener *l = calloc(1, sizeof *l);

        if (l)
                *l = (struct listener){.proto = key->proto,
                                       .port = key->port,
                                       .addr = key->addr,
                                       .sock = key->sock,
                                       .fd = fd};
        return l;
}

static void listener_free(struct user *u, struct listener *l)
{
        LIST_REMOVE(l, link);
        discard(u, &l->fd, 1, false);
        free(l);
}

static void claim(const struct listener *l, int by)
{
        uint16_t *n = &claims[!is_tcp(l->proto)][l->port];

        *n = (uint16_t)(*n + by);
}

static struct vlink_range range_of(const struct listener *l)
{
        return (struct vlink_range){
                .proto = (uint8_t)(l->proto & ~DIR_HELD), .first = l->port, .count = 1};
}

/* ---- listeners, and bound sockets ---- */

/* Returns how many TCP entries the list has at `count` ports from `low` on. */
static uint32_t claims_in(const struct listener *first, uint16_t low, uint32_t count)
{
        uint32_t n = 0;

        for (const struct listener *l = first; l; l = LIST_NEXT(l, link))
                n += is_tcp(l->proto) && (uint32_t)(l->port - low) < count;
        return n;
}

bool ports_claimed(uint16_t first, uint32_t count, const struct stack *but)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < count; i++)
                n += claims[0][first + i];
        return n > 0 && (!but || n > claims_in(LIST_FIRST(&but->listeners), first, count) +
                                                 claims_in(LIST_FIRST(&but->holds), first, count));
}

static bool any_in(const struct listener *first, struct vlink_range r)
{
        for (const struct listener *l = first; l; l = LIST_NEXT(l, link))
                if (l->port == r.first && (l->proto & ~DIR_HELD) == r.proto)
                        return true;
        return false;
}

static bool has_port(const struct stack *st, struct vlink_range r)
{
        return any_in(LIST_FIRST(&st->listeners), r) || any_in(LIST_FIRST(&st->holds), r);
}

/* One of the stack's sockets has left the port. If it was the last, the agents are told. */
static void left_port(struct stack *st, struct vlink_range r)
{
        if (has_port(st, r))
                return;
        listened[!is_tcp(r.proto)][r.first] = st->id;
        links_ports(NULL, NULL, st, r, false);
}

void listen_end(struct stack *st, struct listener *l)
{
        struct vlink_range range = range_of(l);

        directory_del(&unetd.dir, l->proto, l->addr, l->port, st->id);
        claim(l, -1);
        assert(st->user->used.listeners != 0 && unetd.nlisteners != 0);
        st->user->used.listeners--;
        unetd.nlisteners--;
        listener_free(st->user, l);
        left_port(st, range);
}

/* Ends the stale claims of `st` at the port. -EADDRINUSE: one is not stale. */
static int clear_of(struct stack *st, const struct unetd_port *p)
{
        struct listener *l, *next;
        int r = 0;

        for (l = LIST_FIRST(&st->listeners); l; l = next) {
                next = LIST_NEXT(l, link);
                if (l->port != p->port || is_tcp(l->proto) != is_tcp(p->proto) ||
                    !overlap(l->addr, p->addr))
                        continue;
                if (claim_stands(st, l))
                        r = -EADDRINUSE;
                else
                        listen_end(st, l);
        }
        LIST_FOREACH (l, &st->holds, link)
                if (l->port == p->port && is_tcp(l->proto) == is_tcp(p->proto) &&
                    overlap(l->addr, p->addr))
                        r = -EADDRINUSE;
        return r;
}

/* Ends other users' stale claims at the port. A TCP port is one user's on the fabric, even where
 * the kernel lets several bind it (SO_REUSEADDR, devices). A UDP port belongs to all users whose
 * sockets the kernel lets share it. */
static int make_way(const struct stack *st, const struct unetd_port *p)
{
        struct stack *other;
        int r = 0;

        if (claims[!is_tcp(p->proto)][p->port] == 0)
                return 0;
        sockdiag_same_moment(true); /* one list serves all claims */
        for (unsigned b = 0; b < STACK_BUCKETS; b++)
                LIST_FOREACH (other, &unetd.stacks[b], link)
                        if (other->user != st->user && clear_of(other, p) < 0)
                                r = -EADDRINUSE;
        sockdiag_same_moment(false);
        return is_tcp(p->proto) ? r : 0;
}

/* Checks the operator's rules that hold for all programs. */
static int rules_allow(const struct unetd_port *p)
{
        uint32_t addr = ip_addr_is_v4(p->addr) ? ip_addr_get_v4(p->addr) : 0;
        struct rule_asked q = {
                .role = RULE_LISTENS, .proto = p->proto, .addr = addr, .port = p->port};

        return !(p->proto & DIR_HELD) && rule_against_all(unetd.cfg.rule, unetd.cfg.nrules, &q)
                       ? -EACCES
                       : 0;
}

/* A stack may not send from a port that another has leased. */
static int may_send(const struct stack *st, const struct unetd_port *p)
{
        uint32_t lessee = p->proto & DIR_HELD ? port_lessee(IPPROTO_TCP, p->port) : 0;

        return lessee != 0 && lessee != st->id ? -EADDRINUSE : 0;
}

/* Takes the copy of a socket that unetd keeps, so that nobody else gets its port meanwhile; -1: it
 * keeps none. It keeps no UDP socket that shares its port: that keeps nobody away, and once its
 * owner has closed it the kernel would still deliver datagrams to it. */
static int socket_kept(struct user *u, struct wire_in *in)
{
        int fd = in->n == 1 ? wire_in_take(in, 0) : -1;

        if (fd < 0 || in->msg.port.proto != IPPROTO_UDP || !vouch_shares(fd))
                return fd;
        discard(u, &fd, 1, false); /* not `unwanted`: it was asked for */
        return -1;
}

/* `cl` NULL: the keeper brings it. */
static int listen_put(struct user *u, struct client *cl, struct wire_in *in)
{
        const struct unetd_port *p = &in->msg.port;
        struct stack *st;
        struct listener *l;
        uint64_t cookie;
        bool had;
        int r = stack_of(u, p->stack, &st);

        if (r < 0)
                return r;
        if (!valid(p, false))
                return -EINVAL;
        r = st->state == STACK_UP ? claim_judge(st, in, cl == NULL, &cookie) : -ENOENT;
        if (r == 0)
                r = rules_allow(p);
        if (r == 0)
                r = may_send(st, p);
        if (r == 0)
                r = make_way(st, p);
        if (r < 0)
                return r;
        l = find_socket(LIST_FIRST(&st->listeners), p);
        if (l && l->fd < 0 && in->n == 1) { /* a keeper brought the entry, without the socket */
                l->fd = socket_kept(u, in);
                l->cookie = cookie;
                return 0;
        }
        if (l)
                return -EADDRINUSE;
        if (st->user->used.listeners >= unetd.cfg.per_uid.listeners || !share_may_enter(st->user))
                return -EDQUOT;
        l = listener_new(p, -1);
        if (!l)
                return -ENOMEM;
        r = directory_add(&unetd.dir, p->proto, p->addr, p->port, st->id, st->user->uid);
        if (r < 0) {
                free(l);
                return r;
        }
        l->fd = socket_kept(u, in);
        l->cookie = cookie;
        had = has_port(st, range_of(l));
        LIST_INSERT_HEAD(&st->listeners, l, link);
        claim(l, 1);
        st->user->used.listeners++;
        unetd.nlisteners++;
        if (!(l->proto & DIR_HELD))
                ifaces_offer(st, l->addr);
        return had ? 0 : links_ports(cl, &in->msg, st, range_of(l), true);
}

int listen_add(struct client *cl, struct wire_in *in)
{
        return listen_put(cl->user, cl, in);
}

void ports_offer_ifaces(void)
{
        struct stack *st;
        struct listener *l;

        for (unsigned b = 0; b < STACK_BUCKETS; b++)
                LIST_FOREACH (st, &unetd.stacks[b], link)
                        LIST_FOREACH (l, &st->listeners, link)
                                if (!(l->proto & DIR_HELD))
                                        ifaces_offer(st, l->addr);
}

int listen_del(struct user *u, const struct unetd_msg *msg)
{
        struct stack *st;
        struct listener *l;
        int r = stack_of(u, msg->port.stack, &st);

        if (r < 0)
                return r;
        l = find_socket(LIST_FIRST(&st->listeners), &msg->port);
        if (!l)
                return -ENOENT;
        listen_end(st, l);
        return 0;
}

void listen_aloft(struct user *u, const struct unetd_msg *msg)
{
        struct stack *st;
        struct listener *l;

        if (stack_of(u, msg->port.stack, &st) < 0)
                return;
        l = find_socket(LIST_FIRST(&st->listeners), &msg->port);
        if (!l || l->fd < 0)
                return;
        discard(u, &l->fd, 1, false);
        l->fd = -1;
}

/* ---- what dead processes leave at a port ---- */

static bool has_at(struct listener *first, const struct unetd_port *p)
{
        for (struct listener *l = first; l; l = LIST_NEXT(l, link))
                if (l->port == p->port && is_tcp(l->proto) == is_tcp(p->proto) &&
                    overlap(l->addr, p->addr))
                        return true;
        return false;
}

/* Returns a user with a stack that has a socket at the port; NULL: there is none. */
static struct user *user_at(const struct unetd_port *p)
{
        struct stack *st;

        for (unsigned b = 0; b < STACK_BUCKETS; b++)
                LIST_FOREACH (st, &unetd.stacks[b], link)
                        if (has_at(LIST_FIRST(&st->listeners), p) ||
                            has_at(LIST_FIRST(&st->holds), p))
                                return st->user;
        return NULL;
}

void port_settle_next(struct user *u)
{
        struct unetd_msg ask = {.type = UNETD_K_SETTLE};
        struct waiter *w;

        if (u->settling || LIST_EMPTY(&u->settle_next) || replay_goes_on(u))
                return;
        while ((w = LIST_FIRST(&u->settle_next))) {
                LIST_REMOVE(w, of_settle);
                LIST_INSERT_HEAD(&u->settle_now, w, of_settle);
        }
        u->settling = true;
        if (u->keeper_state != KEEPER_RUNS || !ask_send(u, &ask, NULL, 0))
                port_settled(u, -EAGAIN);
}

int port_settle(struct client *cl, const struct unetd_msg *msg)
{
        struct user *u = valid(&msg->port, false) ? user_at(&msg->port) : NULL;
        struct waiter *w;
        int r;

        if (!u || u->keeper_state != KEEPER_RUNS || user_keeper_silent(u) ||
            user_keeper_late(u, cl->user)) {
                /* Nobody has the port any more; a child may still be closing it. */
                r = discarded(cl, msg);
                return r == 0 ? -ENOENT : r;
        }
        r = waiter_new(cl, msg, &w);
        if (r < 0)
                return r;
        w->settles = true;
        LIST_INSERT_HEAD(&u->settle_next, w, of_settle);
        if (u != cl->user)
                waiter_hurries(w);
        port_settle_next(u);
        return REPLY_LATER;
}

/* The keeper has answered. Waiters go on waiting while a child is still closing descriptors. */
void port_settled(struct user *u, int err)
{
        struct waiter *w;

        while ((w = LIST_FIRST(&u->settle_now))) {
                LIST_REMOVE(w, of_settle);
                w->settles = false;
                w->discard = err == 0 && discard_busy(w->client->user);
                if (!w->discard)
                        waiter_end(w, err);
        }
        u->settling = false;
        port_settle_next(u);
}

uint32_t port_listened(uint8_t proto, uint16_t port)
{
        return listened[!is_tcp(proto)][port];
}

void ports_stop_listening(struct stack *st)
{
        struct listener *l;

        while ((l = LIST_FIRST(&st->listeners)))
                listen_end(st, l);
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

/* Returns true if the port is privileged. To a unetd of root's the kernel refuses nothing, so it
 * reads ip_unprivileged_port_start itself. */
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

/* Binds a kernel socket, without SO_REUSEADDR: nobody else can bind the port while unetd has it. */
static int bind_kernel(const struct unetd_port *p)
{
        union any_addr a;
        socklen_t len = to_sockaddr(p, &a);
        int type = p->proto == IPPROTO_TCP ? SOCK_STREAM : SOCK_DGRAM, no = 0, yes = 1;
        int fd = socket(a.sa.sa_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, p->proto), err;

        if (fd < 0)
                return -errno;
        if (a.sa.sa_family == AF_INET6)
                setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
        if (a.sa.sa_family == AF_INET && iface_has_addr(p->addr))
                setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &yes, sizeof yes);
        err = bind(fd, &a.sa, len) == 0 ? 0 : -errno;
        if (err == -EACCES)
                err = monitor_bind(fd, &a.sa, len);
        if (err < 0) {
                close(fd);
                return err;
        }
        return fd;
}

/* Binds a port. If the kernel chooses a TCP port that another stack has leased, binds again. */
static int bind_unleased(const struct stack *st, const struct unetd_port *p)
{
        int fd[64], n = 0, r; /* half of all ports may be leased: one of so many tries succeeds */
        uint32_t lessee;
        uint16_t port;
        ip_addr addr;

        do {
                r = fd[n++] = bind_kernel(p);
                lessee = r >= 0 && p->port == 0 && vouch_addr(r, &addr, &port)
                                 ? port_lessee(p->proto, port)
                                 : 0;
        } while (lessee != 0 && lessee != st->id && n < (int)ARRAY_LEN(fd));
        for (int i = 0; i < n - 1; i++)
                close(fd[i]);
        return r;
}

static void hold_free(struct stack *st, struct listener *hold)
{
        struct vlink_range range = range_of(hold);

        struct unetd_port at = {.proto = hold->proto, .port = hold->port, .addr = hold->addr};
        struct listener *l;

        directory_del(&unetd.dir, hold->proto | DIR_HELD, hold->addr, hold->port, st->id);
        claim(hold, -1);
        assert(st->user->used.holds != 0);
        st->user->used.holds--;
        listener_free(st->user, hold);
        l = unetd.cfg.shared ? find_in(LIST_FIRST(&st->listeners), &at) : NULL;
        if (l && !claim_stands(st, l))
                listen_end(st, l); /* only the hold vouched for it */
        left_port(st, range);
}

static int hold_put(struct user *u, struct client *cl, struct unetd_msg *msg)
{
        struct unetd_port *p = &msg->port;
        struct stack *st;
        struct listener *hold;
        ip_addr addr;
        int fd, r = stack_of(u, p->stack, &st);

        if (r < 0)
                return r;
        if (!valid(p, true) || p->proto & DIR_HELD)
                return -EINVAL;
        if (st->user->used.holds >= unetd.cfg.per_uid.holds || !share_may_enter(st->user))
                return -EDQUOT;
        if (st->user->uid != unetd.uid && privileged(p->port))
                return -EACCES;
        fd = bind_unleased(st, p);
        if (fd < 0)
                return fd;
        r = vouch_addr(fd, &addr, &p->port) ? make_way(st, p) : -ENOMEM;
        hold = r == 0 ? listener_new(p, fd) : NULL;
        if (!hold) {
                close(fd);
                return r != 0 ? r : -ENOMEM;
        }
        /* The entry tells other users' stacks whose packets from the port are. */
        r = directory_add(&unetd.dir, hold->proto | DIR_HELD, hold->addr, hold->port, st->id,
                          st->user->uid);
        LIST_INSERT_HEAD(&st->holds, hold, link);
        claim(hold, 1);
        st->user->used.holds++;
        if (r < 0) {
                hold_free(st, hold);
                return r;
        }
        return links_ports(cl, msg, st, range_of(hold), true);
}

int port_hold(struct client *cl, struct unetd_msg *msg)
{
        return hold_put(cl->user, cl, msg);
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

/* ---- what keepers bring, and what ends ---- */

int ports_init(void)
{
        leases_init();
        if (sockdiag_open() < 0)
                log_line("no sock_diag: what keepers say of ports is not believed");
        return vouch_init();
}

void port_offered(struct user *u, struct wire_in *in)
{
        if (in->n != 0)
                return;
        if (in->msg.type == UNETD_LISTEN_ADD)
                listen_put(u, NULL, in);
        else if (in->msg.type == UNETD_PORT_HOLD && in->msg.port.port != 0)
                hold_put(u, NULL, &in->msg);
        else if (in->msg.type == UNETD_PORT_LEASE && in->msg.lease.first != 0)
                lease_put(u, NULL, &in->msg);
}

void ports_free(struct stack *st)
{
        struct listener *hold;

        ports_stop_listening(st);
        while ((hold = LIST_FIRST(&st->holds)))
                hold_free(st, hold);
        leases_free(st);
}
