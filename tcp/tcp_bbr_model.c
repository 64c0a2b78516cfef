/* BBR's model of the path: draft-ietf-ccwg-bbr §5.5. See tcp_bbr.h. */
#include "tcp/tcp_bbr.h"

#define MIN_RTT_FILTER     (10 * NS_PER_S) /* §2.14.1 */
#define PROBE_RTT_INTERVAL (5 * NS_PER_S)  /* §2.14.2 */
/* Twice that is ExtraAckedFilterLen (§2.10): two windows, as in Linux. */
#define EXTRA_ACKED_ROUNDS 5
#define FULL_BW_ROUNDS     3 /* §5.3.1.2 */
#define FULL_BW_GROWTH     125

void bbr_model_init(struct tcp_conn *tc, struct bbr *b, nstime now)
{
        *b = (struct bbr){
                .min_rtt = tc->min_rtt,
                .min_rtt_stamp = now,
                .probe_rtt_min = tc->min_rtt,
                .probe_rtt_stamp = now,
                .extra_acked_start = now,
                .inflight_longterm = BBR_NO_BOUND,
                .probe_up_per_inc = BBR_NO_BOUND,
                .undo_state = BBR_STATES,
        };
        bbr_reset_short_term(b);
        rate_init(tc, now);
        b->round_end = b->loss_round_end = rate_total(tc);
}

/* ---- volumes ---- */

/* In units of 16 ns, so that a product of a rate and a time has room in 64 bits. */
uint32_t bbr_bdp(const struct tcp_conn *tc, const struct bbr *b, uint64_t bw, uint32_t gain)
{
        uint64_t bdp;

        if (b->min_rtt == NSTIME_NEVER || bw == 0)
                return cc_initial_window(tc);
        bdp = bw * (uint64_t)(b->min_rtt / 16) / (NS_PER_S / 16);
        return (uint32_t)MIN(bdp * gain / 100, (uint64_t)INT32_MAX);
}

/* QuantizationBudget(), §5.6.4.2; three quanta: §5.5.8.1 */
uint32_t bbr_with_budget(const struct tcp_conn *tc, const struct bbr *b, uint32_t inflight)
{
        inflight = MAX(inflight, 3 * tc->pace.quantum);
        inflight = MAX(inflight, bbr_min_cwnd(tc));
        return b->state == BBR_UP ? inflight + 2 * tc->snd_mss : inflight;
}

uint32_t bbr_with_headroom(const struct tcp_conn *tc, const struct bbr *b)
{
        uint32_t bound = b->inflight_longterm, headroom;

        if (bound == BBR_NO_BOUND)
                return BBR_NO_BOUND;
        headroom = MAX(tc->snd_mss, (uint32_t)((uint64_t)bound * BBR_HEADROOM / 100));
        return bound > headroom ? MAX(bound - headroom, bbr_min_cwnd(tc)) : bbr_min_cwnd(tc);
}

/* ---- rounds and bandwidth ---- */

static bool reached(uint32_t at, uint32_t end)
{
        return (int32_t)(at - end) >= 0;
}

/* §5.5.1 */
static void update_round(const struct tcp_conn *tc, struct bbr *b, const struct rate_sample *rs)
{
        b->round_start = rs->delivered != 0 && reached(rs->prior_delivered, b->round_end);
        if (!b->round_start)
                return;
        bbr_start_round(tc, b);
        b->drain_rounds += b->drain_rounds < UINT8_MAX;
        b->rounds_since_probe += b->rounds_since_probe < UINT8_MAX;
        b->window_was_full = b->rate.window_full;
        b->rate.window_full = false;
}

/* §5.5.5 */
static void update_max_bw(struct bbr *b, const struct rate_sample *rs)
{
        if (rs->rate >= bbr_max_bw(b) || !rs->app_limited)
                b->max_bw[0] = MAX(b->max_bw[0], rs->rate);
}

/* §5.5.6. A cycle without a sample does not make the one before it forgotten. */
void bbr_advance_max_bw(struct bbr *b)
{
        if (b->max_bw[0] == 0)
                return;
        b->max_bw[1] = b->max_bw[0];
        b->max_bw[0] = 0;
}

