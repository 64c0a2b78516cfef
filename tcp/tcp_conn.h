/*
 * A connection's record, and what all connections of a stack share.
 *
 * For tcp/ and for the stack's loop in netstack/, which keeps its own links in a connection (wheel,
 * out_next, out_queued, events, sock) and reads the tuple. Everything here lies in shared memory:
 * indices, never pointers.
 *
 * The send queue is one list of txsegs in sequence order; each is one contiguous range of one
 * frame:
 *
 *      snd_head                 snd_next              snd_tail
 *         |  sent, not acked       |  not yet sent       |
 *         v                        v                     v
 *      +------+------+------+------+------+------+------+
 *      snd_una              snd_nxt                     snd_end (+ 1 for a queued FIN)
 *
 * The receive side has two: rxsegs in order that the application has not read, and rxsegs beyond a
 * gap.
 *
 *      copied_seq        rcv_nxt                rcv_adv
 *         |  rcv_head ..    |  gaps: ooo_head ..   |
 *         +-----------------+----------------------+
 *           rcv_unread bytes  window offered
 *
 * By credit (opts.credit) rcv_adv is where what was granted ends, and rcv_limit is 0: what is read
 * then offers nothing.
 *
 * Readiness is asked for without the lock. What it is made of is written by WRITE_ONCE(): state,
 * shut, err, urg_state, flags, rcv_nxt, rcv_unread, rcv_up, snd_una, snd_nxt, snd_end, snd_mem,
 * snd_limit, a listener's q_head. A record is made whole before a socket names it.
 *
 * Invariants (tcp_conn_check() spells them): snd_una <= snd_nxt <= snd_end + fin; segments of the
 * send queue abut; rcv_unread is the sum of the in-order queue; the out-of-order queue is sorted,
 * disjoint and beyond rcv_nxt.
 */
#ifndef TCP_TCP_CONN_H
#define TCP_TCP_CONN_H

#include "base/frame.h"
#include "base/pool.h"
#include "base/wheel.h"
#include "tcp/tcp.h"
#include "tcp/tcp_group.h"
#include "tcp/tcp_hdr.h"
#include "tcp/tcp_seq.h"
#include "tcp/tcp_watch.h"

/* Marks of a txseg; the counterpart of Linux's TCPCB_*. */
enum {
        TXS_SACKED = 1,       /* the peer has it (RFC 2018) */
        TXS_LOST = 2,         /* we believe that it was lost */
        TXS_RETX = 4,         /* retransmitted, and that copy is believed in flight */
        TXS_EVER_RETX = 8,    /* sent more than once: no RTT sample (Karn) */
        TXS_RATE = 16,        /* has the fields for delivery rates: tcp_rate.h */
        TXS_APP_LIMITED = 32, /* with it: left after the application had nothing to send */
};

struct tcp_txseg {
        uint32_t next, prev;
        uint32_t seq;
        uint32_t frame;    /* of the payload; 0 when there is none */
        uint32_t off, len; /* payload bytes; a FIN takes one more sequence number */
        uint8_t ctl;       /* TCP_FIN, TCP_PSH to send with it */
        uint8_t marks;
        uint32_t tx_in_flight; /* with TXS_RATE, what there was when it was sent last: tcp_rate.h */
        nstime sent;           /* last transmission */
        nstime delivered_time, first_sent;
        uint32_t delivered, lost_before;
};
static_assert(sizeof(struct tcp_txseg) == CACHE_LINE, "a line each");

struct tcp_rxseg {
        _Alignas(8) uint32_t next;
        uint32_t prev;
        uint32_t seq;
        struct buf data;
        uint32_t fin : 1; /* out of order: a FIN follows the data */
        /* Of records without a gap between, the first and the last name each other. */
        uint32_t run : 31;
        uint32_t at; /* when its last bytes came, in units of 1,024 ns; see tcp_recv_stamp() */
};
static_assert(sizeof(struct tcp_rxseg) == 32, "two in a cache line");
static inline uint32_t rxseg_time(nstime at)
{
        return (uint32_t)(at >> 10);
}
static_assert(offsetof(struct tcp_txseg, off) % 8 == 0 &&
                      offsetof(struct tcp_txseg, len) == offsetof(struct tcp_txseg, off) + 4 &&
                      offsetof(struct tcp_rxseg, data.off) % 8 == 0,
              "range_skip()");

