/* Corners of the calls in which stacks differ: ends, urgent data, low-water marks, names that a
 * socket does not take. */
#include "tests/shim/calls.h"

#include <linux/sockios.h>

/* ---- shutdown ---- */

void wait_bytes(int fd, int n)
{
        int there = 0;

        for (int i = 0; i < LONG && there < n; i++) {
                ioctl(fd, FIONREAD, &there);
                poll(NULL, 0, there < n);
        }
}

static short events_of(int fd)
{
        struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP | POLLPRI};

        poll(&p, 1, 0);
        return p.revents;
}

static void wait_events(int fd, short events)
{
        struct pollfd p = {.fd = fd, .events = events};

        poll(&p, 1, LONG);
}

void scene_shutdown_reading(void)
{
        char b[8];
        int v[2];

        tcp_pair(v);
        SHOW(write(v[1], "before", 6));
        wait_bytes(v[0], 6);
        SHOW(shutdown(v[0], SHUT_RD));
        SHOW(events_of(v[0]));
        SHOW(recv(v[0], b, sizeof(b), 0));
        SHOW(recv(v[0], b, sizeof(b), 0));
        SHOW(write(v[1], "after", 5));
        wait_bytes(v[0], 5);
        SHOW(recv(v[0], b, sizeof(b), 0));
        SHOW(recv(v[0], b, sizeof(b), MSG_DONTWAIT));
        SHOW(write(v[0], "back", 4));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        SHOW(shutdown(v[0], SHUT_WR));
        wait_events(v[1], POLLRDHUP);
        SHOW(write(v[1], "lost", 4));
        wait_events(v[1], POLLERR);
        SHOW(recv(v[1], b, sizeof(b), 0));
        close2(v);
}

/* Both sides have ended, and nothing is left of the connection but what was not read. */
static void ended_unread(int how)
{
        int v[2], n = -1;
        char b[8];

        tcp_pair(v);
        SHOW(write(v[0], "unread", 6));
        SHOW(shutdown(v[0], SHUT_WR));
        wait_events(v[1], POLLRDHUP);
        SHOW(shutdown(v[1], how));
        wait_events(v[0], POLLHUP);
        SHOW(ioctl(v[1], FIONREAD, &n));
        SHOW(n);
        SHOW(recv(v[1], b, 4, 0));
        SHOW(ioctl(v[1], FIONREAD, &n));
        SHOW(n);
        SHOW(recv(v[1], b, sizeof(b), 0));
        SHOW(recv(v[1], b, sizeof(b), 0));
        close2(v);
}

/* The end came, and the reset after it. */
void scene_shutdown_unread(void)
{
        char b[8];
        int v[2];

        ended_unread(SHUT_WR);
        ended_unread(SHUT_RDWR);
        tcp_pair(v);
        SHOW(write(v[1], "unread", 6));
        wait_bytes(v[0], 6);
        shutdown(v[0], SHUT_WR);
        wait_events(v[1], POLLRDHUP);
        close(v[0]);
        wait_events(v[1], POLLERR);
        SHOW(recv(v[1], b, sizeof(b), 0));
        SHOW(recv(v[1], b, sizeof(b), 0));
        SHOW(send(v[1], "x", 1, MSG_NOSIGNAL));
        close(v[1]);
}

static void *accept_once(void *arg)
{
        int *fd = arg;
        long r = accept(*fd, NULL, NULL);

        *fd = r < 0 ? -errno : 0;
        return NULL;
}

static void *receive_once(void *arg)
{
        int *fd = arg;
        char b[8];
        long r = recv(*fd, b, sizeof(b), 0);

        *fd = r < 0 ? -errno : (int)r;
        return NULL;
}

/* A call that waits in another thread ends: whether it had begun to wait or not. */
static void ends_for(void *(*call)(void *), int fd, int how)
{
        int arg = fd;
        pthread_t t;

        pthread_create(&t, NULL, call, &arg);
        SHOW(shutdown(fd, how));
        pthread_join(t, NULL);
        printf("  the call: %d\n", arg);
}

