/*
 * What the error queue tells of a stream's bytes: times of sending, and that memory is free again.
 * (core/usock_stamp.c, core/usock_zerocopy.c)
 */
#ifndef SOCK_USOCK_STAMP_H
#define SOCK_USOCK_STAMP_H

#include <linux/net_tstamp.h>

#include "sock/usock.h"

/* SO_TIMESTAMPING: flags that ask for times of sending. */
#define USOCK_STAMPS_OF_SENDING                                                                    \
        (SOF_TIMESTAMPING_TX_HARDWARE | SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_SCHED | \
         SOF_TIMESTAMPING_TX_ACK)
/* Returns true if we can tell what a stream asks for: times without the bytes, and without the
 * statistics that Linux adds. */
static inline bool usock_can_stamp(uint32_t flags)
{
        return !(flags & USOCK_STAMPS_OF_SENDING) ||
               (flags & SOF_TIMESTAMPING_OPT_TSONLY && !(flags & SOF_TIMESTAMPING_OPT_STATS));
}
/* Linux 6.2: bytes are counted from the next one that is written, not from the oldest that is not
 * acknowledged. */
#define USOCK_STAMP_ID_TCP (1u << 16)

#define USOCK_STAMPS_OF_CALL (1u << 31)
/* SO_TIMESTAMPING in the control messages of a stream's sendmsg(): its flags and
 * USOCK_STAMPS_OF_CALL, or 0: there is none. -EINVAL, -EFAULT; -EOPNOTSUPP: what cannot be told is
 * asked for (usock_can_stamp()). */
int usock_stamps_asked(struct usock *s, const struct msghdr *m, uint32_t *flags);
/* A call on a stream took bytes. The error queue is to tell when the last of them left, as the call
 * asks (`asked`), or the socket (0). */
void usock_stamp_sent(struct usock *s, uint32_t asked);
/* Returns true if the socket asks. */
bool usock_is_stamped(const struct usock *s);
/* A call with MSG_ZEROCOPY took bytes. They were copied, and the error queue says so where
 * SO_ZEROCOPY is set. */
void usock_zerocopy_sent(struct usock *s);

#endif
