/*
 * SYNs that are answered before the stack sees them: what a channel that can (unet_chan.answers)
 * and the stack say to each other. All calls are made under the stack's lock; unet/xdp/tcx_ring.h
 * has what an answer is, and when it holds.
 *
 *   learn()   the stack tells the channel how a connection came about
 *   forget()  ... that whatever was learnt may hold no more
 *   count()   ... that a connection begins, or ends
 *   took()    recv() gave a SYN: how it was answered, if it was
 */
#ifndef UNET_NI_ANSWER_H
#define UNET_NI_ANSWER_H

#include "base/base.h"

struct unet_chan;

/* Of a connection, IPv4, as on the wire; `own` is the stack's. */
struct unet_ends {
        be32 peer, own;
        be16 peer_port, own_port;
};

struct unet_answer {
        nstime at; /* when */
        uint32_t iss;
        uint16_t wnd; /* as on the wire */
        uint8_t wscale;
};

/* A SYN-ACK as it leaves, Ethernet header first, and what the sequence numbers of others to the
 * same port are made with. */
struct unet_lesson {
        const uint8_t *frame;
        uint32_t len;
        const uint8_t *secret; /* 16 bytes, as of iss_function() */
        uint64_t ends[4];      /* the addresses as that has them */
        nstime until;          /* holds no longer than this */
        /* So many connections there is room for, of those that nobody has seen yet; not 0. */
        uint32_t ahead;
};

struct unet_answer_ops {
        /* Whether a SYN of the last recv() was answered, and how. Asked once for each. */
        bool (*took)(struct unet_chan *ch, const struct unet_ends *e, uint32_t seq,
                     struct unet_answer *a);
        /* Whether SYNs of that host to that port are answered now, or are not to be. */
        bool (*knows)(struct unet_chan *ch, const struct unet_ends *e, nstime now);
        /* False: it cannot be answered. counts() was asked before. */
        bool (*learn)(struct unet_chan *ch, const struct unet_ends *e, const struct unet_lesson *l);
        /* Until then SYNs of that host to that port are the stack's to answer, and knows() is true:
         * an answer did not arrive. */
        void (*mistrust)(struct unet_chan *ch, const struct unet_ends *e, nstime until);
        void (*forget)(struct unet_chan *ch);
        /* One connection more (1) or less (-1) has these ends: a SYN between them is not answered.
         * Until counts() it is not looked at. */
        void (*count)(struct unet_chan *ch, const struct unet_ends *e, int by);
        /* False: connections are not counted, but are from here on: count(), for those that
         * there are. */
        bool (*counts)(struct unet_chan *ch);
};

#endif
