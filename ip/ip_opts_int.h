/* Inside of options, for ip/ip_opts*.c: where things stand in an option that has been checked. */
#ifndef IP_IP_OPTS_INT_H
#define IP_IP_OPTS_INT_H

#include "ip/ip_opts.h"

enum { LEN = 1, PTR = 2, ROUTE = 3, TS_FLAGS = 3, TS_DATA = 4 }; /* octets of an option */
enum { TS_ONLY = 0, TS_ADDR = 1, TS_PRESPEC = 3 };               /* low four bits of TS_FLAGS */

/* Bytes that each host adds to a timestamp option. */
static inline unsigned opt_ts_entry(uint8_t flags)
{
        return (flags & 0xf) == TS_ONLY ? 4 : 8;
}

/* Add us to a recorded route or to timestamps, when there is room. */
void opt_add_route(uint8_t *p, uint32_t us);
void opt_add_timestamp(uint8_t *p, uint32_t us, uint32_t ms);

#endif
