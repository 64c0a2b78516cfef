/* See usock_cmsg.h. */
#include "sock/attach/handle.h"
#include "sock/udp/usock_cmsg.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/time.h>
#include <time.h>

#include "base/sys.h"
#include "sock/attach/user.h"
#include "base/clock.h"
#include "tcp/tcp_stream.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#define UDP_GRO     104
#endif

/* ---- received ---- */

/* Linux's put_cmsg(). */
void usock_cmsg_add(struct usock_room *r, int level, int type, const void *val, size_t n)
{
        struct cmsghdr h = {.cmsg_len = CMSG_LEN(n), .cmsg_level = level, .cmsg_type = type};

        if (r->at == NULL || r->left < sizeof h) {
                r->flags |= MSG_CTRUNC;
                return;
        }
        if (r->left < h.cmsg_len) {
                r->flags |= MSG_CTRUNC;
                h.cmsg_len = r->left;
        }
        if (!user_copy(r->at, &h, sizeof h) ||
            !user_copy(r->at + sizeof h, val, h.cmsg_len - sizeof h))
                return; /* as Linux: the others may fit */
        n = MIN(CMSG_SPACE(n), r->left);
        r->at += n;
        r->left -= n;
}

/* What to add to our time to have the time of day. Both clocks are read in a moment in which nobody
 * came in between. */
static nstime day_offset(void)
{
        nstime best = NSTIME_NEVER, offset = 0;

        for (int tries = 0; tries < 16 && best > 2 * NS_PER_US; tries++) {
                nstime before = ustack_now(), after;
                struct timespec ts;

                clock_read(CLOCK_REALTIME, &ts);
                after = ustack_now();
                if (after - before >= best)
                        continue;
                best = after - before;
                offset = ts.tv_sec * NS_PER_S + ts.tv_nsec - before;
        }
        return offset;
}

/* As it was, while it is hardly another: times that are told one after the other differ by what
 * lies between them, and not by how the clocks were read. */
#define HARDLY (20 * NS_PER_US)

static nstime kept_offset(void)
{
        static _Atomic nstime kept;
        nstime now = day_offset(), was = atomic_load_explicit(&kept, memory_order_relaxed);

        if (now - was < HARDLY && was - now < HARDLY)
                return was;
        atomic_store_explicit(&kept, now, memory_order_relaxed);
        return now;
}

static struct timespec time_of(nstime came)
{
        nstime at = came + kept_offset();

        return (struct timespec){at / NS_PER_S, at % NS_PER_S};
}

void usock_cmsg_stamps(struct usock_room *r, nstime at)
{
        struct timespec ts[3] = {time_of(at)}; /* the others are hardware's */

        usock_cmsg_add(r, SOL_SOCKET, SCM_TIMESTAMPING, ts, sizeof ts);
}

static void put_time(struct usock_room *r, nstime came, bool ns)
{
        struct timespec ts = time_of(came);

        if (ns)
                usock_cmsg_add(r, SOL_SOCKET, SCM_TIMESTAMPNS, &ts, sizeof ts);
        else
                usock_cmsg_add(r, SOL_SOCKET, SCM_TIMESTAMP,
                               &(struct timeval){ts.tv_sec, ts.tv_nsec / NS_PER_US},
                               sizeof(struct timeval));
}

/* The interface's number in the kernel; of a channel inside the host, loopback's. */
static uint32_t ifindex_of(const struct usock *s, const struct udp_msg *msg)
{
        const struct stack_state *st = s->u->s.st;
        uint32_t netif = st->chan[msg->chan].netif;

        return netif != 0 ? if_nametoindex(stack_netif(st, netif - 1)->cfg.name) : 1;
}

static void put_pktinfo(struct usock_room *r, const struct usock *s, const struct udp_msg *msg)
{
        const struct stack_state *st = s->u->s.st;
        uint32_t netif = st->chan[msg->chan].netif, dst = ip_addr_get_v4(msg->dst);
        struct in_pktinfo info = {.ipi_ifindex = (int)ifindex_of(s, msg),
                                  .ipi_addr.s_addr = htonl(dst),
                                  .ipi_spec_dst.s_addr = htonl(dst)};

        if (netif != 0) /* a group or a broadcast: our address there */
                info.ipi_spec_dst.s_addr = htonl(stack_netif(st, netif - 1)->cfg.addr);
        usock_cmsg_add(r, IPPROTO_IP, IP_PKTINFO, &info, sizeof info);
}

static void put_pktinfo6(struct usock_room *r, const struct usock *s, const struct udp_msg *msg)
{
        struct in6_pktinfo info = {.ipi6_ifindex = ifindex_of(s, msg)};

        memcpy(&info.ipi6_addr, &msg->dst, sizeof info.ipi6_addr);
        usock_cmsg_add(r, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info);
}

