/*
 * What paths carry: a bounded cache of path MTUs by destination, shared by all transports.
 *
 * An entry says that the path to a host carries less than the link. It comes from an ICMP
 * "fragmentation needed" that its transport believed (tcp_icmp(), udp_icmp()), or from TCP's own
 * probes; it is forgotten after ten minutes (RFC 1191 §6.3), and then the link's MTU is tried
 * again.
 *
 * Four ways, PMTU_SETS sets by keyed hash: who was learnt longest ago goes. Any state of the table
 * is a good one: what is read from it is checked, so that it survives a death inside as it is.
 */
#ifndef IP_PMTU_H
#define IP_PMTU_H

#include "ip/icmp.h"
#include "base/siphash.h"

#define PMTU_SETS    256u
#define PMTU_WAYS    4u
#define PMTU_EXPIRES (600 * NS_PER_S) /* RFC 1191 §6.3; Linux's mtu_expires */
#define PMTU_LEAST   552u /* Linux's min_pmtu: who claims less is not believed (RFC 5927 §7) */

struct pmtu_entry {
        uint32_t dst; /* 0: free */
        uint16_t mtu, pad;
        nstime until;
};
struct pmtu_cache {
        struct sip_key key;
        struct pmtu_entry e[PMTU_SETS][PMTU_WAYS];
};

void pmtu_init(struct pmtu_cache *c, const uint8_t secret[16]);
/* The MTU of the path to v4 address `dst`; 0: nothing known, the link's. */
uint32_t pmtu_get(const struct pmtu_cache *c, uint32_t dst, nstime now);
/* A transport believes that the path carries `mtu` bytes. Lowers, or with a larger one raises;
 * `link_mtu` or more forgets. Less than PMTU_LEAST is taken as that. */
void pmtu_set(struct pmtu_cache *c, uint32_t dst, uint32_t mtu, uint32_t link_mtu, nstime now);
/*
 * What an ICMP_FRAG_NEEDED claims about its path: the next hop's MTU, or for routers that do not
 * say it (RFC 1191 §5) the plateau below the length of the packet quoted (§7.1). Never less than
 * PMTU_LEAST. 0: it claims nothing new, that is not less than the packet quoted.
 */
uint32_t pmtu_claim(const struct icmp_err *e);
/* The plateau below `mtu` (RFC 1191 §7.1, table 7-1, with 1280 and 576 where today's paths lie); 68
 * at the least. */
uint32_t pmtu_plateau(uint32_t mtu);

#endif
