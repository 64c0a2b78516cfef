/*
 * TCP sockets: connect and listen. A connect finds in unetd's directory who listens, has a channel
 * to there, and takes a client port of a block that its stack has leased.
 *
 *   usock_tcp_connect() -> connect_by() -> way_to()      the directory's entry, a channel, our
 *                                                        address; -ENOENT: the kernel's
 *                                       -> connect_on()  open_conn(): a port, the SYN
 *                                       -> still_there() the listener, once the SYN is out
 */
#include "sock/attach/ustack.h"

#include <errno.h>
#include <time.h>

#include "base/sandbox.h"
#include "base/sys.h"
#include "sock/attach/handle.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_daemon.h"
#include "sock/attach/ustack_directory.h"
#include "sock/usock_connect.h"
#include "tcp/tcp_listen.h"
#include "tcp/tcp_stream.h"

/* For a channel that connect() cannot have at once, a millisecond apart. */
#define CHAN_TRIES 500

void usock_tcp_link(struct ustack *u, struct sock_rec *rec, uint32_t conn, uint32_t sock)
{
        struct tcp_conn *tc = tcp_conn_at(&u->s.tcp, conn);

        assert(ustack_locked(u));
        assert(conn != 0 && sock != 0);
        WRITE_ONCE(rec->conn, conn);
        rec->laddr = tc->tuple.laddr;
        WRITE_ONCE(rec->lport, tc->tuple.lport);
        rec->raddr = tc->tuple.raddr;
        WRITE_ONCE(rec->rport, tc->tuple.rport);
        tcp_set_sock(&u->s.tcp, conn, sock);
        if (unlikely(rec->waits_for_more))
                tcp_recv_room(tc, rec->rcvlowat);
        sock_set_role(rec, SOCK_ROLE_CONN);
}

/* More client ports for this stack: few at first, as most programs connect seldom, then twice as
 * many each time, as many as unetd gives. Without the lock. */
#define FIRST_PORTS 4u
#define MOST_PORTS  4096u
static int lease_ports(struct ustack *u)
{
        struct stack_state *st = u->s.st;
        uint32_t nblocks = READ_ONCE(st->nblocks);
        uint16_t first = 0, n = (uint16_t)MIN(FIRST_PORTS << MIN(nblocks, 10u), MOST_PORTS);
        int err;

        assert(!ustack_locked(u));
        if (nblocks == STACK_PORT_BLOCKS)
                return -ENOSPC;
        err = unetd_port_lease(ustack_client(), u->id, &first, &n);
        ustack_client_done();
        if (err != 0)
                return err;
        ustack_lock(u);
        if (st->nblocks < STACK_PORT_BLOCKS && n != 0) {
                st->block[st->nblocks].first = first;
                st->block[st->nblocks].count = n;
                WRITE_ONCE(st->nblocks, st->nblocks + 1);
        }
        ustack_unlock(u);
        return 0;
}

/* Ports tell connections apart for the spreading over listeners (SO_REUSEPORT), and for attackers
 * that guess them (RFC 6056). So a program that connects again and again uses more and more ports,
 * though each is free again. Where unetd gives no more it is asked a few times only. */
#define WORN_MOST 5u /* blocks: FIRST_PORTS, and twice as many each */
static bool ports_are_worn(const struct stack_state *st)
{
        uint32_t nblocks = READ_ONCE(st->nblocks), used = READ_ONCE(st->port_next);
        uint32_t have = FIRST_PORTS * ((1u << MIN(nblocks, WORN_MOST)) - 1);

        return nblocks < WORN_MOST && used >= have && used < 2 * have;
}

/* As many as it takes for client_port() to have named every port that is leased. */
static uint32_t client_ports(const struct stack_state *st)
{
        uint32_t most = 0;

        for (uint32_t b = 0; b < st->nblocks; b++)
                most = MAX(most, st->block[b].count);
        return st->nblocks * most;
}

/* The k-th of the leased client ports, one of each block after the other. */
static uint16_t client_port(const struct stack_state *st, uint32_t k)
{
        uint32_t b = k % st->nblocks;

        assert(st->nblocks != 0 && st->nblocks <= STACK_PORT_BLOCKS);
        return (uint16_t)(st->block[b].first + k / st->nblocks % st->block[b].count);
}

