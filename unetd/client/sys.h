/*
 * The system calls that the client library, and code that it shares with the daemons, makes
 * directly.
 *
 * The client library lives inside a shim that replaces close(), socket(), poll() and friends, and
 * inside programs that watch errno: it must go through neither. Each call returns what the kernel
 * returns: a result, or a negative errno. Cancellation points and restarts are left out on purpose;
 * callers retry -EINTR themselves.
 */
#ifndef UNETD_SYS_H
#define UNETD_SYS_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"

#define SYS_CALL(nr, a, b, c, d, e, f) \
        sys6(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static inline int sys_close(int fd)
{
        return (int)SYS_CALL(SYS_close, fd, 0, 0, 0, 0, 0);
}
static inline int sys_socket(int family, int type, int proto)
{
        return (int)SYS_CALL(SYS_socket, family, type, proto, 0, 0, 0);
}
static inline int sys_connect(int fd, const void *addr, socklen_t len)
{
        return (int)SYS_CALL(SYS_connect, fd, addr, len, 0, 0, 0);
}
static inline int sys_getsockopt(int fd, int level, int opt, void *val, socklen_t *len)
{
        return (int)SYS_CALL(SYS_getsockopt, fd, level, opt, val, len, 0);
}
static inline long sys_sendmsg(int fd, const struct msghdr *m, int flags)
{
        return SYS_CALL(SYS_sendmsg, fd, m, flags, 0, 0, 0);
}
static inline long sys_recvmsg(int fd, struct msghdr *m, int flags)
{
        return SYS_CALL(SYS_recvmsg, fd, m, flags, 0, 0, 0);
}
static inline int sys_fcntl(int fd, int cmd, long arg)
{
        return (int)SYS_CALL(SYS_fcntl, fd, cmd, arg, 0, 0, 0);
}
static inline int sys_open(const char *path, int flags)
{
        return (int)SYS_CALL(SYS_openat, AT_FDCWD, path, flags, 0, 0, 0);
}
static inline int sys_readlink(const char *path, char *buf, size_t n)
{
        return (int)SYS_CALL(SYS_readlinkat, AT_FDCWD, path, buf, n, 0, 0);
}
static inline long sys_read(int fd, void *buf, size_t n)
{
        return SYS_CALL(SYS_read, fd, buf, n, 0, 0, 0);
}
static inline int sys_pipe2(int fd[2], int flags)
{
        return (int)SYS_CALL(SYS_pipe2, fd, flags, 0, 0, 0, 0);
}
static inline int sys_statx(int fd, struct statx *st)
{
        return (int)SYS_CALL(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, st, 0);
}
/* The address, or a negative errno as (void *). */
static inline void *sys_mmap(size_t bytes, int prot, int flags, int fd)
{
        return (void *)SYS_CALL(SYS_mmap, 0, bytes, prot, flags, fd, 0);
}
static inline bool sys_is_err(const void *p)
{
        return (unsigned long)p >= (unsigned long)-4095L;
}
static inline int sys_munmap(const void *p, size_t bytes)
{
        return (int)SYS_CALL(SYS_munmap, p, bytes, 0, 0, 0, 0);
}
/* Waits for events on one descriptor; ms < 0: for ever. */
static inline int sys_poll1(int fd, short events, int ms)
{
        struct pollfd p = {.fd = fd, .events = events};
        struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

        return (int)SYS_CALL(SYS_ppoll, &p, 1, ms < 0 ? NULL : &ts, NULL, 8, 0);
}
static inline void sys_sleep_ms(int ms)
{
        struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

        SYS_CALL(SYS_nanosleep, &ts, NULL, 0, 0, 0, 0);
}
static inline int64_t sys_now_ms(void)
{
        struct timespec ts = {0, 0};

        SYS_CALL(SYS_clock_gettime, CLOCK_MONOTONIC, &ts, 0, 0, 0, 0);
        return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
static inline int32_t sys_getpid(void)
{
        return (int32_t)SYS_CALL(SYS_getpid, 0, 0, 0, 0, 0, 0);
}
static inline uint32_t sys_geteuid(void)
{
        return (uint32_t)SYS_CALL(SYS_geteuid, 0, 0, 0, 0, 0, 0);
}
static inline int sys_nofile_limit(const struct rlimit *set, struct rlimit *was)
{
        return (int)SYS_CALL(SYS_prlimit64, 0, RLIMIT_NOFILE, set, was, 0, 0);
}
static inline uint64_t sys_nofile(void) /* the soft limit */
{
        struct rlimit rl = {1024, 1024};

        sys_nofile_limit(NULL, &rl);
        return rl.rlim_cur;
}

#endif
