/*
 * The loop that joins channels and protocols; the only code that knows both sides.
 *
 *      stack_run() -> for each channel: ops->recv() -> rx_message() -> ip_rx() -> tcp_rx() | udp_rx() | icmp_rx()
 *                  -> wheel_pop() -> tcp_expire()
 *                  -> drain(): for each connection touched: tcp_output() -> stack_emit_tcp() -> ops->send(); deadline; events
 *                  -> ops->flush()
 */
#include "netstack/stack.h"

#include <errno.h>

#include "ip/ip_opts.h"
#include "ip/pmtu.h"
#include "netstack/checksum.h"
#include "netstack/stack_trace.h"

#define RX_BATCH    16                  /* messages taken from a channel at once */
#define RX_TURN     256                 /* most a turn takes from one channel before the others have theirs */
#define REAP_BATCH  64
#define ROOM_ENOUGH SHM_PUBLISH_EVERY   /* free slots before those who waited for one go on */
#define CROWD_PATIENCE NS_PER_MS
#define LOANS_MAX   (SHM_RETS - RX_BATCH)

static const uint32_t wheel_off = offsetof(struct tcp_conn, wheel);

static struct pool *conns(struct stack *s)
{
        return &s->tcp.sh->conns;
}

/* ---- the list of connections touched ---- */

static void touched(void *arg, uint32_t conn)
{
        struct stack *s = arg;
        struct stack_state *st = s->st;
        struct tcp_conn *tc = tcp_conn_at(&s->tcp, conn);

        if (tc->out_queued)
                return;
        tc->out_queued = 1;
        tc->out_next = 0;
        if (st->out_tail != 0)
                tcp_conn_at(&s->tcp, st->out_tail)->out_next = conn;
        else
                st->out_head = conn;
        st->out_tail = conn;
}

static void out_unlink(struct stack *s, uint32_t conn)
{
        struct stack_state *st = s->st;
        uint32_t prev = 0, i = st->out_head;

        while (i != conn) {
                prev = i;
                i = tcp_conn_at(&s->tcp, i)->out_next;
        }
        i = tcp_conn_at(&s->tcp, conn)->out_next;
        if (prev != 0)
                tcp_conn_at(&s->tcp, prev)->out_next = i;
        else
                st->out_head = i;
        if (st->out_tail == conn)
                st->out_tail = prev;
        tcp_conn_at(&s->tcp, conn)->out_queued = 0;
}

/* The record is about to be freed. */
static void gone(void *arg, uint32_t conn)
{
        struct stack *s = arg;

        wheel_cancel(&s->st->wheel, conns(s), wheel_off, conn);
        if (tcp_conn_at(&s->tcp, conn)->out_queued)
                out_unlink(s, conn);
}

/* ---- out ---- */

static const struct ip_tmpl *template_of(struct stack *s, const struct tcp_conn *tc)
{
        struct stack_tmpl *t = &s->tmpl[tc->self % STACK_TMPLS];
        uint16_t tos_ttl = (uint16_t)(tc->opts.tos << 8 | tc->opts.ttl);

        if (unlikely(t->conn != tc->self || t->gen != tc->gen || t->tos_ttl != tos_ttl)) {
                ip_tmpl_init(&t->ip, tc->tuple.laddr, tc->tuple.raddr, IP_PROTO_TCP, tc->opts.tos, tc->opts.ttl,
                             true);
                t->conn = tc->self;
                t->gen = tc->gen;
                t->tos_ttl = tos_ttl;
        }
        return &t->ip;
}

/* Whether the channel takes one more message, frame included. If not, the peer is asked to say when it does. */
static bool chan_has_room(struct stack *s, struct stack_chan *c, uint32_t k)
{
        struct frame_pool *p = s->frames->region[FRAME_REGION_TX(k)].pool;

        if (likely(p->loans < LOANS_MAX && c->ops->room(c->ch) > 0))
                return true;
        if (!c->starved && c->ops->want_room != NULL)
                c->ops->want_room(c->ch, true);
        c->starved = true;
        return false;
}

/* For `unet pcap`, when somebody listens: a message as it is on channel c. */
static void capture(struct stack *s, const struct stack_chan *c, enum capture_dir dir, const uint8_t *inl,
                    uint32_t inl_len, uint32_t frame, uint32_t off, uint32_t len)
{
        struct capture_pkt p = {.hdr = inl, .hdr_len = inl_len, .data_len = len, .dir = dir,
                                .chan = (uint16_t)(c - s->chan)};

        if (frame != 0)
                p.data = frame_addr(s->frames, frame) + off;
        if (c->netif.nif != NULL && !netif_strip(&p))
                return;
        capture_write(s->capture, &p, s->now);
}

bool stack_chan_room(struct stack *s, uint32_t k)
{
        return chan_has_room(s, &s->chan[k], k);
}

void stack_post_raw(struct stack *s, struct stack_chan *c, const uint8_t *inl, uint32_t inl_len, const struct buf *data)
{
        struct unet_tx tx = {.inl = inl, .inl_len = (uint16_t)inl_len};

        if (data->id != 0) {
                frame_lend(s->frames, data->id);
                tx.frame = frame_id_num(data->id);
                tx.off = data->off;
                tx.len = data->len;
        }
        if (capture_on(s->capture))
                capture(s, c, CAPTURE_OUT, tx.inl, tx.inl_len, tx.frame != 0 ? data->id : 0, tx.off, tx.len);
        c->ops->send(c->ch, &tx, 1);
}

