/*
 * Two stacks in one process, joined by a shared-memory channel or by the simulated link: what the
 * stack's tests run on. Time is pair.now; nothing happens but by pair_step() and pair_wait(). Two
 * stacks that never come to rest at one moment are a bug, and abort().
 */
#ifndef TESTS_SIM_PAIR_H
#define TESTS_SIM_PAIR_H

#include "netstack/stack.h"
#include "tcp/tcp_listen.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_stream.h"
#include "tests/sim/ni_sim.h"

struct pair_side {
        struct stack s;
        struct stack_state *st;
        size_t bytes;
        struct bell bell;
        struct shm_region *region; /* shm: what this side sends */
        struct shm_chan shm;
        uint8_t *tx_frames; /* sim */
        uint32_t events;    /* all that were raised so far */
        bool dead;          /* its process is gone: the stack is not run any more */
};

/* How much memory each stack has. */
struct pair_size {
        struct frame_geom tx, rx; /* transmit frames of the channel; private receive frames */
        uint32_t conns, segs;     /* connections; records of segments, each way */
};
extern const struct pair_size pair_size_default;

struct pair {
        struct pair_side side[2];
        struct sim *sim; /* NULL: shared memory */
        struct pair_size size;
        nstime now;
};

#define PAIR_CHAN 0u /* the channel, on both sides */
/* Over shared memory: bytes of memory that may be sent by name, and where they are. */
#define PAIR_MEMORY FRAME_NAMED_BYTES
uint8_t *pair_memory(struct pair *p, int side);
ip_addr pair_addr(int side);

/* Over shared memory (`dir` NULL) or the simulated link. */
struct pair *pair_new(uint64_t seed, const struct sim_params *dir, const struct pair_size *size);
/* Over shared memory. */
struct pair *pair_shm(uint64_t seed);
/* Over the simulated link. */
struct pair *pair_sim(uint64_t seed, const struct sim_params dir[2]);
/* One or the other, with a delay and perhaps faults of the link, as `rnd` has it. */
struct pair *pair_random(uint64_t seed, struct prng_fast *rnd);
/* The caller maps channel PAIR_CHAN on both sides, and keeps the time. */
struct pair *pair_unjoined(uint64_t seed, const struct pair_size *size);
void pair_free(struct pair *p);

/* Over the simulated link as an Ethernet: each side has an interface, neighbours are found by ARP.
 * dir[].mtu is that of IP. */
struct pair *pair_ether(uint64_t seed, const struct sim_params dir[2]);

/* Runs both stacks until neither has anything to do at this moment. */
void pair_settle(struct pair *p);
/* The same with two applications that wait for their sockets: `writes` on side 0 and `reads`
 * on side 1 do what they can, and say whether that was anything, before delayed
 * acknowledgements leave. */
void pair_turns(struct pair *p, bool (*writes)(void *arg), bool (*reads)(void *arg), void *arg);
/* Moves the clock to the next thing that happens, but not beyond `until`, and settles. False:
 * nothing before `until`. */
bool pair_step(struct pair *p, nstime until);
/* The same, but the clock reaches `until` when nothing happens before. */
void pair_wait(struct pair *p, nstime until);
/* Counters of both sides, on stderr. */
void pair_say(struct pair *p);
/* Bytes, records and frames that are still held somewhere: 0 when all is over. Says on stderr what
 * they are.
 */
unsigned pair_leaks(struct pair *p);
/* Time goes on until nothing happens any more; then as pair_leaks(). */
unsigned pair_end(struct pair *p);
/* Checks every connection of both sides. */
void pair_check(struct pair *p);

/* A connection from side 0 to a listener on side 1: indices on both sides. */
void pair_connect(struct pair *p, uint16_t port, uint32_t *client, uint32_t *server);
void pair_connect_opts(struct pair *p, uint16_t port, const struct tcp_opts *opts, uint32_t *client,
                       uint32_t *server);

static inline struct tcp_conn *pair_conn(struct pair *p, int side, uint32_t conn)
{
        return tcp_conn_at(&p->side[side].s.tcp, conn);
}
/* Writes or reads what fits; as usock does it. Bytes, 0 at end of stream, -errno. */
int pair_write(struct pair *p, int side, uint32_t conn, const uint8_t *data, size_t n);
int pair_read(struct pair *p, int side, uint32_t conn, uint8_t *data, size_t n);

#endif
