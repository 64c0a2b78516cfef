/*
 * A connection's record, and what all connections of a stack share.
 *
 * For tcp/ and for the stack's loop in netstack/, which keeps its own links in a connection (wheel, out_next,
 * out_queued, events, sock) and reads the tuple. Everything here lies in shared memory: indices, never pointers.
 *
 * The send queue is one list of txsegs in sequence order; each is one contiguous range of one frame:
 *
 *      snd_head                 snd_next              snd_tail
 *         |  sent, not acked       |  not yet sent       |
 *         v                        v                     v
 *      +------+------+------+------+------+------+------+
 *      snd_una              snd_nxt                     snd_end (+ 1 for a queued FIN)
 *
 * The receive side has two: rxsegs in order that the application has not read, and rxsegs beyond a gap.
 *
 *      copied_seq        rcv_nxt                rcv_adv
 *         |  rcv_head ..    |  gaps: ooo_head ..   |
 *         +-----------------+----------------------+
 *           rcv_unread bytes  window offered
 *
 * By credit (opts.credit) rcv_adv is where what was granted ends, and rcv_limit is 0: what is read then offers nothing.
 *
 * Readiness is asked for without the lock. What it is made of is written by WRITE_ONCE(): state, shut, err, urg_state, flags,
 * rcv_nxt, rcv_unread, rcv_up, snd_una, snd_nxt, snd_end, snd_mem, snd_limit, a listener's q_head. A record is made whole before a
 * socket names it.
 *
 * Invariants (tcp_conn_check() spells them): snd_una <= snd_nxt <= snd_end + fin; segments of the send queue abut;
 * rcv_unread is the sum of the in-order queue; the out-of-order queue is sorted, disjoint and beyond rcv_nxt.
 */
#ifndef TCP_TCP_CONN_H
#define TCP_TCP_CONN_H

#include "base/pool.h"
#include "base/wheel.h"
#include "tcp/tcp.h"
#include "tcp/tcp_seq.h"

/* Marks of a txseg; the counterpart of Linux's TCPCB_*. */
enum {
        TXS_SACKED = 1,                 /* the peer has it (RFC 2018) */
        TXS_LOST = 2,                   /* we believe that it was lost */
        TXS_RETX = 4,                   /* retransmitted, and that copy is believed in flight */
        TXS_EVER_RETX = 8,              /* sent more than once: no RTT sample (Karn) */
        TXS_RATE = 16,                  /* has the fields for delivery rates: tcp_rate.h */
        TXS_APP_LIMITED = 32,           /* with it: left after the application had nothing to send */
};

struct tcp_txseg {
        uint32_t next, prev;
        uint32_t seq;
        uint32_t frame;                 /* of the payload; 0 when there is none */
        uint32_t off, len;              /* payload bytes; a FIN takes one more sequence number */
        uint8_t ctl;                    /* TCP_FIN, TCP_PSH to send with it */
        uint8_t marks;
        uint32_t tx_in_flight;          /* with TXS_RATE, what there was when it was sent last: tcp_rate.h */
        nstime sent;                    /* last transmission */
        nstime delivered_time, first_sent;
        uint32_t delivered, lost_before;
};
static_assert(sizeof(struct tcp_txseg) == CACHE_LINE, "a line each");

struct tcp_rxseg {
        _Alignas(8) uint32_t next;
        uint32_t prev;
        uint32_t seq;
        struct buf data;
        uint32_t fin : 1;               /* out of order: a FIN follows the data */
        uint32_t run : 31;              /* and of records without a gap between, the first and the last name each other */
        uint32_t at;                    /* when its last bytes came, in units of 1,024 ns; see tcp_recv_stamp() */
};
static_assert(sizeof(struct tcp_rxseg) == 32, "two in a cache line");
static inline uint32_t rxseg_time(nstime at)
{
        return (uint32_t)(at >> 10);
}
static_assert(offsetof(struct tcp_txseg, off) % 8 == 0 && offsetof(struct tcp_txseg, len) == offsetof(struct tcp_txseg, off) + 4 &&
              offsetof(struct tcp_rxseg, data.off) % 8 == 0, "range_skip()");

#define SND_SEGS_LOG 12                 /* 4,096 full segments in the send queue: a SACK walks through them (CVE-2019-11478) */
#define SND_LIMIT_LEAST 4608u           /* bytes; Linux's SOCK_MIN_SNDBUF: two small frames */

enum {                                  /* tc->owed: what tcp_output() must still send */
        OWE_ACK = 1,
        OWE_SYN = 2,
        OWE_RST = 4,
        OWE_PROBE = 8,                  /* window probe (RFC 9293 §3.8.6.1) */
        OWE_TLP = 16,                   /* tail loss probe (RFC 8985 §7) */
        OWE_KEEP = 32,                  /* keepalive */
        OWE_PUSH = 64,                  /* the small segment at the tail goes now: cork or SWS override timer */
        OWE_FORCE = 128,                /* one retransmission whatever the window of recovery says (RFC 6937) */
};
#define OWE_SPECIAL (OWE_SYN | OWE_RST | OWE_PROBE | OWE_TLP | OWE_KEEP)

