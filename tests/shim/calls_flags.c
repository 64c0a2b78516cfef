/* Flags of sending and receiving, ioctls, and calls for several messages: streams and datagrams. */
#include "tests/shim/calls.h"

#include <linux/errqueue.h>
#include <linux/sockios.h>

static void name_flags(int flags, char *out)
{
        sprintf(out, "%s%s%s%s%s%s%s", flags & MSG_PEEK ? " PEEK" : "",
                flags & MSG_TRUNC ? " TRUNC" : "", flags & MSG_WAITALL ? " WAITALL" : "",
                flags & MSG_DONTWAIT ? " DONTWAIT" : "", flags & MSG_OOB ? " OOB" : "",
                flags & MSG_ERRQUEUE ? " ERRQUEUE" : "",
                flags & MSG_CMSG_CLOEXEC ? " CLOEXEC" : "");
}

/* One recvmsg() with a name and control room. */
static void receive(int s, size_t room, int flags)
{
        _Alignas(struct cmsghdr) char beside[64], b[200], text[64];
        struct sockaddr_in from;
        struct iovec iov[2] = {{b, room / 2}, {b + room / 2, room - room / 2}};
        struct msghdr m = {.msg_name = &from,
                           .msg_namelen = sizeof(from),
                           .msg_iov = iov,
                           .msg_iovlen = 2,
                           .msg_control = beside,
                           .msg_controllen = sizeof(beside),
                           .msg_flags = 0x5a};
        ssize_t r;

        memset(b, '.', sizeof(b));
        name_flags(flags, text);
        r = recvmsg(s, &m, flags);
        printf("  recvmsg(%zu%s): %zd %s", room, text, r, name_of(r));
        if (r >= 0)
                printf(" flags %x name %u beside %zu", m.msg_flags, m.msg_namelen,
                       m.msg_controllen);
        printf(" %.*s\n", (int)room, b);
}

static void count(int s, const char *what)
{
        int in = -1, out = -1, unsent = -1, mark = -1;
        int r[] = {ioctl(s, SIOCINQ, &in), ioctl(s, SIOCOUTQ, &out), ioctl(s, SIOCOUTQNSD, &unsent),
                   ioctl(s, SIOCATMARK, &mark)};

        printf("  %s: in %d %d, out %d %d, unsent %d %d, mark %d %d\n", what, r[0], in, r[1], out,
               r[2], unsent, r[3], mark);
}

/* Until what was sent has been acknowledged. */
static void settle(int s)
{
        for (int i = 0, n = 1; i < LONG && n != 0; i++) {
                if (ioctl(s, SIOCOUTQ, &n) != 0)
                        return;
                usleep(1000);
        }
}

static void put(int s, const char *text, int flags)
{
        ssize_t r = send(s, text, strlen(text), flags);

        printf("  send(%s, %x): %zd %s\n", text, flags, r, name_of(r));
}

/* Until so many bytes are there. */
static void until(int s, int n)
{
        for (int i = 0, there = 0; i < LONG && there < n; i++) {
                ioctl(s, SIOCINQ, &there);
                usleep(1000);
        }
}