static void put_origdst(struct usock_room *r, const struct udp_msg *msg)
{
        struct sockaddr_in sin = {.sin_family = AF_INET,
                                  .sin_port = htons(msg->dport),
                                  .sin_addr.s_addr = htonl(ip_addr_get_v4(msg->dst))};

        usock_cmsg_add(r, IPPROTO_IP, IP_ORIGDSTADDR, &sin, sizeof sin);
}

/* What would answer the datagram's options, as IP_OPTIONS and IP_RETOPTS of one that is sent
 * take it. */
static void put_retopts(struct usock_room *r, const struct udp_msg *msg)
{
        struct ip_optbuf came = {.len = msg->nopts}, back;

        memcpy(came.raw, msg->opts, msg->nopts);
        if (ip_opts_back(&came, ip_addr_get_v4(msg->src), &back))
                usock_cmsg_add(r, IPPROTO_IP, IP_RETOPTS, back.raw, back.len);
        else
                r->flags |= MSG_CTRUNC;
}

static void put_overflow(struct usock_room *r, const struct usock *s)
{
        struct udp_report rep;
        uint32_t drops;

        if (!udp_get_report(&s->u->s.udp, usock_rec(s)->conn, &rep) || rep.dropped == 0)
                return;
        drops = (uint32_t)rep.dropped;
        usock_cmsg_add(r, SOL_SOCKET, SO_RXQ_OVFL, &drops, sizeof drops);
}

struct usock_room usock_cmsg_begin(const struct msghdr *m)
{
        return (struct usock_room){m->msg_control, m->msg_control != NULL ? m->msg_controllen : 0,
                                   0};
}

void usock_cmsg_end(const struct usock_room *r, struct msghdr *m)
{
        m->msg_flags |= r->flags;
        m->msg_controllen = r->at != NULL ? (size_t)(r->at - (uint8_t *)m->msg_control) : 0;
}

static void tell_times(uint16_t told, nstime came, struct usock_room *r)
{
        if (told & (USOCK_TELL_TIMESTAMP | USOCK_TELL_TIMESTAMPNS))
                put_time(r, came, told & USOCK_TELL_TIMESTAMPNS);
        if (told & USOCK_TELL_STAMPS)
                usock_cmsg_stamps(r, came);
}

/* Linux's tcp_inq_hint(): at the end there is something to read, which is the end. */
static int bytes_left(struct usock *s)
{
        struct ustack *u = s->u;
        int n = 0;

        ustack_lock(u);
        usock_tcp_settle(s);
        if (usock_rec(s)->role == SOCK_ROLE_CONN)
                n = (int)tcp_recv_avail(usock_conn(s)) + (tcp_recv_eof(usock_conn(s)) ? 1 : 0);
        ustack_leave(u);
        return n;
}

void usock_cmsg_put_stream(struct usock *s, nstime came, struct msghdr *m)
{
        struct usock_room r = usock_cmsg_begin(m);
        uint16_t told = READ_ONCE(usock_rec(s)->told);
        int left;

        if (came != 0)
                tell_times(told, came, &r);
        if (told & USOCK_TELL_INQ) {
                left = bytes_left(s);
                usock_cmsg_add(&r, IPPROTO_TCP, TCP_CM_INQ, &left, sizeof left);
        }
        usock_cmsg_end(&r, m);
}

void usock_cmsg_tell(struct usock *s, const struct udp_msg *msg, uint32_t joined,
                     struct usock_room *r)
{
        uint16_t told = READ_ONCE(usock_rec(s)->told);
        int ttl = msg->ttl;

        tell_times(told, msg->at, r);
        if (told & USOCK_TELL_OVERFLOW)
                put_overflow(r, s);
        if (joined != 0)
                usock_cmsg_add(r, IPPROTO_UDP, UDP_GRO, &joined, sizeof joined);
        if (told & USOCK_TELL_PKTINFO6)
                put_pktinfo6(r, s, msg);
        if (told & USOCK_TELL_PKTINFO)
                put_pktinfo(r, s, msg);
        if (told & USOCK_TELL_TTL)
                usock_cmsg_add(r, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl);
        if (told & USOCK_TELL_TOS)
                usock_cmsg_add(r, IPPROTO_IP, IP_TOS, &msg->tos, sizeof msg->tos);
        if (told & USOCK_TELL_OPTS && msg->nopts != 0)
                usock_cmsg_add(r, IPPROTO_IP, IP_RECVOPTS, msg->opts, msg->nopts);
        if (told & USOCK_TELL_RETOPTS && msg->nopts != 0)
                put_retopts(r, msg);
        if (told & USOCK_TELL_ORIGDST)
                put_origdst(r, msg);
}

