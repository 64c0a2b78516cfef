/*
 * Initial sequence numbers (RFC 6528): ISN = M + F(tuple, secret), M a clock of 4 µs. The same kind of function gives
 * each pair of ends its own timestamp offset (RFC 7323 §5.4), so that the clock of the host is not told to strangers.
 */
#include "tcp/tcp_conn.h"

enum { TWEAK_ISS = 0x10000, TWEAK_TS };         /* above every channel number, which is what demultiplexing uses */

uint32_t iss_new(const struct tcp *t, const struct tcp_tuple *tuple, nstime now)
{
        return (uint32_t)(now / (4 * NS_PER_US)) + (uint32_t)tcp_hash(t->sh, tuple, TWEAK_ISS);
}

uint32_t ts_offset_new(const struct tcp *t, const struct tcp_tuple *tuple)
{
        return (uint32_t)tcp_hash(t->sh, tuple, TWEAK_TS);
}
