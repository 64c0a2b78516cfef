/*
 * poll and select over any mixture: connections of ours, sockets with two sides, epoll descriptors that hold some of
 * ours, and whatever else the kernel has.
 *
 * First a look at ours alone, which costs a few nanoseconds each (programs select before every read); the kernel is
 * asked as well when it is its turn. Only when nothing of ours is ready are wait items made, for usock_wait().
 */
#include "sock/shim/shim.h"

#include <limits.h>
#include <sys/mman.h>

#define ON_STACK 128            /* wait items that need no memory */

/* One thing to wait for, whoever asked. */
struct want {
        int fd;
        short events;
        short revents;
        struct file *f;         /* NULL: the kernel's; a reference in threaded programs */
};

short file_poll_ours(struct file *f)
{
        if (f->mode == MODE_EPOLL)
                return f->set && epoll_set_ready(f->set, NULL) ? POLLIN | POLLRDNORM : 0;
        return usock_poll(f->us);
}

static bool kernel_side_too(const struct file *f)
{
        return f->mode != MODE_TCP;
}

/* Ours, for waiting: an undecided socket is the kernel's so far. */
static struct file *take_file(int fd)
{
        struct file *f = file_peek(fd);

        if (!f || (f->mode < MODE_TCP && !(f->mode == MODE_EPOLL && f->set)))
                return NULL;
        return __libc_single_threaded ? f : file_ref_threaded(fd);
}

