/*
 * fork, exec, exit: the stack lives on in shared memory; here a process comes to it or takes its
 * leave.
 *
 * fork() is followed by pthread_atfork(), registered with the first socket. _Fork() runs no such
 * handlers and is hooked. vfork becomes fork once there is a socket (jump.S), for its child runs
 * our hooks on its parent's memory. A child for which the stack has no process slot is not made:
 * fork() is hooked for that. What libc forks by itself, as daemon() does, goes without.
 *
 * exec: connections whose numbers survive are found again by the new image through the SO_COOKIE of
 * their kernel sockets; UNET_ADOPT in its environment tells it to look. A copy of the placeholder
 * becomes a real socket first.
 */
#include "sock/shim/addrs.h"
#include "sock/shim/cancel.h"
#include "sock/shim/decide.h"
#include "sock/shim/epoll.h"
#include "sock/shim/opts.h"
#include "sock/shim/privilege.h"
#include "sock/shim/process.h"
#include "sock/shim/relay.h"
#include "sock/shim/signals.h"
#include "sock/shim/spare.h"
#include "sock/usock_dgram.h"
#include "unetd/client/variables.h"

#include <alloca.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

extern char **environ;

/* ---- fork ---- */

static void fork_prepare(void)
{
        usock_enter();
        pthread_mutex_lock(&shim.lock);
        file_fork_prepare();
        epoll_fork_lock();
        opts_fork_lock();
        spares_fork_lock();
        netlink_fork_lock();
        usock_fork_prepare();
}

static void fork_parent(void)
{
        usock_fork_parent();
        netlink_fork_unlock();
        spares_fork_unlock();
        opts_fork_unlock();
        epoll_fork_unlock(false);
        pthread_mutex_unlock(&shim.lock);
        usock_leave();
}

static void fork_child(void)
{
        usock_fork_child();
        netlink_fork_unlock();
        spares_fork_unlock();
        opts_fork_unlock();
        epoll_fork_unlock(true);
        pthread_mutex_unlock(&shim.lock);
        signals_fork_child();
        file_fork_child();
        cancel_fork_child();
        usock_leave();
}

void fork_begin(void)
{
        fork_prepare();
}

void fork_end(bool child)
{
        if (child)
                fork_child();
        else
                fork_parent();
}

bool fork_may(void)
{
        bool may;

        if (!shim.size || usock_tls.inside)
                return true;
        usock_enter();
        may = usock_fork_may();
        if (!may)
                log_fork_refused();
        usock_leave();
        if (!may)
                errno = EAGAIN;
        return may;
}

pid_t h_fork(void)
{
        return fork_may() ? REAL(fork)() : -1;
}

pid_t h__Fork(void)
{
        bool ours = shim.size && !usock_tls.inside;
        pid_t pid;

        if (!fork_may())
                return -1;
        if (ours)
                fork_begin();
        pid = REAL(_Fork)();
        if (ours)
                fork_end(pid == 0);
        return pid;
}

/* Where vfork goes: its frame must not be ours, so jump.S jumps. */
__attribute__((visibility("hidden"))) void *shim_vfork_target(void);
void *shim_vfork_target(void)
{
        return shim.size ? (void *)h__Fork : (void *)REAL(vfork);
}

/* ---- exit ---- */

static void left_to_spawned(int fd, struct file *f, void *arg)
{
        file_left_to_spawned(f);
}

static void at_exit(void)
{
        if (!shim.size || usock_tls.inside)
                return;
        usock_enter(); /* for good */
        relayed_exit();
        file_each(left_to_spawned, NULL);
        usock_exit();
}

/* After the program's atexit handlers and destructors, which may still use sockets. A library whose
 * destructor comes even later meets the kernel's sockets: this thread stays inside. */
__attribute__((destructor)) static void shim_fini(void)
{
        at_exit();
}

void h__exit(int status)
{
        at_exit();
        REAL(_exit)(status);
        __builtin_unreachable();
}
HOOK_ALSO(_exit, _Exit);

