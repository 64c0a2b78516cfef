/*
 * A process and its stacks: what lies under usock.h.
 *
 * A process has at most one stack of its own, made at its first socket, and maps those of sockets it inherited or was
 * passed. struct ustack is a mapped stack; it is entered with ustack_lock() and left with ustack_unlock(), which also
 * decide what the bell says while nobody is inside.
 */
#ifndef SOCK_USTACK_H
#define SOCK_USTACK_H

#include <sys/single_threaded.h>

#include "netstack/stack.h"
#include "netstack/stack_refs.h"
#include "sock/usock.h"
#include "sock/attach/user.h"
#include "unet/verbs/ni_verbs.h"
#include "unet/xdp/ni_xdp.h"
#include "unetd/client/client.h"

#define USTACKS_MAX 16u

/* A socket of an interface; the addresses of those before it, of other sizes, stay, since a thread may be looking there. */
struct xdp_view {
        struct ni_xdp ni;
        struct xdp_view *before;
};

#define USTACK_LOOPBACK_BROADCAST 0x7fffffffu   /* 127.255.255.255: the kernel's */

#define USTACK_WAKES 16u                /* that are put off until the lock is left */

struct ustack {
        struct stack s;                 /* first: s.owner is this */
        uint32_t wakes[USTACK_WAKES], nwakes;   /* waiter slots to be woken; under the lock, and none when it is free */
        bool wakes_late;                /* it is a process of the stack, whose death is noticed, and not the keeper */
        size_t bytes;
        struct unetd_stack_fds fds;
        uint32_t id;
        uint32_t slot;                  /* of this process in st->proc */
        bool unknown;                   /* unetd could not be told of this process yet */
        bool short_of_numbers;          /* the last channel that was to be mapped had none for its descriptors; under the lock */
        struct shm_chan chan[STACK_CHANS];
        struct xdp_view *xdp[STACK_CHANS];      /* of those that are, or were, interfaces of our own; kept for the next one */
        struct ni_verbs remote[STACK_CHANS];    /* of those to other hosts */
        struct remote_tx {
                struct shm_region *mem;         /* what their frames lie in; kept for the next one */
                size_t bytes;
                bool mapped;                    /* the channel is one of these */
        } remote_tx[STACK_CHANS];
        struct vlink *link[DIR_IFACES];         /* over which they go, by the interface's number: link_at() */
        int link_mem[DIR_IFACES], link_book[DIR_IFACES];        /* their descriptors, for the next unetd; 0: none */
        uint32_t turns[DIR_IFACES];             /* their drivers', when last looked at */
        nstime turned_at[DIR_IFACES], drive_again[DIR_IFACES];  /* the keeper's */
        struct unetd_chan chan_fds[STACK_CHANS];
        struct unet_chan *fault[STACK_CHANS];   /* before the channel, when faults were asked for */
        bool woke;                      /* a waiter since one got up; he will lead. Under the lock */
        nstime peers_at;                /* when it is looked for peers that ended unseen: ustack_peers_look() */
        struct usock *handles;          /* this process's, linked by next */
};

struct usock {
        struct ustack *u;
        uint32_t idx;                   /* struct sock_rec */
        struct sock_rec *rec;           /* where that is mapped */
        _Atomic uint32_t refs;
        int kfd;
        uint8_t kind, family;
        struct udp_pcb *_Atomic pcb;    /* UDP: where that is mapped, once it was read without the lock: fewer loads */
        _Atomic uint32_t reads;         /* UDP: datagrams, roughly */
        _Atomic uint32_t fetch_left;    /* UDP: bytes from fetch_at on that the next read will want: a hint, of this process */
        _Atomic(const uint8_t *) fetch_at;
        struct usock *next, **link;     /* of u->handles, under u's lock */
        struct {                        /* what this process reads without the lock: usock_tcp.c */
                const uint8_t *at;
                uint32_t left, used;    /* left 0: nothing is; WRITE_ONCE() */
                uint64_t recoveries;    /* of the stack, when it was taken */
        } ahead;
};

