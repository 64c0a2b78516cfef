/* See stack_ping.h. */
#include <errno.h>

#include "netstack/stack_road.h"

static struct stack_ping *asked(const struct stack *s)
{
        return &s->ip->ping;
}

void stack_ping_begin(struct stack *s, ip_addr dst)
{
        struct stack_ping *p = asked(s);

        p->asking = 0;
        ping_init(&p->ping, dst, &s->st->prng);
        p->asking = 1;
}

int stack_ping_ask(struct stack *s, uint32_t k, ip_addr src, uint32_t n, uint8_t ttl,
                   bool dont_frag, uint32_t *seq)
{
        struct stack_chan *c = stack_chan_get(s, k);
        struct ping *p = &asked(s)->ping;
        uint32_t len = ICMP_HDR + n, path;
        struct ip_tmpl ip;
        struct buf data;
        uint8_t *out;

        assert(ttl != 0 && n <= PING_MAX_DATA);
        if (c == NULL)
                return -ENETUNREACH;
        path = stack_path_mtu(s, p->dst);
        if (dont_frag && IP_MIN_HDR + len > (path != 0 ? MIN(path, c->caps.mtu) : c->caps.mtu))
                return -EMSGSIZE;
        out = stack_icmp_frame(s, k, len, &data);
        if (out == NULL)
                return -EAGAIN;
        *seq = ping_request(p, out, n, s->now);
        ip_tmpl_init(&ip, src, p->dst, IP_PROTO_ICMP, 0, ttl, dont_frag);
        stack_icmp_post(s, k, &ip, &data,
                        dont_frag ? 0 : stack_new_id(s, src, p->dst, IP_PROTO_ICMP));
        c->ops->flush(c->ch);
        return 0;
}

static void note(struct stack_ping *p, const struct stack_ping_news *news)
{
        p->news[p->noted % STACK_PING_NEWS] = *news;
        p->noted++;
}

void stack_ping_reply(struct stack *s, const struct ip_pkt *pkt, const struct icmp_msg *msg)
{
        struct stack_ping *p = asked(s);
        struct stack_ping_news news = {
                .from = pkt->src, .ttl = pkt->ttl, .len = ip_payload_len(pkt)};
        enum ping_what what;

        if (!p->asking)
                return;
        what = ping_reply(&p->ping, s->frames, pkt, msg, s->now, &news.seq, &news.rtt);
        news.what = what == PING_REPLY ? STACK_PING_REPLY : STACK_PING_DUPLICATE;
        if (what != PING_NOT_OURS)
                note(p, &news);
}

bool stack_ping_error(struct stack *s, const struct icmp_err *e)
{
        struct stack_ping *p = asked(s);
        struct stack_ping_news news = {.what = STACK_PING_ERROR,
                                       .from = e->from,
                                       .type = e->type,
                                       .code = e->code,
                                       .mtu = e->mtu};

        if (!p->asking || !ping_error(&p->ping, e, &news.seq))
                return false;
        note(p, &news);
        return true;
}

bool stack_ping_next(const struct stack *s, uint32_t *at, struct stack_ping_news *out)
{
        const struct stack_ping *p = asked(s);

        if (*at == p->noted)
                return false;
        if (p->noted - *at > STACK_PING_NEWS)
                *at = p->noted - STACK_PING_NEWS;
        *out = p->news[(*at)++ % STACK_PING_NEWS];
        return true;
}

const struct ping *stack_ping_sum(const struct stack *s)
{
        return &asked(s)->ping;
}
