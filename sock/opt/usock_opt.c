/*
 * Socket options and ioctls, with Linux's types, lengths, ranges and errors (socket(7), ip(7),
 * tcp(7)). Each level has its tables: usock_opt.h.
 *
 * The application's memory is not touched under the stack's lock. What is not in a table is
 * -ENOPROTOOPT: a socket of the kernel's beside ours may know it.
 */
#include "sock/attach/handle.h"
#include "sock/opt/usock_opt.h"
#include "tcp/tcp_listen.h"
#include "tcp/tcp_stream.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>

#include "sock/udp/usock_udp.h"
#include "sock/usock_dgram.h"
#include "sock/usock_option.h"

#define SET_ROOM 44u /* IP_OPTIONS, 40 bytes: nothing that may be set is longer */

union value { /* the application's copy, on our side */
        uint8_t bytes[OPT_TCP_INFO_BYTES];
        uint64_t align;
};
static_assert(SET_ROOM <= OPT_TCP_INFO_BYTES, "what is set has room");

/* ---- loading and storing ---- */

static void load(struct opt_call *c)
{
        assert(ustack_locked(c->s->u));
        c->tcp = c->rec->opts;
        if (opt_conn(c) != NULL)
                tcp_get_opts(opt_conn(c), &c->tcp);
        else if (opt_is_udp(c))
                udp_get_opts(&c->s->u->s.udp, c->rec->conn, &c->udp);
}

static void store(struct opt_call *c)
{
        struct stack *s = &c->s->u->s;
        nstime now = ustack_now();

        assert(ustack_locked(c->s->u));
        c->rec->opts = c->tcp;
        if (opt_conn(c) != NULL) {
                now = stack_time(s, now);
                stack_begin(s->st, c->rec->conn);
                tcp_set_opts(&s->tcp, opt_conn(c), &c->tcp, now);
                stack_end(s->st);
                stack_flush(s, now);
        } else if (opt_listener(c) != NULL) {
                tcp_listen_opts(&s->tcp, c->rec->conn, &c->tcp);
        } else if (opt_is_udp(c)) {
                udp_set_opts(&s->udp, c->rec->conn, &c->udp);
        }
}

/* ---- ints ---- */

static void put_field(struct opt_call *c, const struct opt_int *o, int v)
{
        uint32_t wide = (uint32_t)v;
        uint8_t narrow = (uint8_t)v;

        assert(o->size == 1 || o->size == sizeof wide);
        assert(o->off + o->size <= sizeof *c);
        memcpy((char *)c + o->off, o->size == 1 ? (void *)&narrow : (void *)&wide, o->size);
}

static int get_field(const struct opt_call *c, const struct opt_int *o)
{
        uint32_t wide;

        assert(o->size == 1 || o->size == sizeof wide);
        assert(o->off + o->size <= sizeof *c);
        if (o->size == 1)
                return *((const uint8_t *)c + o->off);
        memcpy(&wide, (const char *)c + o->off, sizeof wide);
        return (int)wide;
}

static int set_int(struct opt_call *c, const struct opt_int *o, int v)
{
        bool is_bool = o->lo == 0 && o->hi == 1;

        if (o->set != NULL)
                return o->set(c, v);
        if (o->told != 0)
                return opt_set_told(c, o->told, v);
        if (o->size == 0)
                return -ENOPROTOOPT;
        if (!is_bool && (v < o->lo || v > o->hi))
                return -EINVAL;
        put_field(c, o, is_bool ? v != 0 : v);
        return 0;
}

/* ip(7): what is shorter than an int may be one byte, and nothing at all is 0. */
static int int_arg(int level, const struct opt_int *o, const void *val, socklen_t len, int *v)
{
        *v = 0;
        if (len >= sizeof *v)
                memcpy(v, val, sizeof *v);
        else if (level != IPPROTO_IP || (len == 0 && (o->name == IP_TTL || o->name == IP_MINTTL)))
                return -EINVAL;
        else if (len > 0)
                *v = *(const uint8_t *)val;
        return 0;
}

