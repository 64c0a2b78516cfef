/*
 * shim_calls, the odd ends of epoll(7): duplicates, numbers that come again, one-shot and edges,
 * sets in sets, EPOLLEXCLUSIVE.
 */
#include "tests/shim/calls.h"

#include <linux/io_uring.h>

static int ctl(int ep, int op, int fd, uint32_t events, uint32_t data)
{
        struct epoll_event ev = {.events = events, .data.u32 = data};

        return epoll_ctl(ep, op, fd, &ev);
}
#define ADD(ep, fd, events, data) ctl(ep, EPOLL_CTL_ADD, fd, events, data)
#define MOD(ep, fd, events, data) ctl(ep, EPOLL_CTL_MOD, fd, events, data)

static int by_data(const void *a, const void *b)
{
        const struct epoll_event *x = a, *y = b;

        return (x->data.u32 > y->data.u32) - (x->data.u32 < y->data.u32);
}

static void show_ready(int ep, int ms)
{
        struct epoll_event ev[8];
        int n = epoll_wait(ep, ev, 8, ms);

        printf("  %d %s:", n, name_of(n));
        if (n > 0)
                qsort(ev, (size_t)n, sizeof(ev[0]), by_data);
        for (int i = 0; i < n; i++)
                printf(" %x of %u", ev[i].events, ev[i].data.u32);
        printf("\n");
}
#define READY(ep) show_ready(ep, LONG) /* something must come */
#define QUIET(ep) show_ready(ep, 20)   /* nothing must */

/* A byte to the other end, and there. */
static void put(const int v[2])
{
        int had = 0, has;

        ioctl(v[1], FIONREAD, &had);
        write(v[0], "x", 1);
        do
                ioctl(v[1], FIONREAD, &has);
        while (has == had);
}

void scene_epoll_duplicates(void)
{
        int ep = epoll_create1(0), v[2], w[2], d;
        char c;

        tcp_pair(v);
        SHOW(ADD(ep, v[1], EPOLLIN, 1));
        d = dup(v[1]);
        SHOW(ADD(ep, d, EPOLLIN, 2));
        put(v);
        READY(ep);
        close(v[1]);
        READY(ep);
        SHOW(epoll_ctl(ep, EPOLL_CTL_DEL, v[1], NULL));
        SHOW(epoll_ctl(ep, EPOLL_CTL_DEL, d, NULL));
        READY(ep);
        read(d, &c, 1);
        QUIET(ep);
        tcp_pair(w);
        SHOW(dup2(w[1], v[1]) == v[1]); /* a number that was a member's */
        close(w[1]);
        w[1] = v[1];
        put(w);
        SHOW(ADD(ep, v[1], EPOLLIN, 7));
        READY(ep);
        close2(w);
        QUIET(ep);
        close(d);
        close(v[0]);
        QUIET(ep);
        close(ep);
}

/* The set goes on under a duplicate's number, whoever has the first one now: another set, a file,
 * or nobody. */
static void renumber(int *ep, int how)
{
        int d = dup(*ep);

        close(*ep);
        if (how == 1)
                SHOW(epoll_create1(0) == *ep);
        else if (how == 2)
                SHOW(eventfd(0, EFD_NONBLOCK) == *ep);
        *ep = d;
}

static void renumbered(int how)
{
        int ep = epoll_create1(0), first = ep, v[2], p[2], l, c;
        struct sockaddr_in sa;

        tcp_pair(v);
        l = listener(&sa);
        pipe(p);
        SHOW(ADD(ep, l, EPOLLIN, 1));
        SHOW(ADD(ep, p[0], EPOLLIN, 2));
        renumber(&ep, how);
        SHOW(MOD(ep, l, EPOLLIN, 3));
        SHOW(MOD(ep, p[0], EPOLLIN, 4));
        SHOW(ADD(ep, v[1], EPOLLIN, 5));
        write(p[1], "x", 1);
        READY(ep);
        read(p[0], &(char){0}, 1);
        put(v);
        READY(ep);
        recv(v[1], &(char){0}, 1, 0);
        c = socket(AF_INET, SOCK_STREAM, 0);
        connect(c, (void *)&sa, sizeof(sa));
        READY(ep);
        close(c);
        close(accept(l, NULL, NULL));
        SHOW(epoll_ctl(ep, EPOLL_CTL_DEL, l, NULL));
        SHOW(epoll_ctl(ep, EPOLL_CTL_DEL, p[0], NULL));
        QUIET(ep);
        close2(v);
        close2(p);
        close(l);
        close(ep);
        if (how)
                close(first);
}

