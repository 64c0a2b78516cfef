/*
 * The native API: poll sets.
 *
 * A set knows its members by stack and socket number, and keeps those that may be ready in a queue:
 *
 *   news of the stacks --drain--> members concerned --> queue --harvest--> events
 *                                                         ^                  |
 *                                                         +-- level-triggered, ready: again
 *
 * A member comes into the queue when it is added or modified, and when its socket had an event
 * (usock_news). It leaves when it is found not ready, edge-triggered ones also when they were
 * reported. So a wait costs by the events, not by the members. Only a set that was lapped by the
 * news looks at all of them.
 *
 * Nobody sleeps with a socket in hand: a set sleeps on news, so closing a socket need not wait for
 * a waiter. Changes to a set nudge the socket concerned, which is news to a thread that sleeps in
 * the set.
 *
 * Kernel descriptors are in an epoll set of the kernel's beside ours, with the application's data.
 *
 * Locks: the one of memberships when members come and go, then the set's. A set's lock is not held
 * while asleep.
 */
#include "sock/attach/handle.h"
#include "sock/attach/ustack_wake.h"
#include "sock/native/native.h"
#include "sock/usock_ready.h"
#include "tcp/tcp_watch.h"
#include "unet/flow.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <unistd.h>

#define IN_EVENTS  (POLLIN | POLLPRI | POLLRDNORM | POLLRDBAND | POLLRDHUP)
#define OUT_EVENTS (POLLOUT | POLLWRNORM | POLLWRBAND)
#define FLOW_EVENTS                                                                     \
        (UNET_EV_ACKED | UNET_EV_UNSENT | UNET_EV_UNREAD | UNET_EV_LOSS | UNET_EV_RTT | \
         UNET_EV_SHUT | UNET_EV_NIQ | UNET_EV_LIMIT | UNET_EV_REPORT | UNET_EV_SENT)
/* With our sockets busy, the kernel's are asked this often. */
#define KERNEL_EVERY (30 * NS_PER_US)
#define BUCKETS_MIN  64u

struct native_member {
        struct unet_pollset *set;
        struct native_slot *slot;
        struct native_member *of_slot; /* next set that the socket is in */
        LIST_ENTRY(native_member) bucket;
        TAILQ_ENTRY(native_member) queue;
        bool queued;
        bool off;   /* one-shot, reported */
        bool fresh; /* new or modified: an edge in itself */
        uint32_t events;
        uint64_t data;
        uint32_t in, out; /* edges seen */
        struct tcp_watch_counts flow;
        uint32_t given; /* native_cookies_ready() */
};
LIST_HEAD(bucket, native_member);

struct unet_pollset {
        pthread_mutex_t lock;
        LIST_ENTRY(unet_pollset) all;
        struct bucket *buckets;
        uint32_t nbuckets, count; /* nbuckets is a power of two */
        TAILQ_HEAD(member_queue, native_member) queue;
        struct usock_news seen;
        int epfd;
        _Atomic bool kernel_half;    /* something was put there */
        _Atomic nstime kernel_asked; /* threads that wait in the set forget it, without the lock */
        /* Of the next two; taken before stacks' locks, and not inside `lock`. */
        pthread_mutex_t outside_lock;
        struct usock_outside *outside; /* unet_pollset_fd(): who sleeps elsewhere; NULL: nobody */
        /* An epoll set of his socket and of our kernel half; -1: there is none. */
        _Atomic int outside_fd;
};

static LIST_HEAD(, unet_pollset) sets = LIST_HEAD_INITIALIZER(sets);
static pthread_mutex_t memberships = PTHREAD_MUTEX_INITIALIZER;

/* ---- members, by socket ---- */

static struct bucket *bucket_of(const struct unet_pollset *set, const void *stack, uint32_t sock)
{
        uint64_t h = ((uint64_t)(uintptr_t)stack >> 6) + sock;

