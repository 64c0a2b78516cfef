/*
 * Provider `xdp`: a channel of whole Ethernet frames over an AF_XDP socket, or a program, that
 * somebody privileged made (xdp.h).
 *
 * A message sent is one packet. Its inline bytes and its range of a transmit frame are copied into
 * a transmit chunk. So the caller's frame is free at once, and reap() names it next, in the order
 * of the sends. A packet received of up to UNET_INLINE_MAX bytes is wholly inline. Of a longer one
 * the first UNET_INLINE_MAX bytes are inline, private to the receiver. The rest stays in its chunk
 * as a loan, named as xdp_frame_geom() says. The chunk holds the inline bytes too, just before
 * `off`: who wants a payload in one piece finds it there.
 *
 * All processes of a stack map the same rings and call under the stack's lock; what they share
 * stands in the socket's memory (struct ni_xdp_shared). repair() makes it whole after a death at
 * any store.
 *
 * Lent chunks are lost to reception until they are released: a receiver that keeps packets copies
 * them out when ni_xdp_loans() passes ni_xdp_loans_max().
 *
 * Waiting: arm(), pending(), and then poll(2) on the socket, POLLIN. There is no other side to
 * wake: flush() hands what was sent to the kernel, and pending() says so when the kernel could not
 * take all of it yet: call flush() again.
 */
#ifndef UNET_NI_XDP_H
#define UNET_NI_XDP_H

#include <stdatomic.h>

#include "base/counters.h"
#include "unet/mem.h"
#include "unet/ni.h"
#include "unet/xdp/ni_xdp_answer.h"
#include "unet/xdp/tcx_ring.h"
#include "unet/xdp/xdp.h"
#include "unet/xdp/xdp_ring.h"

#define XDP_SHARED_MAGIC 0x756e657478647002ull

/* The owner of a receive chunk. Only the middle two are ever seen outside of a call. */
enum xdp_owner {
        XDP_KERNEL, /* in FILL, with the kernel, or in RX */
        XDP_LENT,   /* with the stack */
        XDP_BACK,   /* written to a place of FILL that the kernel has not been told of yet */
};

/* Behind the UMEM. Rings are the kernel's memory: what is published there stands there, and is not
 * repeated here. There is a FILL ring for each class of chunks: large ones are in mode
 * XDP_MODE_TCX only. */
struct ni_xdp_shared {
        uint64_t magic;
        struct xdp_geom geom;              /* constant */
        uint32_t fill_next[FRAME_CLASSES]; /* places of FILL below this are written */
        /* Chunks in places below this are marked XDP_KERNEL. */
        uint32_t fill_settled[FRAME_CLASSES];
        uint32_t loans;                      /* chunks marked XDP_LENT */
        _Atomic bool tx_stuck;               /* the kernel had no room: TX is to be offered again */
        _Atomic uint32_t tx_next, comp_next; /* positions that a send goes to, or went to last */
        _Atomic uint32_t reap_head, reap_tail;
        uint32_t reap[XDP_RING_MAX];   /* frames of accepted sends, by position */
        uint8_t owner[XDP_CHUNKS_MAX]; /* enum xdp_owner, by receive chunk */
};

#define XDP_PAGES(bytes) (((bytes) + 4095) / 4096 * 4096)
/* The last ones of the memfd. */
#define XDP_SHARED_BYTES XDP_PAGES(sizeof(struct ni_xdp_shared))

/* Bytes of the memfd. */
static inline size_t xdp_mem_bytes(const struct xdp_geom *g)
{
        return xdp_umem_bytes(g) - xdp_map_bytes(g) + XDP_SHARED_BYTES;
}
/* Bytes of the value of the map that is passed in mode XDP_MODE_TCX (tcx_ring.h): whole pages. */
static inline size_t ni_xdp_ring_bytes(const struct xdp_geom *g)
{
        size_t rings = (2 * sizeof(uint64_t) + sizeof(struct xdp_desc)) * g->rx_ring;

        return xdp_rx_bytes(g) + TCX_WORDS_BYTES + XDP_PAGES(rings) + TCX_ANSWERS_BYTES;
}

