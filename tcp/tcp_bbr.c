/*
 * BBR (draft-ietf-ccwg-bbr, BBRv3): congestion control that measures what the path delivers, and
 * sends that.
 *
 *   Startup --> Drain --> ProbeBW: Down --> Cruise --> Refill --> Up --> Down ...
 *   ProbeRTT from each of them, every 5 s
 *
 * See tcp_bbr.h for the parts, tcp_rate.h for what is measured, tcp_pace.c for how data is paced.
 *
 * Where we leave the draft:
 *   - what a lost segment tells is acted upon with the next ACK, since loss is found by timers too;
 *   - C.inflight is compared with inflight_longterm as it was before the ACK, as Linux does: after
 *     it there is always less;
 *   - a mark (RFC 3168) is a round with a loss, and ends Startup and a probe for bandwidth; the
 *     draft leaves it open how.
 */
#include "tcp/tcp_bbr.h"
#include "tcp/tcp_info.h"
#include "tcp/tcp_send.h"

#define STARTUP_LOSSES     6                 /* BBRStartupFullLossCnt (§5.3.1.3) */
#define DRAIN_ROUNDS       3                 /* §5.3.2 */
#define PROBE_RTT_DURATION (200 * NS_PER_MS) /* §2.14.2 */
#define PROBE_BW_WAIT      (2 * NS_PER_S)    /* §5.3.3.8: two to three seconds */
#define RENO_ROUNDS_MOST   63u

/* The table of §5.6.1 */
static const struct {
        uint16_t pacing, cwnd;
} gains[BBR_STATES] = {
        [BBR_STARTUP] = {277, 200},  [BBR_DRAIN] = {50, 200},   [BBR_DOWN] = {90, 200},
        [BBR_CRUISE] = {100, 200},   [BBR_REFILL] = {100, 200}, [BBR_UP] = {125, 225},
        [BBR_PROBE_RTT] = {100, 50},
};

/* ---- ProbeBW: §5.3.3 ---- */

/* Two connections do not draw the same, the same run of one does. */
static uint32_t draw(const struct tcp_conn *tc, nstime now)
{
        uint64_t x =
                ((uint64_t)tc->iss << 32 | tc->ts_offset) ^ (uint64_t)now * 0x9e3779b97f4a7c15ull;

        x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9ull;
        return (uint32_t)(x >> 32);
}

/* PickProbeWait() */
static void pick_probe_wait(const struct tcp_conn *tc, struct bbr *b, nstime now)
{
        uint32_t r = draw(tc, now);

        b->rounds_since_probe = r & 1;
        b->probe_bw_at = now + PROBE_BW_WAIT + (nstime)(r >> 1) % NS_PER_S;
}

static void start_down(struct tcp_conn *tc, struct bbr *b, nstime now)
{
        bbr_reset_congestion_signals(b);
        b->probe_up_per_inc = BBR_NO_BOUND;
        pick_probe_wait(tc, b, now);
        b->ack_phase = BBR_ACKS_STOPPING;
        bbr_start_round(tc, b);
        b->state = BBR_DOWN;
}

static void start_refill(struct tcp_conn *tc, struct bbr *b)
{
        bbr_reset_short_term(b);
        b->probe_up_rounds = 0;
        b->probe_up_acked = 0;
        b->prev_probe_precautionary = false;
        b->ack_phase = BBR_ACKS_REFILLING;
        bbr_start_round(tc, b);
        b->state = BBR_REFILL;
}

/* RaiseInflightLongtermSlope() */
static void raise_slope(const struct tcp_conn *tc, struct bbr *b)
{
        b->probe_up_per_inc = MAX(tc->cwnd >> b->probe_up_rounds, tc->snd_mss);
        b->probe_up_rounds = (uint8_t)MIN(b->probe_up_rounds + 1, 30);
}

static void start_up(struct tcp_conn *tc, struct bbr *b, const struct rate_sample *rs)
{
        b->ack_phase = BBR_ACKS_STARTING;
        bbr_start_round(tc, b);
        bbr_reset_full_bw(b, rs->rate);
        b->state = BBR_UP;
        raise_slope(tc, b);
}

/* TargetInflight() */
static uint32_t target_inflight(const struct tcp_conn *tc, const struct bbr *b)
{
        return MIN(bbr_bdp(tc, b, bbr_bw(b), 100), tc->cwnd);
}

