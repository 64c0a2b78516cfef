/*
 * A process dies at every store of what it does on a stack in shared memory. A child does it one
 * instruction at a time. After each instruction that changed anything, a copy of the memory, mapped
 * elsewhere as another process has it, is recovered and must be whole: every connection, the one
 * that was being changed as well, goes on and carries every byte that was written before; and a new
 * one can be opened.
 */
#ifndef TESTS_SIM_DEATH_H
#define TESTS_SIM_DEATH_H

#include "tests/sim/death_world.h"

/* What becomes of the first connection. */
enum after { GOES_ON, CLOSES, RESETS };

struct dying {
        void (*prepare)(struct view *); /* before the child begins; NULL: nothing */
        void (*act)(struct view *);     /* what the child does */
        enum after after;
        bool reads;          /* it may read all there is */
        uint32_t gives_back; /* ... or returns that many bytes that were read */
};

void die_everywhere(const struct dying *d);
#define dies_everywhere(...) die_everywhere(&(struct dying){__VA_ARGS__})

/* The slot of the process that borrows receive memory. */
#define LENDS 1u

struct tcp_loan *loan(struct view *v, uint32_t i);

/* ---- what more than one test does ---- */

void runs_with_input(struct view *v);
void prepare_input(struct view *v);
/* A write that Nagle holds back: it is the unsent tail. */
void prepare_tail(struct view *v);
/* By credit, and the other way; a grant; what was promised is enough for what follows. */
void changes_window(struct view *v);
void writes_much(struct view *v);
void reads_all(struct view *v);
void grants(struct view *v);
void closes(struct view *v);
/* With nothing unread, close is no reset; some of what was written has not been sent, the rest not
 * acknowledged. */
void prepare_close(struct view *v);

#endif
