/* IP options: what is found is there, an answer's options are options, and a header with them can
 * be cut into fragments. */
#include <stdlib.h>

#include "ip/frag.h"
#include "ip/ip_opts.h"
#include "tests/fuzz/fuzz.h"

static void check_found(const uint8_t *hdr, unsigned hdr_len, uint8_t at, uint8_t type,
                        uint8_t other)
{
        if (at == 0)
                return;
        assert(at >= 20 && at + 2u < hdr_len && (hdr[at] == type || hdr[at] == other));
        assert(at + hdr[at + 1] <= hdr_len);
}

/* A list whose length is not one of whole entries, or that goes on in the middle of one, ends with
 * too little room for the next: RFC 791 calls that an error of whoever made it, and so does the
 * parser of its answer. */
static bool whole_entries(const uint8_t *hdr, const struct ip_opts_found *o)
{
        unsigned entry = o->ts != 0 && (hdr[o->ts + 3] & 0xf) != 0 ? 8 : 4;

        return (o->rr == 0 || hdr[o->rr + 1] % 4 == 3) && (o->sr == 0 || hdr[o->sr + 1] % 4 == 3) &&
               (o->ts == 0 ||
                (hdr[o->ts + 1] % entry == 4 % entry && hdr[o->ts + 2] % entry == 5 % entry));
}

/* After us nobody who finds it full can be counted. */
static bool last_counted(const uint8_t *hdr, const struct ip_opts_found *o)
{
        return o->ts != 0 && hdr[o->ts + 3] >> 4 >= 14;
}

static void check_answer(const uint8_t *hdr, const struct ip_opts_found *o)
{
        uint8_t *out = malloc(IP_OPTS_MAX), back[IP_MAX_HDR] = {0}, bad;
        struct ip_opts_found again;
        uint32_t hop;
        unsigned n = ip_opts_answer(hdr, o, 0x0a000001, 0x0a000002, 12345, out, &hop);

        assert(n % 4 == 0 && n <= IP_OPTS_MAX);
        memcpy(back + 20, out, n);
        if (whole_entries(hdr, o) && !last_counted(hdr, o)) {
                assert(ip_opts_parse(back, 20 + n, true, &again, &bad) != DROP_IP_OPTIONS);
                assert(!again.rr == !o->rr && !again.ts == !o->ts);
        }
        free(out);
}

static void check_cut(const uint8_t *opts, unsigned hdr_len, uint16_t len)
{
        uint8_t hdr[IP_MAX_HDR] = {0};
        struct frag_piece p;
        struct ip_pkt pkt;
        struct frag g;
        uint32_t sum = 0;

        hdr[0] = (uint8_t)(0x40 | hdr_len / 4);
        memcpy(hdr + 20, opts, hdr_len - 20);
        frag_begin(&g, hdr, hdr_len, len, 576, 1);
        while (frag_next(&g, hdr, &p)) {
                assert(p.off == sum && p.len > 0 && p.hdr_len + p.len <= 576);
                assert(ip_hdr_parse(hdr, p.hdr_len, true, &pkt) == 0 && pkt.frag_off == p.off);
                sum += p.len;
        }
        assert(sum == len);
}

/* As an application has them: what came, what would answer it, and both as it may send them. */
static void check_app(const uint8_t *hdr, unsigned hdr_len)
{
        struct ip_optbuf came, back, set;
        uint8_t out[IP_OPTS_MAX];

        ip_opts_record(hdr, hdr_len, 0x0a000001, 1, &came);
        assert(came.len == hdr_len - 20);
        if (ip_opts_back(&came, 0x0a000002, &back)) {
                assert(back.len <= came.len && back.len % 4 == 0);
                ip_opts_build(&back, 0x0a000001, 0x0a000002, 1, out);
        }
        if (ip_opts_set(hdr + 20, hdr_len - 20, true, &set) == 0) {
                assert(set.len == hdr_len - 20);
                assert(ip_opts_build(&set, 0x0a000001, 0x0a000002, 1, out) ==
                       ip_opts_first_hop(&set, 0x0a000002));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct ip_opts_found o;
        unsigned hdr_len;
        uint8_t *hdr, bad = 0;
        enum drop why;

        if (size < 2 || size > 42)
                return 0;
        hdr_len = 20 + (unsigned)(size - 2) / 4 * 4;
        hdr = calloc(1, hdr_len);
        memcpy(hdr + 20, data + 2, hdr_len - 20);
        why = ip_opts_parse(hdr, hdr_len, true, &o, &bad);
        assert(why == DROP_NONE || why == DROP_IP_OPTIONS || why == DROP_IP_SOURCE_ROUTE);
        if (why == DROP_IP_OPTIONS) {
                assert(bad >= 20 && bad < hdr_len);
        } else {
                check_found(hdr, hdr_len, o.rr, IPOPT_RR, IPOPT_RR);
                check_found(hdr, hdr_len, o.ts, IPOPT_TS, IPOPT_TS);
                check_found(hdr, hdr_len, o.sr, IPOPT_LSRR, IPOPT_SSRR);
                check_answer(hdr, &o);
                check_app(hdr, hdr_len);
        }
        check_cut(hdr + 20, hdr_len, (uint16_t)(data[0] * 64 + data[1]));
        free(hdr);
        return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
        static const struct {
                uint8_t n, byte[42];
        } seed[] = {
                {14, {9, 9, 7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
                {14, {9, 9, 68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0}},
                {22, {9, 9, 131, 11, 12, 1, 2, 3, 4, 5, 6, 7, 8, 1, 148, 4, 0, 0, 136, 4, 0, 0}},
                {14, {9, 9, 137, 7, 8, 1, 2, 3, 4, 1, 1, 1, 1, 0}},
                {42, {9, 9, 7, 39, 40}},
        };

        if (i >= ARRAY_LEN(seed))
                return 0;
        memcpy(buf, seed[i].byte, seed[i].n);
        return seed[i].n;
}
