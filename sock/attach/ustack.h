/*
 * A process and its stacks: what lies under usock.h.
 *
 * A process has at most one stack of its own, made at its first socket. It maps the stacks of
 * sockets that it inherited or was passed. A mapped stack is a struct ustack. A thread enters it
 * with ustack_lock() and leaves it with ustack_unlock(). These also decide what the bell says while
 * nobody is inside.
 */
#ifndef SOCK_USTACK_H
#define SOCK_USTACK_H

#include <sys/single_threaded.h>

#include "netstack/stack.h"
#include "netstack/stack_memory.h"
#include "netstack/stack_refs.h"
#include "sock/usock.h"
#include "sock/attach/user.h"
#include "unet/verbs/ni_verbs.h"
#include "unet/xdp/ni_xdp.h"
#include "unetd/client/client.h"

#define USTACKS_MAX 16u

struct ustack_way; /* ustack_way.h */

/* A socket of an interface; the addresses of those before it, of other sizes, stay, since a thread
 * may be looking there. */
struct xdp_view {
        struct ni_xdp ni;
        struct xdp_view *before;
};

#define USTACK_LOOPBACK_BROADCAST 0x7fffffffu /* 127.255.255.255: the kernel's */

#define USTACK_WAKES 16u /* that are put off until the lock is left */
#define USTACK_SPENT (2 * STACK_CHANS)
#define USTACK_READY 8u /* threads that fork at once */

struct ustack {
        struct stack s; /* first: s.owner is this */
        /* Waiter slots to be woken; under the lock, and none when it is free. */
        uint32_t wakes[USTACK_WAKES], nwakes;
        /* Of peers, to be rung then, too. */
        struct shm_late bells;
        /* Ringers of channels that are over, by which threads that left the lock may be ringing
         * still. */
        int spent[USTACK_SPENT];
        uint32_t nspent;
        /* Peers are not rung by name: ustack_ringers_make(). */
        bool keeps_ringers;
        /* It is a process of the stack, whose death is noticed, and not the keeper. */
        bool wakes_late;
        /* The keeper: who called ustack_map_chan_fds() has the descriptors of channels to stacks,
         * and closes them when the channel has left the view. */
        bool borrows;
        size_t bytes;
        struct unetd_stack_fds fds;
        uint32_t id;
        uint32_t slot; /* of this process in st->proc */
        bool unknown;  /* unetd could not be told of this process yet */
        /* Process slots reserved for children of forks that are about to begin; under the lock. */
        int ready[USTACK_READY];
        uint32_t nready;
        /* The last channel that was to be mapped had none for its descriptors; under the lock. */
        bool short_of_numbers;
        struct shm_chan chan[STACK_CHANS];
        /* Of those that are, or were, interfaces of our own; kept for the next one. */
        struct xdp_view *xdp[STACK_CHANS];
        struct ni_verbs remote[STACK_CHANS]; /* of those to other hosts */
        /* Which way each goes; NULL: it is not mapped. */
        const struct ustack_way *way[STACK_CHANS];
        /* Over which they go, by the interface's number: link_at(). */
        struct vlink *link[DIR_IFACES];
        /* Their descriptors, for the next unetd; 0: none. */
        int link_mem[DIR_IFACES], link_book[DIR_IFACES];
        uint32_t turns[DIR_IFACES]; /* their drivers', when last looked at */
        nstime turned_at[DIR_IFACES], drive_again[DIR_IFACES]; /* the keeper's */
        struct unetd_chan chan_fds[STACK_CHANS];
        struct unet_chan *fault[STACK_CHANS]; /* before the channel, when faults were asked for */
        /* A waiter was woken since the last one got up, and not for an end: it will lead when it
         * sleeps. Under the lock. */
        bool woke;
        nstime peers_at; /* when it is looked for peers that ended unseen: ustack_peers_look() */
        struct usock *handles; /* this process's, linked by next */
        /* Of them, those of a record that has an older one here: it came back in a message. */
        uint32_t twins;
        struct {
                struct level_seen *seen; /* NULL: off */
                uint32_t next;
        } levels; /* the checker's: sock/attach/ustack_levels.h */
};

struct usock;

/* A channel of this process led from a stack to itself. */
extern bool ustack_own_way;

/* The process's own stack, made if need be. NULL and -errno in *err when it cannot be. */
struct ustack *ustack_mine(int *err);
/* A free process slot of the stack becomes that of `pid`, or STACK_FORKING; -ENOSPC. Under
 * the lock. */
int ustack_take_slot(struct stack_state *st, uint32_t pid);
/* This process, of whom unetd does not know, is one for the keeper to look after. */
void ustack_is_unknown(struct ustack *u);
/* Forgets all stacks, of which this process has no slot any more, and unetd, which is to know it
 * anew. The client's lock is held. */
void ustack_forget_all(void);
/* All stacks that are mapped. */
uint32_t ustack_all(struct ustack *out[USTACKS_MAX]);
struct ustack *ustack_nth(uint32_t i); /* NULL: there are no more */
#define FOR_USTACKS(u)                                      \
        for (uint32_t i_ = 0; ustack_nth(i_) != NULL; i_++) \
                for (struct ustack *u = ustack_nth(i_); u != NULL; u = NULL)
/* Returns true if this process has come to a stack. A child that runs no handlers of fork, as by
 * vfork(), _Fork() or clone(), has not: what it sees is its parent's. */
bool ustack_has_any(void);
/* Returns true in such a child, if its memory is its own. That a child of vfork() has is its
 * parent's. */
bool ustack_has_parents(void);
/* There: unmaps the parent's stacks, and closes their descriptors. They go on in the parent. */
void ustack_forsake_all(void);
/* Maps another process's stack by its socket's cookie. */
struct ustack *ustack_adopt(uint64_t cookie, int *err);
/* The keeper's way: maps a stack by descriptors that are borrowed for the call; no process slot. 0
 * or -errno. */
int ustack_attach(struct ustack *u, uint32_t id, const struct unetd_stack_fds *fds);
void ustack_detach(struct ustack *u);
/* In the child of a fork, for which the stack has no process slot left. Its sockets become sockets
 * never connected, of a stack that nobody else knows. New ones get a new stack. */
void ustack_lose(struct ustack *u);
/* Its number is another's: from here on it is nobody's but ours, as after ustack_lose(). */
void ustack_disown(struct ustack *u);
/* In the child of a fork: it has come to its stacks. The client's lock is the parent's, which took
 * it before the fork; it is left. */
void ustack_forked(void);
nstime ustack_now(void);
uint64_t ustack_boot_ms(void); /* for proc_slot.start */
/* Takes the stack's lock; what a dead process left half done is repaired first. From here on the
 * queues are polled. */
void ustack_lock(struct ustack *u);
bool ustack_trylock(struct ustack *u);
/* Leaves the lock, staying in the call: more will come. */
void ustack_unlock(struct ustack *u);
/* Leaves the lock and the stack: the keeper watches the queues until somebody comes back. */
void ustack_leave(struct ustack *u);
/* For calls that tell what has come: takes it, and what only waited for an ACK that we owe. Under
 * the lock. */
void ustack_catch_up(struct ustack *u);
/* Returns true if this thread has the lock. Who is "under the lock" begins by asserting it, but for
 * what is called several times a message. */
static inline bool ustack_locked(const struct ustack *u)
{
        return rlock_mine(&u->s.st->lock);
}

/* ---- ustack_promise.c: hooks of struct stack ---- */

bool ustack_promiser(struct stack *s, struct unet_promiser *own);
bool ustack_lives(struct stack *s, struct unet_promiser p);

#endif
