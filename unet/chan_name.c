/* Channels under a name: @unet-chan/<uid>/<name> abstract, so bounded by the network namespace. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "unet/ep.h"

#define NAME_MAX_BYTES 64

static int address(const char *name, struct sockaddr_un *sa, socklen_t *len)
{
        size_t n = strlen(name);
        int k;

        if (n == 0 || n > NAME_MAX_BYTES)
                return -ENAMETOOLONG;
        *sa = (struct sockaddr_un){.sun_family = AF_UNIX};
        k = snprintf(sa->sun_path + 1, sizeof sa->sun_path - 1, "unet-chan/%u/%s",
                     (unsigned)geteuid(), name);
        *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)k);
        return 0;
}

/* Our own user, or root. */
static int check_peer(int sock)
{
        struct ucred cred;
        socklen_t len = sizeof cred;

        if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0)
                return -errno;
        return cred.uid == geteuid() || cred.uid == 0 ? 0 : -EACCES;
}

static int open_socket(int flags)
{
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);

        return fd < 0 ? -errno : fd;
}

int unet_chan_listen(const char *name)
{
        struct sockaddr_un sa;
        socklen_t len;
        int err = address(name, &sa, &len), fd;

        if (err != 0)
                return err;
        fd = open_socket(SOCK_NONBLOCK);
        if (fd < 0)
                return fd;
        if (bind(fd, (struct sockaddr *)&sa, len) == 0 && listen(fd, 64) == 0)
                return fd;
        err = -errno;
        close(fd);
        return err;
}

/* Channel over a socket whose peer must be one of us; the socket is taken or closed. */
static int chan_over_checked(struct unet_ep *ep, int sock, int64_t timeout, uint32_t *chan)
{
        int err = check_peer(sock);

        if (err == 0)
                err = unet_chan_over(ep, sock, timeout, chan);
        if (err != 0)
                close(sock);
        return err;
}

int unet_chan_accept(struct unet_ep *ep, int listen_fd, int64_t timeout, uint32_t *chan)
{
        struct timespec ts = {timeout / NS_PER_S, timeout % NS_PER_S};
        struct pollfd p = {.fd = listen_fd, .events = POLLIN};
        int n = ppoll(&p, 1, timeout < 0 ? NULL : &ts, NULL), sock;

        if (n <= 0)
                return n == 0 ? -ETIMEDOUT : -errno;
        sock = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (sock < 0)
                return -errno;
        return chan_over_checked(ep, sock, timeout, chan);
}

int unet_chan_connect(struct unet_ep *ep, const char *name, int64_t timeout, uint32_t *chan)
{
        struct sockaddr_un sa;
        socklen_t len;
        int err = address(name, &sa, &len), sock;

        if (err != 0)
                return err;
        sock = open_socket(0);
        if (sock < 0)
                return sock;
        if (connect(sock, (struct sockaddr *)&sa, len) == 0)
                return chan_over_checked(ep, sock, timeout, chan);
        err = -errno;
        close(sock);
        return err;
}
