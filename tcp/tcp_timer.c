/*
 * Timers: absolute deadlines in the connection, NSTIME_NEVER when off.
 *
 *   rtx_at     one of: retransmission (RFC 6298 §5), tail loss probe and reordering (RFC 8985),
 *              persist
 *   delack_at  a delayed ACK             cork_at   a small segment held by the application; pacing
 *   slow_at    TIME-WAIT, FIN-WAIT-2, keepalive, a larger segment to be tried (tcp_path.c), or the
 *              record of a connection that is over
 */
#include <errno.h>

#include "tcp/tcp_conn.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_loss.h"
#include "tcp/tcp_send.h"

#define RETRIES 15u /* RFC 9293 §3.8.3 R2; 15 as Linux: some 15 minutes, at least 100 s */
#define ORPHAN_WAIT                                                                              \
        (120 * NS_PER_S) /* between probes of a zero window: beyond it an orphan is given up, as \
                            by Linux */
#define ORPHAN_PATIENCE                                                                \
        (100 * NS_PER_S) /* of an orphan without answers where nothing is lost; Linux: \
                            tcp_orphan_retries, 8 */
#define MAX_ACK_DELAY (200 * NS_PER_MS) /* RFC 8985 §7.2, TLP.max_ack_delay */
#define PTO_FIRST     NS_PER_S
#define PROBE_SLACK   (2 * NS_PER_MS) /* beyond two round trips; as Linux (TCP_TIMEOUT_MIN) */
/* ... in recovery: a busy peer's turn, a virtual machine's pause. */
#define REPAIR_SLACK (10 * NS_PER_MS)

/* RFC 8985 §7.2: one probe a tail, in the open state, for peers with SACK; of no use where nothing
 * is lost. The text asks for none in recovery, and Linux sends none. A peer that takes a window in
 * one turn acknowledges once a window. There the loss of the acknowledgement that ends recovery, or
 * of what was sent again last, would cost a timeout: 200 ms after some 100 us. So one goes there
 * too, while there is no progress (RFC 9002 §6.2 sends such always). */
static bool may_probe_tail(const struct tcp_conn *tc)
{
        if (!tc->sack_ok || tc->link.lossless || tc->state < TCPS_ESTABLISHED ||
            conn_unconfirmed(tc))
                return false;
        if (tc->ca_state == CA_RECOVERY)
                return !(tc->flags & TCF_REPAIR_PROBED);
        return tc->ca_state <= CA_DISORDER && !tc->tlp.out && tc->sacked == 0;
}

/* On a link whose timeouts come early so do probes. In recovery a probe that waited as long as on
 * other links would never come before the timeout. That costs the window when all that was lost is
 * an acknowledgement. And what makes up a window of few segments is acknowledged by one packet or
 * two there, so that the loss of one, or of the last segment, stops everything. So it is RFC 9002
 * §6.2.1: a round trip, and what it varies by but for its granularity, 1 ms over verbs. */
static bool is_early(const struct tcp_conn *tc)
{
        return tc->link.rto_min != 0 && tc->link.rto_min < 10 * PROBE_SLACK;
}

static nstime probe_timeout(const struct tcp_conn *tc)
{
        nstime pto = tc->srtt ? 2 * tc->srtt : PTO_FIRST,
               slack = tc->ca_state == CA_RECOVERY ? REPAIR_SLACK : PROBE_SLACK;

        if (is_early(tc) && tc->srtt) {
                pto = tc->srtt;
                slack = MAX(4 * tc->rttvar, tc->link.rto_min / 10);
        }
        if (tc->ca_state != CA_RECOVERY && flight(tc) <= tc->snd_mss)
                return pto + MAX_ACK_DELAY;
        return pto + slack;
}

/* When the probe is sent that comes before the timeout at rto_at. Where the timeout would be first
 * the probe takes its place (RFC 8985 §7.2), and what is lost is tried once more before the window
 * pays for it. */
static nstime probe_time(const struct tcp_conn *tc, nstime now, nstime rto_at)
{
        nstime at = now + probe_timeout(tc);

        if (!may_probe_tail(tc) || (tc->ca_state == CA_RECOVERY && at >= rto_at))
                return NSTIME_NEVER;
        return MIN(at, rto_at);
}

/* After a timeout: the user's comes at its time, however far the next has backed off. */
static nstime no_later(const struct tcp_conn *tc, nstime at)
{
        if (tc->opts.user_timeout_ms == 0 || tc->stalled_at == 0)
                return at;
        return MIN(at, tc->stalled_at + tc->opts.user_timeout_ms * NS_PER_MS);
}

