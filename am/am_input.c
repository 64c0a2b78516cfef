/*
 * Receiving, in this order (§5.1 of the paper; the reasons stand at the steps):
 *
 *   am_receive() -> from_link() -> input(): header, checksum, acknowledgements, then by kind:
 *           take_numbered(): in order? -> deliver(): handler -> reply    (or a duplicate, or a gap)
 *   uam_poll() -> am_receive(), and when nothing came: acknowledgements owed, timers
 */
#include <errno.h>
#include <stdlib.h>

#include "am/am_int.h"
#include "base/checksum.h"
#include "base/planted.h"

#define TICK_POLLS 8u    /* polls in vain between two looks at the clock */
#define LOOK_POLLS 4096u /* and between two looks for hung-up peers */
/* What is missing is asked for when so many came before it: RFC 5681 §3.2. */
#define OVERTAKEN 3u

/* ---- acknowledging ---- */

static void owe(struct am_peer *p)
{
        if (p->owing)
                return;
        p->owing = true;
        p->next_owing = p->am->owing;
        p->am->owing = p;
}

static bool owes(const struct am_peer *p)
{
        return p->ack_now || p->answer != 0 || p->rx[AM_SEQ_REQ].told != p->rx[AM_SEQ_REQ].nxt ||
               (!p->lossless && p->rx[AM_SEQ_REP].told != p->rx[AM_SEQ_REP].nxt);
}

static void acknowledge(struct am_peer *p)
{
        am_count(p->am, UAM_STAT_ACKS);
        am_control(p, AM_ACK, p->answer);
        p->answer = 0;
        am_link_flush(p->link);
}

/* Acknowledgements that no message carried meanwhile. */
static void pay(struct uam *am)
{
        struct am_peer *p = am->owing;

        am->owing = NULL;
        while (p != NULL) {
                struct am_peer *next = p->next_owing;
                p->owing = false;
                if (p->err == 0 && owes(p))
                        acknowledge(p);
                p = next;
        }
}

/* ---- delivering ---- */

void am_pieces_copy(const struct am_pieces *d, uint8_t *to)
{
        for (int i = 0; i < d->n; to += d->len[i], i++)
                if (d->len[i] != 0)
                        memcpy(to, d->ptr[i], d->len[i]);
}

static_assert(UAM_REQUEST << AM_REP == UAM_REPLY && UAM_SHORT << AM_CAT_MEDIUM == UAM_MEDIUM &&
                      UAM_SHORT << AM_CAT_LONG == UAM_LONG,
              "bits in the order of the wire's numbers");

static inline unsigned kinds_of(const struct am_pkt *k)
{
        return (unsigned)UAM_REQUEST << k->kind | (unsigned)UAM_SHORT << k->cat;
}

static inline void run(struct am_peer *p, const struct am_pkt *k, void *data, size_t len)
{
        struct uam *am = p->am;
        const struct am_handler *h = &am->handler[k->h.id];
        unsigned kinds = kinds_of(k);

        if (unlikely(h->fn == NULL || (h->kinds & kinds) != kinds)) {
                am_cut_off(p, -EBADRQC);
                return;
        }
        am_count(am, UAM_STAT_HANDLED);
        am->token.peer = p;
        am->token.kind = k->kind;
        am->token.replied = false;
        h->fn(&am->token, k->arg, k->nargs, data, len, h->ctx);
        am->token.peer = NULL;
}

/* In one piece for the handler: where it is, or gathered. */
static void run_medium(struct am_peer *p, const struct am_pkt *k, const struct am_pieces *d)
{
        uint8_t *at = p->am->gather;

        if (d->len[0] == k->h.len)
                at = (uint8_t *)(uintptr_t)d->ptr[0];
        else if (d->len[0] == 0 && d->n == 2)
                at = (uint8_t *)(uintptr_t)d->ptr[1];
        else if (k->h.len <= AM_GATHER)
                am_pieces_copy(d, at);
        else
                at = NULL;
        if (at == NULL)
                am_cut_off(p, -EMSGSIZE);
        else
                run(p, k, at, k->h.len);
}

