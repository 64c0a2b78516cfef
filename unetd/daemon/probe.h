/*
 * Whether an address of ours is free on its network, asked before it is used first (RFC 5227
 * §2.1.1): by unetd, once, when it takes its interfaces up, so that no stack has to wait for it.
 * For now the packets are the kernel's, which has no such address and answers nothing; a packet
 * socket beside it asks and listens.
 *
 * The state machine is arp/'s. With the times that RFC 5227 asks for it takes four to seven
 * seconds; told a clock that runs faster, half a second: hosts on today's networks answer within a
 * millisecond.
 */
#ifndef UNETD_PROBE_H
#define UNETD_PROBE_H

#include "base/base.h"

#define PROBE_QUICK 12u /* times faster than RFC 5227 §1.1 */

enum probe_result {
        PROBE_FREE,
        PROBE_TAKEN,   /* by `rival` */
        PROBE_UNKNOWN, /* it could not be asked: *why says so */
};

struct probe {
        const char *ifname;
        /* A packet socket there, for ARP (root_arp_open()); taken over. Negative: there is none. */
        int sock;
        uint32_t addr; /* IPv4, host order */
        uint8_t prefix;
        uint32_t speed; /* 1: the times of RFC 5227; or PROBE_QUICK */
        /* answers */
        enum probe_result result;
        uint8_t rival[6];
        const char *why;
};

/* Asks for all of them at once, and returns when all are known, or when `stop` can be read (-1:
 * never): what is not known then is PROBE_UNKNOWN. */
void probe_addresses(struct probe *p, uint32_t n, int stop);

#endif
