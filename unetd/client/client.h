/*
 * The calls that the rest of the library makes to unetd and unet-keeper.
 *
 * A process has one struct unetd_client, zeroed at first. Calls are synchronous, take at most
 * UNETD_PATIENCE_MS (10 times that in unetd_open() when a daemon has to be started), and return 0
 * or a negative errno; output parameters are touched on success only. They are made under one lock
 * of the caller's. They use raw system calls only: no errno, no hooked libc function, no heap, no
 * signal state is touched, and no application descriptor number below the high ones is used for
 * longer than a moment.
 *
 * fork: the child may use its copy at once; the first call notices, drops the parent's connections
 * and opens its own.
 * exec: nothing survives; the successor calls unetd_open() on a new struct, and
 * unetd_stack_by_cookie(). A program that closes all descriptors, ours included, loses nothing: the
 * next call notices that the number is no longer our socket, leaves it alone and reconnects.
 *
 * If unetd died or left, the next call finds or starts another, with a new `instance`. In the place
 * of a system-wide one only another such will do, which is not for us to start. Until it is there,
 * calls return -ECONNREFUSED. The `renewed` hook registers again what was registered with the old
 * one. It is called once per new instance, after the connection stands and before the call that
 * noticed goes on. It may use all calls but unetd_open() and unetd_close(). In it,
 * unetd_stack_new() with *stack_id set keeps the stack's number; then come its listeners (with
 * their kernel sockets), held ports, and leases (by their *first). Channels stay with the stacks
 * and their keeper. A stack whose number another was given meanwhile (-EEXIST) is not unetd's any
 * more, and the call that noticed returns -ENOENT.
 *
 * Errors that any call may return: -EPERM (not yours, or not for this uid), -ENOENT (no such stack
 * or channel), -ETIMEDOUT, -ECONNREFUSED (no unetd, and none could be started), -EDQUOT (a limit of
 * your uid; config/settings.h), -EPROTO (the other side talks nonsense), -EBADMSG (the other side
 * found our message wrong), -EMFILE, -ENFILE.
 */
#ifndef UNETD_CLIENT_H
#define UNETD_CLIENT_H

#include "base/base.h"
#include "base/frame.h"
#include "unet/shm/shm_offer.h"
#include "unetd/client/directory.h"
#include "unetd/client/proto.h"

/* Timeouts of an answer: from a daemon that is stopped (unetd/client/stopped.h), and from one that
 * is slow, on a machine that is busy. Both are more than unetd waits for a keeper
 * (config/settings.h). */
#define UNETD_TIMEOUT_MS  5000
#define UNETD_PATIENCE_MS 60000
/* A unetd that did not answer when it was looked for is not looked for again for so long. */
#define UNETD_SILENT_MS 30000

enum {
        UNETD_NO_START = 1, /* do not start a unetd when there is none: -ECONNREFUSED */
        UNETD_SYSTEM = 2,   /* a system-wide one, or none */
        UNETD_PRIVATE = 4,  /* the user's own one, or none */
};

/* A connection, known by number and by what the number must still refer to. */
struct unetd_conn {
        int fd;      /* -1 or 0: none */
        int32_t pid; /* who answers; 0: not known */
        /* It did not answer the last question: while it is stopped it is not asked another one. */
        bool silent;
        uint64_t ino;
};

struct unetd_client {
        struct unetd_conn daemon, keeper;
        int32_t pid; /* the process that opened them */
        uint32_t flags;
        /* UNET_DOMAIN as it was at unetd_open(): a program may clear its environment. */
        char domain[UNETD_DOMAIN_MAX + 1];
        uint32_t seq;
        bool shared;         /* the unetd in use, or the last one, is a system-wide one */
        bool renewing, lost; /* lost: a stack of the caller's is none any more (-EEXIST) */
        int64_t silent_until;
        uint64_t instance;           /* of the unetd in use, ... */
        uint32_t found_uid;          /* ... by whose name it was found, ... */
        uint32_t found_name;         /* ... and which of them */
        bool left;                   /* unetd_leave() was called since it was found */
        int32_t self;                /* this process, by the number that unetd knows it by */
        const struct directory *dir; /* mapped while open, readable when unetd is gone too */
        /* Set by the caller after unetd_open(), may be NULL: the unetd is another one,
         * register again. */
        void (*renewed)(struct unetd_client *c, void *arg);
        void *arg;
};

