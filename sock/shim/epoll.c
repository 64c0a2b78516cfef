/*
 * epoll sets with two halves. The kernel's half is the real epoll descriptor: it holds what is the kernel's, and the
 * kernel's side of sockets that have two. Our half is a list of members beside it.
 *
 * The kernel must not be told the program's data for a file we know, since its answer has to be joined with ours: it
 * is told the address of the member, which nothing of the program's can equal. What we do not know goes in untouched.
 *
 *      epfd --tab[]--> file --set--> members --> file of ours --us
 *        \                              |
 *         +-- kernel's half: {kernel fds, data of the program}, {kernel's side of a member, data = the member}
 *
 * What may be ready is on the set's queue: a member comes to it when it is added or changed, and when usock_news()
 * names its socket; so a call costs by what happened and not by the members there are. On it a member is looked at.
 * One without events leaves, a level-triggered one with events is reported and goes to the end, an edge-triggered one
 * is reported, if usock_edges() has moved since it was or it is new or re-armed, and leaves: epoll(7), to the letter.
 * A one-shot member is off, on both sides, from its report to EPOLL_CTL_MOD.
 *
 * A member is (number, file), as in the kernel: a duplicate is another member, and a member goes when the last number
 * of its file is closed. Files that change sides (an undecided socket is told to connect) take their members along.
 * Locks: shim.lock when members come and go, then the set's.
 */
#include "sock/shim/shim.h"

#include <sys/eventfd.h>
#include <sys/mman.h>

#define PRIVATE_BITS (EPOLLWAKEUP | EPOLLONESHOT | EPOLLET | EPOLLEXCLUSIVE)
#define IN_BITS      (EPOLLIN | EPOLLRDNORM | EPOLLRDBAND | EPOLLPRI | EPOLLRDHUP)
#define OUT_BITS     (EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND)
#define ON_STACK     64
#define MEMBERS_MAX  (1u << 20)
#define SETS_MAX     (1u << 10)
#define BUCKETS      (1u << 12)

struct epoll_item {
        struct epoll_item *next, *prev; /* in its set; ring without a head */
        struct epoll_item *after;       /* on the queue */
        struct epoll_item *bucket_next; /* of the set's, by the number of its socket */
        struct epoll_item *same_file;
        struct epoll_set *set;          /* NULL: free */
        struct file *f;
        int fd;
        uint32_t events;
        uint64_t data;
        uint32_t in, out;               /* edges that were reported */
        bool off;                       /* one-shot, fired */
        bool fresh;                     /* new or re-armed: an edge in itself */
        bool in_kernel;
        bool queued;
        struct usock *us;               /* that it is in a bucket for */
        unsigned round;                 /* the round of its set that reported it, */
        int slot;                       /* and where */
};

struct epoll_set {
        pthread_mutex_t lock;
        int epfd;
        struct file *owner;             /* of epfd */
        _Atomic int sleepers;           /* threads in set_wait() */
        _Atomic bool kick_once;         /* somebody may sleep in the kernel whom nobody has counted */
        struct epoll_item *members;
        int count;
        int nested;                     /* of them, epoll descriptors */
        struct epoll_item *head, *tail; /* the queue */
        int queued;
        struct usock_news seen;
        bool kernel_half;               /* something was put there */
        unsigned round;                 /* grows with each call that reports */
        uint8_t tick;
        nstime kernel_asked;
        _Atomic int kick;               /* eventfd in the kernel's half, see kick(); -1: not made */
        struct epoll_set *next_free;
        bool live;
        struct epoll_item *bucket[BUCKETS];
};

static struct epoll_item *items;        /* MEMBERS_MAX of them, reserved */
static unsigned items_used;
static struct epoll_item *items_free;
static struct epoll_set *sets;
static unsigned sets_used;
static struct epoll_set *sets_free;

/* ---- memory, under shim.lock ---- */

