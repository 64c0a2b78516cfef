/*
 * UDP: what the rest of the stack may call. Same shape as tcp/tcp.h.
 *
 * A socket is a pcb, a record of a pool in one shared block (struct udp_shared), named by its
 * index; 0 is none. The processes of a stack map the block at different addresses and there is no
 * pointer in it. struct udp is one process's view. Nothing here reads a clock, sends, locks, blocks
 * or allocates from the heap.
 *
 *   in:   udp_hdr_parse() -> udp_rx() -> the pcb's queue
 *         udp_recv_look() -> copy -> udp_recv_take(), all without the lock; now and then
 *         udp_settle()
 *   out:  copy into a frame or descriptor without the lock -> udp_output_prepare() -> the stack
 *         posts it
 *
 * The receive queue is a chain of blocks, frames of the private region 0, in which datagrams lie
 * one after another: a small header and the bytes that came in the descriptor. A 64-byte datagram
 * costs no allocation, eight thousand fill a megabyte. Bytes that came in a lent frame stay there
 * until the datagram is consumed, unless the pcb holds too many such frames already; then they are
 * copied and the frame is given back.
 *
 * Primary records are pcbs and the blocks they own. Hash chains, the lookup cache, free lists and
 * frame references are derived, see udp_recover().
 *
 * Read first: RFC 768; RFC 1122 §4.1, RFC 8085.
 */
#ifndef UDP_UDP_H
#define UDP_UDP_H

#include "ip/icmp.h"
#include "ip/ip.h"
#include "ip/ip_opts.h"
#include "base/base.h"
#include "base/checksum.h"
#include "base/counters.h"
#include "base/frame.h"
#include "base/sockbuf.h"

#define UDP_HDR         8u
#define UDP_MAX_PAYLOAD 65507u /* 65535 - 20 - 8 */

/* The two ends, seen from here. Address any and port 0: not known or not bound. */
struct udp_tuple {
        ip_addr laddr, raddr;
        uint16_t lport, rport;
        uint16_t chan;    /* channel it came by; not part of the key, nor is what follows */
        uint8_t ttl, tos; /* of one that arrived */
};
static_assert(sizeof(struct udp_tuple) == 40, "no more is copied than there was");

/* A datagram that arrived: the payload is `inl_len` bytes at `inl`, then the range `data`. */
struct udp_dgram {
        struct udp_tuple tuple;
        const uint8_t *inl; /* valid for the call */
        uint32_t inl_len;
        struct buf data; /* id 0: none */
        /* The IP header's, with us in them; NULL: none. Valid for the call. */
        const struct ip_optbuf *opts;
};
static inline uint32_t udp_dgram_len(const struct udp_dgram *d)
{
        return d->inl_len + d->data.len;
}

struct udp_limits {
        uint32_t pcbs;
        uint32_t errors; /* kept of all pcbs (IP_RECVERR); 0: UDP_ERRORS */
        /* Bytes of peers' frames that one pcb keeps; beyond, it copies; 0: UDP_LEND_MAX. */
        uint32_t lend_max;
};
#define UDP_LEND_MAX UDP_RCVBUF
#define UDP_ERRORS   128u

struct udp_opts {        /* of one pcb */
        uint32_t rcvbuf; /* bytes of memory that queued datagrams may take */
        uint32_t sndbuf; /* kept for getsockopt; frames are the stack's to bound */
        uint8_t reuseaddr, reuseport;
        uint8_t tos, ttl;
        uint8_t no_check;  /* SO_NO_CHECK: send without checksum even where the link needs one */
        uint8_t pmtu_mode; /* enum pmtu_mode: IP_MTU_DISCOVER */
        uint8_t recverr;   /* IP_RECVERR: errors are kept, and the soft ones told too */
};
#define UDP_RCVBUF (4u << 20)
#define UDP_SNDBUF (4u << 20)
#define UDP_TTL    64 /* RFC 1700; the current Assigned Numbers */

struct udp_shared; /* udp_pcb.h */
struct udp_pcb;    /* udp_pcb.h */

/* A process's view: the shared block and what is handed in. */
struct udp {
        struct udp_shared *sh;
        struct frames *frames;
        struct counters *cnt;
        /* A pcb has events for the socket layer (pcb->events). May be called several times; the
         * stack keeps one link. */
        void (*touched)(void *arg, uint32_t pcb);
        void *arg;
};

