/* Endpoints and their channels: opening, attaching, closing, statistics. */
#include "unet/ep.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEFAULT_PART_BYTES (4u << 20)
#define MOST_PART_BYTES    (2ull << 30)
#define DEFAULT_RX_SLOTS   256u
#define DEFAULT_FREE_SLOTS 1024u
#define MOST_SLOTS         (1u << 20)
#define DEFAULT_SPIN_NS    20000

/* ---- the endpoint ---- */

static size_t whole_pages(size_t n)
{
        size_t page = (size_t)sysconf(_SC_PAGESIZE);

        return (n + page - 1) / page * page;
}

static int fill_opts(const struct unet_ep_opts *given, struct unet_ep_opts *o)
{
        *o = given != NULL ? *given : (struct unet_ep_opts){0};
        if (o->tx_bytes > MOST_PART_BYTES || o->rx_bytes > MOST_PART_BYTES ||
            o->rx_slots > MOST_SLOTS || o->free_slots > MOST_SLOTS)
                return -EINVAL;
        o->tx_bytes = whole_pages(o->tx_bytes ? o->tx_bytes : DEFAULT_PART_BYTES);
        o->rx_bytes = whole_pages(o->rx_bytes ? o->rx_bytes : DEFAULT_PART_BYTES);
        if (o->rx_slots == 0)
                o->rx_slots = DEFAULT_RX_SLOTS;
        if (o->free_slots == 0)
                o->free_slots = DEFAULT_FREE_SLOTS;
        if (o->almost_full == 0 || o->almost_full > o->rx_slots)
                o->almost_full = MAX(o->rx_slots * 3 / 4, 1u);
        if (o->spin_ns == 0)
                o->spin_ns = DEFAULT_SPIN_NS;
        return 0;
}

static void free_tables(struct unet_ep *ep)
{
        free(ep->link);
        free(ep->chan);
        free(ep->rxq);
        free(ep->freeq);
        free(ep);
}

int unet_ep_open(const struct unet_ep_opts *opts, struct unet_ep **out)
{
        struct unet_ep *ep = calloc(1, sizeof *ep);
        int err;

        if (ep == NULL)
                return -ENOMEM;
        err = fill_opts(opts, &ep->opts);
        if (err != 0)
                goto fail;
        ep->link = calloc(EP_LINKS, sizeof *ep->link);
        ep->rxq = calloc(ep->opts.rx_slots, sizeof *ep->rxq);
        ep->freeq = calloc(ep->opts.free_slots, sizeof *ep->freeq);
        err = -ENOMEM;
        if (ep->link == NULL || ep->rxq == NULL || ep->freeq == NULL)
                goto fail;
        err = station_open(&ep->st, ep->opts.tx_bytes, ep->opts.rx_bytes);
        if (err != 0)
                goto fail;
        *out = ep;
        return 0;
fail:
        free_tables(ep);
        return err;
}

struct unet_segment unet_ep_segment(const struct unet_ep *ep)
{
        return (struct unet_segment){station_segment(&ep->st), ep->opts.tx_bytes,
                                     ep->opts.rx_bytes};
}

static void detach(struct unet_ep *ep, struct ep_link *l, bool forget)
{
        if (l->l.sock >= 0 && !l->gone && !forget)
                station_unwatch(&ep->st, l->l.sock);
        l->l.ops->close(l->l.ch, forget);
        free(l->sends);
        *l = (struct ep_link){0};
}

static void leave(struct unet_ep *ep, bool forget)
{
        if (ep == NULL)
                return;
        for (uint32_t i = 0; i < ep->nlinks; i++)
                if (ep->link[i].serial != 0)
                        detach(ep, &ep->link[i], forget);
        station_close(&ep->st);
        free_tables(ep);
}

void unet_ep_close(struct unet_ep *ep)
{
        leave(ep, false);
}

/* The epoll set is one with the other process's: closing our descriptors takes nothing out
 * of it. */
void unet_ep_forget(struct unet_ep *ep)
{
        leave(ep, true);
}

/* ---- links and channels ---- */

static struct ep_link *find_place(struct unet_ep *ep)
{
        for (uint32_t i = 0; i < ep->nlinks; i++)
                if (ep->link[i].serial == 0)
                        return &ep->link[i];
        return ep->nlinks < EP_LINKS ? &ep->link[ep->nlinks++] : NULL;
}

static int new_chan(struct unet_ep *ep, struct ep_chan c, uint32_t *chan)
{
        uint32_t i = 1;

        while (i < ep->nchans && (ep->chan[i].open || ep->chan[i].ending))
                i++;
        if (i >= ep->chan_cap) {
                uint32_t cap = MAX(ep->chan_cap * 2, 16u);
                struct ep_chan *bigger = realloc(ep->chan, cap * sizeof *bigger);
                if (bigger == NULL)
                        return -ENOMEM;
                ep->chan = bigger;
                ep->chan_cap = cap;
        }
        ep->nchans = MAX(ep->nchans, i + 1);
        ep->chan[i] = c;
        *chan = i;
        return 0;
}

