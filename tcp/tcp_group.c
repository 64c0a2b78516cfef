/*
 * Groups: limits that many connections have in common.
 *
 *      receive   what is unread, lent, or promised to a peer, of all members together
 *      send      what is written and not acknowledged
 *      rate      bytes a second that they send together
 *
 * Of `receive` a member holds a share, and promises nothing beyond it: rcv_limit is within the
 * share (rcvbuf_size()). So a segment's path has no test, and what a peer was promised has its
 * place already. The sum of shares is never more than the limit, and all are exact for that.
 *
 *      limit = | least | least | least ...  of members there are, and may yet come |  pool  |
 *
 * Everybody has `least` at all times, and goes on with it: nobody waits for what others hold. Of
 * the pool a member may have as much as it leaves free (Choudhury and Hahne, 1998): one alone half
 * of it, each of n an n-plus-first part. A share grows as it is used: half of it read within
 * PERIOD makes it twice as large, less than an eighth half as large. It is looked at when its
 * member reads; it never goes below what is unread, lent and promised.
 *
 * Of `send` a member holds what it has written and is not acknowledged, or `least`. So nothing that
 * is held is unused: what may be written is asked when it is written, and a turn that changed
 * the connection gives back what was acknowledged (SLOW_FLOW). Who has written what it may waits
 * for its own acknowledgements only.
 *
 * A member that has something to send, and whose windows and own rate let it, stands in line for a
 * turn: what passes at the rate in a millisecond, or what it has. Turns follow one another, each
 * begins when the one before it has passed; so the rate is exact, and who sends all the time has an
 * equal part. A member that comes late for its turn has it all the same. Time that nobody used, up
 * to CATCH_UP, makes the turns of those that wait longer. What the windows hold up when the turn
 * comes is given back, and what is not used within TURN is lost: a turn cannot be saved.
 *
 * A group has no owner. It is there as long as a connection or a listener names it. Who belongs to
 * it, and the sums, are derived: group_recover().
 */
#include <errno.h>

#include "tcp/tcp_answers.h"
#include "tcp/tcp_conn.h"
#include "tcp/tcp_group.h"
#include "tcp/tcp_recv.h"
#include "tcp/tcp_send.h"
#include "tcp/tcp_watch.h"
#include "tcp/tcp_window.h"

#define PERIOD       NS_PER_S
#define CATCH_UP     (10 * NS_PER_MS)
#define TURN         NS_PER_MS
#define FLOODED      NS_PER_S         /* who exists has acknowledged its SYN-ACK by then */
#define FLOOD_OVER   (120 * NS_PER_S) /* a SYN-ACK that nobody answers is given up in 63 s */
#define TURN_MOST    (64u << 10)
#define TURNS_SECOND (NS_PER_S / TURN)

static struct tcp_group *group_at(const struct tcp *t, uint32_t i)
{
        assert(i != 0 && i < TCP_GROUPS);
        return &t->sh->groups[i];
}

static struct tcp_group *group_of(const struct tcp *t, const struct tcp_conn *tc)
{
        return group_at(t, tc->group);
}

#define for_each_member(t, number, tc)                                            \
        for (uint32_t i_ = 1; i_ < (t)->sh->conns.fresh; i_++)                    \
                for (struct tcp_conn *tc = conn_at(t, i_); tc != NULL; tc = NULL) \
                        if (tc->live && tc->group == (number))

static const struct tcp_group_limits *limits_of(const struct tcp_group *g)
{
        return &g->limits[g->now];
}

static bool more_comes(const struct tcp_conn *tc)
{
        return tc->state >= TCPS_SYN_RECEIVED && tc->state <= TCPS_FIN_WAIT_2 &&
               !(tc->flags & TCF_FIN_RCVD);
}

/* What its peer may send and what has come and is not read, or not returned. */
uint32_t tcp_promised(const struct tcp_conn *tc)
{
        return tc->rcv_unread + tc->rcv_lent + (more_comes(tc) ? tcp_window_ahead(tc) : 0);
}

