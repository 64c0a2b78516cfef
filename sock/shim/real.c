#include "sock/shim/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

union real real_libc;

#define HOOK(ret, name, params) #name,
static const char *const names[REAL_COUNT] = {
#include "sock/shim/hooks.def"
};

/* Stands for a call that this libc does not have. */
static long real_missing(void)
{
        errno = ENOSYS;
        return -1;
}

const char *real_name(enum real_index i)
{
        return names[i];
}

int real_index_of(const char *name)
{
        for (int i = 0; i < REAL_COUNT; i++)
                if (strcmp(names[i], name) == 0)
                        return i;
        return -1;
}

/* Every libc has it by the version that its machine began with. */
#if defined(__x86_64__)
#define DLSYM_VERSION "GLIBC_2.2.5"
#else
#define DLSYM_VERSION "GLIBC_2.17"
#endif

UNCHECKED real_dlsym_fn *real_dlsym(void)
{
        void *p = __atomic_load_n(&real_libc.sym[REAL_dlsym], __ATOMIC_RELAXED);

        if (unlikely(!p)) {
                p = dlvsym(RTLD_NEXT, "dlsym", DLSYM_VERSION);
                __atomic_store_n(&real_libc.sym[REAL_dlsym], p, __ATOMIC_RELAXED);
        }
        return (real_dlsym_fn *)p;
}

void *real_lookup(enum real_index i)
{
        int saved = errno;
        void *p = i == REAL_dlsym ? (void *)real_dlsym() : real_dlsym()(RTLD_NEXT, names[i]);

        if (!p)
                p = (void *)real_missing;
        __atomic_store_n(&real_libc.sym[i], p, __ATOMIC_RELAXED);
        errno = saved;
        return p;
}
