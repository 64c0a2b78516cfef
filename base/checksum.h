/*
 * The Internet checksum (RFC 1071) and its arithmetic.
 *
 * A partial sum is 32 bits of one's complement sum over 16-bit words as they lie in memory; carries
 * may still stand in the upper half. Sums add in any order. The sum of a piece that begins at an
 * odd byte of the whole has its two bytes exchanged before it is added: csum_append() does.
 * csum_finish() gives the field as it goes on the wire. A message that is whole, its checksum field
 * included, finishes as 0.
 *
 * csum_partial() and csum_copy() pick the widest implementation the processor has on their first
 * call.
 */
#ifndef BASE_CHECKSUM_H
#define BASE_CHECKSUM_H

#include "base/base.h"

/* The sum of n bytes at `p` added to `sum`. */
uint32_t csum_partial(const void *p, size_t n, uint32_t sum);
/* The same, while copying the bytes to `dst`, which must not overlap. */
uint32_t csum_copy(void *dst, const void *src, size_t n, uint32_t sum);

#ifdef __x86_64__
/* The same for processors with AVX2 (csum_impl(1)) and at most so many bytes: checksum_copy.S. One
 * of the two may be memory of the application's (sock/attach/user.h): false when that cannot be
 * touched, and nobody looks at what was copied. */
#define CSUM_WIDE_MAX 65536u
bool csum_copy_wide(void *dst, const void *src, size_t n, uint32_t *sum)
        __attribute__((visibility("hidden")));
#endif

static inline uint32_t csum_add(uint32_t a, uint32_t b)
{
        uint32_t s = a + b;

        return s + (s < a);
}
static inline uint16_t csum_fold(uint32_t sum)
{
        sum = (sum & 0xffff) + (sum >> 16);
        return (uint16_t)(sum + (sum >> 16));
}
/* Adds the sum of a piece that begins `at` bytes into the whole. */
static inline uint32_t csum_append(uint32_t sum, size_t at, uint32_t piece)
{
        /* RFC 1071 §2 (B): byte order independence; the fold keeps the carries where the
         * bytes go. */
        return csum_add(sum, at % 2 ? __builtin_bswap16(csum_fold(piece)) : piece);
}
static inline be16 csum_finish(uint32_t sum)
{
        return (be16){(uint16_t)~csum_fold(sum)};
}

/* csum_partial() of the 20 bytes that most IPv4 headers are. */
static inline uint32_t csum_partial20(const uint8_t *p)
{
        uint32_t w[5];
        uint64_t s;

        memcpy(w, p, sizeof w);
        s = (uint64_t)w[0] + w[1] + w[2] + w[3] + w[4];
        return csum_add((uint32_t)s, (uint32_t)(s >> 32));
}

/* The sum of the pseudo header: of RFC 793 (now RFC 9293 §3.1) between two v4 addresses, else of
 * RFC 8200 §8.1. */
static inline uint32_t csum_pseudo(ip_addr src, ip_addr dst, uint8_t proto, uint32_t len)
{
        const be32 tail[2] = {be32_of(len), be32_of(proto)};
        uint64_t s = (uint64_t)tail[0].raw + tail[1].raw;
        bool v4 = ip_addr_is_v4(src);

        /* A v4-mapped address ends in the v4 address; the words before it are left out. */
        s += (src.w[1] >> 32) + (dst.w[1] >> 32);
        if (!v4) {
                s += (uint32_t)src.w[1] + (src.w[0] >> 32) + (uint32_t)src.w[0];
                s += (dst.w[1] & 0xffffffff) + (dst.w[0] >> 32) + (uint32_t)dst.w[0];
        }
        s = (s & 0xffffffff) + (s >> 32);
        return csum_add((uint32_t)s, (uint32_t)(s >> 32));
}

/*
 * How a transport's checksum is checked. Between two systems on one machine the sender may leave
 * the summing to a device that is not there (Linux: CHECKSUM_PARTIAL, over veth). Then the field
 * holds the sum of the pseudo header alone.
 */
enum csum_check { CSUM_UNCHECKED, CSUM_WHOLE, CSUM_WHOLE_OR_PSEUDO };

/* `whole`: the sum over pseudo header and message, its checksum field included. */
static inline bool csum_right(uint32_t whole, be16 field, uint32_t pseudo, enum csum_check how)
{
        return likely(csum_finish(whole).raw == 0) ||
               (how == CSUM_WHOLE_OR_PSEUDO && field.raw == csum_fold(pseudo));
}

/* RFC 1624 eqn. 3: the checksum of a message after one of its words changed. HC' = ~(~HC + ~m
 * + m'). */
static inline be16 csum_update16(be16 sum, be16 from, be16 to)
{
        return csum_finish((uint32_t)(uint16_t)~sum.raw + (uint16_t)~from.raw + to.raw);
}

/* The implementations, for tests and benchmarks: index 0 is portable; NULL past the last this
 * processor can run. */
struct csum_impl {
        const char *name;
        uint32_t (*partial)(const void *p, size_t n, uint32_t sum);
        uint32_t (*copy)(void *dst, const void *src, size_t n, uint32_t sum);
};
const struct csum_impl *csum_impl(unsigned i);

#endif