/* The free part of the pool: nobody has it, and it is not kept for members that may yet come. */
static uint64_t free_of(const struct tcp_group *g)
{
        uint64_t kept =
                g->held + (uint64_t)(limits_of(g)->members - g->members) * limits_of(g)->least;

        return limits_of(g)->receive > kept ? limits_of(g)->receive - kept : 0;
}

static bool is_bounded(const struct tcp_group *g)
{
        return limits_of(g)->receive != 0;
}

static bool bounds_sending(const struct tcp_group *g)
{
        return limits_of(g)->send != 0;
}

static void set_share(struct tcp_group *g, struct tcp_conn *tc, uint32_t share)
{
        assert(g->held >= tc->group_share);
        g->held += (uint64_t)share - tc->group_share;
        tc->group_share = share;
        rcvbuf_size(tc, tc->rcv_size);
}

/* ---- a share follows its use ---- */

static void begin_period(struct tcp_conn *tc, nstime now)
{
        tc->group_mark = copied_seq(tc);
        tc->group_at = now;
}

static uint32_t wanted(struct tcp_conn *tc, nstime now)
{
        uint32_t share = tc->group_share, read = copied_seq(tc) - tc->group_mark;
        bool over = now - tc->group_at >= PERIOD;

        if (!over && read >= share / 2)
                share = share <= UINT32_MAX / 2 ? 2 * share : UINT32_MAX;
        else if (over && read < share / 8)
                share /= 2;
        else if (!over)
                return share;
        begin_period(tc, now);
        return MIN(share, tc->rcv_size);
}

void group_read(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        struct tcp_group *g = group_of(t, tc);
        uint32_t least = limits_of(g)->least, want;
        uint64_t most;

        if (!is_bounded(g))
                return;
        want = more_comes(tc) ? wanted(tc, now) : 0;
        most = least + (free_of(g) + tc->group_share - least) / 2;
        set_share(g, tc, MAX(MAX((uint32_t)MIN(want, most), least), tcp_promised(tc)));
}

bool group_grant(struct tcp *t, struct tcp_conn *tc, uint32_t bytes)
{
        struct tcp_group *g = group_of(t, tc);
        uint64_t need = (uint64_t)tcp_promised(tc) + bytes;

        if (!is_bounded(g) || need <= tc->group_share)
                return true;
        if (need - tc->group_share > free_of(g))
                return false;
        set_share(g, tc, (uint32_t)need);
        return true;
}

/* ---- what is written ---- */

uint32_t tcp_queued(const struct tcp_conn *tc)
{
        int32_t bytes = tc->state != TCPS_CLOSED ? (int32_t)(tc->snd_end - tc->snd_una) : 0;

        return tc->rsv_bytes + (uint32_t)MAX(bytes, 0);
}

static void set_send_share(struct tcp_group *g, struct tcp_conn *tc, uint32_t share)
{
        assert(g->queued >= tc->send_share);
        g->queued += (uint64_t)share - tc->send_share;
        tc->send_share = share;
}

static uint64_t free_to_write(const struct tcp_group *g)
{
        uint64_t kept =
                g->queued + (uint64_t)(limits_of(g)->members - g->members) * limits_of(g)->least;

        return limits_of(g)->send > kept ? limits_of(g)->send - kept : 0;
}

/* A connection holds what it has written, and may write as much of the pool as it leaves free. */
static void size_send_share(struct tcp_group *g, struct tcp_conn *tc)
{
        uint32_t least = limits_of(g)->least;

        set_send_share(g, tc, MAX(least, tcp_queued(tc)));
        WRITE_ONCE(
                tc->snd_most,
                (uint32_t)MIN(least + (free_to_write(g) + tc->send_share - least) / 2, UINT32_MAX));
}

uint32_t group_writes(struct tcp *t, struct tcp_conn *tc, uint32_t want)
{
        uint32_t queued = tcp_queued(tc);

        size_send_share(group_of(t, tc), tc);
        return MIN(want, tc->snd_most > queued ? tc->snd_most - queued : 0);
}