static void *reserve(size_t bytes)
{
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        return p == MAP_FAILED ? NULL : p;
}

static struct epoll_item *item_alloc(void)
{
        struct epoll_item *it = items_free;

        if (it) {
                items_free = it->next;
        } else {
                if (!items)
                        items = reserve(MEMBERS_MAX * sizeof(*items));
                if (!items || items_used == MEMBERS_MAX)
                        return NULL;
                it = &items[items_used++];
        }
        return it;
}

static void item_free(struct epoll_item *it)
{
        it->set = NULL;
        it->next = items_free;
        items_free = it;
}

static struct epoll_set *set_alloc(int epfd, struct file *owner)
{
        struct epoll_set *s = sets_free;

        if (s) {
                sets_free = s->next_free;
        } else {
                if (!sets)
                        sets = reserve(SETS_MAX * sizeof(*sets));
                if (!sets || sets_used == SETS_MAX)
                        return NULL;
                s = &sets[sets_used++];
        }
        s->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        s->epfd = epfd;
        s->owner = owner;
        s->sleepers = 0;
        s->kick_once = true;
        s->members = s->head = s->tail = NULL;          /* and so the buckets are empty */
        s->count = s->nested = s->queued = 0;
        s->seen = (struct usock_news){0};
        s->kernel_half = false;
        s->round = 1;
        s->kick = -1;
        s->live = true;
        return s;
}

static bool is_member(uint64_t data)
{
        uintptr_t first = (uintptr_t)items;

        return items && data >= first && data < first + MEMBERS_MAX * sizeof(*items);
}

/* ---- members ---- */

/* The kernel's side has something to say: all but a connection of ours, and an epoll set that only has ours. */
static bool has_kernel_side(const struct file *f)
{
        return f->mode != MODE_TCP;
}

static bool has_our_side(const struct file *f)
{
        return f->mode >= MODE_TCP || (f->mode == MODE_EPOLL && f->set);
}

static int kernel_ctl(struct epoll_item *it, int op, uint32_t events)
{
        struct epoll_event ev = {.events = events, .data.u64 = (uintptr_t)it};

        return (int)sys4(SYS_epoll_ctl, it->set->epfd, op, it->fd, &ev);
}

/* ---- the queue and the buckets, under the set's lock ---- */

static void queue_item(struct epoll_set *set, struct epoll_item *it)
{
        if (it->queued)
                return;
        it->queued = true;
        it->after = NULL;
        if (set->tail)
                set->tail->after = it;
        else
                set->head = it;
        set->tail = it;
        set->queued++;
}

static struct epoll_item *queue_take(struct epoll_set *set)
{
        struct epoll_item *it = set->head;

        set->head = it->after;
        if (!set->head)
                set->tail = NULL;
        it->queued = false;
        set->queued--;
        return it;
}

static void queue_drop(struct epoll_set *set, const struct epoll_item *gone)
{
        for (int n = set->queued; n > 0; n--) {
                struct epoll_item *it = queue_take(set);

                if (it != gone)
                        queue_item(set, it);
        }
}

static struct epoll_item **bucket_of(struct epoll_set *set, const struct usock *us)
{
        return &set->bucket[usock_number(us) % BUCKETS];
}

static void bucket_leave(struct epoll_set *set, struct epoll_item *it)
{
        struct epoll_item **p = it->us ? bucket_of(set, it->us) : NULL;

        while (p && *p != it)
                p = &(*p)->bucket_next;
        if (p)
                *p = it->bucket_next;
        it->us = NULL;
}

/* News of its socket, if it has one of ours now, will find it. */
static void bucket_join(struct epoll_set *set, struct epoll_item *it)
{
        struct epoll_item **p;

        bucket_leave(set, it);
        if (!it->f->us)
                return;
        it->us = it->f->us;
        p = bucket_of(set, it->us);
        it->bucket_next = *p;
        *p = it;
}

