/*
 * IGMP, host side. RFC 3376, RFC 2236, RFC 1112.
 *
 * sockets:  igmp_listen() -> refilter() -> changed()             what is to be told, and when
 * queries:  igmp_rx() -> rx_query() -> ask_interface(), ask_group()
 * out:      igmp_output() -> answer_general() | answer_group() | tell_change()
 */
#include "ip/igmp.h"

#include <errno.h>

#include "netstack/checksum.h"
#include "netstack/planted.h"

enum { QUERY = 0x11, V1_REPORT = 0x12, V2_REPORT = 0x16, V2_LEAVE = 0x17, V3_REPORT = 0x22 };
enum { IS_IN = 1, IS_EX = 2, TO_IN = 3, TO_EX = 4, ALLOW = 5, BLOCK = 6 }; /* RFC 3376 §4.2.12 */

#define HDR            24u /* IP with router alert */
#define V2_LEN         8u
#define V3_QUERY_LEN   12u
#define RECORD         8u
#define UNSOLICITED_V3 NS_PER_S         /* RFC 3376 §8.11 */
#define UNSOLICITED_V2 (10 * NS_PER_S)  /* RFC 2236 §8.10 */
#define V1_RESPONSE    (10 * NS_PER_S)  /* RFC 2236 §4 */
#define V1_QUERIER     (400 * NS_PER_S) /* RFC 2236 §8.11 */
#define QUERY_INTERVAL (125 * NS_PER_S) /* RFC 3376 §8.2 */

/* ---- tables ---- */

static uint16_t *chain(struct igmp *g, uint32_t ifc, uint32_t group)
{
        return &g->head[((group ^ ifc << 24) * 0x9e3779b1u) >> 26];
}
static_assert(ARRAY_LEN(((struct igmp *)0)->head) == 64, "the hash's six bits");

static uint32_t find(const struct igmp *g, uint32_t ifc, uint32_t group)
{
        uint32_t i = *chain((struct igmp *)(uintptr_t)g, ifc, group);

        while (i != 0 && (g->group[i].group != group || g->group[i].ifc != ifc))
                i = g->group[i].next;
        return i;
}

static uint32_t find_join(const struct igmp *g, uint32_t ifc, uint32_t group, uint32_t owner)
{
        uint32_t i = find(g, ifc, group), k = i != 0 ? g->group[i].joins : 0;

        while (k != 0 && g->join[k].owner != owner)
                k = g->join[k].next;
        return k;
}

static uint32_t free_slot_join(const struct igmp *g)
{
        for (uint32_t k = 1; k <= IGMP_JOINS; k++)
                if (g->join[k].owner == 0)
                        return k;
        return 0;
}

static uint32_t new_group(struct igmp *g, uint32_t ifc, uint32_t group)
{
        uint16_t *head = chain(g, ifc, group);

        for (uint32_t i = 1; i <= IGMP_GROUPS; i++) {
                if (g->group[i].group != 0)
                        continue;
                g->group[i] = (struct igmp_group){.group = group,
                                                  .ifc = (uint16_t)ifc,
                                                  .next = *head,
                                                  .report_at = NSTIME_NEVER,
                                                  .query_at = NSTIME_NEVER};
                *head = (uint16_t)i;
                return i;
        }
        return 0;
}

static void free_group(struct igmp *g, uint32_t i)
{
        uint16_t *link = chain(g, g->group[i].ifc, g->group[i].group);

        while (*link != i)
                link = &g->group[*link].next;
        *link = g->group[i].next;
        g->group[i].group = 0;
}

static void free_if_told(struct igmp *g, uint32_t i)
{
        const struct igmp_group *gr = &g->group[i];

        if (gr->joins == 0 && gr->mode_left == 0 && gr->nchg == 0)
                free_group(g, i);
}

void igmp_init(struct igmp *g)
{
        memset(g, 0, sizeof *g);
        g->next = NSTIME_NEVER;
        for (uint32_t k = 0; k < IGMP_IFS; k++) {
                g->ifs[k].robustness = IGMP_ROBUSTNESS;
                g->ifs[k].general_at = NSTIME_NEVER;
        }
}

nstime igmp_deadline(const struct igmp *g)
{
        return g->next;
}

static void due(struct igmp *g, nstime at)
{
        g->next = nstime_min(g->next, at);
}

