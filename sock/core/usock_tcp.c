/*
 * TCP sockets: connect, listen, send, receive.
 *
 * The application's memory is never touched under the stack's lock: a page fault, a stopped process
 * or a bad pointer there would hold everybody up. Small data goes through a buffer on our own
 * stack, and the lock is taken once; large data is copied between reserve and commit, or peek and
 * consume, with the lock left meanwhile.
 */
#include "sock/attach/ustack.h"

#include <errno.h>
#include <sys/single_threaded.h>
#include <time.h>

#include "base/sandbox.h"
#include "base/sys.h"
#include "sock/attach/cursor.h"
#include "sock/attach/handle.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_directory.h"
#include "sock/attach/ustack_wake.h"

#define STAGE_BYTES 2048u /* copied through our own stack */
#define SPANS       8
#define SEND_CHUNK  131072u /* most that is reserved before some of it is on its way */
/* For a channel that connect() cannot have at once, a millisecond apart. */
#define CHAN_TRIES 500

/* ---- connecting ---- */

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

/* More client ports for this stack. Without its lock. */
static int lease_ports(struct ustack *u)
{
        struct stack_state *st = u->s.st;
        uint16_t first = 0, n;
        int err;

        assert(!ustack_locked(u));
        if (READ_ONCE(st->nblocks) == STACK_PORT_BLOCKS)
                return -ENOSPC;
        err = unetd_port_lease(ustack_client(), u->id, &first, &n);
        ustack_client_done();
        if (err != 0)
                return err;
        ustack_lock(u);
        if (st->nblocks < STACK_PORT_BLOCKS && n != 0) {
                st->block[st->nblocks].first = first;
                st->block[st->nblocks].count = n;
                st->nblocks++;
        }
        ustack_unlock(u);
        return 0;
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
                if (conn != -EADDRINUSE)
                        return conn;
        }
        return -EADDRINUSE;
}

/* -EAGAIN: the channel could not be had. -EMFILE: nor will it be, while this process may have no
 * more numbers. */
static int connect_on(struct usock *s, struct tcp_tuple *t, uint32_t tries)
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
        if (stack_chan_get(&u->s, t->chan) == NULL) {
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

/* Resets the connection unless it was answered: who was may be accepted, by a program that listens
 * for one connection, and so may who sent data with his SYN (RFC 7413). False: it stays. */
static bool gives_up(struct usock *s)
{
        bool waits;

        ustack_lock(s->u);
        waits = usock_rec(s)->role == SOCK_ROLE_CONN && usock_conn(s)->state == TCPS_SYN_SENT &&
                !(usock_conn(s)->fastopen & FO_DATA);
        if (waits)
                abort_conn(s);
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
            !gives_up(s))
                return -EINPROGRESS;
        usock_connect_undo(s, own->port != 0 ? &own->addr : NULL);
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
        err = connect_on(s, &t, PORT_TRIES);
        while (err == -EADDRINUSE && own->port == 0 && lease_ports(s->u) == 0)
                err = connect_on(s, &t, PORT_TRIES);
        if (err == -EADDRINUSE && own->port == 0)
                err = connect_on(s, &t, UINT32_MAX);
        return err == -EINPROGRESS ? still_there(s, own, addr, port, &found) : err;
}

/* The channel that is the way may not be mapped in this process yet, while another thread talks to
 * unetd, or may just be exchanged for another one: it is asked for again, a millisecond later. */
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
        kernels_too = own.port != 0 && ustack_is_local(ustack_directory(), addr) == 1;
        return kernels_too ? err : -EADDRNOTAVAIL;
}

bool usock_connect_failed(const struct usock *s)
{
        return sock_role(usock_rec(s)) == SOCK_ROLE_CONN &&
               READ_ONCE(usock_conn(s)->state) == TCPS_CLOSED;
}

void usock_connect_undo(struct usock *s, const ip_addr *bound)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        nstime now = ustack_now();

        ustack_lock(u);
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
        ustack_leave(u);
}

