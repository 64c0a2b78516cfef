/*
 * TCP connections that go through a bridge (gate.h), and whose they are.
 *
 * Who has a port says the directory. But a connection outlives the listener that it came to, so
 * what a stack has sent with a port that was its own stays its own: the table remembers. It is
 * bounded and forgets. In a bucket of eight a connection that ended gives way. Else the user who
 * has most there loses one: first one that was only asked for (a SYN was answered, no more), then
 * the one that has not been used for longest. Who sends on many connections, or says so, makes the
 * table forget his own. One that is only asked for takes the place of another such, his own first:
 * a flood of SYNs takes one place in eight. Forgotten, a connection is looked up in the directory
 * again.
 *
 * The hash is keyed: a stranger cannot choose what falls into one bucket.
 */
#ifndef UNETD_GATE_FLOW_H
#define UNETD_GATE_FLOW_H

#include "base/base.h"
#include "base/siphash.h"

#define GATE_FLOWS 65536u /* 2 MB, touched as they are used */
#define GATE_WAYS  8u
/* Echoes have a part of the table: nobody can have all identifiers towards a host. */
#define GATE_ECHOES 1024u

/* IPv4 in host order; `local` is the port of ours. Of an echo, `local` is its identifier and
 * `remote` 0. */
struct gate_key {
        uint32_t raddr;
        uint16_t local, remote;
        uint8_t proto;
};

enum gate_stage { GATE_ENDED, GATE_ASKED, GATE_STANDS };

struct gate_flow {
        struct gate_key key;
        uint8_t stage;  /* enum gate_stage */
        uint32_t stack; /* whose; 0: free */
        uint32_t used;  /* seconds: when it was last used */
};

struct gate_flows {
        struct sip_key key;
        struct gate_flow slot[GATE_FLOWS];
};

/* `seed`: 16 random bytes; the memory is zeroed. */
void gate_flows_init(struct gate_flows *t, const uint8_t seed[16]);
/* The connection, which is used now, at `sec`; NULL: not known. */
struct gate_flow *gate_flow_find(struct gate_flows *t, const struct gate_key *k, uint32_t sec);
/* Finds it without marking it as used. */
const struct gate_flow *gate_flow_peek(struct gate_flows *t, const struct gate_key *k);
/* `stack` has sent on the connection, and may. Its stage does not go down from STANDS to ASKED, but
 * to ENDED. */
void gate_flow_note(struct gate_flows *t, const struct gate_key *k, uint32_t stack,
                    enum gate_stage stage, uint32_t sec);
/* The stack is gone. */
void gate_flows_forget(struct gate_flows *t, uint32_t stack);
/* Returns true if a TCP connection of another stack has one of the ports. */
bool gate_flows_of_others(const struct gate_flows *t, uint32_t stack, uint16_t first,
                          uint32_t count);

/* For choosing among listeners of one port: the same for all packets of a connection. */
uint32_t gate_flow_hash(const struct gate_flows *t, const struct gate_key *k);

#endif
