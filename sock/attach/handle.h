/*
 * A process's handle of a socket, and what the files of sock/ ask of one another about it: core/
 * (usock.c, usock_refs.c, usock_register.c, usock_tcp.c, usock_connect.c, usock_relay.c) and udp/.
 */
#ifndef SOCK_HANDLE_H
#define SOCK_HANDLE_H

#include "sock/attach/ustack.h"

struct usock {
        struct ustack *u;
        uint32_t idx;         /* struct sock_rec */
        struct sock_rec *rec; /* where that is mapped */
        _Atomic uint32_t refs;
        int kfd;
        uint8_t kind, family;
        /* UDP: where that is mapped, once it was read without the lock: fewer loads. */
        struct udp_pcb *_Atomic pcb;
        _Atomic uint32_t reads; /* UDP: datagrams, roughly */
        /* UDP: bytes from fetch_at on that the next read will want: a hint, of this process. */
        _Atomic uint32_t fetch_left;
        _Atomic(const uint8_t *) fetch_at;
        struct usock *next, **link; /* of u->handles, under u's lock */
        struct {                    /* what this process reads without the lock: usock_tcp.c */
                const uint8_t *at;
                uint32_t left, used; /* left 0: nothing is; WRITE_ONCE() */
                uint64_t recoveries; /* of the stack, when it was taken */
        } ahead;
};

/* What a socket is ends: connection, listener, pcb. Under the lock. */
void ustack_end_role(struct ustack *u, struct sock_rec *rec, nstime now);
/* Ends references of a process slot to a socket; the last one closes it. Under the lock. */
void ustack_unref(struct ustack *u, uint32_t sock, uint32_t slot, nstime now);
/* Undoes what a process slot that holds a socket had begun with it, and can end no more. What it
 * had not committed was never sent or read. What the keeper was not told of is in no message. Under
 * the lock. */
void ustack_end_copies(struct ustack *u, struct sock_rec *rec, uint32_t slot, nstime now);
/* Gives up what a process slot held, copies under way included. Under the lock. */
void ustack_proc_gone(struct ustack *u, uint32_t slot, nstime now);
/* Its process is another program now: gives up all but what was to survive. True: there is such.
 * Under the lock. */
bool ustack_proc_execed(struct ustack *u, uint32_t slot, nstime now);
/* No process is left: no slot holds anything, and what no socket has is closed. Under the lock. */
void ustack_nobody_left(struct ustack *u, nstime now);
/* Our address towards one of this host's own, as Linux has it: that address, and 127.0.0.1 for all
 * of its network. */
static inline ip_addr ustack_source_to(ip_addr addr)
{
        return ip_addr_is_v4(addr) && ip_addr_get_v4(addr) >> 24 == 127
                       ? ip_addr_v4(INADDR_LOOPBACK)
                       : addr;
}
/* The socket record with this cookie, or 0. Under the lock; without it, a hint. */
uint32_t ustack_find_cookie(struct ustack *u, uint64_t cookie);
/* What a socket's entry in unetd's directory says. */
enum sock_registered {
        SOCK_UNREGISTERED,
        SOCK_TAKES, /* what is sent to the port */
        SOCK_SENDS, /* TCP: it connects from there, and takes nothing */
};
/* The protocol in that entry. */
static inline uint8_t ustack_entry_proto(const struct sock_rec *rec)
{
        if (rec->kind == USOCK_UDP)
                return IP_PROTO_UDP;
        return rec->registered == SOCK_SENDS ? IP_PROTO_TCP | DIR_HELD : IP_PROTO_TCP;
}
/* A TCP listener's entry is its own. Of those that share a port (SO_REUSEPORT) each may go before
 * the others, and with it its kernel socket, of which unetd has a copy. 0: the entry is that of all
 * there. */
static inline uint64_t ustack_entry_sock(const struct sock_rec *rec)
{
        return rec->kind == USOCK_TCP && rec->registered == SOCK_TAKES ? READ_ONCE(rec->cookie) : 0;
}
/* Has another socket the same entry in the directory? What only the process slot `dying` holds does
 * not count (STACK_PROCS: all count). Under the lock. */
bool ustack_shares_port(struct ustack *u, const struct sock_rec *rec, uint32_t dying);
/*
 * usock_register.c. Puts the socket's entry into the directory, unless it or another socket of the
 * stack has it. -EALREADY: it is no `role` (any more). No lock is held.
 */
int usock_register(struct usock *s, enum sock_registered as, uint8_t role);
/* The fabric says that the socket's port is taken, and the kernel does not: who has it is a process
 * that has just died, or a socket in a message that nobody will get. Returns true when nothing of
 * them is left. False: there is no kernel's socket, or unetd does not answer. */
bool usock_settle(struct usock *s);
/* A connection that it tried to make failed, and it listens. No lock is held. */
void usock_unregister_sender(struct usock *s);
/* The record has no entry any more, under both locks; what is then to be asked of unetd, under the
 * client's alone. */
struct sock_entry {
        ip_addr addr;
        uint16_t port;
        uint8_t proto;
        uint64_t sock;
        bool last; /* no other socket has it */
};
struct sock_entry ustack_entry_end(struct ustack *u, struct sock_rec *rec);
void ustack_entry_del(struct ustack *u, const struct sock_entry *e);
/* usock.c: the handles of `from` become those of fresh records of `to`. */
void usock_move_handles(struct ustack *from, struct ustack *to);
static inline struct sock_rec *usock_rec(const struct usock *s)
{
        return s->rec;
}
/* Nobody but this thread can use the socket: it has one thread, one process, and its number never
 * left it. */
