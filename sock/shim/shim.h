/*
 * The LD_PRELOAD shim, from inside: what its files share.
 *
 * Every socket the program makes is a real kernel socket, whose number the program holds. Beside
 * the numbers we keep a table: number -> struct file, the open file description as the program sees
 * it. A number without an entry is the kernel's alone, and costs a hook one load and one compare.
 *
 *   number --tab[]--> struct file --us--> struct usock (ours)
 *      dup shares         |
 *                         +--kfd--> one of its numbers
 *                         +--items--> memberships in epoll sets
 *
 * Modes of a socket:
 *
 *   NEW     undecided; the kernel's so far
 *   TCP     ours: connecting, connected
 *   LISTEN  both sides
 *   UDP     both sides
 *   KERNEL  decided: the kernel's
 *
 * A file is this process's view; what the socket has become others may decide who have it, too
 * (share.c).
 *
 * Life. refs counts the numbers that name a file, plus the calls under way in threaded programs;
 * the last one gone, the file ends. Memory of files is never unmapped and never changes its type,
 * so a stale pointer may be looked at. A threaded call takes its reference by compare-and-swap from
 * a count that is not zero. Then it checks that the number still means this file. A program with
 * one thread needs none of that: nobody can close a number under it, handlers of signals included,
 * as these are put off while we are inside (signal.c).
 *
 * Numbers. Every hooked call that closes, replaces or returns a number voids what we knew of it. A
 * number closed by an inline system call, unseen by any hook, stays ours until a hooked call
 * returns it anew; nothing in between can tell the difference but the peer, who sees the end late.
 *
 * Every call: file_enter(), work, file_leave(), in that order around the reference too: handlers
 * run in file_leave(), after which nothing of ours is held, and may longjmp away.
 *
 * Locks: shim.lock for files changing mode and for memberships, then the lock of one epoll set.
 * Nobody sleeps under either.
 */
#ifndef SHIM_SHIM_H
#define SHIM_SHIM_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/single_threaded.h>

#include "sock/shim/real.h"
#include "base/sys.h"
#include "sock/attach/user.h"
#include "sock/usock.h"
#include "sock/usock_process.h"
#include "sock/usock_ready.h"

struct epoll_set;
struct epoll_item;
struct opt_log;
struct relayed;

/* In this order: a call that is about ours asks for MODE_TCP and above. */
enum file_mode { MODE_EPOLL, MODE_KERNEL, MODE_NEW, MODE_TCP, MODE_LISTEN, MODE_UDP };

/* When the kernel's side is thought of: kernel_turn(). */
struct kernel_pace {
        uint64_t asked;     /* ticks, when it was its turn */
        uint8_t left, step; /* calls until the clock is looked at, now and after that */
};

struct file {
        _Atomic uint32_t refs;
        uint8_t mode; /* enum file_mode */
        uint8_t kind; /* USOCK_TCP, USOCK_UDP */
        sa_family_t family;
        bool nonblock; /* O_NONBLOCK as the program set it, before there is `us`: file_nonblock() */
        bool placeholder; /* the kernel socket is a copy of shim.placeholder */
        bool bound;       /* explicitly */
        bool connecting;  /* connect() is under way and has not been reported yet */
        bool connected;   /* UDP: has a peer */
        bool stamped;     /* TCP: times of sending are asked for (SO_TIMESTAMPING) */
        bool out;      /* UDP: ... by an interface of unetd's, so that the kernel knows no peer */
        bool spawned;  /* a child of posix_spawn() may have it, and adopt it when it likes */
        bool signals;  /* it has or had an owner or O_ASYNC */
        bool told;     /* a placeholder that the program knew of at the last fork */
        uint8_t spare; /* the kernel socket is lent: place + 1 (spare.c) */
        /* Nothing was done with the kernel socket, which is of that age; 0: not so. */
        uint32_t fresh;
        bool retry;       /* the kernel's for want of a peer; asked again at the next connect() */
        bool shared;      /* other processes have it, or may: share.c */
        uint32_t heard;   /* ... the last that this one heard or said of what it has become */
        _Atomic int nfds; /* numbers that name this file */
        _Atomic int pins; /* threads that are at these numbers: none is given up */
        int kfd;          /* one of them */
        struct usock *us; /* NULL in MODE_NEW and MODE_KERNEL */
        nstime rcvtimeo, sndtimeo;   /* 0: none */
        struct kernel_pace pace;     /* of what has two sides */
        struct epoll_item *items;    /* memberships; shim.lock */
        struct epoll_set *set;       /* MODE_EPOLL, NULL until it holds one of ours */
        _Atomic int kernel_sleepers; /* MODE_EPOLL: threads in libc's epoll_wait() */
        bool kernel_members;  /* MODE_EPOLL: it holds, or may hold, something of the kernel's */
        struct opt_log *opts; /* set before the decision */
        /* MODE_KERNEL: a connection that a relay carries (relay.h); NULL: not so. */
        struct relayed *relayed;
        const char *why; /* the decision's reason, for unet why */
        struct file *free_next;
};

