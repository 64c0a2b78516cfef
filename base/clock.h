/* The time, by the one clock that deadlines go by. For those who read a clock at all: protocols are
 * told the time. */
#ifndef UNET_CLOCK_H
#define UNET_CLOCK_H

#include <time.h>

#include "base/base.h"

/* clock_gettime(), or libc's own one, where a library in front of it tells programs another
 * time (sock/attach/ustack_clock.c). */
extern int (*clock_read)(clockid_t, struct timespec *);

static inline nstime clock_now(void)
{
        struct timespec ts;

        __atomic_load_n(&clock_read, __ATOMIC_RELAXED)(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

#endif
