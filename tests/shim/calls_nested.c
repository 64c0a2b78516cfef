/* Epoll sets with sets in them that go in a message, or to a child of posix_spawn(): whoever has
 * both is told by the outer one what is ready in the inner one. */
#include "tests/shim/calls.h"

enum passed { TO_ITSELF, TO_STRANGER, TO_SPAWNED, PASSED };
enum poke { DEEP, FLAT, DEEP_PIPE, POKES };

/* Of numbers only, so that it can be an argument. */
struct nest {
        int outer, inner, deep[2], flat[2], p[2], ask;
};
#define NUMBERS (sizeof(struct nest) / sizeof(int))

static void add(int ep, int fd, uint32_t events, uint32_t data)
{
        struct epoll_event ev = {.events = events, .data.u32 = data};

        SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
}

static struct nest make_nest(int ask, uint32_t how)
{
        struct nest n = {.outer = epoll_create(1), .inner = epoll_create(1), .ask = ask};

        tcp_pair(n.deep);
        tcp_pair(n.flat);
        pipe(n.p);
        add(n.inner, n.deep[1], EPOLLIN, 1);
        add(n.inner, n.p[0], EPOLLIN, 2);
        add(n.outer, n.inner, EPOLLIN | how, 3);
        add(n.outer, n.flat[1], EPOLLIN, 4);
        return n;
}

static void end_nest(struct nest *n)
{
        close(n->outer);
        close(n->inner);
        close2(n->deep);
        close2(n->flat);
        close2(n->p);
}

static int poked(const struct nest *n, enum poke what, int end)
{
        return what == DEEP ? n->deep[end] : what == FLAT ? n->flat[end] : n->p[!end];
}

static void show_told(const char *by, int ep, int ms)
{
        struct epoll_event ev[4];
        int n = epoll_wait(ep, ev, 4, ms);

        printf("  %s: %d", by, n);
        for (int i = 0; i < n; i++)
                printf(", %x of %d", ev[i].events, (int)ev[i].data.u32);
        printf("\n");
}

/* Whoever has the sets. */
static void use(const struct nest *n)
{
        for (enum poke what = 0; what < POKES; what++) {
                char c = (char)what;

                if (n->ask < 0)
                        write(poked(n, what, 0), "x", 1);
                else if (write(n->ask, &c, 1) != 1 || read(n->ask, &c, 1) != 1)
                        printf("  nobody pokes\n");
                show_told("outer", n->outer, LONG);
                show_told("inner", n->inner, what == FLAT ? 0 : LONG);
                read(poked(n, what, 1), &c, 1);
                show_told("read", n->outer, 0);
        }
}

static void serve(const struct nest *n, int ask)
{
        char c;

        while (read(ask, &c, 1) == 1) {
                write(poked(n, (enum poke)c, 0), "x", 1);
                write(ask, &c, 1);
        }
}

static void send_nest(int s, const struct nest *n)
{
        const int fds[] = {n->outer, n->inner, n->deep[1], n->flat[1], n->p[0]};
        _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(fds))] = {0};
        struct iovec v = {(char[]){"n"}, 1};
        struct msghdr m = {.msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = room,
                           .msg_controllen = sizeof(room)};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(fds));
        memcpy(CMSG_DATA(c), fds, sizeof(fds));
        if (sendmsg(s, &m, 0) != 1)
                die("sendmsg");
}

static struct nest receive_nest(int s)
{
        struct nest n = {.ask = s};
        int fds[5];
        _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(fds))];
        char b;
        struct iovec v = {&b, 1};
        struct msghdr m = {.msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = room,
                           .msg_controllen = sizeof(room)};

        if (recvmsg(s, &m, 0) != 1)
                die("recvmsg");
        memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fds));
        n.outer = fds[0];
        n.inner = fds[1];
        n.deep[1] = fds[2];
        n.flat[1] = fds[3];
        n.p[0] = fds[4];
        return n;
}

void child_with_nest(const char *numbers)
{
        struct nest n;
        int *v = (int *)&n;

        for (size_t i = 0; i < NUMBERS; i++, numbers += strcspn(numbers, ",") + 1)
                v[i] = atoi(numbers);
        use(&n);
        fflush(stdout);
        _exit(0);
}

static void to_itself(uint32_t how)
{
        struct nest n = make_nest(-1, how), got;
        int s[2];

        socketpair(AF_UNIX, SOCK_STREAM, 0, s);
        send_nest(s[0], &n);
        got = receive_nest(s[1]);
        got.ask = s[1];
        fflush(stdout);
        if (fork() == 0) {
                close(s[0]);
                use(&got);
                fflush(stdout);
                _exit(0);
        }
        close(s[1]);
        serve(&n, s[0]);
        wait(NULL);
        close(s[0]);
        end_nest(&n);
        end_nest(&(struct nest){
                got.outer, got.inner, {-1, got.deep[1]}, {-1, got.flat[1]}, {got.p[0], -1}, -1});
}

static void to_stranger(uint32_t how)
{
        struct nest n;
        int s[2];

        socketpair(AF_UNIX, SOCK_STREAM, 0, s);
        fflush(stdout);
        if (fork() == 0) {
                close(s[0]);
                n = receive_nest(s[1]);
                use(&n);
                fflush(stdout);
                _exit(0);
        }
        close(s[1]);
        n = make_nest(-1, how);
        send_nest(s[0], &n);
        serve(&n, s[0]);
        wait(NULL);
        use(&n); /* which is as it was */
        close(s[0]);
        end_nest(&n);
}

static void to_spawned(uint32_t how)
{
        char numbers[NUMBERS * 12] = "", *argv[] = {(char *)self, (char *)"--nest", numbers, NULL};
        struct nest n;
        int s[2];
        pid_t pid;

        socketpair(AF_UNIX, SOCK_STREAM, 0, s);
        fcntl(s[0], F_SETFD, FD_CLOEXEC);
        n = make_nest(s[1], how);
        for (size_t i = 0; i < NUMBERS; i++)
                sprintf(numbers + strlen(numbers), "%d,", ((const int *)&n)[i]);
        fflush(stdout);
        posix_spawn(&pid, self, NULL, NULL, argv, environ);
        close(s[1]);
        serve(&n, s[0]);
        waitpid(pid, NULL, 0);
        close(s[0]);
        end_nest(&n);
}

void scene_sets_in_sets_passed(void)
{
        static void (*const ways[PASSED])(uint32_t) = {to_itself, to_stranger, to_spawned};

        for (enum passed way = 0; way < PASSED; way++) {
                printf("  way %d\n", way);
                ways[way](0);
                ways[way](EPOLLET);
        }
}
