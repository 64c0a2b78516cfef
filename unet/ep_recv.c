/*
 * An endpoint's receiving half:
 *
 *   ops->recv() -> deliver(): channel by tag, lengths -> buffers of the free queue, or a loan
 *           -> receive
 *   queue or caller
 *
 * unet_ep_recv() empties the receive queue and then takes messages straight from the links into the
 * caller's descriptors; unet_ep_poll() takes them into the receive queue.
 */
#include <errno.h>

#include "unet/ep.h"

/* ---- the free queue ---- */

int unet_ep_provide(struct unet_ep *ep, const struct unet_frag *buf, int n)
{
        size_t start = ep->opts.tx_bytes, end = start + ep->opts.rx_bytes;
        int i;

        for (i = 0; i < n && ep->free_count < ep->opts.free_slots; i++) {
                uint32_t at = (ep->free_head + ep->free_count) % ep->opts.free_slots;
                if (buf[i].len == 0 || buf[i].off < start || buf[i].off > end ||
                    buf[i].len > end - buf[i].off)
                        return i != 0 ? i : -EINVAL;
                ep->freeq[at] = (struct free_buf){buf[i].off, buf[i].len};
                ep->free_count++;
        }
        return i != 0 || n == 0 ? i : -EAGAIN;
}

/* Buffers for `len` bytes become the message's pieces, in order. False: not enough; none
 * is taken. */
static bool take_buffers(struct unet_ep *ep, uint32_t len, struct unet_recv *m)
{
        const uint8_t *base = station_segment(&ep->st);
        uint32_t k;

        for (k = 0; len > 0; k++) {
                const struct free_buf *b = &ep->freeq[(ep->free_head + k) % ep->opts.free_slots];
                if (k == ep->free_count || k == UNET_EP_FRAGS)
                        return false;
                m->frag[k] =
                        (struct unet_recv_frag){base + b->off, MIN(len, b->len), b->off, b->len};
                len -= m->frag[k].len;
        }
        m->nfrags = (uint16_t)k;
        ep->free_head = (ep->free_head + k) % ep->opts.free_slots;
        ep->free_count -= k;
        return true;
}

/* ---- one message ---- */

struct pieces { /* of the peer's memory; each was checked by the provider */
        const uint8_t *ptr[UNET_RANGES_MAX];
        uint32_t len[UNET_RANGES_MAX];
        int n;
        uint64_t total;
};

static struct pieces pieces_of(const struct ep_link *l, const struct unet_rx *rx)
{
        struct pieces p = {.n = 1, .total = rx->len};

        p.ptr[0] = unet_mem_at(&l->l.rx_mem, rx->frame, rx->off, rx->len);
        p.len[0] = rx->len;
        for (uint32_t i = 0; i < rx->nmore; i++, p.n++) {
                p.ptr[p.n] = unet_mem_at(&l->l.rx_mem, rx->frame, rx->more[i].off, rx->more[i].len);
                p.len[p.n] = rx->more[i].len;
                p.total += rx->more[i].len;
        }
        return p;
}

/* Base level: copies the pieces into buffers, cut as the buffers are. */
static void copy_in(const struct pieces *p, struct unet_recv *m)
{
        uint32_t used = 0;
        int from = 0;

        for (int to = 0; to < m->nfrags; to++) {
                uint8_t *at = (uint8_t *)(uintptr_t)m->frag[to].ptr;
                uint32_t want = m->frag[to].len;
                while (want > 0) {
                        uint32_t k = MIN(want, p->len[from] - used);
                        memcpy(at, p->ptr[from] + used, k);
                        at += k;
                        want -= k;
                        used += k;
                        if (used == p->len[from]) {
                                from++;
                                used = 0;
                        }
                }
        }
}

static void lend(const struct ep_link *l, uint32_t frame, const struct pieces *p,
                 struct unet_recv *m)
{
        m->loan = (uint64_t)l->serial << 32 | frame;
        m->nfrags = (uint16_t)p->n;
        for (int i = 0; i < p->n; i++)
                m->frag[i] = (struct unet_recv_frag){.ptr = p->ptr[i], .len = p->len[i]};
}

