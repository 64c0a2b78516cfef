/*
 * What unetd holds, for the files of unetd only.
 *
 *    user ---- keeper (a connection to its unet-keeper)
 *      |
 *      +------ client        a connection of a process; it owns nothing: stacks outlive connections
 *      +------ stack ---- proc        a process slot, by pidfd
 *                +------- listener    an entry of the directory, with its kernel socket
 *                +------- hold        a kernel socket bound for the native API
 *                +------- lease       a run of client ports
 *                +------- end ---- chan ---- end ---- stack
 *
 * A stack lives until its keeper says that it is empty. unetd keeps a duplicate of every descriptor
 * that the keeper has, and maps none. When a keeper dies, unetd starts another and tells it all
 * again.
 *
 * Emulated endpoints (emul.c) are separate: each is a port of one switch, and goes with its socket.
 *
 * Some requests of clients need the keeper first. unetd then sends the keeper an *ask*, a numbered
 * request, and the client's request becomes a *waiter*. A waiter that waits too long gets
 * -ETIMEDOUT, and the ask goes on. unetd replaces a keeper that is stopped and leaves an ask
 * unanswered for ASK_PATIENCE, and any other keeper after ASK_END.
 */
#ifndef UNETD_DAEMON_H
#define UNETD_DAEMON_H

#include <net/if.h>
#include <sys/queue.h>

#include "unet/shm/switch.h"
#include "unet/verbs/vlink.h"
#include "config/settings.h"
#include "unetd/loop/conn.h"
#include "unetd/client/directory.h"
#include "unetd/loop/log.h"

#define STACK_BUCKETS 1024u
#define ASK_PATIENCE  (10 * NS_PER_S) /* with a keeper that is stopped */
#define ASK_END       (60 * NS_PER_S) /* with any keeper */
#define ASK_OTHERS    NS_PER_S        /* how long one user waits for another's keeper */
/* All such waits together for the keeper to part with channels, within PART_WINDOW. */
#define PART_OTHERS (ASK_OTHERS / 2)
#define PART_WINDOW (10 * NS_PER_S)
#define PART_HONEST (ASK_OTHERS / 10) /* a wait that is not longer does not count */
/* Messages that wait for a user's keeper: with more of them, other users are refused at once. */
#define QUEUE_OTHERS 256u
#define WAITING_MAX  4096u /* waiters of one user */
/* Asks that a user's keeper has not answered: with more, his processes are not registered. Their
 * waiters may have left. */
#define ASKS_MAX    (2 * WAITING_MAX)
#define AGENT_NS    (1500 * NS_PER_MS) /* another host's agent answers within this */
#define REPLY_LATER 1

struct user;
struct gate_port;
struct stack;
struct chan;
struct ask;

struct client {
        struct conn conn;        /* first: handlers cast */
        LIST_ENTRY(client) link; /* of unetd.clients, or of unetd.dead */
        struct user *user;
        int32_t pid;
        uint32_t waiting; /* waiters of this connection */
        bool greeted, has_keeper;
        bool given; /* an answer with descriptors, which may be unread */
        LIST_ENTRY(client) of_given;
        struct emul_name *name; /* that it listens on */
        struct emul_call *call; /* that it waits for */
        uint32_t new_tag;       /* tag of a channel that it has not been told of */
        /* It is a keeper that came too late: the keeper that runs gets its stacks. */
        bool hands_over;
};

struct agent;
struct opening;
struct telling;

struct waiter {
        TAILQ_ENTRY(waiter) link; /* all, oldest first */
        struct client *client;
        struct unetd_msg request;
        nstime deadline, end; /* if a keeper that it waits for is stopped; in any case */
        struct ask *ask;      /* it waits for one of these: an answer of its keeper, */
        struct chan *chan;
        LIST_ENTRY(waiter) of_chan;
        bool settles; /* ... for K_SETTLE, with others */
        LIST_ENTRY(waiter) of_settle;
        bool discard;            /* ... for descriptors of its user to be closed */
        struct opening *opening; /* ... for an answer of another host's agent */
        struct telling *telling; /* ... for the answers of several */
        struct stack *room;      /* ... for a free channel number of that stack */
        LIST_ENTRY(waiter) of_room;
};

struct ask {
        TAILQ_ENTRY(ask) link; /* of the user, oldest first */
        uint32_t seq;
        uint16_t type;
        uint32_t stack, slot; /* K_STACK, K_PROC, K_PROC_DEL */
        struct chan *chan;    /* K_CHAN, K_CHAN_DOWN */
        uint32_t serial;      /* chan's at that time: which way of an interface was told */
        unsigned end;
        struct waiter *waiter;
        nstime sent;
};

enum keeper_state { KEEPER_NONE, KEEPER_AWAITED, KEEPER_RUNS };

