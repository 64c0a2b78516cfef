/*
 * shim_calls, threads that are cancelled: asleep in a call, before it, and in the middle of work.
 * Whoever joins them is not kept waiting, and for all others everything is as before.
 */
#include "tests/shim/calls.h"

static struct {
        int v[2], l, u, ep;
        struct sockaddr_in listens, takes;
        _Atomic int phase; /* 1: the thread computes; 2: it may go on */
} at;

static void begin(void)
{
        struct epoll_event ev = {.events = EPOLLIN};

        tcp_pair(at.v);
        at.l = listener(&at.listens);
        at.u = udp_socket(&at.takes);
        at.ep = epoll_create1(0);
        epoll_ctl(at.ep, EPOLL_CTL_ADD, at.v[0], &ev);
}

static void end(void)
{
        close2(at.v);
        close(at.l);
        close(at.u);
        close(at.ep);
}

/* The other end of s, after those that nobody holds any more. */
static int accept_from(int s)
{
        struct sockaddr_in own = {0}, from = {0};
        socklen_t len = sizeof(own);
        int d;

        getsockname(s, (void *)&own, &len);
        while ((d = accept(at.l, (void *)&from, &len)) >= 0 && from.sin_port != own.sin_port)
                close(d);
        return d;
}

/* Whoever was cancelled holds nothing: all of it can be used still. */
static bool all_work(void)
{
        char b[8];
        bool good;
        int c, d;

        while (recv(at.u, b, sizeof(b), MSG_DONTWAIT) >= 0)
                ;
        c = socket(AF_INET, SOCK_STREAM, 0);
        connect(c, (void *)&at.listens, sizeof(at.listens));
        d = accept_from(c);
        good = write(c, "over", 4) == 4 && recv(d, b, 4, MSG_WAITALL) == 4;
        good &= write(at.v[1], "here", 4) == 4 && recv(at.v[0], b, 4, MSG_WAITALL) == 4;
        good &= sendto(at.u, "there", 5, 0, (void *)&at.takes, sizeof(at.takes)) == 5 &&
                recv(at.u, b, sizeof(b), 0) == 5;
        close(c);
        close(d);
        return good;
}

/* ---- those that wait, or are about to ---- */

static void read_once(void)
{
        char b[8];

        read(at.v[0], b, sizeof(b));
}

static void read_all(void)
{
        char b[8];

        recv(at.v[0], b, sizeof(b), MSG_WAITALL);
}

static void read_vector(void)
{
        char b[8];
        struct iovec iov = {b, sizeof(b)};

        readv(at.v[0], &iov, 1);
}

static void read_message(void)
{
        char b[8];
        struct iovec iov = {b, sizeof(b)};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

        recvmsg(at.v[0], &m, 0);
}

static void read_datagram(void)
{
        char b[8];

        recvfrom(at.u, b, sizeof(b), 0, NULL, NULL);
}

static void read_datagrams(void)
{
        char b[8];
        struct iovec iov = {b, sizeof(b)};
        struct mmsghdr m = {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};

        recvmmsg(at.u, &m, 1, 0, NULL);
}

static void write_on(void)
{
        static char b[1 << 20];

        while (write(at.v[0], b, sizeof(b)) > 0)
                ;
}

static void accept_one(void)
{
        accept(at.l, NULL, NULL);
}

static void poll_one(void)
{
        struct pollfd p = {.fd = at.v[0], .events = POLLIN};

        poll(&p, 1, -1);
}

static void select_one(void)
{
        fd_set r;

        FD_ZERO(&r);
        FD_SET(at.v[0], &r);
        select(at.v[0] + 1, &r, NULL, NULL, NULL);
}

static void wait_for_events(void)
{
        struct epoll_event ev;

        epoll_wait(at.ep, &ev, 1, -1);
}

/* ---- those that never wait ---- */

static void poll_busily(void)
{
        struct pollfd p = {.fd = at.v[0], .events = POLLIN};

        while (poll(&p, 1, 0) == 0)
                ;
}

static void ask_busily(void)
{
        struct epoll_event ev;

        while (epoll_wait(at.ep, &ev, 1, 0) == 0)
                ;
}

static void write_to_itself(void)
{
        char b[8];

        while (sendto(at.u, "itself", 6, MSG_DONTWAIT, (void *)&at.takes, sizeof(at.takes)) == 6 ||
               errno == EAGAIN)
                recv(at.u, b, sizeof(b), MSG_DONTWAIT);
}

static void read_in_vain(void)
{
        char b[8];

        while (recv(at.v[0], b, sizeof(b), MSG_DONTWAIT) < 0)
                ;
}

static void connect_and_close(void)
{
        struct pollfd p = {.fd = at.l, .events = POLLIN};

        for (;;) {
                int s = socket(AF_INET, SOCK_STREAM, 0);

                connect(s, (void *)&at.listens, sizeof(at.listens));
                close(s);
                while (poll(&p, 1, 0) == 1)
                        close(accept(at.l, NULL, NULL));
        }
}

