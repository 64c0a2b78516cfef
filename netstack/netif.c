/* See netif.h. */
#include "netstack/netif.h"

#include <errno.h>

#include "base/checksum.h"
#include "base/sandbox.h"
#include "netstack/stack_road.h"
#include "netstack/stack_trace.h"
#include "tcp/tcp_hdr.h"
#include "tcp/tcp_loop.h"

/* ---- out ---- */

/* RFC 1122 §3.3.6: to 255.255.255.255, and to all hosts of our own network. */
static bool is_broadcast(const struct netif *n, uint32_t dst)
{
        const struct ip_host host = {.addr = &n->addr, .naddr = 1};

        return ip_host_broadcast(&host, dst);
}

/* The neighbour to send to: a gateway that does not answer gives way to another, if there
 * is one. */
static int resolve_hop(struct stack *s, struct netif_view *v, uint32_t dst, uint32_t *hop,
                       struct arp_ref *ref)
{
        uint8_t ll[ARP_LL_MAX];
        int err;

        do {
                *hop = stack_next_hop(s, v->nif, dst);
                err = *hop != 0 ? arp_resolve(&v->arp, *hop, s->now, ref, ll) : -EHOSTUNREACH;
        } while (err == -EHOSTUNREACH && *hop != 0 && stack_route_dead(s, v->nif, *hop, dst));
        return err;
}

/* A packet will not be sent: its socket hears of it. `bytes` begins with its headers. */
static void tell_undelivered(struct stack *s, uint32_t k, const uint8_t *bytes, uint32_t len,
                             int err)
{
        struct ip_pkt pkt;

        if (ip_hdr_parse(bytes, len, false, &pkt) == 0 && pkt.frag_off == 0 &&
            len >= pkt.hdr_len + 8u)
                stack_undelivered(s, k, &pkt, bytes + pkt.hdr_len, err);
}

/* The neighbour's address, not among those near; or the packet waits for it, or is dropped. TCP,
 * which is in the middle of sending then, hears nothing and tries again. */
static const uint8_t *resolve(struct stack *s, uint32_t k, struct netif_view *v, uint32_t dst,
                              struct arp_ref *ref, const uint8_t *ip, uint32_t ip_len,
                              const struct buf *data)
{
        uint32_t hop;
        int err = resolve_hop(s, v, dst, &hop, ref);

        if (err == 0)
                return arp_ll(&v->arp, *ref);
        if (err == -EINPROGRESS)
                err = arp_hold(&v->arp, *ref, ip, ip_len,
                               data->id != 0 ? frame_addr(s->frames, data->id) + data->off : NULL,
                               data->id != 0 ? data->len : 0);
        if (err != 0) {
                count_drop(&s->st->cnt, hop != 0 ? DROP_ARP_UNREACHABLE : DROP_IP_NO_ROUTE);
                if (ip[9] != IP_PROTO_TCP)
                        tell_undelivered(s, k, ip, ip_len, hop != 0 ? EHOSTUNREACH : ENETUNREACH);
        }
        *ref = (struct arp_ref){0, 0};
        return NULL;
}

/* Call when routes have changed: neighbours found by the old ones are forgotten. */
static void forget_near(const struct stack *s, struct netif_view *v)
{
        memset(v->near, 0, sizeof v->near);
        v->near_gen = s->routes->gen;
        v->near_until = s->routes->dead_until > s->now ? s->routes->dead_until : NSTIME_NEVER;
}

static const uint8_t *unicast(struct stack *s, uint32_t k, struct netif_view *v, uint32_t dst,
                              const uint8_t *ip, uint32_t ip_len, const struct buf *data)
{
        uint32_t at = (dst ^ dst >> 8) % NETIF_NEAR;

        if (unlikely(v->near_gen != s->routes->gen || s->now >= v->near_until))
                forget_near(s, v);
        if (likely(v->near[at].dst == dst && arp_ref_good(&v->arp, v->near[at].ref)))
                return arp_ll(&v->arp, v->near[at].ref);
        v->near[at].dst = dst;
        return resolve(s, k, v, dst, &v->near[at].ref, ip, ip_len, data);
}

