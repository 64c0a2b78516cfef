/*
 * Counters and the one list of reasons for which a packet is dropped. A reason's name becomes the
 * counter, the trace line, the row of `unet stat` and what a test expects. Nothing is dropped
 * without one of these.
 */
#ifndef BASE_COUNTERS_H
#define BASE_COUNTERS_H

#include "base/base.h"

#define DROP_LIST(X)                                                                               \
        X(NI_MALFORMED, "descriptor malformed or out of range")                                    \
        X(NI_BAD_FRAME, "frame reference outside the peer's region")                               \
        X(NI_NO_BUFFER, "free queue empty")                                                        \
        X(NI_QUEUE_FULL, "receive queue full")                                                     \
        X(NI_TX_FULL, "run of segments that the device had no room for")                           \
        X(NI_NO_CHANNEL, "no channel for this tag")                                                \
        X(NI_BAD_SOURCE, "source is not the sender's own")                                         \
        X(NI_QUOTA, "sender has more waiting in the switch than its quota")                        \
        X(NI_LATE, "overtaken on the way by a later message")                                      \
        X(LINK_LOST, "lost by the simulated link or the fault wrapper")                            \
        X(ETHER_SHORT, "shorter than an Ethernet header")                                          \
        X(ETHER_LENGTH, "IEEE 802.3 frame: a length and no type")                                  \
        X(ETHER_VLAN, "frame of another VLAN")                                                     \
        X(ETHER_SOURCE, "frame from a group address")                                              \
        X(ETHER_NOT_OURS, "frame for another Ethernet address")                                    \
        X(ETHER_TYPE, "Ethernet type nobody here speaks")                                          \
        X(ARP_SHORT, "shorter than an ARP packet or than it says")                                 \
        X(ARP_FORMAT, "ARP of another hardware, protocol or operation")                            \
        X(ARP_SENDER, "ARP whose sender cannot be one")                                            \
        X(ARP_OWN, "ARP packet of our own, come back")                                             \
        X(ARP_CONFLICT, "ARP from another host that has or wants our address (RFC 5227)")          \
        X(ARP_NOT_OURS, "ARP about others, of no use here")                                        \
        X(ARP_UNSOLICITED, "ARP reply that nobody asked for")                                      \
        X(ARP_STATIC, "ARP against a static entry")                                                \
        X(ARP_FLIP, "ARP that changes an entry a second time within the lock time")                \
        X(ARP_RATE, "ARP answer suppressed by rate limit")                                         \
        X(ARP_FULL, "neighbour table or pending packets full")                                     \
        X(ARP_REPLACED, "pending packet gave way to later ones to the same neighbour")             \
        X(ARP_UNREACHABLE, "neighbour did not answer")                                             \
        X(IP_SHORT, "shorter than an IP header or than it says")                                   \
        X(IP_VERSION, "IP version not spoken here")                                                \
        X(IP_HEADER, "IP header length or options malformed")                                      \
        X(IP_CHECKSUM, "IP header checksum wrong")                                                 \
        X(IP_NOT_OURS, "destination is not one of our addresses")                                  \
        X(IP_NO_ROUTE, "no interface and no gateway leads there")                                  \
        X(IP_MARTIAN, "source address cannot be a source")                                         \
        X(IP_FRAGMENT, "fragment, and reassembly is not done here")                                \
        X(IP_OPTIONS, "IP options malformed")                                                      \
        X(IP_SOURCE_ROUTE, "source-routed, and source routes are refused")                         \
        X(IP_LINK_CAST, "link broadcast of a packet for one host (RFC 1122)")                      \
        X(IP_FRAG_BAD, "fragment empty, of odd length, or beyond 65,535 bytes")                    \
        X(IP_FRAG_TINY, "fragment that cuts the TCP header (RFC 1858)")                            \
        X(IP_FRAG_OVERLAP, "fragments contradict each other: datagram given up (RFC 5722)")        \
        X(IP_FRAG_DEAD, "fragment of a datagram given up")                                         \
        X(IP_FRAG_ECN, "fragments with and without ECN: datagram given up (RFC 3168)")             \
        X(IP_FRAG_NO_MEMORY, "no memory for the fragment")                                         \
        X(IP_FRAG_EVICTED, "datagram given up unfinished, to make room for another")               \
        X(IP_FRAG_TIMEOUT, "datagram given up unfinished, its time was over")                      \
        X(IP_PROTOCOL, "protocol nobody here speaks")                                              \
        X(ICMP_SHORT, "ICMP message too short")                                                    \
        X(ICMP_CHECKSUM, "ICMP checksum wrong")                                                    \
        X(ICMP_RATE, "ICMP answer suppressed by rate limit")                                       \
        X(ICMP_IGNORED, "ICMP message of a type that is ignored")                                  \
        X(IGMP_SHORT, "IGMP message too short")                                                    \
        X(IGMP_CHECKSUM, "IGMP checksum wrong")                                                    \
        X(IGMP_IGNORED, "IGMP message that a host does not act on")                                \
        X(UDP_SHORT, "UDP header or length wrong")                                                 \
        X(UDP_CHECKSUM, "UDP checksum wrong")                                                      \
        X(UDP_NO_PORT, "no UDP socket on this port")                                               \
        X(UDP_FULL, "UDP receive buffer full")                                                     \
        X(UDP_NO_MEMORY, "no memory for the datagram")                                             \
        X(UDP_ERROR_LOST, "error that a UDP socket wanted to keep, and that found no room")        \
        X(UDP_UNREAD, "still unread when the UDP socket was closed")                               \
        X(UDP_CORKED, "no room for a corked datagram when it was let go")                          \
        X(TCP_SHORT, "TCP header or length wrong")                                                 \
        X(TCP_CHECKSUM, "TCP checksum wrong")                                                      \
        X(TCP_BAD_ADDRESS, "TCP segment from or to an address that cannot take part")              \
        X(TCP_NO_LISTENER, "no TCP socket on this port")                                           \
        X(TCP_MIN_TTL, "TTL below what the socket asks for (IP_MINTTL, RFC 5082)")                 \
        X(TCP_UNVOUCHED, "not connected: its socket's port is not known to be its own")            \
        X(TCP_NO_CLIENT_PORT, "connected by the kernel: the stack has no client port left")        \
        X(TCP_BACKLOG, "listen backlog full")                                                      \
        X(TCP_COOKIE, "acknowledges no SYN cookie of ours, in a time of cookies (RFC 4987)")       \
        X(TCP_GROUP, "no place in the listener's group")                                           \
        X(TCP_NO_MEMORY, "no memory for the segment or connection")                                \
        X(TCP_OUT_OF_WINDOW, "outside the receive window")                                         \
        X(TCP_OLD_DUPLICATE, "everything in it was received before")                               \
        X(TCP_PAWS, "timestamp older than the last (RFC 7323)")                                    \
        X(TCP_NO_TIMESTAMP, "no timestamp where both sides agreed upon them (RFC 7323)")           \
        X(TCP_BAD_ACK, "acknowledges what was never sent, or too old")                             \
        X(TCP_BAD_RST, "RST in the window but not at its edge (RFC 5961)")                         \
        X(TCP_BAD_SYN, "SYN on a synchronised connection (RFC 5961), or with a FIN to a listener") \
        X(TCP_NO_ACK, "synchronised state and no ACK bit")                                         \
        X(TCP_AFTER_CLOSE, "data after the application closed")                                    \
        X(TCP_CHALLENGE_RATE, "challenge ACK suppressed by rate limit (RFC 5961)")

