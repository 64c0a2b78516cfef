/*
 * What arrives.
 *
 *   stack_run_rx() -> ops->recv() -> rx_packet() -> udp_flow_match(): like the one before
 *                                                     -> udp_rx_short() | udp_rx_to()
 *                                               -> ip_rx() -> rx_tcp() | rx_udp() | stack_icmp_rx()
 */
#include "netstack/stack_road.h"

#include "base/checksum.h"
#include "netstack/stack_trace.h"
#include "tcp/tcp_hdr.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_saved_syn.h"

/* Most a turn takes from one channel before the others have theirs. */
#define RX_TURN        256
#define CROWD_PATIENCE NS_PER_MS
#define LATER_MIN      256u /* bytes of payload: fewer are summed sooner with their header */

/* A channel that is no interface joins two stacks of one host, whose loopback addresses may appear
 * on it. */
struct ip_host stack_host_of(const struct stack *s, uint32_t k)
{
        const struct netif *n = s->chan[k].netif.nif;

        if (unlikely(n != NULL))
                return (struct ip_host){.addr = &n->addr,
                                        .naddr = 1,
                                        .csum = s->chan[k].caps.csum,
                                        .link_cast = s->chan[k].netif.cast,
                                        .ifc = (uint16_t)stack_ifc(s, k),
                                        .groups = s->igmp,
                                        .shared = s->chan[k].caps.shared,
                                        .take_source_routes = s->st->ip_conf.source_routes};
        if (unlikely(s->chan[k].remote))
                return (struct ip_host){
                        .addr = &s->st->chan[k].own, .naddr = 1, .csum = s->chan[k].caps.csum};
        return (struct ip_host){.addr = s->st->addr,
                                .naddr = s->st->naddr,
                                .local = true,
                                .csum = s->chan[k].caps.csum};
}

/* On a channel of another user: the sender has the port that it names. An established connection is
 * its channel's anyway (tcp_tuple.chan), so of TCP only what opens one is asked. */
static bool vouched(struct stack *s, uint32_t k, const struct ip_pkt *pkt, uint16_t sport)
{
        if (s->vouch == NULL || s->vouch(s, k, pkt->proto, pkt->src, sport))
                return true;
        count_drop(&s->st->cnt, DROP_NI_BAD_SOURCE);
        return false;
}

/* ---- TCP ---- */

static struct tcp_tuple tcp_tuple_of(const struct ip_pkt *pkt, const struct tcp_seg *seg,
                                     uint32_t k)
{
        return (struct tcp_tuple){.laddr = pkt->dst,
                                  .raddr = pkt->src,
                                  .lport = seg->dport,
                                  .rport = seg->sport,
                                  .chan = (uint16_t)k};
}

/* Puts off the sum of a segment that is longer than its header and in one piece: it is summed where
 * it is copied. Returns false if it is to be summed now. */
static bool sum_later(const struct ip_pkt *pkt, uint32_t thl, enum csum_check how,
                      struct tcp_seg *seg)
{
        uint32_t len = ip_payload_len(pkt);

        seg->unsummed = how == CSUM_WHOLE && pkt->data.id == 0 && len - thl >= LATER_MIN;
        if (seg->unsummed)
                seg->sum = csum_partial(pkt->inl, thl,
                                        csum_pseudo(pkt->src, pkt->dst, IP_PROTO_TCP, len));
        return seg->unsummed;
}

static bool tcp_sum_ok(struct stack *s, const struct ip_pkt *pkt, enum csum_check how)
{
        uint32_t pseudo = csum_pseudo(pkt->src, pkt->dst, IP_PROTO_TCP, ip_payload_len(pkt));
        uint32_t sum = csum_partial(pkt->inl, pkt->inl_len, pseudo);
        be16 field;

        if (pkt->data.id != 0)
                sum = csum_append(sum, pkt->inl_len,
                                  csum_partial(frame_addr(s->frames, pkt->data.id) + pkt->data.off,
                                               pkt->data.len, 0));
        memcpy(&field, pkt->inl + 16, sizeof field);
        return csum_right(sum, field, pseudo, how);
}

