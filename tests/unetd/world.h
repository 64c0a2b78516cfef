/*
 * A world of its own for each test: a domain that nobody else uses, daemons of this build, and what a test
 * wants to know about them from outside.
 */
#ifndef TESTS_UNETD_WORLD_H
#define TESTS_UNETD_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "tests/unetd/fake_state.h"
#include "unetd/client.h"

/* A fake stack as its process holds it. */
struct fake_stack {
        struct unetd_stack_fds fds;
        struct fake_state *s;
        uint32_t id;
};

/* CMocka setup and teardown: a fresh domain; daemons are left to their idle exit, or ended by
 * world_stop(). */
int world_setup(void **state);
int world_teardown(void **state);

void fake_stack_make(struct fake_stack *st);                    /* not registered */
void fake_stack_new(struct unetd_client *c, struct fake_stack *st);     /* registered, slot 0 */
void fake_stack_forget(struct fake_stack *st);                  /* unmapped and closed */

/* Waits, at most 10 s, for something to become true. Nothing is decided by how long it took. */
#define eventually(cond)                                                                                     \
        do {                                                                                                 \
                bool is_ = (cond);                                                                           \
                for (int ms_ = 0; !is_ && ms_ < 10000; ms_++) {                                              \
                        world_sleep_ms(1);                                                                   \
                        is_ = (cond);                                                                        \
                }                                                                                            \
                assert_true(is_ && #cond);                                                                   \
        } while (0)
void world_sleep_ms(int ms);

pid_t world_daemon_pid(struct unetd_client *c);
pid_t world_keeper_pid(struct unetd_client *c);                 /* 0: none */
bool world_alive(pid_t pid);                                    /* and not a zombie */
int world_fds(pid_t pid);                                       /* descriptors it has open */
long world_rss_kb(pid_t pid);                                   /* private memory in use */
/* Runs fn in a child and returns its exit status; fn's return value is the status. */
int world_child(int (*fn)(void *arg), void *arg);

struct world_count {
        uint32_t n[UNETD_S_KINDS];
};
struct world_count world_count(struct unetd_client *c);

/* A listening (TCP) or bound (UDP) kernel socket on 127.0.0.1; *port 0: chosen. */
int world_socket(uint8_t proto, uint16_t *port);

#endif
