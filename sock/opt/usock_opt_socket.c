/* Options of SOL_SOCKET: socket(7). */
#include "sock/attach/handle.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_directory.h"
#include "sock/attach/ustack_wake.h"
#include "sock/opt/usock_opt.h"
#include "sock/usock_stamp.h"
#include "tcp/tcp_stream.h"

#include <errno.h>
#include <limits.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <sys/time.h>

/* net.core.rmem_max and wmem_max of this stack; SO_*BUFFORCE too. */
#define BUF_MAX        (32u << 20)
#define SNDBUF_MIN     4608u  /* Linux: SOCK_MIN_SNDBUF */
#define RCVBUF_DEFAULT 131072 /* Linux: tcp_rmem[1], told before there is a connection */
#define SNDBUF_DEFAULT 16384  /* Linux: tcp_wmem[1] */
/* As Linux by default, of half of which a receive buffer sizes itself; it grows to that. */
#define RCVLOWAT_MAX (3u << 20)

#ifndef SO_RCVTIMEO_NEW
#define SO_RCVTIMEO_NEW 66
#define SO_SNDTIMEO_NEW 67
#endif

/* ---- what a socket is ---- */

static int get_type(const struct opt_call *c)
{
        return c->s->kind == USOCK_UDP ? SOCK_DGRAM : SOCK_STREAM;
}

static int get_domain(const struct opt_call *c)
{
        return c->s->family;
}

static int get_protocol(const struct opt_call *c)
{
        return c->s->kind == USOCK_UDP ? IPPROTO_UDP : IPPROTO_TCP;
}

static int get_listening(const struct opt_call *c)
{
        return c->rec->role == SOCK_ROLE_LISTENER;
}

static int get_error(const struct opt_call *c)
{
        struct stack *s = &c->s->u->s;
        int err = c->rec->err;

        c->rec->err = 0;
        if (err == 0 && opt_conn(c) != NULL)
                err = tcp_take_error(opt_conn(c));
        if (err == 0 && opt_is_udp(c))
                err = udp_take_error(&s->udp, c->rec->conn);
        return err;
}

/* Where the stack was polled last is where its packets are worked on. */
static int get_incoming_cpu(const struct opt_call *c)
{
        return (int)atomic_load_explicit(&c->s->u->s.bell->cpu, memory_order_relaxed);
}

/*
 * ---- buffers ----
 *
 * The application names bytes of data, and Linux doubles the number for its bookkeeping. Our send
 * buffer, and UDP's receive buffer, count whole frames, so they get the double; TCP's receive
 * buffer counts bytes of data, and gets what was named. getsockopt() gives the double for all of
 * them, as programs expect.
 */

/* Bytes of data named by the application, as Linux reads them: a negative number is a large one. */
static uint32_t named(int v)
{
        return MIN((uint32_t)v, BUF_MAX);
}

static int set_sndbuf(struct opt_call *c, int v)
{
        uint32_t bytes = MAX(named(v) * 2, SNDBUF_MIN);

        c->tcp.sndbuf = bytes;
        c->udp.sndbuf = bytes;
        return 0;
}

static int set_rcvbuf(struct opt_call *c, int v)
{
        uint32_t bytes = MAX(named(v) * 2, OPT_RCVBUF_MIN);

        c->tcp.rcvbuf = bytes / 2;
        c->udp.rcvbuf = bytes;
        return 0;
}

static int set_sndbuf_force(struct opt_call *c, int v)
{
        return set_sndbuf(c, MAX(v, 0));
}

static int set_rcvbuf_force(struct opt_call *c, int v)
{
        return set_rcvbuf(c, MAX(v, 0));
}

static int get_sndbuf(const struct opt_call *c)
{
        if (opt_is_udp(c))
                return (int)c->udp.sndbuf;
        if (opt_conn(c) != NULL)
                return (int)opt_conn(c)->snd_limit;
        return c->tcp.sndbuf != 0 ? (int)c->tcp.sndbuf : SNDBUF_DEFAULT;
}

static int get_rcvbuf(const struct opt_call *c)
{
        if (opt_is_udp(c))
                return (int)c->udp.rcvbuf;
        if (opt_conn(c) != NULL)
                return (int)opt_conn(c)->rcv_size * 2;
        return c->tcp.rcvbuf != 0 ? (int)c->tcp.rcvbuf * 2 : RCVBUF_DEFAULT;
}

