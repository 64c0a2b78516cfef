/*
 * What a keeper is told that takes the place of a dead one, or that is handed another's stacks:
 * first all stacks with their processes, then all channels. Nobody else may wait for that, so a
 * turn of the loop tells one user's keeper as much as fits into SHARE_A_TURN. Users take turns, and
 * a keeper that has much to read is told no more.
 *
 * What changes at a stack or a channel that waits is not said: its turn says what is so then.
 * Requests for the keeper itself are answered -EAGAIN until it has been told of all.
 *
 * Stacks that are given up with their keepers are freed in the same way.
 */
#ifndef UNETD_REPLAY_H
#define UNETD_REPLAY_H

#include "unetd/daemon/daemon.h"

/* Begins with all stacks of the user, or with those that `from` handed over. */
void replay_begin(struct user *u, const struct client *from);
/* Gives up all of his stacks. */
void replay_give_up(struct user *u);
/* Returns true while a stack or channel of his waits for its turn, or his keeper is to be buried.
 */
bool replay_goes_on(const struct user *u);
void replay_turn(void);
/* Returns true if replay_turn() has something to do for the user. */
bool replay_is_due(const struct user *u);
/* The stack, or the end, is being freed. */
void replay_forget(struct stack *st);
void replay_forget_end(struct end *e);

#endif
