/*
 * A capture of packets, taken in the stack and read from outside: `unet pcap`.
 *
 * A ring of bytes in the stack's shared memory, off by default; a packet then costs one load and
 * one branch. Written under the stack's lock by whoever runs the stack, the keeper included, so
 * nothing is missed when processes come and go. The writer never waits: it writes over the oldest
 * packets, and a reader that was too slow is told how many.
 *
 *   ring: ... [ header | bytes, padded to 8 ] [ header | bytes ] ...
 *         positions count bytes ever written
 *
 *   begun  the writer may be writing below this position
 *   head   everything below this position is written
 *
 * What a reader copied was whole if begun <= its position + cap afterwards.
 *
 * A record never wraps: one that would is preceded by a filler to the ring's end.
 */
#ifndef BASE_CAPTURE_H
#define BASE_CAPTURE_H

#include <stdatomic.h>

#include "base/base.h"

#define CAPTURE_SNAP_MAX 65535u /* most bytes kept of a packet */

enum capture_dir { CAPTURE_IN, CAPTURE_OUT };

struct capture_rec {
        uint32_t kept; /* bytes that follow; CAPTURE_FILLER: none, go to the ring's start */
        uint32_t len;  /* of the packet */
        nstime at;
        uint64_t seq; /* number of the packet since the ring was made: a gap is what was missed */
        uint8_t dir;  /* enum capture_dir */
        uint8_t pad;
        uint16_t chan;
        uint32_t pad2;
};
static_assert(sizeof(struct capture_rec) == 32, "read by other processes");
#define CAPTURE_FILLER UINT32_MAX

struct capture {
        _Atomic uint32_t snap; /* bytes kept of each packet; 0: off. Anybody may set it */
        uint32_t cap;          /* bytes of ring, a power of two */
        _Atomic uint64_t head, begun;
        uint64_t seq; /* packets ever captured */
        /* The reader's place, if it says so: a stack's end waits for it a little. */
        _Atomic uint64_t drained;
        uint8_t ring[];
};

/* A packet in up to two pieces. */
struct capture_pkt {
        const void *hdr, *data;
        uint32_t hdr_len, data_len;
        uint16_t chan;
        enum capture_dir dir;
};

static inline size_t capture_bytes(uint32_t cap)
{
        return sizeof(struct capture) + cap;
}
/* Makes an empty capture, off, in zeroed memory; cap is a power of two, at least 4 *
 * CAPTURE_SNAP_MAX. */
void capture_init(struct capture *c, uint32_t cap);
void capture_write(struct capture *c, const struct capture_pkt *p, nstime now);

static inline bool capture_on(const struct capture *c)
{
        return unlikely(atomic_load_explicit(&c->snap, memory_order_relaxed) != 0);
}

/* On, and not all of it read yet. */
static inline bool capture_unread(const struct capture *c)
{
        return capture_on(c) && atomic_load_explicit(&c->drained, memory_order_relaxed) !=
                                        atomic_load_explicit(&c->head, memory_order_relaxed);
}

/* ---- reading, without the lock; the ring is not trusted ---- */

struct capture_reader {
        uint64_t pos;      /* where to go on */
        uint64_t next_seq; /* expected; known after the first packet */
        uint64_t missed;   /* packets written over before they were read */
        bool started;
};

/* Starts reading with the next packet that is captured. */
void capture_reader_init(struct capture_reader *r, const struct capture *c);
/* Copies the next packet: its record, and min(kept, n) bytes into buf. False: none now. `cap` is
 * what capture_init() was given, from a place the writer cannot change. */
bool capture_read(struct capture_reader *r, const struct capture *c, uint32_t cap,
                  struct capture_rec *rec, void *buf, size_t n);

#endif
