/*
 * Passive open: listeners, the connections that are being opened for them, and those that wait to
 * be accepted.
 *
 * A connection says itself where it stands (listener, acc_state, acc_order); the queue's links and
 * counts follow from that and can be rebuilt. When half_open is at its limit, SYN cookies answer
 * (tcp_cookie.c). Peers of this host get none, as long as they answer.
 */
#include <errno.h>

#include "tcp/tcp_answers.h"
#include "tcp/tcp_conn.h"
#include "tcp/tcp_group.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_listen.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_recv.h"
#include "tcp/tcp_send.h"

#define HALF_OPEN_LEAST 128u /* half-open connections a small backlog is allowed all the same */
#define GROUP_WSCALE    9u   /* units of 512 bytes */

void tcp_listen_forget(struct tcp *t)
{
        if (t->answers != NULL)
                t->answers->forget(t->arg);
}

static bool excludes(const struct tcp_listener *l, ip_addr addr, const struct tcp_opts *o)
{
        bool same = ip_addr_eq(l->addr, addr) || (ip_addr_is_any(l->addr) && ip_addr_is_any(addr));

        return same && !(l->opts.reuseport && o->reuseport);
}

int tcp_listen(struct tcp *t, ip_addr addr, uint16_t port, uint32_t backlog,
               const struct tcp_opts *opts)
{
        struct tcp_listener *l,
                made = {.port = port, .addr = addr, .backlog = backlog, .opts = *opts};
        uint32_t i;

        for (l = demux_listener_at(t, port); l != NULL; l = demux_listener_next(t, l)) {
                if (excludes(l, addr, opts))
                        return -EADDRINUSE;
                if (ip_addr_eq(l->addr, addr))
                        made.cookies_until = l->cookies_until;
        }
        i = pool_alloc(&t->sh->listeners);
        if (i == 0)
                return -ENOBUFS;
        l = tcp_listener_at(t, i);
        made.self = i;
        write_words(l, &made, sizeof made);
        live_set(&l->live, 1);
        demux_add_listener(t, l);
        tcp_listen_forget(t);
        return (int)i;
}

void tcp_listen_backlog(struct tcp *t, uint32_t listener, uint32_t backlog)
{
        tcp_listener_at(t, listener)->backlog = backlog;
        tcp_listen_forget(t);
}

void tcp_listen_opts(struct tcp *t, uint32_t listener, const struct tcp_opts *opts)
{
        tcp_listener_at(t, listener)->opts = *opts;
        tcp_listen_forget(t);
}

static bool queue_is_full(const struct tcp_listener *l)
{
        return l->queued > l->backlog;
}

static bool half_open_is_full(const struct tcp_listener *l)
{
        return l->half_open >= MAX(l->backlog, HALF_OPEN_LEAST);
}

/* The next SYN from there would be answered in the same way: with all that Linux asks for, and no
 * more than that. */
static bool is_plain(const struct tcp_conn *tc, const struct tcp_listener *l)
{
        return !tc->link.lossless && tc->ts_ok && tc->sack_ok &&
               (tc->flags & (TCF_WSCALE | TCF_ECN | TCF_COOKIE)) == TCF_WSCALE &&
               tc->opts.min_ttl == 0 && tc->opts.ip_opts.len == 0 && l->sharing == 1 &&
               l->opts.save_syn == 0 && l->group == 0;
}

/* The next SYN from there would be answered in the same way, and its sender may know now. */
static bool may_promise(const struct tcp_conn *tc, const struct tcp_listener *l)
{
        return tc->link.lossless && tc->sack_ok && tc->flags & TCF_WSCALE && l->opts.min_ttl == 0 &&
               l->opts.ip_opts.len == 0 && l->opts.defer_accept_s == 0 && l->opts.save_syn == 0 &&
               !l->opts.credit && l->sharing == 1 && l->group == 0 && !fastopen_serves(l);
}

/* Connections that there is a place for in the queue, if those that are being opened get theirs. */
static uint32_t room_of(const struct tcp_listener *l)
{
        uint64_t taken = (uint64_t)l->queued + l->half_open, places = (uint64_t)l->backlog + 1;

        return taken < places ? (uint32_t)MIN(places - taken, UINT32_MAX) : 0;
}

