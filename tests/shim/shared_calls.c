/*
 * shim_shared: the calls, and what is seen by one.
 */
#include "tests/shim/shared.h"

static char data[64];
static int null_fd = -1, file_fd = -1;

void calls_begin(void)
{
        file_fd = open("/proc/self/exe", O_RDONLY);
        null_fd = open("/dev/null", O_RDWR);
}

static long c_read(int fd)
{
        return read(fd, data, 4);
}
static long c_readv(int fd)
{
        return readv(fd, &(struct iovec){data, 4}, 1);
}
static long c_recv(int fd)
{
        return recv(fd, data, 4, 0);
}
static long c_so_error(int fd)
{
        return without((int)int_opt(fd, SOL_SOCKET, SO_ERROR)) % ENOTCONN;
}
static long c_peek(int fd)
{
        return recv(fd, data, 4, MSG_PEEK);
}
static long c_recvfrom(int fd)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof(sa);

        return recvfrom(fd, data, 4, MSG_DONTWAIT, (void *)&sa, &len);
}
static long c_recvmsg(int fd)
{
        struct iovec v = {data, 4};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

        return recvmsg(fd, &m, 0);
}
static long c_recvmmsg(int fd)
{
        struct iovec v = {data, 4};
        struct mmsghdr m = {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};

        return recvmmsg(fd, &m, 1, 0, NULL);
}
static long c_write(int fd)
{
        return write(fd, "call", 4);
}
static long c_writev(int fd)
{
        return writev(fd, &(struct iovec){"call", 4}, 1);
}
static long c_send(int fd)
{
        return send(fd, "call", 4, MSG_NOSIGNAL);
}
static long c_sendto(int fd)
{
        return sendto(fd, "call", 4, 0, (void *)&now.udp_at, sizeof(now.udp_at));
}
static long c_sendmsg(int fd)
{
        struct iovec v = {"call", 4};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

        return sendmsg(fd, &m, 0);
}
static long c_sendmsg_to(int fd)
{
        struct iovec v = {"call", 4};
        struct msghdr m = {.msg_name = &now.udp_at,
                           .msg_namelen = sizeof(now.udp_at),
                           .msg_iov = &v,
                           .msg_iovlen = 1};

        return sendmsg(fd, &m, 0);
}
static long c_sendmmsg(int fd)
{
        struct iovec v = {"call", 4};
        struct mmsghdr m = {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};

        return sendmmsg(fd, &m, 1, 0);
}
static long c_sendfile(int fd)
{
        off_t at = 0;

        return sendfile(fd, file_fd, &at, 4);
}
static long c_splice_out(int fd)
{
        int p[2];
        long r;

        pipe(p);
        write(p[1], "call", 4);
        r = splice(p[0], NULL, fd, NULL, 4, SPLICE_F_NONBLOCK);
        close2(p);
        return r;
}
static long c_splice_in(int fd)
{
        int p[2];
        long r;

        pipe(p);
        r = splice(fd, NULL, p[1], NULL, 4, SPLICE_F_NONBLOCK);
        close2(p);
        return r;
}
static long c_connect(int fd)
{
        return connect(fd, (void *)&now.at, sizeof(now.at));
}
static long c_connect_udp(int fd)
{
        return connect(fd, (void *)&now.udp_at, sizeof(now.udp_at));
}
static long c_disconnect(int fd)
{
        struct sockaddr sa = {.sa_family = AF_UNSPEC};

        return connect(fd, &sa, sizeof(sa));
}
static long c_bind(int fd)
{
        struct sockaddr_in sa = loopback();

        return bind(fd, (void *)&sa, sizeof(sa));
}
static long c_listen(int fd)
{
        return listen(fd, 5);
}
static long c_accept(int fd)
{
        int r = accept(fd, NULL, NULL), err = errno;

        if (r >= 0)
                close(r);
        errno = err;
        return r < 0 ? r : 1;
}
static long c_accept4(int fd)
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
static long c_shutdown_rd(int fd)
{
        return shutdown(fd, SHUT_RD);
}
static long c_shutdown_wr(int fd)
{
        return shutdown(fd, SHUT_WR);
}
static long c_shutdown(int fd)
{
        return shutdown(fd, SHUT_RDWR);
}
static long c_so_type(int fd)
{
        return int_opt(fd, SOL_SOCKET, SO_TYPE);
}
static long c_acceptconn(int fd)
{
        return int_opt(fd, SOL_SOCKET, SO_ACCEPTCONN);
}
static long c_nodelay(int fd)
{
        return int_opt(fd, IPPROTO_TCP, TCP_NODELAY);
}
static long c_set_nodelay(int fd)
{
        int one = 1, r = setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

        return r < 0 ? r : int_opt(fd, IPPROTO_TCP, TCP_NODELAY);
}
static long c_set_times(int fd)
{
        struct timeval tv = {3, 0};

        return setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
}
static long c_times(int fd)
{
        struct timeval tv = {0};
        socklen_t len = sizeof(tv);
        int r = getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, &len);

        return r < 0 ? r : tv.tv_sec;
}
static long c_state(int fd)
{
        struct tcp_info i = {0};
        socklen_t len = sizeof(i);
        int r = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &len);

        return r < 0 ? r : i.tcpi_state;
}
static long c_fionread(int fd)
{
        int v = 0, r = ioctl(fd, FIONREAD, &v);

        return r < 0 ? r : v;
}
static long c_fionbio(int fd)
{
        int zero = 0;

        return ioctl(fd, FIONBIO, &zero);
}
static long c_atmark(int fd)
{
        return sockatmark(fd);
}
static long c_getfl(int fd)
{
        return fcntl(fd, F_GETFL);
}
static long c_setfl(int fd)
{
        return fcntl(fd, F_SETFL, 0);
}
static long c_dup(int fd)
{
        int d = dup(fd);
        long r = send(d, "call", 4, MSG_NOSIGNAL), err = errno;

        close(d);
        errno = (int)err;
        return r;
}
static long c_close(int fd)
{
        return close(fd);
}
static long c_poll(int fd)
{
        return events_of(fd);
}
static long c_select(int fd)
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
static long c_epoll(int fd)
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
static long c_dprintf(int fd)
{
        return dprintf(fd, "call");
}
static long c_getsockname(int fd)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof(sa);

        return getsockname(fd, (void *)&sa, &len);
}
static long c_getpeername(int fd)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof(sa);

        return getpeername(fd, (void *)&sa, &len);
}

