/*
 * A loss that was none: the window is what it was before (RFC 4015, RFC 9438 §4.9).
 *
 * Segments that overtake each other look lost, and so does everything when the path is slow all at once. That it was a mistake
 * is seen when
 *
 *      - the acknowledgement of what was sent again echoes a time before that: the original had arrived (Eifel, RFC 3522);
 *      - the peer reports all that was sent again as duplicates (RFC 2883, 3708), perhaps long after;
 *      - all that was marked lost is acknowledged before any of it was sent again.
 *
 * An episode begins when the window is reduced, and ends with the next, or with its undoing. One in which anything was lost for
 * good ends none of these ways.
 *
 *      recovery_enter(), recovery_timeout() -> undo_begin()        output_lost() -> undo_resent()
 *      sack_input() -> undo_duplicate()                            ack_input()   -> undo_ack()
 */
#include "tcp/tcp_cc.h"

void undo_begin(struct tcp_conn *tc)
{
        tc->undo_cwnd = tc->cwnd;
        tc->undo_ssthresh = tc->ssthresh;
        tc->undo_una = tc->snd_una;
        tc->undo_retx = 0;
        WRITE_ONCE(tc->flags, (tc->flags & ~(uint32_t)TCF_UNDO_SENT) | TCF_UNDO);
}

void undo_forget(struct tcp_conn *tc)
{
        conn_unflag(tc, TCF_UNDO | TCF_UNDO_SENT);
}

void undo_resent(struct tcp_conn *tc, const struct tcp_seg *seg)
{
        if (!(tc->flags & TCF_UNDO))
                return;
        if (!(tc->flags & TCF_UNDO_SENT))
                tc->undo_ts = seg->tsval;
        conn_flag(tc, TCF_UNDO_SENT);
        tc->undo_retx += seg->len;
}

void undo_duplicate(struct tcp_conn *tc, const struct tcp_sack_block *b)
{
        if (tc->flags & TCF_UNDO && seq_gt(b->right, tc->undo_una) && seq_leq(b->right, tc->snd_nxt) && !tc->tlp_out)
                tc->undo_retx -= MIN(tc->undo_retx, b->right - b->left);
}

/* Everything that was sent again had arrived before. */
static bool all_duplicates(const struct tcp_conn *tc)
{
        return tc->flags & TCF_UNDO_SENT && tc->undo_retx == 0;
}

/* RFC 3522 §3.2 step 5 */
static bool of_the_original(const struct tcp_conn *tc, const struct tcp_seg *seg)
{
        if (!(tc->flags & TCF_UNDO_SENT))
                return seq_geq(tc->snd_una, tc->recover);
        return tc->ts_ok && seg->has_ts && seg->tsecr != 0 && (int32_t)(seg->tsecr - tc->undo_ts) < 0 &&
               (tc->retx == 0 || seq_geq(tc->snd_una, tc->recover));
}

static void nothing_is_lost(struct tcp *t, struct tcp_conn *tc)
{
        for (uint32_t i = tc->snd_head; i != 0 && i != tc->snd_next; i = txseg_at(t, i)->next)
                txseg_at(t, i)->marks &= (uint8_t)~(TXS_LOST | TXS_RETX);
        tc->lost = tc->retx = 0;
}

/* After a timeout little may be in flight: no burst of a whole window (RFC 4015 §3.2 step 8, RFC 5681 §4.1). */
static void restore(struct tcp_conn *tc)
{
        uint32_t most = UINT32_MAX;

        if (tc->ca_state == CA_LOSS)
                most = flight(tc) + cc_initial_window(tc);
        tc->cwnd = MAX(tc->cwnd, MIN(tc->undo_cwnd, most));
        tc->ssthresh = MAX(tc->ssthresh, tc->undo_ssthresh);
        if (cc_of(tc)->undo != NULL)
                cc_of(tc)->undo(tc);
}

void undo_ack(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t acked)
{
        bool during = tc->ca_state >= CA_RECOVERY;

        if (!(tc->flags & TCF_UNDO) || !(all_duplicates(tc) || (during && acked != 0 && of_the_original(tc, seg))))
                return;
        count(t->cnt, COUNT_TCP_UNDO);
        if (tc->ca_state != CA_LOSS)
                conn_flag(tc, TCF_REORDER);       /* RFC 8985 §6.2 step 3: what was not lost was late */
        restore(tc);
        undo_forget(tc);
        if (!during)
                return;
        nothing_is_lost(t, tc);
        tc->ca_state = CA_DISORDER;
        tc->dupacks = 0;
        tc->owed &= (uint8_t)~OWE_FORCE;
}
