/* Who has a memory file mapped, by /proc. */
#ifndef UNETD_MAPS_H
#define UNETD_MAPS_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the process has the file of fd mapped. What cannot be read is taken to, and one that is
 * just dying, which has nothing. */
bool maps_file(int32_t pid, int fd);
/* Whether a process does that can be looked into, and that `known`, which gets `arg`, does not
 * know. This one is left out. A walk through /proc. */
bool maps_file_unknown(int fd, bool (*known)(void *arg, int32_t pid), void *arg);

#endif
