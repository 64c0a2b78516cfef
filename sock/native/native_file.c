/*
 * The native API: sending a file. The kernel copies from its page cache straight into the frames
 * that will be sent: a reservation, pread(2) into it without the lock, and a commit of what was
 * read.
 */
#include "sock/attach/handle.h"
#include "sock/attach/ustack_wake.h"
#include "sock/native/native.h"
#include "sock/usock_stamp.h"
#include "tcp/tcp_stream.h"

#include <unistd.h>

#define SPANS 8
#define CHUNK 262144u

struct source {
        int fd;
        off_t off;
};

/* `*tc`: what the reservation is of. The socket's may be another one by the commit, after an
 * attempt to connect that failed. */
static int reserve(struct usock *s, size_t want, struct span *span, struct tcp_conn **tc)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        int got = -EAGAIN;

        ustack_lock(u);
        if (rec->role != SOCK_ROLE_CONN) {
                got = -EPIPE;
        } else if (rec->writer == 0) {
                if (stack_pending(&u->s, 0))
                        stack_run(&u->s, ustack_now());
                *tc = usock_conn(s);
                stack_begin(u->s.st, rec->conn);
                got = tcp_send_reserve(&u->s.tcp, *tc, want, span, SPANS);
                stack_end(u->s.st);
                if (got > 0)
                        WRITE_ONCE(rec->writer, u->slot + 1);
        } else {
                got = usock_tcp_awaits_turn(s);
        }
        if (got > 0)
                ustack_unlock(u);
        else
                ustack_leave(u);
        return got == 0 ? -EAGAIN : got;
}

static void commit(struct usock *s, struct tcp_conn *tc, size_t n, bool more)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        nstime now = ustack_now();

        ustack_lock(u);
        WRITE_ONCE(rec->writer, 0);
        now = stack_time(&u->s, now);
        stack_begin(u->s.st, tc->self);
        tcp_send_commit(&u->s.tcp, tc, n, more, false, now);
        stack_end(u->s.st);
        stack_flush(&u->s, now);
        ustack_turn_over(u, rec);
        ustack_leave(u);
}

/* What one reservation takes: bytes, 0 at the end of the file, -errno. */
static ssize_t send_chunk(struct usock *s, struct source *from, size_t want, bool more)
{
        struct iovec iov[SPANS];
        struct span span[SPANS];
        struct tcp_conn *tc = NULL;
        int got = reserve(s, want, span, &tc), n = 0;
        ssize_t r;

        if (got <= 0)
                return got;
        for (int left = got; left > 0; left -= (int)span[n++].len)
                iov[n] = (struct iovec){span[n].ptr, span[n].len};
        r = preadv(from->fd, iov, n, from->off);
        if (r < 0)
                r = -errno;
        commit(s, tc, r > 0 ? (size_t)r : 0, more);
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
        ssize_t r;

        if (s == NULL)
                return native_result(-EBADF);
        r = do_sendfile(s, fd, off, n);
        if (r > 0 && unlikely(usock_is_stamped(s->us)))
                usock_stamp_sent(s->us, 0);
        native_put(s);
        return native_result(r);
}
