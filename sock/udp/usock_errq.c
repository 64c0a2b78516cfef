/*
 * recvmsg(MSG_ERRQUEUE): errors that a UDP socket keeps (IP_RECVERR, ip(7)), the oldest first. The
 * datagram's payload as far as it is known, its destination as the name, and struct
 * sock_extended_err with who said so beside it.
 */
#include "sock/udp/usock_cmsg.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>

#include "sock/attach/cursor.h"
#include "sock/attach/handle.h"

static struct sock_extended_err describe(const struct udp_error *e)
{
        return (struct sock_extended_err){.ee_errno = (uint32_t)e->err,
                                          .ee_origin =
                                                  e->local ? SO_EE_ORIGIN_LOCAL : SO_EE_ORIGIN_ICMP,
                                          .ee_type = e->type,
                                          .ee_code = e->code,
                                          .ee_info = e->info};
}

/* The error and its offender, as Linux lays them out for the socket's family; a local one
 * has none. */
static void put_error(struct usock_room *r, int family, const struct udp_error *e)
{
        struct {
                struct sock_extended_err err;
                union {
                        struct sockaddr_in in;
                        struct sockaddr_in6 in6;
                } offender;
        } h = {.err = describe(e)};
        bool v6 = family == AF_INET6;
        socklen_t len = v6 ? sizeof h.offender.in6 : sizeof h.offender.in;

        if (!e->local)
                usock_addr_out(family, e->from, 0, (struct sockaddr *)&h.offender, &len);
        usock_cmsg_add(r, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_RECVERR : IP_RECVERR, &h,
                       sizeof h.err + len);
}

static void put_beside(struct usock *s, const struct udp_error *e, struct msghdr *m)
{
        const struct udp_msg msg = {.src = e->dst,
                                    .dst = e->src,
                                    .sport = e->dport,
                                    .chan = e->chan,
                                    .ttl = e->ttl,
                                    .tos = e->tos,
                                    .at = e->at,
                                    .dport = usock_rec(s)->lport};
        struct usock_room r = usock_cmsg_begin(m);

        if (!e->local)
                usock_cmsg_tell(s, &msg, 0, &r);
        put_error(&r, s->family, e);
        usock_cmsg_end(&r, m);
}

static bool take(struct usock *s, struct udp_error *e)
{
        struct ustack *u = s->u;
        bool any;

        ustack_lock(u);
        if (!udp_has_errors(&u->s.udp, usock_rec(s)->conn) && stack_pending(&u->s, 0))
                stack_run(&u->s, ustack_now());
        any = udp_error_take(&u->s.udp, usock_rec(s)->conn, e);
        ustack_leave(u);
        return any;
}

ssize_t usock_udp_recv_error(struct usock *s, struct msghdr *m, size_t total)
{
        struct cursor c = {m->msg_iov, 0, 0};
        struct udp_error e;
        size_t n;

        if (!take(s, &e))
                return -EAGAIN;
        n = MIN(total, e.len);
        if (!copy_out(&c, e.data, n))
                return -EFAULT;
        if (m->msg_name != NULL &&
            !usock_addr_out(s->family, e.dst, e.dport, m->msg_name, &m->msg_namelen))
                return -EFAULT;
        m->msg_flags = MSG_ERRQUEUE | (n < e.len ? MSG_TRUNC : 0);
        put_beside(s, &e, m);
        return (ssize_t)n;
}

void usock_udp_too_long(struct usock *s, const struct udp_tuple *to, uint32_t mtu)
{
        const struct udp_error e = {.local = true,
                                    .err = EMSGSIZE,
                                    .info = mtu,
                                    .dst = to->raddr,
                                    .dport = usock_rec(s)->rport,
                                    .at = ustack_now()};

        assert(ustack_locked(s->u));
        udp_error_add(&s->u->s.udp, usock_rec(s)->conn, &e);
}
