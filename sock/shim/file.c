/*
 * The table of numbers and the files behind them; see shim.h for who holds what.
 *
 * All memory is reserved once, sized by RLIMIT_NOFILE, and touched as it is used: nothing here
 * calls malloc, so every call that POSIX wants async-signal-safe is.
 */
#include "sock/shim/epoll.h"
#include "sock/shim/opts.h"
#include "sock/shim/process.h"
#include "sock/shim/relay.h"
#include "sock/shim/signals.h"
#include "sock/shim/spare.h"
#include "sock/shim/wait.h"
#include "sock/usock_connect.h"
#include "sock/usock_stamp.h"

#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/sandbox.h"
#include "unetd/client/wire.h"

#define NUMBERS_MAX (1u << 20)
#define NUMBERS_MIN (1u << 14) /* what we ask for when address space is limited */

struct shim shim = {.lock = PTHREAD_MUTEX_INITIALIZER, .placeholder = -1};
__thread struct shim_tls shim_tls;

static struct file *files; /* as many as numbers */
static unsigned files_used;
static struct file *files_free;

/* ---- start ---- */

static unsigned numbers_wanted(void)
{
        struct rlimit rl;

        if (getrlimit(RLIMIT_NOFILE, &rl) < 0 || rl.rlim_max > NUMBERS_MAX)
                return NUMBERS_MAX;
        return (unsigned)MAX(rl.rlim_max, 64);
}

static bool make_table(unsigned n)
{
        files = usock_reserve(n * (sizeof(*files) + sizeof(*shim.tab)));
        if (files)
                shim.tab = (struct file * _Atomic *)(files + n);
        return files != NULL;
}

static bool start_locked(void)
{
        unsigned n = numbers_wanted();

        assert(shim_locked());
        if (shim.disabled || shim.size)
                return shim.size != 0;
        if (getauxval(AT_SECURE) || getenv("UNET_DISABLE")) {
                shim.disabled = true;
                return false;
        }
        if (!make_table(n)) {
                n = MIN(n, NUMBERS_MIN);
                if (!make_table(n)) {
                        shim.disabled = true;
                        return false;
                }
        }
        /* A program may clear its environment. */
        shim.across_users = getenv("UNET_ACROSS_USERS") != NULL;
        signals_start();
        process_start();
        streams_start();
        atomic_thread_fence(memory_order_release);
        shim.size = n;
        return true;
}

bool shim_start(void)
{
        int err = errno;
        bool ok;

        if (likely(shim.size))
                return true;
        if (shim.disabled || sandbox_forbids(SANDBOX_UNETD))
                return false;
        usock_enter();
        pthread_mutex_lock(&shim.lock);
        ok = start_locked();
        pthread_mutex_unlock(&shim.lock);
        usock_leave();
        errno = err; /* of a call that succeeds it says nothing */
        return ok;
}

/* ---- files ---- */

static struct file *file_alloc(void)
{
        struct file *f;

        pthread_mutex_lock(&shim.lock);
        f = files_free;
        if (f)
                files_free = f->free_next;
        else if (files_used < shim.size)
                f = &files[files_used++];
        pthread_mutex_unlock(&shim.lock);
        return f;
}

static void file_free(struct file *f)
{
        assert(f->items == NULL && f->set == NULL);
        assert(atomic_load(&f->refs) == 0);
        assert(f->us == NULL);
        pthread_mutex_lock(&shim.lock);
        f->free_next = files_free;
        files_free = f;
        pthread_mutex_unlock(&shim.lock);
}

static void file_end(struct file *f)
{
        opts_free(f);
        if (f->set)
                epoll_file_ended(f);
        if (f->us)
                usock_close(f->us);
        f->us = NULL;
        file_free(f);
}

void file_unref(struct file *f)
{
        assert(atomic_load_explicit(&f->refs, memory_order_relaxed) != 0);
        if (atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) == 1)
                file_end(f);
}

