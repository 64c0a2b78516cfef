/*
 * Nothing is read, and no file system is asked that could belong to somebody hostile (FUSE answers when it likes): pipes are
 * known by their link in /proc.
 */
#include "unetd/fdcheck.h"

#include "unetd/sys.h"
#include "unetd/wire.h"

/* "pipe:[<inode>]": a pipe without a name. A named one may lie on FUSE, where stat would ask its owner. */
static int pipe_inode(int fd, uint64_t *ino)
{
        char text[64];
        int n = fd_link(fd, text, sizeof text);

        if (n < 0 || strncmp(text, "pipe:[", 6) != 0)
                return -EINVAL;
        *ino = 0;
        for (const char *c = text + 6; *c >= '0' && *c <= '9'; c++)
                *ino = *ino * 10 + (uint64_t)(*c - '0');
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
