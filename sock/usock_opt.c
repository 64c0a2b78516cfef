/*
 * Socket options and ioctls, with Linux's types, lengths, ranges and errors (socket(7), ip(7), tcp(7)).
 *
 * Two tables: `ints` are the options that are an int to the application, most of them a field of struct
 * tcp_opts with a range; `blobs` have another form. A call loads the socket's options, changes one, and
 * stores them: into the record, and into the connection, listener or pcb when there is one. The
 * application's memory is not touched under the stack's lock.
 *
 * Buffers: the application names bytes of data, and Linux doubles the number for its bookkeeping. Our send
 * buffer, and UDP's receive buffer, count whole frames, so they get the double; TCP's receive buffer counts
 * bytes of data, and gets what was named. getsockopt() gives the double for all of them, as programs
 * expect.
 *
 * What is not in a table is -ENOPROTOOPT: a socket of the kernel's beside ours may know it.
 */
#include "sock/ustack.h"

#include <errno.h>
#include <limits.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/time.h>

#define BUF_MAX        (32u << 20)      /* net.core.rmem_max and wmem_max of this stack; SO_*BUFFORCE too */
#define RCVBUF_MIN     2304u            /* Linux: SOCK_MIN_RCVBUF */
#define SNDBUF_MIN     4608u            /* Linux: SOCK_MIN_SNDBUF */
#define RCVBUF_DEFAULT 131072           /* Linux: tcp_rmem[1], told before there is a connection */
#define SNDBUF_DEFAULT 16384            /* Linux: tcp_wmem[1] */
#define RCVLOWAT_MAX   (1u << 20)       /* what fits any receive buffer that sizes itself */
#define CC_NAME_BYTES  16u              /* TCP_CA_NAME_MAX */
#define NO_SSTHRESH    0x7fffffff       /* Linux: TCP_INFINITE_SSTHRESH */

#ifndef SO_RCVTIMEO_NEW
#define SO_RCVTIMEO_NEW 66
#define SO_SNDTIMEO_NEW 67
#endif

/* One call: the socket and its options, loaded. */
struct call {
        struct usock *s;
        struct sock_rec *rec;
        struct tcp_opts tcp;
        struct udp_opts udp;
};

struct int_opt {
        int level, name;
        uint8_t kinds;                  /* USOCK_TCP | USOCK_UDP: sockets that have it */
        uint8_t size;                   /* of a field of struct tcp_opts; 0: none, see set and get */
        uint16_t off;
        int lo, hi;                     /* -EINVAL outside; a BOOL is any int */
        int (*set)(struct call *c, int v);
        int (*get)(const struct call *c);
};

struct blob_opt {
        int level, name;
        uint8_t kinds;
        socklen_t min;                  /* -EINVAL when shorter */
        int (*set)(struct call *c, const void *val, socklen_t len);
        socklen_t (*get)(const struct call *c, void *val, socklen_t room);      /* the value's length */
};

#define SET_ROOM 16u                    /* no value that is set is longer */

union value {                           /* the application's copy, on our side */
        uint8_t bytes[sizeof(struct tcp_info)];
        uint64_t align;
};

/* ---- loading and storing ---- */

static struct tcp_conn *conn_of(const struct call *c)
{
        return c->rec->role == SOCK_ROLE_CONN ? usock_conn(c->s) : NULL;
}

static struct tcp_listener *listener_of(const struct call *c)
{
        return c->rec->role == SOCK_ROLE_LISTENER ? tcp_listener_at(&c->s->u->s.tcp, c->rec->conn) : NULL;
}

static bool is_udp(const struct call *c)
{
        return c->rec->role == SOCK_ROLE_UDP;
}

static void load(struct call *c)
{
        c->tcp = c->rec->opts;
        if (conn_of(c) != NULL)
                tcp_get_opts(conn_of(c), &c->tcp);
        else if (is_udp(c))
                udp_get_opts(&c->s->u->s.udp, c->rec->conn, &c->udp);
}

static void store(struct call *c)
{
        struct stack *s = &c->s->u->s;
        nstime now = ustack_now();

        c->rec->opts = c->tcp;
        if (conn_of(c) != NULL) {
                s->now = now;
                stack_begin(s->st, c->rec->conn);
                tcp_set_opts(&s->tcp, conn_of(c), &c->tcp, now);
                stack_end(s->st);
                stack_flush(s, now);
        } else if (listener_of(c) != NULL) {
                listener_of(c)->opts = c->tcp;
        } else if (is_udp(c)) {
                udp_set_opts(&s->udp, c->rec->conn, &c->udp);
        }
}

/* ---- what a socket is ---- */

static int get_type(const struct call *c)
{
        return c->s->kind == USOCK_UDP ? SOCK_DGRAM : SOCK_STREAM;
}

static int get_domain(const struct call *c)
{
        return c->s->family;
}

