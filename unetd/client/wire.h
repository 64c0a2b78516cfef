/*
 * One message over one SOCK_SEQPACKET socket, and what is checked before anybody looks at it. Used
 * by both ends.
 *
 * Descriptors that arrive belong to the receiver: `fds` of a struct wire_in holds n of them, each
 * to be taken (set to -1) or closed by wire_in_close(). Descriptors that are sent are borrowed.
 */
#ifndef UNETD_WIRE_H
#define UNETD_WIRE_H

#include <sys/resource.h>

#include "base/rights.h"
#include "unetd/client/proto.h"

struct wire_in {
        struct unetd_msg msg;
        int fds[RIGHTS_MAX];
        unsigned n; /* at most UNETD_FDS_MAX when the message is in form */
};

/* Sends msg with n descriptors; sets msg->nfds and msg->magic. 0; -EAGAIN when a non-blocking
 * socket is full. */
int wire_send(int fd, struct unetd_msg *msg, const int *fds, unsigned n, int flags);

/*
 * Receives one message. 0: it is whole and in form: size, magic, a known type, as many descriptors
 * as it says.
 * -EBADMSG: it is not; its descriptors are there to be closed, and msg.seq is what could be read,
 * else 0. -EMFILE: it would be, but we may have no number for one of its descriptors; the others
 * are there to be closed. -EAGAIN; -ECONNRESET at the end.
 */
int wire_recv(int fd, struct wire_in *in, int flags);

/* The same for a program that may have used up its numbers: descriptors are taken beyond the soft
 * RLIMIT_NOFILE, as far as the hard one goes. `fd` does not block. */
int wire_recv_above(int fd, struct wire_in *in, int flags);

/* Closes the descriptors that were not taken. */
void wire_in_close(struct wire_in *in);

/* Takes descriptor i, which the caller now owns. */
static inline int wire_in_take(struct wire_in *in, unsigned i)
{
        int fd = in->fds[i];

        assert(i < in->n);
        in->fds[i] = -1;
        return fd;
}

/* Closes those that are not negative. */
void fds_close(const int *fds, unsigned n);
/* Moves a descriptor out of the numbers that applications use, close-on-exec. Closes the old one,
 * also on failure. */
int fd_high(int fd);
/* A second descriptor for the same file description, as high. */
int fd_high_dup(int fd);
/* Returns true if the soft RLIMIT_NOFILE leaves numbers above it, which are then ours. */
bool fd_above(void);
bool fd_leaves_above(const struct rlimit *rl);
/* Copies the name that /proc has for the descriptor ("pipe:[...]", "/memfd:...", a path), cut to
 * size. Returns its length, or negative. */
int fd_link(int fd, char *text, int size);
/* Opens the same file anew with `flags`: a file description of its own. High, close-on-exec. A
 * process that may not open what another user has made can set fd_reopen_denied, to ask one that
 * may. */
int fd_reopen(int fd, int flags);
extern int (*fd_reopen_denied)(int fd, int flags);

#endif
