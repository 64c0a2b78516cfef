/*
 * shim_calls, data in and out: the calls, their flags, the ends of a connection, a few bytes at a
 * time, by number.
 */
#include "tests/shim/calls.h"

void scene_read_write(void)
{
        char b[64];
        int v[2];

        tcp_pair(v);
        SHOW(write(v[0], "one", 3));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        SHOW(__write(v[0], "two", 3));
        show_bytes("__read", b, __read(v[1], b, sizeof(b)));
        SHOW(send(v[1], "three", 5, 0));
        show_bytes("recv", b, recv(v[0], b, sizeof(b), 0));
        SHOW(__send(v[1], "four", 4, 0));
        show_bytes("__read_chk", b, __read_chk(v[0], b, 2, sizeof(b)));
        show_bytes("__recv_chk", b, __recv_chk(v[0], b, sizeof(b), sizeof(b), 0));
        SHOW(sendto(v[0], "five", 4, 0, NULL, 0));
        show_bytes("recvfrom", b, recvfrom(v[1], b, sizeof(b), 0, NULL, NULL));
        SHOW(send(v[0], "six", 3, 0));
        show_bytes("__recvfrom_chk", b,
                   __recvfrom_chk(v[1], b, sizeof(b), sizeof(b), 0, NULL, NULL));
        SHOW(read(v[1], b, 0));
        SHOW(recv(v[1], b, sizeof(b), MSG_DONTWAIT));
        SHOW(recv(v[1], b, sizeof(b), MSG_OOB));
        close2(v);
        SHOW(write(v[0], "x", 1));
}

void scene_vectors(void)
{
        char a[4], b[60];
        struct iovec out[2] = {{(char *)"abcd", 4}, {(char *)"efg", 3}},
                     in[2] = {{a, sizeof(a)}, {b, sizeof(b)}};
        struct msghdr m = {.msg_iov = out, .msg_iovlen = 2};
        struct mmsghdr mm[2] = {{.msg_hdr = {.msg_iov = out, .msg_iovlen = 2}},
                                {.msg_hdr = {.msg_iov = out + 1, .msg_iovlen = 1}}};
        int v[2];

        tcp_pair(v);
        SHOW(writev(v[0], out, 2));
        SHOW(readv(v[1], in, 2));
        show_bytes("first", a, 4);
        show_bytes("second", b, 3);
        SHOW(sendmsg(v[0], &m, 0));
        wait_readable(v[1]);
        m.msg_iov = in;
        SHOW(recvmsg(v[1], &m, MSG_WAITALL | MSG_DONTWAIT));
        show_bytes("second", b, 3);
        SHOW(sendmmsg(v[0], mm, 2, 0));
        SHOW(mm[0].msg_len + mm[1].msg_len);
        mm[0].msg_hdr.msg_iov = in;
        mm[0].msg_hdr.msg_iovlen = 1;
        mm[1].msg_hdr.msg_iov = in + 1;
        mm[1].msg_hdr.msg_iovlen = 1;
        SHOW(recvmmsg(v[1], mm, 2, MSG_WAITFORONE, NULL));
        show_bytes("first", a, mm[0].msg_len);
        close2(v);
}

/* A socket has no position but the one it is at. */
void scene_vectors_at(void)
{
        char b[8], all[64];
        struct iovec out = {(char *)"abcdef", 6}, in = {b, 4};
        int v[2];

        tcp_pair(v);
        SHOW(pwritev2(v[0], &out, 1, -1, 0));
        SHOW(pwritev2(v[0], &out, 1, 0, 0));
        SHOW(pwritev(v[0], &out, 1, 0));
        SHOW(pwritev64v2(v[0], &out, 1, -1, RWF_DSYNC | RWF_APPEND | RWF_NOWAIT));
        wait_bytes(v[1], 12);
        SHOW(preadv2(v[1], &in, 1, -1, 0));
        SHOW(preadv2(v[1], &in, 1, 5, 0));
        SHOW(preadv2(v[1], &in, 1, -1, 0x1000));
        SHOW(preadv64v2(v[1], &in, 1, -1, RWF_NOWAIT | RWF_HIPRI));
        show_bytes("second", b, 4);
        SHOW(syscall(SYS_preadv2, v[1], &in, 1, -1l, 0l, RWF_NOWAIT));
        SHOW(preadv2(v[1], &in, 1, -1, RWF_NOWAIT));
        SHOW(preadv2(v[1], &in, 0, -1, 0));
        SHOW(syscall(SYS_pwritev2, v[1], &out, 1, -1l, 0l, 0));
        show_bytes("back", all, read(v[0], all, sizeof(all)));
        close(v[1]);
        signal(SIGPIPE, SIG_IGN);
        wait_readable(v[0]);
        SHOW(preadv2(v[0], &in, 1, -1, 0));
        pwritev2(v[0], &out, 1, -1, 0);
        close(v[0]);
}

