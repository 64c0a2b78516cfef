/*
 * Active messages over U-Net endpoints (von Eicken, Culler, Goldstein, Schauser, ISCA 1992; UAM: §5
 * of the U-Net paper).
 *
 * A message names a *handler* of the receiver, which takes the data out of the network and into the
 * computation. A *request* runs a handler at a peer; that handler may send one *reply* to the
 * requester. Each is exactly once or, when the peer is lost, not at all; the library acknowledges
 * and repeats where the channel loses. Nothing is promised about the order of two requests.
 *
 *      rank 0                                              rank 1
 *      uam_request_short(am, 1, PUT, 0, args, 2) ------->  put(token, args, 2, ...)
 *      done(token, args, 1, ...)  <----------------------    uam_reply_short(token, DONE, args, 1)
 *
 * Three sizes:
 *   short   up to UAM_ARGS arguments of 64 bits;
 *   medium  and up to uam_max_medium() bytes, which the handler sees in a temporary buffer;
 *   long    and any number of bytes, put into the receiver's *segment* at an offset. The handler
 *           runs when all are there.
 *
 * Handlers run inside uam_poll(), uam_wait(), the requests and the collective calls, and nowhere
 * else. So data that handlers change is as they left it after each such call. Rules of a handler
 * (GAM 1.1, GASNet):
 *      - a request's handler replies at most once, through its token, before it returns;
 *      - a reply's handler sends nothing;
 *      - neither requests, polls nor waits.
 * Who breaks one is told: -EALREADY, -EPERM, -EDEADLK, -EINVAL (a token kept after its handler). A
 * handler that computes for long delays everybody who sends to its process, and loses nothing.
 *
 * Flow control (§5.1 of the paper). A peer may have `window` requests unanswered; more wait. The
 * endpoint holds places for all its peers' windows, and a peer for whom there is none is refused
 * when it is connected (-ENOBUFS). So no message is dropped for want of a place. Whoever waits for
 * a full window polls meanwhile.
 *
 * One thread at a time in a struct uam; the endpoint belongs to it until uam_close(). Sizes are
 * bytes, times nanoseconds, errors negative errno values.
 */
#ifndef UNET_AM_H
#define UNET_AM_H

#include <errno.h>

#include <unet/unet.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UAM_ARGS     8          /* most arguments of a message */
#define UAM_HANDLERS 224        /* handler numbers 0 .. 223 are the program's */
#define UAM_WINDOW   64         /* largest window */
#define UAM_ALL      UINT32_MAX /* instead of a rank: every peer */

struct uam;
struct uam_token;
typedef uint64_t uam_arg;

/* ---- opening ---- */

/* A zero in any field means the default. */
struct uam_opts {
        uint32_t rank, ranks; /* ours, and how many there are; default 1 */
        uint32_t window;      /* w of the paper, the same for all ranks: default 16, at most 64 */
        uint32_t job; /* messages of another number are not ours: strays of an earlier run */
        uint32_t buffer_bytes; /* of a message buffer: default 8192 */
        /* In the transmit part: default 2 a window place and peer, within an eighth of it. */
        uint32_t buffers;
        uint32_t places; /* messages that a lossy link's receiver holds: default 512 */
        int64_t rto_min; /* least retransmission timeout: default 1 ms (RFC 6298 has 1 s) */
        int64_t dead;    /* a peer that acknowledges nothing for so long is lost: default 30 s */
};

/* Takes the endpoint, which uam_close() does not close. opts may be NULL. -ENOMEM, -EINVAL (a size,
 * a window, a rank); -ENOBUFS: the transmit part holds no buffers. */
UNET_API int uam_open(struct unet_ep *ep, const struct uam_opts *opts, struct uam **out);
/* Waits until what was sent is acknowledged and, where messages are lost, the peers have heard its
 * goodbye, at most `timeout`; frees. Channels stay. NULL, or in a handler: nothing happens. */
UNET_API void uam_close(struct uam *am, int64_t timeout);

/* The peer at the other end of a channel of the endpoint is `rank`. -EEXIST: it has one; -EINVAL:
 * no such rank or our own; -EBADF: no such channel; -ENOBUFS: the endpoint has no places for
 * another window; -ENOMEM. */
UNET_API int uam_connect(struct uam *am, uint32_t rank, uint32_t chan);
/* Lets a rank send messages to itself: through a ring, as to any other. Errors as uam_connect(). */
UNET_API int uam_connect_self(struct uam *am);

UNET_API uint32_t uam_rank(const struct uam *am);
UNET_API uint32_t uam_ranks(const struct uam *am);

