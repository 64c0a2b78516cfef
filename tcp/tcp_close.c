/* Ends of a connection as the application asks for them, or as the network tells of them (RFC 9293
 * §3.6, §3.10.4-5). */
#include <errno.h>

#include "tcp/tcp_conn.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_loss.h"
#include "tcp/tcp_recv.h"
#include "tcp/tcp_send.h"
#include "tcp/tcp_stream.h"

void close_send(struct tcp *t, struct tcp_conn *tc)
{
        assert(tc->state == TCPS_ESTABLISHED || tc->state == TCPS_CLOSE_WAIT);
        assert(tc->shut & SHUT_SND);
        tcp_set_state(t, tc, tc->state == TCPS_ESTABLISHED ? TCPS_FIN_WAIT_1 : TCPS_LAST_ACK);
        conn_unflag(tc, TCF_MORE);
        sndbuf_queue_fin(t, tc);
}

bool close_fin_acked(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        if (!(tc->flags & TCF_FIN_QUEUED) || tc->snd_una != tc->snd_end + 1)
                return true;
        switch (tc->state) {
        case TCPS_FIN_WAIT_1:
                tcp_set_state(t, tc, TCPS_FIN_WAIT_2);
                if (tc->flags & TCF_CLOSED_BY_APP)
                        tc->slow_at = now + tc->opts.fin_wait2_s * NS_PER_S;
                return true;
        case TCPS_CLOSING:
                conn_enter_time_wait(t, tc, now);
                return false;
        case TCPS_LAST_ACK:
                conn_done(t, tc, 0);
                return false;
        default:
                return true;
        }
}

void close_fin_received(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        switch (tc->state) {
        case TCPS_ESTABLISHED:
                tcp_set_state(t, tc, TCPS_CLOSE_WAIT);
                break;
        case TCPS_FIN_WAIT_1:
                tcp_set_state(t, tc, TCPS_CLOSING);
                break;
        case TCPS_FIN_WAIT_2:
                conn_enter_time_wait(t, tc, now);
                break;
        }
}

void tcp_shutdown_send(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        if (tc->shut & SHUT_SND)
                return;
        if (tc->state == TCPS_SYN_SENT) { /* §3.10.4: nothing to finish */
                conn_done(t, tc, 0);
                return;
        }
        conn_shut(tc, SHUT_SND);
        if (tc->state == TCPS_ESTABLISHED || tc->state == TCPS_CLOSE_WAIT)
                close_send(t, tc);
        conn_raise(t, tc,
                   tc->shut == SHUT_BOTH ? TCP_EV_WRITABLE | TCP_EV_CLOSED : TCP_EV_WRITABLE);
}

/* After our FIN, which did not tell of it: SEG_CLOSED. */
static void read_no_more(struct tcp_conn *tc)
{
        if (tc->link.lossless && !(tc->shut & SHUT_RCV) &&
            (tc->state == TCPS_FIN_WAIT_1 || tc->state == TCPS_FIN_WAIT_2))
                tc->owed |= OWE_ACK;
        conn_shut(tc, SHUT_RCV);
        tc->slow |= SLOW_SHUT;
}

void tcp_shutdown_recv(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        read_no_more(tc);
        conn_raise(t, tc, TCP_EV_READABLE);
}

void tcp_refuse_sent(struct tcp *t, struct tcp_conn *tc)
{
        if (unlikely(tc->slow & SLOW_REFUSED) && tc->state == TCPS_CLOSE_WAIT && flight(tc) != 0)
                conn_done(t, tc, EPIPE);
}

void tcp_abort(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        conn_reset(t, tc, ECONNABORTED);
}

/* Data that nobody will read: the peer must learn that it is lost (RFC 2525 §2.17, RFC
 * 9293 SHLD-3). */
static bool loses_data(const struct tcp_conn *tc)
{
        return tcp_recv_avail(tc) != 0 || tc->ooo_head != 0;
}

void tcp_close(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        bool reset = loses_data(tc) || tc->opts.linger_s == 0;

        assert(tc->live);
        tc->sock = 0;
        orphan_begin(t, tc);
        stamp_drop(t, tc);
        read_no_more(tc);
        switch (tc->state) {
        case TCPS_CLOSED:
                conn_reap(t, tc);
                return;
        case TCPS_SYN_SENT:
                conn_done(t, tc, 0);
                return;
        case TCPS_TIME_WAIT:
                rcvbuf_purge(t, tc);
                group_over(t, tc);
                return;
        }
        if (reset) {
                conn_reset(t, tc, 0);
                return;
        }
        rcvbuf_purge(t, tc);
        tcp_shutdown_send(t, tc, now);
        if (tc->state == TCPS_FIN_WAIT_2)
                tc->slow_at = now + tc->opts.fin_wait2_s * NS_PER_S;
        touch(t, tc);
}

/* Returns true if the segment quoted is the SYN-ACK of a connection that its SYN has opened, and
 * that nobody has accepted yet; as Linux. */
static bool quotes_syn_ack(const struct tcp_conn *tc, uint32_t seq)
{
        return conn_unconfirmed(tc) && seq == tc->iss && tc->acc_state == ACC_QUEUED;
}

/* RFC 5927 §4.1: an ICMP error counts only when it quotes a byte that is in flight. What cannot be
 * reached ends an opening, and is advice after that. RFC 9293 §3.9.2.2 calls hosts and networks
 * that cannot be reached a soft error at all times. Linux and others do not while a connection
 * opens, and RFC 5461 says why: a program that has another address would wait for minutes before it
 * tries that. Time exceeded and a parameter problem are none (MUST-56). */
void tcp_icmp(struct tcp *t, const struct tcp_tuple *tuple, uint32_t seq, int err, bool unreachable,
              uint32_t mtu, nstime now)
{
        struct tcp_conn *tc = demux_find(t, tuple);

        if (tc == NULL || (!quotes_syn_ack(tc, seq) &&
                           (seq_lt(seq, tc->snd_una) || seq_geq(seq, tc->snd_nxt + !flight(tc)))))
                return;
        if (mtu != 0) {
                path_claim(t, tc, seq, mtu, now);
        } else if (err == EMSGSIZE || err == 0) {
                return; /* too long, and nothing said that helps; or source quench (RFC 6633) */
        } else if (unreachable && err != EPROTO &&
                   (tc->state <= TCPS_SYN_RECEIVED || quotes_syn_ack(tc, seq))) {
                conn_done(t, tc, err);
                return;
        } else {
                tc->err_soft = (int16_t)err; /* until the peer answers */
                recovery_set_slow(tc);
        }
        touch(t, tc);
}

void tcp_chan_leave(struct tcp *t, uint16_t chan, int err)
{
        assert(err > 0);
        for_each_conn (t, tc)
                if (tc->tuple.chan == chan && tc->state != TCPS_TIME_WAIT)
                        conn_reset(t, tc, err);
}

void tcp_chan_down(struct tcp *t, uint16_t chan, int err, nstime now)
{
        assert(err > 0);
        for_each_conn (t, tc) {
                if (tc->tuple.chan != chan)
                        continue;
                tc->owed = 0;
                if (tc->state != TCPS_CLOSED)
                        conn_done(t, tc, tc->state == TCPS_TIME_WAIT ? 0 : err);
                else
                        conn_reap(t, tc);
        }
}
