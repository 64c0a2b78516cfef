/*
 * Ethernet II frames (RFC 894, RFC 1122 §2.3.3): a header of 14 bytes in front of each packet.
 *
 *       0           6          12    14
 *      +-----------+-----------+-----+----------------------------+
 *      |    dst    |    src    |type | packet, padded to 46 bytes |
 *      +-----------+-----------+-----+----------------------------+
 *
 * The padding is cut off by whoever knows the packet's length: ip_rx(), arp_input(). What is not
 * Ethernet II is dropped and counted: frames with a length where the type would be (IEEE 802.3, so
 * RFC 1042 encapsulation, which nobody sends by default) and frames of a VLAN (an interface of ours
 * is untagged). A tag of VLAN 0 names none, but a priority: such a frame is as good as untagged
 * (IEEE 802.1Q).
 */
#ifndef ARP_ETHER_H
#define ARP_ETHER_H

#include "base/base.h"
#include "base/counters.h"

#define ETHER_HDR 14u
/* Between the addresses and the type: a type of its own, then priority and VLAN. */
#define ETHER_TAG 4u
#define ETHER_MAC 6u
/* Payload of the shortest frame; what is less is padded by the device. */
#define ETHER_MIN_PKT 46u

/* Types. Below ETHER_TYPE_MIN the field is a length (IEEE 802.3 §3.2.6). */
enum {
        ETHER_TYPE_MIN = 0x0600,
        ETHER_IPV4 = 0x0800,
        ETHER_ARP = 0x0806,
        ETHER_VLAN = 0x8100, /* IEEE 802.1Q */
        ETHER_IPV6 = 0x86dd,
        ETHER_QINQ = 0x88a8, /* IEEE 802.1ad */
};

#define ETHER_VID 0x0fffu /* of a tag: the VLAN */

struct ether_hdr {
        uint8_t dst[ETHER_MAC], src[ETHER_MAC];
        uint16_t type; /* host order */
};

/* The destination of a frame. RFC 1122 §2.4: IP is told, since it treats a link-layer
 * broadcast differently. */
enum ether_cast { ETHER_TO_US, ETHER_TO_ALL, ETHER_TO_GROUP, ETHER_TO_OTHER };

static const uint8_t ether_broadcast[ETHER_MAC] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

static inline bool ether_is_group(const uint8_t mac[ETHER_MAC]) /* multicast, or broadcast */
{
        return mac[0] & 1;
}
static inline bool ether_eq(const uint8_t a[ETHER_MAC], const uint8_t b[ETHER_MAC])
{
        return memcmp(a, b, ETHER_MAC) == 0;
}

/* RFC 1112 §6.4: the low 23 bits of the group behind 01:00:5e. Thirty-two groups share
 * an address. */
static inline void ether_multicast_v4(uint32_t group, uint8_t mac[ETHER_MAC])
{
        const uint8_t to[ETHER_MAC] = {
                0x01,          0x00, 0x5e, (uint8_t)(group >> 16 & 0x7f), (uint8_t)(group >> 8),
                (uint8_t)group};

        memcpy(mac, to, ETHER_MAC);
}

static inline enum ether_cast ether_cast_of(const struct ether_hdr *h,
                                            const uint8_t ours[ETHER_MAC])
{
        if (likely(ether_eq(h->dst, ours)))
                return ETHER_TO_US;
        if (!ether_is_group(h->dst))
                return ETHER_TO_OTHER;
        return ether_eq(h->dst, ether_broadcast) ? ETHER_TO_ALL : ETHER_TO_GROUP;
}

/* Reads the header of a frame of which `n` bytes are at hand. DROP_NONE, or why the frame is
 * dropped; *h is filled in on success only. Whether the type is one that is spoken here is the
 * caller's to find (DROP_ETHER_TYPE), and whether the frame was for us (DROP_ETHER_NOT_OURS). */
enum drop ether_parse(const uint8_t *p, size_t n, struct ether_hdr *h);

/* The same for a frame that is dropped as DROP_ETHER_VLAN: it is read if it is of VLAN 0. *len: its
 * header with the tag. */
enum drop ether_parse_tagged(const uint8_t *p, size_t n, struct ether_hdr *h, uint32_t *len);

static inline void ether_write(uint8_t p[ETHER_HDR], const uint8_t dst[ETHER_MAC],
                               const uint8_t src[ETHER_MAC], uint16_t type)
{
        be16 t = be16_of(type);

        memcpy(p, dst, ETHER_MAC);
        memcpy(p + ETHER_MAC, src, ETHER_MAC);
        memcpy(p + 2 * ETHER_MAC, &t, sizeof t);
}

#endif
