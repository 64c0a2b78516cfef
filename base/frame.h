/*
 * Frames: the memory that payload lives in, and who owns it.
 *
 * A frame is a fixed-size piece of a *region*; regions are mapped memory, named by number. A
 * frame's id is its region and its number within, and is the same in every process of the stack;
 * frame_addr() turns it into an address.
 *
 *      region 0       private receive frames, in the stack's state segment
 *      region 2c + 1  what this stack sends on channel c: its own transmit region  (read and write)
 *      region 2c + 2  what the peer sends on channel c: frames lent to this stack  (read only)
 *      region 2048 + one of these  names (below)
 *
 * Ownership. A frame of ours (region 0 and transmit regions) has two counts. `refs` is the number
 * of queue records that name it; a reservation counts as one. `loans` is the number of messages
 * sent with it that the other side has not given back. It is free when both are zero:
 * retransmission and the reader on the other side have both let go. A lent frame (receive region)
 * has no record here; each message that brought it is one loan, released once with frame_drop().
 *
 *      free --frame_alloc--> refs 1 --frame_hold/frame_drop--> ... refs 0, loans 0 --> free
 *      send: frame_lend (loans + 1)      reap: frame_unlend (loans - 1)
 *
 * struct frames is a process's own view (addresses); the records are in the stack's state segment
 * and hold no address. Free lists are derived state and can be rebuilt. All calls need the stack's
 * lock, but for frame_addr().
 */
#ifndef BASE_FRAME_H
#define BASE_FRAME_H

#include "base/base.h"

enum frame_class { FRAME_SMALL, FRAME_LARGE, FRAME_CLASSES };

#define FRAME_SMALL_BYTES 2048u
#define FRAME_LARGE_BYTES 65536u

/* The geometry of a region: count[LARGE] large frames first (aligned), then count[SMALL] small
 * ones. Numbers start at 1 (0 means none): large 1 .. L, small L+1 .. L+S. */
struct frame_geom {
        uint32_t count[FRAME_CLASSES];
};

static inline size_t frame_geom_bytes(struct frame_geom g)
{
        return (size_t)g.count[FRAME_LARGE] * FRAME_LARGE_BYTES +
               (size_t)g.count[FRAME_SMALL] * FRAME_SMALL_BYTES;
}
static inline uint32_t frame_geom_total(struct frame_geom g)
{
        return g.count[FRAME_LARGE] + g.count[FRAME_SMALL];
}
static inline enum frame_class frame_geom_class(struct frame_geom g, uint32_t num)
{
        return num <= g.count[FRAME_LARGE] ? FRAME_LARGE : FRAME_SMALL;
}
static inline uint32_t frame_class_bytes(enum frame_class c)
{
        return c == FRAME_LARGE ? FRAME_LARGE_BYTES : FRAME_SMALL_BYTES;
}
static inline size_t frame_geom_offset(struct frame_geom g, uint32_t num)
{
        if (num <= g.count[FRAME_LARGE])
                return (size_t)(num - 1) * FRAME_LARGE_BYTES;
        return (size_t)g.count[FRAME_LARGE] * FRAME_LARGE_BYTES +
               (size_t)(num - 1 - g.count[FRAME_LARGE]) * FRAME_SMALL_BYTES;
}
/* Returns true if a number and range from somebody else lie inside the region. */
static inline bool frame_geom_holds(struct frame_geom g, uint32_t num, uint32_t off, uint32_t len)
{
        uint32_t size;

        if (num == 0 || num > frame_geom_total(g))
                return false;
        size = frame_class_bytes(frame_geom_class(g, num));
        return off <= size && len <= size - off;
}

/*
 * Names. Memory of a program's own (netstack/stack_memory.h) is no frame, and is sent again and
 * again. Each time it is sent it has a *name*: a number behind the region's small frames, with
 * references and loans of its own. A name has no bytes. Its id is in a region of its own, which is
 * mapped where the memory is: its `off` leads from where a small frame of that number would lie
 * into the memory.
 */
#define FRAME_NAMES       256u /* of a region */
#define FRAME_NAMED_BYTES (1u << 28)

/* From where the first frame would lie to the memory. */
static inline size_t frame_named_at(struct frame_geom g)
{
        return frame_geom_bytes(g) + (size_t)FRAME_NAMES * FRAME_SMALL_BYTES;
}
/* The `off` of the memory's first byte by that name. */
static inline uint32_t frame_name_off(struct frame_geom g, uint32_t num)
{
        return (uint32_t)(frame_named_at(g) - frame_geom_offset(g, num));
}
static inline bool frame_is_name(struct frame_geom g, uint32_t num)
{
        return num > frame_geom_total(g) && num - frame_geom_total(g) <= FRAME_NAMES;
}
/* Returns true if a number and range from somebody else are a name and lie inside the memory. */
static inline bool frame_name_holds(struct frame_geom g, uint32_t num, uint32_t off, uint32_t len)
{
        uint32_t first;

        if (!frame_is_name(g, num))
                return false;
        first = frame_name_off(g, num);
        return off >= first && off - first <= FRAME_NAMED_BYTES &&
               len <= FRAME_NAMED_BYTES - (off - first);
}

