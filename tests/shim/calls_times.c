/* Times of what arrives over a connection: SO_TIMESTAMP, SO_TIMESTAMPNS, SO_TIMESTAMPING. */
#include "tests/shim/calls.h"

#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>

struct got {
        ssize_t n;
        int flags;
        size_t beside;
        struct timespec at; /* by whichever of the messages came last */
};

/* Linux's three kinds; tv_nsec of the first is in microseconds. */
static void take_time(const struct cmsghdr *c, struct got *g)
{
        memcpy(&g->at, CMSG_DATA(c), sizeof(g->at));
        if (c->cmsg_type == SO_TIMESTAMP)
                g->at.tv_nsec *= 1000;
}

static struct got receive(int s, size_t want, size_t room, int flags, bool show)
{
        _Alignas(struct cmsghdr) char beside[256];
        char b[100];
        struct iovec iov = {b, want};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = room ? beside : NULL,
                           .msg_controllen = room};
        struct got g = {.n = recvmsg(s, &m, flags), .flags = m.msg_flags & ~MSG_CMSG_CLOEXEC};

        g.beside = m.msg_controllen;
        if (show)
                printf("  %zd %s flags %x, %zu beside\n", g.n, name_of(g.n), g.flags, g.beside);
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); g.n >= 0 && g.beside != 0 && c;
             c = CMSG_NXTHDR(&m, c)) {
                if (show)
                        printf("    level %d type %d, %zu bytes\n", c->cmsg_level, c->cmsg_type,
                               c->cmsg_len);
                if (c->cmsg_len >= CMSG_LEN(sizeof(g.at)))
                        take_time(c, &g);
        }
        return g;
}

static struct timespec earlier(struct timespec ts, long ns)
{
        ts.tv_nsec -= ns;
        if (ts.tv_nsec < 0) {
                ts.tv_sec--;
                ts.tv_nsec += 1000000000;
        }
        return ts;
}

static bool before(struct timespec a, struct timespec b)
{
        return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

/* Linux begins to take times a moment after it was asked to. */
static void until_stamped(int s, int t)
{
        for (int i = 0; i < LONG; i++) {
                send(t, "yet", 3, 0);
                wait_readable(s);
                if (receive(s, 3, 256, 0, false).beside != 0)
                        return;
                usleep(1000);
        }
        printf("  never\n");
}

static void set(int s, int name, int v)
{
        int got[4] = {7, 7, 7, 7};
        socklen_t len = sizeof(got);

        SHOW(setsockopt(s, SOL_SOCKET, name, &v, sizeof(v)));
        SHOW(getsockopt(s, SOL_SOCKET, name, got, &len));
        printf("  %d: %d, %u bytes\n", name, got[0], len);
}

/* Clocks may differ by what it takes to read them. */
static struct timespec a_moment_ago(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_REALTIME, &ts);
        return earlier(ts, 100000);
}

/* Each byte's time is its own, whatever is read with it; the last one's counts. */
static void in_order(int s, int t)
{
        struct timespec sent[3];
        struct got g[3];

        for (int i = 0; i < 3; i++) {
                usleep(3000);
                sent[i] = a_moment_ago();
                send(t, i == 1 ? "bb" : "a", i == 1 ? 2 : 1, 0);
                wait_readable(s);
        }
        usleep(3000);
        g[0] = receive(s, 4, 256, MSG_PEEK, true);
        g[1] = receive(s, 2, 256, 0, true);
        g[2] = receive(s, 100, 256, 0, true);
        printf("  the peeked one %s before it was sent\n",
               before(g[0].at, sent[2]) ? "came" : "did not come");
        printf("  the second %s before it was sent\n",
               before(g[1].at, sent[1]) ? "came" : "did not come");
        printf("  the last %s before it was sent\n",
               before(g[2].at, sent[2]) ? "came" : "did not come");
}

/* Of sending: told by the error queue. Who asks before there is a connection has it. */
static void sent_times(void)
{
        int flags = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE,
            s = socket(AF_INET, SOCK_STREAM, 0), t, l;
        struct sockaddr_in sa;
        struct pollfd p = {s, 0, 0};

        l = listener(&sa);
        set(l, SO_TIMESTAMP, 1);
        set(s, SO_TIMESTAMPING, flags);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        t = accept(l, NULL, NULL);
        SHOW(send(s, "when", 4, 0));
        SHOW(poll(&p, 1, LONG));
        receive(s, 100, 256, MSG_ERRQUEUE, true);
        close(s);
        close(t);
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        t = accept(l, NULL, NULL);
        until_stamped(t, s); /* the listener's */
        close(s);
        close(t);
        close(l);
}

