/*
 * The LD_PRELOAD shim, from inside: what its files share.
 *
 * Every socket the program makes is a real kernel socket, whose number the program holds. Beside the numbers we keep a
 * table: number -> struct file, the open file description as the program sees it. A number without an entry is the
 * kernel's alone, and costs a hook one load and one compare.
 *
 *      number --tab[]--> struct file --us--> struct usock (ours)       modes of a socket:
 *         dup shares         |                                         NEW     undecided; the kernel's so far
 *                            +--kfd--> one of its numbers              TCP     ours: connecting, connected
 *                            +--items--> memberships in epoll sets     LISTEN  both sides
 *                                                                      UDP     both sides
 *                                                                      KERNEL  decided: the kernel's
 *
 * A file is this process's view; what the socket has become others may decide who have it, too (share.c).
 *
 * Life. refs counts the numbers that name a file, plus the calls under way in threaded programs; the last one gone,
 * the file ends. Memory of files is never unmapped and never changes its type, so a stale pointer may be looked at: a
 * threaded call takes its reference by compare-and-swap from a count that is not zero and then checks that the number
 * still means this file. A program with one thread needs none of that: nobody can close a number under it, handlers
 * of signals included, as these are put off while we are inside (signal.c).
 *
 * Numbers. Every hooked call that closes, replaces or returns a number voids what we knew of it. A number closed by
 * an inline system call, unseen by any hook, stays ours until a hooked call returns it anew; nothing in between can
 * tell the difference but the peer, who sees the end late.
 *
 * Every call: file_enter(), work, file_leave(), in that order around the reference too: handlers run in file_leave(),
 * after which nothing of ours is held, and may longjmp away.
 *
 * Locks: shim.lock for files changing mode and for memberships, then the lock of one epoll set. Nobody sleeps under
 * either.
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

struct epoll_set;
struct epoll_item;
struct opt_log;
struct relayed;

/* In this order: a call that is about ours asks for MODE_TCP and above. */
enum file_mode { MODE_EPOLL, MODE_KERNEL, MODE_NEW, MODE_TCP, MODE_LISTEN, MODE_UDP };

/* When the kernel's side is thought of: kernel_turn(). */
struct kernel_pace {
        uint64_t asked;                 /* ticks, when it was its turn */
        uint8_t left, step;             /* calls until the clock is looked at, now and after that */
};

struct file {
        _Atomic uint32_t refs;
        uint8_t mode;                   /* enum file_mode */
        uint8_t kind;                   /* USOCK_TCP, USOCK_UDP */
        sa_family_t family;
        bool nonblock;                  /* O_NONBLOCK as the program set it, before there is `us`: file_nonblock() */
        bool placeholder;               /* the kernel socket is a copy of shim.placeholder */
        bool bound;                     /* explicitly */
        bool connecting;                /* connect() is under way and has not been reported yet */
        bool connected;                 /* UDP: has a peer */
        bool out;                       /* UDP: ... by an interface of unetd's, so that the kernel knows no peer */
        bool spawned;                   /* a child of posix_spawn() may have it, and adopt it when it likes */
        bool signals;                   /* it has or had an owner or O_ASYNC */
        bool told;                      /* a placeholder that the program knew of at the last fork */
        uint8_t spare;                  /* the kernel socket is lent: place + 1 (spare.c) */
        uint32_t fresh;                 /* nothing was done with the kernel socket, which is of that age; 0: not so */
        bool retry;                     /* the kernel's for want of a peer; asked again at the next connect() */
        bool shared;                    /* other processes have it, or may: share.c */
        uint32_t heard;                 /* ... the last that this one heard or said of what it has become */
        _Atomic int nfds;               /* numbers that name this file */
        _Atomic int pins;               /* threads that are at these numbers: none is given up */
        int kfd;                        /* one of them */
        struct usock *us;               /* NULL in MODE_NEW and MODE_KERNEL */
        nstime rcvtimeo, sndtimeo;      /* 0: none */
        struct kernel_pace pace;        /* of what has two sides */
        struct epoll_item *items;       /* memberships; shim.lock */
        struct epoll_set *set;          /* MODE_EPOLL, NULL until it holds one of ours */
        _Atomic int kernel_sleepers;    /* MODE_EPOLL: threads in libc's epoll_wait() */
        bool kernel_members;            /* MODE_EPOLL: it holds, or may hold, something of the kernel's */
        struct opt_log *opts;           /* set before the decision */
        struct relayed *relayed;        /* MODE_KERNEL: a connection that a relay carries (relay.h); NULL: not so */
        const char *why;                /* the decision's reason, for unet why */
        struct file *free_next;
};