/* A stack's descriptors. The caller keeps its own; calls that take them duplicate, calls that give
 * them give new ones, at high numbers, close-on-exec. */
struct unetd_stack_fds {
        int state; /* memfd, the stack's whole state: for its processes and the keeper */
        int bell;  /* memfd of one page, mapped read-only by peers */
        /* Bell socket that wakes the application's waiter, and a ringer of the stack's own. */
        int leader, ring_leader;
        int keeper, ring_keeper; /* the same for the keeper */
};

/* One side of a channel as a process of the stack holds it. */
struct unetd_chan {
        int tx;                       /* own transmit region, read and write */
        int rx;                       /* the peer's, read only */
        int peer_bell;                /* read only */
        int peer_leader, peer_keeper; /* ringers */
        /* An interface of the stack's own (struct ni_xdp_fds); rx and all peer_* are then -1. */
        int mem, xsk, packet, ring, sender;
        int book;  /* a stack of another host (unet/verbs/vlink.h): it, tx and mem, and no others */
        int state; /* the peer's, for the memory at its end, when it is the user's own; 0: none */
        struct frame_geom tx_geom, rx_geom;
        uint32_t peer_stack, peer_chan, peer_uid;
        struct unetd_iface iface;
        uint32_t remote, mtu, no_csum;
};
static inline bool unetd_chan_is_iface(const struct unetd_chan *ch)
{
        return unetd_is_iface(ch->peer_stack);
}
/* Returns true if the channel goes by rings of the interface's own, and not by regions. */
static inline bool unetd_chan_is_xdp(const struct unetd_chan *ch)
{
        return unetd_is_iface(ch->peer_stack) && ch->iface.link != UNETD_LINK_GATE;
}
/* Makes the struct from what travels; the descriptors become its own. */
static inline struct unetd_chan unetd_chan_of(const struct unetd_chan_info *info,
                                              const int fds[UNETD_CHAN_FDS_MAX])
{
        bool iface = unetd_chan_is_own(info), remote = unetd_is_remote(info->peer_stack);
        bool inside = !iface && !remote, tcx = iface && info->iface.link == UNETD_LINK_TCX;

        return (struct unetd_chan){
                .tx = fds[UNETD_FD_TX],
                .rx = inside ? fds[UNETD_FD_RX] : -1,
                .peer_bell = inside ? fds[UNETD_FD_PEER_BELL] : -1,
                .peer_leader = inside ? fds[UNETD_FD_PEER_LEADER] : -1,
                .peer_keeper = inside ? fds[UNETD_FD_PEER_KEEPER] : -1,
                .mem = iface    ? fds[UNETD_FD_IF_MEM]
                       : remote ? fds[UNETD_FD_RM_MEM]
                                : -1,
                .book = remote ? fds[UNETD_FD_RM_BOOK] : -1,
                .xsk = iface ? fds[UNETD_FD_IF_XSK] : -1,
                .packet = iface ? fds[UNETD_FD_IF_PACKET] : -1,
                .ring = tcx ? fds[UNETD_FD_IF_RING] : -1,
                .sender = tcx ? fds[UNETD_FD_IF_SENDER] : -1,
                .tx_geom = info->tx_geom,
                .rx_geom = info->rx_geom,
                .peer_stack = info->peer_stack,
                .peer_chan = info->peer_chan,
                .peer_uid = info->peer_uid,
                .iface = info->iface,
                .remote = info->remote,
                .mtu = info->mtu,
                .no_csum = info->no_csum,
        };
}
static inline bool unetd_chan_is_remote(const struct unetd_chan *ch)
{
        return unetd_is_remote(ch->peer_stack);
}
static_assert((int)UNETD_FD_TX == (int)UNETD_FD_IF_TX && (int)UNETD_FD_TX == (int)UNETD_FD_RM_TX,
              "of all kinds");