/* Tells a connection that found no room when there is some. */
static void tell_room(struct tcp *t, struct tcp_conn *tc)
{
        if (tc->state == TCPS_CLOSED)
                return;
        if (!sndbuf_writable(t, tc))
                conn_flag(tc, TCF_SND_FULL);
        else
                sndbuf_freed(t, tc);
}

void tcp_group_look(struct tcp *t, struct tcp_conn *tc)
{
        size_send_share(group_of(t, tc), tc);
        tell_room(t, tc);
}

/* The group bounds it from now on, or no longer; or in another way. */
static void bound_sending(struct tcp *t, struct tcp_group *g, struct tcp_conn *tc)
{
        if (tc->group != 0 && bounds_sending(g)) {
                size_send_share(g, tc);
        } else {
                set_send_share(g, tc, 0);
                WRITE_ONCE(tc->snd_most, 0);
        }
        conn_slow_flow(tc);
        tell_room(t, tc);
}

/* ---- turns ---- */

static uint32_t turn_bytes(uint64_t rate)
{
        return (uint32_t)MAX(MIN(rate / TURNS_SECOND, TURN_MOST), 1u);
}

/* New, or again; a segment at least, which may be a probe. */
static uint32_t has_to_send(const struct tcp_conn *tc)
{
        return MAX(tcp_unsent(tc) + tc->lost, tc->snd_mss);
}

/* ... as far as the windows let it. */
static uint32_t may_send(const struct tcp_conn *tc)
{
        uint32_t pipe = pipe_bytes(tc), own = tc->cwnd > pipe ? tc->cwnd - pipe : 0,
                 peers = tc->snd_wnd > flight(tc) ? tc->snd_wnd - flight(tc) : 0;

        return MAX(MIN(has_to_send(tc), MIN(own, peers + tc->lost)), tc->snd_mss);
}

static nstime time_of(uint32_t bytes, uint64_t rate)
{
        return (nstime)(bytes * (uint64_t)NS_PER_S / rate);
}

/* A member's turn begins behind all turns that were given. Time in which nobody wanted to send is
 * not made good: then the turn begins now. */
static void stand_in_line(struct tcp_group *g, struct tcp_conn *tc, nstime now)
{
        bool pause = g->waiting == 0 && now - g->turn_last > CATCH_UP;
        uint64_t rate = limits_of(g)->rate;

        tc->group_due = MAX(g->turn_at, pause ? now : now - CATCH_UP);
        tc->group_ask = MIN(turn_bytes(rate), has_to_send(tc));
        g->turn_at = tc->group_due + time_of(tc->group_ask, rate);
        g->waiting++;
}

/* Time that has passed and is nobody's turn has been missed by all that wait: in equal parts it is
 * theirs now. */
static void begin_turn(struct tcp_group *g, struct tcp_conn *tc, nstime now)
{
        uint64_t rate = limits_of(g)->rate;
        uint32_t turn;

        assert(rate != 0 && g->waiting != 0);
        g->turn_at = MAX(g->turn_at, now - CATCH_UP);
        if (g->turn_last != now)
                g->turn_more = now > g->turn_at ? (now - g->turn_at) / g->waiting : 0;
        g->waiting--;
        g->turn_at += g->turn_more;
        g->turn_last = tc->group_turn = now;
        tc->group_due = 0;
        turn = tc->group_ask +
               (uint32_t)MIN((uint64_t)g->turn_more * rate / NS_PER_S, UINT32_MAX / 2);
        tc->group_left = MIN(turn, may_send(tc));
        g->turn_at -= time_of(turn - tc->group_left, rate);
}

nstime group_turn(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        struct tcp_group *g = group_of(t, tc);

        if (tc->group_left != 0 && now - tc->group_turn <= TURN)
                return now;
        tc->group_left = 0;
        if (tc->group_due == 0)
                stand_in_line(g, tc, now);
        if (now < tc->group_due)
                return tc->group_due;
        if (g->waiting > 1 && tc->group_turn == now)
                return now + 1; /* others first, who may be late as well */
        begin_turn(g, tc, now);
        return now;
}

