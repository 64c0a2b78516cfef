/*
 * struct uam from inside, for am/ only.
 *
 *   uam_request_*()  am_request.c  rules and window -> am_send()
 *                    am_send.c     number, keep, transmit
 *   uam_poll()       am_input.c    take from links -> acknowledgements -> number -> handler
 *                    am_timer.c    retransmission, dead peers, sleeping
 *
 * Numbers. Requests and replies of a peer are two sequences of 16-bit numbers, each acknowledged
 * cumulatively:
 *
 *      una          sent            nxt         una + window
 *       | acked ... | not yet given |               |
 *       +-----------+---------------+---------------+
 *         in slots: for repeating, for events, until injected
 *
 * Over a lossless channel a message without event and without a piece of the segment needs no slot:
 * nothing of it is kept. Over others each has one until it is acknowledged, with a copy of what it
 * says.
 *
 * What comes before its turn over a lossy channel is held, at most a window of each sequence.
 * Acknowledgements that are sent alone name what is held, and only what is missing is sent again.
 *
 * Replies need no window: a request is taken only while fewer than `window` replies to its sender
 * are unacknowledged, and held until then (lossy channels; else the request that could be one too
 * many carries the acknowledgement, since it is behind it).
 *
 * Buffers of the transmit part hold payload that is longer than a descriptor. A connected peer has
 * `window` of them set aside for replies, so that a reply never waits.
 */
#ifndef AM_INT_H
#define AM_INT_H

#include "am/am_link.h"
#include "am/am_wire.h"
#include "base/base.h"

#define AM_ID_GET  UAM_HANDLERS       /* handler numbers of the library itself */
#define AM_ID_NONE (UAM_HANDLERS + 1) /* a put: no handler */
#define AM_ID_TREE (UAM_HANDLERS + 2) /* collectives, am_tree.c */
#define AM_ID_SC   (UAM_HANDLERS + 8) /* and the following, splitc.c */
#define AM_IDS     256u

#define AM_BATCH  16     /* messages taken from a link at a time */
#define AM_GATHER 65536u /* largest message */

enum am_seq { AM_SEQ_REQ, AM_SEQ_REP, AM_SEQS };

struct am_slot {
        uint32_t injected;     /* set by the endpoint */
        uint32_t next;         /* in the list of free ones, or of those that wait to be injected */
        uint32_t buf;          /* buffer number + 1, 0: none */
        uint32_t len;          /* of `m.bytes` */
        bool reserved;         /* the buffer is one of those set aside for replies */
        struct unet_frag frag; /* payload in the transmit part; len 0: none */
        struct uam_event *event;
        struct am_image m;
};

struct am_tx {
        uint16_t una, sent, nxt;
        uint16_t recover; /* everything before was sent again, or is to be, after a timeout */
        bool recovering;
        bool stuck;      /* sent != nxt: the send queue was full */
        uint8_t backoff; /* the timeout is doubled so often (RFC 6298 §5.5) */
        uint32_t kept;   /* slots between una and nxt */
        uint64_t held;   /* bit i: the peer has una + 1 + i, until it forgets it */
        nstime deadline; /* of the oldest; 0: it starts at the next tick */
        uint32_t *slot;  /* by number & mask; 0: none */
};
struct am_rx {
        uint16_t nxt;      /* expected */
        uint16_t told;     /* acknowledged */
        uint16_t nacked;   /* all gaps before it were told */
        uint16_t patience; /* a gap is told when so many more are held than OVERTAKEN */
        uint32_t nheld;
        struct am_held **held; /* by number & mask: what came before its turn */
};

