/*
 * Initial sequence numbers (RFC 6528): ISN = M + F(tuple, secret), M a clock of 4 µs. The same kind
 * of function gives each pair of ends its own timestamp offset (RFC 7323 §5.4), so that the clock
 * of the host is not told to strangers.
 */
#include "base/siphash.h"
#include "tcp/tcp_life.h"

enum { FOR_ISS, FOR_TS, FOR_PORT = 4 }; /* tcp_cookie.c has more */

uint32_t iss_function(const struct tcp *t, const struct tcp_tuple *tuple, uint64_t purpose)
{
        struct sip_key key = sip_key_of(t->sh->secret);
        uint64_t words[] = {tuple->laddr.w[0],
                            tuple->laddr.w[1],
                            tuple->raddr.w[0],
                            tuple->raddr.w[1],
                            (uint64_t)tuple->lport << 16 | tuple->rport,
                            purpose};

        return (uint32_t)siphash24(&key, words, sizeof words);
}

uint32_t iss_new(const struct tcp *t, const struct tcp_tuple *tuple, nstime now)
{
        return (uint32_t)(now / (4 * NS_PER_US)) + iss_function(t, tuple, FOR_ISS);
}

uint32_t tcp_port_offset(const struct tcp *t, const struct tcp_tuple *to)
{
        struct tcp_tuple ends = *to;

        ends.lport = 0;
        return iss_function(t, &ends, FOR_PORT);
}

uint32_t ts_offset_new(const struct tcp *t, const struct tcp_tuple *tuple)
{
        return iss_function(t, tuple, FOR_TS);
}