/*
 * Finds the unetd to use, or starts a private one: @unet/0/<ABI>/<UNET_DOMAIN>/<0..7> (a
 * system-wide one, run by root), then @unet/<uid>/.... Names held by somebody who is neither root
 * nor this user, or that do not let this user in, are skipped. Maps the directory. The struct must
 * be zeroed, or closed. -ECONNREFUSED: none, and none was or could be started; -EINVAL: UNET_DOMAIN
 * is not a valid name.
 *
 * `dir` keeps its address until unetd_close(); when a call reconnects to another unetd, that one's
 * directory takes its place there.
 */
int unetd_open(struct unetd_client *c, unsigned flags);
/* A process that makes no calls for long looks here: has unetd died, and is there another one by
 * now? One is started only if `start` says so. `renewed` is called then. 0: there is one;
 * -ECONNREFUSED; as other calls. Before unetd_open(): 0. */
int unetd_look(struct unetd_client *c, bool start);
/* The caller has given up all its stacks, and may be another user by now. Closes the connections;
 * the next call opens new ones, and waits for no keeper of an earlier unetd. */
void unetd_leave(struct unetd_client *c);
/* Closes the connections, unmaps the directory. Registered stacks stay until their processes
 * are gone. */
void unetd_close(struct unetd_client *c);

/* Makes the descriptors of a new stack: memfds of state_bytes and one page, mode 0600,
 * sealed against shrinking, growing and sealing; pipes with O_NONBLOCK. All close-on-exec,
 * at high numbers. */
int unetd_stack_fds_make(struct unetd_stack_fds *f, uint64_t state_bytes);
void unetd_stack_fds_close(struct unetd_stack_fds *f);

/* Registers a new stack, of which the caller is process `slot`. *stack_id is 0, or the number that
 * the stack had with an earlier unetd (see `renewed`). -EEXIST: that is another's by now. The state
 * must be ready to be attached by the keeper. */
int unetd_stack_new(struct unetd_client *c, const struct unetd_stack_fds *f, uint32_t slot,
                    uint32_t *stack_id);
/* Process `pid` (0: the caller) now is process `slot` of the stack. Another process must have the
 * same uid and pid namespace. The slot ends with unetd_proc_del() or the process. Adding the same
 * again is no error; -EBUSY: the slot is another live process's; -ESRCH: no such process. */
int unetd_proc_add(struct unetd_client *c, uint32_t stack_id, uint32_t slot, int32_t pid);
/* The same for a process that is named by a descriptor, which may be in another pid namespace: *pid
 * is its number in unetd's. */
int unetd_proc_add_fd(struct unetd_client *c, uint32_t stack_id, uint32_t slot, int pidfd,
                      int32_t *pid);
/* The caller has let go of everything in its slot. The slot's death operation still runs in
 * the keeper. */
int unetd_proc_del(struct unetd_client *c, uint32_t stack_id, uint32_t slot);
/* The kernel socket `fd` with this SO_COOKIE, of a socket of the stack, leaves in a message: the
 * keeper notices when it is no more, in no process and in no message. */
int unetd_flight(struct unetd_client *c, uint32_t stack_id, uint64_t cookie, int fd);
/* The descriptors of a stack of the same user. */
int unetd_stack_get(struct unetd_client *c, uint32_t stack_id, struct unetd_stack_fds *out);
/* The same, for the stack that knows a socket with this SO_COOKIE. -ENOENT: none does. */
int unetd_stack_by_cookie(struct unetd_client *c, uint64_t cookie, uint32_t *stack_id,
                          struct unetd_stack_fds *out);

