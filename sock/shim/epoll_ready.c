/*
 * What is ready: the members on the queue are looked at, and the kernel's half is asked without
 * waiting.
 */
#include "sock/shim/epoll.h"
#include "sock/shim/epoll_set.h"
#include "sock/shim/transfer.h"
#include "sock/shim/wait.h"

#include "base/sandbox.h"

static uint32_t interest(const struct epoll_item *it)
{
        return (it->events & ~PRIVATE_BITS) | EPOLLERR | EPOLLHUP;
}

/*
 * An edge counts where there is a level of its side: what comes below SO_RCVLOWAT, or was read
 * meanwhile, is none. The level is looked at after the edges: what comes between them counts next
 * time again, which is once too often, and not once too seldom.
 */
static bool edge(struct epoll_item *it)
{
        uint32_t in, out, levels, side = (it->events & IN_BITS) | EPOLLERR | EPOLLHUP;
        bool moved;

        if (it->f->mode == MODE_EPOLL) {
                /* It is ready, and was not, or has heard news of its members since: as it is
                 * asked it hears them. */
                levels = (uint16_t)file_poll_ours(it->f);
                in = it->f->set->stirred;
                out = (levels & EPOLLIN) != 0;
                moved = out && (in != it->in || !it->out);
        } else {
                usock_edges(it->f->us, &in, &out);
                levels = (uint16_t)file_poll_ours(it->f);
                moved = (in != it->in && levels & side) ||
                        (out != it->out && (it->events & OUT_BITS));
        }
        it->in = in;
        it->out = out;
        return moved || it->fresh;
}

/* Events to report now; what edge() compares is read before what it reports is, so that none
 * is lost. */
static uint32_t item_ready(struct epoll_item *it, bool consume)
{
        uint32_t before_in = it->in, before_out = it->out, revents;
        bool news = true;

        if (it->off || !has_our_side(it->f))
                return 0;
        epoll_note_room(it);
        if (it->events & EPOLLET)
                news = edge(it);
        if (!news)
                return 0;
        revents = (uint16_t)file_poll_ours(it->f) & interest(it);
        if (consume) {
                it->fresh = false;
        } else {
                it->in = before_in;
                it->out = before_out;
        }
        return revents;
}

/* What is there on our side when the kernel's reports: an event tells all levels. */
static uint32_t item_levels(struct epoll_item *it)
{
        if (!has_our_side(it->f))
                return 0;
        if (it->events & EPOLLET)
                edge(it);
        it->fresh = false;
        return (uint16_t)file_poll_ours(it->f) & interest(it);
}

static void item_fired(struct epoll_item *it, bool by_kernel)
{
        if (!(it->events & EPOLLONESHOT) || it->off)
                return;
        it->off = true;
        if (it->in_kernel && !by_kernel)
                /* ERR and HUP stay: once. */
                epoll_kernel_ctl(it, EPOLL_CTL_MOD, EPOLLONESHOT | EPOLLET);
}

/* False: it does not get there. */
static bool put_event(struct harvest *h, uint32_t events, uint64_t data)
{
        struct epoll_event *to = &h->ev[h->n];

        if (unlikely(!user_put32(&to->events, events) || !user_put64(&to->data, data))) {
                h->fault = true;
                return false;
        }
        h->n++;
        return true;
}

static bool report(struct harvest *h, struct epoll_item *it, uint32_t revents)
{
        assert(h->n <= h->max);
        assert(it->round != it->set->round || it->slot < h->n);
        if (it->round == it->set->round) {
                h->ev[it->slot].events |= revents;
                return true;
        }
        it->slot = h->n;
        if (!put_event(h, revents, it->data))
                return false;
        it->round = it->set->round;
        return true;
}

static bool stays_queued(const struct epoll_item *it, uint32_t revents)
{
        return revents && !it->off && !(it->events & EPOLLET);
}

/* A set in a set makes no news of its own. */
static void queue_nested(struct epoll_set *set)
{
        struct epoll_item *it;

        if (set->nested)
                TAILQ_FOREACH (it, &set->members, of_set)
                        if (it->f->mode == MODE_EPOLL)
                                epoll_queue_item(set, it);
}

/* One round over the queue. */
static void harvest_ours(struct epoll_set *set, struct harvest *h)
{
        epoll_hear_news(set);
        h->seen = set->seen;
        queue_nested(set);
        for (int n = set->queued; n > 0 && h->n < h->max && !h->fault; n--) {
                struct epoll_item *it = epoll_queue_take(set);
                uint32_t revents = item_ready(it, true);

                if (revents && unlikely(!report(h, it, revents))) {
                        it->fresh = true;
                        epoll_queue_item(set, it);
                        break;
                }
                if (revents)
                        item_fired(it, false);
                if (stays_queued(it, revents))
                        epoll_queue_item(set, it);
        }
}

