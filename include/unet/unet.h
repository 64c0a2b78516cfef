/*
 * U-Net: user-level endpoints (von Eicken, Basu, Buch, Vogels, SOSP 1995), today.
 *
 * An *endpoint* is an application's handle into the network (§3.1 of the paper). It is a
 * *communication segment*, memory that messages are sent from and received into, and three queues
 * of descriptors: send, receive and free. A *channel* joins two endpoints; an endpoint may have
 * many, a process several endpoints. The kernel helps to set them up and to sleep; it takes no part
 * in sending and receiving.
 *
 *                     +--------------------- segment ----------------------+
 *                     |  transmit part          |  receive part            |
 *                     |  messages to send       |  buffers for arrivals    |
 *                     +--------------------------------------------------- +
 *                         ^  offset, length          ^ offset, length
 *      unet_ep_send  -->  send queue                 free queue  <--  unet_ep_provide
 *      unet_ep_reap  <--  "injected"                 receive queue  -->  unet_ep_recv
 *
 * Sending. A message is up to UNET_EP_INLINE bytes in the descriptor, then up to UNET_EP_FRAGS
 * pieces of the transmit part (scatter-gather). Small messages fit into the descriptor whole and
 * use no buffer (§3.4). When a message is *injected* its pieces may be used again; it does not mean
 * delivered. A full send queue is -EAGAIN: the message has not been taken, nothing is lost, and
 * that is how the sender feels a slow network or receiver (back-pressure).
 *
 * Receiving, base level (§3.4). What was sent in the descriptor arrives in the descriptor. The rest
 * is put into buffers from the free queue, in an order of the provider's choice; a receive
 * descriptor names them. With no buffer in the free queue, or no place in the receive queue, the
 * message is dropped and counted by cause (unet_ep_stats).
 *
 * Receiving, direct (`direct` in the options; §3.6 calls the full thing "direct-access"). The
 * payload is not copied: the descriptor points into the sender's memory, a *loan*, until
 * unet_ep_release(). The free queue is not used, and a full receive queue holds the sender up
 * instead of dropping. The sender can change bytes while they are read.
 *
 * Protection (§3.2). Nobody but the owner can write an endpoint's memory. Nobody else sees the
 * receive part. The peers of an endpoint's direct shared-memory channels can read its transmit
 * part. Peers that must not see each other's messages get channels of different endpoints, or
 * channels through a switch, which reads for them. Whatever a peer writes in its own memory is
 * treated as hostile: read once, checked, and a bad message is dropped and counted.
 *
 * Waiting (§3.1). Poll (unet_ep_recv never blocks), block (unet_ep_wait, or poll(2) on unet_ep_fd),
 * or upcall: a function called when the receive queue is not empty, or almost full. Upcalls run
 * inside unet_ep_dispatch(), called by whoever wants them run: the program's loop, or a thread it
 * starts for this. The library starts no thread and uses no signal. A signal cost 30 us at each end
 * even in the paper. Threads in a library break fork, setns and seccomp.
 *
 * Threads. One thread at a time in an endpoint (two endpoints are independent). Only
 * unet_ep_upcalls() may be called at any time from anywhere.
 *
 * Errors are negative errno values. Output parameters are touched on success only. Sizes are bytes.
 */
#ifndef UNET_UNET_H
#define UNET_UNET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef UNET_API
#define UNET_API __attribute__((visibility("default")))
#endif

#define UNET_EP_INLINE 200         /* most bytes in a descriptor */
#define UNET_EP_FRAGS  4           /* most pieces of a message */
#define UNET_FOREVER   INT64_C(-1) /* a timeout that does not come */

struct unet_ep;

/* ---- endpoints ---- */

/* A zero in any field means the default. Sizes are rounded up to whole pages. */
struct unet_ep_opts {
        size_t tx_bytes;      /* transmit part: default 4 MB, at most 2 GB */
        size_t rx_bytes;      /* receive part: default 4 MB, at most 2 GB */
        uint32_t rx_slots;    /* receive queue, messages: default 256 */
        uint32_t free_slots;  /* free queue, buffers: default 1024 */
        uint32_t almost_full; /* messages at which the receive queue is: default 3/4 of rx_slots */
        bool direct;          /* payload is lent, not copied */
        int64_t spin_ns;      /* unet_ep_wait looks so long, then sleeps; 0: 20000, < 0: none */
};

/* Opens an endpoint; opts may be NULL. -ENOMEM, -EMFILE, -EINVAL (a size too large), -ENOENT
 * (no /proc). */
