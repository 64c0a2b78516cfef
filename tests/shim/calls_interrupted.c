/*
 * shim_calls, calls that wait when a signal comes: with and without SA_RESTART, with times, with
 * something done already, stopped and continued.
 */
#include "tests/shim/calls.h"

static volatile sig_atomic_t came;

static void count(int sig)
{
        came++;
}

static void handle(int flags)
{
        struct sigaction sa = {.sa_handler = count, .sa_flags = flags};

        sigaction(SIGALRM, &sa, NULL);
}

/* Each shows what the call says that a signal meets while it waits, and that one signal came. */
#define MET(call)             \
        do {                  \
                came = 0;     \
                alarm_then(); \
                SHOW(call);   \
                SHOW(came);   \
        } while (0)

static bool put_some(int fd)
{
        char b[65536] = {0};

        return send(fd, b, sizeof(b), MSG_DONTWAIT) > 0 || send(fd, b, 1, MSG_DONTWAIT) > 0;
}

/* Until there is no room, and none comes: what is on its way makes some. */
static void fill(int fd)
{
        for (int quiet = 0; quiet < 5; quiet++) {
                while (put_some(fd))
                        quiet = 0;
                usleep(20000);
        }
}

/* MET() of a call that sends where there is no room. Some may come late: the receiver finds it when
 * it is asked for some, ever more seldom. Then it is filled up, too. */
#define MET_FULL(fd, call)                                         \
        do {                                                       \
                long n_;                                           \
                do {                                               \
                        fill(fd);                                  \
                        came = 0;                                  \
                        alarm_then();                              \
                        n_ = (call);                               \
                        while (n_ > 0 && came == 0)                \
                                poll(NULL, 0, 1);                  \
                } while (n_ > 0);                                  \
                printf("  %s = %ld %s\n", #call, n_, name_of(n_)); \
                SHOW(came);                                        \
        } while (0)

static void time_limit(int fd, int name, int s)
{
        struct timeval tv = {s, 0};

        setsockopt(fd, SOL_SOCKET, name, &tv, sizeof(tv));
}

static void reading(int fd)
{
        char b[16];
        struct iovec iov = {b, sizeof(b)};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
        struct mmsghdr mm = {.msg_hdr = m};

        MET(read(fd, b, sizeof(b)));
        MET(readv(fd, &iov, 1));
        MET(recv(fd, b, sizeof(b), 0));
        MET(recv(fd, b, sizeof(b), MSG_WAITALL));
        MET(recvfrom(fd, b, sizeof(b), MSG_PEEK, NULL, NULL));
        MET(recvmsg(fd, &m, 0));
        MET(recvmmsg(fd, &mm, 1, 0, NULL));
}

static void waiting(int fd)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};
        struct timespec ts = {LONG / 1000, 0};
        struct timeval tv = {LONG / 1000, 0};
        struct epoll_event ev = {.events = EPOLLIN};
        int ep = epoll_create1(0);
        sigset_t none, all;
        fd_set r;

        sigemptyset(&none);
        sigfillset(&all);
        FD_ZERO(&r);
        FD_SET(fd, &r);
        epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
        MET(poll(&p, 1, LONG));
        MET(ppoll(&p, 1, &ts, &none));
        MET(select(fd + 1, &r, NULL, NULL, &tv));
        SHOW(tv.tv_sec < LONG / 1000);
        SHOW(FD_ISSET(fd, &r) != 0);
        MET(pselect(fd + 1, &r, NULL, NULL, &ts, &none));
        MET(epoll_wait(ep, &ev, 1, LONG));
        MET(epoll_pwait(ep, &ev, 1, LONG, &none));
        came = 0;
        raise(SIGUSR1); /* blocked until the call lets it in */
        SHOW(ppoll(&p, 1, &ts, &none));
        SHOW(came);
        raise(SIGUSR1);
        SHOW(epoll_pwait(ep, &ev, 1, LONG, &none));
        SHOW(came);
        raise(SIGUSR1);
        SHOW(pselect(fd + 1, &r, NULL, NULL, &ts, &none));
        SHOW(came);
        ts = (struct timespec){0, 20000000};
        raise(SIGUSR1);
        SHOW(ppoll(&p, 1, &ts, &all));
        SHOW(came);
        FD_ZERO(&r);
        FD_SET(fd, &r);
        SHOW(pselect(fd + 1, &r, NULL, NULL, &ts, &all));
        SHOW(epoll_pwait(ep, &ev, 1, 20, &all));
        SHOW(came);
        SHOW(poll(&p, 1, 20));
        SHOW(ppoll(&p, 1, &ts, &none));
        SHOW(came);
        close(ep);
}

static void usr1_is_blocked(void)
{
        struct sigaction sa = {.sa_handler = count};
        sigset_t set;

        sigaction(SIGUSR1, &sa, NULL);
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, NULL);
}