/* §5.3.1.2 */
void bbr_reset_full_bw(struct bbr *b, uint64_t full_bw)
{
        b->full_bw = full_bw;
        b->full_bw_count = 0;
        b->full_bw_now = false;
}

void bbr_check_full_bw(struct bbr *b, const struct rate_sample *rs)
{
        if (b->full_bw_now || !b->round_start || rs->app_limited || rs->rate == 0)
                return;
        if (rs->rate * 100 >= b->full_bw * FULL_BW_GROWTH) {
                bbr_reset_full_bw(b, rs->rate);
                return;
        }
        b->full_bw_now = ++b->full_bw_count >= FULL_BW_ROUNDS;
        if (b->full_bw_now)
                b->full_bw_reached = true;
}

/* ---- aggregation: §5.5.9 ---- */

void bbr_update_aggregation(const struct tcp_conn *tc, struct bbr *b, const struct rate_sample *rs,
                            nstime now)
{
        uint64_t interval = (uint64_t)(now - b->extra_acked_start),
                 expected = bbr_bw(b) * (interval / 16) / (NS_PER_S / 16);

        if (b->round_start &&
            ++b->extra_acked_rounds >= (b->full_bw_reached ? EXTRA_ACKED_ROUNDS : 1)) {
                b->extra_acked[1] = b->extra_acked[0];
                b->extra_acked[0] = b->extra_acked_rounds = 0;
        }
        if (b->extra_acked_delivered <= expected) {
                b->extra_acked_delivered = 0;
                b->extra_acked_start = now;
                expected = 0;
        }
        b->extra_acked_delivered += rs->newly_acked;
        if (b->extra_acked_delivered > expected)
                b->extra_acked[0] =
                        MAX(b->extra_acked[0],
                            MIN(b->extra_acked_delivered - (uint32_t)expected, tc->cwnd));
}

/* ---- the round trip: §5.3.4.3 ---- */

void bbr_update_min_rtt(struct bbr *b, nstime rtt, nstime now)
{
        b->probe_rtt_expired = now > b->probe_rtt_stamp + PROBE_RTT_INTERVAL;
        if (rtt >= 0 && (rtt < b->probe_rtt_min || b->probe_rtt_expired)) {
                b->probe_rtt_min = rtt;
                b->probe_rtt_stamp = now;
        }
        if (b->probe_rtt_min < b->min_rtt || now > b->min_rtt_stamp + MIN_RTT_FILTER) {
                b->min_rtt = b->probe_rtt_min;
                b->min_rtt_stamp = b->probe_rtt_stamp;
        }
}

/* ---- losses: §5.5.10 ---- */

void bbr_reset_congestion_signals(struct bbr *b)
{
        b->loss_in_round = false;
        b->bw_latest = 0;
        b->inflight_latest = 0;
}

void bbr_reset_short_term(struct bbr *b)
{
        b->bw_shortterm = BBR_NO_BW;
        b->inflight_shortterm = BBR_NO_BOUND;
}

/* IsInflightTooHigh(). The rate is of what was in flight, or, where it was found out after more
 * than a round trip, of all that there is news of: one acknowledgement may be for a quarter of a
 * round trip (tcp_delack.c). */
bool bbr_inflight_too_high(const struct tcp_conn *tc, uint32_t lost, uint32_t in_flight,
                           uint32_t delivered)
{
        uint64_t of = MAX(in_flight, delivered + lost);

        return (uint64_t)lost * 100 > of * BBR_LOSS_THRESH || (lost != 0 && !tc->sack_ok);
}

/* NoteLoss(). The state is saved when recovery begins, since that is what may be
 * undone: bbr_save_upon_loss(). */
void bbr_note_loss(const struct tcp_conn *tc, struct bbr *b)
{
        if (!b->loss_in_round)
                b->loss_round_end = rate_total(tc);
        b->loss_in_round = true;
}

