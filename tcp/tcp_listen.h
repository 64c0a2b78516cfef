/*
 * Passive opening: listeners, and the connections that come to them.
 */
#ifndef TCP_TCP_LISTEN_H
#define TCP_TCP_LISTEN_H

#include "tcp/tcp.h"

/* Passive open. addr may be any. Index of the listener, -EADDRINUSE or -ENOBUFS. Several may have
 * the same address and port when all have opts.reuseport. A hash of both ends says whose a new
 * connection is. The answer is the same as long as no listener comes or goes. */
int tcp_listen(struct tcp *t, ip_addr addr, uint16_t port, uint32_t backlog,
               const struct tcp_opts *opts);
void tcp_listen_backlog(struct tcp *t, uint32_t listener, uint32_t backlog);
/* Closes a listener: connections not yet accepted are reset; of those half open nothing more is
 * said, but where nothing is lost. */
void tcp_unlisten(struct tcp *t, uint32_t listener);
/* SYNs are not answered before they come (tcp_answers.h) as those of earlier connections were: a
 * listener is about to take no more, or what it takes is another thing. */
void tcp_listen_forget(struct tcp *t);
/* Sets what the listener's connections are to be like from here on. */
void tcp_listen_opts(struct tcp *t, uint32_t listener, const struct tcp_opts *opts);
/* The oldest connection that is ESTABLISHED and not yet taken, or 0. */
uint32_t tcp_accept(struct tcp *t, uint32_t listener);
/* The same connection, which stays in the queue. */
uint32_t tcp_accept_next(const struct tcp *t, uint32_t listener);
bool tcp_acceptable(const struct tcp *t, uint32_t listener);
/* Returns true if one waits, or is being opened. */
bool tcp_expects(const struct tcp *t, uint32_t listener);
/* Cookie of the socket layer, as tcp_set_sock(). */
void tcp_listener_set_sock(struct tcp *t, uint32_t listener, uint32_t sock);

#endif
