/*
 * What a seed stands for: a link, two stacks of some size, and applications with habits. The same
 * seed is the same plan on every machine; nothing else enters.
 */
#ifndef TESTS_SIM_PLAN_H
#define TESTS_SIM_PLAN_H

#include "base/prng.h"
#include "tests/sim/pair.h"

#define PLAN_TALKS 24u /* most connections at once */

/* One end of a connection as its application uses it. */
struct habits {
        size_t to_write;              /* bytes */
        uint32_t max_write, max_read; /* largest piece at a time */
        bool answers;    /* writes only after it has read the end of the other's stream */
        uint32_t idle;   /* per cent of its turns in which it does nothing */
        uint32_t urgent; /* per mille of its writes whose last byte is urgent */
        size_t pause_at; /* bytes read after which it stops reading once */
        nstime pause;    /* for so long, 0: never */
        nstime leaves;   /* after so long it closes, whatever is unread; 0: never */
        bool aborts;     /* it leaves by a reset */
};

struct talk_plan {
        int from; /* the side that opens */
        nstime start;
        bool crossed; /* simultaneous open: the other side does the same at the same time */
        struct tcp_opts opts[2]; /* by side */
        struct habits habits[2]; /* by side */
};

struct plan {
        uint64_t seed;
        bool heavy;  /* so much loss that little is sent and time is long */
        bool memory; /* shared memory instead of the link */
        struct sim_params dir[2];
        struct pair_size size;
        uint32_t backlog;
        unsigned ntalks;
        struct talk_plan talk[PLAN_TALKS];
        uint32_t
                /* Per mille of the steps after which a side's state is rebuilt, as after
                 * a death. */
                recovers;
        nstime dies; /* side 1's process is gone at this time, and nobody tells side 0; 0: never */
        const char *kind; /* its main difficulty, for the report */
        nstime limit;     /* whoever is not done by then has stalled */
};

void plan_make(struct plan *p, uint64_t seed);

#endif
