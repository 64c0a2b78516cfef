/* The receive queue of a pcb. See udp_queue.h for the picture. */
#include "udp/udp_queue.h"

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

static struct block *block_at(const struct frames *f, uint32_t id)
{
        return (struct block *)frame_addr(f, id);
}

static struct rec *rec_at(struct cursor c)
{
        return (struct rec *)(c.base + c.at.off);
}

static struct cursor first_rec(const struct udp_queue *q, const struct frames *f)
{
        return (struct cursor){q->head, q->head.block != 0 ? frame_addr(f, q->head.block) : NULL};
}

/* The place after the record at `c`: the next block's first record when its own block ends there. */
static struct cursor next_rec(const struct udp_queue *q, const struct frames *f, struct cursor c)
{
        const struct block *b = (const struct block *)c.base;

        c.at.off += rec_bytes(rec_at(c)->inl_len);
        if (c.at.block != q->tail.block && c.at.off == b->used)
                return (struct cursor){{b->next, sizeof *b}, frame_addr(f, b->next)};
        return c;
}

static bool lent(const struct buf *b)
{
        return b->id != 0 && frame_id_region(b->id) != FRAME_REGION_PRIVATE;
}

static uint32_t rec_charge(const struct frames *f, uint32_t inl_len, const struct buf *b)
{
        return rec_bytes(inl_len) + (b->id != 0 ? frame_size(f, b->id) : 0);
}

static void account(struct udp_queue *q, const struct frames *f, const struct rec *r)
{
        q->count++;
        q->charged += rec_charge(f, r->inl_len, &r->data);
        q->lent += lent(&r->data) ? frame_size(f, r->data.id) : 0;
}

static void unaccount(struct udp_queue *q, const struct frames *f, const struct rec *r)
{
        q->count--;
        q->charged -= rec_charge(f, r->inl_len, &r->data);
        q->lent -= lent(&r->data) ? frame_size(f, r->data.id) : 0;
}

/* ---- blocks ---- */

/* The queue is empty and has no block, or one that it gives up: it begins at the start of this one. */
static void begin_at(struct udp_queue *q, const struct frames *f, uint32_t id)
{
        move_place(&q->head, 0, 0);
        move_place(&q->tail, id, sizeof(struct block));
        move_place(&q->head, id, sizeof(struct block));
        q->tail_end = frame_size(f, id);
}

static void begin_without_block(struct udp_queue *q, struct frames *f)
{
        uint32_t block = q->head.block;

        move_place(&q->head, 0, 0);
        *q = (struct udp_queue){0};
        if (block != 0)
                frame_drop(f, block);
}

static void extend_to(struct udp_queue *q, const struct frames *f, uint32_t id)
{
        *block_at(f, q->tail.block) = (struct block){.next = id, .used = q->tail.off};
        move_place(&q->tail, id, sizeof(struct block));
        q->tail_end = frame_size(f, id);
}

/* A block for `need` more bytes. The first one is small: most queues never hold more. */
static bool add_block(struct udp_queue *q, struct frames *f, uint32_t need)
{
        bool small_will_do = need + sizeof(struct block) <= FRAME_SMALL_BYTES;
        uint32_t id = 0;

        if (q->count != 0 || !small_will_do)
                id = frame_alloc(f, FRAME_REGION_PRIVATE, FRAME_LARGE, 0);
        if (id == 0 && small_will_do)
                id = frame_alloc(f, FRAME_REGION_PRIVATE, FRAME_SMALL, 0);
        if (id == 0)
                return false;
        if (q->count != 0) {
                extend_to(q, f, id);
        } else {
                begin_without_block(q, f); /* the one it had is too small */
                begin_at(q, f, id);
        }
        return true;
}

/* Room for a record and its bytes at the tail, NULL when memory is short. */
static struct rec *reserve(struct udp_queue *q, struct frames *f, uint32_t inl_len)
{
        uint32_t need = rec_bytes(inl_len);

        if (unlikely(need > q->tail_end - q->tail.off) && !add_block(q, f, need))
                return NULL;
        return (struct rec *)(frame_addr(f, q->tail.block) + q->tail.off);
}

/* ---- putting ---- */

/* The bytes behind the record are in place; now the record, and then it counts. */
static void commit(struct udp_queue *q, const struct frames *f, struct rec *r, const struct udp_dgram *d,
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
        account(q, f, r);
}

static bool over(const struct udp_queue *q, uint32_t rcvbuf, uint32_t more)
{
        return q->count != 0 && more > rcvbuf - MIN(rcvbuf, q->charged);
}

/* The descriptor's bytes into the block; the frame stays where it is and is kept. */
static enum udp_put put_lent(struct udp_queue *q, struct frames *f, const struct udp_dgram *d,
                             uint32_t rcvbuf, nstime now)
{
        struct rec *r;

        if (over(q, rcvbuf, rec_charge(f, d->inl_len, &d->data)))
                return UDP_PUT_FULL;
        r = reserve(q, f, d->inl_len);
        if (r == NULL)
                return UDP_PUT_NO_MEMORY;
        memcpy(r + 1, d->inl, d->inl_len);
        commit(q, f, r, d, d->inl_len, d->data, now);
        return d->data.id != 0 ? UDP_PUT_TOOK : UDP_PUT_COPIED;
}

/* Everything into the block. */
static enum udp_put put_flat(struct udp_queue *q, struct frames *f, const struct udp_dgram *d,
                             uint32_t rcvbuf, nstime now)
{
        uint32_t len = udp_dgram_len(d);
        struct rec *r;

        if (over(q, rcvbuf, rec_bytes(len)))
                return UDP_PUT_FULL;
        r = reserve(q, f, len);
        if (r == NULL)
                return UDP_PUT_NO_MEMORY;
        memcpy(r + 1, d->inl, d->inl_len);
        memcpy((uint8_t *)(r + 1) + d->inl_len, frame_addr(f, d->data.id) + d->data.off, d->data.len);
        commit(q, f, r, d, len, (struct buf){0}, now);
        return UDP_PUT_COPIED;
}