static int set_rcvlowat(struct opt_call *c, int v)
{
        uint32_t most = c->tcp.rcvbuf != 0 && !opt_is_udp(c) ? c->tcp.rcvbuf : RCVLOWAT_MAX;

        WRITE_ONCE(c->rec->rcvlowat, v < 0 ? most : v == 0 ? 1 : MIN((uint32_t)v, most));
        WRITE_ONCE(c->rec->waits_for_more, c->rec->rcvlowat > 1);
        if (c->rec->role == SOCK_ROLE_CONN) {
                tcp_recv_room(usock_conn(c->s), c->rec->rcvlowat);
                ustack_event(&c->s->u->s, c->s->idx, TCP_EV_READABLE); /* it may be enough now */
        }
        return 0;
}

static int get_rcvlowat(const struct opt_call *c)
{
        return (int)c->rec->rcvlowat;
}

static int set_peek_off(struct opt_call *c, int v)
{
        assert(ustack_locked(c->s->u));
        c->rec->not_peek_off = ~v;
        WRITE_ONCE(c->rec->peeks_on, v >= 0);
        return 0;
}

static int get_peek_off(const struct opt_call *c)
{
        return ~c->rec->not_peek_off;
}

/* ---- sharing of ports ---- */

enum { REUSE_ADDR = 1, REUSE_PORT = 2 }; /* rec->reuse */

static void reuse(struct opt_call *c, uint8_t bit, int on)
{
        WRITE_ONCE(c->rec->reuse, (uint8_t)((c->rec->reuse & ~bit) | (on ? bit : 0)));
        c->udp.reuseaddr = !!(c->rec->reuse & REUSE_ADDR);
        c->udp.reuseport = c->tcp.reuseport = !!(c->rec->reuse & REUSE_PORT);
}

static int set_reuseaddr(struct opt_call *c, int v)
{
        reuse(c, REUSE_ADDR, v);
        return 0;
}

static int set_reuseport(struct opt_call *c, int v)
{
        reuse(c, REUSE_PORT, v);
        return 0;
}

static int get_reuseaddr(const struct opt_call *c)
{
        return !!(c->rec->reuse & REUSE_ADDR);
}

static int get_reuseport(const struct opt_call *c)
{
        return !!(c->rec->reuse & REUSE_PORT);
}

/* ---- UDP ---- */

static int set_broadcast(struct opt_call *c, int v)
{
        WRITE_ONCE(c->rec->broadcast, v != 0);
        return 0;
}

static int get_broadcast(const struct opt_call *c)
{
        return c->rec->broadcast;
}

/* ---- options of another form ---- */

static int set_linger(struct opt_call *c, const void *val, socklen_t len)
{
        struct linger l;

        memcpy(&l, val, sizeof l);
        c->tcp.linger_s = l.l_onoff == 0 ? -1 : l.l_linger < 0 ? INT_MAX : l.l_linger;
        return 0;
}

static socklen_t get_linger(const struct opt_call *c, void *val, socklen_t room)
{
        struct linger l = {c->tcp.linger_s >= 0, MAX(c->tcp.linger_s, 0)};

        memcpy(val, &l, sizeof l);
        return sizeof l;
}

/* ---- what is told of datagrams ---- */

#define TELL_TIMES (USOCK_TELL_TIMESTAMP | USOCK_TELL_TIMESTAMPNS)

/* One of the two at most; switched off by either. */
static int set_timestamp(struct opt_call *c, int v)
{
        opt_set_told(c, TELL_TIMES, 0);
        return opt_set_told(c, USOCK_TELL_TIMESTAMP, v);
}

static int set_timestampns(struct opt_call *c, int v)
{
        opt_set_told(c, TELL_TIMES, 0);
        return opt_set_told(c, USOCK_TELL_TIMESTAMPNS, v);
}

/* As Linux: of a stream bytes are numbered, and it has to be one by then. */
static int number_bytes(struct opt_call *c, uint32_t flags)
{
        const struct tcp_conn *tc;

        if (opt_is_udp(c) || !(flags & ~c->rec->stamps & SOF_TIMESTAMPING_OPT_ID))
                return 0;
        tc = c->rec->role == SOCK_ROLE_CONN ? usock_conn(c->s) : NULL;
        if (tc == NULL || tc->state == TCPS_CLOSED)
                return -EINVAL;
        c->rec->stamp_base = flags & USOCK_STAMP_ID_TCP ? tc->snd_end : tc->snd_una;
        return 0;
}

