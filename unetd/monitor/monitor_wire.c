/* See monitor_wire.h. */
#include "unetd/monitor/monitor_wire.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/rights.h"

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
        union rights ctl;
        ssize_t r;

        assert(n <= MON_FDS && len != 0);
        rights_put(&mh, &ctl, fds, n);
        do
                r = sendmsg(sock, &mh, MSG_NOSIGNAL);
        while (r < 0 && errno == EINTR);
        return r < 0 ? -errno : 0;
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
        union rights ctl;
        struct msghdr mh = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = &ctl,
                            .msg_controllen = sizeof ctl};
        ssize_t got;
        unsigned came;
        int r;

        assert(len != 0);
        do
                got = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC);
        while (got < 0 && errno == EINTR);
        came = got < 0 ? 0 : rights_take(&mh, fds, MON_FDS);
        *n = MIN(came, MON_FDS);
        r = judged(got, len, mh.msg_flags, came <= MON_FDS);
        while (r < 0 && *n > 0)
                close(fds[--*n]);
        return r;
}