/*
 * The channel between two stacks, made when there is none; the same pair always gets the same one,
 * whoever asks. When it returns, both stacks' states have it. *chan is its number in my_stack,
 * *peer_chan in the peer (the same stack has two numbers for its channel to itself). A peer of
 * another user needs a system-wide unetd.
 *
 * peer_stack may be an interface of unetd's (UNETD_IFACE | index, from the directory). The first
 * stack has it to itself; from when a second one asks on, all go by a bridge, and the channels of
 * those before change what they go by. -ENOENT: no such peer; -ECONNRESET: the peer went while it
 * was made.
 */
int unetd_chan_open(struct unetd_client *c, uint32_t my_stack, uint32_t peer_stack, uint32_t *chan,
                    uint32_t *peer_chan);
/* The descriptors of one side, for any process of the stack. They have been verified: type, seals,
 * size, mode; of the peer's state, whose size only its stack knows, the others. */
int unetd_chan_get(struct unetd_client *c, uint32_t stack_id, uint32_t chan,
                   struct unetd_chan *out);
void unetd_chan_close(struct unetd_chan *ch);
/* The verification alone, for descriptors in the order of enum unetd_chan_fd. */
int unetd_chan_check(const struct unetd_chan_info *info, const int fds[UNETD_CHAN_FDS_MAX]);

/*
 * What a stack has of an RDMA device (unet/verbs/vlink.h): an interface of the directory's that
 * says `verbs`. Descriptors are the caller's. -EDQUOT: stacks have pinned as much as the config
 * file allows.
 */
int unetd_link_open(struct unetd_client *c, uint32_t stack_id, uint32_t iface, int *mem, int *book);
/* The calling process has made the link's queue pair: peers are told to use it. */
int unetd_link_drive(struct unetd_client *c, uint32_t stack_id, uint32_t iface, uint32_t qpn,
                     uint32_t qkey, uint32_t mtu, uint32_t pinned_kb);
/*
 * The channel to the stack that has (proto, addr, port) on another host, made when there is none;
 * the link must be driven. -ENOENT: nobody there has the port; -EHOSTUNREACH: no agent answers
 * there.
 */
int unetd_remote_open(struct unetd_client *c, uint32_t stack_id, uint32_t iface, uint8_t proto,
                      uint32_t addr, uint16_t port, uint32_t *chan);

/*
 * What the stack has from a unetd that died, for the next one: its keeper may have died with it.
 * What it knows by now is no error. The link first. -EINVAL, -ECONNRESET: it is not believed.
 */
int unetd_link_back(struct unetd_client *c, uint32_t stack_id, uint32_t iface, int mem, int book);
int unetd_chan_back(struct unetd_client *c, uint32_t stack_id, uint32_t slot,
                    const struct unetd_chan *ch);

/*
 * Puts (proto, addr, port) into the directory. `fd` is the kernel socket bound to it (listening,
 * for TCP), or -1. The socket is checked (protocol, address, port, listening, network namespace)
 * and kept by unetd until the entry goes, so that nobody else can have the port meanwhile; one for
 * datagrams that shares it is not kept. A system-wide unetd wants the socket, or a port held by
 * unetd_port_hold(). `sock` tells apart sockets that each have an entry there (their SO_COOKIE); 0:
 * the one entry of those that share it. -EINVAL: the socket is not that; -EADDRINUSE: this stack
 * has the entry already, or another user's has the port, or has leased it; -ENOSPC.
 *
 * IPPROTO_TCP | DIR_HELD: a socket that is bound and no more: the stack sends from the port, and
 * takes nothing there.
 */
int unetd_listen_add(struct unetd_client *c, uint32_t stack_id, uint8_t proto, ip_addr addr,
                     uint16_t port, uint64_t sock, int fd);
int unetd_listen_del(struct unetd_client *c, uint32_t stack_id, uint8_t proto, ip_addr addr,
                     uint16_t port, uint64_t sock);

/* For a caller that finds the port taken: returns when no process that is dead by now has anything
 * there. 0: it may be free; -ENOENT: nobody has it here. */
int unetd_port_settle(struct unetd_client *c, uint8_t proto, ip_addr addr, uint16_t port);

