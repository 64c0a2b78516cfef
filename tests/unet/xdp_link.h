/*
 * A raw endpoint's channel over an AF_XDP socket: to one other Ethernet address, in frames of
 * ether_msg.h. The endpoint suite runs over it.
 *
 * The socket is the channel's alone; frames of others and of other types are dropped and counted.
 */
#ifndef TESTS_UNET_XDP_LINK_H
#define TESTS_UNET_XDP_LINK_H

#include "tests/unet/ether_msg.h"
#include "unet/ep.h"
#include "unet/xdp/ni_xdp.h"

/* Opens a channel of the endpoint to `peer`. Takes both descriptors on success (see xdp.h). 0, or
 * as ni_xdp_attach() and ep_attach() say. */
int xdp_link_over(struct unet_ep *ep, int xsk, int mem, const uint8_t peer[6], uint32_t *chan);

/* The provider behind such a channel. */
struct ni_xdp *xdp_link_ni(struct unet_chan *ch);

#endif
