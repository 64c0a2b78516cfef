/* epoll, level-triggered: it reports a source again as long as something is unread. */
#include "unetd/loop/loop.h"

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>

#include "unetd/client/timens.h"

/* Events a call; where one user makes many sources ready, other users' turn comes soon. */
#define BATCH 512

nstime loop_clock(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * NS_PER_S + ts.tv_nsec - timens.monotonic;
}

int loop_init(struct loop *l, nstime (*after)(struct loop *l))
{
        *l = (struct loop){
                .epoll = epoll_create1(EPOLL_CLOEXEC), .after = after, .now = loop_clock()};
        return l->epoll < 0 ? -errno : 0;
}

int loop_add(struct loop *l, struct loop_source *s, uint32_t events)
{
        struct epoll_event ev = {.events = events, .data.ptr = s};

        assert(s->fd >= 0 && s->ready != NULL);
        return epoll_ctl(l->epoll, EPOLL_CTL_ADD, s->fd, &ev) < 0 ? -errno : 0;
}

void loop_mod(struct loop *l, struct loop_source *s, uint32_t events)
{
        struct epoll_event ev = {.events = events, .data.ptr = s};

        epoll_ctl(l->epoll, EPOLL_CTL_MOD, s->fd, &ev);
}

/* epoll queues a source that it has reported, and that is still ready, behind those that it has not
 * reported. A source that is added goes to the tail. */
int loop_requeue(struct loop *l, struct loop_source *s, uint32_t events)
{
        epoll_ctl(l->epoll, EPOLL_CTL_DEL, s->fd, NULL);
        return loop_add(l, s, events);
}

void loop_del(struct loop *l, struct loop_source *s)
{
        if (s->fd >= 0)
                epoll_ctl(l->epoll, EPOLL_CTL_DEL, s->fd, NULL);
        s->fd = -1;
}

/* Returns the time to the deadline, rounded up: who wakes before the deadline would sleep again. */
static int wait_ms(nstime now, nstime deadline)
{
        if (deadline == NSTIME_NEVER)
                return -1;
        if (deadline <= now)
                return 0;
        return (int)MIN((deadline - now + NS_PER_MS - 1) / NS_PER_MS, 3600 * 1000);
}

void loop_run(struct loop *l)
{
        struct epoll_event ev[BATCH];
        nstime deadline = l->after(l);

        assert(l->epoll >= 0 && l->after != NULL);
        while (!l->stop) {
                int n = epoll_wait(l->epoll, ev, BATCH, wait_ms(loop_clock(), deadline));

                l->now = loop_clock();
                for (int i = 0; i < n; i++) {
                        struct loop_source *s = ev[i].data.ptr;
                        if (s->fd >= 0) /* no earlier handler of this batch took it out */
                                s->ready(s, ev[i].events);
                }
                deadline = l->after(l);
        }
}
