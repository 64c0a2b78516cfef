/*
 * The victim of tests/users: an echo server over TCP and UDP on 127.0.0.1, and its clients, each of
 * whom knows what has to come back. Plain sockets, under the shim. Arguments: the descriptor of the
 * table (users.h), and what it does: "serves", "calls", "all", the clients in a process of their
 * own; or "meets" another's listener, and ends.
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#include "tests/users/users.h"

#define CHUNK    8192
#define PAUSE_US 10000 /* he is to be there, and not to keep a processor busy */
#define MEETINGS 5     /* fewer than wait at a listener that accepts nobody */

struct users_table *table;

static void failed(const char *what)
{
        fprintf(stderr, "victim: %s: %s\n", what, strerror(errno));
        atomic_fetch_add(&table->failed, 1);
}

static int64_t now_ms(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int bound(int type, uint16_t port)
{
        struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};
        int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

        sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (fd < 0 || bind(fd, (struct sockaddr *)&sin, sizeof sin) < 0) {
                if (fd >= 0)
                        close(fd);
                return -1;
        }
        return fd;
}

static int connected(int type)
{
        struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons((uint16_t)table->port)};
        int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

        sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (fd < 0 || connect(fd, (struct sockaddr *)&sin, sizeof sin) < 0) {
                failed("connect");
                if (fd >= 0)
                        close(fd);
                return -1;
        }
        return fd;
}

static bool write_all(int fd, const uint8_t *p, size_t n)
{
        while (n > 0) {
                ssize_t r = send(fd, p, n, MSG_NOSIGNAL);

                if (r <= 0)
                        return false;
                p += r;
                n -= (size_t)r;
        }
        return true;
}

static bool read_all(int fd, uint8_t *p, size_t n)
{
        while (n > 0) {
                ssize_t r = recv(fd, p, n, 0);

                if (r == 0)
                        errno = ECONNRESET;
                if (r <= 0)
                        return false;
                p += r;
                n -= (size_t)r;
        }
        return true;
}

/* ---- the server ---- */

static void *echo(void *arg)
{
        int fd = (int)(intptr_t)arg;
        uint8_t buf[CHUNK];
        ssize_t n;

        while ((n = recv(fd, buf, sizeof buf, 0)) > 0)
                if (!write_all(fd, buf, (size_t)n))
                        break;
        close(fd);
        return NULL;
}

static void *serve(void *arg)
{
        int listener = (int)(intptr_t)arg;

        for (;;) {
                int fd = accept(listener, NULL, NULL);
                pthread_t thread;

                if (fd < 0)
                        failed("accept");
                else if (pthread_create(&thread, NULL, echo, (void *)(intptr_t)fd) == 0)
                        pthread_detach(thread);
        }
        return NULL;
}

static void *serve_datagrams(void *arg)
{
        int fd = (int)(intptr_t)arg;

        for (;;) {
                struct sockaddr_in from;
                socklen_t len = sizeof from;
                uint8_t buf[CHUNK];
                ssize_t n = recvfrom(fd, buf, sizeof buf, 0, (struct sockaddr *)&from, &len);

                if (n > 0)
                        sendto(fd, buf, (size_t)n, 0, (struct sockaddr *)&from, len);
        }
        return NULL;
}

/* ---- its clients ---- */

static void fill(uint8_t *buf, uint64_t round)
{
        for (size_t i = 0; i < CHUNK; i++)
                buf[i] = (uint8_t)((round * 31 + i * 7) >> (i % 5));
}

static bool exchange(int fd, uint64_t round)
{
        uint8_t out[CHUNK], in[CHUNK];

        fill(out, round);
        if (!write_all(fd, out, sizeof out) || !read_all(fd, in, sizeof in)) {
                failed("exchange");
                return false;
        }
        if (memcmp(in, out, sizeof out) != 0)
                atomic_fetch_add(&table->wrong, 1);
        return true;
}

