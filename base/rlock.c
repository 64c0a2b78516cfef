/* The seldom parts of a robust lock: the first of a thread, and waiting. */
#include "base/rlock.h"

#include <pthread.h>
#include <time.h>

#include "base/sandbox.h"
#include "base/sys.h"

/* Looks before sleeping: the lock is seldom held for longer than a microsecond. */
#define SPINS 100

__thread struct rlock_self rlock_self;

/* For a thread that libc did not make, or not this libc: its own list. */
static __thread struct robust_list_head own_head __attribute__((tls_model("initial-exec")));

/*
 * From a robust mutex of libc's own: while we hold it, it names us, and the first entry of a list
 * names the list's head. For threads of libc; no other comes about in a program that has locked
 * itself in.
 */
static void know_without_asking(void)
{
        pthread_mutexattr_t robust;
        pthread_mutex_t m;

        pthread_mutexattr_init(&robust);
        pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&m, &robust);
        pthread_mutex_lock(&m);
        rlock_self.tid = (uint32_t)m.__data.__lock & FUTEX_TID_MASK;
        rlock_self.head = (struct robust_list_head *)(void *)m.__data.__list.__prev;
        pthread_mutex_unlock(&m);
        pthread_mutex_destroy(&m);
        pthread_mutexattr_destroy(&robust);
}

void rlock_know_self(void)
{
        struct robust_list_head *head = NULL;
        size_t len;

        if (sandbox_forbids(SANDBOX_SELF)) {
                know_without_asking();
                return;
        }
        if (sys3(SYS_get_robust_list, 0, &head, &len) < 0 || head == NULL) {
                head = &own_head;
                *head = (struct robust_list_head){.list = {&head->list},
                                                  .futex_offset = RLOCK_WORD_AT};
                sys2(SYS_set_robust_list, head, sizeof *head);
        }
        assert(head->futex_offset == RLOCK_WORD_AT);
        rlock_self.tid = (uint32_t)sys0(SYS_gettid);
        rlock_self.head = head;
}

/* Among the locks that this thread holds: of whoever takes ours it is the first. */
bool rlock_is_listed(const struct rlock *l)
{
        const struct robust_list *end = &rlock_self.head->list;

        for (const struct robust_list *e = end->next; e != end; e = rlock_entry((uintptr_t)e)->next)
                if (rlock_entry((uintptr_t)e) == &l->next)
                        return true;
        return false;
}

void rlock_forked(void)
{
        rlock_know_self();
}

/* Until it looks free, for a while. */
static void spin(const struct rlock *l)
{
        for (int i = 0; i < SPINS; i++) {
                if ((atomic_load_explicit(&l->word, memory_order_relaxed) & FUTEX_TID_MASK) == 0)
                        return;
                cpu_relax();
        }
}

/* A thread that has slept marks the lock as waited for: no other thread would do so for those that
 * still sleep. */
static bool take(struct rlock *l, uint32_t *was, bool slept)
{
        uint32_t others = slept && atomic_load(&l->sleepers) != 0 ? FUTEX_WAITERS : 0;

        *was = atomic_load_explicit(&l->word, memory_order_relaxed);
        while ((*was & FUTEX_TID_MASK) == 0)
                if (atomic_compare_exchange_strong_explicit(
                            &l->word, was, rlock_self.tid | (*was & FUTEX_WAITERS) | others,
                            memory_order_acquire, memory_order_relaxed))
                        return true;
        return false;
}

static void sleep_for_it(struct rlock *l, uint32_t was)
{
        struct timespec guard = {RLOCK_GUARD / NS_PER_S, RLOCK_GUARD % NS_PER_S};

        if (!(was & FUTEX_WAITERS) &&
            !atomic_compare_exchange_strong_explicit(&l->word, &was, was | FUTEX_WAITERS,
                                                     memory_order_relaxed, memory_order_relaxed))
                return;
        atomic_fetch_add(&l->sleepers, 1);
        sys4(SYS_futex, &l->word, FUTEX_WAIT, was | FUTEX_WAITERS, &guard);
        atomic_fetch_sub(&l->sleepers, 1);
}

int rlock_take_slowly(struct rlock *l)
{
        bool slept = false;
        uint32_t was;

        spin(l);
        for (;; slept = true) {
                rlock_pending(rlock_self.head, &l->next);
                if (take(l, &was, slept))
                        break;
                /* The holder may have our thread number, in another pid namespace. The kernel would
                 * take our death for the holder's. */
                rlock_pending(rlock_self.head, NULL);
                sleep_for_it(l, was);
        }
        rlock_link(l, rlock_self.head);
        rlock_pending(rlock_self.head, NULL);
        return was & FUTEX_OWNER_DIED ? -EOWNERDEAD : 0;
}

void rlock_wake(struct rlock *l)
{
        sys3(SYS_futex, &l->word, FUTEX_WAKE, 1);
}
