/*
 * IGMP, host side: groups, filters and interfaces. RFC 3376, RFC 2236, RFC 1112.
 *
 * sockets:  igmp_listen() -> refilter() -> changed()             what is to be told, and when
 * queries:  igmp_query.c;  out: igmp_report.c
 */
#include "ip/igmp_int.h"

#include <errno.h>

#include "base/planted.h"

/* ---- tables ---- */

static uint16_t *chain(struct igmp *g, uint32_t ifc, uint32_t group)
{
        return &g->head[((group ^ ifc << 24) * 0x9e3779b1u) >> 26];
}
static_assert(ARRAY_LEN(((struct igmp *)0)->head) == 64, "the hash's six bits");

uint32_t igmp_find(const struct igmp *g, uint32_t ifc, uint32_t group)
{
        uint32_t i = *chain((struct igmp *)(uintptr_t)g, ifc, group);

        while (i != 0 && (g->group[i].group != group || g->group[i].ifc != ifc))
                i = g->group[i].next;
        return i;
}

static uint32_t find_join(const struct igmp *g, uint32_t ifc, uint32_t group, uint32_t owner)
{
        uint32_t i = igmp_find(g, ifc, group), k = i != 0 ? g->group[i].joins : 0;

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

void igmp_free_if_told(struct igmp *g, uint32_t i)
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
        return READ_ONCE(g->next);
}

void igmp_due(struct igmp *g, nstime at)
{
        WRITE_ONCE(g->next, nstime_min(g->next, at));
}

int igmp_version(const struct igmp *g, uint32_t ifc, nstime now)
{
        if (now < g->ifs[ifc].v1_until)
                return 1;
        return now < g->ifs[ifc].v2_until ? 2 : 3;
}

/* ---- source lists ---- */

bool igmp_add_source(uint32_t *src, uint8_t *n, uint32_t s)
{
        if (igmp_has_source(src, *n, s))
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

/* Adds a socket to an excluding union: what both exclude stays excluded. */
static void exclude_both(struct filter *f, const struct igmp_join *j, bool first)
{
        for (unsigned i = f->n; i-- > 0;)
                if (!first && !igmp_has_source(j->src, j->nsrc, f->src[i]))
                        remove_source(f->src, &f->n, f->src[i]);
        for (unsigned i = 0; first && i < j->nsrc; i++)
                igmp_add_source(f->src, &f->n, j->src[i]);
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
                                fits &= igmp_add_source(f.src, &f.n, j->src[i]);
                }
        }
        return fits ? f : (struct filter){.exclude = true};
}

/* ---- changes to be told ---- */

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

/* RFC 3376 §5.1, second table: ALLOW and BLOCK of what came and went. False: too much for
 * the list. */
static bool note_changes(struct igmp_group *gr, const struct filter *was, uint8_t left)
{
        bool fits = true;

        for (unsigned i = 0; i < gr->nsrc; i++)
                if (!igmp_has_source(was->src, was->n, gr->src[i]))
                        fits &= note_change(gr, gr->src[i], !gr->exclude, left);
        for (unsigned i = 0; i < was->n; i++)
                if (!igmp_has_source(gr->src, gr->nsrc, was->src[i]))
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
        if (was_empty == igmp_empty(gr))
                return;
        if (!igmp_empty(gr))
                gr->mode_left = g->ifs[gr->ifc].robustness;
        else
                gr->mode_left = v == 2 && gr->last_reporter;
}

static void changed(struct igmp *g, uint32_t i, const struct filter *was, nstime now)
{
        struct igmp_group *gr = &g->group[i];
        const struct igmp_if *ifc = &g->ifs[gr->ifc];
        int v = igmp_version(g, gr->ifc, now);

        if (gr->group != IGMP_ALL_HOSTS && ifc->up) {
                if (v != 3)
                        changed_v2(g, gr, !was->exclude && was->n == 0, v);
                else if (was->exclude != gr->exclude || gr->mode_left != 0 ||
                         !note_changes(gr, was, ifc->robustness))
                        tell_mode(gr, ifc->robustness);
        }
        if (gr->mode_left != 0 || gr->nchg != 0) {
                gr->report_at = now;
                igmp_due(g, now);
        }
        igmp_free_if_told(g, i);
}

/* The joins of the group changed: so may the interface's filter. */
static void refilter(struct igmp *g, uint32_t i, nstime now)
{
        struct igmp_group *gr = &g->group[i];
        struct filter was = {.exclude = gr->exclude, .n = gr->nsrc}, f = unite(g, gr);
        bool same = was.exclude == f.exclude && was.n == f.n;

        memcpy(was.src, gr->src, sizeof was.src);
        for (unsigned k = 0; same && k < f.n; k++)
                same = igmp_has_source(was.src, was.n, f.src[k]);
        gr->exclude = f.exclude;
        gr->nsrc = f.n;
        memcpy(gr->src, f.src, sizeof gr->src);
        if (same)
                igmp_free_if_told(g, i);
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
                igmp_add_source(j->src, &j->nsrc, src[i]);
}