/* IsTimeToProbeBW(): after some seconds, or when Reno would have grown to as much again. A path
 * that holds less than a segment is not probed all the time: the window has room for some. */
static bool time_to_probe(const struct tcp_conn *tc, const struct bbr *b, nstime now)
{
        uint32_t reno_rounds = MAX(target_inflight(tc, b), bbr_min_cwnd(tc)) / tc->snd_mss;

        return now > b->probe_bw_at || b->rounds_since_probe >= MIN(reno_rounds, RENO_ROUNDS_MOST);
}

/* IsTimeToCruise() */
static bool time_to_cruise(const struct tcp_conn *tc, const struct bbr *b)
{
        uint32_t pipe = pipe_bytes(tc);

        return pipe <= bbr_with_headroom(tc, b) &&
               pipe <= bbr_with_budget(tc, b, bbr_bdp(tc, b, bbr_max_bw(b), 100));
}

/* IsTimeToGoDown() */
static bool time_to_go_down(const struct tcp_conn *tc, struct bbr *b, const struct rate_sample *rs)
{
        if (b->prev_probe_too_high &&
            pipe_bytes(tc) + rs->newly_acked + tc->snd_mss > b->inflight_longterm) {
                b->prev_probe_precautionary = true;
                return true;
        }
        if (bbr_window_full(b) && tc->cwnd >= b->inflight_longterm) {
                bbr_reset_full_bw(b, rs->rate); /* it is the bound that limits */
                return false;
        }
        return b->full_bw_now;
}

/* ProbeInflightLongtermUpward() */
static void probe_upward(const struct tcp_conn *tc, struct bbr *b, const struct rate_sample *rs)
{
        if (!bbr_window_full(b) || tc->cwnd < b->inflight_longterm)
                return;
        b->probe_up_acked += rs->newly_acked;
        if (b->probe_up_acked >= b->probe_up_per_inc) {
                uint32_t delta = b->probe_up_acked / b->probe_up_per_inc;
                b->probe_up_acked -= delta * b->probe_up_per_inc;
                b->inflight_longterm = (uint32_t)MIN((uint64_t)b->inflight_longterm +
                                                             (uint64_t)delta * tc->snd_mss,
                                                     (uint64_t)INT32_MAX);
        }
        if (b->round_start)
                raise_slope(tc, b);
}

/* The first round trip after a probe is over. True: the next one begins at once, since this was
 * stopped as a precaution. */
static bool probe_is_over(struct tcp_conn *tc, struct bbr *b, const struct rate_sample *rs)
{
        b->bw_probe_sample = false;
        b->ack_phase = BBR_ACKS_INIT;
        if (bbr_in_probe_bw(b) && !rs->app_limited)
                bbr_advance_max_bw(b);
        if (!bbr_in_probe_bw(b) || !b->prev_probe_precautionary || b->prev_probe_too_high)
                return false;
        start_refill(tc, b);
        return true;
}

/* AdaptLongTermModel(). True: the state was decided. */
static bool adapt_long_term(struct tcp_conn *tc, struct bbr *b, const struct rate_sample *rs)
{
        if (b->ack_phase == BBR_ACKS_STARTING && b->round_start)
                b->ack_phase = BBR_ACKS_FEEDBACK;
        if (b->ack_phase == BBR_ACKS_STOPPING && b->round_start && probe_is_over(tc, b, rs))
                return true;
        if (b->inflight_longterm == BBR_NO_BOUND ||
            bbr_inflight_too_high(tc, rs->lost, rs->tx_in_flight, rs->delivered))
                return false;
        b->inflight_longterm = MAX(b->inflight_longterm, rs->tx_in_flight);
        if (b->state == BBR_UP)
                probe_upward(tc, b, rs);
        return false;
}

