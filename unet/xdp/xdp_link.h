/*
 * A raw endpoint's channel over an AF_XDP socket: to one other Ethernet address, in frames of an Ethernet type of our own.
 *
 *      | to 6 | from 6 | 0x88b5 2 | inline bytes 2 | all bytes 2 | inline bytes | the rest |       numbers big-endian
 *
 * The socket is the channel's alone; frames of others and of other types are dropped and counted. Ethernet loses, and
 * nobody says that the peer is gone.
 */
#ifndef UNET_XDP_LINK_H
#define UNET_XDP_LINK_H

#include "unet/ep.h"
#include "unet/xdp/ni_xdp.h"

#define XDP_LINK_TYPE 0x88b5u           /* IEEE 802, for local experiments */

/* Opens a channel of the endpoint to `peer`. Takes both descriptors on success (see xdp.h). 0, or as ni_xdp_attach() and
 * ep_attach() say. */
int xdp_link_over(struct unet_ep *ep, int xsk, int mem, const uint8_t peer[6], uint32_t *chan);

/* The provider behind such a channel; for tests. */
struct ni_xdp *xdp_link_ni(struct unet_chan *ch);

#endif
