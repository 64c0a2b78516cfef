/*
 * IGMP, host side: which groups an interface is a member of, and telling the routers (RFC 2236, RFC
 * 3376).
 *
 * One fixed block in the stack's state (struct igmp; indices only). A *join* is one socket's
 * membership: its group, interface and source filter. All joins of a group on an interface make its
 * *group* record: the interface's filter is the union of theirs (RFC 3376 §3.2), changes of it are
 * reported (§5.1), and queries are answered from it (§5.2). A group that was left lingers until its
 * leaving has been told often enough.
 *
 * Pure, as all protocols: igmp_rx() and the calls of the sockets' side change state, igmp_output()
 * gives the next message that is due as a whole IP packet (TTL 1, TOS 0xc0, router alert: §4),
 * igmp_deadline() says when to ask for one. The version spoken on an interface is the oldest that a
 * querier there spoke of late (§7.2.1): 3 when nobody asked yet.
 *
 * 224.0.0.1 is a group of every interface, and never reported. Groups of 224.0.0.x are reported
 * like others (§2 of RFC 2236 excepts but the one).
 *
 * Limits: IGMP_IFS interfaces, IGMP_GROUPS groups, IGMP_JOINS joins, IGMP_SOURCES sources a filter.
 * Where a union of filters, or a list of changes, does not fit, the interface takes the group from
 * any source. A filter may let too much through (the sockets' own filters still hold), never too
 * little.
 *
 * After a death inside: igmp_recover(). Read first: RFC 3376 §3 to §7; RFC 2236 §3, §6; RFC 1112
 * §7.
 */
#ifndef IP_IGMP_H
#define IP_IGMP_H

#include "ip/ip.h"
#include "base/prng.h"

#define IGMP_IFS         16u /* interfaces are numbered 0 .. IGMP_IFS-1 here */
#define IGMP_GROUPS      256u
#define IGMP_JOINS       1024u
#define IGMP_SOURCES     32u /* Linux's igmp_max_msf is 10 */
#define IGMP_ROBUSTNESS  2u  /* RFC 3376 §8.1; a querier may say another */
#define IGMP_MIN_ROOM    (24u + 8 + 2 * 8 + 4 * IGMP_SOURCES)
#define IGMP_ALL_HOSTS   0xe0000001u
#define IGMP_ALL_V3      0xe0000016u /* 224.0.0.22: where version 3 reports go */
#define IGMP_ALL_ROUTERS 0xe0000002u

struct igmp_join {
        uint32_t owner; /* of the socket layer, not 0; 0: free. Written last, cleared first */
        uint32_t group;
        uint16_t ifc;
        uint16_t next; /* derived: of the same group record */
        uint8_t exclude, nsrc;
        uint32_t src[IGMP_SOURCES];
};

struct igmp_change { /* a source that is allowed or blocked, to be told `left` times more */
        uint32_t src;
        uint8_t allow, left;
};

struct igmp_group {
        uint32_t group; /* 0: free */
        uint16_t ifc;
        uint16_t next;         /* derived: hash chain */
        uint16_t joins;        /* derived: first of its joins; 0: left */
        uint8_t exclude, nsrc; /* the interface's filter */
        uint8_t mode_left;     /* reports of the filter mode still to send */
        uint8_t nchg, nasked;
        bool asked_all, last_reporter;
        uint32_t src[IGMP_SOURCES];
        struct igmp_change chg[IGMP_SOURCES];
        uint32_t asked[IGMP_SOURCES];
        nstime report_at, query_at; /* a change is told, a query answered */
};

struct igmp_if {
        bool up;
        uint8_t robustness;
        uint16_t cursor;   /* answering a general query: groups from here on; 0: not */
        uint32_t addr;     /* source of our messages */
        nstime general_at; /* answer to a general query */
        nstime v1_until, v2_until;
};

struct igmp {
        nstime next; /* igmp_deadline() */
        uint16_t head[64];
        struct igmp_if ifs[IGMP_IFS];
        struct igmp_group group[IGMP_GROUPS + 1]; /* index 0 is none */
        struct igmp_join join[IGMP_JOINS + 1];
};