struct file *file_ref_threaded(int fd)
{
        for (;;) {
                struct file *f = atomic_load_explicit(&shim.tab[fd], memory_order_acquire);
                uint32_t refs;

                if (!f)
                        return NULL;
                refs = atomic_load_explicit(&f->refs, memory_order_relaxed);
                while (refs && !atomic_compare_exchange_weak(&f->refs, &refs, refs + 1))
                        ;
                if (refs && atomic_load_explicit(&shim.tab[fd], memory_order_acquire) == f)
                        return f;
                if (refs)
                        file_unref(f);
        }
}

static void set_entry(int fd, struct file *f)
{
        unsigned top = atomic_load(&shim.top);

        assert((unsigned)fd < shim.size);
        while (top <= (unsigned)fd &&
               !atomic_compare_exchange_weak(&shim.top, &top, (unsigned)fd + 1))
                ;
        atomic_store_explicit(&shim.tab[fd], f, memory_order_release);
        atomic_fetch_add_explicit(&shim.changes, 1, memory_order_release);
}

/* The fields that outlive a life (refs is looked at by stale pointers) are set one by one. */
static void file_init(struct file *f, int fd, enum file_mode mode)
{
        assert(fd >= 0 && (unsigned)fd < shim.size);
        assert(mode <= MODE_UDP);
        f->mode = (uint8_t)mode;
        f->kind = 0;
        f->family = 0;
        f->nonblock = f->placeholder = f->bound = f->connecting = f->connected = f->retry =
                f->told = f->out = f->signals = f->stamped = false;
        f->shared = false;
        f->heard = 0;
        f->spare = 0;
        f->fresh = 0;
        f->kfd = fd;
        f->us = NULL;
        f->rcvtimeo = f->sndtimeo = 0;
        f->pace = (struct kernel_pace){.left = KERNEL_STEP / 4, .step = KERNEL_STEP / 4};
        f->items = NULL;
        f->set = NULL;
        atomic_store(&f->kernel_sleepers, 0);
        f->kernel_members = false;
        f->opts = NULL;
        f->relayed = NULL;
        f->why = NULL;
        atomic_store(&f->nfds, 1);
        atomic_store_explicit(&f->refs, 1, memory_order_release);
}

struct file *file_new(int fd, enum file_mode mode)
{
        struct file *f;

        if ((unsigned)fd >= shim.size)
                return NULL;
        if (shim.tab[fd])
                file_void(fd);
        f = file_alloc();
        if (f) {
                file_init(f, fd, mode);
                set_entry(fd, f);
        }
        return f;
}

void file_number(struct file *f, int fd)
{
        assert(atomic_load_explicit(&f->refs, memory_order_relaxed) != 0);
        if ((unsigned)fd >= shim.size)
                return;
        if (shim.tab[fd])
                file_void(fd);
        atomic_fetch_add(&f->nfds, 1);
        atomic_fetch_add(&f->refs, 1);
        set_entry(fd, f);
}

/* Another of its numbers, kfd being closed; -1: none. */
static int file_other_number(const struct file *f, int but)
{
        for (unsigned fd = 0; fd < shim.top; fd++)
                if (shim.tab[fd] == f && (int)fd != but)
                        return (int)fd;
        return -1;
}

void file_left_to_spawned(struct file *f)
{
        if (unlikely(f->spawned) && f->us && f->kfd >= 0)
                usock_fly(f->us);
        f->spawned = false;
}

static void file_lost_number(struct file *f, int fd)
{
        assert(atomic_load_explicit(&f->nfds, memory_order_relaxed) > 0);
        if (atomic_fetch_sub(&f->nfds, 1) == 1) {
                file_left_to_spawned(f);
                spare_used(f);
                if (f->us && f->kfd >= 0 && !f->placeholder)
                        usock_set_kfd(f->us, -1);
                f->kfd = -1;
                if (f->items || f->set ||
                    !__libc_single_threaded) /* epoll_ctl() may be about to make it a member */
                        epoll_file_closed(f);
        } else if (f->kfd == fd) {
                f->kfd = file_other_number(f, fd);
                if (f->us && !f->placeholder)
                        usock_set_kfd(f->us, f->kfd);
        }
}

