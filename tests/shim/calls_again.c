/*
 * shim_calls, sockets after others that were closed: they are new, whatever lies under them and
 * whatever was done before.
 */
#include "tests/shim/calls.h"

/* A connection over the fabric, made and ended: what lay under it may be kept. */
static void one_before(const struct sockaddr_in *sa, int l)
{
        int c = socket(AF_INET, SOCK_STREAM, 0), s;

        if (connect(c, (const void *)sa, sizeof(*sa)) < 0)
                die("connect");
        s = accept(l, NULL, NULL);
        close(c);
        close(s);
}

static long option(int fd, int level, int name)
{
        int v = -1;
        socklen_t len = sizeof(v);

        return getsockopt(fd, level, name, &v, &len) < 0 ? -errno : v;
}

static ino_t inode(int fd)
{
        struct stat st;

        return fstat(fd, &st) < 0 ? 0 : st.st_ino;
}

/* What a new socket would not show. */
static void show_new(int fd)
{
        struct sockaddr_in sa = {.sin_port = 1};
        socklen_t len = sizeof(sa);
        struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};

        SHOW(fcntl(fd, F_GETFL));
        SHOW(fcntl(fd, F_GETFD));
        SHOW(fcntl(fd, F_GETOWN));
        SHOW(getsockname(fd, (void *)&sa, &len));
        SHOW(sa.sin_port);
        SHOW(sa.sin_addr.s_addr);
        SHOW(option(fd, SOL_SOCKET, SO_KEEPALIVE));
        SHOW(option(fd, SOL_SOCKET, SO_REUSEADDR));
        SHOW(option(fd, SOL_SOCKET, SO_ERROR));
        SHOW(option(fd, IPPROTO_TCP, TCP_NODELAY));
        SHOW(poll(&p, 1, 0));
        SHOW(p.revents);
}

static void flags_and_options(const struct sockaddr_in *sa, int l)
{
        int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0), first = fd;

        show_new(fd);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        SHOW(connect(fd, (const void *)sa, sizeof(*sa)));
        close(accept(l, NULL, NULL));
        close(fd);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
        SHOW(fd == first);
        show_new(fd);
        connect(fd, (const void *)sa, sizeof(*sa));
        close(accept(l, NULL, NULL));
        SHOW(fcntl(fd, F_SETOWN, getpid()));
        close(fd);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        show_new(fd);
        SHOW(shutdown(fd, SHUT_WR));
        SHOW(connect(fd, (const void *)sa, sizeof(*sa)));
        close(accept(l, NULL, NULL));
        close(fd);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        show_new(fd);
        close(fd);
}

static void names(const struct sockaddr_in *sa, int l)
{
        struct sockaddr_in any = {.sin_family = AF_INET};
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        SHOW(bind(fd, (void *)&any, sizeof(any)));
        SHOW(connect(fd, (const void *)sa, sizeof(*sa)));
        close(accept(l, NULL, NULL));
        close(fd);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        show_new(fd);
        SHOW(listen(fd, 1));
        close(fd);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        show_new(fd);
        close(fd);
}

/* Members of epoll sets that were closed say nothing any more. */
static void members(const struct sockaddr_in *sa, int l)
{
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT};
        int ep = epoll_create1(0), fd = socket(AF_INET, SOCK_STREAM, 0);

        SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
        SHOW(epoll_wait(ep, &ev, 1, 0));
        SHOW(connect(fd, (const void *)sa, sizeof(*sa)));
        close(accept(l, NULL, NULL));
        close(fd);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(epoll_wait(ep, &ev, 1, 0));
        SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
        close(fd);
        SHOW(epoll_wait(ep, &ev, 1, 0));
        close(ep);
}

/* A peer that only the kernel reaches sees the end when its number is closed, though something of
 * ours may know it. */
static void ends_by_the_kernel(void)
{
        struct sockaddr_in sa = loopback();
        socklen_t len = sizeof(sa);
        int fd = socket(AF_INET, SOCK_STREAM, 0), l = socket(AF_INET, SOCK_STREAM, 0), s;
        char b[4];

        SHOW(fcntl(l, F_SETSIG, SIGUSR1));
        if (bind(l, (void *)&sa, sizeof(sa)) < 0 || listen(l, 1) < 0 ||
            getsockname(l, (void *)&sa, &len) < 0)
                die("listen");
        SHOW(connect(fd, (void *)&sa, sizeof(sa)));
        s = accept(l, NULL, NULL);
        SHOW(write(fd, "end", 3));
        close(fd);
        SHOW(read(s, b, sizeof(b)));
        SHOW(read(s, b, sizeof(b)));
        close(s);
        close(l);
}