void scene_epoll_renumbered(void)
{
        for (int how = 0; how < 3; how++)
                renumbered(how);
}

/* A set and its duplicates are older than the first socket. */
void scene_epoll_duplicated_before(void)
{
        int ep = epoll_create1(0), d = dup(ep), other = epoll_create1(0), p[2], v[2];

        pipe(p);
        ADD(d, p[0], EPOLLIN, 1);
        ADD(other, p[0], EPOLLIN, 2);
        tcp_pair(v);
        SHOW(ADD(ep, v[1], EPOLLIN, 3));
        SHOW(ADD(d, v[1], EPOLLIN, 4));
        put(v);
        READY(d);
        SHOW(MOD(d, v[1], EPOLLIN, 5));
        READY(ep);
        QUIET(other);
        close(ep);
        write(p[1], "x", 1);
        recv(v[1], &(char){0}, 1, 0);
        READY(d);
        READY(other);
        close2(v);
        close2(p);
        close(d);
        close(other);
}

/* Threads put sockets into a set and wait for them while another opens and closes them, which
 * nobody is told of. */
#define CLOSES 20000

static struct {
        _Atomic int fd;
        _Atomic bool over;
        int ep;
} closing;

static void *adds(void *arg)
{
        while (!closing.over)
                ADD(closing.ep, closing.fd, EPOLLIN | EPOLLET, 1);
        return arg;
}

static void *waits(void *arg)
{
        struct epoll_event ev[8];

        while (!closing.over)
                epoll_wait(closing.ep, ev, 8, 0);
        return arg;
}

void scene_epoll_beside_closes(void)
{
        void *(*const does[])(void *) = {adds, adds, waits};
        pthread_t t[ARRAY_LEN(does)];
        struct sockaddr_in sa;
        int l = listener(&sa), v[2];

        closing.ep = epoll_create1(0);
        closing.fd = -1;
        for (size_t i = 0; i < ARRAY_LEN(does); i++)
                pthread_create(&t[i], NULL, does[i], NULL);
        for (int i = 0; i < CLOSES; i++) {
                closing.fd = v[0] = socket(AF_INET, SOCK_STREAM, 0);
                connect(v[0], (void *)&sa, sizeof(sa));
                closing.fd = v[1] = accept(l, NULL, NULL);
                close2(v);
        }
        closing.over = true;
        for (size_t i = 0; i < ARRAY_LEN(does); i++)
                pthread_join(t[i], NULL);
        tcp_pair(v);
        SHOW(ADD(closing.ep, v[1], EPOLLIN, 2));
        put(v);
        READY(closing.ep);
        close2(v);
        close(l);
        close(closing.ep);
}

void scene_epoll_edges(void)
{
        int ep = epoll_create1(0), v[2];
        char c;

        tcp_pair(v);
        ADD(ep, v[1], EPOLLIN | EPOLLONESHOT, 3);
        put(v);
        READY(ep);
        put(v);
        QUIET(ep);
        MOD(ep, v[1], EPOLLIN | EPOLLONESHOT, 4);
        READY(ep);
        QUIET(ep);
        MOD(ep, v[1], EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 5);
        READY(ep);
        QUIET(ep);
        put(v);
        READY(ep);
        read(v[1], &c, 1);
        QUIET(ep);
        shutdown(v[0], SHUT_WR);
        READY(ep);
        QUIET(ep);
        MOD(ep, v[1], EPOLLIN | EPOLLET, 6);
        READY(ep);
        QUIET(ep);
        close2(v);
        close(ep);
}

/* A datagram socket in the set, whose peer's host has just said that nobody is there. */
static int refused_in(int ep)
{
        struct sockaddr_in own, nobody;
        int u = udp_socket(&own);
        struct pollfd error = {.fd = u};

        close(udp_socket(&nobody));
        connect(u, (void *)&nobody, sizeof(nobody));
        ADD(ep, u, EPOLLIN | EPOLLOUT | EPOLLET, 2);
        READY(ep);
        write(u, "x", 1);
        poll(&error, 1, LONG);
        return u;
}

