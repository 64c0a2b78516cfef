/*
 * shim_calls, the odd ends of epoll(7): duplicates, numbers that come again, sets in sets, members
 * that come and leave.
 */
#include "tests/shim/calls_epoll.h"

#include <linux/io_uring.h>

int set_ctl(int ep, int op, int fd, uint32_t events, uint32_t data)
{
        struct epoll_event ev = {.events = events, .data.u32 = data};

        return epoll_ctl(ep, op, fd, &ev);
}

static int by_data(const void *a, const void *b)
{
        const struct epoll_event *x = a, *y = b;

        return (x->data.u32 > y->data.u32) - (x->data.u32 < y->data.u32);
}

void set_show(int ep, int ms)
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

void put_byte(const int v[2])
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
        put_byte(v);
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
        put_byte(w);
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
        put_byte(v);
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
        put_byte(v);
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
        put_byte(v);
        READY(closing.ep);
        close2(v);
        close(l);
        close(closing.ep);
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
        put_byte(v);
        READY(outer);
        READY(inner);
        read(v[1], &c, 1);
        QUIET(outer);
        SHOW(poll(&p, 1, 20));
        put_byte(v);
        SHOW(poll(&p, 1, LONG));
        SHOW(ADD(inner, outer, EPOLLIN, 3));
        SHOW(ADD(outer, outer, EPOLLIN, 3));
        SHOW(ADD(outer, inner, EPOLLIN, 3));
        MOD(outer, inner, EPOLLIN | EPOLLET, 4);
        READY(outer);
        QUIET(outer);
        put_byte(v); /* the inner one was ready before, too */
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
