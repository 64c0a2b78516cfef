/* Signals of readiness: to the owner of a socket (F_SETOWN), from whoever runs the stack when
 * something happens to it. */
#ifndef SOCK_USOCK_OWNER_H
#define SOCK_USOCK_OWNER_H

#include "sock/attach/ustack.h"

/* The socket has events (TCP_EV_*): SIGURG for urgent data, and for all of them SIGIO, if it asks
 * for that. Under the lock. */
void usock_signal_owner(struct ustack *u, const struct sock_rec *rec, uint32_t events);

#endif
