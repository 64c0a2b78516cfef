/*
 * shim_calls, first calls: what a program that was given sockets over exec does first, be it about
 * them or not.
 */
#include "tests/shim/calls.h"

enum first {
        FORK,
        QUICK_FORK,
        VFORK,
        SPAWN,
        DAEMON,
        CLONE,
        FORKS,
        ADD = FORKS,
        ADD_DUPLICATE,
        SELECT,
        POLL,
        FIRSTS
};

static const char *const names[FIRSTS] = {
        [FORK] = "fork",     [QUICK_FORK] = "_Fork",
        [VFORK] = "vfork",   [SPAWN] = "posix_spawn",
        [DAEMON] = "daemon", [CLONE] = "clone",
        [ADD] = "epoll_ctl", [ADD_DUPLICATE] = "epoll_ctl of a duplicate",
        [SELECT] = "select", [POLL] = "poll"};

static char *argv_of(char *v[6], const char *what, const char *a, const char *b, const char *c)
{
        char *all[] = {(char *)self, (char *)what, (char *)a, (char *)b, (char *)c, NULL};

        memcpy(v, all, sizeof(all));
        return v[0];
}

/* `calls --last SOCKET PIPE`: writes when whoever started it has ended. */
void last_of_first(int fd, int pipe)
{
        char b;

        read(pipe, &b, 1);
        write(fd, "last", 4);
        _exit(0);
}

static void start_last(enum first how, int fd, int p[2])
{
        char num[2][16], *v[6];
        pid_t pid = 0;

        snprintf(num[0], sizeof(num[0]), "%d", fd);
        snprintf(num[1], sizeof(num[1]), "%d", p[0]);
        argv_of(v, "--last", num[0], num[1], NULL);
        switch (how) {
        case FORK:
                pid = fork();
                break;
        case QUICK_FORK:
                pid = _Fork();
                break;
        case VFORK:
                pid = vfork();
                if (pid == 0) {
                        execv(self, v);
                        _exit(1);
                }
                break;
        case SPAWN:
                posix_spawn(&pid, self, NULL, NULL, v, environ);
                break;
        case DAEMON:
                pid = daemon(1, 1); /* who called it is gone */
                break;
        default:
                pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        }
        if (pid != 0)
                _exit(0);
        close(p[1]);
        last_of_first(fd, p[0]);
}

static void wait_in_set(int fd)
{
        struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 5};
        int ep = epoll_create1(0);

        SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
        SHOW(epoll_wait(ep, &ev, 1, LONG));
        printf("  %x of %d\n", ev.events, (int)ev.data.u64);
}

static void wait_first(enum first how, int fd)
{
        struct timeval tv = {.tv_sec = LONG / 1000};
        fd_set set;

        if (how == SELECT) {
                FD_ZERO(&set);
                FD_SET(fd, &set);
                SHOW(select(fd + 1, &set, NULL, NULL, &tv));
        } else if (how == POLL) {
                wait_readable(fd);
        } else {
                wait_in_set(how == ADD_DUPLICATE ? dup(fd) : fd);
        }
}

/* `calls --first CALL SOCKET`. */
void child_of_first(int how, int fd)
{
        int p[2], v = 0;
        socklen_t len = sizeof(v);
        char b[16];

        if (how < FORKS) {
                if (pipe2(p, O_CLOEXEC) == 0 && fcntl(p[0], F_SETFD, 0) == 0)
                        start_last((enum first)how, fd, p);
                _exit(1);
        }
        wait_first((enum first)how, fd);
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &v, &len);
        if (v)
                SHOW_OK(accept(fd, NULL, NULL));
        else
                show_bytes("read", b, recv(fd, b, sizeof(b), MSG_DONTWAIT));
        exit(0);
}

static void become_first(int how, int fd)
{
        char num[2][16], *v[6];

        snprintf(num[0], sizeof(num[0]), "%d", how);
        snprintf(num[1], sizeof(num[1]), "%d", fd);
        argv_of(v, "--first", num[0], num[1], NULL);
        execv(self, v);
        _exit(1);
}

/* What it starts has the socket when it is gone itself. */
void scene_first_forks(void)
{
        char b[16];
        int v[2];

        for (int how = 0; how < FORKS; how++) {
                tcp_pair(v);
                fcntl(v[0], F_SETFD, FD_CLOEXEC);
                fflush(stdout);
                if (fork() == 0)
                        become_first(how, v[1]);
                close(v[1]);
                wait(NULL);
                printf("  %s:", names[how]);
                show_bytes("came", b, recv(v[0], b, 4, MSG_WAITALL));
                SHOW(read(v[0], b, sizeof(b)));
                close(v[0]);
        }
}

/* It waits for the socket: a connection, and a listener. */
void scene_first_waits(void)
{
        struct sockaddr_in sa;
        int v[2], l, connected;

        for (int how = FORKS; how < FIRSTS; how++) {
                printf("  %s\n", names[how]);
                tcp_pair(v);
                fcntl(v[0], F_SETFD, FD_CLOEXEC);
                fflush(stdout);
                if (fork() == 0)
                        become_first(how, v[1]);
                write(v[0], "here", 4);
                wait(NULL);
                close2(v);
                l = listener(&sa);
                if (fork() == 0)
                        become_first(how, l);
                v[0] = socket(AF_INET, SOCK_STREAM, 0);
                connected = connect(v[0], (void *)&sa, sizeof(sa));
                wait(NULL); /* two write to one file: one after the other */
                SHOW(connected);
                close(v[0]);
                close(l);
        }
}

