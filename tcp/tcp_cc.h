/*
 * Congestion control: what an algorithm may decide, and when it is asked.
 *
 * Windows are bytes. An algorithm keeps its state in tc->cc_priv and changes tc->cwnd in on_ack()
 * alone; recovery (PRR) sets cwnd between on_loss() and the end of recovery. A new algorithm is a
 * file with one table, and a line in TCP_CC_LIST. A mark (tcp_ecn.c) is asked for like a loss (RFC
 * 3168 §6.1.2).
 *
 * An algorithm with a model() of the path is asked more often, and has delivery rates measured
 * (tcp_rate.h; TCF_RATES). It sets cwnd and the pacing rate at each acknowledgement, in recovery as
 * ever. Neither PRR nor the end of recovery nor idle time changes them. Over a link that loses
 * nothing there is no path to have a model of, and it is as the others.
 *
 * A plan of the application's (tcp_plan.c) stands in front of one of these, and is none that an
 * option can name.
 */
#ifndef TCP_TCP_CC_H
#define TCP_TCP_CC_H

#include "tcp/tcp_conn.h"

struct tcp_report; /* tcp_info.h */

/* ssthresh, arbitrarily high, until something was lost: RFC 5681 §3.1. */
#define CWND_UNKNOWN 0x7fffffffu

#define TCP_CC_LIST(X)       \
        X(CUBIC, tcp_cubic)  \
        X(RENO, tcp_newreno) \
        X(BBR, tcp_bbr)      \
        X(DCTCP, tcp_dctcp)

enum {
#define X(name, table) TCP_CC_##name,
        TCP_CC_LIST(X)
#undef X
                TCP_CC_COUNT,
        TCP_CC_PLAN = TCP_CC_COUNT
};

struct tcp_cc {
        const char *name;
        /* ECN is asked for, its echo is exact (RFC 8257 §3.2), and all segments are ECT. */
        bool wants_ecn;
        /* With a model: it has one where nothing is lost, too; recovery sets cwnd (PRR). */
        bool lossless_too, prr;
        /* The connection is ESTABLISHED; cwnd and ssthresh are set. */
        void (*init)(struct tcp_conn *tc, nstime now);
        /* `acked` bytes were newly acknowledged outside recovery, while cwnd was what limited the
         * sender. rtt is the sample of this ACK, -1 when there is none. */
        void (*on_ack)(struct tcp_conn *tc, uint32_t acked, nstime rtt, nstime now);
        /* Loss was found: the new ssthresh. `timeout`: by RTO. */
        uint32_t (*on_loss)(struct tcp_conn *tc, bool timeout, nstime now);
        /* The last on_loss() was a mistake; cwnd and ssthresh are restored already. NULL: nothing
         * else to do. */
        void (*undo)(struct tcp_conn *tc);
        /* NULL if marks are not counted. On each ACK, with ECN: `acked` bytes, possibly 0, whose
         * ACK said ECE or not. */
        void (*told)(struct tcp_conn *tc, uint32_t acked, bool echo);
        /* The first ECE of a window of data: the new ssthresh and cwnd. NULL: on_loss(). */
        uint32_t (*on_mark)(struct tcp_conn *tc);

        /* NULL if the algorithm has no model. On each ACK, instead of on_ack(); rtt as there, and
         * in recovery too. */
        void (*model)(struct tcp_conn *tc, nstime rtt, nstime now);
        /* A segment was marked lost; the routers have marked some (instead of on_loss()). The next
         * model() sees to it. */
        void (*lost)(struct tcp_conn *tc, const struct tcp_txseg *s);
        void (*marked)(struct tcp_conn *tc);
        /* Nothing is in flight, and something is about to be. */
        void (*restart)(struct tcp_conn *tc, nstime now);
        /* Reports what the algorithm knows of the path. */
        void (*report)(const struct tcp_conn *tc, struct tcp_report *r);
};

extern const struct tcp_cc tcp_newreno, tcp_cubic, tcp_bbr, tcp_dctcp, tcp_plan;
const struct tcp_cc *cc_of(const struct tcp_conn *tc);
const struct tcp_cc *cc_by(unsigned cc); /* TCP_CC_* */
/* Recovery and its end set cwnd. */
bool cc_has_prr(const struct tcp_conn *tc);
/* The connection is ESTABLISHED, or has another algorithm now, or one that begins anew. */
void cc_begin(struct tcp_conn *tc, nstime now);
/* RFC 5681 §3.1, RFC 6928: the initial window. Where nothing is lost, ten segments of
 * whatever size. */
uint32_t cc_initial_window(const struct tcp_conn *tc);

/* The algorithm of that name ("cubic", "reno", "bbr"), or -ENOENT. */
int tcp_cc_lookup(const char *name);
const char *tcp_cc_name(int cc);

#endif
