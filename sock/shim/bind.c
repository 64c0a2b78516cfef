/*
 * bind(): the kernel's socket is bound, always; a UDP socket's decision is taken then.
 *
 * A TCP port that the kernel is to choose it chooses among the ports that stacks lease too, of
 * which it knows nothing. Where stacks share an interface a leased port is its lessee's
 * (unetd/bridge/gate_rules.h), so another is looked for.
 */
#include "sock/shim/decide.h"
#include "sock/shim/opts.h"
#include "sock/shim/shim.h"
#include "sock/shim/spare.h"
#include "sock/usock_ifaces.h"
#include "sock/usock_dgram.h"

#include <netinet/in.h>

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif
#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51 /* Linux 6.3 */
#endif

enum { TRIES = 64 }; /* that the kernel is asked for a port; of all, half may be leased */

/* An interface of unetd's has the address, so the kernel does not: it holds the port all the same
 * (ip(7), IP_FREEBIND). */
static ssize_t bind_foreign(const struct file *f, const struct sockaddr *sa, socklen_t len)
{
        int one = 1;

        if (!usock_is_iface_addr(sa, len))
                return -EADDRNOTAVAIL;
        sys5(SYS_setsockopt, f->kfd, IPPROTO_IP, IP_FREEBIND, &one, sizeof one);
        return sys3(SYS_bind, f->kfd, sa, len);
}

static ssize_t bind_at(const struct file *f, const struct sockaddr *sa, socklen_t len)
{
        ssize_t r = sys3(SYS_bind, f->kfd, sa, len);

        return unlikely(r == -EADDRNOTAVAIL) ? bind_foreign(f, sa, len) : r;
}

static int int_opt(const struct file *f, int level, int name)
{
        int v = 0;
        socklen_t len = sizeof v;

        sys5(SYS_getsockopt, f->kfd, level, name, &v, &len);
        return v;
}

/* The port is to be chosen, now, and by us. */
static bool is_ours_to_choose(const struct file *f, const struct sockaddr *sa, socklen_t len)
{
        socklen_t need =
                f->family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        uint16_t port;

        if (f->kind != USOCK_TCP || f->mode != MODE_NEW || f->bound || len < need ||
            !sockaddr_readable(sa, len))
                return false;
        /* In both families. */
        memcpy(&port, (const char *)sa + offsetof(struct sockaddr_in, sin_port), sizeof port);
        return port == 0 && usock_has_ifaces() &&
               !int_opt(f, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT) &&
               !opts_has(f, IPPROTO_IP, IP_LOCAL_PORT_RANGE);
}

/* The kernel knows the range, and our leased ports are outside of it. */
void bind_in_range(struct file *f)
{
        /* Of either family: all zero. */
        struct sockaddr_in6 any = {.sin6_family = (sa_family_t)f->family};
        socklen_t len = f->family == AF_INET ? sizeof(struct sockaddr_in) : sizeof any;

        if (likely(f->bound || !opts_has(f, IPPROTO_IP, IP_LOCAL_PORT_RANGE)))
                return;
        spare_used(f);
        if (int_opt(f, IPPROTO_IP, IP_LOCAL_PORT_RANGE) != 0)
                f->bound = sys3(SYS_bind, f->kfd, &any, len) == 0;
}

/* A port that nothing is bound to at this moment; 0: there is none. */
static uint16_t free_port(int family)
{
        /* Of either family: all zero. */
        struct sockaddr_in6 any = {.sin6_family = (sa_family_t)family};
        socklen_t len = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof any;
        int fd = (int)sys3(SYS_socket, family, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0)
                return 0;
        if (sys3(SYS_bind, fd, &any, len) < 0 || sys3(SYS_getsockname, fd, &any, &len) < 0)
                any.sin6_port = 0;
        sys1(SYS_close, fd);
        return any.sin6_port;
}

static ssize_t bind_unleased(const struct file *f, const struct sockaddr *sa, socklen_t len)
{
        struct sockaddr_in6 at;

        memcpy(&at, sa, MIN(len, (socklen_t)sizeof at));
        for (int i = 0; i < TRIES; i++) {
                uint16_t port = at.sin6_port = free_port(f->family);
                ssize_t r = port == 0 || usock_port_leased(be16_get((be16){port}))
                                    ? -EADDRINUSE
                                    : bind_at(f, (const struct sockaddr *)&at,
                                              MIN(len, (socklen_t)sizeof at));
                if (r != -EADDRINUSE)
                        return r;
        }
        return bind_at(f, sa, len);
}

static ssize_t bind_somewhere(const struct file *f, const struct sockaddr *sa, socklen_t len)
{
        ssize_t r = is_ours_to_choose(f, sa, len) ? bind_unleased(f, sa, len) : bind_at(f, sa, len);

        /* By processes that have just died, maybe: unetd has copies of what they listened with. */
        if (unlikely(r == -EADDRINUSE) && usock_port_settle(f->kind, sa, len))
                r = bind_at(f, sa, len);
        return r;
}

/* A connection has its address. As Linux, what is wrong with the one that is asked for comes
 * first: another socket finds out, with a port of its own. */
static ssize_t bind_refused(const struct file *f, const struct sockaddr *sa, socklen_t len)
{
        struct sockaddr_in6 at = {0};
        ssize_t r;
        int fd;

        len = MIN(len, (socklen_t)sizeof at);
        if (!user_copy(&at, sa, len))
                return -EFAULT;
        at.sin6_port = 0;
        fd = (int)sys3(SYS_socket, f->family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return -EINVAL;
        r = sys3(SYS_bind, fd, &at, len);
        sys1(SYS_close, fd);
        return r < 0 && !usock_is_iface_addr((const struct sockaddr *)&at, len) ? r : -EINVAL;
}

static void now_bound(struct file *f)
{
        pthread_mutex_lock(&shim.lock);
        if (f->kind == USOCK_UDP && (f->mode == MODE_NEW || (f->mode == MODE_UDP && !f->bound)))
                udp_engage(f);
        f->bound = true;
        file_say(f);
        pthread_mutex_unlock(&shim.lock);
}

/* A library behind us may have somebody bind who may (authbind(1)). */
static int bind_refused_port(int fd, const struct sockaddr *sa, socklen_t len)
{
        int r = REAL(bind)(fd, sa, len), saved = errno;
        struct file *f = r == 0 ? file_enter(fd, MODE_NEW) : NULL;

        if (f) {
                now_bound(f);
                file_leave(f);
        }
        errno = saved;
        return r;
}

int h_bind(int fd, const struct sockaddr *sa, socklen_t len)
{
        struct file *f = file_enter(fd, MODE_NEW);
        ssize_t r;

        if (!f)
                return REAL(bind)(fd, sa, len);
        spare_used(f);
        if (f->placeholder || f->mode == MODE_TCP)
                r = bind_refused(f, sa, len);
        else
                r = bind_somewhere(f, sa, len);
        if (r == 0)
                now_bound(f);
        file_leave(f);
        if (unlikely(r == -EACCES))
                return bind_refused_port(fd, sa, len);
        result_again(&r);
        return (int)r;
}
