/*
 * What to send next, if anything: the one place that builds segments for a connection.
 *
 *      tcp_output() -> output_special()     RST, SYN, probes, keepalive
 *                   -> output_lost()        retransmissions
 *                   -> output_new()         new data, FIN
 *                   -> output_ack()         nothing else would carry the ACK
 *      tcp_output_next()                    the same of new data again, for who sends runs
 */
#include "ip/ip.h"
#include "tcp/tcp_answers.h"
#include "tcp/tcp_cc.h"
#include "tcp/tcp_ecn.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_loss.h"
#include "tcp/tcp_rate.h"
#include "tcp/tcp_recv.h"
#include "tcp/tcp_send.h"

#define CORK_FOR (200 * NS_PER_MS) /* as Linux: a corked segment waits no longer */
/* RFC 5961 §7 has ten in 5 s for its default; Linux's tcp_invalid_ratelimit. */
#define ANSWER_MS 500u

/* ---- the window we offer ---- */

/* RFC 9293 §3.8.6.2.2: the right edge moves when it can move by a segment, as long as the peer's
 * are in fact, or half the buffer, and never back. */
static uint16_t offer_window(struct tcp_conn *tc)
{
        uint32_t cur = tc->rcv_adv - tc->rcv_nxt, free = rcvbuf_window(tc), wnd;

        if (free > cur && free - cur >= MIN(rcvbuf_limit(tc) / 2, tc->rcv_full)) {
                wnd = MIN(free >> tc->rcv_wscale, UINT16_MAX);
                if (wnd << tc->rcv_wscale > cur) {
                        cur = wnd << tc->rcv_wscale;
                        WRITE_ONCE(tc->rcv_adv, tc->rcv_nxt + cur);
                }
        }
        wnd = MIN(cur >> tc->rcv_wscale, UINT16_MAX);
        if (unlikely(wnd == 0))
                conn_flag(tc, TCF_WND_ZERO);
        else
                conn_unflag(tc, TCF_WND_ZERO);
        return (uint16_t)wnd;
}

/* The first time that the window can be wider than a SYN says, with half of that left, or more:
 * nobody waits for it yet. */
static bool is_first_window(const struct tcp_conn *tc, uint32_t cur)
{
        return cur > UINT16_MAX / 2 && tc->rcv_adv - tc->irs <= UINT16_MAX + 1u;
}

/* After the application read: tell the peer when the window is worth more and it may be waiting
 * for it. */
void output_window_update(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        uint32_t cur = tc->rcv_adv - tc->rcv_nxt, free, half, step;

        if (unlikely(tc->group != 0))
                group_read(t, tc, now);
        free = rcvbuf_window(tc);
        half = rcvbuf_limit(tc) / 2;
        step = MIN(half, 2u * tc->link.mss);
        if (tc->flags & TCF_WND_ZERO)
                step = MIN(half, (uint32_t)tc->link.mss);
        if (likely(free < cur + MAX(step, 1u) || cur > half))
                return;
        if (tc->state != TCPS_ESTABLISHED && tc->state != TCPS_FIN_WAIT_1 &&
            tc->state != TCPS_FIN_WAIT_2)
                return;
        if (is_first_window(tc, cur))
                delack_owe_window(tc, now);
        else
                tc->owed |= OWE_ACK;
        touch(t, tc);
}

/* ---- building ---- */

/* Blocks go along when they fit; a full segment has no room, and no need: data beyond a gap is
 * answered at once. */
static void add_sack(const struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg)
{
        uint32_t room = tc->snd_mss > seg->len ? tc->snd_mss - seg->len : 0;

        if (seg->len != 0 && room < 12)
                return;
        seg->nsack =
                (uint8_t)sack_write(t, tc, seg->sack, seg->len ? (room - 4) / 8 : TCP_MAX_SACK);
        conn_unflag(tc, TCF_DSACK);
}

/* The pointer is one past the urgent byte (MUST-62); a segment too far before it says so later. */
static void add_urgent(struct tcp_conn *tc, struct tcp_seg *seg)
{
        if (seq_leq(tc->snd_up, tc->snd_una)) {
                conn_unflag(tc, TCF_URG_OUT);
                return;
        }
        if (seq_gt(tc->snd_up, seg->seq) && tc->snd_up - seg->seq <= UINT16_MAX) {
                seg->flags |= TCP_URG;
                seg->urg = (uint16_t)(tc->snd_up - seg->seq);
        }
}

