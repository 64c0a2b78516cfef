/*
 * Retransmission timers, dead peers, sleeping. Over lossless channels nothing of this runs.
 *
 * The clock is read by am_tick() alone, and for one message in AM_RTT_EVERY. Each sequence of a
 * peer has a timer, for one goes on while the other waits; it starts at the first tick that finds
 * something unacknowledged.
 */
#include <errno.h>
#include <sched.h>

#include "am/am_int.h"
#include "base/clock.h"

/* Before the first sample. RFC 6298 §2.1 has 1 s, for the Internet. */
#define RTO_FIRST (20 * NS_PER_MS)
/* RFC 6298 §2.5: may be bounded; a peer that was stopped is back soon after it goes on. */
#define RTO_MAX     NS_PER_S
#define BACKOFF_MAX 20
#define SLEEP_MAX   (100 * NS_PER_MS) /* between two looks for hung-up peers */
#define PAUSE_POLLS 256u              /* polls in vain before uam_pause() sleeps */

static nstime now_of(const struct uam *am)
{
        return am->time.now(am->time.arg);
}

static bool unacked(const struct am_peer *p)
{
        return p->tx[AM_SEQ_REQ].una != p->tx[AM_SEQ_REQ].nxt ||
               p->tx[AM_SEQ_REP].una != p->tx[AM_SEQ_REP].nxt;
}

/* ---- measuring (RFC 6298 §2) ---- */

static void set_rto(struct am_peer *p)
{
        nstime rto = p->srtt == 0 ? RTO_FIRST : p->srtt + 4 * p->rttvar;

        p->rto = MIN(MAX(rto, p->am->o.rto_min), RTO_MAX);
}

static void sample(struct am_peer *p, nstime rtt)
{
        nstime diff = rtt - p->srtt;

        if (p->srtt == 0) {
                p->srtt = MAX(rtt, 1);
                p->rttvar = rtt / 2;
                return;
        }
        p->rttvar += ((diff < 0 ? -diff : diff) - p->rttvar) / 4;
        p->srtt = MAX(p->srtt + diff / 8, 1);
}

void am_start_timer(struct am_peer *p, enum am_seq s)
{
        const struct am_tx *x = &p->tx[s];

        if (!p->timed) {
                p->timed = true;
                p->next_timed = p->am->timed;
                p->am->timed = p;
        }
        if (p->rtt_at == 0 && x->sent == x->nxt && x->una != x->nxt &&
            p->rtt_skip++ % AM_RTT_EVERY == 0) {
                p->rtt_of = s;
                p->rtt_seq = (uint16_t)(x->nxt - 1);
                p->rtt_at = now_of(p->am);
        }
}

void am_progress(struct am_peer *p, enum am_seq s, uint16_t ack)
{
        if (s == p->rtt_of && p->rtt_at != 0 && (int16_t)(ack - p->rtt_seq) > 0) {
                sample(p, now_of(p->am) - p->rtt_at);
                set_rto(p);
                /* Until then it stays backed off (RFC 6298 §5.7, Karn). */
                p->tx[AM_SEQ_REQ].backoff = p->tx[AM_SEQ_REP].backoff = 0;
                p->rtt_at = 0;
        }
        p->tx[s].deadline = 0;
}

/* ---- expiring ---- */

/* The oldest first: its acknowledgement tells what else is missing (am_acked()). */
static void expire(struct am_peer *p, enum am_seq s)
{
        struct am_tx *x = &p->tx[s];

        am_count(p->am, UAM_STAT_TIMEOUTS);
        if (x->una != x->sent) {
                x->recovering = true;
                x->recover = x->sent;
                am_repeat(p, s, x->una, (uint16_t)(x->una + 1), AM_F_ACK);
        }
        am_link_flush(p->link);
        x->backoff = (uint8_t)MIN(x->backoff + 1, BACKOFF_MAX);
        p->rtt_at = 0;
        p->rtt_skip = 0; /* the next new message is measured */
}

static void tick_seq(struct am_peer *p, enum am_seq s, nstime now)
{
        struct am_tx *x = &p->tx[s];

        if (x->una == x->nxt) {
                x->deadline = 0;
                return;
        }
        if (x->deadline != 0 && now >= x->deadline) {
                expire(p, s);
                x->deadline = 0;
        }
        if (x->deadline == 0)
                x->deadline = now + MIN(p->rto << x->backoff, RTO_MAX);
}

