/*
 * A process and its sockets: inside and outside of the library, fork, exec, exit, another user, a
 * sandbox, memory and descriptor numbers. (core/usock_fork.c, core/usock_relay.c, attach/)
 *
 * Library code is entered and left with usock_enter() and usock_leave(): signals that arrive inside
 * are deferred until leave (iperf3 longjmps out of its handler). The hooks are set up by the shim;
 * the native API leaves signals alone.
 */
#ifndef SOCK_USOCK_PROCESS_H
#define SOCK_USOCK_PROCESS_H

#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "sock/usock.h"

struct usock_tls {
        int inside; /* depth of library calls of this thread */
        /* A signal was deferred; its handler runs at the outermost leave. */
        volatile sig_atomic_t pending;
        unsigned batch; /* 1 + datagrams since usock_batch_begin(); 0: none was begun */
        int turns;      /* of USOCK_TURNS_* (usock_turns.h) */
};
extern __thread struct usock_tls usock_tls __attribute__((tls_model("initial-exec")));
/* Not 0: a thread takes the stacks away, and others wait before they enter. */
extern _Atomic uint32_t usock_closed;
void usock_wait_outside(void);
/* Set by the shim: runs deferred handlers; called with inside == 0 and may not return (longjmp). */
extern void (*usock_run_deferred)(void);

static inline void usock_enter(void)
{
        usock_tls.inside++;
        atomic_signal_fence(memory_order_seq_cst); /* a signal asks who is inside: hold.c */
        if (unlikely(atomic_load_explicit(&usock_closed, memory_order_relaxed)))
                usock_wait_outside();
}
static inline void usock_leave(void)
{
        if (--usock_tls.inside == 0 && unlikely(usock_tls.pending) && usock_run_deferred)
                usock_run_deferred();
}

/* Before a fork that can be refused: a child without a process slot would lose the sockets that it
 * inherits. False: there is none. True: the fork follows. */
bool usock_fork_may(void);
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
/* Another image, of this process or of a child, is to find sockets of ours. */
void usock_found_by_image(void);
/* Who connects from now on finds no such listener; its connections, those that wait to be accepted
 * as well, are as they were. */
void usock_withdraw(struct usock *s);
/* In the new image: it has adopted what it found, and what else its former image held ends. */
void usock_adopted(void);

/* The program is about to lock itself in, and to forbid itself that (base/sandbox.h): what cannot
 * be made any more then is made, what cannot be looked after is given up. */
void usock_before_sandbox(uint32_t forbidden);

/* This process has, or may have soon, rules of Landlock's that its connections have to keep. */
void usock_landlock_may_come(void);
/* Whether they let this thread connect to a port of TCP: 0, -EACCES, or 1: it cannot be found out
 * here (no descriptor is left, a filter), and only the kernel can say. */
int usock_landlock_asked(uint16_t port);
/* The same for binding. Only the native interface asks: the shim binds a socket of the kernel's. */
int usock_landlock_asked_to_bind(uint16_t port);

/* The user of a stack of this process is none of these, real, effective and saved: who has them
 * cannot become him again. */
struct usock_uids {
        uid_t real, effective, saved;
};
bool usock_gives_up_user(const struct usock_uids *to);
/* What they will be after the call (core/usock_uids.c). */
struct usock_uids usock_uids_setuid(uid_t uid);
struct usock_uids usock_uids_setreuid(uid_t real, uid_t effective);
struct usock_uids usock_uids_setresuid(uid_t real, uid_t effective, uid_t saved);
/* Returns true if capset(2) takes permitted capabilities away. `to`: as many structs as there are
 * in this version of its header; 0: the kernel knows no such version. */
struct __user_cap_data_struct;
unsigned usock_cap_structs(uint32_t version);
bool usock_gives_up_caps(uint32_t version, const struct __user_cap_data_struct *to);
/* Returns true if another process has a stack of this one's, or had until a moment ago: the keeper
 * may not have seen that it ended. */
bool usock_has_company(void);
/* Returns true if this process has other threads. */
bool usock_has_threads(void);
uid_t usock_user(const struct usock *s);
/* Leaves all stacks: they are not mapped any more and their descriptors closed, nor is there a
 * connection to unetd. No socket may be open in them, and no other thread inside. */
void usock_leave_user(void);
/* The same in a child that has not come to its parent's stacks, which go on there
 * (ustack_has_parents()). */
void usock_forsake_all(void);

/* Bytes of address space that the library has in this process, with room for a few more channels;
 * `keep_to`: more do not come about from now on. 0: it has no stack. */
uint64_t usock_address_space(bool keep_to);

/* A thread is about to go to another network namespace; or the process was made for one. No unetd
 * is started from there in the place of the one that it has, or its parent. False: it has none. */
bool usock_netns_leaves(bool made_for_it);
/* The next child cannot find unetd, but its parent can. */
void usock_fork_elsewhere(void);

/* Private memory for tables that are large and hardly touched: not locked, nor in core dumps. For a
 * few, one caller at a time, and for good. NULL: there is no room. */
void *usock_reserve(size_t bytes);
/* mlockall(), but for what is the library's, which is large and hardly touched. 0 or -errno. */
int usock_lock_memory(int flags);

/* The application closes all its descriptors (closefrom): numbers that are the library's own. */
bool usock_owns_fd(int fd);

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

#endif