/* A segment says that what we send arrives. That of a peer whose segments are repeated says that it
 * does not, and neither is it said while ours are repeated (RFC 4861 §7.3.1: new acknowledgements,
 * and new data). */
static void judge_neighbour(struct stack *s, uint32_t k, const struct tcp_seg *seg, bool duplicate)
{
        const struct tcp_conn *tc = tcp_conn_at(&s->tcp, s->st->busy);

        if (duplicate)
                netif_doubted(s, &s->chan[k], tc->tuple.raddr);
        else if (seg->ack == tc->snd_una && tc->backoff == 0)
                netif_reached(s, &s->chan[k], tc->tuple.raddr);
}

/* Each rx_*: true when the message's frame now belongs to a queue. */
static bool rx_tcp(struct stack *s, uint32_t k, const struct ip_pkt *pkt)
{
        struct counters *cnt = &s->st->cnt;
        struct tcp_seg seg;
        struct tcp_tuple tuple;
        struct tcp_link link;
        struct tcp_syn syn;
        enum csum_check how;
        uint64_t old;
        bool took;
        int thl = tcp_hdr_parse(pkt->inl, pkt->inl_len, &seg);

        if (thl < 0) {
                count_drop(cnt, (enum drop) - thl);
                return false;
        }
        how = unet_csum_check(&s->chan[k].caps);
        if (!sum_later(pkt, (uint32_t)thl, how, &seg) && unlikely(how != CSUM_UNCHECKED) &&
            !tcp_sum_ok(s, pkt, how)) {
                count_drop(cnt, DROP_TCP_CHECKSUM);
                return false;
        }
        seg.len = ip_payload_len(pkt) - (uint32_t)thl;
        seg.ecn = pkt->tos & IP_ECN_MASK;
        seg.ttl = pkt->ttl;
        seg.inl = NULL;
        seg.data = pkt->data;
        if (pkt->data.id == 0) {
                seg.inl = pkt->inl + thl;
        } else if (unlikely(pkt->inl_len != (uint32_t)thl)) {
                /* Payload cut in two: no stack of ours sends that. */
                count_drop(cnt, DROP_NI_MALFORMED);
                return false;
        }
        if (unlikely(s->chan[k].stranger) && (seg.flags & (TCP_SYN | TCP_ACK)) == TCP_SYN &&
            !vouched(s, k, pkt, seg.sport))
                return false;
        count(cnt, COUNT_TCP_IN);
        tuple = tcp_tuple_of(pkt, &seg, k);
        link = stack_tcp_link(s, k);
        stack_begin(s->st, 0); /* tcp_rx() says which one, when it has found it */
        old = cnt->drop[DROP_TCP_OLD_DUPLICATE];
        if (unlikely(seg.flags & TCP_SYN)) {
                syn = (struct tcp_syn){pkt->hdr, pkt->inl, pkt->hdr_len, (uint8_t)thl};
                s->tcp.syn = &syn;
        }
        took = tcp_rx(&s->tcp, &tuple, &link, &seg, s->now);
        s->tcp.syn = NULL;
        if (unlikely(pkt->hdr_len != IP_MIN_HDR) && seg.flags & TCP_SYN)
                stack_opts_answer_syn(s, k, pkt, &seg);
        if (unlikely(s->chan[k].netif.nif != NULL) && s->st->busy != 0 && seg.flags & TCP_ACK)
                judge_neighbour(s, k, &seg, old != cnt->drop[DROP_TCP_OLD_DUPLICATE]);
        stack_end(s->st);
        return took;
}

/* ---- UDP ---- */

/* The place of a flow, by the ports of a datagram without IP options; of anything else, any
 * place. */
static struct udp_flow *flow_of(struct stack *s, const uint8_t *hdr)
{
        uint32_t ports;

