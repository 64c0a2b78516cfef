/*
 * TCP: what the rest of the stack may call.
 *
 * The protocol is a function of (connection, segment, now). It reads no clock, sends no packet,
 * takes no lock, blocks on nothing and allocates from fixed pools only. tcp_input() records what is
 * owed; tcp_output() is the one place that builds segments for a connection: new data,
 * retransmissions, probes, SYN, FIN, RST and pure ACKs.
 *
 *      for each segment that arrives:       tcp_rx()
 *      for each connection touched:         while (room in the NI queue && tcp_output(...)) emit it
 *      then:                                reschedule it for tcp_deadline(), look at tc->events
 *      when the deadline has come:          tcp_expire(), then tcp_output() as above
 *
 * All of TCP's state is in one shared block (struct tcp_shared: pools, demultiplexing, secrets,
 * counters), which the processes of a stack map at different addresses: links are pool indices, 0
 * is none, and there are no pointers in it. struct tcp is one process's view. Primary records are
 * connections and listeners with the queues they own; hash chains, free lists, wheel links and
 * frame reference counts are derived, see tcp_recover().
 *
 * Read first: RFC 9293 §3.3, §3.10; 7323 (options), 5681 and 6582 (NewReno), 9438 (CUBIC), 6298
 * (RTO), 2018 and 2883 (SACK, D-SACK), 8985 (RACK-TLP), 6937 (PRR), 3168 (ECN), 5961 (blind
 * attacks), 6191 (TIME-WAIT), 6528 (ISS), 7413 (Fast Open), 1122 §4.2.
 */
#ifndef TCP_TCP_H
#define TCP_TCP_H

#include "ip/ip_opts.h"
#include "base/base.h"
#include "base/counters.h"
#include "base/frame.h"
#include "base/sockbuf.h"

enum { /* RFC 9293 §3.1, the control bits as on the wire */
       TCP_FIN = 0x01,
       TCP_SYN = 0x02,
       TCP_RST = 0x04,
       TCP_PSH = 0x08,
       TCP_ACK = 0x10,
       TCP_URG = 0x20,
       TCP_ECE = 0x40,
       TCP_CWR = 0x80,
};

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

#define TCP_MAX_SACK   4
#define TCP_MAX_COOKIE 16
#define TCP_MIN_HDR    20u
#define TCP_MAX_HDR    60u
#define TCP_NO_WSCALE  0xff

struct tcp_sack_block {
        uint32_t left, right;
};

/* One segment in host order; the same for what arrives and what leaves. */
struct tcp_seg {
        uint16_t sport, dport;
        uint32_t seq, ack;
        uint32_t len; /* payload bytes (SYN and FIN not counted) */
        uint16_t wnd; /* as on the wire, unscaled */
        uint16_t urg;
        uint8_t flags;
        uint8_t wscale; /* option on a SYN, TCP_NO_WSCALE: absent */
        uint16_t mss;   /* option on a SYN, 0: absent */
        bool sack_ok, has_ts;
        uint8_t nsack;
        uint8_t ecn; /* IP's bits, enum of ip/ip.h: what came, or what is to leave (RFC 3168 §5) */
        uint8_t ttl; /* what came, for opts.min_ttl */
        /* Fast Open option on a SYN (RFC 7413 §4.1.1): 1 + bytes of `cookie`; 0: absent. */
        uint8_t fastopen;
        bool fastopen_old; /* ... by its experimental number */
        uint32_t tsval, tsecr;
        union {
                struct tcp_sack_block sack[TCP_MAX_SACK]; /* no SYN has any */
                uint8_t cookie[TCP_MAX_COOKIE];
        };
        /* Payload: bytes at `inl` when it came in the descriptor (valid for the call), else the
         * range `data`. */
        const uint8_t *inl;
        struct buf data;
        /* Nobody has summed the payload, which is at `inl`: all else sums to `sum`, the pseudo
         * header with it (base/checksum.h). */
        bool unsummed;
        uint32_t sum;
};

