/*
 * epoll sets with two halves. The kernel's half is the real epoll descriptor: it holds what is the
 * kernel's, and the kernel's side of sockets that have two. Our half is a list of members beside
 * it.
 *
 * The kernel must not be told the program's data for a file we know, since its answer has to be
 * joined with ours. It is told a word of ours instead, which nothing of the program's can equal.
 * What we do not know goes in untouched.
 *
 *   epfd --tab[]--> file --set--> members --> file of ours --us
 *     \                              |
 *      +-- kernel's half: {kernel fds, the program's data}, {a member's kernel side, the member}
 *
 * What may be ready is on the set's queue. A member comes to it when it is added or changed, and
 * when usock_news() names its socket. So a call costs by what happened and not by the members there
 * are. On it a member is looked at. A member without events leaves. A level-triggered one with
 * events is reported and goes to the end. An edge-triggered one is reported if usock_edges() has
 * moved since, or it is new or re-armed, and leaves. That is epoll(7), to the letter. A one-shot
 * member is off, on both sides, from its report to EPOLL_CTL_MOD.
 *
 * A member is (number, file), as in the kernel: a duplicate is another member, and a member goes
 * when the last number of its file is closed. Files that change sides (an undecided socket is told
 * to connect) take their members along. Locks: shim.lock when members come and go, then the set's.
 */
#include "sock/shim/cancel.h"
#include "sock/shim/epoll_set.h"
#include "sock/shim/wait.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include "base/sandbox.h"

int h_epoll_create1(int flags)
{
        int fd = fd_returned(FD_TRY(REAL(epoll_create1)(flags)));

        if (fd >= 0 && shim.size && !usock_tls.inside) {
                usock_enter();
                file_new(fd, MODE_EPOLL);
                usock_leave();
        }
        return fd;
}

int h_epoll_create(int size)
{
        if (size <= 0) {
                errno = EINVAL;
                return -1;
        }
        return h_epoll_create1(0);
}

/* Its other numbers, which are as old: what is put into it by one of them can be changed by all. */
static void find_duplicates(struct file *f, int epfd)
{
        struct epoll_event none = {0};
        int mark = shim_high_fd((int)sys2(SYS_eventfd2, 0, EFD_CLOEXEC));
        DIR *d = opendir("/proc/self/fd");
        struct dirent *e;

        if (d && sys4(SYS_epoll_ctl, epfd, EPOLL_CTL_ADD, mark, &none) == 0)
                while ((e = readdir(d)) != NULL) {
                        int fd = e->d_name[0] == '.' ? epfd : (int)strtol(e->d_name, NULL, 10);

                        if (fd != epfd && !file_peek(fd) &&
                            sys4(SYS_epoll_ctl, fd, EPOLL_CTL_MOD, mark, &none) == 0)
                                file_number(f, fd);
                }
        if (d)
                closedir(d);
        if (mark >= 0)
                sys1(SYS_close, mark);
}

bool epoll_is_one(int fd)
{
        static const char name[] = "anon_inode:[eventpoll]";
        char path[32], is[sizeof(name)];
        struct stat sb;
        long n;

        if (fstat(fd, &sb) < 0 || (sb.st_mode & S_IFMT) != 0) /* what has no place has no type */
                return false;
        if (atomic_load(&sandbox_forbidden) != 0)
                return true; /* for all that can be known */
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        n = sys4(SYS_readlinkat, AT_FDCWD, path, is, sizeof(is));
        return n < 0 || (n == sizeof(name) - 1 && memcmp(is, name, sizeof(name) - 1) == 0);
}

/* The file of an epoll descriptor that is to hold one of ours; it may be older than our table. */
struct file *epoll_file(int epfd)
{
        struct file *f = file_peek(epfd);

        if (!f && (unsigned)epfd < shim.size) {
                if (!epoll_is_one(epfd))
                        return NULL;
                f = file_new(epfd, MODE_EPOLL);
                if (f) {
                        f->kernel_members = true;
                        if (atomic_load(&sandbox_forbidden) ==
                            0) /* opening directories may be its end */
                                find_duplicates(f, epfd);
                }
        }
        return f && f->mode == MODE_EPOLL ? f : NULL;
}

