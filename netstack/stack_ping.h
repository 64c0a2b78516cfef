/*
 * Asking other hosts with ICMP echo, for `unet ping`: one destination at a time, by the stack of
 * whoever asks.
 *
 * What comes back is noted in the state, by whichever process lets it in, the keeper too; who asked
 * reads the notes. They are a ring: who does not read for STACK_PING_NEWS of them misses some.
 */
#ifndef NETSTACK_STACK_PING_H
#define NETSTACK_STACK_PING_H

#include "ip/icmp.h"
#include "ip/ping.h"

#define STACK_PING_NEWS 128u

struct stack;

enum stack_ping_what { STACK_PING_REPLY, STACK_PING_DUPLICATE, STACK_PING_ERROR };

struct stack_ping_news {
        uint32_t what; /* enum stack_ping_what */
        uint32_t seq;
        nstime rtt; /* not of errors */
        ip_addr from;
        uint32_t len; /* bytes of the ICMP message */
        uint32_t mtu; /* of an error: what it says that gets through */
        uint8_t ttl;
        uint8_t type, code; /* of an error */
};

struct stack_ping {
        struct ping ping;
        uint32_t asking; /* 0: nobody has asked for anything */
        uint32_t noted;  /* news ever noted */
        struct stack_ping_news news[STACK_PING_NEWS];
};

/* Call all of these under the stack's lock. */
void stack_ping_begin(struct stack *s, ip_addr dst);
/* Sends the next request, `n` bytes of data, on channel k. 0 and its number; -EAGAIN: the channel
 * has no room; -EMSGSIZE: it must not be cut and is longer than channel or path carry;
 * -ENETUNREACH: no such channel. */
int stack_ping_ask(struct stack *s, uint32_t k, ip_addr src, uint32_t n, uint8_t ttl,
                   bool dont_frag, uint32_t *seq);
/* The next note after the *at-th. False: there is none yet. */
bool stack_ping_next(const struct stack *s, uint32_t *at, struct stack_ping_news *out);
/* Counts and times so far. */
const struct ping *stack_ping_sum(const struct stack *s);

/* stack_icmp.c: a reply came, or an error about something of ours that is neither TCP nor UDP. */
void stack_ping_reply(struct stack *s, const struct ip_pkt *pkt, const struct icmp_msg *msg);
/* Returns true if the error is about a request of ours. */
bool stack_ping_error(struct stack *s, const struct icmp_err *e);

#endif