void timer_arm_rtx(struct tcp_conn *tc, nstime now)
{
        nstime probe_at;

        if (conn_unconfirmed(tc)) {
                if (tc->rtx_kind == RTX_RTO && tc->rtx_at > now)
                        return; /* the SYN-ACK's runs on */
        } else if (flight(tc) == 0) {
                tc->rtx_kind = RTX_NONE;
                tc->rtx_at = NSTIME_NEVER;
                return;
        }
        tc->rtx_kind = RTX_RTO;
        tc->rtx_at = now + rtt_rto(tc);
        if (unlikely(tc->backoff != 0))
                tc->rtx_at = no_later(tc, tc->rtx_at);
        probe_at = probe_time(tc, now, tc->rtx_at);
        if (probe_at != NSTIME_NEVER) {
                tc->rtx_kind = RTX_TLP;
                tc->rtx_at = probe_at;
        }
}

/* The tail has grown. A probe that stands where the timeout did is not put off. */
void timer_arm_probe(struct tcp_conn *tc, nstime now)
{
        nstime at;

        if (tc->rtx_kind != RTX_RTO &&
            (tc->rtx_kind != RTX_TLP || probe_timeout(tc) >= rtt_rto(tc)))
                return;
        at = probe_time(tc, now, tc->rtx_kind == RTX_RTO ? tc->rtx_at : NSTIME_NEVER);
        if (at == NSTIME_NEVER)
                return;
        tc->rtx_kind = RTX_TLP;
        tc->rtx_at = at;
}

void timer_persist(struct tcp_conn *tc, nstime now)
{
        if (tc->rtx_kind == RTX_PERSIST || conn_unconfirmed(tc))
                return;
        tc->rtx_kind = RTX_PERSIST;
        tc->rtx_at = now + rtt_rto(tc);
}

void timer_keepalive(struct tcp_conn *tc, nstime now)
{
        if (tc->state < TCPS_ESTABLISHED || tc->state == TCPS_TIME_WAIT ||
            (tc->state == TCPS_FIN_WAIT_2 && tc->flags & TCF_CLOSED_BY_APP))
                return;
        tc->slow_at = tc->opts.keepalive ? now + tc->opts.keepidle_s * NS_PER_S : NSTIME_NEVER;
        path_arm(tc);
}

nstime tcp_deadline(const struct tcp_conn *tc)
{
        return nstime_min(nstime_min(tc->rtx_at, tc->delack_at),
                          nstime_min(tc->slow_at, tc->cork_at));
}

static void give_up(struct tcp *t, struct tcp_conn *tc)
{
        assert(tc->state != TCPS_CLOSED && tc->state != TCPS_TIME_WAIT);
        count(t->cnt, COUNT_TCP_TIMEOUT);
        conn_done(t, tc, tc->err_soft ? tc->err_soft : ETIMEDOUT);
}

/* RFC 9293 §3.8.3 and §3.9.1: the user timeout counts from the first byte that waits for
 * its ACK. */
static bool waited_too_long(const struct tcp_conn *tc, nstime now)
{
        if (tc->opts.user_timeout_ms != 0)
                return tc->stalled_at != 0 &&
                       now - tc->stalled_at >= tc->opts.user_timeout_ms * NS_PER_MS;
        if (tc->flags & TCF_CLOSED_BY_APP && tc->link.lossless && tc->stalled_at != 0 &&
            now - tc->stalled_at >= ORPHAN_PATIENCE)
                return true;
        return tc->dups >= RETRIES;
}

/* TCP_DEFER_ACCEPT: the peer has our SYN-ACK. When the time is over it gets another one, which it
 * answers, as Linux does it. */
static bool is_deferred(const struct tcp_conn *tc, nstime now)
{
        return tc->opts.defer_accept_s != 0 && tc->snd_wl2 == tc->iss + 1 &&
               now - tc->stalled_at < tc->opts.defer_accept_s * NS_PER_S;
}

static void expire_syn(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        bool active = tc->flags & TCF_ACTIVE;
        /* One more, as Linux. */
        uint32_t most = active ? tc->opts.syncnt : MIN(tc->opts.syncnt, 5) + !!conn_unconfirmed(tc);

        if (tc->dups >= most || (active && waited_too_long(tc, now))) {
                give_up(t, tc);
                return;
        }
        tc->dups++;
        tc->backoff++;
        if (!is_deferred(tc, now)) {
                tc->owed |= OWE_SYN;
                listen_unanswered(t, tc, now);
        }
        timer_arm_rtx(tc, now);
}

/* The window is closed over what is in flight, or nothing is in flight and the window is too small.
 * MUST-37: as long as the peer answers, for ever; with TCP_USER_TIMEOUT for that long, answered or
 * not, as Linux: what could not be sent waits, too (tcp(7)). */
