/* The rounds of SipHash (siphash.h), for programs that have no C library as well. */
#ifndef BASE_SIP_ROUNDS_H
#define BASE_SIP_ROUNDS_H

#include <stdint.h>

struct sip_key {
        uint64_t k[2];
};

struct sip_state {
        uint64_t v0, v1, v2, v3;
};

static inline uint64_t sip_rotl(uint64_t x, int b)
{
        return x << b | x >> (64 - b);
}

static inline void sip_rounds(struct sip_state *s, int n)
{
        while (n-- > 0) {
                s->v0 += s->v1;
                s->v1 = sip_rotl(s->v1, 13) ^ s->v0;
                s->v0 = sip_rotl(s->v0, 32);
                s->v2 += s->v3;
                s->v3 = sip_rotl(s->v3, 16) ^ s->v2;
                s->v0 += s->v3;
                s->v3 = sip_rotl(s->v3, 21) ^ s->v0;
                s->v2 += s->v1;
                s->v1 = sip_rotl(s->v1, 17) ^ s->v2;
                s->v2 = sip_rotl(s->v2, 32);
        }
}

static inline struct sip_state sip_begin(const struct sip_key *key)
{
        return (struct sip_state){key->k[0] ^ 0x736f6d6570736575, key->k[1] ^ 0x646f72616e646f6d,
                                  key->k[0] ^ 0x6c7967656e657261, key->k[1] ^ 0x7465646279746573};
}

static inline void sip_word(struct sip_state *s, uint64_t m, int c_rounds)
{
        s->v3 ^= m;
        sip_rounds(s, c_rounds);
        s->v0 ^= m;
}

static inline uint64_t sip_end(struct sip_state *s, int d_rounds)
{
        s->v2 ^= 0xff;
        sip_rounds(s, d_rounds);
        return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

#endif