/* One IP packet: headers, then payload from a frame, in the descriptor when it fits. There is room. */
static void post(struct stack *s, struct stack_chan *c, struct netif_hdr *h, uint32_t hdr_len, const struct buf *data)
{
        static const struct buf none = {0, 0, 0};
        const uint8_t *start = h->ip;

        if (data->id != 0 && hdr_len + data->len <= c->caps.inline_max) {
                memcpy(h->ip + hdr_len, frame_addr(s->frames, data->id) + data->off, data->len);
                hdr_len += data->len;
                data = &none;
        }
        if (unlikely(c->netif.nif != NULL)) {
                if (!netif_link(s, c, h->ip, hdr_len, data))
                        return;
                start -= ETHER_HDR;
                hdr_len += ETHER_HDR;
        }
        stack_post_raw(s, c, start, hdr_len, data);
}

static void sum_tcp(struct stack *s, const struct tcp_tuple *to, uint8_t *hdr, unsigned len, const struct buf *data)
{
        uint32_t sum = csum_pseudo(to->laddr, to->raddr, IP_PROTO_TCP, len + data->len);
        be16 field;

        sum = csum_partial(hdr, len, sum);
        if (data->id != 0)
                sum = csum_append(sum, len, csum_partial(frame_addr(s->frames, data->id) + data->off, data->len, 0));
        field = csum_finish(sum);
        memcpy(hdr + 16, &field, 2);
}

void stack_emit_tcp(struct stack *s, struct stack_chan *c, const struct ip_tmpl *ip, const struct tcp_tuple *to,
                    const struct tcp_seg *seg)
{
        struct netif_hdr h;
        uint8_t *hdr = h.ip;
        unsigned thl = tcp_hdr_write(seg, hdr + IP_MIN_HDR);
        struct buf data = seg->len != 0 ? seg->data : (struct buf){0, 0, 0};

        data.len = seg->len;
        ip_hdr_write(ip, hdr, (uint16_t)(IP_MIN_HDR + thl + seg->len), 0);
        if (unlikely(c->caps.csum))
                sum_tcp(s, to, hdr + IP_MIN_HDR, thl, &data);
        count(&s->st->cnt, COUNT_TCP_OUT);
        post(s, c, &h, IP_MIN_HDR + thl, &data);
}

/* A segment that belongs to no connection. Best effort: with the queue full, the peer will ask again. */
static void reply(void *arg, const struct tcp_tuple *to, const struct tcp_seg *seg)
{
        struct stack *s = arg;
        struct stack_chan *c = stack_chan_get(s, to->chan);
        struct ip_tmpl ip;

        if (c == NULL || !chan_has_room(s, c, to->chan))
                return;
        ip_tmpl_init(&ip, to->laddr, to->raddr, IP_PROTO_TCP, 0, 64, true);
        stack_emit_tcp(s, c, &ip, to, seg);
}

/* As output_conn(), for those who watch. */
static bool output_traced(struct stack *s, struct stack_chan *c, struct tcp_conn *tc)
{
        while (chan_has_room(s, c, tc->tuple.chan)) {
                struct counters before = s->st->cnt;
                struct tcp_seg seg;
                if (!tcp_output(&s->tcp, tc, &seg, s->now))
                        return true;
                stack_emit_tcp(s, c, template_of(s, tc), &tc->tuple, &seg);
                stack_trace_out(s, tc, &seg, &before);
        }
        return false;
}

/* True when everything due went out; false when the channel has no room, or is not mapped here yet. */
static bool output_conn(struct stack *s, struct tcp_conn *tc)
{
        struct stack_chan *c = stack_chan_get(s, tc->tuple.chan);
        struct tcp_seg seg;

        if (c == NULL)
                return atomic_load_explicit(&s->st->chan[tc->tuple.chan].state, memory_order_relaxed) != CHAN_READY;
        if (unlikely(c->netif.nif != NULL) && netif_cuts(s, c, tc))
                return netif_output(s, c, tc, template_of(s, tc));
        if (stack_traced(s))
                return output_traced(s, c, tc);
        while (chan_has_room(s, c, tc->tuple.chan)) {
                if (!tcp_output(&s->tcp, tc, &seg, s->now))
                        return true;
                stack_emit_tcp(s, c, template_of(s, tc), &tc->tuple, &seg);
        }
        return false;
}

/* An acknowledgement that waits for the end of the turn is remembered; with the table full it goes now. */
static void note_ack(struct stack *s, struct tcp_conn *tc)
{
        struct stack_state *st = s->st;

        if (tc->delack_at == NSTIME_NEVER)
                return;
        for (uint32_t i = 0; i < st->nacks; i++)
                if (st->acks[i] == tc->self)
                        return;
        if (st->nacks < ARRAY_LEN(st->acks))
                st->acks[st->nacks++] = tc->self;
}

static void tell(struct stack *s, struct tcp_conn *tc)
{
        uint32_t events = tc->events;

        if (tc->acc_state == ACC_QUEUED && tc->listener != 0) {
                struct tcp_listener *l = tcp_listener_at(&s->tcp, tc->listener);
                if (l->events != 0 && l->sock != 0) {
                        l->events = 0;
                        s->event(s, l->sock, TCP_EV_ACCEPT);
                }
        }
        if (events != 0 && tc->sock != 0) {
                tc->events = 0;
                s->event(s, tc->sock, events);
        }
}

