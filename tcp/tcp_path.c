/*
 * What the path carries: the largest segment that gets through (RFC 1191, 4821, 5927 §7, 8899).
 *
 * path.mss is that size as far as it is known, the IP packet less 40 bytes, 0 while the link's is
 * not in doubt. It gets smaller when
 *
 *   - an ICMP error claims so: at once while nothing larger is known to have got through, else,
 *     since anybody can claim things, when the segment it quotes has timed out as well (RFC 5927
 *     §7.2);
 *   - segments time out again and again: routers that drop and do not tell (RFC 2923), or filters
 *     that keep them from telling. Then it goes down by steps, none of which is larger than what
 *     timed out: a small segment says nothing.
 *
 * Segments that are too large now are cut where they stand and sent again; that is no sign of
 * congestion (RFC 1191 §6.5). It gets larger only by trying, with the connection's own data: two or
 * more queued segments leave as one, now and then, while nothing is amiss. The first try is the
 * largest size, then halves what is left in doubt. A probe that is lost costs a retransmission and
 * nothing else (RFC 4821 §7.6.2). Tried again after ten minutes (RFC 1191 §6.3), and after a fall
 * by timeouts, which may have been an outage, after two seconds.
 *
 *     tcp_icmp()     -> path_claim()        recovery_ack() -> path_probe_lost()
 *     expire_rto()   -> path_timeout()      ack_input()    -> path_ack()
 *     expire_slow()  -> path_expire() -> make_probe(); it leaves by output_new() -> path_is_probe()
 */
#include "tcp/tcp_conn.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_loss.h"
#include "tcp/tcp_send.h"

#define HEADERS      40u              /* IP's and TCP's, without options */
#define RAISE_AFTER  (600 * NS_PER_S) /* RFC 1191 §6.3, RFC 8899 PMTU_RAISE_TIMER */
#define OUTAGE_AFTER (2 * NS_PER_S)
/* When there was nothing to make a probe of; doubled each time. */
#define TRY_AGAIN     (100 * NS_PER_MS)
#define TRY_DOUBLINGS 10u
/* Timeouts in a row: those that Linux has behind it when it looks (tcp_retries1,
 * with tcp_mtu_probing). */
#define BLACK_HOLE_DUPS 4u
#define NARROW_DUPS     5u  /* ... of what nearly every path carries: rather an outage */
#define SEARCH_END      16u /* bytes: not worth another probe */
/* Segments that must follow a probe, so that its loss is seen without a timeout. */
#define PROBE_COVER 3u

/* MTUs of 1200 (RFC 8899 BASE_PLPMTU; tunnels), 576 and 296 (RFC 1191), less the headers. */
static const uint16_t steps[] = {1160, 536, 256};

/* The largest size that ends and link allow. */
static uint32_t ceiling(const struct tcp_conn *tc)
{
        uint32_t mss = tc->link.mss;

        if (tc->mss_clamp != 0)
                mss = MIN(mss, tc->mss_clamp);
        return tc->opts.maxseg != 0 ? MIN(mss, tc->opts.maxseg) : mss;
}

static uint32_t size_now(const struct tcp_conn *tc)
{
        return tc->snd_mss + conn_options_len(tc);
}

/* The next try is at `at`: on the timer that keepalive uses, as both are seldom due. Keepalive
 * probes go first. */
void path_arm(struct tcp_conn *tc)
{
        if ((tc->state == TCPS_ESTABLISHED || tc->state == TCPS_CLOSE_WAIT) && tc->probes == 0)
                tc->slow_at = nstime_min(tc->slow_at, tc->path.at);
}

static void try_at(struct tcp_conn *tc, nstime at)
{
        tc->path.at = at;
        path_arm(tc);
}

static void learnt(struct tcp *t, const struct tcp_conn *tc, uint32_t mss)
{
        if (t->path_learnt != NULL)
                t->path_learnt(t->arg, &tc->tuple, mss + HEADERS);
}

void path_init(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        uint32_t mtu = t->path_mtu != NULL ? t->path_mtu(t->arg, &tc->tuple) : 0;

        tc->path.at = NSTIME_NEVER;
        if (mtu <= HEADERS || mtu - HEADERS >= tc->link.mss)
                return;
        tc->path.mss = (uint16_t)(mtu - HEADERS);
        tc->path.at = now + RAISE_AFTER;
}

/* ---- smaller ---- */

/* Bytes sent in larger segments are lost, and are sent again; the congestion window is for the
 * network's sake and stays. As Linux's tcp_simple_retransmit(). */
