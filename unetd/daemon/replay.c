/* See replay.h. */
#include "unetd/daemon/replay.h"

#include "unetd/daemon/chans.h"
#include "unetd/daemon/ports.h"
#include "unetd/daemon/stacks.h"

/* Messages that wait for a keeper, and questions that it has not answered: with so many it is told
 * no more. The descriptors of those that wait are open twice. */
#define QUEUE_FULL 16u
#define ASKS_FULL  (ASKS_MAX / 2)

static void put(struct stack *st)
{
        if (!st->untold)
                TAILQ_INSERT_TAIL(&st->user->later, st, later);
        st->untold = true;
        yield_replay(st);
}

void replay_begin(struct user *u, const struct client *from)
{
        struct stack *st;

        for (unsigned b = 0; b < STACK_BUCKETS; b++)
                LIST_FOREACH (st, &unetd.stacks[b], link) {
                        if (st->user != u || st->state == STACK_LOST || (from && st->from != from))
                                continue;
                        if (from)
                                st->from = NULL;
                        put(st);
                }
}

void replay_give_up(struct user *u)
{
        struct stack *st;

        for (unsigned b = 0; b < STACK_BUCKETS; b++)
                LIST_FOREACH (st, &unetd.stacks[b], link)
                        if (st->user == u) {
                                put(st);
                                st->state = STACK_LOST;
                        }
}

void replay_forget_end(struct end *e)
{
        if (e->untold)
                TAILQ_REMOVE(&e->stack->user->later_ends, e, later);
        e->untold = false;
}

void replay_forget(struct stack *st)
{
        if (st->untold)
                TAILQ_REMOVE(&st->user->later, st, later);
        st->untold = false;
}

bool replay_goes_on(const struct user *u)
{
        return u->keeper_died || !TAILQ_EMPTY(&u->later) || !TAILQ_EMPTY(&u->later_ends);
}

bool replay_is_due(const struct user *u)
{
        const struct stack *st = TAILQ_FIRST(&u->later);

        if (!st && TAILQ_EMPTY(&u->later_ends))
                return false;
        if (st && st->state == STACK_LOST)
                return true;
        return u->keeper_state == KEEPER_RUNS && !u->keeper_died && u->keeper.queued < QUEUE_FULL &&
               u->nasks < ASKS_FULL;
}

/* Its ends are told after all stacks. */
static void tell(struct stack *st)
{
        struct end *e;

        replay_forget(st);
        stack_tell(st);
        LIST_FOREACH (e, &st->ends, link) {
                if (!e->untold)
                        TAILQ_INSERT_TAIL(&st->user->later_ends, e, later);
                e->untold = true;
        }
}

static void step(struct user *u)
{
        struct stack *st = TAILQ_FIRST(&u->later);
        struct end *e = TAILQ_FIRST(&u->later_ends);

        if (st && st->state != STACK_LOST) {
                tell(st);
        } else if (st) {
                if (!chans_stack_goes(st))
                        stack_free(st);
        } else {
                replay_forget_end(e);
                chan_tell(e);
        }
}

/* Returns who has waited for longest; NULL: nobody waits. */
static struct user *next_user(void)
{
        struct user *u, *next = NULL;

        LIST_FOREACH (u, &unetd.users, link)
                if (replay_is_due(u) && (!next || u->replayed < next->replayed))
                        next = u;
        return next;
}

void replay_turn(void)
{
        struct user *u = next_user();
        nstime end = loop_clock() + SHARE_A_TURN;

        if (!u)
                return;
        u->replayed = unetd.loop.now;
        while (replay_is_due(u) && loop_clock() < end)
                step(u);
        if (!replay_goes_on(u))
                port_settle_next(u);
}
