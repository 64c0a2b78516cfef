/*
 * Naps: the shortest sleeps that there are, which end by time alone.
 *
 * Where both ends of a conversation share a processor, the one that waits yields it. Linux charges
 * the sender for what the kernel does for both. So after a while the other end is so far behind
 * that Linux ignores its yields, though nothing can come before it makes way. A sleep until a
 * device tells is dear: its event has to be asked for and taken, by four more calls. A nap is one
 * call, and when it is over what was waited for has come, as a rule.
 *
 * So a thread naps, once a wait, when Linux has ignored its yield; only if it has seen before that
 * what it waited for came while others had the processor. After a nap in which nothing came it
 * sleeps as ever, twice as many times after each such nap.
 *
 * State is of the calling thread.
 */
#ifndef SOCK_USOCK_NAP_H
#define SOCK_USOCK_NAP_H

#include <stdbool.h>

/* What was waited for came while others had the processor. */
void usock_nap_shared(void);
/* An offer was void: whether to nap, and not to go on to a sleep. */
bool usock_nap_pays(void);
/* One is over, and what was waited for has come or has not. */
void usock_nap_over(bool came);

#endif
