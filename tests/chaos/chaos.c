/*
 * chaos_worker: the processes of the chaos run (chaos_test.py). They know nothing of the shim.
 *
 *     serve PORT N               N children that accept on one listener, which shares its port with
 *                                other servers (SO_REUSEPORT); SIGTERM: they accept no more, serve
 *                                what they have to its end, and all end
 *     ask PORT SEED COUNT        COUNT transfers, each of which another way may lead: as a child,
 *                                over an exec, by posix_spawn, in a message, as another user
 *     echo PORT                  a datagram socket that sends back what comes
 *     tell PORT SEED COUNT       COUNT datagrams, each until it has come back
 *     hold udp|tcp PORT REUSE    binds the port, and is two processes that wait to be killed
 *
 * A server sends its process number first, and then what it is sent. Who asks checks each byte. A
 * line for each transfer: "ok BYTES", or "broken PID ERROR BYTES", where PID is whoever served it;
 * and when it ended (CLOCK_MONOTONIC).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/pass_fd.h"

#define PATIENCE 900 /* s, of a process that nobody ends */
#define SILENCE  300 /* s, that a transfer stands still */
#define PIECE    16384
#define NOBODY   65534 /* another user */

static void die(const char *what)
{
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(1);
}

static struct sockaddr_in at_port(const char *port)
{
        return (struct sockaddr_in){.sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)atoi(port)),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static uint64_t next(uint64_t *seed)
{
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        return *seed >> 33;
}

/* Byte i of the transfer with this number. */
static char pattern(uint64_t number, size_t i)
{
        return (char)((i * 2654435761u + number * 40503u) >> 11);
}

/* ---- the server ---- */

static volatile sig_atomic_t leaving;

static void leave(int sig)
{
        leaving = sig;
}

static bool write_all(int fd, const char *p, size_t n)
{
        while (n > 0) {
                ssize_t r = write(fd, p, n);

                if (r < 0 && errno == EINTR)
                        continue;
                if (r <= 0)
                        return false;
                p += r;
                n -= (size_t)r;
        }
        return true;
}

static void serve_one(int fd)
{
        int32_t pid = getpid();
        char b[PIECE];
        ssize_t n = 0;

        if (write_all(fd, (const char *)&pid, sizeof(pid)))
                while ((n = read(fd, b, sizeof(b))) > 0 || (n < 0 && errno == EINTR))
                        if (n > 0 && !write_all(fd, b, (size_t)n))
                                break;
        close(fd);
}

/* A signal between the look and poll() is seen a moment later. */
static void serve_all(int l)
{
        struct pollfd p = {.fd = l, .events = POLLIN};
        int fd;

        signal(SIGTERM, leave);
        while (!leaving) {
                if (poll(&p, 1, 50) != 1)
                        continue;
                fd = accept4(l, NULL, NULL, SOCK_CLOEXEC);
                if (fd >= 0) {
                        fcntl(fd, F_SETFL, 0);
                        serve_one(fd);
                }
        }
        _exit(0);
}

static pid_t worker(int l)
{
        pid_t pid = fork();

        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                alarm(PATIENCE);
                serve_all(l);
        }
        printf("worker %d\n", pid);
        fflush(stdout);
        return pid;
}

