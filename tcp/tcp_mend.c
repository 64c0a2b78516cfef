/*
 * Mending: a process died in the middle of a change to a connection; what it left is made whole,
 * and no byte is lost.
 *
 * It works because of the order in which things are stored (store_order() in tcp_conn.h):
 *
 *   - A record is complete before a queue names it, and out of the queue before it is freed. So a
 *     walk from the head meets whole records only.
 *   - A range loses its front in one store of off and len; its seq follows. Only a head is ever
 *     cut, so its seq follows from what is behind it.
 *   - A segment is cut in two by linking the second half before the first is made shorter, and
 *     joined with the next by making it longer before the next goes. Where two overlap, the second
 *     says nothing new.
 *   - Bytes are in the queue before snd_end or rcv_nxt counts them.
 *   - fin_end is there before TCF_FIN_RCVD, that before rcv_nxt, and the state comes last.
 *
 * All else is soft and begins anew: marks of loss, timers, congestion control's own numbers, what
 * is owed. What is in flight is sent again, as after a timeout; data beyond a gap is thrown away,
 * as a receiver may (RFC 2018 §8).
 */
#include <errno.h>

#include "tcp/tcp_cc.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_loss.h"
#include "tcp/tcp_recv.h"
#include "tcp/tcp_send.h"

/* ---- sending ---- */

static bool tx_record_ok(const struct tcp *t, const struct tcp_conn *tc, uint32_t i)
{
        const struct tcp_txseg *s;

        if (i >= t->sh->txsegs.fresh)
                return false;
        s = txseg_at(t, i);
        if (s->len == 0)
                return s->ctl & TCP_FIN;
        return frame_id_holds(t->frames->region[tc->link.tx_region].pool->geom, tc->link.tx_region,
                              s->frame, s->off, s->len);
}

static uint32_t data_end(const struct tcp_txseg *s)
{
        return s->seq + s->len;
}

/* Unlinks what follows s and is in s already, of a cut or a join half done. Returns false if it
 * makes no sense. */
static bool skip_covered(const struct tcp *t, const struct tcp_conn *tc, struct tcp_txseg *s)
{
        const struct tcp_txseg *n;

        for (; s->next != 0; s->next = n->next) {
                if (!tx_record_ok(t, tc, s->next))
                        return false;
                n = txseg_at(t, s->next);
                if (!seq_gt(data_end(s), n->seq))
                        return true;
                if (data_end(s) != data_end(n) || n->frame != s->frame)
                        return false;
                s->ctl |= n->ctl;
        }
        return true;
}

/* The numbers that follow from the queue; `last` is its last record. */
static bool mend_snd_numbers(const struct tcp *t, struct tcp_conn *tc, uint32_t last)
{
        struct tcp_txseg *head;

        tc->snd_tail = last;
        if (last == 0) {
                WRITE_ONCE(tc->snd_una, tc->snd_nxt);
                return tc->snd_end == tc->snd_nxt || tc->snd_end + 1 == tc->snd_nxt;
        }
        head = txseg_at(t, tc->snd_head);
        if (head->next == 0 && seq_lt(data_end(head), tc->snd_end))
                head->seq = tc->snd_end - head->len;
        if (seq_lt(data_end(txseg_at(t, last)), tc->snd_end))
                return false;
        WRITE_ONCE(tc->snd_end, data_end(txseg_at(t, last)));
        WRITE_ONCE(tc->snd_una, head->seq);
        return seq_geq(tc->snd_nxt, tc->snd_una);
}

/* Which of it has been sent. */
static void mend_snd_next(const struct tcp *t, struct tcp_conn *tc)
{
        struct tcp_txseg *s;

        tc->snd_next = tc->snd_head;
        for (; tc->snd_next != 0; tc->snd_next = s->next) {
                s = txseg_at(t, tc->snd_next);
                if (seq_geq(s->seq, tc->snd_nxt))
                        return;
                if (seq_gt(data_end(s), tc->snd_nxt))
                        WRITE_ONCE(tc->snd_nxt, data_end(s));
        }
}

