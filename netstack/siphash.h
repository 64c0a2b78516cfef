/*
 * SipHash (Aumasson, Bernstein, 2012): a keyed hash that a stranger cannot steer. SipHash-2-4 is the cautious
 * one, for initial sequence numbers and ports; SipHash-1-3 is what hash tables need and takes two thirds of
 * the time.
 *
 * Keys are small and their length is a constant at nearly every call, so all of it is inline.
 */
#ifndef NETSTACK_SIPHASH_H
#define NETSTACK_SIPHASH_H

#include "netstack/base.h"

struct sip_key {
        uint64_t k[2];
};

static inline struct sip_key sip_key_of(const uint8_t secret[16])
{
        struct sip_key key;

        memcpy(&key, secret, sizeof key);
        return key;
}

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

/* SipHash-c-d of n bytes, as published. */
static inline uint64_t siphash_cd(const struct sip_key *key, const void *data, size_t n, int c, int d)
{
        const uint8_t *p = data;
        struct sip_state s = sip_begin(key);
        uint64_t m, last = (uint64_t)n << 56;
        size_t tail = n % 8;

        for (const uint8_t *end = p + (n - tail); p < end; p += 8) {
                memcpy(&m, p, 8);
                sip_word(&s, m, c);
        }
        for (size_t i = 0; i < tail; i++)
                last |= (uint64_t)p[i] << (8 * i);
        sip_word(&s, last, c);
        return sip_end(&s, d);
}

static inline uint64_t siphash24(const struct sip_key *key, const void *data, size_t n)
{
        return siphash_cd(key, data, n, 2, 4);
}
static inline uint64_t siphash13(const struct sip_key *key, const void *data, size_t n)
{
        return siphash_cd(key, data, n, 1, 3);
}

#endif