size_t udp_shared_bytes(const struct udp_limits *l);
/* Makes the block in zeroed memory. `secret` keys the hashes. */
void udp_shared_init(struct udp_shared *sh, const struct udp_limits *l, const uint8_t secret[16]);
/* Returns true if the block is laid out as these limits have it. */
bool udp_shared_is(const struct udp_shared *sh, const struct udp_limits *l);
struct udp_pcb *udp_pcb_at(const struct udp *u, uint32_t pcb);

/* Events of a pcb for the socket layer; cleared by the reader. */
enum {
        UDP_EV_READABLE = 1, /* a datagram arrived, or shutdown */
        UDP_EV_ERROR = 2,    /* SO_ERROR became set */
};

/* ---- sockets ---- */

void udp_opts_default(struct udp_opts *o);
/* A pcb, not bound; its index, or 0 when all are in use. */
uint32_t udp_open(struct udp *u, const struct udp_opts *o);
/* Gives up the pcb: queued datagrams are dropped (UDP_UNREAD), lent frames given back. */
void udp_close(struct udp *u, uint32_t pcb);
void udp_set_sock(struct udp *u, uint32_t pcb, uint32_t sock);
void udp_set_opts(struct udp *u, uint32_t pcb, const struct udp_opts *o);
void udp_get_opts(const struct udp *u, uint32_t pcb, struct udp_opts *o);
/* The ends: any and 0 where not bound or not connected. */
void udp_get_tuple(const struct udp *u, uint32_t pcb, struct udp_tuple *t);
uint32_t udp_get_sock(const struct udp *u, uint32_t pcb);
/* Takes and clears the events. */
uint32_t udp_take_events(struct udp *u, uint32_t pcb);
/* Returns true if so much is queued that the stack had better leave the rest in the ring for a
 * moment, provided that the reader is reading. */
bool udp_crowded(struct udp *u, uint32_t pcb);
/* Datagrams that nobody has read. */
uint32_t udp_count_unread(struct udp *u, uint32_t pcb);
/* Datagrams read so far, as far as they are settled. */
uint64_t udp_consumed(const struct udp *u, uint32_t pcb);

/*
 * Binds to an address of ours or any, and a port that is not 0. -EINVAL when bound already;
 * -EADDRINUSE by Linux's rules: an overlapping address (any overlaps all) on the port, unless both
 * have SO_REUSEADDR or both SO_REUSEPORT.
 */
int udp_bind(struct udp *u, uint32_t pcb, ip_addr addr, uint16_t port);
/* The same for the address of a group or a broadcast: datagrams that are sent have another source,
 * which the caller names. */
int udp_bind_many(struct udp *u, uint32_t pcb, ip_addr addr, uint16_t port);
/* Returns true if a pcb with the options of `pcb` (0: none) could bind there. */
bool udp_port_free(const struct udp *u, uint32_t pcb, ip_addr addr, uint16_t port);
/* Only datagrams from there, and that is where they go. `laddr` is our address towards it; it
 * replaces any. Connecting again is allowed. -EINVAL when not bound to a port. */
int udp_connect(struct udp *u, uint32_t pcb, ip_addr laddr, ip_addr raddr, uint16_t rport);
/* connect(AF_UNSPEC): the peer is forgotten, and the local address if connect had chosen it. */
void udp_disconnect(struct udp *u, uint32_t pcb);
/* Takes its ends away: it may be bound anew. What has come stays. */
void udp_unbind(struct udp *u, uint32_t pcb);
bool udp_connected(const struct udp *u, uint32_t pcb);
/* how: SHUT_RD, SHUT_WR or SHUT_RDWR of <sys/socket.h>. -ENOTCONN as Linux. */
int udp_shutdown(struct udp *u, uint32_t pcb, int how);
/* Takes and clears the pending error (SO_ERROR), positive errno. */
int udp_take_error(struct udp *u, uint32_t pcb);
/* Makes an error pending again that was taken and not told, unless another one is pending; 0: none
 * was taken. */
void udp_put_error(struct udp *u, uint32_t pcb, int err);
/* poll(2)'s view: POLLIN, POLLOUT, POLLERR, POLLHUP, POLLRDHUP as Linux's udp_poll gives them. */
short udp_poll_events(const struct udp *u, uint32_t pcb);
/* Returns true if a read would not wait: a datagram, an error, the end. Cheaper. */
bool udp_readable(const struct udp *u, uint32_t pcb);
bool udp_pcb_readable(const struct udp_pcb *p);

/* ---- wire ---- */

/* Parses and verifies the header of a packet for UDP. Returns DROP_NONE or the reason. The checksum
 * is verified as `csum` says when the sender gave one. */