void usock_disconnect(struct usock *s, const ip_addr *bound)
{
        struct ustack *u = s->u;

        ustack_lock(u);
        usock_tcp_settle(s);
        if (usock_rec(s)->role == SOCK_ROLE_CONN)
                abort_conn(s);
        ustack_leave(u);
        usock_connect_undo(s, bound);
}

int usock_listen(struct usock *s, int backlog)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        uint32_t depth = MIN((uint32_t)backlog, 4096u); /* as Linux: less than nothing is all */
        ip_addr addr = ustack_listen_addr(rec);
        int l = 0, err;

        assert(s->kind == USOCK_TCP);
        assert(!ustack_locked(u));
        usock_fastopen_listen(s, depth);
        ustack_lock(u);
        if (rec->role == SOCK_ROLE_LISTENER) {
                tcp_listen_backlog(&u->s.tcp, rec->conn, depth);
                ustack_leave(u);
                return 0;
        }
        if (rec->role != SOCK_ROLE_NONE || rec->lport == 0)
                l = -EINVAL;
        else
                l = tcp_listen(&u->s.tcp, addr, rec->lport, depth, &rec->opts);
        if (l > 0) {
                WRITE_ONCE(rec->conn, (uint32_t)l);
                tcp_listener_set_sock(&u->s.tcp, (uint32_t)l, s->idx);
                sock_set_role(rec, SOCK_ROLE_LISTENER);
        }
        ustack_leave(u);
        if (l < 0)
                return l;
        usock_unregister_sender(s);
        usock_set_kfd(s, usock_kfd(s)); /* its entry is told by the cookie */
        ustack_take_ifaces(u, addr);
        err = usock_register(s, SOCK_TAKES, SOCK_ROLE_LISTENER);
        return err == -EALREADY ? 0 : err; /* it listened for a moment */
}

/* libc copies twice as much with one string instruction, where the processor has AVX2 and says
 * that it is fast (glibc's rep_movsb_threshold). What goes over verbs is seldom enough for
 * that to matter, but to emulated processors (which soft-RoCE is tested in), where it is a
 * loop by bytes. */
#define REMOTE_PIECE 4096u

static size_t copy_piece(const struct ustack *u, const struct tcp_conn *tc)
{
        return u->s.chan[tc->tuple.chan].remote ? REMOTE_PIECE : 0;
}

/* ---- sending ---- */

/* What came from another host is looked at before anything is said: as with the kernel, which has
 * it before a call begins, an answer acknowledges it, and a reset is told of. Between processes,
 * where nothing is lost by it, it may wait. */
void usock_tcp_hear(struct usock *s)
{
        struct ustack *u = s->u;
        const struct sock_rec *rec = usock_rec(s);
        const struct stack_chan *c;

        assert(ustack_locked(s->u));
        if (rec->role != SOCK_ROLE_CONN)
                return;
        c = &u->s.chan[tcp_conn_at(&u->s.tcp, rec->conn)->tuple.chan];
        if (unlikely(c->netif.nif != NULL) && c->ops != NULL && c->ops->pending(c->ch))
                stack_run(&u->s, ustack_now());
        else
                ustack_hear_own(u, tcp_conn_at(&u->s.tcp, rec->conn)->tuple.chan);
}

/* Of the connection, and told once; beside those a call fails of itself, or will fail again. Under
 * the lock. */
static void keep_error(struct sock_rec *rec, struct tcp_conn *tc, ssize_t r)
{
        bool once = r == -ECONNRESET || r == -ETIMEDOUT || r == -EHOSTUNREACH ||
                    r == -ENETUNREACH || r == -ECONNABORTED;

        if (once && rec->role == SOCK_ROLE_CONN && tc->err == 0)
                WRITE_ONCE(tc->err, (int16_t)-r);
}

