/*
 * A raw endpoint's message in an Ethernet frame of a type of our own, as a link over an interface
 * sends it to one other address:
 *
 *   | to 6 | from 6 | 0x88b5 2 | inline bytes 2 | all bytes 2 | inline bytes | the rest |
 *
 * Numbers are big-endian.
 *
 * Ethernet loses, may pad, and nobody says that the peer is gone.
 */
#ifndef TESTS_UNET_ETHER_MSG_H
#define TESTS_UNET_ETHER_MSG_H

#include "base/base.h"
#include "base/counters.h"
#include "unet/ni.h"

#define ETHER_MSG_TYPE 0x88b5u /* IEEE 802, for local experiments */

struct ether_msg {
        uint8_t to[6], from[6];
        be16 type, inl_len, len;
};
static_assert(sizeof(struct ether_msg) == 18, "as on the wire");

#define ETHER_BYTES      14u /* of a frame before its payload */
#define ETHER_MSG_INLINE (UNET_INLINE_MAX - sizeof(struct ether_msg))

/* The header of what goes from one address to another, but for the lengths. */
static inline struct ether_msg ether_msg_to(const uint8_t from[6], const uint8_t to[6])
{
        struct ether_msg h = {.type = be16_of(ETHER_MSG_TYPE)};

        memcpy(h.to, to, sizeof h.to);
        memcpy(h.from, from, sizeof h.from);
        return h;
}

/* Whether a frame with this header, and so many bytes behind it, is a message of the peer's; `mine`
 * is the header of what is sent to it. */
static inline enum drop ether_msg_check(const struct ether_msg *mine, const struct ether_msg *h,
                                        uint32_t behind)
{
        if (h->type.raw != mine->type.raw || memcmp(h->to, mine->from, sizeof h->to) != 0)
                return DROP_NI_NO_CHANNEL;
        if (memcmp(h->from, mine->to, sizeof h->from) != 0)
                return DROP_NI_BAD_SOURCE;
        if (be16_get(h->len) > behind || be16_get(h->inl_len) > be16_get(h->len) ||
            be16_get(h->inl_len) > ETHER_MSG_INLINE)
                return DROP_NI_MALFORMED;
        return DROP_NONE;
}

#endif
