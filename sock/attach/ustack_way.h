/*
 * The ways that a stack's channel can go, a row each: what a provider (unet/ni.h) is to a process
 * that maps the stack. The list is in ustack_way.c; docs/providers.md says how to add one.
 *
 * All of it is called under the stack's lock, but for wake_fd. Threads look without the lock
 * whether something has come (stack_pending()): what a row has mapped stays readable, and empty,
 * until unmap().
 */
#ifndef SOCK_USTACK_WAY_H
#define SOCK_USTACK_WAY_H

#include "sock/attach/ustack.h"

struct ustack_way {
        const char *name;
        /* Whether a channel with these descriptors goes this way. */
        bool (*takes)(const struct unetd_chan *fds);
        /* Maps what is behind them, over what the number's last channel had. The region that is
         * sent from is mapped already. False: there is no memory. */
        bool (*map)(struct ustack *u, uint32_t k, const struct unetd_chan *fds);
        /* What was mapped becomes the stack's channel k. */
        void (*seat)(struct ustack *u, uint32_t k);
        /* Nothing comes this way any more, and what was lent goes back. Descriptors that
         * are not lent are closed after it. */
        void (*end)(struct ustack *u, uint32_t k);
        /* Nobody looks any more at what this or an earlier channel of the number had mapped. */
        void (*unmap)(struct ustack *u, uint32_t k);
        /* A process of the stack died under the lock. NULL: the state says all. */
        void (*repair)(struct ustack *u, uint32_t k);
        /* The peer is rung for whatever was sent: who was to do it has died. NULL: it needs no
         * bell. */
        void (*ring)(struct ustack *u, uint32_t k);
        /* What a sleeper polls, besides the stack's own; NULL: the peer rings. */
        int (*wake_fd)(const struct ustack *u, uint32_t k);
        /* An interface: fills in mtu, mtu_max, mac and the frames that come. NULL: it is none. */
        void (*iface)(const struct ustack *u, uint32_t k, const struct unetd_chan *fds,
                      struct netif_config *cfg, struct frame_geom *rx);
};

extern const struct ustack_way ustack_way_rings;  /* ustack_rings.c: shared memory; the bridge */
extern const struct ustack_way ustack_way_xdp;    /* ustack_xdp.c: an interface of one's own */
extern const struct ustack_way ustack_way_remote; /* ustack_link.c: verbs, to other hosts */

/* Returns true if the descriptors of such a channel are lent (struct ustack, borrows). */
static inline bool ustack_way_borrows(const struct ustack *u, const struct unetd_chan *fds)
{
        return u->borrows && !unetd_chan_is_iface(fds) && !unetd_chan_is_remote(fds);
}

/* Ends the way that channel k went, if any, and closes its descriptors, if they are not lent. */
void ustack_way_end(struct ustack *u, uint32_t k);
/* The two steps of ustack_map_chan_fds(), for who puts an interface into the state between. False:
 * the descriptors are the caller's still. */
bool ustack_way_map(struct ustack *u, uint32_t k, const struct unetd_chan *fds);
void ustack_way_seat(struct ustack *u, uint32_t k);
/* All channels of a stack whose lock's holder died. */
void ustack_ways_repair(struct ustack *u);
/* Nobody looks at number k any more, whichever ways its channels went. */
void ustack_ways_unmap(struct ustack *u, uint32_t k);

/* The way of channel k, if the stack has it in place. */
static inline const struct ustack_way *ustack_way_at(const struct ustack *u, uint32_t k)
{
        return u->s.chan[k].ops != NULL ? u->way[k] : NULL;
}

#endif