/* Parses a header and its options; `p` has n bytes, header first. Returns the header's length, or
 * -DROP_* (counters.h) when it is malformed. Checksums are verified by the caller, who has the
 * pseudo-header. seg->len is left alone, seg->ecn is none, and nothing is unsummed. */
int tcp_hdr_parse(const uint8_t *p, size_t n, struct tcp_seg *seg);
/* Writes the header with options, checksum field zero; returns its length, <= TCP_MAX_HDR. What it
 * writes parses back. */
unsigned tcp_hdr_write(const struct tcp_seg *seg, uint8_t *p);

/* The two ends, seen from here. */
struct tcp_tuple {
        ip_addr laddr, raddr;
        uint16_t lport, rport;
        uint16_t chan; /* channel the peer is behind; part of the key */
};

/* What the link means to TCP: from unet_caps, when a connection is made. */
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
        uint32_t time_wait_max; /* more than this and the oldest in TIME-WAIT goes */
};

/* When asked; never; always, and asks (Linux's tcp_ecn 2, 0, 1). */
enum tcp_ecn { TCP_ECN_ACCEPT, TCP_ECN_NO, TCP_ECN_ASK };

enum { /* RFC 7413 */
       /* connecting: a cookie is asked for, and with one data goes in the SYN. */
       TCP_FASTOPEN_USE = 1,
       TCP_FASTOPEN_BARE = 2,  /* data goes, and is taken, without a cookie */
       TCP_FASTOPEN_SERVE = 4, /* a listener: fastopen_most holds */
       TCP_FASTOPEN_MORE = 8,  /* from here on the bits are the socket layer's */
};
#define TCP_FASTOPEN_KEYS 2 /* as many as Linux has: the old one is good for a while */

struct tcp_opts {                /* of one connection; a listener's are inherited */
        uint32_t rcvbuf, sndbuf; /* bytes; 0: sizes itself */
        uint16_t maxseg;         /* TCP_MAXSEG, 0: the link's */
        uint8_t nodelay, cork, quickack, keepalive, oobinline;
        uint8_t cc; /* enum of tcp_cc.h; see tcp_cc_lookup() */
        uint8_t syncnt, keepcnt;
        uint8_t tos, ttl;
        /* What comes with less is no peer's, but from farther away (RFC 5082); 0: all is taken. */
        uint8_t min_ttl;
        uint8_t no_timestamps, no_sack, no_wscale;
        uint8_t ecn;       /* enum tcp_ecn */
        uint8_t reuseport; /* SO_REUSEPORT: a listener shares its port with others that say so */
        struct ip_optbuf ip_opts; /* IP options of all that is sent; segments are so much shorter.
                                   * Not inherited: a connection that was opened from outside has
                                   * what answers its SYN's */
        uint8_t credit; /* the window is what was granted (tcp_window_grant()), whatever is read */
        uint8_t save_syn; /* TCP_SAVE_SYN: 1; 2: with the link's header */
        int32_t linger_s; /* -1 off; 0 reset on close; else seconds (the socket layer waits) */
        uint32_t keepidle_s, keepintvl_s;
        uint32_t user_timeout_ms; /* 0: R2 of RFC 1122 §4.2.3.5 */
        uint32_t fin_wait2_s;     /* TCP_LINGER2 */
        uint32_t notsent_lowat;   /* TCP_NOTSENT_LOWAT, bytes, 0: off */
        uint32_t unsent_most;  /* never more accepted and unsent, to the byte; 0: no such limit */
        uint32_t window_clamp; /* bytes, 0: none */
        uint64_t max_pacing_rate; /* bytes a second, 0: none */
        uint32_t defer_accept_s;
        /* The largest that is ever offered, which the scale is chosen for; 0: what the buffer
         * may become. */
        uint32_t window_most;
        uint32_t window_first; /* with credit: what a connection has to begin with */
        uint32_t send_window;  /* no more in flight, whatever the peer offers; 0: no such limit */
        uint32_t rto_min_us, rto_max_ms; /* 0: the link's; RFC 6298's */
        /* An acknowledgement waits no longer; 0: as long as it does by itself. */
        uint32_t ack_delay_us;
        /* Bytes that are acknowledged at once, and no fewer before their time; 0: tcp_delack.c. */
        uint32_t ack_every;
        /* Bytes that may leave back to back where there is a rate; 0: tcp_pace.c. */
        uint32_t pace_burst;
        /* Of a listener: connections that a SYN opened and nobody confirmed; 0: none is
         * opened so. */
        uint32_t fastopen_most;
        uint8_t fastopen; /* TCP_FASTOPEN_* below */
        /* Of a listener: how many of the next; 0: the stack's own is the only one. */
        uint8_t fastopen_keys;
        uint8_t fastopen_key[TCP_FASTOPEN_KEYS][16]; /* the first makes cookies, each is good */
};

