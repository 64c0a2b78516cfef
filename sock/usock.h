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
 * Library code is entered and left with usock_enter()/usock_leave(): signals that arrive inside are
 * deferred until leave (iperf3 longjmps out of its handler). The hooks set up by the shim; the
 * native API leaves signals alone.
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
 * before: it keeps the address and port that it was bound to; NULL: it was not. */
void usock_connect_undo(struct usock *s, const ip_addr *bound);
/* connect() to AF_UNSPEC: the connection, however far it has come, is reset; then as that. */
void usock_disconnect(struct usock *s, const ip_addr *bound);
/* The same of a UDP socket: it has no peer, and the local address that it was bound to; NULL: the
 * one that it can be reached by. */
void usock_udp_disconnect(struct usock *s, const ip_addr *bound);
/* ... and it has lost the port that it had. What has come can be read all the same. */
void usock_udp_unbind(struct usock *s);
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
/*
 * recvmmsg() of a UDP socket, where it is quicker: what a device has brought for it goes to the
 * program at once. Who asks so reads what is queued with USOCK_BATCH among the flags, so that no
 * more is queued meanwhile. v is the program's: up to n messages, from which everything is read and
 * to which everything is written here. How many came; 0: usock_recvmsg() says what there is;
 * -EFAULT.
 */
ssize_t usock_recv_straight(struct usock *s, struct mmsghdr *v, uint32_t n, int flags);
/* The same for one buffer and a connected socket: the fast path. */
ssize_t usock_send(struct usock *s, const void *p, size_t n, int flags);
/* The kernel's socket has not kept what usock_sendmsg() left to it with MSG_MORE or UDP_CORK. */
void usock_udp_kernel_uncorked(struct usock *s);
/* A call with MSG_ZEROCOPY took bytes: copied they are, and the error queue will tell so, where
 * SO_ZEROCOPY is set. */
void usock_zerocopy_sent(struct usock *s);
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

/* ---- readiness and waiting ---- */

/* poll(2) events now, without progress and without the lock; only our side of a double socket.
 * USOCK_POLL_SOME beside them: a stream has something to read, be it less than SO_RCVLOWAT; what a
 * call waits for that reads in pieces. USOCK_POLL_MADE: its connecting is over; there may be no
 * room to write already, when another thread was quick. */
#define USOCK_POLL_SOME 0x0800
#define USOCK_POLL_MADE 0x1000
/* ... and USOCK_POLL_KEPT beside POLLERR: only the error queue has something, which no call that
 * reads or writes fails of. */
#define USOCK_POLL_KEPT 0x4000
short usock_poll(struct usock *s);
/* Bytes that a stream takes now, unless somebody else's come first. */
size_t usock_send_room(struct usock *s);
/* The same, asked only whether a read would not wait (data, end, error, a connection to
 * accept). Cheaper. */
bool usock_readable(struct usock *s);
/* A count that changes whenever a socket of its stack may have become readable that was not; NULL
 * for a socket of which this is not so: datagrams are seen before they are told of. */
const _Atomic uint32_t *usock_told_by(const struct usock *s);
/* Edges for EPOLLET: counts that grow whenever input (data, EOF, error, accept) or output room
 * newly appears. */
void usock_edges(struct usock *s, uint32_t *in, uint32_t *out);
/* Runs the stacks of this process once: input, timers, output. Cheap when there is nothing (some 40
 * ns); true: there was something. */
bool usock_progress(void);
/* The same, unless this thread did it within the last 20 to 30 us: for callers who look at what is
 * ready already, and go on to usock_wait() when nothing is. */
void usock_progress_if_due(void);
/* The processor's own clock: cheap, and good enough for "some 20 to 50 us". */
static inline uint64_t usock_ticks(void)
{
#if defined(__x86_64__)
        return __builtin_ia32_rdtsc();
#else
        uint64_t t;

        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
        return t;
#endif
}
#if defined(__x86_64__)
#define USOCK_TICKS_EVERY 60000u /* 20 to 30 us at 2 to 3 GHz */
#else
#define USOCK_TICKS_EVERY 750u /* 30 us at the usual 25 MHz */
#endif

