/*
 * ICMP for IPv4. RFC 792; RFC 1122 §3.2.2.
 *
 * icmp_rx() -> read_echo() or read_error() -> classify(). The payload of an ICMP message may lie in
 * the descriptor, in a frame, or begin in one and go on in the other: gather() hides where.
 */
#include "ip/icmp.h"

#include <errno.h>

#include "base/checksum.h"
#include "base/planted.h"

struct icmp_hdr {
        uint8_t type, code;
        be16 sum;
        be16 a, b; /* echo: id and sequence number; fragmentation needed: unused and MTU */
};
static_assert(sizeof(struct icmp_hdr) == ICMP_HDR, "RFC 792");

/* ---- the payload, wherever it lies ---- */

/* Copies bytes from .. from + n of the payload, all of which exist. */
static void gather(const struct frames *f, const struct ip_pkt *pkt, uint32_t from, uint8_t *out,
                   uint32_t n)
{
        uint32_t inl = from < pkt->inl_len ? MIN(n, pkt->inl_len - from) : 0;

        if (inl != 0)
                memcpy(out, pkt->inl + from, inl);
        if (n > inl)
                memcpy(out + inl,
                       frame_addr(f, pkt->data.id) + pkt->data.off + (from + inl - pkt->inl_len),
                       n - inl);
}

static uint32_t payload_sum(const struct frames *f, const struct ip_pkt *pkt)
{
        uint32_t sum = csum_partial(pkt->inl, pkt->inl_len, 0);

        if (pkt->data.id == 0)
                return sum;
        return csum_append(
                sum, pkt->inl_len,
                csum_partial(frame_addr(f, pkt->data.id) + pkt->data.off, pkt->data.len, 0));
}

/* ---- what an error means ---- */

struct meaning {
        int err;
        bool hard;
};

/* As Linux's icmp_err_convert. Hard ones: RFC 1122 §4.2.3.9 names codes 2 to 4; Linux adds those
 * that say "prohibited" or "unknown host". All are only hints (§3.2.2.1): tcp/ decides by state
 * (RFC 5927 §5.2). */
static struct meaning unreachable_meaning(uint8_t code)
{
        static const struct meaning by_code[] = {
                [ICMP_NET_UNREACHABLE] = {ENETUNREACH, false},
                [ICMP_HOST_UNREACHABLE] = {EHOSTUNREACH, false},
                [ICMP_PROTOCOL_UNREACHABLE] = {ENOPROTOOPT, true},
                [ICMP_PORT_UNREACHABLE] = {ECONNREFUSED, true},
                [ICMP_FRAG_NEEDED] = {EMSGSIZE, true},
                [ICMP_SOURCE_ROUTE_FAILED] = {EOPNOTSUPP, false},
                [ICMP_NET_UNKNOWN] = {ENETUNREACH, true},
                [ICMP_HOST_UNKNOWN] = {EHOSTDOWN, true},
                [ICMP_HOST_ISOLATED] = {ENONET, true},
                [ICMP_NET_PROHIBITED] = {ENETUNREACH, true},
                [ICMP_HOST_PROHIBITED] = {EHOSTUNREACH, true},
                [ICMP_NET_TOS] = {ENETUNREACH, false},
                [ICMP_HOST_TOS] = {EHOSTUNREACH, false},
                [ICMP_ADMIN_PROHIBITED] = {EHOSTUNREACH, true},
                [14] = {EHOSTUNREACH, true}, /* RFC 1812 §5.2.7.1: host precedence violation */
                [15] = {EHOSTUNREACH, true}, /* precedence cutoff */
        };

        return code < ARRAY_LEN(by_code) ? by_code[code] : (struct meaning){EHOSTUNREACH, false};
}

static struct meaning meaning_of(uint8_t type, uint8_t code)
{
        switch (type) {
        case ICMP_UNREACHABLE:
                return unreachable_meaning(code);
        case ICMP_TIME_EXCEEDED:
                return (struct meaning){EHOSTUNREACH, false};
        case ICMP_PARAMETER_PROBLEM:
                return (struct meaning){EPROTO, true};
        default:
                return (struct meaning){0, false}; /* source quench: RFC 6633 asks to ignore it */
        }
}

/* ---- input ---- */

/* The packet quoted: its header, then at least 8 bytes (RFC 792), which hold ports and TCP's
 * sequence number.
 */
