/*
 * unetd as a process knows it (ustack_daemon.c): the client, whose lock is also that of the list of
 * stacks, and what becomes of it when unetd ends.
 */
#ifndef SOCK_USTACK_DAEMON_H
#define SOCK_USTACK_DAEMON_H

#include "sock/attach/ustack.h"

/* The client of unetd, with its lock held; leave with ustack_client_done(). */
struct unetd_client *ustack_client(void);
/* As that, with this stack's lock held: if unetd turns out to be another one, the stack is made
 * known to it under that lock. */
struct unetd_client *ustack_client_holding(const struct ustack *u);
void ustack_client_done(void);
struct unetd_client *ustack_client_held(void); /* its lock is held already */
/* Finds unetd, or starts one, unless it is found already. 0 or -errno. The client's lock is held.
 */
int ustack_client_open(unsigned flags);
/* As unetd_leave(). The client's lock is held. */
void ustack_client_leave(void);
/* In a child of which no handler of fork knew: whoever had the client's lock is in the parent. */
void ustack_client_forsaken(void);
/*
 * A process that makes no calls to unetd learns here that it has died, and makes its stacks known
 * to the next one when there is one. Each thread at work looks once in USTACK_PEERS_EVERY. The
 * locks must not be held.
 */
void ustack_daemon_look(void);
/* Another image is to find our stacks now, by unetd: if it has died, the next one, which is started
 * when there is none, is told of them. We may sleep, in calls of the kernel's, until that image has
 * ended. The locks must not be held. */
void ustack_daemon_knows(void);
/* Returns true if the unetd that made the stack known was there when it was looked for last: it
 * tells of peers that end. */
bool ustack_is_told(const struct ustack *u);
/* What a long sleep waits for besides (POLLHUP): the connection to unetd; -1: it has none, and
 * *until is soon. */
int ustack_daemon_fd(nstime *until);
/* From now on no unetd is started in the place of the one that there is; with `anyway`, nor where
 * there is none. False: there is none, and one may be started. */
bool ustack_stays_with_unetd(bool anyway);
/* Before the first look at the clock: a library in front of libc may tell another time. */
void ustack_clock_find(void);

#endif
