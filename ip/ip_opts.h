/*
 * IP options of a received header: checked, found, and answered.
 *
 * ip_rx() has seen that each option's length fits the header. ip_opts_parse() says what is in them;
 * unknown ones are passed over (RFC 1122 §3.2.1.8). Two it is strict about, because acting on them
 * would need them right: record route and timestamp with a length or pointer that cannot be (an
 * ICMP parameter problem points to the octet), and source routes: a host that is not asked to take
 * them drops what still is to go elsewhere, and what came by one (RFC 7126 §4.3 and .4, against RFC
 * 1122 §3.2.1.8 (c): hosts that answer along the sender's route can be spoken to by anybody as
 * anybody).
 *
 * Options that an application has to do with are in the form of IP_OPTIONS, IP_RECVOPTS and
 * IP_RETOPTS (ip(7)), as Linux's (net/ipv4/ip_options.c): a source route lists the hops without the
 * destination, the first of them first.
 *
 *   to be sent:  ip_opts_set() ... ip_opts_build() for each packet
 *   received:    ip_opts_record() -> IP_RECVOPTS; ip_opts_back() -> IP_RETOPTS, and a TCP
 *                connection's answers
 *
 * Read first: RFC 791 §3.1; RFC 1122 §3.2.1.8 and §3.2.2.6; RFC 7126.
 */
#ifndef IP_IP_OPTS_H
#define IP_IP_OPTS_H

#include "ip/ip.h"

#define IP_OPTS_MAX 40u

enum {
        IPOPT_END = 0,
        IPOPT_NOP = 1,
        IPOPT_RR = 7,
        IPOPT_TS = 68,
        IPOPT_SECURITY = 130,
        IPOPT_LSRR = 131,
        IPOPT_STREAM_ID = 136,
        IPOPT_SSRR = 137,
        IPOPT_ALERT = 148, /* RFC 2113 */
        IPOPT_COPIED = 0x80,
};

/* The offsets of options from the header's start; 0: not there. */
struct ip_opts_found {
        uint8_t rr, ts, sr;
        bool sr_done; /* the source route has been gone to its end */
        bool alert;
};

/*
 * Reads the options of a whole header. DROP_NONE; DROP_IP_OPTIONS: malformed, *bad is the offset of
 * the octet at fault, for ICMP_PARAMETER_PROBLEM; DROP_IP_SOURCE_ROUTE unless `take_sr`, and with
 * it when the route is not at its end.
 */
enum drop ip_opts_parse(const uint8_t *hdr, unsigned hdr_len, bool take_sr, struct ip_opts_found *o,
                        uint8_t *bad);

/*
 * The options of the answer to an ICMP echo or timestamp request (RFC 1122 §3.2.2.6): record route
 * and timestamp as they came, with us added as far as there is room (an overflow is counted); the
 * source route the other way round, when `o` has one, and then *first_hop is where the answer goes
 * first. `us`: the address that was spoken to; `ms`: a time for the timestamp option, with the high
 * bit set when it is not milliseconds since midnight UT. Returns the bytes written, a multiple of
 * 4, 0: none.
 */
unsigned ip_opts_answer(const uint8_t *hdr, const struct ip_opts_found *o, uint32_t us,
                        uint32_t peer, uint32_t ms, uint8_t out[IP_OPTS_MAX], uint32_t *first_hop);

/* Options beside a packet, padded to a multiple of 4. len 0: none. */
struct ip_optbuf {
        uint8_t len;
        uint8_t raw[IP_OPTS_MAX];
};

/* Takes what an application wants sent: -EINVAL for what is malformed or there twice, for a source
 * route whose pointer is not at its first hop, and, unless `any` (CAP_NET_RAW), for kinds that it
 * may not send: all but record route, timestamp, source routes and router alert. In `out` the
 * places that are ours to fill in are zero, and so is all after an end. */
int ip_opts_set(const uint8_t *opts, unsigned n, bool any, struct ip_optbuf *out);

/* Writes the options as they stand in a packet from `us` to `dst`: with us and the time (as below)
 * where they are wanted, and dst at the end of a source route. Writes o->len bytes. Returns where
 * the packet goes first: dst, or the source route's first hop. */
uint32_t ip_opts_build(const struct ip_optbuf *o, uint32_t us, uint32_t dst, uint32_t ms,
                       uint8_t out[IP_OPTS_MAX]);
/* The same without writing. */
uint32_t ip_opts_first_hop(const struct ip_optbuf *o, uint32_t dst);

/* A header of IP_MIN_HDR bytes gets the n bytes of options that stand behind it: length
 * and checksum. */
void ip_opts_seal(uint8_t *hdr, unsigned n);

/* Copies the options of a header that ip_opts_parse() accepted, with us in record route and
 * timestamp (RFC 791 §3.1). */
void ip_opts_record(const uint8_t *hdr, unsigned hdr_len, uint32_t us, uint32_t ms,
                    struct ip_optbuf *out);

/* Makes the options that answer these, for ip_opts_set(): record route and timestamp as they are,
 * and the source route the other way round, without the sender (RFC 1122 §3.2.1.8 c). Returns false
 * if there is no room for what they ask. */
bool ip_opts_back(const struct ip_optbuf *came, uint32_t peer, struct ip_optbuf *out);

#endif
