/*
 * shim_calls, exec and posix_spawn(): what a new image gets.
 */
#include "tests/shim/calls.h"

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
