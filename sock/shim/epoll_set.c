/*
 * The members of an epoll set: their memory, the queue of those that may be ready, and how they
 * come and go.
 */
#include "sock/shim/epoll.h"
#include "sock/shim/epoll_set.h"
#include "sock/shim/spare.h"

#include <sys/auxv.h>
#include <sys/eventfd.h>

#define FEWEST 4u

static struct epoll_item *items; /* reserved */
static unsigned items_max = 1u << EPOLL_PLACE_BITS, sets_max = 1u << 10;
static unsigned items_used;
static struct epoll_item *items_free;
static struct epoll_set *sets;
static unsigned sets_used;
static struct epoll_set *sets_free;
static uint64_t numbers; /* whose upper bits are those of tags; 0: not begun */

/* ---- memory, under shim.lock ---- */

/* Room for *n of them, or for fewer where address space is limited. */
static void *reserve(unsigned *n, size_t size)
{
        for (; *n >= FEWEST; *n /= 4) {
                void *p = usock_reserve(*n * size);
                if (p)
                        return p;
        }
        return NULL;
}

static struct epoll_item *item_alloc(void)
{
        struct epoll_item *it = items_free;

        assert(shim_locked());
        if (it) {
                items_free = it->same_file;
        } else {
                if (!items)
                        items = reserve(&items_max, sizeof(*items));
                if (!items || items_used == items_max)
                        return NULL;
                it = &items[items_used++];
        }
        return it;
}

static void item_free(struct epoll_item *it)
{
        assert(shim_locked());
        assert(!it->queued && it->us == NULL);
        it->set = NULL;
        it->same_file = items_free;
        items_free = it;
}

struct epoll_set *epoll_set_new(struct file *owner)
{
        struct epoll_set *s = sets_free;

        assert(shim_locked() && owner->set == NULL);
        if (s) {
                sets_free = s->next_free;
        } else {
                if (!sets)
                        sets = reserve(&sets_max, sizeof(*sets));
                if (!sets || sets_used == sets_max)
                        return NULL;
                s = &sets[sets_used++];
        }
        s->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        s->owner = owner;
        s->sleepers = 0;
        s->kick_once = true;
        TAILQ_INIT(&s->members); /* and so the buckets are empty */
        TAILQ_INIT(&s->queue);
        LIST_INIT(&s->full);
        s->count = s->nested = s->queued = 0;
        s->seen = (struct usock_news){0};
        s->stirred = 0;
        s->kernel_half = owner->kernel_members;
        s->undecided = false;
        s->round = 1;
        s->abroad = s->tags = false;
        s->nobodys = 0;
        s->kick = s->mark = s->image = -1;
        s->live = true;
        return s;
}

/* The kernel's sixteen bytes are of the image; a child has them, too. */
static void renumber(void)
{
        const void *random = (const void *)getauxval(AT_RANDOM);

        if (numbers == 0 && random)
                memcpy(&numbers, random, sizeof(numbers));
        numbers = (numbers + (uint64_t)sys0(SYS_getpid)) * 6364136223846793005u +
                  1442695040888963407u;
}

static uint64_t new_tag(const struct epoll_item *it)
{
        if (unlikely(numbers == 0))
                renumber();
        return EPOLL_WORD(EPOLL_TAGS, numbers >> (64 - EPOLL_NUMBER_BITS) | 1,
                          (uint64_t)(it - items));
}

/* One that came with a set has the tag that its sender gave it. */
static struct epoll_item *by_tag(struct epoll_set *set, uint64_t tag)
{
        uint64_t place = tag & ((1u << EPOLL_PLACE_BITS) - 1);
        struct epoll_item *it;

        if (likely(place < items_used && items[place].tag == tag))
                return &items[place];
        if (set->tags)
                TAILQ_FOREACH (it, &set->members, of_set)
                        if (it->tag == tag)
                                return it;
        return NULL;
}

