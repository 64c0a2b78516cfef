/* What a connection looks like from outside. Reads only; a reader without the lock gets a torn
 * snapshot at worst. */
#include "tcp/tcp_cc.h"
#include "tcp/tcp_info.h"
#include "tcp/tcp_send.h"

static void report_limits(const struct tcp_conn *tc, struct tcp_report *r, nstime now)
{
        r->limit = tc->limit;
        memcpy(r->limited, tc->limited, sizeof r->limited);
        if (tc->limit < ARRAY_LEN(r->limited))
                r->limited[tc->limit] += MAX(now - tc->limit_since, 0);
        r->busy = tc->busy + (tc->stalled_at != 0 ? MAX(now - tc->stalled_at, 0) : 0);
}

/* The distance from `from` to `to`. Read while the connection moves they may be of different
 * moments: what no window allows (RFC 7323 §2.3: 2^30) is 0. */
static uint32_t ahead(uint32_t to, uint32_t from)
{
        uint32_t distance = to - from;

        return distance <= 1u << 30 ? distance : 0;
}

/* Bytes delivered over the life of the smoothed round trip: a window a round trip. */
static uint64_t delivery_rate(const struct tcp_conn *tc)
{
        uint32_t in_flight = ahead(tc->snd_nxt, tc->snd_una);

        return tc->srtt > 0 ? (uint64_t)in_flight * NS_PER_S / (uint64_t)tc->srtt : 0;
}

int tcp_path_mtu(const struct tcp_conn *tc)
{
        uint32_t mss = tc->path.mss != 0 ? MIN(tc->path.mss, tc->link.mss) : tc->link.mss;

        return (int)(mss + IP_MIN_HDR + TCP_MIN_HDR);
}

void tcp_get_report(const struct tcp *t, const struct tcp_conn *tc, struct tcp_report *r,
                    nstime now)
{
        *r = (struct tcp_report){
                .tuple = tc->tuple,
                .state = conn_unconfirmed(tc) && tc->state == TCPS_ESTABLISHED ? TCPS_SYN_RECEIVED
                                                                               : tc->state,
                .snd_wnd = tc->snd_wnd,
                .rcv_wnd = ahead(tc->rcv_adv, tc->rcv_nxt),
                .cwnd = tc->cwnd,
                .ssthresh = tc->ssthresh,
                .mss = tc->snd_mss,
                .rmss = tc->rcv_full,
                .unacked = ahead(tc->snd_nxt, tc->snd_una),
                .unsent = ahead(tc->snd_end, tc->snd_nxt),
                .unread = tc->rcv_unread,
                .srtt = tc->srtt,
                .rttvar = tc->rttvar,
                .rto = rtt_rto(tc),
                .min_rtt = tc->min_rtt == NSTIME_NEVER ? 0 : tc->min_rtt,
                .bytes_sent = tc->bytes_sent,
                .bytes_acked = tc->bytes_acked,
                .bytes_received = tc->bytes_received,
                .bytes_retrans = tc->bytes_retrans,
                .segs_out = tc->segs_out,
                .segs_in = tc->segs_in,
                .retrans = tc->retrans,
                .reordering = !!(tc->flags & TCF_REORDER),
                .dsack_dups = tc->dsack_dups,
                .snd_wscale = tc->snd_wscale,
                .rcv_wscale = tc->rcv_wscale,
                .sack_ok = tc->sack_ok,
                .ts_ok = tc->ts_ok,
                .ecn_ok = !!(tc->flags & TCF_ECN),
                .ecn_seen = !!(tc->flags & TCF_ECN_SEEN),
                .ca_state =
                        tc->flags & TCF_ECN_CUT && tc->ca_state < CA_RECOVERY ? 2 : tc->ca_state,
                .backoff = tc->backoff,
                .probes = tc->probes,
                .cc = tc->cc,
                .syn_data = !!(tc->fastopen & FO_TAKEN),
                .credit = tc->opts.credit,
                .memory = tc->snd_mem + tc->rcv_mem,
                .sndbuf = tc->snd_limit,
                .rcvbuf = tc->rcv_size,
                .last_sent = tc->last_sent,
                .last_received = tc->last_received,
                .sock = tc->sock,
                .delivery_rate = delivery_rate(tc),
                .send_limit = tc->opts.send_window,
                .group = tc->group,
                .share = tc->group_share,
                .watched = tc->watch.holds & TCP_WATCH_ON,
                .pacing_rate = tc->pace.rate != PACE_UNBOUND ? tc->pace.rate : 0,
        };
        if (tc->flags & TCF_RATES && cc_of(tc)->report != NULL)
                cc_of(tc)->report(tc, r);
        if (r->watched)
                r->watch =
                        (struct tcp_marks){tc->watch.acked, tc->watch.rtt, tc->watch.unsent_below,
                                           tc->watch.unread_above, tc->watch.limits};
        report_limits(tc, r, now);
}