/* epoll_ctl(2): what may stand beside EPOLLEXCLUSIVE. */
static bool bad_exclusive(const struct file *f, uint32_t events)
{
        const uint32_t allowed =
                EPOLLEXCLUSIVE | EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET;

        return events & EPOLLEXCLUSIVE && (events & ~allowed || f->mode == MODE_EPOLL);
}

static int ctl_known(struct file *ef, int epfd, int op, struct file *f, int fd,
                     struct epoll_event *ev)
{
        struct epoll_item *it = ef->set ? epoll_item_find(ef->set, f, fd) : NULL;

        assert(shim_locked());
        if (op == EPOLL_CTL_ADD) {
                if (!it && f->mode == MODE_KERNEL)
                        return (int)sys4(SYS_epoll_ctl, epfd, op, fd, ev);
                if (!ef->set)
                        ef->set = epoll_set_new(ef);
                if (!ef->set)
                        return -ENOMEM;
                if (ef == f || bad_exclusive(f, ev->events))
                        return -EINVAL;
                return epoll_item_add(ef->set, f, fd, ev);
        }
        if (!it)
                return (int)sys4(SYS_epoll_ctl, epfd, op, fd, ev);
        if (op == EPOLL_CTL_MOD)
                return epoll_item_mod(ef->set, it, ev);
        if (op != EPOLL_CTL_DEL)
                return -EINVAL;
        epoll_item_remove(it, true);
        return 0;
}

/* Something of the kernel's is in it from now on, also when what is ours comes later. */
static void kernel_joins(struct file *ef)
{
        ef->kernel_members = true;
        if (!ef->set)
                return;
        ef->set->kernel_half = true;
        epoll_kick(ef->set);
}

/* Another thread closed one of them: whoever does so takes the members away under shim.lock, and
 * looks for them there. */
static bool are_closed(int epfd, const struct file *ef, int fd, const struct file *f)
{
        return unlikely(file_peek(epfd) != ef || file_peek(fd) != f);
}

static int do_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
        struct file *f, *ef;
        int r;

        if (op != EPOLL_CTL_DEL && !user_read_range(ev, sizeof(*ev)))
                return -EFAULT;
again:
        f = file_peek(fd);
        ef = f ? epoll_file(epfd) : file_peek(epfd);
        if (!f || !ef || ef->mode != MODE_EPOLL) {
                r = (int)sys4(SYS_epoll_ctl, epfd, op, fd, ev);
                if (r == 0 && op == EPOLL_CTL_ADD && ef)
                        kernel_joins(ef);
                return r;
        }
        pthread_mutex_lock(&shim.lock);
        if (are_closed(epfd, ef, fd, f)) {
                pthread_mutex_unlock(&shim.lock);
                goto again;
        }
        file_hear_locked(f);
        r = ctl_known(ef, epfd, op, f, fd, ev);
        if (r == 0 && op == EPOLL_CTL_ADD && f->mode == MODE_KERNEL)
                kernel_joins(ef);
        pthread_mutex_unlock(&shim.lock);
        return r;
}

int h_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
        ssize_t r;

        if (!shim.size || usock_tls.inside || (!file_peek(fd) && !file_peek(epfd)))
                return REAL(epoll_ctl)(epfd, op, fd, ev);
        usock_enter();
        r = do_ctl(epfd, op, fd, ev);
        usock_leave();
        result_again(&r);
        return (int)r;
}

/* A set that has or had some of ours, entered; or NULL. */
static struct file *enter_any_set(int epfd)
{
        struct file *f = file_peek(epfd);

        return likely(!f) || f->mode != MODE_EPOLL || !f->set ? NULL : file_enter(epfd, MODE_EPOLL);
}

/* One that has some; NULL: the kernel's call is the right one. */
static struct file *enter_set(int epfd)
{
        struct file *f = file_peek(epfd);

        return likely(!f) || f->mode != MODE_EPOLL || !f->set || !f->set->count
                       ? NULL
                       : file_enter(epfd, MODE_EPOLL);
}

static int wait_entered(struct file *f, struct epoll_event *ev, int max, struct until *u,
                        const sigset_t *mask)
{
        int r = max <= 0 ? -EINVAL : epoll_set_wait(f->set, ev, max, u, mask);

        file_leave(f);
        return r;
}

