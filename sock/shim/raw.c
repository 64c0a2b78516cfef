/*
 * syscall(): programs and language runtimes that make their calls by number get the same sockets.
 * Numbers of calls that we do not hook, and calls on descriptors that are not ours, go straight on.
 */
#include "sock/shim/netns.h"
#include "sock/shim/privilege.h"
#include "sock/shim/process.h"
#include "sock/shim/select.h"
#include "sock/shim/shim.h"

#include <linux/sched.h>

typedef long word;

struct raw {
        long nr;
        word a[6];
};

static bool concerns_us(int fd)
{
        return file_peek(fd) != NULL;
}

/* Calls whose first argument is the descriptor. */
static bool one_descriptor(const struct raw *c, long *r)
{
        const word *a = c->a;
        int fd = (int)a[0];

        if (!concerns_us(fd))
                return false;
        switch (c->nr) {
        case SYS_read:
                *r = h_read(fd, (void *)a[1], (size_t)a[2]);
                return true;
        case SYS_write:
                *r = h_write(fd, (const void *)a[1], (size_t)a[2]);
                return true;
        case SYS_readv:
                *r = h_readv(fd, (const struct iovec *)a[1], (int)a[2]);
                return true;
        case SYS_writev:
                *r = h_writev(fd, (const struct iovec *)a[1], (int)a[2]);
                return true;
        case SYS_preadv2: /* a[4] is the upper half of a[3] where words are short */
                *r = h_preadv2(fd, (const struct iovec *)a[1], (int)a[2], a[3], (int)a[5]);
                return true;
        case SYS_pwritev2:
                *r = h_pwritev2(fd, (const struct iovec *)a[1], (int)a[2], a[3], (int)a[5]);
                return true;
        case SYS_recvfrom:
                *r = h_recvfrom(fd, (void *)a[1], (size_t)a[2], (int)a[3], (struct sockaddr *)a[4],
                                (socklen_t *)a[5]);
                return true;
        case SYS_sendto:
                *r = h_sendto(fd, (const void *)a[1], (size_t)a[2], (int)a[3],
                              (const struct sockaddr *)a[4], (socklen_t)a[5]);
                return true;
        case SYS_recvmsg:
                *r = h_recvmsg(fd, (struct msghdr *)a[1], (int)a[2]);
                return true;
        case SYS_sendmsg:
                *r = h_sendmsg(fd, (const struct msghdr *)a[1], (int)a[2]);
                return true;
        case SYS_recvmmsg:
                *r = h_recvmmsg(fd, (struct mmsghdr *)a[1], (unsigned)a[2], (int)a[3],
                                (struct timespec *)a[4]);
                return true;
        case SYS_sendmmsg:
                *r = h_sendmmsg(fd, (struct mmsghdr *)a[1], (unsigned)a[2], (int)a[3]);
                return true;
        case SYS_sendfile:
                *r = h_sendfile(fd, (int)a[1], (off_t *)a[2], (size_t)a[3]);
                return true;
        default:
                return false;
        }
}

static bool socket_call(const struct raw *c, long *r)
{
        const word *a = c->a;
        int fd = (int)a[0];

        if (c->nr == SYS_socket) {
                *r = h_socket(fd, (int)a[1], (int)a[2]);
                return true;
        }
        if (c->nr == SYS_splice && (concerns_us(fd) || concerns_us((int)a[2]))) {
                *r = h_splice(fd, (off64_t *)a[1], (int)a[2], (off64_t *)a[3], (size_t)a[4],
                              (unsigned)a[5]);
                return true;
        }
        if (!concerns_us(fd))
                return false;
        switch (c->nr) {
        case SYS_bind:
                *r = h_bind(fd, (const struct sockaddr *)a[1], (socklen_t)a[2]);
                return true;
        case SYS_listen:
                *r = h_listen(fd, (int)a[1]);
                return true;
        case SYS_accept:
                *r = h_accept4(fd, (struct sockaddr *)a[1], (socklen_t *)a[2], 0);
                return true;
        case SYS_accept4:
                *r = h_accept4(fd, (struct sockaddr *)a[1], (socklen_t *)a[2], (int)a[3]);
                return true;
        case SYS_connect:
                *r = h_connect(fd, (const struct sockaddr *)a[1], (socklen_t)a[2]);
                return true;
        case SYS_shutdown:
                *r = h_shutdown(fd, (int)a[1]);
                return true;
        case SYS_getsockname:
                *r = h_getsockname(fd, (struct sockaddr *)a[1], (socklen_t *)a[2]);
                return true;
        case SYS_getpeername:
                *r = h_getpeername(fd, (struct sockaddr *)a[1], (socklen_t *)a[2]);
                return true;
        case SYS_getsockopt:
                *r = h_getsockopt(fd, (int)a[1], (int)a[2], (void *)a[3], (socklen_t *)a[4]);
                return true;
        case SYS_setsockopt:
                *r = h_setsockopt(fd, (int)a[1], (int)a[2], (const void *)a[3], (socklen_t)a[4]);
                return true;
        default:
                return false;
        }
}

