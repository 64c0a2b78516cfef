/* Network namespaces: what is made in another one than this process's stack is the kernel's. */
#ifndef SHIM_NETNS_H
#define SHIM_NETNS_H

#include <sched.h>

#include "sock/shim/shim.h"

/* Returns true if the kernel socket is of another namespace than those from before this process
 * left it. */
bool netns_is_elsewhere(int kfd);
/* Of clone(): its child shares memory with us, or comes back with thread-local variables that are
 * not ours. Any other is a fork. */
#define CLONE_NO_FORK (CLONE_VM | CLONE_THREAD | CLONE_SETTLS)
/* A call of the program's that is a fork, by its number: clone() and its like, with such flags. */
long netns_fork(long nr, const long a[6], uint64_t flags);

#endif