/* What comes below SO_RCVLOWAT is no edge, though there is room to send; and an error that the
 * kernel's side brings tells of room that ours has. */
void scene_epoll_edges_whole(void)
{
        int ep = epoll_create1(0), low = 3, v[2], u;

        tcp_pair(v);
        setsockopt(v[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low));
        ADD(ep, v[1], EPOLLIN | EPOLLOUT | EPOLLET, 1);
        READY(ep);
        put(v);
        QUIET(ep);
        put(v);
        QUIET(ep);
        put(v);
        READY(ep);
        QUIET(ep);
        close2(v);
        u = refused_in(ep);
        READY(ep);
        close(u);
        close(ep);
}

static void *volatile nowhere = (void *)8;

/* What a call could not tell, as its buffer was not there, the next one tells. */
void scene_epoll_edges_refused(void)
{
        int ep = epoll_create1(0), u, v[2];

        tcp_pair(v);
        ADD(ep, v[1], EPOLLIN | EPOLLET, 1);
        put(v);
        SHOW(epoll_wait(ep, nowhere, 1, LONG));
        READY(ep);
        QUIET(ep);
        close2(v);
        u = refused_in(ep);
        SHOW(epoll_wait(ep, nowhere, 1, LONG));
        READY(ep);
        close(u);
        close(ep);
}

static struct {
        int fd, out, rounds;
        _Atomic int at;
        _Atomic bool over;
} raced;

#define ROUNDS 3000

/* What comes is let in by whichever thread looks. */
static void *looks(void *arg)
{
        struct pollfd p = {.fd = raced.fd, .events = POLLIN};

        while (!raced.over)
                poll(&p, 1, 0);
        return arg;
}

static void *sends(void *arg)
{
        for (int i = 0; i < ROUNDS; i++) {
                while (raced.at != i)
                        sched_yield();
                write(raced.out, "x", 1);
        }
        return arg;
}

/* Each byte is an edge, though other threads have looked at the socket before. */
void scene_epoll_edges_raced(void)
{
        void *(*const does[])(void *) = {sends, looks};
        struct epoll_event ev;
        pthread_t t[ARRAY_LEN(does)];
        int ep = epoll_create1(0), v[2];
        char c;

        tcp_pair(v);
        raced.fd = v[1];
        raced.out = v[0];
        raced.at = -1;
        ADD(ep, v[1], EPOLLIN | EPOLLET, 1);
        for (size_t i = 0; i < ARRAY_LEN(does); i++)
                pthread_create(&t[i], NULL, does[i], NULL);
        for (int i = 0; i < ROUNDS; i++) {
                raced.at = i;
                do
                        while (epoll_wait(ep, &ev, 1, 0) == 0 && epoll_wait(ep, &ev, 1, LONG) != 1)
                                die("an edge is lost");
                while (recv(v[1], &c, 1, MSG_DONTWAIT) != 1); /* an edge may come twice */
        }
        raced.over = true;
        for (size_t i = 0; i < ARRAY_LEN(does); i++)
                pthread_join(t[i], NULL);
        printf("  %d edges\n", ROUNDS);
        close2(v);
        close(ep);
}

static void *reads_pipe(void *arg)
{
        char c;

        read(*(int *)arg, &c, 1);
        return NULL;
}

/* That a threaded program's set has changed is no event, and doubles none. */
void scene_epoll_change_beside_one(void)
{
        int ep = epoll_create1(0), quiet[2], v[2], p[2];
        struct epoll_event ev[2];
        pthread_t t;

        pipe(quiet);
        pthread_create(&t, NULL, reads_pipe, &quiet[0]);
        tcp_pair(v);
        pipe(p);
        write(p[1], "x", 1);
        ADD(ep, p[0], EPOLLIN, 1);
        ADD(ep, v[1], EPOLLIN, 2);
        SHOW(epoll_wait(ep, ev, 2, 0));
        SHOW(epoll_wait(ep, ev, 2, 0));
        write(quiet[1], "x", 1);
        pthread_join(t, NULL);
        close2(quiet);
        close2(v);
        close2(p);
        close(ep);
}

