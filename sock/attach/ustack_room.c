/*
 * Address space and descriptors. A stack and its channels take much of the first, most of it never
 * touched, and some of the second. Where RLIMIT_AS bounds what a program may have, half of what is
 * left is the program's. The rest must do for the stack and a few channels. If it does not, there
 * is no stack, and sockets are the kernel's. If it does, as many channels come about as there is
 * room for; later peers are told to go by the kernel (keeper_chan_attach()). The same is true of
 * the hard RLIMIT_NOFILE, where the soft one does not leave enough above it, but for the stack
 * alone: a channel keeps no descriptor. No numbers are kept: while the program has used up its own
 * there are no more channels.
 */
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "sock/usock_process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/sandbox.h"
#include "base/sys.h"
#include "unet/shm/shm_ring.h"
#include "unetd/client/wire.h"

#define CHANS_LEAST 4u            /* a process that talks to itself needs two */
#define OTHER_BYTES (64ull << 20) /* the directory, tables, pipes' buffers */
#define FDS_LEAST   38u           /* a stack's own, threads that sleep, what a message brings */

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

static struct rlimit limit_of(int what)
{
        struct rlimit rl = {RLIM_INFINITY, RLIM_INFINITY};

        if (!sandbox_forbids(SANDBOX_LIMITS))
                sys4(SYS_prlimit64, 0, what, NULL, &rl);
        return rl;
}

/* Channels. */
static uint32_t room_of_descriptors(void)
{
        struct rlimit rl = limit_of(RLIMIT_NOFILE);
        uint64_t left = MAX(rl.rlim_max - rl.rlim_cur, rl.rlim_max / 2);

        return left >= FDS_LEAST ? STACK_CHANS : 0;
}

static uint32_t room_of_space(void)
{
        struct rlimit rl = limit_of(RLIMIT_AS);
        uint64_t have, left;

        if (likely(rl.rlim_cur == RLIM_INFINITY))
                return STACK_CHANS;
        have = sandbox_forbidden == 0 ? mapped() : 0;
        left = rl.rlim_cur > have ? (rl.rlim_cur - have) / 2 : 0;
        if (left < state_bytes() + OTHER_BYTES)
                return 0;
        return (uint32_t)MIN((left - state_bytes() - OTHER_BYTES) / chan_bytes(), STACK_CHANS);
}

void ustack_limits(struct stack_limits *l)
{
        if (limit_of(RLIMIT_AS).rlim_cur == RLIM_INFINITY)
                stack_limits_large(l);
        else
                stack_limits_default(l);
}

uint32_t ustack_room(void)
{
        uint32_t room = MIN(room_of_space(), room_of_descriptors());

        return room >= CHANS_LEAST ? room : 0;
}

/* In the books of a stack that has a process slot of that number. */
void ustack_set_full(struct ustack *u, uint32_t slot, bool full)
{
        _Atomic uint32_t *mine = &u->s.st->proc[slot].full;

        if (atomic_load_explicit(mine, memory_order_relaxed) != full)
                atomic_store(mine, full);
}

bool ustack_note_limit(struct ustack *u, int err)
{
        if (likely(err != -EDQUOT && err != -ENOSPC))
                return false;
        ustack_lock(u);
        count(&u->s.st->cnt, COUNT_SOCK_LIMITED);
        ustack_leave(u);
        return true;
}

bool ustack_chan_fits(void)
{
        return ustack_may_map(chan_bytes());
}

/* For memory of programs' own. */
static uint64_t memory_bytes(const struct ustack *u)
{
        uint32_t n = u->s.memory != NULL;

        for (uint32_t k = 0; k < u->s.nchan; k++)
                n += u->chan[k].memory != NULL;
        return (uint64_t)n * FRAME_NAMED_BYTES;
}

uint64_t usock_address_space(bool keep_to)
{
        struct ustack *all[USTACKS_MAX];
        uint32_t n = ustack_all(all);
        uint64_t bytes = n != 0 ? OTHER_BYTES : 0;

        for (uint32_t i = 0; i < n; i++) {
                uint32_t room = atomic_load_explicit(&all[i]->s.st->chans, memory_order_acquire) +
                                CHANS_LEAST;
                room = MIN(room, READ_ONCE(all[i]->s.st->chan_room));
                if (keep_to)
                        WRITE_ONCE(all[i]->s.st->chan_room, room);
                bytes += all[i]->bytes + memory_bytes(all[i]) + room * chan_bytes();
        }
        return bytes;
}
