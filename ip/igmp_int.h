/*
 * IGMP from inside, for ip/igmp*.c: tables and filters are igmp.c's, what arrives is
 * igmp_query.c's, what leaves igmp_report.c's.
 */
#ifndef IP_IGMP_INT_H
#define IP_IGMP_INT_H

#include "ip/igmp.h"

enum {
        IGMP_QUERY = 0x11,
        IGMP_V1_REPORT = 0x12,
        IGMP_V2_REPORT = 0x16,
        IGMP_V2_LEAVE = 0x17,
        IGMP_V3_REPORT = 0x22,
};
#define IGMP_V2_LEN 8u

/* The group's record, 0: none. */
uint32_t igmp_find(const struct igmp *g, uint32_t ifc, uint32_t group);
/* Gives the record back when nobody is a member and the leaving was told. */
void igmp_free_if_told(struct igmp *g, uint32_t i);
/* igmp_output() has something to do then. */
void igmp_due(struct igmp *g, nstime at);
/* The version that is spoken on the interface, 1 to 3: RFC 3376 §7.2.1. */
int igmp_version(const struct igmp *g, uint32_t ifc, nstime now);
/* Nothing is due on the interface any more. */
void igmp_cancel(struct igmp *g, uint32_t ifc);
/* Adds what is not there; false: it does not fit. */
bool igmp_add_source(uint32_t *src, uint8_t *n, uint32_t s);

static inline bool igmp_has_source(const uint32_t *src, unsigned n, uint32_t s)
{
        for (unsigned i = 0; i < n; i++)
                if (src[i] == s)
                        return true;
        return false;
}

static inline nstime igmp_some_of(struct prng *rnd, nstime span)
{
        return (nstime)((unsigned __int128)prng_u64(rnd) * (uint64_t)span >> 64);
}

/* Returns true if nobody here wants anything of the group. */
static inline bool igmp_empty(const struct igmp_group *gr)
{
        return !gr->exclude && gr->nsrc == 0;
}

#endif