enum whose epoll_whose(struct epoll_set *set, uint64_t data, struct epoll_item **it)
{
        *it = NULL;
        if (unlikely(data == EPOLL_KICK))
                return epoll_kicked(set) ? KICK : NOBODYS;
        *it = by_tag(set, data);
        if (*it)
                return MEMBERS;
        return unlikely(set->abroad) && epoll_has_word(data, EPOLL_TAGS) ? NOBODYS : PROGRAMS;
}

/* What the kernel is asked of a member: whether a datagram socket has room our side knows; the
 * kernel's always has. */
static uint32_t asked_of_kernel(const struct epoll_item *it)
{
        return it->f->mode == MODE_UDP ? it->events & ~(uint32_t)OUT_BITS : it->events;
}

int epoll_kernel_ctl(struct epoll_item *it, int op, uint32_t events)
{
        struct epoll_event ev = {.events = events, .data.u64 = it->tag};

        return (int)sys4(SYS_epoll_ctl, epoll_kernel_fd(it->set), op, it->fd, &ev);
}

/* ---- the queue and the buckets, under the set's lock ---- */

void epoll_queue_item(struct epoll_set *set, struct epoll_item *it)
{
        assert(it->set == set);
        if (it->queued)
                return;
        it->queued = true;
        TAILQ_INSERT_TAIL(&set->queue, it, queue);
        set->queued++;
}

static void queue_drop(struct epoll_set *set, struct epoll_item *it)
{
        assert(it->queued && set->queued != 0);
        TAILQ_REMOVE(&set->queue, it, queue);
        it->queued = false;
        set->queued--;
}

struct epoll_item *epoll_queue_take(struct epoll_set *set)
{
        struct epoll_item *it = TAILQ_FIRST(&set->queue);

        queue_drop(set, it);
        return it;
}

static void full_join(struct epoll_set *set, struct epoll_item *it)
{
        assert(it->set == set && it->us != NULL);
        if (!it->full.le_prev)
                LIST_INSERT_HEAD(&set->full, it, full);
}

static void full_leave(struct epoll_item *it)
{
        if (!it->full.le_prev)
                return;
        LIST_REMOVE(it, full);
        it->full.le_prev = NULL;
}

static void bucket_leave(struct epoll_item *it)
{
        full_leave(it);
        if (!it->us)
                return;
        LIST_REMOVE(it, bucket);
        it->us = NULL;
}

/* News of its socket, if it has one of ours now, will find it. */
static void bucket_join(struct epoll_set *set, struct epoll_item *it)
{
        assert(it->set == set);
        bucket_leave(it);
        if (!it->f->us)
                return;
        it->us = it->f->us;
        LIST_INSERT_HEAD(&set->bucket[usock_number(it->us) % BUCKETS], it, bucket);
}

static void link_item(struct epoll_set *set, struct epoll_item *it)
{
        assert(it->set == set && !it->queued);
        TAILQ_INSERT_TAIL(&set->members, it, of_set);
        set->count++;
        set->nested += it->f->mode == MODE_EPOLL;
        bucket_join(set, it);
        epoll_queue_item(set, it);
}

static void unlink_item(struct epoll_set *set, struct epoll_item *it)
{
        assert(it->set == set && set->count > 0);
        if (it->queued)
                queue_drop(set, it);
        bucket_leave(it);
        TAILQ_REMOVE(&set->members, it, of_set);
        set->count--;
        set->nested -= it->f->mode == MODE_EPOLL;
        assert(TAILQ_EMPTY(&set->members) == (set->count == 0));
}

static void queue_all(struct epoll_set *set)
{
        struct epoll_item *it;

        TAILQ_FOREACH (it, &set->members, of_set)
                epoll_queue_item(set, it);
}

static void on_news(void *arg, void *stack, uint32_t sock)
{
        struct epoll_set *set = arg;
        struct epoll_item *it;

        if (sock == 0) { /* room to send, for whoever waits for it */
                LIST_FOREACH (it, &set->full, full)
                        epoll_queue_item(set, it);
                return;
        }
        LIST_FOREACH (it, &set->bucket[sock % BUCKETS], bucket)
                if (usock_number(it->us) == sock && usock_stack(it->us) == stack) {
                        set->stirred++;
                        epoll_queue_item(set, it);
                }
}

