/* unetd's interfaces where programs look for the kernel's: ioctl() and rtnetlink(7).
 * addrs.c, netlink.c. */
#ifndef SHIM_ADDRS_H
#define SHIM_ADDRS_H

#include "sock/shim/shim.h"
#include "sock/usock_ifaces.h"

/* usock_ifaces(), for a call that may be the program's first. */
unsigned shim_ifaces(struct usock_iface v[USOCK_IFACES]);
uint32_t shim_iface_broadcast(const struct usock_iface *f); /* 0: it has none */
/* ioctls that tell of interfaces. */
bool addrs_ioctl(unsigned long req);
int addrs_do_ioctl(int fd, unsigned long req, void *arg);

extern _Atomic unsigned netlink_dumps; /* answers of ours that have not been read */
/* What a program asks with has at least a header, and is short. */
static inline bool netlink_may_ask(ssize_t n)
{
        return unlikely(n > 16 && n <= 512);
}
/* A descriptor of the kernel's was given n bytes of that, which may ask for addresses. */
void netlink_asked(int fd, const struct iovec *iov, size_t pieces, ssize_t n);
/* Returns true if there is an answer to read. m is one's own; the result, bytes or -errno, is *r.
 */
bool netlink_answers(int fd, struct msghdr *m, int flags, ssize_t *r);
void netlink_fork_lock(void);
void netlink_fork_unlock(void);

#endif