/* Into the segment; the handler runs for the whole when its last piece is there. */
static void place_long(struct am_peer *p, const struct am_pkt *k, const struct am_pieces *d)
{
        struct uam *am = p->am;
        bool last = k->h.flags & AM_F_LAST;
        uint64_t end = k->off + k->h.len;

        if (k->h.len > am->mem_len || CHECKED(k->off > am->mem_len - k->h.len) ||
            (last && k->total > end)) {
                am_cut_off(p, -ERANGE);
                return;
        }
        if (k->h.len != 0)
                am_pieces_copy(d, am->mem + k->off);
        if (last && k->h.id != AM_ID_NONE)
                run(p, k, am->mem + (end - k->total), k->total);
}

static void deliver(struct am_peer *p, const struct am_pkt *k, const struct am_pieces *d)
{
        switch (k->cat) {
        case AM_CAT_SHORT:
                run(p, k, NULL, 0);
                break;
        case AM_CAT_MEDIUM:
                run_medium(p, k, d);
                break;
        case AM_CAT_LONG:
                place_long(p, k, d);
                break;
        case AM_CAT_GOT:
                if (k->kind != AM_REP || !am_got(p, k, d))
                        am_cut_off(p, -EPROTO);
        }
}

/* ---- numbers ---- */

/* The peer sent it because it has not heard of our acknowledgement, or a copy was made on
 * the way. */
static void duplicate(struct am_peer *p, enum am_seq s, const struct am_pkt *k)
{
        if (k->h.flags & AM_F_ACK)
                p->answer |= (uint8_t)(AM_A_HAD << s);
        am_count(p->am, UAM_STAT_DUPLICATES);
        p->rx[s].patience = (uint16_t)MIN(2u * p->rx[s].patience + 1, p->am->o.window);
        p->ack_now = true;
        owe(p);
}

uint64_t am_held_bits(const struct uam *am, const struct am_rx *r)
{
        uint64_t bits = 0;

        for (uint16_t i = 0; r->nheld != 0 && i + 1u < am->o.window; i++)
                if (r->held[(uint16_t)(r->nxt + 1 + i) & am->mask] != NULL)
                        bits |= 1ull << i;
        return bits;
}

static void forget(struct am_rx *r, struct am_held **at)
{
        free(*at);
        *at = NULL;
        r->nheld--;
}

void am_forget_held(struct am_peer *p)
{
        for (int s = 0; s < AM_SEQS; s++)
                for (uint16_t i = 0; p->rx[s].nheld != 0; i++)
                        if (p->rx[s].held[i] != NULL)
                                forget(&p->rx[s], &p->rx[s].held[i]);
}

/* False: there is no memory for it, or the sender does not keep to its window. */
static bool hold(struct am_peer *p, enum am_seq s, const struct am_pkt *k,
                 const struct am_pieces *d)
{
        struct am_rx *r = &p->rx[s];
        struct am_held **at = &r->held[k->h.seq & p->am->mask], *h;
        uint32_t head = am_wire_args_len(k->cat, k->nargs);

        if ((uint16_t)(k->h.seq - r->nxt) >= p->am->o.window || k->h.len > AM_GATHER)
                return false;
        if (*at != NULL) { /* a copy of it, which may want an answer */
                (*at)->bytes[offsetof(struct am_hdr, flags)] |= k->h.flags & AM_F_ACK;
                return true;
        }
        h = malloc(sizeof *h + MAX(head + k->h.len, AM_WITH_ARGS));
        if (h == NULL)
                return false;
        h->len = head + k->h.len;
        memcpy(h->bytes, k->inl - head, head);
        am_pieces_copy(d, h->bytes + head);
        *at = h;
        r->nheld++;
        return true;
}

