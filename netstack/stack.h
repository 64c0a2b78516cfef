/*
 * The stack: one block of shared memory that holds everything, and one process's view of it.
 *
 * struct stack_state is the beginning of the *state segment*: lock, processes, waiters, channels,
 * sockets, counters. Behind it are the tables of TCP and UDP, the records of transmit frames and
 * the private receive frames, at offsets written down in it. The application's processes and the
 * keeper map it, nobody else. It contains no address.
 *
 * struct stack is what a process adds: where things are mapped, the channels it has mapped, the
 * protocols' views.
 *
 * The loop is stack_run(): take messages from the channels, give them to ip/, tcp/ and udp/, fire
 * timers, build what is owed, ring bells. Time is handed in; nothing here reads a clock, takes a
 * lock or sleeps: sock/ does, the keeper does, and tests do it in virtual time.
 */
#ifndef NETSTACK_STACK_H
#define NETSTACK_STACK_H

#include <stdatomic.h>

#include "base/base.h"
#include "base/capture.h"
#include "base/counters.h"
#include "base/frame.h"
#include "netstack/netif.h"
#include "base/pool.h"
#include "base/prng.h"
#include "base/trace.h"
#include "base/rlock.h"
#include "netstack/stack_group.h"
#include "netstack/stack_ip.h"
#include "netstack/stack_route.h"
#include "base/wheel.h"
#include "ip/icmp.h"
#include "ip/ip.h"
#include "tcp/tcp_conn.h"
#include "udp/udp.h"
#include "udp/udp_flow.h"
#include "unet/bell.h"
#include "unet/ni.h"
#include "unet/ni_promise.h"
#include "unet/shm/ni_shm.h"

#define STACK_MAGIC 0x754e65742d737401ull
#define STACK_ABI   36u /* layout of this file, tcp_conn.h and udp.h; part of unetd's names */

#define STACK_CHANS 1024u /* peers at once */
#define STACK_PROCS 4096u /* process slots of a stack; SOCK_REF_FLIGHT is never a process's */
/* Threads asleep in it at once that have a bit each; who comes then is of the crowd. */
#define STACK_WAITERS 62u
#define STACK_CROWD   16384u /* threads in that */
#define STACK_WANTS   65536u /* sockets that they wait for */
/* Bytes of the capture ring; untouched until somebody captures. */
#define STACK_CAPTURE     (8u << 20)
#define STACK_TRACE       16384u /* events of the trace; untouched until somebody traces */
#define STACK_ADDRS       256u   /* addresses of this host */
#define STACK_PORT_BLOCKS 1024u  /* leases of client ports */
#define STACK_MEMORIES    64u    /* of programs' own at once */
#define STACK_NEWS        8192u  /* sockets with events that poll sets have not looked at yet */

/* ---- sizes ---- */

struct stack_limits {
        struct tcp_limits tcp;
        struct udp_limits udp;
        uint32_t socks;
        uint32_t chans;       /* at most STACK_CHANS */
        struct frame_geom rx; /* private receive frames */
        struct frame_geom tx; /* of each channel; agreed with unetd */
};
void stack_limits_default(struct stack_limits *l);
/* The same with STACK_CONNS_MAX connections and sockets, and STACK_CHANS channels, for who has
 * address space without bound: memory comes as it is used. */
#define STACK_CONNS_MAX ((1u << 20) - 2)
void stack_limits_large(struct stack_limits *l);

/* ---- what is shared ---- */

/* Pid of a slot whose process is about to be, or to say who it is. */
#define STACK_FORKING UINT32_MAX

struct proc_slot {
        _Atomic uint32_t pid;  /* 0: free */
        _Atomic uint32_t full; /* it has no descriptors for another channel: there comes none */
        uint32_t parent;       /* slot of the process that forked it */
        /* unetd had no room for it, or was not there: the keeper itself looks whether it lives. */
        _Atomic uint32_t unknown;
        _Atomic uint32_t waking; /* its threads that are to wake others, having left the lock */
        /* When it came, ms since boot: a process that began later has its number again. */
        uint64_t start;
};

/* A thread that sleeps, or is about to. Followers are woken by a datagram to an abstract socket of
 * this name. */
struct waiter_slot {
        /* Asleep or about to: wake it when a socket of its set has an event. */
        _Atomic uint32_t armed;
        uint32_t proc; /* slot of its process + 1; 0: free */
        uint32_t tid;
        uint16_t name_len;
        uint8_t name[26]; /* abstract AF_UNIX name, without the leading zero byte */
};

/*
 * The crowd: threads that sleep while STACK_WAITERS others do. Each has a list of the sockets that
 * it wants to hear of. Each socket has a list of the threads that want to hear of it. A bit among
 * the socket's waiters says that there is such a list, so that a waker looks for it only then. The
 * lists are derived state: a recovery ends them, and all that sleep look and begin anew.
 */
