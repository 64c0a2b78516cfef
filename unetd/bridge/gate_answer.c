/* See gate_answer.h. */
#include "unetd/bridge/gate_answer.h"

#include "ip/ip_opts.h"
#include "base/checksum.h"
#include "tcp/tcp_hdr.h"

void gate_answerer_init(struct gate_answerer *a, struct ip_ifaddr addr, bool pseudo, uint8_t ttl,
                        const uint8_t seed[32], struct counters *cnt)
{
        *a = (struct gate_answerer){.addr = addr, .pseudo = pseudo, .ttl = ttl, .cnt = cnt};
        prng_init(&a->prng, seed);
        icmp_rate_init(&a->rate, &a->prng);
        ip_ids_init(&a->ids, &a->prng);
}

static struct ip_host host_of(const struct gate_answerer *a)
{
        return (struct ip_host){.addr = &a->addr, .naddr = 1, .csum = true};
}

/* Writes an IP header in front of `len` bytes: from us, to the sender of `pkt`. Returns the length
 * of the whole. */
static uint32_t put_header(struct gate_answerer *a, const struct ip_pkt *pkt, uint8_t proto,
                           uint8_t tos, uint32_t len, nstime now, uint8_t *out)
{
        bool df = proto == IP_PROTO_TCP;
        struct ip_tmpl t;

        ip_tmpl_init(&t, pkt->dst, pkt->src, proto, tos, a->ttl, df);
        ip_hdr_write(&t, out, (uint16_t)(IP_MIN_HDR + len),
                     df ? 0
                        : ip_id_next(&a->ids, &a->prng, ip_addr_get_v4(pkt->dst),
                                     ip_addr_get_v4(pkt->src), proto, now));
        return IP_MIN_HDR + len;
}

static uint32_t dropped(struct gate_answerer *a, enum drop why)
{
        count_drop(a->cnt, why);
        return 0;
}

/* ---- ICMP ---- */

static uint32_t error(struct gate_answerer *a, const struct ip_pkt *pkt, uint8_t type, uint8_t code,
                      uint32_t param, nstime now, uint8_t *out)
{
        struct ip_host host = host_of(a);
        uint32_t len;

        if (!icmp_may_answer(&host, pkt))
                return 0;
        if (!icmp_rate_take(&a->rate, &a->prng, pkt->src, type, now))
                return dropped(a, DROP_ICMP_RATE);
        len = icmp_error_write(NULL, pkt, type, code, param, out + IP_MIN_HDR,
                               ICMP_MAX_ERROR - IP_MIN_HDR);
        count(a->cnt, COUNT_ICMP_OUT);
        return put_header(a, pkt, IP_PROTO_ICMP, 0, len, now, out);
}

/* RFC 1122 §3.2.2.6: record route and timestamp come back with us in them. Behind the header that
 * is written. */
static uint32_t with_options(const struct ip_pkt *pkt, const struct ip_opts_found *o, uint32_t len,
                             nstime now, uint8_t *out)
{
        uint32_t ms = (uint32_t)(now / NS_PER_MS) | 0x80000000u, hop;
        uint8_t opts[IP_OPTS_MAX];
        unsigned n = ip_opts_answer(pkt->hdr, o, ip_addr_get_v4(pkt->dst), ip_addr_get_v4(pkt->src),
                                    ms, opts, &hop);
        be16 total = be16_of((uint16_t)(len + n)), sum = {0};

        if (n == 0 || len + n > GATE_ANSWER_MAX)
                return len;
        memmove(out + IP_MIN_HDR + n, out + IP_MIN_HDR, len - IP_MIN_HDR);
        memcpy(out + IP_MIN_HDR, opts, n);
        out[0] += (uint8_t)(n / 4);
        memcpy(out + 2, &total, sizeof total);
        memcpy(out + 10, &sum, sizeof sum);
        sum = csum_finish(csum_partial(out, IP_MIN_HDR + n, 0));
        memcpy(out + 10, &sum, sizeof sum);
        return len + n;
}

static uint32_t answer_icmp(struct gate_answerer *a, const struct ip_pkt *pkt, nstime now,
                            uint8_t *out)
{
        struct icmp_msg msg;
        struct ip_opts_found o;
        uint8_t bad;
        uint32_t len;
        enum drop why = icmp_rx(NULL, pkt, true, &msg);

        if (why != DROP_NONE)
                return dropped(a, why);
        count(a->cnt, COUNT_ICMP_IN);
        if (msg.what != ICMP_IS_ECHO)
                return dropped(a, DROP_ICMP_IGNORED);
        icmp_echo_reply(NULL, pkt, out + IP_MIN_HDR);
        count(a->cnt, COUNT_ICMP_OUT);
        len = put_header(a, pkt, IP_PROTO_ICMP, pkt->tos, pkt->inl_len, now, out);
        if (pkt->hdr_len != IP_MIN_HDR &&
            ip_opts_parse(pkt->hdr, pkt->hdr_len, false, &o, &bad) == DROP_NONE)
                len = with_options(pkt, &o, len, now, out);
        return len;
}

