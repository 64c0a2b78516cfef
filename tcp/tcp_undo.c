/*
 * A loss that was none: the window is what it was before (RFC 4015, RFC 9438 §4.9).
 *
 * Segments that overtake each other look lost, and so does everything when the path is slow all at
 * once. That it was a mistake is seen when
 *
 *   - the acknowledgement of what was sent again echoes a time before that: the original had
 *     arrived (Eifel, RFC 3522);
 *   - the peer reports all that was sent again as duplicates (RFC 2883, 3708), perhaps long after;
 *   - all that was marked lost is acknowledged before any of it was sent again;
 *   - after a timeout something is acknowledged that was sent once only (F-RTO, RFC 5682): see
 *     frto_ack().
 *
 * An episode begins when the window is reduced, and ends with the next, or with its undoing. One in
 * which anything was lost for good ends none of these ways.
 *
 *   recovery_enter(), recovery_timeout() -> undo_begin()  output_lost() -> undo_resent()
 *   sack_input() -> undo_duplicate()                      ack_input()   -> undo_ack() -> frto_ack()
 */
#include "tcp/tcp_cc.h"
#include "tcp/tcp_ecn.h"
#include "tcp/tcp_loss.h"

#define FRTO (TCF_FRTO | TCF_FRTO_NEW | TCF_ORIG_ACKED)

void undo_begin(struct tcp_conn *tc)
{
        tc->undo.cwnd = tc->cwnd;
        tc->undo.ssthresh = tc->ssthresh;
        tc->undo.una = tc->snd_una;
        tc->undo.retx = 0;
        WRITE_ONCE(tc->flags, (tc->flags & ~(uint32_t)(TCF_UNDO_SENT | FRTO)) | TCF_UNDO);
}

void undo_forget(struct tcp_conn *tc)
{
        conn_unflag(tc, TCF_UNDO | TCF_UNDO_SENT | FRTO);
}

/* A new timeout, or the same again: the way may have been away for several. A connection that tries
 * a larger size knows another reason why nothing came. */
void undo_timeout(struct tcp_conn *tc, bool first)
{
        conn_unflag(tc, TCF_FRTO_NEW);
        if (first && tc->path.probe == 0)
                conn_flag(tc, TCF_FRTO);
}

void undo_resent(struct tcp_conn *tc, const struct tcp_seg *seg)
{
        if (!(tc->flags & TCF_UNDO))
                return;
        if (!(tc->flags & TCF_UNDO_SENT))
                tc->undo.ts = seg->tsval;
        conn_flag(tc, TCF_UNDO_SENT);
        tc->undo.retx += seg->len;
}

void undo_duplicate(struct tcp_conn *tc, const struct tcp_sack_block *b)
{
        if (tc->flags & TCF_UNDO && seq_gt(b->right, tc->undo.una) &&
            seq_leq(b->right, tc->snd_nxt))
                tc->undo.retx -= MIN(tc->undo.retx, b->right - b->left);
}

/* Everything that was sent again had arrived before. */
static bool all_duplicates(const struct tcp_conn *tc)
{
        return tc->flags & TCF_UNDO_SENT && tc->undo.retx == 0;
}

/* RFC 3522 §3.2 step 5 */
static bool of_the_original(const struct tcp_conn *tc, const struct tcp_seg *seg)
{
        if (!(tc->flags & TCF_UNDO_SENT))
                return seq_geq(tc->snd_una, tc->recover);
        return tc->ts_ok && seg->has_ts && seg->tsecr != 0 &&
               (int32_t)(seg->tsecr - tc->undo.ts) < 0 &&
               (tc->retx == 0 || seq_geq(tc->snd_una, tc->recover));
}

/* A full segment that the window takes. */
static bool has_new(const struct tcp *t, const struct tcp_conn *tc)
{
        uint32_t room = tc->snd_una + tc->snd_wnd - tc->snd_nxt;

        if (tc->snd_next == 0 || (int32_t)room < (int32_t)tc->snd_mss)
                return false;
        return txseg_at(t, tc->snd_next)->len >= tc->snd_mss ||
               txseg_at(t, tc->snd_next)->next != 0;
}