void usock_keep_error(struct usock *s, ssize_t r)
{
        ustack_lock(s->u);
        keep_error(usock_rec(s), usock_conn(s), r);
        ustack_leave(s->u);
}

void usock_put_error(struct usock *s, int err)
{
        struct sock_rec *rec = usock_rec(s);

        ustack_lock(s->u);
        if (rec->role == SOCK_ROLE_UDP)
                udp_put_error(&s->u->s.udp, rec->conn, err);
        else if (rec->role == SOCK_ROLE_CONN && usock_conn(s)->err == 0)
                WRITE_ONCE(usock_conn(s)->err, (int16_t)err);
        ustack_leave(s->u);
}

/* Room for a reservation, after what arrived meanwhile was looked at. As tcp_send_reserve. */
static int reserve(struct ustack *u, struct tcp_conn *tc, size_t want, struct span *span,
                   nstime now)
{
        int got = tcp_send_reserve(&u->s.tcp, tc, want, span, SPANS);

        if (got == 0 && stack_pending(&u->s, 0)) {
                stack_run(&u->s, now);
                stack_begin(u->s.st, tc->self);
                got = tcp_send_reserve(&u->s.tcp, tc, want, span, SPANS);
        }
        return got;
}

/* To a peer that has ended, and may have closed: what it has said of that is taken first. */
static void refuse_sent(struct ustack *u, struct tcp_conn *tc, nstime now)
{
        if (stack_pending(&u->s, 0))
                stack_run(&u->s, now);
        stack_begin(u->s.st, tc->self);
        tcp_refuse_sent(&u->s.tcp, tc);
        stack_end(u->s.st);
        stack_flush(&u->s, now);
}

static void commit(struct ustack *u, struct tcp_conn *tc, size_t n, int flags, nstime now)
{
        now = stack_time(&u->s, now);
        tcp_send_commit(&u->s.tcp, tc, n, flags & MSG_MORE, flags & MSG_OOB, now);
        if (unlikely(flags & MSG_EOR))
                tcp_send_end_record(&u->s.tcp, tc);
        stack_end(u->s.st);
        stack_flush(&u->s, now);
        if (unlikely(tc->state == TCPS_CLOSE_WAIT))
                refuse_sent(u, tc, now);
}

/* The bytes only make the last unsent segment longer, if there is one. Under the lock. */
static bool send_appended(struct ustack *u, struct sock_rec *rec, const uint8_t *p, size_t n,
                          int flags)
{
        struct tcp_conn *tc;
        bool done;

        if (rec->role != SOCK_ROLE_CONN || rec->writer != 0 ||
            flags & (MSG_MORE | MSG_OOB | MSG_EOR))
                return false;
        tc = tcp_conn_at(&u->s.tcp, rec->conn);
        if (tc->snd_next == 0 || stack_pending(&u->s, 0))
                return false;
        stack_begin(u->s.st, rec->conn);
        done = tcp_send_append(&u->s.tcp, tc, p, (uint32_t)n);
        stack_end(u->s.st);
        return done;
}

static ssize_t send_staged(struct usock *s, const uint8_t *p, size_t n, int flags)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        struct span span[SPANS];
        struct tcp_conn *tc;
        nstime now;
        int got = -EAGAIN;

        usock_relay_first(s);
        ustack_lock(u);
        usock_tcp_hear(s);
        if (send_appended(u, rec, p, n, flags)) {
                ustack_leave(u);
                return (ssize_t)n;
        }
        now = ustack_now();
        if (likely(rec->role == SOCK_ROLE_CONN && rec->writer == 0)) {
                now = stack_time(&u->s, now);
                tc = tcp_conn_at(&u->s.tcp, rec->conn);
                stack_begin(u->s.st, rec->conn);
                got = reserve(u, tc, n, span, now);
                if (got > 0) {
                        for (int i = 0, at = 0; at < got; at += (int)span[i++].len)
                                memcpy(span[i].ptr, p + at, span[i].len);
                        commit(u, tc, (size_t)got, flags, now);
                } else {
                        stack_end(u->s.st);
                }
        } else if (rec->role != SOCK_ROLE_CONN) {
                got = -EPIPE; /* as Linux: never connected */
        }
        ustack_leave(u);
        return got == 0 ? -EAGAIN : got;
}

