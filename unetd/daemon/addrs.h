/* The addresses of this host, in the directory. */
#ifndef UNETD_ADDRS_H
#define UNETD_ADDRS_H

#include "unetd/daemon/daemon.h"

int addrs_init(void);
/* Publishes the addresses of this host as they are now. */
void addrs_look(void);

#endif
