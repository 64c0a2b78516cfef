/*
 * Many programs that connect at once, each with a stack of its own, as they share nothing when they
 * make their first socket.
 *
 *   programs server PORT N  prints "listens", accepts N, answers each what it says until it ends
 *   programs clients PORT N prints how many of N programs were answered, all connected meanwhile
 *   programs sockets PORT N one program with N connections to PORT: the same
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void must(int right, const char *what)
{
        if (right)
                return;
        perror(what);
        exit(1);
}

static struct sockaddr_in at(int port)
{
        return (struct sockaddr_in){.sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)port),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int connect_to(int port)
{
        struct sockaddr_in to = at(port);
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        must(fd >= 0, "socket");
        must(connect(fd, (struct sockaddr *)&to, sizeof to) == 0, "connect");
        return fd;
}

static int is_answered(int fd, uint32_t with)
{
        uint32_t said = ~with;

        return send(fd, &with, sizeof with, 0) == sizeof with &&
               recv(fd, &said, sizeof said, MSG_WAITALL) == sizeof said && said == with;
}

static void serve(int port, int n)
{
        struct sockaddr_in here = at(port);
        struct pollfd *p = calloc((size_t)n + 1, sizeof *p);
        int l = socket(AF_INET, SOCK_STREAM, 0), have = 0, ended = 0, yes = 1;

        must(p && l >= 0, "server");
        must(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0, "setsockopt");
        must(bind(l, (struct sockaddr *)&here, sizeof here) == 0, "bind");
        must(listen(l, 4096) == 0, "listen");
        puts("listens");
        fflush(stdout);
        p[n] = (struct pollfd){.fd = l, .events = POLLIN};
        while (ended < n) {
                must(poll(p + n - have, (nfds_t)have + 1, -1) > 0, "poll");
                for (int i = n - have; i < n; i++) {
                        uint32_t said;

                        if (p[i].revents == 0)
                                continue;
                        if (recv(p[i].fd, &said, sizeof said, MSG_WAITALL) == sizeof said) {
                                must(send(p[i].fd, &said, sizeof said, 0) == sizeof said, "send");
                        } else {
                                close(p[i].fd);
                                p[i].fd = -1;
                                ended++;
                        }
                }
                if (have < n && p[n].revents != 0) {
                        have++;
                        p[n - have] =
                                (struct pollfd){.fd = accept(l, NULL, NULL), .events = POLLIN};
                        must(p[n - have].fd >= 0, "accept");
                        if (have == n)
                                p[n].fd = -1;
                }
        }
}

/* Says by a byte that it is answered, and is answered once more when all are. */
static int client(int port, uint32_t me, int ready, int go)
{
        int fd = connect_to(port);
        char byte = 'x';

        must(is_answered(fd, me), "answer");
        must(write(ready, &byte, 1) == 1 && close(ready) == 0, "ready");
        must(read(go, &byte, 1) == 0, "go");
        return is_answered(fd, me) ? 0 : 1;
}

static int clients(int port, int n)
{
        int ready[2], go[2], status, good = 0;
        char byte;

        must(pipe(ready) == 0 && pipe(go) == 0, "pipe");
        for (int i = 0; i < n; i++) {
                pid_t pid = fork();

                must(pid >= 0, "fork");
                if (pid == 0) {
                        close(go[1]);
                        close(ready[0]);
                        exit(client(port, (uint32_t)i, ready[1], go[0]));
                }
        }
        close(ready[1]);
        while (read(ready[0], &byte, 1) == 1)
                continue;
        close(go[1]);
        while (wait(&status) > 0)
                good += status == 0;
        return good;
}

static int sockets(int port, int n)
{
        int *fd = calloc((size_t)n, sizeof *fd), good = 0;

        must(fd != NULL, "memory");
        for (int i = 0; i < n; i++)
                fd[i] = connect_to(port);
        for (int i = 0; i < n; i++)
                good += is_answered(fd[i], (uint32_t)i);
        return good;
}

int main(int argc, char **argv)
{
        struct rlimit rl;
        int port = argc == 4 ? atoi(argv[2]) : 0, n = argc == 4 ? atoi(argv[3]) : 0;

        must(n > 0 && getrlimit(RLIMIT_NOFILE, &rl) == 0, "usage");
        rl.rlim_cur = rl.rlim_max;
        must(setrlimit(RLIMIT_NOFILE, &rl) == 0, "setrlimit");
        if (strcmp(argv[1], "server") == 0)
                serve(port, n);
        else
                printf("%d\n",
                       strcmp(argv[1], "clients") == 0 ? clients(port, n) : sockets(port, n));
        return 0;
}