/* RFC 3376 §7.2.1 */
static int version(const struct igmp *g, uint32_t ifc, nstime now)
{
        if (now < g->ifs[ifc].v1_until)
                return 1;
        return now < g->ifs[ifc].v2_until ? 2 : 3;
}

static nstime some_of(struct prng *rnd, nstime span)
{
        return (nstime)((unsigned __int128)prng_u64(rnd) * (uint64_t)span >> 64);
}

/* ---- source lists ---- */

static bool in(const uint32_t *src, unsigned n, uint32_t s)
{
        for (unsigned i = 0; i < n; i++)
                if (src[i] == s)
                        return true;
        return false;
}

/* Adds what is not there; false: it does not fit. */
static bool add(uint32_t *src, uint8_t *n, uint32_t s)
{
        if (in(src, *n, s))
                return true;
        if (CHECKED(*n >= IGMP_SOURCES))
                return false;
        src[(*n)++] = s;
        return true;
}

static void remove_source(uint32_t *src, uint8_t *n, uint32_t s)
{
        for (unsigned i = 0; i < *n; i++)
                if (src[i] == s) {
                        src[i] = src[--*n];
                        return;
                }
}

struct filter {
        bool exclude;
        uint8_t n;
        uint32_t src[IGMP_SOURCES];
};

/* One socket more in an excluding union: what both exclude stays excluded. */
static void exclude_both(struct filter *f, const struct igmp_join *j, bool first)
{
        for (unsigned i = f->n; i-- > 0;)
                if (!first && !in(j->src, j->nsrc, f->src[i]))
                        remove_source(f->src, &f->n, f->src[i]);
        for (unsigned i = 0; first && i < j->nsrc; i++)
                add(f->src, &f->n, j->src[i]);
}

/* RFC 3376 §3.2: the union of what the sockets want. */
static struct filter unite(const struct igmp *g, const struct igmp_group *gr)
{
        struct filter f = {0};
        bool fits = true;

        for (uint32_t k = gr->joins; k != 0; k = g->join[k].next)
                if (g->join[k].exclude) {
                        exclude_both(&f, &g->join[k], !f.exclude);
                        f.exclude = true;
                }
        for (uint32_t k = gr->joins; k != 0; k = g->join[k].next) {
                const struct igmp_join *j = &g->join[k];
                for (unsigned i = 0; !j->exclude && i < j->nsrc; i++) {
                        if (f.exclude)
                                remove_source(f.src, &f.n, j->src[i]);
                        else
                                fits &= add(f.src, &f.n, j->src[i]);
                }
        }
        return fits ? f : (struct filter){.exclude = true};
}

/* ---- changes to be told ---- */

static bool empty(const struct igmp_group *gr)
{
        return !gr->exclude && gr->nsrc == 0;
}

/* A source's part of the filter changed: told `left` times, replacing what was to be told of it. */
static bool note_change(struct igmp_group *gr, uint32_t src, bool allow, uint8_t left)
{
        for (unsigned i = 0; i < gr->nchg; i++)
                if (gr->chg[i].src == src) {
                        gr->chg[i] = (struct igmp_change){src, allow, left};
                        return true;
                }
        if (gr->nchg == IGMP_SOURCES)
                return false;
        gr->chg[gr->nchg++] = (struct igmp_change){src, allow, left};
        return true;
}

/* RFC 3376 §5.1, second table: ALLOW and BLOCK of what came and went. False: too much for the list. */
static bool note_changes(struct igmp_group *gr, const struct filter *was, uint8_t left)
{
        bool fits = true;

        for (unsigned i = 0; i < gr->nsrc; i++)
                if (!in(was->src, was->n, gr->src[i]))
                        fits &= note_change(gr, gr->src[i], !gr->exclude, left);
        for (unsigned i = 0; i < was->n; i++)
                if (!in(gr->src, gr->nsrc, was->src[i]))
                        fits &= note_change(gr, was->src[i], gr->exclude, left);
        return fits;
}

/* The whole filter is told: the mode changed, or it is simpler so. */
static void tell_mode(struct igmp_group *gr, uint8_t left)
{
        gr->mode_left = left;
        gr->nchg = 0;
}

/* RFC 2236 §3: a report when joining; when leaving, a message if we may be the last. */
static void changed_v2(const struct igmp *g, struct igmp_group *gr, bool was_empty, int v)
{
        gr->nchg = 0;
        if (was_empty == empty(gr))
                return;
        if (!empty(gr))
                gr->mode_left = g->ifs[gr->ifc].robustness;
        else
                gr->mode_left = v == 2 && gr->last_reporter;
}

