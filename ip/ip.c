/*
 * IPv4 input. RFC 791 §3.1, RFC 1122 §3.2.1.
 *
 * ip_rx() -> ip_hdr_parse() -> place_payload() -> check_addresses() -> check_options()
 */
#include "ip/ip.h"

#include "ip/igmp.h"
#include "ip/ip_opts.h"
#include "base/checksum.h"
#include "base/planted.h"

/* As on the wire. */
struct ip_hdr {
        uint8_t ver_ihl, tos;
        be16 total_len, id, frag;
        uint8_t ttl, proto;
        be16 sum;
        be32 src, dst;
};
static_assert(sizeof(struct ip_hdr) == IP_MIN_HDR, "RFC 791 §3.1");

enum { FRAG_DF = 0x4000, FRAG_MF = 0x2000, FRAG_OFFSET = 0x1fff };

/* ---- addresses ---- */

static uint32_t host_mask(const struct ip_ifaddr *a)
{
        return a->prefix >= 32 ? 0 : UINT32_MAX >> a->prefix;
}

bool ip_host_owns(const struct ip_host *h, uint32_t a)
{
        for (uint32_t i = 0; i < h->naddr; i++)
                if (h->addr[i].addr == a)
                        return true;
        return h->local && ip_v4_loopback(a);
}

bool ip_host_broadcast(const struct ip_host *h, uint32_t a)
{
        if ((a & 3) != 3)
                return false; /* two bits of host part at the least, all ones */
        for (uint32_t i = 0; i < h->naddr; i++)
                if (h->addr[i].prefix <= 30 && a == (h->addr[i].addr | host_mask(&h->addr[i])))
                        return true;
        return a == UINT32_MAX;
}

/* RFC 1122 §3.2.1.3: what cannot be a source: a group, a broadcast, class E, "this host" (that is
 * for DHCP), and when the packet came from outside loopback and ourselves ("land"). */
static bool martian_source(const struct ip_host *h, uint32_t src)
{
        if (ip_v4_loopback(src))
                return !h->local;
        if (!h->local && ip_host_owns(h, src))
                return true;
        return src >> 28 >= 0xe || src >> 24 == 0 || ip_host_broadcast(h, src);
}

/* Returns true if the packet is what another stack of this host sends to a group or to
 * everybody. */
static bool from_beside(const struct ip_host *h, uint32_t src, uint32_t dst)
{
        return h->shared && ip_host_owns(h, src) &&
               (ip_v4_multicast(dst) || ip_host_broadcast(h, dst));
}

/* RFC 1122 §3.3.6: the old form of a broadcast, with a host part of zeros. As a destination only:
 * as a source 0.0.0.0 is a martian and a network's own address is nobody's. */
static bool zeros_broadcast(const struct ip_host *h, uint32_t a)
{
        for (uint32_t i = 0; i < h->naddr; i++)
                if (h->addr[i].prefix <= 30 && a == (h->addr[i].addr & ~host_mask(&h->addr[i])))
                        return true;
        return a == 0;
}

static bool group_is_ours(const struct ip_host *h, uint32_t group)
{
        return group == IGMP_ALL_HOSTS ||
               (h->groups != NULL && igmp_member(h->groups, h->ifc, group));
}

/* A destination that is no address of ours. Sets pkt->to. */
static enum drop check_many(const struct ip_host *h, uint32_t dst, struct ip_pkt *pkt)
{
        if (ip_v4_loopback(dst))
                return DROP_IP_MARTIAN; /* must not be seen on a wire */
        if (h->local)
                return DROP_IP_NOT_OURS; /* a channel has one other end */
        if (ip_v4_multicast(dst)) {
                pkt->to = IP_TO_GROUP;
                return group_is_ours(h, dst) ? DROP_NONE : DROP_IP_NOT_OURS;
        }
        if (!ip_host_broadcast(h, dst) && !zeros_broadcast(h, dst))
                return DROP_IP_NOT_OURS;
        pkt->to = IP_TO_BROADCAST;
        return DROP_NONE;
}

