/*
 * MSG_ZEROCOPY, as Linux has it on loopback: bytes are copied, and the error queue tells that the
 * call's memory is the program's again. It is so when the call returns; what is told, once, is the
 * numbers of the calls since what was told before, and that nothing was saved
 * (SO_EE_CODE_ZEROCOPY_COPIED).
 */
#include "sock/attach/handle.h"
#include "sock/attach/ustack_wake.h"
#include "sock/udp/usock_cmsg.h"
#include "sock/usock_stamp.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>

void usock_zerocopy_sent(struct usock *s)
{
        struct sock_rec *rec = usock_rec(s);

        if (!READ_ONCE(rec->zerocopy))
                return;
        ustack_lock(s->u);
        WRITE_ONCE(rec->zc_sent, rec->zc_sent + 1);
        ustack_event(&s->u->s, s->idx, TCP_EV_READABLE);
        ustack_leave(s->u);
}

static bool take(struct usock *s, struct sock_extended_err *e)
{
        struct sock_rec *rec = usock_rec(s);
        bool any;

        ustack_lock(s->u);
        any = rec->zc_told != rec->zc_sent;
        *e = (struct sock_extended_err){.ee_origin = SO_EE_ORIGIN_ZEROCOPY,
                                        .ee_code = SO_EE_CODE_ZEROCOPY_COPIED,
                                        .ee_info = rec->zc_told,
                                        .ee_data = rec->zc_sent - 1};
        WRITE_ONCE(rec->zc_told, rec->zc_sent);
        ustack_leave(s->u);
        return any;
}

ssize_t usock_tcp_recv_note(struct usock *s, struct msghdr *m)
{
        struct {
                struct sock_extended_err err;
                /* As Linux: there is none, but room for one of the socket's family. */
                struct sockaddr_in6 offender;
        } h = {.offender = {0}};
        bool v6 = s->family == AF_INET6, stamp;
        struct usock_room r;
        nstime at;

        stamp = usock_stamp_take(s, &h.err, &at);
        if (!stamp && !take(s, &h.err))
                return -EAGAIN;
        r = usock_cmsg_begin(m);
        if (stamp && READ_ONCE(usock_rec(s)->stamps) & SOF_TIMESTAMPING_SOFTWARE)
                usock_cmsg_stamps(&r, at);
        usock_cmsg_add(&r, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_RECVERR : IP_RECVERR, &h,
                       sizeof h.err +
                               (v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)));
        m->msg_namelen = 0;
        m->msg_flags = MSG_ERRQUEUE;
        usock_cmsg_end(&r, m);
        return 0;
}
