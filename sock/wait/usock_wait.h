/* What usock_wait.c, usock_spin.c and usock_sleep.c share: one wait. Nobody else includes it. */
#ifndef SOCK_USOCK_WAIT_H
#define SOCK_USOCK_WAIT_H

#include "sock/attach/ustack.h"
#include "sock/attach/ustack_link.h"
#include "sock/usock_ready.h"

#define WAIT_FDS (1 + NETIF_MAX + USTACK_LINK_FDS) /* of one stack, asleep */

struct wait {
        struct usock_item *v;
        int n, nk;          /* items; kernel descriptors among them */
        struct pollfd *pfd; /* room for nk + places */
        nstime until;
        const sigset_t *mask;
        const struct usock_news *news; /* wait for news since this too; may be NULL */
        struct ustack *all[USTACKS_MAX];
        uint32_t nall;
        uint32_t heard[USTACKS_MAX]; /* events of each stack when the items were looked at last */
        bool inside;                 /* stacks were polled and not left yet */
        /* It was woken as the leader for another waiter's socket. That waiter leads when it sleeps.
         */
        bool relayed;
        /* It has slept in this wait: followers may rely on it to lead, or to wake another leader.
         */
        bool slept;
        /* acknowledgements; and who sends had the processor since something was ready last. */
        bool owes, gave_way;
        nstime began;
        nstime lent;         /* what others had of the time, when they were offered the processor */
        bool judged;         /* it was asked whether to poll: it goes into the account; ... */
        nstime judged_at;    /* ... first */
        nstime polled, lost; /* what polls have lasted; what others had of it without being asked */
        nstime looked; /* when the clock was looked at last, in the poll that brought something */
        nstime gap;    /* between two looks at the clock no more passes, unless others run */
        bool asked;    /* the kernel, since the wait began or just before */
        bool is_long;  /* it has waited for USTACK_PEERS_EVERY */
        bool napped;   /* once is enough (nap()) */
        bool look_daemon; /* it is time to look whether unetd is the same */
};

/* Returns true if a turn of some stack would find something. No lock needed. */
static inline bool wait_pending(const struct wait *w, nstime now)
{
        for (uint32_t i = 0; i < w->nall; i++)
                if (stack_pending(&w->all[i]->s, now))
                        return true;
        return false;
}

/* ---- usock_wait.c ---- */

/* How many of our sockets are ready, and news. */
int wait_look(struct wait *w);

/* ---- usock_spin.c ---- */

/* True: something has happened since this was asked last, and items of ours are ready. No
 * lock needed. */
bool wait_heard(struct wait *w);
/* One turn of a stack. Under its lock. */
void wait_turn(struct wait *w, struct ustack *u, nstime now);

/* Polls as long as that pays (usock_policy.h). True: there is something to look at. */
bool wait_spin(struct wait *w, nstime now);
/* Returns true if wait_spin() would poll. */
bool wait_polls(struct wait *w, nstime now);
/* The wait is over, into the account; `came`: something of ours is ready. */
void wait_over(struct wait *w, nstime now, bool came);

/* ---- usock_sleep.c ---- */

/* The kernel's side of the items, as it is now. */
void wait_ask_kernel(struct wait *w);
/* A last look before a place to sleep in is taken. Returns true if something has come for us. */
bool wait_came_meanwhile(struct wait *w);
/* Sleeps once. 0, or -EINTR. */
int wait_doze(struct wait *w);

#endif
