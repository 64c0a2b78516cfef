/*
 * Interfaces: channels that carry Ethernet frames to hosts that are no U-Net, with an address of
 * our own, neighbours and a gateway. They go by an AF_XDP socket of the stack's own
 * (unet/xdp/xdp.h) or by unetd's bridge (unetd/bridge/gate.h). That may change
 * (stack_netif_move()): connections and neighbours stay, packets on their way are lost.
 *
 *   in:   stack_run_rx() -> netif_rx() -> arp_input() | stack_rx_packet(), as from any other
 *         channel
 *   out:  stack_post() -> netif_link() writes the Ethernet header in front of the IP header, or
 *         keeps the packet until its neighbour has answered
 *   then: netif_run(), once a turn: ARP's own packets, and those that waited
 *
 * What all processes of a stack share of an interface stands in its state segment (struct netif).
 * What one of them remembers of its neighbours is in its view (struct netif_view).
 *
 * Read first: RFC 894, RFC 1122 §2 and §3.3.1.
 */
#ifndef NETSTACK_NETIF_H
#define NETSTACK_NETIF_H

#include "arp/arp.h"
#include "arp/ether.h"
#include "ip/ip.h"
#include "base/capture.h"
#include "unet/ni.h"

#define NETIF_MAX  4u /* of one stack */
#define NETIF_NAME 16u

/* Bytes in front of an IP header that is to be sent: 14 are the Ethernet header. */
#define NETIF_ROOM 16u

struct stack;
struct stack_chan;
struct stack_state;
struct tcp_conn;

/* The configuration of an interface; addresses are IPv4 in host order. */
struct netif_config {
        char name[NETIF_NAME];
        uint32_t addr, gateway; /* gateway 0: none */
        uint8_t prefix;         /* bits */
        uint8_t ifindex;        /* number in the route table; 0: the interface's here, + 1 */
        uint8_t mac[6];
        uint32_t mtu;     /* largest IP packet, now ... */
        uint32_t mtu_max; /* ... and that the NI has room for; 0: the same */
        /* unetd's number of the socket, or of the way to the bridge. */
        uint32_t serial;
};

struct netif {
        uint32_t chan; /* channel + 1; 0: free */
        struct netif_config cfg;
        struct ip_ifaddr addr; /* cfg's */
        bool routed;           /* the route table knows of it */
        struct arp_cache arp;
};

/* One process's view: the neighbours that it sent to last, by destination. They are good while
 * routes are as they were. */
#define NETIF_NEAR 64u
struct netif_view {
        struct netif *nif; /* NULL: the channel is none */
        struct arp arp;
        bool inward;       /* what is sent to many is for other stacks of this host alone */
        bool cast;         /* the packet being taken came as a link-layer broadcast or multicast */
        uint32_t near_gen; /* of the route table when they were looked up ... */
        nstime near_until; /* ... and when bad news of a gateway ends that was heeded then */
        struct {
                uint32_t dst;
                struct arp_ref ref;
        } near[NETIF_NEAR];
};

/* An IP header and what fits behind it, with room for the Ethernet header in front. */
struct netif_hdr {
        uint8_t link[NETIF_ROOM];
        uint8_t ip[UNET_INLINE_MAX];
};
static_assert(offsetof(struct netif_hdr, ip) == NETIF_ROOM, "in one piece");

/*
 * The Ethernet header of the packet whose IP header is at `ip`, ip_len inline bytes and then
 * `data`: written in front of it, and true. False: the packet must not be sent now. It was kept for
 * its neighbour, or dropped and counted.
 */
bool netif_link(struct stack *s, struct stack_chan *c, uint8_t *ip, uint32_t ip_len,
                const struct buf *data);

/*
 * Sends what a connection has, in runs that the NI cuts (unet_caps.runs). As the loop's own output:
 * true when everything due went out, false when the channel has no room. Only when netif_cuts()
 * says that it is possible.
 */
bool netif_output(struct stack *s, struct stack_chan *c, struct tcp_conn *tc,
                  const struct ip_tmpl *ip);
bool netif_cuts(struct stack *s, struct stack_chan *c, const struct tcp_conn *tc);

/* The link address that the destination was last sent to by, here, and that is good still;
 * NULL: none. */
const uint8_t *netif_near(const struct netif_view *v, uint32_t dst);

/* TCP heard from a peer that what we sent arrived: its next hop is alive (RFC 1122 §2.3.2.1). */
void netif_reached(struct stack *s, struct stack_chan *c, ip_addr peer);

/* TCP repeats itself to a peer, or the peer does: its next hop may be gone. */
void netif_doubted(struct stack *s, struct stack_chan *c, ip_addr peer);

/* Sends a whole IP packet to a group or to everybody, if the channel has room. */
void netif_send_many(struct stack *s, uint32_t k, uint32_t dst, const uint8_t *ip, uint32_t len);

/* A captured frame is an IP packet without its link header; false: it is none. */
bool netif_strip(struct capture_pkt *p);

/* A frame arrived on channel k. True when its frame now belongs to a queue. */
bool netif_rx(struct stack *s, uint32_t k, struct unet_rx *rx);

/* Packets wait for their neighbours on some interface. */
bool netif_waits(const struct stack_state *st);

/* ARP's turn, if it is time: requests, answers, packets that waited. */
void netif_run(struct stack *s, uint32_t k);

#endif
