/*
 * RACK-TLP (RFC 8985): a segment is lost when one sent sufficiently later was delivered; a probe at
 * the tail turns the loss of the last segments into something that acknowledgements can tell.
 */
#include "tcp/tcp_cc.h"
#include "tcp/tcp_loss.h"
#include "tcp/tcp_send.h"

/* §6.2 step 4: recoveries without D-SACK until the window is small again. */
#define PERSIST_ROUNDS 16

/* §6.2 steps 1, 2: the most recently sent segment that was delivered. */
void rack_update(struct tcp_conn *tc, const struct tcp_txseg *s, nstime now)
{
        nstime rtt = now - s->sent;

        if (s->marks & TXS_EVER_RETX && tc->min_rtt != NSTIME_NEVER && rtt < tc->min_rtt)
                return; /* the acknowledgement is of an earlier transmission */
        if (s->sent < tc->rack.sent ||
            (s->sent == tc->rack.sent && seq_leq(txseg_end(s), tc->rack.end)))
                return;
        tc->rack.sent = s->sent;
        tc->rack.end = txseg_end(s);
        tc->rack.rtt = rtt;
}

void rack_dsack(struct tcp_conn *tc)
{
        tc->rack.persist = PERSIST_ROUNDS;
        if (seq_geq(tc->snd_una, tc->rack.dsack_round) ||
            seq_gt(tc->rack.dsack_round, tc->snd_nxt) || tc->rack.mult == 0) {
                tc->rack.dsack_round = tc->snd_nxt;
                tc->rack.mult = (uint8_t)MIN(tc->rack.mult + 1, 255);
        }
}

/* §6.2 step 4 */
static nstime reordering_window(const struct tcp_conn *tc)
{
        if (!(tc->flags & TCF_REORDER) &&
            (tc->ca_state >= CA_RECOVERY || tc->sacked >= 3 * tc->snd_mss))
                return 0;
        if (tc->min_rtt == NSTIME_NEVER)
                return 0;
        return MIN((tc->rack.mult + 1) * tc->min_rtt / 4, tc->srtt);
}

void rack_mark_lost(struct tcp_conn *tc, struct tcp_txseg *s)
{
        uint32_t space = txseg_space(s);
        bool known = (s->marks & (TXS_LOST | TXS_RETX)) == TXS_LOST;

        assert(!(s->marks & TXS_SACKED));
        assert(!(s->marks & TXS_RETX) || tc->retx >= space);
        if (s->marks & TXS_RETX)
                tc->retx -= space;
        if (!(s->marks & TXS_LOST))
                tc->lost += space;
        s->marks = (uint8_t)((s->marks & ~TXS_RETX) | TXS_LOST);
        if (conn_is_watched(tc) && !known)
                watch_lost(tc, false);
        if (tc->flags & TCF_RATES && !known)
                cc_of(tc)->lost(tc, s);
}

static bool sent_before_rack(const struct tcp_conn *tc, const struct tcp_txseg *s)
{
        return s->sent < tc->rack.sent ||
               (s->sent == tc->rack.sent && seq_lt(txseg_end(s), tc->rack.end));
}

/* §6.2 step 5, RACK_detect_loss(): marks segments lost; sets the reordering timer for those that
 * may yet arrive. */
void rack_detect(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        nstime window = reordering_window(tc), wait = 0;

        for (uint32_t i = tc->snd_head; i != 0 && i != tc->snd_next; i = txseg_at(t, i)->next) {
                struct tcp_txseg *s = txseg_at(t, i);
                nstime left;
                if (s->marks & TXS_SACKED || (s->marks & TXS_LOST && !(s->marks & TXS_RETX)))
                        continue;
                if (!sent_before_rack(tc, s)) {
                        if (!(s->marks & TXS_EVER_RETX))
                                break; /* and what is behind was sent later still */
                        continue;
                }
                left = s->sent + tc->rack.rtt + window - now;
                if (left <= 0)
                        rack_mark_lost(tc, s);
                else
                        wait = MAX(wait, left);
        }
        if (wait != 0) {
                tc->rtx_kind = RTX_REO;
                tc->rtx_at = now + wait;
        } else if (tc->rtx_kind == RTX_REO) {
                timer_arm_rtx(tc, now);
        }
}

/* Returns true if the ACK is too soon to be of the probe: that takes the shortest round trip at
 * least. It is of the segment that the probe stood for, and that was all there was to lose. The
 * duplicate's acknowledgement is still to come. (An old timestamp would not say so: the peer echoes
 * one whose acknowledgement was delayed when the probe comes, RFC 7323 §4.3.) */
static bool too_soon(const struct tcp_conn *tc, nstime now)
{
        return tc->min_rtt != NSTIME_NEVER && now - tc->tlp.sent < tc->min_rtt;
}

static bool says_duplicate(const struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t acked,
                           bool moved)
{
        if (seg->nsack != 0)
                return tlp_dup(tc, &seg->sack[0]);
        return acked == 0 && seg->len == 0 && !moved && !(seg->flags & TCP_FIN);
}

/* §7.4.2: was what the probe stood for lost? That all that was in flight is acknowledged does not
 * say: the acknowledgement may be late. A duplicate, of the data by D-SACK or of the
 * acknowledgement, says that both arrived; more that is acknowledged without such, that only the
 * probe did. `acked` bytes are new, and the peer's window moved or not. */
void tlp_input(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t acked,
               bool moved, nstime now)
{
        bool open;

        if (tc->tlp.out == 0 || seq_lt(seg->ack, tc->tlp.end))
                return;
        open = tc->flags & TCF_TLP_RETX && !says_duplicate(tc, seg, acked, moved);
        if (open && seg->ack == tc->tlp.end) {
                if (acked != 0 && too_soon(tc, now))
                        tc->tlp.out = TLP_NEEDLESS;
                return;
        }
        if (open && tc->tlp.out != TLP_NEEDLESS) {
                /* The probe repaired a loss: the window pays for it once. */
                recovery_enter(t, tc, acked, now);
                undo_forget(tc);
        }
        tc->tlp.out = 0;
        recovery_set_slow(tc);
}
