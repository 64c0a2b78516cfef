/*
 * Where a packet goes: interfaces, their addresses, and routes by longest prefix (RFC 1122 §3.3.1).
 *
 * One table a stack, in its state: struct route_table has no pointer in it and is used as it is by
 * any process. Nothing here reads a clock, locks or allocates.
 *
 * A lookup goes, as RFC 1122 §3.3.1 and RFC 4632 §5.1 say: our own addresses; limited broadcast;
 * networks' broadcast addresses; groups; then the longest prefix that holds the destination, over
 * interfaces that are up. Broadcasts and groups leave by the interface asked for, else the one that
 * owns the source, else the one that the routes say, else the first that can. Among routes of
 * one prefix: gateways that are not known to be dead, then the smallest metric, then an interface
 * that owns the source asked for, then the smallest interface number, then the smallest gateway
 * address. So the same table gives the same answer, in whatever order it was filled.
 *
 * Whoever keeps a result (a connection; together with its neighbour, arp/arp.h) asks route_good()
 * before each use: the table's generation changes with everything that could change an answer.
 * Results of plain lookups are also remembered here, so that a datagram socket without a connection
 * costs one hash.
 *
 * Addresses of an interface bring the route to their network with them (ROUTE_F_CONNECTED). They
 * and the routes set are primary records; chains, lengths in use and remembered results are
 * derived, see route_recover().
 *
 * Addresses are IPv4 in host order. An interface is named by a number of the caller's, 1 ..
 * ROUTE_IFS.
 *
 * Read first: RFC 1122 §3.3.1 and §3.3.4; RFC 6724 §5 for the order in which a source is chosen.
 */
#ifndef IP_ROUTE_H
#define IP_ROUTE_H

#include "base/base.h"
#include "base/pool.h"
#include "base/siphash.h"

#define ROUTE_MAX   1024u /* routes */
#define ROUTE_IFS   15u   /* interfaces, 1 .. 15 */
#define ROUTE_ADDRS 64u   /* addresses of all interfaces */
#define ROUTE_CACHE 256u  /* results remembered; a power of two */
/* Bad news of a gateway counts for so long (RFC 1122 §3.3.1.4: not forever). */
#define ROUTE_DEAD_TIME (60 * NS_PER_S)

enum route_type {
        ROUTE_UNICAST,     /* to `gateway`, or to the destination itself when that is 0 */
        ROUTE_UNREACHABLE, /* reject: -EHOSTUNREACH */
        ROUTE_PROHIBIT,    /* reject: -EACCES */
        ROUTE_BLACKHOLE,   /* reject: -EINVAL, as Linux has it */
};
enum {
        ROUTE_F_CONNECTED = 1, /* made by route_addr_add(), goes with its address */
        ROUTE_F_ONLINK = 2,    /* the gateway is a neighbour whatever its address says */
        ROUTE_F_REDIRECT = 4,  /* a gateway said so (RFC 1122 §3.2.2.2) */
};

struct route {
        uint32_t dst;
        uint32_t gateway; /* 0: the network is on the link */
        uint32_t src;     /* source address to prefer, 0: choose */
        uint32_t metric;  /* smaller is better */
        /* Bytes of an IP packet that the path carries at most, 0: as much as the interface. */
        uint32_t mtu;
        uint8_t prefix;  /* bits of dst that count; the others are 0 */
        uint8_t type;    /* enum route_type */
        uint8_t flags;   /* ROUTE_F_* */
        uint8_t ifindex; /* 0 for those that reject */
};

enum {
        ROUTE_IF_UP = 1,
        ROUTE_IF_BROADCAST = 2, /* has link-layer broadcast and multicast (Ethernet) */
        ROUTE_IF_LOCAL = 4,     /* 127.0.0.0/8 and our own addresses are here */
};

/* ---- the table ---- */

struct route_key {
        uint32_t dst;
        uint32_t src; /* the socket is bound to it; 0: choose */
        uint32_t oif; /* only this interface; 0: any */
};

enum route_kind {
        ROUTE_TO_LOCAL, /* an address of ours; next_hop is it, ifindex the interface that has it */
        ROUTE_TO_HOST,  /* next_hop is a neighbour: for arp_resolve() */
        ROUTE_TO_BROADCAST, /* sent to the link's broadcast address; sockets need SO_BROADCAST */
        ROUTE_TO_GROUP,     /* sent to the group's link address */
};

struct route_result {
        uint32_t next_hop; /* the destination itself, or a gateway */
        uint32_t src;      /* address to send from; 0: the interface has none */
        uint32_t gen;      /* of the table */
        uint32_t mtu;      /* of the route taken, 0: it has none of its own */
        uint8_t kind;      /* enum route_kind */
        uint8_t ifindex;
        uint8_t gateway; /* next_hop is one */
        uint8_t prefix;  /* of the route taken; 32 when none was needed */
};

struct route_rec {     /* primary; the first word is the pool's while it is free */
        uint32_t next; /* in its chain */
        uint8_t live;  /* written last when it is made, first when it goes */
        struct route r;
        nstime dead_until; /* the gateway does not answer: others of the same prefix first */
};