void scene_stream_times(void)
{
        static const int name[] = {SO_TIMESTAMP, SO_TIMESTAMPNS};
        int v[2], on = 1, flags = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;

        tcp_pair(v);
        setsockopt(v[1], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        SHOW(send(v[1], "none", 4, 0));
        wait_readable(v[0]);
        receive(v[0], 100, 256, 0, true);
        for (size_t i = 0; i < ARRAY_LEN(name); i++) {
                set(v[0], name[i], 1);
                until_stamped(v[0], v[1]);
                in_order(v[0], v[1]);
        }
        set(v[0], SO_TIMESTAMPING, flags);
        in_order(v[0], v[1]);
        SHOW(send(v[1], "no room", 7, 0));
        wait_readable(v[0]);
        receive(v[0], 2, 0, 0, true);
        receive(v[0], 2, 40, 0, true);
        receive(v[0], 2, 10, 0, true);
        receive(v[0], 1, 256, MSG_WAITALL, true);
        set(v[0], SO_TIMESTAMP, 0);
        in_order(v[0], v[1]);
        set(v[0], SO_TIMESTAMPING, 0);
        SHOW(send(v[1], "off", 3, 0));
        wait_readable(v[0]);
        receive(v[0], 100, 256, 0, true);
        SHOW(setsockopt(v[0], SOL_SOCKET, SO_TIMESTAMPING, &flags, 2));
        close2(v);
        sent_times();
}

/* ---- when bytes of a stream were queued, sent, acknowledged ---- */

#define ALL_SENT                                                                              \
        (SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_ACK | \
         SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY)

static void show_note(const struct msghdr *m, struct timespec *at)
{
        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR((struct msghdr *)m, c)) {
                struct sock_extended_err e;

                printf("    level %d type %d, %zu bytes\n", c->cmsg_level, c->cmsg_type,
                       (size_t)c->cmsg_len);
                if (c->cmsg_type == SO_TIMESTAMPING && c->cmsg_len >= CMSG_LEN(sizeof(*at)))
                        memcpy(at, CMSG_DATA(c), sizeof(*at));
                if (c->cmsg_type != IP_RECVERR || c->cmsg_len < CMSG_LEN(sizeof(e)))
                        continue;
                memcpy(&e, CMSG_DATA(c), sizeof(e));
                printf("    error %u, origin %d, type %d, code %d, stage %u, number %u\n",
                       e.ee_errno, e.ee_origin, e.ee_type, e.ee_code, e.ee_info, e.ee_data);
        }
}

/* So many, with so much room beside, and no more; no time is before `since`, nor before the one
 * before it, but for how the clock is read. */
static void show_stages(int s, int n, size_t room, struct timespec since)
{
        _Alignas(struct cmsghdr) char beside[256];
        char b[100];

        for (int i = 0; i <= n; i++) {
                struct pollfd p = {.fd = s, .events = POLLRDHUP};
                struct iovec iov = {b, sizeof(b)};
                struct msghdr m = {.msg_iov = &iov,
                                   .msg_iovlen = 1,
                                   .msg_control = beside,
                                   .msg_controllen = room};
                struct timespec at = since;
                ssize_t r;

                if (i < n && (poll(&p, 1, LONG) != 1 || p.revents != POLLERR))
                        printf("  events %x\n", p.revents);
                r = recvmsg(s, &m, MSG_ERRQUEUE);
                printf("  told: %zd %s, flags %x, %zu beside\n", r, name_of(r), m.msg_flags,
                       r < 0 ? 0 : (size_t)m.msg_controllen);
                if (r >= 0)
                        show_note(&m, &at);
                if (before(at, since))
                        printf("    too early\n");
                since = earlier(at, 200000);
        }
}

static void send_and_show(int s, const char *what, int stages)
{
        struct timespec since = a_moment_ago();

        SHOW(send(s, what, strlen(what), 0));
        show_stages(s, stages, 256, since);
}

/* One call asks by itself. */
static void call_asks(int s, unsigned what, size_t len, int stages)
{
        _Alignas(struct cmsghdr) char beside[CMSG_SPACE(sizeof(what))] = {0};
        struct iovec iov = {"asked", 5};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = beside,
                           .msg_controllen = sizeof(beside)};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        struct timespec since = a_moment_ago();

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SO_TIMESTAMPING;
        c->cmsg_len = CMSG_LEN(len);
        memcpy(CMSG_DATA(c), &what, sizeof(what));
        SHOW(sendmsg(s, &m, 0));
        show_stages(s, stages, 256, since);
}

