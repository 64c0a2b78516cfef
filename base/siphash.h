/*
 * SipHash (Aumasson, Bernstein, 2012): a keyed hash that a stranger cannot steer. SipHash-2-4 is
 * the cautious one, for initial sequence numbers and ports; SipHash-1-3 is what hash tables need
 * and takes two thirds of the time.
 *
 * Keys are small and their length is a constant at nearly every call, so all of it is inline.
 */
#ifndef BASE_SIPHASH_H
#define BASE_SIPHASH_H

#include "base/base.h"
#include "base/sip_rounds.h"

static inline struct sip_key sip_key_of(const uint8_t secret[16])
{
        struct sip_key key;

        memcpy(&key, secret, sizeof key);
        return key;
}

/* SipHash-c-d of n bytes, as published. */
static inline uint64_t siphash_cd(const struct sip_key *key, const void *data, size_t n, int c,
                                  int d)
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