static void link_item(struct epoll_set *set, struct epoll_item *it)
{
        if (!set->members) {
                it->next = it->prev = set->members = it;
        } else {
                it->next = set->members;
                it->prev = set->members->prev;
                it->prev->next = it->next->prev = it;
        }
        set->count++;
        set->nested += it->f->mode == MODE_EPOLL;
        bucket_join(set, it);
        queue_item(set, it);
}

static void unlink_item(struct epoll_set *set, struct epoll_item *it)
{
        if (it->queued)
                queue_drop(set, it);
        bucket_leave(set, it);
        it->next->prev = it->prev;
        it->prev->next = it->next;
        if (set->members == it)
                set->members = it->next == it ? NULL : it->next;
        set->count--;
        set->nested -= it->f->mode == MODE_EPOLL;
}

static void queue_all(struct epoll_set *set, uint32_t events)
{
        struct epoll_item *it = set->members;

        for (int i = 0; i < set->count; i++, it = it->next)
                if (it->events & events)
                        queue_item(set, it);
}

static void on_news(void *arg, void *stack, uint32_t sock)
{
        struct epoll_set *set = arg;

        if (sock == 0) {                /* room to send, for whoever waits for it */
                queue_all(set, OUT_BITS);
                return;
        }
        for (struct epoll_item *it = set->bucket[sock % BUCKETS]; it; it = it->bucket_next)
                if (usock_number(it->us) == sock && usock_stack(it->us) == stack)
                        queue_item(set, it);
}

static void hear_news(struct epoll_set *set)
{
        if (!usock_news(&set->seen, on_news, set))
                queue_all(set, ~0u);
}

/* ---- members coming and going ---- */

static struct epoll_item *item_find(const struct epoll_set *set, const struct file *f, int fd)
{
        struct epoll_item *it = f->items;

        while (it && (it->set != set || it->fd != fd))
                it = it->same_file;
        return it;
}

/*
 * In a threaded program others may be asleep on the set, and must see that its members have changed. Some may even
 * sleep in the kernel alone, having come before the first member did. An eventfd in the kernel's half, made for the
 * first change, wakes them all; its event is ours and reported to nobody.
 */
static void kick_make(struct epoll_set *set)
{
        struct epoll_event ev = {.events = EPOLLIN, .data.u64 = (uintptr_t)set};
        int fd = shim_high_fd((int)sys2(SYS_eventfd2, 0, EFD_NONBLOCK | EFD_CLOEXEC));

        if (fd < 0)
                return;
        sys4(SYS_epoll_ctl, set->epfd, EPOLL_CTL_ADD, fd, &ev);
        set->kick = fd;
        set->kernel_half = true;
}

static void kick(struct epoll_set *set)
{
        uint64_t one = 1;

        if (__libc_single_threaded || !(set->kick_once || set->sleepers || set->owner->kernel_sleepers))
                return;
        set->kick_once = false;
        if (set->kick < 0)
                kick_make(set);
        if (set->kick >= 0)
                sys3(SYS_write, set->kick, &one, sizeof(one));
}

static void kicked(struct epoll_set *set)
{
        uint64_t count;

        sys3(SYS_read, set->kick, &count, sizeof(count));
}

static int item_add(struct epoll_set *set, struct file *f, int fd, const struct epoll_event *ev)
{
        struct epoll_item *it;
        int r = 0;

        if (item_find(set, f, fd))
                return -EEXIST;
        it = item_alloc();
        if (!it)
                return -ENOMEM;
        *it = (struct epoll_item){.set = set, .f = f, .fd = fd, .events = ev->events, .data = ev->data.u64,
                                  .fresh = true};
        if (has_kernel_side(f)) {
                r = kernel_ctl(it, EPOLL_CTL_ADD, ev->events);
                it->in_kernel = r == 0;
                set->kernel_half |= r == 0;
        }
        if (r < 0) {
                item_free(it);
                return r;
        }
        pthread_mutex_lock(&set->lock);
        link_item(set, it);
        pthread_mutex_unlock(&set->lock);
        it->same_file = f->items;
        f->items = it;
        kick(set);
        return 0;
}