void scene_shutdown_waiting(void)
{
        struct sockaddr_in sa, ua;
        int l = listener(&sa), u = udp_socket(&ua), v[2], s = socket(AF_INET, SOCK_STREAM, 0);
        char b[8];

        tcp_pair(v);
        ends_for(receive_once, v[0], SHUT_RDWR);
        close2(v);
        ends_for(accept_once, l, SHUT_RD);
        SHOW(events_of(l));
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        SHOW(listen(l, 1));
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        close(s);
        close(l);
        ends_for(receive_once, u, SHUT_RDWR);
        SHOW(events_of(u));
        SHOW(recv(u, b, sizeof(b), 0));
        SHOW(recv(u, b, sizeof(b), MSG_DONTWAIT));
        SHOW(sendto(u, "x", 1, MSG_NOSIGNAL, (void *)&ua, sizeof(ua)));
        close(u);
        u = udp_socket(&ua);
        SHOW(shutdown(u, SHUT_RD));
        SHOW(sendto(u, "still", 5, 0, (void *)&ua, sizeof(ua)));
        SHOW(recv(u, b, sizeof(b), MSG_DONTWAIT));
        SHOW(recv(u, b, sizeof(b), MSG_DONTWAIT));
        close(u);
}

/* ---- urgent data ---- */

static void show_mark(int fd)
{
        int n = 0;

        ioctl(fd, FIONREAD, &n);
        printf("  at mark %d, %d to read, events %x\n", sockatmark(fd), n, (unsigned)events_of(fd));
}

