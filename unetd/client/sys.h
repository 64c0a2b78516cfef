/*
 * The system calls that the client library, and code that it shares with the daemons, makes
 * directly. What is called in one place only is called there, by base/sys.h.
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

static inline int sys_close(int fd)
{
        return (int)sys1(SYS_close, fd);
}
static inline int sys_getsockopt(int fd, int level, int opt, void *val, socklen_t *len)
{
        return (int)sys5(SYS_getsockopt, fd, level, opt, val, len);
}
static inline int sys_fcntl(int fd, int cmd, long arg)
{
        return (int)sys3(SYS_fcntl, fd, cmd, arg);
}
static inline int sys_open(const char *path, int flags)
{
        return (int)sys3(SYS_openat, AT_FDCWD, path, flags);
}
static inline long sys_read(int fd, void *buf, size_t n)
{
        return sys3(SYS_read, fd, buf, n);
}
static inline int sys_statx(int fd, struct statx *st)
{
        return (int)sys5(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, st);
}
static inline bool sys_is_err(const void *p)
{
        return (unsigned long)p >= (unsigned long)-4095L;
}
static inline int sys_munmap(const void *p, size_t bytes)
{
        return (int)sys2(SYS_munmap, p, bytes);
}
/* Waits for events on one descriptor; ms < 0: for ever. */
static inline int sys_poll1(int fd, short events, int ms)
{
        struct pollfd p = {.fd = fd, .events = events};
        struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

        return (int)sys5(SYS_ppoll, &p, 1, ms < 0 ? NULL : &ts, NULL, 8);
}
static inline void sys_sleep_ms(int ms)
{
        struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

        sys2(SYS_nanosleep, &ts, NULL);
}
static inline int64_t sys_now_ms(void)
{
        struct timespec ts = {0, 0};

        sys2(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
        return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
static inline int32_t sys_getpid(void)
{
        return (int32_t)sys0(SYS_getpid);
}
static inline uint32_t sys_geteuid(void)
{
        return (uint32_t)sys0(SYS_geteuid);
}
static inline int sys_nofile_limit(const struct rlimit *set, struct rlimit *was)
{
        return (int)sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, set, was);
}
static inline uint64_t sys_nofile(void) /* the soft limit */
{
        struct rlimit rl = {1024, 1024};

        sys_nofile_limit(NULL, &rl);
        return rl.rlim_cur;
}

#endif
