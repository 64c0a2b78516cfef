/*
 * IGMP, host side: what leaves. RFC 3376 §4.2 and §5, RFC 2236 §3.
 *
 * igmp_output() -> answer_general() | answer_group() | tell_change()
 */
#include "ip/igmp_int.h"

#include "base/checksum.h"

enum { IS_IN = 1, IS_EX = 2, TO_IN = 3, TO_EX = 4, ALLOW = 5, BLOCK = 6 }; /* RFC 3376 §4.2.12 */

#define HDR            24u /* IP with router alert */
#define RECORD         8u
#define UNSOLICITED_V3 NS_PER_S        /* RFC 3376 §8.11 */
#define UNSOLICITED_V2 (10 * NS_PER_S) /* RFC 2236 §8.10 */

static void put_sum(uint8_t *field, const uint8_t *p, uint32_t n)
{
        be16 sum = {0};

        memcpy(field, &sum, sizeof sum);
        sum = csum_finish(csum_partial(p, n, 0));
        memcpy(field, &sum, sizeof sum);
}

/* RFC 3376 §4: TTL 1, precedence of internetwork control, router alert. Around `len` bytes that
 * stand behind it. */
static void wrap(const struct igmp *g, uint8_t *out, uint32_t ifc, uint32_t dst, uint32_t len,
                 struct igmp_msg *msg)
{
        static const uint8_t alert[4] = {148, 4, 0, 0};

        memset(out, 0, HDR);
        out[0] = 0x46;
        out[1] = 0xc0;
        be16_put(out + 2, HDR + len);
        out[6] = 0x40; /* DF: needs no ID */
        out[8] = 1;
        out[9] = IP_PROTO_IGMP;
        be32_put(out + 12, g->ifs[ifc].addr);
        be32_put(out + 16, dst);
        memcpy(out + 20, alert, sizeof alert);
        put_sum(out + 10, out, HDR);
        put_sum(out + HDR + 2, out + HDR, len);
        *msg = (struct igmp_msg){.ifc = ifc, .dst = dst, .len = HDR + len};
}

static void write_v2(const struct igmp *g, const struct igmp_group *gr, uint8_t type, uint8_t *out,
                     struct igmp_msg *msg)
{
        memset(out + HDR, 0, IGMP_V2_LEN);
        out[HDR] = type;
        be32_put(out + HDR + 4, gr->group);
        wrap(g, out, gr->ifc, type == IGMP_V2_LEAVE ? IGMP_ALL_ROUTERS : gr->group, IGMP_V2_LEN,
             msg);
}

struct report { /* version 3, being filled */
        uint8_t *out;
        uint32_t len, records;
};

static struct report report_begin(uint8_t *out)
{
        memset(out + HDR, 0, 8);
        out[HDR] = IGMP_V3_REPORT;
        return (struct report){.out = out, .len = 8};
}

/* Begins a record; its sources follow by put_source(). */
static uint8_t *put_record(struct report *r, uint8_t type, uint32_t group)
{
        uint8_t *p = r->out + HDR + r->len;

        p[0] = type;
        p[1] = 0;
        be16_put(p + 2, 0);
        be32_put(p + 4, group);
        r->len += RECORD;
        r->records++;
        return p;
}

static void put_source(struct report *r, uint8_t *record, uint32_t src)
{
        be32_put(r->out + HDR + r->len, src);
        r->len += 4;
        be16_put(record + 2, record[2] * 256u + record[3] + 1);
}

static void put_filter(struct report *r, const struct igmp_group *gr, uint8_t include,
                       uint8_t exclude)
{
        uint8_t *p = put_record(r, gr->exclude ? exclude : include, gr->group);

        for (unsigned i = 0; i < gr->nsrc; i++)
                put_source(r, p, gr->src[i]);
}

static void report_end(const struct igmp *g, struct report *r, uint32_t ifc, struct igmp_msg *msg)
{
        be16_put(r->out + HDR + 6, r->records);
        wrap(g, r->out, ifc, IGMP_ALL_V3, r->len, msg);
}

/* The state of all groups of the interface, in as many messages as it takes (RFC 3376 §4.2.16). */
static bool answer_general(struct igmp *g, uint32_t ifc, uint8_t *out, uint32_t room,
                           struct igmp_msg *msg)
{
        struct igmp_if *f = &g->ifs[ifc];
        struct report r = report_begin(out);
        uint32_t i = f->cursor != 0 ? f->cursor : 1;

        for (; i <= IGMP_GROUPS; i++) {
                const struct igmp_group *gr = &g->group[i];
                if (gr->group == 0 || gr->ifc != ifc || igmp_empty(gr) ||
                    gr->group == IGMP_ALL_HOSTS)
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
                if (igmp_has_source(gr->src, gr->nsrc, gr->asked[i]) == (gr->exclude != 0))
                        continue;
                if (p == NULL)
                        p = put_record(r, IS_IN, gr->group);
                put_source(r, p, gr->asked[i]);
        }
}

static bool answer_group(const struct igmp *g, struct igmp_group *gr, uint8_t *out,
                         struct igmp_msg *msg, int v)
{
        struct report r = report_begin(out);

        gr->query_at = NSTIME_NEVER;
        if (igmp_empty(gr))
                return false;
        if (v != 3) {
                gr->last_reporter = true;
                write_v2(g, gr, v == 1 ? IGMP_V1_REPORT : IGMP_V2_REPORT, out, msg);
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

static void write_change(const struct igmp *g, struct igmp_group *gr, uint8_t *out,
                         struct igmp_msg *msg, int v)
{
        struct report r = report_begin(out);

        if (v != 3) {
                gr->last_reporter = true;
                write_v2(g, gr,
                         igmp_empty(gr) ? IGMP_V2_LEAVE
                         : v == 1       ? IGMP_V1_REPORT
                                        : IGMP_V2_REPORT,
                         out, msg);
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
static bool tell_change(struct igmp *g, uint32_t i, uint8_t *out, struct igmp_msg *msg,
                        struct prng *rnd, nstime now)
{
        struct igmp_group *gr = &g->group[i];
        int v = igmp_version(g, gr->ifc, now);

        gr->report_at = NSTIME_NEVER;
        if (gr->mode_left == 0 && (gr->nchg == 0 || v != 3)) {
                gr->nchg = 0;
                igmp_free_if_told(g, i);
                return false;
        }
        write_change(g, gr, out, msg, v);
        told_once(gr);
        if (gr->mode_left != 0 || gr->nchg != 0)
                gr->report_at = now + igmp_some_of(rnd, v == 3 ? UNSOLICITED_V3 : UNSOLICITED_V2);
        igmp_free_if_told(g, i);
        return true;
}

static bool output_group(struct igmp *g, uint32_t i, uint8_t *out, struct igmp_msg *msg,
                         struct prng *rnd, nstime now)
{
        struct igmp_group *gr = &g->group[i];

        if (gr->query_at <= now && answer_group(g, gr, out, msg, igmp_version(g, gr->ifc, now)))
                return true;
        return gr->report_at <= now && tell_change(g, i, out, msg, rnd, now);
}

bool igmp_output(struct igmp *g, uint8_t *out, uint32_t room, struct igmp_msg *msg,
                 struct prng *rnd, nstime now)
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
                igmp_due(g, g->ifs[k].general_at);
        for (uint32_t i = 1; i <= IGMP_GROUPS; i++)
                if (g->group[i].group != 0)
                        igmp_due(g, nstime_min(g->group[i].query_at, g->group[i].report_at));
        return false;
}
