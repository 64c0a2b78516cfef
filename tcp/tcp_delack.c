/*
 * When data that came in order is acknowledged: RFC 9293 §3.8.6.3, RFC 5681 §4.2. What is out of
 * order, repeated, fills a gap is acknowledged at once, by whoever finds it (tcp_input.c).
 *
 *   the first segments of a connection    when the stack is about to wait, or after AT_ONCE:
 *                                         Linux's quick ACKs, but an answer that the application
 *                                         has ready carries it
 *   the end of the stream                 likewise: who is told of it closes, and the FIN carries
 *                                         it
 *   the end of one that was closed first  likewise, but for lossless links: nothing will carry it,
 *                                         but what the application does now goes first
 *   the first window that no SYN can say  likewise
 *   every second full-sized segment       at once: when the turn that took it off the queue is over
 *   what fills the window                 when it is read, or after READER
 *   less than that                        when the stack is about to wait, or after DELACK
 *   a segment of a train                  with others: see below
 *   where the application says so         so many bytes at once, fewer after DELACK: opts.ack_every
 *   a segment beyond a gap                at once, three times; then with others: delack_owe_gap()
 *
 * A sender that fills the path sends a train: full-sized segments with no pause as long as a round
 * trip. They come off the queue a few at a time, the fewer the faster we look. An acknowledgement
 * for each few of them is a packet that everything on the way back has to carry. Of a train
 * TRAIN_MOST bytes or a quarter of the window are acknowledged together. They are acknowledged at
 * the latest a quarter of a round trip, or TRAIN_HOLD, after the first of them. What is pushed is
 * acknowledged without waiting. A kernel whose driver merges segments (GRO, up to 64 KB) before TCP
 * counts them does the same; here nobody merges, so it is done by time.
 *
 * RFC 9293 SHLD-19 asks for an ACK at least every second full-sized segment. Against stretched ones
 * stand bursts and a slower start of the sender (RFC 2525 §2.13, RFC 5681 §4.2). So the rule is
 * kept at the start. After a gap, an idle time or a pause it is kept until TRAIN_BEGINS segments
 * have come without one: by then the sender is not waiting for us. Four acknowledgements a round
 * trip are left to clock it (as in TACK, SIGCOMM 2020). Where no round trip was measured there are
 * no trains.
 */
#include "tcp/tcp_conn.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_recv.h"

#define DELACK (40 * NS_PER_MS) /* RFC 1122 §4.2.3.2 allows 500 ms; Linux's minimum */
/* For an application that is at work; a segment of its own costs as much as one of data. */
#define AT_ONCE      NS_PER_MS
#define READER       (2 * NS_PER_MS) /* for a reader of what fills the window */
#define TRAIN_BEGINS 128u            /* full-sized segments without a pause */
#define TRAIN_MOST   65536u          /* bytes; as much as GRO merges */
/* A quarter of less is no time that a timer could measure. */
#define TRAIN_RTT (40 * NS_PER_US)
/* longest: TRAIN_MOST at a quarter of a gigabit per second. */
#define TRAIN_HOLD (2 * NS_PER_MS)

#define GAP_AT_ONCE  3  /* duplicate ACKs: what fast retransmit counts (RFC 5681 §3.2) */
#define GAP_TOGETHER 44 /* segments, and NS_PER_MS: Linux's tcp_comp_sack_nr and _delay_ns */
#define GAP_LEAST    (20 * NS_PER_US) /* less is no time that a timer could measure */

/* A lower bound of the round trip now, queues included. The segment echoes the newest of our
 * timestamps that its sender had seen; a clock of milliseconds may be one ahead. 0: not known. */
static nstime round_trip(const struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        nstime least = tc->min_rtt != NSTIME_NEVER ? tc->min_rtt : 0;
        int32_t ms = (int32_t)(conn_ts(tc, now) - seg->tsecr) - 1;

        return tc->ts_ok && ms > 0 ? MAX(least, MIN(ms, 1000) * NS_PER_MS) : least;
}

/* Counts the segment if it is one of a train; else the train is over. True: it is long enough. */
static bool in_train(struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        uint32_t at = rxseg_time(now);
        bool paused = at - tc->train_at >= tc->train_rtt;

        tc->train_at = at;
        tc->train_rtt = (uint16_t)MIN(rxseg_time(round_trip(tc, seg, now)), UINT16_MAX);
        if (paused || tc->slow & ~(SLOW_LOSS | SLOW_NOSACK | SLOW_FLOW) || seg->len < tc->rcv_full)
                tc->train = 0;
        tc->train += tc->train < TRAIN_BEGINS;
        return tc->train == TRAIN_BEGINS;
}

/* The ACK for `owed` bytes waits for more of the train. */
static bool waits_for_more(struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t owed,
                           nstime now)
{
        if (!in_train(tc, seg, now) || seg->flags & TCP_PSH || tc->opts.quickack ||
            tc->train_rtt < rxseg_time(TRAIN_RTT) ||
            owed >= MIN(TRAIN_MOST, (tc->rcv_adv - tc->last_ack_sent) / 4))
                return false;
        conn_flag(tc, TCF_TRAIN); /* a quarter of 1,024 ns is 1 << 8 */
        tc->delack_at = MIN(tc->delack_at, now + MIN((nstime)tc->train_rtt << 8, TRAIN_HOLD));
        return true;
}

