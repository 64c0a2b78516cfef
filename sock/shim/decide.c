/*
 * Which sides a socket has. The kernel's socket gets every call that makes its state what the
 * program believes (bind, listen, options). Ours joins when the decision is taken: at listen, at
 * connect, at the bind or the first datagram of a UDP socket. When the fabric has nobody at the
 * address the kernel's socket goes on alone.
 */
#include "sock/shim/aio.h"
#include "sock/shim/decide.h"
#include "sock/shim/epoll.h"
#include "sock/shim/handle.h"
#include "sock/shim/netns.h"
#include "sock/shim/opts.h"
#include "sock/shim/process.h"
#include "sock/shim/shim.h"
#include "sock/shim/signals.h"
#include "sock/shim/spare.h"
#include "sock/usock_connect.h"
#include "sock/usock_dgram.h"

#include <netinet/in.h>

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

int sock_kernel_name(const struct file *f, struct sockaddr_storage *ss, socklen_t *len)
{
        *len = sizeof(*ss);
        return (int)sys3(SYS_getsockname, f->kfd, ss, len);
}

bool sock_v6only(const struct file *f)
{
        int on = 0;
        socklen_t len = sizeof(on);

        if (f->family != AF_INET6)
                return false;
        sys5(SYS_getsockopt, f->kfd, IPPROTO_IPV6, IPV6_V6ONLY, &on, &len);
        return on;
}

const char *sock_not_v4(const struct file *f, const struct sockaddr_storage *ss, socklen_t len)
{
        if (sockaddr_v4((const void *)ss, len))
                return NULL;
        if (!sockaddr_any(ss))
                return "an IPv6 address";
        return sock_v6only(f) ? "IPv6 only" : NULL;
}

void sock_decide(struct file *f, enum file_mode mode, const char *why)
{
        struct usock *gone = NULL;

        assert(usock_tls.inside && shim_locked());
        assert(f->mode != MODE_EPOLL && mode != MODE_EPOLL);
        assert(f->us != NULL || mode <= MODE_NEW);
        assert(mode <= MODE_UDP);
        f->why = why;
        if (mode != MODE_NEW && mode != MODE_TCP)
                spare_used(f);
        if (mode <= MODE_NEW && f->us && __libc_single_threaded && !f->shared) {
                gone = f->us; /* a threaded program's last reference ends it */
                f->nonblock = usock_nonblock(gone);
                f->us = NULL;
        }
        atomic_signal_fence(memory_order_seq_cst);
        __atomic_store_n(&f->mode, (uint8_t)mode, __ATOMIC_RELEASE);
        if (f->items)
                epoll_file_moved(f);
        if (gone)
                usock_close(gone);
        else if (mode == MODE_KERNEL && f->us)
                usock_withdraw(f->us);
        file_say(f);
        log_decision(f);
}

int sock_engage(struct file *f)
{
        struct sockaddr_storage ss;
        socklen_t len;
        int r;

        assert(usock_tls.inside && shim_locked());
        if (!f->us) {
                if (netns_is_elsewhere(f->kfd))
                        return -EXDEV;
                if (handle_has_second_libc())
                        return -ELIBACC;
                if (aio_is_used())
                        return -ELIBSCN;
                r = usock_open(f->kind, f->family, f->kfd, &f->us);
                if (r < 0) {
                        f->us = NULL;
                        return r;
                }
                usock_set_nonblock(f->us, f->nonblock);
                opts_replay(f);
                async_engage(f);
        }
        if (!f->bound || sock_kernel_name(f, &ss, &len) < 0)
                return 0;
        return usock_bind(f->us, (void *)&ss, len);
}

const char *sock_refused(int err)
{
        switch (err) {
        case -EADDRINUSE:
                return "the port is taken on the fabric";
        case -ENOENT:
        case -ECONNREFUSED:
                return "no unetd";
        case -EXDEV:
                return "it was made in another network namespace";
        case -ELIBACC:
                return "a second libc was loaded (dlmopen), whose calls are not seen";
        case -ELIBSCN:
                return "the program uses POSIX AIO, whose calls are not seen";
        case -ETIMEDOUT:
                return "unetd, or its keeper, does not answer: it is stopped, or the machine very "
                       "busy";
        case -EDQUOT:
                return "a limit of its user's ([limits] in unet.conf(5))";
        case -ENOSPC:
        case -ENOBUFS:
        case -ENOMEM:
        case -EMFILE:
        case -ENFILE:
                return "a limit of the stack or of unetd";
        case -EOVERFLOW:
                return "too little address space or too few descriptors are allowed (RLIMIT_AS, "
                       "RLIMIT_NOFILE)";
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

        assert(f->kind == USOCK_UDP && shim_locked());
        if (sock_kernel_name(f, &ss, &len) < 0)
                return;
        why = sock_not_v4(f, &ss, len);
        if (!why)
                why = usock_rule_listens(f->kind, (void *)&ss, len);
        if (why) {
                sock_decide(f, MODE_KERNEL, why);
                return;
        }
        f->bound = true;
        r = sock_engage(f);
        if (r == 0)
                r = usock_udp_register(f->us);
        sock_decide(f, r == 0 ? MODE_UDP : MODE_KERNEL,
                    r == 0 ? "bound, on the fabric too" : sock_refused(r));
}

bool sock_may_be_ours(const struct sockaddr *sa, socklen_t len)
{
        uint32_t host;

        if (!sockaddr_v4(sa, len))
                return false;
        memcpy(&host, sa->sa_family == AF_INET ? (const char *)sa + 4 : (const char *)sa + 8 + 12,
               4);
        host = be32_get((be32){host});
        return host < 0xe0000000u || usock_has_ifaces();
}

void udp_first_datagram(struct file *f, const struct sockaddr *sa, socklen_t len)
{
        struct sockaddr_storage any;
        socklen_t any_len;

        if (f->kind != USOCK_UDP || !sa || (f->mode == MODE_NEW && !sock_may_be_ours(sa, len)))
                return;
        pthread_mutex_lock(&shim.lock);
        if (f->mode >= MODE_NEW && !f->bound && sock_kernel_name(f, &any, &any_len) == 0)
                /* The port is 0, but an address may be left of an earlier name. */
                sys3(SYS_bind, f->kfd, &any, any_len);
        if (f->mode == MODE_NEW || !f->bound)
                udp_engage(f);
        pthread_mutex_unlock(&shim.lock);
}

void udp_await_locked(struct file *f)
{
        int r;

        assert(shim_locked());
        if (f->mode != MODE_NEW || f->kind != USOCK_UDP)
                return;
        r = sock_engage(f);
        sock_decide(f, r == 0 ? MODE_UDP : MODE_KERNEL,
                    r == 0 ? "somebody waits for what may come" : sock_refused(r));
}

/* Nobody else can do anything with a socket that one thread has alone. */
bool udp_await(int fd)
{
        struct file *f = file_enter(fd, MODE_NEW);
        bool ours;

        if (!f)
                return false;
        if (f->shared || !__libc_single_threaded) {
                pthread_mutex_lock(&shim.lock);
                udp_await_locked(f);
                pthread_mutex_unlock(&shim.lock);
        }
        ours = f->mode >= MODE_TCP;
        file_leave(f);
        return ours;
}

void tcp_kernel_connects(struct file *f)
{
        pthread_mutex_lock(&shim.lock);
        if (f->kind == USOCK_TCP && f->mode == MODE_NEW)
                sock_decide(f, MODE_KERNEL, "connected by sending");
        pthread_mutex_unlock(&shim.lock);
}
