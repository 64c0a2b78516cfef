/*
 * From socket() to shutdown(). The kernel's socket gets every call that makes its state what the program believes
 * (bind, listen, options); ours joins when the decision is taken: at listen, at connect, at the bind or the first
 * datagram of a UDP socket. When the fabric has nobody at the address the kernel's socket goes on alone.
 */
#include "sock/shim/shim.h"

#include <netinet/in.h>
#include <sys/ioctl.h>

static bool sockaddr_any(const struct sockaddr_storage *ss)
{
        const struct sockaddr_in6 *in6 = (const void *)ss;

        if (ss->ss_family == AF_INET)
                return ((const struct sockaddr_in *)ss)->sin_addr.s_addr == 0;
        return ss->ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr);
}

bool sockaddr_v4(const struct sockaddr *sa, socklen_t len)
{
        struct sockaddr_in6 in6;

        if (len >= sizeof(struct sockaddr_in) && sa->sa_family == AF_INET)
                return true;
        if (len < sizeof(in6) || sa->sa_family != AF_INET6)
                return false;
        memcpy(&in6, sa, sizeof(in6));
        return IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr);
}

static int kernel_name(const struct file *f, struct sockaddr_storage *ss, socklen_t *len)
{
        *len = sizeof(*ss);
        return (int)sys3(SYS_getsockname, f->kfd, ss, len);
}

static bool kernel_v6only(const struct file *f)
{
        int on = 0;
        socklen_t len = sizeof(on);

        if (f->family != AF_INET6)
                return false;
        sys5(SYS_getsockopt, f->kfd, IPPROTO_IPV6, IPV6_V6ONLY, &on, &len);
        return on;
}

/* Does this local address speak IPv4? Both wildcards do, unless IPV6_V6ONLY forbids it. */
static const char *not_v4(const struct file *f, const struct sockaddr_storage *ss, socklen_t len)
{
        if (sockaddr_v4((const void *)ss, len))
                return NULL;
        if (!sockaddr_any(ss))
                return "an IPv6 address";
        return kernel_v6only(f) ? "IPv6 only" : NULL;
}

/* ---- decisions ---- */

void sock_decide(struct file *f, enum file_mode mode, const char *why)
{
        struct usock *gone = NULL;

        f->why = why;
        if (mode <= MODE_NEW && f->us && __libc_single_threaded) {
                gone = f->us;           /* a threaded program's last reference ends it */
                f->nonblock = usock_nonblock(gone);
                f->us = NULL;
        }
        atomic_signal_fence(memory_order_seq_cst);
        __atomic_store_n(&f->mode, (uint8_t)mode, __ATOMIC_RELEASE);
        if (f->items)
                epoll_file_moved(f);
        if (gone)
                usock_close(gone);
        log_decision(f);
}

int sock_engage(struct file *f)
{
        struct sockaddr_storage ss;
        socklen_t len;
        int r;

        if (!f->us) {
                r = usock_open(f->kind, f->family, f->kfd, &f->us);
                if (r < 0) {
                        f->us = NULL;
                        return r;
                }
                usock_set_nonblock(f->us, f->nonblock);
                opts_replay(f);
                async_engage(f);
        }
        if (!f->bound || kernel_name(f, &ss, &len) < 0)
                return 0;
        return usock_bind(f->us, (void *)&ss, len);
}

/* Why our side did not come about. */
static const char *refused(int err)
{
        switch (err) {
        case -EADDRINUSE:
                return "the port is taken on the fabric";
        case -ENOENT:
        case -ECONNREFUSED:
        case -ETIMEDOUT:
                return "no unetd";
        case -ENOSPC:
        case -ENOBUFS:
        case -ENOMEM:
        case -EMFILE:
        case -ENFILE:
                return "a limit of the stack or of unetd";
        case -EOVERFLOW:
                return "too little address space is allowed (RLIMIT_AS)";
        default:
                return strerrordesc_np(-err);
        }
}

void udp_engage(struct file *f)
{
        struct sockaddr_storage ss;
        socklen_t len;
        const char *why;
        int r;

        if (kernel_name(f, &ss, &len) < 0)
                return;
        why = not_v4(f, &ss, len);
        if (why) {
                sock_decide(f, MODE_KERNEL, why);
                return;
        }
        f->bound = true;
        r = sock_engage(f);
        if (r == 0)
                r = usock_udp_register(f->us);
        sock_decide(f, r == 0 ? MODE_UDP : MODE_KERNEL, r == 0 ? "bound, on the fabric too" : refused(r));
}

