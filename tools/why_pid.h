/* Which sockets of a live process are accelerated, and why the others are not. */
#ifndef TOOLS_WHY_PID_H
#define TOOLS_WHY_PID_H

#include <jansson.h>

/* Adds a row for each: ours from the stacks, the kernel's from the process. EXIT_DONE; EXIT_NOTHING, having said why. */
int why_pid(int pid, json_t *rows);

#endif