/* A SYN's headers as they came. */
struct tcp_syn {
        const uint8_t *ip, *tcp;
        uint8_t ip_len, tcp_len;
};
#define TCP_SAVED_SYN_MOST 134u /* Ethernet's header, IP's and TCP's */

struct tcp_shared; /* tcp_conn.h */
struct tcp_conn;

/* How a SYN was answered before it came here: with our SYN-ACK, of that sequence number, window and
 * scale, timestamps and SACK. */
struct tcp_answer {
        nstime at;
        uint32_t iss;
        uint16_t wnd; /* as on the wire */
        uint8_t wscale;
};

/* Who answers SYNs before they come here (netstack/stack_answer.c). `arg` is that of struct tcp. */
struct tcp_answers {
        /* Whether this one was answered, and how. */
        bool (*took)(void *arg, const struct tcp_tuple *tuple, uint32_t seq, struct tcp_answer *a);
        /* One connection more (1) or less (-1) has these ends. */
        void (*count)(void *arg, const struct tcp_tuple *tuple, int by);
        /* A connection came about; the next SYN of its peer to its port may be answered as its was:
         * tcp_answer_of(). There is room for so many, at least one. */
        void (*learn)(void *arg, const struct tcp_conn *tc, uint32_t room);
        /* Its SYN was answered, and the SYN-ACK has to be repeated: the answer did not arrive. */
        void (*lost)(void *arg, const struct tcp_conn *tc);
        /* What a SYN is answered with may be another thing now, or nothing. */
        void (*forget)(void *arg);
};

/* A process's view: the shared block and what is handed in. */
struct tcp {
        struct tcp_shared *sh;
        struct frames *frames;
        struct counters *cnt;
        /* A segment that belongs to no connection must leave (RST to a closed port, ACK from
         * TIME-WAIT). Best effort. */
        void (*reply)(void *arg, const struct tcp_tuple *to, const struct tcp_seg *seg);
        /* A connection has something for the stack: output to run, a deadline to set, events to
         * show. May be called several times; the stack keeps one link. Every call below that
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
        /* Where the connection that is about to be changed is noted, for a successor
         * (tcp_recover()): by tcp_rx(), and when one is made or one in TIME-WAIT ends for the sake
         * of another. May be NULL. */
        uint32_t *busy;
};

size_t tcp_shared_bytes(const struct tcp_limits *l);
/* Makes the block in zeroed memory. `secret` seeds ISS (RFC 6528) and hashes; now starts the
 * ISS clock. */
void tcp_shared_init(struct tcp_shared *sh, const struct tcp_limits *l, const uint8_t secret[16]);
/* Whether the block is laid out as these limits have it. */
bool tcp_shared_is(const struct tcp_shared *sh, const struct tcp_limits *l);
struct tcp_conn *tcp_conn_at(const struct tcp *t, uint32_t conn);

