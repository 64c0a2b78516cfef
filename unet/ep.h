/*
 * An endpoint from inside: what <unet/unet.h> keeps opaque.
 *
 * It has *links* (struct link, one a peer or switch) and *channels* over them. Sends with pieces
 * carry a name, an index into the link's table of sends, which the provider gives back when the
 * message is injected; the table is the record against which a hostile peer's returns are checked.
 * All of this is private memory of one process.
 */
#ifndef UNET_EP_H
#define UNET_EP_H

#include <unet/unet.h>

#include "base/counters.h"
#include "unet/link.h"
#include "unet/station.h"

#define EP_LINKS    256u
#define EP_SENDS    1024u /* messages with pieces under way on a link, and cookies not reaped */
#define EP_BATCH    16    /* messages handed to a provider at a time */
#define EP_ROUND    512   /* most messages looked at on one link before the next has its turn */
#define EP_TAG_HASH 256u

static_assert(UNET_EP_FRAGS == UNET_RANGES_MAX &&
                      sizeof(struct unet_frag) == sizeof(struct unet_range),
              "a message's pieces are a provider's ranges");
static_assert(UNET_EP_INLINE + sizeof(struct link_tag) <= UNET_INLINE_MAX,
              "a tag fits before the inline bytes");

enum send_state { SEND_FREE, SEND_UNDER_WAY, SEND_DONE };

struct send_rec { /* by name, 1 .. EP_SENDS */
        uint64_t cookie;
        uint32_t *injected;
        uint32_t next; /* in the free list or the list of cookies to reap */
        enum send_state state;
};

struct ep_link {
        struct link l;
        uint32_t serial; /* 0: not in use; place in the low bits, a count above (see loans) */
        bool gone, gone_told;
        bool blocked;                   /* the last send found the queue full */
        const struct link_board *board; /* tagged, where the switch has one */
        uint32_t changes;               /* of the board, when its channels were last looked up */
        bool chan_gone;                 /* one of its channels ended, not told yet */
        uint32_t nending; /* channels closed here of which the switch does not know yet */
        struct send_rec *sends;
        uint32_t free_send; /* head of the list of free names */
        uint32_t under_way;
        uint32_t done_head, done_tail; /* injected, cookie not reaped */
};

struct ep_chan { /* by channel number, from 1; link 0 is a place like any other */
        bool open;
        uint32_t link, tx_tag, rx_tag;
        bool stood;    /* rx_tag was on the switch's board */
        bool gone;     /* and is not any more */
        bool ending;   /* not open; the switch is still to be told */
        uint32_t next; /* in its hash chain (tagged) */
};

struct free_buf {
        uint32_t off, len;
};

struct upcall {
        unet_upcall_fn *fn;
        void *arg;
};

struct unet_ep {
        struct unet_ep_opts opts; /* defaults filled in */
        struct station st;
        struct ep_link *link;  /* nlinks of EP_LINKS; places are reused */
        uint32_t nlinks, turn; /* turn: the link that is looked at first next time */
        uint32_t last_serial;
        struct ep_chan *chan;
        uint32_t nchans, chan_cap;
        uint32_t by_tag[EP_TAG_HASH];
        uint32_t chan_of_link[EP_LINKS]; /* untagged links */

        struct unet_recv *rxq; /* receive queue: ring of opts.rx_slots */
        uint32_t rx_head, rx_count;
        struct free_buf *freeq; /* free queue: ring of opts.free_slots */
        uint32_t free_head, free_count;

        struct {
                uint64_t instance; /* of the unetd; 0: not attached */
                uint32_t port, link, serial;
        } emul;
        struct upcall upcall[UNET_UPCALLS];
        _Atomic bool upcalls_off;
        struct counters cnt;
};

/* Takes over a link, on success: an untagged one becomes a channel (*chan), a tagged one waits for
 * ep_chan_tagged() (*chan is the link's number then). -EMFILE: too many; -ENOMEM. On failure the
 * link is the caller's. */
int ep_attach(struct unet_ep *ep, const struct link *l, uint32_t *chan);
/* A channel over a tagged link: messages go out with tx_tag, those that come with rx_tag belong to
 * it. Whoever runs the switch gives the tags out. -EEXIST: rx_tag is in use; -ENODEV: no such
 * link. */
int ep_chan_tagged(struct unet_ep *ep, uint32_t link, uint32_t tx_tag, uint32_t rx_tag,
                   uint32_t *chan);

/* The link of an open channel, NULL: there is none. */
static inline struct ep_chan *ep_chan(struct unet_ep *ep, uint32_t chan)
{
        return chan != 0 && chan < ep->nchans && ep->chan[chan].open ? &ep->chan[chan] : NULL;
}

/* The channel of a tag that came by a link, 0: none. */
uint32_t ep_chan_by_tag(const struct unet_ep *ep, uint32_t link, uint32_t tag);

/* Looks up on the switch's board which channels of a tagged link have ended; cheap when
 * nothing changed. */
void ep_read_board(struct unet_ep *ep, struct ep_link *l);
/* The switch gave the channel its tag: if the tag is not on the board, the channel has ended before
 * it was known here. */
void ep_chan_stood(struct unet_ep *ep, uint32_t chan);
/* Tells the switch of channels that were closed while the send queue was full. */
void ep_tell_endings(struct unet_ep *ep, struct ep_link *l);

/* Takes the provider's reports of injected messages. */
void ep_collect_injected(struct unet_ep *ep, struct ep_link *l);
/* The peer is gone: nothing more is sent, everything under way counts as injected. */
void ep_link_gone(struct unet_ep *ep, struct ep_link *l);

#endif
