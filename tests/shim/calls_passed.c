/*
 * shim_calls, epoll sets that other processes get: in a message, from posix_spawn(), over an exec
 * in a child. The one who gets it is told of its members; so is the one who had it.
 */
#include "tests/shim/calls.h"

#include <pthread.h>
#include <time.h>

enum passed { TO_ITSELF, TO_CHILD, TO_STRANGER, TO_SPAWNED, TO_IMAGE, TO_FORKED, PASSED };
enum kind { LEVELS, EDGES, CHANGES, KINDS };
enum poke { STREAM, SECOND, THIRD, CONNECT, ORDINARY_CONNECT, SEND, ORDINARY_SEND, PIPE, POKES };
enum { CONNS = 3 };
#define ABOVE 200 /* the program's numbers */

/* Of numbers only, so that it can be an argument. */
struct world {
        int ep, kind, ask, conn[CONNS][2], l, u, p[2], port[2];
};
#define NUMBERS (sizeof(struct world) / sizeof(int))

static void add(const struct world *w, int fd, uint32_t events, uint32_t data)
{
        struct epoll_event ev = {.events = events, .data.u32 = data};

        SHOW(epoll_ctl(w->ep, EPOLL_CTL_ADD, fd, &ev));
}

static struct world make_world(int ask, enum kind kind)
{
        struct world w = {.ep = epoll_create(1), .kind = (int)kind, .ask = ask};
        struct sockaddr_in sa[2];

        for (int i = 0; i < CONNS; i++)
                tcp_pair(w.conn[i]);
        w.l = listener(&sa[0]);
        w.u = udp_socket(&sa[1]);
        pipe(w.p);
        for (int i = 0; i < 2; i++)
                w.port[i] = ntohs(sa[i].sin_port);
        add(&w, w.conn[0][1], EPOLLIN, 1);
        add(&w, w.conn[1][1], EPOLLIN | (kind == EDGES ? EPOLLET : 0), 2);
        add(&w, w.conn[2][1], EPOLLIN | (kind == EDGES ? EPOLLONESHOT : 0), 3);
        add(&w, w.l, EPOLLIN, 4);
        add(&w, w.u, EPOLLIN, 5);
        add(&w, w.p[0], EPOLLIN, 6);
        return w;
}

static void end_world(const struct world *w)
{
        close(w->ep);
        for (int i = 0; i < CONNS; i++)
                close2((int[2]){w->conn[i][0], w->conn[i][1]});
        close(w->l);
        close(w->u);
        close2((int[2]){w->p[0], w->p[1]});
}

/* Something comes for a member. Ordinary: as from a program without the library. */
static void poke(const struct world *w, enum poke what)
{
        struct sockaddr_in sa = loopback();
        bool ordinary = what == ORDINARY_CONNECT || what == ORDINARY_SEND;
        int type = what == CONNECT || what == ORDINARY_CONNECT ? SOCK_STREAM : SOCK_DGRAM, s;

        if (what <= THIRD || what == PIPE) {
                write(what == PIPE ? w->p[1] : w->conn[what - STREAM][0], "x", 1);
                return;
        }
        sa.sin_port = htons((uint16_t)w->port[type == SOCK_DGRAM]);
        if (ordinary) {
                s = (int)sys3(SYS_socket, AF_INET, type, 0);
                sys3(SYS_connect, s, &sa, sizeof(sa));
                sys3(SYS_write, s, "x", type == SOCK_DGRAM);
                sys1(SYS_close, s);
        } else {
                s = socket(AF_INET, type, 0);
                connect(s, (void *)&sa, sizeof(sa));
                if (type == SOCK_DGRAM)
                        write(s, "x", 1);
                close(s);
        }
}

/* Told until nothing of this member's comes any more: what comes is shown, each member once. */
static void show_told(const struct world *w, uint32_t until)
{
        struct epoll_event ev[8];
        uint32_t told[8] = {0};

        while (until == 0 || !told[until]) {
                int n = epoll_wait(w->ep, ev, 8, until ? LONG : 20);

                for (int i = 0; i < n; i++)
                        told[ev[i].data.u32 % 8] |= ev[i].events | (ev[i].data.u64 > 7) << 31;
                if (n <= 0 || until == 0)
                        break;
        }
        for (int i = 0; i < 8; i++)
                if (told[i])
                        printf(" %x of %d", told[i], i);
        printf("\n");
}

static void take(const struct world *w, enum poke what)
{
        char b;

        if (what <= THIRD)
                recv(w->conn[what][1], &b, 1, MSG_DONTWAIT);
        else if (what <= ORDINARY_CONNECT)
                close(accept(w->l, NULL, NULL));
        else if (what <= ORDINARY_SEND)
                recv(w->u, &b, 1, 0);
        else
                read(w->p[0], &b, 1);
}

