/*
 * socket, listen, accept, shutdown and names. decide.c takes the decisions, connect.c has
 * connect().
 */
#include "sock/shim/cancel.h"
#include "sock/shim/decide.h"
#include "sock/shim/opts.h"
#include "sock/shim/process.h"
#include "sock/shim/relay.h"
#include "sock/shim/spare.h"
#include "sock/shim/wait.h"
#include "sock/usock_connect.h"

#include <netinet/in.h>
#include <sys/ioctl.h>

/* ---- socket, listen ---- */

int h_socket(int domain, int type, int protocol)
{
        int base = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
        uint32_t age = 0;
        uint8_t spare = 0;
        struct file *f;
        bool tcp = base == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP);
        int fd;

        fd = tcp && domain == AF_INET && !usock_tls.inside ? spare_take(type, &spare, &age) : -1;
        fd = fd_returned(fd >= 0 ? fd : FD_TRY(REAL(socket)(domain, type, protocol)));
        if (fd < 0 || usock_tls.inside || (domain != AF_INET && domain != AF_INET6))
                return fd;
        if (!tcp && !(base == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP)))
                return fd;
        if (!shim_start())
                return fd;
        usock_enter();
        f = file_new(fd, MODE_KERNEL);
        if (f) {
                f->kind = base == SOCK_STREAM ? USOCK_TCP : USOCK_UDP;
                f->family = (sa_family_t)domain;
                f->nonblock = type & SOCK_NONBLOCK;
                f->mode = MODE_NEW;
                if (tcp && domain == AF_INET)
                        spare_made(f, spare, age);
        } else {
                spare_lost(spare, age);
        }
        usock_leave();
        return fd;
}

