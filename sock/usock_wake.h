/* Between waiting (usock_wait.c) and waking (usock_wake.c): a waiter's place, and the bits of waiters, by their slots. */
#ifndef SOCK_USOCK_WAKE_H
#define SOCK_USOCK_WAKE_H

#include "sock/ustack.h"

/* A datagram socket that a follower sleeps on; its abstract name stands in the follower's slot. */
struct usock_place {
        struct usock_place *next;       /* free ones */
        struct usock_place *all;        /* every one this process made */
        int fd;
        uint8_t name_len;
        uint8_t name[26];
};

/* NULL: no memory, no descriptor, or forbidden by a sandbox. */
struct usock_place *usock_place_get(void);
/* `rung`: somebody has written to it. */
void usock_place_put(struct usock_place *p, bool rung);

/* Wakes a waiter. Under the stack's lock; the first to come makes the socket that it is done from. */
void usock_wake(struct ustack *u, const struct waiter_slot *w);
/* Wakes those of the waiters in `who` that sleep. Under the lock. */
void usock_wake_armed(struct ustack *u, uint64_t who);
/* Of those of whom one is enough, one that sleeps; 0: none. Who has been woken looks before he goes on. */
uint64_t usock_one_of(const struct stack_state *st, uint64_t who);

#endif
