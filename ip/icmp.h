/*
 * ICMP for IPv4: echo, and errors in both directions.
 *
 * The road in: ip_rx() -> icmp_rx(), which says what the message is.
 *
 *     ICMP_IS_ECHO   the caller finds room for ip_payload_len() bytes, icmp_echo_reply() fills it
 *     ICMP_IS_ERROR  msg.err names the connection concerned: tcp_icmp() or udp_icmp(), by err.proto
 *     ICMP_IS_REPLY  an answer to an echo of ours: for whoever asked
 *
 * The road out for errors: icmp_may_answer(), icmp_rate_take(), icmp_error_write().
 *
 * Read first: RFC 792; RFC 1122 §3.2.2 and §4.2.3.9, RFC 1812 §4.3.2 (sizes, rates), RFC 1191 §4,
 * RFC 5927.
 */
#ifndef IP_ICMP_H
#define IP_ICMP_H

#include "ip/ip.h"
#include "base/prng.h"

#define ICMP_HDR       8u
#define ICMP_MAX_ERROR 576u /* RFC 1812 §4.3.2.3: the whole datagram with the error in it */

/* Types. */
enum {
        ICMP_ECHO_REPLY = 0,
        ICMP_UNREACHABLE = 3,
        ICMP_SOURCE_QUENCH = 4,
        ICMP_REDIRECT = 5,
        ICMP_ECHO_REQUEST = 8,
        ICMP_TIME_EXCEEDED = 11,
        ICMP_PARAMETER_PROBLEM = 12,
};
/* Returns true if a message of this type quotes a packet, about which it is. */
static inline bool icmp_is_error(uint8_t type)
{
        return type == ICMP_UNREACHABLE || type == ICMP_SOURCE_QUENCH ||
               type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETER_PROBLEM;
}
enum { ICMP_REASSEMBLY_TIME = 1 }; /* code of ICMP_TIME_EXCEEDED */
/* Codes of ICMP_UNREACHABLE. */
enum {
        ICMP_NET_UNREACHABLE = 0,
        ICMP_HOST_UNREACHABLE = 1,
        ICMP_PROTOCOL_UNREACHABLE = 2,
        ICMP_PORT_UNREACHABLE = 3,
        ICMP_FRAG_NEEDED = 4,
        ICMP_SOURCE_ROUTE_FAILED = 5,
        ICMP_NET_UNKNOWN = 6,
        ICMP_HOST_UNKNOWN = 7,
        ICMP_HOST_ISOLATED = 8,
        ICMP_NET_PROHIBITED = 9,
        ICMP_HOST_PROHIBITED = 10,
        ICMP_NET_TOS = 11,
        ICMP_HOST_TOS = 12,
        ICMP_ADMIN_PROHIBITED = 13,
};

/* An error about a packet that we sent, seen from here: `laddr` is ours. */
struct icmp_err {
        uint8_t type, code;
        uint8_t proto; /* of the packet quoted */
        bool hard;     /* RFC 1122 §4.2.3.9, §3.3.8: no use in trying again. Only a hint */
        int err;       /* errno as Linux maps it, 0: nothing to report (source quench) */
        uint32_t mtu;  /* ICMP_FRAG_NEEDED: of the next hop, 0: it did not say (RFC 1191 §5) */
        ip_addr laddr, raddr;  /* source and destination of the packet quoted */
        uint16_t lport, rport; /* the transport's first 4 bytes */
        uint32_t seq;          /* TCP: the sequence number quoted (RFC 5927 §4.1) */
        ip_addr from;          /* who says so */
        uint8_t ttl, tos;      /* of the packet that says so */
        uint8_t quoted_hdr;    /* bytes of the IP header quoted */
        uint16_t quoted_len;   /* total length of the packet quoted; for pmtu_claim() */
};

/* A redirect: what we sent from laddr to dst had better go by `gateway`, says `from`. */
struct icmp_redirect {
        ip_addr laddr, dst, gateway, from;
};

enum icmp_what { ICMP_IS_ECHO, ICMP_IS_REPLY, ICMP_IS_ERROR, ICMP_IS_REDIRECT };