/* A gap is told once: what is lost again, a timeout sends. Where it turns out that messages were
 * but overtaken, more of them are waited for. */
static void gap(struct am_peer *p, enum am_seq s, const struct am_pkt *k, const struct am_pieces *d)
{
        struct am_rx *r = &p->rx[s];
        uint16_t window = (uint16_t)p->am->o.window;

        am_count(p->am, UAM_STAT_GAPS);
        if (!hold(p, s, k, d) || r->held[r->nxt & p->am->mask] != NULL ||
            r->nheld < MIN(OVERTAKEN + r->patience, window - 1u) ||
            (uint16_t)(r->nacked - r->nxt - 1) < window)
                return;
        am_count(p->am, UAM_STAT_NACKS);
        r->nacked = (uint16_t)(r->nxt + 65 - __builtin_clzll(am_held_bits(p->am, r)));
        am_control(p, s == AM_SEQ_REQ ? AM_NACK_REQ : AM_NACK_REP, 0);
}

/* Returns true if a reply to one more request has a place: see "Replies need no window" in
 * am_int.h. */
static bool reply_has_place(const struct am_peer *p)
{
        const struct am_tx *x = &p->tx[AM_SEQ_REP];

        return p->lossless || (uint16_t)(x->nxt - x->una) < p->am->o.window;
}

static void out_of_order(struct am_peer *p, enum am_seq s, const struct am_pkt *k,
                         const struct am_pieces *d)
{
        if (p->lossless)
                am_cut_off(p, -EPROTO);
        else if ((int16_t)(k->h.seq - p->rx[s].nxt) < 0)
                duplicate(p, s, k);
        else
                gap(p, s, k, d);
}

/* The next request can run, or is held until it can; then a copy of it may come first. */
static bool runs_now(struct am_peer *p, const struct am_pkt *k, const struct am_pieces *d)
{
        struct am_rx *r = &p->rx[AM_SEQ_REQ];
        struct am_held **at = &r->held[r->nxt & p->am->mask];

        if (unlikely(!reply_has_place(p))) {
                am_count(p->am, UAM_STAT_NO_PLACE);
                hold(p, AM_SEQ_REQ, k, d);
                return false;
        }
        if (unlikely(r->nheld != 0 && *at != NULL))
                forget(r, at);
        return true;
}

static inline bool in_order(struct am_peer *p, enum am_seq s, const struct am_pkt *k,
                            const struct am_pieces *d)
{
        struct am_rx *r = &p->rx[s];

        if (unlikely(k->h.seq != r->nxt)) {
                out_of_order(p, s, k, d);
                return false;
        }
        if (s == AM_SEQ_REQ && !p->lossless && !runs_now(p, k, d))
                return false;
        r->nxt++;
        return true;
}

static inline void take_numbered(struct am_peer *p, const struct am_pkt *k,
                                 const struct am_pieces *d)
{
        enum am_seq s = (enum am_seq)k->kind;

        if (!in_order(p, s, k, d))
                return;
        if (unlikely(k->h.flags & AM_F_ACK)) {
                p->rx[s].patience /= 2; /* it was missing for long */
                p->answer |= (uint8_t)(AM_A_MISSED << s);
                p->ack_now = true;
                owe(p);
        }
        deliver(p, k, d);
        if (p->rx[s].told != p->rx[s].nxt && (s == AM_SEQ_REQ || !p->lossless)) {
                if ((uint16_t)(p->rx[s].nxt - p->rx[s].told) >= p->am->ack_every && p->err == 0)
                        acknowledge(p);
                else
                        owe(p);
        }
}

