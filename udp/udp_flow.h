/*
 * Header prediction for datagrams: one that differs from an accepted one before it only in what may
 * differ (lengths, ID and IP checksum) is for the same pcb, and needs neither the checks nor the
 * look-up again.
 *
 * Only for links that do not corrupt: no checksum is looked at. A flow is plain values, in a
 * process's view.
 */
#ifndef UDP_UDP_FLOW_H
#define UDP_UDP_FLOW_H

#include "base/checksum.h"
#include "udp/udp.h"

struct udp_flow {
        /* Words of the IP header and the ports, as they lie in memory; 0: none. */
        uint64_t first, second, third;
        struct udp_tuple tuple;
        uint32_t pcb;
        uint64_t keys;  /* udp_keys() when it was found */
        uint64_t addrs; /* generation of the host's addresses then; the caller's */
};

/* version, header length, TOS; flags and fragment offset. */
#define UDP_FLOW_FIRST  0xffff00000000ffffull
#define UDP_FLOW_SECOND 0xffffffff0000ffffull /* TTL, protocol; source */

static inline uint64_t udp_flow_word(const uint8_t *p)
{
        uint64_t w;

        memcpy(&w, p, 8);
        return w;
}

static inline uint16_t udp_flow_len(const uint8_t *p)
{
        be16 len;

        memcpy(&len, p, 2);
        return be16_get(len);
}

/* A message of channel `chan` that has at least room for both headers in the descriptor. True: it
 * is for f->pcb. */
static inline bool udp_flow_match(const struct udp_flow *f, const struct udp *u, uint16_t chan,
                                  uint64_t addrs, const struct unet_rx *rx)
{
        uint32_t len = rx->inl_len + (rx->frame != 0 ? rx->len : 0);

        return (udp_flow_word(rx->inl) & UDP_FLOW_FIRST) == f->first &&
               (udp_flow_word(rx->inl + 8) & UDP_FLOW_SECOND) == f->second &&
               udp_flow_word(rx->inl + 16) == f->third && udp_flow_len(rx->inl + 2) == len &&
               udp_flow_len(rx->inl + IP_MIN_HDR + 4) == len - IP_MIN_HDR &&
               f->tuple.chan == chan && f->keys == udp_keys(u) && f->addrs == addrs;
}

/* Takes the datagram of a message that matched. */
static inline void udp_flow_take(const struct udp_flow *f, uint16_t chan, const struct unet_rx *rx,
                                 struct udp_dgram *d)
{
        d->tuple = f->tuple;
        d->inl = rx->inl + IP_MIN_HDR + UDP_HDR;
        d->inl_len = rx->inl_len - (IP_MIN_HDR + UDP_HDR);
        d->opts = NULL;
        d->data = (struct buf){0};
        if (rx->frame != 0)
                d->data =
                        (struct buf){frame_id(FRAME_REGION_RX(chan), rx->frame), rx->off, rx->len};
}

/* A datagram that was accepted, whose IP header has no options, becomes the flow. */
static inline void udp_flow_learn(struct udp_flow *f, const struct udp *u, uint32_t pcb,
                                  uint64_t addrs, const uint8_t *hdr, const struct udp_tuple *t)
{
        f->first = udp_flow_word(hdr) & UDP_FLOW_FIRST;
        f->second = udp_flow_word(hdr + 8) & UDP_FLOW_SECOND;
        f->third = udp_flow_word(hdr + 16);
        f->tuple = *t;
        f->pcb = pcb;
        f->keys = udp_keys(u);
        f->addrs = addrs;
}

#endif