        return &set->buckets[(uint32_t)(h * 0x9e3779b97f4a7c15ull >> 32) & (set->nbuckets - 1)];
}

static struct bucket *bucket_of_member(const struct native_member *m)
{
        return bucket_of(m->set, usock_stack(m->slot->us), usock_number(m->slot->us));
}

/* Twice as many buckets, when there are more members than buckets. Without memory the chains
 * get longer. */
static void grow(struct unet_pollset *set)
{
        struct bucket *old = set->buckets, *wider = calloc(set->nbuckets, 2 * sizeof *wider);
        uint32_t n = set->nbuckets;
        struct native_member *m;

        assert(n != 0 && (n & (n - 1)) == 0);
        if (wider == NULL)
                return;
        set->buckets = wider;
        set->nbuckets = 2 * n;
        for (uint32_t i = 0; i < n; i++)
                while ((m = LIST_FIRST(&old[i])) != NULL) {
                        LIST_REMOVE(m, bucket);
                        LIST_INSERT_HEAD(bucket_of_member(m), m, bucket);
                }
        free(old);
}

static struct native_member *member_of(const struct native_slot *n, const struct unet_pollset *set)
{
        struct native_member *m = n->members;

        while (m != NULL && m->set != set)
                m = m->of_slot;
        return m;
}

static void enqueue(struct native_member *m)
{
        assert(m->set != NULL);
        if (m->queued || m->off)
                return;
        m->queued = true;
        TAILQ_INSERT_TAIL(&m->set->queue, m, queue);
}

static void dequeue(struct native_member *m)
{
        if (m->queued)
                TAILQ_REMOVE(&m->set->queue, m, queue);
        m->queued = false;
}

/* Under both locks. */
static void unlink_member(struct native_member *m)
{
        struct native_member **p = &m->slot->members;

        assert(m->set->count != 0);
        while (*p != m)
                p = &(*p)->of_slot;
        *p = m->of_slot;
        dequeue(m);
        LIST_REMOVE(m, bucket);
        m->set->count--;
}

static void remove_member(struct native_member *m)
{
        pthread_mutex_t *lock = &m->set->lock;

        pthread_mutex_lock(lock);
        unlink_member(m);
        pthread_mutex_unlock(lock);
        free(m);
}

void native_set_forget(struct native_slot *n)
{
        pthread_mutex_lock(&memberships);
        while (n->members != NULL)
                remove_member(n->members);
        pthread_mutex_unlock(&memberships);
}

/* ---- changes ---- */

static void arm(struct native_member *m, uint32_t events, uint64_t data)
{
        m->events = events;
        m->data = data;
        m->off = false;
        m->fresh = true;
        enqueue(m);
}

static int add(struct unet_pollset *set, struct native_slot *n, uint32_t events, uint64_t data)
{
        struct native_member *m;

        if (member_of(n, set) != NULL)
                return -EEXIST;
        m = calloc(1, sizeof *m);
        if (m == NULL)
                return -ENOMEM;
        m->set = set;
        m->slot = n;
        m->of_slot = n->members;
        n->members = m;
        pthread_mutex_lock(&set->lock);
        if (++set->count > set->nbuckets)
                grow(set);
        LIST_INSERT_HEAD(bucket_of_member(m), m, bucket);
        arm(m, events, data);
        pthread_mutex_unlock(&set->lock);
        return 0;
}

static int modify(struct unet_pollset *set, struct native_slot *n, uint32_t events, uint64_t data)
{
        struct native_member *m = member_of(n, set);

        if (m == NULL)
                return -ENOENT;
        pthread_mutex_lock(&set->lock);
        arm(m, events, data);
        pthread_mutex_unlock(&set->lock);
        return 0;
}

static int drop(struct unet_pollset *set, struct native_slot *n, uint32_t events, uint64_t data)
{
        struct native_member *m = member_of(n, set);

        if (m == NULL)
                return -ENOENT;
        remove_member(m);
        return 0;
}

