/*
 * IP options. RFC 791 §3.1, RFC 1122 §3.2.1.8, RFC 7126.
 *
 * ip_opts_parse() -> next_option() -> note_option() -> check_route(), check_timestamp()
 */
#include "ip/ip_opts.h"

#include <errno.h>

#include "netstack/planted.h"

enum { LEN = 1, PTR = 2, ROUTE = 3, TS_FLAGS = 3, TS_DATA = 4 }; /* octets of an option */
enum { TS_ONLY = 0, TS_ADDR = 1, TS_PRESPEC = 3 };              /* low four bits of TS_FLAGS */

/* ---- reading ---- */

/* The option at p: its length, of which all is there; 0: malformed, *bad points to the octet at fault. */
static unsigned option_len(const uint8_t *p, const uint8_t *end, const uint8_t **bad)
{
        *bad = p;
        if (*p == IPOPT_NOP)
                return 1;
        if (end - p < 2)
                return 0;
        *bad = p + LEN;
        return p[LEN] >= 2 && !CHECKED(p[LEN] > end - p) ? p[LEN] : 0;
}

/* A list of addresses with a pointer (from 1, to the next free one): record route and source routes. */
static bool check_route(const uint8_t *p, const uint8_t **bad)
{
        *bad = p + LEN;
        if (p[LEN] < ROUTE)
                return false;
        *bad = p + PTR;
        return p[PTR] >= ROUTE + 1 && (p[PTR] > p[LEN] || (p[PTR] % 4 == 0 && p[PTR] + 3 <= p[LEN]));
}

static unsigned ts_entry(uint8_t flags)
{
        return (flags & 0xf) == TS_ONLY ? 4 : 8;
}

static bool check_timestamp(const uint8_t *p, const uint8_t **bad)
{
        unsigned flag;

        *bad = p + LEN;
        if (p[LEN] < TS_DATA)
                return false;
        flag = p[TS_FLAGS] & 0xf;
        *bad = p + TS_FLAGS;
        if (flag != TS_ONLY && flag != TS_ADDR && flag != TS_PRESPEC)
                return false;
        *bad = p + PTR;
        return p[PTR] >= TS_DATA + 1 && (p[PTR] > p[LEN] || p[PTR] + ts_entry(p[TS_FLAGS]) - 1 <= p[LEN]);
}

/* Remembers where it stands; none of these may be there twice. */
static bool note(uint8_t *where, const uint8_t *hdr, const uint8_t *p)
{
        if (*where != 0)
                return false;
        *where = (uint8_t)(p - hdr);
        return true;
}

static bool note_option(const uint8_t *hdr, const uint8_t *p, struct ip_opts *o, const uint8_t **bad)
{
        *bad = p;
        switch (*p) {
        case IPOPT_RR:
                return note(&o->rr, hdr, p) && check_route(p, bad);
        case IPOPT_LSRR:
        case IPOPT_SSRR:
                if (!note(&o->sr, hdr, p) || !check_route(p, bad))
                        return false;
                o->sr_done = p[PTR] > p[LEN];
                return true;
        case IPOPT_TS:
                return note(&o->ts, hdr, p) && check_timestamp(p, bad);
        case IPOPT_ALERT:
                o->alert = true;
                return true;
        default:
                return true; /* RFC 1122 §3.2.1.8: not understood, not minded */
        }
}

enum drop ip_opts_parse(const uint8_t *hdr, unsigned hdr_len, bool take_sr, struct ip_opts *o, uint8_t *bad)
{
        const uint8_t *end = hdr + hdr_len, *p = hdr + IP_MIN_HDR, *fault;
        unsigned len;

        *o = (struct ip_opts){0};
        for (; p < end && *p != IPOPT_END; p += len) {
                len = option_len(p, end, &fault);
                if (len == 0 || !note_option(hdr, p, o, &fault)) {
                        *bad = (uint8_t)(fault - hdr);
                        return DROP_IP_OPTIONS;
                }
        }
        return o->sr != 0 && (!take_sr || !o->sr_done) ? DROP_IP_SOURCE_ROUTE : DROP_NONE;
}

/* ---- answering ---- */