static inline bool file_nonblock(const struct file *f)
{
        return f->us ? usock_nonblock(f->us) : f->nonblock;
}

struct shim {
        struct file *_Atomic *tab;
        unsigned size;                  /* of tab; 0: not started */
        bool disabled;                  /* UNET_DISABLE, set-uid */
        bool across_users;              /* UNET_ACROSS_USERS: privilege.c */
        int log;                        /* UNET_LOG */
        _Atomic unsigned top;           /* above every number that has or had an entry */
        _Atomic uint32_t changes;       /* of the table: a number means something else than before */
        _Atomic uint32_t kernel_calls;  /* that may have made a descriptor of the kernel's ready: kernel_touched() */
        _Atomic uint32_t cancels;       /* of threads, by the program: cancellation_point() */
        struct {
                _Atomic pthread_t thread;
                _Atomic uint32_t number;        /* of the cancellation that this is, counted from 1; written last */
        } cancelled[16];                /* the last of them */
        _Atomic bool cancels_anywhere;  /* a thread has asked to be cancelled wherever it is */
        int placeholder;                /* kernel socket whose copies stand under accepted sockets, -1: not made */
        pthread_mutex_t lock;
};
extern struct shim shim;

/*
 * What select() has found out about the first 64 numbers, for the next one: a program that selects before every read asks
 * for its listener and its quiet connections each time, and what they are is told when it changes (usock_news).
 */
struct select_memo {
        unsigned long idle;             /* TCP sockets of one stack that had nothing to read, a bit a number */
        const _Atomic uint32_t *news;   /* that stack's; NULL: none yet */
        uint32_t seen, changes;         /* *news and shim.changes before they were looked at */
        unsigned long asked;            /* what was asked of the first n numbers last, if all but `fd` was idle; n 0: nothing */
        int n, fd;
};

/*
 * When descriptors of the kernel's are looked at while something of ours is ready. Always, as the kernel itself would do; but
 * in a busy loop that has found nothing there KERNEL_FRUITLESS times, by the clock.
 */
struct kernel_watch {
        struct kernel_pace pace;
        uint32_t seen;                  /* what shim.kernel_calls was */
        uint8_t fruitless;              /* how often in a row nothing was found */
};
#define KERNEL_FRUITLESS 64