static int get_protocol(const struct call *c)
{
        return c->s->kind == USOCK_UDP ? IPPROTO_UDP : IPPROTO_TCP;
}

static int get_listening(const struct call *c)
{
        return c->rec->role == SOCK_ROLE_LISTENER;
}

static int get_error(const struct call *c)
{
        struct stack *s = &c->s->u->s;
        int err = c->rec->err;

        c->rec->err = 0;
        if (err == 0 && conn_of(c) != NULL)
                err = tcp_take_error(conn_of(c));
        if (err == 0 && is_udp(c))
                err = udp_take_error(&s->udp, c->rec->conn);
        return err;
}

/* Where the stack was polled last is where its packets are worked on. */
static int get_incoming_cpu(const struct call *c)
{
        return (int)atomic_load_explicit(&c->s->u->s.bell->cpu, memory_order_relaxed);
}

/* ---- buffers ---- */

/* Bytes of data named by the application, as Linux reads them: a negative number is a large one. */
static uint32_t named(int v)
{
        return MIN((uint32_t)v, BUF_MAX);
}

static int set_sndbuf(struct call *c, int v)
{
        uint32_t bytes = MAX(named(v) * 2, SNDBUF_MIN);

        c->tcp.sndbuf = bytes;
        c->udp.sndbuf = bytes;
        return 0;
}

static int set_rcvbuf(struct call *c, int v)
{
        uint32_t bytes = MAX(named(v) * 2, RCVBUF_MIN);

        c->tcp.rcvbuf = bytes / 2;
        c->udp.rcvbuf = bytes;
        return 0;
}

static int set_sndbuf_force(struct call *c, int v)
{
        return set_sndbuf(c, MAX(v, 0));
}

static int set_rcvbuf_force(struct call *c, int v)
{
        return set_rcvbuf(c, MAX(v, 0));
}

static int get_sndbuf(const struct call *c)
{
        if (is_udp(c))
                return (int)c->udp.sndbuf;
        if (conn_of(c) != NULL)
                return (int)conn_of(c)->snd_limit;
        return c->tcp.sndbuf != 0 ? (int)c->tcp.sndbuf : SNDBUF_DEFAULT;
}

static int get_rcvbuf(const struct call *c)
{
        if (is_udp(c))
                return (int)c->udp.rcvbuf;
        if (conn_of(c) != NULL)
                return (int)conn_of(c)->rcv_limit * 2;
        return c->tcp.rcvbuf != 0 ? (int)c->tcp.rcvbuf * 2 : RCVBUF_DEFAULT;
}

static int set_rcvlowat(struct call *c, int v)
{
        uint32_t most = c->tcp.rcvbuf != 0 && !is_udp(c) ? c->tcp.rcvbuf : RCVLOWAT_MAX;

        c->rec->rcvlowat = v < 0 ? most : v == 0 ? 1 : MIN((uint32_t)v, most);
        return 0;
}

static int get_rcvlowat(const struct call *c)
{
        return (int)c->rec->rcvlowat;
}

/* ---- sharing of ports ---- */

enum { REUSE_ADDR = 1, REUSE_PORT = 2 };        /* rec->reuse */

static void reuse(struct call *c, uint8_t bit, int on)
{
        c->rec->reuse = (uint8_t)((c->rec->reuse & ~bit) | (on ? bit : 0));
        c->udp.reuseaddr = !!(c->rec->reuse & REUSE_ADDR);
        c->udp.reuseport = !!(c->rec->reuse & REUSE_PORT);
}

static int set_reuseaddr(struct call *c, int v)
{
        reuse(c, REUSE_ADDR, v);
        return 0;
}

static int set_reuseport(struct call *c, int v)
{
        reuse(c, REUSE_PORT, v);
        return 0;
}

static int get_reuseaddr(const struct call *c)
{
        return !!(c->rec->reuse & REUSE_ADDR);
}

static int get_reuseport(const struct call *c)
{
        return !!(c->rec->reuse & REUSE_PORT);
}

/* ---- TCP ---- */

static int set_maxseg(struct call *c, int v)
{
        if (v != 0 && (v < 88 || v > 32767))    /* Linux: TCP_MIN_MSS, MAX_TCP_WINDOW */
                return -EINVAL;
        c->tcp.maxseg = (uint16_t)v;
        return 0;
}

static int get_maxseg(const struct call *c)
{
        if (conn_of(c) != NULL && conn_of(c)->state != TCPS_CLOSED)
                return (int)conn_of(c)->snd_mss;
        return c->tcp.maxseg != 0 ? c->tcp.maxseg : 536;        /* RFC 9293 MUST-15 */
}

/* 0 means the default, more than two minutes is two minutes, and less than 0 is no FIN-WAIT-2 at all. */
static int set_linger2(struct call *c, int v)
{
        struct tcp_opts def;

        tcp_opts_default(&def);
        c->tcp.fin_wait2_s = v < 0 ? 0 : v == 0 ? def.fin_wait2_s : (uint32_t)MIN(v, 120);
        return 0;
}

