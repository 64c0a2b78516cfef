/* Routes, static neighbours and the state of interfaces. */
#ifndef UNETD_ROUTES_H
#define UNETD_ROUTES_H

#include "unetd/daemon/daemon.h"

void routes_init(void); /* after ifaces_init() */
/* Reads the state of the links again, and publishes what changed. */
void routes_look(void);
/* Serves UNETD_ROUTE_ADD to UNETD_IFACE_DEL. 0; the errors of iface_add(), iface_remove() and
 * route_add(); -EPERM; -ENODEV; -ENETUNREACH: the address is on no network of an interface; -ESRCH:
 * there is no such route or neighbour; -ENOTUNIQ: there are several. */
int routes_change(struct client *cl, struct unetd_msg *msg);

#endif