/* Fills in what every segment of a synchronised connection carries. */
static void begin(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, uint32_t seq,
                  uint32_t len, uint8_t flags, nstime now)
{
        seg->sport = tc->tuple.lport;
        seg->dport = tc->tuple.rport;
        seg->seq = seq;
        seg->ack = tc->rcv_nxt;
        seg->len = len;
        seg->wnd = offer_window(tc);
        seg->urg = 0;
        seg->flags = flags;
        seg->wscale = TCP_NO_WSCALE;
        seg->mss = 0;
        seg->sack_ok = false;
        seg->has_ts = tc->ts_ok;
        seg->nsack = 0;
        seg->ecn = 0;
        seg->inl = NULL;
        seg->data.id = 0;
        seg->unsummed = false;
        if (tc->ts_ok) {
                seg->tsval = conn_ts(tc, now);
                seg->tsecr = tc->ts_recent;
        }
        if (unlikely((tc->slow & SLOW_OOO) | (tc->flags & (TCF_DSACK | TCF_URG_OUT | TCF_ECN_ECHO |
                                                           TCF_ECN | TCF_ECN_ASKED)))) {
                if (tc->sack_ok && (tc->slow & SLOW_OOO || tc->flags & TCF_DSACK))
                        add_sack(t, tc, seg);
                if (tc->flags & TCF_URG_OUT)
                        add_urgent(tc, seg);
                if (tc->flags & TCF_ECN_ECHO && !(flags & TCP_RST))
                        seg->flags |= TCP_ECE;
                if (ecn_on_all(tc))
                        seg->ecn = IP_ECN_ECT0;
        }
        tc->last_ack_sent = tc->rcv_nxt;
        tc->owed &= (uint8_t)~OWE_ACK;
        tc->delack_at = NSTIME_NEVER;
        tc->segs_out++;
}

/* The sequence number of a segment without data. The peer takes SND.NXT, but while its window is
 * closed (RFC 9293 table 6) only its next number: a byte sent to probe the window does not count
 * until it is acknowledged. If the peer shrank its window below SND.NXT, send at the window's edge,
 * as Linux does. A difference below one window-scale unit is rounding: use SND.NXT. Linux's
 * tcp_acceptable_seq(). */
static uint32_t acceptable_seq(const struct tcp_conn *tc)
{
        uint32_t edge = tc->snd_una + tc->snd_wnd;

        if (unlikely(tc->snd_wnd == 0))
                return tc->snd_una;
        return likely(seq_geq(edge, tc->snd_nxt)) || tc->snd_nxt - edge < 1u << tc->snd_wscale
                       ? tc->snd_nxt
                       : edge;
}

/* The peer then knows what becomes of data that it sends, as if our reset had come at once: who
 * would send it may be busy. */
static void say_closed(const struct tcp_conn *tc, struct tcp_seg *seg)
{
        if (tc->link.lossless && tc->shut == SHUT_BOTH &&
            (tc->state == TCPS_FIN_WAIT_1 || tc->state == TCPS_FIN_WAIT_2) &&
            !(seg->flags & TCP_URG))
                seg->urg = SEG_CLOSED;
}

static void build_data(struct tcp *t, struct tcp_conn *tc, const struct tcp_txseg *s,
                       struct tcp_seg *seg, nstime now)
{
        begin(t, tc, seg, s->seq, s->len, TCP_ACK | s->ctl, now);
        seg->data = (struct buf){s->frame, s->off, s->len};
        tc->bytes_sent += s->len;
        if (unlikely(s->ctl & TCP_FIN))
                say_closed(tc, seg);
}

static bool output_ack(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, nstime now)
{
        begin(t, tc, seg, acceptable_seq(tc), 0, TCP_ACK, now);
        if (unlikely(tc->shut == SHUT_BOTH))
                say_closed(tc, seg);
        return true;
}

static void note_sent(struct tcp *t, struct tcp_conn *tc, struct tcp_txseg *s, nstime now)
{
        s->sent = tc->last_sent = now;
        if (unlikely(tc->stalled_at == 0))
                tc->stalled_at = now;
        if (unlikely(tc->pace.rate != 0))
                pace_sent(t, tc, s->len);
        if (unlikely(tc->flags & TCF_RATES))
                rate_sent(tc, s, now);
}

