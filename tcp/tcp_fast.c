/*
 * Small bytes, fast: a write that only makes the last unsent segment longer, and a read that leaves
 * some of the first queued segment behind. Neither makes anything due, so nobody has to be told and
 * no clock is read. Anything out of the ordinary says no, and the caller goes by reserve and
 * commit, peek and consume.
 *
 * The write makes nothing due: tcp_output() looked at the tail when it was written. Nagle, the
 * window, the congestion window, pacing or a full NI queue holds it back. Each of these ends with
 * an event of its own (an ACK, a timer, room), which looks again. Length matters to that decision
 * only when a full segment, or half the peer's largest window (RFC 9293 §3.8.6.2.1), is reached:
 * then we say no.
 */
#include <poll.h>

#include "tcp/tcp_conn.h"
#include "tcp/tcp_stream.h"

#define UNUSUAL (TCF_RSV | TCF_FIN_QUEUED | TCF_SND_FULL | TCF_WAITS | TCF_MORE)

/* Claims the lines that the writes after the next few will go to. The frame was read by the peer:
 * its lines come back from there one by one, and leaving the lock would wait for each. */
#define CLAIM_AHEAD 384u
static void claim_ahead(uint8_t *p, uint32_t n, uint32_t room)
{
        for (uint32_t at = CLAIM_AHEAD; at < CLAIM_AHEAD + n && at < room; at += CACHE_LINE)
                prefetch_write(p + at);
}

/* Returns true if the buffer stays writable: a write that fills it has to say so (TCF_SND_FULL), as
 * tcp_send_commit() does. That is so at two thirds at the earliest. */
static bool stays_writable(const struct tcp_conn *tc, uint32_t n)
{
        return (tc->snd_end - tc->snd_una + n) * 3ull <= tc->snd_limit * 2ull &&
               (tc->opts.notsent_lowat | tc->opts.unsent_most) == 0;
}

bool tcp_send_append(struct tcp *t, struct tcp_conn *tc, const uint8_t *p, uint32_t n)
{
        struct tcp_txseg *tail;
        uint32_t len, room;
        uint8_t *to;

        if (tc->snd_next == 0 || tc->err != 0 || tc->shut & SHUT_SND || tc->slow & SLOW_FLOW ||
            tc->flags & UNUSUAL || tc->owed & OWE_PUSH)
                return false;
        tail = txseg_at(t, tc->snd_tail);
        len = tail->len + n;
        room = frame_size(t->frames, tail->frame) - tc->snd_fill_off;
        if (tail->frame != tc->snd_fill || tail->off + tail->len != tc->snd_fill_off || n > room)
                return false;
        if (len >= tc->snd_mss || len >= tc->max_wnd / 2 || !stays_writable(tc, n))
                return false;
        to = frame_addr(t->frames, tail->frame) + tc->snd_fill_off;
        memcpy(to, p, n);
        claim_ahead(to + n, n, room - n);
        store_order();
        tail->len = len;
        store_order();
        tail->ctl |= TCP_PSH;
        tc->snd_fill_off += n;
        WRITE_ONCE(tc->snd_end, tc->snd_end + n);
        return true;
}

#define FETCH_MOST 2048u /* bytes that the next read will most likely want */

bool tcp_recv_take(struct tcp *t, struct tcp_conn *tc, uint8_t *p, uint32_t n)
{
        struct tcp_rxseg *head;
        const uint8_t *from;

        if (tc->rcv_head == 0 || tc->urg_state != URG_NONE || tc->shut & SHUT_RCV)
                return false;
        head = rxseg_at(t, tc->rcv_head);
        if (head->data.len <= n)
                return false;
        from = frame_addr(t->frames, head->data.id) + head->data.off;
        memcpy(p, from, n);
        frame_fetch(from + n, MIN(MIN(n, FETCH_MOST), head->data.len - n));
        range_skip(&head->data.off, &head->data.len, n);
        head->seq += n;
        WRITE_ONCE(tc->rcv_unread, tc->rcv_unread - n);
        return true;
}

uint32_t tcp_recv_ahead(struct tcp *t, const struct tcp_conn *tc, const uint8_t **p)
{
        const struct tcp_rxseg *head;

        if (tc->rcv_head == 0 || tc->urg_state != URG_NONE || tc->shut & SHUT_RCV)
                return 0;
        head = rxseg_at(t, tc->rcv_head);
        *p = frame_addr(t->frames, head->data.id) + head->data.off;
        return MIN(head->data.len, tc->rcv_limit / 4);
}

bool tcp_readable(const struct tcp *t, const struct tcp_conn *tc)
{
        bool usual = READ_ONCE(tc->state) == TCPS_ESTABLISHED &&
                     (READ_ONCE(tc->urg_state) | READ_ONCE(tc->shut)) == 0 &&
                     READ_ONCE(tc->err) == 0 && !(READ_ONCE(tc->flags) & TCF_FIN_RCVD);

        if (likely(usual))
                return READ_ONCE(tc->rcv_unread) != 0;
        return tcp_poll_events(t, tc) & (POLLIN | POLLRDNORM | POLLHUP | POLLERR);
}
