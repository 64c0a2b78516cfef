/*
 * SO_TIMESTAMPING of a stream's sending, as Linux has it. After each call the error queue tells
 * when its last byte was queued, sent and acknowledged (tcp/tcp_stamp.c). The byte is named by its
 * number from where the socket began to count (SOF_TIMESTAMPING_OPT_ID). The bytes themselves are
 * not told (SOF_TIMESTAMPING_OPT_TSONLY).
 */
#include "sock/attach/handle.h"
#include "sock/udp/usock_cmsg.h"
#include "sock/usock_stamp.h"
#include "tcp/tcp_stamp.h"

#include <errno.h>
#include <linux/errqueue.h>

static int read_asked(const struct cmsghdr *c, void *arg)
{
        uint32_t *flags = arg;

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SO_TIMESTAMPING)
                return 0;
        if (c->cmsg_len != CMSG_LEN(sizeof *flags))
                return -EINVAL;
        memcpy(flags, CMSG_DATA((struct cmsghdr *)(uintptr_t)c), sizeof *flags);
        if (*flags & ~(uint32_t)USOCK_STAMPS_OF_SENDING)
                return -EINVAL;
        *flags |= USOCK_STAMPS_OF_CALL;
        return 0;
}

int usock_stamps_asked(struct usock *s, const struct msghdr *m, uint32_t *flags)
{
        int err = usock_cmsg_each(m, read_asked, flags);

        if (err == 0 && !usock_can_stamp(READ_ONCE(usock_rec(s)->stamps) | *flags))
                err = -EOPNOTSUPP;
        return err;
}

static uint32_t what_of(uint32_t flags)
{
        return (flags & SOF_TIMESTAMPING_TX_SOFTWARE ? TCP_STAMP_SENT : 0) |
               (flags & SOF_TIMESTAMPING_TX_SCHED ? TCP_STAMP_QUEUED : 0) |
               (flags & SOF_TIMESTAMPING_TX_ACK ? TCP_STAMP_ACKED : 0);
}

bool usock_is_stamped(const struct usock *s)
{
        return READ_ONCE(usock_rec(s)->cork) & SOCK_CORK_STAMPED;
}

void usock_stamp_sent(struct usock *s, uint32_t asked)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        uint32_t what = what_of(asked != 0 ? asked : READ_ONCE(rec->stamps));
        nstime now;

        if (what == 0)
                return;
        ustack_lock(u);
        if (rec->role == SOCK_ROLE_CONN) {
                now = stack_time(&u->s, ustack_now());
                stack_begin(u->s.st, rec->conn);
                tcp_stamp_ask(&u->s.tcp, usock_conn(s), what);
                stack_end(u->s.st);
                stack_flush(&u->s, now);
        }
        ustack_leave(u);
}

static uint32_t stage_of(uint32_t what)
{
        return what == TCP_STAMP_SENT     ? SCM_TSTAMP_SND
               : what == TCP_STAMP_QUEUED ? SCM_TSTAMP_SCHED
                                          : SCM_TSTAMP_ACK;
}

bool usock_stamp_take(struct usock *s, struct sock_extended_err *e, nstime *at)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        struct tcp_stamp stamp;
        bool any = false;

        ustack_lock(u);
        if (rec->role == SOCK_ROLE_CONN) {
                stack_begin(u->s.st, rec->conn);
                any = tcp_stamp_take(&u->s.tcp, usock_conn(s), &stamp);
                stack_end(u->s.st);
        }
        if (any) {
                *at = stamp.at;
                *e = (struct sock_extended_err){.ee_errno = ENOMSG,
                                                .ee_origin = SO_EE_ORIGIN_TIMESTAMPING,
                                                .ee_info = stage_of(stamp.what),
                                                .ee_data = rec->stamps & SOF_TIMESTAMPING_OPT_ID
                                                                   ? stamp.seq - rec->stamp_base
                                                                   : 0};
        }
        ustack_leave(u);
        return any;
}
