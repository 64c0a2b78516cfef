/*
 * Waiting: the one place where a thread sleeps (design.md §9).
 *
 * A wait is: progress, look, spin for a while, and then sleep. For sleeping a thread takes a *place* (struct
 * waiter_slot) and says which sockets it wants to hear of. At any moment one waiter of a stack is its leader: it sleeps
 * on the stack's pipe, which peers ring, runs input and timers when it wakes, and wakes exactly the waiters whose
 * sockets got something. The others, followers, sleep on a datagram socket of their own, whose abstract name stands in
 * their place, so that any process of the stack can wake them. Who has slept and goes wakes one follower to be the leader, if
 * there is none; one whose process was stopped or killed meanwhile is replaced by a follower of another, which looks after it
 * now and then. Where one of several waiters is enough (accept(), EPOLLEXCLUSIVE) one is woken.
 *
 * No wake-up is lost. A waiter publishes its interest and arms the bell, under the lock, and only then looks at the
 * sockets and queues once more. Whoever changes a socket does so under the lock: before that look, which then sees it,
 * or after, and then the waiter's place is armed and it gets its datagram. Messages from peers that are in no queue yet
 * at that look ring the bell (unet/bell.h). Both kinds of ring are kept by the kernel until they are read.
 *
 * Signals: with a deferred one pending (usock.h) nobody sleeps; it is looked at with all signals blocked, and ppoll
 * opens the mask.
 */
#include "sock/ustack.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "netstack/sandbox.h"
#include "netstack/sys.h"
#include "sock/usock_pace.h"
#include "sock/usock_turns.h"
#include "sock/usock_wake.h"

#define SPIN_MAX     (50 * NS_PER_US)   /* longest spin before sleeping */
#define SPIN_WIRE    (100 * NS_PER_US)  /* ... with an interface of our own: runs of segments come some 50 us apart */
#define SPIN_MIN     (2 * NS_PER_US)
#define SPIN_QUIET   (25 * NS_PER_US)   /* half of what an answer takes: as little as possible, but as much as evens out */
#define SPIN_LOOKS   32                 /* between two looks at the clock */
#define GUARD        (200 * NS_PER_MS)  /* between a follower's looks at a leader of another process */
#define STACK_ITEMS  64
#define WAKE_FDS     (1 + NETIF_MAX + USTACK_LINK_FDS)  /* of one stack */
#define PEERS        STACK_CHANS        /* whose ends a long sleep notices */
#define BLIND        (20 * NS_PER_MS)   /* the longest sleep that a signal may not end */

/* ---- looking ---- */

static int look_ours(struct usock_item *v, int n)
{
        int ready = 0;
        short ev;

        for (int i = 0; i < n; i++) {
                if (v[i].s == NULL)
                        continue;
                ev = usock_poll(v[i].s);
                if (unlikely(ev & USOCK_POLL_KEPT) && v[i].call)
                        ev &= (short)~POLLERR;
                v[i].revents = ev & (v[i].events | POLLERR | POLLHUP);
                if (v[i].revents != 0 || (v[i].fd >= 0 && v[i].krevents != 0))
                        ready++;
        }
        return ready;
}

/* Kernel descriptors of the items into pfd[]; returns how many. */
static int kernel_set(const struct usock_item *v, int n, struct pollfd *pfd)
{
        int k = 0;

        for (int i = 0; i < n; i++)
                if (v[i].fd >= 0)
                        pfd[k++] = (struct pollfd){.fd = v[i].fd, .events = v[i].events};
        return k;
}

static void kernel_results(struct usock_item *v, int n, const struct pollfd *pfd)
{
        int k = 0;

        for (int i = 0; i < n; i++) {
                if (v[i].fd < 0)
                        continue;
                if (v[i].s == NULL)
                        v[i].revents = pfd[k].revents;
                else
                        v[i].krevents = pfd[k].revents;
                k++;
        }
}

static int count_ready(const struct usock_item *v, int n)
{
        int ready = 0;

        for (int i = 0; i < n; i++)
                ready += v[i].revents != 0 || (v[i].s != NULL && v[i].fd >= 0 && v[i].krevents != 0);
        return ready;
}

