/*
 * What a broker is without: it runs as the user `unet`, or a number of its own where there is no
 * such user, in no other group, without capabilities and without a way to get any
 * (PR_SET_NO_NEW_PRIVS), closed to ptrace(2), and with a filter of system calls (where it was built
 * with libseccomp): no program is run, no file is made, no other process is touched.
 *
 * With an interface of provider = verbs it keeps CAP_NET_BIND_SERVICE: agents of RDMA hosts know
 * each other by a port that only root may have (agent/cm.h), and the kernel takes from rdma_cm(7)
 * what the process writes that opened it, so the monitor cannot.
 */
#ifndef UNETD_BROKER_H
#define UNETD_BROKER_H

#include <stdbool.h>
#include <sys/types.h>

#define BROKER_USER "unet"
/* nobody's: below nobody (65534), above what useradd(8) and systemd give out. */
#define BROKER_UID 65525

/* For good. `monitor`: the process that this one ends with; `agent`: of RDMA hosts. 0 or a negative
 * errno, of which the log says more. */
int broker_become(pid_t monitor, bool agent);

#endif
