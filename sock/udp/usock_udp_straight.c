/*
 * recvmmsg() over an RDMA device: datagrams go from where the device put them to where the program
 * wants them.
 *
 * A reader that finds nothing queued lets in what came (usock_udp_recv()); here it says, before it
 * does, where as many as it asked for are to be. They are copied there on their way through the
 * stack, each when it would have been queued, with its checksum made by the same loop
 * (netstack/stack_rx.c). All of it is in one turn of the lock, and nothing is lent: who dies takes
 * with him what he had read, and any number of readers may try, since a datagram goes straight only
 * when nothing is unread before it.
 *
 * The lock's holder writes into the program's memory. What is not there, or may not be written, is
 * found before; what is taken away at this very moment fails the copy, and the datagram is queued
 * (sock/attach/user.h).
 */
#include "sock/attach/handle.h"
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_link.h"

#include <errno.h>

#include "sock/udp/usock_udp.h"

/* With others it is read as ever. */
#define FLAGS     (MSG_DONTWAIT | MSG_WAITFORONE | MSG_TRUNC | MSG_CMSG_CLOEXEC)
#define BATCH     16u              /* in a turn of the lock */
#define BYTES_MAX VLINK_SLOT_BYTES /* no packet that lies in one piece is longer */

/* Of a message of the program's, and what came for it. */
struct place {
        void *base, *name;
        size_t bytes;
        socklen_t namelen;
        uint32_t len; /* of the datagram */
        ip_addr src;
        uint16_t sport;
};

struct reading {
        struct stack_straight to;
        uint32_t n; /* read */
        struct place at[BATCH];
};

/* False: another shape than most, or it cannot be read and written; somebody else will say so. */
static bool prepare(struct mmsghdr *v, struct place *p)
{
        struct msghdr m;
        struct iovec iov;

        if (!user_copy(&m, &v->msg_hdr, sizeof m) || m.msg_iovlen != 1 ||
            !user_copy(&iov, m.msg_iov, sizeof iov))
                return false;
        *p = (struct place){.base = iov.iov_base,
                            .bytes = iov.iov_len,
                            .name = m.msg_name,
                            .namelen = m.msg_namelen};
        return user_touch(&v->msg_hdr) && user_touch(&v->msg_len) &&
               user_touch_range(p->base, MIN(p->bytes, BYTES_MAX)) &&
               (p->name == NULL ||
                user_touch_range(p->name, MIN(p->namelen, sizeof(struct sockaddr_in6))));
}

static bool put(struct stack_straight *to, const struct udp_dgram *d, bool summed, uint32_t *sum)
{
        const struct reading *r = (const struct reading *)to;
        const struct place *p = &r->at[r->n];
        size_t n = MIN(p->bytes, d->inl_len);

        if (d->inl_len > BYTES_MAX)
                return false;
        if (!summed)
                return user_copy(p->base, d->inl, n);
        if (!user_copy_out_sum(p->base, d->inl, n, sum))
                return false;
        if (unlikely(n != d->inl_len))
                *sum = csum_append(*sum, n, csum_partial(d->inl + n, d->inl_len - n, 0));
        return true;
}

static void is_read(struct stack_straight *to, const struct udp_dgram *d)
{
        struct reading *r = (struct reading *)to;
        struct place *p = &r->at[r->n++];

        p->len = d->inl_len;
        p->src = d->tuple.raddr;
        p->sport = d->tuple.rport;
}

/* What is said of a datagram beside it. */
static bool tell(const struct usock *s, struct mmsghdr *v, struct place *p, int flags)
{
        bool cut = p->len > p->bytes;
        int out = (cut ? MSG_TRUNC : 0) | (flags & MSG_CMSG_CLOEXEC);

        if (p->name != NULL &&
            (!usock_addr_out(s->family, p->src, p->sport, p->name, &p->namelen) ||
             !user_put32(&v->msg_hdr.msg_namelen, p->namelen)))
                return false;
        return user_put64(&v->msg_hdr.msg_controllen, 0) &&
               user_put32(&v->msg_hdr.msg_flags, (uint32_t)out) &&
               user_put32(&v->msg_len, cut && !(flags & MSG_TRUNC) ? (uint32_t)p->bytes : p->len);
}

static bool may_go_straight(struct usock *s, int flags)
{
        const struct sock_rec *rec = usock_rec(s);

        return !udp_readable(&s->u->s.udp, READ_ONCE(rec->conn)) && (flags & ~FLAGS) == 0 &&
               READ_ONCE(rec->told) == 0 && !READ_ONCE(rec->peeks_on) && ustack_drives(s->u) &&
               stack_pending(&s->u->s, 0);
}

ssize_t usock_udp_straight(struct usock *s, struct mmsghdr *v, uint32_t n, int flags)
{
        struct ustack *u = s->u;
        struct reading r;
        uint32_t i;

        assert(s->kind == USOCK_UDP);
        if (!may_go_straight(s, flags))
                return 0;
        for (i = 0; i < MIN(n, BATCH) && prepare(&v[i], &r.at[i]); i++)
                ;
        if (i == 0)
                return 0;
        r.n = 0;
        r.to = (struct stack_straight){
                .pcb = usock_rec(s)->conn, .room = i, .put = put, .read = is_read};
        ustack_lock(u);
        stack_run_straight(&u->s, ustack_now(), &r.to);
        ustack_leave(u);
        for (i = 0; i < r.n; i++)
                if (unlikely(!tell(s, &v[i], &r.at[i], flags)))
                        return i != 0 ? (ssize_t)i : -EFAULT; /* as Linux: the datagram is gone */
        return r.n;
}
