/* The receiver's side, for the files of tcp/ only: the receive buffer and its window, reassembly,
 * acknowledgements that are owed. */
#ifndef TCP_RECV_H
#define TCP_RECV_H

#include "tcp/tcp_conn.h"

/* tcp_rcvbuf.c */
/* Takes `len` bytes of the segment, from `skip` on, as a range that the connection owns: a copy in
 * a private frame or the lent frame itself (*took). False when there is no memory. */
bool rcvbuf_take(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t skip,
                 uint32_t len, struct buf *out, bool *took);
/* The same, always a copy. */
bool rcvbuf_copy(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t skip,
                 uint32_t len, struct buf *out);
bool rcvbuf_append(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t skip,
                   uint32_t len, bool *took);
void rcvbuf_link(struct tcp *t, struct tcp_conn *tc, uint32_t rxseg);
void rcvbuf_purge(struct tcp *t, struct tcp_conn *tc);
/* Records at the head with nothing left in them go. */
void rcvbuf_drop_empty(struct tcp *t, struct tcp_conn *tc);
void rcvbuf_free_buf(struct tcp *t, struct tcp_conn *tc, uint32_t frame);
void rcvbuf_autosize(const struct tcp *t, struct tcp_conn *tc, nstime now);
/* The largest window that can be offered: the buffer, as far as 16 bits and the scale can
 * say it. */
static inline uint32_t rcvbuf_limit(const struct tcp_conn *tc)
{
        return MIN(READ_ONCE(tc->rcv_limit), (uint32_t)UINT16_MAX << READ_ONCE(tc->rcv_wscale));
}
/* The window that can be offered now, when it is not by credit. */
static inline uint32_t rcvbuf_window(const struct tcp_conn *tc)
{
        uint32_t limit = rcvbuf_limit(tc), unread = READ_ONCE(tc->rcv_unread);

        return limit > unread ? limit - unread : 0;
}
/* The window of a SYN, before a scale holds, as far as 16 bits can say it. */
static inline uint32_t rcvbuf_first_window(const struct tcp_conn *tc)
{
        if (!tc->opts.credit)
                return rcvbuf_window(tc);
        return tc->group_share != 0 ? MIN(tc->opts.window_first, tc->group_share)
                                    : tc->opts.window_first;
}
/* The right edge, when the peer's SYN is known; rcv_limit, by these options: tcp_window.c. */
void rcvbuf_open(struct tcp_conn *tc);
uint32_t rcvbuf_limit_by(const struct tcp_conn *tc, const struct tcp_opts *o);

/* tcp_lend.c */
/* The receive buffer is of that many bytes; two units of the window at
 * least, or 0. */
void rcvbuf_size(struct tcp_conn *tc, uint32_t bytes);
/* After a death: of the connection that was being changed, what was lent leaves the queue; of all,
 * loans are found and counted (`live`: zeroed bits for them); and private frames of a connection
 * that are lent, in bytes. */
void lend_mend(struct tcp *t, struct tcp_conn *tc);
void lend_recover(struct tcp *t, uint64_t *live);
uint32_t lend_private(const struct tcp *t, const struct tcp_conn *tc);

/* tcp_group.c */
/* A member has read or returned something: its share follows. */
void group_read(struct tcp *t, struct tcp_conn *tc, nstime now);
/* By credit: returns true if so many bytes more may be promised. */
bool group_grant(struct tcp *t, struct tcp_conn *tc, uint32_t bytes);
bool group_has_place(const struct tcp *t, uint32_t group);
/* The part that a new member may offer of a window. */
uint32_t group_first(const struct tcp *t, uint32_t group, uint32_t window);
/* One more connection is being opened in the group; one less, which its peer has answered or
 * not. */
void group_opens(struct tcp *t, uint32_t group, nstime now);
void group_opens_no_more(struct tcp *t, uint32_t group, bool answered);
/* Says whether one more connection may be opened, where addresses can be forged: half of the places
 * are for that, and who waits there for long does not exist. */
enum group_opening { GROUP_OPENS, GROUP_WAITS, GROUP_FLOODED };
enum group_opening group_opening(const struct tcp *t, uint32_t group, nstime now);
/* Nothing more comes to it: the peer's FIN, or its end. */
void group_ends(struct tcp *t, struct tcp_conn *tc);
/* The connection leaves its group: it is over, or enters another. */
void group_over(struct tcp *t, struct tcp_conn *tc);
/* After a death. */
void group_recover(struct tcp *t);

/* tcp_reass.c */
bool reass_insert(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t seq,
                  uint32_t skip, uint32_t len, bool fin, bool *took);
/* Makes anew what is derived of the queue, after a death: runs, counts. */
void reass_remake(struct tcp *t, struct tcp_conn *tc);
/* Moves what has become in order to the receive queue; true when a FIN came with it. */
bool reass_drain(struct tcp *t, struct tcp_conn *tc);
void reass_purge(struct tcp *t, struct tcp_conn *tc);

/* tcp_delack.c */
/* `len` bytes of the segment came in order, and are to be acknowledged at once or later. */
void delack_owe(struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t len, nstime now);
/* ... and the end of the stream. The state is still the one in which it came. */
void delack_owe_end(struct tcp_conn *tc, nstime now);
/* ... and a wider window, for which the peer does not wait. */
void delack_owe_window(struct tcp_conn *tc, nstime now);
/* ... and for a segment beyond a gap. */
void delack_owe_gap(struct tcp_conn *tc, const struct tcp_seg *seg, nstime now);

#endif
