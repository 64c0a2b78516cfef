/* Options of a connection: defaults, and what changes at once when one is set on a
 * live connection. */
#include "tcp/tcp_cc.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_recv.h"
#include "tcp/tcp_send.h"

void tcp_opts_default(struct tcp_opts *o)
{
        *o = (struct tcp_opts){
                .cc = TCP_CC_CUBIC,
                .syncnt = 7, /* 255 s: RFC 9293 MUST-23 asks for at least 3 minutes */
                .keepcnt = 9,
                .ttl = 64,
                .linger_s = -1,
                .keepidle_s = 7200, /* MUST-28 */
                .keepintvl_s = 75,
                .fin_wait2_s = 60,
        };
}

void tcp_get_opts(const struct tcp_conn *tc, struct tcp_opts *o)
{
        *o = tc->opts;
}

/* A limit that is lifted waits for the peer's next window. */
static void set_send_window(struct tcp_conn *tc)
{
        conn_slow_flow(tc);
        tc->snd_wnd = conn_peer_window(tc, tc->snd_wnd);
}

static void set_buffers(struct tcp *t, struct tcp_conn *tc, const struct tcp_opts *o)
{
        if (o->sndbuf != 0)
                WRITE_ONCE(tc->snd_limit, snd_limit_of(tc, MAX(o->sndbuf, SND_LIMIT_LEAST)));
        rcvbuf_size(tc, rcvbuf_limit_by(tc, o));
        if (!sndbuf_writable(t, tc))
                conn_flag(tc, TCF_SND_FULL);
        sndbuf_freed(t, tc);
}

void tcp_set_opts(struct tcp *t, struct tcp_conn *tc, const struct tcp_opts *o, nstime now)
{
        bool push = (o->nodelay && (!tc->opts.nodelay || tc->flags & TCF_MORE)) ||
                    (!o->cork && tc->opts.cork);
        bool keep = o->keepalive != tc->opts.keepalive || o->keepidle_s != tc->opts.keepidle_s;
        bool rate = o->max_pacing_rate != tc->opts.max_pacing_rate ||
                    o->pace_burst != tc->opts.pace_burst,
             cc = o->cc != tc->opts.cc;
        bool mss = o->maxseg != tc->opts.maxseg || o->ip_opts.len != tc->opts.ip_opts.len;

        uint32_t window = tc->rcv_limit;

        write_words(&tc->opts, o, sizeof *o);
        tc->nodelay = o->nodelay;
        tc->cork = o->cork;
        if (tc->cc != TCP_CC_PLAN)
                tc->cc = o->cc;
        conn_heed_ttl(tc);
        set_send_window(tc);
        rtt_bounds(tc);
        set_buffers(t, tc, o);
        if (tc->rcv_limit > window)
                output_window_update(t, tc, now);
        if (push) {
                conn_unflag(tc, TCF_MORE);
                tc->owed |= tc->snd_next != 0 ? OWE_PUSH : 0;
        }
        if (mss) {
                conn_size_mss(tc);
                tc->cwnd = MAX(tc->cwnd, tc->snd_mss);
                sndbuf_resegment(t, tc);
        }
        if (keep)
                timer_keepalive(tc, now);
        if (rate)
                pace_set(tc, tc->flags & TCF_RATES ? tc->pace.rate : 0, 1);
        if (cc && tc->cc != TCP_CC_PLAN && tc->state >= TCPS_ESTABLISHED)
                cc_begin(tc, now);
        if (o->ack_every == 0)
                conn_unflag(tc, TCF_TRAIN);
        if (o->quickack && tc->delack_at != NSTIME_NEVER)
                tc->owed |= OWE_ACK;
        touch(t, tc);
}
