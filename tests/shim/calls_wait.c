/*
 * shim_calls, waiting: poll, select, epoll, and threads that wait.
 */
#include "tests/shim/calls.h"

void scene_poll(void)
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
        SHOW(poll(f + 1, 2, LONG));
        SHOW(f[1].revents);
        SHOW(f[2].revents);
        write(p[1], "y", 1);
        SHOW(ppoll(f + 2, 1, &ts, NULL));
        SHOW(__poll(f + 1, 1, LONG));
        SHOW(__poll_chk(f + 1, 1, LONG, sizeof(f[0])));
        SHOW(__ppoll_chk(f + 1, 1, &ts, NULL, sizeof(f[0])));
        read(v[1], b, sizeof(b));
        SHOW(ppoll(f + 1, 1, &ts, NULL));
        close(v[0]);
        wait_readable(v[1]); /* the end has to get there */
        f[1].events = POLLIN | POLLRDHUP | POLLOUT;
        SHOW(poll(f + 1, 1, LONG));
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

/* Microseconds of more than a second: select() alone takes them. */
void scene_select_microseconds(void)
{
        struct timeval tv = {0, 100000000};
        fd_set r;
        char b[16];
        int v[2];

        tcp_pair(v);
        if (fork() == 0) {
                usleep(100000);
                write(v[0], "late", 4);
                _exit(0);
        }
        FD_ZERO(&r);
        FD_SET(v[1], &r);
        SHOW(select(v[1] + 1, &r, NULL, NULL, &tv));
        SHOW(tv.tv_sec > 0 && tv.tv_usec < 1000000);
        show_bytes("recv", b, recv(v[1], b, sizeof(b), MSG_DONTWAIT));
        wait(NULL);
        FD_ZERO(&r);
        FD_SET(v[1], &r);
        tv = (struct timeval){0, 1000001};
        SHOW(select(v[1] + 1, &r, NULL, NULL, &tv));
        close2(v);
}

void scene_select(void)
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
        wait_readable(v[1]);
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

/* select() says `count` of the descriptors, and how many of them: in time it will. */
static int select_until(const int *fd, int n, int count)
{
        int top = 0, ready = -1;
        fd_set r;

        for (int i = 0; i < 1000000 && ready != count; i++) {
                FD_ZERO(&r);
                for (int k = 0; k < n; k++) {
                        FD_SET(fd[k], &r);
                        top = fd[k] > top ? fd[k] : top;
                }
                ready = select(top + 1, &r, NULL, NULL, NULL);
        }
        return ready;
}

/* What select() says of two to read from and perhaps one to write to. */
static void select_now(const char *what, int top, int in, int idle, int out)
{
        struct timeval none = {0, 0};
        fd_set r, w;
        int n;

        FD_ZERO(&r);
        FD_ZERO(&w);
        FD_SET(in, &r);
        FD_SET(idle, &r);
        if (out >= 0)
                FD_SET(out, &w);
        n = select(top + 1, &r, &w, NULL, &none);
        printf("  %s: %d, %d %d %d\n", what, n, FD_ISSET(in, &r) != 0, FD_ISSET(idle, &r) != 0,
               out >= 0 && FD_ISSET(out, &w));
}

/* The same question again and again, and each thing that may be different the next time. */
void scene_select_again(void)
{
        struct sockaddr_in to, at;
        int u = udp_socket(&to), from = udp_socket(&at), v[2], top;
        char b[8];

        tcp_pair(v);
        top = v[0] > v[1] ? v[0] : v[1];
        for (int i = 0; i < 3; i++)
                sendto(from, "abc", 3, 0, (void *)&to, sizeof(to));
        wait_readable(u);
        for (int round = 0; round < 3; round++) {
                for (int i = 0; i < 3; i++)
                        select_now("again", top, u, v[1], -1);
                select_now("with one to write to", top, u, v[1], v[0]);
                select_now("without", top, u, v[1], -1);
                select_now("fewer", u, u, v[1], -1);
                select_now("others", top, v[1], u, -1);
                select_now("not that", top, from, v[1], -1);
                select_now("again", top, u, v[1], -1);
                select_now("again", top, u, v[1], -1);
                show_bytes("read", b, read(u, b, round == 1 ? 2 : sizeof(b)));
        }
        select_now("all read", top, u, v[1], -1);
        sendto(from, "", 0, 0, (void *)&to, sizeof(to));
        wait_readable(u);
        select_now("an empty one", top, u, v[1], -1);
        select_now("an empty one", top, u, v[1], -1);
        show_bytes("read", b, read(u, b, sizeof(b)));
        write(v[0], "x", 1);
        wait_readable(v[1]);
        select_now("the stream", top, u, v[1], -1);
        select_now("the stream", top, u, v[1], -1);
        close(u);
        SHOW(read(u, b, 1));
        close(from);
        close2(v);
}

