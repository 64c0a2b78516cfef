/*
 * The native API (<unet/sock.h>) from inside: the table of sockets, and what its files share.
 *
 * A number leads to a slot, which has one usock. A call holds the slot while it runs, so that a
 * close in another thread takes effect when it returns. Slots are never freed: a stale number finds
 * one that is closed, or another socket's.
 *
 *      number --> slot --us--> struct usock
 *                  |
 *                  +--members--> memberships in poll sets
 *
 * Functions here return negative errno, as usock.h; native_result() makes -1 and errno of it at the
 * very end.
 */
#ifndef SOCK_NATIVE_H
#define SOCK_NATIVE_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <time.h>

#include "sock/attach/handle.h"
#include "sock/attach/ustack.h"
#include "tcp/tcp_watch.h"
#include "unet/sock.h"

struct native_cookies;
struct native_member;

struct native_slot {
        _Atomic uint32_t use; /* calls under way, +1 while open, and the two bits below */
        int number;
        struct usock *us;
        _Atomic int late_err; /* met after some bytes were moved: for the next call */
        /* One thread at a time binds, listens or connects, as long as that does not wait. It guards
         * `connecting`, `held` and `held_addr`, too. */
        pthread_mutex_t setup;
        bool connecting;               /* its outcome has not been told yet */
        bool held;                     /* the port is held in the kernel by unetd */
        ip_addr held_addr;             /* as bound; connect may choose a narrower one */
        struct native_member *members; /* under the lock of memberships */
        /* What unet_send_reserve() handed out; under the stack's lock. */
        struct native_reserved *reserved;
        /* Of unet_memory_send(); made under the stack's lock, and there until the end. */
        struct native_cookies *cookies;
        /* What this process has taken of what happened (unet_watch_take()); WRITE_ONCE(). */
        struct tcp_watch_counts seen;
};

enum { SLOT_OPEN = 1u << 31, SLOT_CLOSING = 1u << 30, SLOT_ENDING = 1u << 29 };

/* ---- native.c ---- */

/* Before the first socket or poll set. -errno: the process can have no stack. */
int native_start(void);
/* The slot of an open socket, held; NULL: -EBADF. */
struct native_slot *native_get(int sock);
void native_put(struct native_slot *n);
/* A slot for a new socket, which it takes; its number. -EMFILE; us is closed then. */
int native_install(struct usock *us, bool nonblock);
/* Binds to a free port unless it is bound. Under setup, but for who finds that it is. */
int native_autobind(struct native_slot *n);
/* A rule of the configuration keeps it, with the name that it has, off the fabric: -EACCES, as
 * there is no kernel's socket. */
bool native_rule(struct native_slot *n);
/* Nobody on the fabric has the address, or a route of the kernel's refuses it: what that says, else
 * -ECONNREFUSED when it is this host's, and -ENETUNREACH. */
int native_nobody(int kind, const struct sockaddr *to, socklen_t len);

/* All sockets of this process end, as by unet_close() without a word of SO_LINGER. No other thread
 * may be inside. */
void native_close_all(void);
/* In a child that has not come to its parent's stacks (ustack_has_parents()): nothing of them stays
 * here. What is of the heap is not freed. */
void native_forsake_all(void);

static inline ssize_t native_result(ssize_t r)
{
        if (likely(r >= 0))
                return r;
        errno = (int)-r;
        return -1;
}

/* The end of a call whose slot is `n` (NULL: there is none). */
static inline ssize_t native_done(struct native_slot *n, ssize_t r)
{
        if (likely(n != NULL))
                native_put(n);
        return native_result(r);
}

/* A name that an application gives: 0, -EINVAL, -EFAULT. NULL is the one bad pointer that is told
 * from a good one. */
static inline int native_name(const struct sockaddr *sa, socklen_t len)
{
        if (len > sizeof(struct sockaddr_storage))
                return -EINVAL;
        return sa == NULL && len > 0 ? -EFAULT : 0;
}

/* Nanoseconds of a valid time, as long as there is no longer one. */
static inline nstime native_time(const struct timespec *t)
{
        return t->tv_sec < NSTIME_NEVER / 4 / NS_PER_S ? t->tv_sec * NS_PER_S + t->tv_nsec
                                                       : NSTIME_NEVER / 4;
}

