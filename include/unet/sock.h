/*
 * Sockets over the user-level stack: the calls everybody knows, and what the kernel does not tell
 * or give.
 *
 * TCP and UDP for programs that link libunet. A connection runs between two processes of this host
 * over shared memory; neither side makes a system call to send or receive while the other one keeps
 * up. Other hosts are reached by the interfaces that unetd has (unet.conf(5)). The program's stack
 * is made at its first socket, and `unetd` is started when there is none: nothing to configure, no
 * privilege.
 *
 *      int s = unet_socket(AF_INET, SOCK_STREAM, 0);
 *      if (unet_connect(s, (struct sockaddr *)&to, sizeof to) == 0)
 *              unet_send(s, "hello", 5, 0);
 *      unet_close(s);
 *
 * The calls are those of POSIX and Linux with "unet_" in front: same arguments, results, flags,
 * options, and errors in errno with -1. Where they differ:
 *
 * - A socket is a small number of the library's own table, counted from 0. It is not a descriptor
 *   of the kernel's: not for read(2), poll(2) or SCM_RIGHTS. unet_poll() and poll sets take it, and
 *   kernel descriptors, too.
 * - There is no way around the fabric. Connecting, or sending a datagram, to an address of this
 *   host is ECONNREFUSED where nobody on the fabric has the port, also when an ordinary program
 *   listens there. To a host that no interface of unetd's leads to it is ENETUNREACH. Only
 *   connections of the fabric are accepted. A program that wants both uses the shim, `unet run`.
 * - An explicit bind() is held in the kernel's port space too, by unetd. So ordinary programs and
 *   this one do not take one another's ports: EADDRINUSE, EADDRNOTAVAIL, EACCES as bind(2). The
 *   port is free again when the last process has closed the socket. A client's port comes from a
 *   block that unetd leased and is not bound in the kernel. Several sockets cannot share one port.
 * - A call that sleeps and meets a signal returns EINTR when nothing was done yet, with SA_RESTART
 *   as without. Writing to a closed connection is EPIPE and raises no signal, MSG_NOSIGNAL or not.
 * - NULL where memory is needed is EFAULT; any other pointer that is wrong is SIGSEGV, as in a
 *   library's call.
 * - What send() took, arrives. After exit, and after kill -9, another process of the library
 *   finishes the connection, the keeper. With SO_LINGER a close() waits, or resets, as in
 *   socket(7).
 *
 * fork: parent and child share sockets as they do in POSIX; the connection ends when both have
 * closed it. exec: the table is gone, and the sockets are closed. Threads: any thread may make any
 * call; a socket that is closed while another thread is in a call on it goes when that call
 * returns. A signal handler must make no call of the library, and must not longjmp() out of one.
 *
 * Another user: setuid(), seteuid(), setreuid(), setresuid() and capset() are the library's, which
 * calls libc's. A process may give up its user for good, or capabilities that others of its stack
 * may have kept. Then all its sockets are closed, and poll sets are empty. The next socket is of
 * its new user. A process with other threads is refused such a call: EAGAIN. In a child of vfork(),
 * _Fork() or clone() the calls are libc's alone; but if it has memory of its own and gives up its
 * user, it has none of its parent's sockets any more.
 */
#ifndef UNET_SOCK_H
#define UNET_SOCK_H

#include <poll.h>
#include <stdint.h>
#include <sys/select.h> /* sigset_t */
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Complete only for who asks libc for them (POSIX; _GNU_SOURCE). */
struct timespec;
struct mmsghdr;

/* Of the library that these headers are of: 10,000 * major + 100 * minor + patch. */
#define UNET_VERSION 100 /* 0.1.0 */

#ifndef UNET_API
#define UNET_API __attribute__((visibility("default")))
#endif

/* ---- sockets ---- */

