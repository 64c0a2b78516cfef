/*
 * What unetd holds, for the files of unetd only.
 *
 *      user ---- keeper (a connection to its unet-keeper)
 *        |
 *        +------ client        a connection of a process; it owns nothing: stacks outlive connections
 *        +------ stack ---- proc        a process slot, by pidfd
 *                  +------- listener    an entry of the directory, with its kernel socket
 *                  +------- hold        a kernel socket bound for the native API
 *                  +------- lease       a block of client ports
 *                  +------- end ---- chan ---- end ---- stack
 *
 * A stack lives until its keeper says that it is empty. unetd keeps a duplicate of every descriptor that the
 * keeper has, and never maps any: a keeper that dies is replaced, and told all again.
 *
 * Emulated endpoints (emul.c) are apart from all that: ports of one switch, each gone with its socket.
 *
 * What a client asks and a keeper must do first is an *ask* (a request to a keeper, by number) with a
 * *waiter* (the client's request). A waiter that waits too long gets -ETIMEDOUT; the ask goes on. A keeper
 * that is stopped and leaves an ask unanswered for ASK_PATIENCE is replaced, any other after ASK_END.
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
#define ASK_PATIENCE  (10 * NS_PER_S)  /* with a keeper that is stopped, ... */
#define ASK_END       (60 * NS_PER_S)  /* ... and with any */
#define ASK_OTHERS    NS_PER_S          /* how long one user waits for another's keeper, ... */
#define QUEUE_OTHERS  256u              /* ... and messages that wait for it: beyond, others are refused at once */
#define WAITING_MAX   4096u             /* requests of one user that wait */
#define AGENT_NS      (1500 * NS_PER_MS) /* how long another host's agent may take to answer */
#define REPLY_LATER   1

struct user;
struct gate_port;
struct stack;
struct chan;
struct ask;

struct client {
        struct conn conn;               /* first: handlers cast */
        LIST_ENTRY(client) link;        /* all; or the dead */
        struct user *user;
        int32_t pid;
        uint32_t waiting;               /* requests not answered yet */
        bool greeted, has_keeper;
        struct emul_name *name;         /* that it listens on */
        struct emul_call *call;         /* that it waits for */
        uint32_t new_tag;               /* of a channel that it does not know of yet */
        bool hands_over;                /* a keeper that came too late: its offers go to the one that runs */
};

struct agent;
struct opening;
struct telling;

struct waiter {
        TAILQ_ENTRY(waiter) link;       /* all, oldest first */
        struct client *client;
        struct unetd_msg request;
        nstime deadline, end;           /* of a keeper that is stopped, and of any */
        struct ask *ask;                /* what it waits for: one of these */
        struct chan *chan;
        LIST_ENTRY(waiter) of_chan;
        bool settles;                   /* ... or K_SETTLE, with others */
        LIST_ENTRY(waiter) of_settle;
        bool discard;                   /* that everything of its user's is closed */
        struct opening *opening;        /* ... or an answer of another host's agent */
        struct telling *telling;        /* ... or those of several */
};

struct ask {
        TAILQ_ENTRY(ask) link;          /* of the user, oldest first */
        uint32_t seq;
        uint16_t type;
        uint32_t stack, slot;           /* K_STACK, K_PROC, K_PROC_DEL */
        struct chan *chan;              /* K_CHAN, K_CHAN_DOWN */
        unsigned end;
        struct waiter *waiter;
        nstime sent;
};

enum keeper_state { KEEPER_NONE, KEEPER_AWAITED, KEEPER_RUNS };

/* A user's descriptors that a child is to close, because that may take long (discard.c). */
struct trash {
        struct loop_source child;       /* pidfd of the one at work; first: handlers cast */
        int *fd;                        /* the next one's work */
        uint32_t n, cap;
        uint32_t unwanted;              /* of all not closed yet: what came in messages that asked for none */
};