/* What was held and is next, as long as there is a place for a reply to it. */
static bool next_held(struct am_peer *p, enum am_seq s, struct am_pkt *k, struct am_pieces *d)
{
        struct am_rx *r = &p->rx[s];
        struct am_held **at = &r->held[r->nxt & p->am->mask];
        bool is = *at != NULL && (s == AM_SEQ_REP || reply_has_place(p));

        if (is) {
                memcpy(p->am->gather, (*at)->bytes, (*at)->len);
                is = am_wire_parse(p->am->gather, (*at)->len, 0, k);
                *d = (struct am_pieces){.n = 1, .ptr = {k->inl}, .len = {k->inl_len}};
                forget(r, at);
        }
        return is;
}

static void take_held(struct am_peer *p)
{
        struct am_pkt k;
        struct am_pieces d;

        for (int s = 0; s < AM_SEQS; s++)
                while (p->rx[s].nheld != 0 && next_held(p, (enum am_seq)s, &k, &d))
                        take_numbered(p, &k, &d);
}

/* ---- one message ---- */

static bool sum_right(const struct unet_rx *rx, uint32_t skip, const struct am_pieces *d)
{
        uint32_t at = rx->inl_len - skip, sum = csum_partial(rx->inl + skip, at, 0);

        for (int i = 1; i < d->n; at += d->len[i], i++)
                sum = csum_append(sum, at, csum_partial(d->ptr[i], d->len[i], 0));
        return csum_finish(sum).raw == 0;
}

/* Acknowledgements come before the handler: it may reply, and the place for that may be the one
 * they free. */
static void take_acks(struct am_peer *p, const struct am_hdr *h)
{
        if (h->ack_req != p->tx[AM_SEQ_REQ].una)
                am_acked(p, AM_SEQ_REQ, h->ack_req);
        if (h->ack_rep != p->tx[AM_SEQ_REP].una)
                am_acked(p, AM_SEQ_REP, h->ack_rep);
}

/* What the peer holds, counted from what it acknowledges; an older message says nothing. */
static void take_held_bits(struct am_peer *p, const struct am_pkt *k)
{
        for (int s = 0; s < AM_SEQS && k->nargs == AM_SEQS; s++) {
                struct am_tx *x = &p->tx[s];
                uint16_t on = (uint16_t)((s == AM_SEQ_REQ ? k->h.ack_req : k->h.ack_rep) - x->una);
                if (on <= (uint16_t)(x->sent - x->una) && on < 64)
                        x->held = k->arg[s] << on;
        }
}

/* Where messages are lost, who leaves says so until we say that we know; unless we leave
 * as well. */
static void take_bye(struct am_peer *p, int err)
{
        p->left = err == 0;
        am_peer_ends(p, err);
        if (p->left && !p->lossless && !p->am->closing)
                am_control(p, AM_BYE, 0);
}

static void take_control(struct am_peer *p, const struct am_pkt *k)
{
        switch (k->kind) {
        case AM_NACK_REQ:
                am_fill_gaps(p, AM_SEQ_REQ);
                break;
        case AM_NACK_REP:
                am_fill_gaps(p, AM_SEQ_REP);
                break;
        case AM_BYE:
                take_bye(p, -(int)MIN(k->h.seq, 4095));
                break;
        default:
                for (int s = 0; s < AM_SEQS; s++)
                        if (k->h.seq >> s & (AM_A_MISSED | AM_A_HAD))
                                am_answered(p, (enum am_seq)s, k->h.seq >> s & AM_A_MISSED);
                break;
        }
}

