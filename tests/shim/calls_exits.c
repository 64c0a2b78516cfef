/*
 * shim_calls, the ends of a process: what its last close and its exit do.
 */
#include "tests/shim/calls.h"

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

static bool end_number(int how, int fd)
{
        int null = open("/dev/null", O_RDWR);

        if (how == 0)
                return dup2(null, fd) == fd;
        if (how == 1)
                return dup3(null, fd, O_CLOEXEC) == fd;
        if (how == 2)
                return close_range((unsigned)fd, (unsigned)fd, 0) == 0;
        return freopen("/dev/null", "r", fdopen(fd, "r")) != NULL;
}

/* Calls that end the last number wait for the peer as close() does. */
void scene_linger_elsewhere(void)
{
        static const char *const calls[] = {"dup2", "dup3", "close_range", "freopen"};
        struct linger l = {1, LONG / 1000};
        int v[2], go[2], status;
        char b;

        for (int i = 0; i < 4; i++) {
                pid_t pid;

                printf("  %s\n", calls[i]);
                tcp_pair_of(v, &l);
                if (pipe(go) < 0)
                        die("pipe");
                fill(v[1]);
                fflush(stdout);
                pid = fork();
                if (pid == 0) {
                        close(v[0]);
                        read(go[0], &b, 1);
                        _exit(end_number(i, v[1]) ? 0 : 1);
                }
                SHOW(close(v[1])); /* not the last */
                write(go[1], "", 1);
                usleep(200000);
                SHOW(waitpid(pid, NULL, WNOHANG));
                drain(v[0]);
                wait(&status);
                SHOW(status);
                close2(go);
                close(v[0]);
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
