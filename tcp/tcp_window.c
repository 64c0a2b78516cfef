/*
 * Receive windows: how large they may be, and the one that the application grants byte by byte.
 *
 *   automatic, a size  rcv_limit less what is unread: rcvbuf_window(). Every segment that leaves
 *                      moves the right edge, when it may move: offer_window(). A read that makes
 *                      the window worth a segment has one sent: output_window_update()
 *   credit             from rcv_nxt to rcv_adv, which only a grant moves: tcp_window_grant(), for
 *                      any process that has the socket. It is said at once
 *
 * A window is never taken back (RFC 9293 §3.8.6): a smaller buffer offers nothing new until what
 * was promised has come.
 */
#include <errno.h>

#include "tcp/tcp_conn.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_recv.h"
#include "tcp/tcp_window.h"

/* The buffer that is set, or else the one that there was or would have been at first; a clamp that
 * is raised again or taken away gives that back. */
uint32_t rcvbuf_limit_by(const struct tcp_conn *tc, const struct tcp_opts *o)
{
        struct tcp_opts unclamped = *o;

        if (o->credit)
                return 0;
        unclamped.window_clamp = 0;
        if (o->rcvbuf == 0)
                unclamped.rcvbuf = MAX(tc->rcv_size, conn_rcv_limit(&unclamped, &tc->link));
        return o->window_clamp != 0 ? MIN(unclamped.rcvbuf, o->window_clamp) : unclamped.rcvbuf;
}

/* Opens the window: the next segment says what a SYN cannot of a first grant. */
void rcvbuf_open(struct tcp_conn *tc)
{
        uint32_t first = rcvbuf_first_window(tc);

        WRITE_ONCE(tc->rcv_adv, tc->rcv_nxt + (tc->opts.credit ? first : MIN(first, UINT16_MAX)));
}

static uint8_t scale_or_none(uint8_t scale)
{
        return scale != TCP_NO_WSCALE ? scale : 0;
}

uint8_t tcp_window_scale_for(const struct tcp_opts *o)
{
        return scale_or_none(open_wscale(o));
}

bool tcp_window_opened(const struct tcp_conn *tc)
{
        return tc->state != TCPS_SYN_SENT;
}

uint8_t tcp_window_scale(const struct tcp_conn *tc)
{
        return tcp_window_opened(tc) ? tc->rcv_wscale : scale_or_none(tc->syn_wscale);
}

uint32_t tcp_window_reach(const struct tcp_conn *tc)
{
        return (uint32_t)UINT16_MAX << tcp_window_scale(tc);
}

uint32_t tcp_window_ahead(const struct tcp_conn *tc)
{
        int32_t ahead = (int32_t)(READ_ONCE(tc->rcv_adv) - READ_ONCE(tc->rcv_nxt));

        return ahead > 0 ? (uint32_t)ahead : 0;
}

static int grant_before_open(struct tcp_conn *tc, uint32_t bytes)
{
        assert(tc->opts.window_first <= tc->opts.window_most);
        if (bytes > tc->opts.window_most - tc->opts.window_first)
                return -EOVERFLOW;
        tc->opts.window_first += bytes;
        return 0;
}

int tcp_window_grant(struct tcp *t, struct tcp_conn *tc, uint32_t bytes, nstime now)
{
        uint32_t ahead = tcp_window_ahead(tc), said = ahead >> tc->rcv_wscale;

        if (!tc->opts.credit)
                return -EINVAL;
        if (!tcp_window_opened(tc))
                return grant_before_open(tc, bytes);
        if (ahead > tc->opts.window_most || bytes > tc->opts.window_most - ahead)
                return -EOVERFLOW;
        if (tc->group != 0 && !group_grant(t, tc, bytes))
                return -ENOBUFS;
        WRITE_ONCE(tc->rcv_adv, tc->rcv_adv + bytes);
        if (tc->state != TCPS_ESTABLISHED && tc->state != TCPS_FIN_WAIT_1 &&
            tc->state != TCPS_FIN_WAIT_2)
                return 0;
        if ((ahead + bytes) >> tc->rcv_wscale != said)
                tc->owed |= OWE_ACK;
        touch(t, tc);
        return 0;
}