/* domain AF_INET or AF_INET6 (which carries v4-mapped addresses only); type SOCK_STREAM or
 * SOCK_DGRAM, with SOCK_NONBLOCK, SOCK_CLOEXEC (no effect); protocol 0, or the one of the type.
 * EAFNOSUPPORT, EPROTONOSUPPORT, EMFILE; ECONNREFUSED: there is no unetd, and none could be
 * started; EPERM: the program was executed with more rights than its user has (set-user-ID,
 * capabilities of its file); ENOMEM: there is no memory, or RLIMIT_AS leaves too little address
 * space. */
UNET_API int unet_socket(int domain, int type, int protocol);
UNET_API int unet_close(int sock);
UNET_API int unet_shutdown(int sock, int how);

/* Port 0: the kernel chooses. */
UNET_API int unet_bind(int sock, const struct sockaddr *addr, socklen_t len);
UNET_API int unet_getsockname(int sock, struct sockaddr *addr, socklen_t *len);
UNET_API int unet_getpeername(int sock, struct sockaddr *addr, socklen_t *len);

/* A socket that is not bound gets a port, as on Linux. EADDRINUSE. */
UNET_API int unet_listen(int sock, int backlog);
/* ENOBUFS: the connection's channel could not be had within 5 s; the connection stays where
 * it is. */
UNET_API int unet_accept(int sock, struct sockaddr *addr, socklen_t *len);
/* flags: SOCK_NONBLOCK, SOCK_CLOEXEC (no effect). */
UNET_API int unet_accept4(int sock, struct sockaddr *addr, socklen_t *len, int flags);
/*
 * Non-blocking: EINPROGRESS, then POLLOUT, then SO_ERROR; EALREADY meanwhile. Blocking: as long as
 * SO_SNDTIMEO allows, then EINPROGRESS. ECONNREFUSED, ENETUNREACH: see above. EADDRNOTAVAIL: no
 * client port is left. A UDP socket can be connected before somebody has the port, and again;
 * AF_UNSPEC undoes it.
 */
UNET_API int unet_connect(int sock, const struct sockaddr *addr, socklen_t len);

/* ---- data ---- */

/*
 * Flags: MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, MSG_TRUNC, MSG_OOB, MSG_MORE, MSG_NOSIGNAL. A
 * blocking send to a TCP socket returns when all is taken; SO_SNDTIMEO and SO_RCVTIMEO bound the
 * wait, and EAGAIN says that it is over. A blocking receive waits for SO_RCVLOWAT bytes. Control
 * messages are neither read nor made.
 *
 * UDP: a datagram is up to 65507 bytes (EMSGSIZE). A full channel to the receiver's process holds
 * the sender up, or is EAGAIN, and nothing is lost by it; a full receive buffer drops and counts.
 */
UNET_API ssize_t unet_send(int sock, const void *buf, size_t n, int flags);
UNET_API ssize_t unet_recv(int sock, void *buf, size_t n, int flags);
UNET_API ssize_t unet_sendto(int sock, const void *buf, size_t n, int flags,
                             const struct sockaddr *to, socklen_t tolen);
UNET_API ssize_t unet_recvfrom(int sock, void *buf, size_t n, int flags, struct sockaddr *from,
                               socklen_t *fromlen);
UNET_API ssize_t unet_sendmsg(int sock, const struct msghdr *msg, int flags);
UNET_API ssize_t unet_recvmsg(int sock, struct msghdr *msg, int flags);
UNET_API ssize_t unet_readv(int sock, const struct iovec *iov, int n);
UNET_API ssize_t unet_writev(int sock, const struct iovec *iov, int n);

/* Several messages; returns how many were moved, an error only when it was none. recvmmsg:
 * MSG_WAITFORONE waits for the first alone. The timeout counts from the call and ends it also when
 * nothing comes, which Linux promises in vain. */
UNET_API int unet_sendmmsg(int sock, struct mmsghdr *msgs, unsigned n, int flags);
UNET_API int unet_recvmmsg(int sock, struct mmsghdr *msgs, unsigned n, int flags,
                           const struct timespec *timeout);

/* Up to n bytes of a file (any descriptor that pread(2) takes) from *off, which moves on, or from
 * the file's position when off is NULL. The file is read straight into the frames that are sent.
 * TCP only. Bytes sent, 0 at the file's end. */