bool netif_link(struct stack *s, struct stack_chan *c, uint8_t *ip, uint32_t ip_len,
                const struct buf *data)
{
        struct netif_view *v = &c->netif;
        const uint8_t *ll = ether_broadcast;
        uint8_t group[ETHER_MAC];
        uint32_t dst = be32_at(ip + 16);

        if (unlikely(ip_v4_multicast(dst))) {
                ether_multicast_v4(dst, group);
                ll = group;
        } else if (likely((dst & 3) != 3) || !is_broadcast(v->nif, dst)) {
                ll = unicast(s, (uint32_t)(c - s->chan), v, dst, ip, ip_len, data);
        }
        if (unlikely(ll == NULL))
                return false;
        if (unlikely(v->inward))
                ll = v->nif->cfg.mac;
        ether_write(ip - ETHER_HDR, ll, v->nif->cfg.mac, ETHER_IPV4);
        return true;
}

/* ---- runs ---- */

#define RUN_BYTES (65535u - 120u) /* the IP length field, and headers of any size */
/* Once cut they stand in a queue of the kernel's for 1,000 (netdev_max_backlog). */
#define RUN_SEGS 128u

/* Segments gathered so far: the first one with its headers, and the payload of all. */
struct run {
        struct tcp_seg first;
        struct netif_hdr hdr;
        unsigned tcp_len; /* bytes of the TCP header */
        struct unet_piece piece[UNET_PIECES_MAX];
        uint32_t segs, npieces, len;
        uint8_t flags; /* of all of them */
        bool is_new;   /* data, never sent before */
};

/* RFC 9293 §3.1. */
enum { AT_ACK = 8, AT_FLAGS = 13, AT_WINDOW = 14, AT_SUM = 16, AT_OPTIONS = 20 };

const uint8_t *netif_near(const struct netif_view *v, uint32_t dst)
{
        uint32_t at = (dst ^ dst >> 8) % NETIF_NEAR;

        return v->near[at].dst == dst && arp_ref_good(&v->arp, v->near[at].ref)
                       ? arp_ll(&v->arp, v->near[at].ref)
                       : NULL;
}

/* A process that sends to it for the first time, though another one has: without this its first
 * window would go one by one. */
static bool comes_near(struct stack *s, struct netif_view *v, uint32_t dst)
{
        uint32_t at = (dst ^ dst >> 8) % NETIF_NEAR, hop;

        if (unlikely(v->near_gen != s->routes->gen || s->now >= v->near_until))
                forget_near(s, v);
        v->near[at].dst = dst;
        if (resolve_hop(s, v, dst, &hop, &v->near[at].ref) == 0)
                return true;
        v->near[at].ref = (struct arp_ref){0, 0};
        return false;
}

bool netif_cuts(struct stack *s, struct stack_chan *c, const struct tcp_conn *tc)
{
        uint32_t dst = ip_addr_get_v4(tc->tuple.raddr);

        return c->caps.runs && !capture_on(s->capture) && !sandbox_forbids(SANDBOX_UNETD) &&
               (likely(netif_near(&c->netif, dst) != NULL) || comes_near(s, &c->netif, dst));
}

/* Segments lie one behind the other in a large frame, and the kernel takes a piece in far less time
 * than 45. */
static void run_add(struct stack *s, struct run *r, const struct buf *data, uint8_t flags)
{
        const uint8_t *p = data->len != 0 ? frame_addr(s->frames, data->id) + data->off : NULL;
        struct unet_piece *last = r->npieces != 0 ? &r->piece[r->npieces - 1] : NULL;

        if (last != NULL && last->p + last->len == p)
                last->len += data->len;
        else
                r->piece[r->npieces++] = (struct unet_piece){p, data->len};
        r->segs++;
        r->len += data->len;
        r->flags |= flags;
}

static void run_add_seg(struct stack *s, struct run *r, const struct tcp_seg *seg)
{
        run_add(s, r, &(struct buf){seg->data.id, seg->data.off, seg->len}, seg->flags);
}