bool epoll_hear_senders(struct epoll_set *set)
{
        bool any = false;

        for (struct epoll_item *it = LIST_FIRST(&set->full), *next; it; it = next) {
                next = LIST_NEXT(it, full);
                if (!usock_unblocked(it->us) && usock_blocked(it->us))
                        continue;
                full_leave(it);
                epoll_queue_item(set, it);
                any = true;
        }
        return any;
}

void epoll_note_room(struct epoll_item *it)
{
        if (it->f->mode != MODE_UDP || !(it->events & OUT_BITS) || !it->us)
                return;
        if (usock_unblocked(it->us) || !usock_blocked(it->us))
                full_leave(it);
        else
                full_join(it->set, it);
}

void epoll_hear_news(struct epoll_set *set)
{
        epoll_hear_senders(set);
        if (!usock_news(&set->seen, on_news, set))
                queue_all(set);
}

/* ---- members coming and going ---- */

struct epoll_item *epoll_item_find(const struct epoll_set *set, const struct file *f, int fd)
{
        struct epoll_item *it = f->items;

        while (it && (it->set != set || it->fd != fd))
                it = it->same_file;
        return it;
}

/*
 * In a threaded program others may be asleep on the set, and must see that its members have
 * changed. Some may even sleep in the kernel alone, having come before the first member did. An
 * eventfd in the kernel's half, made for the first change, wakes them all; its event is ours and
 * reported to nobody.
 */
static void kick_make(struct epoll_set *set)
{
        struct epoll_event ev = {.events = EPOLLIN, .data.u64 = EPOLL_KICK};
        int fd = shim_high_fd((int)sys2(SYS_eventfd2, 0, EFD_NONBLOCK | EFD_CLOEXEC));

        if (fd < 0)
                return;
        sys4(SYS_epoll_ctl, epoll_kernel_fd(set), EPOLL_CTL_ADD, fd, &ev);
        set->kick = fd;
        set->kernel_half = true;
}

void epoll_kick(struct epoll_set *set)
{
        uint64_t one = 1;

        if (__libc_single_threaded ||
            !(set->kick_once || set->sleepers || set->owner->kernel_sleepers))
                return;
        set->kick_once = false;
        if (set->kick < 0)
                kick_make(set);
        if (set->kick >= 0)
                sys3(SYS_write, set->kick, &one, sizeof(one));
}

bool epoll_kicked(struct epoll_set *set)
{
        uint64_t count;

        return set->kick >= 0 && sys3(SYS_read, set->kick, &count, sizeof(count)) > 0;
}

/* A side of the kernel's that it has not been told of. */
static int kernel_begins(struct epoll_item *it)
{
        int r;

        it->asked = asked_of_kernel(it);
        r = epoll_kernel_ctl(it, EPOLL_CTL_ADD, it->asked);
        it->in_kernel = r == 0;
        it->set->kernel_half |= r == 0;
        return r;
}

static struct epoll_item *item_new(struct epoll_set *set, struct file *f, int fd, uint32_t events,
                                   uint64_t data)
{
        struct epoll_item *it = item_alloc();

        if (it)
                *it = (struct epoll_item){.set = set,
                                          .f = f,
                                          .fd = fd,
                                          .events = events,
                                          .data = data,
                                          .tag = new_tag(it),
                                          .fresh = true};
        return it;
}

static void item_joins(struct epoll_set *set, struct epoll_item *it)
{
        struct file *f = it->f;

        pthread_mutex_lock(&set->lock);
        link_item(set, it);
        pthread_mutex_unlock(&set->lock);
        it->same_file = f->items;
        f->items = it;
        set->undecided |= f->shared && f->mode == MODE_NEW;
        epoll_kick(set);
}

