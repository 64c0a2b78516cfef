/*
 * getsockopt() of TCP_ZEROCOPY_RECEIVE, as Linux answers where it can map nothing: what came lies
 * in the peer's frames or among other packets, and not in pages of its own. `length` is 0, and
 * recv_skip_hint is what the program is to read, as of data that does not fill pages. What fits
 * into the copy buffer is copied there.
 */
#include "sock/attach/handle.h"
#include "sock/opt/usock_opt.h"
#include "tcp/tcp_stream.h"

#include <errno.h>
#include <linux/tcp.h>

#include "sock/attach/user.h"

#define PAGE            4096u
#define VALID_MSG_FLAGS 2u /* TCP_CMSG_TS */

#define UP_TO(field)                                    \
        (offsetof(struct tcp_zerocopy_receive, field) + \
         sizeof((struct tcp_zerocopy_receive *)NULL)->field)

/* A later Linux may have more members, which must be 0. */
static int none_beyond(const uint8_t *p, size_t n)
{
        uint8_t b[256];

        for (size_t piece; n > 0; n -= piece, p += piece) {
                piece = MIN(n, sizeof b);
                if (!user_copy(b, p, piece))
                        return -EFAULT;
                for (size_t i = 0; i < piece; i++)
                        if (b[i] != 0)
                                return -EINVAL;
        }
        return 0;
}

/* What Linux looks at before it looks at the socket. *len becomes what is copied, both ways. */
static int read_asked(struct tcp_zerocopy_receive *z, const void *val, socklen_t *len)
{
        socklen_t n = *len;
        int err;

        if ((int)n < 0 || n < UP_TO(length))
                return -EINVAL;
        err = none_beyond((const uint8_t *)val + sizeof *z, n > sizeof *z ? n - sizeof *z : 0);
        if (err != 0)
                return err;
        n = MIN(n, sizeof *z);
        if (!user_copy(z, val, n))
                return -EFAULT;
        *len = n;
        return z->reserved != 0 || z->msg_flags & ~VALID_MSG_FLAGS ? -EINVAL : 0;
}

/* Bytes that can be read. *end: no more will come. */
static int look(struct usock *s, int *inq, bool *end)
{
        struct ustack *u = s->u;
        int err = 0;

        ustack_lock(u);
        usock_tcp_settle(s);
        ustack_catch_up(u);
        *inq = 0;
        *end = false;
        if (usock_rec(s)->role == SOCK_ROLE_LISTENER) {
                err = -ENOTCONN;
        } else if (usock_rec(s)->role == SOCK_ROLE_CONN) {
                *inq = (int)tcp_recv_inq(usock_conn(s));
                *end = tcp_recv_eof(usock_conn(s));
        }
        ustack_leave(u);
        return err;
}

static int take_error(struct usock *s)
{
        int err = 0;

        ustack_lock(s->u);
        if (usock_rec(s)->role == SOCK_ROLE_CONN) {
                err = usock_conn(s)->err;
                WRITE_ONCE(usock_conn(s)->err, 0);
        }
        ustack_leave(s->u);
        return -err;
}

static int copy_all(struct usock *s, struct tcp_zerocopy_receive *z, int inq)
{
        struct iovec iov = {(void *)(uintptr_t)z->copybuf_address, (size_t)inq};
        ssize_t r = usock_tcp_recv(s, &iov, 1, (size_t)inq, MSG_DONTWAIT, NULL);

        if (r < 0)
                return (int)r;
        z->recv_skip_hint = 0;
        z->copybuf_len = (int)r;
        return 0;
}

static int receive(struct usock *s, struct tcp_zerocopy_receive *z)
{
        int room = z->copybuf_len, inq, err;
        bool end;

        z->copybuf_len = 0;
        z->msg_flags = 0;
        if (z->address % PAGE != 0)
                return -EINVAL;
        err = look(s, &inq, &end);
        if (err != 0)
                return err;
        z->length = 0;
        if (inq != 0 && inq <= room)
                return copy_all(s, z, inq);
        z->recv_skip_hint = (uint32_t)inq;
        return inq == 0 && end ? -EIO : 0;
}

/* Linux tells these of a structure that ends with a field that there has been a version of. */
static bool tells_error(socklen_t n)
{
        return n == UP_TO(err) || n == UP_TO(copybuf_address) || n == UP_TO(copybuf_len) ||
               n == UP_TO(flags) || n == UP_TO(msg_control) || n == UP_TO(msg_controllen) ||
               n >= UP_TO(msg_flags);
}

static void tell_state(struct usock *s, struct tcp_zerocopy_receive *z, socklen_t n)
{
        bool end;
        int inq;

        if (tells_error(n))
                z->err = take_error(s);
        if ((tells_error(n) || n == UP_TO(inq)) && look(s, &inq, &end) == 0)
                z->inq = (uint32_t)inq + (inq == 0 && end); /* as TCP_INQ: the end is one more */
}

int usock_zerocopy_receive(struct usock *s, void *val, socklen_t *len)
{
        struct tcp_zerocopy_receive z = {.reserved = 0};
        socklen_t n = *len;
        int err = read_asked(&z, val, &n);

        if (err == 0 && n != *len && !user_put32(len, n))
                return -EFAULT;
        if (err == 0)
                err = receive(s, &z);
        if (err != 0)
                return err;
        tell_state(s, &z, n);
        return user_copy(val, &z, n) ? 0 : -EFAULT;
}