static inline bool file_nonblock(const struct file *f)
{
        return f->us ? usock_nonblock(f->us) : f->nonblock;
}

struct shim {
        struct file *_Atomic *tab;
        unsigned size;            /* of tab; 0: not started */
        bool disabled;            /* UNET_DISABLE, set-uid */
        bool across_users;        /* UNET_ACROSS_USERS: privilege.c */
        int log;                  /* UNET_LOG */
        _Atomic unsigned top;     /* above every number that has or had an entry */
        _Atomic uint32_t changes; /* of the table: a number means something else than before */
        /* That may have made a descriptor of the kernel's ready: kernel_touched(). */
        _Atomic uint32_t kernel_calls;
        _Atomic uint32_t cancels; /* of threads, by the program: cancellation_point() */
        struct {
                _Atomic pthread_t thread;
                /* Of the cancellation that this is, counted from 1; written last. */
                _Atomic uint32_t number;
        } cancelled[16];               /* the last of them */
        _Atomic bool cancels_anywhere; /* a thread has asked to be cancelled wherever it is */
        int placeholder; /* kernel socket whose copies stand under accepted sockets, -1: not made */
        pthread_mutex_t lock;
};
extern struct shim shim;

/* Returns true if a thread holds shim.lock: what asserts that its caller does asks this. */
static inline bool shim_locked(void)
{
        return __atomic_load_n(&shim.lock.__data.__lock, __ATOMIC_RELAXED) != 0;
}

/*
 * What select() has found out about the first 64 numbers, for the next one. A program that selects
 * before every read asks for its listener and its quiet connections each time. usock_news() tells
 * when they change.
 */
struct select_memo {
        unsigned long idle; /* TCP sockets of one stack that had nothing to read, a bit a number */
        const _Atomic uint32_t *news; /* that stack's; NULL: none yet */
        uint32_t seen, changes;       /* *news and shim.changes before they were looked at */
        /* What was asked of the first n numbers last, if all but `fd` was idle; n 0: nothing. */
        unsigned long asked;
        int n, fd;
};

/*
 * When descriptors of the kernel's are looked at while something of ours is ready. Always, as the
 * kernel itself would do; but in a busy loop that has found nothing there KERNEL_FRUITLESS times,
 * by the clock.
 */
struct kernel_watch {
        struct kernel_pace pace;
        uint32_t seen;     /* what shim.kernel_calls was */
        uint8_t fruitless; /* how often in a row nothing was found */
};
#define KERNEL_FRUITLESS 64

struct shim_tls {
        bool held;                 /* the call under way holds a reference */
        bool handled;              /* a handler ran since wait_prepare() */
        bool restart;              /* ... and the first one had SA_RESTART */
        struct kernel_watch watch; /* poll() and select() */
        bool kernel_due;           /* it is their turn, and they have not been looked at yet */
        /* What shim.cancels was when this thread last asked whether it is meant. */
        uint32_t cancels;
        bool cancelled_inside; /* it is told when it is outside */
        bool hold_asked;       /* it answers then: hold.c */
        struct select_memo select;
};
extern __thread struct shim_tls shim_tls __attribute__((tls_model("initial-exec")));

/* ---- file.c: the table ---- */

/* Makes the table; first INET socket. False: nothing may be ours (disabled, no memory). */
bool shim_start(void);
/* Takes fd, just received or inherited, for one of ours when its kernel socket is. */
bool shim_adopt_fd(int fd);

/* A file in the table at fd with one number; NULL: no memory, or the number is out of range. */
struct file *file_new(int fd, enum file_mode mode);
/* One more number for it. */
void file_number(struct file *f, int fd);
/* The number means nothing to us any more: closed, replaced or returned anew by the kernel. */
void file_void(int fd);
/* The same before another call than close() ends the number. The last number of a connection waits
 * as SO_LINGER says. (number.c) */
void number_ends(int fd);
void file_unref(struct file *f);
/* A reference in a threaded program. */
struct file *file_ref_threaded(int fd);
/* Before fork, and after it in the child, where only this thread lives. */
void file_fork_prepare(void);
void file_fork_child(void);
/* Its last number goes: if a child that was spawned may have the socket, it lives on as if in
 * a message. */
