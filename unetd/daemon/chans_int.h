/* What the chans*.c share; nobody else includes it. */
#ifndef UNETD_CHANS_INT_H
#define UNETD_CHANS_INT_H

#include "unetd/daemon/chans.h"

/* ---- chans.c ---- */

struct end *other_end(const struct end *e);
struct end *end_numbered(const struct stack *st, uint32_t slot);
/* Returns true if the keeper does not know of the end yet. Nothing is asked about it until it is
 * told what is so then (replay.h). */
bool end_is_untold(const struct end *e);
/* Sends a request about the end to its stack's keeper. 0 or a negative errno. */
int end_ask(struct end *e, uint16_t type);
void end_free(struct end *e);
/* Asks the keeper to take the end down; its answer frees it. */
void end_close(struct end *e);
void chan_free_if_unused(struct chan *ch);
/* Returns true if the stack has a free channel number, and the payer may have one more. */
bool slot_is_free(const struct stack *st, const struct user *payer);
/* Returns true if the payer has his whole share of the stack's numbers. */
bool slot_share_is_full(const struct stack *st, const struct user *payer);
/* As chan_open(). `yields`: another channel may be asked to make room. */
int chan_open_by(struct client *cl, struct unetd_msg *msg, bool yields);

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