void usock_cmsg_put(struct usock *s, const struct udp_msg *msg, uint32_t joined, struct msghdr *m)
{
        struct usock_room r = usock_cmsg_begin(m);

        usock_cmsg_tell(s, msg, joined, &r);
        usock_cmsg_end(&r, m);
}

/* ---- sent ---- */

static int read_pktinfo(const void *val, struct usock_sent *out)
{
        struct in_pktinfo info;

        memcpy(&info, val, sizeof info);
        out->ifindex = (uint32_t)info.ipi_ifindex;
        out->src = ntohl(info.ipi_spec_dst.s_addr);
        return 0;
}

bool usock_may_send_any_option(void)
{
        struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3];

        return sys2(SYS_capget, &h, d) == 0 &&
               d[CAP_TO_INDEX(CAP_NET_RAW)].effective & CAP_TO_MASK(CAP_NET_RAW);
}

static int read_retopts(const uint8_t *val, size_t n, struct usock_sent *out)
{
        out->opts_set = true;
        return ip_opts_set(val, (unsigned)MIN(n, IP_OPTS_MAX), usock_may_send_any_option(),
                           &out->opts);
}

static int read_ttl(int v, struct usock_sent *out)
{
        if (v < 1 || v > 255)
                return -EINVAL;
        out->ttl = (uint8_t)v;
        out->ttl_set = true;
        return 0;
}

static int read_tos(int v, struct usock_sent *out)
{
        if (v < 0 || v > 255)
                return -EINVAL;
        out->tos = (uint8_t)v;
        out->tos_set = true;
        return 0;
}

/* Linux's ip_cmsg_send(). */
static int read_ip(int type, const uint8_t *val, size_t n, struct usock_sent *out)
{
        int v = 0;

        if (n >= sizeof v)
                memcpy(&v, val, sizeof v);
        switch (type) {
        case IP_PKTINFO:
                return n == sizeof(struct in_pktinfo) ? read_pktinfo(val, out) : -EINVAL;
        case IP_RETOPTS:
                return read_retopts(val, n, out);
        case IP_TTL:
                return n == sizeof v ? read_ttl(v, out) : -EINVAL;
        case IP_TOS:
                return n == sizeof v ? read_tos(v, out) : n == 1 ? read_tos(val[0], out) : -EINVAL;
        default:
                return -EINVAL;
        }
}

/* An IPv6 socket that speaks to a v4-mapped address: Linux takes the source from there. */
static int read_ipv6(int type, const uint8_t *val, size_t n, struct usock_sent *out)
{
        struct in6_pktinfo info;
        ip_addr src;

        if (type != IPV6_PKTINFO)
                return 0;
        if (n < sizeof info)
                return -EINVAL;
        memcpy(&info, val, sizeof info);
        memcpy(&src, &info.ipi6_addr, sizeof src);
        if (ip_addr_is_v4(src))
                out->src = ip_addr_get_v4(src);
        out->ifindex = info.ipi6_ifindex;
        return 0;
}

static int read_one(const struct cmsghdr *c, void *arg)
{
        struct usock_sent *out = arg;
        const uint8_t *val = CMSG_DATA((struct cmsghdr *)(uintptr_t)c);
        size_t n = c->cmsg_len - CMSG_LEN(0);

        switch (c->cmsg_level) {
        case IPPROTO_IP:
                return read_ip(c->cmsg_type, val, n, out);
        case IPPROTO_IPV6:
                return read_ipv6(c->cmsg_type, val, n, out);
        case IPPROTO_UDP:
                if (c->cmsg_type != UDP_SEGMENT || n != sizeof out->segment)
                        return -EINVAL;
                memcpy(&out->segment, val, sizeof out->segment);
                return 0;
        case SOL_SOCKET:
                out->stamped |= c->cmsg_type == SO_TIMESTAMPING;
                return 0; /* marks: nothing here goes by them */
        default:
                return 0;
        }
}

int usock_cmsg_each(const struct msghdr *m, int (*fn)(const struct cmsghdr *c, void *arg),
                    void *arg)
{
        const uint8_t *end = (const uint8_t *)m->msg_control + m->msg_controllen;
        int err = 0;

        if (!user_read_range(m->msg_control, m->msg_controllen))
                return -EFAULT;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL && err == 0;
             c = CMSG_NXTHDR((struct msghdr *)(uintptr_t)m, c)) {
                if (c->cmsg_len < CMSG_LEN(0) || c->cmsg_len > (size_t)(end - (const uint8_t *)c))
                        return -EINVAL;
                err = fn(c, arg);
        }
        return err;
}

int usock_cmsg_read(const struct msghdr *m, struct usock_sent *out)
{
        *out = (struct usock_sent){.ttl = 0};
        return usock_cmsg_each(m, read_one, out);
}
