/* Other threads stay out of the library while one of them takes its stacks away: privilege.c. */
#ifndef SHIM_HOLD_H
#define SHIM_HOLD_H

#include "sock/shim/shim.h"

/* The calling thread is inside, and from now on no other one is, until hold_end(). 0; or nothing is
 * held: -EBUSY, one of them did not come out, or cannot be asked; -EAGAIN, another one held them,
 * and this one was outside meanwhile. */
int hold_others(void);
void hold_end(void);
void hold_fork_child(void);

/* SIGCANCEL is a question whether the thread is outside, ... */
bool hold_is_asked(const siginfo_t *info);
/* ... which it is. */
void hold_answer(void);

#endif
