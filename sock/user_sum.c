/* user.h: copies that sum what they copy. */
#include <stdatomic.h>

#include "netstack/checksum.h"
#include "sock/user.h"

#if defined(__x86_64__)

#define WIDE_MIN 256u                   /* bytes from which it is quicker */
#define WIDE_MAX 65536u
#define WIDE     32u

bool user_sum_wide(void *to, const void *from, size_t n, uint64_t sum[4], uint64_t high[4]) __attribute__((visibility("hidden")));

/* Found once; whoever races here finds the same. */
static bool is_wide(void)
{
        static _Atomic int found;
        int is = atomic_load_explicit(&found, memory_order_relaxed);

        if (unlikely(is == 0)) {
                is = csum_impl(1) != NULL ? 1 : -1;     /* AVX2 */
                atomic_store_explicit(&found, is, memory_order_relaxed);
        }
        return is > 0;
}

/*
 * The true sum of all words is s + k * 2^64, and 2^64 is 1 to the checksum. h * 2^48 is the same sum but for what lies below the
 * words' highest 16 bits, which makes it too small by less than 1 a word and column, and for the averages, which make it too large by
 * at most 12 for eight. Of 64 KB that is less than 4 * 2048 and 4 * 3072, and half of 2^16 is more: k is the nearest.
 */
static uint64_t add_columns(const uint64_t sum[4], const uint64_t high[4], uint64_t before)
{
        unsigned __int128 s = (unsigned __int128)sum[0] + sum[1] + sum[2] + sum[3];
        unsigned __int128 h = (unsigned __int128)(high[0] + high[1] + high[2] + high[3]) << 48;
        uint64_t k = (uint64_t)((h - s + ((uint64_t)1 << 63)) >> 64);
        unsigned __int128 all = s + k + before;

        return (uint64_t)((all & UINT32_MAX) + (all >> 32 & UINT32_MAX) + (uint64_t)(all >> 64));
}

/* The first bytes, *n of them; false as user_copy(). */
static bool sum_wide(void *to, const void *from, size_t *n, uint64_t *sum)
{
        uint64_t column[4], high[4];

        *n &= ~(size_t)(WIDE - 1);
        if (unlikely(!user_sum_wide(to, from, *n, column, high)))
                return false;
        *sum = add_columns(column, high, *sum);
        return true;
}

#else

#define WIDE_MIN SIZE_MAX
#define WIDE_MAX SIZE_MAX
#define WIDE     32u

static bool is_wide(void)
{
        return false;
}

static bool sum_wide(void *to, const void *from, size_t *n, uint64_t *sum)
{
        return false;
}

#endif

/* The last few, less than WIDE. */
static uint64_t sum_rest(const uint8_t *p, size_t n, uint64_t sum)
{
        uint32_t w[2] = {0, 0};

        for (; n >= 4; n -= 4, p += 4) {
                memcpy(&w[0], p, 4);
                sum += w[0];
        }
        if (n != 0) {
                memcpy(&w[1], p, n);
                sum += w[1];
        }
        return sum;
}

static uint32_t fold(uint64_t s)
{
        s = (s & UINT32_MAX) + (s >> 32);
        return (uint32_t)(s + (s >> 32));
}

/* `ours`: the one of the two that is no memory of the application's, which may change between copy and sum. */
static inline bool copy_sum(void *to, const void *from, const void *ours, size_t n, uint32_t *sum)
{
        size_t done = n;
        uint64_t s = *sum;

        if (unlikely(n < WIDE_MIN || n > WIDE_MAX || !is_wide())) {
                if (!user_copy(to, from, n))
                        return false;
                *sum = csum_partial(ours, n, *sum);
                return true;
        }
        if (unlikely(!sum_wide(to, from, &done, &s)))
                return false;
        if (done != n) {
                if (unlikely(!user_copy_short((char *)to + done, (const char *)from + done, (uint32_t)(n - done))))
                        return false;
                s = sum_rest((const uint8_t *)ours + done, n - done, s);
        }
        *sum = fold(s);
        return true;
}

bool user_copy_in_sum(void *to, const void *from, size_t n, uint32_t *sum)
{
        return copy_sum(to, from, to, n, sum);
}

bool user_copy_out_sum(void *to, const void *from, size_t n, uint32_t *sum)
{
        return copy_sum(to, from, from, n, sum);
}
