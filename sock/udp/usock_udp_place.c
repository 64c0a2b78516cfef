/*
 * Datagrams over an RDMA device: each is put together where the channel copies it from, headers in
 * front (unet_ni_ops.place), and needs no frame. Several of one call, sendmmsg()'s or
 * UDP_SEGMENT's, leave in one turn of the lock and behind one doorbell.
 *
 * That is done under the lock, so what is not there is waited for before: bytes whose pages are
 * taken away again at this very moment hold up the stack as others that swap do, or fail the copy,
 * and then the datagram is not sent.
 */
#include "sock/attach/handle.h"
#include "sock/attach/ustack.h"

#include <errno.h>

#include "sock/udp/usock_udp.h"

#define STRAIGHT (MSG_DONTWAIT | MSG_NOSIGNAL) /* with other flags they are sent as ever */

/* Without the lock: the channel may be another one by the time it is taken. */
static size_t longest(const struct ustack *u, const struct udp_dest *d)
{
        const struct unet_caps *caps = &u->s.chan[d->chan].caps;

        return READ_ONCE(caps->copied) ? READ_ONCE(caps->mtu) - STACK_UDP_ROOM : 0;
}

/* Plain, and in one packet. */
static bool is_plain(const struct udp_dest *d)
{
        return (d->many | UDP_MORE) == UDP_MORE && (d->sent == NULL || d->sent->opts.len == 0);
}

/* Under the lock, as all below: the channel, if datagrams of n bytes can be put together there. */
static struct unet_chan *place_of(struct ustack *u, const struct udp_dest *d, size_t n)
{
        assert(ustack_locked(u));
        if (unlikely(stack_chan_get(&u->s, d->chan) == NULL || n > longest(u, d) ||
                     u->s.chan[d->chan].ch->ops->place == NULL))
                return NULL;
        return u->s.chan[d->chan].ch;
}

/* -E2BIG: it is to go in a frame, and to wait there. */
static int place_one(struct usock *s, const struct udp_dest *d, struct unet_chan *ch,
                     struct cursor *c, size_t n)
{
        struct stack_payload pay = {.len = (uint32_t)n, .summed = ch->caps.csum};
        uint8_t *at;

        if (unlikely(ch->ops->room(ch) == 0))
                return -E2BIG;
        pay.room = ch->ops->place(ch);
        pay.inl = at = pay.room + STACK_UDP_ROOM;
        if (unlikely(!(pay.summed ? copy_in_sum(c, at, n, &pay.sum) : copy_in(c, at, n))))
                return -EFAULT;
        return usock_udp_post(s, d, &pay);
}

size_t usock_udp_place(struct usock *s, const struct udp_dest *to, struct cursor *c, size_t total,
                       size_t segment, int *err)
{
        size_t some = MIN(total, segment * UDP_BATCH), done = 0;
        struct cursor from = *c;
        struct udp_dest d = *to;
        struct unet_chan *ch;

        *err = 0;
        segment = MIN(segment, some);
        if (unlikely(segment > longest(s->u, to) || !is_plain(to)))
                return 0;
        if (unlikely(!touch_in(from, some))) {
                *err = -EFAULT;
                return 0;
        }
        ustack_lock(s->u);
        ch = place_of(s->u, to, segment);
        *err = ch != NULL ? 0 : -E2BIG;
        while (done < some && *err == 0) {
                size_t n = MIN(segment, some - done);
                d.many = done + n < some ? to->many | UDP_MORE : to->many;
                *err = place_one(s, &d, ch, &from, n);
                if (likely(*err == 0)) {
                        done += n;
                        *c = from;
                }
        }
        if (unlikely(*err != 0 && done != 0))
                stack_flush_bells(&s->u->s);
        if (d.many == UDP_MORE) /* what follows, or is to ring the bell, leaves */
                ustack_unlock(s->u);
        else
                ustack_leave(s->u);
        if (*err == -E2BIG)
                *err = 0;
        return done;
}

/* ---- sendmmsg() ---- */

/* False: another shape than most, or it cannot be read; somebody else will say so. */
static bool prepare(struct mmsghdr *v, size_t most, struct iovec *iov)
{
        struct msghdr m;

        return user_copy(&m, &v->msg_hdr, sizeof m) && (m.msg_name == NULL || m.msg_namelen == 0) &&
               m.msg_controllen == 0 && m.msg_iovlen == 1 &&
               user_copy(iov, m.msg_iov, sizeof *iov) && iov->iov_len <= most &&
               user_touch(&v->msg_len) && user_read_range(iov->iov_base, iov->iov_len);
}

/* How many, and why no more. */
static uint32_t place_all(struct usock *s, struct udp_dest *d, const struct iovec *iov, uint32_t n,
                          size_t most, int *err)
{
        struct unet_chan *ch = place_of(s->u, d, most);
        uint32_t i = 0;

        *err = ch != NULL ? 0 : -E2BIG;
        while (i < n && *err == 0) {
                struct cursor c = {&iov[i], 0, 0};
                d->many = i + 1 < n ? UDP_MORE : 0;
                *err = place_one(s, d, ch, &c, iov[i].iov_len);
                i += *err == 0;
        }
        if (unlikely(*err != 0 && i != 0))
                stack_flush_bells(&s->u->s);
        return i;
}

ssize_t usock_udp_send_straight(struct usock *s, struct mmsghdr *v, uint32_t n, int flags)
{
        struct sock_rec *rec = usock_rec(s);
        struct iovec iov[UDP_BATCH];
        struct udp_dest d;
        uint32_t i, sent;
        size_t most;
        int err;

        assert(s->kind == USOCK_UDP);
        if ((flags & ~STRAIGHT) != 0 || READ_ONCE(rec->cork) || READ_ONCE(rec->segment) != 0 ||
            READ_ONCE(rec->ip_opts) || !usock_udp_connected_to(s, &d))
                return 0;
        most = longest(s->u, &d);
        if (most == 0)
                return 0;
        for (i = 0; i < MIN(n, UDP_BATCH) && prepare(&v[i], most, &iov[i]); i++)
                ;
        if (i == 0)
                return 0;
        ustack_lock(s->u);
        sent = place_all(s, &d, iov, i, most, &err);
        ustack_leave(s->u);
        for (i = 0; i < sent; i++)
                if (unlikely(!user_put32(&v[i].msg_len, (uint32_t)iov[i].iov_len)))
                        return i != 0 ? (ssize_t)i : -EFAULT;
        return sent != 0 || err == -E2BIG || err == -EAGAIN ? (ssize_t)sent : err;
}