/* UpdateProbeBWCyclePhase() */
static void update_probe_bw(struct tcp_conn *tc, struct bbr *b, const struct rate_sample *rs,
                            nstime now)
{
        if (!b->full_bw_reached || adapt_long_term(tc, b, rs))
                return;
        switch (b->state) {
        case BBR_DOWN:
                if (time_to_probe(tc, b, now))
                        start_refill(tc, b);
                else if (time_to_cruise(tc, b))
                        b->state = BBR_CRUISE;
                break;
        case BBR_CRUISE:
                if (time_to_probe(tc, b, now))
                        start_refill(tc, b);
                break;
        case BBR_REFILL:
                if (b->round_start) {
                        b->bw_probe_sample = true;
                        start_up(tc, b, rs);
                }
                break;
        case BBR_UP:
                if (time_to_go_down(tc, b, rs)) {
                        b->prev_probe_too_high = false;
                        start_down(tc, b, now);
                }
                break;
        default:
                break;
        }
}

/* HandleInflightTooHigh(): as losses told, or marks. */
static void handle_too_high(struct tcp_conn *tc, struct bbr *b, nstime now)
{
        b->too_high = false;
        if (!b->bw_probe_sample)
                return;
        b->prev_probe_too_high = true;
        b->bw_probe_sample = false; /* once a probe */
        if (!b->too_high_app_limited)
                b->inflight_longterm =
                        MAX(b->too_high_at,
                            (uint32_t)((uint64_t)target_inflight(tc, b) * BBR_BETA / 100));
        if (b->state == BBR_UP) {
                b->undo_state = BBR_UP;
                start_down(tc, b, now);
        }
}

/* ---- Startup and Drain: §5.3.1, §5.3.2 ---- */

static void startup_too_high(const struct tcp_conn *tc, struct bbr *b)
{
        b->undo_state = BBR_STARTUP;
        b->full_bw_reached = true;
        b->inflight_longterm = MAX(bbr_bdp(tc, b, bbr_bw(b), 100), b->inflight_latest);
}

/* CheckStartupHighLoss(). Without SACK one loss a round trip is all that can be found. */
static void check_startup_loss(const struct tcp_conn *tc, struct bbr *b,
                               const struct rate_sample *rs)
{
        uint8_t ranges = b->loss_ranges;

        if (b->loss_round_start)
                b->loss_ranges = 0;
        if (b->state != BBR_STARTUP || !b->loss_round_start || tc->ca_state < CA_RECOVERY)
                return;
        if (ranges >= (tc->sack_ok ? STARTUP_LOSSES : 1) &&
            (!tc->sack_ok || bbr_inflight_too_high(tc, rs->lost, rs->tx_in_flight, rs->delivered)))
                startup_too_high(tc, b);
}

static void check_startup_and_drain(struct tcp_conn *tc, struct bbr *b,
                                    const struct rate_sample *rs, nstime now)
{
        check_startup_loss(tc, b, rs);
        if (b->state == BBR_STARTUP && b->full_bw_reached) {
                b->state = BBR_DRAIN;
                b->drain_rounds = 0;
        }
        if (b->state == BBR_DRAIN &&
            (pipe_bytes(tc) <= bbr_with_budget(tc, b, bbr_bdp(tc, b, bbr_bw(b), 100)) ||
             b->drain_rounds > DRAIN_ROUNDS))
                start_down(tc, b, now);
}

/* ---- ProbeRTT: §5.3.4 ---- */

static void save_cwnd(const struct tcp_conn *tc, struct bbr *b)
{
        if (tc->ca_state < CA_RECOVERY && b->state != BBR_PROBE_RTT)
                b->prior_cwnd = tc->cwnd;
        else
                b->prior_cwnd = MAX(b->prior_cwnd, tc->cwnd);
}

static void restore_cwnd(struct tcp_conn *tc, struct bbr *b)
{
        tc->cwnd = MAX(tc->cwnd, b->prior_cwnd);
}

static uint32_t probe_rtt_cwnd(const struct tcp_conn *tc, const struct bbr *b)
{
        return MAX(bbr_bdp(tc, b, bbr_bw(b), gains[BBR_PROBE_RTT].cwnd), bbr_min_cwnd(tc));
}

/* CheckProbeRTTDone(), ExitProbeRTT() */
static void check_probe_rtt_done(struct tcp_conn *tc, struct bbr *b, nstime now)
{
        if (b->probe_rtt_done == 0 || now <= b->probe_rtt_done)
                return;
        b->probe_rtt_stamp = now;
        restore_cwnd(tc, b);
        bbr_reset_short_term(b);
        if (b->full_bw_reached) {
                start_down(tc, b, now);
                b->state = BBR_CRUISE;
        } else {
                b->state = BBR_STARTUP;
        }
}