/* What a touched connection is due. Those whose channel is full stay on the list, behind the others. */
static void drain(struct stack *s)
{
        struct stack_state *st = s->st;
        uint32_t first_stuck = 0, conn;

        while ((conn = st->out_head) != 0 && conn != first_stuck) {
                struct tcp_conn *tc = tcp_conn_at(&s->tcp, conn);

                stack_begin(st, conn);
                st->out_head = tc->out_next;
                if (st->out_head == 0)
                        st->out_tail = 0;
                tc->out_queued = 0;
                if (!output_conn(s, tc)) {
                        touched(s, conn);
                        if (first_stuck == 0)
                                first_stuck = conn;
                }
                if (tc->live) {
                        wheel_set(&st->wheel, conns(s), wheel_off, conn, tcp_deadline(tc));
                        note_ack(s, tc);
                        tell(s, tc);
                }
                stack_end(st);
        }
}

void stack_flush_bells(struct stack *s)
{
        for (uint32_t k = 0; k < s->nchan; k++) {
                uint64_t rung = s->st->cnt.n[COUNT_NI_BELLS];
                if (s->chan[k].ops == NULL)
                        continue;
                s->chan[k].ops->flush(s->chan[k].ch);
                if (unlikely(s->st->cnt.n[COUNT_NI_BELLS] != rung))
                        trace(s->trace, s->now, TRACE_RING, 0, k);
        }
}

void stack_flush(struct stack *s, nstime now)
{
        s->now = now;
        drain(s);
        stack_flush_bells(s);
}

void stack_flush_acks(struct stack *s, nstime now)
{
        struct stack_state *st = s->st;

        if (st->nacks == 0)
                return;
        for (uint32_t i = 0; i < st->nacks; i++) {
                struct tcp_conn *tc = tcp_conn_at(&s->tcp, st->acks[i]);
                if (tc->live)
                        tcp_flush_ack(&s->tcp, tc);
        }
        st->nacks = 0;
        stack_flush(s, now);
}

/* ---- in ---- */

/* A channel that is no interface joins two stacks of one host, whose loopback addresses may appear on it. */
static struct ip_host host_of(const struct stack *s, uint32_t k)
{
        const struct netif *n = s->chan[k].netif.nif;

        if (unlikely(n != NULL))
                return (struct ip_host){.addr = &n->addr, .naddr = 1, .csum = s->chan[k].caps.csum,
                                        .link_cast = s->chan[k].netif.cast};
        return (struct ip_host){
                .addr = s->st->addr, .naddr = s->st->naddr, .local = true, .csum = s->chan[k].caps.csum};
}

static struct tcp_tuple tcp_tuple_of(const struct ip_pkt *pkt, const struct tcp_seg *seg, uint32_t k)
{
        return (struct tcp_tuple){.laddr = pkt->dst, .raddr = pkt->src, .lport = seg->dport, .rport = seg->sport,
                                  .chan = (uint16_t)k};
}

/* On a channel of another user: the sender has the port that it names. An established connection is its channel's anyway
 * (tcp_tuple.chan), so of TCP only what opens one is asked. */
static bool vouched(struct stack *s, uint32_t k, const struct ip_pkt *pkt, uint16_t sport)
{
        if (s->vouch == NULL || s->vouch(s, k, pkt->proto, pkt->src, sport))
                return true;
        count_drop(&s->st->cnt, DROP_NI_BAD_SOURCE);
        return false;
}

static bool tcp_sum_ok(struct stack *s, const struct ip_pkt *pkt, enum csum_check how)
{
        uint32_t pseudo = csum_pseudo(pkt->src, pkt->dst, IP_PROTO_TCP, ip_payload_len(pkt));
        uint32_t sum = csum_partial(pkt->inl, pkt->inl_len, pseudo);
        be16 field;

        if (pkt->data.id != 0)
                sum = csum_append(sum, pkt->inl_len,
                                  csum_partial(frame_addr(s->frames, pkt->data.id) + pkt->data.off, pkt->data.len, 0));
        memcpy(&field, pkt->inl + 16, sizeof field);
        return csum_right(sum, field, pseudo, how);
}

/* A segment says that what we send arrives. That of a peer whose segments are repeated says that it does not, and neither is
 * it said while ours are repeated (RFC 4861 §7.3.1: new acknowledgements, and new data). */
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
        uint64_t old;
        bool took;
        int thl = tcp_hdr_parse(pkt->inl, pkt->inl_len, &seg);

        if (thl < 0) {
                count_drop(cnt, (enum drop)-thl);
                return false;
        }
        if (unlikely(s->chan[k].caps.csum) && !tcp_sum_ok(s, pkt, unet_csum_check(&s->chan[k].caps))) {
                count_drop(cnt, DROP_TCP_CHECKSUM);
                return false;
        }
        seg.len = ip_payload_len(pkt) - (uint32_t)thl;
        seg.inl = NULL;
        seg.data = pkt->data;
        if (pkt->data.id == 0) {
                seg.inl = pkt->inl + thl;
        } else if (unlikely(pkt->inl_len != (uint32_t)thl)) {
                count_drop(cnt, DROP_NI_MALFORMED);     /* payload cut in two: no stack of ours sends that */
                return false;
        }
        if (unlikely(s->chan[k].stranger) && (seg.flags & (TCP_SYN | TCP_ACK)) == TCP_SYN && !vouched(s, k, pkt, seg.sport))
                return false;
        count(cnt, COUNT_TCP_IN);
        tuple = tcp_tuple_of(pkt, &seg, k);
        link = stack_tcp_link(s, k);
        stack_begin(s->st, 0);          /* tcp_rx() says which one, when it has found it */
        old = cnt->drop[DROP_TCP_OLD_DUPLICATE];
        took = tcp_rx(&s->tcp, &tuple, &link, &seg, s->now);
        if (unlikely(s->chan[k].netif.nif != NULL) && s->st->busy != 0 && seg.flags & TCP_ACK)
                judge_neighbour(s, k, &seg, old != cnt->drop[DROP_TCP_OLD_DUPLICATE]);
        stack_end(s->st);
        return took;
}

