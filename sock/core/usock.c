/* Sockets: life, names, data; what does not depend on the protocol. See usock.h. */
#include "sock/attach/handle.h"
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_daemon.h"
#include "sock/attach/ustack_levels.h"
#include "sock/attach/ustack_wake.h"

#include <errno.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/sandbox.h"
#include "base/sys.h"
#include "sock/udp/usock_cmsg.h"
#include "sock/wait/usock_turns.h"
#include "sock/udp/usock_udp.h"
#include "sock/usock_process.h"
#include "sock/usock_connect.h"
#include "sock/usock_dgram.h"
#include "tcp/tcp_listen.h"
#include "tcp/tcp_loop.h"

__thread struct usock_tls usock_tls;
void (*usock_run_deferred)(void);
_Atomic uint32_t usock_closed;

/* Waits until the stacks are open again. A thread that is inside a call already goes on: it may
 * hold a lock that others need before they can leave. */
void usock_wait_outside(void)
{
        uint32_t closed;

        while (usock_tls.inside == 1 && (closed = atomic_load(&usock_closed)) != 0) {
                usock_leave();
                sys4(SYS_futex, &usock_closed, FUTEX_WAIT_PRIVATE, closed, NULL);
                usock_tls.inside++;
        }
}

/* ---- addresses ---- */

int usock_addr_in(const struct sockaddr *sa, socklen_t len, ip_addr *addr, uint16_t *port)
{
        struct sockaddr_in in;
        struct sockaddr_in6 in6;

        if (len < sizeof(sa_family_t))
                return -EINVAL;
        if (sa->sa_family == AF_INET && len >= sizeof in) {
                memcpy(&in, sa, sizeof in);
                *addr = ip_addr_v4(ntohl(in.sin_addr.s_addr));
                *port = ntohs(in.sin_port);
                return 0;
        }
        if (sa->sa_family == AF_INET6 && len >= sizeof in6) {
                memcpy(&in6, sa, sizeof in6);
                memcpy(addr, &in6.sin6_addr, sizeof *addr);
                *port = ntohs(in6.sin6_port);
                return ip_addr_is_v4(*addr) || ip_addr_is_any(*addr) ? 0 : -EADDRNOTAVAIL;
        }
        return sa->sa_family == AF_INET || sa->sa_family == AF_INET6 ? -EINVAL : -EAFNOSUPPORT;
}

bool usock_addr_out(int family, ip_addr addr, uint16_t port, struct sockaddr *sa, socklen_t *len)
{
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
        struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
        socklen_t room = *len;

        if (family == AF_INET6) {
                memcpy(&in6.sin6_addr, &addr, sizeof addr);
                *len = sizeof in6;
                return user_copy(sa, &in6, MIN(room, *len));
        } else {
                in.sin_addr.s_addr = ip_addr_is_v4(addr) ? htonl(ip_addr_get_v4(addr)) : 0;
                *len = sizeof in;
                return user_copy(sa, &in, MIN(room, *len));
        }
}

#define LAST_TURNS 4 /* of the stack, before a socket ends */

/* ---- records and handles ---- */

static bool other_handle(const struct usock *s)
{
        for (const struct usock *h = s->u->handles; h != NULL; h = h->next)
                if (h != s && h->idx == s->idx)
                        return true;
        return false;
}

static void link_handle(struct usock *s)
{
        struct ustack *u = s->u;

        if (unlikely(sock_held_by(u->s.st, stack_sock(&u->s, s->idx), u->slot)) && other_handle(s))
                u->twins++;
        sock_hold(u->s.st, stack_sock(&u->s, s->idx), u->slot);
        s->next = u->handles;
        s->link = &u->handles;
        if (s->next != NULL)
                s->next->link = &s->next;
        u->handles = s;
}

static void unlink_handle(struct usock *s)
{
        assert(*s->link == s);
        *s->link = s->next;
        if (s->next != NULL)
                s->next->link = s->link;
}