void process_start(void)
{
        pthread_atfork(fork_prepare, fork_parent, fork_child);
        at_quick_exit(at_exit);
}

/* ---- exec ---- */

/* The new image. */
struct image {
        int dir;
        const char *path;
        bool searched;     /* as execvp() looks for it */
        bool here;         /* this process becomes it */
        bool looked, deaf; /* the library is not in it */
        int survive;       /* sockets of ours that it takes over */
        int sets;          /* who is in its epoll sets; -1: there are none */
        const posix_spawn_file_actions_t *actions;
};

static bool is_deaf(struct image *s)
{
        if (!s->looked)
                s->deaf = s->searched ? image_searched_is_deaf(s->path)
                                      : image_is_deaf(s->dir, s->path);
        s->looked = true;
        return s->deaf;
}

/* Hosts on interfaces of ours can reach it there only. */
void listener_left_to_kernel(int fd, struct file *f, const char *why)
{
        file_keep_flags(fd, f);
        if (usock_has_ifaces())
                return;
        usock_withdraw(f->us);
        f->why = why;
        log_decision(f);
}

/* As glibc has them (posix/spawn_int.h). */
struct spawn_action {
        enum { SPAWN_CLOSE, SPAWN_DUP2, SPAWN_OPEN } tag;
        union {
                int fd;
                struct {
                        int from, to;
                } dup;
                struct {
                        int fd;
                        char *path;
                        int flags;
                        mode_t mode;
                } open; /* the largest */
        } of;
};

/* From this action on the number is another file's, or nobody's. */
static bool takes_number(const struct spawn_action *a, int fd)
{
        return a->tag == SPAWN_DUP2
                       ? a->of.dup.to == fd
                       : (a->tag == SPAWN_OPEN || a->tag == SPAWN_CLOSE) && a->of.fd == fd;
}

/* The child of posix_spawn() has a copy that does not close on exec. */
static bool is_copied(const posix_spawn_file_actions_t *fa, int fd)
{
        const struct spawn_action *a = fa ? (const void *)fa->__actions : NULL;

        for (int i = 0; a && i < fa->__used; i++) {
                if (a[i].tag == SPAWN_DUP2 && a[i].of.dup.from == fd)
                        return true;
                if (takes_number(&a[i], fd))
                        return false;
        }
        return false;
}

static bool goes_along(const struct image *s, int fd)
{
        return !closes_on_exec(fd) || is_copied(s->actions, fd);
}

/* Those that the new image will have; their kernel sockets are made to tell it the truth. */
static void survives(int fd, struct file *f, void *arg)
{
        struct image *s = arg;

        spare_used(f);
        if (!goes_along(s, fd))
                return;
        if (f->mode < MODE_NEW)
                return;
        /* A deaf image must not be given connections that only the library could accept. */
        if (f->mode == MODE_LISTEN && f->us && is_deaf(s)) {
                listener_left_to_kernel(fd, f,
                                        "it was given to a program without the library, new "
                                        "connections are the kernel's");
                return;
        }
        pthread_mutex_lock(&shim.lock);
        if (f->mode == MODE_NEW && is_deaf(s))
                sock_decide(f, MODE_KERNEL, "it was given to a program without the library");
        file_share(f);
        pthread_mutex_unlock(&shim.lock);
        if (f->mode < MODE_NEW)
                return;
        file_known_outside(f);
        if (s->here && f->us)
                usock_survives(f->us);
        f->spawned |= !s->here;
        if (f->mode == MODE_TCP)
                file_keep_flags(fd, f);
        s->survive++;
}

/* Members first. */
static void set_survives(int fd, struct file *f, void *arg)
{
        if (f->mode == MODE_EPOLL && f->set && goes_along(arg, fd))
                epoll_is_spawned(f);
}