/* 4,096 full segments in the send queue: a SACK walks through them (CVE-2019-11478). */
#define SND_SEGS_LOG    12
#define SND_LIMIT_LEAST 4608u /* bytes; Linux's SOCK_MIN_SNDBUF: two small frames */

enum { /* tc->owed: what tcp_output() must still send */
       OWE_ACK = 1,
       OWE_SYN = 2,
       OWE_RST = 4,
       OWE_PROBE = 8,   /* window probe (RFC 9293 §3.8.6.1) */
       OWE_TLP = 16,    /* tail loss probe (RFC 8985 §7) */
       OWE_KEEP = 32,   /* keepalive */
       OWE_PUSH = 64,   /* the small segment at the tail goes now: cork or SWS override timer */
       OWE_FORCE = 128, /* one retransmission whatever the window of recovery says (RFC 6937) */
};
#define OWE_SPECIAL (OWE_SYN | OWE_RST | OWE_PROBE | OWE_TLP | OWE_KEEP)

enum {                   /* tc->slow: why header prediction does not apply; 0 and it does */
       SLOW_STATE = 1,   /* not ESTABLISHED, or not confirmed (FO_OPEN) */
       SLOW_OOO = 2,     /* data beyond a gap is queued */
       SLOW_LOSS = 4,    /* recovery, SACKed or lost segments, TLP or probes outstanding */
       SLOW_URG = 8,     /* urgent data announced */
       SLOW_SHUT = 16,   /* the application reads no more */
       SLOW_NOSACK = 32, /* duplicate ACKs must be counted */
       /* opts.send_window bounds what each ACK offers, opts.unsent_most or a group what is written,
        * or somebody watches it (TCP_WATCH_ON), or wants to know when it sent something
        * (tcp_stamp.c). */
       SLOW_FLOW = 64,
       SLOW_REFUSED = 128, /* the peer has closed, and resets whatever comes: SEG_CLOSED */
};

enum { SHUT_RCV = 1, SHUT_SND = 2, SHUT_BOTH = 3 };

/* Over a lossless link, in a FIN or the ACK after it, an urgent pointer without URG says that
 * nobody will read what its sender receives. Any other receiver ignores it (RFC 9293 §3.1). */
#define SEG_CLOSED 1u

/* 2, Linux's TCP_CA_CWR, is TCF_ECN_CUT here. */
enum { CA_OPEN = 0, CA_DISORDER = 1, CA_RECOVERY = 3, CA_LOSS = 4 };

enum { TLP_NONE, TLP_OUT, TLP_NEEDLESS }; /* the last: what it was to stand for has arrived */

enum rtx_kind { RTX_NONE, RTX_RTO, RTX_TLP, RTX_REO, RTX_PERSIST };

enum { URG_NONE, URG_ANNOUNCED, URG_HERE, URG_TAKEN };

enum acc_state { /* of a connection made by a listener */
                 ACC_NONE,
                 ACC_HALF_OPEN,
                 ACC_QUEUED,
                 ACC_TAKEN,
};

