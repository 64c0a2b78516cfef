/*
 * What ARP sends, and which waiting packets go. RFC 826, RFC 5227 §2.
 *
 * arp_output() looks for the first thing owed, in this order: probes and announcements, news of our
 * addresses, replies, then entry by entry waiting packets and requests. arp_output_done() strikes
 * it out.
 */
#include "arp/arp_cache.h"

/* arp_out.slot: what it came from, and which one. */
enum { FROM_ADDR, FROM_REPLY, FROM_ENTRY, FROM_SHIFT = 16 };

static uint32_t slot_of(uint32_t from, uint32_t i)
{
        return from << FROM_SHIFT | i;
}

/* An ARP packet from us; `tha` NULL: not known, zeros. */
static void write_pkt(const struct arp_config *cfg, struct arp_out *out, uint16_t op, uint32_t spa,
                      const uint8_t *tha, uint32_t tpa)
{
        struct arp_hdr h = {be16_of(cfg->hrd), be16_of(ARP_PRO_IPV4), cfg->ll_len, 4, be16_of(op)};
        uint8_t *p = out->pkt;

        memcpy(p, &h, sizeof h);
        p += sizeof h;
        memcpy(p, cfg->ll_addr, cfg->ll_len);
        be32_put(p + cfg->ll_len, spa);
        p += cfg->ll_len + 4;
        if (tha != NULL)
                memcpy(p, tha, cfg->ll_len);
        else
                memset(p, 0, cfg->ll_len);
        be32_put(p + cfg->ll_len, tpa);
        p += cfg->ll_len + 4;
        out->what = ARP_OUT_SEND;
        out->len = (uint32_t)(p - out->pkt);
}

static void send_to(struct arp_out *out, const struct arp_config *cfg, const uint8_t *ll)
{
        memcpy(out->to, ll, cfg->ll_len);
}

/* ---- our addresses ---- */

/* RFC 5227 §1.1: a probe asks from 0.0.0.0; an announcement is the same with both
 * addresses ours. */
static bool addr_output(const struct arp_cache *c, struct arp_out *out)
{
        for (uint32_t i = 0; i < ARP_ADDRS; i++) {
                const struct arp_addr *ad = &c->addr[i];

                if (ad->state == ARP_ADDR_NONE || (!ad->send_now && !ad->tell))
                        continue;
                out->ip = ad->ip;
                out->slot = slot_of(FROM_ADDR, i);
                out->addr_state = ad->state;
                out->what = ARP_OUT_ADDR;
                if (ad->send_now) {
                        write_pkt(&c->cfg, out, ARP_REQUEST, arp_addr_usable(ad) ? ad->ip : 0, NULL,
                                  ad->ip);
                        send_to(out, &c->cfg, c->cfg.ll_all);
                }
                return true;
        }
        return false;
}

/* ---- replies ---- */

static bool reply_output(const struct arp_cache *c, struct arp_out *out)
{
        const struct arp_reply *r = &c->reply[c->reply_head % ARP_REPLIES];

        if (c->reply_head == c->reply_tail)
                return false;
        write_pkt(&c->cfg, out, ARP_REPLY, r->from, r->ll, r->to);
        send_to(out, &c->cfg, r->ll);
        out->ip = r->to;
        out->slot = slot_of(FROM_REPLY, 0);
        return true;
}

/* ---- entries ---- */

static void held_output(const struct arp_cache *c, const struct arp_entry *e, struct arp_out *out)
{
        out->what = arp_known(e) ? ARP_OUT_RELEASE : ARP_OUT_UNREACHABLE;
        out->part = e->held;
        out->len = c->part[e->held].len;
        if (arp_known(e))
                send_to(out, &c->cfg, e->ll[e->cur & 1]);
}

/* RFC 1122 §2.3.2.1 (2): a poll goes to the neighbour alone. */
static void request_output(const struct arp_cache *c, const struct arp_entry *e,
                           struct arp_out *out)
{
        write_pkt(&c->cfg, out, ARP_REQUEST, arp_addr_source(c, e->ip), NULL, e->ip);
        send_to(out, &c->cfg, e->state == ARP_PROBE ? e->ll[e->cur & 1] : c->cfg.ll_all);
}

static bool entry_output(const struct arp_cache *c, struct arp_out *out)
{
        const struct arp_entry *e = &c->entry[c->due.head];

        if (c->due.head == 0)
                return false;
        out->ip = e->ip;
        out->slot = slot_of(FROM_ENTRY, c->due.head);
        if (e->owes & ARP_OWES_HELD)
                held_output(c, e, out);
        else
                request_output(c, e, out);
        return true;
}

/* ---- all of it ---- */

bool arp_output(const struct arp *a, struct arp_out *out)
{
        out->what = ARP_OUT_NONE;
        return addr_output(a->c, out) || reply_output(a->c, out) || entry_output(a->c, out);
}

static void addr_done(struct arp *a, struct arp_addr *ad, const struct arp_out *out, nstime now)
{
        if (out->what == ARP_OUT_ADDR) {
                ad->tell = 0;
                return;
        }
        count(a->cnt, COUNT_ARP_ANNOUNCE);
        arp_addr_sent(a->c, ad, now);
}

static void entry_done(struct arp *a, struct arp_entry *e, const struct arp_out *out, nstime now)
{
        if (out->what == ARP_OUT_SEND) {
                count(a->cnt, COUNT_ARP_REQUEST);
                arp_asked(a, e, now);
                return;
        }
        if (out->what == ARP_OUT_UNREACHABLE)
                count_drop(a->cnt, DROP_ARP_UNREACHABLE);
        arp_hold_pop(a->c, e);
}

void arp_output_done(struct arp *a, const struct arp_out *out, nstime now)
{
        uint32_t i = out->slot & ((1u << FROM_SHIFT) - 1);

        switch (out->slot >> FROM_SHIFT) {
        case FROM_ADDR:
                addr_done(a, &a->c->addr[i], out, now);
                break;
        case FROM_REPLY:
                count(a->cnt, COUNT_ARP_REPLY);
                a->c->reply_head++;
                break;
        default:
                entry_done(a, &a->c->entry[i], out, now);
        }
}
