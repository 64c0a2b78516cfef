/* Routes, static neighbours and the state of interfaces. */
#ifndef UNETD_ROUTES_H
#define UNETD_ROUTES_H

#include "unetd/daemon/daemon.h"

void routes_init(void); /* after ifaces_init() */
/* Looks at the links anew, and publishes what changed. */
void routes_look(void);
/* UNETD_ROUTE_ADD to UNETD_IFACE_DEL. 0; those of iface_add() and iface_remove(); -EPERM; -ENODEV;
 * -ENETUNREACH: on no network of an interface; -ESRCH: there is no
 * such; -ENOTUNIQ: there are several; or as route_add(). */
int routes_change(struct client *cl, struct unetd_msg *msg);

#endif
