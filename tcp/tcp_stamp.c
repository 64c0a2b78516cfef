/*
 * When the last byte of a write went to the interface, left, and was acknowledged
 * (SO_TIMESTAMPING).
 *
 * Who has written asks; the answers are read from a queue. Both stand in a private frame, which is
 * there as long as something is asked or unread, and the connection has SLOW_FLOW meanwhile: each
 * turn that changes it looks. So many at a time; what is asked beyond that, or told beyond it, is
 * not told, as of Linux when the memory of its error queue is used up.
 */
#include "tcp/tcp_conn.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_stamp.h"

#define MANY 64u

struct asked {
        uint32_t seq;
        uint32_t what; /* TCP_STAMP_*, which are still to be told */
};

/* Counts that only grow. A record is written before it is counted. */
struct stamps {
        uint32_t asked, over; /* of those asked, so many are told */
        uint32_t told, taken;
        struct asked ask[MANY];
        struct tcp_stamp stamp[MANY];
};
static_assert(sizeof(struct stamps) <= FRAME_SMALL_BYTES, "a small frame");
static_assert((MANY & (MANY - 1)) == 0, "counts may wrap");

static struct stamps *stamps_of(const struct tcp *t, const struct tcp_conn *tc)
{
        return (struct stamps *)(void *)frame_addr(t->frames, tc->stamps);
}

static bool make(struct tcp *t, struct tcp_conn *tc)
{
        uint32_t id = frame_alloc(t->frames, FRAME_REGION_PRIVATE, FRAME_SMALL, 0);

        if (id == 0)
                return false;
        memset(frame_addr(t->frames, id), 0, sizeof(struct stamps));
        store_order();
        tc->stamps = id;
        return true;
}

void stamp_drop(struct tcp *t, struct tcp_conn *tc)
{
        uint32_t id = tc->stamps;

        if (likely(id == 0))
                return;
        WRITE_ONCE(tc->stamped, 0);
        tc->stamps = 0;
        store_order(); /* nobody names it, then it is free */
        frame_drop(t->frames, id);
        conn_slow_flow(tc);
}

static uint32_t unread(const struct stamps *v)
{
        return MIN(v->told - v->taken, MANY);
}

void stamp_recover(struct tcp *t, struct tcp_conn *tc)
{
        WRITE_ONCE(tc->stamped, (uint8_t)(tc->stamps != 0 ? unread(stamps_of(t, tc)) : 0));
}

void tcp_stamp_ask(struct tcp *t, struct tcp_conn *tc, uint32_t what)
{
        struct stamps *v;

        assert(what != 0);
        if (tc->state < TCPS_ESTABLISHED || (tc->stamps == 0 && !make(t, tc)))
                return;
        v = stamps_of(t, tc);
        if (v->asked - v->over >= MANY)
                return;
        v->ask[v->asked % MANY] = (struct asked){tc->snd_end - 1, what};
        store_order();
        v->asked++;
        conn_slow_flow(tc);
        touch(t, tc);
}

/* When a byte that was sent left; last, if more than once. */
static nstime left_at(const struct tcp *t, const struct tcp_conn *tc, uint32_t seq)
{
        uint32_t i = tc->snd_next != 0 ? txseg_at(t, tc->snd_next)->prev : tc->snd_tail;

        while (seq_geq(seq, tc->snd_una) && i != 0 && seq_gt(txseg_at(t, i)->seq, seq))
                i = txseg_at(t, i)->prev;
        return seq_geq(seq, tc->snd_una) && i != 0 ? txseg_at(t, i)->sent : tc->last_sent;
}

static void tell(struct tcp_conn *tc, struct stamps *v, struct asked *a, uint32_t what, nstime at)
{
        if (!(a->what & what))
                return;
        if (unread(v) < MANY) {
                v->stamp[v->told % MANY] = (struct tcp_stamp){at, a->seq, what};
                store_order();
                v->told++;
                WRITE_ONCE(tc->stamped, (uint8_t)unread(v));
                tc->events |= TCP_EV_READABLE;
        }
        a->what &= ~what;
}

static void tell_of(const struct tcp *t, struct tcp_conn *tc, struct stamps *v, struct asked *a,
                    nstime now)
{
        nstime left = a->what & (TCP_STAMP_QUEUED | TCP_STAMP_SENT) ? left_at(t, tc, a->seq) : 0;

        tell(tc, v, a, TCP_STAMP_QUEUED, left);
        tell(tc, v, a, TCP_STAMP_SENT, left);
        if (seq_lt(a->seq, tc->snd_una))
                tell(tc, v, a, TCP_STAMP_ACKED, now);
}

void tcp_stamp_look(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        struct stamps *v = stamps_of(t, tc);
        uint32_t n = MIN(v->asked - v->over, MANY);

        for (uint32_t i = v->over; n > 0 && seq_lt(v->ask[i % MANY].seq, tc->snd_nxt); i++, n--) {
                tell_of(t, tc, v, &v->ask[i % MANY], now);
                if (v->ask[i % MANY].what == 0 && v->over == i)
                        v->over++;
        }
}

bool tcp_stamp_take(struct tcp *t, struct tcp_conn *tc, struct tcp_stamp *s)
{
        struct stamps *v;

        if (tc->stamped == 0)
                return false;
        v = stamps_of(t, tc);
        assert(unread(v) != 0);
        *s = v->stamp[v->taken % MANY];
        v->taken++;
        WRITE_ONCE(tc->stamped, (uint8_t)unread(v));
        if (tc->stamped == 0 && v->asked == v->over)
                stamp_drop(t, tc);
        return true;
}
