/*
 * A segment: its header and options, on the wire and in host order (RFC 9293 §3.1).
 */
#ifndef TCP_TCP_HDR_H
#define TCP_TCP_HDR_H

#include "base/frame.h"

enum { /* RFC 9293 §3.1, the control bits as on the wire */
       TCP_FIN = 0x01,
       TCP_SYN = 0x02,
       TCP_RST = 0x04,
       TCP_PSH = 0x08,
       TCP_ACK = 0x10,
       TCP_URG = 0x20,
       TCP_ECE = 0x40,
       TCP_CWR = 0x80,
};

#define TCP_MAX_SACK   4
#define TCP_MAX_COOKIE 16
#define TCP_MIN_HDR    20u
#define TCP_MAX_HDR    60u
#define TCP_NO_WSCALE  0xff

struct tcp_sack_block {
        uint32_t left, right;
};

/* One segment in host order; the same for what arrives and what leaves. */
struct tcp_seg {
        uint16_t sport, dport;
        uint32_t seq, ack;
        uint32_t len; /* payload bytes (SYN and FIN not counted) */
        uint16_t wnd; /* as on the wire, unscaled */
        uint16_t urg;
        uint8_t flags;
        uint8_t wscale; /* option on a SYN, TCP_NO_WSCALE: absent */
        uint16_t mss;   /* option on a SYN, 0: absent */
        bool sack_ok, has_ts;
        uint8_t nsack;
        uint8_t ecn; /* IP's bits, enum of ip/ip.h: what came, or what is to leave (RFC 3168 §5) */
        uint8_t ttl; /* what came, for opts.min_ttl */
        /* Fast Open option on a SYN (RFC 7413 §4.1.1): 1 + bytes of `cookie`; 0: absent. */
        uint8_t fastopen;
        bool fastopen_old; /* ... by its experimental number */
        uint32_t tsval, tsecr;
        union {
                struct tcp_sack_block sack[TCP_MAX_SACK]; /* no SYN has any */
                uint8_t cookie[TCP_MAX_COOKIE];
        };
        /* Payload: bytes at `inl` when it came in the descriptor (valid for the call), else the
         * range `data`. */
        const uint8_t *inl;
        struct buf data;
        /* The payload, at `inl`, is not summed yet: all else sums to `sum`, the pseudo header with
         * it (base/checksum.h). */
        bool unsummed;
        uint32_t sum;
};

/* Parses a header and its options; `p` has n bytes, header first. Returns the header's length, or
 * -DROP_* (counters.h) when it is malformed. Checksums are verified by the caller, who has the
 * pseudo-header. seg->len is left alone, seg->ecn is none, and nothing is unsummed. */
int tcp_hdr_parse(const uint8_t *p, size_t n, struct tcp_seg *seg);
/* Writes the header with options, checksum field zero; returns its length, <= TCP_MAX_HDR. What it
 * writes parses back. */
unsigned tcp_hdr_write(const struct tcp_seg *seg, uint8_t *p);

#endif
