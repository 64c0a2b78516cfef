/*
 * Reassembly: from fragments to the datagram.
 *
 * Fixed tables in the stack's state (struct reass_shared: no pointer, indices only); struct reass
 * is a process's view. Bytes go straight to their place in one private frame a datagram
 * (base/frame.h): a small one as long as they fit it, else a large one. Which 8-byte units are
 * there is a bitmap, so the cost of a fragment does not depend on how many came before it.
 *
 *   ip_rx() says DROP_IP_FRAGMENT -> reass_rx() -> REASS_WHOLE: pkt is the datagram, as ip_rx()'s
 *   reass_deadline() -> reass_expire() -> ICMP time exceeded, when fragment zero had come
 *
 * The datagram that comes out is an ordinary struct ip_pkt: `hdr` is the header of fragment zero
 * with total length, fragment field, TOS (CE of any fragment, RFC 3168 §5.3) and checksum put
 * right; up to REASS_FLAT bytes of payload are all at `inl`; of longer ones the transport's header
 * is at `inl` and the rest is the range `data` of the frame.
 *
 * What is refused: fragments that are empty, no multiple of 8 long and not last, or that reach
 * beyond 65,535 bytes (ping of death); a first fragment that holds less than TCP's header, and one
 * at offset 8 (RFC 1858, 3128). What kills the datagram, with all its fragments to come (RFC 5722
 * §3): an overlap, but for exact repetitions; a second end, or bytes beyond the end; ECN on some
 * fragments only. A dead datagram keeps its record until its time is over.
 *
 * Limits: REASS_DGRAMS datagrams and REASS_BYTES bytes of memory in all, REASS_PER_SOURCE datagrams
 * and a quarter of the bytes a source, a quarter of the large frames there are. At a limit the
 * oldest unfinished datagram goes, of the source if it is the source's limit. So a flood of
 * beginnings pushes out beginnings. A datagram whose fragments follow each other is done before its
 * turn comes. Times out after 60 s, the least that RFC 1122 §3.3.2 recommends: Linux's 30 s are for
 * memory, which eviction bounds here, and for mixing up datagrams whose ID came round (RFC 4963),
 * which REASS_PER_SOURCE bounds.
 *
 * All of it is derived state: after a death inside, reass_reset(), and the frames that nobody names
 * any more are free.
 *
 * Read first: RFC 791 §3.2; RFC 815, RFC 1122 §3.3.2, RFC 1858, RFC 3128, RFC 5722, RFC 6864.
 */
#ifndef IP_REASS_H
#define IP_REASS_H

#include "ip/ip.h"
#include "base/siphash.h"

#define REASS_DGRAMS     256u
#define REASS_PER_SOURCE 64u /* as Linux's ipfrag_max_dist */
/* As Linux's ipfrag_high_thresh; pages of frames that were written. */
#define REASS_BYTES   (4u << 20)
#define REASS_TIMEOUT (60 * NS_PER_S)
#define REASS_FLAT    16384u /* bytes of payload; more stay in their frame */

struct reass_shared; /* below */

/* A process's view. */
struct reass {
        struct reass_shared *sh;
        struct frames *frames; /* region 0 is where bytes go */
        struct counters *cnt;
};

enum reass_verdict {
        /* Or dropped, and counted: the caller releases the message's frame, as in any case
         * but none. */
        REASS_KEPT,
        REASS_WHOLE, /* *pkt is now the datagram */
};

/* Empties the tables: for a new stack and after a death inside. Frames are not touched: a new stack
 * has none, and after a death nobody names them. `secret` keys the hash. */
void reass_reset(struct reass_shared *sh, const uint8_t secret[16]);

/*
 * A fragment, parsed and accepted by ip_rx(), arrived on interface `ifc`. Its bytes are copied: the
 * message's frame is the caller's to release. When it was the last one missing, *pkt becomes the
 * datagram. Then pkt->data.id, when not 0, is a private frame with one reference that is the
 * caller's: a queue takes it, or frame_drop(). What `hdr` and `inl` point to is valid until the
 * next call here; reass_done() when it has been looked at.
 */
enum reass_verdict reass_rx(struct reass *r, uint16_t ifc, struct ip_pkt *pkt, nstime now);

/* The bytes of what came out last, of a whole datagram or one given up, have been looked at: their
 * frame is free. */
void reass_done(struct reass *r);

/* When to call reass_expire() at the latest. */
nstime reass_deadline(const struct reass_shared *sh);
/*
 * Gives up what is too old. True: *about is fragment zero of one (its header, and up to 64 bytes of
 * payload at `inl`), which an ICMP time exceeded, code 1, is due about: icmp_may_answer() and so
 * on, then call again. False: that was all. `about` is valid as pkt is above; *ifc is the interface
 * it came by.
 */
bool reass_expire(struct reass *r, nstime now, struct ip_pkt *about, uint16_t *ifc);

/* Asserts what must be true of the tables; for tests. */
void reass_check(const struct reass *r);

/* ---- layout ---- */

#define REASS_UNITS 8192u /* of 8 bytes: 65,536 */

struct reass_dgram {
        uint32_t src, dst;
        uint16_t id, ifc;
        uint8_t proto;
        uint8_t state; /* 0: free */
        uint8_t ecn;   /* 1 << ECN field, of each fragment */
        /* Bytes of fragment zero's payload that stand at the frame's start, at most 64; 0:
         * not here. */
        uint8_t zero_len;
        uint32_t frame;        /* 0: none yet, or dead */
        uint32_t end;          /* length of the payload, 0: not known */
        uint32_t top;          /* end of what has come */
        uint32_t have;         /* bytes that have come */
        uint16_t pages;        /* of 4 KB, of a large frame, that were written */
        uint16_t next;         /* hash chain, free list */
        uint16_t older, newer; /* by age */
        uint8_t bucket;        /* of its source */
        nstime at;             /* it times out */
};
static_assert(sizeof(struct reass_dgram) <= CACHE_LINE,
              "all are looked through for a source's share");

/* Sources whose hash is the same: as long as they are within a limit together, each is, and nobody
 * has to be looked through. */
#define REASS_BUCKETS 64u
struct reass_sources {
        uint32_t count, bytes;
};

struct reass_shared {
        struct sip_key key;
        uint32_t bytes, count; /* in all datagrams */
        uint32_t large;        /* large frames held */
        uint16_t oldest, newest;
        uint16_t free, fresh; /* dgram[fresh ..] were never used */
        /* Done, and its bytes still to be looked at: freed by the next call; 0: none. */
        uint16_t lingering;
        uint16_t head[REASS_DGRAMS];
        struct reass_sources sources[REASS_BUCKETS];
        struct reass_dgram dgram[REASS_DGRAMS + 1]; /* index 0 is none */
        uint8_t hdr[REASS_DGRAMS + 1][IP_MAX_HDR];  /* fragment zero's */
        uint64_t units[REASS_DGRAMS + 1][REASS_UNITS / 64];
};

#endif