static void serve(const char *port, int n)
{
        int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
        struct sockaddr_in sa = at_port(port);

        setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        setsockopt(l, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
        if (bind(l, (void *)&sa, sizeof(sa)) < 0 || listen(l, 64) < 0)
                die("listen");
        fcntl(l, F_SETFL, O_NONBLOCK);
        puts("ready");
        signal(SIGTERM, leave);
        for (int i = 0; i < n; i++)
                worker(l);
        while (!leaving) {
                if (waitpid(-1, NULL, WNOHANG) > 0) /* it was killed: another one takes its place */
                        worker(l);
                usleep(20000);
        }
        close(l);
        kill(0, SIGTERM);
        while (wait(NULL) > 0 || errno == EINTR)
                ;
}

/* ---- who asks ---- */

struct transfer {
        uint64_t number;
        size_t bytes, sent, came;
        int32_t server;
};

static double seconds(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void end(const struct transfer *t, const char *why)
{
        if (*why)
                printf("broken %d %s %zu of %zu, process %d at %.2f\n", t->server, why, t->came,
                       t->bytes, getpid(), seconds());
        else
                printf("ok %zu at %.2f\n", t->came, seconds());
        fflush(stdout);
}

static bool came_right(struct transfer *t, const char *b, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (b[i] != pattern(t->number, t->came + i))
                        return false;
        t->came += n;
        return true;
}

/* Returns why it ended, if it did before `until` bytes came. */
static const char *go_on(int fd, struct transfer *t, size_t until)
{
        char b[PIECE];

        while (t->came < until) {
                struct pollfd p = {.fd = fd,
                                   .events = (short)(POLLIN | (t->sent < t->bytes ? POLLOUT : 0))};
                ssize_t n;

                if (poll(&p, 1, SILENCE * 1000) != 1)
                        return "SILENT";
                if (p.revents & POLLOUT) {
                        size_t some = t->bytes - t->sent < PIECE ? t->bytes - t->sent : PIECE;

                        for (size_t i = 0; i < some; i++)
                                b[i] = pattern(t->number, t->sent + i);
                        n = send(fd, b, some, MSG_DONTWAIT | MSG_NOSIGNAL);
                        if (n < 0 && errno != EAGAIN)
                                return strerrorname_np(errno);
                        t->sent += n > 0 ? (size_t)n : 0;
                }
                n = recv(fd, b, sizeof(b), MSG_DONTWAIT);
                if (n < 0 && errno == EAGAIN)
                        continue;
                if (n <= 0)
                        return n < 0 ? strerrorname_np(errno) : "END";
                if (!came_right(t, b, (size_t)n))
                        return "WRONG";
        }
        return "";
}

static const char *finish(int fd, struct transfer *t)
{
        const char *why = go_on(fd, t, t->bytes);
        ssize_t n;
        char b;

        if (*why)
                return why;
        shutdown(fd, SHUT_WR);
        n = recv(fd, &b, 1, 0);
        return n == 0 ? "" : n > 0 ? "MORE" : strerrorname_np(errno);
}

/* `rest FD NUMBER BYTES SENT CAME SERVER`: goes on with it over an exec. */
static void rest(char **argv)
{
        struct transfer t = {.number = strtoull(argv[1], NULL, 10),
                             .bytes = strtoull(argv[2], NULL, 10),
                             .sent = strtoull(argv[3], NULL, 10),
                             .came = strtoull(argv[4], NULL, 10),
                             .server = atoi(argv[5])};

        end(&t, finish(atoi(argv[0]), &t));
}

enum { NUMBERS = 6 };

static void exec_rest(int fd, const struct transfer *t, bool spawn)
{
        const unsigned long long v[NUMBERS] = {(unsigned)fd, t->number, t->bytes,
                                               t->sent,      t->came,   (unsigned)t->server};
        char text[NUMBERS][24], *argv[NUMBERS + 3] = {"chaos_worker", "rest"};
        pid_t pid;

        for (int i = 0; i < NUMBERS; i++) {
                snprintf(text[i], sizeof(text[i]), "%llu", v[i]);
                argv[i + 2] = text[i];
        }
        fcntl(fd, F_SETFD, 0);
        if (!spawn) {
                execv("/proc/self/exe", argv);
                _exit(1);
        }
        if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) != 0)
                die("posix_spawn");
        close(fd);
        waitpid(pid, NULL, 0);
}

/* The child has no socket but by the message. */
static void pass_on(int l, int fd, struct transfer *t)
{
        int s[2];
        pid_t pid;

        if (socketpair(AF_UNIX, SOCK_STREAM, 0, s) < 0)
                die("socketpair");
        pid = fork();
        if (pid == 0) {
                close(fd);
                close(l);
                fd = take_fd(s[1]);
                if (fd < 0)
                        die("recvmsg");
                end(t, finish(fd, t));
                _exit(0);
        }
        if (pass_fd(s[0], fd) < 0)
                die("sendmsg");
        close(fd);
        close(s[0]);
        close(s[1]);
        waitpid(pid, NULL, 0);
}

static void in_child(int fd, struct transfer *t, int how)
{
        pid_t pid = fork();

        if (pid == 0) {
                if (how == 1 && geteuid() == 0 && setuid(NOBODY) < 0)
                        die("setuid");
                if (how == 2)
                        exec_rest(fd, t, false);
                end(t, finish(fd, t));
                _exit(0);
        }
        close(fd);
        waitpid(pid, NULL, 0);
}

/* Until somebody serves it: a server that goes away ends what nobody has accepted, as in Linux. */
static int connected(const struct sockaddr_in *sa, struct transfer *t)
{
        for (;;) {
                int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

                if (fd < 0)
                        die("socket");
                if (connect(fd, (const void *)sa, sizeof(*sa)) == 0 &&
                    recv(fd, &t->server, sizeof(t->server), MSG_WAITALL) == sizeof(t->server))
                        return fd;
                close(fd);
                usleep(20000);
        }
}

