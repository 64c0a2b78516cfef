/* Which processes have a memory file mapped, by /proc. */
#ifndef UNETD_MAPS_H
#define UNETD_MAPS_H

#include <stdbool.h>
#include <stdint.h>

/* Returns true if the process has the file of fd mapped. So it is said of a process whose maps
 * cannot be read, too; a process that is just dying has nothing. */
bool maps_file(int32_t pid, int fd);
/* Returns true if another process does that `known`, which gets `arg`, does not know. Processes
 * that cannot be looked into are left out. A walk through /proc. */
bool maps_file_unknown(int fd, bool (*known)(void *arg, int32_t pid), void *arg);

#endif