static void changed(struct igmp *g, uint32_t i, const struct filter *was, nstime now)
{
        struct igmp_group *gr = &g->group[i];
        const struct igmp_if *ifc = &g->ifs[gr->ifc];
        int v = version(g, gr->ifc, now);

        if (gr->group != IGMP_ALL_HOSTS && ifc->up) {
                if (v != 3)
                        changed_v2(g, gr, !was->exclude && was->n == 0, v);
                else if (was->exclude != gr->exclude || gr->mode_left != 0 ||
                         !note_changes(gr, was, ifc->robustness))
                        tell_mode(gr, ifc->robustness);
        }
        if (gr->mode_left != 0 || gr->nchg != 0) {
                gr->report_at = now;
                due(g, now);
        }
        free_if_told(g, i);
}

/* The joins of the group changed: so may the interface's filter. */
static void refilter(struct igmp *g, uint32_t i, nstime now)
{
        struct igmp_group *gr = &g->group[i];
        struct filter was = {.exclude = gr->exclude, .n = gr->nsrc}, f = unite(g, gr);
        bool same = was.exclude == f.exclude && was.n == f.n;

        memcpy(was.src, gr->src, sizeof was.src);
        for (unsigned k = 0; same && k < f.n; k++)
                same = in(was.src, was.n, f.src[k]);
        gr->exclude = f.exclude;
        gr->nsrc = f.n;
        memcpy(gr->src, f.src, sizeof gr->src);
        if (same)
                free_if_told(g, i);
        else
                changed(g, i, &was, now);
}

/* ---- sockets ---- */

static void link_join(struct igmp *g, uint32_t i, uint32_t k)
{
        g->join[k].next = g->group[i].joins;
        g->group[i].joins = (uint16_t)k;
}

static void drop_join(struct igmp *g, uint32_t i, uint32_t k, nstime now)
{
        uint16_t *link = &g->group[i].joins;

        while (*link != k)
                link = &g->join[*link].next;
        *link = g->join[k].next;
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        g->join[k].owner = 0;
        refilter(g, i, now);
}

static void set_sources(struct igmp_join *j, bool exclude, const uint32_t *src, unsigned n)
{
        j->nsrc = 0;
        j->exclude = exclude;
        for (unsigned i = 0; i < n; i++)
                add(j->src, &j->nsrc, src[i]);
}

int igmp_listen(struct igmp *g, uint32_t ifc, uint32_t group, uint32_t owner, bool exclude, const uint32_t *src,
                unsigned n, nstime now)
{
        uint32_t i, k;

        if (ifc >= IGMP_IFS || !ip_v4_multicast(group))
                return -EINVAL;
        if (n > IGMP_SOURCES)
                return -ENOBUFS;
        i = find(g, ifc, group);
        k = find_join(g, ifc, group, owner);
        if (!exclude && n == 0) {
                if (k != 0)
                        drop_join(g, i, k, now);
                return 0;
        }
        if (k != 0) {
                set_sources(&g->join[k], exclude, src, n);
                refilter(g, i, now);
                return 0;
        }
        k = free_slot_join(g);
        if (k == 0 || (i == 0 && (i = new_group(g, ifc, group)) == 0))
                return -ENOBUFS;
        g->join[k] = (struct igmp_join){.group = group, .ifc = (uint16_t)ifc};
        set_sources(&g->join[k], exclude, src, n);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        g->join[k].owner = owner;
        link_join(g, i, k);
        refilter(g, i, now);
        return 0;
}

int igmp_join(struct igmp *g, uint32_t ifc, uint32_t group, uint32_t owner, nstime now)
{
        if (ifc < IGMP_IFS && find_join(g, ifc, group, owner) != 0)
                return -EADDRINUSE;
        return igmp_listen(g, ifc, group, owner, true, NULL, 0, now);
}

int igmp_leave(struct igmp *g, uint32_t ifc, uint32_t group, uint32_t owner, nstime now)
{
        if (ifc >= IGMP_IFS || find_join(g, ifc, group, owner) == 0)
                return -EADDRNOTAVAIL;
        return igmp_listen(g, ifc, group, owner, false, NULL, 0, now);
}

