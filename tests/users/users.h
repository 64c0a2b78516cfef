/*
 * Two users of one machine: a system-wide unetd of root's in a domain of its own, a victim whose
 * verified transfers go on, and a hostile client that speaks unetd/client/proto.h by itself. The
 * users are numbers; nobody is added to the system.
 *
 *   static void nobody_else_has_it(void **state)
 *   {
 *           uint16_t port = users_victim_start();  (an echo server over TCP and UDP, and clients)
 *           table->port = port;
 *           users_run(HOSTILE, attack);            (in a child of that uid; `must` fails the test)
 *           users_victim_goes_on();                (new rounds of each kind, none wrong or failed)
 *   }
 *
 * Setup and teardown are CMocka's. A test that cannot run begins with `if (users_cannot_run())
 * skip();`.
 */
#ifndef TESTS_USERS_H
#define TESTS_USERS_H

#include <stdatomic.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "unetd/client/client.h"
#include "unetd/client/wire.h"
#include "tests/unit.h"

#define VICTIM    64001u
#define HOSTILE   64002u
#define BYSTANDER 64003u

/* What processes of a test tell each other. */
struct users_table {
        _Atomic uint32_t port, stack, ready, done;
        _Atomic int64_t value[8];
        /* What the victim has done: connections that came, carried what they should, and ended; a
         * connection that stays; datagrams. */
        _Atomic uint64_t conns, kept, datagrams;
        _Atomic uint64_t wrong, failed; /* bytes that were not his own; calls that failed, each said
                                           on standard error */
        _Atomic uint32_t stop;
};
extern struct users_table *table;

bool users_cannot_run(void); /* and says why */
int users_setup(void **state);
int users_teardown(void **state);
/* As users_setup(), with these lines as unetd's configuration. */
int users_setup_with(const char *config);
pid_t users_unetd(void);  /* the monitor, ... */
pid_t users_broker(void); /* ... and its child */
int users_fds(pid_t pid); /* descriptors that it has open */
/* Kills it, both processes; and starts another one. */
void users_unetd_dies(void);
void users_unetd_begins(void);

/* In a child of that uid: like assert_true, but by exit status. */
#define must(cond)                                                                     \
        do {                                                                           \
                if (!(cond)) {                                                         \
                        fprintf(stderr, "%s:%d: %s: %m\n", __FILE__, __LINE__, #cond); \
                        _exit(1);                                                      \
                }                                                                      \
        } while (0)
/* Waits for what becomes true for certain; nothing is decided by how long it took. */
#define USERS_PATIENCE_MS 120000
#define users_await(cond, otherwise)                                      \
        do {                                                              \
                bool is_ = (cond);                                        \
                for (int64_t until_ = users_now_ms() + USERS_PATIENCE_MS; \
                     !is_ && users_now_ms() < until_;) {                  \
                        usleep(1000);                                     \
                        is_ = (cond);                                     \
                }                                                         \
                otherwise(is_ &&#cond);                                   \
        } while (0)
#define eventually(cond)      users_await(cond, assert_true)
#define must_eventually(cond) users_await(cond, must)
int64_t users_now_ms(void);
/* Lines of a log that have `what` in them. */
unsigned users_lines_logged(const char *path, const char *what);

/* Runs fn as the user, in a child that dies with the test; its return value is to be 0. */
void users_run(uint32_t uid, int (*fn)(void));
/* Begins to; users_wait() ends it, users_kill() at once. */
pid_t users_begin(uint32_t uid, int (*fn)(void));
void users_wait(pid_t pid);
void users_kill(pid_t pid);

/* ---- the victim ---- */

/* Starts his programs, under the shim, and waits until each kind of transfer has been seen; his
 * server's port is over the fabric. */
uint16_t users_victim_start(void);
/* The same; who serves is the bystander. */
uint16_t users_victim_start_apart(void);
/* For users_run(): a program of his meets a listener at table->port, several times, and wants the
 * port for itself; value[0]: how many ms that took. */
int users_victim_meets(void);
/* All go on: new connections, the old one, datagrams; nothing was wrong, no call failed. */
void users_victim_goes_on(void);
/* A line of what went wrong, and zero counts for the next part of a test. */
void users_victim_stop(void);
/* unetd answers a new client, within 100 ms. */
void users_unetd_answers(void);

/* ---- a hostile client: in children only ---- */

struct hostile_stack {
        struct unetd_stack_fds fds;
        uint32_t id;
};

extern const struct directory *hostile_dir; /* after hostile_hello() */

int hostile_dial(void); /* a connection that has said nothing yet */
int hostile_send(int fd, struct unetd_msg *msg, const int *fds,
                 unsigned n); /* 0 or a negative errno, -EAGAIN too */
/* 0, -ETIMEDOUT or -ECONNRESET; `in` holds descriptors that came, to be closed with
 * wire_in_close(). */
int hostile_recv(int fd, struct wire_in *in, int ms);
/* Sends with a new number and waits for the answer, which takes the place of *msg; its descriptors
 * are closed. Returns msg->err. */
int hostile_ask(int fd, struct unetd_msg *msg, const int *fds, unsigned n);
int hostile_hello(int fd);
/* A connection that said hello. */
int hostile_client(void);

/*
 * Becomes this user's keeper, before unetd has one, with a thread that answers what unetd asks of
 * it: everything with 0, but for what is idle: nothing; or only K_STACK; or nothing; or the first
 * K_CHAN when another one comes, with -EPROTO, and all others at once; or everything with 0 but
 * K_CHAN with -EPROTO. HOSTILE_LATE sets table->ready to 1 when the first K_CHAN comes.
 */
enum hostile_keeps {
        HOSTILE_ANSWERS,
        HOSTILE_ATTACHES,
        HOSTILE_MUTE,
        HOSTILE_LATE,
        HOSTILE_REFUSES
};
int hostile_keeper(enum hostile_keeps what);
/* The last K_CHAN that came, with its descriptors; 0: none did since this was asked last. */
unsigned hostile_channel(struct unetd_chan_info *info, int fds[UNETD_CHAN_FDS_MAX]);

/* A stack as proto.h asks for it, registered by connection `fd`: unetd's answer. */
int hostile_stack(int fd, struct hostile_stack *st);
void hostile_stack_close(struct hostile_stack *st);

/* A kernel socket that is bound to (addr, *port), host order, and listens if it is TCP; *port 0:
 * chosen. -1: refused, with errno. */
int hostile_socket(uint8_t proto, uint32_t addr, uint16_t *port, bool reuse);
/* Asks that the stack be entered for (proto, addr, port), with kernel socket `sock` or -1. */
int hostile_listen(int fd, uint32_t stack, uint8_t proto, uint32_t addr, uint16_t port, int sock);
/* Whether somebody has (proto, 127.0.0.1 or wildcard, port) on the fabric: his uid; UINT32_MAX:
 * nobody; `hint` as a flow's. */
uint32_t hostile_sees(uint8_t proto, uint32_t addr, uint16_t port, uint32_t hint);

#endif