/* What a child has is not given to the next of its parent's, and the other way round. */
static void children(const struct sockaddr_in *sa, int l)
{
        int fd = socket(AF_INET, SOCK_STREAM, 0), p[2], next;
        ino_t old = inode(fd), of_child;
        pid_t pid;

        if (connect(fd, (const void *)sa, sizeof(*sa)) < 0 || pipe(p) < 0)
                die("children");
        close(accept(l, NULL, NULL));
        pid = fork();
        if (pid == 0) {
                read(p[0], &(char){0}, 1);
                next = socket(AF_INET, SOCK_STREAM, 0);
                of_child = inode(next);
                _exit(of_child == 0 || of_child == old || inode(fd) != old);
        }
        close(fd);
        next = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(inode(next) != old);
        write(p[1], "", 1);
        waitpid(pid, &next, 0);
        SHOW(next);
        close2(p);
}

static void *opens(void *arg)
{
        const struct sockaddr_in *sa = arg;

        for (int i = 0; i < 200; i++) {
                int a = socket(AF_INET, SOCK_STREAM, 0), b = socket(AF_INET, SOCK_STREAM, 0);

                if (inode(a) == inode(b) || connect(a, (const void *)sa, sizeof(*sa)) < 0)
                        return (void *)1;
                close(a);
                close(b);
        }
        return NULL;
}

static void *accepts(void *arg)
{
        for (int i = 0; i < 600; i++)
                close(accept(*(int *)arg, NULL, NULL));
        return NULL;
}

static void threads(struct sockaddr_in *sa, int l)
{
        pthread_t t[3], server;
        void *bad;

        pthread_create(&server, NULL, accepts, &l);
        for (int i = 0; i < 3; i++)
                pthread_create(&t[i], NULL, opens, sa);
        for (int i = 0; i < 3; i++) {
                pthread_join(t[i], &bad);
                SHOW(bad == NULL);
        }
        pthread_join(server, NULL);
}

static _Atomic int opening;

static void *opens_on(void *arg)
{
        const struct sockaddr_in *sa = arg;
        int on = 1;

        for (int i = 0; i < 1000; i++) {
                int s = socket(AF_INET, SOCK_STREAM, 0);

                if (i % 2 != 0) /* what the one before has left */
                        setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
                connect(s, (const void *)sa, sizeof(*sa));
                close(s);
        }
        opening--;
        return NULL;
}

static void *accepts_on(void *arg)
{
        struct pollfd p = {.fd = *(int *)arg, .events = POLLIN};

        while (opening != 0)
                if (poll(&p, 1, 10) == 1)
                        close(accept(p.fd, NULL, NULL));
        return NULL;
}

/* What was kept is given up while threads take and leave it. */
void scene_again_given_up(void)
{
        struct sockaddr_in sa;
        int l = listener(&sa);
        pthread_t t[3];

        listen(l, 4000);
        opening = 2;
        pthread_create(&t[0], NULL, accepts_on, &l);
        for (int i = 1; i < 3; i++)
                pthread_create(&t[i], NULL, opens_on, &sa);
        while (opening != 0) {
                unshare(0);
                usleep(10);
        }
        for (int i = 0; i < 3; i++)
                pthread_join(t[i], NULL);
        close(l);
}

void scene_again(void)
{
        struct sockaddr_in sa;
        int l = listener(&sa), a, b;

        for (int i = 0; i < 3; i++)
                one_before(&sa, l);
        a = socket(AF_INET, SOCK_STREAM, 0);
        b = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(inode(a) != inode(b));
        close(a);
        close(b);
        one_before(&sa, l);
        flags_and_options(&sa, l);
        one_before(&sa, l);
        names(&sa, l);
        one_before(&sa, l);
        members(&sa, l);
        one_before(&sa, l);
        ends_by_the_kernel();
        one_before(&sa, l);
        children(&sa, l);
        threads(&sa, l);
        one_before(&sa, l);
        SHOW(system("true"));
        one_before(&sa, l);
        SHOW(unshare(0));
        one_before(&sa, l);
        close(l);
}
