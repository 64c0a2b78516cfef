/* Sending: numbers, slots, buffers, transmission. See am_int.h for the picture. */
#include <errno.h>

#include "am/am_int.h"
#include "base/checksum.h"

/* ---- slots and buffers ---- */

static void buf_free(struct uam *am, struct am_slot *k)
{
        if (k->buf == 0)
                return;
        am->free_buf[am->nfree++] = k->buf;
        am->reserve += k->reserved;
        k->buf = 0;
}

static void slot_free(struct uam *am, uint32_t i)
{
        buf_free(am, &am->slots[i]);
        am->slots[i].next = am->free_slot;
        am->free_slot = i;
}

/* Not before the provider has read it. */
static void slot_done(struct uam *am, uint32_t i)
{
        struct am_slot *k = &am->slots[i];

        if (k->frag.len == 0 || k->injected) {
                slot_free(am, i);
        } else {
                k->next = am->lingering;
                am->lingering = i;
        }
}

void am_collect(struct uam *am)
{
        uint32_t i = am->lingering;

        am->lingering = 0;
        for (uint32_t at = 0; at < am->nlinks; at++)
                if (am->links[at].l->under_way != 0)
                        ep_collect_injected(am->ep, am->links[at].l);
        while (i != 0) {
                uint32_t next = am->slots[i].next;
                slot_done(am, i);
                i = next;
        }
}

/* There are as many as all windows together need, but some may wait to be injected. 0: none. */
static uint32_t slot_take(struct uam *am)
{
        uint32_t i = am->free_slot;

        if (i != 0) {
                am->free_slot = am->slots[i].next;
                return i;
        }
        return am->used_slots < am->nslots ? ++am->used_slots : 0;
}

/* A buffer for a request leaves those that are set aside for replies. */
static bool buf_take(struct uam *am, struct am_slot *k, bool reply)
{
        if (am->nfree <= (reply ? 0 : am->reserve))
                return false;
        k->reserved = reply && am->reserve > 0;
        am->reserve -= k->reserved;
        k->buf = am->free_buf[--am->nfree];
        return true;
}

bool am_lendable(const struct uam *am, const void *p, size_t len)
{
        uintptr_t at = (uintptr_t)p, base = (uintptr_t)am->seg.base;

        return at >= base && at - base <= am->seg.tx_bytes && len <= am->seg.tx_bytes - (at - base);
}

/* ---- composing ---- */

size_t am_max_lent(const struct am_peer *p, enum am_cat cat, int nargs)
{
        const struct ep_link *l = p->link->l;
        uint32_t head = am_wire_args_len(cat, nargs) +
                        (l->l.tagged ? (uint32_t)sizeof(struct link_tag) : 0);

        return l->l.ch->caps.mtu - head;
}

size_t am_max_payload(const struct am_peer *p, enum am_cat cat, int nargs)
{
        return MIN(am_max_lent(p, cat, nargs), p->am->o.buffer_bytes);
}

/* Header and arguments, with what is acknowledged now. Returns the length. */
static inline uint32_t compose(const struct am_peer *p, const struct am_msg *m, uint16_t seq,
                               struct am_image *img)
{
        const uint64_t head[AM_HDR / 8] = {
                (AM_VERSION << 4 | m->kind) | (uint32_t)(m->nargs << 2 | m->cat) << 8 |
                        (uint32_t)m->id << 16 | (uint64_t)m->flags << 24 | (uint64_t)seq << 32,
                (uint64_t)p->am->o.job << 32,
                p->am->o.rank | (uint64_t)m->len << 32,
        };
        uint32_t at = AM_HDR;

        img->tag = p->tag;
        memcpy(img->bytes, head, sizeof head);
        for (int i = 0; i < m->nargs; i++, at += 8)
                memcpy(img->bytes + at, &m->arg[i], 8);
        if (m->cat >= AM_CAT_LONG) {
                memcpy(img->bytes + at, &m->off, 8);
                memcpy(img->bytes + at + 8, &m->total, 8);
                at += AM_PLACE;
        }
        return at;
}