/* Sends `len` bytes behind an IP header of a template; to channel k. Best effort, as all ICMP is. */
static void send_small(struct stack *s, uint32_t k, const struct ip_tmpl *ip, struct netif_hdr *h, uint32_t len, uint16_t id)
{
        struct stack_chan *c = &s->chan[k];
        struct buf none = {0, 0, 0};

        if (!chan_has_room(s, c, k))
                return;
        ip_hdr_write(ip, h->ip, (uint16_t)(IP_MIN_HDR + len), id);
        count(&s->st->cnt, COUNT_ICMP_OUT);
        post(s, c, h, IP_MIN_HDR + len, &none);
}

/* RFC 6864 §4: what may be cut on its way has an ID that does not come again soon. */
static uint16_t new_id(struct stack *s, ip_addr src, ip_addr dst, uint8_t proto)
{
        return ip_id_next(&s->ip->ids, &s->st->prng, ip_addr_get_v4(src), ip_addr_get_v4(dst), proto, s->now);
}

/* A datagram in pieces: IP header and `l4_len` bytes at hdr, the rest in `data`. False: the queue has no room for all. */
static bool post_fragments(struct stack *s, struct stack_chan *c, uint32_t k, const uint8_t *hdr, uint32_t l4_len,
                           const struct buf *data, uint32_t mtu, uint16_t id)
{
        uint32_t len = l4_len + data->len, n = len / ((mtu - IP_MIN_HDR) & ~7u) + 1;
        struct netif_hdr out;
        struct frag_piece p;
        struct frag g;

        if (s->frames->region[FRAME_REGION_TX(k)].pool->loans + n > LOANS_MAX || c->ops->room(c->ch) < n)
                return false;
        frag_begin(&g, hdr, IP_MIN_HDR, len, mtu, id);
        while (frag_next(&g, out.ip, &p)) {
                uint32_t inl = p.off < l4_len ? MIN(l4_len - p.off, p.len) : 0;
                struct buf piece = {data->id, data->off + (p.off + inl - l4_len), p.len - inl};
                if (piece.len == 0)
                        piece.id = 0;
                memcpy(out.ip + p.hdr_len, hdr + IP_MIN_HDR + MIN(p.off, l4_len), inl);
                count(&s->st->cnt, COUNT_IP_FRAGS_OUT);
                post(s, c, &out, p.hdr_len + inl, &piece);
        }
        count(&s->st->cnt, COUNT_IP_FRAGMENTED);
        return true;
}

static void send_error(struct stack *s, uint32_t k, const struct ip_pkt *pkt, uint8_t type, uint8_t code, uint32_t param)
{
        struct netif_hdr out;
        struct ip_tmpl ip;
        unsigned len;

        struct ip_host host = host_of(s, k);

        if (!icmp_may_answer(&host, pkt))
                return;
        if (!icmp_rate_take(&s->st->icmp, &s->st->prng, pkt->src, type, s->now)) {
                count_drop(&s->st->cnt, DROP_ICMP_RATE);
                return;
        }
        len = icmp_error_write(s->frames, pkt, type, code, param, out.ip + IP_MIN_HDR,
                               s->chan[k].caps.inline_max - IP_MIN_HDR);
        ip_tmpl_init(&ip, pkt->dst, pkt->src, IP_PROTO_ICMP, 0, 64, false);
        send_small(s, k, &ip, &out, len, new_id(s, pkt->dst, pkt->src, IP_PROTO_ICMP));
}

/* By the ports of a datagram without IP options; of anything else, any. */
static struct udp_flow *flow_of(struct stack *s, const uint8_t *hdr)
{
        uint32_t ports;

        memcpy(&ports, hdr + IP_MIN_HDR, 4);
        return &s->flow[(ports ^ ports >> 8) % STACK_FLOWS];
}

/* A whole datagram as it came. What every datagram of a stranger's must be asked, and what may be for several sockets, is
 * not learnt. */
static void learn_flow(struct stack *s, uint32_t k, const struct ip_pkt *pkt, const struct udp_dgram *d)
{
        if (pkt->hdr_len == IP_MIN_HDR && pkt->inl == pkt->hdr + IP_MIN_HDR && !pkt->more_frags &&
            s->chan[k].netif.nif == NULL && !unet_csum_check(&s->chan[k].caps) && !s->chan[k].stranger &&
            !ip_v4_multicast(ip_addr_get_v4(pkt->dst)))
                udp_flow_learn(flow_of(s, pkt->hdr), &s->udp, udp_lookup(&s->udp, &d->tuple), s->st->addr_gen, pkt->hdr,
                               &d->tuple);
}

