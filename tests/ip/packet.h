/* For tests: messages as a provider brings them, built byte by byte, with a payload in the
 * descriptor or a frame. */
#ifndef TESTS_IP_PACKET_H
#define TESTS_IP_PACKET_H

#include <stdlib.h>

#include "ip/ip.h"
#include "base/checksum.h"

#define US           0x0a000001u /* 10.0.0.1/24 */
#define PEER         0x0a000002u
#define FAR          0xc0000201u /* 192.0.2.1 */
#define CHAN         3u
#define LOCAL_FRAMES 4u /* small ones, in the receive region of channel CHAN */

static const struct ip_ifaddr our_addrs[] = {{US, 24}, {0xc6336407, 32}};
static const struct ip_host wire = {our_addrs, ARRAY_LEN(our_addrs), .local = false, .csum = true};
static const struct ip_host same_host = {our_addrs, ARRAY_LEN(our_addrs), .local = true,
                                         .csum = false};

/* What a test says about an IP packet; zero means the ordinary. */
struct ip_spec {
        uint32_t src, dst; /* PEER, US */
        uint8_t proto;     /* UDP */
        uint8_t tos, ttl;
        uint16_t id, frag; /* flags and offset, as on the wire */
        const uint8_t *options;
        unsigned options_len; /* a multiple of 4 */
        const void *payload;
        uint32_t len;
        uint32_t in_frame; /* how many of the last bytes of the payload are in frame 1 */
        uint32_t padding;  /* bytes that the link added */
};

/* The frames a provider lends; only the receive region of CHAN is there. */
static struct frames *lent_frames(void)
{
        struct frames *f = calloc(1, sizeof *f);
        struct frame_region *r = &f->region[FRAME_REGION_RX(CHAN)];

        r->geom = (struct frame_geom){{LOCAL_FRAMES, 0}};
        r->base = malloc(frame_geom_bytes(r->geom));
        return f;
}

static void free_lent_frames(struct frames *f)
{
        free(f->region[FRAME_REGION_RX(CHAN)].base);
        free(f);
}

static void fix_ip_sum(struct unet_rx *rx)
{
        unsigned hdr_len = (rx->inl[0] & 0xfu) * 4;
        be16 sum = {0};

        memcpy(rx->inl + 10, &sum, 2);
        sum = csum_finish(csum_partial(rx->inl, hdr_len, 0));
        memcpy(rx->inl + 10, &sum, 2);
}

static void put16(uint8_t *p, unsigned v)
{
        be16 b = be16_of((uint16_t)v);

        memcpy(p, &b, 2);
}

static void put32(uint8_t *p, uint32_t v)
{
        be32 b = be32_of(v);

        memcpy(p, &b, 4);
}

static void spread_payload(struct unet_rx *rx, struct frames *f, const struct ip_spec *s,
                           unsigned hdr_len)
{
        uint32_t inl = s->len - s->in_frame;

        memcpy(rx->inl + hdr_len, s->payload, inl);
        rx->inl_len = hdr_len + inl + (s->in_frame == 0 ? s->padding : 0);
        if (s->in_frame == 0)
                return;
        rx->frame = 1;
        rx->off = 17;
        rx->len = s->in_frame + s->padding;
        memcpy(frame_addr(f, frame_id(FRAME_REGION_RX(CHAN), 1)) + rx->off,
               (const uint8_t *)s->payload + inl, s->in_frame);
}

static struct unet_rx ip_build_spec(struct frames *f, struct ip_spec s)
{
        unsigned hdr_len = 20 + s.options_len;
        struct unet_rx rx = {.inl = {(uint8_t)(0x40 + hdr_len / 4), s.tos}};

        put16(rx.inl + 2, hdr_len + s.len);
        put16(rx.inl + 4, s.id);
        put16(rx.inl + 6, s.frag);
        rx.inl[8] = s.ttl != 0 ? s.ttl : 64;
        rx.inl[9] = s.proto != 0 ? s.proto : IP_PROTO_UDP;
        put32(rx.inl + 12, s.src != 0 ? s.src : PEER);
        put32(rx.inl + 16, s.dst != 0 ? s.dst : US);
        if (s.options_len != 0)
                memcpy(rx.inl + 20, s.options, s.options_len);
        fix_ip_sum(&rx);
        if (s.len != 0)
                spread_payload(&rx, f, &s, hdr_len);
        else
                rx.inl_len = hdr_len + s.padding;
        return rx;
}
#define ip_build(frames, ...) ip_build_spec(frames, (struct ip_spec){__VA_ARGS__})

#endif
