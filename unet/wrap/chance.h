/* Probabilities given as 0 .. 1, drawn from the fast generator. */
#ifndef UNET_CHANCE_H
#define UNET_CHANCE_H

#include "base/prng.h"

/* True with probability p. One draw, whatever p is, so that one setting does not shift
 * another's draws. */
static inline bool chance(struct prng_fast *g, double p)
{
        return (double)(prng_fast_u64(g) >> 11) < p * 0x1p53;
}

/* 0 .. n, evenly. */
static inline uint64_t chance_upto(struct prng_fast *g, uint64_t n)
{
        return (uint64_t)((unsigned __int128)prng_fast_u64(g) * (n + 1) >> 64);
}

#endif