static inline bool native_time_valid(const struct timespec *t)
{
        return t->tv_sec >= 0 && t->tv_nsec >= 0 && t->tv_nsec < NS_PER_S;
}

/* When a wait that may take `timeout` (0: for ever) is over. */
static inline nstime native_deadline(nstime timeout)
{
        return timeout == 0 ? NSTIME_NEVER : ustack_now() + timeout;
}

/* Sleeps until one of `events` is there. 0; -EAGAIN at the deadline; -EINTR. */
int native_wait(struct native_slot *n, short events, nstime deadline);
/* usock_wait_recv() until the deadline. */
int native_wait_recv(struct native_slot *n, nstime deadline, const struct iovec *to, int flags,
                     ssize_t *got);

static inline bool native_nowait(const struct native_slot *n, int flags)
{
        return (flags & MSG_DONTWAIT) || usock_nonblock(n->us);
}

/* ---- native_conn.c ---- */

/* A connected UDP socket whose peer nobody was: looks again. 0, or as native_nobody(). */
int native_reconnect(struct native_slot *n);
/* A message with MSG_FASTOPEN: connects a TCP socket first, and with a cookie of the peer's the
 * message goes in the SYN. */
int native_connect_to_send(struct native_slot *n, const struct sockaddr *sa, socklen_t len,
                           int flags);

/*
 * Structs of the application's that begin with their size, as they are in its version of the
 * header: `first` bytes there were in the first one. What a shorter one does not have is 0; what a
 * longer one has besides must be. -EFAULT, -EINVAL.
 */
#define NATIVE_STRUCT_MOST 4096u
int native_take_struct(void *ours, size_t size, size_t first, const void *theirs);
/* As long as theirs is, whose size has been looked at. */
void native_give_struct(const void *ours, size_t size, void *theirs);

/* ---- native_watch.c ---- */

/* UNET_EV_* of a watch that are there, without a lock. */
uint32_t native_watch_events(struct native_slot *n);
/* Of those the ones that came since this was asked last with the same counts, which move on. */
uint32_t native_watch_edges(struct native_slot *n, struct tcp_watch_counts *at, uint32_t *given);

/* ---- native_flow.c ---- */

/* The socket with its stack's lock, of TCP, or NULL and -errno at *err; and back, with
 * the result. */
struct native_slot *native_enter(int sock, int *err);
int native_leave(struct native_slot *n, int err);
/* The call by which the application gets a struct of such a socket: `ours` is taken from theirs
 * (native_take_struct()), completed by fill(), and given back if that returns 0. */
int native_get_struct(int sock, void *ours, size_t size, size_t first, void *theirs,
                      int (*fill)(struct native_slot *n, void *ours));
/* Under the lock: its connection, or NULL. */
static inline struct tcp_conn *native_conn(struct usock *s)
{
        return usock_rec(s)->role == SOCK_ROLE_CONN ? usock_conn(s) : NULL;
}

/* ---- native_lend.c ---- */

/* The slot's reservation, which ends with its socket. */
void native_unreserve(struct native_slot *n);
/* Reserves what this process writes without the lock: no other may meanwhile. Bytes; 0: there is
 * no room; -errno. And what of it is sent, on the connection that it was reserved on: the socket's
 * may be another one by then. Bytes that go. Under the lock. */
int native_reserve(struct usock *s, size_t want, struct span *span, int n);
int native_commit(struct usock *s, uint32_t conn, size_t bytes, int flags);
/* The slot is closed: it is not sent either. */
void native_end_reserved(struct native_slot *n);

/* ---- native_memory.c ---- */

/* Of the slot's cookies: a count that grows when one becomes ready, and whether *any is. Without a
 * lock. */
uint32_t native_cookies_ready(const struct native_slot *n, bool *any);
void native_cookies_end(struct native_slot *n);

/* ---- native_user.c ---- */

/* Those of libc's that give up a user or capabilities. */
void native_find_calls(void);
/* Returns true if this thread is in another network namespace than the stack, which has no sockets
 * for it. */
bool native_is_elsewhere(void);

/* ---- native_set.c ---- */

/* The socket ends: out of all sets. */
void native_set_forget(struct native_slot *n);
void native_set_fork_prepare(void);
void native_set_fork_parent(void);
void native_set_fork_child(void);
/* Sets go on, empty, when the process leaves its stacks. */
void native_set_leave(void (*leave)(void));

#endif
