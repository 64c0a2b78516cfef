/*
 * What a bridge (gate.h) lets through, and to whom: pure decisions about one Ethernet frame.
 *
 *   from a stack   our link and IP address as the source, and a port that is the stack's: it takes
 *                  what is sent there, holds it, is bound to it or has leased it (the directory),
 *                  or the connection is one of its own (gate_flow.h); and it is no standing
 *                  connection of another's. To a group also what is bound to it.
 *                  Of ICMP: echo requests with an identifier that no other stack uses there, and
 *                  errors, to the sender of what they quote, about what was for the stack. Of IGMP:
 *                  reports (gate_igmp.h). Fragments: below. Everything else is DROP_NI_BAD_SOURCE:
 *                  echo replies and queries are the host's to send.
 *   from the wire  to the stack that has the connection; a SYN, or what has none, to that which has
 *                  the port; what is for several (broadcast, multicast, ARP replies), to all; what
 *                  nobody has, to the bridge itself, which answers as a host does
 *
 * Frames from the wire are only looked at as far as whose they are: the stack that gets one checks
 * it as any other, and the bridge checks what it answers itself (gate_answer.h). Fragments have
 * been put together before (PACKET_FANOUT_FLAG_DEFRAG).
 *
 * Fragments from stacks: all have the host's address, so a receiver would join one stack's fragment
 * to another's of the same identification. So the bridge chooses it. A first fragment that may
 * pass gets a fresh one; later ones follow the first of the same stack, and get the same. It does
 * not matter whether the receiver ever saw that first one: nobody else's has the number.
 */
#ifndef UNETD_GATE_RULES_H
#define UNETD_GATE_RULES_H

#include "base/counters.h"
#include "ip/frag.h"
#include "unetd/bridge/gate_flow.h"
#include "unetd/bridge/gate_igmp.h"

/* Bytes of a frame that are enough to decide: headers, and those quoted in an error. */
#define GATE_HEAD 200u

struct gate_rules {
        uint32_t addr; /* IPv4, host order */
        uint8_t mac[6];
        uint8_t ttl; /* of what the bridge answers for the host */
        struct gate_flows *flows;
        struct gate_groups *groups;
        struct ip_ids *ids; /* of fragments, and of what the bridge answers */
        struct prng *prng;
        /* The stack that takes what is sent to a port of ours; 0: none. `hint` chooses among
         * several. */
        uint32_t (*owner)(void *arg, uint8_t proto, uint16_t port, uint32_t hint);
        /* Returns true if a stack may send from a port. */
        bool (*may)(void *arg, uint8_t proto, uint16_t port, uint32_t stack);
        /* Returns true if a stack has a UDP socket at this address, of a group, and port. */
        bool (*is_at)(void *arg, uint32_t addr, uint16_t port, uint32_t stack);
        void *arg;
};

/* A sending stack, and the first fragments that it sent last. */
struct gate_sender {
        uint32_t stack;
        uint32_t next;
        struct {
                uint32_t dst, sec;   /* sec: when it passed */
                uint16_t id, new_id; /* the stack's, and the bridge's */
                uint8_t proto;       /* 0: none */
        } first[4];                  /* first fragments that passed last */
};
#define GATE_FIRST_S 30u /* later fragments follow for so long: Linux puts together no longer */

/* `p` holds the first `have` bytes of a frame of `len`, at least the smaller of len and GATE_HEAD.
 * A fragment that passes gets the bridge's identification. */
enum drop gate_check(const struct gate_rules *g, struct gate_sender *from, uint8_t *p,
                     uint32_t have, uint32_t len, nstime now);

enum gate_to { GATE_NOBODY, GATE_ONE, GATE_ALL, GATE_OURS, GATE_ARP };

struct gate_way {
        enum gate_to to;
        uint32_t stack; /* GATE_ONE */
        enum drop why;  /* GATE_NOBODY */
};
/* A whole frame from the wire. GATE_ARP: for the bridge's own ARP, and, a reply (`stack` is not
 * 0), for all. */
struct gate_way gate_route(const struct gate_rules *g, const uint8_t *p, uint32_t len,
                           uint32_t sec);

#endif