struct user {
        struct conn keeper;             /* first: handlers cast */
        bool keeper_died;               /* seen to in users_tick() */
        LIST_ENTRY(user) link;
        uint32_t uid, gid;
        enum keeper_state keeper_state;
        int32_t keeper_pid;
        nstime keeper_look;             /* not before is it looked at whether it is stopped */
        nstime stopped_at;              /* when it was looked at last, ... */
        bool stopped;                   /* ... and what was seen: once a turn of the loop, however many wait */
        bool silence_said;              /* the log has it that the keeper is stopped, since it answered last */
        nstime adopt_until;             /* KEEPER_AWAITED: then start one */
        uint32_t deaths;                /* of keepers, within DEATHS_WINDOW of the first */
        nstime first_death;
        TAILQ_HEAD(, ask) asks;
        bool settling;                  /* K_SETTLE is with the keeper, for these; */
        LIST_HEAD(, waiter) settle_now, settle_next;    /* who came since waits for the next one */
        uint32_t waiting;               /* requests of all his connections that are not answered yet */
        struct unetd_limits used;       /* counted as the limits are, but for: */
        struct unet_switch_account emul;        /* what its emulated endpoints use */
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
        uint64_t sock;                  /* as in struct unetd_port */
        int fd;                         /* the kernel socket, or -1 */
        uint64_t cookie;                /* its SO_COOKIE, of which no copy may be kept; 0: a hold vouches for it */
};

struct lease {
        LIST_ENTRY(lease) link;
        uint32_t block;
};

enum end_state { END_FREE, END_OPENING, END_UP, END_CLOSING };

struct end {
        LIST_ENTRY(end) link;           /* of its stack, while not END_FREE */
        struct chan *chan;
        struct stack *stack;
        struct user *payer;             /* who asked for the channel: it is of his quota, on both sides */
        uint32_t slot;
        enum end_state state;
        struct frame_geom geom;
        int tx;                         /* memfd it writes, of this geometry */
};

/* What a stack has of an RDMA device: its queue pair is one process's, the driver's (unet/verbs/vlink.h). */
struct rlink {
        LIST_ENTRY(rlink) link;         /* of its stack */
        struct stack *st;
        struct agent *agent;            /* of the device */
        int mem, book_fd;               /* what its processes and the keeper map */
        struct vlink_book *book;        /* mapped for writing */
        uint32_t qpn, qkey, mtu;        /* qpn 0: nobody drives it yet */
        uint32_t pinned_kb;
        uint32_t instance;              /* the run of unetd that made it, which others know it by */
        uint32_t version;               /* of what others are told of it */
        uint32_t refused;               /* queue pairs that were named, and are not the namer's */
};

/* The stack of another host at the far end of a channel. */
struct remote {
        struct rlink *link;
        uint32_t addr;                  /* its host's, IPv4 in host order */
        uint32_t instance, stack;       /* the run of the unetd there, and its number */
        uint32_t mine, theirs;          /* numbers of the channel */
        uint32_t qpn, qkey, mtu;
        bool no_csum;
        uint32_t version;               /* of what its agent last said of it */
        nstime probe_at;                /* when its agent is asked whether it is there */
        nstime silent_since;            /* its agent does not answer; 0: it did */
        bool probing;
        uint32_t asked;                 /* a question of rdma_cm that is answered when the channel is up, 0: none */
        uint32_t nranges;
        struct vlink_range range[VLINK_RANGES];
};

struct chan {
        LIST_ENTRY(chan) link;
        struct iface *iface;            /* end[0]'s other side is this interface, and end[1] stays free; or NULL */
        struct gate_port *port;         /* at the interface's gateway; NULL: end[0]'s stack has the interface alone */
        uint32_t serial;                /* of the way to the interface (struct unetd_iface) */
        struct remote *remote;          /* ... or this stack of another host; or NULL */
        struct end end[2];
        int bells[2];                   /* pages of the end that went first, or of bridges left, so that they stay locked until the
                                         * peer has heard of it; or -1 */
        LIST_HEAD(, waiter) waiters;
};

enum stack_state { STACK_ATTACHING, STACK_UP, STACK_ORPHAN };

