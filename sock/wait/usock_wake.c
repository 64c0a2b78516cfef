/* Waking: the places that waiters sleep in (usock_wait.c), and who is told of what has happened to
 * a socket. */
#include "sock/attach/handle.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_link.h"
#include "sock/attach/ustack_wake.h"
#include "sock/wait/usock_wake.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/un.h>

#include "base/sandbox.h"
#include "base/sys.h"
#include "sock/wait/usock_crowd.h"
#include "sock/wait/usock_owner.h"
#include "sock/usock_sys.h"
#include "sock/usock_ready.h"
#include "sock/usock_process.h"
#include "unet/bell_fd.h"
#include "unetd/client/wire.h"

/* ---- places to sleep in ---- */

/* A process keeps those it has made. Their names tell no secret: a stranger's datagram is a wake-up
 * for nothing. */
static struct usock_place *free_places, *all_places;
static _Atomic int wake_fd = -1; /* to wake others from */
/* A thread went to another network namespace, where the names of others are not known. */
static _Atomic bool names_elsewhere;
static _Atomic bool places_wait = true; /* a place's descriptor is without O_NONBLOCK */
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;

static int socket_high(void)
{
        int fd = (int)sys3(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        return fd < 0 ? fd : fd_high(fd);
}

/* The kernel begins a call again after a handler with SA_RESTART that is not ours, as libc's that
 * ends a cancelled thread. It does not begin one again that has a time limit (man 7 signal). */
static const struct timeval ENDS_ONCE = {.tv_sec = 86400};

bool usock_places_wait(void)
{
        return atomic_load_explicit(&places_wait, memory_order_relaxed);
}

static struct usock_place *place_make(void)
{
        struct usock_place *p = malloc(sizeof *p);
        struct sockaddr_un un = {.sun_family = AF_UNIX};
        socklen_t len = sizeof(sa_family_t);

        if (p == NULL)
                return NULL;
        p->fd = socket_high();
        if (p->fd < 0 || sys3(SYS_bind, p->fd, &un, len) < 0) {
                free(p);
                return NULL;
        }
        bell_refuse_rights(p->fd);
        len = sizeof un;
        sys3(SYS_getsockname, p->fd, &un, &len);
        p->name_len = (uint8_t)MIN(len - offsetof(struct sockaddr_un, sun_path), sizeof p->name);
        memcpy(p->name, un.sun_path, p->name_len);
        pthread_mutex_lock(&places_lock);
        if (usock_places_wait()) {
                sys5(SYS_setsockopt, p->fd, SOL_SOCKET, SO_RCVTIMEO, &ENDS_ONCE, sizeof ENDS_ONCE);
                sys3(SYS_fcntl, p->fd, F_SETFL, 0);
        }
        p->all = all_places;
        all_places = p;
        pthread_mutex_unlock(&places_lock);
        return p;
}

struct usock_place *usock_place_get(void)
{
        struct usock_place *p;

        pthread_mutex_lock(&places_lock);
        p = free_places;
        if (p != NULL)
                free_places = p->next;
        pthread_mutex_unlock(&places_lock);
        return p != NULL ? p : sandbox_forbids(SANDBOX_PLACE) ? NULL : place_make();
}

bool usock_place_hear(const struct usock_place *p)
{
        char junk;

        if (unlikely(!usock_places_wait()))
                return sys3(SYS_read, p->fd, &junk, 1) >= 0;
        return sys6(SYS_recvfrom, p->fd, (long)&junk, 1, MSG_DONTWAIT, 0, 0) >= 0;
}

long usock_place_sleep(const struct usock_place *p)
{
        char junk;

        return usock_sys6(SYS_recvfrom, p->fd, (long)&junk, 1, 0, 0, 0);
}

void usock_place_put(struct usock_place *p, bool rung)
{
        assert(p != NULL);
        if (rung) /* once, as a rule; who was woken twice is woken in vain the next time */
                usock_place_hear(p);
        pthread_mutex_lock(&places_lock);
        p->next = free_places;
        free_places = p;
        pthread_mutex_unlock(&places_lock);
}

static void wake_socket(void)
{
        int none = -1, fd;

        if (likely(atomic_load_explicit(&wake_fd, memory_order_relaxed) >= 0))
                return;
        fd = socket_high();
        if (fd >= 0 && !atomic_compare_exchange_strong(&wake_fd, &none, fd))
                sys1(SYS_close, fd); /* another thread, in another stack, was quicker */
}

void usock_place_keep(void)
{
        struct usock_place *p = usock_place_get();

        if (p != NULL)
                usock_place_put(p, false);
        wake_socket();
}

/* Who locks himself in keeps read(2), which must not wait then, and may lose recvfrom(2). */
static void places_never_wait(void)
{
        pthread_mutex_lock(&places_lock);
        for (struct usock_place *p = all_places; p != NULL; p = p->all)
                sys3(SYS_fcntl, p->fd, F_SETFL, O_NONBLOCK);
        atomic_store(&places_wait, false);
        pthread_mutex_unlock(&places_lock);
}

/* What this thread will need and cannot make any more then. */
void usock_before_sandbox(uint32_t forbidden)
{
        usock_place_keep();
        places_never_wait();
        FOR_USTACKS (u) {
                ustack_lock(u); /* maps the channels there are */
                if (forbidden & 1u << SANDBOX_NAMES)
                        ustack_ringers_make(u);
                if (forbidden & 1u << SANDBOX_DEVICE)
                        ustack_links_yield(u);
                ustack_leave(u);
        }
}

/* The parent's sockets are the parent's. */
void usock_wait_forked(bool frees)
{
        pthread_mutex_init(&places_lock, NULL);
        while (all_places != NULL) {
                struct usock_place *p = all_places;
                all_places = p->all;
                sys1(SYS_close, p->fd);
                if (frees)
                        free(p);
        }
        free_places = NULL;
        if (!sandbox_forbids(SANDBOX_PLACE)) { /* the child may be in another network namespace */
                int fd = atomic_exchange(&wake_fd, -1);
                if (fd >= 0)
                        sys1(SYS_close, fd);
        }
}

bool usock_names_elsewhere(void)
{
        return atomic_load_explicit(&names_elsewhere, memory_order_relaxed);
}

void usock_netns_changes(void)
{
        atomic_store_explicit(&names_elsewhere, true, memory_order_relaxed);
}

bool usock_wait_owns_fd(int fd)
{
        bool found = fd == atomic_load_explicit(&wake_fd, memory_order_relaxed);

        pthread_mutex_lock(&places_lock);
        for (const struct usock_place *p = all_places; p != NULL && !found; p = p->all)
                found = p->fd == fd;
        pthread_mutex_unlock(&places_lock);
        return found;
}

/* ---- who wants to hear of what ---- */

static void wants_to_know(struct sock_rec *rec, uint32_t i, bool exclusive)
{
        if (exclusive && !(rec->waiters >> i & 1))
                rec->exclusive |= 1ull << i;
        else
                rec->exclusive &= ~(1ull << i);
        rec->waiters |= 1ull << i;
}

/* One that has a bit, or else in the crowd. Returns slot + 1, 0: all are taken. */
static uint32_t free_place(struct stack_state *st)
{
        uint32_t slot;

        for (uint32_t i = 0; i < STACK_WAITERS; i++)
                if (st->waiter[i].proc == 0)
                        return i + 1;
        slot = crowd_join(st);
        return slot != 0 ? slot + 1 : 0;
}

static void publish(struct ustack *u, const struct usock_item *v, int n, bool news, uint32_t slot)
{
        for (int k = 0; k < n; k++)
                if (v[k].s != NULL && v[k].s->u == u)
                        wants_to_know(usock_rec(v[k].s), slot, v[k].exclusive);
        if (news)
                u->s.st->news_waiters |= 1ull << slot;
}

static void unpublish(struct ustack *u, const struct usock_item *v, int n, uint32_t slot)
{
        for (int k = 0; k < n; k++)
                if (v[k].s != NULL && v[k].s->u == u)
                        usock_rec(v[k].s)->waiters &= ~(1ull << slot);
        u->s.st->news_waiters &= ~(1ull << slot);
}

static bool publish_in_crowd(struct ustack *u, const struct usock_item *v, int n, bool news,
                             uint32_t slot)
{
        bool fits = true;

        for (int k = 0; k < n && fits; k++)
                if (v[k].s != NULL && v[k].s->u == u)
                        fits = crowd_want(u->s.st, slot, v[k].s->idx, v[k].exclusive);
        if (news && fits)
                fits = crowd_want(u->s.st, slot, 0, false);
        return fits;
}

uint32_t usock_enlist(struct ustack *u, const struct usock_item *v, int n, bool news,
                      const struct usock_place *p)
{
        struct stack_state *st = u->s.st;
        uint32_t slot = free_place(st);
        struct waiter_slot *ws;

        assert(ustack_locked(u));
        if (slot == 0)
                return 0;
        ws = stack_waiter(st, slot - 1);
        ws->proc = u->slot + 1;
        ws->name_len = p->name_len;
        memcpy(ws->name, p->name, p->name_len);
        if (slot <= STACK_WAITERS) {
                publish(u, v, n, news, slot - 1);
        } else if (!publish_in_crowd(u, v, n, news, slot - 1)) {
                crowd_leave(st, slot - 1);
                return 0;
        }
        atomic_store_explicit(&ws->armed, 1, memory_order_relaxed);
        return slot;
}

bool usock_delist(struct ustack *u, const struct usock_item *v, int n, uint32_t slot)
{
        struct stack_state *st = u->s.st;
        bool rung = atomic_exchange_explicit(&stack_waiter(st, slot - 1)->armed, 0,
                                             memory_order_relaxed) == 0;

        if (slot <= STACK_WAITERS) {
                unpublish(u, v, n, slot - 1);
                st->waiter[slot - 1].proc = 0;
        } else {
                crowd_leave(st, slot - 1);
        }
        return rung;
}

/* ---- waking ---- */

/* False: nobody hears that name from here. It is of another network namespace, Landlock forbids it
 * (its abstract scope), or its owner is gone. A queue that is full wakes as well. What hundreds of
 * waiters have not read yet uses up the socket (bell_fd.h). */
static bool ring(const struct ustack *u, const struct waiter_slot *w)
{
        struct sockaddr_un un = {.sun_family = AF_UNIX};
        long r;

        memcpy(un.sun_path, w->name, w->name_len);
        wake_socket();
        r = bell_call(atomic_load_explicit(&wake_fd, memory_order_relaxed), &un,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + w->name_len), 0);
        return r >= 0 || r == -EAGAIN;
}

