/* Checks by fcntl, fstat and fstatfs only: nothing is read or mapped. */
#include "unetd/fdcheck.h"

#include <linux/magic.h>

#include "unetd/sys.h"

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

int fdcheck_pipe(int fd, bool writable, uint64_t *ino)
{
        struct statx st;
        struct statfs fs;
        int fl = sys_fcntl(fd, F_GETFL, 0);

        if (fl < 0 || fl & O_PATH || sys_fstatfs(fd, &fs) < 0 || fs.f_type != PIPEFS_MAGIC)
                return -EINVAL;
        if (sys_statx(fd, &st) < 0 || !S_ISFIFO(st.stx_mode))
                return -EINVAL;
        if ((fl & O_ACCMODE) != (writable ? O_WRONLY : O_RDONLY) || !(fl & O_NONBLOCK))
                return -EACCES;
        *ino = st.stx_ino;
        return 0;
}

int fdcheck_pidfd(int fd)
{
        return SYS_CALL(SYS_pidfd_send_signal, fd, 0, NULL, 0, 0, 0) == -EBADF ? -EINVAL : 0;
}
