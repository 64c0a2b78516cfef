/* Endpoint pairs over AF_XDP sockets at the two ends of a veth pair, for the conformance suite;
 * as root. */
#ifndef TESTS_UNET_PAIR_XDP_H
#define TESTS_UNET_PAIR_XDP_H

#include "pair.h"

extern const struct provider xdp_providers[];
extern const int nxdp_providers;

/* Why there can be none here; NULL: there can. */
const char *xdp_pairs_impossible(void);

#endif