void file_void(int fd)
{
        struct file *f;

        if ((unsigned)fd >= shim.size)
                return;
        usock_enter(); /* before it is nobody's: who takes the stacks away goes by the table */
        f = atomic_exchange(&shim.tab[fd], NULL);
        if (!f) {
                usock_leave();
                return;
        }
        while (unlikely(atomic_load(&f->pins) != 0))
                sandbox_yield();
        atomic_fetch_add_explicit(&shim.changes, 1, memory_order_release);
        file_lost_number(f, fd);
        file_unref(f);
        usock_leave();
}

/* The file of a number, which is not given up before number_unpin(): who closes it waits. */
static struct file *number_pin(int fd)
{
        struct file *f = atomic_load(&shim.tab[fd]);

        if (!f)
                return NULL;
        atomic_fetch_add(&f->pins, 1);
        if (atomic_load(&shim.tab[fd]) == f)
                return f;
        atomic_fetch_sub(&f->pins, 1);
        return NULL;
}

static void number_unpin(struct file *f)
{
        assert(atomic_load_explicit(&f->pins, memory_order_relaxed) > 0);
        atomic_fetch_sub(&f->pins, 1);
}

void file_at(int fd, void (*fn)(int fd, struct file *f, void *arg), void *arg)
{
        struct file *f = (unsigned)fd < shim.size ? number_pin(fd) : NULL;

        if (!f)
                return;
        fn(fd, f, arg);
        number_unpin(f);
}

void file_each(void (*fn)(int fd, struct file *f, void *arg), void *arg)
{
        for (unsigned fd = 0; fd < shim.top; fd++)
                file_at((int)fd, fn, arg);
}

/* ---- kernel descriptors of our own ---- */

bool shim_owns_fd(int fd)
{
        return shim.size && fd >= 0 &&
               (fd == shim.placeholder || usock_owns_fd(fd) || spares_own(fd) || relayed_owns(fd) ||
                relay_owns(fd) || epoll_owns_fd(fd));
}

int shim_high_fd(int fd)
{
        return fd < 0 ? fd : fd_high(fd);
}

/* ---- placeholders ---- */

struct replace {
        struct file *f;
        int with;
};

static bool number_closes_on_exec(int fd)
{
        return sys2(SYS_fcntl, fd, F_GETFD) & FD_CLOEXEC;
}

static void replace_number(int fd, struct file *f, void *arg)
{
        struct replace *r = arg;

        if (f == r->f)
                sys3(SYS_dup3, r->with, fd, number_closes_on_exec(fd) ? O_CLOEXEC : 0);
}

int file_materialise(struct file *f)
{
        struct replace r = {f, -1};

        if (!f->placeholder)
                return 0;
        r.with = (int)sys3(SYS_socket, f->family,
                           SOCK_STREAM | SOCK_CLOEXEC | (file_nonblock(f) ? SOCK_NONBLOCK : 0), 0);
        if (r.with < 0)
                return r.with;
        opts_replay_kernel(f, r.with);
        if (f->nfds == 1)
                file_at(f->kfd, replace_number, &r);
        else
                file_each(replace_number, &r);
        sys1(SYS_close, r.with);
        f->placeholder = false;
        usock_set_kfd(f->us, f->kfd);
        return 0;
}

