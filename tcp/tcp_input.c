/*
 * A segment arrives: RFC 9293 §3.10.7, in its order.
 *
 *   tcp_rx() -> demux -> tcp_input() -> predicted: ack_fast(), rcvbuf_append()
 *                                    -> input_syn_sent()        §3.10.7.3
 *                                    -> input_synchronized()    §3.10.7.4: seq, rst, syn, ack,
 *                                                               urg, text, fin
 *                     -> listen_input()                         §3.10.7.2
 *                     -> output_refuse()                        §3.10.7.1
 *
 * Nothing is sent here: what is owed is noted in tc->owed, and the stack is told by t->touched.
 */
#include <errno.h>

#include "ip/ip.h"
#include "base/checksum.h"
#include "base/planted.h"
#include "tcp/tcp_answers.h"
#include "tcp/tcp_conn.h"
#include "tcp/tcp_ecn.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_loss.h"
#include "tcp/tcp_recv.h"
#include "tcp/tcp_send.h"

#define PAWS_IDLE_S (24u * 24 * 3600) /* RFC 7323 §5.5 */

/* ---- header prediction ---- */

static inline bool predicted(const struct tcp_conn *tc, const struct tcp_seg *seg)
{
        return (tc->slow == 0 || conn_is_only_watched(tc, seg->wnd)) &&
               (seg->flags & ~TCP_PSH) == TCP_ACK && seg->seq == tc->rcv_nxt && seg->nsack == 0 &&
               seg->ecn != IP_ECN_CE && seg->ack - tc->snd_una <= tc->snd_nxt - tc->snd_una &&
               seg->len <= tc->rcv_adv - tc->rcv_nxt && seg->has_ts == tc->ts_ok &&
               (!seg->has_ts || (int32_t)(seg->tsval - tc->ts_recent) >= 0);
}

/* RFC 7323 §4.3: only a segment that covers what was last acknowledged sets TS.Recent. */
static void note_timestamp(struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        if (seq_gt(seg->seq, tc->last_ack_sent))
                return;
        tc->ts_recent = seg->tsval;
        tc->ts_recent_s = (uint32_t)(now / NS_PER_S);
}

static bool payload_right(const struct tcp_seg *seg)
{
        return !seg->unsummed || csum_finish(csum_partial(seg->inl, seg->len, seg->sum)).raw == 0;
}

/* An ESTABLISHED connection, the very next segment, nothing unusual anywhere. It may be unsummed,
 * so the payload comes first: what is wrong changes nothing. */
static bool input_predicted(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg,
                            nstime now)
{
        bool took = false;

        if (seg->len != 0 && unlikely(!rcvbuf_append(t, tc, seg, 0, seg->len, &took))) {
                count_drop(t->cnt, payload_right(seg) ? DROP_TCP_NO_MEMORY : DROP_TCP_CHECKSUM);
                return false;
        }
        if (seg->has_ts)
                note_timestamp(tc, seg, now);
        if (unlikely(seg->ecn != 0) && tc->flags & TCF_ECN)
                ecn_input(t, tc, seg, now);
        if (seg->len != 0) {
                WRITE_ONCE(tc->rcv_nxt, tc->rcv_nxt + seg->len);
                tc->bytes_received += seg->len;
                tc->events |= TCP_EV_READABLE;
                delack_owe(tc, seg, seg->len, now);
        }
        tc->snd_wnd = (uint32_t)seg->wnd << tc->snd_wscale;
        tc->snd_wl1 = seg->seq;
        tc->snd_wl2 = seg->ack;
        if (unlikely(tc->snd_wnd > tc->max_wnd))
                tc->max_wnd = tc->snd_wnd;
        if (seg->ack != tc->snd_una)
                ack_fast(t, tc, seg->ack, now);
        else if (unlikely(tc->rtx_kind == RTX_PERSIST) && tc->snd_wnd != 0)
                timer_arm_rtx(tc, now);
        return took;
}

/* ---- first: sequence ---- */

static uint32_t seg_space(const struct tcp_seg *seg)
{
        return seg->len + !!(seg->flags & TCP_SYN) + !!(seg->flags & TCP_FIN);
}

