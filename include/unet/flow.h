/*
 * The application in control of a TCP socket: windows, and what a sender keeps to. Beside
 * <unet/sock.h>, with the same sockets; errors are -1 and errno.
 *
 *      struct unet_window w = {.size = sizeof w, .mode = UNET_WINDOW_CREDIT, .bytes = 0};
 *      unet_window_set(s, &w);                 the peer may send nothing
 *      unet_window_grant(s, 1000);             1,000 bytes, whatever is read meanwhile
 *
 * A setting is the socket's, not the process's: shared after fork(), inherited from a listener,
 * kept when a process dies. Every struct begins with `size`, which the caller sets to its sizeof,
 * so that it may grow: what a shorter one does not have is 0. A socket that is not TCP's:
 * EOPNOTSUPP.
 */
#ifndef UNET_FLOW_H
#define UNET_FLOW_H

#include <unet/sock.h>

#ifdef __cplusplus
extern "C" {
#endif

enum unet_window_mode {
        UNET_WINDOW_AUTO,  /* the stack sizes the buffer; offered is what is free of it */
        UNET_WINDOW_SIZE,  /* a buffer of `bytes`, as of unet_set_buffers() */
        UNET_WINDOW_CREDIT /* offered is what was granted and has not come; reading grants nothing
                            */
};

struct unet_window {
        uint32_t size; /* sizeof(struct unet_window) */
        uint32_t mode; /* enum unet_window_mode */
        /* SIZE: the buffer. CREDIT: granted to begin with, may be 0. Told by AUTO: the
         * buffer now. */
        uint32_t bytes;
        /* The largest window that is ever offered; 0: 65,535 by credit, else what the buffer
         * may become. */
        uint32_t most;
        /* told: windows are said in multiples of it, rounded down; 1 when `most` is
         * below 65,536. */
        uint32_t unit;
        uint32_t offered; /* told: what the peer may send, as the next segment to it says */
        uint32_t granted; /* told, CREDIT: granted, and has not come */
};

/*
 * Sets mode, bytes and most. Before connect() and on a listener `most` chooses the scale (RFC 7323
 * §2.2), and with it the unit; on a connection the scale stays. What the peer was told is never
 * taken back (RFC 9293 §3.8.6). A smaller size offers nothing new until that has come. Credit
 * begins with it: where the peer may send more than `bytes` already, `granted` is more. EINVAL: no
 * such mode; bytes 0 as a size; bytes above most; most, or a size, that cannot be said by the
 * connection's scale.
 */
UNET_API int unet_window_set(int sock, const struct unet_window *w);
UNET_API int unet_window_get(int sock, struct unet_window *w);
/*
 * By credit, on a connection or before connect(): the peer may send `bytes` more, and is told so
 * before the call returns. To hold it, grant nothing. EOVERFLOW: what is granted and has not come
 * would be more than `most`. ENOBUFS: its group has no more. EINVAL: not by credit, or a listener.
 * A peer that sends whole segments may wait for a segment's worth: see unet_flow(3).
 */
UNET_API int unet_window_grant(int sock, uint32_t bytes);

/* What a sender, and who acknowledges, keeps to. Times are nanoseconds. */
struct unet_flow {
        uint32_t size;        /* sizeof(struct unet_flow) */
        uint32_t send_window; /* never more in flight, whatever the peer offers; 0: no such limit */
        uint64_t rate;        /* bytes a second, as SO_MAX_PACING_RATE; 0: as fast as it goes */
        /* Of the retransmission timeout: 1 to 200 ms, 1 to 120 s; 0 in a call: as it is. */
        int64_t rto_min, rto_max;
        /* An acknowledgement waits no longer; 1 to 200 ms; 0: as long as the stack lets it. */
        int64_t ack_delay;
        /* Bytes that are acknowledged at once, and no fewer before their time; 0: as the stack
         * does it. */
        uint32_t ack_every;
        /* With a rate: bytes that may leave back to back, also after a pause; 0: the
         * stack's choice. */
        uint32_t burst;
        /* Never more accepted and not sent; a call that sends waits, or takes less; 0: no
         * such limit. */
        uint32_t unsent_most;
        /* No segment is larger: 88 to 32,767, as TCP_MAXSEG; 0: as the path lets it. */
        uint32_t mss;
};
/*
 * At any time; what is in flight or unsent already is not taken back. Tells what holds: of rto_min
 * and rto_max what is in force. By setsockopt() they are SO_MAX_PACING_RATE, TCP_RTO_MIN_US,
 * TCP_RTO_MAX_MS, TCP_DELACK_MAX_US and TCP_MAXSEG. What send_window holds up is UNET_LIMIT_CLAMP
 * in unet_feedback(). EINVAL: out of these bounds.
 */
UNET_API int unet_flow_set(int sock, const struct unet_flow *f);
UNET_API int unet_flow_get(int sock, struct unet_flow *f);

/*
 * Limits that many sockets have in common. A group is there as long as a socket is in it, and is
 * named by any of them. What a listener in it accepts is in it, from the SYN on. It is the socket's
 * as all settings are: parent and child of fork() share it, and who gets a socket in a message has
 * it. A member leaves it when its connection is over.
 *
 *      struct unet_group g = {.size = sizeof g, .members = 1000, .receive = 8 << 20};
 *      unet_group_set(listener, &g);           1,000 clients, and 8 MB for all of them together
 *
 * `receive` bounds what is unread, on loan, and promised to peers as windows, of all members
 * together and to the byte, at all times. Of it each member has `least`, come what may. The rest is
 * for those that use it. A member has as much of it as it leaves free: one alone half, each of n an
 * n-plus-first part. It gets there by reading, within what its own buffer may be.
 *
 * `send` bounds what is written and not acknowledged, likewise: of it each member has `least`, and
 * of the rest as much as it leaves free. A call that sends waits, or takes less, as with a full
 * buffer.
 *
 * `rate` bounds the bytes of data that all members send, repeated ones too, each of which has an
 * equal part while it has something to send. In any time t it is no more than rate * (t + 10 ms),
 * and a segment of each. A member's own rate (unet_flow.rate) holds beside it.
 */
struct unet_group {
        uint32_t size; /* sizeof(struct unet_group) */
        /* Connections at most; 0: as many as come, without `receive` and `send` only. */
        uint32_t members;
        uint64_t receive; /* bytes; 0: no such limit */
        uint64_t rate;    /* bytes a second; 0: no such limit */
        /* Bytes, 1,024 at least; 0: half of an equal part. members * least is at most `receive`,
         * and `send`. */
        uint32_t least;
        uint32_t in;     /* told: members there are */
        uint64_t held;   /* told: of `receive`, what members hold or may promise next */
        uint64_t send;   /* bytes; 0: no such limit */
        uint64_t queued; /* told: of `send`, what members have written, each `least` at least */
};
/*
 * The socket's group has these limits from now on; if it has none, it is the first in a new one.
 * NULL: it leaves its group. A connection, or a listener, which holds nothing itself: ENOTCONN.
 * ENOSPC: there are more members already, or these were promised, or have written more, which is
 * not taken back: the limits are as they were. ENFILE: 255 groups there are. A connection that
 * there is no place for is not answered, and tries again.
 */
UNET_API int unet_group_set(int sock, const struct unet_group *g);
UNET_API int unet_group_get(int sock, struct unet_group *g); /* ENOENT: it is in none */
/* `sock` leaves its group, and enters the one that `member` is in. ENOENT: none. ENOSPC: no place,
 * or what it was promised, or has written, is more than there is. EINVAL: `least` is below two of
 * the units that its window is said in. After an error it stays where it was. */
UNET_API int unet_group_join(int sock, int member);

/*
 * Receiving by loan. unet_recv_lend() hands out what is unread, in order, where it lies, in at most
 * n pieces. They may only be read, and count as read for any other call. A piece is the calling
 * process's until it is returned, in any order, each once. Closing the socket in that process
 * returns all of them. So does the process's end, or exec(). What is lent counts as unread for the
 * window, but not by credit: who returns nothing holds its peer up, and nothing else. Blocks as
 * unet_recv() does. The number of pieces; 0: the peer has shut its side.
 *
 * A piece from a peer of the same user lies in memory that the peer can write. One of another
 * user's, or one that came by an interface, does not. flags: MSG_DONTWAIT. ENOBUFS: too much is
 * lent already; EOPNOTSUPP: urgent data is ahead; EINVAL, of a return: one of them is not lent, and
 * those before it are returned.
 */
struct unet_loan {
        const void *ptr;
        uint32_t len;
        uint32_t zero;
        uint64_t token;
};
UNET_API int unet_recv_lend(int sock, struct unet_loan *v, int n, int flags);
UNET_API int unet_recv_return(int sock, const struct unet_loan *v, int n);

/*
 * Sending what is written where it is sent from. unet_send_reserve() hands out room for up to
 * `bytes` more of the stream, in at most n pieces, and never more than UNET_RESERVE_MOST. It blocks
 * until there is some, as unet_send() does. The number of pieces, which may be of fewer bytes.
 * unet_send_commit() sends the first `bytes` of it, as unet_send() would, and gives back the rest;
 * 0 gives back all. One reservation a socket and process: EBUSY. Until it is committed, other calls
 * that send on this socket wait. It ends with the process, or with the socket there. The memory is
 * the stack's again when the peer has acknowledged it and its program has read it. flags:
 * MSG_DONTWAIT; MSG_MORE. EINVAL: more than was reserved, or nothing was.
 */
#define UNET_RESERVE_MOST 32
UNET_API int unet_send_reserve(int sock, size_t bytes, struct iovec *v, int n, int flags);
UNET_API ssize_t unet_send_commit(int sock, size_t bytes, int flags);

/*
 * Memory of the program's own, sent without a copy, and as often as one likes: by any TCP sockets.
 *
 *      unet_memory_new(1 << 20, &p);           once
 *      read(file, p, n);
 *      unet_memory_send(s, p, n, 0, 7);        to each who asks
 *      ... UNET_EV_SENT ... unet_memory_reap(s, &cookie, 1);   7: p may be written again
 *
 * A peer of the same user on this host reads it where it lies: unet_recv_lend() hands out those
 * very bytes, and unet_recv() copies them once. It can read all such memory of its peers' stacks.
 * Towards others, over an interface too, they are copied by the call, and so are 4 KB or fewer.
 *
 * Make some before you listen or connect. Two programs have one channel for all their connections.
 * One that began before a program's first unet_memory_new() copies as long as it lasts. So does one
 * to a program whose address space is bounded (RLIMIT_AS).
 *
 * A cookie says that nobody reads the bytes any more. What was copied is over when the call
 * returns. What was not is when it is acknowledged and the peer has read it and given it back. So
 * who keeps loans keeps the cookie from coming, and nothing else. After a reset, or the peer's
 * death, cookies come as well: they do not say that the peer has got the bytes (UNET_EV_ACKED
 * does).
 *
 * The memory is the calling process's, zeroes at first, and begins at a page. A child of fork() has
 * none of it, and no cookie: what it writes there its parent sends. Sending it is EINVAL there.
 * When a process ends, what it sent goes on. What it had is given out again when nobody reads it.
 */
#define UNET_MEMORY_COOKIES 1024 /* of a socket and process, not reaped */
/* ENOMEM: the stack has 64 such memories, or 256 MB of them, or there is no address space for
 * those. */
UNET_API int unet_memory_new(size_t bytes, void **out);
/* EBUSY: some of it is under way, from a socket that was closed perhaps; EINVAL: none begins
 * there. */
UNET_API int unet_memory_free(void *p);
/*
 * As unet_send(). If it takes any bytes, the cookie comes for those once, by unet_memory_reap() of
 * this socket in this process. Closing the socket there forgets its cookies. flags: MSG_DONTWAIT,
 * MSG_MORE. EINVAL: not in such memory of this process's, or no bytes; ENOBUFS: there are
 * UNET_MEMORY_COOKIES.
 */
UNET_API ssize_t unet_memory_send(int sock, const void *p, size_t n, int flags, uint64_t cookie);
/* Up to n cookies that have come, in the order of the calls. How many; never waits. */
UNET_API int unet_memory_reap(int sock, uint64_t *cookie, int n);

/*
 * Events of a connection, beside POLLIN and POLLOUT in unet_pollset_add(), unet_pollset_mod() and
 * struct unet_event. A mark is reported as long as it is reached; what happened, until
 * unet_watch_take() has taken it; with UNET_EDGE each once.
 */
#define UNET_EV_ACKED 0x00010000u /* mark: so many bytes of the stream are acknowledged */
/* mark: less is accepted and not sent, when a call or a turn of the stack has ended. */
#define UNET_EV_UNSENT 0x00020000u
/* mark: so much is unread; or some is, and no more can come; or the end. */
#define UNET_EV_UNREAD 0x00040000u
/* A segment was taken for lost, or the retransmission timer fired. */
#define UNET_EV_LOSS 0x00080000u
/* Srtt went above the mark, or came back, in a turn of the stack. */
#define UNET_EV_RTT   0x00100000u
#define UNET_EV_SHUT  0x00200000u /* the peer's window became 0, or opened again */
#define UNET_EV_NIQ   0x00400000u /* the interface's send queue was full, or has room again */
#define UNET_EV_LIMIT 0x00800000u /* what limits the sender became one of `limits` */
/* There are cookies to reap; needs no watch. */
#define UNET_EV_SENT 0x01000000u

struct unet_watch {
        uint32_t size;   /* sizeof(struct unet_watch) */
        uint32_t limits; /* 1u << UNET_LIMIT_...; the marks: 0 is none */
        uint64_t acked;  /* of all that was ever written to the socket */
        uint32_t unsent_below, unread_above;
        int64_t rtt; /* ns */
};
/*
 * From now on; what is so already is told at once. NULL: nothing is told any more. The marks are
 * the socket's: a child of fork() and its parent see the same ones, and each of them is told of
 * everything. ENOTCONN: it was never connected.
 */
UNET_API int unet_watch_set(int sock, const struct unet_watch *w);

struct unet_happened {
        uint32_t size;             /* sizeof(struct unet_happened) */
        uint32_t events;           /* UNET_EV_*: marks reached, and what happened */
        uint32_t losses, timeouts; /* so many, since this process asked last */
        /* How often it went over and back; became one of them. */
        uint32_t rtt_turns, shut_turns, niq_turns, limit_turns;
        uint32_t holds; /* now: UNET_EV_RTT, it is above the mark; UNET_EV_SHUT, UNET_EV_NIQ */
        enum unet_limit limit; /* now */
        uint64_t acked;
        uint32_t unsent, unread;
        int64_t srtt;
};
/* What happened since this process asked last, or since the watch was set; and the numbers as they
 * are. Taken: it is not told again. */
UNET_API int unet_watch_take(int sock, struct unet_happened *h);

/*
 * Congestion control of one's own. A plan says the congestion window and the rate of a connection,
 * and holds for a while; a report says what came of it. Both are numbers that whatever process runs
 * the stack keeps to and counts: the algorithm runs in the application, in its own time, and may
 * block or crash.
 *
 *      struct unet_cc_report r = {.size = sizeof r};
 *      struct unet_cc_plan p = {.size = sizeof p, .good_for = 200000000};
 *
 *      for (;;) {                              once when connected, then at each UNET_EV_REPORT
 *              unet_cc_take(s, &r);
 *              p.serial = r.serial;
 *              p.cwnd = next_window(&r);       Reno: r.cwnd + r.mss, or r.ssthresh after a loss
 *              unet_cc_set(s, &p);             EAGAIN: at once again
 *      }
 *
 * A plan may run out before the next one comes, because the application is stopped, in a debugger,
 * or dead. Then the built-in algorithm that the socket has (TCP_CONGESTION) goes on from the window
 * that there is, until the next plan.
 *
 * No plan goes beyond RFC 5681. The window grows by what is acknowledged, as in slow start, and
 * only while it is used. A loss or a mark halves what is in flight at once. A timeout leaves one
 * segment. Recovery is PRR's (RFC 6937). A plan is never below two segments.
 */
/* A report is due, or the built-in algorithm took over; until unet_cc_take(). */
#define UNET_EV_REPORT 0x02000000u

/* Since the one before; the last lines: now. Bytes, and nanoseconds. */
struct unet_cc_report {
        uint32_t size; /* sizeof(struct unet_cc_report) */
        /* 0: no plan holds, nothing was counted, and the built-in algorithm decides. */
        uint32_t planned;
        uint64_t serial; /* for the next plan */
        int64_t time;    /* that it is about */
        uint64_t acked, lost, marked;
        /* How often the window was reduced for a loss or a mark; how often by a timeout. */
        uint32_t cuts, timeouts;
        int64_t rtt_least, rtt_mean, rtt_last; /* 0: no round trip was measured */
        uint32_t rtts;
        uint32_t app_limited;   /* the application had too little to send for more than: */
        uint64_t delivery_rate; /* the highest that was measured, bytes a second */
        /* Losses are being repaired; the window is not the plan's until that is over. */
        uint32_t repairs;
        uint32_t cwnd, ssthresh, snd_wnd, in_flight, mss;
        int64_t srtt, min_rtt;
};
/* Takes the report of a connection. ENOTCONN: it is not open. */
UNET_API int unet_cc_take(int sock, struct unet_cc_report *r);

struct unet_cc_plan {
        uint32_t size; /* sizeof(struct unet_cc_plan) */
        uint32_t cwnd; /* where it goes to: at once when that is less, else as fast as slow start */
        uint64_t serial;  /* of the report that it was made of */
        uint64_t rate;    /* bytes a second, a segment in `good_for` at least; 0: not paced */
        int64_t good_for; /* 1 ms to 60 s */
        /* The next report is due after so long, up to 60 s; 0: after a round trip. A cut: at once.
         */
        int64_t every;
};
/*
 * The socket's plan from now on, also for processes that share it; what one of them sets last
 * holds. NULL: the built-in algorithm decides again. EAGAIN: since that report the window was
 * reduced, or the built-in algorithm took over; the next report tells of it.
 */
UNET_API int unet_cc_set(int sock, const struct unet_cc_plan *p);

/*
 * A descriptor of the set for somebody else's event loop (poll, epoll, libevent, libuv, GLib). It
 * is readable when a wait in the set may find something, kernel descriptors of the set included.
 * Then unet_pollset_wait() with a timeout of 0 is to be called; it stays readable until such a wait
 * has returned 0. It is the set's, to be watched and not to be read, and closed with it. EMFILE. In
 * the child of a fork() it is of the child's set, which is empty; an epoll set that has it is the
 * parent's.
 */
UNET_API int unet_pollset_fd(struct unet_pollset *set);

#ifdef __cplusplus
}
#endif

/* As <unet/tsan.h> does. */
#if defined(UNET_TSAN) && !defined(UNET_IS_INSTRUMENTED)
#define unet_recv_lend(...)   ((int)unet_tsan_after(unet_recv_lend(__VA_ARGS__)))
#define unet_send_commit(...) ((void)unet_tsan_before(), unet_send_commit(__VA_ARGS__))
#define unet_memory_send(...) ((void)unet_tsan_before(), unet_memory_send(__VA_ARGS__))
#define unet_memory_reap(...) ((int)unet_tsan_after(unet_memory_reap(__VA_ARGS__)))
#endif

#endif