/* What stands under accepted sockets; under shim.lock. */
static int placeholder_make(void)
{
        assert(shim_locked());
        if (shim.placeholder < 0)
                shim.placeholder =
                        shim_high_fd((int)sys3(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        return shim.placeholder;
}

static const char *start_listening(struct file *f, int backlog)
{
        struct sockaddr_storage ss;
        socklen_t len;
        const char *why;
        int r;

        assert(f->kind == USOCK_TCP && shim_locked());
        if (sock_kernel_name(f, &ss, &len) < 0)
                return "no local name";
        why = sock_not_v4(f, &ss, len);
        if (!why)
                why = usock_rule_listens(f->kind, (void *)&ss, len);
        if (why)
                return why;
        f->bound = true; /* listen() binds what was not */
        r = sock_engage(f);
        if (r == 0)
                r = usock_listen(f->us, backlog);
        if (r < 0)
                return sock_refused(r);
        /* The kernel's side is asked beside ours, and so must never block. */
        sys3(SYS_fcntl, f->kfd, F_SETFL, sys2(SYS_fcntl, f->kfd, F_GETFL) | O_NONBLOCK);
        placeholder_make(); /* while there are numbers */
        return NULL;
}

int h_listen(int fd, int backlog)
{
        struct file *f = file_enter(fd, MODE_NEW);
        const char *why;
        ssize_t r;

        if (!f)
                return REAL(listen)(fd, backlog);
        spare_used(f);
        r = f->mode == MODE_TCP ? -EINVAL : sys2(SYS_listen, f->kfd, backlog);
        pthread_mutex_lock(&shim.lock);
        if (r == 0 && f->mode == MODE_LISTEN) {
                usock_listen(f->us, backlog);
        } else if (r == 0 && f->mode == MODE_NEW) {
                why = start_listening(f, backlog);
                sock_decide(f, why ? MODE_KERNEL : MODE_LISTEN,
                            why ? why : "listening on both sides");
        }
        pthread_mutex_unlock(&shim.lock);
        return file_answer(f, r);
}

/* ---- accept ---- */

static int placeholder_number(int flags)
{
        int base = atomic_load_explicit((_Atomic int *)&shim.placeholder, memory_order_acquire);
        int how = flags & SOCK_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, fd;

        if (base < 0) {
                pthread_mutex_lock(&shim.lock);
                base = placeholder_make();
                pthread_mutex_unlock(&shim.lock);
                if (base < 0)
                        return base;
        }
        fd = (int)sys3(SYS_fcntl, base, how, 0);
        return unlikely(fd < 0) && spares_yield(fd) ? (int)sys3(SYS_fcntl, base, how, 0) : fd;
}

int sock_give_name(const struct sockaddr_storage *name, socklen_t n, struct sockaddr *sa,
                   socklen_t *len)
{
        if (!user_read(len))
                return -EFAULT;
        if ((int)*len < 0)
                return -EINVAL;
        return user_copy(sa, name, MIN(*len, n)) && user_put32(len, n) ? 0 : -EFAULT;
}

/* As Linux: also of one that was reset since. */
static int give_accepted_name(struct usock *s, struct sockaddr *sa, socklen_t *len)
{
        struct sockaddr_storage name;
        socklen_t n = sizeof name;

        usock_accepted_from(s, (void *)&name, &n);
        return sock_give_name(&name, n, sa, len);
}

/* A connection of ours gets a file. */
static int accepted(const struct file *l, struct usock *s, int fd, int flags)
{
        struct file *f = file_new(fd, MODE_KERNEL);

        assert(s != NULL);
        if (!f) {
                usock_close(s);
                return -ENFILE;
        }
        f->kind = USOCK_TCP;
        f->family = l->family;
        usock_set_nonblock(s, flags & SOCK_NONBLOCK);
        f->placeholder = true;
        f->bound = true;
        f->rcvtimeo = l->rcvtimeo;
        f->sndtimeo = l->sndtimeo;
        f->stamped = READ_ONCE(l->stamped);
        opts_share(f, l);
        f->us = s;
        f->why = "came over the fabric";
        __atomic_store_n(&f->mode, MODE_TCP, __ATOMIC_RELEASE);
        log_decision(f);
        return fd;
}

/* As Linux: the number is there before a connection is taken, which stays where there is none. */
static int accept_ours(const struct file *l, struct sockaddr *sa, socklen_t *len, int flags)
{
        struct usock *s;
        int fd, r;

        assert(l->us != NULL);
        if (!usock_acceptable(l->us))
                return -EAGAIN;
        fd = placeholder_number(flags);
        if (fd < 0)
                return fd;
        r = usock_accept(l->us, &s);
        if (r == 0 && sa && give_accepted_name(s, sa, len) == -EFAULT) {
                usock_close(s); /* as Linux: it is gone */
                r = -EFAULT;
        }
        if (r == 0)
                r = accepted(l, s, fd, flags);
        if (r < 0)
                sys1(SYS_close, fd);
        return r;
}

/* Asked first, since an accept4() that finds nobody makes a socket and takes it down again, which
 * takes four times as long. */
static int accept_kernel(const struct file *l, struct sockaddr *sa, socklen_t *len, int flags)
{
        struct pollfd p = {.fd = l->kfd, .events = POLLIN};
        struct file *f;
        int fd;

        if (sys3(SYS_poll, &p, 1, 0) == 0)
                return -EAGAIN;
        fd = (int)sys4(SYS_accept4, l->kfd, sa, len, flags);
        if (fd < 0)
                return fd;
        f = file_new(fd, MODE_KERNEL);
        if (f) {
                f->kind = USOCK_TCP;
                f->family = l->family;
                f->why = "came by the kernel";
                log_decision(f);
        }
        return fd;
}

/* Either side; the kernel is not kept waiting for long when ours is busy, nor at all where there is
 * no number for what one of ours comes by. */
static int accept_once(struct file *l, struct sockaddr *sa, socklen_t *len, int flags)
{
        bool asked = kernel_turn(&l->pace);
        int fd, r;

        if (asked) {
                fd = accept_kernel(l, sa, len, flags);
                if (fd != -EAGAIN)
                        return fd;
        }
        r = accept_ours(l, sa, len, flags);
        if (asked || (r != -EAGAIN && r != -EMFILE))
                return r;
        fd = accept_kernel(l, sa, len, flags);
        l->pace.asked = usock_ticks();
        return fd != -EAGAIN ? fd : r;
}

/* As Linux: who has none left for a connection does not wait for one. */
static int number_at_hand(void)
{
        int fd = placeholder_number(SOCK_CLOEXEC);

        return fd < 0 ? fd : (int)sys1(SYS_close, fd);
}

static ssize_t do_accept(struct file *l, struct sockaddr *sa, socklen_t *len, int flags)
{
        struct until u = until_timeo(l->rcvtimeo);
        int r;

        for (;;) {
                r = accept_once(l, sa, len, flags);
                if (r != -EAGAIN || file_nonblock(l))
                        return r;
                r = number_at_hand();
                if (r == 0)
                        r = file_wait_asked(l, &u);
                if (r < 0)
                        return r;
        }
}

int h_accept4(int fd, struct sockaddr *sa, socklen_t *len, int flags)
{
        struct file *l;
        ssize_t r;

        cancellation_point();
        do {
                l = file_enter(fd, MODE_TCP);
                if (!l)
                        return fd_returned(FD_TRY(REAL(accept4)(fd, sa, len, flags)));
                if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC))
                        r = -EINVAL;
                else if (l->mode == MODE_LISTEN)
                        r = do_accept(l, sa, len, flags);
                else
                        r = l->mode == MODE_UDP ? -EOPNOTSUPP : -EINVAL;
                file_leave(l);
        } while (result_again(&r));
        return (int)r;
}

