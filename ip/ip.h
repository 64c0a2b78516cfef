/*
 * IPv4: from a message to a packet, and the header of what leaves.
 *
 * Pure functions: the message and the host's addresses go in, a struct ip_pkt or the reason for a
 * drop comes out.
 *
 *   in:   ip_rx() -> by pkt.proto tcp_hdr_parse() and tcp_rx(), udp_hdr_parse() and udp_rx(),
 *         icmp_rx()
 *   out:  ip_hdr_write() of a template made once a connection, then the transport's header
 *
 * A message is the descriptor's bytes followed by a range of a frame (unet/ni.h). All headers are
 * in the descriptor's bytes; the payload may be in either, or begin in the one and go on in the
 * other.
 *
 * Read first: RFC 791 §3.1; RFC 1122 §3.2.1 (what a host accepts), RFC 6890 (addresses), RFC 6864
 * (the ID field).
 */
#ifndef IP_IP_H
#define IP_IP_H

#include "base/base.h"
#include "base/counters.h"
#include "base/frame.h"
#include "unet/ni.h"

#define IP_MIN_HDR 20u
#define IP_MAX_HDR 60u

enum { IP_PROTO_ICMP = 1, IP_PROTO_IGMP = 2, IP_PROTO_TCP = 6, IP_PROTO_UDP = 17 };
enum { IP_ECN_MASK = 3, IP_ECN_ECT1 = 1, IP_ECN_ECT0 = 2, IP_ECN_CE = 3 }; /* in tos; RFC 3168 §5 */

enum ip_to { IP_TO_HOST, IP_TO_BROADCAST, IP_TO_GROUP }; /* whom a packet is for */

/* One packet in host order. Pointers are into the message it was parsed from and valid as long as
 * that is. */
struct ip_pkt {
        ip_addr src, dst;
        uint8_t proto, tos, ttl;
        uint8_t hdr_len; /* bytes, options included */
        uint16_t id;
        bool dont_frag, more_frags;
        uint16_t frag_off;  /* bytes */
        uint16_t total_len; /* header and payload */
        const uint8_t *hdr; /* the header as it arrived */
        uint8_t to;         /* enum ip_to */
        bool link_cast;     /* it came as a link-layer broadcast or multicast */
        uint8_t bad;        /* with DROP_IP_OPTIONS: offset of the octet at fault */
        /* Payload: `inl_len` bytes at `inl`, then the range `data` (id 0: none). Link padding is
         * already cut off. */
        const uint8_t *inl;
        uint32_t inl_len;
        struct buf data;
};
static inline uint32_t ip_payload_len(const struct ip_pkt *pkt)
{
        return pkt->inl_len + pkt->data.len;
}

/* An address of the host and the network it is on; v4 in host order, as for all of these tables. */
struct ip_ifaddr {
        uint32_t addr;
        uint8_t prefix; /* bits; 32 and 31 have no broadcast address (RFC 3021) */
};

struct igmp;

/*
 * What decides whether a packet that came by an interface is for us. Strong ES model (RFC 1122
 * §3.3.4.2): the addresses are those of the interface it came by, and a packet for an address of
 * another interface is not ours. On a network, that is when not `local`, broadcasts are, and
 * packets for 224.0.0.1 and the groups that the interface is a member of.
 */
struct ip_host {
        const struct ip_ifaddr *addr; /* tried in order */
        uint32_t naddr;
        bool local;     /* a channel inside this host: 127.0.0.0/8 may appear, on both sides */
        bool csum;      /* the link can corrupt: verify the header checksum */
        bool link_cast; /* of this message: its link-layer destination was not ours alone */
        /* Others here have our addresses too: what they send to many comes from one of them. */
        bool shared;
        bool take_source_routes;   /* those at their end (ip_opts.h); default no */
        uint16_t ifc;              /* the interface's number in `groups` */
        const struct igmp *groups; /* NULL: none but 224.0.0.1 */
};

/* Returns true if v4 address `a` is one of the host's own (unicast). */
bool ip_host_owns(const struct ip_host *h, uint32_t a);
/* Returns true if `a` is 255.255.255.255 or the broadcast address of one of the host's networks
 * (the form of all ones; as a destination that of all zeros, RFC 1122 §3.3.6, is one too). */