/* The program's memory was not there: what was taken for it is an edge still, here and in
 * the kernel. */
static void put_back(struct epoll_item *it)
{
        it->fresh = true;
        epoll_queue_item(it->set, it);
        if (it->in_kernel)
                epoll_kernel_ctl(it, EPOLL_CTL_MOD, it->asked);
}

void epoll_harvest_member(struct harvest *h, struct epoll_set *set, struct epoll_item *it,
                          uint32_t revents)
{
        if (it->set != set || it->off)
                return;
        if (it->f->mode == MODE_UDP && has_our_side(it->f)) /* room is what our side says it is */
                revents &= ~(uint32_t)OUT_BITS;
        if (!revents)
                return;
        revents |= item_levels(it); /* there may be no place for a second event of it */
        if (likely(report(h, it, revents)))
                item_fired(it, true);
        else
                put_back(it);
}

/* epoll_pwait2() looks without touching a timer; it is of Linux 5.11. */
static long look_at_kernel(int epfd, struct epoll_event *ev, int room)
{
        struct timespec now = {0, 0};
        long n = sandbox_forbids(SANDBOX_EPOLL2)
                         ? -ENOSYS
                         : sys6(SYS_epoll_pwait2, epfd, (long)ev, room, (long)&now, 0, 0);

        assert(room > 0);
        if (n == -ENOSYS)
                n = sandbox_forbids(SANDBOX_EPOLL)
                            ? REAL(epoll_wait)(epfd, ev, room, 0)
                            : sys6(SYS_epoll_pwait, epfd, (long)ev, room, 0, 0, 0);
        return n;
}

#define KERNELS_MOST 256 /* that one call brings; what is left comes with the next */

/* Returns true if kicks, which are no events of the program's, had the place of all. Where
 * something else came as well a second look would bring that again. */
static bool harvest_once(struct epoll_set *set, struct harvest *h)
{
        struct epoll_event ev[KERNELS_MOST];
        int room = MIN(h->max - h->n, KERNELS_MOST);
        long n = room ? look_at_kernel(epoll_kernel_fd(set), ev, room) : 0;
        bool kicked = false;
        int had = h->n;

        kernel_answered(&set->watch, n > 0);
        if (room > 0)
                set->watch.pace.asked = usock_ticks();
        for (long i = 0; i < n; i++) {
                struct epoll_item *it;
                enum whose whose = epoll_whose(set, ev[i].data.u64, &it);

                if (whose == MEMBERS)
                        epoll_harvest_member(h, set, it, ev[i].events);
                else if (whose == PROGRAMS)
                        put_event(h, ev[i].events, ev[i].data.u64);
                else
                        kicked |= whose == KICK;
        }
        if (room > 0)
                set->nobodys = n > 0 && h->n == had && !kicked ? set->nobodys + 1 : 0;
        return kicked && n == room && h->n == had;
}

static void harvest_kernel(struct epoll_set *set, struct harvest *h)
{
        if (unlikely(harvest_once(set, h)))
                harvest_once(set, h);
}

int epoll_harvest(struct epoll_set *set, struct harvest *h, enum kernels_turn turn)
{
        assert(usock_tls.inside && h->n == 0 && h->max > 0);
        pthread_mutex_lock(&set->lock);
        set->round++;
        if (turn == KERNEL_FIRST)
                harvest_kernel(set, h);
        harvest_ours(set, h);
        if (((turn == KERNEL_IF_NOTHING && h->n == 0) || turn == KERNEL_TOO) && !h->fault &&
            set->kernel_half)
                harvest_kernel(set, h);
        pthread_mutex_unlock(&set->lock);
        return h->n == 0 && h->fault ? -EFAULT : h->n;
}

bool epoll_set_ready(struct epoll_set *set, struct usock_news *seen)
{
        struct epoll_item *it;
        bool ready = false;

        pthread_mutex_lock(&set->lock);
        epoll_hear_news(set);
        if (seen)
                *seen = set->seen;
        queue_nested(set);
        for (it = TAILQ_FIRST(&set->queue); it && !ready; it = TAILQ_NEXT(it, queue))
                ready = item_ready(it, false) != 0;
        pthread_mutex_unlock(&set->lock);
        return ready;
}
