/*
 * Random numbers. Two generators, both plain values that may lie in shared memory, both seeded by
 * whoever owns them.
 *
 * struct prng, one a stack: what a stranger must not guess (ports, initial sequence numbers, IP
 * ids, hash keys). SipHash-2-4 in counter mode; every PRNG_RATCHET outputs the key is replaced by
 * two of them, so that the state, read later, does not tell what was given out before. Used under
 * the stack's lock; a process that dies inside leaves some state, and any state is a good one.
 *
 * struct prng_fast, for simulators and tests: xoshiro256** (Blackman, Vigna, 2018), the same
 * numbers for the same seed on every machine, no secrecy.
 */
#ifndef BASE_PRNG_H
#define BASE_PRNG_H

#include "base/base.h"
#include "base/siphash.h"

#define PRNG_RATCHET 64u

struct prng {
        struct sip_key key;
        uint64_t count;
};

static inline void prng_init(struct prng *g, const uint8_t seed[16])
{
        *g = (struct prng){.key = sip_key_of(seed)};
}

static inline uint64_t prng_block(struct prng *g)
{
        uint64_t n = ++g->count;

        return siphash24(&g->key, &n, sizeof n);
}

static inline uint64_t prng_u64(struct prng *g)
{
        uint64_t out = prng_block(g);

        if (unlikely(g->count % PRNG_RATCHET == 0)) {
                uint64_t k0 = prng_block(g), k1 = prng_block(g);
                g->key = (struct sip_key){{k0, k1}};
        }
        return out;
}
static inline uint32_t prng_u32(struct prng *g)
{
        return (uint32_t)(prng_u64(g) >> 32);
}
/* 0 <= result < n; n > 0. The bias is below n / 2^64. */
static inline uint32_t prng_below(struct prng *g, uint32_t n)
{
        return (uint32_t)((unsigned __int128)prng_u64(g) * n >> 64);
}
/* n bytes, for the secrets of others. */
static inline void prng_bytes(struct prng *g, void *out, size_t n)
{
        uint8_t *p = out;

        while (n > 0) {
                uint64_t v = prng_u64(g);
                size_t k = MIN(n, sizeof v);
                memcpy(p, &v, k);
                p += k;
                n -= k;
        }
}

struct prng_fast {
        uint64_t s[4];
};

/* The state is the seed spread by splitmix64, as the authors ask; any seed is good, 0 too. */
static inline void prng_fast_init(struct prng_fast *g, uint64_t seed)
{
        for (int i = 0; i < 4; i++) {
                uint64_t z = seed += 0x9e3779b97f4a7c15;
                z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
                z = (z ^ z >> 27) * 0x94d049bb133111eb;
                g->s[i] = z ^ z >> 31;
        }
}

static inline uint64_t prng_fast_u64(struct prng_fast *g)
{
        uint64_t out = sip_rotl(g->s[1] * 5, 7) * 9, t = g->s[1] << 17;

        g->s[2] ^= g->s[0];
        g->s[3] ^= g->s[1];
        g->s[1] ^= g->s[2];
        g->s[0] ^= g->s[3];
        g->s[2] ^= t;
        g->s[3] = sip_rotl(g->s[3], 45);
        return out;
}
static inline uint32_t prng_fast_below(struct prng_fast *g, uint32_t n)
{
        return (uint32_t)((unsigned __int128)prng_fast_u64(g) * n >> 64);
}
/* True `num` times in `den`. */
static inline bool prng_fast_chance(struct prng_fast *g, uint32_t num, uint32_t den)
{
        return prng_fast_below(g, den) < num;
}

#endif