static void expire_persist(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        bool orphan = tc->flags & TCF_CLOSED_BY_APP;

        if (tc->probes >= RETRIES || (orphan && rtt_rto(tc) >= ORPHAN_WAIT) ||
            (tc->opts.user_timeout_ms != 0 && waited_too_long(tc, now))) {
                give_up(t, tc);
                return;
        }
        if (tc->stalled_at == 0)
                tc->stalled_at = now;
        tc->probes++;
        tc->backoff += tc->backoff < 20;
        tc->owed |= OWE_PROBE;
        tc->rtx_kind = RTX_PERSIST;
        tc->rtx_at = no_later(tc, now + rtt_rto(tc));
        recovery_set_slow(tc);
}

static void expire_rto(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        if (tc->state < TCPS_ESTABLISHED || conn_unconfirmed(tc)) {
                expire_syn(t, tc, now);
                return;
        }
        if (tc->snd_wnd == 0) {
                expire_persist(t, tc, now);
                return;
        }
        if (waited_too_long(tc, now)) {
                give_up(t, tc);
                return;
        }
        tc->dups++;
        tc->backoff += tc->backoff < 20;
        path_timeout(t, tc, now);
        recovery_timeout(t, tc, now);
        timer_arm_rtx(tc, now);
}

static void expire_rtx(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        enum rtx_kind kind = tc->rtx_kind;

        assert(kind != RTX_NONE && tc->state != TCPS_CLOSED);
        switch (kind) {
        case RTX_TLP:
                if (tc->ca_state == CA_RECOVERY)
                        recovery_probe(t, tc);
                else
                        tc->owed |= OWE_TLP;
                tc->rtx_kind = RTX_RTO;
                tc->rtx_at = now + rtt_rto(tc);
                break;
        case RTX_REO:
                timer_arm_rtx(tc, now);
                recovery_ack(t, tc, 0, 0, now);
                recovery_set_slow(tc);
                break;
        case RTX_PERSIST:
                expire_persist(t, tc, now);
                break;
        default:
                expire_rto(t, tc, now);
                break;
        }
}

static bool idle_time_is_up(const struct tcp_conn *tc, nstime now)
{
        if (tc->opts.user_timeout_ms != 0)
                return tc->probes != 0 &&
                       now - tc->last_received >= tc->opts.user_timeout_ms * NS_PER_MS;
        return tc->probes >= tc->opts.keepcnt;
}

/* RFC 9293 §3.8.4. Only in idleness; data in flight has a timer of its own. */
static void expire_keepalive(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        nstime idle = now - tc->last_received, keepidle = tc->opts.keepidle_s * NS_PER_S;

        if (tc->snd_head != 0 || idle < keepidle) {
                tc->slow_at = tc->snd_head != 0 ? now + keepidle : tc->last_received + keepidle;
                return;
        }
        if (idle_time_is_up(tc, now)) {
                count(t->cnt, COUNT_TCP_TIMEOUT);
                conn_reset(t, tc, tc->err_soft ? tc->err_soft : ETIMEDOUT);
                return;
        }
        tc->probes++;
        tc->owed |= OWE_KEEP;
        tc->slow_at = now + tc->opts.keepintvl_s * NS_PER_S;
        recovery_set_slow(tc);
}

static void expire_established(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        if (tc->path.at <= now)
                path_expire(t, tc, now);
        if (tc->opts.keepalive)
                expire_keepalive(t, tc, now);
        path_arm(tc);
}

static void expire_slow(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        tc->slow_at = NSTIME_NEVER;
        if (tc->state == TCPS_CLOSED)
                conn_reap(t, tc);
        else if (tc->state == TCPS_TIME_WAIT ||
                 (tc->state == TCPS_FIN_WAIT_2 && tc->flags & TCF_CLOSED_BY_APP))
                conn_done(t, tc, 0);
        else
                expire_established(t, tc, now);
}

/* Sends a small segment that has waited for more long enough; nothing is behind it (MUST-61). */
static void push_held(const struct tcp *t, struct tcp_conn *tc)
{
        txseg_at(t, tc->snd_tail)->ctl |= TCP_PSH;
        tc->owed |= OWE_PUSH;
}

void tcp_expire(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        if (tc->delack_at <= now) {
                tc->delack_at = NSTIME_NEVER;
                tc->owed |= OWE_ACK;
        }
        if (tc->cork_at <= now) {
                bool held = tc->snd_next != 0 && (tc->cork || tc->flags & TCF_MORE) &&
                            !(tc->flags & TCF_PACED);
                tc->cork_at = NSTIME_NEVER;
                if (tc->flags & TCF_PACED)
                        pace_comes(tc, now);
                if (held)
                        push_held(t, tc);
        }
        if (tc->rtx_at <= now)
                expire_rtx(t, tc, now);
        if (tc->live && tc->slow_at <= now)
                expire_slow(t, tc, now);
        if (tc->live)
                touch(t, tc);
}