int igmp_listen(struct igmp *g, uint32_t ifc, uint32_t group, uint32_t owner, bool exclude,
                const uint32_t *src, unsigned n, nstime now)
{
        uint32_t i, k;

        if (ifc >= IGMP_IFS || !ip_v4_multicast(group))
                return -EINVAL;
        if (n > IGMP_SOURCES)
                return -ENOBUFS;
        i = igmp_find(g, ifc, group);
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

int igmp_source(struct igmp *g, uint32_t ifc, uint32_t group, uint32_t owner, uint32_t src,
                bool exclude, bool add_it, nstime now)
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
        if (igmp_has_source(list, n, src) == add_it)
                return -EADDRNOTAVAIL;
        if (!add_it)
                remove_source(list, &n, src);
        else if (!igmp_add_source(list, &n, src))
                return -ENOBUFS;
        return igmp_listen(g, ifc, group, owner, exclude, list, n, now);
}

void igmp_leave_all(struct igmp *g, uint32_t owner, nstime now)
{
        for (uint32_t k = 1; k <= IGMP_JOINS; k++)
                if (g->join[k].owner == owner)
                        drop_join(g, igmp_find(g, g->join[k].ifc, g->join[k].group), k, now);
}

unsigned igmp_memberships(const struct igmp *g, uint32_t owner)
{
        unsigned n = 0;

        for (uint32_t k = 1; k <= IGMP_JOINS; k++)
                n += g->join[k].owner == owner;
        return n;
}

const struct igmp_join *igmp_membership(const struct igmp *g, uint32_t ifc, uint32_t group,
                                        uint32_t owner)
{
        uint32_t k = ifc < IGMP_IFS ? find_join(g, ifc, group, owner) : 0;

        return k != 0 ? &g->join[k] : NULL;
}

bool igmp_member(const struct igmp *g, uint32_t ifc, uint32_t group)
{
        uint32_t i = ifc < IGMP_IFS ? igmp_find(g, ifc, group) : 0;

        return group == IGMP_ALL_HOSTS || (i != 0 && g->group[i].joins != 0);
}

bool igmp_wants(const struct igmp *g, uint32_t ifc, uint32_t group, uint32_t owner, uint32_t src,
                bool all)
{
        const struct igmp_join *j = igmp_membership(g, ifc, group, owner);

        return j != NULL ? igmp_has_source(j->src, j->nsrc, src) != (j->exclude != 0) : all;
}

/* ---- interfaces ---- */

void igmp_if_up(struct igmp *g, uint32_t ifc, uint32_t addr, nstime now)
{
        if (ifc >= IGMP_IFS)
                return;
        g->ifs[ifc] = (struct igmp_if){.up = true,
                                       .robustness = IGMP_ROBUSTNESS,
                                       .addr = addr,
                                       .general_at = NSTIME_NEVER};
        for (uint32_t i = 1; i <= IGMP_GROUPS; i++) {
                struct igmp_group *gr = &g->group[i];
                if (gr->group == 0 || gr->ifc != ifc || gr->group == IGMP_ALL_HOSTS ||
                    gr->joins == 0)
                        continue;
                tell_mode(gr, IGMP_ROBUSTNESS);
                gr->report_at = now;
                igmp_due(g, now);
        }
}

void igmp_cancel(struct igmp *g, uint32_t ifc)
{
        g->ifs[ifc].general_at = NSTIME_NEVER;
        g->ifs[ifc].cursor = 0;
        for (uint32_t i = 1; i <= IGMP_GROUPS; i++) {
                struct igmp_group *gr = &g->group[i];
                if (gr->group == 0 || gr->ifc != ifc)
                        continue;
                tell_mode(gr, 0);
                gr->report_at = gr->query_at = NSTIME_NEVER;
                igmp_free_if_told(g, i);
        }
}

void igmp_if_down(struct igmp *g, uint32_t ifc)
{
        if (ifc >= IGMP_IFS)
                return;
        g->ifs[ifc].up = false;
        igmp_cancel(g, ifc);
}

void igmp_if_gone(struct igmp *g, uint32_t ifc)
{
        if (ifc >= IGMP_IFS)
                return;
        igmp_if_down(g, ifc);
        for (uint32_t k = 1; k <= IGMP_JOINS; k++)
                if (g->join[k].owner != 0 && g->join[k].ifc == ifc)
                        drop_join(g, igmp_find(g, ifc, g->join[k].group), k, 0);
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
        WRITE_ONCE(g->next, now);
        for (uint32_t k = 1; k <= IGMP_JOINS; k++) {
                struct igmp_join *j = &g->join[k];
                uint32_t i;
                if (j->owner == 0)
                        continue;
                i = lives(arg, j->owner) && j->ifc < IGMP_IFS ? igmp_find(g, j->ifc, j->group) : 0;
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

        assert(igmp_find(g, gr->ifc, gr->group) == i && gr->nsrc <= IGMP_SOURCES &&
               gr->nasked <= IGMP_SOURCES);
        assert(gr->nchg <= IGMP_SOURCES && gr->exclude == f.exclude && gr->nsrc == f.n);
        for (unsigned k = 0; k < f.n; k++)
                assert(igmp_has_source(gr->src, gr->nsrc, f.src[k]));
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