/* The process's own stack, made if need be. NULL and -errno in *err when it cannot be. */
struct ustack *ustack_mine(int *err);
/* For how many channels a new stack has address space; 0: it is too little for one. */
uint32_t ustack_room(void);
/* Descriptors for channels to come are kept if they can be, and whether they can is in the books. Under the client's lock. */
void ustack_keep_numbers(void);
/* The same when there were none for a peer's. */
void ustack_lack_numbers(void);
void ustack_set_full(struct ustack *u, uint32_t slot, bool full);
/* A free process slot of the stack becomes that of `pid`, or STACK_FORKING; -ENOSPC. Under the lock. */
int ustack_take_slot(struct stack_state *st, uint32_t pid);
/* Forgets all stacks, of which this process has no slot any more, and unetd, which is to know it anew. The client's lock is held. */
void ustack_forget_all(void);
/* All stacks that are mapped. */
uint32_t ustack_all(struct ustack *out[USTACKS_MAX]);
/* Maps another process's stack by its socket's cookie. */
struct ustack *ustack_adopt(uint64_t cookie, int *err);

/* The keeper's way: maps a stack by descriptors that are borrowed for the call; no process slot. 0 or -errno. */
int ustack_attach(struct ustack *u, uint32_t id, const struct unetd_stack_fds *fds);
void ustack_detach(struct ustack *u);

/* The client of unetd, with its lock held; leave with ustack_client_done(). */
struct unetd_client *ustack_client(void);
struct unetd_client *ustack_client_try(void);   /* NULL: somebody has it */
/* As that, with this stack's lock held: if unetd turns out to be another one, the stack is made known to it under that lock. */
struct unetd_client *ustack_client_holding(const struct ustack *u);
void ustack_client_done(void);
struct unetd_client *ustack_client_held(void);  /* its lock is held already */
void ustack_client_forked(void);        /* in the child: the lock is the parent's */
/* In the child of a fork, for which the stack has no process slot left: its sockets become sockets never connected, of a
 * stack that nobody else knows; new ones get a new stack. */
void ustack_lose(struct ustack *u);
/*
 * Who makes no calls to unetd learns here that it has died, and makes its stacks known to the next one when there is one: looked
 * at once in USTACK_PEERS_EVERY by whoever is at work. The locks must not be held.
 */
void ustack_daemon_look(void);
/* The unetd that was talked to last: struct unetd_client's instance. */
uint64_t ustack_unetd(void);
/* What a long sleep waits for besides (POLLHUP): the connection to unetd; -1: it has none, and *until is soon. */
int ustack_daemon_fd(nstime *until);

/* In the keeper: another unetd's directory, a descriptor that is taken. */
void ustack_set_directory(int fd);
/* Whether another user's stack may speak for a port (struct stack, vouch). */
bool ustack_vouch(struct stack *s, uint32_t k, uint8_t proto, ip_addr addr, uint16_t port);
/* Whether a UDP port is in the directory as another stack's, too (struct stack, elsewhere). */
bool ustack_elsewhere(struct stack *s, uint32_t k, ip_addr addr, uint16_t port);
/* The directory, or NULL. */
const struct directory *ustack_directory(void);

/* The same, whether this process has a stack already or not. */
const struct directory *ustack_directory_anyway(void);
/* The same, without starting a unetd where there is none. */
const struct directory *ustack_directory_if_any(void);

/* Why the kernel carries a socket that listens (UDP: is bound) at its own address and port, or that connects (UDP: sends) to another's:
 * a rule of the configuration; NULL: it is ours if it can be. (ustack_policy.c) */
const char *ustack_rule(const struct directory *dir, uint8_t proto, enum rule_role role, ip_addr addr, uint16_t port);
/* Why the kernel carries a connection or datagram to who has this address of this host: it has something against it, and will say what.
 * NULL: nothing, or it cannot be asked. */
