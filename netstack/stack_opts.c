/*
 * IP options: of what sockets send (IP_OPTIONS), and of what arrives for them. Packets without any
 * do not come here.
 *
 *      stack_output_conn() -> stack_opts_output()      rx_udp() -> stack_opts_record()
 *      stack_send_udp() -> stack_opts_send_udp()       rx_tcp() -> stack_opts_answer_syn()
 */
#include "netstack/stack_road.h"

#include <errno.h>

#include "ip/frag.h"
#include "base/checksum.h"
#include "netstack/stack_trace.h"
#include "tcp/tcp_hdr.h"
#include "tcp/tcp_loop.h"

uint32_t stack_opts_ms(const struct stack *s)
{
        return (uint32_t)(s->now / NS_PER_MS) | 0x80000000u;
}

/* ---- in ---- */

/* Our address for a packet that may be for many: the interface's. */
static uint32_t our_address(const struct stack *s, uint32_t k, const struct ip_pkt *pkt)
{
        const struct netif *n = s->chan[k].netif.nif;

        return pkt->to != IP_TO_HOST && n != NULL ? n->cfg.addr : ip_addr_get_v4(pkt->dst);
}

void stack_opts_record(const struct stack *s, uint32_t k, const struct ip_pkt *pkt,
                       struct ip_optbuf *out)
{
        ip_opts_record(pkt->hdr, pkt->hdr_len, our_address(s, k, pkt), stack_opts_ms(s), out);
}

void stack_opts_answer_syn(struct stack *s, uint32_t k, const struct ip_pkt *pkt,
                           const struct tcp_seg *seg)
{
        struct tcp_conn *tc = s->st->busy != 0 ? tcp_conn_at(&s->tcp, s->st->busy) : NULL;
        struct ip_optbuf came, back;
        struct tcp_opts o;

        if (tc == NULL || tc->state != TCPS_SYN_RECEIVED || tc->flags & TCF_ACTIVE ||
            tc->irs != seg->seq)
                return;
        stack_opts_record(s, k, pkt, &came);
        if (!ip_opts_back(&came, ip_addr_get_v4(pkt->src), &back))
                return;
        tcp_get_opts(tc, &o);
        o.ip_opts = back;
        tcp_set_opts(&s->tcp, tc, &o, s->now);
}

/* ---- out ---- */

/* What a transport hands to IP. */
struct leaving {
        const struct ip_optbuf *opts;
        ip_addr src, dst;
        uint8_t proto, tos, ttl;
        bool dont_frag;
        uint16_t id;
};

/* The header in front of `len` bytes, options and all; returns its own length. By a source route
 * the packet goes to the first hop. */
static uint32_t write_header(const struct stack *s, const struct leaving *p, uint32_t len,
                             uint8_t *hdr)
{
        uint32_t hop = ip_opts_build(p->opts, ip_addr_get_v4(p->src), ip_addr_get_v4(p->dst),
                                     stack_opts_ms(s), hdr + IP_MIN_HDR);
        struct ip_tmpl ip;

        ip_tmpl_init(&ip, p->src, ip_addr_v4(hop), p->proto, p->tos, p->ttl, p->dont_frag);
        ip_hdr_write(&ip, hdr, (uint16_t)(IP_MIN_HDR + p->opts->len + len), p->id);
        ip_opts_seal(hdr, p->opts->len);
        return IP_MIN_HDR + p->opts->len;
}

static void emit(struct stack *s, struct stack_chan *c, struct tcp_conn *tc,
                 const struct tcp_seg *seg)
{
        const struct leaving p = {.opts = &tc->opts.ip_opts,
                                  .src = tc->tuple.laddr,
                                  .dst = tc->tuple.raddr,
                                  .proto = IP_PROTO_TCP,
                                  .tos = tc->opts.tos | seg->ecn,
                                  .ttl = tc->opts.ttl,
                                  .dont_frag = true};
        struct buf data = seg->len != 0 ? seg->data : (struct buf){0, 0, 0};
        uint8_t tcp[TCP_MAX_HDR];
        unsigned thl = tcp_hdr_write(seg, tcp);
        struct netif_hdr h;
        uint32_t ihl;

        data.len = seg->len;
        ihl = write_header(s, &p, thl + seg->len, h.ip);
        memcpy(h.ip + ihl, tcp, thl);
        if (c->caps.csum)
                stack_sum_tcp(s, &tc->tuple, h.ip + ihl, thl, &data);
        count(&s->st->cnt, COUNT_TCP_OUT);
        stack_post(s, c, &h, ihl + thl, &data);
}

bool stack_opts_output(struct stack *s, struct stack_chan *c, struct tcp_conn *tc)
{
        struct tcp_seg seg;

        while (stack_chan_room(s, tc->tuple.chan)) {
                struct counters before = s->st->cnt;
                if (!tcp_output(&s->tcp, tc, &seg, s->now))
                        return true;
                emit(s, c, tc, &seg);
                if (stack_traced(s))
                        stack_trace_out(s, tc, &seg, &before);
        }
        return false;
}

int stack_opts_send_udp(struct stack *s, uint32_t k, const struct udp_out *o,
                        const struct stack_payload *p)
{
        struct stack_chan *c = &s->chan[k];
        struct leaving out = {.opts = o->opts,
                              .src = o->tuple.laddr,
                              .dst = o->tuple.raddr,
                              .proto = IP_PROTO_UDP,
                              .tos = o->tos,
                              .ttl = o->ttl};
        uint32_t len = IP_MIN_HDR + o->opts->len + UDP_HDR + p->len, ihl;
        struct frag_plan plan;
        struct netif_hdr h;
        int err = len > UINT16_MAX ? -EMSGSIZE
                                   : frag_decide(o->pmtu_mode, len, c->caps.mtu,
                                                 stack_path_mtu(s, o->tuple.raddr), &plan);

        assert(o->opts != NULL);
        if (err != 0)
                return err;
        out.dont_frag = plan.dont_frag;
        out.id = plan.dont_frag ? 0 : stack_new_id(s, out.src, out.dst, IP_PROTO_UDP);
        ihl = write_header(s, &out, UDP_HDR + p->len, h.ip);
        len = ihl + UDP_HDR;
        memcpy(h.ip + ihl, o->hdr, UDP_HDR);
        if (p->data.id == 0) {
                assert(len + p->len <= sizeof h.ip);
                memcpy(h.ip + len, p->inl, p->len);
                len += p->len;
        }
        if (plan.mtu == 0)
                stack_post(s, c, &h, len, &p->data);
        else if (!stack_post_fragments(s, c, k, h.ip, len - ihl, &p->data, plan.mtu, out.id))
                return -EAGAIN;
        return 0;
}

/* The options as they stand in a packet that we have sent, for sockets here that hear it. */
void stack_opts_loop(const struct stack *s, const struct udp_out *o, struct ip_optbuf *out)
{
        uint32_t us = ip_addr_get_v4(o->tuple.laddr), ms = stack_opts_ms(s);
        uint8_t hdr[IP_MAX_HDR];

        ip_opts_build(o->opts, us, ip_addr_get_v4(o->tuple.raddr), ms, hdr + IP_MIN_HDR);
        ip_opts_record(hdr, IP_MIN_HDR + o->opts->len, us, ms, out);
}