void scene_stream_flags(void)
{
        static const int odd[] = {MSG_PEEK | MSG_TRUNC,
                                  MSG_TRUNC,
                                  MSG_ERRQUEUE,
                                  MSG_ERRQUEUE | MSG_DONTWAIT,
                                  MSG_OOB,
                                  MSG_OOB | MSG_PEEK,
                                  MSG_CMSG_CLOEXEC,
                                  MSG_WAITALL | MSG_DONTWAIT,
                                  0x40000000 | MSG_DONTWAIT};
        int v[2], on = 1, n;

        tcp_pair(v);
        setsockopt(v[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        count(v[1], "nothing");
        receive(v[1], 10, MSG_DONTWAIT);
        receive(v[1], 0, MSG_DONTWAIT);
        put(v[0], "abcdefghij", MSG_NOSIGNAL);
        until(v[1], 10);
        settle(v[0]);
        count(v[1], "ten");
        count(v[0], "all acknowledged");
        receive(v[1], 4, MSG_PEEK);
        receive(v[1], 2, MSG_PEEK | MSG_TRUNC);
        receive(v[1], 2, MSG_TRUNC);
        receive(v[1], 0, 0);
        receive(v[1], 3, MSG_WAITALL);
        receive(v[1], 100, MSG_WAITALL | MSG_DONTWAIT);
        put(v[0], "", 0);
        for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
                put(v[0], "odd", 0);
                until(v[1], 3);
                receive(v[1], 3, odd[i]);
                receive(v[1], 3, MSG_DONTWAIT);
                receive(v[1], 3, MSG_DONTWAIT);
        }
        put(v[0], "ab!", MSG_OOB);
        until(v[1], 2);
        wait_readable(v[1]);
        count(v[1], "before the mark");
        receive(v[1], 1, MSG_OOB | MSG_PEEK);
        receive(v[1], 10, 0);
        count(v[1], "at the mark");
        receive(v[1], 0, MSG_OOB);
        receive(v[1], 1, MSG_OOB);
        receive(v[1], 1, MSG_OOB);
        put(v[0], "cd", 0);
        wait_readable(v[1]); /* SIOCINQ stops at the mark */
        count(v[1], "after it");
        receive(v[1], 10, 0);
        put(v[0], "held ", MSG_MORE);
        put(v[0], "back", 0);
        until(v[1], 9);
        receive(v[1], 100, 0);
        SHOW(shutdown(v[0], SHUT_WR));
        receive(v[1], 10, 0);
        receive(v[1], 10, MSG_PEEK);
        count(v[1], "the end");
        put(v[0], "x", MSG_NOSIGNAL);
        put(v[1], "back", MSG_OOB | MSG_DONTWAIT);
        SHOW(ioctl(v[1], FIOASYNC, &n));
        close2(v);
        SHOW(ioctl(v[1], SIOCINQ, &n));
}

void scene_datagram_flags(void)
{
        static const int odd[] = {MSG_PEEK | MSG_TRUNC,
                                  MSG_TRUNC,
                                  MSG_ERRQUEUE,
                                  MSG_ERRQUEUE | MSG_DONTWAIT,
                                  MSG_OOB,
                                  MSG_CMSG_CLOEXEC,
                                  MSG_WAITALL,
                                  MSG_PEEK};
        struct sockaddr_in a, b;
        int s = udp_socket(&a), t = udp_socket(&b);

        SHOW(connect(t, (void *)&a, sizeof(a)));
        count(s, "nothing");
        receive(s, 10, MSG_DONTWAIT);
        put(t, "abcdefghij", MSG_NOSIGNAL);
        put(t, "", 0);
        put(t, "klm", MSG_DONTWAIT);
        wait_readable(s);
        count(s, "ten first");
        receive(s, 4, MSG_PEEK);
        receive(s, 4, MSG_PEEK | MSG_TRUNC);
        receive(s, 0, MSG_PEEK);
        receive(s, 4, 0);
        count(s, "none first");
        receive(s, 4, 0);
        wait_readable(s);
        receive(s, 4, MSG_TRUNC);
        for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
                put(t, "oddity", 0);
                wait_readable(s);
                receive(s, 3, odd[i]);
                receive(s, 6, MSG_DONTWAIT);
        }
        put(t, "urgent", MSG_OOB);
        SHOW(shutdown(t, SHUT_WR));
        put(t, "x", MSG_NOSIGNAL);
        SHOW(shutdown(s, SHUT_RD));
        close(s);
        close(t);
}

static void send_many(int s, unsigned n, int flags)
{
        static char text[8][8];
        struct mmsghdr m[8];
        struct iovec iov[8];
        int r;

        memset(m, 0, sizeof(m));
        for (unsigned i = 0; i < 8; i++) {
                sprintf(text[i], "%u%.*s", i, (int)i % 5, "abcdef");
                iov[i] = (struct iovec){text[i], strlen(text[i])};
                m[i].msg_hdr.msg_iov = &iov[i];
                m[i].msg_hdr.msg_iovlen = 1;
                m[i].msg_len = 77;
        }
        r = sendmmsg(s, m, n, flags);
        printf("  sendmmsg(%u): %d %s:", n, r, name_of(r));
        for (unsigned i = 0; i < 8; i++)
                printf(" %u", m[i].msg_len);
        printf("\n");
}