/* Datagrams to groups and to everybody are the kernel's, unless unetd has an interface. */
static bool may_be_ours(const struct sockaddr *sa, socklen_t len)
{
        uint32_t host;

        if (!sockaddr_v4(sa, len))
                return false;
        memcpy(&host, sa->sa_family == AF_INET ? (const char *)sa + 4 : (const char *)sa + 8 + 12, 4);
        host = be32_get((be32){host});
        return host < 0xe0000000u || usock_has_ifaces();
}

void udp_first_datagram(struct file *f, const struct sockaddr *sa, socklen_t len)
{
        struct sockaddr_storage any = {.ss_family = f->family};
        socklen_t any_len = f->family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

        if (f->kind != USOCK_UDP || !sa || !may_be_ours(sa, len))
                return;
        pthread_mutex_lock(&shim.lock);
        if (f->mode == MODE_NEW && !f->bound)
                sys3(SYS_bind, f->kfd, &any, any_len);
        if (f->mode == MODE_NEW)
                udp_engage(f);
        pthread_mutex_unlock(&shim.lock);
}

void tcp_kernel_connects(struct file *f)
{
        pthread_mutex_lock(&shim.lock);
        if (f->kind == USOCK_TCP && f->mode == MODE_NEW)
                sock_decide(f, MODE_KERNEL, "connected by sending");
        pthread_mutex_unlock(&shim.lock);
}

/* ---- socket, listen ---- */

int h_socket(int domain, int type, int protocol)
{
        int base = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
        int fd;
        struct file *f;

        if (unlikely(atomic_load_explicit(&shim.adopt, memory_order_relaxed)) && !usock_tls.inside)
                shim_adopt_all();
        fd = fd_returned(REAL(socket)(domain, type, protocol));
        if (fd < 0 || usock_tls.inside || (domain != AF_INET && domain != AF_INET6))
                return fd;
        if (!(base == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP)) &&
            !(base == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP)))
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
        }
        usock_leave();
        return fd;
}

static const char *start_listening(struct file *f, int backlog)
{
        struct sockaddr_storage ss;
        socklen_t len;
        const char *why;
        int r;

        if (kernel_name(f, &ss, &len) < 0)
                return "no local name";
        why = not_v4(f, &ss, len);
        if (why)
                return why;
        f->bound = true;                /* listen() binds what was not */
        r = sock_engage(f);
        if (r == 0)
                r = usock_listen(f->us, backlog);
        if (r < 0)
                return refused(r);
        /* The kernel's side is asked beside ours, and so must never block. */
        sys3(SYS_fcntl, f->kfd, F_SETFL, sys2(SYS_fcntl, f->kfd, F_GETFL) | O_NONBLOCK);
        return NULL;
}

int h_listen(int fd, int backlog)
{
        struct file *f = file_enter(fd, MODE_NEW);
        const char *why;
        ssize_t r;

        if (!f)
                return REAL(listen)(fd, backlog);
        r = f->mode == MODE_TCP ? -EINVAL : sys2(SYS_listen, f->kfd, backlog);
        pthread_mutex_lock(&shim.lock);
        if (r == 0 && f->mode == MODE_LISTEN) {
                usock_listen(f->us, backlog);
        } else if (r == 0 && f->mode == MODE_NEW) {
                why = start_listening(f, backlog);
                sock_decide(f, why ? MODE_KERNEL : MODE_LISTEN, why ? why : "listening on both sides");
        }
        pthread_mutex_unlock(&shim.lock);
        file_leave(f);
        result_again(&r);
        return (int)r;
}

/* ---- accept ---- */

