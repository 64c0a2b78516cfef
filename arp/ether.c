/* Ethernet II input. RFC 894, RFC 1122 §2.3.3. */
#include "arp/ether.h"

#include "base/planted.h"

enum drop ether_parse(const uint8_t *p, size_t n, struct ether_hdr *h)
{
        uint16_t type;

        if (CHECKED(n < ETHER_HDR))
                return DROP_ETHER_SHORT;
        type = be16_at(p + 2 * ETHER_MAC);
        if (unlikely(type < ETHER_TYPE_MIN))
                return DROP_ETHER_LENGTH;
        if (unlikely(type == ETHER_VLAN || type == ETHER_QINQ))
                return DROP_ETHER_VLAN;
        if (unlikely(ether_is_group(p + ETHER_MAC)))
                return DROP_ETHER_SOURCE;
        memcpy(h->dst, p, ETHER_MAC);
        memcpy(h->src, p + ETHER_MAC, ETHER_MAC);
        h->type = type;
        return DROP_NONE;
}

enum drop ether_parse_tagged(const uint8_t *p, size_t n, struct ether_hdr *h, uint32_t *len)
{
        uint8_t bare[ETHER_HDR];

        if (CHECKED(n < ETHER_HDR + ETHER_TAG))
                return DROP_ETHER_SHORT;
        if ((be16_at(p + ETHER_HDR) & ETHER_VID) != 0)
                return DROP_ETHER_VLAN;
        memcpy(bare, p, 2 * ETHER_MAC);
        memcpy(bare + 2 * ETHER_MAC, p + 2 * ETHER_MAC + ETHER_TAG, 2);
        *len = ETHER_HDR + ETHER_TAG;
        return ether_parse(bare, sizeof bare, h);
}