static void receive_many(int s, unsigned n, int flags, struct timespec *timeout)
{
        static char text[8][8];
        struct mmsghdr m[8];
        struct iovec iov[8];
        int r;

        memset(m, 0, sizeof(m));
        memset(text, '.', sizeof(text));
        for (unsigned i = 0; i < 8; i++) {
                iov[i] = (struct iovec){text[i], 4};
                m[i].msg_hdr.msg_iov = &iov[i];
                m[i].msg_hdr.msg_iovlen = 1;
                m[i].msg_len = 77;
        }
        r = recvmmsg(s, m, n, flags, timeout);
        printf("  recvmmsg(%u, %x%s): %d %s:", n, flags, timeout ? ", timeout" : "", r, name_of(r));
        for (int i = 0; i < 8; i++)
                printf(" %u/%x/%.4s", m[i].msg_len,
                       i < r ? m[i].msg_hdr.msg_flags & ~MSG_CMSG_CLOEXEC : 0, text[i]);
        printf("\n");
}

/* Datagrams one by one as they come, so that all are there. */
static void all_there(int s, int n)
{
        char b[64];

        for (int i = 0; i < LONG && recv(s, b, sizeof(b), MSG_PEEK | MSG_DONTWAIT) < 0; i++)
                usleep(1000);
        (void)n;
}

void scene_many_messages(void)
{
        struct timespec soon = {0, 20000000}, none = {0, 0}, wrong = {0, 2000000000};
        struct sockaddr_in a, b;
        int s = udp_socket(&a), t = udp_socket(&b), v[2];

        connect(t, (void *)&a, sizeof(a));
        receive_many(s, 8, MSG_DONTWAIT, NULL);
        receive_many(s, 8, MSG_DONTWAIT, &none);
        receive_many(s, 8, 0, &wrong);
        send_many(t, 0, 0);
        send_many(t, 5, 0);
        all_there(s, 5);
        receive_many(s, 0, MSG_DONTWAIT, NULL);
        receive_many(s, 2, 0, NULL);
        receive_many(s, 8, MSG_WAITFORONE, NULL);
        send_many(t, 3, MSG_DONTWAIT);
        all_there(s, 3);
        receive_many(s, 3, 0, &soon);
        send_many(t, 2, 0);
        all_there(s, 2);
        receive_many(s, 8, MSG_DONTWAIT, &none);
        receive_many(s, 8, MSG_DONTWAIT | MSG_PEEK, NULL);
        send_many(t, 1, 0);
        wait_readable(s);
        receive_many(s, 2, MSG_DONTWAIT | MSG_PEEK, NULL);
        receive_many(s, 1, MSG_OOB, NULL);
        receive_many(s, 1, 0, NULL);
        SHOW(shutdown(t, SHUT_WR));
        send_many(t, 2, MSG_NOSIGNAL);
        close(s);
        close(t);
        tcp_pair(v);
        send_many(v[0], 4, 0);
        until(v[1], 10);
        receive_many(v[1], 2, 0, NULL);
        receive_many(v[1], 8, MSG_DONTWAIT, NULL);
        SHOW(shutdown(v[0], SHUT_WR));
        wait_readable(v[1]);
        receive_many(v[1], 2, 0, NULL);
        send_many(v[0], 2, MSG_NOSIGNAL);
        close2(v);
}

/* An error after the first datagram waits for the next call. */
void scene_many_messages_late_error(void)
{
        static char text[8];
        struct iovec good = {text, sizeof(text)}, bad = {(void *)8, 8};
        struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = &good, .msg_iovlen = 1}},
                               {.msg_hdr = {.msg_iov = &bad, .msg_iovlen = 1}}};
        struct sockaddr_in a, b;
        int s = udp_socket(&a), t = udp_socket(&b);

        connect(t, (void *)&a, sizeof(a));
        send_many(t, 3, 0);
        all_there(s, 3);
        SHOW(recvmmsg(s, m, 2, MSG_DONTWAIT, NULL));
        show_bytes("text", text, m[0].msg_len);
        SHOW(recv(s, text, sizeof(text), MSG_DONTWAIT));
        show_bytes("next", text, recv(s, text, sizeof(text), MSG_DONTWAIT));
        SHOW(recv(s, text, sizeof(text), MSG_DONTWAIT));
        close(s);
        close(t);
}