int igmp_source(struct igmp *g, uint32_t ifc, uint32_t group, uint32_t owner, uint32_t src, bool exclude, bool add_it,
                nstime now)
{
        uint32_t k = ifc < IGMP_IFS ? find_join(g, ifc, group, owner) : 0, list[IGMP_SOURCES];
        uint8_t n = 0;

        if (k == 0) {
                if (exclude || !add_it)
                        return exclude ? -EINVAL : -EADDRNOTAVAIL;
                return igmp_listen(g, ifc, group, owner, false, &src, 1, now);
        }
        if (g->join[k].exclude != exclude)
                return -EINVAL;
        n = g->join[k].nsrc;
        memcpy(list, g->join[k].src, sizeof list);
        if (in(list, n, src) == add_it)
                return -EADDRNOTAVAIL;
        if (!add_it)
                remove_source(list, &n, src);
        else if (!add(list, &n, src))
                return -ENOBUFS;
        return igmp_listen(g, ifc, group, owner, exclude, list, n, now);
}

void igmp_leave_all(struct igmp *g, uint32_t owner, nstime now)
{
        for (uint32_t k = 1; k <= IGMP_JOINS; k++)
                if (g->join[k].owner == owner)
                        drop_join(g, find(g, g->join[k].ifc, g->join[k].group), k, now);
}

const struct igmp_join *igmp_membership(const struct igmp *g, uint32_t ifc, uint32_t group, uint32_t owner)
{
        uint32_t k = ifc < IGMP_IFS ? find_join(g, ifc, group, owner) : 0;

        return k != 0 ? &g->join[k] : NULL;
}

bool igmp_member(const struct igmp *g, uint32_t ifc, uint32_t group)
{
        uint32_t i = ifc < IGMP_IFS ? find(g, ifc, group) : 0;

        return group == IGMP_ALL_HOSTS || (i != 0 && g->group[i].joins != 0);
}

bool igmp_wants(const struct igmp *g, uint32_t ifc, uint32_t group, uint32_t owner, uint32_t src, bool all)
{
        const struct igmp_join *j = igmp_membership(g, ifc, group, owner);

        return j != NULL ? in(j->src, j->nsrc, src) != (j->exclude != 0) : all;
}

/* ---- interfaces ---- */

void igmp_if_up(struct igmp *g, uint32_t ifc, uint32_t addr, nstime now)
{
        if (ifc >= IGMP_IFS)
                return;
        g->ifs[ifc] = (struct igmp_if){
                .up = true, .robustness = IGMP_ROBUSTNESS, .addr = addr, .general_at = NSTIME_NEVER};
        for (uint32_t i = 1; i <= IGMP_GROUPS; i++) {
                struct igmp_group *gr = &g->group[i];
                if (gr->group == 0 || gr->ifc != ifc || gr->group == IGMP_ALL_HOSTS || gr->joins == 0)
                        continue;
                tell_mode(gr, IGMP_ROBUSTNESS);
                gr->report_at = now;
                due(g, now);
        }
}

/* Nothing is due on the interface any more. */
static void cancel(struct igmp *g, uint32_t ifc)
{
        g->ifs[ifc].general_at = NSTIME_NEVER;
        g->ifs[ifc].cursor = 0;
        for (uint32_t i = 1; i <= IGMP_GROUPS; i++) {
                struct igmp_group *gr = &g->group[i];
                if (gr->group == 0 || gr->ifc != ifc)
                        continue;
                tell_mode(gr, 0);
                gr->report_at = gr->query_at = NSTIME_NEVER;
                free_if_told(g, i);
        }
}

void igmp_if_down(struct igmp *g, uint32_t ifc)
{
        if (ifc >= IGMP_IFS)
                return;
        g->ifs[ifc].up = false;
        cancel(g, ifc);
}

/* ---- queries and reports that arrive ---- */

struct query {
        int version;
        nstime max;      /* longest time to answer in */
        uint32_t group;  /* 0: general */
        uint8_t robustness, nsrc; /* 0 sources: of the group */
        bool too_many;   /* more sources than are remembered: as if it asked for all */
        uint32_t src[IGMP_SOURCES];
};

/* RFC 3376 §4.1.1: eight bits, beyond 127 with an exponent; tenths of a second. */
static nstime response_time(uint8_t code)
{
        nstime tenths = code < 128 ? code : (nstime)((code & 0xf) | 0x10) << ((code >> 4 & 7) + 3);

        return tenths * (NS_PER_S / 10);
}

