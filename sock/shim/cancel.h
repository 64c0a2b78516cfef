/* pthread_cancel(): calls that are cancellation points, and threads that sleep in one. */
#ifndef SHIM_CANCEL_H
#define SHIM_CANCEL_H

#include "sock/shim/shim.h"

/* libc's own; its handler does nothing to a thread that is not in a call of libc. */
#define SIGCANCEL 32

/* Does not return to a thread that is to end. */
void cancellation_asked(void);
/* At the beginning of every call that POSIX has as one and that may be about ours: libc's own does
 * the same. */
static inline void cancellation_point(void)
{
        if (unlikely(atomic_load_explicit(&shim.cancels, memory_order_relaxed) != 0))
                cancellation_asked();
}
/* What went to sleep is known meanwhile; NULL: it need not be, or there is no room. */
struct sleeper;
struct sleeper *sleeper_enter(void);
void sleeper_leave(struct sleeper *s);
/* The thread may have something to ask about, and must not sleep. */
bool sleeper_was_cancelled(void);
/* Outside, with nothing of ours held: may not return. */
void cancelled_inside(void);
void cancel_fork_child(void);
/* The signal has our handler from now on. False: it cannot have. */
bool cancel_has_signal(void);

#endif