/* Who asks for what is in the error queue leaves the error of the socket there. */
void scene_many_messages_of_errors(void)
{
        struct linger at_once = {.l_onoff = 1};
        char b[4];
        struct iovec iov = {b, sizeof(b)};
        struct mmsghdr m = {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};
        int v[2], err = 0;
        socklen_t len = sizeof(err);
        struct pollfd p;

        tcp_pair(v);
        setsockopt(v[1], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        close(v[1]);
        p = (struct pollfd){.fd = v[0]};
        poll(&p, 1, LONG);
        SHOW(recvmmsg(v[0], &m, 1, MSG_ERRQUEUE | MSG_DONTWAIT, NULL));
        SHOW(getsockopt(v[0], SOL_SOCKET, SO_ERROR, &err, &len));
        SHOW(err);
        close(v[0]);
}

/* SO_RCVTIMEO is the time of the call, whatever comes meanwhile and into how many buffers. */
void scene_all_in_time(void)
{
        struct timeval tv = {1, 0};
        char b[2][4];
        struct iovec iov[2] = {{b[0], 4}, {b[1], 4}};
        int v[2];
        pid_t pid;

        tcp_pair(v);
        setsockopt(v[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        fflush(stdout);
        pid = fork();
        if (pid == 0) {
                usleep(600000);
                write(v[0], "four", 4);
                usleep(800000);
                write(v[0], "more", 4);
                _exit(0);
        }
        SHOW(recvmsg(v[1], &(struct msghdr){.msg_iov = iov, .msg_iovlen = 2}, MSG_WAITALL));
        waitpid(pid, NULL, 0);
        close2(v);
}

static bool can_write(int s)
{
        struct pollfd p = {.fd = s, .events = POLLOUT};

        return poll(&p, 1, 0) == 1 && p.revents & POLLOUT;
}

/* A child that reads to the end; its status is 7 if there were a million bytes. */
static int reading_child(int s, int other)
{
        static char b[1 << 16];
        long sum = 0;
        ssize_t r;
        pid_t pid = fork();

        if (pid != 0)
                return pid;
        close(other);
        while ((r = read(s, b, sizeof(b))) > 0)
                sum += r;
        _exit(sum == 1000000 ? 7 : 8);
}

/* TCP_NOTSENT_LOWAT: a write is cut where so much has not been sent, and goes on when the
 * peer reads. */
void scene_unsent_mark(void)
{
        static char much[1000000];
        int v[2], low = 16384, unsent = 0, status = 0, all = 0, got = 0;
        ssize_t r;
        pid_t pid;

        tcp_pair(v);
        SHOW(setsockopt(v[0], IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low, sizeof(low)));
        while ((r = send(v[0], much, 200000, MSG_DONTWAIT)) > 0)
                all += (int)r;
        SHOW(r);
        ioctl(v[0], SIOCOUTQNSD, &unsent);
        printf("  unsent: %s\n", unsent < low            ? "too little"
                                 : unsent > low + 131072 ? "too much"
                                                         : "about that");
        SHOW(can_write(v[0]));
        while (got < all && (r = read(v[1], much, sizeof(much))) > 0)
                got += (int)r;
        SHOW(got == all);
        while (!can_write(v[0]))
                usleep(1000);
        pid = reading_child(v[1], v[0]);
        close(v[1]);
        SHOW(send(v[0], much, sizeof(much), 0));
        close(v[0]);
        waitpid(pid, &status, 0);
        SHOW(WEXITSTATUS(status));
}

/* The same three bytes at a time, each time further on; and when some are taken, so much
 * less far. */
static void peek_on(int s)
{
        char b[8];

        for (int i = 0; i < 2; i++)
                show_bytes("peek", b, recv(s, b, 3, MSG_PEEK | MSG_DONTWAIT));
}

static void show_offset(int s)
{
        int at = 77;
        socklen_t len = sizeof(at);

        SHOW(getsockopt(s, SOL_SOCKET, SO_PEEK_OFF, &at, &len));
        printf("  at %d\n", at);
}

void scene_peek_offset(void)
{
        struct sockaddr_in a, b;
        int other = udp_socket(&b), s = socket(AF_INET, SOCK_DGRAM, 0), at = 0;
        socklen_t len = sizeof(a);
        char got[16];

        a = loopback();
        show_offset(s);
        SHOW(setsockopt(s, SOL_SOCKET, SO_PEEK_OFF, &at, sizeof(at)));
        SHOW(bind(s, (void *)&a, sizeof(a)));
        getsockname(s, (void *)&a, &len);
        SHOW(sendto(other, "abcdef", 6, 0, (void *)&a, sizeof(a)));
        SHOW(sendto(other, "ghijkl", 6, 0, (void *)&a, sizeof(a)));
        wait_readable(s);
        peek_on(s);
        peek_on(s);
        show_offset(s);
        show_bytes("recv", got, recv(s, got, sizeof(got), 0));
        show_offset(s);
        peek_on(s);
        close(s);
        close(other);
}

static void peek_some(const char *what, int s, int n, int flags)
{
        char b[16] = "", c[8] = "";
        struct sockaddr_in from;
        struct iovec iov[2] = {{b, (size_t)n / 2}, {c, (size_t)(n - n / 2)}};
        struct msghdr m = {
                .msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = iov, .msg_iovlen = 2};
        ssize_t r = recvmsg(s, &m, flags | MSG_DONTWAIT);

        if (r > n / 2)
                memcpy(b + n / 2, c, (size_t)((r < n ? r : n) - n / 2));
        show_bytes(what, b, r < n ? r : n);
        printf("  %zd %s flags %x name %u\n", r, name_of(r), r < 0 ? 0 : m.msg_flags,
               r < 0 ? 0 : m.msg_namelen);
        show_offset(s);
}

static void write_late(int s)
{
        usleep(50000);
        write(s, "late", 4);
        _exit(0);
}

/* Datagrams: a peek shows of one at most, and goes over to the next; reading moves it back, by what
 * was read. */
void scene_peek_offset_datagrams(void)
{
        struct sockaddr_in to, at;
        int s = udp_socket(&to), other = udp_socket(&at), off = 0;
        char b[16];
        ssize_t r;

        connect(other, (void *)&to, sizeof(to));
        for (int i = 0; i < 3; i++)
                write(other, &"0123456789"[i], (size_t)(4 + i));
        while (recv(s, b, sizeof(b), MSG_PEEK | MSG_TRUNC) != 4)
                ;
        SHOW(setsockopt(s, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)));
        for (int i = 0; i < 7; i++)
                peek_some("three", s, 3, MSG_PEEK);
        off = 2;
        SHOW(setsockopt(s, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)));
        peek_some("long", s, 10, MSG_PEEK | MSG_TRUNC);
        peek_some("cut", s, 2, MSG_PEEK | MSG_TRUNC);
        r = recv(s, b, 3, 0);
        show_bytes("recv", b, r);
        show_offset(s);
        peek_some("next", s, 3, MSG_PEEK);
        r = read(s, b, sizeof(b));
        show_bytes("read", b, r);
        show_offset(s);
        off = -1;
        SHOW(setsockopt(s, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)));
        peek_some("without", s, 3, MSG_PEEK);
        off = 6;
        SHOW(setsockopt(s, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)));
        if (fork() == 0)
                write_late(other);
        r = recv(s, b, sizeof(b), MSG_PEEK);
        show_bytes("waited for", b, r);
        wait(NULL);
        close(s);
        close(other);
}

