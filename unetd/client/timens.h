/*
 * Time namespaces: the clocks of a container may be ahead of the kernel's own, or behind them. What
 * processes and the keeper share is dated by the kernel's: else a stack's timers would come by days
 * late, or its time stand still.
 */
#ifndef UNETD_TIMENS_H
#define UNETD_TIMENS_H

#include <stdatomic.h>

#include "base/base.h"

/* Nanoseconds by which CLOCK_MONOTONIC and CLOCK_BOOTTIME are ahead here; zero before
 * timens_find(), and where there is no /proc to tell. */
struct timens {
        _Atomic nstime monotonic, boot; /* threads find them again, the same, while others look */
};
extern struct timens timens;

/* Once, before anything that is shared has been dated. */
void timens_find(void);

#endif