/* ---- new data ---- */

/* Nagle, with Minshall's amendment: only a small segment in flight holds a small one back
 * (RFC 9293 §3.7.4); and none while there is urgent data, as Linux. */
static bool small_in_flight(const struct tcp_conn *tc)
{
        return seq_gt(tc->snd_sml, tc->snd_una) && seq_leq(tc->snd_sml, tc->snd_nxt);
}

static bool held_back(struct tcp_conn *tc, const struct tcp_txseg *s, nstime now)
{
        if (s->len >= tc->snd_mss || s->next != 0 || s->ctl & TCP_FIN || tc->owed & OWE_PUSH)
                return false;
        if (tc->cork || tc->flags & TCF_MORE) {
                tc->cork_at = MIN(tc->cork_at, now + CORK_FOR);
                return true;
        }
        return !tc->nodelay && small_in_flight(tc) &&
               !(tc->flags & TCF_URG_OUT && seq_gt(tc->snd_up, tc->snd_una));
}

/* Returns true if it is our own limit that holds. */
static bool is_clamped(const struct tcp_conn *tc)
{
        return unlikely(tc->slow & SLOW_FLOW) && tc->opts.send_window != 0 &&
               tc->snd_wnd >= tc->opts.send_window;
}

/* RFC 9293 §3.8.6.2.1. Where nothing is lost the receiver is one of ours: it avoids silly windows
 * by itself, and a small one is what its application granted. */
static bool is_worth_sending(const struct tcp_conn *tc, uint32_t room)
{
        uint32_t widest = is_clamped(tc) ? tc->opts.send_window : tc->max_wnd;

        return room >= MIN(tc->snd_mss, MAX(widest / 2, 1u)) || tc->owed & OWE_PUSH ||
               tc->link.lossless;
}

/* The part of s that the peer's window takes: all, a part worth sending, or 0. */
static uint32_t fits_window(const struct tcp_conn *tc, const struct tcp_txseg *s)
{
        uint32_t room = tc->snd_una + tc->snd_wnd - s->seq;

        if ((int32_t)room <= 0)
                return 0;
        if (room >= txseg_space(s) || room == s->len)
                return MIN(room, txseg_space(s));
        return is_worth_sending(tc, room) ? room : 0;
}

static bool window_blocks(struct tcp_conn *tc, nstime now)
{
        conn_set_limit(tc, is_clamped(tc) ? TCP_LIM_CLAMP : TCP_LIM_RWND, now);
        if (flight(tc) == 0)
                timer_persist(tc, now);
        return false;
}

static bool cwnd_blocks(const struct tcp_conn *tc, const struct tcp_txseg *s)
{
        uint32_t pipe = pipe_bytes(tc);

        return pipe != 0 && pipe + s->len > tc->cwnd;
}

static bool pace_blocks(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        return tc->pace.rate != 0 && pace_waits(t, tc, now);
}

/* TCP_NOTSENT_LOWAT, opts.unsent_most: what leaves makes room for what may be written, before
 * anything of it is acknowledged. */
static void below_unsent_mark(struct tcp *t, struct tcp_conn *tc)
{
        if ((tc->opts.notsent_lowat | tc->opts.unsent_most) != 0)
                sndbuf_freed(t, tc);
}

/* The first unsent segment leaves: SND.NXT moves. */
static void send_next(struct tcp *t, struct tcp_conn *tc, struct tcp_txseg *s, struct tcp_seg *seg,
                      nstime now)
{
        bool first = flight(tc) == 0;

        if (first && tc->flags & TCF_RATES)
                cc_of(tc)->restart(tc, now);
        else if (first && !tc->link.lossless && now - tc->last_sent > tc->rto)
                tc->cwnd = MIN(tc->cwnd, cc_initial_window(tc)); /* RFC 5681 §4.1 */
        build_data(t, tc, s, seg, now);
        note_sent(t, tc, s, now);
        WRITE_ONCE(tc->snd_nxt, txseg_end(s));
        tc->snd_next = s->next;
        if (s->len < tc->snd_mss)
                tc->snd_sml = tc->snd_nxt;
        if (s->next == 0) {
                tc->owed &= (uint8_t)~OWE_PUSH;
                tc->cork_at = NSTIME_NEVER;
                conn_set_limit(tc, tc->flags & TCF_SND_FULL ? TCP_LIM_SNDBUF : TCP_LIM_APP, now);
        } else {
                conn_set_limit(tc, TCP_LIM_NONE, now);
        }
        if (tc->ca_state == CA_RECOVERY)
                tc->prr.out += s->len;
        if (first)
                timer_arm_rtx(tc, now);
        else if (!tc->link.lossless)
                timer_arm_probe(tc, now);
        if (unlikely(tc->flags & TCF_SND_FULL))
                below_unsent_mark(t, tc);
}

