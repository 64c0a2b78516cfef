/*
 * Waiting: the one place where a thread sleeps.
 *
 * A wait is: progress, look, spin for a while, and then sleep. For sleeping a thread takes a
 * *place* (struct waiter_slot) and says which sockets it wants to hear of. At any moment one waiter
 * of a stack is its leader. It sleeps on the stack's bell socket, which peers ring. It runs input
 * and timers when it wakes, and wakes exactly the waiters whose sockets got something. The others,
 * followers, sleep on a datagram socket of their own, whose abstract name stands in their place, so
 * that any process of the stack can wake them:
 *
 *   the peer        rings the bell (unet/bell.h), unless a thread of the stack polls
 *   who runs the    stack_run() -> ustack_event(): the socket's waiters -> usock_wake(): noted
 *   stack           ustack_leave() -> ustack_unlock_and_wake(): the lock is left, they are rung
 *
 * Where one of several waiters is enough (accept(), EPOLLEXCLUSIVE) one is woken.
 *
 * Who leads next. A leader that was woken for what is another's does not lead again until it is
 * woken itself. The waiter that it woke leads, when that one sleeps next. The end of a connection
 * is no such news: who hears of it closes, and the leader leads on. While nobody leads, whoever
 * leaves the stack rings the keeper (ustack_leave()), which wakes a waiter to lead. Two kinds of
 * threads perhaps never sleep here again, and wake one to lead by themselves (ustack_let_lead()):
 * one that goes with what one of several takes, and one that closes a socket. A leader whose
 * process was stopped or killed is replaced by a follower of another process, which looks after it
 * now and then.
 *
 * No wake-up is lost. A waiter publishes its interest and arms the bell, under the lock, and only
 * then looks at the sockets and queues once more. Whoever changes a socket does so under the lock:
 * before that look, which then sees it, or after, and then the waiter's place is armed and it gets
 * its datagram. Messages from peers that are in no queue yet at that look ring the bell
 * (unet/bell.h). Both kinds of ring are kept by the kernel until they are read.
 *
 * Signals: with a deferred one pending (usock_process.h) nobody sleeps. A handler that finds its
 * thread between the last look and the system call moves it behind that call (usock_sys.h).
 */
#include "sock/attach/handle.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_daemon.h"
#include "sock/attach/ustack_link.h"
#include "sock/attach/ustack_wake.h"
#include "sock/wait/usock_wait.h"

#include <errno.h>
#include <stdlib.h>

#include "base/sandbox.h"
#include "sock/wait/usock_turns.h"
#include "sock/usock_ready.h"
#include "sock/usock_process.h"

#define STACK_ITEMS 64
/* At a lock that is taken, and at what its holder brings, before it is waited for. */
#define LOCK_LOOKS 200

/* ---- looking ---- */

/* Who waits to read asks for less. */
static short events_now(const struct usock_item *it)
{
        if (it->events == USOCK_POLL_SOME && !usock_waits_for_more(it->s))
                return usock_readable(it->s) ? USOCK_POLL_SOME : 0;
        return usock_poll(it->s);
}

static int look_ours(struct usock_item *v, int n)
{
        int ready = 0;
        short ev;

        for (int i = 0; i < n; i++) {
                if (v[i].s == NULL)
                        continue;
                ev = events_now(&v[i]);
                if (unlikely(ev & USOCK_POLL_KEPT) && v[i].call)
                        ev &= (short)~POLLERR;
                v[i].revents = ev & (v[i].events | POLLERR | POLLHUP);
                if (v[i].revents != 0 || (v[i].fd >= 0 && v[i].krevents != 0)) {
                        ready++;
                        if (v[i].enough)
                                break;
                }
        }
        return ready;
}

static int count_ready(const struct usock_item *v, int n)
{
        int ready = 0;

        for (int i = 0; i < n; i++)
                ready +=
                        v[i].revents != 0 || (v[i].s != NULL && v[i].fd >= 0 && v[i].krevents != 0);
        return ready;
}