static struct usock *handle(struct ustack *u, uint32_t idx, int kfd)
{
        struct sock_rec *rec = stack_sock(&u->s, idx);
        struct usock *s = malloc(sizeof *s);

        if (s == NULL)
                return NULL;
        *s = (struct usock){.u = u,
                            .idx = idx,
                            .rec = rec,
                            .refs = 1,
                            .kfd = kfd,
                            .kind = rec->kind,
                            .family = rec->family};
        link_handle(s);
        return s;
}

/* A zeroed record, under the lock; 0 when the table is full. */
static uint32_t rec_new(struct ustack *u, int kind, int family)
{
        uint32_t idx = pool_alloc(&u->s.st->socks);
        struct sock_rec *rec;

        if (idx == 0)
                return 0;
        rec = stack_sock(&u->s, idx);
        *rec = (struct sock_rec){
                .kind = (uint8_t)kind, .family = (uint8_t)family, .rcvlowat = 1, .edge_out = 1};
        tcp_opts_default(&rec->opts);
        rec->opts.ttl = stack_ttl(u->s.st);
        rec->opts.ecn = u->s.st->ip_conf.ecn;
        rec->opts.cc = u->s.st->ip_conf.cc;
        return idx;
}

static uint64_t cookie_of(int kfd)
{
        uint64_t cookie = 0;
        socklen_t len = sizeof cookie;

        if (kfd < 0 || getsockopt(kfd, SOL_SOCKET, SO_COOKIE, &cookie, &len) != 0)
                return 0;
        return cookie;
}

/* The record of a new socket; a UDP socket has its pcb from the beginning. 0: no room. */
static uint32_t rec_open(struct ustack *u, int kind, int family)
{
        uint32_t idx = rec_new(u, kind, family);
        struct sock_rec *rec;
        struct udp_opts o;

        if (idx == 0 || kind != USOCK_UDP)
                return idx;
        rec = stack_sock(&u->s, idx);
        udp_opts_default(&o);
        o.ttl = stack_ttl(u->s.st);
        rec->group_ttl = 1; /* RFC 1112 §6.1 */
        rec->conn = udp_open(&u->s.udp, &o);
        if (rec->conn == 0) {
                pool_free(&u->s.st->socks, idx);
                return 0;
        }
        udp_set_sock(&u->s.udp, rec->conn, idx);
        rec->role = SOCK_ROLE_UDP;
        return idx;
}

void usock_move_handles(struct ustack *from, struct ustack *to)
{
        while (from->handles != NULL) {
                struct usock *s = from->handles;
                bool nonblock = usock_nonblock(s);
                unlink_handle(s);
                s->u = to;
                s->idx = rec_open(to, s->kind, s->family);
                s->rec = stack_sock(&to->s, s->idx);
                atomic_store_explicit(&s->pcb, NULL, memory_order_relaxed);
                link_handle(s);
                usock_set_nonblock(s, nonblock);
        }
}

int usock_open(int kind, int family, int kfd, struct usock **out)
{
        int err = -ENOBUFS;
        struct ustack *u = ustack_mine(&err);
        uint32_t idx;

        assert(kind == USOCK_TCP || kind == USOCK_UDP);
        assert(family == AF_INET || family == AF_INET6);
        if (u == NULL)
                return err;
        ustack_lock(u);
        idx = rec_open(u, kind, family);
        if (idx != 0)
                *out = handle(u, idx, kfd);
        ustack_leave(u);
        return idx == 0 ? -ENOBUFS : *out == NULL ? -ENOMEM : 0;
}

struct usock *usock_dup(struct usock *s)
{
        assert(atomic_load_explicit(&s->refs, memory_order_relaxed) != 0);
        atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
        return s;
}

#define A_FLIGHT (16u << 10) /* bytes */

/* Who has sent as much may wait for our acknowledgement, with more to come, which no reader
 * will read. */
