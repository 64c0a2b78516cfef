/* From a seed to a plan. See plan.h. */
#include "tests/sim/plan.h"

#include "tcp/tcp_cc.h"

#define KB 1000u

static uint32_t below(struct prng_fast *r, uint32_t n)
{
        return prng_fast_below(r, n);
}

static bool one_in(struct prng_fast *r, uint32_t n)
{
        return prng_fast_chance(r, 1, n);
}

/* Evenly in its logarithm, so that small and large are as frequent. */
static uint32_t some_size(struct prng_fast *r, uint32_t lo, uint32_t hi)
{
        uint32_t n = lo;

        while (n < hi && !one_in(r, 8))
                n += 1 + below(r, n);
        return MIN(n, hi);
}

/* ---- the link ---- */

static void make_speed(struct prng_fast *r, struct sim_params *q)
{
        static const uint32_t mtu[] = {1500, 1500, 1500, 9000, 576, 296, 128};

        q->mtu = mtu[below(r, ARRAY_LEN(mtu))];
        q->delay = one_in(r, 3) ? below(r, 200) * NS_PER_US : below(r, 80) * NS_PER_MS;
        q->rate = one_in(r, 2) ? 1000000ull * some_size(r, 1, 1000) : 0;
        q->queue_bytes = q->rate != 0 && one_in(r, 2) ? 1 + below(r, 200000) : 0;
        q->tx_slots = one_in(r, 4) ? 2 + below(r, 60) : 0;
        q->rx_slots = one_in(r, 8) ? 8 + below(r, 100) : 0;
        q->csum = true;
}

enum { LOSS = 1, BURSTS = 2, JITTER = 4, DUPLICATES = 8, REORDERING = 16, CORRUPTION = 32 };

static void make_trouble(struct prng_fast *r, struct sim_params *q, unsigned what)
{
        if (what & LOSS)
                q->loss = below(r, 60) / 1000.0;
        if (what & BURSTS) {
                q->burst_start = 0.005;
                q->burst_end =
                        /* Of a burst as long as all retries TCP gives up. */
                        0.5 + below(r, 40) / 100.0;
                q->burst_loss = one_in(r, 2) ? 0.5 : 0;
        }
        q->jitter = what & JITTER ? below(r, 20) * NS_PER_MS : 0;
        q->duplicate = what & DUPLICATES ? below(r, 80) / 1000.0 : 0;
        if (what & REORDERING) {
                q->reorder = below(r, 200) / 1000.0;
                q->reorder_by = below(r, 40) * NS_PER_MS;
        }
        q->corrupt = what & CORRUPTION ? below(r, 20) / 1000.0 : 0;
}

static void make_link(struct plan *p, struct prng_fast *r)
{
        bool same = one_in(r, 3);
        uint32_t mtu;

        for (int i = 0; i < 2; i++) {
                make_speed(r, &p->dir[i]);
                make_trouble(r, &p->dir[i], one_in(r, 3) ? 0 : below(r, 64));
        }
        mtu = p->dir[0].mtu;
        if (same)
                p->dir[1] = p->dir[0];
        else if (one_in(r, 2))
                p->dir[1].mtu =
                        /* else: paths whose ends do not agree, which the MSS option must solve. */
                        mtu;
        for (int i = 0; i < 2; i++)
                if (p->dir[i].queue_bytes != 0)
                        p->dir[i].queue_bytes += 3 * p->dir[i].mtu;
        p->kind = "link";
        switch (below(r, 10)) {
        case 0:
                p->kind = "one-way loss";
                p->dir[0].loss = 0.2;
                p->heavy = true;
                break;
        case 1:
                p->kind = "loss of acknowledgements";
                p->dir[1].loss = 0.2;
                p->heavy = true;
                break;
        case 2:
                p->kind = "clean";
                make_trouble(r, &p->dir[0], 0);
                make_trouble(r, &p->dir[1], 0);
                p->dir[0].loss = p->dir[1].loss = p->dir[0].burst_start = p->dir[1].burst_start = 0;
        }
}

/* ---- memory ---- */

static void make_size(struct plan *p, struct prng_fast *r)
{
        p->size = pair_size_default;
        if (!one_in(r, 6))
                return;
        p->size.tx = (struct frame_geom){
                {[FRAME_SMALL] = 24 + below(r, 100), [FRAME_LARGE] = below(r, 8)}};
        p->size.rx = (struct frame_geom){
                {[FRAME_SMALL] = 64 + below(r, 300), [FRAME_LARGE] = 2 + below(r, 8)}};
        p->size.segs = 256 + below(r, 512);
}

/* ---- applications ---- */

static void make_options(struct prng_fast *r, struct tcp_opts *o)
{
        tcp_opts_default(o);
        o->nodelay = one_in(r, 3);
        o->quickack = one_in(r, 6);
        o->cc = (uint8_t)below(r, TCP_CC_COUNT);
        o->no_sack = one_in(r, 5);
        o->no_timestamps = one_in(r, 4);
        o->no_wscale = one_in(r, 5);
        o->oobinline = 1; /* urgent bytes stay where they are, so that a stream has one content */
        o->rcvbuf = one_in(r, 4) ? some_size(r, 1000, 200 * KB) : 0;
        o->sndbuf = one_in(r, 4) ? some_size(r, 2000, 200 * KB) : 0;
        o->maxseg = one_in(r, 10) ? (uint16_t)(88 + below(r, 1000)) : 0;
        o->window_clamp = one_in(r, 20) ? 2000 + below(r, 20000) : 0;
        o->keepalive = one_in(r, 6);
        o->keepidle_s = 1 + below(r, 20);
        o->keepintvl_s = 1 + below(r, 5);
}

