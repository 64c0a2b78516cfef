/* What the kernel says of a socket that a client passed. */
#ifndef UNETD_VOUCH_H
#define UNETD_VOUCH_H

#include "unetd/daemon/daemon.h"

int vouch_init(void);
/* Checks that, by the kernel, the socket that a client passed has the port, in this network
 * namespace: 0, or -EINVAL. With DIR_HELD in the protocol: that it is a TCP socket that is bound
 * and does nothing else. */
int vouch_socket(int fd, const struct unetd_port *want);
/* Returns true if other sockets may have the socket's port, too (SO_REUSEADDR, SO_REUSEPORT). */
bool vouch_shares(int fd);
/* Returns the socket's SO_COOKIE; 0: it is no socket. */
uint64_t vouch_cookie(int fd);
/* Reads the local address of a socket of unetd's own. Of a client's socket it would wait for the
 * socket's lock, which the client may hold. Returns true on success. */
bool vouch_addr(int fd, ip_addr *addr, uint16_t *port);

#endif
