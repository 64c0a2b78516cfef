/* Proportional Rate Reduction (RFC 6937): cwnd falls to ssthresh over the round trip of recovery, not at
 * once. */
#include "tcp/tcp_conn.h"

void prr_init(struct tcp_conn *tc)
{
        tc->prr_delivered = tc->prr_out = 0;
        tc->prr_fs = flight(tc);
}

/* On each ACK in recovery: `delivered` bytes are newly acknowledged or SACKed. Slow
 * start bound (PRR-SSRB). */
void prr_ack(struct tcp_conn *tc, uint32_t delivered)
{
        uint32_t pipe = pipe_bytes(tc), sndcnt;

        tc->prr_delivered += delivered;
        if (pipe > tc->ssthresh) {
                uint64_t due =
                        ((uint64_t)tc->prr_delivered * tc->ssthresh + tc->prr_fs - 1) / MAX(tc->prr_fs, 1u);
                sndcnt = due > tc->prr_out ? (uint32_t)due - tc->prr_out : 0;
        } else {
                uint32_t owed = tc->prr_delivered > tc->prr_out ? tc->prr_delivered - tc->prr_out : 0;
                uint32_t limit = MAX(owed, delivered) + tc->snd_mss;
                sndcnt = MIN(tc->ssthresh - pipe, limit);
        }
        tc->cwnd = MAX(pipe + sndcnt, tc->snd_mss);
}