static enum drop read_error(const struct frames *f, const struct ip_pkt *pkt,
                            const struct icmp_hdr *h, struct icmp_err *e)
{
        uint8_t quote[IP_MAX_HDR + 8];
        uint32_t n = MIN(ip_payload_len(pkt) - ICMP_HDR, (uint32_t)sizeof quote);
        struct meaning m = meaning_of(h->type, h->code);
        struct ip_pkt inner;
        const uint8_t *l4;

        gather(f, pkt, ICMP_HDR, quote, n);
        if (ip_hdr_parse(quote, n, false, &inner) != 0 || CHECKED(n < inner.hdr_len + 8u))
                return DROP_ICMP_SHORT;
        if (inner.frag_off != 0)
                return DROP_ICMP_IGNORED; /* there are no ports in it */
        l4 = quote + inner.hdr_len;
        *e = (struct icmp_err){
                .type = h->type,
                .code = h->code,
                .proto = inner.proto,
                .err = m.err,
                .hard = m.hard,
                .laddr = inner.src,
                .raddr = inner.dst,
                .lport = be16_at(l4),
                .rport = be16_at(l4 + 2),
                .seq = be32_at(l4 + 4),
                .from = pkt->src,
        };
        e->ttl = pkt->ttl;
        e->tos = pkt->tos;
        e->quoted_hdr = inner.hdr_len;
        e->quoted_len = inner.total_len;
        if (h->type == ICMP_UNREACHABLE && h->code == ICMP_FRAG_NEEDED)
                e->mtu = be16_get(h->b);
        return DROP_NONE;
}

unsigned icmp_quoted(const struct frames *f, const struct ip_pkt *pkt, const struct icmp_err *e,
                     uint8_t *out, unsigned room)
{
        uint32_t skip = e->quoted_hdr + 8u, at = ICMP_HDR + skip, have = ip_payload_len(pkt);
        uint32_t n = MIN(have - MIN(have, at), e->quoted_len - MIN((uint32_t)e->quoted_len, skip));

        n = MIN(n, room);
        gather(f, pkt, at, out, n);
        return n;
}

/* RFC 792: the better gateway, then the packet that should have gone there. */
static enum drop read_redirect(const struct frames *f, const struct ip_pkt *pkt,
                               struct icmp_redirect *r)
{
        uint8_t quote[4 + IP_MAX_HDR];
        uint32_t n = MIN(ip_payload_len(pkt) - 4, (uint32_t)sizeof quote);
        struct ip_pkt inner;

        gather(f, pkt, 4, quote, n);
        if (n < 4 || ip_hdr_parse(quote + 4, n - 4, false, &inner) != 0)
                return DROP_ICMP_SHORT;
        *r = (struct icmp_redirect){.laddr = inner.src,
                                    .dst = inner.dst,
                                    .gateway = ip_addr_v4(be32_at(quote)),
                                    .from = pkt->src};
        return DROP_NONE;
}

enum drop icmp_rx(const struct frames *f, const struct ip_pkt *pkt, bool csum, struct icmp_msg *msg)
{
        struct icmp_hdr h;

        if (ip_payload_len(pkt) < ICMP_HDR)
                return DROP_ICMP_SHORT;
        if (csum && csum_finish(payload_sum(f, pkt)).raw != 0)
                return DROP_ICMP_CHECKSUM;
        gather(f, pkt, 0, (uint8_t *)&h, sizeof h);
        *msg = (struct icmp_msg){
                .type = h.type, .code = h.code, .id = be16_get(h.a), .seq = be16_get(h.b)};
        if (icmp_is_error(h.type)) {
                msg->what = ICMP_IS_ERROR;
                return read_error(f, pkt, &h, &msg->err);
        }
        switch (h.type) {
        case ICMP_ECHO_REPLY:
                msg->what = ICMP_IS_REPLY;
                return DROP_NONE;
        case ICMP_ECHO_REQUEST: /* RFC 1122 §3.2.2.6: one to many would make a flood */
                msg->what = ICMP_IS_ECHO;
                return pkt->to == IP_TO_HOST ? DROP_NONE : DROP_ICMP_IGNORED;
        case ICMP_REDIRECT:
                msg->what = ICMP_IS_REDIRECT;
                return read_redirect(f, pkt, &msg->redirect);
        default:
                return DROP_ICMP_IGNORED;
        }
}

/* ---- output ---- */

/* The header of an answer, over `len` bytes that begin with the request's. Its code stays: RFC 792,
 * as Linux, changes an echo's type alone. */
static void finish_reply(uint8_t *out, uint32_t len, uint8_t type)
{
        struct icmp_hdr h;

        memcpy(&h, out, sizeof h);
        h.type = type;
        h.sum = be16_of(0);
        memcpy(out, &h, sizeof h);
        h.sum = csum_finish(csum_partial(out, len, 0));
        memcpy(out, &h, sizeof h);
}