/* The descriptor's bytes into the block, the frame's into a frame of ours. */
static enum udp_put put_own(struct udp_queue *q, struct frames *f, const struct udp_dgram *d, uint32_t rcvbuf,
                            nstime now)
{
        struct buf own = {.len = d->data.len};
        struct rec *r;

        if (over(q, rcvbuf, rec_bytes(d->inl_len) + FRAME_LARGE_BYTES))
                return UDP_PUT_FULL;
        own.id = frame_alloc(f, FRAME_REGION_PRIVATE, FRAME_LARGE, 0);
        if (own.id == 0)
                return UDP_PUT_NO_MEMORY;
        r = reserve(q, f, d->inl_len);
        if (r == NULL) {
                frame_drop(f, own.id);
                return UDP_PUT_NO_MEMORY;
        }
        memcpy(frame_addr(f, own.id), frame_addr(f, d->data.id) + d->data.off, d->data.len);
        memcpy(r + 1, d->inl, d->inl_len);
        commit(q, f, r, d, d->inl_len, own, now);
        return UDP_PUT_COPIED;
}

enum udp_put udp_queue_put(struct udp_queue *q, struct frames *f, const struct udp_dgram *d, uint32_t rcvbuf,
                           uint32_t lend_max, nstime now)
{
        bool keep = d->data.id == 0 || frame_size(f, d->data.id) <= lend_max - MIN(lend_max, q->lent);

        if (likely(keep))
                return put_lent(q, f, d, rcvbuf, now);
        if (udp_dgram_len(d) <= UDP_COPY_MAX)
                return put_flat(q, f, d, rcvbuf, now);
        return put_own(q, f, d, rcvbuf, now);
}

/* ---- looking and taking ---- */

static void show(const struct frames *f, struct rec *r, struct udp_msg *m)
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
                m->span[m->nspan++] = (struct span){frame_addr(f, r->data.id) + r->data.off, r->data.len};
}

int udp_queue_peek(const struct udp_queue *q, const struct frames *f, uint32_t skip, struct udp_msg *msg,
                   int n)
{
        struct cursor c = first_rec(q, f);
        uint32_t left = q->count;
        int shown = 0;

        for (; skip != 0 && left != 0; skip--, left--)
                c = next_rec(q, f, c);
        for (; shown < n && left != 0; shown++, left--) {
                show(f, rec_at(c), &msg[shown]);
                c = next_rec(q, f, c);
        }
        return shown;
}

/* Removes the record at the head, `c`; returns the new head. Its references go when it is no longer in the
 * queue. */
static struct cursor drop_first(struct udp_queue *q, struct frames *f, struct cursor c)
{
        const struct rec *r = rec_at(c);
        struct cursor next = next_rec(q, f, c);
        uint32_t frame = r->data.id;

        unaccount(q, f, r);
        move_place(&q->head, next.at.block, next.at.off);
        if (frame != 0)
                frame_drop(f, frame);
        if (c.at.block != next.at.block)
                frame_drop(f, c.at.block);
        return next;
}

void udp_queue_drop(struct udp_queue *q, struct frames *f, uint32_t n)
{
        struct cursor c = first_rec(q, f);

        assert(n <= q->count);
        while (n-- != 0)
                c = drop_first(q, f, c);
        if (q->count != 0 || q->head.block == 0)
                return;
        if (q->tail_end == FRAME_SMALL_BYTES)
                begin_at(q, f, q->head.block);
        else
                begin_without_block(q, f);
}

void udp_queue_clear(struct udp_queue *q, struct frames *f)
{
        udp_queue_drop(q, f, q->count);
        begin_without_block(q, f);
}

/* ---- consistency ---- */

static bool at_tail(const struct udp_queue *q, struct cursor c)
{
        return c.at.block == q->tail.block && c.at.off == q->tail.off;
}

static void add_ref(struct frames *f, uint32_t id)
{
        frame_pool_rec(f->region[FRAME_REGION_PRIVATE].pool, frame_id_num(id))->refs++;
}

void udp_queue_recover(struct udp_queue *q, struct frames *f)
{
        struct cursor c = first_rec(q, f);

        q->count = q->charged = q->lent = 0;
        if (q->head.block == 0) {
                *q = (struct udp_queue){0};
                return;
        }
        q->tail_end = frame_size(f, q->tail.block);
        add_ref(f, q->head.block);
        while (!at_tail(q, c)) {
                const struct rec *r = rec_at(c);
                uint32_t block = c.at.block;

                account(q, f, r);
                if (r->data.id != 0 && !lent(&r->data))
                        add_ref(f, r->data.id);
                c = next_rec(q, f, c);
                if (c.at.block != block)
                        add_ref(f, c.at.block);
        }
}

void udp_queue_check(const struct udp_queue *q, const struct frames *f)
{
        struct cursor c = first_rec(q, f);
        struct udp_queue sum = {.count = 0};

        assert(q->head.block != 0 || (q->tail.block == 0 && q->tail_end == 0 && q->count == 0));
        assert(q->tail.off <= q->tail_end);
        while (q->head.block != 0 && !at_tail(q, c)) {
                assert(c.at.off % 8 == 0 && c.at.off >= sizeof(struct block));
                assert(sum.count < q->count);
                account(&sum, f, rec_at(c));
                c = next_rec(q, f, c);
        }
        assert(q->count == sum.count && q->charged == sum.charged && q->lent == sum.lent);
        assert(q->count != 0 || q->head.block == q->tail.block);
}
