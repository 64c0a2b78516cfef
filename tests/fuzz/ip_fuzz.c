/* The IPv4 parser: whatever is accepted describes bytes that are there, and can be written and
 * read again. */
#include "tests/fuzz/message.h"

static void check_payload(const struct fuzz_message *m, const struct ip_pkt *p)
{
        const struct unet_rx *rx = &m->rx;

        assert(p->hdr == rx->inl && p->hdr_len >= IP_MIN_HDR && p->hdr_len <= IP_MAX_HDR);
        assert(p->inl == rx->inl + p->hdr_len && p->hdr_len + p->inl_len <= rx->inl_len);
        assert(ip_payload_len(p) == (uint32_t)p->total_len - p->hdr_len);
        assert((p->data.id == 0) == (p->data.len == 0));
        if (p->data.id != 0) {
                assert(p->data.off == rx->off && p->data.len <= rx->len);
                assert(p->data.id == frame_id(FRAME_REGION_RX(FUZZ_CHAN), rx->frame));
        }
}

static void check_again(const struct ip_pkt *p)
{
        struct ip_tmpl t;
        struct ip_pkt again;
        uint8_t hdr[IP_MIN_HDR];

        ip_tmpl_init(&t, p->src, p->dst, p->proto, p->tos, p->ttl, p->dont_frag);
        ip_hdr_write(&t, hdr, p->total_len, p->id);
        assert(ip_hdr_parse(hdr, sizeof hdr, true, &again) == 0);
        assert(ip_addr_eq(again.src, p->src) && ip_addr_eq(again.dst, p->dst));
        assert(again.proto == p->proto && again.tos == p->tos && again.ttl == p->ttl &&
               again.id == p->id);
        assert(again.total_len == p->total_len && again.dont_frag == p->dont_frag);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct fuzz_message m;
        struct ip_pkt pkt;
        enum drop why;

        if (size > 1)
                ip_hdr_parse(data + 1, size - 1, data[0] & 1, &pkt);
        if (!fuzz_message(data, size, &m))
                return 0;
        why = ip_rx(&m.host, FUZZ_CHAN, &m.rx, &pkt);
        assert(why < DROP_COUNT);
        if (why == DROP_NONE || why == DROP_IP_FRAGMENT || why == DROP_IP_NOT_OURS ||
            why == DROP_IP_MARTIAN)
                check_payload(&m, &pkt);
        if (why == DROP_NONE)
                check_again(&pkt);
        fuzz_message_free(&m);
        return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
        static const uint8_t payload[300] = "payload";
        size_t n;

        switch (i) {
        case 0:
                return fuzz_seed_packet(buf, FUZZ_CSUM | FUZZ_FIX_SUM, 240, IP_PROTO_UDP, payload,
                                        64);
        case 1:
                return fuzz_seed_packet(buf, FUZZ_LOCAL, 40, IP_PROTO_TCP, payload, 300);
        case 2: /* padded by the link */
                return fuzz_seed_packet(buf, FUZZ_FIX_SUM | FUZZ_CSUM, 60, IP_PROTO_UDP, payload,
                                        100) +
                       20;
        case 3: /* with options: record route, then end of list */
                n = fuzz_seed_packet(buf, FUZZ_FIX_SUM | FUZZ_CSUM, 240, IP_PROTO_UDP,
                                     "\x07\x07\x04\0\0\0\0\0xy", 10);
                buf[FUZZ_PREFIX] = 0x47;
                return n;
        case 4: /* a fragment */
                n = fuzz_seed_packet(buf, FUZZ_FIX_SUM | FUZZ_CSUM, 240, IP_PROTO_UDP, payload, 64);
                buf[FUZZ_PREFIX + 6] = 0x20;
                return n;
        default:
                return 0;
        }
}
