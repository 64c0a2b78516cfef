/*
 * Data beyond a gap (RFC 9293 SHLD-31: queue it), in a list sorted by sequence, without overlaps.
 *
 * A newcomer is cut down to what is missing: it may lose its head to a predecessor and its tail to a
 * successor; when it bridges several, the pieces between are taken one by one from the left and the rest
 * arrives again.
 */
#include "tcp/tcp_conn.h"

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

bool reass_insert(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t seq, uint32_t skip,
                  uint32_t len, bool fin, bool *took)
{
        uint32_t prev = before(t, tc, seq), next, i, end = seq + len;
        struct tcp_rxseg *s;

        if (prev != 0 && seq_gt(end_of(rxseg_at(t, prev)), seq)) {
                uint32_t cut = end_of(rxseg_at(t, prev)) - seq;
                sack_note_dup(tc, seq, seq_min(end_of(rxseg_at(t, prev)), end));
                note_recent(t, tc, prev);
                if (cut >= len) {
                        rxseg_at(t, prev)->fin |= fin && cut == len;
                        return true;
                }
                seq += cut, skip += cut, len -= cut;
        }
        next = prev ? rxseg_at(t, prev)->next : tc->ooo_head;
        if (next != 0 && seq_lt(rxseg_at(t, next)->seq, seq + len)) {
                len = rxseg_at(t, next)->seq - seq;
                fin = false;
                if (len == 0)
                        return true;
        }
        if (len == 0 && !fin)
                return true;
        if (pool_room(&t->sh->rxsegs) < t->sh->rxsegs.cap / 4)
                return false; /* the rest is for what comes in order */
        i = pool_alloc(&t->sh->rxsegs);
        s = rxseg_at(t, i);
        s->data = (struct buf){0, 0, 0};
        if (len != 0 && !rcvbuf_take(t, tc, seg, skip, len, &s->data, took)) {
                pool_free(&t->sh->rxsegs, i);
                return false;
        }
        s->seq = seq;
        s->fin = fin;
        s->at = rxseg_time(tc->last_received);
        link_after(t, tc, prev, i);
        note_recent(t, tc, i);
        tc->slow |= SLOW_OOO;
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
