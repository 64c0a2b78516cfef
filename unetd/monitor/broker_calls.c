/* See broker_calls.h. What is missing on an architecture libseccomp leaves out
 * (seccomp_rule_add(3)). */
#include "unetd/monitor/broker_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/base.h"
#include "unetd/loop/log.h"

#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif

static const int calls[] = {
        /* descriptors */
        SCMP_SYS(read), SCMP_SYS(readv), SCMP_SYS(pread64), SCMP_SYS(write), SCMP_SYS(writev),
        SCMP_SYS(pwrite64), SCMP_SYS(close), SCMP_SYS(close_range), SCMP_SYS(fcntl),
        SCMP_SYS(ioctl), SCMP_SYS(lseek), SCMP_SYS(fstat), SCMP_SYS(fstatfs), SCMP_SYS(statx),
        SCMP_SYS(newfstatat), SCMP_SYS(stat), SCMP_SYS(access), SCMP_SYS(faccessat),
        SCMP_SYS(faccessat2), SCMP_SYS(readlink), SCMP_SYS(readlinkat), SCMP_SYS(getdents64),
        SCMP_SYS(dup), SCMP_SYS(dup3), SCMP_SYS(pipe2),
        /* memory, and memory files */
        SCMP_SYS(brk), SCMP_SYS(mmap), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(mprotect),
        SCMP_SYS(madvise), SCMP_SYS(memfd_create), SCMP_SYS(ftruncate), SCMP_SYS(fchmod),
        /* sockets */
        SCMP_SYS(socketpair), SCMP_SYS(bind), SCMP_SYS(listen), SCMP_SYS(connect),
        SCMP_SYS(accept4), SCMP_SYS(shutdown), SCMP_SYS(getsockname), SCMP_SYS(getpeername),
        SCMP_SYS(getsockopt), SCMP_SYS(setsockopt), SCMP_SYS(sendto), SCMP_SYS(sendmsg),
        SCMP_SYS(sendmmsg), SCMP_SYS(recvfrom), SCMP_SYS(recvmsg), SCMP_SYS(recvmmsg),
        /* waiting, time, random numbers */
        SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait),
        SCMP_SYS(epoll_pwait2), SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(nanosleep),
        SCMP_SYS(clock_nanosleep), SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres),
        SCMP_SYS(gettimeofday), SCMP_SYS(time), SCMP_SYS(sched_yield), SCMP_SYS(getrandom),
        SCMP_SYS(futex), SCMP_SYS(restart_syscall),
        /* ourselves */
        SCMP_SYS(getpid), SCMP_SYS(getppid), SCMP_SYS(gettid), SCMP_SYS(getuid), SCMP_SYS(geteuid),
        SCMP_SYS(getgid), SCMP_SYS(getegid), SCMP_SYS(getrlimit), SCMP_SYS(rt_sigaction),
        SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn), SCMP_SYS(sigaltstack),
        SCMP_SYS(signalfd4), SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(wait4), SCMP_SYS(uname),
        SCMP_SYS(rseq), SCMP_SYS(set_robust_list), SCMP_SYS(getcpu),
        /* which process it is, and whether it lives */
        SCMP_SYS(pidfd_open)};

/* System calls that are allowed with some arguments only. */
static const struct {
        int call;
        struct scmp_arg_cmp only;
} some[] = {
        {SCMP_SYS(socket), {0, SCMP_CMP_EQ, AF_UNIX, 0}},
        {SCMP_SYS(socket), {0, SCMP_CMP_EQ, AF_INET, 0}},
        {SCMP_SYS(socket), {0, SCMP_CMP_EQ, AF_INET6, 0}},
        {SCMP_SYS(socket), {0, SCMP_CMP_EQ, AF_NETLINK, 0}},
        /* Nothing is made, nothing cut. */
        {SCMP_SYS(openat), {2, SCMP_CMP_MASKED_EQ, O_CREAT | O_TRUNC | O_APPEND, 0}},
        {SCMP_SYS(open), {1, SCMP_CMP_MASKED_EQ, O_CREAT | O_TRUNC | O_APPEND, 0}},
        /* daemon/discard.c. */
        {SCMP_SYS(clone), {0, SCMP_CMP_EQ, CLONE_FILES | CLONE_PIDFD | SIGCHLD, 0}},
        {SCMP_SYS(prctl), {0, SCMP_CMP_EQ, PR_SET_PDEATHSIG, 0}},  /* ... too */
        {SCMP_SYS(prlimit64), {0, SCMP_CMP_EQ, 0, 0}},             /* our own */
        {SCMP_SYS(pidfd_send_signal), {1, SCMP_CMP_EQ, 0, 0}},     /* whether it is a pidfd */
        {SCMP_SYS(bpf), {0, SCMP_CMP_EQ, BPF_MAP_LOOKUP_ELEM, 0}}, /* counts of dropped packets */
};

static int fill(scmp_filter_ctx f)
{
        int r = 0;

        for (size_t i = 0; i < ARRAY_LEN(calls) && r == 0; i++)
                r = seccomp_rule_add(f, SCMP_ACT_ALLOW, calls[i], 0);
        for (size_t i = 0; i < ARRAY_LEN(some) && r == 0; i++)
                r = seccomp_rule_add_array(f, SCMP_ACT_ALLOW, some[i].call, 1, &some[i].only);
        return r;
}

int broker_calls_filter(void)
{
        scmp_filter_ctx f = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
        int r = f ? seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2) : -ENOMEM;

        if (r == 0)
                r = fill(f);
        if (r == 0)
                r = seccomp_load(f);
        if (f)
                seccomp_release(f);
        if (r < 0)
                log_line("no filter of system calls: %s", strerror(-r));
        return r;
}