void scene_interrupted(void)
{
        struct sockaddr_in sa, at = loopback();
        socklen_t len = sizeof(at);
        int l, v[2], u;
        char b[65536] = {0};

        start_alarmer();
        usr1_is_blocked();
        l = listener(&sa);
        tcp_pair(v);
        u = udp_socket(&at);
        handle(0);
        printf(" a connection\n");
        reading(v[1]);
        printf(" datagrams\n");
        reading(u);
        printf(" waiting\n");
        waiting(v[1]);
        waiting(u);
        waiting(l);
        printf(" the rest\n");
        MET(accept(l, NULL, NULL));
        MET(accept4(l, (void *)&at, &len, SOCK_NONBLOCK));
        MET_FULL(v[0], send(v[0], b, 10, 0));
        MET_FULL(v[0], write(v[0], b, 10));
        printf(" restarted, but for those that wait and those with a time\n");
        handle(SA_RESTART);
        waiting(u);
        time_limit(v[0], SO_SNDTIMEO, LONG / 1000);
        MET_FULL(v[0], write(v[0], b, 10));
        time_limit(l, SO_RCVTIMEO, LONG / 1000);
        MET(accept(l, NULL, NULL));
        time_limit(u, SO_RCVTIMEO, LONG / 1000);
        reading(u);
        close2(v);
        tcp_pair(v);
        time_limit(v[1], SO_RCVTIMEO, LONG / 1000);
        reading(v[1]);
        printf(" with something done\n");
        handle(0);
        time_limit(v[1], SO_RCVTIMEO, 0);
        write(v[0], "half", 4);
        MET(recv(v[1], b, 10, MSG_WAITALL));
        time_limit(v[1], SO_RCVTIMEO, LONG / 1000);
        write(v[0], "half", 4);
        MET(recv(v[1], b, 10, MSG_WAITALL));
        handle(SA_RESTART);
        write(v[0], "half", 4);
        MET(recv(v[1], b, 10, MSG_WAITALL));
        close2(v);
        close(l);
        close(u);
        stop_alarmer();
}

/* More than there is room for: what was taken is said, and a little room later goes on. */
void scene_interrupted_sending(void)
{
        const size_t bytes = 16 << 20;
        char *b = calloc(1, bytes); /* not of the program's own memory: scene_memory_locked() */
        ssize_t n;
        int v[2];

        start_alarmer();
        for (int flags = 0; flags <= 1; flags++) {
                handle(flags ? SA_RESTART : 0);
                tcp_pair(v);
                came = 0;
                alarm_then();
                n = write(v[0], b, bytes);
                SHOW(n > 0 && n < (ssize_t)bytes);
                SHOW(came);
                close2(v);
        }
        free(b);
        stop_alarmer();
}

static void storm(bool on)
{
        struct itimerval it = {{0, on ? 1000 : 0}, {0, on ? 1000 : 0}};

        setitimer(ITIMER_REAL, &it, NULL);
}

static int other; /* what wait_beside() reads */

static void wait_beside(int sig)
{
        char c;

        came++;
        recv(other, &c, 1, 0);
}

/* The handler waits for something itself, in vain; what it interrupts is interrupted all
 * the same. */