UNET_API ssize_t unet_sendfile(int sock, int fd, off_t *off, size_t n);

/* ---- options and queries ---- */

/*
 * Options with Linux's types, lengths and errors:
 *   SOL_SOCKET   SO_SNDBUF SO_RCVBUF (and FORCE) SO_ERROR SO_TYPE SO_DOMAIN SO_PROTOCOL
 *                SO_ACCEPTCONN SO_KEEPALIVE SO_LINGER SO_REUSEADDR SO_REUSEPORT SO_RCVTIMEO
 *                SO_SNDTIMEO SO_RCVLOWAT SO_OOBINLINE SO_MAX_PACING_RATE SO_INCOMING_CPU
 *                SO_NO_CHECK SO_MEMINFO
 *   IPPROTO_TCP  TCP_NODELAY TCP_CORK TCP_QUICKACK TCP_MAXSEG TCP_CONGESTION TCP_INFO TCP_KEEPIDLE
 *                TCP_KEEPINTVL TCP_KEEPCNT TCP_SYNCNT TCP_LINGER2 TCP_DEFER_ACCEPT TCP_WINDOW_CLAMP
 *                TCP_SAVE_SYN TCP_SAVED_SYN
 *                TCP_USER_TIMEOUT TCP_NOTSENT_LOWAT TCP_RTO_MIN_US TCP_RTO_MAX_MS TCP_DELACK_MAX_US
 *                TCP_FASTOPEN TCP_FASTOPEN_CONNECT TCP_FASTOPEN_NO_COOKIE TCP_FASTOPEN_KEY, as
 *                net.ipv4.tcp_fastopen allows
 *   IPPROTO_IP   IP_TOS IP_TTL IP_MTU_DISCOVER IP_MTU (UDP)
 *   IPPROTO_IPV6 IPV6_V6ONLY IPV6_TCLASS IPV6_UNICAST_HOPS
 * A listener's are inherited by what it accepts. ENOPROTOOPT: no such option.
 */
UNET_API int unet_setsockopt(int sock, int level, int name, const void *val, socklen_t len);
UNET_API int unet_getsockopt(int sock, int level, int name, void *val, socklen_t *len);
/* FIONREAD (SIOCINQ), SIOCOUTQ, SIOCOUTQNSD, SIOCATMARK, FIONBIO. ENOTTY. */
UNET_API int unet_ioctl(int sock, unsigned long request, int *arg);
UNET_API int unet_set_nonblock(int sock, int on);
UNET_API int unet_get_nonblock(int sock);

/* ---- readiness ---- */

/* One of the library's sockets, or a kernel descriptor; the one that is not meant is -1. Both
 * -1: ignored. */
struct unet_pollfd {
        int sock;
        int fd;
        short events;  /* as poll(2): POLLIN, POLLOUT, POLLPRI, POLLRDHUP */
        short revents; /* these, POLLERR, POLLHUP, and POLLNVAL for what is not open */
};
/* As poll(2) and ppoll(2). */
UNET_API int unet_poll(struct unet_pollfd *v, unsigned n, int timeout_ms);
UNET_API int unet_ppoll(struct unet_pollfd *v, unsigned n, const struct timespec *timeout,
                        const sigset_t *mask);

/*
 * Poll sets: sockets are added once, and a wait costs by those that are ready, as with epoll(7). A
 * member is level-triggered. With UNET_EDGE it is reported once for each arrival of input or of
 * room to send. With UNET_ONESHOT it is reported once, and then silent until it is modified.
 * Closing a socket takes it out of all sets. After fork the child's sets are empty. Threads may
 * wait in one set together; an edge or one-shot event goes to one of them.
 */
#define UNET_EDGE    0x80000000u
#define UNET_ONESHOT 0x40000000u

struct unet_pollset;

struct unet_event {
        uint32_t events; /* POLLIN, ... */
        uint64_t data;   /* as given when it was added */
};

