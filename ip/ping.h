/*
 * Asking with ICMP echo: one request after another, and which of them a reply answers.
 *
 * struct ping is a plain value of whoever asks; the last PING_WINDOW requests are remembered.
 * Replies are matched by id and sequence number and must come from whom we asked, with the bytes we
 * sent (the first 8 are ours: a random cookie, so that a stranger cannot answer in another's name).
 *
 * RFC 792; RFC 1122 §3.2.2.6.
 */
#ifndef IP_PING_H
#define IP_PING_H

#include "ip/icmp.h"
#include "base/prng.h"

#define PING_WINDOW   64u
#define PING_COOKIE   8u
#define PING_MAX_DATA (65535u - IP_MIN_HDR - ICMP_HDR)

struct ping {
        ip_addr dst;
        uint16_t id;
        uint32_t next; /* sequence number of the next request; on the wire its lower 16 bits */
        uint64_t cookie;
        nstime sent[PING_WINDOW]; /* 0: not sent, or forgotten */
        uint64_t answered;        /* a bit for each of the window */
        /* counts; times are round trips in ns */
        uint32_t requests, replies, duplicates, errors;
        nstime min, max, sum;
        double sum_sq; /* for the deviation */
};

enum ping_what { PING_NOT_OURS, PING_REPLY, PING_DUPLICATE };

/* Asks `dst`; id and cookie are drawn from rnd. */
void ping_init(struct ping *p, ip_addr dst, struct prng *rnd);
/* Writes the next request: ICMP_HDR + n bytes at `out`, of which the first PING_COOKIE of data
 * are the cookie (as far as n goes), the others count up. n <= PING_MAX_DATA. Returns its
 * sequence number. */
uint32_t ping_request(struct ping *p, uint8_t *out, uint32_t n, nstime now);
/* An ICMP_IS_REPLY arrived. *seq and *rtt are set unless it is not ours. */
enum ping_what ping_reply(struct ping *p, const struct frames *f, const struct ip_pkt *pkt,
                          const struct icmp_msg *msg, nstime now, uint32_t *seq, nstime *rtt);
/* An ICMP_IS_ERROR arrived: whether it is about a request of ours, and of which. */
bool ping_error(struct ping *p, const struct icmp_err *e, uint32_t *seq);

#endif
