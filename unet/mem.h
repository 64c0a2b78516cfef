/*
 * Where the bytes of a message lie: a region of memory and how ranges of it are named.
 *
 * A stack's region holds frames of two classes (base/frame.h): a range is (frame number, offset in
 * it, length). A raw endpoint's region is *flat*: one segment, a range is (offset in the segment,
 * length), and the frame number is only the name under which the provider reports the message
 * finished.
 */
#ifndef UNET_MEM_H
#define UNET_MEM_H

#include "base/base.h"
#include "base/frame.h"
#include "unet/ni.h"

struct unet_mem {
        uint8_t *base;
        size_t bytes;           /* length of the region */
        struct frame_geom geom; /* all zero: flat */
};

static inline struct unet_mem unet_mem_flat(void *base, size_t bytes)
{
        return (struct unet_mem){.base = base, .bytes = bytes};
}

static inline struct unet_mem unet_mem_frames(void *base, struct frame_geom geom)
{
        return (struct unet_mem){.base = base, .bytes = frame_geom_bytes(geom), .geom = geom};
}

/* The address of a range, or NULL when it does not lie inside the region. */
static inline uint8_t *unet_mem_at(const struct unet_mem *m, uint32_t frame, uint32_t off,
                                   uint32_t len)
{
        if (frame_geom_total(m->geom) == 0)
                return off <= m->bytes && len <= m->bytes - off ? m->base + off : NULL;
        return frame_geom_holds(m->geom, frame, off, len)
                       ? m->base + frame_geom_offset(m->geom, frame) + off
                       : NULL;
}

/* Copies inline bytes; up to 64 in whole 16-byte pieces, so both ends have room for those (n
 * rounded up). */
static inline void unet_copy_inline(uint8_t *to, const uint8_t *from, uint32_t n)
{
        if (unlikely(n > 64)) {
                memcpy(to, from, n);
                return;
        }
        for (uint32_t at = 0; at < n; at += 16)
                memcpy(to + at, from + at, 16);
}

/* Bytes of a message to send. */
static inline size_t unet_tx_bytes(const struct unet_tx *tx)
{
        size_t n = tx->inl_len + (tx->frame ? (size_t)tx->len : 0);

        for (int i = 0; i < tx->nmore; i++)
                n += tx->more[i].len;
        return n;
}

/* Puts a message together in one piece; `to` has unet_tx_bytes(). False: a range is outside
 * the region. */
bool unet_mem_gather(const struct unet_mem *m, const struct unet_tx *tx, uint8_t *to);
/* ... or `len` bytes of it from the byte `from` on, which are in it. */
bool unet_mem_gather_part(const struct unet_mem *m, const struct unet_tx *tx, uint32_t from,
                          uint32_t len, uint8_t *to);

#endif