/* Software's times are told: there is no hardware here. When a datagram left the kernel's socket
 * tells, if there is one, which sends it then. What cannot be told is refused: who set it would
 * wait for it. */
static int set_stamps(struct opt_call *c, const void *val, socklen_t len)
{
        uint32_t flags;
        int err;

        memcpy(&flags, val, sizeof flags);
        if (flags & ~(SOF_TIMESTAMPING_MASK | USOCK_STAMP_ID_TCP) ||
            (flags & USOCK_STAMP_ID_TCP && !(flags & SOF_TIMESTAMPING_OPT_ID)) ||
            (flags & SOF_TIMESTAMPING_OPT_STATS && !(flags & SOF_TIMESTAMPING_OPT_TSONLY)))
                return -EINVAL;
        if (opt_is_udp(c) ? c->s->kfd < 0 && flags & USOCK_STAMPS_OF_SENDING
                          : !usock_can_stamp(flags))
                return -EOPNOTSUPP;
        err = number_bytes(c, flags);
        if (err != 0)
                return err;
        WRITE_ONCE(c->rec->stamps, flags);
        WRITE_ONCE(c->rec->cork,
                   (uint8_t)((c->rec->cork & ~SOCK_CORK_STAMPED) |
                             (flags & USOCK_STAMPS_OF_SENDING ? SOCK_CORK_STAMPED : 0)));
        return opt_set_told(c, USOCK_TELL_STAMPS,
                            flags & SOF_TIMESTAMPING_SOFTWARE &&
                                    flags & SOF_TIMESTAMPING_RX_SOFTWARE);
}

static socklen_t get_stamps(const struct opt_call *c, void *val, socklen_t room)
{
        struct so_timestamping t = {.flags = (int)c->rec->stamps};

        memcpy(val, &t, sizeof t);
        return sizeof t;
}

/* ---- memory (SO_MEMINFO) ---- */

static void udp_memory(const struct opt_call *c, uint32_t m[SK_MEMINFO_VARS])
{
        struct udp_report r;

        if (!udp_get_report(&c->s->u->s.udp, c->rec->conn, &r))
                return;
        m[SK_MEMINFO_RMEM_ALLOC] = r.memory;
        m[SK_MEMINFO_DROPS] = (uint32_t)r.dropped;
}

/* What Linux counts apart, of ours it is nothing: no other memory, no segments that wait for the
 * socket's lock. */
static socklen_t get_memory(const struct opt_call *c, void *val, socklen_t room)
{
        uint32_t m[SK_MEMINFO_VARS] = {[SK_MEMINFO_RCVBUF] = (uint32_t)get_rcvbuf(c),
                                       [SK_MEMINFO_SNDBUF] = (uint32_t)get_sndbuf(c)};

        if (opt_is_udp(c))
                udp_memory(c, m);
        if (opt_conn(c) != NULL) {
                m[SK_MEMINFO_RMEM_ALLOC] = opt_conn(c)->rcv_mem;
                m[SK_MEMINFO_WMEM_QUEUED] = opt_conn(c)->snd_mem;
        }
        memcpy(val, m, sizeof m);
        return sizeof m;
}

/* ---- times to wait ---- */

/* 0 is for ever. A negative time does not wait at all, which a nanosecond does too. */
static int set_timeo(nstime *timeo, const void *val)
{
        struct timeval tv;
        nstime t;

        memcpy(&tv, val, sizeof tv);
        if (tv.tv_usec < 0 || tv.tv_usec >= 1000000)
                return -EDOM;
        if (tv.tv_sec < 0)
                t = 1;
        else if (tv.tv_sec >= NSTIME_NEVER / NS_PER_S)
                t = 0;
        else
                t = tv.tv_sec * NS_PER_S + tv.tv_usec * NS_PER_US;
        WRITE_ONCE(*timeo, t);
        return 0;
}

static socklen_t get_timeo(nstime timeo, void *val)
{
        struct timeval tv = {timeo / NS_PER_S, timeo % NS_PER_S / NS_PER_US};

        memcpy(val, &tv, sizeof tv);
        return sizeof tv;
}

static int set_rcvtimeo(struct opt_call *c, const void *val, socklen_t len)
{
        return set_timeo(&c->rec->rcvtimeo, val);
}