static const uint32_t data_of[POKES] = {1, 2, 3, 4, 4, 5, 5, 6};

static void change(const struct world *w)
{
        struct epoll_event ev = {.events = EPOLLOUT, .data.u32 = 7};

        SHOW(epoll_ctl(w->ep, EPOLL_CTL_ADD, w->conn[0][1], &ev));
        SHOW(epoll_ctl(w->ep, EPOLL_CTL_MOD, w->conn[0][1], &ev));
        SHOW(epoll_ctl(w->ep, EPOLL_CTL_DEL, w->conn[1][1], NULL));
        SHOW(epoll_ctl(w->ep, EPOLL_CTL_DEL, w->u, NULL));
        SHOW(epoll_ctl(w->ep, EPOLL_CTL_DEL, w->p[0], NULL));
}

/* Whoever has the set; `ask` leads to who pokes, -1: it does so itself. */
static void use(const struct world *w)
{
        if (w->kind == CHANGES)
                change(w);
        for (enum poke what = 0; what < POKES; what++) {
                bool gone = w->kind == CHANGES && what != CONNECT && what != ORDINARY_CONNECT &&
                            what != THIRD;
                char c = (char)what;

                if (w->ask < 0)
                        poke(w, what);
                else if (write(w->ask, &c, 1) != 1 || read(w->ask, &c, 1) != 1)
                        printf("  nobody pokes\n");
                printf("  %d:", what);
                show_told(w, gone ? 0 : data_of[what]);
                take(w, what);
        }
        printf("  at the end:");
        show_told(w, 0);
}

/* Pokes who asks for it, until he is gone. */
static void serve(const struct world *w, int ask)
{
        char c;

        while (read(ask, &c, 1) == 1) {
                poke(w, (enum poke)c);
                write(ask, &c, 1);
        }
}

/* ---- the ways ---- */

static void send_numbers(int s, const struct world *w, int n, const int *fds)
{
        _Alignas(struct cmsghdr) char room[CMSG_SPACE(8 * sizeof(int))] = {0};
        struct iovec v = {(void *)w, sizeof(*w)};
        struct msghdr m = {.msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = room,
                           .msg_controllen = CMSG_SPACE((size_t)n * sizeof(int))};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
        if (sendmsg(s, &m, 0) != sizeof(*w))
                die("sendmsg");
}

/* The set comes first, and its members, if they come at all, in the same message. */
static void send_world(int s, const struct world *w, bool members)
{
        send_numbers(
                s, w, members ? 7 : 1,
                (int[]){w->ep, w->conn[0][1], w->conn[1][1], w->conn[2][1], w->l, w->u, w->p[0]});
}

static struct world receive_world(int s)
{
        _Alignas(struct cmsghdr) char room[CMSG_SPACE(8 * sizeof(int))];
        struct world w;
        struct iovec v = {&w, sizeof(w)};
        struct msghdr m = {.msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = room,
                           .msg_controllen = sizeof(room)};
        const int *fd;

        if (recvmsg(s, &m, 0) != sizeof(w))
                die("recvmsg");
        fd = (const int *)(const void *)CMSG_DATA(CMSG_FIRSTHDR(&m));
        w.ep = fd[0];
        if (CMSG_FIRSTHDR(&m)->cmsg_len > CMSG_LEN(sizeof(int))) {
                for (int i = 0; i < CONNS; i++)
                        w.conn[i][1] = fd[1 + i];
                w.l = fd[4];
                w.u = fd[5];
                w.p[0] = fd[6];
        }
        w.ask = s;
        return w;
}

void child_with_world(const char *numbers)
{
        struct world w;
        int *n = (int *)&w;

        for (size_t i = 0; i < NUMBERS; i++, numbers += strcspn(numbers, ",") + 1)
                n[i] = atoi(numbers);
        use(&w);
        fflush(stdout);
        _exit(0);
}

static void as_program(const struct world *w, bool spawn)
{
        char numbers[NUMBERS * 12] = "", *argv[] = {(char *)self, (char *)"--world", numbers, NULL};
        const int *n = (const int *)w;
        pid_t pid;

        for (size_t i = 0; i < NUMBERS; i++)
                sprintf(numbers + strlen(numbers), "%d,", n[i]);
        if (spawn)
                posix_spawn(&pid, self, NULL, NULL, argv, environ);
        else
                execv(self, argv);
}

static void begin(enum passed how, struct world *w, int s[2])
{
        w->ask = s[1];
        if (how == TO_SPAWNED) {
                as_program(w, true);
                system("true"); /* has it, too, and perhaps before the first one looks */
                return;
        }
        if (fork() != 0) {
                if (how == TO_CHILD)
                        send_world(s[0], w, false);
                if (how == TO_CHILD && w->kind != LEVELS) /* before it is received, or after */
                        close(w->ep);
                return;
        }
        close(s[0]);
        if (how == TO_IMAGE)
                as_program(w, false);
        if (how == TO_CHILD)
                *w = receive_world(s[1]);
        use(w);
        fflush(stdout);
        _exit(0);
}

