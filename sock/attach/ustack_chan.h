/*
 * The channels of a mapped stack: opening and mapping them, the interfaces and addresses they lead
 * to, peers that ended, room for more. (ustack_chan.c, ustack_iface.c, ustack_map.c,
 * ustack_peers.c, ustack_room.c)
 */
#ifndef SOCK_USTACK_CHAN_H
#define SOCK_USTACK_CHAN_H

#include <poll.h>

#include "sock/attach/ustack.h"

/* For how many channels a new stack has address space; 0: it is too little for one. */
uint32_t ustack_room(void);
/* How large a new stack is: with STACK_CONNS_MAX connections where RLIMIT_AS does not bound this
 * process, else with fewer. */
void ustack_limits(struct stack_limits *l);
/* Whether there is room for a channel to come is in the books. Under the client's lock. */
void ustack_note_room(void);
void ustack_set_full(struct ustack *u, uint32_t slot, bool full);
/* Returns true if `err` of unetd says that a limit was met, and counts the socket that goes by the
 * kernel for it. The lock must not be held. */
bool ustack_note_limit(struct ustack *u, int err);
/* ustack_chan.c, for struct stack: map_chan and unmap_chan; and for good, when nobody looks
 * any more. */
bool ustack_chan_fetch(struct stack *s, uint32_t k);
void ustack_chan_over(struct stack *s, uint32_t k);
void ustack_chan_unmap(struct ustack *u, uint32_t k);
/* Who may not ring peers by name any more has ringers from now on: of the channels there are, and
 * of those to come. Under the lock. */
void ustack_ringers_make(struct ustack *u);
/* Ringers of channels that are over are closed when nobody can be ringing by them any more. Under
 * the lock. */
void ustack_ringers_close(struct ustack *u);
/* Peers are rung for whatever was sent: who was to do it has died. Under the lock. */
void ustack_ring_peers(struct ustack *u);
/* Those are who did not hear a process that rang (shm_chan_unheard()); the keeper. Under the
 * lock. */
void ustack_ring_unheard(struct ustack *u);
/* Maps channel k from descriptors already at hand and takes them, or borrows them (struct ustack).
 * False: they are the caller's still. */
bool ustack_map_chan_fds(struct ustack *u, uint32_t k, const struct unetd_chan *fds);
/* Channel to a stack or an interface of unetd's, opened when there is none: its number, or -errno.
 * The lock must not be held. */
int ustack_chan_to(struct ustack *u, uint32_t peer);
/* The channel that leads to a port of another host, and our address there. `from`: what the socket
 * is bound to, or any; `oif`: the interface it is bound to, 0: none. -ENOENT and *why: it is the
 * kernel's. The lock must not be held. */
int ustack_way_out(struct ustack *u, uint8_t proto, ip_addr to, uint16_t port, ip_addr from,
                   uint32_t oif, ip_addr *src, const char **why);
/* The number in the route table of unetd's interface of that name; 0: it has none. */
uint32_t ustack_iface_number(const char *name);
/* The same by its number in the kernel. */
uint32_t usock_device(uint32_t ifindex);
/* What a socket that is bound to a device listens on: its address, or the device's. */
ip_addr ustack_listen_addr(const struct sock_rec *rec);
/* Takes over what unetd publishes of addresses and routes. Under the lock; ustack_lock()
 * does it. */
void ustack_follow(struct ustack *u);
/* Somebody is to be reachable under a local address (any: all): takes, or shares, the interfaces
 * of unetd's. */
void ustack_take_ifaces(struct ustack *u, ip_addr laddr);
/* Descriptors to be woken by while nobody polls, besides the pipe: appends to pfd, at
 * most NETIF_MAX. */
int ustack_wake_fds(const struct ustack *u, struct pollfd *pfd);
/* Under the lock: channel k, which was found without, leads to that stack still, and something new
 * may begin by it; stack 0: whom it leads to need not be asked. */
static inline bool ustack_chan_leads(const struct ustack *u, uint32_t k, uint32_t stack)
{
        const struct chan_slot *slot = &u->s.st->chan[k];

        return atomic_load_explicit(&slot->state, memory_order_acquire) == CHAN_READY &&
               (stack == 0 || slot->peer == stack);
}
/* Returns true if channel k leads from the stack to itself. */
static inline bool ustack_chan_is_own(const struct ustack *u, uint32_t k)
{
        const struct chan_slot *slot = &u->s.st->chan[k];

        return slot->peer == u->s.st->id && slot->netif == 0 && slot->remote == 0;
}
/* Before something is sent by channel k: a stack reads what it sends itself from two rings, and
 * what it sent first is to be told of first. Under the lock. */
static inline void ustack_hear_own(struct ustack *u, uint32_t k)
{
        if (unlikely(ustack_chan_is_own(u, k)) && stack_pending(&u->s, 0))
                stack_run(&u->s, ustack_now());
}
/* ustack_peers.c: ends the channels of peers that are gone with everybody who could have said so;
 * when peers_at has come. Under the lock. */
#define USTACK_PEERS_EVERY (2 * NS_PER_S)
void ustack_peers_look(struct ustack *u, nstime now);
/* When who sleeps for long is to look: NSTIME_NEVER while unetd knows of all peers. Under
 * the lock. */
nstime ustack_peers_due(const struct ustack *u);
/* Memory goes back, and the addresses stay readable, and empty. */
void ustack_empty(const volatile void *p, size_t bytes);
/* A shared mapping in the place of an older one of `*room` bytes when that is large enough. Else
 * elsewhere, and the old place stays: a thread may be looking there without the lock. Sizes are
 * few, and the largest that there was is kept, so that little stays. NULL: there is no memory, and
 * the old one is as it was. */
void *ustack_map_over(const volatile void *old, size_t *room, int fd, size_t bytes, int prot);
/* A shared mapping, NULL when it fails; prot as mmap()'s. */
void *ustack_map(int fd, size_t bytes, int prot);
void ustack_unmap(const volatile void *p, size_t bytes);
/* The last `bytes` of the file, over what is at `at`; NULL: anywhere. NULL: it is too short, or
 * there is no memory. */
void *ustack_map_end(const volatile void *at, int fd, size_t bytes, int prot);
/* What is sent from memory of a program's own by channel k goes by name. Under the lock. */
bool ustack_chan_names(const struct ustack *u, uint32_t k);
/* Maps what of the stack's state is behind u->bytes: the memory of programs' own
 * (stack_memory.h). Under the lock. False: it cannot be. */
bool ustack_map_memory(struct ustack *u);
/* So much more; only told of programs that lock what they map, as far as they may
 * (RLIMIT_MEMLOCK). */
bool ustack_may_map(size_t bytes);
/* Whether there is address space for one more channel. */
bool ustack_chan_fits(void);

#endif
