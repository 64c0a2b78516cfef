/*
 * The applications of a plan, at work. Each reads and writes as its habits say, and compares every
 * byte it reads with what must come at this place; the first thing that is wrong is told on stderr
 * and aborts the process.
 */
#ifndef TESTS_SIM_APPS_H
#define TESTS_SIM_APPS_H

#include "tests/sim/plan.h"

struct apps;

/* Carries the plan out, from listening to the last timer. Returns the link's trace (0 over shared
 * memory). `pcap`: a file that every packet is written to, or NULL. */
uint64_t apps_run(const struct plan *plan, const char *pcap);

#endif
