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
 * that the keeper has, and never maps any: a keeper that dies is replaced, and told all again.
 *
 * Emulated endpoints (emul.c) are apart from all that: ports of one switch, each gone with its
 * socket.
 *
 * What a client asks and a keeper must do first is an *ask* (a request to a keeper, by number) with
 * a *waiter* (the client's request). A waiter that waits too long gets -ETIMEDOUT; the ask goes on.
 * A keeper that is stopped and leaves an ask unanswered for ASK_PATIENCE is replaced, any other
 * after ASK_END.
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
#define ASK_PATIENCE  (10 * NS_PER_S) /* with a keeper that is stopped, ... */
#define ASK_END       (60 * NS_PER_S) /* ... and with any */
#define ASK_OTHERS    NS_PER_S        /* how long one user waits for another's keeper, ... */
/* ... for it to part with channels: all waits together, in so long a time. */
#define PART_OTHERS (ASK_OTHERS / 2)
#define PART_WINDOW (10 * NS_PER_S)
#define PART_HONEST (ASK_OTHERS / 10) /* a wait no longer than that does not count */
/* ... and messages that wait for it: beyond, others are refused at once. */
#define QUEUE_OTHERS 256u
#define WAITING_MAX  4096u              /* requests of one user that wait */
#define AGENT_NS     (1500 * NS_PER_MS) /* how long another host's agent may take to answer */
#define REPLY_LATER  1

struct user;
struct gate_port;
struct stack;
struct chan;
struct ask;

struct client {
        struct conn conn;        /* first: handlers cast */
        LIST_ENTRY(client) link; /* all; or the dead */
        struct user *user;
        int32_t pid;
        uint32_t waiting; /* requests not answered yet */
        bool greeted, has_keeper;
        struct emul_name *name; /* that it listens on */
        struct emul_call *call; /* that it waits for */
        uint32_t new_tag;       /* of a channel that it does not know of yet */
        bool hands_over; /* a keeper that came too late: its offers go to the one that runs */
};

struct agent;
struct opening;
struct telling;

struct waiter {
        TAILQ_ENTRY(waiter) link; /* all, oldest first */
        struct client *client;
        struct unetd_msg request;
        nstime deadline, end; /* of a keeper that is stopped, and of any */
        struct ask *ask;      /* what it waits for: one of these */
        struct chan *chan;
        LIST_ENTRY(waiter) of_chan;
        bool settles; /* ... or K_SETTLE, with others */
        LIST_ENTRY(waiter) of_settle;
        bool discard;            /* that everything of its user's is closed */
        struct opening *opening; /* ... or an answer of another host's agent */
        struct telling *telling; /* ... or those of several */
        struct stack *room;      /* ... or a number of a channel of that stack */
        LIST_ENTRY(waiter) of_room;
};

struct ask {
        TAILQ_ENTRY(ask) link; /* of the user, oldest first */
        uint32_t seq;
        uint16_t type;
        uint32_t stack, slot; /* K_STACK, K_PROC, K_PROC_DEL */
        struct chan *chan;    /* K_CHAN, K_CHAN_DOWN */
        unsigned end;
        struct waiter *waiter;
        nstime sent;
};

enum keeper_state { KEEPER_NONE, KEEPER_AWAITED, KEEPER_RUNS };

/* A user's descriptors that a child is to close, because that may take long (discard.c). */
struct trash {
        struct loop_source child; /* pidfd of the one at work; first: handlers cast */
        int *fd;                  /* the next one's work */
        uint32_t n, cap;
        uint32_t in_child; /* so many it is at, which are open here until it ends */
        uint32_t unwanted; /* of all not closed yet: what came in messages that asked for none */
        nstime again;      /* no child could be made: tried again then; 0: none was refused */
};

struct user {
        struct conn keeper; /* first: handlers cast */
        bool keeper_died;   /* seen to in users_tick() */
        LIST_ENTRY(user) link;
        uint32_t uid, gid;
        uint32_t next_stack;
        struct conn_share share; /* of his clients: what his keeper says others have asked for */
        enum keeper_state keeper_state;
        int32_t keeper_pid;
        nstime keeper_look; /* not before is it looked at whether it is stopped */
        nstime stopped_at;  /* when it was looked at last, ... */
        bool stopped;       /* ... and what was seen: once a turn of the loop, however many wait */
        bool ports_said;   /* the log has it that he gets no more client ports, since he had none */
        bool silence_said; /* the log has it that the keeper is stopped, since it answered last */
        nstime adopt_until; /* KEEPER_AWAITED: then start one */
        uint32_t deaths;    /* of keepers, within DEATHS_WINDOW of the first */
        nstime first_death;
        nstime part_since, part_took; /* since when, and how long it took to part: PART_OTHERS */
        TAILQ_HEAD(, ask) asks;
        bool settling;                               /* K_SETTLE is with the keeper, for these; */
        LIST_HEAD(, waiter) settle_now, settle_next; /* who came since waits for the next one */
        uint32_t waiting;         /* requests of all his connections that are not answered yet */
        uint32_t ends;            /* of channels, of his stacks, whoever pays for them */
        struct unetd_limits used; /* counted as the limits are, but for: */
        struct unet_switch_account emul; /* what its emulated endpoints use */
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
        uint64_t sock;   /* as in struct unetd_port */
        int fd;          /* the kernel socket, or -1 */
        uint64_t cookie; /* its SO_COOKIE, of which no copy may be kept; 0: a hold vouches for it */
};

struct lease {
        LIST_ENTRY(lease) link;
        uint16_t first, count;
};

/* YIELDED and PARTING: see chans_yield.c. */
enum end_state { END_FREE, END_OPENING, END_UP, END_YIELDED, END_PARTING, END_CLOSING };

struct end {
        LIST_ENTRY(end) link; /* of its stack, while not END_FREE */
        struct chan *chan;
        struct stack *stack;
        struct user *payer; /* who asked for the channel: it is of his quota, on both sides */
        uint32_t slot;
        enum end_state state;
        struct frame_geom geom;
        int tx; /* memfd it writes, of this geometry */
};

/* What a stack has of an RDMA device: its queue pair is one process's, the driver's
 * (unet/verbs/vlink.h). */
struct rlink {
        LIST_ENTRY(rlink) link; /* of its stack */
        struct stack *st;
        struct agent *agent;     /* of the device */
        int mem, book_fd;        /* what its processes and the keeper map */
        struct vlink_book *book; /* mapped for writing */
        uint32_t qpn, qkey, mtu; /* qpn 0: nobody drives it yet */
        uint32_t pinned_kb;
        uint32_t instance; /* the run of unetd that made it, which others know it by */
        uint32_t version;  /* of what others are told of it */
        uint32_t refused;  /* queue pairs that were named, and are not the namer's */
};

/* The stack of another host at the far end of a channel. */
struct remote {
        struct rlink *link;
        uint32_t addr;            /* its host's, IPv4 in host order */
        uint32_t instance, stack; /* the run of the unetd there, and its number */
        uint32_t mine, theirs;    /* numbers of the channel */
        uint32_t qpn, qkey, mtu;
        bool no_csum;
        uint32_t version;    /* of what its agent last said of it */
        nstime probe_at;     /* when its agent is asked whether it is there */
        nstime silent_since; /* its agent does not answer; 0: it did */
        bool probing;
        uint32_t asked; /* a question of rdma_cm that is answered when the channel is up, 0: none */
        uint32_t nranges;
        struct vlink_range range[VLINK_RANGES];
};

struct chan {
        LIST_ENTRY(chan) link;
        /* end[0]'s other side is this interface, and end[1] stays free; or NULL. */
        struct iface *iface;
        /* At the interface's gateway; NULL: end[0]'s stack has the interface alone. */
        struct gate_port *port;
        uint32_t serial;       /* of the way to the interface (struct unetd_iface) */
        struct remote *remote; /* ... or this stack of another host; or NULL */
        struct end end[2];
        uint32_t awaits; /* end[0] is of an earlier unetd's: this stack's end has not come yet; 0 */
        int bells[2];    /* pages of the end that went first, or of bridges left, so that they stay
                          * locked until the peer has heard of it; or -1 */
        struct stack *yields; /* whose number it gives up, while it is not known whether it can; or
                                 NULL */
        LIST_HEAD(, waiter) waiters;
};

enum stack_state { STACK_ATTACHING, STACK_UP, STACK_ORPHAN };

struct stack {
        LIST_ENTRY(stack) link; /* of its bucket */
        uint32_t id;
        struct user *user;
        enum stack_state state;
        int32_t pid;               /* who made it */
        const struct client *from; /* hands it over to the keeper that runs; or NULL */
        int fds[UNETD_STACK_FDS];
        LIST_HEAD(, proc) procs;
        LIST_HEAD(, listener) listeners;
        LIST_HEAD(, listener) holds;
        LIST_HEAD(, lease) leases;
        LIST_HEAD(, end) ends;
        LIST_HEAD(, rlink) links;
        LIST_HEAD(, waiter) room; /* who wait for a number of a channel */
        bool yielding;            /* ... that another is to yield, */
        uint32_t yield_tries;     /* ... after so many could not */
        nstime yield_since;       /* when one was asked for */
        nstime yield_again;       /* before that none is asked for: all were in use */
        uint32_t slots_most; /* for these there is room in its processes, as is known until then */
        nstime slots_most_until;
        uint64_t slots[UNETD_CHANS_MAX / 64]; /* channel numbers in use */
};

struct daemon {
        struct loop loop; /* first: the after hook casts */
        struct unetd_config cfg;
        struct directory_owner dir;
        uint64_t instance;
        nstime began;
        uint32_t uid;
        struct loop_source listening, at_file, signals, routes;
        unsigned name;       /* which of the names it has */
        int spare;           /* a descriptor to give up when there are no more */
        uint32_t keeper_fds; /* descriptors that a keeper may have; 0: not known */
        LIST_HEAD(, user) users;
        LIST_HEAD(, client) clients;
        LIST_HEAD(, client) dead;
        LIST_HEAD(, chan) chans;
        LIST_HEAD(, stack) stacks[STACK_BUCKETS];
        TAILQ_HEAD(, waiter) waiters;
        uint32_t nclients, nstacks, nchans, nlisteners;
        uint32_t next_ask, next_serial;
        nstime idle_since; /* NSTIME_NEVER while in use */
        /* Client ports are from lease_low to before lease_end; where a free one is looked for. */
        uint32_t lease_low, lease_end, lease_next;
};

extern struct daemon unetd;

#endif
