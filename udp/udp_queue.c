/* The receive queue of a pcb. See udp_queue.h for the picture. */
#include "udp/udp_pcb.h"

struct block {
        uint32_t next; /* frame id; not valid in the tail block */
        uint32_t used; /* end of its records; not valid in the tail block */
        uint8_t pad[CACHE_LINE - 8];
};

struct rec {
        ip_addr src, dst;
        nstime at;
        uint16_t sport, chan;
        uint32_t inl_len; /* bytes behind this record */
        struct buf data;  /* id 0: none */
        uint32_t pad;
};
static_assert(sizeof(struct rec) == CACHE_LINE, "and with 64 bytes of payload, two lines");

/* A place in the queue, and where its block is mapped. */
struct cursor {
        struct udp_place at;
        uint8_t *base;
};

/* One store, after all that stand before it in the program. */
static void move_place(struct udp_place *p, uint32_t block, uint32_t off)
{
        struct udp_place to = {block, off};

        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        __atomic_store(p, &to, __ATOMIC_RELAXED);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
static_assert(sizeof(struct udp_place) == 8 && __atomic_always_lock_free(8, 0), "one store");

static uint32_t rec_bytes(uint32_t inl_len)
{
        return (uint32_t)(sizeof(struct rec) + inl_len + 7) & ~7u;
}

static struct block *block_at(const struct udp *u, uint32_t id)
{
        return (struct block *)frame_addr(u->frames, id);
}

static struct rec *rec_at(struct cursor c)
{
        return (struct rec *)(c.base + c.at.off);
}

static struct cursor first_rec(const struct udp_queue *q, const struct udp *u)
{
        return (struct cursor){q->head, q->head.block != 0 ? frame_addr(u->frames, q->head.block) : NULL};
}

/* The place after the record at `c`: the next block's first record when its own block ends there. */
static struct cursor next_rec(const struct udp_queue *q, const struct udp *u, struct cursor c)
{
        const struct block *b = (const struct block *)c.base;

        c.at.off += rec_bytes(rec_at(c)->inl_len);
        if (c.at.block != q->tail.block && c.at.off == b->used)
                return (struct cursor){{b->next, sizeof *b}, frame_addr(u->frames, b->next)};
        return c;
}

static bool lent(const struct buf *b)
{
        return b->id != 0 && frame_id_region(b->id) != FRAME_REGION_PRIVATE;
}

static uint32_t rec_charge(const struct udp *u, uint32_t inl_len, const struct buf *b)
{
        return rec_bytes(inl_len) + (b->id != 0 ? frame_size(u->frames, b->id) : 0);
}

/* Adds a record to the queue's sums, `by` times: 1 or -1. */
static void tally(struct udp_queue *q, const struct udp *u, const struct rec *r, int by)
{
        uint32_t n = (uint32_t)by;

        q->count += n;
        q->charged += n * rec_charge(u, r->inl_len, &r->data);
        q->lent += lent(&r->data) ? n * frame_size(u->frames, r->data.id) : 0;
}

/* How many frames of its class and channel all queues keep. */
static uint32_t *kept_of(const struct udp *u, uint32_t id)
{
        uint32_t region = frame_id_region(id);
        enum frame_class c = frame_geom_class(u->frames->region[region].geom, frame_id_num(id));

        return &u->sh->kept[(region - 1) / 2][c];
}

static void account(struct udp_queue *q, const struct udp *u, const struct rec *r, int by)
{
        tally(q, u, r, by);
        if (lent(&r->data))
                *kept_of(u, r->data.id) += (uint32_t)by;
}

/* ---- blocks ---- */

/* The queue is empty and has no block, or one that it gives up: it begins at the start of this one. */
static void begin_at(struct udp_queue *q, const struct udp *u, uint32_t id)
{
        move_place(&q->head, 0, 0);
        move_place(&q->tail, id, sizeof(struct block));
        move_place(&q->head, id, sizeof(struct block));
        q->tail_end = frame_size(u->frames, id);
}

static void begin_without_block(struct udp_queue *q, struct udp *u)
{
        uint32_t block = q->head.block;

        move_place(&q->head, 0, 0);
        *q = (struct udp_queue){0};
        if (block != 0)
                frame_drop(u->frames, block);
}

static void extend_to(struct udp_queue *q, const struct udp *u, uint32_t id)
{
        *block_at(u, q->tail.block) = (struct block){.next = id, .used = q->tail.off};
        move_place(&q->tail, id, sizeof(struct block));
        q->tail_end = frame_size(u->frames, id);
}

/* A block for `need` more bytes. The first one is small: most queues never hold more. */
static bool add_block(struct udp_queue *q, struct udp *u, uint32_t need)
{
        bool small_will_do = need + sizeof(struct block) <= FRAME_SMALL_BYTES;
        uint32_t id = 0;

        if (q->count != 0 || !small_will_do)
                id = frame_alloc(u->frames, FRAME_REGION_PRIVATE, FRAME_LARGE, 0);
        if (id == 0 && small_will_do)
                id = frame_alloc(u->frames, FRAME_REGION_PRIVATE, FRAME_SMALL, 0);
        if (id == 0)
                return false;
        if (q->count != 0) {
                extend_to(q, u, id);
        } else {
                begin_without_block(q, u); /* the one it had is too small */
                begin_at(q, u, id);
        }
        return true;
}

/* Room for a record and its bytes at the tail, NULL when memory is short. */
static struct rec *reserve(struct udp_queue *q, struct udp *u, uint32_t inl_len)
{
        uint32_t need = rec_bytes(inl_len);

        if (unlikely(need > q->tail_end - q->tail.off) && !add_block(q, u, need))
                return NULL;
        return (struct rec *)(frame_addr(u->frames, q->tail.block) + q->tail.off);
}

/* ---- putting ---- */

/* The bytes behind the record are in place; now the record, and then it counts. */
static void commit(struct udp_queue *q, const struct udp *u, struct rec *r, const struct udp_dgram *d,
                   uint32_t inl_len, struct buf data, nstime now)
{
        *r = (struct rec){.src = d->tuple.raddr,
                          .dst = d->tuple.laddr,
                          .at = now,
                          .sport = d->tuple.rport,
                          .chan = d->tuple.chan,
                          .inl_len = inl_len,
                          .data = data};
        move_place(&q->tail, q->tail.block, q->tail.off + rec_bytes(inl_len));
        account(q, u, r, 1);
}

static bool over(const struct udp_queue *q, uint32_t rcvbuf, uint32_t more)
{
        return q->count != 0 && more > rcvbuf - MIN(rcvbuf, q->charged);
}

/* The descriptor's bytes into the block; the frame stays where it is and is kept. */
static enum udp_put put_lent(struct udp_queue *q, struct udp *u, const struct udp_dgram *d, uint32_t rcvbuf,
                             nstime now)
{
        struct rec *r;

        if (over(q, rcvbuf, rec_charge(u, d->inl_len, &d->data)))
                return UDP_PUT_FULL;
        r = reserve(q, u, d->inl_len);
        if (r == NULL)
                return UDP_PUT_NO_MEMORY;
        memcpy(r + 1, d->inl, d->inl_len);
        commit(q, u, r, d, d->inl_len, d->data, now);
        return d->data.id != 0 ? UDP_PUT_TOOK : UDP_PUT_COPIED;
}

/* Everything into the block. */
static enum udp_put put_flat(struct udp_queue *q, struct udp *u, const struct udp_dgram *d, uint32_t rcvbuf,
                             nstime now)
{
        uint32_t len = udp_dgram_len(d);
        struct rec *r;

        if (over(q, rcvbuf, rec_bytes(len)))
                return UDP_PUT_FULL;
        r = reserve(q, u, len);
        if (r == NULL)
                return UDP_PUT_NO_MEMORY;
        memcpy(r + 1, d->inl, d->inl_len);
        memcpy((uint8_t *)(r + 1) + d->inl_len, frame_addr(u->frames, d->data.id) + d->data.off, d->data.len);
        commit(q, u, r, d, len, (struct buf){0}, now);
        return UDP_PUT_COPIED;
}

/* The descriptor's bytes into the block, the frame's into a frame of ours. */
static enum udp_put put_own(struct udp_queue *q, struct udp *u, const struct udp_dgram *d, uint32_t rcvbuf,
                            nstime now)
{
        struct buf own = {.len = d->data.len};
        struct rec *r;

        if (over(q, rcvbuf, rec_bytes(d->inl_len) + FRAME_LARGE_BYTES))
                return UDP_PUT_FULL;
        own.id = frame_alloc(u->frames, FRAME_REGION_PRIVATE, FRAME_LARGE, 0);
        if (own.id == 0)
                return UDP_PUT_NO_MEMORY;
        r = reserve(q, u, d->inl_len);
        if (r == NULL) {
                frame_drop(u->frames, own.id);
                return UDP_PUT_NO_MEMORY;
        }
        memcpy(frame_addr(u->frames, own.id), frame_addr(u->frames, d->data.id) + d->data.off, d->data.len);
        memcpy(r + 1, d->inl, d->inl_len);
        commit(q, u, r, d, d->inl_len, own, now);
        return UDP_PUT_COPIED;
}

/* A peer's frames are for all that it sends us: one pcb keeps lend_max bytes of them, all pcbs together half
 * of what it has of a class. */
static bool may_keep(const struct udp_queue *q, const struct udp *u, const struct buf *data)
{
        struct frame_geom g = u->frames->region[frame_id_region(data->id)].geom;
        enum frame_class c = frame_geom_class(g, frame_id_num(data->id));
        uint32_t lend_max = u->sh->limits.lend_max;

        return frame_class_bytes(c) <= lend_max - MIN(lend_max, q->lent) &&
               *kept_of(u, data->id) < MAX(g.count[c] / 2, 1);
}

enum udp_put udp_queue_put(struct udp_queue *q, struct udp *u, const struct udp_dgram *d, uint32_t rcvbuf,
                           nstime now)
{
        if (likely(!lent(&d->data) || may_keep(q, u, &d->data)))
                return put_lent(q, u, d, rcvbuf, now);
        if (udp_dgram_len(d) <= UDP_COPY_MAX)
                return put_flat(q, u, d, rcvbuf, now);
        return put_own(q, u, d, rcvbuf, now);
}

/* ---- looking and taking ---- */

static void show(const struct udp *u, struct rec *r, struct udp_msg *m)
{
        m->src = r->src;
        m->dst = r->dst;
        m->sport = r->sport;
        m->chan = r->chan;
        m->at = r->at;
        m->len = r->inl_len + r->data.len;
        m->nspan = 0;
        if (r->inl_len != 0)
                m->span[m->nspan++] = (struct span){(uint8_t *)(r + 1), r->inl_len};
        if (r->data.id != 0)
                m->span[m->nspan++] =
                        (struct span){frame_addr(u->frames, r->data.id) + r->data.off, r->data.len};
}

int udp_queue_peek(const struct udp_queue *q, const struct udp *u, uint32_t skip, struct udp_msg *msg, int n)
{
        struct cursor c = first_rec(q, u);
        uint32_t left = q->count;
        int shown = 0;

        for (; skip != 0 && left != 0; skip--, left--)
                c = next_rec(q, u, c);
        for (; shown < n && left != 0; shown++, left--) {
                show(u, rec_at(c), &msg[shown]);
                c = next_rec(q, u, c);
        }
        return shown;
}

/* Removes the record at the head, `c`; returns the new head. Its references go when it is no longer in the
 * queue. */
static struct cursor drop_first(struct udp_queue *q, struct udp *u, struct cursor c)
{
        const struct rec *r = rec_at(c);
        struct cursor next = next_rec(q, u, c);
        uint32_t frame = r->data.id;

        account(q, u, r, -1);
        move_place(&q->head, next.at.block, next.at.off);
        if (frame != 0)
                frame_drop(u->frames, frame);
        if (c.at.block != next.at.block)
                frame_drop(u->frames, c.at.block);
        return next;
}

void udp_queue_drop(struct udp_queue *q, struct udp *u, uint32_t n)
{
        struct cursor c = first_rec(q, u);

        assert(n <= q->count);
        while (n-- != 0)
                c = drop_first(q, u, c);
        if (q->count != 0 || q->head.block == 0)
                return;
        if (q->tail_end == FRAME_SMALL_BYTES)
                begin_at(q, u, q->head.block);
        else
                begin_without_block(q, u);
}

void udp_queue_clear(struct udp_queue *q, struct udp *u)
{
        udp_queue_drop(q, u, q->count);
        begin_without_block(q, u);
}

/* ---- consistency ---- */

static bool at_tail(const struct udp_queue *q, struct cursor c)
{
        return c.at.block == q->tail.block && c.at.off == q->tail.off;
}

static void add_ref(struct udp *u, uint32_t id)
{
        frame_pool_rec(u->frames->region[FRAME_REGION_PRIVATE].pool, frame_id_num(id))->refs++;
}

void udp_queue_recover(struct udp_queue *q, struct udp *u)
{
        struct cursor c = first_rec(q, u);

        q->count = q->charged = q->lent = 0;
        if (q->head.block == 0) {
                *q = (struct udp_queue){0};
                return;
        }
        q->tail_end = frame_size(u->frames, q->tail.block);
        add_ref(u, q->head.block);
        while (!at_tail(q, c)) {
                const struct rec *r = rec_at(c);
                uint32_t block = c.at.block;

                account(q, u, r, 1);
                if (r->data.id != 0 && !lent(&r->data))
                        add_ref(u, r->data.id);
                c = next_rec(q, u, c);
                if (c.at.block != block)
                        add_ref(u, c.at.block);
        }
}

void udp_queue_check(const struct udp_queue *q, const struct udp *u)
{
        struct cursor c = first_rec(q, u);
        struct udp_queue sum = {.count = 0};

        assert(q->head.block != 0 || (q->tail.block == 0 && q->tail_end == 0 && q->count == 0));
        assert(q->tail.off <= q->tail_end);
        while (q->head.block != 0 && !at_tail(q, c)) {
                assert(c.at.off % 8 == 0 && c.at.off >= sizeof(struct block));
                assert(sum.count < q->count);
                tally(&sum, u, rec_at(c), 1);
                c = next_rec(q, u, c);
        }
        assert(q->count == sum.count && q->charged == sum.charged && q->lent == sum.lent);
        assert(q->count != 0 || q->head.block == q->tail.block);
}
