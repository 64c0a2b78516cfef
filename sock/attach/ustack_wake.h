/*
 * Events of sockets and who is woken by them; what wait/ does for the rooms beside and below it.
 * (sock/wait/usock_wake.c)
 */
#ifndef SOCK_USTACK_WAKE_H
#define SOCK_USTACK_WAKE_H

#include "sock/attach/ustack.h"

/* Leaves the lock, and rings and wakes those who are to be (u->bells, u->wakes). (usock_wake.c) */
void ustack_unlock_and_wake(struct ustack *u);
/* Called by the stack when a socket has events: edges grow, sleepers wake. */
void ustack_event(struct stack *s, uint32_t sock, uint32_t events);
/* News of a socket that wakes nobody. (usock_wake.c) */
void ustack_news(struct ustack *u, uint32_t sock);
/* A copy without the lock is over: who waits for a turn of his own looks again. Under the lock. */
void ustack_turn_over(struct ustack *u, struct sock_rec *rec);
/* After a repair: an event may have been taken from its connection and told to nobody. Everybody
 * looks at everything. Under the lock. */
void ustack_look_again(struct ustack *u);
/* The caller may wait for nothing in this stack again. Where others sleep, nobody leads, and nobody
 * was woken who will, one of them is to lead. Under the lock. */
void ustack_let_lead(struct ustack *u);
/* All that wait do so anew. Under the lock. */
void ustack_wake_all(struct ustack *u);
/* Those whom a process that has locked itself in could not wake (base/sandbox.h); the keeper, under
 * the lock. */
void ustack_wake_asked(struct ustack *u);
/* usock_wake.c: fork leaves the parent's sleeping places to the parent. frees: malloc() can be had.
 */
void usock_wait_forked(bool frees);
/* Wakes threads of a process slot (+ 1) that sleep; under the lock. False: none does. */
bool usock_wake_process(struct ustack *u, uint32_t proc);
bool usock_wait_owns_fd(int fd);

#endif
