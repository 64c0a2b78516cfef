/* SO_LINGER with a time (socket(7)): a close waits until what was sent has arrived, of a
 * non-blocking socket too, as Linux does. */
#include "sock/attach/handle.h"
#include "sock/usock.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "sock/attach/ustack.h"
#include "sock/usock_ready.h"
#include "sock/usock_connect.h"
#include "sock/usock_option.h"
#include "tcp/tcp_stream.h"

#define LOOK NS_PER_MS /* nothing wakes a close that waits for acknowledgements */

/* Seconds. Closing with unread data resets (RFC 2525 §2.17), and while another holds the socket
 * nothing is closed. */
static int32_t lingers(struct usock *s)
{
        struct sock_rec *rec = usock_rec(s);
        int32_t left = 0;

        if (likely(READ_ONCE(rec->role) != SOCK_ROLE_CONN ||
                   READ_ONCE(usock_conn(s)->opts.linger_s) <= 0))
                return 0;
        ustack_lock(s->u);
        if (rec->role == SOCK_ROLE_CONN && sock_held_only_by(s->u->s.st, rec, s->u->slot) &&
            tcp_recv_avail(usock_conn(s)) == 0)
                left = usock_conn(s)->opts.linger_s;
        ustack_leave(s->u);
        return left;
}

void usock_linger(struct usock *s)
{
        int32_t left = s->kind == USOCK_TCP ? lingers(s) : 0;
        nstime until;
        int unsent = 1;

        if (likely(left <= 0))
                return;
        until = ustack_now() + left * NS_PER_S;
        usock_shutdown(s, SHUT_RDWR);
        while (usock_ioctl(s, SIOCOUTQ, &unsent) == 0 && unsent > 0 && ustack_now() < until)
                if (usock_wait1(s, 0, LOOK) == -EINTR)
                        break;
}