static void *connects(void *arg)
{
        for (uint64_t round = 0;; round++) {
                int fd = connected(SOCK_STREAM);

                if (fd >= 0 && exchange(fd, round))
                        atomic_fetch_add(&table->conns, 1);
                if (fd >= 0)
                        close(fd);
                usleep(PAUSE_US);
        }
        return NULL;
}

static void *keeps(void *arg)
{
        int fd = connected(SOCK_STREAM);

        for (uint64_t round = 0; fd >= 0 && exchange(fd, round); round++) {
                atomic_fetch_add(&table->kept, 1);
                usleep(PAUSE_US);
        }
        return NULL;
}

#define DATAGRAM 512

/* The answer to this round; those to earlier ones, which may be late, are passed over. */
static void hear_answer(int fd, const uint8_t *out, uint64_t round)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};
        uint8_t in[DATAGRAM];
        uint64_t of = 0;

        while (of < round && poll(&p, 1, 1000) > 0 && recv(fd, in, sizeof in, 0) == sizeof in)
                memcpy(&of, in, sizeof of);
        if (of > round || (of == round && memcmp(in, out, sizeof in) != 0))
                atomic_fetch_add(&table->wrong, 1);
        else if (of == round)
                atomic_fetch_add(&table->datagrams, 1);
}

/* A datagram may be lost; it may not be answered by another. */
static void *sends(void *arg)
{
        int fd = connected(SOCK_DGRAM);

        if (fd < 0)
                return NULL;
        for (uint64_t round = 1;; round++) {
                uint8_t out[DATAGRAM] = {0};

                memcpy(out, &round, sizeof round);
                if (send(fd, out, sizeof out, 0) > 0)
                        hear_answer(fd, out, round);
                usleep(PAUSE_US);
        }
        return NULL;
}

/* One port for both protocols. */
static bool bind_both(int *tcp, int *udp)
{
        struct sockaddr_in sin;
        socklen_t len = sizeof sin;

        for (int tries = 0; tries < 100; tries++) {
                *tcp = bound(SOCK_STREAM, 0);
                if (*tcp < 0 || listen(*tcp, 64) < 0 ||
                    getsockname(*tcp, (struct sockaddr *)&sin, &len) < 0)
                        return false;
                *udp = bound(SOCK_DGRAM, ntohs(sin.sin_port));
                if (*udp >= 0) {
                        table->port = ntohs(sin.sin_port);
                        return true;
                }
                close(*tcp);
        }
        return false;
}

/* Whoever listens there, he is reached: by the kernel, if his keeper does not answer. */
static int meets(void)
{
        int64_t began = now_ms();

        for (int i = 0; i < MEETINGS; i++) {
                int fd = connected(SOCK_STREAM);

                if (fd < 0)
                        return 1;
                close(fd);
        }
        if (bound(SOCK_STREAM, (uint16_t)table->port) >= 0 || errno != EADDRINUSE)
                return 1;
        table->value[0] = now_ms() - began;
        return 0;
}

static void begin_serving(int tcp, int udp)
{
        pthread_t thread;

        pthread_create(&thread, NULL, serve, (void *)(intptr_t)tcp);
        pthread_create(&thread, NULL, serve_datagrams, (void *)(intptr_t)udp);
}

static void begin_calling(void)
{
        void *(*const work[])(void *) = {connects, keeps, sends};
        pthread_t thread;

        for (size_t i = 0; i < ARRAY_LEN(work); i++)
                pthread_create(&thread, NULL, work[i], NULL);
}

int main(int argc, char **argv)
{
        int tcp = -1, udp = -1;

        if (argc != 3)
                return 2;
        table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[1]), 0);
        if (table == MAP_FAILED)
                return 1;
        if (strcmp(argv[2], "meets") == 0)
                return meets();
        if (strcmp(argv[2], "calls") != 0 && !bind_both(&tcp, &udp))
                return 1;
        if (tcp >= 0)
                begin_serving(tcp, udp);
        if (strcmp(argv[2], "calls") == 0) {
                begin_calling();
        } else if (strcmp(argv[2], "all") == 0 && fork() == 0) { /* the listener is not theirs */
                close(tcp);
                close(udp);
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                begin_calling();
        }
        for (;;)
                pause();
}