int epoll_item_add(struct epoll_set *set, struct file *f, int fd, const struct epoll_event *ev)
{
        struct epoll_item *it;
        int r = 0;

        assert(shim_locked() && f != set->owner);
        assert(fd >= 0 && ev != NULL);
        if (epoll_item_find(set, f, fd))
                return -EEXIST;
        it = item_new(set, f, fd, ev->events, ev->data.u64);
        if (!it)
                return -ENOMEM;
        if (has_kernel_side(f)) {
                spare_used(f);
                r = kernel_begins(it);
        }
        if (r < 0) {
                item_free(it);
                return r;
        }
        item_joins(set, it);
        return 0;
}

/* The kernel's half, if it is there, is as the other one has it. */
static bool item_comes(struct epoll_set *set, struct file *f, const struct epoll_kept *k)
{
        struct epoll_item *it =
                epoll_item_find(set, f, k->fd) ? NULL : item_new(set, f, k->fd, k->events, k->data);

        if (!it)
                return false;
        it->in = k->in;
        it->out = k->out;
        it->off = k->off;
        it->fresh = k->fresh;
        it->tag = k->tag;
        it->in_kernel = it->elsewhere = k->in_kernel;
        it->asked = asked_of_kernel(it);
        set->kernel_half |= k->in_kernel;
        set->abroad = set->tags = true;
        item_joins(set, it);
        return true;
}

bool epoll_item_comes(struct file *ef, struct file *f, const struct epoll_kept *k)
{
        bool comes;

        pthread_mutex_lock(&shim.lock);
        file_hear_locked(f);
        if (!ef->set && f->mode != MODE_KERNEL)
                ef->set = epoll_set_new(ef);
        comes = ef->set && f->mode != MODE_KERNEL && item_comes(ef->set, f, k);
        pthread_mutex_unlock(&shim.lock);
        return comes;
}

struct epoll_kept epoll_item_kept(const struct epoll_item *it)
{
        return (struct epoll_kept){.epfd = epoll_kernel_fd(it->set),
                                   .fd = it->fd,
                                   .events = it->events,
                                   .data = it->data,
                                   .tag = it->tag,
                                   .cookie = it->f->us ? usock_cookie(it->f->us) : 0,
                                   .inner = epoll_pass_name(it->f->set),
                                   .in = it->in,
                                   .out = it->out,
                                   .off = it->off,
                                   .fresh = it->fresh,
                                   .in_kernel = it->in_kernel};
}

void epoll_shared(struct epoll_set *set)
{
        struct epoll_item *it;

        assert(shim_locked());
        set->abroad = true;
        if (!set->sleepers && !set->owner->kernel_sleepers)
                epoll_kicked(set); /* who gets the set cannot take that away */
        TAILQ_FOREACH (it, &set->members, of_set)
                it->elsewhere |= it->in_kernel;
        renumber();
}

void epoll_each_item(void (*fn)(struct epoll_item *it))
{
        struct epoll_item *it;

        pthread_mutex_lock(&shim.lock);
        for (unsigned i = 0; i < sets_used; i++)
                if (sets[i].live)
                        TAILQ_FOREACH (it, &sets[i].members, of_set)
                                fn(it);
        pthread_mutex_unlock(&shim.lock);
}

int epoll_item_mod(struct epoll_set *set, struct epoll_item *it, const struct epoll_event *ev)
{
        uint32_t before = it->events;
        int r = 0;

        assert(shim_locked() && it->set == set);
        if ((it->events | ev->events) & EPOLLEXCLUSIVE)
                return -EINVAL;
        pthread_mutex_lock(&set->lock);
        it->events = ev->events;
        if (it->in_kernel) {
                it->asked = asked_of_kernel(it);
                r = epoll_kernel_ctl(it, EPOLL_CTL_MOD, it->asked);
        }
        if (r != 0) {
                it->events = before;
        } else {
                it->data = ev->data.u64;
                it->off = false;
                it->fresh = true;
                epoll_queue_item(set, it);
        }
        pthread_mutex_unlock(&set->lock);
        epoll_kick(set);
        return r;
}