/* As this one was opened. A part of the room is promised to each peer, which may never use it. */
#define PROMISED_PART 16u
static void teach(struct tcp *t, const struct tcp_conn *tc, const struct tcp_listener *l)
{
        uint32_t room = room_of(l);

        if (t->answers == NULL || room == 0 || conn_unconfirmed(tc))
                return;
        if (is_plain(tc, l))
                t->answers->learn(t->arg, tc, room);
        else if (room >= PROMISED_PART && may_promise(tc, l))
                t->answers->promise(t->arg, tc, room / PROMISED_PART);
}

static void unlink_queue(struct tcp *t, struct tcp_listener *l, struct tcp_conn *tc)
{
        assert(l->queued != 0 && tc->acc_state == ACC_QUEUED);
        WRITE_ONCE(*(tc->line_prev ? &conn_at(t, tc->line_prev)->line_next : &l->q_head),
                   tc->line_next);
        *(tc->line_next ? &conn_at(t, tc->line_next)->line_prev : &l->q_tail) = tc->line_prev;
        tc->line_next = tc->line_prev = 0;
        l->queued--;
}

/* Into the queue by order of arrival; nearly always at its end. */
void listen_requeue(struct tcp *t, struct tcp_conn *tc)
{
        struct tcp_listener *l = tcp_listener_at(t, tc->listener);
        uint32_t after = l->q_tail;

        assert(l->live && tc->acc_state == ACC_QUEUED);
        while (after != 0 && (int32_t)(conn_at(t, after)->acc_order - tc->acc_order) > 0)
                after = conn_at(t, after)->line_prev;
        tc->line_prev = after;
        tc->line_next = after ? conn_at(t, after)->line_next : l->q_head;
        WRITE_ONCE(*(after ? &conn_at(t, after)->line_next : &l->q_head), tc->self);
        *(tc->line_next ? &conn_at(t, tc->line_next)->line_prev : &l->q_tail) = tc->self;
        l->queued++;
        if (unlikely(queue_is_full(l)))
                tcp_listen_forget(t);
}

/* Returns true if the queue has room: one more than the backlog may wait, as in Linux. */
bool listen_room(const struct tcp *t, const struct tcp_conn *tc)
{
        const struct tcp_listener *l;

        if (tc->acc_state != ACC_HALF_OPEN)
                return true;
        l = tcp_listener_at(t, tc->listener);
        return l->queued <= l->backlog;
}

void listen_established(struct tcp *t, struct tcp_conn *tc)
{
        struct tcp_listener *l;

        if (tc->acc_state != ACC_HALF_OPEN) {
                conn_raise(t, tc, TCP_EV_CONNECTED | TCP_EV_WRITABLE);
                return;
        }
        l = tcp_listener_at(t, tc->listener);
        assert(l->half_open != 0);
        tc->acc_order = l->order++;
        tc->acc_state = ACC_QUEUED;
        tc->opts.defer_accept_s = 0; /* was for this; as Linux says of a connection */
        l->half_open--;
        group_opens_no_more(t, tc->group, true);
        listen_requeue(t, tc);
        l->events |= TCP_EV_ACCEPT;
        teach(t, tc, l);
        count(t->cnt, COUNT_TCP_PASSIVE_OPEN);
        touch(t, tc);
}

/* The connection ended before anybody took it. */
void listen_forget(struct tcp *t, struct tcp_conn *tc)
{
        struct tcp_listener *l = tcp_listener_at(t, tc->listener);

        if (tc->acc_state == ACC_HALF_OPEN) {
                assert(l->half_open != 0);
                l->half_open--;
                group_opens_no_more(t, tc->group, false);
        } else if (tc->acc_state == ACC_QUEUED) {
                unlink_queue(t, l, tc);
        }
        tc->acc_state = ACC_NONE;
        tc->listener = 0;
}

bool tcp_acceptable(const struct tcp *t, uint32_t listener)
{
        return READ_ONCE(tcp_listener_at(t, listener)->q_head) != 0;
}

bool tcp_expects(const struct tcp *t, uint32_t listener)
{
        const struct tcp_listener *l = tcp_listener_at(t, listener);

        return l->queued != 0 || l->half_open != 0;
}

uint32_t tcp_accept_next(const struct tcp *t, uint32_t listener)
{
        return tcp_listener_at(t, listener)->q_head;
}