/* What a connection has to say to the socket layer, in tc->events; cleared by the reader. */
enum {
        TCP_EV_READABLE = 1, /* data or end of stream to read */
        TCP_EV_WRITABLE = 2, /* room in the send buffer again, after there was none */
        TCP_EV_CONNECTED = 4,
        TCP_EV_CLOSED = 8, /* no more will happen: reset, timed out, or closed both ways */
        TCP_EV_URGENT = 16,
        TCP_EV_ACCEPT = 32, /* raised for the listener */
        TCP_EV_FLOW = 64,   /* something that tcp_watch_set() asks for: for poll sets */
};

/* ---- opening ---- */

/* Active open (RFC 9293 §3.10.1): a connection in SYN-SENT, its index, or -errno: -EADDRINUSE when
 * the tuple is in TIME-WAIT (and RFC 6191 does not let it go), -EADDRNOTAVAIL when it is in use,
 * -ENOBUFS, -ENETUNREACH for an address that cannot take part. */
int tcp_connect(struct tcp *t, const struct tcp_tuple *tuple, const struct tcp_link *link,
                const struct tcp_opts *opts, nstime now);
/* Where the search for a client port begins, from one to another address and port: told by nothing
 * that strangers see of other connections (RFC 6056 §3.3.3, F). `to->lport` is not looked at. */
uint32_t tcp_port_offset(const struct tcp *t, const struct tcp_tuple *to);
/* Passive open. addr may be any. Index of the listener, -EADDRINUSE or -ENOBUFS. Several may have
 * the same address and port when all have opts.reuseport: a hash of both ends says whose a new
 * connection is, the same one's as long as none comes or goes. */
int tcp_listen(struct tcp *t, ip_addr addr, uint16_t port, uint32_t backlog,
               const struct tcp_opts *opts);
void tcp_listen_backlog(struct tcp *t, uint32_t listener, uint32_t backlog);
/* Closes a listener: connections not yet accepted are reset; of those half open nothing more is
 * said, but where nothing is lost. */
void tcp_unlisten(struct tcp *t, uint32_t listener);
/* What a listener's connections are to be like from here on. */
void tcp_listen_opts(struct tcp *t, uint32_t listener, const struct tcp_opts *opts);
/* The SYN-ACK that a connection was opened with, from outside; numbers and timestamps are
 * its own. */
void tcp_answer_of(const struct tcp_conn *tc, struct tcp_seg *seg);
/* count() of struct tcp_answers, for each connection of a channel. */
void tcp_count_all(struct tcp *t, uint16_t chan);
/* The oldest connection that is ESTABLISHED and not yet taken, or 0. */
uint32_t tcp_accept(struct tcp *t, uint32_t listener);
/* The same one, and it is not taken. */
uint32_t tcp_accept_next(const struct tcp *t, uint32_t listener);
bool tcp_acceptable(const struct tcp *t, uint32_t listener);
/* Returns true if one waits, or is being opened. */
bool tcp_expects(const struct tcp *t, uint32_t listener);
/* Cookie of the socket layer, kept with the record (0: nobody, an orphan). */
void tcp_set_sock(struct tcp *t, uint32_t conn, uint32_t sock);
void tcp_listener_set_sock(struct tcp *t, uint32_t listener, uint32_t sock);

/* With TCP_FASTOPEN_USE, and a cookie of the peer's: the SYN has not left. It takes along what is
 * written first, as far as it goes in. Or it leaves without that. */
bool tcp_fastopen_waits(const struct tcp_conn *tc);
void tcp_fastopen_go(struct tcp *t, struct tcp_conn *tc, nstime now);

/* ---- input, output, time ---- */

/* A segment arrived on a channel; checksum and addresses are verified, or it is `unsummed`: then
 * what is wrong is dropped here, and what is next in its stream is summed while it is copied.
 * Demultiplexes, answers for closed ports, else tcp_input(). True when seg->data was taken (a lent
 * frame now belongs to a queue), false: the caller releases it. */
bool tcp_rx(struct tcp *t, const struct tcp_tuple *tuple, const struct tcp_link *link,
            const struct tcp_seg *seg, nstime now);
