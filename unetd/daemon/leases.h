/*
 * Leases of client ports: a stack has runs of TCP ports to connect from, which no other stack has.
 * A stack asks for few ports at first, and for more as it connects.
 */
#ifndef UNETD_LEASES_H
#define UNETD_LEASES_H

#include "unetd/daemon/daemon.h"

/* Keeps the users of the leases in a file, for the next unetd. To be called as root, before
 * leases_init(). */
void leases_remember(const char *path);
/* Returns true if no port is leased, by this unetd or the last. */
bool leases_are_none(void);
void leases_init(void);
int port_lease(struct client *cl, struct unetd_msg *msg);
/* Leases for a client; or for a keeper, which says what its stack had with the last unetd (`cl`
 * NULL). */
int lease_put(struct user *u, struct client *cl, struct unetd_msg *msg);
/* Returns the stack that has leased a port; 0: none. */
uint32_t port_lessee(uint8_t proto, uint16_t port);
void leases_free(struct stack *st);

#endif