const char *ustack_kernel_refuses(const struct directory *dir, uint8_t proto, ip_addr addr, uint16_t port);
/* Who has a port, by the directory; patient with a unetd that is writing. */
bool ustack_lookup(uint8_t proto, ip_addr addr, uint16_t port, uint32_t hint, struct dir_hit *hit);
/* directory_is_local(), which waits for unetd in mid-write of it, a second at most: not with a stack's lock. -EAGAIN: it is still
 * being written, and nobody knows. (ustack_directory.c) */
int ustack_is_local(const struct directory *dir, ip_addr addr);
int ustack_verbs_to(const struct directory *dir, ip_addr addr, struct dir_iface *f);    /* as that, directory_verbs() */
/*
 * Any part of the directory, as it was at one moment; it waits as those do:
 *
 *      struct ustack_reading r = {0};
 *      while (ustack_read(dir, &r))
 *              ...                     what was read in the round before, if any, was torn
 *      if (r.whole)
 *
 * A number that was read is bounded before it is used, at all times.
 */
struct ustack_reading {
        uint32_t seq, look;
        bool begun, whole;
};
bool ustack_read(const struct directory *dir, struct ustack_reading *r);
/* All interfaces; a place whose `peer` is 0 has none. False: there never were any, or nobody knows. `dir` may be NULL. */
bool ustack_ifaces(const struct directory *dir, struct dir_iface all[DIR_IFACES]);
/* The one with that `peer`. */
bool ustack_iface(const struct directory *dir, uint32_t peer, struct dir_iface *f);
/* ustack_chan.c, for struct stack: map_chan and unmap_chan; and for good, when nobody looks any more. */
bool ustack_chan_fetch(struct stack *s, uint32_t k);
void ustack_chan_over(struct stack *s, uint32_t k);
void ustack_chan_unmap(struct ustack *u, uint32_t k);
/* The channel goes by rings of its own (unet/xdp/xdp.h): to an interface that this stack has alone. */
bool ustack_chan_is_xdp(const struct ustack *u, uint32_t k);
/* Maps channel k from descriptors already at hand and takes them (the keeper). False: they are the caller's still. */
bool ustack_map_chan_fds(struct ustack *u, uint32_t k, const struct unetd_chan *fds);
/* The same for an interface, in two steps, for the keeper: what the socket says of itself goes into the state between. */
bool ustack_map_iface_fds(struct ustack *u, uint32_t k, const struct unetd_chan *fds);
void ustack_iface_mapped(struct ustack *u, uint32_t k);
/* Channel to a stack or an interface of unetd's, opened when there is none: its number, or -errno. The lock must not be
 * held. */
int ustack_chan_to(struct ustack *u, uint32_t peer);
/* The channel that leads to a port of another host, and our address there. `from`: what the socket is bound to, or any;
 * `oif`: the interface it is bound to, 0: none. -ENOENT and *why: it is the kernel's. The lock must not be held. */
int ustack_way_out(struct ustack *u, uint8_t proto, ip_addr to, uint16_t port, ip_addr from, uint32_t oif, ip_addr *src,
                   const char **why);
/* The number in the route table of unetd's interface of that name; 0: it has none. */
uint32_t ustack_iface_number(const char *name);
/* The same by its number in the kernel. */
uint32_t usock_device(uint32_t ifindex);
/* What a socket that is bound to a device listens on: its address, or the device's. */
ip_addr ustack_listen_addr(const struct sock_rec *rec);
/* Takes over what unetd publishes of addresses and routes. Under the lock; ustack_lock() does it. */
void ustack_follow(struct ustack *u);
/* Somebody is to be reachable under a local address (any: all): takes, or shares, the interfaces of unetd's. */
void ustack_take_ifaces(struct ustack *u, ip_addr laddr);
/* Descriptors to be woken by while nobody polls, besides the pipe: appends to pfd, at most NETIF_MAX. */
int ustack_wake_fds(const struct ustack *u, struct pollfd *pfd);

