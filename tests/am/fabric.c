#include "tests/am/fabric.h"

#include <stdlib.h>

#define ARENA 64u /* messages of a node that are on loan */

struct packet {
        nstime at;
        uint64_t serial;
        uint32_t from, to, inl_len, len;
        uint8_t bytes[]; /* those of the descriptor, without tag, then the others */
};

struct heap {
        struct packet **p;
        size_t n, cap;
};

struct node {
        struct unet_chan base;
        struct fabric *f;
        uint32_t at;
        struct unet_mem tx_mem;
        uint8_t *arena;
        bool lent[ARENA];
        bool cut;
        uint32_t reaped[EP_SENDS], nreaped;
        struct heap arrived; /* those whose time has come, and others */
};

struct fabric {
        struct fabric_opts o;
        struct prng_fast rnd;
        nstime now;
        uint64_t serial;
        struct node *node;
};

static struct node *node_of(struct unet_chan *ch)
{
        return (struct node *)ch;
}

/* ---- a heap by time ---- */

static bool before(const struct packet *a, const struct packet *b)
{
        return a->at != b->at ? a->at < b->at : a->serial < b->serial;
}

static void heap_push(struct heap *h, struct packet *p)
{
        size_t i = h->n++;

        if (h->n > h->cap) {
                h->cap = MAX(2 * h->cap, (size_t)16);
                h->p = realloc(h->p, h->cap * sizeof(struct packet *));
                if (h->p == NULL)
                        abort();
        }
        for (; i > 0 && before(p, h->p[(i - 1) / 2]); i = (i - 1) / 2)
                h->p[i] = h->p[(i - 1) / 2];
        h->p[i] = p;
}

static struct packet *heap_pop(struct heap *h)
{
        struct packet *top = h->p[0], *last = h->p[--h->n];
        size_t i = 0;

        for (;;) {
                size_t k = 2 * i + 1;
                if (k >= h->n)
                        break;
                k += k + 1 < h->n && before(h->p[k + 1], h->p[k]);
                if (!before(h->p[k], last))
                        break;
                h->p[i] = h->p[k];
                i = k;
        }
        if (h->n > 0)
                h->p[i] = last;
        return top;
}

/* ---- sending ---- */

static double chance(struct fabric *f)
{
        return (double)(prng_fast_u64(&f->rnd) >> 11) / 9007199254740992.0;
}

static enum fate draw(struct fabric *f)
{
        double x = chance(f);

        if (f->serial < f->o.nscript)
                return (enum fate)f->o.script[f->serial];
        if (x < f->o.loss)
                return FATE_LOST;
        if (x < f->o.loss + f->o.twice)
                return FATE_TWICE;
        return x < f->o.loss + f->o.twice + f->o.late ? FATE_LATE : FATE_OK;
}

static struct packet *gather(struct node *n, const struct unet_tx *tx)
{
        size_t len = unet_tx_bytes(tx) - sizeof(struct link_tag);
        struct packet *p = malloc(sizeof *p + len + sizeof(struct link_tag));
        struct link_tag tag;

        if (p == NULL)
                abort();
        memcpy(&tag, tx->inl, sizeof tag);
        p->from = n->at;
        p->to = tag.tag - 1;
        p->inl_len = tx->inl_len - (uint32_t)sizeof tag;
        p->len = (uint32_t)len;
        memcpy(p->bytes, tx->inl + sizeof tag, p->inl_len);
        if (tx->frame != 0)
                memcpy(p->bytes + p->inl_len, unet_mem_at(&n->tx_mem, tx->frame, tx->off, tx->len),
                       tx->len);
        return p;
}

static void launch(struct fabric *f, struct packet *p, nstime more)
{
        p->at = f->now + f->o.delay + more;
        if (f->o.jitter > 0)
                p->at += (nstime)prng_fast_below(&f->rnd, (uint32_t)f->o.jitter);
        p->serial = f->serial++;
        heap_push(&f->node[p->to].arrived, p);
}