/* Larger than SND.MSS: a probe of the path, which waits until it can go whole; all else is cut. */
static bool may_be_large(struct tcp *t, struct tcp_conn *tc, struct tcp_txseg *s)
{
        if (path_is_probe(tc, s))
                return fits_window(tc, s) == txseg_space(s);
        return txseg_split(t, tc, s, tc->snd_mss);
}

static bool output_new(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, nstime now)
{
        struct tcp_txseg *s = txseg_at(t, tc->snd_next);
        uint32_t fits;

        if (unlikely(s->len > tc->snd_mss) && !may_be_large(t, tc, s))
                return window_blocks(tc, now);
        if (held_back(tc, s, now))
                return false;
        fits = fits_window(tc, s);
        if (unlikely(fits < txseg_space(s)) && (fits == 0 || !txseg_split(t, tc, s, fits)))
                return window_blocks(tc, now);
        if (unlikely(cwnd_blocks(tc, s))) {
                conn_set_limit(tc, TCP_LIM_CWND, now);
                return false;
        }
        if (unlikely(pace_blocks(t, tc, now)))
                return false;
        send_next(t, tc, s, seg, now);
        if (unlikely(tc->flags & TCF_ECN))
                ecn_mark(tc, seg);
        return true;
}

/* ---- retransmissions ---- */

static struct tcp_txseg *first_lost(const struct tcp *t, const struct tcp_conn *tc)
{
        for (uint32_t i = tc->snd_head; i != 0 && i != tc->snd_next; i = txseg_at(t, i)->next) {
                struct tcp_txseg *s = txseg_at(t, i);
                if ((s->marks & (TXS_LOST | TXS_RETX | TXS_SACKED)) == TXS_LOST)
                        return s;
        }
        return NULL;
}

/* Gathers lost bytes into as few segments as they fit in (RFC 9293 §3.8.1). A window, in bytes, of
 * segments of a few bytes each would be hundreds of packets at once; each queue on the way would
 * drop most of them, timeout after timeout. */
static void gather_lost(struct tcp *t, struct tcp_conn *tc, struct tcp_txseg *s)
{
        while (s->next != 0 && s->next != tc->snd_next) {
                const struct tcp_txseg *n = txseg_at(t, s->next);
                uint8_t marks = s->marks | n->marks;
                if ((n->marks & (TXS_LOST | TXS_RETX | TXS_SACKED)) != TXS_LOST ||
                    !txseg_merge(t, tc, s, tc->snd_mss))
                        return;
                s->marks = marks;
        }
}

static void resend(struct tcp *t, struct tcp_conn *tc, struct tcp_txseg *s, struct tcp_seg *seg,
                   nstime now)
{
        build_data(t, tc, s, seg, now);
        note_sent(t, tc, s, now);
        s->marks |= TXS_EVER_RETX;
        tc->retrans++;
        tc->bytes_retrans += s->len;
        count(t->cnt, COUNT_TCP_RETRANS);
        if (s->seq == tc->snd_una && tc->rtx_kind != RTX_REO)
                timer_arm_rtx(tc, now);
}

/* RFC 9293 SHLD-16: what is unacknowledged is sent again as far as the window goes, which may
 * have shrunk. */
static bool cut_to_window(struct tcp *t, struct tcp_conn *tc, struct tcp_txseg *s)
{
        uint32_t room = tc->snd_una + tc->snd_wnd - s->seq;

        if (room >= s->len || (int32_t)room <= 0)
                return (int32_t)room > 0;
        return txseg_split(t, tc, s, room);
}

