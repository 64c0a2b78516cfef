/*
 * Namespaces. A stack is of the network namespace in which it was made. What a process or its child
 * makes in another one is the kernel's. The names by which unetd is found are of a network
 * namespace, too. So a child that is to have one of its own is made without it, comes to its
 * stacks, and then goes there. What it forks there, it registers itself (usock_fork.c).
 */
#include "sock/shim/netns.h"
#include "sock/shim/process.h"
#include "sock/shim/spare.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

static _Atomic uint64_t home; /* 0: nobody has left it */

static uint64_t cookie_of(int fd)
{
        uint64_t cookie = 0;
        socklen_t len = sizeof(cookie);

        sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len);
        return cookie;
}

bool netns_is_elsewhere(int kfd)
{
        uint64_t at = unlikely(home != 0) ? cookie_of(kfd) : 0;

        return at != 0 && at != home;
}

/* Threads may be in several; the first of them leaves that of the stack. */
static void remember_home(void)
{
        int fd = home == 0 ? (int)sys3(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;

        if (fd < 0)
                return;
        home = cookie_of(fd);
        sys1(SYS_close, fd);
}

static void leave(bool made_for_it)
{
        usock_enter();
        if (usock_netns_leaves(made_for_it))
                remember_home();
        usock_leave();
}

int h_setns(int fd, int type)
{
        spares_over(true);
        leave(false);
        return REAL(setns)(fd, type);
}

int h_unshare(int flags)
{
        spares_over(flags & CLONE_NEWNET);
        if (flags & CLONE_NEWNET)
                leave(false);
        return REAL(unshare)(flags);
}

/* ---- clone() ---- */

/* What a child can do by itself, once unetd knows it. */
#define LATER (CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)

static void say(int fd, int err)
{
        sys3(SYS_write, fd, &err, sizeof(err));
}

/* Here in the child: what clone() would have failed with, or 0. */
static int goes_there(int flags)
{
        spares_over(true);
        leave(true);
        return REAL(unshare)(flags) < 0 ? errno : 0;
}

static void begin_there(int flags, const int told[2])
{
        int err = goes_there(flags);

        if (err != 0) {
                say(told[1], err);
                sys1(SYS_exit_group, 0);
        }
}

/* It is as if it had never been, but for its SIGCHLD. */
static long was_told(long pid, const int told[2])
{
        int err = 0;
        long r;

        sys1(SYS_close, told[1]);
        while ((r = sys3(SYS_read, told[0], &err, sizeof(err))) == -EINTR)
                ;
        while (r == sizeof(err) && sys4(SYS_wait4, pid, NULL, __WALL, NULL) == -EINTR)
                ;
        sys1(SYS_close, told[0]);
        if (err == 0)
                return pid;
        errno = err;
        return -1;
}

/* A child that is elsewhere from the beginning is registered by its parent. */
static long fork_by(long nr, const long a[6], uint64_t flags)
{
        bool elsewhere = flags & (CLONE_NEWNET | CLONE_NEWUSER);
        long r;

        if (!fork_may())
                return -1;
        if (elsewhere) {
                remember_home();
                usock_fork_elsewhere();
        }
        if (shim.size)
                fork_begin();
        r = REAL(syscall)(nr, a[0], a[1], a[2], a[3], a[4]);
        if (shim.size)
                fork_end(r == 0);
        if (elsewhere && r == 0) {
                spares_over(true);
                leave(true);
        }
        return r;
}

static long clone_apart(const long a[6], long later)
{
        const long now[6] = {a[0] & ~later, a[1], a[2], a[3], a[4]};
        int told[2];
        long r;

        if (sys2(SYS_pipe2, told, O_CLOEXEC) < 0)
                return fork_by(SYS_clone, a, (uint64_t)a[0]);
        r = fork_by(SYS_clone, now, (uint64_t)now[0]);
        if (r > 0)
                return was_told(r, told);
        if (r == 0)
                begin_there((int)later, told);
        sys1(SYS_close, told[0]);
        sys1(SYS_close, told[1]);
        return r;
}

/* Without CLONE_VFORK: a parent that sleeps until its child goes on cannot register it, for which
 * the child waits. */
long netns_fork(long nr, const long a[6], uint64_t flags)
{
        const long b[6] = {nr == SYS_clone ? a[0] & ~(long)CLONE_VFORK : a[0], a[1], a[2], a[3],
                           a[4]};

        if (nr != SYS_clone || !(flags & CLONE_NEWNET) ||
            flags & (CLONE_NEWUSER | CLONE_FS | CLONE_SYSVSEM))
                return fork_by(nr, b, flags);
        return clone_apart(b, b[0] & LATER);
}

/* By libc's clone(): the child calls fn and ends. With memory of its own it needs no other stack
 * for that, and comes back to us. */
static int clone_to(int (*fn)(void *), int flags, void *arg, pid_t *parent, void *tls, pid_t *child)
{
#if defined(__x86_64__)
        const long a[6] = {flags, 0, (long)parent, (long)child, (long)tls};
#else
        const long a[6] = {flags, 0, (long)parent, (long)tls, (long)child};
#endif
        long pid = netns_fork(SYS_clone, a, (uint64_t)(unsigned)flags);

        if (pid == 0)
                h__exit(fn(arg));
        return (int)pid;
}

static bool is_fork(int (*fn)(void *), const void *stack, int flags)
{
        return fn && stack && !(flags & (CLONE_NO_FORK | CLONE_FILES)) &&
               (shim.size || flags & (CLONE_NEWNET | CLONE_NEWUSER));
}

int h_clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
        pid_t *parent, *child;
        void *tls;
        va_list ap;

        va_start(ap, arg);
        parent = va_arg(ap, pid_t *);
        tls = va_arg(ap, void *);
        child = va_arg(ap, pid_t *);
        va_end(ap);
        if (is_fork(fn, stack, flags))
                return clone_to(fn, flags, arg, parent, tls, child);
        return REAL(clone)(fn, stack, flags, arg, parent, tls, child);
}
HOOK_ALSO(clone, __clone);
