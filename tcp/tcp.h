/*
 * TCP: what the rest of the stack may call.
 *
 * The protocol is a function of (connection, segment, now). It reads no clock, sends no packet,
 * takes no lock, blocks on nothing and allocates from fixed pools only. tcp_input() records what is
 * owed. tcp_output() is the one place that builds segments for a connection: new data,
 * retransmissions, probes, SYN, FIN, RST and pure ACKs. The order of the calls is in tcp_loop.h.
 *
 * All of TCP's state is in one shared block (struct tcp_shared: pools, demultiplexing, secrets,
 * counters). The processes of a stack map it at different addresses, so there are no pointers in
 * it: links are pool indices, and 0 is none. A process's view is struct tcp. Primary records are
 * connections and listeners with the queues they own; hash chains, free lists, wheel links and
 * frame reference counts are derived, see tcp_recover().
 *
 *      tcp_opts.h   what a connection is to be like      tcp_stream.h  its bytes, both ways
 *      tcp_listen.h listeners                            tcp_window.h  what it offers, by credit
 *      tcp_hdr.h    a segment                            tcp_lend.h    bytes by loan
 *      tcp_loop.h   what the stack's loop calls          tcp_group.h   limits of many
 *      tcp_info.h   what it is like, for TCP_INFO        tcp_watch.h   what is told of it
 *      tcp_conn.h   its record, for tcp/ and the loop    tcp_stamp.h   when bytes left
 *      tcp_cc.h     congestion control: an algorithm     tcp_plan.h    the application's own
 *      tcp_answers.h  SYNs answered by the interface     tcp_saved_syn.h  TCP_SAVE_SYN
 *
 * Read first: RFC 9293 §3.3, §3.10; 7323 (options), 5681 and 6582 (NewReno), 9438 (CUBIC), 6298
 * (RTO), 2018 and 2883 (SACK, D-SACK), 8985 (RACK-TLP), 6937 (PRR), 3168 (ECN), 5961 (blind
 * attacks), 6191 (TIME-WAIT), 6528 (ISS), 7413 (Fast Open), 1122 §4.2.
 */
#ifndef TCP_TCP_H
#define TCP_TCP_H

#include "base/base.h"
#include "base/counters.h"
#include "tcp/tcp_opts.h"

enum tcp_state { /* RFC 9293 §3.3.2; tcp_state_name() prints them as the RFC does */
                 TCPS_CLOSED,
                 TCPS_LISTEN,
                 TCPS_SYN_SENT,
                 TCPS_SYN_RECEIVED,
                 TCPS_ESTABLISHED,
                 TCPS_FIN_WAIT_1,
                 TCPS_FIN_WAIT_2,
                 TCPS_CLOSE_WAIT,
                 TCPS_CLOSING,
                 TCPS_LAST_ACK,
                 TCPS_TIME_WAIT,
};
const char *tcp_state_name(enum tcp_state s);

/* The two ends, seen from here. */
struct tcp_tuple {
        ip_addr laddr, raddr;
        uint16_t lport, rport;
        uint16_t chan; /* channel the peer is behind; part of the key */
};

/* A link's properties, from unet_caps, when a connection is made. */
struct tcp_link {
        uint32_t tx_region; /* where send frames come from */
        /* Largest payload this link carries to us and from us (MMS_R - 20, RFC 9293 §3.7.1). */
        uint16_t mss;
        uint8_t csum;     /* payload sums must be kept (not used by shared memory) */
        uint8_t lossless; /* in order, nothing lost: no timestamps, acks at the end of a turn */
        nstime rto_min;
};

/* Sizes of the tables; fixed when the stack is made. */
struct tcp_limits {
        uint32_t conns, listeners, txsegs, rxsegs;
        uint32_t time_wait_max; /* more than this and the oldest in TIME-WAIT goes; so of orphans */
};

struct frames;
struct trace;
struct tcp_shared; /* tcp_conn.h */
struct tcp_conn;
struct tcp_seg;     /* tcp_hdr.h */
struct tcp_syn;     /* tcp_saved_syn.h */
struct tcp_answers; /* tcp_answers.h */