static bool output_lost(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, nstime now)
{
        struct tcp_txseg *s;

        if (tc->flags & TCF_FRTO_NEW)
                return false;
        s = first_lost(t, tc);
        if (s == NULL)
                return false;
        if (s->len > tc->snd_mss && !txseg_split(t, tc, s, tc->snd_mss))
                return false;
        gather_lost(t, tc, s);
        if (!(tc->owed & OWE_FORCE) && pipe_bytes(tc) != 0 && pipe_bytes(tc) + s->len > tc->cwnd)
                return false;
        if (s->seq != tc->snd_una && seq_gt(txseg_end(s), tc->snd_una + tc->snd_wnd))
                return false;
        if (!(tc->owed & OWE_FORCE) && pace_blocks(t, tc, now))
                return false;
        if (!cut_to_window(t, tc, s))
                return false; /* closed: the timer probes */
        tc->owed &= (uint8_t)~OWE_FORCE;
        resend(t, tc, s, seg, now);
        undo_resent(tc, seg);
        s->marks |= TXS_RETX;
        tc->retx += txseg_space(s);
        tc->prr.out += s->len;
        return true;
}

/* ---- special ---- */

/* Adds the options of an answer or, before the peer has said anything, of a SYN of ours. */
static void syn_options(const struct tcp_conn *tc, struct tcp_seg *seg, bool answer)
{
        /* Never scaled: RFC 7323 §2.2. */
        seg->wnd = (uint16_t)MIN(rcvbuf_first_window(tc), UINT16_MAX);
        seg->mss = tc->opts.maxseg ? MIN(tc->opts.maxseg, tc->link.mss) : tc->link.mss;
        seg->wscale = !answer                  ? tc->syn_wscale
                      : tc->flags & TCF_WSCALE ? tc->rcv_wscale
                                               : TCP_NO_WSCALE;
        seg->sack_ok = answer ? tc->sack_ok : !tc->opts.no_sack;
        seg->has_ts = answer ? tc->ts_ok : !tc->opts.no_timestamps && !tc->link.lossless;
}

static void output_syn(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, nstime now)
{
        bool answer = tc->state != TCPS_SYN_SENT;

        if (unlikely(tc->flags & TCF_ANSWERED) && t->answers != NULL)
                t->answers->lost(t->arg, tc);
        begin(t, tc, seg, tc->iss, 0, TCP_SYN | (answer ? TCP_ACK : 0) | ecn_syn_flags(tc), now);
        seg->ack = answer ? tc->rcv_nxt : tc->irs; /* not 0: a promise (tcp_answers.h) */
        syn_options(tc, seg, answer);
        seg->tsval = conn_ts(tc, now);
        seg->tsecr = answer ? tc->ts_recent : 0;
        seg->nsack = 0;
        seg->fastopen = 0;
        if (unlikely(tc->fastopen != 0))
                fastopen_syn(t, tc, seg, now);
        tc->last_sent = now;
        tc->owed &= (uint8_t)~OWE_SYN;
        if (unlikely(!answer && tc->irs != 0)) {
                tc->last_sent = 0;
                open_established(t, tc, now);
                tc->last_sent = now;
                conn_raise(t, tc, TCP_EV_CONNECTED | TCP_EV_WRITABLE);
        } else if (tc->rtx_kind == RTX_NONE) {
                timer_arm_rtx(tc, now);
        }
}

void output_answered(struct tcp *t, struct tcp_conn *tc, nstime at, nstime now)
{
        struct tcp_seg gone;

        output_syn(t, tc, &gone, now);
        conn_flag(tc, TCF_ANSWERED);
        tc->last_sent = MIN(at, now);
        count(t->cnt, COUNT_TCP_OUT);
}

void tcp_answer_of(const struct tcp_conn *tc, struct tcp_seg *seg)
{
        *seg = (struct tcp_seg){.sport = tc->tuple.lport,
                                .dport = tc->tuple.rport,
                                .flags = TCP_SYN | TCP_ACK,
                                .seq = tc->iss,
                                .ack = tc->irs + 1};
        syn_options(tc, seg, true);
}

/* Asks the peer by a number that it has, without data: it must answer (RFC 9293 §3.8.4,
 * SHLD-12). */
static void output_question(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, nstime now)
{
        begin(t, tc, seg, tc->snd_una - 1, 0, TCP_ACK, now);
}

/*
 * RFC 9293 §3.8.6.1: the answer tells the window (MUST-36). The section speaks of a byte, old or
 * new; with nothing in flight Linux asks without one, which puts nothing out that the peer has to
 * throw away. Where nothing is lost a byte goes, and is taken with the first room that there is.
 */