enum {                          /* tc->flags */
       TCF_FIN_QUEUED = 1,      /* FIN follows snd_end */
       TCF_FIN_RCVD = 2,        /* FIN in order was received */
       TCF_SND_FULL = 4,        /* not writable since; TCP_EV_WRITABLE is owed */
       TCF_RSV = 8,             /* a reservation is out */
       TCF_WAITS = 16,          /* on the list of those that wait for frames */
       TCF_ACTIVE = 32,         /* opened by us (RFC 9293 MUST-11: SYN-RECEIVED remembers) */
       TCF_MORE = 64,           /* the last write said that more follows */
       TCF_RATES = 128,         /* delivery rates are measured for congestion control: tcp_rate.h */
       TCF_CLOSED_BY_APP = 256, /* tcp_close() was called */
       TCF_WND_ZERO = 512,      /* we offered a zero window */
       TCF_TLP_RETX = 1024,     /* the tail loss probe was a retransmission */
       /* The last reduction of the window may turn out to be a mistake: tcp_undo.c. */
       TCF_UNDO = 2048,
       TCF_DSACK = 4096,      /* dsack block below is to be reported */
       TCF_WSCALE = 8192,     /* both sides scale windows (RFC 7323 §2) */
       TCF_REORDER = 16384,   /* RACK.reordering_seen */
       TCF_URG_OUT = 32768,   /* snd_up is ahead of snd_una */
       TCF_UNDO_SENT = 65536, /* something was sent again since that reduction */
       TCF_COOKIE = 262144,   /* opened by a SYN cookie: when its SYN-ACK left nobody knows */
       /* The delayed ACK waits for its time, not for the end of a turn: tcp_delack.c. */
       TCF_TRAIN = 524288,
       /* The timeout may turn out to be a mistake by what is acknowledged next: tcp_undo.c. */
       TCF_FRTO = 1048576,
       TCF_FRTO_NEW = 2097152, /* new segments go instead of those marked lost, to find out */
       /* With TCF_FRTO: this acknowledgement is of something sent once only. */
       TCF_ORIG_ACKED = 4194304,
       TCF_ECN_ASKED = 8388608, /* the last SYN of ours was an ECN-setup one: tcp_ecn.c */
       TCF_ECN = 16777216,      /* both sides do (RFC 3168) */
       TCF_ECN_SEEN = 33554432, /* data came that a router may mark */
       TCF_ECN_ECHO = 67108864, /* what is sent says that some was marked, until CWR comes */
       TCF_ECN_CWR = 134217728, /* the next new data says that the window was reduced */
       /* The window was reduced by ECE, and is not again until snd_una is beyond ecn_end. */
       TCF_ECN_CUT = 268435456,
       TCF_MIN_TTL = 536870912, /* opts.min_ttl is to be looked at */
       /* The segment that recovery waits for was probed for, and nothing came yet. */
       TCF_REPAIR_PROBED = 131072,
       /* The interface sent the SYN-ACK (struct tcp_answers). The last bit that there is. */
       TCF_ANSWERED = INT32_MIN,
       TCF_PACED = 1073741824, /* cork_at is when pacing lets the next segment go */
};

enum {                /* tc->fastopen: tcp_fastopen.c */
       FO_ASKS = 1,   /* opened by us: the first SYN has a cookie or asks for one, */
       FO_WAITS = 2,  /* ... waits for what is written first, */
       FO_SENT = 4,   /* ... has left, */
       FO_DATA = 8,   /* ... with data */
       FO_TAKEN = 16, /* data of a SYN was taken: of ours by the peer, or of the peer's by us */
       FO_GIVES = 32, /* the SYN-ACK brings a cookie, */
       FO_OLD = 64,   /* ... by the number that the SYN used */
       FO_OPEN = 128, /* opened by the peer's SYN, and our SYN-ACK is not acknowledged */
};

struct tcp_watch {      /* tcp_watch.c; WRITE_ONCE() */
        uint64_t acked; /* as struct tcp_marks */
        nstime rtt;
        uint32_t unsent_below, unread_above;
        uint16_t limits;
        uint16_t holds; /* TCP_WATCH_* */
        struct tcp_watch_counts counts;
};
static_assert(sizeof(struct tcp_watch) == CACHE_LINE, "a line of the record");

struct tcp_conn {
        /* -- line 0: who it is -- */
        /* derived; also the pool's free link: must be first. */
        _Alignas(CACHE_LINE) uint32_t hash_next;
        uint32_t self; /* own index */
        struct tcp_tuple tuple;
        uint8_t live;     /* the record is in use: written last when made, first when freed */
        uint8_t state;    /* enum tcp_state; tcp_set_state() */
        uint8_t slow;     /* SLOW_* */
        uint8_t owed;     /* OWE_* */
        uint8_t shut;     /* SHUT_* */
        uint8_t ca_state; /* CA_* */
        uint8_t rtx_kind; /* RTX_* */
        uint8_t backoff;  /* RTO is doubled so often (RFC 6298 §5.5) */
        uint32_t flags;   /* TCF_* */
        uint32_t events;  /* TCP_EV_*, cleared by the reader */

        /* -- line 1: receiving -- */
        uint32_t rcv_nxt, rcv_adv; /* rcv_adv: right edge offered */
        uint32_t last_ack_sent;
        uint32_t rcv_head, rcv_tail;     /* rxsegs in order */
        uint32_t rcv_unread;             /* bytes in them */
        uint32_t rcv_fill, rcv_fill_off; /* private frame that small data is copied into */
        uint32_t rcv_limit;              /* receive buffer now, less what is lent: rcvbuf_size() */
        uint32_t rcv_full; /* largest payload received: what a full-sized segment is */
        uint32_t ts_recent;
        uint8_t rcv_wscale, snd_wscale, ts_ok, sack_ok;
        nstime delack_at;
        nstime last_received;

