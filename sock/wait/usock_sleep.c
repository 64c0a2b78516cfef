/* Sleeping once, in a place of the stack and on what the kernel has: see usock_wait.c for why no
 * wake-up is lost. */
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_daemon.h"
#include "sock/attach/ustack_link.h"
#include "sock/wait/usock_wait.h"

#include <errno.h>
#include <unistd.h>

#include "base/sandbox.h"
#include "base/sys.h"
#include "sock/usock_sys.h"
#include "sock/wait/usock_wake.h"
#include "sock/usock_ready.h"
#include "sock/usock_process.h"
#include "unet/bell_fd.h"

/* Between two followers' looks at a leader of another process: followers of a thousand processes
 * that all looked so often would take a processor. Each process looks once in so many. */
#define GUARD       (200 * NS_PER_MS)
#define GUARD_TURNS 32u
/* How long followers look by themselves after a wake-up that did not arrive. */
#define UNHEARD NS_PER_S
#define BLIND   (20 * NS_PER_MS) /* the longest sleep that a signal may not end */

/* ---- the kernel's side ---- */

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
                v[i].answered = true;
                k++;
        }
}

/* The signals of `mask` come between the two calls, if they are let in; usock_tls.pending tells of
 * those that were put off. So it never sleeps for long. */
static long poll_instead(struct pollfd *pfd, int n, nstime timeout, const sigset_t *mask)
{
        sigset_t old;
        long ret = 0;

        if (mask != NULL)
                sys4(SYS_rt_sigprocmask, SIG_SETMASK, mask, &old, _NSIG / 8);
        if (timeout == 0 || !usock_tls.pending)
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
        if (timeout == 0 && mask == NULL) /* a look, also while a signal is put off */
                return sys5(SYS_ppoll, pfd, n, &ts, NULL, _NSIG / 8);
        return usock_sys6(SYS_ppoll, (long)pfd, n, timeout == NSTIME_NEVER ? 0 : (long)&ts,
                          (long)mask, _NSIG / 8, 0);
}

/* More than RLIMIT_NOFILE lets a process ask for at once, however many it has open: one after
 * the other. */
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

void wait_ask_kernel(struct wait *w)
{
        kernel_set(w->v, w->n, w->pfd);
        if (sys_ppoll(w->pfd, w->nk, 0, NULL) > 0)
                kernel_results(w->v, w->n, w->pfd);
}

/* ---- one sleep ---- */

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
                WRITE_ONCE(st->leader, 0);
                bell_disarm(u->s.bell);
                stack_want_returns(&u->s, false);
                /* One peer rings once, unless its channel may be quiet: to look for more costs a
                 * call. */
                if (unlikely(bell_hear(u->fds.leader, u->s.nchan > MIN(st->quiet_few, 1))))
                        stack_heard_quiet(&u->s, ustack_now()); /* the keeper may be stopped */
        }
        return rung;
}

/* Returns the number of processes of the stack, but no more than GUARD_TURNS. */
static uint32_t count_processes(const struct ustack *u)
{
        uint32_t n = 0;

        for (uint32_t i = 0, end = stack_procs(u->s.st); i < end && n < GUARD_TURNS; i++)
                n += i == u->slot ||
                     atomic_load_explicit(&u->s.st->proc[i].pid, memory_order_relaxed) != 0;
        return n;
}

/* Returns when it is this process's turn to look: processes take turns by their slots. */
static nstime next_turn(const struct ustack *u, nstime now, uint32_t turns)
{
        uint64_t at = (uint64_t)(now / GUARD) + 1;

        at += (u->slot % turns + turns - at % turns) % turns;
        return (nstime)at * GUARD;
}

/* When a follower looks for itself: at leaders of other processes that may be stopped, and for
 * wake-ups that cannot reach it. */
static nstime next_guard(const struct ustack *u)
{
        nstime now = ustack_now(), unheard = u->s.st->unheard_at;
        uint32_t procs;

        if (unlikely(unheard != 0) && now - unheard < UNHEARD)
                return now + NS_PER_MS;
        if (unlikely(usock_names_elsewhere()))
                return now + GUARD;
        procs = count_processes(u);
        return procs > 1 ? next_turn(u, now, procs) : NSTIME_NEVER;
}

/* Work that has waited for a leader all this time: its process is stopped. It wakes when it is
 * continued, as a follower. */
static void replace_leaders(struct wait *w)
{
        nstime now = ustack_now();

        for (uint32_t i = 0; i < w->nall; i++) {
                struct ustack *u = w->all[i];
                struct stack_state *st = u->s.st;
                ustack_lock(u);
                if (st->leader != 0 && stack_waiter(st, st->leader - 1)->proc != u->slot + 1 &&
                    (stack_pending(&u->s, 0) || stack_deadline(&u->s) < now - GUARD / 2)) {
                        atomic_store_explicit(&stack_waiter(st, st->leader - 1)->armed, 0,
                                              memory_order_relaxed);
                        usock_wake(u, st->leader - 1);
                        WRITE_ONCE(st->leader, 0);
                }
                ustack_links_doubt(u);
                ustack_unlock(u);
        }
}

/* Where many are at work, much comes while the lock is waited for. */
bool wait_came_meanwhile(struct wait *w)
{
        bool ours = false;

        w->inside = true;
        for (uint32_t i = 0; i < w->nall; i++) {
                struct ustack *u = w->all[i];
                nstime now = ustack_now();
                ustack_lock(u);
                if (stack_pending(&u->s, 0)) {
                        wait_turn(w, u, now);
                        ours |= wait_heard(w);
                        if (!ours)
                                stack_flush_acks(&u->s, now);
                }
                ustack_unlock(u);
        }
        return ours || wait_heard(w);
}

