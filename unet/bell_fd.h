/*
 * The bell's descriptors: by what others ring a stack that sleeps (bell.h says when), and see that
 * it is no more.
 *
 *   the page     a memory file, read-only for peers. Its owner's descriptor is locked: while any
 *                process has a copy of that, unetd too, a peer's F_OFD_GETLK finds the lock. A peer
 *                cannot lock what is locked.
 *   bell socket  a Unix datagram socket under a name of the kernel's choice. Who leads the stack,
 *                or its keeper, sleeps on it.
 *   ringer       a socket that is connected to it. A ring is a write() of a byte.
 *
 * Everybody who rings has a ringer of his own, which unetd makes for him: no two users share an
 * open file description, so that nobody else can take its O_NONBLOCK away. What the owner of a bell
 * does to it keeps no write() waiting. A pipe does: its lock is held by whoever writes to it from
 * memory that FUSE gives, or by splice() from a socket in which nothing comes. An eventfd could be
 * read, and the ring be stolen, by who holds it.
 *
 * A queue that is full (EAGAIN) has rung already. A dead bell is ECONNREFUSED, one that its owner
 * has shut is EPIPE: no signal comes with either. Once connected, a ringer goes on in whatever
 * network namespace and Landlock domain its holder is.
 *
 * A process of a stack may have a thousand peers. It keeps no ringers, but the names of their
 * bells, numbers of 20 bits that the kernel chose, and rings all of them from one socket: its
 * *caller*, which stays in the network namespace where it was made. What nobody has read yet counts
 * against the caller: when peers that do not read, or a child of another user, have used it up,
 * another takes its place. When a stack is gone its name may become another user's, who is then
 * rung in vain. Keepers, and whom a filter or Landlock keeps from names, have ringers.
 *
 * A ring could carry descriptors, which close in the context of who reads it: a bell refuses them
 * (SO_PASSRIGHTS, Linux 6.16).
 */
#ifndef UNET_BELL_FD_H
#define UNET_BELL_FD_H

#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/base.h"

/* Locks the page's descriptor, which nobody else has yet. 0 or a negative errno. */
int bell_hold(int page);
/* Returns true if somebody has the descriptor that bell_hold() was called with; `page` is
 * a peer's. */
bool bell_is_held(int page);

/* A bell socket: non-blocking, close-on-exec; or a negative errno. */
int bell_make(void);
/* It takes no descriptors from now on, where the kernel can be told so. */
void bell_refuse_rights(int sock);
/*
 * A ringer for that bell, of which nothing is believed; only the kernel is asked. -EINVAL: it is
 * none; -EXDEV: it is of another network namespace, where its name says nothing of the names here.
 */
int bell_ringer(int bell);
/* Returns true if it is a non-blocking Unix datagram socket. */
bool bell_is_sock(int fd);
/* Returns true if it is one that is connected to that bell. */
bool bell_is_ringer(int fd, int bell);

/* In a ringer's number: what has come, came by a channel that only the keeper looks at. */
#define BELL_QUIET (1 << 30)
/* It is no descriptor, but a name's number: the caller rings. */
#define BELL_NAMED (1 << 29)
/* Returns false if the bell is there, and cannot be rung by its name from here. */
bool bell_ring(int ringer);

/* This process's, under a number that is the library's; -1: it has none. */
extern _Atomic int bell_caller;
int bell_caller_new(void);
/*
 * Sends a byte to the name from a caller; 1 or a negative errno. One that is used up is replaced,
 * under its number. -EAGAIN: the name's queue is full; -EPIPE: its owner has shut it; -ENOBUFS: the
 * caller is used up, and there is no other.
 */
long bell_call(int from, const struct sockaddr_un *un, socklen_t len, char what);
/* What rings the same bell without a descriptor; -1: the caller has no name for it. */
int bell_named(int ringer);
static inline bool bell_is_named(int ringer)
{
        return ringer >= 0 && (ringer & BELL_NAMED) != 0;
}
/* A ringer again, or a negative errno. */
int bell_unnamed(int named);
/* Returns false if nobody has the name any more. */
bool bell_answers(int named);
/* Takes one ring; what was rung. Returns true if there was one. What is left is seen at the next
 * sleep. Processes of the owner share the descriptor, and one of them may have made it wait: these
 * do not. */
bool bell_take(int bell);
bool bell_drain(int bell);
/* Takes one ring, or what was rung. Returns true if one of them was with BELL_QUIET, or may have
 * been, and was lost. */
bool bell_hear(int bell, bool all);
/* bell_drain() for who must not wait for what closes: descriptors that came all the same are
 * for closes(). */
bool bell_drain_rights(int bell, void (*closes)(const int *fds, unsigned n));
/* Closes a bell that nobody else has: nothing is left in it. */
void bell_close(int bell, void (*closes)(const int *fds, unsigned n));

#endif
