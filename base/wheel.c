/* The timer wheel. See wheel.h for the picture; wheel_set() -> wheel_move(), wheel_pop()
 * -> open_slots(). */
#include "base/wheel.h"

/* The first tick that is not before `t`: a timer looked at then has its deadline behind it. */
static uint64_t tick_not_before(nstime t)
{
        return t <= 0 ? 0 : ((uint64_t)t + WHEEL_TICK - 1) >> WHEEL_TICK_SHIFT;
}

static uint64_t tick_of(nstime t)
{
        return t <= 0 ? 0 : (uint64_t)t >> WHEEL_TICK_SHIFT;
}

void wheel_reset(struct wheel *w, nstime now)
{
        *w = (struct wheel){.tick = tick_of(now)};
}

/* The place of a timer for `tick`: level and digit in one number, WHEEL_DUE when it is not in the
 * future. */
static uint32_t slot_of(const struct wheel *w, uint64_t tick)
{
        uint32_t level;

        if (tick <= w->tick)
                return WHEEL_DUE;
        level = (63 - (uint32_t)__builtin_clzll(tick ^ w->tick)) / WHEEL_DIGIT;
        return level * WHEEL_SLOTS + (uint32_t)(tick >> (level * WHEEL_DIGIT)) % WHEEL_SLOTS;
}

static void mark(struct wheel *w, uint32_t slot, bool occupied)
{
        uint64_t bit = 1ull << slot % WHEEL_SLOTS, word;

        if (slot == WHEEL_DUE)
                return;
        word = w->occupied[slot / WHEEL_SLOTS];
        WRITE_ONCE(w->occupied[slot / WHEEL_SLOTS], occupied ? word | bit : word & ~bit);
}

static void link_in(struct wheel *w, const struct pool *p, uint32_t off, uint32_t idx,
                    uint32_t slot)
{
        struct wheel_link *l = wheel_link_at(p, off, idx);

        l->prev = WHEEL_FIRST | slot;
        l->next = w->head[slot];
        if (l->next != 0)
                wheel_link_at(p, off, l->next)->prev = idx;
        WRITE_ONCE(w->head[slot], idx);
        w->count++;
        mark(w, slot, true);
}

static void link_out(struct wheel *w, const struct pool *p, uint32_t off, struct wheel_link *l)
{
        if (l->next != 0)
                wheel_link_at(p, off, l->next)->prev = l->prev;
        if (l->prev & WHEEL_FIRST) {
                uint32_t slot = l->prev & ~WHEEL_FIRST;
                WRITE_ONCE(w->head[slot], l->next);
                mark(w, slot, l->next != 0);
        } else {
                wheel_link_at(p, off, l->prev)->next = l->next;
        }
        l->prev = l->next = 0;
        w->count--;
}

void wheel_move(struct wheel *w, const struct pool *p, uint32_t off, uint32_t idx, nstime deadline)
{
        struct wheel_link *l = wheel_link_at(p, off, idx);

        if (l->prev != 0)
                link_out(w, p, off, l);
        if (deadline == NSTIME_NEVER)
                return;
        l->at = deadline;
        l->armed = tick_not_before(deadline);
        link_in(w, p, off, idx, slot_of(w, l->armed));
}

void wheel_cancel(struct wheel *w, const struct pool *p, uint32_t off, uint32_t idx)
{
        struct wheel_link *l = wheel_link_at(p, off, idx);

        if (l->prev != 0)
                link_out(w, p, off, l);
}

/* The first occupied slot in time and the tick it begins at; WHEEL_DUE when all are empty. */
static uint32_t first_slot(const struct wheel *w, uint64_t *begins)
{
        for (uint32_t level = 0; level < WHEEL_LEVELS; level++) {
                uint32_t shift = level * WHEEL_DIGIT, digit;
                uint64_t occupied;

                occupied = READ_ONCE(w->occupied[level]);
                if (occupied == 0)
                        continue;
                digit = (uint32_t)__builtin_ctzll(occupied);
                *begins = (READ_ONCE(w->tick) >> shift >> WHEEL_DIGIT << WHEEL_DIGIT | digit)
                          << shift;
                return level * WHEEL_SLOTS + digit;
        }
        return WHEEL_DUE;
}

nstime wheel_next(const struct wheel *w)
{
        uint64_t begins;

        if (READ_ONCE(w->head[WHEEL_DUE]) != 0)
                return (nstime)(READ_ONCE(w->tick) << WHEEL_TICK_SHIFT);
        if (first_slot(w, &begins) == WHEEL_DUE)
                return NSTIME_NEVER;
        return (nstime)(begins << WHEEL_TICK_SHIFT);
}

/* The due list is empty: moves the first slot that has come by `tick` to it, whole. False when none
 * has. Time jumps: between two occupied slots there is nothing to look at. */
static bool open_slot(struct wheel *w, const struct pool *p, uint32_t off, uint64_t tick)
{
        uint64_t begins;
        uint32_t slot = first_slot(w, &begins);

        if (slot == WHEEL_DUE || begins > tick) {
                WRITE_ONCE(w->tick, MAX(w->tick, tick));
                return false;
        }
        WRITE_ONCE(w->tick, begins);
        WRITE_ONCE(w->head[WHEEL_DUE], w->head[slot]);
        wheel_link_at(p, off, w->head[slot])->prev = WHEEL_FIRST | WHEEL_DUE;
        w->head[slot] = 0;
        mark(w, slot, false);
        return true;
}

uint32_t wheel_pop(struct wheel *w, const struct pool *p, uint32_t off, nstime now)
{
        now = MAX(now, (nstime)(w->tick << WHEEL_TICK_SHIFT)); /* it was that late already */
        for (uint32_t work = 0; work < WHEEL_WORK; work++) {
                uint32_t idx = w->head[WHEEL_DUE];
                struct wheel_link *l;

                if (idx == 0) {
                        if (!open_slot(w, p, off, tick_of(now)))
                                return 0;
                        idx = w->head[WHEEL_DUE];
                }
                l = wheel_link_at(p, off, idx);
                if (l->at <= now) {
                        link_out(w, p, off, l);
                        return idx;
                }
                wheel_move(w, p, off, idx, l->at); /* was put off, or comes from a coarser level */
        }
        return 0;
}

static void check_slot(const struct wheel *w, const struct pool *p, uint32_t off, uint32_t slot,
                       uint32_t *count)
{
        uint32_t prev = WHEEL_FIRST | slot;

        if (slot != WHEEL_DUE)
                assert((w->head[slot] != 0) ==
                       (w->occupied[slot / WHEEL_SLOTS] >> slot % WHEEL_SLOTS & 1));
        for (uint32_t idx = w->head[slot]; idx != 0; (*count)++) {
                const struct wheel_link *l = wheel_link_at(p, off, idx);

                assert(l->prev == prev);
                assert(slot == WHEEL_DUE || slot_of(w, l->armed) == slot);
                assert(l->armed <= tick_not_before(l->at));
                assert(*count < w->count);
                prev = idx;
                idx = l->next;
        }
}

void wheel_check(const struct wheel *w, const struct pool *p, uint32_t off)
{
        uint32_t count = 0;

        for (uint32_t slot = 0; slot <= WHEEL_DUE; slot++)
                check_slot(w, p, off, slot, &count);
        assert(count == w->count);
}