static void run_begin(struct stack *s, struct run *r, const struct tcp_conn *tc,
                      const struct tcp_seg *seg)
{
        r->first = *seg;
        r->is_new = seg->seq + seg->len == tc->snd_nxt;
        r->tcp_len = tcp_hdr_write(seg, r->hdr.ip + IP_MIN_HDR);
        r->segs = r->npieces = r->len = r->flags = 0;
        run_add_seg(s, r, seg);
}

static bool run_has_room(const struct run *r, uint32_t len)
{
        return r->segs < RUN_SEGS && r->npieces < UNET_PIECES_MAX && r->len + len <= RUN_BYTES;
}

/* The segment goes on where the run ends, and says the same in all else; the run's segments are of
 * one length. */
static bool run_takes(const struct run *r, const struct tcp_seg *seg)
{
        const uint8_t *first = r->hdr.ip + IP_MIN_HDR;
        uint8_t h[TCP_MAX_HDR];

        if (r->segs == 0 || !run_has_room(r, seg->len) || seg->len == 0 ||
            seg->seq != r->first.seq + r->len || seg->ecn != r->first.ecn ||
            r->len != r->segs * r->first.len || seg->len > r->first.len ||
            ((r->flags | seg->flags) & ~(TCP_ACK | TCP_PSH)) != 0 ||
            tcp_hdr_write(seg, h) != r->tcp_len)
                return false;
        return memcmp(h + AT_ACK, first + AT_ACK, AT_FLAGS - AT_ACK) == 0 &&
               memcmp(h + AT_WINDOW, first + AT_WINDOW, AT_SUM - AT_WINDOW) == 0 &&
               memcmp(h + AT_OPTIONS, first + AT_OPTIONS, r->tcp_len - AT_OPTIONS) == 0;
}

/* PSH of a run's last segment. It tells a receiver that merges segments (GRO) not to wait for more.
 * As Linux, whose bursts over slow paths are pairs of segments: new data in pairs is pushed, a
 * single last segment and a retransmission only if the application's PSH is there. */
static uint8_t run_psh(const struct run *r)
{
        return r->is_new && r->segs % 2 == 0 ? TCP_PSH : r->flags & TCP_PSH;
}

/* The kernel or device that cuts the run goes on from the pseudo header's sum. PSH is the last
 * segment's. */
static void run_send(struct stack *s, struct stack_chan *c, struct run *r,
                     const struct tcp_tuple *to, const struct ip_tmpl *ip)
{
        static const struct buf none = {0, 0, 0};
        uint8_t *tcp = r->hdr.ip + IP_MIN_HDR;
        struct unet_run run = {.hdr = r->hdr.ip - ETHER_HDR,
                               .hdr_len = (uint16_t)(ETHER_HDR + IP_MIN_HDR + r->tcp_len),
                               .l4 = ETHER_HDR + IP_MIN_HDR,
                               .mss = (uint16_t)r->first.len,
                               .npieces = (uint16_t)r->npieces,
                               .piece = r->piece};
        be16 sum =
                csum_finish(csum_pseudo(to->laddr, to->raddr, IP_PROTO_TCP, r->tcp_len + r->len));

        assert(r->segs > 1 && r->npieces != 0);
        tcp[AT_FLAGS] |= run_psh(r);
        sum.raw = (uint16_t)~sum.raw;
        memcpy(tcp + AT_SUM, &sum, sizeof sum);
        ip_hdr_write(ip, r->hdr.ip, (uint16_t)(IP_MIN_HDR + r->tcp_len + r->len), 0);
        if (unlikely(r->first.ecn != 0))
                ip_hdr_set_ecn(r->hdr.ip, r->first.ecn);
        count_add(&s->st->cnt, COUNT_TCP_OUT, r->segs);
        if (!netif_link(s, c, r->hdr.ip, IP_MIN_HDR + r->tcp_len, &none) ||
            !c->ops->send_run(c->ch, &run))
                count_drop(&s->st->cnt, DROP_NI_TX_FULL);
}

static void run_end(struct stack *s, struct stack_chan *c, struct run *r,
                    const struct tcp_tuple *to, const struct ip_tmpl *ip)
{
        if (r->segs == 1)
                stack_emit_tcp(s, c, ip, to, &r->first);
        else if (r->segs != 0)
                run_send(s, c, r, to, ip);
        r->segs = 0;
}