        memcpy(&ports, hdr + IP_MIN_HDR, 4);
        return &s->flow[(ports ^ ports >> 8) % STACK_FLOWS];
}

/* Learns the flow of a whole datagram as it came. Not learnt are flows of strangers, whose every
 * datagram must be asked for, and datagrams that may be for several sockets. */
static void learn_flow(struct stack *s, uint32_t k, const struct ip_pkt *pkt,
                       const struct udp_dgram *d)
{
        if (pkt->hdr_len == IP_MIN_HDR && pkt->inl == pkt->hdr + IP_MIN_HDR && !pkt->more_frags &&
            s->chan[k].netif.nif == NULL && !unet_csum_check(&s->chan[k].caps) &&
            !s->chan[k].stranger && !ip_v4_multicast(ip_addr_get_v4(pkt->dst)))
                udp_flow_learn(flow_of(s, pkt->hdr), &s->udp, udp_lookup(&s->udp, &d->tuple),
                               s->st->addr_gen, pkt->hdr, &d->tuple);
}

static bool rx_udp(struct stack *s, uint32_t k, const struct ip_pkt *pkt)
{
        struct ip_optbuf opts;
        struct udp_dgram d;
        enum drop why;

        why = udp_hdr_parse(s->frames, pkt, (uint16_t)k, unet_csum_check(&s->chan[k].caps), &d);
        if (why != DROP_NONE) {
                count_drop(&s->st->cnt, why);
                return false;
        }
        if (unlikely(pkt->hdr_len != IP_MIN_HDR)) {
                stack_opts_record(s, k, pkt, &opts);
                d.opts = &opts;
        }
        if (unlikely(pkt->to != IP_TO_HOST)) {
                stack_rx_many(s, k, &d);
                return false;
        }
        if (unlikely(s->chan[k].stranger) && !vouched(s, k, pkt, d.tuple.rport))
                return false;
        switch (udp_rx(&s->udp, &d, s->now)) {
        case UDP_TOOK:
                learn_flow(s, k, pkt, &d);
                return true;
        case UDP_NO_PORT:
                stack_icmp_error(s, k, pkt, ICMP_UNREACHABLE, ICMP_PORT_UNREACHABLE, 0);
                return false;
        case UDP_DONE:
                learn_flow(s, k, pkt, &d);
                break;
        }
        return false;
}

/*
 * A UDP socket is full and its reader is at work. The channel's messages stay where they are for
 * now, the ring fills, and the sender is told to wait (back-pressure, paper §3.1). So no buffer is
 * filled whose end is thrown away. A reader that has read nothing for CROWD_PATIENCE holds nobody
 * up: what comes then is dropped and counted.
 */
static bool held_back(struct stack *s, uint32_t k)
{
        struct stack_state *st = s->st;
        uint64_t consumed;

        if (likely(st->crowd.pcb == 0) || st->crowd.chan != k)
                return false;
        if (!udp_crowded(&s->udp, st->crowd.pcb)) {
                st->crowd.pcb = 0;
                return false;
        }
        consumed = udp_consumed(&s->udp, st->crowd.pcb);
        if (consumed != st->crowd.consumed) {
                st->crowd.consumed = consumed;
                st->crowd.since = s->now;
        }
        return s->now - st->crowd.since <= CROWD_PATIENCE;
}

static void tell_socket(struct stack *s, uint32_t pcb)
{
        uint32_t events = udp_take_events(&s->udp, pcb), sock = udp_get_sock(&s->udp, pcb);

        if (unlikely(udp_crowded(&s->udp, pcb)) && s->st->crowd.pcb == 0) {
                s->st->crowd.pcb = pcb;
                s->st->crowd.chan = s->rx_chan;
                s->st->crowd.consumed = udp_consumed(&s->udp, pcb);
                s->st->crowd.since = s->now;
        }
        if (sock != 0 && events != 0)
                s->event(s, sock,
                         (events & UDP_EV_READABLE ? TCP_EV_READABLE : 0) |
                                 (events & UDP_EV_ERROR ? TCP_EV_CLOSED : 0));
}

