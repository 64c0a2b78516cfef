/* Opening, connecting, handlers, the ends of peers. */
#include <errno.h>
#include <stdlib.h>

#include "am/am_int.h"
#include "base/clock.h"

#define DEFAULT_WINDOW 16u
#define DEFAULT_BUFFER 8192u
#define DEFAULT_PLACES 512u
#define DEFAULT_RTO    NS_PER_MS
#define DEFAULT_DEAD   (30 * NS_PER_S)
#define BUFFER_MAX     65536u
/* Until a goodbye is repeated, then twice as long each time. */
#define BYE_FIRST (20 * NS_PER_MS)
#define BYE_MOST  (160 * NS_PER_MS) /* but no longer */

/* ---- opening ---- */

static nstime real_now(void *arg)
{
        (void)arg;
        return clock_now();
}

static int fill_opts(const struct uam_opts *given, size_t tx_bytes, struct uam_opts *o)
{
        *o = given != NULL ? *given : (struct uam_opts){0};
        o->ranks = MAX(o->ranks, 1u);
        if (o->window == 0)
                o->window = DEFAULT_WINDOW;
        if (o->buffer_bytes == 0)
                o->buffer_bytes = DEFAULT_BUFFER;
        if (o->places == 0)
                o->places = DEFAULT_PLACES;
        if (o->rto_min <= 0)
                o->rto_min = DEFAULT_RTO;
        if (o->dead <= 0)
                o->dead = DEFAULT_DEAD;
        if (o->window > UAM_WINDOW || o->rank >= o->ranks ||
            o->ranks > UINT32_MAX / (4 * UAM_WINDOW) || o->buffer_bytes > BUFFER_MAX ||
            o->buffer_bytes < UNET_EP_INLINE)
                return -EINVAL;
        if (o->buffers == 0)
                o->buffers = (uint32_t)MIN(2ull * o->window * (o->ranks + 1),
                                           tx_bytes / 2 / o->buffer_bytes);
        return (uint64_t)o->buffers * o->buffer_bytes > tx_bytes ? -ENOBUFS : 0;
}

static uint16_t ring_size(uint32_t window)
{
        uint16_t n = 1;

        while (n < window)
                n *= 2;
        return n;
}

/* Slots for all windows, and for a batch of arrivals that is answered before its loans are
 * given back. */
static uint32_t slots_needed(const struct uam_opts *o)
{
        return (o->ranks + 1) * (2 * o->window + AM_BATCH);
}

static int alloc_tables(struct uam *am)
{
        const struct uam_opts *o = &am->o;

        am->nslots = slots_needed(o);
        am->nbufs = am->nfree = o->buffers;
        am->peer = calloc(o->ranks + 1, sizeof *am->peer);
        am->links = calloc(EP_LINKS, sizeof *am->links);
        am->slots = calloc(am->nslots + 1, sizeof *am->slots);
        am->free_buf = calloc(am->nbufs + 1, sizeof *am->free_buf);
        am->gather = malloc(AM_GATHER + AM_WITH_ARGS);
        if (am->peer == NULL || am->links == NULL || am->slots == NULL || am->free_buf == NULL ||
            am->gather == NULL)
                return -ENOMEM;
        for (uint32_t i = 0; i < am->nbufs; i++)
                am->free_buf[i] = am->nbufs - i;
        return 0;
}

static void free_all(struct uam *am)
{
        for (uint32_t r = 0; am->peer != NULL && r <= am->o.ranks; r++) {
                if (am->peer[r] != NULL)
                        am_forget_held(am->peer[r]);
                free(am->peer[r]);
        }
        am_tree_free(am);
        free(am->peer);
        free(am->links);
        free(am->by_chan);
        free(am->slots);
        free(am->free_buf);
        free(am->gather);
        free(am->gets);
        free(am);
}

int uam_open(struct unet_ep *ep, const struct uam_opts *opts, struct uam **out)
{
        struct uam *am = calloc(1, sizeof *am);
        int err;

        if (am == NULL)
                return -ENOMEM;
        am->ep = ep;
        am->seg = unet_ep_segment(ep);
        err = fill_opts(opts, am->seg.tx_bytes, &am->o);
        if (err == 0)
                err = alloc_tables(am);
        if (err == 0)
                err = am_tree_new(am);
        if (err != 0) {
                free_all(am);
                return err;
        }
        am->mask = (uint16_t)(ring_size(am->o.window) - 1);
        am->ack_every = (uint16_t)MAX(am->o.window / 4, 1u);
        am->time.now = real_now;
        am->handler[AM_ID_GET] = (struct am_handler){am_serve_get, NULL, UAM_SHORT | UAM_REQUEST};
        *out = am;
        return 0;
}

void am_set_time(struct uam *am, struct am_time time)
{
        am->time = time;
}

