/*
 * Every symbol of hooks.def, used on sockets, one small scene after the other. The program knows nothing of the shim:
 * it prints what it sees, and the test compares what it prints over the kernel with what it prints over the shim.
 * Nothing that differs from run to run (ports, times) is printed.
 *
 *      calls              all scenes
 *      calls NAME...      these
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utmp.h>

#include "netstack/sys.h"

#define RESTORER     0x04000000 /* libc's own flag, seen where the kernel answers */
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

static const char *name_of(long r)
{
        return r < 0 ? strerrorname_np(errno) : "ok";
}

/* Prints a call's result: its name and, of a failure, the error. */
#define SHOW(call)                                                     \
        do {                                                           \
                long r_ = (long)(call);                                \
                printf("  %s = %ld %s\n", #call, r_, name_of(r_));     \
        } while (0)
/* The same where the value itself varies from run to run. */
#define SHOW_OK(call)                                                  \
        do {                                                           \
                long r_ = (long)(call);                                \
                printf("  %s: %s\n", #call, name_of(r_));              \
        } while (0)

static void show_bytes(const char *what, const char *p, ssize_t n)
{
        printf("  %s: %zd '%.*s'\n", what, n, n > 0 ? (int)n : 0, p);
}

static void die(const char *what)
{
        printf("  %s: %s\n", what, strerror(errno));
        exit(1);
}

/* ---- pairs of connected sockets in this process ---- */

static struct sockaddr_in loopback(void)
{
        return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int listener(struct sockaddr_in *sa)
{
        socklen_t len = sizeof(*sa);
        int l = socket(AF_INET, SOCK_STREAM, 0), on = 1;

        *sa = loopback();
        setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (l < 0 || bind(l, (void *)sa, sizeof(*sa)) < 0 || listen(l, 16) < 0 ||
            getsockname(l, (void *)sa, &len) < 0)
                die("listener");
        return l;
}

static void tcp_pair(int v[2])
{
        struct sockaddr_in sa;
        int l = listener(&sa);

        v[0] = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(v[0], (void *)&sa, sizeof(sa)) < 0)
                die("connect");
        v[1] = accept(l, NULL, NULL);
        if (v[1] < 0)
                die("accept");
        close(l);
}

static int udp_socket(struct sockaddr_in *sa)
{
        socklen_t len = sizeof(*sa);
        int s = socket(AF_INET, SOCK_DGRAM, 0);

        *sa = loopback();
        if (s < 0 || bind(s, (void *)sa, sizeof(*sa)) < 0 || getsockname(s, (void *)sa, &len) < 0)
                die("udp");
        return s;
}

static void close2(int v[2])
{
        close(v[0]);
        close(v[1]);
}

static void wait_readable(int fd)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};

        poll(&p, 1, 1000);
}

/* ---- data ---- */

ssize_t __read(int, void *, size_t);
ssize_t __write(int, const void *, size_t);
ssize_t __send(int, const void *, size_t, int);
int __connect(int, const struct sockaddr *, socklen_t);
int __close(int);
int __poll(struct pollfd *, nfds_t, int);
int __select(int, fd_set *, fd_set *, fd_set *, struct timeval *);
int __fcntl(int, int, ...);
int __dup2(int, int);
int __pipe(int *);
int __open(const char *, int, ...);
int __open64(const char *, int, ...);
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __recv_chk(int, void *, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);
int __poll_chk(struct pollfd *, nfds_t, int, size_t);
int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);
int __dprintf_chk(int, int, const char *, ...);
int __vdprintf_chk(int, int, const char *, va_list);
int __sigaction(int, const struct sigaction *, struct sigaction *);
pid_t _Fork(void);
sighandler_t bsd_signal(int, sighandler_t);

static void scene_read_write(void)
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
        show_bytes("__recvfrom_chk", b, __recvfrom_chk(v[1], b, sizeof(b), sizeof(b), 0, NULL, NULL));
        SHOW(read(v[1], b, 0));
        SHOW(recv(v[1], b, sizeof(b), MSG_DONTWAIT));
        SHOW(recv(v[1], b, sizeof(b), MSG_OOB));
        close2(v);
        SHOW(write(v[0], "x", 1));
}