enum {                                  /* tc->slow: why header prediction does not apply; 0 and it does */
        SLOW_STATE = 1,                 /* not ESTABLISHED */
        SLOW_OOO = 2,                   /* data beyond a gap is queued */
        SLOW_LOSS = 4,                  /* recovery, SACKed or lost segments, TLP or probes outstanding */
        SLOW_URG = 8,                   /* urgent data announced */
        SLOW_SHUT = 16,                 /* the application reads no more */
        SLOW_NOSACK = 32,               /* duplicate ACKs must be counted */
        SLOW_CLAMP = 64,                /* opts.send_window bounds what each ACK offers */
};

enum { SHUT_RCV = 1, SHUT_SND = 2, SHUT_BOTH = 3 };

enum { CA_OPEN = 0, CA_DISORDER = 1, CA_RECOVERY = 3, CA_LOSS = 4 };    /* 2, Linux's TCP_CA_CWR, is TCF_ECN_CUT here */

enum { TLP_NONE, TLP_OUT, TLP_NEEDLESS };       /* the last: what it was to stand for has arrived */

enum rtx_kind { RTX_NONE, RTX_RTO, RTX_TLP, RTX_REO, RTX_PERSIST };

enum { URG_NONE, URG_ANNOUNCED, URG_HERE, URG_TAKEN };

enum acc_state {                        /* of a connection made by a listener */
        ACC_NONE, ACC_HALF_OPEN, ACC_QUEUED, ACC_TAKEN,
};

enum {                                  /* tc->flags */
        TCF_FIN_QUEUED = 1,             /* FIN follows snd_end */
        TCF_FIN_RCVD = 2,               /* FIN in order was received */
        TCF_SND_FULL = 4,               /* not writable since; TCP_EV_WRITABLE is owed */
        TCF_RSV = 8,                    /* a reservation is out */
        TCF_WAITS = 16,                 /* on the list of those that wait for frames */
        TCF_ACTIVE = 32,                /* opened by us (RFC 9293 MUST-11: SYN-RECEIVED remembers) */
        TCF_MORE = 64,                  /* the last write said that more follows */
        TCF_RATES = 128,                /* delivery rates are measured for congestion control: tcp_rate.h */
        TCF_CLOSED_BY_APP = 256,        /* tcp_close() was called */
        TCF_WND_ZERO = 512,             /* we offered a zero window */
        TCF_TLP_RETX = 1024,            /* the tail loss probe was a retransmission */
        TCF_UNDO = 2048,                /* the last reduction of the window may turn out to be a mistake: tcp_undo.c */
        TCF_DSACK = 4096,               /* dsack block below is to be reported */
        TCF_WSCALE = 8192,              /* both sides scale windows (RFC 7323 §2) */
        TCF_REORDER = 16384,            /* RACK.reordering_seen */
        TCF_URG_OUT = 32768,            /* snd_up is ahead of snd_una */
        TCF_UNDO_SENT = 65536,          /* something was sent again since that reduction */
        TCF_COOKIE = 262144,            /* opened by a SYN cookie: when its SYN-ACK left nobody knows */
        TCF_TRAIN = 524288,             /* the delayed ACK waits for its time, not for the end of a turn: tcp_delack.c */
        TCF_FRTO = 1048576,             /* the timeout may turn out to be a mistake by what is acknowledged next: tcp_undo.c */
        TCF_FRTO_NEW = 2097152,         /* new segments go instead of those marked lost, to find out */
        TCF_ORIG_ACKED = 4194304,       /* with TCF_FRTO: this acknowledgement is of something sent once only */
        TCF_ECN_ASKED = 8388608,        /* the last SYN of ours was an ECN-setup one: tcp_ecn.c */
        TCF_ECN = 16777216,             /* both sides do (RFC 3168) */
        TCF_ECN_SEEN = 33554432,        /* data came that a router may mark */
        TCF_ECN_ECHO = 67108864,        /* what is sent says that some was marked, until CWR comes */
        TCF_ECN_CWR = 134217728,        /* the next new data says that the window was reduced */
        TCF_ECN_CUT = 268435456,        /* it was, by ECE, and until snd_una is beyond ecn_end it is not again */
        TCF_MIN_TTL = 536870912,        /* opts.min_ttl is to be looked at */
        TCF_REPAIR_PROBED = 131072,     /* what recovery waits for was probed for, and nothing came yet */
        TCF_ANSWERED = INT32_MIN,       /* the interface sent the SYN-ACK (struct tcp_answers). The last bit that there is */
        TCF_PACED = 1073741824,         /* cork_at is when pacing lets the next segment go */
};

struct tcp_conn {
        /* -- line 0: who it is -- */
        _Alignas(CACHE_LINE) uint32_t hash_next; /* derived; also the pool's free link: must be first */
        uint32_t self;                  /* own index */
        struct tcp_tuple tuple;
        uint8_t live;                   /* the record is in use: written last when made, first when freed */
        uint8_t state;                  /* enum tcp_state; tcp_set_state() */
        uint8_t slow;                   /* SLOW_* */
        uint8_t owed;                   /* OWE_* */
        uint8_t shut;                   /* SHUT_* */
        uint8_t ca_state;               /* CA_* */
        uint8_t rtx_kind;               /* RTX_* */
        uint8_t backoff;                /* RTO is doubled so often (RFC 6298 §5.5) */
        uint32_t flags;                 /* TCF_* */
        uint32_t events;                /* TCP_EV_*, cleared by the reader */