/* Beside one that is always ready the others are idle, look after look, and then are not: by what
 * comes, by a call of the process itself, and because the number is another socket's. */
void scene_select_idle(void)
{
        struct sockaddr_in to, at;
        int u = udp_socket(&to), from = udp_socket(&at), l = listener(&at), v[2], p[2], c;
        char b[8];

        tcp_pair(v);
        tcp_pair(p);
        sendto(from, "x", 1, 0, (void *)&to, sizeof(to));
        int fd[3] = {u, l, v[1]};
        SHOW(select_until(fd, 3, 1));
        for (int i = 0; i < 100; i++)
                if (select_until(fd, 3, 1) != 1)
                        die("idle");
        write(v[0], "y", 1);
        SHOW(select_until(fd, 3, 2));
        read(v[1], b, sizeof(b));
        SHOW(select_until(fd, 3, 1));
        c = socket(AF_INET, SOCK_STREAM, 0);
        connect(c, (void *)&at, sizeof(at));
        SHOW(select_until(fd, 3, 2));
        close(accept(l, NULL, NULL));
        SHOW(select_until(fd, 3, 1));
        write(p[0], "z", 1);
        wait_readable(p[1]);
        SHOW(dup2(p[1], v[1]) == v[1]);
        SHOW(select_until(fd, 3, 2));
        read(v[1], b, sizeof(b));
        SHOW(select_until(fd, 3, 1));
        if (fork() == 0) {
                write(p[0], "child", 5);
                _exit(0);
        }
        wait(NULL);
        SHOW(select_until(fd, 3, 2));
        read(v[1], b, sizeof(b));
        SHOW(select_until(fd, 3, 1));
        SHOW(shutdown(v[1], SHUT_RD));
        SHOW(select_until(fd, 3, 2));
        read(u, b, sizeof(b));
        SHOW(select_until(fd, 3, 1));
        close(c);
        close(u);
        close(from);
        close(l);
        close2(v);
        close2(p);
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

void scene_epoll(void)
{
        struct epoll_event ev;
        struct timespec ts = {0, 1000000};
        struct pollfd pf;
        char b[16];
        int ep = epoll_create1(0), outer = epoll_create(5), other = epoll_create1(EPOLL_CLOEXEC),
            v[2], p[2], d;

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
        show_events("level", ep, LONG);
        show_events("level again", ep, LONG);
        show_events("in a second set", other, LONG);
        pf = (struct pollfd){.fd = ep, .events = POLLIN};
        SHOW(poll(&pf, 1, 0));
        SHOW(ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN, 7));
        show_events("nested", outer, LONG);
        read(v[1], b, sizeof(b));
        SHOW(poll(&pf, 1, 0));
        show_events("nested, nothing", outer, 5);
        write(p[1], "y", 1);
        show_events("kernel's", ep, LONG);
        read(p[0], b, sizeof(b));
        SHOW(ctl(ep, EPOLL_CTL_MOD, v[1], EPOLLIN | EPOLLET, 3));
        write(v[0], "1", 1);
        show_events("edge", ep, LONG);
        show_events("no edge", ep, 5);
        write(v[0], "2", 1);
        show_events("another edge", ep, LONG);
        SHOW(ctl(ep, EPOLL_CTL_MOD, v[1], EPOLLIN | EPOLLET, 4));
        show_events("re-armed", ep, LONG);
        SHOW(ctl(ep, EPOLL_CTL_MOD, v[1], EPOLLIN | EPOLLONESHOT, 5));
        show_events("one shot", ep, LONG);
        show_events("shot", ep, 5);
        SHOW(ctl(ep, EPOLL_CTL_MOD, v[1], EPOLLIN | EPOLLOUT | EPOLLONESHOT, 6));
        show_events("one shot, both", ep, LONG);
        read(v[1], b, sizeof(b));
        SHOW(ctl(ep, EPOLL_CTL_MOD, v[1], EPOLLIN | EPOLLRDHUP, 6));
        d = dup(v[1]);
        SHOW(ctl(ep, EPOLL_CTL_ADD, d, EPOLLIN, 8));
        shutdown(v[0], SHUT_WR);
        pf = (struct pollfd){.fd = v[1], .events = POLLRDHUP};
        poll(&pf, 1, LONG);
        show_events("end of stream, twice", ep, LONG);
        SHOW(epoll_pwait(ep, &ev, 1, LONG, NULL));
        SHOW(epoll_pwait2(ep, &ev, 1, &ts, NULL));
        SHOW(epoll_wait(ep, &ev, 0, 0));
        SHOW(epoll_wait(999, &ev, 1, 0));
        close(v[1]);
        show_events("its duplicate holds it", ep, LONG);
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

void scene_epoll_before_connect(void)
{
        struct sockaddr_in sa;
        int l = listener(&sa), s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0),
            ep = epoll_create1(0), c;
        struct pollfd pf;

        SHOW(ctl(ep, EPOLL_CTL_ADD, l, EPOLLIN, 1));
        SHOW(ctl(ep, EPOLL_CTL_ADD, s, EPOLLOUT | EPOLLIN | EPOLLET, 2));
        show_events("unconnected", ep, 10);
        (void)connect(s, (void *)&sa, sizeof(sa));
        wait_readable(l);
        pf = (struct pollfd){.fd = s, .events = POLLOUT};
        poll(&pf, 1, LONG);
        show_events("connected", ep, LONG);
        c = accept(l, NULL, NULL);
        show_events("accepted", ep, 10);
        write(c, "x", 1);
        show_events("data", ep, LONG);
        close(c);
        close(s);
        close(l);
        show_events("all closed", ep, 5);
        close(ep);
}

