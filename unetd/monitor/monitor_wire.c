/* See monitor_wire.h. */
#include "unetd/monitor/monitor_wire.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

union control {
        struct cmsghdr align;
        /* SCM_MAX_FD: what there is no room for the kernel would close in our time. */
        char bytes[CMSG_SPACE(sizeof(int) * 253)];
};

unsigned mon_rings_fds(struct root_rings *r, int *at[MON_FDS])
{
        int *const all[] = {&r->dev.link,         &r->dev.map,        &r->dev.shed,
                            &r->sock.xsk,         &r->sock.mem,       &r->sock.ring,
                            &r->sock.sender,      &r->sock.link,      &r->sock.drops,
                            &r->sock.packet.sock, &r->sock.packet.ns, &r->check.refused};

        static_assert(ARRAY_LEN(all) <= MON_FDS, "they fit");
        memcpy(at, all, sizeof all);
        return ARRAY_LEN(all);
}

unsigned mon_packet_fds(struct pkt_dev *d, int *at[MON_FDS])
{
        at[0] = &d->sock;
        at[1] = &d->link;
        return 2;
}

int mon_send(int sock, const void *msg, size_t len, const int *fds, unsigned n)
{
        struct iovec iov = {.iov_base = (void *)(uintptr_t)msg, .iov_len = len};
        struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
        union control ctl;
        ssize_t r;

        assert(n <= MON_FDS && len != 0);
        if (n > 0) {
                memset(&ctl, 0, CMSG_SPACE(sizeof(int) * n));
                mh.msg_control = &ctl;
                mh.msg_controllen = CMSG_SPACE(sizeof(int) * n);
                CMSG_FIRSTHDR(&mh)->cmsg_level = SOL_SOCKET;
                CMSG_FIRSTHDR(&mh)->cmsg_type = SCM_RIGHTS;
                CMSG_FIRSTHDR(&mh)->cmsg_len = CMSG_LEN(sizeof(int) * n);
                memcpy(CMSG_DATA(CMSG_FIRSTHDR(&mh)), fds, sizeof(int) * n);
        }
        do
                r = sendmsg(sock, &mh, MSG_NOSIGNAL);
        while (r < 0 && errno == EINTR);
        return r < 0 ? -errno : 0;
}

/* Closes those that are too many. False: there were such. */
static bool take_fds(struct msghdr *mh, int fds[MON_FDS], unsigned *n)
{
        bool fit = true;

        for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
                size_t came = c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS
                                      ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int)
                                      : 0;

                for (size_t i = 0; i < came; i++) {
                        int fd;

                        memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
                        if (*n < MON_FDS) {
                                fds[(*n)++] = fd;
                        } else {
                                close(fd);
                                fit = false;
                        }
                }
        }
        return fit;
}

static int judged(ssize_t got, size_t len, int flags, bool fit)
{
        if (got < 0)
                return -errno;
        if (got == 0)
                return -ECONNRESET;
        if ((size_t)got != len || flags & MSG_TRUNC || !fit)
                return -EBADMSG;
        return flags & MSG_CTRUNC ? -EMFILE : 0;
}

int mon_recv(int sock, void *msg, size_t len, int fds[MON_FDS], unsigned *n)
{
        struct iovec iov = {.iov_base = msg, .iov_len = len};
        union control ctl;
        struct msghdr mh = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = &ctl,
                            .msg_controllen = sizeof ctl};
        ssize_t got;
        bool fit;
        int r;

        assert(len != 0);
        *n = 0;
        do
                got = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC);
        while (got < 0 && errno == EINTR);
        fit = got < 0 || take_fds(&mh, fds, n);
        r = judged(got, len, mh.msg_flags, fit);
        while (r < 0 && *n > 0)
                close(fds[--*n]);
        return r;
}