/* The part of the endpoint's transmit part that message buffers do not use: the program's. What is
 * sent from here is not copied. */
UNET_API void *uam_memory(const struct uam *am, size_t *bytes);

/* ---- handlers ---- */

enum {
        UAM_SHORT = 1,
        UAM_MEDIUM = 2,
        UAM_LONG = 4, /* messages that the handler takes */
        UAM_REQUEST = 8,
        UAM_REPLY = 16,
        UAM_ANY = 31,
};
/* data: medium: readable during the call; long: where it lies in the segment; short: NULL. */
typedef void uam_handler(struct uam_token *token, const uam_arg *arg, int nargs, void *data,
                         size_t len, void *ctx);
/* Handler `id` is fn, for the kinds or-ed together. A message for a handler that is not registered,
 * or not for its kind, ends the connection to who sent it, both sides being told -EBADRQC. -EINVAL:
 * id or kinds. */
UNET_API int uam_register(struct uam *am, unsigned id, uam_handler *fn, unsigned kinds, void *ctx);

UNET_API uint32_t uam_token_rank(const struct uam_token *token);
UNET_API struct uam *uam_token_am(const struct uam_token *token);

/* Long messages and gets of peers go to and come from this memory, by offset. Bounds are checked;
 * who oversteps them is cut off as above with -ERANGE. */
UNET_API void uam_segment(struct uam *am, void *base, size_t len);

/* ---- requests ---- */

enum {
        UAM_IMMEDIATE = 1, /* do not wait: -EAGAIN */
};

/* Tells when operations are complete. Several may share one; zero it before the first. */
struct uam_event {
        uint32_t left; /* parts that are not complete */
        int32_t err;   /* of the first that failed: its peer's */
};

/*
 * Each polls first, unless the program has since its last request. 0, or -EAGAIN (UAM_IMMEDIATE);
 * -EDEADLK: in a handler; -EPIPE: the peer is lost or has left; -EINVAL: no such peer, handler
 * number or number of arguments; -EMSGSIZE: longer than one message carries.
 *
 * `event`, if not NULL, is complete when the peer has acknowledged: its handler has run. A long
 * message with an event, sent from uam_memory(), must not change until then; any other memory may
 * be used again when the call returns.
 */
UNET_API int uam_request_short(struct uam *am, uint32_t rank, unsigned id, unsigned flags,
                               const uam_arg *arg, int nargs);
UNET_API int uam_request_medium(struct uam *am, uint32_t rank, unsigned id, unsigned flags,
                                const void *data, size_t len, const uam_arg *arg, int nargs);
/* Longer than uam_max_medium(): several messages; not with UAM_IMMEDIATE (-EMSGSIZE). */
UNET_API int uam_request_long(struct uam *am, uint32_t rank, unsigned id, unsigned flags,
                              const void *data, size_t len, uint64_t off, struct uam_event *event,
                              const uam_arg *arg, int nargs);
/* A long message without a handler. */
UNET_API int uam_put(struct uam *am, uint32_t rank, uint64_t off, const void *data, size_t len,
                     struct uam_event *event);
/* Copies from the peer's segment. The event is complete when all is at `to`. */
UNET_API int uam_get(struct uam *am, uint32_t rank, uint64_t off, void *to, size_t len,
                     struct uam_event *event);

/* Payload of one message to the peer, beside arguments. */
UNET_API size_t uam_max_medium(const struct uam *am, uint32_t rank);

/* ---- replies ----
 *
 * From a request's handler, once; never wait. -EPERM: in a reply's handler; -EALREADY: replied;
 * -EINVAL, -EMSGSIZE, -EPIPE. A long reply is at most uam_max_medium() bytes. */
UNET_API int uam_reply_short(struct uam_token *token, unsigned id, const uam_arg *arg, int nargs);
UNET_API int uam_reply_medium(struct uam_token *token, unsigned id, const void *data, size_t len,
                              const uam_arg *arg, int nargs);
UNET_API int uam_reply_long(struct uam_token *token, unsigned id, const void *data, size_t len,
                            uint64_t off, const uam_arg *arg, int nargs);

/* ---- progress ---- */

/* Takes what has arrived and runs handlers; acknowledges and repeats. Returns how many messages
 * were handled; -EDEADLK: in a handler. Never blocks. */
UNET_API int uam_poll(struct uam *am);
/* Polls; when nothing is there sleeps until there is, at most `timeout` (UNET_FOREVER). Returns
 * messages handled, -ETIMEDOUT, -EINTR, -EDEADLK. */