static void ask_keeper(struct ustack *u, uint32_t slot)
{
        u->s.st->wake_asked |= 1ull << MIN(slot, STACK_WAITERS);
        bell_ring(u->fds.ring_keeper);
}

/* Peers did not hear their names: Landlock forbids that, their bells are connected elsewhere, or
 * the caller cannot be renewed. Under the lock. */
static void ask_keeper_to_ring(struct ustack *u)
{
        assert(ustack_locked(u));
        u->s.st->wake_asked |= ASKED_BELLS;
        bell_ring(u->fds.ring_keeper);
}

/* Its name is not heard from here. Under the lock. */
static void wake_otherwise(struct ustack *u, uint32_t slot)
{
        assert(ustack_locked(u));
        if (u->s.st->leader == slot + 1)
                bell_ring(u->fds.ring_leader);
        else
                ask_keeper(u, slot);
}

/*
 * Notes that a waiter is to be woken; the lock's holder does so after it has left the lock. A woken
 * thread wants the lock at once, and the kernel may run it in place of its waker. If the holder
 * dies in between, proc_slot.waking says that it owed wake-ups, and the repair wakes all waiters.
 */
void usock_wake(struct ustack *u, uint32_t slot)
{
        assert(ustack_locked(u));
        if (sandbox_forbids(SANDBOX_WAKE)) {
                ask_keeper(u, slot);
                return;
        }
        u->woke = true;
        if (likely(u->wakes_late && u->nwakes < USTACK_WAKES))
                u->wakes[u->nwakes++] = slot;
        else if (!ring(u, stack_waiter(u->s.st, slot)))
                wake_otherwise(u, slot);
}