static int set_sndtimeo(struct opt_call *c, const void *val, socklen_t len)
{
        return set_timeo(&c->rec->sndtimeo, val);
}

static socklen_t get_rcvtimeo(const struct opt_call *c, void *val, socklen_t room)
{
        return get_timeo(c->rec->rcvtimeo, val);
}

static socklen_t get_sndtimeo(const struct opt_call *c, void *val, socklen_t room)
{
        return get_timeo(c->rec->sndtimeo, val);
}

/* Bytes a second as an int or an unsigned long; all ones: no limit. */
static int set_pacing(struct opt_call *c, const void *val, socklen_t len)
{
        unsigned long rate = 0;
        uint32_t narrow;

        memcpy(&narrow, val, sizeof narrow);
        if (len >= sizeof rate)
                memcpy(&rate, val, sizeof rate);
        else
                rate = narrow == UINT32_MAX ? ULONG_MAX : narrow;
        c->tcp.max_pacing_rate = rate == ULONG_MAX ? 0 : rate;
        return 0;
}

static socklen_t get_pacing(const struct opt_call *c, void *val, socklen_t room)
{
        unsigned long rate = c->tcp.max_pacing_rate != 0 ? c->tcp.max_pacing_rate : ULONG_MAX;
        uint32_t narrow = (uint32_t)MIN(rate, UINT32_MAX);

        if (room < sizeof rate) {
                memcpy(val, &narrow, sizeof narrow);
                return sizeof narrow;
        }
        memcpy(val, &rate, sizeof rate);
        return sizeof rate;
}

/* Linux: who asks for more than there is gets nothing. */
static int may_get_peername(const struct opt_call *c, socklen_t room)
{
        const struct tcp_conn *tc = opt_conn(c);
        socklen_t n =
                c->s->family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

        if (c->rec->rport == 0 ||
            (tc != NULL && (tc->state < TCPS_SYN_RECEIVED || tc->state == TCPS_TIME_WAIT)))
                return -ENOTCONN;
        return room > n ? -EINVAL : 0;
}

static socklen_t get_peername(const struct opt_call *c, void *val, socklen_t room)
{
        socklen_t n = sizeof(struct sockaddr_storage);

        usock_addr_out(c->s->family, c->rec->raddr, c->rec->rport, val, &n);
        return n;
}

uint32_t opt_device(int level, int name, const void *val, socklen_t len)
{
        char copy[IF_NAMESIZE] = "";
        int n;

        if (level != SOL_SOCKET || (name != SO_BINDTODEVICE && name != SO_BINDTOIFINDEX))
                return 0;
        if (name == SO_BINDTODEVICE) {
                memcpy(copy, val, MIN(len, (socklen_t)sizeof copy - 1));
                return *copy != '\0' ? ustack_iface_number(copy) : 0;
        }
        if (len < sizeof n)
                return 0;
        memcpy(&n, val, sizeof n);
        return n > 0 ? usock_device((uint32_t)n) : 0;
}

/* Interfaces of unetd's only; any other is the kernel's business, and then so is the socket. */
static int set_device(struct opt_call *c, const void *val, socklen_t len)
{
        if (len != 0 && *(const char *)val != '\0' && c->device == 0)
                return -ENOPROTOOPT;
        WRITE_ONCE(c->rec->oif, (uint8_t)c->device);
        return 0;
}

static socklen_t get_device(const struct opt_call *c, void *val, socklen_t room)
{
        struct dir_iface f;

        if (c->rec->oif == 0 ||
            !directory_iface(ustack_directory(), UNETD_IFACE | (c->rec->oif - 1u), &f))
                return 0;
        memcpy(val, f.name, sizeof f.name);
        return (socklen_t)strnlen(f.name, sizeof f.name - 1) + 1;
}

/* The same by numbers of the kernel's. */
static int set_device_number(struct opt_call *c, int v)
{
        if (v != 0 && c->device == 0)
                return -ENOPROTOOPT;
        WRITE_ONCE(c->rec->oif, (uint8_t)c->device);
        return 0;
}

static int get_device_number(const struct opt_call *c)
{
        char name[IF_NAMESIZE];

        return get_device(c, name, sizeof name) != 0 ? (int)if_nametoindex(name) : 0;
}

static int set_zerocopy(struct opt_call *c, int v)
{
        if (v != 0 && v != 1)
                return -EINVAL;
        WRITE_ONCE(c->rec->zerocopy, (uint8_t)v);
        return 0;
}

