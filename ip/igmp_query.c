/*
 * IGMP, host side: queries and reports that arrive. RFC 3376 §5.2 and §7.2, RFC 2236 §3.
 *
 * igmp_rx() -> rx_query() -> ask_v3() | ask_v2() -> ask_interface(), ask_group();  rx_report()
 */
#include "ip/igmp_int.h"

#include "base/checksum.h"

#define V3_QUERY_LEN   12u
#define V1_RESPONSE    (10 * NS_PER_S)  /* RFC 2236 §4 */
#define V1_QUERIER     (400 * NS_PER_S) /* RFC 2236 §8.11 */
#define QUERY_INTERVAL (125 * NS_PER_S) /* RFC 3376 §8.2 */

struct query {
        int version;
        nstime max;               /* longest time to answer in */
        uint32_t group;           /* 0: general */
        uint8_t robustness, nsrc; /* 0 sources: of the group */
        bool too_many;            /* more sources than are remembered: as if it asked for all */
        uint32_t src[IGMP_SOURCES];
};

/* RFC 3376 §4.1.1: eight bits, beyond 127 with an exponent; tenths of a second. */
static nstime response_time(uint8_t code)
{
        nstime tenths = code < 128 ? code : (nstime)((code & 0xf) | 0x10) << ((code >> 4 & 7) + 3);

        return tenths * (NS_PER_S / 10);
}

/* RFC 3376 §7.1: versions by length and code. False: of none. */
static bool read_query(const uint8_t *p, uint32_t len, struct query *q)
{
        *q = (struct query){.group = be32_at(p + 4)};
        if (len == IGMP_V2_LEN) {
                q->version = p[1] == 0 ? 1 : 2;
                q->max = p[1] == 0 ? V1_RESPONSE : p[1] * (NS_PER_S / 10);
                return true;
        }
        if (len < V3_QUERY_LEN)
                return false;
        q->version = 3;
        q->max = response_time(p[1]);
        q->robustness = p[8] & 7;
        if (len < V3_QUERY_LEN + 4u * (p[10] * 256u + p[11]))
                return false;
        q->too_many = p[10] * 256u + p[11] > IGMP_SOURCES;
        for (uint32_t i = 0; !q->too_many && i < p[11]; i++)
                igmp_add_source(q->src, &q->nsrc, be32_at(p + V3_QUERY_LEN + 4 * i));
        return true;
}

/* RFC 3376 §7.2.1: an older querier is there; who changes the version forgets what was pending. */
static void note_version(struct igmp *g, uint32_t ifc, const struct query *q, nstime now)
{
        struct igmp_if *f = &g->ifs[ifc];
        int was = igmp_version(g, ifc, now);

        if (q->version == 1)
                f->v1_until = now + V1_QUERIER;
        else if (q->version == 2 && q->group == 0) /* §8.12 */
                f->v2_until = now + f->robustness * QUERY_INTERVAL + q->max;
        if (igmp_version(g, ifc, now) != was)
                igmp_cancel(g, ifc);
}

/* RFC 3376 §5.2 rules 1 and 2. */
static void ask_interface(struct igmp *g, uint32_t ifc, nstime at)
{
        g->ifs[ifc].general_at = nstime_min(g->ifs[ifc].general_at, at);
        igmp_due(g, g->ifs[ifc].general_at);
}

/* Rules 3 to 5: what is asked of the group adds up, and is answered at the earlier time. */
static void ask_group(struct igmp *g, struct igmp_group *gr, const struct query *q, nstime at)
{
        bool pending = gr->query_at != NSTIME_NEVER, all = q->nsrc == 0 || q->too_many;

        if (!pending) {
                gr->asked_all = false;
                gr->nasked = 0;
        }
        for (unsigned i = 0; !all && i < q->nsrc; i++)
                all = !igmp_add_source(gr->asked, &gr->nasked, q->src[i]);
        gr->asked_all |= all;
        gr->query_at = nstime_min(gr->query_at, at);
        igmp_due(g, gr->query_at);
}

