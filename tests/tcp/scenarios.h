/* What every file of scenarios includes: CMocka, the scene, and a line a test. */
#ifndef TESTS_TCP_SCENARIOS_H
#define TESTS_TCP_SCENARIOS_H

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "tests/scene.h"
#include "tests/unit.h"

/* A test that begins in the state that `setup` makes; `how` is a struct scene_setup or NULL. */
#define scenario(test, setup, how)                                      \
        {                                                               \
#test, test, setup, scene_end, (void *)(uintptr_t)(how) \
        }

#define S  (TCP_SYN)
#define SA (TCP_SYN | TCP_ACK)
#define F  (TCP_FIN | TCP_ACK)
#define R  (TCP_RST)
#define RA (TCP_RST | TCP_ACK)

#endif
