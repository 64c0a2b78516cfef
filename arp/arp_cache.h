/*
 * The neighbour cache inside, for arp/ only.
 *
 * Everything that changes an entry goes through four functions of arp_cache.c: arp_make(),
 * arp_free(), arp_set_state() and arp_learn(). They order their stores so that the memory can be
 * recovered after any of them (arp_recover()).
 */
#ifndef ARP_ARP_CACHE_H
#define ARP_ARP_CACHE_H

#include "arp/arp.h"

/* The header on the wire, before the four addresses: RFC 826. */
struct arp_hdr {
        be16 hrd, pro;
        uint8_t hln, pln;
        be16 op;
};
static_assert(sizeof(struct arp_hdr) == 8, "RFC 826");

enum { ARP_PRO_IPV4 = 0x0800, ARP_REQUEST = 1, ARP_REPLY = 2 };

/* An ARP packet, read. */
struct arp_pkt {
        uint16_t op;
        uint32_t spa, tpa;
        const uint8_t *sha, *tha; /* cfg.ll_len bytes */
};

/* arp_entry.owes */
enum {
        ARP_OWES_REQUEST = 1, /* to all while INCOMPLETE, to the one while PROBE */
        ARP_OWES_HELD = 2,    /* waiting packets to be sent or given up */
};

/* The compiler moves no store across: a process may die here. */
static inline void arp_fence(void)
{
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline uint32_t arp_index(const struct arp_cache *c, const struct arp_entry *e)
{
        return (uint32_t)(e - c->entry);
}
static inline bool arp_known(const struct arp_entry *e)
{
        return e->state >= ARP_STALE;
}
static inline uint32_t arp_mask(uint8_t prefix)
{
        return prefix == 0 ? 0 : UINT32_MAX << (32 - prefix);
}
/* Returns true if an IPv4 address can be a neighbour's: not this network, loopback, a group, class
 * E or limited broadcast. */
static inline bool arp_unicast(uint32_t ip)
{
        return ip >> 24 != 0 && ip >> 24 != 127 && ip >> 28 < 0xe;
}

/* ---- lists; `off` is that of the struct arp_link in the record ---- */

void arp_list_push(struct arp_list *l, const struct pool *p, uint32_t off, uint32_t idx);
void arp_list_remove(struct arp_list *l, const struct pool *p, uint32_t off, uint32_t idx);

/* ---- token buckets: zero is a full one (RFC 1812 §4.3.2.8) ---- */

#define ARP_BUCKET_BURST    200
#define ARP_BUCKET_INTERVAL NS_PER_MS
/* When the next token can be had; not after `now`: at once. */
nstime arp_bucket_next(nstime full_at);
void arp_bucket_take(nstime *full_at, nstime now);

/* ---- arp_cache.c ---- */

struct arp_entry *arp_find(const struct arp_cache *c, uint32_t ip);
/* An entry for `ip`, which has none: INCOMPLETE, nothing owed. `ours`: we want to send to it, so
 * that others may go for it. NULL: there is no room. */
struct arp_entry *arp_make(struct arp *a, uint32_t ip, bool ours, nstime now);
/* Waiting packets are dropped (ARP_UNREACHABLE). */
void arp_free(struct arp *a, struct arp_entry *e);
void arp_set_state(struct arp *a, struct arp_entry *e, enum arp_state state, nstime now);
/* The link address is now `ll`. Refs are void. */
void arp_learn(struct arp *a, struct arp_entry *e, const uint8_t *ll, nstime now);
/* Asks for the neighbour, or polls it, as soon as that is allowed. */
void arp_ask(struct arp *a, struct arp_entry *e, nstime now);
/* A request was sent. */
void arp_asked(struct arp *a, struct arp_entry *e, nstime now);
/* Puts on, or takes off, what the entry owes. */
void arp_owe(struct arp_cache *c, struct arp_entry *e, uint8_t owes);

/* ---- arp_hold.c ---- */

/* The oldest waiting packet is gone. */
void arp_hold_pop(struct arp_cache *c, struct arp_entry *e);
/* All are, and counted. */
void arp_hold_drop(struct arp *a, struct arp_entry *e, enum drop why);

/* ---- arp_addr.c ---- */

bool arp_addr_usable(const struct arp_addr *ad);
/* Returns true if `ip` is an address of ours in use. */
bool arp_addr_ours(const struct arp_cache *c, uint32_t ip);
/* Returns true if `ip` is on the network of an address of ours in use, and no broadcast address of
 * it. */
bool arp_addr_onlink(const struct arp_cache *c, uint32_t ip);
bool arp_addr_broadcast(const struct arp_cache *c, uint32_t ip);
/* The address of ours to ask for `ip` from; 0: none is in use. */
uint32_t arp_addr_source(const struct arp_cache *c, uint32_t ip);
/* RFC 5227 §2.1.1 and §2.4: whether the packet is in conflict with one of ours, and
 * what follows. */
bool arp_addr_conflict(struct arp *a, const struct arp_pkt *p, nstime now);
nstime arp_addr_deadline(const struct arp_cache *c);
void arp_addr_expire(struct arp *a, nstime now);
/* What was due was sent. */
void arp_addr_sent(struct arp_cache *c, struct arp_addr *ad, nstime now);
void arp_addr_link_up(struct arp *a, nstime now);
void arp_addr_recover(struct arp_cache *c, nstime now);
void arp_addr_check(const struct arp_cache *c);

#endif
