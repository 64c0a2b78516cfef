/*
 * Memory that is shared with somebody who may be hostile, and how it is passed.
 *
 * The owner makes a memfd of fixed size, maps it, and passes a read-only twin of the descriptor. It
 * is sealed against shrinking and growing. Its mode is 0600 before anybody else has it: with a
 * wider mode a read-only descriptor could be reopened for writing through /proc. Frozen, nobody
 * maps it writable again, the owner neither.
 *
 * The receiver maps nothing before unet_memfd_check() has said that the memory cannot be taken away
 * under its reads. A file that can shrink gives SIGBUS. So may hugetlbfs or FUSE even when sealed.
 */
#ifndef UNET_MEMFD_H
#define UNET_MEMFD_H

#include <sys/types.h>

#include "base/base.h"

/* A memfd of zeroes, sealed against shrinking and growing, close-on-exec. The descriptor, or a
 * negative errno. */
int unet_memfd_make(const char *name, size_t bytes);
/* The same, its seals sealed: for memory that several may map writable. */
int unet_memfd_make_sealed(const char *name, size_t bytes);
/* A read-only descriptor of the same memory, or a negative errno (-ENOENT: /proc is
 * not mounted). */
int unet_memfd_reader(int fd);
/* Forbids writable mappings from now on, but for those that exist, and more seals. 0 or a negative
 * errno. */
int unet_memfd_freeze(int fd);
/*
 * Says whether a descriptor that was passed is what it should be: a regular file on tmpfs, `bytes`
 * long (0: any length but 0), open for reading alone or for both. It must be sealed against
 * shrinking and growing, and its seals sealed. If an owner is named it is his, and of mode 0600. 0;
 * -EINVAL: not such a file; -EACCES: mode, owner or way of opening; -EPERM: seals; -ERANGE: size.
 */
#define UNET_MEMFD_ANYBODY ((uid_t)-1)
int unet_memfd_check(int fd, size_t bytes, bool writable, uid_t owner);
/* Returns true if both are descriptors of the same memory. */
bool unet_memfd_same(int a, int b);
/* Maps all of it, shared; NULL when that fails. `at` NULL: anywhere; else over what is
 * mapped there. */
void *unet_memfd_map(int fd, size_t bytes, bool writable, void *at);

#endif
