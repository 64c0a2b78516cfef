/*
 * shim_calls, processes: fork, exec, and the ends.
 */
#include "tests/shim/calls.h"

void scene_fork(void)
{
        char b[16];
        int v[2];

        tcp_pair(v);
        fflush(stdout);
        if (fork() == 0) {
                close(v[1]);
                write(v[0], "child", 5);
                _exit(0);
        }
        wait(NULL);
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        SHOW(write(v[0], "parent", 6));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        if (_Fork() == 0) {
                write(v[0], "other", 5);
                _Exit(0);
        }
        wait(NULL);
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        if (vfork() == 0)
                _exit(7);
        wait(NULL);
        if (fork() == 0) {
                close(v[0]);
                exit(0);
        }
        close(v[0]);
        SHOW(read(v[1], b, sizeof(b)));
        wait(NULL);
        close(v[1]);
}

/* Servers that clear their environment (nginx, in its master): what their children have is the same
 * all the same, whether they are born after that or do it themselves. */
void scene_fork_cleared(void)
{
        for (int how = 0; how < 2; how++) {
                struct sockaddr_in sa;
                char b[16], **env = environ;
                int l = listener(&sa), c;

                fflush(stdout);
                if (how == 0)
                        environ = NULL;
                if (fork() == 0) {
                        if (how == 1)
                                clearenv();
                        for (int i = 0; i < 2; i++) {
                                c = accept(l, NULL, NULL);
                                write(c, "child", 5);
                                close(c);
                        }
                        _exit(0);
                }
                environ = env;
                close(l);
                for (int i = 0; i < 2; i++) {
                        c = socket(AF_INET, SOCK_STREAM, 0);
                        SHOW(connect(c, (void *)&sa, sizeof(sa)));
                        show_bytes("read", b, read(c, b, sizeof(b)));
                        SHOW(read(c, b, sizeof(b)));
                        close(c);
                }
                wait(NULL);
        }
}

/* One that clears its environment before its first socket has the unetd that it began with. */
void scene_cleared_first(void)
{
        char b[16];
        int v[2];

        clearenv();
        tcp_pair(v);
        SHOW(write(v[0], "some", 4));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        close2(v);
}

/* Children that are born while other threads are in the middle of calls: what these had locked is
 * free in the child. */
static _Atomic bool forks_over;

