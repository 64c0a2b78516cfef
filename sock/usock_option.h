/*
 * Socket options, ioctls and owners. (opt/, wait/usock_owner.c)
 *
 * -ENOPROTOOPT: the option is not ours; ask the kernel socket.
 */
#ifndef SOCK_USOCK_OPTION_H
#define SOCK_USOCK_OPTION_H

#include "sock/usock.h"

int usock_setsockopt(struct usock *s, int level, int name, const void *val, socklen_t len);
int usock_getsockopt(struct usock *s, int level, int name, void *val, socklen_t *len);
/* FIONREAD/SIOCINQ, SIOCOUTQ, SIOCATMARK, SIOCOUTQNSD; -ENOTTY otherwise. */
int usock_ioctl(struct usock *s, unsigned long req, int *arg);
/* Who gets signals of the socket (fcntl(2), F_SETOWN_EX): owner > 0 a process, with tid one thread
 * of it; < 0 a group; 0 nobody. SIGURG always, SIGIO with `async`. */
void usock_set_owner(struct usock *s, int32_t owner, uint32_t tid, bool async);

#endif
