/*
 * Data beyond a gap (RFC 9293 SHLD-31: queue it), in a list sorted by sequence, without overlaps.
 *
 * A newcomer is cut down to what is missing: it may lose its head to a predecessor and its tail to
 * a successor, and fall to pieces over those between.
 *
 *     run            run
 *   +---+---+---+  +---+       a.run = c
 *   | a | b | c |  | d |       c.run = a
 *   +---+---+---+  +---+       d.run = d
 *
 * Records that follow each other without a gap are a run, which is what SACK calls a block. Its
 * first and its last record name each other, so that runs are stepped over and not walked through.
 * What a segment costs does not grow with what is queued, only with the number of gaps. Of those no
 * more than RUNS_MOST are looked at (CVE-2018-5390, "SegmentSmack").
 */
#include "tcp/tcp_conn.h"
#include "tcp/tcp_loss.h"
#include "tcp/tcp_recv.h"

#define RUNS_MOST 1024u /* what lies before so many gaps is sent again when its time comes */
/* Records of one connection: four times the largest window in full segments. */
#define RECORDS_MOST 16384u

struct piece { /* of a segment: what no record has */
        uint32_t seq, skip, len;
        bool fin;
};

static uint32_t end_of(const struct tcp_rxseg *s)
{
        return s->seq + s->data.len;
}

/* The last record of the last run that begins at or before seq, 0: none. From the tail, where most
 * arrivals belong. False: too far from there. */
static bool before(const struct tcp *t, const struct tcp_conn *tc, uint32_t seq, uint32_t *last)
{
        uint32_t i = tc->ooo_tail;

        for (unsigned steps = 0; i != 0; steps++) {
                const struct tcp_rxseg *first = rxseg_at(t, rxseg_at(t, i)->run);
                if (seq_leq(first->seq, seq))
                        break;
                if (steps == RUNS_MOST)
                        return false;
                i = first->prev;
        }
        *last = i;
        return true;
}

static void link_after(struct tcp *t, struct tcp_conn *tc, uint32_t prev, uint32_t i)
{
        struct tcp_rxseg *s = rxseg_at(t, i);

        assert(prev == 0 || seq_geq(s->seq, end_of(rxseg_at(t, prev))));
        s->prev = prev;
        s->next = prev ? rxseg_at(t, prev)->next : tc->ooo_head;
        store_order();
        *(prev ? &rxseg_at(t, prev)->next : &tc->ooo_head) = i;
        *(s->next ? &rxseg_at(t, s->next)->prev : &tc->ooo_tail) = i;
        tc->ooo_records++;
}

static void make_run(struct tcp *t, uint32_t first, uint32_t last)
{
        rxseg_at(t, first)->run = last & INT32_MAX;
        rxseg_at(t, last)->run = first & INT32_MAX;
}

static void unlink_head(struct tcp *t, struct tcp_conn *tc)
{
        uint32_t i = tc->ooo_head, last = rxseg_at(t, i)->run;

        assert(tc->ooo_records != 0);
        tc->ooo_head = rxseg_at(t, i)->next;
        *(tc->ooo_head ? &rxseg_at(t, tc->ooo_head)->prev : &tc->ooo_tail) = 0;
        if (last != i)
                make_run(t, tc->ooo_head, last);
        for (unsigned k = 0; k < TCP_MAX_SACK; k++)
                tc->ooo_recent[k] *= tc->ooo_recent[k] != i;
        tc->ooo_records--;
}

/* The run that begins with record `first` has grown, or was sent again; `gone` begins none
 * any more. */
static void note_recent(struct tcp_conn *tc, uint32_t first, uint32_t gone)
{
        uint32_t *recent = tc->ooo_recent, at = 0;

        for (unsigned k = 0; k < TCP_MAX_SACK; k++)
                recent[k] *= recent[k] != first && recent[k] != gone;
        while (at < TCP_MAX_SACK - 1 && recent[at] != 0)
                at++;
        memmove(recent + 1, recent, at * sizeof *recent);
        recent[0] = first;
}

