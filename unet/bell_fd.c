/* By system calls made directly: programs whose calls are ours use it, too. */
#include "unet/bell_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/rights.h"
#include "base/sandbox.h"
#include "base/sys.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71 /* Linux 5.14 */
#endif
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

#define FAMILY_BYTES offsetof(struct sockaddr_un, sun_path)
#define DRAIN_MAX    16
#define NEARLY_FULL \
        8 /* rings that wait: at net.unix.max_dgram_qlen, 10 if not set, more are lost */

int bell_hold(int page)
{
        struct flock all = {.l_type = F_WRLCK};

        return (int)sys3(SYS_fcntl, page, F_OFD_SETLK, &all);
}

bool bell_is_held(int page)
{
        struct flock all = {.l_type = F_RDLCK};

        return sys3(SYS_fcntl, page, F_OFD_GETLK, &all) != 0 || all.l_type != F_UNLCK;
}

static int new_socket(void)
{
        return (int)sys3(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

void bell_refuse_rights(int sock)
{
        int no = 0;

        sys5(SYS_setsockopt, sock, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no);
}

int bell_make(void)
{
        struct sockaddr_un un = {.sun_family = AF_UNIX};
        int fd = new_socket(), err;

        if (fd < 0)
                return fd;
        err = (int)sys3(SYS_bind, fd, &un, FAMILY_BYTES); /* the kernel chooses a name */
        if (err != 0) {
                sys1(SYS_close, fd);
                return err;
        }
        bell_refuse_rights(fd);
        return fd;
}

static int option(int fd, int name)
{
        int v = -1;
        socklen_t len = sizeof v;

        return sys5(SYS_getsockopt, fd, SOL_SOCKET, name, &v, &len) == 0 ? v : -1;
}

static bool is_datagram(int fd)
{
        return option(fd, SO_DOMAIN) == AF_UNIX && option(fd, SO_TYPE) == SOCK_DGRAM;
}

bool bell_is_sock(int fd)
{
        return is_datagram(fd) && (sys3(SYS_fcntl, fd, F_GETFL, 0) & O_NONBLOCK) != 0;
}

/* 0: an older kernel does not say. */
static uint64_t net_of(int fd)
{
        uint64_t cookie = 0;
        socklen_t len = sizeof cookie;

        return sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) == 0 ? cookie
                                                                                         : 0;
}

/* A path would be looked up, in a file system of anybody's. */
static int name_of(int bell, struct sockaddr_un *un, socklen_t *len)
{
        *len = sizeof *un;
        if (!is_datagram(bell) || sys3(SYS_getsockname, bell, un, len) != 0)
                return -EINVAL;
        return *len > FAMILY_BYTES && *len <= sizeof *un && un->sun_path[0] == 0 ? 0 : -EINVAL;
}

bool bell_is_ringer(int fd, int bell)
{
        struct sockaddr_un un, peer;
        socklen_t len, n = sizeof peer;

        return bell_is_sock(fd) && name_of(bell, &un, &len) == 0 &&
               sys3(SYS_getpeername, fd, &peer, &n) == 0 && n == len &&
               memcmp(&peer, &un, len) == 0;
}

/* A name of this network namespace is its holder's alone. Nothing can be sent to who has
 * shut himself. */
static int ringer_connect(int fd, int bell, const struct sockaddr_un *un, socklen_t len)
{
        int err;

        if (net_of(fd) != net_of(bell))
                return -EXDEV;
        err = (int)sys3(SYS_connect, fd, un, len);
        return err != 0 ? err : (int)sys2(SYS_shutdown, fd, SHUT_RD);
}

int bell_ringer(int bell)
{
        struct sockaddr_un un;
        socklen_t len;
        int err = name_of(bell, &un, &len), fd;

        if (err != 0)
                return err;
        fd = new_socket();
        if (fd < 0)
                return fd;
        err = ringer_connect(fd, bell, &un, len);
        if (err == 0)
                return fd;
        sys1(SYS_close, fd);
        return err;
}

/* ---- by name ---- */

#define NAME_DIGITS 5 /* of base 16, which the kernel writes behind a zero */
#define NAME_BYTES  (FAMILY_BYTES + 1 + NAME_DIGITS)

_Atomic int bell_caller = -1;

int bell_caller_new(void)
{
        return new_socket();
}

static int caller(void)
{
        return atomic_load_explicit(&bell_caller, memory_order_relaxed);
}

/* -1: the kernel did not choose it. */
static int number_of(const struct sockaddr_un *un)
{
        int n = 0;

        for (int i = 1; i <= NAME_DIGITS; i++) {
                char c = un->sun_path[i];
                if (c >= '0' && c <= '9')
                        n = n << 4 | (c - '0');
                else if (c >= 'a' && c <= 'f')
                        n = n << 4 | (c - 'a' + 10);
                else
                        return -1;
        }
        return n;
}

static struct sockaddr_un name_at(int named)
{
        struct sockaddr_un un = {.sun_family = AF_UNIX};

        for (int i = NAME_DIGITS; i > 0; i--, named >>= 4)
                un.sun_path[i] = "0123456789abcdef"[named & 15];
        return un;
}

int bell_named(int ringer)
{
        struct sockaddr_un un;
        socklen_t len = sizeof un;
        uint64_t net = caller() >= 0 ? net_of(caller()) : 0;
        int number;

        if (net == 0 || net != net_of(ringer) || sys3(SYS_getpeername, ringer, &un, &len) != 0 ||
            len != NAME_BYTES || un.sun_path[0] != 0)
                return -1;
        number = number_of(&un);
        return number < 0 ? -1 : number | BELL_NAMED;
}

int bell_unnamed(int named)
{
        struct sockaddr_un un = name_at(named);
        int fd = new_socket(), err;

        if (fd < 0)
                return fd;
        err = ringer_connect(fd, caller(), &un, NAME_BYTES);
        if (err == 0)
                return fd;
        sys1(SYS_close, fd);
        return err;
}

/* Connects the caller to the name, which fails if nobody has it. Rings go by sendto(), which names
 * its receiver, so what the caller is connected to does not matter to them. */
bool bell_answers(int named)
{
        struct sockaddr_un un = name_at(named);

        return sys3(SYS_connect, caller(), &un, NAME_BYTES) != -ECONNREFUSED;
}

/* Another, of the same namespace: where this thread may be nobody has any of the names. */
static int caller_like(int from)
{
        int fd = new_socket();

        if (fd < 0 || net_of(fd) == net_of(from))
                return fd;
        sys1(SYS_close, fd);
        return -EXDEV;
}

static long send_to(int from, const struct sockaddr_un *un, socklen_t len, char what)
{
        return sys6(SYS_sendto, from, (long)&what, 1, MSG_DONTWAIT | MSG_NOSIGNAL, (long)un,
                    (long)len);
}

/* By another caller, which takes the place of one that is used up. It cannot while that one's
 * number is above the soft RLIMIT_NOFILE: then the next ring takes another, too. */
static long send_anew(int from, const struct sockaddr_un *un, socklen_t len, char what)
{
        int fd = caller_like(from);
        long r;

        if (fd < 0)
                return -ENOBUFS;
        r = send_to(fd, un, len, what);
        if (r >= 0)
                sys3(SYS_dup3, fd, from, O_CLOEXEC);
        sys1(SYS_close, fd);
        return r;
}

/* A queue that is full is EAGAIN as well: a new one knows. */
long bell_call(int from, const struct sockaddr_un *un, socklen_t len, char what)
{
        long r = send_to(from, un, len, what);

        if (likely(r != -EAGAIN && r != -EPIPE))
                return r;
        return sandbox_forbids(SANDBOX_NAMES) ? -ENOBUFS : send_anew(from, un, len, what);
}

static bool ring_named(int named, char what)
{
        struct sockaddr_un un = name_at(named);
        long r;

        if (sandbox_forbids(SANDBOX_NAMES))
                return false;
        r = bell_call(caller(), &un, NAME_BYTES, what);
        return r >= 0 || r == -EAGAIN || r == -EPIPE || r == -ECONNREFUSED;
}

/* ---- rings ---- */

#define QUIET 'q'

bool bell_ring(int ringer)
{
        char what = ringer & BELL_QUIET ? QUIET : 0;

        if (bell_is_named(ringer))
                return ring_named(ringer, what);
        sys3(SYS_write, ringer & ~BELL_QUIET, &what, 1);
        return true;
}

static bool take_one(int bell, void (*closes)(const int *fds, unsigned n))
{
        union rights ctl;
        char byte;
        struct iovec iov = {&byte, 1};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = &ctl,
                           .msg_controllen = sizeof ctl};
        int fds[RIGHTS_MAX];
        unsigned n;

        if (sys3(SYS_recvmsg, bell, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) < 0)
                return false;
        n = rights_take(&m, fds, RIGHTS_MAX);
        if (n > 0)
                closes(fds, n);
        return true;
}

bool bell_drain_rights(int bell, void (*closes)(const int *fds, unsigned n))
{
        int n = 0;

        while (n < DRAIN_MAX && take_one(bell, closes))
                n++;
        return n > 0;
}

static bool take(int bell, char *what)
{
        return sys6(SYS_recvfrom, bell, (long)what, 1, MSG_DONTWAIT, 0, 0) >= 0;
}

bool bell_take(int bell)
{
        char what;

        return take(bell, &what);
}

bool bell_hear(int bell, bool all)
{
        bool quiet = false;
        int most = all ? DRAIN_MAX : 1, n = 0;
        char what = 0;

        for (; n < most && take(bell, &what); n++)
                quiet |= what == QUIET;
        return quiet || n >= NEARLY_FULL;
}

bool bell_drain(int bell)
{
        int n = 0;

        while (n < DRAIN_MAX && bell_take(bell))
                n++;
        return n > 0;
}

void bell_close(int bell, void (*closes)(const int *fds, unsigned n))
{
        sys2(SYS_shutdown, bell, SHUT_RD);
        while (bell_drain_rights(bell, closes))
                ;
        sys1(SYS_close, bell);
}
