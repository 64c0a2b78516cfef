/*
 * Descriptor numbers that are kept for what unetd and the keeper send. A program that uses up the
 * numbers of its hard RLIMIT_NOFILE would otherwise have none for a new peer's channel, and that
 * peer would wait for it. Where the soft limit leaves numbers above it none are kept: there they
 * are taken when they are needed (wire_recv_above()). Nor are they for who may have none, as
 * processes that lock themselves in: they take nobody.
 *
 * One process has them, and whoever calls holds the lock of its client of unetd; but for
 * fd_room_owns().
 */
#ifndef UNETD_FD_ROOM_H
#define UNETD_FD_ROOM_H

#include <stdbool.h>

#define FD_ROOM_LEAST 16u /* three channels that come at once, and one that stays */
#define FD_ROOM_MOST  61u /* twelve, where the limit is not small */

/* Keeps a sixteenth of the limit, from FD_ROOM_LEAST to FD_ROOM_MOST, or no more than before: the
 * program's last ones are not taken. True: they are there. */
bool fd_room_keep(void);
/* Some would have been needed: a limit too small to keep any is no reason any more not to say that
 * they are not there. */
void fd_room_lack(void);
/* As many as a message brings are free, until fd_room_back(), which takes what is left of them.
 * False: they were not lent. */
void fd_room_lend(void);
bool fd_room_back(void);
/* Any thread. */
bool fd_room_owns(int fd);

#endif
