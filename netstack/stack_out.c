/*
 * What leaves: IP headers, checksums, fragments, descriptors.
 *
 *      stack_output_conn() -> tcp_output() -> stack_emit_tcp() -> stack_post() -> ops->send()
 *      stack_send_udp() -> stack_post() | stack_post_fragments()
 */
#include "netstack/stack_road.h"

#include <errno.h>

#include "base/checksum.h"
#include "netstack/stack_trace.h"
#include "tcp/tcp_hdr.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_send.h"

static const struct ip_tmpl *template_of(struct stack *s, const struct tcp_conn *tc)
{
        struct stack_tmpl *t = &s->tmpl[tc->self % STACK_TMPLS];
        uint16_t tos_ttl = (uint16_t)(tc->opts.tos << 8 | tc->opts.ttl);

        if (unlikely(t->conn != tc->self || t->gen != tc->gen || t->tos_ttl != tos_ttl)) {
                ip_tmpl_init(&t->ip, tc->tuple.laddr, tc->tuple.raddr, IP_PROTO_TCP, tc->opts.tos,
                             tc->opts.ttl, true);
                t->conn = tc->self;
                t->gen = tc->gen;
                t->tos_ttl = tos_ttl;
        }
        return &t->ip;
}

/* Somebody waits for room for n messages. Of several the one that asks for least: the others ask
 * again when it goes on. */
static __attribute__((noinline)) bool starves(struct stack *s, struct stack_chan *c, uint32_t k,
                                              uint32_t n)
{
        uint32_t least = s->st->chan[k].starved;

        if (c->ops->want_room != NULL)
                c->ops->want_room(c->ch, true);
        WRITE_ONCE(s->st->chan[k].starved, least != 0 ? MIN(least, n) : n);
        return false;
}

/* Returns true if the channel takes one more message, frame included. If not, the peer is asked to
 * say when it does. */
static bool chan_has_room(struct stack *s, struct stack_chan *c, uint32_t k)
{
        struct frame_pool *p = s->frames->region[FRAME_REGION_TX(k)].pool;

        if (likely(p->loans < STACK_LOANS_MAX && c->ops->room(c->ch) > 0))
                return true;
        return starves(s, c, k, 1);
}

bool stack_chan_room(struct stack *s, uint32_t k)
{
        return chan_has_room(s, &s->chan[k], k);
}

/* Bytes that a process which has not mapped them must not look at (stack_memory.h). */
static bool goes_by_name(uint32_t id)
{
        return unlikely(id & FRAME_NAMED);
}

void stack_post_raw(struct stack *s, struct stack_chan *c, const uint8_t *inl, uint32_t inl_len,
                    const struct buf *data)
{
        struct unet_tx tx = {.inl = inl, .inl_len = (uint16_t)inl_len};

        if (data->id != 0) {
                frame_lend(s->frames, data->id);
                tx.frame = frame_id_num(data->id);
                tx.off = data->off;
                tx.len = data->len;
        }
        if (capture_on(s->capture))
                stack_capture(s, c, CAPTURE_OUT, tx.inl, tx.inl_len, tx.frame != 0 ? data->id : 0,
                              tx.off, tx.len);
        c->ops->send(c->ch, &tx, 1);
}