enum drop udp_hdr_parse(const struct frames *f, const struct ip_pkt *pkt, uint16_t chan,
                        enum csum_check csum, struct udp_dgram *d);
/* Writes the header of a datagram with `len` bytes of payload; checksum field as given, zero
 * for none. */
void udp_hdr_write(uint8_t p[UDP_HDR], uint16_t sport, uint16_t dport, uint32_t len, be16 sum);
/* The checksum field: `payload_sum` is csum_partial() over the payload. Never zero (RFC 768). */
be16 udp_checksum(const struct udp_tuple *t, uint32_t len, uint32_t payload_sum);

/* ---- input ---- */

enum udp_verdict {
        UDP_DONE,    /* queued or dropped and counted; the frame is still the caller's to release */
        UDP_TOOK,    /* queued, and the frame d->data.id now belongs to the queue */
        UDP_NO_PORT, /* counted; the frame is the caller's, who may answer port unreachable */
};
enum udp_verdict udp_rx(struct udp *u, const struct udp_dgram *d, nstime now);
/*
 * The same for a datagram to a group or to everybody: each pcb that it matches (RFC 1122 §4.1.3.5)
 * and whose socket wants it gets a copy. Returns how many matched. The frame stays the caller's,
 * and may be one of ours.
 */
unsigned udp_rx_many(struct udp *u, const struct udp_dgram *d,
                     bool (*wants)(void *arg, uint32_t sock), void *arg, nstime now);
/* The same for a datagram whose pcb is known. */
enum udp_verdict udp_rx_to(struct udp *u, uint32_t pcb, const struct udp_dgram *d, nstime now);
/* The same for n bytes that came in a descriptor, by the shortest way. Returns false if the
 * datagram is not for this way, and nothing was done. */
bool udp_rx_short(struct udp *u, uint32_t pcb, const struct udp_tuple *t, const uint8_t *bytes,
                  uint32_t n, nstime now);
/* The pcb that a datagram goes to: connected to its sender, else bound to its destination, else to
 * any; among equals with SO_REUSEPORT chosen by hash, else the one bound last. 0: none. */
uint32_t udp_lookup(struct udp *u, const struct udp_tuple *t);
/* Changes whenever a look-up may have another result than before. */
uint64_t udp_keys(const struct udp *u);
/* An ICMP error about a datagram of ours. Reported to a connected pcb when hard, and to one with
 * IP_RECVERR, as Linux does. False: none of our pcbs can have sent it. */
bool udp_icmp(struct udp *u, const struct icmp_err *e);

/* ---- errors that are kept (udp_error.c) ---- */

#define UDP_ERRORS_EACH 32u
#define UDP_ERROR_DATA  512u

/* An error, and the datagram that it is about. */
struct udp_error {
        uint32_t pcb;       /* the table's: whose it is, 0: free */
        uint32_t order;     /* the table's */
        bool local;         /* found here (EMSGSIZE); else ICMP said so */
        uint8_t type, code; /* ICMP's */
        uint8_t ttl, tos;   /* of the packet that brought it */
        uint16_t chan, dport;
        int32_t err;
        uint32_t info;          /* MTU; a parameter problem's pointer */
        ip_addr from, src, dst; /* who said so; the datagram's ends */
        nstime at;
        uint32_t len; /* bytes of its payload that are known */
        uint8_t data[UDP_ERROR_DATA];
};
/* The pcb that such an error is to be kept for; 0: none. */
uint32_t udp_error_wanted(struct udp *u, const struct icmp_err *e);
/* Keeps one; where there is no room it is counted (UDP_ERROR_LOST). */
void udp_error_add(struct udp *u, uint32_t pcb, const struct udp_error *what);
/* The oldest one is handed over; what is pending (SO_ERROR) is that of the next, as in Linux.
 * False: there is none. */
bool udp_error_take(struct udp *u, uint32_t pcb, struct udp_error *out);
bool udp_has_errors(const struct udp *u, uint32_t pcb);
void udp_errors_drop(struct udp *u, uint32_t pcb);

/* ---- output ---- */

struct udp_out {
        struct udp_tuple tuple; /* complete: what the IP header needs */
        uint8_t hdr[UDP_HDR];
        uint8_t tos, ttl;
        uint8_t pmtu_mode; /* enum pmtu_mode */
        /* For the IP header, as an application has them; NULL, as prepared: none. */
        const struct ip_optbuf *opts;
};
/*
 * Prepares a datagram of `len` bytes. `to` names address and port, NULL: the connected peer;
 * to->laddr is our address towards it, used when the pcb has none, or when to->lport is the pcb's
 * own port (IP_PKTINFO). With `csum`, payload_sum is the payload's csum_partial(). Counts it as
 * sent. 0, or: the pending error (taken); -EPIPE after shutdown; -EDESTADDRREQ; -EMSGSIZE;
 * -EINVAL when not bound to a port or the destination's port is 0.
 */
