/* Network namespaces: what is made in another one than this process's stack is the kernel's. */
#ifndef SHIM_NETNS_H
#define SHIM_NETNS_H

#include "sock/shim/shim.h"

/* Returns true if the kernel socket is of another namespace than those from before this process
 * left it. */
bool netns_is_elsewhere(int kfd);
/* A call of the program's that is a fork, by its number: clone() and its like, with such flags. */
long netns_fork(long nr, const long a[6], uint64_t flags);

#endif
