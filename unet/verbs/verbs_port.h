/*
 * An endpoint's queue pair: what all its verbs channels share.
 *
 *   transmit  the user's memory, registered whole: pieces are sent from where they lie
 *   pool      receive buffers. A raw endpoint's base level: memory of ours, copied from; direct:
 *             the segment's receive part, lent. A stack's: memory of ours cut into large frames, as
 *             a receive region has them
 *   staging   a place for each place of the send queue: the descriptor's bytes
 *
 *   send queue      slot[posted % depth]; completions come every so often and retire all before
 *                   them, in order
 *   receive buffer  idle --post--> posted --completion--> waiting (with its channel) --recv--> lent
 *                   --release--> idle
 *
 * A receive buffer, `stride` bytes apart, whole cache lines:
 *
 *      |  24 unused  |  40 GRH  |  payload, at most the port's MTU  |
 *
 * Several lie in one large frame. Its messages are released under the frame's number, and its
 * buffers are idle again when none of its messages is lent any more.
 *
 * Wire format: a UD datagram with immediate data (be32): bit 31 END, 30..23 bytes that were in the
 * descriptor, 22..0 number of the message on its channel. The payload is the message and nothing
 * else, so the MTU is the device's. END is the last of a channel and empty. RoCE's ICRC covers all
 * of it.
 *
 * Who sent it says the network: source address from the GRH and queue pair number from the
 * completion. Who does not know our Q_Key (random, one an endpoint) is dropped by the device;
 * whoever else is not a peer is dropped here and counted.
 */
#ifndef UNET_VERBS_PORT_H
#define UNET_VERBS_PORT_H

#include "base/counters.h"
#include "unet/mem.h"
#include "unet/ni.h"
#include "unet/station.h"
#include "unet/verbs/verbs_dev.h"

#define VERBS_SEND_DEPTH   256u /* places of the send queue */
#define VERBS_SIGNAL_EVERY 64u  /* of which this many may be without a completion */
#define VERBS_CHAIN        32   /* most work requests behind one doorbell: a write of 128 KB */
#define VERBS_STAGE        256u /* bytes of a staging place; >= UNET_INLINE_MAX */
#define VERBS_SGES         (1 + UNET_RANGES_MAX)
#define VERBS_BUFFERS_MIN  256u
#define VERBS_BUFFERS_MAX  4096u
#define VERBS_REPOST       32u /* most buffers posted at a time */
#define VERBS_PEEK         16  /* completions fetched at a time */
#define VERBS_GRH          40u
#define VERBS_HEADROOM     64u   /* of a buffer; the GRH is its end */
#define VERBS_SOURCES      256u  /* chains of the table of peers */
#define VERBS_NAMES        1024u /* frames of a channel sent and not reaped */

static_assert(VERBS_STAGE >= UNET_INLINE_MAX, "descriptor bytes fit");
static_assert((VERBS_NAMES & (VERBS_NAMES - 1)) == 0, "ring");

#define VERBS_IMM_END    (1u << 31)
#define VERBS_IMM_INLINE 23 /* bits to the right of the number of descriptor bytes */
#define VERBS_SEQ_MASK   ((1u << VERBS_IMM_INLINE) - 1)

struct verbs_port;

/* Where a peer is. */
struct verbs_peer {
        ip_addr addr;
        uint32_t qpn, qkey;
};

/* A host we have an address handle for; peers on it share it. Without one it stays until what was
 * posted before has been sent. */
struct verbs_host {
        struct verbs_host *next;
        ip_addr addr;
        struct ibv_ah *ah;
        uint32_t users;
        uint32_t upto; /* without users: the port's count of posts */
        bool stale;    /* made for another place of ours among the port's addresses */
};

struct verbs_chan {
        struct unet_chan base;
        struct verbs_port *port;
        struct verbs_chan *next; /* in its chain of the table of peers */
        struct verbs_peer peer;
        struct verbs_host *host;
        uint32_t tx_seq, rx_seq;
        uint32_t first, last; /* buffers that wait to be received, 0: none */
        uint32_t named;       /* frames in the send queue and in done[] */
        uint32_t done_prod, done_cons;
        uint32_t done[VERBS_NAMES]; /* frames to be reaped */
        bool ended;                 /* END came */
        /* Deliver what was overtaken, too: the protocols above put things in order. */
        bool unordered;
        bool want_room;
        int sock;
};

enum verbs_buf_state { VERBS_IDLE, VERBS_POSTED, VERBS_WAITING, VERBS_LENT };

struct verbs_buf {             /* by number, from 1 */
        struct verbs_chan *ch; /* WAITING, LENT */
        /* IDLE: in the list of such; WAITING: in its channel's; LENT: in its frame's. */
        uint32_t next;
        uint32_t len, inl_len; /* of the message */
        enum verbs_buf_state state;
};

struct verbs_lent { /* a frame's messages that are lent, and its buffers in which such were or are
                     */
        uint32_t n, first;
};

struct verbs_slot {
        struct verbs_chan *ch; /* NULL: nobody waits for it */
        uint32_t frame;        /* 0: none, or already done */
};

struct verbs_chain { /* messages taken and not handed to the device yet */
        int n;
        struct ibv_send_wr wr[VERBS_CHAIN];
        struct ibv_sge sge[VERBS_CHAIN][VERBS_SGES];
};

struct verbs_port {
        struct verbs_dev dev;
        struct ibv_pd *pd;
        struct ibv_comp_channel *events;
        struct ibv_cq *scq, *rcq;
        struct ibv_qp *qp;
        uint32_t qkey, max_inline;

