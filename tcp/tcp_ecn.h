/* Explicit congestion notification (RFC 3168), for the files of tcp/ only. */
#ifndef TCP_ECN_H
#define TCP_ECN_H

#include "tcp/tcp_conn.h"

/* Returns true if the sender of the SYN can do ECN, and the options want it. */
bool ecn_agrees(const struct tcp_opts *o, const struct tcp_link *link, const struct tcp_seg *syn);
/* The peer's SYN or SYN-ACK; its SYN once more. */
void ecn_syn(struct tcp_conn *tc, const struct tcp_seg *seg);
void ecn_syn_again(struct tcp_conn *tc, const struct tcp_seg *seg);
/* The ECN flags of our SYN. The SYN was refused: returns true if it is to be sent again without
 * them. */
uint8_t ecn_syn_flags(struct tcp_conn *tc);
bool ecn_syn_refused(struct tcp_conn *tc);
/* A segment with new data leaves. */
void ecn_mark(struct tcp_conn *tc, struct tcp_seg *seg);
/* An acceptable segment of a connection with TCF_ECN. */
void ecn_input(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now);
/* ... acknowledges, and says ECE or not. True: the window is not to grow by it. */
bool ecn_ack(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t acked,
             nstime now);
/* Returns true if what carries no new data leaves as ECT, too. */
bool ecn_on_all(const struct tcp_conn *tc);
/* The window was reduced for another reason; and that was a mistake. */
void ecn_reduced(struct tcp_conn *tc);
void ecn_restored(struct tcp_conn *tc);

#endif
