/* By system calls made directly: programs whose calls are ours use it, too. */
#include "unet/bell_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/sys.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71 /* Linux 5.14 */
#endif
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

#define FAMILY_BYTES offsetof(struct sockaddr_un, sun_path)
#define RIGHTS_MAX   253 /* SCM_MAX_FD */
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

#define QUIET 'q'

void bell_ring(int ringer)
{
        char what = ringer & BELL_QUIET ? QUIET : 0;

        sys3(SYS_write, ringer & ~BELL_QUIET, &what, 1);
}

static bool take_one(int bell, void (*closes)(const int *fds, unsigned n))
{
        char byte, ctl[CMSG_SPACE(RIGHTS_MAX * sizeof(int))];
        struct iovec iov = {&byte, 1};
        struct msghdr m = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof ctl};
        int fds[RIGHTS_MAX];

        if (sys3(SYS_recvmsg, bell, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) < 0)
                return false;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c))
                if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
                        size_t bytes = MIN(c->cmsg_len - CMSG_LEN(0), sizeof fds);
                        memcpy(fds, CMSG_DATA(c), bytes);
                        closes(fds, (unsigned)(bytes / sizeof(int)));
                }
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
