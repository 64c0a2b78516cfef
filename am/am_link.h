/*
 * Below: an endpoint's links as active messages use them, the only file of am/ that knows them from
 * inside.
 *
 * Short messages go past unet_ep_send() and unet_ep_recv() to the provider (unet/ni.h): no
 * descriptor is copied twice and nothing is looked up that is known. Payload outside the descriptor
 * is sent by unet_ep_send(), which knows the names of sends. Arrivals are loans of the provider,
 * whatever the endpoint's options say, and are given back when their handler has run: the free
 * queue is not used.
 */
#ifndef AM_LINK_H
#define AM_LINK_H

#include <errno.h>

#include "unet/ep.h"

struct am_peer;

struct am_link {
        struct ep_link *l;
        uint32_t at;          /* its place in the endpoint */
        struct am_peer *peer; /* of an untagged link */
        uint32_t npeers;      /* whose messages come by it */
        bool dirty;           /* something was sent or released since the last flush */
};

struct am_image { /* a message's descriptor, with room for a tagged link's tag */
        uint32_t tag;
        uint8_t bytes[UNET_EP_INLINE];
};
static_assert(offsetof(struct am_image, bytes) == sizeof(struct link_tag),
              "the tag lies before the message");

/* Hands a message without pieces to the provider. False: the queue is full, or the peer is gone. */
static inline bool am_link_send(struct am_link *k, struct am_image *m, uint32_t len)
{
        struct unet_chan *ch = k->l->l.ch;
        struct unet_tx tx;

        tx.inl = m->bytes;
        tx.inl_len = (uint16_t)len;
        tx.nmore = 0;
        tx.frame = tx.off = tx.len = 0;
        tx.more = NULL;
        if (unlikely(k->l->l.tagged)) {
                tx.inl = (const uint8_t *)&m->tag;
                tx.inl_len = (uint16_t)(len + sizeof(struct link_tag));
        }
        if (unlikely(k->l->gone) || ch->ops->send(ch, &tx, 1) != 1)
                return false;
        k->dirty = true;
        return true;
}

/* Makes visible what was sent and released, and wakes who sleeps. */
static inline void am_link_flush(struct am_link *k)
{
        if (k->dirty) {
                k->dirty = false;
                k->l->l.ch->ops->flush(k->l->l.ch);
        }
}

static inline int am_link_recv(struct am_link *k, struct unet_rx *rx, int n)
{
        struct unet_chan *ch = k->l->l.ch;

        return ch->ops->recv(ch, rx, n);
}

static inline void am_link_release(struct am_link *k, const struct unet_rx *rx)
{
        if (rx->frame != 0) {
                k->l->l.ch->ops->release(k->l->l.ch, &rx->frame, 1);
                k->dirty = true;
        }
}

/* A message's payload: the rest of the descriptor, then the pieces that the provider checked. */
#define AM_PIECES (1 + UNET_RANGES_MAX)
struct am_pieces {
        const uint8_t *ptr[AM_PIECES];
        uint32_t len[AM_PIECES];
        int n;
};
/* The pieces outside the descriptor; returns how long they are. */
static inline uint64_t am_link_pieces(const struct am_link *k, const struct unet_rx *rx,
                                      struct am_pieces *p)
{
        uint64_t total = rx->len;

        p->n = 1;
        if (rx->frame == 0)
                return 0;
        p->ptr[p->n] = unet_mem_at(&k->l->l.rx_mem, rx->frame, rx->off, rx->len);
        p->len[p->n++] = rx->len;
        for (uint32_t i = 0; i < rx->nmore; i++) {
                p->ptr[p->n] =
                        unet_mem_at(&k->l->l.rx_mem, rx->frame, rx->more[i].off, rx->more[i].len);
                p->len[p->n++] = rx->more[i].len;
                total += rx->more[i].len;
        }
        return total;
}

/* Returns true if the peer, or on a tagged link the channel's other end, has gone. What it sent
 * before can still be taken. */
static inline bool am_link_gone(struct unet_ep *ep, struct am_link *k, uint32_t chan)
{
        const struct ep_chan *c;

        if (!k->l->gone && k->l->l.ops->gone != NULL && k->l->l.ops->gone(k->l->l.ch))
                ep_link_gone(ep, k->l);
        ep_read_board(ep, k->l);
        c = ep_chan(ep, chan);
        return k->l->gone || c == NULL || c->gone;
}

#endif