/* ---- TCP, UDP ---- */

static bool sum_ok(const struct gate_answerer *a, const struct ip_pkt *pkt, unsigned field_at)
{
        uint32_t pseudo = csum_pseudo(pkt->src, pkt->dst, pkt->proto, pkt->inl_len);
        be16 field;

        memcpy(&field, pkt->inl + field_at, sizeof field);
        return csum_right(csum_partial(pkt->inl, pkt->inl_len, pseudo), field, pseudo,
                          a->pseudo ? CSUM_WHOLE_OR_PSEUDO : CSUM_WHOLE);
}

static uint32_t answer_tcp(struct gate_answerer *a, const struct ip_pkt *pkt, nstime now,
                           uint8_t *out)
{
        struct tcp_seg in, rst = {.flags = TCP_RST, .wscale = TCP_NO_WSCALE};
        int thl = tcp_hdr_parse(pkt->inl, pkt->inl_len, &in);
        unsigned n;
        be16 sum;

        if (thl < 0 || !sum_ok(a, pkt, 16))
                return dropped(a, thl < 0 ? (enum drop) - thl : DROP_TCP_CHECKSUM);
        count_drop(a->cnt, DROP_TCP_NO_LISTENER);
        if (in.flags & TCP_RST)
                return 0;
        rst.sport = in.dport;
        rst.dport = in.sport;
        if (in.flags & TCP_ACK) {
                rst.seq = in.ack;
        } else {
                rst.flags |= TCP_ACK;
                rst.ack = in.seq + pkt->inl_len - (uint32_t)thl + !!(in.flags & TCP_SYN) +
                          !!(in.flags & TCP_FIN);
        }
        n = tcp_hdr_write(&rst, out + IP_MIN_HDR);
        sum = csum_finish(csum_partial(out + IP_MIN_HDR, n,
                                       csum_pseudo(pkt->dst, pkt->src, IP_PROTO_TCP, n)));
        memcpy(out + IP_MIN_HDR + 16, &sum, sizeof sum);
        count(a->cnt, COUNT_TCP_RST_OUT);
        return put_header(a, pkt, IP_PROTO_TCP, 0, n, now, out);
}

static uint32_t answer_udp(struct gate_answerer *a, const struct ip_pkt *pkt, nstime now,
                           uint8_t *out)
{
        be16 len, sum;

        if (pkt->inl_len < 8)
                return dropped(a, DROP_UDP_SHORT);
        memcpy(&len, pkt->inl + 4, sizeof len);
        memcpy(&sum, pkt->inl + 6, sizeof sum);
        if (be16_get(len) < 8 || be16_get(len) > pkt->inl_len)
                return dropped(a, DROP_UDP_SHORT);
        if (sum.raw != 0 && !sum_ok(a, pkt, 6))
                return dropped(a, DROP_UDP_CHECKSUM);
        count_drop(a->cnt, DROP_UDP_NO_PORT);
        return error(a, pkt, ICMP_UNREACHABLE, ICMP_PORT_UNREACHABLE, 0, now, out);
}

/* ---- any ---- */

/* Of a packet in one piece. */
static enum drop parse(const struct gate_answerer *a, const uint8_t *p, uint32_t len,
                       struct ip_pkt *pkt)
{
        struct ip_host host = host_of(a);
        struct unet_rx rx = {.inl_len = MIN(len, UNET_INLINE_MAX)};
        enum drop why;
        uint32_t rest;

        if (len > rx.inl_len) {
                rx.frame = 1;
                rx.len = len - rx.inl_len;
        }
        memcpy(rx.inl, p, rx.inl_len);
        why = ip_rx(&host, 0, &rx, pkt);
        if (why != DROP_NONE && why != DROP_IP_OPTIONS)
                return why;
        rest = ip_payload_len(pkt);
        pkt->hdr = p;
        pkt->inl = p + pkt->hdr_len;
        pkt->inl_len = rest;
        pkt->data = (struct buf){0, 0, 0};
        return why;
}

uint32_t gate_answer(struct gate_answerer *a, const uint8_t *p, uint32_t len, nstime now,
                     uint8_t out[GATE_ANSWER_MAX])
{
        struct ip_pkt pkt;
        enum drop why = parse(a, p, len, &pkt);

        if (why == DROP_IP_OPTIONS) {
                count_drop(a->cnt, why);
                return error(a, &pkt, ICMP_PARAMETER_PROBLEM, 0, (uint32_t)pkt.bad << 24, now, out);
        }
        if (why != DROP_NONE)
                return dropped(a, why);
        switch (pkt.proto) {
        case IP_PROTO_TCP:
                return answer_tcp(a, &pkt, now, out);
        case IP_PROTO_UDP:
                return answer_udp(a, &pkt, now, out);
        case IP_PROTO_ICMP:
                return answer_icmp(a, &pkt, now, out);
        default:
                count_drop(a->cnt, DROP_IP_PROTOCOL);
                return error(a, &pkt, ICMP_UNREACHABLE, ICMP_PROTOCOL_UNREACHABLE, 0, now, out);
        }
}
