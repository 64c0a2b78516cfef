/* A program that has more rights than its user: set-user-ID, set-group-ID, with capabilities of its
 * file, or with capabilities that a service manager gave it. */
#ifndef UNETD_RAISED_H
#define UNETD_RAISED_H

#include <stdbool.h>
#include <stdint.h>

/* Returns true if this process is one. Its user's other processes may not trace it; they could read
 * and write the memory of its stack, which the user's unetd and keeper have. */
bool process_is_raised(void);

/* Returns false if the kernel may say `uid` (SO_PEERCRED) of somebody else: in a user namespace it
 * names all who have no number there so. */
bool process_may_take_for(uint32_t uid);

#endif
