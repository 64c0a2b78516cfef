/* See gate_split.h. */
#include "unetd/bridge/gate_split.h"

#include "arp/ether.h"
#include "ip/ip.h"
#include "base/checksum.h"

enum {
        UDP_HDR = 8,
        IP_LEN_AT = 2,
        IP_ID_AT = 4,
        IP_FRAG_AT = 6,
        IP_PROTO_AT = 9,
        IP_SUM_AT = 10,
        IP_SRC_AT = 12,
        IP_DST_AT = 16,
        UDP_LEN_AT = 4,
        UDP_SUM_AT = 6
};

static ip_addr addr_at(const uint8_t *p)
{
        return ip_addr_v4(be32_at(p));
}

bool gate_split_begin(struct gate_split *s, const uint8_t *frame, uint32_t len, uint16_t size)
{
        const uint8_t *ip = frame + ETHER_HDR;
        uint32_t total, hdr;

        if (size == 0 || len < ETHER_HDR + IP_MIN_HDR || be16_at(frame + 12) != ETHER_IPV4 ||
            ip[0] >> 4 != 4)
                return false;
        hdr = (ip[0] & 15u) * 4;
        total = be16_at(ip + IP_LEN_AT);
        if (hdr < IP_MIN_HDR || total < hdr + UDP_HDR || total > len - ETHER_HDR ||
            ip[IP_PROTO_AT] != IP_PROTO_UDP || (be16_at(ip + IP_FRAG_AT) & 0x3fff) != 0)
                return false;
        *s = (struct gate_split){.frame = frame,
                                 .hdr_len = ETHER_HDR + hdr + UDP_HDR,
                                 .ip_hdr = hdr,
                                 .at = ETHER_HDR + hdr + UDP_HDR,
                                 .end = ETHER_HDR + total,
                                 .size = size,
                                 .id = be16_at(ip + IP_ID_AT)};
        return true;
}

static void finish_headers(const struct gate_split *s, uint8_t *out, uint32_t n)
{
        uint8_t *ip = out + ETHER_HDR, *udp = ip + s->ip_hdr;
        uint32_t udp_len = UDP_HDR + n;
        be16 sum;

        be16_put(ip + IP_LEN_AT, s->ip_hdr + udp_len);
        be16_put(ip + IP_ID_AT, s->id);
        be16_put(ip + IP_SUM_AT, 0);
        sum = csum_finish(csum_partial(ip, s->ip_hdr, 0));
        memcpy(ip + IP_SUM_AT, &sum, sizeof sum);
        be16_put(udp + UDP_LEN_AT, udp_len);
        be16_put(udp + UDP_SUM_AT, 0);
        sum = csum_finish(csum_partial(udp, udp_len,
                                       csum_pseudo(addr_at(ip + IP_SRC_AT), addr_at(ip + IP_DST_AT),
                                                   IP_PROTO_UDP, udp_len)));
        if (sum.raw == 0)
                sum.raw = 0xffff; /* RFC 768: 0 says that there is none */
        memcpy(udp + UDP_SUM_AT, &sum, sizeof sum);
}

uint32_t gate_split_next(struct gate_split *s, uint8_t *out)
{
        uint32_t n = MIN(s->size, s->end - s->at);

        assert(s->at <= s->end && s->hdr_len != 0);
        if (n == 0)
                return 0;
        memcpy(out, s->frame, s->hdr_len);
        memcpy(out + s->hdr_len, s->frame + s->at, n);
        finish_headers(s, out, n);
        s->at += n;
        s->id++;
        return s->hdr_len + n;
}
