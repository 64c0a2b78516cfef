/* The receive queue of a pcb. See udp_queue.h for the picture. */
#include "udp/udp_pcb.h"

struct block {
        uint32_t next; /* frame id; not valid in the tail block */
        uint32_t used; /* end of its records; not valid in the tail block */
        uint8_t pad[CACHE_LINE - 8];
};

#define PREFETCH_MAX 2048u /* longer ones the processor finds by itself */

struct rec {
        ip_addr src, dst;
        nstime at;
        uint16_t sport, chan;
        uint32_t inl_len; /* bytes behind this record */
        struct buf data;  /* id 0: none */
        uint8_t ttl, tos;
        uint8_t nopts; /* bytes of IP options behind those */
        uint8_t pad;
};
static_assert(sizeof(struct rec) == CACHE_LINE, "and with 64 bytes of payload, two lines");

/* A place in the queue, and where its block is mapped. */
struct cursor {
        struct udp_place at;
        uint8_t *base;
};

/* A place as it lies in memory, made in a register: two stores of its halves and a load of the
 * whole would have to wait for the cache (some 15 cycles). */
static inline uint64_t place_word(uint32_t block, uint32_t off)
{
        return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? (uint64_t)off << 32 | block
                                                         : (uint64_t)block << 32 | off;
}

/* One store, after all that stand before it in the program; readers look at the tail without
 * the lock. */
