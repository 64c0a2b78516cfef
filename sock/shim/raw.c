/*
 * syscall(): programs and language runtimes that make their calls by number get the same sockets.
 * Numbers of calls that we do not hook, and calls on descriptors that are not ours, go straight on.
 */
#include "sock/shim/netns.h"
#include "sock/shim/privilege.h"
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

/* Row of a switch: the call by number is the hook of that name, with these arguments. */
#define CALL(name, ...)                     \
        case SYS_##name:                    \
                *r = h_##name(__VA_ARGS__); \
                return true
#define INT(i)  ((int)a[i])
#define UINT(i) ((unsigned)a[i])
#define LEN(i)  ((size_t)a[i])
#define PTR(i)  ((void *)a[i])

/* Calls whose first argument is the descriptor. */
static bool one_descriptor(const struct raw *c, long *r)
{
        const word *a = c->a;
        int fd = INT(0);

        if (!concerns_us(fd))
                return false;
        switch (c->nr) {
                CALL(read, fd, PTR(1), LEN(2));
                CALL(write, fd, PTR(1), LEN(2));
                CALL(readv, fd, PTR(1), INT(2));
                CALL(writev, fd, PTR(1), INT(2));
                /* a[4] is the upper half of a[3] where words are short */
                CALL(preadv2, fd, PTR(1), INT(2), a[3], INT(5));
                CALL(pwritev2, fd, PTR(1), INT(2), a[3], INT(5));
                CALL(recvfrom, fd, PTR(1), LEN(2), INT(3), PTR(4), PTR(5));
                CALL(sendto, fd, PTR(1), LEN(2), INT(3), PTR(4), (socklen_t)a[5]);
                CALL(recvmsg, fd, PTR(1), INT(2));
                CALL(sendmsg, fd, PTR(1), INT(2));
                CALL(recvmmsg, fd, PTR(1), UINT(2), INT(3), PTR(4));
                CALL(sendmmsg, fd, PTR(1), UINT(2), INT(3));
                CALL(sendfile, fd, INT(1), PTR(2), LEN(3));
        default:
                return false;
        }
}

static bool socket_call(const struct raw *c, long *r)
{
        const word *a = c->a;
        int fd = INT(0);

        if (c->nr == SYS_socket) {
                *r = h_socket(fd, INT(1), INT(2));
                return true;
        }
        if (c->nr == SYS_splice && (concerns_us(fd) || concerns_us(INT(2)))) {
                *r = h_splice(fd, PTR(1), INT(2), PTR(3), LEN(4), UINT(5));
                return true;
        }
        if (!concerns_us(fd))
                return false;
        switch (c->nr) {
                CALL(bind, fd, PTR(1), (socklen_t)a[2]);
                CALL(listen, fd, INT(1));
                CALL(accept, fd, PTR(1), PTR(2));
                CALL(accept4, fd, PTR(1), PTR(2), INT(3));
                CALL(connect, fd, PTR(1), (socklen_t)a[2]);
                CALL(shutdown, fd, INT(1));
                CALL(getsockname, fd, PTR(1), PTR(2));
                CALL(getpeername, fd, PTR(1), PTR(2));
                CALL(getsockopt, fd, INT(1), INT(2), PTR(3), PTR(4));
                CALL(setsockopt, fd, INT(1), INT(2), PTR(3), (socklen_t)a[4]);
        default:
                return false;
        }
}

static bool number_call(const struct raw *c, long *r)
{
        const word *a = c->a;

        switch (c->nr) {
                CALL(close, INT(0));
                CALL(close_range, UINT(0), UINT(1), INT(2));
                CALL(dup, INT(0));
#ifdef SYS_dup2
                CALL(dup2, INT(0), INT(1));
#endif
                CALL(dup3, INT(0), INT(1), INT(2));
                CALL(fcntl, INT(0), INT(1), a[2]);
                CALL(ioctl, INT(0), (unsigned long)a[1], a[2]);
                CALL(pidfd_getfd, INT(0), INT(1), UINT(2));
                CALL(execve, PTR(0), PTR(1), PTR(2));
                CALL(execveat, INT(0), PTR(1), PTR(2), PTR(3), INT(4));
                CALL(prctl, INT(0), a[1], a[2], a[3], a[4]);
                CALL(mlockall, INT(0));
                CALL(setns, INT(0), INT(1));
                CALL(unshare, INT(0));
        case SYS_seccomp:
                *r = sandbox_seccomp(UINT(0), UINT(1), PTR(2));
                return true;
        case SYS_landlock_restrict_self:
                *r = sandbox_landlock(INT(0), UINT(1));
                return true;
        case SYS_exit_group:
                h__exit(INT(0));
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
                CALL(poll, PTR(0), (nfds_t)a[1], INT(2));
                CALL(select, INT(0), PTR(1), PTR(2), PTR(3), PTR(4));
                CALL(epoll_wait, INT(0), PTR(1), INT(2), INT(3));
#endif
                CALL(ppoll, PTR(0), (nfds_t)a[1], PTR(2), PTR(3));
                CALL(epoll_ctl, INT(0), INT(1), INT(2), PTR(3));
                CALL(epoll_pwait, INT(0), PTR(1), INT(2), INT(3), PTR(4));
                CALL(epoll_pwait2, INT(0), PTR(1), INT(2), PTR(3), PTR(4));
                CALL(epoll_create1, INT(0));
        case SYS_pselect6:
                return raw_pselect(a, r);
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