static enum drop deliver_pieces(struct unet_ep *ep, struct ep_link *l, const struct unet_rx *rx,
                                struct unet_recv *m)
{
        struct pieces p = pieces_of(l, rx);

        if (p.total + m->inl_len > l->l.ch->caps.mtu)
                return DROP_NI_MALFORMED;
        m->len += (uint32_t)p.total;
        if (ep->opts.direct) {
                lend(l, rx->frame, &p, m);
                return DROP_NONE;
        }
        if (!take_buffers(ep, (uint32_t)p.total, m))
                return DROP_NI_NO_BUFFER;
        copy_in(&p, m);
        return DROP_NONE;
}

/* Channel and inline bytes. */
static enum drop deliver_inline(struct unet_ep *ep, struct ep_link *l, const struct unet_rx *rx,
                                struct unet_recv *m)
{
        uint32_t at = (uint32_t)(l - ep->link), skip = 0;
        struct link_tag tag;

        if (unlikely(l->l.tagged)) {
                skip = sizeof tag;
                if (rx->inl_len < skip)
                        return DROP_NI_MALFORMED;
                memcpy(&tag, rx->inl, sizeof tag);
                m->chan = ep_chan_by_tag(ep, at, tag.tag);
        } else {
                m->chan = ep->chan_of_link[at];
        }
        if (m->chan == 0)
                return DROP_NI_NO_CHANNEL;
        if (rx->inl_len - skip > UNET_EP_INLINE)
                return DROP_NI_MALFORMED;
        m->len = m->inl_len = (uint16_t)(rx->inl_len - skip);
        unet_copy_inline(m->inl, rx->inl + skip, m->inl_len);
        return DROP_NONE;
}

/* Makes a descriptor of what a provider received. False: dropped and counted. *back gets the frame
 * to return, or 0. */
static bool deliver(struct unet_ep *ep, struct ep_link *l, const struct unet_rx *rx,
                    struct unet_recv *m, uint32_t *back)
{
        enum drop why = deliver_inline(ep, l, rx, m);

        m->nfrags = 0;
        m->loan = 0;
        if (why == DROP_NONE && rx->frame != 0)
                why = deliver_pieces(ep, l, rx, m);
        *back = m->loan == 0 ? rx->frame : 0;
        if (likely(why == DROP_NONE))
                return true;
        count_drop(&ep->cnt, why);
        return false;
}

/* ---- many messages ---- */

/* Takes at most n messages off a link, those dropped included; *kept gets how many of them are
 * in m[]. */
static int pull_link(struct unet_ep *ep, struct ep_link *l, struct unet_recv *m, int n, int *kept)
{
        const struct unet_ni_ops *ops = l->l.ch->ops;
        struct unet_rx rx[EP_BATCH];
        uint32_t back[EP_BATCH];
        int got = ops->recv(l->l.ch, rx, MIN(n, EP_BATCH)), nback = 0;

        *kept = 0;
        for (int i = 0; i < got; i++) {
                *kept += deliver(ep, l, &rx[i], &m[*kept], &back[nback]);
                nback += back[nback] != 0;
        }
        if (nback > 0)
                ops->release(l->l.ch, back, nback);
        return got;
}

static int take_queued(struct unet_ep *ep, struct unet_recv *m, int n)
{
        int i;

        for (i = 0; i < n && ep->rx_count > 0; i++) {
                m[i] = ep->rxq[ep->rx_head];
                ep->rx_head = (ep->rx_head + 1) % ep->opts.rx_slots;
                ep->rx_count--;
        }
        return i;
}

/* What a link has, while there is place. Dropped messages make room for more, but not for ever. */
static int take_link(struct unet_ep *ep, struct ep_link *l, struct unet_recv *m, int n)
{
        int got = 0, seen, kept, budget = n + EP_ROUND;

        do {
                seen = pull_link(ep, l, m + got, n - got, &kept);
                got += kept;
                budget -= seen;
        } while (seen > 0 && got < n && budget > 0);
        l->l.ch->ops->flush(l->l.ch);
        return got;
}

