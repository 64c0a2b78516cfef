/*
 * The seam between whoever uses an endpoint (the protocol stack, <unet/unet.h>) and whoever
 * provides one.
 *
 * A provider is one table, struct unet_ni_ops. Messages go out as (bytes for the descriptor, one
 * range of a frame) and come in the same way. Three verbs move a buffer, and at any moment it is in
 * exactly one place:
 *
 *   sender:    free --send--> provider --reap--> sender
 *   receiver:  provider --recv--> receiver --release--> provider
 *
 * reap() says "injected": it may be reused, and not "delivered". What recv() gives is a loan, or a
 * buffer of the free queue.
 *
 * Frames are named by numbers agreed at set-up (base/frame.h), never by addresses. A send that is
 * not accepted has not happened: the queue is full, try later; nothing is lost on the way in.
 */
#ifndef UNET_NI_H
#define UNET_NI_H

#include "base/base.h"
#include "base/checksum.h"

#define UNET_INLINE_MAX 240 /* most bytes that travel in a descriptor, over every provider */

#define UNET_RANGES_MAX 4 /* ranges of a region that one message may be gathered from */

struct unet_range { /* bytes of a region */
        uint32_t off, len;
};

/* A message to send. `inl` and the frame are borrowed until send returns, the frame's bytes until
 * it is reaped. */
struct unet_tx {
        const uint8_t *inl; /* headers, and the payload too when it is small */
        uint16_t inl_len;   /* <= caps.inline_max; where caps.copied, <= caps.mtu */
        uint16_t nmore;     /* entries of `more`; < UNET_RANGES_MAX */
        uint32_t frame;     /* frame number in the channel's transmit region, 0: no frame */
        uint32_t off, len;  /* the range of it to send */
        /* Raw endpoints only: further ranges, sent after the first. */
        const struct unet_range *more;
};

/* A message received. The descriptor was copied out of shared memory before anything in it was
 * looked at. */
struct unet_rx {
        uint32_t frame; /* frame number in the channel's receive region, 0: none; ours to release */
        uint32_t off, len; /* checked: inside the frame */
        uint32_t inl_len;
        uint8_t inl[UNET_INLINE_MAX];
        uint32_t nmore; /* set and read by raw endpoints only, as in unet_tx */
        struct unet_range more[UNET_RANGES_MAX - 1];
};

struct unet_caps {
        uint32_t mtu;        /* largest message: inline bytes + frame bytes */
        uint32_t inline_max; /* <= UNET_INLINE_MAX */
        bool csum;           /* the link can corrupt: transports must checksum */
        bool csum_pseudo;    /* and senders may have left it to a device: see enum csum_check */
        bool lossless;       /* in order and nothing lost between send and recv */
        bool inside;         /* the other end is a stack of this host */
        bool whole; /* what is received lies in its frame in one piece: before the range given, in
                     * the same memory, are the inline bytes */
        /* Send copies before it ends, and a message may be inline whole, beyond inline_max. */
        bool copied;
        bool runs;        /* send_run is there */
        bool room_unsaid; /* nobody wakes who waits for room: whoever does looks now and then */
        bool shared; /* an interface that other stacks of this host have too, with our address: what
                      * is sent to our own link address comes to them */
        nstime rto_min; /* floor for retransmission timers the link justifies */
};

/* A run of TCP segments of one connection that differ only in their place in the stream: one
 * message, which the NI cuts. */
struct unet_piece {
        const uint8_t *p;
        uint32_t len;
};
struct unet_run {
        /* Link, IP and TCP header; lengths are the run's, checksum the pseudo header's. */
        const uint8_t *hdr;
        uint16_t hdr_len;
        uint16_t l4;                    /* where in it the TCP header begins */
        uint16_t mss;                   /* payload of every segment but the last */
        uint16_t npieces;               /* <= UNET_PIECES_MAX */
        const struct unet_piece *piece; /* the payload, borrowed for the call */
};
#define UNET_PIECES_MAX 64

struct unet_chan; /* a provider's channel; begins as below */

struct unet_ni_ops {
        const char *name;
        /* Posts up to n messages; returns how many were accepted, fewer when the send queue
         * is full. */
        int (*send)(struct unet_chan *ch, const struct unet_tx *tx, int n);
        /* Sends a run, behind what was sent before; false: there is no room, nothing was sent. NULL
         * without caps.runs. */
        bool (*send_run)(struct unet_chan *ch, const struct unet_run *r);
        /* Takes up to n messages that have arrived. Malformed ones are counted and never shown. */
        int (*recv)(struct unet_chan *ch, struct unet_rx *rx, int n);
        /* Gives received frames back. Never fails; what does not fit at once is kept for the
         * next call. */
        void (*release)(struct unet_chan *ch, const uint32_t *frame, int n);
        /* Takes up to n frame numbers whose sends are finished with them: one entry for each
         * accepted send of it. */
        int (*reap)(struct unet_chan *ch, uint32_t *frame, int n);
        /* Slots free in the send queue now. */
        uint32_t (*room)(struct unet_chan *ch);
        /* Where the next message will lie, of at most caps.mtu bytes, while there is room:
         * one that is inline whole and was put together there is not copied any more. NULL
         * without caps.copied. */
        uint8_t *(*place)(struct unet_chan *ch);
        /* Whether recv or reap would return something; may be asked without the stack's lock. */
        bool (*pending)(struct unet_chan *ch);
        /* Asks the other side to wake us when it makes room (on), or no longer. May be NULL: room
         * comes by itself. */
        void (*want_room)(struct unet_chan *ch, bool on);
        /* Nobody will look at the channel any more: its peer rings the owner's keeper before it may
         * rely on being heard. Who calls looks once more with pending() after this. May be NULL: it
         * is looked at for ever. */
        void (*quiet)(struct unet_chan *ch);
        /* Somebody is about to sleep on the channel's descriptor, and looks with pending() after
         * this. May be NULL: nothing to do. */
        void (*arm)(struct unet_chan *ch);
        /* Makes what was sent, released or consumed visible and wakes the other side if it sleeps:
         * once a batch. */
        void (*flush)(struct unet_chan *ch);
        /* A process that shared the channel died in the middle of any of the above. May be NULL: it
         * is never shared. */
        void (*repair)(struct unet_chan *ch);
};

/* How transports check what comes by the link. */
static inline enum csum_check unet_csum_check(const struct unet_caps *caps)
{
        return !caps->csum ? CSUM_UNCHECKED : caps->csum_pseudo ? CSUM_WHOLE_OR_PSEUDO : CSUM_WHOLE;
}

/* What every provider's channel begins with; the rest is its own business. */
struct unet_chan {
        const struct unet_ni_ops *ops;
        /* ni_answer.h; NULL: every SYN is the stack's to answer. */
        const struct unet_answer_ops *answers;
        /* ni_promise.h; NULL: there are none. */
        const struct unet_promise_ops *promises;
        struct unet_caps caps;
};

#endif