/* A user's descriptors that a child process closes, because a close may take long (discard.c). */
struct trash {
        struct loop_source child; /* pidfd of the child at work; first: handlers cast */
        int *fd;                  /* for the next child to close */
        uint32_t n, cap;
        /* Descriptors that the child closes; they are open here until it ends. */
        uint32_t in_child;
        /* Of all that are not closed yet, those that came in messages that asked for none. */
        uint32_t unwanted;
        nstime again; /* when to try again to make a child; 0: the last try succeeded */
};

#define USER_FLIGHTS 4u /* keepers of one user that watch sockets in messages */

struct user {
        struct conn keeper; /* first: handlers cast */
        bool keeper_died;   /* users_tick() buries it */
        LIST_ENTRY(user) link;
        uint32_t uid, gid;
        uint32_t next_stack;
        struct conn_share share;         /* of his clients */
        struct conn_share keepers_share; /* one of its own: the keeper speaks for others, too */
        enum keeper_state keeper_state;
        int32_t keeper_pid;
        nstime keeper_look; /* before that unetd does not look whether the keeper is stopped */
        nstime stopped_at;  /* when unetd looked last */
        bool stopped;       /* what it saw; it looks once a turn of the loop */
        bool ports_said;    /* logged, since he last had none: he gets no more client ports */
        bool offers; /* the keeper has not said yet that it has brought all its stacks back */
        uint32_t hand_overs; /* keepers that bring theirs to this one */
        bool silence_said;   /* logged, since the keeper last answered: it is stopped */
        nstime adopt_until;  /* KEEPER_AWAITED: unetd starts a keeper then */
        uint32_t deaths;     /* keepers that died within DEATHS_WINDOW of the first */
        nstime first_death;
        /* The present PART_WINDOW's start, and how long parting took in it. */
        nstime part_since, part_took;
        TAILQ_HEAD(, ask) asks;
        uint32_t nasks;
        bool settling; /* the keeper has a K_SETTLE, for settle_now; */
        LIST_HEAD(, waiter) settle_now, settle_next; /* those that came since wait for the next */
        uint32_t waiting;                            /* waiters of all his connections */
        uint32_t ends;       /* ends of channels of his stacks, whoever pays for them */
        uint32_t kept;       /* descriptors that his keeper has for them and for links */
        uint32_t queued_fds; /* descriptors that wait to be sent to his clients */
        /* Connections that have ended and that he has not read to the end (unread.c): of his
         * clients and endpoints, and of his keepers. */
        uint32_t unread, unread_keepers;
        LIST_HEAD(, client) given;
        uint32_t ngiven;
        int flights[USER_FLIGHTS]; /* K_FLIGHTS of his keepers, the oldest first */
        uint32_t nflights;
        TAILQ_HEAD(, stack) later;    /* stacks of which the keeper has not been told (replay.h), */
        TAILQ_HEAD(, end) later_ends; /* and ends of stacks of which it has */
        nstime replayed;              /* when it was told last */
        struct unetd_limits used;     /* counted as the limits are, except for: */
        struct unet_switch_account emul; /* what his emulated endpoints use */
        struct trash trash;
};

struct proc {
        LIST_ENTRY(proc) link;
        uint32_t slot;
        int32_t pid;
        int pidfd;
};

struct listener {
        LIST_ENTRY(listener) link;
        uint8_t proto;
        uint16_t port;
        ip_addr addr;
        uint64_t sock; /* as in struct unetd_port */
        int fd;        /* the kernel socket, or -1 */
        /* Its SO_COOKIE, also if unetd keeps no copy of the socket; 0: a hold vouches for it. */
        uint64_t cookie;
};

struct lease {
        LIST_ENTRY(lease) link;
        uint16_t first, count;
};

/* END_YIELDED and END_PARTING: see chans_yield.c. */
enum end_state { END_FREE, END_OPENING, END_UP, END_YIELDED, END_PARTING, END_CLOSING };

struct end {
        LIST_ENTRY(end) link; /* of its stack, while not END_FREE */
        struct chan *chan;
        struct stack *stack;
        struct user *payer; /* who asked for the channel: both ends count against his quota */
        uint32_t slot;
        uint32_t kept; /* of the keeper's descriptors */
        bool untold;   /* it is in its user's list */
        TAILQ_ENTRY(end) later;
        enum end_state state;
        struct frame_geom geom;
        int tx; /* memfd that the stack writes, of this geometry */
};

/* A stack's link to an RDMA device. Its queue pair belongs to one process, the driver
 * (unet/verbs/vlink.h). */