static inline bool usock_alone(const struct usock *s)
{
        return __libc_single_threaded && !s->rec->outside && sock_held_once(s->u->s.st, s->rec);
}
/* Before the connection is used: what a relay has under way of it has gone (usock_relay.c). Without
 * the lock. */
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
/* SO_PEEK_OFF: where the next peek begins; and what is read or peeked at moves it. Under
 * the lock. */
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
/* sockaddr <-> address and port; -EAFNOSUPPORT, -EINVAL. An IPv6 address that is not v4-mapped
 * is -EADDRNOTAVAIL. */
int usock_addr_in(const struct sockaddr *sa, socklen_t len, ip_addr *addr, uint16_t *port);
bool usock_addr_out(int family, ip_addr addr, uint16_t port, struct sockaddr *sa, socklen_t *len);
/* By kind; usock.c dispatches. All without waiting. */
ssize_t usock_tcp_send(struct usock *s, const struct iovec *iov, int n, size_t total, int flags);
/* Call under the lock, after stack_take() with `now`: flushes what went in, and leaves the lock.
 * -EAGAIN: usock_recv() says what there is. */
ssize_t usock_tcp_recv_locked(struct usock *s, const struct iovec *iov, size_t total, int flags,
                              nstime now);
/* came: NULL, or when the last of the bytes did. */
ssize_t usock_tcp_recv(struct usock *s, const struct iovec *iov, int n, size_t total, int flags,
                       nstime *came);
/* Reads n bytes of what was taken ahead; n is less than s->ahead.left. False: take the lock. */
bool usock_tcp_read_ahead(struct usock *s, void *p, size_t n);
/* What was read ahead counts as read, and nothing more is until the next read. Under the lock,
 * before anything that looks at or changes what is unread, and before another process can come to
 * share the socket. */
void usock_tcp_settle(struct usock *s);
/* A TCP connection of an interface: what has come is taken now. Under the lock. */
void usock_tcp_hear(struct usock *s);
/* Somebody else is writing: -EAGAIN, or why nobody's turn will come: poll says that it is over, and
 * who waited for a turn would wait in vain. Under the lock. */
int usock_tcp_awaits_turn(struct usock *s);
void ustack_settle(struct ustack *u);
/* Makes a connection a socket's. Under the lock. */
void usock_tcp_link(struct ustack *u, struct sock_rec *rec, uint32_t conn, uint32_t sock);
int usock_tcp_connect(struct usock *s, ip_addr addr, uint16_t port, const char **why);
/* usock_fastopen.c: what the system allows is told to the socket's options, before it
 * listens; before it connects, by a message or as it was asked to. -EOPNOTSUPP: by no
 * message. In sock_rec.opts.fastopen: */
enum {
        USOCK_FASTOPEN_CONNECT = TCP_FASTOPEN_MORE,
        USOCK_FASTOPEN_NO_COOKIE = TCP_FASTOPEN_MORE << 1
};
void usock_fastopen_listen(struct usock *s, uint32_t backlog);
ssize_t usock_udp_send(struct usock *s, const struct msghdr *m, size_t total, int flags);
ssize_t usock_udp_recv(struct usock *s, struct msghdr *m, size_t total, int flags);
ssize_t usock_udp_read_short(struct usock *s, void *p, size_t n); /* see usock_read_short() */
/* The same for one buffer and no name. */
ssize_t usock_udp_read(struct usock *s, void *p, size_t n, int flags);
bool usock_udp_room(struct usock *s); /* no channel is full that it would send by. Needs no lock */
/* Asks for what is left of the lines that the next read will want. */
void usock_udp_fetch(struct usock *s);
int usock_udp_connect(struct usock *s, ip_addr addr, uint16_t port, const char **why);
/* usock_group.c: options whose values name groups and interfaces; errors as the kernel's,
 * -ENOPROTOOPT: not ours. */
int usock_group_setsockopt(struct usock *s, int name, const void *val, socklen_t len);
int usock_group_getsockopt(struct usock *s, int name, void *val, socklen_t *len);
/* The interface for datagrams to groups and to 255.255.255.255; `last`: any rather than none. s:
 * NULL, or the socket. False: the kernel's. */
bool usock_group_iface(const struct usock *s, ip_addr to, bool last, struct dir_iface *f);
struct usock_sent;
/* The channel for datagrams to groups and to 255.255.255.255, and our address there; sent: NULL, or
 * what was said of this one. -ENOENT and *why: the kernel's. */
int usock_group_route(struct usock *s, ip_addr to, const struct usock_sent *sent, ip_addr *src,
                      const char **why);
/* Whether an address beyond the channel of an interface is not one host's: 1, 0; -EACCES: a
 * broadcast, and SO_BROADCAST is not set. */
int usock_many(const struct usock *s, uint32_t chan, ip_addr to);
/* Returns true if the address is a group's, or a broadcast address of an interface of unetd's. */
bool usock_addr_is_many(ip_addr a);
/* Sends to many what was prepared, with the TTL for groups unless another is set; as
 * stack_send_udp(). Under the lock. */
int usock_group_post(struct usock *s, uint32_t chan, struct udp_out *o, bool ttl_set,
                     const struct stack_payload *p);

#endif
