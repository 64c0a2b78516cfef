/*
 * Delivery rates: how fast what was sent arrives (draft-ietf-ccwg-bbr §4.1,
 * draft-cheng-iccrg-delivery-rate-estimation).
 *
 *   rate_written()    the application has more to send: until now it may have been what limits
 *   rate_sent()       a segment leaves: how much had been delivered, and when, is noted in its
 *                     record
 *   rate_delivered()  it is acknowledged or SACKed: of those that an ACK tells of, the one that
 *                     left last counts
 *   rate_lost()       it is marked lost
 *   rate_sample()     the ACK has been worked through: what was delivered since that one left, and
 *                     how long it took
 *
 * A txseg is kept until it is acknowledged anyway, and what has to be known of each fits into its
 * cache line. Runs of segments with one note for all would need a table besides, which recovery
 * would have to mend. Only connections with TCF_RATES fill it in. The others pay a bit that is
 * looked at when a segment leaves and when an ACK comes.
 *
 * The draft's C.delivered is what the connection counts in any case (rate_total()), so that it
 * outlives a new beginning. Amounts are modulo 2^32. Kept at the beginning of tc->cc_priv.
 */
#ifndef TCP_TCP_RATE_H
#define TCP_TCP_RATE_H

#include "tcp/tcp_conn.h"

struct rate {
        nstime delivered_time; /* C.delivered_time */
        nstime first_sent;     /* C.first_send_time: when what was delivered last had left */
        nstime prior_time, send_elapsed; /* as the next group */
        uint32_t first_end;              /* ... and where it ends */
        uint32_t lost;                   /* C.lost */
        uint32_t bubble_end;             /* C.app_limited, while `bubble` */
        uint32_t told;                   /* delivered by the last sample */
        /* of the segment that the next sample is of, when has_data */
        uint32_t prior_delivered, prior_lost, tx_in_flight;
        bool has_data, app_limited, bubble;
        bool window_full; /* the window was used up since this was last cleared */
};

struct rate_sample {
        uint32_t delivered; /* RS.delivered, 0: nothing was delivered that a sample could be of */
        uint32_t prior_delivered;
        uint32_t newly_acked;
        uint32_t tx_in_flight, lost;
        bool app_limited;
        uint64_t rate; /* RS.delivery_rate, bytes a second; 0: none that can be relied on */
};

static inline struct rate *rate_of(struct tcp_conn *tc)
{
        return (struct rate *)tc->cc_priv;
}
static inline uint32_t rate_total(const struct tcp_conn *tc)
{
        return (uint32_t)tc->bytes_acked + tc->sacked;
}

void rate_init(struct tcp_conn *tc, nstime now);
/* More is about to be queued. */
void rate_written(struct tcp_conn *tc);
/* Before it is counted as sent. */
void rate_sent(struct tcp_conn *tc, struct tcp_txseg *s, nstime now);
/* Before it is marked, or counted as acknowledged. */
void rate_note(struct tcp_conn *tc, const struct tcp_txseg *s, nstime now);
static inline void rate_delivered(struct tcp_conn *tc, const struct tcp_txseg *s, nstime now)
{
        if (s->marks & TXS_RATE && tc->flags & TCF_RATES)
                rate_note(tc, s, now);
}
void rate_lost(struct tcp_conn *tc, const struct tcp_txseg *s);
void rate_sample(struct tcp_conn *tc, struct rate_sample *rs, nstime now);
/* Bytes sent until all that is in flight is delivered say nothing about the path. */
void rate_app_limited(struct tcp_conn *tc);

#endif