void stack_post(struct stack *s, struct stack_chan *c, struct netif_hdr *h, uint32_t hdr_len,
                const struct buf *data)
{
        static const struct buf none = {0, 0, 0};
        const uint8_t *start = h->ip;

        if (data->id != 0 && hdr_len + data->len <= c->caps.inline_max && !goes_by_name(data->id)) {
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

uint16_t stack_new_id(struct stack *s, ip_addr src, ip_addr dst, uint8_t proto)
{
        return ip_id_next(&s->ip->ids, &s->st->prng, ip_addr_get_v4(src), ip_addr_get_v4(dst),
                          proto, s->now);
}

bool stack_post_fragments(struct stack *s, struct stack_chan *c, uint32_t k, const uint8_t *hdr,
                          uint32_t l4_len, const struct buf *data, uint32_t mtu, uint16_t id)
{
        uint32_t ihl = (hdr[0] & 15u) * 4, len = l4_len + data->len,
                 n = len / ((mtu - ihl) & ~7u) + 1;
        struct netif_hdr out;
        struct frag_piece p;
        struct frag g;

        assert(c == &s->chan[k]);
        if (s->frames->region[FRAME_REGION_TX(k)].pool->loans + n > STACK_LOANS_MAX ||
            c->ops->room(c->ch) < n)
                return starves(s, c, k, n);
        frag_begin(&g, hdr, ihl, len, mtu, id);
        while (frag_next(&g, out.ip, &p)) {
                uint32_t inl = p.off < l4_len ? MIN(l4_len - p.off, p.len) : 0;
                struct buf piece = {data->id, data->off + (p.off + inl - l4_len), p.len - inl};
                if (piece.len == 0)
                        piece.id = 0;
                memcpy(out.ip + p.hdr_len, hdr + ihl + MIN(p.off, l4_len), inl);
                count(&s->st->cnt, COUNT_IP_FRAGS_OUT);
                stack_post(s, c, &out, p.hdr_len + inl, &piece);
        }
        count(&s->st->cnt, COUNT_IP_FRAGMENTED);
        return true;
}

/* ---- TCP ---- */

void stack_sum_tcp(struct stack *s, const struct tcp_tuple *to, uint8_t *hdr, unsigned len,
                   const struct buf *data)
{
        uint32_t sum = csum_pseudo(to->laddr, to->raddr, IP_PROTO_TCP, len + data->len);
        be16 field;

        sum = csum_partial(hdr, len, sum);
        if (data->id != 0)
                sum = csum_append(
                        sum, len,
                        csum_partial(frame_addr(s->frames, data->id) + data->off, data->len, 0));
        field = csum_finish(sum);
        memcpy(hdr + 16, &field, 2);
}

static void emit_by_frame(struct stack *s, struct stack_chan *c, const struct ip_tmpl *ip,
                          const struct tcp_tuple *to, const struct tcp_seg *seg)
{
        struct netif_hdr h;
        uint8_t *hdr = h.ip;
        unsigned thl = tcp_hdr_write(seg, hdr + IP_MIN_HDR);
        struct buf data = seg->len != 0 ? seg->data : (struct buf){0, 0, 0};

        data.len = seg->len;
        ip_hdr_write(ip, hdr, (uint16_t)(IP_MIN_HDR + thl + seg->len), 0);
        if (seg->len != 0 && IP_MIN_HDR + thl + seg->len <= c->caps.inline_max &&
            !goes_by_name(data.id)) { /* summed in one piece */
                memcpy(hdr + IP_MIN_HDR + thl, frame_addr(s->frames, data.id) + data.off, data.len);
                thl += data.len;
                data = (struct buf){0, 0, 0};
        }
        if (unlikely(seg->ecn != 0))
                ip_hdr_set_ecn(hdr, seg->ecn);
        if (unlikely(c->caps.csum))
                stack_sum_tcp(s, to, hdr + IP_MIN_HDR, thl, &data);
        count(&s->st->cnt, COUNT_TCP_OUT);
        stack_post(s, c, &h, IP_MIN_HDR + thl, &data);
}

#define SUM_AT_ONCE 128u /* bytes of payload: so few are summed sooner with their header */

/* Put together where the channel's next message lies: the payload is read once, for the copy and
 * for its sum. No header is of an odd length, so sums are added as they are. */
static void emit_in_place(struct stack *s, struct stack_chan *c, const struct ip_tmpl *ip,
                          const struct tcp_tuple *to, const struct tcp_seg *seg)
{
        static const struct buf none = {0, 0, 0};
        uint8_t *hdr = c->ops->place(c->ch), *tcp = hdr + IP_MIN_HDR;
        unsigned thl = tcp_hdr_write(seg, tcp);
        const uint8_t *payload =
                seg->len != 0 ? frame_addr(s->frames, seg->data.id) + seg->data.off : NULL;
        bool copied = seg->len <= SUM_AT_ONCE;
        uint32_t sum;
        be16 field;

        ip_hdr_write(ip, hdr, (uint16_t)(IP_MIN_HDR + thl + seg->len), 0);
        if (unlikely(seg->ecn != 0))
                ip_hdr_set_ecn(hdr, seg->ecn);
        if (seg->len != 0 && (copied || unlikely(!c->caps.csum)))
                memcpy(tcp + thl, payload, seg->len);
        if (likely(c->caps.csum)) {
                sum = csum_pseudo(to->laddr, to->raddr, IP_PROTO_TCP, thl + seg->len);
                sum = csum_partial(tcp, copied ? thl + seg->len : thl, sum);
                if (!copied)
                        sum = csum_copy(tcp + thl, payload, seg->len, sum);
                field = csum_finish(sum);
                memcpy(tcp + 16, &field, 2);
        }
        count(&s->st->cnt, COUNT_TCP_OUT);
        stack_post_raw(s, c, hdr, IP_MIN_HDR + thl + seg->len, &none);
}

void stack_emit_tcp(struct stack *s, struct stack_chan *c, const struct ip_tmpl *ip,
                    const struct tcp_tuple *to, const struct tcp_seg *seg)
{
        if (c->ops->place != NULL)
                emit_in_place(s, c, ip, to, seg);
        else
                emit_by_frame(s, c, ip, to, seg);
}

void stack_reply_tcp(void *arg, const struct tcp_tuple *to, const struct tcp_seg *seg)
{
        struct stack *s = arg;
        struct stack_chan *c = stack_chan_get(s, to->chan);
        struct ip_tmpl ip;

        if (c == NULL || !chan_has_room(s, c, to->chan))
                return;
        ip_tmpl_init(&ip, to->laddr, to->raddr, IP_PROTO_TCP, 0, stack_ttl(s->st), true);
        stack_emit_tcp(s, c, &ip, to, seg);
}

/* As stack_output_conn(), with a line of the trace for each segment. */
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

/* Returns true if the segment that has just left is new data, and the next one may differ in
 * nothing but its place and PSH. */
static bool goes_on(const struct tcp_conn *tc, const struct tcp_seg *seg)
{
        return seg->len == tc->snd_mss && seg->seq + seg->len == tc->snd_nxt && seg->nsack == 0 &&
               seg->ecn == 0 && (seg->flags & ~(TCP_ACK | TCP_PSH)) == 0;
}

static void emit_next(struct stack *s, struct stack_chan *c, struct tcp_conn *tc,
                      struct tcp_seg *seg)
{
        uint8_t flags;

        if (!goes_on(tc, seg))
                return;
        while (chan_has_room(s, c, tc->tuple.chan) &&
               tcp_output_next(&s->tcp, tc, &seg->data, &flags, s->now)) {
                seg->seq += seg->len;
                seg->len = seg->data.len;
                seg->flags = TCP_ACK | flags;
                stack_emit_tcp(s, c, template_of(s, tc), &tc->tuple, seg);
        }
}

bool stack_output_conn(struct stack *s, struct tcp_conn *tc)
{
        struct stack_chan *c;
        struct tcp_seg seg;

        if (!tcp_output_due(tc))
                return true;
        c = stack_chan_get(s, tc->tuple.chan);
        if (c == NULL)
                return !chan_is_open(&s->st->chan[tc->tuple.chan]);
        if (unlikely(tc->opts.ip_opts.len != 0))
                return stack_opts_output(s, c, tc);
        if (unlikely(c->netif.nif != NULL) && netif_cuts(s, c, tc))
                return netif_output(s, c, tc, template_of(s, tc));
        if (stack_traced(s))
                return output_traced(s, c, tc);
        do {
                if (!chan_has_room(s, c, tc->tuple.chan))
                        return false;
                if (!tcp_output(&s->tcp, tc, &seg, s->now))
                        return true;
                stack_emit_tcp(s, c, template_of(s, tc), &tc->tuple, &seg);
                emit_next(s, c, tc, &seg);
        } while (tcp_output_due(tc));
        return true;
}

/* ---- UDP ---- */

uint32_t stack_payload_sum(const struct stack *s, const struct stack_payload *p)
{
        const uint8_t *at =
                p->data.id != 0 ? frame_addr(s->frames, p->data.id) + p->data.off : p->inl;

        return p->summed ? p->sum : csum_partial(at, p->len, 0);
}

/* Without IP options. */
static inline int send_plain(struct stack *s, struct stack_chan *c, uint32_t k,
                             const struct udp_out *o, const struct stack_payload *p)
{
        struct netif_hdr h;
        uint8_t *hdr = h.ip;
        uint32_t len = IP_MIN_HDR + UDP_HDR;
        struct frag_plan plan;
        struct ip_tmpl ip;
        uint16_t id;
        int err;

        err = frag_decide(o->pmtu_mode, len + p->len, c->caps.mtu,
                          stack_path_mtu(s, o->tuple.raddr), &plan);
        if (unlikely(err != 0))
                return err;
        id = plan.dont_frag ? 0 : stack_new_id(s, o->tuple.laddr, o->tuple.raddr, IP_PROTO_UDP);
        ip_tmpl_init(&ip, o->tuple.laddr, o->tuple.raddr, IP_PROTO_UDP, o->tos, o->ttl,
                     plan.dont_frag);
        ip_hdr_write(&ip, hdr, (uint16_t)(len + p->len), id);
        memcpy(hdr + IP_MIN_HDR, o->hdr, UDP_HDR);
        if (p->room != NULL) {
                if (unlikely(plan.mtu != 0))
                        return -E2BIG;
                memcpy(p->room, hdr, STACK_UDP_ROOM);
                stack_post_raw(s, c, p->room, STACK_UDP_ROOM + p->len, &p->data);
                return 0;
        }
        if (p->data.id == 0) {
                copy_short(hdr + len, p->inl, p->len);
                len += p->len;
        }
        if (likely(plan.mtu == 0))
                stack_post(s, c, &h, len, &p->data);
        else if (!stack_post_fragments(s, c, k, hdr, len - IP_MIN_HDR, &p->data, plan.mtu, id))
                return -EAGAIN;
        return 0;
}

static inline int send_udp(struct stack *s, uint32_t k, const struct udp_out *o,
                           const struct stack_payload *p, bool more)
{
        struct stack_chan *c = stack_chan_get(s, k);
        int err;

        if (c == NULL)
                return -ENETUNREACH;
        if (p->room == NULL && !chan_has_room(s, c, k))
                return -EAGAIN;
        err = likely(o->opts == NULL) ? send_plain(s, c, k, o, p) : stack_opts_send_udp(s, k, o, p);
        if (unlikely(err != 0))
                return err;
        if (stack_traced(s))
                stack_trace_udp_out(s, o, p->len);
        if (!more)
                c->ops->flush(c->ch);
        if (p->data.id != 0)
                frame_drop(s->frames, p->data.id);
        return 0;
}

int stack_send_udp(struct stack *s, uint32_t k, const struct udp_out *o,
                   const struct stack_payload *p)
{
        return send_udp(s, k, o, p, false);
}

int stack_send_udp_more(struct stack *s, uint32_t k, const struct udp_out *o,
                        const struct stack_payload *p)
{
        return send_udp(s, k, o, p, true);
}