#define WAITERS_CROWD  (1ull << STACK_WAITERS)
#define WAITERS_SIGNAL (1ull << 63) /* its owner gets signals: SIGURG, and SIGIO with O_ASYNC */
static_assert(STACK_WAITERS + 2 == 64, "a bit each");
/* In wake_asked: peers are to be rung. */
#define ASKED_BELLS (1ull << 63)
struct crowd_waiter {
        uint32_t wants; /* its list, by crowd_want.of; or the pool's free list */
        struct waiter_slot slot;
};
struct crowd_want {
        uint32_t of;         /* the next of the same waiter; or the pool's free list */
        uint32_t next, prev; /* of the same socket */
        uint32_t sock;       /* 0: any news */
        uint32_t waiter;     /* in the pool `sleepers` */
        uint32_t exclusive;  /* of those who say so one is enough */
};

/* Memory of a program's own, which it sends from (stack_memory.h). */
struct stack_memory {
        uint32_t first, units; /* of STACK_MEMORY_UNIT; units 0: free */
        uint32_t proc; /* slot + 1; 0: its process is gone, and peers may be reading it still */
};

/* Of a channel, from its beginning to its end: this stack may send by name; whoever maps the
 * channel maps the peer's memory, too, so the peer may. */
#define STACK_NAMES_OUT 1u
#define STACK_NAMES_IN  2u

/* A channel that yields goes on, and nothing new begins by it: its number is wanted for another
 * peer. */
enum chan_state { CHAN_FREE, CHAN_READY, CHAN_DOWN, CHAN_YIELDS };

struct chan_slot {
        _Atomic uint32_t state; /* written last (release) by the keeper, or by a test */
        uint32_t peer;          /* stack id of the other side */
        uint32_t peer_uid;
        uint32_t generation; /* of this slot: a process that mapped an older one maps anew */
        struct shm_shared shm;
        uint32_t netif;  /* number + 1 when it is an interface; 0: a stack's */
        uint32_t remote; /* address of the host that stack is on, IPv4 in host order; 0: this one */
        uint32_t names;  /* STACK_NAMES_* */
        struct ip_ifaddr own; /* remote: what we are there */
        uint32_t starved;     /* somebody waits for room for so many messages; WRITE_ONCE() */
        uint32_t stuck_head, stuck_tail; /* derived: connections that do, oldest first */
        uint32_t swept; /* how much had gone by it when it was last asked whether it is idle */
};

/* Returns true if connections and sockets that refer to the channel may send. */
static inline bool chan_is_open(const struct chan_slot *slot)
{
        uint32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);

        return state == CHAN_READY || unlikely(state == CHAN_YIELDS);
}

/* The peer of a UDP socket is a group, or everybody; the peer has left the stack that was found
 * when they were connected. */
enum { SOCK_MANY_PEERS = 1, SOCK_MANY_PLACES = 0x80 };
/* Instead of a UDP socket's channel: the channel to its peer has gone. */
enum { SOCK_CHAN_GONE = STACK_CHANS + 1 };
/* A bit as of a process slot: descriptors of the socket are under way in messages. */
enum { SOCK_REF_FLIGHT = 63 };