        /* -- line 1: receiving -- */
        uint32_t rcv_nxt, rcv_adv;      /* rcv_adv: right edge offered */
        uint32_t last_ack_sent;
        uint32_t rcv_head, rcv_tail;    /* rxsegs in order */
        uint32_t rcv_unread;            /* bytes in them */
        uint32_t rcv_fill, rcv_fill_off; /* private frame that small data is copied into */
        uint32_t rcv_limit;             /* receive buffer now */
        uint32_t rcv_full;              /* largest payload received: what a full-sized segment is */
        uint32_t ts_recent;
        uint8_t rcv_wscale, snd_wscale, ts_ok, sack_ok;
        nstime delack_at;
        nstime last_received;

        /* -- line 2: sending -- */
        uint32_t snd_una, snd_nxt, snd_end;
        uint32_t snd_wnd, snd_wl1, snd_wl2;
        uint32_t snd_head, snd_next, snd_tail;  /* txsegs */
        uint32_t snd_mss;               /* largest payload we send: after options */
        uint32_t cwnd, ssthresh;
        uint32_t snd_sml;               /* end of the last small segment sent (Minshall) */
        uint8_t nodelay, cork, cc;      /* of opts, near */
        uint8_t quick;                  /* ACKs at the beginning that wait for the end of the turn only */
        nstime rtx_at;

        /* -- line 3: buffers, counts -- */
        uint32_t snd_fill, snd_fill_off; /* frame that the next bytes written go into */
        uint32_t snd_mem;               /* bytes of transmit frames charged */
        uint32_t snd_limit;             /* send buffer now */
        struct tcp_link link;
        nstime last_sent;               /* data or SYN */
        uint64_t segs_in, segs_out, bytes_received;

        /* -- line 4: round trips -- */
        uint64_t bytes_sent, bytes_acked;
        nstime srtt, rttvar, rto, min_rtt;
        nstime stalled_at;              /* since when the peer has not acknowledged what is owed; 0: it has */
        uint32_t max_wnd;               /* largest window the peer has offered */
        uint8_t limit;                  /* enum tcp_limit now */
        uint8_t urg_state;              /* URG_* */
        uint8_t urg_byte;
        uint8_t acc_state;              /* enum acc_state */

        /* -- loss: RFC 8985 (RACK-TLP), 6937 (PRR), 2018 -- */
        uint32_t sacked, lost, retx;    /* bytes of segments so marked; lost excludes SACKed ones */
        uint32_t dupacks;
        uint32_t flight_peak;           /* the most in flight before an ACK, until snd_una reaches flight_end */
        uint32_t flight_end;
        uint32_t recover;               /* snd_nxt when recovery began */
        uint32_t high_sacked;           /* RACK.fack */
        nstime rack_sent;               /* RACK.xmit_ts */
        nstime rack_rtt;
        uint32_t rack_end;
        uint32_t rack_dsack_round;
        uint8_t rack_mult, rack_persist;
        uint8_t dups;                   /* timeouts in a row without progress */
        uint8_t probes;                 /* unanswered window or keepalive probes */
        uint8_t tlp_out;                /* TLP_*: a tail loss probe is out, and tlp_end was snd_nxt when it left, at tlp_sent */
        uint8_t train;                  /* full-sized segments received without a pause, as far as that matters */
        uint16_t gen;                   /* of this index: see tcp_uncharge() */
        uint32_t tlp_end;
        uint32_t prr_delivered, prr_out, prr_fs;
        uint32_t dsack_dups;
        uint32_t retrans;
        struct tcp_sack_block dsack;    /* RFC 2883, when TCF_DSACK */
        uint64_t bytes_retrans;
        uint32_t undo_cwnd, undo_ssthresh; /* what they were before the last reduction, with TCF_UNDO */
        uint32_t undo_una;              /* snd_una then */
        uint32_t undo_retx;             /* bytes sent again since and not reported as duplicates */
        uint32_t undo_ts;               /* our timestamp on the first of them */