/* Payload that does not fit into the descriptor: where it is, or copied to a buffer. */
static bool place_payload(struct uam *am, struct am_slot *k, const struct am_msg *m)
{
        if (m->lend && am_lendable(am, m->data, m->len)) {
                k->frag.off = (uint32_t)((const uint8_t *)m->data - am->seg.base);
        } else {
                if (!buf_take(am, k, m->kind == AM_REP))
                        return false;
                k->frag.off = (k->buf - 1) * am->o.buffer_bytes;
                memcpy(am->seg.base + k->frag.off, m->data, m->len);
        }
        k->frag.len = m->len;
        return true;
}

static inline void set_acks(struct am_peer *p, struct am_image *img)
{
        uint32_t ack = p->rx[AM_SEQ_REQ].nxt | (uint32_t)p->rx[AM_SEQ_REP].nxt << 16;

        memcpy(img->bytes + offsetof(struct am_hdr, ack_req), &ack, sizeof ack);
        p->rx[AM_SEQ_REQ].told = p->rx[AM_SEQ_REQ].nxt;
        p->rx[AM_SEQ_REP].told = p->rx[AM_SEQ_REP].nxt;
}

static void set_sum(const struct uam *am, struct am_image *img, uint32_t len,
                    const struct unet_frag *frag)
{
        uint16_t zero = 0;
        uint32_t sum;
        be16 field;

        memcpy(img->bytes + offsetof(struct am_hdr, sum), &zero, sizeof zero);
        sum = csum_partial(img->bytes, len, 0);
        if (frag != NULL && frag->len != 0)
                sum = csum_append(sum, len, csum_partial(am->seg.base + frag->off, frag->len, 0));
        field = csum_finish(sum);
        memcpy(img->bytes + offsetof(struct am_hdr, sum), &field, sizeof field);
}

/* ---- transmitting ---- */

static inline bool transmit_short(struct am_peer *p, struct am_image *img, uint32_t len)
{
        set_acks(p, img);
        if (unlikely(p->csum))
                set_sum(p->am, img, len, NULL);
        return am_link_send(p->link, img, len);
}

static bool transmit_slot(struct am_peer *p, struct am_slot *k)
{
        struct unet_send msg = {
                .chan = p->chan, .inl_len = (uint16_t)k->len, .nfrags = 1, .inl = k->m.bytes};

        if (k->frag.len == 0)
                return transmit_short(p, &k->m, k->len);
        set_acks(p, &k->m);
        if (unlikely(p->csum))
                set_sum(p->am, &k->m, k->len, &k->frag);
        msg.frag[0] = k->frag;
        msg.injected = &k->injected;
        k->injected = 0;
        if (unet_ep_send(p->am->ep, &msg, 1) == 1)
                return true;
        k->injected = 1;
        return false;
}

/* Gives the provider what has not been given yet, in order. */
static void transmit_new(struct am_peer *p, struct am_tx *x)
{
        bool was = x->stuck;

        while (x->sent != x->nxt && transmit_slot(p, &p->am->slots[x->slot[x->sent & p->am->mask]]))
                x->sent++;
        x->stuck = x->sent != x->nxt;
        if (x->stuck != was)
                p->am->unsent += x->stuck ? 1 : UINT32_MAX;
}

void am_resume(struct am_peer *p)
{
        for (int s = 0; s < AM_SEQS; s++)
                if (p->tx[s].stuck && p->err == 0)
                        transmit_new(p, &p->tx[s]);
}

/* The oldest never is: whatever the peer says, or forgets, a timeout sends it again. */
static bool is_held(const struct am_tx *x, uint16_t seq)
{
        return seq != x->una && x->held >> (uint16_t)(seq - x->una - 1) & 1;
}

