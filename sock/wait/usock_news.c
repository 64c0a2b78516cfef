/* News: which sockets had events since somebody looked last, for poll sets of any size. */
#include "sock/attach/ustack.h"
#include "sock/usock_ready.h"

static_assert(ARRAY_LEN(((struct usock_news *)0)->count) == USTACKS_MAX, "a position in each");

static bool read_news(struct ustack *u, uint32_t *at,
                      void (*fn)(void *arg, void *stack, uint32_t sock), void *arg)
{
        struct stack_state *st = u->s.st;
        uint32_t end = atomic_load_explicit(&st->news_count, memory_order_acquire);
        bool whole;

        assert(fn != NULL);
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