static void fill_link(struct unet_ep *ep, struct ep_link *p, const struct link *l,
                      struct send_rec *sends)
{
        *p = (struct ep_link){.l = *l, .sends = sends};
        if (l->tagged && l->shared_bytes >= sizeof *p->board)
                p->board = (const struct link_board *)l->shared;
        ep->last_serial = MAX((ep->last_serial + 1) % (UINT32_MAX / EP_LINKS), 1u);
        p->serial = ep->last_serial * EP_LINKS + (uint32_t)(p - ep->link);
        for (uint32_t name = EP_SENDS; name > 0; name--) {
                sends[name].next = p->free_send;
                p->free_send = name;
        }
}

int ep_attach(struct unet_ep *ep, const struct link *l, uint32_t *chan)
{
        struct ep_link *p = find_place(ep);
        struct send_rec *sends;
        uint32_t at;
        int err = 0;

        if (p == NULL)
                return -EMFILE;
        sends = calloc(EP_SENDS + 1, sizeof *sends);
        if (sends == NULL)
                return -ENOMEM;
        at = (uint32_t)(p - ep->link);
        if (l->sock >= 0)
                err = station_watch(&ep->st, l->sock, at);
        if (err == 0 && !l->tagged)
                err = new_chan(ep, (struct ep_chan){.open = true, .link = at},
                               &ep->chan_of_link[at]);
        if (err != 0) {
                free(sends);
                return err;
        }
        fill_link(ep, p, l, sends);
        *chan = l->tagged ? at : ep->chan_of_link[at];
        return 0;
}

static uint32_t tag_hash(uint32_t link, uint32_t tag)
{
        return (tag * 0x9e3779b1u + link) >> 24 & (EP_TAG_HASH - 1);
}

uint32_t ep_chan_by_tag(const struct unet_ep *ep, uint32_t link, uint32_t tag)
{
        uint32_t i = ep->by_tag[tag_hash(link, tag)];

        while (i != 0 && (ep->chan[i].link != link || ep->chan[i].rx_tag != tag))
                i = ep->chan[i].next;
        return i;
}

/* ---- a tagged link's channels ---- */

static bool stands(const struct ep_link *l, uint32_t tag)
{
        return l->board != NULL &&
               atomic_load_explicit(&l->board->tag[tag % LINK_TAGS], memory_order_relaxed) == tag;
}

void ep_read_board(struct unet_ep *ep, struct ep_link *l)
{
        uint32_t changes, at = (uint32_t)(l - ep->link);

        if (l->board == NULL)
                return;
        changes = atomic_load_explicit(&l->board->changes, memory_order_acquire);
        if (likely(changes == l->changes))
                return;
        l->changes = changes;
        for (uint32_t i = 1; i < ep->nchans; i++) {
                struct ep_chan *c = &ep->chan[i];
                if (c->open && c->link == at && c->stood && !c->gone && !stands(l, c->rx_tag))
                        c->gone = l->chan_gone = true;
        }
}

void ep_chan_stood(struct unet_ep *ep, uint32_t chan)
{
        struct ep_chan *c = &ep->chan[chan];
        struct ep_link *l = &ep->link[c->link];

        c->stood = l->board != NULL;
        if (c->stood && !stands(l, c->rx_tag))
                c->gone = l->chan_gone = true;
}

static bool tell_ending(struct ep_link *l, uint32_t tag)
{
        struct link_end e = {0, tag};
        struct unet_tx tx = {.inl = (const uint8_t *)&e, .inl_len = sizeof e};

        if (l->l.ch->ops->send(l->l.ch, &tx, 1) != 1)
                return false;
        l->l.ch->ops->flush(l->l.ch);
        return true;
}

void ep_tell_endings(struct unet_ep *ep, struct ep_link *l)
{
        uint32_t at = (uint32_t)(l - ep->link);

        for (uint32_t i = 1; i < ep->nchans && l->nending > 0; i++) {
                struct ep_chan *c = &ep->chan[i];
                if (!c->ending || c->link != at)
                        continue;
                if (!l->gone && !tell_ending(l, c->tx_tag))
                        return;
                c->ending = false;
                l->nending--;
        }
}

int ep_chan_tagged(struct unet_ep *ep, uint32_t link, uint32_t tx_tag, uint32_t rx_tag,
                   uint32_t *chan)
{
        uint32_t *head = &ep->by_tag[tag_hash(link, rx_tag)];
        struct ep_chan c = {
                .open = true, .link = link, .tx_tag = tx_tag, .rx_tag = rx_tag, .next = *head};
        int err;

        if (link >= ep->nlinks || ep->link[link].serial == 0 || !ep->link[link].l.tagged)
                return -ENODEV;
        if (ep_chan_by_tag(ep, link, rx_tag) != 0)
                return -EEXIST;
        c.stood = stands(&ep->link[link], rx_tag);
        err = new_chan(ep, c, chan);
        if (err == 0)
                *head = *chan;
        return err;
}