/* The signals of `mask` come between the two calls, if they are let in; the trampoline is told from usock_tls.pending. So it never
 * sleeps for long. */
static long poll_instead(struct pollfd *pfd, int n, nstime timeout, const sigset_t *mask)
{
        sigset_t old;
        long ret = 0;

        if (mask != NULL)
                sys4(SYS_rt_sigprocmask, SIG_SETMASK, mask, &old, _NSIG / 8);
        if (!usock_tls.pending)
                ret = poll(pfd, (nfds_t)n, (int)(MIN(timeout, BLIND) / NS_PER_MS));
        ret = ret < 0 ? -EINTR : ret;
        if (mask != NULL)
                sys4(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, _NSIG / 8);
        return ret == 0 && usock_tls.pending ? -EINTR : ret;
}

static long ppoll_any(struct pollfd *pfd, int n, nstime timeout, const sigset_t *mask)
{
        struct timespec ts = {.tv_sec = timeout / NS_PER_S, .tv_nsec = timeout % NS_PER_S};

        if (sandbox_forbids(SANDBOX_PPOLL))
                return poll_instead(pfd, n, timeout, mask);
        return sys5(SYS_ppoll, pfd, n, timeout == NSTIME_NEVER ? NULL : &ts, mask, _NSIG / 8);
}

/* More than RLIMIT_NOFILE lets a process ask for at once, however many it has open: one after the other. */
static long ppoll_singly(struct pollfd *pfd, int n, nstime timeout, const sigset_t *mask)
{
        long ready = 0;

        for (int i = 0; i < n; i++)
                ready += ppoll_any(&pfd[i], 1, 0, NULL) > 0;
        if (ready == 0 && timeout != 0)
                ready = ppoll_any(NULL, 0, MIN(timeout, NS_PER_MS), mask);
        return ready;
}

static long sys_ppoll(struct pollfd *pfd, int n, nstime timeout, const sigset_t *mask)
{
        long ret = ppoll_any(pfd, n, timeout, mask);

        if (unlikely(ret == -EINVAL && n > 0))
                ret = ppoll_singly(pfd, n, timeout, mask);
        return ret;
}

/* ---- one wait ---- */

struct wait {
        struct usock_item *v;
        int n, nk;                      /* items; kernel descriptors among them */
        struct pollfd *pfd;             /* room for nk + places */
        nstime until;
        const sigset_t *mask;
        const struct usock_news *news;  /* wait for news since this too; may be NULL */
        struct ustack *all[USTACKS_MAX];
        uint32_t nall;
        bool inside;                    /* stacks were polled and not left yet */
        bool slept;                     /* there may be followers that wait for this one to lead or to wake another */
        bool owes, gave_way;            /* acknowledgements; and who sends had the processor since something was ready last */
        nstime began;
        int npeers;                     /* of peers[], whose ends a long sleep notices; -1: it has not waited for long yet */
        struct pollfd *peers;
        bool napped;                    /* once is enough (nap()) */
        bool look_daemon;               /* it is time to look whether unetd is the same */
};

/* Per thread: how long spinning has paid lately, and when everything was looked at last. */
static __thread nstime spin_budget __attribute__((tls_model("initial-exec"))) = SPIN_MAX;
static __thread uint64_t rest_seen __attribute__((tls_model("initial-exec")));

/* Stacks are only ever added, behind the others. */
static bool has_news(const struct wait *w)
{
        if (likely(w->news == NULL))
                return false;
        if (w->nall != w->news->nstacks)
                return true;
        for (uint32_t i = 0; i < w->nall; i++)
                if (atomic_load_explicit(&w->all[i]->s.st->news_count, memory_order_acquire) != w->news->count[i])
                        return true;
        return false;
}

static int look(struct wait *w)
{
        return look_ours(w->v, w->n) + has_news(w);
}

static int ready_items(const struct wait *w)
{
        return count_ready(w->v, w->n) + has_news(w);
}