void am_repeat(struct am_peer *p, enum am_seq s, uint16_t from, uint16_t to, uint8_t flags)
{
        const struct am_tx *x = &p->tx[s];

        if ((uint16_t)(to - x->una) > (uint16_t)(x->sent - x->una))
                to = x->sent;
        if (p->link->l->under_way != 0)
                ep_collect_injected(p->am->ep, p->link->l);
        for (; from != to; from++) {
                struct am_slot *k = &p->am->slots[x->slot[from & p->am->mask]];
                if (k->frag.len != 0 && !k->injected)
                        continue; /* it still waits in the send queue */
                if (is_held(x, from))
                        continue;
                k->m.bytes[offsetof(struct am_hdr, flags)] |= flags;
                if (s == p->rtt_of && from == p->rtt_seq)
                        p->rtt_at = 0; /* Karn's rule: RFC 6298 §3 */
                am_count(p->am, UAM_STAT_REPEATED);
                if (!transmit_slot(p, k))
                        return;
        }
}

void am_fill_gaps(struct am_peer *p, enum am_seq s)
{
        const struct am_tx *x = &p->tx[s];
        uint16_t n = x->held != 0 ? (uint16_t)(64 - __builtin_clzll(x->held)) : 1;

        if (!p->lossless && x->una != x->sent)
                am_repeat(p, s, x->una, (uint16_t)(x->una + n), 0);
}

void am_control(struct am_peer *p, enum am_kind kind, uint16_t seq)
{
        const uam_arg held[AM_SEQS] = {am_held_bits(p->am, &p->rx[AM_SEQ_REQ]),
                                       am_held_bits(p->am, &p->rx[AM_SEQ_REP])};
        const struct am_msg m = {.kind = kind,
                                 .arg = held,
                                 .nargs = (held[AM_SEQ_REQ] | held[AM_SEQ_REP]) != 0 ? AM_SEQS : 0};
        struct am_image img;
        uint32_t len = compose(p, &m, seq, &img);

        p->ack_now = false;
        transmit_short(p, &img, len);
}

/* ---- a new message ---- */

static inline void number(struct am_peer *p, struct am_tx *x, uint32_t slot)
{
        x->slot[x->nxt & p->am->mask] = slot;
        x->kept += slot != 0;
        x->nxt++;
}

/* Nothing of it is kept. */
static inline int send_unkept(struct am_peer *p, struct am_tx *x, const struct am_msg *m)
{
        struct am_image img;
        uint32_t len = compose(p, m, x->nxt, &img);

        if (m->len != 0)
                memcpy(img.bytes + len, m->data, m->len);
        if (unlikely(!transmit_short(p, &img, len + m->len)))
                return -EAGAIN;
        x->sent = ++x->nxt; /* its slot is 0 since the number before it there was acknowledged */
        return 0;
}

static uint32_t keep(struct am_peer *p, const struct am_tx *x, const struct am_msg *m, bool fits)
{
        uint32_t i = slot_take(p->am);
        struct am_slot *k = &p->am->slots[i];

        if (i == 0)
                return 0;
        k->injected = 1;
        k->buf = 0;
        k->frag.len = 0;
        k->reserved = false;
        k->event = m->event;
        k->len = compose(p, m, x->nxt, &k->m);
        if (fits) {
                if (m->len != 0)
                        memcpy(k->m.bytes + k->len, m->data, m->len);
                k->len += m->len;
        } else if (!place_payload(p->am, k, m)) {
                slot_free(p->am, i);
                return 0;
        }
        return i;
}

static int send_kept(struct am_peer *p, struct am_tx *x, const struct am_msg *m, bool fits)
{
        uint32_t i = keep(p, x, m, fits);

        if (i == 0)
                return -EAGAIN;
        if (p->lossless && !transmit_slot(p, &p->am->slots[i])) {
                slot_free(p->am, i);
                return -EAGAIN;
        }
        if (p->lossless && m->event == NULL) {
                x->sent = ++x->nxt; /* it waits for nothing but to be injected */
                slot_done(p->am, i);
                return 0;
        }
        number(p, x, i);
        if (p->lossless)
                x->sent = x->nxt;
        else
                transmit_new(p, x);
        return 0;
}