void scene_interrupted_by_one_who_waits(void)
{
        struct sigaction sa = {.sa_handler = wait_beside};
        struct timeval tv = {0, 20000};
        char b[16];
        int v[2], w[2];

        start_alarmer();
        sigaction(SIGALRM, &sa, NULL);
        tcp_pair(v);
        tcp_pair(w);
        other = w[0];
        setsockopt(other, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        time_limit(v[1], SO_RCVTIMEO, 5);
        MET(recv(v[1], b, sizeof(b), 0));
        time_limit(v[1], SO_RCVTIMEO, 0);
        MET(recv(v[1], b, sizeof(b), 0));
        close2(v);
        close2(w);
        stop_alarmer();
}

static int bytes_in(int pipe)
{
        int n = -1;

        ioctl(pipe, FIONREAD, &n);
        return n;
}

#define SPLICED (4 << 20)

/* Through a pipe while a timer fires, to who reads slowly. */
static void splice_much(int p[2], int fd)
{
        static char b[50000];

        for (long at = 0; at < SPLICED;) {
                size_t n = (size_t)(SPLICED - at) < sizeof(b) ? (size_t)(SPLICED - at) : sizeof(b);

                for (size_t i = 0; i < n; i++)
                        b[i] = pattern((int)(at + (long)i));
                write(p[1], b, n);
                for (ssize_t put; n > 0; n -= (size_t)put, at += put)
                        if ((put = splice(p[0], NULL, fd, NULL, n, 0)) < 0)
                                _exit(9);
        }
}

static long read_slowly(int fd)
{
        static char b[100000];
        long at = 0;
        ssize_t n;

        while ((n = read(fd, b, sizeof(b))) > 0) {
                for (ssize_t i = 0; i < n; i++, at++)
                        if (b[i] != pattern((int)at))
                                return -at;
                usleep(3000);
        }
        return at;
}

/* What a splice() has not sent is in the pipe still, whether it is made again or not. */
void scene_interrupted_splice(void)
{
        char b[4096] = {0};
        int v[2], p[2], before, status;
        ssize_t n;

        start_alarmer();
        handle(0);
        tcp_pair(v);
        pipe(p);
        do {
                fill(v[0]);
                write(p[1], b, sizeof(b));
                before = bytes_in(p[0]);
                came = 0;
                alarm_then();
                n = splice(p[0], NULL, v[0], NULL, sizeof(b), 0);
                while (n > 0 && came == 0)
                        poll(NULL, 0, 1);
        } while (n > 0);
        printf("  splice = %ld %s\n", (long)n, name_of(n));
        SHOW(bytes_in(p[0]) == before);
        stop_alarmer();
        while (bytes_in(p[0]) > 0)
                read(p[0], b, sizeof(b));
        SHOW(splice(p[0], NULL, v[0], NULL, 10, SPLICE_F_NONBLOCK));
        SHOW(splice(p[1], NULL, v[0], NULL, 10, 0));
        SHOW(splice(p[0], NULL, v[0], NULL, 0, 0));
        close(p[1]);
        SHOW(splice(p[0], NULL, v[0], NULL, 10, 0));
        close(p[0]);
        pipe(p);
        close2(v);
        tcp_pair(v);
        fflush(stdout);
        if (fork() == 0) {
                close(v[1]);
                handle(SA_RESTART);
                storm(true);
                splice_much(p, v[0]);
                _exit(0);
        }
        close(v[0]);
        SHOW(read_slowly(v[1]));
        wait(&status);
        SHOW(status);
        close(v[1]);
        close2(p);
}

/* Stopped in a call, and continued: it goes on as if nothing had been. */
void scene_stopped(void)
{
        struct pollfd p;
        char b[16];
        int v[2];

        tcp_pair(v);
        for (int how = 0; how < 2; how++) {
                pid_t us = getpid();
                fflush(stdout);
                if (fork() == 0) {
                        until_asleep(us);
                        kill(us, SIGSTOP);
                        usleep(50000);
                        kill(us, SIGCONT);
                        until_asleep(us);
                        write(v[0], "after", 5);
                        _exit(0);
                }
                p = (struct pollfd){.fd = v[1], .events = POLLIN};
                if (how)
                        SHOW(poll(&p, 1, LONG));
                show_bytes("read", b, read(v[1], b, sizeof(b)));
                wait(NULL);
        }
        close2(v);
}

/* A signal every millisecond while much goes both ways: no byte is lost, and the timer fires. */
#define STORM_BYTES (64 << 20)

static void pour(int fd, int flags)
{
        static char b[100000];
        long at = 0;

        handle(flags);
        storm(true);
        while (at < STORM_BYTES) {
                size_t n = (size_t)(STORM_BYTES - at) < sizeof(b) ? (size_t)(STORM_BYTES - at)
                                                                  : sizeof(b);
                ssize_t put;

                for (size_t i = 0; i < n; i++)
                        b[i] = pattern((int)(at + (long)i));
                for (size_t done = 0; done < n; done += (size_t)put)
                        if ((put = write(fd, b + done, n - done)) < 0) {
                                if (errno != EINTR || flags)
                                        _exit(9);
                                put = 0;
                        }
                at += (long)n;
        }
        storm(false);
}

static long drain(int fd, int flags)
{
        static char b[70000];
        long at = 0;

        handle(flags);
        storm(true);
        while (at < STORM_BYTES) {
                ssize_t n = read(fd, b, sizeof(b));

                if (n == 0 || (n < 0 && (errno != EINTR || flags)))
                        break;
                for (ssize_t i = 0; i < n; i++)
                        if (b[i] != pattern((int)(at + i)))
                                return -1;
                at += n < 0 ? 0 : n;
        }
        storm(false);
        return at;
}

void scene_storm(void)
{
        for (int flags = 0; flags <= 1; flags++) {
                int v[2], status;

                tcp_pair(v);
                fflush(stdout);
                if (fork() == 0) {
                        pour(v[0], flags ? SA_RESTART : 0);
                        _exit(drain(v[0], flags ? SA_RESTART : 0) == STORM_BYTES ? 0 : 8);
                }
                came = 0;
                SHOW(drain(v[1], flags ? SA_RESTART : 0));
                pour(v[1], flags ? SA_RESTART : 0);
                wait(&status);
                SHOW(status);
                SHOW(came > 3);
                close2(v);
        }
}