        /* -- line 2: sending -- */
        uint32_t snd_una, snd_nxt, snd_end;
        uint32_t snd_wnd, snd_wl1, snd_wl2;
        uint32_t snd_head, snd_next, snd_tail; /* txsegs */
        uint32_t snd_mss;                      /* largest payload we send: after options */
        uint32_t cwnd, ssthresh;
        uint32_t snd_sml;          /* end of the last small segment sent (Minshall) */
        uint8_t nodelay, cork, cc; /* of opts, near */
        uint8_t quick; /* ACKs at the beginning that wait for the end of the turn only */
        nstime rtx_at;

        /* -- line 3: buffers, counts -- */
        uint32_t snd_fill, snd_fill_off; /* frame that the next bytes written go into */
        uint32_t snd_mem;                /* bytes of transmit frames charged */
        uint32_t snd_limit;              /* send buffer now */
        struct tcp_link link;
        nstime last_sent; /* data or SYN */
        uint64_t segs_in, segs_out, bytes_received;

        /* -- line 4: round trips -- */
        uint64_t bytes_sent, bytes_acked;
        nstime srtt, rttvar, rto, min_rtt;
        nstime stalled_at; /* since when the peer has not acknowledged what is owed; 0: it has */
        uint32_t max_wnd;  /* largest window the peer has offered */
        uint8_t limit;     /* enum tcp_limit now */
        uint8_t urg_state; /* URG_* */
        uint8_t urg_byte;
        uint8_t acc_state; /* enum acc_state */

        /* -- line 5: what each segment and each call reads, of several features -- */
        uint32_t sacked, lost, retx; /* bytes of segments so marked; lost excludes SACKed ones */
        uint32_t rsv_head, rsv_tail, rsv_bytes; /* txsegs of the reservation */
        nstime slow_at;                         /* TIME-WAIT, FIN-WAIT-2, keepalive, retirement */
        nstime cork_at;
        nstime busy;               /* time with something in flight, until stalled_at */
        int16_t err, err_soft;     /* positive errno, pending */
        uint16_t gen;              /* of this index: see tcp_uncharge() */
        uint8_t out_queued, stuck; /* the stack's, as out_next and stuck_next below */
        uint8_t group;             /* tcp_group.c; 0: none */
        uint8_t group_paced;       /* ... which has a rate */
        uint8_t gap_acks; /* duplicate ACKs since what is expected last moved: delack_owe_gap() */
        uint8_t stamped;  /* times of sending that are told and not read; WRITE_ONCE() */
        uint32_t group_share; /* the receive buffer is no larger; 0: no such limit */

        /* -- line 6: rate, options -- */
        struct {               /* tcp_pace.c */
                uint64_t rate; /* bytes a second, 0: as fast as it goes */
                nstime at;     /* the next quantum's time */
                uint32_t quantum, left;
        } pace;
        struct tcp_opts opts; /* the first of them; others are in the lines that follow */

        /* -- loss: RFC 8985 (RACK-TLP), 6937 (PRR), 2018 -- */
        uint32_t dupacks;
        /* The most in flight before an ACK, until snd_una reaches flight_end. */
        uint32_t flight_peak;
        uint32_t flight_end;
        uint32_t recover;     /* snd_nxt when recovery began */
        uint32_t high_sacked; /* RACK.fack */
        uint32_t rcv_size;    /* receive buffer; see rcv_limit */
        struct {              /* RFC 8985 §5.3: tcp_rack.c */
                nstime sent;  /* RACK.xmit_ts */
                nstime rtt;
                uint32_t end;
                uint32_t dsack_round;
                uint8_t mult, persist;
        } rack;
        uint8_t dups;   /* timeouts in a row without progress */
        uint8_t probes; /* unanswered window or keepalive probes */
        uint8_t train;  /* full-sized segments received without a pause, as far as that matters */
        uint16_t ooo_records; /* beyond a gap */
        struct {              /* RFC 8985 §7, a tail loss probe: tcp_rack.c */
                nstime sent;  /* when it left, */
                uint32_t end; /* ... and snd_nxt then */
                uint8_t out;  /* TLP_*: it is out */
        } tlp;
        struct { /* RFC 6937: tcp_prr.c */
                uint32_t delivered, out, fs;
        } prr;
        uint32_t dsack_dups;
        uint32_t retrans;
        struct tcp_sack_block dsack; /* RFC 2883, when TCF_DSACK */
        uint32_t rcv_lent;           /* bytes on loan, derived: tcp_lend.c */
        uint64_t bytes_retrans;
        struct {                         /* with TCF_UNDO: tcp_undo.c */
                uint32_t cwnd, ssthresh; /* what they were before the last reduction */
                uint32_t una;            /* snd_una then */
                uint32_t retx;           /* bytes sent again since and not reported as duplicates */
                uint32_t ts;             /* our timestamp on the first of them */
        } undo;