static void *sets_options(void *arg)
{
        struct sockaddr_in sa;
        int l = listener(&sa), size = 100000;

        while (!forks_over)
                setsockopt(l, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
        close(l);
        return NULL;
}

void scene_fork_beside_options(void)
{
        struct sockaddr_in sa;
        int l = listener(&sa), well = 0, status;
        pthread_t t[2];

        for (int i = 0; i < 2; i++)
                pthread_create(&t[i], NULL, sets_options, NULL);
        for (int i = 0; i < 200; i++) {
                pid_t pid = fork();
                if (pid == 0) {
                        alarm(LONG / 1000);
                        close(l);
                        _exit(0);
                }
                waitpid(pid, &status, 0);
                well += status == 0;
        }
        forks_over = true;
        for (int i = 0; i < 2; i++)
                pthread_join(t[i], NULL);
        SHOW(well);
        close(l);
}

/* An attempt that came to nothing is told once; then the socket may try again. */
void scene_connect_failed(void)
{
        struct sockaddr_in gone, there;
        struct pollfd p = {.events = POLLOUT};
        int first = listener(&gone), second = listener(&there), err;
        socklen_t len = sizeof(err);

        p.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        SHOW(connect(p.fd, (void *)&gone, sizeof(gone)));
        close(first);
        SHOW(poll(&p, 1, LONG));
        printf("  failed: %s\n",
               getsockopt(p.fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err != 0 ? "yes" : "no");
        SHOW(connect(p.fd, (void *)&there, sizeof(there)));
        SHOW(connect(p.fd, (void *)&there, sizeof(there)));
        SHOW(poll(&p, 1, LONG));
        SHOW(connect(p.fd, (void *)&there, sizeof(there)));
        SHOW(connect(p.fd, (void *)&there, sizeof(there)));
        SHOW(fcntl(p.fd, F_GETFL) & O_NONBLOCK);
        close(p.fd);
        close(second);
}

/* O_NONBLOCK is of the open file: what one process sets the other has. */
void scene_nonblock_shared(void)
{
        struct sockaddr_in sa;
        int v[2], s[3];
        char b;

        tcp_pair(v);
        s[0] = v[1];
        s[1] = listener(&sa);
        s[2] = udp_socket(&sa);
        fflush(stdout);
        for (int i = 0; i < 3; i++) {
                int d = dup(s[i]);

                if (fork() == 0) {
                        if (i == 1)
                                ioctl(d, FIONBIO, &(int){1});
                        else
                                fcntl(s[i], F_SETFL, O_NONBLOCK);
                        exit(0);
                }
                wait(NULL);
                printf("  %d: %s\n", i,
                       fcntl(s[i], F_GETFL) & O_NONBLOCK ? "non-blocking" : "blocking");
                if (i == 1)
                        SHOW(accept(d, NULL, NULL));
                else
                        SHOW(recv(d, &b, 1, 0));
                close(d);
                close(s[i]);
        }
        close(v[0]);
}

/* The new image echoes once; a listener it inherits says whether it is non-blocking. */
void child_of_exec(int fd)
{
        char b[16];
        ssize_t n;
        int v = 0;
        socklen_t len = sizeof(v);

        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &v, &len);
        if (v) {
                printf("  listener: %s\n",
                       fcntl(fd, F_GETFL) & O_NONBLOCK ? "non-blocking" : "blocking");
                fd = accept(fd, NULL, NULL);
        }
        n = read(fd, b, sizeof(b));
        if (n > 0)
                write(fd, b, (size_t)n);
        exit(0);
}

/* The new image closes what it inherited, and stays. */
void closer_of_exec(int fd)
{
        char b;

        if (read(fd, &b, 1) == 1)
                close(fd);
        sleep(2 * LONG / 1000);
        exit(1);
}

static void exec_as(int how, const char *num)
{
        char *argv[] = {(char *)self, (char *)"--child", (char *)num, NULL};
        int fd;

        switch (how) {
        case 0:
                execv(self, argv);
                break;
        case 1:
                execve(self, argv, environ);
                break;
        case 2:
                execvp(self, argv);
                break;
        case 3:
                execvpe(self, argv, environ);
                break;
        case 4:
                execl(self, self, "--child", num, NULL);
                break;
        case 5:
                execlp(self, self, "--child", num, NULL);
                break;
        case 6:
                execle(self, self, "--child", num, NULL, environ);
                break;
        case 7:
                fd = open(self, O_RDONLY | O_CLOEXEC);
                fexecve(fd, argv, environ);
                break;
        case 8:
                execveat(AT_FDCWD, self, argv, environ, 0);
                break;
        case 9:
                posix_spawn(&fd, self, NULL, NULL, argv, environ);
                waitpid(fd, NULL, 0);
                _exit(0);
        case 10:
                posix_spawnp(&fd, self, NULL, NULL, argv, environ);
                waitpid(fd, NULL, 0);
                _exit(0);
        }
        _exit(1);
}

void scene_exec(void)
{
        char b[16], num[16];
        int v[2];

        for (int how = 0; how <= 10; how++) {
                tcp_pair(v);
                fcntl(v[0], F_SETFD, FD_CLOEXEC);
                snprintf(num, sizeof(num), "%d", v[1]);
                fflush(stdout);
                if (fork() == 0)
                        exec_as(how, num);
                write(v[0], "echo", 4);
                printf("  %d:", how);
                show_bytes("came back", b, read(v[0], b, sizeof(b)));
                wait(NULL);
                close2(v);
        }
}

static void to_and_fro(int v[2])
{
        char b[64] = {0};

        for (int i = 0; i < 20000; i++)
                if (write(v[0], b, sizeof b) != sizeof b || read(v[1], b, sizeof b) != sizeof b)
                        _exit(1);
}

static long fork_by_number(long nr)
{
        uint64_t args[8] = {[4] = SIGCHLD}; /* struct clone_args as it was at first */

        if (nr == SYS_clone3)
                return syscall(nr, args, sizeof(args));
        return nr == SYS_clone ? syscall(nr, SIGCHLD, 0, 0, 0, 0) : syscall(nr);
}

struct cloned {
        int *v, *w;
};

static int is_cloned(void *arg)
{
        struct cloned *c = arg;

        to_and_fro(c->w);
        close2(c->v);
        close2(c->w);
        return 3;
}

#define BY_LIBC (-1) /* its clone() */

static void cloned_by(long nr)
{
        static char stack[1 << 16] __attribute__((aligned(64)));
        int v[2], w[2], x[2], status;
        struct cloned c = {v, w};
        long pid;

        tcp_pair(v);
        tcp_pair(w);
        pid = nr == BY_LIBC ? clone(is_cloned, stack + sizeof(stack), SIGCHLD, &c)
                            : fork_by_number(nr);
        if (pid == 0)
                _exit(is_cloned(&c));
        to_and_fro(v);
        waitpid((pid_t)pid, &status, 0);
        SHOW(status);
        to_and_fro(v);
        tcp_pair(x);
        to_and_fro(x);
        to_and_fro(v);
        close(x[0]);
        close(x[1]);
        close(w[0]);
        SHOW(read(w[1], &status, 1));
        close(w[1]);
        close(v[0]);
        close(v[1]);
}

/* These by their numbers are forks of which libc does not hear (vsftpd makes its namespaces so):
 * parent and child are busy at once. */
void scene_cloned(void)
{
        cloned_by(SYS_clone);
        cloned_by(SYS_clone3);
#ifdef SYS_fork
        cloned_by(SYS_fork);
#endif
        cloned_by(BY_LIBC);
}

static void is_refused(const struct sockaddr_in *to)
{
        int c = socket(AF_INET, SOCK_STREAM, 0);

        printf("  from another one: %s\n",
               connect(c, (const void *)to, sizeof(*to)) == 0 ? "connected" : "not connected");
        close(c);
}

/* Its child and grandchild have the connection; what they make there is nobody's who is here. */
static void child_apart(long inner, int fd, const struct sockaddr_in *to, bool other_net)
{
        char b;
        long pid;

        if (other_net)
                is_refused(to);
        pid = inner < 0 ? fork() : syscall(SYS_clone, inner | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) {
                write(fd, "grandchild", 10);
                read(fd, &b, 1);
                _exit(0);
        }
        waitpid((pid_t)pid, NULL, 0);
        write(fd, "child", 5);
        read(fd, &b, 1);
        _exit(0);
}

static void apart_by(long outer, long inner)
{
        struct sockaddr_in to;
        int l = listener(&to), v[2];
        char b[16];
        long pid;

        printf("  %lx, then %lx\n", outer, inner);
        tcp_pair(v);
        fflush(stdout);
        pid = syscall(SYS_clone, outer | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) {
                close(v[0]);
                child_apart(inner, v[1], &to, outer & CLONE_NEWNET);
        }
        close(v[1]);
        for (int i = 0; i < 2; i++) {
                show_bytes("came", b, read(v[0], b, sizeof(b)));
                write(v[0], "x", 1);
        }
        show_bytes("end", b, read(v[0], b, sizeof(b)));
        SHOW(waitpid((pid_t)pid, NULL, 0) == pid);
        close(v[0]);
        close(l);
}

/* Children in namespaces of their own, and theirs. */
void scene_namespaces(void)
{
        static const long net = CLONE_NEWNET, pid = CLONE_NEWPID, user = CLONE_NEWUSER,
                          all = CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC;
        int v[2];

        tcp_pair(v);
        close2(v);
        if (unshare(CLONE_NEWUTS) < 0) {
                printf("  no namespace can be made here: %s\n", strerror(errno));
                return;
        }
        apart_by(net, -1);
        apart_by(net, net);
        apart_by(pid, -1);
        apart_by(pid, all);
        apart_by(all, -1);
        apart_by(all, all);
        apart_by(user, -1);
        apart_by(user | all, all);
        SHOW(syscall(SYS_clone, CLONE_NEWNET | CLONE_FS | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0));
}

/* A program that gives its children an environment of its own making, as inetd does, or clears its
 * own, as `env -i` does. */
void scene_exec_cleaned(void)
{
        char b[16], num[16], path[] = "PATH=/usr/bin";
        char *clean[] = {path, NULL};
        int v[2];

        for (int how = 0; how < 4; how++) {
                char *argv[] = {(char *)self, (char *)"--child", num, NULL};
                pid_t pid;

                tcp_pair(v);
                fcntl(v[0], F_SETFD, FD_CLOEXEC);
                snprintf(num, sizeof(num), "%d", v[1]);
                fflush(stdout);
                if (how == 2) {
                        posix_spawn(&pid, self, NULL, NULL, argv, clean);
                } else if ((pid = fork()) == 0) {
                        if (how == 3) {
                                clearenv();
                                execv(self, argv);
                        }
                        execve(self, argv, how ? clean : &clean[1]);
                        _exit(1);
                }
                write(v[0], "echo", 4);
                show_bytes("came back", b, read(v[0], b, sizeof(b)));
                waitpid(pid, NULL, 0);
                close2(v);
        }
}

/* Programs that take over connections of a stack that others keep busy. */
static void keep_busy(void)
{
        char b[64];
        int v[2];

        tcp_pair(v);
        for (;;)
                if (write(v[0], b, sizeof(b)) < 0 || read(v[1], b, sizeof(b)) < 0)
                        _exit(1);
}

/* Connections of which one end is given to another program, one after the other. How many came
 * back right. */
static int echo_by_exec(int times)
{
        char b[16], num[16];
        int v[2], right = 0;

        for (int i = 0; i < times; i++) {
                pid_t child;

                tcp_pair(v);
                fcntl(v[0], F_SETFD, FD_CLOEXEC);
                snprintf(num, sizeof(num), "%d", v[1]);
                if ((child = fork()) == 0)
                        exec_as(0, num);
                close(v[1]);
                write(v[0], "echo", 4);
                right += read(v[0], b, sizeof(b)) == 4;
                waitpid(child, NULL, 0);
                close(v[0]);
        }
        return right;
}

void scene_exec_busy(void)
{
        pid_t busy[2];
        int v[2], right;

        tcp_pair(v); /* the stack is there before the processes that share it */
        close2(v);
        for (int i = 0; i < 2; i++)
                if ((busy[i] = fork()) == 0)
                        keep_busy();
        right = echo_by_exec(30);
        SHOW(right);
        for (int i = 0; i < 2; i++) {
                kill(busy[i], SIGKILL);
                waitpid(busy[i], NULL, 0);
        }
}

/* Many at once: process slots change hands all the time. */
static void *echoes_by_exec(void *arg)
{
        return (void *)(intptr_t)echo_by_exec(*(int *)arg);
}

void scene_exec_many(void)
{
        int times = 40, v[2], right = 0;
        pthread_t t[8];
        void *r;

        tcp_pair(v);
        for (int i = 0; i < 8; i++)
                pthread_create(&t[i], NULL, echoes_by_exec, &times);
        for (int i = 0; i < 8; i++) {
                pthread_join(t[i], &r);
                right += (int)(intptr_t)r;
        }
        SHOW(right);
        close2(v);
}

/* The spawned program looks at what it has when its parent has closed it, or has ended. */
void late_child_of_exec(int fd)
{
        struct timespec ts = {1, 300000000};

        nanosleep(&ts, NULL);
        child_of_exec(fd);
}

void scene_spawn_and_close(void)
{
        char b[16], num[16];
        int v[2];

        for (int ends = 0; ends < 2; ends++) {
                char *argv[] = {(char *)self, (char *)"--late", num, NULL};
                pid_t pid, late = 0;

                tcp_pair(v);
                fcntl(v[0], F_SETFD, FD_CLOEXEC);
                snprintf(num, sizeof(num), "%d", v[1]);
                fflush(stdout);
                pid = ends ? fork() : 0;
                if (pid == 0) {
                        posix_spawn(&late, self, NULL, NULL, argv, environ);
                        if (ends)
                                exit(0);
                }
                close(v[1]);
                SHOW(write(v[0], "echo", 4));
                show_bytes("came back", b, read(v[0], b, sizeof(b)));
                SHOW(read(v[0], b, sizeof(b)));
                waitpid(ends ? pid : late, NULL, 0);
                close(v[0]);
        }
}

/* What servers do for each connection, but that the child is quick: it has become another program,
 * which has not looked at what it has, when the parent closes. */
void scene_exec_and_close(void)
{
        char b[16], num[16];
        int v[2], begun[2];
        pid_t pid;

        tcp_pair(v);
        pipe2(begun, O_CLOEXEC);
        fcntl(v[0], F_SETFD, FD_CLOEXEC);
        snprintf(num, sizeof(num), "%d", v[1]);
        fflush(stdout);
        pid = fork();
        if (pid == 0) {
                execl(self, self, "--late", num, (char *)NULL);
                _exit(127);
        }
        close(begun[1]);
        SHOW(read(begun[0], b, 1));
        close(v[1]);
        SHOW(write(v[0], "echo", 4));
        show_bytes("came back", b, read(v[0], b, sizeof(b)));
        SHOW(read(v[0], b, sizeof(b)));
        waitpid(pid, NULL, 0);
        close(v[0]);
        close(begun[0]);
}

/* Two children at once that become other programs, each with what is the other's, too; the first
 * looks at it after the second. */
void scene_exec_twice(void)
{
        char b[16], num[2][16];
        int v[2][2], begun[2];
        pid_t pid[2];

        pipe2(begun, O_CLOEXEC);
        for (int i = 0; i < 2; i++) {
                tcp_pair(v[i]);
                fcntl(v[i][0], F_SETFD, FD_CLOEXEC);
                snprintf(num[i], sizeof(num[i]), "%d", v[i][1]);
        }
        fflush(stdout);
        for (int i = 0; i < 2; i++) {
                pid[i] = fork();
                if (pid[i] == 0) {
                        execl(self, self, i ? "--child" : "--late", num[i], (char *)NULL);
                        _exit(127);
                }
                if (i == 0)
                        close(begun[1]);
                SHOW(read(begun[0], b, 1));
        }
        for (int i = 0; i < 2; i++) {
                close(v[i][1]);
                SHOW(write(v[i][0], "echo", 4));
                show_bytes("came back", b, read(v[i][0], b, sizeof(b)));
                waitpid(pid[i], NULL, 0);
                close(v[i][0]);
        }
        close(begun[0]);
}

/* The time that a connection's reader waits at most is its new image's, too, which gives
 * up here. */
void scene_exec_timeout(void)
{
        struct timeval tv = {.tv_usec = 100000};
        struct pollfd p = {.events = POLLIN};
        char num[16];
        int v[2];

        tcp_pair(v);
        p.fd = v[0];
        fcntl(v[0], F_SETFD, FD_CLOEXEC);
        SHOW(setsockopt(v[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
        snprintf(num, sizeof(num), "%d", v[1]);
        fflush(stdout);
        if (fork() == 0)
                exec_as(0, num);
        close(v[1]);
        SHOW(poll(&p, 1, LONG));
        close(v[0]);
        wait(NULL);
}

void close_of_exec(int fd)
{
        _exit(close(fd));
}

/* More than the peer's buffer takes. */
static void fill(int fd)
{
        static char big[65536];
        struct pollfd p = {.fd = fd, .events = POLLOUT};

        do
                while (send(fd, big, sizeof(big), MSG_DONTWAIT) > 0)
                        ;
        while (poll(&p, 1, 200) > 0);
}

static void drain(int fd)
{
        static char big[65536];
        ssize_t n;

        while ((n = read(fd, big, sizeof(big))) > 0)
                ;
        SHOW(n);
}

/* What its last close waits for is a matter of the socket, whoever said so: until its peer has read
 * what is on the way. */
void scene_linger(void)
{
        static const char *const who[] = {"who has set it", "a child whose parent has",
                                          "another image", "a non-blocking one",
                                          "who has accepted it"};
        struct linger l = {1, LONG / 1000};
        char num[16];
        int v[2], go[2];
        pid_t pid;

        for (int i = 0; i < 5; i++) {
                printf("  %s\n", who[i]);
                if (i == 4)
                        tcp_pair_of(v, &l);
                else
                        tcp_pair(v);
                fcntl(v[0], F_SETFD, FD_CLOEXEC);
                snprintf(num, sizeof(num), "%d", v[1]);
                if (pipe(go) < 0)
                        die("pipe");
                fill(v[1]);
                fflush(stdout);
                pid = fork();
                if (pid == 0) {
                        close(v[0]);
                        if (i != 1 && i != 4)
                                setsockopt(v[1], SOL_SOCKET, SO_LINGER, &l, sizeof(l));
                        if (i == 3)
                                fcntl(v[1], F_SETFL, O_NONBLOCK);
                        read(go[0], num, 1);
                        if (i == 2)
                                execl(self, self, "--close", num, (char *)NULL);
                        close_of_exec(v[1]);
                }
                if (i == 1)
                        SHOW(setsockopt(v[1], SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
                SHOW(close(v[1])); /* not the last */
                write(go[1], num, 1);
                usleep(200000);
                SHOW(waitpid(pid, NULL, WNOHANG));
                drain(v[0]);
                wait(NULL);
                close2(go);
                close(v[0]);
        }
}

/* When the peer of a socket sees the end, after the process that has it became another program:
 * at once when it was close-on-exec, or when the new image closes it; with the process when it
 * does neither. */
void scene_exec_ends(void)
{
        char b[4], num[16];

        for (int how = 0; how < 6; how++) {
                struct pollfd p = {.events = POLLIN};
                int v[2];
                pid_t pid;

                tcp_pair(v);
                p.fd = v[0];
                fcntl(v[0], F_SETFD, FD_CLOEXEC);
                fcntl(v[1], F_SETFD, how < 2 ? FD_CLOEXEC : 0);
                snprintf(num, sizeof(num), "%d", v[1]);
                fflush(stdout);
                pid = fork();
                if (pid == 0) {
                        char *argv[] = {(char *)"sleep", (char *)"60", NULL};

                        write(v[1], "abc", 3);
                        execl("/nonexistent", "x", NULL);
                        write(v[1], "d", 1);
                        if (how < 4 && how % 2 == 0)
                                execl("/bin/sleep", "sleep", "60", NULL);
                        else if (how < 4)
                                syscall(SYS_execve, "/bin/sleep", argv, environ);
                        else
                                execl(self, self, "--closer", num, NULL);
                        _exit(1);
                }
                close(v[1]);
                printf("  %d:", how);
                show_bytes("came", b, recv(v[0], b, 4, MSG_WAITALL));
                if (how >= 2) {
                        SHOW(poll(&p, 1, 300));
                        if (how < 4)
                                kill(pid, SIGKILL);
                        else
                                write(v[0], "x", 1);
                }
                SHOW(poll(&p, 1, LONG));
                SHOW(read(v[0], b, 1));
                kill(pid, SIGKILL);
                waitpid(pid, NULL, 0);
                close(v[0]);
        }
}

void scene_exec_listener(void)
{
        struct sockaddr_in sa;
        char b[16], num[16];

        for (int nonblock = 0; nonblock < 2; nonblock++) {
                int l = listener(&sa), s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

                fcntl(l, F_SETFL, nonblock ? O_NONBLOCK : 0);
                connect(s, (void *)&sa, sizeof(sa));
                snprintf(num, sizeof(num), "%d", l);
                fflush(stdout);
                if (fork() == 0)
                        exec_as(1, num);
                write(s, "echo", 4);
                wait(NULL);
                show_bytes("came back", b, read(s, b, sizeof(b)));
                close(s);
                close(l);
        }
}

void scene_daemon(void)
{
        char b[16];
        int v[2];

        tcp_pair(v);
        fflush(stdout);
        if (fork() == 0) {
                dup2(v[0], 1);
                daemon(1, 0);
                write(1, "to /dev/null", 12);
                write(v[0], "from the daemon", 15);
                _exit(0);
        }
        wait(NULL);
        show_bytes("read", b, recv(v[1], b, 15, MSG_WAITALL));
        close2(v);
}

void scene_quick_exit(void)
{
        char b[16];
        int v[2];

        tcp_pair(v);
        fflush(stdout);
        if (fork() == 0) {
                write(v[0], "quick", 5);
                quick_exit(0);
        }
        wait(NULL);
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        close2(v);
}

static int goodbye_fd;

static void goodbye(void)
{
        write(goodbye_fd, "goodbye", 7);
}

void scene_atexit(void)
{
        char b[16];
        int v[2];

        fflush(stdout);
        if (pipe(v) == 0 && fork() == 0) {
                struct sockaddr_in sa;
                int l;

                atexit(goodbye); /* before the first socket of this process */
                l = listener(&sa);
                goodbye_fd = socket(AF_INET, SOCK_STREAM, 0);
                connect(goodbye_fd, (void *)&sa, sizeof(sa));
                if (fork() == 0) {
                        ssize_t n = recv(accept(l, NULL, NULL), b, 7, MSG_WAITALL);

                        write(v[1], b, n > 0 ? (size_t)n : 0);
                        _exit(0);
                }
                exit(0);
        }
        wait(NULL);
        show_bytes("read", b, read(v[0], b, sizeof(b)));
        close2(v);
}
