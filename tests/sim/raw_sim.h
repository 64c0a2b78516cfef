/* The simulated link (ni_sim.h) under raw endpoints. Waiting on such an endpoint makes virtual time
 * go on. */
#ifndef TESTS_SIM_RAW_SIM_H
#define TESTS_SIM_RAW_SIM_H

#include "unet/ep.h"
#include "tests/sim/ni_sim.h"

/* Attaches the side's end, which stays the caller's and outlives the endpoint. 0 or a negative
 * errno. */
int raw_sim_attach(struct unet_ep *ep, struct sim *s, int side, uint32_t *chan);

#endif
