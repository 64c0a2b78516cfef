/* A position in the application's vector of buffers, and copying from and to it. The lock is not
 * held (but in usock_udp.c, where all was touched before). False: a buffer is not there (EFAULT);
 * some bytes may have been copied. */
#ifndef SOCK_CURSOR_H
#define SOCK_CURSOR_H

#include <sys/uio.h>

#include "base/base.h"
#include "base/checksum.h"
#include "base/sockbuf.h"
#include "sock/attach/user.h"

struct cursor {
        const struct iovec *iov;
        size_t off;   /* in iov[0] */
        size_t piece; /* most bytes copied at once, 0: all */
};

static inline size_t cursor_step(const struct cursor *c, size_t n)
{
        size_t k = MIN(n, c->iov->iov_len - c->off);

        return c->piece != 0 ? MIN(k, c->piece) : k;
}

static inline bool copy_in(struct cursor *c, uint8_t *dst, size_t n)
{
        while (n > 0) {
                size_t k = cursor_step(c, n);
                if (unlikely(!user_copy(dst, (const char *)c->iov->iov_base + c->off, k)))
                        return false;
                dst += k;
                n -= k;
                c->off += k;
                if (c->off == c->iov->iov_len && n > 0)
                        c->iov++, c->off = 0;
        }
        return true;
}

/* As copy_in(), and adds the sum of the bytes, as they lie at dst. */
static inline bool copy_in_sum(struct cursor *c, uint8_t *dst, size_t n, uint32_t *sum)
{
        for (size_t at = 0; at < n;) {
                size_t k = cursor_step(c, n - at);
                uint32_t piece = 0;
                if (unlikely(!user_copy_in_sum(dst + at, (const char *)c->iov->iov_base + c->off, k,
                                               &piece)))
                        return false;
                *sum = csum_append(*sum, at, piece);
                at += k;
                c->off += k;
                if (c->off == c->iov->iov_len && at < n)
                        c->iov++, c->off = 0;
        }
        return true;
}

/* As copy_in(), and all that is done is that the bytes are there. */
static inline bool touch_in(struct cursor c, size_t n)
{
        while (n > 0) {
                size_t k = cursor_step(&c, n);
                if (unlikely(!user_read_range((const char *)c.iov->iov_base + c.off, k)))
                        return false;
                n -= k;
                c.off += k;
                if (c.off == c.iov->iov_len && n > 0)
                        c.iov++, c.off = 0;
        }
        return true;
}

static inline bool copy_out(struct cursor *c, const uint8_t *src, size_t n)
{
        while (n > 0) {
                size_t k = cursor_step(c, n);
                if (unlikely(!user_copy((char *)c->iov->iov_base + c->off, src, k)))
                        return false;
                src += k;
                n -= k;
                c->off += k;
                if (c->off == c->iov->iov_len && n > 0)
                        c->iov++, c->off = 0;
        }
        return true;
}

/* The first n bytes of the spans. */
static inline bool copy_spans(struct cursor *c, const struct span *span, size_t n)
{
        for (int i = 0; n > 0; i++) {
                size_t k = MIN(n, span[i].len);
                if (unlikely(!copy_out(c, span[i].ptr, k)))
                        return false;
                n -= k;
        }
        return true;
}

#endif
