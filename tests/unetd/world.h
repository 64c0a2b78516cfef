/*
 * A world of its own for each test: a domain that nobody else uses, daemons of this build, and what
 * a test wants to know about them from outside.
 */
#ifndef TESTS_UNETD_WORLD_H
#define TESTS_UNETD_WORLD_H

#include <sys/types.h>

#include "tests/own_port.h"
#include "tests/unetd/fake_state.h"
#include "tests/unit.h"
#include "unetd/client/client.h"

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

/* A client of this world's unetd, which it starts. */
void world_client(struct unetd_client *c);
ip_addr world_localhost(void);
/* The one stack that the directory has at that port, or 0. */
uint32_t world_lookup(const struct unetd_client *c, uint8_t proto, ip_addr addr, uint16_t port);

void fake_stack_make(struct fake_stack *st);                        /* not registered */
void fake_stack_new(struct unetd_client *c, struct fake_stack *st); /* registered, slot 0 */
void fake_stack_forget(struct fake_stack *st);                      /* unmapped and closed */

/* Waits for something to become true that does for certain, as long as a very busy machine may
 * take. Nothing is decided by how long it took. */
#define PATIENCE_MS 200000
#define eventually(cond)                                            \
        do {                                                        \
                bool is_ = (cond);                                  \
                for (int64_t until_ = world_now_ms() + PATIENCE_MS; \
                     !is_ && world_now_ms() < until_;) {            \
                        world_sleep_ms(1);                          \
                        is_ = (cond);                               \
                }                                                   \
                assert_true(is_ &&#cond);                           \
        } while (0)
void world_sleep_ms(int ms);
int64_t world_now_ms(void);

pid_t world_daemon_pid(struct unetd_client *c);
pid_t world_keeper_pid(struct unetd_client *c);   /* 0: none */
bool world_alive(pid_t pid);                      /* and not a zombie */
int world_fds(pid_t pid);                         /* descriptors it has open */
void world_print_fds(const char *who, pid_t pid); /* which: for the log of a test that fails */
/* It gets by with so many descriptors again, or prints what it has. */
void world_fds_back_to(const char *who, pid_t pid, int fds);
/* It comes to rest: for a while it does not wake at all. False: it never did, however long it was
 * looked at. */
bool world_rests(pid_t pid, int ms);
long world_rss_kb(pid_t pid); /* private memory in use */
/* Runs fn in a child and returns its exit status; fn's return value is the status. */
int world_child(int (*fn)(void *arg), void *arg);

struct world_count {
        uint32_t n[UNETD_S_KINDS];
};
struct world_count world_count(struct unetd_client *c);

/* A listening (TCP) or bound (UDP) kernel socket on 127.0.0.1; *port 0: chosen. */
int world_socket(uint8_t proto, uint16_t *port);

#endif