struct stack {
        LIST_ENTRY(stack) link;         /* of its bucket */
        uint32_t id;
        struct user *user;
        enum stack_state state;
        int32_t pid;                    /* who made it */
        bool handed_over;               /* to be told to the keeper that runs */
        int fds[UNETD_STACK_FDS];
        LIST_HEAD(, proc) procs;
        LIST_HEAD(, listener) listeners;
        LIST_HEAD(, listener) holds;
        LIST_HEAD(, lease) leases;
        LIST_HEAD(, end) ends;
        LIST_HEAD(, rlink) links;
        uint64_t slots[UNETD_CHANS_MAX / 64];   /* channel numbers in use */
};

struct daemon {
        struct loop loop;               /* first: the after hook casts */
        struct unetd_config cfg;
        struct directory_owner dir;
        uint64_t instance;
        nstime began;
        uint32_t uid;
        struct loop_source listening, at_file, signals, routes;
        unsigned name;                  /* which of the names it has */
        int spare;                      /* a descriptor to give up when there are no more */
        LIST_HEAD(, user) users;
        LIST_HEAD(, client) clients;
        LIST_HEAD(, client) dead;
        LIST_HEAD(, chan) chans;
        LIST_HEAD(, stack) stacks[STACK_BUCKETS];
        TAILQ_HEAD(, waiter) waiters;
        uint32_t nclients, nstacks, nchans, nlisteners;
        uint32_t next_stack, next_ask, next_serial;
        nstime idle_since;              /* NSTIME_NEVER while in use */
        uint16_t lease_low;             /* first port of block 0 */
        uint32_t lease_blocks, lease_next;
};

extern struct daemon unetd;

/* ---- clients.c: connections and their requests ---- */
void clients_accept(struct loop_source *s, uint32_t events);
void clients_bury(void);                /* frees the dead */
/* The client's request is answered later. 0, or a negative errno. */
int waiter_new(struct client *cl, const struct unetd_msg *request, struct waiter **w);
/* Answers with the request as it stands now, and frees. */
void waiter_end(struct waiter *w, int err);
void waiters_expire(void);
nstime waiters_deadline(void);

/* ---- discard.c ---- */
void discard_init(struct user *u);
/* Closes what came from a user, without waiting for it. `unwanted`: it came in a message and was of no
 * use. */
void discard(struct user *u, const int *fds, unsigned n, bool unwanted);
/* Closes a connection that is not served, with what may be in it already. NULL: of somebody of whom unetd keeps no record. */
void discard_refused(struct user *u, int conn);
/* Closes what came in a ring, of whoever. */
void discard_strange(const int *fds, unsigned n);
/* Too much of that waits: this user is not listened to. */
bool discard_stuck(const struct user *u);
bool discard_busy(const struct user *u);
/* The answer to a request by which something was closed: when it is, so that who asked can bind the port again. 0, a negative
 * errno, or REPLY_LATER. */
int discarded(struct client *cl, const struct unetd_msg *request);

/* ---- users.c: users, keepers, asks ---- */
struct user *user_get(uint32_t uid, uint32_t gid);      /* freed in users_tick() when nothing of it is left */
/* As log_line(), of what a user can bring about as often as he likes: a line a second and USER_LINES at once; the log is on somebody
 * else's disk. */
#define USER_LINES 20u
bool user_may_log(const struct user *u);
#define user_log(u, ...)                      \
        do {                                  \
                if (user_may_log(u))          \
                        log_line(__VA_ARGS__); \
        } while (0)
/* A keeper runs, is started, or is waited for. 0 or a negative errno. `awaited`: one may still come. */
int user_need_keeper(struct user *u, bool awaited);
void user_client_left(const struct client *cl);
int user_keeper_get(struct client *cl, struct unetd_msg *msg);
/* The client says that it is a keeper. */
int user_adopt(struct client *cl, struct unetd_msg *msg);
/* What a keeper says unasked. */
void keeper_said(struct user *u, struct wire_in *in);
/* Asks the user's keeper; the ask is numbered and remembered. NULL: no memory. */
struct ask *ask_send(struct user *u, struct unetd_msg *msg, const int *fds, unsigned n);
/* Nobody waits for the channel's asks any more. */
void asks_forget_chan(struct chan *ch);
void users_tick(void);
/* Whether the user's keeper owes an answer and is stopped. */
bool user_keeper_stopped(struct user *u);
/* The same of one user's, when somebody has waited for it in vain: who needs it is refused at once (-ETIMEDOUT), and the log says so. */
bool user_keeper_silent(struct user *u);
/* The same for who is another user: it owes an answer for a while, or has much to read. He is refused at once (-ETIMEDOUT) and goes by
 * the kernel; nothing happens to it. */