/* A segment is not cut: what it has beyond the turn the next ones wait for. */
void group_sent(struct tcp *t, struct tcp_conn *tc, uint32_t len)
{
        struct tcp_group *g = group_of(t, tc);
        uint32_t in_turn = MIN(len, tc->group_left);

        tc->group_left -= in_turn;
        g->turn_at += time_of(len - in_turn, limits_of(g)->rate);
}

static void leave_line(struct tcp_group *g, struct tcp_conn *tc)
{
        assert(tc->group_due == 0 || g->waiting != 0);
        if (tc->group_due != 0)
                g->waiting--;
        tc->group_due = 0;
        tc->group_left = 0;
}

/* The group has a rate from now on, or none, or another. Connections that wait look again. */
static void pace_by_group(struct tcp *t, struct tcp_group *g, struct tcp_conn *tc)
{
        bool paced = tc->group != 0 && limits_of(g)->rate != 0;

        if (!paced && !tc->group_paced)
                return;
        leave_line(g, tc);
        tc->group_paced = paced;
        pace_set(tc, tc->flags & TCF_RATES ? tc->pace.rate : 0, 1);
        if (tc->flags & TCF_PACED)
                touch(t, tc);
}

/* ---- who belongs to it ---- */

bool group_has_place(const struct tcp *t, uint32_t group)
{
        const struct tcp_group *g;

        if (likely(group == 0))
                return true;
        g = group_at(t, group);
        return (limits_of(g)->members == 0 || g->members < limits_of(g)->members) &&
               (!is_bounded(g) || g->held + limits_of(g)->least <= limits_of(g)->receive) &&
               (!bounds_sending(g) || g->queued + limits_of(g)->least <= limits_of(g)->send);
}

/* The places for connections that are being opened: half, or the single one. */
static uint32_t may_open(const struct tcp_group *g)
{
        uint32_t members = limits_of(g)->members;

        return members != 0 ? MAX(members / 2, 1u) : UINT32_MAX;
}

/* In a flood each place that falls free is taken again. Nobody waits for that one as well. */
static void takes_last_place(struct tcp_group *g, nstime now)
{
        if (g->unanswered)
                g->flooded_at = now;
        g->unanswered = false;
        g->opening_at =
                g->flooded_at != 0 && now - g->flooded_at < FLOOD_OVER ? now - FLOODED : now;
}

void group_opens(struct tcp *t, uint32_t group, nstime now)
{
        struct tcp_group *g;

        if (likely(group == 0))
                return;
        g = group_at(t, group);
        if (++g->opening == may_open(g))
                takes_last_place(g, now);
}

void group_opens_no_more(struct tcp *t, uint32_t group, bool answered)
{
        struct tcp_group *g;

        if (likely(group == 0))
                return;
        g = group_at(t, group);
        assert(g->opening != 0);
        g->unanswered |= !answered && g->opening >= may_open(g);
        g->opening--;
}

enum group_opening group_opening(const struct tcp *t, uint32_t group, nstime now)
{
        const struct tcp_group *g;

        if (likely(group == 0))
                return GROUP_OPENS;
        g = group_at(t, group);
        if (g->opening < may_open(g))
                return GROUP_OPENS;
        return now - g->opening_at < FLOODED ? GROUP_WAITS : GROUP_FLOODED;
}

uint32_t group_first(const struct tcp *t, uint32_t group, uint32_t window)
{
        return group != 0 && is_bounded(group_at(t, group))
                       ? MIN(window, limits_of(group_at(t, group))->least)
                       : window;
}

/* Returns true if the connection can say its least: windows go by units of the scale; by credit,
 * whoever grants sees to it. */
static bool can_say_least(const struct tcp_conn *tc, const struct tcp_group_limits *l)
{
        return l->receive == 0 || tc->opts.credit || 2u << tc->rcv_wscale <= l->least;
}