UNET_API int unet_ep_open(const struct unet_ep_opts *opts, struct unet_ep **out);
/* Closes all channels, which their peers see, and frees everything; loans and the segment too.
 * NULL: nothing happens. */
UNET_API void unet_ep_close(struct unet_ep *ep);
/* After fork(): this process lets go of an endpoint with which the other goes on. The peers
 * see nothing. */
UNET_API void unet_ep_forget(struct unet_ep *ep);

/* Where the segment is mapped, and how long its parts are. Offsets in descriptors count from the
 * start of the segment; the receive part begins at offset tx_bytes. */
struct unet_segment {
        uint8_t *base;
        size_t tx_bytes, rx_bytes;
};
UNET_API struct unet_segment unet_ep_segment(const struct unet_ep *ep);

/* A piece of the segment. */
struct unet_frag {
        uint32_t off, len;
};

/* ---- channels (§3.2) ----
 *
 * A channel is known to its endpoint by a small number. Messages on it arrive in the order they
 * were sent, or not at all. Over shared memory none is lost on the way; a base-level receiver may
 * drop it, see above. */

/* Joins two endpoints of this process; after fork() each side can be used by another process
 * (unet_ep_forget). */
UNET_API int unet_chan_pair(struct unet_ep *a, struct unet_ep *b, uint32_t *chan_a,
                            uint32_t *chan_b);
/*
 * Joins two processes through a connected Unix socket (SOCK_SEQPACKET or SOCK_STREAM); both call
 * this. Blocks until the other side does, at most `timeout` ns. Takes the socket on success (do not
 * use or close it then), leaves it on failure. -ETIMEDOUT; -EPIPE: the other side went away;
 * -EPROTO: it speaks something else; -EACCES, -EPERM, -ERANGE, -EINVAL: the memory it offers could
 * be taken away or changed under us.
 */
UNET_API int unet_chan_over(struct unet_ep *ep, int sock, int64_t timeout, uint32_t *chan);
/* Waits for channels under a name of this user, in this network namespace: a descriptor to accept
 * from and close(2), or -EADDRINUSE, -ENAMETOOLONG (more than 64 bytes). Only processes of the same
 * user, or root, get through. */
UNET_API int unet_chan_listen(const char *name);
/* Takes the next channel from a name's descriptor. -ETIMEDOUT, -EACCES (another user),
 * as unet_chan_over. */
UNET_API int unet_chan_accept(struct unet_ep *ep, int listen_fd, int64_t timeout, uint32_t *chan);
/* Joins the process that listens under the name. -ECONNREFUSED: nobody does; -EACCES: it belongs to
 * another user. */
UNET_API int unet_chan_connect(struct unet_ep *ep, const char *name, int64_t timeout,
                               uint32_t *chan);

/*
 * Emulated channels (§3.5) are for programs that do not need the speed, that talk to many, or that
 * do not trust each other with their transmit parts. They go through unetd, which is found or
 * started. It checks who may talk to whom, and switches messages, round robin by bytes. The
 * endpoint is attached when it first listens, accepts or connects. It then uses one link however
 * many channels it has. Its transmit part has 64 MB at most. Messages are lost when the receiver is
 * slow or a quota of the user is used up (unet.conf(5)); `unet status` tells which. When unetd
 * goes, so do the channels.
 *
 * Errors of unetd, besides those named: -ECONNREFUSED (there is none, and none could be started),
 * -EDQUOT, -ETIMEDOUT, -EPROTO.
 */
enum {
        UNET_EMUL_ANYBODY = 1, /* other users of the machine may connect too */
};
/* Waits for channels under a name of this user, at most 63 bytes without '/': a descriptor,
 * readable when somebody connects, to accept from and close(2). After fork() each process may
 * accept. -EADDRINUSE. */
UNET_API int unet_emul_listen(const char *name, unsigned flags);
/* Takes the next channel, waiting at most `timeout` ns. -EPIPE: unetd has gone, listen again. */
UNET_API int unet_emul_accept(struct unet_ep *ep, int listen_fd, int64_t timeout, uint32_t *chan);
/* Joins whoever accepts under the name, "UID/NAME" for another user's. -ECONNREFUSED: nobody
 * listens; -EACCES: the listener takes no other users. */
UNET_API int unet_emul_connect(struct unet_ep *ep, const char *name, int64_t timeout,
                               uint32_t *chan);

