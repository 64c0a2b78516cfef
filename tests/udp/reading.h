/* Reading datagrams in tests that look at something else. */
#ifndef TESTS_UDP_READING_H
#define TESTS_UDP_READING_H

#include <stdlib.h>

#include "udp/udp.h"

/* Reads the first n, which must be there, as their only reader. */
static inline void read_first(struct udp *u, uint32_t pcb, uint32_t n)
{
        struct udp_sight first;

        for (; n != 0; n--)
                if (!udp_recv_look(u, pcb, &first) || !udp_recv_take(u, pcb, &first))
                        abort();
        udp_settle(u, pcb);
}

#endif