void ustack_unlock_and_wake(struct ustack *u)
{
        struct stack_state *st = u->s.st;
        struct proc_slot *self = &st->proc[u->slot];
        struct waiter_slot who[USTACK_WAKES];
        struct shm_late bells = u->bells;
        uint32_t slot[USTACK_WAKES], n = u->nwakes, unheard = 0, silent = 0;

        for (uint32_t i = 0; i < n; i++) {
                slot[i] = u->wakes[i];
                who[i] = *stack_waiter(st, slot[i]);
        }
        u->nwakes = u->bells.n = 0;
        u->bells.unheard = false;
        atomic_fetch_add(&self->waking, 1);
        rlock_unlock(&st->lock);
        for (uint32_t i = 0; i < bells.n; i++)
                if (!bell_ring(bells.fd[i]))
                        silent |= 1u << i;
        for (uint32_t i = 0; i < n; i++)
                if (!ring(u, &who[i]))
                        unheard |= 1u << i;
        if (unlikely(unheard != 0 || silent != 0 || bells.unheard)) {
                ustack_lock(u);
                for (uint32_t i = 0; i < bells.n; i++)
                        if (silent >> i & 1)
                                shm_chan_unheard(bells.chan[i]);
                if (silent != 0 || bells.unheard)
                        ask_keeper_to_ring(u);
                for (uint32_t i = 0; i < n; i++)
                        if (unheard >> i & 1)
                                wake_otherwise(u, slot[i]);
                ustack_unlock(u);
        }
        if (atomic_fetch_sub(&self->waking, 1) == 1 && unlikely(READ_ONCE(u->nspent) != 0)) {
                ustack_lock(u);
                ustack_ringers_close(u);
                ustack_unlock(u);
        }
}