bool ip_host_broadcast(const struct ip_host *h, uint32_t a);

static inline bool ip_v4_loopback(uint32_t a)
{
        return a >> 24 == 127;
}
static inline bool ip_v4_multicast(uint32_t a)
{
        return a >> 28 == 0xe;
}

/*
 * Parses a header of which `n` bytes are at hand, all of it. Fills everything but the payload.
 * Returns 0 or -DROP_* (counters.h): short, version, header length, total length below the
 * header's. Options are not looked into: see ip_opts.h. With `csum` the checksum is verified too.
 */
int ip_hdr_parse(const uint8_t *p, size_t n, bool csum, struct ip_pkt *pkt);

/*
 * A message arrived on channel `chan`. Returns DROP_NONE and the packet, or the reason why it must
 * be dropped; the caller counts it, and releases the message's frame in any case that does not pass
 * it on. With DROP_IP_NOT_OURS, _MARTIAN, _OPTIONS, _SOURCE_ROUTE and _FRAGMENT the packet is
 * filled in too: a parameter problem is due about options (icmp_may_answer() and so on; the pointer
 * is pkt.bad), and reassembly begins at the last (reass.h). A TTL of 0 or 1 is of no matter to a
 * host (RFC 1122 §3.2.1.7).
 */
enum drop ip_rx(const struct ip_host *h, uint16_t chan, const struct unet_rx *rx,
                struct ip_pkt *pkt);

/* A header of 20 bytes, all but length and ID filled in and summed; plain values, may be kept
 * anywhere. In words as they lie in memory: a header is made in registers and stored whole, not
 * written in bytes and read in words. */
struct ip_tmpl {
        uint64_t first, second; /* length, ID and checksum zero */
        uint32_t dst;
        uint32_t sum;
};

static inline void ip_tmpl_init(struct ip_tmpl *t, ip_addr src, ip_addr dst, uint8_t proto,
                                uint8_t tos, uint8_t ttl, bool dont_frag)
{
        const uint64_t df = 0x40; /* RFC 791 §3.1: bit 1 of the flags, in byte 6 */
        uint64_t sum;

        t->first = 0x45 | (uint64_t)tos << 8 | (dont_frag ? df << 48 : 0);
        t->second = ttl | (uint64_t)proto << 8 | src.w[1] >> 32 << 32;
        t->dst = (uint32_t)(dst.w[1] >> 32);
        sum = (uint32_t)t->first + (t->first >> 32) + (uint32_t)t->second + (t->second >> 32) +
              t->dst;
        sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
        t->sum = (uint32_t)sum;
}

/* Writes the header for a packet of total_len bytes, header included. RFC 6864 §4: what is never
 * fragmented (DF set, and not a fragment) needs no unique ID. */
static inline void ip_hdr_write(const struct ip_tmpl *t, uint8_t p[IP_MIN_HDR], uint16_t total_len,
                                uint16_t id)
{
        uint64_t len = be16_of(total_len).raw, ident = be16_of(id).raw, first, second;
        uint32_t sum = t->sum + (uint32_t)len + (uint32_t)ident;

        sum = (sum & 0xffff) + (sum >> 16);
        first = t->first | len << 16 | ident << 32;
        second = t->second | (uint64_t)(uint16_t) ~(sum + (sum >> 16)) << 16;
        memcpy(p, &first, 8);
        memcpy(p + 8, &second, 8);
        memcpy(p + 16, &t->dst, 4);
}

/* The two bits of ECN in a header that is whole, and its checksum (RFC 1624). */
static inline void ip_hdr_set_ecn(uint8_t p[IP_MIN_HDR], uint8_t ecn)
{
        uint16_t word, sum;
        uint32_t s;

        memcpy(&word, p, 2);
        memcpy(&sum, p + 10, 2);
        s = (uint16_t)~sum + (uint32_t)(uint16_t)~word;
        p[1] = (uint8_t)((p[1] & ~IP_ECN_MASK) | ecn);
        memcpy(&word, p, 2);
        s += word;
        s = (s & 0xffff) + (s >> 16);
        sum = (uint16_t) ~(s + (s >> 16));
        memcpy(p + 10, &sum, 2);
}

#endif
