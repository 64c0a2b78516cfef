/*
 * Looking in (TCP_INFO, unet ss): safe without the lock, a torn snapshot at worst.
 */
#ifndef TCP_TCP_INFO_H
#define TCP_TCP_INFO_H

#include "tcp/tcp.h"
#include "tcp/tcp_watch.h"

struct tcp_report {
        struct tcp_tuple tuple;
        enum tcp_state state;
        uint32_t snd_wnd, rcv_wnd, cwnd, ssthresh; /* bytes */
        uint32_t mss, rmss;
        uint32_t unacked, unsent, unread; /* bytes */
        nstime srtt, rttvar, rto, min_rtt;
        uint64_t bytes_sent, bytes_acked, bytes_received, bytes_retrans;
        uint64_t segs_out, segs_in, retrans; /* segments */
        uint32_t reordering, dsack_dups;
        uint8_t snd_wscale, rcv_wscale, sack_ok, ts_ok;
        uint8_t ecn_ok, ecn_seen; /* agreed upon; and something came that could be marked */
        /* 0 open, 1 disorder, 2 cut by ECN, 3 recovery, 4 loss, as Linux's TCP_CA_*. */
        uint8_t ca_state;
        uint8_t backoff, probes, cc;
        uint8_t syn_data; /* data in the SYN was taken, by whoever received it */
        uint8_t credit;   /* rcv_wnd is what was granted and has not come */
        uint32_t memory;  /* bytes of frames charged */
        uint32_t sndbuf, rcvbuf;
        enum tcp_limit limit;
        nstime limited[TCP_LIMITS]; /* time spent so far under each */
        nstime busy;                /* ... with something sent and not acknowledged */
        nstime last_sent, last_received;
        uint32_t sock;          /* 0: orphan */
        uint64_t delivery_rate; /* bytes a second, 0 unknown */
        uint64_t pacing_rate;   /* bytes a second, 0: not paced */
        struct { /* of a congestion control that has a model of the path; bw 0: it has none */
                uint64_t bw; /* bytes a second */
                nstime min_rtt;
                uint16_t pacing_gain, cwnd_gain; /* hundredths */
                uint8_t app_limited;
        } model;
        uint32_t send_limit;    /* of opts.send_window; 0: none */
        uint32_t group, share;  /* tcp_group.c; 0: none, no limit */
        struct tcp_marks watch; /* all 0: nobody watches, or for what happens only */
        bool watched;
        struct {               /* cc is TCP_CC_PLAN */
                uint32_t cwnd; /* where the window goes to */
                nstime until;
        } plan;
};
void tcp_get_report(const struct tcp *t, const struct tcp_conn *tc, struct tcp_report *r,
                    nstime now);
/* The longest IP packet that the path carries, as far as is known (IP_MTU). */
int tcp_path_mtu(const struct tcp_conn *tc);

#endif