/* A stack may have come that whoever sleeps elsewhere has no place in. */
static void call_outside(struct unet_pollset *set)
{
        if (likely(set->outside_fd < 0))
                return;
        pthread_mutex_lock(&set->outside_lock);
        usock_outside_ring(set->outside);
        pthread_mutex_unlock(&set->outside_lock);
}

static int change(struct unet_pollset *set, int sock, uint32_t events, uint64_t data,
                  int (*how)(struct unet_pollset *, struct native_slot *, uint32_t, uint64_t))
{
        struct native_slot *n;
        int err;

        if (set == NULL)
                return (int)native_result(-EINVAL);
        n = native_get(sock);
        if (n == NULL)
                return (int)native_result(-EBADF);
        pthread_mutex_lock(&memberships);
        err = how(set, n, events, data);
        pthread_mutex_unlock(&memberships);
        if (err == 0 && how != drop) {
                usock_nudge(n->us);
                call_outside(set);
        }
        return (int)native_done(n, err);
}

int unet_pollset_add(struct unet_pollset *set, int sock, uint32_t events, uint64_t data)
{
        return change(set, sock, events, data, add);
}

int unet_pollset_mod(struct unet_pollset *set, int sock, uint32_t events, uint64_t data)
{
        return change(set, sock, events, data, modify);
}

int unet_pollset_del(struct unet_pollset *set, int sock)
{
        return change(set, sock, 0, 0, drop);
}

/* ---- the kernel's descriptors ---- */

static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLPRI == POLLPRI &&
                      EPOLLRDHUP == POLLRDHUP && EPOLLET == UNET_EDGE &&
                      EPOLLONESHOT == UNET_ONESHOT,
              "events of a set are epoll's");

/* Threads that sleep in the set do not know of its kernel half yet. */
static void kernel_half_begins(struct unet_pollset *set)
{
        int err;
        struct ustack *u = ustack_mine(&err);

        pthread_mutex_lock(&set->lock);
        set->kernel_half = true;
        pthread_mutex_unlock(&set->lock);
        if (u == NULL)
                return; /* it has left its stack: nobody sleeps there */
        ustack_lock(u);
        ustack_event(&u->s, 0, 0);
        ustack_leave(u);
}

static int change_fd(struct unet_pollset *set, int op, int fd, uint32_t events, uint64_t data)
{
        struct epoll_event ev = {.events = events, .data.u64 = data};
        int r;

        if (set == NULL)
                return (int)native_result(-EINVAL);
        r = epoll_ctl(set->epfd, op, fd, &ev);
        if (r == 0 && !set->kernel_half)
                kernel_half_begins(set);
        return r;
}

int unet_pollset_add_fd(struct unet_pollset *set, int fd, uint32_t events, uint64_t data)
{
        return change_fd(set, EPOLL_CTL_ADD, fd, events, data);
}

int unet_pollset_mod_fd(struct unet_pollset *set, int fd, uint32_t events, uint64_t data)
{
        return change_fd(set, EPOLL_CTL_MOD, fd, events, data);
}

int unet_pollset_del_fd(struct unet_pollset *set, int fd)
{
        return change_fd(set, EPOLL_CTL_DEL, fd, 0, 0);
}

/* ---- life ---- */

static struct unet_pollset *set_new(void)
{
        struct unet_pollset *set = calloc(1, sizeof *set);

        if (set == NULL)
                return NULL;
        set->nbuckets = BUCKETS_MIN;
        set->buckets = calloc(set->nbuckets, sizeof *set->buckets);
        set->epfd = epoll_create1(EPOLL_CLOEXEC);
        if (set->buckets == NULL || set->epfd < 0) {
                if (set->epfd >= 0)
                        close(set->epfd);
                free(set->buckets);
                free(set);
                return NULL;
        }
        pthread_mutex_init(&set->lock, NULL);
        pthread_mutex_init(&set->outside_lock, NULL);
        set->outside_fd = -1;
        TAILQ_INIT(&set->queue);
        return set;
}