/* A turn has taken all there was off a channel that is not lossless. Where none does in a whole
 * round trip, whoever reads is what is slow, and no window is (rcvbuf_autosize()). */
void tcp_caught_up(struct tcp *t, nstime now);
/* RFC 9293 §3.10.7, in its order; for a connection found, and a segment that is not `unsummed`. As
 * tcp_rx for the return value. */
bool tcp_input(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now);
/* The next segment, if one is due. Its payload is in a frame of link.tx_region; the stack lends it
 * when it posts it. */
bool tcp_output(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, nstime now);
/* After tcp_output() has given a segment of new data, with nothing in between: the next one, when
 * it is due too and differs in nothing but its place, right behind it, and PSH (`flags`: 0 or
 * TCP_PSH). As tcp_output() then gives it, for much less; false: ask that. Only full segments, and
 * never the last of what is queued. */
bool tcp_output_next(struct tcp *t, struct tcp_conn *tc, struct buf *data, uint8_t *flags,
                     nstime now);
/* An acknowledgement that was being delayed is due now; called at the end of a turn, before the
 * stack waits. One that covers a train (tcp_delack.c) waits for its time all the same;
 * tcp_ack_waits(): there is one of the other kind. */
void tcp_flush_ack(struct tcp *t, struct tcp_conn *tc);
bool tcp_ack_waits(const struct tcp_conn *tc);
/* Until when the ACK of a train is held for more of it; NSTIME_NEVER: none is. No lock needed. */
nstime tcp_train_until(const struct tcp_conn *tc);
/* Call tcp_expire() no later than this. */
nstime tcp_deadline(const struct tcp_conn *tc);
void tcp_expire(struct tcp *t, struct tcp_conn *tc, nstime now);
/* ICMP error about a segment of ours (RFC 5927 checks are made here). err is an errno; unreachable:
 * the peer or its port is. mtu: what a "fragmentation needed" claims (pmtu_claim()), 0: another
 * error, or no claim. Paths: tcp_path.c. */
void tcp_icmp(struct tcp *t, const struct tcp_tuple *tuple, uint32_t seq, int err, bool unreachable,
              uint32_t mtu, nstime now);
/* The link carries segments of `mss` bytes from now on (IP packets less 40 bytes): what is
 * longer is cut and sent again, and new data may be longer at once. Not for a channel that is a
 * ring in memory. */
void tcp_set_link_mss(struct tcp *t, struct tcp_conn *tc, uint32_t mss, nstime now);
/* The channel is to go, and takes a last turn of output: its connections are reset, and their
 * peers told. */
void tcp_chan_leave(struct tcp *t, uint16_t chan, int err);
/* The channel died: its connections are reset, without a segment. */
void tcp_chan_down(struct tcp *t, uint16_t chan, int err, nstime now);

/* ---- memory ---- */

/* For frames.uncharge: a frame that a connection was charged for is free again. `owner` is what TCP
 * gave to frame_alloc(): connection and generation, so that a late one cannot hit a later
 * connection of the same index. */
void tcp_uncharge(struct tcp *t, uint32_t owner, uint32_t bytes);
/* Frames of a transmit region came back: connections that found it empty become writable. Call
 * after reaping. */
void tcp_frames_back(struct tcp *t, uint32_t region);

/* ---- the application's side; conn is ESTABLISHED or the call returns its error as -errno ---- */

/*
 * Sending is reserve, copy without the lock, commit. reserve offers up to `want` bytes of frames in
 * up to n spans and returns the bytes offered; 0: buffer full (TCP_EV_WRITABLE will come); -EPIPE,
 * -ECONNRESET, -ENOTCONN, ... One reservation a connection at a time; -EBUSY while another holds
 * it. commit takes the first `bytes` of what was offered (0: cancel). `more`: more follows soon
 * (MSG_MORE). `urgent`: the last byte is urgent data (MSG_OOB).
 */
