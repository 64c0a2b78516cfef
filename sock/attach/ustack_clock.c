/* The time of stacks: what their processes and the keeper share is dated by the kernel's own clock,
 * whatever time namespace or library stands before a program's. */
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_daemon.h"

#include <dlfcn.h>

#include "base/clock.h"
#include "unetd/client/timens.h"

nstime ustack_now(void)
{
        return clock_now() - timens.monotonic;
}

uint64_t ustack_boot_ms(void)
{
        struct timespec ts;

        clock_read(CLOCK_BOOTTIME, &ts);
        return (uint64_t)(ts.tv_sec * NS_PER_S + ts.tv_nsec - timens.boot) / NS_PER_MS;
}

/* A library in front of libc may tell the program another time (faketime(1)). What is
 * waited for takes as long as over the kernel all the same, and the stack's keeper knows of
 * no such library. */
void ustack_clock_find(void)
{
        void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
        int (*own)(clockid_t, struct timespec *) = NULL;

        if (libc == NULL)
                return;
        *(void **)&own = dlsym(libc, "clock_gettime");
        if (own != NULL && own != clock_read)
                __atomic_store_n(&clock_read, own, __ATOMIC_RELAXED);
        dlclose(libc);
}
