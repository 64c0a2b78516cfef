/*
 * What every other file uses: time, byte order, addresses, small helpers.
 *
 * Time is nanoseconds in a signed 64-bit integer and is always an argument; nobody below sock/
 * reads a clock. Wire fields have types of their own, so that a forgotten conversion is a compile
 * error and not a bug.
 */
#ifndef BASE_BASE_H
#define BASE_BASE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef int64_t nstime;        /* nanoseconds, monotonic */
#define NSTIME_NEVER INT64_MAX /* a deadline that is off */
#define NS_PER_US    1000LL
#define NS_PER_MS    1000000LL
#define NS_PER_S     1000000000LL

static inline nstime nstime_min(nstime a, nstime b)
{
        return a < b ? a : b;
}

/* Big-endian as on the wire; never compared or added while raw. */
typedef struct {
        uint16_t raw;
} be16;
typedef struct {
        uint32_t raw;
} be32;

static inline uint16_t be16_get(be16 v)
{
        return __builtin_bswap16(v.raw);
}
static inline be16 be16_of(uint16_t v)
{
        return (be16){__builtin_bswap16(v)};
}
static inline uint32_t be32_get(be32 v)
{
        return __builtin_bswap32(v.raw);
}
static inline be32 be32_of(uint32_t v)
{
        return (be32){__builtin_bswap32(v)};
}
/* Numbers in bytes of the wire, at any address; be16_put() takes the low 16 bits. */
static inline uint16_t be16_at(const uint8_t *p)
{
        be16 v;

        memcpy(&v, p, sizeof v);
        return be16_get(v);
}
static inline uint32_t be32_at(const uint8_t *p)
{
        be32 v;

        memcpy(&v, p, sizeof v);
        return be32_get(v);
}
static inline void be16_put(uint8_t *p, uint32_t v)
{
        be16 raw = be16_of((uint16_t)v);

        memcpy(p, &raw, sizeof raw);
}
static inline void be32_put(uint8_t *p, uint32_t v)
{
        be32 raw = be32_of(v);

        memcpy(p, &raw, sizeof raw);
}
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "be16/be32 swap unconditionally");

/*
 * An Internet address of either family, 16 bytes in network order; IPv4 is held v4-mapped
 * (::ffff:a.b.c.d, RFC 4291 §2.5.5.2), so that tables, hashes and comparisons need not know the
 * family. All zero: unspecified.
 */
typedef struct {
        uint64_t w[2];
} ip_addr;

/* In arithmetic, not byte by byte: an address written in pieces and read whole waits for the
 * store buffer. */
static inline ip_addr ip_addr_v4(uint32_t host_order)
{
        return (ip_addr){{0, (uint64_t)be32_of(host_order).raw << 32 | 0xffff0000u}};
}
static inline uint32_t ip_addr_get_v4(ip_addr a) /* host order; only for v4-mapped addresses */
{
        return be32_get((be32){(uint32_t)(a.w[1] >> 32)});
}
static inline bool ip_addr_eq(ip_addr a, ip_addr b)
{
        return a.w[0] == b.w[0] && a.w[1] == b.w[1];
}
static inline bool ip_addr_is_v4(ip_addr a)
{
        return a.w[0] == 0 && (uint32_t)a.w[1] == 0xffff0000u;
}
/* Wildcard: :: or 0.0.0.0. */
static inline bool ip_addr_is_any(ip_addr a)
{
        return a.w[0] == 0 && (a.w[1] == 0 || (ip_addr_is_v4(a) && ip_addr_get_v4(a) == 0));
}

/* The line will be written: it comes over now, and for ourselves alone. The compiler's own prefetch
 * asks for a shared copy unless told of a newer processor, which is worse than nothing. */
static inline void prefetch_write(const void *p)
{
#if defined(__x86_64__)
        __asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
        __builtin_prefetch(p, 1);
#endif
}

#define CACHE_LINE 64

/*
 * For words that the lock's holder alone writes and others look at without the lock: readiness,
 * deadlines, positions in queues. Whole and once, in no order with anything else; on every machine
 * a plain move. What is seen may be a moment old, and two of them may not fit together: who acts on
 * it takes the lock and looks again. The holder himself reads them as any other word. Where order
 * matters the atomics are written out, and the comment says what they order.
 */
#define READ_ONCE(x)     __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)
/* A record of such words, n bytes of them, aligned to four: copied, each of them whole. */
static inline void write_words(void *to, const void *from, size_t n)
{
        for (size_t i = 0; i < n / 4; i++)
                WRITE_ONCE(((uint32_t *)to)[i], ((const uint32_t *)from)[i]);
}
/* The same, zeroed; whole cache lines. Who came to the record before it was used again may still be
 * looking at it. */
static inline void zero_lines(void *to, size_t n)
{
        uint64_t *end = (uint64_t *)to + n / sizeof *end;

        for (uint64_t *w = to; w != end; w += CACHE_LINE / sizeof *w) {
                WRITE_ONCE(w[0], 0);
                WRITE_ONCE(w[1], 0);
                WRITE_ONCE(w[2], 0);
                WRITE_ONCE(w[3], 0);
                WRITE_ONCE(w[4], 0);
                WRITE_ONCE(w[5], 0);
                WRITE_ONCE(w[6], 0);
                WRITE_ONCE(w[7], 0);
        }
}

/* For a function that copies what may be changed meanwhile, and whose caller throws the copy away
 * if it was. No order of atomic words can say that to ThreadSanitizer, so it does not look at this
 * function. The comment beside it says how the caller knows. */
#define READS_TORN __attribute__((no_sanitize("thread")))

#define likely(x)      __builtin_expect(!!(x), 1)
#define unlikely(x)    __builtin_expect(!!(x), 0)
#define ARRAY_LEN(a)   (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)      ((a) < (b) ? (a) : (b))
#define MAX(a, b)      ((a) > (b) ? (a) : (b))
#define ALIGN_UP(n, a) (((n) + (a)-1) / (a) * (a))

/* memcpy() of n bytes, n small, by sixteen; ends that overlap make up for the rest. A length the
 * compiler knows to be bounded makes it write a string move for memcpy(), which takes longer to
 * begin than this takes. */
static inline void copy_short(void *to, const void *from, uint32_t n)
{
        uint8_t *d = (uint8_t *)to;
        const uint8_t *s = (const uint8_t *)from;
        uint64_t head, tail;

        if (likely(n >= 16)) {
                for (uint32_t i = 0; i + 16 < n; i += 16) {
                        memcpy(d + i, s + i, 16);
                        /* Or the loop becomes a call of memcpy(). */
                        __asm__ volatile("" : : : "memory");
                }
                memcpy(d + n - 16, s + n - 16, 16);
        } else if (n >= 8) {
                memcpy(&head, s, 8);
                memcpy(&tail, s + n - 8, 8);
                memcpy(d, &head, 8);
                memcpy(d + n - 8, &tail, 8);
        } else {
                for (uint32_t i = 0; i < n; i++) {
                        d[i] = s[i];
                        __asm__ volatile("" : : : "memory");
                }
        }
}

/* Between two looks at a word that another processor will write. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__)
        __builtin_ia32_pause();
#else
        __asm__ volatile("yield");
#endif
}

#endif
