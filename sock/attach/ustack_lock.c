/*
 * The way into a stack and out of it: its lock.
 *
 * Going out matters as much as going in. Where no thread leads, a thread that leaves sets the bell
 * to UNATTENDED, so that a message that comes now wakes the keeper. For a while after it was woken
 * the keeper looks every few milliseconds anyway (st->ticking), and then the bell is left alone. So
 * a stream costs no system call either way. The bell stays so while processes come and go: a
 * message that comes while one is inside may wake the keeper in vain, once for each time that it
 * went to rest.
 */
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_levels.h"
#include "sock/attach/ustack_wake.h"
#include "sock/attach/ustack_way.h"

#include "unet/bell_fd.h"

static void entered(struct ustack *u)
{
        stack_sync(&u->s);
        ustack_follow(u);
}

static void repair(struct ustack *u)
{
        assert(ustack_locked(u));
        if (u->s.st->leader == 0)
                /* Whoever armed it may not have lived to look at the queues. */
                bell_disarm(u->s.bell);
        stack_recover(&u->s, ustack_now());
        ustack_ways_repair(u);
        ustack_look_again(u);
}

bool ustack_trylock(struct ustack *u)
{
        int err = rlock_trylock(&u->s.st->lock);

        if (unlikely(err == -EOWNERDEAD)) {
                repair(u);
                err = 0;
        }
        return err == 0;
}

void ustack_lock(struct ustack *u)
{
        if (unlikely(rlock_lock(&u->s.st->lock) == -EOWNERDEAD))
                repair(u);
        entered(u);
}

void ustack_unlock(struct ustack *u)
{
        ustack_levels_check(u);
        if (unlikely(u->nwakes != 0 || u->bells.n != 0))
                ustack_unlock_and_wake(u);
        else
                rlock_unlock(&u->s.st->lock);
}

/* Returns true if a timer is due before the leader or the keeper wakes by itself. */
static bool oversleeps(struct ustack *u)
{
        const struct stack_state *st = u->s.st;
        nstime due = stack_deadline(&u->s);

        return due < st->keeper_at && (st->leader == 0 || due < st->leader_at);
}

/* Nobody is inside from here on. Where nobody leads and the bell was not armed all the time,
 * messages that came meanwhile would be noticed by nobody; and timers, where who leads fell asleep
 * before there were any. So the keeper is rung. */
void ustack_leave(struct ustack *u)
{
        struct stack_state *st = u->s.st;
        bool ring = false;

        if (u->s.nchan != 0 && !atomic_load_explicit(&st->ticking, memory_order_relaxed)) {
                bool looked =
                        st->leader != 0 || bell_is_armed(u->s.bell, BELL_UNATTENDED, st->rests);
                if (!looked) {
                        stack_arm(&u->s);
                        bell_arm_count(u->s.bell, BELL_UNATTENDED, st->rests);
                }
                ring = st->rung != st->rests &&
                       ((!looked && stack_pending(&u->s, 0)) || oversleeps(u));
                if (ring)
                        st->rung = st->rests;
        }
        ustack_unlock(u);
        if (unlikely(ring))
                bell_ring(u->fds.ring_keeper);
}

/* Turns: of a stream that goes on there is no end. */
#define CATCH_UP 8

void ustack_catch_up(struct ustack *u)
{
        for (int i = 0; i < CATCH_UP && stack_has_work(&u->s, 0); i++) {
                stack_run(&u->s, ustack_now());
                stack_flush_acks(&u->s, ustack_now());
        }
}