/* ---- one wait ---- */

/* Per thread: when everything was looked at last. */
static __thread uint64_t rest_seen __attribute__((tls_model("initial-exec")));

/* Stacks are only ever added, behind the others. */
static bool has_news(const struct wait *w)
{
        if (likely(w->news == NULL))
                return false;
        if (w->nall != w->news->nstacks)
                return true;
        for (uint32_t i = 0; i < w->nall; i++)
                if (atomic_load_explicit(&w->all[i]->s.st->news_count, memory_order_acquire) !=
                    w->news->count[i])
                        return true;
        return false;
}

int wait_look(struct wait *w)
{
        return look_ours(w->v, w->n) + has_news(w);
}

static int ready_items(const struct wait *w)
{
        return count_ready(w->v, w->n) + has_news(w);
}

static bool takes_turns(const struct wait *w)
{
        for (int i = 0; i < w->n; i++)
                if (w->v[i].exclusive)
                        return true;
        return false;
}

/* Who has slept for what one of several takes (accept()), and goes with it: the next is another's,
 * who is to be the leader. Under the lock. */
static void hand_over(struct wait *w, struct ustack *u)
{
        if (w->slept && takes_turns(w))
                ustack_let_lead(u);
}

bool wait_heard(struct wait *w)
{
        bool any = false;

        for (uint32_t i = 0; i < w->nall; i++) {
                uint32_t count =
                        atomic_load_explicit(&w->all[i]->s.st->news_count, memory_order_acquire);
                any |= count != w->heard[i];
                w->heard[i] = count;
        }
        return any && wait_look(w) > 0;
}

/* Returns true if a turn of the stack would do anything. No lock needed. */
static bool has_work(const struct wait *w, nstime now)
{
        for (uint32_t i = 0; i < w->nall; i++) {
                struct ustack *u = w->all[i];
                if (stack_has_work(&u->s, now) || now >= READ_ONCE(u->peers_at))
                        return true;
        }
        return w->nall == 0;
}

/* False: meanwhile whoever has the lock has brought what is waited for. */
static bool lock_unless_heard(struct wait *w, struct ustack *u)
{
        for (int i = 0; i < LOCK_LOOKS && rlock_taken(&u->s.st->lock); i++) {
                if (wait_heard(w))
                        return false;
                cpu_relax();
        }
        ustack_lock(u);
        return true;
}

/* What a turn has brought has been told. */
static void turn_is_over(struct wait *w, struct ustack *u, nstime now)
{
        if (unlikely(now >= u->peers_at)) {
                ustack_peers_look(u, now);
                w->look_daemon = true;
        }
        if (u->woke && w->slept)
                w->relayed = wait_look(w) == 0;
}

void wait_turn(struct wait *w, struct ustack *u, nstime now)
{
        assert(ustack_locked(u));
        stack_run(&u->s, now);
        turn_is_over(w, u, now);
}

/* The same. Returns true if the only item of the wait has itself taken what came, and left the
 * lock. */
static bool turn_and_take(struct wait *w, struct ustack *u, nstime now)
{
        struct usock_item *it = w->v;

        if (w->n != 1 || w->nall != 1 || it->take == NULL) {
                wait_turn(w, u, now);
                return false;
        }
        assert(it->s->u == u);
        stack_take(&u->s, now);
        if (likely(now < u->peers_at) && wait_look(w) > 0) {
                it->take(it, now);
                return true;
        }
        stack_flush(&u->s, now);
        turn_is_over(w, u, now);
        return false;
}

/*
 * One turn of every stack, then a look. When something is ready the caller goes back to the
 * application, whose answer will carry the acknowledgements; otherwise they go out now, since this
 * thread has nothing else to do. Returns how many are ready; w->inside then says whether stacks are
 * still to be left. Over an RDMA device, which may be the kernel's software, who sends has the
 * processor once more before (give_way()): what follows at once is then acknowledged with it.
 */