static bool mend_snd(const struct tcp *t, struct tcp_conn *tc)
{
        uint32_t last = 0, steps = 0;

        for (uint32_t i = tc->snd_head; i != 0; i = txseg_at(t, i)->next) {
                struct tcp_txseg *s;
                if (steps++ >= t->sh->txsegs.fresh || !tx_record_ok(t, tc, i) ||
                    !skip_covered(t, tc, txseg_at(t, i)))
                        return false;
                s = txseg_at(t, i);
                if (last == 0 && s->next != 0 && seq_lt(data_end(s), txseg_at(t, s->next)->seq))
                        s->seq = txseg_at(t, s->next)->seq - s->len;
                if (last != 0 && s->seq != data_end(txseg_at(t, last)))
                        return false;
                s->prev = last;
                s->marks &= TXS_EVER_RETX;
                if (s->next != 0)
                        s->ctl &= (uint8_t)~TCP_FIN;
                last = i;
        }
        if (!mend_snd_numbers(t, tc, last))
                return false;
        mend_snd_next(t, tc);
        return true;
}

static void forget_snd(struct tcp_conn *tc)
{
        tc->snd_head = tc->snd_next = tc->snd_tail = 0;
}

/* ---- receiving ---- */

/* Returns true if a record of the receive queues names a range that it can have. */
static bool names_range(const struct tcp *t, const struct tcp_conn *tc, const struct buf *b)
{
        uint32_t rx = FRAME_REGION_RX(tc->tuple.chan);
        const struct frame_region *r = t->frames->region;

        if (b->id == 0)
                return b->len == 0;
        if (frame_id_region(b->id) == FRAME_REGION_PRIVATE)
                return frame_geom_holds(r[FRAME_REGION_PRIVATE].pool->geom, frame_id_num(b->id),
                                        b->off, b->len);
        return frame_id_holds(r[rx].geom, rx, b->id, b->off, b->len);
}

/* A head that was cut: its seq follows from what is behind it. */
static void mend_rcv_head(const struct tcp *t, struct tcp_conn *tc)
{
        struct tcp_rxseg *s = rxseg_at(t, tc->rcv_head);
        uint32_t behind = tc->rcv_nxt - !!(tc->flags & TCF_FIN_RCVD);

        if (s->next != 0 && s->next < t->sh->rxsegs.fresh)
                behind = rxseg_at(t, s->next)->seq;
        if (seq_lt(s->seq + s->data.len, behind))
                s->seq = behind - s->data.len;
}

/* Cuts a receive queue where it stops making sense, and returns its last record. Sequence numbers
 * tell the queue from the free list that a record may be in. */
static uint32_t cut(const struct tcp *t, const struct tcp_conn *tc, uint32_t *head, bool gaps)
{
        uint32_t *link = head, last = 0, end = 0;

        for (uint32_t steps = 0; *link != 0; steps++) {
                struct tcp_rxseg *s;
                if (*link >= t->sh->rxsegs.fresh || steps >= t->sh->rxsegs.fresh)
                        break;
                s = rxseg_at(t, *link);
                if (!names_range(t, tc, &s->data) ||
                    (last != 0 && (gaps ? seq_lt(s->seq, end) : s->seq != end)))
                        break;
                end = s->seq + s->data.len;
                s->prev = last;
                last = *link;
                link = &s->next;
        }
        *link = 0;
        return last;
}

/* Returns false if bytes that were acknowledged are missing. */
static bool mend_rcv(struct tcp *t, struct tcp_conn *tc)
{
        bool fin = tc->flags & TCF_FIN_RCVD;
        uint32_t end;

        tc->rcv_fill = 0;
        if (fin)
                WRITE_ONCE(tc->rcv_nxt, tc->fin_end);
        lend_mend(t, tc);
        if (tc->rcv_head != 0 && tc->rcv_head < t->sh->rxsegs.fresh)
                mend_rcv_head(t, tc);
        tc->rcv_tail = cut(t, tc, &tc->rcv_head, false);
        tc->ooo_tail = cut(t, tc, &tc->ooo_head, true);
        reass_remake(t, tc);
        if (tc->rcv_tail == 0)
                return tc->rcv_unread == 0 || tc->shut & SHUT_RCV;
        end = rxseg_at(t, tc->rcv_tail)->seq + rxseg_at(t, tc->rcv_tail)->data.len;
        if (seq_gt(end, tc->rcv_nxt - fin))
                WRITE_ONCE(tc->rcv_nxt, end + fin);
        return end == tc->rcv_nxt - fin || tc->shut & SHUT_RCV;
}

