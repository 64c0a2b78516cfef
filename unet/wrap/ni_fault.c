/* Wrapper `fault`. */
#include "unet/wrap/ni_fault.h"

#include <errno.h>
#include <stdlib.h>

#include "unet/wrap/chance.h"
#include "unet/wrap/wrap.h"

#define HELD_MAX      64   /* delayed at one time; more are passed on at once */
#define NAMES_MAX     4096 /* frames to report or swallow; beyond it none is lost or doubled */
#define DELAY_DEFAULT 16u

struct held {
        uint32_t due; /* step at which it goes on */
        struct unet_tx tx;
        struct unet_range more[UNET_RANGES_MAX - 1];
        uint8_t inl[UNET_INLINE_MAX];
};

struct names {
        uint32_t frame[NAMES_MAX];
        _Atomic int n;
};

struct fault {
        struct wrap w;
        struct fault_params p;
        struct prng_fast rng;
        struct counters *cnt;
        uint32_t step;
        struct held held[HELD_MAX];
        _Atomic int nheld;     /* pending() may be asked by another thread */
        struct names finished; /* of lost messages, to be reported */
        struct names doubled;  /* of duplicates: one report too many will come */
};

static struct fault *of(struct unet_chan *ch)
{
        return (struct fault *)ch;
}

/* ---- messages held back ---- */

static bool pass_on(struct fault *f, const struct unet_tx *tx)
{
        return f->w.inner->ops->send(f->w.inner, tx, 1) == 1;
}

static void hold(struct fault *f, const struct unet_tx *tx, uint32_t steps)
{
        struct held *h = &f->held[f->nheld++];

        h->due = f->step + steps;
        h->tx = *tx;
        h->tx.inl = h->inl;
        h->tx.more = h->more;
        memcpy(h->inl, tx->inl, tx->inl_len);
        if (tx->nmore != 0)
                memcpy(h->more, tx->more, tx->nmore * sizeof tx->more[0]);
}

static void remove_held(struct fault *f, int i)
{
        f->nheld--;
        for (; i < f->nheld; i++) {
                f->held[i] = f->held[i + 1];
                f->held[i].tx.inl = f->held[i].inl;
                f->held[i].tx.more = f->held[i].more;
        }
}

/* One step; passes on what is due, if there is room. */
static void advance(struct fault *f)
{
        bool any = false;

        f->step++;
        for (int i = 0; i < f->nheld;) {
                if ((int32_t)(f->step - f->held[i].due) >= 0 && pass_on(f, &f->held[i].tx)) {
                        remove_held(f, i);
                        any = true;
                } else {
                        i++;
                }
        }
        if (any)
                f->w.inner->ops->flush(f->w.inner);
}

/* ---- sending ---- */

static bool name_add(struct names *s, uint32_t frame)
{
        if (frame == 0)
                return true;
        if (s->n == NAMES_MAX)
                return false;
        s->frame[s->n++] = frame;
        return true;
}

static bool name_remove(struct names *s, uint32_t frame)
{
        for (int i = 0; i < s->n; i++) {
                if (s->frame[i] == frame) {
                        s->frame[i] = s->frame[--s->n];
                        return true;
                }
        }
        return false;
}

static bool lose(struct fault *f, const struct unet_tx *tx)
{
        if (!name_add(&f->finished, tx->frame))
                return pass_on(f, tx);
        count_drop(f->cnt, DROP_LINK_LOST);
        return true;
}

static bool corrupt(struct fault *f, const struct unet_tx *tx)
{
        uint8_t inl[UNET_INLINE_MAX];
        struct unet_tx bad = *tx;
        uint64_t bit;

        if (tx->inl_len == 0)
                return lose(f, tx);
        bit = chance_upto(&f->rng, tx->inl_len * 8u - 1);
        memcpy(inl, tx->inl, tx->inl_len);
        inl[bit / 8] ^= (uint8_t)(1u << bit % 8);
        bad.inl = inl;
        return pass_on(f, &bad);
}

static bool duplicate(struct fault *f, const struct unet_tx *tx)
{
        if (!pass_on(f, tx))
                return false;
        if (f->doubled.n < NAMES_MAX && pass_on(f, tx))
                name_add(&f->doubled, tx->frame);
        return true;
}

/* What happens to one message; draws do not depend on the parameters. False: the queue is full. */
static bool send_one(struct fault *f, const struct unet_tx *tx)
{
        bool lost = chance(&f->rng, f->p.loss), twice = chance(&f->rng, f->p.duplicate);
        bool late = chance(&f->rng, f->p.delay), behind = chance(&f->rng, f->p.reorder);
        bool bad = chance(&f->rng, f->p.corrupt);

        if (lost)
                return lose(f, tx);
        if (bad)
                return corrupt(f, tx);
        if ((late || behind) && f->nheld < HELD_MAX) {
                hold(f, tx, late ? f->p.delay_by : 2);
                return true;
        }
        return twice ? duplicate(f, tx) : pass_on(f, tx);
}

static int fault_send(struct unet_chan *ch, const struct unet_tx *tx, int n)
{
        struct fault *f = of(ch);
        int i;

        for (i = 0; i < n && f->w.inner->ops->room(f->w.inner) > 0 && send_one(f, &tx[i]); i++)
                advance(f);
        if (i < n)
                count(f->cnt, COUNT_NI_TX_FULL);
        return i;
}