static void unhash(struct unet_ep *ep, uint32_t chan)
{
        uint32_t *at = &ep->by_tag[tag_hash(ep->chan[chan].link, ep->chan[chan].rx_tag)];

        while (*at != chan)
                at = &ep->chan[*at].next;
        *at = ep->chan[chan].next;
}

/* What is in the receive queue from the channel goes with it; buffers return to the free queue. */
static void purge_queue(struct unet_ep *ep, uint32_t chan)
{
        uint32_t kept = 0;

        for (uint32_t i = 0; i < ep->rx_count; i++) {
                struct unet_recv *m = &ep->rxq[(ep->rx_head + i) % ep->opts.rx_slots];
                if (m->chan != chan) {
                        ep->rxq[(ep->rx_head + kept++) % ep->opts.rx_slots] = *m;
                        continue;
                }
                for (int k = 0; k < m->nfrags && m->loan == 0; k++) {
                        struct unet_frag buf = {m->frag[k].off, m->frag[k].size};
                        unet_ep_provide(ep, &buf, 1);
                }
                unet_ep_release(ep, m, 1);
        }
        ep->rx_count = kept;
}

int unet_chan_close(struct unet_ep *ep, uint32_t chan)
{
        struct ep_chan *c = ep_chan(ep, chan);
        struct ep_link *l;

        if (c == NULL)
                return -EBADF;
        l = &ep->link[c->link];
        purge_queue(ep, chan);
        c->open = false;
        if (l->l.tagged) {
                unhash(ep, chan);
                c->ending = c->stood && !c->gone;
                l->nending += c->ending;
                ep_tell_endings(ep, l);
        } else {
                ep_link_gone(ep, l);
                detach(ep, l, false);
        }
        return 0;
}

static bool peer_left(const struct ep_link *l)
{
        struct pollfd p = {.fd = l->l.sock, .events = POLLRDHUP};

        if (l->l.ops->gone != NULL && l->l.ops->gone(l->l.ch))
                return true;
        return l->l.sock >= 0 && poll(&p, 1, 0) == 1 &&
               (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

int unet_chan_info(struct unet_ep *ep, uint32_t chan, struct unet_chan_info *info)
{
        struct ep_chan *c = ep_chan(ep, chan);
        struct ep_link *l;
        const char *name;

        if (c == NULL)
                return -EBADF;
        l = &ep->link[c->link];
        if (!l->gone && peer_left(l))
                ep_link_gone(ep, l);
        ep_read_board(ep, l);
        name = l->l.tagged ? "emul" : l->l.ch->ops->name;
        *info = (struct unet_chan_info){
                .mtu = l->l.ch->caps.mtu - (l->l.tagged ? (uint32_t)sizeof(struct link_tag) : 0),
                .tx_tag = c->tx_tag,
                .rx_tag = c->rx_tag,
                .room = l->l.ch->ops->room(l->l.ch),
                .lossless = l->l.ch->caps.lossless && !l->l.tagged,
                .corrupts = l->l.ch->caps.csum,
                .closed = l->gone || c->gone,
        };
        strncpy(info->provider, name, sizeof info->provider - 1);
        return 0;
}

/* ---- statistics ---- */

static bool of_ni(const char *name)
{
        return strncmp(name, "NI_", 3) == 0 || strncmp(name, "LINK_", 5) == 0;
}

int unet_ep_stats(const struct unet_ep *ep, struct unet_stat *stat, int n)
{
        int k = 0;

        for (enum count c = 0; c < COUNT_COUNT; c++)
                if (of_ni(count_name(c)) && k++ < n)
                        stat[k - 1] = (struct unet_stat){count_name(c), count_text(c), ep->cnt.n[c],
                                                         false};
        for (enum drop d = DROP_NONE + 1; d < DROP_COUNT; d++)
                if (of_ni(drop_name(d)) && k++ < n)
                        stat[k - 1] = (struct unet_stat){drop_name(d), drop_text(d),
                                                         ep->cnt.drop[d], true};
        return k;
}

uint64_t unet_ep_stat(const struct unet_ep *ep, const char *name)
{
        for (enum count c = 0; c < COUNT_COUNT; c++)
                if (strcmp(count_name(c), name) == 0)
                        return ep->cnt.n[c];
        for (enum drop d = DROP_NONE + 1; d < DROP_COUNT; d++)
                if (strcmp(drop_name(d), name) == 0)
                        return ep->cnt.drop[d];
        return 0;
}
