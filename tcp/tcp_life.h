/*
 * The life of a connection, for the files of tcp/ only: record and lookup, listeners, SYN cookies
 * (RFC 4987), sequence numbers (RFC 6528), opening, Fast Open (RFC 7413), closing, mending after a
 * death. A part for each file, in its name.
 */
#ifndef TCP_LIFE_H
#define TCP_LIFE_H

#include "tcp/tcp_conn.h"

/* tcp_conn.c */
struct tcp_conn *conn_new(struct tcp *t, const struct tcp_tuple *tuple, const struct tcp_link *link,
                          const struct tcp_opts *opts, nstime now);
void tcp_set_state(struct tcp *t, struct tcp_conn *tc, enum tcp_state to);
/* The connection ends now, with an error for the application (0: none). Queues for sending go;
 * unread data stays. */
void conn_done(struct tcp *t, struct tcp_conn *tc, int err);
/* Frees the record when nobody needs it any more. True when it is gone. */
bool conn_reap(struct tcp *t, struct tcp_conn *tc);
void conn_raise(struct tcp *t, struct tcp_conn *tc, uint32_t events);
/* Ends one in TIME-WAIT for the sake of another: named as the one being changed
 * meanwhile (t->busy). */
void conn_end_time_wait(struct tcp *t, struct tcp_conn *tc, enum count why);
void conn_enter_time_wait(struct tcp *t, struct tcp_conn *tc, nstime now);
/* Resets the peer: RST is owed and the connection is CLOSED. */
void conn_reset(struct tcp *t, struct tcp_conn *tc, int err);
void conn_set_limit(struct tcp_conn *tc, enum tcp_limit limit, nstime now);
void conn_size_mss(struct tcp_conn *tc);

void line_append(struct tcp *t, struct tcp_line *l, struct tcp_conn *tc);

/* tcp_orphan.c */
/* Returns true if it stands in the line of orphans. */
static inline bool conn_is_orphan(const struct tcp_conn *tc)
{
        return tc->flags & TCF_CLOSED_BY_APP && tc->state != TCPS_CLOSED &&
               tc->state != TCPS_TIME_WAIT;
}
/* The application has closed it. */
void orphan_begin(struct tcp *t, struct tcp_conn *tc);
/* Ends one for the sake of another, as conn_end_time_wait(). `tell`: a peer that may wait for data
 * is told, which takes the record until then. */
void orphan_end(struct tcp *t, struct tcp_conn *tc, bool tell);

/* tcp_watch.c */
/* The limit of a watched connection changes. */
void watch_limit(struct tcp_conn *tc, enum tcp_limit limit);
/* Of any connection: a report for a plan is due, or no plan holds any more. */
void watch_report(struct tcp_conn *tc);
/* Bytes that a new connection may have unread, when it is not by credit. */
uint32_t conn_rcv_limit(const struct tcp_opts *o, const struct tcp_link *link);

/* tcp_saved_syn.c */
void saved_syn_keep(struct tcp *t, struct tcp_conn *tc);
void saved_syn_drop(struct tcp *t, struct tcp_conn *tc);

/* tcp_stamp.c */
void stamp_drop(struct tcp *t, struct tcp_conn *tc);
void stamp_recover(struct tcp *t, struct tcp_conn *tc);

/* tcp_demux.c */
#define CONN_BUCKETS_FIRST 1024u /* a page */
struct tcp_conn *demux_find(const struct tcp *t, const struct tcp_tuple *tuple);
void demux_add(struct tcp *t, struct tcp_conn *tc);
void demux_remove(struct tcp *t, struct tcp_conn *tc);
/* Whose a new connection is, or NULL. */
struct tcp_listener *demux_listener(const struct tcp *t, const struct tcp_tuple *tuple);
/* The listeners at a port, at any address, one after the other; NULL: there are no more. */
struct tcp_listener *demux_listener_at(const struct tcp *t, uint16_t port);
struct tcp_listener *demux_listener_next(const struct tcp *t, const struct tcp_listener *l);
void demux_add_listener(struct tcp *t, struct tcp_listener *l);
void demux_remove_listener(struct tcp *t, struct tcp_listener *l);
void demux_clear(struct tcp *t);

/* tcp_iss.c */
uint32_t iss_new(const struct tcp *t, const struct tcp_tuple *tuple, nstime now);
uint32_t ts_offset_new(const struct tcp *t, const struct tcp_tuple *tuple);
/* A keyed function of the two ends, another one for each purpose. */
uint32_t iss_function(const struct tcp *t, const struct tcp_tuple *tuple, uint64_t purpose);

/* tcp_cookie.c */
/* Answers a SYN that there is no record for. */
void cookie_answer(struct tcp *t, struct tcp_listener *l, const struct tcp_tuple *tuple,
                   const struct tcp_link *link, const struct tcp_seg *syn, nstime now);
/* From now on one may come back. */
void cookie_expect(struct tcp *t, struct tcp_listener *l, nstime now);
/* The scale that such an answer says: SO_RCVBUF may have changed when it is acknowledged. */
uint8_t cookie_wscale(void);
/* Returns true if a segment acknowledges a cookie; *syn is then what is known of its SYN. */
bool cookie_good(const struct tcp *t, const struct tcp_listener *l, const struct tcp_tuple *tuple,
                 const struct tcp_seg *seg, struct tcp_seg *syn, nstime now);
