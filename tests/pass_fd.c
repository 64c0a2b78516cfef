#include "tests/pass_fd.h"

#include <string.h>
#include <sys/socket.h>

int pass_fd(int sock, int fd)
{
        _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(fd))] = {0};
        char byte = 0;
        struct iovec v = {&byte, 1};
        struct msghdr m = {.msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = room,
                           .msg_controllen = sizeof(room)};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(fd));
        memcpy(CMSG_DATA(c), &fd, sizeof(fd));
        return sendmsg(sock, &m, 0) == 1 ? 0 : -1;
}

int take_fd(int sock)
{
        _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))];
        char byte;
        struct iovec v = {&byte, 1};
        struct msghdr m = {.msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = room,
                           .msg_controllen = sizeof(room)};
        int fd = -1;

        if (recvmsg(sock, &m, 0) == 1 && CMSG_FIRSTHDR(&m))
                memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
        return fd;
}
