/*
 * DCTCP (RFC 8257), for networks whose routers mark from a shallow queue on: the window shrinks by
 * as much as was marked, and not by half for one mark.
 *
 *   receiver  its ACKs say ECE for exactly the bytes that were marked: ecn_input(), §3.2
 *   sender    alpha = (1 - g) * alpha + g * M, once a window of data: told(), §3.3;
 *             M: the share that was marked
 *             cwnd = cwnd * (1 - alpha / 2), once a window that has marks: on_mark(), by ecn_ack()
 *
 * Both ends must have it chosen. In all else, growth and losses included (§3.4, §3.5), it is
 * NewReno. Its SYNs ask for ECN, and all that it sends is ECT, as Linux has it: a router that marks
 * drops what it cannot mark. It is not for the Internet (§5).
 */
#include "tcp/tcp_cc.h"

#define ONE     1024u /* alpha, when all was marked */
#define G_SHIFT 4     /* g = 1/16: §4.2 */

struct dctcp {
        uint64_t newreno;       /* tcp_newreno's own: it comes first */
        uint32_t alpha;         /* of ONE */
        uint32_t end;           /* SND.NXT when this window of data began: DCTCP.WindowEnd */
        uint64_t acked, marked; /* bytes in it */
};
static_assert(sizeof(struct dctcp) <= sizeof((struct tcp_conn *)0)->cc_priv, "fits");

static struct dctcp *state(struct tcp_conn *tc)
{
        return (struct dctcp *)tc->cc_priv;
}

/* Nothing is known: the first mark halves the window (§3.3, and §4.2: alpha is 1). */
static void init(struct tcp_conn *tc, nstime now)
{
        tcp_newreno.init(tc, now);
        *state(tc) = (struct dctcp){.alpha = ONE, .end = tc->snd_nxt};
}

static void begin_window(struct tcp_conn *tc, struct dctcp *d)
{
        d->end = tc->snd_nxt;
        d->acked = d->marked = 0;
}

/* §3.3, steps 2 to 9. What the shift rounds away would keep alpha from ever reaching 0. */
static void told(struct tcp_conn *tc, uint32_t acked, bool echo)
{
        struct dctcp *d = state(tc);

        d->acked += acked;
        d->marked += echo ? acked : 0;
        if (seq_lt(tc->snd_una, d->end) || d->acked == 0)
                return;
        d->alpha -= d->alpha >> G_SHIFT != 0 ? d->alpha >> G_SHIFT : d->alpha;
        d->alpha = MIN(d->alpha + (uint32_t)((d->marked * ONE >> G_SHIFT) / d->acked), ONE);
        begin_window(tc, d);
}

static uint32_t on_mark(struct tcp_conn *tc)
{
        uint64_t less = (uint64_t)tc->cwnd * state(tc)->alpha / (2 * ONE);

        return MAX(tc->cwnd - (uint32_t)less, 2 * tc->snd_mss);
}

static void on_ack(struct tcp_conn *tc, uint32_t acked, nstime rtt, nstime now)
{
        tcp_newreno.on_ack(tc, acked, rtt, now);
}

static uint32_t on_loss(struct tcp_conn *tc, bool timeout, nstime now)
{
        return tcp_newreno.on_loss(tc, timeout, now);
}

const struct tcp_cc tcp_dctcp = {.name = "dctcp",
                                 .wants_ecn = true,
                                 .init = init,
                                 .on_ack = on_ack,
                                 .on_loss = on_loss,
                                 .told = told,
                                 .on_mark = on_mark};