/* RFC 2236 §3: each group has its own time; one that runs and is soon enough goes on. */
static void ask_v2(struct igmp *g, uint32_t ifc, const struct query *q, struct prng *rnd,
                   nstime now)
{
        for (uint32_t i = 1; i <= IGMP_GROUPS; i++) {
                struct igmp_group *gr = &g->group[i];
                if (gr->group == 0 || gr->ifc != ifc || igmp_empty(gr) ||
                    (q->group != 0 && q->group != gr->group) || gr->group == IGMP_ALL_HOSTS)
                        continue;
                ask_group(g, gr, q, now + igmp_some_of(rnd, q->max));
        }
}

static void ask_v3(struct igmp *g, uint32_t ifc, const struct query *q, struct prng *rnd,
                   nstime now)
{
        nstime at = now + igmp_some_of(rnd, q->max);
        uint32_t i;

        if (g->ifs[ifc].general_at <= at)
                return; /* §5.2 rule 1: that answer says it all */
        if (q->group == 0) {
                ask_interface(g, ifc, at);
                return;
        }
        i = igmp_find(g, ifc, q->group);
        if (i != 0 && !igmp_empty(&g->group[i]) && q->group != IGMP_ALL_HOSTS)
                ask_group(g, &g->group[i], q, at);
}

static enum drop rx_query(struct igmp *g, uint32_t ifc, const struct ip_pkt *pkt, const uint8_t *p,
                          uint32_t len, struct prng *rnd, nstime now)
{
        struct query q;

        /* §9.1: who asks is on this link; a general query goes to all hosts (or to
         * one, §4.1.12). */
        if (!read_query(p, len, &q) || pkt->ttl != 1 || (q.group != 0 && !ip_v4_multicast(q.group)))
                return DROP_IGMP_IGNORED;
        if (q.group == 0 && pkt->to == IP_TO_GROUP && ip_addr_get_v4(pkt->dst) != IGMP_ALL_HOSTS)
                return DROP_IGMP_IGNORED;
        note_version(g, ifc, &q, now);
        if (q.version == 3)
                /* §4.1.6. */
                g->ifs[ifc].robustness = q.robustness != 0 ? q.robustness : IGMP_ROBUSTNESS;
        if (igmp_version(g, ifc, now) == 3)
                ask_v3(g, ifc, &q, rnd, now);
        else
                ask_v2(g, ifc, &q, rnd, now);
        return DROP_NONE;
}

/* RFC 2236 §3: another member has spoken for the group; version 3 has no suppression (RFC
 * 3376 §A.2). */
static enum drop rx_report(struct igmp *g, uint32_t ifc, uint32_t group, nstime now)
{
        uint32_t i = igmp_find(g, ifc, group);

        if (i == 0 || igmp_version(g, ifc, now) == 3 || igmp_empty(&g->group[i]))
                return DROP_IGMP_IGNORED;
        g->group[i].query_at = g->group[i].report_at = NSTIME_NEVER;
        g->group[i].mode_left = 0;
        g->group[i].last_reporter = false;
        return DROP_NONE;
}

enum drop igmp_rx(struct igmp *g, const struct frames *f, uint32_t ifc, const struct ip_pkt *pkt,
                  struct prng *rnd, nstime now)
{
        uint8_t msg[V3_QUERY_LEN + 4 * IGMP_SOURCES];
        uint32_t len = ip_payload_len(pkt), n = MIN(len, (uint32_t)sizeof msg),
                 inl = MIN(n, pkt->inl_len);
        uint32_t sum;

        if (len < IGMP_V2_LEN)
                return DROP_IGMP_SHORT;
        memcpy(msg, pkt->inl, inl);
        sum = csum_partial(pkt->inl, pkt->inl_len, 0);
        if (pkt->data.len != 0) {
                const uint8_t *rest = frame_addr(f, pkt->data.id) + pkt->data.off;
                memcpy(msg + inl, rest, n - inl);
                sum = csum_append(sum, pkt->inl_len, csum_partial(rest, pkt->data.len, 0));
        }
        if (csum_finish(sum).raw != 0)
                return DROP_IGMP_CHECKSUM;
        if (ifc >= IGMP_IFS || !g->ifs[ifc].up)
                return DROP_IGMP_IGNORED;
        switch (msg[0]) {
        case IGMP_QUERY:
                return rx_query(g, ifc, pkt, msg, len, rnd, now);
        case IGMP_V1_REPORT:
        case IGMP_V2_REPORT:
                return rx_report(g, ifc, be32_at(msg + 4), now);
        default:
                return DROP_IGMP_IGNORED;
        }
}