struct unet_pollset *unet_pollset_create(void)
{
        struct unet_pollset *set;
        int err = native_start();

        if (err != 0) {
                native_result(err);
                return NULL;
        }
        set = set_new();
        if (set == NULL)
                return NULL;
        pthread_mutex_lock(&memberships);
        LIST_INSERT_HEAD(&sets, set, all);
        pthread_mutex_unlock(&memberships);
        return set;
}

/* Under both locks. */
static void empty(struct unet_pollset *set)
{
        struct native_member *m;

        for (uint32_t i = 0; i < set->nbuckets; i++)
                while ((m = LIST_FIRST(&set->buckets[i])) != NULL) {
                        unlink_member(m);
                        free(m);
                }
}

void unet_pollset_destroy(struct unet_pollset *set)
{
        if (set == NULL)
                return;
        pthread_mutex_lock(&memberships);
        pthread_mutex_lock(&set->lock);
        empty(set);
        pthread_mutex_unlock(&set->lock);
        LIST_REMOVE(set, all);
        pthread_mutex_unlock(&memberships);
        if (set->outside != NULL) {
                close(set->outside_fd);
                usock_outside_end(set->outside);
        }
        close(set->epfd);
        pthread_mutex_destroy(&set->lock);
        pthread_mutex_destroy(&set->outside_lock);
        free(set->buckets);
        free(set);
}

/* ---- for other event loops ---- */

static int make_outside(struct unet_pollset *set)
{
        struct usock_outside *o = usock_outside_make();
        struct epoll_event in = {.events = EPOLLIN};
        int fd = o != NULL ? epoll_create1(EPOLL_CLOEXEC) : -1;

        assert(set->outside == NULL);
        if (fd >= 0 && epoll_ctl(fd, EPOLL_CTL_ADD, usock_outside_fd(o), &in) == 0 &&
            epoll_ctl(fd, EPOLL_CTL_ADD, set->epfd, &in) == 0) {
                set->outside = o;
                return fd;
        }
        if (fd >= 0)
                close(fd);
        if (o != NULL)
                usock_outside_end(o);
        return -1;
}

/* Under the same number another one, of a set that is empty. */
static void outside_again(struct unet_pollset *set)
{
        int was = set->outside_fd, fd;

        if (was < 0)
                return;
        set->outside_fd = -1;
        fd = make_outside(set);
        if (fd >= 0 && dup3(fd, was, O_CLOEXEC) == was)
                set->outside_fd = was;
        if (fd >= 0)
                close(fd);
}

/* A wait found so many. While it may find more the descriptor stays readable. */
static void outside_after_wait(struct unet_pollset *set, int found, const struct usock_news *seen)
{
        assert(set->outside != NULL);
        pthread_mutex_lock(&set->outside_lock);
        if (found != 0 || !usock_outside_arm(set->outside, seen))
                usock_outside_ring(set->outside);
        pthread_mutex_unlock(&set->outside_lock);
}

int unet_pollset_fd(struct unet_pollset *set)
{
        static const struct usock_news none;

        if (set == NULL)
                return (int)native_result(-EINVAL);
        pthread_mutex_lock(&set->outside_lock);
        if (set->outside == NULL) {
                int fd = make_outside(set);
                if (fd >= 0) {
                        usock_outside_arm(set->outside, &none);
                        usock_outside_ring(set->outside);
                        set->outside_fd = fd;
                }
        }
        pthread_mutex_unlock(&set->outside_lock);
        return set->outside_fd >= 0 ? set->outside_fd : (int)native_result(-EMFILE);
}

void native_set_fork_prepare(void)
{
        struct unet_pollset *set;

        pthread_mutex_lock(&memberships);
        LIST_FOREACH (set, &sets, all) {
                pthread_mutex_lock(&set->outside_lock);
                pthread_mutex_lock(&set->lock);
        }
}