static bool rx_udp(struct stack *s, uint32_t k, const struct ip_pkt *pkt)
{
        struct udp_dgram d;
        enum drop why = udp_hdr_parse(s->frames, pkt, (uint16_t)k, unet_csum_check(&s->chan[k].caps), &d);

        if (why != DROP_NONE) {
                count_drop(&s->st->cnt, why);
                return false;
        }
        if (unlikely(s->chan[k].stranger) && !vouched(s, k, pkt, d.tuple.rport))
                return false;
        switch (udp_rx(&s->udp, &d, s->now)) {
        case UDP_TOOK:
                learn_flow(s, k, pkt, &d);
                return true;
        case UDP_NO_PORT:
                send_error(s, k, pkt, ICMP_UNREACHABLE, ICMP_PORT_UNREACHABLE, 0);
                return false;
        case UDP_DONE:
                learn_flow(s, k, pkt, &d);
                break;
        }
        return false;
}

/* RFC 1122 §3.2.2.6: record route and timestamp come back with us in them; of echoes that fit a descriptor. False: not so. */
static bool send_echo_options(struct stack *s, uint32_t k, const struct ip_pkt *pkt, const struct ip_tmpl *ip, uint16_t id)
{
        static const struct buf none = {0, 0, 0};
        struct stack_chan *c = &s->chan[k];
        uint32_t len = ip_payload_len(pkt), hop, ms = (uint32_t)(s->now / NS_PER_MS) | 0x80000000u;
        struct netif_hdr h;
        struct ip_opts o;
        uint8_t bad;
        unsigned n;
        be16 sum = {0};

        if (IP_MAX_HDR + len > c->caps.inline_max || !chan_has_room(s, c, k) ||
            ip_opts_parse(pkt->hdr, pkt->hdr_len, false, &o, &bad) != DROP_NONE)
                return false;
        n = ip_opts_answer(pkt->hdr, &o, ip_addr_get_v4(pkt->dst), ip_addr_get_v4(pkt->src), ms, h.ip + IP_MIN_HDR, &hop);
        ip_hdr_write(ip, h.ip, (uint16_t)(IP_MIN_HDR + n + len), id);
        h.ip[0] += (uint8_t)(n / 4);
        memcpy(h.ip + 10, &sum, sizeof sum);
        sum = csum_finish(csum_partial(h.ip, IP_MIN_HDR + n, 0));
        memcpy(h.ip + 10, &sum, sizeof sum);
        icmp_echo_reply(s->frames, pkt, h.ip + IP_MIN_HDR + n);
        count(&s->st->cnt, COUNT_ICMP_OUT);
        post(s, c, &h, IP_MIN_HDR + n + len, &none);
        return true;
}

/* A reply that does not fit a descriptor lies in a transmit frame, which is ours until the peer has read it. */
static void send_echo(struct stack *s, uint32_t k, const struct ip_pkt *pkt)
{
        struct stack_chan *c = &s->chan[k];
        uint32_t len = ip_payload_len(pkt), region = FRAME_REGION_TX(k);
        struct netif_hdr hdr;
        struct ip_tmpl ip;
        struct buf data = {.off = 0, .len = len};

        uint16_t id = new_id(s, pkt->dst, pkt->src, IP_PROTO_ICMP);

        ip_tmpl_init(&ip, pkt->dst, pkt->src, IP_PROTO_ICMP, pkt->tos, 64, false);
        if (pkt->hdr_len != IP_MIN_HDR && send_echo_options(s, k, pkt, &ip, id))
                return;
        if (IP_MIN_HDR + len <= c->caps.inline_max) {
                icmp_echo_reply(s->frames, pkt, hdr.ip + IP_MIN_HDR);
                send_small(s, k, &ip, &hdr, len, id);
                return;
        }
        if (!chan_has_room(s, c, k))
                return;
        data.id = frame_alloc(s->frames, region, len <= FRAME_SMALL_BYTES ? FRAME_SMALL : FRAME_LARGE, 0);
        if (data.id == 0)
                return;
        icmp_echo_reply(s->frames, pkt, frame_addr(s->frames, data.id));
        ip_hdr_write(&ip, hdr.ip, (uint16_t)(IP_MIN_HDR + len), id);
        count(&s->st->cnt, COUNT_ICMP_OUT);
        if (IP_MIN_HDR + len > c->caps.mtu)
                post_fragments(s, c, k, hdr.ip, 0, &data, c->caps.mtu, id);
        else
                post(s, c, &hdr, IP_MIN_HDR, &data);
        frame_drop(s->frames, data.id);
}

/* An error about a datagram that did not go out on the channel it came by. */
static bool udp_error_forged(struct stack *s, uint32_t k, const struct icmp_err *e)
{
        struct udp_tuple t = {.laddr = e->laddr, .raddr = e->raddr, .lport = e->lport, .rport = e->rport};
        uint32_t pcb = udp_lookup(&s->udp, &t), sock = pcb != 0 ? udp_get_sock(&s->udp, pcb) : 0;

        return sock != 0 && stack_sock(s, sock)->chan != k + 1;
}

