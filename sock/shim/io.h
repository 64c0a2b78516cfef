/*
 * Bytes in and out, for recv.c and send.c; nobody else includes it. A connection of ours in the
 * common case is one usock call between enter and leave; what has to wait, and sockets with two
 * sides, take a longer road.
 */
#ifndef SOCK_SHIM_IO_H
#define SOCK_SHIM_IO_H

#include "sock/shim/shim.h"
#include "sock/shim/signals.h"

#include <limits.h>

static inline bool io_may_wait(const struct file *f, int flags)
{
        return !file_nonblock(f) && !(flags & MSG_DONTWAIT);
}

/* SIGPIPE before the call returns, as the kernel has it, with nothing of ours held. */
static inline bool io_again(ssize_t *r, int flags)
{
        if (likely(*r >= 0))
                return false;
        if (*r == -EPIPE && !(flags & MSG_NOSIGNAL))
                raise_sigpipe();
        return result_failed(r);
}

/* The program's vector. If it cannot be read, or is longer than any may be, the kernel says so. */
static inline bool io_vector_readable(const struct iovec *iov, size_t n)
{
        return n <= IOV_MAX && user_read_range(iov, n * sizeof(*iov));
}

/* What preadv2() and pwritev2() may ask for; of that only one is about sockets. */
#define IO_RWF (RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND)

static inline int io_rwf_flags(int flags)
{
        return flags & RWF_NOWAIT ? MSG_DONTWAIT : 0;
}

/* read(), readv() and writev() of nothing ask nobody, as SYS5 has it; recv() of nothing waits, and
 * send() and write() of nothing say what they would of something. */
static inline bool io_vector_is_empty(const struct iovec *iov, int n)
{
        for (int i = 0; i < n; i++)
                if (iov[i].iov_len != 0)
                        return false;
        return true;
}

/* A place for a name may be longer than any name, and not of less than nothing. */
static inline bool io_take_namelen(struct msghdr *m)
{
        if (m->msg_name && (int)m->msg_namelen < 0)
                return false;
        m->msg_namelen = MIN(m->msg_namelen, (socklen_t)sizeof(struct sockaddr_storage));
        return true;
}

/* The program's header of a message, with what it points to. If it cannot be read, or is wrong, the
 * kernel says so. */
static inline bool io_take_header(struct msghdr *to, const struct msghdr *from)
{
        return user_copy(to, from, sizeof(*to)) && io_take_namelen(to) &&
               io_vector_readable(to->msg_iov, to->msg_iovlen);
}

#endif