/* ustack_peers.c: ends the channels of peers that are gone with everybody who could have said so; when peers_at has come. Under
 * the lock. */
#define USTACK_PEERS_EVERY (2 * NS_PER_S)
void ustack_peers_look(struct ustack *u, nstime now);
/* When who sleeps for long is to look: NSTIME_NEVER while unetd knows of all peers. Under the lock. */
nstime ustack_peers_due(const struct ustack *u);

/* ustack_link.c: interfaces over verbs. The channel to who has a port there; -ENOENT and *why. */
int ustack_remote(struct ustack *u, const struct dir_iface *f, uint8_t proto, ip_addr to, uint16_t port, const char **why);
/* Other hosts may come to ask for a port of the stack's. */
void ustack_link_take(struct ustack *u, const struct dir_iface *f);
/* Maps a channel to another host, as ustack_map_chan_fds() does. */
bool ustack_map_remote_fds(struct ustack *u, uint32_t k, const struct unetd_chan *fds);
/* It is none any more: what is behind its addresses goes back. */
void ustack_remote_end(struct ustack *u, uint32_t k);
void ustack_remote_unmap(struct ustack *u, uint32_t k);         /* for good, as ustack_chan_unmap() */
/* Maps link i, unless it is; the descriptors are borrowed. */
int ustack_link_map(struct ustack *u, uint32_t i, int mem, int book);
/* Becomes the driver of link i, as vlink_drive(). Under the lock. */
int ustack_drive(struct ustack *u, uint32_t i, uint32_t as, struct vlink_qp *qp);
bool ustack_remote_vouches(const struct stack *s, uint32_t k, uint8_t proto, uint16_t port);
/* Before sleeping, under the lock; and what the driver then sleeps on, leader or not: at most USTACK_LINK_FDS. */
#define USTACK_LINK_FDS (DIR_IFACES * VERBS_WAKE_FDS)
void ustack_links_arm(struct ustack *u);
/* Whether there is a link at all; and one that this process drives. */
bool ustack_links_any(const struct ustack *u);
bool ustack_drives(const struct ustack *u);
/* Another unetd is told what the last one gave: links, and then channels over them. Under the lock. */
void ustack_links_back(struct ustack *u, struct unetd_client *c);
void ustack_remotes_back(struct ustack *u, struct unetd_client *c);
int ustack_links_fds(const struct ustack *u, struct pollfd *pfd);
bool ustack_links_own(const struct ustack *u, int fd);
/* Process `slot` drives nothing any more: it died, or runs another program. Under the lock. */
void ustack_links_left(struct ustack *u, uint32_t slot);
/* Somebody has waited for a while in vain: a driver that has something else to do is replaced by the keeper. Under the lock. */
void ustack_links_doubt(struct ustack *u);
/* Another process drives one of the links: who waits looks now and then whether it does. */
bool ustack_links_elsewhere(const struct ustack *u);
/* The keeper's part: drives what nobody does. True: *moved is to be told to unetd; ask again. Under the lock. */
bool ustack_links_keep(struct ustack *u, nstime now, struct unetd_far *moved);
/* When it is to be asked again in any case: something was tried in vain. */
nstime ustack_links_again(const struct ustack *u, nstime now);
void ustack_links_repair(struct ustack *u);
/* We drive none any more, and the keeper does instead. Under the lock. */
void ustack_links_yield(struct ustack *u);
void ustack_links_forked(struct ustack *u);
void ustack_links_unmap(struct ustack *u);
/* Memory goes back, and the addresses stay readable, and empty. */
void ustack_empty(const volatile void *p, size_t bytes);
/* A shared mapping in the place of an older one of `*room` bytes when that is large enough. Else elsewhere, and the old place stays:
 * a thread may be looking there without the lock. Sizes are few, and the largest that there was is kept, so that little stays.
 * NULL: there is no memory, and the old one is as it was. */