        /* -- seldom -- */
        uint32_t ooo_head, ooo_tail;
        /* Rxsegs, the first of each run, what grew last first (RFC 2018 §4); 0: none. */
        uint32_t ooo_recent[TCP_MAX_SACK];
        uint32_t rcv_mem; /* bytes of private frames */
        uint32_t iss, irs;
        uint32_t snd_up, rcv_up; /* urgent: one past the last urgent byte */
        uint32_t ts_offset;
        uint32_t ts_recent_s; /* seconds: when ts_recent was taken */
        /* When an ACK last answered what may be one of an attacker's (RFC 5961 §7); 0: never. */
        uint32_t answered_ms;
        uint32_t hash; /* of the tuple; derived */
        nstime drs_at; /* receive buffer sizing: one round trip measured from here */
        uint32_t drs_seq;
        uint32_t listener;
        uint32_t acc_order; /* order of arrival in its queue */
        /* derived: the accept queue, the orphans, or TIME-WAIT, oldest first; never two of them. */
        uint32_t line_next, line_prev;
        uint32_t wait_next, wait_prev; /* derived: waiting for frames */
        uint16_t mss_clamp;            /* the peer's MSS option */
        /* The window scale that our SYN says, however SO_RCVBUF changes after it; or
         * TCP_NO_WSCALE. */
        uint8_t syn_wscale;
        uint8_t fastopen; /* FO_* */
        uint32_t ecn_end; /* with TCF_ECN_CUT: snd_nxt when it was cut */
        uint32_t fin_end; /* with TCF_FIN_RCVD: one past the FIN */
        nstime limit_since;
        nstime limited[TCP_LIMITS];
        nstime syn_sent;            /* with FO_OPEN: when the SYN-ACK left; */
        uint32_t fastopen_listener; /* ... and whose count it is in; 0: that listener is closed */
        uint32_t saved_syn;         /* frame of the SYN's headers; 0: none */

        struct {                    /* tcp_path.c; sizes are payload with TCP's options and IP's */
                uint16_t mss;       /* what it carries, 0: what the link does */
                uint16_t search_hi; /* more than this does not get through; 0: no search */
                uint16_t probe;     /* the size being tried, 0: none */
                uint16_t claim; /* what an ICMP error claims, and is not believed yet; 0: nothing */
                /* Where the probe begins; the segment that the error quotes. */
                uint32_t probe_seq, claim_seq;
                uint64_t acked; /* bytes_acked when segments were last made smaller */
                nstime at;      /* a larger size is tried */
                uint8_t wait;   /* how often that was put off */
        } path;

        /* -- trains: tcp_delack.c; in units of 1,024 ns -- */
        /* The round trip that the last data in order told of; no more than fits. */
        uint16_t train_rtt;
        uint32_t train_at; /* when it came */

        /* copied_seq() when the share was looked at last, and when that was. */
        uint32_t group_mark;
        uint32_t group_left; /* of its turn to send */
        nstime group_at;
        /* When it may send next, standing in line; 0: it does not. When it did last. */
        nstime group_due, group_turn;
        uint32_t group_ask;  /* bytes that its turn is to be of, while it stands in line */
        uint32_t send_share; /* of what its group may have written; 0: as much as it likes */
        uint32_t snd_most;   /* ... and it may have written so much, as of last; WRITE_ONCE() */
        uint32_t stamps;     /* frame of what is asked and told of times of sending; 0: nothing */