/*
 * Opens with one of the leased ports, or with the port the socket is bound to. Under the lock.
 * -EADDRINUSE: all taken. Which of the leased ones: RFC 6056 §3.3.3, algorithm 3, counted by all
 * destinations from a place that is each one's own. Not one at which somebody listens: with a
 * listener of ours a connection could have the same two ends. At most so many `tries`: among ports
 * of which most are taken, more of them are cheaper than a search.
 */
#define PORT_TRIES 8u
static int open_conn(struct ustack *u, struct sock_rec *rec, struct tcp_tuple *t, uint32_t tries,
                     nstime now)
{
        struct stack_state *st = u->s.st;
        struct tcp_link link = stack_tcp_link(&u->s, t->chan);
        uint32_t n = client_ports(st), offset;

        assert(ustack_locked(u));
        assert(rec->role == SOCK_ROLE_NONE);
        if (rec->lport != 0) {
                t->lport = rec->lport;
                return tcp_connect(&u->s.tcp, t, &link, &rec->opts, now);
        }
        offset = tcp_port_offset(&u->s.tcp, t);
        for (tries = MIN(tries, n); tries != 0; tries--) {
                int conn;
                WRITE_ONCE(st->port_next, st->port_next + 1);
                t->lport = client_port(st, (offset + st->port_next) % n);
                if (unlikely(directory_is_taken(ustack_directory(), IPPROTO_TCP, t->laddr,
                                                t->lport) == 1))
                        continue;
                conn = tcp_connect(&u->s.tcp, t, &link, &rec->opts, now);
                if (conn != -EADDRINUSE && conn != -EADDRNOTAVAIL)
                        return conn;
        }
        return -EADDRINUSE;
}

/* Over the kernel's loopback the connection waits in its listener when connect() returns. Where the
 * listener is of the same stack, three looks bring it there: at the SYN, at its answer, and at the
 * acknowledgement. */
#define HANDSHAKE_STEPS 3
static void meet_own(struct ustack *u, uint32_t chan)
{
        for (int i = 0; i < HANDSHAKE_STEPS; i++)
                ustack_hear_own(u, chan);
}

/* To that stack, 0: it is no stack of this host. -EAGAIN: the channel could not be had. -EMFILE:
 * nor will it be, while this process may have no more numbers. */
static int connect_on(struct usock *s, struct tcp_tuple *t, uint32_t stack, uint32_t tries)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        nstime now = ustack_now();
        bool waits = false;
        int conn;

        assert(s->kind == USOCK_TCP);
        assert(t->chan < STACK_CHANS);
        ustack_lock(u);
        u->short_of_numbers = false;
        if (!ustack_chan_leads(u, t->chan, stack) || stack_chan_get(&u->s, t->chan) == NULL) {
                conn = u->short_of_numbers ? -EMFILE : -EAGAIN;
                ustack_leave(u);
                return conn;
        }
        now = stack_time(&u->s, now);
        stack_begin(u->s.st, 0);
        conn = rec->role != SOCK_ROLE_NONE ? -EISCONN : open_conn(u, rec, t, tries, now);
        stack_end(u->s.st);
        if (conn > 0) {
                usock_tcp_link(u, rec, (uint32_t)conn, s->idx);
                stack_flush(&u->s, now);
                meet_own(u, t->chan);
                waits = usock_fastopen_waits(s);
        }
        ustack_leave(u);
        return conn <= 0 || waits ? MIN(conn, 0) : -EINPROGRESS;
}

/* Who sends to other hosts from a port that it was bound to has it vouched for: where the
 * interface is shared, now or later, nothing else lets it through. Ports of the native API are
 * unetd's own. */
static int vouch_port(struct usock *s, const char **why)
{
        int err = usock_has_port(s) && usock_kfd(s) >= 0
                          ? usock_register(s, SOCK_SENDS, SOCK_ROLE_NONE)
                          : 0;

        if (err == 0 || err == -EALREADY)
                return 0; /* EALREADY: it is a connection, as will be said */
        *why = "bound to a port that unetd cannot vouch for";
        ustack_lock(s->u);
        count_drop(&s->u->s.st->cnt, DROP_TCP_UNVOUCHED);
        ustack_leave(s->u);
        return -EADDRNOTAVAIL;
}

