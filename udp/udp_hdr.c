/* The UDP header and its checksum. RFC 768; RFC 1122 §4.1.3.4. */
#include "base/checksum.h"
#include "base/planted.h"
#include "udp/udp.h"

struct udp_hdr {
        be16 sport, dport, len, sum;
};
static_assert(sizeof(struct udp_hdr) == UDP_HDR, "RFC 768");

/* The sum of pseudo header, header and payload; the frame's bytes follow the descriptor's. */
static bool sum_is_right(const struct frames *f, const struct ip_pkt *pkt,
                         const struct udp_dgram *d, be16 field, enum csum_check how)
{
        uint32_t inl_len = d->inl_len + UDP_HDR;
        uint32_t pseudo = csum_pseudo(pkt->src, pkt->dst, IP_PROTO_UDP, inl_len + d->data.len);
        uint32_t sum = csum_partial(pkt->inl, inl_len, pseudo);

        if (d->data.id != 0)
                sum = csum_append(
                        sum, inl_len,
                        csum_partial(frame_addr(f, d->data.id) + d->data.off, d->data.len, 0));
        return csum_right(sum, field, pseudo, how);
}

/* Cuts what IP brought down to what UDP counts: `len` bytes of payload, which are there. */
static void place_payload(const struct ip_pkt *pkt, uint32_t len, struct udp_dgram *d)
{
        d->inl = pkt->inl + UDP_HDR;
        d->inl_len = MIN(len, pkt->inl_len - UDP_HDR);
        d->data = (struct buf){0};
        if (len != d->inl_len)
                d->data = (struct buf){pkt->data.id, pkt->data.off, len - d->inl_len};
}

enum drop udp_hdr_parse(const struct frames *f, const struct ip_pkt *pkt, uint16_t chan,
                        enum csum_check csum, struct udp_dgram *d)
{
        struct udp_hdr h;
        uint32_t len;

        if (pkt->inl_len < UDP_HDR)
                return DROP_UDP_SHORT;
        memcpy(&h, pkt->inl, sizeof h);
        len = be16_get(h.len);
        if (len < UDP_HDR || CHECKED(len > ip_payload_len(pkt)))
                return DROP_UDP_SHORT;
        d->tuple = (struct udp_tuple){.laddr = pkt->dst,
                                      .raddr = pkt->src,
                                      .lport = be16_get(h.dport),
                                      .rport = be16_get(h.sport),
                                      .chan = chan,
                                      .ttl = pkt->ttl,
                                      .tos = pkt->tos};
        d->opts = NULL;
        place_payload(pkt, len - UDP_HDR, d);
        /* RFC 768: all zero means that the sender generated none. */
        if (csum != CSUM_UNCHECKED && h.sum.raw != 0 && !sum_is_right(f, pkt, d, h.sum, csum))
                return DROP_UDP_CHECKSUM;
        return DROP_NONE;
}

void udp_hdr_write(uint8_t p[UDP_HDR], uint16_t sport, uint16_t dport, uint32_t len, be16 sum)
{
        struct udp_hdr h = {be16_of(sport), be16_of(dport), be16_of((uint16_t)(UDP_HDR + len)),
                            sum};

        memcpy(p, &h, sizeof h);
}

be16 udp_checksum(const struct udp_tuple *t, uint32_t len, uint32_t payload_sum)
{
        uint64_t sum = (uint64_t)csum_pseudo(t->laddr, t->raddr, IP_PROTO_UDP, UDP_HDR + len) +
                       payload_sum + be16_of(t->lport).raw + be16_of(t->rport).raw +
                       be16_of((uint16_t)(UDP_HDR + len)).raw;
        be16 field = csum_finish(csum_add((uint32_t)sum, (uint32_t)(sum >> 32)));

        return field.raw != 0 ? field : (be16){0xffff};
}
