/* Endpoint pairs over packet sockets at the two ends of a veth pair, for the conformance suite;
 * as root. */
#ifndef TESTS_UNET_PAIR_PACKET_H
#define TESTS_UNET_PAIR_PACKET_H

#include "pair.h"

extern const struct provider packet_providers[];
extern const int npacket_providers;

/* Why there can be none here; NULL: there can. */
const char *packet_pairs_impossible(void);

#endif
