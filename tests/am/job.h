/*
 * A job in virtual time: ranks are coroutines of one process over a fabric. A rank that has nothing
 * to do sleeps in uam_wait(), and the next one that has goes on; when none has, time does.
 */
#ifndef TESTS_AM_JOB_H
#define TESTS_AM_JOB_H

#include <unet/am.h>

#include "tests/am/fabric.h"

struct job;
typedef void job_main(struct job *j, struct uam *am, void *arg);

struct job_opts {
        struct fabric_opts net; /* nodes: ranks */
        struct uam_opts am;     /* rank and ranks are set */
        size_t tx_bytes;        /* 0: 256 KB */
        nstime limit;           /* of virtual time; 0: 300 s */
};

/* Runs fn in each rank until all have returned and said goodbye. False: time ran out. */
bool job_run(const struct job_opts *o, job_main *fn, void *arg);
struct fabric *job_fabric(struct job *j);
/* The rank never runs again, and the network loses it. Called by another rank, or by itself: does
 * not return. */
void job_kill(struct job *j, uint32_t rank);
/* The rank sleeps, whatever arrives. */
void job_sleep(struct job *j, uint32_t rank, nstime how_long);
/* What the last job's ranks counted, together. */
uint64_t job_stat(enum uam_stat what);
uint64_t job_messages(void);
nstime job_time(void);

#endif