enum drop {
        DROP_NONE,
#define X(name, text) DROP_##name,
        DROP_LIST(X)
#undef X
                DROP_COUNT
};

#define COUNT_LIST(X)                                                                     \
        X(NI_RX_MSGS, "messages received")                                                \
        X(NI_TX_MSGS, "messages sent")                                                    \
        X(NI_RX_BYTES, "bytes received, headers included")                                \
        X(NI_TX_BYTES, "bytes sent, headers included")                                    \
        X(NI_TX_FULL, "send queue found full")                                            \
        X(NI_BELLS, "doorbells rung")                                                     \
        X(NI_SLEEPS, "waits that slept")                                                  \
        X(NI_BAD_RETURN, "frames returned by a peer that had none")                       \
        X(NI_MISSED, "messages that peers sent and that did not come")                    \
        X(NI_PORT_DOWN, "times the device's port went down or lost its address")          \
        X(NI_PORT_UP, "times it came back")                                               \
        X(NI_REPAIRS, "queue pairs set up anew after an error")                           \
        X(NI_DEVICE_LOST, "devices that went away or failed for good")                    \
        X(ARP_IN, "ARP packets received")                                                 \
        X(ARP_REQUEST, "ARP requests sent, polls among them")                             \
        X(ARP_REPLY, "ARP replies sent")                                                  \
        X(ARP_ANNOUNCE, "ARP probes and announcements sent (RFC 5227)")                   \
        X(ARP_FAILED, "neighbours that did not answer")                                   \
        X(ARP_CHANGED, "neighbours whose link address changed")                           \
        X(IP_FRAGS_IN, "fragments received")                                              \
        X(IP_REASSEMBLED, "datagrams put together from fragments")                        \
        X(IP_FRAGMENTED, "datagrams sent in fragments")                                   \
        X(IP_FRAGS_OUT, "fragments sent")                                                 \
        X(ICMP_IN, "ICMP messages received")                                              \
        X(ICMP_OUT, "ICMP messages sent")                                                 \
        X(IGMP_IN, "IGMP messages received")                                              \
        X(IGMP_OUT, "IGMP messages sent")                                                 \
        X(UDP_IN, "datagrams received")                                                   \
        X(UDP_OUT, "datagrams sent")                                                      \
        X(TCP_IN, "TCP segments received")                                                \
        X(TCP_OUT, "TCP segments sent")                                                   \
        X(TCP_RETRANS, "TCP segments retransmitted")                                      \
        X(TCP_FAST_RECOVERY, "times loss was found by acknowledgements")                  \
        X(TCP_TLP, "tail loss probes sent")                                               \
        X(TCP_RTO, "retransmission timeouts")                                             \
        X(TCP_SPURIOUS, "retransmissions found unnecessary by D-SACK")                    \
        X(TCP_UNDO, "reductions of the window undone: nothing was lost")                  \
        X(TCP_ECN_MARKED, "TCP segments that a router marked (RFC 3168)")                 \
        X(TCP_ECN_CUT, "reductions of the window because the peer had marked ones")       \
        X(TCP_RST_IN, "resets received")                                                  \
        X(TCP_RST_OUT, "resets sent")                                                     \
        X(TCP_ACTIVE_OPEN, "connections opened")                                          \
        X(TCP_PASSIVE_OPEN, "connections accepted")                                       \
        X(TCP_COOKIE_OUT, "SYN cookies sent (RFC 4987)")                                  \
        X(TCP_COOKIE_IN, "connections opened by a SYN cookie")                            \
        X(TCP_FASTOPEN_ASKED, "SYNs that asked for a Fast Open cookie (RFC 7413)")        \
        X(TCP_FASTOPEN_IN, "connections opened by a SYN with data or a Fast Open cookie") \
        X(TCP_FASTOPEN_WRONG, "SYNs with a Fast Open cookie that is none of ours")        \
        X(TCP_FASTOPEN_OUT, "SYNs sent with data")                                        \
        X(TCP_FASTOPEN_FAILED, "... whose data the peer did not take")                    \
        X(TCP_ANSWERED, "SYNs that the interface answered, in the peer's turn")           \
        X(TCP_PROMISED, "connections taken as they were promised, with their SYN")        \
        X(TCP_CHALLENGE, "challenge ACKs sent (RFC 5961)")                                \
        X(TCP_TIMEOUT, "connections given up after retransmitting")                       \
        X(TCP_PMTU, "path MTUs learnt from ICMP (RFC 1191)")                              \
        X(TCP_BLACK_HOLE, "segment size lowered after timeouts (RFC 4821)")               \
        X(TCP_MTU_PROBE, "larger segments tried (RFC 4821)")                              \
        X(TCP_TIME_WAIT_REUSED, "TIME-WAIT reused (RFC 6191)")                            \
        X(TCP_TIME_WAIT_RECYCLED, "TIME-WAIT cut short, table full")                      \
        X(TCP_ORPHAN_ENDED, "closed connections given up, too many of them")              \
        X(SOCK_LIMITED, "sockets that went by the kernel because of a limit")             \
        X(STACK_FORKS_REFUSED, "children not made: no slot for a process was left")       \
        X(STACK_RECOVERIES, "times a process died inside and the state was rebuilt")

enum count {
#define X(name, text) COUNT_##name,
        COUNT_LIST(X)
#undef X
                COUNT_COUNT
};

struct counters { /* in the stack's state; written under its lock, read by anybody */
        uint64_t n[COUNT_COUNT];
        uint64_t drop[DROP_COUNT];
};

static inline void count_add(struct counters *c, enum count what, uint64_t by)
{
        c->n[what] += by;
}
static inline void count(struct counters *c, enum count what)
{
        c->n[what]++;
}
static inline void count_drop(struct counters *c, enum drop why)
{
        c->drop[why]++;
}

const char *count_name(enum count what); /* "TCP_RETRANS" */
const char *count_text(enum count what);
const char *drop_name(enum drop why);
const char *drop_text(enum drop why);

#endif