struct usock_item {
        struct usock *s; /* ours, or NULL */
        int fd;          /* the kernel's, or -1; with s set: the other side of a double socket */
        short events;    /* asked, as poll(2); POLLERR and POLLHUP always */
        short revents;   /* of our side; of the kernel's side for items with only fd */
        short krevents;  /* kernel's side, when both are set */
        bool call;       /* a call that reads or writes waits, not a poll */
        bool exclusive;  /* it is enough when one of those who wait so is woken */
        /* The only one, of a call that takes from devices itself: what is there it finds. */
        bool device;
        bool asked; /* the only one, of a call that asks the kernel itself, and just has */
        /* Who asks looks by himself: with this one ready those behind it need not be looked at. */
        bool enough;
};
/*
 * Progress, then returns how many items have events; sleeps until there is one, the timeout
 * (relative; <0 for ever; 0 only looks) or a signal (-EINTR). Spins first when it pays. `mask`:
 * signal mask while asleep, NULL: unchanged. With our items ready the kernel's are looked at only
 * now and then; before sleeping always.
 */
int usock_wait(struct usock_item *v, int n, nstime timeout, const sigset_t *mask);
/* Who gets signals of the socket (fcntl(2), F_SETOWN_EX): a process, or one thread of it, or less
 * than 0: a group; 0: nobody. SIGURG always, SIGIO with `async`. */
void usock_set_owner(struct usock *s, int32_t owner, uint32_t tid, bool async);
/* Bytes of address space that the library has in this process, with room for a few more channels;
 * `keep_to`: more do not come about from now on. 0: it has no stack. */
uint64_t usock_address_space(bool keep_to);
/* The program has set its RLIMIT_NOFILE. */
void usock_numbers_limited(void);
/*
 * Poll sets: which sockets had events since one looked last, so that the others need not be looked
 * at. `fn` is called for each (again for each event) of the stack; sock 0: for all that wait for
 * room to send. False: too many events have passed, look at every socket. Position is per stack of
 * usock_stacks(); all zero at first.
 */
struct usock_news {
        uint32_t nstacks;
        uint32_t count[16];
};
bool usock_news(struct usock_news *at, void (*fn)(void *arg, void *stack, uint32_t sock),
                void *arg);
/* As usock_wait, and returns when there is news since `at`, counted as one more item. */
int usock_wait_news(const struct usock_news *at, struct usock_item *v, int n, nstime timeout,
                    const sigset_t *mask);
/*
 * Somebody else's event loop sleeps for a poll set (usock_outside.c), on the descriptor: with any
 * news since `seen` it becomes readable, once, until it is armed again. False: the stack has no
 * place for it.
 */
struct usock_outside;
struct usock_outside *usock_outside_make(void);
int usock_outside_fd(const struct usock_outside *o);
bool usock_outside_arm(struct usock_outside *o, const struct usock_news *seen);
/* It becomes readable now. */
void usock_outside_ring(struct usock_outside *o);
void usock_outside_end(struct usock_outside *o);
/* In the child of a fork: it was the parent's. */
void usock_outside_forked(struct usock_outside *o);
/* A datagram socket that could not send, and now can: an edge that no event tells of, if it was for
 * want of a frame, or there was room before anybody waited. True once. */
bool usock_unblocked(struct usock *s);
/* It could not send, and has not since. That it became so is news. */
bool usock_blocked(const struct usock *s);
/* What usock_news() calls a socket. */
void *usock_stack(const struct usock *s);
uint32_t usock_number(const struct usock *s);
/* News about the socket though nothing happened to it: whoever waits for news looks. */
void usock_nudge(struct usock *s);
/* A call that waits so, in accept() or for a datagram, takes what it is woken for: for each that
 * comes one is enough. */
bool usock_is_taken_by_one(struct usock *s, short events);
/* One socket: 0 when an event of `events` (or error, hang-up) is there, -EAGAIN after the
 * timeout, -EINTR. */
int usock_wait1(struct usock *s, short events, nstime timeout);

/* SO_TIMESTAMPING: flags that ask for times of sending, which only the kernel's socket tells. */
#define USOCK_STAMPS_OF_SENDING                                                                    \
        (SOF_TIMESTAMPING_TX_HARDWARE | SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_SCHED | \
         SOF_TIMESTAMPING_TX_ACK)

/* unetd's interfaces, as programs that list addresses see them. */
struct usock_iface {
        char name[16];  /* as the kernel calls it */
        uint32_t addr;  /* ours there, which the kernel does not know; IPv4, host order */
        uint8_t prefix; /* of addr's network */
        bool down;      /* by `unet if down` */
};
#define USOCK_IFACES 8u
/* How many there are. No unetd is started for it. */
unsigned usock_ifaces(struct usock_iface v[USOCK_IFACES]);

