/* Acknowledgements (RFC 9293 §3.10.7.4 fifth, RFC 5681, 5961 §5): what they free, teach
 * and permit. */
#include "tcp/tcp_cc.h"
#include "tcp/tcp_ecn.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_loss.h"
#include "tcp/tcp_rate.h"
#include "tcp/tcp_send.h"
#include "tcp/tcp_watch.h"

/* 1,448 bytes as often as SND_SEGS_LOG says; 4 MB is 0.88 of that over 10 ms and what is late. */
#define SND_LIMIT_MAX  (6u << 20)
#define SND_LIMIT_NEAR (512u << 10) /* while the way is shorter than SND_NEAR: 80 Gb/s of it */
#define SND_NEAR       (50 * NS_PER_US)
/* A round trip may be longer all the same, by a receiver that is waited for. */
#define SND_NEAR_BUSY (2 * NS_PER_MS)

/* The segment at the head is acknowledged whole: its marks are uncounted. Only seldom has it any.
 * What it came after is fack, the highest that the peer was known to have before this ACK
 * (RACK.fack, Linux's prior_fack). The order is ascending (RFC 8985 §6.2 step 3): what an ACK moves
 * over comes before what it tells of above. */
static void note_acked(struct tcp_conn *tc, const struct tcp_txseg *s, uint32_t fack, nstime *rtt,
                       nstime now)
{
        uint32_t space = txseg_space(s);

        if (!(s->marks & TXS_SACKED)) {
                rate_delivered(tc, s, now);
                rack_update(tc, s, now);
                if (!(s->marks & TXS_EVER_RETX) && seq_lt(txseg_end(s), fack))
                        conn_flag(tc, TCF_REORDER);
                if (tc->flags & TCF_FRTO && !(s->marks & TXS_EVER_RETX) &&
                    seq_leq(txseg_end(s), tc->recover))
                        conn_flag(tc, TCF_ORIG_ACKED);
        }
        if (s->marks & TXS_SACKED)
                tc->sacked -= space;
        else if (s->marks & TXS_LOST)
                tc->lost -= space;
        if (s->marks & TXS_RETX)
                tc->retx -= space;
        *rtt = s->marks & (TXS_EVER_RETX | TXS_SACKED) ? -1 : now - s->sent; /* Karn: RFC 6298 §3 */
}

/* Frees what lies below ack. The RTT sample is that of the last segment freed: of those
 * acknowledged it left last. */
static nstime clean_acked(struct tcp *t, struct tcp_conn *tc, uint32_t ack, uint32_t fack,
                          nstime now)
{
        nstime rtt = -1;

        while (tc->snd_head != 0) {
                struct tcp_txseg *s = txseg_at(t, tc->snd_head);
                if (unlikely(seq_gt(txseg_end(s), ack))) {
                        if (seq_lt(s->seq, ack))
                                txseg_trim(t, tc, s, ack - s->seq);
                        break;
                }
                if (unlikely(tc->slow & (SLOW_LOSS | SLOW_NOSACK) || s->marks))
                        note_acked(tc, s, fack, &rtt, now);
                else
                        rtt = now - s->sent;
                txseg_free_head(t, tc);
        }
        return rtt;
}

/* A window that was not used is not made larger (RFC 5681 §3.1 by way of RFC 7661). What counts
 * is the most that was in flight in this round trip: of its ACKs the last find little. As
 * Linux's tcp_is_cwnd_limited(). */
static bool cwnd_was_used(struct tcp_conn *tc, uint32_t before, uint32_t acked)
{
        if (before >= tc->flight_peak || seq_geq(tc->snd_una - acked, tc->flight_end)) {
                tc->flight_peak = before;
                tc->flight_end = tc->snd_nxt;
        }
        return tc->flight_peak + tc->snd_mss > tc->cwnd ||
               (tc->cwnd < tc->ssthresh && 2 * tc->flight_peak > tc->cwnd);
}

/* The most that the send buffer grows to. Written bytes stay where they are until they are
 * acknowledged. Over a link as short as a machine's own most of them would only wait at the
 * receiver, while later writes find no room in the cache. */
