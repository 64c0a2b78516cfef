/*
 * The relay itself: a process that only moves bytes (relay.h).
 *
 * It keeps nothing of what it moves. Bytes are looked at where they lie, given on, and then taken
 * away: what it has not given on when it is killed is where it was. Where other processes have the
 * connection as well (sshd's monitor and its child), what came for the program stays in the
 * connection until the program has read it: if it ends without, it is there for them, as it were
 * with a socket that they share. If it had read a part, it says how much was left as it closes
 * (relayed_close()); one that is killed, or has locked itself in, cannot, and that part comes
 * twice.
 *
 * Nobody is waited for but in usock_wait(): on the connections, by level, and on the socket pairs,
 * by edge.
 */
#include "sock/shim/relay.h"
#include "sock/usock_connect.h"
#include "sock/usock_option.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"

#define PIECE  (64u << 10)
#define EVENTS 64
/* For who found a listener in the directory just before it left that. */
#define PATIENCE NS_PER_S
/* For a peer that takes nothing of what a program has left behind; as TCP is with such a peer. A
 * test has it shorter. */
#ifndef RELAY_GONE_MS
#define RELAY_GONE_MS 120000
#endif
/* SIOCOUTQ counts memory: some hundred bytes for a buffer, however little is in it. sock_wfree()
 * wakes who waits for room while it still counts one byte of the buffer that was read, and wakes
 * nobody after that. */
#define BUFFER_MIN 64

struct pump {
        struct usock *us; /* NULL: it has ended */
        int fd;
        struct relayed *r;
        size_t offered;         /* bytes that the program has got, and may not have read yet */
        uint32_t offers;        /* so far, twice */
        bool in_done, out_done; /* nothing more comes for the program, and from it */
        bool full, blocked;     /* it does not read; the connection takes nothing */
        bool unread;            /* it has ended, and had not read all */
        int err;                /* the connection has failed */
};

/* All that the relay does. */
struct carrier {
        struct pump *p;
        struct usock_item *items; /* one for each, for each listener, and for `set` */
        unsigned n, room;
        struct usock **listener;
        unsigned nlisteners; /* 0: it takes nobody any more */
        nstime until;        /* if nobody comes */
        int set;             /* of the socket pairs and the kernel's sockets */
};

static struct relay *own; /* in the relay */
static char piece[PIECE];

bool relay_owns(int fd)
{
        if (!own)
                return false;
        for (unsigned i = 0; i < own->n; i++)
                if (own->v[i].relay == fd)
                        return true;
        return fd == own->ctl;
}

/* ---- bytes ---- */

static int unix_error(int fd)
{
        socklen_t len = sizeof(int);
        int err = 0;

        sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_ERROR, &err, &len);
        return err;
}

/* The program ended in the middle of what was offered. */
static void keep_rest(struct pump *p)
{
        int left = atomic_load(&p->r->left);
        bool of_this = atomic_load(&p->r->left_of) == p->offers;

        assert(p->us != NULL && p->offered != 0);
        if (left >= 0 && of_this && (size_t)left < p->offered)
                usock_recv(p->us, piece, p->offered - (size_t)left, 0);
        p->offered = 0;
        p->in_done = true;
}

/* What was offered has been read, and leaves the connection. False: not yet, or never. The kernel
 * says that something was left before it throws that away. */
static bool settle(struct pump *p)
{
        int left = 0;

        if (p->offered == 0)
                return true;
        sys3(SYS_ioctl, p->fd, SIOCOUTQ, &left);
        p->unread |= unix_error(p->fd) == ECONNRESET;
        if (p->unread)
                keep_rest(p);
        if (p->unread || left >= BUFFER_MIN)
                return false;
        usock_recv(p->us, piece, p->offered, 0);
        p->offered = 0;
        return true;
}

static void no_more_for_program(struct pump *p, long r)
{
        p->in_done = r != -EAGAIN;
        p->full = r == -EAGAIN;
        p->unread |= r == -ECONNRESET;
}