static void input(struct am_peer *p, const struct unet_rx *rx, uint32_t skip)
{
        struct uam *am = p->am;
        struct am_pkt k;
        struct am_pieces d;
        uint64_t more = am_link_pieces(p->link, rx, &d);

        if (unlikely(p->csum && !sum_right(rx, skip, &d))) {
                am_count(am, UAM_STAT_CHECKSUM);
                return;
        }
        if (unlikely(more > UINT32_MAX ||
                     !am_wire_parse(rx->inl + skip, rx->inl_len - skip, (uint32_t)more, &k))) {
                am_count(am, UAM_STAT_MALFORMED);
                return;
        }
        if (unlikely(k.h.job != am->o.job || k.h.rank != p->rank)) {
                am_count(am, UAM_STAT_STRAYS);
                return;
        }
        if (unlikely(p->err != 0)) {
                if (p->left && k.kind == AM_BYE)
                        take_bye(p, 0);
                return;
        }
        d.ptr[0] = k.inl;
        d.len[0] = k.inl_len;
        p->heard = true;
        if (unlikely(k.kind > AM_REP && !p->lossless))
                take_held_bits(p, &k);
        if (k.kind != AM_BYE || k.h.seq == 0) /* what broke the rules is acknowledged to nobody */
                take_acks(p, &k.h);
        if (unlikely(k.kind > AM_REP))
                take_control(p, &k);
        else
                take_numbered(p, &k, &d);
        if (unlikely(p->rx[AM_SEQ_REQ].nheld + p->rx[AM_SEQ_REP].nheld != 0))
                take_held(p);
}

/* ---- links ---- */

static struct am_peer *peer_by_tag(const struct uam *am, const struct am_link *k,
                                   const struct unet_rx *rx)
{
        struct link_tag tag;
        uint32_t chan;

        if (rx->inl_len < sizeof tag)
                return NULL;
        memcpy(&tag, rx->inl, sizeof tag);
        chan = ep_chan_by_tag(am->ep, k->at, tag.tag);
        return chan < am->nchans ? am->by_chan[chan] : NULL;
}

static int from_link(struct uam *am, struct am_link *k)
{
        int n = am_link_recv(k, am->rx, AM_BATCH);

        for (int i = 0; i < n; i++) {
                const struct unet_rx *rx = &am->rx[i];
                struct am_peer *p = k->peer;
                uint32_t skip = 0;

                if (unlikely(p == NULL)) {
                        p = peer_by_tag(am, k, rx);
                        skip = sizeof(struct link_tag);
                }
                if (likely(p != NULL))
                        input(p, rx, skip);
                else
                        am_count(am, UAM_STAT_STRAYS);
                am_link_release(k, rx);
        }
        if (n > 0)
                am_link_flush(k);
        return n;
}

/* One batch of each link: a peer that sends without end holds nobody up. */
int am_receive(struct uam *am)
{
        int n = 0;

        for (uint32_t i = 0; i < am->nlinks; i++)
                n += from_link(am, &am->links[i]);
        return n;
}

/* ---- polling ---- */

static void look_for_gone(struct uam *am)
{
        unet_ep_wait(am->ep, UNET_CLOSED, 0); /* hang-ups are told by a descriptor */
        for (uint32_t r = 0; r <= am->o.ranks; r++) {
                struct am_peer *p = am->peer[r];
                if (p == NULL || p->err != 0 || !am_link_gone(am->ep, p->link, p->chan))
                        continue;
                while (from_link(am, p->link) > 0) /* what it sent before it went */
                        ;
                if (p->err == 0)
                        am_peer_ends(p, -EPIPE);
        }
}

static void resume(struct uam *am)
{
        for (uint32_t r = 0; r <= am->o.ranks; r++)
                if (am->peer[r] != NULL) {
                        am_resume(am->peer[r]);
                        am_link_flush(am->peer[r]->link);
                }
}

void am_idle(struct uam *am, bool look)
{
        pay(am);
        if (am->unsent != 0)
                resume(am);
        if (am->lingering != 0)
                am_collect(am);
        if (am->timed != NULL && (look || am->idle % TICK_POLLS == 0))
                am_tick(am);
        if ((look || am->idle % LOOK_POLLS == LOOK_POLLS - 1) && am->time.sleep == NULL)
                look_for_gone(am);
        am->idle++;
}

int uam_poll(struct uam *am)
{
        int n;

        if (unlikely(am->token.peer != NULL))
                return -EDEADLK;
        n = am_receive(am);
        am->polled = true;
        if (n == 0)
                am_idle(am, false);
        else
                am->idle = 0;
        return n;
}