/* Older than what was seen, and not because the clock wrapped in an idle time. */
static bool is_older(const struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        return (int32_t)(seg->tsval - tc->ts_recent) < 0 &&
               (uint32_t)(now / NS_PER_S) - tc->ts_recent_s < PAWS_IDLE_S;
}

/* A duplicate acknowledgement that others have overtaken, within a retransmission timeout of the
 * peer's clock, which is taken for one of milliseconds. It says nothing that could do harm, and its
 * SACK blocks say what has arrived (Linux's tcp_disordered_ack()). */
static bool is_overtaken_ack(const struct tcp_conn *tc, const struct tcp_seg *seg)
{
        return seg->flags & TCP_ACK && seg_space(seg) == 0 && seg->seq == tc->rcv_nxt &&
               seg->ack == tc->snd_una && (uint32_t)seg->wnd << tc->snd_wscale == tc->snd_wnd &&
               tc->ts_recent - seg->tsval <= tc->rto / NS_PER_MS;
}

/* RFC 7323 §5.3 R1. */
static bool paws_rejects(const struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        return tc->ts_ok && seg->has_ts && !(seg->flags & TCP_RST) && is_older(tc, seg, now) &&
               !is_overtaken_ack(tc, seg);
}

/* Table 6 of RFC 9293. In TIME-WAIT the FIN has said that nothing more comes. */
static bool in_window(const struct tcp_conn *tc, const struct tcp_seg *seg)
{
        uint32_t wnd = tc->state == TCPS_TIME_WAIT ? 0 : tc->rcv_adv - tc->rcv_nxt,
                 space = seg_space(seg);
        uint32_t first = seg->seq - tc->rcv_nxt, last = seg->seq + space - 1 - tc->rcv_nxt;

        if (wnd == 0)
                return seg->seq ==
                       /* Data is not taken, but ACK, URG and RST are valid (MUST-66). */
                       tc->rcv_nxt;
        return first < wnd || (space != 0 && last < wnd);
}

/* What is repeated until it is acknowledged has its answer; so has a SYN, but from nobody who is
 * still in this connection. */
static bool is_repeated(const struct tcp_seg *seg)
{
        return seg->len != 0 || seg->flags & TCP_FIN;
}

static void refuse_seq(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, enum drop why,
                       nstime now)
{
        count_drop(t->cnt, why);
        if (seg->flags & TCP_RST)
                return;
        if (seg->len != 0 && seq_leq(seg->seq + seg->len, tc->rcv_nxt))
                sack_note_dup(tc, seg->seq, seg->seq + seg->len); /* RFC 2883 §4.1 */
        if (is_repeated(seg) || !output_answers_too_often(tc, now))
                tc->owed |= OWE_ACK;
        if ((tc->state == TCPS_SYN_RECEIVED || conn_unconfirmed(tc)) && seg->flags & TCP_SYN &&
            seg->seq == tc->irs) {
                ecn_syn_again(tc, seg);
                tc->owed |= OWE_SYN; /* our SYN-ACK was lost */
                tc->retrans++;
        }
        if (tc->state == TCPS_TIME_WAIT && seg->flags & TCP_FIN)
                conn_enter_time_wait(t, tc, now); /* our last ACK was lost: 2 MSL from now */
}

/* RFC 7323 §3.2: once agreed upon they are in every segment but a RST. A SYN begins anew, and
 * is challenged. */
static bool lacks_timestamp(const struct tcp_conn *tc, const struct tcp_seg *seg)
{
        return tc->ts_ok && !seg->has_ts && !(seg->flags & (TCP_RST | TCP_SYN));
}

static bool check_seq(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        if (lacks_timestamp(tc, seg)) {
                count_drop(t->cnt, DROP_TCP_NO_TIMESTAMP);
                return false;
        }
        if (paws_rejects(tc, seg, now)) {
                refuse_seq(t, tc, seg, DROP_TCP_PAWS, now);
                return false;
        }
        if (!in_window(tc, seg)) {
                bool old = seq_lt(seg->seq, tc->rcv_nxt);
                refuse_seq(t, tc, seg, old ? DROP_TCP_OLD_DUPLICATE : DROP_TCP_OUT_OF_WINDOW, now);
                return false;
        }
        return true;
}