void file_keep_flags(int fd, const struct file *f)
{
        long flags = sys2(SYS_fcntl, fd, F_GETFL);

        sys3(SYS_fcntl, fd, F_SETFL, file_nonblock(f) ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

/* Another image or process will know it by the cookie of its kernel socket. */
void file_known_outside(struct file *f)
{
        spare_used(f);
        if (f->us)
                usock_goes_outside(f->us);
        if (f->placeholder)
                file_materialise(f);
        else if (f->us)
                usock_set_kfd(f->us, f->kfd);
}

/* ---- fork ---- */

/*
 * Children that become other programs must not each make a kernel socket for the same connection:
 * their images would look for it by different cookies. So the parent makes it. One that is
 * close-on-exec is, at most, the matter of the child that it is for.
 */
static void share_kernel_socket(int fd, struct file *f, void *arg)
{
        file_share(f);
        if (__atomic_load_n(&f->mode, __ATOMIC_ACQUIRE) != MODE_TCP || !f->placeholder ||
            number_closes_on_exec(fd))
                return;
        f->told = true;
        file_materialise(f);
}

void file_fork_prepare(void)
{
        assert(usock_tls.inside && shim_locked());
        file_each(share_kernel_socket, NULL);
}

/* References of threads that do not exist here are forgotten. Files that only they held stay lost,
 * and so does what one of them was just about to return from accept(): nobody here has been told
 * of it. */
void file_fork_child(void)
{
        for (unsigned i = 0; i < files_used; i++)
                if (atomic_load_explicit(&files[i].nfds, memory_order_relaxed) > 0) {
                        atomic_store_explicit(&files[i].refs, 0, memory_order_relaxed);
                        atomic_store_explicit(&files[i].pins, 0, memory_order_relaxed);
                }
        for (unsigned fd = 0; fd < shim.top; fd++) {
                struct file *f = shim.tab[fd];

                if (!f)
                        continue;
                atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
                if (f->mode == MODE_TCP && f->placeholder && !f->told &&
                    !number_closes_on_exec((int)fd))
                        f->mode = MODE_KERNEL;
        }
        shim_tls.held = false;
}

/* ---- adoption: sockets that another image or process made ---- */

static enum file_mode mode_of(struct usock *s, int fd)
{
        int listening = 0;
        socklen_t len = sizeof(listening);

        if (usock_kind(s) == USOCK_UDP)
                return MODE_UDP;
        sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len);
        return listening ? MODE_LISTEN : MODE_TCP;
}

static nstime kernel_timeo(int fd, int name)
{
        struct timeval tv = {0, 0};
        socklen_t len = sizeof(tv);

        sys5(SYS_getsockopt, fd, SOL_SOCKET, name, &tv, &len);
        return tv.tv_sec * NS_PER_S + tv.tv_usec * NS_PER_US;
}

static int adopt(int fd, int domain, uint64_t cookie)
{
        struct usock *s;
        struct file *f;
        int err;

        assert(usock_tls.inside && shim.size != 0);
        err = usock_adopt(cookie, fd, &s);
        if (err < 0)
                return err;
        f = file_new(fd, mode_of(s, fd));
        if (!f) {
                usock_close(s);
                return -ENOMEM;
        }
        f->us = s;
        f->family = (sa_family_t)domain;
        f->kind = (uint8_t)usock_kind(s);
        f->bound = f->mode == MODE_UDP && usock_has_port(s);
        f->connecting = f->mode == MODE_TCP &&
                        (usock_connect_failed(s) || !(usock_poll(s) & USOCK_POLL_MADE));
        f->stamped = f->kind == USOCK_TCP && usock_is_stamped(s);
        f->rcvtimeo = kernel_timeo(fd, SO_RCVTIMEO);
        f->sndtimeo = kernel_timeo(fd, SO_SNDTIMEO);
        f->signals = true; /* it may */
        f->shared = usock_said(s) != 0;
        f->why = "adopted from another process";
        pthread_mutex_lock(&shim.lock);
        file_hear_locked(f);
        pthread_mutex_unlock(&shim.lock);
        log_decision(f);
        return 0;
}

/* A connection of the kernel's is none of ours. */
static bool is_connected(int fd)
{
        struct sockaddr_storage peer;
        socklen_t len = sizeof(peer), tlen = sizeof(int);
        int type = 0;

        return sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &tlen) == 0 &&
               type == SOCK_STREAM && sys3(SYS_getpeername, fd, &peer, &len) == 0;
}

