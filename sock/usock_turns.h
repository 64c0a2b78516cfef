/*
 * Turns on one processor.
 *
 * Where both ends of a conversation share a processor, and what joins them is an RDMA device that may be the kernel's software, an
 * answer is there when its sender has run. Who has seen that a few times in a row, its spins each ended by one offer of the
 * processor, offers it with the message, and not after it has looked for the answer in vain: the looking is saved. That ends with
 * the first answer that was not there, the first offer that nobody took, and the first message that follows one without an
 * answer between them. Of the calling thread.
 */
#ifndef SOCK_USOCK_TURNS_H
#define SOCK_USOCK_TURNS_H

#include <stdbool.h>

#include "netstack/base.h"

#define USOCK_LENT_SHARED (10 * NS_PER_US)      /* others had so much of a spin: the processor is shared */

enum { USOCK_TURNS_NONE, USOCK_TURNS_OURS, USOCK_TURNS_THEIRS };

/* A spin begins: what was asked for is not there. */
void usock_turns_waits(void);
/* It ended well, after so many offers of the processor, of which others had `lent` of time. */
void usock_turns_spun(int offers, nstime lent);
/* While usock_tls.turns is not USOCK_TURNS_NONE: something was sent; something was received. */
void usock_turns_sent(void);
void usock_turns_heard(void);

#endif