static int get_linger2(const struct call *c)
{
        return c->tcp.fin_wait2_s != 0 ? (int)c->tcp.fin_wait2_s : -1;
}

/* Linux keeps it as a number of SYN-ACK retransmissions, which come after 1, 3, 7, ... seconds. */
static int set_defer_accept(struct call *c, int v)
{
        int period = 1, at = 1;

        if (v <= 0) {
                c->tcp.defer_accept_s = 0;
                return 0;
        }
        for (int n = 1; at < v && n < UINT8_MAX; n++) {
                period = MIN(period * 2, 120);
                at += period;
        }
        c->tcp.defer_accept_s = (uint32_t)at;
        return 0;
}

static int get_defer_accept(const struct call *c)
{
        return (int)c->tcp.defer_accept_s;
}

static int set_window_clamp(struct call *c, int v)
{
        if (v == 0 && c->rec->role != SOCK_ROLE_NONE)
                return -EINVAL;
        c->tcp.window_clamp = v == 0 ? 0 : MAX((uint32_t)v, RCVBUF_MIN / 2);
        return 0;
}

static int get_window_clamp(const struct call *c)
{
        return (int)c->tcp.window_clamp;
}

/* ---- IP ---- */

static uint8_t *tos(struct call *c)
{
        return is_udp(c) ? &c->udp.tos : &c->tcp.tos;
}

static uint8_t *ttl(struct call *c)
{
        return is_udp(c) ? &c->udp.ttl : &c->tcp.ttl;
}

/* The ECN bits of a TCP socket are TCP's (RFC 3168 §6.1.1). */
static int set_tos(struct call *c, int v)
{
        *tos(c) = is_udp(c) ? (uint8_t)v : (uint8_t)((v & ~3) | (*tos(c) & 3));
        return 0;
}

static int get_tos(const struct call *c)
{
        return is_udp(c) ? c->udp.tos : c->tcp.tos;
}

static int set_tclass(struct call *c, int v)
{
        return v < -1 || v > 255 ? -EINVAL : set_tos(c, MAX(v, 0));
}

static int set_ttl(struct call *c, int v)
{
        if (v != -1 && (v < 1 || v > 255))
                return -EINVAL;
        *ttl(c) = v == -1 ? UDP_TTL : (uint8_t)v;
        return 0;
}

/* Linux takes 0 here; it would be the TTL of our v4 packets, which nobody would take. */
static int set_hops(struct call *c, int v)
{
        return v == 0 ? -EINVAL : set_ttl(c, v);
}

static int get_ttl(const struct call *c)
{
        return is_udp(c) ? c->udp.ttl : c->tcp.ttl;
}

static int set_v6only(struct call *c, int v)
{
        if (c->rec->lport != 0)
                return -EINVAL;         /* bound already */
        c->rec->v6only = v != 0;
        return 0;
}

static int get_v6only(const struct call *c)
{
        return c->rec->v6only;
}

static int set_no_check(struct call *c, int v)
{
        c->udp.no_check = v != 0;
        return 0;
}

static int get_no_check(const struct call *c)
{
        return c->udp.no_check;
}

/* ---- to many ---- */

static int set_group_ttl(struct call *c, int v)
{
        if (v < -1 || v > 255)
                return -EINVAL;
        c->rec->group_ttl = (uint8_t)(v == -1 ? 1 : v);
        return 0;
}

static int get_group_ttl(const struct call *c)
{
        return c->rec->group_ttl;
}

static int set_group_loop(struct call *c, int v)
{
        c->rec->no_loop = v == 0;
        return 0;
}

static int get_group_loop(const struct call *c)
{
        return !c->rec->no_loop;
}

static int set_group_all(struct call *c, int v)
{
        if (v != 0 && v != 1)
                return -EINVAL;
        c->rec->members_only = v == 0;
        return 0;
}

static int get_group_all(const struct call *c)
{
        return !c->rec->members_only;
}

static int set_broadcast(struct call *c, int v)
{
        c->rec->broadcast = v != 0;
        return 0;
}

static int get_broadcast(const struct call *c)
{
        return c->rec->broadcast;
}

static int set_mtu_discover(struct call *c, int v)
{
        if (v < PMTU_DONT || v > PMTU_OMIT)
                return -EINVAL;
        c->udp.pmtu_mode = (uint8_t)v;
        return 0;
}

static int get_mtu_discover(const struct call *c)
{
        return c->udp.pmtu_mode;
}

/* Of the path to the peer; 0: there is none. */
static int get_mtu(const struct call *c)
{
        const struct stack *s = &c->s->u->s;

        if (c->rec->rport == 0 || c->rec->chan == 0)
                return 0;
        return (int)frag_mtu(c->udp.pmtu_mode, s->chan[c->rec->chan - 1].caps.mtu,
                             stack_path_mtu(s, c->rec->raddr));
}