static bool output_probe(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, nstime now)
{
        struct tcp_txseg *s;

        tc->owed &= (uint8_t)~OWE_PROBE;
        if (tc->snd_head == 0 || tc->rtx_kind != RTX_PERSIST)
                return false; /* the window opened before the probe could leave */
        s = txseg_at(t, tc->snd_head);
        if (tc->snd_head == tc->snd_next && tc->snd_wnd == 0 && !tc->link.lossless) {
                output_question(t, tc, seg, now);
                return true;
        }
        if (tc->snd_head == tc->snd_next) {
                nstime at;
                uint32_t fits = MAX(MIN(MIN(tc->snd_wnd, tc->snd_mss), txseg_space(s)), 1u);
                path_forget_probe(tc, now); /* it is cut */
                if (fits < txseg_space(s) && !txseg_split(t, tc, s, fits))
                        return false;
                at = tc->rtx_at;
                send_next(t, tc, s, seg, now);
                tc->rtx_kind = RTX_PERSIST;
                tc->rtx_at = at;
                return true;
        }
        begin(t, tc, seg, tc->snd_una, MIN(s->len, 1u), TCP_ACK | (s->len <= 1 ? s->ctl : 0), now);
        seg->data = (struct buf){seg->len ? s->frame : 0, s->off, seg->len};
        s->marks |= TXS_EVER_RETX;
        return true;
}

/* RFC 8985 §7.3: new data if there is some that may be sent, else the last segment again. */
static bool output_tlp(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, nstime now)
{
        uint32_t last = tc->snd_next ? txseg_at(t, tc->snd_next)->prev : tc->snd_tail;

        tc->owed &= (uint8_t)~OWE_TLP;
        if (flight(tc) == 0 || tc->ca_state >= CA_RECOVERY)
                return false;
        count(t->cnt, COUNT_TCP_TLP);
        tc->tlp.out = TLP_OUT;
        tc->tlp.sent = now;
        conn_unflag(tc, TCF_TLP_RETX);
        if (tc->snd_next != 0 &&
            fits_window(tc, txseg_at(t, tc->snd_next)) >= txseg_space(txseg_at(t, tc->snd_next))) {
                send_next(t, tc, txseg_at(t, tc->snd_next), seg, now);
                if (tc->flags & TCF_ECN)
                        ecn_mark(tc, seg);
                /* Alone and in order: some peers delay the ACK that we wait for, unless pushed. */
                seg->flags |= TCP_PSH;
        } else {
                if (last == 0)
                        return false;
                conn_flag(tc, TCF_TLP_RETX);
                resend(t, tc, txseg_at(t, last), seg, now);
        }
        tc->tlp.end = tc->snd_nxt;
        recovery_set_slow(tc);
        timer_arm_rtx(tc, now);
        return true;
}

static void output_keepalive(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, nstime now)
{
        tc->owed &= (uint8_t)~OWE_KEEP;
        output_question(t, tc, seg, now);
}

/* The last segment of a connection that is CLOSED; the record goes at the next call, or when
 * its time comes. */
static void output_rst(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, nstime now)
{
        begin(t, tc, seg, acceptable_seq(tc), 0, TCP_RST | TCP_ACK, now);
        tc->owed = 0;
        tc->slow_at = now;
        count(t->cnt, COUNT_TCP_RST_OUT);
}

static bool output_special(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, nstime now)
{
        if (tc->owed & OWE_RST) {
                output_rst(t, tc, seg, now);
                return true;
        }
        if (tc->owed & OWE_SYN) {
                output_syn(t, tc, seg, now);
                return true;
        }
        if (tc->owed & OWE_PROBE && output_probe(t, tc, seg, now))
                return true;
        if (tc->owed & OWE_TLP && output_tlp(t, tc, seg, now))
                return true;
        if (tc->owed & OWE_KEEP) {
                output_keepalive(t, tc, seg, now);
                return true;
        }
        return false;
}

/* A FIN that found no record when it was queued. */
static bool fin_missing(const struct tcp_conn *tc)
{
        return tc->flags & TCF_FIN_QUEUED && tc->snd_next == 0 && tc->snd_nxt == tc->snd_end;
}

