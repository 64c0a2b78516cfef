/*
 * Nothing is read, and no file system is asked that could belong to somebody hostile (FUSE answers
 * when it likes). The kernel says what it knows of a file already. /proc would tell, too, but a
 * program may have left it behind (chroot).
 */
#include "unetd/client/fdcheck.h"

#include "unet/bell_fd.h"
#include "unetd/client/sys.h"

int fdcheck_bell(int fd)
{
        return bell_is_sock(fd) ? 0 : -EINVAL;
}

int fdcheck_pidfd(int fd)
{
        return sys4(SYS_pidfd_send_signal, fd, 0, NULL, 0) == -EBADF ? -EINVAL : 0;
}
