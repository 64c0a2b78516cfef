/*
 * Waiting for any mixture: connections of ours, sockets with two sides, epoll descriptors that hold
 * some of ours, and whatever else the kernel has. What poll() and select() are made of.
 *
 * First a look at ours alone, which costs a few nanoseconds each (programs select before every
 * read); the kernel is asked as well when it is its turn. Only when nothing of ours is ready are
 * wait items made, for usock_wait().
 */
#include "sock/shim/epoll.h"
#include "sock/shim/transfer.h"
#include "sock/shim/wait.h"
#include "sock/shim/want.h"

#include <sys/mman.h>

#define ON_STACK 128 /* wait items that need no memory */

short file_poll_ours(struct file *f)
{
        assert(f->mode == MODE_EPOLL || f->us != NULL);
        if (f->mode == MODE_EPOLL)
                return f->set && epoll_set_ready(f->set, NULL) ? POLLIN | POLLRDNORM : 0;
        return usock_poll(f->us);
}

static bool kernel_side_too(const struct file *f)
{
        return f->mode != MODE_TCP;
}

static bool may_be_ours(const struct file *f)
{
        return f->mode >= MODE_TCP || f->shared || (f->mode == MODE_EPOLL && f->set);
}

/* Ours, for waiting: an undecided socket is the kernel's so far. */
static struct file *take_file(int fd)
{
        struct file *f = file_peek(fd);

        if (!f || !may_be_ours(f))
                return NULL;
        if (!__libc_single_threaded)
                f = file_ref_threaded(fd);
        if (!f || likely(!f->shared))
                return f;
        file_hear(f);
        if (f->mode >= MODE_TCP)
                return f;
        if (!__libc_single_threaded)
                file_unref(f);
        return NULL;
}

static bool take_files(struct want *w, int n)
{
        bool any = false;

        assert(usock_tls.inside);
        for (int i = 0; i < n; i++) {
                w[i].f = take_file(w[i].fd);
                any |= w[i].f != NULL;
        }
        return any;
}

static void drop_files(struct want *w, int n, bool threaded)
{
        for (int i = 0; threaded && i < n; i++)
                if (w[i].f)
                        file_unref(w[i].f);
}

static short wanted(const struct want *w, short revents)
{
        return revents & (short)(w->events | POLLERR | POLLHUP | POLLNVAL);
}

static int count_ready(const struct want *w, int n)
{
        int ready = 0;

        for (int i = 0; i < n; i++)
                ready += w[i].revents != 0;
        return ready;
}

/* Only our sides, without sleeping. */
static int look_at_ours(struct want *w, int n)
{
        int ready = 0;

        usock_progress_if_due();
        for (int i = 0; i < n; i++) {
                w[i].revents = w[i].f ? wanted(&w[i], file_poll_ours(w[i].f)) : 0;
                ready += w[i].revents != 0;
        }
        return ready;
}

/* ---- wait items ---- */

struct items {
        struct usock_item stack[ON_STACK];
        struct usock_item *v;
        int n, room;
};

static bool items_room(struct items *it, int need)
{
        size_t bytes = (size_t)need * sizeof(*it->v);

        it->v = it->stack;
        it->room = need;
        it->n = 0;
        if (need <= ON_STACK)
                return true;
        it->v = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return it->v != MAP_FAILED;
}

static void items_free(struct items *it)
{
        if (it->v != it->stack && it->v != MAP_FAILED)
                munmap(it->v, (size_t)it->room * sizeof(*it->v));
}

static void add_item(struct items *it, struct usock *s, int fd, short events)
{
        if (it->n < it->room)
                it->v[it->n++] = (struct usock_item){.s = s, .fd = fd, .events = events};
}

/* The kernel's side first; then ours. The kernel's side of a UDP socket always has room:
 * ours decides. */
static void add_want(struct items *it, const struct want *w)
{
        if (w->fd < 0)
                return;
        if (!w->f)
                add_item(it, NULL, w->fd, w->events);
        else if (kernel_side_too(w->f))
                add_item(it, NULL, w->fd, w->events & ~(POLLOUT | POLLWRNORM | POLLWRBAND));
        if (w->f && w->f->mode != MODE_EPOLL)
                add_item(it, w->f->us, -1, w->events);
}