static uint32_t limit_most(const struct tcp_conn *tc)
{
        return tc->min_rtt < SND_NEAR && tc->srtt < SND_NEAR_BUSY ? SND_LIMIT_NEAR : SND_LIMIT_MAX;
}

static void autosize(struct tcp_conn *tc)
{
        uint32_t want = 2 * tc->cwnd;

        if (tc->snd_limit >= want || tc->opts.sndbuf != 0 || tc->link.lossless)
                return;
        want = snd_limit_of(tc, MIN(want, limit_most(tc)));
        if (tc->snd_limit < want)
                WRITE_ONCE(tc->snd_limit, want);
}

static nstime advance(struct tcp *t, struct tcp_conn *tc, uint32_t ack, uint32_t fack, nstime now)
{
        uint32_t acked = ack - tc->snd_una;
        nstime rtt = clean_acked(t, tc, ack, fack, now);

        WRITE_ONCE(tc->snd_una, ack);
        if (likely(tc->stalled_at != 0))
                tc->busy += now - tc->stalled_at;
        tc->stalled_at = flight(tc) != 0 ? now : 0;
        tc->bytes_acked += acked;
        if (tc->snd_head == 0)
                sndbuf_idle(t, tc);
        if (rtt >= 0)
                rtt_sample(tc, rtt);
        if (unlikely(t->sh->wait_head != 0)) /* for records as well as for frames */
                sndbuf_wake(t, ANY_REGION);
        return rtt;
}

/* MSG_MORE is about the write that it came with: what it holds goes by Nagle's rule when anything
 * comes, as in Linux. */
static void after_ack(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        conn_unflag(tc, TCF_MORE);
        sndbuf_freed(t, tc);
        if (tc->flags & TCF_SND_FULL && tc->snd_next == 0)
                conn_set_limit(tc, sndbuf_is_lent(tc) ? TCP_LIM_PEER : TCP_LIM_SNDBUF, now);
}

/* Returns true if the algorithm has taken the ACK by its model of the path, or with ECN. */
static bool ack_is_counted(struct tcp_conn *tc, uint32_t acked, nstime rtt, nstime now)
{
        if (tc->flags & TCF_ECN && cc_of(tc)->told != NULL)
                cc_of(tc)->told(tc, acked, false);
        if (!(tc->flags & TCF_RATES))
                return false;
        cc_of(tc)->model(tc, rtt, now);
        return true;
}

void ack_fast(struct tcp *t, struct tcp_conn *tc, uint32_t ack, nstime now)
{
        uint32_t before = flight(tc), acked = ack - tc->snd_una;
        nstime rtt = advance(t, tc, ack, tc->snd_una, now);

        if (unlikely(tc->flags & (TCF_RATES | TCF_ECN)) && ack_is_counted(tc, acked, rtt, now)) {
                autosize(tc);
        } else if (cwnd_was_used(tc, before, acked)) {
                cc_of(tc)->on_ack(tc, acked, rtt, now);
                autosize(tc);
        }
        timer_arm_rtx(tc, now);
        if (unlikely(tc->flags & (TCF_SND_FULL | TCF_MORE)))
                after_ack(t, tc, now);
}

/* RFC 9293 §3.10.7.4: SND.WND is taken from a segment that is not older than the one it was last
 * taken from: by its numbers, or, as Linux has it, because it acknowledges more than any before.
 * Beyond a gap the peer's numbers run ahead of what it repeats. */
static bool update_window(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg,
                          uint32_t acked)
{
        uint32_t wnd = conn_peer_window(tc, (uint32_t)seg->wnd << tc->snd_wscale);
        bool changed = wnd != tc->snd_wnd, wider = wnd > tc->snd_wnd;

        if (acked == 0 && (seq_gt(tc->snd_wl1, seg->seq) ||
                           (tc->snd_wl1 == seg->seq && seq_gt(tc->snd_wl2, seg->ack))))
                return false;
        tc->snd_wnd = wnd;
        tc->snd_wl1 = seg->seq;
        tc->snd_wl2 = seg->ack;
        tc->max_wnd = MAX(tc->max_wnd, wnd);
        if (changed && tc->rtx_kind == RTX_PERSIST) {
                sndbuf_unsend_probe(t, tc);
                tc->rtx_kind = RTX_NONE;
                tc->rtx_at = NSTIME_NEVER;
                tc->backoff = 0;
                if (wider && flight(tc) == 0)
                        tc->stalled_at = 0; /* what is sent now has not waited for its ACK */
        }
        return changed;
}