/* One reservation: bytes sent, 0 when there is no room, -errno. The lock is held before and after,
 * not meanwhile. */
static ssize_t send_chunk(struct usock *s, struct cursor *c, size_t want, int flags)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        struct tcp_conn *tc = tcp_conn_at(&u->s.tcp, rec->conn);
        struct span span[SPANS];
        nstime now = stack_time(&u->s, ustack_now());
        bool good = true;
        int got;

        assert(ustack_locked(u));
        assert(rec->writer == 0);
        stack_begin(u->s.st, rec->conn);
        got = reserve(u, tc, want, span, now);
        stack_end(u->s.st);
        if (got <= 0)
                return got;
        WRITE_ONCE(rec->writer, u->slot + 1);
        c->piece = copy_piece(u, tc);
        ustack_unlock(u);
        for (int i = 0, at = 0; at < got && good; at += (int)span[i++].len)
                good = copy_in(c, span[i].ptr, span[i].len);
        ustack_lock(u);
        WRITE_ONCE(rec->writer, 0);
        stack_begin(u->s.st, rec->conn);
        commit(u, tc, good ? (size_t)got : 0, flags, ustack_now());
        ustack_turn_over(u, rec);
        return good ? got : -EFAULT;
}

static ssize_t send_copied(struct usock *s, struct cursor *c, size_t total, int flags)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        size_t done = 0;
        ssize_t got = -EPIPE;

        usock_relay_first(s);
        ustack_lock(u);
        usock_tcp_hear(s);
        while (rec->role == SOCK_ROLE_CONN && done < total) {
                size_t left = total - done;
                if (unlikely(rec->writer != 0)) {
                        got = -EAGAIN;
                        break;
                }
                got = send_chunk(s, c, MIN(left, SEND_CHUNK),
                                 left > SEND_CHUNK ? (flags & ~MSG_EOR) | MSG_MORE : flags);
                if (got <= 0)
                        break;
                done += (size_t)got;
        }
        if (unlikely(done > 0 && got < 0))
                keep_error(rec, tcp_conn_at(&u->s.tcp, rec->conn), got);
        ustack_leave(u);
        if (done > 0)
                return (ssize_t)done;
        return got == 0 ? -EAGAIN : got;
}

/* As Linux: a message of no bytes opens as well. */
static void begin_opening(struct ustack *u, struct tcp_conn *tc)
{
        nstime now = stack_time(&u->s, ustack_now());

        assert(ustack_locked(u));
        stack_begin(u->s.st, tc->self);
        tcp_fastopen_go(&u->s.tcp, tc, now);
        stack_end(u->s.st);
        stack_flush(&u->s, now);
}

/* Says whether anything could be sent, ever. */
static ssize_t send_nothing(struct usock *s)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        int err = -EPIPE;

        ustack_lock(u);
        if (rec->role == SOCK_ROLE_CONN)
                err = tcp_send_reserve(&u->s.tcp, tcp_conn_at(&u->s.tcp, rec->conn), 0, NULL, 0);
        if (unlikely(err == 0 && usock_fastopen_waits(s))) {
                begin_opening(u, tcp_conn_at(&u->s.tcp, rec->conn));
                err = -EINPROGRESS;
        }
        ustack_leave(u);
        return err == -EBUSY ? 0 : err;
}

ssize_t usock_tcp_send(struct usock *s, const struct iovec *iov, int n, size_t total, int flags)
{
        struct cursor c = {iov, 0, 0};
        uint8_t stage[STAGE_BYTES];

        if (total == 0)
                return send_nothing(s);
        if (total > STAGE_BYTES)
                return send_copied(s, &c, MIN(total, (size_t)INT32_MAX), flags);
        if (unlikely(!copy_in(&c, stage, total)))
                return -EFAULT;
        return send_staged(s, stage, total, flags);
}

