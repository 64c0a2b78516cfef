/*
 * Making, passing and checking shared memory; by system calls made directly, since the client of
 * unetd uses it in programs whose calls are ours. A check reads and maps nothing. It asks no file
 * system that could belong to somebody hostile (FUSE answers when it likes): seals are the kernel's
 * own knowledge, and only memory files have them.
 */
#include "base/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/sys.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

/* Without MFD_NOEXEC_SEAL newer kernels print a warning; older ones refuse it. */
static int create(const char *name)
{
        int fd = (int)sys2(SYS_memfd_create, name,
                           MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

        return fd != -EINVAL ? fd
                             : (int)sys2(SYS_memfd_create, name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

static int add_seals(int fd, int seals)
{
        return (int)sys3(SYS_fcntl, fd, F_ADD_SEALS, seals);
}

/* A file larger than RLIMIT_FSIZE would end the program by a signal. The limit is meant for others:
 * it is lifted for the moment, if it may be. */
static int make_long(int fd, size_t bytes)
{
        struct rlimit own, room;
        int err;

        if ((err = (int)sys4(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &own)) != 0 ||
            own.rlim_cur >= bytes)
                return err != 0 ? err : (int)sys2(SYS_ftruncate, fd, bytes);
        room = (struct rlimit){.rlim_cur = own.rlim_max, .rlim_max = own.rlim_max};
        if (own.rlim_max < bytes)
                return -EFBIG;
        if ((err = (int)sys4(SYS_prlimit64, 0, RLIMIT_FSIZE, &room, NULL)) != 0)
                return err;
        err = (int)sys2(SYS_ftruncate, fd, bytes);
        sys4(SYS_prlimit64, 0, RLIMIT_FSIZE, &own, NULL);
        return err;
}

static int make(const char *name, size_t bytes, int seals)
{
        int fd = create(name), err;

        if (fd < 0)
                return fd;
        if ((err = (int)sys2(SYS_fchmod, fd, 0600)) == 0 && (err = make_long(fd, bytes)) == 0 &&
            (err = add_seals(fd, seals)) == 0)
                return fd;
        sys1(SYS_close, fd);
        return err;
}

int unet_memfd_make(const char *name, size_t bytes)
{
        return make(name, bytes, SIZE_SEALS);
}

int unet_memfd_make_sealed(const char *name, size_t bytes)
{
        return make(name, bytes, SIZE_SEALS | F_SEAL_SEAL);
}

int unet_memfd_reader(int fd)
{
        char path[32];

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        return (int)sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
}

int unet_memfd_freeze(int fd)
{
        return add_seals(fd, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
}

static int check_file(int fd, const struct statx *st, bool writable, uid_t owner)
{
        int how = (int)sys3(SYS_fcntl, fd, F_GETFL, 0);
        struct statfs fs;

        if (!S_ISREG(st->stx_mode) || sys2(SYS_fstatfs, fd, &fs) != 0 || fs.f_type != TMPFS_MAGIC ||
            how < 0 || how & O_PATH)
                return -EINVAL;
        if (owner != UNET_MEMFD_ANYBODY && ((st->stx_mode & 07777) != 0600 || st->stx_uid != owner))
                return -EACCES;
        return (how & O_ACCMODE) == (writable ? O_RDWR : O_RDONLY) ? 0 : -EACCES;
}

int unet_memfd_check(int fd, size_t bytes, bool writable, uid_t owner)
{
        const int want = SIZE_SEALS | F_SEAL_SEAL;
        int seals = (int)sys3(SYS_fcntl, fd, F_GET_SEALS, 0), err;
        struct statx st;

        if (seals < 0 || sys5(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) != 0)
                return -EINVAL;
        err = check_file(fd, &st, writable, owner);
        if (err != 0)
                return err;
        if ((seals & want) != want)
                return -EPERM;
        return st.stx_size == 0 || (bytes != 0 && st.stx_size != bytes) ? -ERANGE : 0;
}

bool unet_memfd_same(int a, int b)
{
        struct statx x, y;

        return sys5(SYS_statx, a, "", AT_EMPTY_PATH, STATX_INO, &x) == 0 &&
               sys5(SYS_statx, b, "", AT_EMPTY_PATH, STATX_INO, &y) == 0 &&
               x.stx_ino == y.stx_ino && x.stx_dev_major == y.stx_dev_major &&
               x.stx_dev_minor == y.stx_dev_minor;
}

void *unet_memfd_map(int fd, size_t bytes, bool writable, void *at)
{
        int prot = writable ? PROT_READ | PROT_WRITE : PROT_READ;
        long p = sys6(SYS_mmap, (long)at, (long)bytes, prot,
                      MAP_SHARED | (at != NULL ? MAP_FIXED : 0), fd, 0);

        return p < 0 && p > -4096 ? NULL : (void *)p;
}
