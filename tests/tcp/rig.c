/* See rig.h. */
#include "tests/tcp/rig.h"
#include "tcp/tcp_send.h"

#include <stdlib.h>

const struct rig_size rig_size_default = {
        .limits = {.conns = RIG_CONNS - 1,
                   .listeners = 8,
                   .txsegs = 8192,
                   .rxsegs = 8192,
                   .time_wait_max = 16},
        .rx = {.count = {[FRAME_SMALL] = 2048, [FRAME_LARGE] = 48}},
        .tx = {.count = {[FRAME_SMALL] = 512, [FRAME_LARGE] = 64}},
};

static void on_touched(void *arg, uint32_t conn)
{
        struct rig *r = arg;

        assert(conn != 0 && conn < RIG_CONNS && tcp_conn_at(&r->t, conn)->live);
        r->touched[conn] = true;
}

static void on_gone(void *arg, uint32_t conn)
{
        struct rig *r = arg;

        r->touched[conn] = false;
        r->gone[conn] = true;
}

static void on_reply(void *arg, const struct tcp_tuple *tuple, const struct tcp_seg *seg)
{
        struct rig *r = arg;

        if (r->replies == RIG_REPLIES)
                return;
        r->reply[r->replies].tuple = *tuple;
        r->reply[r->replies++].seg = *seg;
}

static void on_give_back(void *arg, uint32_t chan, uint32_t num)
{
        struct rig *r = arg;
        bool had = frame_unlend(&r->lender->frames, FRAME_REGION_TX(chan), num);

        assert(had);
        tcp_frames_back(&r->lender->t, FRAME_REGION_TX(chan));
}

static void on_uncharge(void *arg, uint32_t owner, uint32_t bytes)
{
        tcp_uncharge(&((struct rig *)arg)->t, owner, bytes);
}

static void map_region(struct rig *r, uint32_t region, struct frame_geom g, int slot)
{
        struct frame_pool *p = calloc(1, frame_pool_bytes(g));

        frame_pool_init(p, g);
        r->memory[slot] = p;
        r->memory[slot + 1] = aligned_alloc(FRAME_LARGE_BYTES,
                                            (frame_geom_bytes(g) | (FRAME_LARGE_BYTES - 1)) + 1);
        r->frames.region[region] = (struct frame_region){r->memory[slot + 1], p, g};
}

struct rig *rig_new(const struct rig_size *size, uint64_t seed)
{
        struct rig *r = calloc(1, sizeof *r);
        uint8_t secret[16];

        memcpy(secret, &seed, 8);
        memcpy(secret + 8, &seed, 8);
        map_region(r, FRAME_REGION_PRIVATE, size->rx, 0);
        map_region(r, FRAME_REGION_TX(RIG_CHAN), size->tx, 2);
        r->frames.give_back = on_give_back;
        r->frames.uncharge = on_uncharge;
        r->frames.arg = r;
        r->t = (struct tcp){
                .sh = aligned_alloc(CACHE_LINE, tcp_shared_bytes(&size->limits)),
                .frames = &r->frames,
                .cnt = &r->cnt,
                .reply = on_reply,
                .touched = on_touched,
                .gone = on_gone,
                .arg = r,
        };
        memset(r->t.sh, 0, tcp_shared_bytes(&size->limits));
        tcp_shared_init(r->t.sh, &size->limits, secret);
        return r;
}

void rig_free(struct rig *r)
{
        for (unsigned i = 0; i < ARRAY_LEN(r->memory); i++)
                free(r->memory[i]);
        free(r->t.sh);
        free(r);
}

void rig_lend(struct rig *from, struct rig *to)
{
        const struct frame_region *tx = &from->frames.region[FRAME_REGION_TX(RIG_CHAN)];

        to->lender = from;
        to->frames.region[FRAME_REGION_RX(RIG_CHAN)] =
                (struct frame_region){tx->base, NULL, tx->geom};
}

const uint8_t *rig_payload(const struct rig *r, const struct tcp_seg *seg)
{
        return seg->inl ? seg->inl : frame_addr(&r->frames, seg->data.id) + seg->data.off;
}

bool rig_output(struct rig *r, uint32_t conn, struct tcp_seg *seg, nstime now)
{
        struct tcp_conn *tc = tcp_conn_at(&r->t, conn);
        bool due = tcp_output_due(tc), got = tcp_output(&r->t, tc, seg, now);

        assert(due || !got);
        return got;
}

void rig_check(const struct rig *r)
{
        for (uint32_t i = 1; i < r->t.sh->conns.fresh; i++)
                tcp_conn_check(&r->t, tcp_conn_at(&r->t, i));
}

static void forget_references(struct frame_pool *p)
{
        for (uint32_t i = 1; i <= frame_geom_total(p->geom); i++)
                frame_pool_rec(p, i)->refs = 0;
}

void rig_recover(struct rig *r, uint32_t broken, nstime now)
{
        struct frame_pool *rx = r->frames.region[FRAME_REGION_PRIVATE].pool;
        struct frame_pool *tx = r->frames.region[FRAME_REGION_TX(RIG_CHAN)].pool;

        forget_references(rx);
        forget_references(tx);
        tcp_recover(&r->t, broken, now);
        frame_pool_rebuild(rx);
        frame_pool_rebuild(tx);
}

uint32_t rig_frames_used(const struct rig *r)
{
        uint32_t n = 0;

        for (uint32_t region = 0; region <= FRAME_REGION_TX(RIG_CHAN); region++)
                for (int c = 0; c < FRAME_CLASSES; c++)
                        n += r->frames.region[region].pool->used[c];
        return n;
}
