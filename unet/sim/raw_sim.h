/* The simulated link (ni_sim.h) under raw endpoints. Waiting on such an endpoint makes virtual time
 * go on. */
#ifndef UNET_RAW_SIM_H
#define UNET_RAW_SIM_H

#include "unet/ep.h"
#include "unet/sim/ni_sim.h"

/* The side's end as a link, for ep_attach() or a wrapper; the link stays the caller's and outlives
 * the endpoint. */
struct link raw_sim_link(struct unet_ep *ep, struct sim *s, int side);
/* Attaches it. 0 or a negative errno. */
int raw_sim_attach(struct unet_ep *ep, struct sim *s, int side, uint32_t *chan);

#endif
