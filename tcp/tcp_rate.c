/* See tcp_rate.h. */
#include "tcp/tcp_rate.h"

void rate_init(struct tcp_conn *tc, nstime now)
{
        *rate_of(tc) =
                (struct rate){.delivered_time = now, .first_sent = now, .told = rate_total(tc)};
}

void rate_app_limited(struct tcp_conn *tc)
{
        struct rate *r = rate_of(tc);

        r->bubble = true;
        r->bubble_end = rate_total(tc) + pipe_bytes(tc);
}

/* CheckIfApplicationLimited(): there is room in the window, and nothing to fill it with. */
static void check_app_limited(struct tcp_conn *tc, uint32_t in_flight)
{
        if (tc->snd_next == 0 && in_flight + tc->snd_mss <= tc->cwnd && tc->lost <= tc->retx)
                rate_app_limited(tc);
}

void rate_written(struct tcp_conn *tc)
{
        check_app_limited(tc, pipe_bytes(tc));
}

void rate_sent(struct tcp_conn *tc, struct tcp_txseg *s, nstime now)
{
        struct rate *r = rate_of(tc);
        uint32_t before = pipe_bytes(tc), after = before + txseg_space(s);

        if (before == 0)
                r->first_sent = r->delivered_time = now;
        s->first_sent = r->first_sent;
        s->delivered_time = r->delivered_time;
        s->delivered = rate_total(tc);
        s->tx_in_flight = after;
        s->lost_before = r->lost;
        s->marks = (uint8_t)((s->marks & ~TXS_APP_LIMITED) | TXS_RATE |
                             (r->bubble ? TXS_APP_LIMITED : 0));
        if (after + tc->snd_mss > tc->cwnd)
                r->window_full = true;
}

/* UpdateRateSample() */
void rate_note(struct tcp_conn *tc, const struct tcp_txseg *s, nstime now)
{
        struct rate *r = rate_of(tc);
        bool newest = s->sent > r->first_sent ||
                      (s->sent == r->first_sent && seq_gt(txseg_end(s), r->first_end));

        r->delivered_time = now;
        if (r->has_data && !newest)
                return;
        r->has_data = true;
        r->prior_delivered = s->delivered;
        r->prior_time = s->delivered_time;
        r->prior_lost = s->lost_before;
        r->tx_in_flight = s->tx_in_flight;
        r->app_limited = s->marks & TXS_APP_LIMITED;
        r->send_elapsed = s->sent - s->first_sent;
        r->first_sent = s->sent;
        r->first_end = txseg_end(s);
}

void rate_lost(struct tcp_conn *tc, const struct tcp_txseg *s)
{
        rate_of(tc)->lost += txseg_space(s);
}

/* GenerateRateSample(). Less than nothing is delivered when the peer gives back what it
 * had SACKed. */
void rate_sample(struct tcp_conn *tc, struct rate_sample *rs, nstime now)
{
        struct rate *r = rate_of(tc);
        uint32_t total = rate_total(tc);
        nstime interval;

        *rs = (struct rate_sample){.newly_acked = (uint32_t)MAX((int32_t)(total - r->told), 0)};
        r->told = total;
        if (r->bubble && (int32_t)(total - r->bubble_end) > 0)
                r->bubble = false;
        check_app_limited(tc, pipe_bytes(tc) + rs->newly_acked);
        if (!r->has_data)
                return;
        r->has_data = false;
        rs->delivered = (uint32_t)MAX((int32_t)(total - r->prior_delivered), 0);
        rs->prior_delivered = r->prior_delivered;
        rs->tx_in_flight = r->tx_in_flight;
        rs->lost = r->lost - r->prior_lost;
        rs->app_limited = r->app_limited;
        interval = MAX(r->send_elapsed, now - r->prior_time);
        if (interval > 0 && interval >= tc->min_rtt)
                rs->rate = rs->delivered * (uint64_t)NS_PER_S / (uint64_t)interval;
}
