/* Waiting, and the results of calls that waited. Everything that sleeps ends up in usock_wait(). */
#include "sock/shim/cancel.h"
#include "sock/shim/shim.h"
#include "sock/shim/signals.h"
#include "sock/shim/wait.h"

#include "base/clock.h"

struct until until_ms(int timeout)
{
        return (struct until){.left = timeout < 0 ? -1 : timeout * NS_PER_MS};
}

struct until until_ts(const struct timespec *ts)
{
        if (!ts || ts->tv_sec > NSTIME_NEVER / NS_PER_S / 2)
                return (struct until){.left = -1};
        return (struct until){.left = ts->tv_sec * NS_PER_S + ts->tv_nsec};
}

nstime until_left(struct until *u)
{
        nstime now;

        if (u->left <= 0)
                return u->left;
        now = clock_now();
        if (!u->at)
                u->at = u->left > NSTIME_NEVER - now ? NSTIME_NEVER : now + u->left;
        return MAX(u->at - now, 0);
}

bool until_over(struct until *u)
{
        return until_left(u) == 0;
}

/* What a wait cut short means. A signal the program does not handle (a cancellation among them) is
 * not its business, but a cancelled thread must get to a cancellation point. */
static int interrupted(void)
{
        return signals_put_off() ? -EINTR : -ERR_AGAIN;
}

/* ---- sleeping ---- */

enum caller { ANY, ASKED_THE_KERNEL };

static int wait_both_sides(struct file *f, short events, nstime left, enum caller who)
{
        struct usock_item it = {.s = f->us,
                                .fd = f->kfd,
                                .events = events,
                                .call = true,
                                .asks = who == ASKED_THE_KERNEL,
                                .asked = who == ASKED_THE_KERNEL,
                                .exclusive = usock_is_taken_by_one(f->us, events)};
        int n = usock_wait(&it, 1, left, NULL);

        assert(f->us != NULL);
        return n > 0 ? 0 : n == 0 ? -EAGAIN : n;
}

/* What a call returns whose sleep returned r. */
static int woken(int r, const struct until *u)
{
        if (likely(r != -EINTR))
                return r;
        r = interrupted();
        /* Man 7 signal: never restarted with a timeout. */
        return r == -EINTR && u->left < 0 ? -ERR_RESTART : r;
}

static int wait_for(struct file *f, short events, struct until *u, enum caller who)
{
        nstime left = until_left(u);
        struct sleeper *sl;
        int r;

        assert(f->us != NULL);
        shim_tls.handled = false;
        sl = sleeper_enter();
        if (sleeper_was_cancelled())
                r = -EINTR;
        else if (file_both_sides(f) &&
                 !(events & (POLLOUT | USOCK_POLL_MADE))) /* the kernel's has room */
                r = wait_both_sides(f, events, left, who);
        else
                r = usock_wait1(f->us, events, left);
        sleeper_leave(sl);
        return woken(r, u);
}

int file_wait_recv(struct file *f, struct until *u, const struct iovec *to, int flags, ssize_t *got)
{
        nstime left = until_left(u);
        struct sleeper *sl;
        int r;

        assert(f->us != NULL);
        shim_tls.handled = false;
        sl = sleeper_enter();
        r = sleeper_was_cancelled() ? -EINTR
                                    : usock_wait_recv(f->us, USOCK_POLL_SOME, left, to, flags, got);
        sleeper_leave(sl);
        return woken(r, u);
}

int file_wait(struct file *f, short events, struct until *u)
{
        return wait_for(f, events, u, ANY);
}

int file_wait_asked(struct file *f, struct until *u)
{
        return wait_for(f, POLLIN, u, ASKED_THE_KERNEL);
}

int wait_items(struct usock_item *v, int n, struct until *u, const sigset_t *mask,
               const struct usock_news *seen)
{
        struct sleeper *sl = sleeper_enter();
        int r;

        assert(usock_tls.inside && n >= 0);
        shim_tls.handled = false;
        r = sleeper_was_cancelled() ? -EINTR : usock_wait_news(seen, v, n, until_left(u), mask);
        sleeper_leave(sl);
        return r == -EINTR ? interrupted() : r;
}

bool result_failed(ssize_t *r)
{
        int err = (int)-*r;

        *r = -1;
        if (err == ERR_AGAIN) {
                cancellation_asked();
                return true;
        }
        if (err == ERR_RESTART) {
                if (!shim_tls.handled || shim_tls.restart)
                        return true;
                err = EINTR;
        }
        errno = err;
        return false;
}
