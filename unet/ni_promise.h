/*
 * Connections that are promised: what a channel between two stacks of one host (unet_chan.promises)
 * and the stacks at its ends say to each other. Who promised takes the peer's next connection for
 * certain, and has said how: so it is established, at the peer, when its SYN is in the queue, as it
 * is over the kernel's loopback. All calls are made under the stack's lock.
 *
 *   make()      whose listener it is: connections to it are taken, so many from here on
 *   withdraw()  ... or no more
 *   look()      who connects: whether they are, and how
 *   take()      ... then takes one of them
 *   keep()      whose listener it is: a SYN came that says to be one of them
 */
#ifndef UNET_NI_PROMISE_H
#define UNET_NI_PROMISE_H

#include "base/base.h"

struct unet_chan;

/* An IPv4 listener, as on the wire. */
struct unet_door {
        be32 addr;
        be16 port;
};

/* A process, by unetd's number, and a descriptor that it has until it ends. What it promised ends
 * with it, and who connects may come before the keeper has seen that. */
struct unet_promiser {
        uint32_t pid, fd;
};

/* How a SYN is answered: with selective acknowledgements, without timestamps. */
struct unet_promise {
        uint32_t room; /* for so many connections */
        uint16_t wnd;  /* as on the wire */
        uint16_t mss;
        uint8_t wscale;
        struct unet_promiser by;
};

struct unet_promise_ops {
        /* What was promised before and is alike counts among the new ones. Nothing is promised
         * while SYNs of another promise may be on their way. */
        void (*make)(struct unet_chan *ch, struct unet_door door, const struct unet_promise *p,
                     nstime now);
        void (*withdraw)(struct unet_chan *ch, nstime now);
        /* False: nothing is promised. */
        bool (*look)(struct unet_chan *ch, struct unet_door door, struct unet_promise *p);
        /* Returns what the SYN must say, from 1; 0: it is no more as it was at the look. */
        uint16_t (*take)(struct unet_chan *ch, struct unet_door door);
        /* False: nothing like it was promised. Asked once for each SYN. */
        bool (*keep)(struct unet_chan *ch, struct unet_door door, uint16_t said,
                     struct unet_promise *p);
};

#endif
