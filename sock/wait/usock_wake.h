/* Between waiting (usock_wait.c) and waking (usock_wake.c): a waiter's place, and the bits of
 * waiters, by their slots. */
#ifndef SOCK_USOCK_WAKE_H
#define SOCK_USOCK_WAKE_H

#include "sock/attach/ustack.h"
#include "sock/usock_ready.h"

/* A datagram socket that a follower sleeps on; its abstract name stands in the follower's slot. */
struct usock_place {
        struct usock_place *next; /* free ones */
        struct usock_place *all;  /* every one this process made */
        int fd;
        uint8_t name_len;
        uint8_t name[26];
};

/* NULL: no memory, no descriptor, or forbidden by a sandbox. */
struct usock_place *usock_place_get(void);
/* `rung`: somebody has written to it. */
void usock_place_put(struct usock_place *p, bool rung);
/* Takes a wake-up without waiting. Returns false if there is none. */
bool usock_place_hear(const struct usock_place *p);
/* Returns true if usock_place_sleep() may be called: not once the program has locked itself in. */
bool usock_places_wait(void);
/* Sleeps until there is a wake-up, and takes it: not negative. -EINTR: a signal. */
long usock_place_sleep(const struct usock_place *p);
/* One is there for a thread that sleeps, and a socket to wake others by, while descriptors can
 * be made. */
void usock_place_keep(void);

/* A place in the stack for a thread that is to sleep: it wants to hear of its sockets among v, and,
 * if `news`, of any. Under the lock. Slot + 1, 0: all are taken. */
uint32_t usock_enlist(struct ustack *u, const struct usock_item *v, int n, bool news,
                      const struct usock_place *p);
/* Gives it up. True: the place was rung. */
bool usock_delist(struct ustack *u, const struct usock_item *v, int n, uint32_t slot);
/* Wakes a waiter by its slot. Under the stack's lock; the first to come makes the socket that it is
 * done from. */
void usock_wake(struct ustack *u, uint32_t slot);

/* Wake-ups of this process may not arrive, and no look of others' finds that out: a sleeper looks
 * for itself now and then. */
bool usock_names_elsewhere(void);
void usock_netns_changes(void);

#endif