/* ---- calls that are narrow: after a few others only ---- */

static const struct timespec no_time;

static long value(int fd, int level, int name, int v)
{
        return setsockopt(fd, level, name, &v, sizeof(v));
}
/* Set, and what is there then. */
static long set_get(int fd, int level, int name, int v)
{
        long r = value(fd, level, name, v);

        return r < 0 ? r : int_opt(fd, level, name);
}
/* The number is not told: it is of the process. */
static long made(int fd)
{
        int err = errno;

        if (fd >= 0)
                close(fd);
        errno = err;
        return fd < 0 ? fd : 0;
}

static long c_dread(int fd)
{
        return __read(fd, data, 4);
}
static long c_read_chk(int fd)
{
        return __read_chk(fd, data, 4, sizeof(data));
}
static long c_recv_chk(int fd)
{
        return __recv_chk(fd, data, 4, sizeof(data), MSG_DONTWAIT);
}
static long c_recvfrom_chk(int fd)
{
        return __recvfrom_chk(fd, data, 4, sizeof(data), 0, NULL, NULL);
}
static long c_read_nothing(int fd)
{
        return read(fd, data, 0);
}
static long c_recv_fault(int fd)
{
        return recv(fd, (void *)16, 4, MSG_DONTWAIT);
}
static long c_recv_oob(int fd)
{
        return recv(fd, data, 4, MSG_OOB);
}
static long c_recv_all(int fd)
{
        return recv(fd, data, 9, MSG_WAITALL);
}
static long c_recv_trunc(int fd)
{
        return recv(fd, data, 4, MSG_TRUNC);
}
static long c_recv_errqueue(int fd)
{
        return recv(fd, data, 4, MSG_ERRQUEUE);
}
static long c_recvmsg_flags(int fd)
{
        char control[64];
        struct sockaddr_in from = {0};
        struct iovec v = {data, 4};
        struct msghdr m = {.msg_name = &from,
                           .msg_namelen = sizeof(from),
                           .msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof(control)};
        long r = recvmsg(fd, &m, MSG_DONTWAIT);

        return r < 0 ? r : r + 100 * m.msg_flags + 100000 * (long)m.msg_controllen;
}
static long c_preadv2(int fd)
{
        return preadv2(fd, &(struct iovec){data, 4}, 1, -1, 0);
}
static long c_preadv2_nowait(int fd)
{
        return preadv2(fd, &(struct iovec){data, 4}, 1, -1, RWF_NOWAIT);
}
static long c_pwritev2(int fd)
{
        return pwritev2(fd, &(struct iovec){"call", 4}, 1, -1, 0);
}
static long c_pread(int fd)
{
        return pread(fd, data, 4, 0);
}
static long c_pwrite(int fd)
{
        return pwrite(fd, "call", 4, 0);
}
static long c_preadv(int fd)
{
        return preadv(fd, &(struct iovec){data, 4}, 1, 0);
}
static long c_lseek(int fd)
{
        return lseek(fd, 0, SEEK_CUR);
}
static long c_fsync(int fd)
{
        return fsync(fd);
}
static long c_ftruncate(int fd)
{
        return ftruncate(fd, 0);
}
static long c_fstat(int fd)
{
        struct stat st;
        int r = fstat(fd, &st);

        return r < 0 ? r : (long)st.st_mode;
}
static long c_isatty(int fd)
{
        return isatty(fd) ? 1 : -1;
}
static long c_dwrite(int fd)
{
        return __write(fd, "call", 4);
}
static long c_dsend(int fd)
{
        return __send(fd, "call", 4, 0);
}
static long c_write_nothing(int fd)
{
        return write(fd, "", 0);
}
static long c_send_fault(int fd)
{
        return send(fd, (void *)16, 4, MSG_DONTWAIT);
}
static long c_send_oob(int fd)
{
        return send(fd, "call", 4, MSG_OOB);
}
static long c_send_more(int fd)
{
        long r = send(fd, "ca", 2, MSG_MORE);

        return r < 0 ? r : send(fd, "ll", 2, 0);
}
static long c_sendto_bad(int fd)
{
        return sendto(fd, "call", 4, 0, (void *)&now.udp_at, 3);
}
static long c_sendto_family(int fd)
{
        struct sockaddr_un un = {.sun_family = AF_UNIX};

        return sendto(fd, "call", 4, 0, (void *)&un, sizeof(un));
}
static long c_sendmmsg_to(int fd)
{
        struct iovec v = {"call", 4};
        struct mmsghdr m[2];

        for (int i = 0; i < 2; i++)
                m[i] = (struct mmsghdr){.msg_hdr = {.msg_name = &now.udp_at,
                                                    .msg_namelen = sizeof(now.udp_at),
                                                    .msg_iov = &v,
                                                    .msg_iovlen = 1}};
        return sendmmsg(fd, m, 2, 0);
}
static long c_sendmsg_tos(int fd)
{
        _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec v = {"call", 4};
        struct msghdr m = {.msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = room,
                           .msg_controllen = sizeof(room)};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);

        c->cmsg_level = IPPROTO_IP;
        c->cmsg_type = IP_TOS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        return sendmsg(fd, &m, 0);
}
static long c_sendfile_from(int fd)
{
        return sendfile(null_fd, fd, NULL, 4);
}
static long c_fread(int fd)
{
        FILE *f = fdopen(dup(fd), "r");
        long r;

        setvbuf(f, NULL, _IONBF, 0);
        r = (long)fread(data, 1, 4, f);
        r = r * 10 + (ferror(f) != 0) * 2 + (feof(f) != 0);
        fclose(f);
        return r;
}
static long c_fwrite(int fd)
{
        FILE *f = fdopen(dup(fd), "w");
        long r = (long)fwrite("call", 1, 4, f), err;

        r = fflush(f) == 0 ? r : -1;
        err = errno;
        fclose(f);
        errno = (int)err;
        return r;
}
static long c_dconnect(int fd)
{
        return __connect(fd, (void *)&now.at, sizeof(now.at));
}
static long c_connect_short(int fd)
{
        return connect(fd, (void *)&now.at, 3);
}
static long c_connect_family(int fd)
{
        struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_port = now.at.sin_port};

        return connect(fd, (void *)&sa, sizeof(sa));
}
static long c_connect_fault(int fd)
{
        return connect(fd, (void *)16, sizeof(now.at));
}
static long c_bind_taken(int fd)
{
        return bind(fd, (void *)(now.datagrams ? &now.udp_at : &now.at), sizeof(now.at));
}
static long c_bind_foreign(int fd)
{
        struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000201)};

        return bind(fd, (void *)&sa, sizeof(sa));
}
static long c_bind_short(int fd)
{
        return bind(fd, (void *)&now.at, 5);
}
static long c_listen_none(int fd)
{
        return listen(fd, 0);
}
static long c_accept_soft(int fd)
{
        int r = accept4(fd, NULL, NULL, SOCK_NONBLOCK);
        long flags = r < 0 ? r : fcntl(r, F_GETFL);

        made(r);
        return flags;
}
static long c_accept_bad(int fd)
{
        return made(accept4(fd, NULL, NULL, 1));
}
static long c_accept_fault(int fd)
{
        socklen_t len = 16;

        return made(accept(fd, (void *)16, &len));
}
static long c_shutdown_bad(int fd)
{
        return shutdown(fd, 7);
}
static long c_getsockname_short(int fd)
{
        struct sockaddr_in sa;
        socklen_t len = 3;
        int r = getsockname(fd, (void *)&sa, &len);

        return r < 0 ? r : (long)len;
}
static long c_getsockname_fault(int fd)
{
        return getsockname(fd, (void *)16, NULL);
}
static long c_domain(int fd)
{
        return int_opt(fd, SOL_SOCKET, SO_DOMAIN);
}
static long c_protocol(int fd)
{
        return int_opt(fd, SOL_SOCKET, SO_PROTOCOL);
}
static long c_lowat(int fd)
{
        return set_get(fd, SOL_SOCKET, SO_RCVLOWAT, 20);
}
static long c_reuseaddr(int fd)
{
        return set_get(fd, SOL_SOCKET, SO_REUSEADDR, 1);
}
static long c_reuseport(int fd)
{
        return set_get(fd, SOL_SOCKET, SO_REUSEPORT, 1);
}
static long c_keepalive(int fd)
{
        return set_get(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}
static long c_broadcast(int fd)
{
        return set_get(fd, SOL_SOCKET, SO_BROADCAST, 1);
}
static long c_oobinline(int fd)
{
        return set_get(fd, SOL_SOCKET, SO_OOBINLINE, 1);
}
static long c_priority(int fd)
{
        return set_get(fd, SOL_SOCKET, SO_PRIORITY, 3);
}
static long c_timestamp(int fd)
{
        return set_get(fd, SOL_SOCKET, SO_TIMESTAMP, 1);
}
static long c_linger(int fd)
{
        const struct linger l = {1, 0};

        return setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
}
/* The peer is reset by whoever closes it last, not by this. */
static long c_linger_dup(int fd)
{
        int d = dup(fd);
        long r = c_linger(d);

        close(d);
        return r;
}
static long c_tos(int fd)
{
        return set_get(fd, IPPROTO_IP, IP_TOS, 0x10);
}
static long c_ttl(int fd)
{
        return set_get(fd, IPPROTO_IP, IP_TTL, 7);
}
static long c_recverr(int fd)
{
        return set_get(fd, IPPROTO_IP, IP_RECVERR, 1);
}
static long c_cork(int fd)
{
        return set_get(fd, IPPROTO_TCP, TCP_CORK, 1);
}
static long c_user_timeout(int fd)
{
        return set_get(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
}
static long c_quickack(int fd)
{
        return set_get(fd, IPPROTO_TCP, TCP_QUICKACK, 1);
}
static long c_notsent(int fd)
{
        return set_get(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 4096);
}
static long c_bad_option(int fd)
{
        return value(fd, SOL_SOCKET, 4711, 1);
}
static long c_bad_level(int fd)
{
        return value(fd, 4711, 1, 1);
}
static long c_outq(int fd)
{
        int v = 0, r = ioctl(fd, SIOCOUTQ, &v);

        return r < 0 ? r : 0; /* what is acknowledged by now */
}
static long c_atmark_ioctl(int fd)
{
        int v = 0, r = ioctl(fd, SIOCATMARK, &v);

        return r < 0 ? r : v;
}
static long c_stamp(int fd)
{
        struct timeval tv;

        return ioctl(fd, SIOCGSTAMP, &tv);
}
static long c_bad_ioctl(int fd)
{
        return ioctl(fd, 0x4711, NULL);
}
static long c_fioclex(int fd)
{
        int r = ioctl(fd, FIOCLEX);

        return r < 0 ? r : fcntl(fd, F_GETFD);
}
static long c_fionbio_on(int fd)
{
        int one = 1;

        return ioctl(fd, FIONBIO, &one);
}
static long c_setown(int fd)
{
        int r = fcntl(fd, F_SETOWN, getpid());

        return r < 0 ? r : fcntl(fd, F_GETOWN) == getpid();
}
static long c_setfd(int fd)
{
        int r = fcntl(fd, F_SETFD, FD_CLOEXEC);

        return r < 0 ? r : fcntl(fd, F_GETFD);
}
static long c_setfl_on(int fd)
{
        return fcntl(fd, F_SETFL, O_NONBLOCK);
}
static long c_bad_fcntl(int fd)
{
        return fcntl(fd, 4711, 0);
}
static long with(int d)
{
        long r = d < 0 ? d : send(d, "call", 4, MSG_NOSIGNAL);

        made(d);
        return r;
}
static long c_dupfd(int fd)
{
        return with(fcntl(fd, F_DUPFD_CLOEXEC, 50));
}
static long c_dup2(int fd)
{
        return with(dup2(fd, 60));
}
static long c_dup3(int fd)
{
        return with(dup3(fd, 61, O_CLOEXEC));
}
static long c_dup2_over(int fd)
{
        int s = socket(AF_INET, SOCK_STREAM, 0);

        connect(s, (void *)&now.at, sizeof(now.at));
        return with(dup2(fd, s));
}
static long c_dup2_itself(int fd)
{
        return dup2(fd, fd) == fd;
}
static long c_close_range(int fd)
{
        int d = fcntl(fd, F_DUPFD, 70);
        long r = close_range((unsigned)d, (unsigned)d, 0);

        return r < 0 ? r : with(dup(fd));
}
static long c_ppoll(int fd)
{
        struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0};
        int r = ppoll(&p, 1, &no_time, NULL);

        return r < 0 ? r : now.undone && !now.datagrams ? p.revents & ~POLLERR : p.revents;
}
static long c_poll_none(int fd)
{
        struct pollfd p = {fd, 0, 0};
        int r = poll(&p, 1, 0);

        return r < 0 ? r : now.undone && !now.datagrams ? p.revents & ~POLLERR : p.revents;
}
static long c_pselect(int fd)
{
        fd_set r, w, x;
        int n;

        FD_ZERO(&r);
        FD_SET(fd, &r);
        w = x = r;
        n = pselect(fd + 1, &r, &w, &x, &no_time, NULL);
        return now.undone ? 0
                          : n * 1000 + FD_ISSET(fd, &r) * 100 + FD_ISSET(fd, &w) * 10 +
                                    FD_ISSET(fd, &x);
}
static long in_set(int fd, uint32_t events)
{
        struct epoll_event ev = {.events = events, .data.u64 = 7}, out[2] = {{0}};
        int ep = epoll_create1(0), r = epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), n[2];
        int err = errno;

        if (r == 0) {
                n[0] = epoll_pwait(ep, out, 1, 0, NULL);
                n[1] = epoll_pwait2(ep, out + 1, 1, &no_time, NULL);
                r = now.undone ? 0
                               : (n[0] * 2 + n[1]) * 0x100000 + (int)(out[0].events & 0xffff) +
                                         (int)(out[1].events & 0xffff);
        }
        close(ep);
        errno = err;
        return r;
}
static long c_edge(int fd)
{
        return in_set(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET);
}
static long c_once(int fd)
{
        return in_set(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLONESHOT);
}
static long c_exclusive(int fd)
{
        return in_set(fd, EPOLLIN | EPOLLOUT | EPOLLEXCLUSIVE);
}
static long c_epoll_none(int fd)
{
        return in_set(fd, 0);
}
static long c_epoll_mod(int fd)
{
        struct epoll_event ev = {.events = EPOLLIN};
        int ep = epoll_create1(0);
        long r = epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev);

        made(ep);
        return r;
}
static long c_epoll_del(int fd)
{
        int ep = epoll_create1(0);
        long r = epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL);

        made(ep);
        return r;
}
static long c_epoll_twice(int fd)
{
        struct epoll_event ev = {.events = EPOLLIN};
        int ep = epoll_create1(0), d = dup(fd);
        long r = epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);

        r = r < 0 ? r : epoll_ctl(ep, EPOLL_CTL_ADD, d, &ev);
        r = r < 0 ? r : epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
        close(d);
        made(ep);
        return r;
}
static long c_fork(int fd)
{
        int status;
        pid_t pid = fork();

        if (pid == 0)
                _exit(send(fd, "call", 4, MSG_NOSIGNAL) < 0 ? errno : 200);
        waitpid(pid, &status, 0);
        return without(WEXITSTATUS(status));
}
static void *send_it(void *fd)
{
        return (void *)(send(*(int *)fd, "call", 4, MSG_NOSIGNAL) < 0 ? (long)errno : 200L);
}
static long c_thread(int fd)
{
        pthread_t t;
        void *r;

        pthread_create(&t, NULL, send_it, &fd);
        pthread_join(t, &r);
        return without((int)(long)r);
}
static long c_pass_on(int fd)
{
        _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec v = {data, 1};
        struct msghdr m = {.msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = room,
                           .msg_controllen = sizeof(room)};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        int s[2], d = -1;

        socketpair(AF_UNIX, SOCK_STREAM, 0, s);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(fd));
        memcpy(CMSG_DATA(c), &fd, sizeof(fd));
        if (sendmsg(s[0], &m, 0) == 1 && recvmsg(s[1], &m, 0) == 1 && CMSG_FIRSTHDR(&m))
                memcpy(&d, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(d));
        close2(s);
        return with(d);
}

