/*
 * Whether a host has RoCE at all: an empty datagram to its port of RoCE v2 (InfiniBand
 * Architecture, Annex A17). Who has it takes the datagram for a broken packet and says nothing;
 * where nobody has that port, the host's kernel says so (ICMP port unreachable, RFC 1122 §3.2.2.1),
 * a round trip later. Without it a question to such a host would be waited for as one that was
 * lost.
 */
#ifndef UNETD_KNOCK_H
#define UNETD_KNOCK_H

#include "unetd/loop/loop.h"

#define KNOCK_ROCE 4791u

struct knock {
        struct loop_source source; /* first: handlers cast */
        uint16_t port;
        void (*nobody)(struct knock *k, uint32_t addr); /* the host at addr has nobody there */
};

/* Opens it, to knock from one of this host's addresses (IPv4, host order), at a port. 0 or a
 * negative errno. */
int knock_open(struct knock *k, struct loop *loop, uint32_t from, uint16_t port,
               void (*nobody)(struct knock *k, uint32_t addr));
/* Lost and unanswered knocks are the same. */
void knock_at(const struct knock *k, uint32_t addr);

#endif