int unet_ep_recv(struct unet_ep *ep, struct unet_recv *msg, int n)
{
        int got = take_queued(ep, msg, n);

        for (uint32_t i = 0; i < ep->nlinks && got < n; i++) {
                struct ep_link *l = &ep->link[(ep->turn + i) % ep->nlinks];
                if (l->serial != 0)
                        got += take_link(ep, l, msg + got, n - got);
        }
        if (ep->nlinks > 1)
                ep->turn = (ep->turn + 1) % ep->nlinks;
        return got;
}

/* ---- the provider's half ---- */

/* The receive queue is full: what else has arrived is lost (base level). */
static int discard(struct unet_ep *ep, struct ep_link *l)
{
        struct unet_rx rx[EP_BATCH];
        int got = l->l.ch->ops->recv(l->l.ch, rx, EP_BATCH);

        for (int i = 0; i < got; i++) {
                count_drop(&ep->cnt, DROP_NI_QUEUE_FULL);
                if (rx[i].frame != 0)
                        l->l.ch->ops->release(l->l.ch, &rx[i].frame, 1);
        }
        return got;
}

/* One batch into the receive queue's free places that lie side by side. */
static int queue_batch(struct unet_ep *ep, struct ep_link *l)
{
        uint32_t places = ep->opts.rx_slots - ep->rx_count;
        uint32_t tail = (ep->rx_head + ep->rx_count) % ep->opts.rx_slots;
        int seen, kept;

        if (places == 0)
                return ep->opts.direct ? 0 : discard(ep, l);
        seen = pull_link(ep, l, &ep->rxq[tail], (int)MIN(places, ep->opts.rx_slots - tail), &kept);
        ep->rx_count += (uint32_t)kept;
        return seen;
}

int unet_ep_poll(struct unet_ep *ep)
{
        for (uint32_t i = 0; i < ep->nlinks; i++) {
                struct ep_link *l = &ep->link[(ep->turn + i) % ep->nlinks];
                int budget = EP_ROUND, seen = 1;

                if (l->serial == 0)
                        continue;
                for (; seen > 0 && budget > 0; budget -= seen)
                        seen = queue_batch(ep, l);
                if (l->under_way != 0)
                        ep_collect_injected(ep, l);
                if (unlikely(l->nending != 0))
                        ep_tell_endings(ep, l);
                l->l.ch->ops->flush(l->l.ch);
        }
        if (ep->nlinks > 1)
                ep->turn = (ep->turn + 1) % ep->nlinks;
        return (int)ep->rx_count;
}

/* ---- loans ---- */

/* The link that lent it, if it is still there; its channel may be closed by now. */
static struct ep_link *lender(struct unet_ep *ep, const struct unet_recv *m)
{
        uint32_t serial = (uint32_t)(m->loan >> 32);
        struct ep_link *l = &ep->link[serial % EP_LINKS];

        return m->loan != 0 && l->serial == serial ? l : NULL;
}

void unet_ep_release(struct unet_ep *ep, const struct unet_recv *msg, int n)
{
        struct ep_link *l, *last = NULL;

        for (int i = 0; i < n; i++) {
                uint32_t frame = (uint32_t)msg[i].loan;

                l = lender(ep, &msg[i]);
                if (l == NULL)
                        continue;
                l->l.ch->ops->release(l->l.ch, &frame, 1);
                if (last != NULL && last != l)
                        last->l.ch->ops->flush(last->l.ch);
                last = l;
        }
        if (last != NULL)
                last->l.ch->ops->flush(last->l.ch);
}

size_t unet_recv_copy(const struct unet_recv *msg, void *to, size_t max)
{
        size_t done = MIN(msg->inl_len, max);

        memcpy(to, msg->inl, done);
        for (int i = 0; i < msg->nfrags; i++) {
                size_t k = MIN(msg->frag[i].len, max - done);
                memcpy((uint8_t *)to + done, msg->frag[i].ptr, k);
                done += k;
        }
        return done;
}
