/*
 * What the sender does about loss: OPEN -> DISORDER -> RECOVERY or LOSS -> OPEN (names as Linux's
 * TCP_CA_*).
 *
 * RACK says which segments are lost, or for a peer without SACK the count of duplicate ACKs (RFC
 * 5681 §3.2, 6582). PRR says how fast to repair. Congestion control says how much smaller the
 * window becomes.
 */
#include "tcp/tcp_cc.h"
#include "tcp/tcp_ecn.h"
#include "tcp/tcp_loss.h"
#include "tcp/tcp_send.h"

#define DUPTHRESH 3 /* RFC 5681 §3.2 */

void recovery_set_slow(struct tcp_conn *tc)
{
        if (tc->ca_state != CA_OPEN || tc->sacked != 0 || tc->lost != 0 || tc->tlp.out ||
            tc->probes != 0 || tc->backoff != 0 || tc->path.probe != 0 || tc->err_soft != 0 ||
            tc->flags & TCF_ECN_CUT)
                tc->slow |= SLOW_LOSS;
        else
                tc->slow &= (uint8_t)~SLOW_LOSS;
}

void recovery_enter(struct tcp *t, struct tcp_conn *tc, uint32_t delivered, nstime now)
{
        if (tc->ca_state >= CA_RECOVERY)
                return;
        count(t->cnt, COUNT_TCP_FAST_RECOVERY);
        if (tc->flags & TCF_ECN_CUT) { /* for one round trip, once */
                undo_forget(tc);
        } else {
                undo_begin(tc);
                tc->ssthresh = cc_of(tc)->on_loss(tc, false, now);
        }
        ecn_reduced(tc);
        tc->ca_state = CA_RECOVERY;
        tc->tlp.out = TLP_NONE; /* RFC 8985 §7.4.1: the window pays by this */
        tc->recover = tc->snd_nxt;
        prr_init(tc, delivered);
        conn_unflag(tc, TCF_REPAIR_PROBED);
        tc->owed |= tc->lost != 0 ? OWE_FORCE : 0;
}

static void recovery_exit(struct tcp_conn *tc)
{
        assert(tc->ca_state >= CA_RECOVERY);
        if (tc->ca_state == CA_RECOVERY && cc_has_prr(tc))
                tc->cwnd = MAX(tc->ssthresh, 2 * tc->snd_mss);
        tc->ca_state = CA_OPEN;
        tc->dupacks = 0;
        tc->owed &= (uint8_t)~OWE_FORCE;
        if (tc->rack.persist != 0 && --tc->rack.persist == 0)
                tc->rack.mult = 0;
}

static void mark_head_lost(struct tcp *t, struct tcp_conn *tc)
{
        struct tcp_txseg *s;

        if (tc->snd_head == 0 || tc->snd_head == tc->snd_next)
                return;
        s = txseg_at(t, tc->snd_head);
        if (!(s->marks & TXS_SACKED) && (s->marks & (TXS_LOST | TXS_RETX)) != TXS_LOST)
                rack_mark_lost(tc, s);
}

/* Without SACK: duplicate ACKs are counted, and a partial one says that the next hole is at its
 * head (RFC 6582). */
static void newreno_detect(struct tcp *t, struct tcp_conn *tc, uint32_t acked)
{
        if (acked != 0 && tc->ca_state == CA_RECOVERY)
                mark_head_lost(t, tc);
        else if (tc->ca_state < CA_RECOVERY && tc->dupacks >= DUPTHRESH)
                mark_head_lost(t, tc);
}

/* After marks were set from an ACK: `acked` bytes cumulatively, `delivered` with what
 * was SACKed. */
void recovery_ack(struct tcp *t, struct tcp_conn *tc, uint32_t acked, uint32_t delivered,
                  nstime now)
{
        uint32_t lost = tc->lost;

        if (tc->ca_state >= CA_RECOVERY && seq_geq(tc->snd_una, tc->recover))
                recovery_exit(tc);
        if (tc->sack_ok)
                rack_detect(t, tc, now);
        else
                newreno_detect(t, tc, acked);
        if (unlikely(tc->path.probe != 0) && tc->lost != 0)
                path_probe_lost(t, tc, now);
        if (tc->lost != 0 && tc->ca_state < CA_RECOVERY)
                recovery_enter(t, tc, delivered, now);
        if (tc->ca_state < CA_RECOVERY)
                tc->ca_state = tc->sacked != 0 || tc->dupacks != 0 ? CA_DISORDER : CA_OPEN;
        if (tc->ca_state == CA_RECOVERY && cc_has_prr(tc))
                prr_ack(tc, delivered, acked != 0 && tc->lost <= lost);
}

void recovery_probe(struct tcp *t, struct tcp_conn *tc)
{
        count(t->cnt, COUNT_TCP_TLP);
        mark_head_lost(t, tc);
        conn_flag(tc, TCF_REPAIR_PROBED);
        tc->owed |= OWE_FORCE;
}

/* Where nothing is lost on the way, the peer was stopped or had no memory: ask with one segment,
 * blame no path. */
static void lossless_timeout(struct tcp *t, struct tcp_conn *tc)
{
        mark_head_lost(t, tc);
        tc->recover = tc->snd_nxt;
        tc->ca_state = CA_LOSS;
        tc->owed |= OWE_FORCE;
        recovery_set_slow(tc);
}

/* RFC 6298 §5.4-5.7, RFC 5681 §3.1: everything in flight counts as lost, the window is
 * one segment. */
void recovery_timeout(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        bool reneged = txseg_at(t, tc->snd_head)->marks & TXS_SACKED,
             first = tc->ca_state < CA_RECOVERY;

        assert(tc->state >= TCPS_ESTABLISHED && flight(tc) != 0);
        count(t->cnt, COUNT_TCP_RTO);
        if (conn_is_watched(tc))
                watch_lost(tc, true);
        if (tc->link.lossless && !reneged) {
                lossless_timeout(t, tc);
                return;
        }
        if (tc->ca_state != CA_LOSS || seq_geq(tc->snd_una, tc->recover)) {
                undo_begin(tc);
                tc->ssthresh = cc_of(tc)->on_loss(tc, true, now);
                tc->recover = tc->snd_nxt;
                ecn_reduced(tc);
        }
        undo_timeout(tc, first && !reneged);
        for (uint32_t i = tc->snd_head; i != 0 && i != tc->snd_next; i = txseg_at(t, i)->next) {
                struct tcp_txseg *s = txseg_at(t, i);
                if (reneged &&
                    s->marks & TXS_SACKED) { /* RFC 2018 §8: the peer may have thrown it away */
                        tc->sacked -= txseg_space(s);
                        s->marks &= (uint8_t)~TXS_SACKED;
                }
                if (!(s->marks & TXS_SACKED))
                        rack_mark_lost(tc, s);
        }
        tc->ca_state = CA_LOSS;
        tc->dupacks = 0;
        tc->tlp.out = 0;
        tc->cwnd = tc->snd_mss;
        tc->owed |= OWE_FORCE;
        recovery_set_slow(tc);
}