void *ustack_map_over(const volatile void *old, size_t *room, int fd, size_t bytes, int prot);
/* A shared mapping, NULL when it fails; prot as mmap()'s. */
void *ustack_map(int fd, size_t bytes, int prot);
void ustack_unmap(const volatile void *p, size_t bytes);
/* So much more; only told of programs that lock what they map, as far as they may (RLIMIT_MEMLOCK). */
bool ustack_may_map(size_t bytes);
/* Whether there is address space for one more channel. */
bool ustack_chan_fits(void);

nstime ustack_now(void);
uint64_t ustack_boot_ms(void);          /* for proc_slot.start */

/* Takes the stack's lock; what a dead process left half done is repaired first. From here on the queues are polled. */
void ustack_lock(struct ustack *u);
bool ustack_trylock(struct ustack *u);
/* Leaves the lock and wakes those who are to be woken (u->wakes). (usock_wake.c) */
void ustack_unlock_and_wake(struct ustack *u);
/* Leaves the lock, staying in the call: more will come. */
void ustack_unlock(struct ustack *u);
/* Leaves the lock and the stack: the keeper watches the queues until somebody comes back. */
void ustack_leave(struct ustack *u);

/* Called by the stack when a socket has events: edges grow, sleepers wake. */
void ustack_event(struct stack *s, uint32_t sock, uint32_t events);
/* News of a socket that wakes nobody. (usock_wake.c) */
void ustack_news(struct ustack *u, uint32_t sock);
/* A copy without the lock is over: who waits for a turn of his own looks again. Under the lock. */
void ustack_turn_over(struct ustack *u, struct sock_rec *rec);
/* After a repair: an event may have been taken from its connection and told to nobody. Everybody looks at everything. Under
 * the lock. */
void ustack_look_again(struct ustack *u);
/* All that wait do so anew. Under the lock. */
void ustack_wake_all(struct ustack *u);
/* Those whom a process that has locked itself in could not wake (base/sandbox.h); the keeper, under the lock. */
void ustack_wake_asked(struct ustack *u);
/* What a socket is ends: connection, listener, pcb. Under the lock. */
void ustack_end_role(struct ustack *u, struct sock_rec *rec, nstime now);
/* Ends references of a process slot to a socket; the last one closes it. Under the lock. */
void ustack_unref(struct ustack *u, uint32_t sock, uint32_t slot, nstime now);
/* Gives up what a process slot held, copies under way included. Under the lock. */
void ustack_proc_gone(struct ustack *u, uint32_t slot, nstime now);
/* Its process is another program now: gives up all but what was to survive. True: there is such. Under the lock. */
bool ustack_proc_execed(struct ustack *u, uint32_t slot, nstime now);

/* No process is left: no slot holds anything, and what no socket has is closed. Under the lock. */
void ustack_nobody_left(struct ustack *u, nstime now);

/* Our address towards one of this host's own, as Linux has it: that address, and 127.0.0.1 for all of its network. */
static inline ip_addr ustack_source_to(ip_addr addr)
{
        return ip_addr_is_v4(addr) && ip_addr_get_v4(addr) >> 24 == 127 ? ip_addr_v4(INADDR_LOOPBACK) : addr;
}
/* The socket record with this cookie, or 0. Under the lock; without it, a hint. */
uint32_t ustack_find_cookie(struct ustack *u, uint64_t cookie);
/* What a socket's entry in unetd's directory says. */
enum sock_registered {
        SOCK_UNREGISTERED,
        SOCK_TAKES,                     /* what is sent to the port */
        SOCK_SENDS,                     /* TCP: it connects from there, and takes nothing */
};
/* The protocol in that entry. */
static inline uint8_t ustack_entry_proto(const struct sock_rec *rec)
{
        if (rec->kind == USOCK_UDP)
                return IP_PROTO_UDP;
        return rec->registered == SOCK_SENDS ? IP_PROTO_TCP | DIR_HELD : IP_PROTO_TCP;
}
/* A TCP listener's entry is its own: of those that share a port (SO_REUSEPORT) each may go before the others, and its kernel
 * socket, of which unetd has a copy, with it. 0: the entry is that of all there. */