static uint32_t get32(const uint8_t *p)
{
        be32 raw;

        memcpy(&raw, p, sizeof raw);
        return be32_get(raw);
}

/* RFC 3376 §7.1: versions by length and code. False: of none. */
static bool read_query(const uint8_t *p, uint32_t len, struct query *q)
{
        *q = (struct query){.group = get32(p + 4)};
        if (len == V2_LEN) {
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
                add(q->src, &q->nsrc, get32(p + V3_QUERY_LEN + 4 * i));
        return true;
}

/* RFC 3376 §7.2.1: an older querier is there; who changes the version forgets what was pending. */
static void note_version(struct igmp *g, uint32_t ifc, const struct query *q, nstime now)
{
        struct igmp_if *f = &g->ifs[ifc];
        int was = version(g, ifc, now);

        if (q->version == 1)
                f->v1_until = now + V1_QUERIER;
        else if (q->version == 2 && q->group == 0) /* §8.12 */
                f->v2_until = now + f->robustness * QUERY_INTERVAL + q->max;
        if (version(g, ifc, now) != was)
                cancel(g, ifc);
}

/* RFC 3376 §5.2 rules 1 and 2. */
static void ask_interface(struct igmp *g, uint32_t ifc, nstime at)
{
        g->ifs[ifc].general_at = nstime_min(g->ifs[ifc].general_at, at);
        due(g, g->ifs[ifc].general_at);
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
                all = !add(gr->asked, &gr->nasked, q->src[i]);
        gr->asked_all |= all;
        gr->query_at = nstime_min(gr->query_at, at);
        due(g, gr->query_at);
}

/* RFC 2236 §3: each group has its own time; one that runs and is soon enough goes on. */
static void ask_v2(struct igmp *g, uint32_t ifc, const struct query *q, struct prng *rnd, nstime now)
{
        for (uint32_t i = 1; i <= IGMP_GROUPS; i++) {
                struct igmp_group *gr = &g->group[i];
                if (gr->group == 0 || gr->ifc != ifc || empty(gr) || (q->group != 0 && q->group != gr->group) ||
                    gr->group == IGMP_ALL_HOSTS)
                        continue;
                ask_group(g, gr, q, now + some_of(rnd, q->max));
        }
}

static void ask_v3(struct igmp *g, uint32_t ifc, const struct query *q, struct prng *rnd, nstime now)
{
        nstime at = now + some_of(rnd, q->max);
        uint32_t i;

        if (g->ifs[ifc].general_at <= at)
                return; /* §5.2 rule 1: that answer says it all */
        if (q->group == 0) {
                ask_interface(g, ifc, at);
                return;
        }
        i = find(g, ifc, q->group);
        if (i != 0 && !empty(&g->group[i]) && q->group != IGMP_ALL_HOSTS)
                ask_group(g, &g->group[i], q, at);
}

static enum drop rx_query(struct igmp *g, uint32_t ifc, const struct ip_pkt *pkt, const uint8_t *p, uint32_t len,
                          struct prng *rnd, nstime now)
{
        struct query q;

        /* §9.1: who asks is on this link; a general query goes to all hosts (or to one, §4.1.12). */
        if (!read_query(p, len, &q) || pkt->ttl != 1 || (q.group != 0 && !ip_v4_multicast(q.group)))
                return DROP_IGMP_IGNORED;
        if (q.group == 0 && pkt->to == IP_TO_GROUP && ip_addr_get_v4(pkt->dst) != IGMP_ALL_HOSTS)
                return DROP_IGMP_IGNORED;
        note_version(g, ifc, &q, now);
        if (q.version == 3)
                g->ifs[ifc].robustness = q.robustness != 0 ? q.robustness : IGMP_ROBUSTNESS; /* §4.1.6 */
        if (version(g, ifc, now) == 3)
                ask_v3(g, ifc, &q, rnd, now);
        else
                ask_v2(g, ifc, &q, rnd, now);
        return DROP_NONE;
}

/* RFC 2236 §3: another member has spoken for the group; version 3 has no suppression (RFC 3376 §A.2). */
static enum drop rx_report(struct igmp *g, uint32_t ifc, uint32_t group, nstime now)
{
        uint32_t i = find(g, ifc, group);

        if (i == 0 || version(g, ifc, now) == 3 || empty(&g->group[i]))
                return DROP_IGMP_IGNORED;
        g->group[i].query_at = g->group[i].report_at = NSTIME_NEVER;
        g->group[i].mode_left = 0;
        g->group[i].last_reporter = false;
        return DROP_NONE;
}

enum drop igmp_rx(struct igmp *g, const struct frames *f, uint32_t ifc, const struct ip_pkt *pkt, struct prng *rnd,
                  nstime now)
{
        uint8_t msg[V3_QUERY_LEN + 4 * IGMP_SOURCES];
        uint32_t len = ip_payload_len(pkt), n = MIN(len, (uint32_t)sizeof msg), inl = MIN(n, pkt->inl_len);
        uint32_t sum;

        if (len < V2_LEN)
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
        case QUERY:
                return rx_query(g, ifc, pkt, msg, len, rnd, now);
        case V1_REPORT:
        case V2_REPORT:
                return rx_report(g, ifc, get32(msg + 4), now);
        default:
                return DROP_IGMP_IGNORED;
        }
}

