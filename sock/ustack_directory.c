/*
 * Questions to unetd's directory that wait while it is being written. A reader that comes in mid-write has no consistent view, which
 * is no answer: unetd may merely have lost its CPU. Who holds a stack's lock does not ask here, as it may take a second.
 */
#include "sock/ustack.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

#include "netstack/sandbox.h"
#include "netstack/sys.h"

#define YIELDS    8u                    /* at once; then one look a millisecond */
#define LOOKS_MAX 1000u

/* For the writer to get on. False: that was long enough. */
static bool wait_for_writer(uint32_t look)
{
        const struct timespec ms = {.tv_nsec = NS_PER_MS};

        if (look < YIELDS || sandbox_forbidden != 0)
                sched_yield();
        else
                sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &ms, NULL);
        return look < LOOKS_MAX;
}

int ustack_is_local(const struct directory *dir, ip_addr addr)
{
        int local = directory_is_local(dir, addr);

        for (uint32_t look = 0; unlikely(local == -EAGAIN) && wait_for_writer(look); look++)
                local = directory_is_local(dir, addr);
        return local;
}

int ustack_verbs_to(const struct directory *dir, ip_addr addr, struct dir_iface *f)
{
        int found = directory_verbs(dir, addr, f);

        for (uint32_t look = 0; unlikely(found == -EAGAIN) && wait_for_writer(look); look++)
                found = directory_verbs(dir, addr, f);
        return found;
}