bool user_keeper_late(const struct user *u, const struct user *asks);
/* Not longer than a user waits for another's keeper. */
void waiter_hurries(struct waiter *w);
nstime users_deadline(void);

/* ---- stacks.c ---- */
struct stack *stack_find(uint32_t id);
/* 0, or -ENOENT, -EPERM. */
int stack_of(struct user *u, uint32_t id, struct stack **st);
/* Requests return 0 (answer now), a negative errno, or REPLY_LATER. */
int stack_new(struct client *cl, struct wire_in *in);
int stack_proc_add(struct client *cl, struct wire_in *in);
int stack_flight(struct client *cl, struct wire_in *in);
int stack_proc_del(struct client *cl, struct wire_in *in);
void stack_answered(struct user *u, struct ask *a, int err);
void stack_free(struct stack *st);
void stacks_free_of(struct user *u);
/* From the keeper. */
void stack_proc_gone(struct user *u, const struct unetd_msg *msg);
void stack_orphan(struct user *u, const struct unetd_msg *msg);
void stack_gone(struct user *u, const struct unetd_msg *msg);
void stack_offered(struct user *u, struct wire_in *in);
void proc_offered(struct user *u, struct wire_in *in);
/* To the keeper: all stacks of the user, or those handed over, with their processes and channels. */
void stacks_replay(struct user *u, bool handed_over);

/* ---- chans.c ---- */
int chan_open(struct client *cl, struct wire_in *in);
void chan_answered(struct ask *a, int err);
/* Opens a channel from the stack to an interface, if there is none, and nobody waits for it. */
void chan_offer_iface(struct stack *st, struct iface *f);
/* The one stack whose channel to the interface is up, and that has no other beside; 0: there is none. */
uint32_t chan_alone(const struct iface *f);
/* The interface got a gateway: the channel that had the socket goes by it from now on. */
void chans_share(const struct iface *f);
/* It leaves the gateway: its channel goes by the interface's socket from now on. */
void chan_unshare(const struct iface *f);
/* All channels to the interface close. */
void chans_iface_gone(const struct iface *f);
/* The stack is gone: its ends are free, the other ends close. */
void chans_stack_gone(struct stack *st);
void chans_replay(struct stack *st);
void chan_offered(struct user *u, struct wire_in *in);
/* A client brings one to another host. 0 or a negative errno. */
int chan_back(struct user *u, struct wire_in *in);
/* What the stack's state has, and we do not know: its keeper and the last unetd died together, or it is closing. */
void chan_numbers_taken(struct user *u, const struct unetd_stack *msg);
void chan_number_free(struct user *u, const struct unetd_msg *msg);
/* A channel to a stack of another host; takes r, also on failure. The keeper is asked; remote_up() when it has answered. */
int chan_new_remote(struct stack *st, struct remote *r, struct chan **out);
/* It goes; those who wait for it get the error. */
void chan_close(struct chan *ch, int err);
/* The request is answered when the channel is up. */
int chan_wait(struct client *cl, struct end *e, const struct unetd_msg *request);

/* ---- vouch.c ---- */
int vouch_init(void);
/* Whether the kernel says that whoever passed this socket has the port, in this network namespace: 0, or -EINVAL. With DIR_HELD
 * in the protocol: of a TCP socket that is bound and no more. */
int vouch_socket(int fd, const struct unetd_port *want);
/* Whether others may have its port, too (SO_REUSEADDR, SO_REUSEPORT). */
bool vouch_shares(int fd);
/* What the kernel calls it (SO_COOKIE); 0: it is no socket. */
uint64_t vouch_cookie(int fd);
/* The local name of a socket of unetd's own: another's owner might hold its lock. */
bool vouch_addr(int fd, ip_addr *addr, uint16_t *port);