/* RFC 5681 §2: what makes an ACK a duplicate. */
static bool is_duplicate(const struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t acked,
                         bool wnd_changed)
{
        return acked == 0 && seg->len == 0 && !(seg->flags & (TCP_SYN | TCP_FIN)) && !wnd_changed &&
               flight(tc) != 0;
}

static void count_duplicates(struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t acked,
                             bool wnd_changed)
{
        if (tc->sack_ok || tc->ca_state == CA_LOSS)
                return;
        if (is_duplicate(tc, seg, acked, wnd_changed))
                tc->dupacks++;
        else if (acked != 0 && tc->ca_state != CA_RECOVERY)
                tc->dupacks = 0;
        else if (acked != 0)
                tc->dupacks -= MIN(tc->dupacks, acked / tc->snd_mss);
}

/* RFC 5961 §5.2; and what was never sent nobody can have acknowledged, however large his window (as
 * Linux). False: the segment is to be dropped. */
static bool acceptable(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        uint32_t back = (uint32_t)MIN(tc->max_wnd, tc->bytes_acked);

        if (seq_leq(seg->ack, tc->snd_nxt) && seq_geq(seg->ack, tc->snd_una - back))
                return true;
        output_challenge(t, tc, now);
        count_drop(t->cnt, DROP_TCP_BAD_ACK);
        return false;
}

/* The peer lives: what counted its silence starts again. */
static void note_alive(struct tcp_conn *tc, uint32_t acked)
{
        tc->probes = 0;
        tc->err_soft = 0;
        if (acked != 0) {
                tc->backoff = 0;
                tc->dups = 0;
                conn_unflag(tc, TCF_REPAIR_PROBED);
        }
}

bool ack_input(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        uint32_t before = flight(tc), una = tc->snd_una, sacked = tc->sacked, acked, ack = seg->ack;
        uint32_t fack = sacked != 0 ? tc->high_sacked : una;
        bool wnd_changed, repairing = tc->ca_state == CA_RECOVERY, marked = false;
        nstime rtt = -1;

        if (!acceptable(t, tc, seg, now))
                return false;
        if (tc->sack_ok)
                sack_input(t, tc, seg, now);
        if (seq_lt(ack, una)) { /* old: nothing more to learn from it */
                undo_old_ack(t, tc);
                return true;
        }
        acked = ack - una;
        if (acked != 0)
                rtt = advance(t, tc, ack, fack, now);
        note_alive(tc, acked);
        wnd_changed = update_window(t, tc, seg, acked);
        count_duplicates(tc, seg, acked, wnd_changed);
        tlp_input(t, tc, seg, acked, wnd_changed, now);
        undo_ack(t, tc, seg, acked);
        recovery_ack(t, tc, acked, acked + tc->sacked - sacked, now); /* RFC 6937: DeliveredData */
        if (unlikely(tc->flags & TCF_ECN))
                marked = ecn_ack(t, tc, seg, acked, now);
        if ((acked != 0 && tc->rtx_kind != RTX_REO) || tc->rtx_kind == RTX_NONE)
                timer_arm_rtx(tc, now);
        if (tc->flags & TCF_RATES) {
                cc_of(tc)->model(tc, rtt, now);
                autosize(tc);
        } else if (acked != 0 && !marked && !repairing && tc->ca_state != CA_RECOVERY &&
                   cwnd_was_used(tc, before, acked)) {
                cc_of(tc)->on_ack(tc, acked, rtt, now);
                autosize(tc);
        }
        if (unlikely(tc->path.probe != 0))
                path_ack(t, tc, now);
        recovery_set_slow(tc);
        if (tc->flags & (TCF_SND_FULL | TCF_MORE))
                after_ack(t, tc, now);
        if (conn_is_watched(tc))
                tcp_watch_look(tc);
        return true;
}