static int placeholder_number(int flags)
{
        int base = atomic_load_explicit((_Atomic int *)&shim.placeholder, memory_order_acquire);

        if (base < 0) {
                pthread_mutex_lock(&shim.lock);
                if (shim.placeholder < 0)
                        shim.placeholder = shim_high_fd((int)sys3(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
                base = shim.placeholder;
                pthread_mutex_unlock(&shim.lock);
        }
        return (int)sys3(SYS_fcntl, base, flags & SOCK_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
}

/* A name goes to the program, as much of it as there is room for: how long it is, it is told in any case. */
static int give_name(const struct sockaddr_storage *name, socklen_t n, struct sockaddr *sa, socklen_t *len)
{
        if (!user_read(len))
                return -EFAULT;
        if ((int)*len < 0)
                return -EINVAL;
        return user_copy(sa, name, MIN(*len, n)) && user_put32(len, n) ? 0 : -EFAULT;
}

static int give_local_name(struct usock *s, struct sockaddr *sa, socklen_t *len)
{
        struct sockaddr_storage name;
        socklen_t n = sizeof name;
        int r = usock_getsockname(s, (void *)&name, &n);

        return r < 0 ? r : give_name(&name, n, sa, len);
}

static int give_peer_name(struct usock *s, struct sockaddr *sa, socklen_t *len)
{
        struct sockaddr_storage name;
        socklen_t n = sizeof name;
        int r = usock_getpeername(s, (void *)&name, &n);

        return r < 0 ? r : give_name(&name, n, sa, len);
}

/* A connection of ours gets a number and a file. */
static int accepted(const struct file *l, struct usock *s, int flags)
{
        int fd = placeholder_number(flags);
        struct file *f;

        if (fd < 0) {
                usock_close(s);
                return fd;
        }
        f = file_new(fd, MODE_KERNEL);
        if (!f) {
                usock_close(s);
                sys1(SYS_close, fd);
                return -ENFILE;
        }
        f->kind = USOCK_TCP;
        f->family = l->family;
        usock_set_nonblock(s, flags & SOCK_NONBLOCK);
        f->placeholder = true;
        f->bound = true;
        f->rcvtimeo = l->rcvtimeo;
        f->sndtimeo = l->sndtimeo;
        f->linger_s = l->linger_s;
        f->us = s;
        f->why = "came over the fabric";
        __atomic_store_n(&f->mode, MODE_TCP, __ATOMIC_RELEASE);
        log_decision(f);
        return fd;
}

static int accept_kernel(const struct file *l, struct sockaddr *sa, socklen_t *len, int flags)
{
        int fd = (int)sys4(SYS_accept4, l->kfd, sa, len, flags);
        struct file *f;

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

/* Either side; the kernel is not kept waiting for long when ours is busy. */
static int accept_once(struct file *l, struct sockaddr *sa, socklen_t *len, int flags)
{
        struct usock *s;
        int fd;

        if (kernel_turn(&l->pace)) {
                fd = accept_kernel(l, sa, len, flags);
                if (fd != -EAGAIN)
                        return fd;
        }
        fd = usock_accept(l->us, &s);
        if (fd == 0 && sa && give_peer_name(s, sa, len) == -EFAULT) {
                usock_close(s);         /* as Linux: it is gone */
                return -EFAULT;
        }
        if (fd == 0)
                return accepted(l, s, flags);
        if (fd != -EAGAIN)
                return fd;
        return accept_kernel(l, sa, len, flags);
}

static ssize_t do_accept(struct file *l, struct sockaddr *sa, socklen_t *len, int flags)
{
        struct until u = until_timeo(l->rcvtimeo);
        int r;

        if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC))
                return -EINVAL;
        for (;;) {
                r = accept_once(l, sa, len, flags);
                if (r != -EAGAIN || file_nonblock(l))
                        return r;
                r = file_wait(l, POLLIN, &u);
                if (r < 0)
                        return r;
        }
}

int h_accept4(int fd, struct sockaddr *sa, socklen_t *len, int flags)
{
        struct file *l;
        ssize_t r;

        do {
                l = file_enter(fd, MODE_TCP);
                if (!l)
                        return fd_returned(REAL(accept4)(fd, sa, len, flags));
                if (l->mode == MODE_LISTEN)
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

static int do_shutdown(struct file *f, int how)
{
        int r;

        if (f->mode == MODE_TCP)
                return usock_shutdown(f->us, how);
        r = (int)sys2(SYS_shutdown, f->kfd, how);
        pthread_mutex_lock(&shim.lock);
        if (f->mode == MODE_LISTEN && how != SHUT_WR) {         /* as Linux: the listener is no more */
                usock_shutdown(f->us, how);
                sock_decide(f, MODE_KERNEL, "shut down");
        }
        pthread_mutex_unlock(&shim.lock);
        if (f->mode == MODE_UDP)
                usock_shutdown(f->us, how);
        return r;
}

int h_shutdown(int fd, int how)
{
        struct file *f = file_enter(fd, MODE_TCP);
        ssize_t r;

        if (!f)
                return REAL(shutdown)(fd, how);
        r = do_shutdown(f, how);
        file_leave(f);
        result_again(&r);
        return (int)r;
}

int h_sockatmark(int fd)
{
        int at = 0;

        return h_ioctl(fd, SIOCATMARK, &at) < 0 ? -1 : at;
}

/* ---- connect ---- */

/* The socket is what it was before; where it was bound the kernel knows. */
static void connect_failed(struct file *f)
{
        static const ip_addr any;

        pthread_mutex_lock(&shim.lock);
        usock_connect_undo(f->us, f->bound ? &any : NULL);
        sock_decide(f, MODE_NEW, "an attempt to connect failed");
        pthread_mutex_unlock(&shim.lock);
}

/* The end of a handshake, reported once, as the kernel does: 0, or why it failed. */
static int connect_result(struct file *f)
{
        int err = 0;
        socklen_t len = sizeof(err);

        usock_progress();
        if (!(usock_poll(f->us) & (USOCK_POLL_MADE | POLLERR | POLLHUP)))
                return -EALREADY;
        f->connecting = false;
        usock_getsockopt(f->us, SOL_SOCKET, SO_ERROR, &err, &len);
        if (!usock_connect_failed(f->us))
                return -err;
        connect_failed(f);
        return err != 0 ? -err : -ECONNABORTED;
}

static int connect_wait(struct file *f)
{
        struct until u = until_timeo(f->sndtimeo);
        int r = -EALREADY;

        while (r == -EALREADY) {
                r = file_wait(f, USOCK_POLL_MADE, &u);
                if (r == -EAGAIN)
                        return -EINPROGRESS;
                if (r < 0)
                        return r;
                r = connect_result(f);
        }
        return r;
}

/* connect() to AF_UNSPEC: the socket is as new, and keeps what it was bound to. An accepted one was bound to nothing. */
static int disconnect_tcp(struct file *f)
{
        static const ip_addr any;
        int r = file_materialise(f);

        if (r < 0)
                return r;
        pthread_mutex_lock(&shim.lock);
        f->connecting = false;
        usock_disconnect(f->us, f->bound ? &any : NULL);
        sock_decide(f, MODE_NEW, "disconnected");
        pthread_mutex_unlock(&shim.lock);
        return 0;
}

/* Names that the kernel refuses on this socket: what it says of them is said by it. */
static bool name_fits(const struct file *f, const struct sockaddr *sa, socklen_t len)
{
        return sockaddr_v4(sa, len) && sa->sa_family == f->family && !kernel_v6only(f);
}

/* First connect of a TCP socket. 1: the kernel's call is the right one. */
static int connect_start(struct file *f, const struct sockaddr *sa, socklen_t len)
{
        const char *why = "nobody on the fabric has this address";
        int r;

        if (!name_fits(f, sa, len)) {
                if (sa->sa_family == AF_INET6 && f->family == AF_INET6 && len >= sizeof(struct sockaddr_in6)) {
                        sock_decide(f, MODE_KERNEL, "an IPv6 address");
                        f->retry = true;
                }
                return 1;
        }
        bind_in_range(f);
        r = sock_engage(f);
        if (r == 0)
                r = usock_connect(f->us, sa, len, &why);
        else
                why = refused(r);
        if (r == 0 || r == -EINPROGRESS) {
                f->connecting = true;
                sock_decide(f, MODE_TCP, "the peer is on the fabric");
                return -EINPROGRESS;
        }
        if (r == -EADDRNOTAVAIL && usock_has_port(f->us)) {     /* over an interface of unetd's, or not at all */
                f->why = why;
                log_decision(f);
                return r;
        }
        sock_decide(f, MODE_KERNEL, why);
        f->retry = true;
        return 1;
}

static int connect_tcp(struct file *f, const struct sockaddr *sa, socklen_t len)
{
        int r;

        if (f->mode == MODE_LISTEN)
                return sa->sa_family == AF_UNSPEC ? do_shutdown(f, SHUT_RDWR) : -EISCONN;
        if (f->mode == MODE_TCP && sa->sa_family == AF_UNSPEC)
                return disconnect_tcp(f);
        if (f->mode == MODE_NEW) {
                pthread_mutex_lock(&shim.lock);
                r = connect_start(f, sa, len);
                pthread_mutex_unlock(&shim.lock);
        } else {
                r = f->connecting ? connect_result(f) : usock_connect(f->us, sa, len, NULL);
                if (r == -EINPROGRESS)
                        f->connecting = true;
                else if (r == -ENOENT)
                        r = -EISCONN;
        }
        if ((r == -EINPROGRESS || r == -EALREADY) && !file_nonblock(f))
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

/* By an interface of unetd's, by the kernel, or, to a group for which that has no way, by an interface all the same. */
static int connect_below(struct file *f, const struct sockaddr *sa, socklen_t len, bool *last, const char **why)
{
        struct sockaddr_storage from;
        socklen_t from_len = sizeof from;
        int r = -ENETUNREACH;

        for (*last = false; r == -ENETUNREACH; *last = true) {
                f->out = usock_way_out(f->us, sa, len, *last, f->family, (struct sockaddr *)&from, &from_len, why);
                if (f->out)
                        return bind_towards(f, &from, from_len);
                if (*last)
                        return r;
                r = (int)sys3(SYS_connect, f->kfd, sa, len);
        }
        return r;
}

/* connect() to AF_UNSPEC, which the kernel's socket has done: one that was bound to a port stays where it is.
 * False: it had its port of the first connect, and has lost it. */
static bool disconnect_udp(struct file *f)
{
        struct sockaddr_storage ss;
        socklen_t len;

        if (f->mode != MODE_UDP || kernel_name(f, &ss, &len) < 0)
                return false;
        if (((struct sockaddr_in *)&ss)->sin_port == 0)
                return false;
        usock_udp_disconnect(f->us, NULL);
        f->out = false;
        return true;
}

/* The kernel's socket is connected too: it chooses our address, and keeps strangers out. */
static int connect_udp(struct file *f, const struct sockaddr *sa, socklen_t len)
{
        const char *why = "nobody on the fabric has this address";
        bool was_bound = f->bound, last;
        int r;

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
                why = refused(r);
        if (r == 0 && last)
                usock_group_fallback(f->us);
        if (r == 0)
                r = usock_connect(f->us, sa, len, &why);
        if (r == 0)
                why = "the peer is on the fabric";
        else if (was_bound && f->mode == MODE_UDP && usock_udp_hear(f->us, sa, len) == 0)
                r = 0;
        if (r == 0)
                r = usock_udp_register(f->us);
        sock_decide(f, r == 0 ? MODE_UDP : MODE_KERNEL, why);
        return 0;
}

static int do_connect(struct file *f, const struct sockaddr *sa, socklen_t len)
{
        int r;

        if (f->kind == USOCK_TCP)
                return connect_tcp(f, sa, len);
        if (!may_be_ours(sa, len) && sa->sa_family != AF_UNSPEC && f->mode == MODE_NEW)
                return 1;
        pthread_mutex_lock(&shim.lock);
        r = connect_udp(f, sa, len);
        pthread_mutex_unlock(&shim.lock);
        return r;
}

/* The kernel's connect. When it fails at once, the next attempt may find somebody on the fabric. */
static int connect_kernel(int fd, const struct sockaddr *sa, socklen_t len)
{
        int r = REAL(connect)(fd, sa, len), err = errno;
        struct file *f = r < 0 && err != EINPROGRESS && err != EINTR ? file_enter(fd, MODE_KERNEL) : NULL;

        if (!f)
                return r;
        if (f->mode == MODE_KERNEL && f->kind == USOCK_TCP && f->retry)
                __atomic_store_n(&f->mode, MODE_NEW, __ATOMIC_RELEASE);
        file_leave(f);
        errno = err;
        return r;
}

int h_connect(int fd, const struct sockaddr *sa, socklen_t len)
{
        struct file *f;
        ssize_t r;

        do {
                f = len >= sizeof(sa_family_t) && sockaddr_readable(sa, len) ? file_enter(fd, MODE_NEW) : NULL;
                if (!f)
                        return REAL(connect)(fd, sa, len);
                r = do_connect(f, sa, len);
                file_leave(f);
                if (r == 1)
                        return connect_kernel(fd, sa, len);
        } while (result_again(&r));
        return (int)r;
}

int h___connect(int fd, const struct sockaddr *sa, socklen_t len)
{
        return h_connect(fd, sa, len);
}

/* ---- names ---- */

int h_getsockname(int fd, struct sockaddr *sa, socklen_t *len)
{
        struct file *f = file_enter(fd, MODE_TCP);
        ssize_t r;

        if (!f)
                return REAL(getsockname)(fd, sa, len);
        if (f->mode == MODE_TCP || f->out)
                r = give_local_name(f->us, sa, len);
        else
                r = sys3(SYS_getsockname, f->kfd, sa, len);
        file_leave(f);
        result_again(&r);
        return (int)r;
}

int h_getpeername(int fd, struct sockaddr *sa, socklen_t *len)
{
        struct file *f = file_enter(fd, MODE_TCP);
        ssize_t r;

        if (!f)
                return REAL(getpeername)(fd, sa, len);
        if (f->mode == MODE_TCP || f->out)
                r = give_peer_name(f->us, sa, len);
        else
                r = sys3(SYS_getpeername, f->kfd, sa, len);
        file_leave(f);
        result_again(&r);
        return (int)r;
}