/* Acknowledges what came last, and says goodbye; `again`: to those who may not have heard it. */
static void say_bye(struct uam *am, bool again)
{
        for (uint32_t r = 0; r <= am->o.ranks; r++) {
                struct am_peer *p = am->peer[r];
                if (p == NULL || p->err != 0 || (again && p->lossless))
                        continue;
                am_control(p, AM_BYE, 0);
                am_link_flush(p->link);
        }
}

/* Somebody may not have heard it. */
static bool unheard(const struct uam *am)
{
        for (uint32_t r = 0; r < am->o.ranks; r++)
                if (am->peer[r] != NULL && !am->peer[r]->lossless && am->peer[r]->err == 0)
                        return true;
        return false;
}

/* Where messages are lost it is said until the peer says it, too, or hangs up. */
static void say_bye_until(struct uam *am, nstime until)
{
        nstime now = am->time.now(am->time.arg);

        say_bye(am, false);
        for (nstime pause = BYE_FIRST; now < until && unheard(am);
             pause = MIN(2 * pause, BYE_MOST)) {
                nstime next = MIN(now + pause, until);
                for (; now < next && unheard(am); now = am->time.now(am->time.arg))
                        uam_wait(am, next - now);
                say_bye(am, true);
        }
}

static bool replies_acked(const struct uam *am)
{
        for (uint32_t r = 0; r <= am->o.ranks; r++) {
                const struct am_peer *p = am->peer[r];
                if (p != NULL && !p->lossless && p->tx[AM_SEQ_REP].una != p->tx[AM_SEQ_REP].nxt)
                        return false;
        }
        return true;
}

void uam_close(struct uam *am, int64_t timeout)
{
        nstime until;

        if (am == NULL || am->token.peer != NULL)
                return;
        until = am->time.now(am->time.arg) + MAX(timeout, 0);
        uam_flush(am, UAM_ALL, MAX(timeout, 0));
        while (!replies_acked(am) && am->time.now(am->time.arg) < until)
                uam_wait(am, until - am->time.now(am->time.arg));
        am->closing = true;
        am_idle(am, false);
        say_bye_until(am, until);
        for (uint32_t r = 0; r <= am->o.ranks; r++)
                if (am->peer[r] != NULL && am->peer[r]->err == 0)
                        am_drop_sent(am->peer[r], -EPIPE);
        free_all(am);
}

/* ---- connecting ---- */

static struct am_link *link_of(struct uam *am, struct ep_link *l)
{
        struct am_link *k;

        for (uint32_t i = 0; i < am->nlinks; i++)
                if (am->links[i].l == l)
                        return &am->links[i];
        k = &am->links[am->nlinks++];
        *k = (struct am_link){.l = l, .at = (uint32_t)(l - am->ep->link)};
        return k;
}

/* Messages that take places of the same receiver: those by this link, and by other links of its
 * port. */
static uint32_t sharers(const struct uam *am, const struct am_link *k)
{
        uint32_t n = k->npeers;

        for (uint32_t i = 0; i < am->nlinks && k->l->l.port != NULL; i++)
                if (&am->links[i] != k && am->links[i].l->l.port == k->l->l.port)
                        n += am->links[i].npeers;
        return n;
}

/* §5.1 of the paper: 4w places a peer; w requests and w replies of ours, as many of the peer's; and
 * two acknowledgements. */
static bool has_places(const struct uam *am, const struct am_link *k)
{
        uint64_t theirs = (uint64_t)(sharers(am, k) + 1) * (2 * am->o.window + 2);

        return am->nfree - am->reserve >= am->o.window && theirs <= am->o.places;
}

static int note_chan(struct uam *am, uint32_t chan, struct am_peer *p)
{
        if (chan >= am->nchans) {
                uint32_t n = MAX(chan + 1, am->nchans * 2);
                struct am_peer **bigger = realloc(am->by_chan, n * sizeof *bigger);
                if (bigger == NULL)
                        return -ENOMEM;
                memset(bigger + am->nchans, 0, (n - am->nchans) * sizeof *bigger);
                am->by_chan = bigger;
                am->nchans = n;
        }
        am->by_chan[chan] = p;
        return 0;
}

/* A peer and its rings of slots, in one piece. */
static struct am_peer *peer_new(struct uam *am, uint32_t rank, uint32_t chan, struct ep_link *l)
{
        size_t ring = am->mask + 1u;
        size_t each = sizeof(struct am_held *) + sizeof(uint32_t);
        struct am_peer *p = calloc(1, sizeof *p + AM_SEQS * ring * each);
        struct am_held **held = (struct am_held **)(p + 1);
        uint32_t *slots = (uint32_t *)(held + AM_SEQS * ring);

