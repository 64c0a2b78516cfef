/*
 * The shared-memory channel: what lies in the memfd between two processes on one host.
 *
 * A channel is a pair of *transmit regions*, one a direction. A region is written by its owner
 * alone; the peer has it mapped read-only. So everything the consumer must tell the producer stands
 * in the consumer's own region:
 *
 *      A's region (A writes, B reads)              B's region (B writes, A reads)
 *      +------------------------------+            +------------------------------+
 *      | ctrl: how far A consumed B's |            | ctrl: how far B consumed A's |
 *      |       ring, returned frames  |            |       ring, returned frames  |
 *      | ring: messages A -> B        |            | ring: messages B -> A        |
 *      | ret:  B's frames given back  |            | ret:  A's frames given back  |
 *      | frames: A's payload          |            | frames: B's payload          |
 *      +------------------------------+            +------------------------------+
 *
 * A slot carries its own sequence word, stored last (release) and loaded first (acquire): the
 * consumer watches the line the message comes in, and a small message costs one cache-line
 * transfer, not three. The words that count (positions) wrap at 2^32; both sizes are powers of two.
 *
 * Hostile peer: everything read from the peer's region is read once into a local, then checked.
 * Indices are masked, frame numbers and ranges are checked against the geometry agreed with unetd,
 * returned frames against our own record of loans. A wrong one is dropped and counted by the
 * caller.
 */
#ifndef UNET_SHM_RING_H
#define UNET_SHM_RING_H

#include <stdatomic.h>

#include "base/base.h"
#include "base/frame.h"
#include "unet/ni.h"

#define SHM_SLOTS 512u        /* messages in flight a direction */
#define SHM_RETS  FRAME_LOANS /* frames on loan a direction; loans are bounded by it */

enum {
        SHM_F_FRAME = 1, /* the message's tail is in a frame */
        /* And in `nmore` more ranges, 8 bytes each after the reference (raw endpoints). */
        SHM_F_MORE = 2,
};

/* 8 bytes, then [12 bytes of frame reference when SHM_F_FRAME], then inl_len bytes. A bare 40-byte
 * header with 14 bytes of payload is one cache line. */
struct shm_slot {
        _Atomic uint32_t seq; /* position + 1 when the slot holds the message of that position */
        uint8_t flags;
        uint8_t inl_len;
        uint16_t nmore; /* with SHM_F_MORE */
        uint8_t body[248];
};
static_assert(sizeof(struct shm_slot) == 256, "four cache lines");
#define SHM_INLINE_MAX 232u
static_assert(SHM_INLINE_MAX + 12 <= 248 && SHM_INLINE_MAX <= UNET_INLINE_MAX,
              "fits with a frame reference");

struct shm_frame_ref {
        uint32_t frame, off, len;
};

struct shm_ctrl {              /* written by the region's owner about the peer's ring and frames */
        _Atomic uint32_t cons; /* messages of the peer taken: their slots may be written again */
        _Atomic uint32_t want_room; /* owner sleeps until the peer consumes or returns something */
        _Atomic uint32_t closed;    /* owner has left: nothing more will come (raw endpoints) */
        _Atomic uint32_t names; /* owner has the peer's memory mapped: names may come (frame.h) */
        /* The peer looks at this one all the time: on a line of its own. */
        _Alignas(CACHE_LINE) _Atomic uint32_t ret_prod; /* frames given back so far, in ret[] */
        /* How often the owner has stopped looking at the peer's ring until it is rung. */
        _Atomic uint32_t quiet;
};

/* Connections that the region's owner takes by a listener of his (unet/ni_promise.h). */
#define SHM_PROMISES 4u
struct shm_promise { /* WRITE_ONCE() */
        /* Odd: it holds. Another promise has another turn. */
        _Alignas(CACHE_LINE) _Atomic uint32_t turn;
        uint32_t room; /* connections in this turn, of which so many came */
        uint32_t came;
        uint32_t addr; /* as on the wire */
        uint16_t port, wnd, mss;
        uint8_t wscale;
        uint32_t pid, fd; /* struct unet_promiser */
        nstime ended;     /* when the turn did */
};

struct shm_region {
        _Alignas(CACHE_LINE) struct shm_ctrl ctrl;
        struct shm_promise promise[SHM_PROMISES];
        /* How many of the peer's the owner has taken, behind the turn: SHM_TAKEN(). */
        _Atomic uint64_t taken[SHM_PROMISES];
        _Alignas(4096) struct shm_slot ring[SHM_SLOTS];
        _Alignas(4096) uint32_t ret[SHM_RETS];
        _Alignas(4096) uint8_t frames[]; /* struct frame_geom says how they lie */
};
#define SHM_REGION_BYTES(geom) (sizeof(struct shm_region) + frame_geom_bytes(geom))

