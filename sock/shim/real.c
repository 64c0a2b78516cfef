#include "sock/shim/real.h"

#include <dlfcn.h>
#include <errno.h>

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

void *real_lookup(enum real_index i)
{
        int saved = errno;
        void *p = dlsym(RTLD_NEXT, names[i]);

        if (!p)
                p = (void *)real_missing;
        __atomic_store_n(&real_libc.sym[i], p, __ATOMIC_RELAXED);
        errno = saved;
        return p;
}
