/* The seeds that an oracle plays: its own, or FIRST COUNT of the command line. */
#ifndef TESTS_SIM_ORACLE_H
#define TESTS_SIM_ORACLE_H

#include <stdlib.h>

#include "tests/unit.h"

struct oracle {
        uint64_t first, count;
};

static inline void oracle_args(struct oracle *o, int argc, char **argv)
{
        if (argc != 3)
                return;
        o->first = strtoull(argv[1], NULL, 0);
        o->count = strtoull(argv[2], NULL, 0);
}

static inline void oracle_plays(const struct oracle *o, void (*talk)(uint64_t seed))
{
        print_message("seeds %llu to %llu\n", (unsigned long long)o->first,
                      (unsigned long long)(o->first + o->count - 1));
        for (uint64_t seed = o->first; seed < o->first + o->count; seed++)
                talk(seed);
}

#endif