struct icmp_msg {
        enum icmp_what what;
        uint8_t type, code;
        uint16_t id, seq; /* echo and reply */
        struct icmp_err err;
        struct icmp_redirect redirect;
};

/*
 * Reads an ICMP packet. Returns DROP_NONE and what it is, or why it is dropped: too short, checksum
 * (verified when `csum`), or ignored: unknown types (RFC 1122 §3.2.2), information and address mask
 * requests (RFC 6918), and requests that were broadcast or sent to a group (RFC 1122 §3.2.2.6; as
 * Linux).
 */
enum drop icmp_rx(const struct frames *f, const struct ip_pkt *pkt, bool csum,
                  struct icmp_msg *msg);

/* Copies what an error quotes of a datagram's payload behind its 8 bytes of UDP header: at most
 * `room` bytes, to `out`. Returns how many. */
unsigned icmp_quoted(const struct frames *f, const struct ip_pkt *pkt, const struct icmp_err *e,
                     uint8_t *out, unsigned room);

/* Writes the reply to echo request `pkt`: ip_payload_len(pkt) bytes at `out`, header and the same
 * data, wherever that lies (RFC 1122 §3.2.2.6). It leaves from pkt->dst to pkt->src. */
void icmp_echo_reply(const struct frames *f, const struct ip_pkt *pkt, uint8_t *out);

/* RFC 1122 §3.2.2.2, for who switched it on: whether a redirect may be believed. `first_hop` is
 * where packets for r->dst go now; the new gateway must be on a network of the host's, and not
 * the host. */
bool icmp_redirect_ok(const struct ip_host *h, const struct icmp_redirect *r, uint32_t first_hop);

/* RFC 1122 §3.2.2: no error about an ICMP error, to or from anything but one host, about what came
 * as a link-layer broadcast, or about a later fragment. */
bool icmp_may_answer(const struct ip_host *h, const struct ip_pkt *pkt);

/* A token bucket in the stack's shared memory (RFC 1812 §4.3.2.8). Zeroed memory is a full one. */
struct icmp_bucket {
        nstime full_at; /* when it will be full again, if nothing is taken */
};
#define ICMP_BURST    50        /* as Linux's icmp_msgs_burst ... */
#define ICMP_INTERVAL NS_PER_MS /* ... and icmp_msgs_per_sec, 1000 */

/*
 * The limits of what we send unasked (RFC 1122 §3.2.2, RFC 1812 §4.3.2.8): a bucket for all, taken
 * from by a random 1 to 3 so that its level tells a stranger nothing (CVE-2020-25705), and one for
 * each hash of destination and type: 6 at once, then one a second, as Linux's icmp_ratelimit. Echo
 * replies are not limited, nor is what stays on this host, where a program that tries one port
 * after the other waits for each answer. Zeroed memory but for the key is full; any state is a good
 * one.
 */
#define ICMP_PEERS         512u
#define ICMP_PEER_BURST    6
#define ICMP_PEER_INTERVAL NS_PER_S
struct icmp_rate {
        struct sip_key key;
        struct icmp_bucket all;
        struct icmp_bucket peer[ICMP_PEERS];
};
void icmp_rate_init(struct icmp_rate *r, struct prng *rnd);
/* Returns true if an error of this type may go to `peer` now; false: count DROP_ICMP_RATE. */
bool icmp_rate_take(struct icmp_rate *r, struct prng *rnd, ip_addr peer, uint8_t type, nstime now);

/*
 * Writes the error about `pkt`: 8 bytes of header, then its IP header and as much of its payload as
 * fits into `room` bytes or RFC 1812's 576. `param` is the second word: next-hop MTU for
 * ICMP_FRAG_NEEDED, pointer << 24 for ICMP_PARAMETER_PROBLEM, else 0. Returns the length; room must
 * be >= ICMP_HDR + hdr_len + 8. It leaves from pkt->dst to pkt->src with TOS 0.
 */
unsigned icmp_error_write(const struct frames *f, const struct ip_pkt *pkt, uint8_t type,
                          uint8_t code, uint32_t param, uint8_t *out, size_t room);

#endif