/* ---- ports.c: listeners, bound and held ports, leases ---- */
int ports_init(void);
/* As the directory sees it: wildcards of both families are one. */
bool ports_same_addr(ip_addr a, ip_addr b);
int listen_add(struct client *cl, struct wire_in *in);
int listen_del(struct user *u, const struct unetd_msg *msg);     /* a client's, or K_UNLISTEN */
/* The entry goes: what it stood for is no more. */
void listen_end(struct stack *st, struct listener *l);
/* No process has the listener of K_ALOFT: nor have we. */
void listen_aloft(struct user *u, const struct unetd_msg *msg);
/*
 * A port that the kernel refuses may be taken by our copy of a socket whose processes have just died: their keeper
 * is asked to see to that now. -ENOENT when nobody has the port here.
 */
int port_settle(struct client *cl, const struct unetd_msg *msg);
void port_settled(struct user *u, int err);
int port_hold(struct client *cl, struct unetd_msg *msg);
int port_release(struct client *cl, const struct unetd_msg *msg);
int port_lease(struct client *cl, struct unetd_msg *msg);
int port_unlease(struct client *cl, const struct unetd_msg *msg);
/* Its keeper says what a stack had with the last unetd: LISTEN_ADD, PORT_HOLD or PORT_LEASE. */
void port_offered(struct user *u, struct wire_in *in);
void ports_stop_listening(struct stack *st);
/* An interface came: those who wait for something at its address are reached by it. */
void ports_offer_ifaces(void);
/* The stack that has leased a port; 0: none. */
uint32_t port_lessee(uint8_t proto, uint16_t port);
/* The stack that last had a port that it has no more: those that stand are still its own. 0: none. */
uint32_t port_listened(uint8_t proto, uint16_t port);
void ports_free(struct stack *st);

/* ---- emul.c: emulated endpoints ---- */
int emul_attach(struct client *cl, struct wire_in *in);
int emul_listen(struct client *cl, const struct unetd_msg *msg);
int emul_connect(struct client *cl, const struct unetd_msg *msg);
int emul_accept(struct client *cl, struct unetd_msg *msg);
/* The connection has ended: its name and its call go. */
void emul_client_ended(struct client *cl);
bool emul_in_use(void);                 /* an endpoint is attached */
/* A bounded piece of the switch's work. Returns when there is more. */
nstime emul_turn(void);
/* The skip-th port that the client may see. */
bool emul_status(const struct client *cl, uint32_t skip, struct unetd_status_item *item);

/* ---- ifaces.c: interfaces that unetd owns ---- */
void ifaces_init(void);
/* One more, by the wish of this client: 0 and its index. -ENXIO: the kernel knows no such device; -EEXIST: it is there;
 * -EADDRINUSE: another has the address, here or on its network; -ENOSPC; -EINVAL, -EOPNOTSUPP: no settings for one; -ENODATA: it
 * cannot be had (see the log). Asking on its network takes half a second, for which unetd does nothing else. */
int iface_add(const struct unetd_iface_config *c, int client, uint32_t *index);
/* It is the kernel's again: -ENODEV, or 0 and its index. Its channels end. */
int iface_remove(const char *name, uint32_t *index);
/* Stacks that wait for something at the address get a channel to each interface that has it (any: to all). */
void ifaces_offer(struct stack *st, ip_addr addr);
/* Those that a request names in a stack's place; NULL: none. */
struct iface *iface_find(uint32_t peer);
/* One more stack uses it: the first by a socket of its own, several by a gateway, and then those that were there before have
 * to be moved. 0, or why it cannot be. */
int iface_enter(struct iface *f, uint32_t stack);
/* One fewer; `port` is its place at the gateway, or NULL. */
void iface_leave(struct iface *f, struct gate_port *port);
bool iface_is_shared(const struct iface *f);
/* A place at the gateway for an end whose region is made. 0 or a negative errno. */
int iface_plug(struct iface *f, const struct end *e, struct gate_port **port);
/* What a channel to it is, and its descriptors (new ones, the caller's), but for the frames to send from. 0 or a negative
 * errno. */
int iface_describe(const struct iface *f, const struct gate_port *port, struct unetd_chan_info *info,
                   int fds[UNETD_CHAN_FDS_MAX]);
