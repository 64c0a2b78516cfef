/*
 * The Internet checksum, portable and with AVX2. The one keeps sums of 32-bit words in 64 bits,
 * which cannot overflow before 2^32 words, the other sums of 16-bit words in 32-bit lanes; both
 * fold at the end: one's complement addition does not care about order or width (RFC 1071 §2 (B),
 * (C)).
 */
#include "base/checksum.h"

#include <stdatomic.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

static uint32_t fold64(uint64_t s)
{
        s = (s & 0xffffffff) + (s >> 32);
        return (uint32_t)(s + (s >> 32));
}

/* The last n < 8 bytes, as if zeros followed. */
static uint64_t tail_word(const uint8_t *p, size_t n)
{
        uint64_t w = 0;

        memcpy(&w, p, n);
        return w;
}

static uint64_t add_word(uint64_t sum, uint64_t w)
{
        sum += w;
        /* What is carried out at the top comes in at the bottom (RFC 1071 §2). */
        return sum + (sum < w);
}

static uint64_t sum_words(const uint8_t *p, size_t n, uint64_t sum)
{
        uint64_t w[4];

        for (; n >= 32; n -= 32, p += 32) {
                memcpy(w, p, sizeof w);
                sum = add_word(add_word(add_word(add_word(sum, w[0]), w[1]), w[2]), w[3]);
        }
        for (; n >= 8; n -= 8, p += 8) {
                memcpy(w, p, 8);
                sum = add_word(sum, w[0]);
        }
        return n == 0 ? sum : add_word(sum, tail_word(p, n));
}

static uint64_t copy_words(uint8_t *dst, const uint8_t *src, size_t n, uint64_t sum)
{
        uint64_t w[4];

        for (; n >= 32; n -= 32, src += 32, dst += 32) {
                memcpy(w, src, sizeof w);
                memcpy(dst, w, sizeof w);
                sum = add_word(add_word(add_word(add_word(sum, w[0]), w[1]), w[2]), w[3]);
        }
        for (; n >= 8; n -= 8, src += 8, dst += 8) {
                memcpy(w, src, 8);
                memcpy(dst, w, 8);
                sum = add_word(sum, w[0]);
        }
        w[0] = tail_word(src, n);
        memcpy(dst, w, n);
        return add_word(sum, w[0]);
}

static uint32_t partial_portable(const void *p, size_t n, uint32_t sum)
{
        return fold64(sum_words(p, n, sum));
}

static uint32_t copy_portable(void *dst, const void *src, size_t n, uint32_t sum)
{
        return fold64(copy_words(dst, src, n, sum));
}

#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2")))

#define BLOCK ((size_t)1 << 20) /* bytes at a time: the 32-bit lanes stay within +-2^30 */
#define STEP  256u              /* bytes a turn of the loop, which costs as much as one vector */

/*
 * 32 bytes: their 16-bit words in pairs, three instructions. The pairs are summed as signed words,
 * so each has 2^15 taken off first, which is put back at the end.
 */
AVX2 static inline __m256i add_vector(__m256i sum, __m256i v)
{
        const __m256i half = _mm256_set1_epi16(INT16_MIN), one = _mm256_set1_epi16(1);

        return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_xor_si256(v, half), one));
}

AVX2 static inline __m256i load(const uint8_t *p)
{
        return _mm256_loadu_si256((const __m256i *)p);
}

AVX2 static inline uint64_t add_lanes(__m256i a, __m256i b, size_t bytes)
{
        __m256i ab = _mm256_add_epi32(a, b);
        int64_t lane[4], back = (int64_t)(bytes / 2) << 15;

        ab = _mm256_add_epi64(_mm256_cvtepi32_epi64(_mm256_castsi256_si128(ab)),
                              _mm256_cvtepi32_epi64(_mm256_extracti128_si256(ab, 1)));
        _mm256_storeu_si256((__m256i *)lane, ab);
        return (uint64_t)(lane[0] + lane[1] + lane[2] + lane[3] + back);
}

AVX2 static uint64_t block_avx2(const uint8_t *p, size_t n)
{
        const uint8_t *end = p + n;
        __m256i a = _mm256_setzero_si256(), b = a;

        for (; (size_t)(end - p) >= STEP; p += STEP) {
                a = add_vector(add_vector(a, load(p)), load(p + 64));
                b = add_vector(add_vector(b, load(p + 32)), load(p + 96));
                a = add_vector(add_vector(a, load(p + 128)), load(p + 192));
                b = add_vector(add_vector(b, load(p + 160)), load(p + 224));
        }
        for (; p != end; p += 32)
                a = add_vector(a, load(p));
        return add_lanes(a, b, n);
}

AVX2 static uint32_t partial_avx2(const void *p, size_t n, uint32_t sum)
{
        const uint8_t *q = p;
        uint64_t s = sum;

        for (size_t k; n >= 32; n -= k, q += k) {
                k = MIN(n, BLOCK) & ~(size_t)31;
                s += block_avx2(q, k);
        }
        return fold64(sum_words(q, n, s));
}

static uint32_t copy_avx2(void *dst, const void *src, size_t n, uint32_t sum)
{
        const uint8_t *q = src;
        uint8_t *d = dst;

        for (size_t k; n != 0; n -= k, q += k, d += k) {
                k = MIN(n, CSUM_WIDE_MAX);
                csum_copy_wide(d, q, k, &sum);
        }
        return sum;
}

static bool have_avx2(void)
{
        __builtin_cpu_init();
        return __builtin_cpu_supports("avx2");
}
#endif

const struct csum_impl *csum_impl(unsigned i)
{
        static const struct csum_impl portable = {"portable", partial_portable, copy_portable};

        if (i == 0)
                return &portable;
#ifdef __x86_64__
        static const struct csum_impl avx2 = {"avx2", partial_avx2, copy_avx2};

        if (i == 1 && have_avx2())
                return &avx2;
#endif
        return NULL;
}

/* The best one, found once. Whoever races here finds the same answer. No constructor: this is in a
 * preloaded library. */
static const struct csum_impl *best(void)
{
        static _Atomic(const struct csum_impl *) found;
        const struct csum_impl *impl = atomic_load_explicit(&found, memory_order_relaxed);

        if (unlikely(impl == NULL)) {
                impl = csum_impl(1) != NULL ? csum_impl(1) : csum_impl(0);
                atomic_store_explicit(&found, impl, memory_order_relaxed);
        }
        return impl;
}

#define FEW 128u /* bytes, for which words are quicker than vectors */

uint32_t csum_partial(const void *p, size_t n, uint32_t sum)
{
        return n < FEW ? partial_portable(p, n, sum) : best()->partial(p, n, sum);
}

uint32_t csum_copy(void *dst, const void *src, size_t n, uint32_t sum)
{
        return n < FEW ? copy_portable(dst, src, n, sum) : best()->copy(dst, src, n, sum);
}