static void let_the_peer_go_on(struct usock *s)
{
        struct stack *st = &s->u->s;
        struct tcp_conn *tc = usock_conn(s);

        assert(ustack_locked(s->u));
        if (tc->rcv_nxt - tc->last_ack_sent < A_FLIGHT)
                return;
        tcp_flush_ack(&st->tcp, tc);
        stack_flush(st, ustack_now());
}

/* What has come counts before the end, as in the kernel, which has it before the call. Bytes that
 * nobody will read, and connections that nobody will accept, are reset, and not closed or refused.
 * An answer of our own may bring more; it is not waited for. */
static void hear_before_the_end(struct usock *s)
{
        const struct sock_rec *rec = usock_rec(s);

        assert(ustack_locked(s->u));
        if (rec->role != SOCK_ROLE_CONN && rec->role != SOCK_ROLE_LISTENER)
                return;
        if (rec->role == SOCK_ROLE_CONN)
                let_the_peer_go_on(s);
        for (int turns = 0; turns < LAST_TURNS && stack_pending(&s->u->s, 0); turns++)
                stack_run(&s->u->s, ustack_now());
}

/* Before unetd is spoken to: meanwhile no channel can be mapped that a peer has just got. */
static void hear_of_listener(struct usock *s)
{
        assert(!ustack_locked(s->u));
        ustack_lock(s->u);
        hear_before_the_end(s);
        ustack_unlock(s->u);
}

void usock_close(struct usock *s)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        struct sock_entry e = {.last = false};
        bool entry;

        assert(atomic_load_explicit(&s->refs, memory_order_relaxed) != 0);
        assert(!ustack_locked(u));
        if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
                return;
        /* If it gets one yet, others hold it, too. */
        entry = READ_ONCE(rec->registered) != SOCK_UNREGISTERED;
        if (entry) {
                hear_of_listener(s);
                ustack_client();
        }
        ustack_lock(u);
        usock_tcp_settle(s);
        hear_before_the_end(s);
        unlink_handle(s);
        if (unlikely(u->twins != 0) && other_handle(s)) {
                u->twins--;
        } else {
                if (entry && !sock_held_besides(u->s.st, rec, u->slot))
                        e = ustack_entry_end(u, rec);
                ustack_unref(u, s->idx, u->slot, ustack_now());
        }
        ustack_let_lead(u);
        ustack_leave(u);
        if (entry) {
                ustack_entry_del(u, &e);
                ustack_client_done();
        }
        free(s);
}

/* While no process had it, unetd may have let go of its socket (UNETD_K_ALOFT). If not, the error
 * does not matter. */
static void known_again(const struct usock *s)
{
        const struct sock_rec *rec = usock_rec(s);

        if (!rec->registered)
                return;
        unetd_listen_add(ustack_client(), s->u->id, ustack_entry_proto(rec), rec->reg_addr,
                         rec->lport, ustack_entry_sock(rec), s->kfd);
        ustack_client_done();
}

#define FETCH_TRIES 3 /* at once; then one a millisecond */
#define FETCH_WAIT  (5 * NS_PER_S)

/* After a while, for what unetd and the keeper have to settle between them first. False: that was
 * long enough. */
static bool wait_a_little(struct ustack *u, nstime *until)
{
        const struct timespec ms = {.tv_nsec = NS_PER_MS};
        nstime now = ustack_now();

        assert(ustack_locked(u));
        if (*until == 0)
                *until = now + FETCH_WAIT;
        if (now >= *until || sandbox_forbidden != 0)
                return false;
        ustack_leave(u);
        sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &ms, NULL);
        ustack_lock(u);
        return true;
}

/* One look for a channel. 0: it is mapped, or has ended; -EAGAIN: look again. */
static int fetch_chan(struct ustack *u, uint32_t k, int looks, nstime *until)
{
        u->short_of_numbers = false;
        if (!chan_is_open(&u->s.st->chan[k]) || stack_chan_get(&u->s, k) != NULL)
                return 0;
        if (u->short_of_numbers)
                return -EMFILE;
        if (looks >= FETCH_TRIES && !wait_a_little(u, until))
                return -ENOBUFS;
        ustack_unlock(u);
        ustack_client();
        ustack_client_done();
        ustack_lock(u);
        return -EAGAIN;
}

