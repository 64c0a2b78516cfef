/*
 * Packets of live stacks, as they pass: each stack's capture ring (base/capture.h) is turned on,
 * drained, and turned off again. Stacks come and go meanwhile; their packets are merged by time.
 */
#ifndef TOOLS_TAPS_H
#define TOOLS_TAPS_H

#include "base/capture.h"

struct taps;

struct taps_want {
        uint32_t stack; /* 0: all of this user */
        uint32_t snap;  /* bytes kept of a packet */
        bool in, out;   /* directions */
        bool tell; /* standard error is told of each stack, from when its packets are all seen */
        /* Takes a packet; false: no more are wanted. The clock is CLOCK_MONOTONIC. */
        bool (*packet)(void *arg, const struct capture_rec *rec, const uint8_t *bytes);
        void *arg;
};

/* What was seen of one stack. */
struct taps_total {
        uint32_t stack;
        uint64_t in, out, missed; /* packets; missed: written over before they were read */
};

/* NULL: no memory. */
struct taps *taps_new(const struct taps_want *want);
/* Looks for stacks that are new; those whose packets are few milliseconds old are
 * still complete. */
void taps_scan(struct taps *t);
/* Takes what is in the rings, and passes on what is old enough to be in order. False: there
 * was nothing. */
bool taps_drain(struct taps *t);
/* Passes on everything. */
void taps_flush(struct taps *t);
/* Returns true if packet() wants no more. */
bool taps_done(const struct taps *t);
/* The total of stack number i, in the order they were found; false: there are no more. */
bool taps_total(const struct taps *t, uint32_t i, struct taps_total *out);
/* Turns the captures off. */
void taps_free(struct taps *t);

#endif