static void tell_reader(struct stack *s)
{
        uint32_t pcb = s->rx_told;

        s->rx_told = 0;
        if (pcb != 0)
                tell_socket(s, pcb);
}

void stack_udp_touched(void *arg, uint32_t pcb)
{
        struct stack *s = arg;

        if (!s->rx_batch) {
                tell_socket(s, pcb);
                return;
        }
        if (s->rx_told != pcb)
                tell_reader(s);
        s->rx_told = pcb;
}

/* ---- any packet ---- */

/* Returns true if the source is not what the channel's peer may use: nobody on this host speaks for
 * another host. */
static bool foreign_source(const struct stack *s, uint32_t k, const struct ip_host *host,
                           const struct ip_pkt *pkt)
{
        if (unlikely(s->chan[k].remote))
                return !ip_addr_eq(pkt->src, ip_addr_v4(s->st->chan[k].remote));
        return s->chan[k].caps.inside && !ip_addr_eq(pkt->src, pkt->dst) &&
               !ip_host_owns(host, ip_addr_get_v4(pkt->src));
}

static bool rx_datagram(struct stack *s, uint32_t k, const struct ip_pkt *pkt)
{
        if (unlikely(pkt->to != IP_TO_HOST) &&
            pkt->proto == IP_PROTO_TCP) { /* RFC 9293 §3.9.2.3, MUST-57 */
                count_drop(&s->st->cnt, DROP_TCP_BAD_ADDRESS);
                return false;
        }
        switch (pkt->proto) {
        case IP_PROTO_TCP:
                return rx_tcp(s, k, pkt);
        case IP_PROTO_UDP:
                return rx_udp(s, k, pkt);
        case IP_PROTO_ICMP:
                stack_icmp_rx(s, k, pkt);
                return false;
        case IP_PROTO_IGMP:
                stack_rx_igmp(s, k, pkt);
                return false;
        default:
                count_drop(&s->st->cnt, DROP_IP_PROTOCOL);
                stack_icmp_error(s, k, pkt, ICMP_UNREACHABLE, ICMP_PROTOCOL_UNREACHABLE, 0);
                return false;
        }
}

/* Its own frame, if any, is the message's; a datagram that it completes may bring one of ours. */
static void rx_fragment(struct stack *s, uint32_t k, struct ip_pkt *pkt)
{
        if (!stack_ip_fragment(s, k, pkt))
                return;
        if (!rx_datagram(s, k, pkt) && pkt->data.id != 0)
                frame_drop(s->frames, pkt->data.id);
        stack_ip_done(s);
}

/* A packet that lies in one piece is shown so, headers and all: it is copied by whoever keeps it,
 * and its frame goes back at once. */
static void in_one_piece(struct stack *s, struct ip_pkt *pkt)
{
        if (pkt->data.id == 0)
                return;
        pkt->inl = frame_addr(s->frames, pkt->data.id) + pkt->data.off - pkt->inl_len;
        pkt->inl_len += pkt->data.len;
        pkt->data = (struct buf){0, 0, 0};
}

static bool rx_parse(struct stack *s, uint32_t k, const struct unet_rx *rx)
{
        struct ip_host host = stack_host_of(s, k);
        struct ip_pkt pkt;
        enum drop why = ip_rx(&host, (uint16_t)k, rx, &pkt);

        if (unlikely(why != DROP_NONE && why != DROP_IP_FRAGMENT)) {
                count_drop(&s->st->cnt, why);
                if (why == DROP_IP_OPTIONS)
                        stack_icmp_error(s, k, &pkt, ICMP_PARAMETER_PROBLEM, 0,
                                         (uint32_t)pkt.bad << 24);
                if (why == DROP_IP_SOURCE_ROUTE && host.take_source_routes)
                        stack_icmp_error(s, k, &pkt, ICMP_UNREACHABLE, ICMP_SOURCE_ROUTE_FAILED, 0);
                return false;
        }
        if (unlikely(foreign_source(s, k, &host, &pkt))) {
                count_drop(&s->st->cnt, DROP_NI_BAD_SOURCE);
                return false;
        }
        if (unlikely(s->chan[k].caps.whole))
                in_one_piece(s, &pkt);
        if (unlikely(why == DROP_IP_FRAGMENT)) {
                rx_fragment(s, k, &pkt);
                return false;
        }
        return rx_datagram(s, k, &pkt);
}

