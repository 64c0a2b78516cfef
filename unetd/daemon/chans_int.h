/*
 * What the chans*.c share; nobody else includes it.
 *
 *      chans.c          a channel is made, opened, closed
 *      chans_slot.c     the numbers that a stack has for its channels
 *      chans_tell.c     what keepers are told
 *      chans_iface.c    channels to interfaces
 *      chans_yield.c    a channel makes room for another
 *      chans_restore.c  channels that an earlier unetd made
 */
#ifndef UNETD_CHANS_INT_H
#define UNETD_CHANS_INT_H

#include "unetd/daemon/chans.h"

/* ---- chans.c ---- */

struct end *other_end(const struct end *e);
struct end *end_numbered(const struct stack *st, uint32_t slot);
struct chan *chan_alloc(void);
void chan_free_if_unused(struct chan *ch);
/* Binds an end to a stack, under number `slot` or, with UNETD_CHANS_MAX, under the lowest free one.
 */
int end_bind(struct end *e, struct stack *st, struct user *payer, uint32_t slot);
void end_free(struct end *e);
/* Makes a channel to a peer, or to an interface, which the stack has entered. */
int chan_new(struct stack *mine, struct stack *peer, struct iface *iface, struct end **out);
/* Lets the request wait until the channel is up. */
int chan_wait(struct client *cl, struct end *e, const struct unetd_msg *request);
/* Has the keepers attach a channel that is new. The request waits. */
int chan_start(struct client *cl, struct end *e, const struct unetd_msg *request);
/* As chan_open(). `yields`: another channel may be asked to make room. */
int chan_open_by(struct client *cl, struct unetd_msg *msg, bool yields);

/* ---- chans_slot.c ---- */

/* Takes this number, or the lowest free one. 0; -EEXIST, -EDQUOT. */
int slot_take(struct stack *st, uint32_t slot);
int slot_new(struct stack *st, const struct user *payer, bool remote, uint32_t *slot);
void slot_free(struct stack *st, uint32_t slot);
/* A number that a keeper reported as taken is free again, unless a channel has it. */
void slot_free_if_unused(struct stack *st, uint32_t slot);
/* Returns true if the stack has a free channel number, and the payer may have one more. */
bool slot_is_free(const struct stack *st, const struct user *payer);
/* Returns true if the payer has his whole share of the stack's numbers. */
bool slot_share_is_full(const struct stack *st, const struct user *payer);
/* What another host asks for: 0; -EDQUOT: it has its whole share of the stack's numbers for other
 * hosts. -EAGAIN: all those have it together of which nobody knows yet whether they are there. */
int slot_host_may_take(const struct stack *st, uint32_t addr);
/* Notes that the stack's processes have no address space or descriptors for one more channel, which
 * may change. Returns false if that was known, or the stack has no channel at all. */
bool slot_no_room(struct stack *st, uint32_t slot);

/* ---- chans_tell.c ---- */

/* Returns true if the keeper does not know of the end yet. Nothing is asked about it until it is
 * told what is so then (replay.h). */
bool end_is_untold(const struct end *e);
struct unetd_chan_info end_info(const struct end *e);
/* Asks the keeper to attach the end. 0 or a negative errno. */
int end_attach(struct end *e);
/* Sends a request about the end to its stack's keeper. 0 or a negative errno. */
int end_ask(struct end *e, uint16_t type);
/* Asks the keeper to take the end down; its answer frees it. */
void end_close(struct end *e);

/* ---- chans_iface.c ---- */

/* As chan_open_by(), of an interface. */
int chan_open_iface(struct client *cl, struct unetd_msg *msg, struct stack *mine);

/* ---- chans_yield.c ---- */

/* Keeps a request that found no channel number at one of the two stacks (`peer` NULL: it is for an
 * interface) until another channel has yielded. REPLY_LATER, or -EDQUOT: none will. */
int yield_wait(struct client *cl, const struct unetd_msg *msg, struct stack *mine,
               struct stack *peer);
/* Lets the requests that wait for the channel, for which `st` had no room, wait until another has
 * yielded. */
void yield_retry(struct chan *ch, struct stack *st);
/* Handles the keeper's answer to K_CHAN_PART of end `o`. */
void part_answered(struct chan *ch, struct end *o, int err);
/* An end of the channel is free: frees the channel if both are, and serves the requests that waited
 * for its number. */
void chan_is_down(struct chan *ch);
/* Ends what a stack that is gone had to do with yielding. */
void yield_forget(struct stack *st);

#endif