/* The channel to another host. */
static int way_out(struct usock *s, const struct usock_own *own, ip_addr addr, uint16_t port,
                   ip_addr *src, const char **why)
{
        int chan = ustack_way_out(s->u, IP_PROTO_TCP, addr, port, own->addr, own->oif, src, why),
            err;

        if (chan < 0)
                return chan;
        *why = "a connection to a broadcast";
        if (unlikely(usock_addr_is_many(addr)))
                return -ENETUNREACH; /* RFC 9293 MUST-46; tcp_connect() knows no networks */
        *why = "accelerated";
        err = vouch_port(s, why);
        return err != 0 ? err : chan;
}

/* Where the first packet goes: a source route (IP_OPTIONS) begins elsewhere. */
static ip_addr first_hop(const struct ip_optbuf *o, ip_addr addr)
{
        return likely(o->len == 0) || !ip_addr_is_v4(addr)
                       ? addr
                       : ip_addr_v4(ip_opts_first_hop(o, ip_addr_get_v4(addr)));
}

/* Chooses among several who listen there: each connection another, beginning at a place that is
 * each one's own. */
static uint32_t turn_of(const struct usock *s, const struct usock_own *own, ip_addr addr,
                        uint16_t port)
{
        const struct tcp_tuple to = {.raddr = addr, .rport = port};

        return tcp_port_offset(&s->u->s.tcp, &to) +
               (own->port != 0 ? own->port : READ_ONCE(s->u->s.st->port_next));
}

/* Who is there, as the directory said when it was asked. Stack 0: somebody on another host. */
struct listener_found {
        uint64_t generation;
        uint32_t stack;
};

/* The channel to who listens there, and our address towards it. -ENOENT: the kernel's. */
static int way_to(struct usock *s, const struct usock_own *own, ip_addr addr, uint16_t port,
                  ip_addr *src, struct listener_found *found, const char **why)
{
        const struct directory *dir = ustack_directory();
        struct dir_hit hit = {0, 0, 0};
        ip_addr hop = first_hop(&own->opts, addr);
        int chan, local;

        *why = "no unetd";
        if (dir == NULL || ip_addr_eq(addr, ip_addr_v4(USTACK_LOOPBACK_BROADCAST)))
                return -ENOENT; /* the kernel says what is to be said */
        *why = ustack_rule(dir, IP_PROTO_TCP, RULE_CONNECTS, addr, port);
        if (unlikely(*why != NULL))
                return -ENOENT;
        *why = "unetd is in mid-write of its directory, and does not get on";
        local = ustack_is_local(dir, hop);
        if (unlikely(local < 0))
                return -ENOENT;
        if (!local)
                return way_out(s, own, hop, port, src, why);
        *why = "a source route that begins at this host";
        if (!ip_addr_eq(hop, addr))
                return -ENOENT;
        *why = "no listener on the fabric has this port";
        found->generation = directory_generation(dir);
        if (!ustack_lookup(IP_PROTO_TCP, addr, port, turn_of(s, own, addr, port), &hit))
                return -ENOENT;
        *why = ustack_kernel_refuses(dir, IP_PROTO_TCP, addr, port);
        if (unlikely(*why != NULL))
                return -ENOENT;
        *why = "bound to a port that unetd cannot vouch for, and the listener is another user's";
        if (own->port != 0 && usock_kfd(s) >= 0 && hit.uid != s->u->s.st->uid)
                return -ENOENT;
        *why = "no channel to the listener's stack";
        chan = ustack_chan_to(s->u, hit.stack);
        if (ustack_note_limit(s->u, chan))
                *why = "no room for a channel to the listener's stack ([limits] in "
                       "unet.conf(5), RLIMIT_NOFILE, RLIMIT_AS)";
        if (chan < 0)
                return -ENOENT;
        *why = "accelerated";
        *src = ustack_source_to(addr);
        found->stack = hit.stack;
        return chan;
}

/* The connection is reset. Under the lock. */
static void abort_conn(struct usock *s)
{
        struct ustack *u = s->u;
        nstime now = stack_time(&u->s, ustack_now());

        assert(ustack_locked(s->u));
        assert(usock_rec(s)->role == SOCK_ROLE_CONN);
        stack_begin(u->s.st, usock_rec(s)->conn);
        tcp_abort(&u->s.tcp, usock_conn(s), now);
        stack_end(u->s.st);
        stack_flush(&u->s, now);
}

