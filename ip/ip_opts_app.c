/*
 * Options as applications see them: IP_OPTIONS, IP_RECVOPTS, IP_RETOPTS. RFC 791 §3.1, RFC 1122
 * §3.2.1.8; the forms and the checks are those of Linux's net/ipv4/ip_options.c.
 *
 * A source route in these forms is {first hop, ..., last hop}; in the packet it is {second hop,
 * ..., destination}, and the first hop is where the packet goes.
 */
#include <errno.h>

#include "ip/ip_opts_int.h"
#include "base/checksum.h"

/* Behind an empty header, and found there. False: malformed. */
static bool find(const struct ip_optbuf *o, uint8_t hdr[IP_MAX_HDR], struct ip_opts_found *at)
{
        uint8_t bad;

        memset(hdr, 0, IP_MIN_HDR);
        memcpy(hdr + IP_MIN_HDR, o->raw, o->len);
        return ip_opts_parse(hdr, IP_MIN_HDR + o->len, true, at, &bad) != DROP_IP_OPTIONS;
}

/* ---- to be sent ---- */

static bool may_send(uint8_t kind)
{
        return kind == IPOPT_RR || kind == IPOPT_TS || kind == IPOPT_LSRR || kind == IPOPT_SSRR ||
               kind == IPOPT_ALERT;
}

/* Returns true if an application may send all of these, some of which ip_opts_parse() does not
 * mind. */
static bool kinds_allowed(const struct ip_optbuf *o)
{
        for (unsigned i = 0; i < o->len && o->raw[i] != IPOPT_END;
             i += o->raw[i] == IPOPT_NOP ? 1 : o->raw[i + 1])
                if (o->raw[i] != IPOPT_NOP && !may_send(o->raw[i]))
                        return false;
        return true;
}

/* Returns true if all of the route is still to be gone, and it has at least one hop. */
static bool route_good(const uint8_t *p)
{
        return p[PTR] == ROUTE + 1 && p[LEN] >= ROUTE + 4 && (p[LEN] - ROUTE) % 4 == 0;
}

/* Padding, and what follows an end, is zeros. */
static void clear_rest(struct ip_optbuf *o)
{
        unsigned i = 0;

        while (i < o->len && o->raw[i] != IPOPT_END)
                i += o->raw[i] == IPOPT_NOP ? 1 : o->raw[i + 1];
        memset(o->raw + MIN(i, o->len), IPOPT_END, IP_OPTS_MAX - MIN(i, o->len));
}

/* The place that the sender of the packet fills in. */
static void clear_ours(uint8_t *p, unsigned bytes)
{
        if (p[PTR] <= p[LEN])
                memset(p + p[PTR] - 1, 0, MIN(bytes, (unsigned)p[LEN] + 1 - p[PTR]));
}

static void clear_places(struct ip_optbuf *o, const struct ip_opts_found *at)
{
        uint8_t *ts = at->ts != 0 ? &o->raw[at->ts - IP_MIN_HDR] : NULL;

        if (at->rr != 0)
                clear_ours(&o->raw[at->rr - IP_MIN_HDR], 4);
        if (ts != NULL && (ts[TS_FLAGS] & 0xf) != TS_PRESPEC)
                clear_ours(ts, opt_ts_entry(ts[TS_FLAGS]));
}

int ip_opts_set(const uint8_t *opts, unsigned n, bool any, struct ip_optbuf *out)
{
        struct ip_optbuf o = {.len = (uint8_t)((n + 3) & ~3u)};
        uint8_t hdr[IP_MAX_HDR];
        struct ip_opts_found at;

        if (n > IP_OPTS_MAX)
                return -EINVAL;
        if (n != 0)
                memcpy(o.raw, opts, n);
        if (!find(&o, hdr, &at))
                return -EINVAL;
        if ((!any && !kinds_allowed(&o)) || (at.sr != 0 && !route_good(hdr + at.sr)))
                return -EINVAL;
        clear_rest(&o);
        clear_places(&o, &at);
        *out = o;
        return 0;
}

uint32_t ip_opts_first_hop(const struct ip_optbuf *o, uint32_t dst)
{
        uint8_t hdr[IP_MAX_HDR];
        struct ip_opts_found at;

        find(o, hdr, &at);
        return at.sr != 0 ? be32_at(hdr + at.sr + ROUTE) : dst;
}

