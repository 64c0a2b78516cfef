/*
 * Receiving by loan: what has come is handed out where it lies, and its memory is given back when
 * it is returned.
 *
 *   rcv_head -> record -> record  the head's range becomes a loan's: a frame of the peer's, or a
 *                                 private one
 *   sh->loans                     who has it, of which connection, the range
 *
 * Bytes on loan are read, but for the buffer, which they fill as unread ones do: rcv_limit is
 * rcv_size less rcv_lent. So who keeps what it has been lent shuts its own window, and that is all
 * that comes of it. A loan is a process's, and ends with it.
 *
 * After a death the records say all: a loan is whole before `proc` says that there is one, and its
 * bytes leave the queue after that (lend_mend()).
 */
#include <errno.h>

#include "tcp/tcp_conn.h"
#include "tcp/tcp_lend.h"
#include "tcp/tcp_recv.h"
#include "tcp/tcp_send.h"
#include "tcp/tcp_stream.h"

static struct tcp_loan *loan_at(const struct tcp *t, uint32_t i)
{
        return pool_at(&t->sh->loans, i);
}

#define for_each_loan(t, l)                                    \
        for (uint32_t i_ = 1; i_ < (t)->sh->loans.fresh; i_++) \
                for (struct tcp_loan *l = loan_at(t, i_); l != NULL && l->proc != 0; l = NULL)

static bool is_private(uint32_t frame)
{
        return frame_id_region(frame) == FRAME_REGION_PRIVATE;
}

void rcvbuf_size(struct tcp_conn *tc, uint32_t bytes)
{
        if (bytes != 0) /* a window that moves by half of it can be said */
                bytes = MAX(bytes, 2u << tc->rcv_wscale);
        tc->rcv_size = bytes;
        if (tc->group_share != 0)
                bytes = MIN(bytes, tc->group_share);
        WRITE_ONCE(tc->rcv_limit, bytes > tc->rcv_lent ? bytes - tc->rcv_lent : 0);
}

static void count_lent(struct tcp_conn *tc, uint32_t lent)
{
        tc->rcv_lent = lent;
        rcvbuf_size(tc, tc->rcv_size);
}

/* ---- lending ---- */

/* The head's bytes in a frame of our own. False: there is none. */
static bool copy_head(struct tcp *t, struct tcp_conn *tc, const struct tcp_rxseg *s, struct buf *to)
{
        enum frame_class c = s->data.len > FRAME_SMALL_BYTES ? FRAME_LARGE : FRAME_SMALL;
        uint32_t id = frame_alloc(t->frames, FRAME_REGION_PRIVATE, c, 0);

        if (id == 0)
                return false;
        *to = (struct buf){id, 0, s->data.len};
        memcpy(frame_addr(t->frames, id), frame_addr(t->frames, s->data.id) + s->data.off,
               s->data.len);
        tc->rcv_mem += frame_class_bytes(c);
        return true;
}

/* The head leaves the queue. What it has is the loan's, or a copy of it is. */
static void unlink_head(struct tcp *t, struct tcp_conn *tc, bool copied)
{
        uint32_t i = tc->rcv_head;
        struct tcp_rxseg *s = rxseg_at(t, i);
        uint32_t frame = s->data.id;

        WRITE_ONCE(tc->rcv_unread, tc->rcv_unread - s->data.len);
        store_order();
        tc->rcv_head = s->next;
        if (tc->rcv_head == 0)
                tc->rcv_tail = 0;
        store_order();
        pool_free(&t->sh->rxsegs, i);
        if (copied)
                rcvbuf_free_buf(t, tc, frame);
}

static bool lend_head(struct tcp *t, struct tcp_conn *tc, uint32_t proc, bool ours,
                      struct tcp_lent *out)
{
        const struct tcp_rxseg *s = rxseg_at(t, tc->rcv_head);
        bool copied = ours && !is_private(s->data.id);
        uint32_t i = pool_alloc(&t->sh->loans);
        struct tcp_loan *l;

        if (i == 0)
                return false;
        l = loan_at(t, i);
        if (copied && !copy_head(t, tc, s, &l->data)) {
                pool_free(&t->sh->loans, i);
                return false;
        }
        if (!copied)
                l->data = s->data;
        l->owner = frame_owner(tc);
        l->seq = s->seq;
        l->serial++;
        store_order();
        l->proc = proc;
        store_order();
        *out = (struct tcp_lent){frame_addr(t->frames, l->data.id) + l->data.off, l->data.len,
                                 (uint64_t)l->serial << 32 | i};
        unlink_head(t, tc, copied);
        count_lent(tc, tc->rcv_lent + out->len);
        return true;
}

int tcp_recv_lend(struct tcp *t, struct tcp_conn *tc, uint32_t proc, bool ours, struct tcp_lent *v,
                  int n, nstime now)
{
        struct span any;
        int got = tcp_recv_peek(t, tc, 0, 1, &any, 1), lent = 0;

        assert(proc != 0 && n >= 0);
        if (got <= 0)
                return got;
        if (tc->urg_state != URG_NONE)
                return -EOPNOTSUPP;
        while (lent < n && tc->rcv_unread != 0 && lend_head(t, tc, proc, ours, &v[lent]))
                lent++;
        if (lent == 0 && n != 0)
                return -ENOBUFS;
        if (!tc->opts.rcvbuf && !tc->link.lossless)
                rcvbuf_autosize(t, tc, now);
        return lent;
}