void file_left_to_spawned(struct file *f);
/* Calls fn for every number that has an entry, which it keeps meanwhile. */
void file_each(void (*fn)(int fd, struct file *f, void *arg), void *arg);
/* ... for this one, if it has one. */
void file_at(int fd, void (*fn)(int fd, struct file *f, void *arg), void *arg);
/* For every open number, by /proc. */
void file_each_open(void (*fn)(int fd, void *arg), void *arg);
/* The kernel socket under it is made a real one, for what we cannot answer; -errno. */
int file_materialise(struct file *f);
/* The kernel's socket gets the O_NONBLOCK that the program has set: what is asked beside ours
 * never blocks. */
void file_keep_flags(int fd, const struct file *f);
/* ... and is made known to usock, for whoever gets a number of it by exec or by a message. */
void file_known_outside(struct file *f);
/* A number of the library's own, which the program has not opened and cannot close. */
bool shim_owns_fd(int fd);
/* Moves a kernel descriptor of ours out of the way of the numbers programs use; returns the
 * new number. */
int shim_high_fd(int fd);

/* Whether anything in this process may be ours. Only then is there a handler for bad pointers
 * (sock/attach/user.h): before, no hook looks at what the program passes, and the kernel says what
 * is wrong with it. */
static inline bool shim_started(void)
{
        return shim.size != 0;
}

static inline struct file *file_peek(int fd)
{
        if (unlikely((unsigned)fd >= shim.size))
                return NULL;
        return atomic_load_explicit(&shim.tab[fd], memory_order_acquire);
}

static inline bool file_both_sides(const struct file *f)
{
        return f->mode == MODE_LISTEN || f->mode == MODE_UDP;
}

/* ---- share.c: what a socket has become belongs to the socket, not to the process ---- */

/* From now on other processes may have it. An undecided one gets a record in the stack for that, or
 * is the kernel's. shim.lock held. */
void file_share(struct file *f);
/* It has become something: who else has it will hear of it. */
void file_say(struct file *f);
/* What others have made of it is so here, too. Inside; the second one with shim.lock held. */
void file_hear(struct file *f);
void file_hear_locked(struct file *f);
struct file *file_enter_shared(int fd, unsigned mode);
static inline void file_now(struct file *f)
{
        if (unlikely(f->shared))
                file_hear(f);
}

/* Enters the library with the file of fd, if it has one of at least this mode; NULL: libc's call is
 * the right one. */
static inline struct file *file_enter(int fd, unsigned mode)
{
        struct file *f = file_peek(fd);

        if (likely(!f) || usock_tls.inside)
                return NULL;
        if (unlikely(f->shared))
                return file_enter_shared(fd, mode);
        if (f->mode < mode)
                return NULL;
        usock_enter();
        if (!__libc_single_threaded) {
                f = file_ref_threaded(fd);
                if (!f || f->mode < mode) {
                        if (f)
                                file_unref(f);
                        usock_leave();
                        return NULL;
                }
                shim_tls.held = true;
        }
        return f;
}

/* Handlers that were put off run here and may not come back. */
static inline void file_leave(struct file *f)
{
        if (unlikely(shim_tls.held)) {
                shim_tls.held = false;
                file_unref(f);
        }
        usock_leave();
}

/* A call of libc's that gives out a number. Where the program has used up its own it is made once
 * more, without those that are kept for later. */
#define FD_TRY(call)                                                                \
        ({                                                                          \
                int fd_first = (call);                                              \
                unlikely(fd_first < 0) && spares_yield(-errno) ? (call) : fd_first; \
        })
/* An error of such a call. Returns true if it may go better now. (spare.c) */
bool spares_yield(int err);

/* A number the kernel just gave out. */
static inline int fd_returned(int fd)
{
        if (unlikely((unsigned)fd < shim.size && shim.tab[fd] && !usock_tls.inside))
                file_void(fd);
        return fd;
}

/* ---- results: inside, errors are negative errno; these two more never reach a program ---- */

#define ERR_RESTART 512 /* a signal came: EINTR, or once more when its handler has SA_RESTART */
#define ERR_AGAIN   513 /* woken for nothing the program may see: once more */

/* The value a hook returns. When it returns true instead, the call is to be made again. */
bool result_failed(ssize_t *r);
static inline bool result_again(ssize_t *r)
{
        return unlikely(*r < 0) && result_failed(r);
}
/* A call on the file ends, which is not made again. */
static inline int file_answer(struct file *f, ssize_t r)
{
        file_leave(f);
        result_again(&r);
        return (int)r;
}

#endif
