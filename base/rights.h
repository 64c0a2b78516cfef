/*
 * Descriptors in messages (SCM_RIGHTS of unix(7)).
 *
 * A receiver has room for as many as can come, not only for as many as may. What finds no room the
 * kernel closes in the receiver's time, and closing a socket can take as long as its owner wants
 * (SO_LINGER).
 */
#ifndef BASE_RIGHTS_H
#define BASE_RIGHTS_H

#include <sys/socket.h>

#define RIGHTS_MAX 253u /* SCM_MAX_FD: the most that the kernel passes */

union rights {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int) * RIGHTS_MAX)];
};

/* Adds n descriptors to a message. */
void rights_put(struct msghdr *m, union rights *r, const int *fds, unsigned n);
/* Calls fn for each descriptor of a message. */
void rights_each(struct msghdr *m, void (*fn)(int fd));
/* Takes up to `most` of a message's descriptors, and closes those beyond. Returns how many there
 * were. */
unsigned rights_take(struct msghdr *m, int *fds, unsigned most);

#endif