static int get_int(const struct opt_call *c, int level, const struct opt_int *o, union value *to,
                   socklen_t *len)
{
        int v;

        if (o->get != NULL)
                v = o->get(c);
        else if (o->told != 0)
                v = (c->rec->told & o->told) != 0;
        else if (o->size != 0)
                v = get_field(c, o);
        else
                return -ENOPROTOOPT;
        if (v == 0 && level == IPPROTO_IP && o->name == IP_MTU)
                return -ENOTCONN;
        memcpy(to->bytes, &v, sizeof v); /* the first byte is the value of ip(7)'s one-byte form */
        if (level == IPPROTO_IP && *len > 0 && *len < sizeof v && v >= 0 && v <= UINT8_MAX)
                *len = 1;
        *len = MIN(*len, (socklen_t)sizeof v);
        return 0;
}

/* ---- the calls ---- */

/* IPv6 options exist on IPv6 sockets alone; IPv4's on both, for v4-mapped peers. */
static const struct opt_level *level_of(const struct usock *s, int level)
{
        static const struct opt_level none;

        switch (level) {
        case SOL_SOCKET:
                return &opt_socket;
        case IPPROTO_TCP:
                return &opt_tcp;
        case IPPROTO_UDP:
                return &opt_udp;
        case IPPROTO_IP:
                return &opt_ip;
        case IPPROTO_IPV6:
                return s->family == AF_INET6 ? &opt_ipv6 : &none;
        default:
                return &none;
        }
}

static const struct opt_int *find_int(const struct usock *s, int level, int name)
{
        const struct opt_level *l = level_of(s, level);

        for (unsigned i = 0; i < l->nints; i++)
                if (l->ints[i].name == name && l->ints[i].kinds & s->kind)
                        return &l->ints[i];
        return NULL;
}

static const struct opt_blob *find_blob(const struct usock *s, int level, int name)
{
        const struct opt_level *l = level_of(s, level);

        for (unsigned i = 0; i < l->nblobs; i++)
                if (l->blobs[i].name == name && l->blobs[i].kinds & s->kind)
                        return &l->blobs[i];
        return NULL;
}

static int set_one(struct opt_call *c, int level, int name, const void *val, socklen_t len)
{
        const struct opt_int *o = find_int(c->s, level, name);
        const struct opt_blob *b = find_blob(c->s, level, name);
        int v, err;

        assert(len <= SET_ROOM && c->rec == usock_rec(c->s));
        if (o != NULL) {
                err = int_arg(level, o, val, len, &v);
                return err != 0 ? err : set_int(c, o, v);
        }
        if (b == NULL || b->set == NULL)
                return -ENOPROTOOPT;
        return len < b->min ? -EINVAL : b->set(c, val, len);
}

int usock_setsockopt(struct usock *s, int level, int name, const void *val, socklen_t len)
{
        struct opt_call c = {.s = s, .rec = usock_rec(s)};
        union value v;
        int err;

        if ((int)len < 0)
                return -EINVAL;
        if (usock_is_group_opt(level, name))
                return usock_group_setsockopt(s, name, val, len);
        len = MIN(len, SET_ROOM);
        if (!user_copy(v.bytes, val, len))
                return -EFAULT;
        c.device = opt_device(level, name, v.bytes, len);
        ustack_lock(s->u);
        usock_tcp_settle(s);
        load(&c);
        err = set_one(&c, level, name, v.bytes, len);
        if (err == 0)
                store(&c);
        ustack_leave(s->u);
        if (err == 0 && level == IPPROTO_UDP && name == UDP_CORK)
                usock_udp_uncorked(s);
        return err;
}

/* *len: the application's room, and then how much of the value goes there. */
static int get_one(const struct opt_call *c, int level, int name, union value *v, socklen_t *len)
{
        const struct opt_int *o = find_int(c->s, level, name);
        const struct opt_blob *b = find_blob(c->s, level, name);
        socklen_t n;

        assert(o != NULL || (b != NULL && b->get != NULL));
        if (o != NULL)
                return get_int(c, level, o, v, len);
        if (b->may_get != NULL && b->may_get(c, *len) != 0)
                return b->may_get(c, *len);
        n = b->get(c, v->bytes, *len);
        assert(n <= sizeof *v);
        *len = MIN(*len, n);
        return 0;
}