static void handle_probe_rtt(struct tcp_conn *tc, struct bbr *b, nstime now)
{
        rate_app_limited(tc); /* low rates are our own doing */
        if (b->probe_rtt_done == 0 && pipe_bytes(tc) <= probe_rtt_cwnd(tc, b)) {
                b->probe_rtt_done = now + PROBE_RTT_DURATION;
                b->probe_rtt_round_done = false;
                bbr_start_round(tc, b);
        } else if (b->probe_rtt_done != 0) {
                b->probe_rtt_round_done |= b->round_start;
                if (b->probe_rtt_round_done)
                        check_probe_rtt_done(tc, b, now);
        }
}

static void check_probe_rtt(struct tcp_conn *tc, struct bbr *b, const struct rate_sample *rs,
                            nstime now)
{
        if (b->state != BBR_PROBE_RTT && b->probe_rtt_expired && !b->idle_restart) {
                save_cwnd(tc, b);
                b->state = BBR_PROBE_RTT;
                b->probe_rtt_done = 0;
                b->ack_phase = BBR_ACKS_STOPPING;
                bbr_start_round(tc, b);
        }
        if (b->state == BBR_PROBE_RTT)
                handle_probe_rtt(tc, b, now);
        if (rs->delivered > 0)
                b->idle_restart = false;
}

/* ---- what is controlled: §5.6 ---- */

/* SetPacingRateWithGain(), SetSendQuantum() */
static void set_pacing(struct tcp_conn *tc, struct bbr *b, uint32_t gain)
{
        uint64_t rate = bbr_bw(b) * gain / 100 * (100 - BBR_PACING_MARGIN) / 100;

        if (rate == 0 || (!b->full_bw_reached && rate <= b->pace))
                return;
        b->pace = rate;
        pace_set(tc, rate, 2 * tc->snd_mss);
}

/* BoundCwndForModel() */
static uint32_t bound_for_model(const struct tcp_conn *tc, const struct bbr *b)
{
        uint32_t cap = BBR_NO_BOUND;

        if (bbr_in_probe_bw(b) && b->state != BBR_CRUISE)
                cap = b->inflight_longterm;
        else if (b->state == BBR_PROBE_RTT || b->state == BBR_CRUISE)
                cap = bbr_with_headroom(tc, b);
        return MAX(MIN(cap, b->inflight_shortterm), bbr_min_cwnd(tc));
}

static void set_cwnd(struct tcp_conn *tc, struct bbr *b, uint32_t newly_acked)
{
        uint32_t most = bbr_bdp(tc, b, bbr_bw(b), gains[b->state].cwnd) +
                        MAX(b->extra_acked[0], b->extra_acked[1]);
        uint32_t cwnd = tc->cwnd;

        most = bbr_with_budget(tc, b, most);
        if (b->full_bw_reached)
                cwnd = MIN(cwnd + newly_acked, most);
        else if (cwnd < most || tc->bytes_acked < cc_initial_window(tc))
                cwnd += newly_acked;
        cwnd = MAX(cwnd, bbr_min_cwnd(tc));
        if (b->state == BBR_PROBE_RTT)
                cwnd = MIN(cwnd, probe_rtt_cwnd(tc, b));
        tc->cwnd = MIN(cwnd, bound_for_model(tc, b));
}

/* ---- events ---- */

static void init(struct tcp_conn *tc, nstime now)
{
        struct bbr *b = bbr_of(tc);

        if (!(tc->flags & TCF_RATES))
                return;
        bbr_model_init(tc, b, now);
        b->prior_cwnd = tc->cwnd;
        /* InitPacingRate(), §5.6.2 */
        b->pace = (uint64_t)cc_initial_window(tc) * NS_PER_S /
                  (uint64_t)(tc->srtt != 0 ? tc->srtt : NS_PER_MS) * gains[BBR_STARTUP].pacing /
                  100;
        pace_set(tc, b->pace, 2 * tc->snd_mss);
}

/* Where nothing is lost: the peer's window is the limit, as with the others. */
static void on_ack(struct tcp_conn *tc, uint32_t acked, nstime rtt, nstime now)
{
        tc->cwnd += acked;
}