/* 0, or why it is none of ours. -EAGAIN: that cannot be said yet. Whoever has it has not come back
 * to a new unetd, or a keeper has just died. */
static int try_adopt_fd(int fd)
{
        int domain = 0, err;
        uint64_t cookie = 0;
        socklen_t len = sizeof(domain), clen = sizeof(cookie);

        if (sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 ||
            (domain != AF_INET && domain != AF_INET6) ||
            sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_COOKIE, &cookie, &clen) < 0)
                return -ENOTSOCK;
        if (!shim_start())
                return -ENOMEM;
        usock_enter();
        err = adopt(fd, domain, cookie);
        usock_leave();
        if (err != -EAGAIN && err != -ECONNRESET)
                return err;
        return is_connected(fd) ? -ENOENT : -EAGAIN;
}

/* Longer than a keeper waits for another one. */
#define ADOPT_TRIES 200

static bool adopt_again(int tries)
{
        const struct timespec pause = {.tv_nsec = 10 * NS_PER_MS};

        if (tries > 0)
                sys2(SYS_nanosleep, &pause, NULL);
        return tries < ADOPT_TRIES;
}

bool shim_adopt_fd(int fd)
{
        int err = -EAGAIN;

        for (int i = 0; err == -EAGAIN && adopt_again(i); i++)
                err = try_adopt_fd(fd);
        return err == 0;
}

struct dirent64_raw {
        uint64_t ino;
        int64_t off;
        unsigned short reclen;
        unsigned char type;
        char name[];
};

void file_each_open(void (*fn)(int fd, void *arg), void *arg)
{
        char buf[4096] __attribute__((aligned(8)));
        int dir = (int)sys4(SYS_openat, AT_FDCWD, "/proc/self/fd",
                            O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
        long n;

        if (dir < 0)
                return;
        while ((n = sys3(SYS_getdents64, dir, buf, sizeof(buf))) > 0)
                for (long at = 0; at < n; at += ((struct dirent64_raw *)(buf + at))->reclen) {
                        const char *name = ((struct dirent64_raw *)(buf + at))->name;

                        if (name[0] != '.' && atoi(name) != dir)
                                fn(atoi(name), arg);
                }
        sys1(SYS_close, dir);
}

/* What this image was given. */
struct given {
        int adopted;
        bool again;
};

static void adopt_one(int fd, void *arg)
{
        struct given *g = arg;
        int err = file_peek(fd) ? -EEXIST : try_adopt_fd(fd);

        g->adopted += err == 0;
        g->again |= err == -EAGAIN;
}

/* So many of its numbers are sockets of ours. */
static void adopt_all(int n)
{
        struct given g = {.again = true};

        for (int i = 0; g.again && g.adopted < n && adopt_again(i); i++) {
                g.again = false;
                file_each_open(adopt_one, &g);
        }
}

static void set_comes(int fd, void *arg)
{
        epoll_comes(fd);
}

/*
 * Before the program's first instruction: whatever its first call is (fork, exec, epoll_ctl), it is
 * made by a process that has what it was given. Whoever became this program said that there is
 * something to find; nobody else pays for looking. Who has sets of its own image is told of them; a
 * child of posix_spawn() has those of its parent.
 */
__attribute__((constructor)) static void adopt_at_start(void)
{
        const char *adopt = getenv("UNET_ADOPT");

        if (!adopt || getenv("UNET_DISABLE") || getauxval(AT_SECURE))
                return;
        adopt_all(atoi(adopt));
        if (shim_started() && !strchr(adopt, ','))
                file_each_open(set_comes, NULL);
        usock_enter();
        epoll_image_take(adopt);
        usock_adopted();
        usock_leave();
}
