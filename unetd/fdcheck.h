/*
 * Whether a descriptor from somebody else is what it should be, before it is mapped, read or passed on.
 *
 * A memory file must be tmpfs (a memfd): hugetlbfs and FUSE can kill or stop a reader even when sealed. It
 * must be sealed against shrinking, or its owner could take the memory away under a reader. All return 0 or
 * -EINVAL (wrong kind), -EACCES (wrong mode), -EPERM (not sealed), -ERANGE (wrong size).
 */
#ifndef UNETD_FDCHECK_H
#define UNETD_FDCHECK_H

#include "netstack/base.h"

/* A sealed memfd; exactly `bytes` long, or any length but 0 when bytes is 0. */
int fdcheck_memfd(int fd, uint64_t bytes, bool writable);
/* One end of a pipe, non-blocking, open only for reading or only for writing; *ino names the pipe. */
int fdcheck_pipe(int fd, bool writable, uint64_t *ino);
/* Names a process, living or dead. */
int fdcheck_pidfd(int fd);

#endif