static enum drop check_addresses(const struct ip_host *h, uint32_t src, uint32_t dst,
                                 struct ip_pkt *pkt)
{
        if (unlikely(martian_source(h, src)) && !from_beside(h, src, dst))
                return DROP_IP_MARTIAN;
        if (unlikely(!ip_host_owns(h, dst)))
                return check_many(h, dst, pkt);
        /* RFC 1122 §3.3.6: a trap for those who forward such packets. */
        return unlikely(h->link_cast) ? DROP_IP_LINK_CAST : DROP_NONE;
}

/* ---- header ---- */

static void fill(const struct ip_hdr *h, const uint8_t *p, struct ip_pkt *pkt)
{
        uint16_t frag = be16_get(h->frag);

        pkt->src = ip_addr_v4(be32_get(h->src));
        pkt->dst = ip_addr_v4(be32_get(h->dst));
        pkt->proto = h->proto;
        pkt->tos = h->tos;
        pkt->ttl = h->ttl;
        pkt->id = be16_get(h->id);
        pkt->dont_frag = frag & FRAG_DF;
        pkt->more_frags = frag & FRAG_MF;
        pkt->frag_off = (uint16_t)((frag & FRAG_OFFSET) * 8);
        pkt->total_len = be16_get(h->total_len);
        pkt->hdr = p;
}

int ip_hdr_parse(const uint8_t *p, size_t n, bool csum, struct ip_pkt *pkt)
{
        struct ip_hdr h;

        if (n < IP_MIN_HDR)
                return -DROP_IP_SHORT;
        memcpy(&h, p, sizeof h);
        if (h.ver_ihl >> 4 != 4)
                return -DROP_IP_VERSION;
        pkt->hdr_len = (uint8_t)((h.ver_ihl & 0xf) * 4);
        if (pkt->hdr_len < IP_MIN_HDR)
                return -DROP_IP_HEADER;
        if (pkt->hdr_len > n || be16_get(h.total_len) < pkt->hdr_len)
                return -DROP_IP_SHORT;
        if (csum &&
            csum_finish(likely(pkt->hdr_len == IP_MIN_HDR) ? csum_partial20(p)
                                                           : csum_partial(p, pkt->hdr_len, 0))
                            .raw != 0)
                return -DROP_IP_CHECKSUM;
        fill(&h, p, pkt);
        return 0;
}

/* Payload is what the header counts; bytes of link padding after it are left out. False: there is
 * less than that. */
static bool place_payload(const struct unet_rx *rx, uint16_t chan, struct ip_pkt *pkt)
{
        uint32_t len = (uint32_t)pkt->total_len - pkt->hdr_len,
                 inl_len = rx->inl_len - pkt->hdr_len;
        uint32_t frame_len = rx->frame != 0 ? rx->len : 0;

        pkt->inl = rx->inl + pkt->hdr_len;
        pkt->inl_len = MIN(len, inl_len);
        len -= pkt->inl_len;
        if (CHECKED(len > frame_len))
                return false;
        pkt->data = (struct buf){0};
        if (len != 0)
                pkt->data = (struct buf){frame_id(FRAME_REGION_RX(chan), rx->frame), rx->off, len};
        return true;
}

static enum drop check_options(const struct ip_host *h, struct ip_pkt *pkt)
{
        struct ip_opts_found o;

        return ip_opts_parse(pkt->hdr, pkt->hdr_len, h->take_source_routes, &o, &pkt->bad);
}

enum drop ip_rx(const struct ip_host *h, uint16_t chan, const struct unet_rx *rx,
                struct ip_pkt *pkt)
{
        int err = ip_hdr_parse(rx->inl, rx->inl_len, h->csum, pkt);
        enum drop why;

        if (unlikely(err != 0))
                return (enum drop) - err;
        if (unlikely(!place_payload(rx, chan, pkt)))
                return DROP_IP_SHORT;
        pkt->to = IP_TO_HOST;
        pkt->link_cast = h->link_cast;
        why = check_addresses(h, ip_addr_get_v4(pkt->src), ip_addr_get_v4(pkt->dst), pkt);
        if (unlikely(why != DROP_NONE))
                return why;
        if (unlikely(pkt->hdr_len > IP_MIN_HDR)) {
                why = check_options(h, pkt);
                if (why != DROP_NONE)
                        return why;
        }
        if (unlikely(pkt->more_frags || pkt->frag_off != 0))
                return DROP_IP_FRAGMENT;
        return DROP_NONE;
}
