/*
 * BBR, as draft-ietf-ccwg-bbr has it (BBRv3): what its two files share.
 *
 *   tcp_bbr.c        §5.2 to §5.4, §5.6: the state machine; what follows: pacing rate, window
 *   tcp_bbr_model.c  §5.5: the model of the path: bandwidth, round trip, aggregation, losses
 *
 * Names are the draft's; where it says C.delivered it is rate_total(), and RS is struct
 * rate_sample. Rates are bytes a second, amounts bytes, gains hundredths.
 */
#ifndef TCP_TCP_BBR_H
#define TCP_TCP_BBR_H

#include "tcp/tcp_cc.h"
#include "tcp/tcp_rate.h"

#define BBR_NO_BOUND      UINT32_MAX /* of inflight_longterm and inflight_shortterm: Infinity */
#define BBR_NO_BW         UINT64_MAX /* of bw_shortterm */
#define BBR_BETA          70         /* §2.7 */
#define BBR_HEADROOM      15
#define BBR_LOSS_THRESH   2
#define BBR_PACING_MARGIN 1 /* §2.5 */

enum bbr_state {
        BBR_STARTUP,
        BBR_DRAIN,
        BBR_DOWN,
        BBR_CRUISE,
        BBR_REFILL,
        BBR_UP,
        BBR_PROBE_RTT,
        BBR_STATES
};

enum bbr_acks { /* BBR.ack_phase: what ACKs tell of, with respect to a probe for bandwidth */
                BBR_ACKS_INIT,      /* of none */
                BBR_ACKS_REFILLING, /* the pipe is filled before it */
                BBR_ACKS_STARTING,  /* it has begun, and they are not of it yet */
                BBR_ACKS_FEEDBACK,  /* they are */
                BBR_ACKS_STOPPING,  /* it is over, and they still are */
};

struct bbr {
        struct rate rate;
        uint64_t pace;      /* the rate that BBR paces at */
        uint64_t max_bw[2]; /* of this cycle of probing, and of the one before */
        uint64_t bw_shortterm, bw_latest, undo_bw_shortterm;
        uint64_t full_bw;
        nstime min_rtt, min_rtt_stamp;
        nstime probe_rtt_min, probe_rtt_stamp;
        nstime probe_rtt_done; /* when ProbeRTT may end, 0: not known yet */
        nstime probe_bw_at;    /* cycle_stamp + bw_probe_wait */
        nstime extra_acked_start;
        uint32_t extra_acked_delivered;
        uint32_t extra_acked[2]; /* the most of these rounds, and of those before */
        uint32_t inflight_longterm, inflight_shortterm, inflight_latest;
        uint32_t round_end;      /* next_round_delivered */
        uint32_t loss_round_end; /* loss_round_delivered */
        uint32_t lost_end;       /* where the last loss ends */
        uint32_t too_high_at;    /* with `too_high`: what was in flight when it was too much */
        uint32_t probe_up_per_inc, probe_up_acked;
        uint32_t prior_cwnd;
        uint32_t undo_inflight_longterm, undo_inflight_shortterm;
        uint8_t state, ack_phase;
        uint8_t undo_state; /* that a loss has ended, BBR_STATES: none */
        uint8_t extra_acked_rounds, drain_rounds, rounds_since_probe, probe_up_rounds,
                full_bw_count;
        uint8_t loss_ranges; /* of sequence numbers that were lost in this round */
        bool round_start : 1, loss_round_start : 1, loss_in_round : 1;
        bool full_bw_now : 1, full_bw_reached : 1;
        bool bw_probe_sample : 1; /* ACKs are of what was sent to probe for bandwidth */
        bool prev_probe_too_high : 1, prev_probe_precautionary : 1;
        bool idle_restart : 1, probe_rtt_expired : 1, probe_rtt_round_done : 1;
        /* Losses crossed the threshold: seen to with the next ACK. */
        bool too_high : 1, too_high_app_limited : 1;
        bool marked : 1;          /* routers have marked */
        bool recovering : 1;      /* as of the last ACK */
        bool window_was_full : 1; /* in the last round */
};
static_assert(offsetof(struct bbr, rate) == 0, "rate_of()");
static_assert(sizeof(struct bbr) <= sizeof((struct tcp_conn *)0)->cc_priv, "fits");

static inline struct bbr *bbr_of(struct tcp_conn *tc)
{
        return (struct bbr *)tc->cc_priv;
}
static inline bool bbr_in_probe_bw(const struct bbr *b)
{
        return b->state >= BBR_DOWN && b->state <= BBR_UP;
}
/* BBR.max_bw; BBR.bw */
static inline uint64_t bbr_max_bw(const struct bbr *b)
{
        return MAX(b->max_bw[0], b->max_bw[1]);
}
static inline uint64_t bbr_bw(const struct bbr *b)
{
        return MIN(bbr_max_bw(b), b->bw_shortterm);
}
/* C.is_cwnd_limited */
static inline bool bbr_window_full(const struct bbr *b)
{
        return b->window_was_full || b->rate.window_full;
}
/* StartRound() */
static inline void bbr_start_round(const struct tcp_conn *tc, struct bbr *b)
{
        b->round_end = rate_total(tc);
}

/* ---- tcp_bbr_model.c ---- */

void bbr_model_init(struct tcp_conn *tc, struct bbr *b, nstime now);
/* The parts of UpdateModelAndState() that are about the path, in their order; the state machine
 * comes between. */
void bbr_update_delivery(struct tcp_conn *tc, struct bbr *b, const struct rate_sample *rs);
void bbr_update_aggregation(const struct tcp_conn *tc, struct bbr *b, const struct rate_sample *rs,
                            nstime now);
void bbr_check_full_bw(struct bbr *b, const struct rate_sample *rs);
void bbr_update_min_rtt(struct bbr *b, nstime rtt, nstime now);
void bbr_advance_delivery(struct bbr *b, const struct rate_sample *rs);
void bbr_advance_max_bw(struct bbr *b);
void bbr_reset_full_bw(struct bbr *b, uint64_t full_bw);
void bbr_reset_congestion_signals(struct bbr *b);
void bbr_reset_short_term(struct bbr *b);
/* Returns true if too much was in flight, by a sample or a lost segment: lost and delivered since
 * it left, and in flight then. */
bool bbr_inflight_too_high(const struct tcp_conn *tc, uint32_t lost, uint32_t in_flight,
                           uint32_t delivered);
/* As tcp_cc's. */
void bbr_lost(struct tcp_conn *tc, const struct tcp_txseg *s);
void bbr_note_loss(const struct tcp_conn *tc, struct bbr *b);
void bbr_save_upon_loss(struct bbr *b);
void bbr_restore_bounds(struct bbr *b);

/* Bytes in flight at a rate of `bw`, times gain; with what hosts hold back for the sake of fewer
 * packets. */
uint32_t bbr_bdp(const struct tcp_conn *tc, const struct bbr *b, uint64_t bw, uint32_t gain);
uint32_t bbr_with_budget(const struct tcp_conn *tc, const struct bbr *b, uint32_t inflight);
/* InflightWithHeadroom() */
uint32_t bbr_with_headroom(const struct tcp_conn *tc, const struct bbr *b);
/* MinPipeCwnd (§2.7) */
static inline uint32_t bbr_min_cwnd(const struct tcp_conn *tc)
{
        return 4 * tc->snd_mss;
}

#endif
