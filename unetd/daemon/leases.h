/*
 * Leases of client ports: a stack has runs of TCP ports to connect from that nobody else has. It
 * asks for few at first, and for more as it connects.
 */
#ifndef UNETD_LEASES_H
#define UNETD_LEASES_H

#include "unetd/daemon/daemon.h"

/* Whose they are is kept in that file for the next unetd. As root, before leases_init(). */
void leases_remember(const char *path);
/* Returns true if there is nothing in it. */
bool leases_are_none(void);
void leases_init(void);
int port_lease(struct client *cl, struct unetd_msg *msg);
int port_unlease(struct client *cl, const struct unetd_msg *msg);
/* A client's, or what a keeper says its stack had with the last unetd (`cl` NULL). */
int lease_put(struct user *u, struct client *cl, struct unetd_msg *msg);
/* The stack that has leased a port; 0: none. */
uint32_t port_lessee(uint8_t proto, uint16_t port);
void leases_free(struct stack *st);

#endif
