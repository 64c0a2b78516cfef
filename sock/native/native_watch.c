/* The native API, <unet/flow.h>: what an application is told of a connection, as events of
 * poll sets. */
#include "sock/attach/handle.h"
#include "sock/native/native.h"
#include "tcp/tcp_watch.h"
#include "unet/flow.h"

#define OF_WATCH(ev) ((uint32_t)(ev) << 16) /* TCP_WATCH_* as UNET_EV_* */

static_assert(UNET_EV_ACKED == OF_WATCH(TCP_WATCH_ACKED) &&
                      UNET_EV_UNSENT == OF_WATCH(TCP_WATCH_UNSENT) &&
                      UNET_EV_UNREAD == OF_WATCH(TCP_WATCH_UNREAD) &&
                      UNET_EV_LOSS == OF_WATCH(TCP_WATCH_LOSS) &&
                      UNET_EV_RTT == OF_WATCH(TCP_WATCH_RTT) &&
                      UNET_EV_SHUT == OF_WATCH(TCP_WATCH_SHUT) &&
                      UNET_EV_NIQ == OF_WATCH(TCP_WATCH_NIQ) &&
                      UNET_EV_LIMIT == OF_WATCH(TCP_WATCH_LIMIT) &&
                      UNET_EV_REPORT == OF_WATCH(TCP_WATCH_REPORT),
              "the same list");

static struct tcp_conn *conn_of(struct usock *s)
{
        struct sock_rec *rec = usock_rec(s);

        return sock_role(rec) == SOCK_ROLE_CONN ? tcp_conn_at(&s->u->s.tcp, READ_ONCE(rec->conn))
                                                : NULL;
}

static uint32_t happened(const struct tcp_watch_counts *now, const struct tcp_watch_counts *seen)
{
        uint32_t ev = 0;

        if (now->losses != READ_ONCE(seen->losses) || now->timeouts != READ_ONCE(seen->timeouts))
                ev |= UNET_EV_LOSS;
        if (now->rtt != READ_ONCE(seen->rtt))
                ev |= UNET_EV_RTT;
        if (now->shut != READ_ONCE(seen->shut))
                ev |= UNET_EV_SHUT;
        if (now->niq != READ_ONCE(seen->niq))
                ev |= UNET_EV_NIQ;
        if (now->limit != READ_ONCE(seen->limit))
                ev |= UNET_EV_LIMIT;
        if (now->reports != READ_ONCE(seen->reports))
                ev |= UNET_EV_REPORT;
        return ev;
}

uint32_t native_watch_edges(struct native_slot *n, struct tcp_watch_counts *at, uint32_t *given)
{
        const struct tcp_conn *tc = conn_of(n->us);
        uint32_t before = *given, ev;
        struct tcp_watch_counts now;
        bool any;

        *given = native_cookies_ready(n, &any);
        if (tc == NULL)
                return 0;
        tcp_watch_counts(tc, &now);
        ev = (any && *given != before ? UNET_EV_SENT : 0) | happened(&now, at) |
             (now.acked != at->acked ? UNET_EV_ACKED : 0) |
             (now.unsent != at->unsent ? UNET_EV_UNSENT : 0);
        *at = now;
        return ev;
}

uint32_t native_watch_events(struct native_slot *n)
{
        const struct tcp_conn *tc = conn_of(n->us);
        struct tcp_watch_counts counts;
        bool any;

        native_cookies_ready(n, &any);
        if (tc == NULL)
                return 0;
        tcp_watch_counts(tc, &counts);
        return OF_WATCH(tcp_watch_marks(tc)) | happened(&counts, &n->seen) |
               (any ? UNET_EV_SENT : 0);
}

static int set(struct native_slot *n, const struct unet_watch *w)
{
        struct usock *s = n->us;
        struct tcp_conn *tc = conn_of(s);
        struct tcp_watch_counts counts;
        struct tcp_marks m;
        nstime now;

        assert(ustack_locked(s->u));
        if (tc == NULL)
                return -ENOTCONN;
        if (w != NULL)
                m = (struct tcp_marks){w->acked, w->rtt, w->unsent_below, w->unread_above,
                                       w->limits};
        if (!(tc->watch.holds & TCP_WATCH_ON)) {
                tcp_watch_counts(tc, &counts);
                counts.reports = n->seen.reports;
                write_words(&n->seen, &counts, sizeof counts);
        }
        now = stack_time(&s->u->s, ustack_now());
        stack_begin(s->u->s.st, usock_rec(s)->conn);
        tcp_watch_set(&s->u->s.tcp, tc, w != NULL ? &m : NULL);
        stack_end(s->u->s.st);
        stack_flush(&s->u->s, now);
        return 0;
}

static void numbers_now(const struct tcp_conn *tc, struct unet_happened *h)
{
        h->holds = OF_WATCH(tc->watch.holds & (TCP_WATCH_RTT | TCP_WATCH_SHUT | TCP_WATCH_NIQ));
        h->limit = (enum unet_limit)tc->limit;
        h->acked = tcp_stream_acked(tc);
        h->unsent = tcp_unsent(tc);
        h->unread = tc->rcv_unread;
        h->srtt = tc->srtt;
}

static int take(struct native_slot *n, void *ours)
{
        struct unet_happened *h = ours;
        const struct tcp_conn *tc = conn_of(n->us);
        struct tcp_watch_counts c, *seen = &n->seen;

        if (tc == NULL)
                return -ENOTCONN;
        tcp_watch_counts(tc, &c);
        h->events = OF_WATCH(tcp_watch_marks(tc)) | happened(&c, seen);
        h->losses = c.losses - seen->losses;
        h->timeouts = c.timeouts - seen->timeouts;
        h->rtt_turns = c.rtt - seen->rtt;
        h->shut_turns = c.shut - seen->shut;
        h->niq_turns = c.niq - seen->niq;
        h->limit_turns = c.limit - seen->limit;
        numbers_now(tc, h);
        c.reports = seen->reports; /* unet_cc_take() takes them */
        write_words(seen, &c, sizeof c);
        return 0;
}

int unet_watch_set(int sock, const struct unet_watch *theirs)
{
        struct native_slot *n;
        struct unet_watch w;
        int err = theirs != NULL ? native_take_struct(&w, sizeof w, sizeof w, theirs) : 0;

        if (err != 0 || (theirs != NULL && (w.rtt < 0 || w.limits >> UNET_LIMITS != 0)))
                return (int)native_result(-EINVAL);
        n = native_enter(sock, &err);
        return n != NULL ? native_leave(n, set(n, theirs != NULL ? &w : NULL))
                         : (int)native_result(err);
}

int unet_watch_take(int sock, struct unet_happened *theirs)
{
        struct unet_happened h;

        return native_get_struct(sock, &h, sizeof h, sizeof h, theirs, take);
}
