/* Epoll sets that hold sockets of ours. */
#ifndef SHIM_EPOLL_H
#define SHIM_EPOLL_H

#include "sock/shim/shim.h"

/* The file changed sides: its memberships follow. shim.lock held. */
void epoll_file_moved(struct file *f);
/* The last number of a file is gone: its memberships end, and the members of an epoll descriptor. */
void epoll_file_closed(struct file *f);
/* The last reference of an epoll descriptor with a set is gone. */
void epoll_file_ended(struct file *f);
/* An epoll descriptor that holds some of ours: is one ready? If not, one may be after news since *seen. */
bool epoll_set_ready(struct epoll_set *set, struct usock_news *seen);
void epoll_fork_lock(void);
void epoll_fork_unlock(bool child);

#endif