/* ---- the ints ---- */

#define TCP_ONLY USOCK_TCP
#define ANY_KIND (USOCK_TCP | USOCK_UDP)

#define FIELD(f)               .size = sizeof(((struct tcp_opts *)0)->f), .off = offsetof(struct tcp_opts, f)
#define BOOL(l, n, f)          {.level = l, .name = n, .kinds = TCP_ONLY, FIELD(f), .lo = 0, .hi = 1}
#define RANGE(l, n, f, lo, hi) {l, n, TCP_ONLY, FIELD(f), lo, hi, NULL, NULL}
#define CALLS(l, n, k, s, g)   {.level = l, .name = n, .kinds = k, .set = s, .get = g}

static const struct int_opt ints[] = {
        CALLS(SOL_SOCKET, SO_SNDBUF, ANY_KIND, set_sndbuf, get_sndbuf),
        CALLS(SOL_SOCKET, SO_RCVBUF, ANY_KIND, set_rcvbuf, get_rcvbuf),
        CALLS(SOL_SOCKET, SO_SNDBUFFORCE, ANY_KIND, set_sndbuf_force, NULL),
        CALLS(SOL_SOCKET, SO_RCVBUFFORCE, ANY_KIND, set_rcvbuf_force, NULL),
        CALLS(SOL_SOCKET, SO_ERROR, ANY_KIND, NULL, get_error),
        CALLS(SOL_SOCKET, SO_TYPE, ANY_KIND, NULL, get_type),
        CALLS(SOL_SOCKET, SO_DOMAIN, ANY_KIND, NULL, get_domain),
        CALLS(SOL_SOCKET, SO_PROTOCOL, ANY_KIND, NULL, get_protocol),
        CALLS(SOL_SOCKET, SO_ACCEPTCONN, ANY_KIND, NULL, get_listening),
        CALLS(SOL_SOCKET, SO_REUSEADDR, ANY_KIND, set_reuseaddr, get_reuseaddr),
        CALLS(SOL_SOCKET, SO_REUSEPORT, ANY_KIND, set_reuseport, get_reuseport),
        CALLS(SOL_SOCKET, SO_RCVLOWAT, ANY_KIND, set_rcvlowat, get_rcvlowat),
        CALLS(SOL_SOCKET, SO_INCOMING_CPU, ANY_KIND, NULL, get_incoming_cpu),
        CALLS(SOL_SOCKET, SO_NO_CHECK, USOCK_UDP, set_no_check, get_no_check),
        BOOL(SOL_SOCKET, SO_KEEPALIVE, keepalive),
        BOOL(SOL_SOCKET, SO_OOBINLINE, oobinline),
        BOOL(IPPROTO_TCP, TCP_NODELAY, nodelay),
        BOOL(IPPROTO_TCP, TCP_CORK, cork),
        BOOL(IPPROTO_TCP, TCP_QUICKACK, quickack),
        RANGE(IPPROTO_TCP, TCP_KEEPIDLE, keepidle_s, 1, 32767),
        RANGE(IPPROTO_TCP, TCP_KEEPINTVL, keepintvl_s, 1, 32767),
        RANGE(IPPROTO_TCP, TCP_KEEPCNT, keepcnt, 1, 127),
        RANGE(IPPROTO_TCP, TCP_SYNCNT, syncnt, 1, 127),
        RANGE(IPPROTO_TCP, TCP_USER_TIMEOUT, user_timeout_ms, 0, INT_MAX),
        RANGE(IPPROTO_TCP, TCP_NOTSENT_LOWAT, notsent_lowat, INT_MIN, INT_MAX),
        CALLS(IPPROTO_TCP, TCP_MAXSEG, TCP_ONLY, set_maxseg, get_maxseg),
        CALLS(IPPROTO_TCP, TCP_LINGER2, TCP_ONLY, set_linger2, get_linger2),
        CALLS(IPPROTO_TCP, TCP_DEFER_ACCEPT, TCP_ONLY, set_defer_accept, get_defer_accept),
        CALLS(IPPROTO_TCP, TCP_WINDOW_CLAMP, TCP_ONLY, set_window_clamp, get_window_clamp),
        CALLS(IPPROTO_IP, IP_TOS, ANY_KIND, set_tos, get_tos),
        CALLS(IPPROTO_IP, IP_TTL, ANY_KIND, set_ttl, get_ttl),
        CALLS(SOL_SOCKET, SO_BROADCAST, USOCK_UDP, set_broadcast, get_broadcast),
        CALLS(IPPROTO_IP, IP_MULTICAST_TTL, USOCK_UDP, set_group_ttl, get_group_ttl),
        CALLS(IPPROTO_IP, IP_MULTICAST_LOOP, USOCK_UDP, set_group_loop, get_group_loop),
        CALLS(IPPROTO_IP, IP_MULTICAST_ALL, USOCK_UDP, set_group_all, get_group_all),
        CALLS(IPPROTO_IP, IP_MTU_DISCOVER, USOCK_UDP, set_mtu_discover, get_mtu_discover),
        CALLS(IPPROTO_IP, IP_MTU, USOCK_UDP, NULL, get_mtu),
        CALLS(IPPROTO_IPV6, IPV6_V6ONLY, ANY_KIND, set_v6only, get_v6only),
        CALLS(IPPROTO_IPV6, IPV6_TCLASS, ANY_KIND, set_tclass, get_tos),
        CALLS(IPPROTO_IPV6, IPV6_UNICAST_HOPS, ANY_KIND, set_hops, get_ttl),
};

