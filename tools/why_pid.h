/* Which sockets of a live process are accelerated, and why the others are not. */
#ifndef TOOLS_WHY_PID_H
#define TOOLS_WHY_PID_H

#include <jansson.h>
#include <stdbool.h>

#define WHY_TEXT 160

/* Adds a row for each: ours from the stacks, the kernel's from the process. Whether it could see
 * all; if not, why. */
bool why_pid(int pid, json_t *rows, char why[WHY_TEXT]);

#endif