/* Streams, where the kernel has it. */
void scene_peek_offset_streams(void)
{
        int v[2], off = 0;
        char b[16];
        ssize_t r;

        v[0] = socket(AF_INET, SOCK_STREAM, 0);
        r = setsockopt(v[0], SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off));
        close(v[0]);
        if (r < 0) {
                printf("  the kernel has none\n");
                return;
        }
        tcp_pair(v);
        write(v[0], "0123456789", 10);
        SHOW(recv(v[1], b, 10, MSG_PEEK | MSG_WAITALL));
        show_offset(v[1]);
        SHOW(setsockopt(v[1], SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)));
        for (int i = 0; i < 4; i++)
                peek_some("three", v[1], 3, MSG_PEEK);
        show_bytes("recv", b, recv(v[1], b, 4, 0));
        show_offset(v[1]);
        peek_some("all seen", v[1], 3, MSG_PEEK);
        show_bytes("recv", b, recv(v[1], b, 1, 0));
        off = 1;
        SHOW(setsockopt(v[1], SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)));
        peek_some("trunc", v[1], 2, MSG_PEEK | MSG_TRUNC);
        peek_some("more than there is", v[1], 8, MSG_PEEK);
        if (fork() == 0)
                write_late(v[0]);
        r = recv(v[1], b, sizeof(b), MSG_PEEK);
        show_bytes("waited for", b, r);
        wait(NULL);
        show_offset(v[1]);
        show_bytes("read", b, read(v[1], b, 9));
        show_offset(v[1]);
        close(v[0]);
        wait_readable(v[1]);
        off = 3;
        SHOW(setsockopt(v[1], SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)));
        SHOW(recv(v[1], b, 4, MSG_PEEK));
        off = -5;
        SHOW(setsockopt(v[1], SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)));
        show_offset(v[1]);
        close(v[1]);
}

