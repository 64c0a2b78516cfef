/* sendmsg and recvmsg with descriptors, one message a call. */
#include "unetd/client/wire.h"

#include <stdatomic.h>

#include "base/sandbox.h"
#include "unetd/client/sys.h"

#define FD_OURS      4096 /* no more than these have we */
#define FD_ABOVE_MAX 65536
#define FD_HIGH      900 /* above what select() programs count on staying below */

int wire_send(int fd, struct unetd_msg *msg, const int *fds, unsigned n, int flags)
{
        struct iovec iov = {.iov_base = msg, .iov_len = sizeof *msg};
        struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
        union rights ctl;
        long r;

        assert(n <= UNETD_FDS_MAX);
        msg->magic = UNETD_MAGIC;
        msg->nfds = (uint16_t)n;
        rights_put(&mh, &ctl, fds, n);
        do
                r = sys3(SYS_sendmsg, fd, &mh, flags | MSG_NOSIGNAL);
        while (r == -EINTR);
        return r < 0 ? (int)r : 0;
}

static bool in_form(const struct wire_in *in, long len, int flags)
{
        return len == (long)sizeof in->msg && !(flags & MSG_TRUNC) &&
               in->msg.magic == UNETD_MAGIC && in->msg.nfds <= UNETD_FDS_MAX &&
               in->n <= in->msg.nfds && in->msg.type != UNETD_INVALID && in->msg.type < UNETD_TYPES;
}

static int judged(const struct wire_in *in, long len, int flags)
{
        if (!in_form(in, len, flags))
                return -EBADMSG;
        if (in->n == in->msg.nfds)
                return flags & MSG_CTRUNC ? -EBADMSG : 0;
        return flags & MSG_CTRUNC ? -EMFILE : -EBADMSG;
}

int wire_recv(int fd, struct wire_in *in, int flags)
{
        struct iovec iov = {.iov_base = &in->msg, .iov_len = sizeof in->msg};
        union rights ctl;
        struct msghdr mh = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = &ctl,
                            .msg_controllen = sizeof ctl};
        long r;

        memset(&in->msg, 0, sizeof in->msg);
        in->n = 0;
        do
                r = sys3(SYS_recvmsg, fd, &mh, flags | MSG_CMSG_CLOEXEC);
        while (r == -EINTR);
        if (r < 0)
                return (int)r;
        in->n = rights_take(&mh, in->fds, RIGHTS_MAX);
        if (r == 0 && in->n == 0 && !(mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
                return -ECONNRESET; /* the end; an empty packet counts as one */
        return judged(in, r, mh.msg_flags);
}

void fds_close(const int *fds, unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                if (fds[i] >= 0)
                        sys_close(fds[i]);
}

void wire_in_close(struct wire_in *in)
{
        assert(in->n <= RIGHTS_MAX);
        fds_close(in->fds, in->n);
        in->n = 0;
}

static int fd_floor(void)
{
        uint64_t limit = sys_nofile();

        if (limit > FD_HIGH + 64)
                return FD_HIGH;
        return limit > 128 ? (int)(limit - 64) : 3;
}

/* The soft limit of numbers, while it is raised. */
struct raised {
        struct rlimit own, more;
};

static atomic_flag raising = ATOMIC_FLAG_INIT;

/* Above a large one the kernel's table would be large as well. */
bool fd_leaves_above(const struct rlimit *rl)
{
        return rl->rlim_cur < rl->rlim_max && rl->rlim_cur <= FD_ABOVE_MAX;
}

bool fd_above(void)
{
        struct rlimit rl;

        return sys_nofile_limit(NULL, &rl) == 0 && fd_leaves_above(&rl);
}

/*
 * Lets us have numbers above all that the program can get, where its soft limit of them is not the
 * hard one. False: not so; or another thread is at it, or was when this process was forked.
 */
static bool limit_raise(struct raised *r)
{
        if (sandbox_forbids(SANDBOX_LIMITS) || atomic_flag_test_and_set(&raising))
                return false;
        if (sys_nofile_limit(NULL, &r->own) == 0 && fd_leaves_above(&r->own)) {
                r->more = (struct rlimit){MIN(r->own.rlim_cur + FD_OURS, r->own.rlim_max),
                                          r->own.rlim_max};
                if (sys_nofile_limit(&r->more, NULL) == 0)
                        return true;
        }
        atomic_flag_clear(&raising);
        return false;
}

static void limit_restore(const struct raised *r)
{
        struct rlimit was;

        sys_nofile_limit(&r->own, &was);
        if (was.rlim_cur != r->more.rlim_cur || was.rlim_max != r->more.rlim_max)
                sys_nofile_limit(&was, NULL); /* the program's own, meanwhile */
        atomic_flag_clear(&raising);
}

int wire_recv_above(int fd, struct wire_in *in, int flags)
{
        struct raised r;
        bool raised = limit_raise(&r);
        int err = wire_recv(fd, in, flags);

        if (raised)
                limit_restore(&r);
        return err;
}

static int dup_above_limit(int fd)
{
        struct raised r;
        int high;

        if (!limit_raise(&r))
                return -EINVAL;
        high = sys_fcntl(fd, F_DUPFD_CLOEXEC, (long)r.own.rlim_cur);
        limit_restore(&r);
        return high;
}

int fd_high_dup(int fd)
{
        int high = dup_above_limit(fd);

        if (high < 0)
                high = sys_fcntl(fd, F_DUPFD_CLOEXEC, fd_floor());
        return high == -EINVAL || high == -EMFILE ? sys_fcntl(fd, F_DUPFD_CLOEXEC, 3) : high;
}

int fd_high(int fd)
{
        int high = fd_high_dup(fd);

        sys_close(fd);
        return high;
}

/* "/proc/self/fd/<n>" without stdio. */
static void fd_path(char path[32], int fd)
{
        static const char base[] = "/proc/self/fd/";
        char digits[12];
        int n = 0;
        size_t at = sizeof base - 1;

        assert(fd >= 0);
        memcpy(path, base, at);
        do
                digits[n++] = (char)('0' + fd % 10);
        while ((fd /= 10) > 0);
        while (n > 0)
                path[at++] = digits[--n];
        path[at] = 0;
}

int fd_link(int fd, char *text, int size)
{
        char path[32];
        int n;

        assert(size > 0);
        fd_path(path, fd);
        n = (int)sys4(SYS_readlinkat, AT_FDCWD, path, text, (size_t)size - 1);
        text[n < 0 ? 0 : n] = 0;
        return n;
}

int (*fd_reopen_denied)(int fd, int flags);

int fd_reopen(int fd, int flags)
{
        char path[32];
        int got;

        fd_path(path, fd);
        /* Its owner's lease (F_SETLEASE) refuses it, and nobody waits. */
        got = sys_open(path, flags | O_CLOEXEC | O_NONBLOCK);
        if (got == -EACCES && fd_reopen_denied)
                got = fd_reopen_denied(fd, flags);
        return got < 0 ? got : fd_high(got);
}
