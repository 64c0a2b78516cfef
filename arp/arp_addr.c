/*
 * Our own addresses: probed for, announced, watched and defended. RFC 5227.
 *
 * arp_addr_add() -> arp_addr_expire() <-> arp_addr_sent();  arp_addr_conflict() may end it at any
 * time.
 */
#include "arp/arp_cache.h"

#include <errno.h>

bool arp_addr_usable(const struct arp_addr *ad)
{
        return ad->state >= ARP_ADDR_ANNOUNCING;
}

static struct arp_addr *find(const struct arp_cache *c, uint32_t ip)
{
        for (uint32_t i = 0; i < ARP_ADDRS; i++)
                if (c->addr[i].state != ARP_ADDR_NONE && c->addr[i].ip == ip)
                        return (struct arp_addr *)(uintptr_t)&c->addr[i];
        return NULL;
}

/* ---- what others ask of them ---- */

bool arp_addr_ours(const struct arp_cache *c, uint32_t ip)
{
        const struct arp_addr *ad = find(c, ip);

        return ad != NULL && arp_addr_usable(ad);
}

static bool same_network(const struct arp_addr *ad, uint32_t ip)
{
        return ((ad->ip ^ ip) & arp_mask(ad->prefix)) == 0;
}

/* A /31 has two hosts and no broadcast address (RFC 3021), a /32 one. */
static bool broadcast_of(const struct arp_addr *ad, uint32_t ip)
{
        return ad->prefix < 31 && ip == (ad->ip | ~arp_mask(ad->prefix));
}

bool arp_addr_broadcast(const struct arp_cache *c, uint32_t ip)
{
        for (uint32_t i = 0; i < ARP_ADDRS; i++)
                if (c->addr[i].state != ARP_ADDR_NONE && broadcast_of(&c->addr[i], ip))
                        return true;
        return ip == UINT32_MAX;
}

bool arp_addr_onlink(const struct arp_cache *c, uint32_t ip)
{
        for (uint32_t i = 0; i < ARP_ADDRS; i++)
                if (arp_addr_usable(&c->addr[i]) && same_network(&c->addr[i], ip))
                        return !arp_addr_broadcast(c, ip);
        return false;
}

uint32_t arp_addr_source(const struct arp_cache *c, uint32_t ip)
{
        uint32_t any = 0;

        for (uint32_t i = 0; i < ARP_ADDRS; i++) {
                const struct arp_addr *ad = &c->addr[i];

                if (!arp_addr_usable(ad))
                        continue;
                if (same_network(ad, ip))
                        return ad->ip;
                any = any != 0 ? any : ad->ip;
        }
        return any;
}

/* ---- the states ---- */

static void set_state(struct arp_addr *ad, enum arp_addr_state state, nstime at)
{
        ad->sent = 0;
        ad->at = at;
        arp_fence();
        ad->state = (uint8_t)state;
}

static void announce(struct arp *a, struct arp_addr *ad, bool tell)
{
        arp_del(a, ad->ip); /* it was a neighbour's, perhaps */
        set_state(ad, ARP_ADDR_ANNOUNCING, NSTIME_NEVER);
        ad->tell = tell;
        ad->send_now = 1;
}

/* RFC 5227 §2.1.1: up to PROBE_WAIT later; after ten conflicts, one attempt in
 * RATE_LIMIT_INTERVAL. */
static void probe(struct arp_cache *c, struct arp_addr *ad, nstime now)
{
        nstime wait = ARP_PROBE_WAIT * prng_below(&c->rnd, 1024) / 1024, begin = now;

        if (c->conflicts >= ARP_MAX_CONFLICTS)
                begin = MAX(now, c->probed_at + ARP_RATE_LIMIT_INTERVAL);
        c->probed_at = begin;
        ad->send_now = 0;
        set_state(ad, ARP_ADDR_PROBING, begin + wait);
}