static int item_mod(struct epoll_set *set, struct epoll_item *it, const struct epoll_event *ev)
{
        int r = 0;

        if ((it->events | ev->events) & EPOLLEXCLUSIVE)
                return -EINVAL;
        pthread_mutex_lock(&set->lock);
        if (it->in_kernel)
                r = kernel_ctl(it, EPOLL_CTL_MOD, ev->events);
        if (r == 0) {
                it->events = ev->events;
                it->data = ev->data.u64;
                it->off = false;
                it->fresh = true;
                queue_item(set, it);
        }
        pthread_mutex_unlock(&set->lock);
        kick(set);
        return r;
}

static void item_remove(struct epoll_item *it, bool in_kernel_too)
{
        struct epoll_set *set = it->set;
        struct epoll_item **p = &it->f->items;

        while (*p != it)
                p = &(*p)->same_file;
        *p = it->same_file;
        pthread_mutex_lock(&set->lock);
        unlink_item(set, it);
        if (it->in_kernel && in_kernel_too)
                kernel_ctl(it, EPOLL_CTL_DEL, 0);
        pthread_mutex_unlock(&set->lock);
        kick(set);                      /* who sleeps with it in hand lets go */
        item_free(it);
}

void epoll_file_moved(struct file *f)
{
        for (struct epoll_item *it = f->items; it; it = it->same_file) {
                pthread_mutex_lock(&it->set->lock);
                if (it->in_kernel && !has_kernel_side(f)) {
                        kernel_ctl(it, EPOLL_CTL_DEL, 0);
                        it->in_kernel = false;
                }
                it->fresh = true;
                bucket_join(it->set, it);
                queue_item(it->set, it);
                pthread_mutex_unlock(&it->set->lock);
                kick(it->set);
        }
}

/* The kernel forgets its half of what is closed by itself, unless a duplicate it cannot see holds it: ask anyway. */
void epoll_file_closed(struct file *f)
{
        pthread_mutex_lock(&shim.lock);
        while (f->items)
                item_remove(f->items, true);
        while (f->set && f->set->members)
                item_remove(f->set->members, false);
        pthread_mutex_unlock(&shim.lock);
}

void epoll_file_ended(struct file *f)
{
        struct epoll_set *set = f->set;

        if (set->kick >= 0)
                sys1(SYS_close, set->kick);
        pthread_mutex_lock(&shim.lock);
        set->live = false;
        set->next_free = sets_free;
        sets_free = set;
        f->set = NULL;
        pthread_mutex_unlock(&shim.lock);
}

/* ---- what is ready in our half ---- */

struct harvest {
        struct epoll_event *ev;
        int n, max;
        struct usock_news seen;         /* all that happened before this was looked at */
};

static uint32_t interest(const struct epoll_item *it)
{
        return (it->events & ~PRIVATE_BITS) | EPOLLERR | EPOLLHUP;
}

static bool edge(struct epoll_item *it, uint32_t revents)
{
        uint32_t in, out;
        bool moved;

        if (it->f->mode == MODE_EPOLL) {        /* the edge of a nested set: it was not ready, and is */
                in = (revents & EPOLLIN) != 0;
                moved = in && !it->in;
                it->in = in;
                return moved || it->fresh;
        }
        usock_edges(it->f->us, &in, &out);
        moved = (in != it->in && ((it->events & IN_BITS) || (revents & (EPOLLERR | EPOLLHUP)))) ||
                (out != it->out && (it->events & OUT_BITS));
        it->in = in;
        it->out = out;
        return moved || it->fresh;
}