/* Returns true if the segment, for which there is no connection, may be later data of one whose
 * cookie it answers. Its numbers differ from the cookie's by less than the window that went with
 * it. Of other segments 2 of 256 pass. */
bool cookie_early(const struct tcp *t, const struct tcp_listener *l, const struct tcp_tuple *tuple,
                  const struct tcp_seg *seg, nstime now);

/* tcp_input.c: what came with a SYN, of a connection that is open. True: as of tcp_input(). */
bool input_syn_text(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *syn, nstime now);

/* tcp_listen.c */
/* True: as of tcp_input(). */
bool listen_input(struct tcp *t, struct tcp_listener *l, const struct tcp_tuple *tuple,
                  const struct tcp_link *link, const struct tcp_seg *seg, uint32_t min_iss,
                  nstime now);
/* The SYN of a promise (tcp_answers.h). */
static inline bool listen_is_promised(const struct tcp *t, const struct tcp_link *link,
                                      const struct tcp_seg *seg)
{
        return (seg->flags & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_SYN && seg->ack != 0 &&
               link->lossless && t->answers != NULL;
}
/* It cannot be kept: its sender, for whom the connection is established, is reset. */
void listen_break_promise(struct tcp *t, const struct tcp_tuple *tuple, const struct tcp_seg *syn);
/* A connection in SYN-RECEIVED became ESTABLISHED: false when there is no room for it (stay, the
 * peer will retry). */
bool listen_room(const struct tcp *t, const struct tcp_conn *tc);
void listen_established(struct tcp *t, struct tcp_conn *tc);
/* Its SYN-ACK was not answered in time. */
void listen_unanswered(struct tcp *t, const struct tcp_conn *tc, nstime now);
void listen_forget(struct tcp *t, struct tcp_conn *tc);
void listen_requeue(struct tcp *t, struct tcp_conn *tc);

/* tcp_open.c */
/* Returns true if an address can be an end of a connection: not multicast, not broadcast, not
 * unspecified. */
bool open_address_ok(ip_addr a);
void open_syn_options(struct tcp_conn *tc, const struct tcp_seg *seg, nstime now);
uint8_t open_wscale(const struct tcp_opts *o);
/* What the SYN of its peer says of it. */
void open_learn_peer(struct tcp_conn *tc, const struct tcp_seg *seg, nstime now);
void open_established(struct tcp *t, struct tcp_conn *tc, nstime now);

/* tcp_fastopen.c */
static inline bool fastopen_serves(const struct tcp_listener *l)
{
        return l->opts.fastopen_most != 0 && l->opts.fastopen & TCP_FASTOPEN_SERVE;
}
/* A connection in SYN-RECEIVED: whether its SYN opens it; and what its SYN-ACK is to bring. Then it
 * is open so. */
bool fastopen_accepts(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *syn, nstime now);
void fastopen_opened(struct tcp *t, struct tcp_conn *tc);
/* With FO_OPEN. A segment of the peer's acknowledges the SYN-ACK: false, it is none of this
 * connection's. It was reset. It is over. The listener is. */
bool fastopen_confirmed(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now);
void fastopen_reset(struct tcp *t, const struct tcp_conn *tc, nstime now);
void fastopen_over(struct tcp *t, struct tcp_conn *tc);
void fastopen_unlisten(struct tcp *t, struct tcp_listener *l);
/* With TCP_FASTOPEN_USE: returns true if the SYN is not to leave yet. */
bool fastopen_begin(struct tcp *t, struct tcp_conn *tc, nstime now);
/* With FO_WAITS: bytes that the SYN takes along. */
uint32_t fastopen_room(const struct tcp_conn *tc);
/* Our SYN or SYN-ACK leaves: what else it says, and takes along. */
void fastopen_syn(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, nstime now);
/* The SYN-ACK came: what is learnt of the peer. The SYN is acknowledged, up to `ack`. */
void fastopen_answered(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now);
void fastopen_syn_acked(struct tcp *t, struct tcp_conn *tc, uint32_t ack, nstime now);

/* tcp_close.c */
/* FIN after what is queued; from ESTABLISHED or CLOSE-WAIT. */
void close_send(struct tcp *t, struct tcp_conn *tc);
/* SND.UNA has moved: if our FIN is acknowledged now, what follows from it. False: the connection
 * takes no more segments. */
bool close_fin_acked(struct tcp *t, struct tcp_conn *tc, nstime now);
/* The peer's FIN came, in order. */
void close_fin_received(struct tcp *t, struct tcp_conn *tc, nstime now);

/* tcp_mend.c */
/* The connection that a process was changing when it died, in two steps: queues, numbers and state
 * before everything derived is made anew, the rest after it. False: it cannot be mended. */
bool mend_queues(struct tcp *t, struct tcp_conn *tc);
void mend_finish(struct tcp *t, struct tcp_conn *tc, nstime now);

#endif