static void make_habits(struct prng_fast *r, struct habits *h, uint32_t most)
{
        *h = (struct habits){.to_write = one_in(r, 6) ? below(r, 3) : some_size(r, 100, most)};
        h->max_write = one_in(r, 6) ? 1 + below(r, 20) : some_size(r, 100, 200 * KB);
        h->max_read = one_in(r, 6) ? 1 + below(r, 40) : some_size(r, 100, 200 * KB);
        if (h->max_write < 100)
                h->to_write = MIN(h->to_write, 10 * KB);
        h->answers = one_in(r, 4);
        h->idle = one_in(r, 3) ? below(r, 90) : 0;
        h->urgent = one_in(r, 8) ? 20 : 0;
        if (one_in(r, 5)) {
                h->pause_at = below(r, most);
                h->pause = some_size(r, 10, 100 * KB) * NS_PER_MS;
        }
}

/* Somebody leaves before the end. */
static void make_leaver(struct prng_fast *r, struct talk_plan *t)
{
        struct habits *h = &t->habits[below(r, 2)];

        h->leaves = 1 + below(r, one_in(r, 2) ? 200 : 5000) * NS_PER_MS;
        h->aborts = one_in(r, 2);
}

static void make_talk(struct plan *p, struct prng_fast *r, struct talk_plan *t, uint32_t most)
{
        *t = (struct talk_plan){.from = one_in(r, 4),
                                .start = p->ntalks > 1 && one_in(r, 2) ? below(r, 3000) * NS_PER_MS
                                                                       : 0,
                                .crossed = one_in(r, 16)};
        for (int i = 0; i < 2; i++) {
                make_options(r, &t->opts[i]);
                make_habits(r, &t->habits[i], most);
        }
        for (int i = 0; i < 2; i++)
                if (t->habits[i].max_read < 100)
                        t->habits[!i].to_write = MIN(t->habits[!i].to_write, 10 * KB);
        if (t->habits[0].answers && t->habits[1].answers)
                t->habits[0].answers = false;
        if (one_in(r, 6))
                make_leaver(r, t);
}

static void make_talks(struct plan *p, struct prng_fast *r)
{
        uint32_t most = 200 * KB;

        p->backlog = one_in(r, 4) ? below(r, 4) : 64;
        p->ntalks = one_in(r, 3) ? 1 + below(r, PLAN_TALKS) : 1 + below(r, 2);
        if (p->ntalks > 2)
                most = 100 * KB / p->ntalks;
        else if (!one_in(r, 8))
                most = 120 * KB;
        if (p->heavy)
                most = MIN(most, 10 * KB);
        for (unsigned i = 0; i < p->ntalks; i++)
                make_talk(p, r, &p->talk[i], most);
}

/* Keepalive tells those who only wait. */
static void make_death(struct plan *p, struct prng_fast *r)
{
        p->dies = 1 + below(r, 3000) * NS_PER_MS;
        p->kind = "a side dies";
        for (unsigned i = 0; i < p->ntalks; i++)
                p->talk[i].opts[0].keepalive = 1;
}

/* ---- how long it may take ---- */

static nstime wire_time(const struct sim_params *q, uint64_t bytes)
{
        return q->rate != 0 ? (nstime)(bytes * 8 * NS_PER_S / q->rate) : 0;
}

/*
 * Deliberately generous, yet finite: each segment may need a round trip and its timeout for itself,
 * with some to spare for loss and its back-off (without SACK and timestamps a timeout stays long
 * until a segment gets through at once: RFC 6298 §5.7); silly windows make small segments; and
 * applications sleep. What stalls, stalls for ever.
 */
static void set_limit(struct plan *p)
{
        nstime rtt = p->dir[0].delay + p->dir[1].delay + p->dir[0].jitter + p->dir[1].jitter +
                     p->dir[0].reorder_by + p->dir[1].reorder_by;
        uint64_t bytes = 0, segments = 0;
        nstime pauses = 0;

        for (unsigned i = 0; i < p->ntalks; i++) {
                for (int s = 0; s < 2; s++) {
                        const struct habits *h = &p->talk[i].habits[s];
                        bytes += h->to_write;
                        segments += 10 + h->to_write / 40;
                        pauses = MAX(pauses, h->pause + h->leaves);
                }
        }
        p->limit = (p->heavy ? 7200 : 1800) * NS_PER_S + 4 * pauses +
                   (nstime)segments * (rtt + 250 * NS_PER_MS) +
                   20 * (wire_time(&p->dir[0], 4 * bytes) + wire_time(&p->dir[1], 4 * bytes));
}

void plan_make(struct plan *p, uint64_t seed)
{
        struct prng_fast r;

        *p = (struct plan){.seed = seed};
        prng_fast_init(&r, seed ^ 0x706c616eu);
        make_link(p, &r);
        make_size(p, &r);
        make_talks(p, &r);
        p->memory = one_in(&r, 8);
        if (p->memory)
                p->kind = "shared memory";
        p->recovers = one_in(&r, 8) ? 1 + below(&r, 50) : 0;
        if (one_in(&r, 20))
                make_death(p, &r);
        set_limit(p);
}