static void put_field(struct tcp_opts *t, const struct int_opt *o, int v)
{
        uint32_t wide = (uint32_t)v;
        uint8_t narrow = (uint8_t)v;

        memcpy((char *)t + o->off, o->size == 1 ? (void *)&narrow : (void *)&wide, o->size);
}

static int get_field(const struct tcp_opts *t, const struct int_opt *o)
{
        uint32_t wide;

        if (o->size == 1)
                return *((const uint8_t *)t + o->off);
        memcpy(&wide, (const char *)t + o->off, sizeof wide);
        return (int)wide;
}

static int set_int(struct call *c, const struct int_opt *o, int v)
{
        bool is_bool = o->lo == 0 && o->hi == 1;

        if (o->size == 0)
                return o->set != NULL ? o->set(c, v) : -ENOPROTOOPT;
        if (!is_bool && (v < o->lo || v > o->hi))
                return -EINVAL;
        put_field(&c->tcp, o, is_bool ? v != 0 : v);
        return 0;
}

/* ip(7): what is shorter than an int may be one byte, and nothing at all is 0. */
static int int_arg(const struct int_opt *o, const void *val, socklen_t len, int *v)
{
        *v = 0;
        if (len >= sizeof *v)
                memcpy(v, val, sizeof *v);
        else if (o->level != IPPROTO_IP || (len == 0 && o->name == IP_TTL))
                return -EINVAL;
        else if (len > 0)
                *v = *(const uint8_t *)val;
        return 0;
}

static int get_int(const struct call *c, const struct int_opt *o, union value *to, socklen_t *len)
{
        int v;

        if (o->size == 0 && o->get == NULL)
                return -ENOPROTOOPT;
        v = o->size == 0 ? o->get(c) : get_field(&c->tcp, o);
        if (o->get == get_mtu && v == 0)
                return -ENOTCONN;
        memcpy(to->bytes, &v, sizeof v);        /* the first byte is the value of ip(7)'s one-byte form */
        if (o->level == IPPROTO_IP && *len > 0 && *len < sizeof v && v >= 0 && v <= UINT8_MAX)
                *len = 1;
        *len = MIN(*len, (socklen_t)sizeof v);
        return 0;
}

/* ---- options of another form ---- */

static int set_linger(struct call *c, const void *val, socklen_t len)
{
        struct linger l;

        memcpy(&l, val, sizeof l);
        c->tcp.linger_s = l.l_onoff == 0 ? -1 : l.l_linger < 0 ? INT_MAX : l.l_linger;
        return 0;
}

static socklen_t get_linger(const struct call *c, void *val, socklen_t room)
{
        struct linger l = {c->tcp.linger_s >= 0, MAX(c->tcp.linger_s, 0)};

        memcpy(val, &l, sizeof l);
        return sizeof l;
}

/* 0 is for ever. A negative time does not wait at all, which a nanosecond does too. */
static int set_timeo(nstime *timeo, const void *val)
{
        struct timeval tv;

        memcpy(&tv, val, sizeof tv);
        if (tv.tv_usec < 0 || tv.tv_usec >= 1000000)
                return -EDOM;
        if (tv.tv_sec < 0)
                *timeo = 1;
        else if (tv.tv_sec >= NSTIME_NEVER / NS_PER_S)
                *timeo = 0;
        else
                *timeo = tv.tv_sec * NS_PER_S + tv.tv_usec * NS_PER_US;
        return 0;
}

static socklen_t get_timeo(nstime timeo, void *val)
{
        struct timeval tv = {timeo / NS_PER_S, timeo % NS_PER_S / NS_PER_US};

        memcpy(val, &tv, sizeof tv);
        return sizeof tv;
}

static int set_rcvtimeo(struct call *c, const void *val, socklen_t len)
{
        return set_timeo(&c->rec->rcvtimeo, val);
}

static int set_sndtimeo(struct call *c, const void *val, socklen_t len)
{
        return set_timeo(&c->rec->sndtimeo, val);
}

