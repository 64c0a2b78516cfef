/*
 * The TCP header: what parses is well-formed by a second reading of RFC 9293 §3.2, and what is
 * written parses back to the same segment. The first byte chooses between bytes for the parser and
 * fields for the writer.
 */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

#include "base/counters.h"
#include "tcp/tcp_hdr.h"

static bool well_formed(const uint8_t *p, size_t n)
{
        size_t hlen = n < TCP_MIN_HDR ? 0 : (p[12] >> 4) * 4u;

        return hlen >= TCP_MIN_HDR && hlen <= n;
}

/* Whether options of this kind that are in form can be read, as plainly as can be: kind, length,
 * next; END ends, and so does a length that cannot be. */
static bool has_option(const uint8_t *p, unsigned kind, unsigned len)
{
        size_t hlen = (p[12] >> 4) * 4u, at = TCP_MIN_HDR;

        while (at < hlen && p[at] != 0) {
                size_t n = p[at] == 1 ? 1 : at + 1 < hlen ? p[at + 1] : 0;
                if (n == 0 || (n < 2 && p[at] != 1) || at + n > hlen)
                        return false;
                if (p[at] == kind && n == len)
                        return true;
                at += n;
        }
        return false;
}

static void check_same(const struct tcp_seg *a, const struct tcp_seg *b)
{
        assert(a->sport == b->sport && a->dport == b->dport && a->seq == b->seq &&
               a->ack == b->ack);
        assert(a->flags == b->flags && a->wnd == b->wnd && a->urg == b->urg);
        assert(a->mss == b->mss && a->wscale == b->wscale && a->sack_ok == b->sack_ok);
        assert(a->has_ts == b->has_ts && a->tsval == b->tsval && a->tsecr == b->tsecr);
        if (a->flags & TCP_SYN) {
                assert(a->fastopen == b->fastopen &&
                       (a->fastopen == 0 || a->fastopen_old == b->fastopen_old));
                assert(a->fastopen <= 1 || memcmp(a->cookie, b->cookie, a->fastopen - 1u) == 0);
        }
        assert(a->nsack == b->nsack);
        assert(memcmp(a->sack, b->sack, a->nsack * sizeof a->sack[0]) == 0);
}

static void write_and_parse(const struct tcp_seg *seg)
{
        uint8_t *exact, hdr[TCP_MAX_HDR];
        unsigned len = tcp_hdr_write(seg, hdr);
        struct tcp_seg back;

        assert(len >= TCP_MIN_HDR && len <= TCP_MAX_HDR && len % 4 == 0);
        exact = malloc(len);
        memcpy(exact, hdr, len);
        assert(tcp_hdr_parse(exact, len, &back) == (int)len);
        check_same(seg, &back);
        free(exact);
}

static void fuzz_bytes(const uint8_t *data, size_t size)
{
        struct tcp_seg seg;
        int len = tcp_hdr_parse(data, size, &seg);

        assert((len > 0) == well_formed(data, size));
        if (len < 0) {
                assert(-len == DROP_TCP_SHORT);
                return;
        }
        assert(seg.has_ts == has_option(data, 8, 10));
        assert(seg.sack_ok == (seg.flags & TCP_SYN && has_option(data, 4, 2)));
        assert((size_t)len <= size && seg.nsack <= TCP_MAX_SACK &&
               (seg.wscale <= 14 || seg.wscale == TCP_NO_WSCALE));
        write_and_parse(&seg);
}

struct source {
        const uint8_t *p, *end;
};

static uint32_t take(struct source *s, unsigned bytes)
{
        uint32_t v = 0;

        while (bytes-- > 0)
                v = v << 8 | (s->p < s->end ? *s->p++ : 0);
        return v;
}

/* Any segment that our stack could want to send. */
static void fuzz_fields(const uint8_t *data, size_t size)
{
        struct source s = {data, data + size};
        uint32_t what = take(&s, 1);
        struct tcp_seg seg = {.sport = (uint16_t)take(&s, 2),
                              .dport = (uint16_t)take(&s, 2),
                              .seq = take(&s, 4),
                              .ack = take(&s, 4),
                              .wnd = (uint16_t)take(&s, 2),
                              .urg = (uint16_t)take(&s, 2),
                              .flags = (uint8_t)take(&s, 1),
                              .wscale = TCP_NO_WSCALE};

        seg.has_ts = what & 1;
        if (seg.has_ts) {
                seg.tsval = take(&s, 4);
                seg.tsecr = take(&s, 4);
        }
        if (seg.flags & TCP_SYN) {
                seg.mss = (uint16_t)take(&s, 2);
                seg.sack_ok = what & 2;
                seg.wscale = what & 4 ? (uint8_t)(take(&s, 1) % 15) : TCP_NO_WSCALE;
        } else {
                seg.nsack = (uint8_t)MIN(what >> 3 & 7, seg.has_ts ? 3u : 4u);
                for (unsigned i = 0; i < seg.nsack; i++)
                        seg.sack[i] = (struct tcp_sack_block){take(&s, 4), take(&s, 4)};
        }
        write_and_parse(&seg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        if (size == 0)
                return 0;
        if (data[0] & 0x80) {
                fuzz_fields(data + 1, size - 1);
        } else {
                uint8_t *exact = malloc(size - 1 + (size == 1));
                memcpy(exact, data + 1, size - 1);
                fuzz_bytes(exact, size - 1);
                free(exact);
        }
        return 0;
}

static size_t seed_header(uint8_t *buf, uint8_t flags, const uint8_t *options, size_t n)
{
        memset(buf, 0, 1 + TCP_MIN_HDR);
        for (unsigned i = 0; i < 12; i++)
                buf[1 + i] = (uint8_t)(i * 17);
        buf[1 + 12] = (uint8_t)((TCP_MIN_HDR + n) / 4 << 4);
        buf[1 + 13] = flags;
        memcpy(buf + 1 + TCP_MIN_HDR, options, n);
        return 1 + TCP_MIN_HDR + n;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
        static const uint8_t syn[] = {2, 4, 5, 180, 4, 2, 8, 10, 0, 0,
                                      0, 1, 0, 0,   0, 0, 1, 3,  3, 7};
        static const uint8_t ts[] = {1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8};
        static const uint8_t sack[] = {1, 1, 5, 26, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0,
                                       3, 0, 0, 0,  4, 0, 0, 0, 5, 0, 0, 0, 6, 0};
        static const uint8_t odd[] = {1, 1, 1, 254, 4, 0, 0, 30, 3, 9, 1, 0};

        switch (i) {
        case 0:
                return seed_header(buf, TCP_SYN, syn, sizeof syn);
        case 1:
                return seed_header(buf, TCP_ACK, ts, sizeof ts);
        case 2:
                return seed_header(buf, TCP_ACK, sack, sizeof sack);
        case 3:
                return seed_header(buf, TCP_FIN | TCP_ACK, odd, sizeof odd);
        case 4:
        case 5: /* fields: a SYN with everything, an ACK with blocks */
                for (unsigned k = 0; k < 60; k++)
                        buf[k] = (uint8_t)(k * 37 + i);
                buf[0] = 0x80;
                buf[1] = i == 4 ? 7 : 4 << 3 | 1;
                buf[18] = i == 4 ? TCP_SYN : TCP_ACK;
                return 60;
        default:
                return 0;
        }
}