/* ---- an epoll set that goes over exec, with all that is in it ---- */

enum kept {
        SET,
        LEVEL,
        LEVEL_PEER,
        EDGE,
        EDGE_PEER,
        ONCE,
        ONCE_PEER,
        LISTENER,
        DATAGRAMS,
        PIPE,
        PIPE_END,
        KEPT
};

static void show_set(int ep)
{
        struct epoll_event ev[16];
        int n = epoll_wait(ep, ev, 16, 100);

        for (uint64_t data = 1; data < KEPT; data++)
                for (int i = 0; i < n; i++)
                        if (ev[i].data.u64 >> 32 == data)
                                printf("  %d of them: %d has %x\n", n, (int)data, ev[i].events);
        if (n <= 0)
                printf("  none: %d\n", n);
}

static int in_set(int op, const int fd[KEPT], enum kept which, uint32_t events)
{
        struct epoll_event ev = {.events = events, .data.u64 = (uint64_t)which << 32 | 0x12345678};

        return epoll_ctl(fd[SET], op, fd[which], &ev);
}

/* `calls --sets NUMBERS`: the new image. */
void child_with_sets(const char *numbers)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof(sa);
        int fd[KEPT], c;
        char b[8];

        for (int i = 0; i < KEPT; i++)
                fd[i] = (int)strtol(numbers + (i > 0), (char **)&numbers, 10);
        show_set(fd[SET]);
        SHOW(read(fd[LEVEL], b, sizeof(b)));
        show_set(fd[SET]);
        write(fd[LEVEL_PEER], "more", 4);
        write(fd[EDGE_PEER], "more", 4);
        write(fd[ONCE_PEER], "more", 4);
        show_set(fd[SET]);
        SHOW(read(fd[LEVEL], b, sizeof(b)));
        show_set(fd[SET]);
        SHOW(in_set(EPOLL_CTL_MOD, fd, ONCE, EPOLLIN | EPOLLONESHOT));
        show_set(fd[SET]);
        getsockname(fd[LISTENER], (void *)&sa, &len);
        c = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(c, (void *)&sa, sizeof(sa)));
        show_set(fd[SET]);
        SHOW_OK(accept(fd[LISTENER], NULL, NULL));
        len = sizeof(sa);
        getsockname(fd[DATAGRAMS], (void *)&sa, &len);
        c = socket(AF_INET, SOCK_DGRAM, 0);
        SHOW(sendto(c, "x", 1, 0, (void *)&sa, sizeof(sa)));
        show_set(fd[SET]);
        SHOW(read(fd[DATAGRAMS], b, sizeof(b)));
        write(fd[PIPE_END], "x", 1);
        show_set(fd[SET]);
        SHOW(in_set(EPOLL_CTL_ADD, fd, EDGE, EPOLLIN));
        SHOW(in_set(EPOLL_CTL_DEL, fd, EDGE, 0));
        SHOW(in_set(EPOLL_CTL_DEL, fd, LISTENER, 0));
        SHOW(in_set(EPOLL_CTL_DEL, fd, PIPE, 0));
        SHOW(in_set(EPOLL_CTL_DEL, fd, LEVEL, 0));
        close(fd[ONCE]);
        show_set(fd[SET]);
        exit(0);
}

static void become_with_sets(void)
{
        char numbers[KEPT * 12] = "";
        struct sockaddr_in sa;
        int fd[KEPT];

        tcp_pair(&fd[LEVEL]);
        tcp_pair(&fd[EDGE]);
        tcp_pair(&fd[ONCE]);
        fd[LISTENER] = listener(&sa);
        fd[DATAGRAMS] = udp_socket(&sa);
        if (pipe(&fd[PIPE]) != 0)
                _exit(1);
        fd[SET] = epoll_create1(0);
        in_set(EPOLL_CTL_ADD, fd, EDGE, EPOLLIN | EPOLLET);
        in_set(EPOLL_CTL_ADD, fd, ONCE, EPOLLIN | EPOLLONESHOT);
        write(fd[EDGE_PEER], "x", 1);
        write(fd[ONCE_PEER], "x", 1);
        wait_readable(fd[EDGE]);
        wait_readable(fd[ONCE]);
        show_set(fd[SET]);
        show_set(fd[SET]);
        in_set(EPOLL_CTL_ADD, fd, LEVEL, EPOLLIN);
        in_set(EPOLL_CTL_ADD, fd, LISTENER, EPOLLIN);
        in_set(EPOLL_CTL_ADD, fd, DATAGRAMS, EPOLLIN);
        in_set(EPOLL_CTL_ADD, fd, PIPE, EPOLLIN);
        write(fd[LEVEL_PEER], "x", 1);
        wait_readable(fd[LEVEL]);
        for (int i = 0; i < KEPT; i++)
                snprintf(numbers + strlen(numbers), sizeof(numbers) - strlen(numbers), "%d,",
                         fd[i]);
        fflush(stdout);
        execl(self, self, "--sets", numbers, (char *)NULL);
        _exit(1);
}

/* What was reported is not reported again, and what is not is. */
void scene_sets_over_exec(void)
{
        fflush(stdout);
        if (fork() == 0)
                become_with_sets();
        wait(NULL);
}
