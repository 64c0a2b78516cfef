/*
 * Questions to unetd's directory that wait while it is being written. A reader that comes in
 * mid-write has no consistent view, which is no answer: unetd may merely have lost its CPU. Who
 * holds a stack's lock does not ask here, as it may take a second.
 */
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_directory.h"

#include <errno.h>
#include <time.h>

#include "base/sandbox.h"
#include "base/sys.h"

#define YIELDS    8u /* at once; then one look a millisecond */
#define LOOKS_MAX 1000u

/* For the writer to get on. False: that was long enough. */
static bool wait_for_writer(uint32_t look)
{
        const struct timespec ms = {.tv_nsec = NS_PER_MS};

        if (look < YIELDS || sandbox_forbidden != 0)
                sandbox_yield();
        else
                sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &ms, NULL);
        return look < LOOKS_MAX;
}

bool ustack_read(const struct directory *dir, struct ustack_reading *r)
{
        if (r->begun) {
                /* What was read, before `seq` is read again. */
                atomic_thread_fence(memory_order_acquire);
                r->whole = atomic_load_explicit(&dir->seq, memory_order_relaxed) == r->seq;
                if (likely(r->whole))
                        return false;
        }
        for (; r->look <= LOOKS_MAX; r->look++) {
                r->seq = atomic_load_explicit(&dir->seq, memory_order_acquire);
                r->begun = !(r->seq & 1);
                if (likely(r->begun)) {
                        r->look++;
                        return true;
                }
                wait_for_writer(r->look);
        }
        return false;
}

bool ustack_ifaces(const struct directory *dir, struct dir_iface all[DIR_IFACES])
{
        struct ustack_reading r = {0};

        if (dir == NULL || READ_ONCE(dir->nifaces) == 0)
                return false;
        while (ustack_read(dir, &r))
                memcpy(all, dir->iface, sizeof dir->iface);
        return r.whole;
}

bool ustack_iface(const struct directory *dir, uint32_t peer, struct dir_iface *f)
{
        struct ustack_reading r = {0};
        bool found = false;

        while (dir != NULL && ustack_read(dir, &r)) {
                found = false;
                for (uint32_t i = 0; i < DIR_IFACES && !found; i++) {
                        found = dir->iface[i].peer == peer;
                        if (found)
                                *f = dir->iface[i];
                }
        }
        return r.whole && found;
}

int ustack_is_local(const struct directory *dir, ip_addr addr)
{
        int local = directory_is_local(dir, addr);

        for (uint32_t look = 0; unlikely(local == -EAGAIN) && wait_for_writer(look); look++)
                local = directory_is_local(dir, addr);
        return local;
}

bool ustack_takes(uint32_t stack, ip_addr addr, uint16_t port, uint64_t since)
{
        const struct directory *dir = ustack_directory();
        struct ustack_reading r = {0};
        bool found = false;

        atomic_thread_fence(memory_order_seq_cst); /* what was sent, before this is read */
        if (dir == NULL || directory_generation(dir) == since)
                return true;
        while (ustack_read(dir, &r))
                found = dir_has(dir, IP_PROTO_TCP, addr, port, stack) ||
                        dir_has(dir, IP_PROTO_TCP, (ip_addr){{0, 0}}, port, stack);
        return found || !r.whole;
}

int ustack_verbs_to(const struct directory *dir, ip_addr addr, struct dir_iface *f)
{
        int found = directory_verbs(dir, addr, f);

        for (uint32_t look = 0; unlikely(found == -EAGAIN) && wait_for_writer(look); look++)
                found = directory_verbs(dir, addr, f);
        return found;
}