static socklen_t get_rcvtimeo(const struct call *c, void *val, socklen_t room)
{
        return get_timeo(c->rec->rcvtimeo, val);
}

static socklen_t get_sndtimeo(const struct call *c, void *val, socklen_t room)
{
        return get_timeo(c->rec->sndtimeo, val);
}

/* Bytes a second as an int or an unsigned long; all ones: no limit. */
static int set_pacing(struct call *c, const void *val, socklen_t len)
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

static socklen_t get_pacing(const struct call *c, void *val, socklen_t room)
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

static int set_congestion(struct call *c, const void *val, socklen_t len)
{
        char name[CC_NAME_BYTES] = "";
        int cc;

        memcpy(name, val, MIN(len, sizeof name - 1));
        cc = tcp_cc_lookup(name);
        if (cc < 0)
                return cc;
        c->tcp.cc = (uint8_t)cc;
        return 0;
}

static socklen_t get_congestion(const struct call *c, void *val, socklen_t room)
{
        memset(val, 0, CC_NAME_BYTES);
        memccpy(val, tcp_cc_name(c->tcp.cc), '\0', CC_NAME_BYTES - 1);
        return CC_NAME_BYTES;
}

/* ---- TCP_INFO ---- */

static uint8_t linux_state(enum tcp_state s)
{
        static const uint8_t of[] = {           /* as in Linux's tcp_states.h */
                [TCPS_ESTABLISHED] = 1, [TCPS_SYN_SENT] = 2,   [TCPS_SYN_RECEIVED] = 3,
                [TCPS_FIN_WAIT_1] = 4,  [TCPS_FIN_WAIT_2] = 5, [TCPS_TIME_WAIT] = 6,
                [TCPS_CLOSED] = 7,      [TCPS_CLOSE_WAIT] = 8, [TCPS_LAST_ACK] = 9,
                [TCPS_LISTEN] = 10,     [TCPS_CLOSING] = 11,
        };

        return of[s];
}

/* Linux counts windows in segments. */
static uint32_t segs(uint32_t bytes, uint32_t mss)
{
        return mss != 0 ? (uint32_t)(((uint64_t)bytes + mss - 1) / mss) : 0;
}

static uint32_t us(nstime t)
{
        return (uint32_t)MIN((t + NS_PER_US - 1) / NS_PER_US, (nstime)UINT32_MAX);
}

static uint32_t ms_since(nstime then, nstime now)
{
        return (uint32_t)MIN(MAX(now - then, 0) / NS_PER_MS, (nstime)UINT32_MAX);
}

static void info_shape(struct tcp_info *i, const struct tcp_conn *tc, const struct tcp_report *r)
{
        i->tcpi_state = linux_state(r->state);
        i->tcpi_ca_state = r->ca_state;
        i->tcpi_retransmits = r->backoff;
        i->tcpi_probes = r->probes;
        i->tcpi_backoff = r->backoff;
        i->tcpi_options = (uint8_t)((r->ts_ok ? TCPI_OPT_TIMESTAMPS : 0) | (r->sack_ok ? TCPI_OPT_SACK : 0) |
                                    (tc->flags & TCF_WSCALE ? TCPI_OPT_WSCALE : 0));
        i->tcpi_snd_wscale = r->snd_wscale & 15;
        i->tcpi_rcv_wscale = r->rcv_wscale & 15;
        i->tcpi_snd_mss = r->mss;
        i->tcpi_rcv_mss = r->rmss;
        i->tcpi_advmss = tc->link.mss;
        i->tcpi_pmtu = r->mss + IP_MIN_HDR + TCP_MIN_HDR + (r->ts_ok ? 12 : 0);
        i->tcpi_reordering = 3;         /* Linux's measure in segments; RACK keeps none */
        i->tcpi_reord_seen = r->reordering;
}

static void info_windows(struct tcp_info *i, const struct tcp_conn *tc, const struct tcp_report *r)
{
        i->tcpi_snd_cwnd = segs(r->cwnd, r->mss);
        i->tcpi_snd_ssthresh = r->ssthresh >= NO_SSTHRESH ? NO_SSTHRESH : segs(r->ssthresh, r->mss);
        i->tcpi_snd_wnd = r->snd_wnd;
        i->tcpi_rcv_ssthresh = r->rcv_wnd;
        i->tcpi_rcv_space = r->rcvbuf;
        i->tcpi_unacked = segs(r->unacked, r->mss);
        i->tcpi_sacked = segs(tc->sacked, r->mss);
        i->tcpi_lost = segs(tc->lost, r->mss);
        i->tcpi_retrans = segs(tc->retx, r->mss);
        i->tcpi_notsent_bytes = r->unsent;
}