struct shim_tls {
        bool held;                      /* the call under way holds a reference */
        bool handled;                   /* a handler ran since wait_prepare() */
        bool restart;                   /* ... and the first one had SA_RESTART */
        struct kernel_watch watch;      /* poll() and select() */
        bool kernel_due;                /* it is their turn, and they have not been looked at yet */
        uint32_t cancels;               /* what shim.cancels was when this thread last asked whether it is meant */
        bool cancelled_inside;          /* it is told when it is outside */
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
void file_unref(struct file *f);
/* A reference in a threaded program. */
struct file *file_ref_threaded(int fd);
/* Another of its numbers, kfd being closed; -1: none. */
int file_other_number(const struct file *f, int but);
/* Before fork, and after it in the child, where only this thread lives. */
void file_fork_prepare(void);
void file_fork_child(void);
/* Its last number goes: if a child that was spawned may have the socket, it lives on as if in a message. */
void file_left_to_spawned(struct file *f);
/* Calls fn for every number that has an entry, which it keeps meanwhile. */
void file_each(void (*fn)(int fd, struct file *f, void *arg), void *arg);
/* The kernel socket under it is made a real one, for what we cannot answer; -errno. */
int file_materialise(struct file *f);
/* The kernel's socket gets the O_NONBLOCK that the program has set: what is asked beside ours never blocks. */
void file_keep_flags(int fd, const struct file *f);
/* ... and is made known to usock, for whoever gets a number of it by exec or by a message. */
void file_known_outside(struct file *f);
/* A number of the library's own, which the program has not opened and cannot close. */
bool shim_owns_fd(int fd);
/* Moves a kernel descriptor of ours out of the way of the numbers programs use; returns the new number. */
int shim_high_fd(int fd);

/* Whether anything in this process may be ours. Only then is there a handler for bad pointers (sock/attach/user.h): before, no hook looks
 * at what the program passes, and the kernel says what is wrong with it. */
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

/* ---- share.c: what a socket has become belongs to the socket, not to the process ---- */

/* From now on other processes may have it. An undecided one gets a record in the stack for that, or is the kernel's. shim.lock held. */
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

/* Enters the library with the file of fd, if it has one of at least this mode; NULL: libc's call is the right one. */
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

/* A number the kernel just gave out. */
static inline int fd_returned(int fd)
{
        if (unlikely((unsigned)fd < shim.size && shim.tab[fd] && !usock_tls.inside))
                file_void(fd);
        return fd;
}

/* ---- spare.c: kernel sockets that are used again ---- */

/* A number for socket() of TCP over IPv4; -1: none, make one. Its place goes to spare_made() with the file of either, or
 * to spare_lost() if there is no file. */
int spare_take(int type, uint8_t *spare);
void spare_made(struct file *f, uint8_t spare);
void spare_lost(uint8_t spare);
/* The last number of a connection of ours is about to be closed. */
void spare_back(struct file *f, int fd);
/* Something is about to be done with the kernel's socket that a new one would not show. */
void spare_end(struct file *f);
static inline void spare_used(struct file *f)
{
        if (f->fresh != 0)
                spare_end(f);
}
void spares_fork_lock(void);
void spares_fork_unlock(void);
bool spares_own(int fd);

static inline bool file_both_sides(const struct file *f)
{
        return f->mode == MODE_LISTEN || f->mode == MODE_UDP;
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

/* ---- cancel.c ---- */

/* Does not return to a thread that is to end. */
void cancellation_asked(void);
/* At the beginning of every call that POSIX has as one and that may be about ours: libc's own does the same. */
static inline void cancellation_point(void)
{
        if (unlikely(atomic_load_explicit(&shim.cancels, memory_order_relaxed) != 0))
                cancellation_asked();
}
/* What went to sleep is known meanwhile; NULL: it need not be, or there is no room. */
struct sleeper;
struct sleeper *sleeper_enter(void);
void sleeper_leave(struct sleeper *s);
/* The thread may have something to ask about, and must not sleep. */
bool sleeper_was_cancelled(void);
/* Outside, with nothing of ours held: may not return. */
void cancelled_inside(void);
void cancel_fork_child(void);

/* ---- wait.c ---- */

/*
 * Is it the kernel's turn? At most once in some 100 us: its two calls take a microsecond. To look at the clock takes longer than
 * a short call, so it is done so seldom that nearly nothing of it is left, and often enough that the turn is not missed by much:
 * up to KERNEL_STEP calls in a row do not look, fewer where calls take longer.
 */
#define KERNEL_EVERY (4 * USOCK_TICKS_EVERY)
#define KERNEL_STEP 63
static inline bool kernel_turn_by_clock(struct kernel_pace *k)
{
        uint64_t now = usock_ticks(), passed = now - k->asked;
        bool due = passed >= KERNEL_EVERY;

        if (passed < KERNEL_EVERY / 2)
                k->step = (uint8_t)MIN(2 * k->step + 1, KERNEL_STEP);
        else if (passed >= 2 * (uint64_t)KERNEL_EVERY)
                k->step /= 2;
        if (due)
                k->asked = now;
        k->left = k->step;
        return due;
}
static inline bool kernel_turn(struct kernel_pace *k)
{
        if (unlikely(k->left == 0))
                return kernel_turn_by_clock(k);
        k->left--;
        return false;
}
/*
 * What the program itself does to a descriptor of the kernel's ends the fruitless time: a program that writes to a pipe finds
 * it readable. Threads that do so at once may lose a count, and find out by the clock.
 */
static inline void kernel_touched(void)
{
        if (shim.size)
                atomic_store_explicit(&shim.kernel_calls, atomic_load_explicit(&shim.kernel_calls, memory_order_relaxed) + 1,
                                      memory_order_release);
}
static inline bool kernel_news(struct kernel_watch *k)
{
        uint32_t now = atomic_load_explicit(&shim.kernel_calls, memory_order_acquire);

        if (likely(now == k->seen))
                return false;
        k->seen = now;
        k->fruitless = 0;
        return true;
}
static inline bool kernel_is_due(struct kernel_watch *k)
{
        return kernel_news(k) || k->fruitless < KERNEL_FRUITLESS || kernel_turn_by_clock(&k->pace);
}
static inline void kernel_answered(struct kernel_watch *k, bool something)
{
        k->fruitless = something ? 0 : (uint8_t)MIN(k->fruitless + 1, KERNEL_FRUITLESS);
}
/* When a call that waits is over. The clock is read when it first has to sleep: most calls find something before. */
struct until {
        nstime left;                    /* as asked for; <0: for ever, 0: only a look */
        nstime at;                      /* 0: the clock has not been read yet */
};
struct until until_ms(int timeout);
struct until until_ts(const struct timespec *ts);
/* Times that the kernel refuses, and its reason, are its own; so is a mask that is not there. */
static inline bool bad_time(const struct timespec *ts)
{
        return ts && (!user_read_range(ts, sizeof(*ts)) || ts->tv_sec < 0 || ts->tv_nsec < 0 || ts->tv_nsec >= NS_PER_S);
}
static inline bool bad_mask(const sigset_t *mask)
{
        return mask && !user_read_range(mask, sizeof(uint64_t));
}
/* Time left, as usock_wait() wants it. */
nstime until_left(struct until *u);
bool until_over(struct until *u);
static inline struct until until_timeo(nstime timeo)
{
        return (struct until){.left = timeo ? timeo : -1};
}
/*
 * Sleeps until our side or, of a socket with two, the kernel's has an event of `events`. 0, -EAGAIN when the time is
 * over, -EINTR, -ERR_RESTART, -ERR_AGAIN. until_timeo() makes an SO_RCVTIMEO or SO_SNDTIMEO a time to wait.
 */
int file_wait(struct file *f, short events, struct until *u);
/* The same for input, by who takes from devices itself (usock_recv_straight()): it may be nothing for it that has come. */
int file_wait_device(struct file *f, struct until *u);
/* The same for input, by who has just asked the kernel's side, and asks it again when its turn is (kernel_turn()). */
int file_wait_asked(struct file *f, struct until *u);
/* usock_wait_news() for poll and epoll: items, -EINTR, -ERR_AGAIN. seen NULL: no news. */
int wait_items(struct usock_item *v, int n, struct until *u, const sigset_t *mask, const struct usock_news *seen);

/* ---- decide.c, sock.c ---- */

/* Ours from now on: makes f->us with the options and the name it has; shim.lock held. -errno. */
int sock_engage(struct file *f);
/* Before the first connect() of a TCP socket that has a range of ports of its own: a port of that range (bind.c). */
void bind_in_range(struct file *f);
void sock_decide(struct file *f, enum file_mode mode, const char *why);
/* A datagram is about to leave a socket that is still undecided. */
void udp_first_datagram(struct file *f, const struct sockaddr *sa, socklen_t len);
/* Somebody is about to wait for what comes to a datagram socket that another thread or process may send from, bind or connect
 * meanwhile: he waits on both sides from the beginning, and our side gets its name when the kernel's does. Returns true if it is ours
 * now. The second one with shim.lock held. */
bool udp_await(int fd);
void udp_await_locked(struct file *f);
static inline bool file_may_come(int fd, const struct file *f)
{
        return unlikely(f->shared || (f->mode == MODE_NEW && f->kind == USOCK_UDP)) && udp_await(fd);
}
/* file_enter() for calls that may wait for input. */
static inline struct file *file_enter_reading(int fd)
{
        struct file *f = file_peek(fd);

        if (likely(!f))
                return NULL;
        file_may_come(fd, f);
        return file_enter(fd, MODE_TCP);
}
/* sendto() with MSG_FASTOPEN connects. Ours has no cookie, so what is sent goes when the connection is there, as Linux's goes
 * without one. -1 and errno: there is none, yet; 0: the call goes on, the kernel's too. */
int connect_to_send(int fd, const struct sockaddr *sa, socklen_t len, bool nonblock);
/* ... where that has decided nothing: an address that is none, or no IPv4. */
void tcp_kernel_connects(struct file *f);
/* A UDP socket with a local name: reachable over the fabric too. Under shim.lock. */
void udp_engage(struct file *f);
bool sockaddr_v4(const struct sockaddr *sa, socklen_t len);
/* NULL: this local address speaks IPv4, as both wildcards do unless IPV6_V6ONLY forbids it; otherwise why not. */
const char *sock_not_v4(const struct file *f, const struct sockaddr_storage *ss, socklen_t len);
bool sock_v6only(const struct file *f);
/* The kernel's name of the socket; *len is written only. 0 or -errno. */
int sock_kernel_name(const struct file *f, struct sockaddr_storage *ss, socklen_t *len);
/* Whether our side can reach it. Groups and everybody are the kernel's, unless unetd has an interface. */
bool sock_may_be_ours(const struct sockaddr *sa, socklen_t len);
/* In words, why our side did not come about. */
const char *sock_refused(int err);
int sock_shutdown(struct file *f, int how);
/* A name goes to the program, as much of it as there is room for: how long it is, it is told in any case. */
int sock_give_name(const struct sockaddr_storage *name, socklen_t n, struct sockaddr *sa, socklen_t *len);
/* Whether a name that the program passes can be read, and is no longer than any; if not, the kernel says what it has to say
 * about it. */
static inline bool sockaddr_readable(const struct sockaddr *sa, socklen_t len)
{
        return len <= sizeof(struct sockaddr_storage) && user_read_range(sa, len);
}

/* ---- opt_log.c: what the program has set ---- */

/* Before the decision, or on a listener. */
void opts_remember(struct file *f, int level, int name, const void *val, socklen_t len);
bool opts_has(const struct file *f, int level, int name);
/* A connection has what its listener has. */
void opts_share(struct file *f, const struct file *listener);
/* All of it is set on our side; on another kernel socket. */
void opts_replay(struct file *f);
void opts_replay_kernel(const struct file *f, int fd);
void opts_free(struct file *f);
void opts_fork_lock(void);
void opts_fork_unlock(void);

/* ---- opt.c ---- */

int file_fcntl_dup(int fd, int cmd, int low);
/* The value of an option of getsockopt(). */
int opt_give_int(void *val, socklen_t *len, int v);

/* ---- addrs.c: unetd's interfaces where programs look for the kernel's ---- */

/* usock_ifaces(), for a call that may be the program's first. */
unsigned shim_ifaces(struct usock_iface v[USOCK_IFACES]);
uint32_t shim_iface_broadcast(const struct usock_iface *f);     /* 0: it has none */
/* ioctls that tell of interfaces. */
bool addrs_ioctl(unsigned long req);
int addrs_do_ioctl(int fd, unsigned long req, void *arg);

/* ---- netlink.c: the same for rtnetlink(7) ---- */

extern _Atomic unsigned netlink_dumps;  /* answers of ours that have not been read */
/* What a program asks with has at least a header, and is short. */
static inline bool netlink_may_ask(ssize_t n)
{
        return unlikely(n > 16 && n <= 512);
}
/* A descriptor of the kernel's was given n bytes of that, which may ask for addresses. */
void netlink_asked(int fd, const struct iovec *iov, size_t pieces, ssize_t n);
/* Whether there is an answer to read. m is one's own; the result, bytes or -errno, is *r. */
bool netlink_answers(int fd, struct msghdr *m, int flags, ssize_t *r);
void netlink_fork_lock(void);
void netlink_fork_unlock(void);

/* ---- group.c: groups on interfaces of unetd's ---- */

/* Whether an option of the file's is one of these: group_setsockopt() decides whose it is. */
bool group_opt(const struct file *f, int level, int name);
int group_setsockopt(struct file *f, int name, const void *val, socklen_t len);
int group_getsockopt(struct file *f, int name, void *val, socklen_t *len);

/* ---- io.c ---- */

ssize_t file_send(struct file *f, const void *p, size_t n, int flags);
ssize_t file_recv(struct file *f, void *p, size_t n, int flags);
/* Of a call that moved `done` bytes and then met `r`: how many, and the next call tells of an error; or `r`. */
ssize_t file_moved(struct file *f, size_t done, ssize_t r);
/* The same of a UDP socket: one datagram, to whom it is connected to, from either side. */
ssize_t file_send_datagram(struct file *f, const void *p, size_t n, int flags);
ssize_t file_recv_datagram(struct file *f, void *p, size_t n, int flags);

/* ---- want.c ---- */

/* Events of our side of a file, without waiting. */
short file_poll_ours(struct file *f);

/* ---- epoll.c ---- */

/* The file changed sides: its memberships follow. shim.lock held. */
void epoll_file_moved(struct file *f);
/* The last number of a file is gone: its memberships end, and the members of an epoll descriptor. */
void epoll_file_closed(struct file *f);
/* The last reference of an epoll descriptor with a set is gone. */
void epoll_file_ended(struct file *f);
/* An epoll descriptor that holds some of ours: is one ready? If not, one may be after news since *seen. */
bool epoll_set_ready(struct epoll_set *set, struct usock_news *seen);
void epoll_fork_lock(void);
void epoll_fork_unlock(bool child);

/* ---- signal.c ---- */

/* Handlers set before the first socket come under our trampoline; the others did when they were set. */
void signals_start(void);
void signals_fork_child(void);
void raise_sigpipe(void);
/* A handler of the program's waits for this thread to leave. */
bool signals_put_off(void);

/* ---- sandbox.c ---- */

/* seccomp(2), which libc has no function for. */
long sandbox_seccomp(unsigned op, unsigned flags, void *args);
/* landlock_restrict_self(2). */
long sandbox_landlock(int rules, unsigned flags);

/* ---- privilege.c ---- */

/* setuid(2) and its like by number. True: it was one, and its result is *r. */
bool privilege_call(long nr, const long a[3], long *r);
/* Root takes all descriptors away from itself, as who is about to give up root and lock himself in does (vsftpd). */
void privilege_before_no_numbers(void);

/* ---- landlock.c ---- */

/* This process has, or may have soon, rules of Landlock's that its connections have to keep. */
void landlock_may_come(void);
/* Whether they let this thread connect to an IPv4 name of TCP, mapped or not: 0, -EACCES, or 1: only the kernel can say. */
int landlock_asked(const struct sockaddr *sa);

/* ---- async.c ---- */

/* Our side begins: it sends the signals that the kernel's was asked for. */
void async_engage(struct file *f);
/* F_SETFL: the kernel's side is told, where there is one of the file's own; then, when ours knows the flags, it follows. */
int async_flags(struct file *f, long flags);
void async_changed(struct file *f, long flags);
/* Calls about signals. */
bool async_fcntl(int cmd);
int async_do_fcntl(struct file *f, int cmd, long arg);
bool async_ioctl(unsigned long req);
int async_do_ioctl(struct file *f, unsigned long req, void *arg);

/* ---- select.c ---- */

/* pselect6(): select() with a mask that tells, in *timeout, how much time was left. False: no socket of ours is asked for, or
 * something is wrong, and nothing was done. */
bool select_tell(long *ret, int n, fd_set *r, fd_set *w, fd_set *x, struct timespec *timeout, const sigset_t *mask);

/* ---- limits.c ---- */

/* Around the exec of an image with which no socket of ours survives: it begins with the limits that the program has set. */
void limits_for_image(void);
void limits_go_on(void);

/* ---- stdio.c ---- */

/* From now on libc's streams read, write and close by our calls. */
void streams_start(void);

/* ---- image.c ---- */

/* The program file, or the script's interpreter, is one that will not have the library. What cannot be read will, for all we know. */
bool image_is_deaf(int dir, const char *path);
/* The one that execvp() finds. */
bool image_searched_is_deaf(const char *file);

/* ---- process.c ---- */

void process_start(void);
/* Around a fork of which pthread_atfork() does not hear. */
void fork_begin(void);
void fork_end(bool child);

/* ---- log.c ---- */

/* Standard error is another file now, by the program's will. */
void log_to(void);
void log_decision(const struct file *f);

#endif
