/*
 * Congestion control of the application's own (<unet/flow.h>): a plan says the window and the rate,
 * and a report says what came of it.
 *
 *   an ACK, a loss, a mark  folded into the report by whoever has it; a report that is due is
 *                           TCP_WATCH_REPORT
 *   tcp_plan_take()         the report, and from then on the numbers are the next one's
 *   tcp_plan_set()          a plan, which holds until it is older than it is good for
 *
 * All of it is numbers: no code of the application's runs here. tc->cc says who decides, a plan
 * (TCP_CC_PLAN) or the algorithm of the options (opts.cc). When a plan has become too old, as that
 * of a process that is stopped or dead does, the algorithm begins, from the window that there is.
 * Whoever has the next ACK sees to it, so there is no timer. After a death in the middle of a
 * change it is the same (tcp_mend.c).
 *
 * What no plan can change (RFC 5681):
 *
 *    - The window grows by what is acknowledged, as in slow start, and only where it is used
 *      (§3.1). A plan's is where it goes to.
 *    - It is two segments at least, and one after a timeout. After idleness it is the initial one
 *      (§4.1).
 *    - A loss or a mark makes it half of what is in flight (eq. 4), and recovery is PRR's. A plan
 *      that was made of a report from before is refused. If nothing was lost, it becomes what it
 *      was (tcp_undo.c), and a report is due.
 */
#include <errno.h>

#include "tcp/tcp_cc.h"
#include "tcp/tcp_info.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_plan.h"
#include "tcp/tcp_rate.h"
#include "tcp/tcp_send.h"

struct plan {
        struct rate rate; /* rate_of(): first */
        uint64_t serial;  /* another one after each reduction; 0 is nobody's */
        nstime until, every;
        uint32_t cwnd;      /* where the window goes to */
        uint32_t round_end; /* SND.NXT when this round trip began */
        bool was_used;      /* the window was, in the round trip before */
        nstime due_at;      /* with `every` */
        /* the report */
        nstime since, rtt_least, rtt_last, rtt_sum;
        uint64_t acked, lost, marked, delivery_rate;
        uint32_t rtts, cuts, timeouts;
};
static_assert(offsetof(struct plan, rate) == 0 &&
                      sizeof(struct plan) <= sizeof((struct tcp_conn *)0)->cc_priv,
              "fits");

static struct plan *plan_of(struct tcp_conn *tc)
{
        return (struct plan *)tc->cc_priv;
}

static uint32_t least_window(const struct tcp_conn *tc)
{
        return 2 * tc->snd_mss;
}

/* ---- who decides ---- */

static void init(struct tcp_conn *tc, nstime now)
{
        *plan_of(tc) = (struct plan){.serial = (uint64_t)now | 1,
                                     .round_end = tc->snd_nxt,
                                     .was_used = true,
                                     .since = now};
        rate_init(tc, now);
}

static void hand_over(struct tcp_conn *tc, nstime now)
{
        assert(tc->cc == TCP_CC_PLAN && tc->opts.cc != TCP_CC_PLAN);
        tc->cc = tc->opts.cc;
        cc_begin(tc, now);
}

/* Returns true if the plan is too old, and the algorithm has begun. */
static bool is_late(struct tcp_conn *tc, nstime now)
{
        if (now < plan_of(tc)->until)
                return false;
        watch_report(tc);
        hand_over(tc, now);
        return true;
}

/* ---- the report ---- */

static void begin_report(struct plan *p, nstime now)
{
        p->since = now;
        p->acked = p->lost = p->marked = p->delivery_rate = 0;
        p->rtt_least = p->rtt_sum = 0;
        p->rtts = p->cuts = p->timeouts = 0;
}

static void fold(struct plan *p, const struct rate_sample *rs, nstime rtt)
{
        p->acked += rs->newly_acked;
        p->delivery_rate = MAX(p->delivery_rate, rs->rate);
        if (rtt < 0)
                return;
        p->rtt_least = p->rtts == 0 ? rtt : MIN(p->rtt_least, rtt);
        p->rtt_sum += rtt;
        p->rtt_last = rtt;
        p->rtts++;
}

static void end_round(struct tcp_conn *tc, struct plan *p)
{
        p->was_used = p->rate.window_full;
        p->rate.window_full = false;
        p->round_end = tc->snd_nxt;
}

/* Once a round trip, or as often as the plan asks. */
static void look_whether_due(struct tcp_conn *tc, struct plan *p, uint32_t acked, nstime now)
{
        bool round = acked != 0 && seq_geq(tc->snd_una, p->round_end);

        if (round)
                end_round(tc, p);
        if (p->every == 0 ? !round : now < p->due_at)
                return;
        p->due_at = now + p->every;
        watch_report(tc);
}

/* ---- the window ---- */

static void set_window(struct tcp_conn *tc, const struct plan *p, uint32_t acked)
{
        uint32_t aim = MAX(p->cwnd, least_window(tc));

        if (tc->ca_state == CA_RECOVERY)
                return;
        if (tc->cwnd > aim)
                tc->cwnd = aim;
        else if (tc->ca_state != CA_DISORDER && (p->rate.window_full || p->was_used))
                tc->cwnd = MIN(tc->cwnd + acked, aim);
}

static void model(struct tcp_conn *tc, nstime rtt, nstime now)
{
        struct plan *p = plan_of(tc);
        struct rate_sample rs;

        if (is_late(tc, now))
                return;
        rate_sample(tc, &rs, now);
        fold(p, &rs, rtt);
        set_window(tc, p, rs.newly_acked);
        look_whether_due(tc, p, rs.newly_acked, now);
}

/* The plan did not know. The next one may. RFC 5681 eq. 4; but where a plan has just made the
 * window smaller than half of what is still in flight, a loss does not raise it. */