/* The socket with this cookie, 0: none; with its channel, since the first thing done may be to
 * send. Under the lock, which may be left meanwhile. Errors as of next_at_hand(). */
static int find_at_hand(struct ustack *u, uint64_t cookie, uint32_t *idx)
{
        int err = -EAGAIN;
        nstime until = 0;

        for (int i = 0; err == -EAGAIN; i++) {
                const struct sock_rec *rec;

                *idx = ustack_find_cookie(u, cookie);
                rec = *idx != 0 ? stack_sock(&u->s, *idx) : NULL;
                if (rec == NULL || rec->role != SOCK_ROLE_CONN)
                        return 0;
                err = fetch_chan(u, tcp_conn_at(&u->s.tcp, rec->conn)->tuple.chan, i, &until);
        }
        return err;
}

int usock_adopt(uint64_t cookie, int kfd, struct usock **out)
{
        struct ustack *all[USTACKS_MAX], *u = NULL;
        uint32_t n = ustack_all(all), idx = 0;
        bool aloft = false;
        int err = -ENOENT;

        for (uint32_t tries = 0; tries < 2 && idx == 0; tries++) {
                for (uint32_t k = 0; k < n && idx == 0; k++) {
                        int there;

                        u = all[k];
                        ustack_lock(u);
                        there = find_at_hand(u, cookie, &idx);
                        aloft = idx != 0 &&
                                sock_held_only_by(u->s.st, stack_sock(&u->s, idx), SOCK_REF_FLIGHT);
                        if (idx != 0 && there == 0)
                                *out = handle(u, idx, kfd);
                        ustack_leave(u);
                        if (there != 0)
                                return there;
                }
                if (idx == 0 && (all[0] = ustack_adopt(cookie, &err)) == NULL)
                        return err;
                n = 1;
        }
        if (aloft && *out != NULL)
                known_again(*out);
        return idx == 0 ? -ENOENT : *out == NULL ? -ENOMEM : 0;
}

uint32_t ustack_find_cookie(struct ustack *u, uint64_t cookie)
{
        FOR_SOCKS (u->s.st, i, rec)
                if (sock_held(rec) && READ_ONCE(rec->cookie) == cookie)
                        return i;
        return 0;
}

void usock_set_kfd(struct usock *s, int kfd)
{
        WRITE_ONCE(s->kfd, kfd);
        if (kfd >= 0) /* a last number here leaves it: a message or a child's new image may still be
                         found by it */
                WRITE_ONCE(usock_rec(s)->cookie, cookie_of(kfd));
}

uint64_t usock_cookie(const struct usock *s)
{
        return READ_ONCE(usock_rec(s)->cookie);
}

int usock_kfd(const struct usock *s)
{
        return READ_ONCE(s->kfd);
}

bool usock_nonblock(const struct usock *s)
{
        return atomic_load_explicit(&usock_rec(s)->nonblock, memory_order_relaxed);
}

void usock_set_nonblock(struct usock *s, bool on)
{
        atomic_store_explicit(&usock_rec(s)->nonblock, on, memory_order_relaxed);
}

#define ANOTHER_SAYING 256u /* below it is what is said */

uint32_t usock_say(struct usock *s, uint8_t what, nstime rcvtimeo, nstime sndtimeo)
{
        struct sock_rec *rec = usock_rec(s);
        uint32_t before = atomic_load(&rec->said), now;

        WRITE_ONCE(rec->rcvtimeo, rcvtimeo);
        WRITE_ONCE(rec->sndtimeo, sndtimeo);
        do {
                now = (before & ~(ANOTHER_SAYING - 1)) + ANOTHER_SAYING;
                now = (now == 0 ? ANOTHER_SAYING : now) | what;
        } while (!atomic_compare_exchange_weak(&rec->said, &before, now));
        return now;
}

