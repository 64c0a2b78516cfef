/*
 * Congestion control of the application's own: it plans, and is told what came of it.
 */
#ifndef TCP_TCP_PLAN_H
#define TCP_TCP_PLAN_H

#include "tcp/tcp.h"

struct tcp_plan {
        uint64_t serial; /* of the report that it was made of */
        uint64_t rate;   /* bytes a second; 0: not paced */
        nstime good_for;
        nstime every;  /* the next report is due after so long; 0: a round trip */
        uint32_t cwnd; /* bytes */
};
struct tcp_plan_report { /* since the last one, but for the numbers now */
        uint64_t serial; /* 0: no plan holds, and only the numbers now are told */
        nstime time;
        uint64_t acked, lost, marked; /* bytes */
        uint32_t cuts, timeouts; /* reductions of the window, and how many of them by a timeout */
        nstime rtt_least, rtt_mean, rtt_last;
        uint32_t rtts;          /* samples; 0: none */
        uint64_t delivery_rate; /* the highest that was measured, bytes a second */
        bool app_limited;       /* the application had too little to send for a higher one */
        bool repairs;           /* the window is PRR's, or slow start's after a timeout */
        uint32_t cwnd, ssthresh, snd_wnd, in_flight, mss;
        nstime srtt, min_rtt;
};
/* NULL: the algorithm of the options decides again. -EAGAIN: the window was reduced, or the
 * algorithm took over, since the report of that serial. -ENOTCONN: not ESTABLISHED yet, or over. */
int tcp_plan_set(struct tcp *t, struct tcp_conn *tc, const struct tcp_plan *m, nstime now);
int tcp_plan_take(struct tcp_conn *tc, struct tcp_plan_report *r, nstime now);

#endif
