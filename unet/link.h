/*
 * A link: one provider's channel as a raw endpoint uses it, and what a provider must say of it.
 *
 * It is a struct unet_chan with its struct unet_ni_ops, as the protocol stack uses it, plus what a
 * raw endpoint needs and the stack knows from elsewhere: where received frames lie, whether
 * messages carry a tag, whether the peer is alive, what to do before sleeping, how to close. A
 * provider fills in one of these and calls ep_attach() (ep.h).
 *
 * On a tagged link every message begins with a struct link_tag inline: many channels of an endpoint
 * share the link, and a switch at the other end sorts them. An untagged link is one channel.
 */
#ifndef UNET_LINK_H
#define UNET_LINK_H

#include "unet/mem.h"
#include "unet/ni.h"

struct link_tag {
        uint32_t tag; /* the sender's outgoing tag; delivered, the receiver's own */
};

/* What a switch shows the endpoints at its ports, at the start of its station's shared part: the
 * tags of the routes that stand, each at the place of its low bits. */
#define LINK_TAGS 4096u
struct link_board {
        _Alignas(CACHE_LINE) _Atomic uint32_t changes; /* counts tags taken away */
        _Alignas(CACHE_LINE) _Atomic uint32_t tag[LINK_TAGS];
};
/* To a switch, a message with tag 0 is a word to itself: this tag of mine is to end. */
struct link_end {
        uint32_t zero, tag;
};

struct link_ops {
        /* Whether the peer has said that it left (its death is told by the socket). Cheap. NULL: it
         * never does. */
        bool (*gone)(struct unet_chan *ch);
        /* Before an endpoint sleeps, after its bell was armed. True: something may have arrived by
         * it, look again. NULL: nothing to do. (Virtual time goes on here.) */
        bool (*arm)(struct unet_chan *ch);
        /* The processor on which the peer last waited, UINT32_MAX: not known. NULL: nothing to
         * spin for. */
        uint32_t (*peer_cpu)(struct unet_chan *ch);
        /* Ends the channel and frees it. `forget`: another process goes on with it (after fork),
         * tell the peer nothing. */
        void (*close)(struct unet_chan *ch, bool forget);
};

struct link {
        const struct link_ops *ops;
        struct unet_chan *ch;
        struct unet_mem rx_mem; /* where the frames lie that recv names */
        const uint8_t *shared;  /* what the peer shows of its station, shared_bytes long */
        size_t shared_bytes;
        bool tagged;
        void *port; /* the provider's, where an endpoint's links share one; NULL */
        int sock;   /* the peer rings here; it hangs up when the peer is gone; -1: none */
};

#endif
