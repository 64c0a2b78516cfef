/*
 * Pacing: data leaves in quanta, each when the one before has passed at the rate
 * (draft-ietf-ccwg-bbr §5.6.2, §5.6.3).
 *
 * A quantum is what passes in a millisecond, so that a sleep and a turn of the stack are not paid
 * for each segment, and 64 KB at the most. Timers are late, on a busy machine by many quanta: what
 * was missed meanwhile leaves with the quantum that was waited for, else the rate would not be
 * reached. SO_MAX_PACING_RATE makes good what passes in CATCH_UP; and where the application says
 * how many bytes may leave back to back (opts.pace_burst), these, whether they were waited for or
 * not.
 *
 * Where a quantum takes no longer than a sleep does, waiting for it is in vain, as over a network
 * whose round trip is some ten microseconds. Then only the window paces, unless SO_MAX_PACING_RATE
 * asks for more.
 *
 * A group's rate (tcp_group.c) is waited for after one's own.
 *
 *      output_new(), output_lost(), tcp_output_next() -> pace_waits()    note_sent() -> pace_sent()
 */
#include "tcp/tcp_conn.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_send.h"

#define QUANTA_A_SECOND 1000u
#define QUANTUM_MOST    (64u << 10)
#define SHORTEST        (50 * NS_PER_US) /* a thread's sleep until a timer, and some */
#define CATCH_UP        (20 * NS_PER_MS) /* a thread that wants a processor which others have */

static nstime time_of(uint32_t bytes, uint64_t rate)
{
        return (nstime)(bytes * (uint64_t)NS_PER_S / rate);
}

void pace_set(struct tcp_conn *tc, uint64_t rate, uint32_t least)
{
        uint64_t most = tc->opts.max_pacing_rate;
        uint32_t quantum = (uint32_t)MAX(MIN(rate / QUANTA_A_SECOND, QUANTUM_MOST), least);

        if (rate != 0 && time_of(quantum, rate) < SHORTEST)
                rate = 0;
        if (most != 0 && (rate == 0 || most < rate)) {
                rate = most;
                quantum = (uint32_t)MAX(MIN(rate / QUANTA_A_SECOND, QUANTUM_MOST), 1u);
        }
        if (tc->opts.pace_burst != 0)
                quantum = MIN(quantum, tc->opts.pace_burst);
        if (rate == 0 && tc->group_paced) {
                rate = PACE_UNBOUND;
                quantum = QUANTUM_MOST;
        }
        tc->pace.rate = rate;
        tc->pace.quantum = quantum;
}

static bool is_own_rate(const struct tcp_conn *tc)
{
        return tc->pace.rate != 0 && tc->pace.rate == tc->opts.max_pacing_rate;
}

/* How far back time counts. */
static nstime made_good(const struct tcp_conn *tc)
{
        if (tc->opts.pace_burst != 0)
                return time_of(tc->opts.pace_burst - tc->pace.quantum, tc->pace.rate);
        if (!(tc->flags & TCF_PACED))
                return 0;
        return MAX(time_of(tc->pace.quantum, tc->pace.rate), is_own_rate(tc) ? CATCH_UP : 0);
}

/* Begins a quantum: it counts from its own time, and what has passed since leaves with it. */
static void next_quantum(struct tcp_conn *tc, nstime now)
{
        tc->pace.at = MAX(tc->pace.at, now - made_good(tc));
        tc->pace.left = tc->pace.quantum;
        if (tc->pace.at < now && is_own_rate(tc))
                tc->pace.left += (uint32_t)MIN(
                        (uint64_t)(now - tc->pace.at) * tc->pace.rate / NS_PER_S, UINT32_MAX / 2);
}

/* The timer of corked segments does: while one that is full waits for its time, none at the end is
 * held back. */
static bool waits_until(struct tcp_conn *tc, nstime at, nstime now)
{
        tc->cork_at = MIN(tc->cork_at, at);
        conn_flag(tc, TCF_PACED);
        conn_set_limit(tc, TCP_LIM_PACING, now);
        return true;
}

bool pace_waits(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        nstime turn;

        if (tc->pace.left == 0 && now < tc->pace.at)
                return waits_until(tc, tc->pace.at, now);
        turn = tc->group_paced ? group_turn(t, tc, now) : now;
        if (now < turn)
                return waits_until(tc, turn, now);
        if (tc->pace.left == 0)
                next_quantum(tc, now);
        if (tc->flags & TCF_PACED) {
                conn_unflag(tc, TCF_PACED);
                tc->cork_at = NSTIME_NEVER;
        }
        return false;
}

void pace_comes(struct tcp_conn *tc, nstime now)
{
        if (is_own_rate(tc) && tc->pace.left == 0 && now >= tc->pace.at)
                next_quantum(tc, now);
        conn_unflag(tc, TCF_PACED);
}

void pace_sent(struct tcp *t, struct tcp_conn *tc, uint32_t len)
{
        if (tc->group_paced)
                group_sent(t, tc, len);
        tc->pace.left -= MIN(len, tc->pace.left);
        tc->pace.at += time_of(len, tc->pace.rate);
}