uint32_t usock_said(const struct usock *s)
{
        return atomic_load_explicit(&usock_rec(s)->said, memory_order_acquire);
}

void usock_said_times(const struct usock *s, nstime *rcvtimeo, nstime *sndtimeo)
{
        *rcvtimeo = READ_ONCE(usock_rec(s)->rcvtimeo);
        *sndtimeo = READ_ONCE(usock_rec(s)->sndtimeo);
}

void usock_goes_outside(struct usock *s)
{
        ustack_lock(s->u);
        usock_rec(s)->outside = 1;
        usock_tcp_settle(s);
        ustack_leave(s->u);
}

int usock_kind(const struct usock *s)
{
        return s->kind;
}

/* ---- names ---- */

static int bind_once(struct usock *s, ip_addr addr, uint16_t port)
{
        struct sock_rec *rec = usock_rec(s);
        int err = 0;

        ustack_lock(s->u);
        rec->laddr = addr;
        WRITE_ONCE(rec->lport, port);
        rec->bound_many = usock_addr_is_many(addr);
        rec->bound = 1;
        if (rec->role == SOCK_ROLE_UDP && port != 0)
                err = rec->bound_many ? udp_bind_many(&s->u->s.udp, rec->conn, addr, port)
                                      : udp_bind(&s->u->s.udp, rec->conn, addr, port);
        ustack_leave(s->u);
        return err;
}

int usock_bind(struct usock *s, const struct sockaddr *sa, socklen_t len)
{
        ip_addr addr;
        uint16_t port;
        int err = usock_addr_in(sa, len, &addr, &port);

        if (err != 0)
                return err;
        err = bind_once(s, addr, port);
        if (unlikely(err == -EADDRINUSE) && usock_settle(s))
                err = bind_once(s, addr, port);
        return err;
}

bool usock_has_port(const struct usock *s)
{
        return READ_ONCE(usock_rec(s)->lport) != 0;
}

struct usock_own usock_own(struct usock *s)
{
        const struct sock_rec *rec = usock_rec(s);
        struct usock_own own;

        ustack_lock(s->u);
        own = (struct usock_own){rec->laddr, rec->lport, rec->oif, rec->bound_many,
                                 rec->opts.ip_opts};
        ustack_leave(s->u);
        return own;
}

bool usock_peer(struct usock *s, ip_addr *addr, uint16_t *port)
{
        const struct sock_rec *rec = usock_rec(s);

        ustack_lock(s->u);
        *addr = rec->raddr;
        *port = rec->rport;
        ustack_leave(s->u);
        return *port != 0;
}

int usock_getsockname(struct usock *s, struct sockaddr *sa, socklen_t *len)
{
        struct sock_rec *rec = usock_rec(s);

        ustack_lock(s->u);
        usock_addr_out(s->family, rec->laddr, rec->lport, sa, len);
        ustack_leave(s->u);
        return 0;
}

/* To Linux's sockets TIME-WAIT is closed. */
static bool has_peer(struct usock *s)
{
        struct sock_rec *rec = usock_rec(s);
        enum tcp_state state;

        if (rec->rport == 0 || rec->role != SOCK_ROLE_CONN)
                return rec->rport != 0;
        state = usock_conn(s)->state;
        return state != TCPS_CLOSED && state != TCPS_SYN_SENT && state != TCPS_TIME_WAIT;
}

int usock_getpeername(struct usock *s, struct sockaddr *sa, socklen_t *len)
{
        struct sock_rec *rec = usock_rec(s);
        bool known;

        ustack_lock(s->u);
        if (s->kind == USOCK_TCP && has_peer(s) && stack_pending(&s->u->s, 0))
                stack_run(&s->u->s, ustack_now()); /* a reset may be among it */
        known = has_peer(s);
        if (known)
                usock_addr_out(s->family, rec->raddr, rec->rport, sa, len);
        ustack_leave(s->u);
        return known ? 0 : -ENOTCONN;
}