/* Returns true if the segment just added is new data, and the next one may differ in nothing but
 * its place and PSH. */
static bool run_goes_on(const struct run *r, const struct tcp_conn *tc)
{
        return r->first.len == tc->snd_mss && r->len == r->segs * r->first.len &&
               r->first.seq + r->len == tc->snd_nxt && r->first.nsack == 0 && r->first.ecn == 0 &&
               (r->flags & ~(TCP_ACK | TCP_PSH)) == 0;
}

static void run_go_on(struct stack *s, struct run *r, struct tcp_conn *tc)
{
        struct buf data;
        uint8_t flags;

        if (run_goes_on(r, tc))
                while (run_has_room(r, tc->snd_mss) &&
                       tcp_output_next(&s->tcp, tc, &data, &flags, s->now))
                        run_add(s, r, &data, flags);
}

bool netif_output(struct stack *s, struct stack_chan *c, struct tcp_conn *tc,
                  const struct ip_tmpl *ip)
{
        struct tcp_seg seg;
        struct run r;
        bool room;

        assert(c->netif.nif != NULL);
        r.segs = 0;
        while ((room = stack_chan_room(s, tc->tuple.chan)) &&
               tcp_output(&s->tcp, tc, &seg, s->now)) {
                if (!run_takes(&r, &seg)) {
                        run_end(s, c, &r, &tc->tuple, ip);
                        run_begin(s, &r, tc, &seg);
                } else {
                        run_add_seg(s, &r, &seg);
                }
                if (stack_traced(s))
                        stack_trace_out(s, tc, &seg, &s->st->cnt);
                else
                        run_go_on(s, &r, tc);
        }
        run_end(s, c, &r, &tc->tuple, ip);
        return room;
}

void netif_reached(struct stack *s, struct stack_chan *c, ip_addr peer)
{
        struct netif_view *v = &c->netif;
        uint32_t dst = ip_addr_get_v4(peer), at = (dst ^ dst >> 8) % NETIF_NEAR;

        if (v->near[at].dst == dst && v->near[at].ref.index != 0)
                arp_confirm(&v->arp, v->near[at].ref, s->now);
}

void netif_doubted(struct stack *s, struct stack_chan *c, ip_addr peer)
{
        struct netif_view *v = &c->netif;
        uint32_t dst = ip_addr_get_v4(peer), at = (dst ^ dst >> 8) % NETIF_NEAR;

        assert(v->nif != NULL);
        if (v->near[at].dst == dst && v->near[at].ref.index != 0)
                arp_doubt(&v->arp, v->near[at].ref, s->now);
}

/* ---- ARP's own ---- */

/* A frame of which all is here. There is room in the channel; false: but not for its bytes. */
static bool send_frame(struct stack *s, uint32_t k, const uint8_t to[ETHER_MAC], uint16_t type,
                       const uint8_t *p, uint32_t len)
{
        struct stack_chan *c = &s->chan[k];
        uint8_t hdr[ETHER_HDR + UNET_INLINE_MAX];
        struct buf data = {0, 0, 0};

        ether_write(hdr, to, c->netif.nif->cfg.mac, type);
        if (len <= c->caps.inline_max) {
                memcpy(hdr + ETHER_HDR, p, len);
                stack_post_raw(s, c, hdr, ETHER_HDR + len, &data);
                return true;
        }
        data.len = len;
        data.id = frame_alloc(s->frames, FRAME_REGION_TX(k),
                              len <= FRAME_SMALL_BYTES ? FRAME_SMALL : FRAME_LARGE, 0);
        if (data.id == 0)
                return false;
        memcpy(frame_addr(s->frames, data.id), p, len);
        stack_post_raw(s, c, hdr, ETHER_HDR, &data);
        frame_drop(s->frames, data.id);
        return true;
}

void netif_send_many(struct stack *s, uint32_t k, uint32_t dst, const uint8_t *ip, uint32_t len)
{
        uint8_t group[ETHER_MAC];

        assert(s->chan[k].netif.nif != NULL);
        ether_multicast_v4(dst, group);
        if (stack_chan_room(s, k))
                send_frame(s, k, ip_v4_multicast(dst) ? group : ether_broadcast, ETHER_IPV4, ip,
                           len);
}

