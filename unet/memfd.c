/* Making, passing and checking shared memory. */
#include "unet/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010      /* Linux 5.1 */
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U         /* Linux 6.3 */
#endif

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

/* Without MFD_NOEXEC_SEAL newer kernels print a warning; older ones refuse it. */
static int create(const char *name)
{
        int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

        if (fd < 0 && errno == EINVAL)
                fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        return fd;
}

int unet_memfd_make(const char *name, size_t bytes)
{
        int fd = create(name), err;

        if (fd < 0)
                return -errno;
        if (fchmod(fd, 0600) == 0 && ftruncate(fd, (off_t)bytes) == 0 &&
            fcntl(fd, F_ADD_SEALS, SIZE_SEALS) == 0)
                return fd;
        err = -errno;
        close(fd);
        return err;
}

int unet_memfd_reader(int fd)
{
        char path[32];
        int twin;

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        twin = open(path, O_RDONLY | O_CLOEXEC);
        return twin < 0 ? -errno : twin;
}

int unet_memfd_freeze(int fd)
{
        return fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0 ? 0 : -errno;
}

static int check_file(int fd, const struct stat *st, uid_t owner)
{
        struct statfs fs;

        if (!S_ISREG(st->st_mode) || fstatfs(fd, &fs) != 0 || fs.f_type != TMPFS_MAGIC)
                return -EINVAL;
        if ((st->st_mode & 07777) != 0600 || st->st_uid != owner)
                return -EACCES;
        return (fcntl(fd, F_GETFL) & (O_ACCMODE | O_PATH)) == O_RDONLY ? 0 : -EACCES;
}

int unet_memfd_check(int fd, size_t bytes, uid_t owner)
{
        const int want = SIZE_SEALS | F_SEAL_SEAL;
        int seals = fcntl(fd, F_GET_SEALS), err;
        struct stat st;

        if (seals < 0 || fstat(fd, &st) != 0)   /* seals first: only memory has them, and FUSE is asked nothing */
                return -EINVAL;
        err = check_file(fd, &st, owner);
        if (err != 0)
                return err;
        if ((seals & want) != want)
                return -EPERM;
        return st.st_size >= 0 && (size_t)st.st_size == bytes ? 0 : -ERANGE;
}

void *unet_memfd_map(int fd, size_t bytes, bool writable, void *at)
{
        int prot = writable ? PROT_READ | PROT_WRITE : PROT_READ;
        void *p = mmap(at, bytes, prot, MAP_SHARED | (at != NULL ? MAP_FIXED : 0), fd, 0);

        return p == MAP_FAILED ? NULL : p;
}