static void ask(const char *port, uint64_t seed, int count)
{
        struct sockaddr_in sa = at_port(port);

        for (int i = 0; i < count; i++) {
                struct transfer t = {.number = next(&seed)};
                unsigned how = (unsigned)next(&seed) % 8;
                const char *why;
                int fd;

                t.bytes = next(&seed) % 8 ? next(&seed) % 60000 + 1 : next(&seed) % 3000000 + 1;
                fd = connected(&sa, &t);
                why = go_on(fd, &t, t.bytes / 3);
                if (*why || how > 4) {
                        end(&t, *why ? why : finish(fd, &t));
                        close(fd);
                } else if (how == 4) {
                        pass_on(-1, fd, &t);
                } else if (how == 3) {
                        exec_rest(fd, &t, true);
                } else {
                        in_child(fd, &t, (int)how);
                }
        }
        puts("done");
}

/* ---- datagrams ---- */

static int bound(int type, const char *port, bool reuse)
{
        struct sockaddr_in sa = at_port(port);
        int fd = socket(AF_INET, type, 0), on = 1;

        if (reuse)
                setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (bind(fd, (void *)&sa, sizeof(sa)) < 0)
                die("bind");
        return fd;
}

static void echo(const char *port)
{
        int fd = bound(SOCK_DGRAM, port, false);
        char b[2048];

        puts("ready");
        fflush(stdout);
        for (;;) {
                struct sockaddr_in from;
                socklen_t len = sizeof(from);
                ssize_t n = recvfrom(fd, b, sizeof(b), 0, (void *)&from, &len);

                if (n > 0)
                        sendto(fd, b, (size_t)n, 0, (void *)&from, len);
        }
}

/* A datagram may be lost with who should have had it, and is sent again. */
static void tell(const char *port, uint64_t seed, int count)
{
        struct sockaddr_in sa = at_port(port);
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        char b[2048], back[2048];

        if (connect(fd, (void *)&sa, sizeof(sa)) < 0)
                die("connect");
        for (int i = 0; i < count; i++) {
                size_t len = next(&seed) % 1400 + 8;
                ssize_t n = 0;

                for (size_t k = 0; k < len; k++)
                        b[k] = pattern(seed + (unsigned)i, k);
                memcpy(b, &i, sizeof(i));
                while (n != (ssize_t)len || memcmp(b, back, len) != 0) {
                        struct pollfd p = {.fd = fd, .events = POLLIN};

                        if (n <= 0)
                                send(fd, b, len, 0);
                        n = poll(&p, 1, 100) == 1 ? recv(fd, back, sizeof(back), MSG_DONTWAIT) : 0;
                        if (n > 0 && memcmp(b, back, sizeof(i)) == 0 &&
                            (n != (ssize_t)len || memcmp(b, back, len) != 0)) {
                                puts("broken 0 WRONG");
                                exit(1);
                        }
                }
        }
        printf("ok %d\ndone\n", count);
}

static void hold(const char *kind, const char *port, bool reuse)
{
        int type = strcmp(kind, "udp") == 0 ? SOCK_DGRAM : SOCK_STREAM;
        int fd = bound(type, port, reuse);

        if (type == SOCK_STREAM && listen(fd, 8) < 0)
                die("listen");
        fork();
        puts("ready");
        fflush(stdout);
        pause();
}

int main(int argc, char **argv)
{
        alarm(PATIENCE);
        signal(SIGPIPE, SIG_IGN);
        setvbuf(stdout, NULL, _IOLBF, 0);
        if (argc == 4 && strcmp(argv[1], "serve") == 0)
                serve(argv[2], atoi(argv[3]));
        else if (argc == 5 && strcmp(argv[1], "ask") == 0)
                ask(argv[2], strtoull(argv[3], NULL, 10), atoi(argv[4]));
        else if (argc == NUMBERS + 2 && strcmp(argv[1], "rest") == 0)
                rest(argv + 2);
        else if (argc == 3 && strcmp(argv[1], "echo") == 0)
                echo(argv[2]);
        else if (argc == 5 && strcmp(argv[1], "tell") == 0)
                tell(argv[2], strtoull(argv[3], NULL, 10), atoi(argv[4]));
        else if (argc == 5 && strcmp(argv[1], "hold") == 0)
                hold(argv[2], argv[3], atoi(argv[4]) != 0);
        else
                return 2;
        return 0;
}
