/* See usock_pace.h. */
#include "sock/attach/ustack_link.h"
#include "sock/wait/usock_pace.h"
#include "sock/usock_sys.h"
#include "sock/usock_process.h"

#include <errno.h>
#include <time.h>

#include "base/sys.h"

#define PAUSE_MIN (20 * NS_PER_US)
/* Datagrams in a pause: after fewer the next is longer, after twice as many it is shorter. */
#define WANTED 32
/* Those of a stream, at most: who are further apart do not wait for each other. */
#define APART    (250 * NS_PER_US)
#define IN_TRAIN 8 /* segments of a train are at least as many as that for each that is sent */
#define STREAM   4 /* sleeps in a row that brought as many as that */

static __thread struct {
        /* Datagrams of all stacks, when they were counted last; what is not to wait for them. */
        uint64_t in, other;
        nstime length; /* of the next pause */
        uint32_t run;  /* sleeps of a stream in a row; in one it stays */
} pace __attribute__((tls_model("initial-exec")));

static __thread struct {
        uint64_t in, out; /* segments of all stacks, when they were counted last */
        nstime length;    /* of the next pause */
        bool paused;      /* since then */
} train __attribute__((tls_model("initial-exec")));

static uint64_t count_of(struct ustack *const *all, uint32_t n, int which)
{
        uint64_t sum = 0;

        for (uint32_t i = 0; i < n; i++)
                sum += all[i]->s.st->cnt.n[which];
        return sum;
}

/* Answers, and what comes by connections. */
static uint64_t count_other(struct ustack *const *all, uint32_t n)
{
        return count_of(all, n, COUNT_UDP_OUT) + count_of(all, n, COUNT_TCP_IN);
}

static bool over_devices(struct ustack *const *all, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                if (!ustack_links_any(all[i]))
                        return false;
        return n > 0;
}

/* Batches of datagrams come further apart. */
static bool close_enough(uint64_t came, nstime in)
{
        return came != 0 && (nstime)MIN(came, (uint64_t)(USOCK_PAUSE_MAX / APART)) * APART >= in;
}

/* What ended a sleep is counted by the end of the next one. */
void usock_slept(struct ustack *const *all, uint32_t n, nstime slept)
{
        uint64_t in, other;

        if (likely(!over_devices(all, n)))
                return;
        in = count_of(all, n, COUNT_UDP_IN);
        other = count_other(all, n);
        pace.run =
                slept < USOCK_PAUSE_MAX && close_enough(in - pace.in, slept) && other == pace.other
                        ? pace.run + 1
                        : 0;
        pace.length = MIN(MAX(slept, PAUSE_MIN), USOCK_PAUSE_MAX);
        pace.in = in;
        pace.other = other;
}

bool usock_in_stream(void)
{
        return unlikely(pace.run >= STREAM);
}

static nstime next_length(uint64_t came)
{
        if (came < WANTED)
                return MIN(pace.length * 2, USOCK_PAUSE_MAX);
        return came < 2 * WANTED ? pace.length : MAX(pace.length / 2, PAUSE_MIN);
}

static int sleep_for(nstime length, const sigset_t *mask)
{
        struct timespec ts = {.tv_nsec = length};
        return usock_sys6(SYS_ppoll, 0, 0, (long)&ts, (long)mask, _NSIG / 8, 0) == -EINTR ||
                               usock_tls.pending
                       ? -EINTR
                       : 1;
}

int usock_pause(struct ustack *const *all, uint32_t n, nstime now, nstime until,
                const sigset_t *mask)
{
        uint64_t in = count_of(all, n, COUNT_UDP_IN);
        nstime length = pace.length;

        for (uint32_t i = 0; i < n; i++)
                until = nstime_min(until, stack_deadline(&all[i]->s));
        if (in == pace.in || (length == USOCK_PAUSE_MAX && !close_enough(in - pace.in, length)) ||
            count_other(all, n) != pace.other || !over_devices(all, n) || until - now <= length) {
                pace.run = 0;
                return 0;
        }
        pace.length = next_length(in - pace.in);
        pace.in = in;
        return sleep_for(length, mask);
}

/* True: of what came since the last time nothing was answered, but trains acknowledged. */
static bool only_trains(struct ustack *const *all, uint32_t n)
{
        uint64_t in = count_of(all, n, COUNT_TCP_IN), out = count_of(all, n, COUNT_TCP_OUT);
        uint64_t came = in - train.in, sent = out - train.out;

        if (train.paused)
                train.length = came == 0           ? 0
                               : came < WANTED     ? train.length * 2
                               : came < 2 * WANTED ? train.length
                                                   : train.length / 2;
        train.length = MIN(MAX(train.length, PAUSE_MIN), USOCK_PAUSE_MAX);
        train.in = in;
        train.out = out;
        return came != 0 && sent <= came / IN_TRAIN + 1;
}

int usock_pause_train(struct ustack *const *all, uint32_t n, nstime now, nstime held,
                      const sigset_t *mask)
{
        bool trains = over_devices(all, n) && only_trains(all, n);
        nstime until = held;

        train.paused = false;
        for (uint32_t i = 0; i < n; i++)
                until = nstime_min(until, stack_deadline(&all[i]->s));
        if (!trains || until - now < PAUSE_MIN)
                return 0;
        train.paused = true;
        return sleep_for(MIN(train.length, until - now), mask);
}
