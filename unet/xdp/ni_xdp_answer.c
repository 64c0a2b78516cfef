/* Provider `xdp`, in mode XDP_MODE_TCX: SYNs that the program answers. See
 * ni_answer.h, tcx_ring.h. */
#include "unet/xdp/ni_xdp_answer.h"

#include "unet/xdp/ni_xdp.h"

#define AHEAD 64u /* answers that the stack has not seen yet, at most */

static_assert(ARRAY_LEN(((struct ni_xdp *)0)->note) >= AHEAD, "one for each");

static struct ni_xdp *xdp(struct unet_chan *ch)
{
        return (struct ni_xdp *)ch;
}

static void add_mark(struct ni_xdp *x, const struct unet_ends *e, uint32_t by)
{
        uint32_t at = tcx_mark(e->peer.raw, e->own.raw, e->peer_port.raw, e->own_port.raw);

        __atomic_fetch_add(&x->answers->marks[at % TCX_MARKS], by, __ATOMIC_RELAXED);
}

static void allow(struct tcx_answers *a)
{
        WRITE_ONCE(a->allowed, a->seen + a->ahead);
}

bool ni_xdp_note(struct ni_xdp *x, const struct xdp_desc *d)
{
        const uint8_t *syn = x->umem + d->addr;
        struct ni_xdp_note *n;
        struct tcx_note came;
        be32 seq;

        if (x->answers == NULL || d->options != TCX_ANSWERED || d->len != TCX_ANSWER_BYTES ||
            d->addr % x->geom.chunk_bytes > x->geom.chunk_bytes - TCX_NOTE_AT - sizeof came)
                return false;
        if (x->notes == ARRAY_LEN(x->note))
                /* Never, but by rubbish in the ring: it is as if it had not been answered. */
                return true;
        n = &x->note[x->notes++];
        memcpy(&came, syn + TCX_NOTE_AT, sizeof came);
        memcpy(&n->ends.peer, syn + XDP_ETH_BYTES + 12, 4);
        memcpy(&n->ends.own, syn + XDP_ETH_BYTES + 16, 4);
        memcpy(&n->ends.peer_port, syn + XDP_ETH_BYTES + 20, 2);
        memcpy(&n->ends.own_port, syn + XDP_ETH_BYTES + 22, 2);
        memcpy(&seq, syn + XDP_ETH_BYTES + 24, 4);
        n->seq = be32_get(seq);
        n->taken = false;
        n->round = came.round;
        n->answer = (struct unet_answer){(nstime)came.at, came.iss, came.wnd, came.wscale};
        return true;
}

void ni_xdp_notes_done(struct ni_xdp *x, bool all)
{
        uint32_t left = 0, seen = 0;

        for (uint32_t i = 0; i < x->notes; i++) {
                const struct ni_xdp_note *n = &x->note[i];
                if (!all && !n->taken) {
                        x->note[left++] = *n;
                } else if (n->round == (uint8_t)x->answers->round) {
                        add_mark(x, &n->ends, -1u);
                        seen++;
                }
        }
        x->answers->seen += seen;
        x->notes = left;
        allow(x->answers);
}

static bool took(struct unet_chan *ch, const struct unet_ends *e, uint32_t seq,
                 struct unet_answer *a)
{
        struct ni_xdp *x = xdp(ch);

        for (uint32_t i = 0; i < x->notes; i++) {
                struct ni_xdp_note *n = &x->note[i];
                if (!n->taken && n->seq == seq && memcmp(&n->ends, e, sizeof *e) == 0) {
                        n->taken = true;
                        *a = n->answer;
                        return true;
                }
        }
        return false;
}

static struct tcx_answer *place_of(const struct ni_xdp *x, const struct unet_ends *e)
{
        return &x->answers->place[tcx_place(e->peer.raw, e->own_port.raw) % TCX_PLACES];
}

static bool is_of(const struct tcx_answer *a, const struct unet_ends *e)
{
        const uint8_t *ip = a->frame + XDP_ETH_BYTES;

        return memcmp(ip + 16, &e->peer, 4) == 0 && memcmp(ip + 12, &e->own, 4) == 0 &&
               memcmp(ip + 20, &e->own_port, 2) == 0;
}

static bool knows(struct unet_chan *ch, const struct unet_ends *e, nstime now)
{
        const struct ni_xdp *x = xdp(ch);
        const struct tcx_answer *a = place_of(x, e);

        return (a->epoch == 0 || a->epoch == x->answers->epoch) && (nstime)a->until > now &&
               is_of(a, e);
}

static void mistrust(struct unet_chan *ch, const struct unet_ends *e, nstime until)
{
        struct tcx_answer *a = place_of(xdp(ch), e);

        if (!is_of(a, e))
                return; /* of another host since */
        __atomic_store_n(&a->epoch, 0, __ATOMIC_RELAXED);
        a->until = (uint64_t)until;
}

static bool learn(struct unet_chan *ch, const struct unet_ends *e, const struct unet_lesson *l)
{
        struct ni_xdp *x = xdp(ch);
        struct tcx_answer *a = place_of(x, e);

        if (l->len != TCX_ANSWER_BYTES)
                return false;
        if (x->answers->epoch == 0)
                WRITE_ONCE(x->answers->epoch, 1);
        memcpy(x->answers->secret, l->secret, sizeof x->answers->secret);
        __atomic_store_n(&a->epoch, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&a->times, a->times + 1, __ATOMIC_RELAXED);
        atomic_thread_fence(memory_order_release);
        a->until = (uint64_t)l->until;
        memcpy(a->ends, l->ends, sizeof a->ends);
        memcpy(a->frame, l->frame, l->len);
        __atomic_store_n(&a->epoch, x->answers->epoch, __ATOMIC_RELEASE);
        if (x->answers->ahead_epoch != x->answers->epoch || l->ahead < x->answers->ahead)
                x->answers->ahead = MIN(l->ahead, AHEAD);
        x->answers->ahead_epoch = x->answers->epoch;
        allow(x->answers);
        return true;
}

static void forget(struct unet_chan *ch)
{
        struct ni_xdp *x = xdp(ch);
        uint32_t epoch = x->answers->epoch;

        if (epoch != 0) /* nothing was learnt */
                WRITE_ONCE(x->answers->epoch, epoch + 1 != 0 ? epoch + 1 : 1);
}

static void count_ends(struct unet_chan *ch, const struct unet_ends *e, int by)
{
        if (xdp(ch)->answers->counted)
                add_mark(xdp(ch), e, (uint32_t)by);
}

static bool counts(struct unet_chan *ch)
{
        struct tcx_answers *a = xdp(ch)->answers;

        if (a->counted)
                return true;
        WRITE_ONCE(a->round, a->round + 1);
        memset(a->marks, 0, sizeof a->marks);
        a->seen = __atomic_load_n(&a->made, __ATOMIC_RELAXED);
        WRITE_ONCE(a->counted, 1);
        return false;
}

/* What was counted may be wrong. */
void ni_xdp_answers_repair(struct ni_xdp *x)
{
        forget(&x->base);
        WRITE_ONCE(x->answers->counted, 0);
        x->notes = 0;
}

const struct unet_answer_ops ni_xdp_answer_ops = {
        .took = took,
        .knows = knows,
        .learn = learn,
        .mistrust = mistrust,
        .forget = forget,
        .count = count_ends,
        .counts = counts,
};
