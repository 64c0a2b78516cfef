/*
 * shim_shared: the calls, and what is seen by one.
 */
#include "tests/shim/shared.h"

char call_data[64];
int null_fd = -1;
static int file_fd = -1;

void calls_begin(void)
{
        file_fd = open("/proc/self/exe", O_RDONLY);
        null_fd = open("/dev/null", O_RDWR);
}

long c_read(int fd)
{
        return read(fd, call_data, 4);
}
long c_readv(int fd)
{
        return readv(fd, &(struct iovec){call_data, 4}, 1);
}
long c_recv(int fd)
{
        return recv(fd, call_data, 4, 0);
}
long c_so_error(int fd)
{
        return without((int)int_opt(fd, SOL_SOCKET, SO_ERROR)) % ENOTCONN;
}
long c_peek(int fd)
{
        return recv(fd, call_data, 4, MSG_PEEK);
}
long c_recvfrom(int fd)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof(sa);

        return recvfrom(fd, call_data, 4, MSG_DONTWAIT, (void *)&sa, &len);
}
long c_recvmsg(int fd)
{
        struct iovec v = {call_data, 4};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

        return recvmsg(fd, &m, 0);
}
long c_recvmmsg(int fd)
{
        struct iovec v = {call_data, 4};
        struct mmsghdr m = {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};

        return recvmmsg(fd, &m, 1, 0, NULL);
}
long c_write(int fd)
{
        return write(fd, "call", 4);
}
long c_writev(int fd)
{
        return writev(fd, &(struct iovec){"call", 4}, 1);
}
long c_send(int fd)
{
        return send(fd, "call", 4, MSG_NOSIGNAL);
}
long c_sendto(int fd)
{
        return sendto(fd, "call", 4, 0, (void *)&now.udp_at, sizeof(now.udp_at));
}
long c_sendmsg(int fd)
{
        struct iovec v = {"call", 4};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

        return sendmsg(fd, &m, 0);
}
long c_sendmsg_to(int fd)
{
        struct iovec v = {"call", 4};
        struct msghdr m = {.msg_name = &now.udp_at,
                           .msg_namelen = sizeof(now.udp_at),
                           .msg_iov = &v,
                           .msg_iovlen = 1};

        return sendmsg(fd, &m, 0);
}
long c_sendmmsg(int fd)
{
        struct iovec v = {"call", 4};
        struct mmsghdr m = {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};

        return sendmmsg(fd, &m, 1, 0);
}
long c_sendfile(int fd)
{
        off_t at = 0;

        return sendfile(fd, file_fd, &at, 4);
}
long c_splice_out(int fd)
{
        int p[2];
        long r;

        pipe(p);
        write(p[1], "call", 4);
        r = splice(p[0], NULL, fd, NULL, 4, SPLICE_F_NONBLOCK);
        close2(p);
        return r;
}
long c_splice_in(int fd)
{
        int p[2];
        long r;

        pipe(p);
        r = splice(fd, NULL, p[1], NULL, 4, SPLICE_F_NONBLOCK);
        close2(p);
        return r;
}
long c_connect(int fd)
{
        return connect(fd, (void *)&now.at, sizeof(now.at));
}
long c_connect_udp(int fd)
{
        return connect(fd, (void *)&now.udp_at, sizeof(now.udp_at));
}
long c_disconnect(int fd)
{
        struct sockaddr sa = {.sa_family = AF_UNSPEC};

        return connect(fd, &sa, sizeof(sa));
}
long c_bind(int fd)
{
        struct sockaddr_in sa = loopback();

        return bind(fd, (void *)&sa, sizeof(sa));
}
long c_listen(int fd)
{
        return listen(fd, 5);
}
long c_accept(int fd)
{
        int r = accept(fd, NULL, NULL), err = errno;

        if (r >= 0)
                close(r);
        errno = err;
        return r < 0 ? r : 1;
}
long c_accept4(int fd)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof(sa);
        int r = accept4(fd, (void *)&sa, &len, SOCK_CLOEXEC), err = errno;

        if (r >= 0) {
                write(r, "call", 4);
                close(r);
        }
        errno = err;
        return r < 0 ? r : 1;
}
long c_shutdown_rd(int fd)
{
        return shutdown(fd, SHUT_RD);
}
long c_shutdown_wr(int fd)
{
        return shutdown(fd, SHUT_WR);
}
long c_shutdown(int fd)
{
        return shutdown(fd, SHUT_RDWR);
}
long c_so_type(int fd)
{
        return int_opt(fd, SOL_SOCKET, SO_TYPE);
}
long c_acceptconn(int fd)
{
        return int_opt(fd, SOL_SOCKET, SO_ACCEPTCONN);
}
long c_nodelay(int fd)
{
        return int_opt(fd, IPPROTO_TCP, TCP_NODELAY);
}
long c_set_nodelay(int fd)
{
        int one = 1, r = setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

        return r < 0 ? r : int_opt(fd, IPPROTO_TCP, TCP_NODELAY);
}
long c_set_times(int fd)
{
        struct timeval tv = {3, 0};

        return setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
}
long c_times(int fd)
{
        struct timeval tv = {0};
        socklen_t len = sizeof(tv);
        int r = getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, &len);

        return r < 0 ? r : tv.tv_sec;
}
/* When the peer acknowledges a FIN is its own business. */
long c_state(int fd)
{
        struct tcp_info i = {0};
        socklen_t len = sizeof(i);
        int r = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &len);

        return r < 0 ? r : i.tcpi_state == TCP_FIN_WAIT1 ? TCP_FIN_WAIT2 : i.tcpi_state;
}
long c_fionread(int fd)
{
        int v = 0, r = ioctl(fd, FIONREAD, &v);

        return r < 0 ? r : v;
}
long c_fionbio(int fd)
{
        int zero = 0;

        return ioctl(fd, FIONBIO, &zero);
}
long c_atmark(int fd)
{
        return sockatmark(fd);
}
long c_getfl(int fd)
{
        return fcntl(fd, F_GETFL);
}
long c_setfl(int fd)
{
        return fcntl(fd, F_SETFL, 0);
}
long c_dup(int fd)
{
        int d = dup(fd);
        long r = send(d, "call", 4, MSG_NOSIGNAL), err = errno;

        close(d);
        errno = (int)err;
        return r;
}
long c_close(int fd)
{
        return close(fd);
}
long c_poll(int fd)
{
        return events_of(fd);
}
long c_select(int fd)
{
        struct timeval tv = {0, 0};
        fd_set r, w;
        int n;

        FD_ZERO(&r);
        FD_ZERO(&w);
        FD_SET(fd, &r);
        FD_SET(fd, &w);
        n = select(fd + 1, &r, &w, NULL, &tv);
        return n * 100 + FD_ISSET(fd, &r) * 10 + FD_ISSET(fd, &w);
}
long c_epoll(int fd)
{
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP, .data.u64 = 7},
                           out = {0};
        int ep = epoll_create1(0), r = epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);

        if (r == 0)
                r = epoll_wait(ep, &out, 1, 0) * 0x10000 +
                    (int)(now.undone ? out.events & ~(uint32_t)EPOLLERR : out.events);
        close(ep);
        return r;
}
long c_dprintf(int fd)
{
        return dprintf(fd, "call");
}
long c_getsockname(int fd)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof(sa);

        return getsockname(fd, (void *)&sa, &len);
}
long c_getpeername(int fd)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof(sa);

        return getpeername(fd, (void *)&sa, &len);
}

// clang-format off
const struct call calls[] = {
#define CALL(name, call, narrow) {name, call, narrow},
#include "tests/shim/shared_calls.def"
#undef CALL
};
// clang-format on

const size_t ncalls = ARRAY_LEN(calls);

int call_named(const char *name)
{
        for (size_t i = 0; i < ncalls; i++)
                if (strcmp(calls[i].name, name) == 0)
                        return (int)i;
        return -1;
}

bool call_closes(int call)
{
        return calls[call].call == c_close;
}

bool call_makes_threads(int call)
{
        return strncmp(calls[call].name, "aio_", 4) == 0 ||
               strncmp(calls[call].name, "lio_", 4) == 0;
}

bool call_undoes(int call)
{
        return calls[call].call == c_disconnect;
}
