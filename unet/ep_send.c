/*
 * An endpoint's sending half. A batch for one link at a time:
 *
 *      unet_ep_send() -> compose(): check, name, describe -> ops->send() -> ops->flush()
 *      provider is finished -> ep_collect_injected() -> unet_ep_reap()
 */
#include <errno.h>

#include "unet/ep.h"

/* ---- names of sends ---- */

static uint32_t name_take(struct ep_link *l, const struct unet_send *m)
{
        uint32_t name = l->free_send;
        struct send_rec *r = &l->sends[name];

        if (name == 0)
                return 0;
        l->free_send = r->next;
        l->under_way++;
        *r = (struct send_rec){
                .cookie = m->cookie, .injected = m->injected, .state = SEND_UNDER_WAY};
        return name;
}

static void name_free(struct ep_link *l, uint32_t name)
{
        l->sends[name].state = SEND_FREE;
        l->sends[name].next = l->free_send;
        l->free_send = name;
}

/* The send did not happen. */
static void name_undo(struct ep_link *l, uint32_t name)
{
        l->under_way--;
        name_free(l, name);
}

static void name_done(struct ep_link *l, uint32_t name)
{
        struct send_rec *r = &l->sends[name];

        l->under_way--;
        if (r->injected != NULL)
                *r->injected = 1;
        if (r->cookie == 0) {
                name_free(l, name);
                return;
        }
        r->state = SEND_DONE;
        r->next = 0;
        if (l->done_head == 0)
                l->done_head = name;
        else
                l->sends[l->done_tail].next = name;
        l->done_tail = name;
}

/* A peer may name what it never had; only our own record counts. */
void ep_collect_injected(struct unet_ep *ep, struct ep_link *l)
{
        uint32_t name[EP_BATCH * 4];
        int n, rounds = EP_SENDS / ARRAY_LEN(name);

        do {
                n = l->l.ch->ops->reap(l->l.ch, name, ARRAY_LEN(name));
                for (int i = 0; i < n; i++) {
                        if (name[i] - 1 < EP_SENDS && l->sends[name[i]].state == SEND_UNDER_WAY)
                                name_done(l, name[i]);
                        else
                                count(&ep->cnt, COUNT_NI_BAD_RETURN);
                }
        } while (n == ARRAY_LEN(name) && --rounds > 0);
}

void ep_link_gone(struct unet_ep *ep, struct ep_link *l)
{
        if (l->gone)
                return;
        l->gone = true;
        if (l->l.sock >= 0)
                station_unwatch(&ep->st, l->l.sock);
        for (uint32_t name = 1; name <= EP_SENDS; name++)
                if (l->sends[name].state == SEND_UNDER_WAY)
                        name_done(l, name);
}

static int reap_link(struct ep_link *l, uint64_t *cookie, int n)
{
        int got = 0;

        for (; got < n && l->done_head != 0; got++) {
                uint32_t name = l->done_head;
                l->done_head = l->sends[name].next;
                cookie[got] = l->sends[name].cookie;
                name_free(l, name);
        }
        return got;
}

int unet_ep_reap(struct unet_ep *ep, uint64_t *cookie, int n)
{
        int got = 0;

        for (uint32_t i = 0; i < ep->nlinks; i++) {
                struct ep_link *l = &ep->link[i];
                if (l->serial == 0)
                        continue;
                if (l->under_way != 0)
                        ep_collect_injected(ep, l);
                if (got < n)
                        got += reap_link(l, cookie + got, n - got);
        }
        return got;
}

/* ---- composing ---- */

struct batch {
        struct ep_link *l;
        int n;
        struct unet_tx tx[EP_BATCH];
        uint8_t tagged[EP_BATCH][sizeof(struct link_tag) + UNET_EP_INLINE];
};

/* Total length, or -EINVAL. */
static int64_t check_pieces(const struct unet_ep *ep, const struct unet_send *m)
{
        uint64_t total = m->inl_len;

        if (m->inl_len > UNET_EP_INLINE || m->nfrags > UNET_EP_FRAGS)
                return -EINVAL;
        for (int i = 0; i < m->nfrags; i++) {
                const struct unet_frag *f = &m->frag[i];
                if (f->off > ep->opts.tx_bytes || f->len > ep->opts.tx_bytes - f->off)
                        return -EINVAL;
                total += f->len;
        }
        return total != 0 ? (int64_t)total : -EINVAL;
}

