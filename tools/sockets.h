/*
 * The sockets of a stack as rows, as `unet ss --json` prints them: times in nanoseconds, totals
 * since the socket began. "object" is its number in the stack, as in `unet trace`.
 */
#ifndef TOOLS_SOCKETS_H
#define TOOLS_SOCKETS_H

#include "tools/stacks.h"

void sockets_connections(const struct seen_stack *s, json_t *rows);
void sockets_listeners(const struct seen_stack *s, json_t *rows);
void sockets_udp(const struct seen_stack *s, json_t *rows);

#endif
