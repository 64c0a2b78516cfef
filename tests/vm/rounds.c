/*
 * Many starts of a program that uses sockets, by one that is as small as can be: machines are slow, and python3 needs two seconds.
 *
 *      rounds serve PORT                       says of each connection how many bytes came
 *      rounds call ADDR PORT BYTES             one connection to it
 *      rounds start N AT_ONCE PROGRAM [ARG...] starts a program N times, and says how long the slowest took; all must do well
 */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE_MAX 64

static _Noreturn void fail(const char *what)
{
        fprintf(stderr, "rounds: ");
        perror(what);
        exit(1);
}

static struct sockaddr_in at(const char *addr, const char *port)
{
        struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};

        if (inet_pton(AF_INET, addr, &sin.sin_addr) != 1)
                exit(2);
        return sin;
}

static void answer(int c)
{
        char buf[65536];
        uint64_t sum = 0;
        ssize_t n;

        while ((n = read(c, buf, sizeof buf)) > 0)
                sum += (uint64_t)n;
        if (n == 0 && write(c, &sum, sizeof sum) != sizeof sum)
                fail("write");
        close(c);
}

static void serve(const char *port)
{
        struct sockaddr_in any = at("0.0.0.0", port);
        int s = socket(AF_INET, SOCK_STREAM, 0), one = 1, c;

        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(s, (struct sockaddr *)&any, sizeof any) != 0 || listen(s, 64) != 0)
                fail("listen");
        printf("ready\n");
        fflush(stdout);
        while ((c = accept(s, NULL, NULL)) >= 0)
                answer(c);
        fail("accept");
}

static void call(const char *addr, const char *port, uint64_t bytes)
{
        static const char zeros[65536];
        struct sockaddr_in to = at(addr, port);
        int s = socket(AF_INET, SOCK_STREAM, 0);
        uint64_t done, got;
        ssize_t n;

        if (connect(s, (struct sockaddr *)&to, sizeof to) != 0)
                fail("connect");
        for (done = 0; done < bytes; done += (uint64_t)n) {
                n = write(s, zeros, bytes - done < sizeof zeros ? bytes - done : sizeof zeros);
                if (n <= 0)
                        fail("write");
        }
        shutdown(s, SHUT_WR);
        if (recv(s, &got, sizeof got, MSG_WAITALL) != sizeof got)
                fail("recv");
        if (got != bytes)
                exit(1);
}

static int64_t now_ms(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

struct running {
        pid_t pid;                      /* 0: none */
        int64_t began;
};

static void begin(struct running *r, char **argv)
{
        r->began = now_ms();
        r->pid = fork();
        if (r->pid < 0)
                fail("fork");
        if (r->pid > 0)
                return;
        execv(argv[0], argv);
        _exit(127);
}

/* Waits for one; how long it took. */
static int64_t end(struct running *r, int n)
{
        int status, i = 0;
        pid_t pid = wait(&status);

        if (pid < 0)
                fail("wait");
        if (status != 0) {
                fprintf(stderr, "rounds: a program ended with %#x\n", status);
                exit(1);
        }
        while (i < n && r[i].pid != pid)
                i++;
        r[i].pid = 0;
        return now_ms() - r[i].began;
}

static void start(int n, int at_once, char **argv)
{
        struct running r[AT_ONCE_MAX] = {{0}};
        int64_t slowest = 0, took;
        int begun = 0;

        for (int i = 0; i < at_once && begun < n; i++, begun++)
                begin(&r[i], argv);
        for (int ended = 0; ended < n; ended++) {
                took = end(r, at_once);
                slowest = took > slowest ? took : slowest;
                for (int i = 0; i < at_once && begun < n; i++)
                        if (r[i].pid == 0) {
                                begin(&r[i], argv);
                                begun++;
                        }
        }
        printf("%d starts, the slowest took %lld ms\n", n, (long long)slowest);
}

int main(int argc, char **argv)
{
        if (argc == 3 && strcmp(argv[1], "serve") == 0)
                serve(argv[2]);
        else if (argc == 5 && strcmp(argv[1], "call") == 0)
                call(argv[2], argv[3], strtoull(argv[4], NULL, 10));
        else if (argc >= 5 && strcmp(argv[1], "start") == 0 && atoi(argv[3]) > 0 && atoi(argv[3]) <= AT_ONCE_MAX)
                start(atoi(argv[2]), atoi(argv[3]), argv + 4);
        else
                return 2;
        return 0;
}
