/* Path MTUs by destination. RFC 1191, RFC 5927 §7. */
#include "ip/pmtu.h"

uint32_t pmtu_plateau(uint32_t mtu)
{
        static const uint16_t plateau[] = {65535, 32000, 17914, 8166, 4352, 2002,
                                           1492,  1280,  1006,  576,  508,  296};

        for (unsigned i = 0; i < ARRAY_LEN(plateau); i++)
                if (plateau[i] < mtu)
                        return plateau[i];
        return 68;
}

uint32_t pmtu_claim(const struct icmp_err *e)
{
        uint32_t mtu = e->mtu;

        if (e->type != ICMP_UNREACHABLE || e->code != ICMP_FRAG_NEEDED)
                return 0;
        if (mtu == 0)
                mtu = pmtu_plateau(e->quoted_len);
        if (mtu >= e->quoted_len) /* what did not fit was longer */
                return 0;
        return MAX(mtu, PMTU_LEAST);
}

void pmtu_init(struct pmtu_cache *c, const uint8_t secret[16])
{
        *c = (struct pmtu_cache){.key = sip_key_of(secret)};
}

static uint32_t set_of(const struct pmtu_cache *c, uint32_t dst)
{
        return (uint32_t)(siphash13(&c->key, &dst, sizeof dst) % PMTU_SETS);
}

static bool valid(const struct pmtu_entry *e, uint32_t dst, nstime now)
{
        return e->dst == dst && e->until > now && e->until - now <= PMTU_EXPIRES &&
               e->mtu >= PMTU_LEAST;
}

uint32_t pmtu_get(const struct pmtu_cache *c, uint32_t dst, nstime now)
{
        const struct pmtu_entry *set = c->e[set_of(c, dst)];

        for (unsigned i = 0; i < PMTU_WAYS; i++)
                if (valid(&set[i], dst, now))
                        return set[i].mtu;
        return 0;
}

/* Its own entry, else a free or the oldest one. */
static struct pmtu_entry *place(struct pmtu_cache *c, uint32_t dst)
{
        struct pmtu_entry *set = c->e[set_of(c, dst)], *best = &set[0];

        for (unsigned i = 0; i < PMTU_WAYS; i++) {
                if (set[i].dst == dst)
                        return &set[i];
                if (set[i].until < best->until)
                        best = &set[i];
        }
        return best;
}

void pmtu_set(struct pmtu_cache *c, uint32_t dst, uint32_t mtu, uint32_t link_mtu, nstime now)
{
        struct pmtu_entry *e = place(c, dst);

        if (mtu >= link_mtu) {
                if (e->dst == dst)
                        *e = (struct pmtu_entry){0};
                return;
        }
        *e = (struct pmtu_entry){.dst = dst,
                                 .mtu = (uint16_t)MIN(MAX(mtu, PMTU_LEAST), UINT16_MAX),
                                 .until = now + PMTU_EXPIRES};
}
