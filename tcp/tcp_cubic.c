/*
 * CUBIC (RFC 9438). W_cubic(t) = C (t - K)^3 + W_max, in segments and seconds; here in bytes and
 * milliseconds.
 */
#include "tcp/tcp_cc.h"

#define BETA_NUM 7 /* beta_cubic = 0.7 (§4.6) */
#define BETA_DEN 10
#define EST_STEP 64 /* bytes */

struct cubic {
        uint32_t w_max;      /* bytes, window before the last reduction (§4.1.2) */
        uint32_t cwnd_prior; /* that window itself, where w_max gives way (§4.3, §4.7) */
        nstime epoch; /* when congestion avoidance began, 0: not yet; idle time moves it on */
        nstime last;  /* when the window was last allowed to grow in it */
        uint32_t k_ms;
        uint32_t acked; /* bytes counted towards the next increase */
        uint32_t w_est; /* Reno's window (§4.3) */
        uint32_t est_acked;
        uint32_t hs_round_end;          /* HyStart++ (RFC 9406): snd_nxt that ends the round */
        uint32_t hs_last_us, hs_now_us; /* minimal RTT of the last round and of this one */
        /* Samples this round; rounds left of conservative slow start. */
        uint16_t hs_samples, hs_css;
        uint32_t prior_w_max, prior_cwnd_prior; /* before the last loss (§4.9) */
        nstime prior_epoch;
        uint32_t prior_k_ms, prior_w_est;
};
static_assert(sizeof(struct cubic) <= sizeof((struct tcp_conn *)0)->cc_priv, "fits");

enum {
        HS_MIN_SAMPLES = 8,
        HS_CSS_ROUNDS = 5,
        HS_CSS_DIVISOR = 4,
        HS_MIN_US = 4000,
        HS_MAX_US = 16000
};

static struct cubic *state(struct tcp_conn *tc)
{
        return (struct cubic *)tc->cc_priv;
}

static void init(struct tcp_conn *tc, nstime now)
{
        *state(tc) = (struct cubic){
                .hs_last_us = UINT32_MAX, .hs_now_us = UINT32_MAX, .hs_round_end = tc->snd_nxt};
}

static uint32_t cube_root(uint64_t a)
{
        uint64_t x = 0;

        for (int bit = 20; bit >= 0; bit--) {
                uint64_t y = x | 1ull << bit;
                if (y * y * y <= a)
                        x = y;
        }
        return (uint32_t)x;
}

/* §4.2: K = cubic root of (W_max - cwnd_epoch) / C, C = 0.4 segments a second cubed. */
static void begin_epoch(struct tcp_conn *tc, struct cubic *c, nstime now)
{
        uint64_t gap;

        c->epoch = c->last = now;
        c->w_est = tc->cwnd;
        c->acked = c->est_acked = 0;
        if (c->w_max < tc->cwnd)
                c->w_max = tc->cwnd;
        gap = (uint64_t)(c->w_max - tc->cwnd) * 10 / 4; /* bytes / C */
        c->k_ms = cube_root(gap * 1000000000ull / tc->snd_mss);
}

/* C (t - K)^3 + W_max in bytes; t in ms. */
static uint32_t window_at(const struct tcp_conn *tc, const struct cubic *c, int64_t t_ms)
{
        int64_t d = t_ms - c->k_ms, off;

        d = MIN(MAX(d, -1000000), 1000000);
        off = d * d / 1000 * d / 1000 * 4 / 10 * (int64_t)tc->snd_mss / 1000;
        off += c->w_max;
        return off < 0 ? 0 : off > INT32_MAX ? INT32_MAX : (uint32_t)off;
}

/* §4.3: what Reno with the same loss rate would have. It is alpha = 3 (1 - beta) / (1 + beta) =
 * 9/17 segments a window, with each ACK its part of it. What is less than a few bytes waits for the
 * next ACK. */
static void grow_estimate(struct tcp_conn *tc, struct cubic *c, uint32_t acked)
{
        uint64_t alpha = c->w_est >= c->cwnd_prior ? tc->snd_mss : tc->snd_mss * 9 / 17, more;

        c->est_acked += acked;
        more = c->est_acked * alpha / tc->cwnd;
        if (more < EST_STEP)
                return;
        c->est_acked = 0;
        c->w_est += (uint32_t)more;
}

/* §4.2: the time in which the application or the peer's window was the limit does not count, nor
 * does slow start after it. Where the congestion window is the limit every round trip has an ACK
 * that lets it grow. */
