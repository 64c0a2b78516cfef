/*
 * What users do not read. A descriptor in a message that nobody has read is in flight, and counts
 * against the limit of who sent it (unix(7), ETOOMANYREFS): unetd's, for all users together. From
 * 2,024 on the kernel also lets unetd wait for its garbage collector, when that is at work on the
 * sockets of whoever. The messages stay when unetd closes its end. So a connection that has ended
 * counts as its user's until he has read it, or closes it.
 */
#ifndef UNETD_UNREAD_H
#define UNETD_UNREAD_H

#include "unetd/daemon/daemon.h"

/* Connections of a user that have unread answers with descriptors, or have ended: with so many he
 * gets no descriptors. */
#define UNREAD_MOST 512u
/* Connections to keepers of a user that ended and were not read: with so many he gets no other
 * keeper. */
#define UNREAD_KEEPERS 8u

/* Limits what the kernel keeps for who does not read: some six messages. */
void unread_limit(int fd);
/* Returns true if the other end has something to read. */
bool unread_is(int fd);
/* Ends a connection, and takes it. While it is not read it counts in *count, which is in *u. */
void unread_hang_up(struct user *u, int fd, uint32_t *count);
/* Closes those that have been read. Returns when to be called again. */
nstime unread_tick(void);

#endif