/* More than there is room for: the number is that of the last byte that was taken. */
static void part_is_sent(int s, int t)
{
        static char b[4 << 20];
        _Alignas(struct cmsghdr) char beside[256];
        struct pollfd p = {.fd = s, .events = POLLRDHUP};
        struct sock_extended_err e = {.ee_data = 0};
        ssize_t r, got;

        set(s, SO_TIMESTAMPING, (int)ALL_SENT | SOF_TIMESTAMPING_OPT_ID);
        r = send(s, b, sizeof(b), MSG_DONTWAIT);
        for (got = 0; got < r;)
                got += recv(t, b, sizeof(b), 0);
        while (e.ee_info != SCM_TSTAMP_ACK) {
                struct msghdr m = {.msg_control = beside, .msg_controllen = sizeof(beside)};

                poll(&p, 1, LONG);
                if (recvmsg(s, &m, MSG_ERRQUEUE) < 0)
                        die("no note");
                for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
                        if (c->cmsg_type == IP_RECVERR)
                                memcpy(&e, CMSG_DATA(c), sizeof(e));
        }
        printf("  the last byte's number is %s\n",
               e.ee_data == (unsigned)r - 1 ? "right" : "wrong");
}

static void by_the_edge(int s)
{
        struct epoll_event e = {.events = EPOLLIN | EPOLLET};
        int ep = epoll_create1(0);

        epoll_ctl(ep, EPOLL_CTL_ADD, s, &e);
        SHOW(epoll_wait(ep, &e, 1, 0));
        for (int i = 0; i < 3; i++) {
                struct timespec since = a_moment_ago();

                send(s, "e", 1, 0);
                SHOW(epoll_wait(ep, &e, 1, LONG));
                printf("  events %x\n", e.events);
                show_stages(s, 1, 256, since);
                SHOW(epoll_wait(ep, &e, 1, 0));
        }
        close(ep);
}

/* Asked for by one process, another one sends. */
static void two_processes(int s, int t)
{
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                int flags = (int)ALL_SENT;
                setsockopt(s, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof(flags));
                _exit(0);
        }
        waitpid(pid, &status, 0);
        send_and_show(s, "parent", 3);
        pid = fork();
        if (pid == 0) {
                send(s, "child", 5, 0);
                _exit(0);
        }
        waitpid(pid, &status, 0);
        show_stages(s, 3, 256, (struct timespec){0, 0});
        (void)t;
}

/* Before there is a connection: bytes cannot be numbered yet. */
static void asked_before(void)
{
        struct sockaddr_in sa;
        int flags = (int)ALL_SENT, on = 1, s = socket(AF_INET, SOCK_STREAM, 0), l = listener(&sa),
            t;

        set(l, SO_TIMESTAMPING, flags);
        set(l, SO_TIMESTAMPING, flags | SOF_TIMESTAMPING_OPT_ID);
        set(s, SO_TIMESTAMPING, flags | SOF_TIMESTAMPING_OPT_ID);
        set(s, SO_TIMESTAMPING, flags);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        t = accept(l, NULL, NULL);
        setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        send_and_show(s, "one", 3);
        set(t, SO_TIMESTAMPING, flags | SOF_TIMESTAMPING_OPT_ID);
        send_and_show(t, "inherited", 3);
        send_and_show(t, "more", 3);
        SHOW(send(s, "left", 4, 0)); /* with something in the queue */
        close(s);
        close(t);
        close(l);
}