/* Members came while we slept in the kernel alone: its answer is in their terms, also when they
 * have left again. */
static int translate(int epfd, struct epoll_event *ev, int n)
{
        struct file *f = enter_any_set(epfd);
        struct harvest h = {.ev = ev, .max = n};

        if (!f)
                return n;
        pthread_mutex_lock(&f->set->lock);
        f->set->round++;
        for (int i = 0; i < n; i++) {
                struct epoll_event one = ev[i];
                struct epoll_item *it;
                enum whose whose = epoll_whose(f->set, one.data.u64, &it);

                if (whose == MEMBERS)
                        epoll_harvest_member(&h, f->set, it, one.events);
                else if (whose == PROGRAMS)
                        ev[h.n++] = one;
        }
        pthread_mutex_unlock(&f->set->lock);
        file_leave(f);
        return h.n ? h.n : -ERR_AGAIN;
}

/* A thread that sleeps in libc's call must be woken when the set gets its first member. */
static struct file *kernel_sleeps(int epfd)
{
        struct file *f = __libc_single_threaded ? NULL : file_peek(epfd);

        if (!f || f->mode != MODE_EPOLL)
                return NULL;
        atomic_fetch_add(&f->kernel_sleepers, 1);
        return f;
}

static void kernel_slept(struct file *f)
{
        if (f)
                atomic_fetch_sub(&f->kernel_sleepers, 1);
}

/* The result of libc's call; true: nothing of it was for the program, once more. */
static bool kernel_again(int epfd, struct epoll_event *ev, ssize_t *r, struct until *u)
{
        if (likely(*r <= 0) || usock_tls.inside)
                return false;
        *r = translate(epfd, ev, (int)*r);
        if (*r != -ERR_AGAIN)
                return false;
        *r = 0;
        return !until_over(u);
}

int h_epoll_wait(int epfd, struct epoll_event *ev, int max, int timeout)
{
        struct until u = until_ms(timeout);
        ssize_t r;

        cancellation_point();
        for (;;) {
                struct file *f = enter_set(epfd);

                if (!f) {
                        f = kernel_sleeps(epfd);
                        r = REAL(epoll_wait)(epfd, ev, max, timeout);
                        kernel_slept(f);
                        if (!kernel_again(epfd, ev, &r, &u))
                                return (int)r;
                        continue;
                }
                r = wait_entered(f, ev, max, &u, NULL);
                if (!result_again(&r))
                        return (int)r;
        }
}

int h_epoll_pwait(int epfd, struct epoll_event *ev, int max, int timeout, const sigset_t *mask)
{
        struct until u = until_ms(timeout);
        ssize_t r;

        cancellation_point();
        for (;;) {
                struct file *f = shim_started() && !bad_mask(mask) ? enter_set(epfd) : NULL;

                if (!f) {
                        f = kernel_sleeps(epfd);
                        r = REAL(epoll_pwait)(epfd, ev, max, timeout, mask);
                        kernel_slept(f);
                        if (!kernel_again(epfd, ev, &r, &u))
                                return (int)r;
                        continue;
                }
                r = wait_entered(f, ev, max, &u, mask);
                if (!result_again(&r))
                        return (int)r;
        }
}

int h_epoll_pwait2(int epfd, struct epoll_event *ev, int max, const struct timespec *timeout,
                   const sigset_t *mask)
{
        bool good = shim_started() && !bad_time(timeout) && !bad_mask(mask);
        struct until u = until_ts(good ? timeout : NULL);
        ssize_t r;

        cancellation_point();
        for (;;) {
                struct file *f = good ? enter_set(epfd) : NULL;

                if (!f) {
                        f = kernel_sleeps(epfd);
                        r = REAL(epoll_pwait2)(epfd, ev, max, timeout, mask);
                        kernel_slept(f);
                        if (r > 0 && !good) { /* the kernel could read it */
                                u = until_ts(timeout);
                                good = true;
                        }
                        if (!kernel_again(epfd, ev, &r, &u))
                                return (int)r;
                        continue;
                }
                r = wait_entered(f, ev, max, &u, mask);
                if (!result_again(&r))
                        return (int)r;
        }
}
