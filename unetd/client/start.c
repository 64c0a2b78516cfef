/*
 * A double fork by clone(CLONE_VM | CLONE_VFORK): the children run on stacks of their own in the
 * caller's memory, make raw system calls only, and the caller's thread stands still meanwhile.
 * fork() would run the program's atfork handlers, and vfork() would let the child return into a
 * frame that the parent still needs.
 */
#include "unetd/client/start.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/wait.h>

#include "unetd/client/client.h"
#include "unetd/client/sys.h"
#include "unetd/client/variables.h"
#include "unetd/client/wire.h"

#ifndef UNET_LIBEXECDIR
#define UNET_LIBEXECDIR "/usr/local/libexec/unet"
#endif

#define READY_MS    60000 /* its end is seen at once; slow it may be */
#define READY_FD    3
#define PATH_MAX_   4096
#define ENV_MAX     64
#define STACK_BYTES 65536

struct start {
        char path[PATH_MAX_];
        char *argv[8];
        char *env[ENV_MAX];
        int null, ready_r, ready_w;
        char *stacks; /* two, with STACK_BYTES each */
        bool cloned;
};

/* ---- finding the program ---- */

static bool join(char path[PATH_MAX_], const char *dir, size_t dir_len, const char *rest)
{
        size_t n = strlen(rest);

        if (dir_len == 0 || dir_len + n + 2 > PATH_MAX_)
                return false;
        memcpy(path, dir, dir_len);
        path[dir_len] = '/';
        memcpy(path + dir_len + 1, rest, n + 1);
        return sys3(SYS_faccessat, AT_FDCWD, path, X_OK) == 0;
}

/* The directory of this library, without the slash; returns its length. */
static size_t own_dir(const char **dir)
{
        Dl_info info;
        const char *slash;

        if (!dladdr((void *)(uintptr_t)unetd_start, &info) || !info.dli_fname)
                return 0;
        slash = strrchr(info.dli_fname, '/');
        *dir = info.dli_fname;
        return slash ? (size_t)(slash - info.dli_fname) : 0;
}

/* A program that was started by a relative path knows itself by it; the daemon starts in another
 * directory. */
static bool make_absolute(char path[PATH_MAX_])
{
        char rest[PATH_MAX_];
        size_t n = strlen(path) + 1;
        long cwd;

        assert(n <= PATH_MAX_);
        if (path[0] == '/')
                return true;
        memcpy(rest, path, n);
        cwd = sys2(SYS_getcwd, path, PATH_MAX_); /* counts the end */
        if (cwd <= 0 || (size_t)cwd + n > PATH_MAX_)
                return false;
        path[cwd - 1] = '/';
        memcpy(path + cwd, rest, n);
        return true;
}

static bool find_program(char path[PATH_MAX_])
{
        /* beside the library; where an installed library finds it, wherever the prefix went; in a
         * build tree */
        static const char *const beside[] = {"unetd", "../libexec/unet/unetd", "../unetd/unetd",
                                             "../../unetd/unetd"};
        const char *env = getauxval(AT_SECURE) ? NULL : unetd_variable("UNET_LIBEXEC"), *dir = NULL;
        size_t n;

        if (env && *env)
                return join(path, env, strlen(env), "unetd");
        n = own_dir(&dir);
        for (size_t i = 0; i < ARRAY_LEN(beside); i++)
                if (join(path, dir, n, beside[i]))
                        return make_absolute(path);
        return join(path, UNET_LIBEXECDIR, strlen(UNET_LIBEXECDIR), "unetd");
}

/* ---- the children, which the address sanitizer must not take for calls on the caller's
 * stack ---- */

__attribute__((noreturn)) static void leave(int code)
{
        for (;;)
                sys1(SYS_exit, code);
}

static void default_signals(void)
{
        uint64_t none = 0;
        uint64_t action[4] = {0, 0, 0, 0}; /* the kernel's struct sigaction: SIG_DFL, no flags */

        for (int sig = 1; sig <= 64; sig++)
                sys4(SYS_rt_sigaction, sig, action, NULL, 8);
        sys4(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, 8);
}

static void move_fd(int from, int to)
{
        if (from == to)
                sys_fcntl(to, F_SETFD, 0);
        else
                sys3(SYS_dup3, from, to, 0);
}

/* Nothing of the program's is left but its user, its limits and its namespaces. */
__attribute__((no_sanitize_address)) static int become_daemon(void *arg)
{
        struct start *s = arg;

        for (int fd = 0; fd < 3; fd++)
                move_fd(s->null, fd);
        move_fd(s->ready_w, READY_FD);
        sys3(SYS_close_range, READY_FD + 1, ~0u, 0);
        sys1(SYS_chdir, "/");
        sys1(SYS_umask, 022);
        default_signals();
        sys3(SYS_execve, s->path, s->argv, s->env);
        leave(127);
}

