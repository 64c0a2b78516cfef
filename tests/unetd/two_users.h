/*
 * Two users, Alice and Bob, and one system-wide unetd. What one of them does is done by a child,
 * which says by must() what went wrong. Needs root, to be both.
 */
#ifndef TESTS_UNETD_TWO_USERS_H
#define TESTS_UNETD_TWO_USERS_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unetd/world.h"

#define ALICE 65534u
#define BOB   54321u

/* What the two tell each other through a shared page. */
struct table {
        _Atomic uint32_t alice_stack, bob_stack;
        _Atomic uint32_t bob_saw, done, port, reused;
        _Atomic uint32_t ready, stopped, sent;
        _Atomic int32_t bob_keeper;
};
extern struct table *table;

int users_setup(void **state);
/* With the unetd and the keeper of another directory. */
int users_setup_in(const char *libexec);
int users_teardown(void **state);
/* Another unetd takes the place of the one that there is, which is killed. */
void users_begin_again(void);
#define USERS_TEST(t) cmocka_unit_test_setup_teardown(t, users_setup, users_teardown)
/* Says why, then: the test is skipped. */
bool cannot_run(void);
/* The child has ended, and nothing was wrong. */
void must_child(pid_t pid);

/* ---- in a child ---- */

void become(uint32_t uid);
/* Like assert_true(), but says where and ends the child. */
#define must(cond)                                                                 \
        do {                                                                       \
                if (!(cond)) {                                                     \
                        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
                        _exit(1);                                                  \
                }                                                                  \
        } while (0)
#define must_eventually(cond)                                       \
        do {                                                        \
                bool is_ = (cond);                                  \
                for (int64_t until_ = world_now_ms() + PATIENCE_MS; \
                     !is_ && world_now_ms() < until_;) {            \
                        world_sleep_ms(1);                          \
                        is_ = (cond);                               \
                }                                                   \
                must(is_);                                          \
        } while (0)
/* Its user's stack, with a client of the system-wide unetd. */
void must_stack(struct unetd_client *c, struct fake_stack *st);

/* The port that fd is bound to. */
bool local_port(int fd, uint16_t *port);
/* One of loopback, at a port of the kernel's choice. */
int tcp_listener(uint16_t *port);

#endif