/* Another set than the child has, for it came before. */
static void begin_stranger(struct world *w, int s[2], enum kind kind)
{
        if (fork() == 0) {
                close(s[0]);
                *w = receive_world(s[1]);
                use(w);
                fflush(stdout);
                _exit(0);
        }
        *w = make_world(s[1], kind);
        send_world(s[0], w, true);
}

static void with(enum passed how, enum kind kind)
{
        struct world w;
        int s[2];

        printf("  to %d, %d\n", how, kind);
        fflush(stdout);
        socketpair(AF_UNIX, SOCK_STREAM, 0, s);
        if (how != TO_STRANGER)
                w = make_world(s[1], kind);
        fflush(stdout);
        if (how == TO_STRANGER) {
                begin_stranger(&w, s, kind);
        } else if (how == TO_ITSELF) {
                int first = w.ep;

                send_world(s[0], &w, false);
                if (kind != LEVELS)
                        close(first);
                w.ep = receive_world(s[1]).ep;
                if (kind == LEVELS)
                        close(first);
                w.ask = -1;
                use(&w);
        } else {
                begin(how, &w, s);
        }
        close(s[1]);
        if (how != TO_ITSELF)
                serve(&w, s[0]);
        while (wait(NULL) > 0)
                ;
        if (kind == LEVELS) {
                w.ask = -1;
                use(&w);
        }
        close(s[0]);
        end_world(&w);
}

void scene_sets_passed(void)
{
        for (enum passed how = 0; how < PASSED; how++)
                for (enum kind kind = 0; kind < KINDS; kind++)
                        with(how, kind);
}

/* The sender closes what it has sent before it is received. */
static void sent_and_closed(bool library)
{
        struct world w;
        int s[2], go[2];
        char c;

        socketpair(AF_UNIX, SOCK_STREAM, 0, s);
        pipe(go);
        fflush(stdout);
        if (fork() == 0) {
                close2((int[2]){s[0], go[1]});
                read(go[0], &c, 1);
                w = receive_world(s[1]);
                use(&w);
                fflush(stdout);
                _exit(0);
        }
        w = make_world(s[1], LEVELS);
        send_world(s[0], &w, true);
        if (library)
                close(w.ep);
        close(w.l);
        close(w.u);
        if (library) {
                for (int i = 0; i < CONNS; i++)
                        close(w.conn[i][1]);
                close(w.p[0]);
                SHOW(close_range(ABOVE, ~0u, 0)); /* as daemons do */
        }
        close2((int[2]){s[1], go[0]});
        write(go[1], "x", 1);
        serve(&w, s[0]);
        wait(NULL);
        close2((int[2]){s[0], go[1]});
        end_world(&w);
}

void scene_sets_sent_and_closed(void)
{
        sent_and_closed(true);
        sent_and_closed(false);
}

/* ---- the sender changes the set, and never waits on it ---- */

static void *waits_for_the_end(void *arg)
{
        char c;

        read(*(int *)arg, &c, 1);
        return NULL;
}

/* Sleeps while nothing comes, and is told then. */
static void idle_receiver(int s)
{
        struct world w = receive_world(s);
        struct epoll_event ev;
        clock_t before;
        char c;

        read(s, &c, 1);
        before = clock();
        SHOW(epoll_wait(w.ep, &ev, 1, 1000));
        SHOW(clock() - before < CLOCKS_PER_SEC / 10);
        use(&w);
        fflush(stdout);
        _exit(0);
}

static void sent_by_thread(bool from_the_start)
{
        struct epoll_event ev = {.events = EPOLLIN, .data.u32 = 1};
        pthread_t thread;
        int s[2], end[2];
        struct world w;

        socketpair(AF_UNIX, SOCK_STREAM, 0, s);
        pipe(end);
        fflush(stdout);
        if (fork() == 0) {
                close2((int[2]){s[0], end[1]});
                idle_receiver(s[1]);
        }
        if (from_the_start)
                pthread_create(&thread, NULL, waits_for_the_end, &end[0]);
        w = make_world(s[1], LEVELS);
        send_world(s[0], &w, true);
        if (!from_the_start)
                pthread_create(&thread, NULL, waits_for_the_end, &end[0]);
        SHOW(epoll_ctl(w.ep, EPOLL_CTL_MOD, w.conn[0][1], &ev));
        write(s[0], "x", 1);
        close(s[1]);
        serve(&w, s[0]);
        wait(NULL);
        close(end[1]);
        pthread_join(thread, NULL);
        close2((int[2]){s[0], end[0]});
        end_world(&w);
}

void scene_sets_sent_by_threads(void)
{
        sent_by_thread(false);
        sent_by_thread(true);
}
