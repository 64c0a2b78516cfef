/*
 * What stacks behind a bridge (gate.h) may say by IGMP. All speak as one host, and routers keep
 * one state of it.
 *
 * Reports pass: versions 1 and 2 to their group, version 3 to 224.0.0.22. What takes a group away
 * (a leave, TO_IN, BLOCK) passes only if no other stack has reported the group. Where it does not,
 * a router's next query finds who is left. Queries and what routers say are refused.
 *
 * The first GATE_GROUPS_EACH groups of each stack are remembered, as long as its user leaves as
 * much room to others as he has. Another stack can take any other one away, until a router asks who
 * is left (RFC 3376 §6.4.1).
 */
#ifndef UNETD_GATE_IGMP_H
#define UNETD_GATE_IGMP_H

#include "base/base.h"

#define GATE_GROUPS      1024u
#define GATE_GROUPS_EACH 16u

struct gate_groups {
        struct gate_group {
                uint32_t stack; /* 0: free */
                uint32_t group;
        } at[GATE_GROUPS];
        uint32_t n; /* places below this may be in use */
};

/* Returns true if the IGMP message `p` of `len` bytes, all of it, may leave for `dst`. Notes what
 * it says of the stack. */
bool gate_igmp_passes(struct gate_groups *t, uint32_t stack, uint32_t dst, const uint8_t *p,
                      uint32_t len);
/* The stack is gone. */
void gate_groups_forget(struct gate_groups *t, uint32_t stack);

#endif