        /* -- the stack's: zeroed when the record is made, not looked at by TCP -- */
        struct wheel_link wheel;
        uint32_t out_next, out_prev;
        uint32_t sock; /* tcp_set_sock(); 0: orphan, or not yet accepted */
        /* Links of the list of connections that wait for room on the channel, while `stuck`. */
        uint32_t stuck_next, stuck_prev;

        struct tcp_watch watch;

        uint64_t cc_priv[32]; /* the congestion control's own: of CUBIC's the first lines */
};
static_assert(offsetof(struct tcp_conn, rcv_nxt) == 64 &&
                      offsetof(struct tcp_conn, snd_una) == 128 &&
                      offsetof(struct tcp_conn, snd_fill) == 192 &&
                      offsetof(struct tcp_conn, bytes_sent) == 256 &&
                      offsetof(struct tcp_conn, sacked) == 320 &&
                      offsetof(struct tcp_conn, pace) == 384 &&
                      offsetof(struct tcp_conn, opts.ip_opts.len) < 448,
              "lines");
static_assert(sizeof(struct tcp_conn) == 1408, "twenty-two lines: is there a hole for it?");

/* Marks that are looked at without the lock (tcp_poll_events()). */
static inline void conn_flag(struct tcp_conn *tc, uint32_t flags)
{
        WRITE_ONCE(tc->flags, tc->flags | flags);
}
static inline void conn_unflag(struct tcp_conn *tc, uint32_t flags)
{
        WRITE_ONCE(tc->flags, tc->flags & ~flags);
}
/* After opts.min_ttl: whether a segment has to be asked is known from a line that is looked
 * at anyway. */
static inline void conn_heed_ttl(struct tcp_conn *tc)
{
        if (tc->opts.min_ttl != 0)
                conn_flag(tc, TCF_MIN_TTL);
        else
                conn_unflag(tc, TCF_MIN_TTL);
}
static inline void conn_shut(struct tcp_conn *tc, uint8_t how)
{
        WRITE_ONCE(tc->shut, tc->shut | how);
}

/* A send buffer of that size is not of more segments than it should be, however small the peer
 * wants them. */
static inline uint32_t snd_limit_of(const struct tcp_conn *tc, uint32_t bytes)
{
        return MIN(bytes, tc->snd_mss << SND_SEGS_LOG);
}

/* Our clock of RFC 7323 §5.4, as this connection shows it. */
static inline uint32_t conn_ts(const struct tcp_conn *tc, nstime now)
{
        return (uint32_t)(now / NS_PER_MS) + tc->ts_offset;
}

struct tcp_listener {
        uint32_t hash_next; /* derived; first, as above */
        uint32_t self;
        uint8_t live;
        uint16_t port;
        ip_addr addr;
        uint32_t backlog;
        uint32_t sock;
        uint32_t events;
        uint32_t order;             /* next acc_order */
        uint32_t q_head, q_tail;    /* derived: connections to be accepted */
        uint32_t queued, half_open; /* derived */
        uint32_t sharing;       /* derived: listeners at this address and port, itself among them */
        uint32_t fastopen_open; /* derived: connections with FO_OPEN */
        uint8_t group;          /* of what comes to it: tcp_group.c */
        uint32_t fastopen_resets; /* of those so many were reset, and count until then */
        nstime fastopen_calm_at;
        /* The last SYN cookie of those that share the port is good no longer; 0: there was none. */
        nstime cookies_until;
        struct tcp_opts opts;
};

/* Limits in common: tcp_group.c. */
struct tcp_group {
        struct tcp_group_limits limits[2]; /* `now` says which holds: they change in one store */
        uint8_t now;
        uint64_t held, queued;       /* derived: the members' shares */
        uint32_t members, listeners; /* derived; both 0: nobody's */
        uint32_t waiting;            /* derived: members that stand in line to send */
        uint32_t opening;            /* derived: members that are being opened */
        bool unanswered; /* one of them ended, not opened, when they were as many as may be */
        /* When they became so many, or FLOODED before that; and last after `unanswered`. */
        nstime opening_at, flooded_at;
        /* When the next turn begins; when the last one did, and how much longer it was. */
        nstime turn_at, turn_last, turn_more;
};

/* A loan of a process: tcp_lend.c. */
struct tcp_loan {
        uint32_t link;   /* free list */
        uint32_t proc;   /* process slot + 1; 0: none. Written last when made, first when ended */
        uint32_t owner;  /* frame_owner() of the connection */
        uint32_t serial; /* of this record: a token is good once */
        struct buf data;
        uint32_t seq;
};
static_assert(sizeof(struct tcp_loan) == 32, "two in a cache line");

