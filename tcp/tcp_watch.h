/*
 * What is told of a connection, as TCP_EV_FLOW, and how it is asked for.
 */
#ifndef TCP_TCP_WATCH_H
#define TCP_TCP_WATCH_H

#include "tcp/tcp.h"

enum {
        TCP_WATCH_ACKED = 1,
        TCP_WATCH_UNSENT = 2,
        TCP_WATCH_UNREAD = 4,
        TCP_WATCH_LOSS = 8,
        TCP_WATCH_RTT = 16,  /* in watch.holds: it is above the mark; */
        TCP_WATCH_SHUT = 32, /* ... the peer's window is 0; */
        TCP_WATCH_NIQ = 64,  /* ... the interface's queue is full */
        TCP_WATCH_LIMIT = 128,
        TCP_WATCH_REPORT = 512, /* a report for a plan is due */
        TCP_WATCH_ON = 1024,    /* in watch.holds only: somebody watches */
        TCP_WATCH_MARKS = TCP_WATCH_ACKED | TCP_WATCH_UNSENT, /* in watch.holds: reached */
};
struct tcp_marks {      /* 0: not asked for */
        uint64_t acked; /* so many bytes of the stream */
        nstime rtt;
        uint32_t unsent_below, unread_above;
        uint32_t limits; /* 1 << enum tcp_limit */
};
struct tcp_watch_counts {
        uint32_t losses, timeouts; /* segments taken for lost; retransmission timeouts */
        uint32_t rtt, shut, niq;   /* how often it changed, either way */
        uint32_t limit;            /* how often it became one that is asked for */
        uint32_t acked, unsent;    /* how often the mark was reached */
        uint32_t reports;          /* how often one became due, or the algorithm took over */
};
/* NULL: nothing is told any more. What is so already is told at once. */
void tcp_watch_set(struct tcp *t, struct tcp_conn *tc, const struct tcp_marks *m);
/* Poll sets look at the connection again. */
void tcp_tell(struct tcp *t, struct tcp_conn *tc);
/* A turn that changed a connection which is watched has ended. */
void tcp_watch_look(struct tcp_conn *tc);
/* Without the lock: marks that are reached; what happened since the record was made. */
uint32_t tcp_watch_marks(const struct tcp_conn *tc);
void tcp_watch_counts(const struct tcp_conn *tc, struct tcp_watch_counts *c);
/* Of what was written: acknowledged; accepted and not sent. */
uint64_t tcp_stream_acked(const struct tcp_conn *tc);
uint32_t tcp_unsent(const struct tcp_conn *tc);

#endif