/* ---- receiving ---- */

static int peek(struct ustack *u, struct tcp_conn *tc, size_t skip, size_t want, struct span *span)
{
        int got = tcp_recv_peek(&u->s.tcp, tc, skip, want, span, SPANS);

        if (got == -EAGAIN && stack_pending(&u->s, 0)) {
                stack_run(&u->s, ustack_now());
                got = tcp_recv_peek(&u->s.tcp, tc, skip, want, span, SPANS);
        }
        return got;
}

/* `now`: as it was read in this turn of the lock; 0: it was not. */
static void consume(struct ustack *u, struct tcp_conn *tc, size_t n, nstime now)
{
        now = stack_time(&u->s, now != 0 ? now : ustack_now());
        stack_begin(u->s.st, tc->self);
        tcp_recv_consume(&u->s.tcp, tc, n, now);
        stack_end(u->s.st);
        stack_flush(&u->s, now);
}

/*
 * A program that reads a few bytes at a time takes the lock for the first of them, and with it,
 * *ahead*, what is left of the first queued segment: what it reads next is copied from there
 * without the lock. The bytes stay in the queue until all but the last have been read, or until
 * somebody looks (usock_tcp_settle()); so what is unread is never nothing while the queue says that
 * there is something: readiness, and what becomes of a connection that is closed or whose process
 * is killed, are as without it. The window opens later by as much as was taken, at most a quarter
 * of the buffer.
 *
 * Only where nobody else can read: one thread, one process, and the number never left it.
 * rec->reader stands in the way of any other, should that go wrong. After another process died
 * inside, the queue may have been purged: nothing is read from it without the lock then.
 */
#define AHEAD_READS 4u /* reads like this one that must be left to make it worth while */

static uint64_t recoveries(const struct usock *s)
{
        return s->u->s.st->cnt.n[COUNT_STACK_RECOVERIES];
}

static void take_ahead(struct usock *s, struct sock_rec *rec, const struct tcp_conn *tc, size_t n)
{
        const uint8_t *p;
        uint32_t left;

        assert(ustack_locked(s->u));
        assert(s->ahead.left == 0);
        if (!usock_alone(s) || rec->peeks_on)
                return;
        left = tcp_recv_ahead(&s->u->s.tcp, tc, &p);
        if (left <= AHEAD_READS * n)
                return;
        WRITE_ONCE(rec->reader, s->u->slot + 1);
        s->ahead.at = p;
        WRITE_ONCE(s->ahead.left, left);
        s->ahead.used = 0;
        s->ahead.recoveries = recoveries(s);
}

bool usock_tcp_read_ahead(struct usock *s, void *p, size_t n)
{
        if (unlikely(!__libc_single_threaded || s->ahead.recoveries != recoveries(s)))
                return false;
        if (unlikely(!user_copy(p, s->ahead.at, n)))
                return false; /* the long way tells */
        s->ahead.at += n;
        WRITE_ONCE(s->ahead.left, s->ahead.left - (uint32_t)n);
        s->ahead.used += (uint32_t)n;
        frame_fetch(s->ahead.at, (uint32_t)MIN(MIN(n, (size_t)STAGE_BYTES), s->ahead.left));
        return true;
}

void usock_tcp_settle(struct usock *s)
{
        struct sock_rec *rec = usock_rec(s);
        uint32_t used = s->ahead.used;

        if (likely(s->ahead.left == 0))
                return;
        WRITE_ONCE(s->ahead.left, 0);
        s->ahead.used = 0;
        WRITE_ONCE(rec->reader, 0);
        if (used != 0 && rec->role == SOCK_ROLE_CONN)
                consume(s->u, usock_conn(s), used, 0);
        ustack_turn_over(s->u, rec);
}