struct sock_rec {      /* sock/ owns the meaning; see sock/attach/ustack.h */
        uint32_t link; /* free list */
        uint8_t kind, family;
        /* O_NONBLOCK: of the open file, so of all processes that have it. */
        _Atomic uint8_t nonblock;
        uint8_t bound;
        uint32_t conn; /* connection, listener or pcb index by `role`; WRITE_ONCE() */
        uint8_t role;  /* sock_set_role() */
        uint8_t v6only, reuse;
        uint8_t registered; /* in unetd's directory: enum sock_registered of sock/attach/ustack.h */
        /* Another process may have come to know it, or will: its number left this one. */
        uint8_t outside;
        uint8_t peeks_on; /* SO_PEEK_OFF: peek_off is 0 or more; WRITE_ONCE() */
        /* UDP: what recvmsg() says of a datagram besides, USOCK_TELL_* of sock/udp/usock_cmsg.h. */
        uint16_t told;
        _Atomic uint32_t edge_in, edge_out;
        _Atomic uint32_t said; /* what it has become: usock_say(); 0: nobody has said */
        /* Waiter slots that want to know; WAITERS_CROWD, WAITERS_SIGNAL. */
        _Atomic uint64_t waiters;
        /* Those of `waiters` of which one is enough; the crowd's say so themselves. */
        uint64_t exclusive;
        uint64_t refs;           /* process slots that hold it (netstack/stack_refs.h), below 64 */
        uint64_t kept;           /* those that will hold it after an exec as well */
        uint64_t more;           /* words of its row of struct sock_holders that are not 0 */
        uint64_t cookie;         /* SO_COOKIE of the kernel socket beside it, 0: none */
        uint32_t flights;        /* descriptors under way (SCM_RIGHTS) */
        uint32_t flyer;          /* process slot + 1 that is just telling the keeper of one */
        uint32_t reader, writer; /* process slot + 1 that copies without the lock; WRITE_ONCE() */
        /* Process slot + 1 that carries it for a process outside (sock/core/usock_relay.c). */
        _Atomic uint32_t relay;
        /* Questions to the relay, and how many of them are answered. */
        _Atomic uint32_t relay_asked, relay_done;
        /* Another thread wanted to copy meanwhile: wake it when `reader` or `writer` has done. */
        _Atomic uint8_t awaited;
        uint16_t segment; /* UDP_SEGMENT: datagrams of so much are made of what is sent; 0: one */
        uint8_t many;     /* UDP: SOCK_MANY_*; WRITE_ONCE() */
        uint8_t ip_opts;  /* UDP: opts.ip_opts has some */
        uint8_t waits_for_more; /* rcvlowat is above 1; here, where readiness is looked at */
        /* UDP: SOCK_CORK_*; TCP: SOCK_CORK_STAMPED or not; WRITE_ONCE() */
        uint8_t cork;
        uint32_t tx_frame; /* UDP: the frame it copies into */
        uint32_t chan;     /* UDP, connected: channel + 1 of the peer */
        /* UDP: what had no room for the last datagram, see usock_udp_room(); WRITE_ONCE(). */
        uint32_t blocked;
        int32_t err;
        uint16_t lport, rport;
        ip_addr laddr, raddr;
        ip_addr reg_addr; /* as it is in the directory: a connected socket's laddr is narrower */
        struct tcp_opts opts; /* until there is a connection */
        nstime rcvtimeo, sndtimeo;
        uint32_t rcvlowat;
        uint32_t stamps;     /* SO_TIMESTAMPING: SOF_TIMESTAMPING_* */
        uint32_t stamp_base; /* TCP: the sequence number that bytes are counted from */
        /* UDP to many: usock_group.c. */
        /* Enum sock_group_out, or interface + SOCK_GROUP_IF: where groups are sent. */
        uint8_t group_out;
        /* IP_MULTICAST_TTL; IP_MULTICAST_LOOP and _ALL switched off. */
        uint8_t group_ttl, no_loop, members_only;
        uint8_t broadcast;  /* SO_BROADCAST */
        uint8_t member;     /* it is or was a member of a group */
        uint8_t bound_many; /* laddr is a group or a broadcast address */
        uint8_t oif; /* SO_BINDTODEVICE: number of an interface in the route table; 0: none */
        /* Frames of a datagram that is begun (usock_cork.c); 0: there is none. */
        uint32_t corked[2];
        uint32_t crowd; /* first of the crowd_wants for it */
        int32_t owner;  /* who gets signals: a process of the stack's, or less than 0: a group */
        uint32_t owner_tid; /* ... one thread of it; 0: any */
        uint64_t owner_ns;  /* the PID namespace in which that is said; 0: unknown */
        uint8_t async;      /* O_ASYNC */
        uint8_t zerocopy;   /* SO_ZEROCOPY */
        /* Sends with MSG_ZEROCOPY; and of them those that the error queue has told of. */
        uint32_t zc_sent, zc_told;
        uint8_t ack_delayed;  /* TCP_QUICKACK was switched off: it is said so */
        int32_t not_peek_off; /* the complement of SO_PEEK_OFF, which is -1 at first */
};
enum {
        SOCK_CORK_ON = 1,     /* UDP_CORK is set */
        SOCK_CORK_OURS = 2,   /* a datagram is begun */
        SOCK_CORK_KERNEL = 4, /* ... by the kernel's socket */
        /* Times of sending are asked for (SO_TIMESTAMPING); of datagrams only the kernel's socket
         * tells. */
        SOCK_CORK_STAMPED = 8,
};
enum { SOCK_GROUP_ANY, SOCK_GROUP_KERNEL, SOCK_GROUP_OURS, SOCK_GROUP_IF };

enum { SOCK_ROLE_NONE, SOCK_ROLE_CONN, SOCK_ROLE_LISTENER, SOCK_ROLE_UDP };

/* Readiness is asked for without the lock: who sees the role (acquire) sees what was made ready
 * before it was given (release), `conn` and the record that this names. */
