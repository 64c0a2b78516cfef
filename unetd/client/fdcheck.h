/*
 * Whether a descriptor from somebody else is what it should be, before it is read or passed on; memory: base/memfd.h. All return
 * 0 or -EINVAL (wrong kind), -EACCES (wrong mode).
 */
#ifndef UNETD_FDCHECK_H
#define UNETD_FDCHECK_H

#include "base/base.h"

/* Learns how pipes look, by one made for it, while there are numbers for that; else the first check does. Also -EMFILE and its like. */
int fdcheck_init(void);
/* One end of a pipe, non-blocking, open only for reading or only for writing; *ino names the pipe. */
int fdcheck_pipe(int fd, bool writable, uint64_t *ino);
/* Names a process, living or dead. */
int fdcheck_pidfd(int fd);

#endif