static inline bool rx_flow(struct stack *s, uint32_t k, const struct udp_flow *f,
                           const struct unet_rx *rx)
{
        struct udp_dgram d;

        if (rx->frame == 0 &&
            udp_rx_short(&s->udp, f->pcb, &f->tuple, rx->inl + IP_MIN_HDR + UDP_HDR,
                         rx->inl_len - (IP_MIN_HDR + UDP_HDR), s->now))
                return false;
        udp_flow_take(f, (uint16_t)k, rx, &d);
        return udp_rx_to(&s->udp, f->pcb, &d, s->now) == UDP_TOOK;
}

static bool rx_packet(struct stack *s, uint32_t k, const struct unet_rx *rx)
{
        const struct udp_flow *f;

        if (likely(rx->inl_len >= IP_MIN_HDR + UDP_HDR)) {
                f = flow_of(s, rx->inl);
                if (udp_flow_match(f, &s->udp, (uint16_t)k, s->st->addr_gen, rx))
                        return rx_flow(s, k, f, rx);
        }
        return rx_parse(s, k, rx);
}

/* As rx_packet(), with a line of the trace. */
static bool rx_traced(struct stack *s, uint32_t k, const struct unet_rx *rx)
{
        struct counters before = s->st->cnt;
        bool took = rx_packet(s, k, rx);

        stack_trace_in(s, k, rx, &before);
        return took;
}

bool stack_rx_packet(struct stack *s, uint32_t k, const struct unet_rx *rx)
{
        return stack_traced(s) ? rx_traced(s, k, rx) : rx_packet(s, k, rx);
}

bool stack_run_rx(struct stack *s, uint32_t k, struct stack_chan *c)
{
        struct unet_rx rx[STACK_RX_BATCH];
        int n, total = 0;

        s->rx_chan = k;
        s->rx_batch = true;
        do {
                if (unlikely(held_back(s, k)))
                        break;
                n = c->ops->recv(c->ch, rx, STACK_RX_BATCH);
                for (int i = 0; capture_on(s->capture) && i < n; i++)
                        stack_capture(s, c, CAPTURE_IN, rx[i].inl, rx[i].inl_len,
                                      rx[i].frame != 0 ? frame_id(FRAME_REGION_RX(k), rx[i].frame)
                                                       : 0,
                                      rx[i].off, rx[i].len);
                for (int i = 0; i < n; i++) {
                        bool taken = likely(c->netif.nif == NULL) ? stack_rx_packet(s, k, &rx[i])
                                                                  : netif_rx(s, k, &rx[i]);
                        if (!taken && rx[i].frame != 0)
                                c->ops->release(c->ch, &(uint32_t){frame_id_num(rx[i].frame)}, 1);
                }
                tell_reader(s);
                total += n;
        } while (n == STACK_RX_BATCH && total < RX_TURN);
        s->rx_batch = false;
        if (total < RX_TURN && !c->caps.lossless)
                tcp_caught_up(&s->tcp, s->now);
        return total > 0;
}

void stack_last_words(struct stack *s, uint32_t k)
{
        struct stack_chan *c = stack_chan_get(s, k);

        assert(k < STACK_CHANS);
        for (uint32_t n = 0; c != NULL && n < SHM_SLOTS / STACK_RX_BATCH; n++) {
                s->st->crowd.pcb = 0;
                if (!stack_run_rx(s, k, c))
                        return;
        }
}