static inline uint64_t ustack_entry_sock(const struct sock_rec *rec)
{
        return rec->kind == USOCK_TCP && rec->registered == SOCK_TAKES ? READ_ONCE(rec->cookie) : 0;
}
/* Has another socket the same entry in the directory? What only the process slot `dying` holds does
 * not count (STACK_PROCS: all count). Under the lock. */
bool ustack_shares_port(struct ustack *u, const struct sock_rec *rec, uint32_t dying);
/*
 * usock_register.c. Puts the socket's entry into the directory, unless it or another socket of the stack has it. -EALREADY: it is
 * no `role` (any more). No lock is held.
 */
int usock_register(struct usock *s, enum sock_registered as, uint8_t role);
/* A connection that it tried to make failed, and it listens. No lock is held. */
void usock_unregister_sender(struct usock *s);
/* The record has no entry any more, under both locks; what is then to be asked of unetd, under the client's alone. */
struct sock_entry {
        ip_addr addr;
        uint16_t port;
        uint8_t proto;
        uint64_t sock;
        bool last;                      /* no other socket has it */
};
struct sock_entry ustack_entry_end(struct ustack *u, struct sock_rec *rec);
void ustack_entry_del(struct ustack *u, const struct sock_entry *e);

/* usock.c: the handles of `from` become those of fresh records of `to`. */
void usock_move_handles(struct ustack *from, struct ustack *to);

/* usock_wake.c: fork leaves the parent's sleeping places to the parent. */
void usock_wait_forked(void);
/* Wakes threads of a process slot (+ 1) that sleep; under the lock. False: none does. */
bool usock_wake_process(struct ustack *u, uint32_t proc);
bool usock_wait_owns_fd(int fd);

static inline struct sock_rec *usock_rec(const struct usock *s)
{
        return s->rec;
}
/* Nobody but this thread can use the socket: it has one thread, one process, and its number never left it. */
static inline bool usock_alone(const struct usock *s)
{
        return __libc_single_threaded && !s->rec->outside && sock_held_once(s->u->s.st, s->rec);
}
/* Before the connection is used: what a relay has under way of it has gone (usock_relay.c). Without the lock. */
void usock_relay_ask(struct usock *s);
static inline void usock_relay_first(struct usock *s)
{
        if (unlikely(atomic_load_explicit(&s->rec->relay, memory_order_relaxed) != 0))
                usock_relay_ask(s);
}
static inline struct tcp_conn *usock_conn(const struct usock *s)
{
        return tcp_conn_at(&s->u->s.tcp, READ_ONCE(usock_rec(s)->conn));
}

/* SO_PEEK_OFF: where the next peek begins; and what is read or peeked at moves it. Under the lock. */
static inline size_t usock_peek_from(const struct sock_rec *rec, int flags)
{
        return unlikely(rec->peeks_on) && flags & MSG_PEEK ? (size_t)~rec->not_peek_off : 0;
}
static inline void usock_peek_moves(struct sock_rec *rec, int flags, size_t n)
{
        int64_t at = ~rec->not_peek_off;

        at = flags & MSG_PEEK ? at + (int64_t)n : at - (int64_t)n;
        rec->not_peek_off = ~(int32_t)MIN(MAX(at, 0), INT32_MAX);
}

/* What a socket is bound to and sends with, as it was at one moment; for who has no lock. */
struct usock_own {
        ip_addr addr;
        uint16_t port;
        uint8_t oif, bound_many;
        struct ip_optbuf opts;
};
struct usock_own usock_own(struct usock *s);
/* The same of its peer; false: it has none. */
bool usock_peer(struct usock *s, ip_addr *addr, uint16_t *port);