static void put_addr(uint8_t *p, uint32_t a)
{
        be32 raw = be32_of(a);

        memcpy(p, &raw, sizeof raw);
}

static uint32_t get_addr(const uint8_t *p)
{
        be32 raw;

        memcpy(&raw, p, sizeof raw);
        return be32_get(raw);
}

/* Adds us to a recorded route, when there is room. */
static unsigned answer_route(const uint8_t *p, uint32_t us, uint8_t *out)
{
        memcpy(out, p, p[LEN]);
        if (out[PTR] <= out[LEN]) {
                put_addr(out + out[PTR] - 1, us);
                out[PTR] += 4;
        }
        return out[LEN];
}

static unsigned answer_timestamp(const uint8_t *p, uint32_t us, uint32_t ms, uint8_t *out)
{
        unsigned flag = p[TS_FLAGS] & 0xf;
        uint8_t *at;

        memcpy(out, p, p[LEN]);
        if (out[PTR] > out[LEN]) { /* §3.1: full; a count of those who found it so, up to 15 */
                out[TS_FLAGS] = (uint8_t)(MIN((out[TS_FLAGS] >> 4) + 1, 15) << 4 | flag);
                return out[LEN];
        }
        at = out + out[PTR] - 1;
        if (flag == TS_PRESPEC && get_addr(at) != us)
                return out[LEN]; /* somebody else's turn */
        if (flag == TS_ADDR)
                put_addr(at, us);
        put_addr(at + ts_entry(out[TS_FLAGS]) - 4, ms);
        out[PTR] += (uint8_t)ts_entry(out[TS_FLAGS]);
        return out[LEN];
}

/*
 * The way back: the addresses that were recorded as the route was gone, from the last to the first, and at its end
 * the sender. The first of them is where the answer goes; the others, and the sender, are the new route.
 *
 *      came  S -> {R1, R2, us}: recorded R1', R2'        goes  us -> R2' with {R1', S}
 */
static unsigned answer_source_route(const uint8_t *p, uint32_t peer, uint8_t *out, uint32_t *first_hop)
{
        unsigned n = (p[LEN] - ROUTE) / 4;

        if (n == 0) {
                *first_hop = peer;
                return 0;
        }
        *first_hop = get_addr(p + ROUTE + 4 * (n - 1));
        out[0] = p[0];
        out[LEN] = (uint8_t)(ROUTE + 4 * n);
        out[PTR] = ROUTE + 1;
        for (unsigned i = 0; i + 1 < n; i++)
                memcpy(out + ROUTE + 4 * i, p + ROUTE + 4 * (n - 2 - i), 4);
        put_addr(out + ROUTE + 4 * (n - 1), peer);
        return out[LEN];
}

static unsigned pad(uint8_t *out, unsigned n)
{
        while (n % 4 != 0)
                out[n++] = IPOPT_END;
        return n;
}

unsigned ip_opts_answer(const uint8_t *hdr, const struct ip_opts *o, uint32_t us, uint32_t peer, uint32_t ms,
                        uint8_t out[IP_OPTS_MAX], uint32_t *first_hop)
{
        unsigned n = 0;

        *first_hop = peer;
        if (o->sr != 0)
                n += answer_source_route(hdr + o->sr, peer, out + n, first_hop);
        if (o->rr != 0)
                n += answer_route(hdr + o->rr, us, out + n);
        if (o->ts != 0)
                n += answer_timestamp(hdr + o->ts, us, ms, out + n);
        return pad(out, n);
}

/* ---- sending ---- */

int ip_opts_check_sent(const uint8_t *opts, unsigned n, uint8_t out[IP_OPTS_MAX])
{
        uint8_t hdr[IP_MAX_HDR] = {0}, bad;
        struct ip_opts o;

        if (n > IP_OPTS_MAX)
                return -EINVAL;
        if (n != 0)
                memcpy(hdr + IP_MIN_HDR, opts, n);
        if (ip_opts_parse(hdr, IP_MIN_HDR + n, true, &o, &bad) == DROP_IP_OPTIONS)
                return -EINVAL;
        memcpy(out, hdr + IP_MIN_HDR, n);
        return (int)pad(out, n);
}
