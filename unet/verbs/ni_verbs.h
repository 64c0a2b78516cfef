/*
 * Provider `verbs` for stacks: channels to stacks of other hosts, over one queue pair a stack and
 * device (vlink.h).
 *
 *   send:   any process: copied into the ring, its frame free at once (reap() names it next)
 *   flush:  the driver posts what is in the ring, one doorbell; any other process tells the driver
 *   recv:   the driver only, for others there is never anything. What is received lies in one piece
 *           (unet_caps.whole) in a buffer of the driver's, which is copied from before the call
 *           ends
 *
 * A datagram is an IP packet and nothing else; 32 bits of immediate data say how much of it is to
 * be inline (verbs_port.h). One comes from who its channel's peer is in the book, by source address
 * and queue pair, or it is dropped and counted.
 */
#ifndef UNET_NI_VERBS_H
#define UNET_NI_VERBS_H

#include "base/counters.h"
#include "unet/mem.h"
#include "unet/ni.h"
#include "unet/verbs/vlink.h"

#define VERBS_WAKE_FDS 2 /* most descriptors that a driver sleeps on */

struct vlink;

/* One process's view of a channel. */
struct ni_verbs {
        struct unet_chan base;
        struct vlink *link;
        uint32_t chan;
        struct unet_mem tx; /* frames that sends name */
};

/*
 * Maps a link; the descriptors stay the caller's and may be closed at once. `ring` is called under
 * the stack's lock, when there is something for another driver, and when a driver has lost its
 * device. 0; -EPROTO: not such memory; -ENOMEM.
 */
int vlink_map(int mem, int book, struct counters *cnt, void (*ring)(void *arg), void *arg,
              struct vlink **out);
/* The driver's queue pair goes with it. */
void vlink_unmap(struct vlink *v);
/* After a fork, in the child: the queue pair is the parent's. */
void vlink_forked(struct vlink *v);

struct vlink_shared *vlink_shared(struct vlink *v);
const struct vlink_book *vlink_book(const struct vlink *v);

/* A queue pair of this process, and what others must know of it. */
struct vlink_qp {
        uint32_t qpn, qkey, mtu;
};
/*
 * Becomes the driver: makes a queue pair on the device that has the link's address, and takes the
 * ring over. `slot` is the process's + 1, or VLINK_KEEPER. Under the stack's lock. 0; -ENOSYS:
 * built without verbs; -ENODEV, -ENETDOWN, -ENOMEM.
 */
int vlink_drive(struct vlink *v, uint32_t slot, struct vlink_qp *out);
/* Returns true if this process is the driver, as far as it has noticed. */
bool vlink_drives(const struct vlink *v);
/* Another is the driver now: our queue pair goes. Under the stack's lock. */
void vlink_yield(struct vlink *v);
/* We are it no more, and nobody is yet: it is rung for another. Under the stack's lock, with
 * nothing received being looked at. */
void vlink_give_up(struct vlink *v);
/* Its device is gone, or going, as unetd says: nobody can drive until it is back. */
bool vlink_away(const struct vlink *v);
/* Where received packets lie; NULL when this process does not drive. */
uint8_t *vlink_rx_frames(const struct vlink *v);
/* Packets are in the ring that the driver has not taken. */
bool vlink_waits(const struct vlink *v);

/* Before sleeping: gives up a device that is lost; asks for events; whoever looks (pending) after
 * this misses nothing. */
void vlink_arm(struct vlink *v);
/* What to sleep on: at most VERBS_WAKE_FDS. Returns how many. */
int vlink_wake_fds(const struct vlink *v, int fd[VERBS_WAKE_FDS]);
bool vlink_owns_fd(const struct vlink *v, int fd);

/* `mtu`: the longest packet that both ends can take; csum: transports must sum. */
void ni_verbs_init(struct ni_verbs *n, struct vlink *v, uint32_t chan, uint32_t mtu, bool csum,
                   struct unet_mem tx);

#endif
