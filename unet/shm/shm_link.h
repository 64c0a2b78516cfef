/*
 * Provider `shm` for raw endpoints and for the switch: shared memory (shm_ring.h) to one peer, in
 * loan mode.
 *
 * Two descriptors go each way when it is set up: the region (ring, control words, frames if any)
 * and the station (bell and transmit part of the segment). The socket they came through stays, for
 * rings and hang-up. Payload is named in one of two ways, chosen by the sender: *flat*, ranges of
 * its station's transmit part, the frame number being a name that the receiver gives back; or
 * *frames* of its region, as between protocol stacks.
 *
 * Everything the peer can write is read once and checked: sequence words against our own position,
 * lengths against the slot, ranges against the memory. Names that come back are handed to the
 * caller of reap unchecked: it has the record.
 */
#ifndef UNET_SHM_LINK_H
#define UNET_SHM_LINK_H

#include <sys/types.h>

#include "base/counters.h"
#include "unet/link.h"
#include "unet/shm/shm_offer.h"
#include "unet/shm/shm_ring.h"
#include "unet/station.h"

#define SHM_LINK_MTU    65536u
#define SHM_LINK_INLINE 212u /* bytes inline beside the largest number of ranges */
static_assert(SHM_LINK_INLINE + sizeof(struct shm_frame_ref) +
                              (UNET_RANGES_MAX - 1) * sizeof(struct unet_range) <=
                      248,
              "fits into a slot");
/* Between two endpoints: no frame of a switch has to hold it. */
#define SHM_PAIR_MTU (SHM_LINK_MTU + SHM_LINK_INLINE)

struct shm_link;

/*
 * Setting up takes two calls on each side, so that one thread can do both sides. The plain pair is
 * make and connect: make creates our region (with room for `geom` frames; all zero: payload lies in
 * the station), what the peer must get is shm_link_mine(), what the peer gave goes to connect,
 * which checks and maps it (it belongs to `uid`) and takes over `sock`. How the two travel is the
 * caller's affair.
 */
int shm_link_make(struct station *st, struct frame_geom geom, struct counters *cnt,
                  struct shm_link **out);
/* Descriptors are the link's, or the station's, until shm_link_sent(). */
struct shm_offer shm_link_mine(const struct shm_link *l);
void shm_link_sent(struct shm_link *l);
/* Descriptors are borrowed. On failure the socket is the caller's. */
int shm_link_connect(struct shm_link *l, int sock, const struct shm_offer *theirs, uid_t uid,
                     struct link *out);

/*
 * The same where both go through the socket itself: offer, then accept.
 *
 * offer makes our region (with room for `geom` frames; all zero: payload lies in the station) and
 * sends it through the connected Unix socket `sock`, which stays the caller's until accept. accept
 * takes the peer's offer, checks and maps it, and takes over the socket, whose hang-up tells that
 * the peer is gone. When either fails the socket stays the caller's and shm_link_abort() frees the
 * rest.
 *
 * `st` and `cnt` must outlive the link. 0 or a negative errno: -EPROTO: the other side speaks
 * something else; -EACCES, -EPERM, -ERANGE, -EINVAL: its memory is not what it must be
 * (unet_memfd_check); -ETIMEDOUT; -EPIPE.
 */
int shm_link_offer(struct station *st, struct frame_geom geom, struct counters *cnt, int sock,
                   struct shm_link **out);
int shm_link_accept(struct shm_link *l, nstime timeout, struct link *out);
void shm_link_abort(struct shm_link *l);

/* The next flush wakes the peer if it sleeps, as if something had been sent. */
void shm_link_nudge(struct shm_link *l);

/* Our frames' memory (geom not zero), for the switch. */
struct unet_mem shm_link_tx_mem(const struct shm_link *l);

#endif