/* Who has slept and does not sleep again: another is to be the leader. Under the lock. */
static void hand_over(struct wait *w, struct ustack *u)
{
        if (w->slept && u->s.st->leader == 0 && !u->woke)
                usock_wake_one(u);
}

/*
 * One turn of every stack, then a look. When something is ready the caller goes back to the application, whose answer
 * will carry the acknowledgements; otherwise they go out now, since this thread has nothing else to do. Returns how many
 * are ready; w->inside then says whether stacks are still to be left. Over an RDMA device, which may be the kernel's software,
 * who sends has the processor once more before (give_way()): what follows at once is then acknowledged with it.
 */
static int progress(struct wait *w, nstime now)
{
        int ready = w->nall == 0 ? look(w) : 0;

        for (uint32_t i = 0; i < w->nall; i++) {
                struct ustack *u = w->all[i];
                ustack_lock(u);
                stack_run(&u->s, now);
                if (unlikely(now >= u->peers_at)) {
                        ustack_peers_look(u, now);
                        w->look_daemon = true;
                }
                if (i + 1 == w->nall)
                        ready = look(w);
                if (ready == 0 && u->s.st->nacks != 0 && !w->gave_way && ustack_links_any(u) && stack_owes_acks(&u->s))
                        w->owes = true;
                else if (ready == 0)
                        stack_flush_acks(&u->s, now);
                if (ready == 0) {
                        ustack_unlock(u);
                } else {
                        hand_over(w, u);
                        ustack_leave(u);
                }
        }
        w->inside = ready == 0 || w->nall > 1;
        return ready;
}

/* True: there are acknowledgements that the next turn will send; what comes until then they cover. */
static bool give_way(struct wait *w)
{
        if (likely(!w->owes))
                return false;
        w->owes = false;
        w->gave_way = true;
        sched_yield();
        return true;
}

static bool pending(const struct wait *w, nstime now)
{
        for (uint32_t i = 0; i < w->nall; i++)
                if (stack_pending(&w->all[i]->s, now))
                        return true;
        return false;
}

static int ask_kernel(struct wait *w)
{
        if (w->nk > 0) {
                kernel_set(w->v, w->n, w->pfd);
                if (sys_ppoll(w->pfd, w->nk, 0, NULL) > 0)
                        kernel_results(w->v, w->n, w->pfd);
        }
        return ready_items(w);
}

static inline void relax(void)
{
#if defined(__x86_64__)
        __builtin_ia32_pause();
#else
        __asm__ volatile("yield");
#endif
}

/*
 * How long to spin at most. Spinning is for a peer that runs on another processor; 0: there is none. Behind an interface of our
 * own nobody needs this processor, behind one that is shared a gateway does. Behind an RDMA device, which may be the kernel's
 * software, it is offered to everybody at each look (*yield): on a machine with one processor what comes next comes from there.
 */
static nstime spin_most(const struct wait *w, bool *yield)
{
        uint32_t cpu = (uint32_t)sched_getcpu();
        nstime most = 0;

        *yield = false;
        for (uint32_t i = 0; i < w->nall; i++) {
                struct ustack *u = w->all[i];
                if (atomic_load_explicit(&u->s.bell->cpu, memory_order_relaxed) != cpu)
                        atomic_store_explicit(&u->s.bell->cpu, cpu, memory_order_relaxed);
                for (uint32_t k = 0; k < READ_ONCE(u->s.nchan); k++) {
                        const struct bell *bell = __atomic_load_n(&u->chan[k].bell, __ATOMIC_ACQUIRE);  /* mapped before */
                        if (READ_ONCE(u->s.chan[k].wire))
                                return SPIN_WIRE;
                        if (READ_ONCE(u->s.chan[k].outside) ||
                            (bell != NULL && atomic_load_explicit(&bell->cpu, memory_order_relaxed) != cpu))
                                most = SPIN_MAX;
                        if (unlikely(READ_ONCE(u->s.chan[k].remote)))
                                *yield = true;
                }
        }
        return most;
}

/* With an interface of our own a sleep as short as that should have been a spin: it cost whoever ended it a wake-up, and us its
 * way here. */
