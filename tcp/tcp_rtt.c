/* Round-trip time and the retransmission timeout (RFC 6298), in nanoseconds. */
#include "tcp/tcp_conn.h"
#include "tcp/tcp_send.h"

/* Bounds: tcp_rto_least() and tcp_rto_most(), of the options, else of the link, else these. */
#define RTO_FIRST NS_PER_S /* RFC 6298 §2.1 */
/* §2.4 asks for 1 s; Linux and BSD use 200 ms, links may justify less. */
#define RTO_FLOOR   (200 * NS_PER_MS)
#define RTO_MAX     (120 * NS_PER_S) /* §2.5: at least 60 s */
#define GRANULARITY NS_PER_MS

nstime tcp_rto_least(const struct tcp_opts *o, const struct tcp_link *link)
{
        return o->rto_min_us   ? o->rto_min_us * NS_PER_US
               : link->rto_min ? link->rto_min
                               : RTO_FLOOR;
}

nstime tcp_rto_most(const struct tcp_opts *o)
{
        return o->rto_max_ms ? o->rto_max_ms * NS_PER_MS : RTO_MAX;
}

/* A floor that was set is the link's from then on, so that an ACK looks at one word. */
void rtt_bounds(struct tcp_conn *tc)
{
        if (tc->opts.rto_min_us != 0)
                tc->link.rto_min = tcp_rto_least(&tc->opts, &tc->link);
        tc->rto = MIN(tc->rto, tcp_rto_most(&tc->opts));
}

void rtt_init(struct tcp_conn *tc)
{
        tc->srtt = tc->rttvar = 0;
        tc->rto = RTO_FIRST;
        rtt_bounds(tc);
}

/*
 * §2.2 for the first sample, §2.3 for the others: alpha 1/8, beta 1/4. The floor is of what is
 * added to SRTT, as Linux has it. Otherwise the timeout over a long path that never varies would be
 * its round trip and no more. A single delayed acknowledgement would be taken for a loss.
 */
void rtt_sample(struct tcp_conn *tc, nstime rtt)
{
        nstime floor = tc->link.rto_min ? tc->link.rto_min : RTO_FLOOR;

        rtt = MAX(rtt, 1);
        if (unlikely(tc->srtt == 0)) {
                tc->srtt = rtt;
                tc->rttvar = rtt / 2;
        } else {
                nstime err = rtt - tc->srtt;
                tc->rttvar += ((err < 0 ? -err : err) - tc->rttvar) >> 2;
                tc->srtt += err >> 3;
        }
        if (rtt < tc->min_rtt)
                tc->min_rtt = rtt;
        tc->rto = MIN((tc->srtt < GRANULARITY ? 0 : tc->srtt) +
                              MAX(MAX(GRANULARITY, floor), 4 * tc->rttvar),
                      RTO_MAX);
        if (unlikely(tc->rto > TCP_RTO_MOST_LEAST))
                tc->rto = MIN(tc->rto, tcp_rto_most(&tc->opts));
}

nstime rtt_rto(const struct tcp_conn *tc)
{
        nstime most;

        if (likely(tc->backoff == 0))
                return tc->rto;
        most = tcp_rto_most(&tc->opts);
        return tc->backoff >= 10 ? most : MIN(tc->rto << tc->backoff, most); /* §5.5 */
}