static void carry(struct fabric *f, struct packet *p)
{
        enum fate fate = draw(f);
        struct packet *twin;

        if (fate == FATE_LOST || f->node[p->from].cut || f->node[p->to].cut) {
                f->serial++;
                free(p);
                return;
        }
        if (chance(f) < f->o.corrupt) {
                uint32_t bit = prng_fast_below(&f->rnd, p->len * 8);
                p->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        if (fate == FATE_TWICE) {
                twin = malloc(sizeof *p + p->len);
                if (twin == NULL)
                        abort();
                memcpy(twin, p, sizeof *p + p->len);
                launch(f, twin, 3 * f->o.delay);
        }
        launch(f, p, fate == FATE_LATE ? 10 * f->o.delay : 0);
}

static int fab_send(struct unet_chan *ch, const struct unet_tx *tx, int n)
{
        struct fabric *f = node_of(ch)->f;

        for (int i = 0; i < n; i++) {
                if (f->o.refuse > 0 && chance(f) < f->o.refuse)
                        return i;
                carry(f, gather(node_of(ch), &tx[i]));
                if (tx[i].frame != 0) {
                        assert(node_of(ch)->nreaped < EP_SENDS);
                        node_of(ch)->reaped[node_of(ch)->nreaped++] = tx[i].frame;
                }
        }
        return n;
}

/* ---- receiving ---- */

static uint8_t *lend(struct node *n, uint32_t *frame)
{
        for (uint32_t i = 0; i < ARENA; i++)
                if (!n->lent[i]) {
                        n->lent[i] = true;
                        *frame = i + 1;
                        return n->arena + (size_t)i * n->base.caps.mtu;
                }
        abort();
}

static void show(struct node *n, struct packet *p, struct unet_rx *rx)
{
        struct link_tag tag = {p->from + 1};

        *rx = (struct unet_rx){.inl_len = p->inl_len + (uint32_t)sizeof tag};
        memcpy(rx->inl, &tag, sizeof tag);
        memcpy(rx->inl + sizeof tag, p->bytes, p->inl_len);
        if (p->len > p->inl_len) {
                uint8_t *at = lend(n, &rx->frame);
                rx->off = (uint32_t)(at - n->arena);
                rx->len = p->len - p->inl_len;
                memcpy(at, p->bytes + p->inl_len, rx->len);
        }
        free(p);
}

static bool ready(const struct node *n)
{
        return n->arrived.n > 0 && n->arrived.p[0]->at <= n->f->now;
}

static int fab_recv(struct unet_chan *ch, struct unet_rx *rx, int max)
{
        struct node *n = node_of(ch);
        int got = 0;

        while (got < max && ready(n))
                show(n, heap_pop(&n->arrived), &rx[got++]);
        return got;
}

static void fab_release(struct unet_chan *ch, const uint32_t *frame, int n)
{
        for (int i = 0; i < n; i++) {
                assert(frame[i] <= ARENA && node_of(ch)->lent[frame[i] - 1]);
                node_of(ch)->lent[frame[i] - 1] = false;
        }
}

static int fab_reap(struct unet_chan *ch, uint32_t *frame, int n)
{
        struct node *d = node_of(ch);
        int got = 0;

        while (got < n && d->nreaped > 0)
                frame[got++] = d->reaped[--d->nreaped];
        return got;
}

static uint32_t fab_room(struct unet_chan *ch)
{
        return 64;
}

static bool fab_pending(struct unet_chan *ch)
{
        return ready(node_of(ch));
}

static void fab_flush(struct unet_chan *ch)
{
        (void)ch;
}

static const struct unet_ni_ops ops = {
        .name = "fabric",
        .send = fab_send,
        .recv = fab_recv,
        .release = fab_release,
        .reap = fab_reap,
        .room = fab_room,
        .pending = fab_pending,
        .flush = fab_flush,
};

static void close_end(struct unet_chan *ch, bool forget)
{
        (void)ch;
        (void)forget;
}

/* ---- the whole ---- */

struct fabric *fabric_new(const struct fabric_opts *o)
{
        struct fabric *f = calloc(1, sizeof *f);

        if (f == NULL)
                abort();
        f->o = *o;
        if (f->o.mtu == 0)
                f->o.mtu = 4096;
        if (f->o.delay == 0)
                f->o.delay = 10 * NS_PER_US;
        prng_fast_init(&f->rnd, o->seed);
        f->node = calloc(o->nodes, sizeof *f->node);
        if (f->node == NULL)
                abort();
        return f;
}

void fabric_free(struct fabric *f)
{
        for (uint32_t i = 0; i < f->o.nodes; i++) {
                while (f->node[i].arrived.n > 0)
                        free(heap_pop(&f->node[i].arrived));
                free(f->node[i].arrived.p);
                free(f->node[i].arena);
        }
        free(f->node);
        free(f);
}

void fabric_attach(struct fabric *f, uint32_t at, struct unet_ep *ep, uint32_t *chan)
{
        static const struct link_ops link_ops = {.close = close_end};
        struct unet_segment seg = unet_ep_segment(ep);
        struct node *n = &f->node[at];
        struct link l = {.ops = &link_ops, .ch = &n->base, .tagged = true, .sock = -1};
        uint32_t link;

        n->f = f;
        n->at = at;
        n->base.ops = &ops;
        n->base.caps = (struct unet_caps){
                .mtu = f->o.mtu, .inline_max = UNET_INLINE_MAX, .csum = f->o.corrupt > 0};
        n->tx_mem = unet_mem_flat(seg.base, seg.tx_bytes);
        n->arena = malloc((size_t)ARENA * f->o.mtu);
        if (n->arena == NULL)
                abort();
        l.rx_mem = unet_mem_flat(n->arena, (size_t)ARENA * f->o.mtu);
        if (ep_attach(ep, &l, &link) != 0)
                abort();
        for (uint32_t i = 0; i < f->o.nodes; i++)
                if (i == at)
                        chan[i] = 0;
                else if (ep_chan_tagged(ep, link, i + 1, i + 1, &chan[i]) != 0)
                        abort();
}

nstime fabric_now(const struct fabric *f)
{
        return f->now;
}

void fabric_advance(struct fabric *f, nstime to)
{
        f->now = MAX(f->now, to);
}

nstime fabric_next(const struct fabric *f, uint32_t node)
{
        const struct heap *h = &f->node[node].arrived;

        return h->n > 0 ? h->p[0]->at : NSTIME_NEVER;
}

bool fabric_ready(const struct fabric *f, uint32_t node)
{
        return ready(&f->node[node]);
}

void fabric_cut(struct fabric *f, uint32_t node)
{
        f->node[node].cut = true;
}

uint64_t fabric_sent(const struct fabric *f)
{
        return f->serial;
}
