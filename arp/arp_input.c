/*
 * ARP input. RFC 826 "Packet Reception", with what RFC 1122 §2.3.2 and RFC 5227 §2 add, and what
 * thirty years of forged packets have taught.
 *
 * arp_input() -> parse() -> check_sender() -> arp_addr_conflict() -> merge() -> answer()
 */
#include "arp/arp_cache.h"

#include "base/planted.h"

/* Reads the packet; what follows it is padding of the link. */
static enum drop parse(const struct arp_config *cfg, const uint8_t *p, size_t n,
                       struct arp_pkt *pkt)
{
        struct arp_hdr h;
        size_t ll = cfg->ll_len;

        if (n < sizeof h)
                return DROP_ARP_SHORT;
        memcpy(&h, p, sizeof h);
        if (be16_get(h.hrd) != cfg->hrd || be16_get(h.pro) != ARP_PRO_IPV4 || h.hln != ll ||
            h.pln != 4)
                return DROP_ARP_FORMAT;
        if (CHECKED(n < sizeof h + 2 * (ll + 4)))
                return DROP_ARP_SHORT;
        pkt->op = be16_get(h.op);
        if (pkt->op != ARP_REQUEST && pkt->op != ARP_REPLY)
                return DROP_ARP_FORMAT;
        pkt->sha = p + sizeof h;
        pkt->spa = be32_at(pkt->sha + ll);
        pkt->tha = pkt->sha + ll + 4;
        pkt->tpa = be32_at(pkt->tha + ll);
        return DROP_NONE;
}

static bool all_zero(const uint8_t *p, size_t n)
{
        uint8_t any = 0;

        while (n-- > 0)
                any |= *p++;
        return any == 0;
}

/* A sender is no broadcast, null or group address. Its IP address is a host's, or 0.0.0.0 in a
 * request (a probe). */
static enum drop check_sender(const struct arp_cache *c, const struct arp_pkt *pkt)
{
        const struct arp_config *cfg = &c->cfg;

        if (memcmp(pkt->sha, cfg->ll_addr, cfg->ll_len) == 0)
                return DROP_ARP_OWN;
        if (all_zero(pkt->sha, cfg->ll_len) || memcmp(pkt->sha, cfg->ll_all, cfg->ll_len) == 0)
                return DROP_ARP_SENDER;
        if (cfg->ll_len == 6 && pkt->sha[0] & 1)
                return DROP_ARP_SENDER;
        if (pkt->spa == 0)
                return pkt->op == ARP_REQUEST ? DROP_NONE : DROP_ARP_SENDER;
        if (!arp_unicast(pkt->spa) || arp_addr_broadcast(c, pkt->spa))
                return DROP_ARP_SENDER;
        return DROP_NONE;
}

/* ---- what is learnt ---- */

/* RFC 826: an entry that exists takes the sender's address, before the operation is looked at. An
 * answer that we asked for proves that packets go both ways; anything else only says where it
 * claims to be. */
static enum drop merge(struct arp *a, struct arp_entry *e, const struct arp_pkt *pkt, nstime now)
{
        bool known = arp_known(e),
             asked = e->asked != 0 && now - e->asked_at < 2 * ARP_REQUEST_INTERVAL;
        bool same = known && memcmp(e->ll[e->cur & 1], pkt->sha, a->c->cfg.ll_len) == 0;

        if (e->state == ARP_STATIC)
                return same ? DROP_NONE : DROP_ARP_STATIC;
        if (!same && known && now < e->learnt + a->c->cfg.lock_time)
                /* Two that fight for an address move it once a second and not with each packet. */
                return DROP_ARP_FLIP;
        if (!same)
                arp_learn(a, e, pkt->sha, now);
        if (asked && pkt->op == ARP_REPLY && arp_addr_ours(a->c, pkt->tpa))
                arp_set_state(a, e, ARP_REACHABLE, now);
        else if (e->state == ARP_INCOMPLETE && e->used)
                /* Packets that wait are sent there, and the neighbour is polled if nothing confirms
                 * it. */
                arp_set_state(a, e, ARP_DELAY, now);
        else if (!same)
                arp_set_state(a, e, ARP_STALE, now);
        return DROP_NONE;
}

/* RFC 826: who asks for us will soon be sent to. Only hosts of our own network: no other is ever
 * a neighbour. */
static void learn_asker(struct arp *a, const struct arp_pkt *pkt, nstime now)
{
        struct arp_entry *e;

        if (pkt->spa == 0 || !arp_addr_onlink(a->c, pkt->spa))
                return;
        e = arp_make(a, pkt->spa, false, now);
        if (e == NULL) {
                count_drop(a->cnt, DROP_ARP_FULL);
                return;
        }
        arp_learn(a, e, pkt->sha, now);
        arp_set_state(a, e, ARP_STALE, now);
}

/* ---- what is answered ---- */

/* Neighbours that we exchange packets with have a bucket of their own: a flood from strangers does
 * not cut them off. */
static enum drop answer(struct arp *a, const struct arp_pkt *pkt, bool friend, nstime now)
{
        struct arp_cache *c = a->c;
        nstime *bucket = friend ? &c->reply_full_at : &c->stranger_full_at;
        struct arp_reply *r = &c->reply[c->reply_tail % ARP_REPLIES];

        if (c->reply_tail - c->reply_head == ARP_REPLIES || arp_bucket_next(*bucket) > now)
                return DROP_ARP_RATE;
        arp_bucket_take(bucket, now);
        r->from = pkt->tpa;
        r->to = pkt->spa;
        memcpy(r->ll, pkt->sha, c->cfg.ll_len);
        arp_fence();
        c->reply_tail++;
        return DROP_NONE;
}

enum drop arp_input(struct arp *a, const uint8_t *p, size_t n, nstime now)
{
        struct arp_entry *e;
        struct arp_pkt pkt;
        enum drop why;

        count(a->cnt, COUNT_ARP_IN);
        why = parse(&a->c->cfg, p, n, &pkt);
        if (why == DROP_NONE)
                why = check_sender(a->c, &pkt);
        if (why != DROP_NONE)
                return why;
        if (arp_addr_conflict(a, &pkt, now))
                return DROP_ARP_CONFLICT;
        e = pkt.spa != 0 ? arp_find(a->c, pkt.spa) : NULL;
        if (e != NULL)
                why = merge(a, e, &pkt, now);
        if (pkt.op == ARP_REPLY)
                return e == NULL ? DROP_ARP_UNSOLICITED : why;
        if (!arp_addr_ours(a->c, pkt.tpa))
                return e == NULL ? DROP_ARP_NOT_OURS : why;
        if (e == NULL)
                learn_asker(a, &pkt, now);
        return answer(a, &pkt, e != NULL && e->used && why == DROP_NONE, now);
}
