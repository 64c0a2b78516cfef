/*
 * Data beyond a gap (RFC 9293 SHLD-31: queue it), in a list sorted by sequence, without overlaps.
 *
 * A newcomer is cut down to what is missing: it may lose its head to a predecessor and its tail to a
 * successor, and fall to pieces over those between.
 */
#include "tcp/tcp_conn.h"

struct piece { /* of a segment: what no record has */
        uint32_t seq, skip, len;
        bool fin;
};

static uint32_t end_of(const struct tcp_rxseg *s)
{
        return s->seq + s->data.len;
}

/* The last record that begins at or before seq, 0: none. From the tail, where most arrivals belong. */
static uint32_t before(const struct tcp *t, const struct tcp_conn *tc, uint32_t seq)
{
        uint32_t i = tc->ooo_tail;

        while (i != 0 && seq_gt(rxseg_at(t, i)->seq, seq))
                i = rxseg_at(t, i)->prev;
        return i;
}

static void link_after(struct tcp *t, struct tcp_conn *tc, uint32_t prev, uint32_t i)
{
        struct tcp_rxseg *s = rxseg_at(t, i);

        s->prev = prev;
        s->next = prev ? rxseg_at(t, prev)->next : tc->ooo_head;
        store_order();
        *(prev ? &rxseg_at(t, prev)->next : &tc->ooo_head) = i;
        *(s->next ? &rxseg_at(t, s->next)->prev : &tc->ooo_tail) = i;
}

static void unlink_head(struct tcp *t, struct tcp_conn *tc)
{
        uint32_t i = tc->ooo_head;

        tc->ooo_head = rxseg_at(t, i)->next;
        *(tc->ooo_head ? &rxseg_at(t, tc->ooo_head)->prev : &tc->ooo_tail) = 0;
        for (unsigned k = 0; k < TCP_MAX_SACK; k++)
                tc->ooo_recent[k] *= tc->ooo_recent[k] != i;
}

static bool adjoin(const struct tcp *t, uint32_t i, uint32_t j)
{
        return i == j || end_of(rxseg_at(t, i)) == rxseg_at(t, j)->seq || end_of(rxseg_at(t, j)) == rxseg_at(t, i)->seq;
}

/* The block around record i has grown, or was sent again. */
static void note_recent(const struct tcp *t, struct tcp_conn *tc, uint32_t i)
{
        uint32_t *recent = tc->ooo_recent, at = 0;

        while (at < TCP_MAX_SACK - 1 && (recent[at] == 0 || !adjoin(t, recent[at], i)))
                at++;
        memmove(recent + 1, recent, at * sizeof *recent);
        recent[0] = i;
}

/* What is missing between prev and the record after it. `more` of the segment follows beyond that one: then it is a copy, so
 * that the frame is left for the last piece. */
static bool insert_piece(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t prev, const struct piece *p,
                         bool more, bool *took)
{
        struct tcp_rxseg *s;
        bool ok = true;
        uint32_t i;

        if (pool_room(&t->sh->rxsegs) < t->sh->rxsegs.cap / 4)
                return false; /* the rest is for what comes in order */
        i = pool_alloc(&t->sh->rxsegs);
        s = rxseg_at(t, i);
        s->data = (struct buf){0, 0, 0};
        if (p->len != 0)
                ok = more ? rcvbuf_copy(t, tc, seg, p->skip, p->len, &s->data)
                          : rcvbuf_take(t, tc, seg, p->skip, p->len, &s->data, took);
        if (!ok) {
                pool_free(&t->sh->rxsegs, i);
                return false;
        }
        s->seq = p->seq;
        s->fin = p->fin && !more;
        s->at = rxseg_time(tc->last_received);
        link_after(t, tc, prev, i);
        note_recent(t, tc, i);
        tc->slow |= SLOW_OOO;
        return true;
}

/* A FIN right behind a record is the record's; it may be there already. */
static bool fin_joins(struct tcp *t, struct tcp_conn *tc, uint32_t prev, uint32_t seq, uint32_t len, bool fin)
{
        if (!fin || len != 0 || prev == 0 || end_of(rxseg_at(t, prev)) != seq)
                return false;
        rxseg_at(t, prev)->fin = true;
        note_recent(t, tc, prev);
        return true;
}

bool reass_insert(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t seq, uint32_t skip,
                  uint32_t len, bool fin, bool *took)
{
        uint32_t prev = before(t, tc, seq), end = seq + len;
        struct piece p = {seq, skip, len, fin};
        bool known = false, more;

        if (fin_joins(t, tc, prev, seq, len, fin))
                return true;
        do {
                uint32_t next, stop = end;
                if (prev != 0 && seq_gt(end_of(rxseg_at(t, prev)), p.seq)) {
                        uint32_t to = seq_min(end_of(rxseg_at(t, prev)), end);
                        if (!known)
                                sack_note_dup(tc, p.seq, to); /* the first of them: RFC 2883 §4 */
                        known = true;
                        note_recent(t, tc, prev);
                        if (to == end) {
                                rxseg_at(t, prev)->fin |= fin && end_of(rxseg_at(t, prev)) == end;
                                return true;
                        }
                        p.skip += to - p.seq;
                        p.seq = to;
                }
                next = prev ? rxseg_at(t, prev)->next : tc->ooo_head;
                more = next != 0 && seq_lt(rxseg_at(t, next)->seq, end);
                if (more)
                        stop = rxseg_at(t, next)->seq;
                p.len = stop - p.seq;
                if ((p.len != 0 || (fin && !more)) && !insert_piece(t, tc, seg, prev, &p, more, took))
                        return false;
                p.skip += p.len;
                p.seq = stop;
                prev = next;
        } while (more);
        return true;
}

static void free_rxseg(struct tcp *t, struct tcp_conn *tc, uint32_t i)
{
        uint32_t frame = rxseg_at(t, i)->data.id;

        store_order(); /* out of the queue, then free */
        pool_free(&t->sh->rxsegs, i);
        if (frame != 0)
                rcvbuf_free_buf(t, tc, frame);
}

bool reass_drain(struct tcp *t, struct tcp_conn *tc)
{
        bool fin = false;

        while (tc->ooo_head != 0 && seq_leq(rxseg_at(t, tc->ooo_head)->seq, tc->rcv_nxt)) {
                uint32_t i = tc->ooo_head, old;
                struct tcp_rxseg *s = rxseg_at(t, i);
                unlink_head(t, tc);
                old = MIN(tc->rcv_nxt - s->seq, s->data.len);
                if (old != 0 && !(tc->flags & TCF_DSACK))
                        sack_note_dup(tc, s->seq, s->seq + old); /* what came in order brought it once more */
                s->seq += old;
                s->data.off += old;
                s->data.len -= old;
                fin |= s->fin && s->seq + s->data.len - tc->rcv_nxt <= s->data.len;
                if (s->data.len == 0) {
                        free_rxseg(t, tc, i);
                        continue;
                }
                rcvbuf_link(t, tc, i);
                WRITE_ONCE(tc->rcv_nxt, tc->rcv_nxt + s->data.len);
                tc->bytes_received += s->data.len;
        }
        if (tc->ooo_head == 0)
                tc->slow &= (uint8_t)~SLOW_OOO;
        return fin;
}

void reass_purge(struct tcp *t, struct tcp_conn *tc)
{
        while (tc->ooo_head != 0) {
                uint32_t i = tc->ooo_head;
                unlink_head(t, tc);
                free_rxseg(t, tc, i);
        }
        tc->slow &= (uint8_t)~SLOW_OOO;
}
