/*
 * A switch in virtual time for many endpoints: each has one tagged link to it, and each pair of
 * them a channel. Messages are lost, copied, overtaken, spoilt and refused by chance, from a seed,
 * or as a script says.
 */
#ifndef TESTS_AM_FABRIC_H
#define TESTS_AM_FABRIC_H

#include "base/prng.h"
#include "unet/ep.h"

enum fate { FATE_OK, FATE_LOST, FATE_TWICE, FATE_LATE, FATES };

struct fabric_opts {
        uint32_t nodes;
        uint64_t seed;
        uint32_t mtu;                      /* 0: 4096 */
        nstime delay, jitter;              /* delay 0: 10 us */
        double loss, twice, late, corrupt; /* chances; late: ten delays more */
        double refuse;                     /* the send queue is full */
        const uint8_t *script;             /* fates of the first messages; NULL: by chance */
        uint32_t nscript;
};

struct fabric;
struct fabric *fabric_new(const struct fabric_opts *o);
void fabric_free(struct fabric *f);
/* Attaches the endpoint as node `at`, with a channel to every other: chan[] by node, 0
 * for itself. */
void fabric_attach(struct fabric *f, uint32_t at, struct unet_ep *ep, uint32_t *chan);

nstime fabric_now(const struct fabric *f);
void fabric_advance(struct fabric *f, nstime to);
/* When the node's next message arrives, or has; NSTIME_NEVER: none is under way. */
nstime fabric_next(const struct fabric *f, uint32_t node);
/* Whether something has arrived for the node. */
bool fabric_ready(const struct fabric *f, uint32_t node);
/* Nothing reaches or leaves the node from now on. */
void fabric_cut(struct fabric *f, uint32_t node);
uint64_t fabric_sent(const struct fabric *f);

#endif