int tcp_send_reserve(struct tcp *t, struct tcp_conn *tc, size_t want, struct span *span, int n);
/* What is reserved is written where it lies, and not copied there: its frames are used again first
 * (frame_near). */
void tcp_send_in_place(struct tcp *t, const struct tcp_conn *tc);
void tcp_send_commit(struct tcp *t, struct tcp_conn *tc, size_t bytes, bool more, bool urgent,
                     nstime now);
/* What is written next begins a segment (MSG_EOR). */
void tcp_send_end_record(struct tcp *t, struct tcp_conn *tc);
/* The fast way for small writes: the last unsent segment grows by n bytes from `p`, and nothing
 * becomes due by it, so that there is nothing to flush. False: take the way above. */
bool tcp_send_append(struct tcp *t, struct tcp_conn *tc, const uint8_t *p, uint32_t n);
/* Bytes that a reserve could offer now. */
uint32_t tcp_send_room(const struct tcp *t, const struct tcp_conn *tc);
/*
 * Receiving is peek, copy without the lock, consume. peek offers bytes from `skip` on, in order;
 * returns the bytes offered, 0 at end of stream, -EAGAIN when there is nothing yet, -errno after a
 * reset. Spans stay valid until consumed.
 */
int tcp_recv_peek(struct tcp *t, struct tcp_conn *tc, size_t skip, size_t want, struct span *span,
                  int n);
/* When the byte `offset` bytes after the first unread one came, or what came last together with it;
 * to 1,024 ns, and after 73 minutes too late. */
nstime tcp_recv_stamp(const struct tcp *t, const struct tcp_conn *tc, uint32_t offset, nstime now);
void tcp_recv_consume(struct tcp *t, struct tcp_conn *tc, size_t bytes, nstime now);
/*
 * Receiving by loan (tcp_lend.c): what is unread, in order, where it lies. At most n pieces, which
 * are process `proc`'s (a slot + 1) until it returns them, in any order. They are read, but for the
 * window, which opens when they are returned. `ours`: in memory of the stack's own, copied there if
 * need be. The number of pieces; else as of peek, -ENOBUFS: no record or memory for one;
 * -EOPNOTSUPP: urgent data is ahead.
 */
struct tcp_lent {
        const uint8_t *ptr;
        uint32_t len;
        uint64_t token;
};
int tcp_recv_lend(struct tcp *t, struct tcp_conn *tc, uint32_t proc, bool ours, struct tcp_lent *v,
                  int n, nstime now);
/* -EINVAL: that process has no such loan of this connection. */
int tcp_recv_return(struct tcp *t, struct tcp_conn *tc, uint32_t proc, uint64_t token, nstime now);
/* All of a process's, of one connection or (NULL) of any, end. */
void tcp_loans_end(struct tcp *t, const struct tcp_conn *tc, uint32_t proc, nstime now);
/* Something that came by the channel is lent. */
bool tcp_chan_lent(const struct tcp *t, uint32_t chan);
/* The n bytes consumed last are unread again, from a copy at `p`; `seq`: what copied_seq() was when
 * they had been. False: more has been consumed since, or there is no memory. */
bool tcp_recv_give_back(struct tcp *t, struct tcp_conn *tc, const uint8_t *p, uint32_t n,
                        uint32_t seq);
/* The fast way for small reads: the next n bytes, when the first queued segment has more than that.
 * Nothing is due after it. False: take the way above. */
bool tcp_recv_take(struct tcp *t, struct tcp_conn *tc, uint8_t *p, uint32_t n);
/* What is left of the first queued segment, at most a quarter of the buffer: it stays at *p, and
 * valid, until consumed. 0: nothing there, or something unusual. */