struct rlink {
        LIST_ENTRY(rlink) link; /* of its stack */
        struct stack *st;
        struct agent *agent;     /* the device's */
        int mem, book_fd;        /* its processes and the keeper map them */
        struct vlink_book *book; /* mapped for writing, by unetd only */
        uint32_t qpn, qkey, mtu; /* qpn 0: it has no driver yet */
        uint32_t pinned_kb;
        uint32_t instance; /* the run of unetd that made it; others know the link by it */
        uint32_t version;  /* version of what others are told of it */
        uint32_t refused;  /* queue pairs that a process named and does not own */
};

/* The stack of another host at the far end of a channel. */
struct remote {
        LIST_ENTRY(remote) all;
        struct chan *chan;
        struct rlink *link;
        uint32_t addr;            /* its host's address, IPv4 in host order */
        uint32_t instance, stack; /* the run of the unetd there, and the stack's number */
        uint32_t mine, theirs;    /* the two hosts' numbers of the channel */
        uint32_t qpn, qkey, mtu;
        bool no_csum;
        uint32_t version;    /* version of what its agent last said */
        nstime probe_at;     /* when to ask its agent whether it is there */
        nstime silent_since; /* since then its agent does not answer; 0: it answered last */
        bool probing;
        bool proven;        /* an agent at `addr` has said that it has this channel */
        uint32_t asked;     /* a question of rdma_cm, answered when the channel is up; 0: none */
        nstime asked_until; /* ... or then: ask again */
        uint32_t nranges;
        struct vlink_range range[VLINK_RANGES];
};

struct chan {
        LIST_ENTRY(chan) link;
        /* The other side of end[0] is this interface, and end[1] stays free; or NULL. */
        struct iface *iface;
        /* The place at the interface's bridge; NULL: end[0]'s stack has the interface alone. */
        struct gate_port *port;
        uint32_t serial; /* number of the way to the interface (struct unetd_iface) */
        /* The other side of end[0] is this stack of another host; or NULL. */
        struct remote *remote;
        struct end end[2];
        /* end[0] came from an earlier unetd, and this stack's end has not come yet; or 0. */
        uint32_t awaits;
        /* Bells of the end that went first, or of former bridges: their pages stay locked until the
         * peer knows; or -1. */
        int bells[2];
        /* The stack whose number it is to give up, while that is being asked; or NULL. */
        struct stack *yields;
        LIST_HEAD(, waiter) waiters;
        uint32_t nasks; /* asks about it */
};

/* STACK_LOST: given up with its keepers; nobody finds it, and its turn to be freed comes. */
enum stack_state { STACK_ATTACHING, STACK_UP, STACK_ORPHAN, STACK_LOST };

struct stack {
        LIST_ENTRY(stack) link; /* of its bucket */
        uint32_t id;
        struct user *user;
        enum stack_state state;
        bool untold; /* it is in its user's list `later` */
        TAILQ_ENTRY(stack) later;
        int32_t pid; /* its maker's */
        /* The connection that hands it over to the keeper that runs; or NULL. */
        const struct client *from;
        int fds[UNETD_STACK_FDS];
        LIST_HEAD(, proc) procs;
        LIST_HEAD(, listener) listeners;
        LIST_HEAD(, listener) holds;
        LIST_HEAD(, lease) leases;
        LIST_HEAD(, end) ends;
        LIST_HEAD(, rlink) links;
        LIST_HEAD(, waiter) room; /* those that wait for a free channel number */
        bool yielding;            /* one of its channels is asked to yield */
        uint32_t yield_tries;     /* channels asked in a row that were in use */
        nstime yield_since;       /* when a channel was last asked to yield */
        nstime yield_again;       /* no channel is asked before that: all were in use */
        /* Its processes have room for so many channels; known until slots_most_until. */
        uint32_t slots_most;
        nstime slots_most_until;
        uint64_t slots[UNETD_CHANS_MAX / 64]; /* bitmap of the channel numbers in use */
};

struct daemon {
        struct loop loop; /* first: the `after` hook casts */
        struct unetd_config cfg;
        struct directory_owner dir;
        uint64_t instance;
        nstime began;
        uint32_t uid;
        struct loop_source listening, at_file, signals, routes;
        unsigned name;       /* index of the name that it has */
        int spare;           /* a descriptor to give up when the process has no more */
        uint32_t keeper_fds; /* limit of a keeper's descriptors; 0: not known */
        LIST_HEAD(, user) users;
        LIST_HEAD(, client) clients;
        LIST_HEAD(, client) dead;
        LIST_HEAD(, chan) chans;
        LIST_HEAD(, stack) stacks[STACK_BUCKETS];
        TAILQ_HEAD(, waiter) waiters;
        uint32_t nclients, nstacks, nchans, nlisteners;
        uint32_t next_ask, next_serial;
        nstime idle_since; /* NSTIME_NEVER while in use */
        /* Client ports are from lease_low up to, not including, lease_end. lease_next: where the
         * next search for a free one begins. */
        uint32_t lease_low, lease_end, lease_next;
};

extern struct daemon unetd;

#endif