int arp_addr_add(struct arp *a, uint32_t ip, uint8_t prefix, bool probe_first, nstime now)
{
        struct arp_addr *ad = find(a->c, ip);

        if (!arp_unicast(ip) || prefix > 32 || (prefix < 31 && ip == (ip | ~arp_mask(prefix))))
                return -EINVAL;
        for (uint32_t i = 0; ad == NULL && i < ARP_ADDRS; i++)
                if (a->c->addr[i].state == ARP_ADDR_NONE)
                        ad = &a->c->addr[i];
        if (ad == NULL)
                return -ENOSPC;
        ad->state = ARP_ADDR_NONE;
        arp_fence();
        *ad = (struct arp_addr){.ip = ip,
                                .prefix = prefix,
                                .at = NSTIME_NEVER,
                                .defended = now - ARP_DEFEND_INTERVAL};
        arp_fence();
        if (probe_first)
                probe(a->c, ad, now);
        else
                announce(a, ad, true);
        return 0;
}

/* Without an address nobody can be asked: what is owed to neighbours counts as sent, in vain. A
 * request from 0.0.0.0 would be a probe. */
static void stop_asking(struct arp *a, nstime now)
{
        struct arp_cache *c = a->c;

        if (arp_addr_source(c, 0) != 0)
                return;
        for (uint32_t i = 1; i < c->entries.fresh; i++)
                if (c->entry[i].state != ARP_FREE && c->entry[i].owes & ARP_OWES_REQUEST)
                        arp_asked(a, &c->entry[i], now);
}

enum arp_addr_state arp_addr_state(const struct arp *a, uint32_t ip)
{
        const struct arp_addr *ad = find(a->c, ip);

        return ad != NULL ? ad->state : ARP_ADDR_NONE;
}

/* ---- time ---- */

nstime arp_addr_deadline(const struct arp_cache *c)
{
        nstime at = NSTIME_NEVER;

        for (uint32_t i = 0; i < ARP_ADDRS; i++) {
                const struct arp_addr *ad = &c->addr[i];

                if (ad->state != ARP_ADDR_NONE)
                        at = nstime_min(at, ad->send_now || ad->tell ? 0 : ad->at);
        }
        return at;
}

static void due(struct arp *a, struct arp_addr *ad)
{
        if (ad->state == ARP_ADDR_WAITING) {
                announce(a, ad, true); /* RFC 5227 §2.3: nobody objected */
        } else {
                ad->send_now = 1;
                arp_fence();
                ad->at = NSTIME_NEVER;
        }
}

void arp_addr_expire(struct arp *a, nstime now)
{
        struct arp_cache *c = a->c;

        for (uint32_t i = 0; i < ARP_ADDRS; i++)
                if (c->addr[i].state != ARP_ADDR_NONE && c->addr[i].at <= now)
                        due(a, &c->addr[i]);
}

static void probe_sent(struct arp_cache *c, struct arp_addr *ad, nstime now)
{
        nstime next =
                ARP_PROBE_MIN + (ARP_PROBE_MAX - ARP_PROBE_MIN) * prng_below(&c->rnd, 1024) / 1024;

        if (++ad->sent < ARP_PROBE_NUM)
                ad->at = now + next;
        else
                set_state(ad, ARP_ADDR_WAITING, now + ARP_ANNOUNCE_WAIT);
}

static void announcement_sent(struct arp_addr *ad, nstime now)
{
        if (ad->state != ARP_ADDR_ANNOUNCING)
                return; /* in defence */
        if (++ad->sent < ARP_ANNOUNCE_NUM) {
                ad->at = now + ARP_ANNOUNCE_INTERVAL;
        } else {
                set_state(ad, ARP_ADDR_BOUND, NSTIME_NEVER);
                ad->tell = 1;
        }
}

void arp_addr_sent(struct arp_cache *c, struct arp_addr *ad, nstime now)
{
        if (arp_addr_usable(ad))
                announcement_sent(ad, now);
        else
                probe_sent(c, ad, now);
        arp_fence();
        ad->send_now = 0; /* last: what a death forgets is sent once more */
}

/* The segment may be another one now. An address in use is not probed for again, which would stop
 * everything for seconds; its announcement finds a rival as well. */
void arp_addr_link_up(struct arp *a, nstime now)
{
        struct arp_cache *c = a->c;

        for (uint32_t i = 0; i < ARP_ADDRS; i++) {
                struct arp_addr *ad = &c->addr[i];

                if (arp_addr_usable(ad))
                        announce(a, ad, false);
                else if (ad->state == ARP_ADDR_PROBING || ad->state == ARP_ADDR_WAITING)
                        probe(c, ad, now);
        }
}