static void info_times(struct tcp_info *i, const struct tcp_report *r, nstime now)
{
        i->tcpi_rto = us(r->rto);
        i->tcpi_ato = 40000;            /* Linux: TCP_ATO_MIN; RFC 9293 MAY-9 says below 0.5 s */
        i->tcpi_rtt = us(r->srtt);
        i->tcpi_rttvar = us(r->rttvar);
        i->tcpi_min_rtt = us(r->min_rtt);
        i->tcpi_last_data_sent = ms_since(r->last_sent, now);
        i->tcpi_last_data_recv = ms_since(r->last_received, now);
        i->tcpi_last_ack_recv = i->tcpi_last_data_recv;
        i->tcpi_rwnd_limited = (uint64_t)(r->limited[TCP_LIM_RWND] / NS_PER_US);
        i->tcpi_sndbuf_limited = (uint64_t)(r->limited[TCP_LIM_SNDBUF] / NS_PER_US);
        i->tcpi_busy_time = i->tcpi_rwnd_limited + i->tcpi_sndbuf_limited +
                            (uint64_t)((r->limited[TCP_LIM_CWND] + r->limited[TCP_LIM_NIQ] +
                                        r->limited[TCP_LIM_PACING]) / NS_PER_US);
}

static void info_totals(struct tcp_info *i, const struct tcp_report *r)
{
        i->tcpi_total_retrans = (uint32_t)r->retrans;
        i->tcpi_bytes_sent = r->bytes_sent;
        i->tcpi_bytes_acked = r->bytes_acked;
        i->tcpi_bytes_received = r->bytes_received;
        i->tcpi_bytes_retrans = r->bytes_retrans;
        i->tcpi_segs_out = (uint32_t)r->segs_out;
        i->tcpi_segs_in = (uint32_t)r->segs_in;
        i->tcpi_delivered = segs((uint32_t)MIN(r->bytes_acked, UINT32_MAX), r->mss);
        i->tcpi_dsack_dups = r->dsack_dups;
        i->tcpi_delivery_rate = r->delivery_rate;
}

static void info_listener(struct tcp_info *i, const struct tcp_listener *l)
{
        i->tcpi_state = linux_state(TCPS_LISTEN);
        i->tcpi_unacked = l->queued;    /* Linux: connections waiting, and room for them */
        i->tcpi_sacked = l->backlog;
}

static socklen_t get_info(const struct call *c, void *val, socklen_t room)
{
        const struct tcp_conn *tc = conn_of(c);
        struct tcp_info *i = val;
        struct tcp_report r;
        nstime now = ustack_now();

        memset(i, 0, sizeof *i);
        i->tcpi_state = linux_state(TCPS_CLOSED);
        i->tcpi_pacing_rate = UINT64_MAX;
        i->tcpi_max_pacing_rate = c->tcp.max_pacing_rate != 0 ? c->tcp.max_pacing_rate : UINT64_MAX;
        if (listener_of(c) != NULL)
                info_listener(i, listener_of(c));
        if (tc == NULL)
                return sizeof *i;
        tcp_get_report(&c->s->u->s.tcp, tc, &r, now);
        info_shape(i, tc, &r);
        info_windows(i, tc, &r);
        info_times(i, &r, now);
        info_totals(i, &r);
        return sizeof *i;
}

static const struct blob_opt blobs[] = {
        {SOL_SOCKET, SO_LINGER, TCP_ONLY, sizeof(struct linger), set_linger, get_linger},
        {SOL_SOCKET, SO_RCVTIMEO, ANY_KIND, sizeof(struct timeval), set_rcvtimeo, get_rcvtimeo},
        {SOL_SOCKET, SO_SNDTIMEO, ANY_KIND, sizeof(struct timeval), set_sndtimeo, get_sndtimeo},
        {SOL_SOCKET, SO_RCVTIMEO_NEW, ANY_KIND, sizeof(struct timeval), set_rcvtimeo, get_rcvtimeo},
        {SOL_SOCKET, SO_SNDTIMEO_NEW, ANY_KIND, sizeof(struct timeval), set_sndtimeo, get_sndtimeo},
        {SOL_SOCKET, SO_MAX_PACING_RATE, TCP_ONLY, sizeof(int), set_pacing, get_pacing},
        {IPPROTO_TCP, TCP_CONGESTION, TCP_ONLY, 1, set_congestion, get_congestion},
        {IPPROTO_TCP, TCP_INFO, TCP_ONLY, 0, NULL, get_info},
};
static_assert(sizeof(struct timeval) == 16, "SO_RCVTIMEO and SO_RCVTIMEO_NEW have one form");

/* ---- the calls ---- */

/* IPv6 options exist on IPv6 sockets alone; IPv4's on both, for v4-mapped peers. */
static bool has(const struct usock *s, int level, uint8_t kinds)
{
        return (kinds & s->kind) != 0 && (level != IPPROTO_IPV6 || s->family == AF_INET6);
}

