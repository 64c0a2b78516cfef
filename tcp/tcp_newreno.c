/* NewReno: slow start, congestion avoidance and the halving on loss (RFC 5681 §3.1, with byte
 * counting of RFC 3465). */
#include "tcp/tcp_cc.h"

struct newreno {
        uint32_t acked; /* bytes counted towards the next increase */
};

static struct newreno *state(struct tcp_conn *tc)
{
        return (struct newreno *)tc->cc_priv;
}

static void init(struct tcp_conn *tc, nstime now)
{
        state(tc)->acked = 0;
}

static void on_ack(struct tcp_conn *tc, uint32_t acked, nstime rtt, nstime now)
{
        if (tc->cwnd < tc->ssthresh) {
                tc->cwnd += acked;
                return;
        }
        state(tc)->acked += acked;
        if (state(tc)->acked >= tc->cwnd) { /* one segment a window: RFC 5681 eq. 3 */
                state(tc)->acked -= tc->cwnd;
                tc->cwnd += tc->snd_mss;
        }
}

static uint32_t on_loss(struct tcp_conn *tc, bool timeout, nstime now)
{
        state(tc)->acked = 0;
        return MAX(flight(tc) / 2, 2 * tc->snd_mss); /* RFC 5681 eq. 4 */
}

const struct tcp_cc tcp_newreno = {
        .name = "reno", .init = init, .on_ack = on_ack, .on_loss = on_loss};
