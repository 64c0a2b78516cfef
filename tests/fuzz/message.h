/*
 * For fuzz targets of IP and above: input bytes become a message as a provider brings it. The first
 * byte says what the link is like, the second how many bytes come in the descriptor; the rest is
 * the message, its tail in a lent frame.
 */
#ifndef TESTS_FUZZ_MESSAGE_H
#define TESTS_FUZZ_MESSAGE_H

#include <stdlib.h>

#include "ip/ip.h"
#include "base/checksum.h"
#include "tests/fuzz/fuzz.h"

#define FUZZ_US     0x0a000001u
#define FUZZ_PEER   0x0a000002u
#define FUZZ_CHAN   1u
#define FUZZ_PREFIX 2u /* bytes before the message */

/* Bits of the first byte. */
enum { FUZZ_LOCAL = 1, FUZZ_CSUM = 2, FUZZ_FIX_SUM = 4 };

static const struct ip_ifaddr fuzz_addr = {FUZZ_US, 24};

struct fuzz_message {
        struct unet_rx rx;
        struct ip_host host;
        struct frames *frames; /* with one small lent frame, of exactly the bytes that are in it */
};

/* Mutated packets seldom have a right checksum: put it right, so that the code behind it is
 * reached too. */
static inline void fuzz_fix_ip_sum(struct unet_rx *rx)
{
        unsigned hdr_len = (rx->inl[0] & 0xfu) * 4;
        be16 sum = {0};

        if (rx->inl_len < 20 || hdr_len < 20 || hdr_len > rx->inl_len)
                return;
        memcpy(rx->inl + 10, &sum, 2);
        sum = csum_finish(csum_partial(rx->inl, hdr_len, 0));
        memcpy(rx->inl + 10, &sum, 2);
}

/* False: too short to be one. Else fuzz_message_free() it. */
static inline bool fuzz_message(const uint8_t *data, size_t size, struct fuzz_message *m)
{
        static struct frames frames; /* large, and the same each time but for one region */
        uint32_t inl, rest;

        if (size < FUZZ_PREFIX || size > FUZZ_PREFIX + FRAME_SMALL_BYTES)
                return false;
        *m = (struct fuzz_message){.host = {.addr = &fuzz_addr,
                                            .naddr = 1,
                                            .local = data[0] & FUZZ_LOCAL,
                                            .csum = data[0] & FUZZ_CSUM}};
        inl = MIN(MIN(data[1], UNET_INLINE_MAX), (uint32_t)(size - FUZZ_PREFIX));
        rest = (uint32_t)(size - FUZZ_PREFIX) - inl;
        memcpy(m->rx.inl, data + FUZZ_PREFIX, inl);
        m->rx.inl_len = inl;
        m->frames = &frames;
        frames.region[FRAME_REGION_RX(FUZZ_CHAN)] = (struct frame_region){0};
        if (rest != 0) {
                struct frame_region *r = &m->frames->region[FRAME_REGION_RX(FUZZ_CHAN)];
                r->geom = (struct frame_geom){{[FRAME_SMALL] = 1}};
                r->base = malloc(rest);
                memcpy(r->base, data + FUZZ_PREFIX + inl, rest);
                m->rx.frame = 1;
                m->rx.len = rest;
        }
        if (data[0] & FUZZ_FIX_SUM)
                fuzz_fix_ip_sum(&m->rx);
        return true;
}

static inline void fuzz_message_free(struct fuzz_message *m)
{
        free(m->frames->region[FRAME_REGION_RX(FUZZ_CHAN)].base);
}

/* Writes a seed: link, descriptor's share, an IP header without options for `len` bytes of payload,
 * and the payload. */
static inline size_t fuzz_seed_packet(uint8_t *buf, uint8_t link, uint8_t inl, uint8_t proto,
                                      const void *payload, uint16_t len)
{
        struct ip_tmpl t;

        ip_tmpl_init(&t, ip_addr_v4(FUZZ_PEER), ip_addr_v4(FUZZ_US), proto, 0, 64, true);
        buf[0] = link;
        buf[1] = inl;
        ip_hdr_write(&t, buf + FUZZ_PREFIX, (uint16_t)(IP_MIN_HDR + len), 1);
        memcpy(buf + FUZZ_PREFIX + IP_MIN_HDR, payload, len);
        return FUZZ_PREFIX + IP_MIN_HDR + len;
}

#endif