/* Binds a kernel socket and keeps it for the stack, so that no ordinary program gets the port.
 * *port 0: the kernel chooses. Errors are bind(2)'s: -EADDRINUSE, -EADDRNOTAVAIL, -EACCES. */
int unetd_port_hold(struct unetd_client *c, uint32_t stack_id, uint8_t proto, ip_addr addr,
                    uint16_t *port);
int unetd_port_release(struct unetd_client *c, uint32_t stack_id, uint8_t proto, ip_addr addr,
                       uint16_t port);

/* Client TCP ports, *first .. *first + *count - 1, that no other stack has: out of the kernel's
 * ip_local_port_range, not bound in the kernel. *first is 0, and *count how many are wanted (0: as
 * many as are given at once), or both say what the stack had with an earlier unetd (see `renewed`).
 * There may be fewer. They are free again when the stack is gone.
 * -EADDRNOTAVAIL: none left, or not those; -EDQUOT: the user has his share. */
int unetd_port_lease(struct unetd_client *c, uint32_t stack_id, uint16_t *first, uint16_t *count);

/*
 * Emulated endpoints. unetd_emul_attach() gives unetd what the endpoint offers
 * (unet/shm/shm_link.h) and gets what the switch does (*theirs, descriptors the caller's), the
 * number of its port, and the link's socket, the caller's. The port lasts until that socket, and
 * every copy of it, is closed. -EDQUOT: also a transmit part of more than 64 MB.
 */
int unetd_emul_attach(struct unetd_client *c, const struct shm_offer *mine,
                      struct shm_offer *theirs, uint32_t *port, int *sock);
/* Listens under a name of this user, at most 63 bytes without '/', until *fd is closed: a
 * descriptor on which a UNETD_EMUL_CALL comes when somebody calls. `anybody`: other users
 * may. -EADDRINUSE. */
int unetd_emul_listen(struct unetd_client *c, const char *name, bool anybody, int *fd);
/* Calls the name of a user and waits until the call is accepted, at most timeout_ms (< 0: for
 * ever): *tag is the channel's, both ways. -ECONNREFUSED: nobody listens, or too many wait;
 * -EACCES: the listener takes no other users; -ETIMEDOUT. */
int unetd_emul_connect(struct unetd_client *c, uint32_t port, uint32_t uid, const char *name,
                       int64_t timeout_ms, uint32_t *tag);
/* Accepts the oldest call at a listener (its number came with the UNETD_EMUL_CALL) for a port of
 * this user. -ENOMSG: nobody calls any more. */
int unetd_emul_accept(struct unetd_client *c, uint32_t port, uint32_t listener, uint32_t *tag);

/* For unet-keeper, when its unetd has died: offers itself to the one that `c` has found. 0, or
 * -EEXIST when that one has a keeper for this user already; with both, *fd is the connection, which
 * `c` gives up. */
int unetd_offer_keeper(struct unetd_client *c, int *fd);

/* Changes routes, static neighbours or interfaces: `type` is UNETD_ROUTE_ADD to UNETD_IFACE_DOWN,
 * or UNETD_IFACE_DEL. 0; -EPERM: only root and
 * the user whose unetd it is may; -ENODEV: no interface of unetd's has the name; -ENETUNREACH:
 * gateway or neighbour is on no network of it; -EEXIST, -ESRCH: there is such a route already, or
 * none; -ENOTUNIQ: several; -ENOSPC; -EINVAL, -EADDRNOTAVAIL as route_add(). */
int unetd_net_change(struct unetd_client *c, enum unetd_type type, const struct unetd_net *net);
/* Has unetd own one more interface, until unetd_net_change(UNETD_IFACE_DEL) or it leaves. As
 * iface_add() of unetd/daemon/daemon.h; -EPERM. */
int unetd_iface_add(struct unetd_client *c, const struct unetd_iface_config *iface);

/* Calls row() for each item that this user may see, in the order of enum unetd_status_kind, until
 * it returns false. */
int unetd_status(struct unetd_client *c,
                 bool (*row)(void *arg, const struct unetd_status_item *item), void *arg);

#endif