/* Events to report now; what edge() compares is read before what it reports is, so that none is lost. */
static uint32_t item_ready(struct epoll_item *it, bool consume)
{
        uint32_t before_in = it->in, before_out = it->out, revents;
        bool news = true;

        if (it->off || !has_our_side(it->f))
                return 0;
        if (it->events & EPOLLET)
                news = edge(it, (uint16_t)file_poll_ours(it->f));
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

static void item_fired(struct epoll_item *it, bool by_kernel)
{
        if (!(it->events & EPOLLONESHOT) || it->off)
                return;
        it->off = true;
        if (it->in_kernel && !by_kernel)
                kernel_ctl(it, EPOLL_CTL_MOD, EPOLLONESHOT | EPOLLET);   /* ERR and HUP stay: once */
}

static void report(struct harvest *h, struct epoll_item *it, uint32_t revents)
{
        if (it->round == it->set->round) {
                h->ev[it->slot].events |= revents;
                return;
        }
        it->round = it->set->round;
        it->slot = h->n;
        h->ev[h->n++] = (struct epoll_event){.events = revents, .data.u64 = it->data};
}

static bool stays_queued(const struct epoll_item *it, uint32_t revents)
{
        return revents && !it->off && !(it->events & EPOLLET);
}

/* A set in a set makes no news of its own. */
static void queue_nested(struct epoll_set *set)
{
        struct epoll_item *it = set->members;

        for (int i = 0; set->nested && i < set->count; i++, it = it->next)
                if (it->f->mode == MODE_EPOLL)
                        queue_item(set, it);
}

/* One round over the queue. */
static void harvest_ours(struct epoll_set *set, struct harvest *h)
{
        hear_news(set);
        h->seen = set->seen;
        queue_nested(set);
        for (int n = set->queued; n > 0 && h->n < h->max; n--) {
                struct epoll_item *it = queue_take(set);
                uint32_t revents = item_ready(it, true);

                if (revents) {
                        report(h, it, revents);
                        item_fired(it, false);
                }
                if (stays_queued(it, revents))
                        queue_item(set, it);
        }
}

static void harvest_member(struct harvest *h, struct epoll_set *set, struct epoll_item *it, uint32_t revents)
{
        if (it->set != set || it->off)
                return;
        if (it->f->mode == MODE_UDP && has_our_side(it->f))     /* room is what our side says it is */
                revents &= ~(uint32_t)OUT_BITS;
        if (!revents)
                return;
        report(h, it, revents);
        item_fired(it, true);
}

static void harvest_kernel(struct epoll_set *set, struct harvest *h)
{
        struct epoll_event ev[ON_STACK];
        struct timespec now = {0, 0};
        int room = MIN(h->max - h->n, ON_STACK);
        long n = room ? sys6(SYS_epoll_pwait2, set->epfd, (long)ev, room, (long)&now, 0, 0) : 0;

        if (n == -ENOSYS)
                n = sys6(SYS_epoll_pwait, set->epfd, (long)ev, room, 0, 0, 0);
        for (long i = 0; i < n; i++) {
                if (ev[i].data.u64 == (uintptr_t)set)
                        kicked(set);
                else if (is_member(ev[i].data.u64))
                        harvest_member(h, set, (struct epoll_item *)(uintptr_t)ev[i].data.u64, ev[i].events);
                else
                        h->ev[h->n++] = ev[i];
        }
}

static int harvest(struct epoll_set *set, struct harvest *h, bool kernel_first)
{
        pthread_mutex_lock(&set->lock);
        set->round++;
        if (kernel_first)
                harvest_kernel(set, h);
        harvest_ours(set, h);
        if (!h->n && set->kernel_half && !kernel_first)
                harvest_kernel(set, h);
        pthread_mutex_unlock(&set->lock);
        return h->n;
}

bool epoll_set_ready(struct epoll_set *set, struct usock_news *seen)
{
        struct epoll_item *it;
        bool ready = false;

        pthread_mutex_lock(&set->lock);
        hear_news(set);
        if (seen)
                *seen = set->seen;
        queue_nested(set);
        for (it = set->head; it && !ready; it = it->after)
                ready = item_ready(it, false) != 0;
        pthread_mutex_unlock(&set->lock);
        return ready;
}

/* ---- sleeping ---- */

/*
 * The wait item of one member. Of an edge-triggered one only the events that are not there can wake, for the others
 * have been reported. False: it must be waited for by news, since it has unread input, and more of it would be an edge
 * that no level shows, or because it is a set itself.
 */
static bool item_wait(const struct epoll_item *it, struct usock_item *v)
{
        uint32_t now, ask = it->events & ~PRIVATE_BITS;

        *v = (struct usock_item){.s = it->f->us, .fd = -1, .events = (short)ask};
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
        int n;                          /* -1: wait for news */
        int held;
};

static void let_go(struct luggage *l)
{
        while (l->held > 0)
                file_unref(l->f[--l->held]);
}

static void hold(struct luggage *l, struct file *f)
{
        if (__libc_single_threaded)
                return;
        atomic_fetch_add(&f->refs, 1);  /* a member's file lives as long as the set's lock is held */
        l->f[l->held++] = f;
}

static void few_items(struct epoll_set *set, struct luggage *l)
{
        struct epoll_item *it = set->members;

        l->n = l->held = 0;
        for (int i = 0; i < set->count && l->n >= 0; i++, it = it->next) {
                if (it->off || !has_our_side(it->f))
                        continue;
                if (l->n == ON_STACK || !item_wait(it, &l->v[l->n])) {
                        l->n = -1;
                        continue;
                }
                hold(l, it->f);
                l->n++;
        }
}

/*
 * Sleeps until something may be ready: positive; 0 when the time is over, -EINTR, -ERR_AGAIN. A small set waits for
 * its own sockets, once no news has come for them since the items were made; a large one is woken by news of any socket
 * of this process's stacks since the queue was looked at.
 */
static int set_wait(struct epoll_set *set, const struct usock_news *seen, struct until *u, const sigset_t *mask)
{
        struct luggage l;
        bool news;
        int r = 1;

        pthread_mutex_lock(&set->lock);
        few_items(set, &l);
        if (l.n >= 0)
                hear_news(set);
        news = set->queued;
        set->sleepers++;
        pthread_mutex_unlock(&set->lock);
        if (l.n < 0) {
                let_go(&l);
                l.v[0] = (struct usock_item){.fd = set->epfd, .events = POLLIN};
                r = wait_items(l.v, set->kernel_half, u, mask, seen);
        } else if (!news) {
                if (set->kernel_half)
                        l.v[l.n++] = (struct usock_item){.fd = set->epfd, .events = POLLIN};
                r = wait_items(l.v, l.n, u, mask, NULL);
        }
        let_go(&l);
        set->sleepers--;
        return r;
}

static int do_wait(struct epoll_set *set, struct epoll_event *ev, int max, struct until *u, const sigset_t *mask)
{
        struct harvest h = {.ev = ev, .max = max};
        int r;

        for (;;) {
                usock_progress();
                if (harvest(set, &h, set->kernel_half && kernel_turn(&set->tick, &set->kernel_asked)))
                        return h.n;
                if (u->left == 0)
                        return 0;
                r = set_wait(set, &h.seen, u, mask);
                if (r < 0)
                        return r;
                if (r == 0)
                        u->left = 0;    /* the last look */
        }
}

/* ---- the calls ---- */

int h_epoll_create1(int flags)
{
        int fd = fd_returned(REAL(epoll_create1)(flags));

        if (fd >= 0 && shim.size && !usock_tls.inside) {
                usock_enter();
                file_new(fd, MODE_EPOLL);
                usock_leave();
        }
        return fd;
}

int h_epoll_create(int size)
{
        if (size <= 0) {
                errno = EINVAL;
                return -1;
        }
        return h_epoll_create1(0);
}

/* The file of an epoll descriptor that is to hold one of ours; it may be older than our table. */
static struct file *epoll_file(int epfd)
{
        struct file *f = file_peek(epfd);

        if (!f && (unsigned)epfd < shim.size) {
                struct epoll_event none = {0};

                /* Only epoll descriptors answer a bad number with EBADF; others say EINVAL. */
                if (sys4(SYS_epoll_ctl, epfd, EPOLL_CTL_DEL, -1, &none) != -EBADF ||
                    sys2(SYS_fcntl, epfd, F_GETFD) < 0)
                        return NULL;
                f = file_new(epfd, MODE_EPOLL);
        }
        return f && f->mode == MODE_EPOLL ? f : NULL;
}

static int ctl_known(struct file *ef, int epfd, int op, struct file *f, int fd, struct epoll_event *ev)
{
        struct epoll_item *it = ef->set ? item_find(ef->set, f, fd) : NULL;

        if (op == EPOLL_CTL_ADD) {
                if (!it && f->mode == MODE_KERNEL)
                        return (int)sys4(SYS_epoll_ctl, epfd, op, fd, ev);
                if (!ef->set)
                        ef->set = set_alloc(epfd, ef);
                if (!ef->set)
                        return -ENOMEM;
                if (ef == f)
                        return -EINVAL;
                return item_add(ef->set, f, fd, ev);
        }
        if (!it)
                return (int)sys4(SYS_epoll_ctl, epfd, op, fd, ev);
        if (op == EPOLL_CTL_MOD)
                return item_mod(ef->set, it, ev);
        if (op != EPOLL_CTL_DEL)
                return -EINVAL;
        item_remove(it, true);
        return 0;
}

static int do_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
        struct file *f = file_peek(fd), *ef;
        int r;

        if (!ev && op != EPOLL_CTL_DEL)
                return -EFAULT;
        ef = f ? epoll_file(epfd) : file_peek(epfd);
        if (!f || !ef || ef->mode != MODE_EPOLL) {
                r = (int)sys4(SYS_epoll_ctl, epfd, op, fd, ev);
                if (r == 0 && op == EPOLL_CTL_ADD && ef && ef->set) {
                        ef->set->kernel_half = true;
                        kick(ef->set);
                }
                return r;
        }
        pthread_mutex_lock(&shim.lock);
        r = ctl_known(ef, epfd, op, f, fd, ev);
        if (r == 0 && ef->set && f->mode == MODE_KERNEL)
                ef->set->kernel_half = true;
        pthread_mutex_unlock(&shim.lock);
        return r;
}