/*
 * Channels to other hosts, and to this one, over RDMA: datagrams of a queue pair (UD) that the
 * endpoint owns, whose segment is registered with the device. The device is the one that has the
 * address at this end of `sock`, a connected TCP socket, RoCE v2; soft-RoCE is one. Both sides call
 * this. It blocks until the other side does, at most `timeout` ns, and takes the socket on success.
 * From then on the socket carries nothing, and says by hanging up that the peer is gone.
 *
 * A message is one datagram: mtu (unet_chan_info) is that of the device, at most 4096 bytes.
 * Messages are lost when the network or the receiver does, the missing ones are counted
 * (NI_MISSED); none is overtaken. With `direct` the receive part of the segment is the provider's
 * to receive into. Does not work in the child of a fork: open and join after it.
 *
 * -ENODEV: no RDMA device has the address; -ENETDOWN: its port is down; -ENOMEM: also
 * RLIMIT_MEMLOCK is less than the segment; -EHOSTUNREACH: no way to the peer's device; -EPROTO: the
 * other side speaks something else, or names an address that is not the one it comes from; -EEXIST:
 * it has a channel already; -ETIMEDOUT, -EPIPE; -ENOSYS: built without.
 */
UNET_API int unet_verbs_over(struct unet_ep *ep, int sock, int64_t timeout, uint32_t *chan);
/* A line of text for each device, port and address that there is, or one that says why there is
 * none, cut at `max` (> 0) bytes. Returns how many addresses. */
UNET_API int unet_verbs_describe(char *text, size_t max);

/* Ends a channel. Messages not received yet and loans from it are gone; sends under way count
 * as injected. */
UNET_API int unet_chan_close(struct unet_ep *ep, uint32_t chan);

struct unet_chan_info {
        char provider[16];       /* "shm", "emul", "verbs", ... */
        uint32_t mtu;            /* longest message, descriptor and pieces together */
        uint32_t tx_tag, rx_tag; /* 0 where the ring itself is the tag */
        uint32_t room;           /* places in the send queue */
        bool lossless;           /* nothing is lost between the two endpoints */
        bool corrupts;           /* bits may flip: bring a checksum */
        bool closed;             /* the peer is gone: what it sent before can still be received */
};
/* -EBADF: no such channel. */
UNET_API int unet_chan_info(struct unet_ep *ep, uint32_t chan, struct unet_chan_info *info);

/* Records everything that goes over the channel from now on, until it is closed, in a pcap file of
 * link type 101, raw. Of a tagged channel that is its whole link. snaplen: most bytes of each
 * message, 0: all. -EBADF, or why it cannot be made. */
UNET_API int unet_chan_capture(struct unet_ep *ep, uint32_t chan, const char *path,
                               uint32_t snaplen);
/* Spoils what is sent over the channel (a tagged one: over its whole link) from now on, for tests:
 * probabilities and a seed,
 * "loss=0.01,duplicate=0.01,reorder=0.01,delay=0.01,delay_by=16,corrupt=0.001,seed=7". -EBADF,
 * -EINVAL. */
UNET_API int unet_chan_fault(struct unet_ep *ep, uint32_t chan, const char *spec);

/* ---- sending ---- */

struct unet_send {
        uint32_t chan;
        uint16_t inl_len; /* bytes at `inl`, first in the message; <= UNET_EP_INLINE */
        uint16_t nfrags;  /* pieces, sent after them; <= UNET_EP_FRAGS */
        const void *inl;  /* read during the call only */
        /* In the transmit part; must not change until injected. */
        struct unet_frag frag[UNET_EP_FRAGS];
        uint32_t *injected; /* set to 1 when injected; may be NULL. Must live until then */
        uint64_t cookie;    /* not 0: unet_ep_reap() gives it back when injected */
};
/*
 * Puts up to n messages into send queues, in order. Returns how many were taken, at least 1, or for
 * the first: -EAGAIN: its queue is full (or as many of its channel's cookies are unreaped as there
 * can be): try later; -EBADF: no such channel; -EPIPE: the peer is gone; -EMSGSIZE: longer than the
 * channel's mtu; -EINVAL: empty, too many bytes or pieces, or a piece that is not in the transmit
 * part. A message without pieces is injected when this returns; its cookie is not given back.
 */
UNET_API int unet_ep_send(struct unet_ep *ep, const struct unet_send *msg, int n);
/* Gives back up to n cookies of messages that have been injected. Returns how many. `injected`
 * words are set here and in unet_ep_poll(), unet_ep_wait() and unet_ep_arm(); nothing is set behind
 * the program's back. */
UNET_API int unet_ep_reap(struct unet_ep *ep, uint64_t *cookie, int n);

/* ---- receiving ---- */

