/* Waiters beyond those that have a bit each: lists, and who of them is woken. */
#include "sock/wait/usock_crowd.h"

#include "sock/wait/usock_wake.h"

static struct crowd_waiter *waiter_at(struct stack_state *st, uint32_t i)
{
        return pool_at(&st->sleepers, i);
}

static struct crowd_want *want_at(struct stack_state *st, uint32_t i)
{
        return pool_at(&st->wants, i);
}

/* ---- lists ---- */

static uint32_t *head_of(struct stack_state *st, uint32_t sock)
{
        return sock == 0 ? &st->crowd_news : &((struct sock_rec *)pool_at(&st->socks, sock))->crowd;
}

/* By this bit a thread that has an event to tell sees that there is a list. */
static void mark(struct stack_state *st, uint32_t sock, bool any)
{
        struct sock_rec *rec;

        if (sock == 0) {
                st->news_waiters =
                        any ? st->news_waiters | WAITERS_CROWD : st->news_waiters & ~WAITERS_CROWD;
                return;
        }
        rec = pool_at(&st->socks, sock);
        rec->waiters = any ? rec->waiters | WAITERS_CROWD : rec->waiters & ~WAITERS_CROWD;
}

uint32_t crowd_join(struct stack_state *st)
{
        uint32_t i = pool_alloc(&st->sleepers);

        if (i == 0)
                return 0;
        *waiter_at(st, i) = (struct crowd_waiter){.wants = 0};
        return STACK_WAITERS + i;
}

bool crowd_want(struct stack_state *st, uint32_t slot, uint32_t sock, bool exclusive)
{
        struct crowd_waiter *cw = waiter_at(st, slot - STACK_WAITERS);
        uint32_t i = pool_alloc(&st->wants), *head = head_of(st, sock);

        assert(slot >= STACK_WAITERS);
        if (i == 0)
                return false;
        *want_at(st, i) = (struct crowd_want){
                .of = cw->wants,
                .next = *head,
                .sock = sock,
                .waiter = slot - STACK_WAITERS,
                .exclusive = exclusive,
        };
        if (*head != 0)
                want_at(st, *head)->prev = i;
        *head = i;
        cw->wants = i;
        mark(st, sock, true);
        return true;
}

/* Off the list of its socket. */
static void unlink_want(struct stack_state *st, uint32_t i)
{
        const struct crowd_want *w = want_at(st, i);
        uint32_t *head = head_of(st, w->sock);

        if (w->next != 0)
                want_at(st, w->next)->prev = w->prev;
        if (w->prev != 0)
                want_at(st, w->prev)->next = w->next;
        else if (*head == i)
                *head = w->next;
        if (*head == 0)
                mark(st, w->sock, false);
}

void crowd_leave(struct stack_state *st, uint32_t slot)
{
        struct crowd_waiter *cw = waiter_at(st, slot - STACK_WAITERS);

        assert(slot >= STACK_WAITERS);
        while (cw->wants != 0) {
                uint32_t i = cw->wants;
                cw->wants = want_at(st, i)->of;
                unlink_want(st, i);
                pool_free(&st->wants, i);
        }
        cw->slot.proc = 0;
        pool_free(&st->sleepers, slot - STACK_WAITERS);
}

void crowd_end(struct stack_state *st, uint32_t proc)
{
        assert(proc != 0);
        for (uint32_t i = 1; i < st->sleepers.fresh; i++) {
                if (waiter_at(st, i)->slot.proc != proc)
                        continue;
                if (st->leader == STACK_WAITERS + i + 1)
                        WRITE_ONCE(st->leader, 0);
                crowd_leave(st, STACK_WAITERS + i);
        }
}

/* ---- waking ---- */

/* False: it does not sleep. */
static bool wake(struct ustack *u, uint32_t i)
{
        struct waiter_slot *ws = &waiter_at(u->s.st, i)->slot;

        if (ws->proc == 0 || !atomic_load_explicit(&ws->armed, memory_order_relaxed))
                return false;
        atomic_store_explicit(&ws->armed, 0, memory_order_relaxed);
        usock_wake(u, STACK_WAITERS + i);
        return true;
}

void crowd_wake(struct ustack *u, uint32_t sock, uint32_t exclusive)
{
        struct stack_state *st = u->s.st;

        for (uint32_t i = *head_of(st, sock); i != 0; i = want_at(st, i)->next) {
                const struct crowd_want *w = want_at(st, i);
                if (!w->exclusive)
                        wake(u, w->waiter);
                else if (exclusive != 0 && wake(u, w->waiter))
                        exclusive--;
        }
}

bool crowd_wake_one(struct ustack *u)
{
        for (uint32_t i = 1; i < u->s.st->sleepers.fresh; i++)
                if (wake(u, i))
                        return true;
        return false;
}

void crowd_rearm(struct stack_state *st)
{
        for (uint32_t i = 1; i < st->sleepers.fresh; i++)
                if (waiter_at(st, i)->slot.proc != 0)
                        atomic_store_explicit(&waiter_at(st, i)->slot.armed, 1,
                                              memory_order_relaxed);
}

bool crowd_wake_all(struct ustack *u, uint32_t proc)
{
        bool any = false;

        for (uint32_t i = 1; i < u->s.st->sleepers.fresh; i++)
                if (proc == 0 || waiter_at(u->s.st, i)->slot.proc == proc)
                        any |= wake(u, i);
        return any;
}
