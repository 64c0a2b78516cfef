/*
 * Whether a descriptor from somebody else is what it should be, before it is read or passed on;
 * memory: base/memfd.h. All return 0 or -EINVAL (wrong kind), -EACCES (wrong mode).
 */
#ifndef UNETD_FDCHECK_H
#define UNETD_FDCHECK_H

#include "base/base.h"

/* A bell socket or a ringer (unet/bell_fd.h), to be read or written without waiting: -EINVAL. */
int fdcheck_bell(int fd);
/* Names a process, living or dead. */
int fdcheck_pidfd(int fd);

#endif