struct am_peer {
        struct uam *am;
        struct am_link *link;
        uint32_t rank, chan, tag;
        int err;   /* lost or left: nothing more is sent */
        bool left; /* in order */
        bool lossless, csum;
        /* In the list of those to be acknowledged; a duplicate or gap wants it at once. */
        bool owing, ack_now;
        uint8_t answer;    /* to messages that a timeout sent again: AM_A_* << enum am_seq */
        bool timed, heard; /* in the list of those with a timer */
        struct am_tx tx[AM_SEQS];
        struct am_rx rx[AM_SEQS];
        struct am_peer *next_owing, *next_timed;
        /* RFC 6298 */
        nstime srtt, rttvar, rto, heard_at;
        nstime rtt_at; /* when rtt_seq of rtt_of was sent; 0: none is measured */
        enum am_seq rtt_of;
        uint16_t rtt_seq, rtt_skip; /* one in AM_RTT_EVERY is measured */
};
#define AM_RTT_EVERY 16u

struct am_handler {
        uam_handler *fn;
        void *ctx;
        unsigned kinds;
};

struct uam_token {
        struct am_peer *peer; /* NULL: no handler runs */
        enum am_kind kind;
        bool replied;
};

struct am_get { /* a piece that was asked for */
        uint8_t *to;
        uint32_t len, rank, next;
        struct uam_event *event; /* NULL: free */
};

struct am_tree;

struct am_time {
        nstime (*now)(void *arg);
        /* Until something may have arrived, or `until`. NULL: unet_ep_wait(). */
        void (*sleep)(void *arg, nstime until);
        void *arg;
};

struct uam {
        struct unet_ep *ep;
        struct uam_opts o;
        struct unet_segment seg;
        uint8_t *mem; /* registered segment */
        size_t mem_len;
        uint16_t mask;      /* of the slot rings */
        uint16_t ack_every; /* requests that are acknowledged at once: a quarter of the window */

        struct am_link *links;
        uint32_t nlinks;
        /* By rank; `ranks` and one more, the far end of the way to ourselves. */
        struct am_peer **peer;
        struct am_peer **by_chan;
        uint32_t nchans, npeers;

        struct uam_token token;
        struct am_handler handler[AM_IDS];
        uint8_t *gather; /* a medium message in several pieces, or one that was held */

        struct am_slot *slots; /* from 1 */
        uint32_t nslots, used_slots, free_slot, lingering;
        uint32_t *free_buf;
        uint32_t nbufs, nfree, reserve; /* reserve: of those free, set aside for replies */

        struct am_get *gets; /* from 1 */
        uint32_t ngets, free_get;

        struct am_peer *owing, *timed;
        uint32_t idle;   /* polls in vain since the last message */
        bool polled;     /* since the last request */
        bool yields;     /* who polls in vain gives the processor up */
        bool closing;    /* in uam_close(): nobody is told any more of who goes */
        uint32_t unsent; /* peers' sequences with sent != nxt */
        uint64_t ends;   /* peers lost or left */
        struct am_time time;

        uam_lost_fn *lost;
        void *lost_arg;
        struct am_tree *tree;
        uint64_t stat[UAM_NSTATS];
        _Alignas(16) struct unet_rx rx[AM_BATCH];
};

static inline void am_count(struct uam *am, enum uam_stat what)
{
        am->stat[what]++;
}

/* A message that came before its turn: a copy. */
struct am_held {
        uint32_t len;
        uint8_t bytes[]; /* from the header on; readable up to AM_WITH_ARGS */
};

/* What is to be sent: one message. */
struct am_msg {
        enum am_kind kind; /* AM_REQ or AM_REP */
        enum am_cat cat;
        uint8_t id, flags;
        bool lend; /* send from where it is, if that is the transmit part */
        int nargs;
        const uam_arg *arg;
        const void *data;
        uint32_t len;
        uint64_t off, total;
        struct uam_event *event;
};

/* am_send.c. Numbers, keeps and transmits. 0, -EAGAIN: no place now (never for replies;
 * nothing happened). */
