/*
 * Two stacks and the channel between them in one mapping of shared memory, and connections with
 * data. A process that maps it has a view of it; a copy is the world as a dead process left it.
 */
#ifndef TESTS_SIM_DEATH_WORLD_H
#define TESTS_SIM_DEATH_WORLD_H

#include "netstack/stack_road.h"

#define CHAN  0u
#define CONNS 2 /* open before the child begins; the first is the one that it works on */
#define PORT  80

/* All shared memory of two stacks and the channel between them, in one mapping. */
struct world {
        size_t bytes;
        size_t state[2], region[2]; /* offsets */
        struct bell bell[2];
        nstime now;
        uint32_t conn[2][CONNS], listener[2];
        /* Of the first connection before the child began: written, read, received. */
        uint32_t end, read, rcvd;
        uint32_t aimed; /* what the child may have read of it */
};

/* Somebody's view of a world. */
struct view {
        struct world *w;
        struct stack s[2];
        struct shm_chan chan[2];
};

void *at(struct world *w, size_t off);
/* A world without connections. */
struct world *world_make(void);
/* Two connections from side 0 to side 1, with some data read, some queued, some on its way, on
 * each. */
struct world *scene(void);
void world_free(struct world *w);
struct view *view_of(struct world *w);
void view_free(struct view *v);

/* ---- streams: what a side sends on its connection number n ---- */

#define STREAM 65536u /* more than any test sends */

/* Laid out beforehand: in a process that is stepped through every instruction counts. */
extern uint8_t stream[2][CONNS][STREAM];
void make_streams(void);

struct tcp_conn *conn(struct view *v, int side, int n);
void write_bytes(struct view *v, int side, int n, size_t want);
/* Reads up to `most` bytes and compares them. */
void write_by_name(struct view *v, int side, int n, size_t want);
void read_bytes(struct view *v, int side, int n, size_t most);
/* Both stacks run until neither has anything to do. */
void settle(struct view *v);
/* Begins a connection from that port; returns its number. */
uint32_t open_from(struct view *v, int side, uint16_t port);

#endif