void scene_epoll_nested(void)
{
        int outer = epoll_create1(0), inner = epoll_create1(0), v[2];
        struct pollfd p = {.fd = outer, .events = POLLIN};
        char c;

        tcp_pair(v);
        SHOW(ADD(inner, v[1], EPOLLIN, 1));
        SHOW(ADD(outer, inner, EPOLLIN, 2));
        QUIET(outer);
        put(v);
        READY(outer);
        READY(inner);
        read(v[1], &c, 1);
        QUIET(outer);
        SHOW(poll(&p, 1, 20));
        put(v);
        SHOW(poll(&p, 1, LONG));
        SHOW(ADD(inner, outer, EPOLLIN, 3));
        SHOW(ADD(outer, outer, EPOLLIN, 3));
        SHOW(ADD(outer, inner, EPOLLIN, 3));
        MOD(outer, inner, EPOLLIN | EPOLLET, 4);
        READY(outer);
        QUIET(outer);
        put(v); /* the inner one was ready before, too */
        READY(outer);
        QUIET(outer);
        close(inner);
        QUIET(outer);
        close(outer);
        close2(v);
}

/* ---- what the kernel has was there first ---- */

void scene_epoll_kernel_first(void)
{
        struct epoll_event ev = {.events = 0};
        int ep = epoll_create1(0), v[2], c[2];

        pipe(v);
        ADD(ep, v[0], EPOLLIN, 7);
        tcp_pair(c);
        ADD(ep, c[1], EPOLLIN, 8);
        SHOW(epoll_wait(ep, &ev, 1, 0));
        write(v[1], "x", 1);
        SHOW(epoll_wait(ep, &ev, 1, LONG));
        printf("  data %lx\n", (unsigned long)ev.data.u64);
        close2(v);
        close2(c);
        close(ep);
}

/* ---- members that come and leave while a thread sleeps on others ---- */

static void *sleep_on(void *arg)
{
        struct epoll_event ev[4] = {{.events = 0}};
        int n = epoll_wait(*(int *)arg, ev, 4, -1);

        printf("  woken: %d, events %x, data %lx\n", n, ev[0].events,
               (unsigned long)ev[0].data.u64);
        return NULL;
}

void scene_epoll_come_and_gone(void)
{
        for (int i = 0; i < 8; i++) {
                int ep = epoll_create1(0), v[2], u;
                struct sockaddr_in sa;
                pthread_t t;

                u = udp_socket(&sa);
                pipe(v);
                ADD(ep, v[0], EPOLLIN, 7);
                pthread_create(&t, NULL, sleep_on, &ep);
                usleep(20000);
                ADD(ep, u, EPOLLIN, 8);
                epoll_ctl(ep, EPOLL_CTL_DEL, u, NULL);
                usleep(i % 2 * 5000);
                write(v[1], "x", 1);
                pthread_join(t, NULL);
                close2(v);
                close(u);
                close(ep);
        }
}

void scene_epoll_exclusive(void)
{
        int ep = epoll_create1(0), inner = epoll_create1(0), v[2];
        struct sockaddr_in sa;
        int l = listener(&sa);

        tcp_pair(v);
        SHOW(ADD(inner, v[0], EPOLLIN, 1));
        SHOW(ADD(ep, v[1], EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 1));
        SHOW(ADD(ep, v[1], EPOLLIN | EPOLLEXCLUSIVE | EPOLLRDHUP, 1));
        SHOW(ADD(ep, inner, EPOLLIN | EPOLLEXCLUSIVE, 1));
        SHOW(ADD(ep, v[1], EPOLLIN | EPOLLOUT | EPOLLET | EPOLLEXCLUSIVE, 1));
        SHOW(MOD(ep, v[1], EPOLLIN, 1));
        SHOW(ADD(ep, l, EPOLLIN | EPOLLEXCLUSIVE, 2));
        READY(ep);
        close2(v);
        v[0] = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(v[0], (void *)&sa, sizeof(sa)));
        READY(ep);
        SHOW(ADD(v[0], l, EPOLLIN, 1));
        close(v[0]);
        close(l);
        QUIET(ep);
        close(ep);
        close(inner);
}

/* Many who wait for one listener, and connections one after the other and in bursts: each
 * is accepted. */
#define ACCEPTORS 6
#define COMERS    120

