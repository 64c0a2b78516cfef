/* What the chans*.c share; nobody else includes it. */
#ifndef UNETD_CHANS_INT_H
#define UNETD_CHANS_INT_H

#include "unetd/daemon/chans.h"

/* ---- chans.c ---- */

struct end *other_end(const struct end *e);
struct end *end_numbered(const struct stack *st, uint32_t slot);
/* Asks the keeper of the end's stack. 0 or a negative errno. */
int end_ask(struct end *e, uint16_t type);
void end_free(struct end *e);
/* The keeper takes it down, and then it is free. */
void end_close(struct end *e);
void chan_free_if_unused(struct chan *ch);
/* A number of the stack for the payer's channel. Returns true if there is one, and it may be his.
 */
bool slot_is_free(const struct stack *st, const struct user *payer);
/* Returns true if the payer has as many of them as others leave him. */
bool slot_share_is_full(const struct stack *st, const struct user *payer);
/* As chan_open(); `yields`: others may be asked to make room. */
int chan_open_by(struct client *cl, struct unetd_msg *msg, bool yields);

/* ---- chans_yield.c ---- */

/* The request, which found no number at one of the two (`peer` NULL: it is an interface), is tried
 * again when another channel has yielded. REPLY_LATER, or -EDQUOT: none will. */
int yield_wait(struct client *cl, const struct unetd_msg *msg, struct stack *mine,
               struct stack *peer);
/* Those who wait for the channel, which `st` had no room for, wait until another has yielded. */
void yield_retry(struct chan *ch, struct stack *st);
/* The answer to K_CHAN_PART of end `o`. */
void part_answered(struct chan *ch, struct end *o, int err);
/* An end of it is free: it is freed if both are, and who waited for its number is served. */
void chan_is_down(struct chan *ch);
/* The stack has another keeper, which has not been asked. */
void yield_replay(struct stack *st);
/* The stack is gone. */
void yield_forget(struct stack *st);

#endif
