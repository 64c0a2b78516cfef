/*
 * Calls that end, copy or make descriptor numbers. What a call closes, replaces or returns means
 * nothing to us any more; what it copies is one more number of the same file.
 */
#include "sock/shim/cancel.h"
#include "sock/shim/opts.h"
#include "sock/shim/process.h"
#include "sock/shim/relay.h"
#include "sock/shim/spare.h"
#include "sock/shim/wait.h"
#include "sock/usock_connect.h"

#include <pty.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <utmp.h>

#include "base/sandbox.h"

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1u << 1)
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1u << 2)
#endif

#define OWN_AT_ONCE 256

/* ---- the end ---- */

/* Our end of it before the kernel's, which gives the number to the next who asks. */
static int close_ours(int fd)
{
        struct file *f;

        cancellation_point();
        f = file_enter(fd, MODE_EPOLL);
        if (!f)
                return REAL(close)(fd);
        if (f->mode == MODE_TCP && f->nfds == 1) {
                usock_linger(f->us);
                spare_back(f, fd);
        }
        relayed_close(fd, f);
        file_void(fd);
        return file_answer(f, sys1(SYS_close, fd));
}

int h_close(int fd)
{
        if (likely(!file_peek(fd)) || usock_tls.inside) {
                if (unlikely(shim.size && !usock_tls.inside && shim_owns_fd(fd))) {
                        errno = EBADF;
                        return -1;
                }
                kernel_touched();
                return REAL(close)(fd);
        }
        return close_ours(fd);
}
HOOK_ALSO(close, __close);

void number_ends(int fd)
{
        struct file *f;

        if (!file_peek(fd))
                return;
        f = file_enter(fd, MODE_TCP);
        if (f) {
                if (f->mode == MODE_TCP && f->nfds == 1)
                        usock_linger(f->us);
                file_leave(f);
        }
        file_void(fd);
}

/* ---- ranges: around the library's own ---- */

static int compare(const void *a, const void *b)
{
        return *(const int *)a - *(const int *)b;
}

/* Without /proc, which a program may have left behind: any number may be open. */
static int own_of_all(unsigned low, unsigned high, int *v, int max)
{
        struct rlimit rl = {1 << 20, 1 << 20};
        int n = 0;

        if (!sandbox_forbids(SANDBOX_LIMITS))
                sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &rl);
        for (unsigned fd = low; fd <= high && fd < rl.rlim_max && n < max; fd++)
                if (shim_owns_fd((int)fd))
                        v[n++] = (int)fd;
        return n;
}

/* The library's own numbers in [low, high], sorted, the lowest if there are more than `max`: /proc
 * lists them in order. */
static int own_numbers(unsigned low, unsigned high, int *v, int max)
{
        DIR *d = opendir("/proc/self/fd");
        struct dirent *e;
        int n = 0;

        if (!d)
                return own_of_all(low, high, v, max);
        while ((e = readdir(d)) && n < max) {
                int fd = atoi(e->d_name);

                if (e->d_name[0] != '.' && (unsigned)fd >= low && (unsigned)fd <= high &&
                    shim_owns_fd(fd))
                        v[n++] = fd;
        }
        closedir(d);
        qsort(v, (size_t)n, sizeof(*v), compare);
        return n;
}

static int range_around(unsigned low, unsigned high, int flags)
{
        int own[OWN_AT_ONCE], n;
        long r = 0;

        do {
                n = own_numbers(low, high, own, OWN_AT_ONCE);
                for (int i = 0; i < n && r == 0; i++) {
                        if ((unsigned)own[i] > low)
                                r = sys3(SYS_close_range, low, (unsigned)own[i] - 1, flags);
                        low = (unsigned)own[i] + 1;
                }
        } while (r == 0 && n == OWN_AT_ONCE);
        if (r == 0 && low <= high)
                r = sys3(SYS_close_range, low, high, flags);
        return (int)r;
}

int h_close_range(unsigned low, unsigned high, int flags)
{
        ssize_t r;

        if (!shim.size || usock_tls.inside || low > high ||
            ((unsigned)flags & ~(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC)))
                return REAL(close_range)(low, high, flags);
        if (!((unsigned)flags & CLOSE_RANGE_CLOEXEC))
                for (unsigned fd = low; fd <= high && fd < shim.top; fd++)
                        number_ends((int)fd);
        usock_enter();
        r = range_around(low, high, flags);
        usock_leave();
        result_again(&r);
        return (int)r;
}

void h_closefrom(int low)
{
        if (!shim.size || usock_tls.inside)
                REAL(closefrom)(low);
        else
                h_close_range((unsigned)MAX(low, 0), ~0u, 0);
}

/* ---- copies ---- */

/* A new number of the file of fd, if it has one. */
static void copied(int fd, int to)
{
        struct file *f;

        fd_returned(to);
        f = to >= 0 ? file_enter(fd, MODE_EPOLL) : NULL;
        if (!f)
                return;
        file_number(f, to);
        file_leave(f);
}

int file_fcntl_dup(int fd, int cmd, int low)
{
        int to = FD_TRY(REAL(fcntl)(fd, cmd, low));

        copied(fd, to);
        return to;
}

int h_dup(int fd)
{
        int to = FD_TRY(REAL(dup)(fd));

        copied(fd, to);
        return to;
}

