/*
 * Many starts of a program that uses sockets, by one that is as small as can be: machines are slow,
 * and python3 needs two seconds.
 *
 *   rounds serve PORT                 says of each connection how many bytes came
 *   rounds call ADDR PORT BYTES       one connection to it
 *   rounds start N AT_ONCE PROGRAM [ARG...]
 *                                     starts a program N times, and says how long the slowest took;
 *                                     all must do well
 *   rounds restart N PORT             "serve" N times, killed after a moment and started again at
 *                                     once; then one that stays
 *   rounds chase ADDR PORT BYTES      "call" again and again, whatever becomes of it, until it is
 *                                     told something; and then until one has done well. None may
 *                                     take longer than STUCK
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE_MAX 64
#define STUCK       100 /* seconds that a call may take, whatever happens to its server */
#define LIFE_MS     250 /* longest life of a server that is killed */

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

static const char *step; /* of a call: where it broke off */

/* 0, or what broke it off. */
static int try_call(const char *addr, const char *port, uint64_t bytes)
{
        static const char zeros[65536];
        struct sockaddr_in to = at(addr, port);
        int s = socket(AF_INET, SOCK_STREAM, 0), err = 0;
        uint64_t done, got = 0;
        ssize_t n;

        step = "connect";
        if (connect(s, (struct sockaddr *)&to, sizeof to) != 0)
                err = errno;
        for (done = 0; err == 0 && done < bytes; done += (uint64_t)n) {
                step = "write";
                n = write(s, zeros, bytes - done < sizeof zeros ? bytes - done : sizeof zeros);
                if (n <= 0)
                        err = errno;
        }
        if (err == 0) {
                shutdown(s, SHUT_WR);
                step = "recv";
                /* It ended early, if it is still that: a call that does well leaves errno alone. */
                errno = EPIPE;
                if (recv(s, &got, sizeof got, MSG_WAITALL) != sizeof got)
                        err = errno;
        }
        close(s);
        step = err == 0 && got != bytes ? "sum" : step;
        return err == 0 && got != bytes ? EBADMSG : err;
}

static void call(const char *addr, const char *port, uint64_t bytes)
{
        errno = try_call(addr, port, bytes);
        if (errno != 0)
                fail(step);
}

static int64_t now_ms(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

struct running {
        pid_t pid; /* 0: none */
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

/* ---- servers that are killed, and who calls them ---- */

/* Its process, once it listens; 0: it could not. */
static pid_t serve_in_child(char *self, char *port)
{
        char *argv[] = {self, "serve", port, NULL}, c;
        int out[2];
        pid_t pid;

        if (pipe(out) != 0)
                fail("pipe");
        pid = fork();
        if (pid < 0)
                fail("fork");
        if (pid == 0) {
                dup2(out[1], 1);
                close(out[0]);
                close(out[1]);
                execv(self, argv);
                _exit(127);
        }
        close(out[1]);
        if (read(out[0], &c, 1) != 1) {
                waitpid(pid, NULL, 0);
                pid = 0;
        }
        close(out[0]);
        return pid;
}

static void restart(char *self, int n, char *port)
{
        int in_vain = 0;

        for (int i = 0; i <= n;) {
                pid_t pid = serve_in_child(self, port);
                if (pid == 0 && ++in_vain > 1000)
                        fail("a server that listens");
                if (pid == 0 || i++ == n)
                        continue;
                usleep((useconds_t)(i * 7919 % LIFE_MS) * 1000);
                kill(pid, SIGKILL);
                waitpid(pid, NULL, 0);
        }
        printf("%d killed\n", n);
        fflush(stdout);
        pause();
}

static void alarmed(int sig)
{
        (void)sig;
}

static void chase(const char *addr, const char *port, uint64_t bytes)
{
        const struct sigaction act = {.sa_handler = alarmed};
        struct pollfd told = {0, POLLIN, 0};
        int well = 0, broken = 0, odd = 0, err = 0;
        bool last = false;

        sigaction(SIGALRM, &act, NULL);
        signal(SIGPIPE, SIG_IGN);
        while (!last || err != 0) {
                last = last || poll(&told, 1, 0) != 0;
                alarm(STUCK);
                err = try_call(addr, port, bytes);
                if (alarm(0) == 0) {
                        printf("stuck in %s\n", step);
                        fflush(stdout);
                        pause(); /* for who wants to look */
                }
                well += err == 0;
                broken += err != 0;
                if (err != 0 && err != ECONNREFUSED && err != ECONNRESET && err != EPIPE) {
                        odd++;
                        printf("%s: %s; ", step, strerror(err));
                }
        }
        printf("%d did well, %d did not, %d of them oddly\n", well, broken, odd);
        if (odd != 0)
                exit(1);
}

int main(int argc, char **argv)
{
        if (argc == 3 && strcmp(argv[1], "serve") == 0)
                serve(argv[2]);
        else if (argc == 5 && strcmp(argv[1], "call") == 0)
                call(argv[2], argv[3], strtoull(argv[4], NULL, 10));
        else if (argc == 4 && strcmp(argv[1], "restart") == 0)
                restart(argv[0], atoi(argv[2]), argv[3]);
        else if (argc == 5 && strcmp(argv[1], "chase") == 0)
                chase(argv[2], argv[3], strtoull(argv[4], NULL, 10));
        else if (argc >= 5 && strcmp(argv[1], "start") == 0 && atoi(argv[3]) > 0 &&
                 atoi(argv[3]) <= AT_ONCE_MAX)
                start(atoi(argv[2]), atoi(argv[3]), argv + 4);
        else
                return 2;
        return 0;
}
