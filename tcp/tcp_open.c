/* Active open, and what both kinds of open have in common: the options of a SYN, and
 * becoming ESTABLISHED. */
#include <errno.h>

#include "tcp/tcp_answers.h"
#include "tcp/tcp_cc.h"
#include "tcp/tcp_ecn.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_recv.h"
#include "tcp/tcp_send.h"

/* The largest receive buffer: the scale is chosen for it once. */
#define RCV_LIMIT_MOST     (6u << 20)
#define MSS_DEFAULT_V4     536 /* RFC 9293 MUST-15 */
#define MSS_DEFAULT_V6     1220
#define RTO_AFTER_LOST_SYN (3 * NS_PER_S) /* RFC 6298 §5.7 */

bool open_address_ok(ip_addr a)
{
        uint32_t v4;

        if (ip_addr_is_any(a))
                return false;
        if (!ip_addr_is_v4(a))
                return ((const uint8_t *)&a)[0] != 0xff;
        v4 = ip_addr_get_v4(a);
        return v4 >> 28 != 0xe && v4 != UINT32_MAX;
}

/* RFC 7323 §2.2: for the largest buffer there may be, or the largest window that the application
 * ever wants. A buffer that was set (SO_RCVBUF) stays as it is, and the less it has to be scaled
 * the finer is what can be said of it. */
uint8_t open_wscale(const struct tcp_opts *o)
{
        uint32_t most = o->window_most != 0 ? o->window_most
                        : o->rcvbuf != 0    ? o->rcvbuf
                                            : RCV_LIMIT_MOST;
        uint8_t s = 0;

        if (o->no_wscale)
                return TCP_NO_WSCALE;
        while (s < 14 && (uint32_t)UINT16_MAX << s < most)
                s++;
        return s;
}

/* An option holds when both sides sent it. Timestamps are not offered on a lossless link: nothing
 * old can arrive. */
void open_syn_options(struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        assert(tc->state < TCPS_SYN_RECEIVED && seg->flags & TCP_SYN);
        tc->mss_clamp = seg->mss                         ? seg->mss
                        : ip_addr_is_v4(tc->tuple.raddr) ? MSS_DEFAULT_V4
                                                         : MSS_DEFAULT_V6;
        if (seg->wscale != TCP_NO_WSCALE && tc->syn_wscale != TCP_NO_WSCALE) {
                conn_flag(tc, TCF_WSCALE);
                tc->snd_wscale = seg->wscale;
                WRITE_ONCE(tc->rcv_wscale, tc->syn_wscale);
                rcvbuf_size(tc, tc->rcv_size);
        }
        tc->ts_ok = seg->has_ts && !tc->opts.no_timestamps && !tc->link.lossless;
        if (tc->ts_ok) {
                tc->ts_recent = seg->tsval;
                tc->ts_recent_s = (uint32_t)(now / NS_PER_S);
        }
        ecn_syn(tc, seg);
        tc->sack_ok = seg->sack_ok && !tc->opts.no_sack;
        if (!tc->sack_ok)
                tc->slow |= SLOW_NOSACK;
        conn_size_mss(tc);
}

void open_learn_peer(struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        tc->irs = seg->seq;
        tc->last_ack_sent = seg->seq + 1;
        WRITE_ONCE(tc->rcv_nxt, tc->last_ack_sent);
        rcvbuf_open(tc);
        open_syn_options(tc, seg, now);
        /* RFC 7323 §2.2: never scaled in a SYN. */
        tc->snd_wnd = tc->max_wnd = conn_peer_window(tc, seg->wnd);
        tc->snd_wl1 = seg->seq;
        tc->snd_wl2 = seg->ack;
}

