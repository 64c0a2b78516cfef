/* What the process gives up: its user, its descriptors, and what its rules forbid: privilege.c,
 * sandbox.c, limits.c. */
#ifndef SHIM_PRIVILEGE_H
#define SHIM_PRIVILEGE_H

#include "sock/shim/shim.h"

/* seccomp(2), which libc has no function for. */
long sandbox_seccomp(unsigned op, unsigned flags, void *args);
/* landlock_restrict_self(2). */
long sandbox_landlock(int rules, unsigned flags);

/* setuid(2) and its like by number. True: it was one, and its result is *r. */
bool privilege_call(long nr, const long a[3], long *r);
/* Root takes all descriptors away from itself, as who is about to give up root and lock himself in
 * does (vsftpd). */
void privilege_before_no_numbers(void);

/* Around the exec of an image with which no socket of ours survives: it begins with the limits that
 * the program has set. */
void limits_for_image(void);
void limits_go_on(void);

#endif