uint32_t tcp_accept(struct tcp *t, uint32_t listener)
{
        struct tcp_listener *l = tcp_listener_at(t, listener);
        struct tcp_conn *tc;

        if (l->q_head == 0)
                return 0;
        tc = conn_at(t, l->q_head);
        unlink_queue(t, l, tc);
        tc->acc_state = ACC_TAKEN;
        tc->listener = 0;
        return tc->self;
}

void tcp_unlisten(struct tcp *t, uint32_t listener)
{
        struct tcp_listener *l = tcp_listener_at(t, listener);

        assert(l->live);
        demux_remove_listener(t, l);
        tcp_listen_forget(t);
        fastopen_unlisten(t, l);
        for (uint32_t i = 1; i < t->sh->conns.fresh && (l->queued != 0 || l->half_open != 0); i++) {
                struct tcp_conn *tc = conn_at(t, i);
                if (!tc->live || tc->listener != listener)
                        continue;
                listen_forget(t, tc);
                if (tc->state == TCPS_CLOSED)
                        conn_reap(t, tc);
                else if (tc->state == TCPS_SYN_RECEIVED && !tc->link.lossless)
                        /* As Linux: its peer hears of it when it says something, which may
                         * be never. */
                        conn_done(t, tc, 0);
                else
                        conn_reset(t, tc, 0);
        }
        assert(l->queued == 0 && l->half_open == 0 && l->fastopen_open == 0);
        tcp_group_listen(t, listener, 0);
        live_set(&l->live, 0);
        pool_free(&t->sh->listeners, listener);
}

/* `sure`: returns true if the queue will be full with the connections that are being opened. A peer
 * must not believe that it is connected when there is no room for it. */
static bool has_no_place(const struct tcp_listener *l, bool sure)
{
        return sure ? l->queued + l->half_open > l->backlog : queue_is_full(l);
}

/* There is a place. A first grant holds as far as the group has it, and two units of the window
 * are no more than the least that a member may have. */
static void enter_group(struct tcp *t, struct tcp_conn *tc, uint32_t group, nstime now)
{
        if (tc->syn_wscale != TCP_NO_WSCALE)
                tc->syn_wscale = MIN(tc->syn_wscale, GROUP_WSCALE);
        tcp_group_enter(t, tc, group, now);
        if (tc->opts.credit)
                group_grant(t, tc, tc->opts.window_first);
}

/* The SYN is good: a connection in SYN-RECEIVED. NULL: there is no memory for it. */
static struct tcp_conn *begin(struct tcp *t, struct tcp_listener *l, const struct tcp_tuple *tuple,
                              const struct tcp_opts *opts, const struct tcp_link *link,
                              const struct tcp_seg *seg, uint32_t iss, nstime now)
{
        struct tcp_conn *tc;

        assert(l->live && seg->flags & TCP_SYN);
        if (unlikely(!group_has_place(t, l->group))) {
                count_drop(t->cnt, DROP_TCP_GROUP);
                return NULL;
        }
        tc = conn_new(t, tuple, link, opts, now);
        if (tc == NULL) {
                count_drop(t->cnt, DROP_TCP_NO_MEMORY);
                return NULL;
        }
        if (unlikely(l->group != 0))
                enter_group(t, tc, l->group, now);
        tc->opts.ip_opts.len = 0;
        tc->opts.fastopen &=
                (uint8_t) ~(TCP_FASTOPEN_MORE - 1); /* the rest is the listener's own */
        tc->opts.fastopen_most = tc->opts.fastopen_keys = 0;
        tc->listener = l->self;
        tc->acc_state = ACC_HALF_OPEN;
        l->half_open++;
        group_opens(t, tc->group, now);
        if (unlikely(half_open_is_full(l)))
                tcp_listen_forget(t);
        tc->iss = iss;
        WRITE_ONCE(tc->snd_una, iss);
        WRITE_ONCE(tc->snd_nxt, iss + 1);
        WRITE_ONCE(tc->snd_end, iss + 1);
        tc->irs = seg->seq;
        tc->last_ack_sent = seg->seq + 1;
        WRITE_ONCE(tc->rcv_nxt, seg->seq + 1);
        rcvbuf_open(tc);
        open_syn_options(tc, seg, now);
        tc->snd_wnd = tc->max_wnd = conn_peer_window(tc, seg->wnd);
        tc->snd_wl1 = seg->seq;
        tc->stalled_at = now;
        tcp_set_state(t, tc, TCPS_SYN_RECEIVED);
        return tc;
}

