/*
 * How long a thread polls before it sleeps.
 *
 * Polling costs the processor. Sleeping costs two switches, and the sender the call that wakes us.
 * So each thread keeps an account of its waits: for each length in the table, how many messages
 * came within it, and how long a poll of that length lasted, on average. The length is chosen that
 * saves most, at the price that a sleep has; none, if none saves anything:
 *
 *      saved = (messages that came within it) x (price of a sleep) - (time polled)
 *
 * The account is of how long messages took to come, whether the thread polled or slept meanwhile.
 * But a sleep lengthens a wait by its wake-up, so that two threads that sleep because the other one
 * sleeps look to each other as if polling did not pay. So all threads of the host poll as long as
 * they may, at the same time, for a moment every now and then (POLICY_TRIAL).
 *
 * Time that others had of the processor in the middle of a poll shows that somebody else wants it.
 * Then a sleep costs less than the time polled, and its price is lower.
 *
 * Functions of the account and their arguments alone: no clock, no lock. docs/performance.md has
 * the table.
 */
#ifndef SOCK_USOCK_POLICY_H
#define SOCK_USOCK_POLICY_H

#include <stdbool.h>

#include "base/base.h"

/* What is waited for comes by the channels of the stacks: the best of these that there is. */
enum policy_road {
        POLICY_NONE,   /* every peer polled last on this processor: it runs when we sleep */
        POLICY_MEMORY, /* a peer on another processor */
        POLICY_DEVICE, /* an RDMA device, which may be the kernel's software */
        POLICY_WIRE,   /* an interface of our own: runs of segments come some 50 us apart */
        POLICY_ROADS
};

#define POLICY_LENGTHS 4 /* 3, 12, 50, 100 us */

/* Of a thread; POLICY_BEGIN at first. */
struct policy {
        /* Averages over the last waits. */
        struct {
                int32_t came;  /* of POLICY_ALL waits, in how many the message was there */
                int32_t spent; /* ns polled a wait */
        } of[POLICY_LENGTHS];
        /* ns polled of late, and of these what others had of the processor meanwhile: sums over
         * time, so that one interruption, however long, does not look like a neighbour. */
        nstime polled, lost;
};
#define POLICY_BITS 16
#define POLICY_ALL  (1 << POLICY_BITS)

/* All pay until the opposite is known. */
#define POLICY_BEGIN                           \
        {                                      \
                .of = { {.came = POLICY_ALL},  \
                        {.came = POLICY_ALL},  \
                        {.came = POLICY_ALL},  \
                        {.came = POLICY_ALL} } \
        }

/* For how long to poll, since the wait had nothing else to do; 0: sleep at once. */
nstime policy_length(const struct policy *p, enum policy_road road, nstime now);
/* A wait is over. It took so long, without what others had of it when they were offered the
 * processor; false: nothing came that a poll would have seen. */
void policy_waited(struct policy *p, nstime took, bool came);
/* A poll is over. It lasted so long, and others had `lost` of it without being asked. */
void policy_polled(struct policy *p, nstime length, nstime lost);
/* Returns true if somebody else wants this processor. */
bool policy_is_wanted(const struct policy *p);

#endif
