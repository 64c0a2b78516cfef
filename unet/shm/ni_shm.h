/*
 * Provider `shm` for the protocol stack: a direct channel to another stack on this host
 * (shm_ring.h), in loan mode: received payload stays in the sender's frames until it is released.
 */
#ifndef UNET_NI_SHM_H
#define UNET_NI_SHM_H

#include "base/counters.h"
#include "unet/bell.h"
#include "unet/ni.h"
#include "unet/shm/shm_ring.h"

#define SHM_MTU 65535u /* an IPv4 datagram */

/* The part of a channel that all processes of a stack share; in its state segment. */
struct shm_shared {
        struct shm_pos pos;
        uint32_t rung; /* peer's bell word when we last rang; or SHM_UNHEARD */
        /* Its ctrl.quiet when we last rang its keeper for a message that came after that. */
        uint32_t quiet_rung;
        struct frame_geom tx_geom, rx_geom;
};

/* A word for which nobody rings. */
#define SHM_UNHEARD (1u << 2 | BELL_POLLED)

struct shm_chan;

/* Ringers that are put off until the lock of who sends is left: a ring is a wake-up, which takes
 * longer than all else under it. */
#define SHM_LATE_MAX 8u
struct shm_late {
        int fd[SHM_LATE_MAX];
        struct shm_chan *chan[SHM_LATE_MAX];
        uint32_t n;
        bool unheard; /* of those beyond them one could not be rung */
};

/* One process's view of a channel. */
struct shm_chan {
        struct unet_chan base;
        struct shm_shared *sh;
        struct shm_region *mine;       /* our transmit region, read and write */
        const struct shm_region *peer; /* the peer's, read only */
        size_t mine_bytes, peer_bytes;
        const struct bell *bell;  /* the peer's, read only */
        int leader_fd, keeper_fd; /* ringers (unet/bell_fd.h) of the peer's bells */
        struct shm_late *late;    /* NULL: the bell is rung at once */
        struct counters *cnt;
        /* The peer's ctrl.quiet, read before the first message that was not flushed. */
        uint32_t quiet_before;
        const uint8_t *memory; /* of the peer's programs' own: whither names lead */
        bool names;            /* ... which it is, for this channel: they may come */
        bool sent;             /* since the last flush: messages */
        bool gave;             /* since the last flush: slots consumed or frames returned */
};

/* What was sent by it may not have been rung for: the next flush does. */
void shm_chan_ring_again(struct shm_chan *c);
/* A ring for it was not heard: somebody else is to ring again. */
void shm_chan_unheard(struct shm_chan *c);

/* Its promises (unet/ni_promise.h), in shm_promise.c. */
extern const struct unet_promise_ops shm_promise_ops;

/* Completes a channel whose regions, bell and ringers are filled in. */
void shm_chan_init(struct shm_chan *c, struct shm_shared *sh, struct counters *cnt);

#endif