uint32_t ip_opts_build(const struct ip_optbuf *o, uint32_t us, uint32_t dst, uint32_t ms,
                       uint8_t out[IP_OPTS_MAX])
{
        uint8_t hdr[IP_MAX_HDR], *sr;
        uint32_t hop = dst;
        struct ip_opts_found at;

        find(o, hdr, &at);
        if (at.rr != 0)
                opt_add_route(hdr + at.rr, us);
        if (at.ts != 0 && hdr[at.ts + PTR] <= hdr[at.ts + LEN])
                opt_add_timestamp(hdr + at.ts, us, ms);
        if (at.sr != 0) {
                sr = hdr + at.sr;
                hop = be32_at(sr + ROUTE);
                memmove(sr + ROUTE, sr + ROUTE + 4, sr[LEN] - ROUTE - 4u);
                be32_put(sr + sr[LEN] - 4, dst);
        }
        memcpy(out, hdr + IP_MIN_HDR, o->len);
        return hop;
}

void ip_opts_seal(uint8_t *hdr, unsigned n)
{
        be16 sum = {0};

        hdr[0] = (uint8_t)(0x40 | (IP_MIN_HDR + n) / 4);
        memcpy(hdr + 10, &sum, sizeof sum);
        sum = csum_finish(csum_partial(hdr, IP_MIN_HDR + n, 0));
        memcpy(hdr + 10, &sum, sizeof sum);
}

/* ---- received ---- */

void ip_opts_record(const uint8_t *hdr, unsigned hdr_len, uint32_t us, uint32_t ms,
                    struct ip_optbuf *out)
{
        uint8_t copy[IP_MAX_HDR], bad;
        struct ip_opts_found at;

        memcpy(copy, hdr, hdr_len);
        ip_opts_parse(copy, hdr_len, true, &at, &bad);
        if (at.rr != 0)
                opt_add_route(copy + at.rr, us);
        if (at.ts != 0)
                opt_add_timestamp(copy + at.ts, us, ms);
        out->len = (uint8_t)(hdr_len - IP_MIN_HDR);
        memcpy(out->raw, copy + IP_MIN_HDR, out->len);
        clear_rest(out);
}

/* Appends an option to the answer; the place that we fill in when it is sent is empty. */
static uint8_t *append(struct ip_optbuf *out, const uint8_t *p)
{
        uint8_t *to = out->raw + out->len;

        memcpy(to, p, p[LEN]);
        out->len += p[LEN];
        return to;
}

/* The hops that were recorded, the last one first. If the first of them is the sender itself, it is
 * left out: it stands at the end of the route back anyway. */
static void append_route_back(struct ip_optbuf *out, const uint8_t *p, uint32_t peer)
{
        unsigned hops = (MIN(p[PTR], p[LEN] + 1u) - ROUTE - 1) / 4;
        unsigned skip = hops != 0 && be32_at(p + ROUTE) == peer;
        uint8_t *to = out->raw + out->len;

        if (hops == skip)
                return;
        to[0] = p[0];
        to[LEN] = (uint8_t)(ROUTE + 4 * (hops - skip));
        to[PTR] = ROUTE + 1;
        for (unsigned i = 0; i < hops - skip; i++)
                memcpy(to + ROUTE + 4 * i, p + ROUTE + 4 * (hops - 1 - i), 4);
        out->len += to[LEN];
}

bool ip_opts_back(const struct ip_optbuf *came, uint32_t peer, struct ip_optbuf *out)
{
        uint8_t hdr[IP_MAX_HDR], *p;
        struct ip_opts_found at;

        *out = (struct ip_optbuf){0};
        if (!find(came, hdr, &at))
                return false; /* what we added left less room than one more would take */
        if (at.rr != 0)
                clear_ours(append(out, hdr + at.rr), 4);
        if (at.ts != 0) {
                p = append(out, hdr + at.ts);
                if ((p[TS_FLAGS] & 0xf) != TS_PRESPEC)
                        clear_ours(p, opt_ts_entry(p[TS_FLAGS]));
        }
        if (at.sr != 0)
                append_route_back(out, hdr + at.sr, peer);
        while (out->len % 4 != 0)
                out->raw[out->len++] = IPOPT_END;
        return true;
}