int tcp_group_enter(struct tcp *t, struct tcp_conn *tc, uint32_t group, nstime now)
{
        struct tcp_group *g = group_at(t, group);
        uint32_t least = limits_of(g)->least, share = MAX(least, tcp_promised(tc)),
                 queued = MAX(least, tcp_queued(tc));

        if (tc->group == group)
                return 0;
        if (!can_say_least(tc, limits_of(g)))
                return -EINVAL;
        if (!group_has_place(t, group) || (is_bounded(g) && share - least > free_of(g)) ||
            (bounds_sending(g) && queued - least > free_to_write(g)))
                return -ENOSPC;
        group_over(t, tc);
        begin_period(tc, now);
        if (is_bounded(g)) {
                tc->group_share = share;
                g->held += share;
        }
        g->members++;
        store_order();
        tc->group = (uint8_t)group;
        rcvbuf_size(tc, tc->rcv_size);
        bound_sending(t, g, tc);
        pace_by_group(t, g, tc);
        return 0;
}

void group_over(struct tcp *t, struct tcp_conn *tc)
{
        struct tcp_group *g;

        if (likely(tc->group == 0))
                return;
        g = group_of(t, tc);
        assert(g->members != 0 && g->held >= tc->group_share);
        g->held -= tc->group_share;
        g->members--;
        tc->group = 0;
        store_order();
        tc->group_share = 0;
        rcvbuf_size(tc, tc->rcv_size);
        bound_sending(t, g, tc);
        pace_by_group(t, g, tc);
}

void group_ends(struct tcp *t, struct tcp_conn *tc)
{
        struct tcp_group *g;

        if (likely(tc->group == 0))
                return;
        g = group_of(t, tc);
        if (is_bounded(g))
                set_share(g, tc, MAX(limits_of(g)->least, tcp_promised(tc)));
        if (bounds_sending(g))
                tcp_group_look(t, tc);
        if (tc->state == TCPS_CLOSED || tc->state == TCPS_TIME_WAIT)
                leave_line(g, tc);
}

void tcp_group_leave(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        group_over(t, tc);
        output_window_update(t, tc, now);
}

void tcp_group_listen(struct tcp *t, uint32_t listener, uint32_t group)
{
        struct tcp_listener *l = tcp_listener_at(t, listener);

        if (l->group == group)
                return;
        if (l->group != 0)
                group_at(t, l->group)->listeners--;
        if (group != 0)
                group_at(t, group)->listeners++;
        l->group = (uint8_t)group;
        if (t->answers != NULL)
                t->answers->forget(t->arg);
}

/* ---- the group ---- */

uint32_t tcp_group_new(const struct tcp *t)
{
        for (uint32_t i = 1; i < TCP_GROUPS; i++)
                if (group_at(t, i)->members == 0 && group_at(t, i)->listeners == 0)
                        return i;
        return 0;
}

/* Returns true if the limits have room for what members were promised and have written, and for
 * what is kept for those that may yet come. */
static bool fits(const struct tcp *t, uint32_t group, const struct tcp_group_limits *l)
{
        const struct tcp_group *g = group_at(t, group);
        uint64_t kept = (uint64_t)(l->members - g->members) * l->least, receive = kept, send = kept;

        if (l->members != 0 && l->members < g->members)
                return false;
        for_each_member(t, group, tc)
        {
                receive += MAX(l->least, tcp_promised(tc));
                send += MAX(l->least, tcp_queued(tc));
        }
        return (l->receive == 0 || receive <= l->receive) && (l->send == 0 || send <= l->send);
}

int tcp_group_set(struct tcp *t, uint32_t group, const struct tcp_group_limits *l)
{
        struct tcp_group *g = group_at(t, group);

        assert((l->receive | l->send) == 0 || (l->members != 0 && l->least != 0));
        for_each_member(t, group, tc) if (!can_say_least(tc, l)) return -EINVAL;
        if (!fits(t, group, l))
                return -ENOSPC;
        for_each_member(t, group, tc) if (l->receive != 0 &&
                                          (tc->group_share == 0 ||
                                           tc->group_share > MAX(l->least, tcp_promised(tc))))
                set_share(g, tc, MAX(l->least, tcp_promised(tc)));
        g->limits[!g->now] = *l;
        g->turn_at = 0;
        store_order();
        g->now = !g->now; /* which the shares were within before and are after */
        store_order();
        for_each_member(t, group, tc)
        {
                if (tc->group_share < l->least || l->receive == 0)
                        set_share(g, tc, l->receive != 0 ? l->least : 0);
                set_send_share(g, tc, l->send != 0 ? MAX(l->least, tcp_queued(tc)) : 0);
                pace_by_group(t, g, tc);
        }
        for_each_member(t, group, tc) bound_sending(t, g, tc);
        return 0;
}