void scene_stream_sent_times(void)
{
        static const size_t room[] = {100, 64, 40, 20, 10, 0};
        int v[2], on = 1, id = SOF_TIMESTAMPING_OPT_ID;

        tcp_pair(v);
        setsockopt(v[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        SHOW(send(v[0], "before", 6, 0));
        recv(v[1], (char[6]){0}, 6, MSG_WAITALL);
        for (int out = 1; out != 0;) {
                usleep(1000);
                ioctl(v[0], SIOCOUTQ, &out);
        }
        set(v[0], SO_TIMESTAMPING, (int)ALL_SENT | id);
        send_and_show(v[0], "a", 3);
        send_and_show(v[0], "bcd", 3);
        set(v[0], SO_TIMESTAMPING, (int)ALL_SENT);
        send_and_show(v[0], "no number", 3);
        set(v[0], SO_TIMESTAMPING, (int)ALL_SENT | id);
        send_and_show(v[0], "numbers again", 3);
        call_asks(v[0], 0, 4, 0); /* not of this one */
        set(v[0], SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_ACK | SOF_TIMESTAMPING_OPT_TSONLY | id);
        send_and_show(v[0], "no times", 1);
        set(v[0], SO_TIMESTAMPING, SOF_TIMESTAMPING_OPT_STATS);
        set(v[0], SO_TIMESTAMPING,
            SOF_TIMESTAMPING_TX_ACK | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY | id);
        for (size_t i = 0; i < ARRAY_LEN(room); i++) {
                struct timespec since = a_moment_ago();

                send(v[0], "room", 4, 0);
                show_stages(v[0], 1, room[i], since);
        }
        by_the_edge(v[0]);
        set(v[0], SO_TIMESTAMPING, SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY | id);
        send_and_show(v[0], "nothing", 0);
        call_asks(v[0], SOF_TIMESTAMPING_TX_ACK, 4, 1);
        call_asks(v[0], SOF_TIMESTAMPING_TX_ACK | SOF_TIMESTAMPING_TX_SCHED, 4, 2);
        call_asks(v[0], SOF_TIMESTAMPING_TX_ACK | SOF_TIMESTAMPING_SOFTWARE, 4, 0);
        call_asks(v[0], SOF_TIMESTAMPING_TX_ACK, 3, 0);
        two_processes(v[0], v[1]);
        close2(v);
        tcp_pair(v);
        part_is_sent(v[0], v[1]);
        close2(v);
        asked_before();
}

/* ---- when a datagram left, of sockets that have sent some before they ask ---- */

/* All that the error queue tells of, once there is something. */
static void show_sent(int s)
{
        _Alignas(struct cmsghdr) char beside[512];
        struct pollfd p = {.fd = s, .events = POLLRDHUP};
        char b[200];

        SHOW(poll(&p, 1, LONG));
        for (;;) {
                struct iovec iov = {b, sizeof(b)};
                struct msghdr m = {.msg_iov = &iov,
                                   .msg_iovlen = 1,
                                   .msg_control = beside,
                                   .msg_controllen = sizeof(beside)};
                ssize_t n = recvmsg(s, &m, MSG_ERRQUEUE | MSG_DONTWAIT);

                printf("  told: %zd %s, flags %x\n", n, name_of(n), m.msg_flags);
                if (n < 0)
                        return;
                for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
                        struct sock_extended_err e = {.ee_errno = 0};
                        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR)
                                memcpy(&e, CMSG_DATA(c), sizeof(e));
                        printf("    level %d type %d, %zu bytes: error %u, origin %d, stage %u, "
                               "number %u\n",
                               c->cmsg_level, c->cmsg_type, (size_t)c->cmsg_len, e.ee_errno,
                               e.ee_origin, e.ee_info, e.ee_data);
                }
        }
}

/* One that asks for it by itself. */
static void send_asking(int s, unsigned what)
{
        _Alignas(struct cmsghdr) char beside[CMSG_SPACE(sizeof(what))] = {0};
        struct iovec iov = {"asked", 5};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = beside,
                           .msg_controllen = sizeof(beside)};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SO_TIMESTAMPING;
        c->cmsg_len = CMSG_LEN(sizeof(what));
        memcpy(CMSG_DATA(c), &what, sizeof(what));
        SHOW(sendmsg(s, &m, 0));
}

void scene_datagram_times(void)
{
        static const unsigned sent[] = {SOF_TIMESTAMPING_TX_SOFTWARE,
                                        SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_SOFTWARE,
                                        SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_OPT_ID,
                                        SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_OPT_ID |
                                                SOF_TIMESTAMPING_OPT_TSONLY,
                                        SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_OPT_TSONLY |
                                                SOF_TIMESTAMPING_OPT_CMSG};
        struct sockaddr_in sa;
        int t = udp_socket(&sa), s = socket(AF_INET, SOCK_DGRAM, 0);
        char b[100];

        connect(s, (void *)&sa, sizeof(sa));
        SHOW(send(s, "first", 5, 0));
        SHOW(recv(t, b, sizeof(b), 0));
        for (size_t i = 0; i < ARRAY_LEN(sent); i++) {
                set(s, SO_TIMESTAMPING, (int)(sent[i] | SOF_TIMESTAMPING_SOFTWARE));
                SHOW(send(s, "when", 4, 0));
                SHOW(recv(t, b, sizeof(b), 0));
                show_sent(s);
                SHOW(send(s, "wh", 2, MSG_MORE));
                SHOW(send(s, "en", 2, 0));
                SHOW(recv(t, b, sizeof(b), 0));
                show_sent(s);
                SHOW(sendto(s, "whom", 4, 0, (void *)&sa, sizeof(sa)));
                SHOW(recv(t, b, sizeof(b), 0));
                show_sent(s);
        }
        set(s, SO_TIMESTAMPING, SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY);
        send_asking(s, SOF_TIMESTAMPING_TX_SOFTWARE);
        SHOW(recv(t, b, sizeof(b), 0));
        show_sent(s);
        send_asking(s, 1u << 31);
        SHOW(send(s, "not", 3, 0));
        SHOW(recv(t, b, sizeof(b), 0));
        set(s, SO_TIMESTAMPING, 0);
        SHOW(send(s, "off", 3, 0));
        SHOW(recv(t, b, sizeof(b), 0));
        SHOW(recv(s, b, sizeof(b), MSG_ERRQUEUE | MSG_DONTWAIT));
        close(s);
        close(t);
}