static int get_zerocopy(const struct opt_call *c)
{
        return c->rec->zerocopy;
}

/* ---- the tables ---- */

static const struct opt_int ints[] = {
        OPT_CALLS(SO_SNDBUF, OPT_ANY, set_sndbuf, get_sndbuf),
        OPT_CALLS(SO_RCVBUF, OPT_ANY, set_rcvbuf, get_rcvbuf),
        OPT_CALLS(SO_SNDBUFFORCE, OPT_ANY, set_sndbuf_force, NULL),
        OPT_CALLS(SO_RCVBUFFORCE, OPT_ANY, set_rcvbuf_force, NULL),
        OPT_CALLS(SO_ERROR, OPT_ANY, NULL, get_error),
        OPT_CALLS(SO_TYPE, OPT_ANY, NULL, get_type),
        OPT_CALLS(SO_DOMAIN, OPT_ANY, NULL, get_domain),
        OPT_CALLS(SO_PROTOCOL, OPT_ANY, NULL, get_protocol),
        OPT_CALLS(SO_ACCEPTCONN, OPT_ANY, NULL, get_listening),
        OPT_CALLS(SO_REUSEADDR, OPT_ANY, set_reuseaddr, get_reuseaddr),
        OPT_CALLS(SO_REUSEPORT, OPT_ANY, set_reuseport, get_reuseport),
        OPT_CALLS(SO_RCVLOWAT, OPT_ANY, set_rcvlowat, get_rcvlowat),
        OPT_CALLS(SO_PEEK_OFF, OPT_ANY, set_peek_off, get_peek_off),
        OPT_CALLS(SO_BINDTOIFINDEX, OPT_ANY, set_device_number, get_device_number),
        OPT_CALLS(SO_INCOMING_CPU, OPT_ANY, NULL, get_incoming_cpu),
        OPT_TOLD_IF(SO_TIMESTAMP, OPT_ANY, USOCK_TELL_TIMESTAMP, set_timestamp),
        OPT_TOLD_IF(SO_TIMESTAMPNS, OPT_ANY, USOCK_TELL_TIMESTAMPNS, set_timestampns),
        OPT_TOLD(SO_RXQ_OVFL, USOCK_UDP, USOCK_TELL_OVERFLOW),
        OPT_UDP_BOOL(SO_NO_CHECK, no_check),
        OPT_CALLS(SO_ZEROCOPY, USOCK_TCP, set_zerocopy, get_zerocopy),
        OPT_BOOL(SO_KEEPALIVE, keepalive),
        OPT_BOOL(SO_OOBINLINE, oobinline),
        OPT_CALLS(SO_BROADCAST, USOCK_UDP, set_broadcast, get_broadcast),
};

static const struct opt_blob blobs[] = {
        OPT_FORM(SO_LINGER, OPT_TCP, sizeof(struct linger), set_linger, get_linger),
        OPT_FORM(SO_RCVTIMEO, OPT_ANY, sizeof(struct timeval), set_rcvtimeo, get_rcvtimeo),
        OPT_FORM(SO_SNDTIMEO, OPT_ANY, sizeof(struct timeval), set_sndtimeo, get_sndtimeo),
        OPT_FORM(SO_RCVTIMEO_NEW, OPT_ANY, sizeof(struct timeval), set_rcvtimeo, get_rcvtimeo),
        OPT_FORM(SO_SNDTIMEO_NEW, OPT_ANY, sizeof(struct timeval), set_sndtimeo, get_sndtimeo),
        OPT_FORM(SO_MAX_PACING_RATE, OPT_TCP, sizeof(int), set_pacing, get_pacing),
        OPT_FORM(SO_TIMESTAMPING, OPT_ANY, sizeof(int), set_stamps, get_stamps),
        OPT_FORM(SO_BINDTODEVICE, OPT_ANY, 0, set_device, get_device),
        OPT_FORM(SO_MEMINFO, OPT_ANY, 0, NULL, get_memory),
        {.name = SO_PEERNAME, .kinds = OPT_ANY, .get = get_peername, .may_get = may_get_peername},
};
static_assert(sizeof(struct timeval) == 16, "SO_RCVTIMEO and SO_RCVTIMEO_NEW have one form");

const struct opt_level opt_socket = OPT_LEVEL(ints, blobs);
