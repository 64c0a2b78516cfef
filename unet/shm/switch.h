/*
 * The switch: kernel-emulated endpoints (§3.5 of the paper), many multiplexed by a trusted program.
 *
 * An endpoint attaches to a *port* (unet/emul); port and endpoint share a ring pair as two
 * endpoints on a direct channel do. The switch reads a message out of the sender's memory, looks
 * its tag up, and writes it into a frame of the memory it shares with the receiver. Endpoints on
 * different ports see nothing of each other.
 *
 *   endpoint A --ring--> port a --> route of the tag: (a) -> (b, tag there) --> port b
 *           --ring--> endpoint B
 *
 *   - Tags. A route goes from (port, tag) to (port, tag) and is made in pairs by whoever runs the
 *     switch. A tag that no route has is dropped as NI_NO_CHANNEL, one that another port owns as
 *     NI_BAD_SOURCE. `check` may refuse more.
 *   - Fairness. Deficit round robin (Shreedhar, Varghese 1995) over the ports that have something
 *     to send, by bytes; the ports of one account share what one port without an account has.
 *   - Limits. A port may have `quota` bytes of frames waiting at receivers; more is dropped as
 *     NI_QUOTA. A receiver whose ring is full loses NI_QUEUE_FULL, one whose frames are all in use
 *     NI_NO_BUFFER. So a slow receiver costs its senders messages and nobody else anything. What
 *     the switch does not get to stays in the sender's ring: back-pressure. Ports may share an
 *     *account*, a user's, say, with limits of its own.
 *   - Ends. Either side ends a channel (unet_chan_close() tells the switch), or its death does; the
 *     other side sees it on the switch's *board*, read-only memory that shows which tags stand
 *     (unet/link.h).
 *
 * The switch is an object without a thread: whoever runs it calls unet_switch_step() until nothing
 * is left, arms it, and sleeps on unet_switch_fd(). One thread at a time.
 */
#ifndef UNET_SWITCH_H
#define UNET_SWITCH_H

#include "base/counters.h"
#include "unet/link.h"
#include "unet/shm/shm_link.h"

#define SWITCH_PORTS  1024u
#define SWITCH_ROUTES LINK_TAGS

struct unet_switch;

/* What several ports may use together, and do use. The caller fills in the limits, the switch the
 * rest. It must live as long as its ports. */
struct unet_switch_account {
        uint64_t bytes_max, bytes; /* of frames waiting at receivers */
        uint32_t msgs_max, msgs;   /* messages in them */
        uint32_t chans_max, chans; /* ends of channels */
        uint32_t busy;             /* ports that have something to send in this round */
};

/* Zeroes are defaults. */
struct unet_switch_opts {
        uint32_t large, small; /* frames towards each port: default 128 of 64 KB and 256 of 2 KB */
        uint32_t quantum;      /* bytes a port, or an account, may send in a round: default 64 KB */
        uint64_t quota;        /* bytes a port may have waiting: default half of a port's frames */
        uint32_t most;         /* messages in one step: default no limit */
        /* Whether the port may send this (its bytes in the descriptor, after the tag). NULL:
         * everything. False: dropped as NI_BAD_SOURCE. */
        bool (*check)(void *arg, uint32_t port, const uint8_t *inl, uint32_t len);
        /* A port whose endpoint left was detached by unet_switch_step(). NULL: nobody wants
         * to know. */
        void (*left)(void *arg, uint32_t port);
        void *arg;
};

int unet_switch_open(const struct unet_switch_opts *opts, struct unet_switch **out);
void unet_switch_close(struct unet_switch *sw);

/* Attaches the endpoint that made the offer `theirs`, and is at the other end of a connected Unix
 * socket, which the switch takes on success. The memory that it offers belongs to `uid`. *mine is
 * what the endpoint must get, through the socket before anything else does, or beside it;
 * unet_switch_sent() when that is done. `account` may be NULL. *port: its number, from 1. -EMFILE:
 * no port free; otherwise as shm_link_connect(). */
int unet_switch_attach(struct unet_switch *sw, int sock, const struct shm_offer *theirs, uid_t uid,
                       struct unet_switch_account *account, struct shm_offer *mine, uint32_t *port);
void unet_switch_sent(struct unet_switch *sw, uint32_t port);
/* Ends a port and its routes; frames on loan to it are taken back. */
void unet_switch_detach(struct unet_switch *sw, uint32_t port);

/* Joins two ports by a pair of new tags: what a sends with tag[0] comes to b as tag[1], and the
 * other way round: each side uses its own tag in both directions. The tags are never those of a
 * route that has ended lately. 0, -ENOSPC, -EDQUOT (an account's), or -EINVAL: no such port. */
int unet_switch_connect(struct unet_switch *sw, uint32_t port_a, uint32_t port_b, uint32_t tag[2]);
/* Ends the pair of routes that the tag belongs to. -ENOENT. */
int unet_switch_disconnect(struct unet_switch *sw, uint32_t tag);

/* One round over all ports, or as far as `most` messages go (the next step goes on from there):
 * each may send its quantum. Returns how many messages were taken from the ports' rings; 0: nothing
 * to do. A port whose endpoint has gone is detached. */
int unet_switch_step(struct unet_switch *sw);
/* Readable when there may be something to do, once unet_switch_arm() has returned true. */
int unet_switch_fd(const struct unet_switch *sw);
/* False: there is something to do now. */
bool unet_switch_arm(struct unet_switch *sw);

/* What a port's endpoint sent (counters of messages and bytes taken, drops on the way) and what was
 * dropped at it. NULL: no such port. */
const struct counters *unet_switch_counters(const struct unet_switch *sw, uint32_t port);
/* Bytes of frames that a port's messages hold at receivers. */
uint64_t unet_switch_charged(const struct unet_switch *sw, uint32_t port);

#endif
