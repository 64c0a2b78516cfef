/*
 * What a bridge (gate.h) answers itself, once for all stacks behind it: echo requests, segments
 * and datagrams for ports that nobody has, protocols that nobody speaks, options that are wrong. As
 * a host does, by ip/ (RFC 1122 §3.2.2, §4.2.2.20; RFC 9293 §3.10.7.1).
 */
#ifndef UNETD_GATE_ANSWER_H
#define UNETD_GATE_ANSWER_H

#include "ip/frag.h"
#include "ip/icmp.h"
#include "ip/ip.h"

struct gate_answerer {
        struct ip_ifaddr addr;
        bool pseudo; /* sums may be left to a device (unet_caps.csum_pseudo) */
        uint8_t ttl; /* the host's: of what it sends */
        struct prng prng;
        struct icmp_rate rate;
        struct ip_ids ids;
        struct counters *cnt;
};

/* `seed`: 32 random bytes. `cnt` must outlive it. */
void gate_answerer_init(struct gate_answerer *a, struct ip_ifaddr addr, bool pseudo, uint8_t ttl,
                        const uint8_t seed[32], struct counters *cnt);

#define GATE_ANSWER_MAX 65535u
/* The answer to the IP packet `p` of `len` bytes, which was sent to us alone on the link: an IP
 * packet of so many bytes in `out`, to its sender; 0: none is due, the reason is counted. */
uint32_t gate_answer(struct gate_answerer *a, const uint8_t *p, uint32_t len, nstime now,
                     uint8_t out[GATE_ANSWER_MAX]);

#endif
