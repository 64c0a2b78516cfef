/*
 * What an application wants to hear of a connection (<unet/flow.h>).
 *
 *   marks       ACKED UNSENT   reached or not. Who waits reads watch.holds, which is written when a
 *                              turn ends
 *               UNREAD         likewise, told from what is unread now: each arrival is an event
 *                              anyway
 *   happenings  LOSS RTT SHUT  counted when they happen. Each process compares the counts with
 *               NIQ LIMIT      those that it knows
 *
 *   ack_input(), drain()                  -> tcp_watch_look()   marks, round trip, peer's window
 *   conn_set_limit()                      -> watch_limit()
 *   tcp_plan.c                            -> watch_report()     watched or not
 *   rack_mark_lost(), recovery_timeout()  -> watch_lost()
 *
 * A connection that is watched has SLOW_FLOW, which header prediction asks last. Its small writes
 * take the general path, for what is unsent changes by them. On the way of a segment of the others
 * nobody asks. What is news raises TCP_EV_FLOW: poll sets look, and nobody else is woken.
 */
#include "tcp/tcp_life.h"
#include "tcp/tcp_loss.h"
#include "tcp/tcp_stream.h"
#include "tcp/tcp_watch.h"

static void count_one(struct tcp_conn *tc, uint32_t *count)
{
        WRITE_ONCE(*count, *count + 1);
        tc->events |= TCP_EV_FLOW;
}

static void holds_set(struct tcp_watch *w, uint32_t holds)
{
        WRITE_ONCE(w->holds, (uint16_t)holds);
}

/* Something that is one way or the other is `now`. */
static void turns(struct tcp_conn *tc, uint32_t what, bool now, uint32_t *count)
{
        struct tcp_watch *w = &tc->watch;

        if (!(w->holds & what) == !now)
                return;
        count_one(tc, count);
        holds_set(w, w->holds ^ what);
}

/* Bytes of the stream that are acknowledged: the FIN is none of it. */
uint64_t tcp_stream_acked(const struct tcp_conn *tc)
{
        return tc->bytes_acked - (tc->snd_una == tc->snd_end + 1 && tc->flags & TCF_FIN_QUEUED);
}

uint32_t tcp_unsent(const struct tcp_conn *tc)
{
        int32_t unsent = (int32_t)(READ_ONCE(tc->snd_end) - READ_ONCE(tc->snd_nxt));

        return unsent > 0 ? (uint32_t)unsent : 0;
}

#define LOOKED_AT (TCP_WATCH_ACKED | TCP_WATCH_UNSENT | TCP_WATCH_SHUT | TCP_WATCH_RTT)

/* The part of what is watched that is so now. Bytes that were acknowledged stay so. */
static uint32_t is_so(const struct tcp_conn *tc, const struct tcp_watch *w)
{
        uint32_t so = w->holds & (TCP_WATCH_ACKED | TCP_WATCH_RTT);

        if (!(so & TCP_WATCH_ACKED) && w->acked != 0 && tcp_stream_acked(tc) >= w->acked)
                so |= TCP_WATCH_ACKED;
        if (w->rtt != 0 && (tc->srtt > w->rtt) == !(so & TCP_WATCH_RTT))
                so ^= TCP_WATCH_RTT;
        if (tcp_unsent(tc) < w->unsent_below)
                so |= TCP_WATCH_UNSENT;
        if (tc->snd_wnd == 0)
                so |= TCP_WATCH_SHUT;
        return so;
}

void tcp_watch_look(struct tcp_conn *tc)
{
        struct tcp_watch *w = &tc->watch;
        uint32_t so, changed;

        if (tc->state < TCPS_ESTABLISHED)
                return;
        so = is_so(tc, w);
        changed = (w->holds ^ so) & LOOKED_AT;
        if (likely(changed == 0))
                return;
        if (changed & so & TCP_WATCH_ACKED)
                count_one(tc, &w->counts.acked);
        if (changed & so & TCP_WATCH_UNSENT)
                count_one(tc, &w->counts.unsent);
        if (changed & TCP_WATCH_SHUT)
                count_one(tc, &w->counts.shut);
        if (changed & TCP_WATCH_RTT)
                count_one(tc, &w->counts.rtt);
        holds_set(w, w->holds ^ changed);
}

