/*
 * Naps: sleeps as short as there are, by time alone.
 *
 * Where both ends of a conversation share a processor, who waits offers it. Linux counts what each
 * has had of it, and what the kernel does for both while one of them sends is on that one's
 * account: after a while the other is so far behind that his offers are void, though nothing can
 * come until he makes way. To sleep until a device tells is dear: its event has to be asked for and
 * taken, and there are four calls more. A nap is one call, and is over, as a rule, when what was
 * waited for has come.
 *
 * So one is taken instead of such a sleep, once a wait, when an offer was void; by who has seen
 * before that what he waited for came while others had the processor. A nap in which nothing came
 * is followed by sleeps, twice as many each time. Of the calling thread.
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