static void acceptor(int l, int how)
{
        struct epoll_event ev;
        struct pollfd p = {.fd = l, .events = POLLIN};
        int ep = epoll_create1(0), s;

        if (how > 0)
                fcntl(l, F_SETFL, O_NONBLOCK);
        if (how == 1)
                ADD(ep, l, EPOLLIN | EPOLLEXCLUSIVE, 0);
        for (;;) {
                if (how == 1)
                        epoll_wait(ep, &ev, 1, -1);
                if (how == 2)
                        poll(&p, 1, -1);
                s = accept(l, NULL, NULL);
                if (s < 0)
                        continue;
                write(s, "y", 1);
                close(s);
        }
}

static int come(const struct sockaddr_in *sa, int burst)
{
        int s[COMERS], right = 0;
        char c;

        for (int i = 0; i < burst; i++) {
                s[i] = socket(AF_INET, SOCK_STREAM, 0);
                connect(s[i], (const void *)sa, sizeof(*sa));
        }
        for (int i = 0; i < burst; i++) {
                right += read(s[i], &c, 1) == 1;
                close(s[i]);
        }
        return right;
}

void scene_acceptors(void)
{
        static const int bursts[] = {1, 2, 5, 16};

        for (int how = 0; how < 3; how++) {
                struct sockaddr_in sa;
                int l = listener(&sa), right = 0, all = 0;
                pid_t pid[ACCEPTORS];

                for (int i = 0; i < ACCEPTORS; i++)
                        if ((pid[i] = fork()) == 0)
                                acceptor(l, how);
                for (int i = 0; all < COMERS; i++) {
                        right += come(&sa, bursts[i % 4]);
                        all += bursts[i % 4];
                        if (i % 8 == 0)
                                usleep(5000);
                }
                SHOW(right == all);
                for (int i = 0; i < ACCEPTORS; i++) {
                        kill(pid[i], SIGKILL);
                        waitpid(pid[i], NULL, 0);
                }
                close(l);
        }
}

/* As many as are ready, if they are asked for. */
void scene_epoll_many(void)
{
        static struct epoll_event ev[150];
        int ep = epoll_create1(0), v[2], fd[100];

        tcp_pair(v);
        ADD(ep, v[1], EPOLLIN, 100);
        for (int i = 0; i < 100; i++)
                ADD(ep, fd[i] = eventfd(1, 0), EPOLLIN, (uint32_t)i);
        SHOW(epoll_wait(ep, ev, 150, 0));
        SHOW(epoll_wait(ep, ev, 10, 0));
        for (int i = 0; i < 100; i++)
                close(fd[i]);
        close2(v);
        close(ep);
}

/* ---- libuv's way: changes in a ring that the kernel reads, where it gives one ---- */

static struct ring {
        struct io_uring_params p;
        struct io_uring_sqe *sqe;
        unsigned *tail, *array;
        int fd;
} ring;

static void ring_open(void)
{
        char *sq;

        ring.fd = (int)syscall(SYS_io_uring_setup, 4, &ring.p);
        if (ring.fd < 0)
                return;
        sq = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
        ring.sqe = mmap(NULL, 4 * sizeof(*ring.sqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd,
                        IORING_OFF_SQES);
        ring.tail = (unsigned *)(sq + ring.p.sq_off.tail);
        ring.array = (unsigned *)(sq + ring.p.sq_off.array);
}

static void ring_add(int ep, int fd, uint32_t events, uint32_t data)
{
        struct epoll_event ev = {.events = events, .data.u32 = data};
        unsigned at = ring.fd >= 0 ? *ring.tail & 3 : 0;

        if (ring.fd < 0) {
                epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
                return;
        }
        ring.sqe[at] = (struct io_uring_sqe){.opcode = IORING_OP_EPOLL_CTL,
                                             .fd = ep,
                                             .off = (unsigned)fd,
                                             .len = EPOLL_CTL_ADD,
                                             .addr = (uintptr_t)&ev};
        ring.array[at] = at;
        __atomic_store_n(ring.tail, *ring.tail + 1, __ATOMIC_RELEASE);
        syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
}

void scene_epoll_by_ring(void)
{
        struct sockaddr_in sa;
        int ep = epoll_create1(0), l, v[2];
        char b[8];

        ring_open();
        l = listener(&sa);
        ring_add(ep, l, EPOLLIN, 1);
        v[0] = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(v[0], (void *)&sa, sizeof(sa)));
        READY(ep);
        v[1] = accept(l, NULL, NULL);
        ring_add(ep, v[1], EPOLLIN, 2);
        write(v[0], "some", 4);
        READY(ep);
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        QUIET(ep);
        close2(v);
        close(l);
        close(ep);
}

