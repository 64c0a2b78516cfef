/* What the kernel says of a socket that somebody passed. */
#ifndef UNETD_VOUCH_H
#define UNETD_VOUCH_H

#include "unetd/daemon/daemon.h"

int vouch_init(void);
/* Whether the kernel says that whoever passed this socket has the port, in this network namespace:
 * 0, or -EINVAL. With DIR_HELD in the protocol: of a TCP socket that is bound and no more. */
int vouch_socket(int fd, const struct unetd_port *want);
/* Returns true if other sockets may have the socket's port, too (SO_REUSEADDR, SO_REUSEPORT). */
bool vouch_shares(int fd);
/* What the kernel calls it (SO_COOKIE); 0: it is no socket. */
uint64_t vouch_cookie(int fd);
/* The local name of a socket of unetd's own: another's owner might hold its lock. */
bool vouch_addr(int fd, ip_addr *addr, uint16_t *port);

#endif