/* NULL and errno when it cannot be made. A set that is NULL is EINVAL, or nothing to destroy. */
UNET_API struct unet_pollset *unet_pollset_create(void);
UNET_API void unet_pollset_destroy(struct unet_pollset *set);
/* EEXIST; ENOENT (mod, del); EBADF. The second form is for the kernel's descriptors, which leave a
 * set as they leave an epoll set; EPERM: one that cannot be polled. */
UNET_API int unet_pollset_add(struct unet_pollset *set, int sock, uint32_t events, uint64_t data);
UNET_API int unet_pollset_mod(struct unet_pollset *set, int sock, uint32_t events, uint64_t data);
UNET_API int unet_pollset_del(struct unet_pollset *set, int sock);
UNET_API int unet_pollset_add_fd(struct unet_pollset *set, int fd, uint32_t events, uint64_t data);
UNET_API int unet_pollset_mod_fd(struct unet_pollset *set, int fd, uint32_t events, uint64_t data);
UNET_API int unet_pollset_del_fd(struct unet_pollset *set, int fd);
/* Up to max events, starting with those that were passed over last time; 0 after the timeout (-1:
 * none). EINTR, EINVAL. */
UNET_API int unet_pollset_wait(struct unet_pollset *set, struct unet_event *ev, int max,
                               int timeout_ms);

/* ---- what the kernel does not give ---- */

/* What keeps a sender from sending more, now. */
enum unet_limit {
        UNET_LIMIT_NONE,   /* nothing: it is sending */
        UNET_LIMIT_APP,    /* the application has given no more data */
        UNET_LIMIT_RWND,   /* the receiver's window */
        UNET_LIMIT_CWND,   /* the congestion window */
        UNET_LIMIT_NIQ,    /* the interface's send queue is full */
        UNET_LIMIT_SNDBUF, /* the send buffer is too small for what is in flight */
        UNET_LIMIT_PACING,
        /* The peer has acknowledged what fills the send buffer, and has not read it. */
        UNET_LIMIT_PEER,
        UNET_LIMIT_CLAMP, /* unet_flow.send_window (<unet/flow.h>) */
        UNET_LIMITS
};
UNET_API const char *unet_limit_name(enum unet_limit limit); /* "receiver window" */

/* Everything a TCP sender knows. Bytes and nanoseconds; times of day are those of
 * CLOCK_MONOTONIC. */
struct unet_feedback {
        const char *state;      /* as RFC 9293 prints it: "ESTABLISHED" */
        const char *congestion; /* "cubic" */
        uint32_t cwnd, ssthresh;
        uint32_t snd_wnd, rcv_wnd;  /* the peer's window, and the one we offer */
        uint32_t mss;               /* largest payload of a segment to the peer */
        uint32_t in_flight, unsent; /* sent and not acknowledged; accepted and not sent */
        uint32_t unread;            /* received and not read */
        uint32_t sndbuf, rcvbuf;    /* limits of the buffers now */
        uint32_t memory;            /* frames charged to the connection */
        int64_t srtt, rttvar, rto, min_rtt;
        uint64_t bytes_sent, bytes_acked, bytes_received, bytes_retrans;
        uint64_t segs_out, segs_in, segs_retrans;
        uint64_t delivery_rate; /* bytes a second, 0: not known yet */
        uint32_t ca_state;      /* 0 open, 1 disorder, 3 recovery, 4 loss */
        uint32_t niq_room;      /* messages that the interface's send queue takes now */
        int64_t last_sent, last_received;
        enum unet_limit limit;
        int64_t limited[UNET_LIMITS]; /* time spent so far under each */
};
/* ENOTCONN: not a TCP socket that was ever connected. */
UNET_API int unet_feedback(int sock, struct unet_feedback *f);

/* Buffers of exactly this size, in bytes, without SO_SNDBUF's doubling; 0: the stack sizes it by
 * itself. TCP's receive buffer is data, and so the largest window offered; the others count
 * whole frames. */
UNET_API int unet_set_buffers(int sock, uint32_t sndbuf, uint32_t rcvbuf);
UNET_API int unet_get_buffers(int sock, uint32_t *sndbuf, uint32_t *rcvbuf);

#ifdef __cplusplus
}
#endif

#include <unet/tsan.h>

#endif