void path_send_again(struct tcp *t, struct tcp_conn *tc, uint32_t longer, nstime now)
{
        bool any = false;

        for (uint32_t i = tc->snd_head; i != 0 && i != tc->snd_next; i = txseg_at(t, i)->next) {
                struct tcp_txseg *s = txseg_at(t, i);
                if (s->len <= longer || s->marks & TXS_SACKED)
                        continue;
                rack_mark_lost(tc, s);
                any = true;
        }
        sndbuf_resegment(t, tc);
        if (!any)
                return;
        if (tc->ca_state < CA_RECOVERY) {
                tc->ca_state = CA_LOSS;
                tc->recover = tc->snd_nxt;
                tc->dupacks = 0;
                tc->tlp.out = 0;
                undo_forget(tc);
        }
        tc->owed |= OWE_FORCE;
        recovery_set_slow(tc);
        timer_arm_rtx(tc, now);
}

static void lower(struct tcp *t, struct tcp_conn *tc, uint32_t mss, nstime now)
{
        assert(mss != 0 && mss < size_now(tc));
        tc->path.mss = (uint16_t)mss;
        tc->path.acked = tc->bytes_acked;
        tc->path.probe = tc->path.claim = 0;
        conn_size_mss(tc);
        if (tc->state >= TCPS_ESTABLISHED)
                path_send_again(t, tc, tc->snd_mss, now);
}

static void believe(struct tcp *t, struct tcp_conn *tc, uint32_t mss, nstime now)
{
        count(t->cnt, COUNT_TCP_PMTU);
        lower(t, tc, mss, now);
        tc->path.search_hi = 0;
        tc->path.wait = 0;
        try_at(tc, now + RAISE_AFTER);
        learnt(t, tc, mss);
}

static void probe_failed(struct tcp *t, struct tcp_conn *tc, uint32_t largest, nstime now)
{
        assert(tc->path.probe > tc->path.mss && largest < tc->path.probe);
        tc->path.search_hi = (uint16_t)MAX(largest, tc->path.mss);
        tc->path.probe = 0;
        tc->path.wait = 0;
        path_send_again(t, tc, tc->snd_mss, now);
        try_at(tc, now + MAX(tc->srtt, TRY_AGAIN));
}

void path_claim(struct tcp *t, struct tcp_conn *tc, uint32_t seq, uint32_t mtu, nstime now)
{
        uint32_t mss = mtu > HEADERS ? mtu - HEADERS : 0;

        if (mss == 0)
                return;
        if (tc->path.probe != 0 && seq == tc->path.probe_seq) {
                if (mss < tc->path.probe)
                        probe_failed(t, tc, mss, now);
        } else if (mss < size_now(tc)) {
                if (tc->bytes_acked - tc->path.acked <=
                    mss) { /* nothing larger can have got through */
                        believe(t, tc, mss, now);
                } else {
                        tc->path.claim = (uint16_t)mss;
                        tc->path.claim_seq = seq;
                }
        }
}

/* The step below what does not get through, which may be shorter than segments are: all that there
 * is. 0: none. */
static uint32_t step_below(const struct tcp *t, const struct tcp_conn *tc)
{
        uint32_t size = MIN(txseg_at(t, tc->snd_head)->len + conn_options_len(tc), size_now(tc));

        if (tc->dups < (size > steps[0] ? BLACK_HOLE_DUPS : NARROW_DUPS))
                return 0;
        for (unsigned i = 0; i < ARRAY_LEN(steps); i++)
                if (steps[i] < size)
                        return steps[i];
        return 0;
}

/* A claim is of a segment that was in flight; numbers come round, and what is beyond SND.NXT was
 * acknowledged long ago. */
static bool in_flight(const struct tcp_conn *tc, uint32_t seq)
{
        return seq_leq(tc->snd_una, seq) && seq_lt(seq, tc->snd_nxt);
}

void path_timeout(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        uint32_t mss;

        if (tc->link.lossless || tc->snd_head == 0)
                return;
        if (tc->path.probe != 0)
                probe_failed(t, tc, tc->path.probe - 1u, now);
        if (tc->path.claim != 0 && tc->path.claim < size_now(tc) &&
            in_flight(tc, tc->path.claim_seq)) {
                believe(t, tc, tc->path.claim, now);
                return;
        }
        tc->path.claim = 0;
        mss = step_below(t, tc);
        if (mss == 0)
                return;
        count(t->cnt, COUNT_TCP_BLACK_HOLE);
        lower(t, tc, mss, now);
        tc->path.search_hi = 0;
        tc->path.wait = 0;
        try_at(tc, now + OUTAGE_AFTER);
}

void tcp_set_link_mss(struct tcp *t, struct tcp_conn *tc, uint32_t mss, nstime now)
{
        uint32_t was = tc->snd_mss;

        assert(mss != 0 && mss <= UINT16_MAX);
        if (tc->link.mss == mss)
                return;
        tc->link.mss = (uint16_t)mss;
        if (tc->path.mss >= mss)
                tc->path.mss = 0; /* the link is the narrowest place again */
        tc->path.probe = tc->path.claim = 0;
        tc->path.search_hi = 0;
        conn_size_mss(tc);
        if (tc->snd_mss < was && tc->state >= TCPS_ESTABLISHED)
                path_send_again(t, tc, tc->snd_mss, now);
        touch(t, tc);
}