/* One side's positions; in that side's private memory (for a stack: its state segment), never shown
 * to the peer. Whether there is something to do is asked without the lock too (shm_rx_ready(),
 * shm_ret_ready(), shm_tx_room()): the lock's holder writes them by WRITE_ONCE(). */
struct shm_pos {
        uint32_t tx_prod;  /* next slot to write in our ring */
        uint32_t tx_cons;  /* last seen of the peer's ctrl.cons, verified */
        uint32_t rx_cons;  /* next slot to read in the peer's ring */
        uint32_t ret_prod; /* next entry to write in our ret */
        uint32_t ret_cons; /* next entry to read in the peer's ret */
};

/* Where both sides begin when a region is used once more, for the nth time: what its words and
 * slots still say is far from there, and means nothing. At the first slot; never where zeroes
 * would. */
static inline struct shm_pos shm_pos_begin(uint32_t nth)
{
        uint32_t at = (nth * 2654435769u >> 1) / SHM_SLOTS * SHM_SLOTS;

        return (struct shm_pos){at, at, at, at, at};
}

/* Free slots in our ring. A peer that claims to have consumed what was never sent is ignored. Asked
 * without the lock as well: tx_cons is read first (acquire), so that it is never ahead of tx_prod,
 * and a note of it that comes late is an older one and just as true. */
static inline uint32_t shm_tx_room(struct shm_pos *p, const struct shm_region *peer)
{
        uint32_t seen = __atomic_load_n(&p->tx_cons, __ATOMIC_ACQUIRE),
                 used = READ_ONCE(p->tx_prod) - seen;

        if (unlikely(used > SHM_SLOTS / 2)) {
                uint32_t gone = atomic_load_explicit(&peer->ctrl.cons, memory_order_acquire) - seen;
                if (gone <= used) {
                        WRITE_ONCE(p->tx_cons, seen + gone);
                        used -= gone;
                }
                used = MIN(used, SHM_SLOTS);
        }
        return SHM_SLOTS - used;
}

/* Bytes of the body that lie in the slot's first line. */
#define SHM_FIRST_LINE (CACHE_LINE - 8u)

/* Writes inline bytes at body[at], those of the slot's first line last: the reader looks at that
 * line all the time, and would take it away between two stores to it with others in between
 * (measured: 0.82 against 0.40 us a round trip). */
static inline void shm_write_inline(uint8_t *body, uint32_t at, const uint8_t *inl, uint32_t n)
{
        uint32_t first = at < SHM_FIRST_LINE ? SHM_FIRST_LINE - at : 0;

        if (n > first) {
                copy_short(body + at + first, inl + first, n - first);
                n = first;
        }
        copy_short(body + at, inl, n);
}

/* Writes one message; there must be room. */
static inline void shm_tx_push(struct shm_pos *p, struct shm_region *mine, const struct unet_tx *tx)
{
        struct shm_slot *s = &mine->ring[p->tx_prod % SHM_SLOTS];
        struct shm_frame_ref ref = {tx->frame, tx->off, tx->len};

        shm_write_inline(s->body, tx->frame ? sizeof ref : 0, tx->inl, tx->inl_len);
        if (tx->frame)
                memcpy(s->body, &ref, sizeof ref);
        s->flags = tx->frame ? SHM_F_FRAME : 0;
        s->inl_len = (uint8_t)tx->inl_len;
        /* Everything above is visible before the sequence word is, and that before our own note of
         * it: see shm_repair(). */
        atomic_store_explicit(&s->seq, p->tx_prod + 1, memory_order_release);
        atomic_signal_fence(memory_order_seq_cst);
        WRITE_ONCE(p->tx_prod, p->tx_prod + 1);
}

/* After the death of a process that shared these positions: a message that it published and did not
 * note is noted. The rest needs nothing: a slot it was writing is written again, a return it was
 * pushing is pushed with the next. */
static inline void shm_repair(struct shm_pos *p, const struct shm_region *mine)
{
        const struct shm_slot *s = &mine->ring[p->tx_prod % SHM_SLOTS];

        if (atomic_load_explicit(&s->seq, memory_order_relaxed) == p->tx_prod + 1)
                WRITE_ONCE(p->tx_prod, p->tx_prod + 1);
}

static inline bool shm_rx_ready(const struct shm_pos *p, const struct shm_region *peer)
{
        uint32_t at = READ_ONCE(p->rx_cons);

        return atomic_load_explicit(&peer->ring[at % SHM_SLOTS].seq, memory_order_acquire) ==
               at + 1;
}

/* Copies the next message out; shm_rx_ready() was true. False: malformed, consumed all the same.
 * The frame number is not looked at here but for zero; the caller checks it against its geometry
 * with frame_geom_holds(). */