/* ---- what leaves ---- */

static void put16(uint8_t *p, uint32_t v)
{
        be16 raw = be16_of((uint16_t)v);

        memcpy(p, &raw, sizeof raw);
}

static void put32(uint8_t *p, uint32_t v)
{
        be32 raw = be32_of(v);

        memcpy(p, &raw, sizeof raw);
}

static void put_sum(uint8_t *field, const uint8_t *p, uint32_t n)
{
        be16 sum = {0};

        memcpy(field, &sum, sizeof sum);
        sum = csum_finish(csum_partial(p, n, 0));
        memcpy(field, &sum, sizeof sum);
}

/* RFC 3376 §4: TTL 1, precedence of internetwork control, router alert. Around `len` bytes that stand behind it. */
static void wrap(const struct igmp *g, uint8_t *out, uint32_t ifc, uint32_t dst, uint32_t len, struct igmp_msg *msg)
{
        static const uint8_t alert[4] = {148, 4, 0, 0};

        memset(out, 0, HDR);
        out[0] = 0x46;
        out[1] = 0xc0;
        put16(out + 2, HDR + len);
        out[6] = 0x40; /* DF: needs no ID */
        out[8] = 1;
        out[9] = IP_PROTO_IGMP;
        put32(out + 12, g->ifs[ifc].addr);
        put32(out + 16, dst);
        memcpy(out + 20, alert, sizeof alert);
        put_sum(out + 10, out, HDR);
        put_sum(out + HDR + 2, out + HDR, len);
        *msg = (struct igmp_msg){.ifc = ifc, .dst = dst, .len = HDR + len};
}

static void write_v2(const struct igmp *g, const struct igmp_group *gr, uint8_t type, uint8_t *out,
                     struct igmp_msg *msg)
{
        memset(out + HDR, 0, V2_LEN);
        out[HDR] = type;
        put32(out + HDR + 4, gr->group);
        wrap(g, out, gr->ifc, type == V2_LEAVE ? IGMP_ALL_ROUTERS : gr->group, V2_LEN, msg);
}

struct report {         /* version 3, being filled */
        uint8_t *out;
        uint32_t len, records;
};

static struct report report_begin(uint8_t *out)
{
        memset(out + HDR, 0, 8);
        out[HDR] = V3_REPORT;
        return (struct report){.out = out, .len = 8};
}

/* Begins a record; its sources follow by put_source(). */
static uint8_t *put_record(struct report *r, uint8_t type, uint32_t group)
{
        uint8_t *p = r->out + HDR + r->len;

        p[0] = type;
        p[1] = 0;
        put16(p + 2, 0);
        put32(p + 4, group);
        r->len += RECORD;
        r->records++;
        return p;
}

static void put_source(struct report *r, uint8_t *record, uint32_t src)
{
        put32(r->out + HDR + r->len, src);
        r->len += 4;
        put16(record + 2, record[2] * 256u + record[3] + 1);
}

static void put_filter(struct report *r, const struct igmp_group *gr, uint8_t include, uint8_t exclude)
{
        uint8_t *p = put_record(r, gr->exclude ? exclude : include, gr->group);

        for (unsigned i = 0; i < gr->nsrc; i++)
                put_source(r, p, gr->src[i]);
}