/* One process's view. */
struct ni_xdp {
        struct unet_chan base;
        struct ni_xdp_shared *sh;
        struct xdp_geom geom; /* checked copy: what is used */
        /* The region; the memfd is its end, or all of it, with what is shared behind. */
        uint8_t *umem;
        size_t mem_bytes; /* of the memfd */
        /* XDP_MODE_TCX: rx.prod is NULL (tcx_lap()). */
        struct xdp_ring fill[FRAME_CLASSES], comp, rx, tx;
        struct tcx_words *words; /* XDP_MODE_TCX: mapped, with the rings of reception; else NULL */
        struct tcx_answers *answers; /* at their end */
        struct xdp_bell {
                /* XDP_MODE_TCX: pages of the bell; the kernel's other one is read only. */
                _Atomic uint64_t *cons;
                const _Atomic uint64_t *prod;
        } bell;
        struct unet_mem tx_mem; /* frames that sends name */
        struct counters *cnt;
        int sender; /* the AF_XDP socket that TX and COMPLETION are of */
        int xsk;    /* the same; XDP_MODE_TCX: what is polled */
        /* Bytes of a received packet that are inline: UNET_INLINE_MAX, or fewer. */
        uint32_t inline_most;
        int packet;     /* for runs; -1: none */
        uint32_t notes; /* SYNs of the last recv() that were answered */
        struct ni_xdp_note {
                struct unet_ends ends;
                uint32_t seq;
                bool taken; /* the stack has asked for it */
                struct unet_answer answer;
                uint8_t round;
        } note[80]; /* those that the program may be ahead, and some processors more at once */
        /* Runs that may go before one that is in its error queue is let go of. */
        uint32_t hold_more;
};

/* What was passed: struct xdp_sock has what they are. */
struct ni_xdp_fds {
        int xsk, mem, packet, ring, sender;
};
/*
 * Maps the rings and the memory of a passed socket; nothing that was passed is trusted. `tx_mem`
 * holds the frames that sends name. `xsk`, `packet` (-1: none, and no runs) and `sender` stay the
 * caller's and open until ni_xdp_detach(); `mem` and `ring` may be closed at once. `ring` and
 * `sender` are -1 but in mode XDP_MODE_TCX. 0; -EPROTO: not an AF_XDP socket, not a bound packet
 * socket with virtio headers, or memory that is none of ours; -EPERM: memory that could be taken
 * away; -ENOMEM; other negative errno of mmap.
 */
int ni_xdp_attach(struct ni_xdp *x, struct ni_xdp_fds fds, struct unet_mem tx_mem,
                  struct counters *cnt);
void ni_xdp_detach(struct ni_xdp *x);
/* Lets go of the socket and its memory, but not of the addresses: a thread that is just looking
 * (pending()) finds nothing. */
void ni_xdp_forsake(struct ni_xdp *x);
/* Another socket of the same sizes takes the place of the one that x was attached to, forsaken or
 * not; a thread that is just looking finds the one or the other. -ENOSPC: its sizes are others, and
 * x is as it was; otherwise as ni_xdp_attach(), and after an error x is forsaken. */
int ni_xdp_reattach(struct ni_xdp *x, struct ni_xdp_fds fds, struct unet_mem tx_mem);

/* Where lent packets lie: the base of a region of xdp_frame_geom(). */
static inline const uint8_t *ni_xdp_rx_frames(const struct ni_xdp *x)
{
        return x->umem;
}
/* Packets lent and not released. */
static inline uint32_t ni_xdp_loans(const struct ni_xdp *x)
{
        return x->sh->loans;
}
/* How many loans leave enough chunks to receive with. */
static inline uint32_t ni_xdp_loans_max(const struct ni_xdp *x)
{
        return xdp_rx_count(&x->geom) / 2;
}
/*
 * After repair(): gives back what was lent to the dead process and is in no record. `held` says of
 * a frame number whether a record names it. No send is outstanding after repair() either: loans of
 * transmit frames have ended.
 */
void ni_xdp_reclaim(struct ni_xdp *x, bool (*held)(void *arg, uint32_t frame), void *arg);

extern const struct unet_ni_ops ni_xdp_ops;

#endif
