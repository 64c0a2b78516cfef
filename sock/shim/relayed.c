/*
 * What a program asks about a connection that a relay carries. Bytes, readiness and flags are the
 * socket pair's. Names are those of the connection. Options of IP and TCP are those of a kernel
 * socket that is there for nothing else: what is set there can be read again, and does nothing.
 */
#include "sock/shim/decide.h"
#include "sock/shim/opts.h"
#include "sock/shim/relay.h"
#include "sock/usock_option.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include "base/sandbox.h"

#define PATIENCE_MS 1000 /* a process that ends waits for the relay to have what it wrote */

static int options = -1; /* that kernel socket */

/* What programs set on a connection itself. */
static const struct {
        uint8_t level, name;
} kept[] = {{IPPROTO_TCP, TCP_NODELAY},      {IPPROTO_TCP, TCP_KEEPIDLE},
            {IPPROTO_TCP, TCP_KEEPINTVL},    {IPPROTO_TCP, TCP_KEEPCNT},
            {IPPROTO_TCP, TCP_USER_TIMEOUT}, {IPPROTO_IP, IP_TOS}};

void relayed_start(const struct file *f)
{
        if (options >= 0)
                return;
        options = shim_high_fd((int)sys3(SYS_socket, f->family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (options < 0)
                return;
        opts_replay_kernel(f, options);
        for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
                int v = 0;
                socklen_t len = sizeof(v);

                if (usock_getsockopt(f->us, kept[i].level, kept[i].name, &v, &len) == 0)
                        sys5(SYS_setsockopt, options, kept[i].level, kept[i].name, &v, len);
        }
}

bool relayed_owns(int fd)
{
        return fd == options;
}

struct relayed *relayed_of(int fd)
{
        struct file *f = file_peek(fd);

        return likely(!f) || f->mode != MODE_KERNEL || usock_tls.inside ? NULL : f->relayed;
}

/* ---- calls ---- */

int relayed_name(const struct sockaddr_storage *name, socklen_t n, struct sockaddr *sa,
                 socklen_t *len)
{
        ssize_t r = n == 0 ? -ENOTCONN : sock_give_name(name, n, sa, len);

        result_again(&r);
        return (int)r;
}

int relayed_setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
        return REAL(setsockopt)(level == SOL_SOCKET || options < 0 ? fd : options, level, name, val,
                                len);
}

static int identity(const struct file *f, int name)
{
        switch (name) {
        case SO_DOMAIN:
                return f->family;
        case SO_PROTOCOL:
                return IPPROTO_TCP;
        default:
                return -1;
        }
}

/* The relay told why. */
static int error_of(struct relayed *r)
{
        return likely(atomic_load_explicit(&r->err, memory_order_relaxed) == 0)
                       ? 0
                       : atomic_exchange(&r->err, 0);
}

int relayed_getsockopt(int fd, int level, int name, void *val, socklen_t *len)
{
        struct file *f = file_peek(fd);
        int v = level == SOL_SOCKET ? identity(f, name) : -1;
        ssize_t r;

        if (level != SOL_SOCKET && options >= 0)
                return REAL(getsockopt)(options, level, name, val, len);
        if (level == SOL_SOCKET && name == SO_ERROR)
                v = error_of(f->relayed);
        if (v <= 0)
                return REAL(getsockopt)(fd, level, name, val, len);
        r = opt_give_int(val, len, v);
        result_again(&r);
        return (int)r;
}

int relayed_shutdown(int fd, int how)
{
        if (how == SHUT_RDWR)
                atomic_store(&file_peek(fd)->relayed->shut, true);
        return REAL(shutdown)(fd, how);
}

ssize_t relayed_read(int fd, ssize_t r)
{
        struct relayed *c = r == 0 ? relayed_of(fd) : NULL;
        int err = c ? error_of(c) : 0;

        if (err == 0)
                return r;
        errno = err;
        return -1;
}

/* ---- the end ---- */

/* While the relay makes an offer nobody knows whether that is among what is left. False: it did not
 * come to an end, as of a relay that is stopped. */
static bool count_left(int fd, struct relayed *r)
{
        const struct timespec pause = {.tv_nsec = NS_PER_MS / 10};

        for (int i = 0; i < PATIENCE_MS * 10; i++) {
                uint32_t offers = atomic_load(&r->offers);
                int left = 0;

                if (sys3(SYS_ioctl, fd, SIOCINQ, &left) != 0)
                        return false;
                if (offers % 2 == 0 && atomic_load(&r->offers) == offers) {
                        atomic_store(&r->left_of, offers);
                        atomic_store(&r->left, left);
                        return true;
                }
                sys2(SYS_nanosleep, &pause, NULL);
        }
        return false;
}

/* What is left unread is for those who share the connection: the kernel only says that there
 * is something. */
void relayed_close(int fd, const struct file *f)
{
        if (likely(!f->relayed) || f->nfds > 1 || sandbox_forbidden != 0)
                return;
        if (!count_left(fd, f->relayed))
                atomic_store(&f->relayed->left, RELAYED_UNKNOWN);
}

static bool is_written(int fd)
{
        int left = 0;

        return sys3(SYS_ioctl, fd, SIOCOUTQ, &left) < 0 || left == 0;
}

static void await(int fd, struct file *f, void *arg)
{
        const struct timespec ms = {.tv_nsec = NS_PER_MS};
        int *patience = arg;

        relayed_close(fd, f);
        while (f->relayed && !is_written(fd) && (*patience)-- > 0)
                sys2(SYS_nanosleep, &ms, NULL);
}

/* A PID namespace may end with this process, and the relay with that. */
void relayed_exit(void)
{
        int patience = PATIENCE_MS;

        if (options >= 0 && sandbox_forbidden == 0)
                file_each(await, &patience);
}
