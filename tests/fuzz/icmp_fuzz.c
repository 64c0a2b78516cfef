/* The ICMP parser, and what is written about and in answer to what it accepts. */
#include "ip/icmp.h"
#include "tests/fuzz/message.h"

/* Bytes from .. from + n of the payload, read the slow and plain way. */
static void payload_bytes(const struct fuzz_message *m, const struct ip_pkt *p, uint32_t from,
                          uint8_t *out, uint32_t n)
{
        for (uint32_t i = from; i < from + n; i++)
                *out++ =
                        i < p->inl_len
                                ? p->inl[i]
                                : (frame_addr(m->frames, p->data.id) + p->data.off)[i - p->inl_len];
}

/* What is reported about a packet of ours was really quoted. */
static void check_error(const struct fuzz_message *m, const struct ip_pkt *p,
                        const struct icmp_err *e)
{
        uint8_t quote[IP_MAX_HDR + 8];
        uint32_t hdr_len, word;

        assert(ip_payload_len(p) >= ICMP_HDR + IP_MIN_HDR + 8);
        payload_bytes(m, p, ICMP_HDR, quote, 1);
        hdr_len = (quote[0] & 0xfu) * 4;
        assert(hdr_len >= IP_MIN_HDR && ip_payload_len(p) >= ICMP_HDR + hdr_len + 8);
        payload_bytes(m, p, ICMP_HDR, quote, hdr_len + 8);
        assert(quote[hdr_len] * 256u + quote[hdr_len + 1] == e->lport);
        memcpy(&word, quote + hdr_len + 4, 4);
        assert(be32_get((be32){word}) == e->seq && e->proto == quote[9]);
        assert(e->err >= 0 && (e->err != 0 || e->type == ICMP_SOURCE_QUENCH));
}

static void check_reply(const struct fuzz_message *m, const struct ip_pkt *p)
{
        uint32_t len = ip_payload_len(p);
        uint8_t *out = malloc(len), *in = malloc(len);

        icmp_echo_reply(m->frames, p, out);
        payload_bytes(m, p, 0, in, len);
        assert(out[0] == ICMP_ECHO_REPLY && memcmp(in + 4, out + 4, len - 4) == 0);
        assert(csum_finish(csum_partial(out, len, 0)).raw == 0);
        free(out);
        free(in);
}

/* Any packet may deserve an error; what we write must fit and quote it. */
static void check_written(const struct fuzz_message *m, const struct ip_pkt *p, uint32_t room)
{
        uint8_t *out = malloc(room);
        unsigned len = icmp_error_write(m->frames, p, ICMP_UNREACHABLE, ICMP_PORT_UNREACHABLE, 0,
                                        out, room);

        assert(len <= room && len <= ICMP_MAX_ERROR - IP_MIN_HDR && len >= ICMP_HDR + p->hdr_len);
        assert(memcmp(out + ICMP_HDR, p->hdr, p->hdr_len) == 0);
        assert(csum_finish(csum_partial(out, len, 0)).raw == 0);
        free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct fuzz_message m;
        struct icmp_msg msg;
        struct ip_pkt pkt;

        if (!fuzz_message(data, size, &m))
                return 0;
        if (ip_rx(&m.host, FUZZ_CHAN, &m.rx, &pkt) == DROP_NONE) {
                check_written(&m, &pkt, ICMP_HDR + pkt.hdr_len + 8u + data[1]);
                icmp_may_answer(&m.host, &pkt);
                if (icmp_rx(m.frames, &pkt, false, &msg) == DROP_NONE) {
                        if (msg.what == ICMP_IS_ERROR)
                                check_error(&m, &pkt, &msg.err);
                        if (msg.what == ICMP_IS_ECHO)
                                check_reply(&m, &pkt);
                }
                icmp_rx(m.frames, &pkt, true, &msg);
        }
        fuzz_message_free(&m);
        return 0;
}

static size_t seed_error(uint8_t *buf, uint8_t type, uint8_t inl)
{
        uint8_t payload[64] = {type, 3};
        struct ip_tmpl t;

        ip_tmpl_init(&t, ip_addr_v4(FUZZ_US), ip_addr_v4(FUZZ_PEER), IP_PROTO_TCP, 0, 64, true);
        ip_hdr_write(&t, payload + ICMP_HDR, 40, 7);
        memcpy(payload + ICMP_HDR + IP_MIN_HDR, "\x14\x51\x9c\x40\x01\x02\x03\x04", 8);
        return fuzz_seed_packet(buf, FUZZ_FIX_SUM, inl, IP_PROTO_ICMP, payload,
                                ICMP_HDR + IP_MIN_HDR + 8);
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
        static const uint8_t echo[100] = {ICMP_ECHO_REQUEST, 0, 0, 0, 1, 2, 3, 4};

        switch (i) {
        case 0:
                return fuzz_seed_packet(buf, FUZZ_FIX_SUM, 240, IP_PROTO_ICMP, echo, sizeof echo);
        case 1:
                return fuzz_seed_packet(buf, FUZZ_FIX_SUM | FUZZ_LOCAL, 33, IP_PROTO_ICMP, echo,
                                        sizeof echo);
        case 2:
                return seed_error(buf, ICMP_UNREACHABLE, 240);
        case 3:
                return seed_error(buf, ICMP_TIME_EXCEEDED, 28);
        case 4:
                return seed_error(buf, ICMP_PARAMETER_PROBLEM, 51);
        default:
                return 0;
        }
}
