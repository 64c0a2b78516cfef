/* Listeners, bound and held ports. */
#ifndef UNETD_PORTS_H
#define UNETD_PORTS_H

#include "unetd/daemon/daemon.h"

int ports_init(void);
/* Returns true if the directory takes both for one address: the wildcards of both families are one.
 */
bool ports_same_addr(ip_addr a, ip_addr b);
int listen_add(struct client *cl, struct wire_in *in);
int listen_del(struct user *u, const struct unetd_msg *msg); /* a client's, or K_UNLISTEN */
/* Ends the entry of a listener. */
void listen_end(struct stack *st, struct listener *l);
/* Drops unetd's copy of the listener's socket: K_ALOFT says that no process has it any more. */
void listen_aloft(struct user *u, const struct unetd_msg *msg);
/*
 * Asks the keeper of the port's user which sockets there are still in use. The kernel may refuse a
 * port because unetd has a copy of a socket whose processes have just died. -ENOENT: nobody has the
 * port here.
 */
int port_settle(struct client *cl, const struct unetd_msg *msg);
void port_settled(struct user *u, int err);
/* Asks the keeper, with one K_SETTLE at a time, however many wait. It is about the present moment:
 * a request that comes while the keeper is at it waits for the next one. A keeper that is being
 * told of its stacks is asked afterwards. */
void port_settle_next(struct user *u);
int port_hold(struct client *cl, struct unetd_msg *msg);
int port_release(struct client *cl, const struct unetd_msg *msg);
/* The keeper says what its stack had with the last unetd: LISTEN_ADD, PORT_HOLD or PORT_LEASE. */
void port_offered(struct user *u, struct wire_in *in);
void ports_stop_listening(struct stack *st);
/* Offers a new interface to the stacks that listen at its address. */
void ports_offer_ifaces(void);
/* Returns true if another stack than `but` listens on or holds one of these TCP ports. */
bool ports_claimed(uint16_t first, uint32_t count, const struct stack *but);
/* Returns the stack that had the port last and has it no more: the connections that it has there
 * are still its own. 0: none. */
uint32_t port_listened(uint8_t proto, uint16_t port);
void ports_free(struct stack *st);

#endif
