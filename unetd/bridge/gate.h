/*
 * The bridge of an interface that several stacks share: kernel-emulated endpoints (the paper's
 * §3.5) towards a network.
 *
 * Each stack has a channel to the bridge in the place of the rings of its own: a pair of transmit
 * regions as between two stacks (unet/shm/shm_ring.h), that carries whole Ethernet frames. The
 * bridge has the interface by a packet socket (unet/packet/pkt_open.h) and moves frames between
 * the two, checked and to whom they are for (gate_rules.h).
 *
 *   stack A --ring--\                                        /-- PACKET_VNET_HDR, runs (gate_run.h)
 *   stack B --ring---+--> gate_check() --> gate_out --------+--> the interface
 *   stack A <-ring---+--- gate_route() <-- frames received -+
 *   stack B <-ring--/        \--> gate_answer(), arp/        \-- what GRO joined (gate_split.h)
 *
 *   - All stacks have the same addresses. A stack resolves its neighbours itself, as when it has
 *     the interface alone. What is asked of the host (ARP, echo, closed ports) the bridge answers,
 *     once.
 *   - A slow stack costs nobody else anything: what its ring or its frames (GATE_FRAMES) cannot
 *     take is dropped and counted. Towards the wire stacks take turns; what the bridge does not
 *     get to stays in the sender's ring.
 *   - Nothing that a stack writes is trusted: headers are copied before they are looked at, and
 *     leave as they were checked.
 *
 * One thread, unetd's; gate_turn() after each batch of its loop.
 */
#ifndef UNETD_GATE_H
#define UNETD_GATE_H

#include "arp/arp.h"
#include "ip/netconf.h"
#include "unet/shm/ni_shm.h"
#include "unet/packet/pkt_open.h"
#include "unetd/bridge/gate_answer.h"
#include "unetd/bridge/gate_flow.h"
#include "unetd/bridge/gate_rules.h"
#include "unetd/bridge/gate_run.h"
#include "unetd/loop/loop.h"
#include "unetd/client/proto.h"

#define GATE_PORTS 256u /* stacks at one interface */
/* Towards each of them: 8 MB. */
#define GATE_FRAMES ((struct frame_geom){{[FRAME_LARGE] = 64, [FRAME_SMALL] = 2048}})
#define GATE_BATCH  64u    /* frames taken from the wire, or from a stack, at once */
#define GATE_ROOM   67584u /* bytes for a frame as received */

struct gate;

/* A stack at a bridge. */
struct gate_port {
        struct gate *gate;
        uint32_t num;         /* its place in gate->port, and its region's number */
        struct shm_chan chan; /* the bridge's end */
        struct shm_shared shared;
        struct frame_pool *pool; /* records of the frames towards it */
        struct gate_sender sender;
        struct counters cnt; /* what it sent: NI_RX; what was sent to it: NI_TX; drops on the way */
        int region;          /* what the bridge writes */
        uint32_t last_turn;  /* gate->turn when frames were taken from it last */
        bool dirty;          /* something was sent to it since the last flush */
};

struct gate {
        struct gate *next; /* of those that are closed */
        struct pkt_dev dev;
        struct loop *loop;
        struct loop_source wire, rings;
        int bell_fd; /* its page; `rings` is the socket */
        struct bell *bell;
        struct gate_rules rules;
        struct gate_answerer answerer;
        struct gate_flows *flows;
        struct gate_groups groups;
        struct arp_cache *cache;
        struct counters cnt; /* what came from the wire for nobody, and what the bridge answered */
        struct frames frames;
        struct gate_port *port[GATE_PORTS];
        uint32_t nports, turn;
        uint8_t *rx; /* GATE_BATCH frames of GATE_ROOM */
        struct gate_out out;
        struct unet_rx in[GATE_BATCH];
        /* Closes descriptors that strangers put into rings (unet/bell_fd.h). */
        void (*closes)(const int *fds, unsigned n);
        bool awake;
        nstime last_work;
};

/* The offer of a stack that joins; descriptors are borrowed, for the call. */
struct gate_peer {
        uint32_t stack;
        uint32_t serial; /* of its way here: where positions begin */
        int tx;          /* memfd of its transmit region, of this geometry */
        struct frame_geom geom;
        int bell, leader, keeper; /* the page, and the sockets */
};

/* Takes an interface by this packet socket, which it takes over, also on failure. `rules`: who may
 * what (addr, owner, may, arg); the rest is filled in. closes() closes descriptors without waiting
 * for anybody. 0, or a negative errno. */
int gate_open(struct gate **out, struct loop *loop, struct pkt_dev *dev,
              const struct gate_rules *rules, uint8_t prefix,
              void (*closes)(const int *fds, unsigned n));
/* Its name is another device's now, which it takes, with all who are there. 0 or a
 * negative errno. */
int gate_reopen(struct gate *g, struct pkt_dev *dev);
/* All have left. Its memory stays until gates_free(): the loop's batch may have more events of it.
 */
void gate_close(struct gate *g);
/* Frees those of the list that are closed (by `next`). */
void gates_free(struct gate **list);

/* A stack joins; it leaves, and what it has sent goes out first. */
int gate_join(struct gate *g, const struct gate_peer *peer, struct gate_port **out);
void gate_leave(struct gate_port *p);
/* Fills in the stack's side of the channel, and its descriptors but the first (UNETD_FD_TX): new
 * ones, which are the caller's. 0 or a negative errno. */
int gate_describe(const struct gate_port *p, struct unetd_chan_info *info,
                  int fds[UNETD_CHAN_FDS_MAX]);

/* A bounded piece of work. Returns when there is more. */
nstime gate_turn(struct gate *g, nstime now);

/* Follows the link's MTU and link address, where they are known. */
void gate_follow(struct gate *g, const struct netconf_if *link, nstime now);

/* gate_io.c, for gate.c. False: there was nothing to do. */
bool gate_move(struct gate *g, nstime now);
bool gate_pending(const struct gate *g);
/* Sends what waits in its ring to the wire; what the stack writes meanwhile may stay behind. */
void gate_drain(struct gate_port *p, nstime now);

#endif