static void move_place(struct udp_place *p, uint32_t block, uint32_t off)
{
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        __atomic_store_n((uint64_t *)p, place_word(block, off), __ATOMIC_RELEASE);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
static_assert(sizeof(struct udp_place) == 8 && __atomic_always_lock_free(8, 0), "one store");

/* A record with so many bytes behind it. */
static uint32_t rec_bytes(uint32_t behind)
{
        return (uint32_t)(sizeof(struct rec) + behind + 7) & ~7u;
}

static uint32_t rec_len(const struct rec *r)
{
        return rec_bytes(r->inl_len + r->nopts);
}

static struct block *block_at(const struct udp *u, uint32_t id)
{
        return (struct block *)frame_addr(u->frames, id);
}

static struct rec *rec_at(struct cursor c)
{
        return (struct rec *)(c.base + c.at.off);
}

/* ---- the head: number of the block's frame, place in it, generation ---- */

#define OFF_BITS 14 /* in units of 8 bytes, the end of a large frame included */
static_assert(FRAME_LARGE_BYTES / 8 < 1u << OFF_BITS, "any place in a block");

static uint64_t head_of(struct udp_place at, uint64_t gen)
{
        return gen << (FRAME_NUM_BITS + OFF_BITS) | (uint64_t)at.block << OFF_BITS | at.off / 8;
}

static uint64_t head_gen(uint64_t head)
{
        return head >> (FRAME_NUM_BITS + OFF_BITS);
}

static struct udp_place head_place(uint64_t head)
{
        return (struct udp_place){(uint32_t)(head >> OFF_BITS) & ((1u << FRAME_NUM_BITS) - 1),
                                  (uint32_t)head % (1u << OFF_BITS) * 8};
}

static uint64_t load_head(const struct udp_queue *q)
{
        return atomic_load_explicit(&q->head, memory_order_acquire);
}

static struct udp_place load_tail(const struct udp_queue *q)
{
        struct udp_place tail;

        __atomic_load(&q->tail, &tail, __ATOMIC_ACQUIRE);
        return tail;
}

/* The lock's holder, when no reader can move it: there is nothing to read. */
static void set_head(struct udp_queue *q, struct udp_place at, uint64_t gen)
{
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        atomic_store_explicit(&q->head, head_of(at, gen), memory_order_release);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static bool same_place(struct udp_place a, struct udp_place b)
{
        return a.block == b.block && a.off == b.off;
}

static struct cursor cursor_at(const struct udp *u, struct udp_place at)
{
        return (struct cursor){at, at.block != 0 ? frame_addr(u->frames, at.block) : NULL};
}

/* At the end of a block that is not the last one, records go on in the next. */
static struct cursor hop(const struct udp *u, struct udp_place tail, struct cursor c)
{
        const struct block *b = (const struct block *)c.base;

        if (c.at.block != tail.block && c.at.block != 0 && c.at.off == b->used)
                return cursor_at(u, (struct udp_place){b->next, sizeof *b});
        return c;
}

static struct cursor first_held(const struct udp_queue *q, const struct udp *u)
{
        return cursor_at(u, q->base);
}

/* For the lock's holder. */
static struct cursor first_unread(const struct udp_queue *q, const struct udp *u)
{
        return hop(u, q->tail, cursor_at(u, head_place(load_head(q))));
}

/* The place after the record at `c`. */
static struct cursor next_rec(const struct udp_queue *q, const struct udp *u, struct cursor c)
{
        c.at.off += rec_len(rec_at(c));
        return hop(u, q->tail, c);
}

static bool lent(const struct buf *b)
{
        return b->id != 0 && frame_id_region(b->id) != FRAME_REGION_PRIVATE;
}

static uint32_t rec_charge(const struct udp *u, uint32_t behind, const struct buf *b)
{
        return rec_bytes(behind) + (b->id != 0 ? frame_size(u->frames, b->id) : 0);
}

/* Adds a record to the queue's sums, `by` times: 1 or -1. */
static void tally(struct udp_queue *q, const struct udp *u, const struct rec *r, int by)
{
        uint32_t n = (uint32_t)by;

        q->count += n;
        q->charged += n * rec_charge(u, r->inl_len + r->nopts, &r->data);
        q->lent += lent(&r->data) ? n * frame_size(u->frames, r->data.id) : 0;
}

/* Counts of the frames that all queues keep, by class, of the peer whose frame this is. */
static uint32_t *kept_of(const struct udp *u, uint32_t id)
{
        return u->sh->kept[(frame_id_region(id) - 1) / 2];
}

static enum frame_class class_of(const struct udp *u, uint32_t id)
{
        return frame_geom_class(u->frames->region[frame_id_region(id)].geom, frame_id_num(id));
}

static void account(struct udp_queue *q, const struct udp *u, const struct rec *r, int by)
{
        tally(q, u, r, by);
        if (lent(&r->data))
                kept_of(u, r->data.id)[class_of(u, r->data.id)] += (uint32_t)by;
}

/* ---- blocks ---- */

/* The queue is empty and has no block, or one that it gives up: it begins at the start of
 * this one. */
static void begin_at(struct udp_queue *q, const struct udp *u, uint32_t id)
{
        uint64_t gen = head_gen(load_head(q)) + 1;

        set_head(q, (struct udp_place){0, 0}, gen);
        move_place(&q->base, id, sizeof(struct block));
        move_place(&q->tail, id, sizeof(struct block));
        set_head(q, (struct udp_place){id, sizeof(struct block)}, gen);
        q->tail_end = frame_size(u->frames, id);
}

static void begin_without_block(struct udp_queue *q, struct udp *u)
{
        uint32_t block = q->base.block;

        set_head(q, (struct udp_place){0, 0}, head_gen(load_head(q)));
        move_place(&q->base, 0, 0);
        move_place(&q->tail, 0, 0);
        q->tail_end = q->count = q->charged = q->lent = 0;
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

        udp_queue_settle(q, u);
        if (need <= q->tail_end - q->tail.off)
                return true; /* all was read, and the block is empty */
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
static struct rec *reserve(struct udp_queue *q, struct udp *u, uint32_t behind)
{
        uint32_t need = rec_bytes(behind);

        if (unlikely(need > q->tail_end - q->tail.off) && !add_block(q, u, need))
                return NULL;
        return (struct rec *)(frame_addr(u->frames, q->tail.block) + q->tail.off);
}

/* ---- putting ---- */

static inline uint8_t opts_len(const struct udp_dgram *d)
{
        return unlikely(d->opts != NULL) ? d->opts->len : 0;
}

/* The bytes behind the record are in place, and IP options follow; now the record, and then
 * it counts. */
static void commit(struct udp_queue *q, const struct udp *u, struct rec *r,
                   const struct udp_dgram *d, uint32_t inl_len, struct buf data, nstime now)
{
        uint8_t nopts = opts_len(d);

        if (unlikely(nopts != 0))
                memcpy((uint8_t *)(r + 1) + inl_len, d->opts->raw, nopts);
        *r = (struct rec){.src = d->tuple.raddr,
                          .dst = d->tuple.laddr,
                          .at = now,
                          .sport = d->tuple.rport,
                          .chan = d->tuple.chan,
                          .inl_len = inl_len,
                          .data = data,
                          .ttl = d->tuple.ttl,
                          .tos = d->tuple.tos,
                          .nopts = nopts};
        move_place(&q->tail, q->tail.block, q->tail.off + rec_bytes(inl_len + nopts));
        account(q, u, r, 1);
}

static bool over(struct udp_queue *q, struct udp *u, uint32_t rcvbuf, uint32_t more)
{
        if (likely(q->count == 0 || more <= rcvbuf - MIN(rcvbuf, q->charged)))
                return false;
        udp_queue_settle(q, u);
        return q->count != 0 && more > rcvbuf - MIN(rcvbuf, q->charged);
}

/* A descriptor's bytes are few. A packet that lies in one piece is shown as if all of it was in
 * the descriptor. */
static void copy_shown(void *to, const struct udp_dgram *d)
{
        if (likely(d->inl_len <= UNET_INLINE_MAX))
                copy_short(to, d->inl, d->inl_len);
        else
                memcpy(to, d->inl, d->inl_len);
}

/* The descriptor's bytes into the block; the frame stays where it is and is kept. */
static enum udp_put put_lent(struct udp_queue *q, struct udp *u, const struct udp_dgram *d,
                             uint32_t rcvbuf, nstime now)
{
        struct rec *r;

        if (over(q, u, rcvbuf, rec_charge(u, d->inl_len + opts_len(d), &d->data)))
                return UDP_PUT_FULL;
        r = reserve(q, u, d->inl_len + opts_len(d));
        if (r == NULL)
                return UDP_PUT_NO_MEMORY;
        copy_shown(r + 1, d);
        commit(q, u, r, d, d->inl_len, d->data, now);
        return d->data.id != 0 ? UDP_PUT_TOOK : UDP_PUT_COPIED;
}

/* Everything into the block. */
static enum udp_put put_flat(struct udp_queue *q, struct udp *u, const struct udp_dgram *d,
                             uint32_t rcvbuf, nstime now)
{
        uint32_t len = udp_dgram_len(d);
        struct rec *r;

        if (over(q, u, rcvbuf, rec_bytes(len + opts_len(d))))
                return UDP_PUT_FULL;
        r = reserve(q, u, len + opts_len(d));
        if (r == NULL)
                return UDP_PUT_NO_MEMORY;
        copy_shown(r + 1, d);
        memcpy((uint8_t *)(r + 1) + d->inl_len, frame_addr(u->frames, d->data.id) + d->data.off,
               d->data.len);
        commit(q, u, r, d, len, (struct buf){0}, now);
        return UDP_PUT_COPIED;
}

/* The descriptor's bytes into the block, the frame's into a frame of ours. */
static enum udp_put put_own(struct udp_queue *q, struct udp *u, const struct udp_dgram *d,
                            uint32_t rcvbuf, nstime now)
{
        struct buf own = {.len = d->data.len};
        struct rec *r;

        if (over(q, u, rcvbuf, rec_bytes(d->inl_len + opts_len(d)) + FRAME_LARGE_BYTES))
                return UDP_PUT_FULL;
        own.id = frame_alloc(u->frames, FRAME_REGION_PRIVATE, FRAME_LARGE, 0);
        if (own.id == 0)
                return UDP_PUT_NO_MEMORY;
        r = reserve(q, u, d->inl_len + opts_len(d));
        if (r == NULL) {
                frame_drop(u->frames, own.id);
                return UDP_PUT_NO_MEMORY;
        }
        memcpy(frame_addr(u->frames, own.id), frame_addr(u->frames, d->data.id) + d->data.off,
               d->data.len);
        copy_shown(r + 1, d);
        commit(q, u, r, d, d->inl_len, own, now);
        return UDP_PUT_COPIED;
}

/* A peer's frames are for all that it sends us: one pcb keeps lend_max bytes of them, all pcbs
 * together half of what it has of a class, and FRAME_LOANS_UDP of all. */
static bool may_keep(const struct udp_queue *q, const struct udp *u, const struct buf *data)
{
        struct frame_geom g = u->frames->region[frame_id_region(data->id)].geom;
        enum frame_class c = class_of(u, data->id);
        uint32_t lend_max = u->sh->limits.lend_max, *kept = kept_of(u, data->id);

        return frame_class_bytes(c) <= lend_max - MIN(lend_max, q->lent) &&
               kept[c] < MAX(g.count[c] / 2, 1) &&
               kept[FRAME_SMALL] + kept[FRAME_LARGE] < FRAME_LOANS_UDP;
}

enum udp_put udp_queue_put(struct udp_queue *q, struct udp *u, const struct udp_dgram *d,
                           uint32_t rcvbuf, nstime now)
{
        if (likely(!lent(&d->data) || may_keep(q, u, &d->data)))
                return put_lent(q, u, d, rcvbuf, now);
        udp_queue_settle(q, u);
        if (may_keep(q, u, &d->data))
                return put_lent(q, u, d, rcvbuf, now);
        if (udp_dgram_len(d) <= UDP_COPY_MAX)
                return put_flat(q, u, d, rcvbuf, now);
        return put_own(q, u, d, rcvbuf, now);
}

/* As put_lent(), for bytes that came in the descriptor and need no more room than there is. */
bool udp_queue_put_short(struct udp_queue *q, const struct udp *u, const struct udp_tuple *t,
                         const uint8_t *p, uint32_t n, uint32_t rcvbuf, nstime now)
{
        uint32_t need = rec_bytes(n);
        struct rec *r;

        if (unlikely(need > q->tail_end - q->tail.off || need > rcvbuf - MIN(rcvbuf, q->charged)))
                return false;
        r = (struct rec *)(frame_addr(u->frames, q->tail.block) + q->tail.off);
        copy_short(r + 1, p, n);
        *r = (struct rec){.src = t->raddr,
                          .dst = t->laddr,
                          .at = now,
                          .sport = t->rport,
                          .chan = t->chan,
                          .inl_len = n,
                          .ttl = t->ttl,
                          .tos = t->tos};
        move_place(&q->tail, q->tail.block, q->tail.off + need);
        q->count++;
        q->charged += need;
        return true;
}

enum udp_put udp_queue_put_copy(struct udp_queue *q, struct udp *u, const struct udp_dgram *d,
                                uint32_t rcvbuf, nstime now)
{
        if (d->data.id == 0)
                return put_lent(q, u, d, rcvbuf, now);
        return udp_dgram_len(d) <= UDP_COPY_MAX ? put_flat(q, u, d, rcvbuf, now)
                                                : put_own(q, u, d, rcvbuf, now);
}

/* ---- looking and taking ---- */

static void show(const struct udp *u, const struct rec *r, uint8_t *bytes, struct udp_msg *m)
{
        m->src = r->src;
        m->dst = r->dst;
        m->sport = r->sport;
        m->chan = r->chan;
        m->ttl = r->ttl;
        m->tos = r->tos;
        m->at = r->at;
        m->len = r->inl_len + r->data.len;
        m->nspan = 0;
        m->nopts = r->nopts;
        m->opts = bytes + r->inl_len;
        if (r->inl_len != 0)
                m->span[m->nspan++] = (struct span){bytes, r->inl_len};
        if (r->data.id != 0)
                m->span[m->nspan++] =
                        (struct span){frame_addr(u->frames, r->data.id) + r->data.off, r->data.len};
}

bool udp_queue_unread(const struct udp_queue *q)
{
        for (;;) {
                uint64_t head = load_head(q);
                struct udp_place tail = load_tail(q);

                if (likely(load_head(q) == head))
                        return !same_place(head_place(head), tail) && head_place(head).block != 0;
        }
}

/* The bytes used of a block that may be another queue's by now: the answer is believed if the head
 * has not moved. */
static inline READS_TORN uint32_t used_of(const uint8_t *base)
{
        return ((const volatile struct block *)base)->used;
}

static inline READS_TORN uint32_t next_of(const uint8_t *base)
{
        return ((const volatile struct block *)base)->next;
}

/* The first unread record as of `head`. False: none, or head has moved meanwhile, and nothing that
 * was read is to be believed. What is read before that is checked may be anything, so no address is
 * made of it. */
static inline bool find_first(const struct udp_queue *q, const struct udp *u, uint64_t head,
                              struct cursor *c, uint64_t *gen)
{
        struct udp_place tail = load_tail(q), next;

        *c = cursor_at(u, head_place(head));
        *gen = head_gen(head);
        if (c->at.block == 0 || same_place(c->at, tail))
                return false;
        if (likely(c->at.block == tail.block))
                return true;
        if (likely(c->at.off != used_of(c->base)))
                return true;
        next = (struct udp_place){next_of(c->base), sizeof(struct block)};
        atomic_thread_fence(memory_order_acquire);
        if (load_head(q) != head)
                return false;
        *c = cursor_at(u, next);
        ++*gen;
        return !same_place(next, tail);
}

/* The place of the bytes of the datagram at `c`, if in a frame. What is read here may be anything,
 * if the queue moves on meanwhile; nothing but a prefetch is made of it. */
static READS_TORN struct span bytes_of(const struct udp *u, struct cursor c)
{
        struct buf data = rec_at(c)->data;
        const uint8_t *base = u->frames->region[frame_id_region(data.id)].base;

        if (data.id == 0 || base == NULL || data.len > PREFETCH_MAX)
                return (struct span){NULL, 0};
        return (struct span){frame_addr(u->frames, data.id) + data.off, data.len};
}

/* The head's generation says whether this still is the first record. */
static READS_TORN struct rec copy_rec(const struct rec *from)
{
        return *from;
}

bool udp_queue_look(const struct udp_queue *q, const struct udp *u, struct udp_sight *s)
{
        for (;;) {
                uint64_t head = load_head(q), gen;
                struct cursor c;
                struct rec r;

                if (find_first(q, u, head, &c, &gen)) {
                        r = copy_rec(rec_at(c));
                        atomic_thread_fence(memory_order_acquire);
                        if (unlikely(load_head(q) != head))
                                continue;
                        show(u, &r, (uint8_t *)(rec_at(c) + 1), &s->msg);
                        c.at.off += rec_len(&r);
                        s->last = same_place(c.at, load_tail(q));
                        s->ahead = (struct span){NULL, 0};
                        if (r.data.id != 0 && !s->last &&
                            c.at.off < frame_size(u->frames, c.at.block))
                                s->ahead = bytes_of(u, c);
                        s->head = head;
                        s->next = head_of(c.at, gen);
                        return true;
                }
                if (likely(load_head(q) == head))
                        return false;
        }
}

/* As udp_queue_look(), for a record that is not the first of a new block and has no options, in
 * registers alone: see place_word(). */
bool udp_queue_look_short(const struct udp_queue *q, const struct udp *u, struct udp_sight *s)
{
        uint64_t head = load_head(q),
                 tail = __atomic_load_n((const uint64_t *)&q->tail, __ATOMIC_ACQUIRE), next;
        uint32_t block = head_place(head).block, off = head_place(head).off, frame, len;
        const uint8_t *base;

        if (block == 0 || place_word(block, off) == tail)
                return false;
        base = frame_addr(u->frames, block);
        if (place_word(block, 0) != (tail & place_word(~0u, 0)) && off == used_of(base))
                return false;
        len = ((const struct rec *)(base + off))->inl_len;
        frame = ((const struct rec *)(base + off))->data.id |
                ((const struct rec *)(base + off))->nopts;
        atomic_thread_fence(memory_order_acquire);
        if (unlikely(load_head(q) != head || frame != 0))
                return false;
        next = place_word(block, off + rec_bytes(len));
        s->msg.len = len;
        s->msg.span[0] = (struct span){(uint8_t *)base + off + sizeof(struct rec), len};
        s->last = next == __atomic_load_n((const uint64_t *)&q->tail, __ATOMIC_ACQUIRE);
        s->head = head;
        s->next = head + rec_bytes(len) / 8;
        return true;
}

bool udp_queue_take(struct udp_queue *q, const struct udp_sight *s)
{
        uint64_t head = s->head;

        return atomic_compare_exchange_strong_explicit(&q->head, &head, s->next,
                                                       memory_order_acq_rel, memory_order_relaxed);
}

/* Compare-and-swap against this thread's own interruptions: an instruction is whole, and keeps no
 * other processor out. */
static inline bool swap_alone(_Atomic uint64_t *word, uint64_t from, uint64_t to)
{
#if defined(__x86_64__)
        bool done;

        __asm__ volatile("cmpxchgq %3, %1"
                         : "=@ccz"(done), "+m"(*word), "+a"(from)
                         : "r"(to)
                         : "memory");
        return done;
#else
        return atomic_compare_exchange_strong_explicit(word, &from, to, memory_order_acq_rel,
                                                       memory_order_relaxed);
#endif
}

/* The lock's holder leaves a head with a record behind it where it is: it only takes one on that
 * stands at a block's end (pull_head()), or that has reached the tail. */
bool udp_queue_take_alone(struct udp_queue *q, const struct udp_sight *s)
{
        return swap_alone(&q->head, s->head, s->next);
}

int udp_queue_peek(const struct udp_queue *q, const struct udp *u, uint32_t skip,
                   struct udp_msg *msg, int n)
{
        struct cursor c = first_unread(q, u);
        int shown = 0;

        for (; skip != 0 && !same_place(c.at, q->tail); skip--)
                c = next_rec(q, u, c);
        for (; shown < n && !same_place(c.at, q->tail); shown++) {
                show(u, rec_at(c), (uint8_t *)(rec_at(c) + 1), &msg[shown]);
                c = next_rec(q, u, c);
        }
        return shown;
}

/* Gives up the record at `c`, the first one held; returns the next. Its references go when it is no
 * longer in the queue. */
static struct cursor give_up(struct udp_queue *q, struct udp *u, struct cursor c)
{
        const struct rec *r = rec_at(c);
        struct cursor next = next_rec(q, u, c);
        uint32_t frame = r->data.id;

        account(q, u, r, -1);
        move_place(&q->base, next.at.block, next.at.off);
        if (frame != 0)
                frame_drop(u->frames, frame);
        if (c.at.block != next.at.block)
                frame_drop(u->frames, c.at.block);
        return next;
}

/* The first unread place; the head no longer names the end of a block that may be given up. */
static struct udp_place pull_head(struct udp_queue *q, const struct udp *u)
{
        for (;;) {
                uint64_t head = load_head(q);
                struct udp_place at = head_place(head), to = hop(u, q->tail, cursor_at(u, at)).at;

                if (likely(same_place(at, to)) ||
                    atomic_compare_exchange_strong(&q->head, &head,
                                                   head_of(to, head_gen(head) + 1)))
                        return to;
        }
}

void udp_queue_settle(struct udp_queue *q, struct udp *u)
{
        struct udp_place end = pull_head(q, u);
        struct cursor c = first_held(q, u);

        if (same_place(c.at, end))
                return;
        while (!same_place(c.at, end))
                c = give_up(q, u, c);
        if (q->count != 0)
                return;
        if (q->tail_end == FRAME_SMALL_BYTES)
                begin_at(q, u, q->base.block);
        else
                begin_without_block(q, u);
}

void udp_queue_clear(struct udp_queue *q, struct udp *u)
{
        uint64_t head = load_head(q);

        set_head(q, q->tail, head_gen(head) + 1);
        udp_queue_settle(q, u);
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
        struct cursor c = first_held(q, u);

        q->tail_end = q->count = q->charged = q->lent = 0;
        if (head_place(load_head(q)).block == 0) {
                q->base = q->tail = (struct udp_place){0, 0};
                return;
        }
        q->tail_end = frame_size(u->frames, q->tail.block);
        add_ref(u, q->base.block);
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
        struct cursor c = first_held(q, u);
        struct udp_place head = first_unread(q, u).at;
        struct udp_queue sum = {.count = 0};
        bool passed = false;

        assert((head.block == 0) == (q->base.block == 0));
        assert(q->base.block != 0 || (q->tail.block == 0 && q->tail_end == 0 && q->count == 0));
        assert(q->tail.off <= q->tail_end);
        while (q->base.block != 0 && !at_tail(q, c)) {
                assert(c.at.off % 8 == 0 && c.at.off >= sizeof(struct block));
                assert(sum.count < q->count);
                tally(&sum, u, rec_at(c), 1);
                passed |= same_place(c.at, head);
                c = next_rec(q, u, c);
        }
        assert(passed || same_place(head, q->tail));
        assert(q->count == sum.count && q->charged == sum.charged && q->lent == sum.lent);
        assert(q->count != 0 || q->base.block == q->tail.block);
}