static inline void sock_set_role(struct sock_rec *rec, uint8_t role)
{
        __atomic_store_n(&rec->role, role, __ATOMIC_RELEASE);
}
static inline uint8_t sock_role(const struct sock_rec *rec)
{
        return __atomic_load_n(&rec->role, __ATOMIC_ACQUIRE);
}

/* Process slots from 64 on that hold a socket: a row beside each record, untouched in a stack of
 * fewer processes. */
struct sock_holders {
        uint64_t refs[STACK_PROCS / 64], kept[STACK_PROCS / 64];
};
static_assert(STACK_PROCS % 64 == 0 && STACK_PROCS / 64 <= 64,
              "sock_rec.more has a bit for each word");

struct stack_state {
        uint64_t magic;
        uint32_t abi, id;
        uint32_t uid, pad; /* whose it is */
        uint64_t bytes;    /* of the segment */
        uint64_t tcp_off, udp_off, sock_off, rxpool_off, rxframes_off, capture_off, trace_off,
                ip_off, netif_off, igmp_off, route_off, crowd_off, wants_off, holders_off,
                chan_pool_off;
        struct stack_limits limits;

        _Alignas(CACHE_LINE) struct rlock lock;
        uint32_t gen;    /* odd: somebody is changing things */
        uint32_t busy;   /* the connection being changed while gen is odd */
        nstime now;      /* of the latest call of any process */
        nstime sweep_at; /* when channels are looked through for idle ones */
        /* Channels that a turn looks at (stack_quiet.c), and which of these words are not 0. */
        _Alignas(CACHE_LINE) _Atomic uint64_t hot[STACK_CHANS / 64];
        _Atomic uint64_t hot_words;
        nstime quiet_after; /* of idle ones so long; where there are more than so many */
        uint32_t quiet_few;
        /* Looks at the others are paid for until then; one that was put off is due at look_at. */
        _Atomic nstime looks_paid, look_at;
        uint64_t unetd; /* of whose channels they are: the instance that made the stack known */
        /* Counts of the bell: leaders asleep; the keeper gone back to sleep. */
        uint32_t sleeps, rests;
        uint32_t rung;    /* `rests` when a process of ours last rang the keeper itself */
        nstime keeper_at; /* when the keeper will look in by itself */
        uint32_t leader; /* waiter slot + 1 that sleeps on the leader pipe, 0: none; WRITE_ONCE() */
        nstime leader_at; /* when it will look in by itself */
        /* The keeper looks in every millisecond: no need to arm when leaving. */
        _Atomic uint32_t ticking;
        _Atomic uint32_t chans;    /* slots ever used: 0 .. chans-1 */
        _Atomic uint32_t chan_gen; /* grows when a channel comes or goes */
        uint32_t netifs;           /* interfaces ever used: 0 .. netifs-1 */
        uint32_t promised; /* 1: by some channel, connections to a listener (stack_answer.c) */
        /* Slots that are used at most: its processes have no address space for more. */
        uint32_t chan_room;
        _Atomic uint32_t procs; /* process slots ever used: 0 .. procs-1 */

        /* Connections with something to send or to tell, oldest first; linked by tc->out_next. */
        uint32_t out_head, out_tail; /* out_head: WRITE_ONCE() */
        uint32_t nstuck;             /* derived: connections that are stuck, of all channels */
        /* Connections that delay an acknowledgement until the end of the turn; WRITE_ONCE(). */
        uint32_t nacks;
        uint32_t acks[32];
        struct {
                uint16_t first, count;
        } block[STACK_PORT_BLOCKS]; /* client ports leased from unetd */
        uint32_t nblocks, port_next;
        struct icmp_rate icmp;
        struct {
                uint32_t pcb, chan; /* full, and the channel that fills it; 0: none */
                uint64_t consumed;  /* by its reader, when last looked at */
                nstime since;       /* when that last changed */
        } crowd;
        uint64_t addr_gen;         /* of the list that the addresses were taken from, + 1 */
        uint32_t net_gen;          /* of the network's configuration that was taken over; 0: none */
        uint32_t route_mtus;       /* some route has an MTU of its own */
        struct netconf_ip ip_conf; /* as it is published */
        uint32_t naddr;
        struct ip_ifaddr addr[STACK_ADDRS]; /* ours: what packets on local channels may be for */