/* An id: region in the upper 12 bits, number in the lower 20. 0 is none (numbers start at 1). */
#define FRAME_NUM_BITS 20
#define FRAME_REGIONS  4096u
static inline uint32_t frame_id(uint32_t region, uint32_t num)
{
        return region << FRAME_NUM_BITS | num;
}
static inline uint32_t frame_id_region(uint32_t id)
{
        return id >> FRAME_NUM_BITS;
}
static inline uint32_t frame_id_num(uint32_t id)
{
        return id & ((1u << FRAME_NUM_BITS) - 1);
}
#define FRAME_REGION_PRIVATE       0u
#define FRAME_REGION_TX(chan)      (2u * (chan) + 1)
#define FRAME_REGION_RX(chan)      (2u * (chan) + 2)
#define FRAME_CHANS                (FRAME_REGIONS / 4)
#define FRAME_REGION_NAMED(region) ((region) + FRAME_REGIONS / 2)
/* In an id, this bit is FRAME_REGION_NAMED. The last channel's receive region has it anyway, so
 * nothing comes by name there. */
#define FRAME_NAMED (FRAME_REGIONS / 2 << FRAME_NUM_BITS)
static inline bool frame_chan_may_name(uint32_t chan)
{
        return chan < FRAME_CHANS - 1;
}
static inline uint32_t frame_region_chan(uint32_t region)
{
        return (region - 1) / 2 % FRAME_CHANS;
}

/* Returns true if an id is one of the region's, or of its names, and the range lies inside. */
static inline bool frame_id_holds(struct frame_geom g, uint32_t region, uint32_t id, uint32_t off,
                                  uint32_t len)
{
        if (frame_id_region(id) == region)
                return frame_geom_holds(g, frame_id_num(id), off, len);
        return frame_id_region(id) == FRAME_REGION_NAMED(region) &&
               frame_name_holds(g, frame_id_num(id), off, len);
}

/* A range of a frame. */
struct buf {
        uint32_t id; /* 0: none */
        uint32_t off;
        uint32_t len; /* bytes */
};

/*
 * So many frames of a region may be with the other side, of all classes: their returns have room
 * (SHM_RETS). Who receives keeps less than that in the queues of sockets that nobody reads, so that
 * what other sockets send and receive still moves: TCP half, UDP a quarter. What comes beyond is
 * copied.
 */
#define FRAME_LOANS     8192u
#define FRAME_LOANS_TCP (FRAME_LOANS / 2)
#define FRAME_LOANS_UDP (FRAME_LOANS / 4)

struct frame_rec {
        /* Free list; of a frame in use: 1 if it is to be used next (frame_near); of a name: its
         * serial number. */
        uint32_t next;
        uint32_t owner; /* connection charged for it, 0: none; a name with none is free */
        uint16_t refs;
        uint16_t loans;
};

/* The records of one region of ours, in the state segment. */
struct frame_pool {
        struct frame_geom geom;
        uint64_t rec_off; /* from this header to record 0 (unused; numbers start at 1) */
        uint32_t free[FRAME_CLASSES]; /* heads */
        uint32_t last_free[FRAME_CLASSES];
        uint32_t fresh[FRAME_CLASSES]; /* how many of the class were ever used */
        uint32_t used[FRAME_CLASSES];  /* not free now: queued or on loan */
        uint32_t sent;  /* 1: frames are lent to a peer, and large ones take turns (frame_alloc) */
        uint32_t loans; /* sum over all frames; WRITE_ONCE() */
        uint32_t bad_returns; /* the other side returned what it had not */
        uint32_t starved;     /* 1 << class: somebody waits for a frame of it; WRITE_ONCE() */
        uint32_t name_last;   /* the last name that was given, from 1 on; 0: none ever */
};

/* A process's view of all regions. `base` of a region that this process has not mapped is NULL. */
struct frame_region {
        uint8_t *base;           /* of its first frame */
        struct frame_pool *pool; /* NULL for receive regions */
        struct frame_geom geom;  /* receive regions: as agreed with unetd */
};
struct frames {
        struct frame_region region[FRAME_REGIONS];
        /* Gives a lent frame (receive region) back to its channel. */
        void (*give_back)(void *arg, uint32_t chan, uint32_t num);
        /* A frame of ours became free; `owner` was charged frame bytes for it: 0 for a name. May
         * be NULL. */
        void (*uncharge)(void *arg, uint32_t owner, uint32_t bytes);
        /* A frame that somebody waited for (pool->starved) became free; nobody is said to wait
         * any more. */
        void (*fed)(void *arg, uint32_t region);
        void *arg;
};