struct route_if {
        uint8_t flags; /* ROUTE_IF_*; 0: none such */
        uint32_t mtu;  /* bytes of an IP packet */
};

struct route_addr {
        uint32_t addr;
        uint8_t prefix;
        uint8_t ifindex; /* 0: free; written last, cleared first */
};

struct route_memo {
        struct route_key key;
        uint32_t gen; /* 0: empty */
        nstime until; /* when bad news that was heeded ends */
        struct route_result res;
};

struct route_table {
        struct sip_key key;
        uint32_t gen; /* never 0 */
        struct route_if ifs[ROUTE_IFS + 1];
        struct route_addr addr[ROUTE_ADDRS];
        uint32_t addrs;         /* slots of it ever used */
        uint64_t lengths;       /* bit n: there is a route with a prefix of n bits ... */
        uint32_t by_length[33]; /* ... and how many */
        nstime dead_until;      /* no gateway is known to be dead for longer */
        uint32_t hash[ROUTE_MAX];
        struct pool recs;
        struct route_rec rec[ROUTE_MAX + 1];
        struct route_memo memo[ROUTE_CACHE];
};

/* Prepares an empty table in any memory. `seed`: 16 random bytes. */
void route_format(struct route_table *t, const uint8_t seed[16]);

/* ---- interfaces and addresses ---- */

/* Sets the flags and MTU of interface 1 .. ROUTE_IFS. Flags 0: it is gone, with its addresses and
 * routes. One that is not up keeps them, and they are not used. -EINVAL: no such number, MTU below
 * 68 (RFC 791). */
int route_if_set(struct route_table *t, uint32_t ifindex, uint8_t flags, uint32_t mtu);
/* Adds an address, and the route to its network (none for a /32). -EINVAL: not a unicast address,
 * prefix over 32; -ENODEV; -EEXIST: some interface has it; -ENOSPC. */
int route_addr_add(struct route_table *t, uint32_t ifindex, uint32_t addr, uint8_t prefix);
/* Takes it away, with its route and those that prefer it as source. -ENOENT. */
int route_addr_del(struct route_table *t, uint32_t ifindex, uint32_t addr);
/* The interface that has the address (127.0.0.0/8: one with ROUTE_IF_LOCAL), 0: none. */
uint32_t route_owner(const struct route_table *t, uint32_t addr);

/* ---- routes ---- */

/* Adds a copy. -EINVAL: bits set behind the prefix, no such type, a gateway that is not unicast, an
 * MTU below 68; -ENODEV: no such interface; -ENETUNREACH: the gateway is on no network of the
 * interface, and not ROUTE_F_ONLINK; -EADDRNOTAVAIL: `src` is not ours; -EEXIST: one with the same
 * dst, prefix, metric, ifindex and gateway; -ENOSPC. */
int route_add(struct route_table *t, const struct route *r);
/* Removes the one with the same dst, prefix, metric, ifindex and gateway. -ESRCH; -EBUSY: it goes
 * with its address. */
int route_del(struct route_table *t, const struct route *r);

struct route_report {
        struct route r;
        bool up;           /* its interface is */
        nstime dead_until; /* bad news of its gateway counts so long; 0: none */
};
/* Record i, 1 .. ROUTE_MAX. False: none. Safe without the lock, a torn snapshot at worst. */
bool route_walk(const struct route_table *t, uint32_t i, struct route_report *r);
/* Address i, 0 .. ROUTE_ADDRS - 1. False: none. */
bool route_addr_walk(const struct route_table *t, uint32_t i, struct route_addr *r);

/* ---- lookup ---- */

/*
 * Where a packet for key->dst goes. 0 and *res; -ENETUNREACH: no route; -EHOSTUNREACH, -EACCES,
 * -EINVAL: a route that rejects; -EADDRNOTAVAIL: key->src is not ours; -EINVAL also for 0.0.0.0 and
 * class E as destination. *res is filled in on success only.
 */
int route_lookup(struct route_table *t, const struct route_key *key, nstime now,
                 struct route_result *res);

/* Returns true if the table has not changed since the lookup that gave this result. */
static inline bool route_good(const struct route_table *t, const struct route_result *res)
{
        return res->gen == t->gen;
}

/* The source that a packet to `dst` by next hop `next_hop` of the interface leaves from: the
 * destination itself if it is ours; of its scope (link-local or not); on that
 * interface; on the network of the next hop (RFC 1122 §3.3.4.3); with the longest prefix in common
 * with the destination (RFC 6724 §5). 0: there is none. */
uint32_t route_source(const struct route_table *t, uint32_t ifindex, uint32_t dst,
                      uint32_t next_hop);

/* ARP has no answer from the gateway (RFC 1122 §3.3.1.4): for ROUTE_DEAD_TIME, routes of the same
 * prefix by other gateways come first. */
void route_gateway_died(struct route_table *t, uint32_t ifindex, uint32_t gateway, nstime now);

/* ---- consistency ---- */

/* After a process died inside, at any store: derived state is made anew; a route or address half
 * made or half gone is gone. Results kept by others are void. */
void route_recover(struct route_table *t);
/* Asserts every invariant that can be spelled; for tests. */
void route_check(const struct route_table *t);

#endif