/* ---- second: RST ---- */

/* The error that the application is told, as Linux's tcp_reset(). */
static int reset_error(const struct tcp_conn *tc)
{
        switch (tc->state) {
        case TCPS_SYN_SENT:
                return ECONNREFUSED;
        case TCPS_SYN_RECEIVED:
                return tc->flags & TCF_ACTIVE ? ECONNREFUSED : 0;
        case TCPS_CLOSE_WAIT:
                return EPIPE;
        case TCPS_TIME_WAIT:
                return 0;
        default: /* that the peer has ended too does not say that it has what was sent */
                return ECONNRESET;
        }
}

/* RFC 5961 §3.2: at the edge it counts, inside the window it is answered, outside it never came
 * here. In TIME-WAIT, too, where the edge is the only place: RFC 9293 §3.10.7.4, and Linux
 * (tcp_rfc1337 = 0). RFC 1337 §3 (F1) would ignore it there, as a peer may make it of our answer to
 * an old segment. That is no standard, and a peer that resets has more likely begun anew. */
static bool check_rst(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        if (!(seg->flags & TCP_RST))
                return true;
        if (seg->seq != tc->rcv_nxt) {
                count_drop(t->cnt, DROP_TCP_BAD_RST);
                output_challenge(t, tc, now);
                return false;
        }
        count(t->cnt, COUNT_TCP_RST_IN);
        if (conn_unconfirmed(tc))
                fastopen_reset(t, tc, now);
        conn_done(t, tc, reset_error(tc));
        return false;
}

/* ---- fourth: SYN (third is security, which nobody uses) ---- */

static bool check_syn(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        if (!(seg->flags & TCP_SYN))
                return true;
        count_drop(t->cnt, DROP_TCP_BAD_SYN);
        output_challenge(t, tc, now); /* RFC 5961 §4.2 */
        return false;
}

/* ---- fifth: ACK ---- */

/* TCP_DEFER_ACCEPT, as Linux: the ACK alone is not taken for the end of the handshake while the
 * time runs. */
static bool still_deferred(const struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        return tc->opts.defer_accept_s != 0 && tc->acc_state == ACC_HALF_OPEN && seg->len == 0 &&
               !(tc->flags & TCF_COOKIE) && !(seg->flags & TCP_FIN) &&
               now - tc->stalled_at < tc->opts.defer_accept_s * NS_PER_S;
}

/* SYN-RECEIVED: the handshake ends, or the ACK is none of ours. */
static bool end_handshake(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        if (seq_leq(seg->ack, tc->snd_una) || seq_gt(seg->ack, tc->snd_nxt)) {
                output_refuse(t, &tc->tuple, seg);
                return false;
        }
        if (still_deferred(tc, seg, now)) {
                tc->snd_wl2 = seg->ack; /* it came: expire_syn() */
                return false;
        }
        if (!listen_room(t, tc)) {
                count_drop(t->cnt, DROP_TCP_BACKLOG);
                return false;
        }
        open_established(t, tc, now);
        if (unlikely(tc->snd_head != 0))
                fastopen_syn_acked(t, tc, seg->ack, now);
        tc->snd_wnd = conn_peer_window(tc, (uint32_t)seg->wnd << tc->snd_wscale);
        tc->snd_wl1 = seg->seq;
        tc->snd_wl2 = seg->ack;
        tc->max_wnd = tc->snd_wnd;
        listen_established(t, tc);
        return true;
}

static bool process_ack(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        if (!(seg->flags & TCP_ACK)) {
                count_drop(t->cnt, DROP_TCP_NO_ACK);
                return false;
        }
        if (tc->state == TCPS_SYN_RECEIVED && !end_handshake(t, tc, seg, now))
                return false;
        if (conn_unconfirmed(tc) && !fastopen_confirmed(t, tc, seg, now))
                return false;
        if (tc->state != TCPS_TIME_WAIT && !ack_input(t, tc, seg, now))
                return false;
        if (tc->ts_ok && seg->has_ts && !is_older(tc, seg, now))
                /* Not before: who cannot guess the ACK must not set the clock (as Linux). */
                note_timestamp(tc, seg, now);
        return tc->state == TCPS_TIME_WAIT || close_fin_acked(t, tc, now);
}

