/*
 * The receive queue of a pcb: datagrams one after another in a chain of blocks.
 *
 *      block (a frame of region 0)                       block
 *      +------+-----+-------+-----+-------+---------+    +------+-----+-------+- - - -+
 *      | next | rec | bytes | rec | bytes | (spare) | -> | 0    | rec | bytes |       |
 *      +------+-----+-------+-----+-------+---------+    +------+-----+-------+- - - -+
 *             ^ base        ^ head          ^ used                              ^ tail
 *
 * A record is followed by the bytes that came in the descriptor, and by IP options if there were
 * any; the datagram may go on in a range of a frame. That frame is lent by the peer, or one of
 * ours, when the queue held too many lent ones; either way the record is one reference to it. The
 * first block is a small frame, further ones are large. An empty queue rewinds its block if that is
 * a small one, and has none otherwise.
 *
 * Memory is charged by what is really held, as Linux does: the record, its bytes, and the whole of
 * its frame.
 *
 * Reading takes no lock. A reader copies a record's bytes, and then moves `head` over the record by
 * compare-and-swap. If that fails another reader had it, and the copy is thrown away. The lock's
 * holder alone appends, at `tail`, and gives the memory of what was read back, between `base` and
 * `head`: udp_queue_settle(). `head` carries a generation, which grows whenever it enters a block,
 * so that it never comes back to a value that a slow reader may still hold.
 *
 * A process may die at any store. Unread is what lies between `head` and `tail`, held what lies
 * between `base` and `tail`, and each of them changes by one store of 8 bytes, when everything it
 * uncovers is in place. All else is derived: udp_queue_recover() counts it anew, and nothing that
 * was queued is lost.
 */
#ifndef UDP_UDP_QUEUE_H
#define UDP_UDP_QUEUE_H

#include <stdatomic.h>

#include "udp/udp.h"

struct udp_place {
        _Alignas(8) uint32_t block; /* frame id, 0: none */
        uint32_t off;
};

struct udp_queue {
        /* The first unread record, see udp_queue.c; block 0: the queue has no block. */
        _Atomic uint64_t head;
        struct udp_place base; /* the first record that is held */
        struct udp_place tail; /* where the next record goes; all read: the same as head */
        /* End of the tail block; derived, as all that follows is of what is held. */
        uint32_t tail_end;
        uint32_t count;   /* datagrams */
        uint32_t charged; /* bytes */
        uint32_t lent;    /* bytes of it that are frames of peers */
};

/* A longer datagram than this is not copied into a block but, if at all, its frame into a frame of
 * its own.
 */
#define UDP_COPY_MAX 4096u

enum udp_put { UDP_PUT_COPIED, UDP_PUT_TOOK, UDP_PUT_FULL, UDP_PUT_NO_MEMORY };

/* Appends a datagram. TOOK: its frame now belongs to the queue; else it remains the caller's. FULL:
 * it would be more than `rcvbuf` bytes; a queue that is empty takes any one datagram. */
enum udp_put udp_queue_put(struct udp_queue *q, struct udp *u, const struct udp_dgram *d,
                           uint32_t rcvbuf, nstime now);
/* The same for n bytes that came in a descriptor, if the tail block has room for them. Returns
 * false if nothing was done. */
bool udp_queue_put_short(struct udp_queue *q, const struct udp *u, const struct udp_tuple *t,
                         const uint8_t *p, uint32_t n, uint32_t rcvbuf, nstime now);
/* The same, and the datagram's frame stays the caller's whatever it is. */
enum udp_put udp_queue_put_copy(struct udp_queue *q, struct udp *u, const struct udp_dgram *d,
                                uint32_t rcvbuf, nstime now);
/* Returns true if there is something to read. Needs no lock. */
bool udp_queue_unread(const struct udp_queue *q);
/* Shows the first unread datagram, all of it but dport. False: there is none. Needs no lock. */
bool udp_queue_look(const struct udp_queue *q, const struct udp *u, struct udp_sight *s);
/* The same for a short one (udp_recv_look_short()). */
bool udp_queue_look_short(const struct udp_queue *q, const struct udp *u, struct udp_sight *s);
/* Takes the datagram that was shown. Returns false if somebody else has read it meanwhile. Needs no
 * lock. */
bool udp_queue_take(struct udp_queue *q, const struct udp_sight *s);
/* The same for the only thread that can read it: without a lock prefix. */
bool udp_queue_take_alone(struct udp_queue *q, const struct udp_sight *s);
/* Gives back the memory of what was read. */
void udp_queue_settle(struct udp_queue *q, struct udp *u);
/* Shows up to n unread datagrams after the first `skip`; fills all of msg but dport. Returns
 * how many. */
int udp_queue_peek(const struct udp_queue *q, const struct udp *u, uint32_t skip,
                   struct udp_msg *msg, int n);
/* Removes everything, its block too. */
void udp_queue_clear(struct udp_queue *q, struct udp *u);
/* After a death: makes anew what is derived, and adds the queue's references to the frame records,
 * which are zero. */
void udp_queue_recover(struct udp_queue *q, struct udp *u);
/* Asserts what must be true. */
void udp_queue_check(const struct udp_queue *q, const struct udp *u);

#endif
