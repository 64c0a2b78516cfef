/*
 * A stack's link to an RDMA device: what its processes share of one queue pair.
 *
 * A queue pair is one process's, its *driver's* (libibverbs keeps its state in private memory); a
 * stack is many processes'. So each process puts the packets that it sends into a ring in the
 * stack's shared memory. The driver hands them to the device from where they lie: the ring is what
 * is registered. Packets received are taken by the driver alone, who runs the stack with them, so
 * that their buffers stay private to it. Who is the driver may change: the next one has a queue
 * pair of its own, and the hosts' agents tell the peers (unetd/daemon/links.c).
 *
 *   ring  packets sent: 0 .. cons-1 done | cons .. posted-1 with the device | posted .. prod-1 wait
 *         for the driver
 *   book  who the peers are, by channel: written by unetd, read by the stack
 *
 * All of struct vlink_shared is changed under the stack's lock. A packet is in the ring when
 * tx_prod says so, and copied by then: a death leaves nothing half sent.
 */
#ifndef UNET_VLINK_H
#define UNET_VLINK_H

#include <stdatomic.h>

#include "base/base.h"
#include "base/frame.h"

#define VLINK_MAGIC      0x756e6574766c6b03ull
#define VLINK_CHANS      64u        /* of a stack: those with numbers below */
#define VLINK_SLOTS      256u       /* packets in the ring */
#define VLINK_SLOT_BYTES 4096u      /* no device takes a longer datagram */
#define VLINK_RANGES     48u        /* of ports of one peer */
#define VLINK_KEEPER     UINT32_MAX /* the driver is no process of the stack, but the keeper */

struct vlink_slot {
        uint32_t chan, len;
        uint32_t inl; /* bytes of it that the receiver is to have in the descriptor */
};

struct vlink_chan_shared {
        uint32_t reap_head, reap_tail;
        uint32_t reap[VLINK_SLOTS]; /* frames of packets sent, which were copied */
};

struct vlink_shared {
        uint64_t magic;
        _Atomic uint32_t driver; /* process slot + 1, or VLINK_KEEPER; 0: nobody */
        uint32_t qpn, qkey, mtu; /* the driver's */
        uint32_t pinned_kb;      /* by the driver: what the device may touch */
        uint32_t drivers;        /* how many there have been */
        /* Counts the driver's: one that stands still has something else to do. */
        _Atomic uint32_t turns;
        /* Somebody waits, and the driver does not come: the keeper is to drive. */
        _Atomic uint32_t wanted;
        /* The driver was told of what is in the ring, and has not looked since. */
        _Atomic uint32_t rung;
        _Atomic uint32_t tx_prod, tx_cons, tx_posted;
        struct vlink_slot slot[VLINK_SLOTS];
        struct vlink_chan_shared chan[VLINK_CHANS];
};

/* The ring's bytes lie behind, a page on. */
static inline size_t vlink_ring_off(void)
{
        return (sizeof(struct vlink_shared) + 4095) / 4096 * 4096;
}
static inline size_t vlink_bytes(void)
{
        return vlink_ring_off() + (size_t)VLINK_SLOTS * VLINK_SLOT_BYTES;
}

/* Where received packets lie, in the driver: numbers of large frames. */
static inline struct frame_geom vlink_rx_geom(void)
{
        return (struct frame_geom){{[FRAME_LARGE] = 1024}};
}

/* ---- the book ---- */

struct vlink_range { /* ports of a peer: what it may send from */
        uint16_t first, count;
        uint8_t proto, zero;
};

struct vlink_peer {
        uint32_t addr; /* IPv4, host order; 0: nobody */
        uint32_t qpn, qkey;
        uint32_t nranges;
        struct vlink_range range[VLINK_RANGES];
        /* What the next unetd has to know (struct remote). */
        uint32_t instance, stack, mine, theirs, mtu, no_csum, version;
};

struct vlink_book {
        uint64_t magic;
        uint32_t bytes;
        _Atomic uint32_t seq;  /* odd while unetd writes; two more with each change */
        uint32_t addr;         /* ours */
        _Atomic uint32_t away; /* the device is gone, or going: nobody is to have it open */
        struct vlink_peer peer[VLINK_CHANS];
        /* For the next unetd: whose link it is, who drives it, and what was being written. */
        uint32_t stack, instance, version;
        uint32_t qpn, qkey, mtu, pinned_kb;
        _Atomic uint32_t redo; /* 1 + the peer that is to be as `next` says; 0: none */
        struct vlink_peer next;
};

/* A peer as it is now. False: none, or a unetd died while it wrote, and the next one has not
 * come yet. */
static inline bool vlink_read(const struct vlink_book *b, uint32_t chan, struct vlink_peer *out)
{
        for (int tries = 0; tries < 64 && chan < VLINK_CHANS; tries++) {
                uint32_t seq = atomic_load_explicit(&b->seq, memory_order_acquire);
                struct vlink_peer got = b->peer[chan];

                atomic_thread_fence(memory_order_acquire);
                if ((seq & 1) == 0 && atomic_load_explicit(&b->seq, memory_order_relaxed) == seq) {
                        *out = got;
                        return got.addr != 0;
                }
        }
        return false;
}

static inline bool vlink_has_port(const struct vlink_peer *p, uint8_t proto, uint16_t port)
{
        uint32_t n = MIN(p->nranges, VLINK_RANGES);

        for (uint32_t i = 0; i < n; i++)
                if (p->range[i].proto == proto &&
                    (uint16_t)(port - p->range[i].first) < p->range[i].count)
                        return true;
        return false;
}

/* Returns true if the peer's agent has vouched that the peer may send from a port. Asked of every
 * datagram: read where it is. */
static inline bool vlink_vouches(const struct vlink_book *b, uint32_t chan, uint8_t proto,
                                 uint16_t port)
{
        const struct vlink_peer *p = &b->peer[chan % VLINK_CHANS];

        for (int tries = 0; tries < 64 && chan < VLINK_CHANS; tries++) {
                uint32_t seq = atomic_load_explicit(&b->seq, memory_order_acquire);
                bool has = p->addr != 0 && vlink_has_port(p, proto, port);

                atomic_thread_fence(memory_order_acquire);
                if ((seq & 1) == 0 && atomic_load_explicit(&b->seq, memory_order_relaxed) == seq)
                        return has;
        }
        return false;
}

/* ---- unetd's side ---- */

/* Ends what a unetd began that may have died at any store of it. */
static inline void vlink_redo(struct vlink_book *b)
{
        uint32_t redo = atomic_load_explicit(&b->redo, memory_order_acquire);
        uint32_t seq = atomic_load_explicit(&b->seq, memory_order_relaxed) | 1;

        if (redo != 0) {
                atomic_store_explicit(&b->seq, seq, memory_order_relaxed);
                atomic_thread_fence(memory_order_release);
                b->peer[(redo - 1) % VLINK_CHANS] = b->next;
        }
        if (redo != 0 || atomic_load_explicit(&b->seq, memory_order_relaxed) & 1)
                atomic_store_explicit(&b->seq, seq + 1, memory_order_release);
        atomic_store_explicit(&b->redo, 0, memory_order_release);
}

/* A peer is this from now on; addr 0: it is nobody. The book has no room for channels of higher
 * numbers than VLINK_CHANS, which have no peer there. */
static inline void vlink_put(struct vlink_book *b, uint32_t chan, const struct vlink_peer *p)
{
        if (chan >= VLINK_CHANS)
                return;
        b->next = *p;
        atomic_store_explicit(&b->redo, chan + 1, memory_order_release);
        vlink_redo(b);
}

#endif
