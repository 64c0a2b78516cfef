/* Asking with ICMP echo. RFC 792, RFC 1122 §3.2.2.6. */
#include "ip/ping.h"

#include "base/checksum.h"

void ping_init(struct ping *p, ip_addr dst, struct prng *rnd)
{
        *p = (struct ping){.dst = dst, .id = (uint16_t)prng_u32(rnd), .cookie = prng_u64(rnd)};
}

uint32_t ping_request(struct ping *p, uint8_t *out, uint32_t n, nstime now)
{
        uint32_t seq = p->next++, slot = seq % PING_WINDOW;
        const be16 word[2] = {be16_of(p->id), be16_of((uint16_t)seq)};
        be16 sum = {0};

        assert(n <= PING_MAX_DATA);
        out[0] = ICMP_ECHO_REQUEST;
        out[1] = 0;
        memcpy(out + 2, &sum, sizeof sum);
        memcpy(out + 4, word, sizeof word);
        memcpy(out + ICMP_HDR, &p->cookie, MIN(n, PING_COOKIE));
        for (uint32_t i = PING_COOKIE; i < n; i++)
                out[ICMP_HDR + i] = (uint8_t)i;
        sum = csum_finish(csum_partial(out, ICMP_HDR + n, 0));
        memcpy(out + 2, &sum, sizeof sum);
        p->sent[slot] = now;
        p->answered &= ~(1ull << slot);
        p->requests++;
        return seq;
}

/* The request that a 16-bit number on the wire stands for: the last one that it can be. False: not
 * in the window. */
static bool find(const struct ping *p, uint16_t wire, uint32_t *seq)
{
        uint32_t back = (uint16_t)((uint16_t)p->next - wire);

        if (back == 0 || back > PING_WINDOW || back > p->next)
                return false;
        *seq = p->next - back;
        return true;
}

/* The bytes that came back begin with our cookie, as far as there are any. */
static bool has_cookie(const struct ping *p, const struct frames *f, const struct ip_pkt *pkt)
{
        uint32_t n = MIN(ip_payload_len(pkt) - ICMP_HDR, PING_COOKIE);
        const uint8_t *want = (const uint8_t *)&p->cookie;

        for (uint32_t i = 0; i < n; i++) {
                uint32_t at = ICMP_HDR + i;
                uint8_t b =
                        at < pkt->inl_len
                                ? pkt->inl[at]
                                : (frame_addr(f, pkt->data.id) + pkt->data.off)[at - pkt->inl_len];
                if (b != want[i])
                        return false;
        }
        return true;
}

static void note_rtt(struct ping *p, nstime rtt)
{
        p->min = p->replies == 0 ? rtt : nstime_min(p->min, rtt);
        p->max = MAX(p->max, rtt);
        p->sum += rtt;
        p->sum_sq += (double)rtt * (double)rtt;
        p->replies++;
}

enum ping_what ping_reply(struct ping *p, const struct frames *f, const struct ip_pkt *pkt,
                          const struct icmp_msg *msg, nstime now, uint32_t *seq, nstime *rtt)
{
        uint64_t bit;

        if (msg->id != p->id || !ip_addr_eq(pkt->src, p->dst) || !find(p, msg->seq, seq) ||
            !has_cookie(p, f, pkt))
                return PING_NOT_OURS;
        bit = 1ull << *seq % PING_WINDOW;
        *rtt = now - p->sent[*seq % PING_WINDOW];
        if (p->answered & bit) {
                p->duplicates++;
                return PING_DUPLICATE;
        }
        p->answered |= bit;
        note_rtt(p, *rtt);
        return PING_REPLY;
}

/* The words of the quoted echo request that stand where ports do: type, code and checksum, then id
 * and sequence. */
bool ping_error(struct ping *p, const struct icmp_err *e, uint32_t *seq)
{
        if (e->proto != IP_PROTO_ICMP || e->lport >> 8 != ICMP_ECHO_REQUEST ||
            !ip_addr_eq(e->raddr, p->dst) || e->seq >> 16 != p->id ||
            !find(p, (uint16_t)e->seq, seq))
                return false;
        p->errors++;
        return true;
}
