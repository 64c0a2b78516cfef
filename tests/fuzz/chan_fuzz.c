/*
 * An endpoint beside a hostile process, over a shared-memory channel: endpoint b is the victim, a's
 * region and station are written by whoever made the input (stack_fuzz.c is the same for protocol
 * stacks).
 *
 * The input is a program. Honest steps send both ways, receive, give back, wait and close; hostile
 * ones write what a peer can: slots of the ring with any lengths, flags and ranges, returned names
 * that never were lent, the control words, the bell, any word anywhere. What the victim is shown
 * must be its to read, its calls return, and a second channel of it, with an honest peer, goes on
 * to the byte.
 */
#include "tests/fuzz/choices.h"
#include "tests/fuzz/fuzz.h"

#include <unet/unet.h>

#include "base/base.h"
#include "unet/ep.h"
#include "unet/shm/shm_link.h"

#define STEPS   200
#define KEPT    16 /* messages that the victim holds on to */
#define BUFFERS 24
#define BUFFER  2048u

struct world {
        struct choices in;
        struct unet_ep *a, *b, *c; /* hostile, victim, honest */
        uint32_t ca, cb, cc, bc;   /* channels a-b and c-b, as each end calls them */
        struct unet_segment sb;
        struct shm_region *region; /* the hostile one's */
        size_t region_bytes;
        uint8_t *station;
        size_t station_bytes;
        uint32_t pos; /* of the slot that the victim looks at next, as far as we know */
        struct unet_recv kept[KEPT];
        uint32_t nkept;
        uint32_t sent, seen; /* numbers of the honest channel's messages */
        bool direct;
};

/* ---- the victim's steps ---- */

static void look_at(const struct world *w, const struct unet_recv *m)
{
        uint64_t sum = m->inl_len;
        uint32_t ones = 0;

        assert(m->inl_len <= UNET_EP_INLINE && m->nfrags <= UNET_EP_FRAGS);
        for (int i = 0; i < m->nfrags; i++) {
                const struct unet_recv_frag *f = &m->frag[i];

                sum += f->len;
                if (!w->direct)
                        assert(f->off >= w->sb.tx_bytes &&
                               f->off + (uint64_t)f->len <= w->sb.tx_bytes + w->sb.rx_bytes);
                for (uint32_t k = 0; k < f->len; k++)
                        ones += f->ptr[k] & 1;
        }
        assert(sum == m->len && sum <= SHM_PAIR_MTU && ones <= sum);
}

static void give_back(struct world *w, const struct unet_recv *m)
{
        if (m->loan != 0)
                unet_ep_release(w->b, m, 1);
        for (int i = 0; !w->direct && i < m->nfrags; i++) {
                struct unet_frag f = {m->frag[i].off, m->frag[i].size};

                assert(unet_ep_provide(w->b, &f, 1) == 1);
        }
}

/* A message of the honest channel: its number, in order. */
static void honest_message(struct world *w, const struct unet_recv *m)
{
        uint32_t at = 0;

        assert(m->inl_len == sizeof at);
        memcpy(&at, m->inl, sizeof at);
        /* Base level: some were dropped for want of buffers. */
        assert(w->direct ? at == w->seen : at >= w->seen);
        w->seen = at + 1;
}

static void step_receive(struct world *w, unsigned how)
{
        struct unet_recv m[32];
        int n = unet_ep_recv(w->b, m, 1 + (int)(how % 32));

        assert(n >= 0 && n <= 32);
        for (int i = 0; i < n; i++) {
                look_at(w, &m[i]);
                if (m[i].chan == w->bc)
                        honest_message(w, &m[i]);
                if (how & 64 && w->nkept < KEPT)
                        w->kept[w->nkept++] = m[i];
                else
                        give_back(w, &m[i]);
        }
}

static void step_give_back(struct world *w, unsigned how)
{
        while (w->nkept > 0 && how-- > 0) {
                uint32_t i = how % w->nkept;

                give_back(w, &w->kept[i]);
                w->kept[i] = w->kept[--w->nkept];
        }
}