        if (p == NULL)
                return NULL;
        p->rx[AM_SEQ_REQ].held = held;
        p->rx[AM_SEQ_REP].held = held + ring;
        p->am = am;
        p->rank = rank;
        p->chan = chan;
        p->tag = am->ep->chan[chan].tx_tag;
        p->lossless = l->l.ch->caps.lossless && !l->l.tagged;
        p->csum = l->l.ch->caps.csum;
        p->tx[AM_SEQ_REQ].slot = slots;
        p->tx[AM_SEQ_REP].slot = slots + ring;
        p->rto = MIN(MAX(20 * NS_PER_MS, am->o.rto_min), NS_PER_S);
        return p;
}

/* `at`: its place in the table of ranks. */
static int connect_at(struct uam *am, uint32_t at, uint32_t rank, uint32_t chan)
{
        struct ep_chan *c = ep_chan(am->ep, chan);
        struct ep_link *l;
        struct am_link *k;
        struct am_peer *p;
        int err;

        if (c == NULL)
                return -EBADF;
        if (am->peer[at] != NULL)
                return -EEXIST;
        l = &am->ep->link[c->link];
        k = link_of(am, l);
        if (!has_places(am, k))
                return -ENOBUFS;
        p = peer_new(am, rank, chan, l);
        err = p == NULL ? -ENOMEM : note_chan(am, chan, p);
        if (err != 0) {
                free(p);
                return err;
        }
        p->link = k;
        k->npeers++;
        if (!l->l.tagged)
                k->peer = p;
        am->reserve += am->o.window;
        am->peer[at] = p;
        am->npeers++;
        return 0;
}

int uam_connect(struct uam *am, uint32_t rank, uint32_t chan)
{
        if (rank >= am->o.ranks || rank == am->o.rank)
                return -EINVAL;
        return connect_at(am, rank, rank, chan);
}

/* Both ends of a channel of its own: what is sent on one arrives on the other. */
int uam_connect_self(struct uam *am)
{
        uint32_t near, far;
        int err = unet_chan_pair(am->ep, am->ep, &near, &far);

        if (err != 0)
                return err;
        err = connect_at(am, am->o.rank, am->o.rank, near);
        if (err == 0)
                err = connect_at(am, am->o.ranks, am->o.rank, far);
        return err;
}

/* ---- small things ---- */

uint32_t uam_rank(const struct uam *am)
{
        return am->o.rank;
}

uint32_t uam_ranks(const struct uam *am)
{
        return am->o.ranks;
}

void *uam_memory(const struct uam *am, size_t *bytes)
{
        size_t used = (size_t)am->nbufs * am->o.buffer_bytes;

        if (bytes != NULL)
                *bytes = am->seg.tx_bytes - used;
        return am->seg.base + used;
}

int uam_register(struct uam *am, unsigned id, uam_handler *fn, unsigned kinds, void *ctx)
{
        if (id >= UAM_HANDLERS || kinds > UAM_ANY ||
            !(kinds & (UAM_SHORT | UAM_MEDIUM | UAM_LONG)) || !(kinds & (UAM_REQUEST | UAM_REPLY)))
                return -EINVAL;
        am->handler[id] = (struct am_handler){fn, ctx, kinds};
        return 0;
}

void uam_segment(struct uam *am, void *base, size_t len)
{
        am->mem = base;
        am->mem_len = len;
}

void uam_on_lost(struct uam *am, uam_lost_fn *fn, void *arg)
{
        am->lost = fn;
        am->lost_arg = arg;
}

uint64_t uam_stat(const struct uam *am, enum uam_stat what)
{
        return am->stat[what];
}

const char *uam_stat_text(enum uam_stat what)
{
        static const char *const text[] = {
#define TEXT(name, words) words,
                UAM_STATS(TEXT)
#undef TEXT
        };

        return (unsigned)what < UAM_NSTATS ? text[what] : "";
}

/* ---- ends ---- */

static bool owed_us(const struct am_peer *p)
{
        return p->tx[AM_SEQ_REQ].una != p->tx[AM_SEQ_REQ].nxt;
}

/* A handler, too: what came with the message that told is still to be handled. */
static void run_lost(struct am_peer *p)
{
        struct uam *am = p->am;
        struct uam_token was = am->token;

        am->token = (struct uam_token){.peer = p, .kind = AM_REP};
        am->lost(am->lost_arg, p->rank, p->err);
        am->token = was;
}

void am_peer_ends(struct am_peer *p, int err)
{
        struct uam *am = p->am;
        bool tell = err != 0 || owed_us(p);

        if (p->err != 0)
                return;
        p->err = err != 0 ? err : -EPIPE;
        am->ends++;
        am_drop_sent(p, p->err);
        am_fail_gets(p, p->err);
        am_forget_held(p);
        if (tell && am->lost != NULL && !am->closing)
                run_lost(p);
}

void am_cut_off(struct am_peer *p, int err)
{
        if (p->err != 0)
                return;
        am_control(p, AM_BYE, (uint16_t)-err);
        p->link->dirty = true;
        am_peer_ends(p, err);
}