/* InflightAtLoss(): after how much of the segment the losses crossed the threshold. */
static uint32_t inflight_at_loss(uint32_t size, uint32_t in_flight, uint32_t lost)
{
        int64_t before = (int64_t)in_flight - size, lost_before = (int64_t)lost - size;
        int64_t prefix = (BBR_LOSS_THRESH * before - 100 * lost_before) / (100 - BBR_LOSS_THRESH);

        return (uint32_t)MAX(before + MAX(prefix, 0), 0);
}

/* HandleLostPacket(), up to HandleInflightTooHigh(), which the next ACK makes: a timer may have
 * found the loss. */
void bbr_lost(struct tcp_conn *tc, const struct tcp_txseg *s)
{
        struct bbr *b = bbr_of(tc);
        uint32_t lost;

        rate_lost(tc, s);
        bbr_note_loss(tc, b);
        if (s->seq != b->lost_end || b->loss_ranges == 0)
                b->loss_ranges += b->loss_ranges < UINT8_MAX;
        b->lost_end = txseg_end(s);
        if (!b->bw_probe_sample || b->too_high || !(s->marks & TXS_RATE))
                return;
        lost = b->rate.lost - s->lost_before;
        if (!bbr_inflight_too_high(tc, lost, s->tx_in_flight, rate_total(tc) - s->delivered))
                return;
        b->too_high = true;
        b->too_high_app_limited = s->marks & TXS_APP_LIMITED;
        b->too_high_at = inflight_at_loss(txseg_space(s), s->tx_in_flight, lost);
}

/* AdaptLowerBoundsFromCongestion(): once a round. A hundredth of what is delivered less is the
 * margin that pacing keeps; the path has not taken it. */
static void adapt_lower_bounds(const struct tcp_conn *tc, struct bbr *b)
{
        if (b->state == BBR_STARTUP || b->state == BBR_REFILL || b->state == BBR_UP ||
            !b->loss_in_round)
                return;
        if (b->bw_shortterm == BBR_NO_BW)
                b->bw_shortterm = bbr_max_bw(b);
        if (b->inflight_shortterm == BBR_NO_BOUND)
                b->inflight_shortterm = tc->cwnd;
        b->bw_shortterm = MAX(b->bw_latest * 100 / (100 - BBR_PACING_MARGIN),
                              b->bw_shortterm * BBR_BETA / 100);
        b->inflight_shortterm = MAX(b->inflight_latest,
                                    (uint32_t)((uint64_t)b->inflight_shortterm * BBR_BETA / 100));
}

/* UpdateLatestDeliverySignals(), UpdateCongestionSignals() */
void bbr_update_delivery(struct tcp_conn *tc, struct bbr *b, const struct rate_sample *rs)
{
        b->bw_latest = MAX(b->bw_latest, rs->rate);
        b->inflight_latest = MAX(b->inflight_latest, rs->delivered);
        b->loss_round_start = rs->delivered != 0 && reached(rs->prior_delivered, b->loss_round_end);
        if (b->loss_round_start)
                b->loss_round_end = rate_total(tc);
        update_round(tc, b, rs);
        update_max_bw(b, rs);
        if (!b->loss_round_start)
                return;
        adapt_lower_bounds(tc, b);
        b->loss_in_round = false;
}

void bbr_advance_delivery(struct bbr *b, const struct rate_sample *rs)
{
        if (!b->loss_round_start)
                return;
        b->bw_latest = rs->rate;
        b->inflight_latest = rs->delivered;
}

/* §5.5.11 */
void bbr_save_upon_loss(struct bbr *b)
{
        b->undo_state = BBR_STATES;
        b->undo_bw_shortterm = b->bw_shortterm;
        b->undo_inflight_shortterm = b->inflight_shortterm;
        b->undo_inflight_longterm = b->inflight_longterm;
}

void bbr_restore_bounds(struct bbr *b)
{
        b->loss_in_round = b->too_high = false;
        bbr_reset_full_bw(b, 0);
        b->bw_shortterm = MAX(b->bw_shortterm, b->undo_bw_shortterm);
        b->inflight_shortterm = MAX(b->inflight_shortterm, b->undo_inflight_shortterm);
        b->inflight_longterm = MAX(b->inflight_longterm, b->undo_inflight_longterm);
}