void tcp_group_get(const struct tcp *t, uint32_t group, struct tcp_group_report *r)
{
        const struct tcp_group *g = group_at(t, group);

        *r = (struct tcp_group_report){.limits = *limits_of(g),
                                       .members = g->members,
                                       .held = g->held,
                                       .queued = g->queued};
}

/* Limits that it had not been told of, and an entrance or a leave half done. */
static void recover_conn(struct tcp *t, struct tcp_conn *tc)
{
        struct tcp_group *g = tc->group != 0 ? group_of(t, tc) : NULL;

        tc->group_due = 0;
        if (g == NULL || !is_bounded(g))
                tc->group_share = 0;
        else
                tc->group_share = MAX(MAX(tc->group_share, limits_of(g)->least), tcp_promised(tc));
        tc->send_share =
                g != NULL && bounds_sending(g) ? MAX(limits_of(g)->least, tcp_queued(tc)) : 0;
        WRITE_ONCE(tc->snd_most, tc->send_share);
        conn_slow_flow(tc);
        if (g != NULL) {
                g->members++;
                g->opening += tc->acc_state == ACC_HALF_OPEN;
                g->held += tc->group_share;
                g->queued += tc->send_share;
        }
        rcvbuf_size(tc, tc->rcv_size);
        pace_by_group(t, g, tc);
}

void group_recover(struct tcp *t)
{
        for (uint32_t i = 1; i < TCP_GROUPS; i++) {
                struct tcp_group *g = group_at(t, i);
                g->members = g->listeners = g->waiting = g->opening = 0;
                g->held = g->queued = 0;
        }
        for (uint32_t i = 1; i < t->sh->listeners.fresh; i++)
                if (tcp_listener_at(t, i)->live && tcp_listener_at(t, i)->group != 0)
                        group_at(t, tcp_listener_at(t, i)->group)->listeners++;
        for_each_conn (t, tc)
                recover_conn(t, tc);
        for_each_conn (t, tc)
                if (tc->send_share != 0)
                        tcp_group_look(t, tc);
}

void tcp_group_check(const struct tcp *t, uint32_t group)
{
        const struct tcp_group *g = group_at(t, group);
        uint32_t members = 0, waiting = 0, opening = 0;
        uint64_t held = 0, queued = 0, kept;

        for_each_member(t, group, tc)
        {
                members++;
                waiting += tc->group_due != 0;
                opening += tc->acc_state == ACC_HALF_OPEN;
                assert(!tc->group_paced == (limits_of(g)->rate == 0));
                held += tc->group_share;
                assert((tc->group_share != 0) == is_bounded(g));
                assert(!is_bounded(g) || tcp_promised(tc) <= tc->group_share);
                assert(!is_bounded(g) || tc->rcv_limit <= tc->group_share);
                queued += tc->send_share;
                assert(tc->send_share ==
                       (bounds_sending(g) ? MAX(limits_of(g)->least, tcp_queued(tc)) : 0));
                assert((tc->snd_most != 0) == bounds_sending(g));
                assert(!bounds_sending(g) || tc->state == TCPS_CLOSED || tc->flags & TCF_SND_FULL ||
                       sndbuf_writable(t, tc));
        }
        assert(members == g->members && waiting == g->waiting && opening == g->opening);
        assert(held == g->held && queued == g->queued);
        kept = (uint64_t)(limits_of(g)->members - members) * limits_of(g)->least;
        assert(!is_bounded(g) || held + kept <= limits_of(g)->receive);
        assert(!bounds_sending(g) || queued + kept <= limits_of(g)->send);
}