static int progress(struct wait *w, nstime now)
{
        int ready = w->nall == 0 ? wait_look(w) : 0;

        for (uint32_t i = 0; i < w->nall; i++) {
                struct ustack *u = w->all[i];
                if (!lock_unless_heard(w, u)) {
                        w->inside |= i > 0;
                        return wait_look(w);
                }
                if (turn_and_take(w, u, now)) {
                        w->inside = false;
                        return 1;
                }
                if (i + 1 == w->nall)
                        ready = wait_look(w);
                if (ready == 0 && u->s.st->nacks != 0 && !w->gave_way && ustack_links_any(u) &&
                    stack_owes_acks(&u->s))
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

/* True: there are acknowledgements that the next turn will send; what comes until then
 * they cover. */
static bool give_way(struct wait *w)
{
        if (likely(!w->owes))
                return false;
        w->owes = false;
        w->gave_way = true;
        sandbox_yield();
        return true;
}

/* Somebody is at work in a stack: what it took off the queues may not be anywhere yet. */
static bool others_inside(const struct wait *w)
{
        for (uint32_t i = 0; i < w->nall; i++)
                if (rlock_taken(&w->all[i]->s.st->lock))
                        return true;
        return false;
}

bool usock_sends_itself(void)
{
        return READ_ONCE(ustack_own_way);
}

/* With sockets of ours ready the rest is looked at now and then: input that may make others ready,
 * the kernel's side. A caller that goes on with what is ready (recv runs the stack when it finds
 * nothing) loses nothing by it. */
static bool rest_is_due(const struct wait *w)
{
        if (usock_ticks() - rest_seen <= USOCK_TICKS_EVERY)
                return unlikely(usock_sends_itself()) && wait_pending(w, 0);
        return w->nk > 0 || wait_pending(w, 0) || others_inside(w);
}

static int ask_kernel(struct wait *w)
{
        if (w->nk > 0)
                wait_ask_kernel(w);
        return ready_items(w);
}

/* Returns true if this wait does nothing more before it sleeps. The sleep asks the kernel. */
static bool sleeps_at_once(struct wait *w, nstime now)
{
        return now < w->until && !w->owes && !wait_polls(w, now);
}

/* `due`: it is time to look at the rest; `first`: nothing else was tried in this wait. */
static int look_at_kernel(struct wait *w, nstime now, bool due, bool first, int ready)
{
        bool callers = w->nk > 0 && w->v[0].asks;

        if (w->nk == 0 || (ready > 0 && (!due || callers)))
                return ready;
        if (w->asked && (!due || (first && callers)))
                return ready_items(w);
        if (ready == 0 && first && sleeps_at_once(w, now))
                return 0;
        w->asked = true;
        return ask_kernel(w);
}

/* Sleeps, unless something has come. 0: look; -EINTR. */
static int doze(struct wait *w)
{
        int err;

        if (wait_came_meanwhile(w))
                return 0;
        err = wait_doze(w);
        rest_seen = usock_ticks();
        return err;
}

/* What a poll would have seen. */
static bool ours_is_ready(const struct wait *w)
{
        for (int i = 0; i < w->n; i++)
                if (w->v[i].s != NULL && w->v[i].revents != 0)
                        return true;
        return has_news(w);
}

/* When it is due, also of one that only polls. No lock is held. */
static void look_at_daemon(struct wait *w)
{
        if (likely(!w->look_daemon))
                return;
        w->look_daemon = false;
        ustack_daemon_look();
}

static int wait_loop(struct wait *w, nstime timeout)
{
        int ready = wait_look(w), err;
        bool first = true;
        nstime now;

        if (ready > 0 && !rest_is_due(w))
                return ready;
        w->began = now = ustack_now();
        w->until = timeout < 0 ? NSTIME_NEVER : timeout == 0 ? 0 : now + timeout;
        w->gave_way = timeout == 0;
        w->asked = w->n != 0 && w->v[0].asked;
        for (;; now = ustack_now()) {
                bool due = usock_ticks() - rest_seen > USOCK_TICKS_EVERY;
                if ((ready == 0 && has_work(w, now)) || wait_pending(w, now) ||
                    (due && others_inside(w)))
                        ready = progress(w, now);
                ready = look_at_kernel(w, now, due, first, ready);
                first = false;
                if (due)
                        rest_seen = usock_ticks();
                if (ready > 0 || now >= w->until) {
                        if (w->judged)
                                wait_over(w, now, ours_is_ready(w));
                        return ready;
                }
                if (usock_tls.pending)
                        return -EINTR;
                look_at_daemon(w);
                if (give_way(w) || wait_spin(w, now)) {
                        ready = wait_look(w);
                        continue;
                }
                err = doze(w);
                w->gave_way = false;
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
        assert(n >= 0);
        return usock_wait_news(NULL, v, n, timeout, mask);
}

int usock_wait_news(const struct usock_news *at, struct usock_item *v, int n, nstime timeout,
                    const sigset_t *mask)
{
        struct pollfd few[STACK_ITEMS + USTACKS_MAX * WAIT_FDS + 2];
        struct wait w = {.v = v, .n = n, .pfd = few, .mask = mask, .news = at};
        int ready;

        for (int i = 0; i < n; i++) {
                v[i].revents = v[i].krevents = 0;
                v[i].answered = false;
                w.nk += v[i].fd >= 0;
        }
        w.nall = ustack_all(w.all);
        if (w.nk > STACK_ITEMS) {
                w.pfd = malloc(((size_t)w.nk + USTACKS_MAX * WAIT_FDS + 2) * sizeof *w.pfd);
                if (w.pfd == NULL)
                        return -ENOMEM;
        }
        ready = wait_loop(&w, timeout);
        look_at_daemon(&w);
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
        struct usock_item it = {.s = s,
                                .fd = -1,
                                .events = events,
                                .call = true,
                                .exclusive = usock_is_taken_by_one(s, events)};
        int n = usock_wait(&it, 1, timeout, NULL);

        return n > 0 ? 0 : n == 0 ? -EAGAIN : n;
}

/* Where what comes by the own turn goes to. */
struct receiver {
        struct usock_item item; /* first: receive() knows the rest by it */
        struct iovec to;
        int flags;
        ssize_t got;
};

static void receive(struct usock_item *it, nstime now)
{
        struct receiver *r = (struct receiver *)(void *)it;

        r->got = usock_tcp_recv_locked(it->s, &r->to, r->to.iov_len, r->flags, now);
}

int usock_wait_recv(struct usock *s, short events, nstime timeout, const struct iovec *to,
                    int flags, ssize_t *got)
{
        struct receiver r = {
                .item = {.s = s, .fd = -1, .events = events, .call = true, .take = receive},
                .to = *to,
                .flags = flags,
                .got = -EAGAIN,
        };
        int n;

        assert(s->kind == USOCK_TCP && !(flags & (MSG_OOB | MSG_ERRQUEUE)));
        n = usock_wait(&r.item, 1, timeout, NULL);
        *got = r.got;
        if (unlikely(usock_tls.turns != USOCK_TURNS_NONE) && r.got > 0)
                usock_turns_heard();
        assert(r.got == -EAGAIN || n > 0);
        return n > 0 ? 0 : n == 0 ? -EAGAIN : n;
}

bool usock_progress(void)
{
        bool any = false;

        rest_seen = usock_ticks();
        FOR_USTACKS (u) {
                if (!stack_pending(&u->s, 0) && stack_deadline(&u->s) > ustack_now())
                        continue;
                ustack_lock(u);
                stack_run(&u->s, ustack_now());
                ustack_leave(u);
                any = true;
        }
        return any;
}

void usock_progress_if_due(void)
{
        if (usock_ticks() - rest_seen > USOCK_TICKS_EVERY || unlikely(usock_sends_itself()))
                usock_progress();
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