#define TCP_LENT 64u /* sums of frames lent, by channel */

/* The connection that was found last of those whose ports fall there (tcp_demux.c). */
struct tcp_recent {
        uint32_t conn;
        uint32_t ports; /* its own two: the records of others are not looked at */
};
#define TCP_RECENT 256u

#define FASTOPEN_SETS 64u
#define FASTOPEN_WAYS 4u

struct fastopen_peer { /* by both addresses; any state of it is a good one */
        ip_addr raddr, laddr;
        nstime at;         /* when it was last heard of */
        uint16_t mss;      /* of its SYN-ACK; 0: it said none */
        uint8_t len;       /* of the cookie; 0: it gave none */
        uint8_t old;       /* asked, and given, by the experimental number */
        uint8_t asked_old; /* that was tried */
        uint8_t losses;    /* SYNs with data that got no answer, in a row */
        uint8_t cookie[TCP_MAX_COOKIE];
};

struct tcp_line { /* of connections, by line_next */
        uint32_t head, tail, n;
};

struct tcp_shared {
        struct tcp_limits limits;
        uint8_t secret[16];
        uint64_t conn_hash_off, listen_hash_off; /* from this struct to arrays of indices */
        uint32_t listen_hash_mask;
        uint32_t conn_hash_n, conn_hash_max; /* buckets now, and at most: tcp_demux.c */
        uint64_t scratch_off;                /* a bit a record, for tcp_recover() */
        struct tcp_line time_wait, orphans;
        uint32_t wait_head;
        uint32_t gen;                         /* last generation given */
        nstime caught_up_at;                  /* tcp_caught_up() */
        struct tcp_recent recent[TCP_RECENT]; /* derived */
        /* derived: frames of peers that stand in our queues, by channel. */
        uint32_t lent[TCP_LENT][FRAME_CLASSES];
        struct fastopen_peer fastopen[FASTOPEN_SETS][FASTOPEN_WAYS];
        struct tcp_group groups[TCP_GROUPS];
        struct pool conns, listeners, txsegs, rxsegs, loans;
};

/* Records of a pool by index, as pool_at(), with the size known when compiling: these are on
 * every path. */
static inline void *pool_records(const struct pool *p, uint32_t i)
{
        assert(i != 0 && i < p->cap);
        return (char *)(uintptr_t)p + p->off;
}
static inline struct tcp_txseg *txseg_at(const struct tcp *t, uint32_t i)
{
        return (struct tcp_txseg *)pool_records(&t->sh->txsegs, i) + i;
}
static inline struct tcp_rxseg *rxseg_at(const struct tcp *t, uint32_t i)
{
        return (struct tcp_rxseg *)pool_records(&t->sh->rxsegs, i) + i;
}
static inline struct tcp_conn *conn_at(const struct tcp *t, uint32_t i)
{
        return (struct tcp_conn *)pool_records(&t->sh->conns, i) + i;
}
/* Each connection that is in use. */
#define for_each_conn(t, tc)                                                      \
        for (uint32_t i_ = 1; i_ < (t)->sh->conns.fresh; i_++)                    \
                for (struct tcp_conn *tc = conn_at(t, i_); tc != NULL; tc = NULL) \
                        if (tc->live)
static inline struct tcp_listener *tcp_listener_at(const struct tcp *t, uint32_t i)
{
        return pool_at(&t->sh->listeners, i);
}
static inline void touch(struct tcp *t, const struct tcp_conn *tc)
{
        t->touched(t->arg, tc->self);
}
/* Lent frames that our queues hold, by class, of the channel whose receive region holds `frame`;
 * and those of its class. */
static inline uint32_t *lent_of(const struct tcp *t, uint32_t frame)
{
        return t->sh->lent[(frame_id_region(frame) - 1) / 2 % TCP_LENT];
}
static inline uint32_t *lent_count(const struct tcp *t, uint32_t frame)
{
        return &lent_of(t, frame)[frame_geom_class(t->frames->region[frame_id_region(frame)].geom,
                                                   frame_id_num(frame))];
}
/* Orders stores for whoever finds the memory after a death: the compiler must not move stores
 * over this. A killed process leaves all that its processor has executed. tcp_mend.c says what
 * it needs. */
