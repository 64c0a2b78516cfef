/*
 * The window that is offered to the peer, and windows by credit.
 */
#ifndef TCP_TCP_WINDOW_H
#define TCP_TCP_WINDOW_H

#include "tcp/tcp.h"

/* With opts.credit: the peer may send so many bytes more, and is told. -EINVAL: without;
 * -EOVERFLOW: more than opts.window_most in advance; -ENOBUFS: its group has no more. */
int tcp_window_grant(struct tcp *t, struct tcp_conn *tc, uint32_t bytes, nstime now);
/* The scale of what we offer; before the peer's SYN is known (tcp_window_opened()) the one that
 * ours asks for, and before that the one that it is going to ask for. The largest window that can
 * be said by it. What the peer may send. */
uint8_t tcp_window_scale(const struct tcp_conn *tc);
uint8_t tcp_window_scale_for(const struct tcp_opts *o);
bool tcp_window_opened(const struct tcp_conn *tc);
uint32_t tcp_window_reach(const struct tcp_conn *tc);
uint32_t tcp_window_ahead(const struct tcp_conn *tc);

#endif
