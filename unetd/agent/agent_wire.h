/*
 * What agents of two hosts say to each other: private data of rdma_cm (cm.h), in network byte
 * order.
 *
 *   ask     magic 4 | op 1, proto 1, port 2 | addr 4 | instance 4 | stack 4 | mine 4 | yours 4 |
 *           qpn 4 | qkey 4 | mtu 4 | version 4 | flags 2, n 2
 *   answer  the same, and in the place of `addr` the error: 0 or a positive errno
 *   then n times: proto 1, first 2, count 2         ports that the stack may send from
 */
#ifndef UNETD_AGENT_WIRE_H
#define UNETD_AGENT_WIRE_H

#include "unet/verbs/vlink.h"

#define AGENT_MAGIC  0x756e6168u
#define AGENT_FIXED  48u
#define AGENT_RANGE  5u
#define AGENT_RANGES 26u /* most in one message: those of a question */

enum agent_op {
        AGENT_OPEN = 1, /* a channel to who has the port, of the stack that has this queue pair */
        AGENT_MOVED,    /* the stack has another queue pair */
        AGENT_PORTS,    /* ... and these ports too */
        AGENT_UNPORTS,  /* ... and these no more */
        AGENT_CLOSE,    /* the stack is gone */
        /* ... is there still, with all of this; is the other one? The answer says the same
         * of it. */
        AGENT_HERE,
};

#define AGENT_NO_CSUM 1u /* transports need not sum, for all we care */
#define AGENT_MORE    2u /* there are ports that did not fit in */

struct agent_msg {
        uint8_t op, proto; /* OPEN: which port at which address */
        uint16_t port;
        uint32_t addr;     /* IPv4, host order */
        uint32_t err;      /* answers */
        uint32_t instance; /* who speaks: the run of its unetd, and the stack */
        uint32_t stack;
        uint32_t mine, yours; /* numbers of the channel, 0: not known yet */
        uint32_t qpn, qkey, mtu;
        uint32_t version; /* of all that is said of the stack: one more with each change */
        uint16_t flags;
        uint16_t nranges;
        struct vlink_range range[AGENT_RANGES];
};

/* Writes as many ranges as fit (AGENT_MORE: not all do). Returns the length in bytes. */
size_t agent_write(const struct agent_msg *m, bool answer, uint8_t *p, size_t room);
/* Returns false if it is no such message. */
bool agent_read(struct agent_msg *m, bool answer, const uint8_t *p, size_t len);

#endif