__attribute__((no_sanitize_address)) static int middle(void *arg)
{
        struct start *s = arg;

        sys0(SYS_setsid);
        clone(become_daemon, s->stacks + 2 * STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD, s);
        leave(0);
}

/* ---- the caller ---- */

static int run_children(struct start *s)
{
        uint64_t all = ~(uint64_t)0, old = 0;
        int pid, r;

        /* No handler of the program may run in a child that shares its memory. */
        sys4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, 8);
        pid = clone(middle, s->stacks + STACK_BYTES, CLONE_VM | CLONE_VFORK, s);
        if (pid > 0)
                do
                        r = (int)sys4(SYS_wait4, pid, NULL, __WALL, NULL);
                while (r == -EINTR);
        sys4(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, 8);
        return pid > 0 ? 0 : -EAGAIN;
}

/* A byte: it is ready, or knows that another one is. The end alone: it could not be run. The end
 * may not come, when another thread forks just now. */
static int await_ready(int fd)
{
        int64_t until = sys_now_ms() + READY_MS, now;

        while ((now = sys_now_ms()) < until) {
                char byte;
                int r = sys_poll1(fd, POLLIN, (int)(until - now));

                if (r > 0)
                        return sys_read(fd, &byte, 1) >= 0 ? 0 : -EIO;
                if (r < 0 && r != -EINTR)
                        return r;
        }
        return -ETIMEDOUT;
}

static void fill_env(struct start *s)
{
        const char *was;
        int n = 0;

        for (char **e = environ; e && *e && n < ENV_MAX - 1; e++)
                if (strncmp(*e, "UNET_", 5) == 0)
                        s->env[n++] = *e;
        if (n == 0) /* it was cleared */
                for (unsigned i = 0; n < ENV_MAX - 1 && (was = unetd_variable_at_start(i)); i++)
                        s->env[n++] = (char *)was;
        assert(n < ENV_MAX);
        s->env[n] = NULL;
}

static int open_fds(struct start *s)
{
        int fd[2], r;

        r = sys_open("/dev/null", O_RDWR | O_CLOEXEC);
        if (r < 0)
                return r;
        s->null = fd_high(r);
        if (s->null < 0)
                return s->null;
        r = (int)sys2(SYS_pipe2, fd, O_CLOEXEC);
        if (r < 0)
                return r;
        s->ready_r = fd_high(fd[0]);
        s->ready_w = fd_high(fd[1]);
        return s->ready_r < 0 ? s->ready_r : s->ready_w < 0 ? s->ready_w : 0;
}

static void close_fd(int fd)
{
        if (fd >= 0)
                sys_close(fd);
}

static int start_with(struct start *s)
{
        int r = open_fds(s);

        if (r == 0)
                r = run_children(s);
        close_fd(s->ready_w);
        if (r == 0)
                r = await_ready(s->ready_r);
        close_fd(s->ready_r);
        close_fd(s->null);
        return r;
}

/* Hard limits go with the program into the daemon, which serves others too and long after it: with
 * these it could not. */
static bool too_limited(void)
{
        static const struct {
                int what;
                rlim_t least;
        } need[] = {{RLIMIT_NOFILE, 256},
                    {RLIMIT_AS, 16ull << 30},
                    {RLIMIT_DATA, 1ull << 30},
                    {RLIMIT_FSIZE, 1ull << 30},
                    {RLIMIT_CPU, RLIM_INFINITY}};
        struct rlimit rl;

        for (size_t i = 0; i < ARRAY_LEN(need); i++)
                if (sys4(SYS_prlimit64, 0, need[i].what, NULL, &rl) == 0 &&
                    rl.rlim_max < need[i].least)
                        return true;
        return false;
}

int unetd_start(const char *domain)
{
        size_t bytes = sizeof(struct start) + 2 * STACK_BYTES + 64;
        char *mem = (char *)sys6(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *argv[] = {"unetd", "--domain", (char *)(uintptr_t)domain, "--ready-fd", "3", NULL};
        struct start *s;
        int r;

        static_assert(ARRAY_LEN(argv) <= ARRAY_LEN(s->argv), "they fit");
        static_assert(READY_FD == 3, "as --ready-fd says");
        if (sys_is_err(mem))
                return (int)(intptr_t)mem;
        s = (struct start *)(mem + 2 * STACK_BYTES);
        s->stacks = mem;
        s->null = s->ready_r = s->ready_w = -1;
        memcpy(s->argv, argv, sizeof argv);
        fill_env(s);
        r = too_limited() ? -EPERM : find_program(s->path) ? start_with(s) : -ENOENT;
        sys_munmap(mem, bytes);
        return r;
}
