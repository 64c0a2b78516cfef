/* Streams through one bottleneck, in virtual time: for tests of congestion control. */
#ifndef TESTS_SIM_BED_H
#define TESTS_SIM_BED_H

#include "tests/sim/pair.h"

#define MBPS       1000000ull
#define FLOWS_MOST 2

struct bed;

struct flow {
        uint32_t conn[2];
        nstime every; /* it writes `piece` bytes so often; 0: as much as goes */
        uint32_t piece;
        nstime next;
        uint64_t got;
        void (*wrote)(struct bed *b,
                      struct flow *f); /* NULL, or what follows when it has written */
        uint32_t seen;                 /* wrote()'s own: reports that it knows of; */
        bool repaired;                 /* the last one said that losses are being repaired */
};

struct bed {
        struct pair *p;
        struct sim_params dir[2];
        struct flow flow[FLOWS_MOST];
        unsigned n;
};

/* A bottleneck of `mbps` with a queue of so many bytes; `rtt` is there and back. */
struct bed bed(uint64_t seed, uint64_t mbps, nstime rtt, uint64_t queue, double loss);
struct flow *bed_opens(struct bed *b, const char *cc);
static inline struct tcp_conn *bed_sender(struct bed *b, const struct flow *f)
{
        return pair_conn(b->p, 0, f->conn[0]);
}
/* All write and read what they can, at this moment; and for so long. */
void bed_turns(struct bed *b);
void bed_runs(struct bed *b, nstime length);
/* Kb/s of payload in the next `length`, each. */
void bed_measures(struct bed *b, nstime length, unsigned kbps[FLOWS_MOST]);

#endif
