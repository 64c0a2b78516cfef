/*
 * Signals of readiness. No thread waits for them: whoever takes a segment off a queue, which is the
 * keeper while the program computes, sends them together with its wake-ups.
 */
#include "sock/attach/handle.h"
#include "sock/wait/usock_owner.h"
#include "sock/usock_option.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sandbox.h"
#include "base/sys.h"

/* Ioctl of a pidfd: PIDFD_GET_PID_NAMESPACE of Linux 6.11, which libc's headers may not have. */
#define GET_PID_NAMESPACE _IO(0xff, 5)

/* Where there is no /proc: by a descriptor of the namespace; 0: a kernel that gives none, or a
 * program that locked itself in. */
static uint64_t own_ns_by_pidfd(void)
{
        struct stat sb = {.st_ino = 0};
        long pidfd, ns;

        if (sandbox_forbidden != 0 || (pidfd = sys2(SYS_pidfd_open, getpid(), 0)) < 0)
                return 0;
        ns = sys3(SYS_ioctl, pidfd, GET_PID_NAMESPACE, 0);
        sys1(SYS_close, pidfd);
        if (ns < 0)
                return 0;
        sys2(SYS_fstat, ns, &sb);
        sys1(SYS_close, ns);
        return sb.st_ino;
}

/* The PID namespace of this process, and of those that it forks: theirs may be another one. */
static uint64_t own_ns(void)
{
        struct stat sb;

        return sys4(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/pid", &sb, 0) == 0 ? sb.st_ino
                                                                                : own_ns_by_pidfd();
}

void usock_set_owner(struct usock *s, int32_t owner, uint32_t tid, bool async)
{
        struct sock_rec *rec = usock_rec(s);
        uint64_t ns = owner != 0 ? own_ns() : 0;

        ustack_lock(s->u);
        rec->owner = owner;
        rec->owner_ns = ns;
        rec->owner_tid = tid;
        rec->async = async;
        rec->waiters = owner != 0 ? rec->waiters | WAITERS_SIGNAL : rec->waiters & ~WAITERS_SIGNAL;
        ustack_leave(s->u);
}

/* A process that is gone may be another one by now. */
static bool is_of_stack(const struct stack_state *st, int32_t pid)
{
        for (uint32_t i = 0, n = stack_procs(st); i < n; i++)
                if (atomic_load_explicit(&st->proc[i].pid, memory_order_relaxed) == (uint32_t)pid)
                        return true;
        return false;
}

static void send_signal(const struct sock_rec *rec, int sig)
{
        if (rec->owner_tid != 0)
                sys2(SYS_tkill, rec->owner_tid, sig);
        else
                sys2(SYS_kill, rec->owner, sig);
}

void usock_signal_owner(struct ustack *u, const struct sock_rec *rec, uint32_t events)
{
        assert(ustack_locked(u));
        if (sandbox_forbids(SANDBOX_KILL) || (rec->owner > 0 && !is_of_stack(u->s.st, rec->owner)))
                return;
        if (rec->owner_ns == 0 || own_ns() != rec->owner_ns)
                return; /* the number is somebody else's here */
        if (events & TCP_EV_URGENT)
                send_signal(rec, SIGURG);
        if (rec->async)
                send_signal(rec, SIGIO);
}
