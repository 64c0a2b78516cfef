/* The time, by the one clock that deadlines go by. For those who read a clock at all: protocols are told the time. */
#ifndef UNET_CLOCK_H
#define UNET_CLOCK_H

#include <time.h>

#include "netstack/base.h"

static inline nstime clock_now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

#endif
