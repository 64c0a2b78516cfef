/* select() for calls that come by another way. */
#ifndef SHIM_SELECT_H
#define SHIM_SELECT_H

#include "sock/shim/shim.h"

/* pselect6(): select() with a mask that tells, in *timeout, how much time was left. False: no
 * socket of ours is asked for, or something is wrong, and nothing was done. */
bool select_tell(long *ret, int n, fd_set *r, fd_set *w, fd_set *x, struct timespec *timeout,
                 const sigset_t *mask);

#endif
