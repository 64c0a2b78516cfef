/*
 * What IP keeps of a stack besides addresses: datagrams that come in pieces, what paths carry, IDs
 * of what leaves in pieces, what was asked with echoes. Behind struct stack_state in its segment,
 * at ip_off. All of it is derived, or good in any state.
 */
#ifndef NETSTACK_STACK_IP_H
#define NETSTACK_STACK_IP_H

#include "ip/frag.h"
#include "ip/pmtu.h"
#include "ip/reass.h"
#include "base/prng.h"
#include "netstack/stack_ping.h"

struct stack;

struct stack_ip {
        nstime deadline;     /* of reassembly, near what else a turn looks at */
        uint32_t any_learnt; /* something was put into `paths` */
        struct ip_ids ids;
        struct pmtu_cache paths;
        struct stack_ping ping;
        struct reass_shared reass;
};

void stack_ip_format(struct stack_ip *ip, struct prng *rnd);
/* After a death inside, between counting frames' references and making their free lists. */
void stack_ip_recover(struct stack_ip *ip, struct prng *rnd);

/* A fragment came by channel k. True: *pkt is the whole datagram now. As reass_rx() for what it
 * holds; stack_ip_done() after it. */
bool stack_ip_fragment(struct stack *s, uint32_t k, struct ip_pkt *pkt);
void stack_ip_done(struct stack *s);
/* The next datagram that was given up and that its sender is to be told of; false: that was all. */
bool stack_ip_expire(struct stack *s, struct ip_pkt *about, uint32_t *chan);

/* The path MTU to `dst` as far as is known; 0: the channel's. */
uint32_t stack_path_mtu(struct stack *s, ip_addr dst);
/* A transport believes that it carries so much. */
void stack_path_learnt(struct stack *s, uint32_t k, ip_addr dst, uint32_t mtu);

#endif