static inline void store_order(void)
{
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
/* A record begins to be in use, or ends. */
static inline void live_set(uint8_t *live, uint8_t to)
{
        store_order();
        *(volatile uint8_t *)live = to;
        store_order();
}
/* A range loses its first n bytes: off and len, which stand side by side, in one store. */
static inline void range_skip(uint32_t *off, uint32_t *len, uint32_t n)
{
        typedef uint64_t __attribute__((may_alias)) both_t;

        *(volatile both_t *)off = (uint64_t)(*len - n) << 32 | (*off + n);
        store_order();
}
/* A conversation keeps its small frame, warm, from one message to the next; but only so many do: of
 * ten thousand idle connections each would hold 2 KB for nothing. */
#define IDLE_FRAMES 64u
static inline bool frames_scarce(const struct frame_pool *p)
{
        return p->used[FRAME_SMALL] > MIN(IDLE_FRAMES, p->geom.count[FRAME_SMALL] / 4 * 3);
}
/* Sequence numbers a segment takes. */
static inline uint32_t txseg_space(const struct tcp_txseg *s)
{
        return s->len + (s->ctl & TCP_FIN);
}
static inline uint32_t txseg_end(const struct tcp_txseg *s)
{
        return s->seq + txseg_space(s);
}
static_assert(TCP_FIN == 1, "txseg_space() adds the bit");
static inline uint32_t flight(const struct tcp_conn *tc)
{
        return tc->snd_nxt - tc->snd_una;
}
/* RFC 6675 pipe, in bytes: what we believe is in the network. Without SACK each duplicate ACK is a
 * segment that left. So is limited transmit (RFC 3042) done: the pipe shrinks, cwnd stays, and
 * cwnd_blocks() lets a new segment out. */
static inline uint32_t pipe_bytes(const struct tcp_conn *tc)
{
        uint32_t out = tc->sacked + tc->lost + tc->dupacks * tc->snd_mss,
                 in = flight(tc) + tc->retx;

        return in > out ? in - out : 0;
}
/* Bytes of TCP's and IP's options in every segment. */
static inline uint32_t conn_options_len(const struct tcp_conn *tc)
{
        return (tc->ts_ok ? 12 : 0) + tc->opts.ip_opts.len;
}
static inline uint32_t frame_owner(const struct tcp_conn *tc)
{
        return tc->self | (uint32_t)tc->gen << 20;
}

/* The next byte that the application reads. */
static inline uint32_t copied_seq(const struct tcp_conn *tc)
{
        return READ_ONCE(tc->rcv_nxt) - !!(READ_ONCE(tc->flags) & TCF_FIN_RCVD) -
               READ_ONCE(tc->rcv_unread);
}
/* FO_OPEN, known from a line that is looked at anyway. */
static inline bool conn_unconfirmed(const struct tcp_conn *tc)
{
        return unlikely(tc->slow & SLOW_STATE) && tc->fastopen & FO_OPEN;
}

static inline bool conn_is_watched(const struct tcp_conn *tc)
{
        return unlikely(tc->slow & SLOW_FLOW) && tc->watch.holds & TCP_WATCH_ON;
}
/* Returns true if the connection is only watched, and header prediction may go on. What it changes
 * is seen when the turn ends, but for a window that shuts and opens within the turn. */
static inline bool conn_is_only_watched(const struct tcp_conn *tc, uint16_t wnd)
{
        return unlikely(tc->slow == SLOW_FLOW) && tc->opts.send_window == 0 && !wnd == !tc->snd_wnd;
}
static inline void conn_slow_flow(struct tcp_conn *tc)
{
        tc->slow =
                (uint8_t)((tc->slow & ~SLOW_FLOW) | ((tc->opts.send_window | tc->opts.unsent_most |
                                                      tc->send_share | tc->stamps) != 0 ||
                                                                     tc->watch.holds & TCP_WATCH_ON
                                                             ? SLOW_FLOW
                                                             : 0));
}

/* The peer's window as far as our own limit lets. It never goes back on what is in flight, as the
 * peer's own may: it is taken with each ACK. */
static inline uint32_t conn_peer_window(const struct tcp_conn *tc, uint32_t wnd)
{
        return likely(tc->opts.send_window == 0) ? wnd
                                                 : MIN(wnd, MAX(tc->opts.send_window, flight(tc)));
}

#endif