static uint32_t reduced(struct tcp_conn *tc)
{
        struct plan *p = plan_of(tc);
        uint32_t was = tc->ca_state < CA_RECOVERY ? tc->cwnd : p->cwnd; /* there it is PRR's */

        p->cwnd = MAX(MIN(was, flight(tc) / 2), least_window(tc));
        p->serial++;
        p->cuts++;
        end_round(tc, p);
        watch_report(tc);
        return p->cwnd;
}

static uint32_t on_loss(struct tcp_conn *tc, bool timeout, nstime now)
{
        if (is_late(tc, now))
                return cc_of(tc)->on_loss(tc, timeout, now);
        plan_of(tc)->timeouts += timeout;
        return reduced(tc);
}

static void lost(struct tcp_conn *tc, const struct tcp_txseg *s)
{
        rate_lost(tc, s);
        plan_of(tc)->lost += txseg_space(s);
}

static void marked(struct tcp_conn *tc)
{
        tc->ssthresh = reduced(tc);
        tc->cwnd = MIN(tc->cwnd, tc->ssthresh);
}

static void told(struct tcp_conn *tc, uint32_t acked, bool echo)
{
        if (echo)
                plan_of(tc)->marked += acked;
}

static void undo(struct tcp_conn *tc)
{
        plan_of(tc)->cwnd = MAX(plan_of(tc)->cwnd, tc->cwnd);
        watch_report(tc);
}

static void restart(struct tcp_conn *tc, nstime now)
{
        if (!tc->link.lossless && now - tc->last_sent > tc->rto)
                tc->cwnd = MIN(tc->cwnd, cc_initial_window(tc)); /* RFC 5681 §4.1 */
        is_late(tc, now);
}

static void report(const struct tcp_conn *tc, struct tcp_report *r)
{
        const struct plan *p = (const struct plan *)tc->cc_priv;

        r->plan.cwnd = p->cwnd;
        r->plan.until = p->until;
        if (p->delivery_rate != 0)
                r->delivery_rate = p->delivery_rate;
}

const struct tcp_cc tcp_plan = {.name = "plan",
                                .prr = true,
                                .lossless_too = true,
                                .init = init,
                                .on_loss = on_loss,
                                .undo = undo,
                                .told = told,
                                .model = model,
                                .lost = lost,
                                .marked = marked,
                                .restart = restart,
                                .report = report};

/* ---- the application's side ---- */

static bool is_open(const struct tcp_conn *tc)
{
        return tc->state >= TCPS_ESTABLISHED && tc->state != TCPS_TIME_WAIT;
}

/* A segment leaves while the plan is good, so that there is an ACK, or a timeout, by which it is
 * found to be old. */
static void set_rate(struct tcp_conn *tc, const struct tcp_plan *m, nstime now)
{
        uint64_t least = (uint64_t)tc->snd_mss * NS_PER_S / (uint64_t)m->good_for + 1;

        pace_set(tc, m->rate != 0 ? MAX(m->rate, least) : 0, tc->snd_mss);
        if (tc->pace.rate != 0) /* what left at another rate is not waited for at that */
                tc->pace.at = MIN(tc->pace.at, now + (nstime)(tc->pace.quantum *
                                                              (uint64_t)NS_PER_S / tc->pace.rate));
}

int tcp_plan_set(struct tcp *t, struct tcp_conn *tc, const struct tcp_plan *m, nstime now)
{
        struct plan *p = plan_of(tc);
        bool planned = tc->cc == TCP_CC_PLAN;

        assert(m == NULL || m->good_for > 0);
        if (!is_open(tc))
                return -ENOTCONN;
        if (m == NULL) {
                if (planned)
                        hand_over(tc, now);
                touch(t, tc);
                return 0;
        }
        if (m->serial != (planned ? p->serial : 0))
                return -EAGAIN;
        if (!planned) {
                tc->cc = TCP_CC_PLAN;
                cc_begin(tc, now);
        }
        p->cwnd = m->cwnd;
        p->until = now + m->good_for;
        p->every = m->every;
        p->due_at = now + m->every;
        set_rate(tc, m, now);
        set_window(tc, p, 0);
        touch(t, tc);
        return 0;
}

static void tell_numbers(const struct tcp_conn *tc, struct tcp_plan_report *r)
{
        r->cwnd = tc->cwnd;
        r->ssthresh = tc->ssthresh;
        r->snd_wnd = tc->snd_wnd;
        r->in_flight = pipe_bytes(tc);
        r->mss = tc->snd_mss;
        r->repairs = tc->ca_state >= CA_RECOVERY;
        r->srtt = tc->srtt;
        r->min_rtt = tc->min_rtt == NSTIME_NEVER ? 0 : tc->min_rtt;
}

int tcp_plan_take(struct tcp_conn *tc, struct tcp_plan_report *r, nstime now)
{
        struct plan *p = plan_of(tc);

        if (!is_open(tc))
                return -ENOTCONN;
        *r = (struct tcp_plan_report){.serial = 0};
        tell_numbers(tc, r);
        if (tc->cc != TCP_CC_PLAN)
                return 0;
        r->serial = p->serial;
        r->time = now - p->since;
        r->acked = p->acked;
        r->lost = p->lost;
        r->marked = p->marked;
        r->cuts = p->cuts;
        r->timeouts = p->timeouts;
        r->rtt_least = p->rtt_least;
        r->rtt_mean = p->rtts != 0 ? p->rtt_sum / p->rtts : 0;
        r->rtt_last = p->rtts != 0 ? p->rtt_last : 0;
        r->rtts = p->rtts;
        r->delivery_rate = p->delivery_rate;
        r->app_limited = p->rate.bubble;
        begin_report(p, now);
        return 0;
}
