/*
 * Waiting for any mixture of descriptors, for poll.c and select.c; nobody else includes it.
 */
#ifndef SOCK_SHIM_WANT_H
#define SOCK_SHIM_WANT_H

#include "sock/shim/decide.h"
#include "sock/shim/shim.h"
#include "sock/shim/wait.h"

#define WANTS_ON_STACK 64 /* that need no memory */
#define ERR_KERNEL     514

/* One thing to wait for, whoever asked. */
struct want {
        int fd;
        short events;
        short revents;
        struct file *f; /* NULL: the kernel's; a reference in threaded programs */
};

/* Waits until one of n is ready, at most until u, with signals masked as by ppoll(); mask may be
 * NULL. How many are, which their revents say; 0: the time is over; -EINTR, -ERR_AGAIN, -ENOMEM.
 * -ERR_KERNEL: none of these is ours, libc's call is the right one. */
int want_any(struct want *w, int n, struct until *u, const sigset_t *mask);

static inline bool want_ours(int fd)
{
        struct file *f = file_peek(fd);

        return f && (f->mode >= MODE_TCP || f->set || file_may_come(fd, f));
}

#endif
