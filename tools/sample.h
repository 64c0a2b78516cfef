/* What the stacks have done until now: counters, sockets and processor time, as JSON, to take rates
 * (rates.h) and metrics from. */
#ifndef TOOLS_SAMPLE_H
#define TOOLS_SAMPLE_H

#include "tools/stacks.h"

/*
 * Adds the row of a stack: "stack", "uid", "pid", "program"; "ns", when it was taken; "counters"
 * and "drops", arrays by enum count and enum drop; "sockets" (sockets.h, without listeners); "cpu",
 * the nanoseconds that each process which has the stack has used so far. For stacks_rows().
 */
void sample_add(void *arg, const struct seen_stack *s, json_t *rows);

#endif