int h_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
        ssize_t r;

        if (!shim.size || usock_tls.inside || (!file_peek(fd) && !file_peek(epfd)))
                return REAL(epoll_ctl)(epfd, op, fd, ev);
        usock_enter();
        r = do_ctl(epfd, op, fd, ev);
        usock_leave();
        result_again(&r);
        return (int)r;
}

/* A set that holds some of ours, entered; NULL: the kernel's call is the right one. */
static struct file *enter_set(int epfd)
{
        struct file *f = file_peek(epfd);

        if (likely(!f) || f->mode != MODE_EPOLL || !f->set || !f->set->count)
                return NULL;
        return file_enter(epfd, MODE_EPOLL);
}

static int wait_entered(struct file *f, struct epoll_event *ev, int max, struct until *u, const sigset_t *mask)
{
        int r = max <= 0 ? -EINVAL : do_wait(f->set, ev, max, u, mask);

        file_leave(f);
        return r;
}

/* Members came while we slept in the kernel alone: its answer is in their terms. */
static int translate(int epfd, struct epoll_event *ev, int n)
{
        struct file *f = enter_set(epfd);
        struct harvest h = {.ev = ev, .max = n};

        if (!f)
                return n;
        pthread_mutex_lock(&f->set->lock);
        f->set->round++;
        for (int i = 0; i < n; i++) {
                struct epoll_event one = ev[i];

                if (one.data.u64 == (uintptr_t)f->set)
                        kicked(f->set);
                else if (is_member(one.data.u64))
                        harvest_member(&h, f->set, (struct epoll_item *)(uintptr_t)one.data.u64, one.events);
                else
                        ev[h.n++] = one;
        }
        pthread_mutex_unlock(&f->set->lock);
        file_leave(f);
        return h.n ? h.n : -ERR_AGAIN;
}