/* sockaddr <-> address and port; -EAFNOSUPPORT, -EINVAL. An IPv6 address that is not v4-mapped is -EADDRNOTAVAIL. */
int usock_addr_in(const struct sockaddr *sa, socklen_t len, ip_addr *addr, uint16_t *port);
bool usock_addr_out(int family, ip_addr addr, uint16_t port, struct sockaddr *sa, socklen_t *len);

/* By kind; usock.c dispatches. All without waiting. */
ssize_t usock_tcp_send(struct usock *s, const struct iovec *iov, int n, size_t total, int flags);
/* came: NULL, or when the last of the bytes did. */
ssize_t usock_tcp_recv(struct usock *s, const struct iovec *iov, int n, size_t total, int flags, nstime *came);
/* Reads n bytes of what was taken ahead; n is less than s->ahead.left. False: take the lock. */
bool usock_tcp_read_ahead(struct usock *s, void *p, size_t n);
/* What was read ahead counts as read, and nothing more is until the next read. Under the lock, before anything that looks
 * at or changes what is unread, and before another process can come to share the socket. */
void usock_tcp_settle(struct usock *s);
/* A TCP connection of an interface: what has come is taken now. Under the lock. */
void usock_tcp_hear(struct usock *s);
void ustack_settle(struct ustack *u);
/* Makes a connection a socket's. Under the lock. */
void usock_tcp_link(struct ustack *u, struct sock_rec *rec, uint32_t conn, uint32_t sock);
int usock_tcp_connect(struct usock *s, ip_addr addr, uint16_t port, const char **why);
ssize_t usock_udp_send(struct usock *s, const struct msghdr *m, size_t total, int flags);
ssize_t usock_udp_recv(struct usock *s, struct msghdr *m, size_t total, int flags);
ssize_t usock_udp_read_short(struct usock *s, void *p, size_t n);     /* see usock_read_short() */
ssize_t usock_udp_read(struct usock *s, void *p, size_t n, int flags);  /* the same for one buffer and no name */
bool usock_udp_room(struct usock *s);   /* no channel is full that it would send by. Needs no lock */
/* Asks for what is left of the lines that the next read will want. */
void usock_udp_fetch(struct usock *s);
int usock_udp_connect(struct usock *s, ip_addr addr, uint16_t port, const char **why);

/* usock_group.c: options whose values name groups and interfaces; errors as the kernel's, -ENOPROTOOPT: not ours. */
int usock_group_setsockopt(struct usock *s, int name, const void *val, socklen_t len);
int usock_group_getsockopt(struct usock *s, int name, void *val, socklen_t *len);
/* The interface for datagrams to groups and to 255.255.255.255; `last`: any rather than none. s: NULL, or the socket. False:
 * the kernel's. */
bool usock_group_iface(const struct usock *s, ip_addr to, bool last, struct dir_iface *f);
struct usock_sent;
/* The channel for datagrams to groups and to 255.255.255.255, and our address there; sent: NULL, or what was said of this one.
 * -ENOENT and *why: the kernel's. */
int usock_group_route(struct usock *s, ip_addr to, const struct usock_sent *sent, ip_addr *src, const char **why);
/* Whether an address beyond the channel of an interface is not one host's: 1, 0; -EACCES: a broadcast, and SO_BROADCAST is
 * not set. */
int usock_many(const struct usock *s, uint32_t chan, ip_addr to);
/* Whether it is a group, or a broadcast address of an interface of unetd's. */
bool usock_addr_is_many(ip_addr a);
/* Sends to many what was prepared, with the TTL for groups unless another is set; as stack_send_udp(). Under the lock. */
int usock_group_post(struct usock *s, uint32_t chan, struct udp_out *o, bool ttl_set, const struct stack_payload *p);

#endif
