/*
 * Datagrams and SO_PEEK_OFF: each peek goes on where the last one ended, by bytes over all that is
 * queued; it shows of one datagram at most, and what is read moves the offset back.
 *
 * A later datagram than the first is looked at under the lock. It is copied without, as ever, and
 * others may read meanwhile; if one has, it is begun anew.
 */
#include "sock/attach/ustack.h"

#include <errno.h>

#include "sock/attach/cursor.h"
#include "sock/attach/handle.h"
#include "sock/udp/usock_cmsg.h"
#include "sock/udp/usock_udp.h"

/* SO_PEEK_OFF: the datagram in which the offset lies, and how far in; the first one's place with
 * it, by which it is known whether anything was read meanwhile. 1, or as udp_recv_peek(). Under
 * the lock. */
static int find_offset(struct usock *s, struct udp_msg *msg, size_t *off, uint64_t *head)
{
        struct ustack *u = s->u;
        const struct sock_rec *rec = usock_rec(s);
        struct udp_sight first;
        int got;

        assert(ustack_locked(s->u));
        if (stack_pending(&u->s, 0))
                stack_run(&u->s, ustack_now());
        *off = usock_peek_from(rec, MSG_PEEK);
        for (uint32_t skip = 0;; skip++) {
                got = udp_recv_peek(&u->s.udp, rec->conn, skip, msg, 1);
                if (got <= 0 || *off < msg->len || *off + msg->len == 0)
                        break;
                *off -= msg->len;
        }
        if (got <= 0)
                return got == 0 ? -EAGAIN : got;
        if (!udp_recv_look(&u->s.udp, rec->conn, &first) ||
            stack_chan_peek(&u->s, msg->chan) == NULL)
                return -EAGAIN;
        *head = first.head;
        return 1;
}

/* After the copy. False: what was copied may have been read, and its memory be another's. */
static bool still_there(struct usock *s, uint64_t head, size_t copied)
{
        struct sock_rec *rec = usock_rec(s);
        struct udp_sight first;
        bool there;

        ustack_lock(s->u);
        there = udp_recv_look(&s->u->s.udp, rec->conn, &first) && first.head == head;
        if (there)
                usock_peek_moves(rec, MSG_PEEK, copied);
        ustack_leave(s->u);
        return there;
}

/* Bytes from `off` on, n of them. */
static bool copy_from(const struct iovec *iov, const struct udp_msg *msg, size_t off, size_t n)
{
        struct cursor c = {iov, 0, 0};
        bool good = true;

        for (int i = 0; i < msg->nspan && n > 0 && good; i++) {
                size_t skip = MIN(off, msg->span[i].len), k = MIN(n, msg->span[i].len - skip);

                good = copy_out(&c, msg->span[i].ptr + skip, k);
                off -= skip;
                n -= k;
        }
        return good;
}

ssize_t usock_udp_peek_on(struct usock *s, const struct iovec *iov, size_t total, int flags,
                          struct msghdr *m)
{
        struct udp_msg msg;
        uint64_t head;
        size_t off, n;
        bool good;
        int got;

        do {
                ustack_lock(s->u);
                got = find_offset(s, &msg, &off, &head);
                ustack_leave(s->u);
                if (got <= 0)
                        return got;
                n = MIN(total, msg.len - off);
                good = copy_from(iov, &msg, off, n);
        } while (!still_there(s, head, flags & MSG_TRUNC ? msg.len : n));
        if (m != NULL) {
                msg.nopts = 0;
                good &= m->msg_name == NULL ||
                        usock_addr_out(s->family, msg.src, msg.sport, m->msg_name, &m->msg_namelen);
                m->msg_flags = flags & MSG_CMSG_CLOEXEC;
                if (total <= msg.len - off &&
                    total < msg.len) /* as Linux: of a later part, its end may be said to be cut */
                        m->msg_flags |= MSG_TRUNC;
                if (READ_ONCE(usock_rec(s)->told) != 0)
                        usock_cmsg_put(s, &msg, 0, m);
                else
                        m->msg_controllen = 0;
        }
        return good ? (ssize_t)(flags & MSG_TRUNC ? msg.len : n) : -EFAULT;
}

void usock_udp_read_before(struct usock *s, size_t n)
{
        ustack_lock(s->u);
        usock_peek_moves(usock_rec(s), 0, n);
        ustack_leave(s->u);
}