static const struct int_opt *find_int(const struct usock *s, int level, int name)
{
        for (size_t i = 0; i < ARRAY_LEN(ints); i++)
                if (ints[i].level == level && ints[i].name == name && has(s, level, ints[i].kinds))
                        return &ints[i];
        return NULL;
}

static const struct blob_opt *find_blob(const struct usock *s, int level, int name)
{
        for (size_t i = 0; i < ARRAY_LEN(blobs); i++)
                if (blobs[i].level == level && blobs[i].name == name && has(s, level, blobs[i].kinds))
                        return &blobs[i];
        return NULL;
}

static int set_one(struct call *c, int level, int name, const void *val, socklen_t len)
{
        const struct int_opt *o = find_int(c->s, level, name);
        const struct blob_opt *b = find_blob(c->s, level, name);
        int v, err;

        if (o != NULL) {
                err = int_arg(o, val, len, &v);
                return err != 0 ? err : set_int(c, o, v);
        }
        if (b == NULL || b->set == NULL)
                return -ENOPROTOOPT;
        return len < b->min ? -EINVAL : b->set(c, val, len);
}

int usock_setsockopt(struct usock *s, int level, int name, const void *val, socklen_t len)
{
        struct call c = {.s = s, .rec = usock_rec(s)};
        union value v;
        int err;

        if ((int)len < 0)
                return -EINVAL;
        if (usock_is_group_opt(level, name))
                return usock_group_setsockopt(s, name, val, len);
        len = MIN(len, SET_ROOM);
        if (len > 0)
                memcpy(v.bytes, val, len);
        ustack_lock(s->u);
        usock_tcp_settle(s);
        load(&c);
        err = set_one(&c, level, name, v.bytes, len);
        if (err == 0)
                store(&c);
        ustack_leave(s->u);
        return err;
}

/* *len: the application's room, and then how much of the value goes there. */
static int get_one(const struct call *c, int level, int name, union value *v, socklen_t *len)
{
        const struct int_opt *o = find_int(c->s, level, name);
        const struct blob_opt *b = find_blob(c->s, level, name);

        if (o != NULL)
                return get_int(c, o, v, len);
        if (b == NULL)
                return -ENOPROTOOPT;
        *len = MIN(*len, b->get(c, v->bytes, *len));
        return 0;
}

int usock_getsockopt(struct usock *s, int level, int name, void *val, socklen_t *len)
{
        struct call c = {.s = s, .rec = usock_rec(s)};
        socklen_t n = *len;
        union value v;
        int err;

        if ((int)n < 0)
                return -EINVAL;
        if (usock_is_group_opt(level, name))
                return usock_group_getsockopt(s, name, val, len);
        ustack_lock(s->u);
        usock_tcp_settle(s);
        load(&c);
        err = get_one(&c, level, name, &v, &n);
        ustack_leave(s->u);
        if (err != 0)
                return err;
        memcpy(val, v.bytes, n);
        *len = n;
        return 0;
}

/* ---- ioctl ---- */

static int tcp_count(const struct tcp_conn *tc, unsigned long req)
{
        if (tc->state < TCPS_ESTABLISHED)
                return 0;
        switch (req) {
        case FIONREAD:
                return (int)tcp_recv_avail(tc);
        case SIOCOUTQ:
                return (int)(tc->snd_end - seq_min(tc->snd_una, tc->snd_end));
        default:                        /* SIOCOUTQNSD */
                return (int)(tc->snd_end - seq_min(tc->snd_nxt, tc->snd_end));
        }
}

static int tcp_ioctl(const struct call *c, unsigned long req)
{
        if (req == SIOCATMARK)
                return conn_of(c) != NULL && tcp_at_mark(conn_of(c));
        if (listener_of(c) != NULL)
                return -EINVAL;
        return conn_of(c) != NULL ? tcp_count(conn_of(c), req) : 0;
}

static int udp_ioctl(const struct call *c, unsigned long req)
{
        switch (req) {
        case FIONREAD:
                return (int)udp_recv_avail(&c->s->u->s.udp, c->rec->conn);
        case SIOCOUTQ:
                return 0;               /* a datagram that was taken is in the channel */
        default:
                return -ENOTTY;
        }
}

int usock_ioctl(struct usock *s, unsigned long req, int *arg)
{
        struct call c = {.s = s, .rec = usock_rec(s)};
        struct ustack *u = s->u;
        int v;

        if (req != FIONREAD && req != SIOCOUTQ && req != SIOCOUTQNSD && req != SIOCATMARK)
                return -ENOTTY;
        ustack_lock(u);
        usock_tcp_settle(s);
        if (stack_pending(&u->s, 0))
                stack_run(&u->s, ustack_now());
        v = is_udp(&c) ? udp_ioctl(&c, req) : tcp_ioctl(&c, req);
        ustack_leave(u);
        if (v < 0)
                return v;
        *arg = v;
        return 0;
}