/* ---- sixth: URG ---- */

static bool takes_text(const struct tcp_conn *tc)
{
        return tc->state == TCPS_ESTABLISHED || tc->state == TCPS_FIN_WAIT_1 ||
               tc->state == TCPS_FIN_WAIT_2;
}

/* RCV.UP only moves ahead. The pointer is one past the urgent byte (MUST-62, RFC 6093). */
static void process_urg(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg)
{
        uint32_t up = seg->seq + seg->urg;

        if (likely(!(seg->flags & TCP_URG)) || seg->urg == 0 || !takes_text(tc))
                return;
        if (seq_leq(up, tc->rcv_nxt - tc->rcv_unread) ||
            (tc->urg_state != URG_NONE && seq_leq(up, tc->rcv_up)))
                return;
        if (seq_leq(up, tc->rcv_nxt))
                return; /* its byte was read over before */
        WRITE_ONCE(tc->rcv_up, up);
        WRITE_ONCE(tc->urg_state, URG_ANNOUNCED);
        tc->slow |= SLOW_URG;
        conn_raise(t, tc, TCP_EV_URGENT);
}

/* The urgent byte came with this text: kept aside, whether or not it also is read in line. */
static void catch_urgent(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg)
{
        uint32_t at = tc->rcv_up - 1 - seg->seq;

        if (tc->urg_state != URG_ANNOUNCED || at >= seg->len)
                return;
        tc->urg_byte =
                seg->inl ? seg->inl[at] : frame_addr(t->frames, seg->data.id)[seg->data.off + at];
        WRITE_ONCE(tc->urg_state, URG_HERE);
        conn_raise(t, tc, TCP_EV_URGENT | TCP_EV_READABLE);
}

/* ---- seventh: text ---- */

struct text { /* the part of a segment that is new and inside the window */
        uint32_t seq, skip, len;
        bool fin;
};

static struct text trim(struct tcp_conn *tc, const struct tcp_seg *seg)
{
        struct text x = {seg->seq, 0, seg->len, seg->flags & TCP_FIN};
        uint32_t end = seg->seq + seg->len;

        if (seq_lt(x.seq, tc->rcv_nxt)) {
                x.skip = MIN(tc->rcv_nxt - x.seq, x.len);
                x.fin = x.fin && seq_geq(end, tc->rcv_nxt);
                if (x.skip != 0)
                        sack_note_dup(tc, x.seq, x.seq + x.skip);
                x.seq = tc->rcv_nxt;
                x.len -= x.skip;
        }
        if (x.len != 0 && CHECKED(seq_gt(end, tc->rcv_adv))) {
                x.len -= end - tc->rcv_adv;
                x.fin = false;
        }
        return x;
}

/*
 * The application will not read it, and must not pretend that it does (RFC 9293 §3.6.1, RFC 1122
 * §4.2.2.13). Before it has said that it will not send either, as Linux: shutdown(SHUT_RD) makes
 * reads find the end, and what comes all the same is received.
 */
static bool nobody_reads(const struct tcp_conn *tc)
{
        return tc->shut & SHUT_RCV && tc->state != TCPS_ESTABLISHED;
}

/* The reset is at the number that the peer waits for, whatever of ours was lost (RFC 5961 §3.2).
 * Where nothing is lost, no reset may be either: it is owed until it has left. */
static void refuse_text(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg)
{
        if (tc->link.lossless) {
                conn_reset(t, tc, ECONNRESET);
        } else {
                output_refuse(t, &tc->tuple, seg);
                conn_done(t, tc, ECONNRESET);
        }
}