void icmp_echo_reply(const struct frames *f, const struct ip_pkt *pkt, uint8_t *out)
{
        uint32_t len = ip_payload_len(pkt);

        gather(f, pkt, 0, out, len);
        finish_reply(out, len, ICMP_ECHO_REPLY);
}

static bool on_network(const struct ip_host *h, uint32_t a)
{
        for (uint32_t i = 0; i < h->naddr; i++) {
                uint8_t prefix = h->addr[i].prefix;
                if (prefix < 32 && prefix != 0 && (a ^ h->addr[i].addr) >> (32 - prefix) == 0)
                        return true;
        }
        return false;
}

bool icmp_redirect_ok(const struct ip_host *h, const struct icmp_redirect *r, uint32_t first_hop)
{
        uint32_t gateway = ip_addr_get_v4(r->gateway), dst = ip_addr_get_v4(r->dst);

        return ip_addr_get_v4(r->from) == first_hop && gateway != first_hop &&
               ip_host_owns(h, ip_addr_get_v4(r->laddr)) && on_network(h, gateway) &&
               !ip_host_owns(h, gateway) && !ip_host_broadcast(h, gateway) &&
               !ip_v4_multicast(dst) && !ip_host_broadcast(h, dst) && !ip_host_owns(h, dst);
}

bool icmp_may_answer(const struct ip_host *h, const struct ip_pkt *pkt)
{
        uint32_t src = ip_addr_get_v4(pkt->src), dst = ip_addr_get_v4(pkt->dst);

        if (pkt->frag_off != 0 || pkt->link_cast)
                return false;
        if (pkt->proto == IP_PROTO_ICMP) {
                /* No error is sent about an error, or about what cannot be told from one. */
                if (pkt->inl_len == 0 ||
                    (pkt->inl[0] != ICMP_ECHO_REQUEST && pkt->inl[0] != ICMP_ECHO_REPLY))
                        return false;
        }
        if (pkt->to != IP_TO_HOST || ip_v4_multicast(dst) || ip_host_broadcast(h, dst))
                return false;
        /* A source that is not one host; ip_rx() lets none through, but this is asked about dropped
         * packets too. */
        return src >> 28 < 0xe && src >> 24 != 0 && !ip_host_broadcast(h, src) &&
               (h->local || !ip_v4_loopback(src));
}

/* A bucket is kept as the time at which it is full again: it holds its burst less one for each
 * interval still to go. */
/* Takes `n` tokens of a bucket that holds `burst` and gets one each `interval`. */
static bool take(struct icmp_bucket *b, uint32_t n, int burst, nstime interval, nstime now)
{
        nstime full_at = MAX(b->full_at, now);

        if (full_at - now > (burst - 1) * interval)
                return false;
        b->full_at = full_at + n * interval;
        return true;
}

void icmp_rate_init(struct icmp_rate *r, struct prng *rnd)
{
        *r = (struct icmp_rate){0};
        prng_bytes(rnd, &r->key, sizeof r->key);
}

/* First the peer's own: who asks too much must not use up what is for all. */
bool icmp_rate_take(struct icmp_rate *r, struct prng *rnd, ip_addr peer, uint8_t type, nstime now)
{
        const uint64_t key[3] = {peer.w[0], peer.w[1], type};
        struct icmp_bucket *b = &r->peer[siphash13(&r->key, key, sizeof key) % ICMP_PEERS];

        return take(b, 1, ICMP_PEER_BURST, ICMP_PEER_INTERVAL, now) &&
               take(&r->all, 1 + prng_below(rnd, 3), ICMP_BURST, ICMP_INTERVAL, now);
}

unsigned icmp_error_write(const struct frames *f, const struct ip_pkt *pkt, uint8_t type,
                          uint8_t code, uint32_t param, uint8_t *out, size_t room)
{
        /* RFC 1122 §3.2.2: as received. RFC 1812 §4.3.2.3: as much as fits. */
        uint32_t most = (uint32_t)MIN(room, ICMP_MAX_ERROR - IP_MIN_HDR) - ICMP_HDR - pkt->hdr_len;
        uint32_t quoted = MIN(ip_payload_len(pkt), most);
        unsigned len = ICMP_HDR + pkt->hdr_len + quoted;
        struct icmp_hdr h = {.type = type, .code = code};
        be32 word = be32_of(param);

        assert(room >= ICMP_HDR + pkt->hdr_len + 8u);
        memcpy(&h.a, &word, sizeof word);
        memcpy(out, &h, sizeof h);
        memcpy(out + ICMP_HDR, pkt->hdr, pkt->hdr_len);
        gather(f, pkt, 0, out + ICMP_HDR + pkt->hdr_len, quoted);
        h.sum = csum_finish(csum_partial(out, len, 0));
        memcpy(out, &h, sizeof h);
        return len;
}