/* Recovery begins. The window is the model's business (§5.6.4.4); after a timeout recovery has set
 * it to a segment. */
static uint32_t on_loss(struct tcp_conn *tc, bool timeout, nstime now)
{
        if (tc->flags & TCF_RATES) {
                save_cwnd(tc, bbr_of(tc));
                bbr_save_upon_loss(bbr_of(tc));
        }
        return tc->ssthresh;
}

/* HandleSpuriousLossDetection(), §5.5.11.2 */
static void undo(struct tcp_conn *tc)
{
        struct bbr *b = bbr_of(tc);
        uint8_t was = b->undo_state;

        if (!(tc->flags & TCF_RATES))
                return;
        restore_cwnd(tc, b);
        bbr_restore_bounds(b);
        b->undo_state = BBR_STATES;
        if (was == BBR_STARTUP && b->state != BBR_STARTUP) {
                b->full_bw_reached = false;
                if (b->state != BBR_PROBE_RTT)
                        b->state = BBR_STARTUP;
        } else if (was == BBR_UP && b->state != BBR_UP && b->state != BBR_PROBE_RTT) {
                start_refill(tc, b);
        }
}

static void marked(struct tcp_conn *tc)
{
        bbr_of(tc)->marked = true;
}

static void heed_marks(struct tcp_conn *tc, struct bbr *b, const struct rate_sample *rs)
{
        b->marked = false;
        bbr_note_loss(tc, b);
        if (b->state == BBR_STARTUP)
                startup_too_high(tc, b);
        b->too_high = true;
        b->too_high_at = rs->tx_in_flight;
        b->too_high_app_limited = rs->app_limited || rs->delivered == 0;
}

/* HandleRestartFromIdle(), §5.4.1 */
static void restart(struct tcp_conn *tc, nstime now)
{
        struct bbr *b = bbr_of(tc);

        if (!b->rate.bubble)
                return;
        b->idle_restart = true;
        b->extra_acked_start = now;
        if (bbr_in_probe_bw(b))
                set_pacing(tc, b, 100);
        else if (b->state == BBR_PROBE_RTT)
                check_probe_rtt_done(tc, b, now);
}

/* UpdateOnACK(), §5.2.3 */
static void model(struct tcp_conn *tc, nstime rtt, nstime now)
{
        struct bbr *b = bbr_of(tc);
        bool recovering = tc->ca_state >= CA_RECOVERY;
        struct rate_sample rs;

        rate_sample(tc, &rs, now);
        if (b->marked)
                heed_marks(tc, b, &rs);
        if (b->too_high)
                handle_too_high(tc, b, now);
        bbr_update_delivery(tc, b, &rs);
        bbr_update_aggregation(tc, b, &rs, now);
        bbr_check_full_bw(b, &rs);
        check_startup_and_drain(tc, b, &rs, now);
        update_probe_bw(tc, b, &rs, now);
        bbr_update_min_rtt(b, rtt, now);
        check_probe_rtt(tc, b, &rs, now);
        bbr_advance_delivery(b, &rs);
        if (b->recovering && !recovering)
                restore_cwnd(tc, b);
        b->recovering = recovering;
        set_pacing(tc, b, gains[b->state].pacing);
        set_cwnd(tc, b, rs.newly_acked);
}

static void report(const struct tcp_conn *tc, struct tcp_report *r)
{
        const struct bbr *b = (const struct bbr *)tc->cc_priv;

        if (b->bw_latest != 0)
                r->delivery_rate = b->bw_latest;
        r->model.bw = bbr_bw(b);
        r->model.min_rtt = b->min_rtt == NSTIME_NEVER ? 0 : b->min_rtt;
        r->model.pacing_gain = gains[MIN(b->state, BBR_PROBE_RTT)].pacing;
        r->model.cwnd_gain = gains[MIN(b->state, BBR_PROBE_RTT)].cwnd;
        r->model.app_limited = b->rate.bubble;
}

const struct tcp_cc tcp_bbr = {.name = "bbr",
                               .init = init,
                               .on_ack = on_ack,
                               .on_loss = on_loss,
                               .undo = undo,
                               .model = model,
                               .lost = bbr_lost,
                               .marked = marked,
                               .restart = restart,
                               .report = report};
