/*
 * Sockets, as the native API (<unet/sock.h>) and the LD_PRELOAD shim both use them: life, names and
 * data. (core/usock.c)
 *
 * A socket's record lives in its stack's state segment and outlives the process. struct usock is
 * one process's handle on it. No call blocks (-EAGAIN) but usock_wait(), the one place where
 * threads sleep. Errors are negative errno. Several threads may call with one handle; the stack's
 * lock is inside.
 *
 * A socket may have a kernel socket beside it (`kfd`): the shim's number, the reserved port, the
 * kernel's side of a double listener or of a UDP port. usock_wait() watches both. No call here
 * reads or writes the kernel's.
 *
 *   usock_connect.h   connections              usock_dgram.h     datagrams and groups
 *   usock_option.h    options                  usock_stamp.h     times of sending
 *   usock_ready.h     readiness and waiting    usock_process.h   fork, exec, exit, users
 *   usock_ifaces.h    unetd's interfaces       usock_sys.h       the system calls of a sleep
 */
#ifndef SOCK_USOCK_H
#define SOCK_USOCK_H

#include <sys/socket.h>
#include <sys/uio.h>

#include "base/base.h"

struct usock;

enum { USOCK_TCP = 1, USOCK_UDP = 2 };

/* ---- life ---- */

/* A new socket (kind USOCK_TCP or USOCK_UDP; family AF_INET or AF_INET6). The process's stack is
 * made on the first call. kfd: kernel socket beside it or -1; borrowed, the caller keeps it open as
 * long as the handle lives. */
int usock_open(int kind, int family, int kfd, struct usock **out);
/* Handles are counted: dup adds one, close takes one; the last close ends the process's reference
 * to the record. */
struct usock *usock_dup(struct usock *s);
void usock_close(struct usock *s);
/* The socket another process made, or this one's former image, recognised by the SO_COOKIE of its
 * kernel socket (exec, SCM_RIGHTS); looks in this process's stacks first, then asks the keeper.
 * -ENOENT: not ours. */
int usock_adopt(uint64_t cookie, int kfd, struct usock **out);
/*
 * Its kernel socket is about to leave in a message (SCM_RIGHTS). The socket lives as long as the
 * message is under way, even if all processes close it meanwhile: the keeper watches the kernel
 * socket. Landed: a process has received and adopted it.
 */
void usock_fly(struct usock *s);
void usock_landed(struct usock *s);
/* The kernel socket's cookie is recorded when it is set here (so that adopt can find it). */
void usock_set_kfd(struct usock *s, int kfd);
int usock_kfd(const struct usock *s);
/* 0: it is not known. */
uint64_t usock_cookie(const struct usock *s);
/* O_NONBLOCK as the program set it, for all processes that hold the socket. No call here waits
 * either way. */
bool usock_nonblock(const struct usock *s);
void usock_set_nonblock(struct usock *s, bool on);
/*
 * What the socket has become, for all processes that have it: `what` is a byte that the shim
 * defines, beside it the times that reads and writes wait. No two sayings have the same number, so
 * a process that remembers the last one sees that there is a new one. 0: there is none.
 */
uint32_t usock_say(struct usock *s, uint8_t what, nstime rcvtimeo, nstime sndtimeo);
uint32_t usock_said(const struct usock *s);
static inline uint8_t usock_said_what(uint32_t said)
{
        return (uint8_t)said;
}
void usock_said_times(const struct usock *s, nstime *rcvtimeo, nstime *sndtimeo);
/* Its number leaves the process, which from now on is not the only one to read it. */
void usock_goes_outside(struct usock *s);
int usock_kind(const struct usock *s);

/* ---- names ---- */

/* Remembers the local name, as the kernel reports it after its own bind (the shim) or held by
 * unetd (native). */
int usock_bind(struct usock *s, const struct sockaddr *sa, socklen_t len);
int usock_getsockname(struct usock *s, struct sockaddr *sa, socklen_t *len);
int usock_getpeername(struct usock *s, struct sockaddr *sa, socklen_t *len);

/* ---- data ---- */

/* As sendmsg/recvmsg without waiting; bytes moved or -errno. TCP may move fewer bytes than asked.
 * Flags as in the kernel (MSG_PEEK, MSG_TRUNC, MSG_OOB, MSG_MORE, MSG_NOSIGNAL is implied: EPIPE
 * raises no signal here). UDP send to an address nobody on the fabric has, or to be part of a
 * datagram that the kernel's socket has begun: -ENOENT (use the kernel). */
ssize_t usock_sendmsg(struct usock *s, const struct msghdr *m, int flags);
ssize_t usock_recvmsg(struct usock *s, struct msghdr *m, int flags);
/* The same for one buffer and a connected socket: the fast path. */
ssize_t usock_send(struct usock *s, const void *p, size_t n, int flags);
ssize_t usock_recv(struct usock *s, void *p, size_t n, int flags);
/* The shortest way of a read of at most USOCK_SHORT_MAX bytes: a short datagram, or what was taken
 * ahead of a stream. -EAGAIN: usock_recv() says what there is. */
#define USOCK_SHORT_MAX 256u
ssize_t usock_read_short(struct usock *s, void *p, size_t n);
/* SO_PEEK_OFF is set: a peek goes on where the last one ended, and may find nothing while the
 * socket is readable. */
bool usock_peeks_on(const struct usock *s);
/* SO_RCVLOWAT: what a call that reads a stream waits for, at least; more than 1 says
 * `usock_waits_for_more()`. */
uint32_t usock_rcvlowat(const struct usock *s);
bool usock_waits_for_more(const struct usock *s);
/* Of sendfile(): where a file ends nothing more is to come, however much was asked for. */
off_t usock_file_end(int fd);
/* A call that had moved bytes met an error of the connection, -errno: the next one tells of it.
 * Others are let go. */
void usock_keep_error(struct usock *s, ssize_t r);
/* The next call fails with this errno, and SO_ERROR tells it, where no other error waits. */
void usock_put_error(struct usock *s, int err);

#endif
