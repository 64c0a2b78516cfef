/* Listeners, bound and held ports. */
#ifndef UNETD_PORTS_H
#define UNETD_PORTS_H

#include "unetd/daemon/daemon.h"

int ports_init(void);
/* As the directory sees it: wildcards of both families are one. */
bool ports_same_addr(ip_addr a, ip_addr b);
int listen_add(struct client *cl, struct wire_in *in);
int listen_del(struct user *u, const struct unetd_msg *msg); /* a client's, or K_UNLISTEN */
/* The entry goes: what it stood for is no more. */
void listen_end(struct stack *st, struct listener *l);
/* No process has the listener of K_ALOFT: nor have we. */
void listen_aloft(struct user *u, const struct unetd_msg *msg);
/*
 * A port that the kernel refuses may be taken by our copy of a socket whose processes have just
 * died: their keeper is asked to see to that now. -ENOENT when nobody has the port here.
 */
int port_settle(struct client *cl, const struct unetd_msg *msg);
void port_settled(struct user *u, int err);
int port_hold(struct client *cl, struct unetd_msg *msg);
int port_release(struct client *cl, const struct unetd_msg *msg);
/* Its keeper says what a stack had with the last unetd: LISTEN_ADD, PORT_HOLD or PORT_LEASE. */
void port_offered(struct user *u, struct wire_in *in);
void ports_stop_listening(struct stack *st);
/* An interface came: those who wait for something at its address are reached by it. */
void ports_offer_ifaces(void);
/* Returns true if some of these TCP ports are listened on or held, by another stack than `but`. */
bool ports_claimed(uint16_t first, uint32_t count, const struct stack *but);
/* The stack that last had a port that it has no more: those that stand are still its own.
 * 0: none. */
uint32_t port_listened(uint8_t proto, uint16_t port);
void ports_free(struct stack *st);

#endif
