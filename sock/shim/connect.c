/*
 * connect(): where the decision is taken between the fabric and the kernel, for TCP once and for
 * UDP each time.
 */
#include "sock/shim/cancel.h"
#include "sock/shim/decide.h"
#include "sock/shim/process.h"
#include "sock/shim/shim.h"
#include "sock/shim/signals.h"
#include "sock/shim/spare.h"
#include "sock/shim/wait.h"
#include "sock/usock_ifaces.h"
#include "sock/usock_connect.h"
#include "sock/usock_dgram.h"
#include "sock/usock_option.h"

#include <netinet/in.h>

/* The socket is what it was before; where it was bound the kernel knows. Without the lock while
 * another thread copies: it may stand at a page that only a call of this process brings, or be of a
 * process that is stopped, so a signal ends the wait. */
static int undo(struct file *f, bool (*how)(struct usock *, const ip_addr *), const char *why)
{
        static const ip_addr any;

        assert(f->kind == USOCK_TCP && f->us != NULL);
        shim_tls.handled = false;
        pthread_mutex_lock(&shim.lock);
        while (!how(f->us, f->bound ? &any : NULL)) {
                pthread_mutex_unlock(&shim.lock);
                usock_let_copy();
                if (unlikely(usock_tls.pending))
                        return signals_put_off() ? -ERR_RESTART : -ERR_AGAIN;
                pthread_mutex_lock(&shim.lock);
        }
        sock_decide(f, MODE_NEW, why);
        pthread_mutex_unlock(&shim.lock);
        return 0;
}

/* It can be asked for once more. */
static void result_untold(struct file *f, int err)
{
        usock_put_error(f->us, err);
        f->connecting = true;
        file_say(f);
}

/* The end of a handshake, reported once, as the kernel does: 0, or why it failed. Over loopback
 * nobody sleeps in connect() for a listener that there is. So who waited is told of the connection
 * even if it is reset by now; what came before the reset can be read. */
static int connect_result(struct file *f, bool waited)
{
        int err = 0, r;
        socklen_t len = sizeof(err);

        assert(f->us != NULL);
        usock_progress();
        if (!(usock_poll(f->us) & (USOCK_POLL_MADE | POLLERR | POLLHUP)))
                return -EALREADY;
        f->connecting = false;
        file_say(f);
        if (waited ? usock_connect_made(f->us) : !usock_connect_failed(f->us))
                return 0;
        usock_getsockopt(f->us, SOL_SOCKET, SO_ERROR, &err, &len);
        r = undo(f, usock_connect_undo, "an attempt to connect failed");
        if (unlikely(r < 0)) {
                result_untold(f, err);
                return r;
        }
        return err != 0 ? -err : -ECONNABORTED;
}

static int connect_wait(struct file *f)
{
        struct until u = until_timeo(f->sndtimeo);
        int r = -EALREADY;

        assert(f->us != NULL);
        while (r == -EALREADY) {
                r = file_wait(f, USOCK_POLL_MADE, &u);
                if (r == -EAGAIN)
                        return -EINPROGRESS;
                if (r < 0)
                        return r;
                r = connect_result(f, true);
        }
        return r;
}

/* connect() to AF_UNSPEC: the socket is as new, and keeps what it was bound to. An accepted one was
 * bound to nothing. */
static int disconnect_tcp(struct file *f)
{
        bool connecting = f->connecting;
        int r = file_materialise(f);

        assert(f->us != NULL);
        if (r < 0)
                return r;
        f->connecting = false;
        r = undo(f, usock_disconnect, "disconnected");
        if (unlikely(r < 0))
                f->connecting = connecting;
        return r;
}

/* Names that the kernel refuses on this socket: what it says of them is said by it. */
static bool name_fits(const struct file *f, const struct sockaddr *sa, socklen_t len)
{
        return sockaddr_v4(sa, len) && sa->sa_family == f->family && !sock_v6only(f);
}

/* Of either family. */
static uint16_t port_of(const struct sockaddr *sa)
{
        uint16_t port;

        memcpy(&port, (const char *)sa + offsetof(struct sockaddr_in, sin_port), sizeof(port));
        return ntohs(port);
}

