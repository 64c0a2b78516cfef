/*
 * Receiving by loan.
 */
#ifndef TCP_TCP_LEND_H
#define TCP_TCP_LEND_H

#include "tcp/tcp.h"

/*
 * Lends what is unread, in order, where it lies: at most n pieces, which are process `proc`'s (a
 * slot + 1) until it returns them, in any order. They are read, but for the window, which
 * opens when they are returned. `ours`: in memory of the stack's own, copied there if need be.
 * Returns the number of pieces; else as tcp_recv_peek(), -ENOBUFS: no record or memory for one;
 * -EOPNOTSUPP: urgent data is ahead.
 */
struct tcp_lent {
        const uint8_t *ptr;
        uint32_t len;
        uint64_t token;
};
int tcp_recv_lend(struct tcp *t, struct tcp_conn *tc, uint32_t proc, bool ours, struct tcp_lent *v,
                  int n, nstime now);
/* -EINVAL: that process has no such loan of this connection. */
int tcp_recv_return(struct tcp *t, struct tcp_conn *tc, uint32_t proc, uint64_t token, nstime now);
/* Ends all loans of a process, of one connection or (NULL) of any. */
void tcp_loans_end(struct tcp *t, const struct tcp_conn *tc, uint32_t proc, nstime now);
/* Returns true if something that came by the channel is lent. */
bool tcp_chan_lent(const struct tcp *t, uint32_t chan);

#endif
