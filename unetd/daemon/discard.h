/* Closes descriptors that came from users. Users can make a close take long: so a child process
 * does it. */
#ifndef UNETD_DISCARD_H
#define UNETD_DISCARD_H

#include "unetd/daemon/daemon.h"

void discard_init(struct user *u);
/* Closes descriptors of a user, without waiting. `unwanted`: they came in a message that asked for
 * none. */
void discard(struct user *u, const int *fds, unsigned n, bool unwanted);
/* Closes a connection that is not served, with what may be in it already. `u` NULL: unetd keeps no
 * record of its user. */
void discard_refused(struct user *u, int conn);
/* Closes descriptors that came with a ring of a bell, from any user. */
void discard_strange(const int *fds, unsigned n);
/* Returns true if too many descriptors of the user wait to be closed: unetd then reads nothing from
 * him. */
bool discard_stuck(const struct user *u);
bool discard_busy(const struct user *u);
/* Tries again to make children that could not be made before. Returns when to be called again. */
nstime discard_tick(void);
/* Answers a request by which a descriptor was closed: once it is closed, so that the client can
 * bind the port again. 0, a negative errno, or REPLY_LATER. */
int discarded(struct client *cl, const struct unetd_msg *request);

#endif
