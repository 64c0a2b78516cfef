/* The native API, <unet/flow.h>: congestion control of the application's own. */
#include "sock/attach/handle.h"
#include "sock/native/native.h"
#include "tcp/tcp_plan.h"
#include "tcp/tcp_watch.h"
#include "unet/flow.h"

#define GOOD_FOR_LEAST NS_PER_MS
#define GOOD_FOR_MOST  (60 * NS_PER_S)

static bool is_valid(const struct unet_cc_plan *p)
{
        return p->cwnd != 0 && p->good_for >= GOOD_FOR_LEAST && p->good_for <= GOOD_FOR_MOST &&
               p->every >= 0 && p->every <= GOOD_FOR_MOST;
}

static int set(struct usock *s, const struct unet_cc_plan *p)
{
        struct tcp_conn *tc = native_conn(s);
        struct tcp_plan m;
        nstime now;
        int err;

        assert(ustack_locked(s->u));
        if (tc == NULL)
                return -ENOTCONN;
        if (p != NULL)
                m = (struct tcp_plan){.serial = p->serial,
                                      .rate = p->rate,
                                      .good_for = p->good_for,
                                      .every = p->every,
                                      .cwnd = p->cwnd};
        now = stack_time(&s->u->s, ustack_now());
        stack_begin(s->u->s.st, usock_rec(s)->conn);
        err = tcp_plan_set(&s->u->s.tcp, tc, p != NULL ? &m : NULL, now);
        stack_end(s->u->s.st);
        stack_flush(&s->u->s, now);
        return err;
}

static void tell(const struct tcp_plan_report *m, struct unet_cc_report *r)
{
        r->planned = m->serial != 0;
        r->serial = m->serial;
        r->time = m->time;
        r->acked = m->acked;
        r->lost = m->lost;
        r->marked = m->marked;
        r->cuts = m->cuts;
        r->timeouts = m->timeouts;
        r->repairs = m->repairs;
        r->app_limited = m->app_limited;
        r->rtt_least = m->rtt_least;
        r->rtt_mean = m->rtt_mean;
        r->rtt_last = m->rtt_last;
        r->rtts = m->rtts;
        r->delivery_rate = m->delivery_rate;
        r->cwnd = m->cwnd;
        r->ssthresh = m->ssthresh;
        r->snd_wnd = m->snd_wnd;
        r->in_flight = m->in_flight;
        r->mss = m->mss;
        r->srtt = m->srtt;
        r->min_rtt = m->min_rtt;
}

static int take(struct native_slot *n, void *ours)
{
        struct usock *s = n->us;
        struct tcp_conn *tc = native_conn(s);
        struct tcp_plan_report m;
        struct tcp_watch_counts counts;
        int err =
                tc != NULL ? tcp_plan_take(tc, &m, stack_time(&s->u->s, ustack_now())) : -ENOTCONN;

        assert(ustack_locked(s->u));
        if (err != 0)
                return err;
        tell(&m, ours);
        tcp_watch_counts(tc, &counts);
        WRITE_ONCE(n->seen.reports, counts.reports);
        return 0;
}

int unet_cc_take(int sock, struct unet_cc_report *theirs)
{
        struct unet_cc_report r;

        return native_get_struct(sock, &r, sizeof r, sizeof r, theirs, take);
}

int unet_cc_set(int sock, const struct unet_cc_plan *theirs)
{
        struct native_slot *n;
        struct unet_cc_plan p;
        int err = theirs != NULL ? native_take_struct(&p, sizeof p, sizeof p, theirs) : 0;

        if (err != 0 || (theirs != NULL && !is_valid(&p)))
                return (int)native_result(err != 0 ? err : -EINVAL);
        n = native_enter(sock, &err);
        return n != NULL ? native_leave(n, set(n->us, theirs != NULL ? &p : NULL))
                         : (int)native_result(err);
}
