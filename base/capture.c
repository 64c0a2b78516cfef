/* The capture ring: one writer at a time, any number of readers. */
#include "base/capture.h"

static uint32_t padded(uint32_t bytes)
{
        return (uint32_t)sizeof(struct capture_rec) + ((bytes + 7) & ~7u);
}

void capture_init(struct capture *c, uint32_t cap)
{
        assert((cap & (cap - 1)) == 0 && cap >= 4 * CAPTURE_SNAP_MAX);
        c->cap = cap;
}

/* Announces that `bytes` from `head` on are about to be written. */
static void begin(struct capture *c, uint64_t head, uint32_t bytes)
{
        atomic_store_explicit(&c->begun, head + bytes, memory_order_relaxed);
        /* A reader that sees any of the new bytes sees the announcement too. */
        atomic_thread_fence(memory_order_release);
}

static uint64_t skip_to_start(struct capture *c, uint64_t head)
{
        uint32_t at = (uint32_t)head & (c->cap - 1), left = c->cap - at;
        uint32_t filler = CAPTURE_FILLER;

        begin(c, head, left);
        memcpy(c->ring + at, &filler, sizeof filler);
        return head + left;
}

static void copy_in(uint8_t *to, const struct capture_pkt *p, uint32_t kept)
{
        uint32_t n = MIN(p->hdr_len, kept);

        memcpy(to, p->hdr, n);
        if (kept > n)
                memcpy(to + n, p->data, kept - n);
}

void capture_write(struct capture *c, const struct capture_pkt *p, nstime now)
{
        uint32_t snap = MIN(atomic_load_explicit(&c->snap, memory_order_relaxed), CAPTURE_SNAP_MAX);
        uint32_t kept = MIN(p->hdr_len + (p->data != NULL ? p->data_len : 0), snap),
                 need = padded(kept);
        uint64_t head = atomic_load_explicit(&c->head, memory_order_relaxed);
        struct capture_rec rec = {.kept = kept,
                                  .len = p->hdr_len + p->data_len,
                                  .at = now,
                                  .seq = c->seq++,
                                  .dir = (uint8_t)p->dir,
                                  .chan = p->chan};
        uint8_t *to;

        if (((uint32_t)head & (c->cap - 1)) + need > c->cap)
                head = skip_to_start(c, head);
        begin(c, head, need);
        to = c->ring + ((uint32_t)head & (c->cap - 1));
        memcpy(to, &rec, sizeof rec);
        copy_in(to + sizeof rec, p, kept);
        atomic_store_explicit(&c->head, head + need, memory_order_release);
}

void capture_reader_init(struct capture_reader *r, const struct capture *c)
{
        *r = (struct capture_reader){.pos = atomic_load_explicit(&c->head, memory_order_acquire)};
}

/* Copies what the writer may be writing over: still_whole() says afterwards. Not by memcpy(), in
 * which a sanitizer would find a race. */
static READS_TORN void copy_torn(void *to, const uint8_t *from, size_t n)
{
        /* Records begin at words and are padded. */
        const volatile uint64_t *word = (const volatile uint64_t *)(const void *)from;
        uint8_t *d = to;

        for (; n >= sizeof *word; d += sizeof *word, n -= sizeof *word) {
                uint64_t w = *word++;
                memcpy(d, &w, sizeof w);
        }
        if (n != 0) {
                uint64_t w = *word;
                memcpy(d, &w, n);
        }
}

/* Returns true if what was copied from `pos` on was not being written over meanwhile. */
static bool still_whole(const struct capture *c, uint64_t pos, uint32_t cap)
{
        atomic_thread_fence(memory_order_acquire);
        return atomic_load_explicit(&c->begun, memory_order_relaxed) <= pos + cap;
}

/* The header at the reader's position; false: nothing there, or it was written over and the reader
 * begins anew. */
static bool read_header(struct capture_reader *r, const struct capture *c, uint32_t cap,
                        struct capture_rec *rec)
{
        for (int tries = 0; tries < 3; tries++) {
                uint64_t head = atomic_load_explicit(&c->head, memory_order_acquire);
                uint32_t at = (uint32_t)r->pos & (cap - 1);

                if (r->pos >= head)
                        return false;
                copy_torn(rec, c->ring + at, MIN(sizeof *rec, cap - at));
                if (!still_whole(c, r->pos, cap)) {
                        r->pos = head; /* too slow: the gap in the numbers says by how much */
                } else if (rec->kept == CAPTURE_FILLER) {
                        r->pos += cap - at;
                } else {
                        return rec->kept <= CAPTURE_SNAP_MAX && at + padded(rec->kept) <= cap;
                }
        }
        return false;
}

bool capture_read(struct capture_reader *r, const struct capture *c, uint32_t cap,
                  struct capture_rec *rec, void *buf, size_t n)
{
        if (!read_header(r, c, cap, rec))
                return false;
        copy_torn(buf, c->ring + ((uint32_t)r->pos & (cap - 1)) + sizeof *rec, MIN(n, rec->kept));
        if (!still_whole(c, r->pos, cap)) {
                r->pos = atomic_load_explicit(&c->head, memory_order_acquire);
                return false;
        }
        r->pos += padded(rec->kept);
        if (r->started && rec->seq > r->next_seq)
                r->missed += rec->seq - r->next_seq;
        r->started = true;
        r->next_seq = rec->seq + 1;
        return true;
}