static void rx_icmp_error(struct stack *s, uint32_t k, const struct icmp_err *e)
{
        struct tcp_tuple t = {.laddr = e->laddr, .raddr = e->raddr, .lport = e->lport, .rport = e->rport,
                              .chan = (uint16_t)k};

        if (e->proto == IP_PROTO_TCP)
                tcp_icmp(&s->tcp, &t, e->seq, e->err, e->hard, pmtu_claim(e), s->now);
        else if (unlikely(s->chan[k].stranger) && udp_error_forged(s, k, e))
                count_drop(&s->st->cnt, DROP_NI_BAD_SOURCE);
        else if (e->proto == IP_PROTO_UDP && udp_icmp(&s->udp, e) && pmtu_claim(e) != 0)
                stack_path_learnt(s, k, e->raddr, pmtu_claim(e));
}

void stack_host_unreachable(struct stack *s, uint32_t k, const struct ip_pkt *pkt, const uint8_t *l4)
{
        struct icmp_err e = {.type = ICMP_UNREACHABLE, .code = ICMP_HOST_UNREACHABLE, .proto = pkt->proto,
                             .err = EHOSTUNREACH, .laddr = pkt->src, .raddr = pkt->dst, .from = pkt->src};
        be16 port[2];
        be32 seq;

        memcpy(port, l4, sizeof port);
        memcpy(&seq, l4 + 4, sizeof seq);
        e.lport = be16_get(port[0]);
        e.rport = be16_get(port[1]);
        e.seq = be32_get(seq);
        rx_icmp_error(s, k, &e);
}

static void rx_icmp(struct stack *s, uint32_t k, const struct ip_pkt *pkt)
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
                rx_icmp_error(s, k, &msg.err);
        else if (msg.what != ICMP_IS_REPLY)
                count_drop(&s->st->cnt, DROP_ICMP_IGNORED); /* redirects and timestamps: nobody switched them on */
}

/* Nobody on this host speaks for another one. */
static bool foreign_source(const struct stack *s, uint32_t k, const struct ip_host *host, const struct ip_pkt *pkt)
{
        return s->chan[k].caps.inside && !ip_addr_eq(pkt->src, pkt->dst) && !ip_host_owns(host, ip_addr_get_v4(pkt->src));
}