uint32_t tcp_recv_ahead(struct tcp *t, const struct tcp_conn *tc, const uint8_t **p);
uint32_t tcp_recv_avail(const struct tcp_conn *tc); /* in-order bytes queued */
/* ... before the urgent byte, if there is one (SIOCINQ). */
uint32_t tcp_recv_inq(const struct tcp_conn *tc);
/* Whether that is so much (SO_RCVLOWAT), or so much that no more can come before some is read. */
bool tcp_recv_enough(const struct tcp_conn *tc, uint32_t lowat);
/* A buffer that sizes itself has room for that much. */
void tcp_recv_room(struct tcp_conn *tc, uint32_t lowat);
bool tcp_recv_eof(const struct tcp_conn *tc); /* FIN received and everything before it consumed */
/* RFC 9293 §3.8.5, as sockets know it: the urgent byte out of line; -EINVAL none, -EAGAIN announced
 * but not here. */
int tcp_recv_urgent(struct tcp *t, struct tcp_conn *tc, bool peek);
/* Whether the urgent byte is the next one after `skip` unread ones: where a read that has taken
 * some stops. */
bool tcp_at_mark(const struct tcp_conn *tc, size_t skip);

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

/* Whether a read would not wait: the part of tcp_poll_events() that select(2) asks for most. */
bool tcp_readable(const struct tcp *t, const struct tcp_conn *tc);
/* poll(2)'s view of a connection: POLLIN, POLLOUT, POLLRDHUP, POLLHUP, POLLERR, POLLPRI, as Linux's
 * tcp_poll gives them. */
short tcp_poll_events(const struct tcp *t, const struct tcp_conn *tc);

/* ---- options ---- */

void tcp_opts_default(struct tcp_opts *o);
/* Changes the options of a live connection; takes effect at once where it can (nodelay and uncork
 * push data out). */
void tcp_set_opts(struct tcp *t, struct tcp_conn *tc, const struct tcp_opts *o, nstime now);
void tcp_get_opts(const struct tcp_conn *tc, struct tcp_opts *o);
/* tcp_saved_syn.c: headers of the SYN that opened it, TCP_SAVED_SYN_MOST bytes at most, and how
 * many; 0: none are kept. They are kept no longer. */
uint32_t tcp_saved_syn(const struct tcp *t, const struct tcp_conn *tc, uint8_t *out);
void tcp_saved_syn_forget(struct tcp *t, struct tcp_conn *tc);
/* With opts.credit: the peer may send so many bytes more, and is told. -EINVAL: without;
 * -EOVERFLOW: more than opts.window_most in advance; -ENOBUFS: its group has no more. */
int tcp_window_grant(struct tcp *t, struct tcp_conn *tc, uint32_t bytes, nstime now);

/* tcp_group.c: limits that many connections have in common. A group is a number, 0 is none. */
#define TCP_GROUPS 256u
struct tcp_group_limits {
        uint64_t receive; /* bytes unread, lent or promised, of all; 0: no such limit */
        uint64_t send;    /* bytes written and not acknowledged, of all; 0: no such limit */
        uint64_t rate;    /* bytes a second that all send; 0: no such limit */
        uint32_t members; /* connections, at most; 0: as many as come */
        /* With `receive` or `send`: of it each member has this; members * least at most. */
        uint32_t least;
};
struct tcp_group_report {
        struct tcp_group_limits limits;
        uint32_t members;
        uint64_t held;   /* of `receive`: the members' shares */
        uint64_t queued; /* of `send`: likewise */
};
/* One that nobody is in, and nothing is set; 0: there is none. */
uint32_t tcp_group_new(const struct tcp *t);
/* -ENOSPC: the members it has, or what they were promised or have written, are more. -EINVAL:
 * `least` is below two units of a member's window. */
int tcp_group_set(struct tcp *t, uint32_t group, const struct tcp_group_limits *l);
void tcp_group_get(const struct tcp *t, uint32_t group, struct tcp_group_report *r);
/* An open connection enters, and leaves the one that it was in. -ENOSPC: no place, or it has been
 * promised, or has written more than there is; -EINVAL: as above. */
