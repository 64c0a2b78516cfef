/*
 * Sockets, as the native API (<unet/sock.h>) and the LD_PRELOAD shim both use them.
 *
 * A socket's record lives in its stack's state segment and outlives the process; struct usock is
 * one process's handle on it. Every call here is non-blocking (-EAGAIN) but for usock_wait(), the
 * one place where anybody sleeps. Errors are negative errno. Calls on one handle from several
 * threads are safe; the stack's lock is inside.
 *
 * A socket may have a kernel socket beside it (`kfd`): the shim's number, the reserved port, the
 * kernel's side of a double listener or of a UDP port. It is watched by usock_wait() together with
 * ours; usock never reads or writes it.
 *
 * usock_ready.h has waiting, usock_process.h what a process does to its sockets, usock_ifaces.h
 * unetd's interfaces.
 */
#ifndef SOCK_USOCK_H
#define SOCK_USOCK_H

#include <linux/net_tstamp.h>
#include <poll.h>
#include <signal.h>
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
 * Its kernel socket is about to leave in a message (SCM_RIGHTS): the socket lives as long as that
 * is under way, whoever closes it meanwhile. The keeper watches the kernel socket. Landed: a
 * process has received and adopted it.
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
 * What the socket has become, for all processes that have it: `what` is a byte in the words of who
 * uses it (the shim's), with the times that reads and writes wait. Each saying is another one, so
 * that who remembers the last one that he heard or said sees that there is a new one. 0: nobody has
 * said anything.
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
/* For UDP: the peer is reached by the kernel alone, where nobody has its port on the fabric
 * (-ENOENT: it is not of this host); from our side datagrams of its and of no other are taken. */
int usock_udp_hear(struct usock *s, const struct sockaddr *sa, socklen_t len);
/* For UDP: makes the socket reachable over the fabric (registers the port); idempotent. */
int usock_udp_register(struct usock *s);
int usock_getsockname(struct usock *s, struct sockaddr *sa, socklen_t *len);
int usock_getpeername(struct usock *s, struct sockaddr *sa, socklen_t *len);

/* ---- connections ---- */

int usock_listen(struct usock *s, int backlog);
/* A rule of the configuration keeps a socket of this kind (USOCK_TCP, USOCK_UDP), with this name of
 * its own, off the fabric: which one, for `unet why`; NULL: none does. Who makes it listen, or
 * registers it, asks before. */
const char *usock_rule_listens(int kind, const struct sockaddr *sa, socklen_t len);
/* Whether there is a connection to accept, or another answer than -EAGAIN. */
bool usock_acceptable(struct usock *s);
/* -EAGAIN: nobody waits on our side (the kernel's side is the caller's business). The new socket
 * has kfd -1. */
int usock_accept(struct usock *s, struct usock **out);
/* Who it was that a connection just accepted came from, and be he gone. */
void usock_accepted_from(struct usock *s, struct sockaddr *sa, socklen_t *len);
/*
 * 0: a connected UDP socket; or one of TCP that waits for what is sent first
 * (usock_fastopen_waits()). -EINPROGRESS: handshake under way; poll for POLLOUT, then SO_ERROR.
 * -ENOENT: nobody on the fabric has this address and port: use the kernel. why: for `unet why`, may
 * be NULL.
 */
int usock_connect(struct usock *s, const struct sockaddr *sa, socklen_t len, const char **why);
/* Before usock_connect(): it is because of a message with MSG_FASTOPEN, or TCP_FASTOPEN_CONNECT may
 * be set. -EOPNOTSUPP: the system forbids it. */
int usock_fastopen_connect(struct usock *s, bool by_message);
/* Connected as far as a program sees: the SYN leaves with what is sent first. */
bool usock_fastopen_waits(const struct usock *s);
/* It was bound to a port. -EADDRNOTAVAIL is then the answer: unetd cannot tell that the port is
 * the caller's. */
bool usock_has_port(const struct usock *s);
/* Somebody has leased this TCP port (unetd/client/directory.h). */
bool usock_port_leased(uint16_t port);
/* A TCP socket whose attempt to connect came to nothing (its connection is closed) is as it was
 * before: it keeps the address and port that it was bound to; NULL: it was not. False: another
 * thread copies from it. Nothing was done: usock_let_copy(), then again. */
bool usock_connect_undo(struct usock *s, const ip_addr *bound);
/* connect() to AF_UNSPEC: the connection, however far it has come, is reset; then as that. False
 * also while another thread copies to it: in the kernel these calls wait for one another. */
bool usock_disconnect(struct usock *s, const ip_addr *bound);
/* The same of a UDP socket: it has no peer, and the local address that it was bound to; NULL: the
 * one that it can be reached by. */
void usock_udp_disconnect(struct usock *s, const ip_addr *bound);
/* ... and it has lost the port that it had. What has come can be read all the same. */
void usock_udp_unbind(struct usock *s);
/* Some 50 us, where nothing wakes who waits. */
void usock_let_copy(void);
/* Whether it did come to nothing, when usock_poll() says that the attempt is over. */
bool usock_connect_failed(const struct usock *s);
int usock_shutdown(struct usock *s, int how);
/* Before the last close of a process: waits as SO_LINGER asks, if it is the last one of all. */
void usock_linger(struct usock *s);

/* ---- data ---- */

/* As sendmsg/recvmsg without waiting; bytes moved or -errno. TCP may move fewer bytes than asked.
 * Flags as in the kernel (MSG_PEEK, MSG_TRUNC, MSG_OOB, MSG_MORE, MSG_NOSIGNAL is implied: EPIPE
 * raises no signal here). UDP send to an address nobody on the fabric has, or to be part of a
 * datagram that the kernel's socket has begun: -ENOENT (use the kernel). */
ssize_t usock_sendmsg(struct usock *s, const struct msghdr *m, int flags);
ssize_t usock_recvmsg(struct usock *s, struct msghdr *m, int flags);
/* sendmmsg() of a UDP socket, where it is quicker: to an RDMA device, several at a time. v is the
 * program's, as below. How many were sent; 0: usock_sendmsg() is to send the first, or says why
 * not; or -errno. */
ssize_t usock_send_straight(struct usock *s, struct mmsghdr *v, uint32_t n, int flags);
/* The same for one buffer and a connected socket: the fast path. */
ssize_t usock_send(struct usock *s, const void *p, size_t n, int flags);
/* The kernel's socket has not kept what usock_sendmsg() left to it with MSG_MORE or UDP_CORK. */
void usock_udp_kernel_uncorked(struct usock *s);
/* A call with MSG_ZEROCOPY took bytes: copied they are, and the error queue will tell so, where
 * SO_ZEROCOPY is set. */
void usock_zerocopy_sent(struct usock *s);
#define USOCK_STAMPS_OF_CALL (1u << 31)
/* SO_TIMESTAMPING in the control messages of a stream's sendmsg(): its flags and
 * USOCK_STAMPS_OF_CALL, or 0: there is none. -EINVAL, -EFAULT; -EOPNOTSUPP: what cannot be told is
 * asked for (usock_can_stamp()). */
int usock_stamps_asked(struct usock *s, const struct msghdr *m, uint32_t *flags);
/* A call on a stream took bytes, and the error queue is to tell when the last of them left, as the
 * call says (`asked`), or the socket (0). */
void usock_stamp_sent(struct usock *s, uint32_t asked);
bool usock_is_stamped(const struct usock *s); /* the socket asks */
/* Between these two (sendmmsg) this thread's datagrams with USOCK_BATCH among their flags are told
 * of, or given to a device, with those that follow; the last one comes without it, or `cut` says
 * that it did not come. Outside the flag says nothing. */
#define USOCK_BATCH 0x40000 /* Linux's MSG_BATCH: kernel sockets take it, too */
void usock_batch_begin(void);
void usock_batch_end(struct usock *s, bool cut);
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

/* ---- groups: which of them are ours (usock_group.c) ---- */

/* Whether unetd has an interface, so that groups may be ours. */
bool usock_has_ifaces(void);
/* Options that name a group or where groups are sent, IP_MULTICAST_IF to MCAST_UNBLOCK_SOURCE. */
bool usock_is_group_opt(int level, int name);
/* Whose the interface is that such a call names. EITHER: it names none; the kernel's if it has a
 * route, else ours. */
enum usock_group_side { USOCK_GROUP_KERNEL, USOCK_GROUP_OURS, USOCK_GROUP_EITHER };
enum usock_group_side usock_group_side(int name, const void *val, socklen_t len);
/* The kernel knows no way for groups and broadcasts: what the socket sends to them goes by an
 * interface of unetd's from now on. False: that was so, or was said otherwise. */
bool usock_group_fallback(struct usock *s);

/* ---- options: -ENOPROTOOPT where the option is not ours: ask the kernel socket ---- */

int usock_setsockopt(struct usock *s, int level, int name, const void *val, socklen_t len);
int usock_getsockopt(struct usock *s, int level, int name, void *val, socklen_t *len);
/* FIONREAD/SIOCINQ, SIOCOUTQ, SIOCATMARK, SIOCOUTQNSD; -ENOTTY otherwise. */
int usock_ioctl(struct usock *s, unsigned long req, int *arg);
/* Who gets signals of the socket (fcntl(2), F_SETOWN_EX): a process, or one thread of it, or less
 * than 0: a group; 0: nobody. SIGURG always, SIGIO with `async`. */
void usock_set_owner(struct usock *s, int32_t owner, uint32_t tid, bool async);

/* SO_TIMESTAMPING: flags that ask for times of sending. */
#define USOCK_STAMPS_OF_SENDING                                                                    \
        (SOF_TIMESTAMPING_TX_HARDWARE | SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_SCHED | \
         SOF_TIMESTAMPING_TX_ACK)
/* Of a stream we tell them without the bytes, and without the statistics that Linux adds. */
static inline bool usock_can_stamp(uint32_t flags)
{
        return !(flags & USOCK_STAMPS_OF_SENDING) ||
               (flags & SOF_TIMESTAMPING_OPT_TSONLY && !(flags & SOF_TIMESTAMPING_OPT_STATS));
}
/* Linux 6.2: bytes are counted from the next one that is written, not from the oldest that is not
 * acknowledged. */
#define USOCK_STAMP_ID_TCP (1u << 16)

#endif