static bool take_in_order(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg,
                          const struct text *x, bool *took, nstime now)
{
        bool filled = tc->ooo_head != 0;

        if (!rcvbuf_append(t, tc, seg, x->skip, x->len, took)) {
                /* The next bytes are worth more than those beyond a gap (RFC 2018 §8). */
                reass_purge(t, tc);
                if (!rcvbuf_append(t, tc, seg, x->skip, x->len, took)) {
                        count_drop(t->cnt, DROP_TCP_NO_MEMORY);
                        return false;
                }
        }
        WRITE_ONCE(tc->rcv_nxt, tc->rcv_nxt + x->len);
        tc->bytes_received += x->len;
        tc->events |= TCP_EV_READABLE;
        if (filled) {
                tc->owed |= OWE_ACK; /* RFC 5681 §4.2: when a gap is filled, at once */
                tc->gap_acks = 0;
        }
        delack_owe(tc, seg, x->len, now);
        return true;
}

static void take_beyond_gap(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg,
                            const struct text *x, bool *took, nstime now)
{
        delack_owe_gap(tc, seg, now);
        if (!reass_insert(t, tc, seg, x->seq, x->skip, x->len, x->fin, took))
                count_drop(t->cnt, DROP_TCP_NO_MEMORY);
}

static void process_fin(struct tcp *t, struct tcp_conn *tc, nstime now);

static bool process_text(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        struct text x = trim(tc, seg);
        bool took = false;

        if (!takes_text(tc) || (x.len == 0 && !x.fin)) {
                if (seg->len != 0 || (seg->flags & TCP_FIN))
                        tc->owed |= OWE_ACK;
                return false;
        }
        if (x.len != 0 && nobody_reads(tc)) {
                count_drop(t->cnt, DROP_TCP_AFTER_CLOSE);
                refuse_text(t, tc, seg);
                return false;
        }
        if (x.seq != tc->rcv_nxt) {
                catch_urgent(t, tc, seg);
                take_beyond_gap(t, tc, seg, &x, &took, now);
                return took;
        }
        if (x.len != 0) {
                catch_urgent(t, tc, seg);
                if (!take_in_order(t, tc, seg, &x, &took, now))
                        return false;
        }
        x.fin |= reass_drain(t, tc);
        if (x.fin)
                process_fin(t, tc, now);
        return took;
}

/* ---- eighth: FIN ---- */

static void process_fin(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        tc->fin_end = tc->rcv_nxt + 1;
        if (seq_gt(tc->fin_end, tc->rcv_adv)) /* it needs no room: a closed window takes it */
                WRITE_ONCE(tc->rcv_adv, tc->fin_end);
        store_order();
        conn_flag(tc, TCF_FIN_RCVD);
        store_order();
        WRITE_ONCE(tc->rcv_nxt, tc->fin_end);
        conn_shut(tc, SHUT_RCV);
        delack_owe_end(tc, now);
        reass_purge(t, tc);
        group_ends(t, tc);
        close_fin_received(t, tc, now);
        conn_raise(t, tc, TCP_EV_READABLE | TCP_EV_END);
}

/* The peer has closed: what is in flight to it is refused, too. */
static void note_closed(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg)
{
        if (seg->urg != SEG_CLOSED || seg->flags & TCP_URG || !tc->link.lossless)
                return;
        tc->slow |= SLOW_REFUSED;
        tcp_refuse_sent(t, tc);
}

static bool input_synchronized(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg,
                               nstime now)
{
        bool took;

        if (!check_seq(t, tc, seg, now) || /* first  */
            !check_rst(t, tc, seg, now) || /* second */
            !check_syn(t, tc, seg, now) || /* fourth */
            !process_ack(t, tc, seg, now)) /* fifth  */
                return false;
        if (unlikely(tc->flags & TCF_ECN))
                ecn_input(t, tc, seg, now);
        process_urg(t, tc, seg);              /* sixth  */
        took = process_text(t, tc, seg, now); /* seventh, eighth */
        if (unlikely(seg->urg != 0))
                note_closed(t, tc, seg);
        return took;
}

/* ---- SYN-SENT, RFC 9293 §3.10.7.3 ---- */

static bool check_ack_of_syn(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg)
{
        if (!(seg->flags & TCP_ACK) ||
            (seq_gt(seg->ack, tc->iss) && seq_leq(seg->ack, tc->snd_nxt)))
                return true;
        count_drop(t->cnt, DROP_TCP_BAD_ACK);
        if (!(seg->flags & TCP_RST))
                output_refuse(t, &tc->tuple, seg);
        return false;
}