static const struct way {
        const char *name;
        void (*go)(void);
} waits[] =
        {
                {"read", read_once},         {"recv of all", read_all},
                {"readv", read_vector},      {"recvmsg", read_message},
                {"recvfrom", read_datagram}, {"recvmmsg", read_datagrams},
                {"accept", accept_one},      {"poll", poll_one},
                {"select", select_one},      {"epoll_wait", wait_for_events},
                {"write", write_on},
},
  works[] = {
          {"poll", poll_busily},  {"epoll_wait", ask_busily},     {"sendto", write_to_itself},
          {"recv", read_in_vain}, {"connect", connect_and_close},
};

static void *goes(void *arg)
{
        ((const struct way *)arg)->go();
        return NULL;
}

static void *computes_and_goes(void *arg)
{
        at.phase = 1;
        while (at.phase == 1)
                ;
        return goes(arg);
}

/* LONG is as good as for ever: who waited for that is not waited for longer. */
static void is_over(const char *name, pthread_t t)
{
        struct timespec end;
        void *ret;

        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += LONG / 1000;
        if (pthread_timedjoin_np(t, &ret, &end) != 0)
                die(name);
        printf("  %s: cancelled %d\n", name, ret == PTHREAD_CANCELED);
}

static void cancel_all(const struct way *w, size_t n, void *(*how)(void *))
{
        pthread_t t;

        for (size_t i = 0; i < n; i++) {
                begin();
                at.phase = 0;
                pthread_create(&t, NULL, how, (void *)&w[i]);
                if (how == computes_and_goes)
                        while (at.phase == 0)
                                ;
                else
                        usleep(20000);
                pthread_cancel(t);
                at.phase = 2;
                is_over(w[i].name, t);
                if (w[i].go != write_on)
                        SHOW(all_work());
                end();
        }
}

static void *sleeps(void *arg)
{
        pause();
        return arg;
}

static void *reads_all(void *arg)
{
        char b[8];

        return (void *)recv(at.v[0], b, sizeof(b), MSG_WAITALL);
}

/* Who is not meant notices nothing: what has come so far is not all that it gets. */
static void cancel_another(void)
{
        pthread_t reads, t;
        void *got;

        begin();
        pthread_create(&reads, NULL, reads_all, NULL);
        usleep(20000);
        for (int i = 0; i < 4; i++) {
                pthread_create(&t, NULL, sleeps, NULL);
                pthread_cancel(t);
                pthread_join(t, NULL);
                write(at.v[1], "ab", 2);
                usleep(10000);
        }
        pthread_join(reads, &got);
        printf("  all: %ld\n", (long)got);
        end();
}

static void *reads_its_own(void *arg)
{
        char b[8];

        read(*(int *)arg, b, sizeof(b));
        return NULL;
}

/* Of several that sleep one sleeps for all, and the others each in a place of their own. */
static void cancel_several(void)
{
        enum { SEVERAL = 3 };
        int v[SEVERAL][2];
        pthread_t t[SEVERAL];

        for (int i = 0; i < SEVERAL; i++) {
                tcp_pair(v[i]);
                pthread_create(&t[i], NULL, reads_its_own, &v[i][0]);
        }
        usleep(100000);
        for (int i = SEVERAL - 1; i >= 0; i--) {
                pthread_cancel(t[i]);
                is_over("read", t[i]);
                close2(v[i]);
        }
}

void scene_cancel(void)
{
        printf(" asleep\n");
        cancel_all(waits, ARRAY_LEN(waits), goes);
        printf(" several asleep\n");
        cancel_several();
        printf(" before the call\n");
        cancel_all(waits, ARRAY_LEN(waits), computes_and_goes);
        printf(" at work\n");
        cancel_all(works, ARRAY_LEN(works), goes);
        printf(" beside others\n");
        cancel_another();
}

/* ---- those that want to end wherever they are ---- */

static void *goes_anywhere(void *arg)
{
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
        for (;;)
                ((const struct way *)arg)->go();
        return NULL;
}

static int cancelled_often(const struct way *w)
{
        int good = 0;
        pthread_t t;
        void *ret;

        for (int i = 0; i < 100; i++) {
                pthread_create(&t, NULL, goes_anywhere, (void *)w);
                usleep(200 + (useconds_t)(i * 137 % 3000));
                pthread_cancel(t);
                pthread_join(t, &ret);
                good += ret == PTHREAD_CANCELED && all_work();
        }
        return good;
}

void scene_cancel_anywhere(void)
{
        const struct way asleep = {"read", read_once};

        begin();
        SHOW(cancelled_often(&asleep));
        for (size_t i = 0; i < ARRAY_LEN(works); i++) {
                printf("  %s\n", works[i].name);
                SHOW(cancelled_often(&works[i]));
        }
        end();
}
