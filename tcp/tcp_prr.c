/*
 * Proportional Rate Reduction (RFC 9937): cwnd falls to ssthresh over the round trip of recovery,
 * not at once.
 *
 * Below ssthresh as much is sent as arrived. One segment more (the slow start bound) is sent only
 * when the ACK shows that repairs arrive: it moves SND.UNA, and tells of no new loss (RFC 9937 §6,
 * Linux). Without SACK every ACK counts so.
 */
#include "tcp/tcp_conn.h"
#include "tcp/tcp_loss.h"

/* Begins PRR. Bytes that were SACKed before are not counted as delivered in recovery; those that
 * this ACK delivers are (§6.1, RecoverFS). */
void prr_init(struct tcp_conn *tc, uint32_t delivered)
{
        assert(tc->ca_state == CA_RECOVERY && tc->sacked <= flight(tc));
        tc->prr.delivered = tc->prr.out = 0;
        tc->prr.fs = flight(tc) - tc->sacked + delivered;
}

void prr_ack(struct tcp_conn *tc, uint32_t delivered, bool safe)
{
        uint32_t pipe = pipe_bytes(tc), sndcnt;

        if (delivered == 0 && tc->sack_ok && tc->prr.out != 0)
                return; /* nothing has left the network */
        tc->prr.delivered += delivered;
        if (pipe > tc->ssthresh) {
                uint64_t due = ((uint64_t)tc->prr.delivered * tc->ssthresh + tc->prr.fs - 1) /
                               MAX(tc->prr.fs, 1u);
                sndcnt = due > tc->prr.out ? (uint32_t)due - tc->prr.out : 0;
        } else {
                uint32_t owed =
                        tc->prr.delivered > tc->prr.out ? tc->prr.delivered - tc->prr.out : 0;
                uint32_t limit = MAX(owed, delivered) + (safe || !tc->sack_ok ? tc->snd_mss : 0);
                sndcnt = MIN(tc->ssthresh - pipe, limit);
        }
        if (tc->prr.out == 0)
                sndcnt = MAX(sndcnt, tc->snd_mss); /* the fast retransmission */
        tc->cwnd = MAX(pipe + sndcnt, tc->snd_mss);
}