static bool rx_datagram(struct stack *s, uint32_t k, const struct ip_pkt *pkt)
{
        if (unlikely(pkt->to != IP_TO_HOST) && pkt->proto == IP_PROTO_TCP) { /* RFC 9293 §3.9.2.3, MUST-57 */
                count_drop(&s->st->cnt, DROP_TCP_BAD_ADDRESS);
                return false;
        }
        switch (pkt->proto) {
        case IP_PROTO_TCP:
                return rx_tcp(s, k, pkt);
        case IP_PROTO_UDP:
                return rx_udp(s, k, pkt);
        case IP_PROTO_ICMP:
                rx_icmp(s, k, pkt);
                return false;
        default:
                count_drop(&s->st->cnt, DROP_IP_PROTOCOL);
                send_error(s, k, pkt, ICMP_UNREACHABLE, ICMP_PROTOCOL_UNREACHABLE, 0);
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

/* A packet that lies in one piece is shown so, headers and all: it is copied by whoever keeps it, and its frame goes back at
 * once. */
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
        struct ip_host host = host_of(s, k);
        struct ip_pkt pkt;
        enum drop why = ip_rx(&host, (uint16_t)k, rx, &pkt);

        if (unlikely(why != DROP_NONE && why != DROP_IP_FRAGMENT)) {
                count_drop(&s->st->cnt, why);
                if (why == DROP_IP_OPTIONS)
                        send_error(s, k, &pkt, ICMP_PARAMETER_PROBLEM, 0, (uint32_t)pkt.bad << 24);
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

static bool rx_packet(struct stack *s, uint32_t k, const struct unet_rx *rx)
{
        const struct udp_flow *f;
        struct udp_dgram d;

        if (likely(rx->inl_len >= IP_MIN_HDR + UDP_HDR)) {
                f = flow_of(s, rx->inl);
                if (udp_flow_match(f, &s->udp, (uint16_t)k, s->st->addr_gen, rx, &d))
                        return udp_rx_to(&s->udp, f->pcb, &d, s->now) == UDP_TOOK;
        }
        return rx_parse(s, k, rx);
}

/* As rx_packet(), for those who watch. */
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

/*
 * A UDP socket is full and its reader is at work: the channel's messages stay where they are for now, the ring fills, and
 * the sender is told to wait (back-pressure, paper §3.1) instead of filling a buffer whose end is thrown away. A reader
 * that has read nothing for CROWD_PATIENCE holds nobody up: what comes then is dropped and counted, as ever.
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
                s->event(s, sock, (events & UDP_EV_READABLE ? TCP_EV_READABLE : 0) |
                                          (events & UDP_EV_ERROR ? TCP_EV_CLOSED : 0));
}

static void tell_reader(struct stack *s)
{
        uint32_t pcb = s->rx_told;

        s->rx_told = 0;
        if (pcb != 0)
                tell_socket(s, pcb);
}

static bool run_rx(struct stack *s, uint32_t k, struct stack_chan *c)
{
        struct unet_rx rx[RX_BATCH];
        int n, total = 0;

        s->rx_chan = k;
        s->rx_batch = true;
        do {
                if (unlikely(held_back(s, k)))
                        break;
                n = c->ops->recv(c->ch, rx, RX_BATCH);
                for (int i = 0; capture_on(s->capture) && i < n; i++)
                        capture(s, c, CAPTURE_IN, rx[i].inl, rx[i].inl_len,
                                rx[i].frame != 0 ? frame_id(FRAME_REGION_RX(k), rx[i].frame) : 0, rx[i].off, rx[i].len);
                for (int i = 0; i < n; i++) {
                        bool taken = likely(c->netif.nif == NULL) ? stack_rx_packet(s, k, &rx[i])
                                                                  : netif_rx(s, k, &rx[i]);
                        if (!taken && rx[i].frame != 0)
                                c->ops->release(c->ch, &rx[i].frame, 1);
                }
                tell_reader(s);
                total += n;
        } while (n == RX_BATCH && total < RX_TURN);
        s->rx_batch = false;
        return total > 0;
}

/* Frames that the peer has finished with come back; whoever waited for them or for a slot is looked at again. */
static bool run_reap(struct stack *s, uint32_t k, struct stack_chan *c)
{
        uint32_t num[REAP_BATCH];
        bool any = false;
        int n;

        while ((n = c->ops->reap(c->ch, num, REAP_BATCH)) > 0) {
                any = true;
                for (int i = 0; i < n; i++)
                        if (!frame_unlend(s->frames, FRAME_REGION_TX(k), num[i]))
                                count(&s->st->cnt, COUNT_NI_BAD_RETURN);
        }
        if (any)
                tcp_frames_back(&s->tcp, FRAME_REGION_TX(k));
        return any;
}

static void run_room(struct stack *s, uint32_t k, struct stack_chan *c)
{
        if (c->starved && c->ops->room(c->ch) >= ROOM_ENOUGH) {
                c->starved = false;
                if (c->ops->want_room != NULL)
                        c->ops->want_room(c->ch, false);
                s->event(s, 0, TCP_EV_WRITABLE);
        }
}

void stack_want_returns(struct stack *s, bool on)
{
        for (uint32_t k = 0; k < s->nchan; k++) {
                struct stack_chan *c = &s->chan[k];
                if (c->ops != NULL && c->ops->want_room != NULL)
                        c->ops->want_room(c->ch, c->starved || (on && s->frames->region[FRAME_REGION_TX(k)].pool->loans));
        }
}

/* RFC 1122 §3.3.2: who sent what never became whole hears of it. */
static bool expire_fragments(struct stack *s)
{
        struct ip_pkt about;
        uint32_t k;

        while (stack_ip_expire(s, &about, &k))
                if (stack_chan_get(s, k) != NULL)
                        send_error(s, k, &about, ICMP_TIME_EXCEEDED, ICMP_REASSEMBLY_TIME, 0);
        return true;
}

static void expire_traced(struct stack *s, uint32_t conn)
{
        struct counters before = s->st->cnt;

        tcp_expire(&s->tcp, tcp_conn_at(&s->tcp, conn), s->now);
        stack_trace_timer(s, tcp_conn_at(&s->tcp, conn), &before);
}

/* The second timeout in a row: perhaps nobody is there any more. */
static void doubt_neighbour(struct stack *s, const struct tcp_conn *tc)
{
        struct stack_chan *c = &s->chan[tc->tuple.chan];

        if (unlikely(c->netif.nif != NULL) && tc->live && tc->backoff >= 2)
                netif_doubted(s, c, tc->tuple.raddr);
}

static bool run_timers(struct stack *s)
{
        struct wheel *w = &s->st->wheel;
        bool any = false;
        uint32_t conn;

        if (unlikely(s->ip->deadline <= s->now))
                any = expire_fragments(s);
        if (wheel_next(w) > s->now)
                return any;
        while ((conn = wheel_pop(w, conns(s), wheel_off, s->now)) != 0) {
                stack_begin(s->st, conn);
                if (stack_traced(s))
                        expire_traced(s, conn);
                else
                        tcp_expire(&s->tcp, tcp_conn_at(&s->tcp, conn), s->now);
                doubt_neighbour(s, tcp_conn_at(&s->tcp, conn));
                if (tcp_conn_at(&s->tcp, conn)->live)
                        touched(s, conn);
                stack_end(s->st);
                any = true;
        }
        return any;
}

void stack_sync_chans(struct stack *s)
{
        uint32_t gen = atomic_load_explicit(&s->st->chan_gen, memory_order_acquire);

        s->chan_gen = gen;
        for (uint32_t k = 0; k < atomic_load_explicit(&s->st->chans, memory_order_relaxed); k++) {
                uint32_t state = atomic_load_explicit(&s->st->chan[k].state, memory_order_acquire);
                if (state == CHAN_READY && stack_chan_get(s, k) == NULL)
                        s->chan_gen = gen - 1;          /* cannot be mapped now: again next time */
                if (state != CHAN_FREE || s->chan[k].ops == NULL)
                        continue;
                stack_chan_unmapped(s, k);
                if (s->unmap_chan != NULL)
                        s->unmap_chan(s, k);
        }
}

bool stack_run(struct stack *s, nstime now)
{
        bool any = false;

        s->now = now;
        stack_sync(s);
        for (uint32_t k = 0; k < s->nchan; k++) {
                struct stack_chan *c = &s->chan[k];
                if (c->ops == NULL)
                        continue;
                any |= run_reap(s, k, c);
                any |= run_rx(s, k, c);
                run_room(s, k, c);
                if (unlikely(c->netif.nif != NULL))
                        netif_run(s, k);
        }
        any |= run_timers(s);
        if (s->st->out_head != 0)
                drain(s);
        stack_flush_bells(s);
        return any;
}

bool stack_pending(struct stack *s, nstime now)
{
        if (atomic_load_explicit(&s->st->chan_gen, memory_order_relaxed) != s->chan_gen)
                return true;
        for (uint32_t k = 0; k < s->nchan; k++) {
                struct stack_chan *c = &s->chan[k];
                const struct unet_ni_ops *ops = __atomic_load_n(&c->ops, __ATOMIC_RELAXED);
                struct unet_chan *ch = __atomic_load_n(&c->ch, __ATOMIC_RELAXED);       /* may go meanwhile */
                if (ops != NULL && ch != NULL && (ops->pending(ch) || (c->starved && ops->room(ch) >= ROOM_ENOUGH)))
                        return true;
        }
        return now != 0 && stack_deadline(s) <= now;
}

nstime stack_deadline(const struct stack *s)
{
        nstime at = nstime_min(wheel_next(&s->st->wheel), s->ip->deadline);

        for (uint32_t i = 0; unlikely(i < s->st->netifs); i++) {
                struct netif *n = stack_netif(s->st, i);
                if (n->chan != 0)
                        at = nstime_min(at, arp_deadline(&(struct arp){&n->arp, NULL}));
        }
        return at;
}

/* ---- UDP out ---- */

uint32_t stack_payload_sum(const struct stack *s, const struct stack_payload *p)
{
        const uint8_t *at = p->data.id != 0 ? frame_addr(s->frames, p->data.id) + p->data.off : p->inl;

        return csum_partial(at, p->len, 0);
}

uint32_t stack_udp_inline(struct stack *s, uint32_t k)
{
        return s->chan[k].caps.inline_max - IP_MIN_HDR - UDP_HDR;
}

int stack_send_udp(struct stack *s, uint32_t k, const struct udp_out *o, const struct stack_payload *p)
{
        struct stack_chan *c = stack_chan_get(s, k);
        struct netif_hdr h;
        uint8_t *hdr = h.ip;
        uint32_t len = IP_MIN_HDR + UDP_HDR;
        struct frag_plan plan;
        struct ip_tmpl ip;
        uint16_t id;
        int err;

        if (c == NULL)
                return -ENETUNREACH;
        if (!chan_has_room(s, c, k))
                return -EAGAIN;
        err = frag_decide(o->pmtu_mode, len + p->len, c->caps.mtu, stack_path_mtu(s, o->tuple.raddr), &plan);
        if (unlikely(err != 0))
                return err;
        id = plan.dont_frag ? 0 : new_id(s, o->tuple.laddr, o->tuple.raddr, IP_PROTO_UDP);
        ip_tmpl_init(&ip, o->tuple.laddr, o->tuple.raddr, IP_PROTO_UDP, o->tos, o->ttl, plan.dont_frag);
        ip_hdr_write(&ip, hdr, (uint16_t)(len + p->len), id);
        memcpy(hdr + IP_MIN_HDR, o->hdr, UDP_HDR);
        if (p->data.id == 0) {
                copy_short(hdr + len, p->inl, p->len);
                len += p->len;
        }
        if (stack_traced(s))
                stack_trace_udp_out(s, o, p->len);
        if (likely(plan.mtu == 0))
                post(s, c, &h, len, &p->data);
        else if (!post_fragments(s, c, k, hdr, len - IP_MIN_HDR, &p->data, plan.mtu, id))
                return -EAGAIN;
        c->ops->flush(c->ch);
        if (p->data.id != 0)
                frame_drop(s->frames, p->data.id);
        return 0;
}

/* ---- for stack.c ---- */

/* Readability is told once for all that a batch brings. */
static void udp_touched(void *arg, uint32_t pcb)
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

static uint32_t path_mtu(void *arg, const struct tcp_tuple *to)
{
        return stack_path_mtu(arg, to->raddr);
}

static void path_learnt(void *arg, const struct tcp_tuple *to, uint32_t mtu)
{
        stack_path_learnt(arg, to->chan, to->raddr, mtu);
}

void stack_loop_init(struct stack *s)
{
        struct stack_state *st = s->st;

        s->tcp = (struct tcp){
                .sh = (struct tcp_shared *)((char *)st + st->tcp_off),
                .frames = s->frames,
                .cnt = &st->cnt,
                .reply = reply,
                .touched = touched,
                .gone = gone,
                .path_mtu = path_mtu,
                .path_learnt = path_learnt,
                .arg = s,
                .trace = s->trace,
                .clock = &s->now,
                .busy = &st->busy,
        };
        s->udp = (struct udp){
                .sh = (struct udp_shared *)((char *)st + st->udp_off),
                .frames = s->frames,
                .cnt = &st->cnt,
                .touched = udp_touched,
                .arg = s,
        };
}

/* The loop's links in every connection record are worthless after a death: nothing is armed, nothing is queued. */
void stack_loop_forget(struct stack *s)
{
        for (uint32_t i = 1; i < conns(s)->fresh; i++) {
                struct tcp_conn *tc = pool_at(conns(s), i);
                wheel_forget(&tc->wheel);
                tc->out_queued = 0;
        }
}

/* Every connection is looked at once: its output, deadline and events. */
void stack_loop_relink(struct stack *s)
{
        for (uint32_t i = 1; i < conns(s)->fresh; i++) {
                struct tcp_conn *tc = pool_at(conns(s), i);
                if (tc->live)
                        touched(s, i);
        }
}