static bool take_files(struct want *w, int n)
{
        bool any = false;

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

/* The kernel's side first; then ours. The kernel's side of a UDP socket always has room: ours decides. */
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

/* Epoll descriptors among them are waited for by news: from before the first of them was looked at. Their number, or -1
 * when one has become ready. */
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

/* Ready ones, or -EINTR, -ERR_AGAIN; 0 when the time is over. only_look: ours are ready, the kernel has its turn. */
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

static int wait_mixed(struct want *w, int n, struct until *u, const sigset_t *mask)
{
        int r = look_at_ours(w, n);

        if (r && kernels_turn(w, n))
                return sleep_for(w, n, u, NULL, true);
        while (!r) {
                r = sleep_for(w, n, u, mask, false);
                if (r || until_over(u))
                        break;
        }
        return r;
}

/* -1 with -ERR_KERNEL: none of these is ours, libc's call is the right one. */
#define ERR_KERNEL 514

static int wait_any(struct want *w, int n, struct until *u, const sigset_t *mask)
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

static bool any_ours(int fd)
{
        struct file *f = file_peek(fd);

        return f && (f->mode >= MODE_TCP || f->set);
}

/* ---- poll ---- */

static bool poll_concerns_us(const struct pollfd *v, nfds_t n)
{
        if (usock_tls.inside || (!shim.size && !shim.adopt) || n > INT_MAX / sizeof(*v) || !user_read_range(v, n * sizeof(*v)))
                return false;
        for (nfds_t i = 0; i < n; i++)
                if (any_ours(v[i].fd))
                        return true;
        return false;
}

static int poll_wants(struct pollfd *v, struct want *w, nfds_t n, struct until *u, const sigset_t *mask)
{
        int r;

        for (nfds_t i = 0; i < n; i++)
                w[i] = (struct want){.fd = v[i].fd, .events = v[i].events};
        r = wait_any(w, (int)n, u, mask);
        for (nfds_t i = 0; r >= 0 && i < n; i++)
                if (unlikely(!user_put16(&v[i].revents, (uint16_t)w[i].revents)))
                        r = -EFAULT;
        return r;
}

static int poll_once(struct pollfd *v, nfds_t n, struct until *u, const sigset_t *mask)
{
        struct want stack[ON_STACK / 2], *w = stack;
        size_t bytes = n * sizeof(*w);
        int r;

        if (n <= ARRAY_LEN(stack))
                return poll_wants(v, stack, n, u, mask);
        w = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (w == MAP_FAILED)
                return -ENOMEM;
        r = poll_wants(v, w, n, u, mask);
        munmap(w, bytes);
        return r;
}

/* poll is never restarted after a handler; woken for nothing, it goes on until its deadline. */
static int do_poll(struct pollfd *v, nfds_t n, struct until *u, const sigset_t *mask)
{
        ssize_t r;

        do {
                r = poll_once(v, n, u, mask);
                if (r == -ERR_KERNEL)
                        return -ERR_KERNEL;
        } while (result_again(&r));
        return (int)r;
}

int h_poll(struct pollfd *v, nfds_t n, int timeout)
{
        struct until u = until_ms(timeout);
        int r = -ERR_KERNEL;

        if (poll_concerns_us(v, n))
                r = do_poll(v, n, &u, NULL);
        return r == -ERR_KERNEL ? REAL(poll)(v, n, timeout) : r;
}

int h___poll(struct pollfd *v, nfds_t n, int timeout)
{
        return h_poll(v, n, timeout);
}

int h___poll_chk(struct pollfd *v, nfds_t n, int timeout, size_t room)
{
        return room / sizeof(*v) < n ? REAL(__poll_chk)(v, n, timeout, room) : h_poll(v, n, timeout);
}

/* Times that the kernel refuses, and its reason, are its own; so is a mask that is not there. */
static bool bad_time(const struct timespec *ts)
{
        return ts && (!user_read_range(ts, sizeof(*ts)) || ts->tv_sec < 0 || ts->tv_nsec < 0 || ts->tv_nsec >= NS_PER_S);
}

static bool bad_mask(const sigset_t *mask)
{
        return mask && !user_read_range(mask, sizeof(uint64_t));
}

int h_ppoll(struct pollfd *v, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
        struct until u;
        int r = -ERR_KERNEL;

        if (poll_concerns_us(v, n) && !bad_time(timeout) && !bad_mask(mask)) {
                u = until_ts(timeout);
                r = do_poll(v, n, &u, mask);
        }
        return r == -ERR_KERNEL ? REAL(ppoll)(v, n, timeout, mask) : r;
}

int h___ppoll_chk(struct pollfd *v, nfds_t n, const struct timespec *timeout, const sigset_t *mask, size_t room)
{
        return room / sizeof(*v) < n ? REAL(__ppoll_chk)(v, n, timeout, mask, room) : h_ppoll(v, n, timeout, mask);
}

/* ---- select ---- */

#define SELECT_IN  (POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR)
#define SELECT_OUT (POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR)
#define WORD_BITS  (8 * (int)sizeof(long))

static unsigned long word_of(const fd_set *s, int i)
{
        unsigned long w;

        if (!s)
                return 0;
        memcpy(&w, (const char *)s + (size_t)i * sizeof(w), sizeof(w));
        return w;
}

static bool put_word(fd_set *s, int i, unsigned long w)
{
        return !s || user_put64((char *)s + (size_t)i * sizeof(w), w);
}

/* A set of n bits; the kernel reads and writes whole words of it. */
static bool set_readable(const fd_set *s, int n)
{
        return !s || user_read_range(s, (size_t)(n + WORD_BITS - 1) / WORD_BITS * sizeof(long));
}

/* The bits below n that are set in any of the three. */
static unsigned long any_word(const fd_set *r, const fd_set *w, const fd_set *x, int i, int n)
{
        unsigned long bits = word_of(r, i) | word_of(w, i) | word_of(x, i);
        int rest = n - i * WORD_BITS;

        return rest >= WORD_BITS ? bits : bits & ((1UL << rest) - 1);
}

static bool select_concerns_us(int n, const fd_set *r, const fd_set *w, const fd_set *x)
{
        if (usock_tls.inside || n <= 0 || (!shim.size && !shim.adopt) || !set_readable(r, n) || !set_readable(w, n) ||
            !set_readable(x, n))
                return false;
        for (int i = 0; i * WORD_BITS < n; i++)
                for (unsigned long bits = any_word(r, w, x, i, n); bits; bits &= bits - 1)
                        if (any_ours(i * WORD_BITS + __builtin_ctzl(bits)))
                                return true;
        return false;
}

/* Few bits are set: counted one by one, which needs no instruction of newer machines. */
static int ones(unsigned long word)
{
        int n = 0;

        for (; word; word &= word - 1)
                n++;
        return n;
}

/* The sockets among the first numbers that are known to have nothing to read still. */
static unsigned long known_idle(struct select_memo *m)
{
        uint32_t changes = atomic_load_explicit(&shim.changes, memory_order_acquire), seen = 0;

        if (likely(m->news && m->changes == changes)) {
                seen = atomic_load_explicit(m->news, memory_order_acquire);
                if (likely(m->seen == seen))
                        return m->idle;
        }
        *m = (struct select_memo){.news = m->changes == changes ? m->news : NULL, .seen = seen, .changes = changes};
        return 0;
}

static bool can_read_now(struct select_memo *m, struct usock *s, unsigned long bit)
{
        const _Atomic uint32_t *news = usock_told_by(s);

        if (unlikely(!m->news && news)) {
                m->news = news;
                m->seen = atomic_load_explicit(news, memory_order_acquire);
        }
        if (usock_readable(s))
                return true;
        if (news && news == m->news)
                m->idle |= bit;
        return false;
}

/* Reads and writes that would not wait, of one word of the sets from number `fd` on. m: what is known of it, or NULL. */
struct ready {
        unsigned long in, out;
        bool others;                    /* there are descriptors of the kernel's among them */
};

static inline struct ready look_at_word(unsigned long rd, unsigned long wr, int fd, struct select_memo *m)
{
        struct ready can = {0, 0, false};

        for (unsigned long any = rd | wr; any; any &= any - 1) {
                unsigned long bit = any & -any;
                const struct file *f = file_peek(fd + __builtin_ctzl(any));
                short ev;

                if (!f || f->mode < MODE_TCP) {
                        can.others = true;
                        continue;
                }
                if (likely(!(wr & bit))) {
                        if (m ? can_read_now(m, f->us, bit) : usock_readable(f->us))
                                can.in |= bit;
                        continue;
                }
                ev = usock_poll(f->us);
                can.in |= ev & SELECT_IN ? rd & bit : 0;
                can.out |= ev & SELECT_OUT ? bit : 0;
        }
        return can;
}

/* select() finds it when it goes on to wait: wait_mixed() gives the kernel the turn. */
static bool kernel_is_asked(void)
{
        shim_tls.kernel_due |= kernel_is_due(&shim_tls.watch);
        return shim_tls.kernel_due;
}

/* Whether the shorter ways may be tried: no other thread can close one of them meanwhile, and nobody asked for urgent data. */
static inline bool may_look_first(int n, const fd_set *x)
{
        return shim.size && !usock_tls.inside && __libc_single_threaded && n > 0 && n <= FD_SETSIZE && !x;
}

static void remember(struct select_memo *m, int n, unsigned long asked, unsigned long in)
{
        m->n = n;
        m->asked = asked;
        m->fd = __builtin_ctzl(in);
}

static inline bool memo_holds(const struct select_memo *m)
{
        return m->news && m->changes == atomic_load_explicit(&shim.changes, memory_order_acquire) &&
               m->seen == atomic_load_explicit(m->news, memory_order_acquire);
}

/* The same as last time, to the letter: one socket that has something to read, and idle ones. False: not so, and nothing was
 * changed. */
static inline bool select_again(int n, fd_set *r, fd_set *w, const fd_set *x)
{
        const struct select_memo *m = &shim_tls.select;
        const struct file *f;
        bool can;

        if (n != m->n || !may_look_first(n, x) || !memo_holds(m) || shim_tls.watch.pace.left == 0 || shim_tls.kernel_due ||
            shim_tls.watch.seen != atomic_load_explicit(&shim.kernel_calls, memory_order_acquire))
                return false;
        if (!r || !user_read(r) || word_of(r, 0) != m->asked || (w && (!user_read(w) || word_of(w, 0))))
                return false;
        f = file_peek(m->fd);
        usock_enter();
        can = f->mode >= MODE_TCP && usock_readable(f->us);
        usock_leave();
        if (!can)
                return false;
        shim_tls.watch.pace.left--;
        return put_word(r, 0, 1UL << m->fd);    /* what is not to be written to is found out once more */
}

/*
 * The usual case by the shortest way: some socket of ours is ready, and it is not the kernel's turn. The sets then hold
 * those and nothing else. 0: none is, nothing was changed. Small numbers first: most programs have no others.
 */
static inline int select_few(int n, fd_set *r, fd_set *w)
{
        struct select_memo *m = &shim_tls.select;
        unsigned long mask = ~0UL >> (WORD_BITS - n), wr, rd;
        struct ready can;

        if (unlikely((r && !user_read(r)) || (w && !user_read(w))))
                return 0;
        wr = word_of(w, 0) & mask;
        rd = word_of(r, 0) & mask;
        can = look_at_word(rd & ~(known_idle(m) & ~wr), wr, 0, m);
        if (!(can.in | can.out) || (can.others && kernel_is_asked()))
                return 0;
        m->n = 0;
        if (!can.others && !(w && word_of(w, 0)) && ones(can.in) == 1 && rd == (can.in | (rd & m->idle)))
                remember(m, n, word_of(r, 0), can.in);
        return likely(put_word(r, 0, can.in) && put_word(w, 0, can.out)) ? ones(can.in) + ones(can.out) : -EFAULT;
}

static __attribute__((noinline)) int select_many(int n, fd_set *r, fd_set *w)
{
        struct ready can[FD_SETSIZE / WORD_BITS];
        int words = (n + WORD_BITS - 1) / WORD_BITS, bits = 0;
        bool good = true, others = false;

        if (!set_readable(r, n) || !set_readable(w, n))
                return 0;
        for (int i = 0; i < words; i++) {
                unsigned long in_n = any_word(r, w, NULL, i, n);

                can[i] = look_at_word(word_of(r, i) & in_n, word_of(w, i) & in_n, i * WORD_BITS, NULL);
                bits += ones(can[i].in) + ones(can[i].out);
                others |= can[i].others;
        }
        if (others && kernel_is_asked())
                return 0;
        for (int i = 0; bits && i < words && good; i++)
                good = put_word(r, i, can[i].in) && put_word(w, i, can[i].out);
        return likely(good) ? bits : -EFAULT;
}

static inline bool look_is_ours(void)
{
        bool by_clock = shim_tls.watch.pace.left == 0;

        if (unlikely(kernel_turn(&shim_tls.watch.pace) || kernel_news(&shim_tls.watch))) {
                shim_tls.kernel_due = true;
                return false;
        }
        if (by_clock)
                usock_progress_if_due();
        return true;
}

static inline int select_fast(int n, fd_set *r, fd_set *w, fd_set *x)
{
        int bits = 0;

        if (unlikely(!may_look_first(n, x)))
                return 0;
        usock_enter();
        if (look_is_ours())
                bits = likely(n <= WORD_BITS) ? select_few(n, r, w) : select_many(n, r, w);
        usock_leave();
        return bits;
}

static int select_gather(struct want *v, int n, const fd_set *r, const fd_set *w, const fd_set *x)
{
        int count = 0;

        for (int i = 0; i * WORD_BITS < n; i++)
                for (unsigned long bits = any_word(r, w, x, i, n); bits; bits &= bits - 1) {
                        unsigned long bit = bits & -bits;
                        short ev = 0;

                        if (word_of(r, i) & bit)
                                ev |= POLLIN | POLLRDNORM | POLLRDBAND;
                        if (word_of(w, i) & bit)
                                ev |= POLLOUT | POLLWRNORM | POLLWRBAND;
                        if (word_of(x, i) & bit)
                                ev |= POLLPRI;
                        v[count++] = (struct want){.fd = i * WORD_BITS + __builtin_ctzl(bits), .events = ev};
                }
        return count;
}

static int select_put(const struct want *v, int count, int n, fd_set *r, fd_set *w, fd_set *x)
{
        int at = 0, bits = 0;

        for (int i = 0; i * WORD_BITS < n; i++) {
                unsigned long in = 0, out = 0, pri = 0;

                for (; at < count && v[at].fd / WORD_BITS == i; at++) {
                        unsigned long bit = 1UL << v[at].fd % WORD_BITS;

                        if (v[at].revents & POLLNVAL)
                                return -EBADF;
                        if ((v[at].events & POLLIN) && (v[at].revents & SELECT_IN))
                                in |= bit;
                        if ((v[at].events & POLLOUT) && (v[at].revents & SELECT_OUT))
                                out |= bit;
                        if ((v[at].events & POLLPRI) && (v[at].revents & POLLPRI))
                                pri |= bit;
                }
                bits += ones(in) + ones(out) + ones(pri);
                if (!put_word(r, i, in) || !put_word(w, i, out) || !put_word(x, i, pri))
                        return -EFAULT;
        }
        return bits;
}

static int select_wants(struct want *v, int n, fd_set *r, fd_set *w, fd_set *x, struct until *u,
                        const sigset_t *mask)
{
        int count = select_gather(v, n, r, w, x);
        int ret = wait_any(v, count, u, mask);

        return ret < 0 ? ret : select_put(v, count, n, r, w, x);
}

static int count_bits(int n, const fd_set *r, const fd_set *w, const fd_set *x)
{
        int count = 0;

        for (int i = 0; i * WORD_BITS < n; i++)
                count += ones(any_word(r, w, x, i, n));
        return count;
}

static int select_once(int n, fd_set *r, fd_set *w, fd_set *x, struct until *u, const sigset_t *mask)
{
        struct want stack[ON_STACK / 2], *v = stack;
        int count = count_bits(n, r, w, x);
        size_t bytes = (size_t)count * sizeof(*v);
        int ret;

        if (count <= (int)ARRAY_LEN(stack))
                return select_wants(stack, n, r, w, x, u, mask);
        v = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (v == MAP_FAILED)
                return -ENOMEM;
        ret = select_wants(v, n, r, w, x, u, mask);
        munmap(v, bytes);
        return ret;
}

static int do_select(int n, fd_set *r, fd_set *w, fd_set *x, struct until *u, const sigset_t *mask)
{
        ssize_t ret;

        do {
                ret = select_once(n, r, w, x, u, mask);
                if (ret == -ERR_KERNEL)
                        return -ERR_KERNEL;
        } while (result_again(&ret));
        return (int)ret;
}

/* Linux writes back the time that was left: all of it, if the clock was never looked at. */
static void write_back(struct timeval *tv, struct until *u)
{
        nstime left;

        if (!tv || !u->at)
                return;
        left = until_left(u);
        if (user_put64(&tv->tv_sec, (uint64_t)(left / NS_PER_S)))
                user_put64(&tv->tv_usec, (uint64_t)(left % NS_PER_S / NS_PER_US));
}

static __attribute__((noinline)) int select_waiting(int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *timeout)
{
        struct timespec ts;
        struct until u;
        int ret;

        if (!select_concerns_us(n, r, w, x) || (timeout && !user_read_range(timeout, sizeof(*timeout))) ||
            (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0 || timeout->tv_usec >= 1000000)))
                return REAL(select)(n, r, w, x, timeout);
        if (timeout)
                ts = (struct timespec){timeout->tv_sec, timeout->tv_usec * NS_PER_US};
        u = until_ts(timeout ? &ts : NULL);
        ret = do_select(n, r, w, x, &u, NULL);
        if (ret == -ERR_KERNEL)
                return REAL(select)(n, r, w, x, timeout);
        write_back(timeout, &u);
        return ret;
}

static __attribute__((noinline)) int select_any(int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *timeout)
{
        int ret = select_fast(n, r, w, x);

        if (likely(ret > 0))
                return ret;
        if (ret == 0)
                return select_waiting(n, r, w, x, timeout);
        errno = -ret;
        return -1;
}

int h_select(int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *timeout)
{
        return select_again(n, r, w, x) ? 1 : select_any(n, r, w, x, timeout);
}

int h___select(int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *timeout)
{
        return h_select(n, r, w, x, timeout);
}

int h_pselect(int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *timeout, const sigset_t *mask)
{
        struct until u;
        int ret = -ERR_KERNEL;

        if (select_concerns_us(n, r, w, x) && !bad_time(timeout) && !bad_mask(mask)) {
                u = until_ts(timeout);
                ret = do_select(n, r, w, x, &u, mask);
        }
        return ret == -ERR_KERNEL ? REAL(pselect)(n, r, w, x, timeout, mask) : ret;
}