/* ---- both ---- */

/* Returns true if the connection had come to its end: one that is only being made is CLOSED as
 * well. */
static bool ended(const struct tcp_conn *tc)
{
        return tc->state == TCPS_CLOSED && tc->shut == SHUT_BOTH;
}

/* Returns true if there may be something to send: in SYN-SENT what goes in the SYN
 * (tcp_fastopen.c). */
static bool has_written(const struct tcp_conn *tc)
{
        return tc->state == TCPS_SYN_SENT
                       ? tc->snd_head != 0
                       : tc->state >= TCPS_ESTABLISHED && tc->state != TCPS_TIME_WAIT;
}

bool mend_queues(struct tcp *t, struct tcp_conn *tc)
{
        bool whole = mend_rcv(t, tc);

        tc->snd_fill = 0;
        tc->sacked = tc->lost = tc->retx = 0;
        if (!(tc->flags & TCF_RSV)) /* a reservation that is out is complete */
                tc->rsv_head = tc->rsv_tail = tc->rsv_bytes = 0;
        if (has_written(tc) && whole && mend_snd(t, tc))
                return true;
        if (tc->state == TCPS_SYN_SENT && tc->snd_head != 0)
                return false;
        forget_snd(tc);
        return tc->state == TCPS_TIME_WAIT || tc->state == TCPS_SYN_SENT ||
               tc->state == TCPS_SYN_RECEIVED || ended(tc);
}

/* The handshake is asked for again: whatever of the answer was noted is noted once more. */
static void begin_handshake(struct tcp_conn *tc, nstime now)
{
        WRITE_ONCE(tc->snd_una, tc->iss);
        if (tc->snd_head == 0) {
                WRITE_ONCE(tc->snd_nxt, tc->iss + 1);
                WRITE_ONCE(tc->snd_end, tc->iss + 1);
        }
        WRITE_ONCE(tc->fastopen, tc->fastopen & (uint8_t)~FO_WAITS);
        tc->owed = OWE_SYN;
        tc->backoff = 0;
        timer_arm_rtx(tc, now);
}

static void forget_losses(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        for (uint32_t i = tc->snd_head; i != tc->snd_next; i = txseg_at(t, i)->next)
                txseg_at(t, i)->marks = TXS_EVER_RETX;
        tc->ca_state = CA_OPEN;
        tc->dupacks = 0;
        tc->recover = tc->high_sacked = tc->rack.end = tc->snd_una;
        tc->tlp.out = tc->probes = tc->dups = tc->backoff = 0;
        path_forget_probe(tc, now);
        conn_unflag(tc, TCF_DSACK | TCF_TLP_RETX | TCF_ECN_CUT);
        undo_forget(tc);
        tc->cwnd = MAX(tc->cwnd, tc->snd_mss);
        if (tc->cc == TCP_CC_PLAN) /* half made, or of a report that is half written */
                watch_report(tc);
        tc->cc = tc->opts.cc;
        cc_begin(tc, now);
        timer_arm_rtx(tc, now);
        if (flight(tc) != 0) {
                tc->rtx_kind = RTX_RTO;
                tc->rtx_at = now;
        }
}