void open_established(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        /* Until now, by us: end_handshake(). */
        bool deferred = tc->opts.defer_accept_s != 0 && tc->snd_wl2 == tc->iss + 1;
        bool syn_lost = tc->backoff != 0 && !deferred;

        assert(tc->state == TCPS_SYN_SENT || tc->state == TCPS_SYN_RECEIVED);
        assert(tc->snd_mss != 0);
        if (syn_lost)
                tc->rto = MIN(MAX(tc->rto, RTO_AFTER_LOST_SYN), tcp_rto_most(&tc->opts));
        else if (!(tc->flags & TCF_COOKIE) && !deferred && tc->retrans == 0 &&
                 !conn_unconfirmed(tc) /* Karn's: which it answers */ &&
                 tc->last_sent != 0) /* none was sent: a promise */
                rtt_sample(tc, now - tc->last_sent);
        WRITE_ONCE(tc->snd_una, tc->iss + 1);
        tc->snd_sml = tc->recover = tc->high_sacked = tc->rack.end = tc->flight_end = tc->snd_una;
        tc->snd_up = tc->snd_una;
        tc->backoff = tc->dups = 0;
        tc->stalled_at = 0;
        tc->err_soft = 0;
        tc->rtx_kind = RTX_NONE;
        tc->rtx_at = NSTIME_NEVER;
        tc->ssthresh = CWND_UNKNOWN;
        WRITE_ONCE(tc->snd_limit, snd_limit_of(tc, tc->snd_limit));
        tc->cwnd = syn_lost ? tc->snd_mss : cc_initial_window(tc); /* RFC 5681 §3.1 */
        WRITE_ONCE(tc->rcv_full, tc->link.lossless ? tc->link.mss : 536);
        tc->drs_seq = tc->rcv_nxt;
        tc->drs_at = now;
        tc->limit = TCP_LIM_APP;
        tc->limit_since = now;
        cc_begin(tc, now);
        tcp_set_state(t, tc, TCPS_ESTABLISHED);
        timer_keepalive(tc, now);
        if (tc->shut &
            SHUT_SND) /* closed while it was being opened: RFC 9293 §3.10.4, SYN-RECEIVED */
                close_send(t, tc);
}

/* RFC 6191 seen from the side that opens: the same two ends again, while we are in TIME-WAIT. Our
 * new SYN has a newer timestamp or a higher sequence number, so that the peer can tell. */
static bool may_replace(const struct tcp_conn *old)
{
        return old->state == TCPS_TIME_WAIT && old->sock == 0 && (old->link.lossless || old->ts_ok);
}

/* What a promised SYN asks for has been agreed to by then. */
static bool may_be_promised(const struct tcp_link *link, const struct tcp_opts *o)
{
        return link->lossless && !o->no_wscale && !o->no_sack && o->fastopen == 0 &&
               o->ip_opts.len == 0;
}

/* There is a promise: the peer's answer is known before the SYN leaves. */
static void use_promise(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        struct tcp_seg answer;
        uint16_t said = t->answers->promised(t->arg, &tc->tuple, &answer);

        if (said == 0)
                return;
        answer.seq = (tc->iss & 0xffff0000u) | said;
        answer.ack = tc->iss + 1;
        open_learn_peer(tc, &answer, now);
}

int tcp_connect(struct tcp *t, const struct tcp_tuple *tuple, const struct tcp_link *link,
                const struct tcp_opts *opts, nstime now)
{
        struct tcp_conn *tc = demux_find(t, tuple);
        uint32_t iss = iss_new(t, tuple, now);

        if (!open_address_ok(tuple->raddr) || !open_address_ok(tuple->laddr))
                return -ENETUNREACH; /* RFC 9293 MUST-46 */
        if (tc != NULL) {
                if (!may_replace(tc))
                        return tc->state == TCPS_TIME_WAIT ? -EADDRINUSE : -EADDRNOTAVAIL;
                iss = seq_max(iss, tc->snd_nxt + UINT16_MAX);
                conn_end_time_wait(t, tc, COUNT_TCP_TIME_WAIT_REUSED);
        }
        tc = conn_new(t, tuple, link, opts, now);
        if (tc == NULL)
                return -ENOBUFS;
        count(t->cnt, COUNT_TCP_ACTIVE_OPEN);
        conn_flag(tc, TCF_ACTIVE);
        tc->iss = iss;
        WRITE_ONCE(tc->snd_una, iss);
        WRITE_ONCE(tc->snd_nxt, iss + 1);
        WRITE_ONCE(tc->snd_end, iss + 1);
        tc->stalled_at = now;
        tcp_set_state(t, tc, TCPS_SYN_SENT);
        if (unlikely(opts->fastopen & TCP_FASTOPEN_USE) && fastopen_begin(t, tc, now))
                return (int)tc->self;
        if (t->answers != NULL && may_be_promised(link, opts))
                use_promise(t, tc, now);
        tc->owed |= OWE_SYN;
        touch(t, tc);
        return (int)tc->self;
}
