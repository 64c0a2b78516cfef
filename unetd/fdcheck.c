/*
 * Nothing is read or mapped, and no file system is asked that could belong to somebody hostile (FUSE answers
 * when it likes): seals are the kernel's own knowledge and only memory files have them; pipes are known by
 * their link in /proc.
 */
#include "unetd/fdcheck.h"

#include <linux/magic.h>

#include "unetd/sys.h"
#include "unetd/wire.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int check_mode(int fd, bool writable)
{
        int fl = sys_fcntl(fd, F_GETFL, 0);

        if (fl < 0 || fl & O_PATH)
                return -EINVAL;
        return (fl & O_ACCMODE) == (writable ? O_RDWR : O_RDONLY) ? 0 : -EACCES;
}

int fdcheck_memfd(int fd, uint64_t bytes, bool writable)
{
        int seals = sys_fcntl(fd, F_GET_SEALS, 0), r;
        struct statx st;
        struct statfs fs;

        if (seals < 0 || sys_fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC)
                return -EINVAL;
        if (sys_statx(fd, &st) < 0 || !S_ISREG(st.stx_mode))
                return -EINVAL;
        r = check_mode(fd, writable);
        if (r < 0)
                return r;
        if ((seals & SEALS) != SEALS)
                return -EPERM;
        return st.stx_size == 0 || (bytes != 0 && st.stx_size != bytes) ? -ERANGE : 0;
}

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