/* A process's view: the shared block and what is handed in. */
struct tcp {
        struct tcp_shared *sh;
        struct frames *frames;
        struct counters *cnt;
        /* A segment that belongs to no connection must leave (RST to a closed port, ACK from
         * TIME-WAIT). Best effort. */
        void (*reply)(void *arg, const struct tcp_tuple *to, const struct tcp_seg *seg);
        /* A connection has something for the stack: output to run, a deadline to set, events to
         * show. May be called several times; the stack keeps one link. Every call that
         * changes a connection makes this call. */
        void (*touched)(void *arg, uint32_t conn);
        /* The record of a connection is about to be freed: forget it (wheel, output list, socket).
         * May be NULL. */
        void (*gone)(void *arg, uint32_t conn);
        /* What the path to t->raddr carries as far as is known (ip/pmtu.h), 0: the link's MTU;
         * asked when a connection is made. And what a connection found out: an ICMP claim that it
         * believes, or a size that its own probes showed. Both may be NULL. */
        uint32_t (*path_mtu)(void *arg, const struct tcp_tuple *to);
        void (*path_learnt)(void *arg, const struct tcp_tuple *to, uint32_t mtu);
        /* While tcp_rx() is given a SYN, and has its headers: for TCP_SAVE_SYN. Else NULL. */
        const struct tcp_syn *syn;
        const struct tcp_answers *answers; /* NULL: nobody does */
        void *arg;
        struct trace *trace; /* of changes of state, at *clock; may be NULL */
        const nstime *clock;
        /* Notes the connection that is about to be changed, for a successor (tcp_recover()): by
         * tcp_rx(), and when one is made or one in TIME-WAIT ends for the sake of another. May be
         * NULL. */
        uint32_t *busy;
};

struct tcp_conn *tcp_conn_at(const struct tcp *t, uint32_t conn);

/* Events for the socket layer, in tc->events; cleared by the reader. */
enum {
        TCP_EV_READABLE = 1, /* data or end of stream to read */
        TCP_EV_WRITABLE = 2, /* room in the send buffer again, after there was none */
        TCP_EV_CONNECTED = 4,
        TCP_EV_CLOSED = 8, /* no more will happen: reset, timed out, or closed both ways */
        TCP_EV_URGENT = 16,
        TCP_EV_ACCEPT = 32, /* raised for the listener */
        TCP_EV_FLOW = 64,   /* something that tcp_watch_set() asks for: for poll sets */
        TCP_EV_END = 128,   /* with READABLE: the end of the stream has come */
};

enum tcp_limit { /* what keeps a connection from sending more */
                 TCP_LIM_NONE,
                 TCP_LIM_APP,
                 TCP_LIM_RWND,
                 TCP_LIM_CWND,
                 TCP_LIM_NIQ,
                 TCP_LIM_SNDBUF,
                 TCP_LIM_PACING,
                 TCP_LIM_PEER,
                 TCP_LIM_CLAMP,
                 TCP_LIMITS
};

/* ---- opening ---- */

/* Active open (RFC 9293 §3.10.1): a connection in SYN-SENT, its index, or -errno: -EADDRINUSE when
 * the tuple is in TIME-WAIT (and RFC 6191 does not let it go), -EADDRNOTAVAIL when it is in use,
 * -ENOBUFS, -ENETUNREACH for an address that cannot take part. */
int tcp_connect(struct tcp *t, const struct tcp_tuple *tuple, const struct tcp_link *link,
                const struct tcp_opts *opts, nstime now);
/* The place where the search for a client port begins, from one address to another and its port:
 * what strangers see of other connections does not tell it (RFC 6056 §3.3.3, F). `to->lport` is not
 * looked at. */
uint32_t tcp_port_offset(const struct tcp *t, const struct tcp_tuple *to);
/* Cookie of the socket layer, kept with the record (0: nobody, an orphan). */
void tcp_set_sock(struct tcp *t, uint32_t conn, uint32_t sock);

/* Returns true if the SYN has not left: with TCP_FASTOPEN_USE, and a cookie of the peer's, it takes
 * along what is written first, as far as that goes in. tcp_fastopen_go(): it leaves without. */
bool tcp_fastopen_waits(const struct tcp_conn *tc);
void tcp_fastopen_go(struct tcp *t, struct tcp_conn *tc, nstime now);

/* ---- closing ---- */

/* No more sends: FIN after what is queued (RFC 9293 §3.10.4). */
void tcp_shutdown_send(struct tcp *t, struct tcp_conn *tc, nstime now);
/* Reads find the end where they would wait. What is there and what still comes is read as ever,
 * as with Linux, unless there is an end in the other direction too: new data is answered by a
 * reset then. */
void tcp_shutdown_recv(struct tcp *t, struct tcp_conn *tc, nstime now);
/* The last reference is gone. Unread data: RST (RFC 2525 §2.17); else FIN and finish in the
 * background; linger 0: RST. */
void tcp_close(struct tcp *t, struct tcp_conn *tc, nstime now);
void tcp_abort(struct tcp *t, struct tcp_conn *tc, nstime now);
/* After output: if the peer has said that it closed, what has just been sent is as good as answered
 * by its reset. */
void tcp_refuse_sent(struct tcp *t, struct tcp_conn *tc);
/* Takes and clears the pending error (SO_ERROR), positive errno. */
int tcp_take_error(struct tcp_conn *tc);

#endif
