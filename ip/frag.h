/*
 * Fragmentation on the way out, IP's ID field, and what IP_MTU_DISCOVER asks.
 *
 * Whoever sends a datagram asks frag_decide() first. If it is to go in pieces, a generator gives
 * their headers and which range of the payload each carries; nothing is copied here:
 *
 *      id = ip_id_next(...);
 *      frag_begin(&g, hdr, hdr_len, payload_len, mtu, id);
 *      while (frag_next(&g, hdr, &piece))
 *              send hdr[0 .. piece.hdr_len), payload[piece.off .. piece.off + piece.len)
 *
 * Read first: RFC 791 §3.2 (procedure), §3.1 (copied options); RFC 6864 §4; RFC 1122 §3.3.3; ip(7).
 */
#ifndef IP_FRAG_H
#define IP_FRAG_H

#include <errno.h>

#include "ip/ip.h"
#include "base/prng.h"

#define FRAG_MIN_MTU 68u /* RFC 791: every link carries so much */

/* IP_MTU_DISCOVER, numbers as in <linux/in.h>. */
enum pmtu_mode {
        PMTU_DONT,  /* no DF, fragments as the path needs them */
        PMTU_WANT,  /* DF on what fits the path, fragments of what does not */
        PMTU_DO,    /* DF on everything, EMSGSIZE for what does not fit */
        PMTU_PROBE, /* DF on everything, the path MTU known so far does not count */
        /* No DF, the path MTU is neither used nor learnt; EMSGSIZE beyond the interface's. */
        PMTU_INTERFACE,
        PMTU_OMIT, /* as INTERFACE, but fragments */
};

struct frag_plan {
        bool dont_frag; /* DF */
        uint32_t mtu;   /* to cut it to; 0: whole */
};
/* IP_MTU: the largest datagram that frag_decide() lets through whole. */
static inline uint32_t frag_mtu(enum pmtu_mode mode, uint32_t if_mtu, uint32_t path_mtu)
{
        return mode >= PMTU_PROBE || path_mtu == 0 || path_mtu > if_mtu ? if_mtu : path_mtu;
}
/* Decides how a datagram of `len` bytes, header included, leaves on an interface of `if_mtu`
 * towards a destination whose path carries `path_mtu` (0: nothing known). 0 or -EMSGSIZE. */
static inline int frag_decide(enum pmtu_mode mode, uint32_t len, uint32_t if_mtu, uint32_t path_mtu,
                              struct frag_plan *plan)
{
        uint32_t mtu = frag_mtu(mode, if_mtu, path_mtu);
        bool fits = len <= mtu;

        if (unlikely(!fits) && (mode == PMTU_DO || mode == PMTU_PROBE || mode == PMTU_INTERFACE))
                return -EMSGSIZE;
        plan->dont_frag = mode == PMTU_DO || mode == PMTU_PROBE || (mode == PMTU_WANT && fits);
        plan->mtu = fits ? 0 : MAX(mtu, FRAG_MIN_MTU);
        return 0;
}

struct frag {                    /* on the caller's stack */
        uint8_t hdr[IP_MAX_HDR]; /* of the next fragment */
        uint8_t hdr_len;
        uint32_t off, len, mtu; /* payload sent, payload in all */
};
struct frag_piece {
        uint32_t hdr_len;
        uint32_t off, len; /* of the payload */
};
/* Begins with the datagram's header (`hdr_len` bytes; length, ID, fragment field and checksum of no
 * matter) and the length of its payload; hdr_len + payload_len <= 65,535. mtu >= FRAG_MIN_MTU. */
void frag_begin(struct frag *g, const uint8_t *hdr, unsigned hdr_len, uint32_t payload_len,
                uint32_t mtu, uint16_t id);
/* The next fragment: writes its header, checksum included. False: that was all. Options that are
 * not to be copied stand in the first only. */
bool frag_next(struct frag *g, uint8_t hdr[IP_MAX_HDR], struct frag_piece *piece);

/*
 * IDs for what is, or may be, fragmented: RFC 6864 §4.3 wants no repetition within the time a
 * datagram lives between the same ends. As Linux: counters, one for each hash of ends and protocol,
 * that go on by a random step of up to one a millisecond since they were last used, so that one
 * destination cannot tell what was sent to another. Any state is a good one. Atomic datagrams (DF)
 * need none: 0.
 */
#define IP_ID_COUNTERS 1024u
struct ip_ids {
        struct sip_key key;
        uint32_t next[IP_ID_COUNTERS];
        uint32_t used_ms[IP_ID_COUNTERS];
};
void ip_ids_init(struct ip_ids *ids, struct prng *rnd);
uint16_t ip_id_next(struct ip_ids *ids, struct prng *rnd, uint32_t src, uint32_t dst, uint8_t proto,
                    nstime now);

#endif