void native_set_fork_parent(void)
{
        struct unet_pollset *set;

        LIST_FOREACH (set, &sets, all) {
                pthread_mutex_unlock(&set->lock);
                pthread_mutex_unlock(&set->outside_lock);
        }
        pthread_mutex_unlock(&memberships);
}

/* The child's sets are empty, and so are their kernel halves, which are not the parent's
 * any more. */
void native_set_fork_child(void)
{
        struct unet_pollset *set;

        LIST_FOREACH (set, &sets, all) {
                empty(set);
                close(set->epfd);
                set->epfd = epoll_create1(EPOLL_CLOEXEC);
                set->kernel_half = false;
                if (set->outside != NULL)
                        usock_outside_forked(set->outside);
                set->outside = NULL;
                outside_again(set);
        }
        native_set_fork_parent();
}

void native_set_leave(void (*leave)(void))
{
        struct unet_pollset *set;

        LIST_FOREACH (set, &sets, all) {
                if (set->outside != NULL)
                        usock_outside_end(set->outside);
                set->outside = NULL;
                set->seen = (struct usock_news){0};
        }
        leave();
        LIST_FOREACH (set, &sets, all) {
                outside_again(set);
                if (set->outside != NULL)
                        usock_outside_ring(set->outside);
        }
}

/* ---- drain: who may be ready ---- */

static void concerned(void *arg, void *stack, uint32_t sock)
{
        struct unet_pollset *set = arg;
        struct native_member *m;

        LIST_FOREACH (m, bucket_of(set, stack, sock), bucket)
                if (usock_number(m->slot->us) == sock && usock_stack(m->slot->us) == stack)
                        enqueue(m);
}

static void all_concerned(struct unet_pollset *set)
{
        struct native_member *m;

        for (uint32_t i = 0; i < set->nbuckets; i++)
                LIST_FOREACH (m, &set->buckets[i], bucket)
                        enqueue(m);
}

/* There is room in some channel: datagram sockets that found it full have an edge, which their
 * counts do not show. */
static void room(struct unet_pollset *set)
{
        struct native_member *m;

        for (uint32_t i = 0; i < set->nbuckets; i++)
                LIST_FOREACH (m, &set->buckets[i], bucket)
                        if (READ_ONCE(usock_rec(m->slot->us)->blocked) != 0) {
                                m->fresh = true;
                                enqueue(m);
                        }
}

static void news(void *arg, void *stack, uint32_t sock)
{
        if (sock == 0)
                room(arg);
        else
                concerned(arg, stack, sock);
}

static void drain(struct unet_pollset *set)
{
        if (!usock_news(&set->seen, news, set))
                all_concerned(set);
}

/* ---- harvest: who is ready ---- */

/* Whether something new came of what the member asks for. Counts are read before readiness, so that
 * none is lost. */
static bool edge(struct native_member *m)
{
        uint32_t in, out;
        bool moved;

        usock_edges(m->slot->us, &in, &out);
        moved = m->fresh || in != m->in || (out != m->out && m->events & OUT_EVENTS);
        m->in = in;
        m->out = out;
        m->fresh = false;
        return moved;
}

/* What a watch tells (unet_watch_set()). An edge is a mark that is reached and was not, or what
 * happens; of what is unread, input. */
static uint32_t ready_of_flow(struct native_member *m, bool fresh, bool input)
{
        uint32_t edges = native_watch_edges(m->slot, &m->flow, &m->given),
                 events = native_watch_events(m->slot) & m->events;

        if (fresh || !(m->events & UNET_EDGE))
                return events;
        return events & (edges | (input ? UNET_EV_UNREAD : 0));
}

static uint32_t ready(struct native_member *m)
{
        uint32_t asked = (m->events & (IN_EVENTS | OUT_EVENTS)) | POLLERR | POLLHUP, flow = 0;
        bool fresh = m->fresh, moved = edge(m);

        if (m->events & FLOW_EVENTS)
                flow = ready_of_flow(m, fresh, moved);
        if (m->off)
                return 0;
        if (m->events & UNET_EDGE && !moved)
                return flow;
        return flow | ((uint16_t)usock_poll(m->slot->us) & asked);
}