/*
 * RFC 5682 §2.1 and §3.1, in short: after a timeout the first segment alone is sent again. Of its
 * acknowledgement nobody knows which of the two it is for, so the next segments are new ones. If
 * the peer misses any, it says so by duplicates, and what is lost goes again; if not, the next
 * acknowledgement is of something that was sent once.
 *
 * With SACK the first that is of such a one is enough (as Linux): what the peer had before the
 * timeout, it had reported. Without, it may have been there behind a gap. All at once says nothing
 * either way (§2.1 step 2a).
 */
static bool frto_ack(const struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg,
                     uint32_t acked)
{
        bool original = tc->flags & TCF_ORIG_ACKED, asked = tc->flags & TCF_FRTO_NEW;

        if (!(tc->flags & TCF_FRTO))
                return false;
        conn_unflag(tc, TCF_ORIG_ACKED);
        if (acked == 0) {
                if (asked && (tc->sack_ok ? seg->nsack != 0 : seg->len == 0)) { /* step 3a */
                        conn_unflag(tc, FRTO);
                        tc->owed |= OWE_FORCE;
                }
                return false;
        }
        if (original && seq_lt(tc->snd_una, tc->recover) && (tc->sack_ok || asked))
                return true; /* step 3b */
        if (asked || !has_new(t, tc) || seq_geq(tc->snd_una, tc->recover))
                conn_unflag(tc, FRTO);
        else
                conn_flag(tc, TCF_FRTO_NEW); /* step 2b */
        return false;
}

static void nothing_is_lost(struct tcp *t, struct tcp_conn *tc)
{
        for (uint32_t i = tc->snd_head; i != 0 && i != tc->snd_next; i = txseg_at(t, i)->next)
                txseg_at(t, i)->marks &= (uint8_t) ~(TXS_LOST | TXS_RETX);
        tc->lost = tc->retx = 0;
}

/* After a timeout little may be in flight: no burst of a whole window (RFC 4015 §3.2 step 8, RFC
 * 5681 §4.1). */
static void restore(struct tcp_conn *tc)
{
        uint32_t most = UINT32_MAX;

        if (tc->ca_state == CA_LOSS)
                most = flight(tc) + cc_initial_window(tc);
        tc->cwnd = MAX(tc->cwnd, MIN(tc->undo.cwnd, most));
        tc->ssthresh = MAX(tc->ssthresh, tc->undo.ssthresh);
        ecn_restored(tc);
        if (cc_of(tc)->undo != NULL)
                cc_of(tc)->undo(tc);
}

static void undo(struct tcp *t, struct tcp_conn *tc)
{
        bool during = tc->ca_state >= CA_RECOVERY;

        assert(tc->flags & TCF_UNDO);
        count(t->cnt, COUNT_TCP_UNDO);
        if (tc->ca_state != CA_LOSS)
                conn_flag(tc, TCF_REORDER); /* RFC 8985 §6.2 step 3: what was not lost was late */
        restore(tc);
        undo_forget(tc);
        if (!during)
                return;
        nothing_is_lost(t, tc);
        tc->ca_state = CA_DISORDER;
        tc->dupacks = 0;
        tc->owed &= (uint8_t)~OWE_FORCE;
}

void undo_ack(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t acked)
{
        bool during = tc->ca_state >= CA_RECOVERY, early = frto_ack(t, tc, seg, acked);

        if (tc->flags & TCF_UNDO &&
            (early || all_duplicates(tc) || (during && acked != 0 && of_the_original(tc, seg))))
                undo(t, tc);
}

void undo_old_ack(struct tcp *t, struct tcp_conn *tc)
{
        if (tc->flags & TCF_UNDO && all_duplicates(tc))
                undo(t, tc);
}