/* A thread that sleeps in libc's call must be woken when the set gets its first member. */
static struct file *kernel_sleeps(int epfd)
{
        struct file *f = __libc_single_threaded ? NULL : file_peek(epfd);

        if (!f || f->mode != MODE_EPOLL)
                return NULL;
        atomic_fetch_add(&f->kernel_sleepers, 1);
        return f;
}

static void kernel_slept(struct file *f)
{
        if (f)
                atomic_fetch_sub(&f->kernel_sleepers, 1);
}

/* The result of libc's call; true: nothing of it was for the program, once more. */
static bool kernel_again(int epfd, struct epoll_event *ev, ssize_t *r, struct until *u)
{
        if (likely(*r <= 0) || usock_tls.inside)
                return false;
        *r = translate(epfd, ev, (int)*r);
        if (*r != -ERR_AGAIN)
                return false;
        *r = 0;
        return !until_over(u);
}

int h_epoll_wait(int epfd, struct epoll_event *ev, int max, int timeout)
{
        struct until u = until_ms(timeout);
        ssize_t r;

        for (;;) {
                struct file *f = enter_set(epfd);

                if (!f) {
                        f = kernel_sleeps(epfd);
                        r = REAL(epoll_wait)(epfd, ev, max, timeout);
                        kernel_slept(f);
                        if (!kernel_again(epfd, ev, &r, &u))
                                return (int)r;
                        continue;
                }
                r = wait_entered(f, ev, max, &u, NULL);
                if (!result_again(&r))
                        return (int)r;
        }
}

