/*
 * One of the four rings of an AF_XDP socket, as a process has it mapped. Each is written by one
 * side and read by the other, the kernel: FILL and TX are produced by us, RX and COMPLETION
 * consumed. Positions wrap at 2^32.
 */
#ifndef UNET_XDP_RING_H
#define UNET_XDP_RING_H

#include <linux/if_xdp.h>
#include <stdatomic.h>

#include "base/base.h"

enum xdp_ring_kind { XDP_RING_FILL, XDP_RING_COMP, XDP_RING_RX, XDP_RING_TX };

struct xdp_ring {
        void *map; /* NULL: not mapped */
        size_t bytes;
        _Atomic uint32_t *prod, *cons, *flags;
        void *desc; /* RX and TX: struct xdp_desc; FILL and COMPLETION: uint64_t, an address */
        uint32_t mask;
};

/* Maps a ring of `entries` (a power of two), in the place of the one that is mapped there, if one
 * is; r->map is NULL if not. 0; -ENOSPC: that one has another size; -EPROTO: the socket is not
 * AF_XDP, or its kernel's rings are not as we know them; -EBUSY: bound, and its kernel lets nobody
 * map it any more (before 6.4); -EINVAL: the ring is smaller. */
int xdp_ring_map(struct xdp_ring *r, int xsk, enum xdp_ring_kind kind, uint32_t entries);
void xdp_ring_unmap(struct xdp_ring *r);

static inline uint32_t xdp_own(const _Atomic uint32_t *word) /* written by our side alone */
{
        return atomic_load_explicit(word, memory_order_relaxed);
}
static inline uint32_t
xdp_theirs(const _Atomic uint32_t *word) /* what lies behind it is read after it */
{
        return atomic_load_explicit(word, memory_order_acquire);
}
static inline void xdp_publish(_Atomic uint32_t *word,
                               uint32_t pos) /* what lies behind it was read or written before */
{
        atomic_store_explicit(word, pos, memory_order_release);
}
static inline uint64_t *xdp_addr_at(const struct xdp_ring *r, uint32_t pos)
{
        return (uint64_t *)r->desc + (pos & r->mask);
}
static inline struct xdp_desc *xdp_desc_at(const struct xdp_ring *r, uint32_t pos)
{
        return (struct xdp_desc *)r->desc + (pos & r->mask);
}
static inline bool xdp_needs_wakeup(const struct xdp_ring *r)
{
        return atomic_load_explicit(r->flags, memory_order_relaxed) & XDP_RING_NEED_WAKEUP;
}

#endif
