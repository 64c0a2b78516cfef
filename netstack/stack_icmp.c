/*
 * ICMP: echoes are answered, errors are sent by RFC 1122 §3.2.2 and delivered to the socket they
 * are about.
 *
 *      rx_datagram() -> stack_icmp_rx() -> send_echo() | rx_icmp_error() -> tcp_icmp() | udp_icmp()
 */
#include "netstack/stack_road.h"

#include "ip/ip_opts.h"
#include "ip/pmtu.h"
#include "base/checksum.h"
#include "tcp/tcp_loop.h"

/* Sends `len` bytes behind an IP header of a template; to channel k. Best effort, as all
 * ICMP is. */
static void send_small(struct stack *s, uint32_t k, const struct ip_tmpl *ip, struct netif_hdr *h,
                       uint32_t len, uint16_t id)
{
        struct stack_chan *c = &s->chan[k];
        struct buf none = {0, 0, 0};

        if (!stack_chan_room(s, k))
                return;
        ip_hdr_write(ip, h->ip, (uint16_t)(IP_MIN_HDR + len), id);
        count(&s->st->cnt, COUNT_ICMP_OUT);
        stack_post(s, c, h, IP_MIN_HDR + len, &none);
}

uint8_t *stack_icmp_frame(struct stack *s, uint32_t k, uint32_t len, struct buf *data)
{
        assert(k < STACK_CHANS && s->chan[k].ops != NULL);
        if (!stack_chan_room(s, k))
                return NULL;
        *data = (struct buf){.len = len};
        data->id = frame_alloc(s->frames, FRAME_REGION_TX(k),
                               len <= FRAME_SMALL_BYTES ? FRAME_SMALL : FRAME_LARGE, 0);
        return data->id != 0 ? frame_addr(s->frames, data->id) : NULL;
}

void stack_icmp_post(struct stack *s, uint32_t k, const struct ip_tmpl *ip, const struct buf *data,
                     uint16_t id)
{
        struct stack_chan *c = &s->chan[k];
        struct netif_hdr h;

        assert(k < STACK_CHANS && s->chan[k].ops != NULL);
        ip_hdr_write(ip, h.ip, (uint16_t)(IP_MIN_HDR + data->len), id);
        count(&s->st->cnt, COUNT_ICMP_OUT);
        if (IP_MIN_HDR + data->len > c->caps.mtu)
                stack_post_fragments(s, c, k, h.ip, 0, data, c->caps.mtu, id);
        else
                stack_post(s, c, &h, IP_MIN_HDR, data);
        frame_drop(s->frames, data->id);
}

void stack_icmp_error(struct stack *s, uint32_t k, const struct ip_pkt *pkt, uint8_t type,
                      uint8_t code, uint32_t param)
{
        const struct unet_caps *caps = &s->chan[k].caps;
        uint32_t len = ICMP_HDR + pkt->hdr_len + ip_payload_len(pkt), id;
        uint8_t *quote = NULL;
        struct netif_hdr out;
        struct buf data;
        struct ip_tmpl ip;

        struct ip_host host = stack_host_of(s, k);

        if (!icmp_may_answer(&host, pkt))
                return;
        if (s->chan[k].outside &&
            !icmp_rate_take(&s->st->icmp, &s->st->prng, pkt->src, type, s->now)) {
                count_drop(&s->st->cnt, DROP_ICMP_RATE);
                return;
        }
        ip_tmpl_init(&ip, pkt->dst, pkt->src, IP_PROTO_ICMP, 0, stack_ttl(s->st), false);
        id = stack_new_id(s, pkt->dst, pkt->src, IP_PROTO_ICMP);
        len = MIN(len, MIN(caps->mtu, ICMP_MAX_ERROR) - IP_MIN_HDR);
        if (IP_MIN_HDR + len > caps->inline_max)
                quote = stack_icmp_frame(s, k, len, &data);
        if (quote != NULL) {
                data.len = icmp_error_write(s->frames, pkt, type, code, param, quote, len);
                stack_icmp_post(s, k, &ip, &data, (uint16_t)id);
                return;
        }
        len = icmp_error_write(s->frames, pkt, type, code, param, out.ip + IP_MIN_HDR,
                               caps->inline_max - IP_MIN_HDR);
        send_small(s, k, &ip, &out, len, (uint16_t)id);
}