const struct call calls[] = {
        {"read", c_read, false},
        {"readv", c_readv, false},
        {"recv", c_recv, false},
        {"peek", c_peek, false},
        {"recvfrom", c_recvfrom, false},
        {"recvmsg", c_recvmsg, false},
        {"recvmmsg", c_recvmmsg, false},
        {"write", c_write, false},
        {"writev", c_writev, false},
        {"send", c_send, false},
        {"sendto", c_sendto, false},
        {"sendmsg", c_sendmsg, false},
        {"sendmsg-to", c_sendmsg_to, false},
        {"sendmmsg", c_sendmmsg, false},
        {"sendfile", c_sendfile, false},
        {"splice-to", c_splice_out, false},
        {"splice-from", c_splice_in, false},
        {"connect", c_connect, false},
        {"connect-udp", c_connect_udp, false},
        {"disconnect", c_disconnect, false},
        {"bind", c_bind, false},
        {"listen", c_listen, false},
        {"accept", c_accept, false},
        {"accept4", c_accept4, false},
        {"shutdown-rd", c_shutdown_rd, false},
        {"shutdown-wr", c_shutdown_wr, false},
        {"shutdown-rdwr", c_shutdown, false},
        {"SO_ERROR", c_so_error, false},
        {"SO_TYPE", c_so_type, false},
        {"SO_ACCEPTCONN", c_acceptconn, false},
        {"TCP_NODELAY", c_nodelay, false},
        {"set-TCP_NODELAY", c_set_nodelay, false},
        {"set-SO_RCVTIMEO", c_set_times, false},
        {"SO_RCVTIMEO", c_times, false},
        {"TCP_INFO", c_state, false},
        {"FIONREAD", c_fionread, false},
        {"FIONBIO", c_fionbio, false},
        {"sockatmark", c_atmark, false},
        {"F_GETFL", c_getfl, false},
        {"F_SETFL", c_setfl, false},
        {"dup", c_dup, false},
        {"close", c_close, false},
        {"poll", c_poll, false},
        {"select", c_select, false},
        {"epoll", c_epoll, false},
        {"dprintf", c_dprintf, false},
        {"getsockname", c_getsockname, false},
        {"getpeername", c_getpeername, false},
        {"dread", c_dread, true},
        {"read-chk", c_read_chk, true},
        {"recv-chk", c_recv_chk, true},
        {"recvfrom-chk", c_recvfrom_chk, true},
        {"read-nothing", c_read_nothing, true},
        {"recv-fault", c_recv_fault, true},
        {"recv-oob", c_recv_oob, true},
        {"recv-all", c_recv_all, true},
        {"recv-trunc", c_recv_trunc, true},
        {"recv-errqueue", c_recv_errqueue, true},
        {"recvmsg-flags", c_recvmsg_flags, true},
        {"preadv2", c_preadv2, true},
        {"preadv2-nowait", c_preadv2_nowait, true},
        {"pwritev2", c_pwritev2, true},
        {"pread", c_pread, true},
        {"pwrite", c_pwrite, true},
        {"preadv", c_preadv, true},
        {"lseek", c_lseek, true},
        {"fsync", c_fsync, true},
        {"ftruncate", c_ftruncate, true},
        {"fstat", c_fstat, true},
        {"isatty", c_isatty, true},
        {"dwrite", c_dwrite, true},
        {"dsend", c_dsend, true},
        {"write-nothing", c_write_nothing, true},
        {"send-fault", c_send_fault, true},
        {"send-oob", c_send_oob, true},
        {"send-more", c_send_more, true},
        {"sendto-bad", c_sendto_bad, true},
        {"sendto-family", c_sendto_family, true},
        {"sendmmsg-to", c_sendmmsg_to, true},
        {"sendmsg-tos", c_sendmsg_tos, true},
        {"sendfile-from", c_sendfile_from, true},
        {"fread", c_fread, true},
        {"fwrite", c_fwrite, true},
        {"dconnect", c_dconnect, true},
        {"connect-short", c_connect_short, true},
        {"connect-family", c_connect_family, true},
        {"connect-fault", c_connect_fault, true},
        {"bind-taken", c_bind_taken, true},
        {"bind-foreign", c_bind_foreign, true},
        {"bind-short", c_bind_short, true},
        {"listen-none", c_listen_none, true},
        {"accept-soft", c_accept_soft, true},
        {"accept-bad", c_accept_bad, true},
        {"accept-fault", c_accept_fault, true},
        {"shutdown-bad", c_shutdown_bad, true},
        {"getsockname-short", c_getsockname_short, true},
        {"getsockname-fault", c_getsockname_fault, true},
        {"domain", c_domain, true},
        {"protocol", c_protocol, true},
        {"lowat", c_lowat, true},
        {"reuseaddr", c_reuseaddr, true},
        {"reuseport", c_reuseport, true},
        {"keepalive", c_keepalive, true},
        {"broadcast", c_broadcast, true},
        {"oobinline", c_oobinline, true},
        {"priority", c_priority, true},
        {"timestamp", c_timestamp, true},
        {"linger", c_linger, true},
        {"linger-dup", c_linger_dup, true},
        {"tos", c_tos, true},
        {"ttl", c_ttl, true},
        {"recverr", c_recverr, true},
        {"cork", c_cork, true},
        {"user-timeout", c_user_timeout, true},
        {"quickack", c_quickack, true},
        {"notsent", c_notsent, true},
        {"bad-option", c_bad_option, true},
        {"bad-level", c_bad_level, true},
        {"outq", c_outq, true},
        {"atmark-ioctl", c_atmark_ioctl, true},
        {"stamp", c_stamp, true},
        {"bad-ioctl", c_bad_ioctl, true},
        {"fioclex", c_fioclex, true},
        {"fionbio-on", c_fionbio_on, true},
        {"setown", c_setown, true},
        {"setfd", c_setfd, true},
        {"setfl-on", c_setfl_on, true},
        {"bad-fcntl", c_bad_fcntl, true},
        {"dupfd", c_dupfd, true},
        {"dup2", c_dup2, true},
        {"dup3", c_dup3, true},
        {"dup2-over", c_dup2_over, true},
        {"dup2-itself", c_dup2_itself, true},
        {"close-range", c_close_range, true},
        {"ppoll", c_ppoll, true},
        {"poll-none", c_poll_none, true},
        {"pselect", c_pselect, true},
        {"edge", c_edge, true},
        {"once", c_once, true},
        {"exclusive", c_exclusive, true},
        {"epoll-none", c_epoll_none, true},
        {"epoll-mod", c_epoll_mod, true},
        {"epoll-del", c_epoll_del, true},
        {"epoll-twice", c_epoll_twice, true},
        {"fork", c_fork, true},
        {"thread", c_thread, true},
        {"pass-on", c_pass_on, true},
};

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

bool call_undoes(int call)
{
        return calls[call].call == c_disconnect;
}
