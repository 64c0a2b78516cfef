/* Sending and receiving on files of ours, and what they have to read or room for: send.c,
 * recv.c, want.c. */
#ifndef SHIM_TRANSFER_H
#define SHIM_TRANSFER_H

#include "sock/shim/shim.h"

ssize_t file_send(struct file *f, const void *p, size_t n, int flags);
ssize_t file_recv(struct file *f, void *p, size_t n, int flags);
/* Of a call that moved `done` bytes and then met `r`: how many, and the next call tells of an
 * error; or `r`. */
ssize_t file_moved(struct file *f, size_t done, ssize_t r);
/* The error that the next call would tell, negative, which nobody tells after this; 0: there is
 * none. Of a connection, or of either side of a datagram socket. */
ssize_t file_take_error(const struct file *f);
/* The same of a UDP socket: one datagram, to whom it is connected to, from either side. */
ssize_t file_send_datagram(struct file *f, const void *p, size_t n, int flags);
ssize_t file_recv_datagram(struct file *f, void *p, size_t n, int flags);

/* Events of our side of a file, without waiting. */
short file_poll_ours(struct file *f);

#endif