void scene_flags(void)
{
        char b[64];
        int v[2];

        tcp_pair(v);
        send(v[0], "peekaboo", 8, 0);
        show_bytes("peek", b, recv(v[1], b, 4, MSG_PEEK));
        show_bytes("waitall", b, recv(v[1], b, 8, MSG_WAITALL));
        send(v[0], "junk", 4, MSG_MORE);
        send(v[0], "more", 4, 0);
        show_bytes("all", b, recv(v[1], b, 8, MSG_WAITALL));
        send(v[0], "xyz", 3, MSG_OOB);
        show_bytes("before mark", b, recv(v[1], b, sizeof(b), 0));
        show_bytes("oob", b, recv(v[1], b, 1, MSG_OOB));
        close2(v);
}

void scene_ends(void)
{
        struct tcp_info ti = {0};
        struct sockaddr_in sa;
        socklen_t len = sizeof(ti);
        char b[8];
        int v[2];

        tcp_pair(v);
        SHOW(shutdown(v[0], SHUT_WR));
        SHOW(read(v[1], b, sizeof(b)));
        SHOW(send(v[0], "x", 1, MSG_NOSIGNAL));
        SHOW(write(v[1], "back", 4));
        SHOW(read(v[0], b, sizeof(b)));
        SHOW(close(v[1]));
        SHOW(read(v[0], b, sizeof(b)));
        SHOW(getsockopt(v[0], IPPROTO_TCP, TCP_INFO, &ti, &len));
        SHOW(ti.tcpi_state);
        len = sizeof(sa);
        SHOW(getpeername(v[0], (void *)&sa, &len));
        SHOW(shutdown(v[0], SHUT_RDWR));
        SHOW(shutdown(v[0], 7));
        SHOW(__close(v[0]));
        SHOW(close(v[0]));
        tcp_pair(v);
        write(v[0], "unread", 6);
        wait_readable(v[1]);
        close(v[1]);
        wait_readable(v[0]);
        SHOW(read(v[0], b, sizeof(b)));
        close(v[0]);
}

void scene_udp(void)
{
        struct sockaddr_in a, b, from;
        socklen_t len = sizeof(from);
        char buf[64];
        int s = udp_socket(&a), t = udp_socket(&b);

        SHOW(sendto(s, "ping", 4, 0, (void *)&b, sizeof(b)));
        show_bytes("recvfrom", buf, recvfrom(t, buf, sizeof(buf), 0, (void *)&from, &len));
        SHOW(len);
        SHOW(from.sin_port == a.sin_port);
        SHOW(connect(t, (void *)&from, len));
        SHOW(send(t, "pong", 4, 0));
        show_bytes("recv", buf, recv(s, buf, sizeof(buf), 0));
        SHOW(sendto(s, "truncated", 9, 0, (void *)&b, sizeof(b)));
        SHOW(recv(t, buf, 4, MSG_TRUNC));
        SHOW(recv(t, buf, 4, MSG_DONTWAIT));
        SHOW(write(s, "x", 1));
        SHOW(sendto(s, "", 0, 0, (void *)&b, sizeof(b)));
        SHOW(read(t, buf, sizeof(buf)));
        SHOW(listen(s, 1));
        len = sizeof(from);
        SHOW(getpeername(t, (void *)&from, &len));
        SHOW(from.sin_port == a.sin_port);
        SHOW(getpeername(s, (void *)&from, &len));
        close(s);
        close(t);
}

