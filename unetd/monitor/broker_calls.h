/* The system calls of a broker. */
#ifndef UNETD_BROKER_CALLS_H
#define UNETD_BROKER_CALLS_H

/* System calls that are not in the list fail with ENOSYS from here on. 0 or a negative errno; 0
 * also where this was built without libseccomp, and the log says so. */
int broker_calls_filter(void);

#endif