/* Returns true if the sender waits for the reader: less than a segment of the window is left, and
 * there is something to read. The reader moves the window, and with it comes the ACK. As Linux's
 * __tcp_ack_snd_check(), which asks whether the right edge would move. A window that is closed is
 * said at once. */
static bool waits_for_reader(const struct tcp_conn *tc)
{
        uint32_t left = tc->rcv_adv - tc->rcv_nxt;

        return !tc->link.lossless && tc->rcv_unread != 0 && left != 0 && left < tc->rcv_full;
}

static nstime delay(const struct tcp_conn *tc)
{
        nstime ours = waits_for_reader(tc) ? READER : DELACK,
               most = tc->opts.ack_delay_us * NS_PER_US;

        return unlikely(most != 0) ? MIN(ours, most) : ours;
}

/* As the application says (opts.ack_every), but half a window is not kept back. */
static void owe_by_bytes(struct tcp_conn *tc, uint32_t owed, nstime now)
{
        if (owed >= MIN(tc->opts.ack_every, (tc->rcv_adv - tc->last_ack_sent) / 2) ||
            tc->opts.quickack) {
                conn_unflag(tc, TCF_TRAIN);
                tc->owed |= OWE_ACK;
        } else {
                conn_flag(tc, TCF_TRAIN);
                tc->delack_at = MIN(tc->delack_at, now + delay(tc));
        }
}

void delack_owe(struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t len, nstime now)
{
        uint32_t owed = tc->rcv_nxt - tc->last_ack_sent;

        if (len > tc->rcv_full)
                WRITE_ONCE(tc->rcv_full, len);
        if (unlikely(tc->opts.ack_every != 0)) {
                owe_by_bytes(tc, owed, now);
                return;
        }
        if (!tc->link.lossless) {
                if (waits_for_more(tc, seg, owed, now))
                        return;
                conn_unflag(tc, TCF_TRAIN);
        }
        if ((owed >= 2 * tc->rcv_full && !waits_for_reader(tc)) || tc->opts.quickack) {
                tc->owed |= OWE_ACK;
        } else if (tc->quick != 0 && !tc->link.lossless) {
                tc->quick--;
                tc->delack_at = MIN(tc->delack_at, now + AT_ONCE);
        } else {
                tc->delack_at = MIN(tc->delack_at, now + delay(tc));
        }
}

void delack_owe_end(struct tcp_conn *tc, nstime now)
{
        bool closed =
                tc->state == TCPS_FIN_WAIT_2 && tc->flags & TCF_CLOSED_BY_APP && !tc->link.lossless;

        conn_unflag(tc, TCF_TRAIN);
        if ((tc->state == TCPS_ESTABLISHED || closed) && !tc->opts.quickack)
                tc->delack_at = MIN(tc->delack_at, now + AT_ONCE);
        else
                tc->owed |= OWE_ACK;
}

void delack_owe_window(struct tcp_conn *tc, nstime now)
{
        if (tc->opts.quickack)
                tc->owed |= OWE_ACK;
        else
                tc->delack_at = MIN(tc->delack_at, now + AT_ONCE);
}

/*
 * RFC 5681 §4.2: a duplicate ACK at once for each segment beyond a gap. Three of them make a sender
 * repair what is missing. Blocks of SACK tell what comes behind until then, and one ACK may tell of
 * many: of GAP_TOGETHER segments, or of a twentieth of a round trip, a millisecond at most, as
 * Linux does. An ACK for each is a packet that everything on the way back has to carry.
 */
void delack_owe_gap(struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        nstime hold = MIN(round_trip(tc, seg, now) / 20, NS_PER_MS);

        if (tc->ooo_head == 0)
                tc->gap_acks = 0;
        if (tc->gap_acks < GAP_AT_ONCE || !tc->sack_ok || tc->opts.quickack || tc->link.lossless ||
            hold < GAP_LEAST) {
                tc->gap_acks += tc->gap_acks < GAP_AT_ONCE;
                tc->owed |= OWE_ACK;
        } else if (++tc->gap_acks == GAP_AT_ONCE + GAP_TOGETHER) {
                tc->gap_acks = GAP_AT_ONCE;
                tc->owed |= OWE_ACK;
        } else {
                conn_flag(tc, TCF_TRAIN);
                tc->delack_at = MIN(tc->delack_at, now + hold);
        }
}

bool tcp_ack_waits(const struct tcp_conn *tc)
{
        return tc->delack_at != NSTIME_NEVER && !(tc->flags & TCF_TRAIN);
}

void tcp_flush_ack(struct tcp *t, struct tcp_conn *tc)
{
        if (!tcp_ack_waits(tc))
                return;
        tc->owed |= OWE_ACK;
        touch(t, tc);
}