/* False: nothing is unacknowledged any more. */
static bool tick_peer(struct am_peer *p, nstime now)
{
        if (p->err != 0 || !unacked(p)) {
                p->tx[AM_SEQ_REQ].deadline = p->tx[AM_SEQ_REP].deadline = p->heard_at = 0;
                return false;
        }
        if (p->heard || p->heard_at == 0)
                p->heard_at = now;
        p->heard = false;
        if (now - p->heard_at >= p->am->o.dead)
                am_peer_ends(p, -ETIMEDOUT);
        for (int s = 0; s < AM_SEQS && p->err == 0; s++)
                tick_seq(p, (enum am_seq)s, now);
        return p->err == 0;
}

void am_tick(struct uam *am)
{
        nstime now = now_of(am);
        struct am_peer **at = &am->timed;

        while (*at != NULL) {
                struct am_peer *p = *at;
                p->timed = tick_peer(p, now);
                if (p->timed)
                        at = &p->next_timed;
                else
                        *at = p->next_timed;
        }
}

/* When am_tick() is to be called next, NSTIME_NEVER: no timer runs. */
static nstime am_deadline(struct uam *am)
{
        nstime first = NSTIME_NEVER;

        for (const struct am_peer *p = am->timed; p != NULL; p = p->next_timed)
                for (int s = 0; s < AM_SEQS; s++)
                        if (p->tx[s].una != p->tx[s].nxt)
                                first = MIN(first, p->tx[s].deadline);
        return first;
}

/* ---- sleeping ---- */

static int sleep_until(struct uam *am, nstime until)
{
        nstime now = now_of(am), first = am->unsent != 0 ? now + NS_PER_MS : am_deadline(am);
        int is;

        until = MIN(until, first);
        am_count(am, UAM_STAT_SLEEPS);
        if (am->time.sleep != NULL) {
                am->time.sleep(am->time.arg, until);
                return 0;
        }
        until = MIN(until, now + SLEEP_MAX);
        is = unet_ep_wait(am->ep, UNET_READABLE | UNET_CLOSED, MAX(until - now, 0));
        return is == -EINTR ? is : 0;
}

int uam_wait(struct uam *am, int64_t timeout)
{
        nstime now = now_of(am),
               until = timeout < 0 || timeout > NSTIME_NEVER - now ? NSTIME_NEVER : now + timeout;
        uint64_t ends = am->ends;
        int n, err = 0;

        if (am->token.peer != NULL)
                return -EDEADLK;
        for (;;) {
                n = am_receive(am);
                if (n > 0) {
                        am->idle = 0;
                        return n;
                }
                am_idle(am, true);
                if (am->ends != ends || err != 0)
                        return err;
                if (now_of(am) >= until)
                        return -ETIMEDOUT;
                err = sleep_until(am, until);
        }
}

int uam_pause(struct uam *am)
{
        int n = uam_poll(am);

        if (n == 0 && am->yields)
                sched_yield();
        if (n != 0 || (am->idle < PAUSE_POLLS && am->time.sleep == NULL))
                return n;
        return uam_wait(am, SLEEP_MAX);
}

/* ---- flushing ---- */

static bool flushed(const struct uam *am, uint32_t rank)
{
        for (uint32_t r = 0; r < am->o.ranks; r++) {
                const struct am_peer *p = am->peer[r];
                if ((rank == UAM_ALL || rank == r) && p != NULL &&
                    p->tx[AM_SEQ_REQ].una != p->tx[AM_SEQ_REQ].nxt)
                        return false;
        }
        return true;
}

static int lost_one(const struct uam *am, uint32_t rank)
{
        return rank < am->o.ranks && am->peer[rank] != NULL && am->peer[rank]->err != 0 ? -EPIPE
                                                                                        : 0;
}

int uam_flush(struct uam *am, uint32_t rank, int64_t timeout)
{
        nstime now = now_of(am),
               until = timeout < 0 || timeout > NSTIME_NEVER - now ? NSTIME_NEVER : now + timeout;

        if (am->token.peer != NULL)
                return -EDEADLK;
        while (!flushed(am, rank)) {
                if (now_of(am) >= until)
                        return -ETIMEDOUT;
                uam_wait(am, until == NSTIME_NEVER ? -1 : until - now_of(am));
        }
        return lost_one(am, rank);
}