/* ---- threads ---- */

static void *writer(void *arg)
{
        int fd = *(int *)arg;
        char c = 'a';

        for (int i = 0; i < 26; i++, c++)
                write(fd, &c, 1);
        return NULL;
}

void scene_threads(void)
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

/* Two threads write datagrams and another reads them, until nobody polls any more. */
static struct {
        _Atomic bool over, written;
        struct sockaddr_in to;
        int from, at;
} traffic;

static void *writes_datagrams(void *arg)
{
        static const char much[MUCH];

        while (!traffic.over)
                send(traffic.from, much, sizeof much, 0);
        return NULL;
}

static void *reads_datagrams(void *arg)
{
        char b[MUCH];

        while (!traffic.written)
                recv(traffic.at, b, sizeof b, 0);
        return NULL;
}

/* Who polls for room has it sooner or later: nothing else ends a poll, and certainly not
 * at once. */
void scene_poll_beside_writers(void)
{
        struct timeval pause = {0, 10000};
        pthread_t writer[2], reader;
        struct pollfd f;
        int other = 0;

        traffic.at = udp_socket(&traffic.to);
        setsockopt(traffic.at, SOL_SOCKET, SO_RCVTIMEO, &pause, sizeof pause);
        traffic.from = socket(AF_INET, SOCK_DGRAM, 0);
        SHOW(connect(traffic.from, (struct sockaddr *)&traffic.to, sizeof traffic.to));
        pthread_create(&reader, NULL, reads_datagrams, NULL);
        for (int i = 0; i < 2; i++)
                pthread_create(&writer[i], NULL, writes_datagrams, NULL);
        f = (struct pollfd){.fd = traffic.from, .events = POLLOUT};
        for (int i = 0; i < 2000000; i++)
                other += poll(&f, 1, LONG) != 1;
        SHOW(other);
        traffic.over = true;
        for (int i = 0; i < 2; i++)
                pthread_join(writer[i], NULL);
        traffic.written = true;
        pthread_join(reader, NULL);
        close(traffic.at);
        close(traffic.from);
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
                        ctl(churn_set, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLONESHOT | EPOLLET,
                            (uint64_t)s);
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

void scene_epoll_threads(void)
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

/* ---- a datagram socket that gets its name while a thread waits for what comes to it ---- */

enum waits {
        BY_RECV,
        BY_RECVFROM,
        BY_RECVMSG,
        BY_RECVMMSG,
        BY_READ,
        BY_READV,
        BY_POLL,
        BY_SELECT,
        BY_EPOLL,
        WAYS
};
enum named { BY_SENDING, BY_BINDING, BY_CONNECTING, NAMED };

struct awaited {
        int how, fd;
        _Atomic pid_t tid;
        char came[16];
        ssize_t n;
};

static void wait_by(int how, int fd)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};
        struct epoll_event ev = {.events = EPOLLIN};
        int ep;
        fd_set set;

        if (how == BY_POLL) {
                poll(&p, 1, -1);
        } else if (how == BY_SELECT) {
                FD_ZERO(&set);
                FD_SET(fd, &set);
                select(fd + 1, &set, NULL, NULL, NULL);
        } else if (how == BY_EPOLL) {
                ep = epoll_create1(0);
                epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
                epoll_wait(ep, &ev, 1, -1);
                close(ep);
        }
}

