/*
 * Nothing is read, and no file system is asked that could belong to somebody hostile (FUSE answers when it likes): the kernel says
 * what it knows of a file already, and all pipes without a name are of one device, which nobody else's file can be of. /proc would
 * tell, too, but a program may have left it behind (chroot).
 */
#include "unetd/client/fdcheck.h"

#include <stdatomic.h>

#include "unetd/client/sys.h"

static _Atomic uint64_t pipes;          /* their device; 0: not known yet */

static int look(int fd, struct statx *st)
{
        return (int)SYS_CALL(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, st, 0);
}

static uint64_t device(const struct statx *st)
{
        return (uint64_t)st->stx_dev_major << 32 | st->stx_dev_minor;
}

int fdcheck_init(void)
{
        struct statx st;
        int fd[2], r;

        if (atomic_load_explicit(&pipes, memory_order_relaxed) != 0)
                return 0;
        r = sys_pipe2(fd, O_CLOEXEC);
        if (r < 0)
                return r;
        r = look(fd[0], &st);
        if (r == 0)
                atomic_store_explicit(&pipes, device(&st), memory_order_relaxed);
        sys_close(fd[0]);
        sys_close(fd[1]);
        return r;
}

/* A named one may lie anywhere. */
static int pipe_inode(int fd, uint64_t *ino)
{
        struct statx st;
        int r = fdcheck_init();

        if (r < 0)
                return r;
        if (look(fd, &st) < 0 || !S_ISFIFO(st.stx_mode) || device(&st) != atomic_load_explicit(&pipes, memory_order_relaxed))
                return -EINVAL;
        *ino = st.stx_ino;
        return 0;
}

int fdcheck_pipe(int fd, bool writable, uint64_t *ino)
{
        int fl = sys_fcntl(fd, F_GETFL, 0), r;

        if (fl < 0 || fl & O_PATH)
                return -EINVAL;
        r = pipe_inode(fd, ino);
        if (r < 0)
                return r;
        return (fl & O_ACCMODE) == (writable ? O_WRONLY : O_RDONLY) && fl & O_NONBLOCK ? 0 : -EACCES;
}

int fdcheck_pidfd(int fd)
{
        return SYS_CALL(SYS_pidfd_send_signal, fd, 0, NULL, 0, 0, 0) == -EBADF ? -EINVAL : 0;
}
