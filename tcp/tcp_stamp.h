/*
 * When the last byte of a write was given to the interface, left it, and was acknowledged.
 */
#ifndef TCP_TCP_STAMP_H
#define TCP_TCP_STAMP_H

#include "tcp/tcp.h"

enum { TCP_STAMP_SENT = 1, TCP_STAMP_QUEUED = 2, TCP_STAMP_ACKED = 4 };
struct tcp_stamp {
        nstime at;
        uint32_t seq; /* of the byte */
        uint32_t what;
};
/* Asks of what was written last. */
void tcp_stamp_ask(struct tcp *t, struct tcp_conn *tc, uint32_t what);
/* A turn that changed a connection with tc->stamps has ended. */
void tcp_stamp_look(struct tcp *t, struct tcp_conn *tc, nstime now);
/* The oldest that is told, and not read yet. False: there is none. */
bool tcp_stamp_take(struct tcp *t, struct tcp_conn *tc, struct tcp_stamp *s);

#endif
