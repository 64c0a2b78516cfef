/*
 * Whose turn it is at the wire. Stacks of one user share one turn: who has many stacks gets no more
 * of the wire than who has one.
 */
#ifndef UNETD_GATE_SHARE_H
#define UNETD_GATE_SHARE_H

#include <stdint.h>

/* A stack that has something to send. */
struct gate_asker {
        uint32_t stack;
        uint32_t port; /* its place in gate->port */
        uint32_t last; /* the bridge's count of turns at its last one */
};

/* Adds one to the n of v[], among which no two are of one user: of his two, the one stays whose
 * turn is longer ago. `turn`: the count now. Returns how many there are. */
uint32_t gate_share_add(struct gate_asker *v, uint32_t n, struct gate_asker a, uint32_t turn);

#endif
