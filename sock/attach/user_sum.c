/* user.h: a copy that sums what it copies. */
#include <stdatomic.h>

#include "base/checksum.h"
#include "sock/attach/user.h"

#if defined(__x86_64__)

#define WIDE_MIN 256u /* bytes from which it is quicker */
#define WIDE_MAX CSUM_WIDE_MAX

/* Found once; whoever races here finds the same. */
static bool is_wide(void)
{
        static _Atomic int found;
        int is = atomic_load_explicit(&found, memory_order_relaxed);

        if (unlikely(is == 0)) {
                is = csum_impl(1) != NULL ? 1 : -1; /* AVX2 */
                atomic_store_explicit(&found, is, memory_order_relaxed);
        }
        return is > 0;
}

#else

#define WIDE_MIN SIZE_MAX
#define WIDE_MAX SIZE_MAX

static bool is_wide(void)
{
        return false;
}

static bool csum_copy_wide(void *to, const void *from, size_t n, uint32_t *sum)
{
        return false;
}

#endif

bool user_copy_in_sum(void *to, const void *from, size_t n, uint32_t *sum)
{
        if (likely(n >= WIDE_MIN && n <= WIDE_MAX && is_wide()))
                return csum_copy_wide(to, from, n, sum);
        if (!user_copy(to, from, n))
                return false;
        *sum = csum_partial(to, n, *sum); /* the application's may have changed */
        return true;
}