int h_epoll_pwait(int epfd, struct epoll_event *ev, int max, int timeout, const sigset_t *mask)
{
        struct until u = until_ms(timeout);
        ssize_t r;

        for (;;) {
                struct file *f = enter_set(epfd);

                if (!f) {
                        f = kernel_sleeps(epfd);
                        r = REAL(epoll_pwait)(epfd, ev, max, timeout, mask);
                        kernel_slept(f);
                        if (!kernel_again(epfd, ev, &r, &u))
                                return (int)r;
                        continue;
                }
                r = wait_entered(f, ev, max, &u, mask);
                if (!result_again(&r))
                        return (int)r;
        }
}

int h_epoll_pwait2(int epfd, struct epoll_event *ev, int max, const struct timespec *timeout, const sigset_t *mask)
{
        struct until u = until_ts(timeout);
        ssize_t r;

        for (;;) {
                struct file *f = enter_set(epfd);

                if (!f) {
                        f = kernel_sleeps(epfd);
                        r = REAL(epoll_pwait2)(epfd, ev, max, timeout, mask);
                        kernel_slept(f);
                        if (!kernel_again(epfd, ev, &r, &u))
                                return (int)r;
                        continue;
                }
                r = wait_entered(f, ev, max, &u, mask);
                if (!result_again(&r))
                        return (int)r;
        }
}

/* ---- fork ---- */

void epoll_fork_lock(void)
{
        for (unsigned i = 0; i < sets_used; i++)
                if (sets[i].live)
                        pthread_mutex_lock(&sets[i].lock);
}

/* In the child nobody sleeps. */
void epoll_fork_unlock(bool child)
{
        for (unsigned i = 0; i < sets_used; i++) {
                if (!sets[i].live)
                        continue;
                if (child)
                        sets[i].sleepers = 0;
                pthread_mutex_unlock(&sets[i].lock);
        }
}
