/* Options of IPPROTO_IP and IPPROTO_IPV6: ip(7), ipv6(7). Those that name groups are
 * in usock_group.c. */
#include "sock/opt/usock_opt.h"
#include "tcp/tcp_info.h"

#include <errno.h>
#include <netinet/in.h>

#ifndef IP_PROTOCOL
#define IP_PROTOCOL 52
#endif

static uint8_t *tos(struct opt_call *c)
{
        return opt_is_udp(c) ? &c->udp.tos : &c->tcp.tos;
}

static uint8_t *ttl(struct opt_call *c)
{
        return opt_is_udp(c) ? &c->udp.ttl : &c->tcp.ttl;
}

/* The ECN bits of a TCP socket are TCP's (RFC 3168 §6.1.1). */
static int set_tos(struct opt_call *c, int v)
{
        *tos(c) = opt_is_udp(c) ? (uint8_t)v : (uint8_t)((v & ~3) | (*tos(c) & 3));
        return 0;
}

static int get_tos(const struct opt_call *c)
{
        return opt_is_udp(c) ? c->udp.tos : c->tcp.tos;
}

static int set_tclass(struct opt_call *c, int v)
{
        return v < -1 || v > 255 ? -EINVAL : set_tos(c, MAX(v, 0));
}

static int set_ttl(struct opt_call *c, int v)
{
        if (v != -1 && (v < 1 || v > 255))
                return -EINVAL;
        *ttl(c) = v == -1 ? stack_ttl(c->s->u->s.st) : (uint8_t)v;
        return 0;
}

/* Linux takes 0 here; it would be the TTL of our v4 packets, which nobody would take. */
static int set_hops(struct opt_call *c, int v)
{
        return v == 0 ? -EINVAL : set_ttl(c, v);
}

static int get_ttl(const struct opt_call *c)
{
        return opt_is_udp(c) ? c->udp.ttl : c->tcp.ttl;
}

static int set_v6only(struct opt_call *c, int v)
{
        if (c->rec->lport != 0)
                return -EINVAL; /* bound already */
        c->rec->v6only = v != 0;
        return 0;
}

static int get_v6only(const struct opt_call *c)
{
        return c->rec->v6only;
}

/* ---- IP options ---- */

static int set_ip_options(struct opt_call *c, const void *val, socklen_t len)
{
        int err = ip_opts_set(val, len, usock_may_send_any_option(), &c->tcp.ip_opts);

        if (err == 0 && opt_is_udp(c))
                WRITE_ONCE(c->rec->ip_opts, c->tcp.ip_opts.len != 0);
        return err;
}

static socklen_t get_ip_options(const struct opt_call *c, void *val, socklen_t room)
{
        assert(c->tcp.ip_opts.len <= sizeof c->tcp.ip_opts.raw);
        memcpy(val, c->tcp.ip_opts.raw, c->tcp.ip_opts.len);
        return c->tcp.ip_opts.len;
}

/* ---- to many ---- */

static int set_group_ttl(struct opt_call *c, int v)
{
        if (v < -1 || v > 255)
                return -EINVAL;
        c->rec->group_ttl = (uint8_t)(v == -1 ? 1 : v);
        return 0;
}

static int get_group_ttl(const struct opt_call *c)
{
        return c->rec->group_ttl;
}

static int set_group_loop(struct opt_call *c, int v)
{
        c->rec->no_loop = v == 0;
        return 0;
}

static int get_group_loop(const struct opt_call *c)
{
        return !c->rec->no_loop;
}

static int set_group_all(struct opt_call *c, int v)
{
        if (v != 0 && v != 1)
                return -EINVAL;
        c->rec->members_only = v == 0;
        return 0;
}

static int get_group_all(const struct opt_call *c)
{
        return !c->rec->members_only;
}

/* ---- path MTU ---- */

/* Of the path to the peer; 0: there is none. */
static int get_mtu(const struct opt_call *c)
{
        struct stack *s = &c->s->u->s;

        if (opt_conn(c) != NULL)
                return opt_conn(c)->state > TCPS_LISTEN ? tcp_path_mtu(opt_conn(c)) : 0;
        if (c->rec->rport == 0 || c->rec->chan == 0 || c->rec->chan == SOCK_CHAN_GONE)
                return 0;
        return (int)frag_mtu(c->udp.pmtu_mode, s->chan[c->rec->chan - 1].caps.mtu,
                             stack_path_mtu(s, c->rec->raddr));
}

/* Linux gives inet_num, which is the port where it is not a raw socket's protocol. */
static int get_number(const struct opt_call *c)
{
        return c->rec->lport;
}

/* ---- the tables ---- */

static const struct opt_int ints[] = {
        OPT_CALLS(IP_TOS, OPT_ANY, set_tos, get_tos),
        OPT_CALLS(IP_TTL, OPT_ANY, set_ttl, get_ttl),
        OPT_RANGE(IP_MINTTL, min_ttl, 0, 255),
        OPT_CALLS(IP_MULTICAST_TTL, USOCK_UDP, set_group_ttl, get_group_ttl),
        OPT_CALLS(IP_MULTICAST_LOOP, USOCK_UDP, set_group_loop, get_group_loop),
        OPT_CALLS(IP_MULTICAST_ALL, USOCK_UDP, set_group_all, get_group_all),
        OPT_TOLD(IP_PKTINFO, USOCK_UDP, USOCK_TELL_PKTINFO),
        OPT_TOLD(IP_RECVTTL, USOCK_UDP, USOCK_TELL_TTL),
        OPT_TOLD(IP_RECVTOS, USOCK_UDP, USOCK_TELL_TOS),
        OPT_TOLD(IP_RECVOPTS, USOCK_UDP, USOCK_TELL_OPTS),
        OPT_TOLD(IP_RETOPTS, USOCK_UDP, USOCK_TELL_RETOPTS),
        OPT_TOLD(IP_RECVORIGDSTADDR, USOCK_UDP, USOCK_TELL_ORIGDST),
        OPT_UDP_BOOL(IP_RECVERR, recverr),
        OPT_UDP_RANGE(IP_MTU_DISCOVER, pmtu_mode, PMTU_DONT, PMTU_OMIT),
        OPT_CALLS(IP_MTU, OPT_ANY, NULL, get_mtu),
        OPT_CALLS(IP_PROTOCOL, OPT_ANY, NULL, get_number),
};

static const struct opt_blob blobs[] = {
        OPT_FORM(IP_OPTIONS, OPT_ANY, 0, set_ip_options, get_ip_options),
};

const struct opt_level opt_ip = OPT_LEVEL(ints, blobs);

static const struct opt_int ints6[] = {
        OPT_CALLS(IPV6_V6ONLY, OPT_ANY, set_v6only, get_v6only),
        OPT_CALLS(IPV6_TCLASS, OPT_ANY, set_tclass, get_tos),
        OPT_TOLD(IPV6_RECVPKTINFO, USOCK_UDP, USOCK_TELL_PKTINFO6),
        OPT_CALLS(IPV6_MTU, OPT_TCP, NULL, get_mtu),
        OPT_CALLS(IPV6_UNICAST_HOPS, OPT_ANY, set_hops, get_ttl),
};

const struct opt_level opt_ipv6 = OPT_LEVEL_INTS(ints6);