static void to_program(struct pump *p)
{
        p->full = false;
        while (!p->in_done && settle(p)) {
                ssize_t n = usock_recv(p->us, piece, PIECE, MSG_PEEK);
                long r;

                if (n == 0) {
                        sys2(SYS_shutdown, p->fd, SHUT_WR);
                        p->in_done = true;
                } else if (n < 0) {
                        p->err = n == -EAGAIN ? 0 : (int)-n;
                }
                if (n <= 0)
                        return;
                atomic_store(&p->r->offers, p->offers + 1);
                r = sys6(SYS_sendto, p->fd, (long)piece, n, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
                p->offers += r < 0 ? 0 : 2;
                atomic_store(&p->r->offers, p->offers);
                if (r < 0) {
                        no_more_for_program(p, r);
                        return;
                }
                p->offered = (size_t)r;
                if (!usock_is_shared(p->us)) {
                        usock_recv(p->us, piece, p->offered, 0);
                        p->offered = 0;
                }
        }
}

static bool hung_up(const struct pump *p)
{
        struct pollfd pfd = {.fd = p->fd};
        struct timespec now = {0, 0};

        return sys5(SYS_ppoll, &pfd, 1, &now, NULL, 0) > 0 && pfd.revents & POLLHUP;
}

static void from_program(struct pump *p)
{
        p->blocked = false;
        while (!p->out_done && p->err == 0) {
                long n = sys6(SYS_recvfrom, p->fd, (long)piece, PIECE, MSG_PEEK | MSG_DONTWAIT, 0,
                              0);
                ssize_t r;

                if (n == -EAGAIN)
                        return;
                if (n <= 0) {
                        p->unread |= n < 0; /* a socket of the kernel's may not have connected */
                        p->out_done = n != -ECONNRESET;
                        continue;
                }
                r = usock_send(p->us, piece, (size_t)n, 0);
                if (r == -EAGAIN) {
                        p->blocked = true;
                        return;
                }
                if (r < 0)
                        p->err = (int)-r;
                else
                        sys6(SYS_recvfrom, p->fd, (long)piece, r, MSG_DONTWAIT, 0, 0);
        }
        if (p->out_done && !hung_up(p))
                usock_shutdown(p->us, SHUT_WR);
}

/* The program is gone, and the peer takes nothing: as after a close by the kernel, what was written
 * is the connection's, which ends by its own timers. Where there are no frames for it the relay has
 * a timer. Others who have the connection keep its limits. */
static void let_go(struct pump *p)
{
        int room = 0, left = 0, patience = RELAY_GONE_MS;
        socklen_t len = sizeof(room);

        assert(p->blocked);
        if (usock_is_shared(p->us))
                return;
        usock_getsockopt(p->us, SOL_SOCKET, SO_SNDBUF, &room, &len);
        sys3(SYS_ioctl, p->fd, SIOCINQ, &left);
        room += left;
        usock_setsockopt(p->us, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
        from_program(p);
        if (p->blocked)
                usock_setsockopt(p->us, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof(patience));
}

/* ---- the end of one ---- */

/* As the kernel closes a socket: what was not read resets the connection. It goes on where others
 * have it. */
static void end(struct pump *p)
{
        struct linger at_once = {.l_onoff = 1};
        bool shared = usock_is_shared(p->us);

        assert(p->us != NULL);
        if (!shared && p->unread)
                usock_setsockopt(p->us, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        else if (shared && atomic_load(&p->r->shut))
                usock_shutdown(p->us, SHUT_RDWR);
        atomic_store(&p->r->err, p->err == EPIPE ? 0 : p->err);
        sys1(SYS_close, p->fd);
        usock_close(p->us);
        p->us = NULL;
}

static void pump(struct pump *p)
{
        uint32_t asked = usock_relay_asked(p->us);

        from_program(p);
        if (p->blocked && hung_up(p))
                let_go(p);
        to_program(p);
        if (!p->blocked)
                usock_relay_answer(p->us, asked);
        if (p->err != 0 || (p->out_done && (p->in_done || hung_up(p))))
                end(p);
}

/* ---- all of them ---- */

static bool make_room(struct carrier *c, unsigned n)
{
        struct pump *p = realloc(c->p, n * sizeof(*p));
        struct usock_item *items;

        assert(n >= c->n);
        if (p == NULL)
                return false;
        c->p = p;
        items = realloc(c->items, (n + c->nlisteners + 1) * sizeof(*items));
        if (items == NULL)
                return false;
        c->items = items;
        c->room = n;
        return true;
}

/* One that is free. */
static struct pump *place(struct carrier *c)
{
        assert(c->n <= c->room);
        for (unsigned i = 0; i < c->n; i++)
                if (c->p[i].us == NULL)
                        return &c->p[i];
        if (c->n == c->room && !make_room(c, 2 * c->room + 1))
                return NULL;
        c->p[c->n].us = NULL;
        return &c->p[c->n++];
}

static void watch(int set, const struct pump *p)
{
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};

        sys4(SYS_epoll_ctl, set, EPOLL_CTL_ADD, p->fd, &ev);
}

/* What the socket pairs tell is looked at by pump(), of all of them: the edges only wake. */
static void forget_edges(int set)
{
        struct epoll_event ev[EVENTS];

        while (sys6(SYS_epoll_pwait, set, (long)ev, EVENTS, 0, 0, 0) == EVENTS)
                ;
}

/* ---- who waits in a listener ---- */

/* False: nobody waits, or can be taken. */
static bool take_one(struct carrier *c, struct usock *listener)
{
        static struct relayed nobodys;
        struct pump *p = place(c);
        struct usock *s;
        int fd = p != NULL ? relay_hand_on(listener, &s) : -ENOMEM;

        if (fd >= 0) {
                *p = (struct pump){.us = s, .fd = fd, .r = &nobodys};
                watch(c->set, p);
        }
        return fd >= 0 || fd == -ECONNRESET;
}

static bool anybody_expected(const struct carrier *c)
{
        for (unsigned i = 0; i < c->nlisteners; i++)
                if (usock_expects(c->listener[i]))
                        return true;
        return false;
}

static void take_who_waits(struct carrier *c)
{
        nstime now = clock_now();

        for (unsigned i = 0; i < c->nlisteners; i++)
                while (take_one(c, c->listener[i]))
                        c->until = now + PATIENCE;
        if (now < c->until || anybody_expected(c))
                return;
        for (unsigned i = 0; i < c->nlisteners; i++)
                usock_close(c->listener[i]);
        c->nlisteners = 0;
}

/* ---- the loop ---- */

/* What to wait for; 0: all have ended. A connection that waits for the program only is left out,
 * for its end would be told at once. */
static int items(struct carrier *c)
{
        int k = 0;
        bool any = c->nlisteners != 0;

        for (unsigned i = 0; i < c->n; i++) {
                const struct pump *p = &c->p[i];
                short events = (short)((p->in_done || p->full || p->offered ? 0 : POLLIN) |
                                       (p->blocked ? POLLOUT : 0));

                if (p->us == NULL)
                        continue;
                any = true;
                if (events != 0)
                        c->items[k++] = (struct usock_item){.s = p->us, .fd = -1, .events = events};
        }
        for (unsigned i = 0; i < c->nlisteners; i++)
                c->items[k++] =
                        (struct usock_item){.s = c->listener[i], .fd = -1, .events = POLLIN};
        c->items[k++] = (struct usock_item){.fd = c->set, .events = POLLIN};
        return any ? k : 0;
}

static void carry(struct carrier *c)
{
        sigset_t mask;
        int k;

        sigfillset(&mask);
        sigdelset(&mask, SIGURG);
        for (unsigned i = 0; i < c->n; i++)
                watch(c->set, &c->p[i]);
        c->until = clock_now() + PATIENCE;
        do {
                forget_edges(c->set);
                if (c->nlisteners != 0)
                        take_who_waits(c);
                for (unsigned i = 0; i < c->n; i++)
                        if (c->p[i].us != NULL)
                                pump(&c->p[i]);
                k = items(c);
                if (k != 0)
                        usock_wait(c->items, k, c->nlisteners != 0 ? PATIENCE : -1, &mask);
        } while (k != 0);
}

/* ---- the process ---- */

static void asked(int sig)
{
}

/* Nobody but us sends it anything: no terminal, no group, no handler of the program's. */
static void be_alone(uid_t uid)
{
        struct sigaction sa = {.sa_handler = asked};
        sigset_t all;

        sigfillset(&all);
        sys4(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, _NSIG / 8);
        sigemptyset(&sa.sa_mask);
        REAL(sigaction)(SIGURG, &sa, NULL);
        prctl(PR_SET_DUMPABLE, 0);
        prctl(PR_SET_NAME, "unet-relay");
        sys0(SYS_setsid);
        sys1(SYS_chdir, "/");
        sys3(SYS_setresuid, uid, uid, uid); /* the program may show another one at the moment */
}

static void take(struct pump *p, const struct carried *c)
{
        int on = 1;

        assert(c->f->us != NULL);
        /* The program's writes are whole. */
        usock_setsockopt(c->f->us, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        *p = (struct pump){.us = usock_dup(c->f->us), .fd = c->relay, .r = c->r};
        c->f->spawned = false;
}

static void no_spawned(int fd, struct file *f, void *arg)
{
        f->spawned = false;
}

static bool may_begin(int ctl)
{
        char byte;

        return sys3(SYS_write, ctl, "", 1) == 1 && sys3(SYS_read, ctl, &byte, 1) == 1;
}

static bool take_all(struct carrier *c, const struct relay *r)
{
        c->listener = calloc(r->nlisteners, sizeof(*c->listener));
        if (c->listener == NULL && r->nlisteners != 0)
                return false;
        for (; c->nlisteners < r->nlisteners; c->nlisteners++)
                c->listener[c->nlisteners] = usock_dup(r->listener[c->nlisteners]->us);
        if (!make_room(c, r->n))
                return false;
        for (; c->n < r->n; c->n++) {
                take(&c->p[c->n], &r->v[c->n]);
                sys1(SYS_close, r->v[c->n].program);
        }
        return true;
}

void relay_run(struct relay *r)
{
        struct carrier c = {.n = 0};
        bool whole;

        be_alone(r->uid);
        own = r;
        whole = take_all(&c, r);
        file_each(no_spawned, NULL);
        usock_tls.inside = 0;
        h_close_range(0, ~0u, 0);
        usock_enter();
        c.set = shim_high_fd((int)sys1(SYS_epoll_create1, EPOLL_CLOEXEC));
        if (whole && c.set >= 0 && may_begin(r->ctl)) {
                for (unsigned i = 0; i < c.n; i++)
                        usock_relay_begin(c.p[i].us);
                carry(&c);
        }
        usock_exit();
        sys1(SYS_exit_group, 0);
        __builtin_unreachable();
}