/* ---- larger ---- */

static uint32_t unsent(const struct tcp_conn *tc)
{
        return tc->snd_end - tc->snd_nxt;
}

/* RFC 4821 §7.4: nothing lost or in doubt, windows that hold it, and enough behind it to tell
 * its loss. */
static bool may_probe(const struct tcp_conn *tc, uint32_t len)
{
        uint32_t need = len + PROBE_COVER * tc->snd_mss;

        return tc->ca_state == CA_OPEN && tc->sacked == 0 && tc->lost == 0 && tc->dups == 0 &&
               !tc->tlp.out && unsent(tc) >= need && tc->cwnd >= need && tc->max_wnd >= 2 * need;
}

/* Unsent segments become one of `len` bytes, as far as they lie behind each other. */
static bool make_probe(struct tcp *t, struct tcp_conn *tc, uint32_t len)
{
        struct tcp_txseg *s = txseg_at(t, tc->snd_next);

        while (s->len < len) {
                if (s->next != 0 && s->len + txseg_at(t, s->next)->len > len &&
                    !txseg_split(t, tc, txseg_at(t, s->next), len - s->len))
                        break;
                if (!txseg_merge(t, tc, s, len))
                        break;
        }
        if (s->len == len)
                return true;
        sndbuf_resegment(t, tc);
        return false;
}

static void try_later(struct tcp_conn *tc, nstime now)
{
        try_at(tc, now + (TRY_AGAIN << tc->path.wait));
        tc->path.wait += tc->path.wait < TRY_DOUBLINGS;
}

/* The largest size first: what is most likely. Then half way between what works and what
 * does not. */
static uint32_t next_size(const struct tcp_conn *tc)
{
        uint32_t hi = ceiling(tc);

        return tc->path.search_hi >= hi ? hi : (tc->path.mss + tc->path.search_hi + 1u) / 2;
}

void path_expire(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        uint32_t size;

        tc->path.at = NSTIME_NEVER;
        if (tc->path.mss == 0 || tc->path.mss >= ceiling(tc) ||
            (tc->state != TCPS_ESTABLISHED && tc->state != TCPS_CLOSE_WAIT))
                return;
        if (tc->path.search_hi == 0)
                tc->path.search_hi = (uint16_t)ceiling(tc);
        if (tc->path.search_hi < tc->path.mss + SEARCH_END) {
                tc->path.search_hi = 0;
                try_at(tc, now + RAISE_AFTER);
                return;
        }
        size = next_size(tc);
        if (tc->path.probe != 0 || !may_probe(tc, size - conn_options_len(tc)) ||
            !make_probe(t, tc, size - conn_options_len(tc))) {
                try_later(tc, now);
                return;
        }
        count(t->cnt, COUNT_TCP_MTU_PROBE);
        tc->path.probe = (uint16_t)size;
        tc->path.probe_seq = tc->snd_nxt;
        recovery_set_slow(tc);
}

void path_forget_probe(struct tcp_conn *tc, nstime now)
{
        if (tc->path.probe == 0)
                return;
        tc->path.probe = 0;
        try_at(tc, now + TRY_AGAIN);
}

bool path_is_probe(const struct tcp_conn *tc, const struct tcp_txseg *s)
{
        return tc->path.probe != 0 && s->seq == tc->path.probe_seq;
}

void path_ack(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        uint32_t size = tc->path.probe;

        assert(size > tc->path.mss);
        if (seq_lt(tc->snd_una, tc->path.probe_seq + size - conn_options_len(tc)))
                return;
        tc->path.probe = 0;
        tc->path.wait = 0;
        tc->path.mss = (uint16_t)size;
        conn_size_mss(tc);
        tc->cwnd = MAX(tc->cwnd, tc->snd_mss);
        learnt(t, tc, size);
        if (size >= tc->link.mss)
                tc->path.mss = 0;
        else
                try_at(tc, now + MAX(tc->srtt, NS_PER_MS));
}

/* Returns true if the segment there is marked lost, and its length. */
static bool is_lost(const struct tcp *t, const struct tcp_conn *tc, uint32_t seq, uint32_t *len)
{
        for (uint32_t i = tc->snd_head; i != 0 && i != tc->snd_next; i = txseg_at(t, i)->next)
                if (txseg_at(t, i)->seq == seq) {
                        *len = txseg_space(txseg_at(t, i));
                        return txseg_at(t, i)->marks & TXS_LOST;
                }
        return false;
}

void path_probe_lost(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        uint32_t len, size = tc->path.probe;
        bool alone;

        assert(size != 0);
        if (!is_lost(t, tc, tc->path.probe_seq, &len))
                return;
        alone = tc->lost == len;
        if (!alone && tc->ca_state < CA_RECOVERY)
                recovery_enter(t, tc, 0, now); /* others are lost with it: that is congestion */
        probe_failed(t, tc, size - 1, now);
}