/* One event of a file that is the kernel's, with this for its data. */
static bool comes_back(int ep, int fd, uint64_t data)
{
        struct epoll_event ev = {.events = EPOLLIN, .data.u64 = data};

        epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev);
        ev.data.u64 = 0;
        return epoll_wait(ep, &ev, 1, LONG) == 1 && ev.data.u64 == data;
}

/*
 * What a program has for data is its own: a pointer, or a number beside which the upper half is
 * left as it was (as Python's), so half a pointer to anywhere.
 */
void scene_epoll_data(void)
{
        static struct {
                uint64_t first, last;
        } maps[4096];
        FILE *f = fopen("/proc/self/maps", "r");
        int ep = epoll_create1(0), fd = eventfd(1, 0), v[2], n = 0;
        struct epoll_event ev = {.events = EPOLLIN};
        bool right = true;

        tcp_pair(v);
        epoll_ctl(ep, EPOLL_CTL_ADD, v[0], &ev);
        epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
        SHOW(epoll_wait(ep, &ev, 1, LONG));
        while (n < 4096 && fscanf(f, "%lx-%lx%*[^\n]", &maps[n].first, &maps[n].last) == 2)
                n++;
        fclose(f);
        for (int i = 0; i < n && right; i++)
                for (uint64_t at = maps[i].first; at < maps[i].last && right; at += 1u << 22)
                        right = comes_back(ep, fd, at) && comes_back(ep, fd, at | 12);
        printf("  %s\n", right ? "each came back" : "one was lost");
        close2(v);
        close(fd);
        close(ep);
}

/* Whoever takes one event at a time, and always finds the socket readable, gets the kernel's file,
 * too, again and again; also when the program itself keeps writing to files of the kernel's. */
void scene_epoll_one_at_a_time(void)
{
        int ep = epoll_create1(0), ready = eventfd(1, 0), other = eventfd(0, EFD_NONBLOCK), v[2],
            came[2] = {0};
        struct epoll_event ev = {.events = EPOLLIN};
        uint64_t one = 1;

        tcp_pair(v);
        epoll_ctl(ep, EPOLL_CTL_ADD, v[0], &ev);
        ev.data.u32 = 1;
        epoll_ctl(ep, EPOLL_CTL_ADD, ready, &ev);
        write(v[1], "some", 4);
        for (int i = 0; i < 30000; i++) {
                write(other, &one, sizeof one);
                if (epoll_wait(ep, &ev, 1, LONG) == 1)
                        came[ev.data.u32]++;
        }
        printf("  %s\n", came[0] >= 10 && came[1] >= 10 ? "both came" : "one seldom did");
        close2(v);
        close(ready);
        close(other);
        close(ep);
}

/* What is no set takes no members. */
void scene_epoll_of_no_set(void)
{
        struct epoll_event ev = {.events = EPOLLIN};
        int v[2], p[2];

        tcp_pair(v);
        pipe(p);
        for (int op = EPOLL_CTL_ADD; op <= EPOLL_CTL_MOD; op++) {
                SHOW(epoll_ctl(p[0], op, v[0], &ev));
                SHOW(epoll_ctl(v[1], op, v[0], &ev));
                SHOW(epoll_ctl(v[0], op, v[0], &ev));
                SHOW(epoll_ctl(1000, op, v[0], &ev));
                SHOW(epoll_ctl(eventfd(0, 0), op, v[0], &ev));
                SHOW(epoll_ctl(syscall(SYS_epoll_create1, 0), op, v[0], &ev));
        }
        close2(p);
        close2(v);
}

/* ---- a set that parent and child share ---- */

enum forked { CLOSES_LISTENER, CLOSES_SET, CLOSES_BOTH, CLOSES_ALL, EXITS, ADDS, FORKED };