static void describe_inline(struct batch *b, const struct ep_chan *c, const struct unet_send *m)
{
        struct unet_tx *tx = &b->tx[b->n];
        struct link_tag tag = {c->tx_tag};

        tx->inl = m->inl_len != 0 ? m->inl : ""; /* never NULL: memcpy minds */
        tx->inl_len = m->inl_len;
        if (likely(!b->l->l.tagged))
                return;
        memcpy(b->tagged[b->n], &tag, sizeof tag);
        memcpy(b->tagged[b->n] + sizeof tag, tx->inl, m->inl_len);
        tx->inl = b->tagged[b->n];
        tx->inl_len = (uint16_t)(m->inl_len + sizeof tag);
}

/* 0, or -EAGAIN: as many messages are under way as can be. */
static int describe_pieces(struct unet_ep *ep, struct batch *b, const struct unet_send *m)
{
        struct unet_tx *tx = &b->tx[b->n];

        tx->nmore = 0;
        tx->frame = 0;
        tx->off = tx->len = 0;
        if (m->nfrags == 0)
                return 0;
        tx->frame = name_take(b->l, m);
        if (unlikely(tx->frame == 0)) {
                ep_collect_injected(ep, b->l);
                tx->frame = name_take(b->l, m);
                if (tx->frame == 0)
                        return -EAGAIN;
        }
        tx->off = m->frag[0].off;
        tx->len = m->frag[0].len;
        tx->nmore = (uint16_t)(m->nfrags - 1);
        tx->more = (const struct unet_range *)&m->frag[1];
        return 0;
}

/* Adds a message to the batch. 0; 1: it belongs to another link; or a negative errno. */
static int compose(struct unet_ep *ep, struct batch *b, const struct unet_send *m)
{
        const struct ep_chan *c = ep_chan(ep, m->chan);
        int64_t total = check_pieces(ep, m);
        struct ep_link *l;
        int err;

        if (c == NULL)
                return -EBADF;
        if (total < 0)
                return -EINVAL;
        l = &ep->link[c->link];
        if (b->n != 0 && b->l != l)
                return 1;
        ep_read_board(ep, l);
        if (l->gone || c->gone)
                return -EPIPE;
        if ((uint64_t)total + (l->l.tagged ? sizeof(struct link_tag) : 0) > l->l.ch->caps.mtu)
                return -EMSGSIZE;
        b->l = l;
        err = describe_pieces(ep, b, m);
        if (err != 0)
                return err;
        describe_inline(b, c, m);
        b->n++;
        return 0;
}

/* Hands the batch to the provider. Returns how many it took. */
static int post(struct batch *b, const struct unet_send *m)
{
        struct unet_chan *ch = b->l->l.ch;
        int taken = ch->ops->send(ch, b->tx, b->n);

        for (int i = taken; i < b->n; i++)
                if (b->tx[i].frame != 0)
                        name_undo(b->l, b->tx[i].frame);
        for (int i = 0; i < taken; i++)
                if (m[i].nfrags == 0 && m[i].injected != NULL)
                        *m[i].injected = 1;
        if (unlikely(b->l->blocked && taken > 0)) {
                b->l->blocked = false;
                if (ch->ops->want_room != NULL)
                        ch->ops->want_room(ch, false);
        }
        if (taken > 0)
                ch->ops->flush(ch);
        return taken;
}

/* A full queue whose reader has left never gets room. */
static int refused(struct unet_ep *ep, struct ep_link *l)
{
        l->blocked = true;
        if (l->l.ops->gone == NULL || !l->l.ops->gone(l->l.ch))
                return -EAGAIN;
        ep_link_gone(ep, l);
        return -EPIPE;
}

int unet_ep_send(struct unet_ep *ep, const struct unet_send *msg, int n)
{
        struct batch b;
        int done = 0, err = 0;

        b.l = NULL;
        while (done < n && err >= 0) {
                int taken;

                b.n = 0;
                while (b.n < EP_BATCH && done + b.n < n) {
                        err = compose(ep, &b, &msg[done + b.n]);
                        if (err != 0)
                                break;
                }
                if (b.n == 0)
                        break;
                taken = post(&b, msg + done);
                done += taken;
                if (taken < b.n)
                        err = -EAGAIN;
        }
        if (err == -EAGAIN)
                err = refused(ep, b.l);
        return done != 0 ? done : err;
}