/* First connect of a TCP socket. 1: the kernel's call is the right one. */
static int connect_start(struct file *f, const struct sockaddr *sa, socklen_t len, bool by_message)
{
        const char *why = "nobody on the fabric has this address";
        int r;

        assert(f->kind == USOCK_TCP && shim_locked());
        if (!name_fits(f, sa, len)) {
                if (sa->sa_family == AF_INET6 && f->family == AF_INET6 &&
                    len >= sizeof(struct sockaddr_in6)) {
                        sock_decide(f, MODE_KERNEL, "an IPv6 address");
                        f->retry = true;
                }
                return 1;
        }
        r = usock_landlock_asked(port_of(sa));
        if (unlikely(r < 0))
                return r;
        if (unlikely(r > 0)) {
                sock_decide(
                        f, MODE_KERNEL,
                        "the program may have rules of Landlock's, which only the kernel knows");
                return 1;
        }
        bind_in_range(f);
        r = sock_engage(f);
        if (r < 0) {
                sock_decide(f, MODE_KERNEL, sock_refused(r));
                f->retry = true;
                return 1;
        }
        r = usock_fastopen_connect(f->us, by_message);
        if (r < 0)
                return r;
        r = usock_connect(f->us, sa, len, &why);
        if (r == 0 || r == -EINPROGRESS) {
                f->connecting = true;
                sock_decide(f, MODE_TCP, "the peer is on the fabric");
                return r;
        }
        if (r == -ENOENT && usock_is_iface_addr(sa, len)) /* the kernel has not this address */
                r = -ECONNREFUSED;
        if (r == -ECONNREFUSED ||
            (r == -EADDRNOTAVAIL &&
             usock_has_port(f->us))) { /* by an interface of unetd's, or not at all */
                f->why = why;
                log_decision(f);
                return r;
        }
        sock_decide(f, MODE_KERNEL, why);
        f->retry = true;
        return 1;
}

/* One that waits for what is sent first is connected to who asks for a connection, and is opened by
 * a message. */
static int connect_again(struct file *f, bool by_message)
{
        if (usock_fastopen_waits(f->us))
                return by_message ? 0 : -EISCONN;
        return connect_result(f, false);
}

static int connect_tcp(struct file *f, const struct sockaddr *sa, socklen_t len, bool nonblock,
                       bool by_message)
{
        int r;

        if (f->mode == MODE_LISTEN)
                return sa->sa_family == AF_UNSPEC ? sock_shutdown(f, SHUT_RDWR) : -EISCONN;
        if (f->mode == MODE_TCP && sa->sa_family == AF_UNSPEC)
                return disconnect_tcp(f);
        if (f->mode == MODE_NEW) {
                pthread_mutex_lock(&shim.lock);
                r = connect_start(f, sa, len, by_message);
                pthread_mutex_unlock(&shim.lock);
        } else {
                r = f->connecting ? connect_again(f, by_message)
                                  : usock_connect(f->us, sa, len, NULL);
                if (r == -EINPROGRESS) {
                        f->connecting = true;
                        file_say(f);
                } else if (r == -ENOENT) {
                        r = -EISCONN;
                }
        }
        if ((r == -EINPROGRESS || r == -EALREADY) && !nonblock)
                r = connect_wait(f);
        return r;
}

/* The kernel has no way to the peer: its socket is bound and no more. */
static int bind_towards(struct file *f, const struct sockaddr_storage *from, socklen_t len)
{
        int one = 1;

        if (f->bound)
                return 0;
        sys5(SYS_setsockopt, f->kfd, IPPROTO_IP, IP_FREEBIND, &one, sizeof one);
        return (int)sys3(SYS_bind, f->kfd, from, len);
}

/* Our address on an interface of unetd's, which the kernel has not: it is spoken to from itself. */
static bool is_own_address(const struct sockaddr *sa, socklen_t len, struct sockaddr_storage *from)
{
        const uint16_t any = 0;

        if (!usock_is_iface_addr(sa, len))
                return false;
        memcpy(from, sa, MIN(len, (socklen_t)sizeof *from));
        /* In both families. */
        memcpy((char *)from + offsetof(struct sockaddr_in, sin_port), &any, sizeof any);
        return true;
}

/* By an interface of unetd's, by the kernel, or, to a group for which that has no way, by an
 * interface all the same. */
static int connect_below(struct file *f, const struct sockaddr *sa, socklen_t len, bool *last,
                         const char **why)
{
        struct sockaddr_storage from;
        socklen_t from_len = sizeof from;
        int r = -ENETUNREACH;

        f->out = is_own_address(sa, len, &from);
        if (f->out)
                return bind_towards(f, &from, len);
        for (*last = false; r == -ENETUNREACH; *last = true) {
                f->out = usock_way_out(f->us, sa, len, *last, f->family, (struct sockaddr *)&from,
                                       &from_len, why);
                if (f->out)
                        return bind_towards(f, &from, from_len);
                if (*last)
                        return r;
                r = (int)sys3(SYS_connect, f->kfd, sa, len);
        }
        return r;
}

/* connect() to AF_UNSPEC, which the kernel's socket has done: one that was bound to a port
 * stays where it is; a port that the kernel has chosen is lost. What has come can be read all
 * the same. */
static bool disconnect_udp(struct file *f)
{
        struct sockaddr_storage ss;
        socklen_t len;

        if (f->mode != MODE_UDP || sock_kernel_name(f, &ss, &len) < 0)
                return false;
        f->out = false;
        f->bound = ((struct sockaddr_in *)&ss)->sin_port != 0;
        if (f->bound)
                usock_udp_disconnect(f->us, NULL);
        else
                usock_udp_unbind(f->us);
        return true;
}

