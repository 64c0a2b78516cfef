/*
 * select and pselect over any mixture of descriptors. Programs select before every read: the usual
 * case has ways of its own, which make no list of what to wait for, and remember what the last look
 * found.
 */
#include "sock/shim/cancel.h"
#include "sock/shim/select.h"
#include "sock/shim/wait.h"
#include "sock/shim/want.h"

#include <sys/mman.h>

#define SELECT_IN  (POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR)
#define SELECT_OUT (POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR)
#define WORD_BITS  (8 * (int)sizeof(long))
#define US_PER_S   (NS_PER_S / NS_PER_US)

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
        if (usock_tls.inside || n <= 0 || !shim_started() || !set_readable(r, n) ||
            !set_readable(w, n) || !set_readable(x, n))
                return false;
        for (int i = 0; i * WORD_BITS < n; i++)
                for (unsigned long bits = any_word(r, w, x, i, n); bits; bits &= bits - 1)
                        if (want_ours(i * WORD_BITS + __builtin_ctzl(bits)))
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
        *m = (struct select_memo){
                .news = m->changes == changes ? m->news : NULL, .seen = seen, .changes = changes};
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

/* Reads and writes that would not wait, of one word of the sets from number `fd` on. m: what is
 * known of it, or NULL. */
struct ready {
        unsigned long in, out;
        bool others; /* there are descriptors of the kernel's among them */
};

static inline struct ready look_at_word(unsigned long rd, unsigned long wr, int fd,
                                        struct select_memo *m)
{
        struct ready can = {0, 0, false};

        for (unsigned long any = rd | wr; any; any &= any - 1) {
                unsigned long bit = any & -any;
                struct file *f = file_peek(fd + __builtin_ctzl(any));
                short ev;

                if (f)
                        file_now(f);
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

/* select() finds it when it goes on to wait: want_any() gives the kernel its turn. */
static bool kernel_is_asked(void)
{
        shim_tls.kernel_due |= kernel_is_due(&shim_tls.watch);
        return shim_tls.kernel_due;
}

/* Returns true if the shorter ways may be tried: no other thread can close one of them meanwhile,
 * nobody asked for urgent data, and what comes, comes from others. */
static inline bool may_look_first(int n, const fd_set *x)
{
        return shim.size && !usock_tls.inside && __libc_single_threaded && n > 0 &&
               n <= FD_SETSIZE && !x && !usock_sends_itself();
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

/* The same as last time, to the letter: one socket that has something to read, and idle ones.
 * False: not so, and nothing was changed. */
static inline bool select_again(int n, fd_set *r, fd_set *w, const fd_set *x)
{
        const struct select_memo *m = &shim_tls.select;
        struct file *f;
        bool can;

        if (n != m->n || !may_look_first(n, x) || !memo_holds(m) || shim_tls.watch.pace.left == 0 ||
            shim_tls.kernel_due ||
            shim_tls.watch.seen != atomic_load_explicit(&shim.kernel_calls, memory_order_acquire))
                return false;
        if (!r || !user_read(r) || word_of(r, 0) != m->asked ||
            (w && (!user_read(w) || word_of(w, 0))))
                return false;
        f = file_peek(m->fd);
        usock_enter();
        file_now(f);
        can = f->mode >= MODE_TCP && usock_readable(f->us);
        usock_leave();
        if (!can)
                return false;
        shim_tls.watch.pace.left--;
        /* If the set cannot be written, the longer way finds that, too, and says EFAULT. */
        return put_word(r, 0, 1UL << m->fd);
}

/*
 * The usual case by the shortest way: some socket of ours is ready, and it is not the kernel's
 * turn. The sets then hold those and nothing else. 0: none is, nothing was changed. Small numbers
 * first: most programs have no others.
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
        if (!can.others && !(w && word_of(w, 0)) && ones(can.in) == 1 &&
            rd == (can.in | (rd & m->idle)))
                remember(m, n, word_of(r, 0), can.in);
        return likely(put_word(r, 0, can.in) && put_word(w, 0, can.out))
                       ? ones(can.in) + ones(can.out)
                       : -EFAULT;
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

                can[i] = look_at_word(word_of(r, i) & in_n, word_of(w, i) & in_n, i * WORD_BITS,
                                      NULL);
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
                        v[count++] = (struct want){.fd = i * WORD_BITS + __builtin_ctzl(bits),
                                                   .events = ev};
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
        int ret = want_any(v, count, u, mask);

        return ret < 0 ? ret : select_put(v, count, n, r, w, x);
}

static int count_bits(int n, const fd_set *r, const fd_set *w, const fd_set *x)
{
        int count = 0;

        for (int i = 0; i * WORD_BITS < n; i++)
                count += ones(any_word(r, w, x, i, n));
        return count;
}

static int select_once(int n, fd_set *r, fd_set *w, fd_set *x, struct until *u,
                       const sigset_t *mask)
{
        struct want stack[WANTS_ON_STACK], *v = stack;
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

        cancellation_point();
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

/* The microseconds may be more than a second: here alone. */
static struct timespec whole_seconds(const struct timeval *tv)
{
        time_t more = tv->tv_usec / US_PER_S;

        return (struct timespec){.tv_sec = tv->tv_sec > INT64_MAX - more ? INT64_MAX
                                                                         : tv->tv_sec + more,
                                 .tv_nsec = tv->tv_usec % US_PER_S * NS_PER_US};
}

static __attribute__((noinline)) int select_waiting(int n, fd_set *r, fd_set *w, fd_set *x,
                                                    struct timeval *timeout)
{
        struct timespec ts;
        struct until u;
        int ret;

        if (!select_concerns_us(n, r, w, x) ||
            (timeout && !user_read_range(timeout, sizeof(*timeout))) ||
            (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0)))
                return REAL(select)(n, r, w, x, timeout);
        if (timeout)
                ts = whole_seconds(timeout);
        u = until_ts(timeout ? &ts : NULL);
        ret = do_select(n, r, w, x, &u, NULL);
        if (ret == -ERR_KERNEL)
                return REAL(select)(n, r, w, x, timeout);
        write_back(timeout, &u);
        return ret;
}

static __attribute__((noinline)) int select_any(int n, fd_set *r, fd_set *w, fd_set *x,
                                                struct timeval *timeout)
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
HOOK_ALSO(select, __select);

/* -ERR_KERNEL: it is libc's call, or what is wrong with it the kernel's to say. */
static int pselect_until(int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *timeout,
                         const sigset_t *mask, struct until *u)
{
        if (!select_concerns_us(n, r, w, x) || bad_time(timeout) || bad_mask(mask))
                return -ERR_KERNEL;
        *u = until_ts(timeout);
        return do_select(n, r, w, x, u, mask);
}

int h_pselect(int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *timeout,
              const sigset_t *mask)
{
        struct until u;
        int ret = pselect_until(n, r, w, x, timeout, mask, &u);

        return ret == -ERR_KERNEL ? REAL(pselect)(n, r, w, x, timeout, mask) : ret;
}

bool select_tell(long *ret, int n, fd_set *r, fd_set *w, fd_set *x, struct timespec *timeout,
                 const sigset_t *mask)
{
        struct until u;

        *ret = pselect_until(n, r, w, x, timeout, mask, &u);
        if (*ret == -ERR_KERNEL)
                return false;
        if (timeout && u.at) {
                nstime left = until_left(&u);

                if (user_put64(&timeout->tv_sec, (uint64_t)(left / NS_PER_S)))
                        user_put64(&timeout->tv_nsec, (uint64_t)(left % NS_PER_S));
        }
        return true;
}
