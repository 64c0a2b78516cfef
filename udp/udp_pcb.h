/*
 * The records behind udp.h; for udp/ and its tests.
 *
 * A pcb that is bound is in two chains: one of its key (both addresses and ports, zero where it has
 * none), for input, and one of its local port, for bind's conflicts. Both are derived from the
 * pcbs. In front of the key chains is a small cache of what was found last, direct-mapped by the
 * sender; it is emptied, by a new generation, when any key changes.
 */
#ifndef UDP_UDP_PCB_H
#define UDP_UDP_PCB_H

#include "base/pool.h"
#include "base/siphash.h"
#include "udp/udp.h"
#include "udp/udp_queue.h"

enum { UDP_SHUT_RD = 1, UDP_SHUT_WR = 2 }; /* pcb->shut */

struct udp_pcb {
        uint32_t pool_link; /* of the free list, while it is free */
        uint32_t sock;      /* cookie of the socket layer */
        uint16_t events;    /* UDP_EV_*, for it to clear */
        uint16_t nerrs;     /* derived: errors kept */
        uint8_t live;       /* in use; written last when made */
        uint8_t shut;
        uint8_t bound_addr;   /* the local address was named by bind, not by connect */
        uint8_t bound_many;   /* it is a group or a broadcast address, and no source of datagrams */
        ip_addr laddr, raddr; /* zero: any, not connected */
        uint16_t lport, rport; /* 0: not bound, not connected */
        int32_t err;           /* SO_ERROR */
        struct udp_opts opts;
        struct udp_queue q;
        uint64_t in, out, dropped;    /* datagrams */
        uint32_t key_next, port_next; /* derived: chains */
        ip_addr src;                  /* of what a connected socket sends, if bound_many */
};

#define UDP_CACHE 64u

struct udp_cached {
        ip_addr laddr, raddr;
        uint16_t lport, rport;
        uint32_t pcb;
        uint64_t gen; /* valid when it is sh->gen */
};

struct udp_shared {
        struct udp_limits limits;
        struct sip_key key;
        uint64_t gen;              /* of keys; from 1 */
        uint32_t mask;             /* both tables have mask + 1 heads */
        uint32_t connected, bound; /* derived: pcbs with a peer; with a local address only */
        uint32_t pad;
        /* From this header: heads, heads, a bit for each pcb. */
        uint64_t keys_off, ports_off, live_off;
        uint64_t errors_off, error_order; /* limits.errors of struct udp_error */
        struct pool pcbs;
        struct udp_cached cache[UDP_CACHE];
        /* derived: frames of each channel in queues. */
        uint32_t kept[FRAME_REGIONS / 2][FRAME_CLASSES];
};

static inline struct udp_pcb *pcb_at(const struct udp *u, uint32_t pcb)
{
        return pool_at(&u->sh->pcbs, pcb);
}
static inline bool pcb_connected(const struct udp_pcb *p)
{
        return p->rport != 0;
}
static inline struct udp_error *udp_errors(const struct udp_shared *sh)
{
        return (struct udp_error *)((char *)(uintptr_t)sh + sh->errors_off);
}
/* Keeps errors of pcbs that live, after a death. */
void udp_errors_recover(struct udp *u);
/* Asserts that the pcb counts its own. */
void udp_errors_check(const struct udp *u, uint32_t pcb);
/* The first pcb with a port like this one, 0: none; the others by port_next. */
uint32_t udp_port_chain(const struct udp_shared *sh, uint16_t port);
/* Raises events and tells the stack. */
static inline void pcb_raise(struct udp *u, uint32_t pcb, uint32_t events)
{
        pcb_at(u, pcb)->events |= (uint16_t)events;
        u->touched(u->arg, pcb);
}

#endif