/* Puts buffers, pieces of the receive part, into the free queue. Returns how many were taken, at
 * least 1 (n > 0), or -EAGAIN: the queue is full; -EINVAL: the first is empty or not in the
 * receive part. */
UNET_API int unet_ep_provide(struct unet_ep *ep, const struct unet_frag *buf, int n);

struct unet_recv_frag {
        const uint8_t *ptr;
        uint32_t len;  /* bytes of the message here */
        uint32_t off;  /* base level: the buffer's offset in our segment */
        uint32_t size; /* base level: the buffer's own length, to provide it again */
};
struct unet_recv {
        uint32_t chan;
        uint32_t len;     /* of the whole message */
        uint16_t inl_len; /* its first bytes, in inl */
        uint16_t nfrags;  /* then these; base level: buffers that are the caller's again */
        uint64_t loan;    /* direct: for unet_ep_release(); 0: nothing to release */
        struct unet_recv_frag frag[UNET_EP_FRAGS];
        uint8_t inl[UNET_EP_INLINE];
};
/* Takes up to n messages; returns how many, 0 when there are none. Never blocks, runs no upcall. */
UNET_API int unet_ep_recv(struct unet_ep *ep, struct unet_recv *msg, int n);
/* Gives loans back. In any order; each once. Those of a closed shared-memory channel
 * are ignored. */
UNET_API void unet_ep_release(struct unet_ep *ep, const struct unet_recv *msg, int n);
/* Copies a message into one piece, at most `max` bytes; returns how many. */
UNET_API size_t unet_recv_copy(const struct unet_recv *msg, void *to, size_t max);

/* The provider's half of receiving, for a program that is busy elsewhere: moves what has arrived
 * into the receive queue (base level: into buffers; what does not fit is dropped). Returns how many
 * messages are in the queue. */
UNET_API int unet_ep_poll(struct unet_ep *ep);

/* ---- waiting ---- */

enum {
        UNET_READABLE = 1, /* a message can be received */
        UNET_INJECTED = 2, /* a cookie can be reaped */
        UNET_WRITABLE = 4, /* a channel whose queue was full has room again */
        UNET_CLOSED = 8,   /* a peer has gone since this was last told */
};
/* Blocks until one of `what` is true, at most `timeout` ns. Returns those that are, or -ETIMEDOUT,
 * -EINTR, -EINVAL. */
UNET_API int unet_ep_wait(struct unet_ep *ep, int what, int64_t timeout);
/* A descriptor that becomes readable when unet_ep_wait() would return; owned by the endpoint, for
 * poll(2) and epoll. It works while armed: after unet_ep_arm() has returned 0, once; then call
 * unet_ep_arm() again. */
UNET_API int unet_ep_fd(const struct unet_ep *ep);
/* Arms the descriptor for `what`. Returns what is true already (then it need not be waited for),
 * 0: armed. */
UNET_API int unet_ep_arm(struct unet_ep *ep, int what);

/* ---- upcalls ---- */

enum unet_upcall { UNET_UP_NONEMPTY, UNET_UP_ALMOST_FULL, UNET_UPCALLS };
typedef void unet_upcall_fn(struct unet_ep *ep, void *arg);
/* Sets the function of a condition of the receive queue; NULL: none. */
UNET_API void unet_ep_set_upcall(struct unet_ep *ep, enum unet_upcall when, unet_upcall_fn *fn,
                                 void *arg);
/* Does what unet_ep_poll() does, then calls the upcalls whose condition holds, if they are enabled:
 * almost full first. One upcall may receive everything there is; what it leaves is told again next
 * time. Returns how many were called. */
UNET_API int unet_ep_dispatch(struct unet_ep *ep);
/* Disables (false) or enables upcalls: one store, so that a critical section costs
 * nothing (§3.1). */
UNET_API void unet_ep_upcalls(struct unet_ep *ep, bool enabled);

/* ---- statistics ---- */

struct unet_stat {
        const char *name; /* "NI_NO_BUFFER" */
        const char *text; /* "free queue empty" */
        uint64_t value;
        bool drop; /* messages dropped for this reason */
};
/* Fills in up to n entries, every drop cause and counter of the network interface in a fixed order;
 * returns how many there are. */
UNET_API int unet_ep_stats(const struct unet_ep *ep, struct unet_stat *stat, int n);
/* One of them by name; 0 for a name that does not exist. */
UNET_API uint64_t unet_ep_stat(const struct unet_ep *ep, const char *name);

#ifdef __cplusplus
}
#endif

#endif