/* ---- a few bytes at a time ---- */

static void show_unread(int fd)
{
        int n = -1;

        SHOW(ioctl(fd, FIONREAD, &n));
        SHOW(n);
}

static void *reads_on(void *arg)
{
        read_some(*(int *)arg, 0, 8, 0);
        read_some(*(int *)arg, 8, 8, 0);
        return NULL;
}

/* What other calls see between small reads. */
static void small_reads_and_others(void)
{
        struct tcp_info ti;
        socklen_t len = sizeof(ti);
        struct pollfd p = {.events = POLLIN | POLLOUT};
        fd_set set, out;
        int v[2], copy;

        tcp_pair(v);
        write_much(v[0]);
        for (int i = 0; i < 10; i++)
                read_some(v[1], i * 10, 10, 0);
        show_unread(v[1]);
        read_some(v[1], 100, 10, 0);
        read_some(v[1], 110, 10, MSG_DONTWAIT);
        read_some(v[1], 120, 50, MSG_PEEK);
        read_some(v[1], 120, 10, 0);
        read_some(v[1], 130, 10, 0);
        read_some(v[1], 140, 10, MSG_TRUNC); /* thrown away */
        read_some(v[1], 150, 10, 0);
        SHOW(getsockopt(v[1], IPPROTO_TCP, TCP_INFO, &ti, &len));
        read_some(v[1], 160, 10, 0);
        copy = dup(v[1]);
        read_some(copy, 170, 10, 0);
        read_some(v[1], 180, 10, 0);
        close(copy);
        p.fd = v[1];
        SHOW(poll(&p, 1, LONG));
        SHOW(p.revents);
        read_some(v[1], 190, 10, 0);
        read_some(v[1], 200, 10, 0);
        FD_ZERO(&set);
        FD_ZERO(&out);
        FD_SET(v[1], &set);
        FD_SET(v[1], &out);
        SHOW(select(v[1] + 1, &set, &out, NULL, NULL));
        SHOW(FD_ISSET(v[1], &set));
        read_some(v[1], 210, 1980, 0);
        read_some(v[1], 2190, 10, MSG_WAITALL);
        FD_ZERO(&set);
        FD_SET(v[1], &set);
        SHOW(select(v[1] + 1, &set, NULL, NULL, NULL));
        SHOW(shutdown(v[0], SHUT_WR));
        read_some(v[1], 2200, 10, 0);
        read_some(v[1], 2210, 790, MSG_WAITALL);
        read_some(v[1], 3000, 10, 0);
        close2(v);
}

/* All was read: an end. One byte was not: a reset. */
static void small_reads_to_the_end(void)
{
        char b[8];
        int v[2];

        for (int left = 0; left < 2; left++) {
                tcp_pair(v);
                write_much(v[0]);
                for (int i = 0; i < MUCH / 100; i++)
                        read_some(v[1], i * 100, i < MUCH / 100 - 1 ? 100 : 100 - left, 0);
                show_unread(v[1]);
                close(v[1]);
                wait_readable(v[0]);
                SHOW(read(v[0], b, sizeof(b)));
                close(v[0]);
        }
}

/* Who else comes to read goes on where the last one stopped. */
static void small_reads_of_several(void)
{
        pthread_t t;
        int v[2];
        pid_t pid;

        tcp_pair(v);
        write_much(v[0]);
        for (int i = 0; i < 10; i++)
                read_some(v[1], i * 10, 10, 0);
        fflush(stdout);
        pid = fork();
        if (pid == 0) {
                read_some(v[1], 100, 10, 0);
                read_some(v[1], 110, 10, 0);
                read_some(v[1], 120, 10, 0);
                fflush(stdout);
                _exit(0);
        }
        waitpid(pid, NULL, 0);
        read_some(v[1], 130, 10, 0);
        read_some(v[1], 140, 10, 0);
        close2(v);
        tcp_pair(v);
        write_much(v[0]);
        write_much(v[0]);
        for (int i = 0; i < MUCH / 10; i++) {
                char b[10];
                if (read(v[1], b, sizeof(b)) != 10 || b[3] != pattern(i * 10 + 3))
                        die("small reads");
        }
        pthread_create(&t, NULL, reads_on, &v[1]);
        pthread_join(t, NULL);
        read_some(v[1], 16, 8, 0);
        read_some(v[1], 24, 8, 0);
        show_unread(v[1]);
        close2(v);
}