UNET_API int uam_wait(struct uam *am, int64_t timeout);
/* Polls; after many polls in vain, sleeps a little. For loops: while (!done) uam_pause(am). */
UNET_API int uam_pause(struct uam *am);
/* In a handler it does not wait. */
#define uam_wait_for(am, cond)                               \
        do {                                                 \
                while (!(cond) && uam_pause(am) != -EDEADLK) \
                        ;                                    \
        } while (0)
/* Until all requests to the rank (UAM_ALL) are acknowledged: their handlers have run. -ETIMEDOUT,
 * -EDEADLK, -EPIPE. */
UNET_API int uam_flush(struct uam *am, uint32_t rank, int64_t timeout);

/* Called from a poll when a peer is lost, once for each: -EPIPE: it has gone; -ETIMEDOUT: it does
 * not answer; -EBADRQC, -ERANGE, -EPROTO: it, or we, sent what must not be sent. Not for a peer
 * that left by uam_close() and owed nothing. It is a handler: it sends nothing and waits for
 * nothing. */
typedef void uam_lost_fn(void *arg, uint32_t rank, int err);
UNET_API void uam_on_lost(struct uam *am, uam_lost_fn *fn, void *arg);

/* ---- collective calls ----
 *
 * All ranks make the same ones in the same order; trees of messages, about log2(ranks) steps. 0,
 * -EDEADLK, -EINVAL, -ENOMEM, or -EPIPE: a rank that was needed has gone, here or at another; all
 * collective calls fail from then on. */
/* bits: of integers only. */
enum uam_op { UAM_ADD, UAM_MUL, UAM_MIN, UAM_MAX, UAM_AND, UAM_OR, UAM_XOR };
/* Returns when all ranks have called it. */
UNET_API int uam_barrier(struct uam *am);
/* What lies at root's buf gets to everybody's. */
UNET_API int uam_broadcast(struct uam *am, uint32_t root, void *buf, size_t len);
/* *out gets all ranks' values combined, at each rank the same. Sums of doubles are added in one
 * order, whoever is late. */
UNET_API int uam_reduce_i64(struct uam *am, enum uam_op op, int64_t value, int64_t *out);
UNET_API int uam_reduce_f64(struct uam *am, enum uam_op op, double value, double *out);
/* The values of ranks 0 .. our own combined. */
UNET_API int uam_scan_i64(struct uam *am, enum uam_op op, int64_t value, int64_t *out);
UNET_API int uam_scan_f64(struct uam *am, enum uam_op op, double value, double *out);

/* ---- jobs ----
 *
 * `unet am run -n N PROGRAM` (unet-am(1)) starts N ranks. Each opens its endpoint and is connected
 * to all, itself too. */
struct uam_job_opts {
        size_t memory;   /* of uam_memory(), at least: default 16 MB */
        uint32_t window; /* as in struct uam_opts */
};
/* Started by hand, a program is a job of one rank. opts may be NULL. Errors of opening and joining;
 * -EINVAL: the environment is not `unet am run`'s. */
UNET_API int uam_job_open(const struct uam_job_opts *opts, struct uam **out);
/* Waits until all ranks have called it, closes the endpoint too. NULL, or in a handler: nothing
 * happens. */
UNET_API void uam_job_close(struct uam *am);

#define UAM_STATS(X)                                                       \
        X(REQUESTS, "requests sent")                                       \
        X(REPLIES, "replies sent")                                         \
        X(HANDLED, "handlers run")                                         \
        X(ACKS, "acknowledgements sent alone")                             \
        X(NACKS, "gaps told to the sender")                                \
        X(REPEATED, "messages sent again")                                 \
        X(TIMEOUTS, "retransmission timeouts")                             \
        X(DUPLICATES, "messages that had come before")                     \
        X(GAPS, "messages that came before an earlier one")                \
        X(NO_PLACE, "requests that waited until a reply was acknowledged") \
        X(STRAYS, "messages of another job, rank or version")              \
        X(MALFORMED, "messages that contradict themselves")                \
        X(CHECKSUM, "messages whose checksum is wrong")                    \
        X(WINDOW_FULL, "requests that waited for the window")              \
        X(SLEEPS, "sleeps")
enum uam_stat {
#define UAM_STAT(name, text) UAM_STAT_##name,
        UAM_STATS(UAM_STAT)
#undef UAM_STAT
                UAM_NSTATS
};
UNET_API uint64_t uam_stat(const struct uam *am, enum uam_stat what);
UNET_API const char *uam_stat_text(enum uam_stat what);

#ifdef __cplusplus
}
#endif

#endif
