/*
 * The sender's side, for the files of tcp/ only: acknowledgements that come, the send buffer, the
 * path's size, round trips (RFC 6298), timers, pacing, output.
 */
#ifndef TCP_SEND_H
#define TCP_SEND_H

#include "tcp/tcp_conn.h"

/* tcp_ack.c */
bool ack_input(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now);
void ack_fast(struct tcp *t, struct tcp_conn *tc, uint32_t ack, nstime now);

/* tcp_path.c */
void path_init(struct tcp *t, struct tcp_conn *tc, nstime now);
/* Its timer on slow_at, which others have set. */
void path_arm(struct tcp_conn *tc);
void path_expire(struct tcp *t, struct tcp_conn *tc, nstime now);
/* An ICMP error about the segment at `seq`, which is in flight, claims this MTU. */
void path_claim(struct tcp *t, struct tcp_conn *tc, uint32_t seq, uint32_t mtu, nstime now);
/* A retransmission timeout, counted in tc->dups; before anything is done about it. */
void path_timeout(struct tcp *t, struct tcp_conn *tc, nstime now);
/* While a probe is out (tc->path.probe): something was acknowledged; something was marked lost. */
void path_ack(struct tcp *t, struct tcp_conn *tc, nstime now);
void path_probe_lost(struct tcp *t, struct tcp_conn *tc, nstime now);
/* Sends again what was sent in segments of more than `longer` bytes, and what the peer is not known
 * to have. */
void path_send_again(struct tcp *t, struct tcp_conn *tc, uint32_t longer, nstime now);
/* Forgets the probe, whose fate will not be known: it was cut, or a process died. */
void path_forget_probe(struct tcp_conn *tc, nstime now);
/* An unsent segment is larger than SND.MSS: whether it is to leave so. */
bool path_is_probe(const struct tcp_conn *tc, const struct tcp_txseg *s);

/* tcp_sndbuf.c */
void sndbuf_purge(struct tcp *t, struct tcp_conn *tc);
/* Cuts s so that `at` bytes stay in it; the rest becomes the segment after it. False: no
 * record free. */
bool txseg_split(struct tcp *t, struct tcp_conn *tc, struct tcp_txseg *s, uint32_t at);
/* The reverse, when what follows lies right behind and both together are no longer than `most`.
 * False: not so. */
bool txseg_merge(struct tcp *t, struct tcp_conn *tc, struct tcp_txseg *s, uint32_t most);
/* Takes the head off the queue and frees it. */
void txseg_free_head(struct tcp *t, struct tcp_conn *tc);
void txseg_trim(struct tcp *t, struct tcp_conn *tc, struct tcp_txseg *s, uint32_t bytes);
bool sndbuf_writable(const struct tcp *t, const struct tcp_conn *tc);
/* Most of what fills the send buffer is acknowledged, in frames that the peer gives back when its
 * program has read them. */
bool sndbuf_is_lent(const struct tcp_conn *tc);
void sndbuf_freed(struct tcp *t, struct tcp_conn *tc);
void sndbuf_queue_fin(struct tcp *t, struct tcp_conn *tc);
/* Connections that wait for frames of the region look again; of ANY_REGION, when records came back,
 * which all share. */
#define ANY_REGION UINT32_MAX
void sndbuf_wake(struct tcp *t, uint32_t region);
void sndbuf_unwait(struct tcp *t, struct tcp_conn *tc);
void sndbuf_resegment(struct tcp *t, struct tcp_conn *tc);
void sndbuf_drop_fill(struct tcp *t, struct tcp_conn *tc);
void sndbuf_idle(struct tcp *t, struct tcp_conn *tc);
void sndbuf_unsend_probe(struct tcp *t, struct tcp_conn *tc);

/* tcp_rtt.c */
void rtt_init(struct tcp_conn *tc);
void rtt_sample(struct tcp_conn *tc, nstime rtt);
nstime rtt_rto(const struct tcp_conn *tc); /* with back-off */
void rtt_bounds(struct tcp_conn *tc);      /* opts.rto_* have changed */

/* tcp_timer.c */
void timer_arm_rtx(struct tcp_conn *tc, nstime now);
/* More was sent: the retransmission timer runs on (RFC 6298 §5.1), the tail loss probe waits for
 * the new tail (RFC 8985 §7.2). */
void timer_arm_probe(struct tcp_conn *tc, nstime now);
void timer_persist(struct tcp_conn *tc, nstime now);
void timer_keepalive(struct tcp_conn *tc, nstime now);

/* tcp_pace.c */
/* Paces from now on, at `rate` bytes a second (0: as fast as it goes) and in quanta of `least`
 * bytes at least; or at SO_MAX_PACING_RATE, if that is less. */
void pace_set(struct tcp_conn *tc, uint64_t rate, uint32_t least);
/* The rest where there is a rate: whether nothing may leave yet (a timer is set then); that timer
 * has come, late perhaps; `len` bytes leave. */
bool pace_waits(struct tcp *t, struct tcp_conn *tc, nstime now);
void pace_comes(struct tcp_conn *tc, nstime now);
void pace_sent(struct tcp *t, struct tcp_conn *tc, uint32_t len);
#define PACE_UNBOUND UINT64_MAX /* there is a rate, but only its group's */

/* tcp_group.c */
/* When it may send by its group's rate: now, or later, and it stands in line then. `len`
 * bytes leave. */
nstime group_turn(struct tcp *t, struct tcp_conn *tc, nstime now);
void group_sent(struct tcp *t, struct tcp_conn *tc, uint32_t len);
/* With tc->send_share: accounts for what is written and reserved, and returns how many of `want`
 * bytes more may be written. */
uint32_t group_writes(struct tcp *t, struct tcp_conn *tc, uint32_t want);

/* tcp_output.c */
void output_window_update(struct tcp *t, struct tcp_conn *tc, nstime now);
/* An ACK of what has come, which leaves before anything else of the connection: of the peer's FIN,
 * before the record goes; of what came before a mark. */
void output_ack_now(struct tcp *t, struct tcp_conn *tc, nstime now);
/* Does what output of its SYN-ACK does, which the peer has had since `at`. */
void output_answered(struct tcp *t, struct tcp_conn *tc, nstime at, nstime now);
/* A RST for a segment that belongs nowhere (RFC 9293 §3.10.7.1), by t->reply. */
void output_refuse(struct tcp *t, const struct tcp_tuple *tuple, const struct tcp_seg *seg);
/* RFC 5961 §7: an ACK that may answer an ACK, or a guess, would be one too many; else it is counted
 * as sent. Each connection counts its own: what all share tells an attacker on one of them what he
 * hit elsewhere (CVE-2016-5696). */
bool output_answers_too_often(struct tcp_conn *tc, nstime now);
void output_challenge(struct tcp *t, struct tcp_conn *tc, nstime now);

/* Returns true if tcp_output() may have something to do: asked before room is. */
static inline bool tcp_output_due(const struct tcp_conn *tc)
{
        return tc->snd_next != 0 || tc->owed != 0 || unlikely(tc->state < TCPS_ESTABLISHED) ||
               unlikely(tc->lost > tc->retx) || unlikely(tc->flags & TCF_FIN_QUEUED);
}

#endif