int am_send(struct am_peer *p, const struct am_msg *m);
int am_send_short(struct am_peer *p, enum am_kind kind, unsigned id, const uam_arg *arg, int nargs);
/* Sends kept messages again, from `from` up to what was sent. */
void am_repeat(struct am_peer *p, enum am_seq s, uint16_t from, uint16_t to, uint8_t flags);
/* Goes on with what a full send queue held up. */
void am_resume(struct am_peer *p);
/* An acknowledgement, a NACK or a goodbye; lost if it cannot be sent. */
void am_control(struct am_peer *p, enum am_kind kind, uint16_t seq);
/* The peer has told what it holds; the gaps before the last of that are to be sent again. */
void am_fill_gaps(struct am_peer *p, enum am_seq s);
/* The peer has taken everything before `ack`. */
void am_acked(struct am_peer *p, enum am_seq s, uint16_t ack);
/* The peer has what a timeout sent again. If it had missed it, it may miss what followed, too, and
 * has told what it holds of that; else the timeout was too early. */
void am_answered(struct am_peer *p, enum am_seq s, bool missed);
/* Slots of messages that have been injected since become free. */
void am_collect(struct uam *am);
/* Everything that was on its way is over. */
void am_drop_sent(struct am_peer *p, int err);
/* Payload of a message: from where it is, and in a buffer. */
size_t am_max_lent(const struct am_peer *p, enum am_cat cat, int nargs);
size_t am_max_payload(const struct am_peer *p, enum am_cat cat, int nargs);
/* Returns true if the bytes lie in the endpoint's transmit part. */
bool am_lendable(const struct uam *am, const void *p, size_t len);

/* am_request.c. A request for a handler of the library itself. */
int am_request_own(struct uam *am, uint32_t rank, unsigned id, const uam_arg *arg, int nargs);
int am_request_data(struct uam *am, uint32_t rank, unsigned id, const void *data, size_t len,
                    const uam_arg *arg, int nargs);
int am_request_long(struct uam *am, uint32_t rank, unsigned id, const void *data, size_t len,
                    uint64_t off, struct uam_event *event);
int am_reply_own(struct uam_token *token, unsigned id, const uam_arg *arg, int nargs);
/* From a request's handler that has not replied: 0 or -EPIPE. */
int am_reply(struct uam_token *t, const struct am_msg *m);

/* am_input.c. Takes a batch from each link and handles it; returns how many. */
int am_receive(struct uam *am);
/* Nothing came: acknowledges what is owed, goes on with what was held up, runs timers; `look`: the
 * clock is read in any case. */
void am_idle(struct uam *am, bool look);
void am_pieces_copy(const struct am_pieces *d, uint8_t *to);
/* Bit i: what is numbered rx->nxt + 1 + i is held. */
uint64_t am_held_bits(const struct uam *am, const struct am_rx *r);
void am_forget_held(struct am_peer *p);

/* am_get.c. The data of a piece that was asked for; false: nobody did. */
bool am_got(struct am_peer *p, const struct am_pkt *pkt, const struct am_pieces *data);
void am_serve_get(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                  void *ctx);
void am_fail_gets(struct am_peer *p, int err);

/* am_timer.c */
void am_start_timer(struct am_peer *p, enum am_seq s);
/* An acknowledgement that moves on: a sample for the RTT, and the timer starts afresh. */
void am_progress(struct am_peer *p, enum am_seq s, uint16_t ack);
void am_tick(struct uam *am);

/* am.c. The peer is lost (err < 0), or has left in order (0). */
void am_peer_ends(struct am_peer *p, int err);
/* It broke the rules: it is told, and lost. */
void am_cut_off(struct am_peer *p, int err);
/* Tests bring their own time. */
void am_set_time(struct uam *am, struct am_time time);

/* am_tree.c. 0 or -ENOMEM. */
int am_tree_new(struct uam *am);
void am_tree_free(struct uam *am);
/* uam_reduce_*() of n values, in place. */
int am_reduce_many_i64(struct uam *am, enum uam_op op, int64_t *v, size_t n);
int am_reduce_many_f64(struct uam *am, enum uam_op op, double *v, size_t n);

#endif