/* RFC 1122 §3.2.2.6: record route and timestamp come back with us in them, by a source route the
 * other way round; of echoes that fit a descriptor. False: not so. */
static bool send_echo_options(struct stack *s, uint32_t k, const struct ip_pkt *pkt,
                              const struct ip_tmpl *ip, uint16_t id)
{
        static const struct buf none = {0, 0, 0};
        struct stack_chan *c = &s->chan[k];
        uint32_t len = ip_payload_len(pkt), hop;
        struct ip_tmpl by;
        struct netif_hdr h;
        struct ip_opts_found o;
        uint8_t bad;
        unsigned n;

        if (IP_MAX_HDR + len > c->caps.inline_max || !stack_chan_room(s, k) ||
            ip_opts_parse(pkt->hdr, pkt->hdr_len, s->st->ip_conf.source_routes, &o, &bad) !=
                    DROP_NONE)
                return false;
        n = ip_opts_answer(pkt->hdr, &o, ip_addr_get_v4(pkt->dst), ip_addr_get_v4(pkt->src),
                           stack_opts_ms(s), h.ip + IP_MIN_HDR, &hop);
        if (o.sr != 0) {
                ip_tmpl_init(&by, pkt->dst, ip_addr_v4(hop), IP_PROTO_ICMP, pkt->tos,
                             stack_ttl(s->st), false);
                ip = &by;
        }
        ip_hdr_write(ip, h.ip, (uint16_t)(IP_MIN_HDR + n + len), id);
        ip_opts_seal(h.ip, n);
        icmp_echo_reply(s->frames, pkt, h.ip + IP_MIN_HDR + n);
        count(&s->st->cnt, COUNT_ICMP_OUT);
        stack_post(s, c, &h, IP_MIN_HDR + n + len, &none);
        return true;
}

static void send_echo(struct stack *s, uint32_t k, const struct ip_pkt *pkt)
{
        struct stack_chan *c = &s->chan[k];
        uint32_t len = ip_payload_len(pkt);
        struct netif_hdr hdr;
        struct ip_tmpl ip;
        struct buf data;
        uint8_t *reply;
        uint16_t id = stack_new_id(s, pkt->dst, pkt->src, IP_PROTO_ICMP);

        ip_tmpl_init(&ip, pkt->dst, pkt->src, IP_PROTO_ICMP, pkt->tos, stack_ttl(s->st), false);
        if (pkt->hdr_len != IP_MIN_HDR && send_echo_options(s, k, pkt, &ip, id))
                return;
        if (IP_MIN_HDR + len <= c->caps.inline_max) {
                icmp_echo_reply(s->frames, pkt, hdr.ip + IP_MIN_HDR);
                send_small(s, k, &ip, &hdr, len, id);
                return;
        }
        reply = stack_icmp_frame(s, k, len, &data);
        if (reply == NULL)
                return;
        icmp_echo_reply(s->frames, pkt, reply);
        stack_icmp_post(s, k, &ip, &data, id);
}

/* An error about a datagram that did not go out on the channel it came by. */
static bool udp_error_forged(struct stack *s, uint32_t k, const struct icmp_err *e)
{
        struct udp_tuple t = {
                .laddr = e->laddr, .raddr = e->raddr, .lport = e->lport, .rport = e->rport};
        uint32_t pcb = udp_lookup(&s->udp, &t), sock = pcb != 0 ? udp_get_sock(&s->udp, pcb) : 0;

        return sock != 0 && stack_sock(s, sock)->chan != k + 1;
}

/* For a socket with IP_RECVERR. pkt: the error as it came, NULL: found here. */
static void keep_error(struct stack *s, uint32_t k, const struct ip_pkt *pkt,
                       const struct icmp_err *e, uint32_t pcb)
{
        struct udp_error kept = {.type = e->type,
                                 .code = e->code,
                                 .ttl = e->ttl,
                                 .tos = e->tos,
                                 .chan = (uint16_t)k,
                                 .dport = e->rport,
                                 .err = e->err,
                                 .info = e->mtu,
                                 .from = e->from,
                                 .src = e->laddr,
                                 .dst = e->raddr,
                                 .at = s->now};

        if (pkt != NULL)
                kept.len = icmp_quoted(s->frames, pkt, e, kept.data, sizeof kept.data);
        udp_error_add(&s->udp, pcb, &kept);
}

