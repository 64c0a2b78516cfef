/* Options of IPPROTO_UDP: udp(7). */
#include "sock/opt/usock_opt.h"

#include <errno.h>
#include <netinet/udp.h>

#include "sock/udp/usock_cmsg.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#define UDP_GRO     104
#endif

static int set_segment(struct opt_call *c, int v)
{
        if (v < 0 || v > UINT16_MAX)
                return -EINVAL;
        WRITE_ONCE(c->rec->segment, (uint16_t)v);
        return 0;
}

static int get_segment(const struct opt_call *c)
{
        return c->rec->segment;
}

/* What was begun leaves behind the lock: usock_udp_uncorked(). */
static int set_cork(struct opt_call *c, int v)
{
        WRITE_ONCE(c->rec->cork,
                   (uint8_t)((c->rec->cork & ~SOCK_CORK_ON) | (v != 0 ? SOCK_CORK_ON : 0)));
        return 0;
}

static int get_cork(const struct opt_call *c)
{
        return !!(c->rec->cork & SOCK_CORK_ON);
}

static const struct opt_int ints[] = {
        OPT_CALLS(UDP_SEGMENT, USOCK_UDP, set_segment, get_segment),
        OPT_CALLS(UDP_CORK, USOCK_UDP, set_cork, get_cork),
        /* Datagrams of one sender are joined when they are read: usock_udp_recv.c. */
        OPT_TOLD(UDP_GRO, USOCK_UDP, USOCK_TELL_GRO),
};

const struct opt_level opt_udp = OPT_LEVEL_INTS(ints);