/* Whether an interface of unetd's has the name, which need not end with a zero, or there is
 * none (SO_BINDTODEVICE). */
bool usock_is_device(const char *name, socklen_t len);
/* The same by its number in the kernel, 0: none (SO_BINDTOIFINDEX). */
bool usock_is_device_number(int ifindex);

/* The kernel says that the name is taken: what dead processes left there ends. Whether it may be
 * free now. */
bool usock_port_settle(int kind, const struct sockaddr *sa, socklen_t len);

/* Whether the address is that of an interface of unetd's, which the kernel does not know. */
bool usock_is_iface_addr(const struct sockaddr *sa, socklen_t len);

/* Whether an interface of unetd's, which no other stack has, leads to the address, which is another
 * host's, or a group's; then our name there, port 0, as a socket of the family has it. `last`: the
 * kernel knows no way. s: NULL, or the socket. *why, if there is a reason to tell, says why not. */
bool usock_way_out(const struct usock *s, const struct sockaddr *to, socklen_t len, bool last,
                   int family, struct sockaddr *from, socklen_t *from_len, const char **why);

/* ---- inside and outside ---- */

struct usock_tls {
        int inside; /* depth of library calls of this thread */
        /* A signal was deferred; its handler runs at the outermost leave. */
        volatile sig_atomic_t pending;
        unsigned batch; /* 1 + datagrams since usock_batch_begin(); 0: none was begun */
        int turns;      /* of USOCK_TURNS_* (usock_turns.h) */
};
extern __thread struct usock_tls usock_tls __attribute__((tls_model("initial-exec")));
/* Set by the shim: runs deferred handlers; called with inside == 0 and may not return (longjmp). */
extern void (*usock_run_deferred)(void);

static inline void usock_enter(void)
{
        usock_tls.inside++;
}
static inline void usock_leave(void)
{
        if (--usock_tls.inside == 0 && unlikely(usock_tls.pending) && usock_run_deferred)
                usock_run_deferred();
}

/* Fork: called by the shim's or the library's atfork handlers. */
void usock_fork_prepare(void);
void usock_fork_parent(void);
void usock_fork_child(void);
/* Before exit and _exit: what is due goes out; the keeper goes on. */
void usock_exit(void);
/*
 * Before exec, the same. What this process holds ends with its image, as the keeper finds out; but
 * not the sockets named by usock_survives() after this. If the exec fails nothing has changed.
 */
void usock_exec(void);
void usock_survives(struct usock *s);
/* Who connects from now on finds no such listener; its connections, those that wait to be accepted
 * as well, are as they were. */
void usock_withdraw(struct usock *s);
/* In the new image: it has adopted what it found, and what else its former image held ends. */
void usock_adopted(void);

/* The program is about to lock itself in, and to forbid itself that (base/sandbox.h): what cannot
 * be made any more then is made, what cannot be looked after is given up. */
void usock_before_sandbox(uint32_t forbidden);

/* The user of a stack of this process is none of these, real, effective and saved: who has them
 * cannot become him again. */
struct usock_uids {
        uid_t real, effective, saved;
};
bool usock_gives_up_user(const struct usock_uids *to);
uid_t usock_user(const struct usock *s);
/* Leaves all stacks: they are not mapped any more and their descriptors closed, nor is there a
 * connection to unetd. No socket may be open in them, and no other thread inside. */
void usock_leave_user(void);

/* ---- relays: who carries a connection for a process that has left the stack
 * (usock_relay.c) ---- */

/* From now on this process carries it; what an earlier one had under way has gone. */
void usock_relay_begin(struct usock *s);
/* How often others have asked, by SIGURG, that what is under way goes; and all that was under way
 * then has gone. */
uint32_t usock_relay_asked(const struct usock *s);
void usock_relay_answer(struct usock *s, uint32_t asked);
/* Returns true if others find the listener in unetd's directory, or somebody waits in it, or is
 * about to. */
bool usock_expects(struct usock *s);
/* Other processes hold it. */
bool usock_is_shared(const struct usock *s);

/* A thread is about to go to another network namespace. */
void usock_netns_changes(void);

/* mlockall(), but for what is the library's, which is large and hardly touched. 0 or -errno. */
int usock_lock_memory(int flags);

/* The application closes all its descriptors (closefrom): numbers that are the library's own. */
bool usock_owns_fd(int fd);

#endif