static void step_victim_sends(struct world *w, unsigned how)
{
        struct unet_send m = {.chan = w->cb,
                              .inl = "hello, world",
                              .inl_len = (uint16_t)(1 + how % 12),
                              .cookie = how & 128 ? 1 + how : 0};

        for (m.nfrags = 0; m.nfrags < how / 16 % 4; m.nfrags++)
                m.frag[m.nfrags] =
                        (struct unet_frag){number(&w->in, 2) % (uint32_t)(w->sb.tx_bytes - 4096),
                                           1 + number(&w->in, 2) % 4096};
        unet_ep_send(w->b, &m, 1);
}

static void step_victim_waits(struct world *w, unsigned how)
{
        uint64_t cookie[8];
        struct unet_chan_info info;

        unet_ep_reap(w->b, cookie, 8);
        if (how & 1)
                unet_ep_poll(w->b);
        if (how & 2)
                unet_ep_wait(w->b, UNET_READABLE | UNET_INJECTED | UNET_WRITABLE | UNET_CLOSED, 0);
        if (how & 4)
                unet_ep_arm(w->b, UNET_READABLE | UNET_WRITABLE);
        if (how & 8)
                unet_chan_info(w->b, w->cb, &info);
}

static void step_honest(struct world *w, unsigned how)
{
        struct unet_send m = {.chan = w->cc,
                              .inl = &w->sent,
                              .inl_len = sizeof w->sent,
                              .nfrags = how & 1,
                              .frag = {{0, 1 + how % 100}}};
        struct unet_recv in;

        w->sent += unet_ep_send(w->c, &m, 1) == 1;
        m = (struct unet_send){.chan = w->bc, .inl = "back", .inl_len = 4};
        unet_ep_send(w->b, &m, 1);
        while (unet_ep_recv(w->c, &in, 1) == 1)
                assert(in.len == 4 && memcmp(in.inl, "back", 4) == 0);
}

/* ---- the hostile steps ---- */

/* Reads what the victim sends, so that names come back that were lent. */
static void step_hostile_reads(struct world *w, unsigned how)
{
        struct unet_recv m;

        for (unsigned n = how % 8; n > 0 && unet_ep_recv(w->a, &m, 1) == 1; n--)
                unet_ep_release(w->a, &m, m.loan != 0);
}

static void step_slot(struct world *w, unsigned how)
{
        struct shm_slot *s = &w->region->ring[w->pos % SHM_SLOTS];
        struct shm_frame_ref ref = {how & 1 ? 1 + byte(&w->in) : number(&w->in, 4),
                                    number(&w->in, how & 2 ? 2 : 4),
                                    number(&w->in, how & 4 ? 2 : 4)};

        for (unsigned i = 0; i < sizeof s->body; i += 16)
                s->body[i] = (uint8_t)byte(&w->in);
        memcpy(s->body, &ref, sizeof ref);
        s->flags = (uint8_t)(how & 8 ? byte(&w->in) : byte(&w->in) % 4);
        s->inl_len = (uint8_t)(how & 16 ? byte(&w->in) : byte(&w->in) % 200);
        s->nmore = (uint16_t)(how & 32 ? number(&w->in, 2) : byte(&w->in) % 4);
        atomic_store_explicit(&s->seq, ++w->pos, memory_order_release);
}

static void step_returns(struct world *w, unsigned how)
{
        uint32_t prod = atomic_load_explicit(&w->region->ctrl.ret_prod, memory_order_relaxed);

        for (unsigned n = how % 32; n > 0; n--)
                w->region->ret[prod++ % SHM_RETS] = how & 128 ? number(&w->in, 4) : byte(&w->in);
        atomic_store_explicit(&w->region->ctrl.ret_prod, prod, memory_order_release);
}