        struct stack_memory memory[STACK_MEMORIES];
        uint32_t has_memory; /* 1: there was some; channels to come may have names */
        uint32_t names;      /* ever given */
        struct prng prng;
        struct counters cnt;
        struct wheel wheel;
        struct proc_slot proc[STACK_PROCS];
        struct waiter_slot waiter[STACK_WAITERS];
        /* Sockets that had events, oldest first and over again. A reader that remembers a count
         * reads on from there, and looks at all sockets when it was lapped. 0 stands for all that
         * wait for room. Waiters for any news are in news_waiters. */
        _Atomic uint32_t news_count;
        _Atomic uint32_t news[STACK_NEWS];
        uint64_t news_waiters;
        uint32_t crowd_news; /* first of the crowd_wants for any news */
        /* Waiters whom a process may not wake that has locked itself in: the keeper does. */
        uint64_t wake_asked;          /* bits of waiter slots; WAITERS_CROWD; ASKED_BELLS */
        nstime unheard_at;            /* the last wake-up that nobody could deliver; 0: none */
        _Atomic uint32_t any_unknown; /* there may be one among proc[] */
        struct chan_slot chan[STACK_CHANS];
        struct pool socks;           /* struct sock_rec, at sock_off */
        struct pool sleepers, wants; /* struct crowd_waiter and crowd_want */
};

/* The table that lies behind the state at one of its offsets. */
static inline void *at_offset(const struct stack_state *st, uint64_t off)
{
        return (char *)(uintptr_t)st + off;
}

/* The pool of channel k's transmit region. */
static inline struct frame_pool *stack_chan_pool(const struct stack_state *st, uint32_t k)
{
        return at_offset(st,
                         st->chan_pool_off + k * ALIGN_UP(frame_pool_bytes(st->limits.tx), 4096));
}

/* Process slots to look at: 0 .. n-1. */
static inline uint32_t stack_procs(const struct stack_state *st)
{
        return MIN(atomic_load_explicit(&st->procs, memory_order_acquire), STACK_PROCS);
}

/* The place of waiter `slot`: of those that have a bit, and from STACK_WAITERS on of the crowd. */
static inline struct waiter_slot *stack_waiter(struct stack_state *st, uint32_t slot)
{
        if (likely(slot < STACK_WAITERS))
                return &st->waiter[slot];
        return &((struct crowd_waiter *)pool_at(&st->sleepers, slot - STACK_WAITERS))->slot;
}

/* ---- one process's view ---- */

struct stack_chan {
        const struct unet_ni_ops *ops; /* NULL: not mapped here */
        struct unet_chan *ch;          /* and who has no lock, by stack_chan_peek() */
        struct unet_caps caps;
        uint32_t generation; /* of the slot when it was mapped */
        bool stranger;       /* the peer is another user's: see vouch */
        bool remote;         /* ... or another host's */
        /* Its peer does not run on this host: an interface, or remote; WRITE_ONCE(). */
        bool outside;
        bool wire;   /* an interface without a bridge before it; WRITE_ONCE() */
        bool copied; /* caps.copied, for who looks without the lock; WRITE_ONCE() */
        struct netif_view netif;
};

/* IP headers of the connections sent on last; saves filling and summing the same 20 bytes
 * each time. */
struct stack_tmpl {
        uint32_t conn, gen;
        uint16_t tos_ttl, pad;
        struct ip_tmpl ip;
};
#define STACK_TMPLS 64u

#define STACK_FLOWS 16u /* of datagrams that came last */

struct stack {
        struct stack_state *st;
        struct tcp tcp;
        struct udp udp;
        struct stack_ip *ip;
        struct igmp *igmp;
        struct route_table *routes;
        struct frames *frames;
        struct capture *capture;
        struct trace *trace;
        uint32_t shut_window; /* connection whose peer's window was last traced as closed */
        struct stack_chan chan[STACK_CHANS];
        uint32_t nchan;    /* slots below this may be mapped; WRITE_ONCE() */
        uint32_t chan_gen; /* of the state when all channels were last mapped; store-release */
        struct bell *bell;
        uint8_t *memory; /* of programs' own; NULL: not mapped (stack_memory.h) */
        struct stack_tmpl tmpl[STACK_TMPLS];
        /* Maps channel k, which appeared in the state. False: cannot be now. Set by sock/ and
         * the keeper. */
        bool (*map_chan)(struct stack *s, uint32_t k);
        /* Channel k, which was mapped, is free again: its memory and descriptors can go. May
         * be NULL. */
        void (*unmap_chan)(struct stack *s, uint32_t k);
        /* The socket of a connection, listener or pcb has events (TCP_EV_*). Socket 0: all that
         * wait for room to send. */
        void (*event)(struct stack *s, uint32_t sock, uint32_t events);
        /* Returns true if the peer of channel k, another user's stack, may speak for a port. Asked
         * of each datagram and each new connection of strangers; what is not vouched for is dropped
         * as NI_BAD_SOURCE. NULL: nobody is asked. */
        bool (*vouch)(struct stack *s, uint32_t k, uint8_t proto, ip_addr addr, uint16_t port);
        /* Who this process is, for what it promises (unet/ni_promise.h), false: nothing; and
         * whether one that promised is there still. NULL, both: nothing is promised, and nothing
         * used. */
        bool (*promiser)(struct stack *s, struct unet_promiser *own);
        bool (*lives)(struct stack *s, struct unet_promiser p);
        /* Returns true if another stack than that of channel k takes what is sent to a UDP port;
         * may be NULL. */
        bool (*elsewhere)(struct stack *s, uint32_t k, ip_addr addr, uint16_t port);
        void *owner;      /* of those who set the ones above */
        nstime now;       /* of the call in progress */
        nstime look_at;   /* this process's look at quiet channels (stack_quiet.c); WRITE_ONCE() */
        uint32_t rx_chan; /* whose messages are being taken */
        bool rx_batch;    /* ... and a batch of them is */
        uint32_t rx_told; /* pcb whose socket is told at the end of the batch, 0: none */
        struct udp_flow flow[STACK_FLOWS];
};