/* After a wait: what the kernel said goes to whom it concerns; ours are looked at afresh. */
static void collect(struct items *it, struct want *w, int n)
{
        int at = 0;

        for (int i = 0; i < n; i++) {
                short revents = w[i].f ? file_poll_ours(w[i].f) : 0;

                if (w[i].fd >= 0 && (!w[i].f || kernel_side_too(w[i].f))) {
                        while (at + 1 < it->n && (it->v[at].s || it->v[at].fd != w[i].fd))
                                at++;
                        revents |= it->v[at++].revents;
                }
                w[i].revents = wanted(&w[i], revents);
        }
}

/* Some of the kernel's descriptors from item *i on, at once. */
static bool ask_kernel_some(struct items *it, int *i)
{
        struct timespec now = {0, 0};
        struct pollfd v[ON_STACK];
        int n = 0, at = *i, of[ON_STACK];

        for (; at < it->n && n < ON_STACK; at++) {
                if (it->v[at].s)
                        continue;
                of[n] = at;
                v[n++] = (struct pollfd){.fd = it->v[at].fd, .events = it->v[at].events};
        }
        *i = at;
        if (!n || sys5(SYS_ppoll, v, n, &now, NULL, 0) <= 0)
                return false;
        while (n-- > 0)
                it->v[of[n]].revents = v[n].revents;
        return true;
}

static int ask_kernel(struct items *it)
{
        bool something = false;

        for (int i = 0; i < it->n;)
                something |= ask_kernel_some(it, &i);
        kernel_answered(&shim_tls.watch, something);
        return 0;
}

/* Epoll descriptors among them are waited for by news: from before the first of them was looked at.
 * Their number, or -1 when one has become ready. */
static int sets_ready(struct want *w, int n, struct usock_news *seen)
{
        struct usock_news rest;
        int sets = 0;

        for (int i = 0; i < n; i++) {
                if (!w[i].f || w[i].f->mode != MODE_EPOLL)
                        continue;
                if (epoll_set_ready(w[i].f->set, sets ? &rest : seen)) {
                        w[i].revents = wanted(&w[i], POLLIN | POLLRDNORM);
                        if (w[i].revents)
                                return -1;
                }
                sets++;
        }
        return sets;
}

/* Ready ones, or -EINTR, -ERR_AGAIN; 0 when the time is over. only_look: ours are ready, the kernel
 * has its turn. */
static int sleep_for(struct want *w, int n, struct until *u, const sigset_t *mask, bool only_look)
{
        struct usock_news seen;
        struct items it;
        int r, by_news = only_look ? 0 : sets_ready(w, n, &seen);

        if (by_news < 0)
                return count_ready(w, n);
        if (!items_room(&it, 2 * n))
                return -ENOMEM;
        for (int i = 0; i < n; i++)
                add_want(&it, &w[i]);
        r = only_look ? ask_kernel(&it) : wait_items(it.v, it.n, u, mask, by_news ? &seen : NULL);
        if (r >= 0) {
                collect(&it, w, n);
                r = count_ready(w, n);
        }
        items_free(&it);
        return r;
}

/* Ours are ready; is the kernel asked as well? For the other sides of ours, seldom. */
static bool kernels_turn(const struct want *w, int n)
{
        bool alone = false, beside = false;

        for (int i = 0; i < n && !alone; i++) {
                alone = w[i].fd >= 0 && !w[i].f;
                beside |= w[i].f && kernel_side_too(w[i].f);
        }
        if (!alone && !beside)
                return false;
        if (shim_tls.kernel_due || kernel_news(&shim_tls.watch)) {
                shim_tls.kernel_due = false;
                return true;
        }
        return alone ? kernel_is_due(&shim_tls.watch) : kernel_turn(&shim_tls.watch.pace);
}

/* What was ready may be so no more when the kernel has answered: another thread has taken the
 * datagram, or just writes one. */
static int wait_mixed(struct want *w, int n, struct until *u, const sigset_t *mask)
{
        int r = look_at_ours(w, n);

        if (r && kernels_turn(w, n))
                r = sleep_for(w, n, u, NULL, true);
        while (!r) {
                r = sleep_for(w, n, u, mask, false);
                if (r || until_over(u))
                        break;
        }
        return r;
}

int want_any(struct want *w, int n, struct until *u, const sigset_t *mask)
{
        bool threaded;
        int r = -ERR_KERNEL;

        usock_enter();
        threaded = !__libc_single_threaded;
        if (take_files(w, n))
                r = wait_mixed(w, n, u, mask);
        drop_files(w, n, threaded);
        usock_leave();
        return r;
}
