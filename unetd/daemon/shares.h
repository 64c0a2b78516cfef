/*
 * Tables that users share keep room for others: one user has at most as much as he leaves to them.
 * The first may have half, a second half of what is left, and so on; a user who has nothing yet
 * finds something. In a private unetd its one user may have all.
 *
 *   what                             of how many              who counts
 *   places at an interface's bridge  GATE_PORTS               the stack's user
 *   channels of one stack            per_uid.chans_per_stack  who asked for them; the stack's own
 *                                                             user is not limited
 *   client ports                     all there are            the stack's user
 *   memory that a device may touch   pinned of unet.conf      the stack's user
 *   entries of the directory         DIR_MAX                  the stack's user
 *   descriptors of unetd             RLIMIT_NOFILE            who made it hold them
 *   descriptors of a user's keeper   its RLIMIT_NOFILE        others, who asked for channels
 *   emulated endpoints               SWITCH_PORTS             who attached them
 *   ends of channels between these   SWITCH_ROUTES            each end's user
 *   calls that wait at a name        CALLS_MAX (emul.c)       who calls
 *   a stack's channels to hosts      VLINK_CHANS              the host that asks, also where the
 *                                                             unetd is private
 */
#ifndef UNETD_SHARES_H
#define UNETD_SHARES_H

#include "unetd/daemon/daemon.h"

/* Returns true if a user who has `have` of the `taken` may have one more, of `total`. */
bool share_may_take(uint32_t have, uint32_t taken, uint32_t total);
/* The rule by itself, whoever shares. */
bool share_leaves_others(uint32_t have, uint32_t taken, uint32_t total);
/* Returns true if unetd may hold `more` descriptors for the user. */
bool share_may_hold(const struct user *u, uint32_t more);
/* Returns how many descriptors a keeper has for an end of that channel. */
uint32_t share_end_fds(const struct chan *ch);
/* Descriptors that a keeper has for a link to an RDMA device, which it may come to drive. */
#define SHARE_LINK_FDS (UNETD_LINK_FDS + 8u)
/* Returns true if the user's keeper has room for so many more descriptors: a keeper without any
 * would lose all its stacks. */
bool share_keeper_may_hold(const struct user *u, uint32_t more);
/* Returns true if the keeper has room for an end of the channel that `payer` asks for. */
bool share_keeper_may_take(const struct user *u, const struct user *payer, const struct chan *ch);
/* Return true if the user may have one more entry of the directory, or so many more client ports.
 */
bool share_may_enter(const struct user *u);
bool share_may_lease(const struct user *u, uint32_t more);
/* Return true if the user may have one more emulated endpoint, or one more end of a channel between
 * these. */
bool share_may_attach(const struct user *u);
bool share_may_join(const struct user *u);

#endif