/* A record that has just been linked: a run of its own, or part of those before and behind. */
static void join(struct tcp *t, struct tcp_conn *tc, uint32_t i)
{
        const struct tcp_rxseg *s = rxseg_at(t, i);
        uint32_t first = i, last = i, gone = 0;

        if (s->prev != 0 && end_of(rxseg_at(t, s->prev)) == s->seq)
                first = rxseg_at(t, s->prev)->run;
        if (s->next != 0 && rxseg_at(t, s->next)->seq == end_of(s)) {
                gone = s->next;
                last = rxseg_at(t, gone)->run;
        }
        make_run(t, first, last);
        note_recent(tc, first, gone);
}

/* Inserts what is missing between prev and the record after it. `more` of the segment follows
 * beyond that one: then it is a copy, so that the frame is left for the last piece. */
static bool insert_piece(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg,
                         uint32_t prev, const struct piece *p, bool more, bool *took)
{
        struct tcp_rxseg *s;
        bool ok = true;
        uint32_t i;

        if (pool_room(&t->sh->rxsegs) < t->sh->rxsegs.cap / 4 || tc->ooo_records >= RECORDS_MOST)
                return false; /* the rest is for what comes in order, and for others */
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
        join(t, tc, i);
        tc->slow |= SLOW_OOO;
        return true;
}

/* A FIN right behind a run is its last record's; it may be there already. */
static bool fin_joins(struct tcp *t, struct tcp_conn *tc, uint32_t last, uint32_t seq, uint32_t len,
                      bool fin)
{
        if (!fin || len != 0 || last == 0 || end_of(rxseg_at(t, last)) != seq)
                return false;
        rxseg_at(t, last)->fin = true;
        note_recent(tc, rxseg_at(t, last)->run, 0);
        return true;
}

bool reass_insert(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t seq,
                  uint32_t skip, uint32_t len, bool fin, bool *took)
{
        uint32_t last, end = seq + len;
        struct piece p = {seq, skip, len, fin};
        bool known = false, more;

        if (!before(t, tc, seq, &last))
                return false;
        if (fin_joins(t, tc, last, seq, len, fin))
                return true;
        do {
                uint32_t next, stop = end;
                if (last != 0 && seq_gt(end_of(rxseg_at(t, last)), p.seq)) {
                        uint32_t to = seq_min(end_of(rxseg_at(t, last)), end);
                        if (!known)
                                sack_note_dup(tc, p.seq, to); /* the first of them: RFC 2883 §4 */
                        known = true;
                        note_recent(tc, rxseg_at(t, last)->run, 0);
                        if (to == end) {
                                rxseg_at(t, last)->fin |= fin && end_of(rxseg_at(t, last)) == end;
                                return true;
                        }
                        p.skip += to - p.seq;
                        p.seq = to;
                }
                next = last ? rxseg_at(t, last)->next : tc->ooo_head;
                more = next != 0 && seq_lt(rxseg_at(t, next)->seq, end);
                if (more)
                        stop = rxseg_at(t, next)->seq;
                p.len = stop - p.seq;
                if (more)
                        next = rxseg_at(t, next)->run; /* which the piece will join */
                if ((p.len != 0 || (fin && !more)) &&
                    !insert_piece(t, tc, seg, last, &p, more, took))
                        return false;
                p.skip += p.len;
                p.seq = stop;
                last = next;
        } while (more);
        return true;
}

void reass_remake(struct tcp *t, struct tcp_conn *tc)
{
        uint32_t first = tc->ooo_head;

        memset(tc->ooo_recent, 0, sizeof tc->ooo_recent);
        tc->ooo_records = 0;
        for (uint32_t i = first; i != 0; i = rxseg_at(t, i)->next) {
                uint32_t prev = rxseg_at(t, i)->prev;
                if (prev != 0 && end_of(rxseg_at(t, prev)) != rxseg_at(t, i)->seq)
                        first = i;
                make_run(t, first, i);
                tc->ooo_records++;
        }
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
                        /* What came in order brought it once more. */
                        sack_note_dup(tc, s->seq, s->seq + old);
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