void ustack_settle(struct ustack *u)
{
        for (struct usock *s = u->handles; s != NULL; s = s->next)
                usock_tcp_settle(s);
}

/*
 * What was taken out of the queue did not find the application's memory: it goes back. If there is
 * somebody who has read on meanwhile, or no memory for it, the connection is reset: a stream has no
 * holes.
 */
static ssize_t give_back(struct usock *s, const uint8_t *p, size_t n, uint32_t seq)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        nstime now = ustack_now();

        assert(!ustack_locked(u));
        assert(n <= STAGE_BYTES);
        ustack_lock(u);
        usock_tcp_settle(s);
        if (rec->role == SOCK_ROLE_CONN) {
                now = stack_time(&u->s, now);
                stack_begin(u->s.st, rec->conn);
                if (!tcp_recv_give_back(&u->s.tcp, usock_conn(s), p, (uint32_t)n, seq))
                        tcp_abort(&u->s.tcp, usock_conn(s), now);
                stack_end(u->s.st);
                stack_flush(&u->s, now);
        }
        ustack_leave(u);
        return -EFAULT;
}

/* stack_take() was called with `now`, unless that is 0: here is the flush that it wants. */
static void took(struct ustack *u, nstime now)
{
        if (now != 0)
                stack_flush(&u->s, now);
}

/* All there is, when it is little: one turn of the lock, then the copy to the application. -EAGAIN
 * here means: take the long way. The lock is left in any other case. `now`: as in took(); what is
 * acknowledged is, by then, read as well. */
static ssize_t recv_staged(struct usock *s, struct cursor *c, size_t total, int flags, nstime now)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        struct tcp_conn *tc = tcp_conn_at(&u->s.tcp, rec->conn);
        struct span span[SPANS];
        uint8_t stage[STAGE_BYTES];
        size_t avail = tcp_recv_avail(tc);
        uint32_t seq;
        int got;

        if (total <= sizeof stage && !(flags & (MSG_PEEK | MSG_TRUNC))) {
                bool taken;
                stack_begin(u->s.st, tc->self);
                taken = tcp_recv_take(&u->s.tcp, tc, stage, (uint32_t)total);
                stack_end(u->s.st);
                if (taken) {
                        seq = copied_seq(tc);
                        take_ahead(s, rec, tc, total);
                        took(u, now);
                        ustack_leave(u);
                        return likely(copy_out(c, stage, total)) ? (ssize_t)total
                                                                 : give_back(s, stage, total, seq);
                }
        }
        if (avail == 0 || MIN(avail, total) > sizeof stage || flags & MSG_TRUNC)
                return -EAGAIN;
        got = tcp_recv_peek(&u->s.tcp, tc, 0, total, span, SPANS);
        if (got <= 0 || (size_t)got < MIN(avail, total))
                return -EAGAIN;
        for (int i = 0, at = 0; at < got; at += (int)span[i++].len)
                memcpy(stage + at, span[i].ptr, span[i].len);
        if (!(flags & MSG_PEEK))
                consume(u, tc, (size_t)got, now);
        else
                took(u, now);
        seq = copied_seq(tc);
        ustack_leave(u);
        if (likely(copy_out(c, stage, (size_t)got)))
                return got;
        return flags & MSG_PEEK ? -EFAULT : give_back(s, stage, (size_t)got, seq);
}

/* What is there, once: bytes, 0 at the end of the stream, -errno. The lock is held before and
 * after, not while copying. MSG_TRUNC throws the bytes away instead of copying them (tcp(7)). */
