/*
 * libc's own versions of what we hook. REAL(close)(fd) is libc's close(), looked up when first
 * used: nothing runs in a constructor, and a call that comes before any constructor, or from inside
 * malloc, works (glibc's dlsym allocates nothing unless it fails, and a symbol that libc does not
 * have becomes real_missing()).
 *
 * Our versions have the C name h_close and the assembler name close, so that glibc's headers, with
 * their transparent unions and fortified inlines, can be included beside them.
 */
#ifndef SHIM_REAL_H
#define SHIM_REAL_H

#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/capability.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "base/base.h"

#define HOOK(ret, name, params) \
        __attribute__((visibility("default"))) ret h_##name params __asm__(#name);
#include "sock/shim/hooks.def"

/* Behind the definition of h_name: another name that glibc has for the same call. */
#define HOOK_ALSO(name, other) __typeof__(h_##name) h_##other __attribute__((alias(#name)))

#define HOOK(ret, name, params) REAL_##name,
enum real_index {
#include "sock/shim/hooks.def"
        REAL_COUNT
};

#define HOOK(ret, name, params) __typeof__(&h_##name) name;
union real {
        struct {
#include "sock/shim/hooks.def"
        };
        void *sym[REAL_COUNT];
};
extern union real real_libc;

/* A sanitizer's runtime calls us before anything that it checks may run; there is no socket then.
 */
#define UNCHECKED __attribute__((no_sanitize("address")))

/* Finds libc's version and keeps it. */
void *real_lookup(enum real_index i);
const char *real_name(enum real_index i);
/* Which of them has this name; -1: none. */
int real_index_of(const char *name);
/* libc's dlsym() and dlvsym(), by which the others are found. */
typedef void *real_dlsym_fn(void *handle, const char *name);
typedef void *real_dlvsym_fn(void *handle, const char *name, const char *version);
real_dlsym_fn *real_dlsym(void);
real_dlvsym_fn *real_dlvsym(void);

static inline void *real_get(enum real_index i)
{
        void *p = __atomic_load_n(&real_libc.sym[i], __ATOMIC_RELAXED);

        return likely(p != NULL) ? p : real_lookup(i);
}
#define REAL(name) ((__typeof__(real_libc.name))real_get(REAL_##name))

#endif