static void show_recv(int fd, size_t n, int flags)
{
        char b[64];

        show_bytes("recv", b, recv(fd, b, n, flags));
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

/* ---- SO_RCVLOWAT ---- */

void scene_low_water(void)
{
        struct timeval tv = {0, 50000};
        struct epoll_event ev = {.events = EPOLLIN};
        int v[2], low = 4, ep = epoll_create1(0);
        fd_set set;

        tcp_pair(v);
        epoll_ctl(ep, EPOLL_CTL_ADD, v[1], &ev);
        SHOW(setsockopt(v[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
        SHOW(write(v[0], "12", 2));
        wait_bytes(v[1], 2);
        SHOW(events_of(v[1]));
        SHOW(epoll_wait(ep, &ev, 1, 0));
        FD_ZERO(&set);
        FD_SET(v[1], &set);
        SHOW(select(v[1] + 1, &set, NULL, NULL, &tv));
        SHOW(write(v[0], "34", 2));
        SHOW(epoll_wait(ep, &ev, 1, LONG));
        SHOW(events_of(v[1]));
        show_recv(v[1], 8, 0);
        for (int i = 0; i < 2; i++) { /* all that was asked for, though the rest is little */
                SHOW(write(v[0], "567890", 6));
                show_recv(v[1], 6, MSG_WAITALL);
        }
        SHOW(write(v[0], "5", 1));
        shutdown(v[0], SHUT_WR);
        SHOW(epoll_wait(ep, &ev, 1, LONG));
        show_recv(v[1], 8, 0);
        close2(v);
        close(ep);
}

/* A read waits for that much, or for what it asks for; with less of it who waits has enough.
 * It only peeks, where it has to wait: whom Linux has given less already it does not wake for
 * the rest. */
void scene_low_water_reads(void)
{
        struct epoll_event ev = {.events = EPOLLIN};
        struct sockaddr_in a;
        int v[2], low = 4, one = 1, ep = epoll_create1(0), l = listener(&a);

        tcp_pair(v);
        SHOW(setsockopt(v[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
        for (int i = 0; i < 2; i++) {
                if (fork() == 0) {
                        write(v[0], "12", 2);
                        usleep(50000);
                        write(v[0], "34", 2);
                        _exit(0);
                }
                show_recv(v[1], i == 1 ? 2 : 8, i == 0 ? MSG_PEEK : 0);
                wait(NULL);
                while (recv(v[1], (char[8]){0}, 8, MSG_DONTWAIT) > 0)
                        ;
        }
        epoll_ctl(ep, EPOLL_CTL_ADD, v[1], &ev);
        SHOW(write(v[0], "12", 2));
        wait_bytes(v[1], 2);
        SHOW(epoll_wait(ep, &ev, 1, 0));
        SHOW(setsockopt(v[1], SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one)));
        SHOW(epoll_wait(ep, &ev, 1, LONG));
        close2(v);
        SHOW(setsockopt(l, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
        v[0] = socket(AF_INET, SOCK_STREAM, 0);
        connect(v[0], (struct sockaddr *)&a, sizeof(a));
        v[1] = accept(l, NULL, NULL);
        SHOW(write(v[0], "12", 2));
        wait_bytes(v[1], 2);
        SHOW(events_of(v[1]));
        close2(v);
        close(l);
        close(ep);
}

/* Over a connection whose receive buffer has that size; 0: as it is. */
static void sized_pair(int v[2], int size)
{
        struct sockaddr_in sa;
        int l = listener(&sa), on = 1;

        if (size != 0)
                setsockopt(l, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
        v[0] = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(v[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        if (connect(v[0], (void *)&sa, sizeof(sa)) < 0 || (v[1] = accept(l, NULL, NULL)) < 0)
                die("pair");
        close(l);
}

/* What each way to wait says. */
static void show_readable(int fd, int level, int edge)
{
        struct timeval now = {0, 0};
        struct epoll_event ev;
        fd_set set;

        FD_ZERO(&set);
        FD_SET(fd, &set);
        printf("  poll %x, ", (unsigned)events_of(fd));
        printf("select %d, ", select(fd + 1, &set, NULL, NULL, &now));
        printf("epoll %d, ", epoll_wait(level, &ev, 1, 0));
        printf("edge %d\n", epoll_wait(edge, &ev, 1, 0));
}

static void write_pieces(int v[2], int from, int to, int piece)
{
        static char b[1 << 20];

        for (int n; from < to; from += n) {
                n = to - from < piece ? to - from : piece;
                if (write(v[0], b, (size_t)n) != n)
                        die("write");
                wait_bytes(v[1], from + n);
        }
}

static void low_water_of(int size, int low, int piece)
{
        struct epoll_event ev = {.events = EPOLLIN}, et = {.events = EPOLLIN | EPOLLET};
        int v[2], level = epoll_create1(0), edge = epoll_create1(0);
        static char b[1 << 20];

        printf(" buffer %d, mark %d, pieces of %d\n", size, low, piece);
        sized_pair(v, size);
        SHOW(setsockopt(v[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
        epoll_ctl(level, EPOLL_CTL_ADD, v[1], &ev);
        epoll_ctl(edge, EPOLL_CTL_ADD, v[1], &et);
        write_pieces(v, 0, low / 2, piece);
        show_readable(v[1], level, edge);
        write_pieces(v, low / 2, low - 1, piece);
        show_readable(v[1], level, edge);
        write_pieces(v, low - 1, low, piece);
        show_readable(v[1], level, edge);
        show_readable(v[1], level, edge);
        SHOW(recv(v[1], b, sizeof(b), 0));
        show_readable(v[1], level, edge);
        write_pieces(v, 0, low - 1, piece);
        show_readable(v[1], level, edge);
        shutdown(v[0], SHUT_WR);
        SHOW(epoll_wait(edge, &et, 1, LONG));
        show_readable(v[1], level, edge);
        close(level);
        close(edge);
        close2(v);
}

/* Whatever the buffer and the segments. */
void scene_low_water_sizes(void)
{
        static const struct {
                int size, low;
        } of[] = {{0, 2},         {0, 20000},      {10000, 2000},  {10000, 4000},
                  {40000, 15000}, {200000, 15000}, {200000, 60000}};

        for (size_t i = 0; i < ARRAY_LEN(of); i++)
                for (int piece = 100; piece <= 1500; piece += 1400)
                        low_water_of(of[i].size, of[i].low, piece);
}

/* A reset that comes after some bytes is told by the call after. */
void scene_late_resets(void)
{
        static char b[8 << 20];
        struct linger hard = {1, 0};
        int v[2];

        for (int i = 0; i < 2; i++) {
                tcp_pair(v);
                write(v[0], "0123456789", 10);
                if (fork() == 0) {
                        close(v[1]);
                        usleep(500000);
                        setsockopt(v[0], SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
                        close(v[0]);
                        _exit(0);
                }
                close(v[0]);
                if (i == 0)
                        SHOW(recv(v[1], b, 100, MSG_WAITALL));
                else
                        printf("sent some, not all: %d\n",
                               (size_t)send(v[1], b, sizeof(b), 0) < sizeof(b));
                if (i == 1)
                        recv(v[1], b, 10, 0);
                SHOW(recv(v[1], b, 1, 0));
                SHOW(recv(v[1], b, 1, 0));
                close(v[1]);
                wait(NULL);
        }
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
                SHOW(events_of(c));
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
                        if (events_of(c[i]) == POLLOUT)
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

/* TCP_MAXSEG of a connection that is over is what it was; that of a socket of which a listener or
 * nothing came is a default. */
static int segment_of(int s)
{
        int v = -1;
        socklen_t len = sizeof(v);

        getsockopt(s, IPPROTO_TCP, TCP_MAXSEG, &v, &len);
        return v;
}

void scene_segment_after_end(void)
{
        struct linger none = {.l_onoff = 1};
        struct pollfd p = {.events = POLLIN};
        int v[2], before, s = socket(AF_INET, SOCK_STREAM, 0);

        SHOW(segment_of(s));
        close(s);
        tcp_pair(v);
        before = segment_of(v[0]);
        SHOW(before > 536);
        setsockopt(v[1], SOL_SOCKET, SO_LINGER, &none, sizeof(none));
        close(v[1]);
        p.fd = v[0];
        SHOW(poll(&p, 1, LONG));
        SHOW(segment_of(v[0]) - before);
        close(v[0]);
}

/* A listener that is no more is as blocking as the program made it, though we never block on
 * the kernel's. */
void scene_listener_ends(void)
{
        const struct sockaddr none = {.sa_family = AF_UNSPEC};
        struct sockaddr_in sa, there;
        int other = listener(&there);
        char b;

        for (int how = 0; how < 3; how++)
                for (int flags = 0; flags <= O_NONBLOCK; flags += O_NONBLOCK) {
                        int l = listener(&sa);

                        fcntl(l, F_SETFL, flags);
                        if (how == 2)
                                SHOW(connect(l, &none, sizeof(none)));
                        else
                                SHOW(shutdown(l, how == 1 ? SHUT_RDWR : SHUT_RD));
                        SHOW((fcntl(l, F_GETFL) & O_NONBLOCK) != 0);
                        SHOW(accept(l, NULL, NULL));
                        SHOW(read(l, &b, 1));
                        SHOW(connect(l, (void *)&there, sizeof(there)));
                        close(l);
                }
        close(other);
}

/* Connections that nobody has accepted, some just asked for, are reset with their listener and
 * not refused. */
void scene_listener_closes(void)
{
        struct sockaddr_in sa;
        int l = listener(&sa), c[5], err;
        struct pollfd p[5];
        socklen_t len = sizeof(err);

        for (int i = 0; i < 5; i++) {
                c[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
                SHOW(connect(c[i], (void *)&sa, sizeof(sa)));
                p[i] = (struct pollfd){.fd = c[i], .events = POLLIN | POLLOUT};
        }
        close(l);
        for (int i = 0; i < 5; i++) {
                SHOW(poll(&p[i], 1, 10000));
                SHOW(p[i].revents);
                SHOW(getsockopt(c[i], SOL_SOCKET, SO_ERROR, &err, &len));
                SHOW(err);
                close(c[i]);
        }
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

/* A first flight that fills the window, and has more behind it: who reads that and closes has not
 * read all. */
void scene_closes_unread(void)
{
        static char flight[100000], b[65536];

        for (int i = 0; i < 5; i++) {
                int v[2];

                tcp_pair(v);
                SHOW(send(v[0], flight, sizeof(flight), MSG_DONTWAIT));
                wait_readable(v[1]);
                SHOW_OK(recv(v[1], b, sizeof(b), 0));
                close(v[1]);
                wait_readable(v[0]);
                SHOW(recv(v[0], b, 1, 0));
                close(v[0]);
        }
}

/* ---- a peer of another process that has closed, and then does something else ---- */

static void end_of_peer(int how, int c)
{
        static const struct linger linger = {1, 5};

        if (how == 1)
                shutdown(c, SHUT_WR);
        if (how == 2)
                setsockopt(c, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
        if (how == 4)
                shutdown(c, SHUT_RDWR);
        else if (how != 3)
                close(c);
}

static void peer_that_closes(int how, int to, int from)
{
        struct sockaddr_in sa;
        int l = listener(&sa), c;
        char b;

        if (write(to, &sa, sizeof(sa)) != sizeof(sa) || (c = accept(l, NULL, NULL)) < 0)
                _exit(1);
        recv(c, &b, 1, 0);
        send(c, "bye", 3, 0);
        end_of_peer(how, c);
        if (how != 3) {
                write(to, "", 1);
                read(from, &b, 1);
        }
        _exit(0);
}

static void send_to_closed(int how)
{
        int to_us[2], to_peer[2], s, err;
        socklen_t len = sizeof(err);
        struct sockaddr_in sa;
        char b[8];
        pid_t pid;

        pipe(to_us);
        pipe(to_peer);
        fflush(stdout);
        pid = fork();
        if (pid == 0)
                peer_that_closes(how, to_us[1], to_peer[0]);
        read(to_us[0], &sa, sizeof(sa));
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        SHOW(send(s, "x", 1, 0));
        SHOW(recv(s, b, sizeof(b), MSG_WAITALL));
        if (how == 3)
                waitpid(pid, NULL, 0);
        else
                read(to_us[0], b, 1);
        SHOW(events_of(s));
        SHOW(send(s, "1", 1, MSG_NOSIGNAL));
        SHOW(events_of(s));
        SHOW(send(s, "2", 1, MSG_NOSIGNAL));
        SHOW(send(s, "3", 1, MSG_NOSIGNAL));
        SHOW(getsockopt(s, SOL_SOCKET, SO_ERROR, &err, &len));
        SHOW(err);
        SHOW(recv(s, b, sizeof(b), 0));
        SHOW(events_of(s));
        write(to_peer[1], "", 1);
        if (how != 3)
                waitpid(pid, NULL, 0);
        close(s);
        close2(to_peer);
        close2(to_us);
}

/* The first of what is sent is taken, and what is sent after it fails at once, whatever the peer's
 * process does. */
void scene_send_to_closed(void)
{
        for (int how = 0; how < 5; how++)
                send_to_closed(how);
}

/* ---- a listener of another process that ends, with connections that nobody has accepted ---- */

static void listener_that_ends(int how, int to, int from)
{
        struct sockaddr_in sa;
        int l = listener(&sa);
        char b;

        write(to, &sa, sizeof(sa));
        read(from, &b, 1);
        if (how == 0)
                close(l);
        if (how == 1)
                shutdown(l, SHUT_RDWR);
        if (how != 2) {
                write(to, "", 1);
                read(from, &b, 1);
        }
        _exit(0);
}

static void connect_to_ending(int how)
{
        int to_us[2], to_peer[2], c[5], err;
        socklen_t len = sizeof(err);
        struct sockaddr_in sa;
        struct pollfd p;
        pid_t pid;
        char b;

        pipe(to_us);
        pipe(to_peer);
        fflush(stdout);
        pid = fork();
        if (pid == 0)
                listener_that_ends(how, to_us[1], to_peer[0]);
        read(to_us[0], &sa, sizeof(sa));
        for (int i = 0; i < 5; i++) {
                c[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
                SHOW(connect(c[i], (void *)&sa, sizeof(sa)));
        }
        write(to_peer[1], "", 1);
        if (how == 2)
                waitpid(pid, NULL, 0);
        else
                read(to_us[0], &b, 1);
        for (int i = 0; i < 5; i++) {
                p = (struct pollfd){.fd = c[i], .events = POLLIN | POLLRDHUP};
                SHOW(poll(&p, 1, LONG));
                SHOW(p.revents);
                SHOW(getsockopt(c[i], SOL_SOCKET, SO_ERROR, &err, &len));
                SHOW(err);
                close(c[i]);
        }
        write(to_peer[1], "", 1);
        if (how != 2)
                waitpid(pid, NULL, 0);
        close2(to_peer);
        close2(to_us);
}

/* They are reset, not refused. */
void scene_listener_ends_elsewhere(void)
{
        for (int how = 0; how < 3; how++)
                connect_to_ending(how);
}
