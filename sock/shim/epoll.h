/* Epoll sets that hold sockets of ours. */
#ifndef SHIM_EPOLL_H
#define SHIM_EPOLL_H

#include "sock/shim/shim.h"

/* The file changed sides: its memberships follow. shim.lock held. */
void epoll_file_moved(struct file *f);
/* The last number of a file is gone: its memberships end, and the members of an
 * epoll descriptor. */
void epoll_file_closed(struct file *f);
/* The last reference of an epoll descriptor with a set is gone. */
void epoll_file_ended(struct file *f);
/* An epoll descriptor that holds some of ours: is one ready? If not, one may be after news
 * since *seen. */
bool epoll_set_ready(struct epoll_set *set, struct usock_news *seen);
/* Before exec: who is in the sets that the new image has, in a memfd; its number, or -1: there is
 * nothing to say. And when exec failed. */
int epoll_image_make(void);
void epoll_image_drop(void);
/* After it, when the sockets are adopted; `adopt` is what UNET_ADOPT says. */
void epoll_image_take(const char *adopt);
/* A set that leaves in a message: whoever gets it finds its members. Inside, no locks. */
void epoll_leaves(struct file *f);
/* One that a child of posix_spawn() will have, after its sockets are `spawned`. */
void epoll_is_spawned(struct file *f);
/* A number that came so, after the sockets that came with it. */
void epoll_comes(int fd);
/* The program has used up its numbers: what is kept for sets that are closed here ends. False:
 * there is nothing. */
bool epoll_yield(void);
/* A descriptor of a set's that is the library's own. */
bool epoll_owns_fd(int fd);
void epoll_fork_lock(void);
void epoll_fork_unlock(bool child);

#endif
