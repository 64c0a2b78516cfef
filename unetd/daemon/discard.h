/* Closing what came from users, which may take as long as they like: a child does it. */
#ifndef UNETD_DISCARD_H
#define UNETD_DISCARD_H

#include "unetd/daemon/daemon.h"

void discard_init(struct user *u);
/* Closes what came from a user, without waiting for it. `unwanted`: it came in a message and was of
 * no use. */
void discard(struct user *u, const int *fds, unsigned n, bool unwanted);
/* Closes a connection that is not served, with what may be in it already. NULL: of somebody of whom
 * unetd keeps no record. */
void discard_refused(struct user *u, int conn);
/* Closes what came in a ring, of whoever. */
void discard_strange(const int *fds, unsigned n);
/* Too much of that waits: this user is not listened to. */
bool discard_stuck(const struct user *u);
bool discard_busy(const struct user *u);
/* Makes the children that could not be made before. Returns when to be called again. */
nstime discard_tick(void);
/* The answer to a request by which something was closed: when it is, so that who asked can bind the
 * port again. 0, a negative errno, or REPLY_LATER. */
int discarded(struct client *cl, const struct unetd_msg *request);

#endif
