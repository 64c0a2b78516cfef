/*
 * What the benchmark programs share: sockets on an address, a clock, and one way to give up.
 *
 * They are plain sockets programs on purpose: the same binary is measured over the kernel and over
 * the shim.
 */
#ifndef BENCH_PLAIN_H
#define BENCH_PLAIN_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static inline _Noreturn void die(const char *what)
{
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(1);
}

static inline double now_s(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* A decimal number in [lo, hi], or exit status 2. */
static inline long number_arg(const char *text, long lo, long hi)
{
        char *end;
        long v = strtol(text, &end, 10);

        if (end == text || *end || v < lo || v > hi) {
                fprintf(stderr, "not a number from %ld to %ld: %s\n", lo, hi, text);
                exit(2);
        }
        return v;
}

#define LOOPBACK "127.0.0.1"

/* Exit status 2 if that is no IPv4 address. */
static inline struct sockaddr_in end_of(const char *address, int port)
{
        struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

        if (inet_pton(AF_INET, address, &sa.sin_addr) != 1) {
                fprintf(stderr, "not an IPv4 address: %s\n", address);
                exit(2);
        }
        return sa;
}

static inline int listen_on(const char *address, int port, int backlog)
{
        struct sockaddr_in sa = end_of(address, port);
        int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
            bind(fd, (struct sockaddr *)&sa, sizeof sa) != 0 || listen(fd, backlog) != 0)
                die("listen");
        return fd;
}

/* From that one of our addresses; NULL: whichever. */
static inline int connect_from(const char *own, const char *address, int port)
{
        struct sockaddr_in sa = end_of(address, port),
                           from = end_of(own != NULL ? own : "0.0.0.0", 0);
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        if (fd < 0 || (own != NULL && bind(fd, (struct sockaddr *)&from, sizeof from) != 0) ||
            connect(fd, (struct sockaddr *)&sa, sizeof sa) != 0)
                die("connect");
        return fd;
}

static inline int connect_to(const char *address, int port)
{
        return connect_from(NULL, address, port);
}

#endif
