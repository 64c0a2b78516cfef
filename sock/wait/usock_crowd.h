/*
 * The crowd: waiters beyond STACK_WAITERS (netstack/stack.h). Everything under the stack's lock.
 * Slots are those of stack_waiter(), from STACK_WAITERS on.
 */
#ifndef SOCK_USOCK_CROWD_H
#define SOCK_USOCK_CROWD_H

#include "sock/attach/ustack.h"

/* A place in the crowd, whose waiter_slot is the caller's to fill; 0: there is none left. */
uint32_t crowd_join(struct stack_state *st);
/* It wants to hear of a socket (0: of any news); where `exclusive`, one of those who say so is
 * enough. False: no room. */
bool crowd_want(struct stack_state *st, uint32_t slot, uint32_t sock, bool exclusive);
/* Gives the place up, and wants nothing any more. */
void crowd_leave(struct stack_state *st, uint32_t slot);
/* Wakes those who sleep for a socket (0: for any news), and of the exclusive ones as many
 * as `exclusive`. */
void crowd_wake(struct ustack *u, uint32_t sock, uint32_t exclusive);
/* Wakes one who sleeps, or all; of one process (its slot + 1; 0: of any). False: nobody did. */
bool crowd_wake_one(struct ustack *u);
bool crowd_wake_all(struct ustack *u, uint32_t proc);
/* The waker may have died before it woke whom it had chosen: all count as asleep. */
void crowd_rearm(struct stack_state *st);
/* The threads of a process (its slot + 1) are no more. */
void crowd_end(struct stack_state *st, uint32_t proc);

#endif
