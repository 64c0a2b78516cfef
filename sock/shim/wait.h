/* Waiting for our side and the kernel's; when it is the kernel's turn to be looked at. */
#ifndef SHIM_WAIT_H
#define SHIM_WAIT_H

#include "sock/shim/shim.h"

/*
 * Is it the kernel's turn? At most once in some 100 us: its two calls take a microsecond. To look
 * at the clock takes longer than a short call, so it is done so seldom that nearly nothing of it is
 * left, and often enough that the turn is not missed by much: up to KERNEL_STEP calls in a row do
 * not look, fewer where calls take longer.
 */
#define KERNEL_EVERY (4 * USOCK_TICKS_EVERY)
#define KERNEL_STEP  63
static inline bool kernel_turn_by_clock(struct kernel_pace *k)
{
        uint64_t now = usock_ticks(), passed = now - k->asked;
        bool due = passed >= KERNEL_EVERY;

        if (passed < KERNEL_EVERY / 2)
                k->step = (uint8_t)MIN(2 * k->step + 1, KERNEL_STEP);
        else if (passed >= 2 * (uint64_t)KERNEL_EVERY)
                k->step /= 2;
        if (due)
                k->asked = now;
        k->left = k->step;
        return due;
}
static inline bool kernel_turn(struct kernel_pace *k)
{
        if (unlikely(k->left == 0))
                return kernel_turn_by_clock(k);
        k->left--;
        return false;
}
/*
 * What the program itself does to a descriptor of the kernel's ends the fruitless time: a program
 * that writes to a pipe finds it readable. Threads that do so at once may lose a count, and find
 * out by the clock.
 */
static inline void kernel_touched(void)
{
        if (shim.size)
                atomic_store_explicit(
                        &shim.kernel_calls,
                        atomic_load_explicit(&shim.kernel_calls, memory_order_relaxed) + 1,
                        memory_order_release);
}
static inline bool kernel_news(struct kernel_watch *k)
{
        uint32_t now = atomic_load_explicit(&shim.kernel_calls, memory_order_acquire);

        if (likely(now == k->seen))
                return false;
        k->seen = now;
        k->fruitless = 0;
        return true;
}
static inline bool kernel_is_due(struct kernel_watch *k)
{
        return kernel_news(k) || k->fruitless < KERNEL_FRUITLESS || kernel_turn_by_clock(&k->pace);
}
static inline void kernel_answered(struct kernel_watch *k, bool something)
{
        k->fruitless = something ? 0 : (uint8_t)MIN(k->fruitless + 1, KERNEL_FRUITLESS);
}
/* When a call that waits is over. The clock is read when it first has to sleep: most calls find
 * something before. */
struct until {
        nstime left; /* as asked for; <0: for ever, 0: only a look */
        nstime at;   /* 0: the clock has not been read yet */
};
struct until until_ms(int timeout);
struct until until_ts(const struct timespec *ts);
/* Times that the kernel refuses, and its reason, are its own; so is a mask that is not there. */
static inline bool bad_time(const struct timespec *ts)
{
        return ts && (!user_read_range(ts, sizeof(*ts)) || ts->tv_sec < 0 || ts->tv_nsec < 0 ||
                      ts->tv_nsec >= NS_PER_S);
}
static inline bool bad_mask(const sigset_t *mask)
{
        return mask && !user_read_range(mask, sizeof(uint64_t));
}
/* Time left, as usock_wait() wants it. */
nstime until_left(struct until *u);
bool until_over(struct until *u);
static inline struct until until_timeo(nstime timeo)
{
        return (struct until){.left = timeo ? timeo : -1};
}
/*
 * Sleeps until our side or, of a socket with two, the kernel's has an event of `events`. 0, -EAGAIN
 * when the time is over, -EINTR, -ERR_RESTART, -ERR_AGAIN. until_timeo() makes an SO_RCVTIMEO or
 * SO_SNDTIMEO a time to wait.
 */
int file_wait(struct file *f, short events, struct until *u);
/* The same for a stream's input; *got as usock_wait_recv() has it. */
int file_wait_recv(struct file *f, struct until *u, const struct iovec *to, int flags,
                   ssize_t *got);
/* The same for input, by who has just asked the kernel's side, and asks it again when its turn
 * is (kernel_turn()). */
int file_wait_asked(struct file *f, struct until *u);
/* usock_wait_news() for poll and epoll: items, -EINTR, -ERR_AGAIN. seen NULL: no news. */
int wait_items(struct usock_item *v, int n, struct until *u, const sigset_t *mask,
               const struct usock_news *seen);

#endif
