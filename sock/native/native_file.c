/*
 * The native API: sending a file. The kernel copies from its page cache straight into the frames
 * that will be sent: a reservation, pread(2) into it without the lock, and a commit of what was
 * read.
 */
#include "sock/attach/handle.h"
#include "sock/native/native.h"
#include "sock/usock_stamp.h"

#include <unistd.h>

#define SPANS 8
#define CHUNK 262144u

struct source {
        int fd;
        off_t off;
};

/* What one reservation takes: bytes, 0 at the end of the file, -errno. */
static ssize_t send_chunk(struct usock *s, struct source *from, size_t want, bool more)
{
        struct iovec iov[SPANS];
        struct span span[SPANS];
        uint32_t conn;
        int got, n = 0;
        ssize_t r;

        ustack_lock(s->u);
        got = native_reserve(s, want, span, SPANS);
        conn = usock_rec(s)->conn;
        if (got <= 0) {
                ustack_leave(s->u);
                return got == 0 ? -EAGAIN : got;
        }
        ustack_unlock(s->u);
        for (int left = got; left > 0; left -= (int)span[n++].len)
                iov[n] = (struct iovec){span[n].ptr, span[n].len};
        r = preadv(from->fd, iov, n, from->off);
        if (r < 0)
                r = -errno;
        ustack_lock(s->u);
        native_commit(s, conn, r > 0 ? (size_t)r : 0, more ? MSG_MORE : 0);
        ustack_leave(s->u);
        if (r > 0)
                from->off += r;
        return r;
}

static ssize_t send_all(struct native_slot *n, struct source *from, size_t count)
{
        off_t end = usock_file_end(from->fd);
        nstime deadline = native_deadline(usock_rec(n->us)->sndtimeo);
        size_t done = 0;
        ssize_t r = 0;

        while (done < count) {
                r = send_chunk(n->us, from, MIN(count - done, CHUNK),
                               count - done > CHUNK && from->off + CHUNK < end);
                if (r == -EAGAIN && !usock_nonblock(n->us)) {
                        r = native_wait(n, POLLOUT, deadline);
                        if (r == 0)
                                continue;
                }
                if (r <= 0)
                        break;
                done += (size_t)r;
        }
        return done > 0 ? (ssize_t)done : r;
}

static ssize_t do_sendfile(struct native_slot *n, int fd, off_t *off, size_t count)
{
        struct source from = {fd, off != NULL ? *off : lseek(fd, 0, SEEK_CUR)};
        ssize_t r;

        if (n->us->kind != USOCK_TCP)
                return -EOPNOTSUPP;
        if (from.off < 0)
                return off != NULL ? -EINVAL : -errno;
        r = send_all(n, &from, MIN(count, (size_t)INT32_MAX));
        if (off != NULL)
                *off = from.off;
        else
                lseek(fd, from.off, SEEK_SET);
        return r;
}

ssize_t unet_sendfile(int sock, int fd, off_t *off, size_t n)
{
        struct native_slot *s = native_get(sock);
        ssize_t r = s != NULL ? do_sendfile(s, fd, off, n) : -EBADF;

        if (r > 0 && unlikely(usock_is_stamped(s->us)))
                usock_stamp_sent(s->us, 0);
        return native_done(s, r);
}