/* The SYN has been counted. */
static struct tcp_seg without_syn(const struct tcp_seg *seg)
{
        struct tcp_seg s = *seg;

        s.flags &= (uint8_t) ~(TCP_SYN | TCP_ECE | TCP_CWR);
        s.seq++;
        return s;
}

/* It is taken from the sixth step on. */
bool input_syn_text(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *syn, nstime now)
{
        struct tcp_seg rest = without_syn(syn);

        process_urg(t, tc, &rest);
        return process_text(t, tc, &rest, now);
}

static bool input_syn_ack(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        if (unlikely(tc->fastopen != 0))
                fastopen_answered(t, tc, seg, now);
        open_established(t, tc, now);
        if (unlikely(tc->snd_head != 0))
                fastopen_syn_acked(t, tc, seg->ack, now);
        tc->owed |= OWE_ACK;
        conn_raise(t, tc, TCP_EV_CONNECTED | TCP_EV_WRITABLE);
        return input_syn_text(t, tc, seg, now);
}

static bool input_syn_sent(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg,
                           nstime now)
{
        if (!check_ack_of_syn(t, tc, seg))
                return false;
        if (seg->flags & TCP_RST) {
                if (!(seg->flags & TCP_ACK)) {
                        count_drop(t->cnt, DROP_TCP_BAD_RST);
                        return false;
                }
                count(t->cnt, COUNT_TCP_RST_IN);
                if (!ecn_syn_refused(tc))
                        conn_done(t, tc, ECONNREFUSED);
                return false;
        }
        if (!(seg->flags & TCP_SYN))
                return false;
        open_learn_peer(tc, seg, now);
        if (seg->flags & TCP_ACK)
                return input_syn_ack(t, tc, seg, now);
        /* Simultaneous open: figure 8; text and FIN come again. */
        tcp_set_state(t, tc, TCPS_SYN_RECEIVED);
        tc->owed |= OWE_SYN;
        return false;
}

static bool input_slow(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        struct tcp_seg stripped;
        bool took;

        switch (tc->state) {
        case TCPS_CLOSED:
                output_refuse(t, &tc->tuple, seg);
                return false;
        case TCPS_SYN_SENT:
                return input_syn_sent(t, tc, seg, now);
        case TCPS_SYN_RECEIVED: /* simultaneous open: the peer's SYN again, now with the ACK of ours
                                 */
                if ((seg->flags & (TCP_SYN | TCP_ACK)) == (TCP_SYN | TCP_ACK) &&
                    seg->seq == tc->irs) {
                        stripped = without_syn(seg);
                        took = input_synchronized(t, tc, &stripped, now);
                        if (tc->live && tc->snd_wl1 == stripped.seq)
                                /* RFC 7323 §2.2: never scaled in a SYN. */
                                tc->snd_wnd = tc->max_wnd = seg->wnd;
                        return took;
                }
                return input_synchronized(t, tc, seg, now);
        default:
                return input_synchronized(t, tc, seg, now);
        }
}

bool tcp_input(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        bool took;

        tc->segs_in++;
        tc->last_received = now;
        took = likely(predicted(tc, seg)) ? input_predicted(t, tc, seg, now)
                                          : input_slow(t, tc, seg, now);
        if (likely(tc->live))
                touch(t, tc);
        return took;
}

/* RFC 6191 §2 and RFC 9293 §3.6.1: a SYN that is certainly newer ends TIME-WAIT. Timestamps decide
 * where both have them and they differ: an older one is of an older SYN, whatever its number. */
static bool reuses_time_wait(const struct tcp_conn *tc, const struct tcp_seg *seg)
{
        if (tc->state != TCPS_TIME_WAIT || (seg->flags & (TCP_SYN | TCP_ACK | TCP_RST)) != TCP_SYN)
                return false;
        if (tc->link.lossless)
                return true; /* no old duplicate can exist: in order, nothing repeated */
        if (tc->ts_ok && seg->has_ts && seg->tsval != tc->ts_recent)
                return (int32_t)(seg->tsval - tc->ts_recent) > 0;
        return seq_gt(seg->seq, tc->rcv_nxt);
}

