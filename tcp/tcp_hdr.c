/*
 * The header on the wire <-> struct tcp_seg (RFC 9293 §3.1, 3.2; 7323; 2018; 7413).
 *
 * Options are read one by one whatever their alignment; an unknown one is skipped by its length
 * (MUST-6). At a length that cannot be they end (MUST-7): what was read until there counts, and so
 * does the segment, as with Linux and lwIP.
 */
#include "base/counters.h"
#include "base/planted.h"
#include "tcp/tcp_hdr.h"

enum {
        OPT_END,
        OPT_NOP,
        OPT_MSS,
        OPT_WSCALE,
        OPT_SACK_OK,
        OPT_SACK,
        OPT_TS = 8,
        OPT_FASTOPEN = 34,
        OPT_EXPERIMENT = 254
};
enum { MSS_LEN = 4, WSCALE_LEN = 3, SACK_OK_LEN = 2, TS_LEN = 10, SACK_BLOCK_LEN = 8 };
/* RFC 7413 §4.1.1: what it was before it had a number; servers are asked so by old clients. */
#define EXPERIMENT_FASTOPEN 0xf989u

static uint8_t *put16(uint8_t *p, uint16_t v)
{
        be16 w = be16_of(v);

        memcpy(p, &w, sizeof w);
        return p + sizeof w;
}

static uint8_t *put32(uint8_t *p, uint32_t v)
{
        be32 w = be32_of(v);

        memcpy(p, &w, sizeof w);
        return p + sizeof w;
}

static void parse_sack(const uint8_t *p, unsigned len, struct tcp_seg *seg)
{
        if ((len - 2) % SACK_BLOCK_LEN != 0)
                return;
        for (unsigned at = 2; at < len && seg->nsack < TCP_MAX_SACK; at += SACK_BLOCK_LEN)
                seg->sack[seg->nsack++] =
                        (struct tcp_sack_block){be32_at(p + at), be32_at(p + at + 4)};
}

/* A length that cannot be is no option (§4.1.1: 4 to 16 bytes, even). */
static void parse_fastopen(const uint8_t *p, unsigned len, bool old, struct tcp_seg *seg)
{
        if (!(seg->flags & TCP_SYN) || len % 2 != 0 || len > TCP_MAX_COOKIE ||
            (len != 0 && len < 4))
                return;
        memcpy(seg->cookie, p, len);
        seg->fastopen = (uint8_t)(1 + len);
        seg->fastopen_old = old;
}

/* Parses one option of kind p[0] and length len, which is all there. Options of a SYN are ignored
 * elsewhere. */
static void parse_option(const uint8_t *p, unsigned len, struct tcp_seg *seg)
{
        bool syn = seg->flags & TCP_SYN;

        switch (p[0]) {
        case OPT_MSS:
                if (syn && len == MSS_LEN)
                        seg->mss = be16_at(p + 2);
                break;
        case OPT_WSCALE:
                if (syn && len == WSCALE_LEN)
                        seg->wscale = MIN(p[2], 14); /* RFC 7323 §2.3 */
                break;
        case OPT_SACK_OK:
                if (syn && len == SACK_OK_LEN)
                        seg->sack_ok = true;
                break;
        case OPT_SACK:
                if (!syn)
                        parse_sack(p, len, seg);
                break;
        case OPT_TS:
                if (len == TS_LEN) {
                        seg->has_ts = true;
                        seg->tsval = be32_at(p + 2);
                        seg->tsecr = be32_at(p + 6);
                }
                break;
        case OPT_FASTOPEN:
                parse_fastopen(p + 2, len - 2, false, seg);
                break;
        case OPT_EXPERIMENT:
                if (len >= 4 && be16_at(p + 2) == EXPERIMENT_FASTOPEN)
                        parse_fastopen(p + 4, len - 4, true, seg);
                break;
        }
}

static void parse_options(const uint8_t *p, const uint8_t *end, struct tcp_seg *seg)
{
        while (p < end && *p != OPT_END) {
                if (*p == OPT_NOP) {
                        p++;
                        continue;
                }
                if (end - p < 2 || p[1] < 2 || p[1] > end - p)
                        return;
                parse_option(p, p[1], seg);
                p += p[1];
        }
}

/* RFC 7323 appendix A: NOP NOP TS, what nearly every segment carries; read without the loop. */
static bool parse_aligned_ts(const uint8_t *p, size_t n, struct tcp_seg *seg)
{
        if (n != 12 || be32_at(p) != (OPT_NOP << 24 | OPT_NOP << 16 | OPT_TS << 8 | TS_LEN))
                return false;
        seg->has_ts = true;
        seg->tsval = be32_at(p + 4);
        seg->tsecr = be32_at(p + 8);
        return true;
}

