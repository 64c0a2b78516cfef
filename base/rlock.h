/*
 * The lock of a stack: between processes, and surviving its holder.
 *
 * A robust futex, by the protocol that the kernel has for it
 * (Documentation/locking/robust-futex-ABI.rst). Each thread has a list of the locks that it holds,
 * which libc made known to the kernel for its own robust mutexes; ours go into the same list. When
 * a thread dies the kernel walks the list: in every lock whose word names the thread it puts
 * FUTEX_OWNER_DIED, and wakes one who waits. Whoever takes such a lock is told, and repairs what
 * the lock guards.
 *
 *   word  0: free; else the thread id of the holder, with FUTEX_WAITERS when somebody may sleep,
 *         FUTEX_OWNER_DIED (and no id) when the holder died
 *   next  the next lock in the holder's list (an address of the holder's, of no use to others)
 *   prev  the field `next` of the lock before it, or the head of the list
 *
 * The thread may die between any two instructions:
 *
 *      lock:   pending = us     unlock:  pending = us
 *              word 0 -> tid             out of the list
 *              into the list             word -> 0, wake one who waits
 *              pending = 0               pending = 0
 *
 * `pending` is looked at like an entry of the list, so that a lock whose word is ours is found at
 * every moment. When the word is not ours any more and death comes before the wake-up, the kernel
 * sees pending and a free word, and wakes one. Two things remain that no word can say: another
 * thread took and left the lock in between, or a thread that was woken died before it took the
 * lock. So nobody sleeps longer than RLOCK_GUARD without looking again.
 *
 * It is half as expensive as libc's mutex of the same kind. It is not recursive, and checks
 * nothing.
 */
#ifndef BASE_RLOCK_H
#define BASE_RLOCK_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>

#include "base/base.h"

#define RLOCK_GUARD (100 * NS_PER_MS)

struct rlock { /* all zero: free */
        _Atomic uint32_t word;
        _Atomic uint32_t sleepers; /* who is killed asleep is counted for good: a wake-up in vain
                                      now and then */
        uint32_t pad[4];
        struct robust_list *prev;
        struct robust_list next;
};
/* libc tells the kernel one distance from entry to word for all locks of a list; this is that of
 * its mutexes. */
#define RLOCK_WORD_AT ((long)offsetof(struct rlock, word) - (long)offsetof(struct rlock, next))
static_assert(sizeof(void *) != 8 || RLOCK_WORD_AT == -32, "as pthread_mutex_t");

/* A thread's own state. */
struct rlock_self {
        struct robust_list_head *head; /* NULL: not asked for yet */
        uint32_t tid;
};
extern __thread struct rlock_self rlock_self __attribute__((tls_model("initial-exec")));

void rlock_know_self(void);
int rlock_take_slowly(struct rlock *l);
void rlock_wake(struct rlock *l);

/* The kernel's number of the thread, asked for once. */
static inline uint32_t rlock_thread(void)
{
        if (unlikely(rlock_self.head == NULL))
                rlock_know_self();
        return rlock_self.tid;
}

/* Call in the child of a fork, before it takes a lock: it is another thread than the one it was
 * copied from. Locks that this one held are the parent's. The kernel is asked at once who it is:
 * the child may be about to lock itself in (sandbox.h). */
void rlock_forked(void);

/* Orders stores as the kernel sees them at a death. */
#define RLOCK_ORDER() atomic_signal_fence(memory_order_seq_cst)

static inline struct robust_list *rlock_entry(uintptr_t p)
{
        /* Bit 0: libc's note of a mutex with PI. */
        return (struct robust_list *)(p & ~(uintptr_t)1);
}

static inline void rlock_pending(struct robust_list_head *head, struct robust_list *entry)
{
        *(struct robust_list *volatile *)&head->list_op_pending = entry;
        RLOCK_ORDER();
}

/* The `prev` of any entry, libc's too, lies before its `next`; the head has none. */
static inline void rlock_set_prev(struct robust_list_head *head, struct robust_list *entry,
                                  struct robust_list *prev)
{
        entry = rlock_entry((uintptr_t)entry);
        if (unlikely(entry != &head->list))
                *((struct robust_list **)entry - 1) = prev;
}

static inline void rlock_link(struct rlock *l, struct robust_list_head *head)
{
        struct robust_list *first = head->list.next;

        l->prev = &head->list;
        l->next.next = first;
        rlock_set_prev(head, first, &l->next);
        RLOCK_ORDER();
        head->list.next = &l->next;
}

static inline void rlock_unlink(struct rlock *l, struct robust_list_head *head)
{
        rlock_entry((uintptr_t)l->prev)->next = l->next.next;
        rlock_set_prev(head, l->next.next, l->prev);
        RLOCK_ORDER();
}

/* Returns true if a thread holds the lock, or died with it: a hint, old when it is read. */
static inline bool rlock_taken(const struct rlock *l)
{
        return atomic_load_explicit(&l->word, memory_order_relaxed) != 0;
}

bool rlock_is_listed(const struct rlock *l);
/* Returns true if this thread has it: for assertions. The word alone does not say so: threads of
 * two pid namespaces may have one number. */
static inline bool rlock_mine(const struct rlock *l)
{
        return rlock_self.head != NULL &&
               (atomic_load_explicit(&l->word, memory_order_relaxed) & FUTEX_TID_MASK) ==
                       rlock_self.tid &&
               rlock_is_listed(l);
}

/* 0: free before, ours now. -EBUSY: somebody has it. -EOWNERDEAD: ours now, and what it guards must
 * be looked after. */
static inline int rlock_trylock(struct rlock *l)
{
        uint32_t was = 0;
        bool took;

        if (unlikely(rlock_self.head == NULL))
                rlock_know_self();
        rlock_pending(rlock_self.head, &l->next);
        took = atomic_compare_exchange_strong_explicit(&l->word, &was, rlock_self.tid,
                                                       memory_order_acquire, memory_order_relaxed);
        while (unlikely(!took) && (was & FUTEX_TID_MASK) == 0)
                took = atomic_compare_exchange_strong_explicit(
                        &l->word, &was, rlock_self.tid | (was & FUTEX_WAITERS),
                        memory_order_acquire, memory_order_relaxed);
        if (likely(took))
                rlock_link(l, rlock_self.head);
        rlock_pending(rlock_self.head, NULL);
        if (unlikely(!took))
                return -EBUSY;
        return likely((was & FUTEX_OWNER_DIED) == 0) ? 0 : -EOWNERDEAD;
}

/* 0, or -EOWNERDEAD as above. A holder that dies while it repairs leaves it to the next. */
static inline int rlock_lock(struct rlock *l)
{
        int err = rlock_trylock(l);

        return likely(err != -EBUSY) ? err : rlock_take_slowly(l);
}

static inline void rlock_unlock(struct rlock *l)
{
        struct robust_list_head *head = rlock_self.head;

        rlock_pending(head, &l->next);
        rlock_unlink(l, head);
        if (unlikely(atomic_exchange_explicit(&l->word, 0, memory_order_release) & FUTEX_WAITERS))
                rlock_wake(l);
        RLOCK_ORDER();
        rlock_pending(head, NULL);
}

#endif