void usock_accepted_from(struct usock *s, struct sockaddr *sa, socklen_t *len)
{
        const struct sock_rec *rec = usock_rec(s);

        ustack_lock(s->u);
        usock_addr_out(s->family, rec->raddr, rec->rport, sa, len);
        ustack_leave(s->u);
}

int usock_connect(struct usock *s, const struct sockaddr *sa, socklen_t len, const char **why)
{
        const char *unused;
        ip_addr addr;
        uint16_t port;
        int err = usock_addr_in(sa, len, &addr, &port);

        if (why == NULL)
                why = &unused;
        *why = "address of a family or form that the fabric does not carry";
        if (err != 0)
                return -ENOENT;
        if (ip_addr_is_any(addr))
                addr = ip_addr_v4(INADDR_LOOPBACK); /* as Linux: this host */
        return s->kind == USOCK_UDP ? usock_udp_connect(s, addr, port, why)
                                    : usock_tcp_connect(s, addr, port, why);
}

/*
 * The oldest connection's channel, where this process has not mapped it yet. While another thread
 * talked to unetd nobody could ask for it. Or the keeper could not be asked while another unetd
 * began. Then it is waited for, since the first thing done with the connection may be to send.
 * Under the lock, which is left meanwhile. -ENOBUFS: it is not to be had; -EMFILE: it is, but not
 * by a process that may have no more numbers. The connection stays where it is.
 */
static int next_at_hand(struct ustack *u, const struct sock_rec *rec)
{
        nstime until = 0;

        assert(ustack_locked(u));
        for (int i = 0; rec->role == SOCK_ROLE_LISTENER && tcp_acceptable(&u->s.tcp, rec->conn);
             i++) {
                uint32_t c = tcp_accept_next(&u->s.tcp, rec->conn);
                int err = fetch_chan(u, tcp_conn_at(&u->s.tcp, c)->tuple.chan, i, &until);

                if (err != -EAGAIN)
                        return err;
        }
        return rec->role == SOCK_ROLE_LISTENER ? -EAGAIN : -EINVAL;
}

/* Takes in what may make it so. Under the lock. */
static bool look_for_one(struct ustack *u, const struct sock_rec *rec)
{
        assert(ustack_locked(u));
        if (!tcp_acceptable(&u->s.tcp, rec->conn) && stack_pending(&u->s, 0))
                stack_run(&u->s, ustack_now());
        return tcp_acceptable(&u->s.tcp, rec->conn);
}

bool usock_acceptable(struct usock *s)
{
        const struct sock_rec *rec = usock_rec(s);
        bool any;

        if (sock_role(rec) != SOCK_ROLE_LISTENER)
                return true;
        ustack_lock(s->u);
        any = look_for_one(s->u, rec);
        ustack_leave(s->u);
        return any;
}

int usock_accept(struct usock *s, struct usock **out)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s), *r;
        uint32_t conn, idx;
        int err;

        assert(s->kind == USOCK_TCP);
        assert(!ustack_locked(u));
        if (sock_role(rec) != SOCK_ROLE_LISTENER)
                return -EINVAL;
        ustack_lock(u);
        look_for_one(u, rec);
        err = next_at_hand(u, rec);
        idx = err == 0 ? rec_new(u, USOCK_TCP, s->family) : 0;
        if (err == 0)
                err = -EAGAIN;
        if (idx != 0 && (conn = tcp_accept(&u->s.tcp, rec->conn)) != 0) {
                r = stack_sock(&u->s, idx);
                r->rcvlowat = rec->rcvlowat;
                r->waits_for_more = rec->waits_for_more;
                usock_tcp_link(u, r, conn, idx);
                r->bound = 1;
                r->edge_in = 1;
                /* As Linux's sk_clone_lock(): what no connection has is inherited too. */
                r->told = rec->told;
                r->stamps = rec->stamps;
                r->cork = rec->cork;
                r->reuse = rec->reuse;
                r->zerocopy = rec->zerocopy;
                tcp_get_opts(tcp_conn_at(&u->s.tcp, conn), &r->opts);
                *out = handle(u, idx, -1);
                err = *out == NULL ? -ENOMEM : 0;
        }
        if (err == -EAGAIN)
                ustack_levels_again(u, rec, POLLIN);
        ustack_leave(u);
        return err;
}

