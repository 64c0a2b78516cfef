/* A position in the application's vector of buffers, and copying from and to it. The lock is not held. */
#ifndef SOCK_CURSOR_H
#define SOCK_CURSOR_H

#include <sys/uio.h>

#include "netstack/base.h"
#include "netstack/sockbuf.h"

struct cursor {
        const struct iovec *iov;
        size_t off;                     /* in iov[0] */
};

static inline void copy_in(struct cursor *c, uint8_t *dst, size_t n)
{
        while (n > 0) {
                size_t k = MIN(n, c->iov->iov_len - c->off);
                memcpy(dst, (const char *)c->iov->iov_base + c->off, k);
                dst += k;
                n -= k;
                c->off += k;
                if (c->off == c->iov->iov_len && n > 0)
                        c->iov++, c->off = 0;
        }
}

static inline void copy_out(struct cursor *c, const uint8_t *src, size_t n)
{
        while (n > 0) {
                size_t k = MIN(n, c->iov->iov_len - c->off);
                memcpy((char *)c->iov->iov_base + c->off, src, k);
                src += k;
                n -= k;
                c->off += k;
                if (c->off == c->iov->iov_len && n > 0)
                        c->iov++, c->off = 0;
        }
}

/* The first n bytes of the spans. */
static inline void copy_spans(struct cursor *c, const struct span *span, size_t n)
{
        for (int i = 0; n > 0; i++) {
                size_t k = MIN(n, span[i].len);
                copy_out(c, span[i].ptr, k);
                n -= k;
        }
}

#endif