/* The keeper, for those who may not. Whom it does not reach either looks for itself
 * (usock_sleep.c). */
static void wake_asked(struct ustack *u, uint32_t slot)
{
        if (!ring(u, stack_waiter(u->s.st, slot)))
                u->s.st->unheard_at = ustack_now();
}

/* Of the crowd, who among it is not said. */
static void wake_crowd_asked(struct ustack *u)
{
        struct stack_state *st = u->s.st;

        for (uint32_t i = STACK_WAITERS + 1; i < STACK_WAITERS + st->sleepers.fresh; i++) {
                const struct waiter_slot *w = stack_waiter(st, i);
                if (w->proc != 0 && !atomic_load_explicit(&w->armed, memory_order_relaxed))
                        wake_asked(u, i);
        }
}

void ustack_wake_asked(struct ustack *u)
{
        struct stack_state *st = u->s.st;

        assert(ustack_locked(u));
        if (likely(st->wake_asked == 0))
                return;
        if (st->wake_asked & WAITERS_CROWD)
                wake_crowd_asked(u);
        if (st->wake_asked & ASKED_BELLS)
                ustack_ring_unheard(u);
        st->wake_asked &= ~(WAITERS_CROWD | ASKED_BELLS);
        while (st->wake_asked != 0) {
                uint32_t i = (uint32_t)__builtin_ctzll(st->wake_asked);
                st->wake_asked &= st->wake_asked - 1;
                if (st->waiter[i].proc != 0)
                        wake_asked(u, i);
        }
}