/* Bytes a state segment of these limits takes. Most are never touched and cost nothing. */
size_t stack_bytes(const struct stack_limits *l);
/* Makes a stack in zeroed memory of stack_bytes(). `seed`: 32 random bytes. */
void stack_format(struct stack_state *st, const struct stack_limits *l, const uint8_t seed[32],
                  nstime now);
/* Makes a process's view; `bell` is the stack's own (tests: any memory). Who will map channels
 * gives zeroed memory: chan[], nearly a megabyte, is not written. 0, -EPROTO when it is not a stack
 * of this ABI and build, -ENOMEM. */
int stack_view_init(struct stack *s, struct stack_state *st, size_t bytes, struct bell *bell);
void stack_view_fini(struct stack *s);

/* Replaces the addresses that packets may be for. */
void stack_set_addrs(struct stack_state *st, const ip_addr *addrs, uint32_t n);

/* Adds channel k to the state (the keeper, or a test, and nobody else; needs no lock). From here on
 * the stack's processes map and use it. -EBUSY: k is in use; -EINVAL: no such slot, or more
 * transmit frames than this state has records for. */
int stack_chan_add(struct stack_state *st, uint32_t k, uint32_t peer, uint32_t peer_uid,
                   struct frame_geom tx, struct frame_geom rx);
/* Adds channel k to a stack of another host, which is `remote` and to which we are `own` (IPv4,
 * host order). As above. */
int stack_remote_add(struct stack_state *st, uint32_t k, uint32_t peer, uint32_t remote,
                     struct ip_ifaddr own, struct frame_geom tx, struct frame_geom rx);
/* Adds channel k to an interface, with neighbours yet to be found; `peer` is unetd's number of it,
 * `rx` the frames that its provider names. `seed`: 16 random bytes. As stack_chan_add(); -ENOSPC:
 * NETIF_MAX interfaces are there. */
int stack_netif_add(struct stack_state *st, uint32_t k, uint32_t peer,
                    const struct netif_config *cfg, struct frame_geom tx, struct frame_geom rx,
                    const uint8_t seed[16], nstime now);
/* The interface of channel k goes by something else from now on (cfg->serial is another one), whose
 * frames are `rx`: processes map it anew. True when it did not before. Under the lock. */
bool stack_netif_move(struct stack *s, uint32_t k, const struct netif_config *cfg,
                      struct frame_geom rx);
/* Interface i of the state, 0 .. NETIF_MAX - 1. */
struct netif *stack_netif(const struct stack_state *st, uint32_t i);
/* A channel that is down becomes free for another, once nothing in the state refers to it. False:
 * not yet. */
bool stack_chan_free(struct stack *s, uint32_t k);
/* Tells this view how to use channel k, which stays the caller's, and where its frames
 * are mapped. */
void stack_chan_mapped(struct stack *s, uint32_t k, struct unet_chan *ch, uint8_t *tx_frames,
                       const uint8_t *rx_frames);
/* ... and where what the peer names (STACK_NAMES_IN). */
void stack_chan_named(struct stack *s, uint32_t k, const uint8_t *memory);
void stack_chan_unmapped(struct stack *s, uint32_t k);
/* Takes what has come by channel k, whose peer is gone or which is to go by something else: no more
 * than the ring holds. No reader is waited for. Call between stack_time() and a flush. */
void stack_last_words(struct stack *s, uint32_t k);
/* Sets a bit in used[k / 64] for each channel that a connection, a datagram or a frame still refers
 * to. A connection in TIME-WAIT that no socket has does not count. Under the lock. */
void stack_chans_used(struct stack *s, uint64_t used[STACK_CHANS / 64]);
/* Nothing new begins by the channel, or again. Under the lock. */
void stack_chan_yield(struct stack *s, uint32_t k, bool yields);
/* The peer is gone: its connections are reset, loans end. */
void stack_chan_down(struct stack *s, uint32_t k, nstime now);

