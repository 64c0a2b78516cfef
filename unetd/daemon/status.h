/* UNETD_STATUS: what unetd tells of itself, an item a request. */
#ifndef UNETD_STATUS_H
#define UNETD_STATUS_H

#include "unetd/daemon/daemon.h"

int status_next(struct client *cl, struct unetd_msg *msg);

#endif