/* Under the lock. What is read without it is the connection's until that is over (recv_once()); a
 * connection that is written to lasts until then (TCF_RSV). */
static void undo(struct usock *s, const ip_addr *bound)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        nstime now = ustack_now();

        assert(ustack_locked(u) && rec->reader == 0);
        if (rec->role == SOCK_ROLE_CONN) {
                now = stack_time(&u->s, now);
                stack_begin(u->s.st, rec->conn);
                tcp_set_sock(&u->s.tcp, rec->conn, 0);
                tcp_close(&u->s.tcp, tcp_conn_at(&u->s.tcp, rec->conn), now);
                stack_end(u->s.st);
                sock_set_role(rec, SOCK_ROLE_NONE);
                stack_flush(&u->s, now);
        }
        rec->raddr = (ip_addr){{0, 0}};
        WRITE_ONCE(rec->rport, 0);
        rec->laddr = bound != NULL ? *bound : (ip_addr){{0, 0}};
        if (bound == NULL)
                WRITE_ONCE(rec->lport, 0);
}

/* Resets and undoes the connection unless it was answered. An answered one may have been accepted,
 * by a program that listens for one connection. So may one that sent data with its SYN (RFC 7413).
 * False: it stays. Nobody copies from one that was not answered. */
static bool gives_up(struct usock *s, const ip_addr *bound)
{
        bool waits;

        ustack_lock(s->u);
        waits = usock_rec(s)->role == SOCK_ROLE_CONN && usock_conn(s)->state == TCPS_SYN_SENT &&
                !(usock_conn(s)->fastopen & FO_DATA);
        if (waits) {
                abort_conn(s);
                undo(s, bound);
        }
        ustack_leave(s->u);
        return waits;
}

/*
 * A listener that has left the directory takes whose SYN had come by then, and nobody after that
 * (sock/shim/relay.h): the SYN is on its way, and now the directory is asked again.
 */
static int still_there(struct usock *s, const struct usock_own *own, ip_addr addr, uint16_t port,
                       const struct listener_found *found)
{
        if (likely(found->stack == 0 ||
                   ustack_takes(found->stack, addr, port, found->generation)) ||
            !gives_up(s, own->port != 0 ? &own->addr : NULL))
                return -EINPROGRESS;
        return -EAGAIN;
}

static int connect_by(struct usock *s, const struct usock_own *own, ip_addr addr, uint16_t port,
                      const char **why)
{
        struct tcp_tuple t = {.raddr = addr, .rport = port};
        struct listener_found found = {.stack = 0};
        int chan = way_to(s, own, addr, port, &t.laddr, &found, why), err;

        if (chan < 0)
                return chan;
        if (!ip_addr_is_any(own->addr))
                t.laddr = own->addr;
        t.chan = (uint16_t)chan;
        if (unlikely(own->port == 0 && ports_are_worn(s->u->s.st)))
                lease_ports(s->u); /* those that there are do as well */
        err = connect_on(s, &t, found.stack, PORT_TRIES);
        while (err == -EADDRINUSE && own->port == 0 && lease_ports(s->u) == 0)
                err = connect_on(s, &t, found.stack, PORT_TRIES);
        if (err == -EADDRINUSE && own->port == 0)
                err = connect_on(s, &t, found.stack, UINT32_MAX);
        if (err == -EADDRNOTAVAIL)
                *why = "another connection has the same two ends";
        return err == -EINPROGRESS ? still_there(s, own, addr, port, &found) : err;
}

static const char *no_client_port(struct ustack *u)
{
        ustack_lock(u);
        count_drop(&u->s.st->cnt, DROP_TCP_NO_CLIENT_PORT);
        ustack_leave(u);
        return "no client port is left (leases in unet.conf(5))";
}

/* The channel may not be mapped in this process yet, while another thread talks to unetd. Or it is
 * just being exchanged for another one. It is asked for again, a millisecond later. */