int udp_output_prepare(struct udp *u, uint32_t pcb, const struct udp_tuple *to, uint32_t len,
                       bool csum, uint32_t payload_sum, struct udp_out *out);
/* A prepared datagram did not leave after all, since the NI's queue is full: it is not counted. */
void udp_output_cancel(struct udp *u, uint32_t pcb);

/* ---- the application's side ---- */

struct udp_msg {
        ip_addr src, dst;
        uint16_t sport, dport;
        uint16_t chan;
        uint8_t ttl, tos;
        uint8_t nspan; /* 0 for an empty datagram, else 1 or 2 */
        uint8_t nopts; /* bytes of IP options at opts, to be read before the datagram is taken */
        uint32_t len;  /* the sum of the spans */
        nstime at;     /* when it arrived */
        struct span span[2];
        const uint8_t *opts;
};
/* A datagram that somebody looks at without the lock. */
struct udp_sight {
        struct udp_msg msg;
        uint64_t head, next; /* the queue's, while this is the first, and when it is read */
        bool last;           /* nothing was behind it then */
        /* The next one's bytes in a peer's frame; len 0: not known. Only for prefetches. */
        struct span ahead;
};
/*
 * Receiving is look, copy, take, and needs no lock. look shows the first datagram; false: there is
 * none, or an error to be told of first. take says that it was read; false: somebody else was
 * quicker, and the copy is worth nothing. Any number of readers may try. Spans may be read until
 * take, whatever others do; their bytes are the datagram's if take succeeds.
 *
 * What was read keeps its memory until someone settles, under the lock: a reader does that now and
 * then, and when it has read the last one.
 */
bool udp_recv_look(const struct udp *u, uint32_t pcb, struct udp_sight *s);
/* The same for a datagram whose bytes all lie in the queue, as those of short ones do; of `msg`
 * only len and span[0] are shown. Returns false for any other. */
bool udp_recv_look_short(const struct udp *u, const struct udp_pcb *p, struct udp_sight *s);
/* alone: nobody but this thread can read here. */
bool udp_recv_take_short(struct udp_pcb *p, const struct udp_sight *s, bool alone);
bool udp_recv_take(struct udp *u, uint32_t pcb, const struct udp_sight *s);
void udp_settle(struct udp *u, uint32_t pcb);
/*
 * Under the lock, and for the only reader: peek shows up to n datagrams in order, leaving out the
 * first `skip`; returns how many. 0 after shutdown of the reading side with an empty queue, -EAGAIN
 * when there is none, or the pending error (taken, as Linux does). Spans stay valid until they are
 * taken.
 */
int udp_recv_peek(struct udp *u, uint32_t pcb, uint32_t skip, struct udp_msg *msg, int n);
/* Length of the first datagram (SIOCINQ), 0: none. */
uint32_t udp_recv_avail(const struct udp *u, uint32_t pcb);

/* ---- looking in (unet ss); safe without the lock, a torn snapshot at worst ---- */

struct udp_report {
        struct udp_tuple tuple;
        bool connected;
        uint32_t sock;             /* 0: nobody */
        uint32_t queued;           /* datagrams held: unread, and a few read a moment ago */
        uint32_t memory, rcvbuf;   /* bytes charged and allowed */
        uint64_t in, out, dropped; /* datagrams */
};
/* Returns false if no such pcb is in use; walk 1 .. udp_pcb_cap() - 1. */
bool udp_get_report(const struct udp *u, uint32_t pcb, struct udp_report *r);
uint32_t udp_pcb_cap(const struct udp *u);

/* ---- consistency ---- */

/* Asserts every invariant of a pcb that can be spelled; tests call it after each step. */
void udp_pcb_check(const struct udp *u, uint32_t pcb);
/*
 * After a process died inside, at any store: rebuilds all that is derived, and adds the references
 * of the queues to frame records (the caller has zeroed refs and will call frame_pool_rebuild). No
 * queued datagram is lost; a pcb whose bind or connect was under way may have half of its new ends.
 * Touches every pcb and datagram.
 */
void udp_recover(struct udp *u);

#endif