static void judge_sleep(const struct wait *w, nstime slept)
{
        bool yield;

        if (slept < 2 * SPIN_WIRE && spin_most(w, &yield) == SPIN_WIRE)
                spin_budget = SPIN_WIRE;
}

/* Turns are left to the kernel, and it was not the other end's: a sleep that makes it so, and is as short as there are. False: it
 * was no use, and who waits sleeps until he is woken. */
static bool nap(struct wait *w)
{
        const struct timespec least = {.tv_nsec = 1};

        if (w->napped || sandbox_forbidden != 0)
                return false;
        w->napped = true;
        sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &least, NULL);
        return true;
}

/* Polls until something is pending or the budget is spent. True: something came. What others had of the time, when they were
 * offered the processor, is not of the budget: it is theirs that what comes next comes from. */
static bool spin(struct wait *w, nstime now)
{
        enum usock_turns_wait how;
        bool yield;
        nstime most = spin_most(w, &yield), end = now + MIN(spin_budget, most), due = NSTIME_NEVER, began = now, lent = 0;
        int looks, offers = 0;

        if (most == 0)
                return false;
        how = usock_turns_waits();
        if (unlikely(how == USOCK_TURNS_NAP) && !w->napped)
                return nap(w);
        if (unlikely(how == USOCK_TURNS_SPIN)) {
                end = now + SPIN_QUIET;
                yield = false;
        }
        looks = yield ? 1 : SPIN_LOOKS;
        for (uint32_t i = 0; i < w->nall; i++)
                due = MIN(due, stack_deadline(&w->all[i]->s));
        do {
                for (int i = 0; i < looks; i++) {
                        if (pending(w, 0)) {
                                spin_budget = MIN(spin_budget * 2, most);
                                if (unlikely(yield))
                                        usock_turns_spun(offers, lent);
                                if (lent > USOCK_LENT_SHARED)           /* it was no better than a sleep */
                                        usock_slept(w->all, w->nall, began);
                                return true;
                        }
                        relax();
                }
                now = ustack_now();
                if (yield) {
                        sched_yield();
                        offers++;
                        lent -= now;
                        end -= now;
                        now = ustack_now();
                        lent += now;
                        end += now;
                }
                if (usock_tls.pending || now >= due || now >= w->until)
                        return true;
        } while (now < end);
        if (unlikely(how == USOCK_TURNS_SPIN))
                return nap(w);
        spin_budget = MAX(spin_budget / 2, SPIN_MIN);
        return false;
}

/* True: its place was rung. */
static bool delist(struct ustack *u, const struct wait *w, uint32_t slot)
{
        struct stack_state *st = u->s.st;
        bool rung;

        if (slot == 0)
                return false;
        rung = usock_delist(u, w->v, w->n, slot);
        u->woke = false;
        if (st->leader == slot) {
                char junk[64];
                WRITE_ONCE(st->leader, 0);
                bell_disarm(u->s.bell);
                stack_want_returns(&u->s, false);
                while (sys3(SYS_read, u->fds.leader_r, junk, sizeof junk) == sizeof junk)
                        ;
        }
        return rung;
}

static bool has_other_processes(const struct ustack *u)
{
        for (uint32_t i = 0; i < STACK_PROCS; i++)
                if (i != u->slot && atomic_load_explicit(&u->s.st->proc[i].pid, memory_order_relaxed) != 0)
                        return true;
        return false;
}

/* Work that has waited for a leader all this time: its process is stopped. It wakes when it is continued, as a follower. */
static void replace_leaders(struct wait *w)
{
        nstime now = ustack_now();

        for (uint32_t i = 0; i < w->nall; i++) {
                struct ustack *u = w->all[i];
                struct stack_state *st = u->s.st;
                ustack_lock(u);
                if (st->leader != 0 && stack_waiter(st, st->leader - 1)->proc != u->slot + 1 &&
                    (stack_pending(&u->s, 0) || stack_deadline(&u->s) < now - GUARD / 2)) {
                        atomic_store_explicit(&stack_waiter(st, st->leader - 1)->armed, 0, memory_order_relaxed);
                        usock_wake(u, st->leader - 1);
                        WRITE_ONCE(st->leader, 0);
                }
                ustack_links_doubt(u);
                ustack_unlock(u);
        }
}