bool tcp_output(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, nstime now)
{
        if (unlikely(tc->owed & OWE_SPECIAL) && output_special(t, tc, seg, now))
                return true;
        if (unlikely(tc->state < TCPS_ESTABLISHED)) {
                if (tc->state == TCPS_CLOSED && tc->live)
                        conn_reap(t, tc);
                else if (tc->state == TCPS_SYN_RECEIVED && tc->owed & OWE_ACK)
                        return output_ack(t, tc, seg, now);
                return false;
        }
        if (unlikely(tc->lost > tc->retx) && output_lost(t, tc, seg, now))
                return true;
        if (unlikely(fin_missing(tc)))
                sndbuf_queue_fin(t, tc);
        if (tc->snd_next != 0 && output_new(t, tc, seg, now))
                return true;
        if (tc->owed & OWE_ACK)
                return output_ack(t, tc, seg, now);
        return false;
}

/* Nothing is owed that would come first, or go along in a header. */
static bool says_the_same(const struct tcp_conn *tc)
{
        return tc->state >= TCPS_ESTABLISHED && tc->ca_state == CA_OPEN && tc->lost == 0 &&
               !(tc->owed & OWE_SPECIAL) && !(tc->slow & SLOW_OOO) &&
               !(tc->flags & (TCF_DSACK | TCF_URG_OUT | TCF_ECN_ECHO | TCF_ECN));
}

/* A full segment that is not the first in flight, has others behind it, and fits both windows. */
static bool goes_at_once(const struct tcp_conn *tc, const struct tcp_txseg *s)
{
        return s->next != 0 && s->len == tc->snd_mss && flight(tc) != 0 &&
               seq_leq(txseg_end(s), tc->snd_una + tc->snd_wnd) && !cwnd_blocks(tc, s);
}

/* As output_new() and send_next() for such a one. */
bool tcp_output_next(struct tcp *t, struct tcp_conn *tc, struct buf *data, uint8_t *flags,
                     nstime now)
{
        bool alone = flight(tc) <= tc->snd_mss;
        struct tcp_txseg *s;

        if (tc->snd_next == 0 || !says_the_same(tc) ||
            !goes_at_once(tc, s = txseg_at(t, tc->snd_next)) || pace_blocks(t, tc, now))
                return false;
        note_sent(t, tc, s, now);
        WRITE_ONCE(tc->snd_nxt, txseg_end(s));
        tc->snd_next = s->next;
        if (alone && !tc->link.lossless) /* else it is armed, for now */
                timer_arm_probe(tc, now);
        tc->segs_out++;
        tc->bytes_sent += s->len;
        if (unlikely(tc->flags & TCF_SND_FULL))
                below_unsent_mark(t, tc);
        *data = (struct buf){s->frame, s->off, s->len};
        *flags = s->ctl;
        return true;
}

/* ---- for nobody's connection ---- */

void output_refuse(struct tcp *t, const struct tcp_tuple *tuple, const struct tcp_seg *in)
{
        struct tcp_seg rst = {.sport = tuple->lport,
                              .dport = tuple->rport,
                              .flags = TCP_RST,
                              .wscale = TCP_NO_WSCALE};

        if (in->flags & TCP_RST)
                return;
        if (in->flags & TCP_ACK) {
                rst.seq = in->ack;
        } else {
                rst.flags |= TCP_ACK;
                rst.ack = in->seq + in->len + !!(in->flags & TCP_SYN) + !!(in->flags & TCP_FIN);
        }
        count(t->cnt, COUNT_TCP_RST_OUT);
        t->reply(t->arg, tuple, &rst);
}

void output_ack_now(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        struct tcp_seg ack;

        begin(t, tc, &ack, tc->snd_nxt, 0, TCP_ACK, now);
        t->reply(t->arg, &tc->tuple, &ack);
}

bool output_answers_too_often(struct tcp_conn *tc, nstime now)
{
        uint32_t ms = (uint32_t)(now / NS_PER_MS) | 1; /* 0: never */

        if (tc->answered_ms != 0 && ms - tc->answered_ms < ANSWER_MS)
                return true;
        tc->answered_ms = ms;
        return false;
}

void output_challenge(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        if (output_answers_too_often(tc, now)) {
                count_drop(t->cnt, DROP_TCP_CHALLENGE_RATE);
                return;
        }
        count(t->cnt, COUNT_TCP_CHALLENGE);
        tc->owed |= OWE_ACK;
}
