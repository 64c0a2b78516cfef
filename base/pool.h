/*
 * A pool of equal records in shared memory, named by index.
 *
 * The pool header and its records live in one mapping. The records start `off` bytes after the
 * header. So a pool needs no base pointer, and is valid at any address a process has mapped it.
 * Index 0 is never handed out: it means "none", and zeroed memory is therefore an empty list.
 * Records are first taken in order (`fresh`) and only touched then, so a large pool in a sparse
 * memfd costs nothing until used. Freed ones are reused last in, first out, while still warm in the
 * cache. The free list is threaded through the first 4 bytes of each free record.
 *
 * The free list is *derived* state (docs/architecture.md, "Recovery"): pool_rebuild() makes it anew
 * from what is reachable. Nothing here locks; the stack's lock is held by the caller.
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base/base.h"

struct pool {
        uint64_t off;   /* bytes from this header to record 0 */
        uint32_t size;  /* bytes a record */
        uint32_t cap;   /* records 1 .. cap-1 can be handed out */
        uint32_t free;  /* head of the free list, 0 when empty */
        uint32_t fresh; /* records from here on were never used */
        uint32_t used;  /* handed out now */
        uint32_t high;  /* most ever handed out at once */
};

/* Bytes that `cap` records of `size` bytes take. */
static inline size_t pool_bytes(uint32_t size, uint32_t cap)
{
        return (size_t)size * cap;
}

/* Prepares a pool whose records are at `records`, which must lie in the same mapping, after `p`. */
static inline void pool_init(struct pool *p, void *records, uint32_t size, uint32_t cap)
{
        assert(size >= sizeof(uint32_t) && (char *)records > (char *)p);
        *p = (struct pool){.off = (uint64_t)((char *)records - (char *)p),
                           .size = size,
                           .cap = cap,
                           .fresh = 1};
}

/* Returns true if the pool is laid out as it was made. A process that maps it may have written
 * anything. */
static inline bool pool_is(const struct pool *p, const void *records, uint32_t size, uint32_t cap)
{
        return p->off == (uint64_t)((const char *)records - (const char *)p) && p->size == size &&
               p->cap == cap && p->fresh <= cap;
}

/* The record of an index; 1 <= i < cap. */
static inline void *pool_at(const struct pool *p, uint32_t i)
{
        assert(i != 0 && i < p->cap);
        return (char *)(uintptr_t)p + p->off + (size_t)i * p->size;
}

static inline uint32_t pool_index(const struct pool *p, const void *rec)
{
        return (uint32_t)(((const char *)rec - (const char *)p - (ptrdiff_t)p->off) /
                          (ptrdiff_t)p->size);
}

/* An index, or 0 when all are in use. The record's contents are what its last owner left. */
static inline uint32_t pool_alloc(struct pool *p)
{
        uint32_t i = p->free;

        if (likely(i != 0)) {
                memcpy(&p->free, pool_at(p, i), sizeof(uint32_t));
        } else {
                if (p->fresh >= p->cap)
                        return 0;
                i = p->fresh++;
        }
        if (++p->used > p->high)
                p->high = p->used;
        return i;
}

static inline void pool_free(struct pool *p, uint32_t i)
{
        memcpy(pool_at(p, i), &p->free, sizeof(uint32_t));
        p->free = i;
        p->used--;
}

static inline uint32_t pool_room(const struct pool *p)
{
        return p->cap - 1 - p->used;
}

/* Makes the free list anew: record i is in use when bit i of `live` is set. `live` has at least
 * `fresh` bits. */
static inline void pool_rebuild(struct pool *p, const uint64_t *live)
{
        p->free = 0;
        p->used = 0;
        for (uint32_t i = p->fresh; i-- > 1;) {
                if (live[i / 64] >> (i % 64) & 1) {
                        p->used++;
                } else {
                        memcpy(pool_at(p, i), &p->free, sizeof(uint32_t));
                        p->free = i;
                }
        }
}

#endif
