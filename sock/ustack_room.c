/*
 * Address space. A stack and its channels take much of it, most of it never touched; where RLIMIT_AS bounds what a program may
 * have, half of what is left is the program's, and the rest must do for the stack and a few channels. If it does not,
 * there is none, and sockets are the kernel's; if it does, as many channels come about as there is room for, and who comes
 * then is told to go by the kernel (keeper_chan_attach()).
 */
#include "sock/ustack.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "netstack/sandbox.h"
#include "netstack/sys.h"
#include "unet/shm_ring.h"

#define CHANS_LEAST 4u                  /* a process that talks to itself needs two */
#define OTHER_BYTES (64ull << 20)       /* the directory, tables, pipes' buffers */

static uint64_t state_bytes(void)
{
        struct stack_limits l;

        stack_limits_default(&l);
        return stack_bytes(&l);
}

/* Both regions. */
static uint64_t chan_bytes(void)
{
        struct stack_limits l;

        stack_limits_default(&l);
        return 2 * SHM_REGION_BYTES(l.tx);
}

/* Mapped now; where that cannot be read, it is nothing. */
static uint64_t mapped(void)
{
        char text[64] = "";
        int fd = (int)sys4(SYS_openat, AT_FDCWD, "/proc/self/statm", O_RDONLY | O_CLOEXEC, 0);

        if (fd < 0)
                return 0;
        sys3(SYS_read, fd, text, sizeof text - 1);
        sys1(SYS_close, fd);
        return strtoull(text, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint32_t ustack_room(void)
{
        struct rlimit rl = {RLIM_INFINITY, RLIM_INFINITY};
        uint64_t have, left;

        if (!sandbox_forbids(SANDBOX_LIMITS))
                sys4(SYS_prlimit64, 0, RLIMIT_AS, NULL, &rl);
        if (likely(rl.rlim_cur == RLIM_INFINITY))
                return STACK_CHANS;
        have = sandbox_forbidden == 0 ? mapped() : 0;
        left = rl.rlim_cur > have ? (rl.rlim_cur - have) / 2 : 0;
        if (left < state_bytes() + OTHER_BYTES + CHANS_LEAST * chan_bytes())
                return 0;
        return (uint32_t)MIN((left - state_bytes() - OTHER_BYTES) / chan_bytes(), STACK_CHANS);
}

uint64_t usock_address_space(bool keep_to)
{
        struct ustack *all[USTACKS_MAX];
        uint32_t n = ustack_all(all);
        uint64_t bytes = n != 0 ? OTHER_BYTES : 0;

        for (uint32_t i = 0; i < n; i++) {
                uint32_t room = atomic_load_explicit(&all[i]->s.st->chans, memory_order_acquire) + CHANS_LEAST;
                room = MIN(room, READ_ONCE(all[i]->s.st->chan_room));
                if (keep_to)
                        WRITE_ONCE(all[i]->s.st->chan_room, room);
                bytes += all[i]->bytes + room * chan_bytes();
        }
        return bytes;
}