/* Publishes interest everywhere and becomes leader where there is none. True: something came up; do
 * not sleep. */
static bool arm(struct wait *w, const struct usock_place *p, uint32_t slot[], nstime *until)
{
        bool found = false;

        for (uint32_t i = 0; i < w->nall; i++) {
                struct ustack *u = w->all[i];
                ustack_lock(u);
                slot[i] = usock_enlist(u, w->v, w->n, w->news != NULL, p);
                if (slot[i] == 0 && *until > ustack_now() + NS_PER_MS)
                        *until = ustack_now() + NS_PER_MS; /* no place: look again soon */
                if (slot[i] != 0 && u->s.st->leader == 0 && !w->relayed &&
                    !sandbox_forbids(SANDBOX_UNETD)) {
                        WRITE_ONCE(u->s.st->leader, slot[i]);
                        u->s.st->leader_at = stack_deadline(&u->s);
                        *until = nstime_min(*until, u->s.st->leader_at);
                        if (w->is_long)
                                *until = nstime_min(*until, ustack_peers_due(u));
                        else if (u->s.nchan != 0)
                                *until = nstime_min(*until, u->peers_at);
                        stack_want_returns(&u->s, true);
                        stack_arm(&u->s);
                        bell_arm_count(u->s.bell, BELL_ASLEEP, ++u->s.st->sleeps);
                        if (ustack_links_elsewhere(u))
                                *until = nstime_min(*until, ustack_now() + GUARD);
                } else {
                        /* The leader fell asleep before there was this deadline. */
                        if (stack_deadline(&u->s) < u->s.st->leader_at)
                                *until = nstime_min(*until, stack_deadline(&u->s));
                        *until = nstime_min(*until, next_guard(u));
                }
                ustack_links_arm(u);
                found |= stack_pending(&u->s, 0);
                found |= wait_look(w) > 0;
                if (sandbox_forbids(SANDBOX_UNETD) || w->relayed)
                        ustack_leave(u); /* the keeper sees to new channels, and so to all */
                else
                        ustack_unlock(u);
        }
        return found || usock_tls.pending;
}

/* Takes what has come, too. `alone`: unetd has ended, and peers may have ended with it. True: our
 * place was rung. */
static bool disarm(struct wait *w, const uint32_t slot[], bool alone)
{
        nstime now = ustack_now();
        bool rung = false;

        w->slept = true;
        for (uint32_t i = 0; i < w->nall; i++) {
                ustack_lock(w->all[i]);
                rung |= delist(w->all[i], w, slot[i]);
                if (alone)
                        WRITE_ONCE(w->all[i]->peers_at, 0);
                wait_turn(w, w->all[i], now);
                ustack_unlock(w->all[i]);
        }
        return rung;
}

/* What an earlier sleep has told of the kernel's side is not what this one does. */
static void forget_answers(struct usock_item *v, int n)
{
        for (int i = 0; i < n; i++)
                v[i].answered = false;
}

/* Who waits for the place alone sleeps by reading it. */
static bool is_for_place_alone(const struct wait *w, int nfds, nstime until)
{
        return nfds == 1 && until == NSTIME_NEVER && w->mask == NULL && usock_places_wait();
}

static int doze_in(struct wait *w, struct usock_place *p)
{
        uint32_t slot[USTACKS_MAX] = {0};
        nstime until = w->until, now;
        bool rung = false, alone = false, read = false;
        long ret = 0;
        int k, unetd;

        w->is_long = ustack_now() - w->began >= USTACK_PEERS_EVERY;
        forget_answers(w->v, w->n);
        if (!arm(w, p, slot, &until)) {
                k = kernel_set(w->v, w->n, w->pfd);
                w->pfd[k++] = (struct pollfd){.fd = p->fd, .events = POLLIN};
                for (uint32_t i = 0; i < w->nall; i++) {
                        k += ustack_links_fds(w->all[i], w->pfd + k);
                        /* A thread makes itself the leader, and nobody else does. Who takes that
                         * away rings its place. */
                        if (slot[i] == 0 || READ_ONCE(w->all[i]->s.st->leader) != slot[i])
                                continue;
                        w->pfd[k++] =
                                (struct pollfd){.fd = w->all[i]->fds.leader, .events = POLLIN};
                        k += ustack_wake_fds(w->all[i], w->pfd + k);
                }
                unetd = k;
                if (w->is_long) {
                        w->look_daemon = true;
                        w->pfd[k] = (struct pollfd){.fd = ustack_daemon_fd(&until)};
                        k += w->pfd[k].fd >= 0;
                }
                now = ustack_now();
                if (is_for_place_alone(w, k, until)) {
                        ret = usock_place_sleep(p);
                        read = rung = ret >= 0;
                } else {
                        ret = sys_ppoll(w->pfd, k,
                                        until == NSTIME_NEVER ? NSTIME_NEVER : MAX(until - now, 0),
                                        w->mask);
                        rung = ret > 0 && w->pfd[w->nk].revents != 0;
                        alone = ret > 0 && k > unetd && w->pfd[unetd].revents != 0;
                }
                w->asked |= ret >= 0;
                if (ret > 0)
                        kernel_results(w->v, w->n, w->pfd);
        }
        if (rung)
                w->relayed = false;
        rung |= disarm(w, slot, alone);
        if (ret == 0)
                replace_leaders(w);
        usock_place_put(p, rung && !read);
        return ret == -EINTR || usock_tls.pending ? -EINTR : 0;
}

int wait_doze(struct wait *w)
{
        struct usock_place *p = usock_place_get();

        if (p == NULL)
                return sys_ppoll(NULL, 0, NS_PER_MS, w->mask) == -EINTR ? -EINTR : 0;
        return doze_in(w, p);
}