static void report_end(const struct igmp *g, struct report *r, uint32_t ifc, struct igmp_msg *msg)
{
        put16(r->out + HDR + 6, r->records);
        wrap(g, r->out, ifc, IGMP_ALL_V3, r->len, msg);
}

/* The state of all groups of the interface, in as many messages as it takes (RFC 3376 §4.2.16). */
static bool answer_general(struct igmp *g, uint32_t ifc, uint8_t *out, uint32_t room, struct igmp_msg *msg)
{
        struct igmp_if *f = &g->ifs[ifc];
        struct report r = report_begin(out);
        uint32_t i = f->cursor != 0 ? f->cursor : 1;

        for (; i <= IGMP_GROUPS; i++) {
                const struct igmp_group *gr = &g->group[i];
                if (gr->group == 0 || gr->ifc != ifc || empty(gr) || gr->group == IGMP_ALL_HOSTS)
                        continue;
                if (HDR + r.len + RECORD + 4u * gr->nsrc > room)
                        break;
                put_filter(&r, gr, IS_IN, IS_EX);
        }
        f->cursor = i <= IGMP_GROUPS ? (uint16_t)i : 0;
        if (f->cursor == 0)
                f->general_at = NSTIME_NEVER;
        if (r.records == 0)
                return false;
        report_end(g, &r, ifc, msg);
        return true;
}

/* RFC 3376 §5.2, last table: of the sources asked about, those that are wanted. */
static void put_asked(struct report *r, const struct igmp_group *gr)
{
        uint8_t *p = NULL;

        for (unsigned i = 0; i < gr->nasked; i++) {
                if (in(gr->src, gr->nsrc, gr->asked[i]) == (gr->exclude != 0))
                        continue;
                if (p == NULL)
                        p = put_record(r, IS_IN, gr->group);
                put_source(r, p, gr->asked[i]);
        }
}

static bool answer_group(const struct igmp *g, struct igmp_group *gr, uint8_t *out, struct igmp_msg *msg, int v)
{
        struct report r = report_begin(out);

        gr->query_at = NSTIME_NEVER;
        if (empty(gr))
                return false;
        if (v != 3) {
                gr->last_reporter = true;
                write_v2(g, gr, v == 1 ? V1_REPORT : V2_REPORT, out, msg);
                return true;
        }
        if (gr->asked_all)
                put_filter(&r, gr, IS_IN, IS_EX);
        else
                put_asked(&r, gr);
        if (r.records == 0)
                return false;
        report_end(g, &r, gr->ifc, msg);
        return true;
}

static void put_changes(struct report *r, const struct igmp_group *gr, bool allow)
{
        uint8_t *p = NULL;

        for (unsigned i = 0; i < gr->nchg; i++) {
                if (gr->chg[i].allow != allow)
                        continue;
                if (p == NULL)
                        p = put_record(r, allow ? ALLOW : BLOCK, gr->group);
                put_source(r, p, gr->chg[i].src);
        }
}

static void told_once(struct igmp_group *gr)
{
        if (gr->mode_left != 0) {
                gr->mode_left--;
                return;
        }
        for (unsigned i = gr->nchg; i-- > 0;)
                if (--gr->chg[i].left == 0)
                        gr->chg[i] = gr->chg[--gr->nchg];
}

static void write_change(const struct igmp *g, struct igmp_group *gr, uint8_t *out, struct igmp_msg *msg, int v)
{
        struct report r = report_begin(out);

        if (v != 3) {
                gr->last_reporter = true;
                write_v2(g, gr, empty(gr) ? V2_LEAVE : v == 1 ? V1_REPORT : V2_REPORT, out, msg);
                return;
        }
        if (gr->mode_left != 0) {
                put_filter(&r, gr, TO_IN, TO_EX);
        } else {
                put_changes(&r, gr, true);
                put_changes(&r, gr, false);
        }
        report_end(g, &r, gr->ifc, msg);
}

/* RFC 3376 §5.1: at once, and then again at random times. */
static bool tell_change(struct igmp *g, uint32_t i, uint8_t *out, struct igmp_msg *msg, struct prng *rnd, nstime now)
{
        struct igmp_group *gr = &g->group[i];
        int v = version(g, gr->ifc, now);

        gr->report_at = NSTIME_NEVER;
        if (gr->mode_left == 0 && (gr->nchg == 0 || v != 3)) {
                gr->nchg = 0;
                free_if_told(g, i);
                return false;
        }
        write_change(g, gr, out, msg, v);
        told_once(gr);
        if (gr->mode_left != 0 || gr->nchg != 0)
                gr->report_at = now + some_of(rnd, v == 3 ? UNSOLICITED_V3 : UNSOLICITED_V2);
        free_if_told(g, i);
        return true;
}