        struct unet_mem tx;
        struct ibv_mr *tx_mr;
        uint8_t *memory; /* ours: staging, and the pool unless it is the user's */
        size_t memory_bytes;
        struct ibv_mr *memory_mr, *pool_mr; /* pool_mr: one of the two */
        uint8_t *pool;
        uint32_t stride, nbufs, nidle, idle;
        uint32_t per_frame;      /* buffers in a large frame, 0: there are no frames */
        struct verbs_lent *lent; /* by frame number */
        uint32_t repost_at;      /* idle buffers are posted when there are so many */
        struct verbs_buf *buf;

        /* Completions fetched, and not looked at yet. */
        struct ibv_wc came[VERBS_PEEK], went[VERBS_PEEK];
        int ncame, nwent;

        struct verbs_chain chain;
        struct verbs_slot slot[VERBS_SEND_DEPTH];
        uint32_t posted, retired;  /* posted: those of the chain too */
        uint32_t signalled;        /* the last of them that makes a completion */
        uint32_t unsignalled;      /* those behind it */
        bool awaited;              /* for one of these somebody waits */
        bool rcq_armed, scq_armed; /* they make an event with the next completion */
        uint32_t arms;

        struct verbs_chan *source[VERBS_SOURCES];
        struct verbs_host *hosts;
        bool leaving; /* some of them have no users */
        uint32_t nchans, nwant_room;

        bool down;   /* port down or address gone: nothing is sent until it is back */
        bool broken; /* the queue pair is in its error state */
        bool dead;   /* the device is gone */
        struct station *st;
        struct counters *cnt;
};

struct verbs_setup {
        /* Where its user sleeps, NULL: elsewhere; must outlive the port, as must cnt. */
        struct station *st;
        struct unet_mem tx; /* flat, or a stack's frames */
        size_t rx_bytes;    /* the pool is the user's and follows tx; 0: it is ours */
        uint32_t buffers;   /* wanted; VERBS_BUFFERS_MIN .. VERBS_BUFFERS_MAX are had */
        bool frames;        /* cut our pool into frames */
        int fd_high;        /* our descriptors' numbers are this or more; 0: any */
        struct counters *cnt;
};

/*
 * Queue pair, registered memory and posted buffers on the device that has the address. 0 or a
 * negative errno: of verbs_dev_open(); -ENOMEM: also when more would be pinned than RLIMIT_MEMLOCK
 * allows; -EOPNOTSUPP: the device gathers too few pieces; -EINVAL: rx_bytes are too few for one
 * buffer.
 */
int verbs_port_open(ip_addr addr, const struct verbs_setup *s, struct verbs_port **out);
/* No channel may be left. `forget`: another process goes on with it (after fork), only our
 * descriptors are closed. */
void verbs_port_close(struct verbs_port *p, bool forget);

/* The handle of a host, made or shared. NULL: errno says why. */
struct verbs_host *verbs_host_get(struct verbs_port *p, ip_addr addr);
void verbs_host_put(struct verbs_port *p, struct verbs_host *h);

/* From now on messages of the peer are the channel's. -EEXIST: another channel has this peer. */
int verbs_source_add(struct verbs_port *p, struct verbs_chan *c);
void verbs_source_remove(struct verbs_port *p, struct verbs_chan *c);

/* Takes completions: sends are retired, messages go to their channels. */
void verbs_poll_sends(struct verbs_port *p);
void verbs_poll_receives(struct verbs_port *p);
/* As the last, but of the queue itself nothing is asked where a peek has found some: not
 * before sleeping. */
void verbs_take_receives(struct verbs_port *p);
/* Only whether there are any; changes nothing that the others look at, but for what they
 * take next. */
bool verbs_port_peek(struct verbs_port *p);
/* Releases n messages under the numbers that they came with. */
void verbs_give_back(struct verbs_port *p, const uint32_t *frame, int n);
/* A buffer is idle again; verbs_repost() hands idle ones to the device when there are enough. */
void verbs_buf_free(struct verbs_port *p, uint32_t number);
void verbs_repost(struct verbs_port *p);
/* Hands the chain to the device: one doorbell. */
void verbs_ring(struct verbs_port *p);
/* Places in the send queue. */
uint32_t verbs_port_room(struct verbs_port *p);

/* Before sleeping: takes what the device reports, asks for events of the queues. */
void verbs_port_arm(struct verbs_port *p);
/* Takes what the device reports of itself: port, addresses, errors. */
void verbs_port_events(struct verbs_port *p);
/* After an error: the queue pair anew, everything under way counts as sent. */
void verbs_port_repair(struct verbs_port *p);

/* A completion of a send will come, or is there. */
static inline bool verbs_sends_due(const struct verbs_port *p)
{
        return (int32_t)(p->signalled - p->retired) > 0;
}

/* verbs_repost() would hand some over, or something is to be repaired. */
static inline bool verbs_repost_due(const struct verbs_port *p)
{
        return p->nidle >= p->repost_at || p->broken;
}

/* The large frame that a buffer lies in. */
static inline uint32_t verbs_frame_of(const struct verbs_port *p, uint32_t number)
{
        return 1 + (number - 1) / p->per_frame;
}

static inline uint8_t *verbs_buf_at(const struct verbs_port *p, uint32_t number)
{
        if (p->per_frame == 0)
                return p->pool + (size_t)(number - 1) * p->stride;
        return p->pool + (size_t)(verbs_frame_of(p, number) - 1) * FRAME_LARGE_BYTES +
               (size_t)((number - 1) % p->per_frame) * p->stride;
}

/* The pool as those see it who receive. */
struct unet_mem verbs_rx_mem(const struct verbs_port *p);

#endif