/* Wakes those of the waiters in `who` that sleep; not of the crowd. Under the lock. */
static void wake_armed(struct ustack *u, uint64_t who)
{
        struct stack_state *st = u->s.st;

        assert(ustack_locked(u));
        for (who &= WAITERS_CROWD - 1; who != 0; who &= who - 1) {
                uint32_t i = (uint32_t)__builtin_ctzll(who);
                if (st->waiter[i].proc != 0 &&
                    atomic_load_explicit(&st->waiter[i].armed, memory_order_relaxed)) {
                        atomic_store_explicit(&st->waiter[i].armed, 0, memory_order_relaxed);
                        usock_wake(u, i);
                }
        }
}

/* Up to n of them that sleep. */
static uint64_t some_of(const struct stack_state *st, uint64_t who, uint32_t n)
{
        uint64_t found = 0;

        for (who &= WAITERS_CROWD - 1; who != 0 && n > 0; who &= who - 1) {
                uint32_t i = (uint32_t)__builtin_ctzll(who);
                if (st->waiter[i].proc != 0 &&
                    atomic_load_explicit(&st->waiter[i].armed, memory_order_relaxed)) {
                        found |= 1ull << i;
                        n--;
                }
        }
        return found;
}

/* Where one waiter of several is enough: one of them that still sleeps; 0: none does. A waiter that
 * was woken before looks at its sockets before it sleeps again, so it needs no second wake-up. */
static uint64_t one_of(const struct stack_state *st, uint64_t who)
{
        return some_of(st, who, 1);
}

bool usock_wake_process(struct ustack *u, uint32_t proc)
{
        struct stack_state *st = u->s.st;
        uint64_t who = 0;

        assert(ustack_locked(u));
        for (uint32_t i = 0; i < STACK_WAITERS; i++)
                if (st->waiter[i].proc == proc &&
                    atomic_load_explicit(&st->waiter[i].armed, memory_order_relaxed))
                        who |= 1ull << i;
        wake_armed(u, who);
        return crowd_wake_all(u, proc) || who != 0;
}

void ustack_let_lead(struct ustack *u)
{
        uint64_t who;

        assert(ustack_locked(u));
        if (u->s.st->leader != 0 || u->woke)
                return;
        who = one_of(u->s.st, UINT64_MAX);
        if (who != 0)
                wake_armed(u, who);
        else
                crowd_wake_one(u);
}

static void wake_all_armed(struct ustack *u)
{
        wake_armed(u, UINT64_MAX);
        crowd_wake_all(u, 0);
}

/* Datagrams or connections that nobody has taken yet. */
static uint32_t waiting_for_takers(struct ustack *u, const struct sock_rec *rec)
{
        if (rec->role == SOCK_ROLE_UDP)
                return udp_count_unread(&u->s.udp, rec->conn);
        return rec->role == SOCK_ROLE_LISTENER ? tcp_listener_at(&u->s.tcp, rec->conn)->queued : 1;
}

/* How many of those of whom one is enough for each are to be woken: an event tells of all that came
 * in a turn, and some are on their way already. The end is for all of them. */
static uint32_t takers(struct ustack *u, const struct sock_rec *rec, uint64_t exclusive,
                       uint32_t events)
{
        uint32_t waiting, coming;

        if (events & TCP_EV_CLOSED)
                return UINT32_MAX;
        waiting = waiting_for_takers(u, rec);
        coming = (uint32_t)__builtin_popcountll(exclusive &
                                                ~some_of(u->s.st, exclusive, UINT32_MAX));
        return waiting > coming ? waiting - coming : 1;
}

/* `who` wait for the socket, or for any news. Who is told that it has ended closes it, and may not
 * sleep again: nobody counts on him to lead. */