/* Maps channels that appeared since this process looked last, and lets go of those that are free
 * again. A channel that is down stays mapped while data that came by it is unread. On entering the
 * stack, under its lock. */
void stack_sync_chans(struct stack *s);
static inline void stack_sync(struct stack *s)
{
        if (unlikely(atomic_load_explicit(&s->st->chan_gen, memory_order_acquire) != s->chan_gen))
                stack_sync_chans(s);
}
/* The first channel of word i of `hot`, or of a later word, that is looked at; STACK_CHANS: there
 * is none. No lock needed. */
uint32_t stack_hot_from(const struct stack *s, uint32_t i);
/* The first channel that is looked at, and may be mapped here; STACK_CHANS: there is none. No lock
 * needed. Most processes have one peer, or few: the first word is all they look at. */
static inline uint32_t stack_hot_first(const struct stack *s)
{
        uint64_t word = atomic_load_explicit(&s->st->hot[0], memory_order_relaxed);
        uint32_t k = likely(word != 0) ? (uint32_t)__builtin_ctzll(word) : stack_hot_from(s, 1);

        return k < READ_ONCE(s->nchan) ? k : STACK_CHANS;
}

/* The same from behind channel k on. */
static inline uint32_t stack_hot_after(const struct stack *s, uint32_t k)
{
        uint64_t word;

        if (likely(k + 1 >= READ_ONCE(s->nchan)))
                return STACK_CHANS;
        word = atomic_load_explicit(&s->st->hot[k / 64], memory_order_relaxed) >> k % 64 >> 1;
        k = word != 0 ? k + 1 + (uint32_t)__builtin_ctzll(word) : stack_hot_from(s, k / 64 + 1);
        return k < READ_ONCE(s->nchan) ? k : STACK_CHANS;
}

#define STACK_FOR_HOT(s, k) \
        for (uint32_t k = stack_hot_first(s); k < STACK_CHANS; k = stack_hot_after(s, k))

/* Both bits are set: who heats without the lock may die between them. Nobody asks the first word's
 * bit (stack_hot_first()). */
static inline bool stack_is_hot(const struct stack_state *st, uint32_t k)
{
        return (atomic_load_explicit(&st->hot[k / 64], memory_order_relaxed) >> k % 64 & 1) != 0 &&
               (likely(k < 64) ||
                (atomic_load_explicit(&st->hot_words, memory_order_relaxed) >> k / 64 & 1) != 0);
}

/* Channel k is looked at from now on. No lock needed. */
static inline void stack_heat(struct stack_state *st, uint32_t k)
{
        if (likely(stack_is_hot(st, k)))
                return;
        atomic_fetch_or(&st->hot[k / 64], 1ull << k % 64);
        atomic_fetch_or(&st->hot_words, 1ull << k / 64);
}
/* Channel k is not looked at until somebody heats it. Under the lock. */
void stack_cool(struct stack_state *st, uint32_t k);
/* Looks at the others: what has come by one is seen by the next turn. Returns true if there was
 * something. Anybody may ring for them: when many looks have found nothing one is put off, and
 * stack_deadline() is due. No lock needed. */
bool stack_heard_quiet(struct stack *s, nstime now);
/* The channel that k goes by, for a caller without the lock that asks only whether something is
 * pending; NULL: none, or not any more. It may be unmapped meanwhile: then nothing is pending
 * (sock/attach/ustack_chan.c). Acquire, to go with the store of a channel that was made ready
 * (stack_chan_mapped()). */
static inline struct unet_chan *stack_chan_peek(const struct stack *s, uint32_t k)
{
        return __atomic_load_n(&s->chan[k].ch, __ATOMIC_ACQUIRE);
}
/* The channel's view, mapped if need be; NULL when there is none or it is down. */
struct stack_chan *stack_chan_get(struct stack *s, uint32_t k);
struct tcp_link stack_tcp_link(struct stack *s, uint32_t k);

/* Monotonic stack time: the time of the call that begins, under the lock. A caller that had to wait
 * for the lock has read its clock before others that were in here since. A segment with an older
 * timestamp would be dropped (RFC 7323 §5.3). The calls below that take `now` do this by
 * themselves. */
static inline nstime stack_time(struct stack *s, nstime now)
{
        s->now = MAX(now, s->st->now);
        s->st->now = s->now;
        return s->now;
}

/* Returns true if stack_run() would find something: a message, returned frames, a deadline. No lock
 * needed. */