/* What the peer was told. */
static void set_scale(struct tcp_conn *tc, uint8_t scale)
{
        WRITE_ONCE(tc->rcv_wscale, scale);
        rcvbuf_size(tc, tc->rcv_size);
}

/* The peer has its SYN-ACK already, and what stands in there holds, whatever has been changed
 * since. Without a record its next segment is refused. */
static void take_answered(struct tcp *t, struct tcp_listener *l, const struct tcp_tuple *tuple,
                          const struct tcp_link *link, const struct tcp_seg *seg,
                          const struct tcp_answer *a, nstime now)
{
        struct tcp_opts opts = l->opts;
        struct tcp_conn *tc;

        opts.no_timestamps = opts.no_sack = opts.no_wscale = 0;
        tc = begin(t, l, tuple, &opts, link, seg, a->iss, now);
        if (tc == NULL)
                return;
        output_answered(t, tc, a->at, now);
        set_scale(tc, a->wscale);
        if (!tc->opts.credit || tc->opts.window_first < a->wnd)
                tc->rcv_adv = tc->rcv_nxt +
                              (tc->group_share != 0 ? MIN(a->wnd, tc->group_share) : a->wnd);
        count(t->cnt, COUNT_TCP_ANSWERED);
        touch(t, tc);
}

void listen_break_promise(struct tcp *t, const struct tcp_tuple *tuple, const struct tcp_seg *syn)
{
        struct tcp_seg next = *syn;

        next.flags = TCP_ACK;
        next.ack++;
        output_refuse(t, tuple, &next);
}

/* The peer's connection is established, and so is this one: what was promised holds, whatever has
 * been changed since, and however full the queue is. */
static void take_promised(struct tcp *t, struct tcp_listener *l, const struct tcp_tuple *tuple,
                          const struct tcp_link *link, const struct tcp_seg *seg, nstime now)
{
        struct tcp_opts opts = l->opts;
        struct tcp_answer a;
        struct tcp_conn *tc = NULL;

        opts.no_sack = opts.no_wscale = 0;
        opts.defer_accept_s = 0;
        if (t->answers->keep(t->arg, tuple, (uint16_t)seg->ack, &a))
                tc = begin(t, l, tuple, &opts, link, seg, seg->ack, now);
        if (tc == NULL) {
                listen_break_promise(t, tuple, seg);
                return;
        }
        set_scale(tc, a.wscale);
        WRITE_ONCE(tc->rcv_adv, tc->rcv_nxt + a.wnd);
        tc->snd_wl2 = tc->iss + 1;
        tc->last_sent = 0;
        open_established(t, tc, now);
        tc->last_sent = now;
        listen_established(t, tc);
        count(t->cnt, COUNT_TCP_PROMISED);
        touch(t, tc);
}

/* RFC 7413 §4.2.2: what came with the SYN can be read, and what is written leaves, before the
 * SYN-ACK is acknowledged. */
static bool open_at_once(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        bool took;

        fastopen_opened(t, tc);
        open_established(t, tc, now);
        listen_established(t, tc);
        took = input_syn_text(t, tc, seg, now);
        if (tc->rcv_nxt != tc->irs + 1)
                tc->fastopen |= FO_TAKEN;
        return took;
}

/* Where nothing is lost a SYN-ACK is answered at once. Who does not may mean to keep others out.
 * All have the limits of other links then, and cookies. */
void listen_unanswered(struct tcp *t, const struct tcp_conn *tc, nstime now)
{
        if (tc->link.lossless && tc->acc_state == ACC_HALF_OPEN)
                cookie_expect(t, tcp_listener_at(t, tc->listener), now);
}

/* RFC 9293 §3.10.7.2, third. With no room for one more half-open connection, by its listener or by
 * its group, the peer gets a cookie. Not so where addresses cannot be forged, nor where the
 * sequence number must be above that of a connection in TIME-WAIT: there it tries again. */