/* dup2 closes `to`: our end of that comes first, unless the call is going to fail. */
static int replace(int fd, int to, int flags, bool dup2_itself)
{
        int r;

        if (unlikely(shim.size && !usock_tls.inside && shim_owns_fd(to))) {
                struct rlimit rl;

                /* As when another thread is just opening the number; above the limit there
                 * is none. */
                errno = getrlimit(RLIMIT_NOFILE, &rl) == 0 && (rlim_t)to >= rl.rlim_cur ? EBADF
                                                                                        : EBUSY;
                return -1;
        }
        if (fd != to && file_peek(to) && !usock_tls.inside && sys2(SYS_fcntl, fd, F_GETFD) >= 0)
                number_ends(to);
        r = dup2_itself ? REAL(dup2)(fd, to) : REAL(dup3)(fd, to, flags);
        if (r >= 0 && fd != to)
                copied(fd, to);
        if (unlikely(r == STDERR_FILENO))
                log_to();
        return r;
}

int h_dup2(int fd, int to)
{
        return replace(fd, to, 0, true);
}
HOOK_ALSO(dup2, __dup2);

int h_dup3(int fd, int to, int flags)
{
        return replace(fd, to, flags, false);
}

/* ---- new numbers ---- */

/* open() has a mode when it may create. */
#define OPEN_MODE(mode, flags)                                                 \
        do {                                                                   \
                va_list ap;                                                    \
                va_start(ap, flags);                                           \
                mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0; \
                va_end(ap);                                                    \
        } while (0)

int h_open(const char *path, int flags, ...)
{
        mode_t mode;

        OPEN_MODE(mode, flags);
        return fd_returned(FD_TRY(REAL(open)(path, flags, mode)));
}
HOOK_ALSO(open, __open);
HOOK_ALSO(open, open64);
HOOK_ALSO(open, __open64);

int h_openat(int dir, const char *path, int flags, ...)
{
        mode_t mode;

        OPEN_MODE(mode, flags);
        return fd_returned(FD_TRY(REAL(openat)(dir, path, flags, mode)));
}
HOOK_ALSO(openat, openat64);

/* Those that are libc's but for that. */
#define GIVES_NUMBER(name, params, args)                     \
        int h_##name params                                  \
        {                                                    \
                return fd_returned(FD_TRY(REAL(name) args)); \
        }
GIVES_NUMBER(__open_2, (const char *path, int flags), (path, flags))
HOOK_ALSO(__open_2, __open64_2);
GIVES_NUMBER(__openat_2, (int dir, const char *path, int flags), (dir, path, flags))
HOOK_ALSO(__openat_2, __openat64_2);
GIVES_NUMBER(creat, (const char *path, mode_t mode), (path, mode))
HOOK_ALSO(creat, creat64);
GIVES_NUMBER(eventfd, (unsigned init, int flags), (init, flags))
GIVES_NUMBER(timerfd_create, (int clock, int flags), (clock, flags))
GIVES_NUMBER(signalfd, (int fd, const sigset_t *mask, int flags), (fd, mask, flags))
GIVES_NUMBER(inotify_init, (void), ())
GIVES_NUMBER(inotify_init1, (int flags), (flags))
GIVES_NUMBER(fanotify_init, (unsigned flags, unsigned event_flags), (flags, event_flags))
GIVES_NUMBER(memfd_create, (const char *name, unsigned flags), (name, flags))
GIVES_NUMBER(pidfd_open, (pid_t pid, unsigned flags), (pid, flags))
GIVES_NUMBER(shm_open, (const char *name, int flags, mode_t mode), (name, flags, mode))
GIVES_NUMBER(posix_openpt, (int flags), (flags))

static int pair_returned(int r, const int v[2])
{
        if (r == 0) {
                fd_returned(v[0]);
                fd_returned(v[1]);
        }
        return r;
}

int h_pipe(int v[2])
{
        return pair_returned(FD_TRY(REAL(pipe)(v)), v);
}
HOOK_ALSO(pipe, __pipe);

int h_pipe2(int v[2], int flags)
{
        return pair_returned(FD_TRY(REAL(pipe2)(v, flags)), v);
}

int h_socketpair(int domain, int type, int protocol, int v[2])
{
        return pair_returned(FD_TRY(REAL(socketpair)(domain, type, protocol, v)), v);
}

/* The process may be this one, whose number is to be of a real socket. */
static void may_be_got(int target)
{
        struct file *f = shim_started() ? file_enter(target, MODE_NEW) : NULL;

        if (!f)
                return;
        pthread_mutex_lock(&shim.lock);
        file_share(f);
        pthread_mutex_unlock(&shim.lock);
        if (f->mode >= MODE_NEW)
                file_known_outside(f);
        file_leave(f);
}

/* A socket of another process may be one of ours there. */
int h_pidfd_getfd(int pidfd, int target, unsigned flags)
{
        int fd;

        may_be_got(target);
        fd = fd_returned(FD_TRY(REAL(pidfd_getfd)(pidfd, target, flags)));
        if (fd >= 0 && !usock_tls.inside && !shim.disabled)
                shim_adopt_fd(fd);
        return fd;
}

int h_mkstemp(char *tmpl)
{
        return fd_returned(REAL(mkstemp)(tmpl));
}
HOOK_ALSO(mkstemp, mkstemp64);

int h_mkostemp(char *tmpl, int flags)
{
        return fd_returned(REAL(mkostemp)(tmpl, flags));
}
HOOK_ALSO(mkostemp, mkostemp64);

/* Both replace 0, 1 and 2 inside libc. */
static void standard_replaced(void)
{
        for (int fd = 0; fd < 3; fd++)
                fd_returned(fd);
}

int h_daemon(int nochdir, int noclose)
{
        int r = REAL(daemon)(nochdir, noclose);

        if (r == 0 && !noclose)
                standard_replaced();
        return r;
}

int h_login_tty(int fd)
{
        int r = REAL(login_tty)(fd);

        if (r == 0) {
                standard_replaced();
                if (fd > 2)
                        fd_returned(fd);
        }
        return r;
}