static bool rx_udp_error(struct stack *s, uint32_t k, const struct ip_pkt *pkt,
                         const struct icmp_err *e)
{
        uint32_t pcb = udp_error_wanted(&s->udp, e);

        if (unlikely(pcb != 0))
                keep_error(s, k, pkt, e, pcb);
        return udp_icmp(&s->udp, e);
}

/* Returns true if another socket has the port: of several (SO_REUSEPORT) the one that was found has
 * gone. What it was sent is lost, as what it had not read is, and the others go on. From now on
 * whoever has the port is looked for each time. */
static bool is_elsewhere(struct stack *s, uint32_t k, const struct icmp_err *e)
{
        struct udp_tuple t = {
                .laddr = e->laddr, .raddr = e->raddr, .lport = e->lport, .rport = e->rport};
        uint32_t pcb, sock;

        if (e->type != ICMP_UNREACHABLE || e->code != ICMP_PORT_UNREACHABLE || s->chan[k].outside ||
            s->elsewhere == NULL || !s->elsewhere(s, k, e->raddr, e->rport))
                return false;
        pcb = udp_lookup(&s->udp, &t);
        sock = pcb != 0 ? udp_get_sock(&s->udp, pcb) : 0;
        if (sock != 0 && stack_sock(s, sock)->chan == k + 1)
                WRITE_ONCE(stack_sock(s, sock)->many, stack_sock(s, sock)->many | SOCK_MANY_PLACES);
        return true;
}

static void rx_icmp_error(struct stack *s, uint32_t k, const struct ip_pkt *pkt,
                          const struct icmp_err *e)
{
        struct tcp_tuple t = {.laddr = e->laddr,
                              .raddr = e->raddr,
                              .lport = e->lport,
                              .rport = e->rport,
                              .chan = (uint16_t)k};
        bool ours = false;

        if (e->proto == IP_PROTO_TCP)
                tcp_icmp(&s->tcp, &t, e->seq, e->err, e->type == ICMP_UNREACHABLE, pmtu_claim(e),
                         s->now);
        else if (unlikely(e->proto == IP_PROTO_ICMP))
                ours = stack_ping_error(s, e);
        else if (unlikely(s->chan[k].stranger) && udp_error_forged(s, k, e))
                count_drop(&s->st->cnt, DROP_NI_BAD_SOURCE);
        else if (e->proto == IP_PROTO_UDP && !is_elsewhere(s, k, e))
                ours = rx_udp_error(s, k, pkt, e);
        if (ours && pmtu_claim(e) != 0)
                stack_path_learnt(s, k, e->raddr, pmtu_claim(e));
}

void stack_undelivered(struct stack *s, uint32_t k, const struct ip_pkt *pkt, const uint8_t *l4,
                       int err)
{
        struct icmp_err e = {.type = ICMP_UNREACHABLE,
                             .code = ICMP_HOST_UNREACHABLE,
                             .proto = pkt->proto,
                             .err = err,
                             .hard = true,
                             .laddr = pkt->src,
                             .raddr = pkt->dst,
                             .from = pkt->src,
                             .ttl = 64,
                             .lport = be16_at(l4),
                             .rport = be16_at(l4 + 2),
                             .seq = be32_at(l4 + 4)};

        rx_icmp_error(s, k, NULL, &e);
}

void stack_icmp_rx(struct stack *s, uint32_t k, const struct ip_pkt *pkt)
{
        struct icmp_msg msg;
        enum drop why = icmp_rx(s->frames, pkt, s->chan[k].caps.csum, &msg);

        if (why != DROP_NONE) {
                count_drop(&s->st->cnt, why);
                return;
        }
        count(&s->st->cnt, COUNT_ICMP_IN);
        if (msg.what == ICMP_IS_ECHO)
                send_echo(s, k, pkt);
        else if (msg.what == ICMP_IS_ERROR)
                rx_icmp_error(s, k, pkt, &msg.err);
        else if (msg.what == ICMP_IS_REPLY)
                stack_ping_reply(s, pkt, &msg);
        else if (msg.what != ICMP_IS_REDIRECT || !stack_route_redirect(s, k, &msg.redirect))
                /* Timestamps, and redirects that nobody wants. */
                count_drop(&s->st->cnt, DROP_ICMP_IGNORED);
}
