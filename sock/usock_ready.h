/*
 * Sockets that are ready, and waiting until they are: poll(2), epoll's edges, poll sets by news,
 * and the sleeps of the native API and the shim. (core/usock_ready.c, wait/)
 */
#ifndef SOCK_USOCK_READY_H
#define SOCK_USOCK_READY_H

#include <poll.h>
#include <signal.h>

#include "sock/usock.h"

/* poll(2) events now, without progress and without the lock; only our side of a double socket.
 * USOCK_POLL_SOME beside them: a stream has something to read, be it less than SO_RCVLOWAT; what a
 * call waits for that reads in pieces. USOCK_POLL_MADE: its connecting is over; there may be no
 * room to write already, when another thread was quick. */
#define USOCK_POLL_SOME 0x0800
#define USOCK_POLL_MADE 0x1000
/* ... and USOCK_POLL_KEPT beside POLLERR: only the error queue has something, which no call that
 * reads or writes fails of. */
#define USOCK_POLL_KEPT 0x4000
/* Bits that no program asks for, whatever it puts into `events`. */
#define USOCK_POLL_OWN (USOCK_POLL_SOME | USOCK_POLL_MADE | USOCK_POLL_KEPT)
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
 * ready already, and go on to usock_wait() when nothing is. Always in a process that talks to
 * itself: what it has just sent would be there over the kernel's loopback. */
void usock_progress_if_due(void);
/* Returns true if a stack of this process has had a channel to itself. */
bool usock_sends_itself(void);
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
        /* Of the first one: the caller asks the kernel itself, now and then, and just has. */
        bool asks, asked;
        bool answered; /* of the kernel's side: the end of a sleep has told how it is */
        /* The caller looks at all items itself: once this one is ready, the wait need not look at
         * those behind it. */
        bool enough;
        /* Of one item alone, may be NULL: takes what has come by the turn of this thread. Called
         * under the stack's lock, which it leaves. */
        void (*take)(struct usock_item *it, nstime now);
};
/*
 * Progress, then returns how many items have events; sleeps until there is one, the timeout
 * (relative; <0 for ever; 0 only looks) or a signal (-EINTR). Spins first when it pays. `mask`:
 * signal mask while asleep, NULL: unchanged. With our items ready the kernel's are looked at only
 * now and then; before sleeping always.
 */
int usock_wait(struct usock_item *v, int n, nstime timeout, const sigset_t *mask);
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
/* As usock_wait1(), of a stream that is read: what comes by a turn of this thread is received in
 * the same turn, as by usock_recv(). *got is what that returned, or -EAGAIN: call it. */
int usock_wait_recv(struct usock *s, short events, nstime timeout, const struct iovec *to,
                    int flags, ssize_t *got);

#endif
