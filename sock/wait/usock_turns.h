/*
 * Turns on one processor.
 *
 * Where both ends of a conversation share a processor, and what joins them is an RDMA device that
 * may be the kernel's software, an answer is there when its sender has run. Who has seen that a few
 * times in a row, its spins each ended by one offer of the processor, offers it with the message,
 * and not after it has looked for the answer in vain: the looking is saved. That ends with the
 * first answer that was not there, the first offer that nobody took, and the first message that
 * follows one without an answer between them. Of the calling thread.
 *
 * Even the offer can be spared. The thread of the kernel that takes a message from one end to the
 * other runs right behind the doorbell, and after it whoever has had least of the processor: the
 * other end, whose answer is there when the doorbell's call returns. But Linux passes over who has
 * yielded last, and so, where both offer, never over to him in that way. After a while nothing is
 * offered any more, on trial: an answer that is not there is waited for by a short sleep, and when
 * that has just happened by a spin before it. The sleep makes Linux forget who yielded, and the
 * spin evens out who has had how much. That goes on as long as such waits cost less than the offers
 * would have.
 */
#ifndef SOCK_USOCK_TURNS_H
#define SOCK_USOCK_TURNS_H

#include <stdbool.h>

#include "base/base.h"

struct stack;

/* Others had so much of a spin: the processor is shared. */
#define USOCK_LENT_SHARED (10 * NS_PER_US)

enum { USOCK_TURNS_NONE, USOCK_TURNS_OURS, USOCK_TURNS_THEIRS };

/* A spin begins: what was asked for is not there. How it is to be waited for: */
enum usock_turns_wait {
        USOCK_TURNS_OFFER, /* as ever */
        USOCK_TURNS_NAP,   /* the processor is not to be offered, but slept on for a moment; ... */
        USOCK_TURNS_SPIN,  /* ... after a spin: it was no better the last time */
};
enum usock_turns_wait usock_turns_waits(void);
/* It ended well, after so many offers of the processor, of which others had `lent` of time. */
void usock_turns_spun(int offers, nstime lent);
/* While usock_tls.turns is not USOCK_TURNS_NONE: something was sent, by a socket of the stack;
 * something was received. */
void usock_turns_sent(struct stack *s);
void usock_turns_heard(void);

#endif