void epoll_item_remove(struct epoll_item *it, bool in_kernel_too)
{
        struct epoll_set *set = it->set;
        struct epoll_item **p = &it->f->items;

        assert(shim_locked());
        assert(it->set != NULL);
        while (*p != it)
                p = &(*p)->same_file;
        *p = it->same_file;
        pthread_mutex_lock(&set->lock);
        unlink_item(set, it);
        if (it->in_kernel && in_kernel_too)
                epoll_kernel_ctl(it, EPOLL_CTL_DEL, 0);
        pthread_mutex_unlock(&set->lock);
        epoll_kick(set); /* who sleeps with it in hand lets go */
        /* If its tag may be reported still, the next in its place has another one. */
        item_free(it);
}

/* Its file has changed sides. A shared one (EPOLLEXCLUSIVE) cannot be changed, but put
 * there anew. */
static void kernel_follows(struct epoll_item *it)
{
        uint32_t ask = asked_of_kernel(it);

        if (!it->in_kernel && it->f->relayed && !it->off)
                kernel_begins(it);
        if (!it->in_kernel)
                return;
        if (!has_kernel_side(it->f)) {
                epoll_kernel_ctl(it, EPOLL_CTL_DEL, 0);
                it->in_kernel = false;
        } else if (ask != it->asked && !it->off) {
                it->asked = ask;
                if (ask & EPOLLEXCLUSIVE)
                        epoll_kernel_ctl(it, EPOLL_CTL_DEL, 0);
                epoll_kernel_ctl(it, ask & EPOLLEXCLUSIVE ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, ask);
        }
}

void epoll_file_moved(struct file *f)
{
        assert(shim_locked());
        for (struct epoll_item *it = f->items; it; it = it->same_file) {
                pthread_mutex_lock(&it->set->lock);
                kernel_follows(it);
                it->fresh = true;
                bucket_join(it->set, it);
                epoll_queue_item(it->set, it);
                pthread_mutex_unlock(&it->set->lock);
                epoll_kick(it->set);
        }
}

/* The kernel forgets its half of what is closed by itself, unless a duplicate it cannot see holds
 * it: ask anyway. But not where another process has both: fork() shares the kernel's set, and what
 * is closed here is in it for as long as it is open there. */
void epoll_file_closed(struct file *f)
{
        pthread_mutex_lock(&shim.lock);
        while (f->items)
                epoll_item_remove(f->items, !f->items->elsewhere);
        while (f->set && !TAILQ_EMPTY(&f->set->members))
                epoll_item_remove(TAILQ_FIRST(&f->set->members), false);
        pthread_mutex_unlock(&shim.lock);
}

void epoll_file_ended(struct file *f)
{
        struct epoll_set *set = f->set;
        int kick;

        assert(set->live && set->owner == f && set->count == 0);
        kick = atomic_exchange(&set->kick, -1);
        if (kick >= 0)
                sys1(SYS_close, kick);
        pthread_mutex_lock(&shim.lock);
        epoll_pass_ended(set);
        set->live = false;
        set->next_free = sets_free;
        sets_free = set;
        f->set = NULL;
        pthread_mutex_unlock(&shim.lock);
}

bool epoll_owns_fd(int fd)
{
        if (fd <= 2)
                return false;
        for (unsigned i = 0; i < READ_ONCE(sets_used); i++)
                if (fd == sets[i].kick || fd == READ_ONCE(sets[i].mark) ||
                    fd == READ_ONCE(sets[i].image))
                        return true;
        return epoll_pass_owns(fd);
}

/* ---- fork ---- */

void epoll_fork_lock(void)
{
        assert(shim_locked());
        for (unsigned i = 0; i < sets_used; i++)
                if (sets[i].live) {
                        pthread_mutex_lock(&sets[i].lock);
                        sets[i].undecided = sets[i].abroad = true;
                }
        for (unsigned i = 0; i < items_used; i++)
                items[i].elsewhere |= items[i].in_kernel;
}

/* In the child nobody sleeps. */
void epoll_fork_unlock(bool child)
{
        if (numbers != 0)
                renumber();
        for (unsigned i = 0; i < sets_used; i++) {
                if (!sets[i].live)
                        continue;
                if (child)
                        sets[i].sleepers = 0;
                pthread_mutex_unlock(&sets[i].lock);
        }
}