void watch_limit(struct tcp_conn *tc, enum tcp_limit limit)
{
        struct tcp_watch *w = &tc->watch;

        turns(tc, TCP_WATCH_NIQ, limit == TCP_LIM_NIQ, &w->counts.niq);
        if (w->limits >> limit & 1)
                count_one(tc, &w->counts.limit);
}

void watch_lost(struct tcp_conn *tc, bool timeout)
{
        count_one(tc, timeout ? &tc->watch.counts.timeouts : &tc->watch.counts.losses);
}

void watch_report(struct tcp_conn *tc)
{
        count_one(tc, &tc->watch.counts.reports);
}

void tcp_tell(struct tcp *t, struct tcp_conn *tc)
{
        conn_raise(t, tc, TCP_EV_FLOW);
}

static void set_marks(struct tcp_watch *w, const struct tcp_marks *m)
{
        w->acked = m->acked;
        w->rtt = m->rtt;
        w->unsent_below = m->unsent_below;
        WRITE_ONCE(w->unread_above, m->unread_above);
        w->limits = (uint16_t)m->limits;
}

void tcp_watch_set(struct tcp *t, struct tcp_conn *tc, const struct tcp_marks *m)
{
        struct tcp_watch *w = &tc->watch;
        uint32_t limits = w->holds & TCP_WATCH_ON ? w->limits : 0;

        if (m == NULL) {
                holds_set(w, 0);
                conn_slow_flow(tc);
                return;
        }
        set_marks(w, m);
        holds_set(w, (w->holds & ~TCP_WATCH_MARKS) | TCP_WATCH_ON);
        conn_slow_flow(tc);
        turns(tc, TCP_WATCH_NIQ, tc->limit == TCP_LIM_NIQ, &w->counts.niq);
        if ((m->limits & ~limits) >> tc->limit & 1)
                count_one(tc, &w->counts.limit);
        tcp_watch_look(tc);
        touch(t, tc);
}

/* Returns true if more than `above` is unread. With nothing unread it is not told that no more can
 * come: all may be lent, or nothing granted, and whoever waits could only wait again. */
static bool much_is_unread(const struct tcp_conn *tc, uint32_t above)
{
        return (tcp_recv_avail(tc) != 0 && tcp_recv_enough(tc, above)) ||
               READ_ONCE(tc->shut) & SHUT_RCV || READ_ONCE(tc->state) < TCPS_ESTABLISHED;
}

uint32_t tcp_watch_marks(const struct tcp_conn *tc)
{
        const struct tcp_watch *w = &tc->watch;
        uint32_t holds = READ_ONCE(w->holds), above = READ_ONCE(w->unread_above),
                 marks = holds & TCP_WATCH_MARKS;

        if (!(holds & TCP_WATCH_ON))
                return 0;
        if (above != 0 && much_is_unread(tc, above))
                marks |= TCP_WATCH_UNREAD;
        return marks;
}

void tcp_watch_counts(const struct tcp_conn *tc, struct tcp_watch_counts *c)
{
        const struct tcp_watch_counts *now = &tc->watch.counts;

        *c = (struct tcp_watch_counts){
                .losses = READ_ONCE(now->losses),
                .timeouts = READ_ONCE(now->timeouts),
                .rtt = READ_ONCE(now->rtt),
                .shut = READ_ONCE(now->shut),
                .niq = READ_ONCE(now->niq),
                .limit = READ_ONCE(now->limit),
                .acked = READ_ONCE(now->acked),
                .unsent = READ_ONCE(now->unsent),
                .reports = READ_ONCE(now->reports),
        };
}