        /* -- seldom -- */
        uint32_t rsv_head, rsv_tail, rsv_bytes; /* txsegs of the reservation */
        uint32_t ooo_head, ooo_tail;
        uint32_t ooo_recent[TCP_MAX_SACK]; /* rxsegs, the first of each run, what grew last first (RFC 2018 §4); 0: none */
        uint32_t rcv_mem;               /* bytes of private frames */
        uint32_t iss, irs;
        uint32_t snd_up, rcv_up;        /* urgent: one past the last urgent byte */
        uint32_t ts_offset;
        uint32_t ts_recent_s;           /* seconds: when ts_recent was taken */
        uint32_t answered_ms;           /* when an ACK last answered what may be one of an attacker's (RFC 5961 §7); 0: never */
        nstime slow_at;                 /* TIME-WAIT, FIN-WAIT-2, keepalive, retirement */
        nstime cork_at;
        nstime drs_at;                  /* receive buffer sizing: one round trip measured from here */
        uint32_t drs_seq;
        uint32_t listener;
        uint32_t acc_order;             /* order of arrival in its queue */
        uint32_t line_next, line_prev;  /* derived: the accept queue, or TIME-WAIT, oldest first; never both */
        uint32_t wait_next, wait_prev;  /* derived: waiting for frames */
        int16_t err, err_soft;          /* positive errno, pending */
        uint16_t mss_clamp;             /* the peer's MSS option */
        uint8_t syn_wscale;             /* what our SYN says, however SO_RCVBUF changes after it; or TCP_NO_WSCALE */
        uint32_t ecn_end;               /* with TCF_ECN_CUT: snd_nxt when it was cut */
        uint32_t fin_end;               /* with TCF_FIN_RCVD: one past the FIN */
        nstime limit_since;
        nstime limited[TCP_LIMITS];
        nstime busy;                    /* time with something in flight, until stalled_at */
        struct tcp_opts opts;
        uint64_t pacing_rate;           /* bytes a second, 0: as fast as it goes; tcp_pace.c */
        nstime pace_at;                 /* the next quantum's time */
        uint32_t pace_quantum, pace_left;
        nstime tlp_sent;

        /* -- the path: tcp_path.c; sizes are payload with TCP's options and IP's -- */
        uint16_t path_mss;              /* what it carries, 0: what the link does */
        uint16_t search_hi;             /* more than this does not get through; 0: no search */
        uint16_t probe;                 /* the size being tried, 0: none */
        uint16_t claim;                 /* what an ICMP error claims, and is not believed yet; 0: nothing */
        uint32_t probe_seq, claim_seq;  /* where the probe begins; the segment that the error quotes */
        uint64_t path_acked;            /* bytes_acked when segments were last made smaller */
        nstime path_at;                 /* a larger size is tried */
        uint8_t path_wait;              /* how often that was put off */

        uint8_t gap_acks;               /* duplicate ACKs since what is expected last moved: delack_owe_gap() */
        uint16_t ooo_records;           /* beyond a gap */

        /* -- trains: tcp_delack.c; in units of 1,024 ns -- */
        uint16_t train_rtt;             /* the round trip that the last data in order told of; no more than fits */
        uint32_t train_at;              /* when it came */

        /* -- the stack's: zeroed when the record is made, not looked at by TCP -- */
        struct wheel_link wheel;
        uint32_t out_next;
        uint32_t sock;                  /* tcp_set_sock(); 0: orphan, or not yet accepted */
        uint8_t out_queued;

        uint64_t cc_priv[32];           /* the congestion control's own: of CUBIC's the first lines */
};
static_assert(offsetof(struct tcp_conn, rcv_nxt) == 64 && offsetof(struct tcp_conn, snd_una) == 128 &&
              offsetof(struct tcp_conn, snd_fill) == 192 && offsetof(struct tcp_conn, bytes_sent) == 256, "lines");
static_assert(offsetof(struct tcp_conn, opts.tos) / CACHE_LINE == offsetof(struct tcp_conn, opts.ip_opts.len) / CACHE_LINE,
              "who looks at the one looks at the other");
static_assert(sizeof(struct tcp_conn) == 1216, "nineteen lines");

/* Marks that are looked at without the lock (tcp_poll_events()). */
static inline void conn_flag(struct tcp_conn *tc, uint32_t flags)
{
        WRITE_ONCE(tc->flags, tc->flags | flags);
}
static inline void conn_unflag(struct tcp_conn *tc, uint32_t flags)
{
        WRITE_ONCE(tc->flags, tc->flags & ~flags);
}
/* After opts.min_ttl: whether a segment has to be asked is known from a line that is looked at anyway. */
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

/* A send buffer of that size is not of more segments than it should be, however small the peer wants them. */
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
        uint32_t hash_next;             /* derived; first, as above */
        uint32_t self;
        uint8_t live;
        uint16_t port;
        ip_addr addr;
        uint32_t backlog;
        uint32_t sock;
        uint32_t events;
        uint32_t order;                 /* next acc_order */
        uint32_t q_head, q_tail;        /* derived: connections to be accepted */
        uint32_t queued, half_open;     /* derived */
        uint32_t sharing;               /* derived: listeners at this address and port, itself among them */
        nstime cookies_until;           /* the last SYN cookie of those that share the port is good no longer; 0: there was none */
        struct tcp_opts opts;
};

#define TCP_CACHE 64u                   /* connections remembered by channel, so that a run of segments skips the hash */

struct tcp_shared {
        struct tcp_limits limits;
        uint8_t secret[16];
        uint64_t conn_hash_off, listen_hash_off; /* from this struct to arrays of indices */
        uint32_t conn_hash_mask, listen_hash_mask;
        uint64_t scratch_off;           /* a bit a record, for tcp_recover() */
        uint32_t tw_head, tw_tail, tw_count;
        uint32_t wait_head;
        uint32_t gen;                   /* last generation given */
        nstime caught_up_at;            /* tcp_caught_up() */
        uint32_t cache[TCP_CACHE];      /* derived */
        uint32_t lent[TCP_CACHE][FRAME_CLASSES];        /* derived: frames of peers that stand in our queues, by channel */
        struct pool conns, listeners, txsegs, rxsegs;
};