static void scene_vectors(void)
{
        char a[4], b[60];
        struct iovec out[2] = {{(char *)"abcd", 4}, {(char *)"efg", 3}}, in[2] = {{a, sizeof(a)}, {b, sizeof(b)}};
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

static void scene_flags(void)
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

static void scene_ends(void)
{
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
        SHOW(shutdown(v[0], SHUT_RDWR));
        SHOW(shutdown(v[0], 7));
        SHOW(__close(v[0]));
        SHOW(close(v[0]));
        tcp_pair(v);
        write(v[0], "unread", 6);
        usleep(10000);
        close(v[1]);
        usleep(10000);
        SHOW(read(v[0], b, sizeof(b)));
        close(v[0]);
}

static volatile sig_atomic_t got;

static void on_signal(int sig)
{
        got = sig;
}

static void scene_sigpipe(void)
{
        int v[2];

        signal(SIGPIPE, on_signal);
        tcp_pair(v);
        shutdown(v[0], SHUT_WR);
        got = 0;
        SHOW(write(v[0], "x", 1));
        SHOW(got == SIGPIPE);
        got = 0;
        SHOW(send(v[0], "x", 1, MSG_NOSIGNAL));
        SHOW(got);
        signal(SIGPIPE, SIG_DFL);
        close2(v);
}

static void scene_udp(void)
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

/* ---- names, options, flags ---- */

static void scene_connect(void)
{
        struct sockaddr_in sa, me;
        socklen_t len = sizeof(me);
        int l = listener(&sa), s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), c, err;
        struct pollfd p = {.fd = s, .events = POLLOUT};

        SHOW(getpeername(s, (void *)&me, &len));
        (void)connect(s, (void *)&sa, sizeof(sa));
        SHOW(poll(&p, 1, 1000));
        len = sizeof(err);
        SHOW(getsockopt(s, SOL_SOCKET, SO_ERROR, &err, &len));
        SHOW(err);
        c = accept4(l, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        SHOW(fcntl(c, F_GETFD));
        SHOW(fcntl(c, F_GETFL) & O_NONBLOCK);
        len = sizeof(me);
        SHOW(getsockname(c, (void *)&me, &len));
        SHOW(me.sin_port == sa.sin_port);
        SHOW(getpeername(s, (void *)&me, &len));
        SHOW(me.sin_port == sa.sin_port);
        SHOW(connect(s, (void *)&sa, sizeof(sa)) < 0 && errno == EISCONN);
        SHOW(accept4(l, NULL, NULL, 12345));
        SHOW(accept(s, NULL, NULL));
        SHOW(listen(s, 1));
        close(s);
        close(c);
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(__connect(s, (void *)&sa, sizeof(sa)));
        c = accept(l, NULL, NULL);
        SHOW(fcntl(c, F_GETFL) & O_NONBLOCK);
        close(c);
        close(s);
        close(l);
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        close(s);
}

static void scene_bound_connect(void)
{
        struct sockaddr_in sa, me = loopback(), peer;
        socklen_t len = sizeof(me);
        int l = listener(&sa), s = socket(AF_INET, SOCK_STREAM, 0), c;

        SHOW(bind(s, (void *)&me, sizeof(me)));
        SHOW(bind(s, (void *)&me, sizeof(me)));
        getsockname(s, (void *)&me, &len);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        c = accept(l, (void *)&peer, &len);
        SHOW(peer.sin_port == me.sin_port);
        getsockname(s, (void *)&peer, &len);
        SHOW(peer.sin_port == me.sin_port);
        close(c);
        close(s);
        close(l);
}

/* Nobody there, then somebody: the same socket, again. */
static void scene_connect_again(void)
{
        struct sockaddr_in sa;
        int l = listener(&sa), s = socket(AF_INET, SOCK_STREAM, 0), on = 1;

        close(l);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        l = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        bind(l, (void *)&sa, sizeof(sa));
        listen(l, 1);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        SHOW(write(s, "x", 1));
        close(s);
        close(l);
}

static void scene_accept_flags(void)
{
        struct sockaddr_in sa, peer;
        socklen_t len = sizeof(peer);
        int l = listener(&sa), s = socket(AF_INET, SOCK_STREAM, 0), c, on = 1;

        SHOW(ioctl(l, FIONBIO, &on));
        SHOW(accept(l, NULL, NULL));
        SHOW(fcntl(l, F_GETFL) & O_NONBLOCK);
        connect(s, (void *)&sa, sizeof(sa));
        usleep(10000);
        c = accept(l, (void *)&peer, &len);
        SHOW(c >= 0);
        SHOW(len);
        SHOW(fcntl(c, F_GETFL) & O_NONBLOCK);
        SHOW(fcntl(l, F_SETFL, 0));
        SHOW(fcntl(l, F_GETFL) & O_NONBLOCK);
        close(s);
        close(c);
        close(l);
}

static void show_int(int s, int level, int name, const char *what)
{
        int v = -1;
        socklen_t len = sizeof(v);
        int r = getsockopt(s, level, name, &v, &len);

        printf("  %s: %d %s, %d (%u)\n", what, r, name_of(r), v, (unsigned)len);
}
#define SHOW_OPT(s, level, name) show_int(s, level, name, #name)

static void set_int(int s, int level, int name, int v, const char *what)
{
        int r = setsockopt(s, level, name, &v, sizeof(v));

        printf("  %s := %d: %d %s\n", what, v, r, name_of(r));
}
#define SET_OPT(s, level, name, v) set_int(s, level, name, v, #name)

static void scene_options(void)
{
        struct timeval tv = {1, 500000};
        socklen_t len = sizeof(tv);
        char cc[16];
        int v[2];

        tcp_pair(v);
        for (int i = 0; i < 2; i++) {
                SHOW_OPT(v[i], SOL_SOCKET, SO_TYPE);
                SHOW_OPT(v[i], SOL_SOCKET, SO_DOMAIN);
                SHOW_OPT(v[i], SOL_SOCKET, SO_PROTOCOL);
                SHOW_OPT(v[i], SOL_SOCKET, SO_ACCEPTCONN);
                SHOW_OPT(v[i], SOL_SOCKET, SO_ERROR);
                SET_OPT(v[i], SOL_SOCKET, SO_KEEPALIVE, 1);
                SHOW_OPT(v[i], SOL_SOCKET, SO_KEEPALIVE);
                SET_OPT(v[i], IPPROTO_TCP, TCP_NODELAY, 1);
                SHOW_OPT(v[i], IPPROTO_TCP, TCP_NODELAY);
                SET_OPT(v[i], IPPROTO_TCP, TCP_CORK, 1);
                SET_OPT(v[i], IPPROTO_TCP, TCP_CORK, 0);
                SET_OPT(v[i], SOL_SOCKET, SO_RCVBUF, 50000);
                SHOW_OPT(v[i], SOL_SOCKET, SO_RCVBUF);
                SET_OPT(v[i], SOL_SOCKET, SO_SNDBUF, 50000);
                SHOW_OPT(v[i], SOL_SOCKET, SO_SNDBUF);
                SET_OPT(v[i], SOL_SOCKET, SO_PRIORITY, 3);
                SHOW_OPT(v[i], SOL_SOCKET, SO_PRIORITY);
                SET_OPT(v[i], SOL_SOCKET, SO_INCOMING_CPU, 1);
                SET_OPT(v[i], IPPROTO_IP, IP_TOS, 16);
                SHOW_OPT(v[i], IPPROTO_IP, IP_TOS);
                SET_OPT(v[i], IPPROTO_TCP, 9999, 1);
                SHOW_OPT(v[i], IPPROTO_TCP, 9999);
                SHOW_OPT(v[i], 9999, 1);
                SHOW(setsockopt(v[i], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
                memset(&tv, 0, sizeof(tv));
                len = sizeof(tv);
                SHOW(getsockopt(v[i], SOL_SOCKET, SO_RCVTIMEO, &tv, &len));
                SHOW(tv.tv_sec * 1000000 + tv.tv_usec);
                tv = (struct timeval){1, 1500000};
                SHOW(setsockopt(v[i], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
                tv = (struct timeval){1, 500000};
                len = sizeof(cc);
                SHOW(setsockopt(v[i], IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
                SHOW(getsockopt(v[i], IPPROTO_TCP, TCP_CONGESTION, cc, &len));
                show_bytes("congestion", cc, (ssize_t)strnlen(cc, sizeof(cc)));
        }
        close2(v);
}

/* ---- a few bytes at a time ---- */

#define MUCH 3000

static char pattern(int i)
{
        return (char)(i * 31 + i / 251);
}

static void write_much(int fd)
{
        char b[MUCH];

        for (int i = 0; i < MUCH; i++)
                b[i] = pattern(i);
        SHOW(write(fd, b, MUCH));
}

/* Reads n bytes with these flags and says whether they are those from position `at`. */
static void read_some(int fd, int at, int n, int flags)
{
        char b[MUCH];
        ssize_t r = recv(fd, b, (size_t)n, flags);
        int i = 0;

        while (i < r && b[i] == pattern(at + i))
                i++;
        printf("  %d at %d: %zd, %d right, %s\n", n, at, r, i, name_of(r));
}

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
        read_some(v[1], 140, 10, MSG_TRUNC);    /* thrown away */
        read_some(v[1], 150, 10, 0);
        SHOW(getsockopt(v[1], IPPROTO_TCP, TCP_INFO, &ti, &len));
        read_some(v[1], 160, 10, 0);
        copy = dup(v[1]);
        read_some(copy, 170, 10, 0);
        read_some(v[1], 180, 10, 0);
        close(copy);
        p.fd = v[1];
        SHOW(poll(&p, 1, 1000));
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

static void scene_small_reads(void)
{
        small_reads_and_others();
        small_reads_to_the_end();
        small_reads_of_several();
}

static void scene_ioctl(void)
{
        char b[8];
        int v[2], n = -1, on = 1;

        tcp_pair(v);
        write(v[0], "12345", 5);
        usleep(10000);
        SHOW(ioctl(v[1], FIONREAD, &n));
        SHOW(n);
        SHOW(ioctl(v[0], TIOCOUTQ, &n));
        SHOW(ioctl(v[1], FIONBIO, &on));
        SHOW(fcntl64(v[1], F_GETFL) & O_NONBLOCK);
        read(v[1], b, sizeof(b));
        SHOW(read(v[1], b, sizeof(b)));
        SHOW(__fcntl(v[1], F_SETFL, O_RDWR));
        SHOW(ioctl(v[1], 0x12345678, &n));
        close2(v);
}

static void scene_timeouts(void)
{
        struct timeval tv = {0, 30000};
        static char big[8 << 20];
        char b[8];
        ssize_t n;
        int v[2];

        tcp_pair(v);
        setsockopt(v[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        setsockopt(v[0], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
        SHOW(read(v[1], b, sizeof(b)));
        SHOW(recv(v[1], b, sizeof(b), MSG_WAITALL));
        n = 0;
        for (int i = 0; i < 100 && n >= 0; i++)
                n = write(v[0], big, sizeof(big));
        SHOW(n);
        close2(v);
}

/* ---- numbers ---- */

static void scene_dup(void)
{
        char b[8];
        int v[2], d, e;

        tcp_pair(v);
        d = dup(v[0]);
        e = fcntl(v[0], F_DUPFD_CLOEXEC, 50);
        SHOW(e >= 50);
        SHOW(fcntl(e, F_GETFD));
        close(v[0]);
        SHOW(write(d, "dup", 3));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        SHOW(dup2(e, 60));
        SHOW(dup3(e, 61, O_CLOEXEC));
        SHOW(__dup2(61, 62));
        SHOW(dup3(e, e, 0));
        SHOW(dup2(999, 60));
        close(d);
        close(e);
        SHOW(write(60, "two", 3));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        close(60);
        close(61);
        SHOW(write(62, "x", 1));
        SHOW(fcntl(62, F_SETFL, O_NONBLOCK));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        close(62);
        SHOW(read(v[1], b, sizeof(b)));
        close(v[1]);
}

static void scene_close_range(void)
{
        char b[8];
        int v[2], w[2];

        tcp_pair(v);
        tcp_pair(w);
        dup2(v[0], 100);
        dup2(w[0], 101);
        close(v[0]);
        close(w[0]);
        SHOW(close_range(100, 100, 0));
        SHOW(read(v[1], b, sizeof(b)));
        SHOW(write(101, "alive", 5));
        SHOW(read(w[1], b, sizeof(b)));
        closefrom(101);
        SHOW(read(w[1], b, sizeof(b)));
        SHOW(close_range(5, 4, 0));
        close(v[1]);
        close(w[1]);
        tcp_pair(v);
        SHOW(write(v[0], "again", 5));
        SHOW(read(v[1], b, sizeof(b)));
        close2(v);
}

/* A number that was ours and is now something else must be something else. */
static void reused(const char *what, int fd, int was)
{
        int type = 0;
        socklen_t len = sizeof(type);

        printf("  %s: same number %d, as a socket %s\n", what, fd == was,
               name_of(getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len)));
        close(fd);
}

/* The lowest free number, a moment ago a connection, closed where no hook can see. */
static int gone_number(void)
{
        int v[2];

        tcp_pair(v);
        dup2(v[0], v[0] - 1);           /* where the listener was */
        for (int fd = v[0] - 1; fd <= v[1]; fd++)
                sys1(SYS_close, fd);
        return v[0] - 1;
}

static void scene_new_numbers(void)
{
        char t[32];
        sigset_t none;
        int p[2];

        sigemptyset(&none);
#define REUSED(call)                              \
        do {                                      \
                int was = gone_number();          \
                reused(#call, call, was);         \
        } while (0)
        REUSED(open("/dev/zero", O_RDONLY));
        REUSED(__open("/dev/zero", O_RDONLY));
        REUSED(__open_2("/dev/zero", O_RDONLY));
        REUSED(open64("/dev/zero", O_RDONLY));
        REUSED(__open64("/dev/zero", O_RDONLY));
        REUSED(__open64_2("/dev/zero", O_RDONLY));
        REUSED(openat(AT_FDCWD, "/dev/zero", O_RDONLY));
        REUSED(__openat_2(AT_FDCWD, "/dev/zero", O_RDONLY));
        REUSED(openat64(AT_FDCWD, "/dev/zero", O_RDONLY));
        REUSED(__openat64_2(AT_FDCWD, "/dev/zero", O_RDONLY));
        REUSED(creat("/dev/null", 0600));
        REUSED(creat64("/dev/null", 0600));
        REUSED(eventfd(1, 0));
        REUSED(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
        REUSED(signalfd(-1, &none, SFD_NONBLOCK));
        REUSED(inotify_init());
        REUSED(inotify_init1(IN_NONBLOCK));
        REUSED(memfd_create("x", 0));
        REUSED(posix_openpt(O_RDWR | O_NOCTTY));
        REUSED(epoll_create(1));
        REUSED(epoll_create1(0));
        REUSED(socket(AF_UNIX, SOCK_STREAM, 0));
        REUSED(dup(0));
        REUSED((strcpy(t, "/tmp/callsXXXXXX"), mkstemp(t)));
        unlink(t);
        REUSED((strcpy(t, "/tmp/callsXXXXXX"), mkstemp64(t)));
        unlink(t);
        REUSED((strcpy(t, "/tmp/callsXXXXXX"), mkostemp(t, 0)));
        unlink(t);
        REUSED((strcpy(t, "/tmp/callsXXXXXX"), mkostemp64(t, 0)));
        unlink(t);
        REUSED((snprintf(t, sizeof(t), "/calls%d", (int)getpid()), shm_open(t, O_RDWR | O_CREAT, 0600)));
        shm_unlink(t);
        REUSED((pipe(p), close(p[1]), p[0]));
        REUSED((__pipe(p), close(p[1]), p[0]));
        REUSED((pipe2(p, O_NONBLOCK), close(p[1]), p[0]));
        REUSED((socketpair(AF_UNIX, SOCK_STREAM, 0, p), close(p[1]), p[0]));
        REUSED(pidfd_open(getpid(), 0));
        (void)fanotify_init(FAN_CLASS_NOTIF, O_RDONLY);
}

/* ---- streams ---- */

static void stream(const char *what, FILE *fp, int was)
{
        char b[8];

        printf("  %s: %s, same number %d, fread %zu\n", what, fp ? "ok" : "no", fp && fileno(fp) == was,
               fp ? fread(b, 1, 0, fp) : 0);
        if (fp)
                fclose(fp);
}

static void scene_stdio(void)
{
        char line[32], b[32];
        int v[2], was;
        FILE *fp;
        DIR *d;

        tcp_pair(v);
        fp = fdopen(v[0], "r+");
        SHOW(fileno(fp) == v[0]);
        SHOW(fprintf(fp, "hello %d\n", 1));
        SHOW(fflush(fp));
        show_bytes("read", b, read(v[1], b, sizeof(b)) - 1);
        write(v[1], "one\ntwo\n", 8);
        SHOW(fgets(line, sizeof(line), fp) != NULL);
        show_bytes("line", line, 3);
        SHOW(fgets(line, sizeof(line), fp) != NULL);
        SHOW(dprintf(v[0], "%s", "printed"));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        SHOW(__dprintf_chk(v[0], 1, "%d", 42));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        SHOW(fclose(fp));
        SHOW(read(v[1], b, sizeof(b)));
        close(v[1]);
        SHOW(fcntl(v[0], F_GETFD));
#define STREAM(call)                              \
        do {                                      \
                was = gone_number();              \
                stream(#call, call, was);         \
        } while (0)
        STREAM(fopen("/dev/zero", "r"));
        STREAM(fopen64("/dev/zero", "r"));
        STREAM(tmpfile());
        STREAM(tmpfile64());
        STREAM(freopen("/dev/zero", "r", fopen("/dev/null", "r")));
        STREAM(freopen64("/dev/zero", "r", fopen("/dev/null", "r")));
        was = gone_number();
        fp = popen("true", "r");
        SHOW(fileno(fp) == was);
        SHOW(fread(b, 1, 1, fp));
        pclose(fp);
        was = gone_number();
        d = opendir("/");
        SHOW(dirfd(d) == was);
        SHOW(readdir(d) != NULL);
        closedir(d);
}

static void vprint(int fd, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        vdprintf(fd, format, ap);
        va_end(ap);
        va_start(ap, format);
        __vdprintf_chk(fd, 1, format, ap);
        va_end(ap);
}

static void scene_vdprintf(void)
{
        char b[32];
        int v[2];

        tcp_pair(v);
        vprint(v[0], "%d-", 7);
        show_bytes("recv", b, recv(v[1], b, 4, MSG_WAITALL));
        close2(v);
}

/* ---- sendfile, splice ---- */

static void scene_sendfile(void)
{
        char b[64];
        FILE *tmp = tmpfile();
        int in = fileno(tmp), v[2], p[2];
        off_t off = 2;
        off64_t off64 = 0;

        tcp_pair(v);
        write(in, "0123456789", 10);
        lseek(in, 1, SEEK_SET);
        SHOW(sendfile(v[0], in, NULL, 3));
        SHOW(lseek(in, 0, SEEK_CUR));
        SHOW(sendfile(v[0], in, &off, 4));
        SHOW(off);
        SHOW(lseek(in, 0, SEEK_CUR));
        SHOW(sendfile64(v[0], in, &off64, 100));
        SHOW(off64);
        SHOW(sendfile64(v[0], in, &off64, 100));
        show_bytes("recv", b, recv(v[1], b, 17, MSG_WAITALL));
        pipe(p);
        write(p[1], "through a pipe", 14);
        SHOW(splice(p[0], NULL, v[0], NULL, 64, 0));
        show_bytes("recv", b, recv(v[1], b, 14, MSG_WAITALL));
        write(v[1], "and back", 8);
        SHOW(splice(v[0], NULL, p[1], NULL, 64, SPLICE_F_MOVE));
        show_bytes("pipe", b, read(p[0], b, sizeof(b)));
        fcntl(v[0], F_SETFL, O_NONBLOCK);
        SHOW(splice(v[0], NULL, p[1], NULL, 64, SPLICE_F_NONBLOCK));
        close(p[0]);
        close(p[1]);
        fclose(tmp);
        close2(v);
}

/* ---- waiting ---- */

static void scene_poll(void)
{
        struct timespec ts = {0, 1000000};
        int v[2], p[2];
        struct pollfd f[4];
        char b[16];

        tcp_pair(v);
        pipe(p);
        f[0] = (struct pollfd){.fd = v[0], .events = POLLIN | POLLOUT};
        f[1] = (struct pollfd){.fd = v[1], .events = POLLIN};
        f[2] = (struct pollfd){.fd = p[0], .events = POLLIN};
        f[3] = (struct pollfd){.fd = -1, .events = POLLIN};
        SHOW(poll(f, 4, 0));
        SHOW(f[0].revents);
        SHOW(poll(f + 1, 2, 5));
        write(v[0], "x", 1);
        SHOW(poll(f + 1, 2, 1000));
        SHOW(f[1].revents);
        SHOW(f[2].revents);
        write(p[1], "y", 1);
        SHOW(ppoll(f + 2, 1, &ts, NULL));
        SHOW(__poll(f + 1, 1, 1000));
        SHOW(__poll_chk(f + 1, 1, 1000, sizeof(f[0])));
        SHOW(__ppoll_chk(f + 1, 1, &ts, NULL, sizeof(f[0])));
        read(v[1], b, sizeof(b));
        SHOW(ppoll(f + 1, 1, &ts, NULL));
        close(v[0]);
        wait_readable(v[1]);            /* the end has to get there */
        f[1].events = POLLIN | POLLRDHUP | POLLOUT;
        SHOW(poll(f + 1, 1, 1000));
        SHOW(f[1].revents);
        f[0].fd = 999;
        f[1].events = POLLPRI;
        SHOW(poll(f, 2, 0));
        SHOW(f[0].revents);
        close(v[1]);
        close(p[0]);
        close(p[1]);
}

/* One of ours is always ready: the kernel's must have their turn all the same. */
static bool select_meets_both(int ours, int other)
{
        fd_set r;

        for (int i = 0; i < 1000000; i++) {
                FD_ZERO(&r);
                FD_SET(ours, &r);
                FD_SET(other, &r);
                if (select((ours > other ? ours : other) + 1, &r, NULL, NULL, NULL) == 2)
                        return true;
        }
        return false;
}

static bool poll_meets_both(int ours, int other)
{
        struct pollfd f[2] = {{.fd = ours, .events = POLLIN}, {.fd = other, .events = POLLIN}};

        for (int i = 0; i < 1000000; i++)
                if (poll(f, 2, 1000) == 2)
                        return true;
        return false;
}

static void sets(fd_set *r, fd_set *w, int a, int b)
{
        FD_ZERO(r);
        FD_ZERO(w);
        FD_SET(a, r);
        FD_SET(b, r);
        FD_SET(a, w);
}

static void scene_select(void)
{
        struct timespec ts = {0, 1000000};
        struct timeval tv = {0, 1000};
        fd_set r, w;
        int v[2], p[2], n;

        tcp_pair(v);
        pipe(p);
        n = p[1] + 1;
        sets(&r, &w, v[1], p[0]);
        SHOW(select(n, &r, NULL, NULL, &tv));
        SHOW(tv.tv_sec + tv.tv_usec);
        sets(&r, &w, v[1], p[0]);
        SHOW(select(n, &r, &w, NULL, NULL));
        SHOW(FD_ISSET(v[1], &w) && !FD_ISSET(v[1], &r));
        write(v[0], "x", 1);
        usleep(10000);
        sets(&r, &w, v[1], p[0]);
        SHOW(select(n, &r, &w, NULL, NULL));
        SHOW(FD_ISSET(v[1], &r));
        write(p[1], "y", 1);
        sets(&r, &w, v[1], p[0]);
        SHOW(pselect(n, &r, NULL, NULL, &ts, NULL) >= 1);
        sets(&r, &w, v[1], p[0]);
        SHOW(__select(n, &r, NULL, NULL, NULL) >= 1);
        SHOW(select_meets_both(v[1], p[0]));
        SHOW(poll_meets_both(v[1], p[0]));
        close(p[0]);
        usleep(100);
        sets(&r, &w, v[0], p[0]);
        FD_CLR(v[0], &w);
        SHOW(select(n, &r, NULL, NULL, NULL));
        close(p[1]);
        close2(v);
}

static int by_data(const void *a, const void *b)
{
        const struct epoll_event *x = a, *y = b;

        return x->data.u64 < y->data.u64 ? -1 : x->data.u64 > y->data.u64;
}

static void show_events(const char *what, int ep, int timeout)
{
        struct epoll_event ev[8];
        int n = epoll_wait(ep, ev, 8, timeout);

        qsort(ev, n > 0 ? (size_t)n : 0, sizeof(ev[0]), by_data);
        printf("  %s: %d", what, n);
        for (int i = 0; i < n; i++)
                printf(" [%llu %x]", (unsigned long long)ev[i].data.u64, ev[i].events);
        printf("\n");
}

static int ctl(int ep, int op, int fd, uint32_t events, uint64_t data)
{
        struct epoll_event ev = {.events = events, .data.u64 = data};

        return epoll_ctl(ep, op, fd, &ev);
}

static void scene_epoll(void)
{
        struct epoll_event ev;
        struct timespec ts = {0, 1000000};
        struct pollfd pf;
        char b[16];
        int ep = epoll_create1(0), outer = epoll_create(5), other = epoll_create1(EPOLL_CLOEXEC), v[2], p[2], d;

        tcp_pair(v);
        pipe(p);
        SHOW(ctl(ep, EPOLL_CTL_ADD, v[1], EPOLLIN, 1));
        SHOW(ctl(ep, EPOLL_CTL_ADD, v[1], EPOLLIN, 1));
        SHOW(ctl(ep, EPOLL_CTL_MOD, v[0], EPOLLIN, 1));
        SHOW(ctl(ep, EPOLL_CTL_DEL, v[0], 0, 0));
        SHOW(ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 2));
        SHOW(ctl(other, EPOLL_CTL_ADD, v[1], EPOLLIN | EPOLLOUT, 9));
        show_events("nothing", ep, 5);
        write(v[0], "x", 1);
        show_events("level", ep, 1000);
        show_events("level again", ep, 1000);
        show_events("in a second set", other, 1000);
        pf = (struct pollfd){.fd = ep, .events = POLLIN};
        SHOW(poll(&pf, 1, 0));
        SHOW(ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN, 7));
        show_events("nested", outer, 1000);
        read(v[1], b, sizeof(b));
        SHOW(poll(&pf, 1, 0));
        show_events("nested, nothing", outer, 5);
        write(p[1], "y", 1);
        show_events("kernel's", ep, 1000);
        read(p[0], b, sizeof(b));
        SHOW(ctl(ep, EPOLL_CTL_MOD, v[1], EPOLLIN | EPOLLET, 3));
        write(v[0], "1", 1);
        show_events("edge", ep, 1000);
        show_events("no edge", ep, 5);
        write(v[0], "2", 1);
        show_events("another edge", ep, 1000);
        SHOW(ctl(ep, EPOLL_CTL_MOD, v[1], EPOLLIN | EPOLLET, 4));
        show_events("re-armed", ep, 1000);
        SHOW(ctl(ep, EPOLL_CTL_MOD, v[1], EPOLLIN | EPOLLONESHOT, 5));
        show_events("one shot", ep, 1000);
        show_events("shot", ep, 5);
        SHOW(ctl(ep, EPOLL_CTL_MOD, v[1], EPOLLIN | EPOLLOUT | EPOLLONESHOT, 6));
        show_events("one shot, both", ep, 1000);
        read(v[1], b, sizeof(b));
        SHOW(ctl(ep, EPOLL_CTL_MOD, v[1], EPOLLIN | EPOLLRDHUP, 6));
        d = dup(v[1]);
        SHOW(ctl(ep, EPOLL_CTL_ADD, d, EPOLLIN, 8));
        shutdown(v[0], SHUT_WR);
        usleep(10000);
        show_events("end of stream, twice", ep, 1000);
        SHOW(epoll_pwait(ep, &ev, 1, 1000, NULL));
        SHOW(epoll_pwait2(ep, &ev, 1, &ts, NULL));
        SHOW(epoll_wait(ep, &ev, 0, 0));
        SHOW(epoll_wait(999, &ev, 1, 0));
        close(v[1]);
        show_events("its duplicate holds it", ep, 1000);
        close(d);
        show_events("closed", ep, 5);
        SHOW(ctl(ep, EPOLL_CTL_ADD, v[0], EPOLLIN | EPOLLEXCLUSIVE, 10));
        SHOW(ctl(ep, EPOLL_CTL_MOD, v[0], EPOLLIN, 10));
        SHOW(ctl(ep, EPOLL_CTL_DEL, v[0], 0, 0));
        SHOW(ctl(ep, EPOLL_CTL_DEL, v[0], 0, 0));
        SHOW(ctl(ep, 77, p[0], 0, 0));
        close(v[0]);
        close(ep);
        close(outer);
        close(other);
        close(p[0]);
        close(p[1]);
}

static void scene_epoll_before_connect(void)
{
        struct sockaddr_in sa;
        int l = listener(&sa), s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), ep = epoll_create1(0), c;

        SHOW(ctl(ep, EPOLL_CTL_ADD, l, EPOLLIN, 1));
        SHOW(ctl(ep, EPOLL_CTL_ADD, s, EPOLLOUT | EPOLLIN | EPOLLET, 2));
        show_events("unconnected", ep, 10);
        (void)connect(s, (void *)&sa, sizeof(sa));
        usleep(20000);
        show_events("connected", ep, 1000);
        c = accept(l, NULL, NULL);
        show_events("accepted", ep, 10);
        write(c, "x", 1);
        show_events("data", ep, 1000);
        close(c);
        close(s);
        close(l);
        show_events("all closed", ep, 5);
        close(ep);
}

/* ---- signals ---- */

static volatile sig_atomic_t order[8], norder;

static void note(int sig, siginfo_t *info, void *uc)
{
        (void)info;
        (void)uc;
        if (norder < 8)
                order[norder++] = sig;
}

static void alarm_in_ms(int ms)
{
        struct itimerval it = {.it_value = {ms / 1000, ms % 1000 * 1000}};

        setitimer(ITIMER_REAL, &it, NULL);
}

static sigjmp_buf jump;

static void jump_out(int sig)
{
        siglongjmp(jump, sig);
}

static void scene_signals(void)
{
        struct sigaction sa = {.sa_sigaction = note, .sa_flags = SA_SIGINFO}, old;
        struct timeval tv = {5, 0};
        struct pollfd pf;
        char b[8];
        int v[2];

        tcp_pair(v);
        SHOW(sigaction(SIGALRM, &sa, NULL));
        SHOW(sigaction(SIGALRM, NULL, &old));
        SHOW(old.sa_sigaction == note && (old.sa_flags & ~RESTORER) == SA_SIGINFO);
        SHOW(__sigaction(SIGALRM, &sa, &old));
        SHOW(old.sa_sigaction == note);
        alarm_in_ms(20);
        SHOW(read(v[1], b, sizeof(b)));
        SHOW(norder);
        pf = (struct pollfd){.fd = v[1], .events = POLLIN};
        alarm_in_ms(20);
        SHOW(poll(&pf, 1, 5000));
        sa.sa_flags = SA_SIGINFO | SA_RESTART;
        sigaction(SIGALRM, &sa, NULL);
        alarm_in_ms(20);
        SHOW(poll(&pf, 1, 5000));
        setsockopt(v[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        alarm_in_ms(20);
        SHOW(read(v[1], b, sizeof(b)));
        tv.tv_sec = 0;
        setsockopt(v[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        if (fork() == 0) {
                usleep(50000);
                write(v[0], "late", 4);
                _exit(0);
        }
        alarm_in_ms(20);
        SHOW(read(v[1], b, sizeof(b)));
        SHOW(norder);
        wait(NULL);
        signal(SIGALRM, jump_out);
        for (volatile int i = 0; i < 3; i++) {
                int sig = sigsetjmp(jump, 1);

                if (sig == 0) {
                        alarm_in_ms(10);
                        read(v[1], b, sizeof(b));
                }
                printf("  jumped %d\n", sig == SIGALRM);
        }
        SHOW(write(v[0], "after", 5));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        sa = (struct sigaction){.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
        sigaction(SIGALRM, &sa, NULL);
        alarm_in_ms(10);
        SHOW(read(v[1], b, sizeof(b)));
        sigaction(SIGALRM, NULL, &old);
        SHOW(old.sa_handler == SIG_DFL);
        close2(v);
}

static void scene_signal_calls(void)
{
        sigset_t mask, empty;
        struct timespec ts = {5, 0};
        struct sigaction old;
        struct pollfd pf;
        int v[2];

        tcp_pair(v);
        SHOW(signal(SIGUSR1, on_signal) == SIG_DFL);
        SHOW(bsd_signal(SIGUSR1, on_signal) == on_signal);
        SHOW(ssignal(SIGUSR1, on_signal) == on_signal);
        SHOW(sysv_signal(SIGUSR1, on_signal) == on_signal);
        sigaction(SIGUSR1, NULL, &old);
        SHOW(((unsigned)old.sa_flags & (SA_RESETHAND | SA_NODEFER)) == (SA_RESETHAND | SA_NODEFER));
        SHOW(signal(SIGUSR1, SIG_IGN) == on_signal);
        SHOW(signal(SIGUSR1, on_signal) == SIG_IGN);
        SHOW(signal(SIGKILL, on_signal) == SIG_ERR);
        SHOW(signal(1234, on_signal) == SIG_ERR);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        SHOW(siginterrupt(SIGUSR1, 1));
        sigaction(SIGUSR1, NULL, &old);
        SHOW(old.sa_flags & SA_RESTART);
        SHOW(siginterrupt(SIGUSR1, 0));
        SHOW(sigset(SIGUSR1, SIG_HOLD) == on_signal);
        SHOW(sigset(SIGUSR1, on_signal) == SIG_HOLD);
        SHOW(sigignore(SIGUSR1));
#pragma GCC diagnostic pop
        SHOW(signal(SIGUSR1, on_signal) == SIG_IGN);
        sigemptyset(&empty);
        sigemptyset(&mask);
        sigaddset(&mask, SIGUSR1);
        sigprocmask(SIG_BLOCK, &mask, NULL);
        got = 0;
        raise(SIGUSR1);
        pf = (struct pollfd){.fd = v[1], .events = POLLIN};
        SHOW(poll(&pf, 1, 10));
        SHOW(got);
        SHOW(ppoll(&pf, 1, &ts, &empty));
        SHOW(got == SIGUSR1);
        sigprocmask(SIG_BLOCK, NULL, &mask);
        SHOW(sigismember(&mask, SIGUSR1));
        got = 0;
        write(v[0], "x", 1);
        usleep(10000);
        raise(SIGUSR1);
        SHOW(ppoll(&pf, 1, &ts, &empty));
        sigemptyset(&mask);
        sigprocmask(SIG_SETMASK, &mask, NULL);
        SHOW(got == SIGUSR1);
        signal(SIGUSR1, SIG_DFL);
        close2(v);
}

/* ---- processes ---- */

static void scene_fork(void)
{
        char b[16];
        int v[2];

        tcp_pair(v);
        fflush(stdout);
        if (fork() == 0) {
                close(v[1]);
                write(v[0], "child", 5);
                _exit(0);
        }
        wait(NULL);
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        SHOW(write(v[0], "parent", 6));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        if (_Fork() == 0) {
                write(v[0], "other", 5);
                _Exit(0);
        }
        wait(NULL);
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        if (vfork() == 0)
                _exit(7);
        wait(NULL);
        if (fork() == 0) {
                close(v[0]);
                exit(0);
        }
        close(v[0]);
        SHOW(read(v[1], b, sizeof(b)));
        wait(NULL);
        close(v[1]);
}

/* An attempt that came to nothing is told once; then the socket may try again. */
static void scene_connect_failed(void)
{
        struct sockaddr_in gone, there;
        struct pollfd p = {.events = POLLOUT};
        int first = listener(&gone), second = listener(&there), err;
        socklen_t len = sizeof(err);

        p.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        SHOW(connect(p.fd, (void *)&gone, sizeof(gone)));
        close(first);
        SHOW(poll(&p, 1, 1000));
        printf("  failed: %s\n", getsockopt(p.fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err != 0 ? "yes" : "no");
        SHOW(connect(p.fd, (void *)&there, sizeof(there)));
        SHOW(connect(p.fd, (void *)&there, sizeof(there)));
        SHOW(poll(&p, 1, 1000));
        SHOW(connect(p.fd, (void *)&there, sizeof(there)));
        SHOW(connect(p.fd, (void *)&there, sizeof(there)));
        SHOW(fcntl(p.fd, F_GETFL) & O_NONBLOCK);
        close(p.fd);
        close(second);
}

/* O_NONBLOCK is of the open file: what one process sets the other has. */
static void scene_nonblock_shared(void)
{
        struct sockaddr_in sa;
        int v[2], s[3];
        char b;

        tcp_pair(v);
        s[0] = v[1];
        s[1] = listener(&sa);
        s[2] = udp_socket(&sa);
        fflush(stdout);
        for (int i = 0; i < 3; i++) {
                int d = dup(s[i]);

                if (fork() == 0) {
                        if (i == 1)
                                ioctl(d, FIONBIO, &(int){1});
                        else
                                fcntl(s[i], F_SETFL, O_NONBLOCK);
                        exit(0);
                }
                wait(NULL);
                printf("  %d: %s\n", i, fcntl(s[i], F_GETFL) & O_NONBLOCK ? "non-blocking" : "blocking");
                if (i == 1)
                        SHOW(accept(d, NULL, NULL));
                else
                        SHOW(recv(d, &b, 1, 0));
                close(d);
                close(s[i]);
        }
        close(v[0]);
}

/* The new image echoes once; a listener it inherits says whether it is non-blocking. */
static void child_of_exec(int fd)
{
        char b[16];
        ssize_t n;
        int v = 0;
        socklen_t len = sizeof(v);

        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &v, &len);
        if (v) {
                printf("  listener: %s\n", fcntl(fd, F_GETFL) & O_NONBLOCK ? "non-blocking" : "blocking");
                fd = accept(fd, NULL, NULL);
        }
        n = read(fd, b, sizeof(b));
        if (n > 0)
                write(fd, b, (size_t)n);
        exit(0);
}

/* The new image closes what it inherited, and stays. */
static void closer_of_exec(int fd)
{
        char b;

        if (read(fd, &b, 1) == 1)
                close(fd);
        sleep(20);
        exit(1);
}

extern char **environ;
static const char *self;

static void exec_as(int how, const char *num)
{
        char *argv[] = {(char *)self, (char *)"--child", (char *)num, NULL};
        int fd;

        switch (how) {
        case 0:
                execv(self, argv);
                break;
        case 1:
                execve(self, argv, environ);
                break;
        case 2:
                execvp(self, argv);
                break;
        case 3:
                execvpe(self, argv, environ);
                break;
        case 4:
                execl(self, self, "--child", num, NULL);
                break;
        case 5:
                execlp(self, self, "--child", num, NULL);
                break;
        case 6:
                execle(self, self, "--child", num, NULL, environ);
                break;
        case 7:
                fd = open(self, O_RDONLY | O_CLOEXEC);
                fexecve(fd, argv, environ);
                break;
        case 8:
                execveat(AT_FDCWD, self, argv, environ, 0);
                break;
        case 9:
                posix_spawn(&fd, self, NULL, NULL, argv, environ);
                waitpid(fd, NULL, 0);
                _exit(0);
        case 10:
                posix_spawnp(&fd, self, NULL, NULL, argv, environ);
                waitpid(fd, NULL, 0);
                _exit(0);
        }
        _exit(1);
}

static void scene_exec(void)
{
        char b[16], num[16];
        int v[2];

        for (int how = 0; how <= 10; how++) {
                tcp_pair(v);
                fcntl(v[0], F_SETFD, FD_CLOEXEC);
                snprintf(num, sizeof(num), "%d", v[1]);
                fflush(stdout);
                if (fork() == 0)
                        exec_as(how, num);
                write(v[0], "echo", 4);
                printf("  %d:", how);
                show_bytes("came back", b, read(v[0], b, sizeof(b)));
                wait(NULL);
                close2(v);
        }
}

/* When the peer of a socket sees the end, after the process that has it became another program: at once when it was
 * close-on-exec, or when the new image closes it; with the process when it does neither. */
static void scene_exec_ends(void)
{
        char b[4], num[16];

        for (int how = 0; how < 6; how++) {
                struct pollfd p = {.events = POLLIN};
                int v[2];
                pid_t pid;

                tcp_pair(v);
                p.fd = v[0];
                fcntl(v[0], F_SETFD, FD_CLOEXEC);
                fcntl(v[1], F_SETFD, how < 2 ? FD_CLOEXEC : 0);
                snprintf(num, sizeof(num), "%d", v[1]);
                fflush(stdout);
                pid = fork();
                if (pid == 0) {
                        char *argv[] = {(char *)"sleep", (char *)"20", NULL};

                        write(v[1], "abc", 3);
                        execl("/nonexistent", "x", NULL);
                        write(v[1], "d", 1);
                        if (how < 4 && how % 2 == 0)
                                execl("/bin/sleep", "sleep", "20", NULL);
                        else if (how < 4)
                                syscall(SYS_execve, "/bin/sleep", argv, environ);
                        else
                                execl(self, self, "--closer", num, NULL);
                        _exit(1);
                }
                close(v[1]);
                printf("  %d:", how);
                show_bytes("came", b, recv(v[0], b, 4, MSG_WAITALL));
                if (how >= 2) {
                        SHOW(poll(&p, 1, 300));
                        if (how < 4)
                                kill(pid, SIGKILL);
                        else
                                write(v[0], "x", 1);
                }
                SHOW(poll(&p, 1, 1000));
                SHOW(read(v[0], b, 1));
                kill(pid, SIGKILL);
                waitpid(pid, NULL, 0);
                close(v[0]);
        }
}

static void scene_exec_listener(void)
{
        struct sockaddr_in sa;
        char b[16], num[16];

        for (int nonblock = 0; nonblock < 2; nonblock++) {
                int l = listener(&sa), s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

                fcntl(l, F_SETFL, nonblock ? O_NONBLOCK : 0);
                connect(s, (void *)&sa, sizeof(sa));
                snprintf(num, sizeof(num), "%d", l);
                fflush(stdout);
                if (fork() == 0)
                        exec_as(1, num);
                write(s, "echo", 4);
                wait(NULL);
                show_bytes("came back", b, read(s, b, sizeof(b)));
                close(s);
                close(l);
        }
}

static void scene_daemon(void)
{
        char b[16];
        int v[2];

        tcp_pair(v);
        fflush(stdout);
        if (fork() == 0) {
                dup2(v[0], 1);
                daemon(1, 0);
                write(1, "to /dev/null", 12);
                write(v[0], "from the daemon", 15);
                _exit(0);
        }
        wait(NULL);
        show_bytes("read", b, recv(v[1], b, 15, MSG_WAITALL));
        close2(v);
}

static void scene_quick_exit(void)
{
        char b[16];
        int v[2];

        tcp_pair(v);
        fflush(stdout);
        if (fork() == 0) {
                write(v[0], "quick", 5);
                quick_exit(0);
        }
        wait(NULL);
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        close2(v);
}

static int goodbye_fd;

static void goodbye(void)
{
        write(goodbye_fd, "goodbye", 7);
}

static void scene_atexit(void)
{
        char b[16];
        int v[2];

        fflush(stdout);
        if (pipe(v) == 0 && fork() == 0) {
                struct sockaddr_in sa;
                int l;

                atexit(goodbye);        /* before the first socket of this process */
                l = listener(&sa);
                goodbye_fd = socket(AF_INET, SOCK_STREAM, 0);
                connect(goodbye_fd, (void *)&sa, sizeof(sa));
                if (fork() == 0) {
                        ssize_t n = recv(accept(l, NULL, NULL), b, 7, MSG_WAITALL);

                        write(v[1], b, n > 0 ? (size_t)n : 0);
                        _exit(0);
                }
                exit(0);
        }
        wait(NULL);
        show_bytes("read", b, read(v[0], b, sizeof(b)));
        close2(v);
}

static void *writer(void *arg)
{
        int fd = *(int *)arg;
        char c = 'a';

        for (int i = 0; i < 26; i++, c++)
                write(fd, &c, 1);
        return NULL;
}

static void scene_threads(void)
{
        pthread_t t;
        char b[26];
        int v[2];

        tcp_pair(v);
        pthread_create(&t, NULL, writer, &v[0]);
        show_bytes("recv", b, recv(v[1], b, sizeof(b), MSG_WAITALL));
        pthread_join(t, NULL);
        close2(v);
}

/* Four threads serve one epoll set, one event each time; four others come and go. */
#define CHURN 200

static struct sockaddr_in churn_at;
static int churn_listener, churn_set;
static _Atomic int churn_ended;

static void *churn_client(void *arg)
{
        char b[1000];

        for (int i = 0; i < CHURN / 4; i++) {
                int s = socket(AF_INET, SOCK_STREAM, 0), d;
                ssize_t n = 0, r = 1;

                connect(s, (void *)&churn_at, sizeof(churn_at));
                write(s, b, sizeof(b));
                while (r > 0 && n < (ssize_t)sizeof(b)) {
                        wait_readable(s);
                        r = read(s, b, sizeof(b));
                        n += r;
                }
                if (n != (ssize_t)sizeof(b))
                        printf("  short: %zd\n", n);
                d = dup(s);
                close(s);
                close(d);
        }
        return arg;
}

static void churn_event(int fd)
{
        char b[4096];
        ssize_t n;
        int s;

        if (fd == churn_listener) {
                s = accept4(fd, NULL, NULL, SOCK_NONBLOCK);
                if (s >= 0)
                        ctl(churn_set, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLONESHOT | EPOLLET, (uint64_t)s);
                return;
        }
        while ((n = read(fd, b, sizeof(b))) > 0)
                write(fd, b, (size_t)n);
        if (n == 0) {
                close(fd);
                churn_ended++;
        } else {
                ctl(churn_set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT | EPOLLET, (uint64_t)fd);
        }
}

static void *churn_server(void *arg)
{
        struct epoll_event ev[8];

        while (churn_ended < CHURN)
                for (int n = epoll_wait(churn_set, ev, 8, 100); n > 0; n--)
                        churn_event((int)ev[n - 1].data.u64);
        return arg;
}

static void scene_epoll_threads(void)
{
        pthread_t t[8];

        churn_listener = listener(&churn_at);
        fcntl(churn_listener, F_SETFL, O_NONBLOCK);
        churn_set = epoll_create1(0);
        ctl(churn_set, EPOLL_CTL_ADD, churn_listener, EPOLLIN, (uint64_t)churn_listener);
        for (int i = 0; i < 8; i++)
                pthread_create(&t[i], NULL, i < 4 ? churn_server : churn_client, NULL);
        for (int i = 0; i < 8; i++)
                pthread_join(t[i], NULL);
        SHOW(churn_ended);
        close(churn_set);
        close(churn_listener);
}

static void *blocked_reader(void *arg)
{
        char b[8];

        read(*(int *)arg, b, sizeof(b));
        return NULL;
}

static void scene_cancel(void)
{
        pthread_t t;
        void *ret;
        int v[2];

        tcp_pair(v);
        pthread_create(&t, NULL, blocked_reader, &v[0]);
        usleep(20000);
        SHOW(pthread_cancel(t));
        SHOW(pthread_join(t, &ret));
        SHOW(ret == PTHREAD_CANCELED);
        close2(v);
}

/* ---- by number ---- */

static void scene_syscall(void)
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

/* ---- both families ---- */

static void scene_dual(void)
{
        struct sockaddr_in6 any = {.sin6_family = AF_INET6}, sa6;
        struct sockaddr_in sa;
        socklen_t len = sizeof(any);
        char text[64], b[8];
        int l = socket(AF_INET6, SOCK_STREAM, 0), s, c;

        SHOW(bind(l, (void *)&any, sizeof(any)));
        SHOW(listen(l, 5));
        getsockname(l, (void *)&any, &len);
        s = socket(AF_INET, SOCK_STREAM, 0);
        sa = loopback();
        sa.sin_port = any.sin6_port;
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        len = sizeof(sa6);
        c = accept(l, (void *)&sa6, &len);
        printf("  peer %s, %u\n", inet_ntop(AF_INET6, &sa6.sin6_addr, text, sizeof(text)), (unsigned)len);
        len = sizeof(sa6);
        getsockname(c, (void *)&sa6, &len);
        printf("  own %s, %u\n", inet_ntop(AF_INET6, &sa6.sin6_addr, text, sizeof(text)), (unsigned)len);
        SHOW_OPT(c, SOL_SOCKET, SO_DOMAIN);
        SHOW_OPT(s, SOL_SOCKET, SO_DOMAIN);
        write(s, "x", 1);
        SHOW(read(c, b, sizeof(b)));
        close(s);
        close(c);
        s = socket(AF_INET6, SOCK_STREAM, 0);
        sa6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = any.sin6_port};
        inet_pton(AF_INET6, "::ffff:127.0.0.1", &sa6.sin6_addr);
        SHOW(connect(s, (void *)&sa6, sizeof(sa6)));
        c = accept(l, NULL, NULL);
        len = sizeof(sa6);
        getpeername(s, (void *)&sa6, &len);
        printf("  peer %s\n", inet_ntop(AF_INET6, &sa6.sin6_addr, text, sizeof(text)));
        close(s);
        close(c);
        close(l);
}

static void scene_dual_udp(void)
{
        struct sockaddr_in6 any = {.sin6_family = AF_INET6}, sa6, from6;
        struct sockaddr_in sa, from;
        socklen_t len = sizeof(any);
        char text[64], b[16];
        int s = socket(AF_INET6, SOCK_DGRAM, 0), t = socket(AF_INET, SOCK_DGRAM, 0), u = socket(AF_INET6, SOCK_DGRAM, 0);

        SHOW(bind(s, (void *)&any, sizeof(any)));
        getsockname(s, (void *)&any, &len);
        sa = loopback();
        sa.sin_port = any.sin6_port;
        SHOW(sendto(t, "four", 4, 0, (void *)&sa, sizeof(sa)));
        len = sizeof(from6);
        show_bytes("recvfrom", b, recvfrom(s, b, sizeof(b), 0, (void *)&from6, &len));
        printf("  from %s, %u\n", inet_ntop(AF_INET6, &from6.sin6_addr, text, sizeof(text)), (unsigned)len);
        SHOW(sendto(s, "back", 4, 0, (void *)&from6, len));
        len = sizeof(from);
        show_bytes("recvfrom", b, recvfrom(t, b, sizeof(b), 0, (void *)&from, &len));
        printf("  from %s, %u\n", inet_ntop(AF_INET, &from.sin_addr, text, sizeof(text)), (unsigned)len);
        sa6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = any.sin6_port};
        inet_pton(AF_INET6, "::ffff:127.0.0.1", &sa6.sin6_addr);
        SHOW(connect(u, (void *)&sa6, sizeof(sa6)));
        SHOW(send(u, "mapped", 6, 0));
        show_bytes("recv", b, recv(s, b, sizeof(b), 0));
        inet_pton(AF_INET6, "::1", &sa6.sin6_addr);
        SHOW(connect(u, (void *)&sa6, sizeof(sa6)));
        SHOW(send(u, "six", 3, 0));
        show_bytes("recv", b, recv(s, b, sizeof(b), 0));
        close(s);
        close(t);
        close(u);
}

static void scene_reuse_same_port(void)
{
        struct sockaddr_in sa;
        int l = listener(&sa), s, c, on = 1;

        for (int i = 0; i < 3; i++) {
                s = socket(AF_INET, SOCK_STREAM, 0);
                SHOW(connect(s, (void *)&sa, sizeof(sa)));
                c = accept(l, NULL, NULL);
                close(c);
                close(s);
                close(l);
                l = socket(AF_INET, SOCK_STREAM, 0);
                setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
                SHOW(bind(l, (void *)&sa, sizeof(sa)));
                SHOW(listen(l, 1));
        }
        c = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(bind(c, (void *)&sa, sizeof(sa)));
        close(c);
        close(l);
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        l = listener(&sa);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        close(s);
        close(l);
}

/* A descriptor sent to ourselves is another number of the same connection. */
static void scene_rights(void)
{
        union {
                struct cmsghdr h;
                char room[CMSG_SPACE(sizeof(int))];
        } c = {.h = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
        char x = 'x', b[8];
        struct iovec iov = {&x, 1};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};
        int u[2], v[2], fd;

        tcp_pair(v);
        write_much(v[0]);
        for (int i = 0; i < 10; i++)
                read_some(v[1], i * 10, 10, 0);
        socketpair(AF_UNIX, SOCK_STREAM, 0, u);
        memcpy(CMSG_DATA(&c.h), &v[1], sizeof(int));
        SHOW(sendmsg(u[0], &m, 0));
        read_some(v[1], 100, 10, 0);
        read_some(v[1], 110, 10, 0);
        SHOW(recvmsg(u[1], &m, 0));
        memcpy(&fd, CMSG_DATA(&c.h), sizeof(int));
        SHOW(fd != v[1]);
        read_some(fd, 120, 10, 0);
        read_some(v[1], 130, 10, 0);
        read_some(fd, 140, MUCH - 140, MSG_WAITALL);
        SHOW(write(v[0], "pass", 4));
        show_bytes("read", b, read(fd, b, sizeof(b)));
        close(v[1]);
        SHOW(write(fd, "back", 4));
        show_bytes("read", b, read(v[0], b, sizeof(b)));
        close(fd);
        SHOW(read(v[0], b, sizeof(b)));
        close(v[0]);
        close2(u);
}

/* Whoever passes a socket on closes his own at once; it lives in the message. Received late, or never. */
static void scene_rights_in_flight(void)
{
        union {
                struct cmsghdr h;
                char room[CMSG_SPACE(sizeof(int))];
        } c = {.h = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
        char x = 'x', b[8];
        struct iovec iov = {&x, 1};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};
        int u[2], v[2], fd;

        for (int lost = 0; lost < 2; lost++) {
                struct pollfd p = {.events = POLLIN};

                tcp_pair(v);
                p.fd = v[0];
                write(v[0], "before", 6);
                socketpair(AF_UNIX, SOCK_STREAM, 0, u);
                memcpy(CMSG_DATA(&c.h), &v[1], sizeof(int));
                m.msg_controllen = sizeof(c);
                SHOW(sendmsg(u[0], &m, 0));
                SHOW(close(v[1]));
                SHOW(poll(&p, 1, 700));
                if (!lost) {
                        SHOW(recvmsg(u[1], &m, 0));
                        memcpy(&fd, CMSG_DATA(&c.h), sizeof(int));
                        show_bytes("read", b, read(fd, b, sizeof(b)));
                        SHOW(write(fd, "after", 5));
                        show_bytes("read", b, read(v[0], b, sizeof(b)));
                        SHOW(close(fd));
                }
                close2(u);
                SHOW(poll(&p, 1, 5000));
                if (!lost)
                        SHOW(read(v[0], b, sizeof(b)));
                close(v[0]);
        }
}

/* The sender ends before the message is received; it was the only process of its stack. */
static void scene_rights_outlive(void)
{
        union {
                struct cmsghdr h;
                char room[CMSG_SPACE(sizeof(int))];
        } c = {.h = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
        char x = 'x', b[8];
        struct iovec iov = {&x, 1};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};
        struct sockaddr_in sa;
        int u[2], s, fd;

        socketpair(AF_UNIX, SOCK_STREAM, 0, u);
        fflush(stdout);
        if (fork() == 0) {
                int l = listener(&sa);

                write(u[0], &sa, sizeof(sa));
                s = accept(l, NULL, NULL);
                memcpy(CMSG_DATA(&c.h), &s, sizeof(int));
                sendmsg(u[0], &m, 0);
                _exit(0);
        }
        read(u[1], &sa, sizeof(sa));
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        wait(NULL);
        usleep(1500000);
        SHOW(write(s, "there", 5));
        SHOW(recvmsg(u[1], &m, 0));
        memcpy(&fd, CMSG_DATA(&c.h), sizeof(int));
        show_bytes("read", b, read(fd, b, sizeof(b)));
        SHOW(write(fd, "back", 4));
        show_bytes("read", b, read(s, b, sizeof(b)));
        close(fd);
        SHOW(read(s, b, sizeof(b)));
        close(s);
        close2(u);
}

static const struct {
        const char *name;
        void (*run)(void);
} scenes[] = {
        {"small_reads", scene_small_reads},
        {"read_write", scene_read_write},
        {"vectors", scene_vectors},
        {"flags", scene_flags},
        {"ends", scene_ends},
        {"sigpipe", scene_sigpipe},
        {"udp", scene_udp},
        {"connect", scene_connect},
        {"bound_connect", scene_bound_connect},
        {"connect_again", scene_connect_again},
        {"accept_flags", scene_accept_flags},
        {"options", scene_options},
        {"ioctl", scene_ioctl},
        {"timeouts", scene_timeouts},
        {"dup", scene_dup},
        {"close_range", scene_close_range},
        {"new_numbers", scene_new_numbers},
        {"stdio", scene_stdio},
        {"vdprintf", scene_vdprintf},
        {"sendfile", scene_sendfile},
        {"poll", scene_poll},
        {"select", scene_select},
        {"epoll", scene_epoll},
        {"epoll_before_connect", scene_epoll_before_connect},
        {"signals", scene_signals},
        {"signal_calls", scene_signal_calls},
        {"fork", scene_fork},
        {"connect_failed", scene_connect_failed},
        {"nonblock_shared", scene_nonblock_shared},
        {"exec", scene_exec},
        {"exec_ends", scene_exec_ends},
        {"exec_listener", scene_exec_listener},
        {"daemon", scene_daemon},
        {"quick_exit", scene_quick_exit},
        {"atexit", scene_atexit},
        {"threads", scene_threads},
        {"epoll_threads", scene_epoll_threads},
        {"cancel", scene_cancel},
        {"syscall", scene_syscall},
        {"dual", scene_dual},
        {"dual_udp", scene_dual_udp},
        {"reuse_same_port", scene_reuse_same_port},
        {"rights", scene_rights},
        {"rights_in_flight", scene_rights_in_flight},
        {"rights_outlive", scene_rights_outlive},
};

static bool chosen(const char *name, int argc, char **argv)
{
        for (int i = 1; i < argc; i++)
                if (!strcmp(argv[i], name))
                        return true;
        return argc == 1;
}

int main(int argc, char **argv)
{
        if (argc == 3 && !strcmp(argv[1], "--child"))
                child_of_exec(atoi(argv[2]));
        if (argc == 3 && !strcmp(argv[1], "--closer"))
                closer_of_exec(atoi(argv[2]));
        self = argv[0];
        setvbuf(stdout, NULL, _IOLBF, 0);
        for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
                if (!chosen(scenes[i].name, argc, argv))
                        continue;
                printf("%s\n", scenes[i].name);
                scenes[i].run();
        }
        return 0;
}
