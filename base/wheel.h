/*
 * A hierarchical timer wheel (Varghese, Lauck, 1987) in shared memory.
 *
 * Each level has 64 slots. A slot of level 0 is one tick of 16.4 µs wide, each level above is 64
 * times coarser:
 *
 *   level  slot     whole level
 *     0    16.4 µs    1.05 ms    Write time as a number of ticks in base 64. The level of a timer
 *     1    1.05 ms     67 ms     is the highest digit in which its tick differs from the tick the
 *     2     67 ms     4.3 s      wheel has come to, and its slot there is that digit. So a level
 *     3    4.3 s      275 s      lies in the future of all levels below it, and the first occupied
 *     4    275 s      4.9 h      slot of the lowest occupied level is the next thing to happen:
 *    ...                         its timers then move down, or fire. Nine levels hold every nstime.
 *     8    146 y
 *
 * A timer fires never before its deadline and less than a tick after it, when somebody asks.
 *
 * Timers are records of one pool; the link is embedded `off` bytes into the record. The caller
 * hands both in, since they are addresses of its own process. Links are indices; a zeroed link is a
 * timer that is not set. The wheel is derived state: after a death inside, wheel_reset(), then
 * wheel_forget() and wheel_set() for each record.
 *
 * Setting a timer later than it is armed for costs one store: it stays where it is, comes up early,
 * and moves on then. A retransmission timer that each ACK pushes out moves once an RTO, not once an
 * ACK. The same goes for NSTIME_NEVER.
 */
#ifndef BASE_WHEEL_H
#define BASE_WHEEL_H

#include "base/base.h"
#include "base/pool.h"

#define WHEEL_TICK_SHIFT 14 /* a tick is 2^14 ns */
#define WHEEL_TICK       ((nstime)1 << WHEEL_TICK_SHIFT)
#define WHEEL_DIGIT      6
#define WHEEL_SLOTS      (1u << WHEEL_DIGIT)
#define WHEEL_LEVELS     9u
/* The list of timers whose slot has come. */
#define WHEEL_DUE  (WHEEL_LEVELS * WHEEL_SLOTS)
#define WHEEL_WORK 256 /* most timers that one wheel_pop() moves */

struct wheel_link {
        uint32_t prev;  /* index, or WHEEL_FIRST | slot for the first in a slot; 0: in no list */
        uint32_t next;  /* index, 0 for the last */
        nstime at;      /* the deadline */
        uint64_t armed; /* the tick it will be looked at: never after the deadline's */
};
#define WHEEL_FIRST 0x80000000u

struct wheel {
        /* wheel_next() is asked without the lock: tick, occupied and the due list's head are
         * written by WRITE_ONCE(). */
        uint64_t tick; /* come to: everything before was looked at */
        uint64_t occupied[WHEEL_LEVELS];
        uint32_t head[WHEEL_DUE + 1];
        uint32_t count; /* timers in any list */
};

static inline struct wheel_link *wheel_link_at(const struct pool *p, uint32_t off, uint32_t idx)
{
        return (struct wheel_link *)((char *)pool_at(p, idx) + off);
}
/* The deadline of a timer, NSTIME_NEVER when it is not set. */
static inline nstime wheel_deadline(const struct wheel_link *l)
{
        return l->prev == 0 ? NSTIME_NEVER : l->at;
}

/* Empties the wheel without looking at any link; for a new one and after a death inside. */
void wheel_reset(struct wheel *w, nstime now);
/* Makes a link whose wheel was reset one that is not set. */
static inline void wheel_forget(struct wheel_link *l)
{
        *l = (struct wheel_link){0};
}

/* The general case of wheel_set(). */
void wheel_move(struct wheel *w, const struct pool *p, uint32_t off, uint32_t idx, nstime deadline);

/* Sets or changes the deadline of record `idx`. NSTIME_NEVER turns it off and may leave it linked:
 * before the record is freed, wheel_cancel() it. */
static inline void wheel_set(struct wheel *w, const struct pool *p, uint32_t off, uint32_t idx,
                             nstime deadline)
{
        struct wheel_link *l = wheel_link_at(p, off, idx);

        if (likely(l->prev != 0 && deadline > (nstime)((l->armed - 1) << WHEEL_TICK_SHIFT)))
                l->at = deadline;
        else
                wheel_move(w, p, off, idx, deadline);
}

/* Takes the record out of the wheel; it may be freed now. */
void wheel_cancel(struct wheel *w, const struct pool *p, uint32_t off, uint32_t idx);

/* The earliest time at which wheel_pop() may have something: never later than a tick after the
 * earliest deadline, at times earlier than there is anything. NSTIME_NEVER when empty. Needs no
 * lock; without it what is said while somebody changes the wheel may be any time. */
nstime wheel_next(const struct wheel *w);

/*
 * Takes out one timer whose deadline has come and returns its index; its link is not set then. 0:
 * there is no more, or WHEEL_WORK timers were moved in vain. In the second case wheel_next() is
 * still not after `now`: ask again, now or next turn.
 */
uint32_t wheel_pop(struct wheel *w, const struct pool *p, uint32_t off, nstime now);

/* Asserts what must be true of every list. Touches every timer. */
void wheel_check(const struct wheel *w, const struct pool *p, uint32_t off);

#endif
