/*
 * Two sides of a scenario over <unet/sock.h>, and a domain of their own with its own unetd.
 *
 * A side is a function. play() runs two of them, each in a process of its own, or as two threads of
 * one process; the test program itself never has a stack. They talk to one another outside the
 * fabric by tell() and hear(): numbers, in order. A CHECK that fails prints where and ends the
 * side; the test fails when a side did not end well.
 */
#ifndef TESTS_SOCK_SIDES_H
#define TESTS_SOCK_SIDES_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <netinet/in.h>

#include "tests/own_port.h"
#include "tests/slower.h"
#include "tests/unit.h"
#include "unet/sock.h"

struct side {
        int in, out;      /* pipes from and to the other side */
        uint64_t arg;     /* of play() */
        pid_t pid, other; /* processes; the same one for threads */
};
typedef void (*side_fn)(struct side *s);

enum placement { TWO_PROCESSES, TWO_THREADS };

/* CMocka group setup and teardown: the domain and its unetd. */
int world_begin(void **state);
int world_end(void **state);
/* UNET_TEST_FILTER in the environment: only tests of this name ('*' stands for anything). */
#define run_sides(tests)                                     \
        (cmocka_set_test_filter(getenv("UNET_TEST_FILTER")), \
         cmocka_run_group_tests(tests, world_begin, world_end))
pid_t world_unetd(void);
pid_t world_keeper(void); /* 0: there is none */

void play(enum placement where, side_fn a, side_fn b, uint64_t arg);
/* Both placements. */
void play_both(side_fn a, side_fn b, uint64_t arg);
/* One process; its exit status, or 256 + signal. */
int play_alone(side_fn a, uint64_t arg);

void tell(struct side *s, uint64_t what);
uint64_t hear(struct side *s);

#define CHECK(cond)                                              \
        do {                                                     \
                if (!(cond))                                     \
                        check_failed(__FILE__, __LINE__, #cond); \
        } while (0)

/* The call fails with this errno. */
#define CHECK_ERR(call, err)                                                   \
        do {                                                                   \
                errno = 0;                                                     \
                if ((call) != -1 || errno != (err))                            \
                        check_failed(__FILE__, __LINE__, #call " with " #err); \
        } while (0)
/* What comes for certain is waited for so long, and never less: on a busy machine it may
 * take long. */
#define PATIENCE_MS 200000
/* Becomes true. */
#define EVENTUALLY(cond)                                 \
        do {                                             \
                int64_t until_ = now_ms() + PATIENCE_MS; \
                bool is_ = (cond);                       \
                while (!is_ && now_ms() < until_) {      \
                        sleep_ms(1);                     \
                        is_ = (cond);                    \
                }                                        \
                CHECK(is_ &&#cond);                      \
        } while (0)
_Noreturn void check_failed(const char *file, int line, const char *what);

/* ---- addresses and sockets ---- */

struct sockaddr_in loopback(uint16_t port);
uint16_t port_of(int sock);
int tcp_listen_any(void); /* on 127.0.0.1, a port of the kernel's choice */
int tcp_listen_at(uint16_t port);
int tcp_connect_to(uint16_t port);
/* A connection between the sides: a() hears of the port and connects, b() listens, tells
 * and accepts. */
int side_connect(struct side *s);
int side_accept(struct side *s);

/* ---- data ---- */

/* Bytes that depend on the seed and the position only, and a hash of any bytes. */
void fill(void *p, size_t n, uint64_t seed, uint64_t pos);
bool filled(const void *p, size_t n, uint64_t seed, uint64_t pos);
uint64_t rnd(uint64_t *state);
uint64_t test_seed(void); /* printed once; UNET_TEST_SEED sets it */
int64_t now_ms(void);
void sleep_ms(int ms);

#endif