static void wake_waiters(struct ustack *u, const struct sock_rec *rec, uint32_t sock, uint64_t who,
                         uint32_t events)
{
        const struct stack_state *st = u->s.st;
        uint64_t exclusive = rec->exclusive & who & (WAITERS_CROWD - 1), some = 0;
        bool goes_on = !(events & (TCP_EV_END | TCP_EV_CLOSED)), woke = u->woke;
        uint32_t n = 0;

        if (exclusive != 0 || who & WAITERS_CROWD) {
                n = takers(u, rec, exclusive, events);
                some = some_of(st, exclusive, n);
                n -= (uint32_t)__builtin_popcountll(some);
        }
        who &= ~(rec->exclusive & ~st->news_waiters) | some;
        trace(u->s.trace, u->s.now, TRACE_WAKE, sock, who);
        wake_armed(u, who);
        if (unlikely(who & WAITERS_CROWD)) {
                crowd_wake(u, sock, n);
                crowd_wake(u, 0, 0);
        }
        if (unlikely(who & WAITERS_SIGNAL))
                usock_signal_owner(u, rec, events);
        u->woke = woke || (u->woke && goes_on);
}

/* Under the lock; readers have none. The entry is there before the count says so. */
static void news_add(struct stack_state *st, uint32_t sock)
{
        uint32_t count = atomic_load_explicit(&st->news_count, memory_order_relaxed);

        atomic_store_explicit(&st->news[count % STACK_NEWS], sock, memory_order_relaxed);
        atomic_store_explicit(&st->news_count, count + 1, memory_order_release);
}

void ustack_news(struct ustack *u, uint32_t sock)
{
        assert(ustack_locked(u));
        news_add(u->s.st, sock);
}

/* The edges move before there are news of them: who has heard the news looks at the edges, and
 * then sleeps. */
void ustack_event(struct stack *s, uint32_t sock, uint32_t events)
{
        struct sock_rec *rec;
        uint64_t who;

        if (sock == 0) {
                news_add(s->st, sock);
                trace(s->trace, s->now, TRACE_WAKE, 0, UINT64_MAX);
                wake_all_armed(s->owner);
                return;
        }
        rec = stack_sock(s, sock);
        if (events & (TCP_EV_READABLE | TCP_EV_CLOSED | TCP_EV_URGENT | TCP_EV_ACCEPT))
                atomic_fetch_add_explicit(&rec->edge_in, 1, memory_order_release);
        if (events & (TCP_EV_WRITABLE | TCP_EV_CONNECTED | TCP_EV_CLOSED))
                atomic_fetch_add_explicit(&rec->edge_out, 1, memory_order_release);
        news_add(s->st, sock);
        who = events == TCP_EV_FLOW ? s->st->news_waiters : rec->waiters | s->st->news_waiters;
        if (unlikely(who != 0))
                wake_waiters(s->owner, rec, sock, who, events);
}

void ustack_look_again(struct ustack *u)
{
        struct stack_state *st = u->s.st;

        assert(ustack_locked(u));
        FOR_SOCKS (u->s.st, i, rec) {
                if (!sock_held(rec))
                        continue;
                atomic_fetch_add_explicit(&rec->edge_in, 1, memory_order_release);
                atomic_fetch_add_explicit(&rec->edge_out, 1, memory_order_release);
        }
        atomic_fetch_add_explicit(&st->news_count, STACK_NEWS, memory_order_release);
        ustack_wake_all(u);
}

void ustack_wake_all(struct ustack *u)
{
        struct stack_state *st = u->s.st;

        assert(ustack_locked(u));
        for (uint32_t i = 0; i < STACK_WAITERS; i++) {
                atomic_store_explicit(&st->waiter[i].armed, 0, memory_order_relaxed);
                if (st->waiter[i].proc != 0)
                        usock_wake(u, i);
        }
        crowd_rearm(st);
        crowd_wake_all(u, 0);
}