void igmp_init(struct igmp *g);
/* The interface can be used, from address `addr` (0: none yet): its groups are reported anew. */
void igmp_if_up(struct igmp *g, uint32_t ifc, uint32_t addr, nstime now);
/* The interface cannot be used for now. Memberships stay. */
void igmp_if_down(struct igmp *g, uint32_t ifc);
/* The interface is no more: memberships on it end, and nobody is told. */
void igmp_if_gone(struct igmp *g, uint32_t ifc);

/* ---- sockets ---- */

/*
 * Sets a socket's filter: IPMulticastListen() of RFC 3376 §2. INCLUDE without sources leaves the
 * group, EXCLUDE without is a plain join. -EINVAL: not a group, no such interface; -ENOBUFS: a
 * table is full, or n > IGMP_SOURCES.
 */
int igmp_listen(struct igmp *g, uint32_t ifc, uint32_t group, uint32_t owner, bool exclude,
                const uint32_t *src, unsigned n, nstime now);
/* IP_ADD_MEMBERSHIP: -EADDRINUSE when the socket is a member already. */
int igmp_join(struct igmp *g, uint32_t ifc, uint32_t group, uint32_t owner, nstime now);
/* IP_DROP_MEMBERSHIP: -EADDRNOTAVAIL when it is not. */
int igmp_leave(struct igmp *g, uint32_t ifc, uint32_t group, uint32_t owner, nstime now);
/* IP_ADD_SOURCE_MEMBERSHIP, IP_DROP_SOURCE_, IP_BLOCK_SOURCE, IP_UNBLOCK_SOURCE: `exclude` says
 * whether of an excluding filter, `add` whether the source joins its list. Errors as Linux: -EINVAL
 * for a filter of the other mode, -EADDRNOTAVAIL, -EADDRINUSE, -ENOBUFS. */
int igmp_source(struct igmp *g, uint32_t ifc, uint32_t group, uint32_t owner, uint32_t src,
                bool exclude, bool add, nstime now);
/* The socket is closed. */
void igmp_leave_all(struct igmp *g, uint32_t owner, nstime now);
/* Groups that the socket is a member of. */
unsigned igmp_memberships(const struct igmp *g, uint32_t owner);
/* The socket's membership, NULL: none (getsockopt IP_MSFILTER). */
const struct igmp_join *igmp_membership(const struct igmp *g, uint32_t ifc, uint32_t group,
                                        uint32_t owner);

/* ---- packets ---- */

/* Returns true if packets for the group that come by the interface are for somebody here. */
bool igmp_member(const struct igmp *g, uint32_t ifc, uint32_t group);
/* Returns true if the socket wants a packet for the group from `src`: by its own filter, or, when
 * it is no member itself, `all` (IP_MULTICAST_ALL). */
bool igmp_wants(const struct igmp *g, uint32_t ifc, uint32_t group, uint32_t owner, uint32_t src,
                bool all);
/* An IGMP packet arrived: DROP_NONE, or why it does not count. */
enum drop igmp_rx(struct igmp *g, const struct frames *f, uint32_t ifc, const struct ip_pkt *pkt,
                  struct prng *rnd, nstime now);

/* When to call igmp_output() next. */
nstime igmp_deadline(const struct igmp *g);
struct igmp_msg {
        uint32_t ifc, dst;
        uint32_t len; /* bytes written, IP header included */
};
/* The next message that is due, in `out` of `room` >= IGMP_MIN_ROOM bytes. False: nothing. */
bool igmp_output(struct igmp *g, uint8_t *out, uint32_t room, struct igmp_msg *msg,
                 struct prng *rnd, nstime now);

/* After a death inside: group records are made anew from the joins of owners that live, and
 * reported again. */
void igmp_recover(struct igmp *g, bool (*lives)(void *arg, uint32_t owner), void *arg, nstime now);
/* Asserts what must be true; for tests. */
void igmp_check(const struct igmp *g);

#endif
