/* A verbs channel as a raw endpoint's link: one peer, over the endpoint's queue pair
 * (verbs_port.h). */
#ifndef UNET_VERBS_CHAN_H
#define UNET_VERBS_CHAN_H

#include "unet/link.h"
#include "unet/verbs/verbs_port.h"

/* Joins the port's channels; messages of the peer are kept from now on. `mtu`: what both sides can
 * take. 0, -ENOMEM, -EEXIST: the peer has a channel already; or why there is no way to its host. */
int verbs_chan_open(struct verbs_port *p, const struct verbs_peer *peer, uint32_t mtu,
                    struct verbs_chan **out);
/* Undoes it, without a word to the peer. */
void verbs_chan_abort(struct verbs_chan *c);

/* Sends `len` bytes at `off` of the port's flat memory as one message, of which `inl` are to be in
 * the descriptor. There is room (verbs_port_room()). Nobody is told that it was sent, but
 * port->retired passes what port->posted is afterwards. */
void verbs_chan_post(struct verbs_chan *c, uint32_t off, uint32_t len, uint32_t inl);

/* As a link that takes over the socket, whose hang-up says that the peer is gone. */
struct link verbs_chan_link(struct verbs_chan *c, int sock);

extern const struct unet_ni_ops verbs_ni_ops;

#endif
