/*
 * shim_shared: calls that are narrow: rarer ones, faults, options, and what copies or passes a
 * descriptor.
 */
#include "tests/pass_fd.h"
#include "tests/shim/shared.h"

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

long c_dread(int fd)
{
        return __read(fd, call_data, 4);
}
long c_read_chk(int fd)
{
        return __read_chk(fd, call_data, 4, sizeof(call_data));
}
long c_recv_chk(int fd)
{
        return __recv_chk(fd, call_data, 4, sizeof(call_data), MSG_DONTWAIT);
}
long c_recvfrom_chk(int fd)
{
        return __recvfrom_chk(fd, call_data, 4, sizeof(call_data), 0, NULL, NULL);
}
long c_read_nothing(int fd)
{
        return read(fd, call_data, 0);
}
long c_recv_fault(int fd)
{
        return recv(fd, (void *)16, 4, MSG_DONTWAIT);
}
long c_recv_oob(int fd)
{
        return recv(fd, call_data, 4, MSG_OOB);
}
long c_recv_all(int fd)
{
        return recv(fd, call_data, 9, MSG_WAITALL);
}
long c_recv_trunc(int fd)
{
        return recv(fd, call_data, 4, MSG_TRUNC);
}
long c_recv_errqueue(int fd)
{
        return recv(fd, call_data, 4, MSG_ERRQUEUE);
}
long c_recvmsg_flags(int fd)
{
        char control[64];
        struct sockaddr_in from = {0};
        struct iovec v = {call_data, 4};
        struct msghdr m = {.msg_name = &from,
                           .msg_namelen = sizeof(from),
                           .msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof(control)};
        long r = recvmsg(fd, &m, MSG_DONTWAIT);

        return r < 0 ? r : r + 100 * m.msg_flags + 100000 * (long)m.msg_controllen;
}
long c_preadv2(int fd)
{
        return preadv2(fd, &(struct iovec){call_data, 4}, 1, -1, 0);
}
long c_preadv2_nowait(int fd)
{
        return preadv2(fd, &(struct iovec){call_data, 4}, 1, -1, RWF_NOWAIT);
}
long c_pwritev2(int fd)
{
        return pwritev2(fd, &(struct iovec){"call", 4}, 1, -1, 0);
}
long c_pread(int fd)
{
        return pread(fd, call_data, 4, 0);
}
long c_pwrite(int fd)
{
        return pwrite(fd, "call", 4, 0);
}
long c_preadv(int fd)
{
        return preadv(fd, &(struct iovec){call_data, 4}, 1, 0);
}
long c_lseek(int fd)
{
        return lseek(fd, 0, SEEK_CUR);
}
long c_fsync(int fd)
{
        return fsync(fd);
}
long c_ftruncate(int fd)
{
        return ftruncate(fd, 0);
}
long c_fstat(int fd)
{
        struct stat st;
        int r = fstat(fd, &st);

        return r < 0 ? r : (long)st.st_mode;
}
long c_isatty(int fd)
{
        return isatty(fd) ? 1 : -1;
}
long c_dwrite(int fd)
{
        return __write(fd, "call", 4);
}
long c_dsend(int fd)
{
        return __send(fd, "call", 4, 0);
}
long c_write_nothing(int fd)
{
        return write(fd, "", 0);
}
long c_send_fault(int fd)
{
        return send(fd, (void *)16, 4, MSG_DONTWAIT);
}
long c_send_oob(int fd)
{
        return send(fd, "call", 4, MSG_OOB);
}
long c_send_more(int fd)
{
        long r = send(fd, "ca", 2, MSG_MORE);

        return r < 0 ? r : send(fd, "ll", 2, 0);
}
long c_sendto_bad(int fd)
{
        return sendto(fd, "call", 4, 0, (void *)&now.udp_at, 3);
}
long c_sendto_family(int fd)
{
        struct sockaddr_un un = {.sun_family = AF_UNIX};

        return sendto(fd, "call", 4, 0, (void *)&un, sizeof(un));
}
long c_sendmmsg_to(int fd)
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
long c_sendmsg_tos(int fd)
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
long c_sendfile_from(int fd)
{
        return sendfile(null_fd, fd, NULL, 4);
}
long c_fread(int fd)
{
        FILE *f = fdopen(dup(fd), "r");
        long r;

        setvbuf(f, NULL, _IONBF, 0);
        r = (long)fread(call_data, 1, 4, f);
        r = r * 10 + (ferror(f) != 0) * 2 + (feof(f) != 0);
        fclose(f);
        return r;
}
long c_fwrite(int fd)
{
        FILE *f = fdopen(dup(fd), "w");
        long r = (long)fwrite("call", 1, 4, f), err;

        r = fflush(f) == 0 ? r : -1;
        err = errno;
        fclose(f);
        errno = (int)err;
        return r;
}
long c_dconnect(int fd)
{
        return __connect(fd, (void *)&now.at, sizeof(now.at));
}
long c_connect_short(int fd)
{
        return connect(fd, (void *)&now.at, 3);
}
long c_connect_family(int fd)
{
        struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_port = now.at.sin_port};

        return connect(fd, (void *)&sa, sizeof(sa));
}
long c_connect_fault(int fd)
{
        return connect(fd, (void *)16, sizeof(now.at));
}
long c_bind_taken(int fd)
{
        return bind(fd, (void *)(now.datagrams ? &now.udp_at : &now.at), sizeof(now.at));
}
long c_bind_foreign(int fd)
{
        struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000201)};

        return bind(fd, (void *)&sa, sizeof(sa));
}
long c_bind_short(int fd)
{
        return bind(fd, (void *)&now.at, 5);
}
long c_listen_none(int fd)
{
        return listen(fd, 0);
}
long c_accept_soft(int fd)
{
        int r = accept4(fd, NULL, NULL, SOCK_NONBLOCK);
        long flags = r < 0 ? r : fcntl(r, F_GETFL);

        made(r);
        return flags;
}
long c_accept_bad(int fd)
{
        return made(accept4(fd, NULL, NULL, 1));
}
long c_accept_fault(int fd)
{
        socklen_t len = 16;

        return made(accept(fd, (void *)16, &len));
}
long c_shutdown_bad(int fd)
{
        return shutdown(fd, 7);
}
long c_getsockname_short(int fd)
{
        struct sockaddr_in sa;
        socklen_t len = 3;
        int r = getsockname(fd, (void *)&sa, &len);

        return r < 0 ? r : (long)len;
}
long c_getsockname_fault(int fd)
{
        return getsockname(fd, (void *)16, NULL);
}
long c_domain(int fd)
{
        return int_opt(fd, SOL_SOCKET, SO_DOMAIN);
}
long c_protocol(int fd)
{
        return int_opt(fd, SOL_SOCKET, SO_PROTOCOL);
}
long c_lowat(int fd)
{
        return set_get(fd, SOL_SOCKET, SO_RCVLOWAT, 20);
}
long c_reuseaddr(int fd)
{
        return set_get(fd, SOL_SOCKET, SO_REUSEADDR, 1);
}
long c_reuseport(int fd)
{
        return set_get(fd, SOL_SOCKET, SO_REUSEPORT, 1);
}
long c_keepalive(int fd)
{
        return set_get(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}
long c_broadcast(int fd)
{
        return set_get(fd, SOL_SOCKET, SO_BROADCAST, 1);
}
long c_oobinline(int fd)
{
        return set_get(fd, SOL_SOCKET, SO_OOBINLINE, 1);
}
long c_priority(int fd)
{
        return set_get(fd, SOL_SOCKET, SO_PRIORITY, 3);
}
long c_timestamp(int fd)
{
        return set_get(fd, SOL_SOCKET, SO_TIMESTAMP, 1);
}
long c_linger(int fd)
{
        const struct linger l = {1, 0};

        return setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
}
/* The peer is reset by whoever closes it last, not by this. */
long c_linger_dup(int fd)
{
        int d = dup(fd);
        long r = c_linger(d);

        close(d);
        return r;
}
long c_tos(int fd)
{
        return set_get(fd, IPPROTO_IP, IP_TOS, 0x10);
}
long c_ttl(int fd)
{
        return set_get(fd, IPPROTO_IP, IP_TTL, 7);
}
long c_recverr(int fd)
{
        return set_get(fd, IPPROTO_IP, IP_RECVERR, 1);
}
long c_cork(int fd)
{
        return set_get(fd, IPPROTO_TCP, TCP_CORK, 1);
}
long c_user_timeout(int fd)
{
        return set_get(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
}
long c_quickack(int fd)
{
        return set_get(fd, IPPROTO_TCP, TCP_QUICKACK, 1);
}
long c_notsent(int fd)
{
        return set_get(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 4096);
}
long c_bad_option(int fd)
{
        return value(fd, SOL_SOCKET, 4711, 1);
}
long c_bad_level(int fd)
{
        return value(fd, 4711, 1, 1);
}
long c_outq(int fd)
{
        int v = 0, r = ioctl(fd, SIOCOUTQ, &v);

        return r < 0 ? r : 0; /* what is acknowledged by now */
}
long c_atmark_ioctl(int fd)
{
        int v = 0, r = ioctl(fd, SIOCATMARK, &v);

        return r < 0 ? r : v;
}
long c_stamp(int fd)
{
        struct timeval tv;

        return ioctl(fd, SIOCGSTAMP, &tv);
}
long c_bad_ioctl(int fd)
{
        return ioctl(fd, 0x4711, NULL);
}
long c_fioclex(int fd)
{
        int r = ioctl(fd, FIOCLEX);

        return r < 0 ? r : fcntl(fd, F_GETFD);
}
long c_fionbio_on(int fd)
{
        int one = 1;

        return ioctl(fd, FIONBIO, &one);
}
long c_setown(int fd)
{
        int r = fcntl(fd, F_SETOWN, getpid());

        return r < 0 ? r : fcntl(fd, F_GETOWN) == getpid();
}
long c_setfd(int fd)
{
        int r = fcntl(fd, F_SETFD, FD_CLOEXEC);

        return r < 0 ? r : fcntl(fd, F_GETFD);
}
long c_setfl_on(int fd)
{
        return fcntl(fd, F_SETFL, O_NONBLOCK);
}
long c_bad_fcntl(int fd)
{
        return fcntl(fd, 4711, 0);
}
static long with(int d)
{
        long r = d < 0 ? d : send(d, "call", 4, MSG_NOSIGNAL);

        made(d);
        return r;
}
long c_dupfd(int fd)
{
        return with(fcntl(fd, F_DUPFD_CLOEXEC, 50));
}
long c_dup2(int fd)
{
        return with(dup2(fd, 60));
}
long c_dup3(int fd)
{
        return with(dup3(fd, 61, O_CLOEXEC));
}
long c_dup2_over(int fd)
{
        int s = socket(AF_INET, SOCK_STREAM, 0);

        connect(s, (void *)&now.at, sizeof(now.at));
        return with(dup2(fd, s));
}
long c_dup2_itself(int fd)
{
        return dup2(fd, fd) == fd;
}
long c_close_range(int fd)
{
        int d = fcntl(fd, F_DUPFD, 70);
        long r = close_range((unsigned)d, (unsigned)d, 0);

        return r < 0 ? r : with(dup(fd));
}
long c_ppoll(int fd)
{
        struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0};
        int r = ppoll(&p, 1, &no_time, NULL);

        return r < 0 ? r : now.undone && !now.datagrams ? p.revents & ~POLLERR : p.revents;
}
long c_poll_none(int fd)
{
        struct pollfd p = {fd, 0, 0};
        int r = poll(&p, 1, 0);

        return r < 0 ? r : now.undone && !now.datagrams ? p.revents & ~POLLERR : p.revents;
}
long c_pselect(int fd)
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
long c_edge(int fd)
{
        return in_set(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET);
}
long c_once(int fd)
{
        return in_set(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLONESHOT);
}
long c_exclusive(int fd)
{
        return in_set(fd, EPOLLIN | EPOLLOUT | EPOLLEXCLUSIVE);
}
long c_epoll_none(int fd)
{
        return in_set(fd, 0);
}
long c_epoll_mod(int fd)
{
        struct epoll_event ev = {.events = EPOLLIN};
        int ep = epoll_create1(0);
        long r = epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev);

        made(ep);
        return r;
}
long c_epoll_del(int fd)
{
        int ep = epoll_create1(0);
        long r = epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL);

        made(ep);
        return r;
}
long c_epoll_twice(int fd)
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
long c_fork(int fd)
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
long c_thread(int fd)
{
        pthread_t t;
        void *r;

        pthread_create(&t, NULL, send_it, &fd);
        pthread_join(t, &r);
        return without((int)(long)r);
}
long c_pass_on(int fd)
{
        int s[2], d = -1;

        socketpair(AF_UNIX, SOCK_STREAM, 0, s);
        if (pass_fd(s[0], fd) == 0)
                d = take_fd(s[1]);
        close2(s);
        return with(d);
}
