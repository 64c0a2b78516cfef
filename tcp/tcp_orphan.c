/* Orphans: connections that the application has closed, and that go on until the peer has
 * everything and has closed, too. How long one may take says its timer (tcp_timer.c). A peer that
 * never closes may make many: there is a most, as of connections in TIME-WAIT. */
#include "tcp/tcp_conn.h"
#include "tcp/tcp_life.h"

/* Looked at, from the youngest on. A user has fewer channels to a stack (unetd/daemon/shares.h). */
#define NEAR 1024u

void orphan_end(struct tcp *t, struct tcp_conn *tc, bool tell)
{
        uint32_t was = t->busy ? *t->busy : 0;

        assert(conn_is_orphan(tc));
        count(t->cnt, COUNT_TCP_ORPHAN_ENDED);
        if (t->busy)
                *t->busy = tc->self;
        if (tell && tc->state != TCPS_FIN_WAIT_2)
                conn_reset(t, tc, 0);
        else
                conn_done(t, tc, 0);
        if (t->busy)
                *t->busy = was;
}

/* A peer of this host has all of 127.0.0.0/8. */
static bool same_peer(const struct tcp_conn *a, const struct tcp_conn *b)
{
        return a->tuple.chan == b->tuple.chan &&
               (a->link.lossless || ip_addr_eq(a->tuple.raddr, b->tuple.raddr));
}

/* Whoever floods finds one of his own among the youngest, and loses it; else the oldest goes. */
static struct tcp_conn *who_goes(const struct tcp *t, const struct tcp_conn *tc)
{
        const struct tcp_line *l = &t->sh->orphans;
        uint32_t i = l->tail;

        for (uint32_t n = 0; n < NEAR && i != 0; n++) {
                if (same_peer(conn_at(t, i), tc))
                        return conn_at(t, i);
                i = conn_at(t, i)->line_prev;
        }
        return conn_at(t, l->head);
}

/* After a death it may be one already. Another ends first: a process that dies in the middle of
 * that has not begun with this one. */
void orphan_begin(struct tcp *t, struct tcp_conn *tc)
{
        struct tcp_line *l = &t->sh->orphans;
        bool joins = !(tc->flags & TCF_CLOSED_BY_APP) && tc->state != TCPS_CLOSED &&
                     tc->state != TCPS_TIME_WAIT;

        if (joins && l->n >= t->sh->limits.time_wait_max && l->head != 0)
                orphan_end(t, who_goes(t, tc), true);
        conn_flag(tc, TCF_CLOSED_BY_APP);
        if (joins)
                line_append(t, l, tc);
}
