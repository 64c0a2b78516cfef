/*
 * OpenMetrics 1.0 text of a sample of all stacks. There is a series for each stack that lives and
 * each counter: a sum over stacks would go back whenever one ends, and who reads it takes that for
 * a restart. Of each user there are so many stacks at most.
 */
#ifndef TOOLS_METRICS_H
#define TOOLS_METRICS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What unetd says of itself. */
struct metrics_daemon {
        bool up;
        uint32_t clients, stacks, channels, listeners;
};

/* `sample`: the rows of sample_add(). `most`: stacks of each user. */
void metrics_write(FILE *out, const struct metrics_daemon *d, const json_t *sample, unsigned most);

#endif
