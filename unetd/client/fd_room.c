/* Numbers that are kept: copies of one eventfd, where fd_high() puts what is ours. */
#include "unetd/client/fd_room.h"

#include <stdatomic.h>
#include <sys/eventfd.h>

#include "base/sandbox.h"
#include "unetd/client/sys.h"
#include "unetd/client/wire.h"

#define LENT (UNETD_FDS_MAX + 1) /* what a message brings, and one to move it by */

static struct {
        _Atomic int fd[FD_ROOM_MOST]; /* the first n */
        int lent[LENT];
        unsigned n, nlent;
        bool lacked;
} room;

static void close_down_to(unsigned n)
{
        while (room.n > n)
                sys_close(atomic_exchange(&room.fd[--room.n], 0));
}

static unsigned wanted(void)
{
        return (unsigned)MIN(MAX(sys_nofile() / 16, FD_ROOM_LEAST), FD_ROOM_MOST);
}

static void keep_more(void)
{
        int fd;

        for (unsigned n = wanted(); room.n < n;) {
                fd = room.n == 0 ? (int)sys2(SYS_eventfd2, 0, EFD_CLOEXEC)
                                 : fd_high_dup(room.fd[0]);
                if (fd >= 0 && room.n == 0)
                        fd = fd_high(fd);
                if (fd < 0)
                        return;
                atomic_store(&room.fd[room.n++], fd);
        }
}

/* Some are numbers that the program may not have any more: nothing that comes could have them. */
static bool beyond_limit(void)
{
        uint64_t limit = sys_nofile();

        for (unsigned i = 0; i < room.n; i++)
                if ((uint64_t)room.fd[i] >= limit)
                        return true;
        return false;
}

bool fd_room_keep(void)
{
        unsigned before;

        if (fd_above())
                return true;
        if (sys_nofile() <= FD_ROOM_LEAST)
                return !room.lacked;
        if (beyond_limit())
                close_down_to(0);
        before = room.n;
        keep_more();
        if (room.n < wanted())
                close_down_to(before);
        return room.n >= wanted();
}

void fd_room_lack(void)
{
        room.lacked = true;
}

void fd_room_lend(void)
{
        for (; room.n > 1 && sandbox_forbidden == 0 && room.nlent < LENT; room.nlent++) {
                int fd = room.fd[room.n - 1];
                room.lent[room.nlent] = fd;
                close_down_to(room.n - 1);
        }
}

/* The very numbers, and none that the program has closed meanwhile. */
bool fd_room_back(void)
{
        bool any = room.nlent > 0;

        while (room.nlent > 0) {
                int number = room.lent[--room.nlent],
                    fd = sys_fcntl(room.fd[0], F_DUPFD_CLOEXEC, number);
                if (fd == number)
                        atomic_store(&room.fd[room.n++], fd);
                else if (fd >= 0)
                        sys_close(fd);
        }
        return any;
}

bool fd_room_owns(int fd)
{
        for (unsigned i = 0; i < FD_ROOM_MOST; i++)
                if (fd > 0 && fd == atomic_load_explicit(&room.fd[i], memory_order_relaxed))
                        return true;
        return false;
}
