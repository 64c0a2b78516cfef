/* Corners of the calls in which stacks differ: urgent data, buffers that are full, names that a
 * socket does not take. */
#include "tests/shim/calls.h"

#include <linux/sockios.h>

/* ---- urgent data ---- */

static void show_mark(int fd)
{
        int n = 0;

        ioctl(fd, FIONREAD, &n);
        printf("  at mark %d, %d to read, events %x\n", sockatmark(fd), n,
               (unsigned)ready_events(fd));
}

void scene_urgent(void)
{
        int v[2], on = 1;

        tcp_pair(v);
        setsockopt(v[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        SHOW(send(v[0], "abc", 3, 0));
        SHOW(send(v[0], "X", 1, MSG_OOB));
        SHOW(send(v[0], "def", 3, 0));
        wait_events(v[1], POLLPRI);
        show_mark(v[1]);
        show_recv(v[1], 64, MSG_PEEK);
        show_recv(v[1], 2, 0);
        show_recv(v[1], 64, 0);
        show_mark(v[1]);
        show_recv(v[1], 1, MSG_OOB | MSG_PEEK);
        show_recv(v[1], 1, MSG_OOB);
        SHOW(recv(v[1], (char[1]){0}, 1, MSG_OOB));
        show_recv(v[1], 3, MSG_WAITALL);
        show_mark(v[1]);
        SHOW(recv(v[1], (char[1]){0}, 1, MSG_OOB));
        /* One that nobody takes is gone when it has been read past. */
        SHOW(send(v[0], "12Y", 3, MSG_OOB));
        SHOW(send(v[0], "34", 2, 0));
        wait_events(v[1], POLLPRI);
        show_recv(v[1], 64, 0);
        show_recv(v[1], 2, MSG_WAITALL);
        SHOW(recv(v[1], (char[1]){0}, 1, MSG_OOB));
        /* There is one byte, whatever is asked for, and no error is kept. */
        SHOW(send(v[0], "Z", 1, MSG_OOB));
        wait_events(v[1], POLLPRI);
        show_recv(v[1], 2, MSG_OOB | MSG_WAITALL);
        SHOW(send(v[0], "5", 1, 0));
        show_recv(v[1], 64, 0);
        /* In line. */
        setsockopt(v[1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on));
        SHOW(send(v[0], "ghI", 3, MSG_OOB));
        wait_events(v[1], POLLPRI);
        SHOW(recv(v[1], (char[1]){0}, 1, MSG_OOB));
        show_recv(v[1], 64, 0);
        show_mark(v[1]);
        show_recv(v[1], 64, 0);
        show_mark(v[1]);
        close2(v);
}

/* MSG_PEEK with MSG_WAITALL, whose time is over. */
/* Small writes one after the other are all there at once, for whoever counts or peeks. */
void scene_small_writes(void)
{
        int v[2], there, unsent;
        char b[64];

        tcp_pair(v);
        for (int i = 1; i < 6; i++) {
                write(v[0], "abc", 3);
                if (i > 2)
                        wait_readable(v[1]);
                ioctl(v[1], FIONREAD, &there);
                ioctl(v[0], SIOCOUTQ, &unsent);
                printf("  %d writes: %d there, %d not acknowledged\n", i, there, unsent);
        }
        for (int i = 6; i < 10; i++) {
                write(v[0], "abc", 3);
                SHOW(recv(v[1], b, sizeof(b), MSG_PEEK | MSG_DONTWAIT));
        }
        SHOW(read(v[1], b, sizeof(b)));
        close2(v);
}

void scene_peek_all_late(void)
{
        struct timeval tv = {0, 100000};
        int v[2];

        tcp_pair(v);
        setsockopt(v[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        SHOW(write(v[0], "some", 4));
        wait_bytes(v[1], 4);
        show_recv(v[1], 8, MSG_PEEK | MSG_WAITALL);
        show_recv(v[1], 8, MSG_WAITALL);
        SHOW(recv(v[1], (char[8]){0}, 8, MSG_PEEK | MSG_WAITALL));
        close2(v);
}

static double seconds(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Bytes come in two parts for one buffer, which an empty one follows: nothing more is
 * waited for. */
static void receive_before_empty(int v[2])
{
        char b[8];
        struct iovec iov[] = {{b, 6}, {b, 0}};
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
        struct timeval tv = {5, 0};
        double began = seconds();

        setsockopt(v[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        write(v[0], "abc", 3);
        fflush(stdout);
        if (fork() == 0) {
                usleep(50000);
                write(v[0], "def", 3);
                _exit(0);
        }
        show_bytes("recvmsg", b, recvmsg(v[1], &m, MSG_WAITALL));
        SHOW(seconds() - began < 4);
        wait(NULL);
}

#define ROUNDS 60

/* ... nor said to follow, of what there is no room for at once. */
static void send_before_empty(int v[2])
{
        static char b[(2 << 20) + 1];
        struct iovec iov[] = {{b, sizeof(b)}, {b, 0}};
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
        double began = seconds();

        fflush(stdout);
        if (fork() == 0) {
                for (int i = 0; i < ROUNDS; i++) {
                        recv(v[1], b, sizeof(b), MSG_WAITALL);
                        write(v[1], "", 1);
                }
                _exit(0);
        }
        for (int i = 0; i < ROUNDS; i++) {
                if (sendmsg(v[0], &m, 0) != sizeof(b))
                        SHOW(i);
                recv(v[0], b, 1, 0);
        }
        SHOW(seconds() - began < 3.5);
        wait(NULL);
}

static void send_empty(int fd)
{
        struct iovec none = {"", 0};
        struct msghdr m = {.msg_iov = &none, .msg_iovlen = 1};

        SHOW(send(fd, "", 0, MSG_NOSIGNAL));
        SHOW(write(fd, "", 0));
        SHOW(writev(fd, &none, 1));
        SHOW(writev(fd, NULL, 0));
        SHOW(sendmsg(fd, &m, MSG_NOSIGNAL));
}

/* Nothing is sent, and it is told whether anything could be. */
static void send_empty_at_last(int v[2])
{
        struct linger reset = {1, 0};
        char b[8];

        signal(SIGPIPE, SIG_IGN);
        send_empty(v[0]);
        SHOW(recv(v[1], b, sizeof(b), MSG_DONTWAIT));
        shutdown(v[0], SHUT_WR);
        send_empty(v[0]);
        send_empty(v[1]);
        setsockopt(v[0], SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        shutdown(v[0], SHUT_RD);
        close(v[0]);
        wait_events(v[1], POLLERR);
        send_empty(v[1]);
        signal(SIGPIPE, SIG_DFL);
}

/* A datagram of nothing is one, but not for writev(). */
static void send_empty_datagrams(void)
{
        struct sockaddr_in sa;
        int u = udp_socket(&sa), c = socket(AF_INET, SOCK_DGRAM, 0), n = 0;
        char b[8];

        connect(c, (void *)&sa, sizeof(sa));
        send_empty(c);
        SHOW(send(c, "last", 4, 0));
        while (recv(u, b, sizeof(b), 0) == 0)
                n++;
        SHOW(n);
        close(u);
        close(c);
}

void scene_empty_buffers(void)
{
        int v[2];

        tcp_pair(v);
        receive_before_empty(v);
        send_before_empty(v);
        send_empty_at_last(v);
        close(v[1]);
        send_empty_datagrams();
}

/* ---- connect() ---- */

/* The connection is taken back: the socket may connect again. */
void scene_disconnect(void)
{
        struct sockaddr none = {.sa_family = AF_UNSPEC};
        struct sockaddr_in sa;
        int l = listener(&sa), s = socket(AF_INET, SOCK_STREAM, 0), c;

        SHOW(connect(s, &none, sizeof(none)));
        for (int i = 0; i < 2; i++) {
                SHOW(connect(s, (void *)&sa, sizeof(sa)));
                SHOW(connect(s, (void *)&sa, sizeof(sa)));
                SHOW(connect(s, (void *)&sa, 3));
                c = accept(l, NULL, NULL);
                SHOW(write(s, "here", 4));
                wait_bytes(c, 4);
                SHOW(connect(s, &none, sizeof(none)));
                wait_events(c, POLLERR);
                SHOW(ready_events(c));
                close(c);
        }
        SHOW(connect(l, &none, sizeof(none)));
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        close(s);
        close(l);
}

static struct sockaddr_in6 mapped(const struct sockaddr_in *sa)
{
        struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = sa->sin_port};

        inet_pton(AF_INET6, "::ffff:127.0.0.1", &six.sin6_addr);
        return six;
}

/* Names of another family, and IPv4 where it is forbidden. */
void scene_names_refused(void)
{
        struct sockaddr_in sa, ua;
        struct sockaddr_in6 six;
        int l = listener(&sa), u = udp_socket(&ua), s = socket(AF_INET6, SOCK_STREAM, 0), on = 1;

        six = mapped(&sa);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        SHOW(connect(s, (void *)&six, 10));
        setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
        SHOW(connect(s, (void *)&six, sizeof(six)));
        close(s);
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(s, (void *)&six, sizeof(six)));
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        close(s);
        six = mapped(&ua);
        s = socket(AF_INET, SOCK_DGRAM, 0);
        SHOW(sendto(s, "x", 1, 0, (void *)&six, sizeof(six)));
        SHOW(sendto(s, "x", 1, 0, (void *)&ua, sizeof(ua)));
        SHOW(sendto(s, "x", 1, 0, (void *)&six, sizeof(six)));
        close(s);
        close(u);
        close(l);
}

/* From where a socket speaks to addresses of this host. */
void scene_sources(void)
{
        static const char *const to[] = {"0.0.0.0", "127.0.0.1", "127.1.2.3", "127.255.255.255"};
        struct sockaddr_in any = {.sin_family = AF_INET}, name;
        int l = socket(AF_INET, SOCK_STREAM, 0);
        socklen_t len = sizeof(any);

        bind(l, (void *)&any, sizeof(any));
        listen(l, 5);
        getsockname(l, (void *)&any, &len);
        for (size_t i = 0; i < ARRAY_LEN(to); i++) {
                int s = socket(AF_INET, SOCK_STREAM, 0);

                inet_pton(AF_INET, to[i], &any.sin_addr);
                SHOW(connect(s, (void *)&any, sizeof(any)));
                len = sizeof(name);
                getsockname(s, (void *)&name, &len);
                printf("  to %s from %s\n", to[i], inet_ntoa(name.sin_addr));
                close(s);
        }
        close(l);
}

/* Nobody believes that he is connected for whom there is no room. */
void scene_backlog(void)
{
        for (int backlog = 0; backlog < 3; backlog++) {
                struct sockaddr_in sa;
                int l = listener(&sa), c[6], n = 0;

                listen(l, backlog);
                for (int i = 0; i < (int)ARRAY_LEN(c); i++) {
                        c[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
                        connect(c[i], (void *)&sa, sizeof(sa));
                        if (i <= backlog) /* one after the other, or the kernel, when it is busy,
                                             lets in more */
                                wait_events(c[i], POLLOUT);
                }
                for (size_t i = 0; i < ARRAY_LEN(c); i++)
                        if (ready_events(c[i]) == POLLOUT)
                                n++;
                        else
                                close(c[i]); /* or it asks again while the others are accepted */
                printf("  backlog %d: %d connected\n", backlog, n);
                fcntl(l, F_SETFL, O_NONBLOCK);
                for (n = 0; accept(l, NULL, NULL) >= 0; n++)
                        ;
                printf("  %d accepted\n", n);
                for (int i = 0; i <= backlog; i++)
                        close(c[i]);
                close(l);
        }
}

/* ---- what is ready, of both kinds ---- */

static void show_ready(int ep, const int *fd, int n)
{
        struct epoll_event ev[8] = {{0}};
        struct pollfd p[8];
        fd_set set;
        int most = 0;

        FD_ZERO(&set);
        for (int i = 0; i < n; i++) {
                p[i] = (struct pollfd){.fd = fd[i], .events = POLLIN};
                FD_SET(fd[i], &set);
                most = fd[i] > most ? fd[i] : most;
        }
        SHOW(poll(p, (nfds_t)n, LONG));
        SHOW(select(most + 1, &set, NULL, NULL, NULL));
        SHOW(epoll_wait(ep, ev, 8, LONG));
}

/* What the program does to a pipe shows at once, beside a socket of ours that is always ready. */
void scene_mixed_ready(void)
{
        int v[2], p[2], q[2], ep = epoll_create1(0), fd[3];
        struct pollfd bad[2] = {{.events = POLLIN}, {.fd = 999, .events = POLLIN}};
        char b[4];

        tcp_pair(v);
        pipe(p);
        pipe(q);
        memcpy(fd, (int[]){v[1], p[0], q[0]}, sizeof(fd));
        for (int i = 0; i < 3; i++)
                epoll_ctl(ep, EPOLL_CTL_ADD, fd[i],
                          &(struct epoll_event){.events = EPOLLIN, .data.fd = i});
        write(v[0], "x", 1);
        wait_readable(v[1]);
        show_ready(ep, fd, 3);
        for (int i = 0; i < 3; i++) {
                write(p[1], "x", 1);
                show_ready(ep, fd, 3);
                write(q[1], "x", 1);
                show_ready(ep, fd, 3);
                read(p[0], b, 1);
                read(q[0], b, 1);
                show_ready(ep, fd, 3);
        }
        close(q[1]);
        show_ready(ep, fd, 3);
        bad[0].fd = v[1];
        SHOW(poll(bad, 2, 0));
        SHOW(bad[1].revents);
        close2(v);
        close2(p);
        close(q[0]);
        close(ep);
}

/* 127.255.255.255 is loopback's broadcast: it needs permission, all that are bound get it, and no
 * stream goes there. */
void scene_loopback_broadcast(void)
{
        struct sockaddr_in sa = {.sin_family = AF_INET}, own = {.sin_family = AF_INET};
        socklen_t len = sizeof(sa);
        int on = 1, r[2], s = udp_socket(&own), l, c;
        char b;

        for (int i = 0; i < 2; i++) {
                r[i] = socket(AF_INET, SOCK_DGRAM, 0);
                setsockopt(r[i], SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
                sa.sin_addr.s_addr = 0;
                SHOW(bind(r[i], (void *)&sa, sizeof(sa)));
                getsockname(r[i], (void *)&sa, &len);
        }
        sa.sin_addr.s_addr = htonl(0x7fffffff);
        SHOW(sendto(s, "x", 1, 0, (void *)&sa, sizeof(sa)));
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        setsockopt(s, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on));
        SHOW(sendto(s, "x", 1, 0, (void *)&sa, sizeof(sa)));
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        SHOW(send(s, "y", 1, 0));
        for (int i = 0; i < 4; i++)
                SHOW(recv(r[i % 2], &b, 1, 0));
        SHOW(recv(r[0], &b, 1, MSG_DONTWAIT));
        l = socket(AF_INET, SOCK_STREAM, 0);
        own.sin_addr.s_addr = own.sin_port = 0;
        bind(l, (void *)&own, sizeof(own));
        listen(l, 4);
        getsockname(l, (void *)&own, &len);
        own.sin_addr.s_addr = htonl(0x7fffffff);
        c = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(c, (void *)&own, sizeof(own)));
        close(c);
        close(l);
        close(s);
        close2(r);
}