static void step_words(struct world *w, unsigned how)
{
        struct shm_ctrl *c = &w->region->ctrl;
        _Atomic uint32_t *word[] = {&c->cons, &c->ret_prod, &c->want_room, &c->closed};
        _Atomic uint32_t *at = word[how % 4];
        uint32_t now = atomic_load_explicit(at, memory_order_relaxed);

        atomic_store_explicit(at, how & 128 ? number(&w->in, 4) : now + byte(&w->in) - 128,
                              memory_order_release);
}

static void step_scribble(struct world *w, unsigned how)
{
        uint8_t *to = how & 1 ? w->station : (uint8_t *)w->region;
        size_t size = how & 1 ? w->station_bytes : w->region_bytes, at = number(&w->in, 3);

        if (!(how & 3)) /* near what is read next */
                at = offsetof(struct shm_region, ring) +
                     (w->pos + at % 4) % SHM_SLOTS * sizeof(struct shm_slot) + at % 300;
        for (unsigned n = 1 + how % 64; n > 0; n--)
                to[at++ % size] = (uint8_t)byte(&w->in);
}

/* ---- a world ---- */

static void join(struct world *w)
{
        struct unet_mem mem;

        assert(unet_chan_pair(w->a, w->b, &w->ca, &w->cb) == 0);
        mem = shm_link_tx_mem((struct shm_link *)w->a->link[0].l.ch);
        w->region = (struct shm_region *)(mem.base - offsetof(struct shm_region, frames));
        w->region_bytes = sizeof(struct shm_region);
        w->pos = 0;
}

static void open_all(struct world *w)
{
        struct unet_ep_opts o = {.tx_bytes = 65536,
                                 .rx_bytes = 65536,
                                 .rx_slots = 64,
                                 .direct = w->direct,
                                 .spin_ns = -1};

        assert(unet_ep_open(&o, &w->a) == 0 && unet_ep_open(&o, &w->b) == 0 &&
               unet_ep_open(&o, &w->c) == 0);
        w->sb = unet_ep_segment(w->b);
        w->station = (uint8_t *)w->a->st.bell;
        w->station_bytes = w->a->st.shared_bytes;
        for (uint32_t i = 0; !w->direct && i < BUFFERS; i++) {
                struct unet_frag f = {(uint32_t)w->sb.tx_bytes + i * BUFFER, BUFFER};
                assert(unet_ep_provide(w->b, &f, 1) == 1);
        }
        join(w);
        assert(unet_chan_pair(w->c, w->b, &w->cc, &w->bc) == 0);
}

static void step_close(struct world *w, unsigned how)
{
        if (how & 0x70)
                return;
        unet_chan_close(w->a, w->ca);
        unet_chan_close(w->b, w->cb);
        join(w); /* loans of the old one are given back later: that is ignored */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        static void (*const steps[])(struct world *, unsigned) = {
                step_slot,    step_slot,     step_slot,      step_slot,          step_returns,
                step_words,   step_scribble, step_scribble,  step_hostile_reads, step_receive,
                step_receive, step_receive,  step_give_back, step_victim_sends,  step_victim_waits,
                step_honest,  step_close,
        };
        struct world w = {.in = {data, data + n}};

        w.direct = byte(&w.in) & 1;
        open_all(&w);
        for (int i = 0; i < STEPS && w.in.at < w.in.end; i++) {
                unsigned op = byte(&w.in);

                steps[op % ARRAY_LEN(steps)](&w, byte(&w.in));
        }
        step_give_back(&w, KEPT);
        unet_ep_close(w.a);
        for (int i = 0; i < 64; i++) /* what is still there, and what the honest one sent */
                step_receive(&w, 31);
        unet_ep_close(w.b);
        unet_ep_close(w.c);
        return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
        uint64_t x = 0x2545f4914f6cdd1du * (i + 1);
        size_t n = 0;

        if (i >= 16)
                return 0;
        buf[n++] = (uint8_t)i;
        while (n < 500) {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                buf[n++] = (uint8_t)(x >> 33);
        }
        return n;
}