/* The packet's neighbour did not answer. Who can go by another gateway is not told: it will, with
 * what it sends again. */
static void tell_unreachable(struct stack *s, uint32_t k, uint32_t hop, const uint8_t *p,
                             uint32_t len)
{
        if (!stack_route_dead(s, s->chan[k].netif.nif, hop, be32_at(p + 16)))
                tell_undelivered(s, k, p, len, EHOSTUNREACH);
}

bool netif_waits(const struct stack_state *st)
{
        for (uint32_t i = 0; i < st->netifs; i++)
                if (stack_netif(st, i)->chan != 0 && arp_holds(&stack_netif(st, i)->arp))
                        return true;
        return false;
}

/* Does what ARP wants done. Returns false if the channel has no room: later. */
static bool arp_out(struct stack *s, uint32_t k, const struct arp_out *out)
{
        struct netif_view *v = &s->chan[k].netif;
        uint8_t held[UINT16_MAX];

        switch (out->what) {
        case ARP_OUT_SEND:
                return stack_chan_room(s, k) &&
                       send_frame(s, k, out->to, ETHER_ARP, out->pkt, out->len);
        case ARP_OUT_RELEASE:
                if (!stack_chan_room(s, k))
                        return false;
                arp_held_copy(&v->arp, out, held);
                return send_frame(s, k, out->to, ETHER_IPV4, held, out->len);
        case ARP_OUT_UNREACHABLE:
                arp_held_copy(&v->arp, out, held);
                tell_unreachable(s, k, out->ip, held, out->len);
                return true;
        case ARP_OUT_ADDR:
        case ARP_OUT_NONE:
                break;
        }
        return true;
}

void netif_run(struct stack *s, uint32_t k)
{
        struct arp *a = &s->chan[k].netif.arp;
        struct arp_out out;

        assert(s->chan[k].netif.nif != NULL);
        if (unlikely(igmp_deadline(s->igmp) <= s->now || !s->igmp->ifs[stack_ifc(s, k)].up))
                stack_group_run(s, k);
        if (likely(arp_deadline(a) > s->now))
                return;
        arp_expire(a, s->now);
        while (arp_output(a, &out) && arp_out(s, k, &out))
                arp_output_done(a, &out, s->now);
}

/* ---- in ---- */

static inline enum drop parse(const uint8_t *p, size_t n, struct ether_hdr *h, uint32_t *len)
{
        enum drop why = ether_parse(p, n, h);

        *len = ETHER_HDR;
        return likely(why != DROP_ETHER_VLAN) ? why : ether_parse_tagged(p, n, h, len);
}

bool netif_strip(struct capture_pkt *p)
{
        struct ether_hdr h;
        uint32_t len;

        if (parse(p->hdr, p->hdr_len, &h, &len) != DROP_NONE || h.type != ETHER_IPV4)
                return false;
        p->hdr = (const uint8_t *)p->hdr + len;
        p->hdr_len -= len;
        return true;
}

bool netif_rx(struct stack *s, uint32_t k, struct unet_rx *rx)
{
        struct stack_chan *c = &s->chan[k];
        struct ether_hdr h;
        uint32_t len;
        enum drop why = parse(rx->inl, rx->inl_len, &h, &len);

        if (likely(why == DROP_NONE) && ether_cast_of(&h, c->netif.nif->cfg.mac) == ETHER_TO_OTHER)
                why = DROP_ETHER_NOT_OURS;
        else if (why == DROP_NONE && h.type == ETHER_ARP)
                why = arp_input(&c->netif.arp, rx->inl + len, rx->inl_len - len, s->now);
        else if (why == DROP_NONE && h.type != ETHER_IPV4)
                why = DROP_ETHER_TYPE;
        if (why != DROP_NONE)
                count_drop(&s->st->cnt, why);
        if (why != DROP_NONE || h.type != ETHER_IPV4)
                return false;
        c->netif.cast = ether_cast_of(&h, c->netif.nif->cfg.mac) != ETHER_TO_US;
        rx->inl_len -= len;
        memmove(rx->inl, rx->inl + len, rx->inl_len);
        return stack_rx_packet(s, k, rx);
}