static bool number_call(const struct raw *c, long *r)
{
        const word *a = c->a;

        switch (c->nr) {
        case SYS_close:
                *r = h_close((int)a[0]);
                return true;
        case SYS_close_range:
                *r = h_close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]);
                return true;
        case SYS_dup:
                *r = h_dup((int)a[0]);
                return true;
        case SYS_dup3:
                *r = h_dup3((int)a[0], (int)a[1], (int)a[2]);
                return true;
#ifdef SYS_dup2
        case SYS_dup2:
                *r = h_dup2((int)a[0], (int)a[1]);
                return true;
#endif
        case SYS_fcntl:
                *r = h_fcntl((int)a[0], (int)a[1], a[2]);
                return true;
        case SYS_ioctl:
                *r = h_ioctl((int)a[0], (unsigned long)a[1], a[2]);
                return true;
        case SYS_pidfd_getfd:
                *r = h_pidfd_getfd((int)a[0], (int)a[1], (unsigned)a[2]);
                return true;
        case SYS_exit_group:
                h__exit((int)a[0]);
                return true;
        case SYS_execve:
                *r = h_execve((const char *)a[0], (char *const *)a[1], (char *const *)a[2]);
                return true;
        case SYS_prctl:
                *r = h_prctl((int)a[0], a[1], a[2], a[3], a[4]);
                return true;
        case SYS_mlockall:
                *r = h_mlockall((int)a[0]);
                return true;
        case SYS_setns:
                *r = h_setns((int)a[0], (int)a[1]);
                return true;
        case SYS_unshare:
                *r = h_unshare((int)a[0]);
                return true;
        case SYS_seccomp:
                *r = sandbox_seccomp((unsigned)a[0], (unsigned)a[1], (void *)a[2]);
                return true;
        case SYS_landlock_restrict_self:
                *r = sandbox_landlock((int)a[0], (unsigned)a[1]);
                return true;
        case SYS_execveat:
                *r = h_execveat((int)a[0], (const char *)a[1], (char *const *)a[2],
                                (char *const *)a[3], (int)a[4]);
                return true;
        default:
                return privilege_call(c->nr, a, r);
        }
}

static bool is_fork(const struct raw *c, uint64_t *flags)
{
        struct clone_args args;

        *flags = 0;
        switch (c->nr) {
#ifdef SYS_fork
        case SYS_fork:
                return true;
#endif
        case SYS_clone:
                *flags = (uint64_t)c->a[0];
                return !(*flags & CLONE_NO_FORK) && c->a[1] == 0;
        case SYS_clone3:
                if (!shim_started() || c->a[1] < CLONE_ARGS_SIZE_VER0 ||
                    !user_copy(&args, (const void *)c->a[0], CLONE_ARGS_SIZE_VER0))
                        return false;
                *flags = args.flags;
                return !(*flags & CLONE_NO_FORK) && args.stack == 0;
        default:
                return false;
        }
}

/* clone() without shared memory is a fork, which the handlers of pthread_atfork() do not hear of.
 * On a stack of its own the child would not come back to us. */
static bool forking_call(const struct raw *c, long *r)
{
        uint64_t flags;

        if (!is_fork(c, &flags) || (!shim.size && !(flags & (CLONE_NEWNET | CLONE_NEWUSER))))
                return false;
        *r = netns_fork(c->nr, c->a, flags);
        return true;
}

