/*
 * Mapping what is shared, and keeping it out of a program's mlockall() and of its core dumps: a
 * stack and its channels are large, and nearly all of that is never touched. Locked or dumped, all
 * of it would be memory in use; it would count against RLIMIT_MEMLOCK.
 */
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_daemon.h"
#include "sock/usock_process.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/sandbox.h"
#include "base/sys.h"

static _Atomic bool locking; /* what is mapped from now on is locked, and filled (MCL_FUTURE) */

static bool failed(long p)
{
        return p < 0 && p > -4096;
}

/* At `at`, in the place of what is there, or, where that is NULL, anywhere. What may not be touched
 * is not filled; then it is unlocked. The place is not one that may not be touched at any moment: a
 * thread may be looking. */
static long map_unlocked(const volatile void *at, size_t bytes, int prot, int flags, int fd,
                         size_t off)
{
        long p = sys6(SYS_mmap, 0, (long)bytes, PROT_NONE, flags, fd, (long)off), r;

        if (failed(p))
                return p;
        r = sys2(SYS_munlock, p, bytes);
        if (r == 0)
                r = sys3(SYS_mprotect, p, bytes, prot);
        if (r == 0 && at != NULL)
                r = sys5(SYS_mremap, p, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at);
        if (failed(r)) {
                sys2(SYS_munmap, p, bytes);
                return r;
        }
        return at != NULL ? r : p;
}

static long map_part(const volatile void *at, size_t bytes, int prot, int flags, int fd, size_t off)
{
        bool unlocked =
                atomic_load_explicit(&locking, memory_order_relaxed) && sandbox_forbidden == 0;
        long p = unlikely(unlocked) ? map_unlocked(at, bytes, prot, flags, fd, off)
                                    : sys6(SYS_mmap, (long)at, (long)bytes, prot,
                                           flags | (at != NULL ? MAP_FIXED : 0), fd, (long)off);

        if (!failed(p) && sandbox_forbidden == 0)
                sys3(SYS_madvise, p, bytes, MADV_DONTDUMP);
        return p;
}

static long map_at(const volatile void *at, size_t bytes, int prot, int flags, int fd)
{
        return map_part(at, bytes, prot, flags, fd, 0);
}

void *ustack_map(int fd, size_t bytes, int prot)
{
        long p = map_at(NULL, bytes, prot, MAP_SHARED, fd);

        assert(bytes != 0);
        return failed(p) ? NULL : (void *)p;
}

void ustack_unmap(const volatile void *p, size_t bytes)
{
        if (p != NULL)
                sys2(SYS_munmap, p, bytes);
}

/* Private memory would count as the program's (RLIMIT_DATA). */
void ustack_empty(const volatile void *p, size_t bytes)
{
        map_at(p, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1);
}

void *ustack_map_over(const volatile void *old, size_t *room, int fd, size_t bytes, int prot)
{
        bool fits = old != NULL && bytes <= *room;
        long p = map_at(fits ? old : NULL, bytes, prot, MAP_SHARED, fd);

        assert(bytes != 0);
        if (failed(p))
                return NULL;
        if (!fits)
                *room = bytes;
        return (void *)p;
}

void *ustack_map_end(const volatile void *at, int fd, size_t bytes, int prot)
{
        long size = sys3(SYS_lseek, fd, 0, SEEK_END), p;

        if (size < (long)bytes)
                return NULL;
        p = map_part(at, bytes, prot, MAP_SHARED, fd, (size_t)size - bytes);
        return failed(p) ? NULL : (void *)p;
}

/* ---- private memory of the library's ---- */

static struct {
        uintptr_t from, to;
} own[8];
static _Atomic uint32_t nown;

void *usock_reserve(size_t bytes)
{
        uint32_t n = atomic_load_explicit(&nown, memory_order_relaxed);
        long p;

        assert(bytes != 0 && n < ARRAY_LEN(own));
        p = map_at(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1);
        if (failed(p))
                return NULL;
        own[n].from = (uintptr_t)p;
        own[n].to = (uintptr_t)p + bytes;
        atomic_store_explicit(&nown, n + 1, memory_order_release);
        return (void *)p;
}

/* The kernel may have made one mapping of such memory and some of the program's beside it: the
 * next piece of it that is the program's. False: there is none. */
static bool next_piece(uintptr_t *from, uintptr_t to, uintptr_t *end)
{
        uint32_t n = atomic_load_explicit(&nown, memory_order_acquire);
        bool moved = true;

        while (moved) {
                moved = false;
                *end = to;
                for (uint32_t i = 0; i < n; i++)
                        if (own[i].from <= *from && *from < own[i].to) {
                                *from = own[i].to;
                                moved = true;
                        } else if (own[i].from > *from) {
                                *end = MIN(*end, own[i].from);
                        }
        }
        return *from < to;
}

/* ---- mlockall() ---- */

/* A line of proc_pid_maps(5): whether it is the program's own, and may be filled. */
static bool to_be_locked(const char *line, uintptr_t *from, uintptr_t *to)
{
        char mode[8] = "";

        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", from, to, mode) != 3)
                return false;
        return strstr(line, "/memfd:unet-") == NULL && strstr(line, "[vsyscall]") == NULL &&
               strncmp(mode, "---", 3) != 0;
}

/* As mlockall() does it, what cannot be filled is no error, but what there is no leave for is. */
static int lock_what_is_there(bool as_touched)
{
        struct rlimit rl = {RLIM_INFINITY, RLIM_INFINITY};
        FILE *f = fopen("/proc/self/maps", "re");
        uintptr_t from, to, end;
        uint64_t bytes = 0;
        char line[512];
        long r = 0, one;

        if (f == NULL)
                return (int)sys1(SYS_mlockall, MCL_CURRENT);
        while (fgets(line, sizeof line, f) != NULL) {
                if (!to_be_locked(line, &from, &to))
                        continue;
                for (; next_piece(&from, to, &end); from = end) {
                        one = sys3(SYS_mlock2, from, end - from, as_touched ? MLOCK_ONFAULT : 0);
                        bytes += end - from;
                        r = one < 0 ? one : r;
                }
        }
        fclose(f);
        sys4(SYS_prlimit64, 0, RLIMIT_MEMLOCK, NULL, &rl);
        return bytes > rl.rlim_cur ? (int)r : 0;
}

static bool is_about_us(int flags)
{
        return flags & (MCL_CURRENT | MCL_FUTURE) &&
               !(flags & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) &&
               usock_address_space(false) != 0;
}

/* With a stack: what is there by hand, and MCL_FUTURE, which is about nothing that is there, by
 * the kernel. */
int usock_lock_memory(int flags)
{
        int r = 0;

        if (!is_about_us(flags))
                r = (int)sys1(SYS_mlockall, flags);
        else if (flags & MCL_CURRENT)
                r = lock_what_is_there(flags & MCL_ONFAULT);
        if (r == 0 && is_about_us(flags) && flags & MCL_FUTURE)
                r = (int)sys1(SYS_mlockall, flags & ~MCL_CURRENT);
        if (r == 0 && flags & MCL_FUTURE)
                atomic_store_explicit(&locking, true, memory_order_relaxed);
        if (r == 0 && is_about_us(flags)) {
                ustack_client();
                ustack_note_room();
                ustack_client_done();
        }
        return r;
}

bool ustack_may_map(size_t bytes)
{
        long p;

        if (!atomic_load_explicit(&locking, memory_order_relaxed) || sandbox_forbidden != 0)
                return true;
        p = sys6(SYS_mmap, 0, (long)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
        if (!failed(p))
                sys2(SYS_munmap, p, bytes);
        return !failed(p);
}