/* Bytes that a pool's records take after its header. */
static inline size_t frame_pool_bytes(struct frame_geom g)
{
        return sizeof(struct frame_pool) +
               sizeof(struct frame_rec) * (frame_geom_total(g) + FRAME_NAMES + 1);
}
/* Prepares a pool; its records follow the header at once. It is not sent from unless `sent` is
 * set afterwards. */
void frame_pool_init(struct frame_pool *p, struct frame_geom g);

static inline struct frame_rec *frame_pool_rec(const struct frame_pool *p, uint32_t num)
{
        assert(num != 0 && num <= frame_geom_total(p->geom) + FRAME_NAMES);
        return (struct frame_rec *)((char *)(uintptr_t)p + p->rec_off) + num;
}

/*
 * A frame of the class with refs 1, charged to `owner`; 0 when there is none.
 *
 * It is the one that was freed last, which is warm. The large frames of a pool that is lent from
 * are an exception: there it is the one that was freed first, and at least FRAME_ROUND take turns.
 * The lines of a frame that the other side has just read are in the cache of its processor. Writing
 * them is slower than writing lines that have left it.
 */
#define FRAME_ROUND 64u
uint32_t frame_alloc(struct frames *f, uint32_t region, enum frame_class c, uint32_t owner);
/* The frame is written where it is sent from, with no copy before. When it is free it is the next
 * one, whatever turns others take. So few frames go round, and stay in the second-level cache of a
 * processor that both sides share. Where each side has its own that is no slower
 * (docs/decisions.md). */
void frame_near(struct frames *f, uint32_t id);
/* The address of the frame that frame_alloc() will most likely give next, so that its lines can be
 * claimed; NULL: not known. */
uint8_t *frame_guess(const struct frames *f, uint32_t region, enum frame_class c);
/* A name with refs 1, which `owner` (not 0) hears of when it is free again; 0: there is none. */
uint32_t frame_name(struct frames *f, uint32_t region, uint32_t owner, uint32_t serial);
/* Returns true if that is over. No lock needed. */
bool frame_name_over(const struct frames *f, uint32_t id, uint32_t serial);
/* Returns true if fn() does so of the serial number of a name in use. */
bool frame_pool_any_name(const struct frame_pool *p, bool (*fn)(void *arg, uint32_t serial),
                         void *arg);
/* Frames of the class that can still be had. */
uint32_t frame_avail(const struct frames *f, uint32_t region, enum frame_class c);
/* Takes a reference: one more record names the frame. Not for lent frames, which have one
 * holder. */
void frame_hold(struct frames *f, uint32_t id);
/* Drops a reference: frees the frame when nobody else holds it; gives a lent frame back. */
void frame_drop(struct frames *f, uint32_t id);
/* The frame is in one more message that the other side may read. */
void frame_lend(struct frames *f, uint32_t id);
/* The other side gave back one loan of frame `num` of `region`. False, and counted, when it
 * had none. */
bool frame_unlend(struct frames *f, uint32_t region, uint32_t num);
/* The channel is gone: all loans of the region end. */
void frame_unlend_all(struct frames *f, uint32_t region);
/* Forgets all references, before they are counted again; loans stay. */
void frame_pool_zero_refs(struct frame_pool *p);
/* Makes the free lists anew from refs and loans; used after refs were recounted. */
void frame_pool_rebuild(struct frame_pool *p);
/* Says of each frame in use that is charged to somebody: to whom, and how much. */
void frame_pool_charges(const struct frame_pool *p,
                        void (*fn)(void *arg, uint32_t owner, uint32_t bytes), void *arg);

static inline uint32_t frame_size(const struct frames *f, uint32_t id)
{
        const struct frame_region *r = &f->region[frame_id_region(id)];
        return frame_class_bytes(
                frame_geom_class(r->pool ? r->pool->geom : r->geom, frame_id_num(id)));
}
/* Bytes that will be read soon lie in the cache of whoever wrote them: asked for now, while there
 * is other work. */
static inline void frame_fetch(const uint8_t *p, uint32_t n)
{
        for (uint32_t at = 0; at < n; at += CACHE_LINE)
                __builtin_prefetch(p + at);
}
/* Bytes that will be written soon lie in the cache of whoever read them last. */
static inline void frame_claim(uint8_t *p, uint32_t n)
{
        for (uint32_t at = 0; at < n; at += CACHE_LINE)
                prefetch_write(p + at);
}
/* Where the frame is mapped in this process. */
static inline uint8_t *frame_addr(const struct frames *f, uint32_t id)
{
        const struct frame_region *r = &f->region[frame_id_region(id)];
        return r->base + frame_geom_offset(r->pool ? r->pool->geom : r->geom, frame_id_num(id));
}

#endif