void scene_small_reads(void)
{
        small_reads_and_others();
        small_reads_to_the_end();
        small_reads_of_several();
}

/* Of a call that succeeds errno says nothing: some programs look there first. */
void scene_errno_left(void)
{
        struct sockaddr_in sa = loopback();
        socklen_t len = sizeof(sa);
        int s, l, c;

        errno = 0;
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(errno);
        l = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(bind(l, (void *)&sa, sizeof(sa)) + listen(l, 1) + getsockname(l, (void *)&sa, &len));
        SHOW(errno);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        SHOW(errno);
        c = accept(l, NULL, NULL);
        SHOW(errno);
        SHOW(close(c) + close(s) + close(l));
        SHOW(errno);
}

/* ---- by number ---- */

void scene_syscall(void)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof(sa);
        char b[16];
        int l = listener(&sa), c, s = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);

        SHOW(syscall(SYS_connect, s, &sa, sizeof(sa)));
        c = (int)syscall(SYS_accept4, l, NULL, NULL, 0);
        SHOW(syscall(SYS_write, s, "raw", 3));
        show_bytes("read", b, syscall(SYS_read, c, b, sizeof(b)));
        SHOW(syscall(SYS_sendto, c, "raw", 3, 0, NULL, 0));
        show_bytes("recvfrom", b, syscall(SYS_recvfrom, s, b, sizeof(b), 0, NULL, NULL));
        SHOW(syscall(SYS_getpeername, s, &sa, &len));
        SHOW(syscall(SYS_shutdown, s, SHUT_WR));
        SHOW(syscall(SYS_read, c, b, sizeof(b)));
        SHOW(syscall(SYS_close, s));
        SHOW(syscall(SYS_close, c));
        SHOW(syscall(SYS_close, l));
        SHOW(syscall(SYS_close, l));
        SHOW_OK(syscall(SYS_getpid));
}

/* ... those that wait with a time or a mask of their own, and that move bytes on. */
void scene_syscall_waits(void)
{
        const struct timespec never = {1000, 0};
        struct timespec ts = {0, 1000}, long_ts = never;
        struct {
                const void *mask;
                size_t size;
        } none = {NULL, 8};
        struct epoll_event ev = {.events = EPOLLIN};
        int ep = epoll_create1(0), v[2], p[2];
        fd_set r;
        char b[16];

        tcp_pair(v);
        pipe(p);
        epoll_ctl(ep, EPOLL_CTL_ADD, v[1], &ev);
        FD_ZERO(&r);
        FD_SET(v[1], &r);
        SHOW(syscall(SYS_pselect6, v[1] + 1, &r, NULL, NULL, &ts, &none));
        SHOW(ts.tv_nsec);
        SHOW(syscall(SYS_epoll_pwait2, ep, &ev, 1, &ts, NULL, 8));
        write(p[1], "piped", 5);
        SHOW(syscall(SYS_splice, p[0], NULL, v[0], NULL, 5, 0));
        FD_SET(v[1], &r);
        SHOW(syscall(SYS_pselect6, v[1] + 1, &r, NULL, NULL, &long_ts, NULL));
        SHOW(long_ts.tv_sec > 0 && long_ts.tv_sec < 1001);
        SHOW(syscall(SYS_pselect6, v[1] + 1, &r, NULL, NULL, &ts, (void *)8));
        SHOW(syscall(SYS_epoll_pwait2, ep, &ev, 1, &never, NULL, 8));
        SHOW(syscall(SYS_splice, v[1], NULL, p[1], NULL, 16, 0));
        show_bytes("read", b, read(p[0], b, sizeof(b)));
        close2(v);
        close2(p);
        close(ep);
}