/* Something to adopt? Then usock is told as well. */
static bool something_survives(struct image *s)
{
        if (usock_tls.inside || !shim.size)
                return false;
        usock_enter();
        if (s->here)
                usock_exec();
        file_each(survives, s);
        if (!s->here && s->survive > 0 && !is_deaf(s))
                file_each(set_survives, s);
        s->sets = s->here && s->survive > 0 && !is_deaf(s) ? epoll_image_make() : -1;
        if (s->survive > 0)
                usock_found_by_image();
        usock_leave();
        return s->survive > 0;
}

static size_t count(char *const v[])
{
        size_t n = 0;

        while (v && v[n])
                n++;
        return n;
}

/*
 * env with UNET_ADOPT. A program that has cleaned it for the new image (inetd does) has taken the
 * shim from it, without which there is no connection: then it gets that back, with the variables
 * that say which unetd is ours, as they were when the library began: it may have cleared its own.
 */
#define PRELOAD_MAX (PATH_MAX + 16)
#define ADOPT_MAX   32
#define KEPT_MOST   16 /* variables that were there at the start */

static bool is_unet(const char *var)
{
        return strncmp(var, "UNET_", 5) == 0 && strncmp(var, "UNET_ADOPT=", 11) != 0;
}

/* A variable of the same name is among these. */
static bool is_named(char *const *v, size_t n, const char *var)
{
        size_t name = strcspn(var, "=") + 1;

        for (size_t i = 0; i < n; i++)
                if (strncmp(v[i], var, name) == 0)
                        return true;
        return false;
}

static bool preloads_us(const char *var)
{
        return strncmp(var, "LD_PRELOAD=", 11) == 0 && strstr(var, "libunet_preload.so");
}

/* Our own entry, before what else is to be preloaded; "" when we do not know where we lie, or it is
 * too long. */
static char *preload(char text[PRELOAD_MAX], const char *others)
{
        Dl_info info;
        int n = dladdr((void *)(uintptr_t)h_execve, &info) != 0 && info.dli_fname &&
                                info.dli_fname[0] == '/'
                        ? snprintf(text, PRELOAD_MAX, "LD_PRELOAD=%s%s%s", info.dli_fname,
                                   others ? ":" : "", others ? others : "")
                        : PRELOAD_MAX;

        if (n >= PRELOAD_MAX)
                text[0] = 0;
        return text;
}

static char *const *env_adopting(const struct image *s, char *const env[], char **room,
                                 char text[PRELOAD_MAX], char adopt[ADOPT_MAX])
{
        const char *others = NULL, *was;
        bool cleaned = true;
        size_t n = 0;

        for (size_t i = 0; env && env[i]; i++)
                cleaned &= !preloads_us(env[i]);
        for (size_t i = 0; env && env[i]; i++) {
                bool preload_of_others = cleaned && strncmp(env[i], "LD_PRELOAD=", 11) == 0;
                if (preload_of_others)
                        others = env[i] + 11;
                else if (strncmp(env[i], "UNET_ADOPT=", 11) != 0 && !(cleaned && is_unet(env[i])))
                        room[n++] = env[i];
        }
        for (size_t i = 0; cleaned && environ && environ[i]; i++)
                if (is_unet(environ[i]))
                        room[n++] = environ[i];
        for (unsigned i = 0; i < KEPT_MOST && (was = unetd_variable_at_start(i)); i++)
                if (is_unet(was) && !is_named(room, n, was))
                        room[n++] = (char *)was;
        if (cleaned && preload(text, others)[0])
                room[n++] = text;
        snprintf(adopt, ADOPT_MAX, s->sets >= 0 ? "UNET_ADOPT=%d,%d" : "UNET_ADOPT=%d", s->survive,
                 s->sets);
        room[n++] = adopt;
        room[n] = NULL;
        return room;
}
#define ENV_ADOPTING(s, env)                                                                 \
        env_adopting(s, env,                                                                 \
                     alloca((count(env) + count(environ) + KEPT_MOST + 3) * sizeof(char *)), \
                     alloca(PRELOAD_MAX), alloca(ADOPT_MAX))