static bool output_group(struct igmp *g, uint32_t i, uint8_t *out, struct igmp_msg *msg, struct prng *rnd, nstime now)
{
        struct igmp_group *gr = &g->group[i];

        if (gr->query_at <= now && answer_group(g, gr, out, msg, version(g, gr->ifc, now)))
                return true;
        return gr->report_at <= now && tell_change(g, i, out, msg, rnd, now);
}

bool igmp_output(struct igmp *g, uint8_t *out, uint32_t room, struct igmp_msg *msg, struct prng *rnd, nstime now)
{
        if (now < g->next)
                return false;
        assert(room >= IGMP_MIN_ROOM);
        for (uint32_t k = 0; k < IGMP_IFS; k++)
                if (g->ifs[k].general_at <= now && answer_general(g, k, out, room, msg))
                        return true;
        for (uint32_t i = 1; i <= IGMP_GROUPS; i++)
                if (g->group[i].group != 0 && output_group(g, i, out, msg, rnd, now))
                        return true;
        g->next = NSTIME_NEVER;
        for (uint32_t k = 0; k < IGMP_IFS; k++)
                due(g, g->ifs[k].general_at);
        for (uint32_t i = 1; i <= IGMP_GROUPS; i++)
                if (g->group[i].group != 0)
                        due(g, nstime_min(g->group[i].query_at, g->group[i].report_at));
        return false;
}

/* ---- after a death ---- */

void igmp_recover(struct igmp *g, bool (*lives)(void *arg, uint32_t owner), void *arg, nstime now)
{
        memset(g->head, 0, sizeof g->head);
        memset(g->group, 0, sizeof g->group);
        for (uint32_t k = 0; k < IGMP_IFS; k++) {
                g->ifs[k].general_at = NSTIME_NEVER;
                g->ifs[k].cursor = 0;
        }
        g->next = now;
        for (uint32_t k = 1; k <= IGMP_JOINS; k++) {
                struct igmp_join *j = &g->join[k];
                uint32_t i;
                if (j->owner == 0)
                        continue;
                i = lives(arg, j->owner) && j->ifc < IGMP_IFS ? find(g, j->ifc, j->group) : 0;
                if (!lives(arg, j->owner) || j->ifc >= IGMP_IFS ||
                    (i == 0 && (i = new_group(g, j->ifc, j->group)) == 0)) {
                        j->owner = 0;
                        continue;
                }
                j->nsrc = MIN(j->nsrc, IGMP_SOURCES);
                link_join(g, i, k);
        }
        for (uint32_t i = 1; i <= IGMP_GROUPS; i++)
                if (g->group[i].group != 0)
                        refilter(g, i, now);
}

/* ---- for tests ---- */

static void check_group(const struct igmp *g, uint32_t i)
{
        const struct igmp_group *gr = &g->group[i];
        struct filter f = unite(g, gr);

        assert(find(g, gr->ifc, gr->group) == i && gr->nsrc <= IGMP_SOURCES && gr->nasked <= IGMP_SOURCES);
        assert(gr->nchg <= IGMP_SOURCES && gr->exclude == f.exclude && gr->nsrc == f.n);
        for (unsigned k = 0; k < f.n; k++)
                assert(in(gr->src, gr->nsrc, f.src[k]));
        assert(gr->joins != 0 || gr->mode_left != 0 || gr->nchg != 0);
        assert(gr->report_at >= g->next && gr->query_at >= g->next);
}

void igmp_check(const struct igmp *g)
{
        uint32_t joins = 0, linked = 0;

        for (uint32_t k = 1; k <= IGMP_JOINS; k++)
                joins += g->join[k].owner != 0;
        for (uint32_t i = 1; i <= IGMP_GROUPS; i++) {
                if (g->group[i].group == 0)
                        continue;
                check_group(g, i);
                for (uint32_t k = g->group[i].joins; k != 0; k = g->join[k].next)
                        linked++;
        }
        assert(joins == linked);
        for (uint32_t k = 0; k < IGMP_IFS; k++)
                assert(g->ifs[k].general_at >= g->next);
}