/* Publishes interest everywhere and becomes leader where there is none. True: something came up; do not sleep. */
static bool arm(struct wait *w, const struct usock_place *p, uint32_t slot[], nstime *until)
{
        bool found = false;

        for (uint32_t i = 0; i < w->nall; i++) {
                struct ustack *u = w->all[i];
                ustack_lock(u);
                slot[i] = usock_enlist(u, w->v, w->n, w->news != NULL, p);
                if (slot[i] == 0 && *until > ustack_now() + NS_PER_MS)
                        *until = ustack_now() + NS_PER_MS;      /* no place: look again soon */
                if (slot[i] != 0 && u->s.st->leader == 0 && !sandbox_forbids(SANDBOX_UNETD)) {
                        WRITE_ONCE(u->s.st->leader, slot[i]);
                        u->s.st->leader_at = stack_deadline(&u->s);
                        *until = nstime_min(*until, u->s.st->leader_at);
                        if (w->npeers >= 0 && (uint32_t)w->npeers + u->s.nchan <= PEERS)
                                w->npeers += ustack_peers_fds(u, w->peers + w->npeers);
                        else if (u->s.nchan != 0)
                                *until = nstime_min(*until, u->peers_at);
                        stack_want_returns(&u->s, true);
                        bell_arm_count(u->s.bell, BELL_ASLEEP, ++u->s.st->sleeps);
                        if (ustack_links_elsewhere(u))
                                *until = nstime_min(*until, ustack_now() + GUARD);
                } else {
                        if (stack_deadline(&u->s) < u->s.st->leader_at)         /* what it fell asleep without */
                                *until = nstime_min(*until, stack_deadline(&u->s));
                        if (has_other_processes(u))
                                *until = nstime_min(*until, ustack_now() + GUARD);
                }
                ustack_links_arm(u);
                found |= stack_pending(&u->s, 0);
                found |= look(w) > 0;
                if (sandbox_forbids(SANDBOX_UNETD))
                        ustack_leave(u);        /* the keeper sees to new channels, and so to all */
                else
                        ustack_unlock(u);
        }
        return found || usock_tls.pending;
}

/* True: our place was rung. */
static bool disarm(struct wait *w, const uint32_t slot[])
{
        bool rung = false;

        for (uint32_t i = 0; i < w->nall; i++) {
                ustack_lock(w->all[i]);
                rung |= delist(w->all[i], w, slot[i]);
                if (w->npeers > 0)
                        w->all[i]->peers_at = 0;        /* it may be that what woke us */
                ustack_unlock(w->all[i]);
        }
        return rung;
}