/* Records of a pool by index, as pool_at(), with the size known when compiling: these are on every path. */
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
static inline struct tcp_listener *tcp_listener_at(const struct tcp *t, uint32_t i)
{
        return pool_at(&t->sh->listeners, i);
}
static inline void touch(struct tcp *t, const struct tcp_conn *tc)
{
        t->touched(t->arg, tc->self);
}
/* Lent frames that our queues hold, by class, of the channel whose receive region holds `frame`; and those of its class. */
static inline uint32_t *lent_of(const struct tcp *t, uint32_t frame)
{
        return t->sh->lent[(frame_id_region(frame) - 1) / 2 % TCP_CACHE];
}
static inline uint32_t *lent_count(const struct tcp *t, uint32_t frame)
{
        return &lent_of(t, frame)[frame_geom_class(t->frames->region[frame_id_region(frame)].geom, frame_id_num(frame))];
}
/* What is stored before is stored before what follows, to whoever finds the memory after a death: the compiler must not move
 * stores over this; what a processor has executed of a process that is killed is all there. tcp_mend.c says what it needs. */
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
/* A conversation keeps its small frame, warm, from one message to the next; but only so many do: of ten thousand idle
 * connections each would hold 2 KB for nothing. */
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
/* RFC 6675 pipe, in bytes: what we believe is in the network. Without SACK each duplicate ACK is a segment that left. */
static inline uint32_t pipe_bytes(const struct tcp_conn *tc)
{
        uint32_t out = tc->sacked + tc->lost + tc->dupacks * tc->snd_mss, in = flight(tc) + tc->retx;

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

/* The peer's window as far as our own limit lets. It never goes back on what is in flight, as the peer's own may: it is taken with
 * each ACK. */
static inline uint32_t conn_peer_window(const struct tcp_conn *tc, uint32_t wnd)
{
        return likely(tc->opts.send_window == 0) ? wnd : MIN(wnd, MAX(tc->opts.send_window, flight(tc)));
}

/* What the files of tcp/ ask of one another, by file. */

/* tcp_conn.c */
struct tcp_conn *conn_new(struct tcp *t, const struct tcp_tuple *tuple, const struct tcp_link *link,
                          const struct tcp_opts *opts, nstime now);
void tcp_set_state(struct tcp *t, struct tcp_conn *tc, enum tcp_state to);
/* The connection ends now, with an error for the application (0: none). Queues for sending go; unread data stays. */
void conn_done(struct tcp *t, struct tcp_conn *tc, int err);
/* Frees the record when nobody needs it any more. True when it is gone. */
bool conn_reap(struct tcp *t, struct tcp_conn *tc);
void conn_raise(struct tcp *t, struct tcp_conn *tc, uint32_t events);
/* Ends one in TIME-WAIT for the sake of another: named as the one being changed meanwhile (t->busy). */
void conn_end_time_wait(struct tcp *t, struct tcp_conn *tc, enum count why);
void conn_enter_time_wait(struct tcp *t, struct tcp_conn *tc, nstime now);
/* Resets the peer: RST is owed and the connection is CLOSED. */
void conn_reset(struct tcp *t, struct tcp_conn *tc, int err);
void conn_set_limit(struct tcp_conn *tc, enum tcp_limit limit, nstime now);
void conn_size_mss(struct tcp_conn *tc);
/* Bytes that a new connection may have unread, when it is not by credit. */
uint32_t conn_rcv_limit(const struct tcp_opts *o, const struct tcp_link *link);

/* tcp_demux.c */
struct tcp_conn *demux_find(const struct tcp *t, const struct tcp_tuple *tuple);
void demux_add(struct tcp *t, struct tcp_conn *tc);
void demux_remove(struct tcp *t, struct tcp_conn *tc);
/* Whose a new connection is, or NULL. */
struct tcp_listener *demux_listener(const struct tcp *t, const struct tcp_tuple *tuple);
/* Those at a port, at any address, one after the other; NULL: there are no more. */
struct tcp_listener *demux_listener_at(const struct tcp *t, uint16_t port);
struct tcp_listener *demux_listener_next(const struct tcp *t, const struct tcp_listener *l);
void demux_add_listener(struct tcp *t, struct tcp_listener *l);
void demux_remove_listener(struct tcp *t, struct tcp_listener *l);
void demux_clear(struct tcp *t);

/* tcp_iss.c: RFC 6528 */
uint32_t iss_new(const struct tcp *t, const struct tcp_tuple *tuple, nstime now);
uint32_t ts_offset_new(const struct tcp *t, const struct tcp_tuple *tuple);
/* A keyed function of the two ends, another one for each purpose. */
uint32_t iss_function(const struct tcp *t, const struct tcp_tuple *tuple, uint64_t purpose);

/* tcp_cookie.c: RFC 4987 */
/* Answers a SYN that there is no record for. */
void cookie_answer(struct tcp *t, struct tcp_listener *l, const struct tcp_tuple *tuple, const struct tcp_link *link,
                   const struct tcp_seg *syn, nstime now);
/* The scale that such an answer says: SO_RCVBUF may have changed when it is acknowledged. */
uint8_t cookie_wscale(void);
/* Whether a segment acknowledges such an answer; then what is known of its SYN. */
bool cookie_good(const struct tcp *t, const struct tcp_listener *l, const struct tcp_tuple *tuple, const struct tcp_seg *seg,
                 struct tcp_seg *syn, nstime now);

/* tcp_listen.c */
/* True: as of tcp_input(). */
bool listen_input(struct tcp *t, struct tcp_listener *l, const struct tcp_tuple *tuple, const struct tcp_link *link,
                  const struct tcp_seg *seg, uint32_t min_iss, nstime now);
/* A connection in SYN-RECEIVED became ESTABLISHED: false when there is no room for it (stay, the peer will retry). */
bool listen_room(const struct tcp *t, const struct tcp_conn *tc);
void listen_established(struct tcp *t, struct tcp_conn *tc);
void listen_forget(struct tcp *t, struct tcp_conn *tc);
void listen_requeue(struct tcp *t, struct tcp_conn *tc);

/* tcp_ecn.c */
/* Whether a SYN's sender can do it, and we want to. */
bool ecn_agrees(const struct tcp_opts *o, const struct tcp_link *link, const struct tcp_seg *syn);
/* The peer's SYN or SYN-ACK; its SYN once more. */
void ecn_syn(struct tcp_conn *tc, const struct tcp_seg *seg);
void ecn_syn_again(struct tcp_conn *tc, const struct tcp_seg *seg);
/* What ours says, and that it was refused: true, when it is to be sent again without. */
uint8_t ecn_syn_flags(struct tcp_conn *tc);
bool ecn_syn_refused(struct tcp_conn *tc);
/* A segment with new data leaves. */
void ecn_mark(struct tcp_conn *tc, struct tcp_seg *seg);
/* An acceptable segment of a connection with TCF_ECN. */
void ecn_input(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now);
/* ... acknowledges, and says ECE or not. True: the window is not to grow by it. */
bool ecn_ack(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t acked, nstime now);
/* Whether what carries no new data leaves as ECT, too. */
bool ecn_on_all(const struct tcp_conn *tc);
/* The window was reduced for another reason; and that was a mistake. */
void ecn_reduced(struct tcp_conn *tc);
void ecn_restored(struct tcp_conn *tc);

/* tcp_open.c */
/* Whether an address can be an end of a connection: not multicast, not broadcast, not unspecified. */
bool open_address_ok(ip_addr a);
void open_syn_options(struct tcp_conn *tc, const struct tcp_seg *seg, nstime now);
uint8_t open_wscale(const struct tcp_opts *o);
void open_established(struct tcp *t, struct tcp_conn *tc, nstime now);

/* tcp_close.c */
/* FIN after what is queued; from ESTABLISHED or CLOSE-WAIT. */
void close_send(struct tcp *t, struct tcp_conn *tc);
/* SND.UNA has moved: if our FIN is acknowledged now, what follows from it. False: the connection takes no more segments. */
bool close_fin_acked(struct tcp *t, struct tcp_conn *tc, nstime now);
/* The peer's FIN came, in order. */
void close_fin_received(struct tcp *t, struct tcp_conn *tc, nstime now);

/* tcp_ack.c */
bool ack_input(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now);
void ack_fast(struct tcp *t, struct tcp_conn *tc, uint32_t ack, nstime now);

/* tcp_mend.c */
/* The connection that a process was changing when it died, in two steps: queues, numbers and state before everything derived
 * is made anew, the rest after it. False: it cannot be mended. */
bool mend_queues(struct tcp *t, struct tcp_conn *tc);
void mend_finish(struct tcp *t, struct tcp_conn *tc, nstime now);

/* tcp_path.c */
void path_init(struct tcp *t, struct tcp_conn *tc, nstime now);
/* Its timer on slow_at, which others have set. */
void path_arm(struct tcp_conn *tc);
void path_expire(struct tcp *t, struct tcp_conn *tc, nstime now);
/* An ICMP error about the segment at `seq`, which is in flight, claims this MTU. */
void path_claim(struct tcp *t, struct tcp_conn *tc, uint32_t seq, uint32_t mtu, nstime now);
/* A retransmission timeout, counted in tc->dups; before anything is done about it. */
void path_timeout(struct tcp *t, struct tcp_conn *tc, nstime now);
/* While a probe is out (tc->probe): something was acknowledged; something was marked lost. */
void path_ack(struct tcp *t, struct tcp_conn *tc, nstime now);
void path_probe_lost(struct tcp *t, struct tcp_conn *tc, nstime now);
/* It will not be known whether the probe gets through: it was cut, or a process died. */
void path_forget_probe(struct tcp_conn *tc, nstime now);
/* An unsent segment is larger than SND.MSS: whether it is to leave so. */
bool path_is_probe(const struct tcp_conn *tc, const struct tcp_txseg *s);

/* tcp_sndbuf.c */
void sndbuf_purge(struct tcp *t, struct tcp_conn *tc);
/* Cuts s so that `at` bytes stay in it; the rest becomes the segment after it. False: no record free. */
bool txseg_split(struct tcp *t, struct tcp_conn *tc, struct tcp_txseg *s, uint32_t at);
/* The reverse, when what follows lies right behind and both together are no longer than `most`. False: not so. */
bool txseg_merge(struct tcp *t, struct tcp_conn *tc, struct tcp_txseg *s, uint32_t most);
/* Takes the head off the queue and frees it. */
void txseg_free_head(struct tcp *t, struct tcp_conn *tc);
void txseg_trim(struct tcp *t, struct tcp_conn *tc, struct tcp_txseg *s, uint32_t bytes);
bool sndbuf_writable(const struct tcp *t, const struct tcp_conn *tc);
/* Most of what fills the send buffer is acknowledged, in frames that the peer gives back when its program has read them. */
bool sndbuf_is_lent(const struct tcp_conn *tc);
void sndbuf_freed(struct tcp *t, struct tcp_conn *tc);
void sndbuf_queue_fin(struct tcp *t, struct tcp_conn *tc);
/* Those that wait for frames of the region look again; of ANY_REGION, when records came back, which all share. */
#define ANY_REGION UINT32_MAX
void sndbuf_wake(struct tcp *t, uint32_t region);
void sndbuf_unwait(struct tcp *t, struct tcp_conn *tc);
void sndbuf_resegment(struct tcp *t, struct tcp_conn *tc);
void sndbuf_drop_fill(struct tcp *t, struct tcp_conn *tc);
void sndbuf_idle(struct tcp *t, struct tcp_conn *tc);
void sndbuf_unsend_probe(struct tcp *t, struct tcp_conn *tc);

/* tcp_rcvbuf.c */
/* Takes `len` bytes of the segment, from `skip` on, as a range that the connection owns: a copy in a private frame or
 * the lent frame itself (*took). False when there is no memory. */
bool rcvbuf_take(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t skip, uint32_t len,
                 struct buf *out, bool *took);
/* The same, always a copy. */
bool rcvbuf_copy(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t skip, uint32_t len, struct buf *out);
bool rcvbuf_append(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t skip, uint32_t len,
                   bool *took);
void rcvbuf_link(struct tcp *t, struct tcp_conn *tc, uint32_t rxseg);
void rcvbuf_purge(struct tcp *t, struct tcp_conn *tc);
/* Records at the head with nothing left in them go. */
void rcvbuf_drop_empty(struct tcp *t, struct tcp_conn *tc);
void rcvbuf_free_buf(struct tcp *t, struct tcp_conn *tc, uint32_t frame);
void rcvbuf_autosize(const struct tcp *t, struct tcp_conn *tc, nstime now);
/* The largest window that can be offered: the buffer, as far as 16 bits and the scale can say it. */
static inline uint32_t rcvbuf_limit(const struct tcp_conn *tc)
{
        return MIN(READ_ONCE(tc->rcv_limit), (uint32_t)UINT16_MAX << READ_ONCE(tc->rcv_wscale));
}
/* What can be offered now, when it is not by credit. */
static inline uint32_t rcvbuf_window(const struct tcp_conn *tc)
{
        uint32_t limit = rcvbuf_limit(tc), unread = READ_ONCE(tc->rcv_unread);

        return limit > unread ? limit - unread : 0;
}
/* What a SYN offers, before a scale holds, as far as 16 bits can say it. */
static inline uint32_t rcvbuf_first_window(const struct tcp_conn *tc)
{
        return tc->opts.credit ? tc->opts.window_first : rcvbuf_window(tc);
}
/* tcp_window.c: the right edge, when the peer's SYN is known; rcv_limit, by these options. */
void rcvbuf_open(struct tcp_conn *tc);
uint32_t rcvbuf_limit_by(const struct tcp_conn *tc, const struct tcp_opts *o);
static inline uint32_t copied_seq(const struct tcp_conn *tc)
{
        return READ_ONCE(tc->rcv_nxt) - !!(READ_ONCE(tc->flags) & TCF_FIN_RCVD) - READ_ONCE(tc->rcv_unread);
}

/* tcp_reass.c */
bool reass_insert(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t seq, uint32_t skip,
                  uint32_t len, bool fin, bool *took);
/* What is derived of the queue, after a death: runs, counts. */
void reass_remake(struct tcp *t, struct tcp_conn *tc);
/* Moves what has become in order to the receive queue; true when a FIN came with it. */
bool reass_drain(struct tcp *t, struct tcp_conn *tc);
void reass_purge(struct tcp *t, struct tcp_conn *tc);

/* tcp_sack.c */
unsigned sack_write(const struct tcp *t, struct tcp_conn *tc, struct tcp_sack_block *out, unsigned room);
void sack_note_dup(struct tcp_conn *tc, uint32_t left, uint32_t right);
/* Marks what the peer reports. */
void sack_input(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now);

/* tcp_rack.c */
void rack_update(struct tcp_conn *tc, const struct tcp_txseg *s, nstime now);
void rack_detect(struct tcp *t, struct tcp_conn *tc, nstime now);
void rack_dsack(struct tcp_conn *tc);
void rack_mark_lost(struct tcp_conn *tc, struct tcp_txseg *s);
void tlp_input(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t acked, bool moved, nstime now);
/* The peer reports the last probe as a duplicate: a timer sent it, not a judgement about what is lost (as Linux). */
static inline bool tlp_dup(const struct tcp_conn *tc, const struct tcp_sack_block *b)
{
        return tc->flags & TCF_TLP_RETX && b->right == tc->tlp_end;
}

/* tcp_undo.c: the window was about to be reduced; nothing more can undo that; `seg` was sent again; the peer reports b as a
 * duplicate; an acknowledgement of `acked` bytes, before recovery sees it. undo_timeout(): by a timeout, `first` where nothing was
 * being recovered. */
void undo_begin(struct tcp_conn *tc);
void undo_timeout(struct tcp_conn *tc, bool first);
void undo_forget(struct tcp_conn *tc);
void undo_resent(struct tcp_conn *tc, const struct tcp_seg *seg);
void undo_duplicate(struct tcp_conn *tc, const struct tcp_sack_block *b);
void undo_ack(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t acked);
/* One that a later one has overtaken may bring the report of the last duplicate. */
void undo_old_ack(struct tcp *t, struct tcp_conn *tc);

/* tcp_recovery.c */
/* By an ACK that delivers so many bytes, or by none. */
void recovery_enter(struct tcp *t, struct tcp_conn *tc, uint32_t delivered, nstime now);
void recovery_ack(struct tcp *t, struct tcp_conn *tc, uint32_t acked, uint32_t delivered, nstime now);
/* Nothing comes: the first segment once more, whatever became of it. */
void recovery_probe(struct tcp *t, struct tcp_conn *tc);
void recovery_timeout(struct tcp *t, struct tcp_conn *tc, nstime now);
void recovery_set_slow(struct tcp_conn *tc);

/* tcp_prr.c */
/* Recovery begins by an ACK that delivers so many bytes. */
void prr_init(struct tcp_conn *tc, uint32_t delivered);
/* On each ACK in recovery: `delivered` bytes are newly acknowledged or SACKed. safe: it moved SND.UNA, and nothing more is lost. */
void prr_ack(struct tcp_conn *tc, uint32_t delivered, bool safe);

/* tcp_rtt.c: RFC 6298 */
void rtt_init(struct tcp_conn *tc);
void rtt_sample(struct tcp_conn *tc, nstime rtt);
nstime rtt_rto(const struct tcp_conn *tc);      /* with back-off */
void rtt_bounds(struct tcp_conn *tc);           /* opts.rto_* have changed */

/* tcp_timer.c */
void timer_arm_rtx(struct tcp_conn *tc, nstime now);
/* More was sent: the retransmission timer runs on (RFC 6298 §5.1), the tail loss probe waits for the new tail (RFC 8985 §7.2). */
void timer_arm_probe(struct tcp_conn *tc, nstime now);
void timer_persist(struct tcp_conn *tc, nstime now);
void timer_keepalive(struct tcp_conn *tc, nstime now);

/* tcp_pace.c */
/* From now on, at `rate` bytes a second (0: as fast as it goes) and in quanta of `least` bytes at least; or at SO_MAX_PACING_RATE,
 * where that is less. */
void pace_set(struct tcp_conn *tc, uint64_t rate, uint32_t least);
/* The rest where there is a rate: whether nothing may leave yet (a timer is set then); `len` bytes leave. */
bool pace_waits(struct tcp_conn *tc, nstime now);
void pace_sent(struct tcp_conn *tc, uint32_t len);

/* tcp_output.c */
void output_window_update(struct tcp *t, struct tcp_conn *tc, nstime now);
/* An ACK of what has come, which leaves before anything else of the connection: of the peer's FIN, before the record goes; of what
 * came before a mark. */
void output_ack_now(struct tcp *t, struct tcp_conn *tc, nstime now);
/* `len` bytes of the segment came in order, and are to be acknowledged at once or later: tcp_delack.c. */
void delack_owe(struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t len, nstime now);
/* ... and the end of the stream. The state is still the one in which it came. */
void delack_owe_end(struct tcp_conn *tc, nstime now);
/* ... and a wider window, for which the peer does not wait. */
void delack_owe_window(struct tcp_conn *tc, nstime now);
/* ... and for a segment beyond a gap. */
void delack_owe_gap(struct tcp_conn *tc, const struct tcp_seg *seg, nstime now);
/* As output of its SYN-ACK, which the peer has had since `at`. */
void output_answered(struct tcp *t, struct tcp_conn *tc, nstime at, nstime now);
/* A RST for a segment that belongs nowhere (RFC 9293 §3.10.7.1), by t->reply. */
void output_refuse(struct tcp *t, const struct tcp_tuple *tuple, const struct tcp_seg *seg);
/* RFC 5961 §7: an ACK that may answer an ACK, or a guess, would be one too many; else it is counted as sent. Each connection counts its
 * own: what all share tells an attacker on one of them what he hit elsewhere (CVE-2016-5696). */
bool output_answers_too_often(struct tcp_conn *tc, nstime now);
void output_challenge(struct tcp *t, struct tcp_conn *tc, nstime now);

/* Whether tcp_output() may have something to do: asked before room is. */
static inline bool tcp_output_due(const struct tcp_conn *tc)
{
        return tc->snd_next != 0 || tc->owed != 0 || unlikely(tc->state < TCPS_ESTABLISHED) || unlikely(tc->lost > tc->retx) ||
               unlikely(tc->flags & TCF_FIN_QUEUED);
}

#endif