static void *awaits(void *arg)
{
        struct awaited *a = arg;
        char *b = a->came;
        struct iovec iov = {b, sizeof(a->came)};
        struct mmsghdr mm = {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};
        ssize_t n;

        a->tid = (pid_t)syscall(SYS_gettid);
        wait_by(a->how, a->fd);
        switch (a->how) {
        case BY_RECVFROM:
                n = recvfrom(a->fd, b, sizeof(a->came), 0, &(struct sockaddr){0},
                             &(socklen_t){sizeof(struct sockaddr)});
                break;
        case BY_RECVMSG:
                n = recvmsg(a->fd, &mm.msg_hdr, 0);
                break;
        case BY_RECVMMSG:
                n = recvmmsg(a->fd, &mm, 1, 0, NULL) == 1 ? (ssize_t)mm.msg_len : -1;
                break;
        case BY_READ:
                n = read(a->fd, b, sizeof(a->came));
                break;
        case BY_READV:
                n = readv(a->fd, &iov, 1);
                break;
        default:
                n = recv(a->fd, b, sizeof(a->came), 0);
        }
        a->n = n;
        return NULL;
}

static void name_it(int named, int fd, int other, const struct sockaddr_in *to)
{
        struct sockaddr_in from = loopback();
        socklen_t len = sizeof(from);
        char b[16];

        if (named == BY_BINDING) {
                SHOW(bind(fd, (void *)&from, sizeof(from)));
                getsockname(fd, (void *)&from, &len);
        } else {
                if (named == BY_SENDING) {
                        SHOW(sendto(fd, "there", 5, 0, (const void *)to, sizeof(*to)));
                } else {
                        SHOW(connect(fd, (const void *)to, sizeof(*to)));
                        SHOW(send(fd, "there", 5, 0));
                }
                show_bytes("sent", b, recvfrom(other, b, sizeof(b), 0, (void *)&from, &len));
        }
        SHOW(sendto(other, "back", 4, 0, (void *)&from, sizeof(from)));
}

void scene_udp_awaited(void)
{
        for (int named = 0; named < NAMED; named++)
                for (int how = 0; how < WAYS; how++) {
                        struct awaited a = {.how = how, .fd = socket(AF_INET, SOCK_DGRAM, 0)};
                        struct sockaddr_in sa, own;
                        socklen_t len = sizeof(own);
                        int other = udp_socket(&sa);
                        pthread_t t;

                        printf("  %d %d\n", named, how);
                        pthread_create(&t, NULL, awaits, &a);
                        while (a.tid == 0)
                                usleep(100);
                        until_asleep(a.tid);
                        SHOW(getsockname(a.fd, (void *)&own, &len));
                        SHOW(own.sin_port);
                        name_it(named, a.fd, other, &sa);
                        pthread_join(t, NULL);
                        show_bytes("came", a.came, a.n);
                        close(other);
                        close(a.fd);
                }
}
