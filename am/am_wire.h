/*
 * What a message looks like: little endian, a header of 24 bytes, arguments of 8 bytes each, for
 * long messages the place in the segment, then the payload.
 *
 * 0          8          16         24
 * +--------+---------+---------+----------+----------
 * | kind form id flags | seq ack_req | ack_rep sum job | rank len | args ... | [off total] |
 * payload
 *
 * Both acknowledgements are in every message: the next request and the next reply that its sender
 * expects. A request with four arguments fills the first cache line of a ring's slot
 * (unet/shm/shm_ring.h) to the byte.
 *
 * am_wire_parse() is the only reader. Above it nobody looks at a length again.
 */
#ifndef AM_WIRE_H
#define AM_WIRE_H

#include <unet/am.h>

#include "base/base.h"

#define AM_VERSION   1u
#define AM_HDR       24u
#define AM_INLINE    UNET_EP_INLINE
#define AM_PLACE     16u /* bytes of `off` and `total` */
#define AM_WITH_ARGS (AM_HDR + UAM_ARGS * 8u + AM_PLACE)
static_assert(AM_WITH_ARGS <= AM_INLINE, "all but payload is in the descriptor");

enum am_kind {
        AM_REQ,
        AM_REP, /* numbered, each kind on its own */
        AM_ACK, /* only acknowledges; `seq` answers AM_F_ACK: AM_A_* << enum am_seq */
        AM_NACK_REQ,
        AM_NACK_REP, /* and something is missing from there on */
        AM_BYE,      /* the sender has left; `seq` is why, an errno or 0 */
        AM_KINDS
};
enum am_cat { AM_CAT_SHORT, AM_CAT_MEDIUM, AM_CAT_LONG, AM_CAT_GOT };

enum {
        AM_F_ACK = 1,  /* a timeout sent it again: answer at once */
        AM_F_LAST = 2, /* long: all of it is there now, run the handler */
};

enum {
        AM_A_MISSED = 1, /* it is taken now */
        AM_A_HAD = 4,    /* it had come before */
};

struct am_hdr {       /* as on the wire */
        uint8_t kind; /* version << 4 | enum am_kind */
        uint8_t form; /* nargs << 2 | enum am_cat */
        uint8_t id;
        uint8_t flags;
        uint16_t seq, ack_req, ack_rep;
        uint16_t sum; /* Internet checksum of everything, 0 where channels do not corrupt */
        uint32_t job, rank;
        uint32_t len; /* of the payload */
};
static_assert(sizeof(struct am_hdr) == AM_HDR, "the same in every build");

struct am_pkt { /* parsed */
        struct am_hdr h;
        enum am_kind kind;
        enum am_cat cat;
        int nargs;
        uam_arg arg[UAM_ARGS];
        uint64_t off, total; /* long, got; else not set */
        const uint8_t *inl;  /* the payload's first bytes, */
        uint32_t inl_len;    /* its others are outside the descriptor */
};

/* Bytes before the payload. */
static inline uint32_t am_wire_args_len(enum am_cat cat, int nargs)
{
        return AM_HDR + (uint32_t)nargs * 8 + (cat >= AM_CAT_LONG ? AM_PLACE : 0);
}

/* Reads a message: `n` bytes in the descriptor, which can be read up to AM_WITH_ARGS, and
 * `more` outside. False: it contradicts itself. The payload is borrowed; arguments beyond nargs
 * are rubbish. */
static inline bool am_wire_parse(const uint8_t *p, uint32_t n, uint32_t more, struct am_pkt *out)
{
        uint32_t at;

        memcpy(&out->h, p, AM_HDR);
        memcpy(out->arg, p + AM_HDR, sizeof out->arg);
        out->kind = (enum am_kind)(out->h.kind & 15);
        out->cat = (enum am_cat)(out->h.form & 3);
        out->nargs = out->h.form >> 2;
        at = am_wire_args_len(out->cat, out->nargs);
        if (unlikely(out->h.kind >> 4 != AM_VERSION || out->kind >= AM_KINDS ||
                     out->nargs > UAM_ARGS || n < at))
                return false;
        if (out->cat >= AM_CAT_LONG) {
                memcpy(&out->off, p + at - AM_PLACE, 8);
                memcpy(&out->total, p + at - AM_PLACE / 2, 8);
        }
        out->inl = p + at;
        out->inl_len = n - at;
        return (uint64_t)out->inl_len + more == out->h.len &&
               (out->cat != AM_CAT_SHORT || out->h.len == 0) &&
               (out->cat < AM_CAT_LONG || out->total >= out->h.len);
}

#endif
