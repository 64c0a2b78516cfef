/*
 * A link in virtual time: two channel ends in one process, and everything between them that can go
 * wrong.
 *
 * A message is gathered into one packet when it is sent, so its frames are finished with at once
 * (reap returns them right away). The packet passes, in this order:
 *
 *   send queue (tx_slots: back-pressure)  ->  loss  ->  queue (queue_bytes: drop tail)  ->  wire
 *                                                       (rate)
 *           ->  delay + jitter, reorder, duplicate, corrupt  ->  receive queue (rx_slots)  ->  recv
 *
 * and arrives as it was cut by the sender: the same number of bytes inline, the rest in one receive
 * frame of the link, a loan until released. Free frames exhausted or the receive queue full:
 * dropped and counted, as in U-Net.
 *
 * Nothing happens by itself. sim_advance() moves the clock; what arrives by then can be received.
 * sim_next() says when something will happen next. The same seed, parameters and calls give the
 * same trace (sim_trace()): every packet draws the same number of random values, whatever the
 * parameters.
 */
#ifndef TESTS_SIM_NI_SIM_H
#define TESTS_SIM_NI_SIM_H

#include "base/counters.h"
#include "unet/mem.h"
#include "unet/ni.h"

/* One direction. All zero but mtu is a perfect wire. Probabilities are 0 .. 1. */
struct sim_params {
        uint32_t mtu;         /* 0: 1500; larger messages are dropped as NI_MALFORMED */
        uint64_t rate;        /* bits a second, 0: infinite */
        nstime delay;         /* propagation */
        nstime jitter;        /* 0 .. jitter more, evenly; does not change the order */
        uint64_t queue_bytes; /* waiting for the wire; more is dropped (NI_TX_FULL). 0: no limit */
        /* Waiting for the wire; an IPv4 packet with ECT that finds more is marked CE. 0:
         * none is. */
        uint64_t mark_bytes;
        uint32_t tx_slots;  /* packets waiting for the wire before send refuses. 0: never */
        uint32_t rx_slots;  /* packets not received yet; more are NI_QUEUE_FULL. 0: 4096 */
        double loss;        /* lost at random */
        double burst_start; /* Gilbert-Elliott: good -> bad, drawn for each packet */
        double burst_end;   /* bad -> good */
        double burst_loss;  /* loss while bad, 0: all */
        double duplicate;   /* arrives twice */
        double reorder;     /* takes reorder_by longer and is overtaken */
        nstime reorder_by;
        double corrupt; /* one bit flipped */
        bool csum;      /* caps: checksums are needed (true in any case when corrupt > 0) */
        nstime rto_min; /* caps: 0 means 200 ms */
};

struct sim;

/* What happened to a packet; bytes is the packet where there is one. */
enum sim_event {
        SIM_SENT,
        SIM_LOST,
        SIM_QUEUE_FULL,
        SIM_CORRUPTED,
        SIM_DUPLICATED,
        SIM_REORDERED,
        SIM_ARRIVED,
        SIM_REFUSED
};
typedef void sim_trace_fn(void *arg, nstime now, int side, enum sim_event what,
                          const uint8_t *bytes, size_t len);

/* A link. dir[0] is from side 0 to side 1, dir[1] back. NULL when there is no memory. */
struct sim *sim_create(uint64_t seed, const struct sim_params dir[2]);
void sim_destroy(struct sim *s);

/* The channel end of a side (0 or 1) and its table. */
extern const struct unet_ni_ops sim_ops;
struct unet_chan *sim_end(struct sim *s, int side);
struct sim *sim_of(struct unet_chan *end);
struct unet_caps sim_caps(const struct sim *s, int side);

/* Tells where the side's transmit frames are; before its first send with a frame. The memory stays
 * the caller's. */
void sim_set_tx_mem(struct sim *s, int side, struct unet_mem mem);
/* Where the frames lie that recv names on this side; they are the link's own memory. */
struct unet_mem sim_rx_mem(const struct sim *s, int side);

/* Changes a direction's parameters (not mtu or rx_slots) from the next packet on. */
void sim_set_params(struct sim *s, int from_side, const struct sim_params *p);

nstime sim_now(const struct sim *s);
/* When the next packet arrives, or a full send queue has room again; NSTIME_NEVER when nothing is
 * under way. */
nstime sim_next(const struct sim *s);
/* Sets the clock, never back; what is due by then has arrived. Both ends send at this time until
 * the next call. */
void sim_advance(struct sim *s, nstime now);

/* What the side has sent, received and dropped (a drop on the way is counted on the
 * sender's side). */
const struct counters *sim_counters(const struct sim *s, int side);
/* Counts into the user's own counters from now on. */
void sim_set_counters(struct sim *s, int side, struct counters *c);
/* A hash over everything that happened so far: equal for equal runs. */
uint64_t sim_trace(const struct sim *s);
/* Calls fn for each event from now on; NULL: no longer. */
void sim_set_trace(struct sim *s, sim_trace_fn *fn, void *arg);
/* Bytes that wait for the wire on this side. */
uint64_t sim_queued(struct sim *s, int side);
/* Frames received on this side and not released yet. */
uint32_t sim_loans(const struct sim *s, int side);

#endif
