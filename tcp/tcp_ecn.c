/*
 * Explicit congestion notification (RFC 3168): a router marks a packet that it would have to drop
 * otherwise, and the sender slows down.
 *
 *      SYN with ECE and CWR, SYN-ACK with ECE alone            both can do it: ecn_syn()
 *      new data leaves as ECT(0), a router makes it CE         ecn_mark()
 *      all that its receiver sends says ECE                    ecn_input(), begin() in tcp_output.c
 *      its sender makes the window smaller, as by a loss,      ecn_ack()
 *      once a round trip, and says CWR in the next new data    ecn_mark()
 *      with which the echo ends                                ecn_input()
 *
 * As in Linux, by default we agree to ECN and do not ask for it. Retransmissions, pure ACKs and
 * window probes are never ECT. A SYN that is repeated or refused asks no more (§6.1.1.1). A SYN
 * over a lossless link does not ask.
 *
 * A congestion control that wants ECN (DCTCP, RFC 8257) asks for it. It agrees also to a SYN that
 * is ECT itself (§3.5), echoes each mark exactly, and sends everything as ECT.
 */
#include "ip/ip.h"
#include "tcp/tcp_cc.h"
#include "tcp/tcp_ecn.h"
#include "tcp/tcp_loss.h"
#include "tcp/tcp_send.h"

#define SETUP (TCP_ECE | TCP_CWR)

/* A SYN that is ECT or CE itself came by a path that changes these bits, or from a peer with
 * DCTCP. */
bool ecn_agrees(const struct tcp_opts *o, const struct tcp_link *link, const struct tcp_seg *syn)
{
        return (syn->flags & SETUP) == SETUP && (syn->ecn == 0 || cc_by(o->cc)->wants_ecn) &&
               o->ecn != TCP_ECN_NO && !link->lossless;
}

void ecn_syn(struct tcp_conn *tc, const struct tcp_seg *seg)
{
        bool asked = tc->flags & TCF_ECN_ASKED;

        if (seg->flags & TCP_ACK
                    ? asked && (seg->flags & SETUP) == TCP_ECE
                    : ecn_agrees(&tc->opts, &tc->link, seg) && (asked || !(tc->flags & TCF_ACTIVE)))
                conn_flag(tc, TCF_ECN);
}

/* A repeated SYN that does not ask for ECN counts, whatever the first one said (§6.1.1). */
void ecn_syn_again(struct tcp_conn *tc, const struct tcp_seg *seg)
{
        if ((seg->flags & SETUP) != SETUP)
                conn_unflag(tc, TCF_ECN);
}

static bool asks(const struct tcp_opts *o)
{
        return o->ecn == TCP_ECN_ASK || (o->ecn != TCP_ECN_NO && cc_by(o->cc)->wants_ecn);
}

uint8_t ecn_syn_flags(struct tcp_conn *tc)
{
        if (tc->state != TCPS_SYN_SENT)
                return tc->flags & TCF_ECN ? TCP_ECE : 0;
        if (tc->flags & TCF_ECN_ASKED || tc->dups != 0 || !asks(&tc->opts) || tc->link.lossless) {
                tc->opts.ecn = asks(&tc->opts) ? TCP_ECN_NO : tc->opts.ecn;
                conn_unflag(tc, TCF_ECN_ASKED);
                return 0;
        }
        conn_flag(tc, TCF_ECN_ASKED);
        return SETUP;
}

bool ecn_syn_refused(struct tcp_conn *tc)
{
        if (!(tc->flags & TCF_ECN_ASKED))
                return false;
        tc->owed |= OWE_SYN;
        return true;
}

void ecn_mark(struct tcp_conn *tc, struct tcp_seg *seg)
{
        if (seg->len == 0)
                return;
        seg->ecn = IP_ECN_ECT0;
        if (unlikely(tc->flags & TCF_ECN_CWR)) {
                seg->flags |= TCP_CWR;
                conn_unflag(tc, TCF_ECN_CWR);
        }
}

/* Returns true if the algorithm of the options echoes marks exactly. A plan (tcp_plan.c) does not
 * change that: the peer expects what the handshake agreed on. */
static bool is_exact(const struct tcp_conn *tc)
{
        return cc_by(tc->opts.cc)->wants_ecn;
}

bool ecn_on_all(const struct tcp_conn *tc)
{
        return tc->flags & (TCF_ECN | TCF_ECN_ASKED) && is_exact(tc);
}

/* RFC 8257 §3.2, figure 1: when marks begin or end, the data before the change is acknowledged
 * first, with the echo that it had. */
static void echo_exactly(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        bool marked = seg->ecn == IP_ECN_CE;

        if (marked == !!(tc->flags & TCF_ECN_ECHO))
                return;
        if (tc->rcv_nxt != tc->last_ack_sent)
                output_ack_now(t, tc, now);
        if (marked)
                conn_flag(tc, TCF_ECN_ECHO);
        else
                conn_unflag(tc, TCF_ECN_ECHO);
        tc->owed |= OWE_ACK;
}

/* §6.1.3. The first marked segment is acknowledged at once. So is one with CWR: its sender, which
 * has just slowed down, may wait for the ACK. */
void ecn_input(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        bool exactly = is_exact(tc);

        if (seg->len == 0)
                return;
        if (seg->flags & TCP_CWR && !exactly) {
                conn_unflag(tc, TCF_ECN_ECHO);
                tc->owed |= OWE_ACK;
        }
        if (seg->ecn != 0)
                conn_flag(tc, TCF_ECN_SEEN);
        if (exactly)
                echo_exactly(t, tc, seg, now);
        if (seg->ecn != IP_ECN_CE)
                return;
        count(t->cnt, COUNT_TCP_ECN_MARKED);
        if (!(tc->flags & TCF_ECN_ECHO))
                tc->owed |= OWE_ACK;
        conn_flag(tc, TCF_ECN_ECHO);
}

/* §6.1.2. A window that was reduced for a loss in this round trip is not reduced again: the CWR
 * that is due for the loss ends the echo. CWR goes with data from ecn_end on. Until some of that
 * data is acknowledged, the echo is of the same mark (as in Linux). */
bool ecn_ack(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t acked,
             nstime now)
{
        if (cc_of(tc)->told != NULL)
                cc_of(tc)->told(tc, acked, seg->flags & TCP_ECE);
        if (tc->flags & TCF_ECN_CUT && seq_gt(tc->snd_una, tc->ecn_end))
                conn_unflag(tc, TCF_ECN_CUT);
        if (!(seg->flags & TCP_ECE))
                return false;
        if (tc->ca_state >= CA_RECOVERY || tc->flags & TCF_ECN_CUT)
                return true;
        count(t->cnt, COUNT_TCP_ECN_CUT);
        undo_forget(tc);
        if (tc->flags & TCF_RATES) {
                cc_of(tc)->marked(tc);
        } else {
                tc->ssthresh = cc_of(tc)->on_mark != NULL ? cc_of(tc)->on_mark(tc)
                                                          : cc_of(tc)->on_loss(tc, false, now);
                tc->cwnd = MIN(tc->cwnd, tc->ssthresh);
        }
        tc->ecn_end = tc->snd_nxt;
        conn_flag(tc, TCF_ECN_CUT | TCF_ECN_CWR);
        return true;
}

void ecn_reduced(struct tcp_conn *tc)
{
        if (tc->flags & TCF_ECN)
                conn_flag(tc, TCF_ECN_CWR);
}

void ecn_restored(struct tcp_conn *tc)
{
        conn_unflag(tc, TCF_ECN_CWR);
}