static uint32_t fault_room(struct unet_chan *ch)
{
        uint32_t room = wrap_room(ch), held = (uint32_t)of(ch)->nheld;

        return room > held ? room - held : 0;
}

static int fault_reap(struct unet_chan *ch, uint32_t *frame, int n)
{
        struct fault *f = of(ch);
        int k = 0, got;

        while (k < n && f->finished.n > 0)
                frame[k++] = f->finished.frame[--f->finished.n];
        got = k < n ? f->w.inner->ops->reap(f->w.inner, frame + k, n - k) : 0;
        for (int i = k, end = k + got; i < end; i++)
                if (!name_remove(&f->doubled, frame[i]))
                        frame[k++] = frame[i];
        return k;
}

static int fault_recv(struct unet_chan *ch, struct unet_rx *rx, int n)
{
        struct fault *f = of(ch);

        if (f->nheld > 0)
                advance(f);
        return f->w.inner->ops->recv(f->w.inner, rx, n);
}

/* A waiter must not fall asleep over a message that is only held back here. */
static bool fault_pending(struct unet_chan *ch)
{
        return of(ch)->nheld > 0 || of(ch)->finished.n > 0 || wrap_pending(ch);
}

static const struct unet_ni_ops fault_ops = {
        .name = "fault",
        .send = fault_send,
        .recv = fault_recv,
        .release = wrap_release,
        .reap = fault_reap,
        .room = fault_room,
        .pending = fault_pending,
        .want_room = wrap_want_room,
        .flush = wrap_flush,
};

/* ---- making ---- */

struct unet_chan *ni_fault_new(struct unet_chan *inner, const struct fault_params *p,
                               struct counters *cnt)
{
        struct fault *f = calloc(1, sizeof *f);

        if (f == NULL)
                return NULL;
        f->w = (struct wrap){.base = {.ops = &fault_ops, .caps = inner->caps}, .inner = inner};
        f->w.base.caps.csum |= p->corrupt > 0;
        f->w.base.caps.copied = false;
        f->w.base.caps.lossless &= p->loss + p->duplicate + p->reorder + p->delay + p->corrupt <= 0;
        f->p = *p;
        f->p.delay_by = p->delay_by != 0 ? p->delay_by : DELAY_DEFAULT;
        f->cnt = cnt;
        prng_fast_init(&f->rng, p->seed);
        return &f->w.base;
}

void ni_fault_end(struct unet_chan *ch)
{
        struct fault *f = of(ch);

        for (int i = 0; i < f->nheld; i++)
                pass_on(f, &f->held[i].tx);
        f->w.inner->ops->flush(f->w.inner);
        free(f);
}

static void close_link(struct unet_chan *ch, bool forget)
{
        struct wrap w = *wrap_of(ch);

        ni_fault_end(ch);
        wrap_close_inner(&w, forget);
}

int ni_fault_link(struct link *l, const struct fault_params *p, struct counters *cnt)
{
        static const struct link_ops ops = {
                .gone = wrap_gone, .arm = wrap_arm, .peer_cpu = wrap_peer_cpu, .close = close_link};
        struct unet_chan *ch = ni_fault_new(l->ch, p, cnt);

        if (ch == NULL)
                return -ENOMEM;
        wrap_link(l, wrap_of(ch), &ops);
        return 0;
}

/* ---- reading parameters ---- */

static int parse_one(const char *key, size_t len, const char *value, struct fault_params *p)
{
        const struct {
                const char *name;
                double *to;
        } chances[] = {{"loss", &p->loss},
                       {"duplicate", &p->duplicate},
                       {"reorder", &p->reorder},
                       {"delay", &p->delay},
                       {"corrupt", &p->corrupt}};
        unsigned long long n;
        char *end;

        for (size_t i = 0; i < ARRAY_LEN(chances); i++) {
                if (strlen(chances[i].name) != len || memcmp(chances[i].name, key, len) != 0)
                        continue;
                *chances[i].to = strtod(value, &end);
                return end != value && (*end == ',' || *end == '\0') && *chances[i].to >= 0 &&
                                       *chances[i].to <= 1
                               ? 0
                               : -EINVAL;
        }
        n = strtoull(value, &end, 10);
        if (*value < '0' || *value > '9' || (*end != ',' && *end != '\0'))
                return -EINVAL;
        if (len == 4 && memcmp(key, "seed", 4) == 0)
                p->seed = n;
        else if (len == 8 && memcmp(key, "delay_by", 8) == 0 && n <= UINT32_MAX / 2)
                p->delay_by = (uint32_t)n;
        else
                return -EINVAL;
        return 0;
}

int fault_parse(const char *spec, struct fault_params *p)
{
        struct fault_params read = {0};
        const char *at = spec, *eq;

        while (*at != '\0') {
                eq = at + strcspn(at, "=,");
                if (*eq != '=' || parse_one(at, (size_t)(eq - at), eq + 1, &read) != 0)
                        return -EINVAL;
                at = eq + strcspn(eq, ",");
                at += *at == ',';
        }
        *p = read;
        return 0;
}
