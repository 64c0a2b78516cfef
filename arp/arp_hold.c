/*
 * Packets that wait until their neighbour answers: copies, in parts of a small pool. RFC 1122
 * §2.3.2.2.
 *
 * Each entry has a queue of its own; one more list goes through all packets in order of age, so
 * that the oldest of any neighbour can give way. The oldest of all is always the first of its
 * entry.
 */
#include "arp/arp_cache.h"

#include <errno.h>

#define AGE offsetof(struct arp_part, age)

/* ---- leaving ---- */

static void free_parts(struct arp_cache *c, uint32_t i)
{
        while (i != 0) {
                uint32_t more = c->part[i].more;

                pool_free(&c->parts, i);
                i = more;
        }
}

void arp_hold_pop(struct arp_cache *c, struct arp_entry *e)
{
        uint32_t i = e->held;

        e->held = c->part[i].next;
        if (e->held == 0) {
                e->held_last = 0;
                arp_owe(c, e, e->owes & (uint8_t)~ARP_OWES_HELD);
        }
        e->held_pkts--;
        e->held_bytes -= c->part[i].len;
        arp_list_remove(&c->held, &c->parts, AGE, i);
        free_parts(c, i);
}

void arp_hold_drop(struct arp *a, struct arp_entry *e, enum drop why)
{
        while (e->held != 0) {
                count_drop(a->cnt, why);
                arp_hold_pop(a->c, e);
        }
}

static void make_room(struct arp *a, struct arp_entry *e, uint32_t len, uint32_t parts)
{
        struct arp_cache *c = a->c;

        while (e->held_pkts >= ARP_HOLD_PKTS ||
               (e->held != 0 && e->held_bytes + len > ARP_HOLD_BYTES)) {
                count_drop(a->cnt, DROP_ARP_REPLACED);
                arp_hold_pop(c, e);
        }
        while (pool_room(&c->parts) < parts) {
                count_drop(a->cnt, DROP_ARP_FULL);
                arp_hold_pop(c, &c->entry[c->part[c->held.head].entry]);
        }
}

/* ---- entering ---- */

/* A packet's bytes, in two pieces. */
struct pieces {
        const uint8_t *head, *body;
        uint32_t head_len, body_len;
};

/* Copies up to n bytes from the front. */
static uint32_t take(struct pieces *p, uint8_t *to, uint32_t n)
{
        uint32_t h = MIN(n, p->head_len), b = MIN(n - h, p->body_len);

        if (h != 0)
                memcpy(to, p->head, h);
        if (b != 0)
                memcpy(to + h, p->body, b);
        p->head += h;
        p->head_len -= h;
        p->body += b;
        p->body_len -= b;
        return h + b;
}

/* Copies all into a chain of parts, for which there is room. */
static uint32_t copy_parts(struct arp_cache *c, struct pieces *p)
{
        uint32_t first = 0, last = 0;

        while (p->head_len + p->body_len != 0) {
                uint32_t i = pool_alloc(&c->parts);

                take(p, c->part[i].byte, ARP_PART_BYTES);
                c->part[i].more = 0;
                if (first == 0)
                        first = i;
                else
                        c->part[last].more = i;
                last = i;
        }
        return first;
}

static void append(struct arp_cache *c, struct arp_entry *e, uint32_t i, uint32_t len)
{
        struct arp_part *p = &c->part[i];

        p->entry = arp_index(c, e);
        p->len = len;
        p->next = 0;
        arp_list_push(&c->held, &c->parts, AGE, i);
        if (e->held == 0)
                e->held = i;
        else
                c->part[e->held_last].next = i;
        e->held_last = i;
        e->held_pkts++;
        e->held_bytes += len;
}

int arp_hold(struct arp *a, struct arp_ref ref, const void *head, uint32_t head_len,
             const void *body, uint32_t body_len)
{
        struct pieces p = {head, body, head_len, body_len};
        struct arp_entry *e = arp_at(a, ref.index);
        uint32_t len = head_len + body_len, parts = (len + ARP_PART_BYTES - 1) / ARP_PART_BYTES;

        static_assert(ARP_PARTS > 65535 / ARP_PART_BYTES + 1, "the largest packet fits");
        assert(len != 0);
        if (len > 65535)
                return -EMSGSIZE;
        if (e->gen != ref.gen || e->state != ARP_INCOMPLETE)
                return -ENOENT;
        make_room(a, e, len, parts);
        append(a->c, e, copy_parts(a->c, &p), len);
        return 0;
}

void arp_held_copy(const struct arp *a, const struct arp_out *out, uint8_t *to)
{
        uint32_t left = out->len;

        for (uint32_t i = out->part; left != 0; i = a->c->part[i].more) {
                uint32_t n = MIN(left, ARP_PART_BYTES);

                memcpy(to, a->c->part[i].byte, n);
                to += n;
                left -= n;
        }
}
