/*
 * Address conflict detection (RFC 5227 §2.1.1): unetd asks whether its addresses are free, once,
 * when it takes its interfaces up, so that no stack waits for that. Until then the packets are the
 * kernel's, which does not have the address and answers nothing. A packet socket beside the kernel
 * asks and listens.
 *
 * The state machine is arp/'s. With the times of RFC 5227 it takes four to seven seconds. With a
 * clock that runs faster it takes half a second: hosts on today's networks answer within a
 * millisecond.
 */
#ifndef UNETD_PROBE_H
#define UNETD_PROBE_H

#include "base/base.h"

#define PROBE_QUICK 12u /* times as fast as RFC 5227 §1.1 */

enum probe_result {
        PROBE_FREE,
        PROBE_TAKEN,   /* another host has it: `rival` */
        PROBE_UNKNOWN, /* could not ask: see `why` */
};

struct probe {
        const char *ifname;
        /* A packet socket on the interface, for ARP (root_arp_open()); taken over. Negative: there
         * is none. */
        int sock;
        uint32_t addr; /* IPv4, host order */
        uint8_t prefix;
        uint32_t speed; /* 1: the times of RFC 5227; or PROBE_QUICK */
        /* answers */
        enum probe_result result;
        uint8_t rival[6];
        const char *why;
};

/* Asks for all at once. Returns when all are known, or when `stop` is readable (-1: never):
 * addresses not known then are PROBE_UNKNOWN. */
void probe_addresses(struct probe *p, uint32_t n, int stop);

#endif
