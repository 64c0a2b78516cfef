/*
 * The receive queue of a pcb: datagrams one after another in a chain of blocks.
 *
 *      block (a frame of region 0)                       block
 *      +------+-----+-------+-----+-------+---------+    +------+-----+-------+- - - -+
 *      | next | rec | bytes | rec | bytes | (spare) | -> | 0    | rec | bytes |       |
 *      +------+-----+-------+-----+-------+---------+    +------+-----+-------+- - - -+
 *                   ^ head                ^ used                              ^ tail
 *
 * A record is followed by the bytes that came in the descriptor; a range of a frame may follow those. That
 * frame is lent by the peer, or one of ours, when the queue held too many lent ones; either way the record is
 * one reference to it. The first block is a small frame, further ones are large. An empty queue rewinds its
 * block if that is a small one, and has none otherwise.
 *
 * Memory is charged by what is really held, as Linux does: the record, its bytes, and the whole of its frame.
 *
 * A process may die at any store. What the queue holds is what lies between `head` and `tail`, and each of
 * them changes by one store of 8 bytes, when everything it uncovers is in place. All else is derived:
 * udp_queue_recover() counts it anew, and nothing that was queued is lost.
 */
#ifndef UDP_UDP_QUEUE_H
#define UDP_UDP_QUEUE_H

#include "udp/udp.h"

struct udp_place {
        _Alignas(8) uint32_t block; /* frame id, 0: none */
        uint32_t off;
};

struct udp_queue {
        struct udp_place head; /* the first record; block 0: the queue has no block */
        struct udp_place tail; /* where the next record goes; empty: the same as head */
        uint32_t tail_end;     /* end of the tail block; derived, as all that follows */
        uint32_t count;        /* datagrams */
        uint32_t charged;      /* bytes */
        uint32_t lent;         /* bytes of it that are frames of peers */
};

/* A longer datagram than this is not copied into a block but, if at all, its frame into a frame of its own.
 */
#define UDP_COPY_MAX 4096u

enum udp_put { UDP_PUT_COPIED, UDP_PUT_TOOK, UDP_PUT_FULL, UDP_PUT_NO_MEMORY };

/* Appends a datagram. TOOK: its frame now belongs to the queue; else it remains the caller's. FULL: it would
 * be more than `rcvbuf` bytes; a queue that is empty takes any one datagram. */
enum udp_put udp_queue_put(struct udp_queue *q, struct udp *u, const struct udp_dgram *d, uint32_t rcvbuf,
                           nstime now);
/* Shows up to n datagrams after the first `skip`; fills all of msg but dport. Returns how many. */
int udp_queue_peek(const struct udp_queue *q, const struct udp *u, uint32_t skip, struct udp_msg *msg, int n);
/* Removes the first n. */
void udp_queue_drop(struct udp_queue *q, struct udp *u, uint32_t n);
/* Removes everything, its block too. */
void udp_queue_clear(struct udp_queue *q, struct udp *u);
/* After a death: makes anew what is derived, and adds the queue's references to the frame records, which are
 * zero. */
void udp_queue_recover(struct udp_queue *q, struct udp *u);
/* Asserts what must be true. */
void udp_queue_check(const struct udp_queue *q, const struct udp *u);

#endif