/* By its name and by its number; who is not on it does not reach it. */
void scene_bound_to_device(void)
{
        static const int name[] = {SO_BINDTODEVICE, SO_BINDTOIFINDEX};
        struct sockaddr_in a, b;
        int other = udp_socket(&b), lo = 1, none = -1;
        char got[16];

        for (size_t i = 0; i < ARRAY_LEN(name); i++) {
                int s = socket(AF_INET, SOCK_DGRAM, 0), number = 77;
                socklen_t len = sizeof(number);

                SHOW(setsockopt(s, SOL_SOCKET, name[i], i == 0 ? (void *)"lo" : &lo,
                                i == 0 ? 3 : sizeof(lo)));
                SHOW(getsockopt(s, SOL_SOCKET, SO_BINDTOIFINDEX, &number, &len));
                printf("  number %d\n", number);
                a = loopback();
                SHOW(bind(s, (void *)&a, sizeof(a)));
                len = sizeof(a);
                getsockname(s, (void *)&a, &len);
                SHOW(sendto(other, "by lo", 5, 0, (void *)&a, sizeof(a)));
                wait_readable(s);
                show_bytes("recv", got, recv(s, got, sizeof(got), MSG_DONTWAIT));
                close(s);
        }
        SHOW(setsockopt(other, SOL_SOCKET, SO_BINDTOIFINDEX, &none, sizeof(none)));
        close(other);
}

#define IP_LOCAL_PORT_RANGE_ 51
/* Within net.ipv4.ip_local_port_range, or it is as if nothing had been said. */
#define RANGE_FIRST 41500u
#define RANGE_LAST  41999u

static void show_port(int s)
{
        struct sockaddr_in a;
        socklen_t len = sizeof(a);

        SHOW(getsockname(s, (void *)&a, &len));
        printf("  %s\n", ntohs(a.sin_port) >= RANGE_FIRST && ntohs(a.sin_port) <= RANGE_LAST
                                 ? "of the range"
                                 : "another port");
}

/* Ports that are chosen for a socket: by connect(), by bind(), by sending. */
void scene_port_range(void)
{
        unsigned range = RANGE_LAST << 16 | RANGE_FIRST, wrong = RANGE_FIRST << 16 | RANGE_LAST;
        struct sockaddr_in to, any = loopback(), at;
        int l = listener(&to), u = udp_socket(&at);

        for (int how = 0; how < 4; how++) {
                int s = socket(AF_INET, how == 3 ? SOCK_DGRAM : SOCK_STREAM, 0);

                SHOW(setsockopt(s, IPPROTO_IP, IP_LOCAL_PORT_RANGE_, &wrong, sizeof(wrong)));
                if (how > 0)
                        SHOW(setsockopt(s, IPPROTO_IP, IP_LOCAL_PORT_RANGE_, &range,
                                        sizeof(range)));
                if (how == 2)
                        SHOW(bind(s, (void *)&any, sizeof(any)));
                if (how < 3)
                        SHOW(connect(s, (void *)&to, sizeof(to)));
                else
                        SHOW(sendto(s, "x", 1, 0, (void *)&at, sizeof(at)));
                if (how > 0) /* without a range it may be of that one by chance */
                        show_port(s);
                close(s);
        }
        close(l);
        close(u);
}

