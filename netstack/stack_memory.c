/* Memory of programs' own: who has which part of it, and names. */
#include "netstack/stack_memory.h"

#include <errno.h>

#define UNITS (FRAME_NAMED_BYTES / STACK_MEMORY_UNIT)

/* A serial number says which memory it is of. */
static uint32_t memory_of(uint32_t serial)
{
        return serial % STACK_MEMORIES;
}

static bool is_of(void *arg, uint32_t serial)
{
        return memory_of(serial) == *(const uint32_t *)arg;
}

/* Some of it is queued, or with a peer. */
static bool is_busy(const struct stack *s, uint32_t i)
{
        for (uint32_t k = 0; k < atomic_load_explicit(&s->st->chans, memory_order_relaxed); k++)
                if (chan_is_open(&s->st->chan[k]) &&
                    frame_pool_any_name(stack_chan_pool(s->st, k), is_of, &i))
                        return true;
        return false;
}

/* What dead processes left, and nobody reads any more. */
static void sweep(struct stack *s)
{
        struct stack_memory *m = s->st->memory;

        for (uint32_t i = 0; i < STACK_MEMORIES; i++)
                if (m[i].units != 0 && m[i].proc == 0 && !is_busy(s, i))
                        m[i].units = 0;
}

static bool is_free(const struct stack *s, uint32_t first, uint32_t units)
{
        const struct stack_memory *m = s->st->memory;

        if (first > UNITS || units > UNITS - first)
                return false;
        for (uint32_t i = 0; i < STACK_MEMORIES; i++)
                if (m[i].units != 0 && first < m[i].first + m[i].units &&
                    m[i].first < first + units)
                        return false;
        return true;
}

/* At the beginning, or behind one that there is; UINT32_MAX: nowhere. */
static uint32_t place_for(const struct stack *s, uint32_t units)
{
        const struct stack_memory *m = s->st->memory;

        if (is_free(s, 0, units))
                return 0;
        for (uint32_t i = 0; i < STACK_MEMORIES; i++)
                if (m[i].units != 0 && is_free(s, m[i].first + m[i].units, units))
                        return m[i].first + m[i].units;
        return UINT32_MAX;
}

uint8_t *stack_memory_take(struct stack *s, size_t bytes, uint32_t proc)
{
        struct stack_memory *m = s->st->memory;
        uint32_t units, first;

        assert(proc != 0 && s->memory != NULL);
        if (bytes == 0 || bytes > FRAME_NAMED_BYTES)
                return NULL;
        sweep(s);
        units = (uint32_t)(ALIGN_UP(bytes, STACK_MEMORY_UNIT) / STACK_MEMORY_UNIT);
        first = place_for(s, units);
        for (uint32_t i = 0; i < STACK_MEMORIES && first != UINT32_MAX; i++) {
                if (m[i].units != 0)
                        continue;
                m[i].first = first;
                m[i].proc = proc;
                __atomic_signal_fence(__ATOMIC_SEQ_CST); /* whole before it is in use */
                m[i].units = units;
                s->st->has_memory = 1;
                return s->memory + (size_t)first * STACK_MEMORY_UNIT;
        }
        return NULL;
}

static const uint8_t *start_of(const struct stack *s, const struct stack_memory *m)
{
        return s->memory + (size_t)m->first * STACK_MEMORY_UNIT;
}

/* The memory that has the byte; STACK_MEMORIES: none of the process's (0: of nobody's). */
static uint32_t find(const struct stack *s, const uint8_t *p, uint32_t proc)
{
        const struct stack_memory *m = s->st->memory;
        uint32_t i = s->memory != NULL ? 0 : STACK_MEMORIES;

        while (i < STACK_MEMORIES &&
               (m[i].units == 0 || (proc != 0 && m[i].proc != proc) || p < start_of(s, &m[i]) ||
                p >= start_of(s, &m[i]) + (size_t)m[i].units * STACK_MEMORY_UNIT))
                i++;
        return i;
}

int64_t stack_memory_give(struct stack *s, const void *p, uint32_t proc)
{
        struct stack_memory *m = s->st->memory;
        uint32_t i = find(s, p, proc);
        int64_t bytes;

        assert(proc != 0);
        if (i == STACK_MEMORIES || p != start_of(s, &m[i]))
                return -EINVAL;
        if (is_busy(s, i))
                return -EBUSY;
        bytes = (int64_t)m[i].units * STACK_MEMORY_UNIT;
        m[i].units = 0;
        return bytes;
}

void stack_memory_end(struct stack_state *st, uint32_t proc)
{
        assert(proc != 0);
        for (uint32_t i = 0; i < STACK_MEMORIES; i++)
                if (st->memory[i].proc == proc)
                        st->memory[i].proc = 0;
}

bool stack_memory_holds(const struct stack *s, const void *p, size_t bytes, uint32_t proc)
{
        const struct stack_memory *m = s->st->memory;
        uint32_t i = find(s, p, proc);

        assert(proc != 0);
        return i != STACK_MEMORIES &&
               bytes <= (size_t)m[i].units * STACK_MEMORY_UNIT -
                                (size_t)((const uint8_t *)p - start_of(s, &m[i]));
}

uint32_t stack_memory_name(struct stack *s, uint32_t k, const struct tcp_conn *tc, const void *p,
                           uint32_t *off, uint32_t *serial)
{
        const struct frame_pool *pool = stack_chan_pool(s->st, k);
        const uint8_t *at = p;
        uint32_t i = find(s, at, 0), id;

        assert(s->st->chan[k].names & STACK_NAMES_OUT);
        if (i == STACK_MEMORIES)
                return 0; /* another thread has freed it */
        *serial = ++s->st->names * STACK_MEMORIES + i;
        id = frame_name(s->frames, FRAME_REGION_TX(k), frame_owner(tc), *serial);
        if (id != 0)
                *off = frame_name_off(pool->geom, frame_id_num(id)) + (uint32_t)(at - s->memory);
        return id;
}