/* A SYN that was answered before it came here was answered before there was this connection (its
 * ends are counted, struct tcp_answers): one like it, or an older one, lay here unread. The peer
 * has the number of the answer, and ours comes to it too late. */
static bool was_answered_before(struct tcp *t, const struct tcp_conn *tc, const struct tcp_seg *seg)
{
        struct tcp_answer a;

        if (tc->state != TCPS_SYN_RECEIVED ||
            (seg->flags & (TCP_SYN | TCP_ACK | TCP_RST)) != TCP_SYN)
                return false;
        return tc->acc_state == ACC_HALF_OPEN && t->answers != NULL &&
               t->answers->took(t->arg, &tc->tuple, seg->seq, &a) && a.iss != tc->iss;
}

/* The SYN of a promise: its sender has begun anew, and nothing of what was between these ends is on
 * its way. */
static bool begins_anew(const struct tcp *t, const struct tcp_conn *tc, const struct tcp_seg *seg)
{
        return listen_is_promised(t, &tc->link, seg) && seg->seq != tc->irs;
}

/* RFC 5082: nobody who is farther away can send it with a larger TTL. Silently, as if there were no
 * such port or connection. */
static bool came_too_far(struct tcp *t, const struct tcp_seg *seg, const struct tcp_opts *o)
{
        if (likely(seg->ttl >= o->min_ttl))
                return false;
        count_drop(t->cnt, DROP_TCP_MIN_TTL);
        return true;
}

static bool rx_found(struct tcp *t, struct tcp_conn *tc, const struct tcp_tuple *tuple,
                     const struct tcp_link *link, const struct tcp_seg *seg, nstime now)
{
        struct tcp_listener *l;
        uint32_t min_iss = 0;

        if (likely(tc != NULL)) {
                if (t->busy != NULL)
                        *t->busy = tc->self;
                if (unlikely(tc->flags & TCF_MIN_TTL) && came_too_far(t, seg, &tc->opts))
                        return false;
                if (unlikely(was_answered_before(t, tc, seg))) {
                        conn_done(t, tc, 0);
                } else if (unlikely(begins_anew(t, tc, seg))) {
                        conn_done(t, tc, reset_error(tc));
                } else if (unlikely(reuses_time_wait(tc, seg))) {
                        min_iss = tc->snd_nxt + UINT16_MAX;
                        tc->delack_at = NSTIME_NEVER;
                        conn_end_time_wait(t, tc, COUNT_TCP_TIME_WAIT_REUSED);
                } else {
                        return tcp_input(t, tc, seg, now);
                }
        }
        if (!open_address_ok(tuple->laddr) || !open_address_ok(tuple->raddr) || tuple->rport == 0) {
                count_drop(t->cnt, DROP_TCP_BAD_ADDRESS); /* RFC 9293 MUST-57, -63: silently */
                return false;
        }
        l = demux_listener(t, tuple);
        if (unlikely(l != NULL && came_too_far(t, seg, &l->opts)))
                return false;
        if (l != NULL)
                return listen_input(t, l, tuple, link, seg, min_iss, now);
        count_drop(t->cnt, DROP_TCP_NO_LISTENER);
        if (unlikely(listen_is_promised(t, link, seg)))
                listen_break_promise(t, tuple, seg);
        else
                output_refuse(t, tuple, seg);
        return false;
}

bool tcp_rx(struct tcp *t, const struct tcp_tuple *tuple, const struct tcp_link *link,
            const struct tcp_seg *seg, nstime now)
{
        struct tcp_conn *tc = demux_find(t, tuple);
        struct tcp_seg summed;

        if (likely(!seg->unsummed || (tc != NULL && predicted(tc, seg))))
                return rx_found(t, tc, tuple, link, seg, now);
        if (!payload_right(seg)) {
                count_drop(t->cnt, DROP_TCP_CHECKSUM);
                return false;
        }
        summed = *seg;
        summed.unsummed = false;
        return rx_found(t, tc, tuple, link, &summed, now);
}
