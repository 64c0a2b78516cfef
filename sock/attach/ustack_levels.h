/*
 * The level checker (UNET_CHECK_LEVELS, in builds for developers; tests/sock/ustack_levels.c):
 * poll() never says more of a socket than its waiters were told, and no call says EAGAIN where
 * poll() says that it would not.
 *
 * A level is what poll() says. Waiters are not told of levels but of events: edge-triggered epoll
 * sets compare the socket's edges (sock_rec.edge_in and edge_out), all others sleep until an event
 * of it. So a level that rises without its edge is one that a waiter sleeps through. Each process
 * keeps the levels and edges that it saw last, and compares them whenever it leaves the stack's
 * lock. What others did meanwhile needs no notice: they have moved the edge, or they have not. A
 * level that is missed ends the process. UNET_CHECK_LEVELS=1 in the environment switches it on
 * (cmake/tests.cmake).
 */
#ifndef SOCK_USTACK_LEVELS_H
#define SOCK_USTACK_LEVELS_H

#include "sock/attach/ustack.h"

#ifdef UNET_CHECK_LEVELS
void ustack_levels_begin(struct ustack *u);
void ustack_levels_end(struct ustack *u);
/* Under the lock, that is about to be left. */
void ustack_levels_check(struct ustack *u);
/* A call is about to say EAGAIN to who waits for `events`. Under the lock. */
void ustack_levels_again(struct ustack *u, const struct sock_rec *rec, short events);
#else
static inline void ustack_levels_begin(struct ustack *u)
{
}

static inline void ustack_levels_end(struct ustack *u)
{
}

static inline void ustack_levels_check(struct ustack *u)
{
}

static inline void ustack_levels_again(struct ustack *u, const struct sock_rec *rec, short events)
{
}
#endif

#endif
