/*
 * Wrapper `fault`: makes a channel lose, duplicate, reorder, delay and corrupt what is sent through
 * it, in real time, from a seed. For live runs: UNET_FAULT="loss=0.01,seed=7".
 *
 * It acts on the sending side. A lost message counts as sent, its frame as finished with. A delayed
 * one is passed on after `delay_by` more steps, a step being a message sent or a look at the
 * channel, so that it cannot be forgotten; a reordered one after the next one or two. A corrupted
 * one has a bit flipped in the bytes of its descriptor; the frame is the sender's own, may be sent
 * again, and is not touched: a message without such bytes is lost instead.
 */
#ifndef UNET_NI_FAULT_H
#define UNET_NI_FAULT_H

#include "base/counters.h"
#include "unet/link.h"

struct fault_params {
        double loss, duplicate, reorder, delay, corrupt; /* probabilities, 0 .. 1 */
        uint32_t delay_by;                               /* steps; 0: 16 */
        uint64_t seed;
};

/* Reads "key=value,..." with the names above; empty is no fault. 0, or -EINVAL: unknown key, bad
 * number, over
 * 1. */
int fault_parse(const char *spec, struct fault_params *p);

/* A channel before `inner`, which stays the caller's. `cnt` counts LINK_LOST. NULL: no memory. */
struct unet_chan *ni_fault_new(struct unet_chan *inner, const struct fault_params *p,
                               struct counters *cnt);
/* Ends it; what it still holds is passed on as far as there is room. The inner channel goes on. */
void ni_fault_end(struct unet_chan *ch);

/* The same before a raw endpoint's link, ended with it. 0 or -ENOMEM. */
int ni_fault_link(struct link *l, const struct fault_params *p, struct counters *cnt);

#endif