/* What the network has said until now is asked for: what has arrived is looked at first. */
static bool asks_for_news(int level, int name)
{
        return (level == IPPROTO_TCP && name == TCP_INFO) ||
               (level == SOL_SOCKET && name == SO_ERROR);
}

int usock_getsockopt(struct usock *s, int level, int name, void *val, socklen_t *len)
{
        struct opt_call c = {.s = s, .rec = usock_rec(s)};
        socklen_t n = *len;
        union value v;
        int err;

        if (usock_is_group_opt(level, name))
                return (int)n < 0 ? -EINVAL : usock_group_getsockopt(s, name, val, len);
        if (level == IPPROTO_TCP && name == TCP_SAVED_SYN && s->kind == USOCK_TCP)
                return usock_saved_syn(s, val, len);
        if (level == IPPROTO_TCP && name == TCP_ZEROCOPY_RECEIVE && s->kind == USOCK_TCP)
                return usock_zerocopy_receive(s, val, len);
        if (find_int(s, level, name) == NULL && find_blob(s, level, name) == NULL)
                return -ENOPROTOOPT;
        if ((int)n < 0)
                return -EINVAL;
        ustack_lock(s->u);
        usock_tcp_settle(s);
        if (asks_for_news(level, name) && stack_pending(&s->u->s, 0))
                stack_run(&s->u->s, ustack_now());
        load(&c);
        err = get_one(&c, level, name, &v, &n);
        ustack_leave(s->u);
        if (err != 0)
                return err;
        if (!user_copy(val, v.bytes, n) || !user_put32(len, n))
                return -EFAULT;
        return 0;
}

/* ---- ioctl ---- */

/* What a connection that has ended brought can be read still. */
static int tcp_count(const struct tcp_conn *tc, unsigned long req)
{
        if (tc->state < TCPS_ESTABLISHED && (tc->state != TCPS_CLOSED || req != FIONREAD))
                return 0;
        switch (req) {
        case FIONREAD:
                return (int)tcp_recv_inq(tc);
        case SIOCOUTQ:
                return (int)(tc->snd_end - seq_min(tc->snd_una, tc->snd_end));
        default: /* SIOCOUTQNSD */
                return (int)(tc->snd_end - seq_min(tc->snd_nxt, tc->snd_end));
        }
}

static int tcp_ioctl(const struct opt_call *c, unsigned long req)
{
        if (req == SIOCATMARK)
                return opt_conn(c) != NULL && tcp_at_mark(opt_conn(c), 0);
        if (opt_listener(c) != NULL)
                return -EINVAL;
        return opt_conn(c) != NULL ? tcp_count(opt_conn(c), req) : 0;
}

static int udp_ioctl(const struct opt_call *c, unsigned long req)
{
        switch (req) {
        case FIONREAD:
                return (int)udp_recv_avail(&c->s->u->s.udp, c->rec->conn);
        case SIOCOUTQ:
                return 0; /* a datagram that was taken is in the channel */
        default:
                return -ENOTTY;
        }
}

int usock_ioctl(struct usock *s, unsigned long req, int *arg)
{
        struct opt_call c = {.s = s, .rec = usock_rec(s)};
        struct ustack *u = s->u;
        int v;

        if (req != FIONREAD && req != SIOCOUTQ && req != SIOCOUTQNSD && req != SIOCATMARK)
                return -ENOTTY;
        ustack_lock(u);
        usock_tcp_settle(s);
        if (req == FIONREAD || req == SIOCOUTQ)
                ustack_catch_up(u);
        else if (stack_pending(&u->s, 0))
                stack_run(&u->s, ustack_now());
        v = opt_is_udp(&c) ? udp_ioctl(&c, req) : tcp_ioctl(&c, req);
        ustack_leave(u);
        if (v < 0)
                return v;
        return user_put32(arg, (uint32_t)v) ? 0 : -EFAULT;
}
