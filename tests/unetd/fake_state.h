/*
 * A stand-in for a stack's state, for testing the keeper: what the test writes here steers the fake
 * operations, and what the keeper did can be read back. Mapped by the test and by the keeper.
 */
#ifndef TESTS_UNETD_FAKE_STATE_H
#define TESTS_UNETD_FAKE_STATE_H

#include <stdatomic.h>

#include "base/base.h"

#define FAKE_MAGIC 0x66616b65u
#define FAKE_CHANS 64u
#define FAKE_BYTES 65536u

struct fake_state {
        _Atomic uint32_t magic;
        /* the test's part */
        _Atomic uint32_t unfinished;     /* ticks an orphan needs until it is empty */
        _Atomic uint32_t again;          /* so many operations answer -EAGAIN first */
        _Atomic uint64_t cookie[4];      /* sockets it owns */
        _Atomic uint32_t gone_listeners; /* announces TCP 127.0.0.1:gone_port as gone so often */
        _Atomic uint32_t gone_port;
        _Atomic uint32_t active;      /* ticks that say active */
        _Atomic uint32_t refuse_chan; /* errno for chan_attach */
        _Atomic int32_t hold;         /* the keeper attaches while this process lives; 0: at once */
        /* the keeper's part */
        _Atomic uint32_t attached; /* how often */
        _Atomic uint32_t ticks;
        _Atomic uint32_t died[8];               /* process slots, as bits */
        _Atomic uint32_t chan_peer[FAKE_CHANS]; /* peer stack, 0: none */
        _Atomic uint32_t chans_down;
        _Atomic uint32_t execed; /* how often it was asked what survived */
};

#endif
