/* See rights.h. */
#include "base/rights.h"

#include <string.h>

#include "base/base.h"
#include "base/sys.h"

void rights_put(struct msghdr *m, union rights *r, const int *fds, unsigned n)
{
        assert(n <= RIGHTS_MAX);
        if (n == 0)
                return;
        memset(r, 0, CMSG_SPACE(sizeof *fds * n));
        r->head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof *fds * n),
                                   .cmsg_level = SOL_SOCKET,
                                   .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&r->head), fds, sizeof *fds * n);
        m->msg_control = r;
        m->msg_controllen = CMSG_SPACE(sizeof *fds * n);
}

/* A program that sends may say any length. */
static size_t count_of(const struct msghdr *m, const struct cmsghdr *c)
{
        size_t room = (size_t)((char *)m->msg_control + m->msg_controllen - (char *)CMSG_DATA(c));

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(0))
                return 0;
        return MIN(c->cmsg_len - CMSG_LEN(0), room) / sizeof(int);
}

static int fd_at(const struct cmsghdr *c, size_t i)
{
        int fd;

        memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
        return fd;
}

void rights_each(struct msghdr *m, void (*fn)(int fd))
{
        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c))
                for (size_t i = 0, n = count_of(m, c); i < n; i++)
                        fn(fd_at(c, i));
}

unsigned rights_take(struct msghdr *m, int *fds, unsigned most)
{
        unsigned came = 0;

        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c))
                for (size_t i = 0, n = count_of(m, c); i < n; i++, came++) {
                        if (came < most)
                                fds[came] = fd_at(c, i);
                        else
                                sys1(SYS_close, fd_at(c, i));
                }
        return came;
}