/* What stands in a ring the kernel would do by itself: libuv adds sockets to its epoll set so,
 * where it is given one, and has other ways where it is not. False: nothing here is ours. */
static bool ring_call(const struct raw *c, long *r)
{
        if (c->nr != SYS_io_uring_setup || !shim_start())
                return false;
        errno = ENOSYS;
        *r = -1;
        return true;
}

static bool time_readable(word time)
{
        return time == 0 ||
               (shim_started() && user_read_range((const void *)time, sizeof(struct timespec)));
}

/* The time to wait, if the call has one; libc reads it, and so such a call is made as it is where
 * that cannot be read. */
static bool has_bad_time(const struct raw *c)
{
        switch (c->nr) {
#ifdef SYS_select
        case SYS_select:
#endif
        case SYS_pselect6:
                return !time_readable(c->a[4]);
        case SYS_ppoll:
                return !time_readable(c->a[2]);
        case SYS_epoll_pwait2:
                return !time_readable(c->a[3]);
        default:
                return false;
        }
}

/* Its mask and how long that is are behind the last argument; the time that is left is told, other
 * than by pselect(). */
static bool raw_pselect(const word *a, long *r)
{
        struct {
                const sigset_t *mask;
                size_t size;
        } m = {NULL, 0};

        if (!shim_started() || (a[5] && !user_copy(&m, (const void *)a[5], sizeof(m))) ||
            (m.mask && m.size != 8))
                return false;
        return select_tell(r, (int)a[0], (fd_set *)a[1], (fd_set *)a[2], (fd_set *)a[3],
                           (struct timespec *)a[4], m.mask);
}

static bool waiting_call(const struct raw *c, long *r)
{
        const word *a = c->a;

        if (has_bad_time(c))
                return false;
        switch (c->nr) {
#ifdef SYS_poll
        case SYS_poll:
                *r = h_poll((struct pollfd *)a[0], (nfds_t)a[1], (int)a[2]);
                return true;
        case SYS_select:
                *r = h_select((int)a[0], (fd_set *)a[1], (fd_set *)a[2], (fd_set *)a[3],
                              (struct timeval *)a[4]);
                return true;
        case SYS_epoll_wait:
                *r = h_epoll_wait((int)a[0], (struct epoll_event *)a[1], (int)a[2], (int)a[3]);
                return true;
#endif
        case SYS_pselect6:
                return raw_pselect(a, r);
        case SYS_ppoll:
                *r = h_ppoll((struct pollfd *)a[0], (nfds_t)a[1], (const struct timespec *)a[2],
                             (const sigset_t *)a[3]);
                return true;
        case SYS_epoll_ctl:
                *r = h_epoll_ctl((int)a[0], (int)a[1], (int)a[2], (struct epoll_event *)a[3]);
                return true;
        case SYS_epoll_pwait:
                *r = h_epoll_pwait((int)a[0], (struct epoll_event *)a[1], (int)a[2], (int)a[3],
                                   (const sigset_t *)a[4]);
                return true;
        case SYS_epoll_pwait2:
                *r = h_epoll_pwait2((int)a[0], (struct epoll_event *)a[1], (int)a[2],
                                    (const struct timespec *)a[3], (const sigset_t *)a[4]);
                return true;
        case SYS_epoll_create1:
                *r = h_epoll_create1((int)a[0]);
                return true;
        default:
                return false;
        }
}

/* Who calls passes as many as the call has; what is read of the rest, as libc does, is not
 * looked at. */
__attribute__((no_sanitize_address)) long h_syscall(long nr, ...)
{
        struct raw c = {.nr = nr};
        va_list ap;
        long r;

        va_start(ap, nr);
        for (int i = 0; i < 6; i++)
                c.a[i] = va_arg(ap, word);
        va_end(ap);
        if (!usock_tls.inside &&
            (one_descriptor(&c, &r) || socket_call(&c, &r) || number_call(&c, &r) ||
             forking_call(&c, &r) || ring_call(&c, &r) || waiting_call(&c, &r)))
                return r;
        return REAL(syscall)(nr, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4], c.a[5]);
}
