/* A pair of endpoints joined by the switch of a real unetd (tests/unetd/world.h), which must have
 * been set up. */
#ifndef TESTS_UNET_PAIR_UNETD_H
#define TESTS_UNET_PAIR_UNETD_H

#include "pair.h"

extern const struct provider emul_via_unetd;

#endif
