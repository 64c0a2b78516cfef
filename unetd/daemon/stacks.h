/* Stacks and the process slots of each. */
#ifndef UNETD_STACKS_H
#define UNETD_STACKS_H

#include "unetd/daemon/daemon.h"

struct stack *stack_find(uint32_t id);
/* 0, or -ENOENT, -EPERM. */
int stack_of(struct user *u, uint32_t id, struct stack **st);
/* As that, for a request that the user's keeper has a part in. -EAGAIN: the stack may be brought
 * back yet, or the keeper does not have it, since another one is handing it over. */
int stack_for(struct client *cl, uint32_t id, struct stack **st);
/* Requests return 0 (answer now), a negative errno, or REPLY_LATER. */
int stack_new(struct client *cl, struct wire_in *in);
int stack_proc_add(struct client *cl, struct wire_in *in);
int stack_flight(struct client *cl, struct wire_in *in);
int stack_proc_del(struct client *cl, struct wire_in *in);
void stack_answered(struct user *u, struct ask *a, int err);
void stack_free(struct stack *st);
/* Hands the stack to its keeper, with its processes and links; its channels follow. */
void stack_tell(struct stack *st);
/* What the keeper says unasked. */
void stack_proc_gone(struct user *u, const struct unetd_msg *msg);
void stack_orphan(struct user *u, const struct unetd_msg *msg);
void stack_gone(struct user *u, const struct unetd_msg *msg);
/* `from`: the keeper that hands over; NULL: the keeper that runs. */
void stack_offered(struct user *u, const struct client *from, struct wire_in *in);
void proc_offered(struct user *u, struct wire_in *in);

#endif