int tcp_hdr_parse(const uint8_t *p, size_t n, struct tcp_seg *seg)
{
        unsigned hlen;

        if (n < TCP_MIN_HDR)
                return -DROP_TCP_SHORT;
        hlen = (p[12] >> 4) * 4u;
        if (CHECKED(hlen < TCP_MIN_HDR || hlen > n))
                return -DROP_TCP_SHORT;
        seg->sport = be16_at(p);
        seg->dport = be16_at(p + 2);
        seg->seq = be32_at(p + 4);
        seg->ack = be32_at(p + 8);
        seg->flags = p[13];
        seg->wnd = be16_at(p + 14);
        seg->urg = be16_at(p + 18);
        seg->wscale = TCP_NO_WSCALE;
        seg->mss = 0;
        seg->sack_ok = false;
        seg->has_ts = false;
        seg->nsack = 0;
        seg->fastopen = 0;
        seg->ecn = 0;
        seg->unsummed = false;
        seg->tsval = seg->tsecr = 0;
        if (hlen != TCP_MIN_HDR && !parse_aligned_ts(p + TCP_MIN_HDR, hlen - TCP_MIN_HDR, seg))
                parse_options(p + TCP_MIN_HDR, p + hlen, seg);
        return (int)hlen;
}

static uint8_t *write_fastopen(const struct tcp_seg *seg, uint8_t *p)
{
        unsigned len = seg->fastopen - 1u;

        *p++ = seg->fastopen_old ? OPT_EXPERIMENT : OPT_FASTOPEN;
        *p++ = (uint8_t)(len + (seg->fastopen_old ? 4 : 2));
        if (seg->fastopen_old)
                p = put16(p, EXPERIMENT_FASTOPEN);
        memcpy(p, seg->cookie, len);
        for (p += len; len++ % 4 != (seg->fastopen_old ? 0 : 2);)
                *p++ = OPT_NOP;
        return p;
}

/* As Linux: MSS, SACK permitted, timestamps, NOP, window scale, Fast Open; NOP NOP before either of
 * the middle two alone. */
static uint8_t *write_syn_options(const struct tcp_seg *seg, uint8_t *p)
{
        if (seg->mss != 0) {
                *p++ = OPT_MSS;
                *p++ = MSS_LEN;
                p = put16(p, seg->mss);
        }
        if (seg->sack_ok != seg->has_ts) {
                *p++ = OPT_NOP;
                *p++ = OPT_NOP;
        }
        if (seg->sack_ok) {
                *p++ = OPT_SACK_OK;
                *p++ = SACK_OK_LEN;
        }
        if (seg->has_ts) {
                *p++ = OPT_TS;
                *p++ = TS_LEN;
                p = put32(p, seg->tsval);
                p = put32(p, seg->tsecr);
        }
        if (seg->wscale != TCP_NO_WSCALE) {
                *p++ = OPT_NOP;
                *p++ = OPT_WSCALE;
                *p++ = WSCALE_LEN;
                *p++ = seg->wscale;
        }
        if (seg->fastopen != 0)
                p = write_fastopen(seg, p);
        return p;
}

static uint8_t *write_options(const struct tcp_seg *seg, uint8_t *p)
{
        if (seg->has_ts) {
                p = put32(p, OPT_NOP << 24 | OPT_NOP << 16 | OPT_TS << 8 | TS_LEN);
                p = put32(p, seg->tsval);
                p = put32(p, seg->tsecr);
        }
        if (seg->nsack != 0) {
                p = put32(p, OPT_NOP << 24 | OPT_NOP << 16 | OPT_SACK << 8 |
                                     (2u + SACK_BLOCK_LEN * seg->nsack));
                for (unsigned i = 0; i < seg->nsack; i++) {
                        p = put32(p, seg->sack[i].left);
                        p = put32(p, seg->sack[i].right);
                }
        }
        return p;
}

unsigned tcp_hdr_write(const struct tcp_seg *seg, uint8_t *p)
{
        uint8_t *end = p + TCP_MIN_HDR;

        if (unlikely(seg->flags & TCP_SYN))
                end = write_syn_options(seg, end);
        else if (seg->has_ts || seg->nsack != 0)
                end = write_options(seg, end);
        put16(p, seg->sport);
        put16(p + 2, seg->dport);
        put32(p + 4, seg->seq);
        put32(p + 8, seg->ack);
        p[12] = (uint8_t)((end - p) / 4 << 4);
        p[13] = seg->flags;
        put16(p + 14, seg->wnd);
        put16(p + 16, 0);
        put16(p + 18, seg->urg);
        return (unsigned)(end - p);
}
