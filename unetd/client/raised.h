/* A program that was executed with more rights than its user has: set-user-ID, set-group-ID, or
 * with capabilities of its file. */
#ifndef UNETD_RAISED_H
#define UNETD_RAISED_H

#include <stdbool.h>

/* Returns true if this process is one. Its user's other processes may not trace it; they could read
 * and write the memory of its stack, which the user's unetd and keeper have. */
bool process_is_raised(void);

#endif