bool stack_pending(struct stack *s, nstime now);
/* Returns true if stack_run() or stack_flush_acks() would do anything. No lock needed. */
bool stack_has_work(struct stack *s, nstime now);
/* One turn: input, timers, output, bells. Returns true if anything was done. */
bool stack_run(struct stack *s, nstime now);
/* The first half of one: input and timers. stack_flush() is to follow before the lock is left. */
bool stack_take(struct stack *s, nstime now);
/* After the application's calls on connections: output, deadlines and events of those
 * touched; bells. */
void stack_flush(struct stack *s, nstime now);
/* Only the bells: after sends that touched no connection. */
void stack_flush_bells(struct stack *s);
/* Returns true if acknowledgements that were put off are still to be sent. */
bool stack_owes_acks(struct stack *s);
/* The turn ends: acknowledgements that were put off are sent. */
void stack_flush_acks(struct stack *s, nstime now);
/* The same for connections in TIME-WAIT, whose acknowledgements nothing else will carry. For
 * callers that do not act for an application. */
void stack_flush_last_acks(struct stack *s, nstime now);
/* Before the owner sleeps (on): peers that hold frames of ours ring when they give them back;
 * senders may wait for them. */
void stack_want_returns(struct stack *s, bool on);
/* Before the owner arms its bell and looks: what it is about to sleep on is to say what
 * comes (unet_ni_ops.arm). */
void stack_arm(struct stack *s);
/* Somebody waits for a frame of the class to send on channel k: as soon as there is one s->event()
 * says so. */
void stack_wait_frame(struct stack *s, uint32_t k, enum frame_class c);
/* When to call stack_run() at the latest. */
nstime stack_deadline(const struct stack *s);

#define STACK_UDP_ROOM (IP_MIN_HDR + UDP_HDR) /* for an IP header without options */

/* Payload of a datagram: bytes that fit a descriptor, or a range of a transmit frame with one
 * reference, which the call takes when it succeeds. On a channel that copies (unet_caps.copied)
 * also bytes that fit its mtu, behind room for the headers: the channel's place for its next
 * message (unet_ni_ops.place), which there is. */
struct stack_payload {
        const uint8_t *inl;
        uint32_t len;
        struct buf data; /* id 0: at inl */
        /* That place, STACK_UDP_ROOM bytes before inl; NULL: inl fits a descriptor. */
        uint8_t *room;
        bool summed; /* `sum` is its csum_partial() */
        uint32_t sum;
};
/* csum_partial() of it, for a channel that needs checksums. */
uint32_t stack_payload_sum(const struct stack *s, const struct stack_payload *p);
/* Sends one UDP datagram prepared by udp_output_prepare() on channel k, bell included. 0; -EAGAIN:
 * queue full, nothing was taken; -ENETUNREACH: no such channel; -E2BIG: it is to go in pieces, and
 * does not lie in a frame. */
int stack_send_udp(struct stack *s, uint32_t k, const struct udp_out *o,
                   const struct stack_payload *p);
/* The same without the bell: another one follows at once, or stack_flush_bells(). */
int stack_send_udp_more(struct stack *s, uint32_t k, const struct udp_out *o,
                        const struct stack_payload *p);

/* stack_loop.c, for stack.c: the protocols' views; the loop's links in connections after
 * a death. */
void stack_loop_init(struct stack *s);
void stack_loop_forget(struct stack *s);
void stack_loop_relink(struct stack *s);

/* Around each change to a connection: a successor mends only the one named. */
static inline void stack_begin(struct stack_state *st, uint32_t conn)
{
        __atomic_store_n(&st->busy, conn, __ATOMIC_RELAXED);
        __atomic_store_n(&st->gen, st->gen | 1, __ATOMIC_RELEASE);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
static inline void stack_end(struct stack_state *st)
{
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        __atomic_store_n(&st->gen, (st->gen | 1) + 1, __ATOMIC_RELEASE);
}
/* A process died inside: everything derived is made anew, the connection it was changing
 * is mended. */
void stack_recover(struct stack *s, nstime now);
/* The end of that: closes what no socket has, because death came while one was being made or
 * taken apart. */
void stack_close_nobodys(struct stack *s, nstime now);

/* The TTL of packets for which no socket names another. */
static inline uint8_t stack_ttl(const struct stack_state *st)
{
        return st->ip_conf.ttl != 0 ? st->ip_conf.ttl : IP_TTL_USUAL;
}

/* Each record of a socket that was ever used, and its number. */
#define FOR_SOCKS(st, i, rec)                                       \
        for (uint32_t i = 1; i < READ_ONCE((st)->socks.fresh); i++) \
                for (struct sock_rec *rec = pool_at(&(st)->socks, i); rec != NULL; rec = NULL)
static inline struct sock_rec *stack_sock(const struct stack *s, uint32_t sock)
{
        return pool_at(&s->st->socks, sock);
}

#endif
