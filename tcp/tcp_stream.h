/*
 * The application's bytes: what it writes and reads. The connection is ESTABLISHED, or a call
 * returns its error as -errno.
 */
#ifndef TCP_TCP_STREAM_H
#define TCP_TCP_STREAM_H

#include "base/sockbuf.h"
#include "tcp/tcp.h"

/* ---- sending ---- */

/*
 * Sending is reserve, copy without the lock, commit. The first offers up to `want` bytes of frames
 * in up to n spans, and returns the bytes offered. 0: buffer full (TCP_EV_WRITABLE will come);
 * -EPIPE, -ECONNRESET, -ENOTCONN, ... One reservation a connection at a time; -EBUSY while another
 * holds it. commit takes the first `bytes` of what was offered (0: cancel). `more`: more follows
 * soon (MSG_MORE). `urgent`: the last byte is urgent data (MSG_OOB).
 */
int tcp_send_reserve(struct tcp *t, struct tcp_conn *tc, size_t want, struct span *span, int n);
/* Reserved bytes are written where they lie, and not copied there: their frames are used again
 * first (frame_near). */
void tcp_send_in_place(struct tcp *t, const struct tcp_conn *tc);
/* Reserves up to `want` bytes that lie in a program's memory, from `off` on by a name that the
 * caller holds; commit is as above. */
int tcp_send_reserve_named(struct tcp *t, struct tcp_conn *tc, uint32_t name, uint32_t off,
                           size_t want);
void tcp_send_commit(struct tcp *t, struct tcp_conn *tc, size_t bytes, bool more, bool urgent,
                     nstime now);
/* What is written next begins a segment (MSG_EOR). */
void tcp_send_end_record(struct tcp *t, struct tcp_conn *tc);
/* The fast way for small writes: the last unsent segment grows by n bytes from `p`, and nothing
 * becomes due by it, so that there is nothing to flush. False: take the way above. */
bool tcp_send_append(struct tcp *t, struct tcp_conn *tc, const uint8_t *p, uint32_t n);
/* Bytes that a reserve could offer now. */
uint32_t tcp_send_room(const struct tcp *t, const struct tcp_conn *tc);

/* ---- receiving ---- */

/*
 * Receiving is peek, copy without the lock, consume. The first offers bytes from `skip` on, in
 * order, and returns the bytes offered. 0: end of stream; -EAGAIN: there is nothing yet; -errno:
 * after a reset. Spans stay valid until consumed.
 */
int tcp_recv_peek(struct tcp *t, struct tcp_conn *tc, size_t skip, size_t want, struct span *span,
                  int n);
/* When the byte `offset` bytes after the first unread one came, or what came last together with it;
 * to 1,024 ns, and after 73 minutes too late. */
nstime tcp_recv_stamp(const struct tcp *t, const struct tcp_conn *tc, uint32_t offset, nstime now);
void tcp_recv_consume(struct tcp *t, struct tcp_conn *tc, size_t bytes, nstime now);
/* The n bytes consumed last are unread again, from a copy at `p`; `seq`: what copied_seq() was when
 * they had been. False: more has been consumed since, or there is no memory. */
bool tcp_recv_give_back(struct tcp *t, struct tcp_conn *tc, const uint8_t *p, uint32_t n,
                        uint32_t seq);
/* The fast way for small reads: the next n bytes, when the first queued segment has more than that.
 * Nothing is due after it. False: take the way above. */
bool tcp_recv_take(struct tcp *t, struct tcp_conn *tc, uint8_t *p, uint32_t n);
/* The rest of the first queued segment, at most a quarter of the buffer: it stays at *p, and valid,
 * until consumed. 0: nothing there, or something unusual. */
uint32_t tcp_recv_ahead(struct tcp *t, const struct tcp_conn *tc, const uint8_t **p);
uint32_t tcp_recv_avail(const struct tcp_conn *tc); /* in-order bytes queued */
/* ... before the urgent byte, if there is one (SIOCINQ). */
uint32_t tcp_recv_inq(const struct tcp_conn *tc);
/* Returns true if that is so much (SO_RCVLOWAT), or so much that no more can come before some is
 * read. */
bool tcp_recv_enough(const struct tcp_conn *tc, uint32_t lowat);
/* A buffer that sizes itself has room for that much. */
void tcp_recv_room(struct tcp_conn *tc, uint32_t lowat);
bool tcp_recv_eof(const struct tcp_conn *tc); /* FIN received and everything before it consumed */
/* RFC 9293 §3.8.5, as sockets know it: the urgent byte out of line; -EINVAL none, -EAGAIN announced
 * but not here. */
int tcp_recv_urgent(struct tcp *t, struct tcp_conn *tc, bool peek);
/* Returns true if the urgent byte is the next one after `skip` unread ones: a read that has taken
 * some stops there. */
bool tcp_at_mark(const struct tcp_conn *tc, size_t skip);

/* ---- readiness ---- */

/* Returns true if a read would not wait: the part of tcp_poll_events() that select(2) asks for
 * most. */
bool tcp_readable(const struct tcp *t, const struct tcp_conn *tc);
/* poll(2)'s view of a connection: POLLIN, POLLOUT, POLLRDHUP, POLLHUP, POLLERR, POLLPRI, as Linux's
 * tcp_poll gives them. */
short tcp_poll_events(const struct tcp *t, const struct tcp_conn *tc);

#endif