/* One member of the queue; true when it was reported. Those that stay ready stand at the
 * end then. */
static bool harvest_one(struct native_member *m, struct unet_event *ev)
{
        uint32_t events = ready(m);

        assert(m->queued);
        dequeue(m);
        if (events == 0)
                return false;
        *ev = (struct unet_event){.events = events, .data = m->data};
        m->off = m->events & UNET_ONESHOT;
        if (!(m->events & UNET_EDGE))
                enqueue(m);
        return true;
}

/* Once round the queue. */
static int harvest(struct unet_pollset *set, struct unet_event *ev, int max)
{
        struct native_member *m, *last = TAILQ_LAST(&set->queue, member_queue);
        int n = 0;

        while (n < max && (m = TAILQ_FIRST(&set->queue)) != NULL) {
                n += harvest_one(m, &ev[n]);
                if (m == last)
                        break;
        }
        return n;
}

static int harvest_kernel(struct unet_pollset *set, struct unet_event *ev, int max)
{
        struct epoll_event got[64];
        int n = epoll_wait(set->epfd, got, MIN(max, (int)ARRAY_LEN(got)), 0);

        set->kernel_asked = ustack_now();
        for (int i = 0; i < n; i++)
                ev[i] = (struct unet_event){.events = got[i].events, .data = got[i].data.u64};
        return MAX(n, 0);
}

/* What is there now. The kernel is asked when we have nothing, and now and then: first, lest
 * it starve. */
static int collect(struct unet_pollset *set, struct unet_event *ev, int max,
                   struct usock_news *seen)
{
        int n = 0;

        usock_progress();
        pthread_mutex_lock(&set->lock);
        drain(set);
        if (set->kernel_half && ustack_now() - set->kernel_asked > KERNEL_EVERY)
                n = harvest_kernel(set, ev, max);
        n += harvest(set, ev + n, max - n);
        *seen = set->seen;
        pthread_mutex_unlock(&set->lock);
        return n;
}

/* ---- waiting ---- */

static int sleep_on(struct unet_pollset *set, const struct usock_news *seen, nstime deadline)
{
        struct usock_item kernel = {.fd = set->epfd, .events = POLLIN};
        nstime left = deadline == NSTIME_NEVER ? -1 : deadline - ustack_now();

        if (deadline != NSTIME_NEVER && left <= 0)
                return -EAGAIN;
        return usock_wait_news(seen, &kernel, set->kernel_half, left, NULL);
}

static int wait_for_events(struct unet_pollset *set, struct unet_event *ev, int max,
                           nstime deadline, struct usock_news *seen)
{
        int n, err;

        for (;;) {
                n = collect(set, ev, max, seen);
                if (n > 0)
                        return n;
                err = sleep_on(set, seen, deadline);
                if (err < 0)
                        return err == -EAGAIN ? 0 : err;
                set->kernel_asked = 0;
        }
}

static int do_wait(struct unet_pollset *set, struct unet_event *ev, int max, nstime deadline)
{
        struct usock_news seen;
        int n = wait_for_events(set, ev, max, deadline, &seen);

        if (unlikely(set->outside_fd >= 0))
                outside_after_wait(set, n, &seen);
        return n;
}

int unet_pollset_wait(struct unet_pollset *set, struct unet_event *ev, int max, int timeout_ms)
{
        nstime deadline = timeout_ms < 0 ? NSTIME_NEVER : ustack_now() + timeout_ms * NS_PER_MS;

        if (set == NULL || max <= 0)
                return (int)native_result(-EINVAL);
        if (ev == NULL)
                return (int)native_result(-EFAULT);
        return (int)native_result(do_wait(set, ev, max, deadline));
}
