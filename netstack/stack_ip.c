/* See stack_ip.h. */
#include "netstack/stack.h"

static void reset(struct stack_ip *ip, struct prng *rnd)
{
        uint8_t secret[16];

        prng_bytes(rnd, secret, sizeof secret);
        reass_reset(&ip->reass, secret);
        ip->deadline = NSTIME_NEVER;
}

void stack_ip_format(struct stack_ip *ip, struct prng *rnd)
{
        uint8_t secret[16];

        ip_ids_init(&ip->ids, rnd);
        prng_bytes(rnd, secret, sizeof secret);
        pmtu_init(&ip->paths, secret);
        reset(ip, rnd);
}

void stack_ip_recover(struct stack_ip *ip, struct prng *rnd)
{
        reset(ip, rnd);
}

static struct reass reass_of(struct stack *s)
{
        return (struct reass){&s->ip->reass, s->frames, &s->st->cnt};
}

bool stack_ip_fragment(struct stack *s, uint32_t k, struct ip_pkt *pkt)
{
        struct reass r = reass_of(s);
        bool whole = reass_rx(&r, (uint16_t)k, pkt, s->now) == REASS_WHOLE;

        WRITE_ONCE(s->ip->deadline, reass_deadline(&s->ip->reass));
        return whole;
}

void stack_ip_done(struct stack *s)
{
        struct reass r = reass_of(s);

        reass_done(&r);
}

bool stack_ip_expire(struct stack *s, struct ip_pkt *about, uint32_t *chan)
{
        struct reass r = reass_of(s);
        uint16_t k;
        bool due = reass_expire(&r, s->now, about, &k);

        WRITE_ONCE(s->ip->deadline, reass_deadline(&s->ip->reass));
        *chan = due ? k : 0;
        return due;
}

uint32_t stack_path_mtu(struct stack *s, ip_addr dst)
{
        uint32_t learnt, told;

        if (likely(!s->ip->any_learnt && !s->st->route_mtus))
                return 0;
        learnt = pmtu_get(&s->ip->paths, ip_addr_get_v4(dst), s->now);
        told = s->st->route_mtus ? stack_route_mtu(s, ip_addr_get_v4(dst)) : 0;
        return learnt == 0 || (told != 0 && told < learnt) ? told : learnt;
}

void stack_path_learnt(struct stack *s, uint32_t k, ip_addr dst, uint32_t mtu)
{
        assert(k < STACK_CHANS);
        s->ip->any_learnt = 1;
        pmtu_set(&s->ip->paths, ip_addr_get_v4(dst), mtu, s->chan[k].caps.mtu, s->now);
}