/* ---- MSG_ZEROCOPY: over loopback bytes are copied, and the error queue tells so ---- */

static void drain_much(int fd, int calls)
{
        char b[MUCH];

        for (int i = 0; i < calls; i++)
                recv(fd, b, MUCH, MSG_WAITALL);
}

/* Until all `calls` have been told of, in one piece or several. */
static void show_notes(int fd, unsigned calls)
{
        /* An event of its own, which this is not. */
        struct pollfd p = {.fd = fd, .events = POLLRDHUP};
        _Alignas(8) char control[128];
        struct sock_extended_err e = {.ee_data = 0};

        for (unsigned told = 0; told < calls; told = e.ee_data + 1) {
                struct msghdr m = {.msg_control = control, .msg_controllen = sizeof(control)};
                struct cmsghdr *c;

                if (poll(&p, 1, LONG) != 1 || p.revents != POLLERR ||
                    recvmsg(fd, &m, MSG_ERRQUEUE) != 0)
                        die("note");
                c = CMSG_FIRSTHDR(&m);
                if (!c)
                        die("nothing beside");
                memcpy(&e, CMSG_DATA(c), sizeof(e));
                if (e.ee_info != told || m.msg_flags != MSG_ERRQUEUE || m.msg_namelen != 0)
                        printf("  %u and not %u, flags %x\n", e.ee_info, told, m.msg_flags);
                if (e.ee_data + 1 == calls)
                        printf("  %u calls told of: level %d, type %d, %zu bytes, errno %u, origin "
                               "%d, code %d\n",
                               calls, c->cmsg_level, c->cmsg_type, (size_t)c->cmsg_len, e.ee_errno,
                               e.ee_origin, e.ee_code);
        }
}

void scene_zerocopy(void)
{
        static char b[MUCH];
        struct iovec iov[2] = {{b, MUCH / 2}, {b, MUCH / 2}};
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
        int v[2], on = 1, bad = 2;
        struct pollfd p;

        tcp_pair(v);
        SHOW(send(v[0], b, MUCH, MSG_ZEROCOPY)); /* not asked for: as any other */
        drain_much(v[1], 1);
        SHOW(setsockopt(v[0], SOL_SOCKET, SO_ZEROCOPY, &bad, sizeof(bad)));
        SHOW(setsockopt(v[0], SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)));
        SHOW(recvmsg(v[0], &m, MSG_ERRQUEUE | MSG_DONTWAIT));
        SHOW(send(v[0], b, MUCH, MSG_ZEROCOPY));
        SHOW(send(v[0], b, MUCH, 0));
        SHOW(sendmsg(v[0], &m, MSG_ZEROCOPY));
        SHOW(sendto(v[0], b, MUCH, MSG_ZEROCOPY, NULL, 0));
        drain_much(v[1], 4);
        show_notes(v[0], 3);
        SHOW(recvmsg(v[0], &m, MSG_ERRQUEUE));
        p = (struct pollfd){.fd = v[0], .events = POLLIN};
        SHOW(poll(&p, 1, 0));
        SHOW(send(v[0], b, MUCH, MSG_ZEROCOPY));
        drain_much(v[1], 1);
        wait_readable(v[0]); /* for the note, which no read fails of */
        SHOW(recv(v[0], b, 1, MSG_DONTWAIT));
        close2(v);
}

/* ---- errors that are kept (IP_RECVERR) end no read that waits, but the one that they are told
 * by ---- */

void scene_kept_errors(void)
{
        struct timeval tv = {.tv_usec = 50000};
        struct sockaddr_in sa;
        int gone = udp_socket(&sa), s = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
        char b[8];

        setsockopt(s, IPPROTO_IP, IP_RECVERR, &on, sizeof(on));
        setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        connect(s, (void *)&sa, sizeof(sa));
        close(gone);
        SHOW(send(s, "x", 1, 0));
        SHOW(recv(s, b, sizeof(b), 0));
        SHOW(recv(s, b, sizeof(b), 0));
        close(s);
}
