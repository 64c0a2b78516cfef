/* Waiting, and the results of calls that waited. Everything that sleeps ends up in usock_wait(). */
#include "sock/shim/shim.h"

#define KERNEL_EVERY (30 * NS_PER_US)
#define KERNEL_TICKS 16         /* calls between looks at the clock: one costs as much as a small receive */

nstime clock_now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

bool kernel_turn(uint8_t *tick, nstime *asked)
{
        nstime now;

        if (likely(++*tick % KERNEL_TICKS))
                return false;
        now = clock_now();
        if (now - *asked < KERNEL_EVERY)
                return false;
        *asked = now;
        return true;
}

static nstime left_until(nstime deadline)
{
        return deadline == NSTIME_NEVER ? -1 : MAX(deadline - clock_now(), 0);
}

static nstime deadline_in(nstime ns)
{
        nstime now = clock_now();

        return ns > NSTIME_NEVER - now - 1 ? NSTIME_NEVER : now + ns;
}

nstime deadline_of_ms(int timeout)
{
        return timeout < 0 ? NSTIME_NEVER : timeout == 0 ? 0 : deadline_in(timeout * NS_PER_MS);
}

nstime deadline_of_ts(const struct timespec *ts)
{
        if (!ts || ts->tv_sec > NSTIME_NEVER / NS_PER_S / 2)
                return NSTIME_NEVER;
        return ts->tv_sec || ts->tv_nsec ? deadline_in(ts->tv_sec * NS_PER_S + ts->tv_nsec) : 0;
}

/* What a wait cut short means. A signal the program does not handle (a cancellation among them) is not its business,
 * but a cancelled thread must get to a cancellation point. */
static int interrupted(void)
{
        return usock_tls.pending ? -EINTR : -ERR_AGAIN;
}

static int wait_both_sides(struct file *f, short events, nstime left)
{
        struct usock_item it = {.s = f->us, .fd = f->kfd, .events = events};
        int n = usock_wait(&it, 1, left, NULL);

        return n > 0 ? 0 : n == 0 ? -EAGAIN : n;
}

int file_wait(struct file *f, short events, nstime timeo, nstime *deadline)
{
        nstime left;
        int r;

        shim_tls.handled = false;
        if (timeo && !*deadline)
                *deadline = deadline_in(timeo);
        left = timeo ? left_until(*deadline) : -1;
        if (file_both_sides(f) && !(events & POLLOUT))  /* the kernel's side always has room */
                r = wait_both_sides(f, events, left);
        else
                r = usock_wait1(f->us, events, left);
        if (likely(r != -EINTR))
                return r;
        r = interrupted();
        return r == -EINTR && !timeo ? -ERR_RESTART : r;        /* man 7 signal: never restarted with a timeout */
}

int wait_items(struct usock_item *v, int n, nstime deadline, const sigset_t *mask)
{
        int r;

        shim_tls.handled = false;
        if (mask)
                signals_masked(true);
        r = usock_wait(v, n, deadline == 0 ? 0 : left_until(deadline), mask);
        if (mask)
                signals_masked(false);
        return r == -EINTR ? interrupted() : r;
}

bool result_failed(ssize_t *r)
{
        int err = (int)-*r;

        *r = -1;
        if (err == ERR_AGAIN) {
                pthread_testcancel();
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
