/*
 * SYN cookies (RFC 4987 §3.6): when a listener has all the half-open connections it may have, the
 * answer to a SYN is one that needs no record. What must be known when it is acknowledged stands in
 * the numbers that the peer sends back:
 *
 *   ISN    = F(tuple) + the peer's ISN + (minute << 24) + (G(tuple, minute) + MSS index) mod 2^24
 *   TSval  = our clock, its last 6 bits replaced:   | ECN | sack | window scale (15: none) |
 *            when the SYN had timestamps              bit 5  bit 4   bits 3 .. 0
 *
 * F and G are keyed with the stack's secret. The layout is Linux's, and so is what is lost by it.
 * Without timestamps there is neither window scale nor SACK nor ECN. Of the MSS only the next
 * smaller one in a table is kept. The answer is sent once.
 */
#include "base/siphash.h"
#include "tcp/tcp_conn.h"
#include "tcp/tcp_ecn.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_recv.h"

#define PERIOD    (60 * NS_PER_S)
#define PERIODS   2u /* that a cookie is good for: the one it was made in, and the next */
#define DATA_BITS 24
#define DATA_MASK ((1u << DATA_BITS) - 1)
#define TS_BITS   63u /* of the timestamp: options */
#define TS_SACK   16u
#define TS_ECN    32u
#define TS_SCALE  15u

enum { FOR_COOKIE = 2, FOR_COOKIE_DATA }; /* see tcp_iss.c */

static const uint16_t mss_table[] = {536, 1300, 1440, 1460, 8960};

static uint32_t minute_of(nstime now)
{
        return (uint32_t)(now / PERIOD);
}

static uint32_t clock_of(nstime now)
{
        return (uint32_t)(now / NS_PER_MS);
}

static uint32_t whole_part(const struct tcp *t, const struct tcp_tuple *tuple)
{
        return iss_function(t, tuple, FOR_COOKIE);
}

static uint32_t data_part(const struct tcp *t, const struct tcp_tuple *tuple, uint32_t minute)
{
        return iss_function(t, tuple, (uint64_t)minute << 8 | FOR_COOKIE_DATA);
}

/* The largest entry that the peer takes. */
static uint32_t mss_index(uint16_t mss)
{
        uint32_t i = ARRAY_LEN(mss_table) - 1;

        while (i > 0 && mss_table[i] > mss)
                i--;
        return i;
}

/* Our clock, not in the future, that says the options. */
static uint32_t timestamp(const struct tcp_seg *syn, const struct tcp_opts *o, bool ecn, nstime now)
{
        uint32_t says = (ecn ? TS_ECN : 0) | (syn->sack_ok && !o->no_sack ? TS_SACK : 0) |
                        (syn->wscale != TCP_NO_WSCALE && !o->no_wscale ? syn->wscale : TS_SCALE);
        uint32_t ts = (clock_of(now) & ~TS_BITS) | says;

        return ts > clock_of(now) ? ts - TS_BITS - 1 : ts;
}

/* All listeners of the port and address note that cookies are out. The one that sent a cookie may
 * be gone when the cookie comes back, and the connection is another one's then. Looked at each
 * time, written once a second. */
void cookie_expect(struct tcp *t, struct tcp_listener *l, nstime now)
{
        nstime until = now + PERIODS * PERIOD;

        if (l->cookies_until >= until)
                return;
        for (struct tcp_listener *s = demux_listener_at(t, l->port); s != NULL;
             s = demux_listener_next(t, s))
                if (ip_addr_eq(s->addr, l->addr))
                        s->cookies_until = until + NS_PER_S;
}

uint8_t cookie_wscale(void)
{
        return open_wscale(&(struct tcp_opts){.rcvbuf = 0});
}

void cookie_answer(struct tcp *t, struct tcp_listener *l, const struct tcp_tuple *tuple,
                   const struct tcp_link *link, const struct tcp_seg *syn, nstime now)
{
        const struct tcp_opts *o = &l->opts;
        uint32_t minute = minute_of(now);
        uint32_t data = (data_part(t, tuple, minute) + mss_index(syn->mss)) & DATA_MASK;
        struct tcp_seg out = {
                .sport = tuple->lport,
                .dport = tuple->rport,
                .flags = TCP_SYN | TCP_ACK,
                .seq = whole_part(t, tuple) + syn->seq + (minute << DATA_BITS) + data,
                .ack = syn->seq + 1,
                .wnd = (uint16_t)MIN(
                        group_first(t, l->group,
                                    o->credit ? o->window_first : conn_rcv_limit(o, link)),
                        UINT16_MAX),
                .mss = o->maxseg ? MIN(o->maxseg, link->mss) : link->mss,
                .wscale = TCP_NO_WSCALE,
        };

        if (syn->has_ts && !o->no_timestamps) {
                out.has_ts = true;
                out.flags |= ecn_agrees(o, link, syn) ? TCP_ECE : 0;
                out.tsval = timestamp(syn, o, out.flags & TCP_ECE, now) + ts_offset_new(t, tuple);
                out.tsecr = syn->tsval;
                out.sack_ok = syn->sack_ok && !o->no_sack;
                if (syn->wscale != TCP_NO_WSCALE && !o->no_wscale)
                        out.wscale = cookie_wscale();
        }
        cookie_expect(t, l, now);
        count(t->cnt, COUNT_TCP_COOKIE_OUT);
        t->reply(t->arg, tuple, &out);
}

/* A cookie less its sums: the minute in which it was sent, and the rest. */
static uint32_t age_of(uint32_t rest, nstime now)
{
        return (minute_of(now) - (rest >> DATA_BITS)) & (UINT32_MAX >> DATA_BITS);
}

bool cookie_early(const struct tcp *t, const struct tcp_listener *l, const struct tcp_tuple *tuple,
                  const struct tcp_seg *seg, nstime now)
{
        uint32_t least = seg->ack - seg->seq - whole_part(t, tuple);

        return now <= l->cookies_until &&
               (age_of(least, now) < PERIODS || age_of(least + UINT16_MAX, now) < PERIODS);
}

bool cookie_good(const struct tcp *t, const struct tcp_listener *l, const struct tcp_tuple *tuple,
                 const struct tcp_seg *seg, struct tcp_seg *syn, nstime now)
{
        uint32_t isn = seg->seq - 1, rest = seg->ack - 1 - isn - whole_part(t, tuple);
        uint32_t age = age_of(rest, now), data, says;

        if (now > l->cookies_until || age >= PERIODS)
                return false;
        data = (rest - data_part(t, tuple, minute_of(now) - age)) & DATA_MASK;
        if (data >= ARRAY_LEN(mss_table))
                return false;
        *syn = (struct tcp_seg){.sport = seg->sport,
                                .dport = seg->dport,
                                .flags = TCP_SYN,
                                .seq = isn,
                                .wnd = seg->wnd,
                                .mss = mss_table[data],
                                .wscale = TCP_NO_WSCALE};
        if (seg->has_ts && !l->opts.no_timestamps) {
                says = seg->tsecr - ts_offset_new(t, tuple);
                syn->has_ts = true;
                syn->tsval = seg->tsval;
                syn->sack_ok = says & TS_SACK;
                syn->flags |= says & TS_ECN ? TCP_ECE | TCP_CWR : 0;
                if ((says & TS_SCALE) < TS_SCALE)
                        syn->wscale = (uint8_t)(says & TS_SCALE);
        }
        return true;
}