/* Sleeps once. 0, or -EINTR. */
static int doze(struct wait *w)
{
        struct usock_place *p = usock_place_get();
        uint32_t slot[USTACKS_MAX] = {0};
        nstime until = w->until, now;
        bool rung = false;
        sigset_t all, old;
        long ret = 0;
        struct pollfd peers[PEERS];
        int k;

        if (p == NULL)
                return sys_ppoll(NULL, 0, NS_PER_MS, w->mask) == -EINTR ? -EINTR : 0;
        sigfillset(&all);
        sys4(SYS_rt_sigprocmask, SIG_BLOCK, &all, &old, _NSIG / 8);
        w->peers = peers;
        w->npeers = ustack_now() - w->began >= USTACK_PEERS_EVERY ? 0 : -1;
        if (!arm(w, p, slot, &until)) {
                k = kernel_set(w->v, w->n, w->pfd);
                w->pfd[k++] = (struct pollfd){.fd = p->fd, .events = POLLIN};
                for (uint32_t i = 0; i < w->nall; i++) {
                        k += ustack_links_fds(w->all[i], w->pfd + k);
                        /* Nobody but itself writes its number there; if somebody takes it away it is woken by its place. */
                        if (slot[i] == 0 || READ_ONCE(w->all[i]->s.st->leader) != slot[i])
                                continue;
                        w->pfd[k++] = (struct pollfd){.fd = w->all[i]->fds.leader_r, .events = POLLIN};
                        k += ustack_wake_fds(w->all[i], w->pfd + k);
                }
                for (int i = 0; i < w->npeers; i++)
                        w->pfd[k++] = peers[i];
                if (w->npeers >= 0) {
                        w->look_daemon = true;
                        w->pfd[k] = (struct pollfd){.fd = ustack_daemon_fd(&until)};
                        k += w->pfd[k].fd >= 0;
                }
                now = ustack_now();
                ret = sys_ppoll(w->pfd, k, until == NSTIME_NEVER ? NSTIME_NEVER : MAX(until - now, 0),
                                w->mask != NULL ? w->mask : &old);
                if (ret > 0)
                        kernel_results(w->v, w->n, w->pfd);
                rung = ret > 0 && w->pfd[w->nk].revents != 0;
        }
        rung |= disarm(w, slot);
        w->slept = true;
        if (ret == 0)
                replace_leaders(w);
        w->inside = true;
        sys4(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, _NSIG / 8);
        usock_place_put(p, rung);
        return ret == -EINTR || usock_tls.pending ? -EINTR : 0;
}

/* Somebody is at work in a stack: what it took off the queues may not be anywhere yet. */
static bool others_inside(const struct wait *w)
{
        for (uint32_t i = 0; i < w->nall; i++)
                if (rlock_taken(&w->all[i]->s.st->lock))
                        return true;
        return false;
}

/* With sockets of ours ready the rest is looked at now and then: input that may make others ready, the kernel's side. A
 * caller that goes on with what is ready (recv runs the stack when it finds nothing) loses nothing by it. */
static bool rest_is_due(const struct wait *w)
{
        return usock_ticks() - rest_seen > USOCK_TICKS_EVERY && (w->nk > 0 || pending(w, 0) || others_inside(w));
}

/* Sleeps. 1: there is something; 0: look; -EINTR. */
static int pause_or_doze(struct wait *w, nstime now)
{
        int err = unlikely(usock_in_stream()) ? usock_pause(w->all, w->nall, now, w->until, w->mask) : 0;

        if (err != 0 && (err < 0 || pending(w, 0)))
                return err;
        err = doze(w);
        judge_sleep(w, ustack_now() - now);
        usock_slept(w->all, w->nall, now);
        return err;
}

static int wait_loop(struct wait *w, nstime timeout)
{
        int ready = look(w), err;
        bool asked = false;
        nstime now;

        if (ready > 0 && !rest_is_due(w))
                return ready;
        w->began = now = ustack_now();
        w->until = timeout < 0 ? NSTIME_NEVER : timeout == 0 ? 0 : now + timeout;
        w->gave_way = timeout == 0;
        for (;; now = ustack_now()) {
                bool due = usock_ticks() - rest_seen > USOCK_TICKS_EVERY;
                if (ready == 0 || pending(w, now) || (due && others_inside(w)))
                        ready = progress(w, now);
                if (w->nk > 0 && (ready == 0 || due))
                        ready = due || !asked ? ask_kernel(w) : ready_items(w);
                asked = true;
                if (due)
                        rest_seen = usock_ticks();
                if (ready > 0 || now >= w->until)
                        return ready;
                if (usock_tls.pending)
                        return -EINTR;
                if (unlikely(w->look_daemon)) {
                        w->look_daemon = false;
                        ustack_daemon_look();
                }
                if (give_way(w) || (!usock_in_stream() && spin(w, now)))
                        continue;
                err = pause_or_doze(w, now);
                w->gave_way = false;
                if (err > 0)
                        continue;
                ready = ready_items(w);
                if (err != 0) {
                        w->gave_way = true;
                        progress(w, ustack_now());
                        ready = ready_items(w);
                        return ready > 0 ? ready : err;
                }
        }
}

int usock_wait(struct usock_item *v, int n, nstime timeout, const sigset_t *mask)
{
        return usock_wait_news(NULL, v, n, timeout, mask);
}