int usock_tcp_connect(struct usock *s, ip_addr addr, uint16_t port, const char **why)
{
        const struct timespec ms = {.tv_nsec = NS_PER_MS};
        const struct usock_own own = usock_own(s);
        int err = connect_by(s, &own, addr, port, why);
        /* It could be reached by the kernel as well, which then says what is wrong. */
        bool kernels_too;

        assert(s->kind == USOCK_TCP);
        for (int tries = 0;
             unlikely(err == -EAGAIN) && tries < CHAN_TRIES && sandbox_forbidden == 0; tries++) {
                sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &ms, NULL);
                err = connect_by(s, &own, addr, port, why);
        }
        if (unlikely(err == -EAGAIN)) {
                *why = "no channel to the listener's stack";
                return -ENOENT;
        }
        if (unlikely(err == -EMFILE)) {
                *why = "no descriptors for a channel to the listener's stack (RLIMIT_NOFILE)";
                return -ENOENT;
        }
        if (err != -EADDRINUSE)
                return err;
        if (own.port == 0)
                *why = no_client_port(s->u);
        kernels_too = own.port != 0 && ustack_is_local(ustack_directory(), addr) == 1;
        return kernels_too ? err : -EADDRNOTAVAIL;
}

bool usock_connect_failed(const struct usock *s)
{
        return sock_role(usock_rec(s)) == SOCK_ROLE_CONN &&
               READ_ONCE(usock_conn(s)->state) == TCPS_CLOSED;
}

bool usock_connect_made(const struct usock *s)
{
        const struct tcp_conn *tc = usock_conn(s);

        return !usock_connect_failed(s) || seq_gt(READ_ONCE(tc->snd_una), tc->iss);
}

bool usock_connect_undo(struct usock *s, const ip_addr *bound)
{
        bool free;

        ustack_lock(s->u);
        usock_tcp_settle(s);
        free = usock_rec(s)->reader == 0;
        if (likely(free))
                undo(s, bound);
        ustack_leave(s->u);
        return free;
}

bool usock_disconnect(struct usock *s, const ip_addr *bound)
{
        const struct sock_rec *rec = usock_rec(s);
        bool free;

        ustack_lock(s->u);
        usock_tcp_settle(s);
        free = rec->reader == 0 && rec->writer == 0;
        if (likely(free)) {
                if (rec->role == SOCK_ROLE_CONN)
                        abort_conn(s);
                undo(s, bound);
        }
        ustack_leave(s->u);
        return free;
}

void usock_let_copy(void)
{
        const struct timespec pause = {.tv_nsec = 50 * NS_PER_US};

        if (sandbox_forbidden != 0)
                sandbox_yield();
        else
                sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
}

/* 1: it listens from here on; 0: it did before. */
static int listen_once(struct usock *s, uint32_t depth)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        int l = -EINVAL;

        ustack_lock(u);
        if (rec->role == SOCK_ROLE_LISTENER) {
                tcp_listen_backlog(&u->s.tcp, rec->conn, depth);
                l = 0;
        } else if (rec->role == SOCK_ROLE_NONE && rec->lport != 0) {
                l = tcp_listen(&u->s.tcp, ustack_listen_addr(rec), rec->lport, depth, &rec->opts);
        }
        if (l > 0) {
                WRITE_ONCE(rec->conn, (uint32_t)l);
                tcp_listener_set_sock(&u->s.tcp, (uint32_t)l, s->idx);
                sock_set_role(rec, SOCK_ROLE_LISTENER);
        }
        ustack_leave(u);
        return MIN(l, 1);
}

int usock_listen(struct usock *s, int backlog)
{
        uint32_t depth = MIN((uint32_t)backlog, 4096u); /* as Linux: less than nothing is all */
        int r;

        assert(s->kind == USOCK_TCP);
        assert(!ustack_locked(s->u));
        usock_fastopen_listen(s, depth);
        r = listen_once(s, depth);
        if (unlikely(r == -EADDRINUSE) && usock_settle(s))
                r = listen_once(s, depth);
        if (r <= 0)
                return r;
        usock_unregister_sender(s);
        usock_set_kfd(s, usock_kfd(s)); /* its entry is told by the cookie */
        ustack_take_ifaces(s->u, ustack_listen_addr(usock_rec(s)));
        r = usock_register(s, SOCK_TAKES, SOCK_ROLE_LISTENER);
        return r == -EALREADY ? 0 : r; /* it listened for a moment */
}
