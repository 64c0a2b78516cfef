/*
 * Turns on one processor: two programs converse over soft-RoCE, and both run on the same processor.
 *
 * There the answer to a message is ready as soon as the other program has run. A thread learns this
 * when several of its spins in a row have each ended by one sched_yield(). From then on it yields
 * when it has sent the message, and does not look for the answer in vain before. It stops when an
 * answer was not there, when nobody took a yield, or when it sends twice without an answer between.
 *
 * Often not even the yield is needed. The kernel's thread that carries the message runs right after
 * the doorbell, and the other program after it, since it has had the least of the processor: the
 * answer is there when the doorbell's call returns. But Linux passes over whoever yielded last. So
 * where both programs yield, it never goes on in that way. After a while the thread therefore tries
 * not to yield. If the answer is not there then, it sleeps for the shortest time there is (a nap);
 * if that has just happened, it spins before the nap. The nap makes Linux forget who yielded, and
 * the spin evens out how much each has had. The trial goes on while such waits cost less than
 * yields would have.
 *
 * State is of the calling thread.
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
