/*
 * The next segment of a stream from another host's stack, quickly.
 *
 * A stream over an RDMA device is a row of packets that have one shape: an IP header without
 * options, a TCP header with timestamps and nothing else, payload that is worth more than its
 * header, all in one piece; from the other end of the channel, to this one. Its words are compared
 * where they lie, and TCP sees only what header prediction takes. Anything else is nobody's yet,
 * and goes stack_rx.c's road from the beginning.
 */
#include "base/checksum.h"
#include "netstack/stack_road.h"

#define HDR       (IP_MIN_HDR + TCP_MIN_HDR + 12)
#define LEN_LEAST 256u /* bytes of payload: as many as are summed where they are copied */
/* version, header length; below it TOS, of which ECN's bits are told of elsewhere. */
#define PLAIN  0x45000000u
#define NOP_TS 0x0101080au /* RFC 7323 appendix A */

enum {
        W_LEN,
        W_FRAG,
        W_PROTO,
        W_SRC,
        W_DST,
        W_PORTS,
        W_SEQ,
        W_ACK,
        W_FLAGS,
        W_SUM,
        W_OPT,
        W_TSVAL,
        W_TSECR,
        WORDS
};
static_assert(sizeof(be32[WORDS]) == HDR, "RFC 791 §3.1, RFC 9293 §3.1, RFC 7323 §3.2");

/* All that ip_rx(), and who calls it, ask of a packet. */
static bool ip_plain(const struct chan_slot *slot, const be32 w[WORDS], uint32_t len, bool csum)
{
        return (be32_get(w[W_LEN]) & 0xff03ffffu) == (PLAIN | len) &&
               (be32_get(w[W_FRAG]) & 0xbfff) == 0 &&
               (be32_get(w[W_PROTO]) >> 16 & 0xff) == IP_PROTO_TCP &&
               be32_get(w[W_SRC]) == slot->remote && be32_get(w[W_DST]) == slot->own.addr &&
               (!csum || csum_finish(csum_partial20((const uint8_t *)w)).raw == 0);
}

static bool tcp_plain(const be32 w[WORDS])
{
        return (be32_get(w[W_FLAGS]) >> 16 & ~(uint32_t)TCP_PSH) == (8u << 12 | TCP_ACK) &&
               be32_get(w[W_OPT]) == NOP_TS;
}

/* Of the TCP header and the pseudo header, to which the packet's length is nothing new. */
static uint32_t hdr_sum(const be32 w[WORDS], uint32_t len)
{
        uint64_t sum = (uint64_t)be32_of(IP_PROTO_TCP).raw + be32_of(len - IP_MIN_HDR).raw;

        for (int i = W_SRC; i < WORDS; i++)
                sum += w[i].raw;
        return csum_add((uint32_t)sum, (uint32_t)(sum >> 32));
}

/* As tcp_hdr_parse(), and who calls it. */
static void fill(const be32 w[WORDS], uint32_t len, struct tcp_seg *seg)
{
        uint32_t ports = be32_get(w[W_PORTS]), flags = be32_get(w[W_FLAGS]);

        seg->sport = (uint16_t)(ports >> 16);
        seg->dport = (uint16_t)ports;
        seg->seq = be32_get(w[W_SEQ]);
        seg->ack = be32_get(w[W_ACK]);
        seg->len = len - HDR;
        seg->wnd = (uint16_t)flags;
        seg->urg = seg->mss = 0;
        seg->flags = (uint8_t)(flags >> 16);
        seg->wscale = TCP_NO_WSCALE;
        seg->sack_ok = false;
        seg->has_ts = true;
        seg->nsack = seg->ecn = 0;
        seg->ttl = (uint8_t)(be32_get(w[W_PROTO]) >> 24);
        seg->tsval = be32_get(w[W_TSVAL]);
        seg->tsecr = be32_get(w[W_TSECR]);
        seg->data = (struct buf){0, 0, 0};
}

bool stack_rx_next(struct stack *s, uint32_t k, const struct unet_rx *rx)
{
        const struct stack_chan *c = &s->chan[k];
        const struct chan_slot *slot = &s->st->chan[k];
        enum csum_check how = unet_csum_check(&c->caps);
        uint32_t len = rx->inl_len + rx->len;
        struct tcp_tuple tuple;
        struct tcp_seg seg;
        be32 w[WORDS];
        bool took;

        if (rx->frame == 0 || rx->inl_len < HDR || len < HDR + LEN_LEAST || !c->caps.whole ||
            how == CSUM_WHOLE_OR_PSEUDO)
                return false;
        memcpy(w, rx->inl, sizeof w);
        if (!tcp_plain(w) || !ip_plain(slot, w, len, c->caps.csum))
                return false;
        fill(w, len, &seg);
        seg.inl = frame_addr(s->frames, frame_id(FRAME_REGION_RX(k), rx->frame)) + rx->off -
                  rx->inl_len + HDR;
        seg.unsummed = how == CSUM_WHOLE;
        seg.sum = seg.unsummed ? hdr_sum(w, len) : 0;
        tuple = (struct tcp_tuple){.laddr = ip_addr_v4(slot->own.addr),
                                   .raddr = ip_addr_v4(slot->remote),
                                   .lport = seg.dport,
                                   .rport = seg.sport,
                                   .chan = (uint16_t)k};
        stack_begin(s->st, 0); /* tcp_rx_next() says which one */
        took = tcp_rx_next(&s->tcp, &tuple, &seg, s->now);
        stack_end(s->st);
        if (took)
                count(&s->st->cnt, COUNT_TCP_IN);
        return took;
}
