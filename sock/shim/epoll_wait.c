/*
 * Sleeping on an epoll set: on a few sockets of ours themselves, on news of any if there are many;
 * and on the kernel's half.
 */
#include "sock/shim/decide.h"
#include "sock/shim/epoll_set.h"
#include "sock/shim/wait.h"

/*
 * The wait item of one member. Of an edge-triggered one only the events that are not there can
 * wake, for the others have been reported. False: it must be waited for by news, since it has
 * unread input, and more of it would be an edge that no level shows, or because it is a set itself.
 */
static bool item_wait(const struct epoll_item *it, struct usock_item *v)
{
        uint32_t now, ask = it->events & ~PRIVATE_BITS;

        *v = (struct usock_item){.s = it->f->us,
                                 .fd = -1,
                                 .events = (short)ask,
                                 .exclusive = it->events & EPOLLEXCLUSIVE,
                                 .enough = true};
        if (it->f->mode == MODE_EPOLL)
                return false;
        if (!(it->events & EPOLLET))
                return true;
        now = (uint16_t)usock_poll(it->f->us);
        v->events = (short)(ask & ~now);
        return !(now & (ask & IN_BITS)) && !(now & (EPOLLERR | EPOLLHUP));
}

/* What a thread takes to sleep: wait items, and in threaded programs references of their files. */
struct luggage {
        struct usock_item v[ON_STACK + 1];
        struct file *f[ON_STACK];
        int n; /* -1: wait for news */
        int held;
};

static void let_go(struct luggage *l)
{
        while (l->held > 0)
                file_unref(l->f[--l->held]);
}

static void hold(struct luggage *l, struct file *f)
{
        assert(l->held < ON_STACK);
        if (__libc_single_threaded)
                return;
        atomic_fetch_add(&f->refs, 1); /* a member's file lives as long as the set's lock is held */
        l->f[l->held++] = f;
}

/* Those that came last first: listeners came before their connections. */
static void few_items(struct epoll_set *set, struct luggage *l)
{
        struct epoll_item *it;

        l->n = l->held = 0;
        TAILQ_FOREACH_REVERSE (it, &set->members, epoll_members, of_set) {
                if (it->off || !has_our_side(it->f))
                        continue;
                if (l->n == ON_STACK || !item_wait(it, &l->v[l->n])) {
                        l->n = -1;
                        return;
                }
                hold(l, it->f);
                l->n++;
        }
}

/*
 * What another process has in the kernel's half, and leaves ready there, would end each sleep on
 * it. Then the sleep is on ours alone, a millisecond and longer, until there is something else.
 */
#define NOBODYS_LONGEST (16 * NS_PER_MS)

static nstime without_kernel(const struct epoll_set *set)
{
        return set->nobodys < 2 ? 0 : MIN(NS_PER_MS << MIN(set->nobodys - 2, 8u), NOBODYS_LONGEST);
}

/* A sleep on the kernel's half ends with what a look at it would tell: nothing. */
static void note_answer(struct epoll_set *set, const struct usock_item *half)
{
        if (half->answered && half->revents == 0)
                set->watch.pace.asked = usock_ticks();
}

/* Sleeps, as wait_items() does; positive also when `nap`, if there is one, is over. */
static int sleep_on(struct usock_item *v, int n, struct until *u, nstime nap, const sigset_t *mask,
                    const struct usock_news *seen)
{
        nstime left = until_left(u);
        struct until until_nap = until_timeo(nap);
        int r;

        if (likely(nap == 0) || (left >= 0 && left <= nap))
                return wait_items(v, n, u, mask, seen);
        r = wait_items(v, n, &until_nap, mask, seen);
        return r == 0 ? 1 : r;
}

/*
 * Sleeps until something may be ready: positive; 0 when the time is over, -EINTR, -ERR_AGAIN. A
 * small set waits for its own sockets, once no news has come for them since the items were made; a
 * large one is woken by news of any socket of this process's stacks since the queue was looked at.
 */
static int set_wait(struct epoll_set *set, const struct usock_news *seen, struct until *u,
                    const sigset_t *mask, bool asked)
{
        struct luggage l;
        bool news, kernel;
        nstime nap;
        int r = 1;

        pthread_mutex_lock(&set->lock);
        nap = without_kernel(set);
        kernel = set->kernel_half && nap == 0;
        few_items(set, &l);
        if (l.n >= 0)
                epoll_hear_news(set);
        news = l.n >= 0 ? set->queued : epoll_hear_senders(set);
        set->sleepers++;
        pthread_mutex_unlock(&set->lock);
        if (l.n < 0 && !news) {
                let_go(&l);
                l.v[0] = (struct usock_item){.fd = epoll_kernel_fd(set), .events = POLLIN};
                l.v[0].asks = true;
                l.v[0].asked = asked;
                r = sleep_on(l.v, kernel, u, nap, mask, seen);
                note_answer(set, &l.v[0]);
        } else if (!news) {
                l.v[l.n] = (struct usock_item){.fd = epoll_kernel_fd(set), .events = POLLIN};
                l.v[0].asks = true;
                l.v[0].asked = asked;
                r = sleep_on(l.v, l.n + kernel, u, nap, mask, NULL);
                note_answer(set, &l.v[l.n]);
        } else {
                usock_progress();
        }
        let_go(&l);
        set->sleepers--;
        return r;
}

/* `may_sleep`: a sleep follows if nothing of ours is ready, and it ends with what the kernel's half
 * has. Where that has had nothing for some time it is not asked before. */
static enum kernels_turn kernels_turn(struct epoll_set *set, bool may_sleep)
{
        if (!set->kernel_half)
                return KERNEL_IF_NOTHING;
        if (kernel_turn_by_clock(&set->watch.pace))
                return KERNEL_FIRST;
        if (kernel_is_due(&set->watch))
                return KERNEL_TOO;
        return may_sleep ? KERNEL_LATER : KERNEL_IF_NOTHING;
}

/* What other processes have made of members; datagrams may come to those that are
 * undecided still. */
static void hear_of_members(struct epoll_set *set)
{
        struct epoll_item *it;
        bool undecided = false;

        pthread_mutex_lock(&shim.lock);
        TAILQ_FOREACH (it, &set->members, of_set) {
                if (!it->f->shared || it->f->mode != MODE_NEW)
                        continue;
                file_hear_locked(it->f);
                udp_await_locked(it->f);
                undecided |= it->f->mode == MODE_NEW;
        }
        set->undecided = undecided;
        pthread_mutex_unlock(&shim.lock);
}

int epoll_set_wait(struct epoll_set *set, struct epoll_event *ev, int max, struct until *u,
                   const sigset_t *mask)
{
        struct harvest h = {.ev = ev, .max = max};
        bool first = true;
        int r;

        if (unlikely(set->undecided))
                hear_of_members(set);
        usock_progress();
        for (;;) {
                enum kernels_turn turn = kernels_turn(set, first && u->left != 0);
                r = epoll_harvest(set, &h, turn);
                if (r)
                        return r;
                if (u->left == 0)
                        return 0;
                r = set_wait(set, &h.seen, u, mask, turn != KERNEL_LATER);
                first = false;
                if (r < 0)
                        return r;
                if (r == 0 || until_over(u))
                        u->left = 0; /* the last look */
        }
}