static void in_child(enum forked how, int ep, const int s[2])
{
        struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 7};

        if (how == CLOSES_SET || how == CLOSES_BOTH)
                close(ep);
        if (how == CLOSES_LISTENER || how == CLOSES_BOTH) {
                close(s[0]);
                close(s[1]);
        }
        if (how == CLOSES_ALL)
                close_range(3, ~0u, 0);
        if (how == ADDS) {
                close(s[0]);
                close(s[1]);
                epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, listener(&(struct sockaddr_in){0}), &ev);
        }
        _exit(0);
}

/* By the kernel, as a program without the library comes. */
static void ordinary_clients(const struct sockaddr_in sa[2])
{
        int c = (int)sys3(SYS_socket, AF_INET, SOCK_STREAM, 0),
            u = (int)sys3(SYS_socket, AF_INET, SOCK_DGRAM, 0);

        printf("  connects: %ld\n", sys3(SYS_connect, c, &sa[0], sizeof(sa[0])));
        printf("  sends: %ld\n", sys6(SYS_sendto, u, (long)"x", 1, 0, (long)&sa[1], sizeof(sa[1])));
        sys1(SYS_close, c);
        sys1(SYS_close, u);
}

static void take_both(int ep, const int s[2])
{
        struct epoll_event ev;
        bool seen[2] = {false};
        char b;

        while (!seen[0] || !seen[1]) {
                if (epoll_wait(ep, &ev, 1, LONG) != 1 || ev.data.u64 > 1) {
                        printf("  not told\n");
                        return;
                }
                seen[ev.data.u64] = true;
                if (ev.data.u64 == 0)
                        close(accept(s[0], NULL, NULL));
                else
                        recv(s[1], &b, 1, MSG_DONTWAIT);
        }
        SHOW(epoll_wait(ep, &ev, 1, 0));
}

/* What one closes the other has, and hears of: by the kernel's half, which is one for both. */
void scene_epoll_forked(void)
{
        for (int how = 0; how < FORKED; how++) {
                struct sockaddr_in sa[2];
                int ep = epoll_create1(0), s[2] = {listener(&sa[0]), udp_socket(&sa[1])}, c;
                struct epoll_event ev = {.events = EPOLLIN};

                printf("  %d\n", how);
                for (ev.data.u64 = 0; ev.data.u64 < 2; ev.data.u64++)
                        SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, s[ev.data.u64], &ev));
                fflush(stdout);
                if (fork() == 0)
                        in_child(how, ep, s);
                wait(NULL);
                ordinary_clients(sa);
                take_both(ep, s);
                c = socket(AF_INET, SOCK_STREAM, 0);
                SHOW(connect(c, (void *)&sa[0], sizeof(sa[0])));
                SHOW(epoll_wait(ep, &ev, 1, LONG));
                close(accept(s[0], NULL, NULL));
                close(c);
                close2(s);
                SHOW(epoll_wait(ep, &ev, 1, 0));
                close(ep);
        }
}

/* ---- what was sent first is reported first ---- */

/* From one end of a connection or the other, or a datagram. */
static void send_from(int which, const int v[2][2], int from, const struct sockaddr_in *to)
{
        if (which == 2)
                sendto(from, "x", 1, 0, (void *)to, sizeof(*to));
        else
                write(v[which][which], "x", 1);
}

static void order_of(const int first[3])
{
        struct epoll_event ev[3] = {0};
        struct sockaddr_in a, b;
        int v[2][2], ep = epoll_create1(0), from = udp_socket(&a), to = udp_socket(&b);

        tcp_pair(v[0]);
        tcp_pair(v[1]);
        ADD(ep, v[0][1], EPOLLIN, 0);
        ADD(ep, v[1][0], EPOLLIN, 1);
        ADD(ep, to, EPOLLIN, 2);
        sendto(from, "x", 1, 0, (void *)&b, sizeof(b)); /* the first finds its way */
        recv(to, &a, 1, 0);
        epoll_wait(ep, ev, 3, 0);
        for (int i = 0; i < 3; i++)
                send_from(first[i], v, from, &b);
        SHOW(epoll_wait(ep, ev, 3, LONG));
        for (int i = 0; i < 3; i++)
                printf("  %d: %d\n", first[i], (int)ev[i].data.u64);
        close2(v[0]);
        close2(v[1]);
        close(from);
        close(to);
        close(ep);
}

void scene_epoll_order(void)
{
        static const int first[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                       {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

        for (size_t i = 0; i < ARRAY_LEN(first); i++)
                order_of(first[i]);
}