static bool take_syn(struct tcp *t, struct tcp_listener *l, const struct tcp_tuple *tuple,
                     const struct tcp_link *link, const struct tcp_seg *seg, uint32_t min_iss,
                     nstime now)
{
        uint32_t iss = iss_new(t, tuple, now);
        bool sure = link->lossless && now > l->cookies_until; /* that who asks will answer */
        enum group_opening opening = sure ? GROUP_OPENS : group_opening(t, l->group, now);
        bool full = half_open_is_full(l) || unlikely(opening == GROUP_FLOODED);
        struct tcp_answer answer;
        struct tcp_conn *tc;

        if (t->answers != NULL && t->answers->took(t->arg, tuple, seg->seq, &answer)) {
                take_answered(t, l, tuple, link, seg, &answer, now);
                return false;
        }
        if (has_no_place(l, sure) || (full && min_iss != 0)) {
                count_drop(t->cnt, DROP_TCP_BACKLOG);
                return false;
        }
        if (unlikely(!group_has_place(t, l->group) || (opening == GROUP_WAITS && !full))) {
                count_drop(t->cnt, DROP_TCP_GROUP);
                return false;
        }
        if (full) {
                cookie_answer(t, l, tuple, link, seg, now);
                return false;
        }
        tc = begin(t, l, tuple, &l->opts, link, seg, min_iss != 0 ? seq_max(iss, min_iss) : iss,
                   now);
        if (tc == NULL)
                return false;
        if (unlikely(tc->opts.save_syn != 0))
                saved_syn_keep(t, tc);
        tc->owed |= OWE_SYN;
        touch(t, tc);
        return unlikely(fastopen_serves(l)) && fastopen_accepts(t, tc, seg, now) &&
               open_at_once(t, tc, seg, now);
}

/* Data without a good cookie may be later data of a connection whose first is lost, or came while
 * there was no room: its sender sends the first again. A reset would end the connection. */
static bool may_be_early(const struct tcp *t, const struct tcp_listener *l,
                         const struct tcp_tuple *tuple, const struct tcp_seg *seg, nstime now)
{
        return (seg->len != 0 || seg->flags & TCP_FIN) && !(seg->flags & TCP_SYN) &&
               cookie_early(t, l, tuple, seg, now);
}

/* An ACK for nobody's connection: that of a cookie, or refused. It may bring the first data.
 * TCP_DEFER_ACCEPT does not hold: what would be deferred is just what there is no room for. */
static bool take_ack(struct tcp *t, struct tcp_listener *l, const struct tcp_tuple *tuple,
                     const struct tcp_link *link, const struct tcp_seg *seg, nstime now)
{
        struct tcp_seg syn;
        struct tcp_conn *tc;

        if (l->cookies_until == 0 || seg->flags & TCP_SYN ||
            !cookie_good(t, l, tuple, seg, &syn, now)) {
                if (now <= l->cookies_until)
                        count_drop(t->cnt, DROP_TCP_COOKIE);
                if (!may_be_early(t, l, tuple, seg, now))
                        output_refuse(t, tuple, seg);
                return false;
        }
        if (queue_is_full(l)) {
                count_drop(t->cnt, DROP_TCP_BACKLOG);
                return false;
        }
        tc = begin(t, l, tuple, &l->opts, link, &syn, seg->ack - 1, now);
        if (tc == NULL)
                return false;
        conn_flag(tc, TCF_COOKIE);
        if (tc->flags & TCF_WSCALE)
                set_scale(tc, cookie_wscale());
        count(t->cnt, COUNT_TCP_COOKIE_IN);
        return tcp_input(t, tc, seg, now);
}

/* RFC 9293 §3.10.7.2 */
bool listen_input(struct tcp *t, struct tcp_listener *l, const struct tcp_tuple *tuple,
                  const struct tcp_link *link, const struct tcp_seg *seg, uint32_t min_iss,
                  nstime now)
{
        if (seg->flags & TCP_RST) /* first */
                return false;
        if (seg->flags & TCP_ACK) /* second */
                return take_ack(t, l, tuple, link, seg, now);
        if (!(seg->flags & TCP_SYN)) /* fourth */
                count_drop(t->cnt, DROP_TCP_NO_ACK);
        else if (seg->flags & TCP_FIN) /* could be kept for later, says the third; Linux drops it,
                                          and nobody sends it in earnest */
                count_drop(t->cnt, DROP_TCP_BAD_SYN);
        else if (unlikely(listen_is_promised(t, link, seg)))
                take_promised(t, l, tuple, link, seg, now);
        else /* third */
                return take_syn(t, l, tuple, link, seg, min_iss, now);
        return false;
}