/* ---- conflicts ---- */

static void lose(struct arp_cache *c, struct arp_addr *ad, const struct arp_pkt *p)
{
        memcpy(ad->rival, p->sha, c->cfg.ll_len);
        ad->send_now = 0;
        set_state(ad, ARP_ADDR_LOST, NSTIME_NEVER);
        ad->tell = 1;
}

/* RFC 5227 §2.4 (c): addresses are those that the host was configured to have, so it goes on
 * defending them, once in DEFEND_INTERVAL. */
static void defend(struct arp_cache *c, struct arp_addr *ad, const struct arp_pkt *p, nstime now)
{
        if (now - ad->defended < ARP_DEFEND_INTERVAL)
                return;
        memcpy(ad->rival, p->sha, c->cfg.ll_len);
        ad->defended = now;
        ad->send_now = 1;
}

/* RFC 5227 §2.1.1: somebody has it, or somebody else is probing for it too. */
static bool disputes_probe(const struct arp_addr *ad, const struct arp_pkt *p)
{
        return p->spa == ad->ip || (p->op == ARP_REQUEST && p->spa == 0 && p->tpa == ad->ip);
}

static bool conflict_with(struct arp_cache *c, struct arp_addr *ad, const struct arp_pkt *p,
                          nstime now)
{
        if (arp_addr_usable(ad)) {
                if (p->spa != ad->ip)
                        return false;
                defend(c, ad, p, now);
                return true;
        }
        if ((ad->state != ARP_ADDR_PROBING && ad->state != ARP_ADDR_WAITING) ||
            !disputes_probe(ad, p))
                return false;
        c->conflicts++;
        lose(c, ad, p);
        return true;
}

bool arp_addr_conflict(struct arp *a, const struct arp_pkt *p, nstime now)
{
        bool any = false;

        for (uint32_t i = 0; i < ARP_ADDRS; i++)
                any |= conflict_with(a->c, &a->c->addr[i], p, now);
        if (any)
                stop_asking(a, now);
        return any;
}

/* ---- looking in ---- */

bool arp_addr_walk(const struct arp *a, uint32_t i, struct arp_addr *r)
{
        if (i >= ARP_ADDRS || a->c->addr[i].state == ARP_ADDR_NONE)
                return false;
        *r = a->c->addr[i];
        return true;
}

/* ---- consistency ---- */

/* Nothing here is derived; but a death between two stores may have left a state that waits
 * for nothing. */
void arp_addr_recover(struct arp_cache *c, nstime now)
{
        for (uint32_t i = 0; i < ARP_ADDRS; i++) {
                struct arp_addr *ad = &c->addr[i];
                bool waits = ad->state == ARP_ADDR_PROBING || ad->state == ARP_ADDR_WAITING ||
                             ad->state == ARP_ADDR_ANNOUNCING;

                if (waits && !ad->send_now && ad->at == NSTIME_NEVER)
                        ad->at = now;
                if (ad->state == ARP_ADDR_WAITING || ad->state == ARP_ADDR_LOST)
                        ad->send_now = 0;
                if (arp_addr_usable(ad) || ad->state == ARP_ADDR_LOST)
                        ad->tell = 1; /* perhaps again */
        }
}

void arp_addr_check(const struct arp_cache *c)
{
        for (uint32_t i = 0; i < ARP_ADDRS; i++) {
                const struct arp_addr *ad = &c->addr[i];

                if (ad->state == ARP_ADDR_NONE)
                        continue;
                assert(ad->state <= ARP_ADDR_BOUND && arp_unicast(ad->ip) && ad->prefix <= 32);
                assert(ad->sent < MAX(ARP_PROBE_NUM, ARP_ANNOUNCE_NUM));
                if (ad->state == ARP_ADDR_BOUND || ad->state == ARP_ADDR_LOST)
                        assert(ad->at == NSTIME_NEVER);
                else
                        assert(ad->at != NSTIME_NEVER || ad->send_now);
                if (ad->state == ARP_ADDR_WAITING || ad->state == ARP_ADDR_LOST)
                        assert(!ad->send_now);
        }
}