int h_accept(int fd, struct sockaddr *sa, socklen_t *len)
{
        return h_accept4(fd, sa, len, 0);
}

/* ---- shutdown ---- */

/* As Linux: who shuts it down has been told that it is connected. */
static void connected_by_now(struct file *f)
{
        if (f->connecting && usock_poll(f->us) & USOCK_POLL_MADE && !usock_connect_failed(f->us)) {
                f->connecting = false;
                file_say(f);
        }
}

int sock_shutdown(struct file *f, int how)
{
        int r;

        if (f->mode == MODE_TCP) {
                connected_by_now(f);
                r = usock_shutdown(f->us, how);
                connected_by_now(f); /* the peer's answer may have been heard there */
                return r;
        }
        spare_used(f);
        r = (int)sys2(SYS_shutdown, f->kfd, how);
        pthread_mutex_lock(&shim.lock);
        if (f->mode == MODE_LISTEN &&
            (how == SHUT_RD || how == SHUT_RDWR)) { /* as Linux: the listener is no more */
                usock_shutdown(f->us, how);
                file_keep_flags(f->kfd, f);
                sock_decide(f, MODE_KERNEL, "shut down");
        }
        pthread_mutex_unlock(&shim.lock);
        if (f->mode == MODE_UDP) {
                int ours = usock_shutdown(f->us, how);
                if (f->out) /* the kernel's has no peer */
                        r = ours;
        }
        return r;
}

/* A datagram socket that was shut down sends nothing to anybody, though the call says that it has
 * no peer. */
static int shutdown_undecided(struct file *f, int how)
{
        if (f->kind == USOCK_UDP) {
                pthread_mutex_lock(&shim.lock);
                sock_decide(f, MODE_KERNEL, "shut down");
                pthread_mutex_unlock(&shim.lock);
        }
        return (int)sys2(SYS_shutdown, f->kfd, how);
}

int h_shutdown(int fd, int how)
{
        struct file *f = file_enter(fd, MODE_NEW);
        ssize_t r;

        if (!f)
                return relayed_of(fd) ? relayed_shutdown(fd, how) : REAL(shutdown)(fd, how);
        if (f->mode == MODE_NEW)
                r = shutdown_undecided(f, how);
        else
                r = sock_shutdown(f, how);
        return file_answer(f, r);
}

int h_sockatmark(int fd)
{
        int at = 0;

        return h_ioctl(fd, SIOCATMARK, &at) < 0 ? -1 : at;
}

/* ---- names ---- */

static ssize_t name_of(const struct file *f, bool peer, struct sockaddr *sa, socklen_t *len)
{
        struct sockaddr_storage name;
        socklen_t n = sizeof name;
        int r;

        if (f->mode != MODE_TCP && !f->out)
                return sys3(peer ? SYS_getpeername : SYS_getsockname, f->kfd, sa, len);
        r = peer ? usock_getpeername(f->us, (void *)&name, &n)
                 : usock_getsockname(f->us, (void *)&name, &n);
        return r < 0 ? r : sock_give_name(&name, n, sa, len);
}

static int get_name(int fd, bool peer, struct sockaddr *sa, socklen_t *len)
{
        struct file *f = file_enter(fd, MODE_TCP);
        const struct relayed *c = f ? NULL : relayed_of(fd);

        if (c)
                return peer ? relayed_name(&c->peer, c->peer_len, sa, len)
                            : relayed_name(&c->local, c->local_len, sa, len);
        if (!f)
                return peer ? REAL(getpeername)(fd, sa, len) : REAL(getsockname)(fd, sa, len);
        return file_answer(f, name_of(f, peer, sa, len));
}

int h_getsockname(int fd, struct sockaddr *sa, socklen_t *len)
{
        return get_name(fd, false, sa, len);
}

int h_getpeername(int fd, struct sockaddr *sa, socklen_t *len)
{
        return get_name(fd, true, sa, len);
}