/* The usual case, with nothing to decide. */
int am_send_short(struct am_peer *p, enum am_kind kind, unsigned id, const uam_arg *arg, int nargs)
{
        struct am_tx *x = &p->tx[kind];
        struct am_image img;
        uint64_t head[2];
        uint32_t at = AM_HDR;

        if (unlikely(!p->lossless || p->csum)) {
                const struct am_msg m = {
                        .kind = kind, .id = (uint8_t)id, .nargs = nargs, .arg = arg};
                return am_send(p, &m);
        }
        head[0] = (AM_VERSION << 4 | kind) | (uint32_t)nargs << 10 | id << 16 |
                  (uint64_t)x->nxt << 32 | (uint64_t)p->rx[AM_SEQ_REQ].nxt << 48;
        head[1] = p->rx[AM_SEQ_REP].nxt | (uint64_t)p->am->o.job << 32;
        img.tag = p->tag;
        memcpy(img.bytes, head, sizeof head);
        memcpy(img.bytes + sizeof head, &(uint64_t){p->am->o.rank}, 8);
        for (int i = 0; i < nargs; i++, at += 8)
                memcpy(img.bytes + at, &arg[i], 8);
        if (unlikely(!am_link_send(p->link, &img, at)))
                return -EAGAIN;
        p->rx[AM_SEQ_REQ].told = p->rx[AM_SEQ_REQ].nxt;
        p->rx[AM_SEQ_REP].told = p->rx[AM_SEQ_REP].nxt;
        x->sent = ++x->nxt;
        return 0;
}

int am_send(struct am_peer *p, const struct am_msg *m)
{
        struct am_tx *x = &p->tx[m->kind];
        bool fits = am_wire_args_len(m->cat, m->nargs) + m->len <= AM_INLINE;
        int err;

        if (likely(p->lossless && fits && m->event == NULL))
                return send_unkept(p, x, m);
        err = send_kept(p, x, m, fits);
        if (err == -EAGAIN) {
                am_collect(p->am);
                err = send_kept(p, x, m, fits);
        }
        if (err == 0 && !p->lossless)
                am_start_timer(p, (enum am_seq)m->kind);
        return err;
}

/* ---- acknowledged ---- */

static void complete(struct uam *am, uint32_t i, int err)
{
        struct uam_event *e = am->slots[i].event;

        if (e != NULL) {
                e->left--;
                if (e->err == 0)
                        e->err = err;
        }
        slot_done(am, i);
}

static void acked_slots(struct am_peer *p, struct am_tx *x, uint16_t ack, int err)
{
        for (; x->una != ack; x->una++, x->held >>= 1) {
                uint32_t *slot = &x->slot[x->una & p->am->mask];
                if (*slot != 0) {
                        complete(p->am, *slot, err);
                        x->kept--;
                }
                *slot = 0;
        }
}

void am_acked(struct am_peer *p, enum am_seq s, uint16_t ack)
{
        struct am_tx *x = &p->tx[s];

        if (unlikely((uint16_t)(ack - x->una) > (uint16_t)(x->sent - x->una)))
                return;     /* an old one, overtaken; or a lie, which harms who tells it */
        if (x->kept == 0) { /* lossless */
                x->una = ack;
                return;
        }
        if (!p->lossless)
                am_progress(p, s, ack);
        acked_slots(p, x, ack, 0);
}

void am_answered(struct am_peer *p, enum am_seq s, bool missed)
{
        struct am_tx *x = &p->tx[s];

        if (x->recovering && missed && (int16_t)(x->recover - x->una) > 0)
                am_repeat(p, s, x->una, x->recover, 0);
        x->recovering = false;
}

void am_drop_sent(struct am_peer *p, int err)
{
        for (int s = 0; s < AM_SEQS; s++) {
                struct am_tx *x = &p->tx[s];
                p->am->unsent -= x->stuck;
                x->stuck = false;
                acked_slots(p, x, x->nxt, err);
                x->sent = x->nxt;
        }
}