static void mend_slow(struct tcp_conn *tc)
{
        tc->slow = (uint8_t)((tc->state != TCPS_ESTABLISHED || tc->fastopen & FO_OPEN ? SLOW_STATE
                                                                                      : 0) |
                             (tc->urg_state ? SLOW_URG : 0) | (tc->ooo_head ? SLOW_OOO : 0) |
                             (tc->shut & SHUT_RCV ? SLOW_SHUT : 0) |
                             (tc->sack_ok ? 0 : SLOW_NOSACK) | (tc->slow & SLOW_REFUSED));
        conn_slow_flow(tc);
        recovery_set_slow(tc);
}

static bool fin_is_placed(const struct tcp *t, const struct tcp_conn *tc)
{
        return tc->snd_nxt == tc->snd_end + 1 ||
               (tc->snd_tail != 0 && txseg_at(t, tc->snd_tail)->ctl & TCP_FIN);
}

/* The ends, ours and the peer's, as far as they had come. False: the connection is over. */
static bool mend_ends(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        if (tc->shut & SHUT_SND && (tc->state == TCPS_ESTABLISHED || tc->state == TCPS_CLOSE_WAIT))
                close_send(t, tc);
        else if (tc->state != TCPS_ESTABLISHED && tc->state != TCPS_CLOSE_WAIT &&
                 !fin_is_placed(t, tc))
                sndbuf_queue_fin(t, tc);
        if (!close_fin_acked(t, tc, now))
                return false;
        if (tc->flags & TCF_FIN_RCVD)
                close_fin_received(t, tc, now);
        if (tc->flags & TCF_CLOSED_BY_APP && !(tc->shut & SHUT_SND))
                tcp_close(t, tc, now);
        return tc->live && tc->state >= TCPS_ESTABLISHED && tc->state != TCPS_TIME_WAIT;
}

/* Private frames in its queues: small ones lie one after the other in the same frame. */
static uint32_t private_mem(const struct tcp *t, const struct tcp_conn *tc)
{
        uint32_t sum = 0, before = 0;

        for (uint32_t i = tc->rcv_head; i != 0; i = rxseg_at(t, i)->next) {
                uint32_t id = rxseg_at(t, i)->data.id;
                if (id != before && frame_id_region(id) == FRAME_REGION_PRIVATE)
                        sum += frame_size(t->frames, id);
                before = id;
        }
        return sum;
}

/* An RST goes out in any case: whether the peer knows, the dead process would have to say. */
static void finish_ended(struct tcp_conn *tc)
{
        tc->owed = OWE_RST;
        tc->rtx_kind = RTX_NONE;
        tc->delack_at = tc->rtx_at = tc->slow_at = tc->cork_at = NSTIME_NEVER;
        if (tc->err == 0 && !(tc->flags & TCF_CLOSED_BY_APP))
                WRITE_ONCE(tc->err, ECONNRESET);
}

void mend_finish(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        reass_purge(t, tc);
        tc->rcv_mem = private_mem(t, tc) + lend_private(t, tc);
        rcvbuf_drop_empty(t, tc);
        rcvbuf_size(tc, rcvbuf_limit_by(tc, &tc->opts));
        tc->delack_at = tc->cork_at = NSTIME_NEVER;
        if (tc->state == TCPS_CLOSED) {
                finish_ended(tc);
        } else if (tc->state == TCPS_TIME_WAIT) {
                conn_enter_time_wait(t, tc, now);
                tc->owed |= OWE_ACK; /* it may have waited */
        } else if (tc->state < TCPS_ESTABLISHED) {
                begin_handshake(tc, now);
        } else {
                if (tc->acc_state == ACC_HALF_OPEN)
                        listen_established(t, tc);
                forget_losses(t, tc, now);
                timer_keepalive(tc, now);
                if (!mend_ends(t, tc, now)) {
                        if (tc->state == TCPS_TIME_WAIT)
                                tc->owed |= OWE_ACK;
                        return;
                }
                tc->owed = OWE_ACK | (tc->snd_next != 0 ? OWE_PUSH : 0) |
                           (tc->fastopen & FO_OPEN ? OWE_SYN : 0);
        }
        mend_slow(tc);
        conn_raise(t, tc, TCP_EV_READABLE | TCP_EV_WRITABLE);
}