/* What a stack's frames at a gateway came to. */
struct unetd_emul_counts iface_counts(const struct gate_port *port);
/* The skip-th interface that the stack has to itself, and what was dropped before its rings. */
bool iface_sockets(const struct stack *st, uint32_t *skip, struct unetd_status_item *item);
/* The gateways' work; when there is more. */
nstime ifaces_turn(void);
/* unetd leaves: whose sending was checked sends no more. */
void ifaces_end(void);
/* Links have changed. */
void ifaces_look(void);
/* The MTU of the i-th one's device is this now; its link address may be another. */
void iface_has_mtu(uint32_t i, uint32_t mtu);
void iface_has_mac(uint32_t i);
/* Whether stacks other than this one have TCP connections from these ports, by a gateway; this one has none there any more. */
bool ifaces_flow_of_others(uint32_t stack, uint16_t first, uint32_t count);
void ifaces_forget_flows(uint32_t stack, uint16_t first, uint32_t count);
/* Whether one of them has it; the kernel then does not. */
bool iface_has_addr(ip_addr addr);
/* Whether the kernel's number of a device is one of theirs. */
bool iface_is(int ifindex);
/* What the kernel calls the device of interface i now. */
const char *iface_device(uint32_t i, char name[IF_NAMESIZE]);
/* Appends their addresses: local ones, to everybody on this host. */
uint32_t iface_addrs(ip_addr *addrs, uint32_t n, uint32_t room);

/* ---- routes.c: routes, static neighbours and the state of interfaces ---- */
void routes_init(void);                 /* after ifaces_init() */
/* Looks at the links anew, and publishes what changed. */
void routes_look(void);
/* UNETD_ROUTE_ADD to UNETD_IFACE_DEL. 0; those of iface_add() and iface_remove(); -EPERM; -ENODEV; -ENETUNREACH: on no network of
 * an interface; -ESRCH: there is no
 * such; -ENOTUNIQ: there are several; or as route_add(). */
int routes_change(struct client *cl, struct unetd_msg *msg);
/* ---- links.c, remotes.c, opens.c: RDMA devices, stacks' links to them, channels to stacks of other hosts ---- */
void links_init(void);                  /* starts the agents */
nstime links_tick(void);
int link_open(struct client *cl, struct unetd_msg *msg);
/* A client brings what its stack has from an earlier unetd. 0 or a negative errno. */
int link_back(struct user *u, struct wire_in *in);
/* Process `pid` says that it has the queue pair; -EPERM: the kernel does not. */
int link_drive(struct user *u, int32_t pid, const struct unetd_msg *msg);
int remote_open(struct client *cl, struct unetd_msg *msg);
/* The keeper has attached the channel; or it ends. */
void remote_up(struct chan *ch);
void remote_gone(struct chan *ch);
/* The keeper is told of the stack's links, whose descriptors it has for the next unetd; or it brings one of the last one's. */
void links_replay(const struct stack *st);
void link_offered(struct user *u, struct wire_in *in);
/* The far end of a channel that an earlier unetd made, as the book has it. NULL: it cannot be gone on with. */
struct remote *remote_restore(const struct stack *st, const struct unetd_chan_info *info);
/* What a keeper or a process is told of the channel. */
void remote_describe(const struct chan *ch, struct unetd_chan_info *info, int fds[UNETD_CHAN_FDS_MAX]);
void links_free(struct stack *st);
/* Ports came to a stack, or left it (add false): agents that know it are told. Returns as the request that did it is to: 0,
 * or REPLY_LATER. `cl` NULL: nobody waits. */
int links_ports(struct client *cl, const struct unetd_msg *request, struct stack *st, struct vlink_range r, bool add);
/* The skip-th link of the stack; the channel, which is one to another host. */
bool link_status(const struct stack *st, uint32_t *skip, struct unetd_status_item *item);
void remote_status(const struct chan *ch, struct unetd_status_item *item);
/* A waiter is given up. */
void opening_forget(struct opening *o);
void telling_forget(struct telling *t);

/* ---- addrs.c ---- */
int addrs_init(void);
/* Publishes the addresses of this host as they are now. */
void addrs_look(void);

/* ---- status.c ---- */
int status_next(struct client *cl, struct unetd_msg *msg);

#endif