int usock_wait_news(const struct usock_news *at, struct usock_item *v, int n, nstime timeout, const sigset_t *mask)
{
        struct pollfd few[STACK_ITEMS + USTACKS_MAX * WAKE_FDS + PEERS + 2];
        struct wait w = {.v = v, .n = n, .pfd = few, .mask = mask, .news = at};
        int ready;

        for (int i = 0; i < n; i++) {
                v[i].revents = v[i].krevents = 0;
                w.nk += v[i].fd >= 0;
        }
        w.nall = ustack_all(w.all);
        if (w.nk > STACK_ITEMS) {
                w.pfd = malloc(((size_t)w.nk + USTACKS_MAX * WAKE_FDS + PEERS + 2) * sizeof *w.pfd);
                if (w.pfd == NULL)
                        return -ENOMEM;
        }
        ready = wait_loop(&w, timeout);
        for (uint32_t i = 0; w.inside && i < w.nall; i++) {
                ustack_lock(w.all[i]);
                hand_over(&w, w.all[i]);
                ustack_leave(w.all[i]);
        }
        if (w.pfd != few)
                free(w.pfd);
        return ready;
}

bool usock_is_taken_by_one(struct usock *s, short events)
{
        uint8_t role = sock_role(usock_rec(s));

        return role == SOCK_ROLE_LISTENER || (role == SOCK_ROLE_UDP && events == POLLIN);
}

int usock_wait1(struct usock *s, short events, nstime timeout)
{
        struct usock_item it = {.s = s, .fd = -1, .events = events, .call = true, .exclusive = usock_is_taken_by_one(s, events)};
        int n = usock_wait(&it, 1, timeout, NULL);

        return n > 0 ? 0 : n == 0 ? -EAGAIN : n;
}

void usock_progress(void)
{
        struct ustack *all[USTACKS_MAX];
        uint32_t n = ustack_all(all);

        rest_seen = usock_ticks();
        for (uint32_t i = 0; i < n; i++) {
                if (!stack_pending(&all[i]->s, 0) && stack_deadline(&all[i]->s) > ustack_now())
                        continue;
                ustack_lock(all[i]);
                stack_run(&all[i]->s, ustack_now());
                ustack_leave(all[i]);
        }
}

void usock_progress_if_due(void)
{
        if (usock_ticks() - rest_seen > USOCK_TICKS_EVERY)
                usock_progress();
}

/* ---- news ---- */

static_assert(ARRAY_LEN(((struct usock_news *)0)->count) == USTACKS_MAX, "a position in each");

static bool read_news(struct ustack *u, uint32_t *at, void (*fn)(void *arg, void *stack, uint32_t sock), void *arg)
{
        struct stack_state *st = u->s.st;
        uint32_t end = atomic_load_explicit(&st->news_count, memory_order_acquire);
        bool whole;

        for (uint32_t i = *at; i != end && end - *at < STACK_NEWS; i++)
                fn(arg, u, atomic_load_explicit(&st->news[i % STACK_NEWS], memory_order_relaxed));
        atomic_thread_fence(memory_order_acquire);
        whole = atomic_load_explicit(&st->news_count, memory_order_relaxed) - *at < STACK_NEWS;
        *at = end;
        return whole;
}

bool usock_news(struct usock_news *at, void (*fn)(void *arg, void *stack, uint32_t sock), void *arg)
{
        struct ustack *all[USTACKS_MAX];
        uint32_t n = ustack_all(all);
        bool whole = n == at->nstacks;

        for (uint32_t i = 0; i < n; i++)
                whole &= read_news(all[i], &at->count[i], fn, arg);
        at->nstacks = n;
        return whole;
}

void *usock_stack(const struct usock *s)
{
        return s->u;
}

uint32_t usock_number(const struct usock *s)
{
        return s->idx;
}

void usock_nudge(struct usock *s)
{
        ustack_lock(s->u);
        ustack_event(&s->u->s, s->idx, 0);
        ustack_leave(s->u);
}