/* As Linux: shutdown(SHUT_RD) of a listener ends it, and the connections that nobody has taken. */
static void stop_listening(struct usock *s)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        struct sock_entry e = {.last = false};

        assert(s->kind == USOCK_TCP);
        assert(!ustack_locked(u));
        hear_of_listener(s);
        ustack_client();
        ustack_lock(u);
        if (rec->role == SOCK_ROLE_LISTENER) {
                hear_before_the_end(s);
                e = ustack_entry_end(u, rec);
                ustack_end_role(u, rec, stack_time(&u->s, ustack_now()));
                stack_flush(&u->s, ustack_now());
                ustack_event(&u->s, s->idx, TCP_EV_READABLE | TCP_EV_CLOSED);
        }
        ustack_leave(u);
        ustack_entry_del(u, &e);
        ustack_client_done();
}

int usock_shutdown(struct usock *s, int how)
{
        struct sock_rec *rec = usock_rec(s);
        struct ustack *u = s->u;
        nstime now = ustack_now();
        int err = 0;

        if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
                return -EINVAL;
        if (sock_role(rec) == SOCK_ROLE_LISTENER) {
                if (how != SHUT_WR)
                        stop_listening(s);
                return 0;
        }
        usock_relay_first(s);
        ustack_lock(u);
        usock_tcp_settle(s);
        usock_tcp_hear(s);
        if (rec->role == SOCK_ROLE_CONN && usock_conn(s)->state == TCPS_SYN_SENT)
                hear_before_the_end(s); /* a listener of our own answers */
        now = stack_time(&u->s, now);
        if (rec->role == SOCK_ROLE_CONN) {
                struct tcp_conn *tc = usock_conn(s);
                stack_begin(u->s.st, rec->conn);
                if (tc->state == TCPS_CLOSED ||
                    tc->state == TCPS_TIME_WAIT) /* as Linux: both are no connection */
                        err = -ENOTCONN;
                if (err == 0 && how != SHUT_RD)
                        tcp_shutdown_send(&u->s.tcp, tc, now);
                if (err == 0 && how != SHUT_WR)
                        tcp_shutdown_recv(&u->s.tcp, tc, now);
                stack_end(u->s.st);
                stack_flush(&u->s, now);
        } else if (rec->role == SOCK_ROLE_UDP) {
                err = udp_shutdown(&u->s.udp, rec->conn, how);
        } else {
                err = -ENOTCONN;
        }
        ustack_leave(u);
        return err;
}

/* ---- data ---- */

static size_t iov_total(const struct iovec *iov, size_t n)
{
        size_t total = 0;

        for (size_t i = 0; i < n; i++)
                total += iov[i].iov_len;
        return total;
}

/* Turns are seldom taken: who does not goes on into the transport without coming back here. */
static inline bool in_turns(void)
{
        return unlikely(usock_tls.turns != USOCK_TURNS_NONE);
}

static ssize_t sent(struct usock *s, ssize_t n)
{
        if (in_turns() && n > 0)
                usock_turns_sent(&s->u->s);
        return n;
}

static ssize_t heard(ssize_t n)
{
        if (in_turns() && n > 0)
                usock_turns_heard();
        return n;
}

static inline ssize_t get(struct usock *s, void *p, size_t n, int flags)
{
        struct iovec iov = {p, n};

        if (likely(s->kind == USOCK_TCP))
                return usock_tcp_recv(s, &iov, 1, n, flags, NULL);
        return usock_udp_read(s, p, n, flags);
}

