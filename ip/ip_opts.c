/*
 * IP options. RFC 791 §3.1, RFC 1122 §3.2.1.8, RFC 7126.
 *
 * ip_opts_parse() -> next_option() -> note_option() -> check_route(), check_timestamp()
 */
#include "ip/ip_opts_int.h"

#include "base/planted.h"

/* ---- reading ---- */

/* The option at p: its length, of which all is there; 0: malformed, *bad points to the octet
 * at fault. */
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

/* A list of addresses with a pointer (from 1, to the next free one): record route and
 * source routes. */
static bool check_route(const uint8_t *p, const uint8_t **bad)
{
        *bad = p + LEN;
        if (p[LEN] < ROUTE)
                return false;
        *bad = p + PTR;
        return p[PTR] >= ROUTE + 1 &&
               (p[PTR] > p[LEN] || (p[PTR] % 4 == 0 && p[PTR] + 3 <= p[LEN]));
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
        if (p[PTR] > p[LEN] && flag != TS_PRESPEC && p[TS_FLAGS] >> 4 == 15)
                return false; /* §3.1: nor can another be counted who found it full */
        *bad = p + PTR;
        return p[PTR] >= TS_DATA + 1 &&
               (p[PTR] > p[LEN] || p[PTR] + opt_ts_entry(p[TS_FLAGS]) - 1 <= p[LEN]);
}

/* Remembers where it stands; none of these may be there twice. */
static bool note(uint8_t *where, const uint8_t *hdr, const uint8_t *p)
{
        if (*where != 0)
                return false;
        *where = (uint8_t)(p - hdr);
        return true;
}

static bool note_option(const uint8_t *hdr, const uint8_t *p, struct ip_opts_found *o,
                        const uint8_t **bad)
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
                *bad = p + LEN;
                return p[LEN] >= 4;
        default:
                return true; /* RFC 1122 §3.2.1.8: not understood, not minded */
        }
}

enum drop ip_opts_parse(const uint8_t *hdr, unsigned hdr_len, bool take_sr, struct ip_opts_found *o,
                        uint8_t *bad)
{
        const uint8_t *end = hdr + hdr_len, *p = hdr + IP_MIN_HDR, *fault;
        unsigned len;

        *o = (struct ip_opts_found){0};
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

void opt_add_route(uint8_t *p, uint32_t us)
{
        if (p[PTR] > p[LEN])
                return;
        be32_put(p + p[PTR] - 1, us);
        p[PTR] += 4;
}

void opt_add_timestamp(uint8_t *p, uint32_t us, uint32_t ms)
{
        unsigned flag = p[TS_FLAGS] & 0xf;
        uint8_t *at = p + p[PTR] - 1;

        if (p[PTR] > p[LEN]) { /* §3.1: full; a count of those who found it so */
                p[TS_FLAGS] = (uint8_t)(MIN((p[TS_FLAGS] >> 4) + 1, 15) << 4 | flag);
                return;
        }
        if (flag == TS_PRESPEC && be32_at(at) != us)
                return; /* somebody else's turn */
        if (flag == TS_ADDR)
                be32_put(at, us);
        be32_put(at + opt_ts_entry(p[TS_FLAGS]) - 4, ms);
        p[PTR] += (uint8_t)opt_ts_entry(p[TS_FLAGS]);
}

static unsigned answer_route(const uint8_t *p, uint32_t us, uint8_t *out)
{
        memcpy(out, p, p[LEN]);
        opt_add_route(out, us);
        return out[LEN];
}

static unsigned answer_timestamp(const uint8_t *p, uint32_t us, uint32_t ms, uint8_t *out)
{
        memcpy(out, p, p[LEN]);
        opt_add_timestamp(out, us, ms);
        return out[LEN];
}

/*
 * The way back: the addresses that were recorded as the route was gone, from the last to the first,
 * and at its end the sender. The first of them is where the answer goes; the others, and the
 * sender, are the new route.
 *
 *      came  S -> {R1, R2, us}: recorded R1', R2'        goes  us -> R2' with {R1', S}
 */
static unsigned answer_source_route(const uint8_t *p, uint32_t peer, uint8_t *out,
                                    uint32_t *first_hop)
{
        unsigned n = (p[LEN] - ROUTE) / 4;

        if (n == 0) {
                *first_hop = peer;
                return 0;
        }
        *first_hop = be32_at(p + ROUTE + 4 * (n - 1));
        out[0] = p[0];
        out[LEN] = (uint8_t)(ROUTE + 4 * n);
        out[PTR] = ROUTE + 1;
        for (unsigned i = 0; i + 1 < n; i++)
                memcpy(out + ROUTE + 4 * i, p + ROUTE + 4 * (n - 2 - i), 4);
        be32_put(out + ROUTE + 4 * (n - 1), peer);
        return out[LEN];
}

static unsigned pad(uint8_t *out, unsigned n)
{
        while (n % 4 != 0)
                out[n++] = IPOPT_END;
        return n;
}

unsigned ip_opts_answer(const uint8_t *hdr, const struct ip_opts_found *o, uint32_t us,
                        uint32_t peer, uint32_t ms, uint8_t out[IP_OPTS_MAX], uint32_t *first_hop)
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