static void skip_idle(const struct tcp_conn *tc, struct cubic *c, nstime now)
{
        nstime gap = now - c->last;

        if (unlikely(gap > tc->srtt + 4 * tc->rttvar))
                c->epoch += gap - tc->srtt;
        c->last = now;
}

static void avoid_congestion(struct tcp_conn *tc, struct cubic *c, uint32_t acked, nstime now)
{
        uint32_t target;

        if (c->epoch == 0)
                begin_epoch(tc, c, now);
        skip_idle(tc, c, now);
        grow_estimate(tc, c, acked);
        target = window_at(tc, c, (now - c->epoch + tc->srtt) / NS_PER_MS);
        if (target <
            c->w_est) { /* §4.3: the Reno-friendly region; after a pause not in one burst */
                tc->cwnd = MAX(tc->cwnd, MIN(c->w_est, tc->cwnd + acked));
                return;
        }
        target = MIN(MAX(target, tc->cwnd), tc->cwnd + tc->cwnd / 2); /* §4.4, §4.5 */
        if (target <= tc->cwnd)
                return;
        /* (target - cwnd) / cwnd a byte acknowledged, paid out in whole segments */
        c->acked += (uint32_t)((uint64_t)acked * (target - tc->cwnd) / tc->cwnd);
        if (c->acked >= tc->snd_mss) {
                tc->cwnd += c->acked / tc->snd_mss * tc->snd_mss;
                c->acked %= tc->snd_mss;
        }
}

/* HyStart++ (RFC 9406 §4.2): when the round trip grows, slow start slows down, and after some
 * rounds it ends. Only the first, which does not know where to end. */
static uint32_t slow_start_share(struct tcp_conn *tc, struct cubic *c, uint32_t acked, nstime rtt)
{
        uint32_t eta;

        if (rtt > 0) {
                c->hs_now_us = (uint32_t)MIN((nstime)c->hs_now_us, rtt / NS_PER_US);
                c->hs_samples++;
        }
        if (c->hs_samples >= HS_MIN_SAMPLES && c->hs_css == 0 && c->hs_last_us != UINT32_MAX) {
                eta = MAX(HS_MIN_US, MIN(c->hs_last_us / 8, HS_MAX_US));
                if (c->hs_now_us >= c->hs_last_us + eta)
                        c->hs_css = HS_CSS_ROUNDS;
        }
        if (seq_geq(tc->snd_una, c->hs_round_end)) {
                c->hs_round_end = tc->snd_nxt;
                c->hs_last_us = c->hs_now_us;
                c->hs_now_us = UINT32_MAX;
                c->hs_samples = 0;
                if (c->hs_css > 1 && --c->hs_css == 1)
                        tc->ssthresh = tc->cwnd;
        }
        return c->hs_css ? acked / HS_CSS_DIVISOR : acked;
}

static void on_ack(struct tcp_conn *tc, uint32_t acked, nstime rtt, nstime now)
{
        struct cubic *c = state(tc);

        if (tc->cwnd < tc->ssthresh)
                tc->cwnd += tc->link.lossless || tc->ssthresh != CWND_UNKNOWN
                                    ? acked
                                    : slow_start_share(tc, c, acked, rtt);
        else
                avoid_congestion(tc, c, acked, now);
}

static uint32_t on_loss(struct tcp_conn *tc, bool timeout, nstime now)
{
        struct cubic *c = state(tc);
        uint32_t reduced = (uint32_t)((uint64_t)tc->cwnd * BETA_NUM / BETA_DEN);

        c->prior_w_max = c->w_max;
        c->prior_cwnd_prior = c->cwnd_prior;
        c->prior_epoch = c->epoch;
        c->prior_k_ms = c->k_ms;
        c->prior_w_est = c->w_est;
        /* Fast convergence (§4.7): give way when the peak is lower than the last. */
        c->w_max = tc->cwnd < c->w_max
                           ? (uint32_t)((uint64_t)tc->cwnd * (BETA_DEN + BETA_NUM) / (2 * BETA_DEN))
                           : tc->cwnd;
        c->cwnd_prior = tc->cwnd;
        c->epoch = 0;
        c->hs_css = 0;
        return MAX(reduced, 2 * tc->snd_mss);
}

/* §4.9 */
static void undo(struct tcp_conn *tc)
{
        struct cubic *c = state(tc);

        c->w_max = c->prior_w_max;
        c->cwnd_prior = c->prior_cwnd_prior;
        c->epoch = c->prior_epoch;
        c->k_ms = c->prior_k_ms;
        c->w_est = c->prior_w_est;
}

const struct tcp_cc tcp_cubic = {
        .name = "cubic", .init = init, .on_ack = on_ack, .on_loss = on_loss, .undo = undo};
