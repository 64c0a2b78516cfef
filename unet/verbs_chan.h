/* A verbs channel as a raw endpoint's link: one peer, over the endpoint's queue pair (verbs_port.h). */
#ifndef UNET_VERBS_CHAN_H
#define UNET_VERBS_CHAN_H

#include "unet/link.h"
#include "unet/verbs_port.h"

/* Joins the port's channels; messages of the peer are kept from now on. `mtu`: what both sides can take. 0, -ENOMEM,
 * -EEXIST: the peer has a channel already; or why there is no way to its host. */
int verbs_chan_open(struct verbs_port *p, const struct verbs_peer *peer, uint32_t mtu, struct verbs_chan **out);
/* Undoes it, without a word to the peer. */
void verbs_chan_abort(struct verbs_chan *c);

/* As a link that takes over the socket, whose hang-up says that the peer is gone. */
struct link verbs_chan_link(struct verbs_chan *c, int sock);

extern const struct unet_ni_ops verbs_ni_ops;

#endif