static inline ssize_t put(struct usock *s, const struct msghdr *m, int flags)
{
        size_t total = iov_total(m->msg_iov, m->msg_iovlen);

        if (s->kind == USOCK_UDP)
                return usock_udp_send(s, m, total, flags);
        return usock_tcp_send(s, m->msg_iov, (int)m->msg_iovlen, total, flags);
}

ssize_t usock_sendmsg(struct usock *s, const struct msghdr *m, int flags)
{
        return in_turns() ? sent(s, put(s, m, flags)) : put(s, m, flags);
}

ssize_t usock_send_straight(struct usock *s, struct mmsghdr *v, uint32_t n, int flags)
{
        return s->kind == USOCK_UDP ? sent(s, usock_udp_send_straight(s, v, n, flags)) : 0;
}

ssize_t usock_recvmsg(struct usock *s, struct msghdr *m, int flags)
{
        size_t total = iov_total(m->msg_iov, m->msg_iovlen);
        nstime came = 0;
        uint16_t told;
        ssize_t n;

        if (s->kind == USOCK_UDP)
                return in_turns() ? heard(usock_udp_recv(s, m, total, flags))
                                  : usock_udp_recv(s, m, total, flags);
        if (unlikely(flags & MSG_ERRQUEUE))
                return usock_tcp_recv_note(s, m);
        told = READ_ONCE(usock_rec(s)->told);
        n = usock_tcp_recv(s, m->msg_iov, (int)m->msg_iovlen, total, flags,
                           unlikely(told & USOCK_TELL_TIMES) ? &came : NULL);
        if (in_turns())
                heard(n);
        if (n >= 0) {
                m->msg_flags = flags & (MSG_OOB | MSG_CMSG_CLOEXEC);
                if (unlikely(flags & MSG_OOB && total == 0))
                        m->msg_flags |= MSG_TRUNC;
                m->msg_namelen = 0;
                if (unlikely(told != 0))
                        usock_cmsg_put_stream(s, came, m);
                else
                        m->msg_controllen = 0;
        }
        return n;
}

ssize_t usock_send(struct usock *s, const void *p, size_t n, int flags)
{
        struct iovec iov = {(void *)(uintptr_t)p, n};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

        if (in_turns())
                return sent(s, put(s, &m, flags));
        if (likely(s->kind == USOCK_TCP))
                return usock_tcp_send(s, &iov, 1, n, flags);
        return usock_udp_send(s, &m, n, flags);
}

ssize_t usock_recv(struct usock *s, void *p, size_t n, int flags)
{
        if (n < READ_ONCE(s->ahead.left) && !(flags & (MSG_PEEK | MSG_TRUNC | MSG_OOB)) &&
            usock_tcp_read_ahead(s, p, n))
                return (ssize_t)n;
        return in_turns() ? heard(get(s, p, n, flags)) : get(s, p, n, flags);
}

ssize_t usock_read_short(struct usock *s, void *p, size_t n)
{
        if (s->kind == USOCK_UDP)
                return in_turns() ? heard(usock_udp_read_short(s, p, n))
                                  : usock_udp_read_short(s, p, n);
        return n < READ_ONCE(s->ahead.left) && usock_tcp_read_ahead(s, p, n) ? (ssize_t)n : -EAGAIN;
}

off_t usock_file_end(int fd)
{
        struct stat st;

        return sys2(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) ? st.st_size : INT64_MAX;
}

uint32_t usock_rcvlowat(const struct usock *s)
{
        return READ_ONCE(usock_rec(s)->rcvlowat);
}

bool usock_waits_for_more(const struct usock *s)
{
        return READ_ONCE(usock_rec(s)->waits_for_more);
}

bool usock_peeks_on(const struct usock *s)
{
        return READ_ONCE(usock_rec(s)->peeks_on);
}