/* ... of an image that this process becomes. */
#define ENV_BECOMING(s, env) \
        (something_survives(s) ? ENV_ADOPTING(s, env) : (limits_for_image(), env))

/* The process goes on as it was. */
static int not_become(int r)
{
        int saved = errno;

        epoll_image_drop();
        limits_go_on();
        errno = saved;
        return r;
}

int h_execve(const char *path, char *const argv[], char *const env[])
{
        struct image s = {.dir = AT_FDCWD, .path = path, .here = true};

        env = ENV_BECOMING(&s, env);
        return not_become(REAL(execve)(path, argv, env));
}

int h_execvpe(const char *file, char *const argv[], char *const env[])
{
        struct image s = {.path = file, .searched = true, .here = true};

        env = ENV_BECOMING(&s, env);
        return not_become(REAL(execvpe)(file, argv, env));
}

int h_execv(const char *path, char *const argv[])
{
        return h_execve(path, argv, environ);
}

int h_execvp(const char *file, char *const argv[])
{
        return h_execvpe(file, argv, environ);
}

int h_fexecve(int fd, char *const argv[], char *const env[])
{
        char self[32];
        struct image s = {.dir = AT_FDCWD, .path = self, .here = true};

        snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
        env = ENV_BECOMING(&s, env);
        return not_become(REAL(fexecve)(fd, argv, env));
}

int h_execveat(int dir, const char *path, char *const argv[], char *const env[], int flags)
{
        struct image s = {.dir = dir, .path = path, .here = true};

        env = ENV_BECOMING(&s, env);
        return not_become(REAL(execveat)(dir, path, argv, env, flags));
}

static size_t count_args(va_list ap)
{
        size_t n = 1;

        while (va_arg(ap, const char *))
                n++;
        return n;
}

static void list_args(char **argv, const char *first, size_t n, va_list *ap)
{
        argv[0] = (char *)first;
        for (size_t i = 1; i <= n; i++)
                argv[i] = va_arg(*ap, char *);
}

/* The arguments of execl and its like, from `first` on, as a vector on the caller's stack; `ap` is
 * left at what follows the NULL. */
#define LIST_ARGS(first, ap)                      \
        ({                                        \
                size_t n;                         \
                char **v;                         \
                va_start(ap, first);              \
                n = count_args(ap);               \
                va_end(ap);                       \
                v = alloca((n + 1) * sizeof(*v)); \
                va_start(ap, first);              \
                list_args(v, first, n, &ap);      \
                v;                                \
        })

int h_execl(const char *path, const char *arg, ...)
{
        va_list ap;
        char **argv = LIST_ARGS(arg, ap);

        va_end(ap);
        return h_execve(path, argv, environ);
}

int h_execlp(const char *file, const char *arg, ...)
{
        va_list ap;
        char **argv = LIST_ARGS(arg, ap);

        va_end(ap);
        return h_execvpe(file, argv, environ);
}

int h_execle(const char *path, const char *arg, ...)
{
        va_list ap;
        char **argv = LIST_ARGS(arg, ap);
        char *const *env = va_arg(ap, char *const *);

        va_end(ap);
        return h_execve(path, argv, env);
}

/* The child's numbers may be moved by its file actions; it looks at all it has, when it first
 * makes a call of ours. A socket that this process has closed by then lives as one in a message
 * does (file_left_to_spawned()). */
int h_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *fa,
                  const posix_spawnattr_t *at, char *const argv[], char *const env[])
{
        struct image s = {.dir = AT_FDCWD, .path = path, .actions = fa};

        if (something_survives(&s))
                env = ENV_ADOPTING(&s, env);
        return REAL(posix_spawn)(pid, path, fa, at, argv, env);
}

int h_posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *fa,
                   const posix_spawnattr_t *at, char *const argv[], char *const env[])
{
        struct image s = {.path = file, .searched = true, .actions = fa};

        if (something_survives(&s))
                env = ENV_ADOPTING(&s, env);
        return REAL(posix_spawnp)(pid, file, fa, at, argv, env);
}