/* 0: it can be sent to over the fabric, too. */
static int offer_udp(struct file *f, const char **why)
{
        struct sockaddr_storage ss;
        socklen_t len;
        const char *rule = sock_kernel_name(f, &ss, &len) < 0
                                   ? NULL
                                   : usock_rule_listens(USOCK_UDP, (void *)&ss, len);

        assert(f->us != NULL);
        if (!rule)
                return usock_udp_register(f->us);
        *why = rule;
        return -EACCES;
}

/* The kernel's socket is connected too: it chooses our address, and keeps strangers out. */
static int connect_udp(struct file *f, const struct sockaddr *sa, socklen_t len)
{
        const char *why = "nobody on the fabric has this address";
        bool was_bound = f->bound, last = false;
        int r;

        assert(f->kind == USOCK_UDP && shim_locked());
        r = connect_below(f, sa, len, &last, &why);
        if (r < 0) {
                f->why = why;
                log_decision(f);
                return r;
        }
        f->connected = sa->sa_family != AF_UNSPEC;
        if (sa->sa_family == AF_UNSPEC && disconnect_udp(f))
                return 0;
        f->bound = true;
        r = f->us && was_bound ? 0 : sock_engage(f);
        if (r < 0)
                why = sock_refused(r);
        if (r == 0 && last)
                usock_group_fallback(f->us);
        if (r == 0)
                r = usock_connect(f->us, sa, len, &why);
        if (r == -ENOENT &&
            usock_is_iface_addr(sa, len)) { /* Linux says so when something was sent */
                f->connected = f->out = false;
                return -ECONNREFUSED;
        }
        if (r == 0)
                why = "the peer is on the fabric";
        else if (was_bound && f->mode == MODE_UDP && usock_udp_hear(f->us, sa, len) == 0)
                r = 0;
        if (r == 0)
                r = offer_udp(f, &why);
        sock_decide(f, r == 0 ? MODE_UDP : MODE_KERNEL, why);
        return 0;
}

static int do_connect(struct file *f, const struct sockaddr *sa, socklen_t len)
{
        int r;

        if (f->kind == USOCK_TCP)
                return connect_tcp(f, sa, len, file_nonblock(f), false);
        if (!sock_may_be_ours(sa, len) && sa->sa_family != AF_UNSPEC && f->mode == MODE_NEW)
                return 1;
        pthread_mutex_lock(&shim.lock);
        r = connect_udp(f, sa, len);
        file_say(f);
        pthread_mutex_unlock(&shim.lock);
        return r;
}

/* The kernel's connect. When it fails at once, the next attempt may find somebody on the fabric. */
static int connect_kernel(int fd, const struct sockaddr *sa, socklen_t len)
{
        int r = REAL(connect)(fd, sa, len), err = errno;
        struct file *f =
                r < 0 && err != EINPROGRESS && err != EINTR ? file_enter(fd, MODE_KERNEL) : NULL;

        if (!f)
                return r;
        if (f->mode == MODE_KERNEL && f->kind == USOCK_TCP && f->retry && !f->shared)
                __atomic_store_n(&f->mode, MODE_NEW, __ATOMIC_RELEASE);
        file_leave(f);
        errno = err;
        return r;
}

int h_connect(int fd, const struct sockaddr *sa, socklen_t len)
{
        struct file *f;
        ssize_t r;

        cancellation_point();
        do {
                f = file_peek(fd) && len >= sizeof(sa_family_t) && sockaddr_readable(sa, len)
                            ? file_enter(fd, MODE_NEW)
                            : NULL;
                if (!f)
                        return REAL(connect)(fd, sa, len);
                r = do_connect(f, sa, len);
                if (r == 1)
                        spare_used(f);
                file_leave(f);
                if (r == 1)
                        return connect_kernel(fd, sa, len);
        } while (result_again(&r));
        return (int)r;
}
HOOK_ALSO(connect, __connect);

ssize_t connect_sent(struct file *f, ssize_t r)
{
        int made = usock_poll(f->us) & USOCK_POLL_MADE ? 0 : connect_wait(f);

        assert(f->us != NULL);
        return made < 0 ? made : MAX(r, 0);
}

int connect_to_send(int fd, const struct sockaddr *sa, socklen_t len, bool nonblock)
{
        struct file *f;
        ssize_t r;

        do {
                f = file_peek(fd) && len >= sizeof(sa_family_t) && sockaddr_readable(sa, len)
                            ? file_enter(fd, MODE_NEW)
                            : NULL;
                if (!f)
                        return 0;
                r = 0;
                if (f->kind == USOCK_TCP && (f->mode == MODE_NEW || f->mode == MODE_TCP) &&
                    sa->sa_family != AF_UNSPEC)
                        r = connect_tcp(f, sa, len, nonblock || file_nonblock(f), true);
                if (r == 1)
                        spare_used(f);
                file_leave(f);
        } while (result_again(&r));
        return r < 0 ? -1 : 0;
}
