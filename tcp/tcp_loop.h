/*
 * What the loop of a stack (netstack/) calls.
 *
 *      for each segment that arrives:       tcp_rx()
 *      for each connection touched:         while (room in the NI queue && tcp_output(...)) emit it
 *      then:                                reschedule it for tcp_deadline(), look at tc->events
 *      when the deadline has come:          tcp_expire(), then tcp_output() as above
 */
#ifndef TCP_TCP_LOOP_H
#define TCP_TCP_LOOP_H

#include "tcp/tcp.h"
#include "tcp/tcp_hdr.h"

/* ---- the shared block ---- */

size_t tcp_shared_bytes(const struct tcp_limits *l);
/* Makes the block in zeroed memory. `secret` seeds ISS (RFC 6528) and hashes; now starts the
 * ISS clock. */
void tcp_shared_init(struct tcp_shared *sh, const struct tcp_limits *l, const uint8_t secret[16]);
/* Returns true if the block is laid out as these limits have it. */
bool tcp_shared_is(const struct tcp_shared *sh, const struct tcp_limits *l);

/* ---- input, output, time ---- */

/* A segment arrived on a channel. Checksum and addresses are verified, or it is `unsummed`. Then
 * what is next in its stream is summed while it is copied, and what is wrong is dropped here.
 * Demultiplexes, answers for closed ports, else tcp_input(). True when seg->data was taken (a lent
 * frame now belongs to a queue), false: the caller releases it. */
bool tcp_rx(struct tcp *t, const struct tcp_tuple *tuple, const struct tcp_link *link,
            const struct tcp_seg *seg, nstime now);
/* Call after a turn that emptied the ring of a lossy channel. If no turn empties it for a whole
 * round trip, the reader is the bottleneck: the window does not grow (rcvbuf_autosize()). */
void tcp_caught_up(struct tcp *t, nstime now);
/* RFC 9293 §3.10.7, in its order; for a connection found, and a segment that is not `unsummed`. As
 * tcp_rx for the return value. */
bool tcp_input(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now);
/* The next segment, if one is due. Its payload is in a frame of link.tx_region; the stack lends it
 * when it posts it. */
bool tcp_output(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, nstime now);
/* After tcp_output() has given a segment of new data, with nothing in between: the next one, if it
 * is due too. It differs in nothing but its place, right behind the first, and PSH (`flags`: 0 or
 * TCP_PSH). As tcp_output() then gives it, for much less; false: ask that. Only full segments, and
 * never the last of what is queued. */
bool tcp_output_next(struct tcp *t, struct tcp_conn *tc, struct buf *data, uint8_t *flags,
                     nstime now);
/* An acknowledgement that was being delayed is due now; called at the end of a turn, before the
 * stack waits. One that covers a train (tcp_delack.c) waits for its time all the same;
 * tcp_ack_waits(): there is one of the other kind. */
void tcp_flush_ack(struct tcp *t, struct tcp_conn *tc);
bool tcp_ack_waits(const struct tcp_conn *tc);
/* Call tcp_expire() no later than this. */
nstime tcp_deadline(const struct tcp_conn *tc);
void tcp_expire(struct tcp *t, struct tcp_conn *tc, nstime now);
/* ICMP error about a segment of ours (RFC 5927 checks are made here). err is an errno; unreachable:
 * the peer or its port is. mtu: what a "fragmentation needed" claims (pmtu_claim()), 0: another
 * error, or no claim. Paths: tcp_path.c. */
void tcp_icmp(struct tcp *t, const struct tcp_tuple *tuple, uint32_t seq, int err, bool unreachable,
              uint32_t mtu, nstime now);
/* The link carries segments of `mss` bytes from now on (IP packets less 40 bytes): what is
 * longer is cut and sent again, and new data may be longer at once. Not for a channel that is a
 * ring in memory. */
void tcp_set_link_mss(struct tcp *t, struct tcp_conn *tc, uint32_t mss, nstime now);
/* The channel is to go, and takes a last turn of output: its connections are reset, and their
 * peers told. */
void tcp_chan_leave(struct tcp *t, uint16_t chan, int err);
/* The channel died: its connections are reset, without a segment. */
void tcp_chan_down(struct tcp *t, uint16_t chan, int err, nstime now);
/* The interface takes no more for now. */
void tcp_queue_full(struct tcp_conn *tc, nstime now);

/* ---- memory ---- */

/* For frames.uncharge: a frame that a connection was charged for is free again. `owner` is what TCP
 * gave to frame_alloc(): connection and generation, so that a late one cannot hit a later
 * connection of the same index. */
void tcp_uncharge(struct tcp *t, uint32_t owner, uint32_t bytes);
/* Frames of a transmit region came back: connections that found it empty become writable. Call
 * after reaping. */
void tcp_frames_back(struct tcp *t, uint32_t region);

/* ---- consistency ---- */

/* Asserts every invariant of a connection that can be spelled; tests call it after each step. */
void tcp_conn_check(const struct tcp *t, const struct tcp_conn *tc);
/*
 * After a process died inside: rebuilds demultiplexing and free lists from the connections and
 * listeners. Adds the references of their queues to frame records; the caller has zeroed refs and
 * will call frame_pool_rebuild(). Resets connection `broken` (0: none) without looking at its
 * queues. Touches every connection.
 */
void tcp_recover(struct tcp *t, uint32_t broken, nstime now);

#endif