int tcp_group_enter(struct tcp *t, struct tcp_conn *tc, uint32_t group, nstime now);
void tcp_group_leave(struct tcp *t, struct tcp_conn *tc, nstime now);
/* What a peer has been told that it may send, and what is unread or lent. */
uint32_t tcp_promised(const struct tcp_conn *tc);
/* What was written and is not acknowledged, and what is reserved to be written. */
uint32_t tcp_queued(const struct tcp_conn *tc);
/* A turn that changed a connection with tc->send_share has ended, or a reservation there. */
void tcp_group_look(struct tcp *t, struct tcp_conn *tc);
/* What comes to the listener from now on is of that group (0: of none). */
void tcp_group_listen(struct tcp *t, uint32_t listener, uint32_t group);

/* tcp_watch.c: what is told of a connection, as TCP_EV_FLOW, and how it is asked for. */
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
/* A turn that changed a connection which is watched has ended. */
void tcp_watch_look(struct tcp_conn *tc);
/* Without the lock: marks that are reached; what happened since the record was made. */
uint32_t tcp_watch_marks(const struct tcp_conn *tc);
void tcp_watch_counts(const struct tcp_conn *tc, struct tcp_watch_counts *c);
/* Of what was written: acknowledged; accepted and not sent. */
uint64_t tcp_stream_acked(const struct tcp_conn *tc);
uint32_t tcp_unsent(const struct tcp_conn *tc);

/* tcp_stamp.c: when the last byte of a write was given to the interface, left it, and was
 * acknowledged. */
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

/* tcp_plan.c: congestion control of the application's own. */
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
/* The interface takes no more for now. */
void tcp_queue_full(struct tcp_conn *tc, nstime now);

/* The scale of what we offer; before the peer's SYN is known (tcp_window_opened()) the one that
 * ours asks for, and before that the one that it is going to ask for. The largest window that can
 * be said by it. What the peer may send. */
uint8_t tcp_window_scale(const struct tcp_conn *tc);
uint8_t tcp_window_scale_for(const struct tcp_opts *o);
bool tcp_window_opened(const struct tcp_conn *tc);
uint32_t tcp_window_reach(const struct tcp_conn *tc);
uint32_t tcp_window_ahead(const struct tcp_conn *tc);
/* The longest IP packet that the path carries, as far as is known (IP_MTU). */
int tcp_path_mtu(const struct tcp_conn *tc);
int tcp_cc_lookup(const char *name); /* "cubic", "reno", "bbr"; -ENOENT */
const char *tcp_cc_name(int cc);
/* What opts.rto_min_us may be set to; as Linux, but for its jiffies. */
#define TCP_RTO_MIN_LEAST  NS_PER_MS
#define TCP_RTO_MIN_MOST   (200 * NS_PER_MS)
#define TCP_RTO_MOST_LEAST NS_PER_S /* ... and opts.rto_max_ms */
#define TCP_RTO_MOST_MOST  (120 * NS_PER_S)
#define TCP_ACK_DELAY_MOST (200 * NS_PER_MS) /* ... and opts.ack_delay_us */
/* Bounds of the retransmission timeout as they hold: of the options, else ours. */
nstime tcp_rto_least(const struct tcp_opts *o, const struct tcp_link *link);
nstime tcp_rto_most(const struct tcp_opts *o);

/* ---- looking in (TCP_INFO, unet ss); safe without the lock, a torn snapshot at worst ---- */

enum tcp_limit {
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

/* ---- consistency ---- */

/* Asserts every invariant of a connection that can be spelled; tests call it after each step. */
void tcp_conn_check(const struct tcp *t, const struct tcp_conn *tc);
void tcp_group_check(const struct tcp *t, uint32_t group); /* ... and of a group */
/*
 * After a process died inside: rebuilds demultiplexing and free lists from the connections and
 * listeners, adds the references of their queues to frame records (the caller has zeroed refs and
 * will call frame_pool_rebuild) and resets connection `broken` (0: none) without looking at its
 * queues. Touches every connection.
 */
void tcp_recover(struct tcp *t, uint32_t broken, nstime now);

#endif