static ssize_t recv_once(struct usock *s, struct cursor *c, size_t skip, size_t want, int flags,
                         nstime *came)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        struct tcp_conn *tc = tcp_conn_at(&u->s.tcp, rec->conn);
        struct span span[SPANS];
        int got = peek(u, tc, skip, want, span);
        bool good = true;

        assert(ustack_locked(u));
        assert(rec->reader == 0);
        if (got <= 0)
                return got;
        if (unlikely(came != NULL))
                *came = tcp_recv_stamp(&u->s.tcp, tc, (uint32_t)skip + (uint32_t)got - 1,
                                       stack_time(&u->s, ustack_now()));
        if (!(flags & MSG_TRUNC)) {
                WRITE_ONCE(rec->reader, u->slot + 1);
                c->piece = copy_piece(u, tc);
                ustack_unlock(u);
                good = copy_spans(c, span, (size_t)got);
                ustack_lock(u);
                WRITE_ONCE(rec->reader, 0);
        }
        if (unlikely(!good))
                got = -EFAULT;
        else if (!(flags & MSG_PEEK))
                consume(u, tc, (size_t)got, 0);
        ustack_turn_over(u, rec);
        return got;
}

/* Whether a read that has taken something goes on: not past an urgent byte. */
static bool more_to_take(const struct tcp_conn *tc, size_t skip)
{
        return tcp_recv_avail(tc) > skip && !tcp_at_mark(tc, skip);
}

static ssize_t recv_urgent(struct usock *s, struct cursor *c, size_t total, int flags)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        int byte = -EINVAL;
        uint8_t b;

        ustack_lock(u);
        usock_tcp_settle(s);
        if (rec->role == SOCK_ROLE_CONN)
                byte = tcp_recv_urgent(&u->s.tcp, usock_conn(s), flags & MSG_PEEK);
        ustack_leave(u);
        if (byte < 0)
                return byte;
        b = (uint8_t)byte;
        if (total == 0)
                return 0;
        return copy_out(c, &b, 1) ? 1 : -EFAULT;
}

ssize_t usock_tcp_recv(struct usock *s, const struct iovec *iov, int n, size_t total, int flags,
                       nstime *came)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        struct cursor c = {iov, 0, 0};
        struct span any[SPANS];
        size_t done = 0, from;
        ssize_t got = -ENOTCONN;
        nstime now = 0;

        if (flags & MSG_OOB)
                return recv_urgent(s, &c, total, flags);
        total = MIN(total, (size_t)INT32_MAX);
        usock_relay_first(s);
        ustack_lock(u);
        usock_tcp_settle(s);
        from = usock_peek_from(rec, flags);
        if (unlikely(flags & MSG_PEEK) && rec->role == SOCK_ROLE_CONN &&
            tcp_recv_avail(usock_conn(s)) < from + total)
                ustack_catch_up(u);
        if (likely(rec->role == SOCK_ROLE_CONN && rec->reader == 0)) {
                if ((tcp_recv_avail(usock_conn(s)) == 0 || unlikely(came != NULL)) &&
                    stack_pending(&u->s, 0))
                        stack_take(&u->s, now = ustack_now());
                got = likely(came == NULL && !rec->peeks_on) ? recv_staged(s, &c, total, flags, now)
                                                             : -EAGAIN;
                if (got != -EAGAIN)
                        return got;
                took(u, now);
        }
        do {
                if (unlikely(rec->role != SOCK_ROLE_CONN))
                        break;
                if (unlikely(rec->reader != 0)) {
                        got = -EAGAIN;
                        break;
                }
                if (total == 0) { /* as Linux: waits all the same for something to be there */
                        got = MIN(peek(u, usock_conn(s), 0, 1, any), 0);
                        break;
                }
                got = recv_once(s, &c, flags & MSG_PEEK ? from + done : 0, total - done, flags,
                                came);
                if (got <= 0)
                        break;
                done += (size_t)got;
        } while (done < total && more_to_take(usock_conn(s), flags & MSG_PEEK ? from + done : 0));
        if (unlikely(rec->peeks_on))
                usock_peek_moves(rec, flags, done);
        if (got == -EAGAIN && u->s.st->nacks != 0)
                /* The turn is over: no answer will carry them. */
                stack_flush_acks(&u->s, ustack_now());
        ustack_leave(u);
        return done > 0 ? (ssize_t)done : got;
}