/* ---- returning ---- */

/* The connection that it is of, or NULL: that is over. */
static struct tcp_conn *conn_of(const struct tcp *t, const struct tcp_loan *l)
{
        struct tcp_conn *tc = conn_at(t, l->owner & ((1u << 20) - 1));

        return tc->live && frame_owner(tc) == l->owner ? tc : NULL;
}

static void free_frame(struct tcp *t, uint32_t frame)
{
        assert(is_private(frame) || *lent_count(t, frame) != 0);
        if (!is_private(frame))
                --*lent_count(t, frame);
        frame_drop(t->frames, frame);
}

static void end_loan(struct tcp *t, struct tcp_loan *l, nstime now)
{
        struct tcp_conn *tc = conn_of(t, l);
        struct buf data = l->data;

        assert(l->proc != 0 && (tc == NULL || tc->rcv_lent >= data.len));
        l->proc = 0;
        store_order();
        pool_free(&t->sh->loans, pool_index(&t->sh->loans, l));
        if (tc == NULL) {
                free_frame(t, data.id);
                return;
        }
        rcvbuf_free_buf(t, tc, data.id);
        count_lent(tc, tc->rcv_lent - data.len);
        output_window_update(t, tc, now);
}

int tcp_recv_return(struct tcp *t, struct tcp_conn *tc, uint32_t proc, uint64_t token, nstime now)
{
        uint32_t i = (uint32_t)token;
        struct tcp_loan *l;

        assert(proc != 0);
        if (i == 0 || i >= t->sh->loans.fresh)
                return -EINVAL;
        l = loan_at(t, i);
        if (l->proc != proc || l->serial != token >> 32 || l->owner != frame_owner(tc))
                return -EINVAL;
        end_loan(t, l, now);
        return 0;
}

void tcp_loans_end(struct tcp *t, const struct tcp_conn *tc, uint32_t proc, nstime now)
{
        assert(proc != 0);
        if (likely(t->sh->loans.used == 0))
                return;
        for_each_loan(t, l) if (l->proc == proc && (tc == NULL || l->owner == frame_owner(tc)))
                end_loan(t, l, now);
}

bool tcp_chan_lent(const struct tcp *t, uint32_t chan)
{
        for_each_loan(t, l) if (!is_private(l->data.id) &&
                                frame_region_chan(frame_id_region(l->data.id)) == chan) return true;
        return false;
}

/* ---- after a death ---- */

/* Lent and still in the queue: the loan holds if it has what the queue has, else (a copy of it) it
 * was never given. */
void lend_mend(struct tcp *t, struct tcp_conn *tc)
{
        const struct tcp_rxseg *s;

        if (tc->rcv_head == 0 || tc->rcv_head >= t->sh->rxsegs.fresh)
                return;
        s = rxseg_at(t, tc->rcv_head);
        for_each_loan(t, l)
        {
                if (l->owner != frame_owner(tc) || l->seq != s->seq || l->data.len != s->data.len)
                        continue;
                if (l->data.id != s->data.id) {
                        l->proc = 0;
                        return;
                }
                tc->rcv_head = s->next;
                if (s->next == 0)
                        WRITE_ONCE(tc->rcv_unread, 0);
                return;
        }
}

static bool makes_sense(const struct tcp *t, const struct tcp_loan *l)
{
        uint32_t region = FRAME_REGION_RX(frame_region_chan(frame_id_region(l->data.id)));
        const struct frame_region *r;

        if (is_private(l->data.id))
                region = FRAME_REGION_PRIVATE;
        r = &t->frames->region[region];
        return frame_id_holds(r->pool ? r->pool->geom : r->geom, region, l->data.id, l->data.off,
                              l->data.len) &&
               (l->owner & ((1u << 20) - 1)) != 0;
}

static void hold(struct tcp *t, uint32_t frame)
{
        if (is_private(frame))
                frame_pool_rec(t->frames->region[FRAME_REGION_PRIVATE].pool, frame_id_num(frame))
                        ->refs++;
        else
                ++*lent_count(t, frame);
}

void lend_recover(struct tcp *t, uint64_t *live)
{
        for (uint32_t i = 1; i < t->sh->conns.fresh; i++)
                conn_at(t, i)->rcv_lent = 0;
        for_each_loan(t, l)
        {
                struct tcp_conn *tc;
                if (!makes_sense(t, l)) {
                        l->proc = 0;
                        continue;
                }
                live[i_ / 64] |= 1ull << i_ % 64;
                hold(t, l->data.id);
                tc = conn_of(t, l);
                if (tc != NULL)
                        tc->rcv_lent += l->data.len;
        }
        pool_rebuild(&t->sh->loans, live);
}

uint32_t lend_private(const struct tcp *t, const struct tcp_conn *tc)
{
        uint32_t sum = 0, before = 0;

        for_each_loan(t, l)
        {
                if (l->owner != frame_owner(tc) || !is_private(l->data.id) || l->data.id == before)
                        continue;
                sum += frame_size(t->frames, l->data.id);
                before = l->data.id;
        }
        return sum;
}