static inline bool shm_rx_pull(struct shm_pos *p, const struct shm_region *peer, struct unet_rx *rx)
{
        const volatile struct shm_slot *vs = &peer->ring[p->rx_cons % SHM_SLOTS];
        const uint8_t *body = (const uint8_t *)vs->body;
        uint8_t flags = vs->flags, inl_len = vs->inl_len; /* each read once */
        struct shm_frame_ref ref = {0, 0, 0};

        WRITE_ONCE(p->rx_cons, p->rx_cons + 1);
        if (inl_len > SHM_INLINE_MAX)
                return false;
        if (flags & SHM_F_FRAME) {
                memcpy(&ref, body, sizeof ref);
                body += sizeof ref;
                if (ref.frame == 0)
                        return false;
        }
        rx->frame = ref.frame;
        rx->off = ref.off;
        rx->len = ref.len;
        rx->inl_len = inl_len;
        copy_short(rx->inl, body, inl_len);
        return true;
}

/* Lines of a slot that will be written soon come back from the reader's cache while others are
 * written: as many as this message needs. Measured: 64-byte messages 9.5 -> 22 million a second. */
#define SHM_CLAIM_AHEAD 16u
static inline void shm_claim_ahead(const struct shm_pos *p, const struct shm_region *mine,
                                   uint32_t inl_len)
{
        const char *s = (const char *)&mine->ring[(p->tx_prod + SHM_CLAIM_AHEAD) % SHM_SLOTS];

        for (size_t at = 0; at < offsetof(struct shm_slot, body) + inl_len; at += CACHE_LINE)
                prefetch_write(s + at);
}

/* When a whole batch of n is there, its lines are asked for together, not one after the other. */
static inline void shm_prefetch_batch(const struct shm_pos *p, const struct shm_region *peer, int n)
{
        uint32_t last = p->rx_cons + (uint32_t)n;

        if (n < 4 || atomic_load_explicit(&peer->ring[(last - 1) % SHM_SLOTS].seq,
                                          memory_order_relaxed) != last)
                return;
        for (uint32_t i = p->rx_cons; i != last; i++) {
                __builtin_prefetch(&peer->ring[i % SHM_SLOTS]);
                __builtin_prefetch((const char *)&peer->ring[i % SHM_SLOTS] + CACHE_LINE);
        }
}

/* Slots consumed that the producer has not been told of. It is told every SHM_PUBLISH_EVERY, and
 * when it wants to know. */
#define SHM_PUBLISH_EVERY 64u
static inline uint32_t shm_rx_unpublished(const struct shm_pos *p, const struct shm_region *mine)
{
        return p->rx_cons - atomic_load_explicit(&mine->ctrl.cons, memory_order_relaxed);
}

/* Returns true if at least n messages wait to be read. */
static inline bool shm_rx_backlog(const struct shm_pos *p, const struct shm_region *peer,
                                  uint32_t n)
{
        uint32_t last = p->rx_cons + n;

        return atomic_load_explicit(&peer->ring[(last - 1) % SHM_SLOTS].seq,
                                    memory_order_relaxed) == last;
}

/* The lines of the message that is n further: asked for one by one, between copies, or they would
 * wait for each other. For who knows that it is there: lines still to be written are left alone,
 * their writer has claimed them. */
static inline void shm_prefetch_ahead(const struct shm_pos *p, const struct shm_region *peer,
                                      uint32_t n)
{
        const char *at = (const char *)&peer->ring[(p->rx_cons + n) % SHM_SLOTS];

        __builtin_prefetch(at);
        __builtin_prefetch(at + CACHE_LINE);
}

/* Lets the producer write over what was pulled. */
static inline void shm_rx_publish(const struct shm_pos *p, struct shm_region *mine)
{
        atomic_store_explicit(&mine->ctrl.cons, p->rx_cons, memory_order_release);
}

/* Gives a frame of the peer back. Room is certain while loans are bounded by SHM_RETS on the
 * lender's side; a peer that lends more than it may loses its own frames only. */
static inline void shm_ret_push(struct shm_pos *p, struct shm_region *mine, uint32_t frame)
{
        mine->ret[p->ret_prod % SHM_RETS] = frame;
        atomic_store_explicit(&mine->ctrl.ret_prod, ++p->ret_prod, memory_order_release);
}

static inline bool shm_ret_ready(const struct shm_pos *p, const struct shm_region *peer)
{
        uint32_t n = atomic_load_explicit(&peer->ctrl.ret_prod, memory_order_acquire) -
                     READ_ONCE(p->ret_cons);

        return n != 0 && n <= SHM_RETS; /* more than fit is a lie */
}

/* Takes one returned frame number, unchecked; shm_ret_ready() was true. */
static inline uint32_t shm_ret_pull(struct shm_pos *p, const struct shm_region *peer)
{
        const volatile uint32_t *ret = peer->ret;

        WRITE_ONCE(p->ret_cons, p->ret_cons + 1);
        return ret[(p->ret_cons - 1) % SHM_RETS];
}

#endif
